//! Index of a block of Prometheus' TSDB, version 2: series, their labels and their chunks.
//!
//! ```text
//! offset  size  field
//!      0     4  magic    BA AA D7 00
//!      4     1  version  2
//!      5        symbols, series and other sections
//!    -52     8  offset of the symbols
//!    -44     8  offset of the series
//!    -36    32  offsets of label indices, their table, postings, their table
//!     -4     4  checksum of these offsets
//! ```
//!
//! An index can have gigabytes. Of these, only the symbols are kept; series are decoded one by one
//! from bytes that the caller reads.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use super::{ByteCursor, CHECKSUM_BYTES, check_checksum, invalid};
use crate::input_error::InputError;

const MAGIC: [u8; 4] = [0xba, 0xaa, 0xd7, 0x00];
const VERSION: u8 = 2;
/// Bytes of magic and version.
pub const INDEX_HEADER_BYTES: usize = 5;
/// Bytes of the table of contents, with its checksum.
pub const INDEX_CONTENTS_BYTES: usize = 52;
/// Series start at multiples of this.
pub const SERIES_ALIGNMENT: u64 = 16;
/// Maximum size of a series: 64 MiB are more than a million chunks, a century of a series.
const SERIES_BYTES_MAX: u64 = 64 << 20;
/// Length of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// Offsets of sections in an index: start, and the start of the next section.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexSections {
    /// Symbols.
    pub symbols: (u64, u64),
    /// Series.
    pub series: (u64, u64),
}

/// Strings of an index: names and values of labels.
pub struct SymbolTable {
    bytes: Vec<u8>,
    /// Start and end of each symbol.
    ranges: Vec<(u32, u32)>,
}

/// Series of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSeries<'a> {
    /// Number of the series in tombstones.
    pub reference: u64,
    /// Names and values, the metric name as `__name__`.
    pub labels: Vec<(&'a [u8], &'a [u8])>,
    /// Chunks by time.
    pub chunks: Vec<ChunkReference>,
}

/// Location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChunkReference {
    /// Index of the chunk file, from 0.
    pub segment: u32,
    /// Offset in that file.
    pub offset: u32,
}

impl IndexSections {
    /// Reads the header and the table of contents: the first [`INDEX_HEADER_BYTES`] and the last
    /// [`INDEX_CONTENTS_BYTES`] of a file of this size, or fewer if the file is shorter.
    pub fn parse(header: &[u8], contents: &[u8], size: u64) -> Result<IndexSections, InputError> {
        let mut header = ByteCursor::new(header, 0);
        let magic: [u8; 4] = header.array()?;
        if magic != MAGIC {
            return Err(invalid(
                0,
                "baaad700, an index of a Prometheus block",
                format!("{magic:02x?}"),
            ));
        }
        let [version] = header.array()?;
        if version != VERSION {
            return Err(invalid(4, "version 2 of an index", format!("{version}")));
        }
        let start = size
            .checked_sub(INDEX_CONTENTS_BYTES as u64)
            .filter(|_| contents.len() == INDEX_CONTENTS_BYTES)
            .ok_or_else(|| invalid(size, "a table of contents", "the end of the file"))?;
        let mut cursor = ByteCursor::new(contents, start);
        let offsets = cursor.take(INDEX_CONTENTS_BYTES.saturating_sub(CHECKSUM_BYTES))?;
        check_checksum(offsets, cursor.array()?, start)?;
        let mut cursor = ByteCursor::new(offsets, start);
        let mut sections = [0; 6];
        for section in &mut sections {
            *section = u64::from_be_bytes(cursor.array()?);
            if *section > start {
                return Err(invalid(
                    cursor.offset,
                    "the offset of a section before the table of contents",
                    format!("{section}"),
                ));
            }
        }
        let with_end = |section: u64| {
            let end = sections.into_iter().filter(|next| *next > section).min();
            (section, end.unwrap_or(start))
        };
        let [symbols, series, ..] = sections;
        Ok(IndexSections { symbols: with_end(symbols), series: with_end(series) })
    }
}

