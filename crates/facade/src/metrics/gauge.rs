//! Gauges: any double may be set; what is added must be finite, or no value would ever come back from it.

use metrics::{GaugeFn, Unit};

use super::refused::Reason;
use super::series::{Series, Shown};
use super::unit;

impl Shown for shm::FloatGauge {
    fn register(description: shm::Description, unit: Option<Unit>) -> shm::Result<Self> {
        description.unit(unit::name(unit)).float_gauge()
    }
}

impl GaugeFn for Series<shm::FloatGauge> {
    fn increment(&self, value: f64) {
        if !value.is_finite() {
            let reason = if value.is_nan() { Reason::NotANumber } else { Reason::TooLarge };
            return self.refused.count(reason);
        }
        if let Some(gauge) = self.shown() {
            gauge.add(value);
        }
    }

    fn decrement(&self, value: f64) {
        self.increment(-value);
    }

    #[inline]
    fn set(&self, value: f64) {
        if let Some(gauge) = self.shown() {
            gauge.set(value);
        }
    }
}
