//! Process-wide clock: segments, wall offset, calibration thread.

use std::any::Any;
use std::cell::Cell;
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use crate::calibrator::Calibrator;
use crate::clock_segment::{SegmentLookup, SegmentSeqlock};
use crate::counter;
use crate::machine::{MachineClocks, SystemClocks, system_ns};
use crate::reading::{self, BoundedTime};
use crate::status::ClockStatus;
use crate::stopwatch::{LAST_SCALED_PERIOD, SCALED_PERIOD};
use crate::wall::{WallOffset, WallTime};

static SEGMENTS: SegmentSeqlock = SegmentSeqlock::new();
static OFFSET: WallOffset = WallOffset::new();
/// Whether a calibration thread runs. Two would publish segments that do not join.
static HAS_CALIBRATOR: AtomicBool = AtomicBool::new(false);
/// System time at which a thread could not be started; 0 if never.
static SPAWN_FAILED_NS: AtomicU64 = AtomicU64::new(0);
/// Time until the next attempt to start it.
const SPAWN_RETRY_NS: u64 = 15_000_000_000;

/// Value of `recent` while it is updated; 0 otherwise.
static COARSE_NS: AtomicU64 = AtomicU64::new(0);
static IS_COARSE_REQUESTED: AtomicBool = AtomicBool::new(false);
const COARSE_INTERVAL: Duration = Duration::from_millis(1);
/// `recent` is no longer updated after this long without a reader.
const COARSE_IDLE_NS: u64 = 1_000_000_000;

static STATUS: Mutex<Option<ClockStatus>> = Mutex::new(None);

thread_local! {
    /// Greatest reading of this thread: a hypervisor may set the counter back before the kernel
    /// notices.
    static LATEST: Cell<u64> = const { Cell::new(0) };
}

#[inline(always)]
fn clamp_to_latest(ns: u64) -> u64 {
    LATEST.with(|latest| {
        let ns = ns.max(latest.get());
        latest.set(ns);
        ns
    })
}

/// Nanoseconds of `CLOCK_MONOTONIC`, ordered after all earlier reads of this thread: a thread that
/// observes a later effect reads no lower time, unless the counter itself goes back. On one thread
/// time never goes back.
#[inline]
pub fn now() -> u64 {
    clamp_to_latest(reading::now(&SEGMENTS, counter::ordered, system_now))
}

/// [`now`] without ordering: the CPU may read the counter tens of nanoseconds before earlier
/// instructions finish.
#[inline]
pub fn now_unordered() -> u64 {
    reading::now(&SEGMENTS, counter::relaxed, system_now)
}

/// [`now`] with its error bound.
///
/// The bound holds while counter and system clock keep the rates of the last half minute's
/// comparisons, and the system clock is slewed by at most 500 ppm.
#[inline]
pub fn now_bounded() -> BoundedTime {
    let BoundedTime { ns: read_ns, error_ns } =
        reading::now_bounded(&SEGMENTS, counter::ordered, system_now);
    let ns = clamp_to_latest(read_ns);
    BoundedTime { ns, error_ns: error_ns + (ns - read_ns) }
}

/// Error bound of a reading now, in nanoseconds; 0 while the system clock is read and has caught up
/// with the last segment.
pub fn error_bound_ns() -> u64 {
    now_bounded().error_ns
}

/// Wall clock time.
#[inline]
pub fn wall() -> WallTime {
    match OFFSET.get() {
        Some((generation, offset)) => WallTime { unix_ns: now() as i64 + offset, generation },
        None => first_wall(),
    }
}

/// [`now`] as of the last update, which happens every millisecond while it is used. It may be some
/// milliseconds old. The first call reads the clock.
#[inline]
pub fn now_coarse() -> u64 {
    if !IS_COARSE_REQUESTED.load(Ordering::Relaxed) {
        IS_COARSE_REQUESTED.store(true, Ordering::Relaxed);
    }
    match COARSE_NS.load(Ordering::Relaxed) {
        0 => start_coarse(),
        ns => ns,
    }
}

