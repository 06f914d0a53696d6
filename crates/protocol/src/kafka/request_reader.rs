//! Requests of a connection.

use super::api::{Api, PLAUSIBLE_VERSION_MAX, SASL_AUTHENTICATE};
use super::fields::{CursorStep, FieldCursor, Slot, Value, request_fields, signed};
use super::in_flight_table::InFlightTable;
use crate::message_position::MessagePosition;
use crate::observer::{Direction, NotMeasured, OperationSink, PacketTime};
use crate::stream_buffer::StreamBuffer;

/// Default of `socket.request.max.bytes` of a broker.
const REQUEST_BYTES_MAX: u32 = 100 << 20;

/// Size, API key, version, correlation id and length of the client id.
const HEADER_BYTES: usize = 14;

/// Reads the bytes of the client.
pub(super) struct RequestReader {
    buffer: StreamBuffer,
    /// Time of the first byte of the next request, if it has arrived.
    start: Option<PacketTime>,
    message: Option<RequestMessage>,
    position: MessagePosition,
}

/// A request whose header was read.
struct RequestMessage {
    /// Its number in the table; `None` if it is not there.
    number: Option<u64>,
    is_beyond_limit: bool,
    /// Bytes that were not taken.
    remaining: u64,
    cursor: FieldCursor,
}

