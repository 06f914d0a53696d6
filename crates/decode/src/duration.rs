//! Durations as people write and read them, in nanoseconds.
//!
//! Written: Prometheus' (`1h30m`), with or without blanks (`1 h 30 min`), or a number and a unit
//! (`90min`, `1.5w`, `250us`). A year has 365 days, and a minute is `min` or `m`. Read: as
//! [`duration_text`], the only format of durations in texts; without its blanks where a text is
//! syntax.

use crate::unit::{Quantity, Unit};

/// Description of a valid duration, for messages.
pub const DURATION_EXPECTED: &str =
    "expected a duration in ns, us, ms, s, min, h, d, w or y, such as 30d or 1h30m";

const SECOND: f64 = 1e9;
const DAY: f64 = 86_400.0 * SECOND;
/// Units that are not units of values.
const LONG_UNITS: [(&str, f64); 3] = [("w", 7.0 * DAY), ("y", 365.0 * DAY), ("m", 60.0 * SECOND)];
/// Units of the parts of a duration, each part of a smaller unit than the one before. `query` has
/// Prometheus' units with PromQL's errors; a test of `role` compares the two.
const PART_UNITS: [(&str, i64); 10] = [
    ("y", 365 * 86_400_000_000_000),
    ("w", 7 * 86_400_000_000_000),
    ("d", DAY_NS),
    ("h", HOUR_NS),
    ("m", MINUTE_NS),
    ("min", MINUTE_NS),
    ("s", SECOND_NS),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];
const DAY_NS: i64 = 86_400_000_000_000;
const HOUR_NS: i64 = 3_600_000_000_000;
const MINUTE_NS: i64 = 60_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// Parses a positive duration with a unit, in nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Some(ns) = parse_compound(text) {
        return (ns > 0).then_some(ns);
    }
    let long = || {
        LONG_UNITS.iter().find_map(|(unit, ns)| {
            let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            Some(number * ns)
        })
    };
    let in_unit = || {
        let written = Quantity::parse(text).filter(|written| written.unit().is_some())?;
        written.value_in(Some(&Unit::Nanoseconds))
    };
    let ns = in_unit().or_else(long)?;
    (1.0..9.2e18).contains(&ns).then(|| ns.round() as i64)
}

/// `1h30m`, `1 h 30 min`, `1 min 1.5 s`: integers with units, in order of decreasing unit. The last
/// of several may have decimals.
fn parse_compound(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut sum, mut last_ns) = (text, 0i64, i64::MAX);
    loop {
        let (count, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (decimals, after) = match after.strip_prefix('.') {
            Some(after) if last_ns < i64::MAX => {
                after.split_at(after.find(|c: char| !c.is_ascii_digit())?)
            }
            _ => ("", after),
        };
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let is_unit = |(name, ns): &&(&str, i64)| *name == unit && *ns < last_ns;
        last_ns = PART_UNITS.iter().find(is_unit)?.1;
        sum = sum.checked_add(count.parse::<i64>().ok()?.checked_mul(last_ns)?)?;
        rest = after.trim_start();
        if rest.is_empty() {
            let decimals: f64 = format!("0.{decimals}0").parse().ok()?;
            return sum.checked_add((decimals * last_ns as f64).round() as i64);
        }
        if !decimals.is_empty() {
            return None;
        }
    }
}

