//! DDSketch: golden files of the Java and Go libraries, the Rust library as a peer, hostile bytes.

use codecs::ddsketch::{COUNT_MAX, FLAGS, decode, decode_protobuf, encode, encode_protobuf};
use hist::{
    DecodeError, DoubleDouble, EncodeError, Histogram, HistogramParts, Interpolation, Logarithmic,
    Scheme, TrackedValue,
};
use proptest::prelude::*;
use sketches_ddsketch::{Config, DDSketch};

const GO: &str = include_str!("../../../../testdata/hist/ddsketch/go.tsv");
const JAVA: &str = include_str!("../../../../testdata/hist/ddsketch/java.tsv");
const PAGE: &str = include_str!("../../../../docs/formats/ddsketch.md");

/// gamma 2, no offset, linear: few bytes and edges on powers of two.
const MAPPING: &str = "06 0000000000000040 0000000000000000";

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let pair = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn values(name: &str) -> Vec<f64> {
    match name {
        "empty" => vec![],
        "five" => vec![1.0, 2.0, 3.0, 4.0, 5.0],
        "signs" => vec![-3.0, -1.0, 0.0, 2.0, 5.0],
        "ramp" => (0..500).map(|i| 1.0 + f64::from(i) * 0.01).collect(),
        "ones" => vec![1.0; 300],
        "powers" => (-10..=10).map(|i| 2f64.powi(i)).collect(),
        list => list.split_whitespace().map(|value| value.parse().unwrap()).collect(),
    }
}

fn histogram(scheme: Scheme, values: &[f64]) -> Histogram {
    let mut histogram = Histogram::new(scheme);
    values.iter().for_each(|&value| histogram.record(value));
    histogram
}

/// The same counts without summary statistics.
fn without_summary(histogram: &Histogram) -> Histogram {
    let absent = HistogramParts {
        sum: TrackedValue::Absent,
        min: TrackedValue::Absent,
        max: TrackedValue::Absent,
        ..histogram.clone().into_parts()
    };
    Histogram::from_parts(absent).unwrap()
}

fn log(gamma: f64, offset: f64, interpolation: Interpolation) -> Scheme {
    Scheme::Logarithmic(Logarithmic::new(gamma, offset, interpolation).unwrap())
}

/// Both forms restore the same histogram exactly.
#[track_caller]
fn check(histogram: &Histogram) {
    let binary = encode(histogram).unwrap();
    assert_eq!(decode(&binary).unwrap(), *histogram);
    let protobuf = encode_protobuf(histogram).unwrap();
    assert_eq!(decode_protobuf(&protobuf).unwrap(), without_summary(histogram));
    let plain = without_summary(histogram);
    assert_eq!(decode(&encode(&plain).unwrap()).unwrap(), plain);
}

/// A mapping followed by `blocks` is rejected with this error.
#[track_caller]
fn check_rejected(blocks: &str, message: &str) {
    let error = decode(&bytes(&format!("{MAPPING}{blocks}"))).unwrap_err();
    assert_eq!(error.to_string(), message);
}

/// A mapping followed by `blocks` has these buckets.
#[track_caller]
fn check_bins(blocks: &str, positive: &[(i32, u64)], negative: &[(i32, u64)]) {
    let read = decode(&bytes(&format!("{MAPPING}{blocks}"))).unwrap();
    assert_eq!(read.positive().iter().collect::<Vec<_>>(), positive);
    assert_eq!(read.negative().iter().collect::<Vec<_>>(), negative);
}

#[test]
fn goldens_of_java_are_read_and_written_to_the_byte() {
    for row in rows(JAVA) {
        let [name, list, hex] = row[..] else { panic!("{row:?}") };
        let golden = bytes(hex);
        let read = decode(&golden).unwrap();
        let recorded = histogram(read.scheme().clone(), &values(list));
        assert_eq!(read, recorded, "{name}");
        assert_eq!(encode(&recorded).unwrap(), golden, "{name}");
        check(&read);
    }
}

#[test]
fn goldens_of_go_are_read() {
    for row in rows(GO) {
        let [mapping, store, name, form, hex] = row[..] else { panic!("{row:?}") };
        let row = format!("{mapping} {store} {name} {form}");
        let golden = bytes(hex);
        let read =
            if form == "proto" { decode_protobuf(&golden) } else { decode(&golden) }.unwrap();
        let mut values = values(name);
        values.sort_by(f64::total_cmp);
        check_order(&without_summary(&read), &values, &row);
        check(&read);
        let mut recorded = histogram(read.scheme().clone(), &values);
        // There a bucket's edge is at 1 = 2^0, and our rounding differs.
        if row.starts_with("linear dense powers") {
            continue;
        }
        if form != "exact" {
            recorded = without_summary(&recorded);
        }
        let sum = |histogram: &Histogram| histogram.tracked_sum().value().map(DoubleDouble::value);
        assert_eq!(without_summary(&read), without_summary(&recorded), "{row}");
        assert_eq!(read.tracked_min(), recorded.tracked_min(), "{row}");
        assert_eq!(read.tracked_max(), recorded.tracked_max(), "{row}");
        assert_eq!(sum(&read), sum(&recorded), "{row}");
    }
}