impl RequestReader {
    pub(super) fn new(is_first: bool) -> RequestReader {
        RequestReader {
            buffer: StreamBuffer::default(),
            start: None,
            message: None,
            position: MessagePosition::at_start(is_first),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.position == MessagePosition::Lost
    }

    pub(super) fn memory(&self) -> usize {
        self.buffer.memory()
    }

    pub(super) fn read(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) {
        if self.position != MessagePosition::Known {
            let at_packet = MessagePosition::at_packet(bytes, RequestHeader::message_bytes);
            if at_packet == MessagePosition::Known || self.is_lost() {
                self.position = at_packet;
                self.message = None;
                self.buffer.clear();
            }
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.read(bytes, |bytes| self.step(time, bytes, table, sink));
        self.buffer = buffer;
    }

    pub(super) fn skip(
        &mut self,
        missing: u64,
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) {
        table.forget_state();
        let Some(message) = &mut self.message else {
            self.lose(sink);
            return;
        };
        if let Some(request) = table.newest(message.number) {
            request.has_gap = true;
        }
        let seen = self.buffer.incomplete() as u64;
        let to_end = (message.remaining + self.buffer.passed_over()).saturating_sub(seen);
        if to_end < missing {
            self.lose(sink);
            return;
        }
        message.remaining = to_end - missing;
        message.cursor = FieldCursor::new(&[], 0, false, false);
        self.buffer.clear();
        if to_end == missing {
            self.message = None;
        }
    }

    fn lose(&mut self, sink: &mut dyn OperationSink) {
        sink.unparsed(Direction::ToServer, self.buffer.incomplete() as u64);
        self.buffer.clear();
        self.message = None;
        self.start = None;
        self.position = MessagePosition::Lost;
    }

    fn step(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) -> Option<u64> {
        if let Some(message) = &mut self.message {
            if message.remaining > 0 {
                return message.read_body(bytes, table, sink);
            }
            if let Some(request) = table.newest(message.number) {
                request.end = time;
                request.is_complete = true;
            }
            table.resolve_topics(message.number);
            self.message = None;
        }
        if bytes.is_empty() {
            return None;
        }
        if self.is_lost() {
            sink.unparsed(Direction::ToServer, bytes.len() as u64);
            return Some(bytes.len() as u64);
        }
        let start = *self.start.get_or_insert(time);
        match RequestHeader::parse(bytes) {
            HeaderParse::Incomplete => None,
            HeaderParse::Request(header) => {
                self.start = None;
                table.expects_raw_tokens = false;
                Some(self.begin(start, &header, table, sink))
            }
            HeaderParse::Implausible(size) => {
                self.start = None;
                if table.expects_raw_tokens && size <= REQUEST_BYTES_MAX {
                    return Some(self.begin_raw_token(start, size, table, sink));
                }
                self.position = MessagePosition::Lost;
                sink.unparsed(Direction::ToServer, bytes.len() as u64);
                Some(bytes.len() as u64)
            }
        }
    }

    /// Returns the number of bytes of the header.
    fn begin(
        &mut self,
        start: PacketTime,
        header: &RequestHeader,
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) -> u64 {
        let RequestHeader { api, version, .. } = *header;
        // The first request after a gap is only counted, when its response arrives.
        let is_counted = self.position != MessagePosition::Found;
        self.position = self.position.after_message_start();
        let number =
            if is_counted { table.push(start, header.correlation_id, api, version) } else { None };
        let is_beyond_limit = is_counted && number.is_none();
        if let Some(request) = table.newest(number) {
            request.bytes = 4 + u64::from(header.size);
        }
        if is_beyond_limit {
            sink.not_measured(1, NotMeasured::Limit);
        }
        let is_flexible = api.is_flexible(version);
        let taken = HEADER_BYTES as u64 + u64::from(header.client_id_bytes);
        self.message = Some(RequestMessage {
            number,
            is_beyond_limit,
            remaining: 4 + u64::from(header.size) - taken,
            cursor: FieldCursor::new(
                request_fields(api, version),
                version,
                is_flexible,
                is_flexible,
            ),
        });
        taken
    }

    fn begin_raw_token(
        &mut self,
        start: PacketTime,
        size: u32,
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) -> u64 {
        let api = Api::of_key(SASL_AUTHENTICATE).expect("the table has all keys");
        let number = table.push(start, 0, api, 0);
        match table.newest(number) {
            Some(request) => {
                request.bytes = 4 + u64::from(size);
                request.is_raw_token = true;
            }
            None => sink.not_measured(1, NotMeasured::Limit),
        }
        let cursor = FieldCursor::new(&[], 0, false, false);
        self.message = Some(RequestMessage {
            number,
            is_beyond_limit: number.is_none(),
            remaining: u64::from(size),
            cursor,
        });
        4
    }
}

impl RequestMessage {
    fn read_body(
        &mut self,
        bytes: &[u8],
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) -> Option<u64> {
        let available = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let number = self.number;
        let mut has_no_response = false;
        let step = self.cursor.step(&bytes[..available], &mut |value| match value {
            Value::Number(Slot::Acks, 0) => has_no_response = true,
            Value::TopicName(name) => table.add_topic(number, name),
            Value::TopicId(id) => table.add_topic_id(number, id),
            Value::Number(slot, value) => {
                let Some(request) = table.newest(number) else { return };
                match slot {
                    Slot::MaxWaitMs => request.max_wait_ms = value,
                    Slot::MinBytes => request.min_bytes = value,
                    Slot::IsolationLevel => request.is_read_committed = value == 1,
                    Slot::SessionEpoch => request.session_epoch = value,
                    _ => {}
                }
            }
            Value::Batch { .. } => {}
        });
        if has_no_response {
            // The broker sends no response with `acks=0`.
            if table.remove_newest(number) {
                sink.not_measured(1, NotMeasured::NoResponse);
            } else if self.is_beyond_limit {
                table.beyond_limit = table.beyond_limit.saturating_sub(1);
            }
        }
        let taken = match step {
            CursorStep::Taken(taken) => taken.min(self.remaining),
            CursorStep::Incomplete if (available as u64) < self.remaining => return None,
            CursorStep::Incomplete | CursorStep::Complete => self.remaining,
        };
        self.remaining -= taken;
        Some(taken)
    }
}

/// Header of a request.
struct RequestHeader {
    size: u32,
    api: &'static Api,
    version: i16,
    correlation_id: i32,
    client_id_bytes: u32,
}

/// Result of reading a header.
enum HeaderParse {
    Request(RequestHeader),
    /// The bytes are not a header; if they are a message, it has this size.
    Implausible(u32),
    Incomplete,
}

impl RequestHeader {
    /// Size of the request at the start of bytes.
    fn message_bytes(bytes: &[u8]) -> Option<u64> {
        match RequestHeader::parse(bytes) {
            HeaderParse::Request(header) => Some(4 + u64::from(header.size)),
            HeaderParse::Implausible(_) | HeaderParse::Incomplete => None,
        }
    }

    fn parse(bytes: &[u8]) -> HeaderParse {
        let Some(size) = bytes.first_chunk::<4>() else { return HeaderParse::Incomplete };
        let size = u32::from_be_bytes(*size);
        if size < HEADER_BYTES as u32 - 4 || size > REQUEST_BYTES_MAX {
            return HeaderParse::Implausible(size);
        }
        let Some(&[_, _, _, _, k0, k1, v0, v1, c0, c1, c2, c3, l0, l1]) =
            bytes.first_chunk::<HEADER_BYTES>()
        else {
            return HeaderParse::Incomplete;
        };
        let version = i16::from_be_bytes([v0, v1]);
        let client_id_bytes = signed(&[l0, l1]);
        let limit = i64::from(size) + 4 - HEADER_BYTES as i64;
        let client_id = &bytes[HEADER_BYTES..];
        let visible = usize::try_from(client_id_bytes).unwrap_or(0).min(client_id.len());
        let is_plausible = (0..=PLAUSIBLE_VERSION_MAX).contains(&version)
            && (-1..=limit).contains(&client_id_bytes)
            && !client_id[..visible].iter().any(u8::is_ascii_control);
        match Api::of_key(i16::from_be_bytes([k0, k1])).filter(|_| is_plausible) {
            None => HeaderParse::Implausible(size),
            Some(api) => HeaderParse::Request(RequestHeader {
                size,
                api,
                version,
                correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
                client_id_bytes: u32::try_from(client_id_bytes).unwrap_or(0),
            }),
        }
    }
}
