//! Where the segments of streams begin and end, in one or more captures of the same connections.
//!
//! Two hosts see the bytes of a stream in different portions: a network card divides and joins
//! segments. If both streams are cut at the boundaries of both captures, each part of a stream has
//! one time at each host, and is known by the sequence number behind it.
//!
//! A connection that uses the ports of an earlier one adds its boundaries to those of that one.
//! More cuts than necessary change nothing.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::capture_file::CapturedPacket;
use crate::packet::{Packet, TcpFlags, TransportHeader};
use crate::service_rule::ServiceRule;

/// Sender and receiver of a stream.
type StreamAddresses = (SocketAddr, SocketAddr);

/// Boundaries that take as much memory as a stream without any: addresses, and room in a map.
const STREAM_BOUNDARIES: usize = 40;

/// Boundaries of segments, while captures are read.
pub struct SegmentBoundaries {
    has_rule: Box<[bool; 1 << 16]>,
    /// Sequence numbers in the order in which they were read.
    streams: HashMap<StreamAddresses, Vec<u32>>,
    count: usize,
    limit: usize,
    is_full: bool,
}

/// Sequence numbers at which streams are cut.
#[derive(Clone, Default)]
pub struct StreamCuts {
    streams: Arc<HashMap<StreamAddresses, Arc<[u32]>>>,
}

impl SegmentBoundaries {
    /// No boundaries. At most `limit` will be known, of the streams of these rules, with 4 bytes
    /// each; a stream counts as [`STREAM_BOUNDARIES`] more.
    pub fn new(rules: &[ServiceRule], limit: usize) -> SegmentBoundaries {
        let mut has_rule = Box::new([false; 1 << 16]);
        rules.iter().for_each(|rule| has_rule[usize::from(rule.port)] = true);
        SegmentBoundaries { has_rule, streams: HashMap::new(), count: 0, limit, is_full: false }
    }

    /// Adds the boundaries of a packet.
    pub fn read(&mut self, captured: &CapturedPacket<'_>) {
        let decoded = Packet::decode(captured.link_type, captured.bytes, captured.original_bytes);
        let Ok(packet) = decoded else { return };
        let TransportHeader::Tcp { sequence, flags, .. } = packet.transport else { return };
        let has_rule = |address: SocketAddr| self.has_rule[usize::from(address.port())];
        let is_known = has_rule(packet.source) || has_rule(packet.destination);
        if packet.payload_bytes == 0 || !is_known || self.is_full {
            return;
        }
        // Data in a SYN has the number behind it.
        let start = sequence.wrapping_add(u32::from(flags.contains(TcpFlags::SYN)));
        let numbers =
            self.streams.entry((packet.source, packet.destination)).or_insert_with(|| {
                self.count += STREAM_BOUNDARIES;
                Vec::new()
            });
        for length in [0, packet.payload.len() as u64, packet.payload_bytes] {
            let boundary = start.wrapping_add(length as u32);
            if numbers.last() == Some(&boundary) {
                continue;
            }
            if self.count >= self.limit {
                self.is_full = true;
                return;
            }
            numbers.push(boundary);
            self.count += 1;
        }
    }

    /// Whether boundaries are missing because of the limit.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// The cuts of all streams.
    pub fn into_cuts(self) -> StreamCuts {
        let sorted = |(addresses, mut numbers): (StreamAddresses, Vec<u32>)| {
            numbers.sort_unstable();
            numbers.dedup();
            (addresses, Arc::<[u32]>::from(numbers))
        };
        StreamCuts { streams: Arc::new(self.streams.into_iter().map(sorted).collect()) }
    }
}

impl StreamCuts {
    /// Sequence numbers at which the stream of a sender is cut, in ascending order.
    pub(crate) fn of(&self, sender: SocketAddr, receiver: SocketAddr) -> Arc<[u32]> {
        self.streams.get(&(sender, receiver)).cloned().unwrap_or_default()
    }
}

/// Number of bytes from `sequence` to the next cut, at most `length`.
pub(crate) fn uncut_bytes(cuts: &[u32], sequence: u32, length: usize) -> usize {
    let at = cuts.partition_point(|cut| *cut <= sequence);
    // Numbers wrap around.
    let next = cuts.get(at).or(cuts.first());
    match next.map_or(0, |next| next.wrapping_sub(sequence)) {
        0 => length,
        distance => length.min(distance as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cuts: &[u32], sequence: u32, length: usize, expected: usize) {
        assert_eq!(uncut_bytes(cuts, sequence, length), expected);
    }

    #[test]
    fn bytes_are_cut_at_the_next_boundary() {
        check(&[], 10, 50, 50);
        check(&[10], 10, 50, 50);
        check(&[10, 30], 10, 50, 20);
        check(&[10, 30], 10, 15, 15);
        check(&[10, 30], 5, 50, 5);
        check(&[10, 30], 40, 50, 50);
    }

    #[test]
    fn boundaries_wrap_around_with_the_sequence_numbers() {
        check(&[20, u32::MAX - 9], u32::MAX - 9, 100, 30);
        check(&[20, u32::MAX - 9], u32::MAX - 19, 100, 10);
        check(&[0], u32::MAX, 2, 1);
    }
}