/// State of the clock.
pub fn status() -> ClockStatus {
    now();
    for _ in 0..100 {
        // Locked for the duration of a copy, but for ever in a process that was forked in that
        // time.
        match STATUS.try_lock() {
            Ok(held) => return held.clone().unwrap_or_else(|| Calibrator::new().status().clone()),
            Err(_) => thread::yield_now(),
        }
    }
    Calibrator::new().status().clone()
}

/// Reads the system clock while no segment is valid, and starts the calibration thread.
#[cold]
fn system_now() -> u64 {
    let ns = system_ns();
    let refused_ns = SPAWN_FAILED_NS.load(Ordering::Relaxed);
    if !HAS_CALIBRATOR.load(Ordering::Relaxed)
        && (refused_ns == 0 || ns.saturating_sub(refused_ns) > SPAWN_RETRY_NS)
        && HAS_CALIBRATOR
            .compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    {
        start_calibrator(ns);
    }
    ns
}

#[cold]
fn first_wall() -> WallTime {
    let ns = now();
    // The calibration thread may measure it at the same time: the difference is some nanoseconds.
    let (generation, offset) = OFFSET.get().unwrap_or_else(|| (1, SystemClocks.offset_ns()));
    WallTime { unix_ns: ns as i64 + offset, generation }
}

#[cold]
fn start_coarse() -> u64 {
    if let Some(wake_event) = WAKE_EVENT.get() {
        // Fails only if the counter is full: the thread is awake.
        let _ = rustix::io::write(wake_event, &1u64.to_ne_bytes());
    }
    now()
}

/// Wakes the calibration thread.
static WAKE_EVENT: OnceLock<OwnedFd> = OnceLock::new();

/// Starts the calibration thread. If that fails, readers use the system clock and a retry follows
/// later.
fn start_calibrator(ns: u64) {
    static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);
    if !WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        counter::register_fork_handler(reset_after_fork);
    }
    if thread::Builder::new().name("clock".to_owned()).spawn(run_calibrator).is_err() {
        SPAWN_FAILED_NS.store(ns, Ordering::Relaxed);
        HAS_CALIBRATOR.store(false, Ordering::Relaxed);
    }
}

/// A forked process has the segments, but no calibration thread.
extern "C" fn reset_after_fork() {
    COARSE_NS.store(0, Ordering::Relaxed);
    SPAWN_FAILED_NS.store(0, Ordering::Relaxed);
    HAS_CALIBRATOR.store(false, Ordering::Relaxed);
}

/// Receives panics of the calibration thread. A server reports them with those of its other
/// threads; this crate is below its supervisor.
pub trait CalibratorObserver: Send + Sync {
    /// The calibration thread panicked. Returns the delay before its restart.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration;

    /// The calibration thread was restarted.
    fn restarted(&self);
}

static OBSERVER: Mutex<Option<Arc<dyn CalibratorObserver>>> = Mutex::new(None);
/// Delay before a restart without an observer.
const RESTART_WAIT: Duration = Duration::from_secs(1);
/// Interval of checks whether the last segment has ended.
const LINE_END_CHECK: Duration = Duration::from_millis(20);

/// For tests: makes the calibration thread panic once.
#[doc(hidden)]
pub static CALIBRATOR_FAULT: AtomicBool = AtomicBool::new(false);

/// Sets the observer of panics of the calibration thread.
pub fn observe_calibrator(observer: Arc<dyn CalibratorObserver>) {
    let before = observer_slot().replace(observer);
    // Outside the lock, because the destructor is foreign code.
    drop(before);
}

fn observer_slot() -> std::sync::MutexGuard<'static, Option<Arc<dyn CalibratorObserver>>> {
    OBSERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allows another calibration thread when this one ends.
struct CalibratorGuard;

impl Drop for CalibratorGuard {
    fn drop(&mut self) {
        reset_after_fork();
    }
}

