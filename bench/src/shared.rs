//! What a program measures itself with: counters, histograms, timed operations, and what looking at them does to recording.

mod c;
pub(crate) mod child;
mod disturbance;

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use opentelemetry::metrics::MeterProvider as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::Effort;
use crate::bursts::{BURST, two_processors};
use crate::clock::cpu_time;
use crate::data::{Distribution, Values};
use crate::record::{self, NOTHING, SUM, SUM_MIN_MAX, median_of};
use crate::report::{Samples, Section, Table, Target, number};
use crate::rounds::each;
use crate::threads::{Shared, hdr_recorder, measure_set};

const METHOD: &str = "\
Cost: processor time of one call with one thread and with two, pinned, as in “Record, two threads on one logical \
histogram”; each thread records its own values, and in a timed operation nothing lies between start and end. All peers keep their metrics in the memory of the process, where nobody else sees \
them until the process is asked; those of topdeck are in shared memory. Kept handles: no label is looked up. \
`prometheus` and `measured` have 20 exponential bounds, as has `prometheus-client`. \
Losses: threads count, then what a reader sees is compared; in another process, killed (SIGKILL) while it records, \
each thread's operations are counted before and after their record. Read: counters of a running process, each by name once, then \
again and again. System calls are those of the threads at work between a mark before the first and one after the last, as strace tells them.";

const COUNTER: &str = "topdeck shm counter";
const HISTOGRAM: &str = "topdeck shm histogram";
const TIMED: &str = "topdeck shm timer";

shm::metrics! {
    static COUNTED: shm::Counter = "bench_counted_total";
    static TOOK: shm::Histogram = "bench_took", unit "ns";
    static TIMED_OPERATION: shm::Histogram = "bench_timed", unit "ns";
}

