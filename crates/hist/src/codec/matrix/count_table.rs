//! Matrix of counts in memory, by stripe and column.

use crate::buckets::Buckets;
use crate::codec::bytes::{put_varint, put_zigzag};
use crate::codec::row_bounds::{MatrixColumns, RowBounds};

use super::count_word::CountWord;
use super::encoder::MatrixEncoder;
use super::{NARROW_BITS, STRIPE_ROWS, Stripe, height};

/// Union of the columns of some rows.
pub(crate) struct ColumnUnion {
    pub(crate) indexes: Vec<i32>,
    /// Bitwise OR of all counts.
    counts: u64,
    /// Column by index minus the first index. Empty if the range is too long.
    columns: Vec<u32>,
}

/// Maximum index range that uses the lookup table.
const SPAN_MAX: i64 = 1 << 16;

impl ColumnUnion {
    pub(crate) fn from_rows<'a>(rows: impl Iterator<Item = &'a Buckets> + Clone) -> ColumnUnion {
        let (mut first, mut last, mut counts) = (i32::MAX, i32::MIN, 0);
        for row in rows.clone().filter(|row| !row.is_empty()) {
            first = first.min(row.indexes()[0]);
            last = last.max(row.indexes()[row.len().wrapping_sub(1)]);
            counts |= row.counts().iter().fold(0, |all, count| all | count);
        }
        let span = i64::from(last).wrapping_sub(i64::from(first)).wrapping_add(1);
        if span > SPAN_MAX {
            let mut indexes: Vec<i32> = rows.flat_map(Buckets::indexes).copied().collect();
            indexes.sort_unstable();
            indexes.dedup();
            return ColumnUnion { indexes, counts, columns: Vec::new() };
        }
        let mut columns = vec![0; span.max(0) as usize];
        for &index in rows.flat_map(Buckets::indexes) {
            columns[index.wrapping_sub(first) as usize] = 1;
        }
        let mut indexes = Vec::new();
        for (column, index) in columns.iter_mut().zip(first..) {
            if std::mem::replace(column, indexes.len() as u32) > 0 {
                indexes.push(index);
            }
        }
        ColumnUnion { indexes, counts, columns }
    }
}

/// Matrix of counts.
pub(crate) struct CountTable {
    pub(in crate::codec) indexes: Vec<i32>,
    pub(in crate::codec) rows: usize,
    pub(in crate::codec) cells: CountCells,
    /// Sum of each column, by stripe.
    pub(in crate::codec) sums: Vec<u64>,
}

/// Cells in stripe-major, column-major order.
pub(in crate::codec) enum CountCells {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl CountTable {
    /// The counts of `rows`, with the columns of `union`.
    pub(crate) fn new<'a>(
        union: ColumnUnion,
        rows: impl ExactSizeIterator<Item = &'a Buckets>,
    ) -> CountTable {
        let count = rows.len();
        let (cells, sums);
        if union.counts >> NARROW_BITS == 0 {
            let narrow = scatter(&union, rows);
            (sums, cells) = (column_sums(&narrow, count), CountCells::Narrow(narrow));
        } else {
            let wide = scatter(&union, rows);
            (sums, cells) = (column_sums(&wide, count), CountCells::Wide(wide));
        }
        CountTable { indexes: union.indexes, rows: count, cells, sums }
    }

    pub(crate) fn indexes(&self) -> &[i32] {
        &self.indexes
    }

    /// Adds the bounds of all rows to `bounds`.
    pub(crate) fn build_row_bounds(&self, columns: &MatrixColumns, row_bounds: &mut [RowBounds]) {
        match &self.cells {
            CountCells::Narrow(cells) => self.build_row_bounds_of(cells, columns, row_bounds),
            CountCells::Wide(cells) => self.build_row_bounds_of(cells, columns, row_bounds),
        }
    }

    fn build_row_bounds_of<T: CountWord>(
        &self,
        cells: &[T],
        columns: &MatrixColumns,
        row_bounds: &mut [RowBounds],
    ) {
        if self.indexes.is_empty() {
            return;
        }
        let height = height(self.rows);
        let stripes = cells.chunks_exact(height.wrapping_mul(self.indexes.len()));
        for (first, cells) in (0..self.rows).step_by(STRIPE_ROWS).zip(stripes) {
            let rows = STRIPE_ROWS.min(self.rows.wrapping_sub(first));
            columns.observe_stripe(row_bounds, &Stripe { first, rows, height, cells });
        }
    }

    /// Appends the encoded matrix.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.indexes.len() as u64);
        let Some(&first) = self.indexes.first() else { return };
        put_zigzag(out, first.into());
        match &self.cells {
            CountCells::Narrow(cells) => MatrixEncoder::new(self, cells).encode(out),
            CountCells::Wide(cells) => MatrixEncoder::new(self, cells).encode(out),
        }
    }
}

fn column_sums<T: CountWord>(cells: &[T], rows: usize) -> Vec<u64> {
    cells.chunks_exact(height(rows).max(1)).map(T::sum).collect()
}

#[expect(clippy::expect_used, reason = "the union has a column for each index of its rows")]
fn scatter<'a, T: CountWord>(
    union: &ColumnUnion,
    rows: impl ExactSizeIterator<Item = &'a Buckets>,
) -> Vec<T> {
    let height = height(rows.len());
    let stripe = height.wrapping_mul(union.indexes.len());
    let mut cells = vec![T::default(); stripe.wrapping_mul(rows.len().div_ceil(STRIPE_ROWS))];
    for (number, row) in rows.enumerate() {
        let cells = &mut cells[(number / STRIPE_ROWS).wrapping_mul(stripe)..][..stripe];
        let row_of = number % STRIPE_ROWS;
        if union.columns.is_empty() {
            let mut columns = union.indexes.iter().enumerate();
            for (index, count) in row.iter() {
                let (column, _) = columns.find(|c| *c.1 == index).expect("BUG: it has them all");
                cells[column.wrapping_mul(height).wrapping_add(row_of)] = T::low(count);
            }
        } else {
            let first = union.indexes[0];
            for (&index, &count) in row.indexes().iter().zip(row.counts()) {
                let column = union.columns[index.wrapping_sub(first) as usize] as usize;
                cells[column.wrapping_mul(height).wrapping_add(row_of)] = T::low(count);
            }
        }
    }
    cells
}
