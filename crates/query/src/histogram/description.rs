//! Histogram literals in the format of Prometheus' test scripts and rule tests:
//! `{{schema:0 sum:5 count:4 buckets:[1 2 1]}}`.
//!
//! `schema` is 0 by default, −53 with `custom_values`; `z_bucket` and `z_bucket_w` are count and
//! threshold of the zero bucket; `buckets` start at index `offset`, `n_buckets` at `n_offset`.
//! Omitted fields are 0 or unknown.

use super::number::GoNumber;
use super::{BucketGrid, FloatHistogram, ResetHint};

/// Buckets with a gap above this are not formatted.
const BUCKETS_MAX: i64 = 1 << 20;

/// Parsed histogram literal.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedHistogram {
    /// Parsed histogram.
    pub histogram: FloatHistogram,
    /// Whether `counter_reset_hint` was given.
    pub has_hint: bool,
}

/// Histogram literal syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DescriptionError {
    /// Byte offset of the error.
    pub offset: usize,
    /// Cause and expected syntax.
    pub message: String,
}

/// Parses a histogram between double braces, with optional spaces around it.
pub fn parse_description(text: &str) -> Result<ParsedHistogram, DescriptionError> {
    let start = text.len() - text.trim_start().len();
    let inner = text
        .trim()
        .strip_prefix("{{")
        .and_then(|rest| rest.strip_suffix("}}"))
        .ok_or_else(|| error_at(start, "a histogram must be between {{ and }}"))?;
    let mut read = HistogramFields::default();
    let mut reader = DescriptionReader { text: inner, at: 0, start: start + 2 };
    reader.skip_blanks();
    while reader.at < inner.len() {
        read.field(&mut reader)?;
        let end = reader.at;
        reader.skip_blanks();
        if end == reader.at && end < inner.len() {
            return Err(reader.error("expected a space between two fields"));
        }
    }
    read.finish(start + 2)
}

fn error_at(offset: usize, message: impl Into<String>) -> DescriptionError {
    DescriptionError { offset, message: message.into() }
}

#[derive(Default)]
struct HistogramFields {
    seen_keys: Vec<&'static str>,
    schema: i32,
    sum: f64,
    count: f64,
    zero_count: f64,
    zero_threshold: f64,
    custom_values: Option<Vec<f64>>,
    hint: Option<ResetHint>,
    offset: i32,
    buckets: Vec<f64>,
    negative_offset: i32,
    negative_buckets: Vec<f64>,
}

const KEYS: [&str; 11] = [
    "schema",
    "sum",
    "count",
    "z_bucket",
    "z_bucket_w",
    "custom_values",
    "buckets",
    "offset",
    "n_buckets",
    "n_offset",
    "counter_reset_hint",
];

impl HistogramFields {
    fn field(&mut self, reader: &mut DescriptionReader) -> Result<(), DescriptionError> {
        let at = reader.at;
        let word = reader.take_while(|c| c.is_ascii_alphabetic() || c == '_').to_ascii_lowercase();
        let Some(key) = KEYS.into_iter().find(|key| *key == word) else {
            let message =
                format!("bad histogram descriptor found: {word:?}, wanted one of {KEYS:?}");
            return Err(error_at(reader.start + at, message));
        };
        if !reader.consume(':') {
            return Err(reader.error("missing `:` for histogram descriptor"));
        }
        if self.seen_keys.contains(&key) {
            return Err(error_at(
                reader.start + at,
                format!("duplicate key \"{key}\" in histogram"),
            ));
        }
        self.seen_keys.push(key);
        match key {
            "schema" => self.schema = reader.integer()?,
            "sum" => self.sum = reader.number()?,
            "count" => self.count = reader.number()?,
            "z_bucket" => self.zero_count = reader.number()?,
            "z_bucket_w" => self.zero_threshold = reader.unsigned()?,
            "custom_values" => self.custom_values = Some(reader.numbers()?),
            "buckets" => self.buckets = reader.numbers()?,
            "offset" => self.offset = reader.integer()?,
            "n_buckets" => self.negative_buckets = reader.numbers()?,
            "n_offset" => self.negative_offset = reader.integer()?,
            _ => self.hint = Some(reader.hint()?),
        }
        Ok(())
    }

