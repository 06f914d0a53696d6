//! Supervisor: restarts threads after panics and reports them.
//!
//! A panic is a bug. It must not silently end a thread whose work would then be missing while
//! everything else goes on. So each thread runs its loop under [`SupervisedThread::run`], which
//! catches the panic, counts it, waits and runs the loop again. The wait doubles with each
//! consecutive panic, from [`SupervisorSettings::initial_backoff`] to
//! [`SupervisorSettings::max_backoff`]. The state of a restarted loop must be consistent: it is
//! rebuilt, or changed only in single steps.
//!
//! Disk damage to stored data is reported here too ([`Supervisor::report_damage`]).
//!
//! An input whose processing panics repeatedly is quarantined by its owner, which reports it here
//! ([`Supervisor::quarantine`]).
//!
//! The supervisor is in this crate because it is the lowest one that all threads of a server use.
//! It is passed in [`Options`](crate::Options): there is no global instance, and each test has its
//! own.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod acknowledgement;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::log::{LogFn, LogLevel};
use crate::wall_clock::{WallClock, wall_clock};

pub use acknowledgement::DamageAcknowledgement;

/// Consecutive panics from which on a thread is reported as failing, although it is restarted.
pub(crate) const PANICS_FAILING: u32 = 3;
/// Run time without a panic that resets the count of consecutive panics: ten minutes.
const STABLE_NS: i64 = 600_000_000_000;
/// Maximum number of quarantined inputs; beyond it, the oldest is forgotten, and its gap remains.
const QUARANTINED_MAX: usize = 256;
/// Duration for which damage is reported: a day, so that an operator sees it.
pub(crate) const DAMAGE_REPORTED_FOR_NS: i64 = 86_400_000_000_000;
/// Maximum number of damage reports; beyond it, the oldest is forgotten, and its gap remains.
const DAMAGE_MAX: usize = 256;
/// Interval at which a waiting thread checks the stop flag.
const STOP_POLL: Duration = Duration::from_millis(20);

/// Hook called at the failpoints of threads, with the point's name. Tests use it to panic.
pub type FailpointHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Restart policy of supervised threads.
#[derive(Clone)]
pub struct SupervisorSettings {
    /// Wait after the first panic: 100 ms by default.
    pub initial_backoff: Duration,
    /// Maximum wait: 30 s by default.
    pub max_backoff: Duration,
    /// Source of time.
    pub clock: WallClock,
    /// Log of panics; none by default.
    pub log: Option<LogFn>,
    /// For tests: called at each failpoint. None by default.
    pub failpoint_hook: Option<FailpointHook>,
}

impl Default for SupervisorSettings {
    fn default() -> SupervisorSettings {
        SupervisorSettings {
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(30),
            clock: wall_clock(),
            log: None,
            failpoint_hook: None,
        }
    }
}

/// Supervisor: restarts threads after a panic. Cheap to clone; clones share state.
#[derive(Clone)]
pub struct Supervisor(Arc<SupervisorShared>);

struct SupervisorShared {
    settings: SupervisorSettings,
    state: Mutex<SupervisorState>,
}

#[derive(Default)]
struct SupervisorState {
    threads: BTreeMap<String, ThreadEntry>,
    quarantined: Vec<QuarantinedInput>,
    quarantined_total: u64,
    damage: Vec<DamageReport>,
    damaged_records_total: u64,
    acknowledged: Vec<DamageAcknowledgement>,
}

#[derive(Default)]
struct ThreadEntry {
    count: usize,
    waiting: usize,
    restarts: u64,
    panics: u64,
    panics_in_row: u32,
    last_panic: Option<PanicReport>,
}

/// Report of a panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PanicReport {
    /// Message.
    pub message: String,
    /// Time, in nanoseconds since the Unix epoch.
    pub time: i64,
}

/// Status of the threads of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStatus {
    /// Name.
    pub name: String,
    /// Number of threads, including those that wait.
    pub count: usize,
    /// Number of threads that wait after a panic.
    pub waiting: usize,
    /// Restarts since the process began.
    pub restarts: u64,
    /// Panics since the process began. One in work that is not restarted, such as a request, is no
    /// restart.
    pub panics: u64,
    /// Consecutive panics, reset by ten minutes without one.
    pub panics_in_row: u32,
    /// The last panic.
    pub last_panic: Option<PanicReport>,
}

