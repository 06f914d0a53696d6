//! Responses of a connection.

use super::api::{FETCH, SASL_HANDSHAKE};
use super::error_code::error_name;
use super::fields::{FieldCursor, KafkaFieldValue, NumberField, response_fields};
use super::in_flight_table::{InFlightTable, KafkaRequest};
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{
    NotMeasuredReason, Operation, OperationOutcome, OperationSink, PacketTime, StatementSyntax,
};

/// Larger responses are not plausible: `fetch.max.bytes` is 50 MiB by default.
const RESPONSE_BYTES_MAX: u32 = 1 << 30;

/// Size and correlation id.
const HEADER_BYTES: usize = 8;

/// The response that is being read.
pub(super) struct ResponseState {
    /// Its request, unless that is unknown or not measured.
    request: Option<KafkaRequest>,
    start: PacketTime,
    bytes: u64,
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

impl ResponseState {
    pub(super) fn new() -> ResponseState {
        ResponseState {
            request: None,
            start: 0,
            bytes: 0,
            cursor: FieldCursor::at_end(),
            result: ResponseResult::default(),
        }
    }

    /// The request whose response is incomplete.
    pub(super) fn request(&self) -> Option<&KafkaRequest> {
        self.request.as_ref()
    }

    /// Ends the response that is incomplete, and returns the number of its requests.
    pub(super) fn forget(&mut self, table: &mut InFlightTable) -> u64 {
        let Some(request) = self.request.take() else { return 0 };
        table.texts.put_back(request.topics);
        1
    }

    pub(super) fn memory(&self) -> usize {
        let topics = self.request.as_ref().map_or(0, |request| request.topics.capacity());
        topics + self.result.topic_name.capacity()
    }
}

/// Reads responses to the requests of the table.
pub(super) struct KafkaResponses<'a> {
    pub(super) state: &'a mut ResponseState,
    pub(super) table: &'a mut InFlightTable,
}

impl KafkaResponses<'_> {
    /// Removes the request of a response, and those before it.
    fn take_request(
        &mut self,
        header: &ResponseHeader,
        sink: &mut dyn OperationSink,
    ) -> Option<KafkaRequest> {
        let position = match header.correlation_id {
            None => Some(0),
            Some(id) => self.table.position(id),
        };
        let Some(position) = position else {
            // The request was not captured.
            match self.table.beyond_limit {
                0 => sink.not_measured(1, NotMeasuredReason::Gap),
                _ => self.table.beyond_limit -= 1,
            }
            self.table.last_fetch_reached_end = None;
            return None;
        };
        // The broker responds in order: the older ones have been answered.
        for _ in 0..position {
            let older = self.table.pop();
            older.into_iter().for_each(|older| self.table.texts.put_back(older.topics));
        }
        if position > 0 {
            sink.not_measured(position as u64, NotMeasuredReason::Gap);
            self.table.last_fetch_reached_end = None;
        }
        self.table.pop()
    }
}