    fn finish(self, start: usize) -> Result<ParsedHistogram, DescriptionError> {
        let grid = match (self.schema, self.custom_values) {
            (-53, bounds) => BucketGrid::Custom(bounds.unwrap_or_default().into()),
            (schema @ -4..=8, None) => BucketGrid::Exponential(schema),
            (-4..=8, Some(_)) => {
                return Err(error_at(start, "custom_values are for schema -53 only"));
            }
            (schema, _) => {
                let message = format!("schema {schema} must be -53 or -4 to 8");
                return Err(error_at(start, message));
            }
        };
        let side = |offset: i32, counts: Vec<f64>| {
            let end = i32::try_from(counts.len()).ok().and_then(|len| offset.checked_add(len));
            if end.is_none() {
                return Err(error_at(start, format!("buckets from {offset} must end below 2^31")));
            }
            let counts = (offset..).zip(counts);
            Ok(counts.filter(|&(_, count)| count != 0.0).collect())
        };
        let histogram = FloatHistogram {
            grid,
            zero_threshold: self.zero_threshold,
            zero_count: self.zero_count,
            count: self.count,
            sum: self.sum,
            positive: side(self.offset, self.buckets)?,
            negative: side(self.negative_offset, self.negative_buckets)?,
            hint: self.hint.unwrap_or_default(),
        };
        Ok(ParsedHistogram { histogram, has_hint: self.hint.is_some() })
    }
}

struct DescriptionReader<'a> {
    text: &'a str,
    at: usize,
    start: usize,
}

impl<'a> DescriptionReader<'a> {
    fn error(&self, message: impl Into<String>) -> DescriptionError {
        error_at(self.start + self.at, message)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn consume(&mut self, expected: char) -> bool {
        let is_there = self.rest().starts_with(expected);
        self.at += if is_there { expected.len_utf8() } else { 0 };
        is_there
    }

    fn skip_blanks(&mut self) {
        self.take_while(|c| matches!(c, ' ' | '\t' | '\n' | '\r'));
    }

    fn integer(&mut self) -> Result<i32, DescriptionError> {
        let at = self.at;
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '_'));
        let (sign, digits) = match word.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, word.strip_prefix('+').unwrap_or(word)),
        };
        parse_integer(digits)
            .and_then(|value| i32::try_from(sign * value).ok())
            .ok_or_else(|| error_at(self.start + at, format!("{word:?} must be a 32-bit integer")))
    }

    fn number(&mut self) -> Result<f64, DescriptionError> {
        let sign = if self.consume('-') {
            -1.0
        } else {
            self.consume('+');
            1.0
        };
        Ok(sign * self.unsigned()?)
    }

    fn unsigned(&mut self) -> Result<f64, DescriptionError> {
        let at = self.at;
        let word = self.word_of_number();
        let value = match parse_integer(word) {
            Some(value) => Some(value as f64),
            None => word.parse().ok(),
        };
        value.ok_or_else(|| error_at(self.start + at, format!("{word:?} must be a number")))
    }

    /// Digits, with a sign only after an exponent.
    fn word_of_number(&mut self) -> &'a str {
        let start = self.at;
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
        let word = self.take_while(is_part);
        let is_hex = word.starts_with("0x") || word.starts_with("0X");
        if word.ends_with(['e', 'E']) && !is_hex && (self.consume('-') || self.consume('+')) {
            self.take_while(is_part);
        }
        &self.text[start..self.at]
    }

    fn numbers(&mut self) -> Result<Vec<f64>, DescriptionError> {
        if !self.consume('[') {
            return Err(self.error("numbers must be between [ and ], as in [5 10 7]"));
        }
        let mut numbers = vec![self.number()?];
        loop {
            let end = self.at;
            self.skip_blanks();
            if self.consume(']') {
                return Ok(numbers);
            }
            if end == self.at {
                return Err(self.error("expected a space or ] after a number"));
            }
            numbers.push(self.number()?);
        }
    }

    fn hint(&mut self) -> Result<ResetHint, DescriptionError> {
        let at = self.at;
        let word = self.take_while(|c| c.is_ascii_alphabetic() || c == '_');
        match word.to_ascii_lowercase().as_str() {
            "unknown" => Ok(ResetHint::Unknown),
            "reset" => Ok(ResetHint::Reset),
            "not_reset" => Ok(ResetHint::NotReset),
            "gauge" => Ok(ResetHint::Gauge),
            _ => {
                let message = format!("{word:?} must be unknown, reset, not_reset or gauge");
                Err(error_at(self.start + at, message))
            }
        }
    }
}

