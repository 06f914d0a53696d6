//! Pairs messages of both directions: requests of the client. [`super::responses`] has the other
//! direction.
//!
//! Each Sync, Query and FunctionCall is answered by exactly one ReadyForQuery, however many are in
//! flight. Parse, Bind, Describe and Close each have one answer, and an Execute is complete with
//! CommandComplete, EmptyQueryResponse, PortalSuspended or ErrorResponse. A message that cannot
//! answer the first request shows that messages are missing.

use std::ffi::CStr;

use super::message_reader::PostgresMessage;
use super::prepared_statements::PreparedStatements;
use super::requests::{PostgresRequest, PostgresRequestKind, PostgresRequests, PostgresStatement};
use crate::observer::{
    NotMeasuredReason, ObservedRequest, OperationOutcome, OperationSink, PacketTime,
};

/// Requests of a connection, and the state that later requests refer to.
#[derive(Debug, Default)]
pub(super) struct PostgresExchanges {
    pub(super) requests: PostgresRequests,
    pub(super) prepared: PreparedStatements,
    /// Operations since the last Sync.
    pub(super) pipeline_operations: u32,
    /// Whether the server ignores messages up to the next Sync.
    pub(super) is_pipeline_aborted: bool,
    /// Whether the request that starts with the last messages was counted as not measured.
    pub(super) is_open_counted: bool,
    /// Whether the server reads rows (COPY FROM STDIN).
    pub(super) is_copy_in: bool,
    awaits_report: bool,
    is_paired: bool,
}

impl PostgresExchanges {
    /// Whether requests of the next messages are measured, and whether responses follow.
    pub(super) fn set_mode(&mut self, awaits_report: bool, is_paired: bool) {
        (self.awaits_report, self.is_paired) = (awaits_report, is_paired);
    }

    /// The startup message has ended.
    pub(super) fn start(&mut self, start: PacketTime, end: PacketTime, size: u64) {
        let mut request = PostgresRequest::new(PostgresRequestKind::Startup, start);
        request.add(size, end);
        self.requests.push(request);
    }

    /// Continues where nothing is in flight.
    pub(super) fn resume(&mut self) {
        (self.pipeline_operations, self.is_pipeline_aborted) = (0, false);
        (self.is_open_counted, self.is_copy_in) = (false, false);
    }

