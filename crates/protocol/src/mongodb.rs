//! Observer of connections to MongoDB.
//!
//! Source: "MongoDB Wire Protocol", OP_MSG, OP_COMPRESSED and BSON of the MongoDB specifications. A
//! response has the id of its request. Compressed messages (Snappy, zlib, Zstandard) up to 64 KiB
//! are decompressed; the outcome of larger ones is unknown, and they are not measured.
//!
//! `hello` with `maxAwaitTimeMS` is a wait, and so is `getMore` with `maxTimeMS`, which only
//! cursors that wait for new documents accept, or of a cursor that was opened on the same
//! connection with `awaitData` or as a change stream. Further responses to `exhaustAllowed` are not
//! those of requests.

mod bson;
mod compressed_message;
mod message;
mod request_table;
mod requests;
mod responses;
mod sections;

use crate::message_position::MessagePosition;
use crate::message_reader::MessageStreamReader;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use crate::tls_record::is_tls_record;
use request_table::RequestTable;
use requests::{MongoRequests, RequestState};
use responses::{MongoResponses, ResponseState};

/// The protocol in the table of protocols.
pub(crate) const MONGODB: ObservedProtocol = ObservedProtocol {
    name: "mongodb",
    default_ports: &[27017],
    observer: |start| Box::new(MongodbObserver::new(start)),
};

/// Observer of one connection.
struct MongodbObserver {
    requests: MessageStreamReader,
    responses: MessageStreamReader,
    request: RequestState,
    response: ResponseState,
    table: RequestTable,
    is_encrypted: bool,
}

impl MongodbObserver {
    fn new(start: CaptureStart) -> MongodbObserver {
        let has_first_byte = start == CaptureStart::FirstByte;
        MongodbObserver {
            requests: MessageStreamReader::new(FlowDirection::ToServer, has_first_byte),
            responses: MessageStreamReader::new(FlowDirection::ToClient, has_first_byte),
            request: RequestState::new(),
            response: ResponseState::new(),
            table: RequestTable::default(),
            is_encrypted: false,
        }
    }
}

impl ConnectionObserver for MongodbObserver {
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
        let MongodbObserver { request, response, table, .. } = self;
        match direction {
            FlowDirection::ToServer => {
                let mut handler = MongoRequests { state: request, table };
                self.requests.read_packet(time, bytes, &mut handler, sink);
            }
            FlowDirection::ToClient => {
                let mut handler = MongoResponses { state: response, table };
                self.responses.read_packet(time, bytes, &mut handler, sink);
            }
        }
        let is_lost = self.requests.position() == MessagePosition::Lost;
        if is_lost && self.table.is_empty() && is_tls_record(bytes) {
            self.is_encrypted = true;
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        let MongodbObserver { request, response, table, .. } = self;
        match direction {
            FlowDirection::ToServer => {
                self.requests.skip(missing, &mut MongoRequests { state: request, table }, sink);
            }
            FlowDirection::ToClient => {
                self.responses.skip(missing, &mut MongoResponses { state: response, table }, sink);
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
        requests.sort_by_key(|request| request.start);
        for request in requests {
            each(ObservedRequest {
                verb: request.command,
                statement: &request.namespace,
                syntax: StatementSyntax::Name,
                is_wait: request.is_wait,
                since: request.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        let is_lost = self.requests.position() == MessagePosition::Lost
            || self.responses.position() == MessagePosition::Lost;
        match () {
            () if self.is_encrypted => ObserverState::Encrypted,
            () if is_lost => ObserverState::Resynchronizing,
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
