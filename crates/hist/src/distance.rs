//! How far two distributions lie apart.
//!
//! Both distances compare cumulative shares, so histograms of different sizes and schemes compare. Each
//! bracket comes from the bounds that the buckets put on the two cumulative functions.

use crate::bracket::Bracket;
use crate::cells::Cell;
use crate::histogram::Histogram;

/// The mean distance a value has to be moved to turn one distribution into the other (Wasserstein-1,
/// earth mover's distance), in the unit of the values. `None` if either is empty.
pub fn wasserstein(a: &Histogram, b: &Histogram) -> Option<Bracket> {
    let steps = Steps::new(a, b)?;
    let mut total = Bracket::exact(0.0);
    steps.for_each(|from, to, difference, (start, end)| {
        let width = to - from;
        // An unbounded stretch over which nothing differs adds nothing; zero times infinity is not zero.
        let area = |height: f64| if height == 0.0 { 0.0 } else { width * height };
        total.lower += area(difference.lower);
        total.upper += area(difference.upper);
        if width.is_finite() {
            total.estimate += width * mean_magnitude(start, end);
        }
    });
    let total = total.widened();
    Some(Bracket::new(total.lower.max(0.0), total.estimate, total.upper))
}

/// The greatest difference between the two cumulative shares (Kolmogorov–Smirnov), 0 to 1. `None` if either
/// is empty.
pub fn kolmogorov_smirnov(a: &Histogram, b: &Histogram) -> Option<Bracket> {
    let steps = Steps::new(a, b)?;
    let mut greatest = Bracket::exact(0.0f64);
    steps.for_each(|_, _, difference, (start, end)| {
        greatest.lower = greatest.lower.max(difference.lower);
        greatest.upper = greatest.upper.max(difference.upper);
        greatest.estimate = greatest.estimate.max(start.abs()).max(end.abs());
    });
    let greatest = greatest.widened();
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

/// The stretches between all cell ends of two histograms; within one the bounds on both cumulative
/// functions do not change.
struct Steps {
    ends: Vec<f64>,
    cells: [Vec<Cell>; 2],
    counts: [f64; 2],
}

impl Steps {
    fn new(a: &Histogram, b: &Histogram) -> Option<Steps> {
        if a.is_empty() || b.is_empty() {
            return None;
        }
        let cells = [a, b].map(|histogram| histogram.cells().collect::<Vec<_>>());
        let mut ends: Vec<f64> =
            cells.iter().flatten().flat_map(|cell| [cell.lower, cell.upper]).collect();
        ends.sort_by(f64::total_cmp);
        ends.dedup();
        Some(Steps { ends, cells, counts: [a.count() as f64, b.count() as f64] })
    }

    /// Calls `f` with each stretch: its ends, the bounds of |F − G| on it, and the estimated F − G at its
    /// two ends.
    fn for_each(&self, mut f: impl FnMut(f64, f64, Bracket, (f64, f64))) {
        let mut sides = [0, 1].map(|i| Cumulation::new(&self.cells[i], self.counts[i]));
        for (i, &from) in self.ends.iter().enumerate() {
            let to = self.ends.get(i + 1).copied().unwrap_or(from);
            let [a, b] = &mut sides;
            let (fa, fb) = (a.step(from, to), b.step(from, to));
            let difference = Bracket {
                lower: (fa.lower - fb.upper).max(fb.lower - fa.upper).max(0.0),
                estimate: 0.0,
                upper: (fa.upper - fb.lower).max(fb.upper - fa.lower).max(0.0),
            };
            f(from, to, difference, (fa.start - fb.start, fa.end - fb.end));
        }
    }
}

/// One cumulative function, walked upwards.
struct Cumulation<'a> {
    cells: &'a [Cell],
    /// The first cell that does not yet end at or below the walk.
    open: usize,
    ended: f64,
    count: f64,
}

struct Stretch {
    lower: f64,
    upper: f64,
    start: f64,
    end: f64,
}

impl<'a> Cumulation<'a> {
    fn new(cells: &'a [Cell], count: f64) -> Cumulation<'a> {
        Cumulation { cells, open: 0, ended: 0.0, count }
    }

    /// Bounds of the share at or below any point of `from..to`, and its estimates at both ends.
    fn step(&mut self, from: f64, to: f64) -> Stretch {
        while let Some(cell) = self.cells.get(self.open).filter(|cell| cell.upper <= from) {
            self.ended += cell.count as f64;
            self.open += 1;
        }
        let (mut upper, mut start, mut end) = (self.ended, self.ended, self.ended);
        // Widened logarithmic cells overlap their neighbours: two may be open at once.
        for cell in self.cells[self.open..].iter().take_while(|cell| cell.lower <= from) {
            let n = cell.count as f64;
            upper += n;
            start += n * cell.share_below(from);
            end += n * cell.share_below(to);
        }
        Stretch {
            lower: self.ended / self.count,
            upper: upper / self.count,
            start: start / self.count,
            end: end / self.count,
        }
    }
}
