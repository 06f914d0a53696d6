//! Decoding of a packet: link layer, VLAN tags, IPv4 or IPv6, TCP or UDP.
//!
//! Sizes are those on the network, not those that were captured: a payload that the capture cut is
//! shorter than [`Packet::payload_bytes`]. Checksums are not checked, because network cards
//! calculate them after the capture. IP fragments are not reassembled but counted: their first part
//! has ports, the others do not, so a stream with fragments has gaps.
//!
//! Sources: RFC 791, RFC 8200 (extension headers), RFC 2675 (jumbograms), RFC 9293, and
//! Documentation/networking of Linux (BIG TCP: an IPv4 total length of 0 means that the size of the
//! frame counts).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::capture_file::LinkType;

/// VLAN tags before the network layer; provider bridges use two.
const VLAN_TAGS_MAX: usize = 4;
/// Extension headers of IPv6 that are followed.
const EXTENSION_HEADERS_MAX: usize = 16;

const ETHER_TYPE_IPV4: u16 = 0x0800;
const ETHER_TYPE_IPV6: u16 = 0x86dd;
const ETHER_TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];

pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;

/// A decoded TCP segment or UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Sender.
    pub source: SocketAddr,
    /// Receiver.
    pub destination: SocketAddr,
    /// Header of TCP or UDP.
    pub transport: TransportHeader,
    /// The captured bytes of the payload.
    pub payload: &'a [u8],
    /// Size of the payload on the network.
    pub payload_bytes: u64,
}

/// Header of the transport layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportHeader {
    /// A segment.
    Tcp {
        /// Number of the first byte.
        sequence: u32,
        /// Number of the next byte that the sender expects; valid with [`TcpFlags::ACK`].
        acknowledgement: u32,
        /// Flags of the header.
        flags: TcpFlags,
    },
    /// A datagram.
    Udp,
}

/// Flags of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more bytes.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// The sender opens the connection.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// The sender aborts the connection.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// The acknowledgement number is valid.
    pub const ACK: TcpFlags = TcpFlags(0x10);

    /// Whether all flags of `others` are set.
    pub fn contains(self, others: TcpFlags) -> bool {
        self.0 & others.0 == others.0
    }
}

/// Why a packet is not a [`Packet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UndecodedReason {
    /// The link type is not supported.
    LinkType,
    /// ARP and other protocols of the link layer.
    NotIp,
    /// A fragment of an IP datagram.
    Fragment,
    /// ICMP and others, and encrypted payload (ESP).
    OtherTransport,
    /// The capture cut the packet inside its headers.
    Cut,
    /// Fields contradict each other.
    Malformed,
}

impl UndecodedReason {
    /// All reasons, in the order of their declaration.
    pub const ALL: [UndecodedReason; 6] = [
        UndecodedReason::LinkType,
        UndecodedReason::NotIp,
        UndecodedReason::Fragment,
        UndecodedReason::OtherTransport,
        UndecodedReason::Cut,
        UndecodedReason::Malformed,
    ];

    /// Value of the label `reason`.
    pub fn label(self) -> &'static str {
        match self {
            UndecodedReason::LinkType => "link_type",
            UndecodedReason::NotIp => "not_ip",
            UndecodedReason::Fragment => "fragment",
            UndecodedReason::OtherTransport => "other_transport",
            UndecodedReason::Cut => "cut",
            UndecodedReason::Malformed => "malformed",
        }
    }
}

/// Bytes of a layer and above: those that were captured, and their number on the network.
#[derive(Clone, Copy)]
struct LayerBytes<'a> {
    captured: &'a [u8],
    length: u64,
}

impl<'a> LayerBytes<'a> {
    /// The first `N` bytes.
    fn head<const N: usize>(self) -> Result<&'a [u8; N], UndecodedReason> {
        let is_whole = self.length >= N as u64;
        let missing = if is_whole { UndecodedReason::Cut } else { UndecodedReason::Malformed };
        self.captured.first_chunk().ok_or(missing)
    }

    /// What follows the first `count` bytes, which may have been cut.
    fn skip(self, count: usize) -> Result<LayerBytes<'a>, UndecodedReason> {
        let length = self.length.checked_sub(count as u64).ok_or(UndecodedReason::Malformed)?;
        Ok(LayerBytes { captured: self.captured.get(count..).unwrap_or_default(), length })
    }

    /// Without what follows the first `length` bytes, such as padding of the link layer.
    fn limit(self, length: u64) -> Result<LayerBytes<'a>, UndecodedReason> {
        if self.length < length {
            return Err(UndecodedReason::Malformed);
        }
        let end = usize::try_from(length).unwrap_or(usize::MAX).min(self.captured.len());
        Ok(LayerBytes { captured: &self.captured[..end], length })
    }
}

