//! `topdeck hiccup`: a known stall is measured.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::environment::{fresh_name, stop, voluntary_switches, wait_until};
use crate::topdeck;

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Duration of the stop.
const STALL: Duration = Duration::from_millis(300);

/// Waits for a hundred more wake-ups: only the measurement sleeps that often.
#[track_caller]
fn await_measuring(pid: u32) {
    let before = voluntary_switches(pid);
    wait_until("it measures", || voluntary_switches(pid) >= before + 100);
}

#[test]
fn measurement_lasts_its_duration() {
    let (began, length) = (Instant::now(), Duration::from_millis(200));
    let run = topdeck(&["hiccup", "--duration", "200ms", "--json"], b"");
    // Lower bounds hold on every machine.
    assert!(run.status == 0 && began.elapsed() >= length, "{}", run.all());
    let found: Value = serde_json::from_str(&run.stdout).unwrap();
    assert!(found["duration_ns"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn stall_counts_each_missed_period() {
    let child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["hiccup", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    await_measuring(child.id());
    stop(child.id());
    thread::sleep(STALL);
    signal("-CONT", child.id());
    await_measuring(child.id());
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!((&found["schema"], &found["scope"]), (&2.into(), &"this host".into()));
    let stall_ns = STALL.as_nanos() as f64 - 10e6;
    assert!(number(&found["max_ns"]) >= stall_ns, "{found}");
    let above_100_ms = &found["stalls"][2];
    assert!(above_100_ms["longer_than_ns"] == 100_000_000 && number(&above_100_ms["count"]) >= 1.0);
    assert!(number(&found["longest"][0]["delay_ns"]) >= stall_ns);
    // One sample per millisecond, also during the stop.
    let (samples, length_ms) = (number(&found["samples"]), number(&found["duration_ns"]) * 1e-6);
    assert!(length_ms * 1e6 >= stall_ns && (samples - length_ms).abs() <= 2.0, "{found}");
    // Each sample time in the stall has a delay until its end. So the highest tenth of all delays
    // is at least the stall minus a tenth of the duration; a bucket width (1 %) is allowed below.
    let p90 = found["quantiles"].as_array().unwrap().iter().find(|one| one["q"] == 0.9).unwrap();
    let least_ns = (stall_ns - length_ms * 1e6 / 10.0) * 0.98;
    assert!(number(&p90["ns"]) >= least_ns, "{least_ns}: {found}");
    let rows = found["intervals"].as_array().unwrap().iter().map(|row| number(&row["samples"]));
    assert_eq!(rows.sum::<f64>(), samples);
}

#[test]
fn a_command_is_measured_for_as_long_as_it_runs() {
    let run = topdeck(&["hiccup", "--", "sh", "-c", "echo said; sleep 0.2; exit 7"], b"");
    assert_eq!((run.stdout.as_str(), run.status), ("said\n", 7));
    assert!(run.stderr.starts_with("hiccups of this host: "), "{}", run.stderr);
    for part in ["wake-up delay", "p99 ", "max ", "longer than 1.000 ms", "over time"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    let run = topdeck(&["hiccup", "--", "/no/such/program"], b"");
    assert_eq!((run.stdout.as_str(), run.status), ("", 1));
    assert!(run.stderr.contains("cannot start /no/such/program"), "{}", run.stderr);
}

/// The report is lost, the exit status is not.
#[test]
fn exit_status_survives_a_failed_report() {
    let script =
        format!("exec {} hiccup -- sh -c 'exit 7' 2>/dev/full", env!("CARGO_BIN_EXE_topdeck"));
    let status = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert_eq!(status.code(), Some(7));
}

/// The command does not survive.
#[test]
fn command_is_stopped_if_measuring_fails() {
    // No other process sleeps for exactly this duration.
    let length = format!("30.{}", std::process::id());
    let is_left = |pid: &str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').collect::<Vec<_>>() == ["sleep", &length, ""]
    };
    let check = |options: [&str; 2], why: &str| {
        // To /dev/null: an inherited pipe would be waited for.
        let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .arg("hiccup")
            .args(options)
            .args(["--", "sh", "-c", "exec 2>/dev/null; exec sleep $0", &length])
            .stdout(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(why), "{said}");
        let all = fs::read_dir("/proc").unwrap().flatten();
        let left = all.filter(|entry| entry.file_name().to_str().is_some_and(is_left));
        assert_eq!(left.count(), 0, "it is left behind");
    };
    check(["--cgroup", "/no/such/cgroup"], "is not a cgroup");
    check(["--pid", "2147483647"], "cannot inspect process");
}

#[test]
fn ending_the_measurement_ends_the_command() {
    // The command exits by itself if nobody kills it.
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
fn measurement_follows_a_process_until_its_exit() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let measuring = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["hiccup", "--pid", &pid])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    await_measuring(measuring.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    let output = measuring.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let first = format!("hiccups of process {pid} (cat): ");
    assert!(text.starts_with(&first), "{text}");
    assert!(text.contains("inherited: processors "), "{text}");
    let run = topdeck(&["hiccup", "--pid", &pid], b"");
    assert_eq!(run.status, 1);
    let run = topdeck(&["hiccup", "--cgroup", "/no/such/cgroup"], b"");
    assert!(run.status == 1 && run.stderr.contains("is not a cgroup"), "{}", run.stderr);
}

/// Cgroup with a quota of 5 % of a CPU, and a busy loop in it. The quota is so low that the loop
/// reaches it on a busy machine, too.
struct ThrottledCgroup {
    dir: PathBuf,
    busy: Child,
}

impl ThrottledCgroup {
    fn new() -> std::io::Result<ThrottledCgroup> {
        let is_second = fs::exists("/sys/fs/cgroup/cgroup.controllers")?;
        let root = if is_second { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/cpu" };
        let dir = PathBuf::from(format!("{root}/{}", fresh_name()));
        fs::create_dir(&dir)?;
        let quota = match is_second {
            true => fs::write(dir.join("cpu.max"), "5000 100000"),
            false => fs::write(dir.join("cpu.cfs_period_us"), "100000")
                .and_then(|()| fs::write(dir.join("cpu.cfs_quota_us"), "5000")),
        };
        let busy =
            quota.and_then(|()| Command::new("sh").args(["-c", "while :; do :; done"]).spawn());
        let busy = busy.inspect_err(|_| drop(fs::remove_dir(&dir)))?;
        let narrow = ThrottledCgroup { dir, busy };
        fs::write(narrow.dir.join("cgroup.procs"), narrow.busy.id().to_string())?;
        Ok(narrow)
    }
}

impl Drop for ThrottledCgroup {
    fn drop(&mut self) {
        let _ = self.busy.kill();
        let _ = self.busy.wait();
        // The cgroup is empty some time after the exit of its last process.
        wait_until("the cgroup is empty", || fs::remove_dir(&self.dir).is_ok());
    }
}

/// It may run 5 of every 100 ms: the rest is a stall of all its processes.
#[test]
fn cpu_quota_causes_stalls_in_its_cgroup() {
    let narrow = match ThrottledCgroup::new() {
        Ok(narrow) => narrow,
        Err(error) => {
            println!("skipped: no cgroup with a quota can be made: {error}");
            return;
        }
    };
    let longest = |arguments: &[&str]| {
        let run = topdeck(&[&["hiccup", "--json"], arguments].concat(), b"");
        assert_eq!(run.status, 0, "{}", run.stderr);
        let found: Value = serde_json::from_str(&run.stdout).unwrap();
        (found["max_ns"].as_f64().unwrap(), found["inherited"].to_string())
    };
    let dir = narrow.dir.to_str().unwrap();
    let (max_ns, joined) = longest(&["--duration", "1s", "--cgroup", dir]);
    assert!(max_ns >= 30e6 && joined.contains(dir), "{max_ns} {joined}");
    let (max_ns, joined) = longest(&["--duration", "1s", "--pid", &narrow.busy.id().to_string()]);
    assert!(max_ns >= 30e6 && joined.contains("cgroup /"), "{max_ns} {joined}");
}
