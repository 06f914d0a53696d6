//! Accuracy of answers.
//!
//! The generator of the data knows exact counts, and for a quantile its bucket: the exact value is
//! a range, narrowed by minimum and maximum. An estimate is compared with the middle of that
//! bucket; a bracket contains the exact value if it contains the whole range.

use hist::Scheme;
use synthetic::{Dataset, ExpectedStats};

/// A limit on a bucket boundary, the closest to `THRESHOLD_NS`.
pub(super) const EDGE_NS: u64 = 12_000_000;
/// Shares are quotients whose last bits depend on the order of operations.
const ROUNDING: f64 = 1e-12;

/// A number of an answer, with bounds if the contender returns some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberWithBounds {
    pub(crate) estimate: f64,
    pub(crate) bounds: Option<(f64, f64)>,
}

impl NumberWithBounds {
    /// Converts the unit.
    pub(super) fn scaled(self, factor: f64) -> NumberWithBounds {
        NumberWithBounds {
            estimate: self.estimate * factor,
            bounds: self.bounds.map(|(lower, upper)| (lower * factor, upper * factor)),
        }
    }
}

/// Range of the exact value.
pub(super) struct ExpectedNumber {
    lower: f64,
    upper: f64,
    /// The value to compare estimates with.
    middle: f64,
}

impl ExpectedNumber {
    pub(super) fn exactly(value: f64) -> ExpectedNumber {
        ExpectedNumber { lower: value, upper: value, middle: value }
    }
}

/// Accuracy over all windows.
#[derive(Debug, PartialEq)]
pub(crate) struct Accuracy {
    /// A key of [`ACCURACIES`].
    pub(super) key: &'static str,
    /// Errors: relative, except for shares, whose errors are differences.
    pub(super) median: f64,
    pub(super) worst: f64,
    /// Number of windows, and number of windows without a value.
    pub(super) windows: usize,
    pub(super) missing: usize,
    /// Number of estimates inside the range of the exact value.
    pub(super) possible: usize,
    /// Number of brackets that contain the exact value; `None` without brackets.
    pub(super) bracketed: Option<usize>,
}

/// Keys and titles of the comparisons.
pub(super) const ACCURACIES: [(&str, &str); 5] = [
    ("p99", "p99, relative to the middle of its exact bucket"),
    ("p99.9", "p99.9, likewise"),
    ("below", "share at or below 12.3 ms, difference"),
    ("above", "count above 12.3 ms"),
    ("above-edge", "count above 12 ms, the edge of a bucket"),
];

/// Compares a number per window with its exact value. Errors of shares are differences.
pub(super) fn compare_windows(
    key: &'static str,
    found: &[Option<NumberWithBounds>],
    truths: &[ExpectedNumber],
    is_share: bool,
) -> Accuracy {
    let mut errors = Vec::with_capacity(truths.len());
    let (mut possible, mut held, mut has_bounds) = (0, 0, false);
    for (at, truth) in truths.iter().enumerate() {
        let Some(found) = found.get(at).copied().flatten().filter(|one| !one.estimate.is_nan())
        else {
            continue;
        };
        let scale = if is_share { 1.0 } else { truth.middle };
        errors.push((found.estimate - truth.middle).abs() / scale);
        let slack = truth.upper.abs() * ROUNDING;
        let holds =
            |lower: f64, upper: f64| lower - slack <= truth.lower && truth.upper <= upper + slack;
        possible += usize::from(
            truth.lower - slack <= found.estimate && found.estimate <= truth.upper + slack,
        );
        if let Some((lower, upper)) = found.bounds {
            has_bounds = true;
            held += usize::from(holds(lower, upper));
        }
    }
    errors.sort_by(f64::total_cmp);
    Accuracy {
        key,
        median: errors.get(errors.len() / 2).copied().unwrap_or(f64::NAN),
        worst: errors.last().copied().unwrap_or(f64::NAN),
        windows: truths.len(),
        missing: truths.len() - errors.len(),
        possible,
        bracketed: has_bounds.then_some(held),
    }
}

/// Per window, in nanoseconds.
pub(super) fn quantiles(truth: &ExpectedStats, q: f64) -> Vec<ExpectedNumber> {
    let of = |window: &synthetic::ExpectedWindow| {
        let (lower, upper) = window.quantile_ns(q).unwrap_or_default();
        let (least, greatest) = (lower.max(window.min_ns), upper.min(window.max_ns));
        let middle = (lower as f64 + upper as f64) / 2.0;
        ExpectedNumber { lower: least as f64, upper: greatest as f64, middle }
    };
    truth.windows().iter().map(of).collect()
}

/// Per window, at or below the limit.
pub(super) fn shares(truth: &ExpectedStats) -> Vec<ExpectedNumber> {
    let share = |window: &synthetic::ExpectedWindow| {
        ExpectedNumber::exactly(window.at_or_below_threshold as f64 / window.count as f64)
    };
    truth.windows().iter().map(share).collect()
}

/// Per window, above the limit.
pub(super) fn counts_above(truth: &ExpectedStats) -> Vec<ExpectedNumber> {
    let count = |window: &synthetic::ExpectedWindow| {
        ExpectedNumber::exactly((window.count - window.at_or_below_threshold) as f64)
    };
    truth.windows().iter().map(count).collect()
}

/// Per window, in buckets whose lower bound is at least the boundary.
pub(super) fn counts_above_edge(dataset: &Dataset, truth: &ExpectedStats) -> Vec<ExpectedNumber> {
    let mut counts = vec![0u64; truth.windows().len()];
    let mut generator = dataset.generator();
    let is_above = |index: i32| {
        let edges = Scheme::LogLinear10.edges(index);
        edges.is_some_and(|(lower, _)| lower >= EDGE_NS as f64)
    };
    for minute in 0..dataset.scale().minutes {
        for series in 0..dataset.scale().series {
            let buckets = generator.draw(series, minute).buckets.iter();
            let above = buckets.filter(|(index, _)| is_above(*index)).map(|(_, count)| count);
            counts[minute / ExpectedStats::WINDOW_MINUTES] += above.sum::<u64>();
        }
    }
    counts.into_iter().map(|count| ExpectedNumber::exactly(count as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_with_bounds(estimate: f64, bounds: Option<(f64, f64)>) -> Option<NumberWithBounds> {
        Some(NumberWithBounds { estimate, bounds })
    }

    #[test]
    fn errors_and_brackets_are_counted() {
        let truth = || ExpectedNumber { lower: 10.0, upper: 12.0, middle: 11.0 };
        let truths = [truth(), truth(), truth(), truth()];
        let answers = [
            number_with_bounds(11.0, Some((10.0, 12.0))),
            number_with_bounds(22.0, Some((11.0, 30.0))),
            None,
            number_with_bounds(f64::NAN, None),
        ];
        let accuracy = compare_windows("p99", &answers, &truths, false);
        assert_eq!((accuracy.median, accuracy.worst), (1.0, 1.0));
        assert_eq!((accuracy.windows, accuracy.missing), (4, 2));
        assert_eq!((accuracy.possible, accuracy.bracketed), (1, Some(1)));
    }

    #[test]
    fn the_edge_is_one() {
        let dataset = Dataset::disk();
        let mut generator = dataset.generator();
        let begins = |index: i32| Scheme::LogLinear10.edges(index).map(|(lower, _)| lower);
        let mut buckets = generator.draw(0, 0).buckets.iter();
        assert!(buckets.any(|(index, _)| begins(*index) == Some(EDGE_NS as f64)));
    }
}
