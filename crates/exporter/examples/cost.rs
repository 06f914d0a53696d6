//! Cost of a record with and without the exporter: nanoseconds on one thread, minimum and median of
//! 21 runs. `cargo run --release -p topdeck-exporter --example cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use metrics::{counter, gauge, histogram};
use tracing_subscriber::layer::SubscriberExt;

const RUNS: usize = 21;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    exporter::metrics::install()?;
    println!("{:<44} {:>8} {:>8}", "ns", "least", "median");

    let direct = shm::MetricBuilder::new("cost_counter").counter()?;
    cost("counter: shm", 2_000_000, |n| direct.add(black_box(n) & 1));
    let handle = counter!("cost_handle");
    cost("counter: metrics, handle", 2_000_000, |n| handle.increment(black_box(n) & 1));
    cost("counter: metrics, macro", 200_000, |n| counter!("cost_handle").increment(n & 1));
    cost("counter: metrics, macro, label", 200_000, |n| {
        counter!("cost_handle", "route" => "/cart").increment(n & 1);
    });
    cost("counter: metrics, absolute", 2_000_000, |n| handle.absolute(black_box(n)));

    let direct = shm::MetricBuilder::new("cost_histogram").unit("ns").histogram()?;
    cost("histogram: shm", 2_000_000, |n| direct.record(black_box(n)));
    let handle = histogram!("cost_seconds");
    cost("histogram: metrics, handle", 2_000_000, |n| handle.record(black_box(n as f64 * 1e-9)));
    let handle = histogram!("cost_duration_seconds");
    cost("histogram: metrics, handle, Duration", 2_000_000, |n| {
        handle.record(black_box(Duration::from_nanos(n)));
    });

    let direct = shm::MetricBuilder::new("cost_gauge").float_gauge()?;
    cost("gauge set: shm", 2_000_000, |n| direct.set(black_box(n as f64)));
    let handle = gauge!("cost_level");
    cost("gauge set: metrics, handle", 2_000_000, |n| handle.set(black_box(n as f64)));
    cost("gauge increment: metrics, handle", 2_000_000, |n| handle.increment(black_box(n as f64)));

    let span = || tracing::info_span!("cost").in_scope(|| black_box(()));
    let bare = tracing_subscriber::registry();
    tracing::subscriber::with_default(bare, || cost("span: registry alone", 100_000, |_| span()));
    let layered = tracing_subscriber::registry().with(exporter::tracing::layer().without_busy());
    tracing::subscriber::with_default(layered, || {
        cost("span: with layer().without_busy()", 100_000, |_| span());
    });
    let layered = tracing_subscriber::registry().with(exporter::tracing::layer());
    tracing::subscriber::with_default(layered, || cost("span: with layer()", 100_000, |_| span()));
    Ok(())
}

fn cost(name: &str, records: u64, mut record: impl FnMut(u64)) {
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..records).for_each(&mut record);
            start.elapsed().as_nanos() as f64 / records as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<44} {:>8.1} {:>8.1}", runs[0], runs[RUNS / 2]);
}
