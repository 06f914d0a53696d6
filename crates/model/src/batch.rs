//! Batch format: samples of many series, in journal records and on the wire.
//!
//! ```text
//! magic     u8     0xd3
//! version   u8     1, or 2 if there are sections; readers reject any other
//! groups, until the end of the bytes, each:
//!   series  u8     0: an ID of 16 bytes; 1: a canonical key, as length and bytes; 2: gaps
//!   samples varint number of samples; then each:
//!     start zigzag ns: difference to the start of the sample before it in the batch, at first to 0
//!     span  zigzag ns: end - start, as difference to that of the sample before it
//!     value        histogram: length and frame; number: 8 bytes; text: length and UTF-8
//! ```
//! The receiver of an ID must know the canonical key of the series. The byte after the ID is the
//! type of the values: 0 frame, 1 number, 2 text. A group of gaps has gaps instead of samples, see
//! `gap.rs`. In version 2 a first byte above 2 is that of a section: a length and its bytes.
//! Section 3 has exemplars (`exemplar.rs`), section 4 spans of traces (`trace.rs`); unknown ones
//! are skipped.
//! `docs/formats/batch.md` is the specification.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod reader;

use hist::Histogram;
use hist::codec::frame_body::HistogramBody;
use hist::codec::header::{FrameUnit, SeriesMeta, Temporality};

use crate::error::{Error, Result};
use crate::exemplar::{Exemplar, ExemplarWriter};
use crate::gap::Gap;
use crate::sample::{Sample, SampleValue};
use crate::selector::kind_name;
use crate::series::{Series, SeriesId, SeriesKind, read_key_head};
use crate::trace::{TraceSpans, TraceWriter};
use crate::wire::{put_bytes, put_varint, put_zigzag};

use reader::GroupHead;
pub use reader::{BatchEntry, BatchReader, BatchSeries};

/// First byte of a batch.
const MAGIC: u8 = 0xd3;
/// Version of a batch without sections, which all releases read.
const VERSION: u8 = 1;
/// Version of a batch with sections.
const VERSION_WITH_SECTIONS: u8 = 2;
/// Offset of the version.
const VERSION_OFFSET: usize = 1;

const BY_ID: u8 = 0;
const BY_KEY: u8 = 1;
const GAPS: u8 = 2;
const EXEMPLARS: u8 = 3;
const TRACES: u8 = 4;

/// Maximum count of one histogram of a batch, NaN values included.
pub const HISTOGRAM_COUNT_MAX: u64 = 1 << 56;
/// Maximum number of positive or of negative buckets of one histogram of a batch: a block of the
/// store holds no more.
const HISTOGRAM_BUCKETS_MAX: u64 = hist::codec::block::BUCKETS_MAX;

/// Writer of a batch.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    out: Vec<u8>,
    /// Samples of the open group.
    group: Vec<u8>,
    samples: u64,
    series: Option<(SeriesKind, SeriesMeta)>,
    /// Whether a group is open, whose sample count is not written yet.
    is_open: bool,
    /// Name of the open group's series, for errors; the allocation is reused.
    name: String,
    gaps: Vec<Gap>,
    exemplars: ExemplarWriter,
    traces: TraceWriter,
    /// Start of the previous sample: most samples of a batch have the same interval.
    start: i64,
    span: i64,
    frame: Vec<u8>,
    count: u64,
}

impl Default for BatchWriter {
    fn default() -> BatchWriter {
        BatchWriter {
            out: vec![MAGIC, VERSION],
            group: Vec::new(),
            samples: 0,
            series: None,
            is_open: false,
            name: String::new(),
            gaps: Vec::new(),
            exemplars: ExemplarWriter::default(),
            traces: TraceWriter::default(),
            start: 0,
            span: 0,
            frame: Vec::new(),
            count: 0,
        }
    }
}

impl BatchWriter {
    /// Opens a group of samples of this series, with its canonical key.
    pub fn series(&mut self, series: &Series) {
        self.series_by_key(&series.canonical_key(), None);
    }

