//! Observer of Redis connections (RESP 2 and 3). `docs/wire-protocols.md` says what it measures.
//!
//! Resynchronisation ([`Lockstep`]): the server's packet ends with the end of a line, and the
//! client's next packet starts with a command.

use super::commands::{CommandEffect, RedisCommand};
use super::requests::{RedisRequest, RedisRequests};
use super::resp_parser::{RespMessage, RespParser};
use crate::observer::lockstep::{Lockstep, LockstepPhase};
use crate::observer::tls::TlsEvidence;
use crate::observer::{
    ConnectionObserver, ConnectionStart, Direction, NotMeasured, ObservedProtocol, ObservedRequest,
    ObserverState, OperationSink, PacketTime,
};

/// The protocol in the table of protocols.
pub(crate) const REDIS: ObservedProtocol = ObservedProtocol {
    name: "redis",
    default_ports: &[6379],
    observer: |start| Box::new(RedisObserver::new(start)),
};

/// Observer of one connection.
struct RedisObserver {
    stage: RedisStage,
    client: RespParser,
    server: RespParser,
    /// Whether the position in the client's bytes is known.
    is_client_known: bool,
    /// Whether the connection has had no message; it may be of another protocol.
    is_new: bool,
    requests: RedisRequests,
    mode: ReplyMode,
    lockstep: Lockstep,
    tls: TlsEvidence,
    /// Whether the server's last packet ended with a line.
    is_line_end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RedisStage {
    Session,
    Encrypted,
    /// Another protocol, replication, or MONITOR.
    Unmeasurable,
}

/// Which replies follow the next commands.
#[derive(Clone, Copy, Debug, Default)]
struct ReplyMode {
    is_off: bool,
    skips_next: bool,
    is_transaction: bool,
    /// Whether messages of channels may arrive as arrays (RESP 2).
    is_subscribed: bool,
    /// UNSUBSCRIBE commands whose last confirmation has not arrived.
    unsubscriptions: u32,
    is_version_3: bool,
}

impl RedisObserver {
    fn new(start: ConnectionStart) -> RedisObserver {
        let is_first = start == ConnectionStart::First;
        let phase = if is_first { LockstepPhase::Synchronized } else { LockstepPhase::Lost };
        RedisObserver {
            stage: RedisStage::Session,
            client: RespParser::new(Direction::ToServer),
            server: RespParser::new(Direction::ToClient),
            is_client_known: is_first,
            is_new: is_first,
            requests: RedisRequests::default(),
            mode: ReplyMode::default(),
            lockstep: Lockstep::new(phase),
            tls: TlsEvidence::default(),
            is_line_end: false,
        }
    }

    fn is_lost(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Lost
    }

