//! Recording of one value by two threads at once on one logical histogram.

use std::hint::black_box;
use std::sync::Mutex;

use hdrhistogram::sync::SyncHistogram;
use histogram::AtomicHistogram;
use openhistogram::Histogram as OpenHistogram;

use crate::Effort;
use crate::bursts::{BURST, ThreadFn, run_bursts, two_processors};
use crate::clock::waited_for_processor;
use crate::data::{ValueDistribution, Values};
use crate::record::{self, MIN_MAX, NO_STATISTICS, SUM, SUM_MIN_MAX, named_median};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};
use crate::rounds::for_each_value;
use crate::topdeck;

const SETS: [ValueDistribution; 2] = [ValueDistribution::Lognormal, ValueDistribution::Bimodal];
const LIMIT_RATIO: f64 = 1.1;

const METHOD: &str = "CPU time and wall time per value and thread, both as the mean of the two \
                      threads, each of which records its own values. “× alone” is the CPU time \
                      with two threads divided by that of the same code with one thread, in the \
                      same round. Threads are pinned to two CPUs, started together by a spinning \
                      barrier, and work in bursts of 32 768 values; bursts in which a thread \
                      spent more than 5 % of the time on the run queue are discarded. A thread \
                      that sleeps on a mutex uses no CPU time, so compare mutexes by wall time. \
                      No reader runs during the measurement.";

/// One logical histogram that several threads write.
pub(crate) struct SharedContender {
    name: String,
    extras: &'static str,
    on_thread: Box<ThreadFn>,
}

impl SharedContender {
    pub(crate) fn new(
        name: impl Into<String>,
        keeps: &'static str,
        on_thread: impl Fn(&mut dyn FnMut(&mut dyn FnMut(&Values))) + Sync + 'static,
    ) -> SharedContender {
        SharedContender { name: name.into(), extras: keeps, on_thread: Box::new(on_thread) }
    }
}

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "threads",
        title: "Record, two threads on one logical histogram",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let Some(processors) = two_processors() else {
        section.method += "\n\n**Not measured: only one CPU is available.**";
        section.targets = targets(&[]);
        return section;
    };
    let mut results = Vec::new();
    for set in SETS {
        let values = [1, 2].map(|seed| Values::new(set.values(BURST, seed)));
        let rows = measure_set(effort, &values, processors, &contenders());
        section.tables.push(rows.table(set.name()));
        section.samples.push((format!("{}, alone, ns", set.name()), rows.alone.clone()));
        section.samples.push((format!("{}, two threads, ns", set.name()), rows.concurrent.clone()));
        section
            .samples
            .push((format!("{}, two threads, passed ns", set.name()), rows.wall.clone()));
        results.push(rows);
    }
    if waited_for_processor().is_none() {
        section.method += "**This system does not report run queue waits: all bursts count.**";
    }
    section.targets = targets(&results);
    section
}

/// Samples of all contenders on one data set.
pub(crate) struct ThreadFigures {
    pub(crate) alone: Vec<Samples>,
    pub(crate) concurrent: Vec<Samples>,
    pub(crate) wall: Vec<Samples>,
    ratios: Vec<Samples>,
    discarded: Vec<usize>,
    tried: Vec<usize>,
}

impl ThreadFigures {
    pub(crate) fn table(&self, what: &str) -> ReportTable {
        let caption = format!("Nanoseconds per value, {what}: median (min–max).");
        let header =
            ["", "keeps", "1 thread", "2 threads", "× alone", "passed, 2 threads", "discarded"];
        let mut table = ReportTable::new(&caption, 2, &header);
        for at in 0..self.alone.len() {
            let share = 100.0 * self.discarded[at] as f64 / self.tried[at].max(1) as f64;
            table.rows.push(vec![
                self.alone[at].name.clone(),
                self.alone[at].remark.to_owned(),
                self.alone[at].cell(),
                self.concurrent[at].cell(),
                self.ratios[at].cell(),
                self.wall[at].cell(),
                format!("{share:.0} %"),
            ]);
        }
        table
    }
}

fn targets(results: &[ThreadFigures]) -> Vec<ReportTarget> {
    let target = |name: &&str| {
        let ratios: Option<Vec<f64>> =
            results.iter().map(|rows| named_median(&rows.ratios, name)).collect();
        let worst = ratios.filter(|all| !all.is_empty());
        let worst = worst.map(|all| all.into_iter().fold(0.0, f64::max));
        let what = format!("record, 2 threads, {name}, worst data set");
        ReportTarget::at_most(&what, LIMIT_RATIO, "× its cost on one thread", worst)
    };
    topdeck::SHARED.iter().map(target).collect()
}

