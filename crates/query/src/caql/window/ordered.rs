//! Percentiles of the numbers in a window, and which percentile a number is.
//!
//! The window's numbers are held in order; each that comes or goes is a binary search and a move in memory.

use std::ops::Range;

use super::super::points::point;
use super::super::work::Work;
use super::{Package, Windows, present};
use crate::error::Result;
use crate::stream::Stream;

/// Between the numbers of the ranks around (n − 1)·p (type 7 of Hyndman and Fan, 1996), as PromQL has it.
pub(super) fn percentile<P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    let share = work.arguments.number("percentile").unwrap_or(50.0) / 100.0;
    ordered::<P>(work, |sorted| {
        let last = sorted.len().checked_sub(1)?;
        let rank = share * last as f64;
        let below = (rank.floor() as usize).min(last);
        let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
        Some(low + (high - low) * (rank - below as f64))
    })
}

/// How many of a hundred lie below the threshold.
pub(super) fn inverse_percentile<P: Package>(work: Work<'_>) -> Result<Vec<Stream>> {
    let threshold = work.arguments.number("threshold").unwrap_or(0.0);
    ordered::<P>(work, |sorted| {
        let below = sorted.partition_point(|number| *number < threshold);
        (!sorted.is_empty()).then(|| 100.0 * below as f64 / sorted.len() as f64)
    })
}

fn ordered<P: Package>(work: Work<'_>, of: impl Fn(&[f64]) -> Option<f64>) -> Result<Vec<Stream>> {
    let windows = Windows::of::<P>(&work)?;
    let of = |stream: Stream| {
        let numbers =
            |value: &crate::value::Value| value.number().filter(|number| !number.is_nan());
        let (items, before) = present(&stream, numbers);
        let mut sorted = Sorted::default();
        let points = windows.ranges_of(&before).map(|range| point(of(sorted.of(&items, range))));
        Stream { points: windows.shown(points), ..stream }
    };
    Ok(work.inputs.into_iter().map(of).collect())
}

/// Numbers of a range, in order.
#[derive(Default)]
struct Sorted {
    held: Range<usize>,
    numbers: Vec<f64>,
}

impl Sorted {
    /// Those of the next range, whose start and end do not lie before those of the last one.
    fn of(&mut self, items: &[f64], range: Range<usize>) -> &[f64] {
        let shared = self.held.end.saturating_sub(range.start);
        if shared == 0 || shared < range.len() / 2 {
            self.numbers.clear();
            self.numbers.extend_from_slice(&items[range.clone()]);
            self.numbers.sort_by(f64::total_cmp);
        } else {
            for gone in &items[self.held.start..range.start] {
                if let Ok(at) = self.numbers.binary_search_by(|held| held.total_cmp(gone)) {
                    self.numbers.remove(at);
                }
            }
            for come in &items[self.held.end.min(range.end)..range.end] {
                let at = self.numbers.partition_point(|held| held.total_cmp(come).is_lt());
                self.numbers.insert(at, *come);
            }
        }
        self.held = range;
        &self.numbers
    }
}
