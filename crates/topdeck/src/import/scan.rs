//! First pass over a file: checks whether all of it can be imported, and hashes the content.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;

use anyhow::{Context as _, Result, bail};
use collect::{DecodedSample, InputError, InputFormat, SampleSink};

use crate::command::print_message;
use crate::import::input_source::{self, InputSource};
use crate::import::mapping::{ImportDefaults, ImportUnmapped};
use crate::journal::progress_line::ProgressLine;
use crate::output::set_format_text;
use render::text::count_text;
use render::value_formatter;

/// Maximum number of errors printed; the rest is counted.
pub(crate) const ERRORS_SHOWN_MAX: usize = 10;
const ERRORS_KEPT_MAX: usize = 1000;

/// Summary of a scan.
#[derive(Debug, Default)]
pub(crate) struct ScanSummary {
    /// `None` if the format was not recognised.
    pub(crate) format: Option<InputFormat>,
    /// Producer number: hash of the content and of the options.
    pub(crate) number: u64,
    /// Number of bytes scanned; data appended later belongs to another import.
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    pub(crate) errors: Vec<String>,
    pub(crate) error_count: u64,
    unmapped: Option<ImportUnmapped>,
    numbers: u64,
}

/// Scans the whole input.
pub(crate) fn scan_source(
    source: &InputSource,
    format: Option<InputFormat>,
    rules: &ImportDefaults<'_>,
    progress: &mut ProgressLine,
) -> Result<ScanSummary> {
    let name = source.name();
    let cannot = || format!("cannot read {name}");
    let (input, length) = source.read()?;
    let mut hashed =
        HashingReader { input, hasher: blake3::Hasher::new(), bytes: 0, length, progress };
    let (head, detected) = input_source::detect(&mut hashed, format).with_context(cannot)?;
    let mut summary = ScanSummary::default();
    match detected {
        Err(error) => summary.add_error(error.to_string()),
        Ok(format) => {
            let mut taker = ScanSink { rules, format, summary };
            input_source::read_samples(&head, &mut hashed, format, rules.unit, &mut taker)
                .with_context(cannot)?;
            summary = taker.summary;
            summary.format = Some(format);
        }
    }
    // The parser may stop before the end of the input.
    io::copy(&mut hashed, &mut io::sink()).with_context(cannot)?;
    let HashingReader { mut hasher, bytes, .. } = hashed;
    summary.bytes = bytes;
    if let Some(format) = summary.format {
        if summary.numbers > 0 {
            // Plain numbers become one histogram without a name or time.
            summary.samples += 1;
            let missing = match (rules.metric, rules.start) {
                (None, _) => Some(ImportUnmapped::NoName),
                (_, None) => Some(ImportUnmapped::NoTime),
                _ => None,
            };
            summary.unmapped = summary.unmapped.or(missing);
        }
        hasher.update(&rules.fingerprint(format));
    }
    let hash = hasher.finalize();
    summary.number =
        u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes"));
    match summary.unmapped {
        Some(ImportUnmapped::NoName) => {
            bail!("{name}: no metric name; set it with --metric, such as --metric latency")
        }
        Some(ImportUnmapped::NoTime) => bail!(
            "{name}: no timestamps; set the time with --start, such as --start \
             2026-11-09T12:00:00Z or --start now"
        ),
        Some(ImportUnmapped::RelativeTime) => bail!(
            "{name}: times are relative to the start of the log; set it with --start, such as \
             --start 2026-11-09T12:00:00Z"
        ),
        Some(ImportUnmapped::Invalid(_)) | None => Ok(summary),
    }
}

impl ScanSummary {
    /// Reports errors and their consequence.
    pub(crate) fn report_errors(&self, name: &str, keep_going: bool) {
        for error in self.errors.iter().take(ERRORS_SHOWN_MAX) {
            print_message(format_args!("{name}: {error}"));
        }
        let more = self.error_count.saturating_sub(ERRORS_SHOWN_MAX as u64);
        if more > 0 {
            print_message(format_args!("{name}: {} similar errors", value_formatter::count(more)));
        }
        if self.error_count == 0 {
            return;
        }
        let advice = match (self.format, keep_going) {
            (None, _) => format!("nothing imported; {}", set_format_text()),
            (_, true) => "importing the readable part".to_owned(),
            (_, false) => {
                "nothing imported; repair the file, or import the readable part with --keep-going"
                    .to_owned()
            }
        };
        print_message(format_args!("{name}: {advice}"));
    }

    /// Skipped samples, appended to a text; empty if none were skipped.
    pub(crate) fn skipped_text(&self, before: &str) -> String {
        if self.skipped.is_empty() {
            return String::new();
        }
        let parts: Vec<String> =
            self.skipped.iter().map(|(what, n)| count_text(*n, what)).collect();
        format!("{before}{}", parts.join(", "))
    }

    pub(crate) fn add_error(&mut self, error: String) {
        self.error_count += 1;
        if self.errors.len() < ERRORS_KEPT_MAX {
            self.errors.push(error);
        }
    }
}

struct ScanSink<'a> {
    rules: &'a ImportDefaults<'a>,
    format: InputFormat,
    summary: ScanSummary,
}

impl SampleSink for ScanSink<'_> {
    fn number(&mut self, _: f64) {
        self.summary.numbers += 1;
    }

    fn sample(&mut self, reading: DecodedSample) {
        self.summary.samples += 1;
        match self.rules.map(reading, self.format) {
            Ok(_) => {}
            Err(ImportUnmapped::Invalid(reason)) => {
                self.summary.add_error(format!("sample {}: {reason}", self.summary.samples));
            }
            Err(unplaced) => {
                self.summary.unmapped.get_or_insert(unplaced);
            }
        }
    }

    fn skipped(&mut self, what: &'static str) {
        *self.summary.skipped.entry(what).or_default() += 1;
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        self.summary.add_error(error.to_string());
        ControlFlow::Continue(())
    }
}

/// Reader that hashes its bytes.
struct HashingReader<'a> {
    input: Box<dyn Read + 'a>,
    hasher: blake3::Hasher,
    bytes: u64,
    length: u64,
    progress: &'a mut ProgressLine,
}

impl Read for HashingReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.bytes += read as u64;
        // First half of the progress: the file is read twice.
        self.progress.bar(self.bytes, 2 * self.length.max(self.bytes));
        Ok(read)
    }
}
