//! A command line: shown as one would type it, run in the repository's root.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

/// All tests. Where some of them are run, or a program for trying out is needed, the packages are the same ones: for others Cargo would
/// choose other features of what they depend on, and build most of it again.
pub(crate) const TESTS: &str = "cargo test --workspace --locked --exclude xtask";

/// A program, its arguments, and the environment variables that differ from ours.
pub(crate) struct Line {
    /// `None` removes the variable.
    env: Vec<(&'static str, Option<String>)>,
    words: Vec<String>,
}

impl Line {
    /// `text` is split at white space; no word of ours holds any.
    pub(crate) fn new(text: &str) -> Line {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        assert!(!words.is_empty(), "a command line needs a program");
        Line { env: Vec::new(), words }
    }

    /// One more word, which may hold white space.
    pub(crate) fn word(mut self, word: &str) -> Line {
        self.words.push(word.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> Line {
        self.env.push((name, Some(value.to_owned())));
        self
    }

    pub(crate) fn unset(mut self, name: &'static str) -> Line {
        self.env.push((name, None));
        self
    }

    /// Shows the line under the name of `part`, and runs it with our own output.
    pub(crate) fn run(&self, part: &str) -> Result<()> {
        println!("== {part}: {self}");
        let status = self.command().status().with_context(|| self.cannot_start())?;
        self.check(status)
    }

    /// Like `run`, for lines that run tests: how many passed.
    ///
    /// A filter that matches nothing also exits with 0; the count tells the two apart.
    pub(crate) fn run_tests(&self, part: &str) -> Result<u64> {
        println!("== {part}: {self}");
        let mut child =
            self.command().stdout(Stdio::piped()).spawn().with_context(|| self.cannot_start())?;
        let stdout = child.stdout.take().expect("BUG: stdout was asked for");
        let mut passed_count = 0;
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.context("reading what the tests print")?;
            let text = String::from_utf8_lossy(&text);
            println!("{text}");
            passed_count += passed(&text);
        }
        let status = child.wait()?;
        self.check(status)?;
        Ok(passed_count)
    }

    /// What the line writes to its standard output.
    pub(crate) fn stdout(&self) -> Result<Vec<u8>> {
        let command = &mut self.command();
        let output =
            command.stderr(Stdio::inherit()).output().with_context(|| self.cannot_start())?;
        self.check(output.status)?;
        Ok(output.stdout)
    }

    /// Whether the line runs at all and ends well; shows nothing.
    pub(crate) fn succeeds(&self) -> bool {
        let command = &mut self.command();
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(root()).stdin(Stdio::null());
        for (name, value) in &self.env {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        ensure!(status.success(), "`{self}` ended with {status}");
        Ok(())
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{}`: is it installed and in PATH?", self.words[0])
    }
}

/// As one would type it into a shell.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            match value {
                Some(value) if value.contains(' ') => write!(f, "{name}=\"{value}\" ")?,
                Some(value) => write!(f, "{name}={value} ")?,
                None => {}
            }
        }
        f.write_str(&self.words.join(" "))
    }
}

/// The repository's root, which is where all our commands run.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("BUG: xtask/ is a folder of the repository")
}

/// N of libtest's `test result: ok. N passed; …`, 0 for any other text.
fn passed(text: &str) -> u64 {
    let summary = text.strip_prefix("test result: ");
    let count = summary.and_then(|rest| rest.split_once(". ")?.1.split_once(" passed"));
    count.and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_what_one_would_type() {
        let line = Line::new("cargo test  --lib").env("RUSTFLAGS", "--cfg loom").env("N", "3");
        assert_eq!(line.unset("M").to_string(), "RUSTFLAGS=\"--cfg loom\" N=3 cargo test --lib");
    }

    #[test]
    fn a_line_that_fails_is_named() {
        let error = Line::new("false").run("t").unwrap_err();
        assert_eq!(error.to_string(), "`false` ended with exit status: 1");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = Line::new("no-such-program-here").run("t").unwrap_err();
        assert!(error.to_string().contains("`no-such-program-here`"), "{error}");
        assert!(!Line::new("no-such-program-here").succeeds());
    }

    #[test]
    fn counts_what_libtest_reports() {
        let summary = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out";
        assert_eq!(passed(summary), 12);
        assert_eq!(passed("test result: FAILED. 2 passed; 1 failed; 0 ignored"), 2);
        assert_eq!(passed("test loom_two_writers ... ok"), 0);
    }

    #[test]
    fn counts_over_all_binaries_of_a_run() {
        let result = "test\\040result:\\040ok.\\0404\\040passed;\\n";
        let line = Line::new(&format!("printf {result}{result}"));
        assert_eq!(line.run_tests("t").unwrap(), 8);
    }
}
