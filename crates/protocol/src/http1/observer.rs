//! Observer of HTTP/1.1 connections. `docs/wire-protocols.md` says what it measures.
//!
//! Resynchronisation ([`Lockstep`]): a packet of the client starts with a request, and the server's
//! next packet with a response.

use super::body_parser::BodyParser;
use super::observed_heads::{
    HeadBuffer, can_start_request, can_start_response, parse_request, parse_response,
    starts_request,
};
use super::requests::Http1Requests;
use crate::ProtocolViolation;
use crate::observer::lockstep::{Lockstep, LockstepPhase};
use crate::observer::tls::TlsEvidence;
use crate::observer::{
    ConnectionObserver, ConnectionStart, Direction, NotMeasured, ObservedProtocol, ObservedRequest,
    ObserverState, OperationSink, PacketTime,
};

/// The protocol in the table of protocols.
pub(crate) const HTTP: ObservedProtocol = ObservedProtocol {
    name: "http",
    default_ports: &[80, 8000, 8080],
    observer: |start| Box::new(Http1Observer::new(start)),
};

/// Observer of one connection.
struct Http1Observer {
    stage: Http1Stage,
    client: Http1Direction,
    server: Http1Direction,
    /// Whether the position in the client's bytes is known.
    is_client_known: bool,
    /// Whether the connection has had no message; it may be of another protocol.
    is_new: bool,
    requests: Http1Requests,
    lockstep: Lockstep,
    tls: TlsEvidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Http1Stage {
    Session,
    Encrypted,
    /// Another protocol, from the start or after an upgrade.
    Unmeasurable,
}

/// Position in the messages of one direction.
#[derive(Debug, Default)]
struct Http1Direction {
    head: HeadBuffer,
    /// First byte of the incomplete head.
    head_start: PacketTime,
    /// The body that is being skipped.
    body: Option<BodyParser>,
}

impl Http1Direction {
    fn reset(&mut self) {
        self.head.clear();
        self.body = None;
    }

    fn is_between(&self) -> bool {
        self.head.is_empty() && self.body.is_none()
    }

    fn memory(&self) -> usize {
        self.head.memory() + self.body.as_ref().map_or(0, BodyParser::memory)
    }

    /// Consumes bytes up to the end of a head, and reads it with `parse`.
    fn read_head<T>(
        &mut self,
        bytes: &mut &[u8],
        time: PacketTime,
        parse: impl FnOnce(&[u8], (PacketTime, PacketTime), u64) -> Result<T, ProtocolViolation>,
    ) -> Result<Option<T>, ProtocolViolation> {
        if self.head.is_empty() {
            self.head_start = time;
        }
        let start = self.head_start;
        self.head.read(bytes, |head| parse(head, (start, time), head.len() as u64))
    }
}

impl Http1Observer {
    fn new(start: ConnectionStart) -> Http1Observer {
        let is_first = start == ConnectionStart::First;
        let phase = if is_first { LockstepPhase::Synchronized } else { LockstepPhase::Lost };
        Http1Observer {
            stage: Http1Stage::Session,
            client: Http1Direction::default(),
            server: Http1Direction::default(),
            is_client_known: is_first,
            is_new: is_first,
            requests: Http1Requests::default(),
            lockstep: Lockstep::new(phase),
            tls: TlsEvidence::default(),
        }
    }

    fn is_lost(&self) -> bool {
        self.lockstep.phase() == LockstepPhase::Lost
    }

