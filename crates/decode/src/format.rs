//! Input formats and their detection.

use std::fmt;
use std::io::{self, BufRead, Read as _};

use crate::decoded_sample::SampleSink;
use crate::input_error::{InputError, InputPosition, quote};
use crate::json::{JsonToken, JsonTokenizer};
use crate::unit::Unit;
use crate::{circllhist, ddsketch, exposition, frames, hlog, httptrap, plain_numbers};

/// Size limit of a JSON document, which is buffered as a whole.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;

/// Input format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputFormat {
    /// Plain numbers, one per line.
    Numbers,
    /// HdrHistogram's interval log.
    Hlog,
    /// circllhist as base64 or bins, one per line or in JSON.
    Circllhist,
    /// A DDSketch, or base64 of some, one per line.
    Ddsketch,
    /// HTTPTrap JSON.
    Httptrap,
    /// Prometheus or OpenMetrics text.
    Prometheus,
    /// topdeck's frames with names and times: one JSON object per line.
    Frames,
}

impl InputFormat {
    /// All formats.
    pub const ALL: [InputFormat; 7] = [
        InputFormat::Numbers,
        InputFormat::Hlog,
        InputFormat::Circllhist,
        InputFormat::Ddsketch,
        InputFormat::Httptrap,
        InputFormat::Prometheus,
        InputFormat::Frames,
    ];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            InputFormat::Numbers => "numbers",
            InputFormat::Hlog => "hlog",
            InputFormat::Circllhist => "circllhist",
            InputFormat::Ddsketch => "ddsketch",
            InputFormat::Httptrap => "httptrap",
            InputFormat::Prometheus => "prometheus",
            InputFormat::Frames => "frames",
        }
    }

    /// One-line description.
    pub fn description(self) -> &'static str {
        match self {
            InputFormat::Numbers => "numbers, one per line",
            InputFormat::Hlog => "HdrHistogram interval log (.hlog)",
            InputFormat::Circllhist => "base64 or H[1.2]=3, one histogram per line, or in JSON",
            InputFormat::Ddsketch => "a DDSketch, binary or protobuf, or base64 of one per line",
            InputFormat::Httptrap => "HTTPTrap JSON",
            InputFormat::Prometheus => "Prometheus or OpenMetrics text",
            InputFormat::Frames => "topdeck frames with names and times, one per line",
        }
    }
}

impl fmt::Display for InputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads `input` as `format`. `unit` is the unit of numbers if the format does not define one. I/O
/// errors are returned; content errors go to the sink.
pub fn read(
    format: InputFormat,
    input: &mut dyn BufRead,
    unit: Option<&Unit>,
    sink: &mut dyn SampleSink,
) -> io::Result<()> {
    match format {
        InputFormat::Numbers => plain_numbers::read_numbers(input, unit, sink),
        InputFormat::Hlog => hlog::read(input, sink),
        InputFormat::Prometheus => exposition::read(input, sink),
        InputFormat::Frames => frames::read_lines(input, sink),
        InputFormat::Ddsketch => ddsketch::read(input, sink),
        InputFormat::Httptrap => {
            if let Some(bytes) = read_document(input, sink)? {
                httptrap::read(&bytes, sink);
            }
            Ok(())
        }
        InputFormat::Circllhist => {
            let space = read_leading_space(input)?;
            let first = input.fill_buf()?.first().copied();
            let mut input = space.as_slice().chain(input);
            if let Some(b'{' | b'[' | b'"') = first {
                if let Some(bytes) = read_document(&mut input, sink)? {
                    circllhist::read_json(&bytes, sink);
                }
                Ok(())
            } else {
                circllhist::read_lines(&mut input, sink)
            }
        }
    }
}

/// Limit of the whitespace before a document, which is skipped to find the first character. No
/// writer emits more.
const LEADING_SPACE_BYTES_MAX: usize = 64 << 10;

/// Consumes the leading whitespace, however few bytes the input returns per read.
fn read_leading_space(input: &mut dyn BufRead) -> io::Result<Vec<u8>> {
    let mut space = Vec::new();
    loop {
        let buffered = input.fill_buf()?;
        let room = LEADING_SPACE_BYTES_MAX - space.len();
        let is_space = |byte: &&u8| byte.is_ascii_whitespace();
        let len = buffered.iter().take(room).take_while(is_space).count();
        let is_end = buffered.is_empty() || len < buffered.len();
        space.extend_from_slice(&buffered[..len]);
        input.consume(len);
        if is_end {
            return Ok(space);
        }
    }
}

