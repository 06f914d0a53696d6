//! Discovery of metrics files of other formats (PCP, JVM), treated as untrusted input.
//!
//! A root is `/`, or `/proc/PID/root` for processes in another mount namespace. Access stays below
//! the root: directories are opened one below the other; symbolic links resolve inside the root,
//! and are not followed for the JVM's directories and for files. A file is opened non-blocking,
//! must be a regular file, and is copied with `pread`, because truncation of a mapped file would
//! raise SIGBUS.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Largest accepted file in bytes.
pub const BYTES_MAX: u64 = 64 << 20;
/// Limit of files per directory.
pub const NAMES_MAX: usize = 1 << 16;
/// Prefix of the JVM's directories; the user name follows.
const JVM_DIR: &str = "hsperfdata_";
/// Default locations of PCP's temporary directory: Debian and Red Hat, and PCP's own default.
const PCP_DIRS: [&str; 2] = ["/var/lib/pcp/tmp", "/var/tmp"];
/// Bytes of `/etc/pcp.conf` that are read.
const CONF_BYTES_MAX: u64 = 1 << 16;

/// Error opening or reading a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed; often the file is gone or belongs to another user.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is a directory, a pipe, a device or a socket.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file exceeds the size limit.
    #[error("{} has {found} bytes, limit {BYTES_MAX}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
    },
}

/// Metrics file of another format, not yet opened.
#[derive(Clone, Debug)]
pub struct ForeignFile {
    /// For display only: the path may refer to another file by now.
    pub path: PathBuf,
    dir: Arc<OwnedFd>,
}

/// A JVM's file.
#[derive(Clone, Debug)]
pub struct JvmFile {
    /// PID of the JVM in its own namespace: compare with [`namespace_pid`].
    pub pid: u32,
    /// User name in the name of the directory.
    pub user: String,
    /// The file.
    pub file: ForeignFile,
}

/// Open metrics file of another format.
#[derive(Debug)]
pub struct OpenForeignFile {
    path: PathBuf,
    file: File,
    /// Owner of the file. Any user may create a directory in `/tmp`: trust the file only if its
    /// owner is the user of the process.
    pub uid: u32,
}

/// Finds files of JVMs below a root: `tmp/hsperfdata_USER/PID`. Fails if the root cannot be opened.
pub fn find_jvm_files(root: &Path) -> io::Result<Vec<JvmFile>> {
    let Some(tmp) = open_dir_below(&open_root(root)?, "tmp".as_ref()) else {
        return Ok(Vec::new());
    };
    let mut jvms = Vec::new();
    for dir_name in list_names(&tmp, |name| name.starts_with(JVM_DIR)) {
        let user = &dir_name[JVM_DIR.len()..];
        // The JVM refuses a directory that is a symbolic link too.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(dir) = fs::openat(&tmp, &*dir_name, flags, Mode::empty()) else { continue };
        let dir = Arc::new(dir);
        for name in list_names(&dir, |name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            let Ok(pid) = name.parse() else { continue };
            let path = root.join("tmp").join(&dir_name).join(name);
            let file = ForeignFile { path, dir: dir.clone() };
            jvms.push(JvmFile { pid, user: user.to_owned(), file });
        }
    }
    jvms.sort_by(|a, b| (&a.user, a.pid).cmp(&(&b.user, b.pid)));
    Ok(jvms)
}

/// Finds MMV files in PCP's directories below a root. `pcp_tmp_dir` is the environment variable of
/// that name. It has precedence over the root's `/etc/pcp.conf`, which has precedence over the
/// default locations; all are searched. Fails if the root cannot be opened.
pub(crate) fn find_mmv_files(
    root: &Path,
    pcp_tmp_dir: Option<&OsStr>,
) -> io::Result<Vec<ForeignFile>> {
    let root_dir = open_root(root)?;
    let conf = open_file_below(&root_dir, "etc/pcp.conf".as_ref()).and_then(|file| {
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, CONF_BYTES_MAX), &mut text).ok()?;
        parse_pcp_tmp_dir(&String::from_utf8_lossy(&text))
    });
    let mut dirs: Vec<PathBuf> = pcp_tmp_dir.map(PathBuf::from).into_iter().chain(conf).collect();
    dirs.extend(PCP_DIRS.map(PathBuf::from));
    let mut visited = Vec::new();
    let mut files = Vec::new();
    for search_dir in dirs {
        // A relative path has no known base.
        let Ok(search_dir) = search_dir.join("mmv").strip_prefix("/").map(Path::to_path_buf) else {
            continue;
        };
        let Some(dir) = open_dir_below(&root_dir, &search_dir) else { continue };
        let Ok(stat) = fs::fstat(&dir) else { continue };
        if visited.contains(&(stat.st_dev, stat.st_ino)) {
            continue;
        }
        visited.push((stat.st_dev, stat.st_ino));
        let dir = Arc::new(dir);
        for name in list_names(&dir, |name| !name.starts_with('.')) {
            files.push(ForeignFile { path: root.join(&search_dir).join(name), dir: dir.clone() });
        }
    }
    Ok(files)
}

