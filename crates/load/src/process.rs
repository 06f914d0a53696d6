//! The process of a command, from start to exit.
//!
//! The worker polls a pidfd (pidfd_open(2), Linux 5.3) like a connection. Each process has its own
//! process group: killing the group also ends its descendants, unless they left the group, and
//! signals to the terminal's group do not reach it. The body is passed as an anonymous file, so
//! that no pipe can block. Output is discarded, except for the end of standard error of the first
//! failing process.

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

use crate::codec::RequestId;
use crate::error::Error;
use crate::failure::Failure;
use crate::rendered_request::RenderedRequest;
use crate::request::Requests;

/// Environment variable with the sequence number of the request, from 1.
const REQUEST_NUMBER_VARIABLE: &str = "TOPDECK_REQUEST";
/// Bytes of standard error in a report: the end of the output, short enough to be shown whole.
const REPORTED_OUTPUT_BYTES: u64 = 240;
/// Bytes of standard error retained while a process runs.
const RETAINED_OUTPUT_BYTES: u64 = 64 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Wait for killed processes. A process blocked on a broken disk may never exit.
pub(crate) const REAP_DEADLINE_NS: u64 = SECOND_NS;

/// One process.
pub(crate) struct Process {
    child: Child,
    /// The pidfd: readable after exit.
    end: OwnedFd,
    stderr: Option<File>,
    /// Its request, until that times out.
    pub(crate) request_id: Option<RequestId>,
    number: u64,
    is_reaped: bool,
}

/// A failed command.
pub(crate) struct CommandFailure {
    pub(crate) failure: Failure,
    pub(crate) cause: String,
}

impl Process {
    /// Starts a command; `program` is its resolved path, if known. Blocks until the new process
    /// executes the program.
    pub(crate) fn start(
        program: Option<&Path>,
        request: &RenderedRequest,
        number: u64,
        request_id: RequestId,
        captures_stderr: bool,
    ) -> io::Result<Process> {
        let words = request.command.iter().map(|word| OsStr::from_bytes(word));
        let name = words.clone().next().unwrap_or_default();
        let mut command = Command::new(program.map_or(name, Path::as_os_str));
        command
            .arg0(name)
            .args(words.skip(1))
            .env(REQUEST_NUMBER_VARIABLE, number.to_string())
            .process_group(0);
        command.stdin(match request.body.is_empty() {
            true => Stdio::null(),
            false => {
                let mut file = anonymous_file()?;
                file.write_all(&request.body)?;
                file.rewind()?;
                Stdio::from(file)
            }
        });
        // Without the file the output is lost, and the command runs all the same.
        let stderr = if captures_stderr { anonymous_file().ok() } else { None };
        command.stdout(Stdio::null()).stderr(match &stderr {
            Some(file) => Stdio::from(file.try_clone()?),
            None => Stdio::null(),
        });
        let mut child = command.spawn()?;
        match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
            Ok(end) => Ok(Process {
                child,
                end,
                stderr,
                request_id: Some(request_id),
                number,
                is_reaped: false,
            }),
            Err(error) => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                Err(error.into())
            }
        }
    }

    /// Returns the result once the process has exited.
    pub(crate) fn poll_exit(&mut self) -> Option<Result<(), CommandFailure>> {
        let failure = |failure, cause| Some(Err(CommandFailure { failure, cause }));
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status,
            // The status was reaped elsewhere, so success is unknown.
            Err(error) => {
                self.is_reaped = true;
                return failure(Failure::Exit, format!("exited with unknown status: {error}"));
            }
        };
        self.is_reaped = true;
        match (status.code(), status.signal()) {
            (Some(0), _) => Some(Ok(())),
            (Some(code), _) => failure(Failure::Exit, format!("exited with status {code}")),
            (None, signal) => {
                let signal = signal.unwrap_or(0);
                failure(Failure::Signal, format!("was killed by signal {signal}"))
            }
        }
    }

    /// Describes the failure, with the end of standard error.
    pub(crate) fn error_detail(&self, cause: &str) -> Option<String> {
        let cause = format!("request {} {cause}", self.number);
        let output = self.stderr.as_ref().map(output).unwrap_or_default();
        Some(if output.is_empty() { cause } else { format!("{cause}: {output}") })
    }

    /// Drops all but the end of the output.
    pub(crate) fn truncate_output(&self) {
        let Some(file) = &self.stderr else { return };
        let length = file.metadata().map_or(0, |about| about.len());
        if length > 2 * RETAINED_OUTPUT_BYTES {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(file, punch, 0, length - RETAINED_OUTPUT_BYTES);
        }
    }

    /// Kills the process group. The exit is reported as usual.
    pub(crate) fn kill(&self) {
        // The PID cannot be reused before the process is reaped.
        if !self.is_reaped {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

    /// Waits for an imminent exit.
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

/// No started process may survive the run.
impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        self.reap(clock::now() + REAP_DEADLINE_NS);
    }
}