    /// Opens a group of samples of this series by its ID, for a reader that knows the canonical
    /// key.
    pub fn series_by_id(&mut self, id: SeriesId, series: &Series) {
        self.series_by_key(&series.canonical_key(), Some(id));
    }

    /// The same, for the series with a canonical key; with an ID if the reader knows the key.
    ///
    /// # Panics
    ///
    /// If the key is not that of a series.
    pub fn series_by_key(&mut self, canonical_key: &[u8], id: Option<SeriesId>) {
        let Some((kind, name, unit)) = read_key_head(canonical_key) else {
            panic!("BUG: a key of {} bytes is that of no series", canonical_key.len())
        };
        self.close();
        match id {
            None => {
                self.out.push(BY_KEY);
                put_bytes(&mut self.out, canonical_key);
            }
            Some(id) => {
                self.out.push(BY_ID);
                self.out.extend_from_slice(&id.0);
                self.out.push(value_tag(kind));
            }
        }
        let temporality =
            if kind.is_cumulative() { Temporality::Cumulative } else { Temporality::Delta };
        self.series = Some((kind, SeriesMeta { unit: frame_unit(unit), temporality }));
        self.is_open = true;
        self.name.clear();
        self.name.push_str(name);
    }

    /// Adds a sample to the open group.
    ///
    /// # Panics
    ///
    /// If no group is open.
    pub fn sample(&mut self, sample: &Sample) -> Result<()> {
        let (kind, meta) = self.open_series();
        if !sample.value.fits(kind) {
            return Err(self.kind_error(kind, sample.value.description()));
        }
        if let SampleValue::Histogram(histogram) = &sample.value {
            check_histogram(&self.name, histogram)?;
        }
        self.write_interval(sample.start, sample.end)?;
        match &sample.value {
            SampleValue::Histogram(histogram) => {
                self.frame.clear();
                hist::codec::frame::encode(histogram, meta, &mut self.frame);
                put_bytes(&mut self.group, &self.frame);
            }
            SampleValue::Number(number) => self.group.extend_from_slice(&number.to_le_bytes()),
            SampleValue::Text(text) => put_bytes(&mut self.group, text.as_bytes()),
        }
        self.count_sample();
        Ok(())
    }

    /// Adds a histogram of an interval to the open group, as [`Self::sample`], by the body of its
    /// frame.
    ///
    /// # Panics
    ///
    /// If no group is open.
    pub fn frame(&mut self, (start, end): (i64, i64), body: &HistogramBody<'_>) -> Result<()> {
        let (kind, meta) = self.open_series();
        if !matches!(kind, SeriesKind::Histogram(_)) {
            return Err(self.kind_error(kind, "a histogram"));
        }
        check_count(&self.name, body.count().into())?;
        check_buckets(&self.name, body.bucket_count())?;
        self.write_interval(start, end)?;
        self.frame.clear();
        body.put(meta, &mut self.frame);
        put_bytes(&mut self.group, &self.frame);
        self.count_sample();
        Ok(())
    }

    fn open_series(&self) -> (SeriesKind, SeriesMeta) {
        let Some(series) = self.series else { panic!("BUG: a sample before its series") };
        series
    }

    #[cold]
    fn kind_error(&self, kind: SeriesKind, found: &'static str) -> Error {
        Error::Kind { series: self.name.clone(), kind: kind_name(kind), found }
    }

    fn write_interval(&mut self, start: i64, end: i64) -> Result<()> {
        let Some(span) = end.checked_sub(start).filter(|&span| span >= 0) else {
            return Err(Error::NegativeInterval { series: self.name.clone(), start, end });
        };
        self.write_times(start, span);
        Ok(())
    }

    /// Writes start and span. Both may be any 64-bit number, so differences wrap, as they do in the
    /// reader.
    fn write_times(&mut self, start: i64, span: i64) {
        put_zigzag(&mut self.group, start.wrapping_sub(self.start));
        put_zigzag(&mut self.group, span.wrapping_sub(self.span));
        (self.start, self.span) = (start, span);
    }

