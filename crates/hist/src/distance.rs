//! Distances between distributions (Wasserstein, Kolmogorov–Smirnov).
//!
//! Both distances compare cumulative shares, so histograms of different sizes and schemes are
//! comparable. The brackets follow from the bounds that the buckets give for the two cumulative
//! functions.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]
// `wrapping_` methods: the total of a side fits 64 bits, so the product of two counts
// fits 128 bits.

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::histogram::Histogram;
use crate::mixture::Mixture;

/// Wasserstein-1 distance (earth mover's distance): the mean distance by which a value must be
/// moved to turn one distribution into the other, in the unit of the values. `None` if either is
/// empty.
pub fn wasserstein(a: &Histogram, b: &Histogram) -> Option<Bracket> {
    distance(&[a], &[b])
}

/// Kolmogorov–Smirnov distance: the largest difference between the two cumulative shares, 0 to 1.
/// `None` if either is empty.
pub fn kolmogorov_smirnov(a: &Histogram, b: &Histogram) -> Option<Bracket> {
    ks_distance(&[a], &[b])
}

impl Mixture {
    /// As [`wasserstein`], without conversion of any part.
    pub fn wasserstein(&self, other: &Mixture) -> Option<Bracket> {
        distance(&nonempty_parts(self), &nonempty_parts(other))
    }

    /// As [`kolmogorov_smirnov`], without conversion of any part.
    pub fn kolmogorov_smirnov(&self, other: &Mixture) -> Option<Bracket> {
        ks_distance(&nonempty_parts(self), &nonempty_parts(other))
    }
}

fn nonempty_parts(mixture: &Mixture) -> Vec<&Histogram> {
    mixture.components().iter().collect()
}

fn distance(a: &[&Histogram], b: &[&Histogram]) -> Option<Bracket> {
    let steps = CdfSteps::new(a, b)?;
    let mut total = Bracket::exact(0.0f64);
    let mut stretches = 0.0;
    steps.for_each(|from, to, difference, (start, end)| {
        let width = to - from;
        let area = |height: f64| match height {
            // An unbounded step without a difference contributes nothing; zero times infinity would
            // be NaN.
            0.0 => 0.0,
            _ if width.is_infinite() => to * height - from * height,
            _ => width * height,
        };
        total.lower += area(difference.lower);
        total.upper += area(difference.upper);
        if from.is_finite() && to.is_finite() {
            total.estimate += area(mean_magnitude(start, end));
        }
        stretches += 1.0;
    });
    // All areas are positive, so each addition is off by at most one rounding of the total.
    let uncertainty = (stretches + 8.0) * f64::EPSILON;
    let (lower, upper) = (total.lower * (1.0 - uncertainty), total.upper * (1.0 + uncertainty));
    Some(Bracket::new(lower.max(0.0), total.estimate, upper).widen())
}

fn ks_distance(a: &[&Histogram], b: &[&Histogram]) -> Option<Bracket> {
    let steps = CdfSteps::new(a, b)?;
    let mut greatest = Bracket::exact(0.0f64);
    steps.for_each(|_, _, difference, (start, end)| {
        greatest.lower = greatest.lower.max(difference.lower);
        greatest.upper = greatest.upper.max(difference.upper);
        greatest.estimate = greatest.estimate.max(start.abs()).max(end.abs());
    });
    let greatest = greatest.widen();
    Some(Bracket::new(greatest.lower.max(0.0), greatest.estimate, greatest.upper.min(1.0)))
}

/// Mean of |x| on a straight line from `start` to `end`.
fn mean_magnitude(start: f64, end: f64) -> f64 {
    if start * end >= 0.0 {
        (start + end).abs() * 0.5
    } else {
        (start * start + end * end) / (2.0 * (start.abs() + end.abs()))
    }
}

/// Merged steps of the CDFs of two samples.
struct CdfSteps {
    ends: Vec<f64>,
    /// Cells of each part of each side, in ascending order.
    cells: [Vec<Vec<Cell>>; 2],
    counts: [u64; 2],
}

