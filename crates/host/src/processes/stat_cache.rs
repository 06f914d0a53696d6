//! `/proc/PID/stat` reader with cached file descriptors.
//!
//! An open file belongs to one process for good: after the process exits, reads fail, and a process
//! that reuses the PID needs a new file. Processes beyond a share of this process' file limit are
//! opened, read and closed.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};
use rustix::process::{Resource, getrlimit};
use shm::process_table::ProcessRow;

use super::stat;

/// Cached files may use one in this many of the file descriptors that this process may open.
const FILE_SHARE: u64 = 4;
/// Cached files if there is no descriptor limit.
const FILES_MAX: u64 = 1 << 16;
/// Longest line: 52 numbers of 20 digits and a name.
const LINE_BYTES: usize = 2_048;
/// Bytes of directory entries per read.
const NAMES_BYTES: usize = 8 << 10;
/// Scrapes between two look-ups of a process' user, which seldom changes; new processes are looked
/// up at once.
const SCRAPES_PER_USER: u32 = 16;

/// Cache of open `/proc/PID/stat` files.
#[derive(Debug)]
pub(super) struct ProcStatCache {
    proc: Option<OwnedFd>,
    cached: HashMap<u32, CachedStat>,
    files_max: usize,
    /// Number of entries of `known` with an open file.
    files: usize,
    scrape: u32,
    pids: Vec<u32>,
    names: Vec<u8>,
}

/// Cached process.
#[derive(Debug)]
struct CachedStat {
    /// `None` beyond the share of descriptors.
    file: Option<File>,
    start: u64,
    uid: u32,
    /// Last scrape in which the process existed.
    last_scrape: u32,
}

impl ProcStatCache {
    pub(super) fn new() -> ProcStatCache {
        let files = getrlimit(Resource::Nofile).current.map_or(FILES_MAX, |max| max / FILE_SHARE);
        ProcStatCache::with_files(files.min(FILES_MAX) as usize)
    }

    fn with_files(files_max: usize) -> ProcStatCache {
        let names = Vec::with_capacity(NAMES_BYTES);
        let (proc, known, pids) = (None, HashMap::new(), Vec::new());
        ProcStatCache { proc, cached: known, files_max, files: 0, scrape: 0, pids, names }
    }

    /// Reads all processes into `rows`.
    pub(super) fn read(&mut self, rows: &mut Vec<ProcessRow>) -> io::Result<()> {
        rows.clear();
        self.list()?;
        self.scrape = self.scrape.wrapping_add(1);
        let pids = std::mem::take(&mut self.pids);
        // A process that exited since it was listed is left out.
        rows.extend(pids.iter().filter_map(|&pid| self.process(pid)));
        self.pids = pids;
        let (scrape, files) = (self.scrape, &mut self.files);
        self.cached.retain(|_, known| {
            let is_there = known.last_scrape == scrape;
            *files -= usize::from(!is_there && known.file.is_some());
            is_there
        });
        model::sort::by_key(rows, |row| row.pid);
        Ok(())
    }

    /// Lists the PIDs in `/proc`.
    fn list(&mut self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = match self.proc.take() {
            Some(proc) => proc,
            None => openat(CWD, "/proc", flags, Mode::empty())?,
        };
        seek(&proc, SeekFrom::Start(0))?;
        self.pids.clear();
        self.names.clear();
        let room: &mut [MaybeUninit<u8>] = self.names.spare_capacity_mut();
        let mut names = RawDir::new(proc.as_fd(), room);
        while let Some(name) = names.next() {
            let name = name?;
            self.pids.extend(parse_pid(name.file_name().to_bytes()));
        }
        self.proc = Some(proc);
        Ok(())
    }

    fn process(&mut self, pid: u32) -> Option<ProcessRow> {
        let proc = self.proc.as_ref()?;
        let mut line = [0; LINE_BYTES];
        let known = self.cached.get(&pid);
        let kept = known.and_then(|known| read_stat(known.file.as_ref()?, pid, &mut line));
        let (mut process, opened) = match kept {
            Some(process) => (process, None),
            None => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let file = openat(proc, format!("{pid}/stat"), flags, Mode::empty()).ok()?;
                let file = File::from(file);
                (read_stat(&file, pid, &mut line)?, Some(file))
            }
        };
        let is_turn = (self.scrape ^ pid).is_multiple_of(SCRAPES_PER_USER);
        process.uid = match known {
            Some(known) if known.start == process.start && !is_turn => known.uid,
            _ => effective_uid(proc, pid)?,
        };
        let known = self.cached.entry(pid).or_insert(CachedStat {
            file: None,
            start: 0,
            uid: 0,
            last_scrape: 0,
        });
        (known.start, known.uid, known.last_scrape) = (process.start, process.uid, self.scrape);
        if opened.is_some() {
            let had = usize::from(known.file.take().is_some());
            known.file = opened.filter(|_| self.files - had < self.files_max);
            self.files = self.files - had + usize::from(known.file.is_some());
        }
        Some(process)
    }
}

/// Effective user: the owner of the directory, even if the files in it have another owner.
fn effective_uid(proc: &OwnedFd, pid: u32) -> Option<u32> {
    let about = rustix::fs::statat(proc, format!("{pid}"), rustix::fs::AtFlags::empty());
    about.ok().map(|about| about.st_uid)
}

fn read_stat(file: &File, pid: u32, line: &mut [u8; LINE_BYTES]) -> Option<ProcessRow> {
    let length = rustix::io::pread(file, &mut line[..], 0).ok()?;
    stat::parse(&line[..length]).filter(|process| process.pid == pid)
}

/// Parses a directory name as a PID.
fn parse_pid(name: &[u8]) -> Option<u32> {
    if !name.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(name).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn process_exiting_during_read_is_skipped() {
        for files_max in [0, 1 << 16] {
            let mut kept = ProcStatCache::with_files(files_max);
            let child = sleeper();
            let pid = child.id();
            let mut rows = Vec::new();
            kept.read(&mut rows).unwrap();
            assert!(rows.iter().any(|row| row.pid == pid));
            kept.list().unwrap();
            end(child);
            assert!(kept.pids.contains(&pid));
            assert_eq!(kept.process(pid), None);
            kept.read(&mut rows).unwrap();
            assert!(!kept.cached.contains_key(&pid), "its file is closed");
        }
    }

    #[test]
    fn no_more_files_stay_open_than_are_allowed() {
        let children = [sleeper(), sleeper(), sleeper()];
        for files_max in [0, 2] {
            let mut kept = ProcStatCache::with_files(files_max);
            let mut rows = Vec::new();
            for _ in 0..3 {
                kept.read(&mut rows).unwrap();
                let open = kept.cached.values().filter(|known| known.file.is_some()).count();
                assert!(open == files_max && kept.files == open, "{open}");
                let all = children.iter().all(|child| rows.iter().any(|row| row.pid == child.id()));
                assert!(all, "those without an open file are read too");
            }
        }
        children.into_iter().for_each(end);
    }

    #[test]
    fn numbers_are_processes() {
        assert_eq!(parse_pid(b"1"), Some(1));
        assert_eq!(parse_pid(b"4194304"), Some(4_194_304));
        for other in ["", "self", "1x", "+1", "99999999999"] {
            assert_eq!(parse_pid(other.as_bytes()), None, "{other}");
        }
    }
}
