//! Errors of inspecting a process.

use std::io;
use std::path::PathBuf;

/// Error inspecting a process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// No process matches, several do, or it is in another state than requested. The text lists the
    /// candidates.
    #[error("{0}")]
    NoProcess(String),
    /// A server does not observe what is asked for; the text says what to change.
    #[error("{0}")]
    NotObserved(String),
    /// The path of a metrics file cannot be read.
    #[error("cannot inspect {}", path.display())]
    Path {
        /// The given path.
        path: PathBuf,
        /// Cause.
        #[source]
        cause: io::Error,
    },
    /// The metrics cannot be read: usually the file was removed.
    #[error(transparent)]
    Metrics(#[from] shm::Error),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, InspectError>;
