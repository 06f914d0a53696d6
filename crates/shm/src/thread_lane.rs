//! Thread lanes: from a metric to its cells, with thread and fork handling.
//!
//! A thread has the address of its lane and the end of its usable small cells. A record checks that
//! its cells are below that end; if not, because the thread or the metric is new or the process was
//! forked, it takes the slow path once.
//!
//! A fork is detected in two ways. `pthread_atfork` handlers close the lane of the forking thread
//! and all other fast paths to the parent's file; and the slow path checks whether the writer was
//! inherited (`MetricsFileWriter::is_inherited`), which is set before any handler runs.
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

/// Metrics file of this process. A forked process has that of its parent until it needs its own; a
/// writer is never freed.
static WRITER: AtomicPtr<MetricsFileWriter> = AtomicPtr::new(ptr::null_mut());
/// Number of forks between this process and the first.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// PID of the process that is creating a file, or 0: a forked process may find its parent's PID
/// here.
static CREATOR_PID: AtomicU32 = AtomicU32::new(0);
/// Time of the next attempt after a failed one.
static RETRY_NS: AtomicU64 = AtomicU64::new(0);
const RETRY_AFTER_NS: u64 = 10_000_000_000;
/// Why there is no file.
static FAILED: Mutex<Option<String>> = Mutex::new(None);

/// Lane 0, which holds gauges.
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
    /// End of the usable small cells; 0 if there is no lane.
    end: Cell<usize>,
}

/// Lease of a lane, released when the thread ends.
struct LaneLease {
    lane: Cell<usize>,
    writer: Cell<*const MetricsFileWriter>,
}

impl Drop for LaneLease {
    fn drop(&mut self) {
        // Destructors of other thread-locals record in the shared lane.
        THREAD_LANE.with(|here| here.end.set(0));
        let previous_writer = self.writer.replace(ptr::null());
        // A forked process must not release a lane of its parent.
        if let Some(writer) = current().filter(|&current| ptr::eq(current, previous_writer)) {
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

/// Lane of this thread, if the cells at this offset have space in it.
#[inline(always)]
pub(crate) fn lane(small: usize) -> Option<Lane> {
    THREAD_LANE
        .with(|here| (small < here.end.get()).then(|| Lane { base: here.base.get(), number: None }))
}

/// Address of the thread-local lane block: a pointer to the lane's base, followed by the end of its
/// small cells. Valid until the thread ends.
pub(crate) fn lane_block() -> *const c_void {
    const {
        assert!(
            offset_of!(ThreadLane, base) == 0 && offset_of!(ThreadLane, end) == size_of::<usize>()
        );
    }
    THREAD_LANE.with(|here| ptr::from_ref(here).cast())
}

impl Lane {
    /// Small cells with space: the caller called `lane` or `enter` for this offset.
    #[inline(always)]
    pub(crate) fn small<T: CellLayout>(self, offset: usize) -> &'static T {
        // SAFETY: `lane`, `enter` and `shared` return a lane only if small cells at this offset
        // have space: they are allocated aligned, and space is reserved in pages. Cells that may
        // span two pages (texts, heartbeats: `entry::sizes`) are in lane 0 only, where everything
        // registered has space. Lanes are never unmapped.
        unsafe { cells_at(self.base, offset) }
    }

    /// Large cells with space according to the small cells.
    #[inline(always)]
    pub(crate) fn large<T: CellLayout>(self, offset: usize) -> &'static T {
        debug_assert!((layout::SMALL_BYTES..layout::LANE_STRIDE).contains(&offset));
        // SAFETY: the registry allocated the offset, inside the lane; the caller checked in the
        // small cells that there is space, or reserved it.
        unsafe { cells_at(self.base, offset) }
    }

    /// Reserves space for large cells. Returns whether there was space; if not, the record is
    /// counted as lost.
    pub(crate) fn reserve(self, offset: usize, bytes: usize) -> bool {
        let Some(writer) = current() else { return false };
        let number = self.number.unwrap_or_else(|| LEASE.with(|lease| lease.lane.get()));
        let has_space =
            !is_full() && record_failure(writer.reserve_large(number, offset, bytes)).is_ok();
        if !has_space {
            writer.count_lost_value();
        }
        has_space
    }
}

/// While the file system is full, space is requested once a second, not by each record.
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
    /// Lane of this thread.
    Own(Lane),
    /// Shared lane, with atomic instructions.
    Shared(Lane),
}

