//! Counters: increments and absolute values.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{CounterFn, Unit};

use super::rejected::ValueRejectReason;
use super::series::{BackingMetric, MetricSeries};
use super::unit;

/// Counter with its last absolute value.
pub(super) struct CounterState {
    counter: shm::Counter,
    /// The greatest of the absolute values so far.
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

    /// What increments added stays apart: absolute values are held to each other only, because the
    /// sum of all threads is known to readers alone.
    fn absolute(&self, value: u64) {
        if self.is_overflow {
            // The counts of different series, of which none is known any more.
            return self.rejected.count(ValueRejectReason::NoSeries);
        }
        if let Some(total) = self.metric() {
            // Each step is taken by the one who made it, whatever the order in which threads come
            // here.
            let before = total.absolute.fetch_max(value, Ordering::Relaxed);
            total.counter.add(value.saturating_sub(before));
        }
    }
}
