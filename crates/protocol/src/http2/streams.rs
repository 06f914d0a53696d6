//! Requests in flight by stream.

use std::collections::HashMap;

use super::hpack::HeaderName;
use crate::id_hasher::BuildIdHasher;
use crate::observer::{
    NotMeasuredReason, Operation, OperationOutcome, OperationSink, PacketTime, StatementSyntax,
};
use crate::text_pool::TextPool;

/// Requests in flight, at most. Servers allow 100 to 250 streams by default.
const REQUESTS_MAX: usize = 512;

/// Size of `traceparent` of W3C Trace Context, version 00.
const TRACEPARENT_BYTES: usize = 55;

/// A request, and what has arrived of its response.
pub(super) struct StreamExchange {
    pub(super) id: u32,
    pub(super) verb: &'static str,
    pub(super) path: String,
    has_path: bool,
    pub(super) start: PacketTime,
    end: PacketTime,
    are_headers_complete: bool,
    is_request_complete: bool,
    /// End of the response, and the error code if the server has reset the stream.
    response_end: Option<(PacketTime, Option<&'static str>)>,
    has_gap: bool,
    traceparent: Option<[u8; TRACEPARENT_BYTES]>,
    request_bytes: u64,
    response_start: Option<PacketTime>,
    response_bytes: u64,
    status: Option<u16>,
    grpc_status: Option<u8>,
}

/// Requests in flight of a connection.
#[derive(Default)]
pub(super) struct Streams {
    streams: HashMap<u32, StreamExchange, BuildIdHasher>,
    texts: TextPool,
    last_id: u32,
    /// Whether requests between the last one and the next may not have been captured.
    may_miss_requests: bool,
}

impl Streams {
    /// A frame of a request. HEADERS is the first one of a request.
    pub(super) fn request_frame(
        &mut self,
        id: u32,
        is_headers: bool,
        start: PacketTime,
        bytes: u64,
        sink: &mut dyn OperationSink,
    ) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.request_bytes += bytes;
            return;
        }
        // Ids increase; what follows the end of a request is of no interest.
        if !is_headers || id <= self.last_id || id.is_multiple_of(2) {
            return;
        }
        if std::mem::take(&mut self.may_miss_requests) && self.last_id > 0 {
            let missed = u64::from((id - self.last_id) / 2) - 1;
            if missed > 0 && missed <= REQUESTS_MAX as u64 {
                sink.not_measured(missed, NotMeasuredReason::Gap);
            }
        }
        self.last_id = id;
        if self.streams.len() == REQUESTS_MAX {
            return sink.not_measured(1, NotMeasuredReason::Limit);
        }
        let stream = StreamExchange {
            id,
            verb: "UNKNOWN",
            path: self.texts.take(),
            has_path: false,
            start,
            end: start,
            are_headers_complete: false,
            is_request_complete: false,
            response_end: None,
            has_gap: false,
            traceparent: None,
            request_bytes: bytes,
            response_start: None,
            response_bytes: 0,
            status: None,
            grpc_status: None,
        };
        self.streams.insert(id, stream);
    }

    /// Requests between the last one and the next may not be captured.
    pub(super) fn lose_requests(&mut self) {
        self.may_miss_requests = true;
        self.streams.values_mut().for_each(|one| one.has_gap |= !one.is_request_complete);
    }

    /// A frame of a response. A notice (status 1xx) is not the first byte of the response.
    pub(super) fn response_frame(&mut self, id: u32, start: PacketTime, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            // A frame that began before the request is not of its response.
            stream.has_gap |= start < stream.start;
            stream.response_start.get_or_insert(start);
            stream.response_bytes += bytes;
        }
    }

    /// Bytes of a frame were not captured.
    pub(super) fn set_gap(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.has_gap = true;
        }
    }

    /// A header of a request.
    pub(super) fn request_header(&mut self, id: u32, name: HeaderName, value: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match name {
            HeaderName::Method => stream.verb = method_name(value),
            // A request has one; a repeated one would be copied each time.
            HeaderName::Path if !stream.has_path => {
                stream.has_path = true;
                let path = value.split(|byte| *byte == b'?').next().unwrap_or_default();
                self.texts.clear(&mut stream.path);
                self.texts.push(&mut stream.path, &String::from_utf8_lossy(path));
            }
            HeaderName::Traceparent => stream.traceparent = value.try_into().ok(),
            _ => {}
        }
    }

    /// A header of a response.
    pub(super) fn response_header(&mut self, id: u32, name: HeaderName, value: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let number = std::str::from_utf8(value).ok().and_then(|value| value.parse::<u16>().ok());
        match name {
            HeaderName::Status => {
                stream.status = number;
                // What follows a notice is the response.
                if number.is_some_and(|status| (100..200).contains(&status)) {
                    stream.response_start = None;
                }
            }
            HeaderName::GrpcStatus => {
                stream.grpc_status = number.and_then(|status| u8::try_from(status).ok());
            }
            _ => {}
        }
    }

    /// The header block of a request is complete.
    pub(super) fn request_headers_end(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.are_headers_complete = true;
        }
    }

    /// A frame of a request is complete.
    pub(super) fn request_frame_end(
        &mut self,
        id: u32,
        time: PacketTime,
        is_last: bool,
        sink: &mut dyn OperationSink,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.end = time;
        stream.is_request_complete |= is_last;
        if stream.is_request_complete && stream.response_end.is_some() {
            self.finish(id, sink);
        }
    }

    /// The response is complete. It may be so before the request is.
    pub(super) fn response_end(
        &mut self,
        id: u32,
        time: PacketTime,
        error: Option<&'static str>,
        sink: &mut dyn OperationSink,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        // A reset after the response asks the client to end the request.
        let is_reset = error.is_some();
        stream.response_end.get_or_insert((time, error));
        if stream.is_request_complete || stream.has_gap || is_reset {
            self.finish(id, sink);
        }
    }

    fn finish(&mut self, id: u32, sink: &mut dyn OperationSink) {
        let Some(stream) = self.streams.remove(&id) else { return };
        let is_whole = !stream.has_gap && stream.are_headers_complete;
        match (stream.response_start, stream.response_end) {
            (Some(response_start), Some((end, error))) if is_whole => {
                sink.operation(&Operation {
                    verb: stream.verb,
                    statement: &stream.path,
                    syntax: StatementSyntax::Path,
                    is_wait: false,
                    outcome: error.map_or_else(|| stream.outcome(), OperationOutcome::Error),
                    request_start: stream.start,
                    request_end: stream.end.min(end),
                    response_start,
                    response_end: end,
                    request_bytes: stream.request_bytes,
                    response_bytes: stream.response_bytes,
                    rows: None,
                    traceparent: stream
                        .traceparent
                        .as_ref()
                        .and_then(|traceparent| std::str::from_utf8(traceparent).ok()),
                });
            }
            _ => sink.not_measured(1, NotMeasuredReason::Gap),
        }
        self.texts.put_back(stream.path);
    }

    /// The client has reset a stream, perhaps because the response came before the request ended.
    pub(super) fn cancel(&mut self, id: u32, sink: &mut dyn OperationSink) {
        if self.streams.get(&id).is_some_and(|stream| stream.response_end.is_some()) {
            return self.finish(id, sink);
        }
        if let Some(stream) = self.streams.remove(&id) {
            self.texts.put_back(stream.path);
            sink.not_measured(1, NotMeasuredReason::Cancelled);
        }
    }

    /// Removes requests with ids above `after`, and returns their number.
    pub(super) fn drain(&mut self, after: u32) -> u64 {
        let before = self.streams.len();
        let texts = &mut self.texts;
        self.streams.retain(|id, stream| {
            let stays = *id <= after;
            if !stays {
                texts.put_back(std::mem::take(&mut stream.path));
            }
            stays
        });
        (before - self.streams.len()) as u64
    }

    /// Whether a request with this id was seen.
    pub(super) fn is_known(&self, id: u32) -> bool {
        id <= self.last_id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &StreamExchange> {
        self.streams.values()
    }

    pub(super) fn memory(&self) -> usize {
        let paths: usize = self.streams.values().map(|stream| stream.path.capacity()).sum();
        self.streams.capacity() * (size_of::<(u32, StreamExchange)>() + 1)
            + paths
            + self.texts.memory()
    }
}

impl StreamExchange {
    fn outcome(&self) -> OperationOutcome<'static> {
        match (self.grpc_status, self.status) {
            (Some(0), _) => OperationOutcome::Ok,
            (Some(status), _) => OperationOutcome::Error(grpc_status_name(status)),
            (None, Some(400..=499)) => OperationOutcome::Error("4xx"),
            (None, Some(500..=599)) => OperationOutcome::Error("5xx"),
            _ => OperationOutcome::Ok,
        }
    }
}

/// Name of a method; methods are few, so that a client cannot invent names.
fn method_name(method: &[u8]) -> &'static str {
    match method {
        b"GET" => "GET",
        b"HEAD" => "HEAD",
        b"POST" => "POST",
        b"PUT" => "PUT",
        b"DELETE" => "DELETE",
        b"CONNECT" => "CONNECT",
        b"OPTIONS" => "OPTIONS",
        b"TRACE" => "TRACE",
        b"PATCH" => "PATCH",
        _ => "OTHER",
    }
}

/// Name of a status code of gRPC.
fn grpc_status_name(status: u8) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
        "UNAUTHENTICATED",
    ];
    NAMES.get(usize::from(status)).unwrap_or(&"UNKNOWN")
}
