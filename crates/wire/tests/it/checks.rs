//! Fuzz target checks: properties that hold for any bytes, one check per target. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on past findings.

#[path = "message_protocol.rs"]
pub(crate) mod message_protocol;
#[path = "tls_record.rs"]
pub(crate) mod tls_record;

use std::io::Cursor;
use std::net::SocketAddrV4;
use std::sync::Arc;

use protocol::fingerprint::RouteTemplates;
use wire::{
    CaptureFile, CapturedPacket, ConnectionEnd, ConnectionTracker, EndComparison, EndInterval,
    EndMatcher, EndReport, KeyLog, LinkType, Packet, SegmentBoundaries, ServiceRule,
    ServiceTransport, TlsClock, TlsEvent, TrackerSettings, WaitRules, find_functions,
};

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: [(&str, FuzzCheck); 6] = [
    ("capture_file", capture_file),
    ("elf_symbols", elf_symbols),
    ("end_report", end_report),
    ("packet_tracker", packet_tracker),
    ("tls_decryption", tls_decryption),
    ("tls_event", tls_event),
];

/// Limits of the tracker, small enough to be reached.
const CONNECTIONS_MAX: usize = 8;
const REORDER_BYTES_MAX: usize = 4_096;
const OBSERVER_BYTES_MAX: usize = 1_000;

/// Any bytes are packets, an error or a truncated file, and packets are inside the file.
fn capture_file(bytes: &[u8]) {
    let Ok(mut file) = CaptureFile::new(bytes) else { return };
    let mut tracker = tracker();
    message_protocol::take_requests_seen();
    let mut total = 0;
    while let Ok(Some(packet)) = file.next_packet() {
        total += packet.bytes.len();
        assert!(packet.bytes.len() as u64 <= u64::from(packet.original_bytes));
        tracker.read(&packet);
    }
    assert!(total <= bytes.len());
    file.reported_drops();
    check_counts(&tracker);
}

/// Any bytes are an ELF file, whose functions are in the file, or an error; the budget holds.
fn elf_symbols(bytes: &[u8]) {
    const BUDGET: u64 = 1 << 20;
    let mut budget = BUDGET;
    let found = find_functions(&mut Cursor::new(bytes), &["SSL_read", "f"], &mut budget);
    assert!(budget <= BUDGET);
    let offsets = found.unwrap_or_default();
    assert!(offsets.iter().flatten().all(|offset| *offset < bytes.len() as u64), "{offsets:?}");
}

/// Any bytes are a report, which has the same bytes again, or an error. Each request of two
/// reports, the first of which has its length before it, is matched, unmatched, or waits.
fn end_report(bytes: &[u8]) {
    let parts = bytes.split_first_chunk().map(|(length, rest)| {
        rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))))
    });
    let (first, second) = parts.unwrap_or_default();
    let mut matcher = EndMatcher::new();
    for bytes in [first, second, bytes] {
        let Ok(report) = EndReport::decode(bytes) else { continue };
        assert_eq!(report.encode(), bytes);
        matcher.add(&report, 1_000);
    }
    check_matcher(matcher);
}

/// Checks that all requests are accounted for, before and after they have waited.
fn check_matcher(mut matcher: EndMatcher) -> EndInterval {
    let interval = matcher.take_interval(2_000);
    let reported: u64 = interval.reported.iter().map(|service| service.reported).sum();
    let matched: u64 = interval.services.iter().map(|service| service.totals.matched).sum();
    for (time, interval) in [(40_000_000_000, &interval), (80_000_000_000, &interval)] {
        let of = |interval: &EndInterval| {
            let unmatched = interval.reported.iter().map(|service| {
                let ends = service.missing_connection + service.missing_request;
                ends + service.limit + service.ambiguous
            });
            unmatched.sum::<u64>() + interval.waiting + 2 * matched
        };
        assert_eq!(of(interval), reported);
        let later = matcher.take_interval(time);
        assert_eq!((of(&later), later.waiting), (reported, 0));
    }
    interval
}

