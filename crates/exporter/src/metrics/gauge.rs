//! Gauges: any double may be set; an increment must be finite, because a gauge could never leave an
//! infinite or NaN value.

use metrics::{GaugeFn, Unit};

use super::rejected::ValueRejectReason;
use super::series::{BackingMetric, MetricSeries};
use super::unit;

impl BackingMetric for shm::FloatGauge {
    fn register(description: shm::MetricBuilder, unit: Option<Unit>) -> shm::Result<Self> {
        description.unit(unit::ucum_name(unit)).float_gauge()
    }
}

impl GaugeFn for MetricSeries<shm::FloatGauge> {
    fn increment(&self, value: f64) {
        if !value.is_finite() {
            let reason = if value.is_nan() {
                ValueRejectReason::NotANumber
            } else {
                ValueRejectReason::TooLarge
            };
            return self.rejected.count(reason);
        }
        if let Some(gauge) = self.metric() {
            gauge.add(value);
        }
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    #[inline]
    fn set(&self, value: f64) {
        if let Some(gauge) = self.metric() {
            gauge.set(value);
        }
    }
}
