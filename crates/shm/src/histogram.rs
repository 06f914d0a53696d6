//! Histograms: how values are distributed, on the grid Exp2 of scale 5, at most 1.08 % off; count, sum, least and greatest are exact.

use clock::Stopwatch;
use hist::Integers;

use crate::cells::{Access, Alone, Distribution, Shared};
use crate::here::{self, Entered, Lane};
use crate::layout::{BUCKETS, GROUP, SCALE};
use crate::metric::Cells;
use crate::sync::{AtomicU64, Ordering};

// The layout says the number of buckets itself, because `loom/` builds it without `hist`.
const _: () = assert!(BUCKETS == Integers::<SCALE>::PLACES);

/// Counts whole numbers by their size: for times, nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(crate) cells: Cells,
}

impl Histogram {
    /// Counts a value.
    #[inline(always)]
    pub fn record(&self, value: u64) {
        let (small, large) = self.cells.both();
        match here::lane(small) {
            Some(lane) => record::<Alone>(lane, small, large, value),
            None => record_slowly(small, large, value),
        }
    }

    /// Takes the time from now on; it is counted when the timer is dropped.
    #[inline(always)]
    pub fn start(&self) -> Timer {
        Timer { histogram: self.clone(), since: Stopwatch::start(), is_counted: true }
    }

    /// Takes the time that something takes.
    #[inline(always)]
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _timer = self.start();
        work()
    }
}

#[inline(always)]
fn record<A: Access>(lane: Lane, small: usize, large: usize, value: u64) {
    let cells = lane.small::<Distribution>(small);
    if value == 0 {
        return cells.record::<A>(&cells.zero, 0);
    }
    let place = Integers::<SCALE>::place(value);
    // The last bucket, which is alone in its group, goes with the first group.
    let bit = 1u64.wrapping_shl((place / GROUP) as u32);
    if cells.touched.load(Ordering::Relaxed) & bit == 0 && !touch(lane, cells, large, bit) {
        return;
    }
    cells.record::<A>(lane.large::<AtomicU64>(large + place * 8), value);
}

#[cold]
fn record_slowly(small: usize, large: usize, value: u64) {
    match here::enter(small) {
        Some(Entered::Own(lane)) => record::<Alone>(lane, small, large, value),
        Some(Entered::Shared(lane)) => record::<Shared>(lane, small, large, value),
        None => {}
    }
}

/// Takes room for a group of buckets and says so in the small cells. Whether there was any.
#[cold]
fn touch(lane: Lane, cells: &Distribution, large: usize, bit: u64) -> bool {
    let group = bit.trailing_zeros() as usize;
    let is_made = lane.make_room(large + group * GROUP * 8, GROUP * 8)
        && (group > 0 || lane.make_room(large + 64 * GROUP * 8, 8));
    if is_made {
        cells.touched.fetch_or(bit, Ordering::Release);
    }
    is_made
}

/// Takes a time, on one thread.
#[derive(Debug)]
#[must_use = "the time is taken until this is dropped"]
pub struct Timer {
    histogram: Histogram,
    since: Stopwatch,
    is_counted: bool,
}

impl Timer {
    /// Counts the time now; nanoseconds.
    #[inline(always)]
    pub fn stop(mut self) -> u64 {
        self.is_counted = false;
        let took_ns = self.since.elapsed_ns();
        self.histogram.record(took_ns);
        took_ns
    }

    /// Does not count it.
    pub fn cancel(mut self) {
        self.is_counted = false;
    }
}

impl Drop for Timer {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_counted {
            self.histogram.record(self.since.elapsed_ns());
        }
    }
}
