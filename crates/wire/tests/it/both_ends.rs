//! Requests of captures at both ends: with known delays and clocks, any damage, and other segments.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::observer::FlowDirection;
use wire::{
    CapturedPacket, ConnectionTracker, EndComparison, LinkType, SegmentBoundaries,
    ServiceComparison, TcpFlags,
};

use crate::checks::message_protocol;
use crate::conversation::{
    Conversation, ConversationShape, START, TestPacket, measured_latencies, settings,
};

/// The server's clock minus the client's, in nanoseconds.
pub(crate) const OFFSET: u64 = 7_000_000_000;
/// Delays of the network, less than half of the shortest time between two packets.
pub(crate) const DELAYS: [u64; 2] = [300, 120];

/// The packets as the host of the server sees them.
pub(crate) fn at_server(packets: &[TestPacket]) -> Vec<TestPacket> {
    let mut packets = packets.to_vec();
    for packet in &mut packets {
        packet.time += OFFSET;
        match packet.direction {
            FlowDirection::ToServer => packet.time += DELAYS[0],
            FlowDirection::ToClient => packet.time -= DELAYS[1],
        }
    }
    packets
}

/// The packets with neighbours of one direction joined up to `bytes_max`, as a network card or the
/// kernel joins them: at the time of the last one.
pub(crate) fn joined(packets: &[TestPacket], bytes_max: usize) -> Vec<TestPacket> {
    let mut all: Vec<TestPacket> = Vec::new();
    for packet in packets {
        let fits = |last: &&mut TestPacket| {
            let is_plain = last.flags == TcpFlags::ACK.0 && packet.flags == last.flags;
            let is_next = last.position + last.payload.len() as u64 == packet.position;
            let has_payload = !last.payload.is_empty() && !packet.payload.is_empty();
            let is_whole =
                last.captured == last.payload.len() && packet.captured == packet.payload.len();
            let is_same = last.direction == packet.direction
                && last.client_port == packet.client_port
                && last.initial == packet.initial;
            let size = last.payload.len() + packet.payload.len();
            is_plain && is_next && has_payload && is_whole && is_same && size <= bytes_max
        };
        match all.last_mut().filter(fits) {
            Some(last) => {
                last.payload.extend(&packet.payload);
                last.captured = last.payload.len();
                (last.time, last.acknowledged) = (packet.time, packet.acknowledged);
            }
            None => all.push(packet.clone()),
        }
    }
    all
}

/// Compares captures, and checks counts and times against those that each of them measures.
fn compare(ends: [&[TestPacket]; 2]) -> Result<EndComparison, TestCaseError> {
    run(ends).map(|(comparison, _)| comparison)
}

/// Latencies of an end, by id of the request.
type EndLatencies = BTreeMap<u32, u64>;

/// As [`compare`], with what each end measures.
fn run(ends: [&[TestPacket]; 2]) -> Result<(EndComparison, [EndLatencies; 2]), TestCaseError> {
    let mut boundaries = SegmentBoundaries::new(&settings().rules, 1 << 20);
    for packet in ends.into_iter().flatten() {
        let (bytes, original_bytes) = (packet.bytes(), 40 + packet.payload.len() as u32);
        let (time, link_type) = (Some(packet.time), LinkType::RawIp);
        boundaries.read(&CapturedPacket { time, link_type, bytes: &bytes, original_bytes });
    }
    prop_assert!(!boundaries.is_full());
    let cuts = boundaries.into_cuts();
    let mut trackers = [(); 2].map(|()| ConnectionTracker::new(settings()));
    let mut latencies: [EndLatencies; 2] = Default::default();
    for end in 0..2 {
        trackers[end].record_requests(cuts.clone());
        let mut packets: Vec<&TestPacket> = ends[end].iter().collect();
        packets.sort_by_key(|packet| packet.time);
        packets.iter().for_each(|packet| packet.read_by(&mut trackers[end]));
        latencies[end] = measured_latencies(&trackers[end]);
    }
    message_protocol::take_requests_seen();
    let [client, server] = &mut trackers;
    let comparison = EndComparison::new(client, server);
    let Some(service) = comparison.services.first() else { return Ok((comparison, latencies)) };
    let shared = latencies[0].iter().filter_map(|(id, at_client)| {
        let at_server = latencies[1].get(id)?;
        Some((*id, *at_client, *at_server))
    });
    let shared: Vec<(u32, u64, u64)> = shared.collect();
    check_counts(service, &latencies, shared.len() as u64)?;
    // Every tenth is a wait.
    let work = shared.iter().filter(|(id, ..)| id % 10 != 9);
    let network: Vec<u64> = work.filter_map(|(_, one, other)| network(*one, *other)).collect();
    prop_assert_eq!(service.network.count(), network.len() as u64);
    prop_assert_eq!(service.network.sum().estimate, network.iter().sum::<u64>() as f64);
    let longest = service.network.max().map(|max| max.estimate as u64);
    prop_assert_eq!(longest, network.iter().max().copied());
    Ok((comparison, latencies))
}

