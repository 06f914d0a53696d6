//! Tests of HdrHistogram's encodings and logs: golden files of Java, bytes of another
//! implementation, hostile input, and the page `docs/formats/hdr.md` compared with the code.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codecs::hdr::layout::{self, Field};
use codecs::hdr::{self, HdrHeader, HdrHistogramData, HdrVersion};
use codecs::hlog::{self, HlogError, HlogFault, HlogInterval, HlogPreamble};
use hist::{DecodeError, EncodeError, Histogram, HistogramParts, QuantileMethod, Scheme};
use proptest::prelude::*;

use crate::page::{check_fields, rows};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn golden(name: &str) -> Vec<u8> {
    let path = root().join("testdata/hist/hdr").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn intervals(log: &[u8]) -> Vec<HlogInterval> {
    hlog::HlogReader::new(log).collect::<Result<_, _>>().unwrap()
}

fn merge_intervals<'a>(intervals: impl IntoIterator<Item = &'a HlogInterval>) -> Histogram {
    let mut intervals = intervals.into_iter();
    let mut sum = intervals.next().unwrap().recording.histogram.clone();
    intervals.for_each(|interval| sum.merge(&interval.recording.histogram).unwrap());
    sum
}

/// The result of Java's `new Histogram(3).add(…)`. Across precisions Java does not fold: it records
/// the smallest value of each bucket again, so the reported value is the end of a finer bucket at
/// the lower edge.
fn record_again(histogram: &Histogram) -> Histogram {
    let mut anew = Histogram::new(HdrHeader::new(3, 1, i64::MAX).unwrap().scheme());
    for (index, count) in histogram.positive().iter() {
        anew.record_n(histogram.scheme().edges(index).unwrap().0, count);
    }
    anew
}

struct LogTotals {
    intervals: usize,
    values: u64,
    p999: f64,
    max: f64,
}

#[track_caller]
fn check_totals(intervals: &[HlogInterval], expected: LogTotals) {
    let merged = merge_intervals(intervals);
    assert_eq!((intervals.len(), merged.count()), (expected.intervals, expected.values));
    // The exact merge: its bracket contains Java's result.
    for (q, java) in [(0.999, expected.p999), (1.0, expected.max)] {
        let exact = merged.quantile_with(q, QuantileMethod::HdrUpper).unwrap();
        assert!(exact.contains(java), "{q}: {exact:?} does not hold {java}");
    }
    // Java's method gives Java's numbers to the last digit. Its maximum is the end of the bucket.
    let anew = record_again(&merged);
    assert_eq!(
        anew.quantile_with(0.999, QuantileMethod::HdrUpper).unwrap().estimate,
        expected.p999
    );
    let last = *anew.positive().indexes().last().unwrap();
    assert_eq!(anew.scheme().edges(last).unwrap().1 - 1.0, expected.max);
}

/// Intervals that start `from..=to` seconds after the log's start time.
fn intervals_within(log: &[u8], from: f64, to: f64) -> Vec<HlogInterval> {
    let mut reader = hlog::HlogReader::new(log);
    let all = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
    let start = reader.start_time_s().unwrap();
    all.into_iter().filter(|i| (from..=to).contains(&(i.start_s - start))).collect()
}

#[test]
fn logs_of_all_versions_hold_what_java_reads() {
    let v2 = golden("jHiccup-2.0.7S.logV2.hlog");
    check_totals(
        &intervals(&v2),
        LogTotals { intervals: 62, values: 48_761, p999: 1_745_879_039.0, max: 1_796_210_687.0 },
    );
    check_totals(
        &intervals_within(&v2, 5.0, 20.0),
        LogTotals { intervals: 15, values: 11_664, p999: 1_536_163_839.0, max: 1_544_552_447.0 },
    );
    check_totals(
        &intervals_within(&v2, 40.0, 60.0),
        LogTotals { intervals: 20, values: 15_830, p999: 1_779_433_471.0, max: 1_796_210_687.0 },
    );
    check_totals(
        &intervals(&golden("jHiccup-2.0.6.logV1.hlog")),
        LogTotals { intervals: 88, values: 65_964, p999: 1_829_765_119.0, max: 1_888_485_375.0 },
    );
    check_totals(
        &intervals(&golden("jHiccup-2.0.1.logV0.hlog")),
        LogTotals { intervals: 81, values: 61_256, p999: 1_510_998_015.0, max: 1_569_718_271.0 },
    );
    assert_eq!(intervals(&golden("ycsb.logV1.hlog")).len(), 602);
}

