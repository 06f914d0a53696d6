//! The generator is stopped (SIGSTOP) in the middle of a run: it reports the stall, counts the
//! requests scheduled during it as not sent, and the times are those of the server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use load::{ArrivalProcess, InvalidReason, Observer, Schedule, Settings, StubProtocol, StubServer};

use crate::fixture;
use crate::scheduling::{ATTEMPTS, SchedulingWatch, skipped};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Environment variable with the target of the child.
const TARGET: &str = "TOPDECK_TEST_LOAD_TARGET";
const MS: u64 = 1_000_000;
const RATE: u64 = 1_000;
const LENGTH_NS: u64 = 1_600 * MS;
const SERVICE_NS: u64 = 5 * MS;
const STOPPED_NS: u64 = 500 * MS;
/// Tolerance for a busy machine.
const SLACK_NS: u64 = 25 * MS;

struct PrintStart;

impl Observer for PrintStart {
    fn run_started(&mut self, start_ns: u64, _: i64) {
        println!("\nbegan {start_ns}");
    }
}

#[test]
#[ignore = "the part of the child in the test below"]
fn child_generator() {
    let Ok(address) = std::env::var(TARGET) else { return };
    let schedule = Schedule::constant(RATE as f64, LENGTH_NS, ArrivalProcess::Constant);
    let settings = Settings {
        threads: 2,
        connections: 32,
        max_connections: 1_000,
        // Shorter than the stop: responses that arrived during it must not time out.
        timeout_ns: 300 * MS,
        grace_period_ns: 2_000 * MS,
        ..fixture::settings(&format!("http://{address}"), schedule)
    };
    let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut PrintStart).unwrap();
    let tally = &run.tally;
    let at = |of: &hist::Histogram, q: f64| of.quantile(q).unwrap().estimate as u64;
    let (response, lag) = (&tally.response, &tally.queue_time);
    let stalled: u64 = run.stalls.iter().map(|(from, to)| to - from).sum();
    let is_told = run.invalid_reasons.iter().any(|one| {
        matches!(one, InvalidReason::GeneratorStalled { not_sent, .. }
            if *not_sent == tally.not_sent)
    });
    let numbers = [
        tally.scheduled,
        tally.accounted(),
        tally.completed,
        tally.not_sent,
        tally.observed_late,
        response.count(),
        at(response, 0.5),
        at(response, 0.99),
        at(response, 1.0),
        at(lag, 1.0),
        run.stalls.len() as u64,
        stalled,
        u64::from(is_told),
    ];
    println!("\nrun {}", numbers.map(|one| one.to_string()).join(" "));
}

/// Killed on drop.
struct Generator(Child);

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stopped_generator_reports_the_stall_and_distorts_nothing() {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match stopped() {
            Ok(()) => return,
            Err(held_up) => why = held_up,
        }
    }
    skipped(&why);
}

/// One attempt; an error if the machine delayed another thread.
fn stopped() -> Result<(), String> {
    let watch = SchedulingWatch::start();
    let stub = StubServer::start(StubProtocol::Http1, SERVICE_NS).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stopped_generator::child_generator", "--ignored", "--nocapture"])
        .env(TARGET, stub.address().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Generator(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut numbers = |word: &str| -> Vec<u64> {
        let line = lines.find_map(|line| line.strip_prefix(word).map(str::to_owned));
        line.expect(word).split_whitespace().map(|one| one.parse().unwrap()).collect()
    };
    let start_ns = numbers("began ")[0];
    let until = |timestamp: u64| {
        thread::sleep(Duration::from_nanos(timestamp.saturating_sub(clock::now())));
        clock::now()
    };
    until(start_ns + 600 * MS);
    let pid = Pid::from_child(&child.0);
    kill_process(pid, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    let from_ns = clock::now();
    let stopped_ns = until(from_ns + STOPPED_NS) - from_ns;
    kill_process(pid, Signal::CONT).unwrap();
    let found = numbers("run ");
    let [
        scheduled,
        accounted,
        completed,
        not_sent,
        observed_late,
        count,
        p50,
        p99,
        max,
        lag_max,
        stalls,
        stalled_ns,
        is_told,
    ]: [u64; 13] = found.as_slice().try_into().unwrap();
    let said = format!("{found:?}");
    assert_eq!((scheduled, accounted), (RATE * LENGTH_NS / (1_000 * MS), scheduled), "{said}");
    assert_eq!(is_told, 1, "{said}");
    // Nothing failed or stayed unanswered: the server was available all the time.
    assert_eq!((completed + not_sent + observed_late, count), (scheduled, completed), "{said}");
    // One stall, plus those of the machine.
    assert!(stalls >= 1 && stalled_ns + 10 * MS >= stopped_ns, "{said}");
    let expected = stopped_ns as f64 / 1e9 * RATE as f64;
    assert!(not_sent as f64 >= expected * 0.96, "{not_sent} not_sent of {expected}: {said}");
    let at_most = stalled_ns as f64 / 1e9 * RATE as f64 * 1.04 + 5.0 * stalls as f64;
    assert!(not_sent as f64 <= at_most, "{not_sent} not_sent, at most {at_most}: {said}");
    // Only what was in flight at the stop.
    assert!(observed_late <= 60 * stalls, "{said}");
    let bucket = |ns: u64| ns + ns / 45;
    // No response arrives before its time.
    assert!(p50 >= SERVICE_NS - SERVICE_NS / 45, "{said}");
    let is_within_tolerance = p50 < bucket(SERVICE_NS) + 5 * MS
        && p99.max(max) <= bucket(SERVICE_NS) + SLACK_NS
        && lag_max <= SLACK_NS;
    match is_within_tolerance {
        true => Ok(()),
        false if stalls > 1 => Err(format!("{stalls} stalls")),
        false => Err(watch.disturbance(0).expect(&said)),
    }
}
