//! Observer of DNS, over TCP and of datagrams.
//!
//! Source: RFC 1035 and 7766. Each message has its length before it, as over TCP; the reader of
//! datagrams adds it, and calls `read` once per datagram of a client's address and port. A response
//! has the id and the question of its request. A question that is sent again is one request: its
//! time is that of the first one, for which the client has waited. Transfers of zones are not
//! measured, because only their records tell where they end.

mod message;
mod messages;
mod question_table;

use crate::message_position::MessagePosition;
use crate::message_reader::MessageStreamReader;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use messages::{MessageState, Messages};
use question_table::QuestionTable;

/// The protocol in the table of protocols.
pub(crate) const DNS: ObservedProtocol = ObservedProtocol {
    name: "dns",
    default_ports: &[53],
    observer: |start| Box::new(DnsObserver::new(start)),
};

/// Observer of one connection, or of the datagrams of a client's address and port.
struct DnsObserver {
    requests: MessageStreamReader,
    responses: MessageStreamReader,
    request: MessageState,
    response: MessageState,
    table: QuestionTable,
}

impl DnsObserver {
    fn new(start: CaptureStart) -> DnsObserver {
        let has_first_byte = start == CaptureStart::FirstByte;
        DnsObserver {
            requests: MessageStreamReader::new(FlowDirection::ToServer, has_first_byte),
            responses: MessageStreamReader::new(FlowDirection::ToClient, has_first_byte),
            request: MessageState::default(),
            response: MessageState::default(),
            table: QuestionTable::default(),
        }
    }

    /// The reader of a direction, and the handler of its messages.
    fn direction(&mut self, direction: FlowDirection) -> (&mut MessageStreamReader, Messages<'_>) {
        let (reader, state) = match direction {
            FlowDirection::ToServer => (&mut self.requests, &mut self.request),
            FlowDirection::ToClient => (&mut self.responses, &mut self.response),
        };
        (reader, Messages { direction, state, table: &mut self.table })
    }
}

impl ConnectionObserver for DnsObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        let (reader, mut messages) = self.direction(direction);
        reader.read_packet(time, bytes, &mut messages, sink);
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        let (reader, mut messages) = self.direction(direction);
        reader.skip(missing, &mut messages, sink);
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        let questions = self.table.drain();
        if questions > 0 {
            sink.not_measured(questions, NotMeasuredReason::ConnectionEnd);
        }
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for question in self.table.questions() {
            each(ObservedRequest {
                verb: question.verb,
                statement: &question.name,
                syntax: StatementSyntax::Name,
                is_wait: false,
                since: question.start,
            });
        }
    }

    fn state(&self) -> ObserverState {
        let is_lost = self.requests.position() == MessagePosition::Lost
            || self.responses.position() == MessagePosition::Lost;
        if is_lost { ObserverState::Resynchronizing } else { ObserverState::Synchronized }
    }

    fn memory(&self) -> usize {
        self.requests.memory()
            + self.responses.memory()
            + self.request.memory()
            + self.response.memory()
            + self.table.memory()
    }
}
