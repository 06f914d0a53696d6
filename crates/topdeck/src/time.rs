//! Times and durations of the command line: [`role::time_expr`] with messages for invalid input.
//! All times are UTC, in nanoseconds since the Unix epoch.

use role::time_expr;
pub(crate) use role::time_expr::TimeExpr;

/// Minimum number of digits of Unix seconds: a year, or the date 20261109, is no second of 1970.
const UNIX_DIGITS_MIN: usize = 9;

/// `2026-11-09`, `2026-11-09T12:30:00.5Z`, `2026-11-09 12:30:00+02:00`, `now`, `-2h`, and Unix
/// seconds, `1794225600.5`.
pub(crate) fn parse_time(text: &str) -> Result<TimeExpr, String> {
    TimeExpr::parse(text).or_else(|| parse_unix_seconds(text)).ok_or_else(|| {
        "expected a time such as 2026-11-09, 2026-11-09T12:30:00Z, now, -2h, or Unix seconds such \
         as 1794225600"
            .to_owned()
    })
}

fn parse_unix_seconds(text: &str) -> Option<TimeExpr> {
    let seconds = text.trim().split('.').next()?;
    let is_long = seconds.len() >= UNIX_DIGITS_MIN && seconds.bytes().all(|b| b.is_ascii_digit());
    is_long.then(|| time_expr::parse_time_parameter(text, 0)).flatten().map(TimeExpr::At)
}

/// `90s`, `30d`, `1h30m`, `1 h 30 min`; positive, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    time_expr::length(text).ok_or_else(|| decode::DURATION_EXPECTED.to_owned())
}

/// Duration in nanoseconds of `clock::now`.
pub(crate) fn parse_interval(text: &str) -> Result<u64, String> {
    parse_duration(text).map(i64::unsigned_abs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use render::time::{duration_text, precise_time_text};

    #[track_caller]
    fn check(written: &str, shown: &str) {
        assert_eq!(parse_duration(written).map(duration_text), Ok(shown.to_owned()));
    }

    #[test]
    fn lengths_may_be_written_as_they_are_shown() {
        check("30d", "30 d");
        check("1y", "365 d");
        check("2w", "14 d");
        check("1.5h", "1 h 30 min");
        check("1h30m", "1 h 30 min");
        check("1 h 30 min", "1 h 30 min");
        check("5m", "5 min");
        check("17ns", "17 ns");
    }

    #[test]
    fn times_round_trip() {
        for at in
            [1_794_225_600_000_000_000, 1_794_225_600_250_000_000, 12_000_000_000, -1_000_000_000]
        {
            assert_eq!(parse_time(&precise_time_text(at)), Ok(TimeExpr::At(at)));
        }
        for text in ["2026", "20261109", "1794225600123456789012", "1794225600x", "123456789e9"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    /// `--from 1795801050`, which the API accepts, was an error.
    #[test]
    fn times_may_be_unix_seconds() {
        assert_eq!(parse_time("1794225600"), Ok(TimeExpr::At(1_794_225_600_000_000_000)));
        assert_eq!(parse_time("1794225600.25"), Ok(TimeExpr::At(1_794_225_600_250_000_000)));
    }
}
