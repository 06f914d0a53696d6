//! An append at level `process` is a memory operation: strace, where available, counts the system
//! calls.

use std::fs;
use std::process::{Command, Stdio};

use journal::*;

use crate::processes::{ChildArguments, ChildProcess, TestDir, open, print_line, report_skipped};

const APPENDS: u64 = 100_000;

/// Role of the counted process: between two commands it only appends.
pub(crate) fn counted_appender(part: ChildArguments) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let record = [b'x'; 100];
    let append = || {
        let _ = journal.append(&record, Level::Process).unwrap();
    };
    append();
    part.receive_line();
    print_line(&format!("begin {}", rustix::thread::gettid().as_raw_nonzero()));
    (0..APPENDS).for_each(|_| append());
    print_line("end");
}

/// System calls of the appending thread per append, with this many other processes attached.
fn count(others: usize) -> Option<f64> {
    let strace =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        report_skipped("counting system calls", "there is no strace");
        return None;
    }
    let dir = TestDir::new("syscalls");
    // Large enough that nothing waits for the writing thread, which strace slows down.
    dir.create(&Settings { buffer_bytes: 32 << 20, ..Settings::default() });
    let others: Vec<Journal> = (0..others).map(|_| dir.open()).collect();
    let (journal, log) = (dir.journal(), dir.0.join("log"));
    let before = ["strace", "-f", "-o", log.to_str().unwrap()];
    let mut child = ChildProcess::start_with(&before, "counted", &[journal.to_str().unwrap()]);
    child.send_line("go");
    let begin = child.line();
    let Some(thread) = begin.strip_prefix("begin ") else {
        report_skipped("counting system calls", "strace may not trace here");
        return None;
    };
    child.expect("end");
    child.finish();
    drop(others);
    let log = fs::read_to_string(&log).unwrap();
    let calls = log
        .lines()
        .filter(|line| line.strip_prefix(thread).is_some_and(|rest| rest.starts_with(' ')))
        .skip_while(|line| !line.contains("child: begin"))
        .skip(1)
        .take_while(|line| !line.contains("child: end"))
        .count();
    println!("{calls} system calls in {APPENDS} appends, {thread}");
    Some(calls as f64 / APPENDS as f64)
}

#[track_caller]
fn check(others: usize, most: f64) {
    if let Some(found) = count(others) {
        assert!(found < most, "{found} system calls per append");
    }
}

#[test]
fn an_append_makes_no_system_call() {
    check(0, 0.01);
}

#[test]
fn append_makes_no_system_call_with_other_handles() {
    check(2, 0.01);
}
