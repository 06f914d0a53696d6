//! A process that has crashed and waits until its core is read: what `/proc` has of it.
//!
//! All is opened below a descriptor of its folder in `/proc`, which is of this process only: if its
//! PID is given to another one meanwhile, nothing is found there. The process decides which files
//! it maps and where it is: a file is first opened as a place only (`O_PATH`), which has no effect
//! on a pipe or a device, and for reading once it is known to be a regular file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use ::crash::{CoreDump, CrashOrigin};
use rustix::fs::{Mode, OFlags, open, openat, readlinkat};

/// Files with code that are opened.
const FILES_MAX: usize = 128;
/// Bytes of a file of `/proc` that are read.
const PROC_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an error file of the JVM that are read.
const JVM_TEXT_BYTES_MAX: u64 = 4 << 20;
/// Unit of times in `/proc/PID/stat`: USER_HZ is 100 on Linux.
const TICK_NS: u64 = 10_000_000;
/// Times of files and of processes are compared with this error.
const CLOCK_MARGIN_NS: i64 = 1_000_000_000;

/// Which processes are looked at.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ProcessCheck {
    /// Those whose core is written now.
    IsDumping,
    /// All: tests without `core_pattern`.
    None,
}

/// A process by its `/proc/PID`.
pub(super) struct DyingProcess {
    /// `None` if the process is gone.
    dir: Option<File>,
    pid: u32,
    uid: u32,
}

