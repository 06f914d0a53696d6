//! Sums of the increments of a cumulative histogram in windows that move forwards.
//!
//! A chunk begins with counts, its base, and so does the next one: their difference is the increase
//! within the chunk. A chunk is decoded only if a window begins or ends within it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

use hist::Histogram;
use hist::codec::decoded_block::{DecodedBlock, DenseCounts};

use super::increments::{HistogramIncrements, IncrementPiece, PieceContent, TOTAL_BITS_MAX};

/// Encoded increments of the samples of a chunk.
pub(super) struct ChunkIncrements {
    pub(super) block: Vec<u8>,
    /// Rows of the block that are increments of the samples.
    pub(super) rows: Range<usize>,
    /// Whether the rows extend to the end of the block, and the next piece is a chunk whose base
    /// are the counts after the last row.
    pub(super) is_end_recorded: bool,
    /// Counts before the first row of the block.
    pub(super) base: Histogram,
}

/// Memory for decoded chunks: where a window begins, and where it ends. It may be used for one
/// series after the other.
#[derive(Debug, Default)]
pub struct DecodedChunks {
    slots: [DecodedChunk; 2],
}

#[derive(Debug, Default)]
struct DecodedChunk {
    /// Number of the piece.
    piece: Option<usize>,
    counts: DecodedBlock,
    /// Sums of the totals of the rows before each row, once they were needed.
    totals: Vec<u64>,
}

/// Reads sums of increments. Every method fails, with `None` or `false`, if a chunk has other than
/// positive values and zeros, or is damaged: then read [samples](super::ReadView::samples).
pub struct IncrementReader<'a> {
    increments: &'a HistogramIncrements,
    decoded: &'a mut DecodedChunks,
    /// Whether only the rows of a chunk up to the last one that is needed are decoded.
    is_single_window: bool,
    /// Pieces of the samples of the window.
    window: Range<usize>,
}

