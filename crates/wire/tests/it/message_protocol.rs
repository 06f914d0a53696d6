//! A protocol of messages with an id, for tests: responses name their request, in any order.
//!
//! ```text
//! request, response   0x7e, kind `Q` or `R`, id u32, payload length u16, check u8, payload
//! ```
//!
//! The check is the sum of the bytes before it. Payload has no byte 0x7e in tests, so a message
//! starts only where it was written.

use std::cell::Cell;

use protocol::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// Port of the servers.
pub(crate) const PORT: u16 = 4_000;
const MAGIC: u8 = 0x7e;
const HEADER_BYTES: usize = 9;
/// Requests in flight of a connection.
const IN_FLIGHT_MAX: usize = 256;

pub(crate) static PROTOCOL: ObservedProtocol = ObservedProtocol {
    name: "message",
    default_ports: &[PORT],
    observer: |start| Box::new(MessageObserver::new(start)),
};

/// The same in datagrams, with the length that precedes each of them.
pub(crate) static DATAGRAM_PROTOCOL: ObservedProtocol = ObservedProtocol {
    name: "datagram",
    default_ports: &[PORT],
    observer: |start| Box::new(DatagramObserver { messages: MessageObserver::new(start) }),
};

thread_local! {
    /// Requests whose header an observer of this thread has read.
    static REQUESTS_SEEN: Cell<u64> = const { Cell::new(0) };
}

/// Requests seen since the last call.
pub(crate) fn take_requests_seen() -> u64 {
    REQUESTS_SEEN.replace(0)
}

/// Bytes of a message.
pub(crate) fn message(kind: u8, id: u32, payload: usize) -> Vec<u8> {
    let mut bytes = vec![MAGIC, kind];
    bytes.extend(id.to_be_bytes());
    bytes.extend((payload as u16).to_be_bytes());
    bytes.push(check(&bytes));
    bytes.resize(HEADER_BYTES + payload, b'.');
    bytes
}

