//! Usage errors that only a running command detects: exit status 2.

use std::error::Error;
use std::fmt;

/// Error of the command line. `command.rs` prints it with the usage of the subcommand.
#[derive(Debug)]
pub(crate) struct UsageError {
    /// `hist`, or `journal cat`.
    pub(crate) subcommand: &'static str,
    pub(crate) message: String,
}

impl Error for UsageError {}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
