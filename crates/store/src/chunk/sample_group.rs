//! Samples of one chunk of a cumulative histogram: the first one, and what each later one adds.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::block;
use hist::codec::decoded_block::DenseCounts;
use hist::{Histogram, HistogramParts, TrackedValue};

use super::ROWS_MAX;
use super::histogram_delta::{TrackedStatistics, apply_delta, codable_delta};
use super::row_groups::{is_uniform, span};
use super::values::RowTimes;
use crate::cumulative_sample::{CumulativeSample, SampleContent};
use crate::row::{Row, Rows};

/// Samples of which each contains the one before.
pub(super) struct SampleGroup {
    pub(super) times: RowTimes,
    pub(super) first: Histogram,
    /// Counts added between neighbours: one less than samples.
    pub(super) increments: Vec<Histogram>,
    pub(super) summaries: Vec<TrackedStatistics>,
    /// The sample after some of the increments: the last one, or one before it. `None` after no
    /// increment: most groups of samples that do not contain each other have one sample.
    last: Option<Histogram>,
    /// Number of these increments.
    settled: usize,
}

const CONTAINED: &str = "BUG: a sample is not the one before it and what it adds";

impl SampleGroup {
    fn new(time: (i64, i64), value: Histogram) -> SampleGroup {
        SampleGroup {
            times: vec![time],
            summaries: vec![TrackedStatistics::from_histogram(&value)],
            first: value,
            increments: Vec::new(),
            last: None,
            settled: 0,
        }
    }

    fn settled_sample(&self) -> &Histogram {
        self.last.as_ref().unwrap_or(&self.first)
    }

    /// Groups samples in time order. The first one is whole. A group ends when a sample needs
    /// another one.
    pub(super) fn split(
        mut samples: impl Iterator<Item = CumulativeSample>,
    ) -> impl Iterator<Item = SampleGroup> {
        let mut open: Option<SampleGroup> = None;
        let groups = std::iter::from_fn(move || {
            for CumulativeSample { start, end, content } in samples.by_ref() {
                let value = match (&mut open, content) {
                    (Some(group), content) => group.push((start, end), content),
                    (None, SampleContent::Whole(value)) => Some(value),
                    (None, SampleContent::Increment { .. }) => panic!("{CONTAINED}"),
                };
                if let Some(value) = value
                    && let Some(ended) = open.replace(SampleGroup::new((start, end), value))
                {
                    return Some(ended);
                }
            }
            open.take()
        });
        groups.flat_map(SampleGroup::split_by_buckets)
    }

    /// Adds a sample; returns its value if it needs another group.
    fn push(&mut self, time: (i64, i64), content: SampleContent) -> Option<Histogram> {
        let unknown = TrackedValue::Absent;
        let is_full = self.times.len() >= ROWS_MAX;
        let value = match content {
            SampleContent::Whole(value) => value,
            SampleContent::Increment { counts, sum } => {
                let is_like = |first: &Histogram| is_uniform(first, &counts);
                let is_empty = self.settled_sample().is_empty();
                if !is_full && !is_empty && self.increments.first().is_none_or(is_like) {
                    let summary = TrackedStatistics { sum, min: unknown, max: unknown };
                    self.push_increment(time, counts, summary);
                    return None;
                }
                self.settle_last();
                let mut value = self.settled_sample().clone();
                assert!(value.add_counts(&counts, sum, unknown, unknown), "{CONTAINED}");
                value
            }
        };
        if is_full {
            return Some(value);
        }
        self.settle_last();
        let (last, second) = (self.settled_sample(), self.increments.first());
        let Some(added) = codable_delta(last, &value, second) else { return Some(value) };
        self.push_increment(time, added, TrackedStatistics::from_histogram(&value));
        (self.last, self.settled) = (Some(value), self.increments.len());
        None
    }

    fn push_increment(&mut self, time: (i64, i64), added: Histogram, summary: TrackedStatistics) {
        self.times.push(time);
        self.increments.push(added);
        self.summaries.push(summary);
    }

