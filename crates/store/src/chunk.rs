//! Chunk format: rows of one series with a checksum.
//!
//! ```text
//! offset  size  field
//!      0     4  magic       b"tdck"
//!      4     1  version     1; readers refuse any other
//!      5     1  content     0 histograms, 1 cumulative histograms, 2 numbers, 3 summaries, 4 texts,
//!                          5 cumulative histograms with predecessor, 6 numbers with predecessor
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
//! 3 summaries    columns of count, nan (u64), sum's high and low words, min, max, first, last (f64)
//! 4 texts        zstd of each text as length and UTF-8
//! 5 cumulative   the predecessor (below); length and frame of the first row unless it is a delta;
//!                then as 1
//! 6 numbers      the predecessor; a column of f64
//! ```
//! The predecessor is the sample before the first row when the chunk was written. It gives the delta
//! between the two after the chunk of the predecessor is dropped:
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

use hist::codec::block;
use hist::codec::header::{SeriesMeta, Temporality};
use hist::{Accumulator, Buckets, CompensatedSum, Histogram, TrackedValue};
use model::wire::{WireReader, put_bytes, put_varint, put_zigzag};
use model::{SeriesId, SeriesKind};

use crate::backend::ChunkInfo;
use crate::column;
use crate::resolution::Resolution;
use crate::row::{NumberSummary, Predecessor, Row, Rows};
use crate::times;

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
/// A fast zstd level: texts are few.
const TEXT_LEVEL: i32 = 3;

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
    Summaries,
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
        ChunkKind::Summaries,
        ChunkKind::Texts,
        ChunkKind::CumulativeWithPredecessor,
        ChunkKind::NumbersWithPredecessor,
    ];

    fn from_rows(rows: &Rows, predecessor: &Predecessor) -> ChunkKind {
        let is_known = *predecessor != Predecessor::Unknown;
        match rows {
            Rows::Histograms(_) => ChunkKind::Histograms,
            Rows::Cumulative(_) if is_known => ChunkKind::CumulativeWithPredecessor,
            Rows::Numbers(_) if is_known => ChunkKind::NumbersWithPredecessor,
            Rows::Cumulative(_) => ChunkKind::Cumulative,
            Rows::Numbers(_) => ChunkKind::Numbers,
            Rows::Summaries(_) => ChunkKind::Summaries,
            Rows::Texts(_) => ChunkKind::Texts,
        }
    }
}

/// Why bytes are not a valid chunk.
pub(crate) type Corruption = String;

