//! Buffer of the spans of whole traces, until it is decided whether their trace is kept.
//!
//! A trace is kept if one of its spans is accepted as an exemplar: at once, with all of its spans
//! that are in the buffer, in the batch of the request with that span. Spans that come later follow
//! the id of their trace for 15 minutes. All others leave the buffer after a time, or earlier if
//! it is full.
//!
//! Spans are buffered as received, by request, in *segments* with an index by trace id: no table
//! changes for a span that is dropped later, and dropping is by segment. Small requests share one.
//!
//! A batch takes spans from the buffer before it is appended. If that fails, they come back to
//! their segments, and a later batch of any source takes them: spans of kept traces that are in the
//! buffer are *pending*. So a span is in the journal once, unless its sender repeats it. If the
//! batch is too large, they do not come back: they would make the next one too large as well.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use decode::spans::trace::{self, AttributeFilter, RawSpan};
use model::{BatchWriter, LadderCell, TraceId, TraceSpans, splitmix64};

use crate::meter::{EventCounter, Meter, MetricSnapshot, SnapshotValue};
use crate::span_bytes::{BatchRoom, SpanBytes, SpanEntry, WantedTrace};

/// Which traces are kept, and how long it takes to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracePolicy {
    /// Whether whole traces are kept; default: `true`.
    pub is_enabled: bool,
    /// How long spans wait for a span of their trace that is an exemplar; default: 30 s.
    pub buffer_time: Duration,
    /// Maximum memory of these spans; default: 64 MiB.
    pub buffer_bytes_max: usize,
    /// Maximum size of the spans of a trace as received; further ones are dropped. Default: 4 MiB.
    pub trace_bytes_max: usize,
}

impl Default for TracePolicy {
    fn default() -> TracePolicy {
        TracePolicy {
            is_enabled: true,
            buffer_time: Duration::from_secs(30),
            buffer_bytes_max: 64 << 20,
            trace_bytes_max: 4 << 20,
        }
    }
}

/// Time for which late spans follow a kept trace, in nanoseconds; up to twice as long.
pub(crate) const KEPT_NS: i64 = 15 * 60 * 1_000_000_000;
/// Ids of kept traces of that time. Beyond them the older half is forgotten: about 10 MB.
const KEPT_MAX: usize = 100_000;
/// Size from which a request has a segment of its own.
const SEGMENT_BYTES: usize = 256 << 10;
/// Age from which a segment takes no further requests, in nanoseconds.
const SEGMENT_AGE: i64 = 1_000_000_000;
/// Maximum size of the spans of a batch with their resources and scopes, as received; the next
/// batch has the rest.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How much larger spans may be as stored: a byte that is not UTF-8 becomes three, and short values
/// that are hashed may grow more; [`TraceBuffer::write`] checks the size.
const GROWTH_MAX: usize = 4;
/// Time after a refused batch in which batches take no spans, in nanoseconds: most are refused too.
const REFUSAL_PAUSE: i64 = 1_000_000_000;
/// Dropped traces that are remembered; twice as many take about 5 MB.
const DROPPED_MAX: usize = 100_000;
/// Shortest and longest duration of which roots are counted apart, in milliseconds.
const ROOT_DURATIONS: (f64, f64) = (1e-3, 1e6);
/// Size of an entry of a batch beside its spans: flags, trace id, length.
const TRACE_BYTES: usize = 22;

/// Requests of about the same time.
#[derive(Debug)]
struct SpanSegment {
    /// Ascending.
    number: u64,
    spans: SpanBytes,
    since: i64,
}

#[derive(Debug, Default)]
struct BufferState {
    segments: VecDeque<SpanSegment>,
    next_number: u64,
    memory: usize,
    /// Kept traces: since the last rotation, and before.
    kept: [HashMap<TraceId, KeptTrace>; 2],
    rotated_at: i64,
    pending: BTreeSet<TraceId>,
    refused_at: Option<i64>,
    /// The last traces that were dropped, by a hash of their id: the present ones, and those
    /// before. Whether their time was over.
    dropped: [HashMap<u64, bool>; 2],
    /// Roots of traces that were kept, dropped and evicted, by their duration.
    roots: BTreeMap<LadderCell, [u64; 3]>,
}

