//! Tests of the buffer of traces.

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
        let span = RawSpan { trace_id, resource: &resource, scope: &[], span: &span };
        request.push(&span, (*id == 1).then(|| LadderCell::of(20.0)));
    }
    kept.iter().for_each(|trace| request.kept.push([*trace; 16]));
    request
}

/// Room for spans of this size.
fn room(left: usize) -> BatchRoom {
    BatchRoom { left, span_max: ROOM }
}

fn buffer(policy: TracePolicy) -> TraceBuffer {
    TraceBuffer::new(policy, &Meter::default())
}

/// Trace, ids of spans, and whether it is cut, of each trace of a batch.
type WrittenTraces = Vec<(u8, Vec<u8>, bool)>;

fn written(
    buffer: &TraceBuffer,
    taken: &mut TakenSpans,
    request: &SpanBytes,
    bytes_max: usize,
) -> WrittenTraces {
    let mut batch = BatchWriter::default();
    buffer.write(taken, request, (&keep, bytes_max), &mut batch);
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
    let mut taken = buffer.take(&mut request, room(ROOM), now);
    let found = written(buffer, &mut taken, &request, ROOM);
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
    let taken = buffer.take(&mut failed, room(ROOM), 1);
    // In the meantime a span of the trace comes.
    assert_eq!(send(&buffer, &[(1, 5)], &[], 1), [(1, vec![5], false)]);
    buffer.put_back(taken, failed, SpanFailure::Refused, 1);
    assert_eq!(send(&buffer, &[], &[], 2), [(1, vec![1], false)]);
    assert!(send(&buffer, &[], &[], 2).is_empty());
    // The sender repeats its request.
    assert_eq!(send(&buffer, &[(1, 3), (2, 4)], &[1], 3), [(1, vec![3], false)]);
    // A batch without sections is not repeated.
    let mut stripped = request(&[(3, 6)], &[3]);
    let taken = buffer.take(&mut stripped, room(ROOM), 4);
    buffer.put_back(taken, stripped, SpanFailure::Stripped, 4);
    assert_eq!(send(&buffer, &[], &[], 5), [(3, vec![6], false)]);
    // A span that was not kept when it was read.
    let mut slow = request(&[(4, 7)], &[]);
    let taken = buffer.take(&mut slow, room(ROOM), 6);
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
    // With the resource of each trace.
    let mut taken = buffer.take(&mut two, room(size + 2), 2);
    assert_eq!(written(&buffer, &mut taken, &two, ROOM), [(2, vec![1], false)]);
    buffer.commit(&taken, two, 2);
    assert_eq!(send(&buffer, &[], &[], 3), [(2, vec![2], false), (3, vec![3], false)]);
}

/// Each trace has the resource again: a request of 1,000 traces became a batch of 264 MB, which
/// the journal refused, and so were all batches after it, which took the same spans.
#[test]
fn resource_of_each_trace_is_counted() {
    let buffer = buffer(TracePolicy::default());
    let mut many = SpanBytes::default();
    // 128 attributes whose texts are 600 bytes that are not UTF-8.
    let head = [0x0a, 0xe1, 4, 0x0a, 1, b'a', 0x12, 0xdb, 4, 0x0a, 0xd8, 4];
    let attribute = [&head[..], &[0xff; 600]].concat();
    let resource = attribute.repeat(128);
    for trace in 1..=200 {
        let (span, trace_id) = (message(trace, 1, ""), [trace; 16]);
        many.push(&RawSpan { trace_id, resource: &resource, scope: &[], span: &span }, None);
        many.kept.push(trace_id);
    }
    let mut found = 0;
    for now in 0..6 {
        let mut request = std::mem::take(&mut many);
        let mut taken = buffer.take(&mut request, TraceBuffer::room(16 << 20, 16 << 20), now);
        let mut batch = BatchWriter::default();
        buffer.write(&mut taken, &request, (&keep, usize::MAX), &mut batch);
        let batch = batch.finish();
        assert!(batch.bytes().len() <= 14 << 20, "{} bytes", batch.bytes().len());
        let mut reader = batch.read();
        assert!(reader.by_ref().next().is_none());
        found += reader.traces().count();
        buffer.commit(&taken, request, now);
    }
    assert_eq!((found, buffer.lock().pending.len()), (200, 0));
}

#[test]
fn spans_that_do_not_fit_are_left_out_and_their_trace_is_cut() {
    let buffer = buffer(TracePolicy::default());
    let size = message(1, 1, "a name").len();
    let mut long = request(&[(1, 1), (1, 2)], &[1]);
    let span = message(1, 3, &"x".repeat(100));
    long.push(&RawSpan { trace_id: [1; 16], resource: &[], scope: &[], span: &span }, None);
    // No batch has room for the longest one: it holds nothing back.
    let room_for_short = BatchRoom { left: ROOM, span_max: size + 2 };
    let mut taken = buffer.take(&mut long, room_for_short, 0);
    assert_eq!(written(&buffer, &mut taken, &long, ROOM), [(1, vec![1, 2], true)]);
    buffer.commit(&taken, long, 0);
    // Spans that have grown beyond the batch.
    let mut grown = request(&[(2, 1), (3, 2)], &[2, 3]);
    let mut taken = buffer.take(&mut grown, room(ROOM), 1);
    let expected = [(2, vec![1], false), (3, vec![], true)];
    let found = written(&buffer, &mut taken, &grown, 3 * size);
    assert_eq!(found, expected);
    buffer.commit(&taken, grown, 1);
    assert_eq!((buffer.counters.written.get(), buffer.counters.cut.get()), (3, 2));
}

