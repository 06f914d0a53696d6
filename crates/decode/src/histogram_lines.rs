//! Lines that each hold one encoded histogram. Empty lines and lines that start with `#` are
//! skipped.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};
use std::ops::ControlFlow;

use hist::{DecodeError, Histogram};

use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink};
use crate::input_error::{InputError, InputPosition, quote};
use crate::lines::{self, InputLine};

/// Reads histograms without name and time. `decode` returns `None` for a line that is not in
/// the format.
pub(crate) fn read(
    input: &mut dyn BufRead,
    sink: &mut dyn SampleSink,
    bytes_max: usize,
    expected: &'static str,
    decode: impl Fn(&[u8]) -> Option<Result<Histogram, DecodeError>>,
) -> io::Result<()> {
    lines::for_each_line(input, bytes_max, |number, line| {
        let (bytes, too_long) = match line {
            InputLine::Complete(line) => (line.trim_ascii(), false),
            InputLine::TooLong { start } => (start, true),
        };
        if bytes.is_empty() || bytes[0] == b'#' {
            return ControlFlow::Continue(());
        }
        let found = match Some(bytes).filter(|_| !too_long).and_then(&decode) {
            Some(Ok(histogram)) => {
                sink.sample(DecodedSample::new(DecodedValue::Histogram(Box::new(histogram))));
                return ControlFlow::Continue(());
            }
            Some(Err(error)) => format!("{} ({error})", quote(bytes)),
            None => quote(bytes),
        };
        sink.error(InputError::new(InputPosition::Line(number), expected, found))
    })
}
