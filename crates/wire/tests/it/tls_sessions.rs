//! Sessions that are read at the TLS library, from records of its programs.

use std::net::SocketAddrV4;

use protocol::observer::FlowDirection;
use wire::{ConnectionTracker, ServiceRule, TcpFlags};

use crate::checks::message_protocol::{PORT, message};
use crate::checks::tls_record::{END, READ, TlsRecord, WRITTEN};
use crate::conversation::{TestPacket, counts, measured_latencies, server_name, settings, tracker};

const SERVER_PROCESS: u32 = 10;
const CLIENT_PROCESS: u32 = 20;

fn server() -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, 0, 2].into(), PORT)
}

fn client() -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, 0, 1].into(), 40_000)
}

/// One process of a connection, with the positions of its streams.
struct TlsProcess {
    record: TlsRecord,
    positions: [u64; 2],
}

impl TlsProcess {
    fn new(process: u32, socket: Option<(SocketAddrV4, SocketAddrV4)>) -> TlsProcess {
        let record = TlsRecord {
            process,
            session: 0xabc,
            kind: READ,
            times: (0, 0),
            position: 0,
            other_position: 0,
            cut: 0,
            is_from_start: true,
            is_shut_down: false,
            socket,
            namespace: 1,
            bytes: Vec::new(),
        };
        TlsProcess { record, positions: [0; 2] }
    }

    fn server() -> TlsProcess {
        TlsProcess::new(SERVER_PROCESS, Some((server(), client())))
    }

    fn client() -> TlsProcess {
        TlsProcess::new(CLIENT_PROCESS, Some((client(), server())))
    }

    /// A call that moved these bytes.
    fn call(&mut self, kind: u32, times: (u64, u64), bytes: &[u8]) -> TlsRecord {
        let own = usize::from(kind == WRITTEN);
        let (position, other_position) = (self.positions[own], self.positions[1 - own]);
        self.positions[own] += bytes.len() as u64;
        let bytes = bytes.to_vec();
        TlsRecord { kind, times, position, other_position, bytes, ..self.record.clone() }
    }

    fn read(&mut self, tracker: &mut ConnectionTracker, time: u64, bytes: &[u8]) {
        self.call(READ, (time - 5, time), bytes).read_by(tracker);
    }

    fn write(&mut self, tracker: &mut ConnectionTracker, time: u64, bytes: &[u8]) {
        self.call(WRITTEN, (time, time + 3), bytes).read_by(tracker);
    }

    fn end(&self, tracker: &mut ConnectionTracker, time: u64) {
        let [position, other_position] = self.positions;
        let record = self.record.clone();
        TlsRecord { kind: END, times: (time, time), position, other_position, ..record }
            .read_by(tracker);
    }
}

#[test]
fn a_server_is_measured_from_the_read_request_to_the_written_response() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::server());
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    assert_eq!(counts(&tracker), (0, 0, 1));
    process.write(&mut tracker, 1_100, &message(b'R', 1, 300));
    assert_eq!(counts(&tracker), (1, 0, 0));
    assert_eq!(measured_latencies(&tracker), [(1, 103)].into());
    let service = &tracker.services()[0];
    assert_eq!(service.name, server_name());
    let found = &service.completeness;
    assert_eq!((found.library_sessions, found.library_bytes), (1, 19 + 309));
    assert_eq!((found.gaps, found.encrypted_connections), (0, 0));
    assert_eq!(tracker.tls_totals().sessions, 1);
    assert_eq!(tracker.time_range(), Some((995, 1_103)));
}

#[test]
fn a_client_is_measured_from_the_call_to_the_read_response() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::client());
    process.write(&mut tracker, 1_000, &message(b'Q', 1, 10));
    process.read(&mut tracker, 1_200, &message(b'R', 1, 300));
    assert_eq!(measured_latencies(&tracker), [(1, 200)].into());
    assert_eq!(tracker.services()[0].name, server_name());
}

#[test]
fn a_lost_chunk_is_a_gap() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::server());
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    process.read(&mut tracker, 1_010, &message(b'Q', 2, 10));
    // Not passed on: the ring buffer was full.
    process.call(WRITTEN, (1_020, 1_023), &message(b'R', 1, 10));
    process.write(&mut tracker, 1_030, &message(b'R', 2, 10));
    let (measured, not_measured, in_flight) = counts(&tracker);
    assert_eq!(measured + not_measured + in_flight, 2);
    assert!(measured < 2 && !measured_latencies(&tracker).contains_key(&1));
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.gaps, found.gap_bytes), (1, 19));
}

#[test]
fn a_cut_chunk_is_a_gap() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::server());
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    let response = message(b'R', 1, 300);
    let mut cut = process.call(WRITTEN, (1_020, 1_023), &response);
    cut.bytes.truncate(100);
    cut.cut = response.len() as u64 - 100;
    cut.read_by(&mut tracker);
    assert_eq!(counts(&tracker), (0, 1, 0));
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.gaps, found.gap_bytes), (1, 209));
    process.read(&mut tracker, 1_100, &message(b'Q', 2, 10));
    process.write(&mut tracker, 1_150, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(2, 53)].into());
}