impl<'a> Packet<'a> {
    /// Decodes a packet of which `captured` are the first bytes of `original_bytes`.
    pub fn decode(
        link_type: LinkType,
        captured: &'a [u8],
        original_bytes: u32,
    ) -> Result<Packet<'a>, UndecodedReason> {
        let length = u64::from(original_bytes).max(captured.len() as u64);
        let frame = LayerBytes { captured, length };
        match link_type {
            LinkType::Ethernet => {
                let header = frame.head::<14>()?;
                network_layer(u16::from_be_bytes([header[12], header[13]]), frame.skip(14)?)
            }
            LinkType::LinuxCooked => {
                let header = frame.head::<16>()?;
                network_layer(u16::from_be_bytes([header[14], header[15]]), frame.skip(16)?)
            }
            LinkType::LinuxCooked2 => {
                let header = frame.head::<20>()?;
                network_layer(u16::from_be_bytes([header[0], header[1]]), frame.skip(20)?)
            }
            // The family's number differs between systems; the version of IP does not.
            LinkType::Loopback => any_ip(frame.skip(4)?),
            LinkType::RawIp => any_ip(frame),
            LinkType::Other(_) => Err(UndecodedReason::LinkType),
        }
    }
}

fn network_layer(
    mut ether_type: u16,
    mut bytes: LayerBytes<'_>,
) -> Result<Packet<'_>, UndecodedReason> {
    for _ in 0..VLAN_TAGS_MAX {
        if !ETHER_TYPES_VLAN.contains(&ether_type) {
            break;
        }
        let tag = bytes.head::<4>()?;
        ether_type = u16::from_be_bytes([tag[2], tag[3]]);
        bytes = bytes.skip(4)?;
    }
    match ether_type {
        ETHER_TYPE_IPV4 => ipv4(bytes),
        ETHER_TYPE_IPV6 => ipv6(bytes),
        _ => Err(UndecodedReason::NotIp),
    }
}

fn any_ip(bytes: LayerBytes<'_>) -> Result<Packet<'_>, UndecodedReason> {
    match bytes.head::<1>()?[0] >> 4 {
        4 => ipv4(bytes),
        6 => ipv6(bytes),
        _ => Err(UndecodedReason::NotIp),
    }
}

fn ipv4(bytes: LayerBytes<'_>) -> Result<Packet<'_>, UndecodedReason> {
    let header = bytes.head::<20>()?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 {
        return Err(UndecodedReason::Malformed);
    }
    let total = u16::from_be_bytes([header[2], header[3]]);
    let datagram = if total == 0 { bytes } else { bytes.limit(u64::from(total))? };
    // More fragments, or an offset.
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err(UndecodedReason::Fragment);
    }
    let address = |at: usize| {
        IpAddr::V4(Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]))
    };
    transport_layer(header[9], address(12), address(16), datagram.skip(header_bytes)?)
}

fn ipv6(bytes: LayerBytes<'_>) -> Result<Packet<'_>, UndecodedReason> {
    let header = bytes.head::<40>()?;
    if header[0] >> 4 != 6 {
        return Err(UndecodedReason::Malformed);
    }
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    let (source, destination) = (address(8), address(24));
    let payload_length = u64::from(u16::from_be_bytes([header[4], header[5]]));
    let mut rest = bytes.skip(40)?;
    // 0 is a jumbogram, whose size is that of the frame.
    if payload_length != 0 {
        rest = rest.limit(payload_length)?;
    }
    let mut next = header[6];
    for _ in 0..EXTENSION_HEADERS_MAX {
        let header_bytes = match next {
            // Hop-by-hop options, routing, destination options.
            0 | 43 | 60 => usize::from(rest.head::<2>()?[1]) * 8 + 8,
            // Authentication.
            51 => usize::from(rest.head::<2>()?[1]) * 4 + 8,
            // A fragment header that is the whole datagram (an atomic fragment) splits nothing.
            44 => {
                let fragment = rest.head::<8>()?;
                if u16::from_be_bytes([fragment[2], fragment[3]]) & 0xfff9 != 0 {
                    return Err(UndecodedReason::Fragment);
                }
                8
            }
            _ => return transport_layer(next, source, destination, rest),
        };
        next = rest.head::<1>()?[0];
        rest = rest.skip(header_bytes)?;
    }
    Err(UndecodedReason::Malformed)
}

fn transport_layer(
    protocol: u8,
    source: IpAddr,
    destination: IpAddr,
    bytes: LayerBytes<'_>,
) -> Result<Packet<'_>, UndecodedReason> {
    let (transport, ports, payload) = match protocol {
        PROTOCOL_TCP => {
            let header = bytes.head::<20>()?;
            let header_bytes = usize::from(header[12] >> 4) * 4;
            if header_bytes < 20 {
                return Err(UndecodedReason::Malformed);
            }
            let number = |at: usize| {
                u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let (sequence, acknowledgement) = (number(4), number(8));
            let transport =
                TransportHeader::Tcp { sequence, acknowledgement, flags: TcpFlags(header[13]) };
            (transport, [header[0], header[1], header[2], header[3]], bytes.skip(header_bytes)?)
        }
        PROTOCOL_UDP => {
            let header = bytes.head::<8>()?;
            let length = u64::from(u16::from_be_bytes([header[4], header[5]]));
            if (1..8).contains(&length) {
                return Err(UndecodedReason::Malformed);
            }
            let datagram = if length == 0 { bytes } else { bytes.limit(length)? };
            (TransportHeader::Udp, [header[0], header[1], header[2], header[3]], datagram.skip(8)?)
        }
        _ => return Err(UndecodedReason::OtherTransport),
    };
    let [s0, s1, d0, d1] = ports;
    Ok(Packet {
        source: SocketAddr::new(source, u16::from_be_bytes([s0, s1])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([d0, d1])),
        transport,
        payload: payload.captured,
        payload_bytes: payload.length,
    })
}

#[cfg(test)]
mod tests;
