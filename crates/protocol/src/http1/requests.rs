//! Requests of a connection in their order, until their responses are complete.

use std::collections::VecDeque;

use super::observed_heads::ObservedRequestHead;
use crate::observer::statement_queue::{StatementQueue, StatementRef};
use crate::observer::{
    NotMeasuredReason, ObservedRequest, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// Maximum number of requests in flight: pipelines of clients have some tens.
const REQUESTS_MAX: usize = 1024;
/// Capacity that is kept while no request is in flight.
const IDLE_REQUESTS_MAX: usize = 4;

/// Requests in flight.
#[derive(Debug, Default)]
pub(super) struct Http1Requests {
    queue: VecDeque<Http1PendingRequest>,
    texts: StatementQueue,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct Http1PendingRequest {
    pub(super) method: &'static str,
    path: StatementRef,
    traceparent: Option<[u8; 55]>,
    /// Whether it is measured. Otherwise it was counted.
    pub(super) is_measured: bool,
    /// Whether its last byte was seen.
    pub(super) is_complete: bool,
    pub(super) request_start: PacketTime,
    pub(super) request_end: PacketTime,
    pub(super) request_bytes: u64,
    /// First byte of the response; 0 before it.
    pub(super) response_start: PacketTime,
    pub(super) response_end: PacketTime,
    pub(super) response_bytes: u64,
    /// Status of the response, once its head is complete; 0 before.
    pub(super) status: u16,
    pub(super) is_response_complete: bool,
    pub(super) is_event_stream: bool,
}

impl Http1Requests {
    /// Adds a request whose head is complete. Returns `false` if too many are in flight.
    pub(super) fn push(
        &mut self,
        head: &ObservedRequestHead<'_>,
        is_measured: bool,
        (start, end): (PacketTime, PacketTime),
        size: u64,
    ) -> bool {
        if self.queue.len() == REQUESTS_MAX {
            return false;
        }
        let Some(path) = self.texts.push(head.path.as_bytes()) else { return false };
        self.queue.push_back(Http1PendingRequest {
            method: head.method,
            path,
            traceparent: head.traceparent,
            is_measured,
            is_complete: false,
            request_start: start,
            request_end: end,
            request_bytes: size,
            response_start: 0,
            response_end: 0,
            response_bytes: 0,
            status: 0,
            is_response_complete: false,
            is_event_stream: false,
        });
        true
    }

    pub(super) fn front(&mut self) -> Option<&mut Http1PendingRequest> {
        self.queue.front_mut()
    }

    pub(super) fn back(&mut self) -> Option<&mut Http1PendingRequest> {
        self.queue.back_mut()
    }

    /// Whether the client may send without a window: nothing is in flight, or it has not sent the
    /// whole request.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.front().is_none_or(|request| !request.is_complete)
    }

    /// Reports and removes the first request, if it and its response are complete.
    pub(super) fn finish(&mut self, sink: &mut dyn OperationSink) -> bool {
        let is_complete =
            |request: &&Http1PendingRequest| request.is_complete && request.is_response_complete;
        let Some(request) = self.queue.front().filter(is_complete) else { return false };
        if request.is_measured {
            let class = match request.status {
                400..500 => OperationOutcome::Error("4xx"),
                500.. => OperationOutcome::Error("5xx"),
                _ => OperationOutcome::Ok,
            };
            let traceparent = request.traceparent.as_ref();
            sink.operation(&Operation {
                verb: request.method,
                statement: self.texts.get(request.path),
                syntax: StatementSyntax::Path,
                is_wait: request.is_event_stream,
                outcome: class,
                request_start: request.request_start,
                // A response may be complete before its request.
                request_end: request.request_end.min(request.response_end),
                response_start: request.response_start,
                response_end: request.response_end,
                request_bytes: request.request_bytes,
                response_bytes: request.response_bytes,
                rows: None,
                traceparent: traceparent.and_then(|text| std::str::from_utf8(text).ok()),
            });
        }
        if let Some(request) = self.queue.pop_front() {
            self.texts.release(request.path);
        }
        if self.queue.is_empty() && self.queue.capacity() > IDLE_REQUESTS_MAX {
            self.queue.shrink_to(IDLE_REQUESTS_MAX);
        }
        true
    }

    /// Removes all requests, and counts those that were to be measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        let count = self.queue.iter().filter(|request| request.is_measured).count();
        if count > 0 {
            sink.not_measured(count as u64, reason);
        }
        self.queue.clear();
        self.queue.shrink_to(IDLE_REQUESTS_MAX);
        self.texts.clear();
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in self.queue.iter().filter(|request| request.is_measured) {
            each(ObservedRequest {
                verb: request.method,
                statement: self.texts.get(request.path),
                syntax: StatementSyntax::Path,
                is_wait: request.is_event_stream,
                since: request.request_start,
            });
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<Http1PendingRequest>() + self.texts.memory()
    }
}
