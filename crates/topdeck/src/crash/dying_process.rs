//! A process that has crashed and waits until its core is read: what `/proc` has of it.
//!
//! Its paths are those of its own file system and under its control: they are opened below its root
//! without following a link, and only regular files are read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ::crash::{CoreDump, CrashOrigin};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// Files with code that are opened.
const FILES_MAX: usize = 128;
/// Bytes of a file of `/proc` that are read.
const PROC_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an error file of the JVM that are read.
const JVM_TEXT_BYTES_MAX: u64 = 4 << 20;
/// Unit of times in `/proc/PID/stat`: USER_HZ is 100 on Linux.
const TICK_NS: u64 = 10_000_000;

/// A process by its `/proc/PID`.
pub(super) struct DyingProcess {
    dir: PathBuf,
    pid: u32,
}

impl DyingProcess {
    pub(super) fn new(pid: u32) -> DyingProcess {
        DyingProcess { dir: PathBuf::from(format!("/proc/{pid}")), pid }
    }

    fn text(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        let file = File::open(self.dir.join(name)).ok();
        let _ = file.map(|file| file.take(PROC_BYTES_MAX).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Executable, unit, container, start. `thread` is the PID of the thread that crashed.
    pub(super) fn origin(&self, thread: u32, command: &str) -> CrashOrigin {
        let executable = fs::read_link(self.dir.join("exe")).unwrap_or_default();
        let executable = executable.to_string_lossy().into_owned();
        let path = executable.strip_suffix(" (deleted)").unwrap_or(&executable);
        let program = path.rsplit('/').next().filter(|name| !name.is_empty());
        let name = self.text(&format!("task/{thread}/comm")).trim_end().to_owned();
        let mut origin = CrashOrigin {
            program: program.unwrap_or(command).to_owned(),
            executable: path.to_owned(),
            pid: self.pid,
            thread: if name.is_empty() { command.to_owned() } else { name },
            uptime_ns: self.uptime_ns(),
            ..CrashOrigin::default()
        };
        let groups = self.text("cgroup");
        let path = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).next_back();
        origin.set_control_group(path.unwrap_or(""));
        origin
    }

    fn uptime_ns(&self) -> Option<u64> {
        let stat = self.text("stat");
        // The name in parentheses may have any characters; the start is field 22.
        let fields = stat.rsplit_once(')')?.1;
        let start: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
        let now = fs::read_to_string("/proc/uptime").ok()?;
        let now: f64 = now.split(' ').next()?.parse().ok()?;
        Some(((now * 1e9) as u64).saturating_sub(start.saturating_mul(TICK_NS)))
    }

    /// Reads memory; returns the number of bytes.
    pub(super) fn memory(&self) -> Option<impl FnMut(u64, &mut [u8]) -> usize> {
        let memory = File::open(self.dir.join("mem")).ok()?;
        Some(move |address: u64, bytes: &mut [u8]| {
            let mut filled = 0;
            while filled < bytes.len() {
                match memory.read_at(&mut bytes[filled..], address + filled as u64) {
                    Ok(count) if count > 0 => filled += count,
                    _ => break,
                }
            }
            filled
        })
    }

    /// Opens the files with code: they are read when the process is gone.
    pub(super) fn open_files(&self, core: &CoreDump) -> BTreeMap<String, File> {
        let executable = fs::read_link(self.dir.join("exe")).unwrap_or_default();
        let root = File::open(self.dir.join("root")).ok();
        let mut files = BTreeMap::new();
        for mapping in core.mappings.iter().filter(|mapping| mapping.is_executable) {
            if files.len() == FILES_MAX {
                break;
            }
            let file = match Path::new(&mapping.path) == executable {
                // Also of a deleted file.
                true => File::open(self.dir.join("exe")).ok(),
                false => root.as_ref().and_then(|root| open_below(root, &mapping.path)),
            };
            file.and_then(|file| files.insert(mapping.path.clone(), file));
        }
        files
    }

    /// Opens the error file of the JVM, which is complete when the process aborts.
    pub(super) fn jvm_text(&self) -> Option<File> {
        let status = self.text("status");
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let own = pids?.split_whitespace().last()?.to_owned();
        open_below(&File::open(self.dir.join("cwd")).ok()?, &format!("hs_err_pid{own}.log"))
    }
}

/// Reads an error file of the JVM.
pub(super) fn read_jvm_text(file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = file.take(JVM_TEXT_BYTES_MAX).read_to_end(&mut bytes);
    bytes
}

/// Opens a regular file below a directory; on a kernel before 5.6, none.
fn open_below(dir: &File, path: &str) -> Option<File> {
    // A pipe would wait for a writer.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let file = File::from(openat2(dir, path, flags, Mode::empty(), resolve).ok()?);
    file.metadata().ok()?.is_file().then_some(file)
}
