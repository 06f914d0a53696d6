//! Headers of all link types, extension headers, sizes, and damage.

use super::*;

const TCP: [u8; 20] =
    [0x14, 0xeb, 0x9c, 0x40, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x18, 0, 0, 0, 0, 0, 0];
const MAC: [u8; 12] = [0; 12];

fn ipv4_header(total: u16, fragment: u16, protocol: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    header
}

fn ipv6_header(length: u16, next: u8) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0];
    header.extend(length.to_be_bytes());
    header.extend([next, 64]);
    header.extend([0; 15]);
    header.push(1);
    header.extend([0; 15]);
    header.push(2);
    header
}

fn segment(payload: &[u8]) -> Vec<u8> {
    [ipv4_header((40 + payload.len()) as u16, 0x4000, 6), TCP.to_vec(), payload.to_vec()].concat()
}

/// Payload of the packet, its size on the network, and its source port.
type ExpectedPayload<'a> = Result<(&'a [u8], u64), UndecodedReason>;

#[track_caller]
fn check(link_type: LinkType, parts: &[&[u8]], original_bytes: u32, expected: ExpectedPayload<'_>) {
    let bytes = parts.concat();
    let found = Packet::decode(link_type, &bytes, original_bytes);
    assert_eq!(found.map(|packet| (packet.payload, packet.payload_bytes)), expected);
    if let Ok(packet) = found {
        assert_eq!((packet.source.port(), packet.destination.port()), (5355, 40_000));
    }
}

#[test]
fn link_layers_and_vlan_tags() {
    let ip = segment(b"abc");
    let expected = Ok((&b"abc"[..], 3));
    check(LinkType::RawIp, &[&ip], 0, expected);
    check(LinkType::Loopback, &[&[2, 0, 0, 0], &ip], 0, expected);
    check(LinkType::Ethernet, &[&MAC, &[8, 0], &ip], 0, expected);
    check(LinkType::LinuxCooked, &[&[0; 14], &[8, 0], &ip], 0, expected);
    check(LinkType::LinuxCooked2, &[&[8, 0], &[0; 18], &ip], 0, expected);
    let tags: [&[u8]; 2] = [&[0x88, 0xa8, 0, 5], &[0x81, 0, 0, 6]];
    check(LinkType::Ethernet, &[&MAC, tags[0], tags[1], &[8, 0], &ip], 0, expected);
    check(LinkType::Ethernet, &[&MAC, &[8, 6], &ip], 0, Err(UndecodedReason::NotIp));
    check(LinkType::Other(7), &[&ip], 0, Err(UndecodedReason::LinkType));
}

#[test]
fn padding_is_not_payload_and_a_cut_payload_has_its_size() {
    check(LinkType::RawIp, &[&segment(b""), &[0; 6]], 0, Ok((b"", 0)));
    let ip = segment(&[7; 100]);
    check(LinkType::RawIp, &[&ip[..60]], 140, Ok((&[7; 20], 100)));
    check(LinkType::RawIp, &[&ip[..39]], 140, Err(UndecodedReason::Cut));
    check(LinkType::RawIp, &[&ip[..39]], 39, Err(UndecodedReason::Malformed));
}

#[test]
fn big_tcp_has_the_size_of_its_frame() {
    let ip = [ipv4_header(0, 0, 6), TCP.to_vec(), vec![1; 70_000]].concat();
    check(LinkType::RawIp, &[&ip], 0, Ok((&[1; 70_000], 70_000)));
    check(LinkType::RawIp, &[&ip[..50]], 70_040, Ok((&[1; 10], 70_000)));
    let ip = [ipv6_header(0, 0), vec![6, 0, 0xc2, 4, 0, 1, 0x11, 0x84], TCP.to_vec()].concat();
    check(LinkType::RawIp, &[&ip, &[1; 70_000]], 0, Ok((&[1; 70_000], 70_000)));
}

#[test]
fn extension_headers_are_followed() {
    let routing = [60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let destination = [6, 0, 0, 0, 0, 0, 0, 0];
    let ip = ipv6_header(16 + 8 + 20 + 2, 43);
    check(LinkType::RawIp, &[&ip, &routing, &destination, &TCP, b"ab"], 0, Ok((b"ab", 2)));
    let atomic = [6, 0, 0, 0, 0, 0, 0, 1];
    check(LinkType::RawIp, &[&ipv6_header(28, 44), &atomic, &TCP], 0, Ok((b"", 0)));
    let endless = [0; 8].repeat(40);
    let ip = ipv6_header(320, 0);
    check(LinkType::RawIp, &[&ip, &endless], 0, Err(UndecodedReason::Malformed));
}

#[test]
fn fragments_and_other_transports_are_told_apart() {
    let fragment = |flags| [ipv4_header(40, flags, 6), TCP.to_vec()].concat();
    check(LinkType::RawIp, &[&fragment(0x2000)], 0, Err(UndecodedReason::Fragment));
    check(LinkType::RawIp, &[&fragment(0x0001)], 0, Err(UndecodedReason::Fragment));
    let more = [6, 0, 0, 1, 0, 0, 0, 1];
    let ip = ipv6_header(28, 44);
    check(LinkType::RawIp, &[&ip, &more, &TCP], 0, Err(UndecodedReason::Fragment));
    let icmp = [ipv4_header(40, 0, 1), TCP.to_vec()].concat();
    check(LinkType::RawIp, &[&icmp], 0, Err(UndecodedReason::OtherTransport));
}

#[test]
fn udp_payload() {
    let udp = [0x14, 0xeb, 0x9c, 0x40, 0, 11, 0, 0];
    check(LinkType::RawIp, &[&ipv4_header(31, 0, 17), &udp, b"abc"], 0, Ok((b"abc", 3)));
    let short = [0x14, 0xeb, 0x9c, 0x40, 0, 7, 0, 0];
    let ip = ipv4_header(31, 0, 17);
    check(LinkType::RawIp, &[&ip, &short, b"abc"], 0, Err(UndecodedReason::Malformed));
}

#[test]
fn contradictory_lengths_are_malformed() {
    let mut ip = segment(b"abc");
    ip[32] = 0xf0;
    check(LinkType::RawIp, &[&ip], 0, Err(UndecodedReason::Malformed));
    ip[32] = 0x40;
    check(LinkType::RawIp, &[&ip], 0, Err(UndecodedReason::Malformed));
    let mut ip = segment(b"abc");
    ip[0] = 0x44;
    check(LinkType::RawIp, &[&ip], 0, Err(UndecodedReason::Malformed));
    check(LinkType::RawIp, &[&[]], 0, Err(UndecodedReason::Malformed));
}
