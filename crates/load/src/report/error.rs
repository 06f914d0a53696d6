//! Errors of reports of a run.

use std::io;
use std::path::PathBuf;

/// Why a report cannot be written, read or sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A file is no run, or lies. The text names the place.
    #[error("{0}")]
    Damaged(String),
    /// Values do not fit into the format or into one histogram.
    #[error("{0}")]
    Unfit(String),
    /// Seconds cannot be pushed to a server.
    #[error("{0}")]
    Push(String),
}

/// The result of an operation on a report.
pub type Result<T> = std::result::Result<T, ReportError>;
