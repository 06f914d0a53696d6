//! Merging histograms into columns directly from chunk bytes.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use hist::codec::block;
use hist::{Accumulator, Explicit, Histogram, Mixture, Scheme};

use crate::grid::ColumnRun;

/// Merges histograms into columns, per bucket scheme.
pub(crate) struct ColumnMerge {
    columns: usize,
    sets: Vec<ColumnSet>,
    /// Sets of explicit bounds, of which there may be as many as histograms.
    explicit_sets: HashMap<Explicit, usize>,
    full_columns: BTreeSet<usize>,
}

/// Columns of one bucket scheme, from the first one on.
struct ColumnSet {
    scheme: Scheme,
    first: usize,
    columns: SchemeColumns,
}

/// Columns of one bucket scheme.
enum SchemeColumns {
    /// At most one histogram in each, as of a series alone: it is the sum.
    Single(Vec<Option<Histogram>>),
    Sums(Vec<Accumulator>),
}

impl ColumnSet {
    /// Adds empty columns, so that it has those of a range.
    fn cover(&mut self, columns: Range<usize>) {
        let before = self.first.saturating_sub(columns.start);
        self.first = self.first.saturating_sub(before);
        let len = columns.end.saturating_sub(self.first);
        match &mut self.columns {
            SchemeColumns::Single(singles) => {
                singles.splice(0..0, std::iter::repeat_n(None, before));
                singles.resize(singles.len().max(len), None);
            }
            SchemeColumns::Sums(sums) => {
                let empty = || Accumulator::new(self.scheme.clone());
                sums.splice(0..0, std::iter::repeat_with(empty).take(before));
                sums.resize_with(sums.len().max(len), empty);
            }
        }
    }
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
        let (sets, explicit_sets) = (Vec::new(), HashMap::new());
        ColumnMerge { columns, sets, explicit_sets, full_columns: BTreeSet::new() }
    }

    /// The set of a scheme, with some columns.
    fn set(&mut self, scheme: &Scheme, columns: Range<usize>) -> &mut ColumnSet {
        let new = self.sets.len();
        let (at, columns) = match scheme {
            // One that few histograms have takes few columns.
            Scheme::Explicit(grid) => {
                (*self.explicit_sets.entry(grid.clone()).or_insert(new), columns)
            }
            _ => {
                let known = self.sets.iter().position(|held| held.scheme == *scheme);
                (known.unwrap_or(new), 0..self.columns)
            }
        };
        if at == new {
            let (scheme, single) = (scheme.clone(), SchemeColumns::Single(Vec::new()));
            self.sets.push(ColumnSet { scheme, first: columns.start, columns: single });
        }
        let set = &mut self.sets[at];
        set.cover(columns);
        set
    }

    /// Adds a histogram to a column.
    pub(crate) fn add(&mut self, column: usize, histogram: Histogram) {
        let set = self.set(histogram.scheme(), column..column.saturating_add(1));
        let at = column.saturating_sub(set.first);
        if let SchemeColumns::Single(singles) = &mut set.columns
            && singles[at].is_none()
            && histogram.thresholds().is_empty()
        {
            singles[at] = Some(histogram);
            return;
        }
        if set.columns.sums(histogram.scheme())[at].add(&histogram).is_err() {
            self.full_columns.insert(column);
        }
    }

    /// Adds rows of a block to columns.
    pub(crate) fn add_block(
        &mut self,
        bytes: &[u8],
        runs: &[(Range<usize>, usize)],
    ) -> Result<(), String> {
        let columns = || runs.iter().map(|(_, column)| *column);
        let (Some(first), Some(last)) = (columns().min(), columns().max()) else { return Ok(()) };
        let scheme = block::scheme(bytes).map_err(|error| error.to_string())?;
        let set = self.set(&scheme, first..last.saturating_add(1));
        let within = |(rows, column): &(Range<usize>, usize)| {
            (rows.clone(), column.saturating_sub(set.first))
        };
        let runs: Vec<(Range<usize>, usize)> = runs.iter().map(within).collect();
        let sums = set.columns.sums(&scheme);
        block::merge_runs(bytes, &runs, sums).map(drop).map_err(|error| error.to_string())
    }

    /// Returns the merged columns.
    pub(crate) fn finish(mut self) -> MergedColumns {
        // Mixtures have their components in this order.
        self.sets.sort_by(|a, b| match (&a.scheme, &b.scheme) {
            (Scheme::Explicit(a), Scheme::Explicit(b)) => a.cmp(b),
            (a, b) => a.is_explicit().cmp(&b.is_explicit()),
        });
        let mut columns: Vec<Mixture> = vec![Mixture::default(); self.columns];
        let mut full = self.full_columns;
        for set in self.sets {
            let sums: Vec<Option<Histogram>> = match set.columns {
                SchemeColumns::Single(singles) => singles,
                SchemeColumns::Sums(sums) => {
                    sums.iter().map(|sum| Some(sum.to_histogram())).collect()
                }
            };
            let columns = columns.iter_mut().enumerate().skip(set.first);
            for ((at, mixture), sum) in columns.zip(sums) {
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

    /// Each took as many columns as there are, and was compared with all others.
    #[test]
    fn columns_have_any_number_of_explicit_layouts() {
        let (mut merge, mut expected) = (ColumnMerge::new(10_000), vec![Mixture::default(); 6]);
        let columns = [9_000, 2, 5_000, 8_999, 1, 4_999];
        let layouts: Vec<Scheme> =
            (0..20_000).map(|n| Scheme::explicit(&[f64::from(n), 1e9]).unwrap()).collect();
        for (at, scheme) in layouts.iter().enumerate() {
            let mut histogram = Histogram::new(scheme.clone());
            histogram.record(at as f64);
            merge.add(columns[at % 3], histogram.clone());
            expected[at % 3].add(&histogram).unwrap();
        }
        // In the columns before, in another order.
        for (at, scheme) in layouts.iter().enumerate().step_by(70).rev() {
            let mut histogram = Histogram::new(scheme.clone());
            histogram.record(1.0);
            merge.add(columns[at % 3 + 3], histogram.clone());
            expected[at % 3 + 3].add(&histogram).unwrap();
        }
        let found = merge.finish().columns;
        let found = columns.map(|column| found[column].clone());
        assert!(found == expected[..]);
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
