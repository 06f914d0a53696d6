//! Resident memory of a process in bytes, from `/proc/PID/status`.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

/// Sampling interval. Shorter peaks are visible in the kernel's peak value (VmHWM).
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// `VmRSS`; 0 if there is no such process.
pub(super) fn resident_bytes(pid: u32) -> u64 {
    status_field(pid, "VmRSS:").unwrap_or(0)
}

fn status_field(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = kilobytes.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes << 10)
}

/// Peak resident memory of the processes whose PID is in `pid`, while `action` runs.
pub(super) fn measure_peak<T>(
    pid: &(impl Fn() -> u32 + Sync),
    action: impl FnOnce() -> T,
) -> (T, u64) {
    let is_over = AtomicBool::new(false);
    let peak = AtomicU64::new(0);
    // Writing "5" resets the peak value (VmHWM) to the current value: proc(5). Without the
    // permission only samples are used.
    let is_reset = fs::write(format!("/proc/{}/clear_refs", pid()), "5").is_ok();
    let greatest = || match is_reset {
        true => status_field(pid(), "VmHWM:").unwrap_or(0),
        false => resident_bytes(pid()),
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                peak.fetch_max(greatest(), Ordering::Relaxed);
                sleep(SAMPLE_INTERVAL);
            }
        });
        let value = action();
        is_over.store(true, Ordering::Relaxed);
        let last = greatest();
        (value, peak.load(Ordering::Relaxed).max(last))
    })
}
