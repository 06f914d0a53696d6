//! Packets of a capture that belong to no service.

use crate::packet::UndecodedReason;

/// Packets that belong to no service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureTotals {
    /// All packets.
    pub packets: u64,
    /// Packets that were not decoded, in the order of [`UndecodedReason::ALL`].
    pub undecoded: [u64; UndecodedReason::ALL.len()],
    /// Packets without a time, which are not measured.
    pub without_time: u64,
    /// TCP packets of ports without a rule.
    pub other_tcp: TrafficCounter,
    /// UDP packets of ports without a rule.
    pub other_udp: TrafficCounter,
    /// Packets of connections with a rule that are not followed: bare acknowledgements of
    /// connections without payload so far, and repeated packets of closed ones.
    pub idle_packets: u64,
}

impl CaptureTotals {
    /// Adds the packets of another part of the capture.
    pub fn merge(&mut self, other: &CaptureTotals) {
        let CaptureTotals { packets, undecoded, without_time, other_tcp, other_udp, idle_packets } =
            other;
        self.packets += packets;
        self.undecoded.iter_mut().zip(undecoded).for_each(|(into, from)| *into += from);
        self.without_time += without_time;
        for (into, from) in [(&mut self.other_tcp, other_tcp), (&mut self.other_udp, other_udp)] {
            into.packets += from.packets;
            into.bytes += from.bytes;
        }
        self.idle_packets += idle_packets;
    }
}

/// Packets and the bytes of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounter {
    /// Packets.
    pub packets: u64,
    /// Payload bytes.
    pub bytes: u64,
}

impl TrafficCounter {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}
