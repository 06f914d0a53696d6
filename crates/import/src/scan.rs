//! First pass over a file: checks whether all of it can be imported, and hashes the content.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;

use anyhow::{Context as _, Result, bail};
use client::print_message;
use decode::{DecodedSample, InputError, InputFormat, SampleSink};
use model::{Series, SeriesKind};

use crate::import_progress::ImportProgress;
use crate::input_source::{self, InputSource};
use crate::mapping::{ImportDefaults, ImportUnmapped};
use crate::retention_check::RetentionCheck;
use render::text::count_text;
use render::value_formatter;
use report::distribution::format_remedy;

/// Maximum number of errors printed; the rest is counted.
pub(crate) const ERRORS_SHOWN_MAX: usize = 10;
const ERRORS_KEPT_MAX: usize = 1000;

/// Summary of a scan.
#[derive(Debug)]
pub(crate) struct ScanSummary {
    /// `None` if the format was not recognised.
    pub(crate) format: Option<InputFormat>,
    /// Producer id: hash of the content and of the options.
    pub(crate) number: u64,
    /// BLAKE3 of the content, and of its start up to a size that was asked for.
    pub(crate) content: blake3::Hash,
    pub(crate) prefix: Option<blake3::Hash>,
    /// Number of bytes scanned; data appended later belongs to another import.
    pub(crate) bytes: u64,
    pub(crate) samples: u64,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    pub(crate) errors: Vec<String>,
    pub(crate) error_count: u64,
    unmapped: Option<ImportUnmapped>,
    numbers: u64,
}

impl Default for ScanSummary {
    fn default() -> ScanSummary {
        ScanSummary {
            format: None,
            number: 0,
            content: blake3::hash(&[]),
            prefix: None,
            bytes: 0,
            samples: 0,
            skipped: BTreeMap::new(),
            errors: Vec::new(),
            error_count: 0,
            unmapped: None,
            numbers: 0,
        }
    }
}

/// Scans the whole input. `prefix_size` is the size of a prefix to hash too.
pub(crate) fn scan_source(
    source: &InputSource,
    format: Option<InputFormat>,
    rules: &ImportDefaults<'_>,
    prefix_size: Option<u64>,
    (progress, retention): (&mut ImportProgress<'_>, &mut RetentionCheck<'_>),
) -> Result<ScanSummary> {
    let name = source.name();
    let cannot = || format!("cannot read {name}");
    let (input, _) = source.read();
    let hasher = blake3::Hasher::new();
    let mut hashed = HashingReader { input, hasher, bytes: 0, prefix_size, prefix: None, progress };
    let (head, detected) = input_source::detect(&mut hashed, format).with_context(cannot)?;
    let mut summary = ScanSummary::default();
    match detected {
        Err(error) => summary.add_error(error.to_string()),
        Ok(format) => {
            let mut taker = ScanSink { rules, format, summary, retention };
            input_source::read_samples(&head, &mut hashed, format, rules.unit, &mut taker)
                .with_context(cannot)?;
            summary = taker.summary;
            summary.format = Some(format);
        }
    }
    // The parser may stop before the end of the input.
    io::copy(&mut hashed, &mut io::sink()).with_context(cannot)?;
    let HashingReader { mut hasher, bytes, prefix, .. } = hashed;
    (summary.content, summary.prefix, summary.bytes) = (hasher.finalize(), prefix, bytes);
    if let Some(format) = summary.format {
        if summary.numbers > 0 {
            // Plain numbers become one histogram without a name or time.
            summary.samples += 1;
            // Rules of a retention rarely select by kind.
            let gauge = |name| Series::new(name, SeriesKind::Gauge).validate();
            let series = rules.metric.map(gauge);
            if let (Some(Ok(series)), Some(start)) = (series, rules.start) {
                retention.add(&series, start);
            }
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
        Some(ImportUnmapped::NoName) if summary.numbers > 0 && rules.start.is_none() => bail!(
            "{name}: no metric name and no timestamps; set them with --metric and --start, such as \
             --metric latency --start 2026-11-09T12:00:00Z"
        ),
        Some(ImportUnmapped::NoName) => {
            bail!("{name}: no metric name; set it with --metric, such as --metric latency")
        }
        Some(ImportUnmapped::NoTime) => bail!(
            "{name}: no timestamps; set the time with --start, such as --start \
             2026-11-09T12:00:00Z: imported again with the same time, the file adds nothing"
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
            (None, _) => format!("nothing imported; {}", format_remedy()),
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

struct ScanSink<'a, 'r> {
    rules: &'a ImportDefaults<'a>,
    format: InputFormat,
    summary: ScanSummary,
    retention: &'a mut RetentionCheck<'r>,
}

impl SampleSink for ScanSink<'_, '_> {
    fn number(&mut self, _: f64) {
        self.summary.numbers += 1;
    }

    fn sample(&mut self, reading: DecodedSample) {
        self.summary.samples += 1;
        match self.rules.map(reading, self.format) {
            Ok((series, sample)) => self.retention.add(&series, sample.end),
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
struct HashingReader<'a, 'p> {
    input: Box<dyn Read + 'a>,
    hasher: blake3::Hasher,
    bytes: u64,
    prefix_size: Option<u64>,
    prefix: Option<blake3::Hash>,
    progress: &'a mut ImportProgress<'p>,
}

impl Read for HashingReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let to_prefix = self.prefix_size.and_then(|size| size.checked_sub(self.bytes));
        if to_prefix == Some(0) {
            self.prefix = Some(self.hasher.finalize());
        }
        let max = to_prefix.filter(|left| *left > 0).unwrap_or(u64::MAX);
        let max = usize::try_from(max).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.input.read(&mut buffer[..max])?;
        self.hasher.update(&buffer[..read]);
        self.bytes += read as u64;
        self.progress.add(read as u64);
        Ok(read)
    }
}
