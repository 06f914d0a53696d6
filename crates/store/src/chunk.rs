//! Rows of one series as bytes: what a part is made of and what has a checksum.
//!
//! ```text
//! offset  size  field
//!      0     4  magic       b"tdck"
//!      4     1  version     1; readers refuse any other
//!      5     1  content     0 histograms, 1 cumulative histograms, 2 numbers, 3 summaries, 4 texts
//!      6     1  resolution  0 base, 1 a minute, 2 five minutes, 3 an hour, 4 a day
//!      7     1  reserved    0
//!      8    16  series      its id
//!     24     8  start       i64 ns: when the earliest row began; of readings of what grows, was read
//!     32     8  end         i64 ns: when the latest row ended
//!     40     4  rows        u32
//!     44     4  length      u32: bytes of what follows the header
//!     48     4  checksum    u32: CRC-32C of the 48 bytes before and of what follows
//! ```
//! What follows: the times (`times.rs`), then by content
//!
//! ```text
//! 0 histograms   a block as in docs/formats/block.md
//! 1 cumulative   length and frame of the first row; a block of what each other row adds to the row before;
//!                standings, a byte a row (2 bits each of sum, min, max: 0 unknown, 1 estimate, 2 exact); columns
//!                of the rows' sum (high and low words), min and max, 0 where unknown
//! 2 numbers      a column of f64
//! 3 summaries    columns of count, nan (u64), sum's high and low words, min, max, first, last (f64)
//! 4 texts        zstd of each text as length and UTF-8
//! ```
//! A column is a length and a pco stream. `docs/formats/chunk.md` says the same to a stranger.

use hist::codec::block;
use hist::codec::header::{Meaning, Temporality};
use hist::{Buckets, Histogram, Side, Sum};
use model::wire::{Reader, put_bytes};
use model::{Kind, SeriesId};

use crate::column;
use crate::resolution::Resolution;
use crate::row::{Row, Rows, Summary};
use crate::times;

/// First bytes of a chunk.
pub const MAGIC: [u8; 4] = *b"tdck";
/// The version that is written, and the only one that is read.
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

/// Rows of a chunk at the most: a quarter of a day at one sample a minute.
pub const ROWS_MAX: usize = 360;
/// Bytes of a chunk at the most.
pub const BYTES_MAX: usize = 64 << 20;
/// Bytes of texts in a chunk, before compression, at the most.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Zstandard's fast end: texts are few.
const TEXT_LEVEL: i32 = 3;

/// What a chunk's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// What kind of rows.
    pub(crate) content: Content,
    /// What a row stands for.
    pub(crate) resolution: Resolution,
    /// Whose rows.
    pub(crate) series: SeriesId,
    /// When the earliest row began; of readings of what grows, when the earliest was read.
    pub(crate) start: i64,
    /// When the latest row ended.
    pub(crate) end: i64,
    /// How many.
    pub(crate) rows: usize,
    /// Bytes after the header.
    pub(crate) length: usize,
}

/// What kind of rows a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// What happened in each row's stretch.
    Histograms,
    /// Everything since a start.
    Cumulative,
    /// Plain numbers.
    Numbers,
    /// Rollups of numbers.
    Summaries,
    /// Texts.
    Texts,
}

impl Content {
    const ALL: [Content; 5] = [
        Content::Histograms,
        Content::Cumulative,
        Content::Numbers,
        Content::Summaries,
        Content::Texts,
    ];

    fn of(rows: &Rows) -> Content {
        match rows {
            Rows::Histograms(_) => Content::Histograms,
            Rows::Cumulative(_) => Content::Cumulative,
            Rows::Numbers(_) => Content::Numbers,
            Rows::Summaries(_) => Content::Summaries,
            Rows::Texts(_) => Content::Texts,
        }
    }
}

/// What is wrong with bytes that should be a chunk.
pub(crate) type Fault = String;

