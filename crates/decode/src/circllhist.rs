//! circllhist (OpenHistogram, Circonus) decoder: base64 of the binary form or bins as text, one
//! histogram per line; or a JSON document that contains such base64 strings or lists of bins.
//!
//! In JSON, a histogram's name is its path, joined by back-quotes; the elements of an array share
//! the array's name. Other values in the document are counted as skipped.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};

use codecs::circllhist as codec;
use hist::Histogram;

use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink};
use crate::histogram_lines;
use crate::input_error::InputError;
use crate::json::{JsonToken, JsonTokenizer};

/// A histogram with all 46,082 bins takes 500 kB in binary.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "a histogram: base64 of circllhist, or bins like H[1.2e-01]=2";

/// Reads lines of base64 or bins.
pub fn read_lines(input: &mut dyn BufRead, sink: &mut dyn SampleSink) -> io::Result<()> {
    histogram_lines::read(input, sink, LINE_BYTES_MAX, EXPECTED, |line| {
        std::str::from_utf8(line).ok().map(decode_text)
    })
}

/// Reads JSON documents, one after another.
pub fn read_json(bytes: &[u8], sink: &mut dyn SampleSink) {
    let mut tokens = JsonTokenizer::new(bytes);
    while !tokens.has_next_document() {
        if let Err(error) = read_value(&mut tokens, &mut String::new(), sink) {
            let _ = sink.error(error);
            return;
        }
    }
}

fn read_value(
    tokens: &mut JsonTokenizer<'_>,
    path: &mut String,
    sink: &mut dyn SampleSink,
) -> Result<(), InputError> {
    match tokens.value()? {
        JsonToken::Object => {
            while let Some(key) = tokens.key()? {
                let length = path.len();
                if !path.is_empty() {
                    path.push('`');
                }
                path.push_str(&key);
                read_value(tokens, path, sink)?;
                path.truncate(length);
            }
        }
        JsonToken::Array => {
            while tokens.element()? {
                read_value(tokens, path, sink)?;
            }
        }
        JsonToken::Text(text) => match decode_text(&text) {
            Ok(histogram) => sink.sample(DecodedSample {
                metric: path.clone(),
                ..DecodedSample::new(DecodedValue::Histogram(Box::new(histogram)))
            }),
            Err(_) => sink.skipped("a text"),
        },
        JsonToken::Number(_) => sink.skipped("a number"),
        JsonToken::Bool(_) | JsonToken::Null => sink.skipped("a null, true or false"),
    }
    Ok(())
}

/// Decodes a histogram from any of its text forms.
pub(crate) fn decode_text(text: &str) -> Result<Histogram, hist::DecodeError> {
    if text.starts_with("H[") { codec::decode_text(text) } else { codec::decode_base64(text) }
}

/// Whether the text is a histogram with at least one bin, or the empty histogram.
pub(crate) fn is_histogram(text: &[u8]) -> bool {
    std::str::from_utf8(text.trim_ascii())
        .is_ok_and(|text| !text.is_empty() && decode_text(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoded_sample::RecordingSink;
    use crate::input_error::InputPosition;

    #[track_caller]
    fn check(text: &str, expected: &[&str], errors: &[&str]) {
        let mut sink = RecordingSink::default();
        if text.starts_with(['{', '[']) {
            read_json(text.as_bytes(), &mut sink);
        } else {
            read_lines(&mut text.as_bytes(), &mut sink).unwrap();
        }
        assert_eq!(sink.dump_samples().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.error_texts(), errors);
    }

    const ONE: &str = " histogram of 1: 1.0000..1.1000=1 sum None";
    const TWO: &str = " histogram of 2: 0.1200..0.1300=2 sum None";

    #[test]
    fn base64_and_bin_lines() {
        check("AAEKAAAB\n\n# comment\nH[1.2e-01]=2\n", &[ONE, TWO], &[]);
        check("AAA=", &[" histogram of 0: sum Some(0.0)"], &[]);
    }

    #[test]
    fn json_documents() {
        check(
            "{\"a\":{\"b\":\"AAEKAAAB\"}}",
            &["a`b histogram of 1: 1.0000..1.1000=1 sum None"],
            &[],
        );
        check("[\"AAEKAAAB\",\"AAEKAAAB\",7,null]", &[ONE, ONE], &[]);
    }

    #[test]
    fn damaged_lines_are_named_and_the_rest_is_read() {
        let mut sink = RecordingSink::default();
        read_lines(&mut &b"AAEKAAAB\nAAEKAA\nAAEKAAAB\n"[..], &mut sink).unwrap();
        assert_eq!(sink.samples.len(), 2);
        assert_eq!(sink.errors.len(), 1);
        assert_eq!(sink.errors[0].position, InputPosition::Line(2));
        check(
            "{\"a\":\"AAEKAAAB\",\"b\"}",
            &["a histogram of 1: 1.0000..1.1000=1 sum None"],
            &["byte 19: expected a colon, found \"}\""],
        );
    }
}