impl SymbolTable {
    /// Reads the section, which starts at this offset of the file.
    pub fn parse(mut bytes: Vec<u8>, offset: u64) -> Result<SymbolTable, InputError> {
        let mut section = ByteCursor::new(&bytes, offset);
        let length = u32::from_be_bytes(section.array()?) as usize;
        let (start, table) = (section.offset, section.take(length)?);
        check_checksum(table, section.array()?, start)?;
        let mut cursor = ByteCursor::new(table, start);
        let count = u32::from_be_bytes(cursor.array()?);
        let mut ranges = Vec::new();
        for _ in 0..count {
            let length = cursor.count()?;
            let from = cursor.offset.saturating_sub(offset) as u32;
            ranges.push((from, from.saturating_add(cursor.take(length)?.len() as u32)));
        }
        bytes.truncate(length.saturating_add(CHECKSUM_BYTES));
        Ok(SymbolTable { bytes, ranges })
    }

    fn symbol(&self, number: u64) -> Option<&[u8]> {
        let (start, end) = *self.ranges.get(usize::try_from(number).ok()?)?;
        self.bytes.get(start as usize..end as usize)
    }

    fn read_symbol(&self, cursor: &mut ByteCursor<'_>) -> Result<&[u8], InputError> {
        let offset = cursor.offset;
        let number = cursor.uvarint()?;
        self.symbol(number).ok_or_else(|| {
            let found = format!("symbol {number} of {}", self.ranges.len());
            invalid(offset, "a symbol of the table", found)
        })
    }
}

/// Size in bytes of the series that starts with these bytes, at this offset of the index. 0 is the
/// size of padding, [`SERIES_ALIGNMENT`] bytes. At least [`SERIES_ALIGNMENT`] bytes must be passed,
/// unless the section ends before.
pub fn series_size(start: &[u8], offset: u64) -> Result<usize, InputError> {
    let start = start.get(..VARINT_BYTES_MAX).unwrap_or(start);
    let mut cursor = ByteCursor::new(start, offset);
    match cursor.uvarint()? {
        0 => Ok(0),
        length @ ..=SERIES_BYTES_MAX => {
            let prefix = cursor.offset.saturating_sub(offset) as usize;
            Ok(prefix.saturating_add(length as usize).saturating_add(CHECKSUM_BYTES))
        }
        length => Err(invalid(offset, "a series of at most 64 MiB", format!("{length} bytes"))),
    }
}

impl<'a> IndexSeries<'a> {
    /// Reads a series at this offset of the index, and checks its checksum.
    pub fn parse(
        bytes: &[u8],
        offset: u64,
        symbols: &'a SymbolTable,
    ) -> Result<IndexSeries<'a>, InputError> {
        let mut cursor = ByteCursor::new(bytes, offset);
        let length = cursor.count()?;
        let (start, content) = (cursor.offset, cursor.take(length)?);
        check_checksum(content, cursor.array()?, start)?;
        let mut series = ByteCursor::new(content, start);
        let mut labels = Vec::new();
        for _ in 0..series.count()? {
            labels.push((symbols.read_symbol(&mut series)?, symbols.read_symbol(&mut series)?));
        }
        let chunks = read_chunks(&mut series)?;
        let reference = offset.checked_div(SERIES_ALIGNMENT).unwrap_or(0);
        Ok(IndexSeries { reference, labels, chunks })
    }
}

fn read_chunks(cursor: &mut ByteCursor<'_>) -> Result<Vec<ChunkReference>, InputError> {
    let count = cursor.count()?;
    let (mut chunks, mut place) = (Vec::new(), 0_u64);
    for chunk in 0..count {
        // Times of the first and the last sample, which the chunk has too.
        match chunk {
            0 => cursor.varint()?,
            _ => cursor.uvarint()? as i64,
        };
        cursor.uvarint()?;
        place = match chunk {
            0 => cursor.uvarint()?,
            _ => place.wrapping_add(cursor.varint()? as u64),
        };
        chunks.push(ChunkReference { segment: (place >> 32) as u32, offset: place as u32 });
    }
    Ok(chunks)
}
