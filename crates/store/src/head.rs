//! Head: rows in memory that are in no part yet.
//!
//! A histogram row is stored as its frame, some hundred bytes. Most rows of a cumulative
//! histogram contain the row before them and are stored as its increment, which is several times
//! shorter and is what a chunk needs. Series without rows take no memory.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod previous_sample;
mod sample_decoder;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use hist::codec::header::Temporality;
use hist::codec::{frame, frame_increment};
use model::wire::{WireReader, put_bytes, put_varint, put_zigzag};
use model::{BatchEntry, Gap, SeriesKind};

use crate::chunk::row_begin;
use crate::cumulative_sample::CumulativeSample;
use crate::grid::overlap_share;
use crate::index::SeriesNumber;
use crate::manifest::ProducerTable;
use crate::resolution::{Resolution, interval_start};
use crate::row::{Row, Rows};

use previous_sample::PreviousSample;
use sample_decoder::SampleDecoder;

/// Rows of many series.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Distinguishes it from all other heads of the process.
    pub(crate) id: HeadId,
    series: HashMap<SeriesNumber, HeadSeries, BuildHasherDefault<DenseHasher>>,
    bytes: usize,
    /// Of the series with the most: length of its rows as frames.
    largest_frame_bytes: usize,
    rows: u64,
    /// Rows of each partition, by partition start.
    partitions: BTreeMap<i64, PartitionRows>,
    /// Known gaps.
    pub(crate) gaps: Vec<Gap>,
    /// Memory for an increment.
    increment: Vec<u8>,
}

/// Number that no other head of the process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeadId(u64);

impl Default for HeadId {
    fn default() -> HeadId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        HeadId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Rows of one partition.
#[derive(Debug)]
struct PartitionRows {
    rows: u64,
    /// Earliest start of a row, as recorded in chunk headers.
    start: i64,
    /// Latest end of a row.
    end: i64,
}

#[derive(Debug, Default)]
struct HeadSeries {
    /// Rows in order of arrival: zigzag start minus previous end, varint duration, value.
    bytes: Vec<u8>,
    /// Of a cumulative histogram with rows.
    previous_sample: Option<Box<PreviousSample>>,
    rows: u64,
    end: i64,
    /// Earliest start, as recorded in chunk headers, and latest end of the rows.
    time_range: (i64, i64),
}

/// Hasher for series numbers. The store assigns them densely, so an attacker cannot choose them,
/// and one multiplication a sample suffices (Knuth, “The Art of Computer Programming”, volume 3,
/// 6.4).
#[derive(Debug, Default)]
struct DenseHasher(u64);

impl Hasher for DenseHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The high bits are the best mixed, and hash tables use the low ones too.
        self.0 ^ (self.0 >> 32)
    }
}

impl Head {
    /// Adds a sample.
    pub(crate) fn add(&mut self, number: SeriesNumber, entry: &BatchEntry<'_>, kind: SeriesKind) {
        let pending = self.series.entry(number).or_insert_with(|| HeadSeries {
            time_range: (i64::MAX, i64::MIN),
            ..HeadSeries::default()
        });
        let before = pending.held_bytes();
        let is_cumulative = kind == SeriesKind::Histogram(Temporality::Cumulative);
        let last = pending.previous_sample.as_ref().filter(|_| is_cumulative);
        let is_increment = last.is_some_and(|last| {
            last.write_increment(&pending.bytes, entry.value, &mut self.increment)
        });
        let value: &[u8] = match is_increment {
            true => &self.increment,
            // An invalid frame never passes for an increment.
            false if is_cumulative && frame_increment::is_increment(entry.value) => &[],
            false => entry.value,
        };
        // Doubling the capacity would waste memory on each of very many series.
        let need = value.len().saturating_add(24);
        if pending.bytes.capacity().saturating_sub(pending.bytes.len()) < need {
            pending.bytes.reserve_exact(need.max(pending.bytes.len() / 4));
        }
        put_zigzag(&mut pending.bytes, entry.start.wrapping_sub(pending.end));
        put_varint(&mut pending.bytes, entry.end.wrapping_sub(entry.start) as u64);
        match kind {
            SeriesKind::Counter(_) | SeriesKind::Gauge => pending.bytes.extend_from_slice(value),
            SeriesKind::Histogram(_) | SeriesKind::Text => put_bytes(&mut pending.bytes, value),
        }
        if is_cumulative {
            let last = pending.previous_sample.get_or_insert_default();
            match is_increment {
                true => last.set_increment(entry.value),
                false => last.set_frame(value.len()),
            }
            self.largest_frame_bytes = self.largest_frame_bytes.max(last.whole_bytes());
        }
        pending.end = entry.end;
        pending.rows = pending.rows.saturating_add(1);
        let start = row_begin(kind, (entry.start, entry.end));
        pending.time_range = (pending.time_range.0.min(start), pending.time_range.1.max(entry.end));
        let growth = pending.held_bytes().saturating_sub(before);
        self.bytes = self.bytes.saturating_add(growth);
        self.rows = self.rows.saturating_add(1);
        let partition = interval_start(entry.end, Resolution::Base.partition());
        let empty = || PartitionRows { rows: 0, start: i64::MAX, end: i64::MIN };
        let partition_rows = self.partitions.entry(partition).or_insert_with(empty);
        partition_rows.rows = partition_rows.rows.saturating_add(1);
        (partition_rows.start, partition_rows.end) =
            (partition_rows.start.min(start), partition_rows.end.max(entry.end));
    }