pub(crate) fn run(effort: &Effort) -> Section {
    let mut section = Section {
        name: "shm",
        title: "Metrics in shared memory",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let Some(processors) = two_processors() else {
        section.method +=
            "\n\n**Not measured: this machine gives the program one processor only.**";
        return section;
    };
    let values = [1, 2].map(|seed| Values::new(Distribution::Lognormal.values(BURST, seed)));
    let sets = [
        ("counter", counters()),
        ("histogram, lognormal", histograms()),
        ("an operation timed and recorded", timers()),
    ];
    let mut medians = Vec::new();
    for (what, contenders) in sets {
        let rows = measure_set(effort, &values, processors, &contenders);
        section.tables.push(rows.table(what));
        for name in [COUNTER, HISTOGRAM, TIMED] {
            let found = median_of(&rows.alone, name).zip(median_of(&rows.together, name));
            medians.extend(found.map(|found| (name, found)));
        }
        section.samples.push((format!("{what}, alone, ns"), rows.alone));
        section.samples.push((format!("{what}, two threads, ns"), rows.together));
    }
    for (name, limit) in [(COUNTER, 1.0), (HISTOGRAM, 3.0), (TIMED, 25.0)] {
        let of = |pick: fn((f64, f64)) -> f64| {
            medians.iter().find(|one| one.0 == name).map(|one| pick(one.1))
        };
        section.targets.push(Target::at_most(
            &format!("{name}, 1 thread"),
            limit,
            "ns",
            of(|m| m.0),
        ));
        section.targets.push(Target::at_most(
            &format!("{name}, 2 threads"),
            limit,
            "ns",
            of(|m| m.1),
        ));
    }
    losses(effort, &mut section);
    disturbance::run(effort, &mut section, processors);
    read(effort, &mut section);
    c::abi(effort, &mut section);
    c::pcp(effort, &mut section);
    section
}

fn counters() -> Vec<Shared> {
    let mut all = vec![
        Shared::new("floor: loop and read", "", |session| {
            session(&mut |values| {
                each(&mut (), &values.nanoseconds, |_, value| {
                    black_box(value);
                });
            })
        }),
        // Named twice, as code names it: the static itself, and a handle that was registered while running.
        counter(COUNTER, || (), |_| COUNTED.add(1)),
    ];
    let handle = shm::Description::new("bench_handle_total").counter().expect("room");
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

/// A counter, and what each thread has of it.
fn counter<H: 'static>(
    name: &str,
    handle: impl Fn() -> H + Sync + 'static,
    add: impl Fn(&mut H) + Sync + 'static,
) -> Shared {
    Shared::new(name, "", move |session| {
        let mut own = handle();
        session(&mut |values| {
            each(&mut own, &values.nanoseconds, |own, value| {
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

/// Bounds of the peers with explicit buckets: 20, from 1 us on.
pub(crate) fn bounds() -> [f64; 20] {
    std::array::from_fn(|at| 1e-6 * 2f64.powi(at as i32))
}

fn histograms() -> Vec<Shared> {
    let mut all = vec![
        of_nanoseconds(HISTOGRAM, SUM_MIN_MAX, || (), |_, value| TOOK.record(value)),
        hdr_recorder(2),
    ];
    static METRIKEN: metriken::AtomicCounterHistogram =
        metriken::AtomicCounterHistogram::new(5, 64);
    all.push(of_nanoseconds(
        "metriken AtomicHistogram, p = 5",
        NOTHING,
        || (),
        |_, value| {
            let _ = METRIKEN.increment(value);
        },
    ));
    static SHARDED: metriken::ShardedCounterHistogram =
        metriken::ShardedCounterHistogram::new(5, 64);
    all.push(of_nanoseconds(
        "metriken ShardedCounterHistogram, p = 5",
        NOTHING,
        || (),
        |_, value| {
            let _ = SHARDED.increment(value);
        },
    ));
    let peer = prometheus_histogram();
    all.push(of_seconds(
        "prometheus, classic, 20 bounds",
        move || peer.clone(),
        |peer, value| peer.observe(value),
    ));
    let classic = record::prometheus_classic();
    all.push(of_seconds(
        "prometheus-client, classic, 20 bounds",
        move || classic.clone(),
        |peer, value| peer.observe(value),
    ));
    let thresholds = measured::metric::histogram::Thresholds::with_buckets(bounds());
    let peer: &measured::Histogram<20> =
        Box::leak(Box::new(measured::Histogram::with_metadata(thresholds)));
    all.push(of_seconds(
        "measured, classic, 20 bounds",
        move || peer,
        |peer, value| peer.observe(value),
    ));
    let recorder = metrics_recorder();
    let peer = metrics::Recorder::register_histogram(recorder, &"a".into(), &METADATA);
    all.push(of_seconds(
        "metrics, exporter-prometheus, handle (never asked)",
        move || peer.clone(),
        |peer, value| peer.record(value),
    ));
    let (provider, instrument) = record::opentelemetry();
    all.push(of_nanoseconds(
        "opentelemetry_sdk, exponential, no attributes",
        SUM_MIN_MAX,
        move || (provider.clone(), instrument.clone()),
        |(_, peer), value| {
            peer.record(value, &[]);
        },
    ));
    all
}

pub(crate) fn prometheus_histogram() -> prometheus::Histogram {
    let options = prometheus::HistogramOpts::new("a", "a").buckets(bounds().to_vec());
    prometheus::Histogram::with_opts(options).expect("a name")
}

fn of_nanoseconds<H: 'static>(
    name: &str,
    keeps: &'static str,
    handle: impl Fn() -> H + Sync + 'static,
    record: impl Fn(&mut H, u64) + Sync + 'static,
) -> Shared {
    Shared::new(name, keeps, move |session| {
        let mut own = handle();
        session(&mut |values| {
            each(&mut own, &values.nanoseconds, |own, value| record(own, value));
        })
    })
}

fn of_seconds<H: 'static>(
    name: &str,
    handle: impl Fn() -> H + Sync + 'static,
    record: impl Fn(&mut H, f64) + Sync + 'static,
) -> Shared {
    Shared::new(name, SUM, move |session| {
        let mut own = handle();
        session(&mut |values| {
            each(&mut own, &values.seconds, |own, value| record(own, value));
        })
    })
}

fn timers() -> Vec<Shared> {
    let mut all = vec![
        of_nanoseconds(
            TIMED,
            SUM_MIN_MAX,
            || (),
            |_, value| {
                let timer = TIMED_OPERATION.start();
                black_box(value);
                drop(timer);
            },
        ),
        of_nanoseconds(
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
    all.push(Shared::new("std Instant + hdrhistogram Recorder", SUM_MIN_MAX, move |session| {
        let mut own = shared.recorder();
        session(&mut |values| {
            each(&mut own, &values.nanoseconds, |own, value| {
                let began = Instant::now();
                black_box(value);
                let _ = own.record(began.elapsed().as_nanos() as u64);
            });
        })
    }));
    let peer = prometheus_histogram();
    all.push(of_nanoseconds(
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
    all.push(of_nanoseconds(
        "std Instant + metriken AtomicHistogram",
        NOTHING,
        || (),
        |_, value| {
            let began = Instant::now();
            black_box(value);
            let _ = METRIKEN.increment(began.elapsed().as_nanos() as u64);
        },
    ));
    all
}

fn losses(effort: &Effort, section: &mut Section) {
    let each_thread = if effort.quick { 500_000 } else { 25_000_000 };
    let threads = 4;
    let counted = shm::Description::new("bench_loss_total").counter().expect("room");
    let took = shm::Description::new("bench_loss").histogram().expect("room");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for value in 0..each_thread {
                    counted.add(1);
                    took.record(value % 100_000);
                }
            });
        }
    });
    let path = shm::status().expect("a file");
    let seen = child::seen(&path, "bench_loss_total", "bench_loss").expect("our own file");
    let expected = threads * each_thread;
    let lost = expected.abs_diff(seen.0) + expected.abs_diff(seen.1);
    section.targets.push(Target::at_most(
        &format!("updates lost of {expected} counted and {expected} recorded by {threads} threads"),
        0.0,
        "updates",
        Some(lost as f64),
    ));
    let kills = if effort.quick { 2 } else { 20 };
    let outcomes: Vec<_> =
        (0..kills).filter_map(|_| killed(Duration::from_millis(300)).ok()).collect();
    let lost: Option<u64> =
        (outcomes.len() == kills).then(|| outcomes.iter().map(|one| one.1).sum());
    let records: u64 = outcomes.iter().map(|one| one.0).sum();
    section.targets.push(Target::at_most(
        &format!(
            "updates lost by {kills} processes of two threads, killed after {records} records"
        ),
        0.0,
        "updates",
        lost.map(|lost| lost as f64),
    ));
}

/// Starts a process that records until it is killed: how many records it had made, and how many of those are missing.
fn killed(after: Duration) -> anyhow::Result<(u64, u64)> {
    let mut process = itself(&["--record-shm", "0"]).spawn()?;
    std::thread::sleep(after);
    kill_process(Pid::from_child(&process), Signal::KILL)?;
    process.wait()?;
    let (found, _) = shm::processes();
    let found = found.into_iter().find(|one| one.identity.pid == process.id());
    let path = found.map(|one| one.path).ok_or_else(|| anyhow::anyhow!("it left no file"))?;
    let begun = child::seen(&path, "bench_begun_total", "bench_child")?;
    let done = child::seen(&path, "bench_done_total", "bench_child")?;
    // Each thread may have been killed between its record and what it counts before and after.
    let (begun, done, recorded) = (begun.0, done.0, done.1);
    let lost = done.saturating_sub(recorded) + recorded.saturating_sub(begun);
    Ok((done, lost))
}

fn itself(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn read(effort: &Effort, section: &mut Section) {
    let metrics: Vec<shm::Counter> = (0..1_000)
        .map(|n| shm::Description::new(format!("bench_read_{n}")).counter().expect("room"))
        .collect();
    metrics.iter().for_each(|metric| metric.add(1));
    let path = shm::status().expect("a file");
    let mut table = Table::new("Reading.", 1, &["", "median (least–greatest)"]);
    let mut note = |name: &str, unit: &str, samples: Samples, section: &mut Section| {
        table.rows.push(vec![format!("{name}, {unit}"), samples.cell()]);
        let median = samples.median();
        section.samples.push((format!("{name}, {unit}"), vec![samples]));
        median
    };
    // A process of one thread with a thousand counters, as peers are usually measured: the program itself has had more threads.
    let one = child::Counting::start(1_000);
    let path = one.as_ref().map_or(path, |one| one.path.clone());
    let rounds = effort.rounds * 20;
    let mut attach = Samples::new("attach", "");
    for _ in 0..rounds {
        let began = Instant::now();
        black_box(shm::Reader::attach(&path).expect("it can be read"));
        attach.values.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let attached = note("attach to a process with 1,000 counters", "us", attach, section);
    let mut reader = shm::Reader::attach(&path).expect("it can be read");
    reader.refresh().expect("it can be read");
    let mut counts = vec![0; reader.len()];
    let mut per_value = Samples::new("per value", "");
    for _ in 0..rounds {
        let before = cpu_time();
        for _ in 0..1_000 {
            reader.counts(black_box(&mut counts)).expect("it can be read");
        }
        let took = (cpu_time() - before).as_secs_f64() * 1e9;
        per_value.values.push(took / 1_000.0 / counts.len() as f64);
    }
    let value = note("a counter, of 1,000 that are read together", "ns", per_value, section);
    section.targets.push(Target::at_most("read a value", 0.5, "ns", Some(value)));
    section.targets.push(Target::at_most("attach to a process", 100.0, "us", Some(attached)));
    match jstat() {
        Ok(samples) => {
            note("jstat -gc of a running JVM, once", "ms", samples, section);
        }
        Err(reason) => table_note(section, &format!("jstat is missing: {reason}.")),
    }
    section.tables.push(table);
    let calls = |what: &str, more: &str| {
        let found = child::calls(&[what, more]);
        found.map(|calls| calls as f64)
    };
    section.targets.push(Target::at_most(
        "system calls of 2 × 100,000 records, each counted twice",
        0.0,
        "calls",
        calls("--record-shm", "100000"),
    ));
    section.targets.push(Target::at_most(
        "system calls of reading 1,000 counters 10,000 times",
        0.0,
        "calls",
        calls("--read-shm", "10000"),
    ));
}

fn table_note(section: &mut Section, note: &str) {
    section.method += &format!("\n\n{note}");
}

/// What it takes to see a JVM by its own tool, milliseconds that pass.
fn jstat() -> Result<Samples, String> {
    let mut program =
        tempfile::Builder::new().suffix(".java").tempfile().map_err(|e| e.to_string())?;
    let text =
        "class A { public static void main(String[] a) throws Exception { System.in.read(); } }";
    std::io::Write::write_all(&mut program, text.as_bytes()).map_err(|e| e.to_string())?;
    let mut java = Command::new("java")
        .arg(program.path())
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("java does not start: {error}"))?;
    std::thread::sleep(Duration::from_secs(4));
    let mut samples = Samples::new("jstat", "");
    for _ in 0..5 {
        let began = Instant::now();
        let status = Command::new("jstat")
            .args(["-gc", &java.id().to_string()])
            .stdout(Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            samples.values.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let _ = java.kill();
    let _ = java.wait();
    if samples.values.is_empty() { Err("it does not run".to_owned()) } else { Ok(samples) }
}

/// A number for a table's cell.
pub(crate) fn cell(value: f64) -> String {
    number(value)
}
