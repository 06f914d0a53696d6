//! Wall clock: monotonic clock plus an offset that changes with clock steps. Each step is a new
//! generation.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Wall clock timestamp with the generation of the clock (incremented by each step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallTime {
    /// Nanoseconds since 1970, without leap seconds.
    pub unix_ns: i64,
    /// Increases with each detected step of the system clock, from 1. Times of different
    /// generations are on different scales.
    pub generation: u64,
}

/// Number of stored offsets: as many as steps may occur while one reader is stopped.
const OFFSETS: usize = 8;
/// Offsets that differ by less are equal: each is measured to tens of nanoseconds.
const OFFSET_TOLERANCE_NS: i64 = 1_000;

/// Offset from the monotonic to the wall clock.
pub(crate) struct WallOffset {
    generation: AtomicU64,
    offsets: [AtomicI64; OFFSETS],
}

impl WallOffset {
    pub(crate) const fn new() -> WallOffset {
        WallOffset {
            generation: AtomicU64::new(0),
            offsets: [const { AtomicI64::new(0) }; OFFSETS],
        }
    }

    /// Generation and offset; `None` before the first measurement.
    #[inline]
    pub(crate) fn get(&self) -> Option<(u64, i64)> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            if generation == 0 {
                return None;
            }
            let offset = self.offsets[generation as usize % OFFSETS].load(Ordering::Acquire);
            // Is the offset still stored?
            if self.generation.load(Ordering::Acquire) - generation < OFFSETS as u64 - 1 {
                return Some((generation, offset));
            }
        }
    }

    /// Stores a measured offset, and returns whether it differs from the one before. One writer at
    /// a time.
    pub(crate) fn update(&self, offset: i64) -> bool {
        let generation = self.generation.load(Ordering::Relaxed);
        let before = self.offsets[generation as usize % OFFSETS].load(Ordering::Relaxed);
        if generation > 0 && (offset - before).abs() < OFFSET_TOLERANCE_NS {
            return false;
        }
        self.offsets[(generation + 1) as usize % OFFSETS].store(offset, Ordering::Release);
        self.generation.store(generation + 1, Ordering::Release);
        generation > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_step_starts_a_generation() {
        let offset = WallOffset::new();
        assert_eq!(offset.get(), None);
        assert!(!offset.update(1_000_000));
        assert_eq!(offset.get(), Some((1, 1_000_000)));
        assert!(!offset.update(1_000_020));
        assert_eq!(offset.get(), Some((1, 1_000_000)));
        for step in 2..30 {
            assert!(offset.update(-3_600_000_000_000 * step));
            assert_eq!(offset.get(), Some((step as u64, -3_600_000_000_000 * step)));
        }
    }
}
