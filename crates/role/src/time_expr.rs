//! Time and duration syntax. UTC unless stated otherwise.
//!
//! A time is `2026-11-09`, RFC 3339 (`2026-11-09T12:30:00.5+02:00`, also with a space, and without
//! seconds or an offset), nanoseconds as in responses (`1794225600500000000ns`), `now`, `-2h`, or
//! `+12 s`, which are times of a log without a date. A duration is Prometheus' (`1h30m`), or a
//! number and a unit (`90min`, `1.5w`, `250us`).
//!
//! Request parameters may also be plain numbers, which are seconds, as in Prometheus. So may those
//! of command lines, from nine digits on: a year would be read as a second of 1970.

pub use decode::parse_duration as length;
use jiff::civil::DateTime;
use jiff::{Timestamp, tz::TimeZone};

/// Time syntax of request parameters.
pub const TIME_SYNTAX: &str = "a time such as 2026-11-09T12:30:00Z, Unix seconds, \
                                      nanoseconds as 1794225600000000000ns, now or -2h";
/// Duration syntax of request parameters.
pub const DURATION_SYNTAX: &str = "a duration such as 30s, 5m, 1h30m or 250ms, or seconds";

const SECOND: f64 = 1e9;

/// Absolute or relative time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeExpr {
    /// In nanoseconds since the Unix epoch.
    At(i64),
    /// Nanoseconds before now.
    Ago(i64),
}

impl TimeExpr {
    /// Parses a time.
    pub fn parse(text: &str) -> Option<TimeExpr> {
        let text = text.trim();
        if text == "now" {
            return Some(TimeExpr::Ago(0));
        }
        if let Some(ago) = text.strip_prefix('-') {
            return length(ago).map(TimeExpr::Ago);
        }
        if let Some(since) = text.strip_prefix('+') {
            return length(since).map(TimeExpr::At);
        }
        if let Some(ns) = text.strip_suffix("ns") {
            return ns.parse().ok().map(TimeExpr::At);
        }
        parse_date_time(text).map(TimeExpr::At)
    }

    /// Nanoseconds since the Unix epoch.
    pub fn to_unix_ns(self, now: i64) -> i64 {
        match self {
            TimeExpr::At(ns) => ns,
            TimeExpr::Ago(ns) => now.saturating_sub(ns),
        }
    }
}

/// Position of the month in `2026-11-09`: other ISO 8601 date formats are ambiguous.
const MONTH_OFFSET: usize = 4;

fn parse_date_time(text: &str) -> Option<i64> {
    let dashed = text.as_bytes().get(MONTH_OFFSET) == Some(&b'-');
    let time = match text.parse::<Timestamp>() {
        Ok(time) => Some(time),
        Err(_) => {
            let time: Option<DateTime> = text.parse().ok();
            time.and_then(|time| Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp()))
        }
    };
    time.filter(|_| dashed).and_then(|time| i64::try_from(time.as_nanosecond()).ok())
}

/// Parses a time of a request parameter, in nanoseconds since the Unix epoch.
pub fn parse_time_parameter(text: &str, now: i64) -> Option<i64> {
    parse_unix_seconds(text.trim())
        .or_else(|| TimeExpr::parse(text).map(|timestamp| timestamp.to_unix_ns(now)))
}

/// Parses Unix seconds: integer and decimals separately, as a double lacks the precision. Truncated
/// to nanoseconds.
fn parse_unix_seconds(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(seconds) || !are_digits(fraction) || seconds.is_empty() {
        // `1.7e9`, as some scripts print it.
        let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
        let ns = number * SECOND;
        return (ns.abs() < 9.2e18).then_some(ns as i64);
    }
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let ns = seconds.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    ns.checked_add(fraction.parse().ok()?).map(|ns| sign * ns)
}

/// Parses a duration of a request parameter, in nanoseconds.
pub fn parse_duration_parameter(text: &str) -> Option<i64> {
    let plain =
        || text.trim().parse::<f64>().ok().and_then(|seconds| to_whole_ns(seconds * SECOND));
    length(text).or_else(plain)
}

