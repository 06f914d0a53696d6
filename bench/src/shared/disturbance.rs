//! Effect of reads on recording: each record is timed without a reader, with 100 reads per second,
//! and with continuous reads.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clock::Stopwatch;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::contenders::prometheus_histogram;
use super::{HISTOGRAM, TOOK};
use crate::Effort;
use crate::data::{ValueDistribution, Values};
use crate::record;
use crate::report::{ReportSection, ReportTable, ReportTarget, number};

/// Kind of reader.
#[derive(Clone, Copy, PartialEq)]
enum ReadPattern {
    Never,
    HundredTimes,
    Always,
}

const READ_PATTERNS: [(ReadPattern, &str); 3] = [
    (ReadPattern::Never, "none"),
    (ReadPattern::HundredTimes, "100 times per second"),
    (ReadPattern::Always, "all the time"),
];

/// Results of one contender and one kind of reader.
struct DisturbanceResult {
    times: hist::Histogram,
    reads: u64,
}

/// A recorder that is read concurrently.
struct DisturbedRecorder {
    name: &'static str,
    #[expect(clippy::type_complexity, reason = "operation per value, and kind of read")]
    parts: Box<dyn Fn() -> (Box<dyn FnMut(usize) + Send>, Box<dyn FnMut() + Send>)>,
}

pub(crate) fn run(effort: &Effort, section: &mut ReportSection, processors: [usize; 2]) {
    let seconds = if effort.quick { 0.3 } else { 5.0 };
    let mut table = ReportTable::new(
        "Recording during reads, in nanoseconds from one clock reading to the next, which are \
         included. The maximum includes interruptions by the machine.",
        2,
        &["", "reads", "p50", "p99", "p99.9", "p99.99", "max", "records", "reads, total"],
    );
    for contender in contenders() {
        for (look, name) in READ_PATTERNS {
            let outcome = measure(&contender, look, processors, Duration::from_secs_f64(seconds));
            let at = |q: f64| outcome.times.quantile(q).map_or(f64::NAN, |found| found.estimate);
            let greatest = outcome.times.tracked_max().value().unwrap_or(f64::NAN);
            let mut row = vec![contender.name.to_owned(), name.to_owned()];
            row.extend([0.5, 0.99, 0.999, 0.9999].map(|q| number(at(q))));
            row.extend([
                number(greatest),
                outcome.times.count().to_string(),
                outcome.reads.to_string(),
            ]);
            table.rows.push(row);
            if contender.name == HISTOGRAM {
                match look {
                    ReadPattern::Never => {}
                    ReadPattern::HundredTimes => section.targets.push(ReportTarget::at_most(
                        "record, p99.99, read 100 times per second (with publishing)",
                        40.0,
                        "ns",
                        Some(at(0.9999)),
                    )),
                    ReadPattern::Always => section.targets.push(ReportTarget::at_most(
                        "record, p99.9, read continuously (with publishing)",
                        130.0,
                        "ns",
                        Some(at(0.999)),
                    )),
                }
            }
        }
    }
    section.tables.push(table);
}

fn contenders() -> Vec<DisturbedRecorder> {
    let values = || {
        let values = Values::new(ValueDistribution::Lognormal.values(4096, 7)).nanoseconds;
        move |at: usize| values[at % values.len()]
    };
    vec![
        DisturbedRecorder {
            name: HISTOGRAM,
            parts: Box::new(move || {
                let value = values();
                TOOK.record(1);
                let path = shm::status().expect("a file");
                let mut reader = shm::MetricsFileReader::attach(&path).expect("it can be read");
                let at = (0..reader.len())
                    .find(|&at| reader.name(at) == "bench_took")
                    .expect("it is there");
                (
                    Box::new(move |n| TOOK.record(value(n))),
                    Box::new(move || {
                        reader.refresh().expect("it can be read");
                        black_box(reader.value(at).expect("it can be read"));
                    }),
                )
            }),
        },
        DisturbedRecorder {
            name: "hdrhistogram Recorder, 2 digits",
            parts: Box::new(move || {
                let value = values();
                let mut shared: hdrhistogram::sync::SyncHistogram<u64> = record::hdr(2).into_sync();
                let mut own = shared.recorder();
                (
                    Box::new(move |n| {
                        let _ = own.record(value(n));
                    }),
                    Box::new(move || shared.refresh_timeout(Duration::from_secs(1))),
                )
            }),
        },
        DisturbedRecorder {
            name: "metriken AtomicHistogram, p = 5",
            parts: Box::new(move || {
                static METRIKEN: metriken::AtomicCounterHistogram =
                    metriken::AtomicCounterHistogram::new(5, 64);
                let value = values();
                (
                    Box::new(move |n| {
                        let _ = METRIKEN.increment(value(n));
                    }),
                    Box::new(|| {
                        black_box(METRIKEN.load());
                    }),
                )
            }),
        },
        DisturbedRecorder {
            name: "prometheus, classic, 20 bounds",
            parts: Box::new(move || {
                let value = values();
                let peer = prometheus_histogram();
                let read = peer.clone();
                (
                    Box::new(move |n| peer.observe(value(n) as f64 / 1e9)),
                    Box::new(move || {
                        black_box(prometheus::core::Collector::collect(&read));
                    }),
                )
            }),
        },
        DisturbedRecorder {
            name: "Mutex around hdrhistogram, 2 digits",
            parts: Box::new(move || {
                let value = values();
                let shared = std::sync::Arc::new(std::sync::Mutex::new(record::hdr(2)));
                let read = std::sync::Arc::clone(&shared);
                (
                    Box::new(move |n| {
                        let _ = shared.lock().expect("no panic").record(value(n));
                    }),
                    Box::new(move || {
                        black_box(read.lock().expect("no panic").clone());
                    }),
                )
            }),
        },
    ]
}

fn measure(
    of: &DisturbedRecorder,
    look: ReadPattern,
    processors: [usize; 2],
    time: Duration,
) -> DisturbanceResult {
    let (mut record, mut read) = (of.parts)();
    let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut times = hist::Recorder::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            pin(processors[1]);
            while look != ReadPattern::Never && !is_over.load(Ordering::Relaxed) {
                read();
                looks.fetch_add(1, Ordering::Relaxed);
                if look == ReadPattern::HundredTimes {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        });
        scope
            .spawn(|| {
                pin(processors[0]);
                let began = Instant::now();
                let mut n = 0;
                // The first records touch pages.
                (0..10_000).for_each(&mut record);
                while began.elapsed() < time {
                    for _ in 0..1_000 {
                        let stopwatch = Stopwatch::start();
                        record(n);
                        times.record(stopwatch.elapsed_ns());
                        n += 1;
                    }
                }
            })
            .join()
            .expect("no panic");
        is_over.store(true, Ordering::Relaxed);
    });
    DisturbanceResult { times: times.snapshot(), reads: looks.load(Ordering::Relaxed) }
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    let _ = sched_setaffinity(None, &set);
}
