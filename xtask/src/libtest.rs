//! Parser of libtest output: JSON events of test programs that xtask runs, and text of
//! `cargo test`.
//!
//! Only the JSON output (`--format json --report-time`) has the duration of each test. libtest
//! calls it unstable; stable Rust supports it if `RUSTC_BOOTSTRAP` is set. A change of the format
//! fails the part, because a program whose events do not add up counts as failed.

use std::collections::BTreeSet;
use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::command_line::CommandLine;
use crate::part_log::PartLog;
use crate::test_report::{TestEnd, TestFailure, TestReport};

/// How a test program ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProgramEnd {
    Exited(ExitStatus),
    /// Killed because it printed nothing for this long.
    Killed {
        silence: Duration,
    },
}

impl ProgramEnd {
    fn is_success(self) -> bool {
        matches!(self, ProgramEnd::Exited(status) if status.success())
    }
}

impl fmt::Display for ProgramEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramEnd::Exited(status) => write!(f, "exited with {status}"),
            ProgramEnd::Killed { silence } => {
                write!(f, "was killed after {} s without output", silence.as_secs())
            }
        }
    }
}

/// Arguments that make a test program print events.
pub(crate) const JSON_ARGUMENTS: &str =
    "-Z unstable-options --format json --report-time --show-output";

/// Accumulated events of one test program.
pub(crate) struct TestEvents {
    program: String,
    /// The `cargo test` command line without the name of a test.
    repeat: String,
    report: TestReport,
    running: BTreeSet<String>,
    /// Number of tests that the program announced.
    expected: Option<u64>,
    /// Tests with `#[ignore]`.
    ignored: u64,
    is_ended: bool,
}

impl TestEvents {
    /// `program` is its name, the prefix of test names. `repeat` is a command line to which the
    /// name of a test is appended.
    pub(crate) fn new(program: &str, repeat: &str) -> TestEvents {
        let (program, repeat) = (program.to_owned(), repeat.to_owned());
        let report = TestReport::default();
        let running = BTreeSet::new();
        TestEvents { program, repeat, report, running, expected: None, ignored: 0, is_ended: false }
    }

    /// Parses one line. Returns false if it is not an event but output of a test.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        // A child process of a test may have written the start of the line.
        let Some(start) = line.find("{ \"type\": ") else { return false };
        let Ok(event) = serde_json::from_str::<Value>(&line[start..]) else { return false };
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        match (text("type"), text("event")) {
            ("suite", "started") => self.expected = event["test_count"].as_u64(),
            ("suite", _) => self.is_ended = true,
            ("test", "started") => drop(self.running.insert(text("name").to_owned())),
            ("test", "ignored") => self.ignored += 1,
            ("test", "timeout") => {}
            ("test", end) => {
                let name = text("name");
                self.running.remove(name);
                let full = format!("{} {name}", self.program);
                let end = match end {
                    "ok" => TestEnd::Passed,
                    _ => TestEnd::Failed { repeat: format!("{} {name}", self.repeat) },
                };
                let seconds = event["exec_time"].as_f64().unwrap_or(0.0);
                let output = format!("{}{}", text("stdout"), text("message"));
                self.report.add_test(&full, end, seconds, &output);
            }
            _ => return false,
        }
        true
    }

    /// Number of finished tests.
    pub(crate) fn count(&self) -> u64 {
        self.report.count()
    }

    /// Returns the report. A program that did not report all results has failed. So has a program
    /// that exited with an error although no test failed: it crashed at exit.
    pub(crate) fn finish(mut self, end: ProgramEnd) -> TestReport {
        let count = self.report.count();
        let is_whole = self.is_ended && self.expected == Some(count + self.ignored);
        let is_explained = end.is_success() || !self.report.failed.is_empty();
        if !is_whole || !is_explained {
            let running: Vec<&str> = self.running.iter().map(String::as_str).collect();
            let running = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
            let expected = self.expected.map_or_else(|| "?".to_owned(), |count| count.to_string());
            self.report.failed.push(TestFailure {
                name: format!("{} (the whole program)", self.program),
                repeat: self.repeat.trim_end_matches("--exact").trim_end().to_owned(),
                output: format!(
                    "the test program {end} after {count} of {expected} tests ({} ignored); \
                     running then: {running}",
                    self.ignored
                ),
            });
        }
        self.report
    }
}

/// Runs a `cargo test` command whose programs cargo starts, and accumulates its output. `repeat` is
/// the command line that runs all tests again.
pub(crate) fn run_cargo_test(
    log: &PartLog,
    line: &CommandLine,
    repeat: &str,
) -> Result<TestReport> {
    let mut lines = CargoTestOutput::new(repeat);
    let status = line.run_reading(log, |text| {
        lines.read(text);
        true
    })?;
    // Without a failed test, something did not compile.
    if lines.report.failed.is_empty() {
        line.check(status)?;
    }
    Ok(lines.report)
}