    fn count_sample(&mut self) {
        self.samples = self.samples.saturating_add(1);
        self.count = self.count.saturating_add(1);
    }

    /// Adds a gap.
    pub fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Adds an exemplar of a series, which may have no samples in this batch.
    pub fn exemplar(&mut self, series: SeriesId, exemplar: &Exemplar) {
        self.exemplars.push(series, exemplar);
    }

    /// Size of the exemplars so far, in bytes.
    pub fn exemplar_bytes(&self) -> usize {
        self.exemplars.bytes().len()
    }

    /// Removes the exemplars; returns their number.
    pub fn discard_exemplars(&mut self) -> u64 {
        std::mem::take(&mut self.exemplars).len()
    }

    /// Adds spans of a trace.
    pub fn trace(&mut self, spans: TraceSpans<'_>) {
        self.traces.push(spans);
    }

    /// Number of samples so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are neither samples nor gaps nor sections.
    pub fn is_empty(&self) -> bool {
        let has_sections = !(self.exemplars.is_empty() && self.traces.is_empty());
        self.count == 0 && self.gaps.is_empty() && !has_sections
    }

    /// Size so far without the sections, in bytes.
    pub fn bytes(&self) -> usize {
        self.out.len().saturating_add(self.group.len())
    }

    fn close(&mut self) {
        self.series = None;
        if std::mem::take(&mut self.is_open) {
            put_varint(&mut self.out, self.samples);
            self.out.append(&mut self.group);
            self.samples = 0;
        }
    }

    /// Returns the batch.
    pub fn finish(mut self) -> Batch {
        self.close();
        put_gaps(&mut self.out, &self.gaps);
        put_section(&mut self.out, EXEMPLARS, self.exemplars.bytes());
        put_section(&mut self.out, TRACES, self.traces.bytes());
        Batch {
            bytes: self.out,
            samples: self.count,
            has_gaps: !self.gaps.is_empty(),
            exemplars: self.exemplars.len(),
        }
    }
}

fn put_section(out: &mut Vec<u8>, number: u8, section: &[u8]) {
    if !section.is_empty() {
        out[VERSION_OFFSET] = VERSION_WITH_SECTIONS;
        out.push(number);
        put_bytes(out, section);
    }
}

fn put_gaps(out: &mut Vec<u8>, gaps: &[Gap]) {
    if !gaps.is_empty() {
        out.push(GAPS);
        put_varint(out, gaps.len() as u64);
        gaps.iter().for_each(|gap| gap.encode(out));
    }
}

fn check_histogram(series: &str, histogram: &Histogram) -> Result<()> {
    let count = u128::from(histogram.count()).saturating_add(histogram.nan_count().into());
    check_count(series, count)?;
    let buckets = [histogram.positive(), histogram.negative()].map(|of| of.indexes().len());
    check_buckets(series, buckets[0].max(buckets[1]) as u64)
}

/// 256 histograms of this count, NaN values included, can be added without overflow. A billion
/// values per second reach it in two years.
fn check_count(series: &str, count: u128) -> Result<()> {
    if count > u128::from(HISTOGRAM_COUNT_MAX) {
        return Err(Error::HistogramTooLarge {
            series: series.to_owned(),
            count,
            max: HISTOGRAM_COUNT_MAX,
        });
    }
    Ok(())
}

fn check_buckets(series: &str, buckets: u64) -> Result<()> {
    if buckets > HISTOGRAM_BUCKETS_MAX {
        return Err(Error::HistogramTooManyBuckets {
            series: series.to_owned(),
            buckets,
            max: HISTOGRAM_BUCKETS_MAX,
        });
    }
    Ok(())
}

/// Validated batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
    samples: u64,
    has_gaps: bool,
    exemplars: u64,
}