/// Reads a whole document; returns an error if the document exceeds the size limit.
fn read_document(
    input: &mut dyn BufRead,
    sink: &mut dyn SampleSink,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    input.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > DOCUMENT_BYTES_MAX {
        let error = InputError::new(
            InputPosition::Byte(DOCUMENT_BYTES_MAX),
            "a document of at most 1 GiB",
            "a longer one",
        );
        let _ = sink.error(error);
        return Ok(None);
    }
    Ok(Some(bytes))
}

/// Number of lines examined for detection, so that damage at the top does not hide the format.
const DETECTION_LINES: usize = 50;

/// Detects the format of an input that begins with `head`; the error describes the actual content.
/// Empty input is [`InputFormat::Numbers`] with no values.
pub fn detect(head: &[u8]) -> Result<InputFormat, InputError> {
    let unknown =
        |found: String| Err(InputError::new(InputPosition::Line(1), "a known format", found));
    match head {
        [0x1f, 0x8b, ..] => {
            return unknown("gzip (decompress it first: zcat FILE | topdeck … -)".into());
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            return unknown("zstd (decompress it first: zstdcat FILE | topdeck … -)".into());
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            return unknown(
                "UTF-16 (convert it first: iconv -f UTF-16 -t UTF-8 FILE | topdeck … -)".into(),
            );
        }
        _ if ddsketch::is_sketch(head) => return Ok(InputFormat::Ddsketch),
        _ => {}
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    match text.trim_ascii_start().first() {
        None => return Ok(InputFormat::Numbers),
        Some(b'{') if frames::is_start(text) => return Ok(InputFormat::Frames),
        Some(b'{' | b'[')
            if !text.trim_ascii_start().starts_with(b"{\"") || is_json_start(text) =>
        {
            return Ok(if contains_circllhist(text) {
                InputFormat::Circllhist
            } else {
                InputFormat::Httptrap
            });
        }
        Some(b'"') if !hlog::is_line(text.trim_ascii_start()) => {
            return Ok(if contains_circllhist(text) {
                InputFormat::Circllhist
            } else {
                InputFormat::Httptrap
            });
        }
        _ => {}
    }
    let lines = || text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let nonempty_lines = || lines().filter(|line| !line.is_empty()).take(DETECTION_LINES);
    for line in nonempty_lines() {
        let found = if plain_numbers::is_number(line) {
            InputFormat::Numbers
        } else if hlog::is_line(line) {
            InputFormat::Hlog
        } else if exposition::is_line(line) {
            InputFormat::Prometheus
        } else if circllhist::is_histogram(line) {
            InputFormat::Circllhist
        } else if ddsketch::is_line(line) {
            InputFormat::Ddsketch
        } else {
            continue;
        };
        return Ok(found);
    }
    let unknown_line = nonempty_lines().find(|line| line[0] != b'#');
    match unknown_line {
        None => Ok(InputFormat::Numbers),
        Some(text) => {
            let number = lines().position(|line| line == text).map_or(1, |at| at as u64 + 1);
            if is_csv_header(text) && nonempty_lines().nth(1).is_some_and(|row| row.contains(&b','))
            {
                return unknown(CSV_REMEDY.to_owned());
            }
            Err(InputError::new(InputPosition::Line(number), "a known format", quote(text)))
        }
    }
}

/// CSV has columns whose meaning only the user knows.
const CSV_REMEDY: &str = "CSV (select its column of numbers first: cut -d, -f2 FILE | tail -n +2, \
                          and read it with -)";

/// Whether a line is several names between commas.
fn is_csv_header(line: &[u8]) -> bool {
    let is_name = |field: &[u8]| {
        let field = field.trim_ascii();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.- \"()/".contains(byte);
        !field.is_empty() && field.iter().all(is_part) && !plain_numbers::is_number(field)
    };
    line.contains(&b',') && line.split(|&byte| byte == b',').all(is_name)
}

/// Whether text that begins with `{"` is JSON and not a quoted Prometheus name.
fn is_json_start(text: &[u8]) -> bool {
    let mut tokens = JsonTokenizer::new(text);
    matches!(tokens.value(), Ok(JsonToken::Object))
        && !matches!(tokens.key(), Err(error) if error.expected == "a colon")
}

/// Whether the first string value of a document, at any depth, is a circllhist. HTTPTrap would
/// decode it as text.
fn contains_circllhist(text: &[u8]) -> bool {
    let has_type = text.windows(7).any(|window| window == b"\"_type\"");
    let quoted = text.split(|&byte| byte == b'"').filter(|part| part.len() >= 4);
    !has_type && quoted.take(DETECTION_LINES).any(circllhist::is_histogram)
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use crate::decoded_sample::DecodedSample;

    use super::*;

    /// Runs every decoder on arbitrary bytes, for fuzzing. Any outcome except a panic is valid.
    fn run_all_decoders(bytes: &[u8]) {
        struct NullSink;
        impl SampleSink for NullSink {
            fn number(&mut self, _: f64) {}
            fn sample(&mut self, _: DecodedSample) {}
            fn skipped(&mut self, _: &'static str) {}
            fn error(&mut self, error: InputError) -> ControlFlow<()> {
                assert!(!error.to_string().contains('\n'), "a message of one line");
                ControlFlow::Continue(())
            }
        }
        let _ = detect(bytes);
        for format in InputFormat::ALL {
            for unit in [None, Some(&Unit::Hours)] {
                let mut input = bytes;
                read(format, &mut input, unit, &mut NullSink)
                    .expect("reading from memory does not fail");
            }
        }
        circllhist::read_json(bytes, &mut NullSink);
    }

    #[track_caller]
    fn check(text: &[u8], expected: Result<InputFormat, &str>) {
        let found = detect(text).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{}", String::from_utf8_lossy(text));
    }

    #[test]
    fn formats_are_detected_by_content() {
        check(b"", Ok(InputFormat::Numbers));
        check(b"# only a comment\n", Ok(InputFormat::Numbers));
        check(b"# sizes\n1.5\n", Ok(InputFormat::Numbers));
        check(b"\xef\xbb\xbf17\r\n", Ok(InputFormat::Numbers));
        check(b"oops\n17\n", Ok(InputFormat::Numbers));
        check(b"#[StartTime: 1441812279.474 (seconds since epoch)]\n", Ok(InputFormat::Hlog));
        check(b"\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n", Ok(InputFormat::Hlog));
        check(b"Tag=A,0.127,1.007,2.769,HISTFAAAAEV42pNp", Ok(InputFormat::Hlog));
        check(b"0.127,1.007,2.769,HISTFAAAAEV42pNp", Ok(InputFormat::Hlog));
        check(b"AAEKAAAB\n", Ok(InputFormat::Circllhist));
        check(b"H[1.2e-01]=2\n", Ok(InputFormat::Circllhist));
        check(b"Av1KgVq/UvA/AAAAAAAAAAAFBQACRAIoAh4CFgI=\n", Ok(InputFormat::Ddsketch));
        check(b"\x02\xfd\x4a\x81\x5a\xbf\x52\xf0\x3f\0\0\0\0\0\0\0\0", Ok(InputFormat::Ddsketch));
        check(b"{\"a\":\"AAEKAAAB\"}", Ok(InputFormat::Circllhist));
        check(b"[\"AAEKAAAB\"]", Ok(InputFormat::Circllhist));
        check(b"{\"a\":{\"_type\":\"h\",\"_value\":\"AAEKAAAB\"}}", Ok(InputFormat::Httptrap));
        check(b"{\"metric\":\"a\",\"frame\":\"0QECAQAA\"}\n", Ok(InputFormat::Frames));
        check(b"{\"metric\":\"a\",\"kind\":\"gauge\",\"number\":1}\n", Ok(InputFormat::Frames));
        check(b"{\"metric\":\"a\",\"value\":{\"frame\":1}}", Ok(InputFormat::Httptrap));
        check(b"{}", Ok(InputFormat::Httptrap));
        check(b" [1,2]", Ok(InputFormat::Httptrap));
        check(b"# HELP a b\n", Ok(InputFormat::Prometheus));
        check(b"a_bucket{le=\"1\"} 2\n", Ok(InputFormat::Prometheus));
        check(b"{\"a.b_bucket\",le=\"1\"} 2\n", Ok(InputFormat::Prometheus));
    }

    #[test]
    fn unknown_format_is_named() {
        check(b"\n\nhello world\n", Err("line 3: expected a known format, found \"hello world\""));
        check(
            b"timestamp,latency_ms,endpoint\n2026-11-26T10:00:00Z,12.5,/cart\n",
            Err("line 1: expected a known format, found CSV (select its column of numbers first: \
                 cut -d, -f2 FILE | tail -n +2, and read it with -)"),
        );
        check(b"hello, world\n", Err("line 1: expected a known format, found \"hello, world\""));
        check(
            &[0x1f, 0x8b, 8],
            Err("line 1: expected a known format, found gzip (decompress it first: zcat FILE | \
                 topdeck … -)"),
        );
        check(
            &[0xff, 0xfe, 0x31, 0],
            Err(
                "line 1: expected a known format, found UTF-16 (convert it first: iconv -f UTF-16 \
                 -t UTF-8 FILE | topdeck … -)",
            ),
        );
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
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
            run_all_decoders(&bytes);
        }
    }
}
