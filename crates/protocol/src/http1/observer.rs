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
use crate::observer::in_order_observer::InOrderObserver;
use crate::observer::in_order_session::{ConnectionContent, InOrderSession};
use crate::observer::lockstep::Lockstep;
use crate::observer::{
    CaptureStart, ConnectionObserver, FlowDirection, NotMeasuredReason, ObservedProtocol,
    ObservedRequest, ObserverState, OperationSink, PacketTime,
};

/// The protocol in the table of protocols.
pub(crate) const HTTP: ObservedProtocol = ObservedProtocol {
    name: "http",
    default_ports: &[80, 8000, 8080],
    observer: |start| Box::new(Http1Observer::new(start)),
};

/// Observer of one connection.
struct Http1Observer {
    session: InOrderSession,
    client: Http1Direction,
    server: Http1Direction,
    requests: Http1Requests,
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
    fn new(start: CaptureStart) -> Http1Observer {
        Http1Observer {
            session: InOrderSession::new(start),
            client: Http1Direction::default(),
            server: Http1Direction::default(),
            requests: Http1Requests::default(),
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
        let (is_measured, is_lost) = (self.session.is_measured(), self.session.is_lost());
        let requests = &mut self.requests;
        let head = self.client.read_head(bytes, time, |head, times, size| {
            let head = parse_request(head)?;
            let is_pushed = is_lost || requests.push(&head, is_measured, times, size);
            Ok((head.body, is_pushed))
        })?;
        let Some((body, is_pushed)) = head else { return Ok(false) };
        self.client.body = Some(body);
        self.session.is_new = false;
        if !is_measured || !is_pushed {
            let reason = if is_pushed { NotMeasuredReason::Gap } else { NotMeasuredReason::Limit };
            sink.not_measured(1, reason);
        }
        if !is_pushed {
            self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Limit, sink);
        }
        Ok(true)
    }

    fn read_responses(
        &mut self,
        time: PacketTime,
        bytes: &mut &[u8],
        sink: &mut dyn OperationSink,
    ) -> Result<(), ResponseViolation> {
        while !bytes.is_empty() && self.session.has_messages() {
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
            self.requests.clear(NotMeasuredReason::NoResponse, sink);
            self.session.content = ConnectionContent::Unmeasurable;
        }
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

impl InOrderObserver for Http1Observer {
    fn lockstep(&mut self) -> &mut Lockstep {
        &mut self.session.lockstep
    }

    fn is_idle(&self) -> bool {
        self.requests.is_idle()
    }

    fn read_client(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        if self.session.is_lost() {
            let is_start = match self.session.is_client_known {
                true => self.client.is_between() && can_start_request(bytes),
                false => starts_request(bytes),
            };
            if self.session.resume(time, is_start) {
                self.client.reset();
                self.server.reset();
            }
        }
        let is_known = self.session.is_client_known;
        if is_known && self.read_requests(time, &mut bytes, sink).is_err() {
            self.session.reject_client();
            self.lose_position(FlowDirection::ToServer, NotMeasuredReason::Gap, sink);
        }
        if !bytes.is_empty() {
            sink.unparsed(FlowDirection::ToServer, bytes.len() as u64);
        }
    }

    fn read_server(&mut self, time: PacketTime, mut bytes: &[u8], sink: &mut dyn OperationSink) {
        self.session.is_new = false;
        if !self.session.is_lost() {
            match self.read_responses(time, &mut bytes, sink) {
                Ok(()) => {}
                Err(ResponseViolation::Bytes) => {
                    self.lose_position(FlowDirection::ToClient, NotMeasuredReason::Gap, sink);
                }
                Err(ResponseViolation::NoRequest) => {
                    self.requests.clear(NotMeasuredReason::Gap, sink);
                    self.session.lockstep.lose_by_response();
                }
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
    }
}

impl ConnectionObserver for Http1Observer {
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
        let is_lost = self.session.is_lost();
        let side = match direction {
            FlowDirection::ToServer => &mut self.client,
            FlowDirection::ToClient => &mut self.server,
        };
        let is_known = side.body.as_mut().is_some_and(|body| body.skip(missing));
        let request = match direction {
            FlowDirection::ToServer => self.requests.back(),
            FlowDirection::ToClient => self.requests.front(),
        };
        match (direction, request) {
            (FlowDirection::ToServer, Some(request)) if is_known => {
                request.request_bytes += missing
            }
            (FlowDirection::ToClient, Some(request)) if is_known && !is_lost => {
                request.response_bytes += missing;
            }
            _ => {}
        }
        if direction == FlowDirection::ToServer {
            self.session.is_client_known &= is_known;
        }
        if !is_known || direction == FlowDirection::ToClient && is_lost {
            self.lose_position(direction, NotMeasuredReason::Gap, sink);
        }
    }

    fn end(&mut self, sink: &mut dyn OperationSink) {
        // A body without a length ends with the connection.
        let is_until_closed = self.server.body.as_ref().is_some_and(BodyParser::is_until_closed);
        if is_until_closed && let Some(request) = self.requests.front() {
            request.is_response_complete = true;
            while self.requests.finish(sink) {}
        }
        self.requests.clear(NotMeasuredReason::ConnectionEnd, sink);
    }

    fn abandon(&mut self, sink: &mut dyn OperationSink) {
        self.requests.clear(NotMeasuredReason::ConnectionEnd, sink);
    }

    fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    fn state(&self) -> ObserverState {
        self.session.state()
    }

    fn memory(&self) -> usize {
        self.client.memory() + self.server.memory() + self.requests.memory()
    }
}
