//! Requests and handshakes that one capture has measured, for the comparison with another one.

use std::collections::HashMap;
use std::net::SocketAddr;

use protocol::observer::{FlowDirection, PacketTime};

use crate::segment_boundaries::StreamCuts;
use crate::stream_marks::{ConnectionMarks, MarkCount, OperationMarks};

/// Requests of a capture, 64 bytes each.
const REQUESTS_MAX: usize = 2 << 20;
/// Handshakes of a capture, 40 bytes each.
const HANDSHAKES_MAX: usize = 512 << 10;

/// Requests and handshakes of a capture.
pub(crate) struct RequestLog {
    pub(crate) cuts: StreamCuts,
    /// Numbers of connections, by client and server. A connection that uses the ports of an
    /// earlier one has the same number: its sequence numbers are others.
    pub(crate) connections: HashMap<(SocketAddr, SocketAddr), u32>,
    pub(crate) requests: Vec<RequestRecord>,
    pub(crate) handshakes: Vec<HandshakeRecord>,
    /// Requests beyond [`REQUESTS_MAX`].
    pub(crate) dropped_requests: u64,
    marks: MarkCount,
}

/// A measured request.
#[derive(Clone, Copy)]
pub(crate) struct RequestRecord {
    pub(crate) connection: u32,
    /// Index of the service in its tracker, then in the comparison.
    pub(crate) service: u32,
    /// See [`OperationMarks::ends`].
    pub(crate) ends: [u32; 4],
    /// First and last byte of the request, first and last byte of the response.
    pub(crate) times: [PacketTime; 4],
    pub(crate) is_wait: bool,
    /// See [`OperationMarks::begins_at_server`].
    pub(crate) begins_at_server: bool,
    pub(crate) is_undisturbed: bool,
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
    pub(crate) fn new(cuts: StreamCuts) -> RequestLog {
        RequestLog {
            cuts,
            connections: HashMap::new(),
            requests: Vec::new(),
            handshakes: Vec::new(),
            dropped_requests: 0,
            marks: MarkCount::default(),
        }
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

    /// Records a measured request, if the positions of its bytes are known.
    pub(crate) fn record_request(&mut self, operation: &OperationMarks, is_wait: bool) {
        let Some(ends) = operation.ends else { return };
        if self.log.requests.len() >= REQUESTS_MAX {
            self.log.dropped_requests += 1;
            return;
        }
        let connection = self.log.connection(self.marks.client, self.marks.server);
        self.log.requests.push(RequestRecord {
            connection,
            service: self.service as u32,
            ends,
            times: operation.times,
            is_wait,
            begins_at_server: operation.begins_at_server,
            is_undisturbed: operation.is_undisturbed,
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
        if self.log.handshakes.len() < HANDSHAKES_MAX {
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
