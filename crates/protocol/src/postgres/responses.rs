//! Messages of the server: which request each one answers.

use super::exchanges::{PostgresExchanges, first_string};
use super::message_reader::PostgresMessage;
use super::requests::{PostgresRequest, PostgresRequestKind as Kind};
use crate::observer::{NotMeasuredReason, OperationOutcome, OperationSink, PacketTime};

/// Class of an error without SQLSTATE.
const UNKNOWN_CLASS: [u8; 2] = *b"XX";

impl PostgresExchanges {
    /// Handles a message of the server. Returns `false` if it cannot answer the first request.
    pub(super) fn server_message(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        // Notices, parameters and notifications may come at any time, and answer nothing.
        if matches!(message.kind, b'N' | b'S' | b'A') {
            return true;
        }
        let Some(request) = self.requests.front() else {
            // The server ends the connection: a timeout, a shutdown.
            return message.kind == b'E';
        };
        if message.start < request.request_start {
            return false;
        }
        if request.response_start == 0 {
            request.response_start = message.start;
        }
        request.response_bytes += message.size;
        request.response_end = end;
        match message.kind {
            b'D' => return answer_row(request),
            b'R' => return authenticate(request, message.body),
            b'K' | b'v' => return request.kind == Kind::Startup,
            b'1' | b'2' | b'3' | b'n' | b'T' => return answer_message(request, message.kind),
            b't' => {
                return matches!(
                    request.kind,
                    Kind::Open(_) | Kind::Execute | Kind::SyncWithoutExecute(_) | Kind::Sync
                );
            }
            b'H' | b'c' | b'd' => return answers_statement(request),
            b'G' => {
                if !answers_statement(request) {
                    return false;
                }
                request.response_start = 0;
                self.start_copy_in();
            }
            b'C' | b'I' | b's' => return self.complete(message, end, sink),
            b'V' => {
                if request.kind != Kind::FunctionCall {
                    return false;
                }
                self.requests.report_front(OperationOutcome::Ok, None, end, sink);
                self.set_front_kind(Kind::FunctionCallEnd);
            }
            b'E' => self.fail(message.body, end, sink),
            b'Z' => return self.ready(end, sink),
            _ => return false,
        }
        true
    }

    /// The server reads rows, and ignores a Sync until it has them.
    fn start_copy_in(&mut self) {
        if self.requests.remove_second_sync() {
            self.pipeline_operations = 1;
        }
        self.is_copy_in = true;
    }

    /// CommandComplete, EmptyQueryResponse or PortalSuspended.
    fn complete(
        &mut self,
        message: &PostgresMessage<'_>,
        end: PacketTime,
        sink: &mut dyn OperationSink,
    ) -> bool {
        let Some(request) = self.requests.front() else { return false };
        let tag = if message.kind == b'C' { first_string(message.body).0 } else { b"" };
        let is_complete = match request.kind {
            Kind::Query | Kind::QueryEnd => message.kind != b's',
            Kind::Execute => request.unanswered == 0,
            _ => false,
        };
        // The end of the rows of the client may be missing.
        if !is_complete || self.is_copy_in {
            return false;
        }
        let is_query = request.kind != Kind::Execute;
        request.kind = if is_query { Kind::Query } else { Kind::Execute };
        self.requests.report_front(OperationOutcome::Ok, tag_rows(tag), end, sink);
        if is_query {
            self.requests.next_statement(end);
        } else {
            self.requests.pop();
        }
        if matches!(tag, b"DISCARD ALL" | b"DEALLOCATE ALL") {
            self.prepared.clear();
        }
        true
    }

    fn fail(&mut self, fields: &[u8], end: PacketTime, sink: &mut dyn OperationSink) {
        let class = sqlstate_class(fields);
        let text = std::str::from_utf8(&class).unwrap_or("XX");
        let Some(request) = self.requests.front() else { return };
        // Before the client has sent all, more messages may be missing.
        let is_incomplete = std::mem::take(&mut self.is_copy_in)
            || matches!(request.kind, Kind::Open(_)) && !request.is_flushed
            || request.kind == Kind::Startup && request.unanswered > 0;
        if is_incomplete && std::mem::take(&mut request.awaits_report) {
            sink.not_measured(1, NotMeasuredReason::Gap);
        }
        match request.kind {
            Kind::SyncWithoutExecute(_) => request.error = Some(class),
            Kind::QueryEnd | Kind::FunctionCallEnd => {}
            Kind::Query | Kind::FunctionCall => {
                let kind = request.kind;
                self.requests.report_front(OperationOutcome::Error(text), None, end, sink);
                self.set_front_kind(match kind {
                    Kind::Query => Kind::QueryEnd,
                    _ => Kind::FunctionCallEnd,
                });
            }
            // An error of the commit, after the response of the Execute.
            Kind::Sync => {
                self.requests.report_front(OperationOutcome::Error(text), None, end, sink)
            }
            Kind::Startup => {
                self.requests.report_front(OperationOutcome::Error(text), None, end, sink);
                self.requests.pop();
            }
            Kind::Open(_) | Kind::Execute => {
                self.requests.report_front(OperationOutcome::Error(text), None, end, sink);
                self.requests.pop();
                self.drop_ignored(sink);
            }
        }
    }

