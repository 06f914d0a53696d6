//! Host collector errors.

use std::io;

use crate::metric::HOST_BYTES_MAX;

/// Result of starting and stopping.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error starting or stopping the host collector. A BPF program that the kernel refuses is a
/// warning: see [`crate::HostCollector::warnings`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host name is empty or too long.
    #[error("invalid host name: {found} bytes, allowed 1 to {}", HOST_BYTES_MAX)]
    NameSize {
        /// Its length in bytes.
        found: usize,
    },
    /// The system cannot create a thread.
    #[error("cannot start thread {name}: {source}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The journal did not accept the final scrape; it is lost.
    #[error("cannot store the final host scrape: {0}")]
    FinalReading(#[from] intake::Error),
}
