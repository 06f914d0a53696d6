//! Conversion of OTLP/JSON to protobuf.
//!
//! Names are lowerCamelCase, 64-bit numbers may be strings, enumerations are numbers, bytes are
//! base64; unknown names are ignored, `null` is an absent field. Lengths are padded to five bytes,
//! so that a message can be written before its length is known.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>,
//! <https://protobuf.dev/programming-guides/json/>.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use hist::codec::bytes::{put_varint, zigzag};

use crate::decimal;
use crate::exemplar::read_hex;
use crate::input_error::{InputError, InputPosition, quote};
use crate::json::{JsonToken, JsonTokenizer};

use super::message_fields::FieldType::{
    Bool, Bytes, Double, Fixed, Fixed32, Hex, Message, Signed, SignedFixed, Text, Unsigned, Zigzag,
};
use super::message_fields::{OtlpField, REQUEST, TRACES};

type Result<T> = std::result::Result<T, InputError>;

/// Bytes of a message length.
const LENGTH_BYTES: usize = 5;
/// Index of the last length byte.
const LAST: usize = LENGTH_BYTES - 1;

/// Converts an `ExportMetricsServiceRequest`.
pub(super) fn metrics_to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    to_protobuf(body, &REQUEST)
}

/// Converts an `ExportTraceServiceRequest`.
pub(crate) fn traces_to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    to_protobuf(body, &TRACES)
}

/// Converts a request to protobuf. The output takes at most a few bytes per input byte.
fn to_protobuf(body: &[u8], request: &'static [OtlpField]) -> Result<Vec<u8>> {
    let mut writer = ProtobufTranscoder {
        tokens: JsonTokenizer::new(body),
        out: Vec::with_capacity(body.len()),
        is_lenient: false,
    };
    let at = writer.tokens.offset();
    match writer.tokens.value()? {
        JsonToken::Object => writer.write_message(request)?,
        found => return Err(unexpected_token(at, "an object", &found)),
    }
    if !writer.tokens.has_next_document() {
        let at = writer.tokens.offset();
        let found = quote(&body[at..]);
        return Err(InputError::new(
            InputPosition::Byte(at as u64),
            "the end of the request",
            found,
        ));
    }
    Ok(writer.out)
}

struct ProtobufTranscoder<'a> {
    tokens: JsonTokenizer<'a>,
    out: Vec<u8>,
    /// Within a field that only stored traces have.
    is_lenient: bool,
}

