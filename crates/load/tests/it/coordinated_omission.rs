//! The coordinated-omission test: a server with a known service time stalls, and the response times
//! must match the oracle.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hist::Histogram;
use load::{
    ArrivalProcess, RunResult, Schedule, ScheduleSegment, ServerStall, Settings, StallOnRunStart,
    StubProtocol, StubServer, expected_response_times,
};

use crate::fixture;
use crate::scheduling::{ATTEMPTS, SchedulingWatch, skipped};

const MS: u64 = 1_000_000;

fn settings(stub: &StubServer, answers: StubProtocol, schedule: Schedule) -> Settings {
    let scheme = if answers == StubProtocol::Echo { "tcp" } else { "http" };
    fixture::settings(&format!("{scheme}://{}", stub.address()), schedule)
}

fn run(settings: &Settings, stub: &StubServer, stall: ServerStall) -> RunResult {
    let run =
        load::run(settings, &Arc::new(AtomicBool::new(false)), &mut StallOnRunStart(stub, stall))
            .unwrap();
    assert_eq!(run.tally.accounted(), run.tally.scheduled);
    run
}

/// Tolerance beyond one bucket for the machine that runs the tests, which has other work.
pub(crate) const SLACK: f64 = 25.0 * MS as f64;

/// Describes a mismatch.
#[track_caller]
pub(crate) fn compare(found: &Histogram, expected: &Histogram, slack: f64) -> Result<(), String> {
    assert_eq!(found.count(), expected.count());
    let near = |what: &str, found: f64, expected: f64| {
        let is_within_tolerance =
            (found - expected).abs() <= expected * load::bucket_width() + slack;
        let words = || format!("{what}: {found} ns, expected {expected} ns");
        is_within_tolerance.then_some(()).ok_or_else(words)
    };
    near("mean", found.mean().unwrap().estimate, expected.mean().unwrap().estimate)?;
    near("max", found.max().unwrap().estimate, expected.max().unwrap().estimate)?;
    for q in [0.5, 0.9, 0.99, 0.999, 0.9999] {
        let at = |one: &Histogram| one.quantile(q).unwrap().estimate;
        near(&format!("{q}"), at(found), at(expected))?;
    }
    Ok(())
}

/// If the machine stalls the generator, the run reports itself as invalid.
const STALLED: &str = "the generator stalled";

const LENGTH_NS: u64 = 1_500 * MS;

fn constant(rate: f64, arrival_process: ArrivalProcess) -> Schedule {
    Schedule::constant(rate, LENGTH_NS, arrival_process)
}

fn check(answers: StubProtocol, schedule: &Schedule, stall: (u64, u64), drain_ms: u64) {
    let duration_ns = schedule.duration_ns();
    let mut why = STALLED.to_owned();
    for _ in 0..ATTEMPTS {
        let watch = SchedulingWatch::start();
        let service_ns = 5 * MS;
        let stub = StubServer::start(answers, service_ns).unwrap();
        let stall = ServerStall { from_ns: stall.0 * MS, to_ns: stall.1 * MS };
        let settings = Settings {
            grace_period_ns: drain_ms * MS,
            ..settings(&stub, answers, schedule.clone())
        };
        let run = run(&settings, &stub, stall);
        let all: u64 = run.per_second.values().map(Histogram::count).sum();
        let measured = run.tally.completed + run.tally.unfinished;
        assert_eq!((all, run.per_request[0].1.count()), (measured, measured));
        if run.stalls.is_empty() {
            let due = settings.schedule.arrivals();
            let end_ns = duration_ns + drain_ms * MS;
            let expected = expected_response_times(due, service_ns, &[stall], end_ns);
            let Err(differs) = compare(&run.tally.response, &expected, SLACK) else { return };
            why = watch.disturbance(0).expect(&differs);
            continue;
        }
        assert!(!run.invalid_reasons.is_empty());
    }
    skipped(&why);
}

