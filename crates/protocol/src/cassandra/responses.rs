//! Responses of a connection.

use super::body::{BodyCursor, BodyPart, BodyValue, STRING_BYTES, STRINGS};
use super::compressed_body::CompressedBody;
use super::envelope::{
    AUTHENTICATE, COMPRESSED, CUSTOM_PAYLOAD, ERROR, EnvelopeHeader, PREPARE, READY, RESULT,
    STARTUP, TRACING, WARNING, error_class,
};
use super::requests::parse_envelope;
use super::stream_table::{CqlCompression, CqlRequest, FrameFormat, StreamTable};
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{
    NotMeasuredReason, Operation, OperationOutcome, OperationSink, PacketTime, StatementSyntax,
};

/// The response that is being read.
#[derive(Default)]
pub(super) struct ResponseState {
    /// Its request, unless that is unknown or not measured.
    request: Option<CqlRequest>,
    start: PacketTime,
    bytes: u64,
    opcode: u8,
    is_compressed: bool,
    error: Option<u32>,
    rows: Option<u32>,
    cursor: BodyCursor,
    compressed: CompressedBody,
}

impl ResponseState {
    /// The request whose response is incomplete.
    pub(super) fn request(&self) -> Option<&CqlRequest> {
        self.request.as_ref()
    }

    pub(super) fn memory(&self) -> usize {
        self.cursor.memory()
            + self.compressed.memory()
            + self.request.as_ref().map_or(0, |request| request.text.capacity())
    }

    /// Ends the response that is incomplete, and returns the number of its requests.
    pub(super) fn forget(&mut self, table: &mut StreamTable) -> u64 {
        self.compressed.finish();
        let Some(request) = self.request.take() else { return 0 };
        table.texts.put_back(request.text);
        1
    }
}

/// Reads responses to the requests of the table.
pub(super) struct CqlResponses<'a> {
    pub(super) state: &'a mut ResponseState,
    pub(super) table: &'a mut StreamTable,
}

impl MessageHandler for CqlResponses<'_> {
    type Header = EnvelopeHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<EnvelopeHeader> {
        parse_envelope(bytes, false)
    }

    fn is_expected(&self, header: &EnvelopeHeader) -> bool {
        self.table.is_known(header.stream)
    }

    fn begin(
        &mut self,
        start: PacketTime,
        header: EnvelopeHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        let state = &mut *self.state;
        state.start = start;
        state.bytes = bytes;
        state.opcode = header.opcode;
        state.is_compressed = header.flags & COMPRESSED != 0 && header.version < 5;
        (state.error, state.rows) = (None, None);
        let request = self.table.remove(header.stream);
        match request {
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
                self.table.texts.put_back(request.text);
                sink.not_measured(1, NotMeasuredReason::Gap);
            }
            // An event, or the response to a request that was not captured.
            None if header.stream < 0 || self.table.take_counted(header.stream) => {}
            None => sink.not_measured(1, NotMeasuredReason::Gap),
        }
        let content = match header.opcode {
            ERROR => Some(BodyPart::ErrorCode),
            RESULT => Some(BodyPart::ResultKind),
            _ => None,
        };
        let has = |flag: u8, part: BodyPart| (header.flags & flag != 0).then_some(part);
        let before = [
            has(CUSTOM_PAYLOAD, BodyPart::Array(STRING_BYTES)),
            has(WARNING, BodyPart::Array(STRINGS)),
            has(TRACING, BodyPart::Fixed(16)),
        ];
        let content = content.filter(|_| state.request.is_some());
        state.cursor.start(content.into_iter().chain(before.into_iter().flatten()));
        if state.is_compressed {
            state.compressed.start(u64::from(header.body_bytes));
        }
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, _: &mut dyn OperationSink) -> Option<u64> {
        let state = &mut *self.state;
        if state.request.is_none() {
            return Some(u64::MAX);
        }
        if state.is_compressed {
            state.compressed.push(bytes);
            return Some(bytes.len() as u64);
        }
        read_content(state, self.table, bytes)
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let state = &mut *self.state;
        if state.is_compressed {
            let mut compressed = std::mem::take(&mut state.compressed);
            if let Some(body) = compressed.decompress(self.table.compression) {
                read_whole_content(state, self.table, body);
            }
            compressed.finish();
            state.compressed = compressed;
        }
        let Some(request) = state.request.take() else { return };
        let is_startup = request.opcode == STARTUP && matches!(state.opcode, READY | AUTHENTICATE);
        let is_compressed = self.table.compression == Some(CqlCompression::Lz4);
        if is_startup && request.version == 5 {
            self.table.framing = FrameFormat::Frames { is_compressed };
            self.table.is_framing_settled = true;
        } else if request.version < 5 {
            self.table.framing = FrameFormat::Envelopes;
            self.table.is_framing_settled = true;
        }
        let class =
            (state.opcode == ERROR).then(|| state.error.map_or("UnknownError", error_class));
        sink.operation(&Operation {
            verb: request.verb(),
            statement: request.statement(),
            syntax: StatementSyntax::Sql,
            is_wait: false,
            outcome: class.map_or(OperationOutcome::Ok, OperationOutcome::Error),
            request_start: request.start,
            request_end: request.end,
            response_start: state.start,
            response_end: time,
            request_bytes: request.bytes,
            response_bytes: state.bytes,
            rows: state.rows.map(u64::from),
            traceparent: None,
        });
        self.table.texts.put_back(request.text);
    }

    fn on_gap(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.state.forget(self.table);
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
    }

    fn lose_position(&mut self, sink: &mut dyn OperationSink) {
        self.on_resync(sink);
    }

    /// The requests in flight may have been answered, and their ids used again.
    fn on_resync(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.table.drain();
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
    }
}

/// Reads a body that is all there.
fn read_whole_content(state: &mut ResponseState, table: &mut StreamTable, mut body: &[u8]) {
    while let Some(taken) = read_content(state, table, body) {
        body = body.get(usize::try_from(taken).unwrap_or(usize::MAX)..).unwrap_or_default();
        if body.is_empty() {
            return;
        }
    }
}

fn read_content(state: &mut ResponseState, table: &mut StreamTable, bytes: &[u8]) -> Option<u64> {
    let ResponseState { cursor, request, error, rows, .. } = state;
    cursor.read(bytes, &mut |value| match value {
        BodyValue::ErrorCode(code) => *error = Some(code),
        BodyValue::Rows(count) => *rows = Some(count),
        BodyValue::NewPreparedId(id) => {
            let prepare = request.as_ref().filter(|request| request.opcode == PREPARE);
            if let Some(request) = prepare {
                table.prepare(id, &request.text);
            }
        }
        _ => {}
    })
}
