//! Hiccups: how late a thread wakes up that has nothing else to do.
//!
//! It sleeps until moments that were fixed beforehand, one every period, and records by how much each was missed, in
//! nanoseconds of the monotonic clock. Whatever stops the machine or the process (a hypervisor, a full run queue, a
//! stopped process) shows here, whoever is the cause. A stall longer than a period is also a wait of all who would
//! have come in it: each missed moment counts with its own wait, so that quantiles are those of response times.
//! Time in which the system is suspended does not pass on that clock.
//! Idea: Gil Tene, jHiccup (github.com/giltene/jHiccup); wrk2's intended start times.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hist::{Histogram, SharedRecorder};
use intake::Counter;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::error::{Error, Result};

/// Missed moments that are recorded of one stall, at 10 ms those of 46 hours; the others are counted.
const MISSED_MAX: u64 = 1 << 24;
/// The kernel may be as much later than asked for to save wake-ups; its default is 50,000 ns.
const SLACK_NS: u64 = 1;

/// The thread.
#[derive(Debug)]
pub(crate) struct Hiccup {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What it recorded.
#[derive(Clone)]
pub(crate) struct Waits(SharedRecorder);

impl Waits {
    /// Since the last call.
    pub(crate) fn interval(&self) -> Histogram {
        self.0.interval()
    }
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waits")
    }
}

impl Hiccup {
    /// Begins. `unrecorded` counts moments beyond [`MISSED_MAX`].
    pub(crate) fn start(period: Duration, unrecorded: Counter) -> Result<(Hiccup, Waits)> {
        let recorder = SharedRecorder::new();
        let stop = Arc::new(AtomicBool::new(false));
        let (name, waits) = ("hiccup", Waits(recorder.clone()));
        let run = {
            let stop = Arc::clone(&stop);
            // A period is 10 s at the most.
            let period = period.as_nanos() as u64;
            move || run(period, &stop, &recorder, &unrecorded)
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok((Hiccup { stop, thread: Some(thread) }, waits))
    }

    /// Ends, within a period.
    pub(crate) fn stop(&mut self) {
        // Relaxed: nothing but the word itself is told.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic but for a bug, which it has told already.
            let _ = thread.join();
        }
    }
}

impl Drop for Hiccup {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(period: u64, stop: &AtomicBool, recorder: &SharedRecorder, unrecorded: &Counter) {
    // Where the kernel refuses, what it adds is part of each wait, and seen in the least of them.
    let _ = set_current_timer_slack(NonZeroU64::new(SLACK_NS));
    let handle = recorder.handle();
    let mut intended = now() + period;
    while !stop.load(Ordering::Relaxed) {
        sleep_until(intended);
        let (next, left_out) = missed(intended, now(), period, |wait| handle.record(wait));
        intended = next;
        if left_out > 0 {
            unrecorded.add(left_out);
        }
    }
}

/// Records how late each moment from `intended` on is at `now`. The first that is still to come, and how many were
/// left out.
fn missed(intended: u64, now: u64, period: u64, mut record: impl FnMut(u64)) -> (u64, u64) {
    let Some(late) = now.checked_sub(intended) else { return (intended, 0) };
    let moments = late / period + 1;
    for moment in 0..moments.min(MISSED_MAX) {
        record(late - moment * period);
    }
    (intended + moments * period, moments.saturating_sub(MISSED_MAX))
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn sleep_until(moment: u64) {
    let [tv_sec, tv_nsec] = [moment / 1_000_000_000, moment % 1_000_000_000].map(|n| n as i64);
    let moment = Timespec { tv_sec, tv_nsec };
    // A signal may wake it: then it is too early, and it sleeps on.
    while clock_nanosleep_absolute(ClockId::Monotonic, &moment) == Err(rustix::io::Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(intended: u64, now: u64, waits: &[u64], next: u64) {
        let mut found = Vec::new();
        assert_eq!(missed(intended, now, 10, |wait| found.push(wait)), (next, 0));
        assert_eq!(found, waits);
    }

    #[test]
    fn each_moment_counts_with_its_own_wait() {
        check(100, 100, &[0], 110);
        check(100, 103, &[3], 110);
        check(100, 109, &[9], 110);
        check(100, 110, &[10, 0], 120);
        check(100, 145, &[45, 35, 25, 15, 5], 150);
        check(100, 99, &[], 100);
    }

    #[test]
    fn a_stall_without_end_is_bounded() {
        let mut count = 0;
        let late = 10 * (MISSED_MAX + 7);
        let (next, left_out) = missed(0, late, 10, |_| count += 1);
        assert_eq!((count, next, left_out), (MISSED_MAX, late + 10, 8));
    }

    #[test]
    fn the_thread_records_and_ends() {
        let (mut hiccup, waits) =
            Hiccup::start(Duration::from_micros(200), Counter::default()).unwrap();
        while waits.0.snapshot().count() < 20 {
            std::thread::yield_now();
        }
        hiccup.stop();
        let recorded = waits.interval();
        assert!(recorded.count() >= 20);
        assert!(waits.interval().is_empty());
    }
}
