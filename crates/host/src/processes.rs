//! The processes of this host, all of them at once, for little.
//!
//! Where programs can be loaded, one in the kernel goes through all tasks ([`task`]): no file is opened, no lock of a process
//! is taken. Otherwise `/proc/PID/stat` is read through files that stay open ([`kept`]). Which of the two and why is
//! said by [`Processes::how`] and [`Processes::note`].
//!
//! Neither takes `mmap_lock`, for which a process may be held up, or hold up the reader. What does is never read: command lines,
//! `smaps`, `environ` and their like.

mod kept;
mod stat;
mod task;

use std::io;
use std::sync::{Arc, OnceLock};

use shm::table::{How, Process};

use self::kept::Kept;
use self::task::Tasks;
use crate::bpf;
use crate::bpf::btf::Btf;

/// Reads the processes of this host, again and again.
#[derive(Debug)]
pub struct Processes {
    source: Source,
    note: Arc<OnceLock<String>>,
    rows: Vec<Process>,
}

#[derive(Debug)]
enum Source {
    Tasks(Tasks),
    Kept(Kept),
}

impl Processes {
    /// The cheapest way there is on this host.
    pub fn new() -> Processes {
        Processes::with(bpf::types().as_ref().map_err(String::clone))
    }

    /// Out of `/proc`, whatever the kernel would allow.
    pub fn by_procfs() -> Processes {
        Processes::of(Source::Kept(Kept::new()), None)
    }

    /// By BPF, with the kernel's types, if that works.
    pub(crate) fn with(types: Result<&Btf, String>) -> Processes {
        match types.and_then(Tasks::start).and_then(checked) {
            Ok(tasks) => Processes::of(Source::Tasks(tasks), None),
            Err(why) => Processes::of(Source::Kept(Kept::new()), Some(why)),
        }
    }

    fn of(source: Source, note: Option<String>) -> Processes {
        let note = note.map(OnceLock::from).unwrap_or_default();
        Processes { source, note: Arc::new(note), rows: Vec::new() }
    }

    /// Ticks in a second, as processes' starts are told in.
    pub fn ticks_per_second() -> u32 {
        u32::try_from(*stat::TICKS).unwrap_or(u32::MAX)
    }

    /// How they are read.
    pub fn how(&self) -> How {
        match self.source {
            Source::Tasks(_) => How::Bpf,
            Source::Kept(_) => How::Procfs,
        }
    }

    /// Why no program of the kernel's is at work, if none is.
    pub fn note(&self) -> Option<&str> {
        self.note.get().map(String::as_str)
    }

    /// The same, for who wants to know later on, when another thread has them.
    pub(crate) fn shared_note(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.note)
    }

    /// Reads all processes there are, by ascending number. One that ends meanwhile may be in it or not.
    ///
    /// Should the program fail that went well at first, `/proc` is read from then on.
    pub fn read(&mut self) -> io::Result<&[Process]> {
        if let Source::Tasks(tasks) = &mut self.source
            && let Err(error) = tasks.read(&mut self.rows)
        {
            // It happens once: the way back is closed.
            let _ = self.note.set(format!("the BPF iterator over tasks failed: {error}"));
            self.source = Source::Kept(Kept::new());
        }
        if let Source::Kept(kept) = &mut self.source {
            kept.read(&mut self.rows)?;
        }
        Ok(&self.rows)
    }

    /// What was read last.
    pub fn rows(&self) -> &[Process] {
        &self.rows
    }
}

impl Default for Processes {
    fn default() -> Processes {
        Processes::new()
    }
}

fn is_in(rows: &[Process], pid: u32, start: u64) -> bool {
    let found = rows.binary_search_by_key(&pid, |row| row.pid);
    found.is_ok_and(|at| rows[at].start == start)
}

/// Tasks, if this very process is among them as `/proc` has it. It is not where numbers are those of a namespace and the
/// kernel's own are others.
fn checked(mut tasks: Tasks) -> Result<Tasks, String> {
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
    fn a_program_that_fails_later_is_said_and_files_are_read() {
        let mut processes = Processes::of(Source::Tasks(Tasks::failing()), None);
        let note = processes.shared_note();
        assert_eq!((processes.how(), note.get()), (How::Bpf, None));
        let pid = std::process::id();
        assert!(processes.read().unwrap().iter().any(|row| row.pid == pid));
        assert_eq!(processes.how(), How::Procfs);
        let why = note.get().unwrap();
        assert!(why.starts_with("the BPF iterator over tasks failed: "), "{why}");
        assert_eq!(processes.note(), Some(why.as_str()));
        assert!(processes.read().unwrap().iter().any(|row| row.pid == pid));
        assert_eq!(note.get(), Some(why), "it is the same as at first");
    }
}
