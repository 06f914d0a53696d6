//! Counters and up-down counters.

use crate::cells::{CellAccess, MultiWriter, SingleWriter};
use crate::metric::CellLocation;
use crate::sync::AtomicU64;
use crate::thread_lane::{self, SlowPathOutcome};

/// Counter: the sum over all threads, modulo 2^64.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(crate) cells: CellLocation,
}

impl Counter {
    /// Adds `n`.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        add(self.cells.small(), n);
    }
}

/// Up-down counter: the sum over all threads of additions and subtractions.
#[derive(Clone, Debug)]
pub struct UpDownCounter {
    pub(crate) cells: CellLocation,
}

impl UpDownCounter {
    /// Adds `n`, which may be negative.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        add(self.cells.small(), n as u64);
    }
}

/// Adds to the small cell at an offset in the lane of this thread.
#[inline(always)]
pub(crate) fn add(small: usize, n: u64) {
    match thread_lane::lane(small) {
        Some(lane) => {
            SingleWriter::add(lane.small::<AtomicU64>(small), n);
        }
        None => add_slow_path(small, n),
    }
}

#[cold]
fn add_slow_path(small: usize, n: u64) {
    match thread_lane::slow_path(small) {
        Some(SlowPathOutcome::Own(lane)) => {
            SingleWriter::add(lane.small::<AtomicU64>(small), n);
        }
        Some(SlowPathOutcome::Shared(lane)) => {
            MultiWriter::add(lane.small::<AtomicU64>(small), n);
        }
        None => {}
    }
}
