//! Listen addresses.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Listen address; port 0 is replaced by the port that the system assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// UDP.
    Udp(SocketAddr),
    /// TCP.
    Tcp(SocketAddr),
    /// Unix datagram socket.
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
