//! circllhist: golden files of the C library, defects of other implementations, hostile bytes.

use codecs::circllhist::{
    LIMITS, decode, decode_base64, decode_text, encode, encode_base64, encode_overflow_as_nan,
    encode_text,
};
use hist::{
    DecodeError, EncodeError, Histogram, HistogramParts, LimitInclusion, MergeError, PartsError,
    QuantileMethod, Scheme,
};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../../../../testdata/hist/circllhist/golden.tsv");
const BINS: &str = include_str!("../../../../testdata/hist/circllhist/bins.tsv");
const PAGE: &str = include_str!("../../../../docs/formats/circllhist.md");

/// The rows of a table of tab-separated fields, without its comments.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

/// A histogram of `value` or `value*count`, separated by spaces.
fn histogram(values: &str) -> Histogram {
    let mut histogram = Histogram::new(Scheme::LogLinear10);
    for entry in values.split_whitespace() {
        let (value, count) = entry.split_once('*').unwrap_or((entry, "1"));
        histogram.record_n(value.parse().unwrap(), count.parse().unwrap());
    }
    histogram
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Binary, base64 and text restore the same histogram exactly.
#[track_caller]
fn check(histogram: &Histogram) {
    let bytes = encode(histogram).unwrap();
    let read = decode(&bytes).unwrap();
    assert_same_counts(&read, histogram);
    assert_eq!(encode(&read).unwrap(), bytes);
    assert_eq!(decode_base64(&encode_base64(histogram).unwrap()).unwrap(), read);
    assert_eq!(decode_text(&encode_text(histogram).unwrap().join(",")).unwrap(), read);
}

#[track_caller]
fn assert_same_counts(read: &Histogram, written: &Histogram) {
    let counts = |histogram: &Histogram| {
        let parts = histogram.clone().into_parts();
        (parts.positive, parts.negative, parts.zero, parts.nan)
    };
    assert_eq!(counts(read), counts(written));
}

#[track_caller]
fn check_text(text: &str, values: &str) {
    assert_same_counts(&decode_text(text).unwrap(), &histogram(values));
}

#[track_caller]
fn check_rejected(bytes: &[u8], message: &str) {
    assert_eq!(decode(bytes).unwrap_err().to_string(), message);
}

#[track_caller]
fn check_rejected_text(text: &str, message: &str) {
    assert_eq!(decode_text(text).unwrap_err().to_string(), message);
}

#[test]
fn goldens_are_read_and_written_to_the_byte() {
    for row in rows(GOLDEN) {
        let [name, base64, values] = row[..] else { panic!("{row:?}") };
        let (bytes, _) = encode_overflow_as_nan(&histogram(values)).unwrap();
        let unpadded = base64.trim_end_matches('=');
        assert_eq!(base64_of(&bytes).trim_end_matches('='), unpadded, "{name}");
        let read = decode_base64(base64).unwrap();
        assert_eq!(encode_base64(&read).unwrap().trim_end_matches('='), unpadded, "{name}");
        check(&read);
    }
}

#[test]
fn values_fall_into_the_bins_of_the_c_library() {
    for row in rows(BINS) {
        let [value, val, exp] = row[..] else { panic!("{row:?}") };
        let (bytes, _) = encode_overflow_as_nan(&histogram(value)).unwrap();
        let (val, exp): (i8, i8) = (val.parse().unwrap(), exp.parse().unwrap());
        assert_eq!(bytes, [0, 1, val as u8, exp as u8, 0, 1], "value {value}");
    }
}

#[test]
fn quantiles_of_the_c_library() {
    let s1 = decode_base64("AAcAAAABDP8AAg3/AAEW/wABIP8AASn/AAIr/wAB").unwrap();
    for (method, expected) in [
        (QuantileMethod::Circllhist1, [0.0, 0.225, 0.435, 0.435, 0.435, 0.435]),
        (
            QuantileMethod::Circllhist7,
            [
                0.0,
                0.225,
                0.41 + 0.01 * 2.0 / 3.0,
                0.41 + 0.01 * 2.0 / 3.0,
                0.41 + 0.01 * 2.0 / 3.0,
                0.435,
            ],
        ),
    ] {
        for (q, expected) in [0.0, 0.5, 0.9, 0.99, 0.999, 1.0].into_iter().zip(expected) {
            let found = s1.quantile_with(q, method).unwrap().estimate;
            assert!((found - expected).abs() <= 1e-12 * expected, "{method:?} {q}: {found}");
        }
    }
}

#[test]
fn mean_bracket_contains_c_library_mean() {
    let s1 = decode_base64("AAcAAAABDP8AAg3/AAEW/wABIP8AASn/AAIr/wAB").unwrap();
    assert!(s1.mean().unwrap().contains(0.2443387586038558));
}

#[test]
fn counts_below_a_limit_of_two_digits_are_exact() {
    let s1 = decode_base64("AAcAAAABDP8AAg3/AAEW/wABIP8AASn/AAIr/wAB").unwrap();
    assert_eq!(s1.count_below(0.32, LimitInclusion::Exclusive), hist::Bracket::exact(5));
}

#[test]
fn friendly_text_is_read() {
    check_text("H[0.1]=3", "0.1*3");
    check_text("H[11]=7, H[-1.2e-01]=2\nH[0.0e+00]=4", "11*7 -0.12*2 0*4");
    check_text("H[1.0e+00]=2,H[1]=3", "1*5");
    check_text("H[NaN]=9 H[nan]=1", "NaN*10");
    check_text("H[1e-400]=1", "0");
    check_text("H[1.2e-128]=18446744073709551615", "1.2e-128*18446744073709551615");
    check_text(" ,\n", "");
}

#[test]
fn text_is_written_as_the_go_library_writes_it() {
    let histogram = histogram("0.12*2 -99.5 0*4 NaN 1e-128 9.9e127 1 10");
    let expected = [
        "H[NaN]=1",
        "H[-9.9e+01]=1",
        "H[0.0e+00]=4",
        "H[1.0e-128]=1",
        "H[1.2e-01]=2",
        "H[1.0e+00]=1",
        "H[1.0e+01]=1",
        "H[9.9e+127]=1",
    ];
    assert_eq!(encode_text(&histogram).unwrap(), expected);
}

#[test]
fn bad_text_is_reported_with_its_offset() {
    check_rejected_text("H[1]=1 X", "at byte 7: entry is X, expected H[value]=count");
    check_rejected_text("H[1]", "at byte 0: entry is H[1], expected H[value]=count");
    let number = "expected a decimal number within ±1e128, or NaN";
    check_rejected_text("H[]=1", &format!("at byte 0: value is , {number}"));
    check_rejected_text("H[1e128]=1", &format!("at byte 0: value is 1e128, {number}"));
    check_rejected_text("H[-inf]=1", &format!("at byte 0: value is -inf, {number}"));
    check_rejected_text("H[1]=-1", "at byte 0: count is -1, expected a whole number below 2^64");
    check_rejected_text(
        "H[1]=18446744073709551616",
        "at byte 0: count is 18446744073709551616, expected a whole number below 2^64",
    );
}

#[test]
fn bins_may_come_in_any_order_and_twice() {
    let shuffled = [0, 5, 10, 0, 0, 2, 0xff, 0, 0, 1, 0xf6, 0, 1, 3, 0, 10, 0, 0, 4, 0, 0, 0, 5];
    assert_same_counts(&decode(&shuffled).unwrap(), &histogram("-1*3 NaN 0*5 1*6"));
}

#[test]
fn zero_takes_any_exponent_and_counts_may_be_long_or_zero() {
    assert_same_counts(&decode(&[0, 1, 0, 5, 0, 7]).unwrap(), &histogram("0*7"));
    let long = [0, 1, 10, 0, 7, 5, 0, 0, 0, 0, 0, 0, 0];
    assert_same_counts(&decode(&long).unwrap(), &histogram("1*5"));
    assert!(decode(&[0, 1, 10, 0, 0, 0]).unwrap().positive().is_empty());
}

#[test]
fn bad_bytes_are_reported_with_their_offset() {
    let val = "expected ±10..=±99, 0, or -1 with exponent 0";
    check_rejected(&[], "at byte 0: the input ends inside bin_count");
    check_rejected(&[0, 1], "at byte 2: the input ends inside val");
    check_rejected(&[0, 1, 10, 0, 1, 1], "at byte 5: the input ends inside count");
    check_rejected(&[0, 1, 10, 0, 8, 1], "at byte 4: len is 8, expected 0..=7");
    check_rejected(&[0, 1, 9, 0, 0, 1], &format!("at byte 2: val is 9 with exponent 0, {val}"));
    check_rejected(&[0, 1, 0xf7, 3, 0, 1], &format!("at byte 2: val is -9 with exponent 3, {val}"));
    check_rejected(&[0, 1, 100, 0, 0, 1], &format!("at byte 2: val is 100 with exponent 0, {val}"));
    check_rejected(
        &[0, 1, 0x80, 0, 0, 1],
        &format!("at byte 2: val is -128 with exponent 0, {val}"),
    );
    check_rejected(&[0, 1, 0xff, 1, 0, 1], &format!("at byte 2: val is -1 with exponent 1, {val}"));
    check_rejected(&[0, 0, 7], "at byte 2: end is 1 more bytes, expected none");
    let most = [0xff; 8];
    let twice = [&[0, 2, 10, 0, 7][..], &most, &[10, 0, 7], &most].concat();
    assert_eq!(decode(&twice), Err(DecodeError::Parts(PartsError::CountOverflow)));
}

#[test]
fn unrepresentable_histograms_are_rejected() {
    let message = |histogram: &Histogram| encode(histogram).unwrap_err().to_string();
    assert!(matches!(encode(&Histogram::default()), Err(EncodeError::Scheme { .. })));
    assert_eq!(
        message(&histogram("1 1e128*2 -inf")),
        "circllhist cannot represent 3 values at or beyond ±1e128: encode_overflow_as_nan counts \
         them as NaN"
    );
    let wide = Histogram::new(Scheme::LogLinear10).with_zero_threshold(0.1).unwrap();
    assert_eq!(message(&wide), "circllhist cannot represent a zero threshold of 1e-1");
}

#[test]
fn values_out_of_range_can_be_counted_as_nan() {
    let (bytes, overflow) = encode_overflow_as_nan(&histogram("1 NaN inf -inf 1e128")).unwrap();
    assert_eq!(overflow, 3);
    assert_same_counts(&decode(&bytes).unwrap(), &histogram("1 NaN*4"));
}

/// libcircllhist 3f40320 writes 2^32..2^36 in four bytes and 2^48..2^52 in six, losing the rest,
/// and circonusllhist ae04f36 panics on eight bytes.
#[test]
fn large_counts_keep_all_their_bytes() {
    for power in 0..64u32 {
        for count in [(1u64 << power) - 1, 1 << power, (1 << power) + 1] {
            if count > 0 {
                let one = histogram(&format!("1*{count}"));
                let bytes_of_count = (64 - count.leading_zeros()).div_ceil(8) as usize;
                assert_eq!(encode(&one).unwrap().len(), 5 + bytes_of_count, "{count}");
                check(&one);
            }
        }
    }
    check(&histogram("1*18446744073709551615"));
}

/// libcircllhist divides by n^k.
#[test]
fn a_moment_is_divided_by_the_count() {
    let tens = decode_base64(&encode_base64(&histogram("2*10")).unwrap()).unwrap();
    assert!(tens.moment(2).unwrap().contains(4.0));
}

/// libcircllhist gives NaN for one sample and 1.57 for seven equal ones.
#[test]
fn stddev_of_equal_values_may_be_zero() {
    for values in ["3.7e8", "3.7e8*7", "0", "-1*3"] {
        let read = decode(&encode(&histogram(values)).unwrap()).unwrap();
        let stddev = read.stddev().unwrap();
        assert!(stddev.contains(0.0) && stddev.upper.is_finite(), "{values}: {stddev:?}");
    }
}

/// libcircllhist counts the not-a-number bin among its samples but not in its quantiles.
#[test]
fn not_a_number_is_in_no_count() {
    let read = decode(&encode(&histogram("NaN*3 1*2")).unwrap()).unwrap();
    assert_eq!((read.count(), read.nan_count()), (2, 3));
    assert!(read.quantile(0.0).unwrap().contains(1.0));
}

/// circonusllhist merges bins of equal magnitude.
#[test]
fn plus_one_and_minus_one_stay_two_bins() {
    let read = decode(&encode(&histogram("1 -1")).unwrap()).unwrap();
    assert_eq!(encode_text(&read).unwrap(), ["H[-1.0e+00]=1", "H[1.0e+00]=1"]);
}

/// circonusllhist returns 2^64 − 1 for the difference of two equal counts.
#[test]
fn subtracting_more_than_held_is_rejected() {
    let one = decode(&encode(&histogram("1")).unwrap()).unwrap();
    let mut rest = one.clone();
    rest.subtract(&one).unwrap();
    assert_eq!(encode(&rest).unwrap(), [0, 0]);
    assert!(matches!(rest.subtract(&one), Err(MergeError::NotContained { .. })));
    assert!(rest.is_empty());
}

/// openhistogram-rs 0.1.1 neither pads nor reads padding.
#[test]
fn base64_is_read_padded_and_unpadded() {
    for (padded, values) in [("AAA=", ""), ("AAP2AAADAAAABQoAAAI=", "-1*3 0*5 1*2")] {
        assert_eq!(encode_base64(&histogram(values)).unwrap(), padded);
        assert_same_counts(&decode_base64(padded).unwrap(), &histogram(values));
        assert_same_counts(
            &decode_base64(padded.trim_end_matches('=')).unwrap(),
            &histogram(values),
        );
    }
}

/// openhistogram-rs 0.1.1 moves the not-a-number bin to the end.
#[test]
fn not_a_number_stays_first() {
    let bytes = encode(&histogram("1 NaN -1")).unwrap();
    assert_eq!(bytes, [0, 3, 0xff, 0, 0, 1, 0xf6, 0, 0, 1, 10, 0, 0, 1]);
}

#[test]
fn bad_base64_is_named() {
    let message = |text| decode_base64(text).unwrap_err().to_string();
    let expected = "expected base64 of the standard alphabet";
    assert_eq!(message("AA*="), format!("at byte 2: base64 is byte 0x2a, {expected}"));
    assert_eq!(message("AA-_"), format!("at byte 2: base64 is byte 0x2d, {expected}"));
    assert_eq!(message("AAAAA"), format!("at byte 5: base64 is 5 letters, {expected}"));
    assert_eq!(
        message("AAB"),
        format!("at byte 3: base64 is a last letter with stray bits, {expected}")
    );
    assert_eq!(message(""), "at byte 0: the input ends inside bin_count");
}

#[test]
fn every_bin_round_trips() {
    let all = |count: fn(i32) -> u64| (-128 * 90..128 * 90).map(|i| (i, count(i))).collect();
    let parts = HistogramParts {
        positive: all(|i| i.unsigned_abs().into()),
        negative: all(|i| (i & 0xffff) as u64 + 1),
        zero: 1,
        nan: 1,
        ..HistogramParts::new(Scheme::LogLinear10)
    };
    check(&Histogram::from_parts(parts).unwrap());
}

#[test]
fn the_page_shows_the_limits() {
    for (name, value) in LIMITS {
        assert!(PAGE.contains(&format!("| `{name}` | {value} |")), "{name} {value}");
    }
    assert_eq!(PAGE.lines().filter(|line| line.starts_with("| `")).count(), LIMITS.len());
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => (any::<bool>(), -130f64..128.0).prop_map(|(negative, log)| {
            let value = 10f64.powf(log).min(9.99e127);
            if negative { -value } else { value }
        }),
        1 => Just(0.0),
        1 => Just(f64::NAN),
    ]
}

proptest! {
    #[test]
    fn any_histogram_round_trips(values in prop::collection::vec((any_value(), 1u64..1 << 50), 0..200)) {
        let mut histogram = Histogram::new(Scheme::LogLinear10);
        for (value, count) in values {
            histogram.record_n(value, count);
        }
        check(&histogram);
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(read) = decode(&bytes) {
            check(&read);
        }
    }

    #[test]
    fn no_mutation_panics(row in 0usize..7, at in 0usize..100, to in any::<u8>(), cut in 0usize..100) {
        let mut bytes = encode(&decode_base64(rows(GOLDEN).nth(row).unwrap()[1]).unwrap()).unwrap();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = to;
        }
        bytes.truncate(cut.max(1));
        if let Ok(read) = decode(&bytes) {
            check(&read);
        }
    }

    #[test]
    fn no_text_panics(text in "[H\\[\\]=0-9eE+., N-]{0,60}") {
        let _ = decode_text(&text);
        let _ = decode_base64(&text);
    }
}
