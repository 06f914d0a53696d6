//! The formats by name, told apart by content.

use std::fmt;
use std::io::{self, BufRead, Read as _};
use std::ops::ControlFlow;

use crate::json::{Token, Tokens};
use crate::reading::{Reading, Sink};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;
use crate::{circllhist, exposition, frames, hlog, httptrap, numbers};

/// A JSON document is held whole while it is read; this is the most.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// How an input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Plain numbers, one per line.
    Numbers,
    /// HdrHistogram's interval log.
    Hlog,
    /// circllhist as base64 or bins, one per line or in JSON.
    Circllhist,
    /// HTTPTrap JSON.
    Httptrap,
    /// Prometheus or OpenMetrics text.
    Prometheus,
    /// topdeck's frames with names and times, one JSON object per line.
    Frames,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 6] = [
        Format::Numbers,
        Format::Hlog,
        Format::Circllhist,
        Format::Httptrap,
        Format::Prometheus,
        Format::Frames,
    ];

    /// As a person names it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Numbers => "numbers",
            Format::Hlog => "hlog",
            Format::Circllhist => "circllhist",
            Format::Httptrap => "httptrap",
            Format::Prometheus => "prometheus",
            Format::Frames => "frames",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Format::Numbers => "numbers, one per line",
            Format::Hlog => "HdrHistogram interval log (.hlog)",
            Format::Circllhist => "base64 or H[1.2]=3, one histogram per line, or in JSON",
            Format::Httptrap => "HTTPTrap JSON",
            Format::Prometheus => "Prometheus or OpenMetrics text",
            Format::Frames => "topdeck's frames with names and times, one per line",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `input` as `format`. `unit` is what numbers are in, where the format does not say; errors of the
/// device are returned, errors in the content go to the sink.
pub fn read(
    format: Format,
    input: &mut dyn BufRead,
    unit: Option<&Unit>,
    sink: &mut dyn Sink,
) -> io::Result<()> {
    match format {
        Format::Numbers => numbers::read(input, unit, sink),
        Format::Hlog => hlog::read(input, sink),
        Format::Prometheus => exposition::read(input, sink),
        Format::Frames => frames::read(input, sink),
        Format::Httptrap => {
            if let Some(bytes) = document(input, sink)? {
                httptrap::read(&bytes, sink);
            }
            Ok(())
        }
        Format::Circllhist => {
            let space = leading_space(input)?;
            let first = input.fill_buf()?.first().copied();
            let mut input = space.as_slice().chain(input);
            if let Some(b'{' | b'[' | b'"') = first {
                if let Some(bytes) = document(&mut input, sink)? {
                    circllhist::read_json(&bytes, sink);
                }
                Ok(())
            } else {
                circllhist::read_lines(&mut input, sink)
            }
        }
    }
}

/// Whitespace before a document that is looked through for its first character. No writer leaves more.
const LEADING_SPACE_BYTES_MAX: usize = 64 << 10;

/// Takes the whitespace that the input begins with, however few bytes it gives at a time.
fn leading_space(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut space = Vec::new();
    loop {
        let held = input.fill_buf()?;
        let room = LEADING_SPACE_BYTES_MAX - space.len();
        let is_space = |byte: &&u8| byte.is_ascii_whitespace();
        let len = held.iter().take(room).take_while(is_space).count();
        let is_end = held.is_empty() || len < held.len();
        space.extend_from_slice(&held[..len]);
        input.consume(len);
        if is_end {
            return Ok(space);
        }
    }
}

/// All bytes of a document, or nothing if they are too many.
fn document(input: &mut dyn BufRead, sink: &mut dyn Sink) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        let trouble = Trouble::new(
            Place::Byte(DOCUMENT_BYTES_MAX),
            "the end of the document, which may have 1 GiB",
            "more",
        );
        let _ = sink.trouble(trouble);
        return Ok(None);
    }
    Ok(Some(bytes))
}

/// Lines looked at before the format is given up: damage at the top should not hide what follows.
const LINES_LOOKED_AT: usize = 50;