/// Records of kind, time step, cut, size and bytes: any packets leave consistent counts, and a
/// capture that is compared with itself has all requests at both ends.
///
/// Kind 0 is a packet of any bytes; the others are segments between a client and a server, whose
/// fields are the bytes, so that the fuzzer reaches the streams without finding addresses first.
fn packet_tracker(mut bytes: &[u8]) {
    let mut tracker = tracker();
    message_protocol::take_requests_seen();
    let mut time = 1_000_000_000_u64;
    let mut packets = Vec::new();
    while let Some(([kind, step, cut, size], rest)) = bytes.split_first_chunk() {
        let (data, rest) = rest.split_at(rest.len().min(usize::from(*size)));
        bytes = rest;
        time = match step {
            0xff => time.saturating_add(7_200_000_000_000),
            0xfe => time.saturating_sub(1_000),
            step => time.saturating_add(u64::from(*step)),
        };
        let packet = if kind % 8 == 0 { data.to_vec() } else { segment(*kind, data) };
        let original_bytes = packet.len() as u32;
        let captured = &packet[..packet.len().saturating_sub(usize::from(*cut & 0x0f))];
        let link_type = match kind >> 3 & 7 {
            0 => LinkType::Ethernet,
            1 => LinkType::LinuxCooked,
            2 => LinkType::LinuxCooked2,
            3 => LinkType::Loopback,
            _ => LinkType::RawIp,
        };
        let link_type = if kind % 8 == 0 { link_type } else { LinkType::RawIp };
        if let Ok(packet) = Packet::decode(link_type, captured, original_bytes) {
            assert!(packet.payload.len() as u64 <= packet.payload_bytes);
        }
        let time = Some(time);
        tracker.read(&CapturedPacket { time, link_type, bytes: captured, original_bytes });
        packets.push((time, link_type, captured.to_vec(), original_bytes));
    }
    check_counts(&tracker);
    check_both_ends(&packets);
}

/// Compares a capture with itself.
fn check_both_ends(packets: &[(Option<u64>, LinkType, Vec<u8>, u32)]) {
    let captured = || {
        packets.iter().map(|(time, link_type, bytes, original_bytes)| CapturedPacket {
            time: *time,
            link_type: *link_type,
            bytes,
            original_bytes: *original_bytes,
        })
    };
    let mut boundaries = SegmentBoundaries::new(&rules(), 1 << 20);
    captured().for_each(|packet| boundaries.read(&packet));
    let cuts = boundaries.into_cuts();
    let mut ends = [tracker(), tracker()];
    for end in &mut ends {
        end.record_requests(cuts.clone());
        captured().for_each(|packet| end.read(&packet));
        check_counts(end);
    }
    let [client, server] = &mut ends;
    for service in EndComparison::new(client, server).services {
        assert_eq!((service.negative, service.network.sum().estimate), (0, 0.0));
        for counts in service.ends {
            assert_eq!((counts.missing_connection, counts.missing_request), (0, 0));
            assert_eq!(counts.measured, service.matched + counts.missing_sequence);
        }
    }
    let mut matcher = EndMatcher::new();
    for (sender, end) in [ConnectionEnd::Client, ConnectionEnd::Server].into_iter().enumerate() {
        let mut tracker = tracker();
        tracker.record_live_requests();
        captured().for_each(|packet| tracker.read(&packet));
        let mut report = EndReport::new("host", sender as u64, 1);
        if let Some(records) = tracker.take_end_records() {
            let requests = records.requests();
            let counts = report.add(records, 1, &mut |_, _| Some(end));
            assert_eq!(counts.reported + counts.missing_sequence + counts.dropped, requests);
        }
        matcher.add(&report, 1_000);
    }
    for service in check_matcher(matcher).services {
        let network = service.comparison.network.sum().estimate;
        assert_eq!((service.totals.negative, network), (0, 0.0));
    }
}

