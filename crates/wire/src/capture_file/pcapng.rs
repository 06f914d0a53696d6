//! The format pcapng: blocks of type u32, length u32, body, length u32, each padded to four bytes.
//!
//! Read are section headers, interface descriptions, enhanced, simple and obsolete packet blocks,
//! and the drops of interface statistics. Other blocks are skipped. Sections may differ in byte
//! order.

use std::io::Read;

use super::capture_input::{ByteOrder, CaptureInput};
use super::{CaptureFileError, LinkType, PacketRecord, RECORD_BYTES_MAX, RecordResult};

/// Type of a section header block, a palindrome: equal in both byte orders.
pub(super) const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

const OPTION_TIME_RESOLUTION: u16 = 9;
const OPTION_TIME_OFFSET: u16 = 14;
const OPTION_INTERFACE_DROPS: u16 = 5;
const OPTION_SYSTEM_DROPS: u16 = 7;

/// Interfaces of one section; each costs 32 bytes.
const INTERFACES_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct PcapngSection {
    order: ByteOrder,
    interfaces: Vec<CaptureInterface>,
    /// Drops of the sections before.
    earlier_drops: u64,
}

struct CaptureInterface {
    link_type: LinkType,
    /// 0: unlimited.
    snaplen: u32,
    resolution: TimeResolution,
    /// Added to all times.
    offset_s: i64,
    /// As last reported by a statistics block.
    drops: u64,
}

/// Unit of time stamps: 10^-n or 2^-n seconds.
#[derive(Clone, Copy)]
enum TimeResolution {
    Decimal(u32),
    Binary(u32),
}

impl PcapngSection {
    /// Reads the first section header behind its type. `None` if the file ends inside.
    pub(super) fn read<R: Read>(
        input: &mut CaptureInput<R>,
    ) -> Result<Option<PcapngSection>, CaptureFileError> {
        let mut section = PcapngSection::default();
        Ok(section.start_section(input, &mut Vec::new())?.then_some(section))
    }

    /// Packets dropped by the capturing program, as statistics blocks tell.
    pub(super) fn reported_drops(&self) -> u64 {
        let drops = self.interfaces.iter().map(|interface| interface.drops);
        drops.fold(self.earlier_drops, u64::saturating_add)
    }

