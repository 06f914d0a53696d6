//! Notation of samples in test scripts and rule tests of Prometheus: strings, series with values.
//!
//! `metric{label="value"} 1 2+3x2 _ stale {{sum:3 count:2}}x1`: each item is a value or, with `_`,
//! none. `x` gives the number of repetitions, and a number or histogram before `x` is the
//! increment.

use crate::histogram::{FloatHistogram, parse_description};
use crate::labels::{LabelSet, NAME};
use crate::promql::{self, ExprKind, Options, parse_duration};
use crate::value::{STALE_BITS, StepValue};

/// Value of a series in script notation.
#[derive(Clone, Debug)]
pub struct NotationValue {
    /// Value.
    pub value: StepValue,
    /// Whether the literal has a reset hint, which is then compared.
    pub has_hint: bool,
}

/// Value, or none.
pub type NotationItem = Option<NotationValue>;

/// Maximum number of values per line: more is a typing error.
const ITEMS_MAX: usize = 100_000;

/// Parses a string in quotes or backquotes; returns the remaining text.
pub fn quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`'));
    let quote = quote.ok_or_else(|| format!("expected a string in quotes at {text:?}"))?;
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && quote != '`' && !is_escaped;
        ends
    });
    let end = end.map(|(at, _)| at + 1);
    let end = end.ok_or_else(|| format!("the text does not end: {text}"))?;
    let (literal, rest) = text.split_at(end);
    match promql::parse(literal, &Options::default()).map(|expr| expr.kind) {
        Ok(ExprKind::Text(value)) => Ok((value, rest)),
        Ok(_) => Err(format!("no text: {literal}")),
        Err(wrong) => Err(wrong.to_string()),
    }
}

/// Parses a series with its values.
pub fn series(line: &str) -> Result<(LabelSet, Vec<NotationItem>), String> {
    let (labels, mut rest) = metric(line)?;
    let mut items = Vec::new();
    while !rest.is_empty() {
        let after = rest.trim_start();
        if after.len() == rest.len() {
            return Err(format!("expected a space before {rest:?}"));
        }
        rest = if after.is_empty() { after } else { item(after, &mut items)? };
        if items.len() > ITEMS_MAX {
            return Err(format!("more than {ITEMS_MAX} values"));
        }
    }
    Ok((labels, items))
}

/// Parses name and labels; returns the remaining text.
pub fn metric(text: &str) -> Result<(LabelSet, &str), String> {
    let end = text.find(|c: char| c.is_whitespace() || c == '{').unwrap_or(text.len());
    let (name, mut rest) = text.split_at(end);
    let mut pairs = vec![(NAME.to_owned(), name.to_owned())];
    let braces = rest.trim_start();
    if !braces.starts_with('{') || braces.starts_with("{{") {
        return match name {
            "" => Err(format!("expected a metric at {text:?}")),
            _ => Ok((LabelSet::new(pairs), rest)),
        };
    }
    rest = &braces[1..];
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((LabelSet::new(pairs), after));
        }
        let is_quoted = rest.starts_with(['"', '\'', '`']);
        let (label, after) = match is_quoted {
            true => quoted(rest)?,
            false => {
                let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
                let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        rest = after.trim_start();
        match rest.strip_prefix('=') {
            Some(after) => {
                let (value, after) = quoted(after.trim_start())?;
                pairs.push((label, value));
                rest = after.trim_start();
            }
            None if is_quoted => pairs.push((NAME.to_owned(), label)),
            None => return Err(format!("expected = at {rest:?}")),
        }
        rest = match rest.strip_prefix(',') {
            Some(after) => after,
            None if rest.starts_with('}') => rest,
            None => return Err(format!("expected , or }} at {rest:?}")),
        };
    }
}

