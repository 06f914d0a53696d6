//! Requests in flight by stream id, prepared statements, and framing of the connection.

use std::collections::HashMap;
use std::sync::Arc;

use super::envelope::request_name;
use crate::id_hasher::BuildIdHasher;
use crate::observer::{NotMeasuredReason, OperationSink, PacketTime};
use crate::text_pool::TextPool;

/// Requests in flight, at most. Drivers allow 1,024 per connection by default; the protocol allows
/// 32,768.
const REQUESTS_MAX: usize = 1024;

/// Prepared statements of a connection, at most, and the size of their texts.
const PREPARED_MAX: usize = 1024;
const PREPARED_BYTES_MAX: usize = 128 << 10;

/// Stream ids are 0 to 32,767; negative ones are of the server.
const STREAM_IDS: usize = 1 << 15;

/// Compression of bodies, or of frames in version 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CqlCompression {
    Lz4,
    Snappy,
}

/// Format of envelopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFormat {
    /// None: versions 3 and 4, and the first messages of version 5.
    Envelopes,
    /// Frames of version 5.
    Frames { is_compressed: bool },
    /// Capture started in the middle.
    Unknown,
}

/// A request that was seen.
pub(super) struct CqlRequest {
    /// Number of the request on the connection.
    pub(super) number: u64,
    pub(super) opcode: u8,
    pub(super) version: u8,
    pub(super) is_complete: bool,
    /// Whether it is not measured: bytes were not captured, or it only confirms a position.
    pub(super) has_gap: bool,
    pub(super) start: PacketTime,
    pub(super) end: PacketTime,
    pub(super) bytes: u64,
    /// Text of a query, of a statement to prepare, or of a batch.
    pub(super) text: String,
    /// Text of the prepared statement that it executes.
    pub(super) prepared: Option<Arc<str>>,
    /// Whether the text lacks a prepared statement, whose text is unknown.
    pub(super) has_unknown_statement: bool,
}

impl CqlRequest {
    pub(super) fn verb(&self) -> &'static str {
        request_name(self.opcode).unwrap_or("UNKNOWN")
    }

    pub(super) fn statement(&self) -> &str {
        self.prepared.as_deref().unwrap_or(&self.text)
    }
}

/// Requests in flight, and the state of the connection.
pub(super) struct StreamTable {
    requests: HashMap<i16, CqlRequest, BuildIdHasher>,
    next_number: u64,
    /// Ids of requests that were counted as not measured before their response.
    counted: Option<Box<[u64; STREAM_IDS / 64]>>,
    pub(super) texts: TextPool,
    prepared: HashMap<Box<[u8]>, Arc<str>>,
    prepared_bytes: usize,
    /// Compression of STARTUP.
    pub(super) compression: Option<CqlCompression>,
    pub(super) framing: FrameFormat,
    /// Whether the response to STARTUP, or a later one, was seen.
    pub(super) is_framing_settled: bool,
}

impl StreamTable {
    pub(super) fn new(has_first_byte: bool) -> StreamTable {
        StreamTable {
            requests: HashMap::default(),
            next_number: 0,
            counted: None,
            texts: TextPool::default(),
            prepared: HashMap::new(),
            prepared_bytes: 0,
            compression: None,
            is_framing_settled: false,
            framing: if has_first_byte { FrameFormat::Envelopes } else { FrameFormat::Unknown },
        }
    }

    /// Adds a request.
    pub(super) fn insert(
        &mut self,
        stream: i16,
        mut request: CqlRequest,
        sink: &mut dyn OperationSink,
    ) -> u64 {
        request.number = self.next_number;
        request.text = self.texts.take();
        self.next_number += 1;
        let number = request.number;
        // A client reuses an id after its response, which was not captured then.
        if let Some(unanswered) = self.requests.remove(&stream) {
            sink.not_measured(1, NotMeasuredReason::Gap);
            self.texts.put_back(unanswered.text);
        }
        if self.requests.len() == REQUESTS_MAX {
            sink.not_measured(1, NotMeasuredReason::Limit);
            self.texts.put_back(request.text);
            self.set_counted(stream, true);
        } else {
            self.requests.insert(stream, request);
            self.set_counted(stream, false);
        }
        number
    }

    /// The request of a stream, if it has this number.
    pub(super) fn request(&mut self, stream: i16, number: u64) -> Option<&mut CqlRequest> {
        self.requests.get_mut(&stream).filter(|request| request.number == number)
    }

