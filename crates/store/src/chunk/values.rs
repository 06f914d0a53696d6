//! Encoding of the values of a chunk, after its header and times.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::block;
use hist::codec::header::{SeriesMeta, Temporality};
use hist::{Accumulator, DoubleDouble, Histogram};
use model::wire::{WireReader, put_bytes, put_varint, put_zigzag};

use super::histogram_delta::{TrackedStatistics, apply_delta, codable_delta};
use super::row_groups::{ChunkRows, is_uniform};
use super::sample_group::SampleGroup;
use super::{BYTES_MAX, ChunkHeader, ChunkKind, Corruption, HEADER_BYTES};
use crate::column;
use crate::row::{NumberAggregate, Predecessor, Row, Rows};
use crate::times;

/// A fast zstd level: texts are few.
const TEXT_LEVEL: i32 = 3;
const PLAIN_META: SeriesMeta =
    SeriesMeta { unit: hist::codec::header::FrameUnit::None, temporality: Temporality::Delta };
/// The first row has no predecessor.
const PREDECESSOR_NONE: u8 = 0;
/// The first row is stored as its delta to the predecessor, which precedes it.
const PREDECESSOR_DELTA: u8 = 1;
/// The predecessor and the first row are stored in full.
const PREDECESSOR_FULL: u8 = 2;