impl Header {
    /// Reads a header. Only [`check`] says whether it is to be trusted.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, Fault> {
        let mut reader = Reader::new(bytes);
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
            return Err("no chunk begins here".to_owned());
        }
        if version != VERSION {
            return Err(format!(
                "chunk of version {version}, this topdeck reads version {VERSION}"
            ));
        }
        let content = Content::ALL.get(usize::from(content)).copied();
        let (Some(content), Some(resolution)) = (content, Resolution::from_byte(resolution)) else {
            return Err("chunk of unknown content or resolution".to_owned());
        };
        if length > BYTES_MAX || rows > ROWS_MAX {
            return Err(format!("chunk of {rows} rows and {length} bytes, beyond the limits"));
        }
        Ok(Header { content, resolution, series: SeriesId(series), start, end, rows, length })
    }
}

/// Whether the bytes, header included, are what was written.
pub(crate) fn check(bytes: &[u8]) -> Result<Header, Fault> {
    let header = Header::read(bytes)?;
    if bytes.len() != HEADER_BYTES + header.length {
        return Err(format!("{} bytes, {} are needed", bytes.len(), HEADER_BYTES + header.length));
    }
    let found = checksum(bytes);
    let written = &bytes[CHECKSUM_AT..HEADER_BYTES];
    let expected = u32::from_le_bytes(written.try_into().expect("BUG: four bytes"));
    if found != expected {
        return Err(format!("checksum is {found:08x}, {expected:08x} was written"));
    }
    Ok(header)
}

fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&bytes[..CHECKSUM_AT]), &bytes[HEADER_BYTES..])
}

/// Appends settled rows as chunks, and gives each one's header and bytes to `each`.
pub(crate) fn encode(
    series: SeriesId,
    resolution: Resolution,
    kind: Kind,
    rows: Rows,
    mut each: impl FnMut(Header, &[u8]) -> crate::Result<()>,
) -> crate::Result<()> {
    // What grows may do so since long ago; it is to be found where it was read.
    let are_readings = resolution == Resolution::Base && kind.is_cumulative();
    let mut bytes = Vec::new();
    for rows in divided(rows) {
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        let times = rows.times();
        let (content, count) = (Content::of(&rows), rows.len());
        times::put(&mut bytes, &times);
        put_values(&mut bytes, rows);
        let header = Header {
            content,
            resolution,
            series,
            start: times
                .iter()
                .map(|time| if are_readings { time.1 } else { time.0 })
                .min()
                .unwrap_or(0),
            end: times.iter().map(|time| time.1).max().unwrap_or(0),
            rows: count,
            length: bytes.len() - HEADER_BYTES,
        };
        put_header(&mut bytes, &header);
        each(header, &bytes)?;
    }
    Ok(())
}

