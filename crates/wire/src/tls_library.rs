//! Files with the functions of a TLS library: those that users name, and those that the processes
//! of this host have mapped.
//!
//! Any user chooses the names of his files and what is behind them, and a container has a file
//! system of its own. So files of processes are never opened by name, but by the kernel's links to
//! what is mapped (`/proc/PID/exe`, `/proc/PID/map_files`; proc(5)): the file is that of the
//! process, even if it was renamed or deleted. A file is first opened for its path only (`O_PATH`),
//! which has no effect on devices and waits for no reader of a pipe; only a regular file is read.
//! It stays open until the probes exist, so that they are at the file that was read.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FsWord;
use rustix::process::{Resource, getrlimit};

use crate::elf_symbols::find_functions;
use crate::go_functions::find_go_functions;
use crate::machine_code::ProbeOffsets;
use crate::tls_program::GO_SYMBOLS;
use crate::tls_target::{TlsProbeError, TlsTarget};

/// Files with probes.
const FILES_MAX: usize = 64;
/// Open files that the probes of one library need.
const DESCRIPTORS_OF_FILE: usize = 18;
/// Part of the names of shared libraries of OpenSSL, BoringSSL and LibreSSL.
const LIBRARY_NAME: &str = "libssl";
/// Functions that a library must have.
const REQUIRED: [&str; 2] = ["SSL_read", "SSL_write"];
/// Bytes that are read of the tables of one file: some times those of Chromium.
const FILE_BUDGET_BYTES: u64 = 256 << 20;
/// Bytes that are read of all files of `auto`.
const AUTO_BUDGET_BYTES: u64 = 2 << 30;
/// Files of `auto` that do not belong to root, which are looked at after those that do.
const DEFERRED_MAX: usize = 4_096;
/// Bytes of the list of the mappings of a process; some ten thousand.
const MAPS_BYTES_MAX: u64 = 4 << 20;
/// Files that were left out, and are listed with the cause.
const LEFT_OUT_MAX: usize = 16;
/// `OVERLAYFS_SUPER_MAGIC`.
const OVERLAY: FsWord = 0x794c_7630;

/// A file with the functions of a TLS library.
#[derive(Debug)]
pub(crate) struct TlsLibraryFile {
    /// Open for its path only.
    pub(crate) file: File,
    /// Its name for users, without control characters.
    pub(crate) path: String,
    /// Offsets of the functions, in the order of the names.
    pub(crate) functions: Vec<Option<u64>>,
    /// Places in the functions of Go, in the order of [`GO_SYMBOLS`]; empty if it is none of Go.
    pub(crate) go: Vec<Option<ProbeOffsets>>,
    /// `auto` has found it: a failure leaves it out.
    pub(crate) is_optional: bool,
}

/// Files of `auto` that are not read, though processes use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOutLibraries {
    /// The first 16 of them: path and cause.
    pub files: Vec<String>,
    /// Number of all.
    pub count: u64,
}

impl LeftOutLibraries {
    pub(crate) fn add(&mut self, path: &str, cause: &dyn std::fmt::Display) {
        self.count += 1;
        if self.files.len() < LEFT_OUT_MAX {
            self.files.push(format!("{path}: {cause}"));
        }
    }
}

/// Files of all targets, each once.
#[derive(Debug, Default)]
pub(crate) struct TlsLibraries {
    pub(crate) files: Vec<TlsLibraryFile>,
    pub(crate) left_out: LeftOutLibraries,
}

