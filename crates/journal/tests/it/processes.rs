//! Real processes for these tests: this binary starts itself with the name of a role, and the
//! parent may kill, stop or wait for the child. A child ends with its parent, however that ends.
//! Also temporary directories and random numbers.
//!
//! Directories are in the build directory, which is on a real disk where `/tmp` may not be; or
//! among temporary files if this user cannot write there.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use disk::OsDisk;
use journal::*;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

const ROLE_VARIABLE: &str = "TOPDECK_JOURNAL_PART";

/// Prefix of a child's lines, to distinguish them from the test harness.
const LINE: &str = "child: ";

/// A temporary directory, removed at the end.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new(name: &str) -> TestDir {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut places = vec![std::env::temp_dir(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))];
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let place = places.last().expect("a place");
            let path = place.join(format!("topdeck-{name}-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return TestDir(path),
                // Left by another process with the same id.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if places.len() == 1 => panic!("{}: {error}", path.display()),
                Err(_) => drop(places.pop()),
            }
        }
    }

    /// Journal directory; the test's own files are beside it.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("j")
    }

    pub(crate) fn create(&self, settings: &Settings) {
        Journal::create(&OsDisk, &self.journal(), random_id(), 0, settings).unwrap();
    }

    pub(crate) fn open(&self) -> Journal {
        open(&self.journal(), &Options::default()).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(dir: &Path, options: &Options) -> Result<Journal> {
    Journal::open(Arc::new(OsDisk), dir, options)
}

/// No limits, so that nothing is dropped, and sizes at which every event is frequent.
pub(crate) fn sizes(buffer_bytes: u64, segment_bytes: u64) -> Settings {
    let limits = Limits { bytes_max: None, age_max: None, on_full: LimitPolicy::Reject };
    Settings { buffer_bytes, segment_bytes, limits, ..Settings::default() }
}

/// xorshift64*: the same sequence for the same seed.
pub(crate) struct Xorshift64(u64);

impl Xorshift64 {
    pub(crate) fn new(seed: u64) -> Xorshift64 {
        Xorshift64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn micros(&mut self, end: u64) -> Duration {
        Duration::from_micros(self.below(end))
    }
}

/// Waits until a condition holds; returns the duration. Fails instead of waiting forever.
#[track_caller]
pub(crate) fn wait_for(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(seconds), "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(1));
    }
    since.elapsed()
}

/// A counter in a file that one process sets and others read: it outlives its process.
pub(crate) struct SharedCounter(fs::File);

impl SharedCounter {
    pub(crate) fn at(path: &Path) -> SharedCounter {
        let mut options = fs::File::options();
        SharedCounter(
            options.read(true).write(true).create(true).truncate(false).open(path).unwrap(),
        )
    }

    pub(crate) fn get(&self) -> u64 {
        let mut bytes = [0; 8];
        match self.0.read_at(&mut bytes, 0).unwrap() {
            8 => u64::from_le_bytes(bytes),
            _ => 0,
        }
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.write_all_at(&value.to_le_bytes(), 0).unwrap();
    }
}

/// A child process with a role.
pub(crate) struct ChildProcess {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    is_stopped: bool,
}

impl ChildProcess {
    /// Starts a child; `part` and arguments must not contain line breaks.
    pub(crate) fn start(part: &str, arguments: &[&str]) -> ChildProcess {
        ChildProcess::start_with(&[], part, arguments)
    }

    /// The same, under another command (`strace -o …`).
    pub(crate) fn start_with(before: &[&str], part: &str, arguments: &[&str]) -> ChildProcess {
        let exe = std::env::current_exe().unwrap();
        let words: Vec<_> =
            before.iter().map(std::ffi::OsStr::new).chain([exe.as_os_str()]).collect();
        let mut process = Command::new(words[0])
            .args(&words[1..])
            .args(["--exact", "processes::child_main", "--nocapture", "--test-threads=1"])
            .env(ROLE_VARIABLE, [&[part], arguments].concat().join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        ChildProcess { stdin: process.stdin.take(), process, stdout, is_stopped: false }
    }

    /// The child's next line; empty after it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            // The harness writes no line break before the first line.
            if let Some((_, said)) = line.split_once(LINE) {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        String::new()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, expected: &str) {
        assert_eq!(self.line(), expected);
    }

    /// Sends a line to the child.
    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("BUG: its input was closed");
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// `kill -9`; the child has ended on return.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops the child (SIGSTOP) or continues it. On return all its threads are stopped, or the
    /// signal to continue is sent.
    pub(crate) fn stop(&mut self, stop: bool) {
        self.is_stopped = stop;
        let pid = Pid::from_child(&self.process);
        kill_process(pid, if stop { Signal::STOP } else { Signal::CONT }).unwrap();
        if stop {
            // Signals are delivered asynchronously.
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "{status:?}");
        }
    }

    /// Waits for a successful exit.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "a child failed: {rest}");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reports that a test was skipped and why: skipped is not passed.
pub(crate) fn report_skipped(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}

/// Sends a line to the parent.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{LINE}{line}").unwrap();
    out.flush().unwrap();
}

/// Arguments of a role.
pub(crate) struct ChildArguments {
    pub(crate) arguments: Vec<String>,
    /// Lines from the parent.
    pub(crate) lines: std::sync::mpsc::Receiver<String>,
}

impl ChildArguments {
    pub(crate) fn path(&self, index: usize) -> &Path {
        Path::new(&self.arguments[index])
    }

    pub(crate) fn number(&self, index: usize) -> u64 {
        self.arguments[index].parse().unwrap()
    }

    /// Waits for a line from the parent.
    pub(crate) fn receive_line(&self) -> String {
        self.lines.recv().unwrap_or_default()
    }
}

/// Entry point of child processes, not a test. Without a role it passes.
#[test]
fn child_main() {
    let Ok(text) = std::env::var(ROLE_VARIABLE) else { return };
    let mut words = text.split('\n').map(str::to_owned);
    let part = words.next().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        // The parent is gone: the exit status is not used.
        std::process::exit(1);
    });
    let part_of = crate::PARTS.iter().find(|(name, _)| *name == part);
    part_of.unwrap_or_else(|| panic!("no part is named {part}")).1(ChildArguments {
        arguments: words.collect(),
        lines,
    });
}