impl ProtobufTranscoder<'_> {
    fn write_message(&mut self, fields: &'static [OtlpField]) -> Result<()> {
        while let Some(key) = self.tokens.key()? {
            match fields.iter().find(|field| field.name == key) {
                Some(field) => self.write_field(field)?,
                None => self.tokens.skip()?,
            }
        }
        Ok(())
    }

    fn write_field(&mut self, field: &'static OtlpField) -> Result<()> {
        let before = self.is_lenient;
        self.is_lenient |= field.is_stored_only;
        let written = self.write_values(field);
        self.is_lenient = before;
        written
    }

    fn write_values(&mut self, field: &'static OtlpField) -> Result<()> {
        let at = self.tokens.offset();
        match self.tokens.value()? {
            JsonToken::Null => Ok(()),
            JsonToken::Array if field.is_list => {
                while self.tokens.element()? {
                    let at = self.tokens.offset();
                    let token = self.tokens.value()?;
                    self.write_value(field, at, token)?;
                }
                Ok(())
            }
            token if field.is_list && self.is_lenient => self.tokens.skip_rest(&token),
            token if field.is_list => {
                Err(unexpected_token(at, format!("a list of {}", field.name), &token))
            }
            token => self.write_value(field, at, token),
        }
    }

    fn write_value(
        &mut self,
        field: &'static OtlpField,
        at: usize,
        token: JsonToken<'_>,
    ) -> Result<()> {
        let fits = match (field.field_type, &token) {
            (Message(fields), JsonToken::Object) => {
                self.tag(field, 2);
                let start = self.out.len();
                self.out.extend_from_slice(&[0; LENGTH_BYTES]);
                self.write_message(fields)?;
                let written = self.out.len().saturating_sub(start);
                let mut padding = written.saturating_sub(LENGTH_BYTES);
                for (byte, digit) in self.out[start..].iter_mut().zip(0..=LAST) {
                    let more = if digit < LAST { 0x80 } else { 0 };
                    *byte = padding as u8 & 0x7f | more;
                    padding >>= 7;
                }
                Some(())
            }
            (Text, JsonToken::Text(text)) => {
                self.bytes(field, text.as_bytes());
                Some(())
            }
            (Bytes, JsonToken::Text(text)) => {
                let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok();
                decoded.map(|bytes| self.bytes(field, &bytes))
            }
            (Hex, JsonToken::Text(text)) => {
                // An invalid id concerns its exemplar or span only; one byte is invalid too.
                let id = decode_hex(text).unwrap_or_else(|| vec![0]);
                self.bytes(field, &id);
                Some(())
            }
            (Bool, JsonToken::Bool(value)) => {
                self.varint_field(field, u64::from(*value));
                Some(())
            }
            (Double, token) => parse_double(token).map(|value| self.fixed(field, value.to_bits())),
            (Fixed, token) => parse_integer(token, 0, u64::MAX.into())
                .map(|value| self.fixed(field, value as u64)),
            (SignedFixed, token) => parse_integer(token, i64::MIN.into(), i64::MAX.into())
                .map(|value| self.fixed(field, value as u64)),
            (Fixed32, token) => parse_integer(token, 0, u32::MAX.into()).map(|value| {
                self.tag(field, 5);
                self.out.extend_from_slice(&(value as u32).to_le_bytes());
            }),
            (Unsigned, token) => parse_integer(token, 0, u64::MAX.into())
                .map(|value| self.varint_field(field, value as u64)),
            (Signed, token) => parse_integer(token, i64::MIN.into(), i64::MAX.into())
                .map(|value| self.varint_field(field, value as u64)),
            (Zigzag, token) => parse_integer(token, i32::MIN.into(), i32::MAX.into())
                .map(|value| self.varint_field(field, zigzag(value as i64))),
            _ => None,
        };
        match fits {
            Some(()) => Ok(()),
            None if self.is_lenient => self.tokens.skip_rest(&token),
            None => {
                let expected = format!("{} as {}", field.name, field.field_type.name());
                Err(unexpected_token(at, expected, &token))
            }
        }
    }

    fn tag(&mut self, field: &OtlpField, wire: u64) {
        put_varint(&mut self.out, u64::from(field.number) << 3 | wire);
    }

    fn bytes(&mut self, field: &OtlpField, bytes: &[u8]) {
        self.tag(field, 2);
        put_varint(&mut self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn fixed(&mut self, field: &OtlpField, value: u64) {
        self.tag(field, 1);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn varint_field(&mut self, field: &OtlpField, value: u64) {
        self.tag(field, 0);
        put_varint(&mut self.out, value);
    }
}

/// Bytes of an id of a trace or a span.
fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let (mut trace, mut span) = ([0; 16], [0; 8]);
    match text.len() {
        0 => Some(Vec::new()),
        16 => read_hex(text, &mut span).then(|| span.to_vec()),
        _ => read_hex(text, &mut trace).then(|| trace.to_vec()),
    }
}

/// A number, a string that contains one, or "NaN", "Infinity", "-Infinity".
fn parse_double(token: &JsonToken<'_>) -> Option<f64> {
    decimal::parse(token_text(token)?.as_bytes())
}

/// An integer within bounds. With a point or an exponent, integers up to 2^53 are accepted.
fn parse_integer(token: &JsonToken<'_>, least: i128, greatest: i128) -> Option<i128> {
    let text = token_text(token)?;
    let value = match text.parse() {
        Ok(value) => value,
        Err(_) => {
            let value = decimal::parse(text.as_bytes())?;
            let is_exact = value.trunc() == value && value.abs() <= (1u64 << 53) as f64;
            is_exact.then_some(value as i128)?
        }
    };
    (least..=greatest).contains(&value).then_some(value)
}

fn token_text<'a>(token: &'a JsonToken<'_>) -> Option<&'a str> {
    match token {
        JsonToken::Number(text) => Some(text),
        JsonToken::Text(text) => Some(text),
        _ => None,
    }
}

fn unexpected_token(
    at: usize,
    expected: impl Into<Cow<'static, str>>,
    found: &JsonToken<'_>,
) -> InputError {
    let found = match found {
        JsonToken::Object => "an object".to_owned(),
        JsonToken::Array => "a list".to_owned(),
        JsonToken::Text(text) => quote(text.as_bytes()),
        JsonToken::Number(text) => quote(text.as_bytes()),
        JsonToken::Bool(value) => value.to_string(),
        JsonToken::Null => "null".to_owned(),
    };
    InputError::new(InputPosition::Byte(at as u64), expected, found)
}
