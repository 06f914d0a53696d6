//! Kill matrix of alerts: steps of the wall clock by an hour, back and forth, at any moment, also
//! together with kills. Every alert that was due is delivered, none is resolved that still holds,
//! and repeats are those that `docs/alerts.md` allows.
//!
//! The clock is stepped in the process, by `stepped_clock.c`. A short version runs in each test
//! run; the `soak_` version has a hundred rounds.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::alert_kills::{KillRun, PAUSE_MAX, acknowledge, random_seed};
use super::alert_receiver::ReceiverAnswer;
use super::server_process::{TestDir, wait_until};

/// Rounds of the short version: each moment once.
const ROUNDS: usize = MOMENTS.len();
/// Rounds of the soak version.
const ROUNDS_SOAK: usize = 100;
/// A step back.
const STEP_S: i64 = 3600;
/// By how much more the clock is set forth: no time comes again within 5 minutes, in which an
/// expression sees the values of before the step.
const DRIFT_S: i64 = 400;

/// When the clock is stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepMoment {
    /// At a random time after the rows were acknowledged.
    Firing,
    /// After a message arrived, before its response; then the server is killed.
    Unanswered,
    /// After the message arrived.
    Answered,
    /// While an acknowledgement is under way.
    Acknowledging,
    /// At a random time after the condition ended.
    Resolving,
    /// While a message waits for its next attempt.
    Refused,
    /// While the server is down.
    Down,
    /// After the alert ended; then the server is killed, before the next look at its group.
    Ended,
    /// While the server is down, which was killed after the alert ended; it is killed again.
    EndedDown,
}

/// An odd number, so that each moment gets steps in both directions.
const MOMENTS: [StepMoment; 9] = [
    StepMoment::Refused,
    StepMoment::Firing,
    StepMoment::Unanswered,
    StepMoment::Resolving,
    StepMoment::Down,
    StepMoment::Acknowledging,
    StepMoment::Answered,
    StepMoment::Ended,
    StepMoment::EndedDown,
];

/// The wall clock of a process.
pub(super) struct SteppedClock {
    dir: TestDir,
    library: PathBuf,
    seconds: i64,
}

impl SteppedClock {
    /// Compiles the library; `None` if the test cannot run, which it says.
    pub(super) fn new() -> Option<SteppedClock> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
            println!("skipped: the clock of a process is stepped on x86-64 Linux with glibc only");
            return None;
        }
        let dir = TestDir::new();
        let library = dir.path("stepped_clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/serve/stepped_clock.c");
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        let Ok(done) = command.arg(&library).arg(source).arg("-ldl").output() else {
            println!("skipped: there is no cc (Debian package gcc)");
            return None;
        };
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let clock = SteppedClock { dir, library, seconds: 0 };
        clock.write();
        Some(clock)
    }

    /// What a process needs to have this clock.
    pub(super) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library.clone()), ("STEPPED_CLOCK_FILE", self.file())]
    }

    fn file(&self) -> PathBuf {
        self.dir.path("seconds")
    }

    /// In place: processes have mapped the file.
    fn write(&self) {
        std::fs::write(self.file(), self.seconds.to_ne_bytes()).expect("the file is written");
    }

    fn step(&mut self, is_back: bool) {
        self.add(if is_back { -STEP_S } else { STEP_S + DRIFT_S });
    }

    /// Sets the clock, in seconds after its time.
    pub(super) fn add(&mut self, seconds: i64) {
        self.seconds += seconds;
        let bytes = self.seconds.to_ne_bytes();
        let file = std::fs::File::options().write(true).open(self.file()).expect("the file");
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("it is written");
    }
}

/// A run with a clock.
struct StepRun {
    run: KillRun,
    clock: SteppedClock,
}

impl StepRun {
    /// Steps the clock, back or forth. The hosts go on sending when the server has seen it.
    fn step(&mut self, is_back: bool) {
        let before_s = self.run.now_s();
        self.clock.step(is_back);
        let step_s = if is_back { -STEP_S } else { STEP_S + DRIFT_S };
        let expected = before_s + step_s..before_s + step_s + STEP_S / 2;
        wait_until("the clock of the server is stepped", || expected.contains(&self.run.now_s()));
        self.run.send_all();
    }

    fn round(&mut self, number: usize) {
        let (host, moment) = (format!("r{number}"), MOMENTS[number % MOMENTS.len()]);
        let is_back = number.is_multiple_of(2);
        self.run.receiver.set_answer(match moment {
            StepMoment::Unanswered => ReceiverAnswer::Hold,
            StepMoment::Refused => ReceiverAnswer::ServerError,
            _ => ReceiverAnswer::Accept,
        });
        let (refused, held) = (self.run.receiver.refused(), self.run.receiver.held());
        self.run.raise(&host);
        match moment {
            StepMoment::Firing => {
                self.run.random.pause(PAUSE_MAX);
                self.step(is_back);
            }
            StepMoment::Unanswered => {
                wait_until("a message gets no response", || self.run.receiver.held() > held);
                self.step(is_back);
                self.run.kill();
            }
            StepMoment::Answered => {
                self.run.wait_for("/hook", &host, "firing");
                self.step(is_back);
            }
            StepMoment::Refused => {
                wait_until("a message is refused", || self.run.receiver.refused() > refused);
                self.step(is_back);
                self.run.receiver.set_answer(ReceiverAnswer::Accept);
            }
            StepMoment::Down => {
                self.run.server.kill();
                self.clock.step(is_back);
                self.run.server.start();
                self.run.send_all();
            }
            StepMoment::Resolving => {
                self.run.wait_for("/key", &host, "firing");
                self.run.lower(&host);
                self.run.random.pause(PAUSE_MAX);
                self.step(is_back);
            }
            StepMoment::Acknowledging => {
                self.run.wait_for("/key", &host, "firing");
                let (address, asked) = (self.run.server.address(), host.clone());
                let asking = std::thread::spawn(move || acknowledge(address, &asked));
                self.run.random.pause(Duration::from_millis(20));
                self.step(is_back);
                assert!(asking.join().expect("no panic"), "the acknowledgement of {host} failed");
                self.run.note_acknowledged(&host);
            }
            StepMoment::Ended => {
                self.end(&host);
                self.step(is_back);
                self.run.kill();
            }
            StepMoment::EndedDown => {
                self.end(&host);
                self.run.server.kill();
                self.clock.step(is_back);
                self.run.server.start();
                self.run.send_all();
                self.run.kill();
            }
        }
    }

    /// Ends the alert of a host after contacts heard of it.
    fn end(&mut self, host: &str) {
        self.run.wait_for("/key", host, "firing");
        self.run.lower(host);
        let alert = format!("host=\"{host}\"}}");
        wait_until(&format!("the alert of {host} ends"), || {
            let log = self.run.server.log();
            log.lines().any(|line| line.contains(&alert) && line.contains("-> inactive"))
        });
    }
}

fn run(rounds: usize, seed: u64) {
    println!("seed {seed}");
    let Some(clock) = SteppedClock::new() else { return };
    let mut run = StepRun { run: KillRun::start_with(seed, &clock.variables()), clock };
    for number in 0..rounds {
        run.round(number);
    }
    run.run.finish();
}

// slow: retries after an error wait for 2.5 s and more, and a held message for its timeout.
#[test]
fn alerts_survive_steps_of_the_wall_clock_at_any_moment() {
    run(ROUNDS, random_seed());
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_alerts_survive_steps_of_the_wall_clock_at_any_moment() {
    run(ROUNDS_SOAK, random_seed());
}
