//! OTLP/JSON as protocol buffers: what the JSON mapping names, by number.
//!
//! Names are in lowerCamelCase, numbers of 64 bits may be texts, enumerations are numbers, bytes are base64; names that
//! are not known are passed by, `null` is nothing. Lengths are written in five bytes, more than they need: what they
//! hold is written behind them in one go.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>,
//! <https://protobuf.dev/programming-guides/json/>.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::json::{Token, Tokens};
use crate::number;
use crate::trouble::{Place, Trouble, quote};

type Result<T> = std::result::Result<T, Trouble>;

/// A field of a message.
struct Field {
    name: &'static str,
    number: u32,
    holds: Holds,
    is_list: bool,
}

#[derive(Clone, Copy)]
enum Holds {
    Message(&'static [Field]),
    Text,
    Bytes,
    Bool,
    Double,
    /// `fixed64`.
    Fixed,
    /// `sfixed64`.
    SignedFixed,
    /// `uint32`, `uint64`, enumerations.
    Whole,
    /// `int64`.
    Signed,
    /// `sint32`.
    Zigzag,
}

const fn one(name: &'static str, number: u32, holds: Holds) -> Field {
    Field { name, number, holds, is_list: false }
}

const fn many(name: &'static str, number: u32, holds: Holds) -> Field {
    Field { name, number, holds, is_list: true }
}

use Holds::{Bool, Bytes, Double, Fixed, Message, Signed, SignedFixed, Text, Whole, Zigzag};

static REQUEST: [Field; 1] = [many("resourceMetrics", 1, Message(&RESOURCE_METRICS))];
static RESOURCE_METRICS: [Field; 2] =
    [one("resource", 1, Message(&RESOURCE)), many("scopeMetrics", 2, Message(&SCOPE_METRICS))];
static RESOURCE: [Field; 1] = [many("attributes", 1, Message(&KEY_VALUE))];
static SCOPE_METRICS: [Field; 2] =
    [one("scope", 1, Message(&SCOPE)), many("metrics", 2, Message(&METRIC))];
static SCOPE: [Field; 3] =
    [one("name", 1, Text), one("version", 2, Text), many("attributes", 3, Message(&KEY_VALUE))];
static KEY_VALUE: [Field; 2] = [one("key", 1, Text), one("value", 2, Message(&ANY_VALUE))];
static ANY_VALUE: [Field; 7] = [
    one("stringValue", 1, Text),
    one("boolValue", 2, Bool),
    one("intValue", 3, Signed),
    one("doubleValue", 4, Double),
    one("arrayValue", 5, Message(&ARRAY_VALUE)),
    one("kvlistValue", 6, Message(&KEY_VALUE_LIST)),
    one("bytesValue", 7, Bytes),
];
static ARRAY_VALUE: [Field; 1] = [many("values", 1, Message(&ANY_VALUE))];
static KEY_VALUE_LIST: [Field; 1] = [many("values", 1, Message(&KEY_VALUE))];
static METRIC: [Field; 7] = [
    one("name", 1, Text),
    one("unit", 3, Text),
    one("gauge", 5, Message(&NUMBERS)),
    one("sum", 7, Message(&NUMBERS)),
    one("histogram", 9, Message(&HISTOGRAMS)),
    one("exponentialHistogram", 10, Message(&EXPONENTIAL_HISTOGRAMS)),
    one("summary", 11, Message(&SUMMARIES)),
];
static NUMBERS: [Field; 3] =
    [many("dataPoints", 1, Message(&NUMBER)), TEMPORALITY, one("isMonotonic", 3, Bool)];
static HISTOGRAMS: [Field; 2] = [many("dataPoints", 1, Message(&HISTOGRAM)), TEMPORALITY];
static EXPONENTIAL_HISTOGRAMS: [Field; 2] =
    [many("dataPoints", 1, Message(&EXPONENTIAL_HISTOGRAM)), TEMPORALITY];
static SUMMARIES: [Field; 1] = [many("dataPoints", 1, Message(&SUMMARY))];
const TEMPORALITY: Field = one("aggregationTemporality", 2, Whole);
const START: Field = one("startTimeUnixNano", 2, Fixed);
const TIME: Field = one("timeUnixNano", 3, Fixed);
static NUMBER: [Field; 6] = [
    many("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    one("asDouble", 4, Double),
    one("asInt", 6, SignedFixed),
    one("flags", 8, Whole),
];
static HISTOGRAM: [Field; 10] = [
    many("attributes", 9, Message(&KEY_VALUE)),
    START,
    TIME,
    one("count", 4, Fixed),
    one("sum", 5, Double),
    many("bucketCounts", 6, Fixed),
    many("explicitBounds", 7, Double),
    one("flags", 10, Whole),
    one("min", 11, Double),
    one("max", 12, Double),
];
static EXPONENTIAL_HISTOGRAM: [Field; 13] = [
    many("attributes", 1, Message(&KEY_VALUE)),
    START,
    TIME,
    one("count", 4, Fixed),
    one("sum", 5, Double),
    one("scale", 6, Zigzag),
    one("zeroCount", 7, Fixed),
    one("positive", 8, Message(&BUCKETS)),
    one("negative", 9, Message(&BUCKETS)),
    one("flags", 10, Whole),
    one("min", 12, Double),
    one("max", 13, Double),
    one("zeroThreshold", 14, Double),
];
static BUCKETS: [Field; 2] = [one("offset", 1, Zigzag), many("bucketCounts", 2, Whole)];
static SUMMARY: [Field; 7] = [
    many("attributes", 7, Message(&KEY_VALUE)),
    START,
    TIME,
    one("count", 4, Fixed),
    one("sum", 5, Double),
    many("quantileValues", 6, Message(&QUANTILE)),
    one("flags", 8, Whole),
];
static QUANTILE: [Field; 2] = [one("quantile", 1, Double), one("value", 2, Double)];

/// Bytes that the length of a message takes.
const LENGTH_BYTES: usize = 5;
/// The last of them.
const LAST: usize = LENGTH_BYTES - 1;

/// The request as protocol buffers. Takes at most some bytes for each of the input's.
pub(super) fn to_protobuf(body: &[u8]) -> Result<Vec<u8>> {
    let mut writer = Writer { tokens: Tokens::new(body), out: Vec::with_capacity(body.len()) };
    let at = writer.tokens.offset();
    match writer.tokens.value()? {
        Token::Object => writer.message(&REQUEST)?,
        found => return Err(wrong(at, "an object", &found)),
    }
    if !writer.tokens.at_end() {
        let at = writer.tokens.offset();
        let found = quote(&body[at..]);
        return Err(Trouble::new(Place::Byte(at as u64), "the end of the request", found));
    }
    Ok(writer.out)
}

struct Writer<'a> {
    tokens: Tokens<'a>,
    out: Vec<u8>,
}

impl Writer<'_> {
    fn message(&mut self, fields: &'static [Field]) -> Result<()> {
        while let Some(key) = self.tokens.key()? {
            match fields.iter().find(|field| field.name == key) {
                Some(field) => self.field(field)?,
                None => self.tokens.skip()?,
            }
        }
        Ok(())
    }

