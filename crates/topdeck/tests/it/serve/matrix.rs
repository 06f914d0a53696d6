//! Kill matrix: after any sequence of kills all sent values are stored exactly once at every
//! remote.
//!
//! Short versions run in each test run; `soak_` versions have a hundred rounds each.

use super::load_sender::LoadSender;
use super::proxy::Proxy;
use super::server_process::{ServerProcess, wait_until};

/// Rounds of the short versions.
const ROUNDS: u32 = 3;
/// Rounds of the soak versions.
const ROUNDS_SOAK: u32 = 100;

/// Number of values of `took` on a server.
pub(crate) fn stored(deck: &ServerProcess) -> Option<u64> {
    let answer = deck.request("GET", "/v1/histogram?selector=took").ok();
    let answer = answer.filter(|answer| answer.status == 200)?;
    let json: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    json["count"].as_u64()
}

#[track_caller]
pub(crate) fn await_stored(deck: &ServerProcess, sent: u64) {
    let mut last = None;
    wait_until(&format!("{sent} values are stored; of the last look there were {last:?}"), || {
        last = stored(deck);
        if let Some(more) = last.filter(|&stored| stored > sent) {
            panic!("{sent} values were sent and {more} are stored: counted twice");
        }
        last == Some(sent)
    });
}

pub(crate) fn pause_until_sent(sender: &LoadSender, more: u64) {
    let before = sender.acknowledged();
    wait_until("the sender gets on", || sender.acknowledged() >= before + more);
}

/// Disturbs a server repeatedly while a client sends.
fn run_server(rounds: u32, disturb: fn(&mut ServerProcess)) {
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let sender = LoadSender::start(deck.port, 1);
    for _ in 0..rounds {
        pause_until_sent(&sender, 10);
        disturb(&mut deck);
    }
    let sent = sender.stop();
    await_stored(&deck, sent);
    deck.audit();
    deck.stop();
    deck.start();
    await_stored(&deck, sent);
    deck.audit();
}

fn kill_server(deck: &mut ServerProcess) {
    deck.kill();
    deck.start();
}

#[test]
fn killed_server_keeps_acknowledged_values() {
    run_server(ROUNDS, kill_server);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_killed_server_keeps_acknowledged_values() {
    run_server(ROUNDS_SOAK, kill_server);
}

/// An agent with two remotes; the second one is behind a proxy.
pub(crate) struct TestFleet {
    pub(crate) agent: ServerProcess,
    pub(crate) north: ServerProcess,
    pub(crate) south: ServerProcess,
    pub(crate) proxy: Proxy,
}

impl TestFleet {
    pub(crate) fn start() -> TestFleet {
        TestFleet::with(|_| {})
    }

    /// Fleet with changed settings of the agent.
    pub(crate) fn with(change: fn(&ServerProcess)) -> TestFleet {
        let (mut north, mut south) =
            (ServerProcess::new("serve", ""), ServerProcess::new("serve", ""));
        let link = Proxy::new(south.port);
        let site = |name: &str, port: u16| {
            format!("[[remote]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}\"\n")
        };
        let mut agent = ServerProcess::new("agent", "");
        let sites = site("north", north.port) + &site("south", link.port);
        super::server_process::append(&agent.settings(), &sites);
        change(&agent);
        north.start();
        south.start();
        agent.start();
        TestFleet { agent, north, south, proxy: link }
    }

    /// Disturbs the fleet repeatedly while a client sends.
    fn run(rounds: u32, mut disturb: impl FnMut(&mut TestFleet, &LoadSender)) {
        let mut fleet = TestFleet::start();
        let sender = LoadSender::start(fleet.agent.port, 1);
        for _ in 0..rounds {
            pause_until_sent(&sender, 10);
            disturb(&mut fleet, &sender);
        }
        let sent = sender.stop();
        await_stored(&fleet.north, sent);
        await_stored(&fleet.south, sent);
        for deck in [&fleet.agent, &fleet.north, &fleet.south] {
            deck.audit();
        }
    }
}

fn kill_agent(fleet: &mut TestFleet, _: &LoadSender) {
    kill_server(&mut fleet.agent);
}

fn kill_remote(fleet: &mut TestFleet, _: &LoadSender) {
    kill_server(&mut fleet.south);
}

fn kill_both(fleet: &mut TestFleet, _: &LoadSender) {
    fleet.agent.kill();
    fleet.south.kill();
    fleet.agent.start();
    fleet.south.start();
}

/// The other remote receives everything in the meantime.
fn freeze_remote(fleet: &mut TestFleet, sender: &LoadSender) {
    fleet.south.freeze();
    pause_until_sent(sender, 20);
    let sent = sender.acknowledged();
    wait_until("the other site has it", || {
        stored(&fleet.north).is_some_and(|stored| stored >= sent)
    });
    fleet.south.resume();
}

fn cut_proxy(fleet: &mut TestFleet, sender: &LoadSender) {
    fleet.proxy.disconnect();
    pause_until_sent(sender, 20);
    let sent = sender.acknowledged();
    wait_until("the other site has it", || {
        stored(&fleet.north).is_some_and(|stored| stored >= sent)
    });
    fleet.proxy.reconnect();
}

// slow: a fleet of processes is killed and started again.
#[test]
fn killed_agents_and_remotes_lose_nothing() {
    TestFleet::run(ROUNDS, |fleet, sender| {
        kill_agent(fleet, sender);
        kill_remote(fleet, sender);
        kill_both(fleet, sender);
    });
}

#[test]
fn frozen_or_disconnected_remote_does_not_delay_the_other() {
    TestFleet::run(ROUNDS - 1, |fleet, sender| {
        freeze_remote(fleet, sender);
        cut_proxy(fleet, sender);
    });
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_killed_agent_loses_nothing() {
    TestFleet::run(ROUNDS_SOAK, kill_agent);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_killed_remote_loses_nothing() {
    TestFleet::run(ROUNDS_SOAK, kill_remote);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_killed_agent_and_remote_lose_nothing() {
    TestFleet::run(ROUNDS_SOAK, kill_both);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_frozen_remote_loses_nothing() {
    TestFleet::run(ROUNDS_SOAK, freeze_remote);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_disconnected_remote_loses_nothing() {
    TestFleet::run(ROUNDS_SOAK, cut_proxy);
}
