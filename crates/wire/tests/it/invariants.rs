//! For any conversation and any damage to its packets: each request that was seen is measured, not
//! measured or in flight, and each measured latency is the true one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use protocol::observer::FlowDirection;
use wire::TcpFlags;

use crate::checks::message_protocol;
use crate::conversation::{
    Conversation, ConversationShape, START, TestPacket, counts, index, measured_latencies, tracker,
};

/// Harm that a network, the kernel or a capture does to packets.
#[derive(Clone, Debug)]
enum PacketDamage {
    /// The capture lost the packet.
    Loss(usize),
    /// The capture cut the payload.
    Cut(usize, usize),
    /// The packet is sent again after this many others.
    Repetition(usize, usize),
    /// Bytes before this packet are sent again in other portions.
    Overlap(usize, usize, usize),
    /// The packet changes places with the next one of its direction.
    Swap(usize),
    /// The capture starts behind this packet.
    LateStart(usize),
}

fn damage() -> impl Strategy<Value = PacketDamage> {
    use PacketDamage::{Cut, LateStart, Loss, Overlap, Repetition, Swap};
    let at = any::<prop::sample::Index>().prop_map(|at| at.index(1 << 16));
    prop_oneof![
        2 => at.clone().prop_map(Loss),
        1 => (at.clone(), 0..40_usize).prop_map(|(at, size)| Cut(at, size)),
        3 => (at.clone(), 0..20_usize).prop_map(|(at, later)| Repetition(at, later)),
        3 => (at.clone(), 1..200_usize, 0..150_usize).prop_map(|(at, b, l)| Overlap(at, b, l)),
        4 => at.clone().prop_map(Swap),
        1 => (0..12_usize).prop_map(LateStart),
    ]
}

fn shape(first_id: u32) -> impl Strategy<Value = ConversationShape> {
    let sizes = prop::collection::vec((0..200_usize, 0..600_usize), 1..40);
    let initial = prop_oneof![Just(u32::MAX - 700), any::<u32>()];
    let numbers = (initial.clone(), initial, 5..400_usize, 1..8_usize);
    (sizes, numbers).prop_map(move |(sizes, (one, other, segment, depth))| ConversationShape {
        first_id,
        sizes,
        depth,
        segment,
        initial: [one, other],
        ..ConversationShape::default()
    })
}

/// Whether bytes are missing in the capture.
fn apply(conversation: &mut Conversation, all: &[PacketDamage]) -> bool {
    let mut has_gaps = false;
    let order = |damage: &&PacketDamage| match damage {
        // Reordering happens on the network, loss in the capture, and only what was captured
        // before is repeated: the capture saw the first transmission of each byte or none.
        PacketDamage::Swap(_) => 0,
        PacketDamage::Loss(_) | PacketDamage::Cut(..) | PacketDamage::LateStart(_) => 1,
        PacketDamage::Repetition(..) | PacketDamage::Overlap(..) => 2,
    };
    let mut sorted: Vec<&PacketDamage> = all.iter().collect();
    sorted.sort_by_key(order);
    for damage in sorted {
        let count = conversation.packets.len();
        if count < 2 {
            return has_gaps;
        }
        match *damage {
            PacketDamage::Swap(at) => swap(conversation, at % (count - 1)),
            PacketDamage::Loss(at) => {
                let lost = conversation.packets.remove(at % count);
                let is_syn = TcpFlags(lost.flags).contains(TcpFlags::SYN);
                has_gaps |= !lost.payload.is_empty() || is_syn;
            }
            PacketDamage::Cut(at, size) => {
                let packet = &mut conversation.packets[at % count];
                has_gaps |= size < packet.captured;
                packet.captured = packet.captured.min(size);
            }
            PacketDamage::LateStart(first) => {
                let kept = conversation.packets.split_off(first.min(count - 1));
                conversation.packets = kept;
                has_gaps |= first > 0;
            }
            PacketDamage::Repetition(at, later) => repeat(conversation, at % count, later),
            PacketDamage::Overlap(at, back, length) => {
                overlap(conversation, at % count, back, length);
            }
        }
    }
    has_gaps
}

/// Exchanges a packet and the next one if both have payload and one direction. Times stay.
fn swap(conversation: &mut Conversation, at: usize) {
    let [one, other] = &mut conversation.packets[at..at + 2] else { return };
    let has_payload = !one.payload.is_empty() && !other.payload.is_empty();
    if has_payload && one.direction == other.direction {
        std::mem::swap(one, other);
        std::mem::swap(&mut one.time, &mut other.time);
    }
}

/// Time between two packets, or behind the last one.
fn time_before(packets: &[TestPacket], at: usize) -> u64 {
    let before = packets[at - 1].time;
    packets.get(at).map_or(before + 500, |next| before + (next.time - before) / 2)
}

