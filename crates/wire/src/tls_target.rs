//! Which TLS libraries are read, as users name them, and their files.
//!
//! A target is `auto`, the identifier of a process, or the path of a library or executable.
//! Processes of containers have files of their own: they are opened below `/proc/PID/root`.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::elf_symbols::find_functions;

/// Files with probes. A file has 15 of them, each an open file of this process.
const FILES_MAX: usize = 64;
/// Part of the names of shared libraries of OpenSSL, BoringSSL and LibreSSL.
const LIBRARY_NAME: &str = "libssl";
/// Functions that a library must have.
const REQUIRED: [&str; 2] = ["SSL_read", "SSL_write"];

/// Where TLS is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsTarget {
    /// The libraries and executables of all processes that run now.
    Auto,
    /// The library or executable of this process, and of all others that use the same file.
    Process(u32),
    /// This library or executable.
    File(PathBuf),
}

/// Failures of reading TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsProbeError {
    /// The file cannot be read, or is not of ELF.
    #[error("cannot read TLS at {}: {cause}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// Failure.
        cause: io::Error,
    },
    /// The file does not have the functions.
    #[error(
        "cannot read TLS at {}: it has no functions SSL_read and SSL_write; name the file of \
         OpenSSL or BoringSSL, or an executable with its symbols (Go and rustls are not supported)",
        path.display()
    )]
    Symbols {
        /// Its path.
        path: PathBuf,
    },
    /// The process does not exist, or its files may not be seen.
    #[error("cannot read the mapped files of process {process}: {cause}; run as root")]
    Process {
        /// Its identifier.
        process: u32,
        /// Failure.
        cause: io::Error,
    },
    /// No process uses a library that can be read.
    #[error(
        "cannot read TLS: no process that runs now has OpenSSL or BoringSSL with its symbols; \
         start it first, or name the file of its library"
    )]
    NoLibrary,
    /// More files than are probed.
    #[error("TLS library limit ({FILES_MAX}) exceeded; name files or processes instead of auto")]
    Files,
    /// The kernel refused a program or a probe.
    #[error("cannot read TLS: {0}")]
    Bpf(String),
}

impl TlsTarget {
    /// Parses `auto`, a process identifier or a path with a slash.
    pub fn parse(text: &str) -> Result<TlsTarget, String> {
        if text == "auto" {
            return Ok(TlsTarget::Auto);
        }
        if let Ok(process) = text.parse() {
            return Ok(TlsTarget::Process(process));
        }
        match text.contains('/') {
            true => Ok(TlsTarget::File(PathBuf::from(text))),
            false => Err("expected auto, a process identifier, or a path such as \
                          /usr/lib/x86_64-linux-gnu/libssl.so.3"
                .to_owned()),
        }
    }
}

/// A file with the functions of a TLS library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsLibraryFile {
    pub(crate) path: PathBuf,
    /// Offsets of the functions, in the order of the names.
    pub(crate) functions: Vec<Option<u64>>,
}

/// Files of all targets, each once, with the offsets of `names`. `proc` is the directory `/proc`.
pub(crate) fn library_files(
    targets: &[TlsTarget],
    names: &[&str],
    proc: &Path,
) -> Result<Vec<TlsLibraryFile>, TlsProbeError> {
    let mut search = LibrarySearch { names, seen: HashSet::new(), files: Vec::new() };
    for target in targets {
        match target {
            TlsTarget::Auto => search.add_all_processes(proc)?,
            TlsTarget::Process(process) => search.add_process(proc, *process)?,
            TlsTarget::File(path) => {
                let failure = |cause| TlsProbeError::File { path: path.clone(), cause };
                match search.add(path).map_err(failure)? {
                    FileKind::Library | FileKind::Known => {}
                    FileKind::Other => return Err(TlsProbeError::Symbols { path: path.clone() }),
                }
            }
        }
        if search.files.len() > FILES_MAX {
            return Err(TlsProbeError::Files);
        }
    }
    match search.files.is_empty() {
        true => Err(TlsProbeError::NoLibrary),
        false => Ok(search.files),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Library,
    /// It was read before.
    Known,
    Other,
}

struct LibrarySearch<'a> {
    names: &'a [&'a str],
    /// Device and inode of the files that were read.
    seen: HashSet<(u64, u64)>,
    files: Vec<TlsLibraryFile>,
}