#[test]
fn both_ends_of_a_connection_are_measured_once() {
    let mut tracker = tracker();
    let (mut client, mut server) = (TlsProcess::client(), TlsProcess::server());
    for id in 0..10 {
        let time = 1_000 * (u64::from(id) + 1);
        let (request, response) = (message(b'Q', id, 10), message(b'R', id, 10));
        client.write(&mut tracker, time, &request);
        server.read(&mut tracker, time + 100, &request);
        server.write(&mut tracker, time + 150, &response);
        client.read(&mut tracker, time + 300, &response);
    }
    assert_eq!(counts(&tracker), (10, 0, 0));
    assert!(measured_latencies(&tracker).values().all(|latency| *latency == 53));
    let found = &tracker.services()[0].completeness;
    assert_eq!(found.library_sessions, 2);
    // The first request was read at the client, until the server reported it too.
    assert_eq!(tracker.tls_totals().other_end_bytes, 9 * 19 + 10 * 19);
}

#[test]
fn a_session_without_socket_or_service_is_counted() {
    let mut tracker = tracker();
    let mut unknown = TlsProcess::new(1, None);
    unknown.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    let other = SocketAddrV4::new([10, 0, 0, 2].into(), 9_999);
    let mut elsewhere = TlsProcess::new(2, Some((other, client())));
    elsewhere.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    assert!(tracker.services().is_empty());
    let totals = tracker.tls_totals();
    assert_eq!((totals.sessions, totals.bytes), (2, 38));
    assert_eq!((totals.without_socket_bytes, totals.without_service_bytes), (19, 19));
    // The socket becomes known; the request before it was not measured.
    unknown.record.socket = Some((server(), client()));
    unknown.write(&mut tracker, 1_100, &message(b'R', 1, 10));
    unknown.read(&mut tracker, 1_200, &message(b'Q', 2, 10));
    unknown.write(&mut tracker, 1_300, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(2, 103)].into());
}

#[test]
fn an_object_that_is_used_again_is_another_session() {
    let mut tracker = tracker();
    for id in 0..3 {
        let mut process = TlsProcess::server();
        process.read(&mut tracker, 1_000 * u64::from(id + 1), &message(b'Q', id, 10));
        if id != 1 {
            // The end of the second one is not reported.
            process.end(&mut tracker, 1_000 * u64::from(id + 1) + 500);
        }
    }
    assert_eq!(counts(&tracker), (0, 3, 0));
    assert_eq!(tracker.services()[0].completeness.not_measured.connection_end, 3);
    assert_eq!(tracker.tls_totals().sessions, 3);
}

#[test]
fn a_session_that_began_before_is_measured_from_the_next_request() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::server());
    process.record.is_from_start = false;
    process.positions = [500, 900];
    process.write(&mut tracker, 1_000, &message(b'R', 7, 10)[4..]);
    process.read(&mut tracker, 1_100, &message(b'Q', 8, 10));
    process.write(&mut tracker, 1_150, &message(b'R', 8, 10));
    assert_eq!(measured_latencies(&tracker), [(8, 53)].into());
    assert_eq!(tracker.services()[0].completeness.gaps, 0);
}

#[test]
fn sessions_and_their_memory_are_bounded() {
    let mut settings = settings();
    (settings.connections_max, settings.observer_bytes_max) = (4, 100_000);
    let mut tracker = ConnectionTracker::new(settings);
    for session in 0..100_u64 {
        let client = SocketAddrV4::new([10, 0, 0, 1].into(), 40_000 + session as u16);
        let mut process = TlsProcess::new(SERVER_PROCESS, Some((server(), client)));
        process.record.session = session;
        process.read(&mut tracker, 1_000 + session, &message(b'Q', session as u32, 10));
    }
    assert_eq!(counts(&tracker), (0, 96, 4));
    assert_eq!(tracker.services()[0].completeness.evicted_connections, 96);
    assert!(tracker.connection_memory() <= 100_000);
}

/// Bytes of a call that is not known: what programs add to the position.
const LOST_CALL: u64 = 1 << 40;

#[test]
fn a_lost_read_of_a_client_pairs_no_later_response_with_its_request() {
    let (mut tracker, mut process) = (tracker(), TlsProcess::client());
    process.write(&mut tracker, 1_000, &message(b'Q', 1, 10));
    // The read of the first response was not seen.
    process.positions[0] += LOST_CALL;
    process.write(&mut tracker, 2_000, &message(b'Q', 2, 10));
    assert_eq!(counts(&tracker), (0, 1, 1), "the hole is known before the next response");
    process.read(&mut tracker, 2_300, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(2, 300)].into());
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.gaps, found.gap_bytes), (1, 0), "their number is unknown");
}

