//! Histograms put together in columns, straight from the bytes of chunks.

use std::ops::Range;

use hist::codec::block;
use hist::{Accumulator, Histogram, Mixture, Scheme};

use crate::grid::Run;

/// Histograms of each column, a set of accumulators for each grid.
pub(crate) struct Merge {
    columns: usize,
    sets: Vec<(Scheme, Vec<Accumulator>)>,
}

impl Merge {
    /// Of so many columns.
    pub(crate) fn new(columns: usize) -> Merge {
        Merge { columns, sets: Vec::new() }
    }

    fn set(&mut self, scheme: &Scheme) -> &mut Vec<Accumulator> {
        let at = self.sets.iter().position(|(held, _)| held == scheme).unwrap_or_else(|| {
            let accumulators =
                (0..self.columns).map(|_| Accumulator::new(scheme.clone())).collect();
            self.sets.push((scheme.clone(), accumulators));
            self.sets.len() - 1
        });
        &mut self.sets[at].1
    }

    /// Adds one to a column.
    pub(crate) fn add(&mut self, column: usize, histogram: &Histogram) {
        let set = self.set(histogram.scheme());
        set[column].add(histogram).expect("BUG: it is of this grid");
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

    /// What is in each column.
    pub(crate) fn finish(self) -> Vec<Mixture> {
        let mut mixtures: Vec<Mixture> = vec![Mixture::default(); self.columns];
        for (_, set) in self.sets {
            for (mixture, accumulator) in mixtures.iter_mut().zip(set) {
                let histogram = accumulator.to_histogram();
                if !histogram.is_empty() || histogram.nan_count() > 0 {
                    mixture.add(&histogram).expect("BUG: more than 2^64 values");
                }
            }
        }
        mixtures
    }
}

/// Which rows, by their times in order, belong to which column.
pub(crate) fn rows_of(times: &[(i64, i64)], runs: &[Run]) -> Vec<(Range<usize>, usize)> {
    let mut rows: Vec<(Range<usize>, usize)> = Vec::new();
    let Some(&(_, begin)) = times.first() else { return rows };
    // Pieces before the first row are many; from there on rows and pieces go along with each other.
    let mut first = 0;
    for (range, column) in &runs[runs.partition_point(|(range, _)| range.end < begin)..] {
        let count =
            |rest: &[(i64, i64)], end: i64| rest.iter().take_while(|time| time.1 <= end).count();
        first += count(&times[first..], range.start);
        let end = first + count(&times[first..], range.end);
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
