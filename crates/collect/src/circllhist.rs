//! circllhist (OpenHistogram, Circonus): base64 of the binary form, or bins as text, one histogram per
//! line; or any JSON document that holds such base64 strings or lists of bins.
//!
//! In JSON a histogram is named by its path, joined by back-quotes; in an array all have the array's name.
//! Other values in the document are no histograms and are counted as skipped.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};
use std::ops::ControlFlow;

use hist::Histogram;
use hist::codec::circllhist as codec;

use crate::json::{Token, Tokens};
use crate::lines::{self, Line};
use crate::reading::{Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};

/// A histogram in all of its 46,082 bins is 500 kB in binary.
const LINE_BYTES_MAX: usize = 1 << 20;

const EXPECTED: &str = "a histogram: base64 of circllhist, or bins like H[1.2e-01]=2";

/// Reads lines of base64 or of bins.
pub fn read_lines(input: &mut dyn BufRead, sink: &mut dyn Sink) -> io::Result<()> {
    lines::for_each(input, LINE_BYTES_MAX, |number, line| {
        let (bytes, too_long) = match line {
            Line::Whole(line) => (line.trim_ascii(), false),
            Line::TooLong { start } => (start, true),
        };
        if bytes.is_empty() || bytes[0] == b'#' {
            return ControlFlow::Continue(());
        }
        let decoded = std::str::from_utf8(bytes).ok().filter(|_| !too_long).map(decode);
        match decoded {
            Some(Ok(histogram)) => {
                sink.reading(Reading::new(Value::Histogram(Box::new(histogram))));
                ControlFlow::Continue(())
            }
            Some(Err(why)) => {
                let found = format!("{} ({why})", quote(bytes));
                sink.trouble(Trouble::new(Place::Line(number), EXPECTED, found))
            }
            None => sink.trouble(Trouble::new(Place::Line(number), EXPECTED, quote(bytes))),
        }
    })
}

/// Reads JSON documents, one after another.
pub fn read_json(bytes: &[u8], sink: &mut dyn Sink) {
    let mut tokens = Tokens::new(bytes);
    while !tokens.at_end() {
        if let Err(trouble) = read_value(&mut tokens, &mut String::new(), sink) {
            let _ = sink.trouble(trouble);
            return;
        }
    }
}

fn read_value(
    tokens: &mut Tokens<'_>,
    path: &mut String,
    sink: &mut dyn Sink,
) -> Result<(), Trouble> {
    match tokens.value()? {
        Token::Object => {
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
        Token::Array => {
            while tokens.element()? {
                read_value(tokens, path, sink)?;
            }
        }
        Token::Text(text) => match decode(&text) {
            Ok(histogram) => sink.reading(Reading {
                metric: path.clone(),
                ..Reading::new(Value::Histogram(Box::new(histogram)))
            }),
            Err(_) => sink.skipped("a text"),
        },
        Token::Number(_) => sink.skipped("a number"),
        Token::Bool(_) | Token::Null => sink.skipped("a null, true or false"),
    }
    Ok(())
}

/// A histogram from any of its text forms.
pub(crate) fn decode(text: &str) -> Result<Histogram, hist::DecodeError> {
    if text.starts_with("H[") { codec::decode_text(text) } else { codec::decode_base64(text) }
}

/// Whether a text is a histogram of at least one bin, or the one that is empty.
pub(crate) fn is_histogram(text: &[u8]) -> bool {
    std::str::from_utf8(text.trim_ascii())
        .is_ok_and(|text| !text.is_empty() && decode(text).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Recorded;

    #[track_caller]
    fn check(text: &str, expected: &[&str], troubles: &[&str]) {
        let mut sink = Recorded::default();
        if text.starts_with(['{', '[']) {
            read_json(text.as_bytes(), &mut sink);
        } else {
            read_lines(&mut text.as_bytes(), &mut sink).unwrap();
        }
        assert_eq!(sink.shown().lines().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(sink.troubles(), troubles);
    }

    const ONE: &str = " histogram of 1: 1.0000..1.1000=1 sum None";
    const TWO: &str = " histogram of 2: 0.1200..0.1300=2 sum None";

    #[test]
    fn lines() {
        check("AAEKAAAB\n\n# comment\nH[1.2e-01]=2\n", &[ONE, TWO], &[]);
        check("AAA=", &[" histogram of 0: sum Some(0.0)"], &[]);
    }

    #[test]
    fn documents() {
        check(
            "{\"a\":{\"b\":\"AAEKAAAB\"}}",
            &["a`b histogram of 1: 1.0000..1.1000=1 sum None"],
            &[],
        );
        check("[\"AAEKAAAB\",\"AAEKAAAB\",7,null]", &[ONE, ONE], &[]);
    }

    #[test]
    fn damage_is_named_and_the_rest_is_read() {
        let mut sink = Recorded::default();
        read_lines(&mut &b"AAEKAAAB\nAAEKAA\nAAEKAAAB\n"[..], &mut sink).unwrap();
        assert_eq!(sink.readings.len(), 2);
        assert_eq!(sink.troubles.len(), 1);
        assert_eq!(sink.troubles[0].place, Place::Line(2));
        check(
            "{\"a\":\"AAEKAAAB\",\"b\"}",
            &["a histogram of 1: 1.0000..1.1000=1 sum None"],
            &["byte 19: expected a colon, found \"}\""],
        );
    }
}
