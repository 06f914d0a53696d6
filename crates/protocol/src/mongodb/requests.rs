//! Requests of a connection.

use super::bson::{BsonValue, BsonVisitor, ElementAction};
use super::compressed_message::CompressedMessage;
use super::message::{
    HEADER_BYTES, MessageHeader, OP_COMPRESSED, command_name, has_collection, opcode_name,
};
use super::request_table::RequestTable;
use super::sections::{BodyCursor, BodyVisitor};
use crate::message_reader::{HeaderParse, MessageHandler};
use crate::observer::{NotMeasuredReason, OperationSink, PacketTime};

/// Documents of a request whose elements are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestLevel {
    Command,
    Pipeline,
    /// First stage of a pipeline.
    Stage,
}

/// The request that is being read.
pub(super) struct RequestState {
    id: i32,
    /// Whether it is in the table.
    is_in_table: bool,
    is_compressed: bool,
    cursor: BodyCursor<RequestLevel>,
    compressed: CompressedMessage,
    command: CommandElements,
}

/// What the elements of a command say.
#[derive(Default)]
struct CommandElements {
    name: Option<&'static str>,
    collection: String,
    database: String,
    cursor: Option<i64>,
    has_max_await_time: bool,
    has_max_time: bool,
    awaits_data: bool,
    is_change_stream: bool,
    /// `moreToCome`: the client wants no response.
    has_no_response: bool,
}

impl RequestState {
    pub(super) fn new() -> RequestState {
        RequestState {
            id: 0,
            is_in_table: false,
            is_compressed: false,
            cursor: BodyCursor::new(RequestLevel::Command),
            compressed: CompressedMessage::default(),
            command: CommandElements::default(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        self.compressed.memory()
            + self.command.collection.capacity()
            + self.command.database.capacity()
    }
}

impl CommandElements {
    fn clear(&mut self) {
        let mut collection = std::mem::take(&mut self.collection);
        let mut database = std::mem::take(&mut self.database);
        collection.clear();
        database.clear();
        *self = CommandElements { collection, database, ..CommandElements::default() };
    }
}

impl BsonVisitor<RequestLevel> for CommandElements {
    fn action(
        &mut self,
        level: RequestLevel,
        index: u32,
        name: &[u8],
    ) -> ElementAction<RequestLevel> {
        match (level, index, name) {
            // The first element is the command, with its collection or cursor.
            (RequestLevel::Command, 0, _) => {
                self.name = Some(command_name(name));
                ElementAction::Read
            }
            (
                RequestLevel::Command,
                _,
                b"collection" | b"$db" | b"maxAwaitTimeMS" | b"maxTimeMS" | b"awaitData",
            ) => ElementAction::Read,
            (RequestLevel::Command, _, b"pipeline") => ElementAction::Enter(RequestLevel::Pipeline),
            (RequestLevel::Pipeline, 0, _) => ElementAction::Enter(RequestLevel::Stage),
            (RequestLevel::Stage, 0, b"$changeStream") => {
                self.is_change_stream = true;
                ElementAction::Skip
            }
            _ => ElementAction::Skip,
        }
    }

    fn value(&mut self, _: RequestLevel, index: u32, name: &[u8], value: BsonValue<'_>) {
        match (index, name, value) {
            (0, _, BsonValue::Text(text)) | (_, b"collection", BsonValue::Text(text)) => {
                self.collection.clear();
                self.collection.push_str(text);
            }
            (0, _, BsonValue::Long(cursor)) => self.cursor = Some(cursor),
            (_, b"$db", BsonValue::Text(text)) => {
                self.database.clear();
                self.database.push_str(text);
            }
            (_, b"maxAwaitTimeMS", _) => self.has_max_await_time = true,
            (_, b"maxTimeMS", _) => self.has_max_time = true,
            (_, b"awaitData", BsonValue::Number(1.0)) => self.awaits_data = true,
            _ => {}
        }
    }
}

impl BodyVisitor<RequestLevel> for CommandElements {
    fn more_to_come(&mut self) {
        self.has_no_response = true;
    }

    fn collection(&mut self, name: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let (database, collection) = name.split_once('.').unwrap_or((&name, ""));
        self.database.push_str(database);
        if collection != "$cmd" {
            self.collection.push_str(collection);
        }
    }
}

/// Reads requests into the table.
pub(super) struct MongoRequests<'a> {
    pub(super) state: &'a mut RequestState,
    pub(super) table: &'a mut RequestTable,
}

impl MessageHandler for MongoRequests<'_> {
    type Header = MessageHeader;