/// What became of a trace that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFate {
    /// It is kept.
    Kept,
    /// Its spans wait for the decision.
    Waiting,
    /// Its spans waited for as long as they do, and none of their traces was kept meanwhile.
    Dropped,
    /// Its spans were dropped earlier, because those that wait took too much memory.
    Evicted,
}

/// Traces in the journal, and why others are not, as metrics say it.
const OUTCOMES: [&str; 3] = ["kept", "dropped", "evicted"];

#[derive(Debug, Default)]
struct KeptTrace {
    /// Size of its spans as received, without those that are in the buffer.
    bytes: usize,
    /// Whether the journal does not say yet that spans were dropped.
    is_cut: bool,
}

/// Spans that a batch takes.
#[derive(Debug, Default)]
pub(crate) struct TakenSpans {
    /// Copies of those from the buffer.
    buffered: SpanBytes,
    /// The same by number of their segment.
    origins: Vec<(u64, Vec<SpanEntry>)>,
    /// From the request itself.
    own: Vec<SpanEntry>,
    cut: BTreeSet<TraceId>,
    /// Traces that are kept since.
    newly_kept: Vec<TraceId>,
    /// Number of spans that the batch has no room for.
    left_out: usize,
}

/// Why the spans that a batch took are not in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanFailure {
    /// The batch is not either: its sender repeats it, or has repeated it.
    Refused,
    /// The batch is not either, because it is too large.
    TooLarge,
    /// The batch is in the journal without sections.
    Stripped,
}

#[derive(Debug, Default)]
struct TraceCounters {
    traces: EventCounter,
    written: EventCounter,
    expired: EventCounter,
    evicted: EventCounter,
    cut: EventCounter,
    truncated: EventCounter,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct TraceBuffer {
    policy: TracePolicy,
    state: Mutex<BufferState>,
    /// Whether there are segments.
    is_used: AtomicBool,
    counters: TraceCounters,
}

impl TraceBuffer {
    pub(crate) fn new(policy: TracePolicy, meter: &Meter) -> TraceBuffer {
        let spans = |outcome| {
            let about = "Spans whose trace was decided on, by outcome";
            meter.counter("topdeck_trace_spans_total", about, &[("outcome", outcome)])
        };
        let counter = |name, about| meter.counter(name, about, &[]);
        let counters = TraceCounters {
            traces: counter("topdeck_traces_kept_total", "Traces kept because of an exemplar"),
            written: spans("kept"),
            expired: spans("dropped"),
            evicted: spans("evicted"),
            cut: spans("over_trace_limit"),
            truncated: counter(
                "topdeck_trace_spans_truncated_total",
                "Kept spans with attributes or texts cut off or left out because of their size",
            ),
        };
        TraceBuffer { policy, counters, ..TraceBuffer::default() }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.policy.is_enabled
    }

    /// Memory of the buffered spans, and numbers of traces, as metrics.
    pub(crate) fn snapshot(&self, all: &mut Vec<MetricSnapshot>) {
        let state = self.lock();
        all.push(MetricSnapshot {
            name: "topdeck_trace_buffer_bytes",
            help: "Memory of spans whose trace is not decided on in bytes",
            labels: Vec::new(),
            value: SnapshotValue::Gauge(state.memory as f64),
        });
        for (cell, counts) in &state.roots {
            for (outcome, count) in OUTCOMES.iter().zip(counts).filter(|(_, count)| **count > 0) {
                let from = ("from_ms".to_owned(), cell.bounds().start.to_string());
                all.push(MetricSnapshot {
                    name: "topdeck_traces_total",
                    help: "Traces whose root was received, by outcome and duration of the root",
                    labels: vec![from, ("outcome".to_owned(), (*outcome).to_owned())],
                    value: SnapshotValue::Counter(*count as f64),
                });
            }
        }
    }

    /// Numbers of traces whose root was received: kept, dropped, evicted.
    pub(crate) fn root_counts(&self) -> [u64; 3] {
        let state = self.lock();
        state.roots.values().fold([0; 3], |sum, of| [0, 1, 2].map(|at| sum[at] + of[at]))
    }

