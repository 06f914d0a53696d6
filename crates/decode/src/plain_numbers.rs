//! Decoder of plain numbers, one per line; blank lines and `#` comments are skipped.
//!
//! With a unit of time, each number is converted to nanoseconds and rounded once: `1.1` in ms is
//! exactly 1100000 ns. `nan` and `inf` are valid. The line length limit is [`LINE_BYTES_MAX`].
//! Memory use is independent of the input's size.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};
use std::ops::ControlFlow;

use crate::decimal;
use crate::decoded_sample::SampleSink;
use crate::input_error::{InputError, InputPosition, quote};
use crate::lines::{self, InputLine};
use crate::unit::Unit;

/// Line length limit. Programs do not print longer numbers.
pub const LINE_BYTES_MAX: usize = 4096;

/// Reads numbers in `unit`. Times are converted to nanoseconds; other values are unchanged.
pub fn read_numbers(
    input: &mut dyn BufRead,
    unit: Option<&Unit>,
    sink: &mut dyn SampleSink,
) -> io::Result<()> {
    let scale = unit.and_then(Unit::nanoseconds).unwrap_or((1, 0));
    lines::for_each_line(input, LINE_BYTES_MAX, |line_number, line| {
        let line = match line {
            InputLine::Complete(line) => line.trim_ascii(),
            InputLine::TooLong { start } => {
                let found = format!("a line of more than {LINE_BYTES_MAX} bytes: {}", quote(start));
                return sink.error(InputError::new(
                    InputPosition::Line(line_number),
                    "a number",
                    found,
                ));
            }
        };
        if line.is_empty() || line[0] == b'#' {
            return ControlFlow::Continue(());
        }
        match decimal::parse_scaled(line, scale) {
            Some(value) => {
                sink.number(value);
                ControlFlow::Continue(())
            }
            None => sink.error(InputError::new(
                InputPosition::Line(line_number),
                "a number",
                quote(line),
            )),
        }
    })
}

/// Length of a number without an exponent that is finite in every unit.
const FINITE_BYTES_MAX: usize = 200;

/// The first line with a number that is valid but not finite: `nan`, `inf`, or one beyond the
/// greatest double, such as `1e400`.
pub fn find_non_finite(input: &[u8], unit: Option<&Unit>) -> Option<InputError> {
    let scale = unit.and_then(Unit::nanoseconds).unwrap_or((1, 0));
    let is_plain = |line: &[u8]| {
        let is_digit = |byte: &u8| byte.is_ascii_digit() || b".+-".contains(byte);
        line.len() <= FINITE_BYTES_MAX && line.iter().all(is_digit)
    };
    let is_infinite =
        |line: &[u8]| decimal::parse_scaled(line, scale).is_some_and(|value| !value.is_finite());
    let mut lines = (1..).zip(input.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii));
    let (number, line) = lines.find(|(_, line)| !is_plain(line) && is_infinite(line))?;
    Some(InputError::new(InputPosition::Line(number), "a finite number", quote(line)))
}

/// Whether the line is valid for this decoder.
pub(crate) fn is_number(line: &[u8]) -> bool {
    decimal::parse(line.trim_ascii()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_sample::RecordingSink;

    #[track_caller]
    fn check(text: &str, unit: Option<Unit>, values: &[f64], errors: &[&str]) {
        let mut sink = RecordingSink::default();
        read_numbers(&mut text.as_bytes(), unit.as_ref(), &mut sink).unwrap();
        assert_eq!(sink.numbers, values);
        assert_eq!(sink.error_texts(), errors);
    }

    #[test]
    fn numbers_blank_lines_and_comments() {
        check("1\n\n# two\n 2.5 \r\n-3e2", None, &[1.0, 2.5, -300.0], &[]);
        check("", None, &[], &[]);
        check("inf\n-inf", None, &[f64::INFINITY, f64::NEG_INFINITY], &[]);
    }

    #[test]
    fn times_become_nanoseconds() {
        check("1.1\n0.000001", Some(Unit::Milliseconds), &[1_100_000.0, 1.0], &[]);
        check("5", Some(Unit::Bytes), &[5.0], &[]);
    }

    /// `1e400` was stored as infinity, and `NaN` in no count.
    #[test]
    fn a_number_that_is_not_finite_is_found_with_its_line() {
        let found = |text: &str, unit: Option<Unit>| {
            find_non_finite(text.as_bytes(), unit.as_ref()).map(|error| error.to_string())
        };
        let error =
            |line, text| Some(format!("line {line}: expected a finite number, found {text}"));
        assert_eq!(found("5\r\nNaN\r\n", None), error(2, "\"NaN\""));
        assert_eq!(found("1e400", Some(Unit::Milliseconds)), error(1, "\"1e400\""));
        assert_eq!(found("-inf", None), error(1, "\"-inf\""));
        // Finite until it is converted to nanoseconds.
        assert_eq!(found("1e308", Some(Unit::Milliseconds)), error(1, "\"1e308\""));
        for fine in ["1e308", "-3e2", "", "# nan", "1.5\n\n-0\n", "nanny"] {
            assert_eq!(found(fine, None), None, "{fine}");
        }
    }

    #[test]
    fn non_numbers_are_named_with_their_line() {
        check("1\nabc\n2\n", None, &[1.0, 2.0], &["line 2: expected a number, found \"abc\""]);
        check("12 ms\n", None, &[], &["line 1: expected a number, found \"12 ms\""]);
        let long = "9".repeat(5000);
        let found = format!(
            "line 1: expected a number, found a line of more than 4096 bytes: \"{}…\"",
            "9".repeat(40)
        );
        check(&long, None, &[], &[&found]);
    }
}
