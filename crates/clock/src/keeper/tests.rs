//! The keeper on simulated machines: whatever counter and system do, time never goes back, and no reading is off by more
//! than it says.

use std::cell::Cell;
use std::time::Duration;

use super::{Keeper, MS, SECOND};
use crate::calibration::Comparison;
use crate::line::Lines;
use crate::machine::Machine;
use crate::reading;
use crate::status::Mode;

/// A machine whose true time is moved by the test. Counter and system follow it, each at its own rate.
struct Simulated {
    /// Nanoseconds since the test began.
    time_ns: Cell<f64>,
    tick: Cell<f64>,
    system: Cell<f64>,
    ticks_per_ns: Cell<f64>,
    /// How much faster than true time the system's clock is.
    slew: Cell<f64>,
    /// What other processors' counters are ahead.
    skew: Cell<f64>,
    /// How long a comparison takes.
    width_ns: f64,
    is_disciplined: bool,
    refusal: Option<&'static str>,
    costs_ns: (f64, f64),
    random: Cell<u64>,
}

impl Simulated {
    fn new(ticks_per_ns: f64) -> Simulated {
        Simulated {
            time_ns: Cell::new(0.0),
            tick: Cell::new(7e12),
            system: Cell::new(3e12),
            ticks_per_ns: Cell::new(ticks_per_ns),
            slew: Cell::new(0.0),
            skew: Cell::new(0.0),
            width_ns: 40.0,
            is_disciplined: false,
            refusal: None,
            costs_ns: (18.0, 22.0),
            random: Cell::new(1),
        }
    }

    fn pass(&self, ns: f64) {
        self.time_ns.set(self.time_ns.get() + ns);
        self.tick.set(self.tick.get() + ns * self.ticks_per_ns.get());
        self.system.set(self.system.get() + ns * (1.0 + self.slew.get()));
    }

