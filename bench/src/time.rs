//! Clocks: cost, accuracy, and monotonicity of a reading.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::clock as topdeck_clock;
use rustix::time::{ClockId, clock_gettime};

use crate::Effort;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};
use crate::rounds::{BenchContender, Passes, measure};

const READINGS: u64 = 20_000;
/// Attempts per comparison with the system clock; the fastest one counts.
const ATTEMPTS: usize = 32;
const WIDTH_MAX_NS: f64 = 150.0;
/// Row names of targets.
const STOPWATCH: &str = "topdeck Stopwatch";
const RELAXED: &str = "topdeck now_relaxed";
const ORDERED: &str = "topdeck now";
const BOUNDED: &str = "topdeck now_bounded";
const SYSTEM: &str = "system, clock_gettime (vDSO)";
const STD: &str = "std Instant";

const METHOD: &str = "Cost: CPU time of one call, or of the pair of calls that measures a \
                      duration, from loops of 20 000. Accuracy: each clock starts at the same \
                      time as `CLOCK_MONOTONIC` and is compared with it every 2 ms; a reading is \
                      taken between two readings of that clock, the closest pair of 32 attempts \
                      counts, and pairs more than 150 ns apart are discarded. Order: two threads \
                      share the latest time that they have read; a step back is a reading below \
                      a previously shared time. Contenders that calibrate once did so at the \
                      start of this run; another start has another error. Bounds: `now_bounded` \
                      is called between two readings of the system clock, which must be within \
                      its bounds.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    // The first call starts the calibrator thread; after two seconds the rate is known well.
    topdeck_clock::now();
    minstant::Instant::now();
    fastant::Instant::now();
    let quanta = quanta::Clock::new();
    thread::sleep(Duration::from_secs(3));
    let passes = Passes::Exactly(if effort.quick { 2 } else { 20 });
    let reads = measure(&mut reads(&quanta), effort.rounds, passes);
    let pairs = measure(&mut pairs(&quanta), effort.rounds, passes);
    let truths = measure_clock_errors(if effort.quick { 3 } else { 180 });
    let orders = check_order(&quanta, if effort.quick { 1_000_000 } else { 100_000_000 });
    let checks = if effort.quick { 100_000 } else { 10_000_000 };
    let (violations, widest_ns) = bounds(checks);

    let of = |rows: &[Samples], name: &str| {
        rows.iter().find(|row| row.name == name).map(Samples::median)
    };
    let worst = truths.iter().find(|one| one.name.starts_with("topdeck")).map(|one| one.worst_ns);
    let back = orders.iter().find(|one| one.0 == ORDERED).map(|one| one.1 as f64);
    let targets = vec![
        ReportTarget::at_most("stopwatch, a pair of readings", 22.0, "ns", of(&pairs, STOPWATCH)),
        ReportTarget::at_most("now_relaxed", 12.0, "ns", of(&reads, RELAXED)),
        ReportTarget::at_most(
            "now, ordered between threads, against the vDSO",
            1.0,
            "× its cost",
            of(&reads, ORDERED).zip(of(&reads, SYSTEM)).map(|(ours, system)| ours / system),
        ),
        ReportTarget::at_most("now_bounded", 30.0, "ns", of(&reads, BOUNDED)),
        ReportTarget::at_most("maximum error after 10 s", 50.0, "ns", worst),
        ReportTarget::at_most(
            &format!("bounds violated in {checks} checks"),
            0.0,
            "violations",
            Some(violations as f64),
        ),
        ReportTarget::at_most("steps back between two threads, now", 0.0, "steps", back),
    ];
    let mut truth_table = ReportTable::new(
        "Error after the first 10 s (quick run: 1 s), in nanoseconds relative to \
         `CLOCK_MONOTONIC`.",
        1,
        &["", "max", "at the end", "comparisons"],
    );
    for one in &truths {
        truth_table.rows.push(vec![
            one.name.to_owned(),
            number(one.worst_ns),
            number(one.last_ns),
            one.comparisons.to_string(),
        ]);
    }
    let mut order_table = ReportTable::new(
        "Steps back between two threads.",
        1,
        &["", "steps", "greatest, ns", "readings"],
    );
    for (name, steps, greatest, readings) in &orders {
        let cells = [steps, greatest, readings].map(u64::to_string);
        order_table.rows.push([(*name).to_owned()].into_iter().chain(cells).collect());
    }
    let mut bound_table =
        ReportTable::new("", 1, &["", "checks", "violations", "widest bound, ns"]);
    let cells = [checks, violations, widest_ns].map(|one| one.to_string());
    bound_table.rows.push([BOUNDED.to_owned()].into_iter().chain(cells).collect());
    let status = topdeck_clock::status();
    let method = format!(
        "{METHOD}\n\nThe clock of topdeck was in mode `{}`{}; the counter ticks {:.6} GHz.",
        status.mode.name(),
        status.reason.map(|reason| format!(" ({reason})")).unwrap_or_default(),
        status.ticks_per_second / 1e9
    );
    let costs = |caption, rows| ReportTable::of_samples(caption, "order", &[("ns", rows)]);
    ReportSection {
        name: "clock",
        title: "Clock",
        method,
        targets,
        tables: vec![
            costs("Nanoseconds of one reading: median (min–max).", &reads),
            costs("Nanoseconds of a pair of readings.", &pairs),
            truth_table,
            order_table,
            bound_table,
        ],
        samples: vec![("one, ns".to_owned(), reads), ("pair, ns".to_owned(), pairs)],
    }
}

