//! The label `peer`: the clients with the most time have one, all others are one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::conversation::{HttpConnection, by_time};
use crate::fixture::{JournalRows, WireFixture};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// Six clients, which send 1 to 6 requests.
fn capture(keys: &str) -> JournalRows {
    let fixture = WireFixture::new(Duration::from_secs(60));
    let connection = |client: u8| {
        let address = [10, 0, client, 7];
        let mut connection = HttpConnection::of_client(address, 40_000, START + u64::from(client));
        for request in 0..u64::from(client) {
            let time = START + (request + 1) * SECOND + u64::from(client) * 10_000;
            connection.request(time, "/a");
            connection.response(time + 1_000, "200 OK");
        }
        connection
    };
    let keys = format!("protocols = []\nservices = ['web=8080/http']\n{keys}");
    fixture.capture(&keys, by_time((1..=6).map(connection))).stop().unwrap();
    fixture.contents()
}

/// Operations by the label `peer`.
#[track_caller]
fn check(keys: &str, expected: &[(Option<&str>, u64)]) {
    let rows = capture(keys);
    let mut peers: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for (series, _) in rows.rows.iter().filter(|(series, _)| series.name() == "wire_latency") {
        let peer = series.label("peer");
        let labels = peer.map(|peer| ("peer", peer));
        let count = rows.distribution("wire_latency", labels.as_slice()).count();
        peers.insert(peer.map(str::to_owned), count);
    }
    let found = peers.iter().map(|(peer, count)| (peer.as_deref(), *count));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 21);
}

#[test]
fn clients_are_not_told_apart_by_default() {
    check("", &[(None, 21)]);
}

#[test]
fn the_clients_with_the_most_time_have_a_label() {
    let expected = [(Some("10.0.5.7"), 5), (Some("10.0.6.7"), 6), (Some("other"), 10)];
    check("peer_ipv4_prefix = 32\nmax_peers = 2", &expected);
}

#[test]
fn clients_of_a_network_are_one() {
    check("peer_ipv4_prefix = 16", &[(Some("10.0.0.0/16"), 21)]);
}