impl ChunkHeader {
    /// Parses a header. It is trustworthy only after [`check`].
    pub(crate) fn read(bytes: &[u8]) -> Result<ChunkHeader, Corruption> {
        let mut reader = WireReader::new(bytes);
        let mut read = || -> model::Result<_> {
            Ok((
                reader.array::<4>("magic")?,
                reader.array::<4>("version")?,
                reader.array::<16>("series")?,
                (reader.i64("start")?, reader.i64("end")?),
                (reader.u32("rows")? as usize, reader.u32("length")? as usize),
            ))
        };
        let (magic, [version, content, resolution, _], series, (start, end), (rows, length)) =
            read().map_err(|error| error.to_string())?;
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

/// Encodes normalized rows as chunks and passes each header with its bytes to `each`. `predecessor`
/// is the predecessor of the first row of a cumulative series; other kinds ignore it.
pub(crate) fn encode(
    series: SeriesId,
    resolution: Resolution,
    kind: SeriesKind,
    rows: Rows,
    mut predecessor: Predecessor,
    mut each: impl FnMut(ChunkHeader, &[u8]) -> crate::Result<()>,
) -> crate::Result<()> {
    let are_readings = resolution == Resolution::Base && kind.is_cumulative();
    let mut bytes = Vec::new();
    for rows in split_rows(rows) {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        let times = rows.times();
        if !are_readings {
            predecessor = Predecessor::Unknown;
        }
        let (content, count) = (ChunkKind::from_rows(&rows, &predecessor), rows.len());
        let last = match are_readings {
            true => rows.last_reading(i64::MAX),
            false => None,
        };
        times::put(&mut bytes, &times);
        put_values(&mut bytes, rows, &predecessor);
        predecessor = last.map_or(predecessor, Predecessor::Reading);
        let header = ChunkHeader {
            content,
            resolution,
            series,
            start: times
                .iter()
                .map(|&time| match resolution {
                    Resolution::Base => row_begin(kind, time),
                    // A row between two slots belongs to the earlier slot.
                    _ => time.0.min(time.1.saturating_sub(1)),
                })
                .min()
                .unwrap_or(0),
            end: times.iter().map(|time| time.1).max().unwrap_or(0),
            rows: count,
            length: bytes.len().saturating_sub(HEADER_BYTES),
        };
        put_header(&mut bytes, &header);
        each(header, &bytes)?;
    }
    Ok(())
}

/// The start that a chunk header records for a row. A cumulative sample may count from far back and
/// is indexed by the time it was read. A point-in-time histogram belongs to the nanosecond before
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

/// Splits rows into groups that fit one chunk each: one bucket scheme, at most [`ROWS_MAX`] rows
/// and, for cumulative histograms, each containing the one before.
fn split_rows(rows: Rows) -> Vec<Rows> {
    fn split_evenly<T>(mut rows: Vec<Row<T>>, wrap: fn(Vec<Row<T>>) -> Rows) -> Vec<Rows> {
        let mut pieces = Vec::new();
        while rows.len() > ROWS_MAX {
            let rest = rows.split_off(ROWS_MAX);
            pieces.push(wrap(std::mem::replace(&mut rows, rest)));
        }
        if !rows.is_empty() {
            pieces.push(wrap(rows));
        }
        pieces
    }
    match rows {
        Rows::Numbers(rows) => split_evenly(rows, Rows::Numbers),
        Rows::Summaries(rows) => split_evenly(rows, Rows::Summaries),
        Rows::Histograms(rows) => group_uniform(rows)
            .into_iter()
            .flat_map(|rows| split_evenly(rows, Rows::Histograms))
            .flat_map(|rows| split_by_buckets(rows, Rows::Histograms))
            .collect(),
        Rows::Cumulative(rows) => {
            let mut chunks: Vec<Vec<Row<Histogram>>> = Vec::new();
            for row in rows {
                match chunks.last_mut() {
                    Some(chunk) if chunk.len() < ROWS_MAX && is_delta_codable(chunk, &row) => {
                        chunk.push(row)
                    }
                    _ => chunks.push(vec![row]),
                }
            }
            chunks
                .into_iter()
                .flat_map(|rows| split_by_buckets(Rows::Cumulative(rows), Rows::Cumulative))
                .collect()
        }
        Rows::Texts(rows) => {
            let mut chunks: Vec<Vec<Row<String>>> = Vec::new();
            let mut bytes = 0;
            for row in rows {
                bytes = row.value.len().saturating_add(bytes);
                match chunks.last_mut() {
                    Some(chunk) if chunk.len() < ROWS_MAX && bytes <= TEXT_BYTES_MAX => {
                        chunk.push(row)
                    }
                    _ => {
                        bytes = row.value.len();
                        chunks.push(vec![row]);
                    }
                }
            }
            chunks.into_iter().map(Rows::Texts).collect()
        }
    }
}

/// Groups histograms by bucket scheme, zero threshold and declared thresholds, which are the same
/// for all rows of a block.
fn group_uniform(rows: Vec<Row<Histogram>>) -> Vec<Vec<Row<Histogram>>> {
    let mut groups: Vec<Vec<Row<Histogram>>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| is_uniform(&group[0].value, &row.value)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn is_uniform(a: &Histogram, b: &Histogram) -> bool {
    let limits =
        |h: &Histogram| h.thresholds().iter().map(|t| t.value.to_bits()).collect::<Vec<_>>();
    a.scheme() == b.scheme() && a.zero_threshold() == b.zero_threshold() && limits(a) == limits(b)
}

/// Halves groups that have too many distinct buckets for one block.
fn split_by_buckets(rows: Rows, wrap: fn(Vec<Row<Histogram>>) -> Rows) -> Vec<Rows> {
    let (Rows::Histograms(mut held) | Rows::Cumulative(mut held)) = rows else {
        panic!("BUG: only histograms have buckets");
    };
    // Nearly always the whole span from first to last used bucket fits.
    let span = |of: fn(&Histogram) -> &Buckets| {
        let ends = held.iter().filter_map(|row| {
            let indexes = of(&row.value).indexes();
            Some((i64::from(*indexes.first()?), i64::from(*indexes.last()?)))
        });
        let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        ends.map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1))
    };
    let columns = span(Histogram::positive).max(span(Histogram::negative));
    // A block pads its rows to a multiple of eight.
    let rows = (held.len() as u64).next_multiple_of(8);
    if held.len() == 1 || columns.saturating_mul(rows) <= block::CELLS_MAX {
        return vec![wrap(held)];
    }
    // Rows share most buckets, so the union is counted before the group is split.
    let mut union: Vec<i32> =
        held.iter().flat_map(|row| row.value.positive().indexes().iter().copied()).collect();
    let mut negative: Vec<i32> =
        held.iter().flat_map(|row| row.value.negative().indexes().iter().copied()).collect();
    for indexes in [&mut union, &mut negative] {
        indexes.sort_unstable();
        indexes.dedup();
    }
    if (union.len().max(negative.len()) as u64).saturating_mul(rows) <= block::CELLS_MAX {
        return vec![wrap(held)];
    }
    let rest = held.split_off(held.len() / 2);
    [held, rest].into_iter().flat_map(|rows| split_by_buckets(wrap(rows), wrap)).collect()
}

/// Whether a sample can be encoded as its delta to the last of `chunk`.
fn is_delta_codable(chunk: &[Row<Histogram>], row: &Row<Histogram>) -> bool {
    let Some(Row { value: before, .. }) = chunk.last() else { return false };
    let Some(added) = delta_between(before, &row.value) else { return false };
    let first_added =
        chunk.get(1).and_then(|second| self::delta_between(&chunk[0].value, &second.value));
    first_added.is_none_or(|first| is_uniform(&first, &added))
        && apply_delta(before, &added, &SummaryValues::from_histogram(&row.value)).as_ref()
            == Some(&row.value)
}

fn delta_between(before: &Histogram, after: &Histogram) -> Option<Histogram> {
    let mut added = after.clone();
    added.subtract(before).ok()?;
    // Sums are encoded separately; a block is smallest without them.
    let mut parts = added.into_parts();
    (parts.sum, parts.min, parts.max) =
        (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_parts(parts).ok()
}

fn apply_delta(before: &Histogram, added: &Histogram, sides: &SummaryValues) -> Option<Histogram> {
    let mut after = before.clone();
    after.merge(added).ok()?;
    let mut parts = after.into_parts();
    (parts.sum, parts.min, parts.max) = (sides.sum, sides.min, sides.max);
    Histogram::from_parts(parts).ok()
}

/// Summary values of a cumulative histogram beside its counts.
struct SummaryValues {
    sum: TrackedValue<CompensatedSum>,
    min: TrackedValue<f64>,
    max: TrackedValue<f64>,
}

impl SummaryValues {
    fn from_histogram(histogram: &Histogram) -> SummaryValues {
        let (sum, min, max) =
            (histogram.tracked_sum(), histogram.tracked_min(), histogram.tracked_max());
        SummaryValues { sum, min, max }
    }

    fn exactness_bits(&self) -> u8 {
        fn of<T>(side: TrackedValue<T>) -> u8 {
            match side {
                TrackedValue::Absent => 0,
                TrackedValue::Estimated(_) => 1,
                TrackedValue::Exact(_) => 2,
            }
        }
        of(self.sum) | of(self.min) << 2 | of(self.max) << 4
    }

    fn numbers(&self) -> [f64; 4] {
        let (high, low) = self.sum.value().unwrap_or_default().parts();
        [high, low, self.min.value().unwrap_or_default(), self.max.value().unwrap_or_default()]
    }

    fn from_bits(standings: u8, [high, low, min, max]: [f64; 4]) -> SummaryValues {
        fn side<T>(standing: u8, value: T) -> TrackedValue<T> {
            match standing & 3 {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(value),
                _ => TrackedValue::Exact(value),
            }
        }
        SummaryValues {
            sum: side(standings, CompensatedSum::from_parts(high, low)),
            min: side(standings >> 2, min),
            max: side(standings >> 4, max),
        }
    }
}

const PLAIN_META: SeriesMeta =
    SeriesMeta { unit: hist::codec::header::Unit::None, temporality: Temporality::Delta };

/// The first row has no predecessor.
const FIRST_READING: u8 = 0;
/// The first row is encoded as its delta to the predecessor.
const DELTA_CODED: u8 = 1;
/// The first row is encoded standalone.
const STANDALONE: u8 = 2;

#[expect(
    clippy::expect_used,
    reason = "divided parts readings that do not follow; zstd packs what fits memory"
)]
fn put_values(out: &mut Vec<u8>, rows: Rows, predecessor: &Predecessor) {
    match rows {
        Rows::Histograms(rows) => put_block(out, rows.into_iter().map(|row| row.value).collect()),
        Rows::Cumulative(rows) => {
            let step = |before: &Histogram, after: &Histogram| {
                delta_between(before, after).expect("BUG: such rows are in another chunk")
            };
            let mut steps = Vec::with_capacity(rows.len());
            match predecessor {
                Predecessor::Unknown => put_frame(out, &rows[0].value),
                Predecessor::Nothing => {
                    out.push(FIRST_READING);
                    put_frame(out, &rows[0].value);
                }
                Predecessor::Reading(Rows::Cumulative(before)) => {
                    let before = &before[0];
                    // Deltas of one chunk must be of the same kind: the second is checked as if it
                    // were the first.
                    let is_step = is_delta_codable(std::slice::from_ref(before), &rows[0])
                        && rows.get(1).is_none_or(|second| {
                            is_delta_codable(&[before.clone(), rows[0].clone()], second)
                        });
                    out.push(if is_step { DELTA_CODED } else { STANDALONE });
                    put_time(out, before);
                    put_frame(out, &before.value);
                    match is_step {
                        true => steps.push(step(&before.value, &rows[0].value)),
                        false => put_frame(out, &rows[0].value),
                    }
                }
                Predecessor::Reading(other) => {
                    panic!("BUG: the predecessor of histograms is {other:?}")
                }
            }
            steps.extend(rows.windows(2).map(|pair| step(&pair[0].value, &pair[1].value)));
            let mut block = Vec::new();
            put_block(&mut block, steps);
            put_bytes(out, &block);
            let sides: Vec<SummaryValues> =
                rows.iter().map(|row| SummaryValues::from_histogram(&row.value)).collect();
            out.extend(sides.iter().map(SummaryValues::exactness_bits));
            for at in 0..4 {
                let column: Vec<f64> = sides.iter().map(|sides| sides.numbers()[at]).collect();
                put_bytes(out, &column::put(&column));
            }
        }
        Rows::Numbers(rows) => {
            match predecessor {
                Predecessor::Unknown => {}
                Predecessor::Nothing => out.push(FIRST_READING),
                Predecessor::Reading(Rows::Numbers(before)) => {
                    out.push(STANDALONE);
                    put_time(out, &before[0]);
                    out.extend(before[0].value.to_le_bytes());
                }
                Predecessor::Reading(other) => {
                    panic!("BUG: the predecessor of numbers is {other:?}")
                }
            }
            let numbers: Vec<f64> = rows.iter().map(|row| row.value).collect();
            put_bytes(out, &column::put(&numbers));
        }
        Rows::Summaries(rows) => {
            for of in [|s: &NumberSummary| s.count, |s: &NumberSummary| s.nan] {
                put_bytes(
                    out,
                    &column::put(&rows.iter().map(|row| of(&row.value)).collect::<Vec<u64>>()),
                );
            }
            for of in SUMMARY_COLUMNS {
                put_bytes(
                    out,
                    &column::put(&rows.iter().map(|row| of(&row.value)).collect::<Vec<f64>>()),
                );
            }
        }
        Rows::Texts(rows) => {
            let mut texts = Vec::new();
            rows.iter().for_each(|row| put_bytes(&mut texts, row.value.as_bytes()));
            let packed = zstd::bulk::compress(&texts, TEXT_LEVEL);
            put_bytes(out, &packed.expect("BUG: zstd packs whatever fits memory"));
        }
    }
}

