//! Spans of a request as bytes, with an index by trace id.

use std::collections::HashMap;

use decode::spans::trace::RawSpan;
use model::{LadderCell, TraceId};

/// Absent scope or resource, or a span that was taken.
const NONE: u32 = u32::MAX;
/// Least growth of the memory, in bytes.
const GROWTH_BYTES: usize = 512;

/// A span in [`SpanBytes`]; offsets of messages, each after its length of four bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanEntry {
    pub(crate) trace_id: TraceId,
    resource: u32,
    scope: u32,
    pub(crate) span: u32,
    /// Of a root, the cell of its duration.
    pub(crate) root: Option<LadderCell>,
}

/// Spans of a request or a segment.
#[derive(Debug, Default)]
pub(crate) struct SpanBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<SpanEntry>,
    /// Address, length and offset of the last resource and scope: requests repeat them.
    last: [(usize, usize, u32); 2],
    /// Traces that are kept because of a span that was accepted as an exemplar.
    pub(crate) kept: Vec<TraceId>,
    is_sorted: bool,
}

impl SpanBytes {
    pub(crate) fn push(&mut self, span: &RawSpan<'_>, root: Option<LadderCell>) {
        if self.bytes.len().saturating_add(span.span.len()) > (u32::MAX / 2) as usize {
            return;
        }
        let resource = self.put_shared(0, span.resource);
        let scope = self.put_shared(1, span.scope);
        let at = self.put(span.span);
        self.entries.push(SpanEntry { trace_id: span.trace_id, resource, scope, span: at, root });
        self.is_sorted = false;
    }

    fn put(&mut self, message: &[u8]) -> u32 {
        let at = self.bytes.len() as u32;
        let more = message.len() + 4;
        if more > self.bytes.capacity() - self.bytes.len() {
            // Doubling would take twice the memory of a large request.
            self.bytes.reserve_exact(more.max(self.bytes.len() / 8).max(GROWTH_BYTES));
        }
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
        self.is_sorted = false;
    }

    pub(crate) fn sort(&mut self) {
        if !self.is_sorted {
            self.entries.sort_unstable_by_key(|entry| (order(&entry.trace_id), entry.span));
            self.is_sorted = true;
        }
    }

    /// Whether it has spans of a trace.
    pub(crate) fn contains(&mut self, trace_id: &TraceId) -> bool {
        self.sort();
        let order_of = |entry: &SpanEntry| order(&entry.trace_id);
        self.entries.binary_search_by_key(&order(trace_id), order_of).is_ok()
    }

    /// Removes and returns entries of traces, which ascend, as far as there is room. Entries that
    /// never have room are removed too.
    pub(crate) fn take<'w>(
        &mut self,
        wanted: impl Iterator<Item = &'w mut WantedTrace>,
        room: &mut BatchRoom,
    ) -> Vec<SpanEntry> {
        let mut wanted = wanted.peekable();
        if wanted.peek().is_none() {
            return Vec::new();
        }
        self.sort();
        let (mut taken, mut at, mut removed) = (Vec::new(), 0, 0);
        for trace in wanted {
            let id = order(&trace.trace_id);
            at += self.entries[at..].partition_point(|entry| order(&entry.trace_id) < id);
            let mut last_shared = (NONE, NONE);
            while let Some(entry) = self.entries.get(at).filter(|it| it.trace_id == trace.trace_id)
            {
                let entry = *entry;
                let length = |at: u32| self.message(at).len();
                let (span, shared) = (length(entry.span), (entry.resource, entry.scope));
                let bytes = match shared == last_shared {
                    true => span,
                    false => span + length(entry.resource) + length(entry.scope),
                };
                at += 1;
                if span > trace.room || bytes > room.span_max {
                    trace.dropped += 1;
                } else if bytes > room.left {
                    trace.is_left = true;
                    continue;
                } else {
                    trace.room -= span;
                    room.left -= bytes;
                    last_shared = shared;
                    taken.push(entry);
                }
                removed += 1;
                self.entries[at - 1].span = NONE;
            }
        }
        if removed > 0 {
            self.entries.retain(|entry| entry.span != NONE);
        }
        taken
    }

    /// Reverses a [`take`](Self::take).
    pub(crate) fn put_back(&mut self, entries: Vec<SpanEntry>) {
        self.entries.extend(entries);
        self.is_sorted = false;
    }

    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<SpanEntry>()
    }
}

/// A trace whose spans a batch takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedTrace {
    pub(crate) trace_id: TraceId,
    /// Size of its further spans; beyond it they are dropped.
    pub(crate) room: usize,
    /// Number of spans that were dropped.
    pub(crate) dropped: usize,
    /// Whether spans stay where they are.
    pub(crate) is_left: bool,
    /// Whether the buffer may have spans of it.
    pub(crate) is_buffered: bool,
}

/// A number by which trace ids are in their order, which is faster to compare.
fn order(trace_id: &TraceId) -> u128 {
    u128::from_be_bytes(*trace_id)
}

/// How much a batch may take, as received: spans, and their resource and scope once per trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRoom {
    /// Beyond it spans stay where they are.
    pub(crate) left: usize,
    /// Beyond it a span, with its resource and scope, is dropped: no batch would have room.
    pub(crate) span_max: usize,
}
