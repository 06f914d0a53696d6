//! Tests of HdrHistogram's encodings and logs: golden files of Java, bytes of another
//! implementation, hostile input, and the page `docs/formats/hdr.md` compared with the code.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codecs::hdr::layout::{self, Field};
use codecs::hdr::{self, HdrHeader, HdrHistogramData, HdrVersion};
use codecs::hlog::{self, HlogInterval, HlogPreamble};
use hist::{EncodeError, Histogram, HistogramParts, QuantileMethod};
use proptest::prelude::*;

use crate::hlog::check_log;
use crate::page::{check_fields, rows};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = root().join("testdata/hist/hdr").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn intervals(log: &[u8]) -> Vec<HlogInterval> {
    hlog::HlogReader::new(log).collect::<Result<_, _>>().unwrap()
}

/// hdrhistogram 7.6.0 reads none of the 88 intervals of the V1 log and none of the 81 of V0.
#[test]
fn every_interval_round_trips_in_every_encoding() {
    for name in ["jHiccup-2.0.1.logV0.hlog", "jHiccup-2.0.6.logV1.hlog", "ycsb.logV1.hlog"] {
        for interval in intervals(&golden(name)) {
            let mut recording = interval.recording;
            recording.histogram = without_summary(recording.histogram);
            check_round_trip(&recording);
        }
    }
}

/// The histogram as decoded: sum and extremes unknown.
pub(crate) fn without_summary(histogram: Histogram) -> Histogram {
    let mut parts = HistogramParts::new(histogram.scheme().clone());
    parts.positive = histogram.positive().iter().collect();
    Histogram::from_parts(parts).unwrap()
}

#[track_caller]
fn check_round_trip(recording: &HdrHistogramData) {
    let is_plain = recording.header.range().is_none() && recording.header.index_offset() == 0;
    for version in [HdrVersion::V0, HdrVersion::V1, HdrVersion::V2] {
        if version == HdrVersion::V0 && !is_plain {
            assert!(matches!(recording.encode(version), Err(EncodeError::Unrepresentable { .. })));
            continue;
        }
        let plain = recording.encode(version).unwrap();
        assert_eq!(hdr::decode(&plain).as_ref(), Ok(recording), "{version:?}");
        let compressed = recording.encode_compressed(version).unwrap();
        assert_eq!(hdr::decode(&compressed).as_ref(), Ok(recording), "{version:?} compressed");
        let base64 = recording.encode_base64(version).unwrap();
        assert_eq!(hdr::decode_base64(&base64).as_ref(), Ok(recording));
        assert_eq!(hdr::decode_base64(base64.trim_end_matches('=')).as_ref(), Ok(recording));
    }
}

/// A line of `java.tsv`.
struct JavaLine {
    name: String,
    /// Count, smallest value above zero, largest, median, value at percentile 0, count at zero.
    numbers: [f64; 6],
    plain: Vec<u8>,
    compressed: Vec<u8>,
}

fn java_lines() -> Vec<JavaLine> {
    let text = String::from_utf8(golden("java.tsv")).unwrap();
    let line = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let numbers = std::array::from_fn(|at| columns[at + 1].parse().unwrap());
        let bytes = |at: usize| STANDARD.decode(columns[at]).unwrap();
        JavaLine { name: columns[0].into(), numbers, plain: bytes(7), compressed: bytes(8) }
    };
    text.lines().map(line).collect()
}

