//! A command line: shown as one would type it, run in the repository's root.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::log::Log;

/// What npm, go and pip print where there is no network, a name server or proxy does not answer, or a
/// registry is down.
const NETWORK_ERRORS: [&str; 14] = [
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ENOTFOUND",
    "ETIMEDOUT",
    "dial tcp",
    "no such host",
    "i/o timeout",
    "TLS handshake timeout",
    "Temporary failure in name resolution",
    "Failed to establish a new connection",
    "Network is unreachable",
    "503 Service Unavailable",
];

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

    /// A program by its path, which may hold white space.
    pub(crate) fn program(path: &Path) -> Line {
        let path = path.to_str().expect("BUG: the repository's path is not UTF-8");
        Line { env: Vec::new(), words: vec![path.to_owned()] }
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

    /// Shows the line in the log, and runs it with its output there.
    pub(crate) fn run(&self, log: &Log) -> Result<()> {
        log.note(&format!("$ {self}"));
        let (stdout, stderr) = log.outputs()?;
        let mut command = self.command();
        let status = command.stdout(stdout).stderr(stderr).status();
        self.check(status.with_context(|| self.cannot_start())?)
    }

    /// Runs a line that fetches something. A network that is not there is a reason to skip what needs
    /// it, which is returned; any other failure, such as a wrong lock file, is an error.
    pub(crate) fn fetch(&self, log: &Log) -> Result<Option<String>> {
        log.note(&format!("$ {self}"));
        let mut command = self.command();
        let output = command.output().with_context(|| self.cannot_start())?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        log.write(&text);
        if output.status.success() {
            return Ok(None);
        }
        match text.lines().find(|line| NETWORK_ERRORS.iter().any(|error| line.contains(error))) {
            Some(line) => Ok(Some(line.trim().to_owned())),
            None => bail!("`{self}` ended with {}: {}", output.status, text.trim_end()),
        }
    }

    /// Like `run`, and hands each line of standard output to `reader`, which says whether the log
    /// keeps it.
    pub(crate) fn run_reading(
        &self,
        log: &Log,
        mut reader: impl FnMut(&str) -> bool,
    ) -> Result<ExitStatus> {
        log.note(&format!("$ {self}"));
        let (_, stderr) = log.outputs()?;
        let mut command = self.command();
        let child = command.stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = child.with_context(|| self.cannot_start())?;
        let stdout = child.stdout.take().expect("BUG: stdout was asked for");
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.context("reading what the command prints")?;
            let text = String::from_utf8_lossy(&text);
            if reader(&text) {
                log.write(&text);
            }
        }
        Ok(child.wait()?)
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

    /// The command, with the repository's root as its folder and no standard input.
    pub(crate) fn command(&self) -> Command {
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

    /// An error that names the line, unless it ended well.
    pub(crate) fn check(&self, status: ExitStatus) -> Result<()> {
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
        let is_plain = |word: &String| !word.contains([' ', '\'']);
        let quoted = |word: &String| match is_plain(word) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
        f.write_str(&self.words.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }
}

/// The repository's root, which is where all our commands run.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("BUG: xtask/ is a folder of the repository")
}

/// Processors that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Where cargo builds.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").filter(|path| !path.is_empty());
    root().join(named.map_or_else(|| PathBuf::from("target"), PathBuf::from))
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
    fn a_word_with_a_space_is_quoted() {
        let line = Line::program(Path::new("/a b/c")).word("it's");
        assert_eq!(line.to_string(), r"'/a b/c' 'it'\''s'");
    }

    #[test]
    fn a_network_that_is_not_there_is_a_reason_and_a_wrong_lock_file_an_error() {
        let log = Log::console("t");
        let fails = |text: &str| Line::new("sh -c").word(&format!("echo '{text}'; exit 1"));
        let reason = fails("npm error code ENOTFOUND").fetch(&log).unwrap();
        assert_eq!(reason.as_deref(), Some("npm error code ENOTFOUND"));
        let error = fails("lock file and package.json differ").fetch(&log).unwrap_err();
        assert!(error.to_string().contains("lock file and package.json differ"), "{error}");
        assert_eq!(Line::new("true").fetch(&log).unwrap(), None);
    }

    #[test]
    fn a_line_that_fails_is_named() {
        let error = Line::new("false").run(&Log::console("t")).unwrap_err();
        assert_eq!(error.to_string(), "`false` ended with exit status: 1");
    }

    #[test]
    fn a_program_that_is_missing_is_named() {
        let error = Line::new("no-such-program-here").run(&Log::console("t")).unwrap_err();
        assert!(error.to_string().contains("`no-such-program-here`"), "{error}");
        assert!(!Line::new("no-such-program-here").succeeds());
    }
}