    /// Approximate memory of the rows, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const SERIES_BYTES: usize = size_of::<HeadSeries>() + size_of::<SeriesNumber>() + 8;
        self.series.len().saturating_mul(SERIES_BYTES).saturating_add(self.bytes)
    }

    /// Size that has a limit: the memory of the rows, or, if that is more, what the rows of one
    /// series have without increments. They may be decoded at once, and increments can be hundreds
    /// of times smaller.
    pub(crate) fn limited_bytes(&self) -> usize {
        self.bytes().max(self.largest_frame_bytes)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 && self.gaps.is_empty()
    }

    /// Estimated rows of `series` series that ended within a range, assuming equal rows per series.
    pub(crate) fn estimate_rows(&self, series: u64, range: &Range<i64>) -> f64 {
        let rows = self.partitions.values().map(|partition| {
            partition.rows as f64 * overlap_share(&(partition.start..partition.end), range)
        });
        rows.sum::<f64>() * (series as f64 / self.series.len().max(1) as f64).min(1.0)
    }

    /// Series with rows in this head.
    pub(crate) fn series(&self) -> impl Iterator<Item = SeriesNumber> {
        self.series.keys().copied()
    }

    /// Starts of the base partitions that have rows.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = i64> {
        self.partitions.keys().copied()
    }

    /// Earliest start and latest end of a series' rows.
    pub(crate) fn series_range(&self, number: SeriesNumber) -> Option<(i64, i64)> {
        self.series.get(&number).map(|pending| pending.time_range)
    }

    /// Number of rows of a series.
    pub(crate) fn row_count(&self, number: SeriesNumber) -> u64 {
        self.series.get(&number).map_or(0, |pending| pending.rows)
    }

    /// Ends of the rows of a series, in order of arrival.
    pub(crate) fn row_ends(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
    ) -> impl Iterator<Item = i64> {
        let pending = self.series.get(&number);
        pending.into_iter().flat_map(move |pending| pending.rows(kind)).map(|(_, end, _)| end)
    }

    /// Earliest start and latest end of all rows.
    pub(crate) fn time_range(&self) -> Option<(i64, i64)> {
        let covers = self.partitions.values().map(|partition| (partition.start, partition.end));
        covers.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// Rows of a series that ended within `range` (by interval), in order of arrival.
    pub(crate) fn rows_of(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
        range: &Range<i64>,
    ) -> Option<Rows> {
        let mut rows = Rows::empty_for(kind);
        self.add_rows(number, range, &mut rows, kind).then_some(rows)
    }

    /// Appends the rows of a series that ended within `range` (by interval), in order of arrival;
    /// false if it has no rows at any time.
    #[expect(clippy::expect_used, reason = "add takes values that a batch was read with")]
    pub(crate) fn add_rows(
        &self,
        number: SeriesNumber,
        range: &Range<i64>,
        rows: &mut Rows,
        kind: SeriesKind,
    ) -> bool {
        let Some(pending) = self.series.get(&number) else { return false };
        let mut decoder = SampleDecoder::default();
        for (start, end, value) in pending.rows(kind) {
            if !range.contains(&end.saturating_sub(1)) {
                if let Rows::Cumulative(_) = rows {
                    decoder.skip(value);
                }
                continue;
            }
            match rows {
                Rows::Cumulative(rows) => {
                    let value = decoder.decode(value).clone();
                    rows.push(Row { start, end, value });
                }
                Rows::Histograms(rows) => {
                    let (value, _) = frame::decode(value).expect(READ);
                    rows.push(Row { start, end, value });
                }
                Rows::Numbers(rows) => {
                    let value = f64::from_le_bytes(value.try_into().expect(READ));
                    rows.push(Row { start, end, value });
                }
                Rows::Texts(rows) => {
                    let value = String::from_utf8_lossy(value).into_owned();
                    rows.push(Row { start, end, value });
                }
                Rows::Aggregates(_) => unreachable!("BUG: rollups are in no head"),
            }
        }
        true
    }

    /// Samples of a cumulative histogram that ended within `range` (by interval), each later than
    /// the one before it; `None` if they are not in order. They are decoded one by one: decoded,
    /// they may take many times the memory.
    pub(crate) fn samples_of(
        &self,
        number: SeriesNumber,
        range: &Range<i64>,
    ) -> Option<impl Iterator<Item = CumulativeSample>> {
        let rows = || {
            let kind = SeriesKind::Histogram(Temporality::Cumulative);
            self.series.get(&number).map(|pending| pending.rows(kind))
        };
        let range = range.clone();
        let is_within = move |end: i64| range.contains(&end.saturating_sub(1));
        let ends = rows()?.map(|(_, end, _)| end).filter(|&end| is_within(end));
        let is_ordered = ends.is_sorted_by(|a, b| a < b);
        let mut decoder = SampleDecoder::default();
        let samples = rows()?.filter_map(move |(start, end, value)| {
            if !is_within(end) {
                decoder.skip(value);
                return None;
            }
            Some(CumulativeSample { start, end, content: decoder.decode_content(value) })
        });
        is_ordered.then_some(samples)
    }

    /// The last sample of a cumulative series that ended by `time`. Of histograms, only those of
    /// the last time are decoded, and what they are increments of.
    pub(crate) fn last_sample(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
        time: i64,
    ) -> Option<Rows> {
        let pending = self.series.get(&number)?;
        let mut range = i64::MIN..time;
        if matches!(kind, SeriesKind::Histogram(_)) {
            let ends = pending.rows(kind).map(|(_, end, _)| end).filter(|&end| end <= time);
            let last = ends.max()?;
            range = last.saturating_sub(1)..last;
        }
        let mut rows = self.rows_of(number, kind, &range)?;
        rows.normalize(kind);
        rows.last_sample(time)
    }

    /// Number of rows of a series that ended within `range` (by interval), without decoding values.
    pub(crate) fn count_rows(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
        range: &Range<i64>,
    ) -> u64 {
        let Some(pending) = self.series.get(&number) else { return 0 };
        let ends = pending.rows(kind).map(|(_, end, _)| end.saturating_sub(1));
        ends.filter(|end| range.contains(end)).count() as u64
    }

    /// Frame of a series' gauge histogram at a timestamp, if this head has one.
    pub(crate) fn gauge_histogram(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
        time: i64,
    ) -> Option<&[u8]> {
        let pending = self.series.get(&number).filter(|pending| time <= pending.time_range.1)?;
        let mut rows = pending.rows(kind);
        rows.find(|&(start, end, _)| (start, end) == (time, time)).map(|(.., value)| value)
    }
}

