//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on arbitrary bytes.

use proptest::prelude::*;
use wire::{CaptureFile, EndMatcher, EndReport, Packet, TcpFlags};

use crate::checks::{self, message_protocol::message};
use crate::conversation::{Conversation, ConversationShape};
use crate::{capture_file, fuzz_inputs};

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

#[test]
fn seeds_pass() {
    for (target, bytes) in seeds() {
        println!("{target}");
        check(target, &bytes);
    }
}

fn check(target: &str, bytes: &[u8]) {
    let check = checks::CHECKS.iter().find(|check| check.0 == target).unwrap().1;
    check(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }

    /// A seed with some bytes changed, and truncated.
    #[test]
    fn mutated_seeds_pass(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
    ) {
        let seeds = seeds();
        let (target, mut bytes) = which.get(&seeds).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        check(target, &bytes);
    }
}

/// Run by the fuzz part of the tests. Without seeds a fuzzer spends its minute on magic numbers.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds());
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let shape = ConversationShape { sizes: vec![(3, 300); 3], ..Default::default() };
    let packets = Conversation::new(&shape).packets;
    // Kind, time step, cut, size, then flags, numbers and payload.
    let record = |kind: u8, flags: TcpFlags, numbers: [u8; 4], payload: &[u8]| {
        let size = 5 + payload.len() as u8;
        [&[kind, 9, 0, size, flags.0][..], &numbers, payload].concat()
    };
    let (request, response) = (message(b'Q', 1, 6), message(b'R', 1, 6));
    let both = TcpFlags(TcpFlags::SYN.0 | TcpFlags::ACK.0);
    let exchange = [
        record(2, TcpFlags::SYN, [0, 0, 0, 0], b""),
        record(3, both, [0, 0, 0, 1], b""),
        record(2, TcpFlags::ACK, [0, 1, 0, 1], &request[..8]),
        record(2, TcpFlags::ACK, [0, 9, 0, 1], &request[8..]),
        record(3, TcpFlags::ACK, [0, 6, 0, 16], &response[5..]),
        record(3, TcpFlags::ACK, [0, 1, 0, 16], &response[..10]),
        record(2, TcpFlags::FIN, [0, 16, 0, 16], b""),
        record(3, TcpFlags::RST, [0, 16, 0, 16], b""),
    ];
    // Kind, gap, cut, size and bytes of a call: process 1, session from its start.
    let call = |kind: u8, bytes: &[u8]| [&[kind, 0, 0, bytes.len() as u8][..], bytes].concat();
    let tls = [call(0x25, &request), call(0x26, &response), call(0x25, &request), call(0x27, b"")];
    let late = [exchange[2].clone(), exchange[4].clone(), exchange[5].clone()];
    vec![
        ("capture_file", capture_file::pcap(&packets)),
        ("capture_file", capture_file::pcapng(&packets)),
        ("elf_symbols", elf_file()),
        ("end_report", end_reports()),
        ("packet_tracker", exchange.concat()),
        ("packet_tracker", late.concat()),
        ("tls_decryption", tls_session(0)),
        ("tls_decryption", tls_session(4)),
        ("tls_event", tls.concat()),
    ]
}

/// A session of the recording, without its large responses, as records of `tls_decryption`.
fn tls_session(number: usize) -> Vec<u8> {
    let mut file =
        CaptureFile::new(&include_bytes!("../../../../testdata/wire/tls.pcap")[..]).unwrap();
    let (mut clients, mut seed) = (Vec::new(), Vec::new());
    while let Some(captured) = file.next_packet().unwrap() {
        let packet =
            Packet::decode(captured.link_type, captured.bytes, captured.original_bytes).unwrap();
        let to_client = packet.source.port() == 33_993;
        let client = if to_client { packet.destination } else { packet.source };
        if !clients.contains(&client) {
            clients.push(client);
        }
        let is_own = clients.iter().position(|of| *of == client) == Some(number);
        if is_own && !packet.payload.is_empty() && packet.payload.len() < 2_000 {
            seed.push(u8::from(to_client));
            seed.extend((packet.payload.len() as u16).to_be_bytes());
            seed.extend(packet.payload);
        }
    }
    seed
}

/// The report of the page, and the same of another sender at the other end.
fn end_reports() -> Vec<u8> {
    let page = include_str!("../../../../docs/formats/wire-ends.md");
    let block = page.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let digits: Vec<u8> = block.unwrap().bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    let first: Vec<u8> = digits.chunks(2).map(byte).collect();
    let mut second = first.clone();
    (second[4], second[56]) = (3, 1);
    [&(first.len() as u16).to_le_bytes()[..], &first, &second].concat()
}

#[test]
fn the_seed_of_reports_has_a_match() {
    let bytes = end_reports();
    let (first, second) =
        bytes[2..].split_at(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])));
    let mut matcher = EndMatcher::new();
    for bytes in [first, second] {
        matcher.add(&EndReport::decode(bytes).unwrap(), 1);
    }
    assert_eq!(matcher.take_interval(2).services[0].totals.matched, 1);
}

/// A file of one segment, with a table of names and one of symbols.
fn elf_file() -> Vec<u8> {
    let mut file = vec![0; 320];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01");
    for (at, number) in [(32, 64_u64), (40, 120), (72, 0), (80, 0x1000), (96, 320)] {
        put(at, &number.to_le_bytes());
    }
    for (at, number) in [(54, 56_u16), (56, 1), (58, 64), (60, 2), (64, 1), (68, 5)] {
        put(at, &number.to_le_bytes());
    }
    for (section, kind, start, bytes) in
        [(120, 3_u8, 248_u64, &b"\0SSL_read\0"[..]), (184, 2, 264, &[1, 0, 0, 0, 0x12, 0, 5, 0])]
    {
        put(section + 4, &[kind]);
        put(section + 24, &start.to_le_bytes());
        put(section + 32, &[if kind == 2 { 24 } else { bytes.len() as u8 }]);
        put(start as usize, bytes);
    }
    put(272, &0x1010_u64.to_le_bytes());
    file
}