/// The value of each rank is in its bracket.
#[track_caller]
fn check_order(read: &Histogram, ascending: &[f64], row: &str) {
    assert_eq!(read.count(), ascending.len() as u64, "{row}");
    for (rank, &value) in ascending.iter().enumerate() {
        let bracket = read.quantile((rank as f64 + 0.5) / ascending.len() as f64).unwrap();
        assert!(bracket.contains(value), "{row}: {value} in {bracket:?}");
    }
}

#[test]
fn stores_are_written_as_go_writes_dense_ones() {
    let dense = |row: &Vec<&str>| row[1] == "dense" && row[3] == "plain" && row[2] != "signs";
    for row in rows(GO).filter(dense) {
        let golden = bytes(row[4]);
        assert_eq!(encode(&decode(&golden).unwrap()).unwrap(), golden, "{row:?}");
    }
}

#[test]
fn all_modes_of_bins_are_read_and_add_up() {
    check_bins("05 02 06 02 04 03", &[(3, 1), (5, 2)], &[]);
    check_bins("09 03 01 00 04", &[(-1, 2), (1, 1)], &[]);
    check_bins("0d 03 06 02 02 00 03", &[(3, 1), (5, 2)], &[]);
    check_bins("0d 03 06 01 02 02 02", &[(1, 1), (2, 1), (3, 1)], &[]);
    check_bins("0d 02 06 00 02 02", &[(3, 2)], &[]);
    check_bins("07 01 06 02 0b 01 06 0f 01 06 02 02", &[], &[(3, 3)]);
    check_bins("05 01 06 02 09 01 06 05 00 0d 00 00 00", &[(3, 2)], &[]);
    // In random order, as hash maps are written.
    check_bins("05 03 06 02 05 03 02 02", &[(0, 2), (1, 1), (3, 1)], &[]);
}

#[test]
fn encodings_joined_end_to_end_add_up() {
    let grid = || log(1.02 / 0.98, 0.0, Interpolation::None);
    let (a, b) = (histogram(grid(), &[1.0, -2.0]), histogram(grid(), &[0.0, 1.0, 7.5]));
    let joined = [encode(&a).unwrap(), encode(&b).unwrap()].concat();
    let mut merged = a;
    merged.merge(&b).unwrap();
    assert_eq!(decode(&joined).unwrap(), merged);
}

#[test]
fn zero_sum_is_omitted_and_round_trips() {
    let balanced = histogram(log(2.0, 0.0, Interpolation::Cubic), &[-1.5, 1.5]);
    assert!(!encode(&balanced).unwrap().contains(&0x84));
    check(&balanced);
}

#[test]
fn side_values_are_written_when_all_are_exact() {
    let whole = histogram(log(2.0, 0.0, Interpolation::Linear), &[1.0, 3.0]);
    let parts = HistogramParts { min: TrackedValue::Estimated(1.0), ..whole.clone().into_parts() };
    let partly = Histogram::from_parts(parts).unwrap();
    assert_eq!(encode(&partly).unwrap(), encode(&without_summary(&whole)).unwrap());
}

#[test]
fn bad_blocks_are_reported_with_their_offset() {
    check_rejected("fc", "at byte 17: flag is 0xfc, expected a flag of the format");
    check_rejected("01", "at byte 17: flag is 0x01, expected a flag of the format");
    check_rejected("11", "at byte 17: flag is 0x11, expected a flag of the format");
    check_rejected("13", "at byte 17: flag is 0x13, expected a flag of the format");
    check_rejected("04", "at byte 18: the input ends inside zero count");
    check_rejected("05 01 00", "at byte 20: the input ends inside bin count");
    check_rejected("84 00", "at byte 18: the input ends inside sum");
    check_rejected(
        "02 0000000000000040 0000000000000000",
        "at byte 17: index mapping is logarithmic gamma 2, expected the mapping before it",
    );
    let known = "expected 0 none, 1 linear, 2 quadratic or 3 cubic";
    check_rejected("12", &format!("at byte 17: interpolation is 4 quartic, {known}"));
    check_rejected("16", &format!("at byte 17: interpolation is 5, {known}"));
    check_rejected(
        "a0 02",
        "at byte 19: count is 1 while the bins hold 0, expected the sum of all bins",
    );
    let error = decode(&bytes("04 02")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at byte 2: index mapping is absent, expected gamma and index offset"
    );
}