impl Batch {
    /// Decodes and validates a batch, values included. Later stages never reject a batch that
    /// passed.
    pub fn decode(bytes: Vec<u8>) -> Result<Batch> {
        let mut samples = 0;
        let mut reader = BatchReader::new(&bytes)?;
        for entry in reader.by_ref() {
            let entry = entry?;
            if let SampleValue::Histogram(histogram) = entry.decode()? {
                let name = format!("series {}", entry.series.id());
                check_histogram(&name, &histogram)?;
            }
            samples = u64::saturating_add(samples, 1);
        }
        let has_gaps = !reader.gaps().is_empty();
        let mut exemplars = 0;
        for exemplar in reader.exemplars() {
            let _valid = exemplar?;
            exemplars = u64::saturating_add(exemplars, 1);
        }
        for spans in reader.traces() {
            let _valid = spans?;
        }
        Ok(Batch { bytes, samples, has_gaps, exemplars })
    }

    /// The encoded batch.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Number of exemplars.
    pub fn exemplars(&self) -> u64 {
        self.exemplars
    }

    /// Iterates over the samples.
    #[expect(clippy::expect_used, reason = "a batch is only made of bytes that were read")]
    pub fn read(&self) -> BatchReader<'_> {
        BatchReader::new(&self.bytes).expect("BUG: the batch was checked")
    }

    /// The same batch with each series by its canonical key, for readers that do not know the IDs.
    /// Samples are copied as bytes.
    pub fn with_canonical_keys(
        &self,
        canonical_key_of: &mut dyn FnMut(SeriesId) -> Option<Vec<u8>>,
    ) -> Result<Batch> {
        let mut reader = self.read();
        let mut out = Vec::with_capacity(self.bytes.len());
        let mut copied = 0;
        while !reader.reader.is_empty() {
            let begin = reader.reader.offset();
            let head = reader.read_group_head()?;
            let head_end = reader.reader.offset();
            if let GroupHead::Samples(BatchSeries::Id(id), tag) = head {
                let canonical_key = canonical_key_of(id).ok_or(Error::UnknownSeries { id })?;
                let kind = Series::check_canonical_key(&canonical_key)?;
                if value_tag(kind) != tag {
                    let series = Series::from_canonical_key(&canonical_key)?.to_string();
                    let found = "another kind of value";
                    return Err(Error::Kind { series, kind: kind_name(kind), found });
                }
                out.extend_from_slice(&self.bytes[copied..begin]);
                out.push(BY_KEY);
                put_bytes(&mut out, &canonical_key);
                copied = head_end;
            }
            reader.skip_group_extra(head)?;
            while reader.samples_left > 0 {
                reader.read_entry()?;
            }
        }
        out.extend_from_slice(&self.bytes[copied..]);
        Ok(Batch { bytes: out, ..*self })
    }
}

