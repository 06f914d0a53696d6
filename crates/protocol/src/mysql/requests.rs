//! Commands in flight, in their order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::commands::{MysqlCommand, ResponseForm};
use crate::fingerprint::{SqlDialect, split_statement, traceparent_of_comment};
use crate::observer::statement_queue::{StatementQueue, StatementRef};
use crate::observer::{
    NotMeasuredReason, ObservedRequest, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// Maximum number of commands in flight. Few clients have more than one.
const REQUESTS_MAX: usize = 512;

/// Commands in flight.
#[derive(Debug, Default)]
pub(super) struct MysqlRequests {
    queue: VecDeque<MysqlRequest>,
    texts: StatementQueue,
}

/// A command in flight.
#[derive(Debug)]
pub(super) struct MysqlRequest {
    pub(super) command: MysqlCommand,
    pub(super) statement: MysqlStatement,
    /// Whether it is measured. Otherwise it was counted.
    pub(super) is_measured: bool,
    /// Whether all packets of the command were seen.
    pub(super) is_complete: bool,
    /// Whether it is a text of statements, each of which has results.
    pub(super) is_query: bool,
    pub(super) request_start: PacketTime,
    pub(super) request_end: PacketTime,
    pub(super) request_bytes: u64,
    /// Sequence number of the last packet of the exchange.
    pub(super) sequence: u8,
    pub(super) position: ResponsePosition,
    /// First byte of the response; 0 before it.
    pub(super) response_start: PacketTime,
    pub(super) response_bytes: u64,
    pub(super) rows: Option<u64>,
}

/// Statement of a command.
#[derive(Clone, Debug)]
pub(super) enum MysqlStatement {
    Unknown,
    Queued(StatementRef),
    Prepared(Arc<str>),
}

/// Position in the response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponsePosition {
    First,
    /// Definitions of columns that are left.
    Columns(u64),
    /// After the definitions: EOF, or the first row.
    FirstRow,
    Rows,
    /// Definitions of parameters and columns that are left, and an EOF after each group.
    Prepared {
        parameters: u16,
        columns: u16,
        needs_eof: bool,
    },
    /// The client sends a file.
    File,
}

impl MysqlRequest {
    /// Whether it is a Prepare whose definitions are complete; an EOF may follow.
    pub(super) fn has_all_definitions(&self) -> bool {
        self.position == ResponsePosition::Prepared { parameters: 0, columns: 0, needs_eof: false }
    }
}

impl MysqlRequests {
    /// Adds a command. Returns `false` if too many are in flight.
    pub(super) fn push(&mut self, request: MysqlRequest) -> bool {
        if self.queue.len() == REQUESTS_MAX {
            return false;
        }
        self.queue.push_back(request);
        true
    }

    /// Adds a text for a command that follows.
    pub(super) fn push_text(&mut self, text: &[u8]) -> Option<MysqlStatement> {
        self.texts.push(text).map(MysqlStatement::Queued)
    }

    pub(super) fn front(&mut self) -> Option<&mut MysqlRequest> {
        self.queue.front_mut()
    }

    pub(super) fn back(&mut self) -> Option<&mut MysqlRequest> {
        self.queue.back_mut()
    }

    /// Text of the first command.
    pub(super) fn front_text(&self) -> &str {
        self.queue.front().map_or("", |request| self.text(request))
    }

    /// Whether the server has nothing to do: there is no command, or it waits for the client.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.front().is_none_or(|request| {
            request.position == ResponsePosition::File
                || !request.is_complete
                || request.has_all_definitions()
                || request.command.response == ResponseForm::Authentication
        })
    }

    /// Reports the first command, or the first statement of it. `is_last`: whether the server has
    /// executed all of its text.
    pub(super) fn report_front(
        &mut self,
        outcome: OperationOutcome<'_>,
        is_last: bool,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) {
        let Some(request) = self.queue.front().filter(|request| request.is_measured) else {
            return;
        };
        let statement = match is_last {
            // It is one statement with semicolons in its body (CREATE PROCEDURE).
            true => self.text(request).trim_ascii().trim_end_matches(';'),
            false => self.first_statement(request),
        };
        sink.operation(&Operation {
            verb: request.command.name,
            statement,
            syntax: StatementSyntax::Sql,
            is_wait: false,
            outcome,
            request_start: request.request_start,
            request_end: request.request_end,
            response_start: request.response_start,
            response_end: end,
            request_bytes: request.request_bytes,
            response_bytes: request.response_bytes,
            rows: request.rows,
            traceparent: traceparent_of_comment(statement),
        });
    }

    /// Whether the text of the first command has statements after the one that has just ended.
    pub(super) fn has_next_statement(&self) -> bool {
        let Some(request) = self.queue.front().filter(|request| request.is_query) else {
            return false;
        };
        let (_, rest) = split_statement(self.text(request), SqlDialect::Mysql);
        !split_statement(rest, SqlDialect::Mysql).0.is_empty()
    }

    /// The rest of the text of the first command is a command from now on.
    pub(super) fn next_statement(&mut self, now: PacketTime) {
        let Some(request) = self.queue.front_mut() else { return };
        (request.request_start, request.request_end) = (now, now);
        (request.request_bytes, request.response_bytes) = (0, 0);
        (request.response_start, request.rows) = (0, None);
        if let MysqlStatement::Queued(text) = request.statement {
            let all = self.texts.get(text);
            let (_, rest) = split_statement(all, SqlDialect::Mysql);
            request.statement = MysqlStatement::Queued(text.without_start(all.len() - rest.len()));
        }
    }

    /// Removes the first command.
    pub(super) fn pop(&mut self) {
        if let Some(MysqlRequest { statement: MysqlStatement::Queued(text), .. }) =
            self.queue.pop_front()
        {
            self.texts.release(text);
        }
    }

    /// Removes all commands, and counts those that were to be measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        let count = self.queue.iter().filter(|request| request.is_measured).count();
        if count > 0 {
            sink.not_measured(count as u64, reason);
        }
        self.queue.clear();
        self.queue.shrink_to(1);
        self.texts.clear();
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        for request in self.queue.iter().filter(|request| request.is_measured) {
            each(ObservedRequest {
                verb: request.command.name,
                statement: self.first_statement(request),
                syntax: StatementSyntax::Sql,
                is_wait: false,
                since: request.request_start,
            });
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<MysqlRequest>() + self.texts.memory()
    }

    fn text<'a>(&'a self, request: &'a MysqlRequest) -> &'a str {
        match &request.statement {
            MysqlStatement::Unknown => "",
            MysqlStatement::Queued(text) => self.texts.get(*text),
            MysqlStatement::Prepared(text) => text,
        }
    }

    fn first_statement<'a>(&'a self, request: &'a MysqlRequest) -> &'a str {
        let text = self.text(request);
        if request.is_query { split_statement(text, SqlDialect::Mysql).0 } else { text }
    }
}
