//! Requests of a connection.

use super::api::{KafkaApi, PLAUSIBLE_VERSION_MAX, SASL_AUTHENTICATE};
use super::fields::{FieldCursor, KafkaFieldValue, NumberField, request_fields, signed};
use super::in_flight_table::InFlightTable;
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{NotMeasuredReason, OperationSink, PacketTime};

/// Default of `socket.request.max.bytes` of a broker.
const REQUEST_BYTES_MAX: u32 = 100 << 20;

/// Size, API key, version, correlation id and length of the client id.
const HEADER_BYTES: usize = 14;

/// The request that is being read.
pub(super) struct RequestState {
    /// Its number in the table; `None` if it is not there.
    number: Option<u64>,
    is_beyond_limit: bool,
    cursor: FieldCursor,
}

impl RequestState {
    pub(super) fn new() -> RequestState {
        RequestState { number: None, is_beyond_limit: false, cursor: FieldCursor::at_end() }
    }
}

/// Reads requests into the table.
pub(super) struct KafkaRequests<'a> {
    pub(super) state: &'a mut RequestState,
    pub(super) table: &'a mut InFlightTable,
}

impl MessageHandler for KafkaRequests<'_> {
    type Header = RequestHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<RequestHeader> {
        parse_request(bytes, self.table.expects_raw_tokens)
    }

    /// A token without a header may be anything: it is read at a known position only.
    fn is_expected(&self, header: &RequestHeader) -> bool {
        !header.is_raw_token
    }

    fn begin(
        &mut self,
        start: PacketTime,
        header: RequestHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        let RequestHeader { api, version, is_raw_token, .. } = header;
        if !is_raw_token {
            self.table.expects_raw_tokens = false;
        }
        // The first request after a gap is only counted, when its response arrives.
        self.state.number = match is_synchronised {
            true => self.table.push(start, header.correlation_id, api, version),
            false => None,
        };
        self.state.is_beyond_limit = is_synchronised && self.state.number.is_none();
        if let Some(request) = self.table.newest(self.state.number) {
            request.bytes = bytes;
            request.is_raw_token = is_raw_token;
        }
        if self.state.is_beyond_limit {
            sink.not_measured(1, NotMeasuredReason::Limit);
        }
        let is_flexible = api.is_flexible(version);
        self.state.cursor = match is_raw_token {
            true => FieldCursor::at_end(),
            false => {
                FieldCursor::new(request_fields(api, version), version, is_flexible, is_flexible)
            }
        };
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, sink: &mut dyn OperationSink) -> Option<u64> {
        let RequestState { number, is_beyond_limit, cursor } = &mut *self.state;
        let (number, table) = (*number, &mut *self.table);
        let mut has_no_response = false;
        let taken = cursor.read(bytes, &mut |value| match value {
            KafkaFieldValue::Number(NumberField::Acks, 0) => has_no_response = true,
            KafkaFieldValue::TopicName(name) => table.add_topic(number, name),
            KafkaFieldValue::TopicId(id) => table.add_topic_id(number, id),
            KafkaFieldValue::Number(field, value) => {
                let Some(request) = table.newest(number) else { return };
                match field {
                    NumberField::MaxWaitMs => request.max_wait_ms = value,
                    NumberField::MinBytes => request.min_bytes = value,
                    NumberField::IsolationLevel => request.is_read_committed = value == 1,
                    NumberField::SessionEpoch => request.session_epoch = value,
                    _ => {}
                }
            }
            KafkaFieldValue::Batch { .. } => {}
        });
        if has_no_response {
            // The broker sends no response with `acks=0`.
            if table.remove_newest(number) {
                sink.not_measured(1, NotMeasuredReason::NoResponse);
            } else if *is_beyond_limit {
                table.beyond_limit = table.beyond_limit.saturating_sub(1);
            }
        }
        taken
    }

    fn end(&mut self, time: PacketTime, _: &mut dyn OperationSink) {
        if let Some(request) = self.table.newest(self.state.number) {
            request.end = time;
            request.is_complete = true;
        }
        self.table.resolve_topics(self.state.number);
    }

    fn on_gap(&mut self, _: &mut dyn OperationSink) {
        if let Some(request) = self.table.newest(self.state.number) {
            request.has_gap = true;
        }
    }

    /// Requests of which nothing is known may follow.
    fn lose_position(&mut self, _: &mut dyn OperationSink) {
        self.table.forget_state();
    }
}

/// Header of a request.
pub(super) struct RequestHeader {
    api: &'static KafkaApi,
    version: i16,
    correlation_id: i32,
    /// Whether it is only the size of a token of SASL.
    is_raw_token: bool,
}

/// Reads the header at the start of bytes. Without one, they may be a token of SASL.
fn parse_request(bytes: &[u8], expects_raw_token: bool) -> HeaderParse<RequestHeader> {
    let Some(size) = bytes.first_chunk::<4>() else { return HeaderParse::Incomplete };
    let size = u32::from_be_bytes(*size);
    let raw_token = || {
        let api = KafkaApi::of_key(SASL_AUTHENTICATE).filter(|_| expects_raw_token);
        match api.filter(|_| size <= REQUEST_BYTES_MAX) {
            None => HeaderParse::Implausible,
            Some(api) => HeaderParse::Message {
                header: RequestHeader { api, version: 0, correlation_id: 0, is_raw_token: true },
                header_bytes: 4,
                message_bytes: 4 + u64::from(size),
            },
        }
    };
    if size < HEADER_BYTES as u32 - 4 || size > REQUEST_BYTES_MAX {
        return raw_token();
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
    let correlation_id = i32::from_be_bytes([c0, c1, c2, c3]);
    match KafkaApi::of_key(i16::from_be_bytes([k0, k1])).filter(|_| is_plausible) {
        None => raw_token(),
        Some(api) => HeaderParse::Message {
            header: RequestHeader { api, version, correlation_id, is_raw_token: false },
            header_bytes: HEADER_BYTES as u64 + u64::try_from(client_id_bytes).unwrap_or(0),
            message_bytes: 4 + u64::from(size),
        },
    }
}