fn put_frame(out: &mut Vec<u8>, histogram: &Histogram) {
    let mut frame = Vec::new();
    hist::codec::frame::encode(histogram, PLAIN_META, &mut frame);
    put_bytes(out, &frame);
}

fn put_time<T>(out: &mut Vec<u8>, row: &Row<T>) {
    put_zigzag(out, row.end);
    put_varint(out, row.end.wrapping_sub(row.start) as u64);
}

const SUMMARY_COLUMNS: [fn(&NumberSummary) -> f64; 6] =
    [|s| s.sum.parts().0, |s| s.sum.parts().1, |s| s.min, |s| s.max, |s| s.first, |s| s.last];

#[expect(
    clippy::expect_used,
    reason = "divided and within_cells give rows that are alike and not too many"
)]
fn put_block(out: &mut Vec<u8>, histograms: Vec<Histogram>) {
    block::encode(&histograms, PLAIN_META, out).expect("BUG: rows are alike and not too many");
}

/// Start and end of each row.
pub(crate) type RowTimes = Vec<(i64, i64)>;

/// Times of a checked chunk, and the payload after them.
pub(crate) fn read_times<'a>(
    header: &ChunkHeader,
    bytes: &'a [u8],
) -> Result<(RowTimes, &'a [u8]), Corruption> {
    let mut reader = WireReader::new(&bytes[HEADER_BYTES..]);
    let times = times::read(&mut reader, header.rows).map_err(|error| error.to_string())?;
    let rest =
        reader.read_bytes(reader.remaining(), "values").map_err(|error| error.to_string())?;
    Ok((times, rest))
}

