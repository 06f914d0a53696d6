//! Gauges: what is set. The last one who sets it counts.

use crate::here;
use crate::metric::Cells;
use crate::sync::{AtomicU64, Ordering};

/// How much there is, a whole number.
#[derive(Clone, Debug)]
pub struct Gauge {
    pub(crate) cells: Cells,
}

impl Gauge {
    /// So much there is.
    #[inline]
    pub fn set(&self, value: i64) {
        set(&self.cells, value as u64);
    }
}

/// How much there is.
#[derive(Clone, Debug)]
pub struct FloatGauge {
    pub(crate) cells: Cells,
}

impl FloatGauge {
    /// So much there is.
    #[inline]
    pub fn set(&self, value: f64) {
        set(&self.cells, value.to_bits());
    }

    /// So much more, or less, whichever thread says so.
    #[inline]
    pub fn add(&self, n: f64) {
        let Some(cell) = of_lane_0::<AtomicU64>(self.cells.small()) else { return };
        let mut word = cell.load(Ordering::Relaxed);
        // All threads have the one cell, so that none is added to a value that another has replaced.
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
fn set(cells: &Cells, word: u64) {
    if let Some(cell) = of_lane_0::<AtomicU64>(cells.small()) {
        cell.store(word, Ordering::Relaxed);
    }
}

/// Cells of what is set, which lie in the shared lane.
#[inline]
pub(crate) fn of_lane_0<T: crate::map::Cells>(small: usize) -> Option<&'static T> {
    let lane = here::shared(small).or_else(|| opened(small))?;
    Some(lane.small(small))
}

/// A forked process has to make its file first.
#[cold]
fn opened(small: usize) -> Option<here::Lane> {
    if small >= crate::layout::SMALL_BYTES {
        return None;
    }
    here::open().ok()?;
    here::shared(small)
}