pub(crate) fn measure_set(
    effort: &Effort,
    values: &[Values; 2],
    processors: [usize; 2],
    contenders: &[SharedContender],
) -> ThreadFigures {
    let empty =
        || contenders.iter().map(|one| Samples::new(&one.name, one.extras)).collect::<Vec<_>>();
    let none = || vec![0; contenders.len()];
    let mut rows = ThreadFigures {
        alone: empty(),
        concurrent: empty(),
        wall: empty(),
        ratios: empty(),
        discarded: none(),
        tried: none(),
    };
    // The first round warms up and is discarded.
    for round in 0..=effort.rounds {
        for turn in 0..contenders.len() {
            let at = (turn + round) % contenders.len();
            let on_thread = &*contenders[at].on_thread;
            let alone = run_bursts(on_thread, &values[..1], &processors[..1]);
            let together = run_bursts(on_thread, values, &processors);
            let (Some(one), Some(two), true) = (alone.median(), together.median(), round > 0)
            else {
                continue;
            };
            rows.alone[at].values.push(one.cpu_ns);
            rows.concurrent[at].values.push(two.cpu_ns);
            rows.wall[at].values.push(two.wall_ns);
            rows.ratios[at].values.push(two.cpu_ns / one.cpu_ns);
            rows.discarded[at] += together.discarded;
            rows.tried[at] += together.discarded + together.valid.len();
        }
    }
    rows
}

fn contenders() -> Vec<SharedContender> {
    let mut all = vec![SharedContender::new("floor: loop and read", "nothing", |session| {
        session(&mut |values| {
            for_each_value(&mut (), &values.nanoseconds, |_, value| {
                black_box(value);
            });
        })
    })];
    all.extend(topdeck::shared_contenders());
    all.extend([hdr_recorder(2), hdr_recorder(3), atomic_histogram(5), atomic_histogram(7)]);
    all.push(locked(
        "Mutex around hdrhistogram, 2 digits",
        MIN_MAX,
        record::hdr(2),
        |values| &values.nanoseconds,
        |h, value| {
            h.record(value).expect("within bounds");
        },
    ));
    all.push(locked(
        "Mutex around sketches-ddsketch",
        SUM_MIN_MAX,
        record::ddsketch(),
        |values| &values.reals,
        |h, value| {
            h.add(value);
        },
    ));
    all.push(locked(
        "Mutex around openhistogram",
        NO_STATISTICS,
        OpenHistogram::new(),
        |values| &values.nanoseconds,
        |h, value| {
            h.insert(record::open_bin(value), 1);
        },
    ));
    let classic = record::prometheus_classic();
    all.push(SharedContender::new("prometheus-client, classic, 20 bounds", SUM, move |session| {
        let mut own = classic.clone();
        session(&mut |values| {
            for_each_value(&mut own, &values.seconds, |h, value| h.observe(value));
        })
    }));
    let (provider, instrument) = record::opentelemetry();
    all.push(SharedContender::new(
        "opentelemetry_sdk, exponential, no attributes",
        SUM_MIN_MAX,
        move |session| {
            let _ = &provider;
            let mut own = instrument.clone();
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |h, value| h.record(value, &[]));
            })
        },
    ));
    all
}

pub(crate) fn hdr_recorder(digits: u8) -> SharedContender {
    let shared: SyncHistogram<u64> = record::hdr(digits).into_sync();
    SharedContender::new(
        format!("hdrhistogram Recorder, {digits} digits"),
        MIN_MAX,
        move |session| {
            let mut own = shared.recorder();
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |h, value| {
                    h.record(value).expect("within bounds");
                });
            })
        },
    )
}

fn atomic_histogram(power: u8) -> SharedContender {
    let shared = AtomicHistogram::new(power, 64).expect("valid powers");
    SharedContender::new(
        format!("histogram AtomicHistogram, p = {power}"),
        NO_STATISTICS,
        move |session| {
            let mut own = &shared;
            session(&mut |values| {
                for_each_value(&mut own, &values.nanoseconds, |h, value| {
                    h.increment(value).expect("within bounds");
                });
            })
        },
    )
}

/// A single-threaded histogram behind a std mutex.
fn locked<H: Send + 'static, T: Copy + 'static>(
    name: &str,
    keeps: &'static str,
    histogram: H,
    values_of: fn(&Values) -> &Vec<T>,
    record: impl Fn(&mut H, T) + Sync + 'static,
) -> SharedContender {
    let shared = Mutex::new(histogram);
    SharedContender::new(name, keeps, move |session| {
        let mut own = &shared;
        session(&mut |values| {
            for_each_value(&mut own, values_of(values), |h, value| {
                record(&mut h.lock().expect("no panic"), value);
            });
        })
    })
}
