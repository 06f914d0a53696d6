//! Which lanes are taken. It is the process's own: readers need not know.

use crate::layout::LANES_MAX;
use crate::sync::{AtomicU64, Ordering};

const WORDS: usize = LANES_MAX / 64;

/// A bit for each lane.
#[derive(Debug)]
pub(crate) struct Lanes([AtomicU64; WORDS]);

impl Lanes {
    /// All are free but lane 0, which everybody may use.
    pub(crate) fn new() -> Lanes {
        Lanes(std::array::from_fn(|at| AtomicU64::new(u64::from(at == 0))))
    }

    /// Takes the first free one. Whoever takes it sees all that the one who gave it back has written.
    pub(crate) fn take(&self) -> Option<usize> {
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

    /// Gives one back.
    pub(crate) fn give(&self, lane: usize) {
        self.0[lane / 64].fetch_and(!(1 << (lane % 64)), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn miri_the_first_free_lane_is_taken() {
        let lanes = Lanes::new();
        for lane in 1..LANES_MAX {
            assert_eq!(lanes.take(), Some(lane));
        }
        assert_eq!(lanes.take(), None);
        lanes.give(200);
        lanes.give(7);
        assert_eq!([lanes.take(), lanes.take(), lanes.take()], [Some(7), Some(200), None]);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn loom_no_two_threads_have_one_lane_and_the_next_sees_what_was_counted() {
        loom::model(|| {
            let lanes = Arc::new(Lanes::new());
            // Cells of the lanes, written as one's own.
            let cells = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
            let count = |lanes: &Lanes, cells: &[AtomicU64; 3]| {
                let lane = lanes.take().unwrap();
                let held = cells[lane].load(Ordering::Relaxed);
                cells[lane].store(held + 1, Ordering::Relaxed);
                lanes.give(lane);
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
