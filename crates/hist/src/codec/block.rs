//! Block codec: many histograms of one series, compact and fast to merge.
//!
//! ```text
//! size      field
//!    any    header          see `header.rs`; all histograms have one scheme, unit and temporality
//!    any    histograms      varint
//!    any    zero threshold  a number as in `frame.rs`; one for all
//!    any    thresholds      varint, then the declared thresholds as numbers; the same for all
//!    any    positive        counts, see `matrix.rs`
//!    any    negative        counts
//!    any    summary         varint of its length in bytes, then bits: columns, see `columns.rs`
//!      4    checksum        CRC-32C of everything before it
//! ```
//! `docs/formats/block.md` describes the same format byte by byte.

use std::ops::Range;

use crate::accumulator::{Accumulator, PendingAdds};
use crate::codec::bits::{BitReader, BitWriter};
use crate::codec::bytes::{ByteReader, put_varint};
use crate::codec::columns::{self, SummaryColumns};
use crate::codec::frame::{put_number, read_number};
use crate::codec::header::{
    BLOCK_MAGIC, BLOCK_VERSION, BLOCK_VERSION_WITH_BOUNDS, SeriesMeta, put_header,
    read_block_header,
};
pub use crate::codec::matrix::CELLS_MAX;
use crate::codec::matrix::{
    self, ColumnUnion, CountTable, CountWord, MatrixDecoder, Stripe, StripeObserver,
};
use crate::codec::row_bounds::{ColumnPredictor, MatrixColumns, RowBounds};
use crate::error::DecodeError;
use crate::histogram::{Histogram, HistogramParts, PartsError, Threshold, check_thresholds};
use crate::scheme::Scheme;
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Maximum number of histograms in one block.
pub const HISTOGRAMS_MAX: usize = 4096;
/// Maximum number of different buckets of one sign in a block of up to eight histograms.
pub const BUCKETS_MAX: u64 = CELLS_MAX / 8;
/// Maximum number of declared thresholds in one block.
pub const THRESHOLDS_MAX: u64 = Histogram::THRESHOLDS_MAX as u64;

/// A window for all bucket columns of a block is allocated at once if `last index - first index <=
/// NARROW_SPAN + NARROW_SPAN_PER_COLUMN * columns`.
const NARROW_SPAN: i64 = 1024;
const NARROW_SPAN_PER_COLUMN: i64 = 4;

/// Error encoding a block.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// All histograms of a block must have one scheme, zero threshold and set of declared
    /// thresholds.
    #[error(
        "histogram {position} differs from the first in scheme, zero threshold or declared \
         thresholds"
    )]
    NotUniform {
        /// Index of the first histogram that differs, from 0.
        position: usize,
    },
    /// The matrix is too large; the caller should write two blocks.
    #[error(
        "{histograms} histograms with {buckets} different buckets exceed the limits of a block; \
         write several blocks"
    )]
    TooMany {
        /// Number of histograms.
        histograms: usize,
        /// Maximum number of different buckets for this number of histograms.
        buckets: u64,
    },
}

