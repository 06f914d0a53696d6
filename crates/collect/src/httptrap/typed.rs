//! Values with a type: what `_type`, `_value`, `_ts`, `_fl` and `_tags` of one object make.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::Histogram;

use crate::circllhist;
use crate::json::Token;

use super::*;

/// Where in the bytes something stands.
type Range = (usize, usize);

/// The parts that have been read; all but the type wait as bytes until the type is known.
#[derive(Default)]
pub(super) struct Typed {
    pub(super) kind: Option<(usize, String)>,
    pub(super) value: Option<Range>,
    pub(super) time: Option<Range>,
    pub(super) flags: Option<Range>,
    pub(super) tags: Option<Range>,
}

/// What `_fl` asks for, of numbers.
#[derive(Clone, Copy, PartialEq)]
enum Flag {
    /// What was sent: of several values their mean.
    None,
    /// `+`: what is added to a total.
    Add,
}

const HISTOGRAM: &str = "a histogram: samples, bins like \"H[1.2]=3\", or base64 of circllhist";
const TIMED_HISTOGRAM: &str = "one base64 of circllhist beside _ts";

impl Reader<'_> {
    /// Hands on what the parts make; `start` is where their object begins.
    pub(super) fn typed(&mut self, start: usize, typed: &Typed, sink: &mut dyn Sink) -> Result<()> {
        let Some(value) = typed.value else {
            return match &typed.kind {
                Some((at, _)) => Err(self.trouble(*at, "a _value beside _type")),
                None => Ok(()),
            };
        };
        let end = typed.time.map(|time| self.milliseconds(time)).transpose()?;
        let labels = self.labels.len();
        if let Some(tags) = typed.tags {
            let read = tags::read(&self.bytes[tags.0..tags.1]);
            let expected = "tags: a list of \"category:value\", or an object";
            self.labels.extend(read.ok_or_else(|| self.trouble(tags.0, expected))?);
        }
        let flag = self.flag(typed.flags);
        let readings = match &typed.kind {
            Some(kind) => self.of_type(kind, value, typed.time.is_some(), flag),
            None if typed.time.is_some() => self.guessed(value),
            None => Err(self.trouble(value.0.max(start), "a _type beside _value")),
        };
        self.labels.truncate(labels);
        for reading in readings? {
            sink.reading(Reading { start: end, end, ..reading });
        }
        Ok(())
    }

    fn of_type(
        &self,
        (kind_at, kind): &(usize, String),
        value: Range,
        has_time: bool,
        flag: Flag,
    ) -> Result<Vec<Reading>> {
        let bounds: (&'static str, i128, i128) = match kind.as_str() {
            "i" => ("a whole number from -2^31 to 2^31 - 1", i32::MIN.into(), i32::MAX.into()),
            "I" => ("a whole number from 0 to 2^32 - 1", 0, u32::MAX.into()),
            "l" => ("a whole number from -2^63 to 2^63 - 1", i64::MIN.into(), i64::MAX.into()),
            "L" => ("a whole number from 0 to 2^64 - 1", 0, u64::MAX.into()),
            "n" if self.has_bins(value) => {
                return self.histograms(value, has_time, Over::Interval);
            }
            "n" => return self.numbers(value, "a number", None, flag),
            "s" => {
                let texts = self.scalars(value, "a string")?;
                return Ok(texts.into_iter().map(|t| self.reading(Value::Text(t.1))).collect());
            }
            "h" => return self.histograms(value, has_time, Over::Interval),
            "H" => return self.histograms(value, has_time, Over::Total),
            _ => return Err(self.trouble(*kind_at, "a type: one of i I l L n s h H")),
        };
        self.numbers(value, bounds.0, Some((bounds.1, bounds.2)), flag)
    }

    /// A value with a time and without type is what it looks like.
    fn guessed(&self, value: Range) -> Result<Vec<Reading>> {
        let value = match tokens(&self.bytes[value.0..value.1]).value()? {
            Token::Text(text) => Value::Text(text),
            Token::Number(text) => Value::Number(double(text)),
            Token::Bool(value) => Value::Integer(value.into()),
            Token::Null | Token::Object | Token::Array => {
                return Err(self.trouble(value.0, "a _type beside _value"));
            }
        };
        Ok(vec![self.reading(value)])
    }

    /// Numbers are one reading: the value itself, of several the sum or the mean.
    fn numbers(
        &self,
        at: Range,
        expected: &'static str,
        whole: Option<(i128, i128)>,
        flag: Flag,
    ) -> Result<Vec<Reading>> {
        let mut values = Vec::new();
        for (at, text) in self.scalars(at, expected)? {
            let text = text.trim();
            let value = match whole {
                Some((least, greatest)) => {
                    let number = text.parse().ok().filter(|n| (least..=greatest).contains(n));
                    number.map(Value::Integer)
                }
                None => number::parse(text.as_bytes()).map(Value::Number),
            };
            values.push(value.ok_or_else(|| self.trouble(at, expected))?);
        }
        let value = match &values[..] {
            [value] => value.clone(),
            _ => {
                let numbers = values.iter().map(|value| match value {
                    Value::Integer(n) => *n as f64,
                    Value::Number(x) => *x,
                    Value::Text(_) | Value::Histogram(_) => f64::NAN,
                });
                let sum: f64 = numbers.sum();
                Value::Number(if flag == Flag::Add { sum } else { sum / values.len() as f64 })
            }
        };
        let over = if flag == Flag::Add { Over::Interval } else { Over::Moment };
        Ok(vec![Reading { over, ..self.reading(value) }])
    }

    /// `~` means an average of what was sent in a period, which is for those who ask to work out: as without a flag.
    fn flag(&self, at: Option<Range>) -> Flag {
        let token = at.map(|(start, end)| tokens(&self.bytes[start..end]).value());
        match token {
            Some(Ok(Token::Text(flags))) if flags.contains('+') => Flag::Add,
            _ => Flag::None,
        }
    }

    fn milliseconds(&self, at: Range) -> Result<i64> {
        const EXPECTED: &str = "milliseconds since 1970";
        let scalars = self.scalars(at, EXPECTED)?;
        let [(_, text)] = &scalars[..] else { return Err(self.trouble(at.0, EXPECTED)) };
        number::parse_scaled(text.trim().as_bytes(), (1, 6))
            .filter(|ns| ns.abs() < i64::MAX as f64)
            .map(|ns| ns as i64)
            .ok_or_else(|| self.trouble(at.0, EXPECTED))
    }

    /// Numbers, strings, true and false as text, one or a list of at least one; each with its place.
    fn scalars(&self, (start, end): Range, expected: &'static str) -> Result<Vec<(usize, String)>> {
        let mut tokens = tokens(&self.bytes[start..end]);
        let scalar = |at: usize, token: Token<'_>| match token {
            Token::Number(text) => Ok((at, text.to_owned())),
            Token::Text(text) => Ok((at, text)),
            Token::Bool(value) => Ok((at, u8::from(value).to_string())),
            Token::Null | Token::Object | Token::Array => Err(self.trouble(at, expected)),
        };
        let mut scalars = Vec::new();
        match tokens.value()? {
            Token::Array => {
                while tokens.element()? {
                    let at = start.saturating_add(tokens.offset());
                    scalars.push(scalar(at, tokens.value()?)?);
                }
            }
            token => scalars.push(scalar(start, token)?),
        }
        if scalars.is_empty() { Err(self.trouble(start, expected)) } else { Ok(scalars) }
    }

    /// Whether a value is bins: what gometrics sends as numbers.
    fn has_bins(&self, (start, end): Range) -> bool {
        let mut tokens = tokens(&self.bytes[start..end]);
        let first = match tokens.value() {
            Ok(Token::Array) if tokens.element() == Ok(true) => tokens.value(),
            token => token,
        };
        matches!(first, Ok(Token::Text(text)) if text.trim_start().starts_with("H["))
    }

    /// Samples are topdeck's own recording; bins and base64 keep their grid. A list may hold both. Beside a time a broker
    /// takes one base64 and nothing else, for it writes that as it is.
    fn histograms(&self, (start, end): Range, has_time: bool, over: Over) -> Result<Vec<Reading>> {
        let mut tokens = tokens(&self.bytes[start..end]);
        let (mut samples, mut bins) = (None::<Histogram>, None::<Histogram>);
        let mut take = |at: usize, token: Token<'_>| -> Result<()> {
            let sample = match &token {
                Token::Number(text) => Some(double(text)),
                Token::Text(text) => number::parse(text.trim().as_bytes()),
                _ => return Err(self.trouble(at, HISTOGRAM)),
            };
            let text = match (sample, token) {
                (None, Token::Text(text)) => text,
                (sample, _) => {
                    if has_time {
                        return Err(self.trouble(at, TIMED_HISTOGRAM));
                    }
                    samples.get_or_insert_default().record(sample.unwrap_or(f64::NAN));
                    return Ok(());
                }
            };
            if has_time && (bins.is_some() || text.starts_with("H[")) {
                return Err(self.trouble(at, TIMED_HISTOGRAM));
            }
            let decoded = circllhist::decode(&text).map_err(|error| {
                let found = format!("{} ({error})", quote(text.as_bytes()));
                Trouble::new(Place::Byte(at as u64), HISTOGRAM, found)
            })?;
            let merged = bins.as_mut().map_or(Ok(()), |bins| bins.merge(&decoded));
            merged.map_err(|_| self.trouble(at, "counts below 2^64 in all"))?;
            bins.get_or_insert(decoded);
            Ok(())
        };
        match tokens.value()? {
            Token::Array => {
                while tokens.element()? {
                    let at = start.saturating_add(tokens.offset());
                    take(at, tokens.value()?)?;
                }
            }
            token => take(start, token)?,
        }
        if samples.is_none() && bins.is_none() {
            samples = Some(Histogram::default());
        }
        let of =
            |histogram| Reading { over, ..self.reading(Value::Histogram(Box::new(histogram))) };
        Ok(samples.into_iter().chain(bins).map(of).collect())
    }
}
