//! Tests of the calibrator with simulated machines: for any behaviour of counter and system clock,
//! time never goes back, and no error exceeds its bound.

use std::cell::Cell;
use std::time::Duration;

use super::{Calibrator, MS, SECOND};
use crate::calibration::ClockComparison;
use crate::clock_segment::SegmentSeqlock;
use crate::machine::MachineClocks;
use crate::reading;
use crate::status::ClockMode;

/// A machine whose true time the test advances. Counter and system clock follow it, each at its own
/// rate.
struct SimulatedMachine {
    /// Nanoseconds since the test began.
    time_ns: Cell<f64>,
    counter_ticks: Cell<f64>,
    system_time_ns: Cell<f64>,
    ticks_per_ns: Cell<f64>,
    /// Rate of the system clock relative to true time: a ratio.
    slew: Cell<f64>,
    /// Skew of the counters of other CPUs, in ticks.
    skew_ticks: Cell<f64>,
    /// Duration of a comparison.
    width_ns: f64,
    is_disciplined: bool,
    refusal: Option<&'static str>,
    /// Cost of reading the counter, and of reading the system clock.
    costs_ns: (f64, f64),
    random: Cell<u64>,
}

impl SimulatedMachine {
    fn new(ticks_per_ns: f64) -> SimulatedMachine {
        SimulatedMachine {
            time_ns: Cell::new(0.0),
            counter_ticks: Cell::new(7e12),
            system_time_ns: Cell::new(3e12),
            ticks_per_ns: Cell::new(ticks_per_ns),
            slew: Cell::new(0.0),
            skew_ticks: Cell::new(0.0),
            width_ns: 40.0,
            is_disciplined: false,
            refusal: None,
            costs_ns: (18.0, 22.0),
            random: Cell::new(1),
        }
    }

    fn advance(&self, ns: f64) {
        self.time_ns.set(self.time_ns.get() + ns);
        self.counter_ticks.set(self.counter_ticks.get() + ns * self.ticks_per_ns.get());
        self.system_time_ns.set(self.system_time_ns.get() + ns * (1.0 + self.slew.get()));
    }