/// Quarantined input: processing it panicked repeatedly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedInput {
    /// Name for users.
    pub name: String,
    /// Panic message.
    pub reason: String,
    /// Time of the quarantine, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// Whether it is tried again, and released when that succeeds.
    pub is_retried: bool,
}

/// Damaged stored data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamageReport {
    /// Location, as in "records 3..4 of the journal".
    pub location: String,
    /// Number of lost records.
    pub records: u64,
    /// Remedy for the operator.
    pub remedy: String,
    /// Time of detection, in nanoseconds since the Unix epoch.
    pub time: i64,
}

impl Default for Supervisor {
    fn default() -> Supervisor {
        Supervisor::new(SupervisorSettings::default())
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Supervisor without threads.
    pub fn new(settings: SupervisorSettings) -> Supervisor {
        Supervisor(Arc::new(SupervisorShared { settings, state: Mutex::default() }))
    }

    /// For tests: a supervisor without backoff that panics the first `count` times a point is
    /// reached.
    #[doc(hidden)]
    pub fn with_injected_panics(points: &[(&str, u32)]) -> Supervisor {
        let remaining_panics: BTreeMap<String, u32> =
            points.iter().map(|&(point, times)| (point.to_owned(), times)).collect();
        let remaining_panics = Mutex::new(remaining_panics);
        let failpoint_hook: FailpointHook = Arc::new(move |point: &str| {
            let mut remaining_panics =
                remaining_panics.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(times) = remaining_panics.get_mut(point).filter(|times| **times > 0) else {
                return;
            };
            *times = times.saturating_sub(1);
            drop(remaining_panics);
            panic!("thrown at {point}");
        });
        let wait_first = Duration::ZERO;
        Supervisor::new(SupervisorSettings {
            initial_backoff: wait_first,
            failpoint_hook: Some(failpoint_hook),
            ..SupervisorSettings::default()
        })
    }

    /// Adds a thread; several may have the same name.
    pub fn thread(&self, name: impl Into<String>) -> SupervisedThread {
        let name = name.into();
        let is_waiting = AtomicBool::new(false);
        let thread = SupervisedThread { supervisor: self.clone(), name, is_waiting };
        thread.entry(|entry| entry.count = entry.count.saturating_add(1));
        thread
    }

    /// Failpoint for tests. Costs one comparison outside tests.
    #[inline]
    pub fn failpoint(&self, name: impl fmt::Display) {
        if let Some(failpoint_hook) = &self.0.settings.failpoint_hook {
            failpoint_hook(&name.to_string());
        }
    }

    /// Number of panics of threads with a name, and in their requests or attempts.
    pub fn panics(&self, name: &str) -> u64 {
        self.state().threads.get(name).map_or(0, |entry| entry.panics)
    }

    /// Number of restarts of threads with a name.
    pub fn restarts(&self, name: &str) -> u64 {
        self.state().threads.get(name).map_or(0, |entry| entry.restarts)
    }

    /// Status of all threads, by name.
    pub fn threads(&self) -> Vec<ThreadStatus> {
        let now = self.now();
        let state = self.state();
        let status = |(name, entry): (&String, &ThreadEntry)| ThreadStatus {
            name: name.clone(),
            count: entry.count,
            waiting: entry.waiting,
            restarts: entry.restarts,
            panics: entry.panics,
            panics_in_row: entry.panics_in_row(now),
            last_panic: entry.last_panic.clone(),
        };
        state.threads.iter().map(status).collect()
    }

    /// Reasons for unhealthy status: threads that wait after a panic, or panic often. Panic
    /// messages are left out, because the status is public.
    pub fn failures(&self) -> Vec<String> {
        let failing = |thread: &ThreadStatus| {
            thread.waiting > 0 || (thread.count > 0 && thread.panics_in_row >= PANICS_FAILING)
        };
        let threads = self.threads().into_iter().filter(failing);
        let text = |thread: ThreadStatus| {
            let state = if thread.waiting > 0 { "is down" } else { "panics repeatedly" };
            format!("thread {} {state} (panics: {})", thread.name, thread.panics)
        };
        threads.map(text).collect()
    }

    /// Reports an input as quarantined until it is tried again with success, replacing an entry of
    /// the same name. Logged once.
    pub fn quarantine(&self, name: impl Into<String>, reason: impl Into<String>) {
        let (name, reason, time) = (name.into(), reason.into(), self.now());
        self.add_quarantined(QuarantinedInput { name, reason, time, is_retried: true });
    }

    /// As [`Supervisor::quarantine`], for an input that is skipped for good. Not logged again if it
    /// is acknowledged.
    pub fn quarantine_permanently(&self, name: impl Into<String>, reason: impl Into<String>) {
        let (name, reason, time) = (name.into(), reason.into(), self.now());
        self.add_quarantined(QuarantinedInput { name, reason, time, is_retried: false });
    }

    fn add_quarantined(&self, input: QuarantinedInput) {
        let is_new = {
            let mut state = self.state();
            match state.quarantined.iter_mut().find(|known| known.name == input.name) {
                Some(known) => {
                    known.reason.clone_from(&input.reason);
                    false
                }
                None => {
                    if state.quarantined.len() >= QUARANTINED_MAX {
                        state.quarantined.remove(0);
                    }
                    state.quarantined_total = state.quarantined_total.saturating_add(1);
                    state.quarantined.push(input.clone());
                    input.is_retried
                        || state.acknowledged.iter().all(|known| known.location != input.name)
                }
            }
        };
        if is_new {
            let line = format!("{} quarantined: {}", input.name, input.reason);
            self.log(LogLevel::Error, &line);
        }
    }

    /// Reverts [`Supervisor::quarantine`]: processing succeeded.
    pub fn release(&self, name: &str) {
        self.state().quarantined.retain(|known| known.name != name);
    }

    /// Quarantined inputs.
    pub fn quarantined(&self) -> Vec<QuarantinedInput> {
        self.state().quarantined.clone()
    }

    /// Number of inputs quarantined since the process began.
    pub fn quarantined_total(&self) -> u64 {
        self.state().quarantined_total
    }

    /// Reports damage for [`DAMAGE_REPORTED_FOR_NS`]. Damage found again within that time is not
    /// reported again. Acknowledged damage is not logged.
    pub fn report_damage(&self, location: String, records: u64, remedy: String) {
        let now = self.now();
        let report = DamageReport { location, records, remedy, time: now };
        let is_new = {
            let mut state = self.state();
            let known = state.damage.iter().position(|known| known.location == report.location);
            let before = known.map(|at| state.damage.remove(at));
            if before.is_none() {
                state.damaged_records_total = state.damaged_records_total.saturating_add(records);
            }
            let is_reported = before.as_ref().is_some_and(|before| before.is_reported(now));
            if state.damage.len() >= DAMAGE_MAX {
                state.damage.remove(0);
            }
            state.damage.push(before.filter(|_| is_reported).unwrap_or_else(|| report.clone()));
            !is_reported
        };
        if is_new && !self.is_acknowledged(&report.location) {
            let line = format!("cannot read {}: damaged; {}", report.location, report.remedy);
            self.log(LogLevel::Error, &line);
        }
    }

    /// Current damage reports.
    pub fn damage(&self) -> Vec<DamageReport> {
        let now = self.now();
        let state = self.state();
        state.damage.iter().filter(|report| report.is_reported(now)).cloned().collect()
    }

    /// Number of damaged records found since the process began.
    pub fn damaged_records_total(&self) -> u64 {
        self.state().damaged_records_total
    }

    /// Current time, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        (self.0.settings.clock)()
    }

    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log(&self, level: LogLevel, message: &str) {
        if let Some(log) = &self.0.settings.log {
            log(level, message);
        }
    }
}

