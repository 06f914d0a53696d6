//! Kill matrix of alerts: after kills at any moment every alert that was due is delivered, none is
//! resolved that still holds, and repeats are those that `docs/alerts.md` allows.
//!
//! Two contacts get all alerts: `/key` recognizes repeats by their key, `/hook` does not. A short
//! version runs in each test run; the `soak_` version has a hundred rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::alert_receiver::{AlertMessage, AlertReceiver, ReceiverAnswer};
use super::alerts::{alerts, with_rules};
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};

/// Rounds of the short version: each moment once.
const ROUNDS: usize = MOMENTS.len();
/// Rounds of the soak version.
const ROUNDS_SOAK: usize = 100;
/// Longest time between what the test does and the kill.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(300);
/// About the time that an acknowledgement takes.
const ACKNOWLEDGEMENT_TIME: Duration = Duration::from_millis(20);
pub(super) const PATHS: [&str; 2] = ["/hook", "/key"];

/// When the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillMoment {
    /// At a random time after the rows were acknowledged.
    Firing,
    /// After a message arrived, before its response.
    Unanswered,
    /// Right after the response.
    Answered,
    /// While an acknowledgement is under way.
    Acknowledging,
    /// At a random time after the condition ended.
    Resolving,
    /// After the receiver refused a message: 429, 500.
    RateLimited,
    ServerError,
    /// After a message arrived and the connection was reset.
    Reset,
    /// While the receiver is down, which is so after the restart, too.
    Down,
}

const MOMENTS: [KillMoment; 9] = [
    KillMoment::Reset,
    KillMoment::ServerError,
    KillMoment::Firing,
    KillMoment::Unanswered,
    KillMoment::Answered,
    KillMoment::Acknowledging,
    KillMoment::Resolving,
    KillMoment::RateLimited,
    KillMoment::Down,
];

const RULES: &str = "  - alert: Deep\n    expr: depth > 5\n    annotations:\n      \
                     topdeck_missing_data: hold\n";

/// What is due of the alert of a host.
#[derive(Clone, Copy, Debug, Default)]
struct DueStates {
    is_acknowledged: bool,
    is_resolved: bool,
}

/// A server, its receiver, and the alerts so far.
pub(super) struct KillRun {
    pub(super) server: ServerProcess,
    pub(super) receiver: AlertReceiver,
    hosts: BTreeMap<String, DueStates>,
    /// Keys of notifications that `hook` did not get.
    given_up: BTreeSet<String>,
    pub(super) random: RandomTimes,
}

/// Random times, so that kills hit any moment.
pub(super) struct RandomTimes(u64);

impl RandomTimes {
    pub(super) fn new(seed: u64) -> RandomTimes {
        RandomTimes(seed | 1)
    }

    /// Waits for a random time.
    pub(super) fn pause(&mut self, max: Duration) {
        // Xorshift (Marsaglia).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        std::thread::sleep(Duration::from_micros(self.0 % max.as_micros() as u64));
    }
}

/// No alert is reminded of, however long the time of a stepped clock is.
pub(super) fn settings(receiver: &AlertReceiver) -> String {
    let contact = |name: &str, is_idempotent: bool| {
        let address = receiver.address;
        format!(
            "[[contact]]\nname = \"{name}\"\nkind = \"webhook\"\nurl = \
             \"http://{address}/{name}\"\nidempotent = {is_idempotent}\nmax_retry_interval = \
             \"1s\"\n"
        )
    };
    let (hook, key) = (contact("hook", false), contact("key", true));
    format!(
        "[alerts]\nrule_files = [\"rules.yaml\"]\n{hook}{key}[route]\nreceiver = \"hook\"\n\
         group_by = [\"...\"]\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\nrepeat_interval = \
         \"720h\"\n[[route.routes]]\nreceiver = \"hook\"\ncontinue = true\n[[route.routes]]\n\
         receiver = \"key\"\n"
    )
}