/// Integer in Go's notation: decimal, or with prefix 0x, 0o, 0b or 0.
fn parse_integer(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase().replace('_', "");
    let (digits, radix) = if let Some(digits) = word.strip_prefix("0x") {
        (digits, 16)
    } else if let Some(digits) = word.strip_prefix("0b") {
        (digits, 2)
    } else if let Some(digits) = word.strip_prefix("0o") {
        (digits, 8)
    } else if word.len() > 1 && word.starts_with('0') {
        (&word[1..], 8)
    } else {
        (word.as_str(), 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i64::from_str_radix(digits, radix).ok()
}

impl FloatHistogram {
    /// Text that [`parse_description`] parses; `None` for buckets that the notation cannot express,
    /// or that are too far apart.
    pub fn description(&self) -> Option<String> {
        let mut fields = Vec::new();
        let mut number = |key: &str, value: f64| {
            if value != 0.0 {
                fields.push(format!("{key}:{}", GoNumber(value)));
            }
        };
        match self.grid {
            BucketGrid::Exponential(schema) => number("schema", schema.into()),
            BucketGrid::Custom(_) => number("schema", -53.0),
            BucketGrid::Native(_) => return None,
        }
        number("count", self.count);
        number("sum", self.sum);
        number("z_bucket", self.zero_count);
        number("z_bucket_w", self.zero_threshold);
        if let BucketGrid::Custom(bounds) = &self.grid
            && !bounds.is_empty()
        {
            fields.push(format!("custom_values:{}", list(bounds.iter().copied())));
        }
        match self.hint {
            ResetHint::Unknown => {}
            ResetHint::Reset => fields.push("counter_reset_hint:reset".into()),
            ResetHint::NotReset => fields.push("counter_reset_hint:not_reset".into()),
            ResetHint::Gauge => fields.push("counter_reset_hint:gauge".into()),
        }
        for (key, counts) in [("", &self.positive), ("n_", &self.negative)] {
            let (Some(&(first, _)), Some(&(last, _))) = (counts.first(), counts.last()) else {
                continue;
            };
            if i64::from(last) - i64::from(first) >= BUCKETS_MAX {
                return None;
            }
            if first != 0 {
                fields.push(format!("{key}offset:{first}"));
            }
            let mut buckets = counts.iter().copied().peekable();
            let all = (first..=last).map(|index| {
                buckets.next_if(|&(at, _)| at == index).map_or(0.0, |(_, count)| count)
            });
            fields.push(format!("{key}buckets:{}", list(all)));
        }
        Some(format!("{{{{{}}}}}", fields.join(" ")))
    }
}

fn list(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<String> = values.map(|value| GoNumber(value).to_string()).collect();
    format!("[{}]", values.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, again: &str) {
        let histogram = parse_description(text).unwrap().histogram;
        assert_eq!(histogram.to_string(), shown);
        assert_eq!(histogram.description().as_deref(), Some(again));
        assert!(parse_description(again).unwrap().histogram.equals(&histogram));
    }

    #[track_caller]
    fn fails(text: &str, offset: usize) {
        let error = parse_description(text).unwrap_err();
        assert_eq!(error.offset, offset, "{error}");
    }

    #[test]
    fn read_and_written() {
        check("{{}}", "{count:0, sum:0}", "{{}}");
        check("{{ }}", "{count:0, sum:0}", "{{}}");
        check(
            "{{schema:0 sum:5 count:4 buckets:[1 2 1]}}",
            "{count:4, sum:5, (0.5,1]:1, (1,2]:2, (2,4]:1}",
            "{{count:4 sum:5 buckets:[1 2 1]}}",
        );
        check(
            "{{schema:1 sum:-0.3 count:3.1 z_bucket:7.1 z_bucket_w:0.05 buckets:[5.1 10 0 7] \
             offset:-3 n_buckets:[4.1 5] n_offset:-5 counter_reset_hint:gauge }}",
            "{count:3.1, sum:-0.3, [-0.25,-0.17677669529663687):5, \
             [-0.17677669529663687,-0.125):4.1, [-0.05,0.05]:7.1, \
             (0.25,0.35355339059327373]:5.1, (0.35355339059327373,0.5]:10, \
             (0.7071067811865475,1]:7}",
            "{{schema:1 count:3.1 sum:-0.3 z_bucket:7.1 z_bucket_w:0.05 counter_reset_hint:gauge \
             offset:-3 buckets:[5.1 10 0 7] n_offset:-5 n_buckets:[4.1 5]}}",
        );
        check(
            "{{schema:-53 custom_values:[5 1e1] buckets:[1 4 0x10] sum:NaN count:Inf}}",
            "{count:+Inf, sum:NaN, [-Inf,5]:1, (5,10]:4, (10,+Inf]:16}",
            "{{schema:-53 count:+Inf sum:NaN custom_values:[5 10] buckets:[1 4 16]}}",
        );
    }

    #[test]
    fn only_explicit_hints_are_written() {
        assert!(!parse_description("{{sum:1}}").unwrap().has_hint);
        assert!(parse_description("{{counter_reset_hint:unknown}}").unwrap().has_hint);
    }

    #[test]
    fn errors_name_the_problem() {
        fails("{sum:1}", 0);
        fails("{{sum:1", 0);
        fails(" {{}", 1);
        fails("{{total:1}}", 2);
        fails("{{sum 1}}", 5);
        fails("{{sum:x}}", 6);
        fails("{{sum:1 sum:2}}", 8);
        fails("{{sum:1count:2}}", 6);
        fails("{{buckets:[1,2]}}", 12);
        fails("{{buckets:[]}}", 11);
        fails("{{buckets:1}}", 10);
        fails("{{schema:1.5}}", 10);
        fails("{{schema:9}}", 2);
        fails("{{custom_values:[1]}}", 2);
        fails("{{offset:2147483647 buckets:[1 1]}}", 2);
        fails("{{counter_reset_hint:maybe}}", 21);
        fails("{{é}}", 2);
    }
}
