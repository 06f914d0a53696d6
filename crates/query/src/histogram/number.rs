//! Doubles as Prometheus writes them within histograms (Go's `%g`): the shortest digits that read back as the
//! same number, with an exponent below 1e-4 and from 1e6 on.

use std::fmt;

/// A double to be written.
pub(crate) struct Number(pub(crate) f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_nan() {
            return out.write_str("NaN");
        }
        if value.is_infinite() {
            return out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
        }
        let scientific = format!("{value:e}");
        let Some((digits, exponent)) = scientific.split_once('e') else {
            return out.write_str(&scientific);
        };
        match exponent.parse::<i32>() {
            Ok(exponent) if !(-4..6).contains(&exponent) => {
                let sign = if exponent < 0 { '-' } else { '+' };
                write!(out, "{digits}e{sign}{:02}", exponent.abs())
            }
            _ => write!(out, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: f64, expected: &str) {
        assert_eq!(Number(value).to_string(), expected);
    }

    #[test]
    fn as_go_writes_them() {
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
        check(f64::INFINITY, "+Inf");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }
}
