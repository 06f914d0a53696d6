//! Kill matrix of two sites: whatever is killed, frozen or cut, every alert that was due and its
//! end are delivered by one of the sites, none is resolved that still holds, and no site repeats
//! more than `docs/alerts.md` allows.
//!
//! The contacts of a site have paths of its own: `/p/hook` and `/p/key` those of the primary,
//! `/s/hook` and `/s/key` those of the standby. A short version runs in each test run; the `soak_`
//! version has a hundred rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::alert_kills::{RandomTimes, check_messages, random_seed, set_depth, settings};
use super::alert_receiver::AlertReceiver;
use super::alerts::with_rules;
use super::proxy::Proxy;
use super::server_process::{ServerProcess, TestDir, append, wait_until};

/// Rounds of the short version.
const ROUNDS: usize = 3;
/// Rounds of the soak version.
const ROUNDS_SOAK: usize = 100;
/// Longest time between the rows of an alert and the failure.
const PAUSE_MAX: Duration = Duration::from_millis(300);
const SITES: [&str; 2] = ["p", "s"];
const CONTACTS: [&str; 2] = ["hook", "key"];

const RULES: &str = "  - alert: Deep\n    expr: depth > 5\n    annotations:\n      \
                     topdeck_missing_data: hold\n";

/// What happens at a random time after the rows of an alert were acknowledged by both sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SiteFailure {
    /// The primary is killed, and an alert ends before it starts again.
    Primary,
    /// The primary stands still, and answers again.
    Frozen,
    /// The sites do not reach each other: both send.
    Connection,
    Standby,
    Both,
}

const FAILURES: [SiteFailure; 5] = [
    SiteFailure::Primary,
    SiteFailure::Frozen,
    SiteFailure::Connection,
    SiteFailure::Standby,
    SiteFailure::Both,
];

/// Two sites, their receiver, and the alerts so far.
struct SiteKillRun {
    primary: ServerProcess,
    standby: ServerProcess,
    proxy: Proxy,
    receiver: AlertReceiver,
    /// Whether the condition of the alert of a host has ended.
    hosts: BTreeMap<String, bool>,
    /// Keys of notifications that `hook` of a site did not get.
    given_up: BTreeSet<String>,
    random: RandomTimes,
    /// Rule files have the same path at both sites, as their alerts have the same keys.
    _rules: TestDir,
}

/// Value of the gauge.
fn depth(is_ended: bool) -> f64 {
    if is_ended { 1.0 } else { 7.5 }
}

impl SiteKillRun {
    fn start(seed: u64) -> SiteKillRun {
        println!("seed {seed}");
        let (rules, receiver) = (TestDir::new(), AlertReceiver::start());
        let path = rules.path("rules.yaml");
        std::fs::write(&path, with_rules(RULES)).expect("rules are written");
        let site = |name: &str| {
            let files = format!("rule_files = [{path:?}]");
            let more = settings(&receiver).replace("rule_files = [\"rules.yaml\"]", &files);
            let own = format!("http://{}/{name}/", receiver.address);
            let url = format!("http://{}/", receiver.address);
            ServerProcess::new("serve", &more.replace(&url, &own))
        };
        let (mut primary, mut standby) = (site("p"), site("s"));
        let proxy = Proxy::new(primary.port);
        let url = format!("http://127.0.0.1:{}", proxy.port);
        let table = format!("[alerts.primary]\nurl = \"{url}\"\nfailover_after = \"1s\"\n");
        append(&standby.settings(), &table);
        primary.start();
        standby.start();
        SiteKillRun {
            primary,
            standby,
            proxy,
            receiver,
            hosts: BTreeMap::new(),
            given_up: BTreeSet::new(),
            random: RandomTimes::new(seed),
            _rules: rules,
        }
    }

    /// Whether a site told a contact a state of the alert of a host.
    fn has(&self, site: &str, contact: &str, host: &str, state: &str) -> bool {
        self.receiver.has(&format!("/{site}/{contact}"), host, state)
    }

    #[track_caller]
    fn wait_for(&self, host: &str, state: &str) {
        wait_until(&format!("{host} {state} is told by a site"), || {
            SITES.iter().any(|site| self.has(site, "key", host, state))
        });
    }

    /// Starts a site that was killed, which then gets the rows that it has missed.
    #[track_caller]
    fn restart(&mut self, of: impl Fn(&mut SiteKillRun) -> &mut ServerProcess) {
        of(self).start();
        let hosts = self.hosts.clone();
        for (host, is_ended) in &hosts {
            set_depth(of(self), host, depth(*is_ended));
        }
        self.note_given_up();
    }

    /// Waits until the primary answers the standby.
    #[track_caller]
    fn wait_for_answer(&self) {
        wait_until("the standby holds what it has", || {
            let status = self.standby.get("/v1/status").json();
            let primary = &status["notifications"]["primary"];
            primary["is_sending"] == false && primary["error"].is_null()
        });
    }