/// Finds the files of all targets, with the offsets of `names`. `proc` is the directory `/proc`.
pub(crate) fn find_libraries(
    targets: &[TlsTarget],
    names: &[&str],
    proc: &Path,
) -> Result<TlsLibraries, TlsProbeError> {
    let mut search = LibrarySearch {
        names,
        proc,
        files_max: files_max(),
        auto_budget_bytes: AUTO_BUDGET_BYTES,
        seen: HashMap::new(),
        found: TlsLibraries::default(),
    };
    for target in targets {
        match target {
            TlsTarget::Auto => {}
            TlsTarget::Process(process) => search.add_process(*process)?,
            TlsTarget::File(path) => search.add_file(path)?,
        }
    }
    // Last: what was named has its place first.
    if targets.contains(&TlsTarget::Auto) {
        search.add_all_processes()?;
    }
    match search.found.files.is_empty() && search.found.left_out.count == 0 {
        true => Err(TlsProbeError::NoLibrary),
        false => Ok(search.found),
    }
}

/// Files with probes for which half of this process's open files suffice.
fn files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let files = limit / 2 / DESCRIPTORS_OF_FILE as u64;
    usize::try_from(files).map_or(FILES_MAX, |files| files.clamp(1, FILES_MAX))
}

/// What tells files apart.
#[derive(Clone, PartialEq, Eq, Hash)]
enum FileIdentity {
    Inode {
        device: u64,
        inode: u64,
    },
    /// A file of an overlay, where each container has another device for the same lower file. Two
    /// files do not have the same time of change to the nanosecond, which no user sets.
    Overlay {
        inode: u64,
        size: u64,
        changed: (i64, i64),
    },
}

impl FileIdentity {
    fn of(file: &File, metadata: &Metadata) -> io::Result<FileIdentity> {
        let inode = metadata.ino();
        let kind = rustix::fs::fstatfs(file)?.f_type;
        Ok(match kind {
            OVERLAY => FileIdentity::Overlay {
                inode,
                size: metadata.size(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
            _ => FileIdentity::Inode { device: metadata.dev(), inode },
        })
    }
}

/// A regular file that is open for its path only.
struct FoundFile {
    file: File,
    identity: FileIdentity,
    owner: u32,
}

impl FoundFile {
    /// Opens a path, or a link of the kernel.
    fn open(path: &Path) -> io::Result<FoundFile> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let identity = FileIdentity::of(&file, &metadata)?;
        Ok(FoundFile { file, identity, owner: metadata.uid() })
    }

    /// Offsets of functions, and of probes in those of Go.
    fn functions(&self, names: &[&str], budget_bytes: &mut u64) -> io::Result<FoundFunctions> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        // The owner of a file may hold a lease, for which an open would wait.
        let mut options = OpenOptions::new();
        let mut file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let offsets = find_functions(&mut file, names, budget_bytes)?;
        let has =
            |name: &&str| names.iter().zip(&offsets).any(|(of, at)| of == name && at.is_some());
        let is_library = REQUIRED.iter().all(has);
        let go = match find_go_functions(&mut file, &GO_SYMBOLS, budget_bytes) {
            Ok(found) => found.unwrap_or_default(),
            Err(error) if !is_library && is_certain(&error) => return Err(error),
            // It is not known to be of Go.
            Err(_) => Vec::new(),
        };
        Ok(FoundFunctions { offsets, is_library, go })
    }
}

/// Functions of a file.
struct FoundFunctions {
    offsets: Vec<Option<u64>>,
    /// Whether those are there that a library must have.
    is_library: bool,
    go: Vec<Option<ProbeOffsets>>,
}

impl TlsLibraryFile {
    /// Number of libraries whose probes need as many open files.
    fn weight(&self) -> usize {
        let in_go = self.go.iter().flatten().map(|of| 1 + of.returns.len());
        let offsets =
            if self.functions.iter().any(Option::is_some) { DESCRIPTORS_OF_FILE } else { 0 };
        (offsets + in_go.sum::<usize>()).div_ceil(DESCRIPTORS_OF_FILE).max(1)
    }
}

/// A file that a process has mapped with its code.
#[derive(Debug, PartialEq, Eq)]
struct MappedFile {
    /// The kernel's link to it.
    link: PathBuf,
    /// Its name for users, without control characters.
    path: String,
    is_executable: bool,
}

