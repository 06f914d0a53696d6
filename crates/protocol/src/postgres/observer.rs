//! Observer of PostgreSQL connections (protocol 3.0 and 3.2). `docs/wire-protocols.md` says what it
//! measures.
//!
//! Resynchronisation ([`Lockstep`]): the server's packet ends with ReadyForQuery, and the client's
//! next packet consists of messages.

use super::exchanges::PostgresExchanges;
use super::message_reader::{PostgresMessage, PostgresMessageReader};
use super::startup::{StartupMessage, StartupParser};
use crate::observer::in_order_observer::InOrderObserver;
use crate::observer::lockstep::{Lockstep, LockstepPhase};
use crate::observer::tls::TlsEvidence;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, STATEMENT_BYTES_MAX,
};
use crate::tls_record::is_tls_record;

/// The protocol in the table of protocols.
pub(crate) const POSTGRES: ObservedProtocol = ObservedProtocol {
    name: "postgres",
    default_ports: &[5432, 6432],
    observer: |start| Box::new(PostgresObserver::new(start)),
};

/// ReadyForQuery without its last byte, the state of the transaction.
const READY_FOR_QUERY: [u8; 5] = [b'Z', 0, 0, 0, 5];

/// Observer of one connection.
struct PostgresObserver {
    stage: PostgresStage,
    startup: StartupParser,
    client: PostgresMessageReader,
    server: PostgresMessageReader,
    /// Whether the position in the client's bytes is known.
    is_client_known: bool,
    exchanges: PostgresExchanges,
    lockstep: Lockstep,
    tls: TlsEvidence,
    /// Last bytes of the server, while the position in them is unknown.
    tail: [u8; READY_FOR_QUERY.len() + 1],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostgresStage {
    /// Before the startup message.
    Startup,
    /// The client has asked for encryption with TLS (`S`) or GSS (`G`).
    EncryptionRequest(u8),
    /// Messages with types.
    Session,
    /// The connection has cancelled a request of another one.
    CancelRequest,
    Encrypted,
    Unmeasurable,
}

/// Retained bytes of the messages of a client.
fn client_retained(kind: u8) -> Option<usize> {
    match kind {
        // Text, and the name before it.
        b'Q' | b'P' => Some(STATEMENT_BYTES_MAX + 256),
        // Names.
        b'B' | b'C' | b'E' | b'D' => Some(256),
        b'F' | b'H' | b'S' | b'X' | b'c' | b'd' | b'f' | b'p' => Some(0),
        _ => None,
    }
}

/// Retained bytes of the messages of a server.
fn server_retained(kind: u8) -> Option<usize> {
    match kind {
        // Fields of an error.
        b'E' => Some(1 << 10),
        // The kind of authentication.
        b'R' => Some(4),
        // The tag of a command.
        b'C' => Some(64),
        // The state of a transaction.
        b'Z' => Some(1),
        b'1'..=b'3'
        | b'A'
        | b'D'
        | b'G'
        | b'H'
        | b'I'
        | b'K'
        | b'N'
        | b'S'
        | b'T'
        | b'V'
        | b'W'
        | b'c'
        | b'd'
        | b'n'
        | b's'
        | b't'
        | b'v' => Some(0),
        _ => None,
    }
}

impl PostgresObserver {
    fn new(start: CaptureStart) -> PostgresObserver {
        let (stage, phase) = match start {
            CaptureStart::FirstByte => (PostgresStage::Startup, LockstepPhase::Synchronized),
            CaptureStart::Midstream => (PostgresStage::Session, LockstepPhase::Lost),
        };
        PostgresObserver {
            stage,
            startup: StartupParser::default(),
            client: PostgresMessageReader::new(client_retained),
            server: PostgresMessageReader::new(server_retained),
            is_client_known: start == CaptureStart::FirstByte,
            exchanges: PostgresExchanges::default(),
            lockstep: Lockstep::new(phase),
            tls: TlsEvidence::default(),
            tail: [0; READY_FOR_QUERY.len() + 1],
        }
    }

    fn is_lost(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Lost
    }

