//! The format pcap: a header of 24 bytes, then records of a header of 16 bytes and a packet.
//!
//! ```text
//! header  magic u32, version u16 u16, reserved u32 u32, snaplen u32, link type u32
//! record  seconds u32, fraction u32, captured bytes u32, original bytes u32
//! ```
//!
//! The magic number gives byte order and unit of `fraction` (microseconds or nanoseconds). The
//! upper bits of the link type tell the size of a frame check sequence and are ignored.

use std::io::Read;

use super::capture_input::{ByteOrder, CaptureInput};
use super::{CaptureFileError, LinkType, PacketRecord, RECORD_BYTES_MAX, RecordResult};

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Bits of the link type field that are the link type.
const LINK_TYPE_MASK: u32 = 0xffff;

pub(super) struct PcapHeader {
    order: ByteOrder,
    /// Nanoseconds of a unit of `fraction`.
    fraction_ns: u64,
    link_type: LinkType,
}

impl PcapHeader {
    /// Reads the header behind the magic number.
    pub(super) fn read<R: Read>(
        magic: [u8; 4],
        input: &mut CaptureInput<R>,
    ) -> Result<PcapHeader, CaptureFileError> {
        let (order, fraction_ns) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MICROSECONDS, _) => (ByteOrder::Little, 1_000),
            (NANOSECONDS, _) => (ByteOrder::Little, 1),
            (_, MICROSECONDS) => (ByteOrder::Big, 1_000),
            (_, NANOSECONDS) => (ByteOrder::Big, 1),
            _ => return Err(CaptureFileError::UnknownFormat { found: magic }),
        };
        let Some(header) = input.array::<20>()? else {
            let expected = "a pcap header of 24 bytes";
            let found = input.offset();
            return Err(CaptureFileError::Damaged { offset: found, found, expected });
        };
        let [a, b, c, d, .., l0, l1, l2, l3] = header;
        let (major, minor) = (order.u16([a, b]), order.u16([c, d]));
        if (major, minor) != (2, 4) {
            return Err(CaptureFileError::PcapVersion { major, minor });
        }
        let link_type = LinkType::from_number(order.u32([l0, l1, l2, l3]) & LINK_TYPE_MASK);
        Ok(PcapHeader { order, fraction_ns, link_type })
    }

    pub(super) fn read_record<R: Read>(
        &self,
        input: &mut CaptureInput<R>,
        record: &mut Vec<u8>,
    ) -> Result<RecordResult, CaptureFileError> {
        let offset = input.offset();
        let Some(header) = input.array::<16>()? else {
            let is_end = input.offset() == offset;
            return Ok(if is_end { RecordResult::FileEnd } else { RecordResult::Truncated });
        };
        let number = |at: usize| self.order.u32_at(&header, at).unwrap_or_default();
        let captured = number(8);
        if captured > RECORD_BYTES_MAX {
            let (found, expected) = (u64::from(captured), "a packet of at most 16 MiB");
            return Err(CaptureFileError::Damaged { offset: offset + 8, found, expected });
        }
        if !input.fill(record, captured)? {
            return Ok(RecordResult::Truncated);
        }
        let seconds_ns = u64::from(number(0)) * 1_000_000_000;
        Ok(RecordResult::Packet(PacketRecord {
            time: Some(seconds_ns + u64::from(number(4)) * self.fraction_ns),
            link_type: self.link_type,
            data: 0..record.len(),
            original_bytes: number(12).max(captured),
        }))
    }
}