    fn field(&mut self, field: &'static Field) -> Result<()> {
        let at = self.tokens.offset();
        match self.tokens.value()? {
            Token::Null => Ok(()),
            Token::Array if field.is_list => {
                while self.tokens.element()? {
                    let at = self.tokens.offset();
                    let token = self.tokens.value()?;
                    self.value(field, at, token)?;
                }
                Ok(())
            }
            token if field.is_list => Err(wrong(at, format!("a list of {}", field.name), &token)),
            token => self.value(field, at, token),
        }
    }

    fn value(&mut self, field: &'static Field, at: usize, token: Token<'_>) -> Result<()> {
        let fits = match (field.holds, &token) {
            (Message(fields), Token::Object) => {
                self.tag(field, 2);
                let start = self.out.len();
                self.out.extend_from_slice(&[0; LENGTH_BYTES]);
                self.message(fields)?;
                let written = self.out.len().saturating_sub(start);
                let mut left = written.saturating_sub(LENGTH_BYTES);
                for (byte, place) in self.out[start..].iter_mut().zip(0..=LAST) {
                    let more = if place < LAST { 0x80 } else { 0 };
                    *byte = left as u8 & 0x7f | more;
                    left >>= 7;
                }
                Some(())
            }
            (Text, Token::Text(text)) => {
                self.bytes(field, text.as_bytes());
                Some(())
            }
            (Bytes, Token::Text(text)) => {
                let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok();
                decoded.map(|bytes| self.bytes(field, &bytes))
            }
            (Bool, Token::Bool(value)) => {
                self.varint_of(field, u64::from(*value));
                Some(())
            }
            (Double, token) => double(token).map(|value| self.fixed(field, value.to_bits())),
            (Fixed, token) => {
                whole(token, 0, u64::MAX.into()).map(|value| self.fixed(field, value as u64))
            }
            (SignedFixed, token) => whole(token, i64::MIN.into(), i64::MAX.into())
                .map(|value| self.fixed(field, value as u64)),
            (Whole, token) => {
                whole(token, 0, u64::MAX.into()).map(|value| self.varint_of(field, value as u64))
            }
            (Signed, token) => whole(token, i64::MIN.into(), i64::MAX.into())
                .map(|value| self.varint_of(field, value as u64)),
            (Zigzag, token) => whole(token, i32::MIN.into(), i32::MAX.into())
                .map(|value| self.varint_of(field, ((value << 1) ^ (value >> 127)) as u64)),
            _ => None,
        };
        fits.ok_or_else(|| wrong(at, format!("{} as {}", field.name, field.holds.name()), &token))
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.out.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn tag(&mut self, field: &Field, wire: u64) {
        self.varint(u64::from(field.number) << 3 | wire);
    }

    fn bytes(&mut self, field: &Field, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    fn fixed(&mut self, field: &Field, value: u64) {
        self.tag(field, 1);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    fn varint_of(&mut self, field: &Field, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }
}

impl Holds {
    fn name(self) -> &'static str {
        match self {
            Message(_) => "an object",
            Text => "a text",
            Bytes => "base64",
            Bool => "true or false",
            Double => "a number",
            Fixed | Whole => "a whole number from 0 to 2^64 - 1",
            SignedFixed | Signed => "a whole number from -2^63 to 2^63 - 1",
            Zigzag => "a whole number from -2^31 to 2^31 - 1",
        }
    }
}

/// A number, or a text that spells one, or "NaN", "Infinity", "-Infinity".
fn double(token: &Token<'_>) -> Option<f64> {
    number::parse(spelled(token)?.as_bytes())
}

/// A whole number within bounds. Written with a point or an exponent it is one up to 2^53.
fn whole(token: &Token<'_>, least: i128, greatest: i128) -> Option<i128> {
    let text = spelled(token)?;
    let value = match text.parse() {
        Ok(value) => value,
        Err(_) => {
            let value = number::parse(text.as_bytes())?;
            let is_exact = value.trunc() == value && value.abs() <= (1u64 << 53) as f64;
            is_exact.then_some(value as i128)?
        }
    };
    (least..=greatest).contains(&value).then_some(value)
}

fn spelled<'a>(token: &'a Token<'_>) -> Option<&'a str> {
    match token {
        Token::Number(text) => Some(text),
        Token::Text(text) => Some(text),
        _ => None,
    }
}

fn wrong(at: usize, expected: impl Into<Cow<'static, str>>, found: &Token<'_>) -> Trouble {
    let found = match found {
        Token::Object => "an object".to_owned(),
        Token::Array => "a list".to_owned(),
        Token::Text(text) => quote(text.as_bytes()),
        Token::Number(text) => quote(text.as_bytes()),
        Token::Bool(value) => value.to_string(),
        Token::Null => "null".to_owned(),
    };
    Trouble::new(Place::Byte(at as u64), expected, found)
}
