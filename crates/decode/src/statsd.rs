//! Parser of StatsD and DogStatsD: metrics in lines, several per packet, borrowed from the packet.
//!
//! ```text
//! name:value[:value…]|type[|@rate][|#tag:value,tag][|Tseconds][|c:container][|e:environment]
//! type   c counter, g gauge (+n and -n change it), ms time in milliseconds, h and d distribution,
//!        s set
//! ```
//! <https://github.com/statsd/statsd/blob/master/docs/metric_types.md>, and
//! <https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/>
//! for the fields after the type, several values per line, events and service checks. A set has one
//! value per line, because its members may contain colons. A name is any UTF-8 without a colon.
//! Container and environment are ignored. The caller applies the sample rate and assigns lines to
//! intervals: the parser reads no clock.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::decimal;
use crate::input_error::{InputError, InputPosition, quote};
use crate::unit::Unit;

/// Smallest sample rate: a line counts for at most a billion values, so that counts do not overflow
/// after a few lines.
pub const RATE_MIN: f64 = 1e-9;

/// Metric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StatsdType {
    /// Number of events.
    Counter,
    /// Current value.
    Gauge,
    /// Times in milliseconds, aggregated to a distribution.
    Milliseconds,
    /// Values without a unit, aggregated to a distribution.
    Distribution,
    /// Set members, of which the distinct ones are counted.
    Set,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatsdMetric<'a> {
    /// Non-empty name.
    pub name: &'a str,
    /// Metric type.
    pub kind: StatsdType,
    /// Sample rate: the fraction of events that is sent, from [`RATE_MIN`] to 1.
    pub rate: f64,
    /// Tags as received, without the `#`.
    pub tags: &'a str,
    /// Timestamp in nanoseconds since the Unix epoch, if present.
    pub time: Option<i64>,
    values: &'a [u8],
    line: u64,
}

/// One value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatsdValue<'a> {
    /// Finite value.
    Number(f64),
    /// Change of a gauge.
    Delta(f64),
    /// Set member.
    Member(&'a [u8]),
}

/// Parsed line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StatsdLine<'a> {
    /// A value.
    Metric(StatsdMetric<'a>),
    /// Line that is not a metric: an event or a service check.
    Skipped(&'static str),
}

/// Calls `f` with each non-empty line of a packet.
pub fn for_each_line<'a>(bytes: &'a [u8], mut f: impl FnMut(Result<StatsdLine<'a>, InputError>)) {
    for (number, bytes) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        if !bytes.is_empty() {
            f(parse_line(number, bytes));
        }
    }
}

/// Parses a line without its line end; `number` is the line number for messages.
pub fn parse_line(number: u64, bytes: &[u8]) -> Result<StatsdLine<'_>, InputError> {
    let wrong = |expected: &'static str, found: &[u8]| {
        InputError::new(InputPosition::Line(number), expected, quote(found))
    };
    if bytes.first() == Some(&b'_') {
        if bytes.starts_with(b"_e{") {
            return Ok(StatsdLine::Skipped("an event"));
        }
        if bytes.starts_with(b"_sc|") {
            return Ok(StatsdLine::Skipped("a service check"));
        }
    }
    let (name, rest) = split_at_byte(bytes, b':').ok_or_else(|| wrong("name:value|type", bytes))?;
    let (values, rest) =
        split_at_byte(rest, b'|').ok_or_else(|| wrong("value|type after the name", rest))?;
    let (kind, mut rest) = split_at_byte(rest, b'|').unwrap_or((rest, b""));
    let kind = match kind {
        b"ms" => StatsdType::Milliseconds,
        b"c" => StatsdType::Counter,
        b"g" => StatsdType::Gauge,
        b"h" | b"d" => StatsdType::Distribution,
        b"s" => StatsdType::Set,
        other => return Err(wrong("a type, one of c g ms h d s", other)),
    };
    let name = text(name).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| wrong("a name in UTF-8", bytes))?;
    let mut metric =
        StatsdMetric { name, kind, rate: 1.0, tags: "", time: None, values, line: number };
    while !rest.is_empty() {
        let (field, after) = split_at_byte(rest, b'|').unwrap_or((rest, b""));
        rest = after;
        match field {
            [b'@', rate @ ..] => {
                let rate = decimal::parse(rate).filter(|rate| (RATE_MIN..=1.0).contains(rate));
                metric.rate = rate.ok_or_else(|| wrong("@ and a rate from 1e-9 to 1", field))?;
            }
            [b'#', tags @ ..] => {
                metric.tags = text(tags).ok_or_else(|| wrong("tags in UTF-8", tags))?;
            }
            [b'T', seconds @ ..] => {
                let time =
                    parse_integer(seconds).and_then(|seconds| seconds.checked_mul(1_000_000_000));
                metric.time = Some(time.ok_or_else(|| wrong("T and Unix seconds", field))?);
            }
            // Container, environment, cardinality and future fields.
            _ => {}
        }
    }
    Ok(StatsdLine::Metric(metric))
}

fn split_at_byte(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..at], bytes.get(at.saturating_add(1)..)?))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn parse_integer(digits: &[u8]) -> Option<i64> {
    let digits = text(digits).filter(|text| !text.starts_with('+'))?;
    digits.parse().ok().filter(|&n| n >= 0)
}

