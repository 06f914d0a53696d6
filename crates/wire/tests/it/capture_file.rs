//! From a capture file to operations.

use std::io::Cursor;

use wire::{CaptureFile, CaptureFileError};

use crate::conversation::{Conversation, ConversationShape, TestPacket, counts, tracker};

pub(crate) fn pcap(packets: &[TestPacket]) -> Vec<u8> {
    let mut file = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0]);
    for packet in packets {
        let bytes = packet.bytes();
        let numbers = [
            (packet.time / 1_000_000_000) as u32,
            (packet.time % 1_000_000_000) as u32,
            bytes.len() as u32,
            40 + packet.payload.len() as u32,
        ];
        file.extend(numbers.map(u32::to_le_bytes).concat());
        file.extend(bytes);
    }
    file
}

pub(crate) fn pcapng(packets: &[TestPacket]) -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let padding = vec![0; body.len().next_multiple_of(4) - body.len()];
        let length = (12 + body.len() + padding.len()) as u32;
        let (kind, length) = (kind.to_le_bytes(), length.to_le_bytes());
        [&kind[..], &length, body, &padding, &length].concat()
    };
    let mut file =
        block(0x0a0d_0d0a, b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    // Raw IP; option 9: times in nanoseconds.
    file.extend(block(1, &[101, 0, 0, 0, 0, 0, 4, 0, 9, 0, 1, 0, 9, 0, 0, 0]));
    for packet in packets {
        let bytes = packet.bytes();
        let numbers = [
            0,
            (packet.time >> 32) as u32,
            packet.time as u32,
            bytes.len() as u32,
            40 + packet.payload.len() as u32,
        ];
        file.extend(block(6, &[&numbers.map(u32::to_le_bytes).concat()[..], &bytes].concat()));
    }
    file
}

#[track_caller]
fn check(file: &[u8], is_truncated: bool, expected: (u64, u64, u64)) {
    let mut tracker = tracker();
    let mut reader = CaptureFile::new(Cursor::new(file)).unwrap();
    while let Some(packet) = reader.next_packet().unwrap() {
        tracker.read(&packet);
    }
    assert_eq!(reader.is_truncated(), is_truncated);
    assert_eq!(counts(&tracker), expected, "measured, not measured, in flight");
    assert_eq!(reader.reported_drops(), 0);
}

#[test]
fn operations_of_a_file() {
    let packets = Conversation::new(&ConversationShape::default()).packets;
    check(&pcapng(&packets), false, (10, 0, 0));
    let file = pcap(&packets);
    check(&file, false, (10, 0, 0));
    // The file ends inside the last response: its request is in flight.
    let end = pcap(&packets[..packets.len() - 3]).len() - 5;
    check(&file[..end], true, (9, 0, 1));
}

#[test]
fn an_unknown_file_is_an_error() {
    let found = CaptureFile::new(&b"not a capture"[..]).err().unwrap();
    assert!(matches!(found, CaptureFileError::UnknownFormat { .. }), "{found}");
}