    /// Reads a section header behind its type. Returns whether it is complete.
    fn start_section<R: Read>(
        &mut self,
        input: &mut CaptureInput<R>,
        record: &mut Vec<u8>,
    ) -> Result<bool, CaptureFileError> {
        let offset = input.offset();
        let Some([a, b, c, d, magic @ ..]) = input.array::<8>()? else { return Ok(false) };
        let order = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (BYTE_ORDER_MAGIC, _) => ByteOrder::Little,
            (_, BYTE_ORDER_MAGIC) => ByteOrder::Big,
            (other, _) => {
                let (found, expected) = (u64::from(other), "the byte order magic 0x1a2b3c4d");
                return Err(CaptureFileError::Damaged { offset: offset + 4, found, expected });
            }
        };
        let length = order.u32([a, b, c, d]);
        // Type, length, magic, version, section length and the second length.
        check_length(length, 28, offset)?;
        if !input.fill(record, length - 12)? {
            return Ok(false);
        }
        let version = |at| order.u16_at(record, at).unwrap_or_default();
        let (major, minor) = (version(0), version(2));
        if major != 1 {
            return Err(CaptureFileError::PcapngVersion { major, minor });
        }
        self.earlier_drops = self.reported_drops();
        self.order = order;
        self.interfaces.clear();
        Ok(true)
    }

    pub(super) fn read_packet<R: Read>(
        &mut self,
        input: &mut CaptureInput<R>,
        record: &mut Vec<u8>,
    ) -> Result<RecordResult, CaptureFileError> {
        loop {
            let offset = input.offset();
            let Some(kind) = input.array::<4>()? else {
                let is_end = input.offset() == offset;
                return Ok(if is_end { RecordResult::FileEnd } else { RecordResult::Truncated });
            };
            if kind == SECTION_HEADER {
                if !self.start_section(input, record)? {
                    return Ok(RecordResult::Truncated);
                }
                continue;
            }
            let Some(length) = input.array::<4>()? else { return Ok(RecordResult::Truncated) };
            let length = self.order.u32(length);
            check_length(length, 12, offset + 4)?;
            if !input.fill(record, length - 8)? {
                return Ok(RecordResult::Truncated);
            }
            record.truncate(record.len() - 4);
            let body_offset = offset + 8;
            match self.order.u32(kind) {
                INTERFACE_DESCRIPTION => self.add_interface(record, body_offset)?,
                INTERFACE_STATISTICS => self.read_statistics(record),
                ENHANCED_PACKET => return self.enhanced_packet(record, body_offset),
                OBSOLETE_PACKET => return self.obsolete_packet(record, body_offset),
                SIMPLE_PACKET => return self.simple_packet(record, body_offset),
                _ => {}
            }
        }
    }

    fn add_interface(&mut self, body: &[u8], offset: u64) -> Result<(), CaptureFileError> {
        let (Some(link_type), Some(snaplen)) =
            (self.order.u16_at(body, 0), self.order.u32_at(body, 4))
        else {
            let (found, expected) = (body.len() as u64, "an interface description of 8 bytes");
            return Err(CaptureFileError::Damaged { offset, found, expected });
        };
        if self.interfaces.len() == INTERFACES_MAX {
            let (found, expected) = (INTERFACES_MAX as u64 + 1, "at most 65,536 interfaces");
            return Err(CaptureFileError::Damaged { offset, found, expected });
        }
        let mut interface = CaptureInterface {
            link_type: LinkType::from_number(u32::from(link_type)),
            snaplen,
            resolution: TimeResolution::Decimal(6),
            offset_s: 0,
            drops: 0,
        };
        self.each_option(&body[8..], |order, code, value| match code {
            OPTION_TIME_RESOLUTION => {
                let Some(&exponent) = value.first() else { return };
                interface.resolution = match exponent & 0x80 {
                    0 => TimeResolution::Decimal(u32::from(exponent)),
                    _ => TimeResolution::Binary(u32::from(exponent & 0x7f)),
                };
            }
            OPTION_TIME_OFFSET => {
                let words = (order.u32_at(value, 0), order.u32_at(value, 4));
                let (Some(first), Some(second)) = words else { return };
                interface.offset_s = match order {
                    ByteOrder::Little => join_words(second, first),
                    ByteOrder::Big => join_words(first, second),
                } as i64;
            }
            _ => {}
        });
        self.interfaces.push(interface);
        Ok(())
    }

    fn read_statistics(&mut self, body: &[u8]) {
        let Some(at) = self.order.u32_at(body, 0) else { return };
        let mut drops = 0_u64;
        self.each_option(body.get(12..).unwrap_or_default(), |order, code, value| {
            let words = (order.u32_at(value, 0), order.u32_at(value, 4));
            if let (OPTION_INTERFACE_DROPS | OPTION_SYSTEM_DROPS, (Some(first), Some(second))) =
                (code, words)
            {
                drops = drops.saturating_add(match order {
                    ByteOrder::Little => join_words(second, first),
                    ByteOrder::Big => join_words(first, second),
                });
            }
        });
        if let Some(interface) = self.interfaces.get_mut(at as usize) {
            interface.drops = drops;
        }
    }

    /// Calls `each` with code and value of each option, up to the first incomplete one.
    fn each_option(&self, mut options: &[u8], mut each: impl FnMut(ByteOrder, u16, &[u8])) {
        while let (Some(code), Some(length)) =
            (self.order.u16_at(options, 0), self.order.u16_at(options, 2))
        {
            let length = usize::from(length);
            let Some(value) = options[4..].get(..length) else { return };
            if code == 0 {
                return;
            }
            each(self.order, code, value);
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }

    fn enhanced_packet(&self, body: &[u8], offset: u64) -> Result<RecordResult, CaptureFileError> {
        let number = |at| self.order.u32_at(body, at).unwrap_or_default();
        self.packet(body, offset, number(0), 20, [number(4), number(8), number(12), number(16)])
    }

    fn obsolete_packet(&self, body: &[u8], offset: u64) -> Result<RecordResult, CaptureFileError> {
        let number = |at| self.order.u32_at(body, at).unwrap_or_default();
        let interface = self.order.u16_at(body, 0).map_or(0, u32::from);
        self.packet(body, offset, interface, 20, [number(4), number(8), number(12), number(16)])
    }

    /// Checks and returns a packet whose data starts at `data_start` of the body. `fields` are the
    /// two words of the time, captured and original size.
    fn packet(
        &self,
        body: &[u8],
        offset: u64,
        interface: u32,
        data_start: usize,
        fields: [u32; 4],
    ) -> Result<RecordResult, CaptureFileError> {
        let [high, low, captured, original] = fields;
        let interface = self.interface(interface, offset)?;
        let data = data_start..data_start.saturating_add(captured as usize);
        if body.len() < data.end {
            let (found, expected) = (u64::from(captured), "a packet inside its block");
            return Err(CaptureFileError::Damaged { offset, found, expected });
        }
        Ok(RecordResult::Packet(PacketRecord {
            time: interface.nanoseconds(join_words(high, low)),
            link_type: interface.link_type,
            data,
            original_bytes: original.max(captured),
        }))
    }

    fn simple_packet(&self, body: &[u8], offset: u64) -> Result<RecordResult, CaptureFileError> {
        let interface = self.interface(0, offset)?;
        let Some(original) = self.order.u32_at(body, 0) else {
            let (found, expected) = (body.len() as u64, "a packet block of 4 bytes");
            return Err(CaptureFileError::Damaged { offset, found, expected });
        };
        let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
        // The block ends with padding, so its size alone does not tell that of the packet.
        let captured = (original.min(limit) as usize).min(body.len() - 4);
        Ok(RecordResult::Packet(PacketRecord {
            time: None,
            link_type: interface.link_type,
            data: 4..4 + captured,
            original_bytes: original,
        }))
    }

    fn interface(&self, at: u32, offset: u64) -> Result<&CaptureInterface, CaptureFileError> {
        self.interfaces.get(at as usize).ok_or(CaptureFileError::Damaged {
            offset,
            found: u64::from(at),
            expected: "the number of an interface described before",
        })
    }
}

