//! Services over UDP.

use protocol::fingerprint::RouteTemplates;
use wire::{CapturedPacket, ConnectionTracker, LinkType, ServiceRule, ServiceTransport};

use crate::checks::message_protocol::{DATAGRAM_PROTOCOL, PORT, message};
use crate::conversation::{START, counts, measured_latencies, settings};

fn tracker(connections_max: usize) -> ConnectionTracker {
    let mut settings = settings();
    settings.rules = vec![ServiceRule {
        address: None,
        port: PORT,
        transport: ServiceTransport::Udp,
        protocol: &DATAGRAM_PROTOCOL,
        name: Some("names".to_owned()),
    }];
    settings.connections_max = connections_max;
    settings.routes = RouteTemplates::default();
    ConnectionTracker::new(settings)
}

/// Reads a datagram between a client and the server; `cut` bytes of it are not captured.
fn read(tracker: &mut ConnectionTracker, time: u64, client: u16, payload: &[u8], cut: usize) {
    let is_response = payload.get(1) == Some(&b'R');
    let (mut ips, mut ports) = ([[10, 0, 0, 1], [10, 0, 0, 2]], [client, PORT]);
    if is_response {
        ips.reverse();
        ports.reverse();
    }
    let size = payload.len() as u16;
    let mut bytes = vec![0x45, 0];
    bytes.extend((28 + size).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    bytes.extend(ips.concat());
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend((8 + size).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(&payload[..payload.len() - cut]);
    let original_bytes = 28 + u32::from(size);
    let (time, link_type) = (Some(START + time), LinkType::RawIp);
    tracker.read(&CapturedPacket { time, link_type, bytes: &bytes, original_bytes });
}

#[test]
fn requests_and_responses_are_paired_by_client() {
    let mut tracker = tracker(100);
    read(&mut tracker, 0, 40_000, &message(b'Q', 1, 10), 0);
    read(&mut tracker, 5, 40_001, &message(b'Q', 2, 10), 0);
    read(&mut tracker, 7, 40_001, &message(b'R', 2, 100), 0);
    assert_eq!(counts(&tracker), (1, 0, 1));
    read(&mut tracker, 30, 40_000, &message(b'R', 1, 100), 0);
    assert_eq!(counts(&tracker), (2, 0, 0));
    assert_eq!(measured_latencies(&tracker), [(1, 30), (2, 2)].into());
    let service = &tracker.services()[0];
    assert_eq!(service.name, "names");
    assert_eq!((service.completeness.packets, service.completeness.gaps), (4, 0));
    assert_eq!(tracker.totals().other_udp.packets, 0);
}

#[test]
fn a_cut_datagram_is_a_gap() {
    let mut tracker = tracker(100);
    read(&mut tracker, 0, 40_000, &message(b'Q', 1, 10), 0);
    read(&mut tracker, 5, 40_000, &message(b'R', 1, 100), 3);
    assert_eq!(counts(&tracker), (0, 1, 0));
    assert_eq!(tracker.services()[0].completeness.gap_bytes, 109);
}

#[test]
fn flows_are_bounded_and_forgotten() {
    let mut tracker = tracker(10);
    for client in 0..25 {
        read(&mut tracker, 0, 40_000 + client, &message(b'Q', client.into(), 10), 0);
    }
    assert_eq!(counts(&tracker), (0, 15, 10));
    assert_eq!(tracker.services()[0].completeness.evicted_connections, 15);
    read(&mut tracker, 90_000_000_000, 50_000, &message(b'Q', 100, 10), 0);
    assert_eq!(counts(&tracker), (0, 25, 1));
    assert_eq!(tracker.services()[0].completeness.idle_connections, 10);
}

#[test]
fn other_datagrams_are_counted() {
    let mut tracker = tracker(10);
    read(&mut tracker, 0, 40_000, b"", 0);
    assert_eq!(tracker.services()[0].completeness.packets, 1);
    let mut none = settings();
    none.rules.clear();
    let mut tracker = ConnectionTracker::new(none);
    read(&mut tracker, 0, 40_000, b"abc", 0);
    assert_eq!(tracker.totals().other_udp.bytes, 3);
}
