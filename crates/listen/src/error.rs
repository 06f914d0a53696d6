//! Start errors.

use std::io;
use std::path::PathBuf;

use crate::listen_address::ListenAddress;

/// Result of starting a listener.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Start error. No socket stays open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused the address: it is in use, not on this host, or not permitted.
    #[error("cannot listen on {address}: {source}{}", bind_remedy(source))]
    Bind {
        /// Listen address.
        address: ListenAddress,
        /// System error.
        source: io::Error,
    },
    /// Another process listens on the socket.
    #[error("cannot listen on {}: another process listens there; stop it or choose \
             another path", path.display())]
    AddressInUse {
        /// Socket path.
        path: PathBuf,
    },
    /// A file that is not a socket exists at the path; it is not removed.
    #[error("cannot listen on {}: the file exists and is not a socket; remove it \
             or choose another path", path.display())]
    NotASocket {
        /// Socket path.
        path: PathBuf,
    },
    /// No addresses are configured.
    #[error("cannot listen: no address configured")]
    NoAddress,
    /// The system has no thread or descriptor left.
    #[error("cannot start the listener: {0}")]
    System(#[from] io::Error),
}

fn bind_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; find the process that uses it with `ss -lntup`, and stop it or choose another \
             address"
        }
        _ => "",
    }
}
