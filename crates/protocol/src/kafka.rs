//! Observer of connections to brokers of Apache Kafka.
//!
//! Source: the protocol guide and message definitions of Apache Kafka 4.1. A broker responds in the
//! order of the requests, and each response has the correlation id of its request; both are
//! required to match. Topics of Produce and Fetch are the statement; bodies are skipped.
//!
//! Fetch waits at the broker until it has `min_bytes`, at most `max_wait_ms`. It is a wait if it
//! returned no records, if it took `max_wait_ms`, or if the Fetch before it reached the end of the
//! partitions that it returned: there was nothing to read when it was sent. Otherwise the records
//! existed, and its time is the broker's work. If the Fetch before it is unknown, it is not
//! measured.
//!
//! After a gap, requests continue at a packet that starts with a plausible request header, and
//! responses at one that starts with the correlation id of a request in flight. The first of these
//! responses only confirms the position.

mod api;
mod error_code;
mod fields;
mod in_flight_table;
mod requests;
mod responses;

use crate::message_position::MessagePosition;
use crate::message_reader::MessageStreamReader;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use crate::tls_record::is_tls_record;
use in_flight_table::InFlightTable;
use requests::{KafkaRequests, RequestState};
use responses::{KafkaResponses, ResponseState};

/// The protocol in the table of protocols.
pub(crate) const KAFKA: ObservedProtocol = ObservedProtocol {
    name: "kafka",
    default_ports: &[9092],
    observer: |start| Box::new(KafkaObserver::new(start)),
};

/// Observer of one connection.
struct KafkaObserver {
    requests: MessageStreamReader,
    responses: MessageStreamReader,
    request: RequestState,
    response: ResponseState,
    table: InFlightTable,
    is_encrypted: bool,
}

impl KafkaObserver {
    fn new(start: CaptureStart) -> KafkaObserver {
        let has_first_byte = start == CaptureStart::FirstByte;
        KafkaObserver {
            requests: MessageStreamReader::new(FlowDirection::ToServer, has_first_byte),
            responses: MessageStreamReader::new(FlowDirection::ToClient, has_first_byte),
            request: RequestState::new(),
            response: ResponseState::new(),
            table: InFlightTable::new(has_first_byte),
            is_encrypted: false,
        }
    }

    fn is_lost(&self) -> bool {
        self.requests.position() == MessagePosition::Lost
            || self.responses.position() == MessagePosition::Lost
    }
}

impl ConnectionObserver for KafkaObserver {
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
        let KafkaObserver { request, response, table, .. } = self;
        match direction {
            FlowDirection::ToServer => {
                let mut handler = KafkaRequests { state: request, table };
                self.requests.read_packet(time, bytes, &mut handler, sink);
            }
            FlowDirection::ToClient => {
                let mut handler = KafkaResponses { state: response, table };
                self.responses.read_packet(time, bytes, &mut handler, sink);
            }
        }
        // As the size of a message these bytes exceed every limit: no position is lost by it.
        let is_lost = self.requests.position() == MessagePosition::Lost;
        if is_lost && self.table.is_empty() && is_tls_record(bytes) {
            self.is_encrypted = true;
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        let KafkaObserver { request, response, table, .. } = self;
        table.forget_state();
        match direction {
            FlowDirection::ToServer => {
                self.requests.skip(missing, &mut KafkaRequests { state: request, table }, sink);
            }
            FlowDirection::ToClient => {
                self.responses.skip(missing, &mut KafkaResponses { state: response, table }, sink);
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
        for request in self.response.request().into_iter().chain(self.table.requests()) {
            each(ObservedRequest {
                verb: request.api.name,
                statement: &request.topics,
                syntax: StatementSyntax::Name,
                is_wait: request.api.is_wait() || request.may_wait(),
                since: request.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        match () {
            () if self.is_encrypted => ObserverState::Encrypted,
            () if self.is_lost() => ObserverState::Resynchronizing,
            () => ObserverState::Synchronized,
        }
    }

    fn memory(&self) -> usize {
        self.requests.memory()
            + self.responses.memory()
            + self.response.memory()
            + self.table.memory()
    }
}