    /// Messages before the startup message. Returns the bytes after it.
    fn read_startup<'a>(
        &mut self,
        time: PacketTime,
        mut bytes: &'a [u8],
        sink: &mut dyn OperationSink,
    ) -> &'a [u8] {
        if bytes.first() == Some(&0x16) && self.startup.is_between() {
            // TLS without a request before it: PostgreSQL 17, `sslnegotiation=direct`.
            self.stage = PostgresStage::Encrypted;
            return bytes;
        }
        let Some(message) = self.startup.read(&mut bytes, time) else { return bytes };
        self.stage = match message {
            StartupMessage::TlsRequest => PostgresStage::EncryptionRequest(b'S'),
            StartupMessage::GssRequest => PostgresStage::EncryptionRequest(b'G'),
            StartupMessage::CancelRequest => {
                sink.not_measured(1, NotMeasuredReason::NoResponse);
                PostgresStage::CancelRequest
            }
            StartupMessage::Startup { start, size } => {
                self.exchanges.start(start, time, size);
                PostgresStage::Session
            }
            StartupMessage::Other => PostgresStage::Unmeasurable,
        };
        bytes
    }

    /// Messages of a client whose responses cannot be found are counted, if their position is
    /// known.
    fn read_lost_client(&mut self, time: PacketTime, bytes: &[u8], sink: &mut dyn OperationSink) {
        let is_start = if self.is_client_known {
            self.client.is_between()
        } else {
            self.client.reset();
            self.client.can_start(bytes)
        };
        let can_start = self.lockstep.can_start(time);
        if is_start && can_start && self.has_ready_tail() {
            self.server.reset();
            self.exchanges.resume();
            self.is_client_known = true;
            self.lockstep.start();
            self.read_client_messages(time, bytes, sink);
        } else if self.is_client_known {
            self.read_client_messages(time, bytes, sink);
        } else {
            sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
        }
        self.tail = [0; READY_FOR_QUERY.len() + 1];
    }

    fn read_client_messages(
        &mut self,
        time: PacketTime,
        mut bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        loop {
            match self.client.read(&mut bytes, time) {
                Ok(Some(message)) => {
                    let awaits_report = self.lockstep.phase() == LockstepPhase::Synchronized;
                    let is_paired = self.lockstep.phase() != LockstepPhase::Lost;
                    self.exchanges.set_mode(awaits_report, is_paired);
                    if !self.exchanges.client_message(&message, time, sink) {
                        self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Limit, sink);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.is_client_known = false;
                    self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Gap, sink);
                    return sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
                }
            }
        }
    }

    fn read_server_messages(
        &mut self,
        time: PacketTime,
        mut bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        let packet = bytes;
        loop {
            match self.server.read(&mut bytes, time) {
                Ok(None) => return,
                Ok(Some(PostgresMessage { kind: b'W', .. })) => {
                    // Replication: both sides send a stream.
                    self.exchanges.clear(NotMeasuredReason::NoResponse, sink);
                    self.stage = PostgresStage::Unmeasurable;
                    return sink.unparsed(FlowDirection::ToClient, bytes.len() as u64);
                }
                Ok(Some(message)) => {
                    if self.exchanges.server_message(&message, time, sink) {
                        continue;
                    }
                    self.exchanges.clear(NotMeasuredReason::Gap, sink);
                    self.lockstep.lose_by_response();
                }
                Err(_) => self.lose_position(FlowDirection::ToClient, NotMeasuredReason::Gap, sink),
            }
            self.append_tail(packet);
            return sink.unparsed(FlowDirection::ToClient, bytes.len() as u64);
        }
    }

    fn append_tail(&mut self, bytes: &[u8]) {
        let length = self.tail.len();
        let new = &bytes[bytes.len().saturating_sub(length)..];
        self.tail.copy_within(new.len().., 0);
        self.tail[length - new.len()..].copy_from_slice(new);
    }

    /// Whether the server's last message is ReadyForQuery.
    fn has_ready_tail(&self) -> bool {
        let (message, state) = self.tail.split_at(READY_FOR_QUERY.len());
        message == READY_FOR_QUERY && matches!(state, b"I" | b"T" | b"E")
    }
}

impl InOrderObserver for PostgresObserver {
    fn lockstep(&mut self) -> &mut Lockstep {
        &mut self.lockstep
    }

    fn is_idle(&self) -> bool {
        self.exchanges.is_idle()
    }

