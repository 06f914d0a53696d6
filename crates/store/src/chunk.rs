//! Chunk format: rows of one series with a checksum.
//!
//! ```text
//! offset  size  field
//!      0     4  magic       b"tdck"
//!      4     1  version     1; readers refuse any other
//!      5     1  content     0 histograms, 1 cumulative histograms, 2 numbers, 3 aggregates,
//!                          4 texts, 5 cumulative histograms with predecessor,
//!                          6 numbers with predecessor
//!      6     1  resolution  0 base, 1 a minute, 2 five minutes, 3 an hour, 4 a day
//!      7     1  reserved    0
//!      8    16  series      series id
//!     24     8  start       i64 ns: earliest start; base rows of cumulative series: time of the first
//!     32     8  end         i64 ns: latest end
//!     40     4  rows        u32
//!     44     4  length      u32: bytes after the header
//!     48     4  checksum    u32: CRC-32C of the 48 bytes before and of the bytes after
//! ```
//! After the header: the times (`times.rs`), then by content
//!
//! ```text
//! 0 histograms   a block as in docs/formats/block.md
//! 1 cumulative   length and frame of the first row; a block of deltas of the other rows; accuracy, a
//!                byte a row (2 bits each of sum, min, max: 0 unknown, 1 estimate, 2 exact); columns
//!                of the rows' sum (high and low words), min and max, 0 where unknown
//! 2 numbers      a column of f64
//! 3 aggregates   columns of count, nan (u64), sum's high and low words, min, max, first, last
//!                (f64)
//! 4 texts        zstd of each text as length and UTF-8
//! 5 cumulative   the predecessor (below); length and frame of the first row unless it is a delta;
//!                then as 1
//! 6 numbers      the predecessor; a column of f64
//! ```
//! The predecessor is the sample before the first row when the chunk was written. It gives the
//! delta between the two after the chunk of the predecessor is dropped:
//!
//! ```text
//! tag       u8      0 none; 1 the first row is its delta to the predecessor; 2 it is standalone
//! time      zigzag ns end, varint ns end minus start  unless the tag is 0
//! value     length and frame, or f64                  unless the tag is 0
//! ```
//! A column is a length and a pco stream. Specification: `docs/formats/chunk.md`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod histogram_delta;
mod row_groups;
mod sample_group;
mod values;

use model::{SeriesId, SeriesKind};

use crate::backend::ChunkInfo;
use crate::cumulative_sample::CumulativeSample;
use crate::resolution::Resolution;
use crate::row::{Predecessor, Rows};
use crate::times;

use row_groups::ChunkRows;

pub(crate) use histogram_delta::TrackedStatistics;
pub(crate) use values::{
    CumulativeChunk, NumberDecoder, decode, decode_increments, last_sample, read_times,
};

/// First bytes of a chunk.
pub const MAGIC: [u8; 4] = *b"tdck";
/// The version written, and the only one read.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 52;

/// The fields of the header: name, offset, size.
pub const FIELDS: [(&str, usize, usize); 11] = [
    ("magic", 0, 4),
    ("version", 4, 1),
    ("content", 5, 1),
    ("resolution", 6, 1),
    ("reserved", 7, 1),
    ("series", 8, 16),
    ("start", 24, 8),
    ("end", 32, 8),
    ("rows", 40, 4),
    ("length", 44, 4),
    ("checksum", 48, 4),
];

const CHECKSUM_AT: usize = 48;
/// Maximum rows of a chunk: a quarter of a day at one sample a minute.
pub const ROWS_MAX: usize = 360;
/// Maximum bytes of a chunk.
pub const BYTES_MAX: usize = 64 << 20;
/// Maximum bytes of texts in a chunk, before compression.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Parsed chunk header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    /// Kind of rows.
    pub(crate) content: ChunkKind,
    /// Resolution of the rows.
    pub(crate) resolution: Resolution,
    /// Series of the rows.
    pub(crate) series: SeriesId,
    /// Earliest start of a row; for cumulative series, the time of the first sample.
    pub(crate) start: i64,
    /// Latest end of a row.
    pub(crate) end: i64,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Bytes after the header.
    pub(crate) length: usize,
}

