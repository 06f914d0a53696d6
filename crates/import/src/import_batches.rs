//! Second pass over a file: writes batches with an identity to the store.
//!
//! Batch boundaries depend only on the number and size of the samples in the file. So the same
//! content gives the same batches, and the store recognises them by producer id and sequence.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::ops::ControlFlow;

use anyhow::{Context as _, Result, bail};
use decode::{DecodedSample, DecodedValue, InputError, InputFormat, SampleSink, SampleTemporality};
use model::{BatchWriter, Sample, Series, SeriesId};

use crate::batch_output::BatchOutput;
use crate::import_progress::ImportProgress;
use crate::input_source::{self, InputSource};
use crate::mapping::ImportDefaults;
use crate::scan::ScanSummary;
use report::distribution::NumberRecorder;

/// Approximate batch size: a quarter of the maximum journal record, and large enough that the fsync
/// per batch costs little.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
/// Version of the batch boundaries. A change needs another producer id: otherwise batches of
/// the old version would be mistaken for those of the new one.
pub(crate) const BATCH_FORMAT: u64 = 1;

/// Counts of an import; duplicate batches only by number.
#[derive(Debug, Default)]
pub(crate) struct ImportSummary {
    pub(crate) batches: u64,
    pub(crate) duplicates: u64,
    pub(crate) series: u64,
    pub(crate) histograms: u64,
    /// Those of them that are cumulative: each has all values since the start of its source.
    pub(crate) cumulative: u64,
    /// Values in the others.
    pub(crate) values: u64,
    pub(crate) numbers: u64,
    pub(crate) texts: u64,
    pub(crate) time_range: Option<(i64, i64)>,
}

impl ImportSummary {
    /// Counts a histogram. The values of a cumulative one would be counted again with each sample.
    pub(crate) fn add_histogram(&mut self, is_cumulative: bool, count: u64) {
        self.histograms += 1;
        match is_cumulative {
            true => self.cumulative += 1,
            false => self.values = self.values.saturating_add(count),
        }
    }

    /// Adds the counts of samples.
    pub(crate) fn add(&mut self, other: &ImportSummary) {
        self.series += other.series;
        self.histograms += other.histograms;
        self.cumulative += other.cumulative;
        self.values = self.values.saturating_add(other.values);
        self.numbers += other.numbers;
        self.texts += other.texts;
        if let Some((start, end)) = other.time_range {
            self.extend_range(start, end);
        }
    }

    /// Extends the time range.
    pub(crate) fn extend_range(&mut self, start: i64, end: i64) {
        let (first, last) = self.time_range.unwrap_or((start, end));
        self.time_range = Some((first.min(start), last.max(end)));
    }
}

/// Imports the whole source.
pub(crate) fn import_source(
    output: BatchOutput<'_>,
    source: &InputSource,
    format: InputFormat,
    rules: &ImportDefaults<'_>,
    looked: &ScanSummary,
    progress: &mut ImportProgress<'_>,
) -> Result<ImportSummary> {
    let name = source.name();
    let cannot = || format!("cannot read {name}");
    let (input, _) = source.read();
    let mut input =
        ImportReader { input: input.take(looked.bytes), hasher: blake3::Hasher::new(), progress };
    let mut taker = BatchingSink {
        output,
        rules,
        format,
        numbers: NumberRecorder::new(&[]),
        groups: Vec::new(),
        series_index: HashMap::new(),
        pending_bytes: 0,
        known_series: HashSet::new(),
        error: None,
    };
    let (head, _) = input_source::detect(&mut input, Some(format)).with_context(cannot)?;
    input_source::read_samples(&head, &mut input, format, rules.unit, &mut taker)
        .with_context(cannot)?;
    if taker.error.is_none() {
        // The parser may stop before the end of the input.
        io::copy(&mut input, &mut io::sink()).with_context(cannot)?;
        if input.hasher.finalize() != looked.content {
            bail!(
                "{name}: the file was changed while it was imported; delete what was imported \
                 (`topdeck delete`), and import a copy of the file that does not change"
            );
        }
    }
    taker.finish().with_context(|| source.incomplete_message())
}

