//! The freeze test: a server whose truth is known stands still, and the spectrum must be that truth.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hist::Histogram;
use load::{Answers, Freeze, Freezing, Piece, Run, Schedule, Settings, Spacing, Stub, truth};

use crate::plain;
use crate::steady::{ATTEMPTS, Watch, skipped};

const MS: u64 = 1_000_000;

fn settings(stub: &Stub, answers: Answers, schedule: Schedule) -> Settings {
    let scheme = if answers == Answers::Echo { "tcp" } else { "http" };
    plain::settings(&format!("{scheme}://{}", stub.address()), schedule)
}

fn run(settings: &Settings, stub: &Stub, freeze: Freeze) -> Run {
    let run = load::run(settings, &Arc::new(AtomicBool::new(false)), &mut Freezing(stub, freeze))
        .unwrap();
    assert_eq!(run.tally.accounted(), run.tally.intended);
    run
}

/// Beyond one bucket, so much is the machine's that this test runs on, with others beside it.
pub(crate) const SLACK: f64 = 25.0 * MS as f64;

/// What is not as it should be.
#[track_caller]
pub(crate) fn compare(found: &Histogram, expected: &Histogram, slack: f64) -> Result<(), String> {
    assert_eq!(found.count(), expected.count());
    let near = |what: &str, found: f64, expected: f64| {
        let is_near = (found - expected).abs() <= expected * load::bucket_width() + slack;
        let words = || format!("{what}: {found} ns, truth {expected} ns");
        is_near.then_some(()).ok_or_else(words)
    };
    near("mean", found.mean().unwrap().estimate, expected.mean().unwrap().estimate)?;
    near("max", found.max().unwrap().estimate, expected.max().unwrap().estimate)?;
    for q in [0.5, 0.9, 0.99, 0.999, 0.9999] {
        let at = |one: &Histogram| one.quantile(q).unwrap().estimate;
        near(&format!("{q}"), at(found), at(expected))?;
    }
    Ok(())
}

/// Where the machine lets the generator stand still, the run itself says that it is not to be
/// trusted.
const STOOD_STILL: &str = "the generator stood still";

const LENGTH_NS: u64 = 1_500 * MS;

fn constant(rate: f64, spacing: Spacing) -> Schedule {
    Schedule::constant(rate, LENGTH_NS, spacing)
}

fn check(answers: Answers, schedule: &Schedule, freeze: (u64, u64), drain_ms: u64) {
    let length_ns = schedule.length_ns();
    let mut why = STOOD_STILL.to_owned();
    for _ in 0..ATTEMPTS {
        let watch = Watch::start();
        let service_ns = 5 * MS;
        let stub = Stub::start(answers, service_ns).unwrap();
        let freeze = Freeze { from_ns: freeze.0 * MS, to_ns: freeze.1 * MS };
        let settings =
            Settings { drain_ns: drain_ms * MS, ..settings(&stub, answers, schedule.clone()) };
        let run = run(&settings, &stub, freeze);
        let all: u64 = run.by_second.values().map(Histogram::count).sum();
        let measured = run.tally.completed + run.tally.unfinished;
        assert_eq!((all, run.by_request[0].1.count()), (measured, measured));
        if run.stalls.is_empty() {
            let due = settings.schedule.arrivals();
            let end_ns = length_ns + drain_ms * MS;
            let expected = truth(due, service_ns, &[freeze], end_ns);
            let Err(differs) = compare(&run.tally.response, &expected, SLACK) else { return };
            why = watch.disturbance(0).expect(&differs);
            continue;
        }
        assert!(!run.doubts.is_empty());
    }
    skipped(&why);
}

#[test]
fn frozen_in_the_middle() {
    check(Answers::Http1, &constant(1_000.0, Spacing::Even), (500, 1_000), 5_000);
    check(Answers::Echo, &constant(100.0, Spacing::Poisson { seed: 5 }), (500, 1_000), 5_000);
}

#[test]
fn frozen_at_the_start() {
    check(Answers::Http1, &constant(100.0, Spacing::Even), (0, 500), 5_000);
    check(Answers::Echo, &constant(1_000.0, Spacing::Even), (0, 500), 5_000);
}

/// What never ends counts with its age.
#[test]
fn frozen_at_the_end() {
    check(Answers::Http1, &constant(1_000.0, Spacing::Poisson { seed: 3 }), (1_000, 9_000), 0);
}

/// A ramp, steps, and what was recorded: bursts of a dozen.
#[test]
fn frozen_on_any_schedule() {
    let piece = |from_rate, to_rate| Piece { from_rate, to_rate, length_ns: LENGTH_NS / 3 };
    let ramp = vec![piece(100.0, 1_000.0)];
    let steps = vec![piece(100.0, 100.0), piece(1_000.0, 1_000.0), piece(300.0, 300.0)];
    let spacing = Spacing::Poisson { seed: 9 };
    let bursts = (0..600).map(|number| number / 12 * 30 * MS + number % 12 * MS / 10);
    for (schedule, freeze) in [
        (Schedule::Rate { pieces: ramp, spacing: Spacing::Even }, (100, 400)),
        (Schedule::Rate { pieces: steps, spacing }, (400, 900)),
        (Schedule::Replay(bursts.collect()), (0, 500)),
    ] {
        check(Answers::Http1, &schedule, freeze, 5_000);
    }
}

/// Whether a thread has a processor of its own decides how it waits, and nothing of what it counts.
#[test]
fn a_run_is_whole_on_one_processor_two_and_64() {
    for processors in [1, 2, 64] {
        let stub = Stub::start(Answers::Http1, MS).unwrap();
        let schedule = Schedule::constant(500.0, 200 * MS, Spacing::Even);
        let settings = Settings { processors, ..settings(&stub, Answers::Http1, schedule) };
        let run = load::run(&settings, &Arc::default(), &mut ()).unwrap();
        let tally = &run.tally;
        assert_eq!((tally.accounted(), tally.intended), (100, 100), "{processors}");
        assert_eq!(tally.response.count(), tally.completed, "{processors}");
    }
}

/// With fewer connections than requests wait, they wait in the generator: their response time goes on, and it is told.
#[test]
fn too_few_connections_are_waited_for() {
    for _ in 0..ATTEMPTS {
        let stub = Stub::start(Answers::Http1, 5 * MS).unwrap();
        let schedule = Schedule::constant(200.0, 1_000 * MS, Spacing::Even);
        let freeze = Freeze { from_ns: 200 * MS, to_ns: 700 * MS };
        let settings = Settings {
            connections: 10,
            connections_max: 10,
            ..settings(&stub, Answers::Http1, schedule)
        };
        let run = run(&settings, &stub, freeze);
        if !run.stalls.is_empty() {
            continue;
        }
        let tally = &run.tally;
        // 100 are due while it stands still, and 10 of them have a connection.
        assert!(tally.waited >= 80, "{}", tally.waited);
        assert_eq!((tally.opened, tally.completed), (10, 200));
        assert!(tally.response.max().unwrap().estimate > 450.0 * MS as f64);
        // Service time is that of those that had a connection: it cannot tell of those that waited for one.
        let long = tally.service.count_above(100.0 * MS as f64, hist::Bound::Exclusive);
        assert!(long.estimate <= 10, "{long:?}");
        return;
    }
    skipped(STOOD_STILL);
}
