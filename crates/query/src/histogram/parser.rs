//! Histogram literals in the format of Prometheus' test scripts and rule tests:
//! `{{schema:0 sum:5 count:4 buckets:[1 2 1]}}`.
//!
//! `schema` is 0 by default, −53 with `custom_values`; `z_bucket` and `z_bucket_w` are count and
//! threshold of the zero bucket; `buckets` start at index `offset`, `n_buckets` at `n_offset`.
//! Omitted fields are 0 or unknown.

use super::{BucketGrid, FloatHistogram, ResetHint};

/// Parsed histogram literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParsedHistogram {
    /// Parsed histogram.
    pub(crate) histogram: FloatHistogram,
    /// Whether `counter_reset_hint` was given.
    pub(crate) has_hint: bool,
}

/// Histogram literal syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}, at byte {offset}")]
pub(crate) struct DescriptionError {
    /// Byte offset of the error.
    pub(crate) offset: usize,
    /// Cause and expected syntax.
    pub(crate) message: String,
}

/// Parses a histogram between double braces, with optional spaces around it.
pub(crate) fn parse_description(text: &str) -> Result<ParsedHistogram, DescriptionError> {
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

    fn consume(&mut self, wanted: char) -> bool {
        let is_there = self.rest().starts_with(wanted);
        self.at += if is_there { wanted.len_utf8() } else { 0 };
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