    /// Uniform in [0, 1).
    fn random(&self) -> f64 {
        let mut word = self.random.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.random.set(word);
        (word >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Counter of one of two CPUs.
    fn any_cpu_tick(&self) -> u64 {
        let skew = if self.random() < 0.5 { self.skew_ticks.get() } else { 0.0 };
        (self.counter_ticks.get() + skew) as u64
    }
}

impl MachineClocks for SimulatedMachine {
    fn unusable_reason(&mut self) -> Option<String> {
        self.refusal.map(str::to_owned)
    }

    fn tick(&self) -> u64 {
        self.counter_ticks.get() as u64
    }

    fn system_ns(&self) -> u64 {
        self.system_time_ns.get() as u64
    }

    fn compare(&mut self, ns_per_tick: f64) -> Option<ClockComparison> {
        let skew = if self.random() < 0.5 { self.skew_ticks.get() } else { 0.0 };
        let attempts: Vec<_> = (0..4)
            .map(|_| {
                let width = self.width_ns * (1.0 + self.random());
                let before = (self.counter_ticks.get() + skew) as u64;
                // The system clock is read at a random time between the two counter readings.
                let fraction = self.random();
                self.advance(width * fraction);
                let system = self.system_ns();
                self.advance(width * (1.0 - fraction));
                (before, system, (self.counter_ticks.get() + skew) as u64)
            })
            .collect();
        ClockComparison::best(attempts.into_iter(), ns_per_tick)
    }

    fn offset_ns(&mut self) -> i64 {
        0
    }

    fn is_disciplined(&mut self) -> bool {
        self.is_disciplined
    }

    fn costs_ns(&mut self) -> (f64, f64) {
        self.costs_ns
    }
}

struct CalibratorRun {
    machine: SimulatedMachine,
    calibrator: Calibrator,
    segments: SegmentSeqlock,
    due_ns: f64,
    last_ns: u64,
    /// Greatest difference from the system clock since it was last returned.
    worst_ns: u64,
    readings: u64,
    /// Readings whose error exceeded the bound.
    violations: u64,
    /// Whether the calibrator runs when it is due.
    is_calibrated: bool,
}

impl CalibratorRun {
    fn new(machine: SimulatedMachine) -> CalibratorRun {
        CalibratorRun {
            machine,
            calibrator: Calibrator::new(),
            segments: SegmentSeqlock::new(),
            due_ns: 0.0,
            last_ns: 0,
            worst_ns: 0,
            readings: 0,
            violations: 0,
            is_calibrated: true,
        }
    }

    /// Advances time by `length` and reads the clock throughout.
    fn advance(&mut self, length: Duration) {
        let end = self.machine.time_ns.get() + length.as_nanos() as f64;
        while self.machine.time_ns.get() < end {
            if self.is_calibrated && self.machine.time_ns.get() >= self.due_ns {
                let wait =
                    self.calibrator.tick(&mut self.machine, &self.segments).as_nanos() as f64;
                // The calibrator runs up to a millisecond late.
                self.due_ns = self.machine.time_ns.get() + wait + 1e6 * self.machine.random();
            }
            self.read();
            self.machine.advance(3e6 * self.machine.random());
        }
    }

    fn read(&mut self) {
        let machine = &self.machine;
        let read =
            reading::now_bounded(&self.segments, || machine.any_cpu_tick(), || machine.system_ns());
        assert!(read.ns >= self.last_ns, "went back by {} ns", self.last_ns - read.ns);
        self.last_ns = read.ns;
        let off = read.ns.abs_diff(machine.system_ns());
        self.worst_ns = self.worst_ns.max(off);
        self.readings += 1;
        // 1 ns for rounding.
        self.violations += u64::from(off > read.error_ns + 1);
    }

    /// Greatest difference since the last call; resets it.
    fn take_worst_ns(&mut self) -> u64 {
        std::mem::take(&mut self.worst_ns)
    }
}

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn counter_is_tracked_at_any_rate() {
    for ticks_per_ns in [1.0, 2.3, 2.5961, 5.1] {
        let mut run = CalibratorRun::new(SimulatedMachine::new(ticks_per_ns));
        run.advance(SECONDS(10));
        run.take_worst_ns();
        run.advance(SECONDS(180));
        let status = run.calibrator.status();
        assert_eq!(
            (status.mode, status.discontinuities, run.violations),
            (ClockMode::Counter, 0, 0)
        );
        assert!((status.ticks_per_second / ticks_per_ns / 1e9 - 1.0).abs() < 1e-8);
        assert!((180..220).contains(&status.comparisons), "{}", status.comparisons);
        assert_eq!(status.residuals.count(), status.comparisons - 2);
        let worst_ns = run.take_worst_ns();
        assert!(worst_ns <= 50, "{worst_ns} ns off at {ticks_per_ns} ticks a nanosecond");
    }
}

#[test]
fn system_clock_is_used_until_rate_is_known() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    run.advance(Duration::from_millis(5));
    assert_eq!((run.calibrator.status().mode, run.take_worst_ns()), (ClockMode::Starting, 0));
    run.advance(Duration::from_millis(300));
    assert_eq!(run.calibrator.status().mode, ClockMode::Counter);
    assert!(run.take_worst_ns() < 2_000);
    run.advance(SECONDS(10));
    assert_eq!(run.violations, 0);
}

#[test]
fn slewed_system_clock_is_tracked_within_the_bound() {
    let mut machine = SimulatedMachine::new(2.5);
    machine.is_disciplined = true;
    let mut run = CalibratorRun::new(machine);
    for _ in 0..60 {
        run.machine.slew.set((run.machine.random() * 2.0 - 1.0) * 500e-6);
        run.advance(Duration::from_millis((run.machine.random() * 8e3) as u64));
    }
    assert!(run.readings > 100_000);
    assert_eq!((run.violations, run.calibrator.status().discontinuities), (0, 0));
    assert!(run.take_worst_ns() < 500_000);
}

#[test]
fn stopped_calibrator_falls_back_to_system() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    run.advance(SECONDS(12));
    run.is_calibrated = false;
    run.advance(SECONDS(2));
    run.take_worst_ns();
    run.advance(SECONDS(600));
    assert_eq!((run.take_worst_ns(), run.violations), (0, 0));
    run.is_calibrated = true;
    run.advance(SECONDS(12));
    run.take_worst_ns();
    run.advance(SECONDS(20));
    assert!(run.take_worst_ns() <= 50);
    assert_eq!((run.violations, run.calibrator.status().mode), (0, ClockMode::Counter));
}

