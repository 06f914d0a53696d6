//! Responses of a connection.

use std::fmt::Write;

use super::bson::{BsonValue, BsonVisitor, ElementAction};
use super::compressed_message::CompressedMessage;
use super::message::{HEADER_BYTES, MessageHeader, OP_COMPRESSED};
use super::request_table::{MongoRequest, RequestTable};
use super::requests::parse_message;
use super::sections::{BodyCursor, BodyVisitor};
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{
    NotMeasuredReason, Operation, OperationOutcome, OperationSink, PacketTime, StatementSyntax,
};

/// Names of error codes are shorter.
const CLASS_BYTES_MAX: usize = 64;

/// Documents of a response whose elements are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseLevel {
    Response,
    Cursor,
    /// Documents of a cursor.
    Batch,
    WriteErrors,
    /// First of the write errors.
    WriteError,
}

/// The response that is being read.
pub(super) struct ResponseState {
    /// Its request, unless that is unknown or not measured.
    request: Option<MongoRequest>,
    id: i32,
    start: PacketTime,
    bytes: u64,
    is_compressed: bool,
    cursor: BodyCursor<ResponseLevel>,
    compressed: CompressedMessage,
    result: ResponseElements,
}

/// What the elements of a response say.
#[derive(Default)]
struct ResponseElements {
    is_failed: bool,
    code: Option<i64>,
    code_name: String,
    write_error_code: Option<i64>,
    cursor: Option<i64>,
    documents: Option<u64>,
    /// `moreToCome`: another response follows, without a request.
    has_more: bool,
}

impl ResponseState {
    pub(super) fn new() -> ResponseState {
        ResponseState {
            request: None,
            id: 0,
            start: 0,
            bytes: 0,
            is_compressed: false,
            cursor: BodyCursor::new(ResponseLevel::Response),
            compressed: CompressedMessage::default(),
            result: ResponseElements::default(),
        }
    }

    /// The request whose response is incomplete.
    pub(super) fn request(&self) -> Option<&MongoRequest> {
        self.request.as_ref()
    }

    /// Ends the response that is incomplete, and returns the number of its requests.
    pub(super) fn forget(&mut self, table: &mut RequestTable) -> u64 {
        self.compressed.finish();
        let Some(request) = self.request.take() else { return 0 };
        table.texts.put_back(request.namespace);
        1
    }

    pub(super) fn memory(&self) -> usize {
        self.compressed.memory()
            + self.result.code_name.capacity()
            + self.request.as_ref().map_or(0, |request| request.namespace.capacity())
    }
}

impl ResponseElements {
    fn clear(&mut self) {
        let mut code_name = std::mem::take(&mut self.code_name);
        code_name.clear();
        *self = ResponseElements { code_name, ..ResponseElements::default() };
    }

    /// Class of the error, if there is one: the name of its code, or the code.
    fn error(&mut self) -> Option<&str> {
        if !self.is_failed && self.write_error_code.is_none() {
            return None;
        }
        if !self.is_failed || self.code_name.is_empty() {
            self.code_name.clear();
            let code = if self.is_failed { self.code } else { self.write_error_code };
            // Writing to a string does not fail.
            let _ = match code {
                Some(code) => write!(self.code_name, "{code}"),
                None => self.code_name.write_str("UnknownError"),
            };
        }
        Some(&self.code_name)
    }
}

impl BsonVisitor<ResponseLevel> for ResponseElements {
    fn action(
        &mut self,
        level: ResponseLevel,
        index: u32,
        name: &[u8],
    ) -> ElementAction<ResponseLevel> {
        match (level, name) {
            (ResponseLevel::Response, b"ok" | b"code" | b"codeName") => ElementAction::Read,
            (ResponseLevel::Response, b"cursor") => ElementAction::Enter(ResponseLevel::Cursor),
            (ResponseLevel::Response, b"writeErrors") => {
                ElementAction::Enter(ResponseLevel::WriteErrors)
            }
            (ResponseLevel::Cursor, b"id") => ElementAction::Read,
            (ResponseLevel::Cursor, b"firstBatch" | b"nextBatch") => {
                self.documents = Some(0);
                ElementAction::Enter(ResponseLevel::Batch)
            }
            (ResponseLevel::Batch, _) => {
                self.documents = Some(u64::from(index) + 1);
                ElementAction::Skip
            }
            (ResponseLevel::WriteErrors, _) if index == 0 => {
                ElementAction::Enter(ResponseLevel::WriteError)
            }
            (ResponseLevel::WriteError, b"code") => ElementAction::Read,
            _ => ElementAction::Skip,
        }
    }

