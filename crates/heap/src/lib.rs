//! Memory allocator: settings, return of free memory while idle, and what static binaries need.
//!
//! glibc keeps freed memory: pages between used blocks, in an arena per few threads. After a heavy
//! query 1.65 GB of unused memory stayed resident. `malloc_trim` returns such pages. mimalloc, the
//! allocator of static binaries, does so itself; [`MappingAllocator`] handles their large blocks.
//!
//! On x86-64, static binaries get their `memcpy`, `memmove`, `memcmp` and `bcmp` from here.
#![deny(unsafe_code)]

mod mapping_allocator;
#[cfg(target_arch = "x86_64")]
mod memory_functions;
mod trim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::mapping_allocator::MappingAllocator;

/// Allocator of static binaries. musl's own takes one lock for all threads.
#[cfg(target_env = "musl")]
pub type StaticAllocator = MappingAllocator<mimalloc::MiMalloc>;
/// The value for `#[global_allocator]`.
#[cfg(target_env = "musl")]
pub const STATIC_ALLOCATOR: StaticAllocator = MappingAllocator::new(mimalloc::MiMalloc);

/// Interval of checks of the resident memory.
const PERIOD: Duration = Duration::from_secs(2);
/// Checks after which memory is trimmed again if there may be some to return: 20 s.
const CHECKS_MAX: u32 = 10;
/// Growth of the resident memory since the last trim that trims at once. Eight heavy queries in a
/// row leave behind several times what one holds.
const GROWTH_BYTES: u64 = 64 << 20;
/// Resident memory above the observed minimum from which trimming is worth its cost.
const SLACK_BYTES: u64 = 32 << 20;

/// Result of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimResult {
    /// Decrease of the resident memory, in bytes.
    pub returned_bytes: u64,
    /// How long it took.
    pub duration: Duration,
}

/// Background thread that returns free heap pages to the system.
#[derive(Debug)]
pub struct HeapTrimmer {
    is_stopping: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Limits the memory that the allocator keeps. glibc: large blocks are mapped individually, and
/// there are few arenas. Static binaries: free pages are returned soon, and there are no
/// transparent huge pages. Call it before the first thread starts, because a thread keeps its
/// arena.
pub fn configure_allocator() {
    trim::tune();
}

impl HeapTrimmer {
    /// Starts the thread; `report` receives each result. `supervise` runs the thread's loop, and
    /// again after a panic unless its first argument says that the thread stops. Returns `None` if
    /// the allocator needs no trimming, or if the system does not report the resident memory.
    pub fn start(
        supervise: impl FnOnce(&dyn Fn() -> bool, &mut dyn FnMut()) + Send + 'static,
        report: impl Fn(TrimResult) + Send + 'static,
    ) -> std::io::Result<Option<HeapTrimmer>> {
        let Some(floor_bytes) = resident_bytes().filter(|_| trim::IS_NEEDED) else {
            return Ok(None);
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&is_stopping);
        let mut work = move || {
            let mut policy = TrimPolicy { floor_bytes, last_bytes: floor_bytes, checks: 0 };
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Some(before) = resident_bytes() else { continue };
                if policy.is_due(before) {
                    let began = Instant::now();
                    trim::trim();
                    let took = began.elapsed();
                    let after = resident_bytes().unwrap_or(before);
                    policy.record_trim(after);
                    report(TrimResult {
                        returned_bytes: before.saturating_sub(after),
                        duration: took,
                    });
                }
            }
        };
        let run = move || supervise(&|| stops.load(Ordering::Relaxed), &mut work);
        let thread = thread::Builder::new().name("heap trimmer".to_owned()).spawn(run)?;
        Ok(Some(HeapTrimmer { is_stopping, stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for HeapTrimmer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // `supervise` has reported its panics.
            let _ = thread.join();
        }
    }
}

/// Decides when to trim.
struct TrimPolicy {
    /// Minimum observed resident memory: about that of an idle process.
    floor_bytes: u64,
    /// Resident memory after the last trim.
    last_bytes: u64,
    /// Checks since the last trim.
    checks: u32,
}

impl TrimPolicy {
    fn is_due(&mut self, resident_bytes: u64) -> bool {
        self.floor_bytes = self.floor_bytes.min(resident_bytes);
        self.checks = self.checks.saturating_add(1);
        let is_grown = resident_bytes >= self.last_bytes.saturating_add(GROWTH_BYTES);
        let is_worth_it = resident_bytes > self.floor_bytes.saturating_add(SLACK_BYTES);
        is_worth_it && (is_grown || self.checks >= CHECKS_MAX)
    }

    fn record_trim(&mut self, resident_bytes: u64) {
        (self.last_bytes, self.checks) = (resident_bytes, 0);
    }
}

/// `VmRSS` of `/proc/self/status` (proc_pid_status(5)), which is in units of 1024 bytes.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a trim is due at each of these resident sizes, in MiB; no trim returns anything.
    #[track_caller]
    fn check(floor: u64, looks: &[u64], expected: &[bool]) {
        let mib = |mib: u64| mib << 20;
        let mut policy = TrimPolicy { floor_bytes: mib(floor), last_bytes: mib(floor), checks: 0 };
        let due = looks.iter().map(|resident| {
            let is_due = policy.is_due(mib(*resident));
            if is_due {
                policy.record_trim(mib(*resident));
            }
            is_due
        });
        assert_eq!(due.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn trim_is_due_after_growth_or_periodically() {
        check(100, &[163, 164, 165, 228], &[false, true, false, true]);
        check(100, &[50, 113, 164], &[false, false, true]);
        let [mut often, mut due] = [[133; 20], [0; 20]].map(|looks| looks.to_vec());
        due[9] = 1;
        due[19] = 1;
        check(100, &often, &due.iter().map(|due| *due == 1).collect::<Vec<_>>());
        often.fill(132);
        check(100, &often, &[false; 20]);
    }

    #[test]
    fn fragmented_free_memory_is_returned() {
        const BLOCKS: usize = 100_000;
        if !trim::IS_NEEDED || resident_bytes().is_none() {
            println!("skipped: the allocator is not glibc's, or there is no /proc");
            return;
        }
        let mut blocks: Vec<Vec<u8>> = (0..BLOCKS).map(|_| vec![1; 1000]).collect();
        let used = resident_bytes().unwrap();
        // One block in a thousand stays allocated.
        for (at, block) in blocks.iter_mut().enumerate() {
            if at % 1000 != 0 {
                *block = Vec::new();
            }
        }
        trim::trim();
        let left = resident_bytes().unwrap();
        assert!(left + (BLOCKS as u64 * 1000) / 2 < used, "{used} bytes, and {left} afterwards");
        assert!(blocks.iter().step_by(1000).all(|block| block.len() == 1000));
    }

    #[test]
    fn drop_ends_the_thread() {
        drop(HeapTrimmer::start(|_, work| work(), |_| {}).unwrap());
    }
}
