//! Fraction of values per column of a logarithmic axis.

use crate::chart::axis::{Axis, begins_at_zero};
use crate::merged_distribution::MergedDistribution;
use crate::value_formatter::{ValueFormatter, count};

/// Fraction of values per column.
#[derive(Debug)]
pub(crate) struct DistributionColumns {
    /// Value axis, in the chart unit ([`ValueFormatter::scale`]).
    pub(crate) axis: Axis,
    /// Fraction of all values per column, 0 to 1.
    pub(crate) columns: Vec<f64>,
    /// Number of values at or below zero, which a logarithmic axis cannot show.
    pub(crate) not_positive: u64,
    /// Number of values in a bucket without an upper bound.
    pub(crate) unbounded: u64,
    /// Lower bound of that bucket.
    pub(crate) unbounded_from: f64,
}

/// A bucket whose lower bound is zero or unknown is drawn over this ratio below its upper bound.
pub(crate) const OPEN_RATIO: f64 = 4.0;

impl DistributionColumns {
    /// `None` if no value above zero has bounds.
    pub(crate) fn new(
        distribution: &MergedDistribution,
        formatter: &ValueFormatter,
        columns: usize,
    ) -> Option<DistributionColumns> {
        let mut spans = Vec::new();
        let (mut not_positive, mut unbounded, mut unbounded_from) = (0u64, 0u64, f64::INFINITY);
        for cell in distribution.cells() {
            if cell.upper <= 0.0 || cell.lower < 0.0 && cell.lower.is_finite() {
                not_positive += cell.count;
            } else if cell.upper.is_infinite() {
                unbounded += cell.count;
                unbounded_from = unbounded_from.min(cell.lower);
            } else {
                let upper = formatter.scale(cell.upper);
                let lower = formatter.scale(cell.lower);
                let lower = if begins_at_zero(lower, upper) { upper / OPEN_RATIO } else { lower };
                spans.push((lower, upper, cell.count));
            }
        }
        let low = spans.iter().map(|span| span.0).fold(f64::INFINITY, f64::min);
        let mut high = spans.iter().map(|span| span.1).fold(0.0, f64::max);
        if unbounded > 0 && unbounded_from.is_finite() {
            high = high.max(formatter.scale(unbounded_from));
        }
        if spans.is_empty() || !low.is_finite() || !high.is_finite() {
            return None;
        }
        let axis = Axis::covering(low, high);
        let total = distribution.count() as f64;
        let mut shares = vec![0.0; columns];
        for (lower, upper, count) in spans {
            spread(&axis, (lower, upper), count as f64 / total, &mut shares);
        }
        Some(DistributionColumns { axis, columns: shares, not_positive, unbounded, unbounded_from })
    }

    /// Notes on values that are not drawn.
    pub(crate) fn notes(&self, formatter: &ValueFormatter) -> Vec<String> {
        let are = |n: u64| if n == 1 { "is" } else { "are" };
        let mut notes = Vec::new();
        if self.not_positive > 0 {
            let n = self.not_positive;
            notes.push(format!("{} at or below zero {} not drawn", count(n), are(n)));
        }
        if self.unbounded > 0 {
            let (n, from) = (self.unbounded, self.unbounded_from);
            let what = if from.is_infinite() {
                "infinite".to_owned()
            } else {
                format!("in the unbounded bucket above {}", formatter.exact(from))
            };
            notes.push(format!("{} {what} {} not drawn", count(n), are(n)));
        }
        notes
    }

    /// Largest fraction of a column.
    pub(crate) fn peak(&self) -> f64 {
        self.columns.iter().copied().fold(0.0, f64::max)
    }
}

/// Spreads a bucket's fraction evenly over the columns that it covers.
fn spread(axis: &Axis, (lower, upper): (f64, f64), share: f64, columns: &mut [f64]) {
    let n = columns.len() as f64;
    let (from, to) = (axis.position(lower) * n, axis.position(upper) * n);
    let last = columns.len() - 1;
    let (first, end) = ((from as usize).min(last), (to as usize).min(last));
    if first == end || to <= from {
        columns[first] += share;
        return;
    }
    for (at, column) in columns.iter_mut().enumerate().take(end + 1).skip(first) {
        let covered = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
        *column += share * covered / (to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hist::Histogram;

    #[test]
    fn shares_add_up() {
        let mut histogram = Histogram::default();
        let mut value = 1.0;
        while value < 1e7 {
            histogram.record_n(value, 1 + value as u64 % 7);
            value *= 1.7;
        }
        let mut whole = MergedDistribution::default();
        whole.add(&histogram).unwrap();
        for columns in [1, 2, 70, 1000] {
            let shape =
                DistributionColumns::new(&whole, &ValueFormatter::new(None), columns).unwrap();
            assert!((shape.columns.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn values_outside_the_axis_are_counted() {
        let mut histogram = Histogram::default();
        for value in [-1.0, 0.0, 5.0, f64::INFINITY] {
            histogram.record(value);
        }
        let mut whole = MergedDistribution::default();
        whole.add(&histogram).unwrap();
        let shape = DistributionColumns::new(&whole, &ValueFormatter::new(None), 10).unwrap();
        assert_eq!((shape.not_positive, shape.unbounded), (2, 1));
    }

    /// The first bucket of OpenTelemetry's default bounds begins at the smallest double.
    #[test]
    fn axis_of_default_bounds_does_not_span_three_hundred_decades() {
        let mut parts = hist::HistogramParts::new(hist::Scheme::explicit(&[0.0, 5.0]).unwrap());
        parts.positive = vec![(1, 1000)];
        let mut whole = MergedDistribution::default();
        whole.add(&Histogram::from_parts(parts).unwrap()).unwrap();
        let shape = DistributionColumns::new(&whole, &ValueFormatter::new(None), 10).unwrap();
        assert!(shape.axis.high / shape.axis.low < 1e4, "{:?}", shape.axis);
    }
}
