//! `topdeck hiccup`: platform stalls as an application experiences them.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use client::{print_stderr, print_stdout};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::background;
use crate::time;
use host::stalls::{DelayStats, JoinedScope, stalls_json, stalls_text};

/// Measure platform stalls as an application experiences them (like jHiccup)
///
/// An otherwise idle thread sleeps until times 1 ms apart and measures its wake-up delay: anything
/// that stops a process (hypervisor, full run queue, cgroup quota) delays this thread, too. Each
/// sample time within a stall counts with its own delay, as if a request had arrived then. Runs
/// until ctrl-C, for a duration, or as long as a command or a process runs.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Inherit the CPUs, nice value and cgroup of this process; stops when it exits
    #[arg(long, value_name = "PID", conflicts_with = "cgroup", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// Measure in this cgroup: a directory, or a path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    /// Duration of the measurement
    #[arg(long, value_name = "DURATION", value_parser = time::parse_interval)]
    duration: Option<u64>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Measure while this command runs; the report goes to standard error
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const AFTER: &str = "\
Examples:
  topdeck hiccup --duration 10s
  topdeck hiccup --pid 1234
  topdeck hiccup -- make -j8

Exit status:
  0  success
  1  process or cgroup not found, or the command could not be started
  2  usage error
  with a command: its exit status, or 128 plus the signal that terminated it";

const PERIOD_NS: u64 = 1_000_000;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let pid = options.pid.and_then(Pid::from_raw);
    // Before the command starts, so that an error does not leave it running.
    if let Some(pid) = pid {
        let process = pidfd_open(pid, PidfdFlags::empty())
            .with_context(|| format!("cannot inspect process {pid}"))?;
        let stop = Arc::clone(&stop);
        let wait = move || {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
            stop.store(true, Ordering::Relaxed);
        };
        background::spawn("end of process", wait).context("cannot wait for the process")?;
    }
    // Before joining a cgroup, so that the command stays in its own.
    let command = RunningCommand::start(&options.command)?;
    let joined = match (pid, &options.cgroup) {
        (Some(pid), _) => JoinedScope::process(pid)?,
        (None, Some(path)) => JoinedScope::cgroup(path)?,
        (None, None) => JoinedScope::empty(),
    };
    if command.is_none() {
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&stop))
                .context("cannot wait for ctrl-C")?;
        }
    }
    let wait = |mut command: RunningCommand| {
        let stop = Arc::clone(&stop);
        background::spawn("end of command", move || {
            let status = command.wait();
            stop.store(true, Ordering::Relaxed);
            status
        })
    };
    let waited = command.map(wait).transpose().context("cannot wait for the command")?;
    let stats = measure(options.duration, &stop);
    let text = match options.json {
        true => stalls_json(&stats, &joined)?,
        false => stalls_text(&stats, &joined),
    };
    let Some(waited) = waited else {
        print_stdout(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let status = waited.join().ok().context("BUG: the command was already waited for")?;
    let status = status.context("cannot wait for the command")?;
    print_stderr(&text);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

/// Running command; it is killed on drop.
struct RunningCommand {
    child: Child,
    /// Readable after a termination signal.
    signal_stream: UnixStream,
}

impl RunningCommand {
    fn start(command: &[String]) -> Result<Option<RunningCommand>> {
        let Some((program, arguments)) = command.split_first() else { return Ok(None) };
        // Ctrl-C reaches the command through the terminal. This program ignores it and exits after
        // the command.
        signal_hook::flag::register(SIGINT, Arc::default()).context("cannot wait for ctrl-C")?;
        let (signal_sockets, tell) = UnixStream::pair().context("cannot wait for SIGTERM")?;
        signal_hook::low_level::pipe::register(SIGTERM, tell).context("cannot wait for SIGTERM")?;
        let child = Command::new(program).args(arguments).spawn();
        let child = child.with_context(|| format!("cannot start {program}"))?;
        Ok(Some(RunningCommand { child, signal_stream: signal_sockets }))
    }

    /// Waits for the exit of the command. A SIGTERM, which only this program receives, is
    /// forwarded.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        let process = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        loop {
            let mut both = [
                PollFd::new(&process, PollFlags::IN),
                PollFd::new(&self.signal_stream, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let [has_ended, is_told] = both.map(|one| !one.revents().is_empty());
            if has_ended {
                return self.child.wait();
            }
            if is_told {
                let _bytes = (&self.signal_stream).read(&mut [0; 64])?;
                pidfd_send_signal(&process, Signal::TERM)?;
            }
        }
    }
}

impl Drop for RunningCommand {
    /// Kills the command if the measurement failed. Does nothing if it has exited.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(duration_ns: Option<u64>, stop: &AtomicBool) -> DelayStats {
    let mut stats = DelayStats::new(PERIOD_NS);
    let ends_ns = duration_ns.map(|duration| clock::now().saturating_add(duration));
    host::run_periodic(PERIOD_NS, stop, |woken| {
        stats.record(woken);
        if ends_ns.is_some_and(|end| woken.woken_ns >= end) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    stats
}
