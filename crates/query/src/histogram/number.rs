//! Doubles in the format of Prometheus' histograms (Go's `%g`): the shortest digits that read back
//! as the same number, with an exponent below 1e-4 and from 1e6.

use std::fmt;

/// Double formatted as Go's `%g`.
pub(crate) struct GoNumber(pub(crate) f64);

impl fmt::Display for GoNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if let Some(word) = special_name(value) {
            return out.write_str(word);
        }
        let ShortestDigits { scientific, exponent, .. } = ShortestDigits::format(value);
        match scientific.split_once('e') {
            Some((digits, _)) if !(-4..6).contains(&exponent) => {
                let sign = if exponent < 0 { '-' } else { '+' };
                write!(out, "{digits}e{sign}{:02}", exponent.abs())
            }
            _ => write!(out, "{}", GoPlainNumber(value)),
        }
    }
}

/// Double formatted without an exponent (Go's `%f`).
pub(crate) struct GoPlainNumber(pub(crate) f64);

impl fmt::Display for GoPlainNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if let Some(word) = special_name(value) {
            return out.write_str(word);
        }
        let ShortestDigits { digits, exponent, .. } = ShortestDigits::format(value);
        let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
        match decimals {
            // After the last significant digit come zeros, not the exact digits of the double.
            0 => write!(out, "{value}"),
            _ => write!(out, "{value:.decimals$}"),
        }
    }
}

fn special_name(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_nan() => Some("NaN"),
        f64::INFINITY => Some("+Inf"),
        f64::NEG_INFINITY => Some("-Inf"),
        _ => None,
    }
}

/// Fewest digits that read back as the same number.
struct ShortestDigits {
    /// `-1.25e-7`.
    scientific: String,
    digits: usize,
    exponent: i32,
}

impl ShortestDigits {
    /// If two candidates of the same length are equally near, the even one is taken, as in Go.
    fn format(value: f64) -> ShortestDigits {
        let some = format!("{value:e}");
        let mantissa = some.split('e').next().unwrap_or("");
        let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
        let decimals = digits.saturating_sub(1);
        let even = format!("{value:.decimals$e}");
        let scientific = if even.parse() == Ok(value) { even } else { some };
        let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
        ShortestDigits { exponent: exponent.unwrap_or(0), digits, scientific }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(GoNumber(value).to_string(), expected);
    }

    #[test]
    fn numbers_are_written_as_in_go() {
        check(0.0, "0");
        check(-0.0, "-0");
        check(100_000.0, "100000");
        check(123_456.0, "123456");
        check(1_234_567.0, "1.234567e+06");
        check(-1e21, "-1e+21");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(1e-107, "1e-107");
        check(12_345_678.9, "1.23456789e+07");
        // Tie with …313e-08.
        check(2f64.powi(-25), "2.9802322387695312e-08");
        assert_eq!(GoPlainNumber(2f64.powi(-25)).to_string(), "0.000000029802322387695312");
        assert_eq!(GoPlainNumber(-1e23).to_string(), "-100000000000000000000000");
        assert_eq!(GoPlainNumber(1.5).to_string(), "1.5");
        assert_eq!(GoPlainNumber(-0.0).to_string(), "-0");
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }
}
