//! Contenders that count, record and time: topdeck first, then the peers.

use std::hint::black_box;
use std::time::Instant;

use opentelemetry::metrics::MeterProvider as _;

use super::{COUNTED_TOTAL, COUNTER, HISTOGRAM, TIMED, TIMED_OPERATION, TOOK};
use crate::record::{self, NO_STATISTICS, SUM, SUM_MIN_MAX};
use crate::rounds::for_each_value;
use crate::threads::{SharedContender, hdr_recorder};

pub(super) fn counters() -> Vec<SharedContender> {
    let mut all = vec![
        SharedContender::new("floor: loop and read", "", |session| {
            session(&mut |values| {
                for_each_value(&mut (), &values.nanoseconds, |_, value| {
                    black_box(value);
                });
            })
        }),
        // Two rows: the static itself, and a handle registered at run time.
        counter(COUNTER, || (), |_| COUNTED_TOTAL.add(1)),
    ];
    let handle = shm::MetricBuilder::new("bench_handle_total").counter().expect("room");
    all.push(counter(
        "topdeck shm counter, registered while running",
        move || handle.clone(),
        |h| h.add(1),
    ));
    let peer = prometheus::IntCounter::new("a", "a").expect("a name");
    all.push(counter("prometheus IntCounter", move || peer.clone(), |peer| peer.inc()));
    let peer: prometheus_client::metrics::counter::Counter = Default::default();
    all.push(counter(
        "prometheus-client Counter",
        move || peer.clone(),
        |peer| {
            peer.inc();
        },
    ));
    let recorder = metrics_recorder();
    let peer = metrics::Recorder::register_counter(recorder, &"a".into(), &METADATA);
    all.push(counter(
        "metrics, exporter-prometheus, handle",
        move || peer.clone(),
        |peer| peer.increment(1),
    ));
    static METRIKEN: metriken::Counter = metriken::Counter::new();
    all.push(counter(
        "metriken Counter",
        || (),
        |_| {
            METRIKEN.increment();
        },
    ));
    static SHARDED: metriken::ShardedCounterGroup = metriken::ShardedCounterGroup::new(1);
    all.push(counter(
        "metriken ShardedCounterGroup",
        || (),
        |_| {
            SHARDED.increment(0);
        },
    ));
    let peer: &measured::Counter = Box::leak(Box::new(measured::Counter::new()));
    all.push(counter("measured Counter", move || peer, |peer| peer.inc()));
    let provider = opentelemetry_sdk::metrics::SdkMeterProvider::builder().build();
    let peer = provider.meter("bench").u64_counter("a").build();
    all.push(counter(
        "opentelemetry_sdk, no attributes",
        move || (provider.clone(), peer.clone()),
        |(_, peer)| peer.add(1, &[]),
    ));
    all
}

/// A counter and its handle per thread.
fn counter<H: 'static>(
    name: &str,
    handle: impl Fn() -> H + Sync + 'static,
    add: impl Fn(&mut H) + Sync + 'static,
) -> SharedContender {
    SharedContender::new(name, "", move |session| {
        let mut own = handle();
        session(&mut |values| {
            for_each_value(&mut own, &values.nanoseconds, |own, value| {
                black_box(value);
                add(own);
            });
        })
    })
}

const METADATA: metrics::Metadata<'static> =
    metrics::Metadata::new("bench", metrics::Level::INFO, None);

fn metrics_recorder() -> &'static metrics_exporter_prometheus::PrometheusRecorder {
    let builder = metrics_exporter_prometheus::PrometheusBuilder::new();
    Box::leak(Box::new(builder.build_recorder()))
}

/// Bounds of peers with explicit buckets: 20, from 1 us.
fn bounds() -> [f64; 20] {
    std::array::from_fn(|at| 1e-6 * 2f64.powi(at as i32))
}

