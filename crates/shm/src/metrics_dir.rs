//! Directory of metrics files: on tmpfs, writable by the owner only.
//!
//! `TOPDECK_SHM` if it is set; else `/run/topdeck/UID` if it exists; else `/dev/shm/topdeck-UID`,
//! which is created.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, fstatfs, mkdir, open};

use crate::error::{Error, Result};

/// Environment variable with another directory, or `off`.
pub const ENV_VARIABLE: &str = "TOPDECK_SHM";
/// File system type of tmpfs (linux/magic.h: TMPFS_MAGIC).
pub(crate) const TMPFS: i64 = 0x0102_1994;

/// Directory of this process; created if missing.
pub fn metrics_dir() -> Result<PathBuf> {
    open_own_dir().map(|(path, _)| path)
}

/// Directory of this process, opened; created if missing.
pub(crate) fn open_own_dir() -> Result<(PathBuf, OwnedFd)> {
    let uid = rustix::process::geteuid().as_raw();
    let path = match std::env::var_os(ENV_VARIABLE) {
        Some(value) if value == "off" => return Err(Error::Disabled),
        Some(value) if !value.is_empty() => PathBuf::from(value),
        _ => user_dir(uid),
    };
    match mkdir(&path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(cause) => return Err(Error::io("create directory", path)(cause.into())),
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = open(&path, flags, Mode::empty())
        .map_err(|cause| Error::io("open directory", &path)(cause.into()))?;
    let found = fstat(&dir).map_err(|cause| Error::io("looking at", &path)(cause.into()))?;
    // With the sticky bit other users may add files, but cannot replace those of this user.
    let is_open = found.st_mode & 0o022 != 0 && found.st_mode & 0o1000 == 0;
    if found.st_uid != uid || is_open {
        let mode = found.st_mode & 0o7777;
        return Err(Error::ForeignOwner { path, owner: found.st_uid, mode, uid });
    }
    let system = fstatfs(&dir).map_err(|cause| Error::io("looking at", &path)(cause.into()))?;
    if system.f_type as i64 != TMPFS {
        return Err(Error::NotInMemory { path });
    }
    Ok((path, dir))
}

/// Default directory of a user.
fn user_dir(uid: u32) -> PathBuf {
    let prepared = PathBuf::from(format!("/run/topdeck/{uid}"));
    match fs::symlink_metadata(&prepared) {
        Ok(found) if found.is_dir() && found.uid() == uid => prepared,
        _ => PathBuf::from(format!("/dev/shm/topdeck-{uid}")),
    }
}

/// All directories with metrics files below a root: `/`, or `/proc/PID/root` of a container.
pub(crate) fn metric_dirs(root: &Path) -> Vec<PathBuf> {
    let below = |dir: &str, is_one: fn(&OsString) -> bool| {
        let entries = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        // A symbolic link could lead out of the container.
        let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|is| is.is_dir());
        let entries = entries.filter(move |entry| is_one(&entry.file_name()) && is_dir(entry));
        entries.map(|entry| entry.path())
    };
    let is_number = |name: &OsString| {
        name.to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("topdeck-"));
    let mut dirs: Vec<PathBuf> =
        below("run/topdeck", is_number).chain(below("dev/shm", is_ours)).collect();
    if root == Path::new("/")
        && let Some(value) = std::env::var_os(ENV_VARIABLE)
        && value != "off"
        && !value.is_empty()
        && !dirs.contains(&PathBuf::from(&value))
    {
        dirs.push(PathBuf::from(value));
    }
    dirs.sort_unstable();
    dirs
}

/// Error of a call that reserves space.
pub(crate) fn no_space_error(path: &Path, bytes: usize) -> impl FnOnce(rustix::io::Errno) -> Error {
    let path = path.to_owned();
    move |cause| match cause {
        rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT | rustix::io::Errno::NOMEM => {
            Error::NoSpace { path, bytes, cause: io::Error::from(cause) }
        }
        cause => Error::Io { action: "reserve space in", path, cause: cause.into() },
    }
}
