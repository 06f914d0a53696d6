//! Host collector errors.

use std::io;

use crate::settings::Settings;

/// The result of starting and stopping.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error starting or stopping the host collector. That the kernel refuses a program is no error:
/// see [`crate::Host::notes`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No name.
    #[error("the host's name has {found} bytes, 1 to {} are allowed", Settings::HOST_BYTES_MAX)]
    NameSize {
        /// How many it has.
        found: usize,
    },
    /// The system has no thread for it.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The last reading was not taken, and is lost.
    #[error("the host's last reading was not taken: {0}")]
    FinalReading(#[from] intake::Error),
}