#[test]
fn bytes_of_java_are_read_and_written_again() {
    for JavaLine { name, numbers, plain, compressed } in java_lines() {
        let [count, least, greatest, median, first, zeros] = numbers;
        let recording = hdr::decode(&plain).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(recording.encode(HdrVersion::V2).unwrap(), plain, "{name}");
        assert_eq!(hdr::decode(&compressed).as_ref(), Ok(&recording), "{name}");
        check_round_trip(&recording);

        let histogram = &recording.histogram;
        assert_eq!(histogram.count() as f64, count, "{name}");
        assert_eq!(histogram.positive().get(0) as f64, zeros, "{name}");
        if histogram.is_empty() {
            continue;
        }
        // For a bucket of doubles Java reports the last whole number times the ratio; topdeck
        // reports the last double.
        let unit = recording.header.range().map_or(0.0, |_| recording.header.ratio());
        let near = |ours: f64, java: f64| (ours - java).abs() <= unit;
        let scheme = histogram.scheme();
        let lowest = histogram.positive().indexes().iter().find(|&&index| index > 0).unwrap();
        assert_eq!(scheme.edges(*lowest).unwrap().0, least, "{name}");
        assert!(near(recording.hdr_max(), greatest), "{name}: {}", recording.hdr_max());
        let ours = |q| histogram.quantile_with(q, QuantileMethod::HdrUpper).unwrap().estimate;
        assert!(near(ours(0.0), first), "{name}: {} is not {first}", ours(0.0));
        assert!(near(ours(0.5), median), "{name}: {} is not {median}", ours(0.5));
    }
}

#[test]
fn rotated_counts_array_is_normalized() {
    let lines = java_lines();
    let offset = |name: &str| {
        let line = lines.iter().find(|line| line.name == name).unwrap();
        hdr::decode(&line.plain).unwrap().header.index_offset()
    };
    assert_eq!(offset("double-shifted-down"), 10 << 10);
    assert_eq!(offset("shifted-left"), 3 << 10);
    assert_eq!(offset("shifted-right"), -(4 << 10));
}

/// The same values through the `hdrhistogram` crate.
#[track_caller]
fn check_against_peer(digits: u8, lowest: u64, highest: u64, values: &[(u64, u64)]) {
    use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
    let mut peer =
        hdrhistogram::Histogram::<u64>::new_with_bounds(lowest, highest, digits).unwrap();
    let header = HdrHeader::new(digits.into(), lowest as i64, highest as i64).unwrap();
    let mut ours = HdrHistogramData::new(header);
    for &(value, count) in values {
        peer.record_n(value, count).unwrap();
        ours.histogram.record_n(value as f64, count);
    }
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(&peer, &mut bytes).unwrap();
    assert_eq!(ours.encode(HdrVersion::V2).unwrap(), bytes);

    let theirs = hdr::decode(&bytes).unwrap();
    assert_eq!(theirs.header, header);
    assert_eq!(theirs.histogram, without_summary(ours.histogram.clone()));
    let read: hdrhistogram::Histogram<u64> =
        Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
    assert_eq!(read, peer);
    if !values.is_empty() {
        for q in [0.001, 0.25, 0.5, 0.9, 0.999, 1.0] {
            let ours =
                theirs.histogram.quantile_with(q, QuantileMethod::HdrUpper).unwrap().estimate;
            assert_eq!(ours, peer.value_at_quantile(q) as f64, "{q}");
        }
    }
}

#[test]
fn v2_bytes_equal_those_of_the_rust_crate() {
    for digits in 0..=5 {
        check_against_peer(digits, 1, 3_600_000_000_000, &[]);
        check_against_peer(digits, 1, 3_600_000_000_000, &[(0, 1)]);
        check_against_peer(digits, 1, 3_600_000_000_000, &[(1, 1), (3, 5), (1 << 41, 1 << 60)]);
        check_against_peer(digits, 1000, 1 << 50, &[(512, 1), (1_000_000, 2), ((1 << 50) - 1, 1)]);
    }
}