#[test]
fn timestamps_count_from_the_start_time_or_the_epoch() {
    let log = golden("jHiccup-2.0.7S.logV2.hlog");
    let mut reader = hlog::HlogReader::new(&log[..]);
    let first = reader.next().unwrap().unwrap();
    assert_eq!(reader.start_time_s(), Some(1_441_812_279.474));
    assert_eq!((first.logged_start_s, first.length_s), (0.127, 1.007));
    assert_eq!(first.start_s, 1_441_812_279.474 + 0.127);
    assert_eq!(first.recording.histogram.tracked_max(), hist::TrackedValue::Estimated(2_769_000.0));
    // ycsb writes the time since the epoch, 5 ms before the start time.
    let first = &intervals(&golden("ycsb.logV1.hlog"))[0];
    assert_eq!(first.start_s, 1_438_613_579.290);
}

#[test]
fn tag_is_its_own_series() {
    let all = intervals(&golden("tagged-Log.logV2.hlog"));
    let (tagged, plain): (Vec<_>, Vec<_>) = all.iter().partition(|i| i.tag.is_some());
    assert!(tagged.iter().all(|interval| interval.tag.as_deref() == Some("A")));
    assert_eq!(merge_intervals(&all).count(), 32_290);
    assert_eq!(merge_intervals(tagged), merge_intervals(plain));
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
fn without_summary(histogram: Histogram) -> Histogram {
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

/// Intervals survive a round trip, except for the maximum, which the histogram then contains.
#[track_caller]
fn check_log(preamble: &HlogPreamble, intervals: &[HlogInterval]) {
    let mut writer = hlog::HlogWriter::new(Vec::new(), preamble).unwrap();
    intervals.iter().for_each(|interval| writer.write(interval).unwrap());
    let log = writer.into_inner();
    let read: Vec<HlogInterval> =
        hlog::HlogReader::new(&log[..]).collect::<Result<_, _>>().unwrap();
    let bare = |interval: &HlogInterval| {
        let mut bare = interval.clone();
        bare.recording.histogram = without_summary(bare.recording.histogram);
        bare
    };
    let bares = |intervals: &[HlogInterval]| intervals.iter().map(bare).collect::<Vec<_>>();
    assert_eq!(bares(&read), bares(intervals));
    // A log that was read once is always read the same.
    let mut writer = hlog::HlogWriter::new(Vec::new(), preamble).unwrap();
    read.iter().for_each(|interval| writer.write(interval).unwrap());
    let again = writer.into_inner();
    assert_eq!(again, log);
    assert_eq!(hlog::HlogReader::new(&again[..]).collect::<Result<Vec<_>, _>>().unwrap(), read);
}

#[test]
fn golden_logs_round_trip() {
    for name in ["jHiccup-2.0.1.logV0.hlog", "tagged-Log.logV2.hlog", "ycsb.logV1.hlog"] {
        let log = golden(name);
        let mut reader = hlog::HlogReader::new(&log[..]);
        let intervals = reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap();
        let comments = vec!["[written again]".to_owned(), String::new()];
        check_log(
            &HlogPreamble { comments, start_time_s: reader.start_time_s(), base_time_s: None },
            &intervals,
        );
    }
}

const PAYLOAD: &str = "HISTFAAAABx4nJNpmSzMwMDAyAABzFAaxmey/wBlAQA8yQJ9";

/// The result of the first line in a log of two lines after `head`, of which the second is valid.
#[track_caller]
fn read_first(head: &str, line: &str) -> Result<HlogInterval, HlogError> {
    let log = format!("{head}\n{line}\n\n3.5,1,0,{PAYLOAD}");
    let mut read: Vec<_> = hlog::HlogReader::new(log.as_bytes()).collect();
    let last = read.pop().unwrap().expect("the line after it is read");
    assert_eq!((last.logged_start_s, read.len()), (3.5, 1), "{read:?}");
    read.remove(0)
}

#[test]
fn lines_of_all_writers_are_read() {
    let payload = PAYLOAD;
    let read = |head: &str, line: &str| read_first(head, line).unwrap();
    for head in [
        "",
        "#[Histogram log format version 1.3]\r",
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
        "StartTimestamp,Interval_Length,Interval_Max,Interval_Compressed_Histogram\r",
        "# a comment\n#",
    ] {
        let interval = read(head, &format!("1.5,2,0.001,{payload}"));
        assert_eq!((interval.tag, interval.start_s), (None, 1.5));
        let interval = read(head, &format!("Tag=a=\"b\",1.5,2,0.001,{payload}\r"));
        assert_eq!(interval.tag.as_deref(), Some("a=\"b\""));
    }
    let start = |head: &str| read(head, &format!("10,2,0,{payload}")).start_s;
    assert_eq!(start("#[StartTime: 5.25 (seconds since epoch), Thu]"), 10.0);
    assert_eq!(start("#[StartTime: 1e9 (seconds since epoch), Thu]"), 1e9 + 10.0);
    assert_eq!(start("#[BaseTime: 7 (seconds since epoch)]"), 17.0);
    assert_eq!(start("#[BaseTime: 7]\n#[StartTime: 1e9 (seconds)]"), 17.0);
    // Comments need not be UTF-8: Java writes the date in the platform's encoding.
    let latin1 = [b"#[StartTime: 1e9 (seconds), M\xe4r]\n1,1,0,", payload.as_bytes()].concat();
    assert_eq!(intervals(&latin1)[0].start_s, 1e9 + 1.0);
}

#[track_caller]
fn check_bad_line(line: &str, expected: &str) {
    let error = read_first("# head", line).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

/// HdrHistogram_c must reject the tagged lines.
#[test]
fn bad_line_is_reported_and_skipped() {
    let line = |line: &str| line.replace('@', PAYLOAD);
    check_bad_line(
        &line("Tag=A,x.127,1.007,2.769,@"),
        "line 2, at byte 13: start timestamp is \"x.127\", expected a decimal number",
    );
    check_bad_line(
        &line("Tga=A,0.127,1.007,2.769,@"),
        "line 2, at byte 7: start timestamp is \"Tga=A\", expected a decimal number",
    );
    check_bad_line(
        "Tag=A,0.127,1.007,2.769",
        "line 2, at byte 30: histogram is \"\", expected one more field: the line ends here",
    );
    check_bad_line(
        "Tag=A,0.127,1.007,2.769,HISTF",
        "line 2, at byte 31: histogram: at byte 5: base64 is 5 letters, expected base64 of \
         the standard alphabet",
    );
    check_bad_line(
        &line("Tag=A b,0.127,1.007,2.769,@"),
        "line 2, at byte 13: start timestamp is \"b\", expected a decimal number",
    );
    check_bad_line(
        &line("1,inf,2,@"),
        "line 2, at byte 9: interval length is \"inf\", expected a decimal number",
    );
    check_bad_line(
        &line("1,2,3,@,5"),
        "line 2, at byte 62: end of line is \"5\", expected nothing after the histogram",
    );
    check_bad_line(
        "#[StartTime: soon]",
        "line 2, at byte 20: start time is \"soon\", expected a decimal number",
    );
    check_bad_line(
        "#[Histogram log format version 2.0]",
        "line 2, at byte 38: log format version is \"2.0]\", expected 1.0 to 1.3",
    );
    let long = format!("1,2,3,{}", "A".repeat(hlog::LINE_BYTES_MAX));
    assert!(matches!(read_first("", &long).unwrap_err().cause, HlogFault::LineTooLong));
}

#[test]
fn read_error_ends_the_log() {
    struct FailingReader;
    impl std::io::Read for FailingReader {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("cable cut"))
        }
    }
    let mut reader = hlog::HlogReader::new(std::io::BufReader::new(FailingReader));
    let error = reader.next().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "line 1, at byte 0: cannot read the log: cable cut");
    assert!(reader.next().is_none());
}