    /// What became of a trace, if that is remembered.
    pub(crate) fn fate(&self, trace_id: &TraceId) -> Option<TraceFate> {
        let mut state = self.lock();
        if state.kept(trace_id).is_some() {
            return Some(TraceFate::Kept);
        }
        if state.segments.iter_mut().any(|segment| segment.spans.contains(trace_id)) {
            return Some(TraceFate::Waiting);
        }
        let known = state.dropped.iter().find_map(|of| of.get(&hash_of(trace_id)));
        known.map(|is_over| if *is_over { TraceFate::Dropped } else { TraceFate::Evicted })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Late spans follow these traces, which were kept before the start of the process. The latest
    /// are at both ends: of a store those of its memory come first, then those of its parts, from
    /// the oldest one.
    pub(crate) fn restore(&self, mut trace_ids: Vec<TraceId>, now: i64) {
        let mut state = self.lock();
        state.rotated_at = now;
        let first = trace_ids.len().min(KEPT_MAX / 2);
        let last = trace_ids.split_off(first);
        let skipped = last.len().saturating_sub(KEPT_MAX / 2);
        let kept = |ids: Vec<TraceId>, skipped| {
            ids.into_iter().skip(skipped).map(|trace_id| (trace_id, KeptTrace::default())).collect()
        };
        state.kept = [kept(trace_ids, 0), kept(last, skipped)];
    }

    /// How much a batch may take that has `left` of at most `max` bytes left.
    pub(crate) fn room(left: usize, max: usize) -> BatchRoom {
        BatchRoom {
            left: (left / GROWTH_MAX).min(BATCH_BYTES_MAX),
            // A batch that is not filled by samples has this room.
            span_max: (max / (GROWTH_MAX + 1)).min(BATCH_BYTES_MAX),
        }
    }

    /// Whether a batch with these spans may take some.
    pub(crate) fn has_work(&self, request: &SpanBytes) -> bool {
        !request.entries.is_empty() || self.is_used.load(Ordering::Relaxed)
    }

    /// A batch is refused for now: the next ones take no spans.
    pub(crate) fn pause(&self, now: i64) {
        self.lock().refused_at = Some(now);
    }

    /// Takes the spans of kept traces out of a request and out of the buffer.
    pub(crate) fn take(
        &self,
        request: &mut SpanBytes,
        mut room: BatchRoom,
        now: i64,
    ) -> TakenSpans {
        let mut taken = TakenSpans::default();
        if !self.has_work(request) {
            return taken;
        }
        request.sort();
        let state = &mut *self.lock();
        self.expire(state, now);
        if state.refused_at.is_some_and(|at| (0..REFUSAL_PAUSE).contains(&now.saturating_sub(at))) {
            return taken;
        }
        let mut wanted = std::mem::take(&mut state.pending);
        for trace_id in std::mem::take(&mut request.kept) {
            if state.keep(trace_id) {
                taken.newly_kept.push(trace_id);
                wanted.insert(trace_id);
            }
        }
        // Of other kept traces the buffer has no spans: it is not searched for them.
        let mut wanted: BTreeMap<TraceId, bool> = wanted.into_iter().map(|id| (id, true)).collect();
        for group in request.entries.chunk_by(|a, b| a.trace_id == b.trace_id) {
            let Some(SpanEntry { trace_id, .. }) = group.first() else { continue };
            if state.kept(trace_id).is_some() {
                wanted.entry(*trace_id).or_default();
            }
        }
        let mut room_of = |trace_id| {
            let used = state.kept(&trace_id).map_or(0, |kept| kept.bytes);
            self.policy.trace_bytes_max.saturating_sub(used)
        };
        let mut wanted: Vec<WantedTrace> = wanted
            .into_iter()
            .map(|(trace_id, is_buffered)| {
                let room = room_of(trace_id);
                WantedTrace { trace_id, room, dropped: 0, is_left: false, is_buffered }
            })
            .collect();
        let rooms: Vec<usize> = wanted.iter().map(|trace| trace.room).collect();
        for segment in &mut state.segments {
            let buffered = wanted.iter_mut().filter(|trace| trace.is_buffered);
            let entries = segment.spans.take(buffered, &mut room);
            if !entries.is_empty() {
                taken.buffered.append(&segment.spans, &entries);
                taken.origins.push((segment.number, entries));
            }
        }
        taken.own = request.take(wanted.iter_mut(), &mut room);
        for (trace, before) in wanted.iter().zip(rooms) {
            self.counters.cut.add(trace.dropped as u64);
            if trace.is_left {
                state.pending.insert(trace.trace_id);
            }
            if let Some(kept) = state.kept(&trace.trace_id) {
                kept.bytes = kept.bytes.saturating_add(before - trace.room);
                if trace.dropped > 0 || std::mem::take(&mut kept.is_cut) {
                    taken.cut.insert(trace.trace_id);
                }
            }
        }
        taken
    }

    /// Writes taken spans to their batch, at most `bytes_max` bytes.
    pub(crate) fn write(
        &self,
        taken: &mut TakenSpans,
        request: &SpanBytes,
        (filter, bytes_max): (AttributeFilter<'_>, usize),
        batch: &mut BatchWriter,
    ) {
        let buffered = taken.buffered.entries.iter().map(|entry| taken.buffered.span(entry));
        let own = taken.own.iter().map(|entry| request.span(entry));
        let (mut resources, mut scopes) = (SharedMessages::default(), SharedMessages::default());
        let mut spans: Vec<((TraceId, usize, usize), RawSpan<'_>)> = buffered
            .chain(own)
            .map(|mut span| {
                let places = (resources.share(&mut span.resource), scopes.share(&mut span.scope));
                ((span.trace_id, places.0, places.1), span)
            })
            .collect();
        spans.sort_unstable_by_key(|(place, _)| *place);
        let spans: Vec<RawSpan<'_>> = spans.into_iter().map(|(_, span)| span).collect();
        let mut cut = taken.cut.clone();
        let (mut encoded, mut truncated, mut left_out) = (Vec::new(), 0, 0);
        let mut room = bytes_max.saturating_sub(cut.len() * TRACE_BYTES);
        for of_trace in spans.chunk_by(|a, b| a.trace_id == b.trace_id) {
            let Some(first) = of_trace.first() else { continue };
            encoded.clear();
            let shortened = trace::encode(of_trace, filter, &mut encoded);
            match room.checked_sub(encoded.len() + TRACE_BYTES) {
                Some(rest) => {
                    room = rest;
                    truncated += shortened;
                    let is_cut = cut.remove(&first.trace_id);
                    batch.trace(TraceSpans { trace_id: first.trace_id, is_cut, spans: &encoded });
                }
                None => {
                    left_out += of_trace.len();
                    room = room.saturating_sub(TRACE_BYTES);
                    cut.insert(first.trace_id);
                }
            }
        }
        for trace_id in cut {
            batch.trace(TraceSpans { trace_id, is_cut: true, spans: &[] });
        }
        taken.left_out = left_out;
        if truncated > 0 {
            self.counters.truncated.add(truncated);
        }
    }

    /// The batch is in the journal: the rest of the request is buffered.
    pub(crate) fn commit(&self, taken: &TakenSpans, mut rest: SpanBytes, now: i64) {
        let found = taken.buffered.entries.len() + taken.own.len();
        if found > 0 {
            let mut state = self.lock();
            for entry in taken.buffered.entries.iter().chain(&taken.own) {
                state.count_root(entry, 0);
            }
            drop(state);
            self.counters.written.add((found - taken.left_out) as u64);
            self.counters.cut.add(taken.left_out as u64);
        }
        let mut newly_kept = taken.newly_kept.len();
        if !rest.kept.is_empty() {
            // Batches take no spans at the moment.
            let state = &mut *self.lock();
            for trace_id in std::mem::take(&mut rest.kept) {
                newly_kept += usize::from(state.keep(trace_id));
                state.pending.insert(trace_id);
            }
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.counters.traces.add(newly_kept as u64);
        self.add(rest, now);
    }

    /// What a batch took is not in the journal: it comes back. Spans of the request itself do only
    /// if its sender does not repeat them.
    pub(crate) fn put_back(
        &self,
        taken: TakenSpans,
        mut request: SpanBytes,
        why: SpanFailure,
        now: i64,
    ) {
        let TakenSpans { buffered, mut origins, own, cut, mut newly_kept, .. } = taken;
        {
            let state = &mut *self.lock();
            for (spans, entries) in [(&buffered, &buffered.entries), (&request, &own)] {
                for entry in entries {
                    if let Some(kept) = state.kept(&entry.trace_id) {
                        kept.bytes = kept.bytes.saturating_sub(spans.message(entry.span).len());
                    }
                }
            }
            if why != SpanFailure::Stripped {
                // No exemplar of it is stored, unless that of another request is.
                newly_kept.retain(|trace_id| !state.forget_unused(trace_id));
            }
            for trace_id in cut {
                state.mark_cut(&trace_id);
            }
            for (number, entries) in origins.drain(..) {
                let at = state.segments.binary_search_by_key(&number, |segment| segment.number);
                match at.ok().filter(|_| why != SpanFailure::TooLarge) {
                    Some(at) => state.put_back(at, entries),
                    // It is over, or the next batch would be too large as well.
                    None => {
                        self.counters.cut.add(entries.len() as u64);
                        entries.iter().for_each(|entry| state.mark_cut(&entry.trace_id));
                    }
                }
            }
            self.is_used.store(true, Ordering::Relaxed);
        }
        self.counters.traces.add(newly_kept.len() as u64);
        if why == SpanFailure::Stripped {
            request.put_back(own);
            self.add(request, now);
        }
    }

    /// Adds spans of a request.
    fn add(&self, mut spans: SpanBytes, now: i64) {
        if spans.entries.is_empty() {
            return;
        }
        let state = &mut *self.lock();
        state.mark_pending(&spans.entries);
        let last = state.segments.back_mut().filter(|last| {
            last.spans.bytes.len() + spans.bytes.len() <= SEGMENT_BYTES
                && now.saturating_sub(last.since) < SEGMENT_AGE
        });
        let (before, after) = match last {
            Some(last) => {
                let before = last.spans.memory();
                last.spans.append(&spans, &spans.entries);
                (before, last.spans.memory())
            }
            None => {
                if spans.bytes.len() > SEGMENT_BYTES / 2 {
                    spans.bytes.shrink_to_fit();
                    spans.entries.shrink_to_fit();
                }
                let (memory, number) = (spans.memory(), state.next_number);
                state.next_number += 1;
                state.segments.push_back(SpanSegment { number, spans, since: now });
                (0, memory)
            }
        };
        state.memory = state.memory.saturating_sub(before).saturating_add(after);
        self.is_used.store(true, Ordering::Relaxed);
        while state.memory > self.policy.buffer_bytes_max && !state.segments.is_empty() {
            self.pop(state, false);
        }
    }

    /// Drops the oldest segment, because its time is over or there are too many.
    fn pop(&self, state: &mut BufferState, is_over: bool) {
        let Some(segment) = state.segments.pop_front() else { return };
        state.memory = state.memory.saturating_sub(segment.spans.memory());
        let mut cut = 0;
        if !state.pending.is_empty() {
            for group in segment.spans.entries.chunk_by(|a, b| a.trace_id == b.trace_id) {
                let Some(first) = group.first() else { continue };
                if state.pending.contains(&first.trace_id) {
                    state.mark_cut(&first.trace_id);
                    cut += group.len();
                }
            }
        }
        for group in segment.spans.entries.chunk_by(|a, b| a.trace_id == b.trace_id) {
            let Some(first) = group.first() else { continue };
            if state.kept(&first.trace_id).is_some() {
                continue;
            }
            if state.dropped[0].len() >= DROPPED_MAX {
                state.dropped[1] = std::mem::take(&mut state.dropped[0]);
            }
            state.dropped[0].insert(hash_of(&first.trace_id), is_over);
            group.iter().for_each(|entry| state.count_root(entry, if is_over { 1 } else { 2 }));
        }
        self.counters.cut.add(cut as u64);
        let counter = if is_over { &self.counters.expired } else { &self.counters.evicted };
        counter.add((segment.spans.entries.len() - cut) as u64);
    }

    fn expire(&self, state: &mut BufferState, now: i64) {
        let time = i64::try_from(self.policy.buffer_time.as_nanos()).unwrap_or(i64::MAX);
        let is_over = |segment: &SpanSegment| segment.since.saturating_add(time) <= now;
        while state.segments.front().is_some_and(is_over) {
            self.pop(state, true);
        }
        let is_used = !(state.segments.is_empty() && state.pending.is_empty());
        self.is_used.store(is_used, Ordering::Relaxed);
        let age = now.saturating_sub(state.rotated_at);
        if age >= KEPT_NS || state.kept[0].len() >= KEPT_MAX / 2 {
            state.kept[1] = std::mem::take(&mut state.kept[0]);
            state.rotated_at = now;
        }
    }
}

/// A hash of a trace id.
fn hash_of(trace_id: &TraceId) -> u64 {
    let id = u128::from_le_bytes(*trace_id);
    splitmix64(id as u64) ^ (id >> 64) as u64
}

impl BufferState {
    /// Counts a root with an outcome.
    fn count_root(&mut self, entry: &SpanEntry, outcome: usize) {
        let Some(cell) = entry.root else { return };
        let (first, last) = ROOT_DURATIONS;
        let cell = cell.clamp(LadderCell::of(first), LadderCell::of(last));
        self.roots.entry(cell).or_default()[outcome] += 1;
    }

    /// Whether the trace was not kept before.
    fn keep(&mut self, trace_id: TraceId) -> bool {
        let is_new = self.kept(&trace_id).is_none();
        if is_new {
            self.kept[0].insert(trace_id, KeptTrace::default());
        }
        is_new
    }

    fn kept(&mut self, trace_id: &TraceId) -> Option<&mut KeptTrace> {
        let [young, old] = &mut self.kept;
        young.get_mut(trace_id).or_else(|| old.get_mut(trace_id))
    }

    /// Whether the trace is forgotten: no span of it is in a batch.
    fn forget_unused(&mut self, trace_id: &TraceId) -> bool {
        let is_unused = self.kept(trace_id).is_some_and(|kept| kept.bytes == 0 && !kept.is_cut);
        if is_unused {
            for kept in &mut self.kept {
                kept.remove(trace_id);
            }
            self.pending.remove(trace_id);
        }
        is_unused
    }

    /// The journal is to say that spans of the trace were dropped.
    fn mark_cut(&mut self, trace_id: &TraceId) {
        if let Some(kept) = self.kept(trace_id) {
            kept.is_cut = true;
            self.pending.insert(*trace_id);
        }
    }

    /// Spans that are in the buffer, or come there.
    fn mark_pending(&mut self, entries: &[SpanEntry]) {
        for group in entries.chunk_by(|a, b| a.trace_id == b.trace_id) {
            if let Some(first) = group.first()
                && self.kept(&first.trace_id).is_some()
            {
                self.pending.insert(first.trace_id);
            }
        }
    }

    /// Spans come back to their segment.
    fn put_back(&mut self, at: usize, entries: Vec<SpanEntry>) {
        self.mark_pending(&entries);
        if let Some(segment) = self.segments.get_mut(at) {
            let before = segment.spans.memory();
            segment.spans.put_back(entries);
            let after = segment.spans.memory();
            self.memory = self.memory.saturating_sub(before).saturating_add(after);
        }
    }
}

/// Equal messages of spans, such as resources: each is compared once.
#[derive(Debug, Default)]
struct SharedMessages<'a> {
    /// By address and length.
    known: HashMap<(usize, usize), (usize, &'a [u8])>,
    distinct: HashMap<&'a [u8], (usize, &'a [u8])>,
}

impl<'a> SharedMessages<'a> {
    /// Replaces a message by the first one that is equal; returns its number.
    fn share(&mut self, message: &mut &'a [u8]) -> usize {
        let place = (message.as_ptr() as usize, message.len());
        let (known, distinct) = (&mut self.known, &mut self.distinct);
        let (number, first) = *known.entry(place).or_insert_with(|| {
            let next = distinct.len();
            *distinct.entry(*message).or_insert((next, *message))
        });
        *message = first;
        number
    }
}

#[cfg(test)]
mod tests;
