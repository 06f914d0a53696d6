//! Cumulative histograms of one series as increments from sample to sample, for the sums of many
//! windows.
//!
//! The increments are those that chunks store. Where a chunk does not continue the sample before
//! it, the increment is the difference of the two samples; if a count has decreased, the counter
//! was reset and the whole sample is the increment.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::ops::Range;

use hist::codec::decoded_block::{DecodedBlock, DenseCounts};
use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};
use model::Gap;

use crate::chunk::{self, CumulativeChunk, TrackedStatistics};
use crate::error::Result;
use crate::index::SelectedSeries;
use crate::resolution::Resolution;
use crate::row::{Predecessor, Row, Rows};

use super::increment_reader::{ChunkIncrements, DecodedChunks, IncrementReader};
use super::{ReadView, may_contain};

/// Bits of the number of values of a sample, so that sums of increments stay below 2^64.
pub(super) const TOTAL_BITS_MAX: u32 = 62;

/// Samples of a cumulative histogram, and the increments between them; an [`IncrementReader`]
/// decodes those that it needs.
pub struct HistogramIncrements {
    scheme: Scheme,
    zero_threshold: f64,
    times: Vec<i64>,
    has_starts: bool,
    /// Whether all samples are only counts and a sum that is exact in one double.
    is_plain: bool,
    /// Number of values of the first sample; `None` if its chunk has to be decoded for that.
    pub(super) first_total: Option<u64>,
    sums: Vec<f64>,
    resets: Vec<usize>,
    pub(super) pieces: Vec<IncrementPiece>,
    /// Empty window for most of the pieces.
    window: DenseCounts,
}

/// Increments of consecutive samples.
pub(super) struct IncrementPiece {
    pub(super) samples: Range<usize>,
    pub(super) content: PieceContent,
}

pub(super) enum PieceContent {
    Chunk(Box<ChunkIncrements>),
    /// Difference of one sample from the one before.
    Difference {
        buckets: Vec<(i32, u64)>,
        zero: u64,
        /// Number of values of the sample.
        total: u64,
    },
}

impl HistogramIncrements {
    /// Scheme of all samples.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Zero threshold of all samples.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// Divides the values by a number, as `hist::Histogram::divide`.
    pub fn divide(&mut self, divisor: f64) {
        self.scheme = self.scheme.divide(divisor);
        self.zero_threshold /= divisor;
        self.sums.iter_mut().for_each(|sum| *sum /= divisor);
    }

    /// Timestamps of the samples in nanoseconds since the Unix epoch, ascending.
    pub fn times(&self) -> &[i64] {
        &self.times
    }

    /// Whether samples have start timestamps.
    pub fn has_starts(&self) -> bool {
        self.has_starts
    }

    /// Sum of the values at each sample.
    pub fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Samples before which the counter was reset, ascending.
    pub fn resets(&self) -> &[usize] {
        &self.resets
    }

    /// Empty window for the increments.
    pub fn window(&self) -> DenseCounts {
        self.window.clone()
    }

    /// Increase in each column that has a sample with one before it; `None` if a sum is not finite
    /// or a chunk is not supported.
    fn columns(&self, columns: &[Range<i64>]) -> Option<Vec<Row<Histogram>>> {
        let mut rows = Vec::new();
        let mut decoded = DecodedChunks::default();
        let mut reader = IncrementReader::new(self, &mut decoded, columns.len() == 1);
        let mut window = self.window();
        let mut sample = 1;
        for column in columns {
            while self.times.get(sample).is_some_and(|&time| time <= column.start) {
                sample = sample.saturating_add(1);
            }
            let first = sample;
            while self.times.get(sample).is_some_and(|&time| time <= column.end) {
                sample = sample.saturating_add(1);
            }
            if first == sample {
                continue;
            }
            window.clear();
            reader.move_to(&(first..sample));
            if !reader.add(first..sample, false, &mut window) {
                return None;
            }
            let mut parts = HistogramParts::new(self.scheme.clone());
            parts.zero_threshold = self.zero_threshold;
            (parts.positive, parts.zero) = window.buckets();
            parts.sum = TrackedValue::Exact(self.sum_increase(first..sample)?);
            let (before, last) = (first.saturating_sub(1), sample.saturating_sub(1));
            let value = Histogram::from_parts(parts).ok()?;
            rows.push(Row { start: self.times[before], end: self.times[last], value });
        }
        Some(rows)
    }

