//! Names of clients: their address, or the network that it is in, for a bounded number of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name of all clients beyond the limit.
pub const OTHER_PEERS: &str = "other";

/// How clients are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Leading bits of an IPv4 address that tell clients apart, at most 32.
    pub ipv4_prefix: u8,
    /// Leading bits of an IPv6 address that tell clients apart, at most 128.
    pub ipv6_prefix: u8,
    /// Clients or networks of a service that have a name in an interval; the others are
    /// [`OTHER_PEERS`].
    pub peers_max: usize,
}

/// Names of the clients of a service in an interval.
#[derive(Debug)]
pub(crate) struct PeerTable {
    settings: PeerSettings,
    names: HashMap<IpAddr, Box<str>>,
}

impl PeerTable {
    pub(crate) fn new(settings: PeerSettings) -> PeerTable {
        PeerTable { settings, names: HashMap::new() }
    }

    /// The name of a client.
    pub(crate) fn name(&mut self, client: IpAddr) -> &str {
        let network = self.settings.network(client);
        if self.names.len() >= self.settings.peers_max && !self.names.contains_key(&network) {
            return OTHER_PEERS;
        }
        self.names.entry(network).or_insert_with(|| self.settings.network_name(network))
    }

    /// Starts an interval.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
    }
}

impl PeerSettings {
    /// The first address of the network of a client.
    fn network(&self, client: IpAddr) -> IpAddr {
        match client.to_canonical() {
            IpAddr::V4(address) => {
                let unused = 32_u32.saturating_sub(self.ipv4_prefix.into());
                let mask = u32::MAX.checked_shl(unused).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let unused = 128_u32.saturating_sub(self.ipv6_prefix.into());
                let mask = u128::MAX.checked_shl(unused).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        }
    }

    fn network_name(&self, network: IpAddr) -> Box<str> {
        let (prefix, whole) = match network {
            IpAddr::V4(_) => (self.ipv4_prefix, 32),
            IpAddr::V6(_) => (self.ipv6_prefix, 128),
        };
        match prefix >= whole {
            true => network.to_string().into(),
            false => format!("{network}/{prefix}").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ipv4_prefix: u8, ipv6_prefix: u8, client: &str, expected: &str) {
        let mut table = PeerTable::new(PeerSettings { ipv4_prefix, ipv6_prefix, peers_max: 1 });
        assert_eq!(table.name(client.parse().unwrap()), expected);
    }

    #[test]
    fn a_name_is_an_address_or_a_network() {
        check(32, 128, "10.1.2.3", "10.1.2.3");
        check(24, 64, "10.1.2.3", "10.1.2.0/24");
        check(0, 0, "10.1.2.3", "0.0.0.0/0");
        check(32, 128, "2001:db8::1", "2001:db8::1");
        check(32, 48, "2001:db8:1:2::3", "2001:db8:1::/48");
        check(32, 0, "2001:db8::1", "::/0");
        check(24, 64, "::ffff:10.1.2.3", "10.1.2.0/24");
    }

    #[test]
    fn names_are_bounded() {
        let settings = PeerSettings { ipv4_prefix: 32, ipv6_prefix: 128, peers_max: 2 };
        let mut table = PeerTable::new(settings);
        let mut names = |last: &[u8]| -> Vec<String> {
            let of = |last: &u8| table.name(IpAddr::from([10, 0, 0, *last])).to_owned();
            last.iter().map(of).collect()
        };
        assert_eq!(
            names(&[1, 2, 3, 1, 2]),
            ["10.0.0.1", "10.0.0.2", "other", "10.0.0.1", "10.0.0.2"]
        );
        table.clear();
        assert_eq!(table.name(IpAddr::from([10, 0, 0, 3])), "10.0.0.3");
    }
}
