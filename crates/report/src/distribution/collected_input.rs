//! Reads input files into groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::{DrawError, Result, unsuitable};
use decode::{
    DecodedSample, DecodedValue, InputError, InputFormat, SampleSink, SampleTemporality, Unit,
};

use crate::distribution::group::{DistributionGroup, GroupKey, ROW_NS};
use crate::distribution::number_recorder::NumberRecorder;
use crate::distribution::threshold_count;
use crate::distribution::{DistributionOptions, interval_ns};
use render::text::count_text;

/// Bytes read to detect the format, and buffer size for numbers.
pub const HEAD_BYTES: u64 = 1 << 20;
/// Progress interval in bytes.
const PROGRESS_BYTES: u64 = 64 << 20;
/// Maximum number of errors kept; the rest is counted.
const ERRORS_KEPT_MAX: usize = 1000;
/// Maximum number of names listed in a message.
const NAMES_LISTED: usize = 20;

/// Contents of all inputs.
pub struct CollectedInput {
    /// One distribution each.
    pub groups: Vec<DistributionGroup>,
    /// Number of skipped samples by kind.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    /// Parse errors with file name.
    pub errors: Vec<(String, InputError)>,
    /// Number of parse errors.
    pub error_count: u64,
    /// Files that could not be read to their end.
    pub unreadable: Vec<String>,
    /// Names of all metrics in the input.
    metrics: BTreeSet<String>,
}

impl CollectedInput {
    /// Whether samples that are not histograms were skipped.
    pub fn has_skipped(&self) -> bool {
        !self.skipped.is_empty()
    }

    /// Description of skipped samples; empty if none were skipped.
    pub(crate) fn skipped_text(&self) -> String {
        let parts: Vec<String> =
            self.skipped.iter().map(|(what, n)| count_text(*n, what)).collect();
        parts.join(", ")
    }

    /// Reason why there is nothing to report.
    pub fn no_data_message(&self, options: &DistributionOptions) -> String {
        let files: Vec<String> = options.files.iter().map(|file| display_name(file)).collect();
        let files = files.join(", ");
        match &options.metric {
            Some(metric) if !self.metrics.contains(metric) && !self.metrics.is_empty() => {
                let names: Vec<&str> =
                    self.metrics.iter().map(String::as_str).take(NAMES_LISTED).collect();
                format!("{files}: no metric {metric:?}; available: {}", names.join(", "))
            }
            _ if self.has_skipped() => {
                format!("{files}: no histograms, only {}", self.skipped_text())
            }
            _ => format!("{files}: no values"),
        }
    }
}

/// Reads all files. Errors are in the result.
pub fn collect(options: &DistributionOptions) -> Result<CollectedInput> {
    let mut sink = GroupingSink::new(options)?;
    for (file, path) in options.files.iter().enumerate() {
        (sink.file, sink.file_name) = (file, display_name(path));
        if let Err(error) = read_file(path, options, &mut sink) {
            sink.input.unreadable.push(format!("cannot read {}: {error}", sink.file_name));
        }
        sink.flush_numbers();
        if let Some(error) = sink.error {
            return Err(unsuitable(format!("{}: {error}", sink.file_name)));
        }
        if sink.input.error_count > 0 && !options.keep_going {
            break;
        }
    }
    Ok(sink.input)
}

/// Reads samples that were taken together, such as one scrape or the metrics of a process.
pub fn collect_snapshot(
    options: &DistributionOptions,
    read: impl FnOnce(&mut dyn SampleSink),
) -> Result<CollectedInput> {
    let mut sink = GroupingSink::new(options)?;
    sink.is_exposition = true;
    read(&mut sink);
    match sink.error {
        Some(error) => Err(error),
        None => Ok(sink.input),
    }
}

fn read_file(
    path: &Path,
    options: &DistributionOptions,
    sink: &mut GroupingSink<'_>,
) -> io::Result<()> {
    let (source, length): (Box<dyn Read>, u64) = if path.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(path)?;
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), length)
    };
    let mut source =
        FileProgressReader { source, read: 0, last_shown: 0, length, name: display_name(path) };
    let mut head = Vec::new();
    (&mut source).take(HEAD_BYTES).read_to_end(&mut head)?;
    let format = match options.format.map_or_else(|| decode::detect(&head), Ok) {
        Ok(format) => format,
        Err(error) => {
            let _ = sink.error(error);
            return Ok(());
        }
    };
    sink.is_exposition = format == InputFormat::Prometheus;
    let mut input = head.chain(BufReader::with_capacity(HEAD_BYTES as usize, source));
    decode::read(format, &mut input, options.unit.as_ref(), sink)
}

/// File name for messages.
pub fn display_name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".into() } else { path.display().to_string() }
}

/// Sink that groups samples.
struct GroupingSink<'a> {
    options: &'a DistributionOptions,
    row_ns: Option<i64>,
    numbers: NumberRecorder,
    numbers_unit: Option<Unit>,
    file: usize,
    file_name: String,
    /// Whether the file is a single exposition (scrape).
    is_exposition: bool,
    group_index: HashMap<GroupKey, usize>,
    /// Fatal error: a count overflowed.
    error: Option<DrawError>,
    input: CollectedInput,
}

