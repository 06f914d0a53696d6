//! Numbers and times (Prometheus' util/jsonutil/marshal.go): a number is a string of
//! the fewest digits that read back as the same number, with an exponent below 1e-6 and from 1e21;
//! a time is seconds with three decimals or none.

use std::fmt::{Result, Write};

/// Writes a number in quotes.
///
/// # Errors
///
/// Those of `out`.
pub fn write_number(out: &mut dyn Write, value: f64) -> Result {
    write_number_then(out, value, "")
}

/// Writes a number in quotes and one more byte, or none, in one piece.
pub(crate) fn write_number_then(out: &mut dyn Write, value: f64, after: &'static str) -> Result {
    let mut text = NumberText::new();
    text.push(b"\"");
    // The common case: integers that a double represents exactly.
    if value.fract() == 0.0 && value.abs() < 9e15 && value.to_bits() != (-0f64).to_bits() {
        text.push(itoa::Buffer::new().format(value as i64).as_bytes());
    } else if value.is_finite() {
        text.push_decimal(value);
    } else {
        text.push(match value {
            f64::INFINITY => b"+Inf",
            f64::NEG_INFINITY => b"-Inf",
            _ => b"NaN",
        });
    }
    text.push(b"\"");
    text.push(after.as_bytes());
    out.write_str(text.as_str())
}

/// Maximum length of a number with its quotes: sign, decimal point, six leading zeros or four bytes
/// of an exponent, and 17 digits, or 22 digits below 1e21.
const NUMBER_BYTES_MAX: usize = 32;

/// Text of one number, so that it is written in one piece.
struct NumberText {
    bytes: [u8; NUMBER_BYTES_MAX],
    len: usize,
}

impl NumberText {
    fn new() -> NumberText {
        NumberText { bytes: [0; NUMBER_BYTES_MAX], len: 0 }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("BUG: numbers are written in ASCII")
    }

    fn push(&mut self, text: &[u8]) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn push_zeros(&mut self, count: usize) {
        self.bytes[self.len..self.len + count].fill(b'0');
        self.len += count;
    }

    /// Appends a finite number.
    fn push_decimal(&mut self, value: f64) {
        let mut buffer = zmij::Buffer::new();
        let ShortestDecimal { digits, count, exponent } =
            ShortestDecimal::parse(buffer.format_finite(value));
        let digits = &digits[..count];
        if value.is_sign_negative() {
            self.push(b"-");
        }
        if value == 0.0 {
            return self.push(b"0");
        }
        let is_scientific = !(1e-6..1e21).contains(&value.abs());
        match exponent {
            _ if is_scientific => {
                self.push(&digits[..1]);
                if count > 1 {
                    self.push(b".");
                    self.push(&digits[1..]);
                }
                self.push(if exponent < 0 { b"e-" } else { b"e+" });
                if exponent.abs() < 10 {
                    self.push(b"0");
                }
                self.push(itoa::Buffer::new().format(exponent.abs()).as_bytes());
            }
            ..0 => {
                self.push(b"0.");
                self.push_zeros((-1 - exponent) as usize);
                self.push(digits);
            }
            0.. => {
                let whole = exponent as usize + 1;
                // Digits after the last significant one are zeros, not the double's exact digits.
                self.push(&digits[..count.min(whole)]);
                match count.checked_sub(whole) {
                    Some(0) => {}
                    Some(_) => {
                        self.push(b".");
                        self.push(&digits[whole..]);
                    }
                    None => self.push_zeros(whole - count),
                }
            }
        }
    }
}

/// Significant digits of a number, and the exponent of the first.
struct ShortestDecimal {
    digits: [u8; 17],
    count: usize,
    exponent: i32,
}

