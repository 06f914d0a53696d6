//! Runs the built binary on `testdata/` and compares its output.
//!
//! `UPDATE_EXPECT=1 cargo test -p topdeck` replaces the expected output by the actual one; review
//! the diff.

mod blackbox;
mod checks;
mod contacts;
mod damage;
mod dashboard_answers;
mod dashboards;
mod demo;
mod documents;
mod environment;
mod generate;
mod hiccup;
mod import;
mod journal;
mod journal_kills;
mod load;
mod overhead;
mod page;
mod processes;
mod query;
mod readers;
mod reports;
mod scripted_relay;
mod serve;
mod server_answers;
mod store;
mod test_dir;
mod top;
mod trace;
mod tsdb_import;
mod wire;

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Result of a run.
struct TextRun {
    stdout: String,
    stderr: String,
    status: i32,
}

impl TextRun {
    /// Output, errors and exit status as in a golden file.
    fn all(&self) -> String {
        let part = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!("{name}\n{text}"),
        };
        let (stdout, stderr) = (part("--- stdout", &self.stdout), part("--- stderr", &self.stderr));
        format!("{stdout}{stderr}--- exit status {}\n", self.status)
    }
}

/// Runs `topdeck` in the root of the repository with a minimal environment.
#[track_caller]
fn topdeck(arguments: &[&str], stdin: &[u8]) -> TextRun {
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(arguments)
        .current_dir(root())
        .env_clear()
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut input = child.stdin.take().expect("stdin was asked for");
    let bytes = stdin.to_vec();
    // A run that fails early does not read all its input; that does not fail the test.
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().expect("the binary ends");
    writer.join().expect("the writer ends");
    TextRun {
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
        status: output.status.code().expect("no signal"),
    }
}

/// Runs `topdeck hist` with arguments as in a shell.
#[track_caller]
fn hist(line: &str) -> TextRun {
    hist_with_stdin(line, b"")
}

#[track_caller]
fn hist_with_stdin(line: &str, stdin: &[u8]) -> TextRun {
    let arguments: Vec<&str> = ["hist"].into_iter().chain(line.split_whitespace()).collect();
    topdeck(&arguments, stdin)
}

/// The count of each report.
fn counts(run: &TextRun) -> Vec<&str> {
    let lines = run.stdout.lines();
    lines.filter_map(|line| Some(line.trim_start().strip_prefix("count ")?.trim())).collect()
}

fn root() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("crates/topdeck is two directories down")
}
