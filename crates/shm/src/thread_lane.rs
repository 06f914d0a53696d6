//! Thread lanes: from a metric to its cells, with thread and fork handling.
//!
//! A thread knows where its lane lies and up to where its small cells have room. A record asks
//! whether its cells lie below that; if not, because the thread is new, the metric is, or the
//! process was forked off, the slow way is taken, once.
//!
//! A fork is noticed twice over. Handlers close the lane of the thread that forks, and what else
//! leads to the parent's file past the slow way; and the slow way looks whether the writer was
//! inherited (`Writer::is_inherited`), which is true before any handler ran.
#![allow(unsafe_code, reason = "finds cells by address; each use carries its argument")]

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::layout;
use crate::map::{CellLayout, cells_at};
use crate::writer::MetricsFileWriter;

/// The file of this process. A forked process has that of its parent until it needs its own; none
/// is ever given up.
static WRITER: AtomicPtr<MetricsFileWriter> = AtomicPtr::new(ptr::null_mut());
/// How many forks lie between this process and the first.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// The process that makes a file just now, or 0: a forked process may find its parent's here.
static CREATOR_PID: AtomicU32 = AtomicU32::new(0);
/// When another attempt is made after one that failed.
static RETRY_NS: AtomicU64 = AtomicU64::new(0);
const RETRY_AFTER_NS: u64 = 10_000_000_000;
/// Why there is no file.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Lane 0, where what is set lies.
static SHARED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static SHARED_END: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD_LANE: ThreadLane = const { ThreadLane { base: Cell::new(ptr::null_mut()), end: Cell::new(0) } };
    static LEASE: LaneLease = const { LaneLease { lane: Cell::new(0), writer: Cell::new(ptr::null()) } };
}

/// Lane of this thread; also read by the C header (`ffi_handles::lane`).
#[repr(C)]
struct ThreadLane {
    base: Cell<*mut u8>,
    /// Small cells below this have room; 0 where there is no lane.
    end: Cell<usize>,
}

/// Lease of a lane, released when the thread ends.
struct LaneLease {
    lane: Cell<usize>,
    writer: Cell<*const MetricsFileWriter>,
}

impl Drop for LaneLease {
    fn drop(&mut self) {
        // What other thread-local values record while they are dropped goes to the shared lane.
        THREAD_LANE.with(|here| here.end.set(0));
        let held = self.writer.replace(ptr::null());
        // A lane of the parent's is not ours to give back.
        if let Some(writer) = current().filter(|&current| ptr::eq(current, held)) {
            writer.release_lane(self.lane.get());
        }
    }
}

/// Cells in a lane.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    base: *mut u8,
    number: Option<usize>,
}

/// This thread's lane, if the cells at this offset have room in it.
#[inline(always)]
pub(crate) fn lane(small: usize) -> Option<Lane> {
    THREAD_LANE
        .with(|here| (small < here.end.get()).then(|| Lane { base: here.base.get(), number: None }))
}

/// Where `HERE` lies: a pointer to the lane's base, and behind it the end of its small cells. It is
/// this thread's until it ends.
pub(crate) fn lane_block() -> *const c_void {
    const {
        assert!(
            offset_of!(ThreadLane, base) == 0 && offset_of!(ThreadLane, end) == size_of::<usize>()
        );
    }
    THREAD_LANE.with(|here| ptr::from_ref(here).cast())
}

impl Lane {
    /// Small cells, which have room: `lane` or `enter` was asked for this very offset.
    #[inline(always)]
    pub(crate) fn small<T: CellLayout>(self, offset: usize) -> &'static T {
        // SAFETY: `lane`, `enter` and `shared` give a lane only where small cells at this offset
        // have room: they are given out aligned, and room is taken in pages. Those that may reach
        // across two (texts, heartbeats: `entry::sizes`) are in lane 0 alone, where all that is
        // registered has room. Lanes are never unmapped.
        unsafe { cells_at(self.base, offset) }
    }

    /// Large cells, which have room: the small cells say so.
    #[inline(always)]
    pub(crate) fn large<T: CellLayout>(self, offset: usize) -> &'static T {
        debug_assert!((layout::SMALL_BYTES..layout::LANE_STRIDE).contains(&offset));
        // SAFETY: the offset is one that the registry gave out, within the lane; the caller saw in
        // the small cells that there is room, or took it.
        unsafe { cells_at(self.base, offset) }
    }

    /// Takes room for large cells. Whether there was any; if not, a record is counted as lost.
    pub(crate) fn reserve(self, offset: usize, bytes: usize) -> bool {
        let Some(writer) = current() else { return false };
        let number = self.number.unwrap_or_else(|| LEASE.with(|lease| lease.lane.get()));
        let made =
            !is_full() && record_failure(writer.reserve_large(number, offset, bytes)).is_ok();
        if !made {
            writer.count_lost_record();
        }
        made
    }
}