/// Sink that groups samples by series into batches.
struct BatchingSink<'a> {
    output: BatchOutput<'a>,
    rules: &'a ImportDefaults<'a>,
    format: InputFormat,
    numbers: NumberRecorder,
    groups: Vec<(Series, Vec<Sample>)>,
    series_index: HashMap<Series, usize>,
    pending_bytes: usize,
    known_series: HashSet<SeriesId>,
    error: Option<anyhow::Error>,
}

impl BatchingSink<'_> {
    fn add(&mut self, reading: DecodedSample) {
        if self.error.is_some() {
            return;
        }
        // Samples that cannot be mapped were reported by the scan.
        let Ok((series, sample)) = self.rules.map(reading, self.format) else { return };
        self.pending_bytes += sample_bytes(&sample);
        match self.series_index.get(&series) {
            Some(&at) => self.groups[at].1.push(sample),
            None => {
                self.pending_bytes += series.canonical_key().len();
                self.series_index.insert(series.clone(), self.groups.len());
                self.groups.push((series, vec![sample]));
            }
        }
        if self.pending_bytes >= BATCH_BYTES {
            self.finish_batch();
        }
    }

    fn finish_batch(&mut self) {
        if let Err(error) = self.append_batch() {
            self.error.get_or_insert(error);
        }
        self.groups.clear();
        self.series_index.clear();
        self.pending_bytes = 0;
    }

    fn append_batch(&mut self) -> Result<()> {
        if self.groups.is_empty() {
            return Ok(());
        }
        if self.output.has_next() {
            self.output.skip();
            return Ok(());
        }
        let mut batch = BatchWriter::default();
        for (series, samples) in &self.groups {
            batch.series(series);
            samples.iter().try_for_each(|sample| batch.sample(sample))?;
        }
        let counts = self.count();
        self.output.push(&batch.finish(), counts)
    }

    fn count(&mut self) -> ImportSummary {
        let mut counts = ImportSummary::default();
        for (series, samples) in &self.groups {
            if self.known_series.insert(series.id()) {
                counts.series += 1;
            }
            for Sample { start, end, value } in samples {
                match value {
                    model::SampleValue::Histogram(histogram) => {
                        counts.add_histogram(series.kind().is_cumulative(), histogram.count());
                    }
                    model::SampleValue::Number(_) => counts.numbers += 1,
                    model::SampleValue::Text(_) => counts.texts += 1,
                }
                counts.extend_range(*start, *end);
            }
        }
        counts
    }

    fn finish(mut self) -> Result<ImportSummary> {
        if let Some(histogram) = self.numbers.take_values() {
            self.add(DecodedSample {
                metric: String::new(),
                labels: Vec::new(),
                unit: self.rules.numbers_unit(),
                start: None,
                end: None,
                temporality: SampleTemporality::Delta,
                value: DecodedValue::Histogram(Box::new(histogram)),
            });
        }
        self.finish_batch();
        match self.error {
            Some(error) => Err(error),
            None => self.output.finish(),
        }
    }
}

/// Approximate size of a sample in a batch, or more.
fn sample_bytes(sample: &Sample) -> usize {
    const TIME_BYTES: usize = 24;
    TIME_BYTES
        + match &sample.value {
            model::SampleValue::Histogram(histogram) => {
                48 + 2 * (histogram.positive().len() + histogram.negative().len())
            }
            model::SampleValue::Number(_) => 8,
            model::SampleValue::Text(text) => text.len(),
        }
}

impl SampleSink for BatchingSink<'_> {
    #[inline]
    fn number(&mut self, value: f64) {
        self.numbers.record(value);
    }

    fn sample(&mut self, reading: DecodedSample) {
        self.add(reading);
    }

    fn skipped(&mut self, _: &'static str) {}

    fn error(&mut self, _: InputError) -> ControlFlow<()> {
        match self.error {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    }
}

/// Reader that hashes its bytes again and shows progress.
struct ImportReader<'a, 'p> {
    input: io::Take<Box<dyn Read + 'a>>,
    hasher: blake3::Hasher,
    progress: &'a mut ImportProgress<'p>,
}

impl Read for ImportReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.progress.add(read as u64);
        Ok(read)
    }
}
