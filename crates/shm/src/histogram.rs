//! Histograms on grid Exp2 scale 5 (relative error at most 1.08 %).

use clock::Stopwatch;
use hist::Integers;

use crate::cells::{CellAccess, HistogramCells, MultiWriter, SingleWriter};
use crate::layout::{BUCKETS, GROUP, SCALE};
use crate::metric::CellLocation;
use crate::sync::{AtomicU64, Ordering};
use crate::thread_lane::{self, Lane, SlowPathOutcome};

// The layout has its own constant, because `loom/` builds it without `hist`.
const _: () = assert!(BUCKETS == Integers::<SCALE>::POSITIONS);

/// Histogram of integers; for times, nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(crate) cells: CellLocation,
}

impl Histogram {
    /// Records a value.
    #[inline(always)]
    pub fn record(&self, value: u64) {
        let (small, large) = self.cells.offsets();
        match thread_lane::lane(small) {
            Some(lane) => record::<SingleWriter>(lane, small, large, value),
            None => record_slow_path(small, large, value),
        }
    }

    /// Starts a timer, which records the elapsed time on drop.
    #[inline(always)]
    pub fn start(&self) -> Timer {
        Timer { histogram: self.clone(), since: Stopwatch::start(), is_counted: true }
    }

    /// Records the duration of a call.
    #[inline(always)]
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let _timer = self.start();
        work()
    }
}

#[inline(always)]
fn record<A: CellAccess>(lane: Lane, small: usize, large: usize, value: u64) {
    let cells = lane.small::<HistogramCells>(small);
    if value == 0 {
        return cells.record::<A>(&cells.zero, 0);
    }
    let position = Integers::<SCALE>::position(value);
    // The last bucket, the only one of its group, belongs to the first group.
    let bit = 1u64.wrapping_shl((position / GROUP) as u32);
    if cells.touched.load(Ordering::Relaxed) & bit == 0 && !reserve_group(lane, cells, large, bit) {
        return;
    }
    cells.record::<A>(lane.large::<AtomicU64>(large + position * 8), value);
}

#[cold]
fn record_slow_path(small: usize, large: usize, value: u64) {
    match thread_lane::slow_path(small) {
        Some(SlowPathOutcome::Own(lane)) => record::<SingleWriter>(lane, small, large, value),
        Some(SlowPathOutcome::Shared(lane)) => record::<MultiWriter>(lane, small, large, value),
        None => {}
    }
}

/// Reserves space for a group of buckets and marks it in the small cells. Returns whether there was
/// space.
#[cold]
fn reserve_group(lane: Lane, cells: &HistogramCells, large: usize, bit: u64) -> bool {
    let group = bit.trailing_zeros() as usize;
    let is_made = lane.reserve(large + group * GROUP * 8, GROUP * 8)
        && (group > 0 || lane.reserve(large + 64 * GROUP * 8, 8));
    if is_made {
        cells.touched.fetch_or(bit, Ordering::Release);
    }
    is_made
}

/// Timer of one thread.
#[derive(Debug)]
#[must_use = "the timer records when it is dropped"]
pub struct Timer {
    histogram: Histogram,
    since: Stopwatch,
    is_counted: bool,
}

impl Timer {
    /// Stops the timer and records the time; returns nanoseconds.
    #[inline(always)]
    pub fn stop(mut self) -> u64 {
        self.is_counted = false;
        let took_ns = self.since.elapsed_ns();
        self.histogram.record(took_ns);
        took_ns
    }

    /// Stops the timer without recording.
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