impl ChunkHeader {
    /// The header as [`ChunkInfo`].
    pub(crate) fn info(&self) -> ChunkInfo {
        let ChunkHeader { series, start, end, rows, .. } = *self;
        ChunkInfo { series, rows: rows as u32, start, end }
    }
}

/// What kind of rows a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Histograms of intervals.
    Histograms,
    /// Histograms cumulative since a start.
    Cumulative,
    /// Plain numbers.
    Numbers,
    /// Rollups of numbers.
    Aggregates,
    /// Texts.
    Texts,
    /// Cumulative histograms with a known predecessor.
    CumulativeWithPredecessor,
    /// Numbers with a known predecessor.
    NumbersWithPredecessor,
}

impl ChunkKind {
    const ALL: [ChunkKind; 7] = [
        ChunkKind::Histograms,
        ChunkKind::Cumulative,
        ChunkKind::Numbers,
        ChunkKind::Aggregates,
        ChunkKind::Texts,
        ChunkKind::CumulativeWithPredecessor,
        ChunkKind::NumbersWithPredecessor,
    ];

    fn from_rows(rows: &ChunkRows, predecessor: &Predecessor) -> ChunkKind {
        let is_known = *predecessor != Predecessor::Unknown;
        let ChunkRows::Rows(rows) = rows else {
            return match is_known {
                true => ChunkKind::CumulativeWithPredecessor,
                false => ChunkKind::Cumulative,
            };
        };
        match rows {
            Rows::Histograms(_) => ChunkKind::Histograms,
            Rows::Cumulative(_) => {
                unreachable!("BUG: cumulative histograms are grouped as samples")
            }
            Rows::Numbers(_) if is_known => ChunkKind::NumbersWithPredecessor,
            Rows::Numbers(_) => ChunkKind::Numbers,
            Rows::Aggregates(_) => ChunkKind::Aggregates,
            Rows::Texts(_) => ChunkKind::Texts,
        }
    }
}

/// Why bytes are not a valid chunk.
pub(crate) type Corruption = String;

impl ChunkHeader {
    /// Parses a header. It is trustworthy only after [`check`].
    pub(crate) fn read(bytes: &[u8]) -> Result<ChunkHeader, Corruption> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(format!("{} bytes, a chunk header has {HEADER_BYTES}", bytes.len()));
        };
        let (magic, [version, content, resolution, _]) = (field::<4>(header, 0), field(header, 4));
        let series = field(header, 8);
        let (start, end) = (field(header, 24), field(header, 32));
        let (start, end) = (i64::from_le_bytes(start), i64::from_le_bytes(end));
        let rows = u32::from_le_bytes(field(header, 40)) as usize;
        let length = u32::from_le_bytes(field(header, 44)) as usize;
        if magic != MAGIC {
            return Err("invalid chunk magic".to_owned());
        }
        if version != VERSION {
            return Err(format!("chunk version {version}, supported {VERSION}"));
        }
        let content = ChunkKind::ALL.get(usize::from(content)).copied();
        let (Some(content), Some(resolution)) = (content, Resolution::from_byte(resolution)) else {
            return Err("chunk with unknown content or resolution".to_owned());
        };
        if length > BYTES_MAX || rows > ROWS_MAX {
            return Err(format!("chunk of {rows} rows and {length} bytes exceeds the limits"));
        }
        Ok(ChunkHeader { content, resolution, series: SeriesId(series), start, end, rows, length })
    }
}

/// A field of the header by its offset.
fn field<const SIZE: usize>(header: &[u8; HEADER_BYTES], offset: usize) -> [u8; SIZE] {
    header.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; SIZE])
}