    fn read_client(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if self.is_lost() {
            let can_start = self.lockstep.can_start(time);
            let is_start = if self.is_client_known {
                self.client.is_between() && can_start_request(bytes)
            } else {
                starts_request(bytes)
            };
            if is_start && can_start {
                self.client.reset();
                self.server.reset();
                self.is_client_known = true;
                self.lockstep.start();
            }
        }
        if self.is_client_known && self.read_requests(time, &mut bytes, sink).is_err() {
            self.is_client_known = false;
            self.lose(Direction::ToServer, NotMeasured::Gap, sink);
            if self.is_new {
                self.stage = Http1Stage::Unmeasurable;
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(Direction::ToServer, bytes.len() as u64);
        }
    }

    fn read_requests(
        &mut self,
        time: PacketTime,
        bytes: &mut &[u8],
        sink: &mut dyn OperationSink,
    ) -> Result<(), ProtocolViolation> {
        while !bytes.is_empty() {
            if self.client.body.is_none() {
                if self.client.head.is_empty() && !can_start_request(bytes) {
                    return Err(ProtocolViolation);
                }
                if !self.read_request_head(time, bytes, sink)? {
                    return Ok(());
                }
            }
            let Some(body) = &mut self.client.body else { return Ok(()) };
            let before = bytes.len();
            let is_end = body.read(bytes)?;
            if let Some(request) = self.requests.back() {
                request.request_bytes += (before - bytes.len()) as u64;
                request.request_end = time;
                request.is_complete = is_end;
            }
            if is_end {
                self.client.body = None;
                while self.requests.finish(sink) {}
            }
        }
        Ok(())
    }

    /// Returns whether a head is complete.
    fn read_request_head(
        &mut self,
        time: PacketTime,
        bytes: &mut &[u8],
        sink: &mut dyn OperationSink,
    ) -> Result<bool, ProtocolViolation> {
        let phase = self.lockstep.phase();
        let is_measured = phase == LockstepPhase::Synchronized;
        let requests = &mut self.requests;
        let head = self.client.read_head(bytes, time, |head, times, size| {
            let head = parse_request(head)?;
            let is_pushed =
                phase == LockstepPhase::Lost || requests.push(&head, is_measured, times, size);
            Ok((head.body, is_pushed))
        })?;
        let Some((body, is_pushed)) = head else { return Ok(false) };
        self.client.body = Some(body);
        self.is_new = false;
        if !is_measured || !is_pushed {
            let reason = if is_pushed { NotMeasured::Gap } else { NotMeasured::Limit };
            sink.not_measured(1, reason);
        }
        if !is_pushed {
            self.lose(Direction::ToServer, NotMeasured::Limit, sink);
        }
        Ok(true)
    }

    fn read_server(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if !self.is_lost() {
            match self.read_responses(time, &mut bytes, sink) {
                Ok(()) => {}
                Err(ResponseViolation::Bytes) => {
                    self.lose(Direction::ToClient, NotMeasured::Gap, sink);
                }
                Err(ResponseViolation::NoRequest) => {
                    self.requests.clear(NotMeasured::Gap, sink);
                    self.lockstep.lose_by_response();
                }
            }
        }
        if !bytes.is_empty() {
            sink.unparsed(Direction::ToClient, bytes.len() as u64);
        }
    }

    fn read_responses(
        &mut self,
        time: PacketTime,
        bytes: &mut &[u8],
        sink: &mut dyn OperationSink,
    ) -> Result<(), ResponseViolation> {
        while !bytes.is_empty() && self.stage == Http1Stage::Session {
            let Some(request) = self.requests.front() else {
                return Err(ResponseViolation::NoRequest);
            };
            if request.is_response_complete {
                // The next request cannot have a response while this one is incomplete.
                return Err(ResponseViolation::NoRequest);
            }
            if self.server.body.is_none() {
                if self.server.head.is_empty() && !can_start_response(bytes) {
                    return Err(ResponseViolation::Bytes);
                }
                let method = request.method;
                let head = self.server.read_head(bytes, time, |head, times, size| {
                    Ok((parse_response(head, method)?, times.0, size))
                });
                let Some((head, start, size)) = head? else { return Ok(()) };
                request.response_bytes += size;
                if (100..200).contains(&head.status) && head.status != 101 {
                    continue;
                }
                request.response_start = start;
                (request.status, request.is_event_stream) = (head.status, head.is_event_stream);
                self.server.body = Some(head.body);
            }
            let Some(body) = &mut self.server.body else { return Ok(()) };
            let before = bytes.len();
            let is_end = body.read(bytes)?;
            request.response_bytes += (before - bytes.len()) as u64;
            request.response_end = time;
            if is_end {
                self.server.body = None;
                self.end_response(sink);
            }
        }
        Ok(())
    }

    fn end_response(&mut self, sink: &mut dyn OperationSink) {
        let Some(request) = self.requests.front() else { return };
        request.is_response_complete = true;
        let is_tunnel = request.status == 101
            || request.method == "CONNECT" && (200..300).contains(&request.status);
        while self.requests.finish(sink) {}
        if is_tunnel {
            self.requests.clear(NotMeasured::NoResponse, sink);
            self.stage = Http1Stage::Unmeasurable;
        }
    }

    fn lose(&mut self, direction: Direction, reason: NotMeasured, sink: &mut dyn OperationSink) {
        self.requests.clear(reason, sink);
        self.lockstep.lose(direction);
    }
}

/// Why a response cannot be read.
enum ResponseViolation {
    Bytes,
    NoRequest,
}

impl From<ProtocolViolation> for ResponseViolation {
    fn from(_: ProtocolViolation) -> ResponseViolation {
        ResponseViolation::Bytes
    }
}

impl ConnectionObserver for Http1Observer {
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
        if self.is_new && direction == Direction::ToServer && bytes[0] == 0x16 {
            self.stage = Http1Stage::Encrypted;
        }
        if self.is_lost() && self.tls.packet(direction, bytes) {
            self.stage = Http1Stage::Encrypted;
        }
        match self.stage {
            Http1Stage::Session => {}
            Http1Stage::Encrypted => return,
            Http1Stage::Unmeasurable => return sink.unparsed(direction, bytes.len() as u64),
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
        if self.stage != Http1Stage::Session || missing == 0 {
            return;
        }
        self.is_new = false;
        let is_lost = self.is_lost();
        let side = match direction {
            Direction::ToServer => &mut self.client,
            Direction::ToClient => &mut self.server,
        };
        let is_known = side.body.as_mut().is_some_and(|body| body.skip(missing));
        let request = match direction {
            Direction::ToServer => self.requests.back(),
            Direction::ToClient => self.requests.front(),
        };
        match (direction, request) {
            (Direction::ToServer, Some(request)) if is_known => request.request_bytes += missing,
            (Direction::ToClient, Some(request)) if is_known && !is_lost => {
                request.response_bytes += missing;
            }
            _ => {}
        }
        if direction == Direction::ToServer {
            self.is_client_known &= is_known;
        }
        if !is_known || direction == Direction::ToClient && is_lost {
            self.lose(direction, NotMeasured::Gap, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        // A body without a length ends with the connection.
        let is_until_closed = self.server.body.as_ref().is_some_and(BodyParser::is_until_closed);
        if is_until_closed && let Some(request) = self.requests.front() {
            request.is_response_complete = true;
            while self.requests.finish(sink) {}
        }
        self.requests.clear(NotMeasured::ConnectionEnd, sink);
    }

    fn abandon(&mut self, sink: &mut dyn OperationSink) {
        self.requests.clear(NotMeasured::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        match (self.stage, self.lockstep.phase()) {
            (Http1Stage::Encrypted, _) => ObserverState::Encrypted,
            (Http1Stage::Unmeasurable, _) => ObserverState::Unmeasurable,
            (Http1Stage::Session, LockstepPhase::Synchronized) => ObserverState::Synchronized,
            (Http1Stage::Session, _) => ObserverState::Resynchronizing,
        }
    }

    fn memory(&self) -> usize {
        self.client.memory() + self.server.memory() + self.requests.memory()
    }
}
