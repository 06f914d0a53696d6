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
    sets: Vec<(Scheme, SchemeColumns)>,
    full_columns: BTreeSet<usize>,
}

/// Columns of one bucket scheme.
enum SchemeColumns {
    /// At most one histogram in each, as of a series alone: it is the sum.
    Single(Vec<Option<Histogram>>),
    Sums(Vec<Accumulator>),
}

impl SchemeColumns {
    /// The sums, made of the single histograms.
    fn sums(&mut self, scheme: &Scheme) -> &mut Vec<Accumulator> {
        if let SchemeColumns::Single(singles) = self {
            let sum = |single: &Option<Histogram>| {
                let mut sum = Accumulator::new(scheme.clone());
                // An empty sum has room for any histogram.
                let added = single.as_ref().map(|single| sum.add(single));
                debug_assert!(!matches!(added, Some(Err(_))), "BUG: {added:?}");
                sum
            };
            *self = SchemeColumns::Sums(singles.iter().map(sum).collect());
        }
        match self {
            SchemeColumns::Sums(sums) => sums,
            SchemeColumns::Single(_) => unreachable!("BUG: they were replaced"),
        }
    }
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

    fn set(&mut self, scheme: &Scheme) -> &mut SchemeColumns {
        let at = self.sets.iter().position(|(held, _)| held == scheme).unwrap_or_else(|| {
            self.sets.push((scheme.clone(), SchemeColumns::Single(vec![None; self.columns])));
            self.sets.len().saturating_sub(1)
        });
        &mut self.sets[at].1
    }

    /// Adds a histogram to a column.
    pub(crate) fn add(&mut self, column: usize, histogram: Histogram) {
        let set = self.set(histogram.scheme());
        if let SchemeColumns::Single(singles) = set
            && singles[column].is_none()
            && histogram.thresholds().is_empty()
        {
            singles[column] = Some(histogram);
            return;
        }
        if set.sums(histogram.scheme())[column].add(&histogram).is_err() {
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
        let sums = self.set(&scheme).sums(&scheme);
        block::merge_runs(bytes, runs, sums).map(drop).map_err(|error| error.to_string())
    }

    /// Returns the merged columns.
    pub(crate) fn finish(self) -> MergedColumns {
        let mut columns: Vec<Mixture> = vec![Mixture::default(); self.columns];
        let mut full = self.full_columns;
        for (_, set) in self.sets {
            let sums: Vec<Option<Histogram>> = match set {
                SchemeColumns::Single(singles) => singles,
                SchemeColumns::Sums(sums) => {
                    sums.iter().map(|sum| Some(sum.to_histogram())).collect()
                }
            };
            for (at, (mixture, sum)) in columns.iter_mut().zip(sums).enumerate() {
                let Some(histogram) = sum else { continue };
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

#[cfg(test)]
mod tests {
    use hist::{DoubleDouble, HistogramParts, TrackedValue};
    use proptest::prelude::*;

    use super::*;

    fn histogram() -> impl Strategy<Value = Histogram> {
        let number = || prop::sample::select(vec![None, Some(-1.5), Some(0.25), Some(3e9)]);
        (
            prop::collection::btree_map(-30i32..30, 1u64..1 << 40, 0..6),
            prop::collection::btree_map(-30i32..30, 1u64..9, 0..2),
            (0u64..3, 0u64..2, prop::sample::select(vec![0.0, 1e-9, 0.5])),
            (number(), any::<bool>()),
        )
            .prop_map(
                |(positive, negative, (zero, nan, zero_threshold), (sum, is_exact))| {
                    let mut parts = HistogramParts::new(Scheme::exp2(3).unwrap());
                    parts.positive = positive.into_iter().collect();
                    parts.negative = negative.into_iter().collect();
                    (parts.zero, parts.nan, parts.zero_threshold) = (zero, nan, zero_threshold);
                    parts.sum = match sum.map(DoubleDouble::new) {
                        Some(sum) if is_exact => TrackedValue::Exact(sum),
                        Some(sum) => TrackedValue::Estimated(sum),
                        None => TrackedValue::Absent,
                    };
                    Histogram::from_recorded_parts(parts).unwrap()
                },
            )
    }

    proptest! {
        #[test]
        fn a_single_histogram_is_its_sum(
            histograms in prop::collection::vec((0usize..3, histogram()), 1..5)
        ) {
            let mut merge = ColumnMerge::new(3);
            let mut sums: Vec<Accumulator> =
                (0..3).map(|_| Accumulator::new(Scheme::exp2(3).unwrap())).collect();
            for (column, histogram) in histograms {
                sums[column].add(&histogram).unwrap();
                merge.add(column, histogram);
            }
            let found = merge.finish().columns;
            for (sum, found) in sums.iter().zip(&found) {
                let sum = sum.to_histogram();
                let is_something = !sum.is_empty() || sum.nan_count() > 0;
                let expected: Vec<Histogram> = is_something.then_some(sum).into_iter().collect();
                prop_assert_eq!(found.components(), &expected[..]);
            }
        }
    }
}
