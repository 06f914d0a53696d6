//! Single events of connections, with their counts.

use protocol::observer::FlowDirection;
use wire::{ConnectionTracker, PeerSettings, ServiceRule, TcpFlags, TrackerSettings};

use crate::conversation::{
    Conversation, ConversationShape, START, TestPacket, counts, measured_latencies, server_name,
    settings, tracker,
};

fn read_all(packets: &[TestPacket]) -> ConnectionTracker {
    let mut tracker = tracker();
    packets.iter().for_each(|packet| packet.read_by(&mut tracker));
    tracker
}

#[track_caller]
fn check(packets: &[TestPacket], expected: (u64, u64, u64)) -> ConnectionTracker {
    let tracker = read_all(packets);
    assert_eq!(counts(&tracker), expected, "measured, not measured, in flight");
    tracker
}

fn conversation() -> Conversation {
    Conversation::new(&ConversationShape::default())
}

#[test]
fn an_intact_connection_is_measured_whole() {
    let mut tracker = check(&conversation().packets, (10, 0, 0));
    let recent = tracker.take_recent();
    // One of the ten is a wait.
    assert_eq!((recent[0].last_byte.count(), recent[0].errors), (9, 1));
    assert_eq!(tracker.take_recent()[0].last_byte.count(), 0);
    assert_eq!(measured_latencies(&tracker), conversation().latencies());
    let service = &tracker.services()[0];
    assert_eq!(service.name, server_name());
    let found = &service.completeness;
    assert_eq!((found.packets, found.payload_bytes), (45, 10 * 88));
    assert_eq!((found.connections_from_start, found.connections_from_middle), (1, 0));
    assert_eq!((found.waits, found.gaps, found.resyncs), (1, 0, 0));
    let connect = conversation().packets[2].time - conversation().packets[0].time;
    assert_eq!(service.connect.max().unwrap().estimate, connect as f64);
    assert_eq!(service.round_trip.count(), 1);
    assert_eq!(service.acknowledgement.count(), 10);
    assert_eq!(service.client_think.count(), 9);
    assert_eq!(tracker.open_connections(), 0);
}

#[test]
fn a_lost_packet_costs_only_the_requests_that_it_affects() {
    let whole = conversation();
    for lost in whole.data_packets() {
        let mut packets = whole.packets.clone();
        let direction = packets.remove(lost).direction;
        // A lost request was not seen; a lost response leaves its request unmeasured.
        let not_measured = u64::from(direction == FlowDirection::ToClient);
        let tracker = check(&packets, (9, not_measured, 0));
        let found = &tracker.services()[0].completeness;
        assert_eq!((found.gaps, found.not_measured.gap), (1, not_measured));
    }
}

#[test]
fn a_cut_payload_is_a_gap_of_its_size() {
    let mut packets = conversation().packets;
    let at = conversation().data_packets()[5];
    packets[at].captured = 20;
    let tracker = check(&packets, (9, 1, 0));
    assert_eq!(tracker.services()[0].completeness.gap_bytes, 39);
}

#[test]
fn a_capture_from_the_middle_measures_the_rest() {
    let packets = conversation().packets;
    // Handshake, first request, its acknowledgement, its response, its acknowledgement.
    let tracker = check(&packets[5..], (9, 0, 0));
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.connections_from_start, found.connections_from_middle), (0, 1));
}

#[test]
fn without_the_syn_of_the_server_the_start_is_unknown() {
    let mut packets = conversation().packets;
    packets.remove(1);
    let tracker = check(&packets, (10, 0, 0));
    assert_eq!(tracker.services()[0].completeness.connections_from_middle, 1);
    assert_eq!(tracker.services()[0].connect.count(), 0);
}

#[test]
fn ports_used_again_are_a_new_connection_with_or_without_its_start() {
    let first = conversation();
    let second = |initial| {
        let start = START + 1_000_000_000;
        let shape = ConversationShape { first_id: 100, start, initial, ..Default::default() };
        Conversation::new(&shape)
    };
    let joined = |one: &[TestPacket], other: &[TestPacket]| [one, other].concat();
    let numbers = [3_000_000_000, 2_000_000_000];
    let count = first.packets.len();
    let tracker = check(&joined(&first.packets, &second(numbers).packets), (20, 0, 0));
    assert_eq!(tracker.services()[0].completeness.connections_from_start, 2);
    // The first connection has neither FIN nor the response to its last request.
    let unfinished = &first.packets[..count - 4];
    check(&joined(unfinished, &second(numbers).packets), (19, 1, 0));
    // The handshake of the second one was not captured: three segments tell that it is another.
    let late = &second(numbers).packets[3..];
    let tracker = check(&joined(unfinished, late), (18, 1, 0));
    assert_eq!(tracker.services()[0].completeness.implausible_segments, 3);
}

