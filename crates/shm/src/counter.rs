//! Counters and up-down counters.

use crate::cells::{CellAccess, MultiWriter, SingleWriter};
use crate::metric::CellLocation;
use crate::sync::AtomicU64;
use crate::thread_lane::{self, SlowPathOutcome};

/// Counts what happens: adds up what all threads counted, modulo 2^64.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(crate) cells: CellLocation,
}

impl Counter {
    /// Counts `n` more.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        add(self.cells.small(), n);
    }
}

/// How much there is of what comes and goes: adds up what all threads added and took away.
#[derive(Clone, Debug)]
pub struct UpDownCounter {
    pub(crate) cells: CellLocation,
}

impl UpDownCounter {
    /// So much more, or less.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        add(self.cells.small(), n as u64);
    }
}

/// Adds to the small cell at an offset, in the lane of this thread.
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
