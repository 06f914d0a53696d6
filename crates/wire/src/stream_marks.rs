//! Which bytes of a connection have which time: from the times of an operation to sequence numbers.
//!
//! Observers know times and no positions. While requests are recorded, each part of a stream that
//! is passed to an observer therefore has a time of its own, the *token*: that of its packet, or
//! one nanosecond after the token before it. A token names one part, whose sequence number and true
//! time are looked up when the operation is complete.

use std::array;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use protocol::observer::{FlowDirection, Operation, PacketTime};

use crate::segment_boundaries::{StreamCuts, uncut_bytes};

/// The same as the limits if all connections have more than `marks_max` parts.
const PRUNE_MIN_FULL: usize = 32;
const RECENT_MAX_FULL: usize = 16;

/// Limits of parts that are remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MarkLimits {
    /// Parts of a stream after which those that no request in flight needs are forgotten.
    pub(crate) prune_min: usize,
    /// Parts that stay: those of a request whose start the observer does not tell yet.
    pub(crate) recent_max: usize,
    /// Parts of all streams, 24 bytes each.
    pub(crate) marks_max: usize,
}

impl MarkLimits {
    /// Those of a file: the parts of a response of 6 GB fit.
    pub(crate) const FILE: MarkLimits =
        MarkLimits { prune_min: 8_192, recent_max: 4_096, marks_max: 4 << 20 };
    /// Those of a capture that does not end.
    pub(crate) const LIVE: MarkLimits =
        MarkLimits { prune_min: 512, recent_max: 256, marks_max: 512 << 10 };
}

/// Parts of both streams of a connection.
pub(crate) struct ConnectionMarks {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    to_server: StreamMarks,
    to_client: StreamMarks,
    last_token: PacketTime,
    /// Last token before the latest segment that was repeated or out of order.
    last_reordering: PacketTime,
    /// Token of the first bytes of the client.
    first_request: PacketTime,
    /// Tokens of the first and last byte of the request that was located last.
    last_request: [PacketTime; 2],
}

/// Parts of one stream, oldest first.
struct StreamMarks {
    cuts: Arc<[u32]>,
    marks: VecDeque<StreamMark>,
    prune_at: usize,
}

/// A part of a stream.
#[derive(Clone, Copy)]
struct StreamMark {
    token: PacketTime,
    time: PacketTime,
    /// Sequence number of its first byte.
    start: u32,
    /// Sequence number behind it.
    end: u32,
}

/// What identifies an operation at both ends, and its times at this one: first and last byte of
/// the request, first and last byte of the response.
#[derive(Clone, Copy)]
pub(crate) struct OperationMarks {
    /// The parts that have these bytes; `None` if one is unknown.
    pub(crate) parts: Option<[PartNumbers; 4]>,
    pub(crate) times: [PacketTime; 4],
    /// Whether it begins with bytes of the server: a later statement of one message.
    pub(crate) begins_at_server: bool,
    /// Whether the request that was located before has bytes of the part in which this one begins.
    pub(crate) shares_start: bool,
    /// Whether all segments during the operation came in the order of their sequence numbers (RFC
    /// 4737: in-order): none was repeated.
    pub(crate) is_in_order: bool,
    /// Whether the request is in the first bytes that the client sent.
    pub(crate) is_first: bool,
}

/// Sequence numbers of the first byte of a part, and behind its last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartNumbers {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl OperationMarks {
    /// The operation with the times of its packets.
    pub(crate) fn with_times<'a>(&self, operation: &Operation<'a>) -> Operation<'a> {
        let [request_start, request_end, response_start, response_end] = self.times;
        Operation { request_start, request_end, response_start, response_end, ..operation.clone() }
    }
}

/// Number of parts of all streams, and its limits.
pub(crate) struct MarkCount {
    parts: usize,
    limits: MarkLimits,
}

impl MarkCount {
    pub(crate) fn new(limits: MarkLimits) -> MarkCount {
        MarkCount { parts: 0, limits }
    }

    fn is_full(&self) -> bool {
        self.parts >= self.limits.marks_max
    }
}

impl ConnectionMarks {
    pub(crate) fn new(
        client: SocketAddr,
        server: SocketAddr,
        cuts: &StreamCuts,
    ) -> ConnectionMarks {
        ConnectionMarks {
            client,
            server,
            to_server: StreamMarks::new(cuts.of(client, server)),
            to_client: StreamMarks::new(cuts.of(server, client)),
            last_token: 0,
            last_reordering: 0,
            first_request: 0,
            last_request: [0; 2],
        }
    }

