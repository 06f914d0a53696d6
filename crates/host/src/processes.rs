//! The processes of this host, all of them at once, for little.
//!
//! Where programs can be loaded, one in the kernel goes through all tasks ([`task`]): no file is opened, no lock of a process
//! is taken. Otherwise `/proc/PID/stat` is read through files that stay open ([`kept`]). Which of the two and why is
//! said by [`Processes::how`] and [`Processes::note`].
//!
//! Neither takes `mmap_lock`, for which a process may be held up, or hold up the reader. Command lines do, so each is
//! read once, when it is asked for: [`Processes::command_line`]. Never read are `smaps`, `environ` and their like.

mod kept;
mod stat;
mod task;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, Read};

use shm::table::{How, Process};

use self::kept::Kept;
use self::task::Tasks;
use crate::bpf;
use crate::bpf::btf::Btf;

/// Bytes of a command line at the most; the rest is left out.
const COMMAND_LINE_BYTES: u64 = 4_096;

/// Reads the processes of this host, again and again.
#[derive(Debug)]
pub struct Processes {
    source: Source,
    note: Option<String>,
    rows: Vec<Process>,
    commands: HashMap<(u32, u64), Box<str>>,
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
        Processes { source, note, rows: Vec::new(), commands: HashMap::new() }
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
        self.note.as_deref()
    }

    /// Reads all processes there are, by ascending number. One that ends meanwhile may be in it or not.
    ///
    /// Should the program fail that went well at first, `/proc` is read from then on.
    pub fn read(&mut self) -> io::Result<&[Process]> {
        if let Source::Tasks(tasks) = &mut self.source
            && let Err(error) = tasks.read(&mut self.rows)
        {
            self.note = Some(format!("the BPF iterator over tasks failed: {error}"));
            self.source = Source::Kept(Kept::new());
        }
        if let Source::Kept(kept) = &mut self.source {
            kept.read(&mut self.rows)?;
        }
        if !self.commands.is_empty() {
            let rows = &self.rows;
            self.commands.retain(|&(pid, start), _| is_in(rows, pid, start));
        }
        Ok(&self.rows)
    }

    /// What was read last.
    pub fn rows(&self) -> &[Process] {
        &self.rows
    }

    /// The command line of a process that was read last, words divided by spaces; empty for threads of the kernel, `None` if it
    /// has ended. It is read the first time that it is asked for; should the process hold its memory's lock, that waits.
    pub fn command_line(&mut self, pid: u32, start: u64) -> Option<&str> {
        if !is_in(&self.rows, pid, start) {
            return None;
        }
        match self.commands.entry((pid, start)) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => Some(new.insert(command_line(pid, start)?)),
        }
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

fn command_line(pid: u32, start: u64) -> Option<Box<str>> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(COMMAND_LINE_BYTES).read_to_end(&mut bytes).ok()?;
    // The number may have become another's since it was listed, and this is that one's line.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    if stat::parse(&stat)?.start != start {
        return None;
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
    Some(String::from_utf8_lossy(&bytes).into())
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
    fn a_command_line_is_of_that_very_process() {
        let mut processes = Processes::by_procfs();
        let pid = std::process::id();
        let rows = processes.read().unwrap();
        let start = rows.iter().find(|row| row.pid == pid).unwrap().start;
        let line = processes.command_line(pid, start).unwrap().to_owned();
        let own: Vec<String> = std::env::args().collect();
        assert_eq!(line, own.join(" "));
        assert_eq!(processes.command_line(pid, start + 1), None, "another one's");
        assert_eq!(processes.commands.len(), 1);
        assert_eq!(command_line(pid, start + 1), None);
    }
}