/// Parses one item; returns the remaining text.
fn item<'a>(text: &'a str, items: &mut Vec<NotationItem>) -> Result<&'a str, String> {
    if text.starts_with("{{") {
        return histograms(text, items);
    }
    let (item, rest) = text.split_at(text.find(char::is_whitespace).unwrap_or(text.len()));
    if let Some(after) = item.strip_prefix('_') {
        let count = if after.is_empty() { 1 } else { times(after)? };
        items.extend(std::iter::repeat_n(None, count));
        return Ok(rest);
    }
    let (first, mut after) = match item.strip_prefix("stale") {
        Some(after) => (f64::from_bits(STALE_BITS), after),
        None => leading_number(item)?,
    };
    let mut step = None;
    if after.starts_with(['+', '-']) {
        let (found, following) = leading_number(after)?;
        (step, after) = (Some(found), following);
    }
    let more = if after.is_empty() && step.is_none() { 0 } else { times(after)? };
    let mut number = first;
    for _ in 0..=more {
        items.push(Some(NotationValue { value: StepValue::Number(number), has_hint: false }));
        if let Some(step) = step {
            number += step;
        }
    }
    Ok(rest)
}

/// Parses `{{…}}` with increment and repetition.
fn histograms<'a>(text: &'a str, items: &mut Vec<NotationItem>) -> Result<&'a str, String> {
    let (first, mut says_hint, mut rest) = histogram(text)?;
    let mut step = None;
    let sign = rest.chars().next().filter(|c| matches!(c, '+' | '-'));
    if let Some(sign) = sign {
        let (found, says, after) = histogram(&rest[1..])?;
        step = Some(found);
        if sign == '-' {
            step.iter_mut().for_each(FloatHistogram::negate);
        }
        (says_hint, rest) = (says, after);
    }
    let (written, after) = rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()));
    let more = if written.is_empty() && step.is_none() { 0 } else { times(written)? };
    let mut current = first;
    for at in 0..=more {
        if let Some(step) = step.as_ref().filter(|_| at > 0) {
            current.add(step).map_err(|wrong| wrong.to_string())?;
        }
        let value = StepValue::Histogram(current.clone().into());
        items.push(Some(NotationValue { value, has_hint: says_hint }));
    }
    Ok(after)
}

fn histogram(text: &str) -> Result<(FloatHistogram, bool, &str), String> {
    let end = text.find("}}").ok_or_else(|| format!("the histogram does not end: {text}"))? + 2;
    let (description, rest) = text.split_at(end);
    let read = parse_description(description).map_err(|wrong| format!("{description}: {wrong}"))?;
    Ok((read.histogram, read.has_hint, rest))
}

/// Parses the number of `x5`.
fn times(text: &str) -> Result<usize, String> {
    let count = text.strip_prefix('x').and_then(|count| count.parse().ok());
    count.filter(|&count| count <= ITEMS_MAX).ok_or_else(|| format!("expected x5 at {text:?}"))
}

/// Parses a number at the start; returns the remaining text.
fn leading_number(text: &str) -> Result<(f64, &str), String> {
    let mut end = 0;
    let bytes = text.as_bytes();
    while let Some(&byte) = bytes.get(end) {
        let sign = matches!(byte, b'+' | b'-');
        let after_exponent = end > 1 && matches!(bytes[end - 1], b'e' | b'E');
        match byte {
            b'x' => break,
            _ if sign && end > 0 && !after_exponent => break,
            _ => end += 1,
        }
    }
    let found = text[..end].strip_prefix('+').unwrap_or(&text[..end]);
    let number = found.parse().map_err(|_| format!("expected a number at {text:?}"))?;
    Ok((number, &text[end..]))
}

/// Parses start timestamps as nanoseconds relative to the time of each value: `-1m`, `-30s-1mx2`,
/// `_x3`.
pub fn starts(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut starts = Vec::new();
    for item in text.split_whitespace() {
        if let Some(after) = item.strip_prefix('_') {
            let count = if after.is_empty() { 1 } else { times(after)? };
            starts.extend(std::iter::repeat_n(None, count));
            continue;
        }
        let (mut start, mut rest) = leading_duration(item)?;
        let mut step = 0;
        if rest.starts_with(['+', '-']) {
            (step, rest) = leading_duration(rest)?;
        }
        let more = if rest.is_empty() { 0 } else { times(rest)? };
        for _ in 0..=more {
            starts.push(Some(start));
            start += step;
        }
    }
    Ok(starts)
}

fn leading_duration(text: &str) -> Result<(i64, &str), String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_alphabetic() && c != 'x');
    let nanos = parse_duration(&unsigned[..unsigned.len() - rest.len()])?;
    Ok((if text.starts_with('-') { -nanos } else { nanos }, rest))
}
