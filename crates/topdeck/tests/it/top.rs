//! `topdeck top --once` of a process with known metrics: this test program, started again.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::environment::TmpfsDir;
use crate::{TextRun, root, topdeck};

shm::label! {
    /// Routes of the sample program.
    enum ShopRoute as "route" { Cart = "cart", Search = "search" }
}

shm::metrics! {
    /// Response time.
    static TOOK: shm::Histogram[ShopRoute] = "it_answer_duration", unit "ns", role shm::MetricRole::Timing;
    /// Requests in progress.
    static ANSWERS: shm::InFlight = "it_answers", tags &["route"];
    /// Failed requests.
    static FAILED: shm::Counter = "it_failed_total", role shm::MetricRole::Error;
}

/// Set in the sample program.
const CHILD_VARIABLE: &str = "TOPDECK_IT_TOP_CHILD";

#[test]
#[ignore = "the process that the other tests look at"]
fn run_measured_child() {
    if std::env::var_os(CHILD_VARIABLE).is_none() {
        return;
    }
    let stuck = [ANSWERS.begin(1, &[]), ANSWERS.begin(2, &[])];
    let done = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let mut greatest = 1_000_000;
    while !done.is_finished() {
        // Always increasing, so that the maximum of each interval is known exactly.
        greatest += 1_000;
        for (route, took) in [(ShopRoute::Cart, 250_000), (ShopRoute::Search, greatest)] {
            TOOK.with_label(route).record(took);
        }
        FAILED.add(1);
        if greatest == 1_010_000 {
            println!("measured: ready");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(stuck);
}

struct MeasuredProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Keeps the pipe open while the program runs.
    _stdout: BufReader<ChildStdout>,
    memory: TmpfsDir,
}

impl MeasuredProcess {
    /// `None` without shared memory, with a message.
    fn start() -> Option<MeasuredProcess> {
        let memory = TmpfsDir::new()?;
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["top::run_measured_child", "--exact", "--ignored", "--nocapture"])
            .env("TOPDECK_SHM", &memory.path)
            .env(CHILD_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout was asked for"));
        let is_ready = stdout
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("measured: ready"));
        assert!(is_ready, "it ended before it began");
        Some(MeasuredProcess { child, stdin, _stdout: stdout, memory })
    }

    #[track_caller]
    fn top(&self) -> TextRun {
        let pid = self.child.id().to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
            .args(["top", "--once", "--interval", "300ms", "--process", &pid])
            .current_dir(root())
            .env("TOPDECK_SHM", &self.memory.path)
            .output()
            .expect("it runs");
        TextRun {
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
            status: output.status.code().expect("no signal"),
        }
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_process_is_shown_with_units_and_its_exact_maximum() {
    let Some(measured) = MeasuredProcess::start() else { return };
    let run = measured.top();
    assert_eq!(run.status, 0, "{}", run.all());
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(lines[0].starts_with("1 process, the last "), "{}", run.all());
    let heading: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(
        heading,
        ["pid", "program", "metric", "rate", "p50", "p99", "max", "in", "flight", "errors"]
    );
    let row = lines[2];
    assert!(row.starts_with(&measured.child.id().to_string()), "{row}");
    assert!(row.contains(" it_answer_duration, all 2 "), "{row}");
    assert!(row.contains(" 2, "), "two are in flight: {row}");
    let parts: Vec<&str> = row.split("  ").map(str::trim).filter(|part| !part.is_empty()).collect();
    assert!(parts[3].ends_with("/s") && parts[3] != "0 /s", "{row}");
    // The overall maximum was in this interval, so it is not an estimate.
    assert!(parts[6].ends_with(" ms") && !parts[6].starts_with('~'), "{row}");
    assert_eq!(lines.get(3), None, "{}", run.all());
}

#[test]
fn killed_process_is_not_shown() {
    let Some(mut measured) = MeasuredProcess::start() else { return };
    measured.child.kill().expect("it is killed");
    measured.child.wait().expect("it ends");
    let run = measured.top();
    assert_eq!(run.status, 1, "{}", run.all());
    let why = format!(
        "no process with \"{}\" in the name of its program, or as its id,",
        measured.child.id()
    );
    assert!(run.stderr.contains(&why) && run.stderr.contains("`topdeck ls`"), "{}", run.all());
}

#[test]
fn without_a_terminal_the_error_has_a_remedy() {
    let run = topdeck(&["top"], b"");
    assert_eq!(run.status, 1);
    assert_eq!(run.stderr, "topdeck: standard output is not a terminal; --once prints one table\n");
    let run = topdeck(&["top", "--interval", "50ms"], b"");
    assert_eq!(run.status, 2);
    assert!(run.stderr.contains("expected 100ms to 10s"), "{}", run.stderr);
}