impl CdfSteps {
    fn new(a: &[&Histogram], b: &[&Histogram]) -> Option<CdfSteps> {
        let counts = [a, b].map(|parts| parts.iter().map(|part| part.count()).sum());
        if counts.contains(&0) {
            return None;
        }
        let cells = [a, b].map(|parts| {
            parts.iter().map(|part| part.cells().collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        let mut ends: Vec<f64> =
            cells.iter().flatten().flatten().flat_map(|cell| [cell.lower, cell.upper]).collect();
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        Some(CdfSteps { ends, cells, counts })
    }

    /// Calls `f` for each step with its ends, the bounds of |F − G| on it, and the estimated F − G
    /// at both ends.
    fn for_each(&self, mut f: impl FnMut(f64, f64, Bracket, (f64, f64))) {
        let mut sides = [0, 1].map(|side| {
            let parts = self.cells[side].iter();
            parts.map(|cells| CdfWalker::new(cells, self.counts[side])).collect::<Vec<_>>()
        });
        for (i, &from) in self.ends.iter().enumerate() {
            let to = self.ends.get(i.wrapping_add(1)).copied().unwrap_or(from);
            let [a, b] = &mut sides;
            let (fa, fb) = (step_all(a, from, to), step_all(b, from, to));
            // a/n − b/m in integers, so that differences smaller than a rounding are not lost.
            let [n, m] = self.counts.map(u128::from);
            let product = |count: u64, total: u128| u128::from(count).wrapping_mul(total);
            let beyond = |a: u64, b: u64| {
                product(a, m).saturating_sub(product(b, n)) as f64 / (n as f64 * m as f64)
            };
            let below = |a: u64, b: u64| {
                product(b, n).saturating_sub(product(a, m)) as f64 / (n as f64 * m as f64)
            };
            let difference = Bracket {
                lower: beyond(fa.lower, fb.upper).max(below(fa.upper, fb.lower)),
                estimate: 0.0,
                upper: beyond(fa.upper, fb.lower).max(below(fa.lower, fb.upper)),
            };
            f(from, to, difference, (fa.start - fb.start, fa.end - fb.end));
        }
    }
}

/// Sum of the steps of all parts of a side.
fn step_all(parts: &mut [CdfWalker<'_>], from: f64, to: f64) -> CdfStep {
    let nothing = CdfStep { lower: 0, upper: 0, start: 0.0, end: 0.0 };
    parts.iter_mut().map(|part| part.step(from, to)).fold(nothing, |sum, part| CdfStep {
        lower: sum.lower.wrapping_add(part.lower),
        upper: sum.upper.wrapping_add(part.upper),
        start: sum.start + part.start,
        end: sum.end + part.end,
    })
}

/// Walks the CDF of one part.
struct CdfWalker<'a> {
    cells: &'a [Cell],
    /// The first cell that does not end at or below the current position.
    next_open: usize,
    ended: u64,
    /// Number of values of the whole side.
    count: u64,
}

/// Bounds of a CDF on one step.
struct CdfStep {
    lower: u64,
    upper: u64,
    start: f64,
    end: f64,
}

impl<'a> CdfWalker<'a> {
    fn new(cells: &'a [Cell], count: u64) -> CdfWalker<'a> {
        CdfWalker { cells, next_open: 0, ended: 0, count }
    }

    /// Bounds of the CDF on `from..to`.
    fn step(&mut self, from: f64, to: f64) -> CdfStep {
        while let Some(cell) = self.cells.get(self.next_open).filter(|cell| cell.upper <= from) {
            self.ended = self.ended.wrapping_add(cell.count);
            self.next_open = self.next_open.wrapping_add(1);
        }
        let (mut upper, mut start, mut end) = (self.ended, self.ended as f64, self.ended as f64);
        // Widened logarithmic cells overlap their neighbours: two may be open at once.
        for cell in self.cells[self.next_open..].iter().take_while(|cell| cell.lower <= from) {
            let n = cell.count as f64;
            upper = upper.wrapping_add(cell.count);
            // Between the ends of cells the estimate is linear.
            start += n * cell.share_at_most(from, cell.finite());
            end += n * cell.share_at_most(to, cell.finite());
        }
        CdfStep {
            lower: self.ended,
            upper,
            start: start / self.count as f64,
            end: end / self.count as f64,
        }
    }
}
