//! Listen addresses.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where it is listened; of port 0, the port that the system chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Datagrams.
    Udp(SocketAddr),
    /// Connections.
    Tcp(SocketAddr),
    /// Datagrams, on this host.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Udp(address) => write!(f, "udp {address}"),
            ListenAddress::Tcp(address) => write!(f, "tcp {address}"),
            ListenAddress::Unix(path) => write!(f, "unix {}", path.display()),
        }
    }
}
