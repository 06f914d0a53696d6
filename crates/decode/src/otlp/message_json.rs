//! OTLP messages as JSON, the reverse of `json.rs`: what is empty or zero is left out, 64-bit
//! integers are texts, ids are hexadecimal digits.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use codecs::protobuf::{FieldValue, MessageReader};
use serde_json::Value;

use super::attributes::number_label;
use super::message_fields::{ANY_VALUE, FieldType, OtlpField};

/// Maximum nesting; deeper messages are empty objects.
const NESTING_MAX: u32 = 24;

/// Appends a message. It ends where it is malformed.
pub(crate) fn write_message(
    message: &MessageReader<'_>,
    fields: &'static [OtlpField],
    out: &mut String,
) {
    write_nested(message, fields, 0, out);
}

fn write_nested(
    message: &MessageReader<'_>,
    fields: &'static [OtlpField],
    depth: u32,
    out: &mut String,
) {
    out.push('{');
    let is_any_value = std::ptr::eq(fields, &ANY_VALUE[..]);
    let mut separator = "";
    for field in fields.iter().filter(|_| depth <= NESTING_MAX) {
        let mut found = values(message, field.number).filter(|value| fits(field, value));
        if field.is_list {
            let mut start = "[";
            for value in found {
                if start == "[" {
                    let _ = write!(out, "{separator}\"{}\":", field.name);
                    separator = ",";
                }
                out.push_str(start);
                write_value(field, &value, depth, out);
                start = ",";
            }
            if start == "," {
                out.push(']');
            }
        } else if let Some(first) = found.next() {
            let value = found.last().unwrap_or(first);
            if is_any_value || !is_zero(&value) {
                let _ = write!(out, "{separator}\"{}\":", field.name);
                write_value(field, &value, depth, out);
                separator = ",";
            }
        }
    }
    out.push('}');
}

/// Values of a field, until the message is malformed.
fn values<'a>(
    message: &MessageReader<'a>,
    number: u32,
) -> impl Iterator<Item = FieldValue<'a>> + use<'a> {
    let mut fields = message.clone();
    std::iter::from_fn(move || {
        while let Ok(Some((found, value))) = fields.field() {
            if found == number {
                return Some(value);
            }
        }
        None
    })
}

fn fits(field: &OtlpField, value: &FieldValue<'_>) -> bool {
    match value {
        FieldValue::Bytes(..) => matches!(
            field.field_type,
            FieldType::Message(_) | FieldType::Text | FieldType::Bytes | FieldType::Hex
        ),
        FieldValue::Fixed64(_) => {
            matches!(field.field_type, FieldType::Double | FieldType::Fixed)
        }
        FieldValue::Fixed32(_) => matches!(field.field_type, FieldType::Fixed32),
        FieldValue::Varint(_) => {
            matches!(field.field_type, FieldType::Bool | FieldType::Unsigned | FieldType::Signed)
        }
    }
}

fn is_zero(value: &FieldValue<'_>) -> bool {
    match value {
        FieldValue::Bytes(bytes, _) => bytes.is_empty(),
        FieldValue::Fixed64(value) | FieldValue::Varint(value) => *value == 0,
        FieldValue::Fixed32(value) => *value == 0,
    }
}

fn write_value(field: &OtlpField, value: &FieldValue<'_>, depth: u32, out: &mut String) {
    let _ = match (field.field_type, value) {
        (FieldType::Message(nested), value) => {
            if let Ok(message) = value.message() {
                write_nested(&message, nested, depth.saturating_add(1), out);
            }
            Ok(())
        }
        (FieldType::Text, FieldValue::Bytes(bytes, _)) => {
            write!(out, "{}", Value::from(String::from_utf8_lossy(bytes)))
        }
        (FieldType::Hex, FieldValue::Bytes(bytes, _)) => write!(out, "\"{}\"", hex(bytes)),
        (_, FieldValue::Bytes(bytes, _)) => write!(out, "\"{}\"", STANDARD.encode(bytes)),
        (FieldType::Double, FieldValue::Fixed64(bits)) => {
            let number = f64::from_bits(*bits);
            let text = number_label(number);
            match number.is_finite() {
                true => write!(out, "{text}"),
                false => write!(out, "\"{text}\""),
            }
        }
        (_, FieldValue::Fixed64(value)) => write!(out, "\"{value}\""),
        (_, FieldValue::Fixed32(value)) => write!(out, "{value}"),
        (FieldType::Bool, FieldValue::Varint(value)) => write!(out, "{}", *value != 0),
        (FieldType::Signed, FieldValue::Varint(value)) => write!(out, "\"{}\"", *value as i64),
        (_, FieldValue::Varint(value)) => write!(out, "{value}"),
    };
}

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
