//! Attributes as labels: names and values of any type.
//!
//! Strings are unchanged, numbers and booleans are spelled as in JSON, bytes are base64, lists and
//! maps are JSON. Maps are sorted by name, because senders do not preserve an order and equal maps
//! must give equal labels.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{Error, LABELS_MAX, Labels};
use serde_json::Value;

use codecs::protobuf::{FieldValue, MessageReader};

use crate::input_error::{InputError, InputPosition};

/// Nesting limit of lists and maps.
const NESTING_MAX: u32 = 16;

/// Error of an invalid attribute: the point is rejected, the request continues. One of a resource
/// or scope rejects all its points.
pub(super) fn attribute_error(error: impl Into<InputError>) -> Error {
    let error = error.into();
    let (InputPosition::Byte(at) | InputPosition::Line(at)) = error.position;
    Error::Invalid {
        offset: usize::try_from(at).unwrap_or(usize::MAX),
        field: "attribute",
        found: format!("{}, not {}", error.actual, error.expected),
        expected: "a key and a value",
    }
}

/// Appends a point's attribute as raw bytes, which distinguish the points of a metric.
pub(super) fn append_raw(attribute: &[u8], key: &mut Vec<u8>) {
    key.extend_from_slice(&(attribute.len() as u64).to_le_bytes());
    key.extend_from_slice(attribute);
}

/// Messages appended by [`append_raw`].
pub(super) fn iter_raw(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = bytes.split_first_chunk()?;
        let (message, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        bytes = rest;
        Some(message)
    })
}

/// Parses attributes appended by [`append_raw`]. Existing labels take precedence.
pub(super) fn read_raw(mut bytes: &[u8], labels: &mut Labels) -> model::Result<()> {
    let above = labels.len();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (attribute, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let pair = parse_label(MessageReader::new(attribute))?;
        if labels.len().saturating_sub(above) == LABELS_MAX {
            let (what, found, unit) = ("point", LABELS_MAX + 1, "attributes");
            return Err(Error::Size { part: what, found, min: 0, max: LABELS_MAX, unit });
        }
        if !labels[..above].iter().any(|label| label.0 == pair.0) {
            labels.push(pair);
        }
        bytes = rest;
    }
    Ok(())
}

/// Converts an attribute to a label. An attribute without a value has an empty one, which a series
/// leaves out.
pub(crate) fn parse_label(message: MessageReader<'_>) -> model::Result<(String, String)> {
    let (key, value) = parse_key_value(message).map_err(attribute_error)?;
    let value =
        match value.map(|value| parse_value(value, 0)).transpose().map_err(attribute_error)? {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(value) => value.to_string(),
        };
    Ok((key.to_owned(), value))
}

pub(crate) fn parse_key_value(
    mut message: MessageReader<'_>,
) -> Result<(&str, Option<MessageReader<'_>>), InputError> {
    let (mut key, mut value) = ("", None);
    while let Some((number, field)) = message.field()? {
        match number {
            1 => key = field.text()?,
            2 => value = Some(field.message()?),
            _ => {}
        }
    }
    Ok((key, value))
}

/// The last value of an `AnyValue`, which is the valid one. Earlier values are not validated.
fn parse_value(mut message: MessageReader<'_>, depth: u32) -> Result<Value, InputError> {
    if depth > NESTING_MAX {
        return Err(InputError::new(
            InputPosition::Byte(0),
            "at most 16 levels of nesting",
            "more",
        ));
    }
    let mut last = None;
    while let Some((number, field)) = message.field()? {
        if (1..=7).contains(&number) {
            last = Some((number, field));
        }
    }
    let Some((number, field)) = last else { return Ok(Value::Null) };
    Ok(match number {
        1 => Value::String(field.text()?.to_owned()),
        2 => Value::Bool(field.varint()? != 0),
        3 => Value::from(field.varint()? as i64),
        4 => json_double(field.double()?),
        5 => Value::Array(parse_list(field, depth)?),
        6 => Value::Object(parse_map(field, depth)?),
        _ => Value::String(STANDARD.encode(field.bytes()?)),
    })
}

fn parse_list(field: FieldValue<'_>, depth: u32) -> Result<Vec<Value>, InputError> {
    let (mut fields, mut values) = (field.message()?, Vec::new());
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            values.push(parse_value(field.message()?, depth.saturating_add(1))?);
        }
    }
    Ok(values)
}

fn parse_map(
    field: FieldValue<'_>,
    depth: u32,
) -> Result<serde_json::Map<String, Value>, InputError> {
    let (mut fields, mut values) = (field.message()?, std::collections::BTreeMap::new());
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            let (key, value) = parse_key_value(field.message()?)?;
            let value = value
                .map_or(Ok(Value::Null), |value| parse_value(value, depth.saturating_add(1)))?;
            values.insert(key.to_owned(), value);
        }
    }
    Ok(values.into_iter().collect())
}

/// JSON has no numbers for NaN and infinities.
fn json_double(value: f64) -> Value {
    let text = number_label(value);
    text.parse().map_or(Value::String(text), Value::Number)
}

/// A number as label value: the shortest text that parses to the same number.
pub(super) fn number_label(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if value == 0.0 || (1e-6..1e21).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}