impl CaptureInterface {
    /// Nanoseconds since the epoch, or `None` if they do not fit in 64 bits.
    fn nanoseconds(&self, units: u64) -> Option<u64> {
        let units = u128::from(units);
        let nanoseconds = match self.resolution {
            TimeResolution::Decimal(exponent @ 0..=9) => units * 10_u128.pow(9 - exponent),
            TimeResolution::Decimal(exponent) => {
                10_u128.checked_pow(exponent - 9).map_or(0, |divisor| units / divisor)
            }
            // At most 2^64 units of 10^9, shifted right; a shift of 128 or more leaves nothing.
            TimeResolution::Binary(exponent) => {
                (units * 1_000_000_000).checked_shr(exponent).unwrap_or(0)
            }
        };
        let offset = i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(i128::try_from(nanoseconds).ok()? + offset).ok()
    }
}

fn check_length(length: u32, least: u32, offset: u64) -> Result<(), CaptureFileError> {
    let expected = if length < least || !length.is_multiple_of(4) {
        "a block length that is a multiple of 4 and covers its header"
    } else if length > RECORD_BYTES_MAX {
        "a block of at most 16 MiB"
    } else {
        return Ok(());
    };
    Err(CaptureFileError::Damaged { offset, found: u64::from(length), expected })
}

fn join_words(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
