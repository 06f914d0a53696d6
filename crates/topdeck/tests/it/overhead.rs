//! `topdeck doctor overhead`: it ends, has all rows and the requested number of operations, and
//! leaves nothing behind. Durations are not checked.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{TextRun, topdeck};

/// Few operations per experiment; no run ends by its time.
const SMALL: [&str; 8] =
    ["--seconds", "600", "--max-operations", "25", "--sockets", "200", "--memory", "16MiB"];

fn doctor(arguments: &[&str]) -> TextRun {
    topdeck(&[&["doctor", "overhead"], &SMALL[..], arguments].concat(), b"")
}

/// Rows of a table: observer, and the number of operations in all columns.
fn rows(out: &str) -> Vec<(&str, u64)> {
    let row = |line: &'_ str| -> Option<u64> {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(1);
        cells.take(7).map(|cell| cell.parse::<u64>().ok()).sum()
    };
    let lines = out.lines().filter(|line| line.starts_with("  "));
    lines.filter_map(|line| Some((line[2..].split("  ").next()?.trim(), row(line)?))).collect()
}

#[test]
fn every_observer_is_measured_against_the_baseline() {
    let run = doctor(&[]);
    assert!(run.stderr.starts_with("topdeck: measuring for about "), "{}", run.stderr);
    assert_eq!(run.status, 0, "{}", run.stdout);
    let expected = [
        "baseline",
        "/proc/net/unix",
        "topdeck host",
        "topdeck metrics",
        "topdeck attach",
        "baseline",
        "baseline",
        "ps auxww",
        "topdeck host",
        "topdeck metrics",
        "topdeck attach",
        "baseline",
        "baseline",
        "smaps_rollup",
        "maps",
        "status",
        "topdeck host",
        "topdeck metrics",
        "topdeck attach",
        "baseline",
        "baseline",
        "topdeck host",
        "topdeck metrics",
        "topdeck attach",
        "baseline",
    ];
    assert_eq!(rows(&run.stdout), expected.map(|name| (name, 25)), "{}", run.stdout);
    let topdecks = ["topdeck host", "topdeck metrics", "topdeck attach"];
    let others = ["/proc/net/unix", "ps auxww", "smaps_rollup", "maps", "status"];
    for reader in others.into_iter().chain(topdecks) {
        let said = run.stdout.lines().any(|line| line.starts_with(&format!("{reader}: ")));
        assert!(said, "{reader}: {}", run.stdout);
    }
    for title in
        ["\nprocesses: ", "\nmemory: ", "\nrecords: ", "Unix sockets: ", " with 200 others open\n"]
    {
        assert!(run.stdout.contains(title), "{title}: {}", run.stdout);
    }
    assert!(run.stdout.lines().last().is_some_and(|line| line.starts_with("Linux ")));
}

#[test]
fn too_few_sockets_are_reported() {
    let line = format!(
        "ulimit -n 64; exec '{}' doctor overhead --experiment sockets",
        env!("CARGO_BIN_EXE_topdeck")
    );
    let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    let why = "Unix sockets: not measured: open files limit (64, RLIMIT_NOFILE) allows 0 sockets, \
               at least 100 are required; raise it with `ulimit -n`\n";
    assert!(out.starts_with(why), "{out}");
}

#[test]
fn too_little_memory_is_reported() {
    let run = topdeck(&["doctor", "overhead", "--experiment", "memory", "--memory", "1MiB"], b"");
    assert_eq!(run.status, 1);
    assert!(run.stdout.starts_with("memory: not measured: "), "{}", run.stdout);
}

#[test]
fn invalid_durations_are_rejected() {
    for seconds in ["0", "-1", "nan", "601", "soon"] {
        let run = topdeck(&["doctor", "overhead", &format!("--seconds={seconds}")], b"");
        assert_eq!(run.status, 2, "{seconds}: {}", run.stderr);
    }
}

#[test]
fn observer_reports_its_rounds() {
    let line = ["doctor", "overhead", "--observer", "status"];
    let run = topdeck(&line, b"");
    assert_eq!(run.stdout.lines().next(), Some("ready"), "{}", run.stdout);
    let last = run.stdout.lines().last().and_then(|line| line.strip_prefix("rounds "));
    assert!(last.is_some_and(|n| n.parse::<u64>().is_ok()), "{}", run.stdout);
    let run = topdeck(&["doctor", "overhead", "--observer", "nobody"], b"");
    assert_eq!(run.stdout, "failed no such observer\n");
    // No such process: no id is that large.
    let run = topdeck(&[&line[..], &["--observer-pid", "4294967295"]].concat(), b"");
    assert!(run.stdout.starts_with("failed "), "{}", run.stdout);
}

/// Observers of a process, by their command lines.
fn observer_count(of: u32) -> usize {
    let wanted = format!("--observer-pid\0{of}\0");
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok());
    processes.filter(|line| line.contains("--observer") && line.contains(&wanted)).count()
}

#[test]
fn killed_doctor_leaves_no_observer() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["doctor", "overhead", "--experiment", "memory", "--memory", "16MiB"])
        // The baseline ends soon; the second run is killed before its end.
        .args(["--seconds", "0.5"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id();
    wait_for_observers(id, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_observers(id, 0);
}

#[track_caller]
fn wait_for_observers(of: u32, number: usize) {
    let begun = Instant::now();
    while observer_count(of) != number {
        assert!(begun.elapsed() < Duration::from_secs(60), "there are not {number} readers");
        thread::sleep(Duration::from_millis(5));
    }
}