    fn value(&mut self, level: ResponseLevel, _: u32, name: &[u8], value: BsonValue<'_>) {
        let number = match value {
            BsonValue::Number(number) => Some(number as i64),
            BsonValue::Long(number) => Some(number),
            BsonValue::Text(_) | BsonValue::Other => None,
        };
        match (level, name) {
            (ResponseLevel::WriteError, _) => self.write_error_code = number,
            (ResponseLevel::Cursor, _) => self.cursor = number,
            (_, b"ok") => self.is_failed = number == Some(0),
            (_, b"code") => self.code = number,
            (_, b"codeName") => {
                if let BsonValue::Text(text) = value {
                    self.code_name.push_str(&text[..text.floor_char_boundary(CLASS_BYTES_MAX)]);
                }
            }
            _ => {}
        }
    }
}

impl BodyVisitor<ResponseLevel> for ResponseElements {
    fn more_to_come(&mut self) {
        self.has_more = true;
    }

    fn query_failed(&mut self) {
        self.is_failed = true;
    }
}

/// Reads responses to the requests of the table.
pub(super) struct MongoResponses<'a> {
    pub(super) state: &'a mut ResponseState,
    pub(super) table: &'a mut RequestTable,
}

impl MessageHandler for MongoResponses<'_> {
    type Header = MessageHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<MessageHeader> {
        parse_message(bytes, false)
    }

    fn is_expected(&self, header: &MessageHeader) -> bool {
        self.table.is_known(header.response_to)
    }

    fn begin(
        &mut self,
        start: PacketTime,
        header: MessageHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        let state = &mut *self.state;
        state.id = header.request_id;
        state.start = start;
        state.bytes = bytes;
        state.is_compressed = header.opcode == OP_COMPRESSED;
        state.result.clear();
        state.cursor.start(header.opcode);
        if state.is_compressed {
            state.compressed.start(bytes - HEADER_BYTES as u64);
        }
        match self.table.take(header.response_to) {
            Some(request)
                if is_synchronised
                    && request.is_complete
                    && !request.has_gap
                    && request.start <= start =>
            {
                state.request = Some(request);
            }
            // A response that began before its request is one to an earlier request of the same id.
            Some(request) => {
                self.table.texts.put_back(request.namespace);
                sink.not_measured(1, NotMeasuredReason::Gap);
            }
            None if self.table.take_counted(header.response_to) => {}
            None if self.table.exhaust_id == Some(header.response_to) => {}
            None if self.table.may_miss_requests => sink.not_measured(1, NotMeasuredReason::Gap),
            None => {}
        }
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, _: &mut dyn OperationSink) -> Option<u64> {
        let state = &mut *self.state;
        if state.is_compressed {
            state.compressed.push(bytes);
            return Some(bytes.len() as u64);
        }
        state.cursor.read(bytes, &mut state.result)
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let ResponseState { request, id, start, bytes, is_compressed, cursor, compressed, result } =
            &mut *self.state;
        let mut is_known = true;
        if *is_compressed {
            match compressed.decompress() {
                Some((opcode, body)) => {
                    cursor.start(opcode);
                    cursor.read_whole(body, result);
                }
                None => is_known = false,
            }
            compressed.finish();
        }
        self.table.exhaust_id = result.has_more.then_some(*id);
        let Some(request) = request.take() else { return };
        if let Some(cursor) = result.cursor.filter(|_| request.opens_waiting_cursor) {
            self.table.add_waiting_cursor(cursor);
        }
        if !is_known {
            self.table.texts.put_back(request.namespace);
            return sink.not_measured(1, NotMeasuredReason::Limit);
        }
        let rows = result.documents;
        sink.operation(&Operation {
            verb: request.command,
            statement: &request.namespace,
            syntax: StatementSyntax::Name,
            is_wait: request.is_wait,
            outcome: result.error().map_or(OperationOutcome::Ok, OperationOutcome::Error),
            request_start: request.start,
            request_end: request.end,
            response_start: *start,
            response_end: time,
            request_bytes: request.bytes,
            response_bytes: *bytes,
            rows,
            traceparent: None,
        });
        self.table.texts.put_back(request.namespace);
    }

    fn on_gap(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.state.forget(self.table);
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
        // Whether another response follows is unknown; if one does, it is not that of a request.
        self.table.exhaust_id = Some(self.state.id);
    }

    fn on_resync(&mut self, sink: &mut dyn OperationSink) {
        self.lose_position(sink);
    }

    /// The requests in flight may have been answered.
    fn lose_position(&mut self, sink: &mut dyn OperationSink) {
        self.table.exhaust_id = None;
        let requests = self.table.drain();
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
    }
}
