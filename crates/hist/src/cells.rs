//! What the buckets know of the values: so many lie between here and there.
//!
//! Statistics read a histogram as cells in ascending order: past the grid below, negative buckets, zero,
//! positive buckets, past the grid above. Bounds are closed and cut to the exact minimum and maximum.

use crate::bracket::Bracket;
use crate::histogram::Histogram;

/// `count` values between `lower` and `upper`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The least a value can be.
    pub lower: f64,
    /// The greatest a value can be.
    pub upper: f64,
    /// How many values there are.
    pub count: u64,
}

impl Cell {
    /// The likeliest place of one value: the middle, or the finite end of an open cell. A cell that is
    /// open below and ends above zero is taken to begin at zero, as Prometheus does.
    pub(crate) fn middle(&self) -> f64 {
        let (lower, upper) = self.finite();
        lower + (upper - lower) * 0.5
    }

    fn finite(&self) -> (f64, f64) {
        match (self.lower.is_finite(), self.upper.is_finite()) {
            (true, true) => (self.lower, self.upper),
            (true, false) => (self.lower, self.lower),
            (false, true) if self.upper > 0.0 => (0.0, self.upper),
            (false, true) => (self.upper, self.upper),
            (false, false) if self.lower == self.upper => (self.lower, self.upper),
            (false, false) => (0.0, 0.0),
        }
    }

    /// Where the `k`-th of the cell's values lies if they are spread evenly: `k / (count + 1)` of the way.
    pub(crate) fn order_statistic(&self, k: u64) -> f64 {
        let (lower, upper) = self.finite();
        if lower == upper {
            return lower;
        }
        lower + (upper - lower) * (k as f64 / (self.count as f64 + 1.0))
    }

    /// Which share of the cell's values lies at or below `x` if they are spread evenly.
    pub(crate) fn share_below(&self, x: f64) -> f64 {
        if x >= self.upper {
            1.0
        } else if x < self.lower {
            0.0
        } else {
            let (lower, upper) = self.finite();
            if lower < upper { ((x - lower) / (upper - lower)).clamp(0.0, 1.0) } else { 0.5 }
        }
    }

    /// Greatest and least distance of a value in the cell from a point in `between`.
    fn distance_from(&self, between: (f64, f64)) -> f64 {
        (self.lower - between.1).max(between.0 - self.upper).max(0.0)
    }
}

impl Histogram {
    /// What is known of the values, in ascending order.
    pub fn cells(&self) -> impl DoubleEndedIterator<Item = Cell> + '_ {
        let span = |index| self.scheme().span(index).expect("BUG: a held bucket has a span");
        let (least, greatest) = self.limits();
        let cut = move |(lower, upper): (f64, f64), count| Cell {
            lower: lower.max(least),
            upper: upper.min(greatest),
            count,
        };
        let past_grid = self.scheme().end();
        let below = Some(((f64::NEG_INFINITY, -past_grid), self.underflow()));
        let zero = Some(((-self.zero_end(), self.zero_end()), self.zero_count()));
        let above = Some(((past_grid, f64::INFINITY), self.overflow()));
        below
            .into_iter()
            .chain(self.negative().iter().rev().map(move |(index, count)| {
                let (lower, upper) = span(index);
                ((-upper, -lower), count)
            }))
            .chain(zero)
            .chain(self.positive().iter().map(move |(index, count)| (span(index), count)))
            .chain(above)
            .filter(|&(_, count)| count > 0)
            .map(move |(bounds, count)| cut(bounds, count))
    }

    /// The exact extremes where they are known.
    fn limits(&self) -> (f64, f64) {
        (
            self.min_side().exact().unwrap_or(f64::NEG_INFINITY),
            self.max_side().exact().unwrap_or(f64::INFINITY),
        )
    }

    /// The greatest magnitude that is counted as zero.
    pub(crate) fn zero_end(&self) -> f64 {
        self.scheme().zero_end(self.zero_threshold())
    }

    /// Bounds of the greatest (or least) value from its bucket alone. The histogram is not empty.
    pub(crate) fn outermost(&self, greatest: bool) -> (f64, f64) {
        let span = |index| self.scheme().span(index).expect("BUG: a held bucket has a span");
        let mirrored = |index| {
            let (lower, upper) = span(index);
            (-upper, -lower)
        };
        let zero = (self.zero_count() > 0).then(|| (-self.zero_end(), self.zero_end()));
        let past_grid = self.scheme().end();
        let (positive, negative) = (self.positive().indexes(), self.negative().indexes());
        let found = if greatest {
            (self.overflow() > 0)
                .then_some((past_grid, f64::INFINITY))
                .or_else(|| positive.last().map(|&i| span(i)))
                .or(zero)
                .or_else(|| negative.first().map(|&i| mirrored(i)))
                .or((self.underflow() > 0).then_some((f64::NEG_INFINITY, -past_grid)))
        } else {
            (self.underflow() > 0)
                .then_some((f64::NEG_INFINITY, -past_grid))
                .or_else(|| negative.last().map(|&i| mirrored(i)))
                .or(zero)
                .or_else(|| positive.first().map(|&i| span(i)))
                .or((self.overflow() > 0).then_some((past_grid, f64::INFINITY)))
        };
        found.expect("BUG: asked for an extreme of an empty histogram")
    }

    /// The cell that holds the value of this rank (1-based, ascending), and how many values lie before
    /// the cell. Only the one bucket found is mapped to values: the scan reads counts.
    pub(crate) fn cell_of_rank(&self, rank: u64) -> (Cell, u64) {
        debug_assert!((1..=self.count()).contains(&rank));
        let (place, count, before) = self.place_of_rank(rank);
        let span = |index| self.scheme().span(index).expect("BUG: a held bucket has a span");
        let past_grid = self.scheme().end();
        let (lower, upper) = match place {
            RankPlace::Underflow => (f64::NEG_INFINITY, -past_grid),
            RankPlace::Negative(index) => {
                let (lower, upper) = span(index);
                (-upper, -lower)
            }
            RankPlace::Zero => (-self.zero_end(), self.zero_end()),
            RankPlace::Positive(index) => span(index),
            RankPlace::Overflow => (past_grid, f64::INFINITY),
        };
        let (least, greatest) = self.limits();
        (Cell { lower: lower.max(least), upper: upper.min(greatest), count }, before)
    }

    /// The bucket that holds a rank, its count, and the count before it.
    pub(crate) fn place_of_rank(&self, rank: u64) -> (RankPlace, u64, u64) {
        let mut before = self.underflow();
        if rank <= before {
            return (RankPlace::Underflow, before, 0);
        }
        for (index, count) in self.negative().iter().rev() {
            if rank <= before + count {
                return (RankPlace::Negative(index), count, before);
            }
            before += count;
        }
        if rank <= before + self.zero_count() {
            return (RankPlace::Zero, self.zero_count(), before);
        }
        before += self.zero_count();

        let end = self.count() - self.overflow();
        if rank > end {
            return (RankPlace::Overflow, self.overflow(), end);
        }
        let (indexes, counts) = (self.positive().indexes(), self.positive().counts());
        // From whichever end is nearer: the interesting quantiles lie near the upper one.
        if rank - before <= end - rank {
            for (&index, &count) in indexes.iter().zip(counts) {
                if rank <= before + count {
                    return (RankPlace::Positive(index), count, before);
                }
                before += count;
            }
        } else {
            let mut before = end;
            for (&index, &count) in indexes.iter().zip(counts).rev() {
                before -= count;
                if rank > before {
                    return (RankPlace::Positive(index), count, before);
                }
            }
        }
        unreachable!("BUG: rank {rank} is not among {} values", self.count())
    }
}

