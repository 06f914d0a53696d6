//! Counting one value, two threads at once on one logical histogram.
//!
//! Threads are pinned to processors of their own and work in bursts that begin at the same instant. A burst
//! in which the scheduler took the processor from a thread is thrown away: the two were not at work at the
//! same time.

use std::hint::{black_box, spin_loop};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hdrhistogram::sync::SyncHistogram;
use histogram::AtomicHistogram;
use openhistogram::Histogram as OpenHistogram;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Effort;
use crate::clock::{cpu_time, preemptions, wall_time};
use crate::data::{Distribution, Values};
use crate::record::{self, MIN_MAX, NOTHING, SUM, SUM_MIN_MAX, median_of};
use crate::report::{Samples, Section, Table, Target, number};
use crate::rounds::each;
use crate::topdeck;

/// Values per burst: 0.1 ms at the speed of the fastest, 15 ms at that of the slowest.
const BURST: usize = 32_768;
/// Undisturbed bursts that make one sample, and how many are tried for at most that long.
const BURSTS_KEPT: usize = 8;
const ROUND_MAX: Duration = Duration::from_millis(250);
const SETS: [Distribution; 2] = [Distribution::Lognormal, Distribution::Bimodal];
const LIMIT_RATIO: f64 = 1.1;

const METHOD: &str = "\
Processor time per value and thread, and the time that passed per value, both the mean of the two threads, \
each of which records its own values. “× alone” is the processor time with two threads over that of the same \
code with one thread, in the same round. Threads are pinned to two processors, started together by a \
spinning barrier, and work in bursts of 32 768 values; bursts in which the scheduler preempted a thread are \
discarded. A thread that sleeps on a mutex uses no processor time, so for mutexes read the time that passed. \
Nobody reads the histograms meanwhile.";

/// What a contender does on each thread: it makes the thread's own writer, if it has such a thing, and calls
/// the function it is given with a closure that records a slice through it.
pub(crate) type OnThread = dyn Fn(&mut dyn FnMut(&mut dyn FnMut(&Values))) + Sync;

/// One logical histogram that several threads write to.
pub(crate) struct Shared {
    name: String,
    keeps: &'static str,
    on_thread: Box<OnThread>,
}

impl Shared {
    pub(crate) fn new(
        name: impl Into<String>,
        keeps: &'static str,
        on_thread: impl Fn(&mut dyn FnMut(&mut dyn FnMut(&Values))) + Sync + 'static,
    ) -> Shared {
        Shared { name: name.into(), keeps, on_thread: Box::new(on_thread) }
    }
}

