//! One line of the text format: name, labels, value, timestamp, start, exemplars.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::ExemplarSource;

use crate::decimal;
use crate::exemplar::{self, DecodedExemplar, ExemplarProblem};
use crate::exposition::composite_value::FIELDS;
use crate::exposition::{ExpositionError, LabelPairs};
use crate::input_error::quote;

/// Maximum number of exemplars of a line: a short text is a large exemplar in memory.
const LINE_EXEMPLARS_MAX: usize = 64;
/// Maximum number of exemplars that a page holds until its series are complete: some 10 MB.
const HELD_EXEMPLARS_MAX: usize = 100_000;

/// What precedes a start time.
const START: &str = "st@";

/// Whether what follows a brace is a composite value: no label name has a colon after it.
fn is_composite(inside: &str) -> bool {
    let field = inside.split_once(':').map(|(name, _)| name);
    field.is_some_and(|name| FIELDS.iter().any(|(field, _)| *field == name))
}

/// One line.
pub(super) struct ExpositionLine<'a> {
    pub(super) name: String,
    pub(super) labels: LabelPairs,
    /// A number, or a composite value in braces.
    pub(super) value: &'a str,
    pub(super) time: Option<i64>,
    /// Start time (OpenMetrics 2.0): `st@1520430000.123`.
    pub(super) start: Option<i64>,
    /// What follows the first `#` after the value.
    exemplars: Option<&'a str>,
}

impl<'a> ExpositionLine<'a> {
    pub(super) fn parse(line: &'a str) -> Result<ExpositionLine<'a>, ExpositionError> {
        let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).unwrap_or(line.len());
        let (name, rest) = line.split_at(end);
        let mut name = name.to_owned();
        let rest = rest.trim_start();
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) if !is_composite(inside) => parse_labels(inside, &mut name)?,
            _ => (Vec::new(), rest),
        };
        let is_name = |c: char| c.is_alphanumeric() || "_:.-/".contains(c);
        if name.is_empty() || !name.chars().all(is_name) && end > 0 {
            return Err(("a metric name, labels and a number", quote(line.as_bytes())));
        }
        let (rest, exemplars) = match rest.split_once('#') {
            Some((rest, exemplars)) => (rest, Some(exemplars)),
            None => (rest, None),
        };
        let rest = rest.trim_start();
        let end = match rest.strip_prefix('{') {
            Some(_) => rest.find('}').map(|end| end.saturating_add(1)),
            None => rest.find(|c: char| c.is_ascii_whitespace()),
        };
        let (value, rest) = rest.split_at(end.unwrap_or(rest.len()));
        if value.is_empty() {
            return Err(("a number after the name", quote(line.as_bytes())));
        }
        let mut words = rest.split_ascii_whitespace().peekable();
        let time = words.next_if(|word| !word.starts_with(START));
        let time = time.map(parse_time).transpose()?;
        let start = words.next().and_then(|word| word.strip_prefix(START));
        let start = start.map(|start| {
            nanoseconds(start, 9).ok_or_else(|| ("a time after st@", quote(start.as_bytes())))
        });
        Ok(ExpositionLine { name, labels, value, time, start: start.transpose()?, exemplars })
    }

    /// Its exemplars: `{trace_id="…"} value time`, several separated by `#` (OpenMetrics 2.0).
    /// `held` is the number that the page holds, to which they are added.
    pub(super) fn read_exemplars(&self, into: &mut Vec<DecodedExemplar>, held: &mut usize) {
        // One beyond the maximum is the problem.
        if self.exemplars.is_none() || *held > HELD_EXEMPLARS_MAX {
            return;
        }
        let before = into.len();
        let max = HELD_EXEMPLARS_MAX.saturating_sub(*held).min(LINE_EXEMPLARS_MAX);
        self.read_exemplars_to(into, before.saturating_add(max));
        *held = held.saturating_add(into.len().saturating_sub(before));
    }

    /// Reads until there are `max`, or one more with a problem.
    fn read_exemplars_to(&self, into: &mut Vec<DecodedExemplar>, max: usize) {
        let Some(mut rest) = self.exemplars else { return };
        loop {
            if into.len() >= max {
                return into.push(Err(ExemplarProblem::TooMany));
            }
            let mut no_name = String::new();
            let labels = rest.trim_start().strip_prefix('{');
            let parsed = labels.and_then(|inside| parse_labels(inside, &mut no_name).ok());
            let Some((labels, after)) = parsed.filter(|_| no_name.is_empty()) else {
                return into.push(Err(ExemplarProblem::Malformed));
            };
            let (own, next) = match after.split_once('#') {
                Some((own, next)) => (own, Some(next)),
                None => (after, None),
            };
            let mut words = own.split_ascii_whitespace();
            let value = words.next().and_then(|word| decimal::parse(word.as_bytes()));
            // The time is in seconds; 0 means that there is none.
            let time = words.next().map_or(Some(0), |word| nanoseconds(word, 9));
            match (value, time) {
                (None, _) => into.push(Err(ExemplarProblem::InvalidValue)),
                (_, None) => into.push(Err(ExemplarProblem::InvalidTime)),
                (Some(value), Some(time)) => {
                    let pairs = labels.iter().map(|(name, value)| (&**name, &**value));
                    let source = ExemplarSource::Scrape;
                    exemplar::from_labels(pairs, value, (time, source), &mut |one| into.push(one));
                }
            }
            let Some(next) = next else { return };
            rest = next;
        }
    }

    pub(super) fn le(&self) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == "le").map(|label| label.1.as_str())
    }

    pub(super) fn number(&self) -> Result<f64, ExpositionError> {
        decimal::parse(self.value.as_bytes())
            .ok_or_else(|| ("a number", quote(self.value.as_bytes())))
    }

    /// Converts a value that is a time in seconds to nanoseconds.
    pub(super) fn time_value(&self) -> Result<i64, ExpositionError> {
        nanoseconds(self.value, 9)
            .ok_or_else(|| ("a time in seconds", quote(self.value.as_bytes())))
    }
}

