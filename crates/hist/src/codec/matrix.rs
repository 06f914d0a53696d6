//! Count matrix codec: bucket counts of many histograms of one series.
//!
//! Counts form a matrix, a row per histogram, a column per bucket index that any of them uses. Rows
//! come in *frames* of [`FRAME`], a frame column by column. Every column has a rate, told at first
//! and then learnt from the rows before, and a row may have a scale, which follows the load of the
//! whole series. They tell which of the fixed codes of `huffman.rs` the column has in this frame,
//! so nothing but the codes' words and bits stands between two counts. Four streams of bits hold
//! eight rows of each frame, so that one need not wait for the other.
//!
//! All prediction is in whole numbers, so every machine decodes the same.

mod count_table;
mod count_word;
mod decoder;
mod encoder;
mod rate_model;

pub(in crate::codec) use count_table::CountCells;
pub(crate) use count_table::{ColumnUnion, CountTable};
pub(crate) use count_word::CountWord;
pub(super) use count_word::total;
pub(crate) use decoder::{FrameObserver, MatrixDecoder};

use crate::codec::huffman::{HuffmanCode, HuffmanCodes, STEPS, low_cells};

/// Rows of a frame.
pub(crate) const FRAME: usize = 32;
/// Rows of a frame that one stream holds.
const LANE: usize = 8;
const STREAMS: usize = 4;
/// Cells of one matrix at the most, rows rounded up to eights. A row of zeros costs next to
/// nothing, so what a decoder allocates has to be bounded by name.
pub const CELLS_MAX: u64 = 1 << 21;

/// Counts of a narrow matrix are below this, so that those of a frame add up within 32 bits.
const NARROW_BITS: u32 = 26;
/// A code word and a step's bits, twice, come out of one load.
const STEP_BITS_MAX: u32 = 17;
/// Bits below the point of row scales, at the most.
const SCALE_BITS_MAX: u32 = 10;

/// Whether a matrix of this size can be written.
pub(crate) fn fits(rows: usize, columns: usize) -> bool {
    (rows.next_multiple_of(LANE) as u64).saturating_mul(columns as u64) <= CELLS_MAX
}

/// Cells of a column of a frame, zeros after the last row: a multiple of eight.
pub(super) fn height(rows: usize) -> usize {
    rows.next_multiple_of(LANE).min(FRAME)
}

/// Bits of a row's place in a frame.
#[inline]
fn row_bits(rows: usize) -> u32 {
    rows.wrapping_sub(1).checked_ilog2().map_or(0, |bits| bits.wrapping_add(1))
}

/// From the least count of the first step to the expected one.
#[inline]
fn reach(bits: u32) -> u64 {
    (STEPS << bits) / 2
}

/// The low code of a column, and how many cells a word of it has.
fn low_code(codes: &HuffmanCodes, code: usize, rows: usize) -> (&HuffmanCode, usize) {
    if rows <= 4 { (&codes.low_single[code], 1) } else { (&codes.low[code], low_cells(code)) }
}

/// Frame: consecutive rows of a matrix.
pub(crate) struct MatrixFrame<'a, T> {
    /// The number of the first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Cells of each column: the rows, filled up with zeros to a multiple of eight.
    pub(crate) height: usize,
    /// Column by column.
    pub(crate) cells: &'a [T],
}

impl<T: CountWord> MatrixFrame<'_, T> {
    /// Adds what each row holds, or finds out that it does not fit; to as many totals as there are.
    pub(crate) fn add_totals(&self, totals: &mut [Option<u64>]) {
        if totals.is_empty() {
            return;
        }
        for column in self.cells.chunks_exact(self.height) {
            for (total, count) in totals.iter_mut().zip(&column[..self.rows]) {
                *total = total.and_then(|total| total.checked_add(count.wide()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buckets::Buckets;
    use crate::codec::bytes::ByteReader;

    struct NoopObserver;

    impl FrameObserver for NoopObserver {
        fn observe<T: CountWord>(&mut self, _: &MatrixFrame<'_, T>) {}
    }

    #[track_caller]
    fn check(rows: &[Vec<(i32, u64)>]) -> usize {
        let buckets: Vec<Buckets> = rows
            .iter()
            .map(|row| {
                let mut buckets = Buckets::default();
                row.iter().for_each(|&(index, count)| buckets.push(index, count));
                buckets
            })
            .collect();
        let mut out = Vec::new();
        CountTable::new(ColumnUnion::from_rows(buckets.iter()), buckets.iter()).put(&mut out);
        let mut reader = ByteReader::new(&out);
        let matrix = MatrixDecoder::read(&mut reader, rows.len()).unwrap();
        assert_eq!(matrix.indexes, ColumnUnion::from_rows(buckets.iter()).indexes);
        let found = matrix.table(&mut NoopObserver).unwrap().into_rows();
        assert_eq!(found, rows);
        reader.finish().unwrap();
        out.len()
    }

    #[test]
    fn matrices_round_trip() {
        check(&[]);
        check(&[vec![]]);
        check(&[vec![(5, 1)]]);
        check(&[vec![(i32::MIN, 1), (i32::MAX, u64::MAX)], vec![], vec![(0, 1 << 40)]]);
        check(&vec![vec![(1, 3), (2, 5), (3, 1)]; 7]);
        let mut seed = 1u64;
        for most in [1, 3, 40, 1000, 1 << 20, 1 << 30, 1 << 50] {
            let mut rows = Vec::new();
            for row in 0..200u64 {
                rows.push(
                    (0..97u64)
                        .filter_map(|column| {
                            seed = seed
                                .wrapping_mul(6364136223846793005)
                                .wrapping_add(1442695040888963407);
                            let count = (seed >> 33) % (1 + column * row * (most / 4000 + 1));
                            (count > 0).then_some((column as i32 * 3, count))
                        })
                        .collect(),
                );
            }
            check(&rows);
            check(&rows[190..]);
            check(&rows[197..]);
        }
    }

    #[test]
    fn equal_rows_cost_almost_nothing() {
        assert!(check(&vec![vec![(1, 3), (2, 12), (3, 1)]; 1000]) < 2000);
    }
}