impl MessageHandler for KafkaResponses<'_> {
    type Header = ResponseHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<ResponseHeader> {
        let is_raw_token = self.table.oldest().is_some_and(|request| request.is_raw_token);
        parse_response(bytes, is_raw_token)
    }

    /// A token without a header may be anything: it is read at a known position only.
    fn is_expected(&self, header: &ResponseHeader) -> bool {
        header.correlation_id.is_some_and(|id| self.table.position(id).is_some())
    }

    fn begin(
        &mut self,
        start: PacketTime,
        header: ResponseHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        let mut request = self.take_request(&header, sink);
        // A response that began before its request is one to an earlier request of the same id.
        let is_affected = |request: &KafkaRequest| {
            !is_synchronised || !request.is_complete || request.has_gap || start < request.start
        };
        if let Some(request) = request.take_if(|request| is_affected(request)) {
            sink.not_measured(1, NotMeasuredReason::Gap);
            self.table.last_fetch_reached_end = None;
            self.table.texts.put_back(request.topics);
        }
        let state = &mut *self.state;
        state.cursor = match request.as_ref().filter(|request| !request.is_raw_token) {
            None => FieldCursor::at_end(),
            Some(KafkaRequest { api, version, .. }) => FieldCursor::new(
                response_fields(api, *version),
                *version,
                api.is_flexible(*version),
                api.is_response_header_flexible(*version),
            ),
        };
        (state.request, state.start, state.bytes) = (request, start, bytes);
        state.result.clear();
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, _: &mut dyn OperationSink) -> Option<u64> {
        let ResponseState { request, cursor, result, .. } = &mut *self.state;
        let is_read_committed = request.as_ref().is_some_and(|one| one.is_read_committed);
        cursor.read(bytes, &mut |value| match value {
            KafkaFieldValue::TopicName(name) => {
                result.topic_name.clear();
                result.topic_name.extend_from_slice(name);
            }
            KafkaFieldValue::TopicId(id) => {
                if let Ok(name) = std::str::from_utf8(&result.topic_name) {
                    self.table.name_topic(id, name);
                }
            }
            value => result.visit(&value, is_read_committed),
        })
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let ResponseState { request, start, bytes, result, .. } = &mut *self.state;
        let Some(request) = request.take() else { return };
        let table = &mut *self.table;
        result.end_partition();
        let is_fetch = request.api.key == FETCH;
        let is_ok = result.error.is_none();
        if request.api.key == SASL_HANDSHAKE && request.version == 0 && is_ok {
            table.expects_raw_tokens = true;
        }
        let mut is_wait = Some(request.api.is_wait());
        if is_fetch {
            let waited_ms = start.saturating_sub(request.end) / 1_000_000;
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
            None => sink.not_measured(1, NotMeasuredReason::Gap),
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
                response_start: *start,
                response_end: time,
                request_bytes: request.bytes,
                response_bytes: *bytes,
                rows: is_fetch.then_some(result.records),
                traceparent: None,
            }),
        }
        table.texts.put_back(request.topics);
    }

    fn on_gap(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.state.forget(self.table);
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
    }

    /// The requests in flight may have been answered by what was not captured.
    fn lose_position(&mut self, sink: &mut dyn OperationSink) {
        let requests = self.table.drain();
        if requests > 0 {
            sink.not_measured(requests, NotMeasuredReason::Gap);
        }
        self.table.beyond_limit = 0;
        self.table.forget_state();
    }
}

impl ResponseResult {
    fn clear(&mut self) {
        let mut topic_name = std::mem::take(&mut self.topic_name);
        topic_name.clear();
        *self = ResponseResult { topic_name, ..ResponseResult::default() };
    }

    fn visit(&mut self, value: &KafkaFieldValue<'_>, is_read_committed: bool) {
        match *value {
            KafkaFieldValue::Number(NumberField::ErrorCode, 0) => {}
            KafkaFieldValue::Number(NumberField::ErrorCode, code) => {
                self.error.get_or_insert(i16::try_from(code).unwrap_or(-1));
            }
            KafkaFieldValue::Number(NumberField::HighWatermark, offset) => {
                self.end_partition();
                self.partition_end = offset;
            }
            KafkaFieldValue::Number(NumberField::LastStableOffset, offset)
                if is_read_committed && offset >= 0 =>
            {
                self.partition_end = self.partition_end.min(offset);
            }
            KafkaFieldValue::Batch { records, end_offset } => {
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
pub(super) struct ResponseHeader {
    /// `None` for the response to a token of SASL, which has none.
    correlation_id: Option<i32>,
}

fn parse_response(bytes: &[u8], is_raw_token: bool) -> HeaderParse<ResponseHeader> {
    let Some(size) = bytes.first_chunk::<4>() else { return HeaderParse::Incomplete };
    let size = u32::from_be_bytes(*size);
    let message_bytes = 4 + u64::from(size);
    if is_raw_token {
        let header = ResponseHeader { correlation_id: None };
        return HeaderParse::Message { header, header_bytes: 4, message_bytes };
    }
    let Some(&[_, _, _, _, c0, c1, c2, c3]) = bytes.first_chunk::<HEADER_BYTES>() else {
        return HeaderParse::Incomplete;
    };
    if !(4..=RESPONSE_BYTES_MAX).contains(&size) {
        return HeaderParse::Implausible;
    }
    let correlation_id = Some(i32::from_be_bytes([c0, c1, c2, c3]));
    let header_bytes = HEADER_BYTES as u64;
    HeaderParse::Message { header: ResponseHeader { correlation_id }, header_bytes, message_bytes }
}
