//! Parser of Graphite's plaintext protocol: one value per line, borrowed from the line.
//!
//! ```text
//! path[;tag=value]… value timestamp
//! ```
//! The timestamp is in Unix seconds, optionally with a fraction; -1 and N mean now. NaN values are
//! skipped, as in Carbon.
//! <https://graphite.readthedocs.io/en/latest/feeding-carbon.html>; tags:
//! <https://graphite.readthedocs.io/en/latest/tags.html>.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::decimal;
use crate::input_error::{InputError, InputPosition, quote};

/// One value of a Graphite series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GraphiteMetric<'a> {
    /// Path with tags, as received. Identifies the series.
    pub series: &'a str,
    /// Finite value.
    pub value: f64,
    /// Timestamp, in nanoseconds since the Unix epoch.
    pub time: i64,
}

/// Parsed line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GraphiteLine<'a> {
    /// A value.
    Metric(GraphiteMetric<'a>),
    /// Skipped line, with the reason.
    Skipped(&'static str),
}

/// Parses a non-empty line without its line end. `number` is the line number for messages; `now` is
/// the timestamp of lines that use -1 or N.
pub fn parse_line(number: u64, bytes: &[u8], now: i64) -> Result<GraphiteLine<'_>, InputError> {
    let wrong = |expected: &'static str, found: &[u8]| {
        Err(InputError::new(InputPosition::Line(number), expected, quote(found)))
    };
    let mut fields = bytes.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    let (Some(series), Some(value), Some(time), None) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return wrong("path value timestamp", bytes);
    };
    let Some(series) = std::str::from_utf8(series).ok().filter(|series| is_series(series)) else {
        return wrong("a path in UTF-8, and tags as ;name=value", series);
    };
    let Some(value) = decimal::parse(value).filter(|value| !value.is_infinite()) else {
        return wrong("a finite number", value);
    };
    if value.is_nan() {
        return Ok(GraphiteLine::Skipped("NaN"));
    }
    let Some(time) = nanoseconds(time, now) else {
        return wrong("a time in Unix seconds, -1 or N", time);
    };
    Ok(GraphiteLine::Metric(GraphiteMetric { series, value, time }))
}

fn is_series(series: &str) -> bool {
    let (path, _) = split(series);
    let mut tags = series.split(';').skip(1);
    !path.is_empty()
        && tags.all(|tag| tag.split_once('=').is_some_and(|(name, _)| !name.is_empty()))
}

fn nanoseconds(text: &[u8], now: i64) -> Option<i64> {
    if matches!(text, b"-1" | b"N") {
        return Some(now);
    }
    if let Ok(seconds) = std::str::from_utf8(text).ok()?.parse::<i64>() {
        return seconds.checked_mul(1_000_000_000).filter(|&time| time >= 0);
    }
    // A double of Unix seconds has a resolution of about 0.25 µs.
    let microseconds = decimal::parse_scaled(text, (1, 6))?.round();
    (0.0..9e15).contains(&microseconds).then(|| (microseconds as i64).saturating_mul(1000))
}

fn split(series: &str) -> (&str, &str) {
    series.split_once(';').unwrap_or((series, ""))
}

/// Path and tags of [`GraphiteMetric::series`].
pub fn path_and_tags(series: &str) -> (&str, impl Iterator<Item = (&str, &str)>) {
    let (path, tags) = split(series);
    (path, tags.split(';').filter_map(|tag| tag.split_once('=')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = match parse_line(3, text.as_bytes(), 7) {
            Err(error) => error.to_string(),
            Ok(GraphiteLine::Skipped(what)) => format!("skipped {what}"),
            Ok(GraphiteLine::Metric(GraphiteMetric { series, value, time })) => {
                let (path, tags) = path_and_tags(series);
                let tags: Vec<String> =
                    tags.map(|(name, value)| format!("{name}={value}")).collect();
                format!("{path} {{{}}} {value} @{time}", tags.join(","))
            }
        };
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn lines_have_path_tags_and_time() {
        check("a.b.c 1.5 1700000000", "a.b.c {} 1.5 @1700000000000000000");
        check("a;x=1;y=a=b 2 1700000000.25", "a {x=1,y=a=b} 2 @1700000000250000000");
        check("  a\t-2e3   -1 ", "a {} -2000 @7");
        check("a 1 N", "a {} 1 @7");
        check("a 1 0", "a {} 1 @0");
        check("a nan 1", "skipped NaN");
    }

    #[test]
    fn invalid_lines_are_named() {
        check("a 1", "line 3: expected path value timestamp, found \"a 1\"");
        check("a 1 2 3", "line 3: expected path value timestamp, found \"a 1 2 3\"");
        check("a x 1", "line 3: expected a finite number, found \"x\"");
        check("a inf 1", "line 3: expected a finite number, found \"inf\"");
        check("a 1 x", "line 3: expected a time in Unix seconds, -1 or N, found \"x\"");
        check("a 1 -2", "line 3: expected a time in Unix seconds, -1 or N, found \"-2\"");
        check("a 1 1e300", "line 3: expected a time in Unix seconds, -1 or N, found \"1e300\"");
        check(
            "a 1 9223372036854775807",
            "line 3: expected a time in Unix seconds, -1 or N, found \"9223372036854775807\"",
        );
        let tags = "line 3: expected a path in UTF-8, and tags as ;name=value, found";
        check(";a=b 1 2", &format!("{tags} \";a=b\""));
        check("a;b 1 2", &format!("{tags} \"a;b\""));
        check("a;=b 1 2", &format!("{tags} \"a;=b\""));
        assert!(parse_line(1, b"a\xff 1 2", 0).is_err());
    }
}