fn put_header(bytes: &mut [u8], header: &Header) {
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

/// Makes a chunk of bytes that would be one but for magic, version, length and checksum.
pub(crate) fn put_right(bytes: &mut [u8]) {
    let length = (bytes.len() - HEADER_BYTES) as u32;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = VERSION;
    bytes[44..48].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(bytes);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Rows in groups that one chunk can hold: of one grid, not too many, and of cumulative ones such that each
/// contains the one before.
fn divided(rows: Rows) -> Vec<Rows> {
    fn pieces<T>(mut rows: Vec<Row<T>>, wrap: fn(Vec<Row<T>>) -> Rows) -> Vec<Rows> {
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
        Rows::Numbers(rows) => pieces(rows, Rows::Numbers),
        Rows::Summaries(rows) => pieces(rows, Rows::Summaries),
        Rows::Histograms(rows) => alike(rows)
            .into_iter()
            .flat_map(|rows| pieces(rows, Rows::Histograms))
            .flat_map(|rows| within_cells(rows, Rows::Histograms))
            .collect(),
        Rows::Cumulative(rows) => {
            let mut chunks: Vec<Vec<Row<Histogram>>> = Vec::new();
            for row in rows {
                match chunks.last_mut() {
                    Some(chunk) if chunk.len() < ROWS_MAX && follows(chunk, &row) => {
                        chunk.push(row)
                    }
                    _ => chunks.push(vec![row]),
                }
            }
            chunks
                .into_iter()
                .flat_map(|rows| within_cells(Rows::Cumulative(rows), Rows::Cumulative))
                .collect()
        }
        Rows::Texts(rows) => {
            let mut chunks: Vec<Vec<Row<String>>> = Vec::new();
            let mut bytes = 0;
            for row in rows {
                bytes += row.value.len();
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

/// Histograms by grid, zero threshold and declared thresholds, which are the same for all of a block.
fn alike(rows: Vec<Row<Histogram>>) -> Vec<Vec<Row<Histogram>>> {
    let mut groups: Vec<Vec<Row<Histogram>>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| are_alike(&group[0].value, &row.value)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn are_alike(a: &Histogram, b: &Histogram) -> bool {
    let limits =
        |h: &Histogram| h.thresholds().iter().map(|t| t.value.to_bits()).collect::<Vec<_>>();
    a.scheme() == b.scheme() && a.zero_threshold() == b.zero_threshold() && limits(a) == limits(b)
}

/// Halves what has too many different buckets for one block.
fn within_cells(rows: Rows, wrap: fn(Vec<Row<Histogram>>) -> Rows) -> Vec<Rows> {
    let (Rows::Histograms(mut held) | Rows::Cumulative(mut held)) = rows else {
        panic!("BUG: only histograms have cells");
    };
    // Between the first and the last bucket in use there is nearly always room for all.
    let span = |of: fn(&Histogram) -> &Buckets| {
        let ends = held.iter().filter_map(|row| {
            let indexes = of(&row.value).indexes();
            Some((i64::from(*indexes.first()?), i64::from(*indexes.last()?)))
        });
        let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        ends.map_or(0, |(first, last)| (last - first + 1) as u64)
    };
    let columns = span(Histogram::positive).max(span(Histogram::negative));
    // A block pads its rows to eights.
    let rows = (held.len() as u64).next_multiple_of(8);
    if held.len() == 1 || columns.saturating_mul(rows) <= block::CELLS_MAX {
        return vec![wrap(held)];
    }
    // Rows share most buckets, so the union is counted before rows are parted.
    let mut union: Vec<i32> =
        held.iter().flat_map(|row| row.value.positive().indexes().iter().copied()).collect();
    let mut negative: Vec<i32> =
        held.iter().flat_map(|row| row.value.negative().indexes().iter().copied()).collect();
    for indexes in [&mut union, &mut negative] {
        indexes.sort_unstable();
        indexes.dedup();
    }
    if union.len().max(negative.len()) as u64 * rows <= block::CELLS_MAX {
        return vec![wrap(held)];
    }
    let rest = held.split_off(held.len() / 2);
    [held, rest].into_iter().flat_map(|rows| within_cells(wrap(rows), wrap)).collect()
}

/// Whether a reading can be told as what it adds to the last of `chunk`.
fn follows(chunk: &[Row<Histogram>], row: &Row<Histogram>) -> bool {
    let before = &chunk[chunk.len() - 1].value;
    let Some(added) = added(before, &row.value) else { return false };
    let first_added = chunk.get(1).and_then(|second| self::added(&chunk[0].value, &second.value));
    first_added.is_none_or(|first| are_alike(&first, &added))
        && rebuilt(before, &added, &Sides::of(&row.value)).as_ref() == Some(&row.value)
}

fn added(before: &Histogram, after: &Histogram) -> Option<Histogram> {
    let mut added = after.clone();
    added.subtract(before).ok()?;
    // Whatever is left of sides is told beside; a block then costs least without them.
    let mut parts = added.into_parts();
    (parts.sum, parts.min, parts.max) = (Side::Absent, Side::Absent, Side::Absent);
    Histogram::from_parts(parts).ok()
}

fn rebuilt(before: &Histogram, added: &Histogram, sides: &Sides) -> Option<Histogram> {
    let mut after = before.clone();
    after.merge(added).ok()?;
    let mut parts = after.into_parts();
    (parts.sum, parts.min, parts.max) = (sides.sum, sides.min, sides.max);
    Histogram::from_parts(parts).ok()
}

/// What a cumulative histogram has beside its counts.
struct Sides {
    sum: Side<Sum>,
    min: Side<f64>,
    max: Side<f64>,
}

impl Sides {
    fn of(histogram: &Histogram) -> Sides {
        let (sum, min, max) = (histogram.sum_side(), histogram.min_side(), histogram.max_side());
        Sides { sum, min, max }
    }

    fn standings(&self) -> u8 {
        fn of<T>(side: Side<T>) -> u8 {
            match side {
                Side::Absent => 0,
                Side::Estimated(_) => 1,
                Side::Exact(_) => 2,
            }
        }
        of(self.sum) | of(self.min) << 2 | of(self.max) << 4
    }

    fn numbers(&self) -> [f64; 4] {
        let (high, low) = self.sum.value().unwrap_or_default().parts();
        [high, low, self.min.value().unwrap_or_default(), self.max.value().unwrap_or_default()]
    }

    fn read(standings: u8, [high, low, min, max]: [f64; 4]) -> Sides {
        fn side<T>(standing: u8, value: T) -> Side<T> {
            match standing & 3 {
                0 => Side::Absent,
                1 => Side::Estimated(value),
                _ => Side::Exact(value),
            }
        }
        Sides {
            sum: side(standings, Sum::from_parts(high, low)),
            min: side(standings >> 2, min),
            max: side(standings >> 4, max),
        }
    }
}

const PLAIN: Meaning =
    Meaning { unit: hist::codec::header::Unit::None, temporality: Temporality::Delta };

fn put_values(out: &mut Vec<u8>, rows: Rows) {
    match rows {
        Rows::Histograms(rows) => put_block(out, rows.into_iter().map(|row| row.value).collect()),
        Rows::Cumulative(rows) => {
            let mut frame = Vec::new();
            hist::codec::frame::encode(&rows[0].value, PLAIN, &mut frame);
            put_bytes(out, &frame);
            let steps = rows.windows(2).map(|pair| {
                added(&pair[0].value, &pair[1].value).expect("BUG: such rows are in another chunk")
            });
            let mut block = Vec::new();
            put_block(&mut block, steps.collect());
            put_bytes(out, &block);
            let sides: Vec<Sides> = rows.iter().map(|row| Sides::of(&row.value)).collect();
            out.extend(sides.iter().map(Sides::standings));
            for at in 0..4 {
                let column: Vec<f64> = sides.iter().map(|sides| sides.numbers()[at]).collect();
                put_bytes(out, &column::put(&column));
            }
        }
        Rows::Numbers(rows) => {
            let numbers: Vec<f64> = rows.iter().map(|row| row.value).collect();
            put_bytes(out, &column::put(&numbers));
        }
        Rows::Summaries(rows) => {
            for of in [|s: &Summary| s.count, |s: &Summary| s.nan] {
                put_bytes(
                    out,
                    &column::put(&rows.iter().map(|row| of(&row.value)).collect::<Vec<u64>>()),
                );
            }
            for of in SUMMARY_NUMBERS {
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

const SUMMARY_NUMBERS: [fn(&Summary) -> f64; 6] =
    [|s| s.sum.parts().0, |s| s.sum.parts().1, |s| s.min, |s| s.max, |s| s.first, |s| s.last];

fn put_block(out: &mut Vec<u8>, histograms: Vec<Histogram>) {
    block::encode(&histograms, PLAIN, out).expect("BUG: rows are alike and not too many");
}

/// When each row began and ended.
pub(crate) type Times = Vec<(i64, i64)>;

/// A checked chunk's times, and what follows them.
pub(crate) fn times<'a>(header: &Header, bytes: &'a [u8]) -> Result<(Times, &'a [u8]), Fault> {
    let mut reader = Reader::new(&bytes[HEADER_BYTES..]);
    let times = times::read(&mut reader, header.rows).map_err(|error| error.to_string())?;
    let rest = reader.take(reader.remaining(), "values").expect("BUG: what remains is there");
    Ok((times, rest))
}

/// All rows of a checked chunk.
pub(crate) fn decode(header: &Header, bytes: &[u8]) -> Result<Rows, Fault> {
    let (times, rest) = times(header, bytes)?;
    let mut reader = Reader::new(rest);
    let rows = match header.content {
        Content::Histograms => {
            let (histograms, _) = block::decode(rest).map_err(|error| error.to_string())?;
            return Ok(Rows::Histograms(rows(&times, histograms)?));
        }
        Content::Cumulative => Rows::Cumulative(cumulative(&mut reader, &times)?),
        Content::Numbers => Rows::Numbers(rows(&times, get(&mut reader, times.len())?)?),
        Content::Summaries => Rows::Summaries(rows(&times, summaries(&mut reader, times.len())?)?),
        Content::Texts => Rows::Texts(rows(&times, texts(&mut reader, times.len())?)?),
    };
    reader.finish().map_err(|error| error.to_string())?;
    Ok(rows)
}

fn rows<T>(times: &[(i64, i64)], values: Vec<T>) -> Result<Vec<Row<T>>, Fault> {
    if values.len() != times.len() {
        return Err(format!("{} values for {} rows", values.len(), times.len()));
    }
    Ok(times.iter().zip(values).map(|(&(start, end), value)| Row { start, end, value }).collect())
}

fn get<T: pco::data_types::Number + Default>(
    reader: &mut Reader<'_>,
    rows: usize,
) -> Result<Vec<T>, Fault> {
    let bytes = reader.bytes("column").map_err(|error| error.to_string())?;
    column::read(bytes, rows).map_err(|error| error.to_string())
}

fn cumulative(reader: &mut Reader<'_>, times: &[(i64, i64)]) -> Result<Vec<Row<Histogram>>, Fault> {
    let bytes = |reader: &mut Reader<'_>, field| {
        reader.bytes(field).map(<[u8]>::to_owned).map_err(|error| error.to_string())
    };
    let first = bytes(reader, "first reading")?;
    let (mut last, _) = hist::codec::frame::decode(&first).map_err(|error| error.to_string())?;
    let steps = bytes(reader, "steps")?;
    let (steps, _) = block::decode(&steps).map_err(|error| error.to_string())?;
    let standings = reader.take(times.len(), "standings").map_err(|error| error.to_string())?;
    let columns: Vec<Vec<f64>> =
        (0..4).map(|_| get(reader, times.len())).collect::<Result<_, _>>()?;
    if steps.len() + 1 != times.len() {
        return Err(format!("{} steps for {} rows", steps.len(), times.len()));
    }
    let mut values = vec![last.clone()];
    for (at, step) in steps.iter().enumerate() {
        let sides =
            Sides::read(standings[at + 1], std::array::from_fn(|column| columns[column][at + 1]));
        last = rebuilt(&last, step, &sides).ok_or("a step that does not fit")?;
        values.push(last.clone());
    }
    rows(times, values)
}

fn summaries(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<Summary>, Fault> {
    let (count, nan): (Vec<u64>, Vec<u64>) = (get(reader, rows)?, get(reader, rows)?);
    let numbers: Vec<Vec<f64>> = (0..6).map(|_| get(reader, rows)).collect::<Result<_, _>>()?;
    let summary = |row: usize| {
        let [high, low, min, max, first, last] = std::array::from_fn(|column| numbers[column][row]);
        let sum = Sum::from_parts(high, low);
        Summary { count: count[row], nan: nan[row], sum, min, max, first, last }
    };
    Ok((0..rows).map(summary).collect())
}

fn texts(reader: &mut Reader<'_>, rows: usize) -> Result<Vec<String>, Fault> {
    let packed = reader.bytes("texts").map_err(|error| error.to_string())?;
    // A single text may be as large as a journal's record, so what is taken is what the frame says, within bounds:
    // 128 KiB a block, whose least is a head of three bytes and a byte.
    let says = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
    let room = (packed.len() / 4).saturating_mul(128 << 10).min(BYTES_MAX);
    let says = says.and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes <= room);
    let says = says.ok_or("texts of no size, or of more than there can be")?;
    let bytes = zstd::bulk::decompress(packed, says).map_err(|error| error.to_string())?;
    let mut reader = Reader::new(&bytes);
    (0..rows)
        .map(|_| reader.text("text").map(str::to_owned).map_err(|error| error.to_string()))
        .collect()
}

#[cfg(test)]
mod tests;
