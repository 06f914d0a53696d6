//! Histograms: values are converted to integers of the fixed unit.

use metrics::{HistogramFn, Unit};

use super::series::{BackingMetric, MetricSeries};
use super::unit::IntegerScale;

/// Histogram with the scale of its values.
pub(super) struct ScaledHistogram {
    histogram: shm::Histogram,
    scale: IntegerScale,
}

impl BackingMetric for ScaledHistogram {
    fn register(
        description: shm::MetricBuilder,
        unit: Option<Unit>,
    ) -> shm::Result<ScaledHistogram> {
        let scale = IntegerScale::for_unit(unit);
        Ok(ScaledHistogram { histogram: description.unit(scale.unit).histogram()?, scale })
    }
}

impl HistogramFn for MetricSeries<ScaledHistogram> {
    #[inline]
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        let Some(scaled) = self.metric() else { return };
        match scaled.scale.round_to_integer(value) {
            Ok(number) => (0..count).for_each(|_| scaled.histogram.record(number)),
            Err(reason) => self.rejected.count_many(reason, count as u64),
        }
    }
}
