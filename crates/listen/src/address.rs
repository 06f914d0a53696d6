//! Where it is listened.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where it is listened; of port 0, the port that the system chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Datagrams.
    Udp(SocketAddr),
    /// Connections.
    Tcp(SocketAddr),
    /// Datagrams, on this host.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Udp(address) => write!(f, "udp {address}"),
            Address::Tcp(address) => write!(f, "tcp {address}"),
            Address::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}
