//! What was seen of a service and how much of it was measured.
//!
//! Every request that an observer saw is in exactly one of: measured, not measured (by reason), in
//! flight. Requests whose every byte was lost cannot be counted; the gap bytes tell that there may
//! be some.

use protocol::observer::{NotMeasuredReason, ObserverState};

/// Counts of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Packets of the service's connections.
    pub packets: u64,
    /// Payload bytes on the network, with repeated ones.
    pub payload_bytes: u64,
    /// Connections captured from their first byte.
    pub connections_from_start: u64,
    /// Connections captured from somewhere after it.
    pub connections_from_middle: u64,
    /// Connections that the server refused.
    pub connections_refused: u64,
    /// Operations in the histograms, with waits.
    pub measured: u64,
    /// Those of `measured` that wait by design.
    pub waits: u64,
    /// Requests that were seen but not measured.
    pub not_measured: NotMeasuredCounts,
    /// Gaps in streams, and their size.
    pub gaps: u64,
    /// Bytes that were not captured.
    pub gap_bytes: u64,
    /// How often an observer lost its position in a connection.
    pub resyncs: u64,
    /// Captured bytes that were not attributed to a message.
    pub unparsed_bytes: u64,
    /// Connections whose packets are encrypted, those that are read at the TLS library included.
    pub encrypted_connections: u64,
    /// Bytes of them since encryption was detected.
    pub encrypted_bytes: u64,
    /// Sessions that are read at the TLS library.
    pub library_sessions: u64,
    /// Plaintext of them.
    pub library_bytes: u64,
    /// Connections that became streams without requests, or violate the protocol.
    pub unmeasurable_connections: u64,
    /// Connections that were forgotten because the table or the memory was full.
    pub evicted_connections: u64,
    /// Connections without a packet for longer than the timeout.
    pub idle_connections: u64,
    /// Segments with bytes that were seen before.
    pub retransmitted_segments: u64,
    /// Segments that were captured out of order.
    pub reordered_segments: u64,
    /// Segments whose sequence numbers do not belong to their connection.
    pub implausible_segments: u64,
}

impl Completeness {
    /// Adds the counts of another part of the same service.
    pub fn merge(&mut self, other: &Completeness) {
        // Without `..`: a new count is not forgotten here.
        let Completeness {
            packets,
            payload_bytes,
            connections_from_start,
            connections_from_middle,
            connections_refused,
            measured,
            waits,
            not_measured,
            gaps,
            gap_bytes,
            resyncs,
            unparsed_bytes,
            encrypted_connections,
            encrypted_bytes,
            library_sessions,
            library_bytes,
            unmeasurable_connections,
            evicted_connections,
            idle_connections,
            retransmitted_segments,
            reordered_segments,
            implausible_segments,
        } = other;
        self.not_measured.merge(not_measured);
        self.packets += packets;
        self.payload_bytes += payload_bytes;
        self.connections_from_start += connections_from_start;
        self.connections_from_middle += connections_from_middle;
        self.connections_refused += connections_refused;
        self.measured += measured;
        self.waits += waits;
        self.gaps += gaps;
        self.gap_bytes += gap_bytes;
        self.resyncs += resyncs;
        self.unparsed_bytes += unparsed_bytes;
        self.encrypted_connections += encrypted_connections;
        self.encrypted_bytes += encrypted_bytes;
        self.library_sessions += library_sessions;
        self.library_bytes += library_bytes;
        self.unmeasurable_connections += unmeasurable_connections;
        self.evicted_connections += evicted_connections;
        self.idle_connections += idle_connections;
        self.retransmitted_segments += retransmitted_segments;
        self.reordered_segments += reordered_segments;
        self.implausible_segments += implausible_segments;
    }

    /// Counts that an observer has come to this state.
    pub(crate) fn count_state(&mut self, state: ObserverState) {
        match state {
            ObserverState::Encrypted => self.encrypted_connections += 1,
            ObserverState::Unmeasurable => self.unmeasurable_connections += 1,
            ObserverState::Resynchronizing => self.resyncs += 1,
            ObserverState::Synchronized => {}
        }
    }
}

/// Requests that were not measured, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotMeasuredCounts {
    /// See [`NotMeasuredReason::Gap`].
    pub gap: u64,
    /// See [`NotMeasuredReason::ConnectionEnd`].
    pub connection_end: u64,
    /// See [`NotMeasuredReason::NoResponse`].
    pub no_response: u64,
    /// See [`NotMeasuredReason::Limit`].
    pub limit: u64,
    /// See [`NotMeasuredReason::Cancelled`].
    pub cancelled: u64,
    /// The response has an earlier time than the request: clocks of the capture disagree.
    pub time_reversed: u64,
}

impl NotMeasuredCounts {
    fn merge(&mut self, other: &NotMeasuredCounts) {
        let Self { gap, connection_end, no_response, limit, cancelled, time_reversed } = other;
        self.gap += gap;
        self.connection_end += connection_end;
        self.no_response += no_response;
        self.limit += limit;
        self.cancelled += cancelled;
        self.time_reversed += time_reversed;
    }

    pub(crate) fn add(&mut self, requests: u64, reason: NotMeasuredReason) {
        let count = match reason {
            NotMeasuredReason::Gap => &mut self.gap,
            NotMeasuredReason::ConnectionEnd => &mut self.connection_end,
            NotMeasuredReason::NoResponse => &mut self.no_response,
            NotMeasuredReason::Limit => &mut self.limit,
            NotMeasuredReason::Cancelled => &mut self.cancelled,
        };
        *count += requests;
    }

    /// Values of the label `reason`, with their counts.
    pub fn by_reason(&self) -> [(&'static str, u64); 6] {
        [
            ("gap", self.gap),
            ("connection_end", self.connection_end),
            ("no_response", self.no_response),
            ("limit", self.limit),
            ("cancelled", self.cancelled),
            ("time_reversed", self.time_reversed),
        ]
    }

    /// Sum of all reasons.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }
}
