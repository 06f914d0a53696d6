//! Resolutions: base and rollups. Times are nanoseconds since the Unix epoch.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::ops::Range;

/// Nanoseconds per second.
pub const SECOND: i64 = 1_000_000_000;
/// Nanoseconds per minute.
pub const MINUTE: i64 = 60 * SECOND;
/// Nanoseconds per hour.
pub const HOUR: i64 = 60 * MINUTE;
/// Nanoseconds per day.
pub const DAY: i64 = 24 * HOUR;

/// Resolution of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// One sample, as received.
    Base,
    /// Rows that ended within one minute.
    Minute,
    /// Within five minutes.
    FiveMinutes,
    /// Within an hour.
    Hour,
    /// Within a day (UTC).
    Day,
}

impl Resolution {
    /// Finest to coarsest.
    pub const ALL: [Resolution; 5] = [
        Resolution::Base,
        Resolution::Minute,
        Resolution::FiveMinutes,
        Resolution::Hour,
        Resolution::Day,
    ];

    /// Rollup resolutions, computed from the base.
    pub const ROLLUPS: [Resolution; 4] =
        [Resolution::Minute, Resolution::FiveMinutes, Resolution::Hour, Resolution::Day];

    /// Nanoseconds of a row; `None` for the base, whose rows have the duration of their sample.
    pub fn period(self) -> Option<i64> {
        Some(match self {
            Resolution::Base => return None,
            Resolution::Minute => MINUTE,
            Resolution::FiveMinutes => 5 * MINUTE,
            Resolution::Hour => HOUR,
            Resolution::Day => DAY,
        })
    }

    /// The next finer resolution.
    pub(crate) fn next_finer(self) -> Option<Resolution> {
        let at = Resolution::ALL.iter().position(|&r| r == self)?;
        at.checked_sub(1).map(|at| Resolution::ALL[at])
    }

    /// Partition length in nanoseconds: no part crosses a partition boundary. Each length divides a
    /// day or is a multiple of one. A chunk then has some hundred rows: at one sample a minute 360
    /// rows of the base, 288 of five minutes, 720 of an hour.
    pub(crate) fn partition(self) -> i64 {
        match self {
            Resolution::Base => 6 * HOUR,
            Resolution::Minute | Resolution::FiveMinutes => DAY,
            Resolution::Hour => 30 * DAY,
            Resolution::Day => 360 * DAY,
        }
    }

    /// Name in files and queries: `base`, `1m`, `5m`, `1h`, `1d`.
    pub fn name(self) -> &'static str {
        match self {
            Resolution::Base => "base",
            Resolution::Minute => "1m",
            Resolution::FiveMinutes => "5m",
            Resolution::Hour => "1h",
            Resolution::Day => "1d",
        }
    }

    /// Resolution by name.
    pub fn parse(name: &str) -> Option<Resolution> {
        Resolution::ALL.into_iter().find(|resolution| resolution.name() == name)
    }

    pub(crate) fn to_byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Resolution> {
        Resolution::ALL.get(usize::from(byte)).copied()
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Start of the interval of length `period` that a sample ending at `end` belongs to: the interval
/// that contains the last nanosecond before the end, so that a sample ending on the hour belongs to
/// the previous hour.
pub(crate) fn interval_start(end: i64, period: i64) -> i64 {
    let last = end.saturating_sub(1);
    last.saturating_sub(last.rem_euclid(period))
}

/// Time range of that interval.
pub(crate) fn interval_range(end: i64, period: i64) -> Range<i64> {
    let start = interval_start(end, period);
    start..start.saturating_add(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_ending_on_the_hour_belongs_to_the_hour_before() {
        assert_eq!(interval_start(HOUR, HOUR), 0);
        assert_eq!(interval_start(HOUR + 1, HOUR), HOUR);
        assert_eq!(interval_start(0, HOUR), -HOUR);
        assert_eq!(interval_start(i64::MIN, HOUR), i64::MIN);
        assert_eq!(interval_range(1, DAY), 0..DAY);
    }

    #[test]
    fn partitions_nest_in_days() {
        for resolution in Resolution::ALL {
            let partition = resolution.partition();
            assert!(DAY % partition == 0 || partition % DAY == 0, "{resolution}");
            assert!(resolution.period().is_none_or(|period| partition % period == 0));
            assert_eq!(Resolution::parse(resolution.name()), Some(resolution));
            assert_eq!(Resolution::from_byte(resolution.to_byte()), Some(resolution));
        }
    }
}
