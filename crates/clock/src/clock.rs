//! Clock handle: the system clock, or a simulated one for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::{BoundedTime, WallTime, global};

/// Time source: the system clock or a simulated one.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// This machine.
    #[default]
    Machine,
    /// A clock that a test advances.
    Simulated(Arc<SimulatedClock>),
}

impl Clock {
    /// A simulated clock that stands still: nanoseconds of the monotonic clock, and nanoseconds
    /// since 1970.
    pub fn simulated(ns: u64, unix_ns: i64) -> (Clock, Arc<SimulatedClock>) {
        let simulated = Arc::new(SimulatedClock {
            ns: AtomicU64::new(ns),
            error_ns: AtomicU64::new(0),
            offset: AtomicI64::new(unix_ns - ns as i64),
            generation: AtomicU64::new(1),
        });
        (Clock::Simulated(Arc::clone(&simulated)), simulated)
    }

    /// See [`crate::now`].
    pub fn now(&self) -> u64 {
        match self {
            Clock::Machine => global::now(),
            Clock::Simulated(of) => of.ns.load(Ordering::SeqCst),
        }
    }

    /// See [`crate::now_bounded`].
    pub fn now_bounded(&self) -> BoundedTime {
        match self {
            Clock::Machine => global::now_bounded(),
            Clock::Simulated(of) => {
                BoundedTime { ns: self.now(), error_ns: of.error_ns.load(Ordering::SeqCst) }
            }
        }
    }

    /// See [`crate::wall`].
    pub fn wall(&self) -> WallTime {
        match self {
            Clock::Machine => global::wall(),
            Clock::Simulated(of) => WallTime {
                unix_ns: self.now() as i64 + of.offset.load(Ordering::SeqCst),
                generation: of.generation.load(Ordering::SeqCst),
            },
        }
    }
}

/// Handle to advance a simulated clock.
#[derive(Debug)]
pub struct SimulatedClock {
    ns: AtomicU64,
    error_ns: AtomicU64,
    offset: AtomicI64,
    generation: AtomicU64,
}

impl SimulatedClock {
    /// Advances the time.
    pub fn advance(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Steps the wall clock by `ns`, which may be negative.
    pub fn step(&self, ns: i64) {
        self.offset.fetch_add(ns, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the error bound of all later readings.
    pub fn set_error_bound(&self, error_ns: u64) {
        self.error_ns.store(error_ns, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_clock_moves_only_when_advanced() {
        let (clock, time) = Clock::simulated(5, 1_000);
        assert_eq!((clock.now(), clock.wall()), (5, WallTime { unix_ns: 1_000, generation: 1 }));
        time.advance(10);
        assert_eq!(clock.wall(), WallTime { unix_ns: 1_010, generation: 1 });
        time.step(-500);
        time.set_error_bound(7);
        assert_eq!(clock.now_bounded(), BoundedTime { ns: 15, error_ns: 7 });
        assert_eq!(clock.wall(), WallTime { unix_ns: 510, generation: 2 });
        let machine = Clock::default();
        assert!(machine.now() <= machine.now());
    }
}
