//! Frames of version 5, around envelopes.
//!
//! ```text
//! bits  field (little-endian)
//!   17  size of the payload
//!   17  with LZ4: its size before compression; 0 if it is not compressed
//!    1  self-contained: the payload consists of whole envelopes
//!    6  or 5 with LZ4: padding
//!   24  CRC-24 of the bytes before
//! ```
//!
//! The payload follows, and its CRC-32, which is not verified.

use crate::message_position::MessagePosition;
use crate::message_reader::{MessageHandler, MessageStreamReader};
use crate::observer::{FlowDirection, OperationSink, PacketTime};

const HEADER_BYTES: usize = 6;
const COMPRESSED_HEADER_BYTES: usize = 8;
const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;
const TRAILER_BYTES: u64 = 4;

/// Allocations above this are freed after use.
const RETAINED_BYTES_MAX: usize = 16 << 10;

/// Header of a frame.
#[derive(Clone, Copy)]
pub(super) struct CqlFrameHeader {
    payload_bytes: usize,
    /// Size before compression; 0 if the payload is not compressed.
    uncompressed_bytes: usize,
    is_self_contained: bool,
}

impl CqlFrameHeader {
    /// The header at the start of bytes, if its checksum matches.
    pub(super) fn parse(bytes: &[u8], is_compressed: bool) -> Option<CqlFrameHeader> {
        let size = header_bytes(is_compressed);
        let bytes = bytes.get(..size)?;
        let number = bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let (fields, checksum) = (&bytes[..size - 3], number >> (8 * (size - 3)));
        if u64::from(crc24(fields)) != checksum {
            return None;
        }
        let length = PAYLOAD_BYTES_MAX as u64;
        let (uncompressed_bytes, flag) = match is_compressed {
            true => ((number >> 17) & length, 34),
            false => (0, 17),
        };
        Some(CqlFrameHeader {
            payload_bytes: (number & length) as usize,
            uncompressed_bytes: uncompressed_bytes as usize,
            is_self_contained: number >> flag & 1 == 1,
        })
    }
}

fn header_bytes(is_compressed: bool) -> usize {
    if is_compressed { COMPRESSED_HEADER_BYTES } else { HEADER_BYTES }
}

/// CRC-24 of `native_protocol_v5.spec`: polynomial 0x1974f0b, initial value 0x875060.
fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = 0x87_5060;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= 0x197_4f0b;
            }
        }
    }
    crc
}

/// Reads the frames of one direction, and passes their payloads to the reader of envelopes.
pub(super) struct FrameReader {
    direction: FlowDirection,
    header: Vec<u8>,
    /// The payload that is being read, and the number of bytes left of it.
    payload: Option<(CqlFrameHeader, usize)>,
    trailer_bytes: u64,
    /// Payload that is compressed.
    compressed: Vec<u8>,
    uncompressed: Vec<u8>,
    /// Time of the first byte of the frame.
    start: PacketTime,
    /// Whether bytes of the payload were not captured.
    has_gap: bool,
    is_lost: bool,
}