/// Time in the network by the latencies at both ends, which is negative only beyond the error of
/// the time stamps.
pub(crate) fn network(at_client: u64, at_server: u64) -> Option<u64> {
    let is_within_error = at_server.saturating_sub(at_client) <= 1_000 + at_server / 10_000;
    at_client.checked_sub(at_server).or(is_within_error.then_some(0))
}

/// All requests are matched or at one end only.
fn check_counts(
    service: &ServiceComparison,
    latencies: &[EndLatencies; 2],
    shared: u64,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(service.matched, shared);
    for (counts, latencies) in service.ends.iter().zip(latencies) {
        prop_assert_eq!(counts.measured, latencies.len() as u64);
        prop_assert_eq!(counts.measured, service.matched + counts.unmatched());
        prop_assert_eq!(counts.missing_sequence, 0);
    }
    let only: u64 = service.ends.iter().map(|counts| counts.unmatched()).sum();
    prop_assert_eq!(service.requests(), service.matched + only);
    prop_assert_eq!(service.latency[0].count(), service.matched - service.waits);
    prop_assert_eq!(service.network.count() + service.negative, service.latency[0].count());
    Ok(())
}

fn conversation() -> Conversation {
    Conversation::new(&ConversationShape::default())
}

#[test]
fn delays_and_clocks_are_found() {
    let packets = conversation().packets;
    let comparison = compare([&packets, &at_server(&packets)]).unwrap();
    let [service] = &comparison.services[..] else { panic!("one service") };
    assert_eq!((service.matched, service.requests(), service.waits), (10, 10, 1));
    let round_trip = (DELAYS[0] + DELAYS[1]) as f64;
    assert_eq!(service.network.min().unwrap().estimate, round_trip);
    assert_eq!(service.network.max().unwrap().estimate, round_trip);
    assert_eq!(service.without_one_way, 0);
    let true_times = DELAYS.map(|delay| delay as f64);
    for (times, delay) in [&service.to_server, &service.to_client].into_iter().zip(true_times) {
        assert!(times.least.max().unwrap().estimate <= delay);
        assert!(times.most.min().unwrap().estimate >= delay);
        assert!(times.most.max().unwrap().estimate <= round_trip);
    }
    let offset = comparison.offset.unwrap();
    for interval in [offset.first, offset.last, offset.narrowest] {
        assert!(interval.lower <= OFFSET as i64 && OFFSET as i64 <= interval.upper);
        // As wide as the round trip: nothing else is known.
        let width = interval.upper - interval.lower;
        assert!((420..500).contains(&width), "{width}");
    }
    assert_eq!(service.first_server_time.count(), 1);
    assert_eq!(service.server_time.count(), 8);
    let connect = packets[1].time - packets[0].time;
    assert_eq!(service.connect.ends[0].max().unwrap().estimate, connect as f64);
    assert_eq!(service.connect.network.max().unwrap().estimate, round_trip);
    assert_eq!((comparison.connections, comparison.shared_connections), ([1, 1], 1));
}

