//! Start errors.

use std::io;
use std::path::PathBuf;

use crate::listen_address::ListenAddress;

/// The result of starting.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Start errors. No socket stays open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refuses the address: it is taken, not this host's, or not allowed.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Where.
        address: ListenAddress,
        /// Why.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("cannot listen on {}: a process is listening there already; stop it, or name another \
             path", path.display())]
    AddressInUse {
        /// Where.
        path: PathBuf,
    },
    /// Something else is in the place of the socket; it is not removed.
    #[error("cannot listen on {}: it is there, and it is no socket; remove it, or name another \
             path", path.display())]
    NotASocket {
        /// Where.
        path: PathBuf,
    },
    /// There are no sockets to listen on.
    #[error("no address to listen on is given")]
    NoAddress,
    /// The system gives no thread or descriptor.
    #[error("cannot start to listen: {0}")]
    System(#[from] io::Error),
}