impl CommandFailure {
    /// Classifies a failed start.
    pub(crate) fn start(error: &io::Error) -> CommandFailure {
        let is_again = error.raw_os_error() == Some(Errno::AGAIN.raw_os_error());
        let failure = match Failure::of(error) {
            Failure::Resources => Failure::Resources,
            _ if is_again => Failure::Resources,
            _ => Failure::NotStarted,
        };
        CommandFailure { failure, cause: format!("cannot start the process: {error}") }
    }
}

/// The end of the output, on one line.
fn output(file: &File) -> String {
    let length = file.metadata().map_or(0, |about| about.len());
    let from = length.saturating_sub(REPORTED_OUTPUT_BYTES);
    let mut output = vec![0; (length - from) as usize];
    let read = file.read_at(&mut output, from).unwrap_or(0);
    let output = String::from_utf8_lossy(&output[..read]);
    let lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" / ")
}

fn anonymous_file() -> io::Result<File> {
    Ok(File::from(memfd_create("topdeck-load", MemfdFlags::CLOEXEC)?))
}

/// Resolves the programs of all commands, in order of the requests; `None` if the name contains a
/// variable. So missing programs are reported before the run, and no worker searches `PATH` during
/// it.
pub(crate) fn resolve_programs(requests: &Requests) -> Result<Vec<Option<PathBuf>>, Error> {
    pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| Error::Pidfd(error.into()))?;
    let all = requests.iter().map(|request| {
        let program = request.command.first();
        let program = program.ok_or_else(|| Error::NoCommand { name: request.name.clone() })?;
        program.constant().map(|name| find(OsStr::from_bytes(&name))).transpose()
    });
    all.collect()
}

fn find(name: &OsStr) -> Result<PathBuf, Error> {
    let wrong = |cause: String| Error::Program { name: name.display().to_string(), cause };
    let is_file = |path: &Path| path.is_file();
    let is_allowed = |path: &Path| access(path, Access::EXEC_OK).is_ok();
    let dirs = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let candidates: Vec<PathBuf> = match name.as_bytes().contains(&b'/') {
        true => vec![PathBuf::from(name)],
        false => std::env::split_paths(&dirs).map(|dir| dir.join(name)).collect(),
    };
    // An empty name would match the directories themselves, which are no files.
    if let Some(found) = candidates.iter().find(|path| is_file(path) && is_allowed(path)) {
        return Ok(found.clone());
    }
    Err(wrong(match candidates.iter().find(|path| is_file(path)) {
        Some(found) => format!(
            "{} is not executable; set its mode with chmod +x, or give the interpreter as the \
             program",
            found.display()
        ),
        None if candidates.len() == 1 && candidates[0].as_os_str() == name => {
            "no such file; give its path".to_owned()
        }
        None => format!("not found in PATH ({}); install it, or give its path", dirs.display()),
    }))
}
