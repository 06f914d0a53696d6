//! Numbers and times in Prometheus' JSON format (util/jsonutil/marshal.go): a number is a string of
//! the fewest digits that read back as the same number, with an exponent below 1e-6 and from 1e21;
//! a time is seconds with three decimals or none.

use std::fmt::{Result, Write};

/// Writes a number in quotes.
pub(super) fn write_number(out: &mut dyn Write, value: f64) -> Result {
    if value.is_nan() {
        return out.write_str("\"NaN\"");
    }
    if value.is_infinite() {
        return out.write_str(if value > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" });
    }
    // The common case: integers that a double represents exactly.
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return write!(out, "\"{value}\"");
    }
    let scientific = shortest(value);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(1e-6..1e21).contains(&value.abs()) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(out, "\"{digits}e{sign}{:02}\"", exponent.abs());
    }
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
    match (count - 1 - exponent).max(0) as usize {
        // Digits after the last significant one are zeros, not the double's exact digits.
        0 => write!(out, "\"{value}\""),
        decimals => write!(out, "\"{value:.decimals$}\""),
    }
}

/// The fewest digits with an exponent. If two candidates are equally near, Go uses the even one.
fn shortest(value: f64) -> String {
    let some = format!("{value:e}");
    let mantissa = some.split('e').next().unwrap_or("");
    let decimals = mantissa.bytes().filter(u8::is_ascii_digit).count().saturating_sub(1);
    let even = format!("{value:.decimals$e}");
    if even.parse() == Ok(value) { even } else { some }
}

/// Writes a time in nanoseconds.
pub(super) fn write_time(out: &mut dyn Write, ns: i64) -> Result {
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
