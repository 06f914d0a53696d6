//! Cleanup of metrics files of exited processes, within retention limits.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::identity::{self, ProcessIdentity};
use crate::layout::{self, header, state};

/// Retention of metrics files of exited processes.
#[derive(Clone, Copy, Debug)]
pub struct FileRetention {
    /// Of processes that ended as they meant to: long enough for whoever collects every second to
    /// see the last of them.
    pub exited: Duration,
    /// Of processes that died.
    pub terminated: Duration,
    /// Files of processes that are gone, the latest of which are kept.
    pub files: usize,
    /// Bytes that they take together.
    pub bytes: u64,
}

impl Default for FileRetention {
    fn default() -> FileRetention {
        FileRetention {
            exited: Duration::from_secs(60),
            terminated: Duration::from_secs(24 * 3600),
            files: 64,
            bytes: 64 << 20,
        }
    }
}

/// Removes from a folder what is beyond the limits; how many files that were. What cannot be read
/// or removed is left alone.
pub fn remove_expired(folder: &Path, limits: FileRetention) -> usize {
    // Those of a container are for itself to remove.
    if folder.starts_with("/proc") {
        return 0;
    }
    let mut removed = unfinished_files(folder).filter(|path| fs::remove_file(path).is_ok()).count();
    let mut gone: Vec<(u64, bool, PathBuf)> = metrics_files(folder)
        .filter_map(|path| {
            let (since, has_ended) = exited_since(&path)?;
            Some((since, has_ended, path))
        })
        .collect();
    // The latest first.
    gone.sort_by_key(|(since, ..)| std::cmp::Reverse(*since));
    let (mut kept, mut bytes) = (0, 0);
    for (since, has_ended, path) in gone {
        let age = Duration::from_nanos(clock::now().saturating_sub(since));
        let size = fs::symlink_metadata(&path).map_or(0, |found| found.blocks() * 512);
        let limit = if has_ended { limits.exited } else { limits.terminated };
        if age > limit || kept >= limits.files || bytes + size > limits.bytes {
            removed += usize::from(fs::remove_file(&path).is_ok());
        } else {
            kept += 1;
            bytes += size;
        }
    }
    removed
}

/// Files that a process died while making.
fn unfinished_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let made = || fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
        name.starts_with('.')
            && path.extension().is_some_and(|end| end == layout::EXTENSION)
            && made().is_some_and(|made| made.elapsed().is_ok_and(|age| age > UNFINISHED))
    })
}

/// Making a file takes less.
const UNFINISHED: Duration = Duration::from_secs(60);

/// The files of a folder that may be ours.
pub(crate) fn metrics_files(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.extension().is_some_and(|end| end == layout::EXTENSION) && !name.starts_with('.')
    })
}

/// Since when the process of a file is gone, by our clock, and whether it said goodbye; `None`
/// where it runs, or that cannot be told, as of another namespace. That a process died is noted in
/// its file, which nobody else writes any more.
fn exited_since(path: &Path) -> Option<(u64, bool)> {
    let words = crate::source::read_header_at(path).ok()?;
    let own = ProcessIdentity::current();
    // Where /proc does not show us ourselves, or hides what we ask, nobody is known to be gone.
    let is_seen = identity::start_ticks(&own.pid.to_string()) == Some(own.start_ticks);
    if own.boot == 0 || !is_seen {
        return None;
    }
    let identity = ProcessIdentity::from_header(&words);
    // Memory does not outlive the machine's start: a file of another is one that could not tell.
    if identity.boot != own.boot || identity.pid_namespace != own.pid_namespace {
        return None;
    }
    if words[header::STATE] == state::ENDED {
        return Some((words[header::ENDED], true));
    }
    let is_replaced = words[header::STATE] == state::REPLACED;
    if !is_replaced
        && identity::is_same_process(&identity.pid.to_string(), identity.start_ticks) != Some(false)
    {
        return None;
    }
    if words[header::ENDED] != 0 {
        return Some((words[header::ENDED], false));
    }
    let now = clock::now();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok().filter(|found| found.is_file())?;
    file.write_all_at(&now.to_ne_bytes(), header::ENDED as u64 * 8).ok()?;
    Some((now, is_replaced))
}
