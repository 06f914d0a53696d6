//! `topdeck hiccup`: a stall that is known is found again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::topdeck;

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

#[test]
fn a_stall_counts_with_each_moment_in_it() {
    let child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["hiccup", "--duration", "1500ms", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    signal("-STOP", child.id());
    thread::sleep(Duration::from_millis(300));
    signal("-CONT", child.id());
    let output = child.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!((&found["schema"], &found["whose"]), (&1.into(), &"this host".into()));
    assert!(number(&found["max_ns"]) >= 290e6, "{found}");
    let above_100_ms = &found["stalls"][2];
    assert!(above_100_ms["longer_than_ns"] == 100_000_000 && number(&above_100_ms["count"]) >= 1.0);
    assert!(number(&found["longest"][0]["late_ns"]) >= 290e6);
    // One for each millisecond, also of those in which it was stopped.
    let (moments, length_ms) = (number(&found["moments"]), number(&found["length_ns"]) * 1e-6);
    assert!(length_ms >= 1_490.0 && (moments - length_ms).abs() <= 2.0, "{moments} {length_ms}");
    // 300 of 1,500 moments fall into it: p90 is within.
    let p90 = found["quantiles"].as_array().unwrap().iter().find(|one| one["q"] == 0.9).unwrap();
    assert!(number(&p90["ns"]) >= 130e6, "{found}");
    let rows = found["rows"].as_array().unwrap().iter().map(|row| number(&row["moments"]));
    assert_eq!(rows.sum::<f64>(), moments);
}

#[test]
fn a_command_is_measured_for_as_long_as_it_runs() {
    let run = topdeck(&["hiccup", "--", "sh", "-c", "echo said; sleep 0.2; exit 7"], b"");
    assert_eq!((run.stdout.as_str(), run.status), ("said\n", 7));
    assert!(run.stderr.starts_with("hiccups of this host: "), "{}", run.stderr);
    for part in ["how late", "p99 ", "max ", "longer than 1.000 ms", "over time"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let run = topdeck(&["hiccup", "--", "/no/such/program"], b"");
    assert_eq!((run.stdout.as_str(), run.status), ("", 1));
    assert!(run.stderr.contains("/no/such/program cannot be started"), "{}", run.stderr);
}

/// The report is lost, the exit status is not.
#[test]
fn a_command_ends_as_it_would_where_nobody_can_be_told() {
    let script =
        format!("exec {} hiccup -- sh -c 'exit 7' 2>/dev/full", env!("CARGO_BIN_EXE_topdeck"));
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

/// It is not left behind.
#[test]
fn a_command_ends_where_nothing_can_be_measured() {
    let folder = crate::serve::deck::Folder::new();
    let said = folder.path("said");
    let command = format!("sleep 2; echo > {}", said.display());
    // Who holds standard output open is waited for.
    let run = topdeck(&["hiccup", "--cgroup", "/no/such/cgroup", "--", "sh", "-c", &command], b"");
    assert!(run.status == 1 && run.stderr.contains("no cgroup"), "{}", run.stderr);
    let run = topdeck(&["hiccup", "--pid", "2147483647", "--", "sh", "-c", &command], b"");
    assert!(run.status == 1 && run.stderr.contains("cannot be looked at"), "{}", run.stderr);
    assert!(!said.exists());
}

#[test]
fn who_ends_the_measurement_ends_the_command() {
    // It ends by itself if nobody ends it.
    let command =
        "trap 'exit 9' TERM; echo ready; for i in $(seq 200); do sleep 0.05; done; exit 3";
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["hiccup", "--", "sh", "-c", command])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    signal("-TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_process_is_joined_until_it_ends() {
    let mut child = Command::new("sleep").arg("0.5").spawn().unwrap();
    let pid = child.id().to_string();
    let waiter = thread::spawn(move || child.wait());
    let run = topdeck(&["hiccup", "--pid", &pid], b"");
    waiter.join().unwrap().unwrap();
    assert_eq!(run.status, 0, "{}", run.stderr);
    let first = format!("hiccups of process {pid} (sleep): ");
    assert!(run.stdout.starts_with(&first), "{}", run.stdout);
    assert!(run.stdout.contains("as it: processors "), "{}", run.stdout);
    let run = topdeck(&["hiccup", "--pid", &pid], b"");
    assert_eq!(run.status, 1);
    let run = topdeck(&["hiccup", "--cgroup", "/no/such/cgroup"], b"");
    assert!(run.status == 1 && run.stderr.contains("no cgroup"), "{}", run.stderr);
}

/// A cgroup that may use a fifth of a processor, and something in it that wants a whole one.
struct Narrow {
    folder: PathBuf,
    busy: Child,
}

impl Narrow {
    fn new() -> std::io::Result<Narrow> {
        let is_second = fs::exists("/sys/fs/cgroup/cgroup.controllers")?;
        let root = if is_second { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" };
        let folder = PathBuf::from(format!("{root}/topdeck-it-hiccup-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let quota = match is_second {
            true => fs::write(folder.join("cpu.max"), "20000 100000"),
            false => fs::write(folder.join("cpu.cfs_period_us"), "100000")
                .and_then(|()| fs::write(folder.join("cpu.cfs_quota_us"), "20000")),
        };
        let busy =
            quota.and_then(|()| Command::new("sh").args(["-c", "while :; do :; done"]).spawn());
        let busy = busy.inspect_err(|_| drop(fs::remove_dir(&folder)))?;
        let narrow = Narrow { folder, busy };
        fs::write(narrow.folder.join("cgroup.procs"), narrow.busy.id().to_string())?;
        Ok(narrow)
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = self.busy.kill();
        let _ = self.busy.wait();
        // It is empty some moments after the last process of it ended.
        for _ in 0..50 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Of each 100 ms it may run 20: the rest is a stall for all who are in it.
#[test]
fn a_quota_is_felt_in_its_cgroup() {
    let narrow = match Narrow::new() {
        Ok(narrow) => narrow,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: no cgroup with a quota: {error}");
            return;
        }
    };
    let longest = |arguments: &[&str]| {
        let run = topdeck(&[&["hiccup", "--json"], arguments].concat(), b"");
        assert_eq!(run.status, 0, "{}", run.stderr);
        let found: Value = serde_json::from_str(&run.stdout).unwrap();
        (found["max_ns"].as_f64().unwrap(), found["joined"].to_string())
    };
    let folder = narrow.folder.to_str().unwrap();
    let (max_ns, joined) = longest(&["--duration", "1s", "--cgroup", folder]);
    assert!(max_ns >= 30e6 && joined.contains(folder), "{max_ns} {joined}");
    let (max_ns, joined) = longest(&["--duration", "1s", "--pid", &narrow.busy.id().to_string()]);
    assert!(max_ns >= 30e6 && joined.contains("cgroup /"), "{max_ns} {joined}");
}