    /// Adds the increments to the last sample that are not in it yet. They are summed first: adding
    /// each to a whole histogram takes several times as long.
    fn settle_last(&mut self) {
        let TrackedStatistics { sum, min, max } = match self.summaries.last() {
            Some(summary) if self.settled < self.increments.len() => *summary,
            _ => return,
        };
        let pending = &self.increments[self.settled..];
        let last = self.last.get_or_insert_with(|| self.first.clone());
        let mut window = DenseCounts::default();
        let added = pending.iter().all(|added| window.add_histogram(added)).then(|| {
            let mut parts = HistogramParts::new(last.scheme().clone());
            parts.zero_threshold = last.zero_threshold();
            (parts.positive, parts.zero) = window.buckets();
            Histogram::from_recorded_parts(parts).ok()
        });
        let is_added = match added.flatten() {
            Some(added) => last.add_counts(&added, sum, min, max),
            None => pending.iter().all(|added| last.add_counts(added, sum, min, max)),
        };
        assert!(is_added, "{CONTAINED}");
        self.settled = self.increments.len();
    }

    /// The last sample, as the only row.
    pub(super) fn last_sample(&mut self) -> Rows {
        self.settle_last();
        let &(start, end) = self.times.last().unwrap_or(&(0, 0));
        Rows::Cumulative(vec![Row { start, end, value: self.settled_sample().clone() }])
    }

    /// The sample with this number.
    fn value(&self, number: usize) -> Histogram {
        let mut value = self.first.clone();
        for (added, summary) in self.increments.iter().zip(&self.summaries[1..]).take(number) {
            let next = apply_delta(&value, added, summary);
            assert!(next.is_some(), "{CONTAINED}");
            value = next.unwrap_or_default();
        }
        value
    }

    /// Halves groups that have too many distinct buckets for one block.
    fn split_by_buckets(self) -> Vec<SampleGroup> {
        let samples = self.times.len();
        // The second sample may be on a coarser grid than the first, with fewer buckets.
        let second = self.increments.first().map(|added| match is_uniform(&self.first, added) {
            true => None,
            false => Some(self.value(1)),
        });
        let second = second.flatten();
        let all = || [&self.first].into_iter().chain(&second).chain(&self.increments);
        // Nearly always the whole span from first to last used bucket fits.
        let columns =
            span(all().map(Histogram::positive)).max(span(all().map(Histogram::negative)));
        // A block pads its rows to a multiple of eight.
        let rows = (samples as u64).next_multiple_of(8);
        if samples == 1 || columns.saturating_mul(rows) <= block::CELLS_MAX {
            return vec![self];
        }
        // Samples share most buckets, so the union is counted before the group is split.
        let union = [Histogram::positive, Histogram::negative].map(|of| {
            let mut union: Vec<i32> =
                all().flat_map(|histogram| of(histogram).indexes()).copied().collect();
            union.sort_unstable();
            union.dedup();
            union.len() as u64
        });
        if union[0].max(union[1]).saturating_mul(rows) <= block::CELLS_MAX {
            return vec![self];
        }
        let (first, rest) = self.halve();
        [first, rest].into_iter().flat_map(SampleGroup::split_by_buckets).collect()
    }

    fn halve(mut self) -> (SampleGroup, SampleGroup) {
        self.settle_last();
        let middle = self.times.len() / 2;
        let (before, first) = (self.value(middle.saturating_sub(1)), self.value(middle));
        let increments = self.increments.split_off(middle);
        let rest = SampleGroup {
            times: self.times.split_off(middle),
            first,
            settled: increments.len(),
            increments,
            summaries: self.summaries.split_off(middle),
            last: self.last,
        };
        // The first sample of the rest starts anew.
        self.increments.truncate(middle.saturating_sub(1));
        self.settled = self.increments.len();
        (SampleGroup { last: Some(before), ..self }, rest)
    }
}
