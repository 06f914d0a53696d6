//! The clock of this process: its lines, its offset, and the thread that keeps them.

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

use crate::counter;
use crate::keeper::Keeper;
use crate::line::{Found, Lines};
use crate::machine::{Machine, Real, system_ns};
use crate::reading::{self, Bounded};
use crate::status::Status;
use crate::stopwatch::{LAST_RATE, RATE};
use crate::wall::{Offset, Wall};

static LINES: Lines = Lines::new();
static OFFSET: Offset = Offset::new();
/// Whether there is a keeper. Two would draw lines that do not join, so a late one is never replaced.
static IS_KEPT: AtomicBool = AtomicBool::new(false);
/// When no thread could be had for it, by the system's clock; 0 if never.
static REFUSED_NS: AtomicU64 = AtomicU64::new(0);
/// When the next attempt is made.
const REFUSED_FOR_NS: u64 = 15_000_000_000;

/// What `recent` says while it is kept; 0 while it is not.
static RECENT: AtomicU64 = AtomicU64::new(0);
static IS_RECENT_ASKED: AtomicBool = AtomicBool::new(false);
const RECENT_EVERY: Duration = Duration::from_millis(1);
/// Without a question for so long, it is not kept any more.
const RECENT_FOR_NS: u64 = 1_000_000_000;

static STATUS: Mutex<Option<Status>> = Mutex::new(None);

thread_local! {
    /// The greatest reading of this thread: a hypervisor may set the counter back, and the kernel notices later than we read.
    static LATEST: Cell<u64> = const { Cell::new(0) };
}

#[inline(always)]
fn not_before_latest(ns: u64) -> u64 {
    LATEST.with(|latest| {
        let ns = ns.max(latest.get());
        latest.set(ns);
        ns
    })
}

/// Nanoseconds of `CLOCK_MONOTONIC`, read after all that this thread read before: whoever sees what it does afterwards reads no
/// lesser time, as long as the counter itself does not go back. On one thread it goes back in no case.
#[inline]
pub fn now() -> u64 {
    not_before_latest(reading::now(&LINES, counter::ordered, asked))
}

/// The same without order: the processor may read some tens of nanoseconds before what stands before it is done.
#[inline]
pub fn now_relaxed() -> u64 {
    reading::now(&LINES, counter::relaxed, asked)
}

/// [`now`], and how far it may be off.
///
/// The bound holds as long as counter and system keep their rates over the comparisons of the last half minute, or the system's
/// is steered by no more than 500 ppm where anybody steers it.
#[inline]
pub fn now_bounded() -> Bounded {
    let Bounded { ns: read_ns, error_ns } = reading::bounded(&LINES, counter::ordered, asked);
    let ns = not_before_latest(read_ns);
    Bounded { ns, error_ns: error_ns + (ns - read_ns) }
}

/// How far a reading may be off now, in nanoseconds; 0 while the system itself is asked and has caught up with the last line.
pub fn error_bound_ns() -> u64 {
    now_bounded().error_ns
}

/// The time of day.
#[inline]
pub fn wall() -> Wall {
    match OFFSET.get() {
        Some((generation, offset)) => Wall { unix_ns: now() as i64 + offset, generation },
        None => first_wall(),
    }
}

/// [`now`] as it was up to some milliseconds ago: as often as the thread that keeps it comes to run, which is each millisecond
/// while anybody asks. The first call is a full reading.
#[inline]
pub fn recent() -> u64 {
    if !IS_RECENT_ASKED.load(Ordering::Relaxed) {
        IS_RECENT_ASKED.store(true, Ordering::Relaxed);
    }
    match RECENT.load(Ordering::Relaxed) {
        0 => begin_recent(),
        ns => ns,
    }
}

/// How the clock is.
pub fn status() -> Status {
    now();
    for _ in 0..100 {
        // Held for the time of a copy; but for ever in a process that was forked off just then.
        match STATUS.try_lock() {
            Ok(held) => return held.clone().unwrap_or_else(|| Keeper::new().status().clone()),
            Err(_) => thread::yield_now(),
        }
    }
    Keeper::new().status().clone()
}

/// The system's clock, which is asked while there is no line; and somebody to draw one.
#[cold]
fn asked() -> u64 {
    let ns = system_ns();
    let refused_ns = REFUSED_NS.load(Ordering::Relaxed);
    if !IS_KEPT.load(Ordering::Relaxed)
        && (refused_ns == 0 || ns.saturating_sub(refused_ns) > REFUSED_FOR_NS)
        && IS_KEPT.compare_exchange(false, true, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        start(ns);
    }
    ns
}

#[cold]
fn first_wall() -> Wall {
    let ns = now();
    // The keeper may measure it at the same time: the difference is some nanoseconds.
    let (generation, offset) = OFFSET.get().unwrap_or_else(|| (1, Real.offset_ns()));
    Wall { unix_ns: ns as i64 + offset, generation }
}

