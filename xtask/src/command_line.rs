//! A command line that runs in the root of the repository and is logged as one would type it.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::part_log::PartLog;

/// Error messages of npm, go and pip if the network is down, a name server or proxy does not
/// respond, or a registry is down.
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

/// A program, its arguments, and environment variables that are set or removed.
pub(crate) struct CommandLine {
    /// `None` removes the variable.
    env: Vec<(&'static str, Option<String>)>,
    args: Vec<String>,
}

impl CommandLine {
    /// Splits `text` at white space; no argument may contain any.
    pub(crate) fn new(text: &str) -> CommandLine {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        assert!(!words.is_empty(), "BUG: a command line without a program");
        CommandLine { env: Vec::new(), args: words }
    }

    /// A program by its path, which may contain white space.
    pub(crate) fn from_path(path: &Path) -> CommandLine {
        let path = path.to_str().expect("BUG: the path of the repository is not UTF-8");
        CommandLine { env: Vec::new(), args: vec![path.to_owned()] }
    }

    /// Adds an argument, which may contain white space.
    pub(crate) fn arg(mut self, word: &str) -> CommandLine {
        self.args.push(word.to_owned());
        self
    }

    pub(crate) fn env(mut self, name: &'static str, value: &str) -> CommandLine {
        self.env.push((name, Some(value.to_owned())));
        self
    }

    pub(crate) fn unset(mut self, name: &'static str) -> CommandLine {
        self.env.push((name, None));
        self
    }

    /// Logs the command line and runs it; its output goes to the log.
    pub(crate) fn run(&self, log: &PartLog) -> Result<()> {
        log.note(&format!("$ {self}"));
        let (stdout, stderr) = log.outputs()?;
        let mut command = self.command();
        let status = command.stdout(stdout).stderr(stderr).status();
        self.check(status.with_context(|| self.cannot_start())?)
    }

    /// Runs a command that downloads something. If the network is missing, returns the reason to
    /// skip the dependent work. Any other failure, such as an invalid lock file, is an error.
    pub(crate) fn fetch(&self, log: &PartLog) -> Result<Option<String>> {
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
            None => bail!("`{self}` exited with {}: {}", output.status, text.trim_end()),
        }
    }

    /// Like `run`, but passes each line of standard output to `reader`, which returns whether the
    /// line is logged.
    pub(crate) fn run_reading(
        &self,
        log: &PartLog,
        mut reader: impl FnMut(&str) -> bool,
    ) -> Result<ExitStatus> {
        log.note(&format!("$ {self}"));
        let (_, stderr) = log.outputs()?;
        let mut command = self.command();
        let child = command.stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = child.with_context(|| self.cannot_start())?;
        let stdout = child.stdout.take().expect("BUG: stdout is a pipe");
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.context("cannot read the output of the command")?;
            let text = String::from_utf8_lossy(&text);
            if reader(&text) {
                log.write(&text);
            }
        }
        Ok(child.wait()?)
    }

    /// Runs the command and returns its standard output.
    pub(crate) fn stdout(&self) -> Result<Vec<u8>> {
        let command = &mut self.command();
        let output =
            command.stderr(Stdio::inherit()).output().with_context(|| self.cannot_start())?;
        self.check(output.status)?;
        Ok(output.stdout)
    }

    /// Whether the command exits with status 0. Its output is discarded.
    pub(crate) fn succeeds(&self) -> bool {
        let command = &mut self.command();
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// The command with the root of the repository as its directory and no standard input.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.args[0]);
        command.args(&self.args[1..]).current_dir(root()).stdin(Stdio::null());
        // A build script that reads one of them, such as that of ring, would run again whenever
        // xtask and a user run cargo in turn, and all that depends on it be compiled again.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_xtask(name)) {
            command.env_remove(name);
        }
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
        ensure!(status.success(), "`{self}` exited with {status}");
        Ok(())
    }

    fn cannot_start(&self) -> String {
        format!("cannot start `{}`: is it installed and in PATH?", self.args[0])
    }
}

/// Whether `cargo run` sets the variable, to describe xtask.
fn is_of_xtask(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// As one would type it into a shell.
impl fmt::Display for CommandLine {
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
        f.write_str(&self.args.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }
}

/// Root of the repository: the working directory of all commands.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("BUG: xtask/ is a directory of the repository")
}

/// CPUs available to this process.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The build directory of cargo.
pub(crate) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").filter(|path| !path.is_empty());
    root().join(named.map_or_else(|| PathBuf::from("target"), PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_no_variables_of_xtask() {
        // Any test program has it, of cargo or of `make test`.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let command = CommandLine::new("cargo build").env("A", "1").command();
        let found: Vec<_> = command.get_envs().collect();
        assert!(found.contains(&(OsStr::new("CARGO_MANIFEST_DIR"), None)), "{found:?}");
        assert!(found.contains(&(OsStr::new("A"), Some(OsStr::new("1")))), "{found:?}");
        assert!(!is_of_xtask(OsStr::new("CARGO_TARGET_DIR")));
    }

    #[test]
    fn command_line_is_shown_as_typed() {
        let line =
            CommandLine::new("cargo test  --lib").env("RUSTFLAGS", "--cfg loom").env("N", "3");
        assert_eq!(line.unset("M").to_string(), "RUSTFLAGS=\"--cfg loom\" N=3 cargo test --lib");
    }

    #[test]
    fn argument_with_a_space_is_quoted() {
        let line = CommandLine::from_path(Path::new("/a b/c")).arg("it's");
        assert_eq!(line.to_string(), r"'/a b/c' 'it'\''s'");
    }

    #[test]
    fn missing_network_skips_and_wrong_lock_file_fails() {
        let log = PartLog::console("t");
        let fails = |text: &str| CommandLine::new("sh -c").arg(&format!("echo '{text}'; exit 1"));
        let reason = fails("npm error code ENOTFOUND").fetch(&log).unwrap();
        assert_eq!(reason.as_deref(), Some("npm error code ENOTFOUND"));
        let error = fails("lock file and package.json differ").fetch(&log).unwrap_err();
        assert!(error.to_string().contains("lock file and package.json differ"), "{error}");
        assert_eq!(CommandLine::new("true").fetch(&log).unwrap(), None);
    }

    #[test]
    fn failed_command_is_named() {
        let error = CommandLine::new("false").run(&PartLog::console("t")).unwrap_err();
        assert_eq!(error.to_string(), "`false` exited with exit status: 1");
    }

    #[test]
    fn missing_program_is_named() {
        let error =
            CommandLine::new("no-such-program-here").run(&PartLog::console("t")).unwrap_err();
        assert!(error.to_string().contains("`no-such-program-here`"), "{error}");
        assert!(!CommandLine::new("no-such-program-here").succeeds());
    }
}
