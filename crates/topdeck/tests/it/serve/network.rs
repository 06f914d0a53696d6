//! Network partition: the remote is in its own network namespace. Unlike with a proxy, no side is
//! informed that a connection has ended. Tokens are required, as between any two hosts.

use std::net::Ipv4Addr;
use std::process::Command;

use super::load_sender::LoadSender;
use super::matrix::{await_stored, pause_until_sent};
use super::server_process::{ServerProcess, append};
use crate::environment::fresh_name;

fn ip(line: &str) -> bool {
    Command::new("ip").args(line.split(' ')).output().is_ok_and(|output| output.status.success())
}

/// Network namespace with a veth pair, until drop.
struct TestNetwork {
    name: String,
    ends: [String; 2],
    /// Address of each end.
    addresses: [Ipv4Addr; 2],
}

impl TestNetwork {
    fn new() -> Option<TestNetwork> {
        let name = fresh_name();
        // Interface names are limited to 15 characters.
        let number = &name[name.len() - 8..];
        let ends = [format!("td{number}a"), format!("td{number}b")];
        // Two addresses of the 2^15 pairs in 198.18.0.0/15, which is reserved for tests (RFC 2544).
        let pair = u32::from_str_radix(number, 16).expect("digits") % (1 << 15);
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0)) + 4 * pair;
        let addresses = [first + 1, first + 2].map(Ipv4Addr::from);
        let network = TestNetwork { name: name.clone(), ends, addresses };
        let (name, [here, there]) = (&network.name, &network.ends);
        let [own, site] = addresses;
        let is_made = ip(&format!("netns add {name}"))
            && ip(&format!("link add {here} type veth peer name {there} netns {name}"))
            && ip(&format!("addr add {own}/30 dev {here}"))
            && ip(&format!("link set {here} up"))
            && ip(&format!("-n {name} addr add {site}/30 dev {there}"))
            && ip(&format!("-n {name} link set {there} up"))
            && ip(&format!("-n {name} link set lo up"));
        if !is_made {
            println!("skipped: this process may not make networks");
            return None;
        }
        Some(network)
    }

    fn set(&self, state: &str) {
        assert!(ip(&format!("-n {} link set {} {state}", self.name, self.ends[1])));
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        // Deletes the veth pair as well.
        ip(&format!("netns del {}", self.name));
    }
}

fn run_unplugged(rounds: u32) {
    let Some(network) = TestNetwork::new() else { return };
    let mut site = ServerProcess::in_network(&network.name, network.addresses[1]);
    site.start();
    let mut agent = ServerProcess::new("agent", "");
    std::fs::write(agent.dir.path("token"), site.token()).expect("it can be written");
    let settings = format!(
        "[[remote]]\nname = \"site\"\nurl = \"http://{}\"\ntoken_file = \"token\"\n",
        site.address()
    );
    append(&agent.settings(), &settings);
    agent.start();
    let sender = LoadSender::start(agent.port, 1);
    for _ in 0..rounds {
        pause_until_sent(&sender, 10);
        network.set("down");
        pause_until_sent(&sender, 10);
        network.set("up");
    }
    let sent = sender.stop();
    await_stored(&site, sent);
    site.audit();
    agent.audit();
}

#[test]
fn unplugged_cable_loses_nothing() {
    run_unplugged(2);
}

#[test]
#[ignore = "a hundred rounds; `make soak` runs it"]
fn soak_unplugged_cable_loses_nothing() {
    run_unplugged(100);
}
