//! topdeck's side of every comparison: the only file that calls the crate under test.

use hist::{Histogram, Recorder, SharedRecorder};

use crate::data::Values;
use crate::record::SUM_MIN_MAX;
use crate::rounds::{Contender, each};
use crate::threads::Shared;

const RECORDER: &str = "topdeck, Recorder";
const HANDLE: &str = "topdeck, SharedRecorder, handle";
const THREAD_LOCAL: &str = "topdeck, SharedRecorder, thread-local";
/// Rows of recording that have a target, on one thread and on two.
pub(crate) const RECORDERS: [&str; 3] = [RECORDER, HANDLE, THREAD_LOCAL];
pub(crate) const SHARED: [&str; 2] = [HANDLE, THREAD_LOCAL];

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
