//! Alerts that begin while nothing can be stored, and kills meanwhile: each is told once there is
//! space, and so is its end.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::alert_kills::{PATHS, RandomTimes, alert_of, random_seed, set_depth, settings};
use super::alert_receiver::AlertReceiver;
use super::alerts::with_rules;
use super::data_loss::SmallFilesystem;
use super::server_process::{ServerProcess, wait_until};

/// Rounds of the short version: one with a kill, and one without.
const ROUNDS: usize = 2;
/// Rounds of the soak version.
const ROUNDS_SOAK: usize = 100;
/// Longest time between the begin of an alert and a kill.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// An alert begins when the time passes the value of its gauge: nothing else changes on a full
/// disk.
const RULES: &str = "  - alert: Due\n    expr: depth < time()\n";
/// A value that is never passed.
const NEVER: f64 = 1e10;

/// A server on a small disk.
struct FullDiskRun {
    /// Unmounted before the directory of the server is removed.
    disk: SmallFilesystem,
    server: ServerProcess,
    receiver: AlertReceiver,
    random: RandomTimes,
}

impl FullDiskRun {
    /// `None` if this process may not mount.
    fn start(seed: u64) -> Option<FullDiskRun> {
        println!("seed {seed}");
        let receiver = AlertReceiver::start();
        let mut server = ServerProcess::new("serve", &settings(&receiver));
        let disk = SmallFilesystem::mount(&server.dir.path("data"), 200)?;
        std::fs::write(server.dir.path("rules.yaml"), with_rules(RULES)).expect("rules");
        server.start();
        Some(FullDiskRun { disk, server, receiver, random: RandomTimes::new(seed) })
    }

    fn round(&mut self, number: usize) {
        let host = format!("r{number}");
        let is_killed = number % 2 == 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let due_s = now.expect("after 1970").as_secs() + 3;
        set_depth(&self.server, &host, due_s as f64);
        self.disk.fill();
        // The last MiB, too.
        let rest = self.server.dir.path("data/rest");
        let _ = std::fs::write(&rest, vec![0; 2 << 20]);
        wait_until("it fires", || alert_of(&self.server, &host)["state"] == "firing");
        if is_killed {
            self.random.pause(PAUSE_MAX);
            self.server.kill();
        }
        for path in PATHS {
            assert_eq!(self.receiver.of(path, &host, "resolved"), [], "{}", self.server.log());
        }
        std::fs::remove_file(rest).expect("it can be removed");
        self.disk.free_space();
        if is_killed {
            self.server.start();
        }
        wait_until("it is ready again", || {
            self.server.request("GET", "/-/ready").is_ok_and(|answer| answer.status == 200)
        });
        // States that could not be stored are lost in a kill: then the alert begins anew.
        wait_until("it fires", || alert_of(&self.server, &host)["state"] == "firing");
        for path in PATHS {
            wait_until("it is delivered", || self.receiver.has(path, &host, "firing"));
        }
        set_depth(&self.server, &host, NEVER);
        for path in PATHS {
            wait_until("its end is delivered", || self.receiver.has(path, &host, "resolved"));
            let told = ["firing", "resolved"].map(|state| self.receiver.of(path, &host, state));
            let told = told.map(|messages| messages.len());
            assert!(told == [1, 1] || is_killed, "{path} {host}: {told:?}");
        }
    }
}

fn run(rounds: usize) {
    let Some(mut run) = FullDiskRun::start(random_seed()) else { return };
    for number in 0..rounds {
        run.round(number);
    }
    println!("{rounds} alerts, {} messages", run.receiver.messages().len());
    run.server.stop();
}

/// An alert begins while nothing can be stored: it is told once, at the latest when there is space.
// slow: the time must pass the value of a gauge, and a server is started again.
#[test]
fn an_alert_that_begins_on_a_full_disk_is_delivered_once() {
    run(ROUNDS);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_alerts_that_begin_on_a_full_disk_are_delivered_once() {
    run(ROUNDS_SOAK);
}
