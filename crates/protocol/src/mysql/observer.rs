//! Observer of MySQL and MariaDB connections. `docs/wire-protocols.md` says what it measures.
//!
//! Resynchronisation ([`Lockstep`]): a packet of the client consists of commands, and the server's
//! next packet continues their sequence numbers.

use super::commands::{MysqlCommand, ResponseForm};
use super::frames::{MysqlFrame, MysqlFrames};
use super::packets::{
    COMPRESSION, DEPRECATE_EOF, OPTIONAL_METADATA, TLS, ZSTD_COMPRESSION, parse_greeting,
};
use super::responses::{MysqlExchanges, PacketFit};
use crate::observer::in_order_observer::InOrderObserver;
use crate::observer::lockstep::{Lockstep, LockstepPhase};
use crate::observer::tls::TlsEvidence;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime, STATEMENT_BYTES_MAX,
};

/// The protocol in the table of protocols.
pub(crate) const MYSQL: ObservedProtocol = ObservedProtocol {
    name: "mysql",
    default_ports: &[3306],
    observer: |start| Box::new(MysqlObserver::new(start)),
};

/// Retained bytes of a packet of the client: a statement, and what precedes it.
const CLIENT_BYTES: usize = STATEMENT_BYTES_MAX + 16;
/// Retained bytes of a packet of the server: a greeting, a result, an error.
const SERVER_BYTES: usize = 128;
/// Length of the payload of a request of TLS: a login without its user.
const TLS_REQUEST_BYTES: usize = 32;

/// Observer of one connection.
struct MysqlObserver {
    stage: MysqlStage,
    client: MysqlFrames,
    server: MysqlFrames,
    /// Whether the position in the client's bytes is known.
    is_client_known: bool,
    /// Capabilities of the server, then of both sides.
    capabilities: u32,
    exchanges: MysqlExchanges,
    lockstep: Lockstep,
    tls: TlsEvidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MysqlStage {
    /// Before the greeting of the server.
    Greeting,
    /// Before the login of the client.
    Login,
    Session,
    Encrypted,
    /// Another protocol, compression, or replication.
    Unmeasurable,
}

impl MysqlObserver {
    fn new(start: CaptureStart) -> MysqlObserver {
        let has_first_byte = start == CaptureStart::FirstByte;
        let (stage, phase) = match start {
            CaptureStart::FirstByte => (MysqlStage::Greeting, LockstepPhase::Synchronized),
            CaptureStart::Midstream => (MysqlStage::Session, LockstepPhase::Lost),
        };
        MysqlObserver {
            stage,
            client: MysqlFrames::new(CLIENT_BYTES),
            server: MysqlFrames::new(SERVER_BYTES),
            is_client_known: has_first_byte,
            capabilities: 0,
            exchanges: MysqlExchanges::default(),
            lockstep: Lockstep::new(phase),
            tls: TlsEvidence::default(),
        }
    }

    fn is_lost(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Lost
    }

    fn is_readable(&self) -> bool {
        matches!(self.stage, MysqlStage::Login | MysqlStage::Session)
    }

    fn greet(&mut self, is_error: bool, capabilities: Option<u32>) {
        self.stage = match capabilities {
            Some(capabilities) => {
                self.capabilities = capabilities;
                MysqlStage::Login
            }
            // The server refuses the connection.
            None if is_error => MysqlStage::Session,
            None => MysqlStage::Unmeasurable,
        };
    }

    fn stop(&mut self, sink: &mut dyn OperationSink) {
        self.exchanges.clear(NotMeasuredReason::NoResponse, sink);
        self.stage = MysqlStage::Unmeasurable;
    }

    /// The order of packets before the session shows that some are missing.
    fn leave_start(&mut self, direction: FlowDirection, sink: &mut dyn OperationSink) {
        self.stage = MysqlStage::Session;
        self.is_client_known = false;
        self.lose_position(direction, NotMeasuredReason::Gap, sink);
    }
}

/// The stage after the login of a client, and the capabilities of both sides.
fn login(frame: &MysqlFrame<'_>, server_capabilities: u32) -> (MysqlStage, u32) {
    let Some(client) = frame.payload.first_chunk::<4>() else {
        return (MysqlStage::Unmeasurable, 0);
    };
    let client = u32::from_le_bytes(*client);
    let both = client & server_capabilities;
    let stage = if frame.sequence != 1 || both & OPTIONAL_METADATA != 0 {
        MysqlStage::Unmeasurable
    } else if client & TLS != 0 && frame.length == TLS_REQUEST_BYTES {
        MysqlStage::Encrypted
    } else {
        MysqlStage::Session
    };
    (stage, both)
}

/// Whether a packet starts with a command that has a response, and continues with commands.
fn starts_commands(packet: &[u8]) -> bool {
    let [low, middle, high, 0, first, ..] = *packet else { return false };
    let length = u32::from_le_bytes([low, middle, high, 0]) as usize;
    let has_response = MysqlCommand::new(first).is_some_and(|command| {
        !matches!(command.response, ResponseForm::None | ResponseForm::Stream)
    });
    let rest = packet.get(4 + length..).unwrap_or_default();
    length > 0 && has_response && rest.get(3).is_none_or(|sequence| *sequence == 0)
}

impl InOrderObserver for MysqlObserver {
    fn lockstep(&mut self) -> &mut Lockstep {
        &mut self.lockstep
    }