/// Decodes all rows of a checked chunk and, for cumulative series, the predecessor of the first.
pub(crate) fn decode(
    header: &ChunkHeader,
    bytes: &[u8],
) -> Result<(Rows, Predecessor), Corruption> {
    let (times, rest) = read_times(header, bytes)?;
    let mut reader = WireReader::new(rest);
    let mut predecessor = Predecessor::Unknown;
    let rows = match header.content {
        ChunkKind::Histograms => {
            let (histograms, _) = block::decode(rest).map_err(|error| error.to_string())?;
            return Ok((Rows::Histograms(to_rows(&times, histograms)?), predecessor));
        }
        ChunkKind::Cumulative | ChunkKind::CumulativeWithPredecessor => {
            let readings = CumulativeReadings::read(&mut reader, header.content, times.len())?;
            let values = readings.values()?;
            predecessor = readings.predecessor;
            Rows::Cumulative(to_rows(&times, values)?)
        }
        ChunkKind::NumbersWithPredecessor => {
            predecessor = read_predecessor(&mut reader)?;
            Rows::Numbers(to_rows(&times, read_column(&mut reader, times.len())?)?)
        }
        ChunkKind::Numbers => {
            Rows::Numbers(to_rows(&times, read_column(&mut reader, times.len())?)?)
        }
        ChunkKind::Summaries => {
            Rows::Summaries(to_rows(&times, read_summaries(&mut reader, times.len())?)?)
        }
        ChunkKind::Texts => Rows::Texts(to_rows(&times, read_texts(&mut reader, times.len())?)?),
    };
    reader.finish().map_err(|error| error.to_string())?;
    Ok((rows, predecessor))
}

