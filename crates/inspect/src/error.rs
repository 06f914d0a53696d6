//! Errors of a look at a process.

use std::io;
use std::path::PathBuf;

/// Why nothing can be shown of a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No process is meant, or several are, or it is in another state than was asked for. The text
    /// names the processes that there are.
    #[error("{0}")]
    NoProcess(String),
    /// The path of a metrics file cannot be read.
    #[error("cannot look at {}", path.display())]
    Path {
        /// What was named.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// The metrics cannot be read: usually the file was removed meanwhile.
    #[error(transparent)]
    Metrics(#[from] shm::Error),
}

/// The result of a look.
pub type Result<T> = std::result::Result<T, InspectError>;
