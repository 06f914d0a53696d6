//! Bounded copy of an OTLP message: what is stored of a span.
//!
//! Fields that the tables do not know are left out, texts are cut off, lists have a maximum length,
//! and a filter decides on each attribute. What was left out is counted by the caller as cut.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::protobuf::{FieldValue, MessageReader};
use hist::codec::bytes::put_varint;

use crate::input_error::InputError;

use super::attributes::{parse_key_value, parse_label};
use super::message_fields::{FieldType, KEY_VALUE, OtlpField};

/// Maximum length of a text or of bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 2048;
/// Maximum number of entries of a list, as OpenTelemetry's default for attributes and events.
const LIST_MAX: usize = 128;
/// Maximum nesting, as of attributes that become labels.
const NESTING_MAX: u32 = 16;

/// What happens to an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeAction {
    /// It stays.
    Keep,
    /// It has this text as value.
    Replace(String),
    /// It is left out.
    Remove,
}

/// Decides on an attribute from its name, and its value as text.
pub type AttributeFilter<'f> = &'f dyn Fn(&str, &dyn Fn() -> String) -> AttributeAction;

/// Copies messages.
pub(crate) struct MessageCopier<'f> {
    pub(crate) filter: AttributeFilter<'f>,
    /// Whether something was cut off or left out because of its size.
    pub(crate) is_cut: bool,
}

impl MessageCopier<'_> {
    /// Appends a message with only the fields of a table.
    pub(crate) fn copy(
        &mut self,
        message: MessageReader<'_>,
        fields: &'static [OtlpField],
        out: &mut Vec<u8>,
    ) -> Result<(), InputError> {
        self.copy_nested(message, fields, 0, out)
    }

    fn copy_nested(
        &mut self,
        mut message: MessageReader<'_>,
        fields: &'static [OtlpField],
        depth: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), InputError> {
        if depth > NESTING_MAX {
            self.is_cut = true;
            return Ok(());
        }
        let depth = depth.saturating_add(1);
        let mut lists: Vec<(u32, usize)> = Vec::new();
        while let Some((number, value)) = message.field()? {
            let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
            if field.is_list {
                let at = lists.iter().position(|list| list.0 == number).unwrap_or(lists.len());
                if at == lists.len() {
                    lists.push((number, 0));
                }
                if lists[at].1 >= LIST_MAX {
                    self.is_cut = true;
                    continue;
                }
                lists[at].1 = lists[at].1.saturating_add(1);
            }
            match (field.field_type, value) {
                (FieldType::Message(nested), value @ FieldValue::Bytes(..)) => {
                    let mut copy = Vec::new();
                    let is_attribute = std::ptr::eq(nested, &KEY_VALUE[..]);
                    match is_attribute {
                        // Values within a value have names too, which are no attributes.
                        true if field.name != "values" => {
                            if !self.copy_attribute(value.message()?, depth, &mut copy)? {
                                continue;
                            }
                        }
                        _ => self.copy_nested(value.message()?, nested, depth, &mut copy)?,
                    }
                    put_bytes(out, number, &copy);
                }
                (FieldType::Text, FieldValue::Bytes(bytes, _)) => {
                    let mut text = String::from_utf8_lossy(bytes);
                    // The text of a status may be as personal as an attribute.
                    if field.name == "message" {
                        match (self.filter)("status.message", &|| text.clone().into_owned()) {
                            AttributeAction::Remove => continue,
                            AttributeAction::Replace(other) => text = other.into(),
                            AttributeAction::Keep => {}
                        }
                    }
                    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
                    self.is_cut |= end < text.len();
                    put_bytes(out, number, text.get(..end).unwrap_or_default().as_bytes());
                }
                (FieldType::Bytes | FieldType::Hex, FieldValue::Bytes(bytes, _)) => {
                    let end = bytes.len().min(TEXT_BYTES_MAX);
                    self.is_cut |= end < bytes.len();
                    put_bytes(out, number, bytes.get(..end).unwrap_or_default());
                }
                (_, FieldValue::Varint(value)) => {
                    put_key(out, number, 0);
                    put_varint(out, value);
                }
                (_, FieldValue::Fixed64(value)) => {
                    put_key(out, number, 1);
                    out.extend_from_slice(&value.to_le_bytes());
                }
                (_, FieldValue::Fixed32(value)) => {
                    put_key(out, number, 5);
                    out.extend_from_slice(&value.to_le_bytes());
                }
                // A field of another type.
                (_, FieldValue::Bytes(..)) => {}
            }
        }
        Ok(())
    }

    /// Returns whether the attribute stays.
    fn copy_attribute(
        &mut self,
        message: MessageReader<'_>,
        depth: u32,
        out: &mut Vec<u8>,
    ) -> Result<bool, InputError> {
        let (name, _) = parse_key_value(message.clone())?;
        let value = || parse_label(message.clone()).map_or_else(|_| String::new(), |label| label.1);
        match (self.filter)(name, &value) {
            AttributeAction::Remove => return Ok(false),
            AttributeAction::Keep => self.copy_nested(message, &KEY_VALUE, depth, out)?,
            AttributeAction::Replace(text) => {
                let mut value = Vec::new();
                put_bytes(&mut value, 1, text.as_bytes());
                put_bytes(out, 1, name.as_bytes());
                put_bytes(out, 2, &value);
            }
        }
        Ok(true)
    }
}

fn put_key(out: &mut Vec<u8>, number: u32, wire: u64) {
    put_varint(out, u64::from(number).unbounded_shl(3) | wire);
}

/// Appends a field of bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_key(out, number, 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