impl Batch {
    /// The same batch without the groups of series that `keep` rejects; gaps and sections stay.
    /// `left_out` receives the samples that are removed.
    pub fn filter_series(
        &self,
        keep: &mut dyn FnMut(&BatchSeries<'_>) -> bool,
        left_out: &mut dyn FnMut(&BatchEntry<'_>),
    ) -> Result<Batch> {
        let mut writer = BatchWriter::default();
        let mut reader = self.read();
        let mut is_kept = false;
        for entry in reader.by_ref() {
            let entry = entry?;
            if entry.starts_group {
                is_kept = keep(&entry.series);
                if is_kept {
                    writer.begin_copy(&entry);
                }
            }
            if is_kept {
                writer.copy(&entry);
            } else {
                left_out(&entry);
            }
        }
        reader.gaps().iter().for_each(|gap| writer.gap(gap.clone()));
        writer.copy_sections(&reader)?;
        Ok(writer.finish())
    }
}

impl Batch {
    /// Whether it has sections: then readers of version 1 reject it.
    pub fn has_sections(&self) -> bool {
        self.bytes.get(VERSION_OFFSET) == Some(&VERSION_WITH_SECTIONS)
    }

    /// The same batch without its sections, for a reader of version 1.
    pub fn without_sections(&self) -> Result<Batch> {
        let mut reader = self.read();
        let mut out = Vec::with_capacity(self.bytes.len());
        out.extend_from_slice(&[MAGIC, VERSION]);
        while !reader.reader.is_empty() {
            let begin = reader.reader.offset();
            let head = reader.read_group_head()?;
            reader.skip_group_extra(head)?;
            while reader.samples_left > 0 {
                reader.read_entry()?;
            }
            if !matches!(head, GroupHead::Section(_)) {
                out.extend_from_slice(&self.bytes[begin..reader.reader.offset()]);
            }
        }
        Ok(Batch { bytes: out, exemplars: 0, ..*self })
    }
}

impl Batch {
    /// The same batch with additional gaps.
    pub fn with_gaps(self, gaps: impl Iterator<Item = Gap>) -> Batch {
        let gaps: Vec<Gap> = gaps.collect();
        let Batch { bytes: mut out, samples, has_gaps, exemplars } = self;
        put_gaps(&mut out, &gaps);
        Batch { bytes: out, samples, has_gaps: has_gaps || !gaps.is_empty(), exemplars }
    }
}

impl Batch {
    /// The same batch with each gap changed by `map`. Without gaps, nothing is copied.
    pub fn with_mapped_gaps(self, map: &mut dyn FnMut(&mut Gap)) -> Result<Batch> {
        if !self.has_gaps {
            return Ok(self);
        }
        let mut reader = self.read();
        let mut writer = BatchWriter::default();
        for entry in reader.by_ref() {
            let entry = entry?;
            if entry.starts_group {
                writer.begin_copy(&entry);
            }
            writer.copy(&entry);
        }
        for mut gap in reader.gaps().iter().cloned() {
            map(&mut gap);
            writer.gap(gap);
        }
        writer.copy_sections(&reader)?;
        Ok(writer.finish())
    }
}

impl BatchWriter {
    fn begin_copy(&mut self, entry: &BatchEntry<'_>) {
        self.close();
        match entry.series {
            BatchSeries::Id(id) => {
                self.out.push(BY_ID);
                self.out.extend_from_slice(&id.0);
                self.out.push(entry.tag);
            }
            BatchSeries::Key(canonical_key) => {
                self.out.push(BY_KEY);
                put_bytes(&mut self.out, canonical_key);
            }
        }
        self.is_open = true;
    }

    /// Copies a sample of a validated batch, with its value as bytes.
    fn copy(&mut self, entry: &BatchEntry<'_>) {
        self.write_times(entry.start, entry.end.wrapping_sub(entry.start));
        match entry.tag {
            1 => self.group.extend_from_slice(entry.value),
            _ => put_bytes(&mut self.group, entry.value),
        }
        self.count_sample();
    }

    fn copy_sections(&mut self, reader: &BatchReader<'_>) -> Result<()> {
        for spans in reader.traces() {
            self.trace(spans?);
        }
        reader.exemplars().try_for_each(|exemplar| {
            let (series, exemplar) = exemplar?;
            self.exemplar(series, &exemplar);
            Ok(())
        })
    }
}

fn value_tag(kind: SeriesKind) -> u8 {
    match kind {
        SeriesKind::Histogram(_) => 0,
        SeriesKind::Counter(_) | SeriesKind::Gauge => 1,
        SeriesKind::Text => 2,
    }
}

/// The unit in the encoding of frames.
fn frame_unit(unit: &str) -> FrameUnit {
    match unit {
        "ns" => FrameUnit::Nanoseconds,
        "us" => FrameUnit::Microseconds,
        "ms" => FrameUnit::Milliseconds,
        "s" => FrameUnit::Seconds,
        "B" => FrameUnit::Bytes,
        _ => FrameUnit::None,
    }
}

#[cfg(test)]
mod tests;
