//! Hiccups: wake-up delay of an idle thread (jHiccup).
//!
//! The thread sleeps until deadlines fixed in advance, one per period, and records the delay of
//! each wake-up in nanoseconds of the monotonic clock. Everything that stops the machine or the
//! process (a hypervisor, a full run queue, SIGSTOP) shows up, whatever the cause. A stall longer
//! than a period would delay every request that arrives during it: each missed deadline counts with
//! its own delay, so quantiles equal those of response times. The monotonic clock does not advance
//! while the system is suspended. Source: Gil Tene, jHiccup (github.com/giltene/jHiccup); wrk2's
//! intended start times.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hist::{Histogram, SharedRecorder};
use intake::{EventCounter, SupervisedThread};
use role::settings::{DurationSetting, SettingsCheck};
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::metric::RowReporter;
use crate::metrics;
use crate::source::{HostSource, Opening, SourceSettings, TABLE};

/// Missed deadlines recorded per stall; at a period of 10 ms they cover 46 hours. Further ones are
/// counted as unrecorded.
const MISSED_MAX: u64 = 1 << 24;
/// Timer slack: how far the kernel may delay a wake-up to coalesce timers; the default is 50,000
/// ns.
const SLACK_NS: u64 = 1;

/// Hiccup thread.
#[derive(Debug)]
pub(crate) struct Hiccup {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Hiccup distribution since the last scrape.
#[derive(Clone)]
pub(crate) struct HiccupRecorder(SharedRecorder);

impl HiccupRecorder {
    /// Distribution since the last call.
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
    /// Wake-up delay of an idle thread (hiccups): true.
    hiccup: bool,
    /// Wake-up period: `10ms`, from 100 us to 10 s.
    hiccup_interval: DurationSetting,
}

impl HiccupSettings {
    const INTERVALS: RangeInclusive<Duration> =
        Duration::from_micros(100)..=Duration::from_secs(10);
}

impl Default for HiccupSettings {
    fn default() -> HiccupSettings {
        let hiccup_interval = DurationSetting(Duration::from_millis(10));
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
            "hiccup samples of long stalls not recorded",
            &[],
        );
        let supervised = opening.intake.supervisor().thread("hiccup");
        let (thread, waits) = Hiccup::start(self.hiccup_interval.0, unrecorded, supervised)?;
        Ok(Some(Box::new(Hiccups { thread, waits, late: Histogram::default() })))
    }
}

/// Source of hiccups. A scrape that is not committed is part of the next one.
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
    /// Starts the thread. `unrecorded` counts deadlines beyond [`MISSED_MAX`].
    pub(crate) fn start(
        period: Duration,
        unrecorded: EventCounter,
        supervised: SupervisedThread,
    ) -> Result<(Hiccup, HiccupRecorder)> {
        let recorder = SharedRecorder::new();
        let stop = Arc::new(AtomicBool::new(false));
        let (name, waits) = ("hiccup", HiccupRecorder(recorder.clone()));
        let run = {
            let stop = Arc::clone(&stop);
            // A period is at most 10 s.
            let period = period.as_nanos() as u64;
            move || {
                let work = || {
                    supervised.failpoint();
                    run(period, &stop, &recorder, &unrecorded);
                };
                let _ = supervised.run(|| stop.load(Ordering::Relaxed), work);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let thread = thread.map_err(|source| Error::Thread { name, source })?;
        Ok((Hiccup { stop, thread: Some(thread) }, waits))
    }

    /// Stops the thread within a period.
    pub(crate) fn stop(&mut self) {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The supervisor reports panics.
            let _ = thread.join();
        }
    }
}

impl Drop for Hiccup {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(period: u64, stop: &AtomicBool, recorder: &SharedRecorder, unrecorded: &EventCounter) {
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
    /// First deadline not covered by an earlier wake-up, in nanoseconds of the monotonic clock.
    pub intended_ns: u64,
    /// Time of the wake-up.
    pub woken_ns: u64,
    period_ns: u64,
}

/// Sleeps on the calling thread until deadlines a period apart and reports each wake-up, until
/// `stop` is set.
pub fn run_periodic(period_ns: u64, stop: &AtomicBool, mut tell: impl FnMut(WakeUp)) {
    // If the kernel refuses, its slack is part of each delay and visible in the minimum.
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
    /// Wake-up due at `intended_ns` that happened at `at_ns`.
    pub fn new(intended_ns: u64, at_ns: u64, period_ns: u64) -> WakeUp {
        WakeUp { intended_ns, woken_ns: at_ns, period_ns: period_ns.max(1) }
    }

    /// Delay of the wake-up.
    pub fn delay_ns(&self) -> u64 {
        self.woken_ns.saturating_sub(self.intended_ns)
    }

    fn count(&self) -> u64 {
        self.delay_ns() / self.period_ns + 1
    }

    /// Next deadline.
    pub fn next_ns(&self) -> u64 {
        self.intended_ns + self.count() * self.period_ns
    }

    /// Calls `record` with each deadline that has passed and its delay, including all deadlines
    /// within a stall. Returns how many were left out because of [`MISSED_MAX`].
    pub fn for_each_sample(&self, mut record: impl FnMut(u64, u64)) -> u64 {
        let (late, samples) = (self.delay_ns(), self.count());
        for sample in 0..samples.min(MISSED_MAX) {
            let after_ns = sample * self.period_ns;
            record(self.intended_ns + after_ns, late - after_ns);
        }
        samples.saturating_sub(MISSED_MAX)
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn sleep_until(deadline: u64) {
    let [tv_sec, tv_nsec] = [deadline / 1_000_000_000, deadline % 1_000_000_000].map(|n| n as i64);
    let deadline = Timespec { tv_sec, tv_nsec };
    // A signal may interrupt the sleep before the deadline; the thread sleeps again.
    while clock_nanosleep_absolute(ClockId::Monotonic, &deadline) == Err(rustix::io::Errno::INTR) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(intended: u64, now: u64, waits: &[u64], next: u64) {
        let woken = WakeUp::new(intended, now, 10);
        let (mut found, mut timestamps) = (Vec::new(), Vec::new());
        let left_out = woken.for_each_sample(|timestamp, wait| {
            found.push(wait);
            timestamps.push(timestamp);
        });
        assert_eq!((woken.next_ns(), left_out), (next, 0));
        assert_eq!(found, waits);
        assert!(timestamps.iter().zip(waits).all(|(timestamp, wait)| timestamp + wait == now));
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
            Hiccup::start(Duration::from_micros(200), EventCounter::default(), thread).unwrap();
        while waits.0.snapshot().count() < 20 {
            std::thread::yield_now();
        }
        hiccup.stop();
        let recorded = waits.interval();
        assert!(recorded.count() >= 20);
        assert!(waits.interval().is_empty());
    }
}
