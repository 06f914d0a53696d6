//! Discovery of metrics files of other formats (PCP, JVM), treated as untrusted input.
//!
//! A root is `/`, or `/proc/PID/root` for processes in another mount namespace. Nothing leads out
//! of it: folders are opened one below the other, symbolic links inside a root end inside it or,
//! for the JVM's folders and all files, are not followed. A file is opened without waiting, must be
//! a regular one, and is copied with `pread`: a mapping would turn a truncation into a SIGBUS.

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

/// Bytes of a file above which it is refused.
pub const BYTES_MAX: u64 = 64 << 20;
/// Files of one folder that are found.
pub const NAMES_MAX: usize = 1 << 16;
/// What the names of the JVM's folders begin with; the user's follows.
const JVM_FOLDER: &str = "hsperfdata_";
/// Where PCP's folder of temporary files is where it does not say otherwise: Debian and Red Hat,
/// else PCP's own default.
const PCP_FOLDERS: [&str; 2] = ["/var/lib/pcp/tmp", "/var/tmp"];
/// Bytes of `/etc/pcp.conf` that are looked at.
const CONF_BYTES_MAX: u64 = 1 << 16;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused; often the file is gone, or belongs to another user.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A folder, a pipe, a device, a socket.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// Larger than anything that is read.
    #[error("{} has {found} bytes, limit {BYTES_MAX}", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
    },
}

/// Metrics file of another format, not yet opened.
#[derive(Clone, Debug)]
pub struct ForeignFile {
    /// To be shown; where it was may be something else by now.
    pub path: PathBuf,
    folder: Arc<OwnedFd>,
}

/// A JVM's file.
#[derive(Clone, Debug)]
pub struct JvmFile {
    /// The JVM's process, by its number in its own namespace: compare with [`pid_inside`].
    pub pid: u32,
    /// Whose it is, by the name of the folder.
    pub user: String,
    /// The file.
    pub file: ForeignFile,
}

/// Open metrics file of another format.
#[derive(Debug)]
pub struct OpenForeignFile {
    path: PathBuf,
    file: File,
    /// Who owns the file. Anyone may make a folder in `/tmp`: believe it of a process only if that
    /// is the process's.
    pub uid: u32,
}

/// The files of JVMs below a root: `tmp/hsperfdata_USER/PID`. An error says that the root itself
/// cannot be opened.
pub fn find_jvm_files(root: &Path) -> io::Result<Vec<JvmFile>> {
    let Some(tmp) = open_dir_below(&open_root(root)?, "tmp".as_ref()) else {
        return Ok(Vec::new());
    };
    let mut jvms = Vec::new();
    for folder_name in list_names(&tmp, |name| name.starts_with(JVM_FOLDER)) {
        let user = &folder_name[JVM_FOLDER.len()..];
        // The JVM itself refuses a folder that is a link.
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(folder) = fs::openat(&tmp, &*folder_name, flags, Mode::empty()) else { continue };
        let folder = Arc::new(folder);
        for name in list_names(&folder, |name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            let Ok(pid) = name.parse() else { continue };
            let path = root.join("tmp").join(&folder_name).join(name);
            let file = ForeignFile { path, folder: folder.clone() };
            jvms.push(JvmFile { pid, user: user.to_owned(), file });
        }
    }
    jvms.sort_by(|a, b| (&a.user, a.pid).cmp(&(&b.user, b.pid)));
    Ok(jvms)
}

