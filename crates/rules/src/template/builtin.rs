//! Functions that every Go template has: comparison, access to elements, printing, escaping.

use super::format::{TextSizeExceeded, print, print_format, print_line};
use super::quote::is_printable;
use super::value::{TemplateList, TemplateValue};
use std::cmp::Ordering;
use std::sync::Arc;

type Outcome = Result<TemplateValue, String>;

const NOT_COMPARABLE: &str = "invalid type for comparison";

/// Groups of types whose values compare with each other.
#[derive(Clone, Copy, PartialEq)]
enum BasicKind {
    Bool,
    Int,
    Float,
    Text,
    Unsigned,
}

fn basic_kind(value: &TemplateValue) -> Option<BasicKind> {
    Some(match value {
        TemplateValue::Bool(_) => BasicKind::Bool,
        TemplateValue::Int(_) | TemplateValue::Duration(_, false) => BasicKind::Int,
        TemplateValue::Float(_) => BasicKind::Float,
        TemplateValue::Text(_) | TemplateValue::Html(_) => BasicKind::Text,
        TemplateValue::Byte(_) => BasicKind::Unsigned,
        _ => return None,
    })
}

/// The order of two values of comparable kinds; `None` if one is NaN.
fn order(left: &TemplateValue, right: &TemplateValue) -> Option<Ordering> {
    use TemplateValue as Value;
    let integer = |value: &Value| match value {
        Value::Int(number) | Value::Duration(number, _) => Some(*number),
        Value::Byte(number) => Some(i64::from(*number)),
        Value::Bool(truth) => Some(i64::from(*truth)),
        _ => None,
    };
    match (left, right) {
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::Text(left) | Value::Html(left), Value::Text(right) | Value::Html(right)) => {
            Some(left.cmp(right))
        }
        _ => Some(integer(left)?.cmp(&integer(right)?)),
    }
}

fn incompatible(left: &TemplateValue, right: &TemplateValue) -> String {
    let (left, right) = (left.type_name(), right.type_name());
    format!("incompatible types for comparison: {left} and {right}")
}

fn kinds_match(left: Option<BasicKind>, right: Option<BasicKind>) -> bool {
    let is_integer = |kind| matches!(kind, Some(BasicKind::Int | BasicKind::Unsigned));
    left == right || (is_integer(left) && is_integer(right))
}