pub(super) fn histograms() -> Vec<SharedContender> {
    let mut all = vec![
        nanosecond_histogram(HISTOGRAM, SUM_MIN_MAX, || (), |_, value| TOOK.record(value)),
        hdr_recorder(2),
    ];
    static METRIKEN: metriken::AtomicCounterHistogram =
        metriken::AtomicCounterHistogram::new(5, 64);
    all.push(nanosecond_histogram(
        "metriken AtomicHistogram, p = 5",
        NO_STATISTICS,
        || (),
        |_, value| {
            let _ = METRIKEN.increment(value);
        },
    ));
    static SHARDED: metriken::ShardedCounterHistogram =
        metriken::ShardedCounterHistogram::new(5, 64);
    all.push(nanosecond_histogram(
        "metriken ShardedCounterHistogram, p = 5",
        NO_STATISTICS,
        || (),
        |_, value| {
            let _ = SHARDED.increment(value);
        },
    ));
    let peer = prometheus_histogram();
    all.push(second_histogram(
        "prometheus, classic, 20 bounds",
        move || peer.clone(),
        |peer, value| peer.observe(value),
    ));
    let classic = record::prometheus_classic();
    all.push(second_histogram(
        "prometheus-client, classic, 20 bounds",
        move || classic.clone(),
        |peer, value| peer.observe(value),
    ));
    let thresholds = measured::metric::histogram::Thresholds::with_buckets(bounds());
    let peer: &measured::Histogram<20> =
        Box::leak(Box::new(measured::Histogram::with_metadata(thresholds)));
    all.push(second_histogram(
        "measured, classic, 20 bounds",
        move || peer,
        |peer, value| peer.observe(value),
    ));
    let recorder = metrics_recorder();
    let peer = metrics::Recorder::register_histogram(recorder, &"a".into(), &METADATA);
    all.push(second_histogram(
        "metrics, exporter-prometheus, handle (never asked)",
        move || peer.clone(),
        |peer, value| peer.record(value),
    ));
    let (provider, instrument) = record::opentelemetry();
    all.push(nanosecond_histogram(
        "opentelemetry_sdk, exponential, no attributes",
        SUM_MIN_MAX,
        move || (provider.clone(), instrument.clone()),
        |(_, peer), value| {
            peer.record(value, &[]);
        },
    ));
    all
}

pub(super) fn prometheus_histogram() -> prometheus::Histogram {
    let options = prometheus::HistogramOpts::new("a", "a").buckets(bounds().to_vec());
    prometheus::Histogram::with_opts(options).expect("a name")
}

fn nanosecond_histogram<H: 'static>(
    name: &str,
    keeps: &'static str,
    handle: impl Fn() -> H + Sync + 'static,
    record: impl Fn(&mut H, u64) + Sync + 'static,
) -> SharedContender {
    SharedContender::new(name, keeps, move |session| {
        let mut own = handle();
        session(&mut |values| {
            for_each_value(&mut own, &values.nanoseconds, |own, value| record(own, value));
        })
    })
}

fn second_histogram<H: 'static>(
    name: &str,
    handle: impl Fn() -> H + Sync + 'static,
    record: impl Fn(&mut H, f64) + Sync + 'static,
) -> SharedContender {
    SharedContender::new(name, SUM, move |session| {
        let mut own = handle();
        session(&mut |values| {
            for_each_value(&mut own, &values.seconds, |own, value| record(own, value));
        })
    })
}

pub(super) fn timers() -> Vec<SharedContender> {
    let mut all = vec![
        nanosecond_histogram(
            TIMED,
            SUM_MIN_MAX,
            || (),
            |_, value| {
                let timer = TIMED_OPERATION.start();
                black_box(value);
                drop(timer);
            },
        ),
        nanosecond_histogram(
            "std Instant + topdeck shm histogram",
            SUM_MIN_MAX,
            || (),
            |_, value| {
                let began = Instant::now();
                black_box(value);
                TIMED_OPERATION.record(began.elapsed().as_nanos() as u64);
            },
        ),
    ];
    let shared: hdrhistogram::sync::SyncHistogram<u64> = record::hdr(2).into_sync();
    all.push(SharedContender::new(
        "std Instant + hdrhistogram Recorder",
        SUM_MIN_MAX,
        move |session| {
            let mut own = shared.recorder();
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |own, value| {
                    let began = Instant::now();
                    black_box(value);
                    let _ = own.record(began.elapsed().as_nanos() as u64);
                });
            })
        },
    ));
    let peer = prometheus_histogram();
    all.push(nanosecond_histogram(
        "prometheus start_timer",
        SUM,
        move || peer.clone(),
        |peer, value| {
            let timer = peer.start_timer();
            black_box(value);
            timer.observe_duration();
        },
    ));
    static METRIKEN: metriken::AtomicCounterHistogram =
        metriken::AtomicCounterHistogram::new(5, 64);
    all.push(nanosecond_histogram(
        "std Instant + metriken AtomicHistogram",
        NO_STATISTICS,
        || (),
        |_, value| {
            let began = Instant::now();
            black_box(value);
            let _ = METRIKEN.increment(began.elapsed().as_nanos() as u64);
        },
    ));
    all
}
