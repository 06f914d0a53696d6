//! Output of commands: standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use render::text::escape_control;

/// Prints a message to standard error. If standard error is full or closed, the message is lost,
/// but not the exit status.
pub fn print_message(message: impl Display) {
    let _ = writeln!(io::stderr(), "topdeck: {}", escape_control(&message.to_string()));
}

/// Writes the result to standard output.
pub fn print_stdout(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Writes additional output to standard error; errors are ignored.
pub fn print_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}
