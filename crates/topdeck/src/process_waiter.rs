//! Waits for a time, the exit of a process, or ctrl-C.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shm::ProcessState;
use tokio::runtime;

use crate::background;
use inspect::find::MatchedProcess;

/// Reason of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    Timeout,
    ProcessExited,
    Interrupted,
}

/// Waits for a time, the exit of a process, or ctrl-C.
#[derive(Debug)]
pub(crate) struct ProcessWaiter {
    process: OwnedFd,
    interrupt: Arc<OwnedFd>,
}

impl ProcessWaiter {
    /// Waiter for a running process.
    pub(crate) fn new(process: &MatchedProcess) -> Result<ProcessWaiter> {
        let Some(pid) = process.running_pid() else {
            let (name, state) = (process.name(), process.state_text());
            bail!(
                "{name} is not running ({state}); `topdeck cat` and `topdeck post-mortem` show \
                 its last state"
            );
        };
        let of = i32::try_from(pid).ok().and_then(Pid::from_raw).context("BUG: a pid of 0")?;
        let reason = || format!("cannot wait for {}", process.name());
        let pidfd = pidfd_open(of, PidfdFlags::empty()).with_context(reason)?;
        // Before the pidfd was opened, the process id could have been reused.
        let metrics_file = process.attached.metrics_file();
        let is_it = |found: &shm::MetricsFile| {
            found.identity == metrics_file.identity && found.path == metrics_file.path
        };
        let runs = |found: &shm::MetricsFile| found.state == ProcessState::Running { pid };
        let listed = shm::list_metrics_files().0.into_iter().find(is_it);
        if !listed
            .or_else(|| shm::metrics_file_at(&metrics_file.path).ok())
            .is_some_and(|found| runs(&found))
        {
            bail!("{} has just exited", process.name());
        }
        let interrupt = eventfd(0, EventfdFlags::CLOEXEC).context("cannot wait")?;
        let interrupt = Arc::new(interrupt);
        let interrupt_flag = Arc::clone(&interrupt);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot wait for ctrl-C")?;
        let wait = move || {
            if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                let _ = rustix::io::write(&*interrupt_flag, &1u64.to_ne_bytes());
            }
        };
        background::spawn("signals", wait).context("cannot wait for ctrl-C")?;
        Ok(ProcessWaiter { process: pidfd, interrupt })
    }

    /// Waits until a time in nanoseconds of `clock::now`.
    pub(crate) fn wait_until(&self, due_ns: u64) -> Result<WakeReason> {
        loop {
            let left_ns = due_ns.saturating_sub(clock::now());
            let timeout = Timespec {
                tv_sec: (left_ns / 1_000_000_000) as i64,
                tv_nsec: (left_ns % 1_000_000_000) as _,
            };
            let mut ends = [
                PollFd::new(&self.process, PollFlags::IN),
                PollFd::new(&*self.interrupt, PollFlags::IN),
            ];
            match poll(&mut ends, Some(&timeout)) {
                Ok(_) if !ends[1].revents().is_empty() => return Ok(WakeReason::Interrupted),
                Ok(_) if !ends[0].revents().is_empty() => return Ok(WakeReason::ProcessExited),
                Ok(_) if clock::now() >= due_ns => return Ok(WakeReason::Timeout),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait"),
            }
        }
    }
}

/// Message for a process that exited while it was observed.
pub(crate) fn exit_message(process: &MatchedProcess) -> String {
    let name = process.name();
    let Some(of) = process.attached.reader().map(|reader| reader.process()) else {
        return format!("{name} has exited");
    };
    if of.has_exited {
        return format!("{name} exited");
    }
    let pid = of.identity.pid;
    format!("{name} terminated; `topdeck post-mortem {pid}` shows its last state")
}