#[test]
fn bad_counts_are_rejected() {
    let bad = |count: f64| {
        let mut message = bytes("0a0b09000000000000004018011a0021");
        message.extend(count.to_le_bytes());
        decode_protobuf(&message).unwrap_err().to_string()
    };
    let expected = "expected a number at or above zero";
    assert_eq!(bad(-1.0), format!("at byte 0: zero count is -1, {expected}"));
    assert_eq!(bad(f64::NAN), format!("at byte 0: zero count is NaN, {expected}"));
    assert_eq!(bad(f64::INFINITY), format!("at byte 0: zero count is inf, {expected}"));
    assert_eq!(bad(2.5), "at byte 0: zero count is 2.5, expected a whole number");
    assert_eq!(
        bad(9007199254740992.0),
        "at byte 0: zero count is 9007199254740992, the limit is 9007199254740991"
    );
    // 2^53 - 1 twice in one bin.
    let most = var_double_hex(COUNT_MAX as f64);
    check_bins(&format!("05 01 00 {most}"), &[(0, COUNT_MAX)], &[]);
    check_rejected(
        &format!("05 02 00 {most} 00 {most}"),
        "at byte 29: bin count is 18014398509481982, the limit is 9007199254740991",
    );
}

#[test]
fn largest_count_round_trips() {
    for count in [COUNT_MAX, COUNT_MAX - 1, 1 << 52, (1 << 52) - 1, 1 << 32] {
        let mut most = Histogram::new(log(2.0, 0.0, Interpolation::Linear));
        most.record_n(2.0, count);
        check(&most);
    }
    let mut more = Histogram::new(log(2.0, 0.0, Interpolation::Linear));
    more.record_n(2.0, COUNT_MAX + 1);
    assert!(matches!(encode(&more), Err(EncodeError::Unrepresentable { .. })));
}

#[test]
fn hostile_indexes_and_lengths_are_rejected() {
    // 2^64 - 1 bins, without further bytes.
    check_rejected("05 ffffffffffffffffff", "at byte 27: the input ends inside index delta");
    check_rejected("0d ffffffffffffffffff 00 02", "at byte 29: the input ends inside bin count");
    check_rejected(
        "09 01 feffffffffffffffff",
        "at byte 19: bin index is 9223372036854775807, expected an index of 32 bits",
    );
    check_rejected(
        "09 02 feffffff0f 02",
        "at byte 24: bin index is 2147483648, expected an index of 32 bits",
    );
    check_rejected(
        "0d 02 feffffffffffffffff feffffffffffffffff 00 00",
        "at byte 37: bin index is 9223372036854775807, expected an index of 32 bits",
    );
    check_rejected(
        "09 01 feffffff0f",
        "bucket index 2147483647 is outside the grid (logarithmic gamma 2)",
    );
}

#[test]
fn impossible_mappings_are_rejected() {
    for mapping in [
        "02 000000000000f03f 0000000000000000",
        "02 000000000000f87f 0000000000000000",
        "02 000000000000f07f 0000000000000000",
        "02 0000000000000040 000000000000f87f",
        "02 0000000000000040 000000000000f07f",
    ] {
        assert!(matches!(decode(&bytes(mapping)), Err(DecodeError::Scheme(_))), "{mapping}");
    }
}

/// A count as the libraries write it: long form, nine bytes.
fn var_double_hex(value: f64) -> String {
    let bits = (value + 1.0).to_bits().wrapping_sub(1f64.to_bits()).rotate_left(6);
    let mut hex: String =
        (0..8).map(|i| format!("{:02x}", (bits >> (57 - 7 * i)) as u8 | 0x80)).collect();
    hex.push_str(&format!("{:02x}", bits as u8));
    hex
}

#[test]
fn unrepresentable_histograms_are_rejected() {
    let message = |histogram: &Histogram| encode(histogram).unwrap_err().to_string();
    let grid = || log(2.0, 0.0, Interpolation::Linear);
    assert!(matches!(encode(&Histogram::default()), Err(EncodeError::Scheme { .. })));
    assert!(matches!(encode_protobuf(&Histogram::default()), Err(EncodeError::Scheme { .. })));
    assert_eq!(
        message(&histogram(grid(), &[1.0, f64::NAN])),
        "ddsketch cannot represent 1 NaN values"
    );
    assert_eq!(
        message(&histogram(grid(), &[f64::INFINITY, f64::NEG_INFINITY])),
        "ddsketch cannot represent 2 infinite values"
    );
    let wide = Histogram::new(grid()).with_zero_threshold(1e-9).unwrap();
    assert_eq!(message(&wide), "ddsketch cannot represent a zero threshold of 1e-9");
}

/// The default grid of the peer, and the peer.
fn peer(values: &[f64]) -> (Histogram, DDSketch) {
    let mut sketch = DDSketch::new(Config::defaults());
    values.iter().for_each(|&value| sketch.add(value));
    let grid = log(Config::defaults().gamma, 0.0, Interpolation::None);
    (histogram(grid, values), sketch)
}

