//! Cleanup of metrics files of processes that have ended, within retention limits.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::identity::{self, ProcessIdentity};
use crate::layout::{self, header, state};

/// Retention of metrics files of processes that have ended.
#[derive(Clone, Copy, Debug)]
pub struct FileRetention {
    /// Retention after a regular exit: long enough for a collector that scrapes each second to read
    /// the final values.
    pub exited: Duration,
    /// Retention after a crash or kill.
    pub terminated: Duration,
    /// Limit of files of processes that have ended; the latest are kept.
    pub files: usize,
    /// Limit of their total size in bytes.
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

/// Removes files beyond the limits from a directory and returns their number. Files that cannot be
/// read or removed are skipped.
pub fn remove_expired(dir: &Path, limits: FileRetention) -> usize {
    // `/proc/PID/root/…` is the directory of a container: its processes remove their own files.
    if dir.starts_with("/proc") {
        return 0;
    }
    let mut removed = unfinished_files(dir).filter(|path| fs::remove_file(path).is_ok()).count();
    let mut ended_files: Vec<(u64, bool, PathBuf)> = metrics_files(dir)
        .filter_map(|path| {
            let (since, has_exited) = ended_since(&path)?;
            Some((since, has_exited, path))
        })
        .collect();
    // Latest first.
    ended_files.sort_by_key(|(since, ..)| std::cmp::Reverse(*since));
    let (mut file_count, mut bytes) = (0, 0);
    for (since, has_exited, path) in ended_files {
        let age = Duration::from_nanos(clock::now().saturating_sub(since));
        let size = fs::symlink_metadata(&path).map_or(0, |found| found.blocks() * 512);
        let limit = if has_exited { limits.exited } else { limits.terminated };
        if age > limit || file_count >= limits.files || bytes + size > limits.bytes {
            removed += usize::from(fs::remove_file(&path).is_ok());
        } else {
            file_count += 1;
            bytes += size;
        }
    }
    removed
}

/// Files of processes that died while creating them.
fn unfinished_files(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let modified_at = || fs::symlink_metadata(path).and_then(|found| found.modified()).ok();
        name.starts_with('.')
            && path.extension().is_some_and(|end| end == layout::EXTENSION)
            && modified_at()
                .is_some_and(|modified_at| modified_at.elapsed().is_ok_and(|age| age > UNFINISHED))
    })
}

/// Creating a file takes less time than this.
const UNFINISHED: Duration = Duration::from_secs(60);

/// Files of a directory that may be metrics files of this user.
pub(crate) fn metrics_files(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.extension().is_some_and(|end| end == layout::EXTENSION) && !name.starts_with('.')
    })
}

/// Time since when the process of a file is gone, and whether it exited regularly or the file was
/// replaced; `None` if it runs or its state is unknown, as in another namespace. The time of a
/// crash is written to the file, which has no other writer any more.
fn ended_since(path: &Path) -> Option<(u64, bool)> {
    let words = crate::source::read_header_at(path).ok()?;
    let this_process = ProcessIdentity::current();
    // If /proc does not show this process, or hides others, no process is known to have ended.
    let is_seen =
        identity::start_ticks(&this_process.pid.to_string()) == Some(this_process.start_ticks);
    if this_process.boot == 0 || !is_seen {
        return None;
    }
    let identity = ProcessIdentity::from_header(&words);
    // tmpfs does not survive a reboot: a file with another boot id is of a process that could not
    // read the boot id.
    if identity.boot != this_process.boot || identity.pid_namespace != this_process.pid_namespace {
        return None;
    }
    if words[header::STATE] == state::EXITED {
        return Some((words[header::ENDED], true));
    }
    let is_replaced = words[header::STATE] == state::REPLACED;
    if !is_replaced
        && identity::is_same_process(&identity.pid.to_string(), identity.start_ticks) != Some(false)
    {
        return None;
    }
    if words[header::ENDED] != 0 {
        return Some((words[header::ENDED], is_replaced));
    }
    let now = clock::now();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok().filter(|found| found.is_file())?;
    file.write_all_at(&now.to_ne_bytes(), header::ENDED as u64 * 8).ok()?;
    Some((now, is_replaced))
}
