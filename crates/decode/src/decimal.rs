//! Decimal parsing with unit scaling before rounding.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::Write as _;

/// Integers up to this bound and powers of ten up to 10^22 are exact doubles, so one operation on
/// the two rounds once (fast path of W. D. Clinger, "How to read floating point numbers
/// accurately", 1990).
const EXACT_INTEGER_MAX: u64 = 1 << 53;
const POWERS_OF_TEN: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// Largest number of digits that always fits 64 bits.
const DIGITS_MAX: usize = 19;

/// Parses the number in `text`, rounded once. See [`parse_scaled`].
pub(crate) fn parse(text: &[u8]) -> Option<f64> {
    parse_scaled(text, (1, 0))
}

/// Parses the number in `text` and multiplies it by `scale.0 * 10^scale.1`. Rounds once, or twice
/// if the digits and the scale exceed 64 bits. Besides decimals, `inf`, `infinity` and `nan` are
/// accepted in any case, with or without a sign. Returns `None` for anything else.
pub(crate) fn parse_scaled(text: &[u8], scale: (u64, i32)) -> Option<f64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let magnitude = match parse_decimal(digits) {
        Some(decimal) => decimal.scaled(scale).or_else(|| parse_long(digits, scale))?,
        None => parse_special(digits)?,
    };
    Some(if negative { -magnitude } else { magnitude })
}

struct Decimal {
    mantissa: u64,
    exponent: i32,
    /// The number has more digits than the mantissa holds.
    is_truncated: bool,
}

/// Parses digits with at most one point and an optional exponent.
fn parse_decimal(text: &[u8]) -> Option<Decimal> {
    let (mut mantissa, mut significant, mut seen, mut after_point) = (0u64, 0, false, 0i32);
    let (mut point, mut at) = (false, 0);
    while let Some(&byte) = text.get(at) {
        match byte {
            b'0'..=b'9' => {
                seen = true;
                after_point = after_point.saturating_add(i32::from(point));
                if significant < DIGITS_MAX {
                    let digit = u64::from(byte & 0xf);
                    mantissa = mantissa.saturating_mul(10).saturating_add(digit);
                }
                significant =
                    significant.saturating_add(usize::from(significant > 0 || byte != b'0'));
            }
            b'.' if !point => point = true,
            _ => break,
        }
        at = at.saturating_add(1);
    }
    let mut exponent = 0i32;
    if let [b'e' | b'E', rest @ ..] = &text[at..] {
        let (negative, digits) = match rest {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // Beyond this exponent, no digits bring the number back into the range of doubles.
        let magnitude = digits.iter().fold(0i32, |n, &digit| {
            n.saturating_mul(10).saturating_add(i32::from(digit & 0xf)).min(1_000_000)
        });
        exponent = if negative { magnitude.saturating_neg() } else { magnitude };
        at = text.len();
    }
    (seen && at == text.len()).then_some(Decimal {
        mantissa,
        exponent: exponent.saturating_sub(after_point),
        is_truncated: significant > DIGITS_MAX,
    })
}

impl Decimal {
    fn scaled(&self, (times, power): (u64, i32)) -> Option<f64> {
        let exponent = self.exponent.saturating_add(power);
        if self.is_truncated {
            return None;
        }
        let mantissa = self.mantissa.checked_mul(times)?;
        let power = POWERS_OF_TEN.get(exponent.unsigned_abs() as usize);
        if let (true, Some(power)) = (mantissa <= EXACT_INTEGER_MAX, power) {
            let integer = mantissa as f64;
            return Some(if exponent < 0 { integer / power } else { integer * power });
        }
        let mut text = [0u8; 40];
        let mut rest = &mut text[..];
        write!(rest, "{mantissa}e{exponent}").ok()?;
        let unused = rest.len();
        std::str::from_utf8(&text[..text.len().saturating_sub(unused)]).ok()?.parse().ok()
    }
}

/// More digits than 64 bits hold: the standard library rounds once, the scale rounds a second time.
fn parse_long(digits: &[u8], (times, power): (u64, i32)) -> Option<f64> {
    let number: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(number * (times as f64 * 10f64.powi(power)))
}

fn parse_special(text: &[u8]) -> Option<f64> {
    if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
        Some(f64::INFINITY)
    } else {
        text.eq_ignore_ascii_case(b"nan").then_some(f64::NAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, scale: (u64, i32), expected: Option<f64>) {
        let found = parse_scaled(text.as_bytes(), scale);
        assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits), "{text}");
    }

    #[test]
    fn numbers_match_the_standard_library() {
        for text in [
            "0",
            "-0",
            "1",
            "+1",
            "1.5",
            ".5",
            "5.",
            "1e3",
            "1E-3",
            "1.7976931348623157e308",
            "9007199254740993",
            "0.1",
            "123456789012345678901234567890",
            "4.9e-324",
            "1e400",
            "0.000000000000000000000000000001",
            "18446744073709551615",
            "1e-400",
            "inf",
            "-Infinity",
        ] {
            check(text, (1, 0), Some(text.parse().unwrap()));
        }
        assert!(parse(b"NaN").unwrap().is_nan());
    }

    #[test]
    fn units_are_applied_before_rounding() {
        check("1.1", (1, 6), Some(1_100_000.0));
        check("0.29", (1, 9), Some(290_000_000.0));
        check("1.15", (6, 10), Some(69_000_000_000.0));
        check("1234567890123.456789", (1, 9), Some(1_234_567_890_123_456_789_000.0));
    }

    #[test]
    fn non_numbers_are_rejected() {
        for text in
            ["", "-", ".", "e5", "1e", "1e+", "1e5.0", "1,5", "12 ms", "0x10", "1_000", "١", "--1"]
        {
            check(text, (1, 0), None);
        }
    }
}