impl MappedFile {
    fn is_named_as_library(&self) -> bool {
        let name = Path::new(&self.path).file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.contains(LIBRARY_NAME))
    }
}

struct LibrarySearch<'a> {
    names: &'a [&'a str],
    proc: &'a Path,
    files_max: usize,
    auto_budget_bytes: u64,
    /// Files that were read, and whether they have the functions.
    seen: HashMap<FileIdentity, bool>,
    found: TlsLibraries,
}

impl LibrarySearch<'_> {
    /// Adds a file if it has the functions. Returns whether it has.
    fn add(&mut self, found: FoundFile, path: String, is_optional: bool) -> io::Result<bool> {
        if let Some(is_library) = self.seen.get(&found.identity) {
            return Ok(*is_library);
        }
        self.seen.insert(found.identity.clone(), false);
        let mut budget = FILE_BUDGET_BYTES;
        if is_optional {
            budget = budget.min(self.auto_budget_bytes);
        }
        let before = budget;
        let functions = found.functions(self.names, &mut budget);
        if is_optional {
            self.auto_budget_bytes -= before - budget;
        }
        let FoundFunctions { offsets, is_library, go } = functions?;
        if !is_library && go.is_empty() {
            return Ok(false);
        }
        self.seen.insert(found.identity, true);
        let functions = if is_library { offsets } else { Vec::new() };
        let file = TlsLibraryFile { file: found.file, path, functions, go, is_optional };
        if is_optional && self.weight() + file.weight() > self.files_max {
            let cause = format!("TLS library limit ({}) reached", self.files_max);
            self.found.left_out.add(&file.path, &cause);
            return Ok(true);
        }
        self.found.files.push(file);
        Ok(true)
    }

    /// Adds a file that the user names.
    fn add_file(&mut self, path: &Path) -> Result<(), TlsProbeError> {
        let failure = |cause| TlsProbeError::File { path: path.to_owned(), cause };
        let file = FoundFile::open(path).map_err(failure)?;
        match self.add(file, shown(path), false).map_err(failure)? {
            true => self.check_limit(),
            false => Err(TlsProbeError::Symbols { path: path.to_owned() }),
        }
    }

    /// Adds the libraries and the executable of a process.
    fn add_process(&mut self, process: u32) -> Result<(), TlsProbeError> {
        let failure = |cause| TlsProbeError::Process { process, cause };
        let (mut has_library, mut refusal) = (false, None);
        for mapped in mapped_files(self.proc, process).map_err(failure)? {
            let added =
                FoundFile::open(&mapped.link).and_then(|file| self.add(file, mapped.path, false));
            match added {
                Ok(is_library) => has_library |= is_library,
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    let path = self.proc.join(process.to_string()).join("exe");
                    return Err(TlsProbeError::File { path, cause: error });
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    refusal = Some(error);
                }
                // Mapped data and devices.
                Err(_) => {}
            }
        }
        match refusal {
            _ if has_library => self.check_limit(),
            Some(cause) => Err(failure(cause)),
            None => {
                let path = self.proc.join(process.to_string()).join("exe");
                Err(TlsProbeError::Symbols { path })
            }
        }
    }

    fn weight(&self) -> usize {
        self.found.files.iter().map(TlsLibraryFile::weight).sum()
    }

    fn check_limit(&self) -> Result<(), TlsProbeError> {
        match self.weight() > self.files_max {
            true => Err(TlsProbeError::Files(self.files_max)),
            false => Ok(()),
        }
    }

    /// Adds what the processes use that run now: first the files of root, so that no other user
    /// uses up the limits before them. Processes that end meanwhile are left out.
    fn add_all_processes(&mut self) -> Result<(), TlsProbeError> {
        let failure = |cause| TlsProbeError::File { path: self.proc.to_owned(), cause };
        let (mut deferred, mut known) = (Vec::new(), HashSet::new());
        for entry in fs::read_dir(self.proc).map_err(failure)?.flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let Ok(files) = mapped_files(self.proc, process) else { continue };
            let own = |mapped: &MappedFile| mapped.is_executable || mapped.is_named_as_library();
            for mapped in files.into_iter().filter(own) {
                let found = match FoundFile::open(&mapped.link) {
                    Ok(found) => found,
                    Err(cause) => {
                        self.leave_out(&mapped, &cause);
                        continue;
                    }
                };
                if self.seen.contains_key(&found.identity) || known.contains(&found.identity) {
                    continue;
                }
                if found.owner == 0 {
                    self.add_optional(found, &mapped);
                } else if deferred.len() < DEFERRED_MAX {
                    known.insert(found.identity);
                    deferred.push(mapped);
                } else {
                    let cause = format!("limit of files ({DEFERRED_MAX}) reached");
                    self.found.left_out.add(&mapped.path, &cause);
                }
            }
        }
        for mapped in deferred {
            if let Ok(found) = FoundFile::open(&mapped.link) {
                self.add_optional(found, &mapped);
            }
        }
        Ok(())
    }

    fn add_optional(&mut self, found: FoundFile, mapped: &MappedFile) {
        if let Err(cause) = self.add(found, mapped.path.clone(), true) {
            self.leave_out(mapped, &cause);
        }
    }

    /// Notes a file that is not read. An executable that is none of ELF, or belongs to a process
    /// that may not be seen, is not known to have a library.
    fn leave_out(&mut self, mapped: &MappedFile, cause: &io::Error) {
        let has_ended = cause.kind() == io::ErrorKind::NotFound;
        if is_certain(cause) || (!mapped.is_executable && !has_ended) {
            self.found.left_out.add(&mapped.path, cause);
        }
    }
}

