//! Responses of a connection.

use super::api::{FETCH, SASL_HANDSHAKE};
use super::error_code::error_name;
use super::fields::{CursorStep, FieldCursor, Slot, Value, response_fields};
use super::in_flight_table::{InFlightTable, KafkaRequest};
use crate::message_position::MessagePosition;
use crate::observer::{
    Direction, NotMeasured, Operation, OperationOutcome, OperationSink, PacketTime, StatementSyntax,
};
use crate::stream_buffer::StreamBuffer;

/// Larger responses are not plausible: `fetch.max.bytes` is 50 MiB by default.
const RESPONSE_BYTES_MAX: u32 = 1 << 30;

/// Size and correlation id.
const HEADER_BYTES: usize = 8;

/// Reads the bytes of the broker.
pub(super) struct ResponseReader {
    buffer: StreamBuffer,
    /// Time of the first byte of the next response, if it has arrived.
    start: Option<PacketTime>,
    message: Option<ResponseMessage>,
    position: MessagePosition,
}

/// A response whose header was read.
struct ResponseMessage {
    /// Its request, unless that is unknown or not measured.
    request: Option<KafkaRequest>,
    start: PacketTime,
    bytes: u64,
    remaining: u64,
    cursor: FieldCursor,
    result: ResponseResult,
}

/// What the fields of a response say.
#[derive(Default)]
struct ResponseResult {
    error: Option<i16>,
    records: u64,
    /// Offset after the last record that the partition had to return.
    partition_end: i64,
    /// Whether a partition has records after those that were returned.
    has_more: bool,
    /// End of the records of the partition, if it returned any.
    end_offset: Option<i64>,
    /// Topic whose id follows.
    topic_name: Vec<u8>,
}