/// A duration in a text for people: `2 h`, `1 h 30 min`, `12.5 s`. At most six decimals.
pub fn duration_text(ns: i64) -> String {
    const WHOLE: [(u64, &str); 3] =
        [(DAY_NS as u64, "d"), (HOUR_NS as u64, "h"), (MINUTE_NS as u64, "min")];
    const LAST: [(u64, &str); 4] =
        [(SECOND_NS as u64, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
    let mut rest = ns.unsigned_abs();
    let mut text = String::from(if ns < 0 { "-" } else { "" });
    let mut separator = "";
    for (unit_ns, name) in WHOLE {
        if rest >= unit_ns {
            text.push_str(&format!("{separator}{} {name}", rest / unit_ns));
            (rest, separator) = (rest % unit_ns, " ");
        }
    }
    match LAST.iter().find(|(unit_ns, _)| rest >= *unit_ns) {
        Some((unit_ns, name)) => {
            let micros = u128::from(rest % unit_ns) * 1_000_000 / u128::from(*unit_ns);
            let number = format!("{}.{micros:06}", rest / unit_ns);
            let number = number.trim_end_matches('0').trim_end_matches('.');
            text.push_str(&format!("{separator}{number} {name}"));
        }
        None if separator.is_empty() => text.push_str("0 s"),
        None => {}
    }
    text
}

/// The same, cut to its largest unit and the next smaller one, of seconds and longer: `3 d 4 h`,
/// `45 s`.
pub fn rounded_duration_text(ns: i64) -> String {
    const LEAST: [(i64, i64); 4] =
        [(DAY_NS, HOUR_NS), (HOUR_NS, MINUTE_NS), (MINUTE_NS, SECOND_NS), (SECOND_NS, SECOND_NS)];
    let length_ns = ns.saturating_abs();
    let least = LEAST.iter().find(|(from_ns, _)| length_ns >= *from_ns);
    duration_text(ns - ns % least.map_or(1, |(_, least_ns)| *least_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, seconds: f64) {
        assert_eq!(parse_duration(text), Some((seconds * 1e9) as i64), "{text}");
    }

    #[test]
    fn durations_have_units() {
        check("10s", 10.0);
        check(" 1h30m ", 5400.0);
        check("90min", 5400.0);
        check("250us", 0.000_25);
        check("1.5w", 1.5 * 7.0 * 86_400.0);
        check("1.5m", 90.0);
        check("1y", 365.0 * 86_400.0);
        for text in ["1h30m", "1h 30m", "1 h 30 min", "1h30min", " 1 h  30 m", "1h29m60s"] {
            check(text, 5400.0);
        }
        check("5 m", 300.0);
        check("2 d 3 ms", 2.0 * 86_400.0 + 0.003);
        for text in [
            "",
            "0",
            "0s",
            "10",
            "s",
            "-1s",
            "1m1h",
            "1s1s",
            "soon",
            "1h 30",
            "9999999y",
            "1m 1min",
            "1 1h",
            "h",
            "1h,30m",
            "1h 1.5m 3s",
            "1h .5m",
            "1h 1.5",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    /// The reason of an alert said "once it held for 7,200 s"; a pause was 90 s here and 1 min 30 s
    /// there.
    #[test]
    fn durations_have_one_format_which_can_be_written() {
        const S: i64 = SECOND_NS;
        for (ns, text, rounded) in [
            (1_500_000, "1.5 ms", "1.5 ms"),
            (1_234, "1.234 us", "1.234 us"),
            (17, "17 ns", "17 ns"),
            (12 * S + S / 2, "12.5 s", "12 s"),
            (60 * S, "1 min", "1 min"),
            (62 * S, "1 min 2 s", "1 min 2 s"),
            (7_200 * S, "2 h", "2 h"),
            (5_400 * S, "1 h 30 min", "1 h 30 min"),
            (5_405 * S, "1 h 30 min 5 s", "1 h 30 min"),
            (61 * S + S / 2, "1 min 1.5 s", "1 min 1 s"),
            (90_000 * S + 1_000_000, "1 d 1 h 1 ms", "1 d 1 h"),
            (86_460 * S, "1 d 1 min", "1 d"),
            (30 * 86_400 * S, "30 d", "30 d"),
        ] {
            assert_eq!(
                (duration_text(ns).as_str(), rounded_duration_text(ns).as_str()),
                (text, rounded)
            );
            assert_eq!(duration_text(-ns), format!("-{text}"));
            assert_eq!(parse_duration(text), Some(ns), "{text}");
            assert_eq!(parse_duration(&text.replace(' ', "")), Some(ns), "{text}");
        }
        // Random ones are read as they are written.
        for seed in 0..2_000 {
            let ns = (model::splitmix64(seed) >> (1 + seed % 63)) as i64;
            let text = duration_text(ns);
            let read = parse_duration(&text);
            assert_eq!(read.map(duration_text), (ns > 0).then_some(text), "{ns}");
        }
        assert_eq!(duration_text(0), "0 s");
        assert_eq!(duration_text(i64::MIN), "-106751 d 23 h 47 min 16.854775 s");
    }
}