    fn note_given_up(&mut self) {
        for (site, server) in [("p", &self.primary), ("s", &self.standby)] {
            // It may be down.
            let Ok(status) = server.request("GET", "/v1/status") else { continue };
            let undelivered = status.json()["notifications"]["undelivered"].as_array().cloned();
            for one in undelivered.unwrap_or_default() {
                assert_eq!(one["contact"], "hook", "{site}: {one:#}");
                self.given_up.insert(one["key"].as_str().expect("a key").to_owned());
            }
        }
    }

    /// Notes that the condition of an alert ends, which nobody has resolved before.
    #[track_caller]
    fn note_end(&mut self, host: &str) {
        for (site, contact) in SITES.iter().flat_map(|site| CONTACTS.map(|one| (site, one))) {
            let early = self.receiver.of(&format!("/{site}/{contact}"), host, "resolved");
            assert!(early.is_empty(), "false resolve: {early:?}\n{}", self.standby.log());
        }
        self.hosts.insert(host.to_owned(), true);
    }

    /// An alert begins in each round, and that of the round before ends.
    fn round(&mut self, number: usize) {
        let (host, failure) = (format!("r{number}"), FAILURES[number % FAILURES.len()]);
        let ending = number.checked_sub(1).map(|before| format!("r{before}"));
        self.hosts.insert(host.clone(), false);
        if failure == SiteFailure::Connection {
            self.proxy.disconnect();
        }
        for site in [&self.primary, &self.standby] {
            set_depth(site, &host, depth(false));
        }
        self.random.pause(PAUSE_MAX);
        match failure {
            SiteFailure::Primary => {
                self.primary.kill();
                self.wait_for(&host, "firing");
                if let Some(ending) = &ending {
                    self.note_end(ending);
                    set_depth(&self.standby, ending, depth(true));
                    self.wait_for(ending, "resolved");
                }
                self.restart(|run| &mut run.primary);
            }
            SiteFailure::Frozen => {
                self.primary.freeze();
                wait_until("the standby sends", || {
                    let status = self.standby.get("/v1/status").json();
                    status["notifications"]["primary"]["is_sending"] == true
                });
                self.wait_for(&host, "firing");
                self.primary.resume();
            }
            SiteFailure::Connection => {
                wait_until("both send", || {
                    SITES.iter().all(|site| self.has(site, "key", &host, "firing"))
                });
                self.proxy.reconnect();
            }
            SiteFailure::Standby => {
                self.standby.kill();
                self.wait_for(&host, "firing");
                self.restart(|run| &mut run.standby);
            }
            SiteFailure::Both => {
                self.primary.kill();
                self.standby.kill();
                self.restart(|run| &mut run.primary);
                self.restart(|run| &mut run.standby);
                self.wait_for(&host, "firing");
            }
        }
        self.wait_for_answer();
        if let Some(ending) = ending.filter(|ending| !self.hosts[ending]) {
            self.end_at_both(&ending);
        }
    }

    #[track_caller]
    fn end_at_both(&mut self, host: &str) {
        self.note_end(host);
        for site in [&self.primary, &self.standby] {
            set_depth(site, host, depth(true));
        }
        self.wait_for(host, "resolved");
    }

    /// Ends the last alert and checks what arrived.
    fn finish(mut self) {
        let hosts: Vec<(String, bool)> =
            self.hosts.iter().map(|(host, is_ended)| (host.clone(), *is_ended)).collect();
        for (host, _) in hosts.iter().filter(|(_, is_ended)| !is_ended) {
            self.end_at_both(host);
        }
        wait_until("nothing is pending", || {
            self.primary.get("/v1/status").json()["notifications"]["pending"] == 0
        });
        self.note_given_up();
        for (host, _) in &hosts {
            for state in ["firing", "resolved"] {
                let is_told = SITES.iter().any(|site| self.has(site, "hook", host, state));
                let of_key =
                    SITES.map(|site| self.receiver.of(&format!("/{site}/key"), host, state));
                let mut keys = of_key.iter().flatten().map(|message| &message.key);
                let is_given_up = keys.any(|key| self.given_up.contains(key));
                assert!(is_told || is_given_up, "{host} {state} is lost");
            }
        }
        let messages = self.receiver.messages();
        let repeats = check_messages(&messages);
        println!(
            "{} alerts, {} messages, {repeats} marked as repeats, {} given up",
            hosts.len(),
            messages.len(),
            self.given_up.len()
        );
        self.standby.stop();
        self.primary.stop();
    }
}

fn run(rounds: usize) {
    let mut run = SiteKillRun::start(random_seed());
    for number in 0..rounds {
        run.round(number);
    }
    run.finish();
}

// slow: the standby sends after a second of silence, and servers are started again.
#[test]
fn alerts_of_two_sites_survive_failures_at_any_moment() {
    run(ROUNDS);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_alerts_of_two_sites_survive_failures_at_any_moment() {
    run(ROUNDS_SOAK);
}
