//! Percentiles over sliding windows.
//!
//! The numbers of the window are kept sorted; each insertion and removal is a binary search and a
//! memory move.

use std::ops::Range;

use super::super::kernel::KernelInput;
use super::super::points::point;
use super::{SlotWindows, present_values};
use crate::error::Result;
use crate::stream::Stream;

/// Interpolated between the numbers of the ranks around (n − 1)·p (type 7 of Hyndman and Fan,
/// 1996), as in PromQL.
pub(super) fn percentile<const ROLLING: bool>(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let share = call.arguments.number("percentile").unwrap_or(50.0) / 100.0;
    map_sorted(call, ROLLING, |sorted| {
        let last = sorted.len().checked_sub(1)?;
        let rank = share * last as f64;
        let below = (rank.floor() as usize).min(last);
        let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
        Some(low + (high - low) * (rank - below as f64))
    })
}

/// Percentage of numbers below the threshold.
pub(super) fn inverse_percentile<const ROLLING: bool>(
    call: KernelInput<'_>,
) -> Result<Vec<Stream>> {
    let threshold = call.arguments.number("threshold").unwrap_or(0.0);
    map_sorted(call, ROLLING, |sorted| {
        let below = sorted.partition_point(|number| *number < threshold);
        (!sorted.is_empty()).then(|| 100.0 * below as f64 / sorted.len() as f64)
    })
}

fn map_sorted(
    call: KernelInput<'_>,
    is_rolling: bool,
    of: impl Fn(&[f64]) -> Option<f64>,
) -> Result<Vec<Stream>> {
    let windows = SlotWindows::for_call(&call, is_rolling)?;
    let of = |stream: Stream| {
        let numbers =
            |value: &crate::value::StepValue| value.number().filter(|number| !number.is_nan());
        let (items, before) = present_values(&stream, numbers);
        let mut sorted = SlidingSorted::default();
        let points =
            windows.value_ranges(&before).map(|range| point(of(sorted.advance_to(&items, range))));
        Stream { points: windows.to_slots(points), ..stream }
    };
    Ok(call.inputs.into_iter().map(of).collect())
}

/// Sorted values of a sliding range.
#[derive(Default)]
struct SlidingSorted {
    range: Range<usize>,
    numbers: Vec<f64>,
}

impl SlidingSorted {
    /// Sorted numbers of the next range, whose start and end are not before those of the previous
    /// range.
    fn advance_to(&mut self, items: &[f64], range: Range<usize>) -> &[f64] {
        let shared = self.range.end.saturating_sub(range.start);
        if shared == 0 || shared < range.len() / 2 {
            self.numbers.clear();
            self.numbers.extend_from_slice(&items[range.clone()]);
            self.numbers.sort_by(f64::total_cmp);
        } else {
            for gone in &items[self.range.start..range.start] {
                if let Ok(at) = self.numbers.binary_search_by(|held| held.total_cmp(gone)) {
                    self.numbers.remove(at);
                }
            }
            for come in &items[self.range.end.min(range.end)..range.end] {
                let at = self.numbers.partition_point(|held| held.total_cmp(come).is_lt());
                self.numbers.insert(at, *come);
            }
        }
        self.range = range;
        &self.numbers
    }
}
