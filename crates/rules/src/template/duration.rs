//! Durations as Prometheus writes them: `1h30m`, `-5s`.

use super::quote::quoted;

const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000_000_000),
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

/// Nanoseconds of a duration, which may be negative.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let (text, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let invalid = || format!("not a valid duration string: {}", quoted(text));
    let mut total: u64 = 0;
    let mut units = &UNITS[..];
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, tail) = rest.split_at(length);
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        let unit = tail.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
        if unit.is_empty() {
            return Err(invalid());
        }
        if !UNITS.iter().any(|(name, _)| *name == unit) {
            return Err(format!("unknown unit {} in duration {}", quoted(unit), quoted(text)));
        }
        // Units go from large to small.
        let found = units.iter().position(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let size_ns = units[found].1;
        units = &units[found + 1..];
        let sum = number.checked_mul(size_ns).and_then(|span| total.checked_add(span));
        total = sum.filter(|sum| i64::try_from(*sum).is_ok()).ok_or("duration out of range")?;
        rest = &tail[unit.len()..];
    }
    let total = i64::try_from(total).map_err(|_| invalid())?;
    Ok(if is_negative { -total } else { total })
}
