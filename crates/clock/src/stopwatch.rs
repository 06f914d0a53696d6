//! Stopwatch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{clock_segment, counter, global};

/// Nanoseconds of a tick times 2^40, as last measured; 0 while the counter is not used.
pub(crate) static RATE: AtomicU64 = AtomicU64::new(0);
/// The same, but once known, kept: what was begun with the counter is ended with it.
pub(crate) static LAST_RATE: AtomicU64 = AtomicU64::new(0);

/// Stopwatch on the raw CPU counter, the cheapest way to measure a duration.
///
/// The processor may begin or end a reading some tens of nanoseconds before or after what stands next to it. Started on one
/// thread and read on another, it may be off by what the counters of their processors differ; it is never negative.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// Ticks, which take centuries to reach the highest bit; or nanoseconds of the system, with that bit set.
    start: u64,
}

const SYSTEM_FLAG: u64 = 1 << 63;

impl Stopwatch {
    /// Starts one.
    #[inline]
    pub fn start() -> Stopwatch {
        match RATE.load(Ordering::Relaxed) {
            0 => Stopwatch { start: system_ns() | SYSTEM_FLAG },
            _ => Stopwatch { start: counter::relaxed() },
        }
    }

    /// Nanoseconds since it was started.
    #[inline]
    pub fn elapsed_ns(&self) -> u64 {
        if self.start & SYSTEM_FLAG == 0 {
            let ticks = counter::relaxed().saturating_sub(self.start);
            clock_segment::ticks_to_ns(ticks, LAST_RATE.load(Ordering::Relaxed))
        } else {
            system_ns().saturating_sub(self.start & !SYSTEM_FLAG)
        }
    }

    /// As a word, for whoever keeps it elsewhere; of this process, and of those that it forks.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.start
    }

    /// What [`Self::to_bits`] gave.
    #[inline]
    pub fn from_bits(start: u64) -> Stopwatch {
        Stopwatch { start }
    }
}

/// Out of the way of those who have a counter.
#[cold]
#[inline(never)]
fn system_ns() -> u64 {
    global::now()
}