/// While the file system is full, room is asked for once a second, not by each record.
static FULL_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
const FULL_FOR_NS: u64 = 1_000_000_000;

pub(crate) fn is_full() -> bool {
    let until_ns = FULL_UNTIL_NS.load(Ordering::Relaxed);
    until_ns != 0 && clock::now_unordered() < until_ns
}

pub(crate) fn record_failure<T>(result: Result<T>) -> Result<T> {
    let until_ns = if result.is_err() { clock::now_unordered() + FULL_FOR_NS } else { 0 };
    FULL_UNTIL_NS.store(until_ns, Ordering::Relaxed);
    result
}

/// Lane to record in after the fast path failed.
pub(crate) enum SlowPathOutcome {
    /// In the lane of this thread.
    Own(Lane),
    /// In the shared lane, with atomic instructions.
    Shared(Lane),
}

/// The slow way to the cells at an offset; `None` where nothing can be recorded.
#[cold]
pub(crate) fn slow_path(small: usize) -> Option<SlowPathOutcome> {
    if small >= layout::SMALL_BYTES {
        return None;
    }
    let writer = open().ok()?;
    let own = if is_full() { Ok(None) } else { record_failure(own_lane(writer, small)) };
    match own {
        Ok(Some(lane)) => Some(SlowPathOutcome::Own(lane)),
        // Small cells have room in the shared lane since they were registered.
        Ok(None) | Err(_) => {
            let lane = shared(small);
            match lane {
                Some(_) => writer.mark_shared_lane_used(),
                None => writer.count_lost_record(),
            }
            lane.map(SlowPathOutcome::Shared)
        }
    }
}

fn own_lane(writer: &'static MetricsFileWriter, small: usize) -> Result<Option<Lane>> {
    LEASE
        .try_with(|lease| -> Result<Option<Lane>> {
            let end = if ptr::eq(lease.writer.get(), writer) {
                writer.reserve_small(lease.lane.get())?
            } else {
                let Some((lane, end)) = writer.allocate_lane()? else { return Ok(None) };
                lease.lane.set(lane);
                lease.writer.set(writer);
                end
            };
            let Some(map) = writer.lane(lease.lane.get()) else { return Ok(None) };
            THREAD_LANE.with(|here| {
                here.base.set(map.base());
                here.end.set(end);
            });
            Ok((small < end).then(|| Lane { base: map.base(), number: None }))
        })
        // The thread is ending, and its lane is given back.
        .unwrap_or(Ok(None))
}

/// The shared lane, if the cells at this offset have room in it.
#[inline]
pub(crate) fn shared(small: usize) -> Option<Lane> {
    let end = SHARED_END.load(Ordering::Acquire);
    (small < end).then(|| Lane { base: SHARED.load(Ordering::Relaxed), number: Some(0) })
}

/// Has the shared lane's new end known.
pub(crate) fn extend_shared(writer: &MetricsFileWriter) {
    if let (Some(map), Ok(end)) = (writer.lane(0), writer.reserve_small(0)) {
        SHARED.store(map.base(), Ordering::Relaxed);
        // Whoever sees the end sees the base.
        SHARED_END.fetch_max(end, Ordering::Release);
    }
}

/// The file of this process, if there is one.
pub(crate) fn current() -> Option<&'static MetricsFileWriter> {
    let writer = current_or_inherited()?;
    if writer.is_inherited() {
        mark_inherited(writer);
        return None;
    }
    Some(writer)
}

/// The file of this process, or of the one that it was forked off.
fn current_or_inherited() -> Option<&'static MetricsFileWriter> {
    // SAFETY: it is null, or a writer that is never freed (`make`), published with what it holds; a
    // parent's is in this process's memory as well.
    unsafe { WRITER.load(Ordering::Acquire).as_ref() }
}

/// Tells this process from those that it was forked off.
#[inline]
pub(crate) fn fork_generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The file of this process, which is made if need be. After a failure the next attempt is made ten
/// seconds later.
pub(crate) fn open() -> Result<&'static MetricsFileWriter> {
    if let Some(writer) = current() {
        return Ok(writer);
    }
    let refused = || {
        let failed = FAILED.try_lock().ok().and_then(|failed| failed.clone());
        Err(Error::Unavailable {
            reason: failed
                .unwrap_or_else(|| "another thread is creating the metrics file".to_owned()),
        })
    };
    let retry_ns = RETRY_NS.load(Ordering::Relaxed);
    if retry_ns != 0 && clock::now_unordered() < retry_ns {
        return refused();
    }
    let Some(_making) = CreateGuard::begin(std::process::id()) else { return refused() };
    match current() {
        Some(writer) => Ok(writer),
        None => create_file(),
    }
}