#[test]
fn a_reset_ends_the_connection_and_a_forged_one_does_not() {
    let whole = conversation();
    let mut packets = whole.packets[..whole.packets.len() - 4].to_vec();
    let mut reset = packets[packets.len() - 1].clone();
    (reset.flags, reset.payload, reset.captured) = (TcpFlags::RST.0, Vec::new(), 0);
    let mut forged = reset.clone();
    forged.initial[1] = forged.initial[1].wrapping_add(1 << 31);
    packets.push(forged);
    check(&packets, (9, 0, 1));
    packets.push(reset);
    let tracker = check(&packets, (9, 1, 0));
    assert_eq!(tracker.services()[0].completeness.not_measured.connection_end, 1);
    assert_eq!(tracker.open_connections(), 0);
}

/// The position of the packet with request `number`.
fn request_packet(packets: &[TestPacket], number: usize) -> usize {
    let is_request = |packet: &&(usize, &TestPacket)| {
        packet.1.direction == FlowDirection::ToServer && !packet.1.payload.is_empty()
    };
    packets.iter().enumerate().filter(|packet| is_request(&packet)).nth(number).unwrap().0
}

#[test]
fn a_reset_that_the_client_goes_on_after_hides_two_requests() {
    // Receivers ignore a reset whose number is not exactly the next one (RFC 5961).
    for distance in [0, 1, 5_000, 1 << 20] {
        let mut packets = conversation().packets;
        let at = request_packet(&packets, 3);
        let mut reset = packets[at].clone();
        (reset.flags, reset.payload, reset.captured) = (TcpFlags::RST.0, Vec::new(), 0);
        (reset.time, reset.position) = (reset.time - 1, reset.position + distance);
        packets.insert(at, reset);
        let tracker = check(&packets, (8, 0, 0));
        assert_eq!(tracker.services()[0].completeness.connections_from_middle, 1);
    }
}

#[test]
fn ends_of_both_streams_that_data_follow_hide_one_request() {
    let mut packets = conversation().packets;
    let at = request_packet(&packets, 3);
    for opposite in [1, 2] {
        // As the packet before the request, or the one before that: one of each direction.
        let mut end = packets[at - opposite].clone();
        let position = end.position + end.payload.len() as u64;
        (end.payload, end.captured, end.position) = (Vec::new(), 0, position);
        (end.flags, end.time) = (TcpFlags::FIN.0 | TcpFlags::ACK.0, packets[at].time - 1);
        packets.insert(at, end);
    }
    check(&packets, (9, 0, 0));
}

#[test]
fn an_acknowledgement_of_bytes_that_were_never_sent_hides_two_responses() {
    // One byte more costs a response. A number far away is implausible, and so is what the server
    // sends then: the connection starts anew behind the request.
    for (distance, expected) in [(1, (9, 1, 0)), (1_000_000, (8, 2, 0)), (1 << 27, (9, 0, 0))] {
        let mut packets = conversation().packets;
        let at = request_packet(&packets, 3);
        let mut forged = packets[at].clone();
        (forged.payload, forged.captured, forged.time) = (Vec::new(), 0, forged.time - 1);
        forged.acknowledged += distance;
        packets.insert(at, forged);
        let tracker = check(&packets, expected);
        let truth = conversation().latencies();
        assert!(measured_latencies(&tracker).iter().all(|(id, time)| truth[id] == *time));
    }
}

#[test]
fn an_end_that_data_follow_is_none() {
    let mut packets = conversation().packets;
    let at = request_packet(&packets, 3);
    let mut end = packets[at].clone();
    (end.payload, end.captured, end.time) = (Vec::new(), 0, end.time - 1);
    end.flags = TcpFlags::FIN.0 | TcpFlags::ACK.0;
    packets.insert(at, end);
    // The server ends its stream when all is done, and the last request is answered after that.
    check(&packets, (10, 0, 0));
    // A packet that the capture lost behind the false end is a gap when it is acknowledged.
    let lost = request_packet(&packets, 6);
    packets.remove(lost);
    let tracker = check(&packets, (9, 0, 0));
    assert_eq!(tracker.services()[0].completeness.gaps, 1);
}

