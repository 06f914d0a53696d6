//! Directory of a test, in which the binary runs, and output without numbers that vary.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Directory, removed on drop.
pub(crate) struct TestDir(PathBuf);

/// Result of a run; the output may be any bytes.
pub(crate) struct BinaryOutput {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

impl TestDir {
    pub(crate) fn new() -> TestDir {
        TestDir(crate::environment::fresh_dir(&std::env::temp_dir()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_topdeck"));
        command.arg("journal").args(line.split_whitespace()).current_dir(&self.0);
        command.env_clear().env("LC_ALL", "C.UTF-8");
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str, stdin: &[u8]) -> BinaryOutput {
        let mut child = self
            .command(line)
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
        BinaryOutput {
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
            status: output.status.code().expect("no signal"),
        }
    }

    /// Runs a command that must succeed; returns its output.
    #[track_caller]
    pub(crate) fn run_ok(&self, line: &str, stdin: &[u8]) -> Vec<u8> {
        let run = self.run(line, stdin);
        assert_eq!(run.status, 0, "{line}: {}", run.stderr);
        run.stdout
    }

    /// Transcript of commands and their output.
    pub(crate) fn session(&self, lines: &[(&str, &str)]) -> String {
        let mut text = String::new();
        for (line, stdin) in lines {
            let run = self.run(line, stdin.as_bytes());
            text.push_str(&format!("$ topdeck journal {line}\n"));
            text.push_str(&String::from_utf8(run.stdout).expect("text"));
            text.push_str(&run.stderr);
            if run.status != 0 {
                text.push_str(&format!("[exit status {}]\n", run.status));
            }
        }
        mask(&text)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Masks parts that differ between runs: dates, durations, the journal ID.
pub(crate) fn mask(text: &str) -> String {
    text.split_inclusive('\n').map(mask_line).collect()
}

fn mask_line(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut masked: Vec<String> = Vec::new();
    let mut at = 0;
    let end = |word: &str| word.trim_start_matches(|c: char| !",;.)\n".contains(c)).to_owned();
    let bare = |word: &str| word.trim_end_matches([',', ';', '.', ')', '\n']).to_owned();
    let digits = |word: &str, also: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.chars().all(|c| c.is_ascii_digit() || also.contains(c))
    };
    while let Some(word) = words.get(at) {
        let next = words.get(at + 1).copied().unwrap_or("");
        let before = at.checked_sub(1).map_or("", |before| words[before]);
        let is_time = digits(word, ".,") && ["ns", "us", "ms", "s"].contains(&bare(next).as_str());
        let is_date = digits(word, "-") && word.len() == 10 && bare(next).ends_with('Z');
        if is_time || is_date {
            masked.push(format!("{}{}", if is_time { "TIME" } else { "DATE" }, end(next)));
            at += 2;
        } else if bare(word).trim_matches('"').len() == 32 && !word.contains('/') {
            masked.push(format!("ID{}", end(word)));
            at += 1;
        } else if before.ends_with("_ns\":") && digits(&bare(word), "") {
            masked.push(format!("NS{}", end(word)));
            at += 1;
        } else {
            masked.push((*word).to_owned());
            at += 1;
        }
    }
    masked.join(" ")
}

/// Replaces every number by N: it depends on when records were written to a segment.
pub(crate) fn mask_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        let digit = |c: char| c.is_ascii_digit();
        if digit(c) || (",.".contains(c) && out.ends_with('N')) {
            // A comma or full stop after a number is not part of it.
            out.push(if digit(c) { 'N' } else { c });
        } else {
            out.push(c);
        }
    }
    while ["NN", "N,N", "N.N"].iter().any(|long| out.contains(long)) {
        out = out.replace("NN", "N").replace("N,N", "N").replace("N.N", "N");
    }
    out
}