    /// After an error the server ignores all messages up to a Sync.
    fn drop_ignored(&mut self, sink: &mut dyn OperationSink) {
        let mut ignored = 0;
        loop {
            match self.requests.front().map(|request| (request.kind, request.awaits_report)) {
                Some((Kind::Execute, awaits_report)) => ignored += u64::from(awaits_report),
                Some((Kind::Open(_), _)) => {}
                Some(_) => break,
                None => {
                    self.pipeline_operations += 1;
                    self.is_pipeline_aborted = true;
                    break;
                }
            }
            self.requests.pop();
        }
        if ignored > 0 {
            sink.not_measured(ignored, NotMeasuredReason::NoResponse);
        }
    }

    /// ReadyForQuery.
    fn ready(&mut self, end: PacketTime, sink: &mut dyn OperationSink) -> bool {
        let Some(request) = self.requests.front() else { return false };
        match (request.kind, request.error) {
            (Kind::Sync | Kind::QueryEnd | Kind::FunctionCallEnd, _) => {}
            (Kind::SyncWithoutExecute(_), Some(class)) => {
                let class = std::str::from_utf8(&class).unwrap_or("XX");
                self.requests.report_front(OperationOutcome::Error(class), None, end, sink);
            }
            (Kind::Startup | Kind::SyncWithoutExecute(_), None) if request.unanswered > 0 => {
                return false;
            }
            (Kind::Startup | Kind::SyncWithoutExecute(_), None) => {
                self.requests.report_front(OperationOutcome::Ok, None, end, sink);
            }
            _ => return false,
        }
        self.requests.pop();
        true
    }

    fn set_front_kind(&mut self, kind: Kind) {
        if let Some(request) = self.requests.front() {
            request.kind = kind;
        }
    }
}

/// A message that answers one Parse, Bind, Describe or Close, or describes the rows of a Query.
fn answer_message(request: &mut PostgresRequest, kind: u8) -> bool {
    match request.kind {
        Kind::Query | Kind::QueryEnd => {
            request.kind = Kind::Query;
            kind == b'T'
        }
        Kind::Open(_) | Kind::Execute | Kind::SyncWithoutExecute(_) | Kind::Sync => {
            let is_expected = request.unanswered > 0;
            request.unanswered -= u32::from(is_expected);
            is_expected
        }
        _ => false,
    }
}

/// A message of the authentication, to most of which the client responds.
fn authenticate(request: &mut PostgresRequest, body: &[u8]) -> bool {
    // AuthenticationOk, SASLFinal.
    let is_last = matches!(body, [0, 0, 0, 0 | 12]);
    let is_expected = request.kind == Kind::Startup && request.unanswered == 0;
    request.unanswered = u32::from(!is_last);
    is_expected
}

fn answer_row(request: &mut PostgresRequest) -> bool {
    request.rows += 1;
    answers_statement(request)
}

/// Whether the request executes a statement now.
fn answers_statement(request: &PostgresRequest) -> bool {
    request.kind == Kind::Query || request.kind == Kind::Execute && request.unanswered == 0
}

/// Rows in the tag of a command: `SELECT 5`, `INSERT 0 5`.
fn tag_rows(tag: &[u8]) -> Option<u64> {
    let number = tag.rsplit(|byte| *byte == b' ').next()?;
    if number.is_empty() || number.len() > 19 {
        return None;
    }
    number.iter().try_fold(0, |sum: u64, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0'))
    })
}

/// Class of an ErrorResponse: the first two characters of field `C`.
fn sqlstate_class(mut fields: &[u8]) -> [u8; 2] {
    while let Some((&kind, rest)) = fields.split_first() {
        let (value, rest) = first_string(rest);
        if kind == b'C'
            && let Some(class) = value.first_chunk::<2>()
            && class.iter().all(u8::is_ascii_alphanumeric)
        {
            return *class;
        }
        fields = rest;
    }
    UNKNOWN_CLASS
}