#[test]
fn stall_in_the_middle() {
    check(StubProtocol::Http1, &constant(1_000.0, ArrivalProcess::Constant), (500, 1_000), 5_000);
    check(
        StubProtocol::Echo,
        &constant(100.0, ArrivalProcess::Poisson { seed: 5 }),
        (500, 1_000),
        5_000,
    );
}

#[test]
fn stall_at_the_start() {
    check(StubProtocol::Http1, &constant(100.0, ArrivalProcess::Constant), (0, 500), 5_000);
    check(StubProtocol::Echo, &constant(1_000.0, ArrivalProcess::Constant), (0, 500), 5_000);
}

/// Requests that never end count with their age.
#[test]
fn stall_at_the_end() {
    check(
        StubProtocol::Http1,
        &constant(1_000.0, ArrivalProcess::Poisson { seed: 3 }),
        (1_000, 9_000),
        0,
    );
}

/// A ramp, steps, and a recorded schedule: bursts of a dozen.
#[test]
fn stall_on_any_schedule() {
    let piece =
        |from_rate, to_rate| ScheduleSegment { from_rate, to_rate, duration_ns: LENGTH_NS / 3 };
    let ramp = vec![piece(100.0, 1_000.0)];
    let steps = vec![piece(100.0, 100.0), piece(1_000.0, 1_000.0), piece(300.0, 300.0)];
    let arrival_process = ArrivalProcess::Poisson { seed: 9 };
    let bursts = (0..600).map(|number| number / 12 * 30 * MS + number % 12 * MS / 10);
    for (schedule, stall) in [
        (Schedule::Rate { segments: ramp, arrival_process: ArrivalProcess::Constant }, (100, 400)),
        (Schedule::Rate { segments: steps, arrival_process }, (400, 900)),
        (Schedule::Replay(bursts.collect()), (0, 500)),
    ] {
        check(StubProtocol::Http1, &schedule, stall, 5_000);
    }
}

/// Whether a thread has its own CPU changes how it waits, but not what it counts.
#[test]
fn accounting_is_complete_on_any_number_of_cpus() {
    for processors in [1, 2, 64] {
        let stub = StubServer::start(StubProtocol::Http1, MS).unwrap();
        let schedule = Schedule::constant(500.0, 200 * MS, ArrivalProcess::Constant);
        let settings = Settings { processors, ..settings(&stub, StubProtocol::Http1, schedule) };
        let run = load::run(&settings, &Arc::default(), &mut ()).unwrap();
        let tally = &run.tally;
        assert_eq!((tally.accounted(), tally.scheduled), (100, 100), "{processors}");
        assert_eq!(tally.response.count(), tally.completed, "{processors}");
    }
}

/// Requests beyond the connection limit queue in the generator: their response time continues, and
/// they are counted.
#[test]
fn requests_queue_at_the_connection_limit() {
    for _ in 0..ATTEMPTS {
        let stub = StubServer::start(StubProtocol::Http1, 5 * MS).unwrap();
        let schedule = Schedule::constant(200.0, 1_000 * MS, ArrivalProcess::Constant);
        let stall = ServerStall { from_ns: 200 * MS, to_ns: 700 * MS };
        let settings = Settings {
            connections: 10,
            max_connections: 10,
            ..settings(&stub, StubProtocol::Http1, schedule)
        };
        let run = run(&settings, &stub, stall);
        if !run.stalls.is_empty() {
            continue;
        }
        let tally = &run.tally;
        // 100 are due during the stall, and 10 of them have a connection.
        assert!(tally.queued_requests >= 80, "{}", tally.queued_requests);
        assert_eq!((tally.connections_opened, tally.completed), (10, 200));
        assert!(tally.response.max().unwrap().estimate > 450.0 * MS as f64);
        // Service time covers requests with a connection only: it does not show the queue.
        let long = tally.service.count_above(100.0 * MS as f64, hist::LimitInclusion::Exclusive);
        assert!(long.estimate <= 10, "{long:?}");
        return;
    }
    skipped(STALLED);
}