    fn read_client(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if self.is_lost() {
            let can_start = self.lockstep.can_start(time);
            let is_start = match self.is_client_known {
                true => self.client.is_between(),
                false => starts_command(bytes),
            };
            if is_start && can_start && self.is_line_end {
                self.client.reset();
                self.server.reset();
                self.is_client_known = true;
                self.lockstep.start();
            }
        }
        if self.is_client_known {
            loop {
                match self.client.read(&mut bytes, time) {
                    Ok(None) => break,
                    Ok(Some(message)) => self.command(&message, time, sink),
                    Err(_) => {
                        self.is_client_known = false;
                        self.mode = ReplyMode::default();
                        self.lose(Direction::ToServer, NotMeasured::Gap, sink);
                        if self.is_new {
                            self.stage = RedisStage::Unmeasurable;
                        }
                        break;
                    }
                }
                if self.stage != RedisStage::Session {
                    break;
                }
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(Direction::ToServer, bytes.len() as u64);
        }
    }

    /// A complete command.
    fn command(&mut self, message: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        self.is_new = false;
        let Some(mut command) = RedisCommand::new(self.client.words()) else { return };
        command.is_wait &= !self.mode.is_transaction;
        let is_measured = self.lockstep.phase() == LockstepPhase::Synchronized;
        if self.is_without_reply(command.effect) {
            let reason = if is_measured { NotMeasured::NoResponse } else { NotMeasured::Gap };
            sink.not_measured(1, reason);
            if command.effect == CommandEffect::Stream {
                self.requests.clear(NotMeasured::NoResponse, sink);
                self.stage = RedisStage::Unmeasurable;
            }
            return;
        }
        if !is_measured {
            sink.not_measured(1, NotMeasured::Gap);
        }
        if self.is_lost() {
            return;
        }
        let confirmations = match command.effect {
            CommandEffect::Subscription(channels) => channels,
            _ => 0,
        };
        if confirmations > 0 && self.requests.is_full() {
            if is_measured {
                sink.not_measured(1, NotMeasured::Limit);
            }
            return self.lose(Direction::ToServer, NotMeasured::Limit, sink);
        }
        let pushed = self.requests.push(RedisRequest {
            command,
            is_measured,
            request_start: message.start,
            request_end: end,
            request_bytes: message.size,
            confirmations,
            response_start: 0,
            response_bytes: 0,
        });
        if let Err(reason) = pushed {
            sink.not_measured(1, reason);
        }
    }

    /// Whether a command has no reply of its own; changes the mode.
    fn is_without_reply(&mut self, effect: CommandEffect) -> bool {
        let mode = &mut self.mode;
        let is_skipped = std::mem::take(&mut mode.skips_next);
        match effect {
            CommandEffect::RepliesOn => mode.is_off = false,
            CommandEffect::RepliesOff => mode.is_off = true,
            CommandEffect::SkipReply => mode.skips_next = !mode.is_off,
            CommandEffect::StartTransaction => mode.is_transaction = true,
            CommandEffect::EndTransaction => mode.is_transaction = false,
            CommandEffect::Version3 => mode.is_version_3 = true,
            CommandEffect::Subscription(_) => mode.is_subscribed = true,
            CommandEffect::Unsubscription => {
                mode.unsubscriptions = mode.unsubscriptions.saturating_add(1);
            }
            _ => {}
        }
        let has_none = matches!(
            effect,
            CommandEffect::SkipReply | CommandEffect::Unsubscription | CommandEffect::Stream
        );
        is_skipped || mode.is_off || has_none
    }

    fn read_server(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        self.is_line_end = bytes.ends_with(b"\n");
        while !self.is_lost() && self.stage == RedisStage::Session {
            match self.server.read(&mut bytes, time) {
                Ok(None) => break,
                Ok(Some(reply)) => self.reply(&reply, time, sink),
                Err(_) => self.lose(Direction::ToClient, NotMeasured::Gap, sink),
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(Direction::ToClient, bytes.len() as u64);
        }
    }

    /// A complete reply or pushed message.
    fn reply(&mut self, reply: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        let is_push = reply.mark == b'>';
        self.mode.is_version_3 |= is_push;
        let may_be_push =
            (self.mode.is_subscribed || self.mode.unsubscriptions > 0) && !self.mode.is_version_3;
        if is_push || may_be_push && reply.mark == b'*' && is_channel_message(&self.server) {
            return self.confirm(reply, end, sink);
        }
        let is_other = self.requests.front().is_some_and(|request| {
            // Only an error can be a reply to a subscription.
            request.confirmations > 0 && !reply.is_error || reply.start < request.request_start
        });
        if is_other {
            self.requests.clear(NotMeasured::Gap, sink);
            return self.lockstep.lose_by_response();
        }
        match self.requests.finish(reply, end, sink) {
            Some(CommandEffect::StreamAfterReply) if !reply.is_error => {
                self.requests.clear(NotMeasured::NoResponse, sink);
                self.stage = RedisStage::Unmeasurable;
            }
            Some(_) => {}
            None => self.lockstep.lose_by_response(),
        }
    }

    /// A pushed message: it may confirm a subscription.
    fn confirm(&mut self, reply: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        let words = self.server.words();
        let is_unsubscribed = words.word(0).ends_with(b"unsubscribe");
        if is_unsubscribed && reply.number.as_bytes() == b"0\r\n" {
            self.mode.is_subscribed = false;
            self.mode.unsubscriptions = self.mode.unsubscriptions.saturating_sub(1);
        }
        let Some(request) = self.requests.front() else { return };
        if request.confirmations == 0 || !words.is(0, request.command.verb.as_str()) {
            return;
        }
        if request.response_start == 0 {
            request.response_start = reply.start;
        }
        request.confirmations -= 1;
        if request.confirmations == 0 {
            let reply = RespMessage { elements: None, ..*reply };
            self.requests.finish(&reply, end, sink);
        } else {
            request.response_bytes += reply.size;
        }
    }

    fn lose(&mut self, direction: Direction, reason: NotMeasured, sink: &mut dyn OperationSink) {
        self.requests.clear(reason, sink);
        self.lockstep.lose(direction);
        self.is_line_end = false;
    }
}

/// Whether a packet starts with a command: an array of strings.
fn starts_command(packet: &[u8]) -> bool {
    let Some(rest) = packet.strip_prefix(b"*") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b"\r\n$")
}

/// Whether an array is a message of a channel, or confirms a subscription.
fn is_channel_message(server: &RespParser) -> bool {
    let kind = server.words().word(0);
    let name = kind.strip_prefix(b"un").or(kind.strip_prefix(b"pun")).or(kind.strip_prefix(b"sun"));
    let name = name.or(kind.strip_prefix(b"p")).or(match kind {
        b"ssubscribe" | b"smessage" => Some(&kind[1..]),
        _ => None,
    });
    matches!(name.unwrap_or(kind), b"subscribe" | b"message")
}

impl ConnectionObserver for RedisObserver {
    fn read(
        &mut self,
        direction: Direction,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if bytes.is_empty() {
            return;
        }
        let is_hello = self.is_new && direction == Direction::ToServer && bytes[0] == 0x16;
        if is_hello || self.is_lost() && self.tls.packet(direction, bytes) {
            self.stage = RedisStage::Encrypted;
        }
        match self.stage {
            RedisStage::Session => {}
            RedisStage::Encrypted => return,
            RedisStage::Unmeasurable => return sink.unparsed(direction, bytes.len() as u64),
        }
        // Before the packet is recorded: a pause ends with it.
        if direction == Direction::ToServer && self.is_lost() {
            self.read_client(time, bytes, sink);
            self.lockstep.packet(direction, time, true);
            return;
        }
        if self.lockstep.packet(direction, time, self.requests.is_idle()) {
            self.lose(direction, NotMeasured::Gap, sink);
        }
        match direction {
            Direction::ToServer => self.read_client(time, bytes, sink),
            Direction::ToClient => {
                self.is_new = false;
                self.read_server(time, bytes, sink);
            }
        }
    }

    fn skip(&mut self, direction: Direction, missing: u64, sink: &mut dyn OperationSink) {
        if self.stage != RedisStage::Session || missing == 0 {
            return;
        }
        self.is_new = false;
        let is_known = match direction {
            Direction::ToServer => {
                self.is_client_known = self.is_client_known && self.client.skip(missing);
                self.is_client_known
            }
            Direction::ToClient => !self.is_lost() && self.server.skip(missing),
        };
        if !is_known {
            if direction == Direction::ToServer {
                self.mode =
                    ReplyMode { is_version_3: self.mode.is_version_3, ..Default::default() };
            }
            self.lose(direction, NotMeasured::Gap, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        self.requests.clear(NotMeasured::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        match (self.stage, self.lockstep.phase()) {
            (RedisStage::Encrypted, _) => ObserverState::Encrypted,
            (RedisStage::Unmeasurable, _) => ObserverState::Unmeasurable,
            (RedisStage::Session, LockstepPhase::Synchronized) => ObserverState::Synchronized,
            (RedisStage::Session, _) => ObserverState::Resynchronizing,
        }
    }

    fn memory(&self) -> usize {
        self.requests.memory()
    }
}