    /// Whether the server has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.is_copy_in || self.requests.is_idle()
    }

    /// Removes all requests, and counts those that were to be measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        let is_open_measured = |request: &mut PostgresRequest| {
            matches!(request.kind, PostgresRequestKind::Open(_)) && request.awaits_report
        };
        self.is_open_counted |= self.requests.back().is_some_and(is_open_measured);
        self.requests.clear(reason, sink);
        self.is_copy_in = false;
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    pub(super) fn memory(&self) -> usize {
        self.requests.memory() + self.prepared.memory()
    }

    /// Handles a message of the client. Returns `false` if more requests are in flight than are
    /// retained; then none of them can be measured.
    pub(super) fn client_message(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        let is_complete = self.add_client_message(message, end, sink);
        let is_request = match message.kind {
            b'Q' | b'F' => true,
            b'E' => self.open_request().is_none(),
            _ => false,
        };
        if !is_complete && is_request && self.awaits_report {
            self.count(NotMeasuredReason::Limit, sink);
        }
        is_complete
    }

    fn add_client_message(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        match message.kind {
            b'Q' => {
                let text = first_string(message.body).0;
                let Some(statement) = self.text(text) else { return false };
                let mut request = self.request(PostgresRequestKind::Query, message.start);
                request.statement = statement;
                request.add(message.size, end);
                (self.pipeline_operations, self.is_pipeline_aborted) = (0, false);
                self.push(request, sink)
            }
            b'F' => {
                let mut request = self.request(PostgresRequestKind::FunctionCall, message.start);
                request.add(message.size, end);
                self.push(request, sink)
            }
            b'P' | b'B' | b'D' | b'C' | b'H' | b'E' if self.is_pipeline_aborted => {
                if message.kind == b'E' && self.is_paired {
                    self.count(NotMeasuredReason::NoResponse, sink);
                }
                true
            }
            b'P' | b'B' | b'D' | b'C' => {
                self.prepare(message);
                self.add_to_open(message, end, sink)
            }
            b'H' => {
                if let Some(request) = self.open_request() {
                    request.add(message.size, end);
                    request.is_flushed = true;
                }
                true
            }
            b'E' => self.execute(message, end, sink),
            b'S' => self.is_copy_in || self.sync(message, end, sink),
            b'c' | b'd' | b'f' => {
                self.copy(message, end);
                true
            }
            b'p' => {
                if let Some(request) = self.requests.front()
                    && request.kind == PostgresRequestKind::Startup
                {
                    request.add(message.size, end);
                    (request.response_start, request.unanswered) = (0, 0);
                }
                true
            }
            _ => true,
        }
    }

    /// Remembers names of statements and portals.
    fn prepare(&mut self, message: &PostgresMessage<'_>) {
        let (first, rest) = first_string(message.body);
        match message.kind {
            b'P' => self.prepared.parse(first, first_string(rest).0),
            b'B' => self.prepared.bind(first, first_string(rest).0),
            b'C' => match first.split_first() {
                Some((b'S', name)) => self.prepared.close_statement(name),
                Some((b'P', name)) => self.prepared.close_portal(name),
                _ => {}
            },
            _ => {}
        }
    }

    /// Adds a message to a request that an Execute or Sync will complete.
    fn add_to_open(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        if !self.is_paired {
            return true;
        }
        self.report_flushed(sink);
        let verb = match message.kind {
            b'P' => "Parse",
            b'B' => "Bind",
            b'D' => "Describe",
            _ => "Close",
        };
        if self.open_request().is_none() {
            let mut request = self.request(PostgresRequestKind::Open(verb), message.start);
            // After an Execute, it may be no operation.
            request.awaits_report &= self.pipeline_operations == 0;
            if !self.requests.push(request) {
                return false;
            }
        }
        if let Some(request) = self.open_request() {
            request.add(message.size, end);
            request.unanswered += 1;
            request.is_flushed = false;
        }
        true
    }

    /// A client that has asked for the responses with a Flush, and has them, continues: what it has
    /// sent so far is an operation.
    fn report_flushed(&mut self, sink: &mut dyn OperationSink) {
        let Some(request) = self.requests.front() else { return };
        if let PostgresRequestKind::Open(verb) = request.kind
            && request.unanswered == 0
            && request.is_flushed
        {
            request.kind = PostgresRequestKind::SyncWithoutExecute(verb);
            let (end, awaits_report) = (request.response_end, request.awaits_report);
            if awaits_report {
                self.requests.report_front(OperationOutcome::Ok, None, end, sink);
            } else if self.pipeline_operations == 0 {
                self.count(NotMeasuredReason::Gap, sink);
            }
            self.requests.pop();
            self.pipeline_operations += 1;
        }
    }

    fn execute(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        if !self.is_paired {
            self.pipeline_operations += 1;
            if !std::mem::take(&mut self.is_open_counted) {
                self.count(NotMeasuredReason::Gap, sink);
            }
            return true;
        }
        self.report_flushed(sink);
        let bound = self.prepared.bound(first_string(message.body).0);
        let Some(statement) = self.requests.push_bound(bound, self.prepared.unnamed()) else {
            return false;
        };
        self.pipeline_operations += 1;
        let awaits_report = self.awaits_report;
        let is_new = self.open_request().is_none();
        if is_new {
            let request = self.request(PostgresRequestKind::Execute, message.start);
            if !self.requests.push(request) {
                return false;
            }
        }
        let Some(request) = self.requests.back() else { return false };
        request.kind = PostgresRequestKind::Execute;
        request.awaits_report = awaits_report;
        request.statement = statement;
        request.add(message.size, end);
        if !awaits_report {
            self.count(NotMeasuredReason::Gap, sink);
        }
        true
    }

    fn sync(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        let has_operation = std::mem::take(&mut self.pipeline_operations) > 0;
        let was_counted = std::mem::take(&mut self.is_open_counted);
        self.is_pipeline_aborted = false;
        if !self.is_paired {
            if !has_operation && !was_counted {
                self.count(NotMeasuredReason::Gap, sink);
            }
            return true;
        }
        if self.open_request().is_none() {
            let request = self.request(PostgresRequestKind::Open("Sync"), message.start);
            if !self.requests.push(request) {
                return false;
            }
        }
        let awaits_report = self.awaits_report;
        let Some(request) = self.requests.back() else { return false };
        request.kind = match request.kind {
            PostgresRequestKind::Open(verb) if !has_operation => {
                PostgresRequestKind::SyncWithoutExecute(verb)
            }
            _ => PostgresRequestKind::Sync,
        };
        request.awaits_report = awaits_report;
        request.add(message.size, end);
        if !awaits_report && !has_operation {
            self.count(NotMeasuredReason::Gap, sink);
        }
        true
    }

    /// Rows that the client sends belong to the request that the server executes.
    fn copy(&mut self, message: &PostgresMessage<'_>, end: PacketTime) {
        if !self.is_copy_in {
            // After an error, or without the server's request: a Sync that follows belongs to the
            // request before.
            self.pipeline_operations = 1;
            return;
        }
        if let Some(request) = self.requests.front() {
            request.add(message.size, end);
            request.response_start = 0;
        }
        self.is_copy_in = message.kind == b'd';
    }

    fn text(&mut self, text: &[u8]) -> Option<PostgresStatement> {
        if self.is_paired {
            self.requests.push_text(text)
        } else {
            Some(PostgresStatement::Unknown)
        }
    }

    fn request(&self, kind: PostgresRequestKind, start: PacketTime) -> PostgresRequest {
        let mut request = PostgresRequest::new(kind, start);
        request.awaits_report = self.awaits_report;
        request
    }

    /// Adds a complete request, or counts it.
    fn push(&mut self, request: PostgresRequest, sink: &mut dyn OperationSink) -> bool {
        if !self.awaits_report {
            self.count(NotMeasuredReason::Gap, sink);
        }
        !self.is_paired || self.requests.push(request)
    }

    fn count(&self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        sink.not_measured(1, reason);
    }

    /// The last request, if it is incomplete.
    fn open_request(&mut self) -> Option<&mut PostgresRequest> {
        let is_open =
            |request: &&mut PostgresRequest| matches!(request.kind, PostgresRequestKind::Open(_));
        self.requests.back().filter(is_open)
    }
}

/// A string up to its zero byte, and the bytes after it.
pub(super) fn first_string(bytes: &[u8]) -> (&[u8], &[u8]) {
    // Faster than a search byte by byte: statements have up to 16 KiB.
    match CStr::from_bytes_until_nul(bytes) {
        Ok(text) => (text.to_bytes(), &bytes[text.count_bytes() + 1..]),
        Err(_) => (bytes, &[]),
    }
}
