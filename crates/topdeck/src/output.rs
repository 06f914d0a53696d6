//! Output of commands: standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use render::text::escape_control;
use role::settings::Problems;

/// Prints a message to standard error. If standard error is full or closed, the message is lost,
/// but not the exit status.
pub(crate) fn print_message(message: impl Display) {
    let _ = writeln!(io::stderr(), "topdeck: {}", escape_control(&message.to_string()));
}

/// Prints the errors of a settings file, each on lines of its own.
pub(crate) fn print_problems(problems: &Problems) {
    for problem in problems.to_string().split('\n') {
        // Source lines below a message are printed unchanged.
        match problem.strip_prefix("  | ") {
            Some(_) => eprintln!("{}", problem.replace(char::is_control, " ")),
            None => print_message(problem),
        }
    }
}

/// Remedy for an unknown format: an option with the known ones.
pub(crate) fn format_remedy() -> String {
    let names = decode::InputFormat::ALL.map(decode::InputFormat::name);
    format!("set the format with --format: {}", names.join(", "))
}

/// Writes the result to standard output.
pub(crate) fn print_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes additional output to standard error; errors are ignored.
pub(crate) fn print_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
