//! Several threads that work at the same time.
//!
//! Each thread is pinned to its own CPU. The threads work in bursts that start at the same time. A
//! burst in which a thread waited on the run queue is discarded, because the threads did not work
//! concurrently.

use std::hint::spin_loop;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::clock::{cpu_time, waited_for_processor, wall_time};
use crate::data::Values;

/// Values per burst: 0.1 ms for the fastest contender, 15 ms for the slowest.
pub(crate) const BURST: usize = 32_768;
/// Undisturbed bursts per sample, and the maximum time to collect them.
const BURSTS_MIN: usize = 8;
/// Maximum share of a burst that a thread may wait on the run queue. Not 0: a thread that sleeps on
/// a mutex always waits a little, and bursts with high contention must not be discarded.
const WAITED_MAX: f64 = 0.05;
const ROUND_MAX: Duration = Duration::from_millis(250);

/// Work of a contender on each thread: it creates the thread's writer, if any, and calls its
/// argument with a closure that records a slice.
pub(crate) type ThreadFn = dyn Fn(&mut dyn FnMut(&mut dyn FnMut(&Values))) + Sync;

/// Cost per value on one thread.
#[derive(Clone, Copy)]
pub(crate) struct BurstCost {
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
}

/// A thread's part of a burst; `None` if it waited on the run queue.
type ThreadBurst = Option<BurstCost>;

/// Means over the threads.
#[derive(Default)]
pub(crate) struct BurstResults {
    pub(crate) valid: Vec<BurstCost>,
    pub(crate) discarded: usize,
}

impl BurstResults {
    pub(crate) fn median(&self) -> Option<BurstCost> {
        let median = |of: fn(&BurstCost) -> f64| {
            let mut all: Vec<f64> = self.valid.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let (cpu_ns, passed_ns) = (median(|one| one.cpu_ns)?, median(|one| one.wall_ns)?);
        Some(BurstCost { cpu_ns, wall_ns: passed_ns })
    }
}

/// Runs one thread per element of `values`; each records in bursts until enough bursts were
/// undisturbed.
pub(crate) fn run_bursts(
    on_thread: &ThreadFn,
    values: &[Values],
    processors: &[usize],
) -> BurstResults {
    let meeting = SpinBarrier::new(values.len());
    let latest: Vec<Mutex<ThreadBurst>> = values.iter().map(|_| Mutex::new(None)).collect();
    let outcome = Mutex::new(BurstResults::default());
    let began = wall_time();
    let enough = |outcome: &BurstResults| {
        outcome.valid.len() >= BURSTS_MIN || wall_time() - began > ROUND_MAX
    };
    let worker = |which: usize| {
        pin(processors[which]);
        on_thread(&mut |record| {
            record(&values[which]);
            loop {
                let part = run_burst(&meeting, record, &values[which]);
                *latest[which].lock().expect("no panic") = part;
                meeting.wait();
                if which == 0 {
                    let parts = latest.iter().map(|one| one.lock().expect("no panic").take());
                    outcome.lock().expect("no panic").add(parts);
                }
                meeting.wait();
                // All threads must agree, so the first one decides.
                if which == 0 && enough(&outcome.lock().expect("no panic")) {
                    meeting.finish();
                }
                meeting.wait();
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

impl BurstResults {
    fn add(&mut self, parts: impl Iterator<Item = ThreadBurst>) {
        let Some(costs) = parts.collect::<Option<Vec<BurstCost>>>() else {
            self.discarded += 1;
            return;
        };
        let mean =
            |of: fn(&BurstCost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
        self.valid
            .push(BurstCost { cpu_ns: mean(|one| one.cpu_ns), wall_ns: mean(|one| one.wall_ns) });
    }
}

/// Waits for the other threads and records all values.
fn run_burst(
    meeting: &SpinBarrier,
    record: &mut dyn FnMut(&Values),
    values: &Values,
) -> ThreadBurst {
    let waited_before = waited_for_processor();
    meeting.wait();
    let (cpu, passed) = (cpu_time(), wall_time());
    record(values);
    let (cpu, passed) = (cpu_time() - cpu, wall_time() - passed);
    let waited = waited_for_processor().zip(waited_before).map(|(after, before)| after - before);
    if waited.is_some_and(|waited| waited.as_secs_f64() > WAITED_MAX * passed.as_secs_f64()) {
        return None;
    }
    let per_value = |time: Duration| time.as_secs_f64() * 1e9 / values.len() as f64;
    Some(BurstCost { cpu_ns: per_value(cpu), wall_ns: per_value(passed) })
}

/// A spinning barrier: threads leave it within one cache line transfer of each other.
struct SpinBarrier {
    threads: usize,
    arrived: AtomicUsize,
    finished: AtomicUsize,
}

impl SpinBarrier {
    fn new(threads: usize) -> SpinBarrier {
        SpinBarrier { threads, arrived: AtomicUsize::new(0), finished: AtomicUsize::new(0) }
    }

    /// Monotonic count: phase `k` is complete at `k * threads`.
    fn wait(&self) {
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

/// The first two CPUs available to this process.
pub(crate) fn two_processors() -> Option<[usize; 2]> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&one| allowed.is_set(one));
    Some([processors.next()?, processors.next()?])
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    // Without permission the scheduler still tends to separate two busy threads.
    let _ = sched_setaffinity(None, &set);
}