pub(crate) fn run(effort: &Effort) -> Section {
    let mut section = Section {
        name: "threads",
        title: "Record, two threads on one logical histogram",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let Some(processors) = two_processors() else {
        section.method +=
            "\n\n**Not measured: this machine gives the program one processor only.**";
        section.targets = targets(&[]);
        return section;
    };
    let mut results = Vec::new();
    for set in SETS {
        let values = [1, 2].map(|seed| Values::new(set.values(BURST, seed)));
        let rows = measure_set(effort, &values, processors);
        section.tables.push(rows.table(set));
        section.samples.push((format!("{}, alone, ns", set.name()), rows.alone.clone()));
        section.samples.push((format!("{}, two threads, ns", set.name()), rows.together.clone()));
        section
            .samples
            .push((format!("{}, two threads, passed ns", set.name()), rows.passed.clone()));
        results.push(rows);
    }
    if preemptions().is_none() {
        section.method +=
            " **This system does not say when a thread was preempted: all bursts count.**";
    }
    section.targets = targets(&results);
    section
}

/// Samples of all contenders on one data set.
struct Rows {
    alone: Vec<Samples>,
    together: Vec<Samples>,
    passed: Vec<Samples>,
    ratios: Vec<Samples>,
    discarded: Vec<usize>,
    tried: Vec<usize>,
}

impl Rows {
    fn table(&self, set: Distribution) -> Table {
        let caption = format!("Nanoseconds per value, {}: median (least–greatest).", set.name());
        let header =
            ["", "keeps", "1 thread", "2 threads", "× alone", "passed, 2 threads", "discarded"];
        let mut table = Table::new(&caption, 2, &header);
        for at in 0..self.alone.len() {
            let share = 100.0 * self.discarded[at] as f64 / self.tried[at].max(1) as f64;
            table.rows.push(vec![
                self.alone[at].name.clone(),
                self.alone[at].about.to_owned(),
                self.alone[at].cell(),
                self.together[at].cell(),
                number(self.ratios[at].median()),
                self.passed[at].cell(),
                format!("{share:.0} %"),
            ]);
        }
        table
    }
}

fn targets(results: &[Rows]) -> Vec<Target> {
    let target = |name: &&str| {
        let ratios: Option<Vec<f64>> =
            results.iter().map(|rows| median_of(&rows.ratios, name)).collect();
        let worst = ratios.filter(|all| !all.is_empty());
        let worst = worst.map(|all| all.into_iter().fold(0.0, f64::max));
        let what = format!("record, 2 threads, {name}, worst data set");
        Target::at_most(&what, LIMIT_RATIO, "× its cost on one thread", worst)
    };
    topdeck::SHARED.iter().map(target).collect()
}

fn measure_set(effort: &Effort, values: &[Values; 2], processors: [usize; 2]) -> Rows {
    let contenders = contenders();
    let empty =
        || contenders.iter().map(|one| Samples::new(&one.name, one.keeps)).collect::<Vec<_>>();
    let none = || vec![0; contenders.len()];
    let mut rows = Rows {
        alone: empty(),
        together: empty(),
        passed: empty(),
        ratios: empty(),
        discarded: none(),
        tried: none(),
    };
    // The first round warms up and is forgotten.
    for round in 0..=effort.rounds {
        for turn in 0..contenders.len() {
            let at = (turn + round) % contenders.len();
            let on_thread = &*contenders[at].on_thread;
            let alone = bursts(on_thread, &values[..1], &processors[..1]);
            let together = bursts(on_thread, values, &processors);
            let (Some(one), Some(two), true) = (alone.median(), together.median(), round > 0)
            else {
                continue;
            };
            rows.alone[at].values.push(one.cpu_ns);
            rows.together[at].values.push(two.cpu_ns);
            rows.passed[at].values.push(two.passed_ns);
            rows.ratios[at].values.push(two.cpu_ns / one.cpu_ns);
            rows.discarded[at] += together.discarded;
            rows.tried[at] += together.discarded + together.kept.len();
        }
    }
    rows
}

#[derive(Clone, Copy)]
struct Cost {
    cpu_ns: f64,
    passed_ns: f64,
    undisturbed: bool,
}

#[derive(Default)]
struct Bursts {
    kept: Vec<Cost>,
    discarded: usize,
}

impl Bursts {
    fn median(&self) -> Option<Cost> {
        let median = |of: fn(&Cost) -> f64| {
            let mut all: Vec<f64> = self.kept.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let (cpu_ns, passed_ns) = (median(|one| one.cpu_ns)?, median(|one| one.passed_ns)?);
        Some(Cost { cpu_ns, passed_ns, undisturbed: true })
    }
}

/// Lets one thread per element of `values` record in bursts until enough were undisturbed.
fn bursts(on_thread: &OnThread, values: &[Values], processors: &[usize]) -> Bursts {
    let meeting = Meeting::new(values.len());
    let latest: Vec<Mutex<Option<Cost>>> = values.iter().map(|_| Mutex::new(None)).collect();
    let outcome = Mutex::new(Bursts::default());
    let began = wall_time();
    let enough =
        |outcome: &Bursts| outcome.kept.len() >= BURSTS_KEPT || wall_time() - began > ROUND_MAX;
    let worker = |which: usize| {
        pin(processors[which]);
        on_thread(&mut |record| {
            record(&values[which]);
            loop {
                let before = preemptions();
                meeting.meet();
                let mut cost = burst(record, &values[which]);
                cost.undisturbed = preemptions() == before;
                *latest[which].lock().expect("no panic") = Some(cost);
                meeting.meet();
                if which == 0 {
                    let costs = latest.iter().map(|one| one.lock().expect("no panic").take());
                    outcome.lock().expect("no panic").note(costs.flatten());
                }
                meeting.meet();
                // All threads must see the same answer, so the first one gives it.
                if which == 0 && enough(&outcome.lock().expect("no panic")) {
                    meeting.finish();
                }
                meeting.meet();
                if meeting.is_finished() {
                    return;
                }
            }
        });
    };
    std::thread::scope(|scope| {
        for which in 0..values.len() {
            let worker = &worker;
            scope.spawn(move || worker(which));
        }
    });
    outcome.into_inner().expect("no panic")
}

impl Bursts {
    fn note(&mut self, costs: impl Iterator<Item = Cost>) {
        let costs: Vec<Cost> = costs.collect();
        let n = costs.len() as f64;
        if !costs.iter().all(|one| one.undisturbed) {
            self.discarded += 1;
            return;
        }
        self.kept.push(Cost {
            cpu_ns: costs.iter().map(|one| one.cpu_ns).sum::<f64>() / n,
            passed_ns: costs.iter().map(|one| one.passed_ns).sum::<f64>() / n,
            undisturbed: true,
        });
    }
}

fn burst(record: &mut dyn FnMut(&Values), values: &Values) -> Cost {
    let (cpu, wall) = (cpu_time(), wall_time());
    record(values);
    let (cpu, wall) = (cpu_time() - cpu, wall_time() - wall);
    let per_value = |time: Duration| time.as_secs_f64() * 1e9 / values.len() as f64;
    Cost { cpu_ns: per_value(cpu), passed_ns: per_value(wall), undisturbed: true }
}

/// A barrier that spins: threads leave it within a cache line's hand-off of each other.
struct Meeting {
    threads: usize,
    arrived: AtomicUsize,
    finished: AtomicUsize,
}

impl Meeting {
    fn new(threads: usize) -> Meeting {
        Meeting { threads, arrived: AtomicUsize::new(0), finished: AtomicUsize::new(0) }
    }

    /// The count only grows: the `k`-th meeting is over when it reaches `k * threads`.
    fn meet(&self) {
        let ticket = self.arrived.fetch_add(1, Ordering::AcqRel);
        let full = (ticket / self.threads + 1) * self.threads;
        while self.arrived.load(Ordering::Acquire) < full {
            spin_loop();
        }
    }

    fn finish(&self) {
        self.finished.store(1, Ordering::Release);
    }

    fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire) == 1
    }
}

