//! Moments and lengths of time as parameters write them. All times are UTC unless they say otherwise; what they
//! become is nanoseconds since the Unix epoch.
//!
//! A moment is `2026-11-09`, RFC 3339 (`2026-11-09T12:30:00.5+02:00`), Unix seconds with or without decimals as
//! Prometheus takes them (`1794225600.5`), nanoseconds as answers have them (`1794225600500000000ns`), `now`, or
//! `-2h`. A length is Prometheus' (`1h30m`), a number of seconds, or what topdeck's commands take (`90min`, `250us`).

use collect::{Quantity, Unit};
use jiff::{Timestamp, civil};

/// What a moment may be.
pub(crate) const MOMENT: &str = "a time such as 2026-11-09T12:30:00Z, Unix seconds, nanoseconds as 1794225600000000000ns, now or -2h";
/// What a length may be.
pub(crate) const LENGTH: &str = "a length of time such as 30s, 5m, 1h30m or 250ms, or seconds";

const SECOND: f64 = 1e9;

/// Reads a moment.
pub(crate) fn moment(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    if text == "now" {
        return Some(now);
    }
    if let Some(ns) = text.strip_suffix("ns").filter(|_| !text.starts_with('-')) {
        return ns.parse().ok();
    }
    if let Some(seconds) = seconds(text) {
        return Some(seconds);
    }
    if let Some(ago) = text.strip_prefix('-') {
        return length(ago).and_then(|ago| now.checked_sub(ago));
    }
    let time = match text.parse::<Timestamp>() {
        Ok(time) => time,
        Err(_) => {
            let date: civil::Date = text.parse().ok().filter(|_| text.len() == DATE_CHARS)?;
            date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()
        }
    };
    i64::try_from(time.as_nanosecond()).ok()
}

/// `2026-11-09`.
const DATE_CHARS: usize = 10;

/// Unix seconds: whole ones and decimals apart, as a double has not room for both. Beyond a nanosecond they are cut.
fn seconds(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) || whole.is_empty() {
        // `1.7e9`, as scripts print it.
        let number: f64 = text.parse().ok().filter(|number: &f64| number.is_finite())?;
        let ns = number * SECOND;
        return (ns.abs() < 9.2e18).then_some(ns as i64);
    }
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let ns = whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?;
    ns.checked_add(fraction.parse().ok()?).map(|ns| sign * ns)
}

/// Reads a length, more than nothing.
pub(crate) fn length(text: &str) -> Option<i64> {
    let text = text.trim();
    let in_unit = || {
        let written = Quantity::parse(text).filter(|written| written.unit().is_some())?;
        written.value_in(Some(&Unit::Nanoseconds))
    };
    let plain = || text.parse::<f64>().ok().map(|seconds| seconds * SECOND);
    let ns = match query::promql::parse_duration(text) {
        Ok(ns) => ns,
        Err(_) => {
            let ns = plain().or_else(in_unit).filter(|ns| (1.0..9.2e18).contains(ns))?;
            ns.round() as i64
        }
    };
    (ns > 0).then_some(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_794_225_600_000_000_000;

    #[track_caller]
    fn check(text: &str, expected: Option<i64>) {
        assert_eq!(moment(text, NOON), expected, "{text}");
    }

    #[test]
    fn moments() {
        check("2026-11-09", Some(NOON - 12 * 3_600_000_000_000));
        check("2026-11-09T12:00:00Z", Some(NOON));
        check("2026-11-09T14:00:00.25+02:00", Some(NOON + 250_000_000));
        check("1794225600", Some(NOON));
        check("1794225600.123456789", Some(NOON + 123_456_789));
        check("1.7942256e9", Some(NOON));
        check("-1.5", Some(-1_500_000_000));
        check("1794225600000000001ns", Some(NOON + 1));
        check("now", Some(NOON));
        check("-2h", Some(NOON - 7_200_000_000_000));
        check("-90min", Some(NOON - 5_400_000_000_000));
        for text in
            ["", "-", "2026", "yesterday", "9999-01-01", "1e300", "NaN", "2026-13-01", "-1x"]
        {
            let expected = if text == "2026" { Some(2_026_000_000_000) } else { None };
            check(text, expected);
        }
    }

    #[test]
    fn lengths() {
        for (text, expected) in [
            ("1h30m", Some(5_400_000_000_000)),
            ("90min", Some(5_400_000_000_000)),
            ("15", Some(15_000_000_000)),
            ("0.5", Some(500_000_000)),
            ("250us", Some(250_000)),
            ("0", None),
            ("-1s", None),
            ("5B", None),
            ("1e300", None),
            ("", None),
        ] {
            assert_eq!(length(text), expected, "{text}");
        }
    }
}
