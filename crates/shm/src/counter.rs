//! Counters: what only grows, and what comes and goes.

use crate::cells::{Access, Alone, Shared};
use crate::here::{self, Entered};
use crate::metric::Cells;
use crate::sync::AtomicU64;

/// Counts what happens: adds up what all threads counted, modulo 2^64.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(crate) cells: Cells,
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
pub struct UpDown {
    pub(crate) cells: Cells,
}

impl UpDown {
    /// So much more, or less.
    #[inline(always)]
    pub fn add(&self, n: i64) {
        add(self.cells.small(), n as u64);
    }
}

/// Adds to the small cell at an offset, in the lane of this thread.
#[inline(always)]
pub(crate) fn add(small: usize, n: u64) {
    match here::lane(small) {
        Some(lane) => {
            Alone::add(lane.small::<AtomicU64>(small), n);
        }
        None => add_slowly(small, n),
    }
}

#[cold]
fn add_slowly(small: usize, n: u64) {
    match here::enter(small) {
        Some(Entered::Own(lane)) => {
            Alone::add(lane.small::<AtomicU64>(small), n);
        }
        Some(Entered::Shared(lane)) => {
            Shared::add(lane.small::<AtomicU64>(small), n);
        }
        None => {}
    }
}
