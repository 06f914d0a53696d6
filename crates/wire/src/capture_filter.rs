//! The filter of a live capture: a program of classic BPF, which the kernel runs for each packet
//! before it copies it.
//!
//! Accepted are TCP and UDP packets with one of the ports at either end. IP fragments are accepted,
//! to be counted, and so are packets of IPv6 with extension headers, whose ports the program does
//! not look for. The loopback interface shows each packet twice, when it is sent and when it is
//! received; the program rejects the first one.
//!
//! Offsets are from the network layer: what a packet socket of type `SOCK_DGRAM` receives. Source:
//! Documentation/networking/filter.rst of Linux.

use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP};

/// Ports of one filter: jumps of classic BPF reach 255 instructions.
pub const PORTS_MAX: usize = 100;
/// Captured bytes of a packet: all of them, also of BIG TCP.
const ALL_BYTES: u32 = 1 << 20;

/// Offsets of fields that are not in the packet (`SKF_AD_OFF`).
const ANCILLARY: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = ANCILLARY + 4;
const INTERFACE: u32 = ANCILLARY + 8;
/// `PACKET_OUTGOING`.
const OUTGOING: u32 = 4;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
/// X = 4 * (byte & 0x0f), the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Instruction of classic BPF (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterInstruction {
    pub(crate) code: u16,
    /// Instructions skipped if the condition holds.
    pub(crate) if_true: u8,
    pub(crate) if_false: u8,
    pub(crate) operand: u32,
}

/// A filter of packets with one of `ports`, at most [`PORTS_MAX`].
pub(crate) fn port_filter(ports: &[u16], loopback: u32) -> Vec<FilterInstruction> {
    assert!(ports.len() <= PORTS_MAX, "BUG: the caller checks the number of ports");
    let ipv4 = ipv4_program(ports);
    let ipv6 = ipv6_program(ports);
    let mut program = vec![
        // On the loopback interface, skip what is sent.
        statement(LOAD_WORD, INTERFACE),
        jump(JUMP_EQUAL, loopback, 0, 3),
        statement(LOAD_WORD, PACKET_TYPE),
        jump(JUMP_EQUAL, OUTGOING, 0, 1),
        reject(),
        statement(LOAD_BYTE, 0),
        statement(AND, 0xf0),
        jump(JUMP_EQUAL, 0x60, 0, ipv6.len() as u8),
    ];
    program.extend(ipv6);
    program.push(jump(JUMP_EQUAL, 0x40, 1, 0));
    program.push(reject());
    program.extend(ipv4);
    program
}

/// A filter that no packet passes.
pub(crate) fn reject_filter() -> Vec<FilterInstruction> {
    vec![reject()]
}

fn ipv4_program(ports: &[u16]) -> Vec<FilterInstruction> {
    let mut program = vec![
        statement(LOAD_BYTE, 9),
        jump(JUMP_EQUAL, PROTOCOL_TCP.into(), 2, 0),
        jump(JUMP_EQUAL, PROTOCOL_UDP.into(), 1, 0),
        reject(),
        // A fragment: more fragments, or an offset.
        statement(LOAD_HALF, 6),
        jump(JUMP_BITS, 0x3fff, 0, 1),
        accept(),
        statement(LOAD_HEADER_LENGTH, 0),
    ];
    program.extend(port_program(ports, LOAD_HALF_INDEXED, 0));
    program
}

fn ipv6_program(ports: &[u16]) -> Vec<FilterInstruction> {
    let mut program = vec![
        statement(LOAD_BYTE, 6),
        jump(JUMP_EQUAL, PROTOCOL_TCP.into(), 7, 0),
        jump(JUMP_EQUAL, PROTOCOL_UDP.into(), 6, 0),
        // Hop-by-hop options, routing, fragment, destination options.
        jump(JUMP_EQUAL, 0, 3, 0),
        jump(JUMP_EQUAL, 43, 2, 0),
        jump(JUMP_EQUAL, 44, 1, 0),
        jump(JUMP_EQUAL, 60, 0, 1),
        accept(),
        reject(),
    ];
    // The jumps of the first lines end behind `reject`.
    program.extend(port_program(ports, LOAD_HALF, 40));
    program
}

/// Accepts a packet whose half word at `offset` or behind it is a port, and rejects others.
fn port_program(ports: &[u16], load: u16, offset: u32) -> Vec<FilterInstruction> {
    let mut program = Vec::new();
    let count = ports.len();
    for (end, at) in [offset, offset + 2].into_iter().enumerate() {
        program.push(statement(load, at));
        for (index, port) in ports.iter().enumerate() {
            // To `accept`, behind the rest of the ports, the other end and `reject`.
            let other_end = if end == 0 { 1 + count } else { 0 };
            let distance = count - 1 - index + other_end + 1;
            program.push(jump(JUMP_EQUAL, (*port).into(), distance as u8, 0));
        }
    }
    program.extend([reject(), accept()]);
    program
}

