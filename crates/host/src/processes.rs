//! Process table collection.
//!
//! If BPF programs can be loaded, a task iterator visits all tasks (`task`): it opens no file and
//! takes no lock of a process. Otherwise `/proc/PID/stat` is read through files that stay open
//! (`stat_cache`). [`ProcessCollector::method`] and [`ProcessCollector::fallback_reason`] report
//! which of the two is used and why.
//!
//! Neither takes `mmap_lock`, which could stall the process or the reader. Files that need it are
//! never read: command lines, `smaps`, `environ` and similar ones.

mod stat;
mod stat_cache;
mod task;

use std::io;
use std::sync::{Arc, OnceLock};

use bpf::Btf;
use shm::process_table::{CollectionMethod, ProcessRow};

use self::stat_cache::ProcStatCache;
use self::task::TaskIterator;

/// Collector of the process table.
#[derive(Debug)]
pub struct ProcessCollector {
    source: ProcessSource,
    fallback_reason: Arc<OnceLock<String>>,
    rows: Vec<ProcessRow>,
}

#[derive(Debug)]
enum ProcessSource {
    Tasks(TaskIterator),
    Procfs(ProcStatCache),
}

impl ProcessCollector {
    /// Collector with the cheapest method available on this host.
    pub fn new() -> ProcessCollector {
        ProcessCollector::from_bpf(bpf::kernel_types().as_ref().map_err(String::clone))
    }

    /// Collector that reads `/proc`, even if BPF is available.
    pub fn from_procfs() -> ProcessCollector {
        ProcessCollector::with_source(ProcessSource::Procfs(ProcStatCache::new()), None)
    }

    /// Collector that uses BPF with the kernel's types, if that works.
    pub(crate) fn from_bpf(types: Result<&Btf, String>) -> ProcessCollector {
        match types.and_then(TaskIterator::start).and_then(verify_tasks) {
            Ok(tasks) => ProcessCollector::with_source(ProcessSource::Tasks(tasks), None),
            Err(reason) => ProcessCollector::with_source(
                ProcessSource::Procfs(ProcStatCache::new()),
                Some(reason),
            ),
        }
    }

    fn with_source(source: ProcessSource, note: Option<String>) -> ProcessCollector {
        let note = note.map(OnceLock::from).unwrap_or_default();
        ProcessCollector { source, fallback_reason: Arc::new(note), rows: Vec::new() }
    }

    /// Ticks per second, the unit of process start times.
    pub fn ticks_per_second() -> u32 {
        u32::try_from(*stat::TICKS).unwrap_or(u32::MAX)
    }

    /// Collection method in use.
    pub fn method(&self) -> CollectionMethod {
        match self.source {
            ProcessSource::Tasks(_) => CollectionMethod::Bpf,
            ProcessSource::Procfs(_) => CollectionMethod::Procfs,
        }
    }

    /// Why BPF is not used, if it is not.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.get().map(String::as_str)
    }

    /// [`ProcessCollector::fallback_reason`], shared with other threads.
    pub(crate) fn shared_fallback_reason(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.fallback_reason)
    }

    /// Reads all processes, by ascending PID. A process that exits during the scrape may or may
    /// not be included.
    ///
    /// If the BPF program fails after a successful start, the collector falls back to `/proc` for
    /// good.
    pub fn read(&mut self) -> io::Result<&[ProcessRow]> {
        if let ProcessSource::Tasks(tasks) = &mut self.source
            && let Err(error) = tasks.read(&mut self.rows)
        {
            // Set once: the fallback is final.
            let _ = self.fallback_reason.set(format!("BPF task iterator failed: {error}"));
            self.source = ProcessSource::Procfs(ProcStatCache::new());
        }
        if let ProcessSource::Procfs(source) = &mut self.source {
            source.read(&mut self.rows)?;
        }
        Ok(&self.rows)
    }

    /// Rows of the last scrape.
    pub fn rows(&self) -> &[ProcessRow] {
        &self.rows
    }
}

impl Default for ProcessCollector {
    fn default() -> ProcessCollector {
        ProcessCollector::new()
    }
}

fn is_in(rows: &[ProcessRow], pid: u32, start: u64) -> bool {
    let found = rows.binary_search_by_key(&pid, |row| row.pid);
    found.is_ok_and(|at| rows[at].start == start)
}

/// Accepts the iterator if it reports this process with the PID that `/proc` has. It does not in a
/// PID namespace, where the kernel's global PIDs differ.
fn verify_tasks(mut tasks: TaskIterator) -> Result<TaskIterator, String> {
    let mut rows = Vec::new();
    tasks.read(&mut rows).map_err(|error| format!("cannot read the BPF task iterator: {error}"))?;
    let stat = std::fs::read("/proc/self/stat")
        .map_err(|error| format!("cannot read /proc/self/stat: {error}"))?;
    let self_stat = stat::parse(&stat).ok_or("cannot parse /proc/self/stat")?;
    if !is_in(&rows, self_stat.pid, self_stat.start) {
        return Err(
            "PIDs of the BPF task iterator differ from /proc: this process runs in a PID namespace"
                .to_owned(),
        );
    }
    Ok(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_bpf_program_falls_back_to_procfs() {
        let mut processes =
            ProcessCollector::with_source(ProcessSource::Tasks(TaskIterator::failing()), None);
        let note = processes.shared_fallback_reason();
        assert_eq!((processes.method(), note.get()), (CollectionMethod::Bpf, None));
        let pid = std::process::id();
        assert!(processes.read().unwrap().iter().any(|row| row.pid == pid));
        assert_eq!(processes.method(), CollectionMethod::Procfs);
        let reason = note.get().unwrap();
        assert!(reason.starts_with("BPF task iterator failed: "), "{reason}");
        assert_eq!(processes.fallback_reason(), Some(reason.as_str()));
        assert!(processes.read().unwrap().iter().any(|row| row.pid == pid));
        assert_eq!(note.get(), Some(reason), "it is the same as at first");
    }
}