    /// Increase of the sum up to some samples.
    fn sum_increase(&self, samples: Range<usize>) -> Option<DoubleDouble> {
        let sum = |at: usize| DoubleDouble::new(self.sums[at]);
        let mut total = DoubleDouble::ZERO;
        let mut from = sum(samples.start.saturating_sub(1));
        let resets = self.resets.partition_point(|&at| at < samples.start);
        for &reset in self.resets[resets..].iter().take_while(|&&at| at < samples.end) {
            total = total.plus(sum(reset.saturating_sub(1)).minus(from));
            from = DoubleDouble::ZERO;
        }
        total = total.plus(sum(samples.end.saturating_sub(1)).minus(from));
        total.value().is_finite().then_some(total)
    }

    /// Approximate memory in bytes.
    pub fn held_bytes(&self) -> usize {
        let of_piece = |piece: &IncrementPiece| match &piece.content {
            PieceContent::Chunk(chunk) => held_bytes_of(chunk),
            PieceContent::Difference { buckets, .. } => size_of_val(buckets.as_slice()),
        };
        let of_samples = self.times.len().saturating_mul(SAMPLE_BYTES);
        self.pieces.iter().map(of_piece).fold(of_samples, usize::saturating_add)
    }
}

impl ReadView {
    /// Base rows of a cumulative histogram series as increments, and the known gaps. `None` if
    /// their scheme changes or they have other than positive values and zeros: then read
    /// [samples](ReadView::samples). `reserve` is called with additional bytes of memory, and ends
    /// the read, which then returns `None`, if it returns false.
    pub fn increments(
        &self,
        series: &SelectedSeries,
        range: Range<i64>,
        reserve: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Option<HistogramIncrements>, Vec<Gap>)> {
        let mut gaps = self.known_gaps_of(std::slice::from_ref(series), &range);
        gaps.extend(self.dropped_samples(series, &range)?);
        let mut builder = IncrementsBuilder::default();
        let is_supported =
            self.add_all_increments(series, &range, &mut builder, &mut gaps, reserve)?;
        Ok((is_supported.then(|| builder.finish()).flatten(), gaps))
    }

