//! Histograms: values become whole numbers of the unit that was settled.

use metrics::{HistogramFn, Unit};

use super::series::{Series, Shown};
use super::unit::Whole;

/// A histogram of shared memory, and what values are multiplied by.
pub(super) struct Scaled {
    histogram: shm::Histogram,
    whole: Whole,
}

impl Shown for Scaled {
    fn register(description: shm::Description, unit: Option<Unit>) -> shm::Result<Scaled> {
        let whole = Whole::of(unit);
        Ok(Scaled { histogram: description.unit(whole.unit).histogram()?, whole })
    }
}

impl HistogramFn for Series<Scaled> {
    #[inline]
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        let Some(scaled) = self.shown() else { return };
        match scaled.whole.number(value) {
            Ok(number) => (0..count).for_each(|_| scaled.histogram.record(number)),
            Err(reason) => self.refused.count_many(reason, count as u64),
        }
    }
}