/// `eq first other...`: whether `first` equals one of the others.
pub(super) fn equal(values: &[TemplateValue]) -> Result<bool, String> {
    let [first, others @ ..] = values else { return Ok(false) };
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for other in others {
        let (left, right) = (basic_kind(first), basic_kind(other));
        let is_nil =
            |value: &TemplateValue| matches!(value, TemplateValue::Missing | TemplateValue::Nil);
        let is_equal = if !kinds_match(left, right) {
            if !is_nil(first) && !is_nil(other) {
                return Err(incompatible(first, other));
            }
            false
        } else if left.is_some() {
            order(first, other) == Some(Ordering::Equal)
        } else {
            equal_composite(first, other)?
        };
        if is_equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal_composite(left: &TemplateValue, right: &TemplateValue) -> Result<bool, String> {
    use TemplateValue as Value;
    let absent = |value: &Value| matches!(value, Value::Missing | Value::Nil | Value::Sample(None));
    if absent(left) || absent(right) {
        return Ok(absent(left) && absent(right));
    }
    let text = |value: &Value| print_format("%s", std::slice::from_ref(value)).unwrap_or_default();
    match (left, right) {
        (Value::Sample(Some(left)), Value::Sample(Some(right))) => Ok(Arc::ptr_eq(left, right)),
        (Value::Time(left), Value::Time(right)) if !left.is_pointer && !right.is_pointer => {
            Ok(left.time_ns == right.time_ns)
        }
        (Value::Time(_), Value::Time(_)) | (Value::Duration(..), Value::Duration(..)) => Ok(false),
        (Value::Map(_), Value::Map(_))
        | (Value::List(_), Value::List(_))
        | (Value::Record(_), Value::Record(_)) => {
            Err(format!("non-comparable type {}: {}", text(right), right.type_name()))
        }
        _ => Err(format!(
            "non-comparable types {}: {}, {}: {}",
            text(left),
            left.type_name(),
            right.type_name(),
            text(right)
        )),
    }
}

/// `lt left right`.
pub(super) fn less(left: &TemplateValue, right: &TemplateValue) -> Result<bool, String> {
    let (Some(left_kind), Some(right_kind)) = (basic_kind(left), basic_kind(right)) else {
        return Err(NOT_COMPARABLE.to_owned());
    };
    if !kinds_match(Some(left_kind), Some(right_kind)) {
        return Err(incompatible(left, right));
    }
    if left_kind == BasicKind::Bool {
        return Err(NOT_COMPARABLE.to_owned());
    }
    Ok(order(left, right) == Some(Ordering::Less))
}

/// `le left right`.
pub(super) fn less_or_equal(values: &[TemplateValue]) -> Result<bool, String> {
    Ok(less(&values[0], &values[1])? || equal(values)?)
}

/// `len value`.
pub(super) fn length(value: &TemplateValue) -> Outcome {
    let length = match value {
        TemplateValue::Text(text) | TemplateValue::Html(text) => text.len(),
        TemplateValue::Map(map) => map.entries.len(),
        TemplateValue::List(list) => list.items.len(),
        TemplateValue::Nil | TemplateValue::Sample(None) => {
            return Err("len of nil pointer".to_owned());
        }
        TemplateValue::Missing => {
            return Err("reflect: call of reflect.Value.Type on zero Value".to_owned());
        }
        // A pointer is followed.
        _ => return Err(format!("len of type {}", target_type(value))),
    };
    Ok(TemplateValue::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn target_type(value: &TemplateValue) -> &str {
    value.type_name().trim_start_matches('*')
}

fn position(index: &TemplateValue, capacity: usize) -> Result<usize, String> {
    let number = match index {
        TemplateValue::Int(number) | TemplateValue::Duration(number, false) => *number,
        TemplateValue::Byte(number) => i64::from(*number),
        TemplateValue::Missing | TemplateValue::Nil => {
            return Err("cannot index slice/array with nil".to_owned());
        }
        _ => return Err(format!("cannot index slice/array with type {}", index.type_name())),
    };
    let position = usize::try_from(number).ok().filter(|position| *position <= capacity);
    position.ok_or_else(|| format!("index out of range: {number}"))
}

/// `index value key...`.
pub(super) fn index(values: &[TemplateValue]) -> Outcome {
    let [first, keys @ ..] = values else { return Ok(TemplateValue::Missing) };
    if matches!(first, TemplateValue::Missing | TemplateValue::Nil) {
        return Err("index of untyped nil".to_owned());
    }
    let mut item = first.clone();
    for key in keys {
        item = match &item {
            TemplateValue::Text(text) | TemplateValue::Html(text) => {
                let at = position(key, text.len())?;
                let byte = text.as_bytes().get(at).ok_or("reflect: string index out of range")?;
                TemplateValue::Byte(*byte)
            }
            TemplateValue::List(list) => {
                let at = position(key, list.items.len())?;
                list.items.get(at).ok_or("reflect: slice index out of range")?.clone()
            }
            TemplateValue::Map(map) => {
                let key = match key {
                    TemplateValue::Text(key) => key,
                    TemplateValue::Missing | TemplateValue::Nil => {
                        return Err("value is nil; should be of type string".to_owned());
                    }
                    _ => {
                        let found = key.type_name();
                        return Err(format!("value has type {found}; should be string"));
                    }
                };
                map.get(key)
            }
            TemplateValue::Nil | TemplateValue::Missing | TemplateValue::Sample(None) => {
                return Err("index of nil pointer".to_owned());
            }
            _ => return Err(format!("can't index item of type {}", target_type(&item))),
        };
    }
    Ok(item)
}

/// `slice value from to`.
pub(super) fn slice(values: &[TemplateValue]) -> Outcome {
    let [item, bounds @ ..] = values else { return Ok(TemplateValue::Missing) };
    if matches!(item, TemplateValue::Missing | TemplateValue::Nil) {
        return Err("slice of untyped nil".to_owned());
    }
    if matches!(item, TemplateValue::Sample(None)) {
        return Err("slice of nil pointer".to_owned());
    }
    if bounds.len() > 3 {
        return Err(format!("too many slice indexes: {}", bounds.len()));
    }
    let length = match item {
        TemplateValue::Text(_) | TemplateValue::Html(_) if bounds.len() == 3 => {
            return Err("cannot 3-index slice a string".to_owned());
        }
        TemplateValue::Text(text) | TemplateValue::Html(text) => text.len(),
        TemplateValue::List(list) => list.items.len(),
        _ => return Err(format!("can't slice item of type {}", target_type(item))),
    };
    let mut edges = [0, length, length];
    for (edge, bound) in edges.iter_mut().zip(bounds) {
        *edge = position(bound, length)?;
    }
    let [from, to, capacity] = edges;
    for (low, high) in [(from, to), (to, capacity)] {
        if low > high {
            return Err(format!("invalid slice index: {low} > {high}"));
        }
    }
    // Go may cut a character in two; here its bytes become the replacement character.
    let cut = |text: &Arc<str>| String::from_utf8_lossy(&text.as_bytes()[from..to]).into();
    Ok(match item {
        TemplateValue::Text(text) => TemplateValue::Text(cut(text)),
        TemplateValue::Html(text) => TemplateValue::Html(cut(text)),
        TemplateValue::List(list) => {
            let items = list.items[from..to].to_vec();
            TemplateValue::List(Arc::new(TemplateList { items, type_name: list.type_name }))
        }
        _ => TemplateValue::Missing,
    })
}

fn sized(text: Result<String, TextSizeExceeded>) -> Result<String, String> {
    text.map_err(|_| {
        format!("text size limit ({} KiB) reached", super::format::TEXT_SIZE_MAX >> 10)
    })
}

/// `print value...`.
pub(super) fn print_values(values: &[TemplateValue]) -> Outcome {
    sized(print(values)).map(TemplateValue::text)
}

/// `println value...`.
pub(super) fn print_values_line(values: &[TemplateValue]) -> Outcome {
    sized(print_line(values)).map(TemplateValue::text)
}

/// `printf format value...`.
pub(super) fn print_values_format(values: &[TemplateValue]) -> Outcome {
    let Some((TemplateValue::Text(format), values)) = values.split_first() else {
        return Ok(TemplateValue::Missing);
    };
    sized(print_format(format, values)).map(TemplateValue::text)
}

/// The text of arguments of `html`, `js` and `urlquery`.
fn joined(values: &[TemplateValue]) -> Result<String, String> {
    let shown: Vec<TemplateValue> = values.iter().map(TemplateValue::printable).collect();
    sized(print(&shown))
}

/// `html value...`.
pub(super) fn html(values: &[TemplateValue]) -> Outcome {
    let mut out = String::new();
    for c in joined(values)?.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(c),
        }
    }
    Ok(TemplateValue::text(out))
}

/// `js value...`.
pub(super) fn js(values: &[TemplateValue]) -> Outcome {
    let mut out = String::new();
    for c in joined(values)?.chars() {
        match c {
            '\\' | '\'' | '"' => {
                out.push('\\');
                out.push(c);
            }
            '<' | '>' | '&' | '=' | '\0'..=' ' if c != ' ' => {
                out.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            _ if c.is_ascii() || is_printable(c) => out.push(c),
            _ => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    Ok(TemplateValue::text(out))
}

/// `urlquery value...`.
pub(super) fn url_query(values: &[TemplateValue]) -> Outcome {
    Ok(TemplateValue::text(query_escape(&joined(values)?)))
}

/// `text` as a value in the query of a URL.
pub(super) fn query_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