impl DyingProcess {
    /// The process of a user with a PID.
    pub(super) fn open(pid: u32, uid: u32, check: ProcessCheck) -> DyingProcess {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(format!("/proc/{pid}"), flags, Mode::empty()).ok().map(File::from);
        let mut process = DyingProcess { dir, pid, uid };
        // A process that was killed meanwhile may have left its PID to another one.
        let status = process.text("status");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next())
        };
        let is_dumping = check == ProcessCheck::None || field("CoreDumping") == Some("1");
        if !is_dumping || field("Uid") != Some(&uid.to_string()) {
            process.dir = None;
        }
        process
    }

    /// Whether it was there.
    pub(super) fn is_found(&self) -> bool {
        self.dir.is_some()
    }

    fn text(&self, name: &str) -> String {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.dir.as_ref().and_then(|dir| openat(dir, name, flags, Mode::empty()).ok());
        let mut bytes = Vec::new();
        let _ = file.map(|file| File::from(file).take(PROC_BYTES_MAX).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn executable(&self) -> String {
        let link = self.dir.as_ref().and_then(|dir| readlinkat(dir, "exe", Vec::new()).ok());
        link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Executable, unit, container, start. `thread` is the PID of the thread that crashed.
    pub(super) fn origin(&self, thread: u32, command: &str) -> CrashOrigin {
        let executable = self.executable();
        let path = executable.strip_suffix(" (deleted)").unwrap_or(&executable);
        let program = path.rsplit('/').next().filter(|name| !name.is_empty());
        let name = self.text(&format!("task/{thread}/comm")).trim_end().to_owned();
        let mut origin = CrashOrigin {
            program: program.unwrap_or(command).to_owned(),
            executable: path.to_owned(),
            pid: self.pid,
            uid: self.uid,
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
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let memory = File::from(openat(self.dir.as_ref()?, "mem", flags, Mode::empty()).ok()?);
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

    /// Opens the files with code: they are read when the process is gone. They are those that are
    /// mapped, whatever their paths name by now.
    pub(super) fn open_files(&self, core: &CoreDump) -> BTreeMap<String, File> {
        let Some(dir) = &self.dir else { return BTreeMap::new() };
        let executable = self.executable();
        let mut files = BTreeMap::new();
        for mapping in core.mappings.iter().filter(|mapping| mapping.is_executable) {
            if files.len() == FILES_MAX {
                break;
            }
            if files.contains_key(&mapping.path) {
                continue;
            }
            let link = format!("map_files/{:x}-{:x}", mapping.range.start, mapping.range.end);
            let file = open_regular(dir, &link, OFlags::empty()).or_else(|| {
                let is_executable = mapping.path == executable;
                is_executable.then(|| open_regular(dir, "exe", OFlags::empty())).flatten()
            });
            file.and_then(|file| files.insert(mapping.path.clone(), file));
        }
        files
    }

    /// Opens the error file of the JVM, which is complete when the process aborts. The working
    /// directory may be of another user: the file has to be of the user of the process, and written
    /// while it ran until `now_ns`.
    pub(super) fn jvm_text(&self, now_ns: i64) -> Option<File> {
        let status = self.text("status");
        let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let name = format!("hs_err_pid{}.log", pids?.split_whitespace().last()?);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cwd = File::from(openat(self.dir.as_ref()?, "cwd", flags, Mode::empty()).ok()?);
        let start_ns = now_ns.checked_sub_unsigned(self.uptime_ns()?)?;
        open_own_text(&cwd, &name, self.uid, start_ns)
    }
}

/// Opens a text of a user, if it was written since a time.
fn open_own_text(dir: &File, name: &str, uid: u32, since_ns: i64) -> Option<File> {
    let file = open_regular(dir, name, OFlags::NOFOLLOW)?;
    let found = file.metadata().ok()?;
    let written_ns = found.mtime().checked_mul(1_000_000_000)?.checked_add(found.mtime_nsec())?;
    let is_own = found.uid() == uid && written_ns >= since_ns.saturating_sub(CLOCK_MARGIN_NS);
    is_own.then_some(file)
}

/// Reads an error file of the JVM.
pub(super) fn read_jvm_text(file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = file.take(JVM_TEXT_BYTES_MAX).read_to_end(&mut bytes);
    bytes
}

/// Opens a regular file for reading. Nothing else is opened: a pipe would wait for a writer, and a
/// device may do something.
fn open_regular(dir: &File, name: &str, more: OFlags) -> Option<File> {
    let place = openat(dir, name, more | OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let place = File::from(place);
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    // The same file, by its descriptor. Its owner may have a lease, which would be waited for.
    let same = Path::new("/proc/self/fd").join(place.as_raw_fd().to_string());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(same, flags, Mode::empty()).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let path = std::env::temp_dir().join(format!("topdeck-regular-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), "text").unwrap();
        symlink("file", path.join("link")).unwrap();
        symlink("/dev/zero", path.join("zero")).unwrap();
        // An open for reading would wait for a writer.
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("pipe"), 0o600.into()).unwrap();
        let dir = File::open(&path).unwrap();
        let opens = |name: &str, more| open_regular(&dir, name, more).is_some();
        assert!(opens("file", OFlags::NOFOLLOW) && opens("link", OFlags::empty()));
        for name in ["pipe", "zero", ".", "none"] {
            assert!(!opens(name, OFlags::empty()), "{name}");
        }
        assert!(!opens("link", OFlags::NOFOLLOW));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn an_error_file_is_of_the_user_and_of_this_run() {
        let path = std::env::temp_dir().join(format!("topdeck-own-text-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("hs_err"), "text").unwrap();
        symlink("hs_err", path.join("link")).unwrap();
        let (dir, found) = (File::open(&path).unwrap(), fs::metadata(path.join("hs_err")).unwrap());
        let (uid, written_ns) = (found.uid(), found.mtime() * 1_000_000_000);
        let opens = |name: &str, uid, since_ns| open_own_text(&dir, name, uid, since_ns).is_some();
        assert!(opens("hs_err", uid, written_ns - 5));
        assert!(!opens("hs_err", uid + 1, written_ns - 5));
        assert!(!opens("hs_err", uid, written_ns + 3_000_000_000));
        assert!(!opens("link", uid, 0) && !opens("none", uid, 0));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_process_that_does_not_dump_its_core_is_not_looked_at() {
        let (pid, uid) = (std::process::id(), rustix::process::getuid().as_raw());
        let process = DyingProcess::open(pid, uid, ProcessCheck::None);
        assert!(process.is_found() && !process.origin(pid, "x").executable.is_empty());
        let others = [
            DyingProcess::open(pid, uid, ProcessCheck::IsDumping),
            DyingProcess::open(pid, uid + 1, ProcessCheck::None),
            DyingProcess::open(u32::MAX, uid, ProcessCheck::None),
        ];
        for process in others {
            let origin = process.origin(pid, "command");
            assert!(!process.is_found() && process.memory().is_none());
            assert_eq!((origin.program.as_str(), origin.executable.as_str()), ("command", ""));
            assert!(process.jvm_text(i64::MAX).is_none());
        }
    }
}
