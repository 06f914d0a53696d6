//! Moments and lengths of time on the command line: [`api::moment`] with what to say when it cannot be read, and as
//! topdeck writes them. All times are UTC; they are nanoseconds since the Unix epoch.

use api::time_expr;
pub(crate) use api::time_expr::TimeExpr;

use crate::hist::intervals::{self, NS_PER_S, S_PER_DAY};

/// `2026-11-09`, `2026-11-09T12:30:00.5Z`, `2026-11-09 12:30:00+02:00`, `now`, `-2h`.
pub(crate) fn parse_time(text: &str) -> Result<TimeExpr, String> {
    TimeExpr::parse(text).ok_or_else(|| {
        "expected a time such as 2026-11-09, 2026-11-09T12:30:00Z, now or -2h".to_owned()
    })
}

/// `90s`, `30d`, `1h30m`; in nanoseconds, more than nothing.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    time_expr::length(text).ok_or_else(|| collect::LENGTH_EXPECTED.to_owned())
}

/// A length in the largest unit that it is a whole number of: `30d`.
pub(crate) fn duration_text(ns: i64) -> String {
    const UNITS: [(i64, &str); 5] = [
        (365 * S_PER_DAY * NS_PER_S, "y"),
        (S_PER_DAY * NS_PER_S, "d"),
        (3_600 * NS_PER_S, "h"),
        (60 * NS_PER_S, "min"),
        (NS_PER_S, "s"),
    ];
    let whole = UNITS.iter().find(|(unit_ns, _)| ns % unit_ns == 0);
    whole.map_or_else(|| format!("{ns}ns"), |(unit_ns, unit)| format!("{}{unit}", ns / unit_ns))
}

/// `2026-05-01 12:00:00Z`, with as many decimals as it has.
pub(crate) fn time_text(ns: i64) -> String {
    let row_ns = if ns % NS_PER_S == 0 { NS_PER_S } else { 1 };
    intervals::time_text(ns, row_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, shown: &str) {
        assert_eq!(parse_duration(written).map(duration_text), Ok(shown.to_owned()));
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
            assert_eq!(parse_time(&time_text(at)), Ok(TimeExpr::At(at)));
        }
        assert!(parse_time("2026").is_err(), "a year is no second of 1970");
    }
}
