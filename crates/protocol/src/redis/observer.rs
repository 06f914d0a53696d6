//! Observer of Redis connections (RESP 2 and 3). `docs/wire-protocols.md` says what it measures.
//!
//! Resynchronisation ([`Lockstep`]): the server's packet ends with the end of a line, and the
//! client's next packet starts with a command.

use super::commands::{CommandEffect, RedisCommand};
use super::requests::{RedisRequest, RedisRequests};
use super::resp_parser::{RespMessage, RespParser};
use crate::observer::in_order_observer::InOrderObserver;
use crate::observer::in_order_session::{ConnectionContent, InOrderSession};
use crate::observer::lockstep::Lockstep;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime,
};

/// The protocol in the table of protocols.
pub(crate) const REDIS: ObservedProtocol = ObservedProtocol {
    name: "redis",
    default_ports: &[6379],
    observer: |start| Box::new(RedisObserver::new(start)),
};

/// Observer of one connection.
struct RedisObserver {
    session: InOrderSession,
    client: RespParser,
    server: RespParser,
    requests: RedisRequests,
    mode: ReplyMode,
    /// Whether the server's last packet ended with a line.
    is_line_end: bool,
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
    fn new(start: CaptureStart) -> RedisObserver {
        RedisObserver {
            session: InOrderSession::new(start),
            client: RespParser::new(FlowDirection::ToServer),
            server: RespParser::new(FlowDirection::ToClient),
            requests: RedisRequests::default(),
            mode: ReplyMode::default(),
            is_line_end: false,
        }
    }

    /// A complete command.
    fn command(&mut self, message: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        self.session.is_new = false;
        let Some(mut command) = RedisCommand::new(self.client.arguments()) else { return };
        command.is_wait &= !self.mode.is_transaction;
        let is_measured = self.session.is_measured();
        if self.is_without_reply(command.effect) {
            let reason =
                if is_measured { NotMeasuredReason::NoResponse } else { NotMeasuredReason::Gap };
            sink.not_measured(1, reason);
            if command.effect == CommandEffect::Stream {
                self.requests.clear(NotMeasuredReason::NoResponse, sink);
                self.session.content = ConnectionContent::Unmeasurable;
            }
            return;
        }
        if !is_measured {
            sink.not_measured(1, NotMeasuredReason::Gap);
        }
        if self.session.is_lost() {
            return;
        }
        let confirmations = match command.effect {
            CommandEffect::Subscription(channels) => channels,
            _ => 0,
        };
        if confirmations > 0 && self.requests.is_full() {
            if is_measured {
                sink.not_measured(1, NotMeasuredReason::Limit);
            }
            return self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Limit, sink);
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
            CommandEffect::Reset => (mode.is_transaction, mode.is_off) = (false, false),
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
            self.requests.clear(NotMeasuredReason::Gap, sink);
            return self.session.lockstep.lose_by_response();
        }
        match self.requests.finish(reply, end, sink) {
            Some(_) if reply.is_error => {}
            Some(CommandEffect::StreamAfterReply) => {
                self.requests.clear(NotMeasuredReason::NoResponse, sink);
                self.session.content = ConnectionContent::Unmeasurable;
            }
            // The replies before this one have the other version.
            Some(CommandEffect::Version3) => self.mode.is_version_3 = true,
            Some(CommandEffect::Version2) => self.mode.is_version_3 = false,
            Some(CommandEffect::Reset) => {
                self.mode.is_version_3 = false;
                self.mode.is_subscribed = self.requests.has_subscription();
            }
            Some(_) => {}
            None => self.session.lockstep.lose_by_response(),
        }
    }

    /// A pushed message: it may confirm a subscription.
    fn confirm(&mut self, reply: &RespMessage, end: PacketTime, sink: &mut dyn OperationSink) {
        let arguments = self.server.arguments();
        let is_unsubscribed = arguments.argument(0).ends_with(b"unsubscribe");
        if is_unsubscribed && reply.number.as_bytes() == b"0\r\n" {
            self.mode.is_subscribed = false;
            self.mode.unsubscriptions = self.mode.unsubscriptions.saturating_sub(1);
        }
        let Some(request) = self.requests.front() else { return };
        // A message that began before the request confirms another one.
        let is_later = reply.start >= request.request_start;
        if request.confirmations == 0
            || !is_later
            || !arguments.is(0, request.command.name.as_str())
        {
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
}

/// Whether a packet starts with a command: an array of strings.
fn starts_command(packet: &[u8]) -> bool {
    let Some(rest) = packet.strip_prefix(b"*") else { return false };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b"\r\n$")
}

