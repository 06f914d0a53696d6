//! Requests and handshakes that one capture has measured, for the comparison with another one.

use std::collections::HashMap;
use std::net::SocketAddr;

use protocol::observer::{FlowDirection, PacketTime};

use crate::segment_boundaries::StreamCuts;
use crate::stream_marks::{ConnectionMarks, MarkCount, MarkLimits, OperationMarks, PartNumbers};

/// Requests of a capture, 64 bytes each.
const REQUESTS_MAX: usize = 2 << 20;
/// Handshakes of a capture, 40 bytes each.
const HANDSHAKES_MAX: usize = 512 << 10;
/// Requests and handshakes of a capture that does not end, until they are taken.
const LIVE_RECORDS_MAX: usize = 64 << 10;
/// Bytes that belong to no request or response: Sync and ReadyForQuery of PostgreSQL have 5 and 6.
const SPARE_BYTES: u64 = 16;

/// Requests and handshakes of a capture.
pub(crate) struct RequestLog {
    pub(crate) cuts: StreamCuts,
    /// Numbers of connections, by client and server. A connection that uses the ports of an
    /// earlier one has the same number: its sequence numbers are others.
    pub(crate) connections: HashMap<(SocketAddr, SocketAddr), u32>,
    pub(crate) requests: Vec<RequestRecord>,
    pub(crate) handshakes: Vec<HandshakeRecord>,
    /// Requests beyond the limit.
    pub(crate) dropped_requests: u64,
    /// Requests without known sequence numbers.
    pub(crate) missing_sequence_requests: u64,
    marks: MarkCount,
    /// Whether the streams are cut at the boundaries of both ends.
    has_cuts: bool,
}

/// A measured request.
#[derive(Clone, Copy)]
pub(crate) struct RequestRecord {
    pub(crate) connection: u32,
    /// Index of the service in its tracker, then in the comparison.
    pub(crate) service: u32,
    /// Sequence numbers that identify it, see [`part_identity`].
    pub(crate) numbers: [u32; 4],
    /// 0, or a hash of boundaries of segments, see [`part_identity`].
    pub(crate) boundary_hash: u32,
    /// First and last byte of the request, first and last byte of the response.
    pub(crate) times: [PacketTime; 4],
    pub(crate) is_wait: bool,
    /// See [`OperationMarks::begins_at_server`].
    pub(crate) begins_at_server: bool,
    pub(crate) is_in_order: bool,
    /// Whether it is in the first bytes of a connection that was captured from its start.
    pub(crate) is_first: bool,
}

/// A complete handshake.
#[derive(Clone, Copy)]
pub(crate) struct HandshakeRecord {
    pub(crate) connection: u32,
    /// Index of the service in its tracker, then in the comparison.
    pub(crate) service: u32,
    /// Sequence numbers of the SYN of the client and that of the server.
    pub(crate) numbers: [u32; 2],
    /// First SYN of the client, first SYN of the server.
    pub(crate) times: [PacketTime; 2],
    pub(crate) is_repeated: bool,
}

/// Records the requests of one connection.
pub(crate) struct ConnectionRecorder<'a> {
    pub(crate) marks: &'a mut ConnectionMarks,
    pub(crate) log: &'a mut RequestLog,
    pub(crate) service: usize,
    /// Whether the connection was captured from its start.
    pub(crate) is_from_start: bool,
}

impl RequestLog {
    /// A log of a capture whose streams are cut at the boundaries of both ends.
    pub(crate) fn new(cuts: StreamCuts) -> RequestLog {
        RequestLog::with(cuts, true, MarkLimits::FILE)
    }

    /// A log of a capture that does not know the boundaries at the other end. Its records are taken
    /// now and then.
    pub(crate) fn live() -> RequestLog {
        RequestLog::with(StreamCuts::default(), false, MarkLimits::LIVE)
    }

    fn with(cuts: StreamCuts, has_cuts: bool, limits: MarkLimits) -> RequestLog {
        RequestLog {
            cuts,
            connections: HashMap::new(),
            requests: Vec::new(),
            handshakes: Vec::new(),
            dropped_requests: 0,
            missing_sequence_requests: 0,
            marks: MarkCount::new(limits),
            has_cuts,
        }
    }

    /// Whether there is something to take.
    pub(crate) fn has_records(&self) -> bool {
        let counts = self.dropped_requests + self.missing_sequence_requests;
        !self.requests.is_empty() || !self.handshakes.is_empty() || counts > 0
    }

    /// Takes all records and counts.
    pub(crate) fn take(&mut self) -> RequestLog {
        let empty = RequestLog::with(self.cuts.clone(), self.has_cuts, MarkLimits::LIVE);
        let mut taken = std::mem::replace(self, empty);
        // The parts are those of connections, which go on.
        std::mem::swap(&mut self.marks, &mut taken.marks);
        taken
    }

    fn connection(&mut self, client: SocketAddr, server: SocketAddr) -> u32 {
        let next = self.connections.len() as u32;
        *self.connections.entry((client, server)).or_insert(next)
    }
}