/// Appends a block of histograms that share scheme, zero threshold and declared thresholds.
pub fn encode(
    histograms: &[Histogram],
    meta: SeriesMeta,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    let empty = Histogram::default();
    let first = histograms.first().unwrap_or(&empty);
    check_uniform(histograms, first)?;
    let signs = [Histogram::positive, Histogram::negative];
    let unions = signs.map(|of| ColumnUnion::from_rows(histograms.iter().map(of)));
    for union in &unions {
        let columns = union.indexes.len();
        if histograms.len() > HISTOGRAMS_MAX || !matrix::fits(histograms.len(), columns) {
            let (histograms, buckets) = (histograms.len(), columns as u64);
            return Err(BlockError::TooMany { histograms, buckets });
        }
    }
    let [positive, negative] = unions;
    let tables = [
        CountTable::new(positive, histograms.iter().map(Histogram::positive)),
        CountTable::new(negative, histograms.iter().map(Histogram::negative)),
    ];

    let start = out.len();
    let has_bounds = histograms.iter().any(|histogram| {
        let extremes = [histogram.tracked_min(), histogram.tracked_max()];
        extremes.iter().any(|extreme| matches!(extreme, TrackedValue::Bound(_)))
    });
    let version = if has_bounds { BLOCK_VERSION_WITH_BOUNDS } else { BLOCK_VERSION };
    put_header(out, (BLOCK_MAGIC, version), meta, first.scheme());
    put_varint(out, histograms.len() as u64);
    put_number(out, first.zero_threshold());
    put_varint(out, first.thresholds().len() as u64);
    first.thresholds().iter().for_each(|threshold| put_number(out, threshold.value));
    tables.iter().for_each(|table| table.put(out));
    let mut bits = BitWriter::default();
    columns::put_summary_columns(&mut bits, histograms, first, &tables);
    let bits = bits.finish();
    put_varint(out, bits.len() as u64);
    out.extend(bits);
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend(checksum.to_le_bytes());
    Ok(())
}

fn check_uniform(histograms: &[Histogram], first: &Histogram) -> Result<(), BlockError> {
    let thresholds = |histogram: &Histogram| -> Vec<u64> {
        histogram.thresholds().iter().map(|threshold| threshold.value.to_bits()).collect()
    };
    for (position, histogram) in histograms.iter().enumerate() {
        if histogram.scheme() != first.scheme()
            || histogram.zero_threshold() != first.zero_threshold()
            || thresholds(histogram) != thresholds(first)
        {
            return Err(BlockError::NotUniform { position });
        }
    }
    Ok(())
}

/// Decodes the histograms of a block that fills `bytes`, in order.
pub fn decode(bytes: &[u8]) -> Result<(Vec<Histogram>, SeriesMeta), DecodeError> {
    let body = verify_checksum(bytes)?;
    let (block, tables) = BlockDecoder::read(body)?;
    let [positive, negative] = tables.map(CountTable::into_rows);
    let rows = positive.into_iter().zip(negative).enumerate();
    let histograms = rows.map(|(row, (positive, negative))| {
        Ok(Histogram::from_buckets(block.parts(row), positive, negative)?)
    });
    Ok((histograms.collect::<Result<_, DecodeError>>()?, block.header.meta))
}

/// Number of histograms in a block, from its header. The rest of the block is neither read nor
/// checked.
pub fn rows(bytes: &[u8]) -> Result<usize, DecodeError> {
    Ok(BlockHeader::read(&mut ByteReader::new(bytes))?.rows)
}

/// Scheme of a block, from its header. The rest of the block is neither read nor checked.
pub fn scheme(bytes: &[u8]) -> Result<Scheme, DecodeError> {
    Ok(BlockHeader::read(&mut ByteReader::new(bytes))?.scheme)
}

/// Whether the histograms of a block have declared thresholds, from its header. The rest of the
/// block is neither read nor checked.
pub fn has_thresholds(bytes: &[u8]) -> Result<bool, DecodeError> {
    Ok(!BlockHeader::read(&mut ByteReader::new(bytes))?.thresholds.is_empty())
}

/// Adds the histograms of `range` to `accumulator`. A damaged block is rejected and nothing is
/// added.
pub fn merge_into(
    bytes: &[u8],
    range: Range<usize>,
    accumulator: &mut Accumulator,
) -> Result<SeriesMeta, DecodeError> {
    merge_runs(bytes, &[(range, 0)], std::slice::from_mut(accumulator))
}

