//! Errors of reports.

use std::io;
use std::path::PathBuf;

/// A report cannot be written, read or sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// A file is not a run, or is inconsistent. The text names the position.
    #[error("{0}")]
    Damaged(String),
    /// Values do not fit into the format or into one histogram.
    #[error("{0}")]
    Unfit(String),
    /// Seconds cannot be pushed to a server.
    #[error("{0}")]
    Push(String),
}

/// Result of an operation on reports.
pub type Result<T> = std::result::Result<T, ReportError>;