/// PID of a process in its own namespace, from its `/proc/PID/status`: the last of `NSpid`.
pub fn namespace_pid(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

impl ForeignFile {
    /// Opens the file without blocking on a pipe or device.
    pub fn open(&self) -> Result<OpenForeignFile, Error> {
        let failed = |errno: Errno| Error::Io { path: self.path.clone(), source: errno.into() };
        let not_a_file = || Error::NotAFile { path: self.path.clone() };
        let name = self.path.file_name().unwrap_or_default();
        // Checked before opening too, because opening a device may have side effects.
        let stat = fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_a_file());
        }
        let file = fs::openat(&self.dir, name, FLAGS, Mode::empty()).map_err(failed)?;
        let stat = fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_a_file());
        }
        Ok(OpenForeignFile { path: self.path.clone(), file: file.into(), uid: stat.st_uid })
    }
}

impl OpenForeignFile {
    /// Replaces the contents of `bytes` with the current contents of the file.
    pub fn read(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.read_start(bytes, u64::MAX)
    }

    /// Reads at most `count` bytes from the start.
    pub(crate) fn read_start(&self, bytes: &mut Vec<u8>, count: u64) -> Result<(), Error> {
        let failed = |source| Error::Io { path: self.path.clone(), source };
        let found = self.file.metadata().map_err(failed)?.len();
        if found.min(count) > BYTES_MAX {
            return Err(Error::TooLarge { path: self.path.clone(), found });
        }
        bytes.clear();
        bytes.resize(found.min(count) as usize, 0);
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], done as u64) {
                // The file was truncated during the read.
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        bytes.truncate(done);
        Ok(())
    }
}

const FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(fs::openat(CWD, root, flags, Mode::empty())?)
}

/// Opens a directory below a root; symbolic links resolve as for a process in that root.
fn open_dir_below(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    open_beneath(root, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC)
}

/// Opens a regular file below a root.
fn open_file_below(root: &OwnedFd, path: &Path) -> Option<File> {
    let file: File = open_beneath(root, path, FLAGS.difference(OFlags::NOFOLLOW))?.into();
    file.metadata().ok()?.is_file().then_some(file)
}

fn open_beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match fs::openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(file) => Some(file),
        // Before Linux 5.6, and under seccomp filters without `openat2`: symbolic links are
        // refused.
        Err(Errno::NOSYS | Errno::PERM) => open_without_links(root, path, flags),
        Err(_) => None,
    }
}

fn open_without_links(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let mut dir: Option<OwnedFd> = None;
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let std::path::Component::Normal(name) = name else { return None };
        let flags = match names.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        let at = dir.as_ref().unwrap_or(root);
        dir = Some(fs::openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?);
    }
    dir
}

/// Accepted names in a directory, sorted. Names that are not UTF-8 belong to no known format.
fn list_names(dir: &OwnedFd, filter: impl Fn(&str) -> bool) -> Vec<String> {
    let Ok(entries) = Dir::read_from(dir) else { return Vec::new() };
    let entries = entries.map_while(Result::ok);
    let name = |entry: DirEntry| {
        entry.file_name().to_str().ok().filter(|name| filter(name)).map(str::to_owned)
    };
    let mut names: Vec<String> = entries.filter_map(name).take(NAMES_MAX).collect();
    names.sort_unstable();
    names
}

/// `PCP_TMP_DIR` of a `pcp.conf`: lines `NAME=VALUE` as in a shell.
fn parse_pcp_tmp_dir(conf: &str) -> Option<PathBuf> {
    let value = conf.lines().rev().find_map(|line| line.trim().strip_prefix("PCP_TMP_DIR="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(value.as_bytes())))
}

#[cfg(test)]
mod tests;