#[test]
fn a_refused_connection_is_counted() {
    let mut packets = conversation().packets[..2].to_vec();
    packets[1].flags = TcpFlags::RST.0 | TcpFlags::ACK.0;
    packets[1].initial[1] = 0;
    let tracker = check(&packets, (0, 0, 0));
    assert_eq!(tracker.services()[0].completeness.connections_refused, 1);
}

#[test]
fn idle_connections_are_forgotten_and_counted() {
    let whole = conversation();
    let mut packets = whole.packets[..whole.packets.len() - 4].to_vec();
    let mut late = ConversationShape { client_port: 41_000, first_id: 50, ..Default::default() };
    late.start = START + 2 * 3_600_000_000_000;
    packets.extend(Conversation::new(&late).packets);
    let tracker = check(&packets, (19, 1, 0));
    assert_eq!(tracker.services()[0].completeness.idle_connections, 1);
}

#[test]
fn idle_services_are_forgotten_and_make_room() {
    const HOUR: u64 = 3_600_000_000_000;
    let mut rules = settings().rules;
    let rule = rules[0].clone();
    rules.extend([1, 2].map(|n| ServiceRule { port: rule.port + n, ..rule.clone() }));
    let mut tracker =
        ConnectionTracker::new(TrackerSettings { servers_max: 2, rules, ..settings() });
    // A server of the same protocol at each port, the second one with an open connection.
    let read = |tracker: &mut ConnectionTracker, server: u16, start: u64, is_whole: bool| {
        let first_id = u32::from(server) * 100;
        let client_port = 40_000 + (start / 1_000_000_000 % 1_000) as u16;
        let shape = ConversationShape { first_id, client_port, start, ..Default::default() };
        let packets = Conversation::new(&shape).packets;
        let count = packets.len() - if is_whole { 0 } else { 4 };
        for packet in &packets[..count] {
            packet.read_with_port(tracker, rule.port + server);
        }
    };
    read(&mut tracker, 0, START, true);
    read(&mut tracker, 1, START + HOUR, false);
    assert_eq!(tracker.forget_idle_services(), 0, "not for an hour");
    read(&mut tracker, 2, START + HOUR + 1_000_000_000, true);
    assert_eq!(tracker.services().len(), 3);
    assert!(tracker.services()[2].name.starts_with("other "), "{}", tracker.services()[2].name);
    assert_eq!(tracker.forget_idle_services(), 1);
    assert_eq!(tracker.services().len(), 2);
    assert_eq!(tracker.in_flight()[0].service, 0, "the second one is the first one now");
    read(&mut tracker, 2, START + HOUR + 2_000_000_000, true);
    let names: Vec<&str> = tracker.services().iter().map(|service| &*service.name).collect();
    assert!(names[2].ends_with(&format!(":{}", rule.port + 2)), "{names:?}");
    let (measured, not_measured, in_flight) = counts(&tracker);
    assert_eq!((measured, not_measured, in_flight), (9, 0, 1));
}

#[test]
fn rules_are_replaced_while_packets_are_read() {
    let mut tracker = tracker();
    let rule = settings().rules[0].clone();
    let port = rule.port + 1;
    let read = |tracker: &mut ConnectionTracker, number: u16, server: u16| {
        let shape = ConversationShape {
            first_id: u32::from(number) * 100,
            client_port: 40_000 + number,
            start: START + u64::from(number) * 1_000_000_000,
            ..Default::default()
        };
        for packet in &Conversation::new(&shape).packets {
            packet.read_with_port(tracker, server);
        }
    };
    let measured = |tracker: &ConnectionTracker| {
        let services = tracker.services().iter();
        services.map(|service| service.completeness.measured).collect::<Vec<_>>()
    };
    read(&mut tracker, 0, port);
    assert_eq!(measured(&tracker), [0; 0], "no rule");
    tracker.set_rules(vec![rule.clone(), ServiceRule { port, ..rule.clone() }]);
    read(&mut tracker, 1, port);
    read(&mut tracker, 2, rule.port);
    assert_eq!(measured(&tracker), [10, 10]);
    // A name makes it another service; the other server has no rule any more.
    let name = Some("shop".to_owned());
    tracker.set_rules(vec![ServiceRule { port, name, ..rule.clone() }]);
    read(&mut tracker, 3, port);
    read(&mut tracker, 4, rule.port);
    assert_eq!(measured(&tracker), [10, 10, 10]);
    assert_eq!(tracker.services()[2].name, "shop");
}

