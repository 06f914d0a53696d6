//! `topdeck hiccup`: stalls of the platform, as an application would feel them.

mod join;
mod report;
mod seen;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::command::print;
use crate::processes::moment;
use join::Joined;
use seen::Seen;

/// Measure stalls of the platform, as an application would feel them
///
/// A thread that has nothing else to do sleeps until moments that are 1 ms apart, and measures how late it wakes up: whatever stops a
/// process (a hypervisor, a full run queue, a quota of its cgroup) stops this one too. Of a stall each moment counts that falls into
/// it, with its own wait, as if a request had come then. Goes on until ctrl-C, or for a while, or as long as a command or a process.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// As this process would feel it: on its processors, with its nice value, in its cgroup; until it ends
    #[arg(long, value_name = "PID", conflicts_with = "cgroup", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,

    /// As a process of this cgroup would feel it: a folder, or its path as /proc/PID/cgroup has it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    /// For so long
    #[arg(long, value_name = "LENGTH", value_parser = moment::length)]
    duration: Option<u64>,

    /// JSON instead of text
    #[arg(long)]
    json: bool,

    /// As long as this command runs, which is not moved anywhere; the report goes to standard error
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

const AFTER: &str = "\
Examples:
  topdeck hiccup --duration 10s
  topdeck hiccup --pid 1234
  topdeck hiccup -- make -j8

Exit status:
  0  it was measured
  1  there is no such process or cgroup, or the command could not be started
  2  the command line makes no sense
  of a command: its own, or 128 and the signal that ended it";

const PERIOD_NS: u64 = 1_000_000;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    let pid = options.pid.and_then(Pid::from_raw);
    // Before anything is joined, so that the command is where it would be without this.
    let command = start(&options.command)?;
    if let Some(pid) = pid {
        let process = pidfd_open(pid, PidfdFlags::empty())
            .with_context(|| format!("process {pid} cannot be looked at"))?;
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], None);
            stop.store(true, Ordering::Relaxed);
        });
    }
    let joined = match (pid, &options.cgroup) {
        (Some(pid), _) => Joined::process(pid)?,
        (None, Some(path)) => Joined::cgroup(path)?,
        (None, None) => Joined::nothing(),
    };
    let waited = command.map(|mut child| {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let status = child.wait();
            stop.store(true, Ordering::Relaxed);
            status
        })
    });
    // Of a command ctrl-C is the end, too: it gets the signal as this program does.
    let interrupted = if waited.is_some() { Arc::default() } else { Arc::clone(&stop) };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))
            .context("cannot wait for ctrl-C")?;
    }
    let seen = measure(options.duration, &stop);
    let text = match options.json {
        true => report::json(&seen, &joined)?,
        false => report::text(&seen, &joined),
    };
    let Some(waited) = waited else {
        print(text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let status = waited.join().ok().context("BUG: nobody waited for the command")?;
    let status = status.context("cannot wait for the command")?;
    eprint!("{text}");
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
}

fn start(command: &[String]) -> Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    child.map(Some).with_context(|| format!("{program} cannot be started"))
}

fn measure(duration_ns: Option<u64>, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::new(PERIOD_NS);
    let ends_ns = duration_ns.map(|duration| clock::now().saturating_add(duration));
    host::watch(PERIOD_NS, stop, |woken| {
        seen.record(woken);
        if ends_ns.is_some_and(|end| woken.at_ns >= end) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    seen
}
