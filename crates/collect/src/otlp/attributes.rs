//! Attributes: names and values of any kind, as labels.
//!
//! A text is itself, numbers and truth values are spelled as JSON spells them, bytes are base64, lists and maps are
//! JSON, maps by ascending name: senders do not keep an order, and one map is one label.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{Error, LABELS_MAX, Labels};
use serde_json::Value;

use hist::protobuf::{Field, Message};

use crate::trouble::{Place, Trouble};

/// Lists and maps within one another at the most.
const NESTING_MAX: u32 = 16;

/// What cannot be read of an attribute: its series is refused, and the request goes on.
pub(super) fn refused(trouble: impl Into<Trouble>) -> Error {
    let trouble = trouble.into();
    let (Place::Byte(at) | Place::Line(at)) = trouble.place;
    Error::Invalid {
        offset: usize::try_from(at).unwrap_or(usize::MAX),
        field: "an attribute",
        found: format!("{}, not {}", trouble.found, trouble.expected),
        expected: "a key and a value",
    }
}

/// Keeps the attribute of a point as bytes: what tells the points of a metric apart.
pub(super) fn keep(attribute: &[u8], key: &mut Vec<u8>) {
    key.extend_from_slice(&(attribute.len() as u64).to_le_bytes());
    key.extend_from_slice(attribute);
}

/// Reads what [`keep`] put together. A label that is there already stays.
pub(super) fn kept(mut bytes: &[u8], labels: &mut Labels) -> model::Result<()> {
    let above = labels.len();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (attribute, rest) = rest.split_at(u64::from_le_bytes(*length) as usize);
        let pair = label(Message::new(attribute))?;
        if labels.len().saturating_sub(above) == LABELS_MAX {
            let (what, found, unit) = ("a point", LABELS_MAX + 1, "attributes");
            return Err(Error::Size { what, found, min: 0, max: LABELS_MAX, unit });
        }
        if !labels[..above].iter().any(|label| label.0 == pair.0) {
            labels.push(pair);
        }
        bytes = rest;
    }
    Ok(())
}

/// An attribute as a label; an attribute without value has an empty one.
pub(super) fn label(message: Message<'_>) -> model::Result<(String, String)> {
    let (key, value) = key_value(message).map_err(refused)?;
    let value = match value.map(|value| read(value, 0)).transpose().map_err(refused)? {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    };
    Ok((key.to_owned(), value))
}

fn key_value(mut message: Message<'_>) -> Result<(&str, Option<Message<'_>>), Trouble> {
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

/// The value that counts of an `AnyValue`: the last. What stands before it need not be read.
fn read(mut message: Message<'_>, depth: u32) -> Result<Value, Trouble> {
    if depth > NESTING_MAX {
        return Err(Trouble::new(Place::Byte(0), "at most 16 lists in one another", "more"));
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
        4 => double(field.double()?),
        5 => Value::Array(list(field, depth)?),
        6 => Value::Object(map(field, depth)?),
        _ => Value::String(STANDARD.encode(field.bytes()?)),
    })
}

fn list(field: Field<'_>, depth: u32) -> Result<Vec<Value>, Trouble> {
    let (mut fields, mut values) = (field.message()?, Vec::new());
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            values.push(read(field.message()?, depth.saturating_add(1))?);
        }
    }
    Ok(values)
}

fn map(field: Field<'_>, depth: u32) -> Result<serde_json::Map<String, Value>, Trouble> {
    let (mut fields, mut values) = (field.message()?, std::collections::BTreeMap::new());
    while let Some((number, field)) = fields.field()? {
        if number == 1 {
            let (key, value) = key_value(field.message()?)?;
            let value =
                value.map_or(Ok(Value::Null), |value| read(value, depth.saturating_add(1)))?;
            values.insert(key.to_owned(), value);
        }
    }
    Ok(values.into_iter().collect())
}

/// JSON has no word for what is no number.
fn double(value: f64) -> Value {
    let text = number(value);
    text.parse().map_or(Value::String(text), Value::Number)
}

/// A number as label: the shortest that is read as the same.
pub(super) fn number(value: f64) -> String {
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