#[track_caller]
pub(super) fn set_depth(server: &ServerProcess, host: &str, value: f64) {
    let body = format!("depth,host={host} value={value}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    assert!(sent.expect("it answers").status < 300);
}

/// Whether the acknowledgement of the alert of a host was answered; the server may be killed
/// meanwhile.
pub(super) fn acknowledge(address: std::net::SocketAddr, host: &str) -> bool {
    let body = json!({"matchers": [format!("host={host}")], "for": "12h", "author": "ann"});
    let body = body.to_string();
    let path = "/v1/alerts/acknowledge";
    let response = request_at(address, "POST", path, &[], body.as_bytes());
    response.is_ok_and(|response| response.status == 200)
}

/// The alert of a host.
pub(super) fn alert_of(server: &ServerProcess, host: &str) -> Value {
    let all = alerts(server)["alerts"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|alert| alert["labels"]["host"] == host).unwrap_or_default()
}

impl KillRun {
    fn start(seed: u64) -> KillRun {
        KillRun::start_with(seed, &[])
    }

    /// A run whose server has environment variables.
    pub(super) fn start_with(seed: u64, variables: &[(&'static str, PathBuf)]) -> KillRun {
        let receiver = AlertReceiver::start();
        let mut server = ServerProcess::new("serve", &settings(&receiver));
        server.set_variables(variables);
        std::fs::write(server.dir.path("rules.yaml"), with_rules(RULES)).expect("rules");
        server.start();
        let (hosts, given_up) = (BTreeMap::new(), BTreeSet::new());
        KillRun { server, receiver, hosts, given_up, random: RandomTimes::new(seed) }
    }

    /// Time of the server in seconds.
    #[track_caller]
    pub(super) fn now_s(&self) -> i64 {
        let answer = self.server.get("/api/v1/query?query=time()").json();
        let text = answer["data"]["result"][1].as_str();
        let seconds: Option<f64> = text.and_then(|text| text.parse().ok());
        seconds.unwrap_or_else(|| panic!("{answer:#}")) as i64
    }

    /// Makes the alert of a host due.
    #[track_caller]
    pub(super) fn raise(&mut self, host: &str) {
        set_depth(&self.server, host, 7.5);
        self.hosts.insert(host.to_owned(), DueStates::default());
    }

    /// Sends the values of all hosts again.
    #[track_caller]
    pub(super) fn send_all(&self) {
        for (host, due) in &self.hosts {
            set_depth(&self.server, host, if due.is_resolved { 1.0 } else { 7.5 });
        }
    }

    pub(super) fn note_acknowledged(&mut self, host: &str) {
        self.hosts.get_mut(host).expect("an alert").is_acknowledged = true;
    }

    /// Kills the server, starts it, and notes what it will not deliver.
    pub(super) fn kill(&mut self) {
        self.server.kill();
        self.receiver.set_answer(ReceiverAnswer::Accept);
        self.server.start();
        self.note_given_up();
    }

    fn note_given_up(&mut self) {
        let status = self.server.get("/v1/status").json();
        let undelivered = status["notifications"]["undelivered"].as_array().cloned();
        for one in undelivered.unwrap_or_default() {
            assert_eq!(one["contact"], "hook", "{one:#}");
            self.given_up.insert(one["key"].as_str().expect("a key").to_owned());
        }
    }

    #[track_caller]
    fn wait_for_idle(&self) {
        wait_until("nothing is pending", || {
            self.server.get("/v1/status").json()["notifications"]["pending"] == 0
        });
    }

    #[track_caller]
    pub(super) fn wait_for(&self, path: &str, host: &str, state: &str) {
        wait_until(&format!("{path}: {host} {state}"), || self.receiver.has(path, host, state));
    }

    /// Ends the condition of the alert of a host, which nobody has resolved before.
    #[track_caller]
    pub(super) fn lower(&mut self, host: &str) {
        for path in PATHS {
            let early = self.receiver.of(path, host, "resolved");
            assert!(early.is_empty(), "false resolve: {early:?}\n{}", self.server.log());
        }
        set_depth(&self.server, host, 1.0);
        self.hosts.get_mut(host).expect("an alert").is_resolved = true;
    }

    fn round(&mut self, number: usize) {
        let (host, moment) = (format!("r{number}"), MOMENTS[number % MOMENTS.len()]);
        self.receiver.set_answer(match moment {
            KillMoment::Unanswered => ReceiverAnswer::Hold,
            KillMoment::RateLimited => ReceiverAnswer::RateLimit,
            KillMoment::ServerError | KillMoment::Down => ReceiverAnswer::ServerError,
            KillMoment::Reset => ReceiverAnswer::Reset,
            _ => ReceiverAnswer::Accept,
        });
        let (refused, held) = (self.receiver.refused(), self.receiver.held());
        self.raise(&host);
        match moment {
            KillMoment::Firing => self.random.pause(PAUSE_MAX),
            // A contact sends one message at a time: perhaps that of an earlier round.
            KillMoment::Unanswered => {
                wait_until("a message gets no response", || self.receiver.held() > held);
            }
            KillMoment::Answered => self.wait_for("/hook", &host, "firing"),
            KillMoment::Reset => self.wait_for("/key", &host, "firing"),
            KillMoment::RateLimited | KillMoment::ServerError => {
                wait_until("a message is refused", || self.receiver.refused() > refused);
            }
            KillMoment::Down => {
                wait_until("a message is refused", || self.receiver.refused() > refused);
                self.server.kill();
                let refused = self.receiver.refused();
                self.server.start();
                wait_until("it is refused again", || self.receiver.refused() > refused);
                self.receiver.set_answer(ReceiverAnswer::Accept);
                self.note_given_up();
                return;
            }
            KillMoment::Resolving => {
                self.wait_for("/key", &host, "firing");
                self.lower(&host);
                self.random.pause(PAUSE_MAX);
            }
            KillMoment::Acknowledging => {
                self.wait_for("/key", &host, "firing");
                let (address, asked) = (self.server.address(), host.clone());
                let asking = std::thread::spawn(move || acknowledge(address, &asked));
                self.random.pause(ACKNOWLEDGEMENT_TIME);
                self.server.kill();
                let is_answered = asking.join().expect("no panic");
                self.server.start();
                let found = !alert_of(&self.server, &host)["acknowledgement"].is_null();
                assert!(found || !is_answered, "the acknowledgement of {host} is lost");
                if found {
                    self.note_acknowledged(&host);
                }
                return;
            }
        }
        self.kill();
    }

    /// Ends all alerts and checks what arrived.
    pub(super) fn finish(mut self) {
        let hosts: Vec<(String, DueStates)> =
            self.hosts.iter().map(|(host, due)| (host.clone(), *due)).collect();
        for (host, due) in &hosts {
            self.wait_for("/key", host, "firing");
            if due.is_acknowledged {
                self.wait_for("/key", host, "acknowledged");
            }
        }
        self.wait_for_idle();
        self.note_given_up();
        for (host, _) in hosts.iter().filter(|(_, due)| !due.is_resolved) {
            self.lower(host);
        }
        for (host, _) in &hosts {
            self.wait_for("/key", host, "resolved");
        }
        self.wait_for_idle();
        self.note_given_up();
        for (host, _) in &hosts {
            for state in ["firing", "resolved"] {
                let key = self.receiver.of("/key", host, state)[0].key.clone();
                // Two kills, each before the message was sent: another repeat could be one too
                // many.
                let is_told = self.receiver.has("/hook", host, state);
                assert!(is_told || self.given_up.contains(&key), "{host} {state} is lost");
            }
        }
        let repeats = self.check_order_and_repeats();
        println!(
            "{} kills and alerts, {} messages, {repeats} marked as repeats, {} given up",
            hosts.len(),
            self.receiver.messages().len(),
            self.given_up.len()
        );
        self.server.stop();
    }

    /// Returns the number of marked messages.
    fn check_order_and_repeats(&self) -> usize {
        let all = self.receiver.messages();
        let repeats = check_messages(&all);
        // One alert per host, whatever was killed.
        for host in self.hosts.keys() {
            let of_host = all.iter().filter(|message| message.host == *host);
            let mut ids: Vec<&str> =
                of_host.filter_map(|message| message.key.split('/').next()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 1, "{host}: {ids:?}");
        }
        repeats
    }
}

/// No state is told after a newer one by a server; a contact without keys gets a message twice at
/// most, the second marked. Each server has paths of its own. Returns the number of marked
/// messages.
#[track_caller]
pub(super) fn check_messages(all: &[AlertMessage]) -> usize {
    let mut of_keys: BTreeMap<(String, String), Vec<bool>> = BTreeMap::new();
    let mut newest: BTreeMap<(String, String), u64> = BTreeMap::new();
    for AlertMessage { path, key, may_be_duplicate, .. } in all.iter().cloned() {
        let (alert, transition) = key.split_once('/').expect("alert and number");
        let transition: u64 = transition.parse().expect("a number, and no reminder");
        let newest = newest.entry((path.clone(), alert.to_owned())).or_default();
        assert!(*newest <= transition, "{path} got {key} after {newest}");
        *newest = transition;
        of_keys.entry((path, key)).or_default().push(may_be_duplicate);
    }
    for ((path, key), marks) in &of_keys {
        let is_right = match path.ends_with("/hook") {
            true => marks.len() <= 2 && marks[1..].iter().all(|may_be_duplicate| *may_be_duplicate),
            false => marks.iter().all(|may_be_duplicate| !may_be_duplicate),
        };
        assert!(is_right, "{path} {key}: {marks:?}");
    }
    of_keys.values().flatten().filter(|may_be_duplicate| **may_be_duplicate).count()
}

fn run(rounds: usize, seed: u64) {
    println!("seed {seed}");
    let mut run = KillRun::start(seed);
    for number in 0..rounds {
        run.round(number);
    }
    run.finish();
}

pub(super) fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}

// slow: a server is killed and started again, and a retry after an error waits for 2.5 s and more.
#[test]
fn alerts_survive_kills_at_any_moment() {
    run(ROUNDS, random_seed());
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_alerts_survive_kills_at_any_moment() {
    run(ROUNDS_SOAK, random_seed());
}
