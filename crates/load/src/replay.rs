//! Recorded schedules as text: one timestamp per line.
//!
//! A timestamp is a decimal number of seconds, or a number with a unit (`ns`, `us`, `ms`, `s`,
//! `min` or `m`, `h`). Its origin is arbitrary (midnight, 1970, the start of the recording): only
//! the distance to the first timestamp counts, which is due at the start of the run. Empty lines
//! and lines that start with `#` are ignored. Decimals are not parsed as doubles, which lack the
//! precision for nanoseconds since 1970; digits below a nanosecond are truncated.

use std::sync::Arc;

use crate::schedule::Schedule;
use crate::units::UNITS;

/// Invalid recorded schedule, with the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Invalid timestamp.
    #[error(
        "line {line}: invalid timestamp {found:?}; expected seconds or a number with a unit, as \
         in 1.5, 1500ms or 1500000000ns"
    )]
    Time {
        /// From 1.
        line: usize,
        /// Text of the line.
        found: String,
    },
    /// Timestamp before that of an earlier line.
    #[error("line {line}: timestamp {found:?} is before that of line {before}; sort the file")]
    Order {
        /// From 1.
        line: usize,
        /// Text of the line.
        found: String,
        /// The earlier line.
        before: usize,
    },
    /// No timestamps.
    #[error("no timestamps; write one per line")]
    Empty,
}

impl Schedule {
    /// Parses a recorded schedule. Drops requests that are due later than `duration_ns` after the
    /// first.
    pub fn replay(text: &str, duration_ns: Option<u64>) -> Result<Schedule, ReplayError> {
        let mut times: Vec<u64> = Vec::new();
        let (mut first, mut last) = (None, (0i128, 0));
        for (at, line) in text.lines().enumerate() {
            let (number, line) = (at + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let found = || line.chars().take(40).collect::<String>();
            let time = time_ns(line);
            let time = time.ok_or_else(|| ReplayError::Time { line: number, found: found() })?;
            let start = *first.get_or_insert(time);
            if !times.is_empty() && time < last.0 {
                let (line, before) = (number, last.1);
                return Err(ReplayError::Order { line, found: found(), before });
            }
            last = (time, number);
            let after = u64::try_from(time - start).ok().filter(|after| *after < DURATION_MAX_NS);
            times.push(after.ok_or_else(|| ReplayError::Time { line: number, found: found() })?);
        }
        if times.is_empty() {
            return Err(ReplayError::Empty);
        }
        if let Some(duration_ns) = duration_ns {
            times.truncate(times.partition_point(|time| *time < duration_ns));
        }
        Ok(Schedule::Replay(Arc::from(times)))
    }
}

/// A hundred years: offsets stay far from overflow.
const DURATION_MAX_NS: u64 = 3_153_600_000_000_000_000;
/// Parses a decimal number with a unit (default: seconds). Returns nanoseconds.
fn time_ns(text: &str) -> Option<i128> {
    let unit = UNITS.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)));
    let (number, unit_ns) = unit.unwrap_or((text, 1_000_000_000));
    let number = number.trim_end();
    let (sign, digits) = number.strip_prefix('-').map_or((1, number), |digits| (-1, digits));
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if seconds.is_empty() || !are_digits(seconds) || !are_digits(fraction) {
        return None;
    }
    // 14 digits of hours are below a nanosecond; more would overflow.
    let fraction = &fraction[..fraction.len().min(14)];
    let scale = 10i128.pow(fraction.len() as u32);
    let seconds = seconds.parse::<u64>().ok()?;
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<i128>().ok()? };
    let ns = i128::from(seconds).checked_mul(unit_ns)? + fraction * unit_ns / scale;
    Some(sign * ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[u64]) {
        let schedule = Schedule::replay(text, None).unwrap();
        assert_eq!(schedule.arrivals().collect::<Vec<u64>>(), expected);
    }

    #[test]
    fn timestamps_are_seconds_or_have_a_unit() {
        check("0\n0.5\n\n# a comment\n1\n1\n", &[0, 500_000_000, 1_000_000_000, 1_000_000_000]);
        check(
            "10ms\n12.5 ms\n1s\n0.5min\r\n1m",
            &[0, 2_500_000, 990_000_000, 29_990_000_000, 59_990_000_000],
        );
        check("-1\n-0.25\n1us", &[0, 750_000_000, 1_000_001_000]);
    }

    /// A double would lose the last digits.
    #[test]
    fn nanoseconds_since_1970_are_exact() {
        check("1794182400.000000001\n1794182400.000000003", &[0, 2]);
        check("1794182400000000001ns\n1794182400000000003ns", &[0, 2]);
    }

    #[test]
    fn later_requests_are_dropped() {
        let schedule = Schedule::replay("5\n6\n7\n", Some(2_000_000_000)).unwrap();
        assert_eq!(schedule.arrivals().collect::<Vec<u64>>(), [0, 1_000_000_000]);
    }

    #[test]
    fn errors_name_the_line() {
        let error_for = |text: &str| Schedule::replay(text, None).unwrap_err().to_string();
        assert!(error_for("1\n2\nx\n").starts_with("line 3: invalid timestamp \"x\""));
        assert!(error_for("1\n1e3\n").starts_with("line 2"));
        assert!(
            error_for("# a\n2\n\n1\n")
                .starts_with("line 4: timestamp \"1\" is before that of line 2")
        );
        assert!(error_for("0\n99999999999999999999\n").starts_with("line 2"));
        assert!(error_for("-9000000000h\n9000000000h\n").starts_with("line 2"));
        for text in ["", "# nothing\n\n"] {
            assert!(error_for(text).contains("no timestamps"));
        }
        for text in [".", "-", "s", "1.2.3", "+1", "0x1", "1 2"] {
            assert!(Schedule::replay(text, None).is_err(), "{text}");
        }
    }
}
