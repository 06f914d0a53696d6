//! Logs of HdrHistogram: those of Java, lines of other writers, and damaged lines.

use codecs::hdr::HdrHeader;
use codecs::hlog::{self, HlogError, HlogFault, HlogInterval, HlogPreamble};
use hist::{Histogram, QuantileMethod};

use crate::hdr::{golden, intervals, recording, without_summary};

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

/// Intervals survive a round trip, except for the maximum, which the histogram then contains.
#[track_caller]
pub(crate) fn check_log(preamble: &HlogPreamble, intervals: &[HlogInterval]) {
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