impl LibrarySearch<'_> {
    /// Adds a file if it has the functions.
    fn add(&mut self, path: &Path) -> io::Result<FileKind> {
        let mut file = File::open(path)?;
        let metadata: Metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        if !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(FileKind::Known);
        }
        let functions = find_functions(&mut file, self.names)?;
        let has = |name: &str| {
            let at = self.names.iter().position(|of| *of == name);
            at.is_some_and(|at| functions[at].is_some())
        };
        if !REQUIRED.iter().all(|name| has(name)) {
            return Ok(FileKind::Other);
        }
        self.files.push(TlsLibraryFile { path: path.to_owned(), functions });
        Ok(FileKind::Library)
    }

    /// Adds the libraries and the executable of a process.
    fn add_process(&mut self, proc: &Path, process: u32) -> Result<(), TlsProbeError> {
        let directory = proc.join(process.to_string());
        let failure = |cause| TlsProbeError::Process { process, cause };
        let maps = fs::read_to_string(directory.join("maps")).map_err(failure)?;
        let mut has_library = false;
        for path in executable_mappings(&maps) {
            let path = path_in_process(&directory, path);
            has_library |= matches!(self.add(&path), Ok(FileKind::Library | FileKind::Known))
                && self.files.iter().any(|file| is_same_file(&file.path, &path));
        }
        match has_library {
            true => Ok(()),
            false => Err(TlsProbeError::Symbols { path: directory.join("exe") }),
        }
    }

    /// Adds what the processes use that run now. Those that end meanwhile, or whose files may not
    /// be seen, are left out.
    fn add_all_processes(&mut self, proc: &Path) -> Result<(), TlsProbeError> {
        let failure = |cause| TlsProbeError::File { path: proc.to_owned(), cause };
        for entry in fs::read_dir(proc).map_err(failure)? {
            let directory = entry.map_err(failure)?.path();
            let name = directory.file_name().and_then(|name| name.to_str());
            if name.is_none_or(|name| name.parse::<u32>().is_err()) {
                continue;
            }
            let Ok(maps) = fs::read_to_string(directory.join("maps")) else { continue };
            let executable = fs::read_link(directory.join("exe")).unwrap_or_default();
            for path in executable_mappings(&maps) {
                let name = Path::new(path).file_name().and_then(|name| name.to_str());
                let is_library = name.is_some_and(|name| name.contains(LIBRARY_NAME));
                if is_library || Path::new(path) == executable {
                    // Files that were deleted, or are not of ELF, cannot be probed.
                    let _ = self.add(&path_in_process(&directory, path));
                }
                if self.files.len() > FILES_MAX {
                    return Err(TlsProbeError::Files);
                }
            }
        }
        Ok(())
    }
}

/// A file as a process sees it.
fn path_in_process(directory: &Path, path: &str) -> PathBuf {
    let root = directory.join("root");
    match fs::read_link(&root) {
        // The same file system as ours has shorter names without it.
        Ok(target) if target == Path::new("/") && Path::new(path).exists() => PathBuf::from(path),
        _ => root.join(path.trim_start_matches('/')),
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|of| (of.dev(), of.ino())).ok();
    identity(one).is_some_and(|found| Some(found) == identity(other))
}

/// Paths of the executable mappings of `/proc/PID/maps`, each once.
fn executable_mappings(maps: &str) -> Vec<&str> {
    let mut paths: Vec<&str> = Vec::new();
    for line in maps.lines() {
        // Address, permissions, offset, device, inode, and the path behind spaces.
        let mut fields = line.splitn(6, ' ');
        let is_executable = fields.nth(1).is_some_and(|of| of.contains('x'));
        let path = fields.nth(3).map(str::trim_start).unwrap_or_default();
        if is_executable && path.starts_with('/') && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_processes_files_or_all() {
        assert_eq!(TlsTarget::parse("auto"), Ok(TlsTarget::Auto));
        assert_eq!(TlsTarget::parse("123"), Ok(TlsTarget::Process(123)));
        let file = TlsTarget::File(PathBuf::from("/lib/libssl.so.3"));
        assert_eq!(TlsTarget::parse("/lib/libssl.so.3"), Ok(file));
        for wrong in ["", "nginx", "-1", "libssl.so.3"] {
            assert!(TlsTarget::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mappings_are_those_with_code_of_files() {
        let maps = "\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus daemon
00651000-00652000 r--p 00051000 08:02 173521      /usr/bin/dbus daemon
7f00-7f01 r-xp 00000000 08:02 135522                     /usr/lib/libssl.so.3
7f01-7f02 r-xp 00000000 08:02 135522                     /usr/lib/libssl.so.3
7ffe-7fff r-xp 00000000 00:00 0                          [vdso]
7fff-8000 rwxp 00000000 00:00 0
damaged
";
        assert_eq!(executable_mappings(maps), ["/usr/bin/dbus daemon", "/usr/lib/libssl.so.3"]);
    }

    #[test]
    fn a_file_without_the_functions_is_an_error() {
        let names = ["SSL_read", "SSL_write"];
        let find = |path: &Path| {
            let target = TlsTarget::File(path.to_owned());
            library_files(&[target], &names, Path::new("/proc")).unwrap_err().to_string()
        };
        let own = std::env::current_exe().unwrap();
        assert!(find(&own).contains("no functions SSL_read and SSL_write; name the file"));
        assert!(find(Path::new("/nowhere/libssl.so")).contains("No such file"));
        assert!(find(Path::new("/proc/self/status")).contains("not a 64-bit"));
        assert!(find(Path::new("/")).contains("cannot read TLS at /: not a regular file"));
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        let targets = [TlsTarget::Process(u32::MAX)];
        let found = library_files(&targets, &["SSL_read"], Path::new("/proc")).unwrap_err();
        let text = found.to_string();
        assert!(text.starts_with("cannot read the mapped files of process 4294967295"), "{text}");
    }
}
