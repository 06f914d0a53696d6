//! Counters: increments and absolute values.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{CounterFn, Unit};

use super::rejected::ValueRejectReason;
use super::series::{BackingMetric, MetricSeries};
use super::unit;

/// Counter with its last absolute value.
pub(super) struct CounterState {
    counter: shm::Counter,
    /// Largest absolute value so far.
    absolute: AtomicU64,
}

impl BackingMetric for CounterState {
    fn register(description: shm::MetricBuilder, unit: Option<Unit>) -> shm::Result<CounterState> {
        let counter = description.unit(unit::ucum_name(unit)).counter()?;
        Ok(CounterState { counter, absolute: AtomicU64::new(0) })
    }
}

impl CounterFn for MetricSeries<CounterState> {
    #[inline]
    fn increment(&self, value: u64) {
        if let Some(total) = self.metric() {
            total.counter.add(value);
        }
    }

    /// Increments are separate: an absolute value is compared only with earlier absolute values,
    /// because only readers know the sum of all threads.
    fn absolute(&self, value: u64) {
        if self.is_overflow {
            // Absolute values of different series cannot be combined.
            return self.rejected.count(ValueRejectReason::NoSeries);
        }
        if let Some(total) = self.metric() {
            // Each thread adds its own step, in whatever order threads arrive.
            let before = total.absolute.fetch_max(value, Ordering::Relaxed);
            total.counter.add(value.saturating_sub(before));
        }
    }
}
