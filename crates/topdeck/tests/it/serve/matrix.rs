//! The kill matrix: whatever happens to whom, what was sent is stored, to the unit, at every site.
//!
//! Short versions run in each test; `soak_` ones have a hundred rounds of each.

use super::deck::{Deck, until};
use super::link::Link;
use super::sender::Sender;

/// Rounds in a test that everybody runs.
const ROUNDS: u32 = 3;
/// And when there is time.
const ROUNDS_SOAK: u32 = 100;

/// How many values of `took` a server has.
pub(crate) fn stored(deck: &Deck) -> Option<u64> {
    let answer = deck.ask("GET", "/v1/histogram?selector=took").ok();
    let answer = answer.filter(|answer| answer.status == 200)?;
    let json: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    json["count"].as_u64()
}

#[track_caller]
pub(crate) fn await_stored(deck: &Deck, sent: u64) {
    let mut last = None;
    until(&format!("{sent} values are stored; of the last look there were {last:?}"), || {
        last = stored(deck);
        if let Some(more) = last.filter(|&stored| stored > sent) {
            panic!("{sent} values were sent and {more} are stored: counted twice");
        }
        last == Some(sent)
    });
}

pub(crate) fn pause(sender: &Sender, more: u64) {
    let before = sender.sent();
    until("the sender gets on", || sender.sent() >= before + more);
}

/// A server that something is done to, again and again, while somebody sends.
fn server(rounds: u32, disturb: fn(&mut Deck)) {
    let mut deck = Deck::new("serve", "");
    deck.start();
    let sender = Sender::start(deck.port, 1);
    for _ in 0..rounds {
        pause(&sender, 10);
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

fn kill(deck: &mut Deck) {
    deck.kill();
    deck.start();
}

#[test]
fn a_server_that_is_killed_has_what_it_acknowledged() {
    server(ROUNDS, kill);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_a_server_that_is_killed_has_what_it_acknowledged() {
    server(ROUNDS_SOAK, kill);
}

/// An agent before two sites, of which the second is behind a link.
pub(crate) struct Fleet {
    pub(crate) agent: Deck,
    pub(crate) north: Deck,
    pub(crate) south: Deck,
    pub(crate) link: Link,
}

impl Fleet {
    pub(crate) fn start() -> Fleet {
        Fleet::with(|_| {})
    }

    /// With other settings of the agent.
    pub(crate) fn with(change: fn(&Deck)) -> Fleet {
        let (mut north, mut south) = (Deck::new("serve", ""), Deck::new("serve", ""));
        let link = Link::to(south.port);
        let site = |name: &str, port: u16| {
            format!("[[site]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}\"\n")
        };
        let mut agent = Deck::new("agent", "");
        let sites = site("north", north.port) + &site("south", link.port);
        super::deck::append(&agent.settings(), &sites);
        change(&agent);
        north.start();
        south.start();
        agent.start();
        Fleet { agent, north, south, link }
    }

    /// Something is done to it, again and again, while somebody sends.
    fn run(rounds: u32, mut disturb: impl FnMut(&mut Fleet, &Sender)) {
        let mut fleet = Fleet::start();
        let sender = Sender::start(fleet.agent.port, 1);
        for _ in 0..rounds {
            pause(&sender, 10);
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

fn kill_agent(fleet: &mut Fleet, _: &Sender) {
    kill(&mut fleet.agent);
}

fn kill_site(fleet: &mut Fleet, _: &Sender) {
    kill(&mut fleet.south);
}

fn kill_both(fleet: &mut Fleet, _: &Sender) {
    fleet.agent.kill();
    fleet.south.kill();
    fleet.agent.start();
    fleet.south.start();
}

/// The other site gets everything in the meantime.
fn freeze_site(fleet: &mut Fleet, sender: &Sender) {
    fleet.south.freeze();
    pause(sender, 20);
    let sent = sender.sent();
    until("the other site has it", || stored(&fleet.north).is_some_and(|stored| stored >= sent));
    fleet.south.thaw();
}

fn cut_link(fleet: &mut Fleet, sender: &Sender) {
    fleet.link.cut();
    pause(sender, 20);
    let sent = sender.sent();
    until("the other site has it", || stored(&fleet.north).is_some_and(|stored| stored >= sent));
    fleet.link.mend();
}

// slow: a fleet of processes is killed and started again.
#[test]
fn agents_and_sites_may_be_killed() {
    Fleet::run(ROUNDS, |fleet, sender| {
        kill_agent(fleet, sender);
        kill_site(fleet, sender);
        kill_both(fleet, sender);
    });
}

#[test]
fn a_site_that_is_frozen_or_cut_off_does_not_slow_the_other() {
    Fleet::run(ROUNDS - 1, |fleet, sender| {
        freeze_site(fleet, sender);
        cut_link(fleet, sender);
    });
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_an_agent_may_be_killed() {
    Fleet::run(ROUNDS_SOAK, kill_agent);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_a_site_may_be_killed() {
    Fleet::run(ROUNDS_SOAK, kill_site);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_an_agent_and_a_site_may_be_killed_at_once() {
    Fleet::run(ROUNDS_SOAK, kill_both);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_a_site_may_be_frozen() {
    Fleet::run(ROUNDS_SOAK, freeze_site);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_a_link_may_be_cut() {
    Fleet::run(ROUNDS_SOAK, cut_link);
}
