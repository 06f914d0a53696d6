//! An append at level `process` is memory: system calls are counted, by strace, which not every machine has.

use std::fs;
use std::process::{Command, Stdio};

use journal::*;

use crate::processes::{Child, Folder, Part, open, say, skipped};

const APPENDS: u64 = 100_000;

/// The part of the one who is counted: between two words of it, all it does is to append.
pub(crate) fn counted(part: Part) {
    let journal = open(part.path(0), &Options::default()).unwrap();
    let record = [b'x'; 100];
    let append = || {
        let _ = journal.append(&record, Level::Process).unwrap();
    };
    append();
    part.hear();
    say(&format!("begin {}", rustix::thread::gettid().as_raw_nonzero()));
    (0..APPENDS).for_each(|_| append());
    say("end");
}

/// System calls of the appending thread for one append, with so many other processes that have it open.
fn count(others: usize) -> Option<f64> {
    let strace =
        Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        skipped("counting system calls", "there is no strace");
        return None;
    }
    let folder = Folder::new("syscalls");
    // Large enough that nobody waits for strace, which slows the thread that writes.
    folder.create(&Settings { buffer_bytes: 32 << 20, ..Settings::default() });
    let others: Vec<Journal> = (0..others).map(|_| folder.open()).collect();
    let (journal, log) = (folder.journal(), folder.0.join("log"));
    let before = ["strace", "-f", "-o", log.to_str().unwrap()];
    let mut child = Child::start_with(&before, "counted", &[journal.to_str().unwrap()]);
    child.tell("go");
    let begin = child.line();
    let Some(thread) = begin.strip_prefix("begin ") else {
        skipped("counting system calls", "strace may not trace here");
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
fn an_append_makes_no_system_call_when_others_have_the_journal_open_too() {
    check(2, 0.01);
}
