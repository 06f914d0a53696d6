//! Durations as people write them: Prometheus' (`1h30m`), or a number and a unit (`90min`,
//! `1.5w`, `250us`). They become nanoseconds. A year has 365 days, and a minute is `min` or `m`.

use crate::unit::{Quantity, Unit};

/// Description of a valid duration, for messages.
pub const DURATION_EXPECTED: &str =
    "expected a duration in ns, us, ms, s, min, h, d, w or y, such as 30d";

const SECOND: f64 = 1e9;
const DAY: f64 = 86_400.0 * SECOND;
/// Units that are not units of values.
const LONG_UNITS: [(&str, f64); 3] = [("w", 7.0 * DAY), ("y", 365.0 * DAY), ("m", 60.0 * SECOND)];
/// Units of Prometheus' durations, in the required order. `query` has its own copy with PromQL's
/// errors; a test of `api` compares the two.
const COMPOUND_UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000_000_000),
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

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

/// `1h30m`: integers with units, in order of decreasing unit.
fn parse_compound(text: &str) -> Option<i64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut sum) = (text, 0i64);
    let mut units = COMPOUND_UNITS.iter();
    loop {
        let (count, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, ns) = units.find(|(name, _)| *name == unit)?;
        sum = sum.checked_add(count.parse::<i64>().ok()?.checked_mul(*ns)?)?;
        if after.is_empty() {
            return Some(sum);
        }
        rest = after;
    }
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
        for text in ["", "0", "0s", "10", "s", "-1s", "1m1h", "1s1s", "soon", "1h 30", "9999999y"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