/// Records of direction, size (two bytes) and bytes: any streams are decrypted with the key log of
/// the recording, or counted, in bounded memory.
fn tls_decryption(mut bytes: &[u8]) {
    const MEMORY: usize = 1 << 20;
    let keys = KeyLog::parse(include_str!("../../../../testdata/wire/tls.keys"));
    let keys = Arc::new(keys.expect("the key log of the recording"));
    let mut tracker = tracker_with(MEMORY);
    tracker.decrypt(&keys);
    let (mut time, mut next) = (1_000_000_000_u64, [1_000_u32, 5_000]);
    let mut send = |to_client: bool, flags: u8, payload: &[u8]| {
        let own = usize::from(to_client);
        let numbers = [next[own], next[1 - own]];
        let packet = tcp_packet(!to_client, [10, 0, 0, 1], flags, numbers, payload);
        next[own] = next[own].wrapping_add(payload.len() as u32 + u32::from(flags & 2 != 0));
        time += 1;
        let original_bytes = packet.len() as u32;
        let (time, link_type) = (Some(time), LinkType::RawIp);
        tracker.read(&CapturedPacket { time, link_type, bytes: &packet, original_bytes });
        assert!(tracker.connection_memory() <= MEMORY + REORDER_BYTES_MAX);
    };
    send(false, 2, b"");
    send(true, 18, b"");
    let mut total = 0;
    while let Some(([direction, high, low], rest)) = bytes.split_first_chunk() {
        let size = usize::from(u16::from_be_bytes([*high, *low])).min(60_000);
        let (data, rest) = rest.split_at(rest.len().min(size));
        bytes = rest;
        total += data.len() as u64;
        send(direction & 1 == 1, 16, data);
    }
    assert!(keys.counts().bytes <= total);
}

/// Records of kind, gap, cut, size and bytes: any events of a TLS library leave consistent counts.
///
/// Kind 0 is a record of any bytes; the others are calls of two sessions of four processes, whose
/// fields are the bytes.
fn tls_event(mut bytes: &[u8]) {
    let mut tracker = tracker();
    message_protocol::take_requests_seen();
    let (mut time, mut positions) = (1_000_000_000_u64, [[0_u64; 2]; 8]);
    while let Some(([kind, gap, cut, size], rest)) = bytes.split_first_chunk() {
        let (data, rest) = rest.split_at(rest.len().min(usize::from(*size)));
        bytes = rest;
        time = time.saturating_add(u64::from(*cut));
        let call = usize::from(kind % 4);
        if call == 0 {
            if let Some(event) = TlsEvent::decode(data, TlsClock::default()) {
                assert!(event.bytes.len() as u64 <= event.length);
            }
            continue;
        }
        let process = kind >> 2 & 3;
        let session = kind >> 4 & 1;
        let streams = &mut positions[usize::from(process * 2 + session)];
        let other_position = streams[1 - (call & 1)] + (u64::from(cut >> 7) << 40);
        let position = &mut streams[call & 1];
        *position = match gap {
            0xff => 0,
            0xfe => *position + (1 << 40),
            gap => *position + u64::from(gap & 3),
        };
        // One server for each process, the last of which has an unknown socket at first.
        let server = SocketAddrV4::new([10, 0, 0, process].into(), message_protocol::PORT);
        let client = SocketAddrV4::new([10, 0, 1, process].into(), 40_000 + u16::from(session));
        let record = tls_record::TlsRecord {
            process: process.into(),
            session: session.into(),
            kind: call as u32,
            times: (time, time + u64::from(*gap)),
            position: *position,
            other_position,
            cut: u64::from(*cut & 1),
            is_from_start: kind & 0x20 != 0,
            is_shut_down: cut & 0x40 != 0,
            socket: (process < 3 || kind & 0x40 != 0).then_some((server, client)),
            namespace: u32::from(*cut >> 5 & 1),
            bytes: data.to_vec(),
        };
        *position += data.len() as u64 + record.cut;
        let record = record.to_bytes();
        if let Some(event) = TlsEvent::decode(&record, TlsClock::default()) {
            tracker.read_tls(&event);
        }
    }
    check_counts(&tracker);
}

