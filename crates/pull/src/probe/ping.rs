//! Ping probe: one ICMP echo request.
//!
//! Source: RFC 792 and 4443. Linux has two kinds of sockets for it: datagram sockets, for the
//! groups in `net.ipv4.ping_group_range`, and raw sockets, for programs with CAP_NET_RAW.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use serde::Deserialize;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::probe::{Attempt, Probe, random_id};

/// Header of an echo: type, code, checksum, identifier, sequence number.
const HEADER_BYTES: usize = 8;
/// As `ping` of iputils.
const PAYLOAD_BYTES: u16 = 56;
/// Largest payload of an IPv4 packet.
const PAYLOAD_BYTES_MAX: u16 = 65_507;
/// Payloads begin with a number that tells requests apart.
const ID_BYTES: usize = 8;

/// `ping = "host"`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct PingProbe {
    /// Name or address.
    pub ping: String,
    /// Bytes of the payload, 8 to 65,507; default: 56.
    pub payload_bytes: Option<u16>,
}

/// Types of ICMP messages of an address family.
struct EchoTypes {
    request: u8,
    reply: u8,
}

impl EchoTypes {
    fn new(address: IpAddr) -> EchoTypes {
        match address {
            IpAddr::V4(_) => EchoTypes { request: 8, reply: 0 },
            IpAddr::V6(_) => EchoTypes { request: 128, reply: 129 },
        }
    }
}

/// Socket for ICMP.
struct EchoSocket {
    socket: UdpSocket,
    /// Whether received packets begin with the IP header.
    has_ip_header: bool,
}

impl EchoSocket {
    fn open(address: SocketAddr) -> io::Result<EchoSocket> {
        let (domain, protocol) = match address {
            SocketAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            SocketAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let open = |kind| -> io::Result<UdpSocket> {
            let socket = Socket::new(domain, kind, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.connect(&address.into())?;
            UdpSocket::from_std(socket.into())
        };
        if let Ok(socket) = open(Type::DGRAM) {
            return Ok(EchoSocket { socket, has_ip_header: false });
        }
        let socket = open(Type::RAW)?;
        Ok(EchoSocket { socket, has_ip_header: address.is_ipv4() })
    }
}

/// Echo request with a payload that begins with `id`. The kernel replaces the identifier of
/// datagram sockets, and the checksum of IPv6.
fn echo_request(kind: u8, id: u64, payload_bytes: u16) -> Vec<u8> {
    let mut packet = vec![0; HEADER_BYTES + usize::from(payload_bytes)];
    packet[0] = kind;
    let bytes = id.to_be_bytes();
    packet[4..6].copy_from_slice(&bytes[..2]);
    packet[7] = 1;
    packet[HEADER_BYTES..HEADER_BYTES + ID_BYTES].copy_from_slice(&bytes);
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Internet checksum (RFC 1071).
fn checksum(packet: &[u8]) -> u16 {
    let words = packet
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Whether a received packet answers the request with `id`.
fn is_reply(packet: &[u8], has_ip_header: bool, reply: u8, id: u64) -> bool {
    let header = match packet.first() {
        // The length of the header in words of 32 bits.
        Some(first) if has_ip_header => usize::from(first & 15) * 4,
        _ => 0,
    };
    let Some(echo) = packet.get(header..) else { return false };
    let payload = echo.get(HEADER_BYTES..HEADER_BYTES + ID_BYTES);
    echo.first() == Some(&reply) && payload == Some(&id.to_be_bytes())
}

impl PingProbe {
    fn payload_bytes(&self) -> u16 {
        self.payload_bytes.unwrap_or(PAYLOAD_BYTES)
    }
}

impl Probe for PingProbe {
    const KEY: &'static str = "ping";
    const KEYS: &'static [&'static str] = &["ping", "payload_bytes"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        if let Err(error) = self.endpoint() {
            check.problem(
                table,
                "ping",
                format!("{}; expected a name or an address", error.reason),
            );
        }
        if !(ID_BYTES as u16..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes()) {
            let what = format!("payload_bytes must be {ID_BYTES} to {PAYLOAD_BYTES_MAX}");
            check.problem(table, "payload_bytes", what);
        }
    }

    fn url(&self) -> String {
        match self.ping.contains(':') && !self.ping.starts_with('[') {
            true => format!("icmp://[{}]", self.ping),
            false => format!("icmp://{}", self.ping),
        }
    }

    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        // ICMP has no ports.
        Endpoint::parse_as(&self.url(), false, Some(0))
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let address = attempt.resolve().await?;
        let EchoSocket { socket, has_ip_header } =
            EchoSocket::open(address).map_err(|error| open_error(&error))?;
        let (types, id) = (EchoTypes::new(address.ip()), random_id());
        let request = echo_request(types.request, id, self.payload_bytes());
        let began = Instant::now();
        socket.send(&request).await.map_err(|error| format!("cannot send: {error}"))?;
        let mut packet = vec![0; usize::from(u16::MAX)];
        loop {
            let received = socket.recv(&mut packet).await;
            let took = began.elapsed();
            let length = received.map_err(|error| format!("no reply: {error}"))?;
            if is_reply(&packet[..length], has_ip_header, types.reply, id) {
                attempt.report.phases.push(("wait", took));
                return Ok(());
            }
        }
    }
}

fn open_error(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; add the group of topdeck to net.ipv4.ping_group_range, or grant CAP_NET_RAW"
        }
        _ => "",
    };
    format!("cannot open an ICMP socket: {error}{remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_valid_checksum() {
        for bytes in [8, 9, 56, 1_473] {
            let packet = echo_request(8, 0x0102_0304_0506_0708, bytes);
            assert_eq!(packet.len(), 8 + usize::from(bytes));
            // The sum over a packet with its checksum is all ones, whose complement is 0.
            assert_eq!(checksum(&packet), 0);
            assert_eq!(packet[4..8], [1, 2, 0, 1]);
        }
    }

    #[test]
    fn only_the_reply_to_the_request_counts() {
        let mut reply = echo_request(0, 77, 56);
        assert!(is_reply(&reply, false, 0, 77));
        assert!(!is_reply(&reply, false, 0, 78), "of another request");
        assert!(!is_reply(&reply, false, 129, 77), "of another type");
        assert!(!is_reply(&reply[..12], false, 0, 77) && !is_reply(&[], true, 0, 77));
        let mut with_header = vec![0x46; 24];
        with_header.append(&mut reply);
        assert!(is_reply(&with_header, true, 0, 77), "behind options of IP");
        assert!(!is_reply(&[0x4f; 20], true, 0, 77), "a header longer than the packet");
    }

    #[test]
    fn addresses_of_both_families_are_urls() {
        let url = |ping: &str| PingProbe { ping: ping.to_owned(), ..PingProbe::default() };
        assert_eq!(url("a.example").endpoint().unwrap().host, "a.example");
        assert_eq!(url("::1").endpoint().unwrap().host, "::1");
        assert_eq!(url("[::1]").endpoint().unwrap().host, "::1");
        assert!(url("").endpoint().is_err());
    }
}