const READ: &str = "BUG: the head holds what was checked";

impl HeadSeries {
    /// Memory in bytes.
    fn held_bytes(&self) -> usize {
        let frames = self.previous_sample.as_ref().map_or(0, |frame| frame.held_bytes());
        self.bytes.capacity().saturating_add(frames)
    }

    /// Start, end and value of each row, in order of arrival.
    #[expect(clippy::expect_used, reason = "add wrote these bytes")]
    fn rows(&self, kind: SeriesKind) -> impl Iterator<Item = (i64, i64, &[u8])> {
        let mut reader = WireReader::new(&self.bytes);
        let mut before = 0i64;
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let start = before.wrapping_add(reader.zigzag("start").expect(READ));
            let end = start.wrapping_add(reader.varint("span").expect(READ) as i64);
            before = end;
            let value = match kind {
                SeriesKind::Counter(_) | SeriesKind::Gauge => reader.read_bytes(8, "number"),
                SeriesKind::Histogram(_) | SeriesKind::Text => reader.bytes("value"),
            };
            Some((start, end, value.expect(READ)))
        })
    }
}

/// Immutable head being flushed.
#[derive(Clone)]
pub(crate) struct ImmutableHead {
    pub(crate) head: Arc<RwLock<Head>>,
    pub(crate) position: u64,
    pub(crate) producers: Arc<ProducerTable>,
}