fn to_whole_ns(ns: f64) -> Option<i64> {
    (1.0..9.2e18).contains(&ns).then(|| ns.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_794_225_600_000_000_000;
    const HOUR: i64 = 3_600_000_000_000;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(
            TimeExpr::parse(text).map(|timestamp| timestamp.to_unix_ns(NOON)),
            expected,
            "{text}"
        );
        if expected.is_some() {
            assert_eq!(parse_time_parameter(text, NOON), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_those_of_promql_and_more() {
        for text in ["1h30m", "1y2w3d4h5m6s7ms", "5m", "250ms", "0", "1m1h", "1s1s", "1x", "400y"] {
            let promql = query::promql::parse_duration(text).ok().filter(|ns| *ns > 0);
            assert_eq!(length(text), promql, "{text}");
        }
        assert_eq!(length("90min"), length("1h30m"));
    }

    #[test]
    fn time_expressions_are_parsed() {
        check("2026-11-09", Some(NOON - 12 * HOUR));
        check("2026-11-09T12:00:00Z", Some(NOON));
        check("2026-11-09 12:00", Some(NOON));
        check("2026-11-09 12:00:00Z", Some(NOON));
        check("2026-11-09T14:00:00.25+02:00", Some(NOON + 250_000_000));
        check("2026-11-09t11:30:00.25-00:30", Some(NOON + 250_000_000));
        check("1970-01-01T00:00:00.000000001Z", Some(1));
        check("1969-12-31T23:59:59Z", Some(-1_000_000_000));
        check("1794225600000000001ns", Some(NOON + 1));
        check("now", Some(NOON));
        check("-2h", Some(NOON - 2 * HOUR));
        check("-90min", Some(NOON - HOUR - HOUR / 2));
        check("+12 s", Some(12_000_000_000));
        for text in ["", "-", "-2", "-1x", "2026", "20261109", "2026-13-01", "2026-02-29", "1e3"] {
            check(text, None);
        }
        for text in ["2026-11-09T25:00Z", "2026-11-09T12:00:00.Z", "tomorrow", "9999-01-01"] {
            check(text, None);
        }
        for text in ["2026-11-09T12:00:00+2", "2026-11-09T12:00:00x", "1677-01-01", "é026-1"] {
            check(text, None);
        }
    }

    #[track_caller]
    fn check_number(text: &str, expected: Option<i64>) {
        assert_eq!(parse_time_parameter(text, NOON), expected, "{text}");
    }

    #[test]
    fn request_times_may_be_unix_seconds() {
        check_number("1794225600", Some(NOON));
        check_number("1794225600.123456789", Some(NOON + 123_456_789));
        check_number("1.7942256e9", Some(NOON));
        check_number("-1.5", Some(-1_500_000_000));
        check_number("2026", Some(2_026_000_000_000));
        check_number("1e300", None);
        check_number("NaN", None);
        check_number("-", None);
    }

    #[track_caller]
    fn check_duration(text: &str, expected: Option<i64>) {
        assert_eq!(length(text), expected, "{text}");
    }

    #[test]
    fn durations_are_parsed() {
        check_duration("1h30m", Some(HOUR + HOUR / 2));
        check_duration("90min", Some(HOUR + HOUR / 2));
        check_duration("1.5h", Some(HOUR + HOUR / 2));
        check_duration("1.5m", Some(90_000_000_000));
        check_duration("1.5w", Some(252 * HOUR));
        check_duration("30d", Some(720 * HOUR));
        check_duration("1y", Some(365 * 24 * HOUR));
        check_duration("250us", Some(250_000));
        check_duration("17ns", Some(17));
        for text in ["", "30", "0", "0s", "-1s", "-1d", "5B", "1e9y", "1e300", "d"] {
            check_duration(text, None);
        }
        for (text, expected) in [("15", Some(15_000_000_000)), ("0.5", Some(500_000_000))] {
            assert_eq!(parse_duration_parameter(text), expected, "{text}");
        }
        for text in ["0", "-1", "1e300", "NaN", "5m", ""] {
            assert_eq!(parse_duration_parameter(text), length(text), "{text}");
        }
    }
}
