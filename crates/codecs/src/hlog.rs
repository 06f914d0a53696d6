//! Interval logs of HdrHistogram (`.hlog`): reads versions 1.0 to 1.3, writes 1.3.
//!
//! A log consists of text lines: comments (`#`), two of which set the times, a legend, and one line
//! per interval: `[Tag=name,]start,length,max,base64`, times in seconds. [`Reader`] streams them.
//! An invalid line is an error with its offset, and the next line can still be read. Comments may
//! have any encoding.
//!
//! `max` is rounded to three decimals and divided by a unit ratio, 10^6 by default (nanoseconds to
//! milliseconds); it becomes the histogram's estimated maximum. Lines are at most
//! [`LINE_BYTES_MAX`]. Grammar: `docs/formats/hdr.md`. Source: HdrHistogram 2.2.2,
//! `HistogramLogReader` and `-Writer`.

use std::io::{self, BufRead, Read, Write};

use hist::{DecodeError, EncodeError, Histogram, TrackedValue};

use crate::hdr::{BUCKETS_MAX, HdrHistogramData, HdrVersion, decode_base64_parts};
use crate::leb9::LEB9_BYTES_MAX;

/// Default divisor of the `max` column: nanoseconds per millisecond.
pub(crate) const MAX_UNIT_RATIO: f64 = 1e6;

/// Maximum length of a line.
pub const LINE_BYTES_MAX: usize = 24 << 20;

/// Enough for the maximum number of buckets, each with the longest count after a run of zeros, in
/// base64.
const _: () = assert!(LINE_BYTES_MAX > BUCKETS_MAX * (LEB9_BYTES_MAX + 4) * 4 / 3);

/// Timestamps this far below the start time are relative to it, as in HdrHistogram: one year, in
/// seconds.
const RELATIVE_BEFORE_START_S: f64 = 365.0 * 24.0 * 3600.0;

const VERSION_PREFIX: &str = "#[Histogram log format version ";
const START_PREFIX: &str = "#[StartTime:";
const BASE_PREFIX: &str = "#[BaseTime:";
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"";

/// Interval of a histogram log.
#[derive(Clone, Debug, PartialEq)]
pub struct HlogInterval {
    /// Name of the series, if several share a log.
    pub tag: Option<String>,
    /// Start of the interval, in seconds since the epoch if the log contains absolute times. Not
    /// written.
    pub start_s: f64,
    /// Start as logged: relative to the epoch, or to the log's base or start time.
    pub logged_start_s: f64,
    /// Length of the interval, in seconds.
    pub length_s: f64,
    /// Maximum as logged, divided by the unit ratio.
    pub logged_max: f64,
    /// The recorded values.
    pub recording: HdrHistogramData,
}

/// Error in a histogram log, with line and offset.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, at byte {offset}: {cause}")]
pub struct HlogError {
    /// Line, from 1.
    pub line: u64,
    /// Offset in the log of the field, or of the line.
    pub offset: u64,
    /// Cause of the error.
    pub cause: HlogFault,
}