    /// From 0 to 1.
    fn random(&self) -> f64 {
        let mut word = self.random.get();
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        self.random.set(word);
        (word >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Any of two processors.
    fn skewed_tick(&self) -> u64 {
        let skew = if self.random() < 0.5 { self.skew.get() } else { 0.0 };
        (self.tick.get() + skew) as u64
    }
}

impl Machine for Simulated {
    fn refusal(&mut self) -> Option<String> {
        self.refusal.map(str::to_owned)
    }

    fn tick(&self) -> u64 {
        self.tick.get() as u64
    }

    fn system_ns(&self) -> u64 {
        self.system.get() as u64
    }

    fn compare(&mut self, ns_per_tick: f64) -> Option<Comparison> {
        let skew = if self.random() < 0.5 { self.skew.get() } else { 0.0 };
        let attempts: Vec<_> = (0..4)
            .map(|_| {
                let width = self.width_ns * (1.0 + self.random());
                let before = (self.tick.get() + skew) as u64;
                // The system's clock is read at any moment between.
                let moment = self.random();
                self.pass(width * moment);
                let system = self.system_ns();
                self.pass(width * (1.0 - moment));
                (before, system, (self.tick.get() + skew) as u64)
            })
            .collect();
        Comparison::best(attempts.into_iter(), ns_per_tick)
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

struct Run {
    machine: Simulated,
    keeper: Keeper,
    lines: Lines,
    due_ns: f64,
    last_ns: u64,
    /// The greatest difference from the system's clock since the last look.
    worst_ns: u64,
    readings: u64,
    /// Readings that were off by more than they said.
    violations: u64,
    /// Whether the keeper comes when it should.
    is_kept: bool,
}

impl Run {
    fn new(machine: Simulated) -> Run {
        Run {
            machine,
            keeper: Keeper::new(),
            lines: Lines::new(),
            due_ns: 0.0,
            last_ns: 0,
            worst_ns: 0,
            readings: 0,
            violations: 0,
            is_kept: true,
        }
    }

    /// Lets so much time pass, and reads all the while.
    fn go(&mut self, length: Duration) {
        let end = self.machine.time_ns.get() + length.as_nanos() as f64;
        while self.machine.time_ns.get() < end {
            if self.is_kept && self.machine.time_ns.get() >= self.due_ns {
                let wait = self.keeper.turn(&mut self.machine, &self.lines).as_nanos() as f64;
                // It comes late, by up to a millisecond.
                self.due_ns = self.machine.time_ns.get() + wait + 1e6 * self.machine.random();
            }
            self.read();
            self.machine.pass(3e6 * self.machine.random());
        }
    }

    fn read(&mut self) {
        let machine = &self.machine;
        let read = reading::bounded(&self.lines, || machine.skewed_tick(), || machine.system_ns());
        assert!(read.ns >= self.last_ns, "went back by {} ns", self.last_ns - read.ns);
        self.last_ns = read.ns;
        let off = read.ns.abs_diff(machine.system_ns());
        self.worst_ns = self.worst_ns.max(off);
        self.readings += 1;
        // Both are whole numbers.
        self.violations += u64::from(off > read.error_ns + 1);
    }

    /// The greatest difference since it was last asked for.
    fn worst_ns(&mut self) -> u64 {
        std::mem::take(&mut self.worst_ns)
    }
}

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

#[test]
fn the_counter_is_followed_to_some_nanoseconds_at_any_rate() {
    for ticks_per_ns in [1.0, 2.3, 2.5961, 5.1] {
        let mut run = Run::new(Simulated::new(ticks_per_ns));
        run.go(SECONDS(10));
        run.worst_ns();
        run.go(SECONDS(180));
        let status = run.keeper.status();
        assert_eq!((status.mode, status.disruptions, run.violations), (Mode::Counter, 0, 0));
        assert!((status.ticks_per_second / ticks_per_ns / 1e9 - 1.0).abs() < 1e-8);
        assert!((180..220).contains(&status.comparisons), "{}", status.comparisons);
        assert_eq!(status.residuals.count(), status.comparisons - 2);
        let worst_ns = run.worst_ns();
        assert!(worst_ns <= 50, "{worst_ns} ns off at {ticks_per_ns} ticks a nanosecond");
    }
}

#[test]
fn until_the_rate_is_known_the_system_is_asked_and_then_errors_shrink() {
    let mut run = Run::new(Simulated::new(2.5));
    run.go(Duration::from_millis(5));
    assert_eq!((run.keeper.status().mode, run.worst_ns()), (Mode::Starting, 0));
    run.go(Duration::from_millis(300));
    assert_eq!(run.keeper.status().mode, Mode::Counter);
    assert!(run.worst_ns() < 2_000);
    run.go(SECONDS(10));
    assert_eq!(run.violations, 0);
}

#[test]
fn a_system_clock_that_is_steered_is_followed_within_the_bound() {
    let mut machine = Simulated::new(2.5);
    machine.is_disciplined = true;
    let mut run = Run::new(machine);
    for _ in 0..60 {
        run.machine.slew.set((run.machine.random() * 2.0 - 1.0) * 500e-6);
        run.go(Duration::from_millis((run.machine.random() * 8e3) as u64));
    }
    assert!(run.readings > 100_000);
    assert_eq!((run.violations, run.keeper.status().disruptions), (0, 0));
    assert!(run.worst_ns() < 500_000);
}

#[test]
fn without_a_keeper_the_system_is_asked_and_afterwards_the_counter_again() {
    let mut run = Run::new(Simulated::new(2.5));
    run.go(SECONDS(12));
    run.is_kept = false;
    run.go(SECONDS(2));
    run.worst_ns();
    run.go(SECONDS(600));
    assert_eq!((run.worst_ns(), run.violations), (0, 0));
    run.is_kept = true;
    run.go(SECONDS(12));
    run.worst_ns();
    run.go(SECONDS(20));
    assert!(run.worst_ns() <= 50);
    assert_eq!((run.violations, run.keeper.status().mode), (0, Mode::Counter));
}

#[test]
fn a_counter_that_jumps_is_caught_up_with_and_time_never_goes_back() {
    const HOUR_TICKS: f64 = 3600e9 * 2.5;
    for jump in [HOUR_TICKS, -HOUR_TICKS, 2.5e6, -2.5e6, 2.5e3, -2.5e3, -7e12] {
        let mut run = Run::new(Simulated::new(2.5));
        run.go(SECONDS(20));
        run.machine.tick.set((run.machine.tick.get() + jump).max(0.0));
        run.go(SECONDS(8));
        run.worst_ns();
        run.violations = 0;
        run.go(SECONDS(10));
        let worst_ns = run.worst_ns();
        assert!(worst_ns < 1_000, "a jump by {jump} ticks: {worst_ns} ns off");
        assert_eq!(run.violations, 0, "a jump by {jump} ticks");
        assert_eq!(run.keeper.status().mode, Mode::Counter);
    }
}

#[test]
fn a_counter_that_changes_its_rate_is_caught_up_with() {
    for factor in [0.5, 1.0 + 50e-6, 1.0 - 50e-6, 2.0] {
        let mut run = Run::new(Simulated::new(2.5));
        run.go(SECONDS(20));
        run.machine.ticks_per_ns.set(2.5 * factor);
        run.go(SECONDS(15));
        run.worst_ns();
        run.violations = 0;
        run.go(SECONDS(30));
        assert!(run.worst_ns() < 1_000, "{factor} times as fast");
        assert_eq!(run.violations, 0, "{factor} times as fast");
        assert!(run.keeper.status().disruptions > 0, "{factor} times as fast");
    }
}

#[test]
fn a_counter_that_jumps_again_and_again_is_not_used_for_an_hour() {
    let mut run = Run::new(Simulated::new(2.5));
    for _ in 0..10 {
        run.go(SECONDS(5));
        run.machine.tick.set(run.machine.tick.get() + 2.5e4);
    }
    assert_eq!(run.keeper.status().mode, Mode::System);
    let reason = run.keeper.status().reason.clone().unwrap();
    assert_eq!(reason, "counter and system moved apart 3 times within 60 s");
    run.worst_ns();
    run.go(SECONDS(60));
    assert_eq!(run.worst_ns(), 0);
    run.go(SECONDS(3_600));
    assert_eq!(run.keeper.status().mode, Mode::Counter);
}

#[test]
fn processors_whose_counters_differ_are_found_out() {
    let mut machine = Simulated::new(2.5);
    machine.skew.set(2.5e3);
    // Readings go back by the skew until then: they are not looked at here.
    let (mut keeper, lines) = (Keeper::new(), Lines::new());
    for _ in 0..200 {
        let wait = keeper.turn(&mut machine, &lines);
        machine.pass(wait.as_nanos() as f64);
    }
    assert_eq!(keeper.status().mode, Mode::System, "{:?}", keeper.status().reason);
    assert_eq!(keeper.rate(), 0);
}

#[test]
fn comparisons_that_were_interrupted_do_not_count() {
    let mut run = Run::new(Simulated::new(2.5));
    run.go(SECONDS(10));
    run.machine.width_ns = 40_000.0;
    run.go(SECONDS(12));
    assert_eq!((run.keeper.status().mode, run.violations), (Mode::Counter, 0));
    run.go(SECONDS(6));
    let reason = run.keeper.status().reason.clone().unwrap();
    assert_eq!(reason, "counter and system could not be compared for 15 s");
    assert!(run.keeper.status().rejected > 100);
    run.machine.width_ns = 40.0;
    run.go(SECONDS(5));
    assert_eq!((run.keeper.status().mode, run.violations), (Mode::Counter, 0));
}

#[test]
fn a_counter_that_is_refused_or_slow_is_not_read() {
    let refused = Simulated { refusal: Some("it is broken"), ..Simulated::new(2.5) };
    let slow = Simulated { costs_ns: (22.0, 22.0), ..Simulated::new(2.5) };
    for (machine, reason) in [
        (refused, "it is broken"),
        (slow, "the counter takes 22.0 ns to read, the system's clock 22.0 ns"),
    ] {
        let mut run = Run::new(machine);
        run.go(SECONDS(5));
        assert_eq!(run.keeper.status().mode, Mode::System);
        assert_eq!(run.keeper.status().reason.as_deref(), Some(reason));
        assert_eq!((run.worst_ns(), run.keeper.status().comparisons), (0, 0));
        // It is asked again an hour later.
        run.machine.refusal = None;
        run.machine.costs_ns = (18.0, 22.0);
        run.go(SECONDS(3_601));
        assert_eq!(run.keeper.status().mode, Mode::Counter);
    }
}

#[test]
fn one_step_of_a_rate_is_one_disruption_and_bounded_from_its_discovery_on() {
    let mut run = Run::new(Simulated::new(2.5));
    run.go(SECONDS(20));
    run.machine.ticks_per_ns.set(2.5 * (1.0 + 50e-6));
    run.go(Duration::from_millis(1_100));
    run.violations = 0;
    run.go(SECONDS(30));
    assert_eq!((run.violations, run.keeper.status().mode), (0, Mode::Counter));
    assert_eq!(run.keeper.status().disruptions, 1);
}

#[test]
fn a_steered_clock_from_one_end_to_the_other_and_a_keeper_that_comes_late() {
    let mut machine = Simulated::new(2.5);
    machine.is_disciplined = true;
    let mut run = Run::new(machine);
    run.machine.slew.set(500e-6);
    run.go(SECONDS(10));
    run.machine.slew.set(-500e-6);
    run.go(SECONDS(10));
    run.is_kept = false;
    run.go(Duration::from_millis(400));
    run.is_kept = true;
    run.go(SECONDS(5));
    let before = run.keeper.status().comparisons;
    run.go(SECONDS(10));
    let comparisons = run.keeper.status().comparisons - before;
    assert!((40..60).contains(&comparisons), "{comparisons} comparisons in 10 s");
    assert_eq!((run.violations, run.keeper.status().disruptions), (0, 0));
}

#[test]
fn a_counter_that_begins_anew_is_followed_at_once_and_for_good() {
    let mut run = Run::new(Simulated::new(2.5));
    run.go(SECONDS(20));
    run.machine.tick.set(1e9);
    run.go(SECONDS(5));
    let before = run.keeper.status().comparisons;
    run.go(SECONDS(20));
    let comparisons = run.keeper.status().comparisons - before;
    assert!((18..25).contains(&comparisons), "{comparisons} comparisons in 20 s");
    assert_eq!(run.keeper.status().disruptions, 1);
    // When it comes by where it was, nothing of then is valid any more.
    run.violations = 0;
    run.go(SECONDS(7_000 / 5 * 2 + 30));
    assert_eq!(run.violations, 0);
}

#[test]
fn a_machine_that_is_always_in_the_way_never_makes_time_go_back() {
    for seed in 1..40u64 {
        let mut run = Run::new(Simulated::new(2.5));
        run.machine.random.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..30 {
            let machine = &mut run.machine;
            match (machine.random() * 8.0) as u32 {
                // Only ahead: where the counter goes back by less than a line, so does a reading, but for what a thread remembers.
                0 => machine.tick.set(machine.tick.get() + 1e8 * machine.random()),
                1 => machine.ticks_per_ns.set(0.5 + 4.0 * machine.random()),
                2 => machine.slew.set((machine.random() - 0.5) * 1e-3),
                3 => run.is_kept = false,
                4 => machine.width_ns = 10.0 + 2_000.0 * machine.random(),
                5 => machine.is_disciplined = !machine.is_disciplined,
                _ => run.is_kept = true,
            }
            run.go(Duration::from_nanos((run.machine.random() * 4.0 * SECOND as f64) as u64 + MS));
        }
    }
}