    fn is_idle(&self) -> bool {
        self.exchanges.is_idle()
    }

    fn read_client(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if self.is_lost() && self.lockstep.can_start(time) {
            let is_start = starts_commands(bytes);
            if is_start && (!self.is_client_known || self.client.is_between()) {
                self.client.reset();
                self.server.reset();
                self.is_client_known = true;
                self.lockstep.start();
            }
        }
        while self.is_client_known && self.is_readable() {
            let phase = self.lockstep.phase();
            let mode = (phase == LockstepPhase::Synchronized, phase != LockstepPhase::Lost);
            let Some(frame) = self.client.read(&mut bytes, time) else { break };
            if self.stage == MysqlStage::Login {
                (self.stage, self.capabilities) = login(&frame, self.capabilities);
                if self.stage == MysqlStage::Session {
                    let omits_eof = self.capabilities & DEPRECATE_EOF != 0;
                    self.exchanges.start_login(&frame, time, omits_eof);
                }
                continue;
            }
            match self.exchanges.client_packet(&frame, time, mode, sink) {
                PacketFit::Expected | PacketFit::LoggedIn => {}
                PacketFit::Unexpected => {
                    self.is_client_known = false;
                    self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Gap, sink);
                }
                PacketFit::Limit => {
                    self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Limit, sink)
                }
                PacketFit::Stream => self.stop(sink),
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
        }
    }

    fn read_server(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        while !self.is_lost() && matches!(self.stage, MysqlStage::Greeting | MysqlStage::Session) {
            let Some(frame) = self.server.read(&mut bytes, time) else {
                if self.stage == MysqlStage::Greeting && self.server.is_no_greeting() {
                    self.stage = MysqlStage::Unmeasurable;
                }
                break;
            };
            if self.stage == MysqlStage::Greeting {
                let is_error = frame.payload.first() == Some(&0xff);
                let capabilities = parse_greeting(frame.payload);
                self.greet(is_error, capabilities);
                continue;
            }
            match self.exchanges.server_packet(&frame, time, sink) {
                PacketFit::Expected => {}
                PacketFit::LoggedIn
                    if self.capabilities & (COMPRESSION | ZSTD_COMPRESSION) != 0 =>
                {
                    self.stop(sink);
                }
                PacketFit::LoggedIn => {}
                PacketFit::Unexpected | PacketFit::Limit => {
                    self.exchanges.clear(NotMeasuredReason::Gap, sink);
                    self.lockstep.lose_by_response();
                }
                PacketFit::Stream => self.stop(sink),
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(FlowDirection::ToClient, bytes.len() as u64);
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
    }
}

impl ConnectionObserver for MysqlObserver {
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
            self.stage = MysqlStage::Encrypted;
        }
        match (self.stage, direction) {
            (MysqlStage::Encrypted, _) => return,
            (MysqlStage::Unmeasurable, _) => {
                return sink.unparsed(direction, bytes.len() as u64);
            }
            (MysqlStage::Greeting, FlowDirection::ToServer)
            | (MysqlStage::Login, FlowDirection::ToClient) => self.leave_start(direction, sink),
            _ => {}
        }
        self.read_packet(direction, time, bytes, sink);
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        match self.stage {
            MysqlStage::Encrypted | MysqlStage::Unmeasurable => return,
            _ if missing == 0 => return,
            MysqlStage::Greeting | MysqlStage::Login => return self.leave_start(direction, sink),
            MysqlStage::Session => {}
        }
        let is_known = match direction {
            FlowDirection::ToServer => {
                self.is_client_known = self.is_client_known && self.client.skip(missing);
                self.is_client_known
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
        match (self.stage, self.lockstep.phase()) {
            (MysqlStage::Encrypted, _) => ObserverState::Encrypted,
            (MysqlStage::Unmeasurable, _) => ObserverState::Unmeasurable,
            (_, LockstepPhase::Synchronized) => ObserverState::Synchronized,
            _ => ObserverState::Resynchronizing,
        }
    }

    fn memory(&self) -> usize {
        self.client.memory() + self.server.memory() + self.exchanges.memory()
    }
}
