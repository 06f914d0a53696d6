//! What rows of a decoded matrix hold, and what runs of them add up to.

use std::ops::Range;

use crate::codec::matrix::{Cell, Cells, FRAME, Table, height, total};

/// From so many rows of a frame on they are added up column by column before they are added to anything else.
const ROWS_MANY: usize = 8;

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.indexes.is_empty()
    }

    /// The first and the last index.
    pub(crate) fn ends(&self) -> Option<(i32, i32)> {
        Some((*self.indexes.first()?, *self.indexes.last()?))
    }

    /// Index and count of what each row holds.
    pub(crate) fn into_rows(self) -> Vec<Vec<(i32, u64)>> {
        match &self.cells {
            Cells::Narrow(cells) => self.rows_of(cells),
            Cells::Wide(cells) => self.rows_of(cells),
        }
    }

    fn rows_of<T: Cell>(&self, cells: &[T]) -> Vec<Vec<(i32, u64)>> {
        let mut all_rows = vec![Vec::new(); self.rows];
        let height = height(self.rows).max(1);
        for (rows, cells) in all_rows.chunks_mut(FRAME).zip(self.frames(cells)) {
            for (&index, column) in self.indexes.iter().zip(cells.chunks_exact(height)) {
                for (buckets, count) in rows.iter_mut().zip(column) {
                    if count.wide() > 0 {
                        buckets.push((index, count.wide()));
                    }
                }
            }
        }
        all_rows
    }

    fn frames<'a, T>(&self, cells: &'a [T]) -> std::slice::ChunksExact<'a, T> {
        cells.chunks_exact((height(self.rows) * self.indexes.len()).max(1))
    }

    /// What all rows hold; if that is too much, the greatest number.
    pub(crate) fn total(&self) -> u64 {
        self.sums.iter().fold(0, |total, &sum| sum.with(total))
    }

    /// Where each column lies in a window that begins at the first one's index.
    pub(crate) fn places(&self) -> Vec<u32> {
        let first = self.indexes.first().copied().unwrap_or(0);
        self.indexes.iter().map(|&index| index.wrapping_sub(first) as u32).collect()
    }

    /// Adds some rows to a window, column by column at its place. How many values that were; if it is the
    /// greatest number, perhaps more, and the window is of no use.
    pub(crate) fn add_rows(&self, rows: Range<usize>, places: &[u32], window: &mut [u64]) -> u64 {
        match &self.cells {
            Cells::Narrow(cells) => self.add_cells(cells, rows, places, window),
            Cells::Wide(cells) => self.add_cells(cells, rows, places, window),
        }
    }

    /// What some rows add up to; `None` if that is too much.
    pub(crate) fn sum_rows(&self, rows: Range<usize>) -> Option<Vec<(i32, u64)>> {
        let places: Vec<u32> = (0..self.indexes.len() as u32).collect();
        let mut counts = vec![0; places.len()];
        let values = self.add_rows(rows, &places, &mut counts);
        let pairs = self.indexes.iter().copied().zip(counts);
        (values < u64::MAX).then(|| pairs.filter(|&(_, count)| count > 0).collect())
    }

    fn add_cells<T: Cell>(
        &self,
        cells: &[T],
        rows: Range<usize>,
        places: &[u32],
        window: &mut [u64],
    ) -> u64 {
        let mut values = 0u64;
        if rows.is_empty() || self.indexes.is_empty() {
            return values;
        }
        let height = height(self.rows);
        let frames = self.frames(cells).zip(self.sums.chunks_exact(self.indexes.len()));
        let frames = (0..self.rows).step_by(FRAME).zip(frames);
        let of_run = rows.start / FRAME..rows.end.div_ceil(FRAME);
        for (first, (cells, sums)) in frames.skip(of_run.start).take(of_run.len()) {
            let within = rows.start.max(first) - first..rows.end.min(first + FRAME) - first;
            let mut add = |place: u32, count: u64| {
                let held = &mut window[place as usize];
                *held = held.wrapping_add(count);
            };
            if within.len() == FRAME.min(self.rows - first) {
                for (&place, &sum) in places.iter().zip(sums) {
                    add(place, sum);
                    values = sum.with(values);
                }
            } else if within.len() >= ROWS_MANY {
                for (&place, column) in places.iter().zip(cells.chunks_exact(height)) {
                    let (sum, _) = total(&column[within.clone()]);
                    add(place, sum);
                    values = sum.with(values);
                }
            } else {
                for row in within {
                    for (&place, column) in places.iter().zip(cells.chunks_exact(height)) {
                        add(place, column[row].wide());
                        values = column[row].with(values);
                    }
                }
            }
        }
        values
    }
}