/// Whether the error tells that the file has a library that is not read, or may have one.
fn is_certain(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::Unsupported)
}

/// The executable of a process, and the other files that it has mapped with their code.
fn mapped_files(proc: &Path, process: u32) -> io::Result<Vec<MappedFile>> {
    let directory = proc.join(process.to_string());
    let mut maps = Vec::new();
    File::open(directory.join("maps"))?.take(MAPS_BYTES_MAX).read_to_end(&mut maps)?;
    let link = directory.join("exe");
    let path = fs::read_link(&link).map(|path| shown(&path)).unwrap_or_default();
    let executable = MappedFile { link, path, is_executable: true };
    let directory = directory.join("map_files");
    let maps = String::from_utf8_lossy(&maps);
    let others = executable_mappings(&maps).into_iter().map(|(start, end, path)| MappedFile {
        link: directory.join(format!("{start:x}-{end:x}")),
        path: shown(Path::new(path)),
        is_executable: false,
    });
    Ok([executable].into_iter().chain(others).collect())
}

/// Start, end and path of the executable mappings of `/proc/PID/maps`, each file once.
fn executable_mappings(maps: &str) -> Vec<(u64, u64, &str)> {
    let (mut mappings, mut seen) = (Vec::new(), HashSet::new());
    for line in maps.lines() {
        // Address, permissions, offset, device, inode, and the path behind spaces.
        let fields: Vec<&str> = line.splitn(6, ' ').collect();
        let [range, permissions, _, device, inode, path] = fields[..] else { continue };
        let range = range.split_once('-').and_then(|(start, end)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(start)?, number(end)?))
        });
        let (Some((start, end)), path) = (range, path.trim_start()) else { continue };
        let is_file = permissions.contains('x') && path.starts_with('/');
        if is_file && seen.insert((device, inode)) {
            mappings.push((start, end, path));
        }
    }
    mappings
}

/// A path for users: other users choose its characters.
fn shown(path: &Path) -> String {
    path.to_string_lossy().escape_debug().to_string()
}

#[cfg(test)]
mod tests;