impl DamageReport {
    fn is_reported(&self, now: i64) -> bool {
        now.saturating_sub(self.time) < DAMAGE_REPORTED_FOR_NS
    }
}

impl ThreadEntry {
    fn panics_in_row(&self, now: i64) -> u32 {
        let last = self.last_panic.as_ref().map_or(i64::MIN, |last| last.time);
        if now.saturating_sub(last) >= STABLE_NS { 0 } else { self.panics_in_row }
    }
}

impl SupervisorSettings {
    /// Backoff after this many consecutive panics.
    fn backoff(&self, panics: u32) -> Duration {
        let doubled = 2u32.checked_pow(panics.saturating_sub(1));
        let wait = doubled.and_then(|factor| self.initial_backoff.checked_mul(factor));
        wait.map_or(self.max_backoff, |wait| wait.min(self.max_backoff))
    }
}

/// Supervised thread or asynchronous task, which status and metrics call a thread, too. It is
/// counted until this is dropped.
#[derive(Debug)]
pub struct SupervisedThread {
    supervisor: Supervisor,
    name: String,
    is_waiting: AtomicBool,
}

impl SupervisedThread {
    /// Runs `work` until it returns, again after each panic. Once `is_stopping` returns true, the
    /// wait ends and `work` runs a last time for an orderly shutdown; returns `None` if it panics
    /// then.
    pub fn run<T>(&self, is_stopping: impl Fn() -> bool, mut work: impl FnMut() -> T) -> Option<T> {
        loop {
            let was_stopping = is_stopping();
            match catch_unwind(AssertUnwindSafe(&mut work)) {
                Ok(done) => return Some(done),
                Err(panic) => {
                    let mut backoff = self.record_panic(&*panic);
                    if was_stopping {
                        return None;
                    }
                    while !backoff.is_zero() && !is_stopping() {
                        std::thread::sleep(backoff.min(STOP_POLL));
                        backoff = backoff.saturating_sub(STOP_POLL);
                    }
                    self.record_restart();
                }
            }
        }
    }

