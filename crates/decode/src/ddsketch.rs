//! DDSketch decoder: one sketch that fills the input, in binary or protobuf form; or base64 of
//! sketches, one per line.
//!
//! A sketch has no name, time or unit. The size limit is 1 MiB for an input and for a line; a
//! sketch with 4,096 bins takes 53 kB in the longer form. Counts that are not whole numbers are
//! rejected.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead, Read as _};

use codecs::ddsketch as codec;

use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink};
use crate::histogram_lines;
use crate::input_error::{InputError, InputPosition};

/// Size limit of a sketch and of a line.
const SKETCH_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "a DDSketch: binary, protobuf, or base64 of one of them";

/// Reads one sketch, or lines of base64.
pub fn read(input: &mut dyn BufRead, sink: &mut dyn SampleSink) -> io::Result<()> {
    let mut head = Vec::new();
    (&mut *input).take(SKETCH_BYTES_MAX.saturating_add(1) as u64).read_to_end(&mut head)?;
    if !is_binary(&head) {
        let mut input = head.chain(input);
        return histogram_lines::read(&mut input, sink, SKETCH_BYTES_MAX, EXPECTED, |line| {
            Some(codec::decode_base64(line))
        });
    }
    if head.len() > SKETCH_BYTES_MAX {
        let expected = "the end of the sketch (limit 1 MiB)";
        let position = InputPosition::Byte(SKETCH_BYTES_MAX as u64);
        let _ = sink.error(InputError::new(position, expected, "more"));
        return Ok(());
    }
    match codec::decode_any(&head) {
        Ok(histogram) => {
            sink.sample(DecodedSample::new(DecodedValue::Histogram(Box::new(histogram))));
        }
        Err(error) => {
            let found = error.to_string();
            let _ = sink.error(InputError::new(InputPosition::Byte(0), EXPECTED, found));
        }
    }
    Ok(())
}

/// Bytes that tell text from a sketch. A sketch starts with a flag or with its mapping.
const CHECKED_BYTES: usize = 4096;

/// Whether the input is not text. A sketch never is: it contains the mapping's gamma as a double.
fn is_binary(bytes: &[u8]) -> bool {
    let bytes = &bytes[..bytes.len().min(CHECKED_BYTES)];
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    // A character that is cut off at the end counts as text.
    let is_no_text = std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_some());
    is_no_text || bytes.iter().any(is_control)
}

/// Whether the whole input is one sketch.
pub(crate) fn is_sketch(bytes: &[u8]) -> bool {
    bytes.len() <= SKETCH_BYTES_MAX && is_binary(bytes) && codec::decode_any(bytes).is_ok()
}

/// Whether the line is base64 of a sketch.
pub(crate) fn is_line(line: &[u8]) -> bool {
    codec::decode_base64(line.trim_ascii()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_sample::RecordingSink;

    /// Sketch of the values 1 to 5 with 1 % accuracy, as written by sketches-go.
    const BINARY: &str = "02fd4a815abf52f03f000000000000000005050002440228021e021602";
    /// Sketch of two values of 1 in protobuf form.
    const PROTOBUF: &str = "0a0909fd4a815abf52f03f120a12080000000000000040";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().map(|digit| digit.to_digit(16).unwrap() as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[track_caller]
    fn check(input: &[u8], counts: &[u64], errors: &[&str]) {
        let mut sink = RecordingSink::default();
        read(&mut &input[..], &mut sink).unwrap();
        let count = |sample: &DecodedSample| match &sample.value {
            DecodedValue::Histogram(histogram) => histogram.count(),
            other => panic!("{other:?}"),
        };
        assert_eq!(sink.samples.iter().map(count).collect::<Vec<_>>(), counts);
        assert_eq!(sink.error_texts(), errors);
    }

    #[test]
    fn a_sketch_fills_the_input() {
        check(&bytes(BINARY), &[5], &[]);
        check(&bytes(PROTOBUF), &[2], &[]);
        // Concatenated encodings with the same mapping are valid.
        check(&bytes(&BINARY.repeat(2)), &[10], &[]);
        assert!(is_sketch(&bytes(BINARY)) && is_sketch(&bytes(PROTOBUF)));
    }

    #[test]
    fn lines_of_base64() {
        let lines = "# comment\n\nAv1KgVq/UvA/AAAAAAAAAAAFBQACRAIoAh4CFgI=\n\
                     CgkJ/UqBWr9S8D8SChIIAAAAAAAAAEA\r\nAAEKAAAB\n";
        let error = "line 5: expected a DDSketch: binary, protobuf, or base64 of one of them, \
                     found \"AAEKAAAB\" (";
        let mut sink = RecordingSink::default();
        read(&mut lines.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.samples.len(), 2);
        let [found] = &sink.error_texts()[..] else { panic!("{:?}", sink.errors) };
        assert!(found.starts_with(error), "{found}");
        assert!(is_line(b"CgkJ/UqBWr9S8D8SChIIAAAAAAAAAEA") && !is_line(b"AAEKAAAB"));
    }

    #[test]
    fn damage_is_named() {
        let cut = &bytes(BINARY)[..20];
        let text = "byte 0: expected a DDSketch: binary, protobuf, or base64 of one of them, found";
        check(cut, &[], &[&format!("{text} at byte 20: the input ends inside bin count")]);
        let mut large = bytes(BINARY);
        large.resize(SKETCH_BYTES_MAX + 1, 0);
        check(
            &large,
            &[],
            &["byte 1048576: expected the end of the sketch (limit 1 MiB), found more"],
        );
        let half = bytes("0a0909fd4a815abf52f03f120a1208000000000000e03f");
        let mut sink = RecordingSink::default();
        read(&mut &half[..], &mut sink).unwrap();
        let [error] = &sink.error_texts()[..] else { panic!("{:?}", sink.samples) };
        assert!(error.contains("is 0.5, expected a whole number"), "{error}");
    }
}