impl ShortestDecimal {
    /// Parses a finite number as zmij writes it: the fewest digits that read back as the same
    /// number; of two candidates that are equally near, the even one, as in Go.
    fn parse(text: &str) -> ShortestDecimal {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut exponent: i32 = exponent.parse().unwrap_or(0);
        let (mut digits, mut count, mut point) = ([b'0'; 17], 0, None);
        let mut is_leading = true;
        for byte in mantissa.bytes() {
            match byte {
                b'.' => point = Some(count),
                b'0' if is_leading => exponent -= i32::from(point.is_some()),
                b'0'..=b'9' => {
                    is_leading = false;
                    // Zeros at the end of a long integer.
                    if let Some(digit) = digits.get_mut(count) {
                        *digit = byte;
                    }
                    count += 1;
                }
                _ => {}
            }
        }
        exponent += point.unwrap_or(count) as i32 - 1;
        count = count.min(digits.len());
        while count > 1 && digits[count - 1] == b'0' {
            count -= 1;
        }
        ShortestDecimal { digits, count: count.max(1), exponent }
    }
}

/// Writes a time in nanoseconds.
///
/// # Errors
///
/// Those of `out`.
pub fn write_time(out: &mut dyn Write, ns: i64) -> Result {
    let ms = ns.div_euclid(1_000_000);
    let sign = if ms < 0 { "-" } else { "" };
    let (seconds, rest) = (ms.unsigned_abs() / 1000, ms.unsigned_abs() % 1000);
    match rest {
        0 => write!(out, "{sign}{seconds}"),
        rest => write!(out, "{sign}{seconds}.{rest:03}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        let mut out = String::new();
        write_number(&mut out, value).unwrap();
        assert_eq!(out, format!("\"{expected}\""));
    }

    #[test]
    fn numbers_are_formatted_as_in_go() {
        check(0.0, "0");
        check(-0.0, "-0");
        check(1.5, "1.5");
        check(12_345_678.9, "12345678.9");
        check(0.1 + 0.2, "0.30000000000000004");
        check(1e20, "100000000000000000000");
        check(1e21, "1e+21");
        check(-1.25e300, "-1.25e+300");
        check(1e-6, "0.000001");
        check(9.99e-7, "9.99e-07");
        check(2f64.powi(-25), "2.9802322387695312e-08");
        check(5e-324, "5e-324");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
    }

    /// The number as the standard library writes it, with the even one of two nearest candidates.
    fn standard_text(value: f64) -> String {
        let shortest = format!("{value:e}");
        let mantissa = shortest.split('e').next().unwrap();
        let decimals = mantissa.bytes().filter(u8::is_ascii_digit).count() - 1;
        let even = format!("{value:.decimals$e}");
        let scientific = if even.parse() == Ok(value) { even } else { shortest };
        let (digits, exponent) = scientific.split_once('e').unwrap();
        let exponent: i32 = exponent.parse().unwrap();
        if !(1e-6..1e21).contains(&value.abs()) && value != 0.0 {
            let sign = if exponent < 0 { '-' } else { '+' };
            return format!("{digits}e{sign}{:02}", exponent.abs());
        }
        let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
        match (count - 1 - exponent).max(0) as usize {
            0 => format!("{value}"),
            decimals => format!("{value:.decimals$}"),
        }
    }

    #[test]
    fn numbers_equal_those_of_the_standard_library() {
        let mut bits = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..200_000 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let scale = 10f64.powi((bits % 60) as i32 - 30);
            let of_fraction = (bits >> 11) as f64 / (1u64 << 53) as f64 * scale;
            for value in [f64::from_bits(bits), of_fraction, of_fraction.round(), -of_fraction] {
                if value.is_finite() {
                    check(value, &standard_text(value));
                }
            }
        }
        for exponent in -1074..1024 {
            let power = 2f64.powi(exponent);
            for value in [power, power.next_down(), power.next_up(), -power, power * 3.0] {
                if value.is_finite() {
                    check(value, &standard_text(value));
                }
            }
        }
    }

    #[test]
    fn times_are_seconds() {
        for (ns, expected) in [
            (1_794_225_600_000_000_000, "1794225600"),
            (1_794_225_600_020_999_999, "1794225600.020"),
            (-1_500_000_000, "-1.500"),
            (0, "0"),
        ] {
            let mut out = String::new();
            write_time(&mut out, ns).unwrap();
            assert_eq!(out, expected);
        }
    }
}
