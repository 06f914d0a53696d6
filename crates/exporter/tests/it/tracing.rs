//! The layer of `tracing`.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use shm::snapshot::{InFlightSnapshot, MetricValue};
use tracing::{Instrument, Span, info_span, subscriber};
use tracing_subscriber::layer::SubscriberExt;

use crate::room::has_space;
use crate::{count, exact, find, histogram, series};

const TARGET: &str = "it::tracing";

/// Runs a function under a subscriber with the layer.
fn run_traced<T>(work: impl FnOnce() -> T) -> T {
    let layers = tracing_subscriber::registry().with(exporter::tracing::layer());
    subscriber::with_default(layers, work)
}

fn labels(span: &str) -> [(&str, &str); 2] {
    [("span", span), ("target", TARGET)]
}

#[track_caller]
fn spans(name: &str) -> (u64, u64) {
    let count = |metric| histogram(metric, &labels(name)).count();
    (count("span_duration"), count("span_busy_duration"))
}

/// Open spans of a name.
#[track_caller]
fn open(name: &str) -> Vec<shm::snapshot::OperationSnapshot> {
    let MetricValue::InFlight(InFlightSnapshot { operations, .. }) = series("spans", &[]).value
    else {
        panic!("no table")
    };
    let tags = labels(name).map(|(name, value)| (name.to_owned(), value.to_owned()));
    operations.into_iter().filter(|one| one.tags == tags).collect()
}

#[test]
fn spans_are_timed_and_listed_while_they_are_open() {
    if !has_space() {
        return;
    }
    run_traced(|| {
        let before_ns = clock::now();
        let outer = info_span!("t_outer", user = "never looked at").entered();
        for _ in 0..10 {
            let _inner = info_span!("t_inner").entered();
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(open("t_inner").len(), 0);
        let [seen] = &open("t_outer")[..] else { panic!("not one span") };
        assert!((before_ns..clock::now()).contains(&seen.start_ns));
        assert_eq!(Some(seen.number), outer.id().map(|id| id.into_u64()));
    });
    assert_eq!((spans("t_outer"), spans("t_inner")), ((1, 1), (10, 10)));
    assert_eq!(open("t_outer").len(), 0);
    let (_, outer_ns, ..) = exact(&histogram("span_duration", &labels("t_outer")));
    let (_, inner_ns, least_ns, _) = exact(&histogram("span_duration", &labels("t_inner")));
    assert!(least_ns >= 1e6 && outer_ns >= inner_ns, "{outer_ns} {inner_ns} {least_ns}");
    assert_eq!(series("span_duration", &labels("t_inner")).unit, "ns");
}

/// Ready at its fourth poll.
struct ReadyOnFourthPoll(u32);

impl Future for ReadyOnFourthPoll {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 += 1;
        if self.0 == 4 { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn a_future_is_one_span_and_busy_only_while_it_is_polled() {
    if !has_space() {
        return;
    }
    run_traced(|| {
        let mut future = pin!(ReadyOnFourthPoll(0).instrument(info_span!("t_future")));
        let mut context = Context::from_waker(Waker::noop());
        while future.as_mut().poll(&mut context).is_pending() {
            assert_eq!(open("t_future").len(), 1);
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert_eq!(spans("t_future"), (1, 1));
    let (_, took_ns, ..) = exact(&histogram("span_duration", &labels("t_future")));
    let (_, busy_ns, ..) = exact(&histogram("span_busy_duration", &labels("t_future")));
    assert!(took_ns - busy_ns >= 30e6, "busy for {busy_ns} of {took_ns} ns");
}

#[test]
fn spans_end_on_whichever_thread() {
    if !has_space() {
        return;
    }
    run_traced(|| {
        let all: Vec<Span> = (0..50).map(|_| info_span!("t_elsewhere")).collect();
        assert_eq!(open("t_elsewhere").len(), 50);
        thread::scope(|scope| {
            for span in &all {
                // A clone is the same span, entered by two threads.
                let (one, other) = (span.clone(), span.clone());
                scope.spawn(move || one.in_scope(|| thread::sleep(Duration::from_millis(1))));
                scope.spawn(move || drop(other.entered()));
            }
        });
        assert_eq!(open("t_elsewhere").len(), 50);
        thread::spawn(move || drop(all)).join().expect("no panic");
    });
    assert_eq!(spans("t_elsewhere"), (50, 50));
    assert_eq!(open("t_elsewhere").len(), 0);
    let busy = exact(&histogram("span_busy_duration", &labels("t_elsewhere")));
    let took = exact(&histogram("span_duration", &labels("t_elsewhere")));
    assert!(busy.2 >= 1e6 && busy.1 <= took.1, "{busy:?} {took:?}");
}

#[test]
fn a_panic_closes_its_spans() {
    if !has_space() {
        return;
    }
    run_traced(|| {
        let result = thread::spawn(|| {
            run_traced(|| {
                let _span = info_span!("t_panic").entered();
                panic!("on purpose");
            });
        });
        result.join().expect_err("it panics");
    });
    assert_eq!((spans("t_panic"), open("t_panic").len()), ((1, 1), 0));
}

#[test]
fn a_span_is_open_as_long_as_anyone_holds_it() {
    if !has_space() {
        return;
    }
    let span = run_traced(|| info_span!("t_left"));
    assert_eq!(open("t_left").len(), 1);
    drop(span);
    assert_eq!(open("t_left").len(), 0);
    let span = run_traced(|| info_span!("t_forgotten"));
    std::mem::forget(span);
    assert_eq!(open("t_forgotten").len(), 1);
}

#[test]
fn two_layers_count_once() {
    if !has_space() {
        return;
    }
    let layers = tracing_subscriber::registry()
        .with(exporter::tracing::layer())
        .with(exporter::tracing::layer());
    subscriber::with_default(layers, || info_span!("t_two").in_scope(|| {}));
    assert_eq!((spans("t_two"), open("t_two").len()), ((1, 1), 0));
}

#[test]
fn busy_time_can_be_left_out() {
    if !has_space() {
        return;
    }
    let layers = tracing_subscriber::registry().with(exporter::tracing::layer().without_busy());
    subscriber::with_default(layers, || info_span!("t_idle").in_scope(|| {}));
    assert_eq!(histogram("span_duration", &labels("t_idle")).count(), 1);
    assert!(find("span_busy_duration", &labels("t_idle")).is_none());
}

#[test]
fn errors_are_counted_by_level_and_target() {
    if !has_space() {
        return;
    }
    run_traced(|| {
        thread::scope(|scope| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            for _ in 0..4 {
                let dispatch = dispatch.clone();
                scope.spawn(move || {
                    tracing::dispatcher::with_default(&dispatch, || {
                        for n in 0..1_000 {
                            tracing::error!(target: "t_events", n, "an error");
                            tracing::warn!(target: "t_events", "a warning {n}");
                            tracing::info!(target: "t_events", "no news");
                        }
                    });
                });
            }
        });
        // Another callsite, the same series.
        tracing::error!(target: "t_events", "one more");
    });
    let of = |level| count("events_total", &[("level", level), ("target", "t_events")]);
    assert_eq!((of("error"), of("warn"), of("info")), (4_001, 4_000, 0));
}