#[test]
fn counter_jump_keeps_time_monotonic() {
    const HOUR_TICKS: f64 = 3600e9 * 2.5;
    for jump in [HOUR_TICKS, -HOUR_TICKS, 2.5e6, -2.5e6, 2.5e3, -2.5e3, -7e12] {
        let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
        run.advance(SECONDS(20));
        run.machine.counter_ticks.set((run.machine.counter_ticks.get() + jump).max(0.0));
        run.advance(SECONDS(8));
        run.take_worst_ns();
        run.violations = 0;
        run.advance(SECONDS(10));
        let worst_ns = run.take_worst_ns();
        assert!(worst_ns < 1_000, "a jump by {jump} ticks: {worst_ns} ns off");
        assert_eq!(run.violations, 0, "a jump by {jump} ticks");
        assert_eq!(run.calibrator.status().mode, ClockMode::Counter);
    }
}

#[test]
fn counter_rate_change_is_tracked() {
    for factor in [0.5, 1.0 + 50e-6, 1.0 - 50e-6, 2.0] {
        let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
        run.advance(SECONDS(20));
        run.machine.ticks_per_ns.set(2.5 * factor);
        run.advance(SECONDS(15));
        run.take_worst_ns();
        run.violations = 0;
        run.advance(SECONDS(30));
        assert!(run.take_worst_ns() < 1_000, "{factor} times as fast");
        assert_eq!(run.violations, 0, "{factor} times as fast");
        assert!(run.calibrator.status().discontinuities > 0, "{factor} times as fast");
    }
}

#[test]
fn repeated_jumps_disable_counter_for_an_hour() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    for _ in 0..10 {
        run.advance(SECONDS(5));
        run.machine.counter_ticks.set(run.machine.counter_ticks.get() + 2.5e4);
    }
    assert_eq!(run.calibrator.status().mode, ClockMode::System);
    let reason = run.calibrator.status().reason.clone().unwrap();
    assert_eq!(reason, "counter and system clock diverged 3 times within 60 s");
    run.take_worst_ns();
    run.advance(SECONDS(60));
    assert_eq!(run.take_worst_ns(), 0);
    run.advance(SECONDS(3_600));
    assert_eq!(run.calibrator.status().mode, ClockMode::Counter);
}

#[test]
fn unsynchronised_cpu_counters_are_detected() {
    let mut machine = SimulatedMachine::new(2.5);
    machine.skew_ticks.set(2.5e3);
    // Until the skew is detected, time may go back by the skew and is not checked.
    let (mut calibrator, segments) = (Calibrator::new(), SegmentSeqlock::new());
    for _ in 0..200 {
        let wait = calibrator.tick(&mut machine, &segments);
        machine.advance(wait.as_nanos() as f64);
    }
    assert_eq!(calibrator.status().mode, ClockMode::System, "{:?}", calibrator.status().reason);
    assert_eq!(calibrator.rate(), 0);
}

#[test]
fn interrupted_comparisons_are_ignored() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    run.advance(SECONDS(10));
    run.machine.width_ns = 40_000.0;
    run.advance(SECONDS(12));
    assert_eq!((run.calibrator.status().mode, run.violations), (ClockMode::Counter, 0));
    run.advance(SECONDS(6));
    let reason = run.calibrator.status().reason.clone().unwrap();
    assert_eq!(reason, "no successful clock comparison for 15 s");
    assert!(run.calibrator.status().rejected_comparisons > 100);
    run.machine.width_ns = 40.0;
    run.advance(SECONDS(5));
    assert_eq!((run.calibrator.status().mode, run.violations), (ClockMode::Counter, 0));
}