/// Body of the calibration thread. It runs again after a panic, with a new calibrator.
fn run_calibrator() {
    let _kept = CalibratorGuard;
    let Err(mut panic) = catch_unwind(AssertUnwindSafe(keep_lines));
    loop {
        // Nothing updates it meanwhile.
        COARSE_NS.store(0, Ordering::Relaxed);
        let observer = observer_slot().clone();
        thread::sleep(
            observer.as_ref().map_or(RESTART_WAIT, |observer| observer.panicked(&*panic)),
        );
        // A new calibrator does not know the last segment, and its own would not join it.
        while matches!(SEGMENTS.find_valid(counter::ordered), SegmentLookup::Valid(..)) {
            thread::sleep(LINE_END_CHECK);
        }
        if let Some(observer) = observer {
            observer.restarted();
        }
        let Err(next) = catch_unwind(AssertUnwindSafe(keep_lines));
        panic = next;
    }
}

fn keep_lines() -> Infallible {
    let mut calibrator = Calibrator::new();
    let steps = open_step_timer();
    let wake_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
    let wake_event = wake_event.map(|wake_event| WAKE_EVENT.get_or_init(|| wake_event));
    calibrator.check_wall_clock(&mut SystemClocks, &OFFSET);
    let (mut due_ns, mut asked_ns) = (0, 0);
    loop {
        let now_ns = system_ns();
        assert!(!CALIBRATOR_FAULT.swap(false, Ordering::Relaxed), "thrown at clock");
        if now_ns >= due_ns {
            due_ns = system_ns() + calibrator.tick(&mut SystemClocks, &SEGMENTS).as_nanos() as u64;
            calibrator.check_wall_clock(&mut SystemClocks, &OFFSET);
            publish(&calibrator);
        }
        if IS_COARSE_REQUESTED.swap(false, Ordering::Relaxed) {
            asked_ns = now_ns;
        }
        let is_kept = now_ns.saturating_sub(asked_ns) < COARSE_IDLE_NS;
        COARSE_NS.store(if is_kept { now() } else { 0 }, Ordering::Relaxed);
        let wait = Duration::from_nanos(due_ns.saturating_sub(system_ns()));
        let wait = if is_kept { wait.min(COARSE_INTERVAL) } else { wait };
        if wait_for(steps.as_ref(), wake_event, wait) {
            calibrator.check_wall_clock(&mut SystemClocks, &OFFSET);
            publish(&calibrator);
        }
    }
}

fn publish(calibrator: &Calibrator) {
    let rate = calibrator.rate();
    if rate > 0 {
        LAST_SCALED_PERIOD.store(rate, Ordering::Relaxed);
    }
    SCALED_PERIOD.store(rate, Ordering::Relaxed);
    // A concurrent reader gets the previous status.
    if let Ok(mut guard) = STATUS.try_lock() {
        *guard = Some(calibrator.status().clone());
    }
}

/// A wall clock timer in the far future, which the kernel cancels when the wall clock is stepped.
fn open_step_timer() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags).ok()?;
    arm_step_timer(&timer);
    Some(timer)
}

fn arm_step_timer(timer: &OwnedFd) {
    let never = Timespec { tv_sec: i64::MAX / 2_000_000_000, tv_nsec: 0 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    // Without the timer, steps are detected within a second.
    let _ = timerfd_settime(timer, flags, &once);
}

/// Waits, and returns whether the wall clock was stepped meanwhile.
fn wait_for(steps: Option<&OwnedFd>, wake_event: Option<&OwnedFd>, wait: Duration) -> bool {
    let mut waited: Vec<PollFd<'_>> =
        steps.into_iter().chain(wake_event).map(|of| PollFd::new(of, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut waited, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return false,
        Ok(_) if waited.iter().all(|one| PollFlags::IN.contains(one.revents())) => {}
        // The error would repeat at once: the descriptor was closed by other code, or poll is
        // forbidden.
        _ => {
            thread::sleep(wait);
            return false;
        }
    }
    let mut bytes = [0; 8];
    if let Some(wake_event) = wake_event {
        let _ = rustix::io::read(wake_event, &mut bytes);
    }
    let Some(timer) = steps else { return false };
    match rustix::io::read(timer, &mut bytes) {
        Err(rustix::io::Errno::CANCELED) => {
            arm_step_timer(timer);
            true
        }
        _ => false,
    }
}