/// Cause of a log error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HlogFault {
    /// Unexpected content.
    #[error("{field} is {found:?}, expected {expected}")]
    Field {
        /// Field that was read.
        field: &'static str,
        /// Content found, truncated to 40 characters.
        found: String,
        /// Content expected.
        expected: &'static str,
    },
    /// The histogram is invalid.
    #[error("histogram: {0}")]
    Histogram(#[from] DecodeError),
    /// The line exceeds the limit and is skipped.
    #[error("the line exceeds the limit of {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// The log cannot be read. The reader returns nothing more.
    #[error("cannot read the log: {0}")]
    Io(#[from] io::Error),
}

/// Reads a log line by line.
#[derive(Debug)]
pub struct HlogReader<R> {
    source: R,
    max_unit_ratio: f64,
    start_time_s: Option<f64>,
    base_time_s: Option<f64>,
    line: u64,
    /// Offset of the next line.
    offset: u64,
    failed: bool,
}

impl<R: BufRead> HlogReader<R> {
    /// A reader of a log with values in nanoseconds and a `max` column in milliseconds.
    pub fn new(source: R) -> HlogReader<R> {
        HlogReader::with_max_unit_ratio(source, MAX_UNIT_RATIO)
    }

    /// A reader of a log whose `max` column was divided by `ratio`.
    pub(crate) fn with_max_unit_ratio(source: R, ratio: f64) -> HlogReader<R> {
        HlogReader {
            source,
            max_unit_ratio: ratio,
            start_time_s: None,
            base_time_s: None,
            line: 0,
            offset: 0,
            failed: false,
        }
    }

    /// The last start time read, or the first timestamp if there was none before it.
    pub fn start_time_s(&self) -> Option<f64> {
        self.start_time_s
    }

    /// Offset added to timestamps: given by the log, or determined at its first interval.
    pub fn base_time_s(&self) -> Option<f64> {
        self.base_time_s
    }

    /// The next line and its offset; `None` after the last.
    fn next_line(&mut self) -> Result<Option<(Vec<u8>, u64)>, HlogError> {
        let start = self.offset;
        self.line = self.line.wrapping_add(1);
        let line = self.line;
        let located = |fault| HlogError { line, offset: start, cause: fault };
        let mut bytes = Vec::new();
        let limit = (LINE_BYTES_MAX as u64).wrapping_add(1);
        let read = (&mut self.source).take(limit).read_until(b'\n', &mut bytes);
        if let Err(error) = read {
            self.failed = true;
            return Err(located(error.into()));
        }
        self.offset = self.offset.wrapping_add(bytes.len() as u64);
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() > LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
            let skipped = self.source.skip_until(b'\n').map_err(|error| {
                self.failed = true;
                located(error.into())
            })?;
            self.offset = self.offset.wrapping_add(skipped as u64);
            return Err(located(HlogFault::LineTooLong));
        }
        let end = bytes
            .iter()
            .rposition(|byte| !b"\r\n".contains(byte))
            .map_or(0, |at| at.wrapping_add(1));
        bytes.truncate(end);
        Ok(Some((bytes, start)))
    }

    /// Reads a version or a time from a comment.
    fn read_comment(&mut self, line: &HlogField<'_>) -> Result<(), HlogError> {
        if let Some(version) = line.after(VERSION_PREFIX) {
            return version.check_version();
        }
        if let Some(time) = line.after(START_PREFIX) {
            self.start_time_s = Some(time.comment_number("start time")?);
        } else if let Some(time) = line.after(BASE_PREFIX) {
            self.base_time_s = Some(time.comment_number("base time")?);
        }
        Ok(())
    }

    fn read_interval(&mut self, line: &HlogField<'_>) -> Result<HlogInterval, HlogError> {
        let mut fields = line.fields();
        let mut field = |name| {
            let end = HlogField {
                bytes: &[],
                offset: line.offset.wrapping_add(line.bytes.len() as u64),
                ..*line
            };
            fields
                .next()
                .ok_or_else(|| end.expected_error(name, "one more field: the line ends here"))
        };
        let mut first = field("start timestamp")?;
        let tag = first.after("Tag=");
        let tag = tag.map(|tag| tag.text("tag")).transpose()?.map(str::to_owned);
        if tag.is_some() {
            first = field("start timestamp")?;
        }
        let logged_start_s = first.number("start timestamp")?;
        let length_s = field("interval length")?.number("interval length")?;
        let logged_max = field("interval maximum")?.number("interval maximum")?;
        let payload = field("histogram")?;
        if let Some(rest) = fields.next() {
            return Err(rest.expected_error("end of line", "nothing after the histogram"));
        }
        let start_s = self.absolute_time(logged_start_s);
        let recording = self.decode(payload.bytes, logged_max);
        let recording = recording.map_err(|error| payload.error(error.into()))?;
        Ok(HlogInterval { tag, start_s, logged_start_s, length_s, logged_max, recording })
    }

    /// The first timestamp decides whether timestamps are relative to the epoch or to the start
    /// time.
    fn absolute_time(&mut self, logged_s: f64) -> f64 {
        let start = *self.start_time_s.get_or_insert(logged_s);
        let is_relative = logged_s < start - RELATIVE_BEFORE_START_S;
        logged_s + *self.base_time_s.get_or_insert(if is_relative { start } else { 0.0 })
    }

    fn decode(&self, base64: &[u8], logged_max: f64) -> Result<HdrHistogramData, DecodeError> {
        let (mut parts, header) = decode_base64_parts(base64)?;
        let max = logged_max * self.max_unit_ratio;
        if max.is_finite() {
            parts.max = TrackedValue::Estimated(max);
        }
        Ok(HdrHistogramData { histogram: Histogram::from_parts(parts)?, header })
    }
}

