//! Typed values: samples from `_type`, `_value`, `_ts`, `_fl` and `_tags` of one object.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::Histogram;

use crate::circllhist;
use crate::json::JsonToken;

use super::*;

/// Byte range in the input.
type ByteRange = (usize, usize);

/// Members read so far. All but the type stay unparsed bytes until the type is known.
#[derive(Default)]
pub(super) struct TypedValue {
    pub(super) kind: Option<(usize, String)>,
    pub(super) value: Option<ByteRange>,
    pub(super) time: Option<ByteRange>,
    pub(super) flags: Option<ByteRange>,
    pub(super) tags: Option<ByteRange>,
}

/// Effect of `_fl` on numbers.
#[derive(Clone, Copy, PartialEq)]
enum FlagEffect {
    /// The value as sent; the mean of several values.
    None,
    /// `+`: the increment of a total.
    Sum,
}

const HISTOGRAM: &str = "a histogram: samples, bins like \"H[1.2]=3\", or base64 of circllhist";
const TIMED_HISTOGRAM: &str = "one base64 circllhist next to _ts";

impl HttptrapReader<'_> {
    /// Emits the samples of the members. `start` is the offset of the object.
    pub(super) fn emit_typed(
        &mut self,
        start: usize,
        typed: &TypedValue,
        sink: &mut dyn SampleSink,
    ) -> Result<()> {
        let Some(value) = typed.value else {
            return match &typed.kind {
                Some((at, _)) => Err(self.error_at(*at, "a _value next to _type")),
                None => Ok(()),
            };
        };
        let end = typed.time.map(|time| self.parse_milliseconds(time)).transpose()?;
        let labels = self.labels.len();
        if let Some(tags) = typed.tags {
            let read = tags::parse_tags(&self.bytes[tags.0..tags.1]);
            let expected = "tags: a list of \"category:value\", or an object";
            self.labels.extend(read.ok_or_else(|| self.error_at(tags.0, expected))?);
        }
        let flag = self.parse_flag(typed.flags);
        let decoded_samples = match &typed.kind {
            Some(kind) => self.decode_as(kind, value, typed.time.is_some(), flag),
            None if typed.time.is_some() => self.decode_untyped(value),
            None => Err(self.error_at(value.0.max(start), "a _type next to _value")),
        };
        self.labels.truncate(labels);
        for sample in decoded_samples? {
            sink.sample(DecodedSample { start: end, end, ..sample });
        }
        Ok(())
    }

    fn decode_as(
        &self,
        (kind_at, kind): &(usize, String),
        value: ByteRange,
        has_time: bool,
        flag: FlagEffect,
    ) -> Result<Vec<DecodedSample>> {
        let bounds: (&'static str, i128, i128) = match kind.as_str() {
            "i" => ("a whole number from -2^31 to 2^31 - 1", i32::MIN.into(), i32::MAX.into()),
            "I" => ("a whole number from 0 to 2^32 - 1", 0, u32::MAX.into()),
            "l" => ("a whole number from -2^63 to 2^63 - 1", i64::MIN.into(), i64::MAX.into()),
            "L" => ("a whole number from 0 to 2^64 - 1", 0, u64::MAX.into()),
            "n" if self.has_bins(value) => {
                return self.decode_histograms(value, has_time, SampleTemporality::Delta);
            }
            "n" => return self.decode_numbers(value, "a number", None, flag),
            "s" => {
                let texts = self.read_scalars(value, "a string")?;
                return Ok(texts
                    .into_iter()
                    .map(|t| self.decoded_sample(DecodedValue::Text(t.1)))
                    .collect());
            }
            "h" => return self.decode_histograms(value, has_time, SampleTemporality::Delta),
            "H" => return self.decode_histograms(value, has_time, SampleTemporality::Cumulative),
            _ => return Err(self.error_at(*kind_at, "a type: one of i I l L n s h H")),
        };
        self.decode_numbers(value, bounds.0, Some((bounds.1, bounds.2)), flag)
    }

    /// A value with a time and without a type is decoded by its JSON type.
    fn decode_untyped(&self, value: ByteRange) -> Result<Vec<DecodedSample>> {
        let value = match tokens(&self.bytes[value.0..value.1]).value()? {
            JsonToken::Text(text) => DecodedValue::Text(text),
            JsonToken::Number(text) => DecodedValue::Number(double(text)),
            JsonToken::Bool(value) => DecodedValue::Integer(value.into()),
            JsonToken::Null | JsonToken::Object | JsonToken::Array => {
                return Err(self.error_at(value.0, "a _type next to _value"));
            }
        };
        Ok(vec![self.decoded_sample(value)])
    }

    /// Several numbers become one sample: their sum or mean.
    fn decode_numbers(
        &self,
        at: ByteRange,
        expected: &'static str,
        integer_range: Option<(i128, i128)>,
        flag: FlagEffect,
    ) -> Result<Vec<DecodedSample>> {
        let mut values = Vec::new();
        for (at, text) in self.read_scalars(at, expected)? {
            let text = text.trim();
            let value = match integer_range {
                Some((least, greatest)) => {
                    let number = text.parse().ok().filter(|n| (least..=greatest).contains(n));
                    number.map(DecodedValue::Integer)
                }
                None => decimal::parse(text.as_bytes()).map(DecodedValue::Number),
            };
            values.push(value.ok_or_else(|| self.error_at(at, expected))?);
        }
        let value = match &values[..] {
            [value] => value.clone(),
            _ => {
                let numbers = values.iter().map(|value| match value {
                    DecodedValue::Integer(n) => *n as f64,
                    DecodedValue::Number(x) => *x,
                    DecodedValue::Text(_) | DecodedValue::Histogram(_) => f64::NAN,
                });
                let sum: f64 = numbers.sum();
                DecodedValue::Number(if flag == FlagEffect::Sum {
                    sum
                } else {
                    sum / values.len() as f64
                })
            }
        };
        let temporality = if flag == FlagEffect::Sum {
            SampleTemporality::Delta
        } else {
            SampleTemporality::Instant
        };
        Ok(vec![DecodedSample { temporality, ..self.decoded_sample(value) }])
    }

    /// `~` (an average over a period, to be computed by the reader) has no effect here.
    fn parse_flag(&self, at: Option<ByteRange>) -> FlagEffect {
        let token = at.map(|(start, end)| tokens(&self.bytes[start..end]).value());
        match token {
            Some(Ok(JsonToken::Text(flags))) if flags.contains('+') => FlagEffect::Sum,
            _ => FlagEffect::None,
        }
    }

    fn parse_milliseconds(&self, at: ByteRange) -> Result<i64> {
        const EXPECTED: &str = "milliseconds since 1970";
        let scalars = self.read_scalars(at, EXPECTED)?;
        let [(_, text)] = &scalars[..] else { return Err(self.error_at(at.0, EXPECTED)) };
        decimal::parse_scaled(text.trim().as_bytes(), (1, 6))
            .filter(|ns| ns.abs() < i64::MAX as f64)
            .map(|ns| ns as i64)
            .ok_or_else(|| self.error_at(at.0, EXPECTED))
    }

    /// Parses numbers, strings and booleans as text: one scalar or a non-empty list, each with its
    /// byte range.
    fn read_scalars(
        &self,
        (start, end): ByteRange,
        expected: &'static str,
    ) -> Result<Vec<(usize, String)>> {
        let mut tokens = tokens(&self.bytes[start..end]);
        let scalar = |at: usize, token: JsonToken<'_>| match token {
            JsonToken::Number(text) => Ok((at, text.to_owned())),
            JsonToken::Text(text) => Ok((at, text)),
            JsonToken::Bool(value) => Ok((at, u8::from(value).to_string())),
            JsonToken::Null | JsonToken::Object | JsonToken::Array => {
                Err(self.error_at(at, expected))
            }
        };
        let mut scalars = Vec::new();
        match tokens.value()? {
            JsonToken::Array => {
                while tokens.element()? {
                    let at = start.saturating_add(tokens.offset());
                    scalars.push(scalar(at, tokens.value()?)?);
                }
            }
            token => scalars.push(scalar(start, token)?),
        }
        if scalars.is_empty() { Err(self.error_at(start, expected)) } else { Ok(scalars) }
    }

    /// Whether a value is bins, which gometrics sends under a numeric type.
    fn has_bins(&self, (start, end): ByteRange) -> bool {
        let mut tokens = tokens(&self.bytes[start..end]);
        let first = match tokens.value() {
            Ok(JsonToken::Array) if tokens.element() == Ok(true) => tokens.value(),
            token => token,
        };
        matches!(first, Ok(JsonToken::Text(text)) if text.trim_start().starts_with("H["))
    }

    /// Numbers are recorded in topdeck's buckets; bins and base64 keep their own. A list may mix
    /// them. With a time, a broker accepts only one base64 string, because it stores that string
    /// unchanged.
    fn decode_histograms(
        &self,
        (start, end): ByteRange,
        has_time: bool,
        temporality: SampleTemporality,
    ) -> Result<Vec<DecodedSample>> {
        let mut tokens = tokens(&self.bytes[start..end]);
        let (mut samples, mut bins) = (None::<Histogram>, None::<Histogram>);
        let mut take = |at: usize, token: JsonToken<'_>| -> Result<()> {
            let sample = match &token {
                JsonToken::Number(text) => Some(double(text)),
                JsonToken::Text(text) => decimal::parse(text.trim().as_bytes()),
                _ => return Err(self.error_at(at, HISTOGRAM)),
            };
            let text = match (sample, token) {
                (None, JsonToken::Text(text)) => text,
                (sample, _) => {
                    if has_time {
                        return Err(self.error_at(at, TIMED_HISTOGRAM));
                    }
                    samples.get_or_insert_default().record(sample.unwrap_or(f64::NAN));
                    return Ok(());
                }
            };
            if has_time && (bins.is_some() || text.starts_with("H[")) {
                return Err(self.error_at(at, TIMED_HISTOGRAM));
            }
            let decoded = circllhist::decode_text(&text).map_err(|error| {
                let found = format!("{} ({error})", quote(text.as_bytes()));
                InputError::new(InputPosition::Byte(at as u64), HISTOGRAM, found)
            })?;
            let merged = bins.as_mut().map_or(Ok(()), |bins| bins.merge(&decoded));
            merged.map_err(|_| self.error_at(at, "a total count below 2^64"))?;
            bins.get_or_insert(decoded);
            Ok(())
        };
        match tokens.value()? {
            JsonToken::Array => {
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
        let to_sample = |histogram| DecodedSample {
            temporality,
            ..self.decoded_sample(DecodedValue::Histogram(Box::new(histogram)))
        };
        Ok(samples.into_iter().chain(bins).map(to_sample).collect())
    }
}
