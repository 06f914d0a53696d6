//! Decoder of HTTPTrap JSON, the push format of Circonus brokers: docs/formats/httptrap.md.
//!
//! Any JSON is accepted, with comments. Nested names are joined by back-quotes (`container`,
//! back-quote, `key`; array elements by index from 0). A name may end with stream tags, which
//! become labels. Numbers are numbers, strings are text, true and false are 1 and 0;
//! `{"_type": t, "_value": v, "_ts": ms, "_fl": f, "_tags": [..]}` is decoded by type `t`. Keys may
//! repeat and documents may follow one another: every value is a separate sample. Values before a
//! syntax error are emitted. Nesting deeper than 32 is a syntax error, as in a broker.
//!
//! Source: circonus-labs/reconnoiter `src/modules/httptrap.c`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod tags;
mod typed_value;

use crate::decimal;
use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use crate::input_error::{InputError, InputPosition, quote};
use crate::json::{JsonToken, JsonTokenizer};

use typed_value::TypedValue;

/// Nesting limit of a broker.
const NESTING_MAX: usize = 32;
/// Size limit of a full name with its tags. Every value below the name repeats it.
const NAME_BYTES_MAX: usize = 4096;

type Result<T> = std::result::Result<T, InputError>;

/// Reads documents, one after another. The response to a sender, `{"stats": n, "filtered": m}`, has
/// the number of samples, and the number of skipped values and errors.
pub fn read(bytes: &[u8], sink: &mut dyn SampleSink) {
    let mut reader = HttptrapReader {
        bytes,
        tokens: tokens(bytes),
        path: String::new(),
        labels: Vec::new(),
        name_bytes: 0,
        stop: false,
    };
    while !reader.stop && !reader.tokens.has_next_document() {
        reader.path.clear();
        reader.labels.clear();
        if let Err(error) = reader.read_value(sink) {
            let _ = sink.error(error);
            return;
        }
    }
}

fn tokens(bytes: &[u8]) -> JsonTokenizer<'_> {
    JsonTokenizer::new(bytes).with_comments().with_nesting(NESTING_MAX)
}

struct HttptrapReader<'a> {
    bytes: &'a [u8],
    tokens: JsonTokenizer<'a>,
    path: String,
    /// Tags of the enclosing names.
    labels: Vec<(String, String)>,
    /// Bytes of the name and the tags.
    name_bytes: usize,
    stop: bool,
}

impl HttptrapReader<'_> {
    fn read_value(&mut self, sink: &mut dyn SampleSink) -> Result<()> {
        match self.tokens.value()? {
            JsonToken::Object => self.read_object(sink)?,
            JsonToken::Array => {
                let mut offset = 0_u64;
                while self.tokens.element()? {
                    self.read_nested(&offset.to_string(), sink)?;
                    offset = offset.saturating_add(1);
                }
            }
            JsonToken::Text(text) => self.emit_plain(DecodedValue::Text(text), sink),
            JsonToken::Number(text) => self.emit_plain(DecodedValue::Number(double(text)), sink),
            JsonToken::Bool(value) => self.emit_plain(DecodedValue::Integer(value.into()), sink),
            JsonToken::Null => sink.skipped("a null"),
        }
        Ok(())
    }

    fn read_nested(&mut self, name: &str, sink: &mut dyn SampleSink) -> Result<()> {
        if self.name_bytes.saturating_add(name.len()) > NAME_BYTES_MAX {
            let at = InputPosition::Byte(self.tokens.offset() as u64);
            let error = InputError::new(at, "a name of at most 4096 bytes", quote(name.as_bytes()));
            self.stop |= sink.error(error).is_break();
            return self.tokens.skip();
        }
        let (length, labels) = (self.path.len(), self.labels.len());
        let name_bytes = self.name_bytes;
        self.name_bytes = name_bytes.saturating_add(name.len()).saturating_add(1);
        if length > 0 {
            self.path.push('`');
        }
        self.path.push_str(tags::split_tags(name, &mut self.labels));
        self.read_value(sink)?;
        self.path.truncate(length);
        self.labels.truncate(labels);
        self.name_bytes = name_bytes;
        Ok(())
    }

    fn read_object(&mut self, sink: &mut dyn SampleSink) -> Result<()> {
        let start = self.tokens.offset();
        let mut typed = TypedValue::default();
        while let Some(key) = self.tokens.key()? {
            match key.as_str() {
                "_type" => {
                    let at = self.tokens.offset();
                    typed.kind = match self.tokens.value()? {
                        JsonToken::Text(kind) => Some((at, kind)),
                        _ => return Err(self.error_at(at, "a type in quotes")),
                    };
                }
                "_value" => typed.value = Some(self.skip_value()?),
                "_ts" => typed.time = Some(self.skip_value()?),
                "_fl" => typed.flags = Some(self.skip_value()?),
                "_tags" => typed.tags = Some(self.skip_value()?),
                _ => self.read_nested(&key, sink)?,
            }
        }
        // An invalid type or value does not end the document.
        if let Err(error) = self.emit_typed(start, &typed, sink) {
            self.stop |= sink.error(error).is_break();
        }
        Ok(())
    }

    /// Skips a value and returns its byte range.
    fn skip_value(&mut self) -> Result<(usize, usize)> {
        let start = self.tokens.offset();
        self.tokens.skip()?;
        Ok((start, self.tokens.offset()))
    }

    fn emit_plain(&self, value: DecodedValue, sink: &mut dyn SampleSink) {
        sink.sample(self.decoded_sample(value));
    }

    fn decoded_sample(&self, value: DecodedValue) -> DecodedSample {
        let labels = tags::merge_labels(self.labels.clone());
        DecodedSample { metric: self.path.clone(), labels, ..DecodedSample::new(value) }
    }

    fn error_at(&self, at: usize, expected: &'static str) -> InputError {
        let rest = &self.bytes[at..];
        let end = rest.iter().position(|b| b",}]\n".contains(b)).unwrap_or(rest.len());
        InputError::new(InputPosition::Byte(at as u64), expected, quote(&rest[..end]))
    }
}

fn double(text: &str) -> f64 {
    // Every JSON number parses.
    decimal::parse(text.as_bytes()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