    /// Records a panic; the thread counts as down until [`SupervisedThread::record_restart`].
    /// Returns the backoff.
    pub fn record_panic(&self, panic: &(dyn Any + Send)) -> Duration {
        let (message, panics) = self.count_panic(panic);
        let wait = self.supervisor.0.settings.backoff(panics);
        let (name, ms) = (&self.name, wait.as_millis());
        let line = format!("thread {name} panicked: {message}; backoff {ms} ms");
        self.supervisor.log(LogLevel::Error, &line);
        if !self.is_waiting.swap(true, Ordering::Relaxed) {
            self.entry(|entry| entry.waiting = entry.waiting.saturating_add(1));
        }
        wait
    }

    /// Records a restart.
    pub fn record_restart(&self) {
        if self.is_waiting.swap(false, Ordering::Relaxed) {
            self.entry(|entry| {
                entry.waiting = entry.waiting.saturating_sub(1);
                entry.restarts = entry.restarts.saturating_add(1);
            });
        }
    }

    /// Records a panic that ends only the work at hand: a request, an attempt. The thread runs on,
    /// so there is no restart.
    pub fn record_caught_panic(&self, panic: &(dyn Any + Send)) {
        let (message, _) = self.count_panic(panic);
        let line = format!("panic in {}: {message}", self.name);
        self.supervisor.log(LogLevel::Error, &line);
    }

    /// Supervisor of the thread, for reporting quarantined inputs.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Failpoint for tests, named like the thread.
    pub fn failpoint(&self) {
        self.supervisor.failpoint(&self.name);
    }

    /// Returns the message and the number of consecutive panics.
    fn count_panic(&self, panic: &(dyn Any + Send)) -> (String, u32) {
        let (message, time) = (panic_message(panic), self.supervisor.now());
        let panics = self.entry(|entry| {
            entry.panics = entry.panics.saturating_add(1);
            entry.panics_in_row = entry.panics_in_row(time).saturating_add(1);
            entry.last_panic = Some(PanicReport { message: message.clone(), time });
            entry.panics_in_row
        });
        (message, panics)
    }

    fn entry<T>(&self, change: impl FnOnce(&mut ThreadEntry) -> T) -> T {
        let mut state = self.supervisor.state();
        change(state.threads.entry(self.name.clone()).or_default())
    }
}

impl Drop for SupervisedThread {
    fn drop(&mut self) {
        let is_waiting = *self.is_waiting.get_mut();
        self.entry(|entry| {
            entry.count = entry.count.saturating_sub(1);
            entry.waiting = entry.waiting.saturating_sub(usize::from(is_waiting));
        });
    }
}

/// Result of `work`, or its panic message. Unwinding without a message is a test's simulated crash,
/// and continues.
pub fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match message(&*panic) {
        Some(message) => message.to_owned(),
        None => resume_unwind(panic),
    })
}

/// Message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    message(panic).unwrap_or("no message").to_owned()
}

fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

#[cfg(test)]
mod tests;
