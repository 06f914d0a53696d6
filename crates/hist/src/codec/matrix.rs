//! Count matrix codec: bucket counts of many histograms of one series.
//!
//! Counts form a matrix with one row per histogram and one column per bucket index in use. Rows are
//! grouped into *stripes* of [`STRIPE_ROWS`] rows (as in ORC); a stripe is coded column by column.
//! Every column has a rate, which is written at the start and then learned from the preceding rows.
//! A row may have a scale, which follows the load of the whole series. Rate and scale select one of
//! the fixed codes of `huffman.rs` for the column in this stripe, so only code words and bits
//! separate two counts. Four bit streams hold eight rows of each stripe each, so they are decoded
//! independently.
//!
//! All predictions use integers, so every machine decodes the same.

mod count_table;
mod count_word;
mod decoder;
mod encoder;
mod rate_model;

pub(in crate::codec) use count_table::CountCells;
pub(crate) use count_table::{ColumnUnion, CountTable};
pub(in crate::codec) use count_word::CountBuffer;
pub(crate) use count_word::CountWord;
pub(super) use count_word::total;
pub(crate) use decoder::{MatrixDecoder, StripeObserver};

use crate::codec::huffman::{HuffmanCode, HuffmanCodes, STEPS, low_cells};

/// Rows per stripe.
pub(crate) const STRIPE_ROWS: usize = 32;
/// Rows of a stripe in one stream.
const ROWS_PER_STREAM: usize = 8;
const STREAMS: usize = 4;
/// Maximum number of cells of one matrix, with the rows rounded up to a multiple of eight. A row of
/// zeros takes almost no bytes, so the allocation of a decoder needs an explicit limit.
pub const CELLS_MAX: u64 = 1 << 21;

/// Bits of a count in a narrow matrix, so that the counts of a stripe add up within 32 bits.
const NARROW_BITS: u32 = 26;
/// Maximum bits of a step: one load holds a code word and the bits of a step, twice.
const STEP_BITS_MAX: u32 = 17;
/// Maximum number of fractional bits of row scales.
const SCALE_BITS_MAX: u32 = 10;

/// Whether a matrix of this size can be encoded.
pub(crate) fn fits(rows: usize, columns: usize) -> bool {
    (rows.next_multiple_of(ROWS_PER_STREAM) as u64).saturating_mul(columns as u64) <= CELLS_MAX
}

/// Cells of a column of a stripe, a multiple of eight: the rows, padded with zeros.
pub(in crate::codec) fn height(rows: usize) -> usize {
    rows.next_multiple_of(ROWS_PER_STREAM).min(STRIPE_ROWS)
}

/// Number of bits of a row index in a stripe.
#[inline]
fn row_bits(rows: usize) -> u32 {
    rows.wrapping_sub(1).checked_ilog2().map_or(0, |bits| bits.wrapping_add(1))
}

/// Distance from the smallest count of the first step to the expected count.
#[inline]
fn reach(bits: u32) -> u64 {
    (STEPS << bits) / 2
}

/// Low code of a column, and the number of cells in a word.
fn low_code(codes: &HuffmanCodes, code: usize, rows: usize) -> (&HuffmanCode, usize) {
    if rows <= 4 { (&codes.low_single[code], 1) } else { (&codes.low[code], low_cells(code)) }
}

/// Stripe: consecutive rows of a matrix.
pub(crate) struct Stripe<'a, T> {
    /// Number of the first row.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Cells per column: the rows, padded with zeros to a multiple of eight.
    pub(crate) height: usize,
    /// Cells in column-major order.
    pub(crate) cells: &'a [T],
}

impl<T: CountWord> Stripe<'_, T> {
    /// Adds each row's counts to its total, or marks the total as too large. Rows beyond the end of
    /// `totals` are ignored.
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

    impl StripeObserver for NoopObserver {
        fn observe<T: CountWord>(&mut self, _: &Stripe<'_, T>) {}
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
        assert_eq!(found, buckets);
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