/// Parses labels up to the closing brace; also returns the rest. A quoted name alone is the
/// metric's name.
fn parse_labels<'a>(
    mut rest: &'a str,
    metric: &mut String,
) -> Result<(LabelPairs, &'a str), ExpositionError> {
    let wrong = |expected, rest: &str| (expected, quote(rest.as_bytes()));
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        let name = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (name, after) =
                    unquote(quoted).ok_or_else(|| wrong("a closing quote", rest))?;
                rest = after;
                name
            }
            None => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
                let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
                rest = after;
                name.to_owned()
            }
        };
        rest = rest.trim_start();
        if let Some(value) = rest.strip_prefix('=') {
            let value = value.trim_start();
            let quoted =
                value.strip_prefix('"').ok_or_else(|| wrong("a label value in quotes", value))?;
            let (value, after) = unquote(quoted).ok_or_else(|| wrong("a closing quote", value))?;
            if name.is_empty() {
                return Err(wrong("a label name", rest));
            }
            labels.push((name, value));
            rest = after.trim_start();
        } else if metric.is_empty() && !name.is_empty() {
            *metric = name;
        } else {
            return Err(wrong("a label, as in {code=\"200\"}", rest));
        }
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if !rest.starts_with('}') {
            return Err(wrong("a comma or }", rest));
        }
    }
}

/// Splits the name of a metric, which may be in quotes, from what follows it.
pub(super) fn split_name(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        return unquote(quoted);
    }
    let (name, rest) = text.split_once([' ', '\t'])?;
    Some((name.to_owned(), rest))
}

/// Text up to the closing quote, unescaped, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((plain, text.get(at.saturating_add(1)..)?)),
            '\\' => match chars.next()?.1 {
                'n' => plain.push('\n'),
                c @ ('\\' | '"') => plain.push(c),
                // As in Prometheus, an unknown escape stands for itself.
                c => plain.extend(['\\', c]),
            },
            c => plain.push(c),
        }
    }
    None
}

fn parse_time(text: &str) -> Result<i64, ExpositionError> {
    /// Timestamps below this value are seconds: as seconds it is the year 5138, as
    /// milliseconds 1973.
    const MILLISECONDS_MIN: f64 = 1e11;
    let number = decimal::parse(text.as_bytes());
    let power = if number.is_some_and(|n| n.abs() < MILLISECONDS_MIN) { 9 } else { 6 };
    nanoseconds(text, power).ok_or_else(|| ("a timestamp", quote(text.as_bytes())))
}

fn nanoseconds(text: &str, power: i32) -> Option<i64> {
    decimal::parse_scaled(text.as_bytes(), (1, power))
        .filter(|ns| ns.abs() < i64::MAX as f64)
        .map(|ns| ns as i64)
}
