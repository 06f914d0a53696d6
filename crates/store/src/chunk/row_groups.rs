//! Grouping of rows into chunks: by bucket scheme, number of rows, and distinct buckets.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::block;
use hist::{Buckets, Histogram};

use super::histogram_delta::codable_delta;
use super::{ROWS_MAX, TEXT_BYTES_MAX};
use crate::row::{Row, Rows};

/// Rows of one chunk.
pub(super) struct ChunkRows {
    pub(super) rows: Rows,
    /// For cumulative histograms, the counts added between neighbouring rows: one less than rows.
    pub(super) increments: Vec<Histogram>,
}

impl From<Rows> for ChunkRows {
    fn from(rows: Rows) -> ChunkRows {
        ChunkRows { rows, increments: Vec::new() }
    }
}

/// Splits rows into groups that fit one chunk each: one bucket scheme, at most [`ROWS_MAX`] rows
/// and, for cumulative histograms, each containing the one before.
pub(super) fn split_rows(rows: Rows) -> Vec<ChunkRows> {
    fn split_evenly<T>(mut rows: Vec<Row<T>>, wrap: fn(Vec<Row<T>>) -> Rows) -> Vec<ChunkRows> {
        let mut pieces = Vec::new();
        while rows.len() > ROWS_MAX {
            let rest = rows.split_off(ROWS_MAX);
            pieces.push(wrap(std::mem::replace(&mut rows, rest)).into());
        }
        if !rows.is_empty() {
            pieces.push(wrap(rows).into());
        }
        pieces
    }
    match rows {
        Rows::Numbers(rows) => split_evenly(rows, Rows::Numbers),
        Rows::Aggregates(rows) => split_evenly(rows, Rows::Aggregates),
        Rows::Histograms(rows) => group_uniform(rows)
            .into_iter()
            .flat_map(|rows| split_evenly(rows, Rows::Histograms))
            .flat_map(|group| split_by_buckets(group, Rows::Histograms))
            .collect(),
        Rows::Cumulative(rows) => split_cumulative(rows)
            .into_iter()
            .flat_map(|group| split_by_buckets(group, Rows::Cumulative))
            .collect(),
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
            chunks.into_iter().map(|rows| Rows::Texts(rows).into()).collect()
        }
    }
}

/// Groups samples of which each contains the one before, with the increments between them.
fn split_cumulative(rows: Vec<Row<Histogram>>) -> Vec<ChunkRows> {
    let mut groups = Vec::new();
    let (mut chunk, mut increments): (Vec<Row<Histogram>>, Vec<Histogram>) = Default::default();
    for row in rows {
        let last = chunk.last().filter(|_| chunk.len() < ROWS_MAX);
        let added =
            last.and_then(|last| codable_delta(&last.value, &row.value, increments.first()));
        match added {
            Some(added) => increments.push(added),
            None if chunk.is_empty() => {}
            None => {
                let rows = Rows::Cumulative(std::mem::take(&mut chunk));
                groups.push(ChunkRows { rows, increments: std::mem::take(&mut increments) });
            }
        }
        chunk.push(row);
    }
    if !chunk.is_empty() {
        groups.push(ChunkRows { rows: Rows::Cumulative(chunk), increments });
    }
    groups
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

/// Halves groups that have too many distinct buckets for one block.
fn split_by_buckets(group: ChunkRows, wrap: fn(Vec<Row<Histogram>>) -> Rows) -> Vec<ChunkRows> {
    let ChunkRows { rows, mut increments } = group;
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
        return vec![ChunkRows { rows: wrap(held), increments }];
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
        return vec![ChunkRows { rows: wrap(held), increments }];
    }
    let middle = held.len() / 2;
    let rest = ChunkRows {
        rows: wrap(held.split_off(middle)),
        increments: increments.split_off(middle.min(increments.len())),
    };
    // The first row of the rest starts anew.
    increments.truncate(middle.saturating_sub(1));
    let first = ChunkRows { rows: wrap(held), increments };
    [first, rest].into_iter().flat_map(|group| split_by_buckets(group, wrap)).collect()
}
