//! Real processes for the tests of this folder: this binary starts itself with the name of a part
//! to play, and whoever started it may kill, stop or wait for it. A child ends with its parent,
//! however that ends. Also the folders and the random numbers of these tests.
//!
//! Folders are in the build's own, which is on a real disk where `/tmp` may not be; among temporary
//! files where that is closed to this user.

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

/// What a child begins its lines with, so that they are told from the test harness's.
const LINE: &str = "child: ";

/// A folder of its own that is removed in the end.
pub(crate) struct TestFolder(pub(crate) PathBuf);

impl TestFolder {
    pub(crate) fn new(name: &str) -> TestFolder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut places = vec![std::env::temp_dir(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))];
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let place = places.last().expect("a place");
            let path = place.join(format!("topdeck-{name}-{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return TestFolder(path),
                // Left by another process of that number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) if places.len() == 1 => panic!("{}: {error}", path.display()),
                Err(_) => drop(places.pop()),
            }
        }
    }

    /// Where the journal is; beside it there is room for what the test notes.
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

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn open(dir: &Path, options: &Options) -> Result<Journal> {
    Journal::open(Arc::new(OsDisk), dir, options)
}

/// No limits, so that nothing is dropped, and sizes at which everything happens often.
pub(crate) fn sizes(buffer_bytes: u64, segment_bytes: u64) -> Settings {
    let limits = Limits { bytes_max: None, age_max: None, on_full: LimitPolicy::Reject };
    Settings { buffer_bytes, segment_bytes, limits, ..Settings::default() }
}

/// xorshift64*: the same numbers for the same seed.
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

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub(crate) fn micros(&mut self, end: u64) -> Duration {
        Duration::from_micros(self.below(end))
    }
}

/// Waits until something holds; how long it took. A test that waits for ever says nothing.
#[track_caller]
pub(crate) fn wait_for(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) -> Duration {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(seconds), "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(1));
    }
    since.elapsed()
}

/// A number that one process sets and others read, in a file: it outlives its process.
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

/// A process that plays a part.
pub(crate) struct ChildProcess {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    is_stopped: bool,
}

impl ChildProcess {
    /// Starts one; `part` and its arguments, of which none has a line break.
    pub(crate) fn start(part: &str, arguments: &[&str]) -> ChildProcess {
        ChildProcess::start_with(&[], part, arguments)
    }

    /// The same, behind another command (`strace -o …`).
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

    /// The next line that the child said; empty when it has ended.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            // The harness writes no line break before the part's first line.
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

    /// Says something to it.
    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("BUG: its input was closed");
        writeln!(stdin, "{line}").unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// `kill -9`; it is gone on return.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops it where it is (SIGSTOP), or lets it go on. On return no thread of it runs any more,
    /// or the signal to go on is sent.
    pub(crate) fn stop(&mut self, stop: bool) {
        self.is_stopped = stop;
        let pid = Pid::from_child(&self.process);
        kill_process(pid, if stop { Signal::STOP } else { Signal::CONT }).unwrap();
        if stop {
            // A signal that was sent is not yet one that was taken.
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "{status:?}");
        }
    }

    /// Waits until it ends by itself, well.
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

/// Says that a test could not run, and why: skipped is not passed.
pub(crate) fn report_skipped(what: &str, why: &str) {
    println!("skipped: {what}: {why}");
}

/// Says something to the parent.
pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{LINE}{line}").unwrap();
    out.flush().unwrap();
}

/// What a part is given.
pub(crate) struct ChildArguments {
    pub(crate) arguments: Vec<String>,
    /// What the parent says.
    pub(crate) lines: std::sync::mpsc::Receiver<String>,
}

impl ChildArguments {
    pub(crate) fn path(&self, index: usize) -> &Path {
        Path::new(&self.arguments[index])
    }

    pub(crate) fn number(&self, index: usize) -> u64 {
        self.arguments[index].parse().unwrap()
    }

    /// Waits for a word from the parent.
    pub(crate) fn receive_line(&self) -> String {
        self.lines.recv().unwrap_or_default()
    }
}

/// Not a test of its own: what children run. Without a part to play it passes.
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
        // The parent is gone: nobody wants to know how it ends.
        std::process::exit(1);
    });
    let part_of = crate::PARTS.iter().find(|(name, _)| *name == part);
    part_of.unwrap_or_else(|| panic!("no part is named {part}")).1(ChildArguments {
        arguments: words.collect(),
        lines,
    });
}