impl GroupingSink<'_> {
    fn new(options: &DistributionOptions) -> Result<GroupingSink<'_>> {
        let unit = options.unit.as_ref().filter(|unit| unit.in_nanoseconds().is_some());
        let numbers_unit =
            if unit.is_some() { Some(Unit::Nanoseconds) } else { options.unit.clone() };
        let thresholds = threshold_count::thresholds(options, numbers_unit.as_ref());
        Ok(GroupingSink {
            options,
            row_ns: match &options.interval {
                Some(interval) => Some(interval_ns(interval)?),
                None => options.heatmap.then_some(ROW_NS),
            },
            numbers: NumberRecorder::new(&thresholds),
            numbers_unit,
            file: 0,
            file_name: String::new(),
            is_exposition: false,
            group_index: HashMap::new(),
            error: None,
            input: CollectedInput {
                groups: Vec::new(),
                skipped: BTreeMap::new(),
                errors: Vec::new(),
                error_count: 0,
                unreadable: Vec::new(),
                metrics: BTreeSet::new(),
            },
        })
    }

    fn group_key(&self, sample: &DecodedSample) -> GroupKey {
        let by = self.options.by.as_deref();
        let is_per_file = self.options.compare || by == Some("file");
        let by = match by {
            None | Some("file") => None,
            Some("series") => {
                let labels = sample.labels.iter().map(|(name, value)| format!("{name}={value:?}"));
                Some(format!("{{{}}}", labels.collect::<Vec<_>>().join(",")))
            }
            Some(label) => Some(match sample.label(label) {
                Some(value) => format!("{label} {value}"),
                None => format!("no {label}"),
            }),
        };
        GroupKey {
            file: is_per_file.then_some(self.file),
            metric: sample.metric.clone(),
            by,
            unit: sample.unit.clone().or_else(|| self.options.unit.clone()),
        }
    }

    fn add(&mut self, sample: &DecodedSample, histogram: &hist::Histogram) {
        let key = self.group_key(sample);
        let groups = &mut self.input.groups;
        let at = *self.group_index.entry(key).or_insert_with_key(|key| {
            groups.push(DistributionGroup::new(key.clone()));
            groups.len() - 1
        });
        if let Err(error) = groups[at].add(sample, histogram, self.row_ns) {
            self.error.get_or_insert(error);
        }
    }

    fn flush_numbers(&mut self) {
        if let Some(histogram) = self.numbers.take_histogram() {
            let sample = DecodedSample {
                metric: String::new(),
                labels: Vec::new(),
                unit: self.numbers_unit.clone(),
                start: None,
                end: None,
                temporality: SampleTemporality::Delta,
                value: DecodedValue::Text(String::new()),
            };
            self.add(&sample, &histogram);
        }
    }
}

impl SampleSink for GroupingSink<'_> {
    #[inline]
    fn number(&mut self, value: f64) {
        self.numbers.record(value);
    }

    fn sample(&mut self, sample: DecodedSample) {
        match &sample.value {
            // A Prometheus exposition is a single sample; in a file of several samples each one
            // includes the previous ones.
            DecodedValue::Histogram(_)
                if sample.temporality == SampleTemporality::Cumulative && !self.is_exposition =>
            {
                self.skipped("a cumulative histogram");
            }
            DecodedValue::Histogram(histogram) => {
                let metrics = &mut self.input.metrics;
                if !sample.metric.is_empty() && !metrics.contains(&sample.metric) {
                    metrics.insert(sample.metric.clone());
                }
                if self.options.metric.as_ref().is_none_or(|name| *name == sample.metric) {
                    self.add(&sample, histogram);
                }
            }
            DecodedValue::Integer(_) | DecodedValue::Number(_) => {
                self.skipped(match sample.temporality {
                    SampleTemporality::Cumulative | SampleTemporality::Delta => "a counter",
                    SampleTemporality::Instant if self.is_exposition => "a gauge",
                    SampleTemporality::Instant => "a single number",
                })
            }
            DecodedValue::Text(_) => self.skipped("a text"),
        }
    }

    fn skipped(&mut self, what: &'static str) {
        *self.input.skipped.entry(what).or_default() += 1;
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        self.input.error_count += 1;
        if self.input.errors.len() < ERRORS_KEPT_MAX {
            self.input.errors.push((self.file_name.clone(), error));
        }
        if self.options.keep_going { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Reader that shows progress for large inputs on a terminal.
struct FileProgressReader {
    source: Box<dyn Read>,
    read: u64,
    last_shown: u64,
    /// Size in bytes; 0 if unknown.
    length: u64,
    name: String,
}

impl Read for FileProgressReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.read += read as u64;
        if self.read - self.last_shown >= PROGRESS_BYTES && io::stderr().is_terminal() {
            self.last_shown = self.read;
            let percent = (self.read * 100).checked_div(self.length);
            let of_all = percent.map_or(String::new(), |p| format!(" ({} %)", p.min(100)));
            // Progress output errors are ignored.
            let _ = write!(io::stderr(), "\r{}: {} MB{of_all} ", self.name, self.read / 1_000_000);
        }
        Ok(read)
    }
}

impl Drop for FileProgressReader {
    fn drop(&mut self) {
        if self.last_shown > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