/// Each reads the other's bytes, and the peer's quantile is within its accuracy of our bracket.
#[track_caller]
fn check_peer(values: &[f64]) {
    let (ours, theirs) = peer(values);
    let read = decode(&theirs.to_java_bytes()).unwrap();
    assert_eq!(without_summary(&read), without_summary(&ours));
    assert_eq!((read.tracked_min(), read.tracked_max()), (ours.tracked_min(), ours.tracked_max()));
    let back = DDSketch::from_java_bytes(&encode(&ours).unwrap()).unwrap();
    assert_eq!(back.count() as u64, ours.count());
    for q in [0.0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0] {
        let (theirs, back) = (theirs.quantile(q).unwrap(), back.quantile(q).unwrap());
        assert_eq!(theirs, back);
        let Some(theirs) = theirs else { continue };
        // The peer uses the rank of type 7 without the interpolation to the next value.
        let rank = (q * (ours.count() - 1) as f64).floor() + 1.0;
        let bracket = ours.quantile((rank - 0.5) / ours.count() as f64).unwrap();
        // The accuracy is relative to the value, which may be anywhere in the bracket.
        let slack = bracket.lower.abs().max(bracket.upper.abs()) * 0.010_000_1;
        assert!(
            bracket.lower - slack <= theirs && theirs <= bracket.upper + slack,
            "{q}: {theirs} is not near {bracket:?}"
        );
    }
}

#[test]
fn the_rust_library_agrees() {
    check_peer(&values("five"));
    check_peer(&values("signs"));
    check_peer(&values("ramp"));
    check_peer(&values("powers"));
    check_peer(&(1..10_000).map(|i| f64::from(i).powf(1.5)).collect::<Vec<_>>());
}

#[test]
fn the_page_shows_every_flag() {
    for (name, flag) in FLAGS {
        assert!(PAGE.contains(&format!("| `{flag:#04x}` | {name} |")), "{name} {flag:#04x}");
    }
    assert_eq!(PAGE.lines().filter(|line| line.starts_with("| `0x")).count(), FLAGS.len());
}

fn any_scheme() -> impl Strategy<Value = Scheme> {
    let interpolation = prop_oneof![
        Just(Interpolation::None),
        Just(Interpolation::Linear),
        Just(Interpolation::Quadratic),
        Just(Interpolation::Cubic),
    ];
    (1.0001f64..4.0, -1000f64..1000.0, interpolation)
        .prop_map(|(gamma, offset, interpolation)| log(gamma, offset, interpolation))
}

fn any_value() -> impl Strategy<Value = f64> {
    let magnitude = prop_oneof![-9f64..9.0, 0f64..0.5].prop_map(|log| 10f64.powf(log));
    prop_oneof![
        9 => (any::<bool>(), magnitude).prop_map(|(negative, x)| if negative { -x } else { x }),
        1 => Just(0.0),
    ]
}

proptest! {
    #[test]
    fn any_histogram_round_trips(
        scheme in any_scheme(),
        values in prop::collection::vec((any_value(), 1u64..1 << 40), 0..200),
    ) {
        let mut histogram = Histogram::new(scheme);
        for (value, count) in values {
            histogram.record_n(value, count);
        }
        // The format stores the sum as one double.
        let sum = histogram.tracked_sum().value().map_or(0.0, DoubleDouble::value);
        let parts = HistogramParts { sum: TrackedValue::Exact(DoubleDouble::new(sum)), ..histogram.into_parts() };
        check(&Histogram::from_parts(parts).unwrap());
    }

    #[test]
    fn the_rust_library_agrees_on_any_values(
        values in prop::collection::vec((any::<bool>(), -3f64..3.0), 0..100),
    ) {
        let values: Vec<f64> = values
            .into_iter()
            .map(|(negative, log)| 10f64.powf(log) * if negative { -1.0 } else { 1.0 })
            .collect();
        check_peer(&values);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes);
        let _ = decode_protobuf(&bytes);
    }

    #[test]
    fn no_blocks_panic(blocks in prop::collection::vec(any::<u8>(), 0..400)) {
        let bytes = [bytes(MAPPING), blocks].concat();
        if let Ok(read) = decode(&bytes) {
            let again = decode(&encode(&read).unwrap()).unwrap();
            prop_assert_eq!(without_summary(&again), without_summary(&read));
        }
    }

    #[test]
    fn no_mutation_panics(row in 0usize..90, at in 0usize..400, to in any::<u8>(), cut in 0usize..600) {
        let row = rows(GO).nth(row).unwrap();
        let mut bytes = bytes(row[4]);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
        bytes.truncate(cut);
        let _ = decode(&bytes);
        let _ = decode_protobuf(&bytes);
    }
}
