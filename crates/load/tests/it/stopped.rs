//! The generator itself is stopped in the middle of a run, against a server at which nothing happens: it says so, what was due meanwhile
//! is told as not sent, and the times are those of the server.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use load::{Answers, Doubt, Observer, Schedule, Settings, Spacing, Stub};

use crate::plain;
use crate::steady::{ATTEMPTS, Watch, skipped};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Tells the child where load goes.
const TARGET: &str = "TOPDECK_TEST_LOAD_TARGET";
const MS: u64 = 1_000_000;
const RATE: u64 = 1_000;
const LENGTH_NS: u64 = 1_600 * MS;
const SERVICE_NS: u64 = 5 * MS;
const STOPPED_NS: u64 = 500 * MS;
/// What a machine adds that has others to serve.
const SLACK_NS: u64 = 25 * MS;

struct Telling;

impl Observer for Telling {
    fn began(&mut self, start_ns: u64, _: i64) {
        println!("\nbegan {start_ns}");
    }
}

#[test]
#[ignore = "the part of the child in the test below"]
fn plays_the_generator() {
    let Ok(address) = std::env::var(TARGET) else { return };
    let schedule = Schedule::constant(RATE as f64, LENGTH_NS, Spacing::Even);
    let settings = Settings {
        threads: 2,
        connections: 32,
        connections_max: 1_000,
        // Less than it is stopped: what was answered meanwhile must not be taken for late.
        timeout_ns: 300 * MS,
        drain_ns: 2_000 * MS,
        ..plain::settings(&format!("http://{address}"), schedule)
    };
    let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut Telling).unwrap();
    let tally = &run.tally;
    let at = |of: &hist::Histogram, q: f64| of.quantile(q).unwrap().estimate as u64;
    let (response, lag) = (&tally.response, &tally.send_lag);
    let stalled: u64 = run.stalls.iter().map(|(from, to)| to - from).sum();
    let is_told = run
        .doubts
        .iter()
        .any(|one| matches!(one, Doubt::Stalled { missed, .. } if *missed == tally.missed));
    let numbers = [
        tally.intended,
        tally.accounted(),
        tally.completed,
        tally.missed,
        tally.seen_late,
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

/// Killed if the test gives up.
struct Generator(Child);

impl Drop for Generator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_stopped_generator_blames_itself_and_blurs_nothing() {
    let mut why = String::new();
    for _ in 0..ATTEMPTS {
        match stopped() {
            Ok(()) => return,
            Err(held_up) => why = held_up,
        }
    }
    skipped(&why);
}

/// Once; an error where the machine held up others than the one that was stopped.
fn stopped() -> Result<(), String> {
    let watch = Watch::start();
    let stub = Stub::start(Answers::Http1, SERVICE_NS).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stopped::plays_the_generator", "--ignored", "--nocapture"])
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
    let until = |moment: u64| {
        thread::sleep(Duration::from_nanos(moment.saturating_sub(clock::now())));
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
        intended,
        accounted,
        completed,
        missed,
        seen_late,
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
    assert_eq!((intended, accounted), (RATE * LENGTH_NS / (1_000 * MS), intended), "{said}");
    assert_eq!(is_told, 1, "{said}");
    // Nothing failed, nothing stayed without an answer: the server was there all of the time.
    assert_eq!((completed + missed + seen_late, count), (intended, completed), "{said}");
    // The stalls are one, and what the machine itself added.
    assert!(stalls >= 1 && stalled_ns + 10 * MS >= stopped_ns, "{said}");
    let expected = stopped_ns as f64 / 1e9 * RATE as f64;
    assert!(missed as f64 >= expected * 0.96, "{missed} missed of {expected}: {said}");
    let at_most = stalled_ns as f64 / 1e9 * RATE as f64 * 1.04 + 5.0 * stalls as f64;
    assert!(missed as f64 <= at_most, "{missed} missed, at most {at_most}: {said}");
    // What was under way when it stopped, and nothing more.
    assert!(seen_late <= 60 * stalls, "{said}");
    let bucket = |ns: u64| ns + ns / 45;
    // No answer comes early.
    assert!(p50 >= SERVICE_NS - SERVICE_NS / 45, "{said}");
    let is_near = p50 < bucket(SERVICE_NS) + 5 * MS
        && p99.max(max) <= bucket(SERVICE_NS) + SLACK_NS
        && lag_max <= SLACK_NS;
    match is_near {
        true => Ok(()),
        false if stalls > 1 => Err(format!("{stalls} stalls")),
        false => Err(watch.disturbance(0).expect(&said)),
    }
}