fn any_recording() -> impl Strategy<Value = HdrHistogramData> {
    let values = prop::collection::vec((any::<u64>(), 0u32..63, 1u64..1 << 40), 0..40);
    let range = prop_oneof![Just(None), (2i64..1 << 30, -200i32..200).prop_map(Some)];
    (0u32..=5, 1i64..1 << 20, 1u32..40, range, values).prop_map(
        |(digits, lowest, octaves, range, values)| {
            let header = match range {
                Some((range, exponent)) => {
                    HdrHeader::double(digits, range, f64::from(exponent).exp2()).unwrap()
                }
                None => HdrHeader::new(digits, lowest, (2 * lowest) << (octaves / 2)).unwrap(),
            };
            let mut parts = HistogramParts::new(header.scheme());
            // V0 and V1 write every word: only the lower 100,000 buckets are tested.
            let len = u64::from(header.counts_len().min(100_000));
            let mut buckets = std::collections::BTreeMap::new();
            for (place, shift, count) in values {
                buckets.insert(((place >> shift) % len) as i32, count);
            }
            parts.positive = buckets.into_iter().collect();
            HdrHistogramData { histogram: Histogram::from_parts(parts).unwrap(), header }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_histogram_round_trips_in_any_encoding(recording in any_recording()) {
        check_round_trip(&recording);
    }

    #[test]
    fn v2_bytes_of_any_values_equal_those_of_the_rust_crate(
        digits in 0u8..=5,
        lowest in 1u64..1 << 30,
        values in prop::collection::vec((0u64..1 << 41, 1u64..1 << 40), 0..50),
    ) {
        check_against_peer(digits, lowest, 1 << 42, &values);
    }

    #[test]
    fn any_bytes_are_an_error_or_a_histogram(
        cookie in prop::sample::select(COOKIES.map(|(_, cookie)| cookie).to_vec()),
        words in 0u32..16,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = hdr::decode(&bytes);
        let _ = hdr::decode_base64(&bytes);
        let _ = hdr::decode(&[&(cookie | words << 4).to_be_bytes(), &bytes[..]].concat());
        hlog::HlogReader::new(&bytes[..]).for_each(drop);
    }

    #[test]
    fn any_change_to_valid_bytes_is_an_error_or_a_histogram(
        recording in any_recording(),
        version in prop::sample::select(vec![HdrVersion::V1, HdrVersion::V2]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut bytes in [recording.encode(version), recording.encode_compressed(version)].map(Result::unwrap) {
            let end = cut.index(bytes.len());
            prop_assert!(hdr::decode(&bytes[..end]).is_err(), "cut to {end} of {}", bytes.len());
            for (at, byte) in &changes {
                let at = at.index(bytes.len().min(120));
                bytes[at] = *byte;
            }
            let _ = hdr::decode(&bytes);
        }
    }

    #[test]
    fn any_change_to_a_log_is_an_error_or_an_interval(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..9),
    ) {
        let mut log = golden("tagged-Log.logV2.hlog");
        for (at, byte) in &changes {
            let at = at.index(log.len());
            log[at] = *byte;
        }
        let read: Vec<_> = hlog::HlogReader::new(&log[..]).collect();
        // A changed byte affects only its own line; a changed line break joins or splits two lines.
        let good = read.iter().filter(|interval| interval.is_ok()).count();
        prop_assert!(good + 2 * changes.len() >= 42, "{good} intervals are left");
    }

    #[test]
    fn logs_round_trip(
        recordings in prop::collection::vec(any_recording(), 0..4),
        start in -1e9f64..2e9,
        length in 0.0f64..1e6,
        tag in prop::option::of("[^, \r\n]{0,9}"),
    ) {
        let intervals: Vec<HlogInterval> = recordings
            .into_iter()
            .map(|recording| HlogInterval::new(tag.clone(), start, length, recording))
            .collect();
        check_log(&HlogPreamble { base_time_s: Some(0.0), ..HlogPreamble::default() }, &intervals);
    }
}

pub(crate) fn recording(values: &[(u64, u64)]) -> HdrHistogramData {
    let mut recording = HdrHistogramData::new(HdrHeader::new(3, 1, 3_600_000_000_000).unwrap());
    values.iter().for_each(|&(value, count)| recording.histogram.record_n(value as f64, count));
    recording
}

const COOKIES: [(&str, u32); 8] = [
    ("V0", layout::V0),
    ("V0 compressed", layout::V0_COMPRESSED),
    ("V1", layout::V1),
    ("V1 compressed", layout::V1_COMPRESSED),
    ("V2", layout::V2),
    ("V2 compressed", layout::V2_COMPRESSED),
    ("double", layout::DOUBLE),
    ("double compressed", layout::DOUBLE_COMPRESSED),
];

#[test]
fn page_lists_the_layout() {
    let page = std::fs::read_to_string(root().join("docs/formats/hdr.md")).unwrap();
    for (heading, fields) in [
        ("### V1 and V2", &layout::FIELDS[..]),
        ("### V0", &layout::V0_FIELDS),
        ("### Compressed", &layout::COMPRESSED_FIELDS),
        ("### Doubles", &layout::DOUBLE_FIELDS),
    ] {
        check_fields(&page, heading, fields);
        let told = rows(&page, heading, "|");
        assert_eq!(told.len(), fields.len() + 1, "{heading}: the last row is what follows");
    }
    let told = rows(&page, "### Cookies", "|");
    let expected = COOKIES.map(|(name, cookie)| [name.to_owned(), format!("{cookie:#010x}")]);
    assert_eq!(told.iter().map(|row| [row[0], row[1]]).collect::<Vec<_>>(), expected);
}

/// Each field in the tables is at its offset in encoded bytes.
#[test]
fn the_bytes_keep_to_the_layout() {
    #[track_caller]
    fn check_field(bytes: &[u8], fields: &[Field], name: &str, expected: u64) {
        let &(_, offset, size) = fields.iter().find(|field| field.0 == name).unwrap();
        let mut word = [0; 8];
        word[8 - size..].copy_from_slice(&bytes[offset..offset + size]);
        assert_eq!(u64::from_be_bytes(word), expected, "{name}");
    }
    let mut ours = recording(&[(0, 3), (5, 1)]);
    let v0 = ours.encode(HdrVersion::V0).unwrap();
    let integers = |bytes: &[u8], fields: &[Field], cookie: u32| {
        check_field(bytes, fields, "cookie", cookie.into());
        check_field(bytes, fields, "digits", 3);
        check_field(bytes, fields, "lowest discernible value", 1);
        check_field(bytes, fields, "highest trackable value", 3_600_000_000_000);
    };
    integers(&v0, &layout::V0_FIELDS, layout::V0 | 0x80);
    check_field(&v0, &layout::V0_FIELDS, "total count", 4);
    for (version, cookie, len) in
        [(HdrVersion::V1, layout::V1 | 0x80, 48), (HdrVersion::V2, layout::V2 | 0x10, 3)]
    {
        let bytes = ours.encode(version).unwrap();
        integers(&bytes, &layout::FIELDS, cookie);
        check_field(&bytes, &layout::FIELDS, "payload length", len);
        check_field(&bytes, &layout::FIELDS, "normalizing index offset", 0);
        check_field(&bytes, &layout::FIELDS, "conversion ratio", 1f64.to_bits());
    }
    let bytes = ours.encode_compressed(HdrVersion::V2).unwrap();
    let len = bytes.len() as u64 - 8;
    check_field(
        &bytes,
        &layout::COMPRESSED_FIELDS,
        "cookie",
        (layout::V2_COMPRESSED | 0x10).into(),
    );
    check_field(&bytes, &layout::COMPRESSED_FIELDS, "compressed length", len);
    ours = HdrHistogramData::new(HdrHeader::double(3, 77, 1.0).unwrap());
    let bytes = ours.encode_compressed(HdrVersion::V2).unwrap();
    check_field(&bytes, &layout::DOUBLE_FIELDS, "cookie", layout::DOUBLE_COMPRESSED.into());
    check_field(&bytes, &layout::DOUBLE_FIELDS, "digits", 3);
    check_field(&bytes, &layout::DOUBLE_FIELDS, "highest to lowest value ratio", 77);
}