#[cold]
fn begin_recent() -> u64 {
    if let Some(bell) = BELL.get() {
        // A keeper that is busy needs no bell.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
    now()
}

/// Wakes the keeper.
static BELL: OnceLock<OwnedFd> = OnceLock::new();

/// Starts the keeper. Where no thread can be had, the system goes on being asked, and the next attempt comes after a while.
fn start(ns: u64) {
    static WATCHES_FORKS: AtomicBool = AtomicBool::new(false);
    if !WATCHES_FORKS.swap(true, Ordering::Relaxed) {
        counter::after_fork(forget_keeper);
    }
    if thread::Builder::new().name("clock".to_owned()).spawn(keep).is_err() {
        REFUSED_NS.store(ns, Ordering::Relaxed);
        IS_KEPT.store(false, Ordering::Relaxed);
    }
}

/// A forked process has the lines, but nobody who draws them.
extern "C" fn forget_keeper() {
    RECENT.store(0, Ordering::Relaxed);
    REFUSED_NS.store(0, Ordering::Relaxed);
    IS_KEPT.store(false, Ordering::Relaxed);
}

/// Receives panics of the keeper's thread. A server's supervisor reports them with those of its
/// other threads; this crate stands below it.
pub trait KeeperObserver: Send + Sync {
    /// The keeper panicked. Returns how long it waits before it runs again.
    fn panicked(&self, panic: &(dyn Any + Send)) -> Duration;

    /// The keeper runs again.
    fn restarted(&self);
}

static OBSERVER: Mutex<Option<Arc<dyn KeeperObserver>>> = Mutex::new(None);
/// How long a keeper that panicked waits when nobody observes it.
const RESTART_WAIT: Duration = Duration::from_secs(1);
/// How often a keeper that waits checks whether the last line has ended.
const LINE_END_CHECK: Duration = Duration::from_millis(20);

/// For tests: makes the keeper panic once.
#[doc(hidden)]
pub static KEEPER_FAULT: AtomicBool = AtomicBool::new(false);

/// Reports panics of the keeper to `observer` from now on, instead of the observer before.
pub fn observe_keeper(observer: Arc<dyn KeeperObserver>) {
    let before = observer_slot().replace(observer);
    // Outside the lock: it is foreign code.
    drop(before);
}

fn observer_slot() -> std::sync::MutexGuard<'static, Option<Arc<dyn KeeperObserver>>> {
    OBSERVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A keeper whose thread ends makes room for another.
struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        forget_keeper();
    }
}

/// What the keeper's thread does. It is run again after a panic, with a new keeper.
fn keep() {
    let _kept = Kept;
    let Err(mut panic) = catch_unwind(AssertUnwindSafe(keep_lines));
    loop {
        // Nobody updates it meanwhile.
        RECENT.store(0, Ordering::Relaxed);
        let observer = observer_slot().clone();
        thread::sleep(
            observer.as_ref().map_or(RESTART_WAIT, |observer| observer.panicked(&*panic)),
        );
        // A new keeper does not know the last line, and its own would not join it.
        while matches!(LINES.find(counter::ordered), Found::Line(..)) {
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
    let mut keeper = Keeper::new();
    let steps = steps();
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
    let bell = bell.map(|bell| BELL.get_or_init(|| bell));
    keeper.look_at_wall(&mut Real, &OFFSET);
    let (mut due_ns, mut asked_ns) = (0, 0);
    loop {
        let now_ns = system_ns();
        assert!(!KEEPER_FAULT.swap(false, Ordering::Relaxed), "thrown at clock");
        if now_ns >= due_ns {
            due_ns = system_ns() + keeper.turn(&mut Real, &LINES).as_nanos() as u64;
            keeper.look_at_wall(&mut Real, &OFFSET);
            publish(&keeper);
        }
        if IS_RECENT_ASKED.swap(false, Ordering::Relaxed) {
            asked_ns = now_ns;
        }
        let is_kept = now_ns.saturating_sub(asked_ns) < RECENT_FOR_NS;
        RECENT.store(if is_kept { now() } else { 0 }, Ordering::Relaxed);
        let wait = Duration::from_nanos(due_ns.saturating_sub(system_ns()));
        let wait = if is_kept { wait.min(RECENT_EVERY) } else { wait };
        if wait_for(steps.as_ref(), bell, wait) {
            keeper.look_at_wall(&mut Real, &OFFSET);
            publish(&keeper);
        }
    }
}

fn publish(keeper: &Keeper) {
    let rate = keeper.rate();
    if rate > 0 {
        LAST_RATE.store(rate, Ordering::Relaxed);
    }
    RATE.store(rate, Ordering::Relaxed);
    // Whoever reads it just now gets the one before.
    if let Ok(mut held) = STATUS.try_lock() {
        *held = Some(keeper.status().clone());
    }
}

/// A timer of the system's wall clock in the far future, which the kernel cancels as soon as somebody sets that clock.
fn steps() -> Option<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Realtime, flags).ok()?;
    arm(&timer);
    Some(timer)
}

fn arm(timer: &OwnedFd) {
    let never = Timespec { tv_sec: i64::MAX / 2_000_000_000, tv_nsec: 0 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: never };
    let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
    // Without it, steps are seen within a second.
    let _ = timerfd_settime(timer, flags, &once);
}

/// Waits, and says whether somebody set the wall clock meanwhile.
fn wait_for(steps: Option<&OwnedFd>, bell: Option<&OwnedFd>, wait: Duration) -> bool {
    let mut waited: Vec<PollFd<'_>> =
        steps.into_iter().chain(bell).map(|of| PollFd::new(of, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut waited, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return false,
        Ok(_) if waited.iter().all(|one| PollFlags::IN.contains(one.revents())) => {}
        // It would be so at once the next time, too: somebody closed what is not theirs, or no poll is allowed.
        _ => {
            thread::sleep(wait);
            return false;
        }
    }
    let mut bytes = [0; 8];
    if let Some(bell) = bell {
        let _ = rustix::io::read(bell, &mut bytes);
    }
    let Some(timer) = steps else { return false };
    match rustix::io::read(timer, &mut bytes) {
        Err(rustix::io::Errno::CANCELED) => {
            arm(timer);
            true
        }
        _ => false,
    }
}
