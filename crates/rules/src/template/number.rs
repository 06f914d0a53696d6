//! Number literals of templates: integers in four bases, floats, characters.

use super::float::parse_float;
use super::node::NumberLiteral;
use super::quote::{quoted, unquote_char_constant};
use super::token::{PositionedToken, TemplateTokenKind};

/// The number that a token stands for, or the message.
pub(super) fn number_literal(token: &PositionedToken) -> Result<NumberLiteral, String> {
    let source = token.text.clone();
    if token.kind == TemplateTokenKind::CharConstant {
        let code = unquote_char_constant(&source)?;
        return Ok(NumberLiteral { source, integer: Some(code), float: code as f64 });
    }
    if let Some(integer) = parse_integer(&source) {
        if let Ok(integer) = i64::try_from(integer) {
            let float = integer as f64;
            return Ok(NumberLiteral { source, integer: Some(integer), float });
        }
        if let Ok(unsigned) = u64::try_from(integer) {
            return Ok(NumberLiteral { source, integer: None, float: unsigned as f64 });
        }
    }
    let parsed = parse_float(&source).filter(|float| float.is_finite());
    let Some(float) = parsed else {
        // Complex numbers, which no function of a template takes, end here.
        return Err(format!("illegal number syntax: {}", quoted(&source)));
    };
    if !source.contains(['.', 'e', 'E', 'p', 'P']) {
        return Err(format!("integer overflow: {}", quoted(&source)));
    }
    let integer = (float as i64 as f64 == float).then_some(float as i64);
    Ok(NumberLiteral { source, integer, float })
}

/// An integer literal of Go: sign, base prefix, underscores between digits.
fn parse_integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.get(..2) {
        Some("0x") => (16, &lower[2..]),
        Some("0o") => (8, &lower[2..]),
        Some("0b") => (2, &lower[2..]),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    let has_prefix = body.len() < lower.len();
    let misplaced = body.ends_with('_')
        || body.contains("__")
        || (body.starts_with('_') && !has_prefix)
        || body.starts_with(['+', '-']);
    let body = body.replace('_', "");
    if misplaced || body.is_empty() || body.len() > 100 {
        return None;
    }
    let value = i128::from_str_radix(&body, radix).ok()?;
    Some(if negative { -value } else { value })
}