#[test]
fn unusable_or_slow_counter_is_not_read() {
    let refused = SimulatedMachine { refusal: Some("it is broken"), ..SimulatedMachine::new(2.5) };
    let slow = SimulatedMachine { costs_ns: (22.0, 22.0), ..SimulatedMachine::new(2.5) };
    for (machine, reason) in [
        (refused, "it is broken"),
        (slow, "reading the counter takes 22.0 ns, the system clock 22.0 ns"),
    ] {
        let mut run = CalibratorRun::new(machine);
        run.advance(SECONDS(5));
        assert_eq!(run.calibrator.status().mode, ClockMode::System);
        assert_eq!(run.calibrator.status().reason.as_deref(), Some(reason));
        assert_eq!((run.take_worst_ns(), run.calibrator.status().comparisons), (0, 0));
        // The counter is assessed again an hour later.
        run.machine.refusal = None;
        run.machine.costs_ns = (18.0, 22.0);
        run.advance(SECONDS(3_601));
        assert_eq!(run.calibrator.status().mode, ClockMode::Counter);
    }
}

#[test]
fn rate_step_counts_one_discontinuity() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    run.advance(SECONDS(20));
    run.machine.ticks_per_ns.set(2.5 * (1.0 + 50e-6));
    run.advance(Duration::from_millis(1_100));
    run.violations = 0;
    run.advance(SECONDS(30));
    assert_eq!((run.violations, run.calibrator.status().mode), (0, ClockMode::Counter));
    assert_eq!(run.calibrator.status().discontinuities, 1);
}

#[test]
fn disciplined_clock_with_late_calibrator_stays_in_bound() {
    let mut machine = SimulatedMachine::new(2.5);
    machine.is_disciplined = true;
    let mut run = CalibratorRun::new(machine);
    run.machine.slew.set(500e-6);
    run.advance(SECONDS(10));
    run.machine.slew.set(-500e-6);
    run.advance(SECONDS(10));
    run.is_calibrated = false;
    run.advance(Duration::from_millis(400));
    run.is_calibrated = true;
    run.advance(SECONDS(5));
    let before = run.calibrator.status().comparisons;
    run.advance(SECONDS(10));
    let comparisons = run.calibrator.status().comparisons - before;
    assert!((40..60).contains(&comparisons), "{comparisons} comparisons in 10 s");
    assert_eq!((run.violations, run.calibrator.status().discontinuities), (0, 0));
}

#[test]
fn counter_reset_is_tracked_at_once() {
    let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
    run.advance(SECONDS(20));
    run.machine.counter_ticks.set(1e9);
    run.advance(SECONDS(5));
    let before = run.calibrator.status().comparisons;
    run.advance(SECONDS(20));
    let comparisons = run.calibrator.status().comparisons - before;
    assert!((18..25).contains(&comparisons), "{comparisons} comparisons in 20 s");
    assert_eq!(run.calibrator.status().discontinuities, 1);
    // Once the counter passes its earlier value, no old segment is valid.
    run.violations = 0;
    run.advance(SECONDS(7_000 / 5 * 2 + 30));
    assert_eq!(run.violations, 0);
}

#[test]
fn random_disturbances_keep_time_monotonic() {
    for seed in 1..40u64 {
        let mut run = CalibratorRun::new(SimulatedMachine::new(2.5));
        run.machine.random.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..30 {
            let machine = &mut run.machine;
            match (machine.random() * 8.0) as u32 {
                // Only forward. If the counter goes back by less than a segment, time goes back:
                // each thread returns at least its own latest time, but other threads see earlier
                // times.
                0 => {
                    machine.counter_ticks.set(machine.counter_ticks.get() + 1e8 * machine.random())
                }
                1 => machine.ticks_per_ns.set(0.5 + 4.0 * machine.random()),
                2 => machine.slew.set((machine.random() - 0.5) * 1e-3),
                3 => run.is_calibrated = false,
                4 => machine.width_ns = 10.0 + 2_000.0 * machine.random(),
                5 => machine.is_disciplined = !machine.is_disciplined,
                _ => run.is_calibrated = true,
            }
            run.advance(Duration::from_nanos(
                (run.machine.random() * 4.0 * SECOND as f64) as u64 + MS,
            ));
        }
    }
}
