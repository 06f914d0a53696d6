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
//! A batch takes spans from the buffer before it is appended. If that fails, they come back, and
//! the next batch of any source takes them: spans of kept traces that are in the buffer are
//! *pending*. So a span is in the journal once, unless its sender repeats it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use decode::spans::trace::{self, AttributeFilter, RawSpan};
use model::{BatchWriter, TraceId, TraceSpans};

use crate::meter::{EventCounter, Meter, MetricSnapshot, SnapshotValue};
use crate::span_bytes::{SpanBytes, TraceRoom};

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
/// Maximum size of the spans of a batch, as received; the next batch has the rest.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Requests of about the same time; sorted.
#[derive(Debug)]
struct SpanSegment {
    spans: SpanBytes,
    since: i64,
}

#[derive(Debug, Default)]
struct BufferState {
    segments: VecDeque<SpanSegment>,
    memory: usize,
    /// Kept traces: since the last rotation, and before.
    kept: [HashMap<TraceId, KeptTrace>; 2],
    rotated_at: i64,
    pending: BTreeSet<TraceId>,
}

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
    /// From the buffer.
    buffered: SpanBytes,
    /// From the request itself.
    own: SpanBytes,
    cut: BTreeSet<TraceId>,
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

    /// Memory of the buffered spans, as a metric.
    pub(crate) fn snapshot(&self) -> MetricSnapshot {
        MetricSnapshot {
            name: "topdeck_trace_buffer_bytes",
            help: "Memory of spans whose trace is not decided on in bytes",
            labels: Vec::new(),
            value: SnapshotValue::Gauge(self.lock().memory as f64),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Late spans follow these traces, which were kept before the start of the process.
    pub(crate) fn restore(&self, trace_ids: Vec<TraceId>, now: i64) {
        let mut state = self.lock();
        state.rotated_at = now;
        trace_ids.into_iter().take(KEPT_MAX / 2).for_each(|trace_id| {
            state.keep(trace_id);
        });
    }

    /// Takes the spans of kept traces out of a request and out of the buffer, at most `room` bytes.
    pub(crate) fn take(&self, request: &mut SpanBytes, room: usize, now: i64) -> TakenSpans {
        let mut taken = TakenSpans::default();
        if request.entries.is_empty() && !self.is_used.load(Ordering::Relaxed) {
            return taken;
        }
        request.sort();
        let state = &mut *self.lock();
        self.expire(state, now);
        let mut wanted = std::mem::take(&mut state.pending);
        for trace_id in std::mem::take(&mut request.kept) {
            if state.keep(trace_id) {
                self.counters.traces.add(1);
                wanted.insert(trace_id);
            }
        }
        let ids = request.entries.chunk_by(|a, b| a.trace_id == b.trace_id);
        let ids = ids.filter_map(|group| Some(group.first()?.trace_id));
        wanted.extend(ids.filter(|id| state.kept(id).is_some()));
        let mut batch_room = room.min(BATCH_BYTES_MAX);
        for trace_id in wanted {
            let used = state.kept(&trace_id).map_or(0, |kept| kept.bytes);
            let left = self.policy.trace_bytes_max.saturating_sub(used);
            let mut room = TraceRoom { trace: left, batch: batch_room };
            let (mut dropped, mut is_left) = (0, false);
            let mut count = |(more, stays): (usize, bool)| {
                dropped += more;
                is_left |= stays;
            };
            for segment in &mut state.segments {
                count(segment.spans.take(&trace_id, &mut room, &mut taken.buffered));
            }
            count(request.take(&trace_id, &mut room, &mut taken.own));
            batch_room = room.batch;
            self.counters.cut.add(dropped as u64);
            if is_left {
                state.pending.insert(trace_id);
            }
            if let Some(kept) = state.kept(&trace_id) {
                kept.bytes = kept.bytes.saturating_add(left - room.trace);
                if dropped > 0 || std::mem::take(&mut kept.is_cut) {
                    taken.cut.insert(trace_id);
                }
            }
        }
        taken
    }

    /// Writes taken spans to their batch.
    pub(crate) fn write(
        &self,
        taken: &TakenSpans,
        filter: AttributeFilter<'_>,
        batch: &mut BatchWriter,
    ) {
        let sources = [&taken.buffered, &taken.own];
        let entries =
            sources.iter().flat_map(|of| of.entries.iter().map(move |entry| of.span(entry)));
        let mut spans: Vec<RawSpan<'_>> = entries.collect();
        spans.sort_unstable_by_key(|span| (span.trace_id, span.resource, span.scope));
        let mut cut = taken.cut.clone();
        let (mut encoded, mut truncated) = (Vec::new(), 0);
        for of_trace in spans.chunk_by(|a, b| a.trace_id == b.trace_id) {
            let Some(first) = of_trace.first() else { continue };
            encoded.clear();
            truncated += trace::encode(of_trace, filter, &mut encoded);
            let is_cut = cut.remove(&first.trace_id);
            batch.trace(TraceSpans { trace_id: first.trace_id, is_cut, spans: &encoded });
        }
        for trace_id in cut {
            batch.trace(TraceSpans { trace_id, is_cut: true, spans: &[] });
        }
        if truncated > 0 {
            self.counters.truncated.add(truncated);
        }
    }

    /// The batch is in the journal: the rest of the request is buffered.
    pub(crate) fn commit(&self, taken: &TakenSpans, mut rest: SpanBytes, now: i64) {
        let written = taken.buffered.entries.len() + taken.own.entries.len();
        if written > 0 {
            self.counters.written.add(written as u64);
        }
        rest.sort();
        self.add(rest, now);
    }

    /// The batch is not in the journal, or without spans: what it took comes back. Spans of the
    /// request itself do only if its sender does not repeat them.
    pub(crate) fn put_back(&self, taken: TakenSpans, request: Option<SpanBytes>, now: i64) {
        let TakenSpans { mut buffered, own, cut } = taken;
        {
            let state = &mut *self.lock();
            for spans in [&buffered, &own] {
                for entry in &spans.entries {
                    if let Some(kept) = state.kept(&entry.trace_id) {
                        kept.bytes = kept.bytes.saturating_sub(spans.message(entry.span).len());
                    }
                }
            }
            for trace_id in cut {
                if let Some(kept) = state.kept(&trace_id) {
                    kept.is_cut = true;
                    state.pending.insert(trace_id);
                }
            }
            self.is_used.store(true, Ordering::Relaxed);
        }
        if request.is_some() {
            buffered.append(&own, &own.entries);
        }
        for mut spans in [Some(buffered), request].into_iter().flatten() {
            spans.sort();
            self.add(spans, now);
        }
    }

    /// Adds sorted spans.
    fn add(&self, mut spans: SpanBytes, now: i64) {
        if spans.entries.is_empty() {
            return;
        }
        let state = &mut *self.lock();
        for group in spans.entries.chunk_by(|a, b| a.trace_id == b.trace_id) {
            if let Some(first) = group.first()
                && state.kept(&first.trace_id).is_some()
            {
                state.pending.insert(first.trace_id);
            }
        }
        let last = state.segments.back_mut().filter(|last| {
            last.spans.bytes.len() + spans.bytes.len() <= SEGMENT_BYTES
                && now.saturating_sub(last.since) < SEGMENT_AGE
        });
        let (before, after) = match last {
            Some(last) => {
                let before = last.spans.memory();
                last.spans.append(&spans, &spans.entries);
                last.spans.sort();
                (before, last.spans.memory())
            }
            None => {
                if spans.bytes.len() > SEGMENT_BYTES / 2 {
                    spans.bytes.shrink_to_fit();
                    spans.entries.shrink_to_fit();
                }
                let memory = spans.memory();
                state.segments.push_back(SpanSegment { spans, since: now });
                (0, memory)
            }
        };
        state.memory = state.memory.saturating_sub(before).saturating_add(after);
        self.is_used.store(true, Ordering::Relaxed);
        while state.memory > self.policy.buffer_bytes_max {
            let Some(oldest) = state.pop() else { break };
            self.counters.evicted.add(oldest.spans.entries.len() as u64);
        }
    }

    fn expire(&self, state: &mut BufferState, now: i64) {
        let time = i64::try_from(self.policy.buffer_time.as_nanos()).unwrap_or(i64::MAX);
        let is_over = |segment: &SpanSegment| segment.since.saturating_add(time) <= now;
        while state.segments.front().is_some_and(is_over) {
            if let Some(segment) = state.pop() {
                self.counters.expired.add(segment.spans.entries.len() as u64);
            }
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

impl BufferState {
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

    fn pop(&mut self) -> Option<SpanSegment> {
        let segment = self.segments.pop_front()?;
        self.memory = self.memory.saturating_sub(segment.spans.memory());
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use decode::spans::trace::{AttributeAction, Trace};
    use model::Batch;

    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const ROOM: usize = 1 << 20;

    fn keep(_: &str, _: &dyn Fn() -> String) -> AttributeAction {
        AttributeAction::Keep
    }

    /// A span of a trace with an id and a name.
    fn message(trace: u8, id: u8, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for (number, bytes) in [(1, &[trace; 16][..]), (2, &[id; 8]), (5, name.as_bytes())] {
            out.extend_from_slice(&[number << 3 | 2, bytes.len() as u8]);
            out.extend_from_slice(bytes);
        }
        out
    }

    fn request(spans: &[(u8, u8)], kept: &[u8]) -> SpanBytes {
        let (mut request, resource) = (SpanBytes::default(), [1 << 3 | 2, 0]);
        for (trace, id) in spans {
            let span = message(*trace, *id, "a name");
            let trace_id = [*trace; 16];
            request.push(&RawSpan { trace_id, resource: &resource, scope: &[], span: &span });
        }
        kept.iter().for_each(|trace| request.keep([*trace; 16]));
        request
    }

    fn buffer(policy: TracePolicy) -> TraceBuffer {
        TraceBuffer::new(policy, &Meter::default())
    }

    /// Trace, ids of spans, and whether it is cut, of each trace of a batch.
    type WrittenTraces = Vec<(u8, Vec<u8>, bool)>;

    fn written(buffer: &TraceBuffer, taken: &TakenSpans) -> WrittenTraces {
        let mut batch = BatchWriter::default();
        buffer.write(taken, &keep, &mut batch);
        let batch = Batch::decode(batch.finish().bytes().to_owned()).unwrap();
        let mut reader = batch.read();
        assert!(reader.by_ref().next().is_none());
        let found = reader.traces().map(|spans| {
            let spans = spans.unwrap();
            let trace = Trace::read(spans.spans);
            let mut ids: Vec<u8> = trace.spans.iter().map(|span| span.span_id[0]).collect();
            ids.sort_unstable();
            (spans.trace_id[0], ids, spans.is_cut)
        });
        found.collect()
    }

    fn send(buffer: &TraceBuffer, spans: &[(u8, u8)], kept: &[u8], now: i64) -> WrittenTraces {
        let mut request = request(spans, kept);
        let taken = buffer.take(&mut request, ROOM, now);
        let found = written(buffer, &taken);
        buffer.commit(&taken, request, now);
        found
    }

    #[test]
    fn spans_of_a_kept_trace_are_written_before_and_after_the_decision() {
        let buffer = buffer(TracePolicy::default());
        assert!(send(&buffer, &[(1, 1), (2, 2), (1, 3)], &[], 0).is_empty());
        assert!(send(&buffer, &[(3, 4), (2, 5)], &[], SECOND).is_empty());
        let expected = [(2, vec![2, 5, 6], false)];
        assert_eq!(send(&buffer, &[(2, 6), (3, 7)], &[2], 2 * SECOND), expected);
        // Late spans follow, once each.
        let late = 14 * 60 * SECOND;
        assert_eq!(send(&buffer, &[(2, 8), (1, 9)], &[], late), [(2, vec![8], false)]);
        assert_eq!(send(&buffer, &[(2, 9)], &[2], late), [(2, vec![9], false)]);
        // What was buffered is gone after its time, and the id is forgotten.
        assert_eq!(send(&buffer, &[(1, 10)], &[1], late), [(1, vec![9, 10], false)]);
        assert!(send(&buffer, &[(3, 1)], &[], 16 * 60 * SECOND).is_empty());
        assert!(send(&buffer, &[(2, 11)], &[], 40 * 60 * SECOND).is_empty());
        assert_eq!(buffer.counters.traces.get(), 2);
        assert_eq!((buffer.counters.written.get(), buffer.counters.expired.get()), (7, 5));
    }

    #[test]
    fn spans_of_a_batch_that_failed_are_written_with_the_next_one() {
        let buffer = buffer(TracePolicy::default());
        send(&buffer, &[(1, 1), (2, 2)], &[], 0);
        let mut failed = request(&[(1, 3), (2, 4)], &[1]);
        let taken = buffer.take(&mut failed, ROOM, 1);
        // In the meantime a span of the trace comes.
        assert_eq!(send(&buffer, &[(1, 5)], &[], 1), [(1, vec![5], false)]);
        buffer.put_back(taken, None, 1);
        assert_eq!(send(&buffer, &[], &[], 2), [(1, vec![1], false)]);
        assert!(send(&buffer, &[], &[], 2).is_empty());
        // The sender repeats its request.
        assert_eq!(send(&buffer, &[(1, 3), (2, 4)], &[1], 3), [(1, vec![3], false)]);
        // A batch without sections is not repeated.
        let mut stripped = request(&[(3, 6)], &[3]);
        let taken = buffer.take(&mut stripped, ROOM, 4);
        buffer.put_back(taken, Some(stripped), 4);
        assert_eq!(send(&buffer, &[], &[], 5), [(3, vec![6], false)]);
        // A span that was not kept when it was read.
        let mut slow = request(&[(4, 7)], &[]);
        let taken = buffer.take(&mut slow, ROOM, 6);
        assert_eq!(send(&buffer, &[(4, 8)], &[4], 6), [(4, vec![8], false)]);
        buffer.commit(&taken, slow, 6);
        assert_eq!(send(&buffer, &[], &[], 7), [(4, vec![7], false)]);
        assert_eq!(buffer.lock().pending.len(), 0);
    }

    #[test]
    fn a_trace_beyond_its_limit_is_cut_and_a_batch_beyond_its_limit_is_continued() {
        let size = message(1, 1, "a name").len();
        let policy = TracePolicy { trace_bytes_max: 3 * size, ..TracePolicy::default() };
        let buffer = buffer(policy);
        let spans: Vec<(u8, u8)> = (1..=5).map(|id| (1, id)).collect();
        assert_eq!(send(&buffer, &spans, &[1], 0), [(1, vec![1, 2, 3], true)]);
        assert_eq!(send(&buffer, &[(1, 6)], &[], 1), [(1, vec![], true)]);
        assert_eq!(buffer.counters.cut.get(), 3);
        let mut two = request(&[(2, 1), (2, 2), (3, 3)], &[2, 3]);
        let taken = buffer.take(&mut two, size, 2);
        assert_eq!(written(&buffer, &taken), [(2, vec![1], false)]);
        buffer.commit(&taken, two, 2);
        assert_eq!(send(&buffer, &[], &[], 3), [(2, vec![2], false), (3, vec![3], false)]);
    }

    #[test]
    fn memory_is_bounded() {
        let policy = TracePolicy { buffer_bytes_max: 1 << 20, ..TracePolicy::default() };
        let buffer = buffer(policy);
        for now in 0..200 {
            let spans: Vec<(u8, u8)> = (0..200).map(|id| (id, id + 1)).collect();
            send(&buffer, &spans, &[], now * SECOND / 20);
            let memory = buffer.lock().memory;
            let held: usize = buffer.lock().segments.iter().map(|one| one.spans.memory()).sum();
            assert_eq!(memory, held);
            assert!(memory <= 1 << 20, "{memory} bytes");
        }
        assert!(buffer.counters.evicted.get() > 10_000);
        // Many small requests share a segment.
        for now in 0..1000 {
            send(&buffer, &[(1, 1)], &[], 10 * SECOND + now);
        }
        let segments = buffer.lock().segments.len();
        assert!(segments < 60, "{segments} segments");
    }
}