/// The last sample of a checked chunk that ended by `time`, as [`Rows::last_reading`]. If the whole
/// chunk ended by then, only the last sample is decoded.
pub(crate) fn last_reading(
    header: &ChunkHeader,
    bytes: &[u8],
    time: i64,
) -> Result<Option<Rows>, Corruption> {
    let is_cumulative =
        matches!(header.content, ChunkKind::Cumulative | ChunkKind::CumulativeWithPredecessor);
    if !is_cumulative || header.end > time {
        return Ok(decode(header, bytes)?.0.last_reading(time));
    }
    let (times, rest) = read_times(header, bytes)?;
    let Some(&(start, end)) = times.last() else { return Ok(None) };
    let mut reader = WireReader::new(rest);
    let value = CumulativeReadings::read(&mut reader, header.content, times.len())?.last()?;
    Ok(Some(Rows::Cumulative(vec![Row { start, end, value }])))
}

fn to_rows<T>(times: &[(i64, i64)], values: Vec<T>) -> Result<Vec<Row<T>>, Corruption> {
    if values.len() != times.len() {
        return Err(format!("{} values for {} rows", values.len(), times.len()));
    }
    Ok(times.iter().zip(values).map(|(&(start, end), value)| Row { start, end, value }).collect())
}

fn read_column<T: pco::data_types::Number + Default>(
    reader: &mut WireReader<'_>,
    rows: usize,
) -> Result<Vec<T>, Corruption> {
    let bytes = reader.bytes("column").map_err(|error| error.to_string())?;
    column::read(bytes, rows).map_err(|error| error.to_string())
}

