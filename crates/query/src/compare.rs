//! Comparison of two selections: distances and a permutation test.
//!
//! Successive latencies are correlated, so a test that treats each as independent finds every
//! difference significant. This test exchanges whole intervals between the two sides (a permutation
//! test; Fisher, The design of experiments, 1935): the p-value is the share of random splits of all
//! intervals that are at least as far apart as the observed split.

use std::ops::Range;

use hist::{Bracket, Cell, Histogram, Mixture};
use model::{Gap, Selector, SeriesKind};
use store::TimeGrid;

use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::limits::QueryBudget;
use crate::selector_hint::{selector_hint, selector_text};
use crate::source::{SeriesHandle, Source};
use crate::value::samples_of;

/// Maximum number of intervals per side for the test.
pub const INTERVALS_MAX: u64 = 64;
/// Random splits. The smallest possible p-value is 1 / (splits + 1).
pub(crate) const SPLITS: u32 = 1999;
/// Quantiles that are compared.
pub const SHARES: [f64; 13] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 1.0];

/// Side of a comparison: series and range.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Series to read; only histogram series count.
    pub selector: Selector,
    /// Time range in nanoseconds since the Unix epoch.
    pub range: Range<i64>,
}

/// Result of a comparison.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The two sides.
    pub sides: [ComparisonSide; 2],
    /// Average distance by which values must move to turn one side into the other (Wasserstein
    /// distance), in the unit of the values.
    pub distance: Bracket,
    /// Maximum difference of the two cumulative distributions, 0 to 1 (Kolmogorov and Smirnov).
    pub ks_statistic: Bracket,
    /// Probability that a value of the second side exceeds one of the first, ties counted half: ½
    /// for equal distributions.
    pub probability_of_superiority: Bracket,
    /// Permutation test; `None` if a side has only one interval.
    pub permutation_test: Option<PermutationTest>,
    /// Values of both sides at the same quantiles.
    pub quantiles: Vec<QuantilePair>,
    /// Known gaps on either side.
    pub gaps: Vec<Gap>,
}

/// One side of a comparison: its data.
#[derive(Clone, Debug)]
pub struct ComparisonSide {
    /// Number of merged series.
    pub series: usize,
    /// Merged histogram.
    pub mixture: Mixture,
    /// Unit of the values; empty if the series disagree or have none.
    pub unit: String,
    /// Number of intervals with values.
    pub intervals: usize,
}

/// Result of a permutation test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PermutationTest {
    /// p-value: the share of splits, the observed one included, that are at least as separate.
    pub value: f64,
    /// Number of splits.
    pub splits: u32,
}

/// Values of both sides at one quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantilePair {
    /// Quantile, 0 to 1.
    pub share: f64,
    /// Values of the two sides.
    pub values: [Bracket; 2],
}

impl QuantilePair {
    /// Whether the values differ, whatever the bucket resolution hides.
    pub fn is_significant(&self) -> bool {
        let [a, b] = &self.values;
        a.upper < b.lower || b.upper < a.lower
    }
}

/// Compares two selections. `context` carries cancellation.
pub fn compare(
    source: &dyn Source,
    selections: [&Selection; 2],
    limits: crate::Limits,
    context: &dyn QueryContext,
) -> Result<Comparison> {
    let budget = QueryBudget::new(limits, context);
    let found = [read(source, selections[0], &budget)?, read(source, selections[1], &budget)?];
    compare_sides(found, &budget)
}

/// Compares two sides given as histograms per interval, in one unit, without a store. An interval
/// without values is skipped.
pub fn compare_intervals(sides: [Vec<Mixture>; 2], unit: &str) -> Result<Comparison> {
    let budget = QueryBudget::new(crate::Limits::default(), &|| false);
    let found = |mut intervals: Vec<Mixture>| {
        intervals.retain(|interval| interval.count() > 0);
        let mut pooled = Mixture::default();
        for part in intervals.iter().flat_map(Mixture::components) {
            pooled.add(part).map_err(merge_error)?;
        }
        if pooled.count() == 0 {
            let message = "one side has no values".to_owned();
            return Err(Error::Execution { span: SourceSpan::default(), message });
        }
        let side = ComparisonSide {
            series: 1,
            mixture: pooled,
            unit: unit.to_owned(),
            intervals: intervals.len(),
        };
        Ok(SelectedIntervals { side, intervals, gaps: Vec::new() })
    };
    let [a, b] = sides;
    compare_sides([found(a)?, found(b)?], &budget)
}