    pub(super) fn remove(&mut self, stream: i16) -> Option<CqlRequest> {
        self.requests.remove(&stream)
    }

    /// Whether a response of this stream is expected: its request is in flight, or was counted.
    pub(super) fn is_known(&self, stream: i16) -> bool {
        self.requests.contains_key(&stream) || self.is_counted(stream)
    }

    fn is_counted(&self, stream: i16) -> bool {
        let Some((word, bit)) = word_and_bit(stream) else { return false };
        self.counted.as_ref().is_some_and(|counted| counted[word] & bit != 0)
    }

    /// Whether the request of a stream was counted before its response. Forgets it.
    pub(super) fn take_counted(&mut self, stream: i16) -> bool {
        let is_counted = self.is_counted(stream);
        if is_counted {
            self.set_counted(stream, false);
        }
        is_counted
    }

    fn set_counted(&mut self, stream: i16, is_counted: bool) {
        let Some((word, bit)) = word_and_bit(stream) else { return };
        if is_counted {
            self.counted.get_or_insert_with(|| Box::new([0; STREAM_IDS / 64]))[word] |= bit;
        } else if let Some(counted) = &mut self.counted {
            counted[word] &= !bit;
        }
    }

    /// Removes all requests, whose responses may still arrive, and returns their number.
    pub(super) fn drain(&mut self) -> u64 {
        let mut requests = 0;
        for (stream, request) in std::mem::take(&mut self.requests) {
            self.texts.put_back(request.text);
            self.set_counted(stream, true);
            requests += 1;
        }
        requests
    }

    /// Appends to the text of a request.
    pub(super) fn push_text(&mut self, stream: i16, number: u64, text: &str) {
        let request = self.requests.get_mut(&stream).filter(|one| one.number == number);
        if let Some(request) = request {
            self.texts.push(&mut request.text, text);
        }
    }

    /// Appends to the text of a batch the separator of statements, if it is not empty.
    pub(super) fn separate_text(&mut self, stream: i16, number: u64) {
        if self.request(stream, number).is_some_and(|request| !request.text.is_empty()) {
            self.push_text(stream, number, "; ");
        }
    }

    /// Gives a request the text of a prepared statement.
    pub(super) fn resolve(&mut self, stream: i16, number: u64, id: &[u8], is_batch: bool) {
        let prepared = self.prepared.get(id).cloned();
        match prepared {
            Some(text) if is_batch => {
                self.separate_text(stream, number);
                self.push_text(stream, number, &text);
            }
            prepared => {
                if let Some(request) = self.request(stream, number) {
                    request.has_unknown_statement = prepared.is_none();
                    request.prepared = prepared;
                }
            }
        }
    }

    /// The last byte of a request has arrived.
    pub(super) fn complete(&mut self, stream: i16, number: u64, end: PacketTime) {
        let request = self.requests.get_mut(&stream).filter(|one| one.number == number);
        let Some(request) = request else { return };
        request.is_complete = true;
        request.end = end;
        if request.has_unknown_statement {
            self.texts.clear(&mut request.text);
        }
    }

    /// Remembers the text of a prepared statement.
    pub(super) fn prepare(&mut self, id: &[u8], text: &str) {
        let is_known = self.prepared.get(id).is_some_and(|known| **known == *text);
        let is_full = self.prepared.len() == PREPARED_MAX
            || self.prepared_bytes + text.len() > PREPARED_BYTES_MAX;
        if is_known || is_full || id.is_empty() || text.is_empty() {
            return;
        }
        self.prepared_bytes += text.len();
        if let Some(previous) = self.prepared.insert(id.into(), text.into()) {
            self.prepared_bytes -= previous.len();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &CqlRequest> {
        self.requests.values()
    }

    pub(super) fn memory(&self) -> usize {
        let texts: usize = self.requests.values().map(|request| request.text.capacity()).sum();
        let ids: usize = self.prepared.keys().map(|id| id.len()).sum();
        self.requests.capacity() * (size_of::<(i16, CqlRequest)>() + 1)
            + texts
            + self.texts.memory()
            + self.prepared.capacity() * (size_of::<(Box<[u8]>, Arc<str>)>() + 1)
            + ids
            + self.prepared_bytes
            + self.counted.as_ref().map_or(0, |_| STREAM_IDS / 8)
    }
}

fn word_and_bit(stream: i16) -> Option<(usize, u64)> {
    let stream = usize::try_from(stream).ok()?;
    Some((stream / 64, 1 << (stream % 64)))
}
