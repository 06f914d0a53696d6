//! Checks of SNMP agents, against one that sends what it is told, by the formats of the RFCs.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use pull::{CheckJobSettings, SnmpProbe};

use crate::checks::check;
use crate::probes::{datagram_server, failure, failure_of, success};

fn probe(address: String, oids: &[&str]) -> SnmpProbe {
    let oids = oids.iter().map(|oid| (*oid).to_owned()).collect();
    SnmpProbe { snmp: address, oids, ..SnmpProbe::default() }
}

/// The response to a request for some objects whose identifiers are 1.3.N.
fn response(request: &[u8], error: u8, values: &[&[u8]]) -> Vec<u8> {
    let wrap = |kind: u8, contents: &[u8]| [&[kind, contents.len() as u8], contents].concat();
    // The request has the version, the community `public`, and its number.
    assert_eq!(request[2..13], *b"\x02\x01\x01\x04\x06public");
    let id = &request[15..21];
    let binding = |(number, value): (u8, &&[u8])| {
        let name = [6, 2, 0x2b, number];
        wrap(0x30, &[&name, *value].concat())
    };
    let bindings: Vec<u8> = (1..).zip(values).flat_map(binding).collect();
    let body = [id, &[2, 1, error, 2, 1, 0], &wrap(0x30, &bindings)].concat();
    wrap(0x30, &[&request[2..13], &wrap(0xa2, &body)].concat())
}

#[test]
fn numbers_of_an_agent_are_stored() {
    // A counter, a time of 3 s, a text.
    let values: &[&[u8]] = &[&[0x41, 1, 7], &[0x43, 2, 1, 44], &[4, 2, b'o', b'k']];
    let agent = datagram_server(|request| response(request, 0, values));
    let (fixture, phases) = success(probe(agent.clone(), &["1.3.1", ".1.3.2", "1.3.3"]));
    assert_eq!(phases, ["resolve", "wait", "total"]);
    let values = fixture.values();
    let value = |oid: &str| &*values[&format!("probe_snmp_value{{check=\"j\",oid=\"{oid}\"}}")][0];
    assert_eq!([value("1.3.1"), value("1.3.2")], ["7", "3"]);
    failure(probe(agent, &["1.3.2", "1.3.1"]), "other objects than the request");
    let missing = datagram_server(|request| response(request, 0, &[&[2, 1, 5], &[0x81, 0]]));
    let fixture = failure(probe(missing, &["1.3.1", "1.3.2"]), "the agent has no object 1.3.2");
    assert_eq!(fixture.values_of("probe_snmp_value"), ["5"]);
    let refusing = datagram_server(|request| response(request, 5, &[]));
    failure(probe(refusing, &["1.3.1"]), "the agent reports genErr");
    failure(probe(datagram_server(|_| vec![0x30, 0x84]), &["1.3.1"]), "the response is malformed");
}

#[test]
fn late_responses_are_ignored_and_a_silent_agent_times_out() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let mut late = buffer[..length].to_vec();
            // The number of another request.
            late[18] ^= 1;
            let values: &[&[u8]] = &[&[2, 1, 5]];
            socket.send_to(&response(&late, 0, values), peer).unwrap();
            socket.send_to(&response(&buffer[..length], 0, values), peer).unwrap();
        }
    });
    success(probe(address, &["1.3.1"]));
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let probe = probe(silent.local_addr().unwrap().to_string(), &["1.3.1"]);
    let timeout = Duration::from_millis(100);
    failure_of(CheckJobSettings { timeout, ..check(probe) }, "no response within 100 ms");
    // A sender of other responses without end.
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        let (length, peer) = other.recv_from(&mut buffer).unwrap();
        let mut late = buffer[..length].to_vec();
        late[18] ^= 1;
        for _ in 0..200 {
            // The client may be gone.
            let _ = other.send_to(&response(&late, 0, &[&[2, 1, 5]]), peer);
        }
    });
    failure(self::probe(address, &["1.3.1"]), "responses to other requests");
}