    fn read_client(&mut self, time: PacketTime, bytes: &[u8], sink: &mut dyn OperationSink) {
        match self.stage {
            PostgresStage::Startup => {
                let rest = self.read_startup(time, bytes, sink);
                if !rest.is_empty() {
                    self.read_client(time, rest, sink);
                }
            }
            PostgresStage::EncryptionRequest(_) if is_tls_record(bytes) => {
                self.stage = PostgresStage::Encrypted;
            }
            PostgresStage::EncryptionRequest(_) => self.stage = PostgresStage::Unmeasurable,
            PostgresStage::Session if self.is_lost() => self.read_lost_client(time, bytes, sink),
            PostgresStage::Session => self.read_client_messages(time, bytes, sink),
            PostgresStage::CancelRequest | PostgresStage::Encrypted => {}
            PostgresStage::Unmeasurable => {
                sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
            }
        }
    }

    fn read_server(&mut self, time: PacketTime, bytes: &[u8], sink: &mut dyn OperationSink) {
        match self.stage {
            PostgresStage::EncryptionRequest(accepted) => {
                let Some((&answer, rest)) = bytes.split_first() else { return };
                self.stage = match answer {
                    _ if answer == accepted => PostgresStage::Encrypted,
                    b'N' => PostgresStage::Startup,
                    b'E' => {
                        self.exchanges.start(time, time, 8);
                        PostgresStage::Session
                    }
                    _ => PostgresStage::Unmeasurable,
                };
                let rest = if answer == b'E' { bytes } else { rest };
                if !rest.is_empty() {
                    self.read_server(time, rest, sink);
                }
            }
            PostgresStage::Session if self.is_lost() => {
                self.append_tail(bytes);
                sink.unparsed(FlowDirection::ToClient, bytes.len() as u64);
            }
            PostgresStage::Session => self.read_server_messages(time, bytes, sink),
            PostgresStage::CancelRequest | PostgresStage::Encrypted => {}
            PostgresStage::Startup => {
                // The client's first message is missing.
                self.stage = PostgresStage::Session;
                self.is_client_known = false;
                self.lose_position(FlowDirection::ToClient, NotMeasuredReason::Gap, sink);
                self.read_server(time, bytes, sink);
            }
            PostgresStage::Unmeasurable => {
                sink.unparsed(FlowDirection::ToClient, bytes.len() as u64);
            }
        }
    }

    fn lose_position(
        &mut self,
        direction: FlowDirection,
        reason: NotMeasuredReason,
        sink: &mut dyn OperationSink,
    ) {
        self.exchanges.clear(reason, sink);
        self.lockstep.lose_position(direction);
        self.tail = [0; READY_FOR_QUERY.len() + 1];
    }
}

impl ConnectionObserver for PostgresObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if bytes.is_empty() {
            return;
        }
        if self.is_lost() && self.tls.packet(direction, bytes) {
            self.stage = PostgresStage::Encrypted;
        }
        self.read_packet(direction, time, bytes, sink);
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        match self.stage {
            PostgresStage::CancelRequest
            | PostgresStage::Encrypted
            | PostgresStage::Unmeasurable => return,
            _ if missing == 0 => return,
            PostgresStage::Startup | PostgresStage::EncryptionRequest(_) => {
                self.stage = PostgresStage::Session;
                self.is_client_known = false;
            }
            PostgresStage::Session => {}
        }
        let is_known = match direction {
            FlowDirection::ToServer => {
                let is_known = self.is_client_known && self.client.skip(missing);
                self.is_client_known = is_known;
                is_known
            }
            FlowDirection::ToClient => !self.is_lost() && self.server.skip(missing),
        };
        if !is_known {
            self.lose_position(direction, NotMeasuredReason::Gap, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        self.exchanges.clear(NotMeasuredReason::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.exchanges.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        match self.stage {
            PostgresStage::Encrypted => ObserverState::Encrypted,
            PostgresStage::Unmeasurable => ObserverState::Unmeasurable,
            _ if self.lockstep.phase() == LockstepPhase::Synchronized => {
                ObserverState::Synchronized
            }
            _ => ObserverState::Resynchronizing,
        }
    }

    fn memory(&self) -> usize {
        self.client.memory() + self.server.memory() + self.exchanges.memory()
    }
}
