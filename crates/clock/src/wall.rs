//! The time of day: the monotonic clock and an offset, which the kernel keeps but for steps. Each step is a new generation.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wall {
    /// Nanoseconds since 1970, without leap seconds.
    pub unix_ns: i64,
    /// Counts up with every step of the system's clock that was seen, from 1. Times of different generations are on different scales.
    pub generation: u64,
}

/// As many offsets are held as steps can come while one reader is stopped.
const HELD: usize = 8;
/// Offsets that differ by less are one: each is known to some tens of nanoseconds.
const SAME_NS: i64 = 1_000;

/// What to add to the monotonic clock.
pub(crate) struct Offset {
    generation: AtomicU64,
    held: [AtomicI64; HELD],
}

impl Offset {
    pub(crate) const fn new() -> Offset {
        Offset { generation: AtomicU64::new(0), held: [const { AtomicI64::new(0) }; HELD] }
    }

    /// The generation and its offset; none, if none was measured yet.
    #[inline]
    pub(crate) fn get(&self) -> Option<(u64, i64)> {
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            if generation == 0 {
                return None;
            }
            let offset = self.held[generation as usize % HELD].load(Ordering::Acquire);
            // Is it still held?
            if self.generation.load(Ordering::Acquire) - generation < HELD as u64 - 1 {
                return Some((generation, offset));
            }
        }
    }

    /// Takes what was measured, and says whether it is another one than before. For one thread at a time.
    pub(crate) fn measured(&self, offset: i64) -> bool {
        let generation = self.generation.load(Ordering::Relaxed);
        let before = self.held[generation as usize % HELD].load(Ordering::Relaxed);
        if generation > 0 && (offset - before).abs() < SAME_NS {
            return false;
        }
        self.held[(generation + 1) as usize % HELD].store(offset, Ordering::Release);
        self.generation.store(generation + 1, Ordering::Release);
        generation > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_generation_and_a_measurement_is_none() {
        let offset = Offset::new();
        assert_eq!(offset.get(), None);
        assert!(!offset.measured(1_000_000));
        assert_eq!(offset.get(), Some((1, 1_000_000)));
        assert!(!offset.measured(1_000_020));
        assert_eq!(offset.get(), Some((1, 1_000_000)));
        for step in 2..30 {
            assert!(offset.measured(-3_600_000_000_000 * step));
            assert_eq!(offset.get(), Some((step as u64, -3_600_000_000_000 * step)));
        }
    }
}
