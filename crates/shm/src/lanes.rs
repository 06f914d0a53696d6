//! Lane allocator. It is private to the process; readers do not need it.

use crate::layout::LANES_MAX;
use crate::sync::{AtomicU64, Ordering};

const WORDS: usize = LANES_MAX / 64;

/// Bitmap allocator of lanes.
#[derive(Debug)]
pub(crate) struct LaneAllocator([AtomicU64; WORDS]);

impl LaneAllocator {
    /// All lanes are free except lane 0, which is shared.
    pub(crate) fn new() -> LaneAllocator {
        LaneAllocator(std::array::from_fn(|at| AtomicU64::new(u64::from(at == 0))))
    }

    /// Allocates the first free lane. The caller sees all writes of the previous owner.
    pub(crate) fn allocate(&self) -> Option<usize> {
        for (at, word) in self.0.iter().enumerate() {
            let mut taken = word.load(Ordering::Relaxed);
            while taken != u64::MAX {
                let free = taken.trailing_ones();
                match word.compare_exchange_weak(
                    taken,
                    taken | 1 << free,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return Some(at * 64 + free as usize),
                    Err(now) => taken = now,
                }
            }
        }
        None
    }

    /// Releases a lane.
    pub(crate) fn release(&self, lane: usize) {
        self.0[lane / 64].fetch_and(!(1 << (lane % 64)), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn miri_first_free_lane_is_allocated() {
        let lanes = LaneAllocator::new();
        for lane in 1..LANES_MAX {
            assert_eq!(lanes.allocate(), Some(lane));
        }
        assert_eq!(lanes.allocate(), None);
        lanes.release(200);
        lanes.release(7);
        assert_eq!(
            [lanes.allocate(), lanes.allocate(), lanes.allocate()],
            [Some(7), Some(200), None]
        );
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn loom_lanes_are_exclusive_and_counts_visible() {
        loom::model(|| {
            let lanes = Arc::new(LaneAllocator::new());
            // Cells of the lanes, written with plain stores.
            let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
            let count = |lanes: &LaneAllocator, cells: &[AtomicU64; 3]| {
                let lane = lanes.allocate().unwrap();
                let held = cells[lane].load(Ordering::Relaxed);
                cells[lane].store(held + 1, Ordering::Relaxed);
                lanes.release(lane);
            };
            let other = {
                let (lanes, cells) = (Arc::clone(&lanes), Arc::clone(&cells));
                loom::thread::spawn(move || count(&lanes, &cells))
            };
            count(&lanes, &cells);
            other.join().unwrap();
            let total: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
            assert_eq!(total, 2);
        });
    }
}
