//! A process: the command of one request, from its start until it has ended.
//!
//! It is waited for by a descriptor that becomes readable when it has ended (pidfd_open(2), Linux 5.3), so that a worker looks at it as
//! at a connection. It has a process group of its own: what is to end early is killed with all that it started and that did not leave
//! the group, and a signal to the terminal's group does not reach it. It reads the request's body out of a file without a name, so that
//! nobody waits for anybody. What it writes is discarded, but for the end of what the first one that fails says on standard error.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, FallocateFlags, MemfdFlags, access, fallocate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process_group, pidfd_open};

use crate::codec::Ticket;
use crate::failure::Failure;
use crate::request::{Rendered, Requests};
use crate::run::Error;

/// Tells a command which request it is: 1 for the first that was due.
const NUMBER: &str = "TOPDECK_REQUEST";
/// So much is told of what a command said: the end of it, and little enough to be told whole.
const TOLD_BYTES: u64 = 240;
/// So much of what a command says is kept while it runs.
const KEPT_BYTES: u64 = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// So long a process that was killed is waited for; one that waits for a broken disk may stay for ever.
pub(crate) const REAP_NS: u64 = SECOND_NS;

/// One process.
pub(crate) struct Process {
    child: Child,
    /// Readable when it has ended.
    end: OwnedFd,
    stderr: Option<File>,
    /// Whose it is; nobody's any more, if its time was over.
    pub(crate) ticket: Option<Ticket>,
    number: u64,
    is_reaped: bool,
}

/// Why a command did not do what it should.
pub(crate) struct Ill {
    pub(crate) failure: Failure,
    pub(crate) why: String,
}

impl Process {
    /// Starts a command. `program` is where its program is, if that is known. Takes until the new process runs it.
    pub(crate) fn start(
        program: Option<&Path>,
        request: &Rendered,
        number: u64,
        ticket: Ticket,
        is_heard: bool,
    ) -> io::Result<Process> {
        let words = request.command.iter().map(|word| OsStr::from_bytes(word));
        let name = words.clone().next().unwrap_or_default();
        let mut command = Command::new(program.map_or(name, Path::as_os_str));
        command.arg0(name).args(words.skip(1)).env(NUMBER, number.to_string()).process_group(0);
        command.stdin(match request.body.is_empty() {
            true => Stdio::null(),
            false => {
                let mut file = nameless()?;
                file.write_all(&request.body)?;
                file.rewind()?;
                Stdio::from(file)
            }
        });
        // Without one it is not heard, and runs all the same.
        let stderr = if is_heard { nameless().ok() } else { None };
        command.stdout(Stdio::null()).stderr(match &stderr {
            Some(file) => Stdio::from(file.try_clone()?),
            None => Stdio::null(),
        });
        let mut child = command.spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(end) => {
                Ok(Process { child, end, stderr, ticket: Some(ticket), number, is_reaped: false })
            }
            Err(error) => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// How it ended, once it has.
    pub(crate) fn ended(&mut self) -> Option<Result<(), Ill>> {
        let ill = |failure, why| Some(Err(Ill { failure, why }));
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            // Somebody else took it: nobody knows whether all was well.
            Err(error) => {
                self.is_reaped = true;
                return ill(Failure::Exit, format!("ended, and its status is lost: {error}"));
            }
        };
        self.is_reaped = true;
        match (status.code(), status.signal()) {
            (Some(0), _) => Some(Ok(())),
            (Some(code), _) => ill(Failure::Exit, format!("ended with status {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                ill(Failure::Signal, format!("was killed by signal {signal}"))
            }
        }
    }

    /// What became of it, and the end of what it said.
    pub(crate) fn words(&self, why: &str) -> Option<String> {
        let why = format!("request {} {why}", self.number);
        let said = self.stderr.as_ref().map(said).unwrap_or_default();
        Some(if said.is_empty() { why } else { format!("{why}: {said}") })
    }

    /// Of what it said, only the end is kept.
    pub(crate) fn trim(&self) {
        let Some(file) = &self.stderr else { return };
        let length = file.metadata().map_or(0, |about| about.len());
        if length > 2 * KEPT_BYTES {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, punch, 0, length - KEPT_BYTES);
        }
    }

    /// Ends it and its group; that it has ended is told as of any.
    pub(crate) fn kill(&self) {
        // Until it was waited for, its number is its own.
        if !self.is_reaped {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

    /// Waits for its end, which is near.
    pub(crate) fn reap(&mut self, until_ns: u64) {
        if std::mem::replace(&mut self.is_reaped, true) {
            return;
        }
        let left_ns = until_ns.saturating_sub(clock::now());
        let (tv_sec, tv_nsec) = (left_ns / SECOND_NS, left_ns % SECOND_NS);
        let limit = Timespec { tv_sec: tv_sec as i64, tv_nsec: tv_nsec as i64 };
        let _ = poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&limit));
        let _ = self.child.try_wait();
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// Nothing that was started stays.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.reap(clock::now() + REAP_NS);
    }
}

impl Ill {
    /// Why a process was not started.
    pub(crate) fn start(error: &io::Error) -> Ill {
        let is_again = error.raw_os_error() == Some(Errno::AGAIN.raw_os_error());
        let failure = match Failure::of(error) {
            Failure::Resources => Failure::Resources,
            _ if is_again => Failure::Resources,
            _ => Failure::NotStarted,
        };
        Ill { failure, why: format!("it was not started: {error}") }
    }
}

/// The end of what was written to a file, on one line.
fn said(file: &File) -> String {
    let length = file.metadata().map_or(0, |about| about.len());
    let from = length.saturating_sub(TOLD_BYTES);
    let mut told = vec![0; (length - from) as usize];
    let read = file.read_at(&mut told, from).unwrap_or(0);
    let said = String::from_utf8_lossy(&told[..read]);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" / ")
}

fn nameless() -> io::Result<File> {
    Ok(File::from(memfd_create("topdeck-load", MemfdFlags::CLOEXEC)?))
}

/// Where the programs of all commands are, in the order of the set; `None` of a program whose name changes, which is looked for each
/// time. So what is missing is told before a run, and nobody looks through `PATH` during one.
pub(crate) fn programs(requests: &Requests) -> Result<Vec<Option<PathBuf>>, Error> {
    pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| Error::Pidfd(error.into()))?;
    let all = requests.all().iter().map(|request| {
        let program = request.command.first();
        let program = program.ok_or_else(|| Error::NoCommand { name: request.name.clone() })?;
        program.constant().map(|name| find(OsStr::from_bytes(&name))).transpose()
    });
    all.collect()
}

fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let wrong = |why: String| Error::Program { name: name.display().to_string(), why };
    let is_file = |path: &Path| path.is_file();
    let is_allowed = |path: &Path| access(path, Access::EXEC_OK).is_ok();
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let places: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::from(name)],
        false => std::env::split_paths(&folders).map(|folder| folder.join(name)).collect(),
    };
    // An empty name would be the folders themselves, which are no files.
    if let Some(found) = places.iter().find(|path| is_file(path) && is_allowed(path)) {
        return Ok(found.clone());
    }
    Err(wrong(match places.iter().find(|path| is_file(path)) {
        Some(found) => format!(
            "{} may not be executed: allow it with chmod +x, or name the program that reads it",
            found.display()
        ),
        None if places.len() == 1 && places[0].as_os_str() == name => {
            "there is no such file: write where it is".to_owned()
        }
        None => format!(
            "there is no such program in the folders of PATH ({}): install it, or write where it is",
            folders.display()
        ),
    }))
}