/// Column of cumulative histograms: base and deltas.
struct CumulativeReadings {
    predecessor: Predecessor,
    /// The first sample or, if the first is delta-encoded too, its predecessor.
    base: Histogram,
    /// Block of deltas, one per sample.
    steps: Vec<u8>,
    rows: usize,
    is_first_added: bool,
    standings: Vec<u8>,
    columns: Vec<Vec<f64>>,
}

impl CumulativeReadings {
    fn read(
        reader: &mut WireReader<'_>,
        content: ChunkKind,
        rows: usize,
    ) -> Result<CumulativeReadings, Corruption> {
        let mut predecessor = Predecessor::Unknown;
        let mut before = None;
        let mut is_first_added = false;
        if content == ChunkKind::CumulativeWithPredecessor {
            predecessor = Predecessor::Nothing;
            let standing = reader.u8("standing").map_err(|error| error.to_string())?;
            if has_predecessor(standing)? {
                let (start, end) = read_time(reader)?;
                let value = read_frame(reader, "predecessor")?;
                is_first_added = standing == DELTA_CODED;
                before = is_first_added.then(|| value.clone());
                predecessor =
                    Predecessor::Reading(Rows::Cumulative(vec![Row { start, end, value }]));
            }
        }
        let base = match before {
            Some(before) => before,
            None => read_frame(reader, "first row")?,
        };
        let text = |error: model::Error| error.to_string();
        let steps = reader.bytes("steps").map_err(text)?.to_owned();
        let standings = reader.read_bytes(rows, "standings").map_err(text)?.to_owned();
        let columns = (0..4).map(|_| read_column(reader, rows)).collect::<Result<_, _>>()?;
        Ok(CumulativeReadings {
            predecessor,
            base,
            steps,
            rows,
            is_first_added,
            standings,
            columns,
        })
    }

    fn summary_values(&self, row: usize) -> SummaryValues {
        SummaryValues::from_bits(
            self.standings[row],
            std::array::from_fn(|column| self.columns[column][row]),
        )
    }

    fn values(&self) -> Result<Vec<Histogram>, Corruption> {
        let (steps, _) = block::decode(&self.steps).map_err(|error| error.to_string())?;
        let told = usize::from(!self.is_first_added);
        if steps.len().saturating_add(told) != self.rows {
            return Err(format!("{} deltas for {} rows", steps.len(), self.rows));
        }
        let mut values = Vec::with_capacity(self.rows);
        let mut last = self.base.clone();
        if !self.is_first_added {
            values.push(last.clone());
        }
        for step in &steps {
            let sides = self.summary_values(values.len());
            last = apply_delta(&last, step, &sides).ok_or("delta does not apply")?;
            values.push(last.clone());
        }
        Ok(values)
    }

