//! Services of the command line: `[NAME=][ADDRESS:]PORT/PROTOCOL`.

use std::net::{IpAddr, SocketAddr};

use protocol::PROTOCOLS;
use protocol::observer::ObservedProtocol;
use wire::{ServiceRule, ServiceTransport};

/// A service of `--service`.
#[derive(Clone)]
pub(crate) struct ServiceArgument {
    rule: ServiceRule,
}

/// Protocols whose messages are also sent in datagrams.
const DATAGRAM_PROTOCOLS: &[&str] = &["dns"];

/// Rules of the arguments, and behind them those of all default ports unless `only`.
pub(crate) fn rules(arguments: &[ServiceArgument], only: bool) -> Vec<ServiceRule> {
    let named = arguments.iter().map(|argument| argument.rule.clone());
    let defaults = PROTOCOLS.iter().filter(|_| !only).flat_map(|protocol| {
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
    let streams: Vec<ServiceRule> = named.chain(defaults).collect();
    let with_datagrams = |rule: &&ServiceRule| DATAGRAM_PROTOCOLS.contains(&rule.protocol.name);
    let datagrams = streams.iter().filter(with_datagrams).cloned();
    let datagrams = datagrams.map(|rule| ServiceRule { transport: ServiceTransport::Udp, ..rule });
    let datagrams: Vec<ServiceRule> = datagrams.collect();
    [streams, datagrams].concat()
}

pub(crate) fn parse(text: &str) -> Result<ServiceArgument, String> {
    let expected =
        || "expected [NAME=][ADDRESS:]PORT/PROTOCOL, as in orders=10.0.0.5:5433/postgres";
    let (name, rest) = match text.split_once('=') {
        Some(("", _)) => return Err(expected().to_owned()),
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, text),
    };
    let (place, protocol) = rest.rsplit_once('/').ok_or_else(expected)?;
    let (address, port) = parse_place(place).ok_or_else(expected)?;
    let (transport, protocol) = (ServiceTransport::Tcp, find(protocol)?);
    Ok(ServiceArgument { rule: ServiceRule { address, port, transport, protocol, name } })
}

fn parse_place(place: &str) -> Option<(Option<IpAddr>, u16)> {
    let (address, port) = match place.parse::<SocketAddr>() {
        Ok(server) => (Some(server.ip()), server.port()),
        Err(_) => (None, place.parse().ok()?),
    };
    (port != 0).then_some((address, port))
}

fn find(name: &str) -> Result<&'static ObservedProtocol, String> {
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
        let found = parse(text).ok().map(|argument| argument.rule);
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
        let all = rules(&[parse("mine=6379/redis").unwrap()], false);
        assert_eq!(all[0].name.as_deref(), Some("mine"));
        assert!(all.iter().any(|rule| rule.port == 5432 && rule.protocol.name == "postgres"));
        assert_eq!(rules(&[parse("6380/redis").unwrap()], true).len(), 1);
    }
}
