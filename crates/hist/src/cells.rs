//! Cells: value ranges of buckets with their counts.
//!
//! Statistics read a histogram as cells in ascending order: underflow, negative buckets, zero,
//! positive buckets, overflow. Bounds are closed and clipped to the minimum and maximum, exact or
//! bounded.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: the total of a histogram, NaN included, fits 64 bits, and so does any sum of
// its counts.

use crate::bracket::Bracket;
use crate::histogram::Histogram;

/// `count` values between `lower` and `upper`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Smallest possible value.
    pub lower: f64,
    /// Largest possible value.
    pub upper: f64,
    /// Number of values.
    pub count: u64,
}

impl Cell {
    /// Best estimate of one value: the middle, or the finite end of an open cell. A cell that is
    /// open below and ends above zero is assumed to start at zero, as in Prometheus.
    pub(crate) fn middle(&self) -> f64 {
        let (lower, upper) = self.finite();
        f64::midpoint(lower, upper)
    }

    /// Whether the cell extends from below zero to above zero.
    fn is_around_zero(&self) -> bool {
        self.lower < 0.0 && self.upper > 0.0
    }

    pub(crate) fn finite(&self) -> (f64, f64) {
        match (self.lower.is_finite(), self.upper.is_finite()) {
            (true, true) => (self.lower, self.upper),
            (true, false) => (self.lower, self.lower),
            (false, true) if self.upper > 0.0 => (0.0, self.upper),
            (false, true) => (self.upper, self.upper),
            (false, false) if self.lower == self.upper => (self.lower, self.upper),
            (false, false) => (0.0, 0.0),
        }
    }

    /// The values of the cell, assumed evenly spread between the ends: the `k`-th value is at
    /// `k / (count + 1)` of the way.
    fn spread_evenly(&self, (first, last): (f64, f64)) -> EvenSpread {
        // Halved first: the width of a cell may exceed the range of doubles.
        let step = (last * 0.5 - first * 0.5) / (self.count as f64 + 1.0) * 2.0;
        EvenSpread { lower: self.lower, first, step, upper: self.upper }
    }

    /// Share of the cell's values at or below `x`, if they are evenly spread between the ends.
    pub(crate) fn share_at_most(&self, x: f64, (lower, upper): (f64, f64)) -> f64 {
        if x >= self.upper {
            1.0
        } else if x < self.lower {
            0.0
        } else {
            // Halved first: the width of a cell may exceed the range of doubles.
            let (above, width) = (x * 0.5 - lower * 0.5, upper * 0.5 - lower * 0.5);
            if width > 0.0 { (above / width).clamp(0.0, 1.0) } else { 0.5 }
        }
    }

    /// Smallest distance of a value in the cell from a point in `between`.
    pub(crate) fn distance_from(&self, between: (f64, f64)) -> f64 {
        (self.lower - between.1).max(between.0 - self.upper).max(0.0)
    }
}

/// Cell with its values assumed evenly spread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvenSpread {
    lower: f64,
    first: f64,
    step: f64,
    upper: f64,
}

impl EvenSpread {
    /// The `k`-th value, from 1.
    #[inline]
    pub(crate) fn order_statistic(&self, k: u64) -> Bracket {
        Bracket::new(self.lower, self.first + self.step * k as f64, self.upper)
    }
}

/// Linear interpolation: `part` of the way from `lower` to `upper`.
pub(crate) fn interpolate(lower: f64, upper: f64, part: f64) -> f64 {
    let width = upper - lower;
    if lower == upper || part == 0.0 {
        lower
    } else if part == 1.0 {
        upper
    } else if width.is_finite() {
        lower + width * part
    } else {
        lower * (1.0 - part) + upper * part
    }
}

/// Bounds of a value of which nothing is known.
const UNKNOWN_SPAN: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

impl Histogram {
    /// Bounds of a bucket that holds values. [`HistogramParts`] accepts only buckets of the grid.
    ///
    /// [`HistogramParts`]: crate::HistogramParts
    pub(crate) fn bucket_span(&self, index: i32) -> (f64, f64) {
        let span = self.scheme().span(index);
        debug_assert!(span.is_some(), "BUG: bucket {index} is outside the grid");
        span.unwrap_or(UNKNOWN_SPAN)
    }