fn statement(code: u16, operand: u32) -> FilterInstruction {
    FilterInstruction { code, if_true: 0, if_false: 0, operand }
}

fn jump(code: u16, operand: u32, if_true: u8, if_false: u8) -> FilterInstruction {
    FilterInstruction { code, if_true, if_false, operand }
}

fn accept() -> FilterInstruction {
    statement(RETURN, ALL_BYTES)
}

fn reject() -> FilterInstruction {
    statement(RETURN, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does: a load outside of the packet rejects it.
    fn run(program: &[FilterInstruction], packet: &[u8], interface: u32, kind: u32) -> u32 {
        let (mut a, mut x, mut at) = (0_u32, 0_usize, 0);
        let half = |offset: usize| {
            let bytes = packet.get(offset..)?.first_chunk()?;
            Some(u32::from(u16::from_be_bytes(*bytes)))
        };
        loop {
            let FilterInstruction { code, if_true, if_false, operand } = program[at];
            at += 1;
            let offset = operand as usize;
            let loaded = match code {
                LOAD_WORD if operand == INTERFACE => Some(interface),
                LOAD_WORD if operand == PACKET_TYPE => Some(kind),
                LOAD_BYTE => packet.get(offset).copied().map(u32::from),
                LOAD_HALF => half(offset),
                LOAD_HALF_INDEXED => half(x + offset),
                AND => Some(a & operand),
                LOAD_HEADER_LENGTH => {
                    let Some(byte) = packet.get(offset) else { return 0 };
                    x = usize::from(byte & 0x0f) * 4;
                    continue;
                }
                JUMP_EQUAL | JUMP_BITS => {
                    let holds = if code == JUMP_EQUAL { a == operand } else { a & operand != 0 };
                    at += usize::from(if holds { if_true } else { if_false });
                    continue;
                }
                RETURN => return operand,
                other => panic!("unknown instruction {other:#x}"),
            };
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
        }
    }

    fn ipv4(header_words: u8, fragment: u16, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0; usize::from(header_words) * 4];
        packet[0] = 0x40 | header_words;
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet[9] = protocol;
        packet.extend(ports.map(u16::to_be_bytes).concat());
        packet
    }

    fn ipv6(next: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        (packet[0], packet[6]) = (0x60, next);
        packet.extend(ports.map(u16::to_be_bytes).concat());
        packet
    }

    #[track_caller]
    fn check(packet: &[u8], is_accepted: bool) {
        let all: Vec<u16> = (1..PORTS_MAX as u16).chain([5_432]).collect();
        for ports in [&[5_432][..], &[80, 5_432], &[5_432, 6_379], &all] {
            let program = port_filter(ports, 1);
            let expected = if is_accepted { ALL_BYTES } else { 0 };
            assert_eq!(run(&program, packet, 2, OUTGOING), expected);
            assert_eq!(run(&program, packet, 1, 0), expected);
            assert_eq!(run(&program, packet, 1, OUTGOING), 0, "sent on the loopback interface");
        }
    }

    #[test]
    fn ports_at_either_end_are_accepted() {
        for protocol in [6, 17] {
            for words in [5, 15] {
                check(&ipv4(words, 0x4000, protocol, [5_432, 40_000]), true);
                check(&ipv4(words, 0, protocol, [40_000, 5_432]), true);
                check(&ipv4(words, 0, protocol, [40_000, 5_433]), false);
            }
            check(&ipv6(protocol, [5_432, 40_000]), true);
            check(&ipv6(protocol, [40_000, 5_432]), true);
            check(&ipv6(protocol, [40_000, 5_433]), false);
        }
        check(&ipv4(5, 0, 1, [5_432, 5_432]), false);
        check(&ipv6(58, [5_432, 5_432]), false);
    }

    #[test]
    fn fragments_and_extension_headers_are_left_to_the_decoder() {
        check(&ipv4(5, 0x2000, 6, [1_000, 2_000]), true);
        check(&ipv4(5, 0x0010, 17, [1_000, 2_000]), true);
        for next in [0, 43, 44, 60] {
            check(&ipv6(next, [1_000, 2_000]), true);
        }
    }

    #[test]
    fn damaged_packets_are_rejected() {
        check(&[], false);
        check(&[0x50; 60], false);
        check(&ipv4(5, 0, 6, [5_432, 5_432])[..20], false);
    }
}
