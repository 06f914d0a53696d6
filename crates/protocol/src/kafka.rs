//! Observer of connections to brokers of Apache Kafka.
//!
//! Source: the protocol guide and message definitions of Apache Kafka 4.1. A broker responds in the
//! order of the requests, and each response has the correlation id of its request; both are
//! required to match. Topics of Produce and Fetch are the statement; bodies are passed over.
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
mod request_reader;
mod response_reader;

use crate::observer::{
    ConnectionObserver, ConnectionStart, Direction, NotMeasured, ObservedProtocol, ObservedRequest,
    ObserverState, OperationSink, PacketTime, StatementSyntax,
};
use crate::tls_record::is_tls_record;
use in_flight_table::InFlightTable;
use request_reader::RequestReader;
use response_reader::ResponseReader;

/// The protocol in the table of protocols.
pub(crate) const KAFKA: ObservedProtocol = ObservedProtocol {
    name: "kafka",
    default_ports: &[9092],
    observer: |start| Box::new(KafkaObserver::new(start)),
};

/// Observer of one connection.
struct KafkaObserver {
    requests: RequestReader,
    responses: ResponseReader,
    table: InFlightTable,
    is_encrypted: bool,
}

impl KafkaObserver {
    fn new(start: ConnectionStart) -> KafkaObserver {
        let is_first = start == ConnectionStart::First;
        KafkaObserver {
            requests: RequestReader::new(is_first),
            responses: ResponseReader::new(is_first),
            table: InFlightTable::new(is_first),
            is_encrypted: false,
        }
    }
}

impl ConnectionObserver for KafkaObserver {
    fn read(
        &mut self,
        direction: Direction,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if self.is_encrypted {
            return sink.unparsed(direction, bytes.len() as u64);
        }
        match direction {
            Direction::ToServer => self.requests.read(time, bytes, &mut self.table, sink),
            Direction::ToClient => self.responses.read(time, bytes, &mut self.table, sink),
        }
        // As the size of a message these bytes exceed every limit: no position is lost by it.
        if self.requests.is_lost() && self.table.is_empty() && is_tls_record(bytes) {
            self.is_encrypted = true;
        }
    }

    fn skip(&mut self, direction: Direction, missing: u64, sink: &mut dyn OperationSink) {
        match direction {
            Direction::ToServer => self.requests.skip(missing, &mut self.table, sink),
            Direction::ToClient => self.responses.skip(missing, &mut self.table, sink),
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        let held = self.responses.end(&mut self.table);
        let requests = held + self.table.drain();
        if requests > 0 {
            sink.not_measured(requests, NotMeasured::ConnectionEnd);
        }
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in self.responses.request().into_iter().chain(self.table.requests()) {
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
            () if self.requests.is_lost() || self.responses.is_lost() => {
                ObserverState::Resynchronizing
            }
            () => ObserverState::Synchronized,
        }
    }

    fn memory(&self) -> usize {
        self.requests.memory() + self.responses.memory() + self.table.memory()
    }
}
