//! Times and durations of the command line: [`role::time_expr`] with messages for invalid input.
//! All times are UTC, in nanoseconds since the Unix epoch.

use role::time_expr;
pub(crate) use role::time_expr::TimeExpr;

/// `2026-11-09`, `2026-11-09T12:30:00.5Z`, `2026-11-09 12:30:00+02:00`, `now`, `-2h`.
pub(crate) fn parse_time(text: &str) -> Result<TimeExpr, String> {
    TimeExpr::parse(text).ok_or_else(|| {
        "expected a time such as 2026-11-09, 2026-11-09T12:30:00Z, now or -2h".to_owned()
    })
}

/// `90s`, `30d`, `1h30m`; positive, in nanoseconds.
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
    use render::time::{precise_time_text, whole_duration_text};

    #[track_caller]
    fn check(written: &str, shown: &str) {
        assert_eq!(parse_duration(written).map(whole_duration_text), Ok(shown.to_owned()));
    }

    #[test]
    fn lengths_are_written_in_the_largest_unit() {
        check("30d", "30d");
        check("1y", "1y");
        check("2w", "14d");
        check("1.5h", "90min");
        check("5m", "5min");
        check("17ns", "17ns");
    }

    #[test]
    fn times_round_trip() {
        for at in
            [1_794_225_600_000_000_000, 1_794_225_600_250_000_000, 12_000_000_000, -1_000_000_000]
        {
            assert_eq!(parse_time(&precise_time_text(at)), Ok(TimeExpr::At(at)));
        }
        assert!(parse_time("2026").is_err(), "a year is no second of 1970");
    }
}
