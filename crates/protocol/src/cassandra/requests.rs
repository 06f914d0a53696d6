//! Requests of a connection.

use super::body::{BATCH_ELEMENTS, BodyCursor, BodyPart, BodyValue, STRING_BYTES};
use super::compressed_body::CompressedBody;
use super::envelope::{
    BATCH, COMPRESSED, CUSTOM_PAYLOAD, EXECUTE, EnvelopeHeader, HEADER_BYTES, PREPARE, QUERY,
    STARTUP,
};
use super::stream_table::{CqlCompression, CqlRequest, StreamTable};
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{OperationSink, PacketTime};
use crate::stream_buffer::STEP_BYTES_MAX;

/// The request that is being read.
#[derive(Default)]
pub(super) struct RequestState {
    stream: i16,
    number: u64,
    opcode: u8,
    version: u8,
    is_compressed: bool,
    cursor: BodyCursor,
    compressed: CompressedBody,
}

impl RequestState {
    pub(super) fn memory(&self) -> usize {
        self.cursor.memory() + self.compressed.memory()
    }
}

/// Reads requests into the table.
pub(super) struct CqlRequests<'a> {
    pub(super) state: &'a mut RequestState,
    pub(super) table: &'a mut StreamTable,
}

impl MessageHandler for CqlRequests<'_> {
    type Header = EnvelopeHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<EnvelopeHeader> {
        parse_envelope(bytes, true)
    }

    fn is_expected(&self, _: &EnvelopeHeader) -> bool {
        true
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
        state.stream = header.stream;
        state.opcode = header.opcode;
        state.version = header.version;
        state.is_compressed = header.flags & COMPRESSED != 0 && header.version < 5;
        state.number = u64::MAX;
        if is_synchronised {
            let request = CqlRequest {
                number: 0,
                opcode: header.opcode,
                version: header.version,
                is_complete: false,
                has_gap: false,
                start,
                end: start,
                bytes,
                text: String::new(),
                prepared: None,
                has_unknown_statement: false,
            };
            state.number = self.table.insert(header.stream, request, sink);
        }
        let content = match header.opcode {
            QUERY | PREPARE => Some(BodyPart::Statement),
            EXECUTE => Some(BodyPart::PreparedId),
            BATCH => Some(BodyPart::Array(BATCH_ELEMENTS)),
            _ => None,
        };
        // The type of a batch comes first.
        let batch_type = (header.opcode == BATCH).then_some(BodyPart::Fixed(1));
        let payload = (header.flags & CUSTOM_PAYLOAD != 0).then_some(BodyPart::Array(STRING_BYTES));
        state.cursor.start(content.into_iter().chain(batch_type).chain(payload));
        if state.is_compressed {
            state.compressed.start(u64::from(header.body_bytes));
        }
    }

    fn read_body(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        _: &mut dyn OperationSink,
    ) -> Option<u64> {
        let state = &mut *self.state;
        if state.is_compressed {
            state.compressed.push(bytes);
            return Some(bytes.len() as u64);
        }
        if state.opcode == STARTUP {
            if !is_whole && bytes.len() < STEP_BYTES_MAX {
                return None;
            }
            self.table.compression = startup_compression(bytes);
            return Some(u64::MAX);
        }
        read_content(state, self.table, bytes)
    }

    fn end(&mut self, time: PacketTime, _: &mut dyn OperationSink) {
        let state = &mut *self.state;
        if state.is_compressed {
            let mut compressed = std::mem::take(&mut state.compressed);
            if let Some(mut body) = compressed.decompress(self.table.compression) {
                while let Some(taken) = read_content(state, self.table, body) {
                    let taken = usize::try_from(taken).unwrap_or(usize::MAX);
                    body = body.get(taken..).unwrap_or_default();
                    if body.is_empty() {
                        break;
                    }
                }
            }
            compressed.finish();
            state.compressed = compressed;
        }
        self.table.complete(state.stream, state.number, time);
    }

    fn on_gap(&mut self, _: &mut dyn OperationSink) {
        if let Some(request) = self.table.request(self.state.stream, self.state.number) {
            request.has_gap = true;
        }
        self.state.compressed.finish();
    }

    /// Requests in flight keep their ids: a lost request cannot have one of them.
    fn lose_position(&mut self, _: &mut dyn OperationSink) {}
}

/// The header of a request or of a response.
pub(super) fn parse_envelope(bytes: &[u8], is_request: bool) -> HeaderParse<EnvelopeHeader> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return HeaderParse::Incomplete;
    };
    match EnvelopeHeader::parse(header, is_request) {
        None => HeaderParse::Implausible,
        Some(header) => HeaderParse::Message {
            header,
            header_bytes: HEADER_BYTES as u64,
            message_bytes: HEADER_BYTES as u64 + u64::from(header.body_bytes),
        },
    }
}

fn read_content(state: &mut RequestState, table: &mut StreamTable, bytes: &[u8]) -> Option<u64> {
    let RequestState { stream, number, opcode, .. } = *state;
    let is_batch = opcode == BATCH;
    state.cursor.read(bytes, &mut |value| match value {
        BodyValue::Text(text) => table.push_text(stream, number, text),
        BodyValue::TextStart if is_batch => table.separate_text(stream, number),
        BodyValue::PreparedId(id) => table.resolve(stream, number, id, is_batch),
        _ => {}
    })
}

/// Value of COMPRESSION in the options of STARTUP.
fn startup_compression(body: &[u8]) -> Option<CqlCompression> {
    const KEY: &[u8] = b"\0\x0bCOMPRESSION\0";
    let at = body.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let (length, value) = body.get(at..)?.split_first()?;
    let value = value.get(..usize::from(*length))?;
    match () {
        () if value.eq_ignore_ascii_case(b"lz4") => Some(CqlCompression::Lz4),
        () if value.eq_ignore_ascii_case(b"snappy") => Some(CqlCompression::Snappy),
        () => None,
    }
}