#[test]
fn a_request_that_one_capture_lost_is_at_the_other_end_only() {
    let packets = conversation().packets;
    for lost in conversation().data_packets() {
        for end in 0..2 {
            let mut ends = [packets.clone(), at_server(&packets)];
            ends[end].remove(lost);
            let comparison = compare([&ends[0], &ends[1]]).unwrap();
            let service = &comparison.services[0];
            assert_eq!((service.matched, service.requests()), (9, 10));
            assert_eq!(service.ends[1 - end].missing_request, 1);
            assert_eq!(service.ends[end].unmatched(), 0);
        }
    }
}

#[test]
fn translated_addresses_match_nothing() {
    let packets = conversation().packets;
    // Other ids, because `compare` expects that the same ids match.
    let shape = ConversationShape { client_port: 61_000, first_id: 100, ..Default::default() };
    let translated = at_server(&Conversation::new(&shape).packets);
    let comparison = compare([&packets, &translated]).unwrap();
    let service = &comparison.services[0];
    assert_eq!((service.matched, service.requests()), (0, 20));
    assert_eq!(service.ends.map(|counts| counts.missing_connection), [10, 10]);
    assert_eq!((comparison.connections, comparison.shared_connections), ([1, 1], 0));
    assert!(comparison.offset.is_none());
}

#[test]
fn ports_that_are_used_again_are_other_requests() {
    let first = conversation().packets;
    let shape = ConversationShape {
        first_id: 100,
        start: START + 1_000_000_000,
        initial: [3_000_000_000, 2_000_000_000],
        ..Default::default()
    };
    let second = Conversation::new(&shape).packets;
    let both = [first.clone(), second.clone()].concat();
    let comparison = compare([&both, &at_server(&both)]).unwrap();
    assert_eq!(comparison.services[0].matched, 20);
    // One capture began later, the other ended earlier.
    let comparison = compare([&first, &at_server(&second)]).unwrap();
    let service = &comparison.services[0];
    assert_eq!((service.matched, service.requests()), (0, 20));
    assert_eq!(service.ends.map(|counts| counts.missing_request), [10, 10]);
}

#[test]
fn a_lost_syn_is_time_of_the_network() {
    let packets = conversation().packets;
    let mut at_client = packets.clone();
    let mut first = packets[0].clone();
    first.time = START - 900_000_000;
    at_client.insert(0, first);
    let comparison = compare([&at_client, &at_server(&packets)]).unwrap();
    let connect = &comparison.services[0].connect;
    let waited = packets[0].time - (START - 900_000_000);
    let expected = (waited + DELAYS[0] + DELAYS[1]) as f64;
    assert_eq!(connect.network.max().unwrap().estimate, expected);
}

#[test]
fn exchanged_captures_have_negative_times() {
    let mut packets = conversation().packets;
    // As in a network with delays beyond the error of time stamps.
    packets.iter_mut().for_each(|packet| packet.time = START + (packet.time - START) * 10);
    let mut server = at_server(&packets);
    for (packet, at_client) in server.iter_mut().zip(&packets) {
        let at_client = at_client.time + OFFSET;
        packet.time = at_client + packet.time * 10 - at_client * 10;
    }
    let comparison = compare([&server, &packets]).unwrap();
    let service = &comparison.services[0];
    assert_eq!((service.negative, service.network.count()), (9, 0));
}