impl ConnectionRecorder<'_> {
    /// See [`ConnectionMarks::mark`].
    pub(crate) fn mark(
        &mut self,
        direction: FlowDirection,
        sequence: u32,
        time: PacketTime,
        length: usize,
    ) -> (usize, PacketTime) {
        self.marks.mark(direction, sequence, time, length, &mut self.log.marks)
    }

    /// See [`ConnectionMarks::must_prune`].
    pub(crate) fn must_prune(&self, direction: FlowDirection) -> bool {
        self.marks.must_prune(direction, &self.log.marks)
    }

    /// See [`ConnectionMarks::prune`].
    pub(crate) fn prune(&mut self, direction: FlowDirection, oldest: Option<PacketTime>) {
        self.marks.prune(direction, oldest, &mut self.log.marks);
    }

    /// Records a measured request of these sizes, if the positions of its bytes are known.
    pub(crate) fn record_request(
        &mut self,
        operation: &OperationMarks,
        is_wait: bool,
        sizes: [u64; 2],
    ) {
        let Some(parts) = operation.parts else {
            self.log.missing_sequence_requests += 1;
            return;
        };
        let limit = if self.log.has_cuts { REQUESTS_MAX } else { LIVE_RECORDS_MAX };
        if self.log.requests.len() >= limit {
            self.log.dropped_requests += 1;
            return;
        }
        let (numbers, boundary_hash) = match self.log.has_cuts {
            true => (parts.map(|part| part.end), 0),
            false => part_identity(parts, sizes, operation.shares_start),
        };
        let connection = self.log.connection(self.marks.client, self.marks.server);
        self.log.requests.push(RequestRecord {
            connection,
            service: self.service as u32,
            numbers,
            boundary_hash,
            times: operation.times,
            is_wait,
            begins_at_server: operation.begins_at_server,
            is_in_order: operation.is_in_order,
            is_first: operation.is_first && self.is_from_start,
        });
    }

    /// Records the SYN of the client and that of the server, with their sequence numbers.
    pub(crate) fn record_handshake(
        &mut self,
        syn: (PacketTime, u32),
        reply: (PacketTime, u32),
        is_repeated: bool,
    ) {
        let limit = if self.log.has_cuts { HANDSHAKES_MAX } else { LIVE_RECORDS_MAX };
        if self.log.handshakes.len() < limit {
            let connection = self.log.connection(self.marks.client, self.marks.server);
            self.log.handshakes.push(HandshakeRecord {
                connection,
                service: self.service as u32,
                numbers: [syn.1, reply.1],
                times: [syn.0, reply.0],
                is_repeated,
            });
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) {
        self.marks.clear(&mut self.log.marks);
    }
}

/// What identifies a request, if the other end may see its bytes in other parts: the sequence
/// numbers of its first byte and behind its last one, and those of its response, as far as parts
/// tell them, and a hash of boundaries.
///
/// A request that is alone in its parts, and its response, have exactly these numbers, however
/// their bytes are divided: the hash is 0. They are alone if no request before it has a byte of
/// its first part, and fewer than [`SPARE_BYTES`] of the parts are not its own. Otherwise the
/// hash is of the other boundaries of the parts: only an end that has the same parts can tell the
/// same requests.
///
/// All requests with the same numbers and hash have the same times. If the numbers are those of
/// two requests that share parts, the later one shares the first part with the other.
fn part_identity(parts: [PartNumbers; 4], sizes: [u64; 2], shares_start: bool) -> ([u32; 4], u32) {
    let [first, last, response_first, response_last] = parts;
    let numbers = [first.start, last.end, response_first.start, response_last.end];
    let spans = [last.end.wrapping_sub(first.start), numbers[3].wrapping_sub(numbers[2])];
    let is_alone = |(span, size): (u32, u64)| {
        u64::from(span).checked_sub(size).is_some_and(|spare| spare < SPARE_BYTES)
    };
    if !shares_start && spans.into_iter().zip(sizes).all(is_alone) {
        return (numbers, 0);
    }
    let others = [first.end, last.start, response_first.end, response_last.start];
    (numbers, fnv1a(others.map(u32::to_le_bytes).as_flattened()).max(1))
}

/// FNV-1a of 32 bits: the same on all hosts.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(parts: [(u32, u32); 4], sizes: [u64; 2]) -> ([u32; 4], u32) {
        part_identity(parts.map(|(start, end)| PartNumbers { start, end }), sizes, false)
    }

    #[test]
    fn a_request_that_is_alone_is_the_same_in_other_segments() {
        for sizes in [[300, 40], [295, 34]] {
            let whole = identity([(100, 400), (100, 400), (50, 90), (50, 90)], sizes);
            let divided = identity([(100, 200), (300, 400), (50, 60), (80, 90)], sizes);
            assert_eq!((whole, divided), (([100, 400, 50, 90], 0), whole));
        }
        // Numbers wrap around.
        let end = u32::MAX - 9;
        let wrapped = identity([(end, 20), (end, 20), (7, 9), (7, 9)], [30, 2]);
        assert_eq!(wrapped, ([end, 20, 7, 9], 0));
    }

    #[test]
    fn requests_that_share_parts_are_the_same_only_in_equal_segments() {
        let [one, same, other] = [(100, 400), (100, 400), (100, 300)]
            .map(|first| identity([first, (100, 400), (50, 90), (50, 90)], [150, 20]));
        assert_eq!(one, same);
        assert_ne!(one.1, 0);
        assert_eq!(one.0, other.0);
        assert_ne!(one.1, other.1);
        let part = PartNumbers { start: 0, end: 9 };
        assert_ne!(part_identity([part; 4], [9, 9], true).1, 0, "the one before shares the part");
        assert_ne!(part_identity([part; 4], [10, 9], false).1, 0, "it is longer than the part");
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // Test vectors of draft-eastlake-fnv.
        assert_eq!([&b""[..], b"a", b"foobar"].map(fnv1a), [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