#[expect(clippy::expect_used, reason = "zstd compresses what fits memory")]
pub(super) fn put_values(out: &mut Vec<u8>, group: ChunkRows, predecessor: &Predecessor) {
    let rows = match group {
        ChunkRows::Rows(rows) => rows,
        ChunkRows::Samples(group) => return put_cumulative(out, *group, predecessor),
    };
    match rows {
        Rows::Histograms(rows) => put_block(out, rows.into_iter().map(|row| row.value).collect()),
        Rows::Cumulative(_) => unreachable!("BUG: cumulative histograms are grouped as samples"),
        Rows::Numbers(rows) => {
            match predecessor {
                Predecessor::Unknown => {}
                Predecessor::Nothing => out.push(PREDECESSOR_NONE),
                Predecessor::Sample(Rows::Numbers(before)) => {
                    out.push(PREDECESSOR_FULL);
                    put_time(out, &before[0]);
                    out.extend(before[0].value.to_le_bytes());
                }
                Predecessor::Sample(other) => {
                    panic!("BUG: the predecessor of numbers is {other:?}")
                }
            }
            put_numbers(out, &rows, |value| *value);
        }
        Rows::Aggregates(rows) => {
            for of in [|s: &NumberAggregate| s.count, |s: &NumberAggregate| s.nan] {
                let counts: Vec<u64> = rows.iter().map(|row| of(&row.value)).collect();
                put_bytes(out, &column::put(&counts));
            }
            for of in AGGREGATE_COLUMNS {
                put_numbers(out, &rows, of);
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

fn put_numbers<T>(out: &mut Vec<u8>, rows: &[Row<T>], number: impl Fn(&T) -> f64) {
    let numbers: Vec<f64> = rows.iter().map(|row| number(&row.value)).collect();
    put_bytes(out, &column::put(&numbers));
}

/// Deltas between the rows as a block, and the summary values of the rows.
fn put_cumulative(out: &mut Vec<u8>, group: SampleGroup, predecessor: &Predecessor) {
    let SampleGroup { first, increments: mut deltas, summaries, .. } = group;
    match predecessor {
        Predecessor::Unknown => put_frame(out, &first),
        Predecessor::Nothing => {
            out.push(PREDECESSOR_NONE);
            put_frame(out, &first);
        }
        Predecessor::Sample(Rows::Cumulative(before)) => {
            let before = &before[0];
            // Deltas of one chunk must be of the same kind: the second is checked as if it were the
            // first.
            let added = codable_delta(&before.value, &first, None)
                .filter(|added| deltas.first().is_none_or(|second| is_uniform(added, second)));
            out.push(if added.is_some() { PREDECESSOR_DELTA } else { PREDECESSOR_FULL });
            put_time(out, before);
            put_frame(out, &before.value);
            match added {
                Some(added) => deltas.insert(0, added),
                None => put_frame(out, &first),
            }
        }
        Predecessor::Sample(other) => panic!("BUG: the predecessor of histograms is {other:?}"),
    }
    let mut block = Vec::new();
    put_block(&mut block, deltas);
    put_bytes(out, &block);
    out.extend(summaries.iter().map(TrackedStatistics::exactness_bits));
    for at in 0..4 {
        let column: Vec<f64> = summaries.iter().map(|summary| summary.numbers()[at]).collect();
        put_bytes(out, &column::put_doubles(&column));
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
const AGGREGATE_COLUMNS: [fn(&NumberAggregate) -> f64; 6] =
    [|s| s.sum.parts().0, |s| s.sum.parts().1, |s| s.min, |s| s.max, |s| s.first, |s| s.last];

#[expect(clippy::expect_used, reason = "the writer splits rows by scheme and by number of cells")]
fn put_block(out: &mut Vec<u8>, histograms: Vec<Histogram>) {
    block::encode(&histograms, PLAIN_META, out)
        .expect("BUG: rows differ in scheme, or have too many cells");
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
            let samples = CumulativeColumn::read(&mut reader, header.content, times.len())?;
            let values = samples.values()?;
            predecessor = samples.predecessor;
            Rows::Cumulative(to_rows(&times, values)?)
        }
        ChunkKind::NumbersWithPredecessor => {
            predecessor = read_predecessor(&mut reader)?;
            Rows::Numbers(to_rows(&times, read_column(&mut reader, times.len())?)?)
        }
        ChunkKind::Numbers => {
            Rows::Numbers(to_rows(&times, read_column(&mut reader, times.len())?)?)
        }
        ChunkKind::Aggregates => {
            Rows::Aggregates(to_rows(&times, read_aggregates(&mut reader, times.len())?)?)
        }
        ChunkKind::Texts => Rows::Texts(to_rows(&times, read_texts(&mut reader, times.len())?)?),
    };
    reader.finish().map_err(|error| error.to_string())?;
    Ok((rows, predecessor))
}

/// Decodes chunks of numbers, one after the other: the memory serves very many.
#[derive(Debug, Default)]
pub(crate) struct NumberDecoder {
    times: RowTimes,
    numbers: Vec<f64>,
}

impl NumberDecoder {
    /// Rows of a checked chunk, without the predecessor of the first.
    pub(crate) fn decode<'d>(
        &'d mut self,
        header: &ChunkHeader,
        bytes: &[u8],
    ) -> Result<impl Iterator<Item = Row<f64>> + use<'d>, Corruption> {
        let text = |error: model::Error| error.to_string();
        let NumberDecoder { times, numbers } = self;
        let mut reader = WireReader::new(&bytes[HEADER_BYTES..]);
        times::read_into(&mut reader, header.rows, times).map_err(text)?;
        match header.content {
            ChunkKind::Numbers => {}
            ChunkKind::NumbersWithPredecessor => _ = read_number_predecessor(&mut reader)?,
            other => return Err(format!("chunk of {other:?}, expected numbers")),
        }
        let column = reader.bytes("column").map_err(text)?;
        column::read_into(column, times.len(), numbers).map_err(text)?;
        reader.finish().map_err(text)?;
        let row = |(&(start, end), &value): (&(i64, i64), &f64)| Row { start, end, value };
        Ok(times.iter().zip(numbers.iter()).map(row))
    }
}

/// The last sample of a checked chunk that ended by `time`, as [`Rows::last_sample`]. If the whole
/// chunk ended by then, only the last sample is decoded.
pub(crate) fn last_sample(
    header: &ChunkHeader,
    bytes: &[u8],
    time: i64,
) -> Result<Option<Rows>, Corruption> {
    let is_cumulative =
        matches!(header.content, ChunkKind::Cumulative | ChunkKind::CumulativeWithPredecessor);
    if !is_cumulative || header.end > time {
        return Ok(decode(header, bytes)?.0.last_sample(time));
    }
    let (times, rest) = read_times(header, bytes)?;
    let Some(&(start, end)) = times.last() else { return Ok(None) };
    let mut reader = WireReader::new(rest);
    let value = CumulativeColumn::read(&mut reader, header.content, times.len())?.last()?;
    Ok(Some(Rows::Cumulative(vec![Row { start, end, value }])))
}

/// Cumulative histograms of a chunk as increments, for sums of many ranges of them.
pub(crate) struct CumulativeChunk {
    /// Start and end of each sample.
    pub(crate) times: RowTimes,
    /// Recorded predecessor of the first sample.
    pub(crate) predecessor: Predecessor,
    /// The first sample, or its predecessor.
    pub(crate) base: Histogram,
    /// Whether the base is the predecessor.
    pub(crate) is_base_predecessor: bool,
    /// Block of the increments: of all samples if the base is the predecessor, otherwise of all but
    /// the first. It is not decoded yet.
    pub(crate) block: Vec<u8>,
    /// Number of histograms of the block.
    pub(crate) block_rows: usize,
    /// Sum of the values at each sample.
    pub(crate) sums: Vec<f64>,
    /// Whether a sample is only counts and a sum that is exact in one double.
    pub(crate) is_plain: bool,
}

impl CumulativeChunk {
    /// End and start of the first sample. The chunk is not empty.
    pub(crate) fn first_time(&self) -> (i64, i64) {
        self.times.first().map_or((0, 0), |&(start, end)| (end, start))
    }
}

/// Reads a checked chunk of cumulative histograms; `None` if not all of them have a sum.
pub(crate) fn decode_increments(
    header: &ChunkHeader,
    bytes: &[u8],
) -> Result<Option<CumulativeChunk>, Corruption> {
    let (times, rest) = read_times(header, bytes)?;
    let mut reader = WireReader::new(rest);
    let CumulativeBase { predecessor, base, is_base_predecessor } =
        CumulativeBase::read(&mut reader, header.content)?;
    let text = |error: model::Error| error.to_string();
    let block = reader.bytes("deltas").map_err(text)?;
    let exactness = reader.read_bytes(times.len(), "exactness").map_err(text)?;
    let high = read_doubles(&mut reader, times.len())?;
    let low = read_doubles(&mut reader, times.len())?;
    let block_rows = block::rows(block).map_err(|error| error.to_string())?;
    let without_increment = usize::from(!is_base_predecessor);
    if block_rows.saturating_add(without_increment) != times.len() {
        return Err(format!("{block_rows} deltas for {} rows", times.len()));
    }
    let mut sums = Vec::with_capacity(times.len());
    // An empty base may have none although its increments do.
    let has_thresholds = block::has_thresholds(block).map_err(|error| error.to_string())?;
    let mut is_plain = base.thresholds().is_empty() && !has_thresholds;
    for ((&bits, high), low) in exactness.iter().zip(high).zip(low) {
        let summary = TrackedStatistics::from_bits(bits, [high, low, 0.0, 0.0]);
        is_plain &= summary.is_plain();
        sums.extend(summary.sum.value().map(|sum| sum.value()).filter(|sum| !sum.is_nan()));
    }
    if sums.len() != times.len() {
        return Ok(None);
    }
    Ok(Some(CumulativeChunk {
        times,
        predecessor,
        base,
        is_base_predecessor,
        block: block.to_owned(),
        block_rows,
        sums,
        is_plain,
    }))
}

fn to_rows<T>(times: &[(i64, i64)], values: Vec<T>) -> Result<Vec<Row<T>>, Corruption> {
    if values.len() != times.len() {
        return Err(format!("{} values for {} rows", values.len(), times.len()));
    }
    Ok(times.iter().zip(values).map(|(&(start, end), value)| Row { start, end, value }).collect())
}

fn read_column<T: column::ColumnNumber>(
    reader: &mut WireReader<'_>,
    rows: usize,
) -> Result<Vec<T>, Corruption> {
    let bytes = reader.bytes("column").map_err(|error| error.to_string())?;
    column::read(bytes, rows).map_err(|error| error.to_string())
}

fn read_doubles(reader: &mut WireReader<'_>, rows: usize) -> Result<Vec<f64>, Corruption> {
    let bytes = reader.bytes("column").map_err(|error| error.to_string())?;
    column::read_doubles(bytes, rows).map_err(|error| error.to_string())
}

/// What the increments of a chunk start from.
struct CumulativeBase {
    predecessor: Predecessor,
    /// The first sample or, if the first is delta-encoded too, its predecessor.
    base: Histogram,
    /// Whether the base is the predecessor.
    is_base_predecessor: bool,
}

impl CumulativeBase {
    fn read(reader: &mut WireReader<'_>, content: ChunkKind) -> Result<CumulativeBase, Corruption> {
        let mut predecessor = Predecessor::Unknown;
        let mut before = None;
        let mut is_base_predecessor = false;
        if content == ChunkKind::CumulativeWithPredecessor {
            predecessor = Predecessor::Nothing;
            let tag = reader.u8("predecessor tag").map_err(|error| error.to_string())?;
            if has_predecessor(tag)? {
                let (start, end) = read_time(reader)?;
                let value = read_frame(reader, "predecessor")?;
                is_base_predecessor = tag == PREDECESSOR_DELTA;
                before = is_base_predecessor.then(|| value.clone());
                predecessor =
                    Predecessor::Sample(Rows::Cumulative(vec![Row { start, end, value }]));
            }
        }
        let base = match before {
            Some(before) => before,
            None => read_frame(reader, "first row")?,
        };
        Ok(CumulativeBase { predecessor, base, is_base_predecessor })
    }
}

/// Column of cumulative histograms: base and deltas.
struct CumulativeColumn {
    predecessor: Predecessor,
    /// The first sample or, if the first is delta-encoded too, its predecessor.
    base: Histogram,
    /// Block of deltas, one per sample.
    deltas: Vec<u8>,
    rows: usize,
    /// Whether the base is the predecessor.
    is_base_predecessor: bool,
    exactness: Vec<u8>,
    columns: Vec<Vec<f64>>,
}

impl CumulativeColumn {
    fn read(
        reader: &mut WireReader<'_>,
        content: ChunkKind,
        rows: usize,
    ) -> Result<CumulativeColumn, Corruption> {
        let CumulativeBase { predecessor, base, is_base_predecessor } =
            CumulativeBase::read(reader, content)?;
        let text = |error: model::Error| error.to_string();
        let deltas = reader.bytes("deltas").map_err(text)?.to_owned();
        let exactness = reader.read_bytes(rows, "exactness").map_err(text)?.to_owned();
        let columns = (0..4).map(|_| read_doubles(reader, rows)).collect::<Result<_, _>>()?;
        Ok(CumulativeColumn {
            predecessor,
            base,
            deltas,
            rows,
            is_base_predecessor,
            exactness,
            columns,
        })
    }

    fn tracked_statistics(&self, row: usize) -> TrackedStatistics {
        TrackedStatistics::from_bits(
            self.exactness[row],
            std::array::from_fn(|column| self.columns[column][row]),
        )
    }

    fn values(&self) -> Result<Vec<Histogram>, Corruption> {
        let (deltas, _) = block::decode(&self.deltas).map_err(|error| error.to_string())?;
        let without_increment = usize::from(!self.is_base_predecessor);
        if deltas.len().saturating_add(without_increment) != self.rows {
            return Err(format!("{} deltas for {} rows", deltas.len(), self.rows));
        }
        let mut values: Vec<Histogram> = Vec::with_capacity(self.rows);
        if !self.is_base_predecessor {
            values.push(self.base.clone());
        }
        for delta in &deltas {
            let summary = self.tracked_statistics(values.len());
            let last = values.last().unwrap_or(&self.base);
            values.push(apply_delta(last, delta, &summary).ok_or("delta does not apply")?);
        }
        Ok(values)
    }

    /// The last value. The chunk is not empty.
    fn last(&self) -> Result<Histogram, Corruption> {
        if self.rows == 1 && !self.is_base_predecessor {
            return Ok(self.base.clone());
        }
        let scheme = block::scheme(&self.deltas).map_err(|error| error.to_string())?;
        let mut added = Accumulator::new(scheme);
        block::merge_into(&self.deltas, 0..self.rows, &mut added)
            .map_err(|error| error.to_string())?;
        let added = added.to_histogram();
        let last = self.rows.checked_sub(1).ok_or("chunk without rows")?;
        let last = apply_delta(&self.base, &added, &self.tracked_statistics(last));
        last.ok_or_else(|| "delta does not apply".to_owned())
    }
}

/// Whether the predecessor tag says that there is a predecessor.
fn has_predecessor(tag: u8) -> Result<bool, Corruption> {
    match tag {
        PREDECESSOR_NONE => Ok(false),
        PREDECESSOR_DELTA | PREDECESSOR_FULL => Ok(true),
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
    Ok(match read_number_predecessor(reader)? {
        Some(row) => Predecessor::Sample(Rows::Numbers(vec![row])),
        None => Predecessor::Nothing,
    })
}

fn read_number_predecessor(reader: &mut WireReader<'_>) -> Result<Option<Row<f64>>, Corruption> {
    let tag = reader.u8("predecessor tag").map_err(|error| error.to_string())?;
    if !has_predecessor(tag)? {
        return Ok(None);
    }
    let (start, end) = read_time(reader)?;
    let bytes = reader.array("predecessor").map_err(|error| error.to_string())?;
    Ok(Some(Row { start, end, value: f64::from_le_bytes(bytes) }))
}

fn read_aggregates(
    reader: &mut WireReader<'_>,
    rows: usize,
) -> Result<Vec<NumberAggregate>, Corruption> {
    let (count, nan): (Vec<u64>, Vec<u64>) =
        (read_column(reader, rows)?, read_column(reader, rows)?);
    let numbers: Vec<Vec<f64>> =
        (0..6).map(|_| read_column(reader, rows)).collect::<Result<_, _>>()?;
    let summary = |row: usize| {
        let [high, low, min, max, first, last] = std::array::from_fn(|column| numbers[column][row]);
        let sum = DoubleDouble::from_parts(high, low);
        NumberAggregate { count: count[row], nan: nan[row], sum, min, max, first, last }
    };
    Ok((0..rows).map(summary).collect())
}

fn read_texts(reader: &mut WireReader<'_>, rows: usize) -> Result<Vec<String>, Corruption> {
    let packed = reader.bytes("texts").map_err(|error| error.to_string())?;
    // A single text may be as large as a journal record, so the allocation follows the size in the
    // frame header, within a bound: a zstd block unpacks to at most 128 KiB and takes at least four
    // bytes (header of three bytes and one byte).
    let size = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
    let size_max = (packed.len() / 4).saturating_mul(128 << 10).min(BYTES_MAX);
    let size =
        size.and_then(|bytes| usize::try_from(bytes).ok()).filter(|&bytes| bytes <= size_max);
    let size = size.ok_or("texts of unknown or excessive size")?;
    let bytes = zstd::bulk::decompress(packed, size).map_err(|error| error.to_string())?;
    let mut reader = WireReader::new(&bytes);
    (0..rows)
        .map(|_| reader.text("text").map(str::to_owned).map_err(|error| error.to_string()))
        .collect()
}
