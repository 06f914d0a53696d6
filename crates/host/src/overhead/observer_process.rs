//! Observer process: parent and child side.
//!
//! The observer writes lines to its standard output: `note TEXT` any number of times, then `ready`
//! after its first round, and `rounds N` after the end of its standard input with the number of
//! rounds since; or `failed TEXT`. Its standard input ends when this process exits for any reason.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::observer::{self, ObserverSpec};
use render::text::escape_control;

/// Timeout of the first round.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a round in progress at the end: reading a process may block as long as that process
/// is blocked.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Running observer.
pub(crate) struct ObserverProcess {
    child: Child,
    out: BufReader<ChildStdout>,
    pub(crate) warnings: Vec<String>,
}

impl ObserverProcess {
    /// Starts an observer of this process and waits for its first round.
    pub(crate) fn start(reader: &ObserverSpec) -> Result<ObserverProcess, String> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("topdeck").args(["doctor", "overhead", "--observer", reader.name]);
        command.args(["--observer-pid", &std::process::id().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start the observer: {error}"))?;
        let out = BufReader::new(child.stdout.take().expect("BUG: stdout was asked for"));
        let mut observer = ObserverProcess { child, out, warnings: Vec::new() };
        loop {
            let line = observer.read_line(READY_TIMEOUT)?;
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("note", text) => observer.warnings.push(text.to_owned()),
                ("ready", _) => return Ok(observer),
                ("failed", text) => return Err(text.to_owned()),
                _ => return Err("the observer exited before its first round".to_owned()),
            }
        }
    }

    /// Stops the observer; returns the number of rounds.
    pub(crate) fn stop(mut self) -> Result<u64, String> {
        drop(self.child.stdin.take());
        let line = self.read_line(EXIT_TIMEOUT * 2)?;
        match line.split_once(' ') {
            Some(("rounds", number)) => {
                number.parse().map_err(|_| format!("unexpected output of the observer: {line:?}"))
            }
            Some(("failed", text)) => Err(text.to_owned()),
            _ => Err("the observer exited early".to_owned()),
        }
    }

    /// Next line; empty at the end.
    fn read_line(&mut self, most: Duration) -> Result<String, String> {
        let read_error = |error: io::Error| format!("cannot read from the observer: {error}");
        if self.out.buffer().is_empty() {
            let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: 0 };
            let mut fds = [PollFd::new(self.out.get_ref(), PollFlags::IN)];
            if poll(&mut fds, Some(&most)).map_err(|error| read_error(error.into()))? == 0 {
                return Err(format!("no output of the observer for {} s", most.tv_sec));
            }
        }
        let mut line = String::new();
        self.out.read_line(&mut line).map_err(read_error)?;
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

impl Drop for ObserverProcess {
    fn drop(&mut self) {
        // Killing fails if it exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs as an observer, and prints the number of rounds at the end of standard input. `spawn` runs
/// a function on a background thread.
pub fn run_as_observer(
    name: &str,
    pid: u32,
    start_thread: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
) -> io::Result<()> {
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    start_thread(stop_on_stdin_end(Arc::clone(&stop), Arc::clone(&rounds)))?;
    let last_line = match run_rounds(name, pid, &stop, &rounds) {
        Ok(()) => format!("rounds {}", rounds.load(Ordering::Relaxed)),
        Err(error) => format!("failed {}", escape_control(&error.to_string())),
    };
    print_line(&last_line)
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

/// Waits for the end of standard input, then exits the process if it does not exit itself.
fn stop_on_stdin_end(stop: Arc<AtomicBool>, rounds: Arc<AtomicU64>) -> Box<dyn FnOnce() + Send> {
    Box::new(move || {
        let mut bytes = [0; 64];
        while io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
        stop.store(true, Ordering::Relaxed);
        thread::sleep(EXIT_TIMEOUT);
        let _ = print_line(&format!("rounds {}", rounds.load(Ordering::Relaxed)));
        std::process::exit(0);
    })
}

fn print_line(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush())
}