#[test]
fn unrepresentable_intervals_are_not_written() {
    let interval = HlogInterval::new(None, 1.0, 1.0, recording(&[(5, 1)]));
    let write = |interval: &HlogInterval| {
        let mut writer = hlog::HlogWriter::new(Vec::new(), &HlogPreamble::default()).unwrap();
        writer.write(interval).unwrap_err().to_string()
    };
    for tag in ["a,b", "a b", "a\nb", "a\r"] {
        let error = write(&HlogInterval { tag: Some(tag.into()), ..interval.clone() });
        assert!(error.starts_with("invalid tag "), "{error}");
    }
    let error = write(&HlogInterval { length_s: f64::NAN, ..interval.clone() });
    assert_eq!(error, "interval length is NaN, expected a finite number");
    let preamble = HlogPreamble { comments: vec!["two\nlines".into()], ..HlogPreamble::default() };
    assert!(hlog::HlogWriter::new(Vec::new(), &preamble).is_err());
}

fn recording(values: &[(u64, u64)]) -> HdrHistogramData {
    let mut recording = HdrHistogramData::new(HdrHeader::new(3, 1, 3_600_000_000_000).unwrap());
    values.iter().for_each(|&(value, count)| recording.histogram.record_n(value as f64, count));
    recording
}

/// The bytes of a V2 histogram with three digits up to an hour and the counts `payload`.
fn v2(payload: &[u8]) -> Vec<u8> {
    let mut bytes = recording(&[]).encode(HdrVersion::V2).unwrap();
    bytes.truncate(40);
    bytes[4..8].copy_from_slice(&(payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// [`v2`] with `len` bytes at `at` changed.
fn v2_with(at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = v2(&[2]);
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[track_caller]
fn check_rejected(bytes: &[u8], expected: &str) {
    let error = hdr::decode(bytes).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn hostile_bytes_are_reported_with_field_and_offset() {
    check_rejected(b"", "at byte 0: the input ends inside cookie");
    check_rejected(
        b"\x1c\x84\x93\x05",
        "at byte 0: cookie is 0x1c849305, expected a cookie of HdrHistogram V0, V1 or V2 with \
         words of 2, 4 or 8 bytes",
    );
    check_rejected(
        b"\x1c\x84\x93\x61____",
        "at byte 0: cookie is 0x1c849361, expected a cookie of HdrHistogram V0, V1 or V2 with \
         words of 2, 4 or 8 bytes",
    );
    check_rejected(&v2(&[2])[..38], "at byte 32: the input ends inside conversion ratio");
    check_rejected(&v2_with(15, &[6]), "at byte 12: digits is 6, expected 0 to 5");
    check_rejected(
        &v2_with(16, &[0; 8]),
        "at byte 16: lowest discernible value is 0, expected at least 1, and below 2^63 when \
         multiplied by the buckets of two octaves",
    );
    check_rejected(
        &v2_with(24, &1i64.to_be_bytes()),
        "at byte 24: highest trackable value is 1, expected at least twice the lowest discernible \
         value",
    );
    check_rejected(
        &v2_with(8, &(-33_792i32).to_be_bytes()),
        "at byte 8: normalizing index offset is -33792, expected smaller in magnitude than the \
         length of the counts array",
    );
    check_rejected(
        &v2_with(32, &f64::NAN.to_be_bytes()),
        "at byte 32: conversion ratio is NaN, expected a finite number",
    );
    check_rejected(&v2_with(7, &[2]), "at byte 41: the input ends inside count");
    check_rejected(
        &v2_with(7, &[0]),
        "at byte 40: end is more bytes, expected nothing after the histogram",
    );
    check_rejected(&v2(&[0x82]), "at byte 40: the input ends inside count");
    // A run of zeros over the whole array is the longest valid one; then one more, then the
    // maximum.
    assert!(hdr::decode(&v2(&leb(-33_792))).unwrap().histogram.is_empty());
    check_rejected(
        &v2(&leb(-33_793)),
        "at byte 40: end of the counts is 33793, the limit is 33792",
    );
    check_rejected(
        &v2(&[leb(-33_792), leb(1)].concat()),
        "at byte 43: end of the counts is 33793, the limit is 33792",
    );
    check_rejected(
        &v2(&leb(i64::MIN)),
        "at byte 40: end of the counts is 9223372036854775808, the limit is 33792",
    );
    check_rejected(
        &v2(&[leb(i64::MAX), leb(1)].concat()),
        "at byte 49: count is 1, expected a total of at most 2^63 - 1 values",
    );
}

/// ZigZag LEB128-64b9B, implemented independently.
fn leb(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while rest >= 0x80 && out.len() < 8 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

#[test]
fn hostile_words_are_rejected() {
    let v0 = recording(&[(1, 1), (2, 2)]).encode(HdrVersion::V0).unwrap();
    check_rejected(
        &v0[..v0.len() - 8],
        "at byte 24: total count is 3, expected the sum of the counts",
    );
    check_rejected(&v0[..v0.len() - 1], "at byte 48: the input ends inside count");
    let mut v1 = recording(&[(1, 1), (2, 2)]).encode(HdrVersion::V1).unwrap();
    v1[40] = 0x80;
    check_rejected(&v1, "at byte 40: count is -9223372036854775808, expected at least 0");
    v1[7] -= 1;
    check_rejected(&v1, "at byte 4: payload length is 23, expected a multiple of the word size");
}

fn compressed(cookie: u32, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(plain).unwrap();
    let zlib = encoder.finish().unwrap();
    [&cookie.to_be_bytes()[..], &(zlib.len() as u32).to_be_bytes(), &zlib].concat()
}

#[test]
fn a_zip_bomb_ends_with_the_counts_array() {
    // 256 MiB of zeros compressed to 256 KiB, as the counts of the longest array.
    let mut plain = HdrHistogramData::new(HdrHeader::new(5, 1, i64::MAX).unwrap())
        .encode(HdrVersion::V2)
        .unwrap();
    plain[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    plain.resize(256 << 20, 0);
    let bytes = compressed(layout::V2_COMPRESSED | 0x10, &plain);
    assert!(bytes.len() < 300 << 10);
    check_rejected(&bytes, "at byte 6160424: end of the counts is 6160385, the limit is 6160384");
    // One MiB of counts of one, more than the limit.
    plain.truncate(40 + (6 << 20));
    plain[40..].fill(2);
    let bytes = compressed(layout::V2_COMPRESSED | 0x10, &plain);
    check_rejected(&bytes, "at byte 1048616: buckets in use is 1048577, the limit is 1048576");
}

#[test]
fn damaged_zlib_stream_is_rejected() {
    let mut bytes = recording(&[(1, 1), (70_000, 5)]).encode_compressed(HdrVersion::V2).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let error = hdr::decode(&bytes).unwrap_err();
    assert!(matches!(error, DecodeError::Invalid { field: "zlib stream", .. }), "{error}");
    let cut = &bytes[..bytes.len() - 1];
    check_rejected(cut, "at byte 8: the input ends inside zlib stream");
}

#[test]
fn a_wrapper_of_doubles_is_checked() {
    let header = HdrHeader::double(3, 1000, 0.25).unwrap();
    let bytes = HdrHistogramData::new(header).encode(HdrVersion::V2).unwrap();
    let with = |at: usize, new: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    check_rejected(
        &with(7, &[2]),
        "at byte 28: digits is 3, expected the digits of the wrapper around it",
    );
    check_rejected(
        &with(8, &[0; 8]),
        "at byte 8: highest to lowest value ratio is 0, expected at least 2",
    );
    check_rejected(
        &with(48, &0.1f64.to_be_bytes()),
        "at byte 48: conversion ratio is 0.1, expected an exact power of two from 2^-1022 on: \
         other units have no lossless grid",
    );
    check_rejected(&bytes[..19], "at byte 16: the input ends inside cookie");
}

#[test]
fn unrepresentable_histograms_are_not_written() {
    #[track_caller]
    fn check_unrepresentable(change: impl FnOnce(&mut HistogramParts), expected: &str) {
        let mut recording = recording(&[(5, 1)]);
        let mut parts = recording.histogram.clone().into_parts();
        change(&mut parts);
        recording.histogram = Histogram::from_parts(parts).unwrap();
        let error = recording.encode(HdrVersion::V2).unwrap_err().to_string();
        assert_eq!(error, format!("HdrHistogram cannot represent {expected}"));
    }
    check_unrepresentable(|parts| parts.overflow = 2, "values above the grid (2)");
    check_unrepresentable(|parts| parts.underflow = 3, "values below the grid (3)");
    check_unrepresentable(|parts| parts.nan = 4, "NaN (4)");
    check_unrepresentable(|parts| parts.negative = vec![(1, 5)], "negative values (5)");
    check_unrepresentable(
        |parts| parts.zero = 6,
        "values counted as zero beside the bucket of zero (6)",
    );
    check_unrepresentable(|parts| parts.zero_threshold = 0.5, "a zero threshold (0.5)");
    check_unrepresentable(
        |parts| parts.positive = vec![(33_792, 1)],
        "bucket 33792 above the highest trackable value 3600000000000",
    );
    check_unrepresentable(
        |parts| parts.positive = vec![(0, 1 << 63)],
        "more than 2^63 - 1 values (9223372036854775808)",
    );
    let mut other = recording(&[]);
    other.histogram = Histogram::default();
    assert_eq!(
        other.encode(HdrVersion::V2).unwrap_err().to_string(),
        "HdrHistogram cannot represent exp2 scale 5 buckets; convert the histogram first"
    );
}

#[track_caller]
fn check_covering(scheme: Scheme, values: &[f64]) {
    let mut histogram = Histogram::new(scheme);
    values.iter().for_each(|&value| histogram.record(value));
    let header = HdrHeader::for_histogram(&histogram).unwrap();
    let recording = HdrHistogramData { histogram: without_summary(histogram), header };
    let read = hdr::decode(&recording.encode(HdrVersion::V2).unwrap());
    assert_eq!(read.as_ref(), Ok(&recording));
}

#[test]
fn any_grid_of_hdr_histogram_finds_its_header() {
    for bits in [0, 4, 7, 10, 14, 17] {
        for unit in [-300, -3, 0, 1, 10, 40] {
            let grid = hist::LogLinear2::with_floor(bits, unit + bits as i32).unwrap();
            let lowest = f64::from(unit).exp2();
            for factor in [1.0, 100.0, 1e3] {
                check_covering(Scheme::LogLinear2(grid), &[0.0, lowest, factor * lowest]);
            }
        }
    }
    for scheme in [Scheme::default(), Scheme::log_linear2(10).unwrap(), Scheme::LogLinear10] {
        assert!(HdrHeader::for_histogram(&Histogram::new(scheme)).is_err());
    }
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
