//! Pairs packets of both directions.
//!
//! The sequence number of each packet must follow that of the exchange: another number shows that
//! packets are missing.

use super::commands::{
    BULK_EXECUTE, CHANGE_USER, CLOSE, EXECUTE, FETCH, MysqlCommand, PREPARE, QUERY,
    RESET_CONNECTION, ResponseForm,
};
use super::frames::MysqlFrame;
use super::packets::{
    CURSOR_EXISTS, MORE_RESULTS, ResultEnd, error_class, is_eof, parse_column_count, parse_ok,
    parse_prepared, parse_rows_end,
};
use super::requests::{MysqlRequest, MysqlRequests, MysqlStatement, ResponsePosition as Position};
use super::statements::MysqlStatements;
use crate::observer::{
    NotMeasuredReason, ObservedRequest, OperationOutcome, OperationSink, PacketTime,
};

/// Commands of a connection, and the state that later commands refer to.
#[derive(Debug, Default)]
pub(super) struct MysqlExchanges {
    requests: MysqlRequests,
    statements: MysqlStatements,
    /// Whether the connection omits EOF after definitions; `None` until it is known.
    omits_eof: Option<bool>,
}

/// How a packet fits to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketFit {
    Expected,
    /// The login has ended.
    LoggedIn,
    /// Packets before it are missing.
    Unexpected,
    /// More commands are in flight than are retained.
    Limit,
    /// A stream follows.
    Stream,
}

impl MysqlExchanges {
    /// The client has sent its login.
    pub(super) fn start_login(&mut self, frame: &MysqlFrame<'_>, end: PacketTime, omits_eof: bool) {
        self.omits_eof = Some(omits_eof);
        let request = request(MysqlCommand::CONNECT, frame, end);
        self.requests.push(request);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_idle()
    }

    /// Removes all commands, and counts those that were to be measured.
    pub(super) fn clear(&mut self, reason: NotMeasuredReason, sink: &mut dyn OperationSink) {
        self.requests.clear(reason, sink);
    }

