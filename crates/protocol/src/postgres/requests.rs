//! Requests of a connection in their order, until their responses are complete.

use std::collections::VecDeque;
use std::sync::Arc;

use super::prepared_statements::BoundStatement;
use crate::fingerprint::{SqlDialect, split_statement, traceparent_of_comment};
use crate::observer::statement_queue::{StatementQueue, StatementRef};
use crate::observer::{
    NotMeasuredReason, ObservedRequest, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// Maximum number of requests in flight. A pipeline of a driver has some hundreds.
const REQUESTS_MAX: usize = 4096;
/// Capacity that is kept while no request is in flight.
const IDLE_REQUESTS_MAX: usize = 16;

/// Requests in flight.
#[derive(Debug, Default)]
pub(super) struct PostgresRequests {
    queue: VecDeque<PostgresRequest>,
    texts: StatementQueue,
}

/// A request in flight.
#[derive(Debug)]
pub(super) struct PostgresRequest {
    pub(super) kind: PostgresRequestKind,
    /// Whether its operation is still to be reported. Otherwise it was counted as not measured, or
    /// is no operation.
    pub(super) awaits_report: bool,
    pub(super) statement: PostgresStatement,
    pub(super) request_start: PacketTime,
    pub(super) request_end: PacketTime,
    pub(super) request_bytes: u64,
    /// First byte of the response; 0 before it.
    pub(super) response_start: PacketTime,
    /// Last byte of the response so far.
    pub(super) response_end: PacketTime,
    pub(super) response_bytes: u64,
    pub(super) rows: u64,
    /// Messages of the request that are not answered: Parse, Bind, Describe, Close.
    pub(super) unanswered: u32,
    /// Whether the client has asked for the responses of an incomplete request.
    pub(super) is_flushed: bool,
    /// SQLSTATE class of an error that the end of the response reports.
    pub(super) error: Option<[u8; 2]>,
}

/// Kind of a request, which decides which messages answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostgresRequestKind {
    /// From the startup message to the first ReadyForQuery.
    Startup,
    /// A Query message, whose statements are answered one by one.
    Query,
    /// The last statement of a Query message is answered.
    QueryEnd,
    /// Messages of the extended protocol without Execute or Sync yet; named by the first.
    Open(&'static str),
    /// Messages up to an Execute.
    Execute,
    /// Messages up to a Sync, without an Execute between two Syncs.
    SyncWithoutExecute(&'static str),
    /// A Sync after an Execute: no operation.
    Sync,
    FunctionCall,
    /// A FunctionCall that is answered.
    FunctionCallEnd,
}

/// Statement of a request.
#[derive(Clone, Debug)]
pub(super) enum PostgresStatement {
    Unknown,
    Queued(StatementRef),
    Prepared(Arc<str>),
}

impl PostgresRequest {
    pub(super) fn new(kind: PostgresRequestKind, start: PacketTime) -> PostgresRequest {
        PostgresRequest {
            kind,
            awaits_report: true,
            statement: PostgresStatement::Unknown,
            request_start: start,
            request_end: start,
            request_bytes: 0,
            response_start: 0,
            response_end: 0,
            response_bytes: 0,
            rows: 0,
            unanswered: 0,
            is_flushed: false,
            error: None,
        }
    }

    /// Adds a message of the request.
    pub(super) fn add(&mut self, size: u64, end: PacketTime) {
        self.request_bytes += size;
        self.request_end = end;
    }

    fn verb(&self) -> &'static str {
        match self.kind {
            PostgresRequestKind::Startup => "Startup",
            PostgresRequestKind::Query | PostgresRequestKind::QueryEnd => "Query",
            PostgresRequestKind::Execute => "Execute",
            PostgresRequestKind::Sync => "Sync",
            PostgresRequestKind::Open(verb) | PostgresRequestKind::SyncWithoutExecute(verb) => verb,
            PostgresRequestKind::FunctionCall | PostgresRequestKind::FunctionCallEnd => {
                "FunctionCall"
            }
        }
    }

    /// Whether it is a request whose operation is not reported.
    fn is_pending(&self) -> bool {
        use PostgresRequestKind::{FunctionCallEnd, QueryEnd, Sync};
        self.awaits_report && !matches!(self.kind, QueryEnd | Sync | FunctionCallEnd)
    }
}

impl PostgresRequests {
    /// Adds a request. Returns `false` if too many are in flight.
    pub(super) fn push(&mut self, request: PostgresRequest) -> bool {
        if self.queue.len() == REQUESTS_MAX {
            return false;
        }
        self.queue.push_back(request);
        true
    }

    /// Adds a text for a request that follows.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Option<PostgresStatement> {
        self.texts.push(text).map(PostgresStatement::Queued)
    }

    /// Statement of a portal, for a request that follows.
    pub(super) fn push_bound(
        &mut self,
        bound: BoundStatement,
        unnamed: &[u8],
    ) -> Option<PostgresStatement> {
        match bound {
            BoundStatement::Unknown => Some(PostgresStatement::Unknown),
            BoundStatement::Unnamed => self.push_text(unnamed),
            BoundStatement::Named(text) => Some(PostgresStatement::Prepared(text)),
        }
    }

    pub(super) fn front(&mut self) -> Option<&mut PostgresRequest> {
        self.queue.front_mut()
    }

    pub(super) fn back(&mut self) -> Option<&mut PostgresRequest> {
        self.queue.back_mut()
    }

    /// Whether the server has nothing to do: the only request is incomplete.
    pub(super) fn is_idle(&self) -> bool {
        match self.queue.front() {
            None => true,
            Some(request) => {
                matches!(request.kind, PostgresRequestKind::Open(_) | PostgresRequestKind::Startup)
            }
        }
    }

    /// Reports the first request, whose response ends now. The request stays.
    pub(super) fn report_front(
        &mut self,
        outcome: OperationOutcome<'_>,
        rows: Option<u64>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) {
        let Some(request) = self.queue.front().filter(|request| request.awaits_report) else {
            return;
        };
        let statement = match &request.statement {
            PostgresStatement::Unknown => "",
            PostgresStatement::Queued(text) => self.texts.get(*text),
            PostgresStatement::Prepared(text) => text,
        };
        let statement = match request.kind {
            PostgresRequestKind::Query => first_statement(statement),
            _ => statement,
        };
        sink.operation(&Operation {
            verb: request.verb(),
            statement,
            syntax: StatementSyntax::Sql,
            is_wait: false,
            outcome,
            request_start: request.request_start,
            request_end: request.request_end,
            response_start: if request.response_start == 0 { end } else { request.response_start },
            response_end: end,
            request_bytes: request.request_bytes,
            response_bytes: request.response_bytes,
            rows: rows.or((request.rows > 0).then_some(request.rows)),
            traceparent: traceparent_of_comment(statement),
        });
    }

    /// The first statement of the Query message at the front is answered: the rest of the message
    /// is a request from now on. Without a rest, only ReadyForQuery follows.
    pub(super) fn next_statement(&mut self, now: PacketTime) {
        let Some(request) = self.queue.front_mut() else { return };
        request.request_start = now;
        request.request_end = now;
        (request.request_bytes, request.response_bytes, request.rows) = (0, 0, 0);
        (request.response_start, request.response_end) = (0, 0);
        let PostgresStatement::Queued(text) = request.statement else { return };
        let all = self.texts.get(text);
        let (_, rest) = split_statement(all, SqlDialect::Postgres);
        request.statement = PostgresStatement::Queued(text.without_start(all.len() - rest.len()));
        if first_statement(rest).is_empty() {
            request.kind = PostgresRequestKind::QueryEnd;
        }
    }

    /// Removes the first request.
    pub(super) fn pop(&mut self) -> Option<PostgresRequest> {
        let request = self.queue.pop_front()?;
        if let PostgresStatement::Queued(text) = request.statement {
            self.texts.release(text);
        }
        if self.queue.is_empty() && self.queue.capacity() > IDLE_REQUESTS_MAX {
            self.queue.shrink_to(IDLE_REQUESTS_MAX);
        }
        Some(request)
    }

    /// Removes the Sync after the first request, which the server ignores.
    pub(super) fn remove_second_sync(&mut self) -> bool {
        let is_sync = |one: &PostgresRequest| one.kind == PostgresRequestKind::Sync;
        let found = self.queue.get(1).is_some_and(is_sync);
        if found {
            self.queue.remove(1);
        }
        found
    }

    /// Removes all requests. Those that await a report are reported as not measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        let count = self.queue.iter().filter(|request| request.is_pending()).count();
        if count > 0 {
            sink.not_measured(count as u64, reason);
        }
        self.queue.clear();
        self.queue.shrink_to(IDLE_REQUESTS_MAX);
        self.texts.clear();
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in self.queue.iter().filter(|request| request.is_pending()) {
            let statement = match &request.statement {
                PostgresStatement::Unknown => "",
                PostgresStatement::Queued(text) => self.texts.get(*text),
                PostgresStatement::Prepared(text) => text,
            };
            each(ObservedRequest {
                verb: request.verb(),
                statement: match request.kind {
                    PostgresRequestKind::Query => first_statement(statement),
                    _ => statement,
                },
                syntax: StatementSyntax::Sql,
                is_wait: false,
                since: request.request_start,
            });
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<PostgresRequest>() + self.texts.memory()
    }
}

/// The first of several statements.
fn first_statement(text: &str) -> &str {
    split_statement(text, SqlDialect::Postgres).0
}
