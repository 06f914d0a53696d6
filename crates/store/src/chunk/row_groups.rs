//! Grouping of rows into chunks: by bucket scheme, number of rows, and distinct buckets.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::block;
use hist::{Buckets, Histogram, Scheme};

use super::sample_group::SampleGroup;
use super::values::RowTimes;
use super::{ROWS_MAX, TEXT_BYTES_MAX};
use crate::cumulative_sample::CumulativeSample;
use crate::row::{Row, Rows};

/// Scale of a base-2 grid whose buckets of one sign all fit one block: 64 of each of the 2,098
/// powers of two that a double has.
const COARSER_SCALE: i32 = 6;

/// Rows of one chunk.
pub(super) enum ChunkRows {
    /// All but cumulative histograms.
    Rows(Rows),
    Samples(Box<SampleGroup>),
}

impl ChunkRows {
    pub(super) fn times(&self) -> RowTimes {
        match self {
            ChunkRows::Rows(rows) => rows.times(),
            ChunkRows::Samples(group) => group.times.clone(),
        }
    }

    /// The last sample that has a value, as [`Rows::last_sample`].
    pub(super) fn last_sample(&mut self) -> Option<Rows> {
        match self {
            ChunkRows::Rows(rows) => rows.last_sample(i64::MAX),
            ChunkRows::Samples(group) => Some(group.last_sample()),
        }
    }
}

/// Splits rows into groups that fit one chunk each: one bucket scheme, at most [`ROWS_MAX`] rows
/// and, for cumulative histograms, each containing the one before.
pub(super) fn split_rows(rows: Rows) -> Box<dyn Iterator<Item = ChunkRows>> {
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
    let groups = match rows {
        Rows::Numbers(rows) => split_evenly(rows, Rows::Numbers),
        Rows::Aggregates(rows) => split_evenly(rows, Rows::Aggregates),
        Rows::Histograms(rows) => group_uniform(rows)
            .into_iter()
            .flat_map(|rows| split_evenly(rows, Rows::Histograms))
            .flat_map(split_by_buckets)
            .collect(),
        Rows::Cumulative(rows) => {
            return split_samples(rows.into_iter().map(CumulativeSample::from));
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
    };
    Box::new(groups.into_iter().map(ChunkRows::Rows))
}

/// Splits samples of a cumulative histogram, as [`split_rows`].
pub(super) fn split_samples<'a>(
    samples: impl Iterator<Item = CumulativeSample> + 'a,
) -> Box<dyn Iterator<Item = ChunkRows> + 'a> {
    Box::new(SampleGroup::split(samples).map(Box::new).map(ChunkRows::Samples))
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

pub(super) fn is_uniform(a: &Histogram, b: &Histogram) -> bool {
    fn limits(h: &Histogram) -> impl Iterator<Item = u64> {
        h.thresholds().iter().map(|t| t.value.to_bits())
    }
    a.scheme() == b.scheme() && a.zero_threshold() == b.zero_threshold() && limits(a).eq(limits(b))
}

/// Number of indexes from the first to the last one of some buckets.
pub(super) fn span<'a>(buckets: impl Iterator<Item = &'a Buckets>) -> u64 {
    let ends = buckets.filter_map(|buckets| {
        let indexes = buckets.indexes();
        Some((i64::from(*indexes.first()?), i64::from(*indexes.last()?)))
    });
    let ends = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    ends.map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1))
}

/// The histogram on a coarser grid, on which any number of buckets fits one block. Batches hold no
/// histogram that does not fit, but the sum of several may be one.
fn with_fewer_buckets(histogram: &Histogram) -> Histogram {
    // Buckets of a finer base-2 grid are added as they are; those of others move to the bucket that
    // contains their middle.
    let coarser = Scheme::exp2(COARSER_SCALE).ok().and_then(|grid| histogram.convert(&grid).ok());
    coarser.map_or_else(|| histogram.clone(), |conversion| conversion.histogram)
}

/// Halves groups that have too many distinct buckets for one block.
fn split_by_buckets(group: Rows) -> Vec<Rows> {
    let Rows::Histograms(mut held) = group else { panic!("BUG: only histograms have buckets") };
    // Nearly always the whole span from first to last used bucket fits.
    let span_of = |of: fn(&Histogram) -> &Buckets| span(held.iter().map(|row| of(&row.value)));
    let columns = span_of(Histogram::positive).max(span_of(Histogram::negative));
    // A block pads its rows to a multiple of eight.
    let rows = (held.len() as u64).next_multiple_of(8);
    if columns.saturating_mul(rows) <= block::CELLS_MAX {
        return vec![Rows::Histograms(held)];
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
        return vec![Rows::Histograms(held)];
    }
    if let [row] = held.as_mut_slice() {
        row.value = with_fewer_buckets(&row.value);
        return vec![Rows::Histograms(held)];
    }
    let rest = held.split_off(held.len() / 2);
    [held, rest].into_iter().flat_map(|rows| split_by_buckets(Rows::Histograms(rows))).collect()
}
