//! Text of numbers and durations.

/// Units, longest first: the order in which they must be written.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 24 * 3600 * 1_000_000_000),
    ("w", 7 * 24 * 3600 * 1_000_000_000),
    ("d", 24 * 3600 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
];

const NANOS_PER_MS: i64 = 1_000_000;
/// Milliseconds of the longest duration, 292 years.
const MAX_MS: f64 = (i64::MAX / NANOS_PER_MS) as f64;

/// Nanoseconds of a duration such as `1h30m`; a year has 365 days. `0` needs no unit.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    let invalid = || format!("not a valid duration string: {}", super::quote::quote_text(text));
    match text {
        "0" => return Ok(0),
        "" => return Err("empty duration string".to_owned()),
        _ => {}
    }
    let (mut rest, mut sum) = (text, 0i64);
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let count: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit;
        (unit, rest) = rest.split_at(letters);
        if unit.is_empty() {
            return Err(invalid());
        }
        if UNITS.iter().all(|(name, _)| *name != unit) {
            let (unit, text) = (super::quote::quote_text(unit), super::quote::quote_text(text));
            return Err(format!("unknown unit {unit} in duration {text}"));
        }
        // The iterator is consumed, so a repeated or misplaced unit is not found.
        let (_, nanos) = units.find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        sum = i64::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(*nanos))
            .and_then(|nanos| sum.checked_add(nanos))
            .ok_or("duration out of range")?;
    }
    Ok(sum)
}

/// Seconds of a duration of an expression. Unlike in Prometheus, it may have a fraction (`1.5s`),
/// as durations have everywhere else in topdeck, of whole milliseconds.
pub(crate) fn parse_seconds(text: &str) -> Result<f64, String> {
    let fraction = UNITS.iter().find_map(|(name, nanos)| {
        let count = text.strip_suffix(name).filter(|count| count.contains('.'))?;
        let is_plain = count.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let count: f64 = count.parse().ok().filter(|_| is_plain)?;
        Some(count * (*nanos / NANOS_PER_MS) as f64)
    });
    let Some(ms) = fraction else {
        return parse_duration(text).map(|nanos| (nanos / NANOS_PER_MS) as f64 / 1e3);
    };
    // A decimal fraction of a unit has a rounding error.
    let whole = ms.round();
    if (ms - whole).abs() > 1e-9 * ms.max(1.0) {
        let text = super::quote::quote_text(text);
        return Err(format!("{text} is not a whole number of milliseconds"));
    }
    match whole < MAX_MS {
        true => Ok(whole / 1e3),
        false => Err("duration out of range".to_owned()),
    }
}

/// Formatted duration: whole milliseconds; years and weeks only without a remainder.
pub(crate) fn show_duration(nanos: i64) -> String {
    let mut rest = (nanos / 1_000_000).unsigned_abs();
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::from(if nanos < 0 { "-" } else { "" });
    for (name, unit) in UNITS {
        let unit = (unit / 1_000_000) as u64;
        if matches!(name, "y" | "w") && !rest.is_multiple_of(unit) {
            continue;
        }
        let count = rest / unit;
        if count > 0 {
            text.push_str(&format!("{count}{name}"));
            rest %= unit;
        }
    }
    text
}

/// Parses a number of an expression: `1`, `0x1f`, `017`, `1_000`, `1e3`, `.5`, `Inf`, `NaN`, with
/// or without a sign.
pub fn parse_number(text: &str) -> Result<f64, String> {
    let failed = |reason: &str| {
        let text = super::quote::quote_text(text);
        format!("error parsing number: strconv.ParseFloat: parsing {text}: {reason}")
    };
    let (sign, plain) = match text.as_bytes().first() {
        Some(b'-') => (-1.0, &text[1..]),
        Some(b'+') => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    if plain.starts_with(['+', '-']) {
        return Err(failed("invalid syntax"));
    }
    if let Some(integer) = parse_integer(plain) {
        return Ok(sign * integer as f64);
    }
    match plain.to_ascii_lowercase().as_str() {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        lower if lower.starts_with("0x") => {
            // Without an exponent, a hexadecimal number is not a float; with one, the lexer rejects
            // it.
            return Err(failed("invalid syntax"));
        }
        _ => {}
    }
    let is_known = |c: u8| matches!(c, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-' | b'_');
    if !plain.bytes().all(is_known) || !are_underscores_valid(plain, 10) {
        return Err(failed("invalid syntax"));
    }
    match plain.replace('_', "").parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(sign * number),
        Ok(_) => Err(failed("value out of range")),
        Err(_) => Err(failed("invalid syntax")),
    }
}

/// Whether every `_` is between two digits, or after a base prefix.
fn are_underscores_valid(digits: &str, base: u32) -> bool {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_digit(base));
    digits.match_indices('_').all(|(at, _)| {
        let is_after = at == 0 && base != 10 || is_digit(digits[..at].chars().next_back());
        is_after && is_digit(digits[at + 1..].chars().next())
    })
}

/// Integer in Go's notation: base prefixes `0x`, `0o`, `0b` or `0`, `_` between digits.
fn parse_integer(text: &str) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    let (base, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &*lower),
    };
    if !are_underscores_valid(digits, base) {
        return None;
    }
    i64::from_str_radix(&digits.replace('_', ""), base).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: f64) {
        let found = parse_number(text).unwrap();
        assert!(found == expected || found.is_nan() && expected.is_nan(), "{text}: {found}");
    }

    #[test]
    fn numbers() {
        check("1", 1.0);
        check("-0x1F", -31.0);
        check("0x_1F", 31.0);
        check("017", 15.0);
        check("089", 89.0);
        check("1_000", 1000.0);
        check("1_0.0_5", 10.05);
        check("5.", 5.0);
        check(".5e1", 5.0);
        check("+Inf", f64::INFINITY);
        check("-inf", f64::NEG_INFINITY);
        check("nAn", f64::NAN);
        check("9223372036854775808", 9_223_372_036_854_775_808.0);
        for text in
            ["", "-", "_1", "1_", "1__0", "1_.5", "1e_5", "0x", "1e", "--1", "1e999", "e", "1s"]
        {
            assert!(parse_number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [("0", 0), ("5m", 300_000), ("1h30m", 5_400_000), ("1s1ms", 1001)] {
            assert_eq!(parse_duration(text), Ok(ms * 1_000_000), "{text}");
        }
        assert_eq!(parse_duration("292y"), Ok(292 * UNITS[0].1));
        assert_eq!(parse_duration("293y").unwrap_err(), "duration out of range");
        assert_eq!(parse_duration("5hs").unwrap_err(), "unknown unit \"hs\" in duration \"5hs\"");
        for text in ["5m1h", "5m1m", "m", "5", "-5m", "1.5h", ""] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn duration_of_an_expression_may_have_a_fraction() {
        for (text, seconds) in
            [("1.5s", 1.5), ("0.251s", 0.251), ("2.0ms", 0.002), ("1.5h", 5400.0)]
        {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in ["2.5ms", ".63ms", "0.0001s", "300.0y", "9999999999999999999.9y"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("1h30m"), Ok(5400.0));
        for text in ["1.5.5s", "1.5", "1.5x", "1m1.5s", "-1.5s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown() {
        for text in ["0s", "5m", "1h30m", "90d", "2w", "1y", "-1d1ms", "12w1d"] {
            let nanos = text.strip_prefix('-').map_or_else(
                || parse_duration(text).unwrap(),
                |positive| -parse_duration(positive).unwrap(),
            );
            let expected = if text == "12w1d" { "85d" } else { text };
            assert_eq!(show_duration(nanos), expected);
        }
    }
}