impl<'a> IncrementReader<'a> {
    /// Reader of many windows, or of only one.
    pub fn new(
        increments: &'a HistogramIncrements,
        decoded: &'a mut DecodedChunks,
        is_single_window: bool,
    ) -> IncrementReader<'a> {
        decoded.slots.iter_mut().for_each(|slot| slot.piece = None);
        IncrementReader { increments, decoded, is_single_window, window: 0..0 }
    }

    /// Moves the window to some samples: chunks at its ends stay decoded.
    pub fn move_to(&mut self, samples: &Range<usize>) {
        let pieces = &self.increments.pieces;
        let first = pieces.partition_point(|piece| piece.samples.end <= samples.start);
        let end = pieces.partition_point(|piece| piece.samples.start < samples.end);
        self.window = first..end;
    }

    /// Adds the increments of some samples to counts, or subtracts them. The first sample of all
    /// has none.
    #[must_use]
    pub fn add(
        &mut self,
        samples: Range<usize>,
        subtracts: bool,
        counts: &mut DenseCounts,
    ) -> bool {
        let pieces = &self.increments.pieces;
        let from = pieces.partition_point(|piece| piece.samples.end <= samples.start);
        for (at, piece) in pieces.iter().enumerate().skip(from) {
            let start = samples.start.max(piece.samples.start);
            let end = samples.end.min(piece.samples.end);
            if start >= end {
                break;
            }
            match &piece.content {
                PieceContent::Chunk(chunk) => {
                    let rows = row_of(piece, chunk, start)..row_of(piece, chunk, end);
                    if !self.add_rows(at, chunk, rows, subtracts, counts) {
                        return false;
                    }
                }
                PieceContent::Difference { buckets, zero, .. } => {
                    let sign = |count: u64| if subtracts { count.wrapping_neg() } else { count };
                    buckets.iter().for_each(|&(index, n)| counts.add_count(index, sign(n)));
                    counts.add_zeros(sign(*zero));
                }
            }
        }
        true
    }

    /// Adds rows of a chunk.
    fn add_rows(
        &mut self,
        at: usize,
        chunk: &ChunkIncrements,
        rows: Range<usize>,
        subtracts: bool,
        counts: &mut DenseCounts,
    ) -> bool {
        let is_to_end = rows.end == chunk.rows.end;
        if let Some(end) = self.end_counts(at, chunk).filter(|_| is_to_end)
            && !self.has_decoded(at, rows.end)
            && (rows.start == 0 || self.is_single_window)
        {
            let fits = counts.extend_to_histogram(end) && counts.extend_to_histogram(&chunk.base);
            let (more, less) = if subtracts { (&chunk.base, end) } else { (end, &chunk.base) };
            return fits
                && counts.add_histogram(more)
                && counts.subtract_histogram(less)
                && (rows.start == 0
                    || self.add_decoded(at, chunk, 0..rows.start, !subtracts, counts));
        }
        self.add_decoded(at, chunk, rows, subtracts, counts)
    }

    fn add_decoded(
        &mut self,
        at: usize,
        chunk: &ChunkIncrements,
        rows: Range<usize>,
        subtracts: bool,
        counts: &mut DenseCounts,
    ) -> bool {
        let Some(slot) = self.decode(at, chunk, rows.end) else { return false };
        let block = &slot.counts;
        let fits = counts.extend_to_block(block);
        if fits {
            counts.add_rows(block, rows, subtracts);
        }
        fits
    }

    /// Number of values at a sample.
    pub fn total(&mut self, sample: usize) -> Option<u64> {
        let pieces = &self.increments.pieces;
        if sample == 0 {
            if let Some(total) = self.increments.first_total {
                return Some(total);
            }
            let PieceContent::Chunk(chunk) = &pieces.first()?.content else { return None };
            return self.total_before(0, chunk, chunk.rows.start);
        }
        let at = pieces.partition_point(|piece| piece.samples.end <= sample);
        let piece = pieces.get(at)?;
        match &piece.content {
            PieceContent::Difference { total, .. } => Some(*total),
            PieceContent::Chunk(chunk) => {
                self.total_before(at, chunk, row_of(piece, chunk, sample).saturating_add(1))
            }
        }
    }

    /// Number of values after the rows of a chunk before this one.
    fn total_before(&mut self, at: usize, chunk: &ChunkIncrements, row: usize) -> Option<u64> {
        let base = chunk.base.count();
        if row == 0 {
            return Some(base);
        }
        if let Some(end) = self.end_counts(at, chunk).filter(|_| row == chunk.rows.end) {
            return Some(end.count());
        }
        let slot = self.decode(at, chunk, row)?;
        if slot.totals.is_empty() {
            let mut total = 0u64;
            slot.totals.push(0);
            slot.totals.extend(slot.counts.totals().iter().map(|more| {
                total = total.saturating_add(*more);
                total
            }));
        }
        Some(base.saturating_add(*slot.totals.get(row)?))
    }

    /// Recorded counts after the last row of a chunk.
    fn end_counts(&self, at: usize, chunk: &ChunkIncrements) -> Option<&'a Histogram> {
        let next = self.increments.pieces.get(at.saturating_add(1))?;
        match &next.content {
            PieceContent::Chunk(next) if chunk.is_end_recorded => Some(&next.base),
            _ => None,
        }
    }

    fn has_decoded(&self, at: usize, rows: usize) -> bool {
        let holds =
            |slot: &DecodedChunk| slot.piece == Some(at) && rows <= slot.counts.decoded_rows();
        self.decoded.slots.iter().any(holds)
    }

    /// Decodes a chunk at least up to a row.
    fn decode(
        &mut self,
        at: usize,
        chunk: &ChunkIncrements,
        rows: usize,
    ) -> Option<&mut DecodedChunk> {
        let (window, slots) = (&self.window, &mut self.decoded.slots);
        let position = |wanted: &dyn Fn(&DecodedChunk) -> bool| slots.iter().position(wanted);
        // The chunks at the ends of the window are needed again.
        let is_end =
            |piece: usize| piece == window.start || Some(piece) == window.end.checked_sub(1);
        let number = position(&|slot| slot.piece == Some(at))
            .or_else(|| position(&|slot| !slot.piece.is_some_and(is_end)))
            .unwrap_or_default();
        let slot = slots.get_mut(number)?;
        if slot.piece != Some(at) || rows > slot.counts.decoded_rows() {
            slot.piece = None;
            slot.totals.clear();
            let rows = if self.is_single_window { rows } else { usize::MAX };
            let is_supported = slot.counts.decode_rows(&chunk.block, rows).unwrap_or(false);
            if !is_supported || !self.increments.is_like(chunk, &slot.counts) {
                return None;
            }
            slot.piece = Some(at);
        }
        Some(slot)
    }
}

fn row_of(piece: &IncrementPiece, chunk: &ChunkIncrements, sample: usize) -> usize {
    sample.saturating_sub(piece.samples.start).saturating_add(chunk.rows.start)
}

impl HistogramIncrements {
    /// Whether the increments have the buckets of their base, and their sums are below 2^63.
    fn is_like(&self, chunk: &ChunkIncrements, counts: &DecodedBlock) -> bool {
        let total =
            counts.totals().iter().fold(chunk.base.count(), |sum, &n| sum.saturating_add(n));
        counts.scheme() == self.scheme()
            && counts.zero_threshold() == self.zero_threshold()
            && total >> TOTAL_BITS_MAX == 0
    }
}
