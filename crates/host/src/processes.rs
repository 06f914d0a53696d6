//! Process table collection.
//!
//! Where programs can be loaded, one in the kernel goes through all tasks ([`task`]): no file is
//! opened, no lock of a process is taken. Otherwise `/proc/PID/stat` is read through files that
//! stay open ([`kept`]). Which of the two and why is said by [`Processes::how`] and
//! [`Processes::note`].
//!
//! Neither takes `mmap_lock`, for which a process may be held up, or hold up the reader. What does
//! is never read: command lines, `smaps`, `environ` and their like.

mod stat;
mod stat_cache;
mod task;

use std::io;
use std::sync::{Arc, OnceLock};

use shm::process_table::{CollectionMethod, ProcessRow};

use self::stat_cache::ProcStatCache;
use self::task::TaskIterator;
use crate::bpf;
use crate::bpf::btf::Btf;

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
    /// The cheapest way there is on this host.
    pub fn new() -> ProcessCollector {
        ProcessCollector::from_bpf(bpf::kernel_types().as_ref().map_err(String::clone))
    }

    /// Out of `/proc`, whatever the kernel would allow.
    pub fn from_procfs() -> ProcessCollector {
        ProcessCollector::with_source(ProcessSource::Procfs(ProcStatCache::new()), None)
    }

    /// By BPF, with the kernel's types, if that works.
    pub(crate) fn from_bpf(types: Result<&Btf, String>) -> ProcessCollector {
        match types.and_then(TaskIterator::start).and_then(verify_tasks) {
            Ok(tasks) => ProcessCollector::with_source(ProcessSource::Tasks(tasks), None),
            Err(why) => ProcessCollector::with_source(
                ProcessSource::Procfs(ProcStatCache::new()),
                Some(why),
            ),
        }
    }

    fn with_source(source: ProcessSource, note: Option<String>) -> ProcessCollector {
        let note = note.map(OnceLock::from).unwrap_or_default();
        ProcessCollector { source, fallback_reason: Arc::new(note), rows: Vec::new() }
    }

    /// Ticks in a second, as processes' starts are told in.
    pub fn ticks_per_second() -> u32 {
        u32::try_from(*stat::TICKS).unwrap_or(u32::MAX)
    }

    /// How they are read.
    pub fn method(&self) -> CollectionMethod {
        match self.source {
            ProcessSource::Tasks(_) => CollectionMethod::Bpf,
            ProcessSource::Procfs(_) => CollectionMethod::Procfs,
        }
    }

    /// Why no program of the kernel's is at work, if none is.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.get().map(String::as_str)
    }

    /// The same, for who wants to know later on, when another thread has them.
    pub(crate) fn shared_fallback_reason(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.fallback_reason)
    }

    /// Reads all processes there are, by ascending number. One that ends meanwhile may be in it or
    /// not.
    ///
    /// Should the program fail that went well at first, `/proc` is read from then on.
    pub fn read(&mut self) -> io::Result<&[ProcessRow]> {
        if let ProcessSource::Tasks(tasks) = &mut self.source
            && let Err(error) = tasks.read(&mut self.rows)
        {
            // It happens once: the way back is closed.
            let _ =
                self.fallback_reason.set(format!("the BPF iterator over tasks failed: {error}"));
            self.source = ProcessSource::Procfs(ProcStatCache::new());
        }
        if let ProcessSource::Procfs(kept) = &mut self.source {
            kept.read(&mut self.rows)?;
        }
        Ok(&self.rows)
    }

    /// What was read last.
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

/// Tasks, if this very process is among them as `/proc` has it. It is not where numbers are those
/// of a namespace and the kernel's own are others.
fn verify_tasks(mut tasks: TaskIterator) -> Result<TaskIterator, String> {
    let mut rows = Vec::new();
    tasks.read(&mut rows).map_err(|error| format!("cannot read the BPF iterator: {error}"))?;
    let stat = std::fs::read("/proc/self/stat")
        .map_err(|error| format!("cannot read /proc/self/stat: {error}"))?;
    let own = stat::parse(&stat).ok_or("/proc/self/stat is not what it should be")?;
    if !is_in(&rows, own.pid, own.start) {
        return Err("the kernel's tasks do not have the numbers that /proc has, \
                    as in a container with processes of its own"
            .to_owned());
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
        let why = note.get().unwrap();
        assert!(why.starts_with("the BPF iterator over tasks failed: "), "{why}");
        assert_eq!(processes.fallback_reason(), Some(why.as_str()));
        assert!(processes.read().unwrap().iter().any(|row| row.pid == pid));
        assert_eq!(note.get(), Some(why), "it is the same as at first");
    }
}