/// Files in PCP's folders of Memory Mapped Values below a root. `pcp_tmp_dir` is the environment
/// variable of that name, which says more than the root's `/etc/pcp.conf`, which says more than
/// where the folder usually is; all are looked at. An error says that the root itself cannot be
/// opened.
pub fn find_mmv_files(root: &Path, pcp_tmp_dir: Option<&OsStr>) -> io::Result<Vec<ForeignFile>> {
    let root_folder = open_root(root)?;
    let conf = open_file_below(&root_folder, "etc/pcp.conf".as_ref()).and_then(|file| {
        let mut text = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(file, CONF_BYTES_MAX), &mut text).ok()?;
        parse_pcp_tmp_dir(&String::from_utf8_lossy(&text))
    });
    let mut places: Vec<PathBuf> = pcp_tmp_dir.map(PathBuf::from).into_iter().chain(conf).collect();
    places.extend(PCP_FOLDERS.map(PathBuf::from));
    let mut seen = Vec::new();
    let mut files = Vec::new();
    for place in places {
        // Of what is not absolute nobody knows to what it relates.
        let Ok(place) = place.join("mmv").strip_prefix("/").map(Path::to_path_buf) else {
            continue;
        };
        let Some(folder) = open_dir_below(&root_folder, &place) else { continue };
        let Ok(stat) = fs::fstat(&folder) else { continue };
        if seen.contains(&(stat.st_dev, stat.st_ino)) {
            continue;
        }
        seen.push((stat.st_dev, stat.st_ino));
        let folder = Arc::new(folder);
        for name in list_names(&folder, |name| !name.starts_with('.')) {
            files.push(ForeignFile { path: root.join(&place).join(name), folder: folder.clone() });
        }
    }
    Ok(files)
}

/// The number of a process in its own namespace, from its `/proc/PID/status`: the last of `NSpid`.
pub fn namespace_pid(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

impl ForeignFile {
    /// Opens the file. A pipe or a device is not waited for.
    pub fn open(&self) -> Result<OpenForeignFile, Error> {
        let failed = |errno: Errno| Error::Io { path: self.path.clone(), source: errno.into() };
        let not_a_file = || Error::NotAFile { path: self.path.clone() };
        let name = self.path.file_name().unwrap_or_default();
        // Looked at before too: opening a device may have done something already.
        let stat = fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_a_file());
        }
        let file = fs::openat(&self.folder, name, FLAGS, Mode::empty()).map_err(failed)?;
        let stat = fs::fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_a_file());
        }
        Ok(OpenForeignFile { path: self.path.clone(), file: file.into(), uid: stat.st_uid })
    }
}

impl OpenForeignFile {
    /// The file as it is now, in place of what `bytes` held.
    pub fn read(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.read_start(bytes, u64::MAX)
    }

    /// At most `count` bytes of its beginning.
    pub fn read_start(&self, bytes: &mut Vec<u8>, count: u64) -> Result<(), Error> {
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
                // Truncated in the meantime.
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

/// A folder below a root, with links as a process in that root would follow them.
fn open_dir_below(root: &OwnedFd, path: &Path) -> Option<OwnedFd> {
    open_beneath(root, path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC)
}

/// A regular file below a root.
fn open_file_below(root: &OwnedFd, path: &Path) -> Option<File> {
    let file: File = open_beneath(root, path, FLAGS.difference(OFlags::NOFOLLOW))?.into();
    file.metadata().ok()?.is_file().then_some(file)
}

fn open_beneath(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    match fs::openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(file) => Some(file),
        // Before Linux 5.6, and under filters that do not know it: no links at all.
        Err(Errno::NOSYS | Errno::PERM) => open_without_links(root, path, flags),
        Err(_) => None,
    }
}

fn open_without_links(root: &OwnedFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let mut folder: Option<OwnedFd> = None;
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let std::path::Component::Normal(name) = name else { return None };
        let flags = match names.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        let at = folder.as_ref().unwrap_or(root);
        folder = Some(fs::openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?);
    }
    folder
}

/// The names in a folder that are wanted, ascending; those that are not UTF-8 are of nothing that
/// is looked for.
fn list_names(folder: &OwnedFd, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let Ok(entries) = Dir::read_from(folder) else { return Vec::new() };
    let entries = entries.map_while(Result::ok);
    let name = |entry: DirEntry| {
        entry.file_name().to_str().ok().filter(|name| wanted(name)).map(str::to_owned)
    };
    let mut names: Vec<String> = entries.filter_map(name).take(NAMES_MAX).collect();
    names.sort();
    names
}

/// `PCP_TMP_DIR` of a `pcp.conf`: lines `NAME=VALUE` as a shell reads them.
fn parse_pcp_tmp_dir(conf: &str) -> Option<PathBuf> {
    let value = conf.lines().rev().find_map(|line| line.trim().strip_prefix("PCP_TMP_DIR="))?;
    let value = value.trim().trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(value.as_bytes())))
}

#[cfg(test)]
mod tests;
