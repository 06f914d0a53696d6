//! Head: rows in memory that are in no part yet.
//!
//! A row of a histogram is its frame, some hundred bytes; a series without rows is not here at all.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::{Arc, RwLock};

use hist::codec::frame;
use model::wire::{WireReader, put_bytes, put_varint, put_zigzag};
use model::{BatchEntry, Gap, SeriesKind};

use crate::chunk::row_begin;
use crate::grid::overlap_share;
use crate::index::SeriesNumber;
use crate::manifest::ProducerTable;
use crate::resolution::{Resolution, slot};
use crate::row::{Row, Rows};

/// Rows of many series.
#[derive(Debug, Default)]
pub(crate) struct Head {
    series: HashMap<SeriesNumber, HeadSeries, BuildHasherDefault<DenseHasher>>,
    bytes: usize,
    rows: u64,
    /// What is in each partition, by its start.
    partitions: BTreeMap<i64, PartitionRows>,
    /// What is known to be missing.
    pub(crate) gaps: Vec<Gap>,
}

/// Rows of one partition.
#[derive(Debug)]
struct PartitionRows {
    rows: u64,
    /// When the earliest row began, as chunks say it.
    start: i64,
    /// When the latest ended.
    end: i64,
}

#[derive(Debug, Default)]
struct HeadSeries {
    /// Rows as they came: start zigzag less the end before, span varint, value.
    bytes: Vec<u8>,
    end: i64,
    /// When the earliest row began, as chunks say it, and the latest ended.
    time_range: (i64, i64),
}

/// Hasher for dense series numbers. They are dense and the store's own, so that nobody can choose
/// them, and a sample costs one multiplication here (Knuth, “The Art of Computer Programming”,
/// volume 3, 6.4).
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
        // The best bits are the high ones, and tables look at the low ones too.
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
        let before = pending.bytes.capacity();
        // Twice the room would be wasted on each of very many series.
        let need = entry.value.len().saturating_add(24);
        if pending.bytes.capacity().saturating_sub(pending.bytes.len()) < need {
            pending.bytes.reserve_exact(need.max(pending.bytes.len() / 4));
        }
        put_zigzag(&mut pending.bytes, entry.start.wrapping_sub(pending.end));
        put_varint(&mut pending.bytes, entry.end.wrapping_sub(entry.start) as u64);
        match kind {
            SeriesKind::Counter(_) | SeriesKind::Gauge => {
                pending.bytes.extend_from_slice(entry.value)
            }
            SeriesKind::Histogram(_) | SeriesKind::Text => {
                put_bytes(&mut pending.bytes, entry.value)
            }
        }
        pending.end = entry.end;
        let start = row_begin(kind, (entry.start, entry.end));
        pending.time_range = (pending.time_range.0.min(start), pending.time_range.1.max(entry.end));
        let grown = pending.bytes.capacity().saturating_sub(before);
        self.bytes = self.bytes.saturating_add(grown);
        self.rows = self.rows.saturating_add(1);
        let partition = slot(entry.end, Resolution::Base.partition());
        let empty = || PartitionRows { rows: 0, start: i64::MAX, end: i64::MIN };
        let held = self.partitions.entry(partition).or_insert_with(empty);
        held.rows = held.rows.saturating_add(1);
        (held.start, held.end) = (held.start.min(start), held.end.max(entry.end));
    }

    /// About how much memory rows take.
    pub(crate) fn bytes(&self) -> usize {
        const SERIES_BYTES: usize = size_of::<HeadSeries>() + size_of::<SeriesNumber>() + 8;
        self.series.len().saturating_mul(SERIES_BYTES).saturating_add(self.bytes)
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 && self.gaps.is_empty()
    }

    /// About how many rows of so many series ended within a range, if all series have as many.
    pub(crate) fn estimate_rows(&self, series: u64, range: &Range<i64>) -> f64 {
        let rows = self.partitions.values().map(|partition| {
            partition.rows as f64 * overlap_share(&(partition.start..partition.end), range)
        });
        rows.sum::<f64>() * (series as f64 / self.series.len().max(1) as f64).min(1.0)
    }

    /// Series that have rows here.
    pub(crate) fn series(&self) -> impl Iterator<Item = SeriesNumber> {
        self.series.keys().copied()
    }

    /// Starts of the partitions of the base that rows lie in.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = i64> {
        self.partitions.keys().copied()
    }

    /// When the earliest row of a series began and the latest ended.
    pub(crate) fn series_range(&self, number: SeriesNumber) -> Option<(i64, i64)> {
        self.series.get(&number).map(|pending| pending.time_range)
    }

    /// When the earliest row of all began and the latest ended.
    pub(crate) fn time_range(&self) -> Option<(i64, i64)> {
        let covers = self.partitions.values().map(|partition| (partition.start, partition.end));
        covers.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    }

    /// The rows of a series that ended within `range` (as slots count it), in the order they came.
    #[expect(clippy::expect_used, reason = "add takes values that a batch was read with")]
    pub(crate) fn rows_of(
        &self,
        number: SeriesNumber,
        kind: SeriesKind,
        range: &Range<i64>,
    ) -> Option<Rows> {
        let pending = self.series.get(&number)?;
        let mut rows = Rows::empty_for(kind);
        for (start, end, value) in pending.rows(kind) {
            if !range.contains(&end.saturating_sub(1)) {
                continue;
            }
            match &mut rows {
                Rows::Histograms(rows) | Rows::Cumulative(rows) => {
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
                Rows::Summaries(_) => unreachable!("BUG: rollups are in no head"),
            }
        }
        Some(rows)
    }

    /// How many rows of a series ended within `range` (as slots count it), without a look at
    /// their values.
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

    /// The frame of a series' point-in-time histogram at a moment, if one is here.
    pub(crate) fn point(&self, number: SeriesNumber, kind: SeriesKind, time: i64) -> Option<&[u8]> {
        let pending = self.series.get(&number).filter(|pending| time <= pending.time_range.1)?;
        let mut rows = pending.rows(kind);
        rows.find(|&(start, end, _)| (start, end) == (time, time)).map(|(.., value)| value)
    }
}

const READ: &str = "BUG: the head holds what was checked";

impl HeadSeries {
    /// Start, end and value of each row, in the order they came.
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

/// Closed head being flushed.
#[derive(Clone)]
pub(crate) struct SealingHead {
    pub(crate) head: Arc<RwLock<Head>>,
    pub(crate) position: u64,
    pub(crate) producers: Arc<ProducerTable>,
}