/// Adds runs of histograms to accumulators. Each run is a range of histogram numbers and the number
/// of its accumulator. Ranges must ascend and must not overlap; the part of a range beyond the last
/// histogram is ignored. The block is decoded once. If it is damaged, or does not fit one of the
/// accumulators, nothing is added to any of them.
///
/// # Panics
///
/// If ranges overlap or do not ascend, or if an accumulator number is out of range: a bug of the
/// caller.
pub fn merge_runs(
    bytes: &[u8],
    runs: &[(Range<usize>, usize)],
    into: &mut [Accumulator],
) -> Result<SeriesMeta, DecodeError> {
    let ascend = runs.windows(2).all(|pair| pair[0].0.end <= pair[1].0.start);
    assert!(ascend && runs.iter().all(|run| run.1 < into.len()), "BUG: runs {runs:?}");
    let body = verify_checksum(bytes)?;
    let count = rows(body)?;
    let clipped: Vec<(Range<usize>, usize)> = runs
        .iter()
        .map(|(range, number)| (range.start.min(count)..range.end.min(count), *number))
        .filter(|(range, _)| !range.is_empty())
        .collect();
    let (block, tables) = BlockDecoder::read(body)?;
    if !block.add_directly(&tables, &clipped, into) {
        let merged = |(range, number): &(Range<usize>, usize)| {
            let Some(parts) = block.merge_rows(range.clone(), &tables) else { return Ok(None) };
            Ok(Some((Histogram::from_recorded_parts(parts)?, *number)))
        };
        let merged = clipped.iter().map(merged).collect::<Result<Option<Vec<_>>, DecodeError>>()?;
        let merged = match merged {
            Some(merged) => merged,
            None => merge_by_row(&decode(bytes)?.0, runs)?,
        };
        add_all(&merged, into)?;
    }
    Ok(block.header.meta)
}

/// Sums of runs, added one histogram at a time.
fn merge_by_row(
    histograms: &[Histogram],
    runs: &[(Range<usize>, usize)],
) -> Result<Vec<(Histogram, usize)>, DecodeError> {
    let mut merged = Vec::with_capacity(runs.len());
    for (range, number) in runs {
        let range = range.start.min(histograms.len())..range.end.min(histograms.len());
        let Some((first, rest)) = histograms.get(range).and_then(<[Histogram]>::split_first) else {
            continue;
        };
        let mut sum = Accumulator::new(first.scheme().clone());
        sum.add(first)?;
        rest.iter().try_for_each(|histogram| sum.add(histogram))?;
        merged.push((sum.to_histogram(), *number));
    }
    Ok(merged)
}

/// Adds all histograms, or none if one does not fit.
fn add_all(merged: &[(Histogram, usize)], into: &mut [Accumulator]) -> Result<(), DecodeError> {
    let Some((first, _)) = merged.first() else { return Ok(()) };
    let total = merged.iter().try_fold(0u64, |total, (histogram, _)| {
        total.checked_add(histogram.count())?.checked_add(histogram.nan_count())
    });
    let fits = |&(_, number): &(Histogram, usize)| {
        total.is_some_and(|total| into[number].can_hold(total))
            && into[number].scheme() == first.scheme()
    };
    if merged.len() == 1 || merged.iter().all(fits) {
        // Without a failure there is nothing to roll back.
        return merged.iter().try_for_each(|(histogram, number)| Ok(into[*number].add(histogram)?));
    }
    let mut sums = into.to_vec();
    for (histogram, number) in merged {
        sums[*number].add(histogram)?;
    }
    into.clone_from_slice(&sums);
    Ok(())
}

pub(super) fn verify_checksum(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(DecodeError::Truncated { offset: 0, field: "checksum" });
    };
    let (found, expected) = (crc32c::crc32c(body), u32::from_le_bytes(*checksum));
    if found == expected { Ok(body) } else { Err(DecodeError::Checksum { found, expected }) }
}

/// Reader of the summary columns, the last field of a block.
pub(super) fn summary_reader<'a>(
    reader: &mut ByteReader<'a>,
) -> Result<BitReader<'a>, DecodeError> {
    let len = reader.varint("summary length")?;
    let offset = reader.offset();
    let bits = reader.read_bytes(usize::try_from(len).unwrap_or(usize::MAX), "summary")?;
    reader.finish()?;
    Ok(BitReader::new(bits, offset))
}

