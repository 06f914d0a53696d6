//! Cost and error of reading the time on this host, with the system's clocks and with topdeck's.
//!
//! The cost is that of the fastest of many rounds, in nanoseconds per call.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Calls per measurement, and number of measurements.
const CALLS: u32 = 1_000;
const ROUNDS: u32 = 200;
/// Comparisons with the system clock, each the closest of several attempts.
const COMPARISONS: u32 = 1_000;
const ATTEMPTS: u32 = 16;

/// Time source.
struct TimeSource {
    name: &'static str,
    /// Nanoseconds of `CLOCK_MONOTONIC`; `None` for a pair of calls that measures a duration.
    read: Option<Box<dyn Fn() -> u64>>,
    cost_ns: f64,
    /// Error specification of the clock.
    description: String,
}

/// Measures all clocks for about two seconds; returns a table and the state of topdeck's clock.
pub fn clock_table() -> String {
    let bound_ns = clock::error_bound_ns();
    let bound = |more: &str| format!("at most {bound_ns} ns{more}");
    let tick = clock_getres(ClockId::MonotonicCoarse).tv_nsec;
    let calls = [
        time_source("system: CLOCK_MONOTONIC", system_ns, "reference".to_owned()),
        time_source(
            "system: CLOCK_MONOTONIC_COARSE",
            || read(ClockId::MonotonicCoarse),
            format!("its tick, {tick} ns"),
        ),
        time_source("topdeck: now", clock::now, bound("")),
        time_source(
            "topdeck: now_bounded",
            || clock::now_bounded().ns,
            bound(", returned with each reading"),
        ),
        time_source(
            "topdeck: now_unordered",
            clock::now_unordered,
            bound(", not ordered with other instructions"),
        ),
        time_source(
            "topdeck: now_coarse",
            clock::now_coarse,
            "a millisecond plus scheduling delay".to_owned(),
        ),
        stopwatch_pair("pair: std Instant", || Instant::now().elapsed().as_nanos() as u64),
        stopwatch_pair("pair: topdeck Stopwatch", || clock::Stopwatch::start().elapsed_ns()),
        stopwatch_pair("wall: SystemTime::now", || read(ClockId::Realtime)),
        stopwatch_pair("wall: topdeck wall", || clock::wall().unix_ns as u64),
    ];
    let mut out = String::new();
    let _ = writeln!(out, "{:<32} {:>8}  {:>12}  bound", "call", "ns/op", "error, ns");
    for call in &calls {
        let off = call.read.as_ref().map(max_error_ns).map(|ns| ns.to_string());
        let off = off.unwrap_or_else(|| "–".to_owned());
        let line =
            format!("{:<32} {:>8.1}  {off:>12}  {}", call.name, call.cost_ns, call.description);
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let status = clock::status();
    let _ = writeln!(out, "\n{}", summary(&status));
    out
}

fn time_source(name: &'static str, read: impl Fn() -> u64 + 'static, about: String) -> TimeSource {
    TimeSource { name, cost_ns: cost_ns(&read), read: Some(Box::new(read)), description: about }
}

fn stopwatch_pair(name: &'static str, read: impl Fn() -> u64) -> TimeSource {
    TimeSource { name, cost_ns: cost_ns(&read), read: None, description: String::new() }
}

fn cost_ns(read: impl Fn() -> u64) -> f64 {
    let round = |_| {
        let start = Instant::now();
        for _ in 0..CALLS {
            black_box(read());
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// Maximum difference from the system clock. A value between the system clock readings before and
/// after it has no difference.
fn max_error_ns(read: impl Fn() -> u64) -> u64 {
    let comparison = |_| {
        let attempt = |_| {
            let (before, read, after) = (system_ns(), read(), system_ns());
            (after - before, before.saturating_sub(read).max(read.saturating_sub(after)))
        };
        (0..ATTEMPTS).map(attempt).min().map_or(0, |(_, off)| off)
    };
    (0..COMPARISONS).map(comparison).max().unwrap_or(0)
}

fn system_ns() -> u64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn summary(status: &clock::ClockStatus) -> String {
    let from = match (status.mode, &status.reason) {
        (clock::ClockMode::Counter, _) => format!(
            "Clock source: CPU counter, {:.6} GHz, known to {:.1} in 10^9.",
            status.ticks_per_second / 1e9,
            status.rate_error * 1e9
        ),
        (_, Some(reason)) => format!("Clock source: system clock ({reason})."),
        (_, None) => {
            "Clock source: system clock (the rate of the CPU counter is not calibrated yet)."
                .to_owned()
        }
    };
    let steered = match status.is_disciplined {
        true => "The system clock is disciplined (NTP): rate changes are within the bound.",
        false => "The system clock is not disciplined: the time of day may drift.",
    };
    format!(
        "{from}\n{} comparisons with the system clock, {} rejected as too slow, {} with an error \
         above the bound.\n{steered}",
        status.comparisons, status.rejected_comparisons, status.discontinuities
    )
}
