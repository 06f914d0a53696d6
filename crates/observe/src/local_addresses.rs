//! Which addresses are those of this host, in the network namespace of this process.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use wire::ConnectionEnd;

/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 4_096;
/// Time after which they are looked up again: addresses of a host change rarely.
const LIFETIME: Duration = Duration::from_secs(60);

/// Addresses that were looked up.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    known: HashMap<IpAddr, bool>,
    since: Instant,
}

impl LocalAddresses {
    pub(crate) fn new() -> LocalAddresses {
        LocalAddresses { known: HashMap::new(), since: Instant::now() }
    }

    /// The end of a connection that this host is; `None` if it is neither or both.
    pub(crate) fn end_of(
        &mut self,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Option<ConnectionEnd> {
        match [client, server].map(|address| self.is_local(address.ip())) {
            [true, false] => Some(ConnectionEnd::Client),
            [false, true] => Some(ConnectionEnd::Server),
            _ => None,
        }
    }

    /// A socket can be bound to addresses of this host only.
    fn is_local(&mut self, ip: IpAddr) -> bool {
        if self.known.len() >= ADDRESSES_MAX || self.since.elapsed() >= LIFETIME {
            *self = LocalAddresses::new();
        }
        *self.known.entry(ip).or_insert_with(|| UdpSocket::bind((ip, 0)).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(client: &str, server: &str, expected: Option<ConnectionEnd>) {
        let [client, server] = [client, server].map(|text| text.parse().unwrap());
        assert_eq!(LocalAddresses::new().end_of(client, server), expected);
    }

    #[test]
    fn the_end_of_a_connection_is_known_by_its_addresses() {
        // Reserved addresses (RFC 1112) are of no host.
        check("127.0.0.1:40000", "240.0.0.1:80", Some(ConnectionEnd::Client));
        check("240.0.0.1:40000", "127.0.0.1:80", Some(ConnectionEnd::Server));
        check("127.0.0.1:40000", "127.0.0.1:80", None);
        check("240.0.0.1:40000", "240.0.0.2:80", None);
    }
}
