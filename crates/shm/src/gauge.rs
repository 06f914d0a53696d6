//! Gauges. The last write wins.

use crate::metric::CellLocation;
use crate::sync::{AtomicU64, Ordering};
use crate::thread_lane;

/// Integer gauge.
#[derive(Clone, Debug)]
pub struct Gauge {
    pub(crate) cells: CellLocation,
}

impl Gauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        set(&self.cells, value as u64);
    }
}

/// Floating-point gauge.
#[derive(Clone, Debug)]
pub struct FloatGauge {
    pub(crate) cells: CellLocation,
}

impl FloatGauge {
    /// Sets the value.
    #[inline]
    pub fn set(&self, value: f64) {
        set(&self.cells, value.to_bits());
    }

    /// Adds to the value; any thread may call it.
    #[inline]
    pub fn add(&self, n: f64) {
        let Some(cell) = shared_cells::<AtomicU64>(self.cells.small()) else { return };
        let mut word = cell.load(Ordering::Relaxed);
        // All threads share the cell: compare-and-swap, so that no addition is applied to a value
        // that another thread has replaced.
        while let Err(found) = cell.compare_exchange_weak(
            word,
            (f64::from_bits(word) + n).to_bits(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            word = found;
        }
    }
}

#[inline]
fn set(cells: &CellLocation, word: u64) {
    if let Some(cell) = shared_cells::<AtomicU64>(cells.small()) {
        cell.store(word, Ordering::Relaxed);
    }
}

/// Cells of a gauge, in the shared lane.
#[inline]
pub(crate) fn shared_cells<T: crate::map::CellLayout>(small: usize) -> Option<&'static T> {
    let lane = thread_lane::shared(small).or_else(|| open_shared_lane(small))?;
    Some(lane.small(small))
}

/// A forked process must create its own file first.
#[cold]
fn open_shared_lane(small: usize) -> Option<thread_lane::Lane> {
    if small >= crate::layout::SMALL_BYTES {
        return None;
    }
    thread_lane::open().ok()?;
    thread_lane::shared(small)
}
