//! Messages of both directions.

use super::message::{
    HEADER_BYTES, MessageHeader, QUESTION_BYTES_MAX, is_transfer, parse_question,
};
use super::question_table::QuestionTable;
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{
    FlowDirection, NotMeasuredReason, Operation, OperationOutcome, OperationSink, PacketTime,
    StatementSyntax,
};

/// The message that is being read.
#[derive(Default)]
pub(super) struct MessageState {
    header: Option<MessageHeader>,
    start: PacketTime,
    is_synchronised: bool,
    verb: Option<&'static str>,
    name: String,
}

impl MessageState {
    pub(super) fn memory(&self) -> usize {
        self.name.capacity()
    }
}

/// Reads messages of a direction.
pub(super) struct Messages<'a> {
    pub(super) direction: FlowDirection,
    pub(super) state: &'a mut MessageState,
    pub(super) table: &'a mut QuestionTable,
}

impl Messages<'_> {
    fn is_request(&self) -> bool {
        self.direction == FlowDirection::ToServer
    }

    fn answer(&mut self, header: &MessageHeader, time: PacketTime, sink: &mut dyn OperationSink) {
        let state = &mut *self.state;
        let question = header.has_question.then(|| Some((state.verb?, state.name.as_str())));
        // A question that is invalid is not one that was asked.
        if question == Some(None) {
            return;
        }
        let Some(question) = self.table.take(header.id, question.flatten()) else {
            let is_of_transfer = self.table.last_transfer == Some(header.id);
            if state.verb.is_some_and(is_transfer) {
                self.table.last_transfer = Some(header.id);
            }
            if self.table.may_miss_questions && !is_of_transfer {
                sink.not_measured(1, NotMeasuredReason::Gap);
            }
            return;
        };
        if is_transfer(question.verb) {
            self.table.last_transfer = Some(header.id);
        }
        // A response that began before its question is one to an earlier question of the same id.
        if !state.is_synchronised || state.start < question.start {
            sink.not_measured(1, NotMeasuredReason::Gap);
        } else if is_transfer(question.verb) {
            sink.not_measured(1, NotMeasuredReason::Limit);
        } else {
            sink.operation(&Operation {
                verb: question.verb,
                statement: &question.name,
                syntax: StatementSyntax::Name,
                is_wait: false,
                outcome: header.error().map_or(OperationOutcome::Ok, OperationOutcome::Error),
                request_start: question.start,
                request_end: question.end,
                response_start: state.start,
                response_end: time,
                request_bytes: question.bytes,
                response_bytes: header.bytes,
                rows: Some(u64::from(header.answers)),
                traceparent: None,
            });
        }
        self.table.texts.put_back(question.name);
    }
}

impl MessageHandler for Messages<'_> {
    type Header = MessageHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<MessageHeader> {
        // A datagram that is not a message of DNS; the next one is read again.
        let is_short = bytes.len() < HEADER_BYTES;
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return match bytes.first_chunk() {
                Some(length) if usize::from(u16::from_be_bytes(*length)) < HEADER_BYTES - 2 => {
                    HeaderParse::Implausible
                }
                _ if is_short => HeaderParse::Incomplete,
                _ => HeaderParse::Implausible,
            };
        };
        let header = MessageHeader::parse(header, self.is_request());
        let is_whole = header.bytes == bytes.len() as u64;
        if !header.is_plausible && !is_whole {
            return HeaderParse::Implausible;
        }
        HeaderParse::Message {
            header,
            header_bytes: HEADER_BYTES as u64,
            message_bytes: header.bytes,
        }
    }

    fn is_expected(&self, header: &MessageHeader) -> bool {
        header.is_plausible && (self.is_request() || self.table.is_known(header.id))
    }

    fn begin(
        &mut self,
        start: PacketTime,
        header: MessageHeader,
        bytes: u64,
        is_synchronised: bool,
        sink: &mut dyn OperationSink,
    ) {
        if !header.is_plausible {
            sink.unparsed(self.direction, bytes);
        }
        let state = &mut *self.state;
        state.header = header.is_plausible.then_some(header);
        state.start = start;
        state.is_synchronised = is_synchronised;
        state.verb = None;
        state.name.clear();
    }

    fn read_body(
        &mut self,
        bytes: &[u8],
        is_whole: bool,
        _: &mut dyn OperationSink,
    ) -> Option<u64> {
        let state = &mut *self.state;
        if let Some(header) = state.header.filter(|header| header.has_question) {
            if !is_whole && bytes.len() < QUESTION_BYTES_MAX {
                return None;
            }
            let question_type = parse_question(bytes, &mut state.name);
            state.verb = question_type.map(|question_type| header.verb(question_type));
        }
        Some(u64::MAX)
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let Some(header) = self.state.header.take() else { return };
        if !self.is_request() {
            return self.answer(&header, time, sink);
        }
        let state = &*self.state;
        if !state.is_synchronised {
            self.table.may_miss_questions = true;
        } else if let Some(verb) = state.verb {
            self.table.push(&header, verb, &state.name, (state.start, time), sink);
        }
    }

    fn on_gap(&mut self, sink: &mut dyn OperationSink) {
        let header = self.state.header.take();
        if self.is_request() {
            self.table.may_miss_questions = true;
        } else if let Some(header) = header {
            // Its question may be another one with this id.
            while let Some(question) = self.table.take(header.id, None) {
                self.table.texts.put_back(question.name);
                sink.not_measured(1, NotMeasuredReason::Gap);
            }
        }
    }

    fn on_resync(&mut self, sink: &mut dyn OperationSink) {
        self.lose_position(sink);
    }

    fn lose_position(&mut self, sink: &mut dyn OperationSink) {
        if self.is_request() {
            self.table.may_miss_questions = true;
            return;
        }
        // Questions in flight may have been answered. Their responses may still arrive.
        let questions = self.table.drain();
        if questions > 0 {
            sink.not_measured(questions, NotMeasuredReason::Gap);
            self.table.may_miss_questions = false;
        }
    }
}
