//! Sample of the spans of a series and a minute: candidates for its exemplars.
//!
//! As the store does, a sample keeps the spans with the lowest keys of each cell of the ladder, and
//! the largest one. Keys are those of the store, so it keeps the same exemplars as if all spans had
//! been offered.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use model::LadderCell;

use super::span_message::SpanMessage;

/// Spans of a cell besides the maximum, as in the store.
const KEPT_PER_CELL: usize = 2;

/// A span that may be an exemplar.
#[derive(Clone, Debug)]
pub(super) struct SpanCandidate<'a> {
    pub(super) key: u64,
    pub(super) value: f64,
    pub(super) time: i64,
    pub(super) trace_id: [u8; 16],
    pub(super) span_id: [u8; 8],
    /// Number of its resource.
    pub(super) resource: usize,
    pub(super) span: SpanMessage<'a>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct SpanSample<'a> {
    maximum: SpanCandidate<'a>,
    /// By cell, then by key.
    others: Vec<(LadderCell, SpanCandidate<'a>)>,
    /// Numbers of all spans that were offered.
    counts: Vec<(LadderCell, u64)>,
}

impl<'a> SpanSample<'a> {
    pub(super) fn new(first: SpanCandidate<'a>) -> SpanSample<'a> {
        let counts = vec![(LadderCell::of(first.value), 1)];
        SpanSample { maximum: first, others: Vec::new(), counts }
    }

    pub(super) fn offer(&mut self, mut offered: SpanCandidate<'a>) {
        let mut cell = LadderCell::of(offered.value);
        match self.counts.iter_mut().find(|(known, _)| *known == cell) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.counts.push((cell, 1)),
        }
        let is_larger = offered.value > self.maximum.value
            || offered.value == self.maximum.value && offered.key < self.maximum.key;
        if is_larger {
            std::mem::swap(&mut self.maximum, &mut offered);
            cell = LadderCell::of(offered.value);
        }
        let start = self.others.partition_point(|(known, _)| *known < cell);
        let rest = self.others.get(start..).unwrap_or_default();
        let count = rest.iter().take_while(|(known, _)| *known == cell).count();
        let before = rest.iter().take(count).take_while(|(_, kept)| kept.key < offered.key).count();
        if before == KEPT_PER_CELL {
            return;
        }
        if count == KEPT_PER_CELL {
            self.others.remove(start.saturating_add(count).saturating_sub(1));
        }
        self.others.insert(start.saturating_add(before), (cell, offered));
    }

    /// Number of spans that were offered, by cell.
    pub(super) fn counts(&self) -> &[(LadderCell, u64)] {
        &self.counts
    }

    /// The kept spans.
    pub(super) fn iter(&self) -> impl Iterator<Item = &SpanCandidate<'a>> {
        self.others.iter().map(|(_, kept)| kept).chain([&self.maximum])
    }
}
