//! Counters, which are told what happened since, or what a count elsewhere has come to.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{CounterFn, Unit};

use super::refused::Reason;
use super::series::{Series, Shown};
use super::unit;

/// A counter of shared memory.
pub(super) struct Total {
    counter: shm::Counter,
    /// The greatest of the absolute values so far.
    absolute: AtomicU64,
}

impl Shown for Total {
    fn register(description: shm::Description, unit: Option<Unit>) -> shm::Result<Total> {
        let counter = description.unit(unit::name(unit)).counter()?;
        Ok(Total { counter, absolute: AtomicU64::new(0) })
    }
}

impl CounterFn for Series<Total> {
    #[inline]
    fn increment(&self, value: u64) {
        if let Some(total) = self.shown() {
            total.counter.add(value);
        }
    }

    /// What increments added stays apart: absolute values are held to each other only, because the sum of all threads is known to
    /// readers alone.
    fn absolute(&self, value: u64) {
        if self.is_overflow {
            // The counts of different series, of which none is known any more.
            return self.refused.count(Reason::NoSeries);
        }
        if let Some(total) = self.shown() {
            // Each step is taken by the one who made it, whatever the order in which threads come here.
            let before = total.absolute.fetch_max(value, Ordering::Relaxed);
            total.counter.add(value.saturating_sub(before));
        }
    }
}