impl<R: BufRead> Iterator for HlogReader<R> {
    type Item = Result<HlogInterval, HlogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            let (bytes, offset) = match self.next_line() {
                Ok(line) => line?,
                Err(error) => return Some(Err(error)),
            };
            let line = HlogField { bytes: &bytes, line: self.line, offset };
            if line.bytes.starts_with(b"#") {
                if let Err(error) = self.read_comment(&line) {
                    return Some(Err(error));
                }
            } else if !line.is_blank() && !line.is_legend() {
                return Some(self.read_interval(&line));
            }
        }
        None
    }
}

/// Part of a line with its offset.
#[derive(Clone, Copy, Debug)]
struct HlogField<'a> {
    bytes: &'a [u8],
    line: u64,
    offset: u64,
}

impl<'a> HlogField<'a> {
    fn is_blank(&self) -> bool {
        self.bytes.iter().all(u8::is_ascii_whitespace)
    }

    /// With or without quotes.
    fn is_legend(&self) -> bool {
        let text = self.bytes.strip_prefix(b"\"").unwrap_or(self.bytes);
        text.starts_with(b"StartTimestamp") || text.starts_with(b"Timestamp")
    }

    fn slice(&self, from: usize, to: usize) -> HlogField<'a> {
        HlogField {
            bytes: &self.bytes[from..to],
            line: self.line,
            offset: self.offset.wrapping_add(from as u64),
        }
    }

    fn after(&self, prefix: &str) -> Option<HlogField<'a>> {
        let found = self.bytes.starts_with(prefix.as_bytes());
        found.then(|| self.slice(prefix.len(), self.bytes.len()))
    }

    /// The field up to the next comma or space.
    fn fields(self) -> impl Iterator<Item = HlogField<'a>> {
        let mut at = 0usize;
        std::iter::from_fn(move || {
            let is_separator = |byte: &u8| b", ".contains(byte);
            let rest = &self.bytes[at..];
            let from = at.wrapping_add(rest.iter().position(|byte| !is_separator(byte))?);
            let len = self.bytes[from..].iter().position(is_separator);
            at = len.map_or(self.bytes.len(), |len| from.wrapping_add(len));
            Some(self.slice(from, at))
        })
    }

    fn text(&self, field: &'static str) -> Result<&'a str, HlogError> {
        std::str::from_utf8(self.bytes).map_err(|_| self.expected_error(field, "UTF-8 text"))
    }

    fn number(&self, field: &'static str) -> Result<f64, HlogError> {
        let number = self.text(field)?.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| self.expected_error(field, "a decimal number"))
    }

    /// The number at the start of a comment: `1441812279.474 (seconds since epoch), …`.
    fn comment_number(&self, field: &'static str) -> Result<f64, HlogError> {
        let first = self.fields().next().unwrap_or(*self);
        let len = first.bytes.strip_suffix(b"]").unwrap_or(first.bytes).len();
        first.slice(0, len).number(field)
    }

    /// The rest of a version comment: `1.3]`. jHiccup 2.0.1 wrote 1.01.
    fn check_version(&self) -> Result<(), HlogError> {
        let known = || {
            let version = self.text("log format version").ok()?.strip_suffix(']')?;
            let (major, minor) = version.split_once('.')?;
            Some(major.parse() == Ok(1) && minor.parse().is_ok_and(|minor: u32| minor <= 3))
        };
        if known() == Some(true) {
            return Ok(());
        }
        Err(self.expected_error("log format version", "1.0 to 1.3"))
    }

    fn expected_error(&self, field: &'static str, expected: &'static str) -> HlogError {
        let found = String::from_utf8_lossy(self.bytes).chars().take(40).collect();
        self.error(HlogFault::Field { field, found, expected })
    }

    fn error(&self, fault: HlogFault) -> HlogError {
        HlogError { line: self.line, offset: self.offset, cause: fault }
    }
}