fn compare_sides([a, b]: [SelectedIntervals; 2], budget: &QueryBudget<'_>) -> Result<Comparison> {
    if !a.side.unit.is_empty() && !b.side.unit.is_empty() && a.side.unit != b.side.unit {
        let message = format!("cannot compare {} with {}: units differ", a.side.unit, b.side.unit);
        return Err(Error::Execution { span: SourceSpan::default(), message });
    }
    let chance = permutation_test(&a.intervals, &b.intervals, budget)?;
    let bracket = |of: fn(&Mixture, &Mixture) -> Option<Bracket>| {
        of(&a.side.mixture, &b.side.mixture).expect("BUG: both sides have values")
    };
    let quantiles = SHARES.iter().filter_map(|&share| {
        let values = [a.side.mixture.quantile(share)?, b.side.mixture.quantile(share)?];
        Some(QuantilePair { share, values })
    });
    let mut gaps = a.gaps;
    gaps.extend(b.gaps);
    gaps.sort_unstable();
    gaps.dedup();
    Ok(Comparison {
        distance: bracket(Mixture::wasserstein),
        ks_statistic: bracket(Mixture::kolmogorov_smirnov),
        probability_of_superiority: probability_of_superiority(&a.side.mixture, &b.side.mixture),
        permutation_test: chance,
        quantiles: quantiles.collect(),
        gaps,
        sides: [a.side, b.side],
    })
}

struct SelectedIntervals {
    side: ComparisonSide,
    intervals: Vec<Mixture>,
    gaps: Vec<Gap>,
}

fn read(
    source: &dyn Source,
    selection: &Selection,
    budget: &QueryBudget<'_>,
) -> Result<SelectedIntervals> {
    budget.check_deadline()?;
    let handles = select_histograms(source, &selection.selector, budget)?;
    let series: Vec<&SeriesHandle> = handles.iter().collect();
    let (mut intervals, mut gaps) = (Vec::new(), Vec::new());
    for grid in grids(&selection.range) {
        budget.check_deadline()?;
        let read = source.histograms(&series, grid)?;
        let found = read.values.into_iter().filter(|interval| interval.count() > 0);
        for interval in found {
            budget.charge_samples(samples_of(&interval))?;
            intervals.push(interval);
        }
        gaps.extend(read.gaps);
    }
    let mut merged = Mixture::default();
    for part in intervals.iter().flat_map(Mixture::components) {
        merged.add(part).map_err(merge_error)?;
    }
    if merged.count() == 0 {
        let selector = selector_text(&selection.selector);
        let message = format!("{selector} has no values in the range");
        return Err(Error::Execution { span: SourceSpan::default(), message });
    }
    let unit = handles[0].unit.clone();
    let unit = if handles.iter().all(|handle| handle.unit == unit) { unit } else { String::new() };
    let side =
        ComparisonSide { series: handles.len(), mixture: merged, unit, intervals: intervals.len() };
    Ok(SelectedIntervals { side, intervals, gaps })
}

/// Intervals of a time range: of equal length and aligned to whole minutes if possible. The first
/// and the last one are cut off at the ends of the range.
fn grids(range: &Range<i64>) -> Vec<TimeGrid> {
    if range.is_empty() {
        return Vec::new();
    }
    let grid = TimeGrid::covering(range.clone(), INTERVALS_MAX);
    let cut = |of: Range<i64>| {
        let (start, end) = (of.start.max(range.start), of.end.min(range.end));
        let step = end.saturating_sub(start);
        (step > 0).then_some(TimeGrid { start, step, columns: 1 })
    };
    let first = cut(grid.column(0));
    if grid.columns == 1 {
        return first.into_iter().collect();
    }
    let between = grid.columns - 2;
    let inner = TimeGrid { start: grid.column(1).start, columns: between, ..grid };
    let inner = (between > 0).then_some(inner);
    [first, inner, cut(grid.column(grid.columns - 1))].into_iter().flatten().collect()
}

