//! Flush mark of the buffer, published in two slots.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::{Buffer, word};
use crate::sync::{Ordering, fence};

use Ordering::{Acquire, Relaxed, Release};

/// Flush mark: up to where ring entries are in segments (PostgreSQL: flush LSN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushMark {
    /// Number of 64-bit words ever appended to the ring before the first entry that is not in a
    /// segment. The space before it is free.
    pub(crate) ring: u64,
    /// Position of the first record that is not in a segment.
    pub(crate) position: u64,
    /// First position of the segment being written.
    pub(crate) segment: u64,
    /// Offset of the next frame in it.
    pub(crate) offset: u64,
}

impl FlushMark {
    fn words(self) -> [u64; 4] {
        [self.ring, self.position, self.segment, self.offset]
    }

    /// Checksum by which opening validates a mark read from the file.
    fn checksum(self) -> u64 {
        let mut bytes = [0; 32];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(self.words()) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        u64::from(crc32c::crc32c(&bytes)) | 1 << 32
    }
}

/// Index of the mark slot of a generation.
#[inline]
fn mark_slot(generation: u64) -> usize {
    if generation.is_multiple_of(2) { word::MARKS } else { word::MARKS + 8 }
}

impl Buffer {
    /// The published flush mark.
    pub(crate) fn mark(&self) -> FlushMark {
        loop {
            let generation = self.memory[word::GENERATION].load(Acquire);
            let slot = mark_slot(generation);
            let [ring, position, segment, offset] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Relaxed));
            // The slot is rewritten two generations later: then the values read may be torn. The
            // fence orders the loads above before the check; it pairs with the one in `store_mark`.
            fence(Acquire);
            let now = self.memory[word::GENERATION].load(Relaxed);
            if now == generation {
                return FlushMark { ring, position, segment, offset };
            }
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// The newest valid mark, for opening, while no other process has the buffer open.
    pub(crate) fn latest_valid_mark(&self) -> Option<FlushMark> {
        let slots = [0, 1].map(mark_slot).into_iter().filter_map(|slot| {
            let [ring, position, segment, offset, checksum] =
                std::array::from_fn(|i| self.memory[slot.wrapping_add(i)].load(Acquire));
            let mark = FlushMark { ring, position, segment, offset };
            (mark.checksum() == checksum).then_some(mark)
        });
        slots.max_by_key(|mark| mark.position)
    }

    pub(super) fn store_mark(&self, mark: FlushMark) {
        let generation = self.memory[word::GENERATION].load(Relaxed).wrapping_add(1);
        let slot = mark_slot(generation);
        // Stores to the slot must not precede the generation that made it the idle one.
        fence(Release);
        for (i, value) in mark.words().into_iter().chain([mark.checksum()]).enumerate() {
            self.memory[slot.wrapping_add(i)].store(value, Relaxed);
        }
        // One store publishes all four words, so a kill at any instruction leaves a valid mark.
        self.memory[word::GENERATION].store(generation, Release);
    }
}