    fn parse(&self, bytes: &[u8]) -> HeaderParse<MessageHeader> {
        parse_message(bytes, true)
    }

    fn is_expected(&self, _: &MessageHeader) -> bool {
        true
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
        state.is_compressed = header.opcode == OP_COMPRESSED;
        state.is_in_table = false;
        state.command.clear();
        state.cursor.start(header.opcode);
        if state.is_compressed {
            state.compressed.start(bytes - HEADER_BYTES as u64);
        }
        if header.has_no_response() {
            sink.not_measured(1, NotMeasuredReason::NoResponse);
        } else if is_synchronised {
            let command = opcode_name(header.opcode);
            state.is_in_table = self.table.push(header.request_id, command, start, bytes, sink);
        } else {
            self.table.may_miss_requests = true;
        }
    }

    fn read_body(&mut self, bytes: &[u8], _: bool, _: &mut dyn OperationSink) -> Option<u64> {
        let state = &mut *self.state;
        if state.is_compressed {
            state.compressed.push(bytes);
            return Some(bytes.len() as u64);
        }
        state.cursor.read(bytes, &mut state.command)
    }

    fn end(&mut self, time: PacketTime, sink: &mut dyn OperationSink) {
        let RequestState { id, is_in_table, is_compressed, cursor, compressed, command } =
            &mut *self.state;
        if *is_compressed {
            if let Some((opcode, body)) = compressed.decompress() {
                cursor.start(opcode);
                cursor.read_whole(body, command);
            }
            compressed.finish();
        }
        if !*is_in_table {
            return;
        }
        if command.has_no_response {
            let request = self.table.take(*id);
            request.into_iter().for_each(|request| self.table.texts.put_back(request.namespace));
            return sink.not_measured(1, NotMeasuredReason::NoResponse);
        }
        let is_waiting = command.cursor.is_some_and(|cursor| self.table.is_waiting_cursor(cursor));
        let has_collection = command.name.is_none_or(has_collection);
        if has_collection && !command.collection.is_empty() {
            self.table.set_namespace(*id, &command.database, &command.collection);
        }
        let Some(request) = self.table.newest(*id) else { return };
        request.is_complete = true;
        request.end = time;
        request.command = command.name.unwrap_or(request.command);
        // Only cursors that wait accept maxTimeMS in getMore.
        let is_get_more = request.command == "getMore";
        request.is_wait =
            command.has_max_await_time || (is_get_more && (command.has_max_time || is_waiting));
        request.opens_waiting_cursor = command.awaits_data || command.is_change_stream;
    }

    fn on_gap(&mut self, _: &mut dyn OperationSink) {
        if let Some(request) = self.table.newest(self.state.id) {
            request.has_gap = true;
        }
        self.state.compressed.finish();
    }

    fn lose_position(&mut self, _: &mut dyn OperationSink) {
        self.table.may_miss_requests = true;
    }
}

/// The header of a request or of a response.
pub(super) fn parse_message(bytes: &[u8], is_request: bool) -> HeaderParse<MessageHeader> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return HeaderParse::Incomplete;
    };
    match MessageHeader::parse(header, is_request) {
        None => HeaderParse::Implausible,
        Some(header) => HeaderParse::Message {
            header,
            header_bytes: HEADER_BYTES as u64,
            message_bytes: u64::from(header.bytes),
        },
    }
}
