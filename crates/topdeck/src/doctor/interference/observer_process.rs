//! Observer process: parent and child side.
//!
//! The reader says on its standard output, a line each: `note TEXT` any number of times, then
//! `ready` after it came round once, and, when its standard input has ended, `rounds N` for the
//! times since; or `failed TEXT`. Its input ends when this process does, however it ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::observer::{self, ObserverSpec};
use crate::background;
use render::text::escape_control;

/// How long a reader may take for its first round.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a round that is under way may take at the end: reading of a process may hang where that
/// process does.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A reader at work.
pub(crate) struct ObserverProcess {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) warnings: Vec<String>,
}

impl ObserverProcess {
    /// Starts a reader that reads this process, and waits until it came round once.
    pub(crate) fn start(reader: &ObserverSpec) -> Result<ObserverProcess, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("topdeck").args(["doctor", "interference", "--observer", reader.name]);
        command.args(["--observer-pid", &std::process::id().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let out = BufReader::new(child.stdout.take().expect("BUG: stdout was asked for"));
        let mut beside = ObserverProcess { child, out, warnings: Vec::new() };
        loop {
            let line = beside.read_line(READY_TIMEOUT)?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("note", text) => beside.warnings.push(text.to_owned()),
                ("ready", _) => return Ok(beside),
                ("failed", text) => return Err(text.to_owned()),
                _ => return Err("it ended before it had read anything".to_owned()),
            }
        }
    }

    /// Ends it. How often it came round.
    pub(crate) fn stop(mut self) -> Result<u64, String> {
        drop(self.child.stdin.take());
        let line = self.read_line(EXIT_TIMEOUT * 2)?;
        match line.split_once(' ') {
            Some(("rounds", number)) => number.parse().map_err(|_| format!("it said {line:?}")),
            Some(("failed", text)) => Err(text.to_owned()),
            _ => Err("it ended early".to_owned()),
        }
    }

    /// The next line; empty at the end.
    fn read_line(&mut self, most: Duration) -> Result<String, String> {
        let told = |error: io::Error| format!("cannot hear it: {error}");
        if self.out.buffer().is_empty() {
            let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: 0 };
            let mut fds = [PollFd::new(self.out.get_ref(), PollFlags::IN)];
            if poll(&mut fds, Some(&most)).map_err(|error| told(error.into()))? == 0 {
                return Err(format!("it said nothing for {} s", most.tv_sec));
            }
        }
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(told)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Drop for ObserverProcess {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and is only waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is a reader, until standard input ends.
pub(crate) fn run_as_observer(name: &str, pid: u32) -> Result<ExitCode> {
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    stop_on_stdin_end(Arc::clone(&stop), Arc::clone(&rounds))?;
    let told = match run_rounds(name, pid, &stop, &rounds) {
        Ok(()) => format!("rounds {}", rounds.load(Ordering::Relaxed)),
        Err(error) => format!("failed {}", escape_control(&error.to_string())),
    };
    print_line(&told)?;
    Ok(ExitCode::SUCCESS)
}

fn run_rounds(name: &str, pid: u32, stop: &AtomicBool, rounds: &AtomicU64) -> io::Result<()> {
    let mut notes = Vec::new();
    let mut round = observer::open_observer(name, pid, &mut notes)?;
    while round()? == 0 && !stop.load(Ordering::Relaxed) {}
    let notes: String =
        notes.iter().map(|note| format!("note {}\n", escape_control(note))).collect();
    print_line(&format!("{notes}ready"))?;
    while !stop.load(Ordering::Relaxed) {
        rounds.fetch_add(round()?, Ordering::Relaxed);
    }
    Ok(())
}

/// Waits for the end of standard input on a thread, and ends this process if it does not do so
/// itself.
fn stop_on_stdin_end(stop: Arc<AtomicBool>, rounds: Arc<AtomicU64>) -> io::Result<()> {
    let wait = move || {
        let mut bytes = [0; 64];
        while io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
        stop.store(true, Ordering::Relaxed);
        thread::sleep(EXIT_TIMEOUT);
        let _ = print_line(&format!("rounds {}", rounds.load(Ordering::Relaxed)));
        std::process::exit(0);
    };
    background::spawn("end of input", wait).map(drop)
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())
}