    /// Value ranges with counts, in ascending order.
    pub fn cells(&self) -> impl DoubleEndedIterator<Item = Cell> + Clone + '_ {
        let (least, greatest) = self.limits();
        self.uncut_cells().map(move |cell| Cell {
            lower: cell.lower.max(least),
            upper: cell.upper.min(greatest),
            ..cell
        })
    }

    /// Ends between which the values of a cell are assumed to lie, for estimates. If all values
    /// have one sign, the cell around zero ends at zero, as in Prometheus; its bounds stay those of
    /// the bucket.
    pub(crate) fn estimate_ends(&self, cell: &Cell) -> (f64, f64) {
        let (lower, upper) = cell.finite();
        if !(self.scheme().is_mirrored() && cell.is_around_zero()) {
            return (lower, upper);
        }
        if self.has_no_negatives() {
            (0.0, upper)
        } else if self.positive().is_empty() && self.overflow() == 0 {
            (lower, 0.0)
        } else {
            (lower, upper)
        }
    }

    /// The values of a cell, assumed evenly spread.
    pub(crate) fn spread_evenly(&self, cell: &Cell) -> EvenSpread {
        cell.spread_evenly(self.estimate_ends(cell))
    }

    /// Share of a cell's values at or below `x`, if they are evenly spread.
    pub(crate) fn share_at_most(&self, cell: &Cell, x: f64) -> f64 {
        cell.share_at_most(x, self.estimate_ends(cell))
    }

    /// Number of values certainly below a positive limit `x`, and the cells that may extend to it.
    /// The result equals a walk over all cells, but is found by bisection. `None` if `x` is not a
    /// positive finite number.
    pub(crate) fn cells_up_to(&self, x: f64) -> Option<(u64, impl Iterator<Item = Cell> + '_)> {
        if !(x.is_finite() && x > self.zero_end()) {
            return None;
        }
        let span = |index: i32| self.bucket_span(index);
        let around_zero = self.zero_cell();
        let (indexes, counts) = (
            &self.positive().indexes()[around_zero.positive..],
            &self.positive().counts()[around_zero.positive..],
        );
        let first = indexes.partition_point(|&index| span(index).1 < x);
        let negative = &self.negative().counts()[around_zero.negative..];
        let below = [self.underflow(), around_zero.count];
        let below = below.iter().chain(negative).chain(&counts[..first]).sum::<u64>();
        let past_grid = self.scheme().end();
        let above = (self.overflow() > 0).then(|| ((past_grid, f64::INFINITY), self.overflow()));
        let (least, greatest) = self.limits();
        let near = indexes[first..].iter().zip(&counts[first..]);
        let near = near.map(move |(&index, &count)| (span(index), count)).chain(above);
        let near = near.take_while(move |((lower, _), _)| *lower <= x);
        let cut = move |((lower, upper), count): ((f64, f64), u64)| Cell {
            lower: lower.max(least),
            upper: upper.min(greatest),
            count,
        };
        Some((below, near.map(cut)))
    }

    /// The cells of the buckets alone, not clipped to the exact minimum and maximum.
    pub(crate) fn uncut_cells(&self) -> impl DoubleEndedIterator<Item = Cell> + Clone + '_ {
        let span = |index| self.bucket_span(index);
        let past_grid = self.scheme().end();
        let below = Some(((f64::NEG_INFINITY, -past_grid), self.underflow()));
        let around_zero = self.zero_cell();
        let zero = Some(((-self.zero_end(), self.zero_end()), around_zero.count));
        let above = Some(((past_grid, f64::INFINITY), self.overflow()));
        below
            .into_iter()
            .chain(self.negative().iter().skip(around_zero.negative).rev().map(
                move |(index, count)| {
                    let (lower, upper) = span(index);
                    ((-upper, -lower), count)
                },
            ))
            .chain(zero)
            .chain(
                self.positive()
                    .iter()
                    .skip(around_zero.positive)
                    .map(move |(index, count)| (span(index), count)),
            )
            .chain(above)
            .filter(|&(_, count)| count > 0)
            .map(|((lower, upper), count)| Cell { lower, upper, count })
    }

    /// Minimum and maximum, or bounds of them, where known.
    fn limits(&self) -> (f64, f64) {
        (
            self.tracked_min().limit().unwrap_or(f64::NEG_INFINITY),
            self.tracked_max().limit().unwrap_or(f64::INFINITY),
        )
    }

    /// Largest magnitude that is counted as zero.
    pub(crate) fn zero_end(&self) -> f64 {
        self.scheme().zero_end(self.zero_threshold())
    }

    /// Counts merged into one cell around zero. Ranks follow from cells only if both of their ends
    /// ascend, so buckets within the zero threshold, which Prometheus allows, are merged into the
    /// zero cell.
    fn zero_cell(&self) -> ZeroCell {
        let mut around = ZeroCell { count: self.zero_count(), positive: 0, negative: 0 };
        if around.count == 0 || self.zero_threshold() == 0.0 || !self.scheme().is_mirrored() {
            return around;
        }
        let end = self.zero_end();
        let within = |index: i32| self.scheme().span(index).is_some_and(|(_, upper)| upper <= end);
        around.positive = self.positive().indexes().partition_point(|&index| within(index));
        around.negative = self.negative().indexes().partition_point(|&index| within(index));
        let positive = &self.positive().counts()[..around.positive];
        let negative = &self.negative().counts()[..around.negative];
        around.count = [around.count].iter().chain(positive).chain(negative).sum();
        around
    }

    /// Bounds of the largest (or smallest) value from its bucket alone. The histogram must not be
    /// empty.
    ///
    /// Every decoded histogram needs both: the ends of [`Self::uncut_cells`] give the same result
    /// at twice the cost.
    pub(crate) fn extreme_bounds(&self, greatest: bool) -> (f64, f64) {
        let around_zero = self.zero_cell();
        let positive = &self.positive().indexes()[around_zero.positive..];
        let negative = &self.negative().indexes()[around_zero.negative..];
        let underflow = (self.underflow() > 0).then_some(RankPosition::Underflow);
        let zero = (around_zero.count > 0).then_some(RankPosition::Zero);
        let overflow = (self.overflow() > 0).then_some(RankPosition::Overflow);
        let found = if greatest {
            overflow
                .or_else(|| positive.last().map(|&i| RankPosition::Positive(i)))
                .or(zero)
                .or_else(|| negative.first().map(|&i| RankPosition::Negative(i)))
                .or(underflow)
        } else {
            underflow
                .or_else(|| negative.last().map(|&i| RankPosition::Negative(i)))
                .or(zero)
                .or_else(|| positive.first().map(|&i| RankPosition::Positive(i)))
                .or(overflow)
        };
        debug_assert!(found.is_some(), "BUG: extreme of an empty histogram");
        found.map_or(UNKNOWN_SPAN, |position| self.position_span(position))
    }

    /// Smallest and largest value that can be counted at a position, both closed.
    fn position_span(&self, position: RankPosition) -> (f64, f64) {
        let span = |index| self.bucket_span(index);
        match position {
            RankPosition::Underflow => (f64::NEG_INFINITY, -self.scheme().end()),
            RankPosition::Negative(index) => {
                let (lower, upper) = span(index);
                (-upper, -lower)
            }
            RankPosition::Zero => (-self.zero_end(), self.zero_end()),
            RankPosition::Positive(index) => span(index),
            RankPosition::Overflow => (self.scheme().end(), f64::INFINITY),
        }
    }

    /// The cell with the value of this rank (1-based, ascending), and the number of values before
    /// the cell. Only that bucket is converted to values: the scan reads counts.
    pub(crate) fn cell_of_rank(&self, rank: u64) -> (Cell, u64) {
        debug_assert!((1..=self.count()).contains(&rank));
        let (position, count, before) = self.position_of_rank(rank);
        let (lower, upper) = self.position_span(position);
        let (least, greatest) = self.limits();
        (Cell { lower: lower.max(least), upper: upper.min(greatest), count }, before)
    }

    /// The bucket of a rank, its count, and the count before it.
    pub(crate) fn position_of_rank(&self, rank: u64) -> (RankPosition, u64, u64) {
        let mut before = self.underflow();
        if rank <= before {
            return (RankPosition::Underflow, before, 0);
        }
        let around_zero = self.zero_cell();
        for (index, count) in self.negative().iter().skip(around_zero.negative).rev() {
            if rank <= before.wrapping_add(count) {
                return (RankPosition::Negative(index), count, before);
            }
            before = before.wrapping_add(count);
        }
        if rank <= before.wrapping_add(around_zero.count) {
            return (RankPosition::Zero, around_zero.count, before);
        }
        before = before.wrapping_add(around_zero.count);

        let end = self.count().wrapping_sub(self.overflow());
        if rank > end {
            return (RankPosition::Overflow, self.overflow(), end);
        }
        let indexes = &self.positive().indexes()[around_zero.positive..];
        let counts = &self.positive().counts()[around_zero.positive..];
        // From the nearer end: most queried quantiles are near the upper end.
        if rank.wrapping_sub(before) <= end.wrapping_sub(rank) {
            for (&index, &count) in indexes.iter().zip(counts) {
                if rank <= before.wrapping_add(count) {
                    return (RankPosition::Positive(index), count, before);
                }
                before = before.wrapping_add(count);
            }
        } else {
            let mut before = end;
            for (&index, &count) in indexes.iter().zip(counts).rev() {
                before = before.wrapping_sub(count);
                if rank > before {
                    return (RankPosition::Positive(index), count, before);
                }
            }
        }
        unreachable!("BUG: rank {rank} is not among {} values", self.count())
    }
}

/// Cell around zero, with the number of buckets of each sign merged into it.
#[derive(Clone, Copy)]
struct ZeroCell {
    count: u64,
    positive: usize,
    negative: usize,
}

/// Bucket class and index of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankPosition {
    Underflow,
    Negative(i32),
    Zero,
    Positive(i32),
    Overflow,
}

/// Number of values that satisfy a comparison, given which cells certainly and which possibly do.
pub(crate) fn count_matching(
    cells: impl Iterator<Item = Cell>,
    certain: impl Fn(&Cell) -> bool,
    possible: impl Fn(&Cell) -> bool,
    share: impl Fn(&Cell) -> f64,
) -> Bracket<u64> {
    let (mut lower, mut upper, mut estimate) = (0u64, 0u64, 0.0);
    for cell in cells {
        if certain(&cell) {
            lower = lower.wrapping_add(cell.count);
            upper = upper.wrapping_add(cell.count);
        } else if possible(&cell) {
            upper = upper.wrapping_add(cell.count);
            estimate += cell.count as f64 * share(&cell);
        }
    }
    Bracket::new(lower, lower.saturating_add(f64::round(estimate) as u64), upper)
}
