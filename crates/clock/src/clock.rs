//! A clock that can be given to what must be tested: the machine's, or one that stands still until it is moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::{Bounded, Wall, global};

/// Where time comes from.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// This machine.
    #[default]
    Machine,
    /// A test.
    Simulated(Arc<Simulated>),
}

impl Clock {
    /// One that stands still at a moment: nanoseconds of the monotonic clock, and since 1970.
    pub fn simulated(ns: u64, unix_ns: i64) -> (Clock, Arc<Simulated>) {
        let simulated = Arc::new(Simulated {
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
    pub fn now_bounded(&self) -> Bounded {
        match self {
            Clock::Machine => global::now_bounded(),
            Clock::Simulated(of) => {
                Bounded { ns: self.now(), error_ns: of.error_ns.load(Ordering::SeqCst) }
            }
        }
    }

    /// See [`crate::wall`].
    pub fn wall(&self) -> Wall {
        match self {
            Clock::Machine => global::wall(),
            Clock::Simulated(of) => Wall {
                unix_ns: self.now() as i64 + of.offset.load(Ordering::SeqCst),
                generation: of.generation.load(Ordering::SeqCst),
            },
        }
    }
}

/// What moves a simulated clock.
#[derive(Debug)]
pub struct Simulated {
    ns: AtomicU64,
    error_ns: AtomicU64,
    offset: AtomicI64,
    generation: AtomicU64,
}

impl Simulated {
    /// Time passes.
    pub fn pass(&self, ns: u64) {
        self.ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Somebody sets the time of day on by so much, or back.
    pub fn step(&self, ns: i64) {
        self.offset.fetch_add(ns, Ordering::SeqCst);
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on readings may be off by so much.
    pub fn doubt(&self, error_ns: u64) {
        self.error_ns.store(error_ns, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_clock_moves_when_it_is_told_to() {
        let (clock, time) = Clock::simulated(5, 1_000);
        assert_eq!((clock.now(), clock.wall()), (5, Wall { unix_ns: 1_000, generation: 1 }));
        time.pass(10);
        assert_eq!(clock.wall(), Wall { unix_ns: 1_010, generation: 1 });
        time.step(-500);
        time.doubt(7);
        assert_eq!(clock.now_bounded(), Bounded { ns: 15, error_ns: 7 });
        assert_eq!(clock.wall(), Wall { unix_ns: 510, generation: 2 });
        let machine = Clock::default();
        assert!(machine.now() <= machine.now());
    }
}