fn repeat(conversation: &mut Conversation, at: usize, later: usize) {
    let place = (at + 1 + later).min(conversation.packets.len());
    let mut packet = conversation.packets[at].clone();
    packet.time = time_before(&conversation.packets, place);
    packet.acknowledged = acknowledged(&conversation.packets[..place], packet.direction);
    conversation.packets.insert(place, packet);
}

/// What the sender had acknowledged by then.
fn acknowledged(packets: &[TestPacket], direction: FlowDirection) -> u64 {
    let own = packets.iter().filter(|packet| packet.direction == direction);
    own.map(|packet| packet.acknowledged).max().unwrap_or(0)
}

/// Sends bytes again that were captured before packet `at`, from `back` bytes before its end on.
fn overlap(conversation: &mut Conversation, at: usize, back: usize, length: usize) {
    let direction = conversation.packets[at].direction;
    let mut stream: BTreeMap<u64, u8> = BTreeMap::new();
    for packet in &conversation.packets[..=at] {
        if packet.direction == direction {
            let bytes = packet.payload[..packet.captured].iter().enumerate();
            stream.extend(bytes.map(|(offset, byte)| (packet.position + offset as u64, *byte)));
        }
    }
    let end = conversation.packets[at].position + conversation.packets[at].payload.len() as u64;
    let start = end.saturating_sub(back as u64);
    let bytes = (start..end).map_while(|position| stream.get(&position).copied());
    let payload: Vec<u8> = bytes.take(length).collect();
    if payload.is_empty() {
        return;
    }
    let mut packet = conversation.packets[at].clone();
    packet.time = time_before(&conversation.packets, at + 1);
    packet.flags = TcpFlags::ACK.0;
    (packet.position, packet.captured, packet.payload) = (start, payload.len(), payload);
    conversation.packets.insert(at + 1, packet);
}

/// Reads all packets in the order of their times, and checks the result.
fn check(conversations: &[Conversation], has_gaps: bool) -> Result<(), TestCaseError> {
    let mut tracker = tracker();
    message_protocol::take_requests_seen();
    let mut packets: Vec<&TestPacket> = conversations.iter().flat_map(|of| &of.packets).collect();
    packets.sort_by_key(|packet| packet.time);
    packets.iter().for_each(|packet| packet.read_by(&mut tracker));
    let seen = message_protocol::take_requests_seen();
    let (measured, not_measured, in_flight) = counts(&tracker);
    prop_assert_eq!(measured + not_measured + in_flight, seen);
    let mut expected = BTreeMap::new();
    conversations.iter().for_each(|conversation| expected.extend(conversation.latencies()));
    let found = measured_latencies(&tracker);
    prop_assert_eq!(found.len() as u64, measured);
    for (id, latency) in &found {
        prop_assert_eq!(Some(latency), expected.get(id), "latency of request {}", id);
    }
    if !has_gaps {
        let total: usize =
            conversations.iter().map(|conversation| conversation.requests.len()).sum();
        prop_assert_eq!((measured, not_measured, in_flight), (total as u64, 0, 0));
        let completeness = &tracker.services()[0].completeness;
        prop_assert_eq!((completeness.gaps, completeness.unparsed_bytes), (0, 0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Retransmissions, overlaps and reordering change nothing; loss and cuts lose only what they
    /// affect.
    #[test]
    fn every_request_is_accounted_for_and_no_latency_is_wrong(
        shape in shape(0),
        damage in prop::collection::vec(damage(), 0..12),
    ) {
        let mut conversation = Conversation::new(&shape);
        let has_gaps = apply(&mut conversation, &damage);
        check(&[conversation], has_gaps)?;
    }

    /// Two connections at once, or one after the other with the same ports.
    #[test]
    fn connections_are_kept_apart(
        first in shape(0),
        second in shape(1_000),
        damage in prop::collection::vec(damage(), 0..6),
        is_later in any::<bool>(),
    ) {
        let mut one = Conversation::new(&first);
        let (client_port, start) = match is_later {
            true => (40_000, START + 10_000_000_000),
            false => (40_001, START),
        };
        // Operating systems choose other numbers for the same ports.
        let initial = second.initial.map(|number| number ^ 1 << 31);
        let shape = ConversationShape { client_port, start, initial, ..second };
        let mut other = Conversation::new(&shape);
        let mut has_gaps = apply(&mut one, &damage);
        has_gaps |= apply(&mut other, &damage);
        check(&[one, other], has_gaps)?;
    }
}

#[test]
fn the_oracle_knows_reordering_and_loss() {
    let mut conversation = Conversation::new(&ConversationShape::default());
    assert_eq!(conversation.latencies().len(), 10);
    let first = conversation.data_packets()[0];
    assert_eq!(index(conversation.packets[first].direction), 0);
    conversation.packets.remove(first);
    assert_eq!(conversation.latencies().len(), 9);
}
