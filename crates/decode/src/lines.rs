//! Line splitter with a length limit.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io::{self, BufRead};
use std::ops::ControlFlow;

/// Line without its line end (`\n` or `\r\n`).
pub(crate) enum InputLine<'a> {
    Complete(&'a [u8]),
    /// Line longer than the limit; the rest was skipped.
    TooLong {
        start: &'a [u8],
    },
}

/// Calls `f` with each line and its number, from 1, until `f` breaks. Only lines that cross a
/// buffer boundary are copied. A byte order mark before the first line is skipped.
pub(crate) fn for_each_line(
    input: &mut dyn BufRead,
    bytes_max: usize,
    mut f: impl FnMut(u64, InputLine<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut carried: Vec<u8> = Vec::new();
    let (mut number, mut too_long) = (1u64, false);
    let mut emit = |number: &mut u64, line: &[u8], too_long: bool| {
        let line =
            if *number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let flow = f(
            *number,
            if too_long { InputLine::TooLong { start: line } } else { InputLine::Complete(line) },
        );
        *number = number.saturating_add(1);
        flow
    };
    loop {
        let buffer = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            filled => filled?,
        };
        if buffer.is_empty() {
            break;
        }
        let read = buffer.len();
        let mut rest = buffer;
        while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
            let (line, after) = (&rest[..end], &rest[end.saturating_add(1)..]);
            rest = after;
            let flow = if carried.is_empty() && !too_long {
                emit(&mut number, &line[..end.min(bytes_max)], end > bytes_max)
            } else {
                too_long |= append_limited(&mut carried, line, bytes_max);
                emit(&mut number, &carried, too_long)
            };
            carried.clear();
            too_long = false;
            if flow.is_break() {
                return Ok(());
            }
        }
        too_long |= append_limited(&mut carried, rest, bytes_max);
        input.consume(read);
    }
    if !carried.is_empty() || too_long {
        let _ = emit(&mut number, &carried, too_long);
    }
    Ok(())
}

/// Appends up to the limit of a line's bytes; returns whether bytes were dropped.
fn append_limited(carried: &mut Vec<u8>, more: &[u8], bytes_max: usize) -> bool {
    let free_bytes = bytes_max.saturating_sub(carried.len());
    carried.extend_from_slice(&more[..more.len().min(free_bytes)]);
    more.len() > free_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        for buffer_bytes in [1, 2, 3, 7, 100] {
            let mut found = Vec::new();
            let mut input = io::BufReader::with_capacity(buffer_bytes, text.as_bytes());
            for_each_line(&mut input, 8, |number, line| {
                let (line, mark) = match line {
                    InputLine::Complete(line) => (line, ""),
                    InputLine::TooLong { start } => (start, "…"),
                };
                found.push(format!("{number} {}{mark}", String::from_utf8_lossy(line)));
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(found, expected, "buffer of {buffer_bytes}");
        }
    }

    #[test]
    fn line_ends_are_recognized() {
        check("", &[]);
        check("a", &["1 a"]);
        check("a\n", &["1 a"]);
        check("a\r\n\nb", &["1 a", "2 ", "3 b"]);
        check("\u{feff}a\n\u{feff}", &["1 a", "2 \u{feff}"]);
    }

    #[test]
    fn long_line_is_truncated_and_the_next_is_complete() {
        check("12345678\n", &["1 12345678"]);
        check("123456789\nb\n", &["1 12345678…", "2 b"]);
        check("1234567890123", &["1 12345678…"]);
    }
}