fn check(header: &[u8]) -> u8 {
    header.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

struct MessageObserver {
    requests: MessageReader,
    responses: MessageReader,
    in_flight: Vec<PendingRequest>,
}

struct PendingRequest {
    id: u32,
    start: PacketTime,
    end: Option<PacketTime>,
    bytes: u64,
}

/// Reader of one direction.
struct MessageReader {
    kind: u8,
    is_synchronized: bool,
    header: Vec<u8>,
    start: PacketTime,
    /// Id and size of the message whose payload is read, and the bytes that are missing.
    current: Option<(u32, u64, usize)>,
}

enum MessagePart {
    Start(u32),
    End { id: u32, start: PacketTime, bytes: u64 },
}

impl MessageReader {
    fn lose_position(&mut self) {
        self.is_synchronized = false;
        self.header.clear();
        self.current = None;
    }

    fn is_header(&self, bytes: &[u8]) -> bool {
        bytes.len() >= HEADER_BYTES
            && bytes[0] == MAGIC
            && bytes[1] == self.kind
            && bytes[8] == check(&bytes[..8])
    }

    /// Calls `each` with the starts and ends of messages. Returns the number of unparsed bytes.
    fn read(
        &mut self,
        time: PacketTime,
        mut bytes: &[u8],
        each: &mut dyn FnMut(MessagePart),
    ) -> u64 {
        if !self.is_synchronized {
            if !self.is_header(bytes) {
                return bytes.len() as u64;
            }
            self.is_synchronized = true;
        }
        while !bytes.is_empty() {
            if self.current.is_none() {
                if self.header.is_empty() {
                    self.start = time;
                }
                let (head, rest) =
                    bytes.split_at(bytes.len().min(HEADER_BYTES - self.header.len()));
                self.header.extend(head);
                bytes = rest;
                if self.header.len() < HEADER_BYTES {
                    return 0;
                }
                if !self.is_header(&self.header) {
                    self.lose_position();
                    return bytes.len() as u64;
                }
                let id = u32::from_be_bytes(*self.header[2..].first_chunk().unwrap());
                let payload = u16::from_be_bytes(*self.header[6..].first_chunk().unwrap());
                self.header.clear();
                let size = HEADER_BYTES as u64 + u64::from(payload);
                self.current = Some((id, size, usize::from(payload)));
                each(MessagePart::Start(id));
            }
            let Some((id, size, missing)) = &mut self.current else { continue };
            let count = bytes.len().min(*missing);
            bytes = &bytes[count..];
            *missing -= count;
            if *missing == 0 {
                each(MessagePart::End { id: *id, start: self.start, bytes: *size });
                self.current = None;
            }
        }
        0
    }
}

impl MessageObserver {
    fn new(start: CaptureStart) -> MessageObserver {
        let reader = |kind| MessageReader {
            kind,
            is_synchronized: start == CaptureStart::FirstByte,
            header: Vec::new(),
            start: 0,
            current: None,
        };
        MessageObserver { requests: reader(b'Q'), responses: reader(b'R'), in_flight: Vec::new() }
    }

    fn read_requests(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) -> u64 {
        let in_flight = &mut self.in_flight;
        let start = if self.requests.header.is_empty() { time } else { self.requests.start };
        let mut start = start;
        self.requests.read(time, bytes, &mut |part| match part {
            MessagePart::Start(id) => {
                REQUESTS_SEEN.set(REQUESTS_SEEN.get() + 1);
                if in_flight.len() == IN_FLIGHT_MAX {
                    sink.not_measured(1, NotMeasuredReason::Limit);
                } else {
                    in_flight.push(PendingRequest { id, start, end: None, bytes: 0 });
                }
                start = time;
            }
            MessagePart::End { id, bytes, .. } => {
                let pending = in_flight.iter_mut().rfind(|request| request.id == id);
                if let Some(request) = pending {
                    (request.end, request.bytes) = (Some(time), bytes);
                }
            }
        })
    }

    fn read_responses(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) -> u64 {
        let in_flight = &mut self.in_flight;
        self.responses.read(time, bytes, &mut |part| {
            let MessagePart::End { id, start, bytes } = part else { return };
            let found = in_flight.iter().position(|request| request.id == id);
            let Some(request) = found.map(|at| in_flight.remove(at)) else { return };
            sink.operation(&Operation {
                verb: "Q",
                statement: &id.to_string(),
                syntax: StatementSyntax::Name,
                is_wait: id % 10 == 9,
                outcome: match id % 10 {
                    8 => OperationOutcome::Error("odd"),
                    _ => OperationOutcome::Ok,
                },
                request_start: request.start,
                request_end: request.end.unwrap_or(start),
                response_start: start,
                response_end: time,
                request_bytes: request.bytes,
                response_bytes: bytes,
                rows: None,
                traceparent: None,
            });
        })
    }
}

impl ConnectionObserver for MessageObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        assert!(!bytes.is_empty(), "an empty piece of the stream");
        let unparsed = match direction {
            FlowDirection::ToServer => self.read_requests(time, bytes, sink),
            FlowDirection::ToClient => self.read_responses(time, bytes, sink),
        };
        if unparsed > 0 {
            sink.unparsed(direction, unparsed);
            // Where a message was expected, there was none: its id is unknown.
            self.forget(NotMeasuredReason::Gap, sink);
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        assert!(missing > 0, "an empty gap");
        match direction {
            FlowDirection::ToServer => self.requests.lose_position(),
            FlowDirection::ToClient => self.responses.lose_position(),
        }
        self.forget(NotMeasuredReason::Gap, sink);
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        self.forget(NotMeasuredReason::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in &self.in_flight {
            each(ObservedRequest {
                verb: "Q",
                statement: &request.id.to_string(),
                syntax: StatementSyntax::Name,
                is_wait: request.id % 10 == 9,
                since: request.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        match self.requests.is_synchronized && self.responses.is_synchronized {
            true => ObserverState::Synchronized,
            false => ObserverState::Resynchronizing,
        }
    }

    fn memory(&self) -> usize {
        self.in_flight.capacity() * size_of::<PendingRequest>()
    }
}

/// Observer of messages with their length before them.
struct DatagramObserver {
    messages: MessageObserver,
}

impl ConnectionObserver for DatagramObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        let (length, message) = bytes.split_first_chunk().unwrap();
        assert_eq!(usize::from(u16::from_be_bytes(*length)), message.len());
        if !message.is_empty() {
            self.messages.read(direction, time, message, sink);
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        self.messages.skip(direction, missing, sink);
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        self.messages.end(sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.messages.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        self.messages.state()
    }

    fn memory(&self) -> usize {
        self.messages.memory()
    }
}

impl MessageObserver {
    fn forget(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        if !self.in_flight.is_empty() {
            sink.not_measured(self.in_flight.len() as u64, reason);
            self.in_flight.clear();
        }
    }
}