    pub(super) fn in_flight(&self, each: &mut dyn FnMut(ObservedRequest<'_>)) {
        self.requests.in_flight(each);
    }

    pub(super) fn memory(&self) -> usize {
        self.requests.memory() + self.statements.memory()
    }

    /// Handles a packet of the client. `is_paired`: whether responses follow.
    pub(super) fn client_packet(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        (is_measured, is_paired): (bool, bool),
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        // Only with unknown EOF, it is still there.
        if self.requests.front().is_some_and(|request| request.has_all_definitions()) {
            self.requests.pop();
        }
        if frame.is_continuation || frame.sequence != 0 {
            return self.continue_command(frame, end, is_paired);
        }
        let Some(command) = frame.payload.first().and_then(|first| MysqlCommand::new(*first))
        else {
            return PacketFit::Unexpected;
        };
        let first = frame.payload[0];
        let id = frame.payload.get(1..5).and_then(|id| id.first_chunk());
        let id = id.map_or(u32::MAX, |id| u32::from_le_bytes(*id));
        match (first, command.response) {
            (CLOSE, _) => self.statements.close(id),
            (CHANGE_USER | RESET_CONNECTION, _) => self.statements.clear(),
            (_, ResponseForm::Stream) => {
                let reason = if is_measured {
                    NotMeasuredReason::NoResponse
                } else {
                    NotMeasuredReason::Gap
                };
                sink.not_measured(1, reason);
                return PacketFit::Stream;
            }
            _ => {}
        }
        if command.response == ResponseForm::None {
            return PacketFit::Expected;
        }
        if !is_measured {
            sink.not_measured(1, NotMeasuredReason::Gap);
        }
        if !is_paired {
            return PacketFit::Expected;
        }
        let statement = match first {
            QUERY => self.requests.push_text(query_text(&frame.payload[1..])),
            PREPARE => self.requests.push_text(&frame.payload[1..]),
            EXECUTE | BULK_EXECUTE | FETCH => Some(match self.statements.get(id) {
                Some(text) => MysqlStatement::Prepared(text),
                None => MysqlStatement::Unknown,
            }),
            _ => Some(MysqlStatement::Unknown),
        };
        let mut request = request(command, frame, end);
        (request.is_measured, request.is_query) = (is_measured, first == QUERY);
        request.is_complete = !frame.is_continued;
        let is_pushed = statement.is_some_and(|statement| {
            request.statement = statement;
            self.requests.push(request)
        });
        if is_pushed {
            return PacketFit::Expected;
        }
        if is_measured {
            sink.not_measured(1, NotMeasuredReason::Limit);
        }
        PacketFit::Limit
    }

    /// The rest of a long command, a message of the authentication, or a part of a file.
    fn continue_command(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        is_paired: bool,
    ) -> PacketFit {
        let request = match frame.is_continuation {
            true => self.requests.back(),
            false => self.requests.front(),
        };
        let Some(request) = request.filter(|_| is_paired) else {
            return if is_paired { PacketFit::Unexpected } else { PacketFit::Expected };
        };
        let is_file = request.position == Position::File;
        let is_login = request.command.response == ResponseForm::Authentication;
        if frame.sequence != request.sequence.wrapping_add(1)
            || !(is_file || is_login || frame.is_continuation)
        {
            return PacketFit::Unexpected;
        }
        request.sequence = frame.sequence;
        request.request_bytes += frame.size;
        request.request_end = end;
        request.response_start = 0;
        request.is_complete = !frame.is_continued;
        if is_file && frame.length == 0 && !frame.is_continuation {
            request.position = Position::First;
        }
        PacketFit::Expected
    }

    /// Handles a packet of the server.
    pub(super) fn server_packet(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let first = frame.payload.first().copied();
        let Some(request) = self.requests.front() else {
            // The server ends the connection: a timeout, a shutdown.
            let is_error = first == Some(0xff);
            return if is_error { PacketFit::Expected } else { PacketFit::Unexpected };
        };
        if frame.sequence != request.sequence.wrapping_add(1)
            || !request.is_complete
            || frame.start < request.request_start
        {
            return PacketFit::Unexpected;
        }
        request.sequence = frame.sequence;
        request.response_bytes += frame.size;
        if frame.is_continuation {
            return PacketFit::Expected;
        }
        if first == Some(0xff) {
            return self.fail(frame, end, sink);
        }
        if request.response_start == 0 {
            request.response_start = frame.start;
        }
        match request.position {
            Position::First => return self.first_packet(frame, end, sink),
            Position::Columns(left) => {
                if !is_definition(frame) {
                    return PacketFit::Unexpected;
                }
                request.position = match left {
                    1 => Position::FirstRow,
                    left => Position::Columns(left - 1),
                };
            }
            Position::FirstRow if is_eof(frame.payload, frame.length) => {
                self.omits_eof = Some(false);
                request.position = Position::Rows;
                if let Some(eof) = parse_rows_end(frame.payload, frame.length)
                    && eof.status & CURSOR_EXISTS != 0
                {
                    return self.end_result(eof, end, sink);
                }
            }
            Position::FirstRow => {
                self.omits_eof = Some(true);
                request.position = Position::Rows;
                return self.row(frame, end, sink);
            }
            Position::Rows => return self.row(frame, end, sink),
            Position::Prepared { .. } => return self.definition(frame, end, sink),
            Position::File => return PacketFit::Unexpected,
        }
        PacketFit::Expected
    }

    fn first_packet(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let Some(request) = self.requests.front() else { return PacketFit::Unexpected };
        let first = frame.payload.first().copied();
        match (request.command.response, first) {
            (ResponseForm::Results, Some(0)) => {
                let Some(ok) = parse_ok(frame.payload) else { return PacketFit::Unexpected };
                self.end_result(ok, end, sink)
            }
            (ResponseForm::Results, Some(0xfb)) => {
                request.position = Position::File;
                request.response_start = 0;
                PacketFit::Expected
            }
            (ResponseForm::Results, _) => {
                let count = parse_column_count(frame.payload, frame.length);
                let Some((count, has_definitions)) = count.filter(|count| count.0 > 0) else {
                    return PacketFit::Unexpected;
                };
                request.position = match has_definitions {
                    true => Position::Columns(count),
                    false => Position::FirstRow,
                };
                PacketFit::Expected
            }
            (ResponseForm::Rows, _) => {
                request.position = Position::Rows;
                self.row(frame, end, sink)
            }
            (ResponseForm::Definitions, _) if is_definition(frame) => PacketFit::Expected,
            (ResponseForm::Definitions, Some(0xfe)) | (ResponseForm::Single, _) => {
                self.finish(OperationOutcome::Ok, end, sink)
            }
            (ResponseForm::Prepared, _) => self.prepared(frame, end, sink),
            (ResponseForm::Authentication, Some(0)) => {
                self.finish(OperationOutcome::Ok, end, sink);
                PacketFit::LoggedIn
            }
            (ResponseForm::Authentication, Some(1 | 0xfe)) => PacketFit::Expected,
            _ => PacketFit::Unexpected,
        }
    }

    fn prepared(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let Some((id, columns, parameters)) = parse_prepared(frame.payload) else {
            return PacketFit::Unexpected;
        };
        self.statements.insert(id, self.requests.front_text());
        if (parameters, columns) == (0, 0) {
            return self.finish(OperationOutcome::Ok, end, sink);
        }
        if let Some(request) = self.requests.front() {
            // The end of the response is unknown.
            if self.omits_eof.is_none() && std::mem::take(&mut request.is_measured) {
                sink.not_measured(1, NotMeasuredReason::Gap);
            }
            request.position = Position::Prepared { parameters, columns, needs_eof: false };
        }
        PacketFit::Expected
    }

    /// A definition in the response to a Prepare, or the EOF after them.
    fn definition(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let is_eof = is_eof(frame.payload, frame.length);
        if is_eof && self.omits_eof.is_none() {
            self.omits_eof = Some(false);
            return self.end_definitions(end, sink);
        }
        let Some(request) = self.requests.front() else { return PacketFit::Unexpected };
        let Position::Prepared { mut parameters, mut columns, needs_eof } = request.position else {
            return PacketFit::Unexpected;
        };
        let is_expected = match needs_eof {
            true => is_eof,
            false => is_definition(frame) && (parameters, columns) != (0, 0),
        };
        if !is_expected {
            return PacketFit::Unexpected;
        }
        let mut is_group_end = false;
        if !needs_eof {
            let group = if parameters > 0 { &mut parameters } else { &mut columns };
            *group -= 1;
            is_group_end = *group == 0;
        }
        let needs_eof = is_group_end && self.omits_eof == Some(false);
        request.position = Position::Prepared { parameters, columns, needs_eof };
        // Without knowledge of EOF, the client's next command shows the end.
        if needs_eof || self.omits_eof.is_none() {
            return PacketFit::Expected;
        }
        self.end_definitions(end, sink)
    }

    /// All definitions of a group are complete; perhaps of the last one.
    fn end_definitions(&mut self, end: PacketTime, sink: &mut dyn OperationSink) -> PacketFit {
        let is_end = self.requests.front().is_some_and(|request| request.has_all_definitions());
        if is_end { self.finish(OperationOutcome::Ok, end, sink) } else { PacketFit::Expected }
    }

    fn row(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let Some(request) = self.requests.front() else { return PacketFit::Unexpected };
        let rows = request.rows.get_or_insert(0);
        match parse_rows_end(frame.payload, frame.length) {
            None => {
                *rows = rows.saturating_add(1);
                PacketFit::Expected
            }
            Some(rows_end) => {
                self.end_result(ResultEnd { affected_rows: 0, ..rows_end }, end, sink)
            }
        }
    }

    /// A result is complete; the status says whether another one follows. It belongs to the next
    /// statement of the text, or to the same one (CALL).
    fn end_result(
        &mut self,
        result: ResultEnd,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let Some(request) = self.requests.front() else { return PacketFit::Unexpected };
        let rows = request.rows.get_or_insert(0);
        *rows = rows.saturating_add(result.affected_rows);
        if result.status & MORE_RESULTS == 0 {
            return self.finish(OperationOutcome::Ok, end, sink);
        }
        request.position = Position::First;
        if self.requests.has_next_statement() {
            self.requests.report_front(OperationOutcome::Ok, false, end, sink);
            self.requests.next_statement(end);
        }
        PacketFit::Expected
    }

    fn fail(
        &mut self,
        frame: &MysqlFrame<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let Some(class) = error_class(frame.payload) else { return PacketFit::Expected };
        let Some(request) = self.requests.front() else { return PacketFit::Unexpected };
        if request.response_start == 0 {
            request.response_start = frame.start;
        }
        // The client has not sent all of the file, or bytes of it are missing.
        if request.position == Position::File && std::mem::take(&mut request.is_measured) {
            sink.not_measured(1, NotMeasuredReason::Gap);
        }
        self.finish(OperationOutcome::Error(std::str::from_utf8(&class).unwrap_or("HY")), end, sink)
    }

    fn finish(
        &mut self,
        outcome: OperationOutcome<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> PacketFit {
        let is_last = outcome == OperationOutcome::Ok;
        self.requests.report_front(outcome, is_last, end, sink);
        self.requests.pop();
        PacketFit::Expected
    }
}

fn request(command: MysqlCommand, frame: &MysqlFrame<'_>, end: PacketTime) -> MysqlRequest {
    MysqlRequest {
        command,
        statement: MysqlStatement::Unknown,
        is_measured: true,
        is_complete: true,
        is_query: false,
        request_start: frame.start,
        request_end: end,
        request_bytes: frame.size,
        sequence: frame.sequence,
        position: Position::First,
        response_start: 0,
        response_bytes: 0,
        rows: None,
    }
}

/// Whether a packet defines a column or parameter: its first string is the catalog, `def`.
fn is_definition(frame: &MysqlFrame<'_>) -> bool {
    frame.payload.starts_with(b"\x03def")
}

/// The text of a query. MySQL 8 clients send attributes before it, of which only an empty list is
/// read: their number, and the number of sets.
fn query_text(payload: &[u8]) -> &[u8] {
    match payload {
        [0, 1, text @ ..] => text,
        [1..=0xfa, 1, ..] => b"",
        text => text,
    }
}
