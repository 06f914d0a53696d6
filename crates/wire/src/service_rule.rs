//! Rules: which connections belong to which service, and how users write them.
//!
//! A rule is written as `[NAME=][ADDRESS:]PORT/PROTOCOL`: `6380/redis`,
//! `orders=10.0.0.5:5433/postgres`.

use std::net::{IpAddr, SocketAddr};

use protocol::PROTOCOLS;
use protocol::observer::ObservedProtocol;

/// What carries the messages of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceTransport {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Which connections belong to a service.
#[derive(Clone)]
pub struct ServiceRule {
    /// Address of the server; `None` for any.
    pub address: Option<IpAddr>,
    /// Port of the server.
    pub port: u16,
    /// What carries the protocol.
    pub transport: ServiceTransport,
    /// What is spoken there.
    pub protocol: &'static ObservedProtocol,
    /// Name in the output; the address and port of each server if `None`.
    pub name: Option<String>,
}

/// Protocols whose messages are also sent in datagrams.
const DATAGRAM_PROTOCOLS: &[&str] = &["dns"];

impl ServiceRule {
    /// Parses `[NAME=][ADDRESS:]PORT/PROTOCOL`, a rule of streams.
    pub fn parse(text: &str) -> Result<ServiceRule, String> {
        let expected =
            || "expected [NAME=][ADDRESS:]PORT/PROTOCOL, as in orders=10.0.0.5:5433/postgres";
        let (name, rest) = match text.split_once('=') {
            Some(("", _)) => return Err(expected().to_owned()),
            Some((name, rest)) => (Some(name.to_owned()), rest),
            None => (None, text),
        };
        let (place, protocol) = rest.rsplit_once('/').ok_or_else(expected)?;
        let (address, port) = parse_place(place).ok_or_else(expected)?;
        let (transport, protocol) = (ServiceTransport::Tcp, find_protocol(protocol)?);
        Ok(ServiceRule { address, port, transport, protocol, name })
    }

    /// These rules, and behind them those of the default ports of `protocols`. Protocols whose
    /// messages are also sent in datagrams have rules for both.
    pub fn with_default_ports<'a>(
        rules: impl IntoIterator<Item = ServiceRule>,
        protocols: impl IntoIterator<Item = &'a &'static ObservedProtocol>,
    ) -> Vec<ServiceRule> {
        let defaults = protocols.into_iter().flat_map(|protocol| {
            let transport = ServiceTransport::Tcp;
            let rule = move |port: &u16| ServiceRule {
                address: None,
                port: *port,
                transport,
                protocol,
                name: None,
            };
            protocol.default_ports.iter().map(rule)
        });
        let streams: Vec<ServiceRule> = rules.into_iter().chain(defaults).collect();
        let with_datagrams = |rule: &&ServiceRule| DATAGRAM_PROTOCOLS.contains(&rule.protocol.name);
        let datagrams = streams.iter().filter(with_datagrams).cloned();
        let datagrams =
            datagrams.map(|rule| ServiceRule { transport: ServiceTransport::Udp, ..rule });
        let datagrams: Vec<ServiceRule> = datagrams.collect();
        [streams, datagrams].concat()
    }

    /// Ports of the rules, each once.
    pub fn ports(rules: &[ServiceRule]) -> Vec<u16> {
        let mut ports: Vec<u16> = rules.iter().map(|rule| rule.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

fn parse_place(place: &str) -> Option<(Option<IpAddr>, u16)> {
    let (address, port) = match place.parse::<SocketAddr>() {
        Ok(server) => (Some(server.ip()), server.port()),
        Err(_) => (None, place.parse().ok()?),
    };
    (port != 0).then_some((address, port))
}

/// The protocol with this name; the error lists all names.
pub fn find_protocol(name: &str) -> Result<&'static ObservedProtocol, String> {
    PROTOCOLS.iter().find(|protocol| protocol.name == name).ok_or_else(|| {
        let names: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.name).collect();
        format!("unknown protocol {name}; known are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, address, port and protocol.
    type ExpectedRule<'a> = Option<(Option<&'a str>, Option<&'a str>, u16, &'a str)>;

    #[track_caller]
    fn check(text: &str, expected: ExpectedRule<'_>) {
        let found = ServiceRule::parse(text).ok();
        let found = found.as_ref().map(|rule| {
            let address = rule.address.map(|address| address.to_string());
            (rule.name.clone(), address, rule.port, rule.protocol.name)
        });
        let expected = expected.map(|(name, address, port, protocol)| {
            (name.map(str::to_owned), address.map(str::to_owned), port, protocol)
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn services_have_a_port_and_a_protocol() {
        check("6380/redis", Some((None, None, 6380, "redis")));
        check("cache=6380/redis", Some((Some("cache"), None, 6380, "redis")));
        let orders = Some((Some("orders"), Some("10.0.0.5"), 5433, "postgres"));
        check("orders=10.0.0.5:5433/postgres", orders);
        check("[::1]:5433/postgres", Some((None, Some("::1"), 5433, "postgres")));
        for wrong in
            ["", "6380", "=6380/redis", "0/redis", "65536/redis", "host:1/redis", "1/gopher"]
        {
            check(wrong, None);
        }
    }

    #[test]
    fn named_services_come_before_default_ports() {
        let mine = ServiceRule::parse("mine=6379/redis").unwrap();
        let protocols: Vec<&ObservedProtocol> = PROTOCOLS.iter().collect();
        let all = ServiceRule::with_default_ports([mine.clone()], &protocols);
        assert_eq!(all[0].name.as_deref(), Some("mine"));
        assert!(all.iter().any(|rule| rule.port == 5432 && rule.protocol.name == "postgres"));
        let is_dns_datagram =
            |rule: &ServiceRule| rule.port == 53 && rule.transport == ServiceTransport::Udp;
        assert_eq!(all.iter().filter(|rule| is_dns_datagram(rule)).count(), 1);
        assert_eq!(ServiceRule::with_default_ports([mine], &[]).len(), 1);
        assert_eq!(ServiceRule::ports(&all).iter().filter(|port| **port == 6379).count(), 1);
    }
}
