//! Stopwatch.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{clock_segment, counter, global};

/// Nanoseconds per tick times 2^40, as last measured; 0 while the counter is not used.
pub(crate) static SCALED_PERIOD: AtomicU64 = AtomicU64::new(0);
/// `SCALED_PERIOD` without its zeros: a measurement that started with the counter ends with it.
pub(crate) static LAST_SCALED_PERIOD: AtomicU64 = AtomicU64::new(0);

/// Stopwatch on the raw CPU counter, the cheapest way to measure a duration.
///
/// The CPU may execute a reading tens of nanoseconds before or after the neighbouring instructions.
/// If one thread starts it and another one reads it, the skew of their CPUs' counters adds to the
/// error. The result is never negative.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    /// Ticks, which take centuries to reach the highest bit; or nanoseconds of the system clock,
    /// with that bit set.
    start: u64,
}

const SYSTEM_FLAG: u64 = 1 << 63;

impl Stopwatch {
    /// Starts a stopwatch.
    #[inline]
    pub fn start() -> Stopwatch {
        match SCALED_PERIOD.load(Ordering::Relaxed) {
            0 => Stopwatch { start: system_ns() | SYSTEM_FLAG },
            _ => Stopwatch { start: counter::relaxed() },
        }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn elapsed_ns(&self) -> u64 {
        if self.start & SYSTEM_FLAG == 0 {
            let ticks = counter::relaxed().saturating_sub(self.start);
            clock_segment::ticks_to_ns(ticks, LAST_SCALED_PERIOD.load(Ordering::Relaxed))
        } else {
            system_ns().saturating_sub(self.start & !SYSTEM_FLAG)
        }
    }

    /// State as an integer, valid in this process and its forked children.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.start
    }

    /// Restores the result of [`Self::to_bits`].
    #[inline]
    pub fn from_bits(start: u64) -> Stopwatch {
        Stopwatch { start }
    }
}

/// Not inlined, to keep the path with a counter short.
#[cold]
#[inline(never)]
fn system_ns() -> u64 {
    global::now()
}