/// The first two processors this program may use.
fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&one| allowed.is_set(one));
    Some([processors.next()?, processors.next()?])
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Where it is refused the scheduler still tends to spread two busy threads.
    let _ = sched_setaffinity(None, &set);
}

fn contenders() -> Vec<Shared> {
    let mut all = vec![Shared::new("floor: loop and read", "nothing", |session| {
        session(&mut |values| {
            each(&mut (), &values.nanoseconds, |_, value| {
                black_box(value);
            });
        })
    })];
    all.extend(topdeck::shared());
    all.extend([hdr_recorder(2), hdr_recorder(3), atomic_histogram(5), atomic_histogram(7)]);
    all.push(locked(
        "Mutex<hdrhistogram, 2 digits>",
        MIN_MAX,
        record::hdr(2),
        |values| &values.nanoseconds,
        |h, value| {
            h.record(value).expect("within bounds");
        },
    ));
    all.push(locked(
        "Mutex<sketches-ddsketch>",
        SUM_MIN_MAX,
        record::ddsketch(),
        |values| &values.reals,
        |h, value| {
            h.add(value);
        },
    ));
    all.push(locked(
        "Mutex<openhistogram>",
        NOTHING,
        OpenHistogram::new(),
        |values| &values.nanoseconds,
        |h, value| {
            h.insert(record::open_bin(value), 1);
        },
    ));
    let classic = record::prometheus_classic();
    all.push(Shared::new("prometheus-client, classic, 20 bounds", SUM, move |session| {
        let mut own = classic.clone();
        session(&mut |values| {
            each(&mut own, &values.seconds, |h, value| h.observe(value));
        })
    }));
    all
}

fn hdr_recorder(digits: u8) -> Shared {
    let shared: SyncHistogram<u64> = record::hdr(digits).into_sync();
    Shared::new(format!("hdrhistogram Recorder, {digits} digits"), MIN_MAX, move |session| {
        let mut own = shared.recorder();
        session(&mut |values| {
            each(&mut own, &values.nanoseconds, |h, value| {
                h.record(value).expect("within bounds");
            });
        })
    })
}

fn atomic_histogram(power: u8) -> Shared {
    let shared = AtomicHistogram::new(power, 64).expect("valid powers");
    Shared::new(format!("histogram AtomicHistogram, p = {power}"), NOTHING, move |session| {
        let mut own = &shared;
        session(&mut |values| {
            each(&mut own, &values.nanoseconds, |h, value| {
                h.increment(value).expect("within bounds");
            });
        })
    })
}

/// A histogram for one thread behind the standard library's mutex.
fn locked<H: Send + 'static, T: Copy + 'static>(
    name: &str,
    keeps: &'static str,
    histogram: H,
    values_of: fn(&Values) -> &Vec<T>,
    record: impl Fn(&mut H, T) + Sync + 'static,
) -> Shared {
    let shared = Mutex::new(histogram);
    Shared::new(name, keeps, move |session| {
        let mut own = &shared;
        session(&mut |values| {
            each(&mut own, values_of(values), |h, value| {
                record(&mut h.lock().expect("no panic"), value);
            });
        })
    })
}