impl ResponseReader {
    pub(super) fn new(is_first: bool) -> ResponseReader {
        ResponseReader {
            buffer: StreamBuffer::default(),
            start: None,
            message: None,
            position: MessagePosition::at_start(is_first),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.position == MessagePosition::Lost
    }

    /// The request whose response is incomplete.
    pub(super) fn request(&self) -> Option<&KafkaRequest> {
        self.message.as_ref()?.request.as_ref()
    }

    pub(super) fn memory(&self) -> usize {
        let message = self.message.as_ref();
        let topics =
            message.and_then(|one| one.request.as_ref()).map_or(0, |one| one.topics.capacity());
        self.buffer.memory() + topics + message.map_or(0, |one| one.result.topic_name.capacity())
    }

    /// Ends the response that is incomplete, and returns the number of its requests.
    pub(super) fn end(&mut self, table: &mut InFlightTable) -> u64 {
        let request = self.message.take().and_then(|message| message.request);
        request.map_or(0, |request| {
            table.texts.put_back(request.topics);
            1
        })
    }

    pub(super) fn read(
        &mut self,
        time: PacketTime,
        bytes: &[u8],
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) {
        if self.position != MessagePosition::Known {
            let at_packet = MessagePosition::at_packet(bytes, |bytes| {
                let header = ResponseHeader::parse(bytes).filter(ResponseHeader::is_plausible)?;
                table.position(header.correlation_id)?;
                Some(4 + u64::from(header.size))
            });
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
            self.lose(table, sink);
            return;
        };
        if let Some(request) = message.request.take() {
            table.texts.put_back(request.topics);
            sink.not_measured(1, NotMeasured::Gap);
        }
        let seen = self.buffer.incomplete() as u64;
        let to_end = (message.remaining + self.buffer.passed_over()).saturating_sub(seen);
        if to_end < missing {
            self.lose(table, sink);
            return;
        }
        message.remaining = to_end - missing;
        message.cursor = FieldCursor::new(&[], 0, false, false);
        self.buffer.clear();
        if to_end == missing {
            self.message = None;
        }
    }

    /// The requests in flight may have been answered by what was not captured.
    fn lose(&mut self, table: &mut InFlightTable, sink: &mut dyn OperationSink) {
        sink.unparsed(Direction::ToClient, self.buffer.incomplete() as u64);
        self.buffer.clear();
        self.message = None;
        self.start = None;
        self.position = MessagePosition::Lost;
        let requests = table.drain();
        sink.not_measured(requests, NotMeasured::Gap);
        table.beyond_limit = 0;
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
                return message.read_body(bytes, table);
            }
            let message = self.message.take()?;
            message.finish(time, table, sink);
        }
        if bytes.is_empty() {
            return None;
        }
        if self.is_lost() {
            sink.unparsed(Direction::ToClient, bytes.len() as u64);
            return Some(bytes.len() as u64);
        }
        let start = *self.start.get_or_insert(time);
        if table.oldest().is_some_and(|request| request.is_raw_token) {
            let size = u32::from_be_bytes(*bytes.first_chunk()?);
            self.start = None;
            let request = table.pop();
            self.message = Some(ResponseMessage::new(start, size, request, 4));
            return Some(4);
        }
        let header = ResponseHeader::parse(bytes)?;
        self.start = None;
        if !header.is_plausible() || !self.begin(start, &header, table, sink) {
            sink.unparsed(Direction::ToClient, bytes.len() as u64);
            self.lose(table, sink);
            return Some(bytes.len() as u64);
        }
        Some(HEADER_BYTES as u64)
    }

    /// Returns false if the position turns out to be wrong.
    fn begin(
        &mut self,
        start: PacketTime,
        header: &ResponseHeader,
        table: &mut InFlightTable,
        sink: &mut dyn OperationSink,
    ) -> bool {
        let mut request = None;
        match table.position(header.correlation_id) {
            Some(position) => {
                // The broker responds in order: the older ones have been answered.
                for _ in 0..position {
                    let older = table.pop();
                    older.into_iter().for_each(|older| table.texts.put_back(older.topics));
                }
                if position > 0 {
                    sink.not_measured(position as u64, NotMeasured::Gap);
                    table.last_fetch_reached_end = None;
                }
                request = table.pop();
            }
            None if self.position != MessagePosition::Known => return false,
            // The request was not captured.
            None => {
                match table.beyond_limit {
                    0 => sink.not_measured(1, NotMeasured::Gap),
                    _ => table.beyond_limit -= 1,
                }
                table.last_fetch_reached_end = None;
            }
        }
        let is_affected = request.as_ref().is_some_and(|one| !one.is_complete || one.has_gap);
        if is_affected || (self.position == MessagePosition::Found && request.is_some()) {
            sink.not_measured(1, NotMeasured::Gap);
            table.last_fetch_reached_end = None;
            let request = request.take();
            request.into_iter().for_each(|one| table.texts.put_back(one.topics));
        }
        self.position = self.position.after_message_start();
        self.message = Some(ResponseMessage::new(start, header.size, request, HEADER_BYTES));
        true
    }
}

impl ResponseMessage {
    /// A response of which `taken` bytes were read.
    fn new(
        start: PacketTime,
        size: u32,
        request: Option<KafkaRequest>,
        taken: usize,
    ) -> ResponseMessage {
        let bytes = 4 + u64::from(size);
        let cursor = match request.as_ref().filter(|request| !request.is_raw_token) {
            None => FieldCursor::new(&[], 0, false, false),
            Some(KafkaRequest { api, version, .. }) => FieldCursor::new(
                response_fields(api, *version),
                *version,
                api.is_flexible(*version),
                api.is_response_header_flexible(*version),
            ),
        };
        let result = ResponseResult::default();
        let remaining = bytes - taken as u64;
        ResponseMessage { request, start, bytes, remaining, cursor, result }
    }

