//! Machine clocks: real here, simulated in tests.

use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::calibration::ClockComparison;
use crate::counter;

/// Attempts per comparison, of which the best counts: together some microseconds.
const ATTEMPTS: usize = 32;
/// Calls per measurement of the cost, and measurements: the minimum is the cost without
/// interference.
const CALLS: u32 = 64;
const ROUNDS: u32 = 16;

/// Clocks of a machine; implemented by the real one and by tests.
pub(crate) trait MachineClocks {
    /// Why the counter is unusable, or `None`.
    fn unusable_reason(&mut self) -> Option<String>;
    /// The counter.
    fn tick(&self) -> u64;
    /// Nanoseconds of the system's monotonic clock.
    fn system_ns(&self) -> u64;
    /// Reads counter and system clock together. `ns_per_tick` is the best known rate.
    fn compare(&mut self, ns_per_tick: f64) -> Option<ClockComparison>;
    /// Offset from the monotonic to the wall clock.
    fn offset_ns(&mut self) -> i64;
    /// Whether the rate of the system clock may change at any time.
    fn is_disciplined(&mut self) -> bool;
    /// Cost of reading the counter and the system clock, in nanoseconds.
    fn costs_ns(&mut self) -> (f64, f64);
}

/// Clocks of this machine.
pub(crate) struct SystemClocks;

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline]
pub(crate) fn system_ns() -> u64 {
    nanoseconds(ClockId::Monotonic) as u64
}

fn nanoseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec as i64
}

impl MachineClocks for SystemClocks {
    fn unusable_reason(&mut self) -> Option<String> {
        counter::unusable_reason()
    }

    fn tick(&self) -> u64 {
        counter::ordered()
    }

    fn system_ns(&self) -> u64 {
        system_ns()
    }

    fn compare(&mut self, ns_per_tick: f64) -> Option<ClockComparison> {
        let attempts = (0..ATTEMPTS).map(|_| {
            let before = counter::ordered();
            let ns = system_ns();
            (before, ns, counter::ordered())
        });
        ClockComparison::best(attempts, ns_per_tick)
    }

    fn offset_ns(&mut self) -> i64 {
        let attempts = (0..ATTEMPTS).map(|_| {
            let before = system_ns() as i64;
            let wall = nanoseconds(ClockId::Realtime);
            let after = system_ns() as i64;
            (after - before, wall - (before + (after - before) / 2))
        });
        attempts.min_by_key(|&(width, _)| width).map_or(0, |(_, offset)| offset)
    }

    fn is_disciplined(&mut self) -> bool {
        counter::is_disciplined()
    }

    fn costs_ns(&mut self) -> (f64, f64) {
        (cost_ns(counter::ordered), cost_ns(system_ns))
    }
}

fn cost_ns(call: impl Fn() -> u64) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(call());
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}
