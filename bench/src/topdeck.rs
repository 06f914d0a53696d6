//! topdeck's side of every comparison: the only file that calls the crate under test.

use hist::{Cumulative, Histogram, Recorder, SharedRecorder};

use crate::data::Values;
use crate::merge::merge_all;
use crate::quantile::ask;
use crate::record::SUM_MIN_MAX;
use crate::rounds::{Contender, each};
use crate::threads::Shared;

const RECORDER: &str = "topdeck, Recorder";
const HANDLE: &str = "topdeck, SharedRecorder, handle";
const THREAD_LOCAL: &str = "topdeck, SharedRecorder, thread-local";
/// Rows of recording that have a target, on one thread and on two.
pub(crate) const RECORDERS: [&str; 3] = [RECORDER, HANDLE, THREAD_LOCAL];
pub(crate) const SHARED: [&str; 2] = [HANDLE, THREAD_LOCAL];
/// The row that other ways of merging are compared with.
pub(crate) const MERGE_STORED: &str = "topdeck, Accumulator, from bytes";
pub(crate) const QUANTILE: &str = "topdeck, Histogram";
pub(crate) const QUANTILE_CACHED: &str = "topdeck, Cumulative (cached)";

/// Counting one value.
pub(crate) fn record(values: &Values) -> Vec<Contender<'_>> {
    let whole = &values.nanoseconds;
    let mut recorder = Recorder::new();
    let mut handle = SharedRecorder::new().handle();
    let mut shared = SharedRecorder::new();
    let mut histogram = Histogram::default();
    vec![
        Contender::new(RECORDER, SUM_MIN_MAX, move || {
            each(&mut recorder, whole, |h, value| h.record(value))
        }),
        Contender::new(HANDLE, SUM_MIN_MAX, move || {
            each(&mut handle, whole, |h, value| h.record(value))
        }),
        Contender::new(THREAD_LOCAL, SUM_MIN_MAX, move || {
            each(&mut shared, whole, |h, value| h.record(value))
        }),
        Contender::new("topdeck, Histogram (any scheme, any double)", SUM_MIN_MAX, move || {
            each(&mut histogram, &values.reals, |h, value| h.record(value))
        }),
    ]
}

/// Counting one value, on a thread among others.
pub(crate) fn shared() -> Vec<Shared> {
    let (by_handle, by_thread) = (SharedRecorder::new(), SharedRecorder::new());
    vec![
        Shared::new(HANDLE, SUM_MIN_MAX, move |session| {
            let mut own = by_handle.handle();
            session(&mut |values| {
                each(&mut own, &values.nanoseconds, |h, value| h.record(value));
            })
        }),
        Shared::new(THREAD_LOCAL, SUM_MIN_MAX, move |session| {
            let mut own = &by_thread;
            session(&mut |values| {
                each(&mut own, &values.nanoseconds, |h, value| h.record(value));
            })
        }),
    ]
}

/// Adding a histogram to an accumulator.
pub(crate) fn merge(frames: &[Vec<u64>]) -> Vec<Contender<'static>> {
    let histograms: Vec<Histogram> = frames.iter().map(|frame| histogram(frame)).collect();
    let mut sum = Histogram::default();
    vec![Contender::new("topdeck, Histogram into Histogram", SUM_MIN_MAX, move || {
        merge_all(&mut sum, &histograms, |sum, one| sum.merge(one).expect("equal schemes"))
    })]
}

/// Asking for a quantile.
pub(crate) fn quantile(values: &[u64]) -> Vec<Contender<'static>> {
    let mut histogram = histogram(values);
    let mut cumulative = Cumulative::new(&histogram);
    vec![
        Contender::new(QUANTILE, "bracket", move || ask(&mut histogram, |h, q| h.quantile(q))),
        Contender::new(QUANTILE_CACHED, "bracket", move || {
            ask(&mut cumulative, |h, q| h.quantile(q))
        }),
    ]
}

fn histogram(values: &[u64]) -> Histogram {
    let mut recorder = Recorder::new();
    values.iter().for_each(|&value| recorder.record(value));
    recorder.snapshot()
}