    fn read_body(&mut self, bytes: &[u8], table: &mut InFlightTable) -> Option<u64> {
        let available = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let is_read_committed = self.request.as_ref().is_some_and(|one| one.is_read_committed);
        let result = &mut self.result;
        let step = self.cursor.step(&bytes[..available], &mut |value| match value {
            Value::TopicName(name) => {
                result.topic_name.clear();
                result.topic_name.extend_from_slice(name);
            }
            Value::TopicId(id) => {
                if let Ok(name) = std::str::from_utf8(&result.topic_name) {
                    table.name_topic(id, name);
                }
            }
            value => result.visit(&value, is_read_committed),
        });
        let taken = match step {
            CursorStep::Taken(taken) => taken.min(self.remaining),
            CursorStep::Incomplete if (available as u64) < self.remaining => return None,
            CursorStep::Incomplete | CursorStep::Complete => self.remaining,
        };
        self.remaining -= taken;
        Some(taken)
    }

    /// The last byte has arrived.
    fn finish(mut self, time: PacketTime, table: &mut InFlightTable, sink: &mut dyn OperationSink) {
        let Some(request) = self.request else { return };
        self.result.end_partition();
        let result = self.result;
        let is_fetch = request.api.key == FETCH;
        let is_ok = result.error.is_none();
        if request.api.key == SASL_HANDSHAKE && request.version == 0 && is_ok {
            table.expects_raw_tokens = true;
        }
        let mut is_wait = Some(request.api.is_wait());
        if is_fetch {
            let waited_ms = self.start.saturating_sub(request.end) / 1_000_000;
            is_wait = match () {
                () if !is_ok || !request.may_wait() => Some(false),
                () if result.records == 0 => Some(true),
                () if waited_ms >= u64::try_from(request.max_wait_ms).unwrap_or(0) => Some(true),
                () => request.is_after_end,
            };
            if is_ok {
                table.last_fetch_reached_end = Some(!result.has_more);
            }
        }
        match is_wait {
            None => sink.not_measured(1, NotMeasured::Gap),
            Some(is_wait) => sink.operation(&Operation {
                verb: request.api.name,
                statement: &request.topics,
                syntax: StatementSyntax::Name,
                is_wait,
                outcome: result
                    .error
                    .map_or(OperationOutcome::Ok, |code| OperationOutcome::Error(error_name(code))),
                request_start: request.start,
                request_end: request.end,
                response_start: self.start,
                response_end: time,
                request_bytes: request.bytes,
                response_bytes: self.bytes,
                rows: is_fetch.then_some(result.records),
                traceparent: None,
            }),
        }
        table.texts.put_back(request.topics);
    }
}

impl ResponseResult {
    fn visit(&mut self, value: &Value<'_>, is_read_committed: bool) {
        match *value {
            Value::Number(Slot::ErrorCode, 0) => {}
            Value::Number(Slot::ErrorCode, code) => {
                self.error.get_or_insert(i16::try_from(code).unwrap_or(-1));
            }
            Value::Number(Slot::HighWatermark, offset) => {
                self.end_partition();
                self.partition_end = offset;
            }
            Value::Number(Slot::LastStableOffset, offset) if is_read_committed && offset >= 0 => {
                self.partition_end = self.partition_end.min(offset);
            }
            Value::Batch { records, end_offset } => {
                self.records += u64::from(records);
                self.end_offset = Some(end_offset);
            }
            _ => {}
        }
    }

    /// The records of a partition are complete.
    fn end_partition(&mut self) {
        if let Some(end_offset) = self.end_offset.take() {
            self.has_more |= end_offset < self.partition_end;
        }
    }
}

/// Header of a response.
struct ResponseHeader {
    size: u32,
    correlation_id: i32,
}

impl ResponseHeader {
    fn parse(bytes: &[u8]) -> Option<ResponseHeader> {
        let &[s0, s1, s2, s3, c0, c1, c2, c3] = bytes.first_chunk::<HEADER_BYTES>()?;
        Some(ResponseHeader {
            size: u32::from_be_bytes([s0, s1, s2, s3]),
            correlation_id: i32::from_be_bytes([c0, c1, c2, c3]),
        })
    }

    fn is_plausible(&self) -> bool {
        (4..=RESPONSE_BYTES_MAX).contains(&self.size)
    }
}
