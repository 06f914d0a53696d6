//! A cable that is unplugged: the site is in a network of its own. Nobody is told then that a connection is over, as a
//! proxy would tell; with tokens, as between any two hosts.

use std::process::Command;

use super::deck::{Deck, append};
use super::matrix::{await_stored, pause};
use super::sender::Sender;

/// The two ends of the cable.
const HERE: &str = "10.213.77.1";
const SITE: [u8; 4] = [10, 213, 77, 2];

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|output| output.status.success())
}

/// A network with a cable to it, while it exists.
struct Network {
    name: String,
    ends: [String; 2],
}

impl Network {
    fn new() -> Option<Network> {
        let number = std::process::id();
        let ends = [format!("td{number}a"), format!("td{number}b")];
        let network = Network { name: format!("topdeck-{number}"), ends };
        let (name, [here, there]) = (&network.name, &network.ends);
        let [a, b, c, d] = SITE;
        let is_made = ip(&format!("netns add {name}"))
            && ip(&format!("link add {here} type veth peer name {there} netns {name}"))
            && ip(&format!("addr add {HERE}/30 dev {here}"))
            && ip(&format!("link set {here} up"))
            && ip(&format!("-n {name} addr add {a}.{b}.{c}.{d}/30 dev {there}"))
            && ip(&format!("-n {name} link set {there} up"))
            && ip(&format!("-n {name} link set lo up"));
        if !is_made {
            eprintln!("skipped: this process may not make networks");
            return None;
        }
        Some(network)
    }

    fn set(&self, state: &str) {
        assert!(ip(&format!("-n {} link set {} {state}", self.name, self.ends[1])));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The cable goes with it.
        ip(&format!("netns del {}", self.name));
    }
}

fn unplugged(rounds: u32) {
    let Some(network) = Network::new() else { return };
    let mut site = Deck::within(&network.name, SITE);
    site.start();
    let mut agent = Deck::new("agent", "");
    std::fs::write(agent.folder.path("token"), site.token()).expect("it can be written");
    let settings = format!(
        "[[site]]\nname = \"site\"\nurl = \"http://{}\"\ntoken_file = \"token\"\n",
        site.address()
    );
    append(&agent.settings(), &settings);
    agent.start();
    let sender = Sender::start(agent.port, 1);
    for _ in 0..rounds {
        pause(&sender, 10);
        network.set("down");
        pause(&sender, 10);
        network.set("up");
    }
    let sent = sender.stop();
    await_stored(&site, sent);
    site.audit();
    agent.audit();
}

#[test]
fn a_cable_may_be_unplugged() {
    unplugged(2);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_a_cable_may_be_unplugged() {
    unplugged(100);
}