#[test]
fn two_captures_of_one_host_have_a_time_in_the_network_for_each_request() {
    let packets = conversation().packets;
    // The client's capture is the later one to stamp a request, and the earlier one for a response.
    let mut client = packets.clone();
    for packet in &mut client {
        match packet.direction {
            FlowDirection::ToServer => packet.time += 80,
            FlowDirection::ToClient => packet.time -= 20,
        }
    }
    let comparison = compare([&client, &packets]).unwrap();
    let service = &comparison.services[0];
    assert_eq!((service.negative, service.without_one_way), (0, 0));
    assert_eq!((service.network.count(), service.network.sum().estimate), (9, 0.0));
    assert_eq!(service.connect.network.count(), 1);
}

/// Damage to the packets of one capture.
#[derive(Clone, Debug)]
pub(crate) struct CaptureDamage {
    lost: Vec<prop::sample::Index>,
    cut: Vec<(prop::sample::Index, usize)>,
    late_start: usize,
    joined_bytes: usize,
}

pub(crate) fn damage() -> impl Strategy<Value = CaptureDamage> {
    let at = any::<prop::sample::Index>;
    let lost = prop::collection::vec(at(), 0..4);
    let cut = prop::collection::vec((at(), 0..100_usize), 0..3);
    let late_start = prop_oneof![3 => Just(0), 1 => 0..15_usize];
    let joined_bytes = prop_oneof![Just(0), 100..5_000_usize];
    (lost, cut, late_start, joined_bytes).prop_map(|(lost, cut, late_start, joined_bytes)| {
        CaptureDamage { lost, cut, late_start, joined_bytes }
    })
}

pub(crate) fn damaged(packets: &[TestPacket], damage: &CaptureDamage) -> Vec<TestPacket> {
    let mut packets = joined(packets, damage.joined_bytes);
    for at in &damage.lost {
        let at = at.index(packets.len());
        packets.remove(at);
    }
    for (at, size) in &damage.cut {
        let packet = at.get(&packets).clone();
        let at = at.index(packets.len());
        packets[at].captured = packet.captured.min(*size);
    }
    packets.split_off(damage.late_start.min(packets.len() - 1))
}

/// Segments that arrive at the server in another order. Times stay.
pub(crate) fn reordered(packets: &[TestPacket], swaps: &[prop::sample::Index]) -> Vec<TestPacket> {
    let mut packets = packets.to_vec();
    for at in swaps {
        let at = at.index(packets.len() - 1);
        let [one, other] = &mut packets[at..at + 2] else { continue };
        let has_payload = !one.payload.is_empty() && !other.payload.is_empty();
        let is_to_server = [&one, &other].iter().all(|of| of.direction == FlowDirection::ToServer);
        if has_payload && is_to_server {
            std::mem::swap(one, other);
            std::mem::swap(&mut one.time, &mut other.time);
        }
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the captures lost, and however segments were joined and reordered: each request
    /// that both measured is matched, with the true difference of its latencies.
    #[test]
    fn every_request_is_matched_or_at_one_end(
        sizes in prop::collection::vec((0..200_usize, 0..600_usize), 1..40),
        is_uniform in any::<bool>(),
        depth in 1..9_usize,
        segment in 20..400_usize,
        initial in prop_oneof![Just(u32::MAX - 700), any::<u32>()],
        damages in [damage(), damage()],
        swaps in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        // Equal requests of a pipeline are the hardest to tell apart.
        let sizes = if is_uniform { vec![sizes[0]; sizes.len()] } else { sizes };
        let initial = [initial, !initial];
        let shape = ConversationShape { sizes, depth, segment, initial, ..Default::default() };
        let Conversation { packets, requests } = Conversation::new(&shape);
        let server = reordered(&at_server(&packets), &swaps);
        let ends = [damaged(&packets, &damages[0]), damaged(&server, &damages[1])];
        let (_, latencies) = run([&ends[0], &ends[1]])?;
        for (packets, found) in ends.into_iter().zip(latencies) {
            let truth = Conversation { packets, requests: requests.clone() }.latencies();
            for (id, latency) in found {
                prop_assert_eq!(Some(&latency), truth.get(&id), "latency of request {}", id);
            }
        }
    }
}