const ORDERED_BETWEEN_THREADS: &str = "kept between threads";
const NONE: &str = "none";

fn contender<'a, T>(
    name: &'static str,
    about: &'static str,
    read: impl Fn() -> T + 'a,
) -> BenchContender<'a> {
    BenchContender::new(name, about, move || {
        for _ in 0..READINGS {
            black_box(read());
        }
        READINGS
    })
}

fn reads(quanta: &quanta::Clock) -> Vec<BenchContender<'_>> {
    vec![
        contender(SYSTEM, ORDERED_BETWEEN_THREADS, || clock_gettime(ClockId::Monotonic)),
        contender("system, CLOCK_MONOTONIC_COARSE", ORDERED_BETWEEN_THREADS, || {
            clock_gettime(ClockId::MonotonicCoarse)
        }),
        contender(STD, ORDERED_BETWEEN_THREADS, Instant::now),
        contender("quanta raw (the counter alone)", NONE, || quanta.raw()),
        contender("quanta now", NONE, || quanta.now()),
        contender("minstant now (ticks)", NONE, minstant::Instant::now),
        contender("minstant now and to Unix time", NONE, unix_of_minstant()),
        contender("fastant now (ticks)", NONE, fastant::Instant::now),
        contender(RELAXED, NONE, topdeck_clock::now_unordered),
        contender(ORDERED, ORDERED_BETWEEN_THREADS, topdeck_clock::now),
        contender(BOUNDED, ORDERED_BETWEEN_THREADS, topdeck_clock::now_bounded),
        contender("topdeck wall", ORDERED_BETWEEN_THREADS, topdeck_clock::wall),
        contender("topdeck recent", NONE, topdeck_clock::now_coarse),
    ]
}

fn unix_of_minstant() -> impl Fn() -> u64 {
    let anchor = minstant::Anchor::new();
    move || minstant::Instant::now().as_unix_nanos(&anchor)
}

fn pairs(quanta: &quanta::Clock) -> Vec<BenchContender<'_>> {
    vec![
        contender(STD, ORDERED_BETWEEN_THREADS, || Instant::now().elapsed()),
        contender("quanta raw and delta", NONE, || {
            quanta.delta_as_nanos(quanta.raw(), quanta.raw())
        }),
        contender("minstant", NONE, || minstant::Instant::now().elapsed()),
        contender("fastant", NONE, || fastant::Instant::now().elapsed()),
        contender(STOPWATCH, NONE, || topdeck_clock::Stopwatch::start().elapsed_ns()),
        contender(ORDERED, ORDERED_BETWEEN_THREADS, || {
            let start = topdeck_clock::now();
            topdeck_clock::now() - start
        }),
    ]
}

struct ClockError {
    name: &'static str,
    worst_ns: f64,
    last_ns: f64,
    comparisons: u64,
}