/// A segment between one of four clients and the server: flags, relative sequence numbers, payload.
fn segment(kind: u8, data: &[u8]) -> Vec<u8> {
    let (head, payload) = data.split_at(data.len().min(5));
    let mut fields = [0; 5];
    fields[..head.len()].copy_from_slice(head);
    let [flags, s0, s1, a0, a1] = fields;
    // Close to the end of the range, so that numbers wrap around; far away with a high flag bit.
    let base = if flags & 0x80 == 0 { u32::MAX - 0x4000 } else { 1 << 30 };
    let number = |high, low| base.wrapping_add(u32::from(u16::from_be_bytes([high, low])));
    let client = [10, 0, 0, 1 + (kind >> 1 & 3)];
    tcp_packet(kind & 1 == 0, client, flags & 0x17, [number(s0, s1), number(a0, a1)], payload)
}

/// A packet with these sequence numbers, of the sender and acknowledged.
fn tcp_packet(
    is_to_server: bool,
    client: [u8; 4],
    flags: u8,
    numbers: [u32; 2],
    payload: &[u8],
) -> Vec<u8> {
    let server = [10, 0, 0, 9];
    let (ips, ports) = match is_to_server {
        true => ([client, server], [40_000, message_protocol::PORT]),
        false => ([server, client], [message_protocol::PORT, 40_000]),
    };
    let mut packet = vec![0x45, 0];
    packet.extend((40 + payload.len() as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend(ips.concat());
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend(numbers.map(u32::to_be_bytes).concat());
    packet.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    packet.extend(payload);
    packet
}

fn rules() -> Vec<ServiceRule> {
    vec![ServiceRule {
        address: None,
        port: message_protocol::PORT,
        transport: ServiceTransport::Tcp,
        protocol: &message_protocol::PROTOCOL,
        name: None,
    }]
}

fn tracker() -> ConnectionTracker {
    tracker_with(OBSERVER_BYTES_MAX)
}

fn tracker_with(observer_bytes_max: usize) -> ConnectionTracker {
    ConnectionTracker::new(TrackerSettings {
        rules: rules(),
        connections_max: CONNECTIONS_MAX,
        idle_timeout_ns: 3_600_000_000_000,
        reorder_bytes_max: REORDER_BYTES_MAX,
        observer_bytes_max,
        servers_max: 1_000,
        statements_max: 16,
        statement_bytes_max: 1 << 20,
        cache_bytes_max: 1 << 20,
        in_flight_bytes_max: 1 << 20,
        peers: None,
        routes: RouteTemplates::default(),
        waits: WaitRules::default(),
    })
}

/// All requests are accounted for, and limits hold.
fn check_counts(tracker: &ConnectionTracker) {
    let seen = message_protocol::take_requests_seen();
    let in_flight: u64 = tracker.in_flight().iter().map(|summary| summary.requests).sum();
    let services = tracker.services().iter();
    let counted: u64 = services
        .map(|service| {
            let found = &service.completeness;
            let total = service.statements.total();
            assert_eq!(found.waits, total.waits.last_byte.count());
            assert_eq!(found.measured, found.waits + total.operations());
            assert!(service.statements.statements().len() <= 16);
            found.measured + found.not_measured.total()
        })
        .sum();
    assert_eq!(counted + in_flight, seen, "measured + not measured + in flight");
    assert!(tracker.open_connections() <= CONNECTIONS_MAX);
    let observer_bytes_max = OBSERVER_BYTES_MAX + OBSERVER_BYTES_MAX / 4;
    assert!(tracker.connection_memory() <= observer_bytes_max + REORDER_BYTES_MAX);
}