/// Header of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HlogPreamble {
    /// Comment lines, without the `#`.
    pub comments: Vec<String>,
    /// Start of the log, in seconds since the epoch.
    pub start_time_s: Option<f64>,
    /// Base time of the timestamps, in seconds since the epoch.
    pub base_time_s: Option<f64>,
}

/// Error writing an interval. Except for `Io`, no part of the interval was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HlogWriteError {
    /// The tag contains a character that ends it.
    #[error("invalid tag {found:?}: contains a comma, a space or a line break")]
    Tag {
        /// The tag.
        found: String,
    },
    /// The comment has more than one line.
    #[error("invalid comment {found:?}: contains a line break")]
    Comment {
        /// The comment.
        found: String,
    },
    /// The number is not finite.
    #[error("{field} is {found}, expected a finite number")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: f64,
    },
    /// The histogram cannot be encoded as an HdrHistogram.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Writing to the sink failed.
    #[error("cannot write the log: {0}")]
    Io(#[from] io::Error),
}

/// Writes a log of version 1.3.
#[derive(Debug)]
pub struct HlogWriter<W> {
    out: W,
}

impl<W: Write> HlogWriter<W> {
    /// Writes the header.
    pub fn new(mut out: W, preamble: &HlogPreamble) -> Result<HlogWriter<W>, HlogWriteError> {
        for comment in &preamble.comments {
            if comment.contains(['\r', '\n']) {
                return Err(HlogWriteError::Comment { found: comment.clone() });
            }
            writeln!(out, "#{comment}")?;
        }
        writeln!(out, "{VERSION_PREFIX}1.3]")?;
        for (prefix, time) in
            [(BASE_PREFIX, preamble.base_time_s), (START_PREFIX, preamble.start_time_s)]
        {
            if let Some(time) = time {
                writeln!(out, "{prefix} {} (seconds since epoch)]", decimal("time", time)?)?;
            }
        }
        writeln!(out, "{LEGEND}")?;
        Ok(HlogWriter { out })
    }

    /// Writes one interval. Its time is [`Interval::logged_start_s`]; `start_s` is not written.
    pub fn write(&mut self, interval: &HlogInterval) -> Result<(), HlogWriteError> {
        let mut line = String::new();
        if let Some(tag) = &interval.tag {
            if tag.contains([',', ' ', '\r', '\n']) {
                return Err(HlogWriteError::Tag { found: tag.clone() });
            }
            line = format!("Tag={tag},");
        }
        for (field, number) in [
            ("start timestamp", interval.logged_start_s),
            ("interval length", interval.length_s),
            ("interval maximum", interval.logged_max),
        ] {
            line.push_str(&decimal(field, number)?);
            line.push(',');
        }
        line.push_str(&interval.recording.encode_base64(HdrVersion::V2)?);
        line.push('\n');
        Ok(self.out.write_all(line.as_bytes())?)
    }

    /// Returns the sink after a flush.
    pub fn into_inner(self) -> W {
        self.out
    }
}

impl HlogInterval {
    /// An interval of a log with timestamps since the epoch. Its maximum is HdrHistogram's: the
    /// largest value of the last bucket in use, in the unit of [`MAX_UNIT_RATIO`].
    pub fn new(
        tag: Option<String>,
        start_s: f64,
        length_s: f64,
        recording: HdrHistogramData,
    ) -> HlogInterval {
        let max = recording.hdr_max() / MAX_UNIT_RATIO;
        HlogInterval { tag, start_s, logged_start_s: start_s, length_s, logged_max: max, recording }
    }
}

/// Three decimals like other writers, or as many as needed to read the same number again.
fn decimal(field: &'static str, number: f64) -> Result<String, HlogWriteError> {
    if !number.is_finite() {
        return Err(HlogWriteError::Number { field, found: number });
    }
    let short = format!("{number:.3}");
    Ok(if short.parse() == Ok(number) { short } else { number.to_string() })
}
