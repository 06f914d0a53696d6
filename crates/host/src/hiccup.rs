//! Hiccups: wake-up delay of an idle thread (jHiccup).
//!
//! It sleeps until moments that were fixed beforehand, one every period, and records by how much
//! each was missed, in nanoseconds of the monotonic clock. Whatever stops the machine or the
//! process (a hypervisor, a full run queue, a stopped process) shows here, whoever is the cause. A
//! stall longer than a period is also a wait of all who would have come in it: each missed moment
//! counts with its own wait, so that quantiles are those of response times. Time in which the
//! system is suspended does not pass on that clock. Idea: Gil Tene, jHiccup
//! (github.com/giltene/jHiccup); wrk2's intended start times.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hist::{Histogram, SharedRecorder};
use intake::{Counter, SupervisedThread};
use role::settings::{Length, SettingsCheck};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::metric::RowReporter;
use crate::metrics;
use crate::source::{HostSource, Opening, SourceSettings, TABLE};

/// Missed moments that are recorded of one stall, at 10 ms those of 46 hours; the others are
/// counted.
const MISSED_MAX: u64 = 1 << 24;
/// The kernel may be as much later than asked for to save wake-ups; its default is 50,000 ns.
const SLACK_NS: u64 = 1;

/// Hiccup thread.
#[derive(Debug)]
pub(crate) struct Hiccup {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Hiccup distribution since the last reading.
#[derive(Clone)]
pub(crate) struct HiccupRecorder(SharedRecorder);

impl HiccupRecorder {
    /// Since the last call.
    pub(crate) fn interval(&self) -> Histogram {
        self.0.interval()
    }
}

impl std::fmt::Debug for HiccupRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waits")
    }
}

/// Settings of hiccups.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HiccupSettings {
    /// How late a thread is woken: true.
    hiccup: bool,
    /// How often it asks to be woken: `10ms`, from 100 us to 10 s.
    hiccup_interval: Length,
}

impl HiccupSettings {
    const INTERVALS: RangeInclusive<Duration> =
        Duration::from_micros(100)..=Duration::from_secs(10);
}

impl Default for HiccupSettings {
    fn default() -> HiccupSettings {
        let hiccup_interval = Length(Duration::from_millis(10));
        HiccupSettings { hiccup: true, hiccup_interval }
    }
}

impl SourceSettings for HiccupSettings {
    const KEYS: &'static [&'static str] = &["hiccup", "hiccup_interval"];

    fn check(&self, check: &mut SettingsCheck<'_>) {
        check.range(TABLE, "hiccup_interval", Some(self.hiccup_interval), Self::INTERVALS);
    }

    fn is_enabled(&self) -> bool {
        self.hiccup
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        if !self.hiccup {
            return Ok(None);
        }
        let unrecorded = opening.intake.meter().counter(
            "topdeck_host_hiccups_dropped_total",
            "moments of long stalls that are in no distribution of hiccups",
            &[],
        );
        let supervised = opening.intake.supervisor().thread("hiccup");
        let (thread, waits) = Hiccup::start(self.hiccup_interval.0, unrecorded, supervised)?;
        Ok(Some(Box::new(Hiccups { thread, waits, late: Histogram::default() })))
    }
}

/// Hiccups as a source: those of readings that were not taken come again.
#[derive(Debug)]
struct Hiccups {
    thread: Hiccup,
    waits: HiccupRecorder,
    late: Histogram,
}

impl HostSource for Hiccups {
    fn read(&mut self, report: &mut RowReporter<'_>, _began: i64) -> u64 {
        self.late.merge(&self.waits.interval()).expect("BUG: one scheme, fewer than 2^64 values");
        if !self.late.is_empty() {
            report.distribution(&metrics::HICCUP_DELAY, &[], self.late.clone());
        }
        0
    }

    fn commit(&mut self) {
        self.late = Histogram::default();
    }

    fn stop(&mut self) -> Result<()> {
        self.thread.stop();
        Ok(())
    }
}

