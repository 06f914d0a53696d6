//! Formatting of times and durations. Times are UTC. Both are nanoseconds, times since the Unix
//! epoch.

use std::time::Duration;

pub use decode::duration_text;
use decode::{Unit, hlog};

use crate::value_formatter::ValueFormatter;

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;
pub(crate) const S_PER_DAY: i64 = 86_400;

/// `2015-09-09 15:24:39 UTC`, or `+12 s` for a log without a date.
pub fn time_text(ns: i64, row_ns: i64) -> String {
    let seconds = ns.div_euclid(NS_PER_S);
    let fraction = ns.rem_euclid(NS_PER_S);
    let decimals = if row_ns % NS_PER_S == 0 {
        String::new()
    } else {
        format!(".{:03}", fraction / 1_000_000)
    };
    if is_since_start(ns) {
        return format!("+{seconds}{decimals} s");
    }
    let (days, second) = (seconds.div_euclid(S_PER_DAY), seconds.rem_euclid(S_PER_DAY));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{decimals}Z")
}

/// `2026-05-01 12:00:00Z`, with all significant decimals.
pub fn precise_time_text(ns: i64) -> String {
    let row_ns = if ns % NS_PER_S == 0 { NS_PER_S } else { 1 };
    time_text(ns, row_ns)
}

/// `2026-05-01 12:00:00Z`, from nanoseconds since the Unix epoch.
pub fn format_time(ns: i64) -> String {
    time_text(ns, NS_PER_S)
}

/// Whether a time is shown relative to the start of a log without a date. Negative times are not:
/// `-1 s` would mean a second ago.
pub(crate) fn is_since_start(ns: i64) -> bool {
    ns >= 0 && hlog::is_since_start(ns)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. Years start in
/// March internally, so that the leap day is the last day.
pub fn date(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_400_YEARS: i64 = 146_097;
    // From 1970-01-01 back to 0000-03-01.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(DAYS_PER_400_YEARS), days.rem_euclid(DAYS_PER_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// [`duration_text`] of a time limit: `7 d`.
pub fn format_age(age: Duration) -> String {
    duration_text(i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))
}

/// `12.35 ms`.
pub fn format_duration(time: Duration) -> String {
    format_ns(time.as_nanos() as f64)
}

/// `12.35 ms`, from nanoseconds.
pub fn format_ns(ns: f64) -> String {
    ValueFormatter::new(Some(&Unit::Nanoseconds)).estimate(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: i64, expected: &str) {
        assert_eq!(time_text(seconds * NS_PER_S, 10 * NS_PER_S), expected);
    }

    #[test]
    fn consecutive_days_are_consecutive_dates() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..200_000 {
            assert_eq!(date(days), (year, month, day));
            let length = match month {
                2 => 28 + i64::from(is_leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    #[test]
    fn times_are_dates() {
        check(1_441_812_279, "2015-09-09 15:24:39Z");
        check(951_782_400, "2000-02-29 00:00:00Z");
        check(1_709_164_799, "2024-02-28 23:59:59Z");
        check(4_107_542_400, "2100-03-01 00:00:00Z");
        check(-1, "1969-12-31 23:59:59Z");
        check(12, "+12 s");
    }
}