/// Histogram series of a selector; an error if there are none.
pub(crate) fn select_histograms(
    source: &dyn Source,
    selector: &Selector,
    budget: &QueryBudget<'_>,
) -> Result<Vec<SeriesHandle>> {
    let mut handles = source.select(selector)?;
    let selected_count = handles.len();
    handles.retain(|handle| matches!(handle.kind, SeriesKind::Histogram(_)));
    source.add_classic(selector, &mut handles)?;
    budget.check_series(handles.len())?;
    if handles.is_empty() {
        let hint = selector_hint(source, selector)?;
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        let selector = selector_text(selector);
        let message = match selected_count {
            0 => format!("{selector} matches no series{hint}"),
            _ => format!(
                "{selector} matches no histograms, but {selected_count} series of other \
                 kinds{hint}"
            ),
        };
        return Err(Error::Execution { span: SourceSpan::default(), message });
    }
    Ok(handles)
}

pub(crate) fn merge_error(error: hist::MergeError) -> Error {
    let message = format!("{error}; use a shorter range or fewer series");
    Error::Execution { span: SourceSpan::default(), message }
}

/// Probability that a value of `b` exceeds one of `a`: known for values in separate cells, unknown
/// for values that share a cell.
fn probability_of_superiority(a: &Mixture, b: &Mixture) -> Bracket {
    let (n, m) = (a.count() as f64, b.count() as f64);
    // Lower and upper bound of the number of values of `a` below each value of `b`.
    let cells_of = |mixture: &Mixture| -> Vec<Cell> {
        mixture.components().iter().flat_map(Histogram::cells).collect()
    };
    let ends = |end: fn(&Cell) -> f64| {
        let mut cells: Vec<(f64, f64)> =
            cells_of(a).iter().map(|cell| (end(cell), cell.count as f64)).collect();
        model::sort::by(&mut cells, |x, y| x.0.total_cmp(&y.0));
        let mut sum = 0.0;
        for cell in &mut cells {
            sum += cell.1;
            cell.1 = sum;
        }
        cells
    };
    let below = |ends: &[(f64, f64)], is_below: &dyn Fn(f64) -> bool| {
        let at = ends.partition_point(|(end, _)| is_below(*end));
        at.checked_sub(1).map_or(0.0, |at| ends[at].1)
    };
    let (uppers, lowers) = (ends(|cell| cell.upper), ends(|cell| cell.lower));
    let (mut sure, mut perhaps) = (0.0, 0.0);
    for cell in cells_of(b) {
        let count = cell.count as f64;
        // Half of the ties counts.
        let (strictly, or_equal) = (
            below(&uppers, &|upper| upper < cell.lower),
            below(&lowers, &|lower| lower <= cell.upper),
        );
        sure += count * strictly;
        perhaps += count * or_equal;
    }
    let pairs = n * m;
    let (lower, upper) = ((sure / pairs).clamp(0.0, 1.0), (perhaps / pairs).clamp(0.0, 1.0));
    Bracket { lower, estimate: f64::midpoint(lower, upper), upper }
}

/// Share of random splits that are as separate as the observed one.
fn permutation_test(
    a: &[Mixture],
    b: &[Mixture],
    budget: &QueryBudget<'_>,
) -> Result<Option<PermutationTest>> {
    if a.len() < 2 || b.len() < 2 {
        return Ok(None);
    }
    let intervals = IntervalCounts::new(a.iter().chain(b));
    let mut order: Vec<usize> = (0..a.len() + b.len()).collect();
    let found = intervals.ks_statistic(&order[..a.len()]);
    let mut random = SplitRandom(0x9e37_79b9_7f4a_7c15);
    let mut as_separate = 1u32;
    for _ in 0..SPLITS {
        budget.check_deadline()?;
        for at in 0..a.len() {
            let other = at + random.below(order.len() - at);
            order.swap(at, other);
        }
        // Sums of the same intervals in another order differ in the last digits.
        if intervals.ks_statistic(&order[..a.len()]) >= found * (1.0 - 1e-12) {
            as_separate += 1;
        }
    }
    let splits = SPLITS + 1;
    Ok(Some(PermutationTest { value: f64::from(as_separate) / f64::from(splits), splits }))
}

/// Counts of all intervals on common cells.
struct IntervalCounts {
    cells: usize,
    counts: Vec<f64>,
    total: Vec<f64>,
}