#[test]
fn clients_are_told_apart_by_their_network() {
    let peers = Some(PeerSettings { ipv4_prefix: 24, ipv6_prefix: 64, peers_max: 5 });
    let mut tracker = ConnectionTracker::new(TrackerSettings { peers, ..settings() });
    conversation().packets.iter().for_each(|packet| packet.read_by(&mut tracker));
    let interval = tracker.take_interval();
    let [service] = &interval.services[..] else { panic!("one service") };
    assert_eq!(service.completeness.measured, 10);
    assert!(service.statements.iter().all(|statement| &*statement.peer == "10.0.0.0/24"));
    assert_eq!(tracker.services()[0].completeness.measured, 0, "it was taken");
}

#[test]
fn a_full_table_forgets_the_oldest_connection_and_counts_it() {
    let mut tracker = ConnectionTracker::new(TrackerSettings { connections_max: 10, ..settings() });
    for client in 0..25 {
        let shape = ConversationShape {
            first_id: client * 10,
            client_port: 40_000 + client as u16,
            start: START + u64::from(client) * 1_000_000,
            ..Default::default()
        };
        let packets = Conversation::new(&shape).packets;
        packets[..packets.len() - 4].iter().for_each(|packet| packet.read_by(&mut tracker));
    }
    assert_eq!(counts(&tracker), (25 * 9, 15, 10));
    assert_eq!(tracker.services()[0].completeness.evicted_connections, 15);
    assert_eq!(tracker.open_connections(), 10);
}

#[test]
fn full_memory_of_observers_forgets_connections() {
    let limits = TrackerSettings { observer_bytes_max: 2_000, ..settings() };
    let mut tracker = ConnectionTracker::new(limits);
    let mut packets = Vec::new();
    for client in 0..30 {
        let shape = ConversationShape {
            first_id: client * 10,
            client_port: 40_000 + client as u16,
            start: START + u64::from(client) * 1_000_000,
            ..Default::default()
        };
        // Handshake and the first request.
        packets.extend(Conversation::new(&shape).packets.into_iter().take(4));
    }
    packets.iter().for_each(|packet| packet.read_by(&mut tracker));
    let (measured, not_measured, in_flight) = counts(&tracker);
    assert_eq!((measured, not_measured + in_flight), (0, 30));
    assert_eq!(tracker.services()[0].completeness.evicted_connections, not_measured);
    assert!(tracker.connection_memory() <= 2_000 && not_measured > 0 && in_flight > 0);
}

#[test]
fn in_flight_requests_have_their_age() {
    let whole = conversation();
    let packets = &whole.packets[..whole.packets.len() - 4];
    let in_flight = read_all(packets).in_flight();
    assert_eq!(in_flight.len(), 1);
    let summary = &in_flight[0];
    assert_eq!((summary.statement.as_str(), summary.requests), ("9", 1));
    assert!(summary.is_wait);
    assert_eq!(summary.oldest, packets[packets.len() - 2].time);
}

#[test]
fn a_hole_that_nobody_acknowledges_is_bounded() {
    let sizes = vec![(0, 60_000); 40];
    let mut packets =
        Conversation::new(&ConversationShape { sizes, depth: 40, ..Default::default() }).packets;
    // The first packet of the responses is lost, and so is every acknowledgement of the client.
    let responses = packets.iter().position(|packet| {
        packet.direction == FlowDirection::ToClient && !packet.payload.is_empty()
    });
    packets.remove(responses.unwrap());
    packets.truncate(packets.len() - 3);
    let tracker = read_all(&packets);
    let (measured, not_measured, in_flight) = counts(&tracker);
    // The hole became a gap when the buffer was full: all requests were then in flight.
    assert_eq!((measured, not_measured, in_flight), (0, 40, 0));
    assert!(tracker.connection_memory() < 1 << 21, "{}", tracker.connection_memory());
}

#[test]
fn traffic_without_a_rule_is_counted_by_port() {
    let mut tracker = ConnectionTracker::new(TrackerSettings { rules: Vec::new(), ..settings() });
    conversation().packets.iter().for_each(|packet| packet.read_by(&mut tracker));
    assert_eq!(tracker.totals().other_tcp.packets, 45);
    let ports = tracker.other_ports();
    assert_eq!((ports.len(), ports[0].0, ports[0].1.bytes), (1, 4_000, 10 * 88));
    assert!(tracker.services().is_empty());
}