    /// Marks the first part of `length` bytes. Returns its size and its token.
    pub(crate) fn mark(
        &mut self,
        direction: FlowDirection,
        sequence: u32,
        time: PacketTime,
        length: usize,
        count: &mut MarkCount,
    ) -> (usize, PacketTime) {
        let token = time.max(self.last_token.saturating_add(1));
        self.last_token = token;
        if direction == FlowDirection::ToServer && self.first_request == 0 {
            self.first_request = token;
        }
        let stream = self.stream(direction);
        let bytes = uncut_bytes(&stream.cuts, sequence, length);
        let end = sequence.wrapping_add(bytes as u32);
        stream.marks.push_back(StreamMark { token, time, start: sequence, end });
        count.parts += 1;
        (bytes, token)
    }

    /// A segment was repeated or out of order.
    pub(crate) fn note_reordering(&mut self) {
        self.last_reordering = self.last_token;
    }

    /// Finds the parts that an operation has the times of.
    pub(crate) fn locate(&mut self, operation: &Operation<'_>) -> OperationMarks {
        let Operation { request_start, request_end, response_start, response_end, .. } = *operation;
        let tokens = [request_start, request_end, response_start, response_end];
        let requests = [request_start, request_end].map(|token| self.to_server.find(token));
        let begins_at_server = requests.iter().any(Option::is_none);
        let of_any = |at: usize| requests[at].or_else(|| self.to_client.find(tokens[at]));
        let of_server = |at: usize| self.to_client.find(tokens[at]);
        let parts = [of_any(0), of_any(1), of_server(2), of_server(3)];
        let is_known = parts.iter().all(Option::is_some);
        let before = std::mem::replace(&mut self.last_request, [request_start, request_end]);
        OperationMarks {
            parts: is_known
                .then(|| parts.map(|part| part.map(StreamMark::numbers).unwrap_or_default())),
            times: array::from_fn(|at| parts[at].map_or(tokens[at], |mark| mark.time)),
            begins_at_server,
            shares_start: before.contains(&request_start),
            is_in_order: request_start > self.last_reordering,
            is_first: request_start == self.first_request,
        }
    }

    /// Whether parts of the stream should be forgotten.
    pub(crate) fn must_prune(&self, direction: FlowDirection, count: &MarkCount) -> bool {
        let stream = match direction {
            FlowDirection::ToServer => &self.to_server,
            FlowDirection::ToClient => &self.to_client,
        };
        let marks = stream.marks.len();
        let is_long = marks >= stream.prune_at.max(count.limits.prune_min);
        is_long || count.is_full() && marks >= PRUNE_MIN_FULL
    }

    /// Forgets the parts before the `oldest` request in flight. If all connections have too many,
    /// its own are forgotten too.
    pub(crate) fn prune(
        &mut self,
        direction: FlowDirection,
        oldest: Option<PacketTime>,
        count: &mut MarkCount,
    ) {
        let is_full = count.is_full();
        let stream = self.stream(direction);
        let recent = if is_full { RECENT_MAX_FULL } else { count.limits.recent_max };
        let old = stream.marks.len().saturating_sub(recent);
        let unused = match oldest.filter(|_| !is_full) {
            Some(oldest) => stream.marks.partition_point(|mark| mark.token < oldest).min(old),
            None => old,
        };
        stream.marks.drain(..unused);
        stream.marks.shrink_to(stream.marks.len() * 2);
        stream.prune_at = stream.marks.len() * 2;
        count.parts -= unused;
    }

    /// Forgets all parts.
    pub(crate) fn clear(&mut self, count: &mut MarkCount) {
        for stream in [&mut self.to_server, &mut self.to_client] {
            count.parts -= stream.marks.len();
            stream.marks = VecDeque::new();
        }
    }

    fn stream(&mut self, direction: FlowDirection) -> &mut StreamMarks {
        match direction {
            FlowDirection::ToServer => &mut self.to_server,
            FlowDirection::ToClient => &mut self.to_client,
        }
    }
}

impl StreamMarks {
    fn new(cuts: Arc<[u32]>) -> StreamMarks {
        StreamMarks { cuts, marks: VecDeque::new(), prune_at: 0 }
    }

    fn find(&self, token: PacketTime) -> Option<StreamMark> {
        let at = self.marks.partition_point(|mark| mark.token < token);
        self.marks.get(at).filter(|mark| mark.token == token).copied()
    }
}