/// Fields of a block before its counts.
pub(super) struct BlockHeader {
    version: u8,
    meta: SeriesMeta,
    pub(super) scheme: Scheme,
    pub(super) rows: usize,
    pub(super) zero_threshold: f64,
    thresholds: Vec<f64>,
}

impl BlockHeader {
    pub(super) fn read(reader: &mut ByteReader<'_>) -> Result<BlockHeader, DecodeError> {
        let (version, meta, scheme) = read_block_header(reader)?;
        let at = reader.offset();
        let rows = reader.varint("histogram count")?;
        if rows > HISTOGRAMS_MAX as u64 {
            let (field, limit) = ("histogram count", HISTOGRAMS_MAX as u64);
            return Err(DecodeError::Limit { offset: at, field, found: rows, limit });
        }
        let zero_threshold = read_number(reader, "zero threshold")?;
        Ok(BlockHeader {
            version,
            meta,
            scheme,
            rows: rows as usize,
            zero_threshold,
            thresholds: read_thresholds(reader)?,
        })
    }
}

fn read_thresholds(reader: &mut ByteReader<'_>) -> Result<Vec<f64>, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("threshold count")?;
    if count > THRESHOLDS_MAX {
        let (field, limit) = ("threshold count", THRESHOLDS_MAX);
        return Err(DecodeError::Limit { offset: at, field, found: count, limit });
    }
    (0..count).map(|_| read_number(reader, "threshold")).collect()
}

/// Block with decoded summary columns; bucket counts are decoded on demand.
struct BlockDecoder {
    header: BlockHeader,
    /// Summary columns: zero count, overflow, underflow, NaN, then the count above each threshold.
    summary_counts: Vec<Vec<u64>>,
    summaries: SummaryColumns,
    row_bounds: Vec<RowBounds>,
    /// Bucket columns of the positive counts.
    positive_columns: MatrixColumns,
}