    /// The last value. The chunk is not empty.
    fn last(&self) -> Result<Histogram, Corruption> {
        if self.rows == 1 && !self.is_first_added {
            return Ok(self.base.clone());
        }
        let scheme = block::scheme(&self.steps).map_err(|error| error.to_string())?;
        let mut added = Accumulator::new(scheme);
        block::merge_into(&self.steps, 0..self.rows, &mut added)
            .map_err(|error| error.to_string())?;
        let mut parts = added.to_histogram().into_parts();
        (parts.sum, parts.min, parts.max) =
            (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
        let added = Histogram::from_parts(parts).map_err(|error| error.to_string())?;
        let last = self.rows.checked_sub(1).ok_or("chunk without rows")?;
        let last = apply_delta(&self.base, &added, &self.summary_values(last));
        last.ok_or_else(|| "delta does not apply".to_owned())
    }
}

/// Whether the predecessor tag says that there is a predecessor.
fn has_predecessor(standing: u8) -> Result<bool, Corruption> {
    match standing {
        FIRST_READING => Ok(false),
        DELTA_CODED | STANDALONE => Ok(true),
        other => Err(format!("unknown predecessor tag {other}")),
    }
}

fn read_time(reader: &mut WireReader<'_>) -> Result<(i64, i64), Corruption> {
    let mut read = || -> model::Result<_> {
        let end = reader.zigzag("predecessor end")?;
        Ok((end.wrapping_sub(reader.varint("predecessor span")? as i64), end))
    };
    match read().map_err(|error| error.to_string())? {
        (start, end) if start <= end => Ok((start, end)),
        (start, end) => Err(format!("predecessor from {start} to {end}")),
    }
}

fn read_frame(reader: &mut WireReader<'_>, field: &'static str) -> Result<Histogram, Corruption> {
    let bytes = reader.bytes(field).map_err(|error| error.to_string())?;
    let (histogram, _) = hist::codec::frame::decode(bytes).map_err(|error| error.to_string())?;
    Ok(histogram)
}

fn read_predecessor(reader: &mut WireReader<'_>) -> Result<Predecessor, Corruption> {
    let standing = reader.u8("standing").map_err(|error| error.to_string())?;
    if !has_predecessor(standing)? {
        return Ok(Predecessor::Nothing);
    }
    let (start, end) = read_time(reader)?;
    let bytes = reader.array("predecessor").map_err(|error| error.to_string())?;
    let row = Row { start, end, value: f64::from_le_bytes(bytes) };
    Ok(Predecessor::Reading(Rows::Numbers(vec![row])))
}

fn read_summaries(
    reader: &mut WireReader<'_>,
    rows: usize,
) -> Result<Vec<NumberSummary>, Corruption> {
    let (count, nan): (Vec<u64>, Vec<u64>) =
        (read_column(reader, rows)?, read_column(reader, rows)?);
    let numbers: Vec<Vec<f64>> =
        (0..6).map(|_| read_column(reader, rows)).collect::<Result<_, _>>()?;
    let summary = |row: usize| {
        let [high, low, min, max, first, last] = std::array::from_fn(|column| numbers[column][row]);
        let sum = CompensatedSum::from_parts(high, low);
        NumberSummary { count: count[row], nan: nan[row], sum, min, max, first, last }
    };
    Ok((0..rows).map(summary).collect())
}

fn read_texts(reader: &mut WireReader<'_>, rows: usize) -> Result<Vec<String>, Corruption> {
    let packed = reader.bytes("texts").map_err(|error| error.to_string())?;
    // A single text may be as large as a journal record, so the allocation follows the size in the
    // frame header, within a bound: a zstd block unpacks to at most 128 KiB and takes at least four
    // bytes (header of three bytes and one byte).
    let says = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
    let room = (packed.len() / 4).saturating_mul(128 << 10).min(BYTES_MAX);
    let says = says.and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes <= room);
    let says = says.ok_or("texts of unknown or excessive size")?;
    let bytes = zstd::bulk::decompress(packed, says).map_err(|error| error.to_string())?;
    let mut reader = WireReader::new(&bytes);
    (0..rows)
        .map(|_| reader.text("text").map(str::to_owned).map_err(|error| error.to_string()))
        .collect()
}

#[cfg(test)]
mod tests;