#[test]
fn spans_of_a_batch_that_is_too_large_do_not_come_back() {
    let buffer = buffer(TracePolicy::default());
    send(&buffer, &[(1, 1), (2, 2)], &[], 0);
    send(&buffer, &[(1, 3)], &[1], 0);
    let mut slow = request(&[(1, 4)], &[]);
    buffer.commit(&TakenSpans::default(), std::mem::take(&mut slow), 0);
    let mut large = request(&[(2, 5)], &[2]);
    let taken = buffer.take(&mut large, room(ROOM), 1);
    buffer.put_back(taken, large, SpanFailure::TooLarge, 1);
    // Trace 2 is not kept: its exemplar is not in the journal.
    assert_eq!(send(&buffer, &[(2, 6)], &[], 2), [(1, vec![], true)]);
    assert!(send(&buffer, &[], &[], 3).is_empty());
    assert_eq!(buffer.counters.cut.get(), 2);
}

#[test]
fn spans_that_come_back_expire_with_their_segment() {
    let buffer = buffer(TracePolicy::default());
    send(&buffer, &[(1, 1)], &[], 0);
    assert_eq!(send(&buffer, &[(1, 2)], &[1], 1), [(1, vec![1, 2], false)]);
    buffer.commit(&TakenSpans::default(), request(&[(1, 3)], &[]), 2);
    for second in 1..=4 {
        let mut empty = request(&[], &[]);
        let taken = buffer.take(&mut empty, room(ROOM), 7 * second * SECOND);
        assert_eq!(taken.buffered.entries.len(), 1, "{second}");
        buffer.put_back(taken, empty, SpanFailure::Refused, 7 * second * SECOND);
    }
    // The trace is cut, as the journal says.
    assert_eq!(send(&buffer, &[], &[], 35 * SECOND), [(1, vec![], true)]);
    assert_eq!((buffer.counters.expired.get(), buffer.counters.cut.get()), (0, 1));
    assert_eq!(buffer.lock().memory, 0);
}

#[test]
fn batches_after_a_refused_one_take_no_spans() {
    let buffer = buffer(TracePolicy::default());
    send(&buffer, &[(1, 1), (2, 2)], &[], 0);
    let mut refused = request(&[(1, 3)], &[1]);
    let taken = buffer.take(&mut refused, room(ROOM), 1);
    buffer.put_back(taken, refused, SpanFailure::Refused, 1);
    buffer.pause(1);
    let counts = {
        let state = buffer.lock();
        (state.kept[0].len(), state.pending.len())
    };
    assert_eq!(counts, (0, 0));
    // The journal has space again: spans follow later.
    assert!(send(&buffer, &[(1, 3)], &[1], 2).is_empty());
    assert_eq!(send(&buffer, &[], &[], 2 * SECOND), [(1, vec![1, 3], false)]);
    assert_eq!(buffer.counters.traces.get(), 1);
}

#[test]
fn latest_traces_are_restored() {
    let buffer = buffer(TracePolicy::default());
    let id = |number: u32| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        id
    };
    buffer.restore((0..120_000).map(id).collect(), 0);
    let mut state = buffer.lock();
    let mut is_kept = |number| state.kept(&id(number)).is_some();
    assert!(is_kept(0) && is_kept(119_999) && !is_kept(60_000));
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

/// A sample of whole traces says nothing without the number of the others.
#[test]
fn traces_are_counted_by_outcome_and_duration() {
    let policy = TracePolicy { buffer_bytes_max: 2000, ..TracePolicy::default() };
    let buffer = buffer(policy);
    let send = |spans: &[(u8, u8)], kept: &[u8], now: i64| {
        let mut request = request(spans, kept);
        let taken = buffer.take(&mut request, room(ROOM), now);
        buffer.commit(&taken, request, now);
    };
    send(&[(1, 1), (1, 2), (2, 1), (3, 2)], &[1], 0);
    assert_eq!(buffer.root_counts(), [1, 0, 0]);
    assert_eq!(buffer.fate(&[1; 16]), Some(TraceFate::Kept));
    assert_eq!(buffer.fate(&[2; 16]), Some(TraceFate::Waiting));
    send(&[(4, 1), (4, 2)], &[], 31 * SECOND);
    assert_eq!(buffer.root_counts(), [1, 1, 0], "one root is elsewhere");
    assert_eq!(buffer.fate(&[3; 16]), Some(TraceFate::Dropped));
    assert_eq!(buffer.fate(&[5; 16]), None);
    (0..40).for_each(|id| send(&[(5, 10 + id)], &[], 33 * SECOND));
    assert_eq!(buffer.root_counts(), [1, 1, 1]);
    assert_eq!(buffer.fate(&[4; 16]), Some(TraceFate::Evicted));
    let mut metrics = Vec::new();
    buffer.snapshot(&mut metrics);
    let found: Vec<String> =
        metrics.iter().map(|it| format!("{} {:?}", it.name, it.labels)).collect();
    let of = |outcome: &str| {
        format!("topdeck_traces_total [(\"from_ms\", \"20\"), (\"outcome\", \"{outcome}\")]")
    };
    assert_eq!(found[1..], ["kept", "dropped", "evicted"].map(of));
}
