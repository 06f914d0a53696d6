//! Times in parameters of requests.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A time as in other routes.
pub(crate) fn parse_time(text: &str, now_ns: i64) -> Option<i64> {
    let text = text.trim();
    if text == "now" {
        return Some(now_ns);
    }
    if let Some(ago) = text.strip_prefix('-') {
        return decode::parse_duration(ago).map(|ago| now_ns.saturating_sub(ago));
    }
    if let Some(ns) = text.strip_suffix("ns") {
        return ns.parse().ok();
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some((seconds * 1e9) as i64);
    }
    let time = text.parse::<Timestamp>().ok().or_else(|| {
        let time: jiff::civil::DateTime = text.parse().ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    })?;
    i64::try_from(time.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use store::HOUR;

    use super::*;

    #[test]
    fn times_are_those_of_other_routes() {
        let now = 1_794_225_600_000_000_000;
        let parse = |text: &str| parse_time(text, now);
        assert_eq!(parse("now"), Some(now));
        assert_eq!(parse("-1h"), Some(now - HOUR));
        assert_eq!(parse("1794225600"), Some(now));
        assert_eq!(parse("1794225600000000000ns"), Some(now));
        assert_eq!(parse("2026-11-09T12:00:00Z"), parse("2026-11-09T13:00:00+01:00"));
        assert!(parse("2026-11-09").is_some());
        assert_eq!(parse("yesterday"), None);
    }
}