/// Accumulated output of `cargo test`.
struct CargoTestOutput {
    repeat: String,
    report: TestReport,
}

impl CargoTestOutput {
    fn new(repeat: &str) -> CargoTestOutput {
        CargoTestOutput { repeat: repeat.to_owned(), report: TestReport::default() }
    }

    fn read(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            let (name, repeat) = (name.to_owned(), self.repeat.clone());
            let output = "its output is in the log of the part".to_owned();
            self.report.failed.push(TestFailure { name, repeat, output });
        }
        self.report.passed += passed_count(line);
    }
}

/// N of `test result: ok. N passed; …`; 0 for any other text.
fn passed_count(text: &str) -> u64 {
    let summary = text.strip_prefix("test result: ");
    let count = summary.and_then(|rest| rest.split_once(". ")?.1.split_once(" passed"));
    count.and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// Events of two tests and an ignored one, from libtest of Rust 1.95.
    const EVENTS: [&str; 7] = [
        r#"{ "type": "suite", "event": "started", "test_count": 3 }"#,
        r#"{ "type": "test", "event": "started", "name": "a" }"#,
        r#"{ "type": "test", "event": "started", "name": "b" }"#,
        r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.25, "stdout": "skipped: no disk\n" }"#,
        r#"{ "type": "test", "event": "ignored", "name": "c", "message": "soak" }"#,
        r#"noise{ "type": "test", "name": "b", "event": "failed", "exec_time": 1.5, "stdout": "why\n" }"#,
        r#"{ "type": "suite", "event": "failed", "passed": 1, "failed": 1, "ignored": 1, "measured": 0, "filtered_out": 0, "exec_time": 1.6 }"#,
    ];

    #[test]
    fn events_add_up() {
        let mut events = TestEvents::new("hist it", "cargo test -p hist --test it -- --exact");
        assert!(EVENTS.iter().all(|line| events.read(line)));
        assert!(!events.read("a test printed this"));
        let report = events.finish(ProgramEnd::Exited(ExitStatus::from_raw(101 << 8)));
        assert_eq!((report.passed, report.skipped.len(), report.failed.len()), (0, 1, 1));
        assert_eq!(report.failed[0].name, "hist it b");
        assert_eq!(report.failed[0].repeat, "cargo test -p hist --test it -- --exact b");
        assert_eq!(report.failed[0].output, "why\n");
        assert_eq!(report.tests[1].seconds, 1.5);
    }

    #[test]
    fn crashed_program_fails_and_names_running_tests() {
        let mut events = TestEvents::new("hist it", "cargo test -p hist --test it -- --exact");
        EVENTS[..4].iter().for_each(|line| assert!(events.read(line)));
        let report = events.finish(ProgramEnd::Exited(ExitStatus::from_raw(9)));
        let failure = &report.failed[0];
        assert_eq!(failure.repeat, "cargo test -p hist --test it --");
        assert_eq!(
            failure.output,
            "the test program exited with signal: 9 (SIGKILL) after 1 of 3 tests (0 ignored); \
             running then: b"
        );
    }

    #[test]
    fn crash_after_the_last_test_is_a_failure() {
        let mut events = TestEvents::new("hist it", "cargo test -p hist --test it -- --exact");
        for line in [
            r#"{ "type": "suite", "event": "started", "test_count": 1 }"#,
            r#"{ "type": "test", "event": "started", "name": "a" }"#,
            r#"{ "type": "test", "name": "a", "event": "ok", "exec_time": 0.25 }"#,
            r#"{ "type": "suite", "event": "ok", "passed": 1, "failed": 0, "ignored": 0 }"#,
        ] {
            assert!(events.read(line));
        }
        let report = events.finish(ProgramEnd::Exited(ExitStatus::from_raw(11)));
        assert_eq!((report.passed, report.failed.len()), (1, 1));
        assert!(report.failed[0].output.contains("SIGSEGV"), "{}", report.failed[0].output);
    }

    #[test]
    fn lines_add_up_over_all_programs() {
        let mut lines = CargoTestOutput::new("cargo test --doc");
        for line in [
            "test loom_two_writers ... ok",
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out",
            "test loom_three ... FAILED",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored",
        ] {
            lines.read(line);
        }
        let report = lines.report;
        assert_eq!((report.passed, report.failed.len()), (14, 1));
        assert_eq!(report.failed[0].name, "loom_three");
    }
}
