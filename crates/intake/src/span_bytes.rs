//! Spans of a request as bytes, with an index by trace id.

use std::collections::HashMap;
use std::ops::Range;

use decode::spans::trace::RawSpan;
use model::TraceId;

/// Absent scope or resource.
const NONE: u32 = u32::MAX;

/// A span in [`SpanBytes`]; offsets of messages, each after its length of four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanEntry {
    pub(crate) trace_id: TraceId,
    resource: u32,
    scope: u32,
    pub(crate) span: u32,
}

/// Spans of a request or a segment.
#[derive(Debug, Default)]
pub(crate) struct SpanBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<SpanEntry>,
    /// Address, length and offset of the last resource and scope: requests repeat them.
    last: [(usize, usize, u32); 2],
    /// Traces with a span that was accepted as an exemplar.
    pub(crate) kept: Vec<TraceId>,
}

impl SpanBytes {
    pub(crate) fn push(&mut self, span: &RawSpan<'_>) {
        if self.bytes.len().saturating_add(span.span.len()) > (u32::MAX / 2) as usize {
            return;
        }
        let resource = self.put_shared(0, span.resource);
        let scope = self.put_shared(1, span.scope);
        let at = self.put(span.span);
        self.entries.push(SpanEntry { trace_id: span.trace_id, resource, scope, span: at });
    }

    /// Declares that a span of a trace was accepted as an exemplar.
    pub(crate) fn keep(&mut self, trace_id: TraceId) {
        self.kept.push(trace_id);
    }

    fn put(&mut self, message: &[u8]) -> u32 {
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(message);
        at
    }

    fn put_shared(&mut self, which: usize, message: &[u8]) -> u32 {
        let address = (message.as_ptr() as usize, message.len());
        let (start, length, at) = self.last[which];
        if message.is_empty() {
            NONE
        } else if (start, length) == address {
            at
        } else {
            let at = self.put(message);
            self.last[which] = (address.0, address.1, at);
            at
        }
    }

    pub(crate) fn message(&self, at: u32) -> &[u8] {
        let Some(rest) = self.bytes.get(at as usize..) else { return &[] };
        let Some((length, rest)) = rest.split_first_chunk() else { return &[] };
        rest.get(..u32::from_le_bytes(*length) as usize).unwrap_or_default()
    }

    pub(crate) fn span(&self, entry: &SpanEntry) -> RawSpan<'_> {
        RawSpan {
            trace_id: entry.trace_id,
            resource: self.message(entry.resource),
            scope: self.message(entry.scope),
            span: self.message(entry.span),
        }
    }

    /// Adds spans of another one. Addresses are not compared: those of this one may move.
    pub(crate) fn append(&mut self, other: &SpanBytes, entries: &[SpanEntry]) {
        let mut copied: HashMap<u32, u32> = HashMap::new();
        for entry in entries {
            let mut shared = |at: u32| match at {
                NONE => NONE,
                at => *copied.entry(at).or_insert_with(|| self.put(other.message(at))),
            };
            let (resource, scope) = (shared(entry.resource), shared(entry.scope));
            let span = self.put(other.message(entry.span));
            self.entries.push(SpanEntry { resource, scope, span, ..*entry });
        }
        self.last = Default::default();
    }

    pub(crate) fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.trace_id, entry.span));
    }

    /// Entries of a trace; they are sorted.
    fn range(&self, trace_id: &TraceId) -> Range<usize> {
        let start = self.entries.partition_point(|entry| entry.trace_id < *trace_id);
        let rest = &self.entries[start..];
        start..start + rest.partition_point(|entry| entry.trace_id == *trace_id)
    }

    /// Moves spans of a trace to another place; returns how many were dropped, and whether some
    /// stay.
    pub(crate) fn take(
        &mut self,
        trace_id: &TraceId,
        room: &mut TraceRoom,
        to: &mut SpanBytes,
    ) -> (usize, bool) {
        let range = self.range(trace_id);
        let (mut end, mut is_dropped) = (range.start, false);
        for entry in &self.entries[range.clone()] {
            let bytes = self.message(entry.span).len();
            is_dropped = bytes > room.trace;
            if is_dropped || bytes > room.batch {
                break;
            }
            room.trace -= bytes;
            room.batch -= bytes;
            end += 1;
        }
        if end > range.start {
            to.append(self, &self.entries[range.start..end]);
        }
        let rest = range.end - end;
        self.entries.drain(range.start..if is_dropped { range.end } else { end });
        if is_dropped { (rest, false) } else { (0, rest > 0) }
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<SpanEntry>()
    }
}

/// How much of a trace a batch may take, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceRoom {
    /// Beyond it spans are dropped.
    pub(crate) trace: usize,
    /// Beyond it spans stay where they are.
    pub(crate) batch: usize,
}
