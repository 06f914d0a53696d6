//! Decoder of HdrHistogram's interval log (`.hlog`): each line is a histogram with its time and an
//! optional tag.
//!
//! By HdrHistogram's convention, integer values are nanoseconds; logs of doubles have no unit.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};

use codecs::hlog::{HlogError, HlogFault, HlogInterval, HlogReader};

use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink};
use crate::input_error::{InputError, InputPosition, quote};
use crate::unit::Unit;

/// Times before this limit, in nanoseconds since the Unix epoch, are relative to the start of the
/// log, as in HdrHistogram.
const SINCE_START_MAX: i64 = 365 * 86_400 * 1_000_000_000;

/// Whether a time is relative to the start of a log without a date. Negative times are relative
/// too: no measurement predates 1970, and a clock may lag slightly behind its log.
pub fn is_since_start(ns: i64) -> bool {
    ns < SINCE_START_MAX
}

/// Converts the relative times of a sample to absolute times. Returns whether the sample has
/// absolute times now.
pub fn make_absolute(sample: &mut DecodedSample, log_start: Option<i64>) -> bool {
    if !sample.start.or(sample.end).is_some_and(is_since_start) {
        return true;
    }
    let Some(log_start) = log_start else { return false };
    for time in [&mut sample.start, &mut sample.end].into_iter().flatten() {
        *time = time.saturating_add(log_start);
    }
    true
}

/// Reads an HdrHistogram interval log.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SampleSink) -> io::Result<()> {
    for interval in HlogReader::new(input) {
        let flow = match interval {
            Ok(interval) => {
                sink.sample(decode_interval(interval));
                continue;
            }
            Err(HlogError { line, cause: fault, .. }) => {
                let position = InputPosition::Line(line);
                sink.error(match fault {
                    HlogFault::Io(error) => return Err(error),
                    HlogFault::Field { field, found, expected } => InputError::new(
                        position,
                        format!("{expected} ({field})"),
                        quote(found.as_bytes()),
                    ),
                    fault => InputError::new(position, "an interval of a log", fault.to_string()),
                })
            }
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

fn decode_interval(interval: HlogInterval) -> DecodedSample {
    let has_all_values = interval.recording.header.range().is_none();
    DecodedSample {
        labels: interval.tag.map(|tag| ("tag".to_owned(), tag)).into_iter().collect(),
        unit: has_all_values.then_some(Unit::Nanoseconds),
        start: nanoseconds(interval.start_s),
        end: nanoseconds(interval.start_s + interval.length_s),
        ..DecodedSample::new(DecodedValue::Histogram(Box::new(interval.recording.histogram)))
    }
}

/// Logs have millisecond resolution; a double of Unix seconds has a resolution of about 0.25 µs.
fn nanoseconds(seconds: f64) -> Option<i64> {
    let microseconds = (seconds * 1e6).round();
    (microseconds.abs() < 9e15).then(|| (microseconds as i64).saturating_mul(1000))
}

/// Whether the line is valid for this decoder and for no other.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let marks: [&[u8]; 5] = [
        b"#[StartTime:",
        b"#[BaseTime:",
        b"#[Histogram log format",
        b"\"StartTimestamp\"",
        b"Tag=",
    ];
    let Ok(text) = std::str::from_utf8(line) else { return false };
    marks.iter().any(|mark| line.starts_with(mark))
        || text.split(',').nth(3).is_some_and(|base64| base64.starts_with("HIST"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_sample::RecordingSink;

    const LINE: &str = "0.127,1.007,2.769,HISTFAAAAEV42pNpmSzMwMCgyAABTBDKT4GBgdnNYMcCBvsPEBEJISEuATEZMQ4uASkhIR4nrxg9v2lMaxhvMekILGZkKmcCAEf2CsI=";

    #[test]
    fn intervals_have_time_tag_and_unit() {
        let mut sink = RecordingSink::default();
        let log =
            format!("#[StartTime: 1441812279.474 (seconds since epoch)]\n{LINE}\nTag=A,{LINE}\n");
        read(&mut log.as_bytes(), &mut sink).unwrap();
        let [plain, tagged] = &sink.samples[..] else { panic!("two samples") };
        assert_eq!(plain.start, Some(1_441_812_279_601_000_000));
        assert_eq!(plain.end, Some(1_441_812_280_608_000_000));
        assert_eq!(plain.unit, Some(Unit::Nanoseconds));
        assert_eq!((plain.label("tag"), tagged.label("tag")), (None, Some("A")));
        assert!(sink.errors.is_empty());
    }

    #[track_caller]
    fn check_absolute(time: (i64, i64), log_start: Option<i64>, expected: Option<(i64, i64)>) {
        let mut sample = DecodedSample {
            start: Some(time.0),
            end: Some(time.1),
            ..DecodedSample::new(DecodedValue::Number(1.0))
        };
        let is_dated = make_absolute(&mut sample, log_start);
        let found = sample.start.zip(sample.end);
        assert_eq!(is_dated.then_some(found), expected.map(Some), "{time:?} from {log_start:?}");
    }

    #[test]
    fn relative_times_count_from_the_given_start() {
        const NOW: i64 = 1_700_000_000_000_000_000;
        check_absolute((5, 7), Some(NOW), Some((NOW + 5, NOW + 7)));
        check_absolute((-5, 7), Some(NOW), Some((NOW - 5, NOW + 7)));
        check_absolute((-5, 7), None, None);
        check_absolute((SINCE_START_MAX - 1, NOW), None, None);
        check_absolute((SINCE_START_MAX, NOW), Some(5), Some((SINCE_START_MAX, NOW)));
        check_absolute((NOW, NOW + 1), None, Some((NOW, NOW + 1)));
    }

    #[test]
    fn log_with_millisecond_clock_is_read_without_times() {
        let mut sink = RecordingSink::default();
        let log = format!("#[StartTime: 1441812279474 (seconds since epoch)]\n{LINE}\n");
        read(&mut log.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.samples[0].start, None);
    }

    #[test]
    fn a_bad_line_is_named_and_the_rest_is_read() {
        let mut sink = RecordingSink::default();
        let log = format!("{LINE}\n1,2,x,HISTF\n{}\n{LINE}\n", &LINE[..60]);
        read(&mut log.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.samples.len(), 2);
        let errors = sink.error_texts();
        assert_eq!(errors[0], "line 2: expected a decimal number (interval maximum), found \"x\"");
        assert!(errors[1].starts_with("line 3: expected an interval of a log, found histogram: "));
    }
}
