//! Observation of connections between other programs: bytes of both directions in, operations out.
//!
//! An *operation* is a request and its response. A [`ConnectionObserver`] of a protocol pairs them,
//! with the times of the packets that carried them; it has no clock. Every request ends in exactly
//! one way: it is measured ([`Operation`]), or counted as not measured with a reason
//! ([`NotMeasuredReason`]), or it is still in flight. After a gap an observer never guesses: the
//! requests that the gap may have affected are not measured, and it continues at the next position
//! at which the protocol allows it.

pub(crate) mod in_order_observer;
pub(crate) mod in_order_session;
pub(crate) mod lockstep;
pub(crate) mod statement_queue;
pub(crate) mod tls;

/// Direction of bytes on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FlowDirection {
    /// From client to server.
    ToServer,
    /// From server to client.
    ToClient,
}

/// Time at which the kernel saw a packet, in nanoseconds since the Unix epoch.
pub type PacketTime = u64;

/// Observer of one connection of a protocol.
///
/// Its memory is bounded whatever the bytes are; [`memory`](Self::memory) returns it.
pub trait ConnectionObserver: Send {
    /// Reads the next bytes of one direction. `bytes` may end anywhere in a message. Bytes of one
    /// direction arrive in the order of the stream, without repetition.
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    );

    /// `missing` bytes of one direction were not captured; the next bytes are those after them.
    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink);

    /// The connection has ended, or is no longer followed. Requests without a response are counted
    /// as not measured.
    fn end(&mut self, sink: &mut dyn OperationSink);

    /// As [`end`](Self::end), but the server's stream may not have ended: a response that lasts to
    /// the end of the connection is not known to be complete.
    fn abandon(&mut self, sink: &mut dyn OperationSink) {
        self.end(sink);
    }

    /// Calls `each` with the requests without a complete response, oldest first.
    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>));

    /// How far the observer understands the connection.
    fn state(&self) -> ObserverState;

    /// Bytes on the heap.
    fn memory(&self) -> usize;
}

/// How far an observer understands its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObserverState {
    /// Both directions are at a known position.
    Synchronized,
    /// After a gap, or on a connection captured from its middle: it waits for a position at which
    /// it can continue.
    Resynchronizing,
    /// The bytes are encrypted.
    Encrypted,
    /// It is a stream without requests (replication, an upgraded connection), or has bytes that the
    /// protocol does not allow. It stays so to its end.
    Unmeasurable,
}

/// Receives what an observer finds.
pub trait OperationSink {
    /// A request with its complete response.
    fn operation(&mut self, operation: &Operation<'_>);

    /// Requests that were seen but not measured.
    fn not_measured(&mut self, requests: u64, reason: NotMeasuredReason);

    /// Bytes that could not be attributed to a message: between a gap and the position where the
    /// observer continues, or not of the protocol.
    fn unparsed(&mut self, direction: FlowDirection, bytes: u64);
}

/// A request and its complete response.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    /// Kind of request in the words of the protocol: `Query`, `GET`, `Produce`.
    pub verb: &'a str,
    /// What is requested, as it was sent, with literal values: a statement, a path, the names of
    /// topics. Empty if the verb says all, or if it is unknown. At most
    /// [`STATEMENT_BYTES_MAX`] bytes, cut at the boundary of a character.
    pub statement: &'a str,
    /// What `statement` is.
    pub syntax: StatementSyntax,
    /// Whether the response waits for an event by design (a long poll, `BLPOP`) and says nothing of
    /// the server's speed.
    pub is_wait: bool,
    /// Result of the operation.
    pub outcome: OperationOutcome<'a>,
    /// First byte of the request.
    pub request_start: PacketTime,
    /// Last byte of the request.
    pub request_end: PacketTime,
    /// First byte of what responds to the request; a notice before it does not count.
    pub response_start: PacketTime,
    /// Last byte of the response.
    pub response_end: PacketTime,
    /// Size of the request with its headers, in bytes.
    pub request_bytes: u64,
    /// Size of the response with its headers, in bytes.
    pub response_bytes: u64,
    /// Rows, records or elements of the response, if the protocol tells.
    pub rows: Option<u64>,
    /// Value of `traceparent` of W3C Trace Context in a header or in a comment of the statement.
    pub traceparent: Option<&'a str>,
}

/// Maximum size of the statement of an operation, in bytes.
pub const STATEMENT_BYTES_MAX: usize = 16 << 10;

/// Syntax of the text that says what is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StatementSyntax {
    /// SQL or CQL.
    Sql,
    /// Path of a URL, without the query.
    Path,
    /// A name without literal values: a command, a topic, a collection, a domain.
    Name,
}

/// Result of an operation, as its response tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationOutcome<'a> {
    /// No error.
    Ok,
    /// Class of the error, a small set per protocol: the first two characters of SQLSTATE, `5xx`,
    /// the first word of an error of Redis, the name of an error code of Kafka.
    Error(&'a str),
}

/// Why a request was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotMeasuredReason {
    /// Bytes of the request, of its response or between them were not captured.
    Gap,
    /// The connection ended before the response was complete.
    ConnectionEnd,
    /// The client asked for no response (Kafka: `acks=0`).
    NoResponse,
    /// More requests were in flight than an observer retains, or a message was larger than it
    /// reads.
    Limit,
    /// The client cancelled the request.
    Cancelled,
}

/// A request without a complete response.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedRequest<'a> {
    /// As [`Operation::verb`].
    pub verb: &'a str,
    /// As [`Operation::statement`].
    pub statement: &'a str,
    /// What `statement` is.
    pub syntax: StatementSyntax,
    /// As [`Operation::is_wait`].
    pub is_wait: bool,
    /// First byte of the request.
    pub since: PacketTime,
}

/// A protocol that can be observed.
pub struct ObservedProtocol {
    /// Name in settings, labels and output: `postgres`.
    pub name: &'static str,
    /// Ports on which its servers listen by default.
    pub default_ports: &'static [u16],
    /// An observer of a new connection, or of one that is captured from its middle.
    pub observer: fn(CaptureStart) -> Box<dyn ConnectionObserver>,
}

/// Where capture of a connection started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStart {
    /// At its first byte.
    FirstByte,
    /// Somewhere after it.
    Midstream,
}