#[test]
fn a_session_that_was_forgotten_in_its_middle_has_no_gap_that_never_was() {
    let mut settings = settings();
    settings.connections_max = 1;
    let mut tracker = ConnectionTracker::new(settings);
    let mut process = TlsProcess::server();
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    // Another session takes its place.
    let mut other = TlsProcess::new(30, None);
    other.read(&mut tracker, 1_010, b"?");
    process.write(&mut tracker, 1_020, &message(b'R', 1, 10));
    process.read(&mut tracker, 1_100, &message(b'Q', 2, 10));
    process.write(&mut tracker, 1_150, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(2, 53)].into());
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.gaps, found.not_measured.total()), (0, 1));
}

/// Requests measured of a response without a length, whose session ends so.
#[track_caller]
fn check_end(is_shut_down: bool, lost: u64, expected: (u64, u64, u64)) {
    let mut settings = settings();
    settings.rules = vec![ServiceRule::parse(&format!("{PORT}/http")).unwrap()];
    let mut tracker = ConnectionTracker::new(settings);
    let mut process = TlsProcess::server();
    process.read(&mut tracker, 1_000, b"GET /a HTTP/1.1\r\nHost: shop\r\n\r\n");
    process.write(&mut tracker, 1_100, b"HTTP/1.1 200 OK\r\n\r\nbo");
    process.record.is_shut_down = is_shut_down;
    process.positions[1] += lost;
    process.end(&mut tracker, 1_200);
    assert_eq!(counts(&tracker), expected);
}

#[test]
fn a_response_that_a_reset_or_a_loss_has_cut_is_not_measured() {
    check_end(true, 0, (1, 0, 0));
    // The client has reset the connection: a write failed, or there was no SSL_shutdown.
    check_end(false, 0, (0, 1, 0));
    // The last chunk was lost.
    check_end(true, 2, (0, 1, 0));
}

#[test]
fn packets_that_fill_the_memory_forget_no_tls_session() {
    let mut settings = settings();
    settings.observer_bytes_max = 4_000;
    let mut tracker = ConnectionTracker::new(settings);
    let request = |client_port: u16| TestPacket {
        time: 1_000,
        direction: FlowDirection::ToServer,
        position: 0,
        flags: TcpFlags::ACK.0,
        payload: message(b'Q', client_port.into(), 10),
        acknowledged: 0,
        captured: 19,
        client_port,
        initial: [1_000, 5_000],
    };
    let mut process = TlsProcess::server();
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    (50_000..50_100).for_each(|port| request(port).read_by(&mut tracker));
    let evicted =
        |tracker: &ConnectionTracker| tracker.services()[0].completeness.evicted_connections;
    let before = evicted(&tracker);
    assert!(before > 10, "packets fill the memory");
    let mut other = TlsProcess::server();
    (other.record.session, other.record.socket) =
        (1, Some((server(), SocketAddrV4::new([10, 0, 0, 1].into(), 40_001))));
    other.read(&mut tracker, 1_010, &message(b'Q', 2, 10));
    process.write(&mut tracker, 1_100, &message(b'R', 1, 10));
    other.write(&mut tracker, 1_200, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(1, 103), (2, 193)].into());
    assert_eq!(evicted(&tracker), before);
}

#[test]
fn the_same_addresses_in_another_namespace_hide_no_server() {
    let mut tracker = tracker();
    let mut real = TlsProcess::server();
    real.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    let mut other = TlsProcess::new(30, Some((server(), client())));
    other.record.namespace = 2;
    other.read(&mut tracker, 1_010, &message(b'Q', 2, 10));
    real.write(&mut tracker, 1_100, &message(b'R', 1, 10));
    other.write(&mut tracker, 1_200, &message(b'R', 2, 10));
    assert_eq!(measured_latencies(&tracker), [(1, 103), (2, 193)].into());
    // As many namespaces as one likes: those beyond the limit are counted by their bytes.
    for namespace in 3..20 {
        let mut more = TlsProcess::new(30 + namespace, Some((server(), client())));
        more.record.namespace = namespace;
        more.read(&mut tracker, 1_300, &message(b'Q', 100 + namespace, 10));
    }
    assert_eq!(counts(&tracker), (2, 0, 6));
    assert_eq!(tracker.tls_totals().other_end_bytes, 11 * 19);
}

#[test]
fn an_object_that_is_used_again_on_another_socket_is_another_session() {
    let mut tracker = tracker();
    let mut process = TlsProcess::server();
    process.read(&mut tracker, 1_000, &message(b'Q', 1, 10));
    // The end was lost. The next session writes first, at a position that the first one has not
    // reached.
    let client = SocketAddrV4::new([10, 0, 0, 1].into(), 40_001);
    let mut next = TlsProcess::new(SERVER_PROCESS, Some((server(), client)));
    next.write(&mut tracker, 2_000, &message(b'R', 1, 10));
    assert_eq!((counts(&tracker), tracker.tls_totals().sessions), ((0, 1, 0), 2));
    // Another one, whose start was not seen.
    next.record.is_from_start = false;
    next.write(&mut tracker, 3_000, &message(b'R', 2, 10));
    assert_eq!(tracker.tls_totals().sessions, 3);
}