/// Verifies the checksum of header and payload.
pub(crate) fn check(bytes: &[u8]) -> Result<ChunkHeader, Corruption> {
    let header = ChunkHeader::read(bytes)?;
    let needed = HEADER_BYTES.saturating_add(header.length);
    if bytes.len() != needed {
        return Err(format!("{} bytes, expected {needed}", bytes.len()));
    }
    let found = checksum(bytes);
    let written = bytes[CHECKSUM_AT..HEADER_BYTES].first_chunk().copied();
    let expected = u32::from_le_bytes(written.unwrap_or_default());
    if found != expected {
        return Err(format!("checksum mismatch: computed {found:08x}, stored {expected:08x}"));
    }
    Ok(header)
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &bytes[HEADER_BYTES..])
}

/// What chunks are made of.
pub(crate) enum ChunkSource<'a> {
    /// Normalized rows.
    Rows(Rows),
    /// Samples of a cumulative histogram, each later than the one before it. Those of one chunk are
    /// in memory at a time.
    Samples(Box<dyn Iterator<Item = CumulativeSample> + 'a>),
}

/// Encodes rows as chunks and passes each header with its bytes to `each`. `predecessor` is the
/// predecessor of the first row of a cumulative series; other kinds ignore it.
pub(crate) fn encode(
    series: SeriesId,
    resolution: Resolution,
    kind: SeriesKind,
    rows: ChunkSource<'_>,
    mut predecessor: Predecessor,
    mut each: impl FnMut(ChunkHeader, &[u8]) -> crate::Result<()>,
) -> crate::Result<()> {
    let are_cumulative_samples = resolution == Resolution::Base && kind.is_cumulative();
    let mut bytes = Vec::new();
    let groups = match rows {
        ChunkSource::Rows(rows) => row_groups::split_rows(rows),
        ChunkSource::Samples(samples) => row_groups::split_samples(samples),
    };
    for mut group in groups {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        let times = group.times();
        if !are_cumulative_samples {
            predecessor = Predecessor::Unknown;
        }
        let content = ChunkKind::from_rows(&group, &predecessor);
        let last = match are_cumulative_samples {
            true => group.last_sample(),
            false => None,
        };
        times::put(&mut bytes, &times);
        values::put_values(&mut bytes, group, &predecessor);
        predecessor = last.map_or(predecessor, Predecessor::Sample);
        let header = ChunkHeader {
            content,
            resolution,
            series,
            start: times
                .iter()
                .map(|&time| match resolution {
                    Resolution::Base => row_begin(kind, time),
                    // A row between two intervals belongs to the earlier interval.
                    _ => time.0.min(time.1.saturating_sub(1)),
                })
                .min()
                .unwrap_or(0),
            end: times.iter().map(|time| time.1).max().unwrap_or(0),
            rows: times.len(),
            length: bytes.len().saturating_sub(HEADER_BYTES),
        };
        put_header(&mut bytes, &header);
        each(header, &bytes)?;
    }
    Ok(())
}

/// The start that a chunk header records for a row. A cumulative sample may count from far back and
/// is indexed by the time it was read. A gauge histogram belongs to the nanosecond before
/// it, as every row does by its end.
pub(crate) fn row_begin(kind: SeriesKind, (start, end): (i64, i64)) -> i64 {
    match kind {
        _ if kind.is_cumulative() => end,
        SeriesKind::Histogram(_) => start.min(end.saturating_sub(1)),
        _ => start,
    }
}

fn put_header(bytes: &mut [u8], header: &ChunkHeader) {
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&[VERSION, header.content as u8, header.resolution.to_byte(), 0]);
    bytes[8..24].copy_from_slice(&header.series.0);
    bytes[24..32].copy_from_slice(&header.start.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.end.to_le_bytes());
    bytes[40..44].copy_from_slice(&(header.rows as u32).to_le_bytes());
    bytes[44..48].copy_from_slice(&(header.length as u32).to_le_bytes());
    let checksum = checksum(bytes);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Test aid: sets magic, version, length and checksum so that arbitrary bytes pass as a chunk.
pub(crate) fn reseal_header(bytes: &mut [u8]) {
    let length = bytes.len().saturating_sub(HEADER_BYTES) as u32;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[44..48].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(bytes);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests;