impl<'a> StatsdMetric<'a> {
    /// Values in input order; a set has one. Times are in nanoseconds, as on the other paths, each
    /// rounded once.
    pub fn values(&self) -> impl Iterator<Item = Result<StatsdValue<'a>, InputError>> + use<'a> {
        let StatsdMetric { kind, values, line, .. } = *self;
        let scale = match kind {
            StatsdType::Milliseconds => Unit::Milliseconds.nanoseconds().unwrap_or((1, 0)),
            _ => (1, 0),
        };
        let pieces = values.split(move |&byte| byte == b':' && kind != StatsdType::Set);
        pieces.map(move |piece| {
            if kind == StatsdType::Set {
                return Ok(StatsdValue::Member(piece));
            }
            let number = decimal::parse_scaled(piece, scale).filter(|number| number.is_finite());
            let number = number.ok_or_else(|| {
                InputError::new(InputPosition::Line(line), "a finite number", quote(piece))
            })?;
            let is_change = kind == StatsdType::Gauge && matches!(piece[0], b'+' | b'-');
            Ok(if is_change { StatsdValue::Delta(number) } else { StatsdValue::Number(number) })
        })
    }
}

/// Names and values of tags. A tag without a value has the value `true`; a tag without a name is
/// dropped.
pub fn tags(tags: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = tags.split(',').map(|tag| tag.split_once(':').unwrap_or((tag, "true")));
    pairs.filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut found = Vec::new();
        for_each_line(text.as_bytes(), |line| match line {
            Err(error) => found.push(error.to_string()),
            Ok(StatsdLine::Skipped(what)) => found.push(format!("skipped {what}")),
            Ok(StatsdLine::Metric(metric)) => {
                let values: Vec<String> = metric
                    .values()
                    .map(|value| match value {
                        Ok(StatsdValue::Number(x)) => x.to_string(),
                        Ok(StatsdValue::Delta(x)) => format!("{x:+}"),
                        Ok(StatsdValue::Member(member)) => quote(member),
                        Err(error) => error.to_string(),
                    })
                    .collect();
                let StatsdMetric { name, kind, rate, time, .. } = metric;
                let tags: Vec<String> =
                    tags(metric.tags).map(|(name, value)| format!("{name}={value}")).collect();
                let mut line = format!("{name} {kind:?} {}", values.join(" "));
                if rate != 1.0 {
                    line += &format!(" @{rate}");
                }
                if !tags.is_empty() {
                    line += &format!(" {{{}}}", tags.join(","));
                }
                if let Some(time) = time {
                    line += &format!(" T{time}");
                }
                found.push(line);
            }
        });
        assert_eq!(found.join("; "), expected, "{text:?}");
    }

    #[test]
    fn metrics_of_each_type() {
        check("a.b:1|c", "a.b Counter 1");
        check("a:3.5|g", "a Gauge 3.5");
        check("a:+3|g\na:-0.5|g", "a Gauge +3; a Gauge -0.5");
        check("a:-3|ms", "a Milliseconds -3000000");
        // 1.1e6 exactly: rounded once.
        check("a:1.1:0.3|ms", "a Milliseconds 1100000 300000");
        check("a:1:2:3e2|h|@0.25", "a Distribution 1 2 300 @0.25");
        check("a:1|d", "a Distribution 1");
        check("a:user:7|s", "a Set \"user:7\"");
        check("größe :1|c", "größe  Counter 1");
    }

    #[test]
    fn sample_rate_and_tags_follow_the_type() {
        check(
            "a:1|c|#env:prod,fast,:x,url:http://b,",
            "a Counter 1 {env=prod,fast=true,url=http://b}",
        );
        check("a:1|c|@0.1|#a:b|T1656581400", "a Counter 1 @0.1 {a=b} T1656581400000000000");
        check("a:1|g|c:83c0a99c|e:it-false|card:low|", "a Gauge 1");
    }

    #[test]
    fn packets_contain_lines() {
        check("", "");
        check("\n\r\na:1|c\r\n\nb:2|c\n", "a Counter 1; b Counter 2");
        check(
            "_e{1,1}:a|b\n_sc|a|0\n_a:1|c",
            "skipped an event; skipped a service check; _a Counter 1",
        );
    }

    #[test]
    fn invalid_lines_are_named() {
        check("a", "line 1: expected name:value|type, found \"a\"");
        check(":1|c", "line 1: expected a name in UTF-8, found \":1|c\"");
        check("a:1", "line 1: expected value|type after the name, found \"1\"");
        check("\na:1|x", "line 2: expected a type, one of c g ms h d s, found \"x\"");
        check("a:1||@1", "line 1: expected a type, one of c g ms h d s, found nothing");
        check("a:1|c|@0", "line 1: expected @ and a rate from 1e-9 to 1, found \"@0\"");
        check("a:1|c|@nan", "line 1: expected @ and a rate from 1e-9 to 1, found \"@nan\"");
        check("a:1|c|@1e-300", "line 1: expected @ and a rate from 1e-9 to 1, found \"@1e-300\"");
        check("a:1|c|T-1", "line 1: expected T and Unix seconds, found \"T-1\"");
        check(
            "a:1|c|T9999999999999",
            "line 1: expected T and Unix seconds, found \"T9999999999999\"",
        );
        check("a:1:x:2|h", "a Distribution 1 line 1: expected a finite number, found \"x\" 2");
        check("a:inf|c", "a Counter line 1: expected a finite number, found \"inf\"");
        check("a:|g", "a Gauge line 1: expected a finite number, found nothing");
        let mut refused = false;
        for_each_line(b"a\xff:1|c", |line| refused = line.is_err());
        assert!(refused);
    }
}