fn system_ns() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Exact up to an uptime of 104 days.
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Errors of clocks relative to the system clock, which all of them follow.
fn measure_clock_errors(seconds: u64) -> Vec<ClockError> {
    let quanta = quanta::Clock::new();
    let since_quanta = quanta.now();
    let since_minstant = minstant::Instant::now();
    let since_fastant = fastant::Instant::now();
    let since = topdeck_clock::now();
    type NamedClock<'a> = (&'static str, Box<dyn Fn() -> f64 + 'a>);
    let clocks: Vec<NamedClock<'_>> = vec![
        ("quanta", Box::new(|| (quanta.now() - since_quanta).as_nanos() as f64)),
        ("minstant", Box::new(|| since_minstant.elapsed().as_nanos() as f64)),
        ("fastant", Box::new(|| since_fastant.elapsed().as_nanos() as f64)),
        ("topdeck", Box::new(|| (topdeck_clock::now() - since) as f64)),
    ];
    // Offset of each clock to the system clock.
    let off = |read: &dyn Fn() -> f64| {
        let attempts = (0..ATTEMPTS).map(|_| {
            let (before, read, after) = (system_ns(), read(), system_ns());
            (after - before, read - (before + after) / 2.0)
        });
        let best = attempts.min_by(|a, b| a.0.total_cmp(&b.0));
        best.filter(|&(width, _)| width <= WIDTH_MAX_NS).map(|(_, off)| off)
    };
    let begins: Vec<f64> = clocks.iter().map(|(_, read)| off(read).unwrap_or(f64::NAN)).collect();
    let (begin, settled) = (Instant::now(), Duration::from_secs(if seconds > 10 { 10 } else { 1 }));
    let mut truths: Vec<ClockError> = clocks
        .iter()
        .map(|&(name, _)| ClockError { name, worst_ns: 0.0, last_ns: 0.0, comparisons: 0 })
        .collect();
    while begin.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(2));
        if begin.elapsed() < settled {
            continue;
        }
        for ((truth, (_, read)), began) in truths.iter_mut().zip(&clocks).zip(&begins) {
            let Some(now) = off(read) else { continue };
            truth.last_ns = now - began;
            truth.worst_ns = truth.worst_ns.max(truth.last_ns.abs());
            truth.comparisons += 1;
        }
    }
    truths
}

/// Name, number of backward steps, the largest one in nanoseconds, and number of readings of each
/// clock.
fn check_order(quanta: &quanta::Clock, readings: u64) -> Vec<(&'static str, u64, u64, u64)> {
    let zero = quanta.raw();
    let unix = unix_of_minstant();
    let rows: Vec<(&'static str, u64, u64)> = vec![
        order_row(SYSTEM, readings / 4, || system_ns() as u64),
        order_row("quanta now", readings / 4, || quanta.delta_as_nanos(zero, quanta.raw())),
        order_row("minstant, as Unix time", readings / 4, unix),
        order_row(RELAXED, readings / 4, topdeck_clock::now_unordered),
        order_row(ORDERED, readings, topdeck_clock::now),
    ];
    rows.into_iter()
        .map(|(name, steps, greatest)| {
            (name, steps, greatest, if name == ORDERED { readings } else { readings / 4 })
        })
        .collect()
}

fn order_row(
    name: &'static str,
    readings: u64,
    read: impl Fn() -> u64 + Sync,
) -> (&'static str, u64, u64) {
    let greatest = AtomicU64::new(0);
    let (steps, furthest) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..readings / 2 {
                    let seen = greatest.load(Ordering::Acquire);
                    let now = read();
                    if now < seen {
                        steps.fetch_add(1, Ordering::Relaxed);
                        furthest.fetch_max(seen - now, Ordering::Relaxed);
                    } else {
                        greatest.store(now, Ordering::Release);
                    }
                }
            });
        }
    });
    (name, steps.into_inner(), furthest.into_inner())
}

/// Violations and the widest bound.
fn bounds(checks: u64) -> (u64, u64) {
    let system = || system_ns() as u64;
    let (mut violations, mut widest_ns) = (0, 0);
    for _ in 0..checks {
        let (before, read, after) = (system(), topdeck_clock::now_bounded(), system());
        violations +=
            u64::from(read.ns + read.error_ns < before || read.ns > after + read.error_ns);
        widest_ns = widest_ns.max(read.error_ns);
    }
    (violations, widest_ns)
}
