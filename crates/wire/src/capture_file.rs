//! Files of captured packets: pcap and pcapng, in both byte orders.
//!
//! Times are returned in nanoseconds since the Unix epoch. A file that ends inside a record (a
//! capture that was killed, a full disk) is read up to the last complete one, and
//! [`CaptureFile::is_truncated`] tells. Damage is an error with its position; the packets before it
//! have been returned.
//!
//! Sources: draft-ietf-opsawg-pcap-05, draft-ietf-opsawg-pcapng-03, tcpdump.org/linktypes.

mod capture_input;
mod pcap;
mod pcapng;

use std::io::{self, Read};

use capture_input::CaptureInput;
use pcap::PcapHeader;
use pcapng::PcapngSection;

/// Maximum size of a captured packet or block, in bytes. BIG TCP makes packets of 512 KiB, and
/// libpcap writes at most 256 KiB; a larger number is damage.
const RECORD_BYTES_MAX: u32 = 16 << 20;

/// Reader of a capture file.
pub struct CaptureFile<R> {
    input: CaptureInput<R>,
    format: FileFormat,
    is_truncated: bool,
    /// Data of the current record.
    record: Vec<u8>,
}

enum FileFormat {
    Pcap(PcapHeader),
    Pcapng(PcapngSection),
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Nanoseconds since the Unix epoch; `None` if the file does not tell (simple packet blocks).
    pub time: Option<u64>,
    /// Format of the first header of `bytes`.
    pub link_type: LinkType,
    /// The first bytes of the packet, from its link layer header on.
    pub bytes: &'a [u8],
    /// Size of the packet on the network; more than `bytes` if the capture cut it (snaplen).
    pub original_bytes: u32,
}

/// Link layer of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// `EN10MB`.
    Ethernet,
    /// `LINUX_SLL`: what a capture on `any` writes.
    LinuxCooked,
    /// `LINUX_SLL2`.
    LinuxCooked2,
    /// IPv4 or IPv6 without a header before it.
    RawIp,
    /// `NULL` and `LOOP`: loopback of BSD and macOS.
    Loopback,
    /// Number of a link type that is not supported; its packets are counted.
    Other(u32),
}

impl LinkType {
    /// The link type with this number of tcpdump.org/linktypes.
    pub(crate) fn from_number(number: u32) -> LinkType {
        match number {
            0 | 108 => LinkType::Loopback,
            1 => LinkType::Ethernet,
            // 12 and 14 are DLT_RAW of some systems, 228 and 229 IPv4 and IPv6 alone.
            12 | 14 | 101 | 228 | 229 => LinkType::RawIp,
            113 => LinkType::LinuxCooked,
            276 => LinkType::LinuxCooked2,
            other => LinkType::Other(other),
        }
    }
}

/// Failures of reading a capture file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureFileError {
    /// Failure of the input.
    #[error("cannot read the capture file: {0}")]
    Io(#[from] io::Error),
    /// The input has no bytes.
    #[error("capture file: found 0 bytes, expected pcap or pcapng")]
    Empty,
    /// The magic number is neither that of pcap nor that of pcapng.
    #[error(
        "capture file: found first bytes {found:02x?}, expected pcap or pcapng; \
         decompress it first if it is compressed"
    )]
    UnknownFormat {
        /// First bytes of the input.
        found: [u8; 4],
    },
    /// The version of pcap is not supported.
    #[error("capture file: found pcap version {major}.{minor}, expected 2.4")]
    PcapVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The version of pcapng is not supported.
    #[error("capture file: found pcapng version {major}.{minor}, expected 1")]
    PcapngVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A number that the format does not allow; the rest of the file cannot be read.
    #[error("byte {offset} of the capture file: found {found}, expected {expected}")]
    Damaged {
        /// Position of the number in the file, in bytes.
        offset: u64,
        /// The number.
        found: u64,
        /// What the format allows.
        expected: &'static str,
    },
}

impl<R: Read> CaptureFile<R> {
    /// Reads the header of a file. `input` should be buffered.
    pub fn new(input: R) -> Result<CaptureFile<R>, CaptureFileError> {
        let mut input = CaptureInput::new(input);
        let Some(magic) = input.array::<4>()? else {
            return Err(CaptureFileError::Empty);
        };
        let mut is_truncated = false;
        let format = if magic == pcapng::SECTION_HEADER {
            let section = PcapngSection::read(&mut input)?;
            is_truncated = section.is_none();
            FileFormat::Pcapng(section.unwrap_or_default())
        } else {
            FileFormat::Pcap(PcapHeader::read(magic, &mut input)?)
        };
        Ok(CaptureFile { input, format, is_truncated, record: Vec::new() })
    }

    /// The next packet, or `None` at the end of the file.
    pub fn next_packet(&mut self) -> Result<Option<CapturedPacket<'_>>, CaptureFileError> {
        if self.is_truncated {
            return Ok(None);
        }
        let found = match &mut self.format {
            FileFormat::Pcap(header) => header.read_record(&mut self.input, &mut self.record)?,
            FileFormat::Pcapng(section) => {
                section.read_packet(&mut self.input, &mut self.record)?
            }
        };
        let record = match found {
            RecordResult::Packet(record) => record,
            RecordResult::FileEnd => return Ok(None),
            RecordResult::Truncated => {
                self.is_truncated = true;
                return Ok(None);
            }
        };
        Ok(Some(CapturedPacket {
            time: record.time,
            link_type: record.link_type,
            bytes: &self.record[record.data],
            original_bytes: record.original_bytes,
        }))
    }

    /// Whether the file ended inside a record.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Packets that the capturing program reported as dropped, so far. Only pcapng has them.
    pub fn reported_drops(&self) -> u64 {
        match &self.format {
            FileFormat::Pcap(_) => 0,
            FileFormat::Pcapng(section) => section.reported_drops(),
        }
    }
}

/// What was found at the position of a record.
enum RecordResult {
    Packet(PacketRecord),
    FileEnd,
    /// The file ends inside the record.
    Truncated,
}

/// A packet whose bytes are in the buffer of the record.
struct PacketRecord {
    time: Option<u64>,
    link_type: LinkType,
    data: std::ops::Range<usize>,
    original_bytes: u32,
}

#[cfg(test)]
mod tests;