thread_local! {
    static IS_MAKER: Cell<bool> = const { Cell::new(false) };
}

/// Exclusive right to create the metrics file. It is given back also where making it panics: others
/// would wait for ever.
struct CreateGuard;

impl CreateGuard {
    /// Waits for another thread that makes it, which is soon done. `None` on the thread that does
    /// (an allocator that measures itself).
    fn begin(pid: u32) -> Option<CreateGuard> {
        loop {
            let maker = CREATOR_PID.load(Ordering::Acquire);
            if maker == pid {
                if IS_MAKER.try_with(Cell::get).unwrap_or(true) {
                    return None;
                }
                std::thread::yield_now();
                continue;
            }
            if CREATOR_PID.compare_exchange(maker, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                let _ = IS_MAKER.try_with(|is| is.set(true));
                return Some(CreateGuard);
            }
        }
    }
}

impl Drop for CreateGuard {
    fn drop(&mut self) {
        let _ = IS_MAKER.try_with(|is| is.set(false));
        CREATOR_PID.store(0, Ordering::Release);
    }
}

fn create_file() -> Result<&'static MetricsFileWriter> {
    match MetricsFileWriter::create(current_or_inherited()) {
        Ok(writer) => {
            let writer: &'static MetricsFileWriter = Box::leak(Box::new(writer));
            install_hooks();
            extend_shared(writer);
            WRITER.store(ptr::from_ref(writer).cast_mut(), Ordering::Release);
            RETRY_NS.store(0, Ordering::Relaxed);
            Ok(writer)
        }
        Err(error) => {
            RETRY_NS.store(clock::now_unordered() + RETRY_AFTER_NS, Ordering::Relaxed);
            // Held for the time of a copy; but for ever in a process that was forked off just then.
            if let Ok(mut failed) = FAILED.try_lock() {
                *failed = Some(error.to_string());
            }
            Err(error)
        }
    }
}

/// Has this process's end and its forks noticed. Only who makes the file calls it.
fn install_hooks() {
    static HAS_HOOKS: AtomicBool = AtomicBool::new(false);
    if HAS_HOOKS.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the functions are `extern "C"`, never unwind, and do nothing in a forked process but
    // store to atomics and to thread-local cells that need no initialisation.
    unsafe {
        libc::pthread_atfork(Some(before_fork), None, Some(after_fork));
        libc::atexit(at_exit);
    }
    // Not before: a process that another thread forks off just now would never register them. Twice
    // does no harm.
    HAS_HOOKS.store(true, Ordering::Relaxed);
}

/// This thread forks. In the new process a handler that was registered before ours runs before
/// ours: what it records must take the slow way. So does the next record here, once.
extern "C" fn before_fork() {
    THREAD_LANE.with(|here| here.end.set(0));
}

/// In a process that was forked off: what it records is its own.
extern "C" fn after_fork() {
    let Some(writer) = current_or_inherited() else {
        CREATOR_PID.store(0, Ordering::Relaxed);
        RETRY_NS.store(0, Ordering::Relaxed);
        return;
    };
    // Else a handler before this one has recorded something, and made the file.
    if writer.is_inherited() || !writer.detects_fork() {
        CREATOR_PID.store(0, Ordering::Relaxed);
        mark_inherited(writer);
    }
}

/// What leads to the parent's file past the slow way is closed.
#[cold]
fn mark_inherited(writer: &MetricsFileWriter) {
    if !writer.mark_forked() {
        return;
    }
    FORKS.fetch_add(1, Ordering::Relaxed);
    SHARED_END.store(0, Ordering::Relaxed);
    RETRY_NS.store(0, Ordering::Relaxed);
    THREAD_LANE.with(|here| here.end.set(0));
}

extern "C" fn at_exit() {
    if let Some(writer) = current() {
        writer.mark_exited();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_during_creation_releases_the_guard() {
        let made = std::panic::catch_unwind(|| {
            let _making = CreateGuard::begin(1).expect("nobody is at it");
            assert!(CreateGuard::begin(1).is_none(), "this thread is");
            panic!("as an allocator may, or a clock");
        });
        assert!(made.is_err());
        assert!(CreateGuard::begin(1).is_some());
    }
}
