//! Merging histograms into columns directly from chunk bytes.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::ops::Range;

use hist::codec::block;
use hist::{Accumulator, Histogram, Mixture, Scheme};

use crate::grid::ColumnRun;

/// Merges histograms into columns, per bucket scheme.
pub(crate) struct ColumnMerge {
    columns: usize,
    sets: Vec<(Scheme, Vec<Accumulator>)>,
    full_columns: BTreeSet<usize>,
}

/// Merged columns.
pub(crate) struct MergedColumns {
    pub(crate) columns: Vec<Mixture>,
    /// Columns that left out histograms to keep their count at most 2^64 - 1.
    pub(crate) full_columns: BTreeSet<usize>,
}

/// Reason of the gap for such a column.
pub(crate) const COLUMN_FULL_REASON: &str = "count overflow (2^64 - 1); some histograms left out";

impl ColumnMerge {
    /// Merge into `columns` columns.
    pub(crate) fn new(columns: usize) -> ColumnMerge {
        ColumnMerge { columns, sets: Vec::new(), full_columns: BTreeSet::new() }
    }

    fn set(&mut self, scheme: &Scheme) -> &mut Vec<Accumulator> {
        let at = self.sets.iter().position(|(held, _)| held == scheme).unwrap_or_else(|| {
            let accumulators =
                (0..self.columns).map(|_| Accumulator::new(scheme.clone())).collect();
            self.sets.push((scheme.clone(), accumulators));
            self.sets.len().saturating_sub(1)
        });
        &mut self.sets[at].1
    }

    /// Adds a histogram to a column.
    pub(crate) fn add(&mut self, column: usize, histogram: &Histogram) {
        if self.set(histogram.scheme())[column].add(histogram).is_err() {
            self.full_columns.insert(column);
        }
    }

    /// Adds rows of a block to columns.
    pub(crate) fn add_block(
        &mut self,
        bytes: &[u8],
        runs: &[(Range<usize>, usize)],
    ) -> Result<(), String> {
        if runs.is_empty() {
            return Ok(());
        }
        let scheme = block::scheme(bytes).map_err(|error| error.to_string())?;
        let set = self.set(&scheme);
        block::merge_runs(bytes, runs, set).map(drop).map_err(|error| error.to_string())
    }

    /// Returns the merged columns.
    pub(crate) fn finish(self) -> MergedColumns {
        let mut columns: Vec<Mixture> = vec![Mixture::default(); self.columns];
        let mut full = self.full_columns;
        for (_, set) in self.sets {
            for (at, (mixture, accumulator)) in columns.iter_mut().zip(set).enumerate() {
                let histogram = accumulator.to_histogram();
                let is_something = !histogram.is_empty() || histogram.nan_count() > 0;
                if is_something && mixture.add(&histogram).is_err() {
                    full.insert(at);
                }
            }
        }
        MergedColumns { columns, full_columns: full }
    }
}

/// Assigns a new column to each row by its time and previous column; drops rows without one.
pub(crate) fn assign_columns(
    rows: Vec<(Range<usize>, usize)>,
    times: &[(i64, i64)],
    column_of: impl Fn((i64, i64), usize) -> Option<usize>,
) -> Vec<(Range<usize>, usize)> {
    let mut placed: Vec<(Range<usize>, usize)> = Vec::with_capacity(rows.len());
    for (range, column) in rows {
        for row in range {
            let Some(column) = column_of(times[row], column) else { continue };
            let next = row.saturating_add(1);
            match placed.last_mut() {
                Some((held, at)) if *at == column && held.end == row => held.end = next,
                _ => placed.push((row..next, column)),
            }
        }
    }
    placed
}

/// Assigns rows, by their ordered times, to columns.
pub(crate) fn rows_in_runs(times: &[(i64, i64)], runs: &[ColumnRun]) -> Vec<(Range<usize>, usize)> {
    let mut rows: Vec<(Range<usize>, usize)> = Vec::new();
    let Some(&(_, begin)) = times.first() else { return rows };
    // Skips the many pieces before the first row; from there rows and pieces advance together.
    let mut first = 0_usize;
    for (range, column) in &runs[runs.partition_point(|(range, _)| range.end < begin)..] {
        let count =
            |rest: &[(i64, i64)], end: i64| rest.iter().take_while(|time| time.1 <= end).count();
        // At most the number of rows.
        first = first.saturating_add(count(&times[first..], range.start));
        let end = first.saturating_add(count(&times[first..], range.end));
        match rows.last_mut() {
            _ if first == end => {}
            Some((held, at)) if *at == *column && held.end == first => held.end = end,
            _ => rows.push((first..end, *column)),
        }
        first = end;
        if first == times.len() {
            break;
        }
    }
    rows
}