/// Where a rank falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankPlace {
    Underflow,
    Negative(i32),
    Zero,
    Positive(i32),
    Overflow,
}

/// How many values satisfy a comparison, from how many surely do and how many surely do not.
pub(crate) fn tally(
    cells: impl Iterator<Item = Cell>,
    surely: impl Fn(&Cell) -> bool,
    possibly: impl Fn(&Cell) -> bool,
    share: impl Fn(&Cell) -> f64,
) -> Bracket<u64> {
    let (mut lower, mut upper, mut estimate) = (0u64, 0u64, 0.0);
    for cell in cells {
        if surely(&cell) {
            lower += cell.count;
            upper += cell.count;
        } else if possibly(&cell) {
            upper += cell.count;
            estimate += cell.count as f64 * share(&cell);
        }
    }
    Bracket::new(lower, lower.saturating_add(f64::round(estimate) as u64), upper)
}

/// The sum of all values, as far as the cells tell.
pub(crate) fn sum(cells: impl Iterator<Item = Cell>) -> Bracket {
    moment_sum(cells, |x| x, |cell| (cell.lower, cell.upper)).widened()
}

/// The sum over all values of a power, with its bounds in each cell given by `bounds`.
pub(crate) fn moment_sum(
    cells: impl Iterator<Item = Cell>,
    power: impl Fn(f64) -> f64,
    bounds: impl Fn(&Cell) -> (f64, f64),
) -> Bracket {
    let (mut lower, mut estimate, mut upper) = (0.0, 0.0, 0.0);
    for cell in cells {
        let n = cell.count as f64;
        let (low, high) = bounds(&cell);
        lower += n * low;
        upper += n * high;
        estimate += n * power(cell.middle());
    }
    Bracket::new(lower, estimate, upper)
}

/// The mean squared distance from the mean, which lies in `mean`. Values in a cell are taken as evenly
/// spread for the estimate; the bounds hold for any placing of them.
pub(crate) fn variance(cells: impl Iterator<Item = Cell>, count: u64, mean: Bracket) -> Bracket {
    let (mut lower, mut estimate, mut upper) = (0.0, 0.0, 0.0);
    for cell in cells {
        let n = cell.count as f64;
        let nearest = cell.distance_from((mean.lower, mean.upper));
        // The variance is least about the mean, so distances from any other point bound it from above.
        let farthest = (cell.lower - mean.estimate).abs().max((cell.upper - mean.estimate).abs());
        let (low, high) = cell.finite();
        let (middle, width) = (cell.middle() - mean.estimate, high - low);
        lower += n * nearest * nearest;
        upper += n * farthest * farthest;
        estimate += n * (middle * middle + width * width / 12.0);
    }
    let n = count as f64;
    let bracket = Bracket::new(lower / n, estimate / n, upper / n).widened();
    Bracket { lower: bracket.lower.max(0.0), ..bracket }
}
