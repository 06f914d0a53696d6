//! Output of a part: progress on the console, everything else in its own file.
//!
//! Two parts run at once, and their output must not mix. The console shows one line per command and
//! per event; the file `target/ci/PART.log` contains the output of the commands.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::command_line::target;

/// Number of log lines of a failed part that are shown on the console.
const TAIL_LINES: usize = 200;

/// Console lines start with the seconds since this time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The output of one part.
pub(crate) struct PartLog {
    name: String,
    /// `None`: commands write to the output of this process.
    file: Option<(File, PathBuf)>,
}

impl PartLog {
    /// A log whose commands write to the standard output and error of this process.
    pub(crate) fn console(name: &str) -> PartLog {
        LazyLock::force(&START);
        PartLog { name: name.to_owned(), file: None }
    }

    /// A log whose commands write to `target/ci/NAME.log`, truncated first.
    pub(crate) fn file(name: &str) -> Result<PartLog> {
        LazyLock::force(&START);
        let dir = target().join("ci");
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(format!("{name}.log"));
        let file =
            File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(PartLog { name: name.to_owned(), file: Some((file, path)) })
    }

    /// Name of the part.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Shows a line of progress on the console, and writes it to the file.
    pub(crate) fn note(&self, text: &str) {
        println!("[{:5.0} s] {}: {text}", START.elapsed().as_secs_f64(), self.name);
        if self.file.is_some() {
            self.write(&format!("== {text}"));
        }
    }

    /// Writes a line to the file; without a file, to the console.
    pub(crate) fn write(&self, text: &str) {
        match &self.file {
            // A full disk fails the commands too, which is reported.
            Some((file, _)) => drop(writeln!(&mut &*file, "{text}")),
            None => println!("{text}"),
        }
    }

    /// Standard output and standard error for a command.
    pub(crate) fn outputs(&self) -> Result<(Stdio, Stdio)> {
        match &self.file {
            Some((file, _)) => Ok((file.try_clone()?.into(), file.try_clone()?.into())),
            None => Ok((Stdio::inherit(), Stdio::inherit())),
        }
    }

    /// Path of the file, if there is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(_, path)| path.as_path())
    }

    /// The last lines of the file, for a failed part.
    pub(crate) fn tail(&self) -> String {
        let Some((_, path)) = &self.file else { return String::new() };
        let bytes = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::CommandLine;

    #[test]
    fn log_file_has_command_output_and_tail_is_its_end() {
        let log = PartLog::file("log-test").unwrap();
        CommandLine::new("printf a\\nb\\n").run(&log).unwrap();
        (0..TAIL_LINES).for_each(|number| log.write(&number.to_string()));
        let text = fs::read_to_string(log.path().unwrap()).unwrap();
        assert!(text.starts_with("== $ printf a\\nb\\n\na\nb\n0\n1\n"), "{text}");
        let tail = log.tail();
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.ends_with(&(TAIL_LINES - 1).to_string()), "{tail}");
    }
}