/// The format of an input that begins with `head`, or what was found instead. Input without any content
/// is [`Format::Numbers`]: none.
pub fn detect(head: &[u8]) -> Result<Format, Trouble> {
    let unknown = |found: String| Err(Trouble::new(Place::Line(1), "a known format", found));
    match head {
        [0x1f, 0x8b, ..] => {
            return unknown("gzip (unpack it first: zcat FILE | topdeck hist -)".into());
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            return unknown("zstd (unpack it first: zstdcat FILE | topdeck hist -)".into());
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return unknown(
                "UTF-16 (convert it first: iconv -f UTF-16 -t UTF-8 FILE | topdeck hist -)".into(),
            );
        }
        _ => {}
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    match text.trim_ascii_start().first() {
        None => return Ok(Format::Numbers),
        Some(b'{') if frames::is_start(text) => return Ok(Format::Frames),
        Some(b'{' | b'[')
            if !text.trim_ascii_start().starts_with(b"{\"") || is_json_start(text) =>
        {
            return Ok(if holds_circllhist(text) { Format::Circllhist } else { Format::Httptrap });
        }
        Some(b'"') if !hlog::is_line(text.trim_ascii_start()) => {
            return Ok(if holds_circllhist(text) { Format::Circllhist } else { Format::Httptrap });
        }
        _ => {}
    }
    let lines = || text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let looked_at = || lines().filter(|line| !line.is_empty()).take(LINES_LOOKED_AT);
    for line in looked_at() {
        let found = if numbers::is_number(line) {
            Format::Numbers
        } else if hlog::is_line(line) {
            Format::Hlog
        } else if exposition::is_line(line) {
            Format::Prometheus
        } else if circllhist::is_histogram(line) {
            Format::Circllhist
        } else {
            continue;
        };
        return Ok(found);
    }
    let first = looked_at().find(|line| line[0] != b'#');
    match first {
        None => Ok(Format::Numbers),
        Some(first) => {
            let number = lines().position(|line| line == first).map_or(1, |at| at as u64 + 1);
            Err(Trouble::new(Place::Line(number), "a known format", quote(first)))
        }
    }
}

/// Whether text that begins with `{"` is JSON, not a quoted Prometheus name.
fn is_json_start(text: &[u8]) -> bool {
    let mut tokens = Tokens::new(text);
    matches!(tokens.value(), Ok(Token::Object))
        && !matches!(tokens.key(), Err(trouble) if trouble.expected == "a colon")
}

/// Whether the first string value of a document, however deep, is a circllhist that HTTPTrap would take
/// for text.
fn holds_circllhist(text: &[u8]) -> bool {
    let typed = text.windows(7).any(|window| window == b"\"_type\"");
    let quoted = text.split(|&byte| byte == b'"').filter(|part| part.len() >= 4);
    !typed && quoted.take(LINES_LOOKED_AT).any(circllhist::is_histogram)
}

/// Runs every source over arbitrary bytes: what a fuzzer calls. Anything but a panic is fine.
pub fn fuzz(bytes: &[u8]) {
    struct Nowhere;
    impl Sink for Nowhere {
        fn number(&mut self, _: f64) {}
        fn reading(&mut self, _: Reading) {}
        fn skipped(&mut self, _: &'static str) {}
        fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
            assert!(!trouble.to_string().contains('\n'), "a message of one line");
            ControlFlow::Continue(())
        }
    }
    let _ = detect(bytes);
    for format in Format::ALL {
        for unit in [None, Some(&Unit::Hours)] {
            let mut input = bytes;
            read(format, &mut input, unit, &mut Nowhere).expect("reading memory does not fail");
        }
    }
    circllhist::read_json(bytes, &mut Nowhere);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: Result<Format, &str>) {
        let found = detect(text).map_err(|trouble| trouble.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn formats_are_told_by_content() {
        check(b"", Ok(Format::Numbers));
        check(b"# only a comment\n", Ok(Format::Numbers));
        check(b"# sizes\n1.5\n", Ok(Format::Numbers));
        check(b"\xef\xbb\xbf17\r\n", Ok(Format::Numbers));
        check(b"oops\n17\n", Ok(Format::Numbers));
        check(b"#[StartTime: 1441812279.474 (seconds since epoch)]\n", Ok(Format::Hlog));
        check(b"\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n", Ok(Format::Hlog));
        check(b"Tag=A,0.127,1.007,2.769,HISTFAAAAEV42pNp", Ok(Format::Hlog));
        check(b"0.127,1.007,2.769,HISTFAAAAEV42pNp", Ok(Format::Hlog));
        check(b"AAEKAAAB\n", Ok(Format::Circllhist));
        check(b"H[1.2e-01]=2\n", Ok(Format::Circllhist));
        check(b"{\"a\":\"AAEKAAAB\"}", Ok(Format::Circllhist));
        check(b"[\"AAEKAAAB\"]", Ok(Format::Circllhist));
        check(b"{\"a\":{\"_type\":\"h\",\"_value\":\"AAEKAAAB\"}}", Ok(Format::Httptrap));
        check(b"{\"metric\":\"a\",\"frame\":\"0QECAQAA\"}\n", Ok(Format::Frames));
        check(b"{\"metric\":\"a\",\"kind\":\"gauge\",\"number\":1}\n", Ok(Format::Frames));
        check(b"{\"metric\":\"a\",\"value\":{\"frame\":1}}", Ok(Format::Httptrap));
        check(b"{}", Ok(Format::Httptrap));
        check(b" [1,2]", Ok(Format::Httptrap));
        check(b"# HELP a b\n", Ok(Format::Prometheus));
        check(b"a_bucket{le=\"1\"} 2\n", Ok(Format::Prometheus));
        check(b"{\"a.b_bucket\",le=\"1\"} 2\n", Ok(Format::Prometheus));
    }

    #[test]
    fn the_unknown_is_named() {
        check(b"\n\nhello world\n", Err("line 3: expected a known format, found \"hello world\""));
        check(
            &[0x1f, 0x8b, 8],
            Err(
                "line 1: expected a known format, found gzip (unpack it first: zcat FILE | topdeck hist -)",
            ),
        );
        check(
            &[0xff, 0xfe, 0x31, 0],
            Err(
                "line 1: expected a known format, found UTF-16 (convert it first: iconv -f UTF-16 -t UTF-8 FILE | topdeck hist -)",
            ),
        );
    }

    #[test]
    fn any_bytes_pass_every_source() {
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let pieces: [&[u8]; 24] = [
            b"{\"_type\":\"h\",\"_value\":",
            b"[",
            b"]",
            b"}",
            b"{",
            b"\"",
            b"\"AAEKAAAB\"",
            b"H[1.2]=3",
            b",",
            b":",
            b"a_bucket{le=\"1\"} ",
            b"\n",
            b"1e999",
            b"-",
            b"# TYPE a histogram\n",
            b"# EOF\n",
            b"Tag=A,",
            b"0.1,1,2,HISTFAAAA",
            b"\\u",
            b"\xff",
            b"NaN",
            b"{\"x\":{\"_ts\":",
            b"\r\n",
            b"9999999999999999999999",
        ];
        for round in 0..3000 {
            let mut bytes = Vec::new();
            for _ in 0..random() % 24 {
                if round % 3 == 0 {
                    bytes.push(random() as u8);
                } else {
                    bytes.extend_from_slice(pieces[random() as usize % pieces.len()]);
                }
            }
            fuzz(&bytes);
        }
    }
}
