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

/// Parts of a stream after which those that no request in flight needs are forgotten.
const PRUNE_MIN: usize = 8_192;
/// Parts that stay: those of a request whose start the observer does not tell yet.
const RECENT_MAX: usize = 4_096;
/// The same if all connections have more than [`MARKS_MAX`].
const PRUNE_MIN_FULL: usize = 32;
const RECENT_MAX_FULL: usize = 16;
/// Parts of all streams, 24 bytes each. Those of a response of 6 GB fit.
const MARKS_MAX: usize = 4 << 20;

/// Parts of both streams of a connection.
pub(crate) struct ConnectionMarks {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    to_server: StreamMarks,
    to_client: StreamMarks,
    last_token: PacketTime,
    /// Last token before the latest segment that was repeated or out of order.
    last_disturbance: PacketTime,
    /// Token of the first bytes of the client.
    first_request: PacketTime,
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
    /// Sequence number behind it.
    end: u32,
}

/// What identifies an operation at both ends, and its times at this one: first and last byte of
/// the request, first and last byte of the response.
#[derive(Clone, Copy)]
pub(crate) struct OperationMarks {
    /// Sequence numbers behind the parts that have these bytes; `None` if one is unknown.
    pub(crate) ends: Option<[u32; 4]>,
    pub(crate) times: [PacketTime; 4],
    /// Whether it begins with bytes of the server: a later statement of one message.
    pub(crate) begins_at_server: bool,
    /// Whether no segment was repeated or out of order during the operation.
    pub(crate) is_undisturbed: bool,
    /// Whether the request is in the first bytes that the client sent.
    pub(crate) is_first: bool,
}

impl OperationMarks {
    /// The operation with the times of its packets.
    pub(crate) fn with_times<'a>(&self, operation: &Operation<'a>) -> Operation<'a> {
        let [request_start, request_end, response_start, response_end] = self.times;
        Operation { request_start, request_end, response_start, response_end, ..operation.clone() }
    }
}

/// Number of parts of all streams.
#[derive(Default)]
pub(crate) struct MarkCount(usize);

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
            last_disturbance: 0,
            first_request: 0,
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
        stream.marks.push_back(StreamMark { token, time, end });
        count.0 += 1;
        (bytes, token)
    }

    /// A segment was repeated or out of order.
    pub(crate) fn disturb(&mut self) {
        self.last_disturbance = self.last_token;
    }

    /// Finds the parts that an operation has the times of.
    pub(crate) fn locate(&self, operation: &Operation<'_>) -> OperationMarks {
        let Operation { request_start, request_end, response_start, response_end, .. } = *operation;
        let tokens = [request_start, request_end, response_start, response_end];
        let requests = [request_start, request_end].map(|token| self.to_server.find(token));
        let begins_at_server = requests.iter().any(Option::is_none);
        let of_any = |at: usize| requests[at].or_else(|| self.to_client.find(tokens[at]));
        let of_server = |at: usize| self.to_client.find(tokens[at]);
        let parts = [of_any(0), of_any(1), of_server(2), of_server(3)];
        let is_known = parts.iter().all(Option::is_some);
        OperationMarks {
            ends: is_known.then(|| parts.map(|part| part.map_or(0, |mark| mark.end))),
            times: array::from_fn(|at| parts[at].map_or(tokens[at], |mark| mark.time)),
            begins_at_server,
            is_undisturbed: request_start > self.last_disturbance,
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
        marks >= stream.prune_at || count.0 >= MARKS_MAX && marks >= PRUNE_MIN_FULL
    }

    /// Forgets the parts before the `oldest` request in flight. If all connections have too many,
    /// its own are forgotten too.
    pub(crate) fn prune(
        &mut self,
        direction: FlowDirection,
        oldest: Option<PacketTime>,
        count: &mut MarkCount,
    ) {
        let is_full = count.0 >= MARKS_MAX;
        let stream = self.stream(direction);
        let recent = if is_full { RECENT_MAX_FULL } else { RECENT_MAX };
        let old = stream.marks.len().saturating_sub(recent);
        let unused = match oldest.filter(|_| !is_full) {
            Some(oldest) => stream.marks.partition_point(|mark| mark.token < oldest).min(old),
            None => old,
        };
        stream.marks.drain(..unused);
        stream.marks.shrink_to(stream.marks.len() * 2);
        stream.prune_at = PRUNE_MIN.max(stream.marks.len() * 2);
        count.0 -= unused;
    }

    /// Forgets all parts.
    pub(crate) fn clear(&mut self, count: &mut MarkCount) {
        for stream in [&mut self.to_server, &mut self.to_client] {
            count.0 -= stream.marks.len();
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
        StreamMarks { cuts, marks: VecDeque::new(), prune_at: PRUNE_MIN }
    }

    fn find(&self, token: PacketTime) -> Option<StreamMark> {
        let at = self.marks.partition_point(|mark| mark.token < token);
        self.marks.get(at).filter(|mark| mark.token == token).copied()
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
        let (mut marks, mut count) = (marks(), MarkCount::default());
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
        assert_eq!(located.ends, Some([110, 130, 905, 905]));
        assert_eq!(located.times, [50, 50, 60, 60]);
        assert!(located.is_first && located.is_undisturbed);
        assert!(!located.begins_at_server);
        // The second statement of a message begins where the response to the first one ends.
        marks.mark(FlowDirection::ToClient, 905, 70, 5, &mut count);
        let later = marks.locate(&operation([60, 60, 70, 70]));
        assert_eq!((later.ends, later.begins_at_server), (Some([905, 905, 910, 910]), true));
        // A time of the client names no part of a response, and an unknown one names nothing.
        assert_eq!(marks.locate(&operation([50, 51, 51, 60])).ends, None);
        assert_eq!(marks.locate(&operation([49, 51, 60, 60])).ends, None);
        marks.disturb();
        assert!(!marks.locate(&operation([50, 51, 60, 60])).is_undisturbed);
    }

    #[test]
    fn parts_are_forgotten_up_to_the_oldest_request_in_flight() {
        let (mut marks, mut count) = (marks(), MarkCount::default());
        let direction = FlowDirection::ToClient;
        for time in 1..=PRUNE_MIN as u64 {
            assert!(!marks.must_prune(direction, &count));
            marks.mark(direction, time as u32, time, 1, &mut count);
        }
        assert!(marks.must_prune(direction, &count));
        marks.prune(direction, Some(10), &mut count);
        assert_eq!(count.0, PRUNE_MIN - 9);
        marks.prune(direction, None, &mut count);
        assert_eq!(count.0, RECENT_MAX);
        // Without memory for it, nothing is spared.
        count.0 += MARKS_MAX;
        marks.prune(direction, Some(1), &mut count);
        assert_eq!(count.0, MARKS_MAX + RECENT_MAX_FULL);
        marks.clear(&mut count);
        assert_eq!(count.0, MARKS_MAX);
    }
}
