//! Both formats in both byte orders, all resolutions, truncation and damage.

use super::*;

/// Writer of numbers in one byte order.
#[derive(Clone, Copy)]
struct NumberBytes {
    is_big: bool,
}

impl NumberBytes {
    fn u16(self, value: u16) -> Vec<u8> {
        if self.is_big { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    fn u32(self, value: u32) -> Vec<u8> {
        if self.is_big { value.to_be_bytes().into() } else { value.to_le_bytes().into() }
    }

    fn pcap(self, magic: u32, records: &[(u32, u32, &[u8], u32)]) -> Vec<u8> {
        let mut file = self.u32(magic);
        file.extend([self.u16(2), self.u16(4), self.u32(0), self.u32(0)].concat());
        // The upper bits tell a frame check sequence.
        file.extend([self.u32(65_535), self.u32(0xf000_0001)].concat());
        for (seconds, fraction, data, original) in records {
            let size = data.len() as u32;
            file.extend([self.u32(*seconds), self.u32(*fraction)].concat());
            file.extend([self.u32(size), self.u32(*original)].concat());
            file.extend(*data);
        }
        file
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padded = body.len().next_multiple_of(4);
        let length = self.u32(padded as u32 + 12);
        let padding = vec![0; padded - body.len()];
        [self.u32(kind), length.clone(), body.to_vec(), padding, length].concat()
    }

    fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        self.block(0x0a0d_0d0a, &[self.u32(0x1a2b_3c4d), version, vec![0xff; 8]].concat())
    }

    fn interface(self, link_type: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = [self.u16(link_type), self.u16(0), self.u32(0)].concat();
        for (code, value) in options {
            body.extend([self.u16(*code), self.u16(value.len() as u16)].concat());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    fn enhanced(self, interface: u32, time: u64, data: &[u8], original: u32) -> Vec<u8> {
        let time = [self.u32((time >> 32) as u32), self.u32(time as u32)].concat();
        let sizes = [self.u32(data.len() as u32), self.u32(original)].concat();
        self.block(6, &[self.u32(interface), time, sizes, data.to_vec()].concat())
    }
}

const ORDERS: [NumberBytes; 2] = [NumberBytes { is_big: false }, NumberBytes { is_big: true }];

/// Time, size on the network, and captured bytes of a packet.
type FoundPacket = (Option<u64>, u32, Vec<u8>);

fn packets(file: &[u8]) -> Result<Vec<FoundPacket>, CaptureFileError> {
    let mut reader = CaptureFile::new(file)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet()? {
        packets.push((packet.time, packet.original_bytes, packet.bytes.to_vec()));
    }
    Ok(packets)
}

#[track_caller]
fn check(file: &[u8], expected: &[(Option<u64>, u32, &[u8])]) {
    let found = packets(file).unwrap();
    let found: Vec<_> = found.iter().map(|(time, size, data)| (*time, *size, &data[..])).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_error(file: &[u8], expected: &str) {
    assert_eq!(packets(file).unwrap_err().to_string(), expected);
}

#[test]
fn pcap_in_both_resolutions_and_byte_orders() {
    for order in ORDERS {
        let records: [(u32, u32, &[u8], u32); 2] = [(2, 7, b"abc", 3), (3, 8, b"de", 90)];
        let expected = |unit: u64| {
            let first: (Option<u64>, u32, &[u8]) = (Some(2_000_000_000 + 7 * unit), 3, b"abc");
            [first, (Some(3_000_000_000 + 8 * unit), 90, b"de")]
        };
        check(&order.pcap(0xa1b2_c3d4, &records), &expected(1_000));
        check(&order.pcap(0xa1b2_3c4d, &records), &expected(1));
    }
}

#[test]
fn pcapng_in_both_byte_orders_and_several_sections() {
    let mut file = Vec::new();
    for order in ORDERS {
        file.extend(order.section());
        file.extend(order.interface(1, &[]));
        file.extend(order.interface(101, &[(9, &[9])]));
        file.extend(order.block(0x0bad, b"unknown"));
        file.extend(order.enhanced(0, 5, b"abc", 3));
        file.extend(order.enhanced(1, 5, b"defgh", 80));
    }
    let first: (Option<u64>, u32, &[u8]) = (Some(5_000), 3, b"abc");
    let second: (Option<u64>, u32, &[u8]) = (Some(5), 80, b"defgh");
    check(&file, &[first, second, first, second]);
}

#[test]
fn time_resolutions_and_offsets() {
    for order in ORDERS {
        for (resolution, time, expected) in [
            (3, 5, Some(5_000_000)),
            (12, 5_999, Some(5)),
            (127, 5, Some(0)),
            (0x80 | 10, 1_536, Some(1_500_000_000)),
            (0xff, u64::MAX, Some(0)),
            (0, u64::MAX, None),
        ] {
            let interface = order.interface(1, &[(9, &[resolution])]);
            let file = [order.section(), interface, order.enhanced(0, time, b"a", 1)].concat();
            check(&file, &[(expected, 1, b"a")]);
        }
    }
    let little = ORDERS[0];
    let interface = little.interface(1, &[(14, &2_i64.to_le_bytes())]);
    let file = [little.section(), interface, little.enhanced(0, 1, b"a", 1)].concat();
    check(&file, &[(Some(2_000_001_000), 1, b"a")]);
}

#[test]
fn packets_without_a_time_and_reported_drops() {
    let order = ORDERS[0];
    let statistics = [
        [order.u32(0), order.u32(0), order.u32(0)].concat(),
        [order.u16(5), order.u16(8), 7_u64.to_le_bytes().into()].concat(),
        [order.u16(7), order.u16(8), 4_u64.to_le_bytes().into()].concat(),
    ]
    .concat();
    let simple = [order.u32(5), b"abcde".to_vec()].concat();
    let file = [
        order.section(),
        order.interface(1, &[]),
        order.block(3, &simple),
        order.block(5, &statistics),
        order.section(),
    ]
    .concat();
    check(&file, &[(None, 5, b"abcde")]);
    let mut reader = CaptureFile::new(&file[..]).unwrap();
    while reader.next_packet().unwrap().is_some() {}
    assert_eq!(reader.reported_drops(), 11);
}

#[test]
fn a_truncated_file_is_read_up_to_its_last_complete_packet() {
    let order = ORDERS[0];
    let pcap = order.pcap(0xa1b2_c3d4, &[(1, 0, b"abc", 3), (2, 0, b"def", 3)]);
    let block = order.enhanced(0, 1, b"abc", 3);
    let pcapng = [order.section(), order.interface(1, &[]), block.clone(), block].concat();
    for (file, first_end, second_end) in [(&pcap, 43, 62), (&pcapng, 84, 120)] {
        assert_eq!(file.len(), second_end);
        for end in first_end..=second_end {
            let mut reader = CaptureFile::new(&file[..end]).unwrap();
            let mut count = 0;
            while reader.next_packet().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, if end == second_end { 2 } else { 1 }, "{end}");
            let is_cut = end != first_end && end != second_end;
            assert_eq!(reader.is_truncated(), is_cut, "{end}");
        }
    }
}

#[test]
fn damage_is_an_error_with_its_position() {
    check_error(b"", "capture file: found 0 bytes, expected pcap or pcapng");
    let gzip = "capture file: found first bytes [1f, 8b, 08, 00], expected pcap or pcapng; \
                decompress it first if it is compressed";
    check_error(b"\x1f\x8b\x08\0rest", gzip);
    let order = ORDERS[0];
    let mut pcap = order.pcap(0xa1b2_c3d4, &[(1, 0, b"abc", 3)]);
    pcap[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let large = "byte 32 of the capture file: found 4294967295, \
                 expected a packet of at most 16 MiB";
    check_error(&pcap, large);
    let no_interface = [order.section(), order.enhanced(0, 1, b"abc", 3)].concat();
    let expected = "byte 36 of the capture file: found 0, \
                    expected the number of an interface described before";
    check_error(&no_interface, expected);
    let mut section = order.section();
    section[4] = 27;
    let expected = "byte 4 of the capture file: found 27, \
                    expected a block length that is a multiple of 4 and covers its header";
    check_error(&section, expected);
}
