//! Recurrence of a silence: a time interval as JSON, with the fields that Alertmanager's files
//! have.
//!
//! ```json
//! {"times": [{"start_time": "02:00", "end_time": "04:00"}], "weekdays": ["saturday:sunday"],
//!  "days_of_month": ["1:7"], "months": ["june:august"], "years": ["2026"],
//!  "location": "Europe/Berlin"}
//! ```
//! Times of day are local: an hour that a change of the clocks skips does not recur on that day,
//! and one that it repeats recurs twice.

use std::ops::Range;

use serde::Deserialize;
use serde_json::Value;

use super::TimeInterval;
use super::interval_text::{
    DayMinute, MonthDayRange, MonthRange, WeekdayRange, YearRange, ZoneName,
};

/// Largest recurrence in bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Times at which a silence recurs.
#[derive(Clone, Debug)]
pub struct Recurrence {
    /// As it was written.
    value: Value,
    interval: TimeInterval,
}

/// A recurrence is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read time interval: {0}; expected an object such as {{\"times\": [{{\"start_time\": \
     \"02:00\", \"end_time\": \"04:00\"}}], \"weekdays\": [\"sunday\"], \"location\": \
     \"Europe/Berlin\"}}"
)]
pub struct RecurrenceError(String);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RecurrenceFields {
    times: Vec<DayTimeFields>,
    weekdays: Vec<WeekdayRange>,
    days_of_month: Vec<MonthDayRange>,
    months: Vec<MonthRange>,
    years: Vec<YearRange>,
    location: ZoneName,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DayTimeFields {
    start_time: DayMinute,
    end_time: DayMinute,
}

impl Recurrence {
    /// Reads a JSON object.
    pub fn from_json(value: Value) -> Result<Recurrence, RecurrenceError> {
        let failed = |what: &str| RecurrenceError(what.to_owned());
        if !value.is_object() {
            return Err(failed("not an object"));
        }
        if value.to_string().len() > TEXT_BYTES_MAX {
            return Err(failed("size limit (4 KiB) exceeded"));
        }
        let fields: RecurrenceFields = serde_json::from_value(value.clone())
            .map_err(|error| RecurrenceError(error.to_string()))?;
        let mut interval = TimeInterval::in_zone(fields.location.0);
        for times in fields.times {
            let (start, end) = (times.start_time.0, times.end_time.0);
            if start >= end {
                return Err(failed("start_time is not before end_time; split it at midnight"));
            }
            interval.times.push((start, end));
        }
        interval.weekdays = ranges(fields.weekdays, |range| range.0);
        interval.days_of_month = ranges(fields.days_of_month, |range| (range.start, range.end));
        interval.months = ranges(fields.months, |range| range.0);
        interval.years = ranges(fields.years, |range| range.0);
        Ok(Recurrence { value, interval })
    }

    /// The JSON object.
    pub fn to_json(&self) -> &Value {
        &self.value
    }

    /// Whether a time, in nanoseconds since the Unix epoch, is inside.
    pub(crate) fn contains(&self, at_ns: i64) -> bool {
        self.interval.contains(at_ns)
    }

    /// Its times in a range, as [`TimeInterval::ranges_within`].
    pub(crate) fn ranges_within(&self, range: &Range<i64>) -> Vec<Range<i64>> {
        self.interval.ranges_within(range)
    }
}

fn ranges<T, R>(ranges: Vec<T>, range: impl Fn(T) -> R) -> Vec<R> {
    ranges.into_iter().map(range).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: &Value, at: &str, expected: bool) {
        let at: jiff::Timestamp = at.parse().unwrap();
        let at_ns = i64::try_from(at.as_nanosecond()).unwrap();
        let recurrence = Recurrence::from_json(value.clone()).unwrap();
        assert_eq!(recurrence.contains(at_ns), expected, "{at}");
    }

    #[test]
    fn a_window_follows_the_clocks_of_its_zone() {
        let night = json!({
            "times": [{"start_time": "02:00", "end_time": "03:00"}], "location": "Europe/Berlin"
        });
        // In winter, and in summer.
        check(&night, "2026-03-28T01:30:00Z", true);
        check(&night, "2026-03-30T00:30:00Z", true);
        check(&night, "2026-03-30T01:30:00Z", false);
        // 2026-03-29: 02:00 to 03:00 does not exist.
        check(&night, "2026-03-29T00:59:59Z", false);
        check(&night, "2026-03-29T01:00:00Z", false);
        // 2026-10-25: it exists twice.
        check(&night, "2026-10-25T00:30:00Z", true);
        check(&night, "2026-10-25T01:30:00Z", true);
        check(&night, "2026-10-25T02:00:00Z", false);
    }

    #[test]
    fn mistakes_are_named() {
        let check = |value: Value, part: &str| {
            let error = Recurrence::from_json(value).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        check(json!([]), "cannot read time interval");
        check(json!({"weekday": ["monday"]}), "unknown field `weekday`, expected one of");
        check(json!({"weekdays": ["mon"]}), "a weekday or a range such as");
        check(json!({"location": "Mars/Base"}), "the name of a time zone");
        let times = json!({"times": [{"start_time": "22:00", "end_time": "02:00"}]});
        check(times, "split it at midnight");
        check(json!({"years": vec!["2026"; 1000]}), "size limit (4 KiB) exceeded");
    }
}
