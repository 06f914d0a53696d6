//! The percentile spectrum: the value of every quantile, on an axis of nines.

use hist::Bracket;

use crate::chart::axis::{Axis, PercentileAxis, begins_at_zero};
use crate::chart::distribution_columns::OPEN_RATIO;
use crate::merged_distribution::MergedDistribution;
use crate::value_formatter::ValueFormatter;

/// Value of each quantile column, in the chart unit.
#[derive(Debug)]
pub struct PercentileSpectrum {
    /// Quantile axis.
    pub percentiles: PercentileAxis,
    /// Value axis.
    pub axis: Axis,
    /// Value of each quantile, from the left.
    pub columns: Vec<Bracket>,
}

impl PercentileSpectrum {
    /// `None` if no value above zero has bounds.
    pub fn new(
        distribution: &MergedDistribution,
        formatter: &ValueFormatter,
        columns: usize,
    ) -> Option<PercentileSpectrum> {
        PercentileSpectrum::on_axis(
            PercentileAxis::for_count(distribution.count()),
            distribution,
            formatter,
            columns,
        )
    }

    /// Spectrum on a given quantile axis, so that two curves share an axis.
    pub fn on_axis(
        nines: PercentileAxis,
        distribution: &MergedDistribution,
        formatter: &ValueFormatter,
        columns: usize,
    ) -> Option<PercentileSpectrum> {
        let last = columns.saturating_sub(1).max(1) as f64;
        let columns: Vec<Bracket> = (0..columns)
            .filter_map(|at| {
                let q = nines.quantile(at as f64 / last);
                let value = if q >= 1.0 { distribution.max() } else { distribution.quantile(q) }?;
                Some(value.map(|value| formatter.scale(value)))
            })
            .collect();
        let drawn = |value: &f64| *value > 0.0 && value.is_finite();
        // In a bucket whose lower bound is zero or unknown, only the upper bound is certain.
        let ends = |b: &Bracket| match begins_at_zero(b.lower, b.upper) {
            true => [b.upper / OPEN_RATIO, b.upper, b.upper],
            false => [b.lower, b.estimate, b.upper],
        };
        let values = || columns.iter().flat_map(ends).filter(drawn);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(0.0, f64::max);
        (low <= high).then(|| PercentileSpectrum {
            percentiles: nines,
            axis: Axis::covering(low, high),
            columns,
        })
    }
}