/// Whether an array is a message of a channel, or confirms a subscription.
fn is_channel_message(server: &RespParser) -> bool {
    let kind = server.arguments().argument(0);
    let name = kind.strip_prefix(b"un").or(kind.strip_prefix(b"pun")).or(kind.strip_prefix(b"sun"));
    let name = name.or(kind.strip_prefix(b"p")).or(match kind {
        b"ssubscribe" | b"smessage" => Some(&kind[1..]),
        _ => None,
    });
    matches!(name.unwrap_or(kind), b"subscribe" | b"message")
}

impl InOrderObserver for RedisObserver {
    fn lockstep(&mut self) -> &mut Lockstep {
        &mut self.session.lockstep
    }

    fn is_idle(&self) -> bool {
        self.requests.is_idle()
    }

    fn read_client(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if self.session.is_lost() {
            let is_start = match self.session.is_client_known {
                true => self.client.is_between(),
                false => starts_command(bytes),
            };
            if self.session.resume(time, is_start && self.is_line_end) {
                self.client.reset();
                self.server.reset();
            }
        }
        if self.session.is_client_known {
            loop {
                match self.client.read(&mut bytes, time) {
                    Ok(None) => break,
                    Ok(Some(message)) => self.command(&message, time, sink),
                    Err(_) => {
                        self.session.reject_client();
                        self.mode = ReplyMode::default();
                        self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Gap, sink);
                        break;
                    }
                }
                if !self.session.has_messages() {
                    break;
                }
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
        }
    }

    fn read_server(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        self.session.is_new = false;
        self.is_line_end = bytes.ends_with(b"\n");
        while !self.session.is_lost() && self.session.has_messages() {
            match self.server.read(&mut bytes, time) {
                Ok(None) => break,
                Ok(Some(reply)) => self.reply(&reply, time, sink),
                Err(_) => self.lose_position(FlowDirection::ToClient, NotMeasuredReason::Gap, sink),
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
        self.requests.clear(reason, sink);
        self.session.lockstep.lose_position(direction);
        self.is_line_end = false;
    }
}

impl ConnectionObserver for RedisObserver {
    fn read(
        &mut self,
        direction: FlowDirection,
        time: PacketTime,
        bytes: &[u8],
        sink: &mut dyn OperationSink,
    ) {
        if self.session.accepts_packet(direction, bytes, sink) {
            self.read_packet(direction, time, bytes, sink);
        }
    }

    fn skip(&mut self, direction: FlowDirection, missing: u64, sink: &mut dyn OperationSink) {
        if !self.session.accepts_gap(missing) {
            return;
        }
        let is_known = match direction {
            FlowDirection::ToServer => {
                let is_known = self.session.is_client_known && self.client.skip(missing);
                self.session.is_client_known = is_known;
                is_known
            }
            FlowDirection::ToClient => !self.session.is_lost() && self.server.skip(missing),
        };
        if !is_known {
            if direction == FlowDirection::ToServer {
                self.mode =
                    ReplyMode { is_version_3: self.mode.is_version_3, ..Default::default() };
            }
            self.lose_position(direction, NotMeasuredReason::Gap, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        self.requests.clear(NotMeasuredReason::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        self.session.state()
    }

    fn memory(&self) -> usize {
        self.requests.memory()
    }
}