    /// Increase of a series in columns from `range.start` on, one row for each column that has
    /// samples in the range. `None` if it may differ from the sum of the increases of its samples:
    /// then sum those.
    pub(super) fn column_increases(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        columns: &[Range<i64>],
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Rows>> {
        let stored = self.previous_sample(series, range.start, gaps)?;
        let before = stored.as_ref().and_then(Rows::first_time);
        let mut builder = IncrementsBuilder::default();
        if !stored.is_none_or(|row| builder.push_rows(row))
            || !self.add_all_increments(series, range, &mut builder, gaps, &mut |_| true)?
        {
            return Ok(None);
        }
        let is_first_known = !builder.is_reordered
            && match (before, &builder.recorded) {
                (None, recorded) => *recorded == Some(RecordedPredecessor::Nothing),
                (Some(time), Some(RecordedPredecessor::Sample(recorded))) => *recorded == time,
                (Some(_), recorded) => *recorded != Some(RecordedPredecessor::Nothing),
            };
        let increments = builder.finish().filter(|increments| {
            is_first_known
                && increments.is_plain
                && !increments.has_starts
                && increments.scheme.is_mirrored()
        });
        let Some(increments) = increments else { return Ok(None) };
        let rows = increments.columns(columns);
        Ok(rows.map(Rows::Histograms))
    }

    fn add_all_increments(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        builder: &mut IncrementsBuilder,
        gaps: &mut Vec<Gap>,
        reserve: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool> {
        let partition = Resolution::Base.partition();
        let mut starts: BTreeSet<i64> =
            self.manifest.base_parts().map(|part| part.partition().start).collect();
        starts.extend(self.heads().flat_map(|head| head.partitions().collect::<Vec<_>>()));
        let mut reserved = 0usize;
        for start in starts {
            let piece = start.max(range.start)..start.saturating_add(partition).min(range.end);
            if piece.is_empty() {
                continue;
            }
            if !self.add_increments(series, &piece, builder, gaps)? {
                return Ok(false);
            }
            let more = builder.held_bytes.saturating_sub(reserved);
            reserved = builder.held_bytes;
            if !reserve(more as u64) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds the samples of a partition; false if they are not supported.
    fn add_increments(
        &self,
        series: &SelectedSeries,
        range: &Range<i64>,
        builder: &mut IncrementsBuilder,
        gaps: &mut Vec<Gap>,
    ) -> Result<bool> {
        self.check()?;
        let kind = series.kind;
        let mut chunks: Vec<CumulativeChunk> = Vec::new();
        let mut is_supported = true;
        for info in self.manifest.base_parts().filter(|info| may_contain(info, range)) {
            self.chunks(info, &series.id, range, gaps, &mut |_, header, bytes| {
                match chunk::decode_increments(header, bytes)? {
                    Some(chunk) => chunks.push(chunk),
                    None => is_supported = false,
                }
                Ok(())
            })?;
        }
        if !is_supported {
            return Ok(false);
        }
        let mut in_heads = Rows::empty_for(kind);
        for head in self.heads() {
            if let Some(more) = head.rows_of(series.number, kind, range) {
                in_heads.append(more);
            }
        }
        let times = |chunk: &CumulativeChunk| {
            let time = |at: Option<&(i64, i64)>| at.map_or((0, 0), |(start, end)| (*end, *start));
            time(chunk.times.first())..time(chunk.times.last())
        };
        model::sort::by_key(&mut chunks, |chunk| times(chunk).start);
        let is_ordered = chunks.windows(2).all(|pair| times(&pair[0]).end < times(&pair[1]).start)
            && chunks.iter().all(|chunk| chunk.times.is_sorted_by(|a, b| a.1 < b.1));
        in_heads.normalize(kind);
        let is_after = match (chunks.last(), in_heads.first_time()) {
            (Some(last), Some(first)) => times(last).end < first,
            _ => true,
        };
        if !(is_ordered && is_after) {
            // Late or repeated samples: all are ordered and deduplicated.
            builder.is_reordered = true;
            let rows = self.base_rows(series, range, |_| true, gaps)?.into_normalized(kind).0;
            return Ok(builder.push_rows(rows));
        }
        Ok(chunks.into_iter().all(|chunk| builder.push_chunk(chunk, range))
            && builder.push_rows(in_heads))
    }
}

/// Increments of the samples so far.
#[derive(Default)]
struct IncrementsBuilder {
    increments: Option<HistogramIncrements>,
    /// Counts of the last sample; `None` if those are the sum of the last piece.
    last: Option<DenseCounts>,
    /// End and start of the last sample.
    last_time: (i64, i64),
    /// Number of values of all samples before resets.
    total_before_resets: u64,
    /// Predecessor that the first chunk records, if all its samples are in the range.
    recorded: Option<RecordedPredecessor>,
    /// Whether samples of several chunks were put in order, whatever predecessors they record.
    is_reordered: bool,
    held_bytes: usize,
    decoded: DecodedBlock,
}

#[derive(Debug, PartialEq)]
enum RecordedPredecessor {
    Unknown,
    Nothing,
    /// End and start of the sample.
    Sample((i64, i64)),
}

impl IncrementsBuilder {
    fn finish(self) -> Option<HistogramIncrements> {
        let is_bounded = self.total_before_resets >> TOTAL_BITS_MAX == 0;
        self.increments.filter(|increments| is_bounded && !increments.times.is_empty())
    }

    /// Appends samples in time order; false if they are not supported.
    fn push_rows(&mut self, rows: Rows) -> bool {
        let Rows::Cumulative(rows) = rows else { return false };
        rows.iter().all(|row| self.push_sample((row.start, row.end), &row.value))
    }

    fn push_sample(&mut self, time: (i64, i64), value: &Histogram) -> bool {
        let sum = value.tracked_sum().value().map(|sum| sum.value());
        let Some(sum) = sum.filter(|sum| !sum.is_nan()) else { return false };
        let is_plain =
            value.thresholds().is_empty() && TrackedStatistics::from_histogram(value).is_plain();
        let mut now = DenseCounts::default();
        self.is_like(value, is_plain)
            && now.add_histogram(value)
            && self.push_counts(time, now, value.count(), sum)
    }

    /// Appends the samples of a chunk that ended in a range.
    fn push_chunk(&mut self, chunk: CumulativeChunk, range: &Range<i64>) -> bool {
        let CumulativeChunk { times, predecessor, base, block, block_rows, sums, .. } = chunk;
        let samples = times.partition_point(|time| time.1 <= range.start)
            ..times.partition_point(|time| time.1 <= range.end);
        if samples.is_empty() {
            return true;
        }
        if !self.is_like(&base, chunk.is_plain) || base.count() >> TOTAL_BITS_MAX > 0 {
            return false;
        }
        self.recorded.get_or_insert(match &predecessor {
            // The sample before the range is in this chunk.
            _ if samples.start > 0 => RecordedPredecessor::Unknown,
            Predecessor::Nothing => RecordedPredecessor::Nothing,
            other => {
                let time = other.time();
                time.map_or(RecordedPredecessor::Unknown, RecordedPredecessor::Sample)
            }
        });
        // Samples before the first row of the block.
        let without_increment = usize::from(!chunk.is_base_predecessor);
        let row_of = |sample: usize| sample.saturating_sub(without_increment);
        let mut first = samples.start;
        let has_samples = self.increments.as_ref().is_some_and(|held| !held.times.is_empty());
        let continues = first == 0
            && has_samples
            && chunk.is_base_predecessor
            && predecessor.time() == Some(self.last_time);
        if continues {
            self.record_end();
        } else {
            let (time, sum) = (times[first], sums[first]);
            first = first.saturating_add(1);
            // Nothing precedes the first sample of all, so its counts may wait.
            let is_pushed = if !has_samples && first < samples.end {
                self.push_time(time, sum)
            } else {
                let now = self.counts_after(&base, &block, row_of(first));
                now.is_some_and(|now| {
                    let total = now.total();
                    self.push_counts(time, now, total, sum)
                })
            };
            if !is_pushed {
                return false;
            }
        }
        if first >= samples.end {
            return true;
        }
        let Some(increments) = &mut self.increments else { return false };
        if !increments.window.extend_to_histogram(&base) || times[first].1 <= self.last_time.0 {
            return false;
        }
        let some = first..samples.end;
        increments.times.extend(times[some.clone()].iter().map(|time| time.1));
        increments.has_starts |= times[some.clone()].iter().any(|(start, end)| start < end);
        increments.sums.extend_from_slice(&sums[some.clone()]);
        let end = increments.times.len();
        let rows = row_of(first)..row_of(samples.end);
        let chunk = ChunkIncrements { block, rows, is_end_recorded: false, base };
        let bytes = held_bytes_of(&chunk).saturating_add(some.len().saturating_mul(SAMPLE_BYTES));
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        increments.pieces.push(IncrementPiece {
            samples: end.saturating_sub(some.len())..end,
            content: PieceContent::Chunk(Box::new(chunk)),
        });
        let (start, end) = times[samples.end.saturating_sub(1)];
        (self.last, self.last_time) = (None, (end, start));
        debug_assert!(row_of(samples.end) <= block_rows, "BUG: a sample has a row");
        true
    }

    /// Notes that the next chunk begins with the counts after the last one.
    fn record_end(&mut self) {
        let last = self.increments.as_mut().and_then(|increments| increments.pieces.last_mut());
        if let Some(IncrementPiece { content: PieceContent::Chunk(chunk), .. }) = last {
            chunk.is_end_recorded = true;
        }
    }

    /// Counts after some rows of a block; `None` if they are not supported.
    fn counts_after(&mut self, base: &Histogram, block: &[u8], rows: usize) -> Option<DenseCounts> {
        let mut counts = DenseCounts::default();
        if !counts.add_histogram(base) {
            return None;
        }
        if rows > 0 {
            let is_supported = self.decoded.decode_rows(block, rows).unwrap_or(false)
                && self.decoded.scheme() == base.scheme()
                && self.decoded.zero_threshold() == base.zero_threshold()
                && counts.extend_to_block(&self.decoded);
            if !is_supported {
                return None;
            }
            counts.add_rows(&self.decoded, 0..rows, false);
        }
        (counts.total() >> TOTAL_BITS_MAX == 0).then_some(counts)
    }

    /// Counts of the last sample.
    fn last_counts(&mut self) -> Option<DenseCounts> {
        if self.last.is_some() {
            return self.last.take();
        }
        let mut increments = self.increments.take()?;
        let counts = match increments.pieces.last_mut().map(|piece| &piece.content) {
            Some(PieceContent::Chunk(chunk)) => {
                self.counts_after(&chunk.base, &chunk.block, chunk.rows.end)
            }
            _ => None,
        };
        self.increments = Some(increments);
        counts
    }

    /// Whether a histogram has the scheme and zero threshold of the samples; the first one sets
    /// them.
    fn is_like(&mut self, histogram: &Histogram, is_plain: bool) -> bool {
        let (scheme, zero_threshold) = (histogram.scheme(), histogram.zero_threshold());
        let increments = self.increments.get_or_insert_with(|| HistogramIncrements {
            scheme: scheme.clone(),
            zero_threshold,
            times: Vec::new(),
            has_starts: false,
            is_plain: true,
            first_total: None,
            sums: Vec::new(),
            resets: Vec::new(),
            pieces: Vec::new(),
            window: DenseCounts::default(),
        });
        increments.is_plain &= is_plain;
        increments.scheme == *scheme && increments.zero_threshold == zero_threshold
    }

    /// Appends a sample by its counts.
    fn push_counts(&mut self, time: (i64, i64), now: DenseCounts, total: u64, sum: f64) -> bool {
        let Some(increments) = &self.increments else { return false };
        if total >> TOTAL_BITS_MAX > 0 {
            return false;
        }
        let at = increments.times.len();
        if at == 0 {
            let is_pushed = self.push_time(time, sum);
            self.increments.iter_mut().for_each(|held| held.first_total = Some(total));
            self.last = Some(now);
            return is_pushed;
        }
        if time.1 <= self.last_time.0 {
            return false;
        }
        let Some(before) = self.last_counts() else { return false };
        let increase = now.increase_since(&before);
        let Some(increments) = &mut self.increments else { return false };
        if increase.is_none() {
            increments.resets.push(at);
            self.total_before_resets = self.total_before_resets.saturating_add(before.total());
        }
        let (buckets, zero) = increase.unwrap_or_else(|| now.buckets());
        if !increments.window.extend_to_buckets(&buckets) {
            return false;
        }
        self.held_bytes = self.held_bytes.saturating_add(size_of_val(buckets.as_slice()));
        let content = PieceContent::Difference { buckets, zero, total };
        increments.pieces.push(IncrementPiece { samples: at..at.saturating_add(1), content });
        self.last = Some(now);
        self.push_time(time, sum)
    }

    fn push_time(&mut self, (start, end): (i64, i64), sum: f64) -> bool {
        let Some(increments) = &mut self.increments else { return false };
        increments.times.push(end);
        increments.has_starts |= start < end;
        increments.sums.push(sum);
        self.held_bytes = self.held_bytes.saturating_add(SAMPLE_BYTES);
        self.last_time = (end, start);
        true
    }
}

fn held_bytes_of(chunk: &ChunkIncrements) -> usize {
    let buckets = chunk.base.positive().len().saturating_mul(size_of::<(i32, u64)>());
    chunk.block.len().saturating_add(buckets)
}

/// Memory of a sample without its counts.
const SAMPLE_BYTES: usize = size_of::<(i64, f64)>();
