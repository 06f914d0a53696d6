//! Floating point numbers as Go reads and writes them.

/// Number of digits after the point or, for `g`, of significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FloatPrecision {
    /// As few digits as identify the number.
    Shortest,
    Digits(usize),
}

/// More digits than any float has before its trailing zeros, which is 1,074. The standard library
/// panics above 65,535.
const DIGITS_MAX: usize = 1100;

/// The zeros of a precision above [`DIGITS_MAX`].
fn further_zeros(precision: FloatPrecision) -> String {
    match precision {
        FloatPrecision::Digits(count) => "0".repeat(count.saturating_sub(DIGITS_MAX)),
        FloatPrecision::Shortest => String::new(),
    }
}

/// `value` as `strconv.FormatFloat` writes it; `verb` is one of `eEfFgGxX`.
pub(super) fn format_float(value: f64, verb: char, precision: FloatPrecision) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() };
    }
    match verb {
        'e' | 'E' => {
            let text = match precision {
                FloatPrecision::Shortest => format!("{value:e}"),
                FloatPrecision::Digits(count) => format!("{value:.*e}", count.min(DIGITS_MAX)),
            };
            let (mantissa, exponent) = split(&text);
            scientific(&(mantissa.to_owned() + &further_zeros(precision)), exponent, verb)
        }
        'g' | 'G' => general(value, verb, precision),
        'x' | 'X' => hexadecimal(value, verb, precision),
        _ => match precision {
            FloatPrecision::Shortest => format!("{value}"),
            FloatPrecision::Digits(count) => {
                format!("{value:.*}{}", count.min(DIGITS_MAX), further_zeros(precision))
            }
        },
    }
}

/// Parses a float of Go: decimal, hexadecimal, `Inf`, `Infinity`, `NaN`; underscores may separate
/// digits. A number out of range is infinite.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let mut lower = text.to_ascii_lowercase();
    if lower.contains('_') {
        let bytes = lower.as_bytes();
        let is_hexadecimal = lower.trim_start_matches(['+', '-']).starts_with("0x");
        let is_digit = |at: usize| match bytes.get(at) {
            Some(byte) if is_hexadecimal => byte.is_ascii_hexdigit(),
            Some(byte) => byte.is_ascii_digit(),
            None => false,
        };
        let follows = |at: usize| at > 0 && (is_digit(at - 1) || bytes[at - 1] == b'x');
        if !lower.match_indices('_').all(|(at, _)| follows(at) && is_digit(at + 1)) {
            return None;
        }
        lower.retain(|c| c != '_');
    }
    let unsigned = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    if let Some(digits) = unsigned.strip_prefix("0x") {
        let value = parse_hexadecimal(digits)?;
        return Some(if lower.starts_with('-') { -value } else { value });
    }
    let starts_number = unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit());
    match starts_number || matches!(unsigned, "inf" | "infinity" | "nan") {
        true => lower.parse().ok(),
        false => None,
    }
}

fn parse_hexadecimal(digits: &str) -> Option<f64> {
    let (mantissa, exponent) = digits.split_once('p')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || all.len() > 13 {
        return None;
    }
    let value = u64::from_str_radix(&all, 16).ok()? as f64;
    let scale = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(value * 2f64.powi(scale))
}

fn split(text: &str) -> (&str, i32) {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    (mantissa, exponent.parse().unwrap_or(0))
}

fn scientific(mantissa: &str, exponent: i32, verb: char) -> String {
    let letter = if verb.is_ascii_uppercase() { 'E' } else { 'e' };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}{letter}{sign}{:02}", exponent.unsigned_abs())
}

fn general(value: f64, verb: char, precision: FloatPrecision) -> String {
    let (text, threshold) = match precision {
        FloatPrecision::Shortest => (format!("{value:e}"), None),
        FloatPrecision::Digits(count) => {
            let count = count.max(1);
            (format!("{value:.*e}", (count - 1).min(DIGITS_MAX)), Some(count))
        }
    };
    let (mantissa, exponent) = split(&text);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        trimmed => trimmed,
    };
    let digit_count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let limit = match threshold {
        // Whatever the number of digits: 100000, but 1e+06.
        None => 6,
        Some(count) => {
            let count = i32::try_from(count).unwrap_or(i32::MAX);
            if count > digit_count && digit_count > exponent { digit_count.max(1) } else { count }
        }
    };
    if exponent < -4 || exponent >= limit {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        return scientific(&format!("{sign}{first}{point}{rest}"), exponent, verb);
    }
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        return format!("{sign}0.{zeros}{digits}");
    }
    let whole = usize::try_from(exponent).unwrap_or(0) + 1;
    match digits.len() <= whole {
        true => format!("{sign}{digits}{}", "0".repeat(whole - digits.len())),
        false => format!("{sign}{}.{}", &digits[..whole], &digits[whole..]),
    }
}

/// Hexadecimal mantissa and binary exponent: `0x1.8p+01`.
fn hexadecimal(value: f64, verb: char, precision: FloatPrecision) -> String {
    let bits = value.to_bits();
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let biased = i32::try_from((bits >> 52) & 0x7ff).unwrap_or(0);
    let fraction = bits & ((1 << 52) - 1);
    let (mut mantissa, mut exponent) = match biased {
        0 if fraction == 0 => (0, 0),
        0 => {
            let shift = fraction.leading_zeros() - 11;
            (fraction << shift, -1022 - i32::try_from(shift).unwrap_or(0))
        }
        _ => (fraction | (1 << 52), biased - 1023),
    };
    if let FloatPrecision::Digits(count @ 0..13) = precision {
        let dropped = 4 * (13 - count);
        let half = 1u64 << (dropped - 1);
        let rest = mantissa & ((1 << dropped) - 1);
        mantissa >>= dropped;
        if rest > half || (rest == half && mantissa & 1 == 1) {
            mantissa += 1;
        }
        mantissa <<= dropped;
        if mantissa >> 53 == 1 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let mut digits = format!("{:013x}", mantissa & ((1 << 52) - 1));
    match precision {
        FloatPrecision::Shortest => digits.truncate(digits.trim_end_matches('0').len()),
        FloatPrecision::Digits(count) if count < 13 => digits.truncate(count),
        FloatPrecision::Digits(count) => digits.push_str(&"0".repeat(count - 13)),
    }
    let point = if digits.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    let text = format!(
        "{sign}0x{}{point}{digits}p{exponent_sign}{:02}",
        mantissa >> 52,
        exponent.unsigned_abs()
    );
    if verb == 'X' { text.to_uppercase() } else { text }
}