impl FrameReader {
    pub(super) fn new(direction: FlowDirection) -> FrameReader {
        FrameReader {
            direction,
            header: Vec::new(),
            payload: None,
            trailer_bytes: 0,
            compressed: Vec::new(),
            uncompressed: Vec::new(),
            start: 0,
            has_gap: false,
            is_lost: false,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn memory(&self) -> usize {
        self.header.capacity() + self.compressed.capacity() + self.uncompressed.capacity()
    }

    pub(super) fn read<H: MessageHandler>(
        &mut self,
        is_compressed: bool,
        time: PacketTime,
        mut bytes: &[u8],
        envelopes: (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        let (reader, handler) = envelopes;
        if self.is_lost {
            if CqlFrameHeader::parse(bytes, is_compressed).is_none() {
                return sink.unparsed(self.direction, bytes.len() as u64);
            }
            self.is_lost = false;
        }
        while !bytes.is_empty() {
            if self.trailer_bytes > 0 {
                let passed = self.trailer_bytes.min(bytes.len() as u64);
                self.trailer_bytes -= passed;
                bytes = &bytes[passed as usize..];
            } else if let Some((header, left)) = self.payload {
                let (now, later) = bytes.split_at(bytes.len().min(left));
                bytes = later;
                self.payload = Some((header, left - now.len()));
                self.read_payload(header, time, now, (reader, handler), sink);
                self.end_payload(time, (reader, handler), sink);
            } else {
                if self.header.is_empty() {
                    self.start = time;
                }
                // The framing may have changed inside of a header, whose checksum then fails.
                let missing = header_bytes(is_compressed).saturating_sub(self.header.len());
                let (now, later) = bytes.split_at(bytes.len().min(missing));
                bytes = later;
                self.header.extend_from_slice(now);
                if now.len() < missing {
                    return;
                }
                let Some(header) = CqlFrameHeader::parse(&self.header, is_compressed) else {
                    sink.unparsed(self.direction, (self.header.len() + bytes.len()) as u64);
                    return self.lose_position((reader, handler), sink);
                };
                self.begin_payload(header, (reader, handler), sink);
                self.end_payload(time, (reader, handler), sink);
            }
        }
    }

    fn begin_payload<H: MessageHandler>(
        &mut self,
        header: CqlFrameHeader,
        (reader, handler): (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        self.header.clear();
        self.has_gap = false;
        self.payload = Some((header, header.payload_bytes));
        if header.uncompressed_bytes > 0 {
            self.compressed.reserve_exact(header.payload_bytes);
        }
        // Envelopes that are larger than a frame cannot be read from their middle.
        if header.is_self_contained && reader.position() != MessagePosition::Known {
            reader.set_known();
            handler.on_resync(sink);
        }
    }

    fn read_payload<H: MessageHandler>(
        &mut self,
        header: CqlFrameHeader,
        time: PacketTime,
        bytes: &[u8],
        (reader, handler): (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        match header.uncompressed_bytes {
            _ if self.has_gap && header.uncompressed_bytes > 0 => {}
            0 => reader.read(time, time, bytes, handler, sink),
            _ => self.compressed.extend_from_slice(bytes),
        }
    }

    /// Decompresses the payload if it is complete, and continues with its checksum.
    fn end_payload<H: MessageHandler>(
        &mut self,
        time: PacketTime,
        (reader, handler): (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        let Some((header, 0)) = self.payload else { return };
        self.payload = None;
        self.trailer_bytes = TRAILER_BYTES;
        if header.uncompressed_bytes == 0 {
            return;
        }
        self.uncompressed.resize(header.uncompressed_bytes, 0);
        let decompressed =
            lz4_flex::block::decompress_into(&self.compressed, &mut self.uncompressed);
        match decompressed {
            Ok(size) if !self.has_gap => {
                reader.read(self.start, time, &self.uncompressed[..size], handler, sink);
            }
            _ => reader.lose_position(0, handler, sink),
        }
        for buffer in [&mut self.compressed, &mut self.uncompressed] {
            buffer.clear();
            buffer.shrink_to(RETAINED_BYTES_MAX);
        }
    }

    pub(super) fn skip<H: MessageHandler>(
        &mut self,
        missing: u64,
        (reader, handler): (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        let left = self.payload.map_or(0, |(_, left)| left as u64);
        let to_end = left + if self.payload.is_some() { TRAILER_BYTES } else { self.trailer_bytes };
        if missing > to_end {
            return self.lose_position((reader, handler), sink);
        }
        let Some((header, _)) = self.payload else {
            self.trailer_bytes -= missing;
            return;
        };
        let in_payload = left.min(missing);
        self.has_gap = true;
        match header.uncompressed_bytes {
            0 => reader.skip(in_payload, handler, sink),
            _ => reader.lose_position(0, handler, sink),
        }
        self.payload = Some((header, (left - in_payload) as usize));
        if left == in_payload {
            self.payload = None;
            self.compressed.clear();
            self.trailer_bytes = TRAILER_BYTES - (missing - in_payload);
        }
    }

    fn lose_position<H: MessageHandler>(
        &mut self,
        (reader, handler): (&mut MessageStreamReader, &mut H),
        sink: &mut dyn OperationSink,
    ) {
        self.header.clear();
        self.compressed.clear();
        self.payload = None;
        self.trailer_bytes = 0;
        self.is_lost = true;
        reader.lose_position(0, handler, sink);
    }
}