impl Hiccup {
    /// Begins. `unrecorded` counts moments beyond [`MISSED_MAX`].
    pub(crate) fn start(
        period: Duration,
        unrecorded: Counter,
        supervised: SupervisedThread,
    ) -> Result<(Hiccup, HiccupRecorder)> {
        let recorder = SharedRecorder::new();
        let stop = Arc::new(AtomicBool::new(false));
        let (name, waits) = ("hiccup", HiccupRecorder(recorder.clone()));
        let run = {
            let stop = Arc::clone(&stop);
            // A period is 10 s at the most.
            let period = period.as_nanos() as u64;
            move || {
                let work = || {
                    supervised.fault_point();
                    run(period, &stop, &recorder, &unrecorded);
                };
                let _ = supervised.run(|| stop.load(Ordering::Relaxed), work);
            }
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
            // A panic is told by the supervisor.
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
    let handle = recorder.thread_recorder();
    run_periodic(period, stop, |woken| {
        let left_out = woken.for_each_sample(|_, wait| handle.record(wait));
        if left_out > 0 {
            unrecorded.add(left_out);
        }
    });
}

/// Wake-up of the periodic thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// The first moment that it was to wake up at and did not before. Nanoseconds of the monotonic
    /// clock.
    pub intended_ns: u64,
    /// When it woke up.
    pub woken_ns: u64,
    period_ns: u64,
}

/// Sleeps on this thread until moments that are a period apart, and tells of each time that it
/// wakes up, until `stop` is set.
pub fn run_periodic(period_ns: u64, stop: &AtomicBool, mut tell: impl FnMut(WakeUp)) {
    // Where the kernel refuses, what it adds is part of each wait, and seen in the least of them.
    let _ = set_current_timer_slack(NonZeroU64::new(SLACK_NS));
    let mut intended_ns = now() + period_ns;
    while !stop.load(Ordering::Relaxed) {
        sleep_until(intended_ns);
        let at_ns = now();
        if at_ns >= intended_ns {
            let woken = WakeUp::new(intended_ns, at_ns, period_ns);
            tell(woken);
            intended_ns = woken.next_ns();
        }
    }
}

impl WakeUp {
    /// One that was to be at `intended_ns` and was at `at_ns`.
    pub fn new(intended_ns: u64, at_ns: u64, period_ns: u64) -> WakeUp {
        WakeUp { intended_ns, woken_ns: at_ns, period_ns: period_ns.max(1) }
    }

    /// How late it was.
    pub fn delay_ns(&self) -> u64 {
        self.woken_ns.saturating_sub(self.intended_ns)
    }

    fn count(&self) -> u64 {
        self.delay_ns() / self.period_ns + 1
    }

    /// The next moment to wake up at.
    pub fn next_ns(&self) -> u64 {
        self.intended_ns + self.count() * self.period_ns
    }

    /// Each moment that had come by then, and how late it is; of a stall, so, all that fall into
    /// it. How many were left out, because it had no end.
    pub fn for_each_sample(&self, mut record: impl FnMut(u64, u64)) -> u64 {
        let (late, moments) = (self.delay_ns(), self.count());
        for moment in 0..moments.min(MISSED_MAX) {
            let after_ns = moment * self.period_ns;
            record(self.intended_ns + after_ns, late - after_ns);
        }
        moments.saturating_sub(MISSED_MAX)
    }
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
        let woken = WakeUp::new(intended, now, 10);
        let (mut found, mut moments) = (Vec::new(), Vec::new());
        let left_out = woken.for_each_sample(|moment, wait| {
            found.push(wait);
            moments.push(moment);
        });
        assert_eq!((woken.next_ns(), left_out), (next, 0));
        assert_eq!(found, waits);
        assert!(moments.iter().zip(waits).all(|(moment, wait)| moment + wait == now));
    }

    #[test]
    fn each_sample_has_its_own_delay() {
        check(100, 100, &[0], 110);
        check(100, 103, &[3], 110);
        check(100, 109, &[9], 110);
        check(100, 110, &[10, 0], 120);
        check(100, 145, &[45, 35, 25, 15, 5], 150);
    }

    #[test]
    fn a_stall_without_end_is_bounded() {
        let mut count = 0;
        let late = 10 * (MISSED_MAX + 7);
        let woken = WakeUp::new(0, late, 10);
        let left_out = woken.for_each_sample(|_, _| count += 1);
        assert_eq!((count, woken.next_ns(), left_out), (MISSED_MAX, late + 10, 8));
    }

    #[test]
    fn the_thread_records_and_ends() {
        let thread = intake::Supervisor::default().thread("hiccup");
        let (mut hiccup, waits) =
            Hiccup::start(Duration::from_micros(200), Counter::default(), thread).unwrap();
        while waits.0.snapshot().count() < 20 {
            std::thread::yield_now();
        }
        hiccup.stop();
        let recorded = waits.interval();
        assert!(recorded.count() >= 20);
        assert!(waits.interval().is_empty());
    }
}
