//! Memory of 10,000 open connections of all protocols, each with half a request and a hole.

use protocol::PROTOCOLS;
use protocol::observer::FlowDirection;
use wire::{CaptureMemory, ConnectionTracker, RING_BLOCKS, ServiceRule, TcpFlags, TrackerSettings};

use crate::conversation::{START, TestPacket, settings};

const CONNECTIONS: u16 = 10_000;
/// Bytes of a request that is not complete.
const REQUEST_BYTES: usize = 16_000;
/// Bytes behind the hole.
const BEHIND_BYTES: usize = 4_000;
/// Limits with which nothing is forgotten.
const OBSERVER_BYTES_MAX: usize = 112 << 20;
const REORDER_BYTES_MAX: usize = 48 << 20;

/// The first bytes of a connection, and of a request with a long body, text or head.
fn half_request(protocol: &str) -> Vec<u8> {
    let mut bytes = match protocol {
        "postgres" => {
            let mut bytes = b"\0\0\0\x11\0\x03\0\0user\0me\0\0Q".to_vec();
            bytes.extend(50_000_u32.to_be_bytes());
            bytes
        }
        "http" => b"GET /items HTTP/1.1\r\nHost: shop\r\nCookie: ".to_vec(),
        "grpc" | "http2" => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\x40\0\x01\x04\0\0\0\x01".to_vec(),
        "redis" => b"*3\r\n$3\r\nSET\r\n$5\r\nhello\r\n$100000\r\n".to_vec(),
        "mysql" => b"\x50\xc3\0\0\x03select ".to_vec(),
        "kafka" => b"\0\0\xc3\x50\0\0\0\x07\0\0\0\x01\0\x03app".to_vec(),
        "cassandra" => b"\x04\0\0\x01\x07\0\0\xc3\x50\0\0\xc0\0select ".to_vec(),
        "mongodb" => b"\x50\xc3\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0".to_vec(),
        _ => vec![0xff; 2],
    };
    bytes.resize(REQUEST_BYTES, b'1');
    bytes
}

/// A tracker that has read the connections.
fn many_connections(observer_bytes_max: usize, reorder_bytes_max: usize) -> ConnectionTracker {
    let rules = ServiceRule::with_default_ports([], &PROTOCOLS.iter().collect::<Vec<_>>());
    let settings = TrackerSettings {
        rules,
        connections_max: usize::from(CONNECTIONS),
        observer_bytes_max,
        reorder_bytes_max,
        ..settings()
    };
    let mut tracker = ConnectionTracker::new(settings);
    for connection in 0..CONNECTIONS {
        let protocol = &PROTOCOLS[usize::from(connection) % PROTOCOLS.len()];
        let mut time = START + u64::from(connection) * 1_000;
        let mut read = |direction, flags: u8, position: u64, payload: &[u8], acknowledged| {
            time += 100;
            let packet = TestPacket {
                time,
                direction,
                position,
                flags,
                payload: payload.to_vec(),
                acknowledged,
                captured: payload.len(),
                client_port: 20_000 + connection,
                initial: [1_000, 5_000],
            };
            packet.read_with_port(&mut tracker, protocol.default_ports[0]);
        };
        let (to_server, to_client) = (FlowDirection::ToServer, FlowDirection::ToClient);
        read(to_server, TcpFlags::SYN.0, 0, b"", 0);
        read(to_client, TcpFlags::SYN.0 | TcpFlags::ACK.0, 0, b"", 0);
        read(to_server, TcpFlags::ACK.0, 0, b"", 0);
        read(to_server, TcpFlags::ACK.0, 0, &half_request(protocol.name), 0);
        let behind = REQUEST_BYTES as u64 + 1_000;
        read(to_server, TcpFlags::ACK.0, behind, &[b'2'; BEHIND_BYTES], 0);
        // The hole is a gap on every second connection.
        if connection % 2 == 0 {
            read(to_client, TcpFlags::ACK.0, 0, b"", behind + BEHIND_BYTES as u64);
        }
    }
    tracker
}

#[test]
fn ten_thousand_connections_with_half_a_request_fit() {
    let tracker = many_connections(OBSERVER_BYTES_MAX, REORDER_BYTES_MAX);
    assert_eq!(tracker.open_connections(), usize::from(CONNECTIONS));
    let services = tracker.services().iter();
    let evicted: u64 = services.map(|service| service.completeness.evicted_connections).sum();
    assert_eq!(evicted, 0);
    let gaps: u64 = tracker.services().iter().map(|service| service.completeness.gaps).sum();
    assert_eq!(gaps, u64::from(CONNECTIONS) / 2);
    let memory = tracker.connection_memory();
    // The bytes behind the holes that are no gaps, and texts and heads of half requests.
    assert!(memory > usize::from(CONNECTIONS) / 2 * BEHIND_BYTES, "{memory}");
    assert!(memory <= OBSERVER_BYTES_MAX + REORDER_BYTES_MAX, "{memory}");
}

/// The limits of `topdeck wire` with its ring, of which the kernel has all.
#[test]
fn ten_thousand_connections_have_200_mb_with_the_ring() {
    const TOTAL: usize = 200_000_000;
    // Measured: the program without connections, and a connection without buffers.
    const OTHERS: usize = 20_000_000 + CONNECTIONS as usize * 2_400;
    let ring = RING_BLOCKS << 20;
    let budget = CaptureMemory::beside_rings(ring);
    let tracker = many_connections(budget.observer_bytes_max, budget.reorder_bytes_max);
    let of_connections = tracker.connection_memory();
    let used = ring + OTHERS + of_connections + budget.statement_bytes_max + budget.cache_bytes_max;
    assert!(used <= TOTAL, "{used}");
    // The limits were reached: the connections without a packet for longest made room.
    let limits = budget.observer_bytes_max + budget.reorder_bytes_max;
    assert!(of_connections > limits / 2, "{of_connections} of {limits}");
    let services = tracker.services().iter().map(|service| &service.completeness);
    let evicted: u64 = services.map(|found| found.evicted_connections).sum();
    assert!(evicted > 0);
    assert_eq!(evicted + tracker.open_connections() as u64, u64::from(CONNECTIONS));
}

#[test]
fn memory_of_connections_is_bounded_and_what_it_costs_is_counted() {
    const LIMIT: usize = 1 << 20;
    let tracker = many_connections(LIMIT, LIMIT);
    assert!(tracker.connection_memory() <= 2 * LIMIT, "{}", tracker.connection_memory());
    let services = tracker.services().iter().map(|service| &service.completeness);
    let evicted: u64 = services.clone().map(|found| found.evicted_connections).sum();
    assert_eq!(evicted + tracker.open_connections() as u64, u64::from(CONNECTIONS));
    assert!(evicted > 0);
    // Holes became gaps when their memory was used up.
    assert!(services.map(|found| found.gaps).sum::<u64>() > u64::from(CONNECTIONS) / 2);
}
