//! Run queue waits of the threads of a test, from the kernel.
//!
//! A test compares a measured time with its expected value. If they differ, either the generator
//! is wrong, or a thread of the test waited for a CPU. The kernel counts such waits, so a test need
//! not guess.

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread that waited longer in total may explain a difference.
const WAITED_MAX_NS: u64 = 5_000_000;

/// Attempts per test. If the machine delayed each of them, the test reports itself as skipped.
pub(crate) const ATTEMPTS: usize = 6;

pub(crate) fn skipped(why: &str) {
    println!(
        "skipped: in {ATTEMPTS} runs this machine delayed the threads of the test, last: {why}"
    );
}

/// Waits of all threads of this process and its children, from now on.
pub(crate) struct SchedulingWatch {
    waited_ns: HashMap<String, u64>,
    stolen: u64,
}

impl SchedulingWatch {
    pub(crate) fn start() -> SchedulingWatch {
        SchedulingWatch { waited_ns: all_waited_ns(), stolen: stolen() }
    }

    /// Describes a delayed thread; `ended_ns`: the longest wait of threads that have exited.
    pub(crate) fn disturbance(&self, ended_ns: u64) -> Option<String> {
        let stolen = stolen() - self.stolen;
        if stolen > 0 {
            return Some(format!("{stolen} ticks of steal time"));
        }
        let now = all_waited_ns();
        if now.is_empty() {
            return Some("the kernel has no schedstat, so waits are unknown".to_owned());
        }
        let more = |(thread, ns): (&String, &u64)| {
            ns.saturating_sub(self.waited_ns.get(thread).copied().unwrap_or(0))
        };
        let most = now.iter().map(more).chain([ended_ns]).max().unwrap_or(0);
        let words = || format!("a thread waited {} µs for a CPU", most / 1_000);
        (most > WAITED_MAX_NS).then(words)
    }
}

/// Waits of threads that exit before the run ends; each adds its own on exit.
#[derive(Default)]
pub(crate) struct ThreadWaits(AtomicU64);

impl ThreadWaits {
    pub(crate) fn add_this_thread(&self) {
        self.0.fetch_max(waited_ns("/proc/thread-self").unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn most_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The second field of `schedstat`: nanoseconds on the run queue.
fn waited_ns(dir: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{dir}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn all_waited_ns() -> HashMap<String, u64> {
    let mut all = HashMap::new();
    let mut processes = vec![std::process::id()];
    while let Some(pid) = processes.pop() {
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let dir = task.path().to_string_lossy().into_owned();
            let children = fs::read_to_string(format!("{dir}/children")).unwrap_or_default();
            processes.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            if let Some(ns) = waited_ns(&dir) {
                all.insert(dir, ns);
            }
        }
    }
    all
}

/// Ticks stolen by the hypervisor.
fn stolen() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = text.lines().next().and_then(|line| line.split_ascii_whitespace().nth(8));
    all.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}