impl StreamMark {
    fn numbers(self) -> PartNumbers {
        PartNumbers { start: self.start, end: self.end }
    }
}

#[cfg(test)]
mod tests {
    use protocol::observer::{OperationOutcome, StatementSyntax};

    use super::*;

    fn marks() -> ConnectionMarks {
        let (client, server) = ("10.0.0.1:40000".parse(), "10.0.0.2:80".parse());
        ConnectionMarks::new(client.unwrap(), server.unwrap(), &StreamCuts::default())
    }

    fn operation(times: [PacketTime; 4]) -> Operation<'static> {
        Operation {
            verb: "GET",
            statement: "/",
            syntax: StatementSyntax::Path,
            is_wait: false,
            outcome: OperationOutcome::Ok,
            request_start: times[0],
            request_end: times[1],
            response_start: times[2],
            response_end: times[3],
            request_bytes: 0,
            response_bytes: 0,
            rows: None,
            traceparent: None,
        }
    }

    #[test]
    fn parts_of_one_packet_have_tokens_of_their_own_and_their_true_time() {
        let (mut marks, mut count) = (marks(), MarkCount::new(MarkLimits::FILE));
        marks.to_server.cuts = [100, 110, 130].into();
        let mut tokens = Vec::new();
        let (mut sequence, mut length) = (100, 30);
        while length > 0 {
            let (bytes, token) =
                marks.mark(FlowDirection::ToServer, sequence, 50, length, &mut count);
            (sequence, length) = (sequence + bytes as u32, length - bytes);
            tokens.push((bytes, token));
        }
        assert_eq!(tokens, [(10, 50), (20, 51)]);
        marks.mark(FlowDirection::ToClient, 900, 60, 5, &mut count);
        let located = marks.locate(&operation([50, 51, 60, 60]));
        assert_eq!(located.parts, Some(numbers([(100, 110), (110, 130), (900, 905), (900, 905)])));
        assert_eq!(located.times, [50, 50, 60, 60]);
        assert!(located.is_first && located.is_in_order);
        assert!(!located.begins_at_server && !located.shares_start);
        // The second statement of a message begins where the response to the first one ends.
        marks.mark(FlowDirection::ToClient, 905, 70, 5, &mut count);
        let later = marks.locate(&operation([60, 60, 70, 70]));
        let expected = numbers([(900, 905), (900, 905), (905, 910), (905, 910)]);
        assert_eq!((later.parts, later.begins_at_server), (Some(expected), true));
        // A time of the client names no part of a response, and an unknown one names nothing.
        assert_eq!(marks.locate(&operation([50, 51, 51, 60])).parts, None);
        assert_eq!(marks.locate(&operation([49, 51, 60, 60])).parts, None);
        // The part in which a request begins has the end, or the start, of the one before.
        for (start, shares_start) in [(50, false), (51, true), (51, true), (50, false)] {
            let located = marks.locate(&operation([start, 51, 70, 70]));
            assert_eq!(located.shares_start, shares_start);
        }
        marks.note_reordering();
        assert!(!marks.locate(&operation([50, 51, 60, 60])).is_in_order);
    }

    fn numbers(parts: [(u32, u32); 4]) -> [PartNumbers; 4] {
        parts.map(|(start, end)| PartNumbers { start, end })
    }

    #[test]
    fn parts_are_forgotten_up_to_the_oldest_request_in_flight() {
        for limits in [MarkLimits::FILE, MarkLimits::LIVE] {
            check_forgetting(limits);
        }
    }

    fn check_forgetting(limits: MarkLimits) {
        let (mut marks, mut count) = (marks(), MarkCount::new(limits));
        let direction = FlowDirection::ToClient;
        for time in 1..=limits.prune_min as u64 {
            assert!(!marks.must_prune(direction, &count));
            marks.mark(direction, time as u32, time, 1, &mut count);
        }
        assert!(marks.must_prune(direction, &count));
        marks.prune(direction, Some(10), &mut count);
        assert_eq!(count.parts, limits.prune_min - 9);
        assert!(!marks.must_prune(direction, &count), "until there are twice as many");
        marks.prune(direction, None, &mut count);
        assert_eq!(count.parts, limits.recent_max);
        // Without memory for it, nothing is spared.
        count.parts += limits.marks_max;
        marks.prune(direction, Some(1), &mut count);
        assert_eq!(count.parts, limits.marks_max + RECENT_MAX_FULL);
        marks.clear(&mut count);
        assert_eq!(count.parts, limits.marks_max);
    }
}