impl IntervalCounts {
    fn new<'a>(intervals: impl Iterator<Item = &'a Mixture>) -> IntervalCounts {
        let cells: Vec<Vec<(f64, u64)>> = intervals
            .map(|interval| {
                let cells = interval.components().iter().flat_map(Histogram::cells);
                cells.map(|cell| (cell.upper, cell.count)).collect()
            })
            .collect();
        let mut edges: Vec<f64> = cells.iter().flatten().map(|cell| cell.0).collect();
        edges.sort_by(f64::total_cmp);
        edges.dedup();
        let mut counts = vec![0.0; edges.len() * cells.len()];
        for (row, cells) in counts.chunks_exact_mut(edges.len().max(1)).zip(&cells) {
            for (upper, count) in cells {
                let at = edges.partition_point(|edge| edge.total_cmp(upper).is_lt());
                row[at] += *count as f64;
            }
        }
        let mut total = vec![0.0; edges.len()];
        for row in counts.chunks_exact(edges.len().max(1)) {
            total.iter_mut().zip(row).for_each(|(total, count)| *total += count);
        }
        IntervalCounts { cells: edges.len(), counts, total }
    }

    /// Maximum difference of the cumulative distributions of some intervals and the others.
    fn ks_statistic(&self, first: &[usize]) -> f64 {
        let mut sums = vec![0.0; self.cells];
        for at in first {
            let row = &self.counts[at * self.cells..][..self.cells];
            sums.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        let n: f64 = sums.iter().sum();
        let m = self.total.iter().sum::<f64>() - n;
        let (mut below, mut all, mut greatest) = (0.0, 0.0, 0.0f64);
        for (count, total) in sums.iter().zip(&self.total) {
            below += count;
            all += total;
            greatest = greatest.max((below / n - (all - below) / m).abs());
        }
        greatest
    }
}

/// Fixed seed: the same query has the same answer (xorshift64*; Vigna, An experimental exploration
/// of Marsaglia's xorshift generators, 2016).
struct SplitRandom(u64);

impl SplitRandom {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((high * n as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(values: impl IntoIterator<Item = f64>) -> Mixture {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(value));
        Mixture::from(histogram)
    }

    fn budget() -> QueryBudget<'static> {
        QueryBudget::new(crate::Limits::default(), &|| false)
    }

    #[test]
    fn permutation_test_separates_equal_from_different() {
        let noisy = |at: usize| interval((0..50).map(|n| 10.0 + ((n * 7 + at * 3) % 11) as f64));
        let slow = |at: usize| interval((0..50).map(|n| 13.0 + ((n * 7 + at * 3) % 11) as f64));
        let a: Vec<Mixture> = (0..12).map(noisy).collect();
        let alike: Vec<Mixture> = (12..24).map(noisy).collect();
        let slower: Vec<Mixture> = (0..12).map(slow).collect();
        let of = |b: &[Mixture]| permutation_test(&a, b, &budget()).unwrap().unwrap().value;
        assert!(of(&alike) > 0.2, "{}", of(&alike));
        assert_eq!(of(&slower), 1.0 / 2000.0);
    }

    #[test]
    fn single_interval_has_no_permutation_test() {
        assert_eq!(
            permutation_test(&[interval([1.0])], &[interval([2.0])], &budget()).unwrap(),
            None
        );
    }

    #[test]
    fn intervals_outside_a_store_are_compared_equally() {
        let side = |value: f64| (0..6).map(|_| interval([value, value + 1.0])).collect::<Vec<_>>();
        let with_none = side(1.0).into_iter().chain([Mixture::default()]).collect();
        let comparison = compare_intervals([with_none, side(5.0)], "ns").unwrap();
        assert_eq!(comparison.sides[0].intervals, 6);
        assert!(comparison.distance.contains(4.0) && comparison.ks_statistic.contains(1.0));
        assert!(comparison.permutation_test.unwrap().value < 0.01);
        assert!(compare_intervals([side(1.0), Vec::new()], "ns").is_err());
    }

    #[test]
    fn probability_of_superiority_is_bounded() {
        let of = |a: &[f64], b: &[f64]| {
            let (a, b) = (interval(a.iter().copied()), interval(b.iter().copied()));
            probability_of_superiority(&a, &b)
        };
        assert_eq!(of(&[1.0, 2.0], &[10.0, 20.0]), Bracket::exact(1.0));
        assert_eq!(of(&[10.0, 20.0], &[1.0, 2.0]), Bracket::exact(0.0));
        let half = of(&[1.0, 100.0], &[10.0, 10.0]);
        assert_eq!((half.lower, half.upper), (0.5, 0.5));
        assert!(of(&[5.0], &[5.0]).contains(0.5));
    }
}
