//! Row access and run sums of a decoded matrix.

use std::ops::Range;

use crate::buckets::Buckets;
use crate::codec::matrix::{CountCells, CountTable, CountWord, STRIPE_ROWS, height, total};

/// Number of rows of a stripe from which they are added column by column before they are added to
/// anything else.
const COLUMN_SUM_ROWS_MIN: usize = 8;

impl CountTable {
    pub(crate) fn columns(&self) -> usize {
        self.indexes.len()
    }

    /// First and last index.
    pub(crate) fn index_range(&self) -> Option<(i32, i32)> {
        Some((*self.indexes.first()?, *self.indexes.last()?))
    }

    /// Index and count of each non-zero cell, by row.
    pub(crate) fn into_rows(self) -> Vec<Buckets> {
        match &self.cells {
            CountCells::Narrow(cells) => self.rows_of(cells),
            CountCells::Wide(cells) => self.rows_of(cells),
        }
    }

    fn rows_of<T: CountWord>(&self, cells: &[T]) -> Vec<Buckets> {
        let columns = self.indexes.len();
        let mut all_rows: Vec<Buckets> =
            (0..self.rows).map(|_| Buckets::with_capacity(columns)).collect();
        let height = height(self.rows).max(1);
        for (rows, cells) in all_rows.chunks_mut(STRIPE_ROWS).zip(self.stripes(cells)) {
            for (&index, column) in self.indexes.iter().zip(cells.chunks_exact(height)) {
                for (buckets, count) in rows.iter_mut().zip(column) {
                    buckets.push(index, count.wide());
                }
            }
        }
        all_rows
    }

    fn stripes<'a, T>(&self, cells: &'a [T]) -> std::slice::ChunksExact<'a, T> {
        cells.chunks_exact(height(self.rows).wrapping_mul(self.indexes.len()).max(1))
    }

    /// Sum of all rows; `u64::MAX` on overflow.
    pub(crate) fn total(&self) -> u64 {
        self.sums.iter().fold(0, |total, &sum| sum.saturating_add_to(total))
    }

    /// Runs of columns with consecutive indexes.
    pub(crate) fn bucket_runs(&self) -> Vec<BucketRun> {
        BucketRun::of_indexes(&self.indexes)
    }

    /// Adds some rows to a window, each column at its position. Returns the number of values; at
    /// `u64::MAX` the number may be larger and the window is invalid.
    pub(crate) fn add_rows(
        &self,
        rows: Range<usize>,
        bucket_runs: &[BucketRun],
        window: &mut [u64],
    ) -> u64 {
        match &self.cells {
            CountCells::Narrow(cells) => self.add_cells(cells, rows, bucket_runs, window),
            CountCells::Wide(cells) => self.add_cells(cells, rows, bucket_runs, window),
        }
    }

    /// Sum of some rows; `None` on overflow.
    pub(crate) fn sum_rows(&self, rows: Range<usize>) -> Option<Vec<(i32, u64)>> {
        let mut counts = vec![0; self.indexes.len()];
        let together = [BucketRun { columns: 0..counts.len(), offset: 0 }];
        let values = self.add_rows(rows, &together, &mut counts);
        let pairs = self.indexes.iter().copied().zip(counts);
        (values < u64::MAX).then(|| pairs.filter(|&(_, count)| count > 0).collect())
    }

    fn add_cells<T: CountWord>(
        &self,
        cells: &[T],
        rows: Range<usize>,
        bucket_runs: &[BucketRun],
        window: &mut [u64],
    ) -> u64 {
        let mut values = 0u64;
        if rows.is_empty() || self.indexes.is_empty() {
            return values;
        }
        let height = height(self.rows);
        let stripes = self.stripes(cells).zip(self.sums.chunks_exact(self.indexes.len()));
        let stripes = (0..self.rows).step_by(STRIPE_ROWS).zip(stripes);
        let of_run = rows.start / STRIPE_ROWS..rows.end.div_ceil(STRIPE_ROWS);
        for (first, (cells, sums)) in stripes.skip(of_run.start).take(of_run.len()) {
            let within = rows.start.max(first).wrapping_sub(first)
                ..rows.end.min(first.wrapping_add(STRIPE_ROWS)).wrapping_sub(first);
            for BucketRun { columns, offset: place } in bucket_runs {
                let window = &mut window[*place..][..columns.len()];
                let cells =
                    &cells[columns.start.wrapping_mul(height)..columns.end.wrapping_mul(height)];
                if within.len() == STRIPE_ROWS.min(self.rows.wrapping_sub(first)) {
                    for (cell, &sum) in window.iter_mut().zip(&sums[columns.clone()]) {
                        *cell = cell.wrapping_add(sum);
                        values = sum.saturating_add_to(values);
                    }
                } else if within.len() >= COLUMN_SUM_ROWS_MIN {
                    for (cell, column) in window.iter_mut().zip(cells.chunks_exact(height)) {
                        let (sum, _) = total(&column[within.clone()]);
                        *cell = cell.wrapping_add(sum);
                        values = sum.saturating_add_to(values);
                    }
                } else {
                    for row in within.clone() {
                        let mut add = |cell: &mut u64, count: T| {
                            *cell = cell.wrapping_add(count.wide());
                            values = count.saturating_add_to(values);
                        };
                        if height == STRIPE_ROWS {
                            let columns = cells.as_chunks::<STRIPE_ROWS>().0;
                            window
                                .iter_mut()
                                .zip(columns)
                                .for_each(|(cell, column)| add(cell, column[row % STRIPE_ROWS]));
                        } else {
                            let columns = cells.chunks_exact(height);
                            window
                                .iter_mut()
                                .zip(columns)
                                .for_each(|(cell, column)| add(cell, column[row]));
                        }
                    }
                }
            }
        }
        values
    }
}

/// Run of columns with consecutive indexes.
#[derive(Debug)]
pub(crate) struct BucketRun {
    pub(crate) columns: Range<usize>,
    pub(crate) offset: usize,
}

impl BucketRun {
    /// Runs of consecutive indexes, each with its position in a window that starts at the first
    /// index.
    pub(crate) fn of_indexes(indexes: &[i32]) -> Vec<BucketRun> {
        let mut runs: Vec<BucketRun> = Vec::new();
        for (column, &index) in indexes.iter().enumerate() {
            let offset = index.wrapping_sub(indexes[0]) as u32 as usize;
            match runs.last_mut() {
                Some(last)
                    if offset.wrapping_sub(last.offset)
                        == column.wrapping_sub(last.columns.start) =>
                {
                    last.columns.end = column.wrapping_add(1);
                }
                _ => runs.push(BucketRun { columns: column..column.wrapping_add(1), offset }),
            }
        }
        runs
    }
}