impl BlockDecoder {
    /// Reads a block, and its positive and negative counts.
    fn read(body: &[u8]) -> Result<(BlockDecoder, [CountTable; 2]), DecodeError> {
        let mut reader = ByteReader::new(body);
        let head = BlockHeader::read(&mut reader)?;
        let rows = head.rows;
        let positive = MatrixDecoder::read(&mut reader, rows)?;
        let negative = MatrixDecoder::read(&mut reader, rows)?;
        let mut bits = summary_reader(&mut reader)?;
        let summary_counts = (0..head.thresholds.len().wrapping_add(4))
            .map(|_| columns::get_summary_counts(&mut bits, rows))
            .collect::<Result<Vec<_>, _>>()?;
        let exponent = columns::get_exponent(&mut bits)?;
        let predictor = ColumnPredictor::new(&head.scheme, head.zero_threshold, exponent);
        let mut row_bounds = vec![RowBounds::default(); rows];
        if let (false, Some(&found)) = (head.scheme.is_mirrored(), negative.indexes.first()) {
            let scheme = Box::new(head.scheme.clone());
            return Err(PartsError::OutsideGrid { found, scheme }.into());
        }
        let large = summary_counts.iter().flatten().any(|&count| count >> 60 > 0);
        let asks_for_totals =
            large || positive.wide || negative.wide || !head.thresholds.is_empty();
        let mut totals = vec![Some(0u64); if asks_for_totals { rows } else { 0 }];
        let mut take = |matrix: MatrixDecoder<'_>, is_negative| {
            let columns = predictor.columns(&matrix.indexes, is_negative)?;
            let (row_bounds, totals) = (&mut row_bounds, &mut totals);
            let table =
                matrix.table(&mut RowBoundsBuilder { columns: &columns, row_bounds, totals })?;
            Ok::<_, DecodeError>((columns, table))
        };
        let (positive_columns, positive) = take(positive, false)?;
        let (negative_columns, negative) = take(negative, true)?;
        let columns = [positive_columns, negative_columns];
        for (row, bounds) in row_bounds.iter_mut().enumerate() {
            let counts = [0, 1, 2].map(|column: usize| summary_counts[column][row]);
            predictor.finish_row(bounds, &columns, counts);
        }
        let may_bound = head.version == BLOCK_VERSION_WITH_BOUNDS;
        let summaries = SummaryColumns::read(&mut bits, &row_bounds, exponent, may_bound)?;
        bits.finish()?;
        let [positive_columns, _] = columns;
        let block =
            BlockDecoder { header: head, summary_counts, summaries, row_bounds, positive_columns };
        block.check(&totals)?;
        Ok((block, [positive, negative]))
    }

    /// Checks that each row is a valid histogram, also where only sums of rows are needed. `totals`
    /// holds the bucket counts of the rows whose counts may overflow or that have thresholds.
    fn check(&self, totals: &[Option<u64>]) -> Result<(), PartsError> {
        if !(self.header.zero_threshold.is_finite() && self.header.zero_threshold >= 0.0) {
            return Err(PartsError::ZeroThreshold { found: self.header.zero_threshold });
        }
        for (row, &total) in totals.iter().enumerate() {
            let add =
                |total: u64, column: usize| total.checked_add(self.summary_counts[column][row]);
            let count = total.and_then(|total| (0..3).try_fold(total, add));
            let count = count.filter(|&count| add(count, 3).is_some());
            check_thresholds(&self.thresholds(row), count.ok_or(PartsError::CountOverflow)?)?;
        }
        Ok(())
    }

    fn thresholds(&self, row: usize) -> Vec<Threshold> {
        let columns = self.header.thresholds.iter().zip(&self.summary_counts[4..]);
        columns.map(|(&value, column)| Threshold { value, above: column[row] }).collect()
    }

    /// The summary of a row: all fields but its buckets.
    fn parts(&self, row: usize) -> HistogramParts {
        let count = |column: usize| self.summary_counts[column][row];
        HistogramParts {
            scheme: self.header.scheme.clone(),
            zero_threshold: self.header.zero_threshold,
            positive: Vec::new(),
            negative: Vec::new(),
            zero: count(0),
            overflow: count(1),
            underflow: count(2),
            nan: count(3),
            sum: self.summaries.sum[row],
            min: self.summaries.min[row],
            max: self.summaries.max[row],
            thresholds: self.thresholds(row),
        }
    }

    /// Sum of some rows, computed column by column. `None` if statistics or a total need the rows
    /// themselves.
    fn merge_rows(&self, range: Range<usize>, tables: &[CountTable; 2]) -> Option<HistogramParts> {
        let mut parts = HistogramParts::new(self.header.scheme.clone());
        parts.zero_threshold = self.header.zero_threshold;
        parts.positive = tables[0].sum_rows(range.clone())?;
        parts.negative = tables[1].sum_rows(range.clone())?;
        let total = |column: &[u64]| sum_checked(&column[range.clone()]);
        parts.zero = total(&self.summary_counts[0])?;
        parts.overflow = total(&self.summary_counts[1])?;
        parts.underflow = total(&self.summary_counts[2])?;
        parts.nan = total(&self.summary_counts[3])?;
        (parts.sum, parts.min, parts.max) = self.summary_of_rows(range.clone())?;
        for (&value, column) in self.header.thresholds.iter().zip(&self.summary_counts[4..]) {
            parts.thresholds.push(Threshold { value, above: total(column)? });
        }
        Some(parts)
    }

    /// Sum, minimum and maximum of some rows, if all are exact.
    fn summary_of_rows(
        &self,
        range: Range<usize>,
    ) -> Option<(TrackedValue<DoubleDouble>, TrackedValue<f64>, TrackedValue<f64>)> {
        let mut sum = DoubleDouble::ZERO;
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for row in range.filter(|&row| !self.row_bounds[row].is_empty()) {
            sum = sum.plus(self.summaries.sum[row].exact()?);
            min = min.min(self.summaries.min[row].exact()?);
            max = max.max(self.summaries.max[row].exact()?);
        }
        Some((TrackedValue::Exact(sum), TrackedValue::Exact(min), TrackedValue::Exact(max)))
    }

    /// Adds runs of rows directly to the accumulators. Returns `false` without any change if rows
    /// have more than positive buckets, zeros and exact statistics, or if an accumulator cannot
    /// take all rows.
    #[expect(clippy::expect_used, reason = "pending_adds returns None if a row is not exact")]
    fn add_directly(
        &self,
        [positive, negative]: &[CountTable; 2],
        runs: &[(Range<usize>, usize)],
        into: &mut [Accumulator],
    ) -> bool {
        let Some(coming) = self.pending_adds(positive) else { return false };
        if negative.columns() > 0 || !runs.iter().all(|run| into[run.1].reserve(&coming)) {
            return false;
        }
        let bucket_runs = positive.bucket_runs();
        for (range, number) in runs {
            if self.row_bounds[range.clone()].iter().all(RowBounds::is_empty) {
                continue;
            }
            let summary = self.summary_of_rows(range.clone()).expect("BUG: all rows are exact");
            let zero = self.summary_counts[0][range.clone()].iter().sum();
            let add = |window: &mut [u64]| positive.add_rows(range.clone(), &bucket_runs, window);
            into[*number].add_run(positive.index_range(), add, zero, summary);
        }
        true
    }

    /// Upper bound of what all rows add, if they are plain.
    fn pending_adds(&self, positive: &CountTable) -> Option<PendingAdds<'_>> {
        let [zero, other_counts @ ..] = &self.summary_counts[..] else { return None };
        let ends = positive.index_range();
        // Every accumulator allocates all bucket columns: too much if they are far apart.
        let span = ends.map_or(0, |(first, last)| i64::from(last).wrapping_sub(i64::from(first)));
        let is_narrow = span
            <= NARROW_SPAN
                .wrapping_add(NARROW_SPAN_PER_COLUMN.wrapping_mul(positive.columns() as i64));
        let is_plain = is_narrow
            && self.header.thresholds.is_empty()
            && other_counts.iter().flatten().all(|&count| count == 0);
        let mut sum = 0.0;
        let zero_end = self.header.scheme.zero_end(self.header.zero_threshold);
        for (row, bounds) in
            self.row_bounds.iter().enumerate().filter(|(_, bounds)| !bounds.is_empty())
        {
            let (min, max) = (self.summaries.min[row].exact()?, self.summaries.max[row].exact()?);
            let zero_end = (zero[row] > 0).then_some(zero_end);
            if !self.positive_columns.contains_extremes(bounds, zero_end, min, max) {
                return None;
            }
            sum += self.summaries.sum[row].exact()?.value().abs();
        }
        is_plain.then_some(PendingAdds {
            scheme: &self.header.scheme,
            zero_threshold: self.header.zero_threshold,
            index_range: ends,
            values: zero.iter().fold(positive.total(), |total, &n| total.saturating_add(n)),
            sum,
        })
    }
}

fn sum_checked(counts: &[u64]) -> Option<u64> {
    counts.iter().try_fold(0u64, |total, &count| total.checked_add(count))
}

/// Builds the row bounds while stripes of counts are decoded.
struct RowBoundsBuilder<'a> {
    columns: &'a MatrixColumns,
    row_bounds: &'a mut [RowBounds],
    /// Bucket totals of rows, for the rows that need them.
    totals: &'a mut [Option<u64>],
}

impl StripeObserver for RowBoundsBuilder<'_> {
    fn observe<T: CountWord>(&mut self, stripe: &Stripe<'_, T>) {
        self.columns.observe_stripe(self.row_bounds, stripe);
        stripe.add_totals(self.totals.get_mut(stripe.first..).unwrap_or_default());
    }
}
