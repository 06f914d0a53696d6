//! Observer of connections to Apache Cassandra and other servers of CQL, versions 3 to 5.
//!
//! Source: `native_protocol_v3.spec`, `_v4.spec` and `_v5.spec` of Apache Cassandra. A response has
//! the stream id of its request. EXECUTE has the text of the statement, if PREPARE was on the same
//! connection. Compressed bodies (versions 3 and 4, LZ4 and Snappy) up to 64 KiB, and frames
//! compressed with LZ4 (version 5), are decompressed.
//!
//! After a gap, version 5 continues at a packet that starts with a frame, whose header has a
//! checksum; earlier versions at a packet that starts with a plausible header. After a gap of
//! responses the requests in flight are not measured: their stream ids may be in use again.

mod body;
mod compressed_body;
mod envelope;
mod frame_reader;
mod requests;
mod responses;
mod stream_table;

use crate::message_position::MessagePosition;
use crate::message_reader::{MessageHandler, MessageStreamReader};
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use crate::tls_record::is_tls_record;
use frame_reader::{CqlFrameHeader, FrameReader};
use requests::{CqlRequests, RequestState};
use responses::{CqlResponses, ResponseState};
use stream_table::{FrameFormat, StreamTable};

/// The protocol in the table of protocols.
pub(crate) const CASSANDRA: ObservedProtocol = ObservedProtocol {
    name: "cassandra",
    default_ports: &[9042],
    observer: |start| Box::new(CassandraObserver::new(start)),
};

/// Observer of one connection.
struct CassandraObserver {
    requests: DirectionReader,
    responses: DirectionReader,
    request: RequestState,
    response: ResponseState,
    table: StreamTable,
    is_encrypted: bool,
}

/// Positions in one direction.
struct DirectionReader {
    envelopes: MessageStreamReader,
    frames: FrameReader,
}

impl DirectionReader {
    fn new(direction: FlowDirection, has_first_byte: bool) -> DirectionReader {
        DirectionReader {
            envelopes: MessageStreamReader::new(direction, has_first_byte),
            frames: FrameReader::new(direction),
        }
    }

    fn read<H: MessageHandler>(
        &mut self,
        framing: FrameFormat,
        time: PacketTime,
        bytes: &[u8],
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        match framing {
            FrameFormat::Frames { is_compressed } => {
                let envelopes = (&mut self.envelopes, handler);
                self.frames.read(is_compressed, time, bytes, envelopes, sink);
            }
            FrameFormat::Envelopes | FrameFormat::Unknown => {
                self.envelopes.read_packet(time, bytes, handler, sink);
            }
        }
    }

    fn skip<H: MessageHandler>(
        &mut self,
        framing: FrameFormat,
        missing: u64,
        handler: &mut H,
        sink: &mut dyn OperationSink,
    ) {
        match framing {
            FrameFormat::Frames { .. } => {
                self.frames.skip(missing, (&mut self.envelopes, handler), sink);
            }
            FrameFormat::Envelopes | FrameFormat::Unknown => {
                self.envelopes.skip(missing, handler, sink)
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.envelopes.position() == MessagePosition::Lost || self.frames.is_lost()
    }

    fn memory(&self) -> usize {
        self.envelopes.memory() + self.frames.memory()
    }
}

impl CassandraObserver {
    fn new(start: CaptureStart) -> CassandraObserver {
        let has_first_byte = start == CaptureStart::FirstByte;
        CassandraObserver {
            requests: DirectionReader::new(FlowDirection::ToServer, has_first_byte),
            responses: DirectionReader::new(FlowDirection::ToClient, has_first_byte),
            request: RequestState::default(),
            response: ResponseState::default(),
            table: StreamTable::new(has_first_byte),
            is_encrypted: false,
        }
    }

    /// Finds out the framing of a connection that is captured from its middle.
    fn detect_framing(&mut self, bytes: &[u8]) {
        let is_compressed = [false, true]
            .into_iter()
            .find(|is_compressed| CqlFrameHeader::parse(bytes, *is_compressed).is_some());
        if let Some(is_compressed) = is_compressed {
            self.table.framing = FrameFormat::Frames { is_compressed };
        }
    }
}

impl ConnectionObserver for CassandraObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if self.is_encrypted {
            return sink.unparsed(direction, bytes.len() as u64);
        }
        if self.table.framing == FrameFormat::Unknown {
            self.detect_framing(bytes);
        }
        let CassandraObserver { requests, responses, request, response, table, .. } = self;
        let framing = table.framing;
        match direction {
            FlowDirection::ToServer => {
                let mut handler = CqlRequests { state: request, table };
                requests.read(framing, time, bytes, &mut handler, sink);
            }
            FlowDirection::ToClient => {
                let mut handler = CqlResponses { state: response, table };
                responses.read(framing, time, bytes, &mut handler, sink);
            }
        }
        if self.requests.is_lost() && self.table.is_empty() && is_tls_record(bytes) {
            self.is_encrypted = true;
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        let CassandraObserver { requests, responses, request, response, table, .. } = self;
        // The messages that decide the framing may be among those that were not captured.
        if table.framing == FrameFormat::Envelopes && !table.is_framing_settled {
            table.framing = FrameFormat::Unknown;
        }
        let framing = table.framing;
        match direction {
            FlowDirection::ToServer => {
                requests.skip(framing, missing, &mut CqlRequests { state: request, table }, sink);
            }
            FlowDirection::ToClient => {
                responses.skip(
                    framing,
                    missing,
                    &mut CqlResponses { state: response, table },
                    sink,
                );
            }
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.response.forget(&mut self.table) + self.table.drain();
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::ConnectionEnd);
        }
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        let mut requests: Vec<_> =
            self.response.request().into_iter().chain(self.table.requests()).collect();
        requests.sort_unstable_by_key(|request| request.number);
        for request in requests {
            each(ObservedRequest {
                verb: request.verb(),
                statement: request.statement(),
                syntax: StatementSyntax::Sql,
                is_wait: false,
                since: request.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        match () {
            () if self.is_encrypted => ObserverState::Encrypted,
            () if self.requests.is_lost() || self.responses.is_lost() => {
                ObserverState::Resynchronizing
            }
            () => ObserverState::Synchronized,
        }
    }

    fn memory(&self) -> usize {
        self.requests.memory()
            + self.responses.memory()
            + self.request.memory()
            + self.response.memory()
            + self.table.memory()
    }
}
