//! Moments and lengths of time as people write them on the command line. All times are UTC unless they say
//! otherwise; what they become is nanoseconds since the Unix epoch.

use collect::{Quantity, Unit};

use crate::hist::intervals::{self, NS_PER_S, S_PER_DAY};

/// A moment, perhaps one that depends on when it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// In nanoseconds since the Unix epoch.
    At(i64),
    /// So many nanoseconds before now.
    Ago(i64),
}

impl Moment {
    /// In nanoseconds since the Unix epoch.
    pub(crate) fn ns(self, now: i64) -> i64 {
        match self {
            Moment::At(ns) => ns,
            Moment::Ago(ns) => now.saturating_sub(ns),
        }
    }
}

const EXPECTED: &str = "expected a time such as 2026-11-09, 2026-11-09T12:30:00Z, now or -2h";

/// `2026-11-09`, `2026-11-09T12:30:00.5Z`, `2026-11-09 12:30:00+02:00`, `now`, `-2h`.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    if text == "now" {
        return Ok(Moment::Ago(0));
    }
    if let Some(ago) = text.strip_prefix('-') {
        return length(ago).map(Moment::Ago).map_err(|_| EXPECTED.to_owned());
    }
    // As topdeck writes times of a log that does not know the date.
    if let Some(since) = text.strip_prefix('+') {
        return length(since).map(Moment::At).map_err(|_| EXPECTED.to_owned());
    }
    date_time(text).ok_or_else(|| EXPECTED.to_owned()).and_then(|ns| {
        let representable = i64::try_from(ns).map(Moment::At);
        representable.map_err(|_| "times reach from 1677-09-21 to 2262-04-11".to_owned())
    })
}

fn date_time(text: &str) -> Option<i128> {
    let (date, clock) = match text.split_once(['T', 't', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let days = intervals::days_of(year, month, day);
    if intervals::date(days) != (year, month, day) {
        return None;
    }
    let Some(clock) = clock else { return Some(ns_of(days, 0, 0)) };
    let (clock, offset_s) = match clock.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, 0),
        None => match clock.rfind(['+', '-']) {
            Some(at) => {
                let [hours, minutes] = numbers(&clock[at + 1..], ':', [2, 2])?;
                let sign = if clock.as_bytes()[at] == b'-' { -1 } else { 1 };
                if hours > 23 || minutes > 59 {
                    return None;
                }
                (&clock[..at], sign * (hours * 3600 + minutes * 60))
            }
            None => (clock, 0),
        },
    };
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = match clock.len() {
        5 => numbers(clock, ':', [2, 2]).map(|[hour, minute]| [hour, minute, 0])?,
        _ => numbers(clock, ':', [2, 2, 2])?,
    };
    let is_fraction = (1..=9).contains(&fraction.len()) && is_digits(fraction);
    if hour > 23 || minute > 59 || second > 60 || !is_fraction {
        return None;
    }
    let fraction_ns: i64 = format!("{fraction:0<9}").parse().ok()?;
    Some(ns_of(days, hour * 3600 + minute * 60 + second - offset_s, fraction_ns))
}

fn ns_of(days: i64, seconds: i64, ns: i64) -> i128 {
    i128::from(days * S_PER_DAY + seconds) * i128::from(NS_PER_S) + i128::from(ns)
}

/// So many numbers of so many digits each.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
    let parts: Vec<&str> = text.split(between).collect();
    let parts: [&str; N] = parts.try_into().ok()?;
    let mut numbers = [0; N];
    for (at, part) in parts.into_iter().enumerate() {
        if part.len() != digits[at] || !is_digits(part) {
            return None;
        }
        numbers[at] = part.parse().ok()?;
    }
    Some(numbers)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Lengths beyond those that other commands take: a week, and a year of 365 days.
const LONG_NS: [(&str, i64); 2] =
    [("w", 7 * S_PER_DAY * NS_PER_S), ("y", 365 * S_PER_DAY * NS_PER_S)];

/// `90s`, `30d`, `1y`; in nanoseconds, more than nothing.
pub(crate) fn length(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let expected =
        || "expected a length of time in ns, us, ms, s, min, h, d, w or y, such as 30d".to_owned();
    let long = LONG_NS.iter().find_map(|(unit, ns)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * *ns as f64)
    });
    let short = || {
        Quantity::parse(text)
            .filter(|written| written.unit().is_some())
            .and_then(|written| written.value_in(Some(&Unit::Nanoseconds)))
    };
    // A minute is also `m` where lengths are rows: 5m.
    let minutes = || text.strip_suffix('m')?.trim().parse::<f64>().ok().map(|n| n * 60e9);
    let ns = long.or_else(short).or_else(minutes).filter(|ns| (1.0..9e18).contains(ns));
    ns.map(|ns| ns as i64).ok_or_else(expected)
}

/// A length in the largest unit that it is a whole number of: `30d`.
pub(crate) fn length_text(ns: i64) -> String {
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
pub(crate) fn text(ns: i64) -> String {
    let row_ns = if ns % NS_PER_S == 0 { NS_PER_S } else { 1 };
    intervals::time(ns, row_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_794_225_600 * NS_PER_S;

    #[track_caller]
    fn check(text: &str, expected: Moment) {
        assert_eq!(moment(text), Ok(expected), "{text}");
    }

    #[test]
    fn moments_are_dates_times_or_relative() {
        check("2026-11-09", Moment::At(NOON - 12 * 3600 * NS_PER_S));
        check("2026-11-09T12:00:00Z", Moment::At(NOON));
        check("2026-11-09 12:00", Moment::At(NOON));
        check("2026-11-09 12:00:00Z", Moment::At(NOON));
        check("2026-11-09T14:00:00+02:00", Moment::At(NOON));
        check("2026-11-09t11:30:00.25-00:30", Moment::At(NOON + NS_PER_S / 4));
        check("1970-01-01T00:00:00.000000001Z", Moment::At(1));
        check("1969-12-31T23:59:59Z", Moment::At(-NS_PER_S));
        check("now", Moment::Ago(0));
        check("-2h", Moment::Ago(7200 * NS_PER_S));
        check("-90min", Moment::Ago(5400 * NS_PER_S));
        check("+12 s", Moment::At(12 * NS_PER_S));
        for text in [
            "",
            "-",
            "-2",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "2026-11-09T25:00Z",
            "2026-11-09T12",
            "2026-11-09T12:00:00.Z",
            "tomorrow",
            "9999-01-01",
            "2026-11-09T12:00:00+2",
            "2026-11-09T12:00:00x",
            "1e3",
        ] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn lengths_have_units() {
        for (text, expected, shown) in [
            ("30d", 30 * S_PER_DAY * NS_PER_S, "30d"),
            ("1y", 365 * S_PER_DAY * NS_PER_S, "1y"),
            ("2w", 14 * S_PER_DAY * NS_PER_S, "14d"),
            ("1.5h", 5400 * NS_PER_S, "90min"),
            ("5m", 300 * NS_PER_S, "5min"),
            ("17ns", 17, "17ns"),
        ] {
            assert_eq!(length(text), Ok(expected), "{text}");
            assert_eq!(length_text(expected), shown);
        }
        for text in ["", "30", "-1d", "0s", "1e9y", "5B", "d"] {
            assert!(length(text).is_err(), "{text}");
        }
    }
}
