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

type Result<T> = std::result::Result<T, InputError>;

/// A field of a message.
struct JsonField {
    name: &'static str,
    number: u32,
    field_type: FieldType,
    is_list: bool,
}

#[derive(Clone, Copy)]
enum FieldType {
    Message(&'static [JsonField]),
    Text,
    Bytes,
    /// Bytes as hexadecimal digits, as ids of traces and spans.
    Hex,
    Bool,
    Double,
    /// `fixed64`.
    Fixed,
    /// `sfixed64`.
    SignedFixed,
    /// `uint32`, `uint64`, enumerations.
    Unsigned,
    /// `int64`.
    Signed,
    /// `sint32`.
    Zigzag,
}

const fn single_field(name: &'static str, number: u32, holds: FieldType) -> JsonField {
    JsonField { name, number, field_type: holds, is_list: false }
}

const fn repeated_field(name: &'static str, number: u32, holds: FieldType) -> JsonField {
    JsonField { name, number, field_type: holds, is_list: true }
}

use FieldType::{
    Bool, Bytes, Double, Fixed, Hex, Message, Signed, SignedFixed, Text, Unsigned, Zigzag,
};

static REQUEST: [JsonField; 1] = [repeated_field("resourceMetrics", 1, Message(&RESOURCE_METRICS))];
static RESOURCE_METRICS: [JsonField; 2] = [
    single_field("resource", 1, Message(&RESOURCE)),
    repeated_field("scopeMetrics", 2, Message(&SCOPE_METRICS)),
];
static RESOURCE: [JsonField; 1] = [repeated_field("attributes", 1, Message(&KEY_VALUE))];
static SCOPE_METRICS: [JsonField; 2] =
    [single_field("scope", 1, Message(&SCOPE)), repeated_field("metrics", 2, Message(&METRIC))];
static SCOPE: [JsonField; 3] = [
    single_field("name", 1, Text),
    single_field("version", 2, Text),
    repeated_field("attributes", 3, Message(&KEY_VALUE)),
];
static KEY_VALUE: [JsonField; 2] =
    [single_field("key", 1, Text), single_field("value", 2, Message(&ANY_VALUE))];
static ANY_VALUE: [JsonField; 7] = [
    single_field("stringValue", 1, Text),
    single_field("boolValue", 2, Bool),
    single_field("intValue", 3, Signed),
    single_field("doubleValue", 4, Double),
    single_field("arrayValue", 5, Message(&ARRAY_VALUE)),
    single_field("kvlistValue", 6, Message(&KEY_VALUE_LIST)),
    single_field("bytesValue", 7, Bytes),
];
static ARRAY_VALUE: [JsonField; 1] = [repeated_field("values", 1, Message(&ANY_VALUE))];
static KEY_VALUE_LIST: [JsonField; 1] = [repeated_field("values", 1, Message(&KEY_VALUE))];
static METRIC: [JsonField; 8] = [
    single_field("name", 1, Text),
    single_field("description", 2, Text),
    single_field("unit", 3, Text),
    single_field("gauge", 5, Message(&NUMBERS)),
    single_field("sum", 7, Message(&NUMBERS)),
    single_field("histogram", 9, Message(&HISTOGRAMS)),
    single_field("exponentialHistogram", 10, Message(&EXPONENTIAL_HISTOGRAMS)),
    single_field("summary", 11, Message(&SUMMARIES)),
];
static NUMBERS: [JsonField; 3] = [
    repeated_field("dataPoints", 1, Message(&NUMBER)),
    TEMPORALITY,
    single_field("isMonotonic", 3, Bool),
];
static HISTOGRAMS: [JsonField; 2] =
    [repeated_field("dataPoints", 1, Message(&HISTOGRAM)), TEMPORALITY];
static EXPONENTIAL_HISTOGRAMS: [JsonField; 2] =
    [repeated_field("dataPoints", 1, Message(&EXPONENTIAL_HISTOGRAM)), TEMPORALITY];
static SUMMARIES: [JsonField; 1] = [repeated_field("dataPoints", 1, Message(&SUMMARY))];
const TEMPORALITY: JsonField = single_field("aggregationTemporality", 2, Unsigned);
const START: JsonField = single_field("startTimeUnixNano", 2, Fixed);
const TIME: JsonField = single_field("timeUnixNano", 3, Fixed);
static EXEMPLAR: [JsonField; 6] = [
    single_field("timeUnixNano", 2, Fixed),
    single_field("asDouble", 3, Double),
    single_field("spanId", 4, Hex),
    single_field("traceId", 5, Hex),
    single_field("asInt", 6, SignedFixed),
    repeated_field("filteredAttributes", 7, Message(&KEY_VALUE)),
];
static NUMBER: [JsonField; 7] = [
    repeated_field("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("asDouble", 4, Double),
    repeated_field("exemplars", 5, Message(&EXEMPLAR)),
    single_field("asInt", 6, SignedFixed),
    single_field("flags", 8, Unsigned),
];
static HISTOGRAM: [JsonField; 11] = [
    repeated_field("attributes", 9, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    repeated_field("bucketCounts", 6, Fixed),
    repeated_field("explicitBounds", 7, Double),
    repeated_field("exemplars", 8, Message(&EXEMPLAR)),
    single_field("flags", 10, Unsigned),
    single_field("min", 11, Double),
    single_field("max", 12, Double),
];
static EXPONENTIAL_HISTOGRAM: [JsonField; 14] = [
    repeated_field("attributes", 1, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    single_field("scale", 6, Zigzag),
    single_field("zeroCount", 7, Fixed),
    single_field("positive", 8, Message(&BUCKETS)),
    single_field("negative", 9, Message(&BUCKETS)),
    single_field("flags", 10, Unsigned),
    repeated_field("exemplars", 11, Message(&EXEMPLAR)),
    single_field("min", 12, Double),
    single_field("max", 13, Double),
    single_field("zeroThreshold", 14, Double),
];
static BUCKETS: [JsonField; 2] =
    [single_field("offset", 1, Zigzag), repeated_field("bucketCounts", 2, Unsigned)];
static SUMMARY: [JsonField; 7] = [
    repeated_field("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    single_field("count", 4, Fixed),
    single_field("sum", 5, Double),
    repeated_field("quantileValues", 6, Message(&QUANTILE)),
    single_field("flags", 8, Unsigned),
];
static QUANTILE: [JsonField; 2] =
    [single_field("quantile", 1, Double), single_field("value", 2, Double)];

static TRACES_REQUEST: [JsonField; 1] =
    [repeated_field("resourceSpans", 1, Message(&RESOURCE_SPANS))];
static RESOURCE_SPANS: [JsonField; 2] = [
    single_field("resource", 1, Message(&RESOURCE)),
    repeated_field("scopeSpans", 2, Message(&SCOPE_SPANS)),
];
static SCOPE_SPANS: [JsonField; 1] = [repeated_field("spans", 2, Message(&SPAN))];
static SPAN: [JsonField; 9] = [
    single_field("traceId", 1, Hex),
    single_field("spanId", 2, Hex),
    single_field("traceState", 3, Text),
    single_field("name", 5, Text),
    single_field("kind", 6, Unsigned),
    single_field("startTimeUnixNano", 7, Fixed),
    single_field("endTimeUnixNano", 8, Fixed),
    repeated_field("attributes", 9, Message(&KEY_VALUE)),
    single_field("status", 15, Message(&STATUS)),
];
static STATUS: [JsonField; 1] = [single_field("code", 3, Unsigned)];

/// Bytes of a message length.
const LENGTH_BYTES: usize = 5;
/// Index of the last length byte.
const LAST: usize = LENGTH_BYTES - 1;

/// Converts an `ExportMetricsServiceRequest`.
pub(super) fn metrics_to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    to_protobuf(body, &REQUEST)
}

/// Converts an `ExportTraceServiceRequest`, without events and links.
pub(crate) fn traces_to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    to_protobuf(body, &TRACES_REQUEST)
}

/// Converts a request to protobuf. The output takes at most a few bytes per input byte.
fn to_protobuf(body: &[u8], request: &'static [JsonField]) -> Result<Vec<u8>> {
    let mut writer = ProtobufTranscoder {
        tokens: JsonTokenizer::new(body),
        out: Vec::with_capacity(body.len()),
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
}

impl ProtobufTranscoder<'_> {
    fn write_message(&mut self, fields: &'static [JsonField]) -> Result<()> {
        while let Some(key) = self.tokens.key()? {
            match fields.iter().find(|field| field.name == key) {
                Some(field) => self.write_field(field)?,
                None => self.tokens.skip()?,
            }
        }
        Ok(())
    }

    fn write_field(&mut self, field: &'static JsonField) -> Result<()> {
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
            token if field.is_list => {
                Err(unexpected_token(at, format!("a list of {}", field.name), &token))
            }
            token => self.write_value(field, at, token),
        }
    }

    fn write_value(
        &mut self,
        field: &'static JsonField,
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
            (Unsigned, token) => parse_integer(token, 0, u64::MAX.into())
                .map(|value| self.varint_field(field, value as u64)),
            (Signed, token) => parse_integer(token, i64::MIN.into(), i64::MAX.into())
                .map(|value| self.varint_field(field, value as u64)),
            (Zigzag, token) => parse_integer(token, i32::MIN.into(), i32::MAX.into())
                .map(|value| self.varint_field(field, zigzag(value as i64))),
            _ => None,
        };
        fits.ok_or_else(|| {
            unexpected_token(at, format!("{} as {}", field.name, field.field_type.name()), &token)
        })
    }

    fn tag(&mut self, field: &JsonField, wire: u64) {
        put_varint(&mut self.out, u64::from(field.number) << 3 | wire);
    }

    fn bytes(&mut self, field: &JsonField, bytes: &[u8]) {
        self.tag(field, 2);
        put_varint(&mut self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn fixed(&mut self, field: &JsonField, value: u64) {
        self.tag(field, 1);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn varint_field(&mut self, field: &JsonField, value: u64) {
        self.tag(field, 0);
        put_varint(&mut self.out, value);
    }
}

impl FieldType {
    fn name(self) -> &'static str {
        match self {
            Message(_) => "an object",
            Text => "a text",
            Bytes => "base64",
            Hex => "hexadecimal digits",
            Bool => "true or false",
            Double => "a number",
            Fixed | Unsigned => "a whole number from 0 to 2^64 - 1",
            SignedFixed | Signed => "a whole number from -2^63 to 2^63 - 1",
            Zigzag => "a whole number from -2^31 to 2^31 - 1",
        }
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