/// Slow path to the cells at an offset; `None` if recording is impossible.
#[cold]
pub(crate) fn slow_path(small: usize) -> Option<SlowPathOutcome> {
    if small >= layout::SMALL_BYTES {
        return None;
    }
    let writer = open().ok()?;
    let lane_number = if is_full() { Ok(None) } else { record_failure(own_lane(writer, small)) };
    match lane_number {
        Ok(Some(lane)) => Some(SlowPathOutcome::Own(lane)),
        // Small cells have space in the shared lane since their registration.
        Ok(None) | Err(_) => {
            let lane = shared(small);
            match lane {
                Some(_) => writer.mark_shared_lane_used(),
                None => writer.count_lost_value(),
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
        // The thread is ending and has released its lane.
        .unwrap_or(Ok(None))
}

/// Shared lane, if the cells at this offset have space in it.
#[inline]
pub(crate) fn shared(small: usize) -> Option<Lane> {
    let end = SHARED_END.load(Ordering::Acquire);
    (small < end).then(|| Lane { base: SHARED.load(Ordering::Relaxed), number: Some(0) })
}

/// Publishes the new end of the shared lane.
pub(crate) fn extend_shared(writer: &MetricsFileWriter) {
    if let (Some(map), Ok(end)) = (writer.lane(0), writer.reserve_small(0)) {
        SHARED.store(map.base(), Ordering::Relaxed);
        // A thread that sees the end sees the base.
        SHARED_END.fetch_max(end, Ordering::Release);
    }
}

/// Metrics file of this process, if there is one.
pub(crate) fn current() -> Option<&'static MetricsFileWriter> {
    let writer = current_or_inherited()?;
    if writer.is_inherited() {
        mark_inherited(writer);
        return None;
    }
    Some(writer)
}

/// Metrics file of this process or of the process that it was forked from.
fn current_or_inherited() -> Option<&'static MetricsFileWriter> {
    // SAFETY: null, or a writer that is never freed (`open`), published with its contents; the
    // writer of a parent is in this process' memory too.
    unsafe { WRITER.load(Ordering::Acquire).as_ref() }
}

/// Number of forks, which distinguishes this process from its ancestors.
#[inline]
pub(crate) fn fork_generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Metrics file of this process, created if needed. After a failure the next attempt follows ten
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

/// Exclusive right to create the metrics file. It is released on panic too: other threads would
/// wait for ever otherwise.
struct CreateGuard;

impl CreateGuard {
    /// Waits until another thread has created the file, which takes little time. `None` on the
    /// creating thread itself (an allocator that records).
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
            // Locked for the duration of a copy; but for ever in a process that was forked at that
            // moment.
            if let Ok(mut failed) = FAILED.try_lock() {
                *failed = Some(error.to_string());
            }
            Err(error)
        }
    }
}

/// Installs the exit and fork handlers. Called only by the thread that creates the file.
fn install_hooks() {
    static HAS_HOOKS: AtomicBool = AtomicBool::new(false);
    if HAS_HOOKS.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: the functions are `extern "C"`, never unwind, and in a forked process only store to
    // atomics and to thread-local cells without initialisation.
    unsafe {
        libc::pthread_atfork(Some(before_fork), None, Some(after_fork));
        libc::atexit(at_exit);
    }
    // Set after registration: a process forked by another thread in between would never register
    // them. Registering twice is harmless.
    HAS_HOOKS.store(true, Ordering::Relaxed);
}

/// Runs in the forking thread. In the new process a handler registered earlier runs before ours:
/// its records must take the slow path. So does the next record in this thread, once.
extern "C" fn before_fork() {
    THREAD_LANE.with(|here| here.end.set(0));
}

/// Runs in a forked process: its records go to a file of its own.
extern "C" fn after_fork() {
    let Some(writer) = current_or_inherited() else {
        CREATOR_PID.store(0, Ordering::Relaxed);
        RETRY_NS.store(0, Ordering::Relaxed);
        return;
    };
    // Otherwise an earlier handler recorded something and created the file.
    if writer.is_inherited() || !writer.detects_fork() {
        CREATOR_PID.store(0, Ordering::Relaxed);
        mark_inherited(writer);
    }
}

/// Closes all fast paths to the parent's file.
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
