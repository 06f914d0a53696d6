//! Rollup of a cumulative histogram from the increments that its chunks store.
//!
//! The result is that of samples: increases in their order, of which each is the difference of two
//! samples. Where it might differ, such as after a reset, samples are read instead.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use hist::codec::decoded_block::{DecodedBlock, DenseCounts};
use hist::codec::header::Temporality;
use hist::{DoubleDouble, Histogram, HistogramParts, TrackedValue};
use model::{Gap, SeriesId, SeriesKind};

use crate::backend::Part;
use crate::base_parts::BaseParts;
use crate::chunk::{self, CumulativeChunk, TrackedStatistics};
use crate::error::Result;
use crate::gather::{self, KnownPredecessors};
use crate::inner::StoreInner;
use crate::resolution::{DAY, Resolution, interval_start};
use crate::row::{Predecessor, Row, Rows};

/// Bits of the number of values of a sample, so that sums of increments stay below 2^64.
const TOTAL_BITS_MAX: u32 = 62;

impl StoreInner {
    /// Increases of a day by intervals of a resolution, from parts that hold all its samples.
    /// `None` if they may differ from those between the samples.
    pub(super) fn rollup_of_increments(
        &self,
        parts: &[Arc<dyn Part>],
        base_parts: &BaseParts<'_>,
        id: &SeriesId,
        (day, resolution): (i64, Resolution),
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Rows>> {
        let chunks = read_chunks(parts, id, &(day..day.saturating_add(DAY)))?;
        let Some((chunks, first)) = chunks.as_deref().and_then(|all| Some((all, all.first()?)))
        else {
            return Ok(None);
        };
        let mut known = KnownPredecessors::default();
        chunks.iter().for_each(|chunk| known.add_at(chunk.first_time(), chunk.predecessor.clone()));
        let recorded = known.for_first_sample(first.first_time());
        let series = (id, SeriesKind::Histogram(Temporality::Cumulative));
        let (end, _) = first.first_time();
        let mut more_gaps = Vec::new();
        let predecessor =
            self.predecessor(base_parts, series, end, recorded, None, &mut more_gaps)?;
        // Rollups have a period.
        let period = resolution.period().unwrap_or(DAY);
        let rows = rollup_chunks(chunks, &predecessor, period);
        if rows.is_some() {
            gaps.extend(more_gaps);
        }
        Ok(rows)
    }
}

/// Increases by interval, from chunks that follow each other.
fn rollup_chunks(
    chunks: &[CumulativeChunk],
    predecessor: &Predecessor,
    period: i64,
) -> Option<Rows> {
    let first = chunks.first()?;
    let (end, start) = first.first_time();
    let is_first = *predecessor == Predecessor::Nothing && !first.is_base_predecessor;
    let is_recorded = first.is_base_predecessor && first.predecessor == *predecessor;
    if !is_first && !is_recorded {
        return None;
    }
    let mut rollup = IncrementRollup::new(period, &first.base);
    // The whole value of the first sample is an increase since its start. Without a start its
    // increase is unknown: it gives an empty row.
    let is_uncounted = is_first && start == end;
    let is_started = !is_first || is_uncounted || rollup.add_sample(&first.base, end);
    if !is_started
        || !chunks.iter().all(|chunk| rollup.add_chunk(chunk))
        || !rollup.finish_interval()
    {
        return None;
    }
    let mut rows = Rows::Histograms(rollup.rows);
    if is_uncounted {
        let sample = Row { start, end, value: first.base.clone() };
        let counted = std::mem::replace(&mut rows, Rows::Cumulative(vec![sample]).empty_rollups());
        rows.append(counted);
    }
    Some(rows)
}

/// Chunks of a series by time, all of which are in a range; `None` if they overlap, are damaged, or
/// hold more than counts and an exact sum.
fn read_chunks(
    parts: &[Arc<dyn Part>],
    id: &SeriesId,
    range: &Range<i64>,
) -> Result<Option<Vec<CumulativeChunk>>> {
    let (mut chunks, mut bytes) = (Vec::new(), Vec::new());
    for part in parts {
        for location in part.find(id)? {
            let Ok(header) = gather::read(&**part, &location, &mut bytes)? else {
                return Ok(None);
            };
            // The first chunk tells mostly whether a series is supported: the caller reads the
            // chunks of others again.
            let Some(chunk) =
                chunk::decode_increments(&header, &bytes).ok().flatten().filter(|it| it.is_plain)
            else {
                return Ok(None);
            };
            let is_in_range = |time: &(i64, i64)| range.contains(&time.1.saturating_sub(1));
            if !chunk.times.iter().all(is_in_range) {
                return Ok(None);
            }
            chunks.push(chunk);
        }
    }
    model::sort::by_key(&mut chunks, CumulativeChunk::first_time);
    let ends = chunks.iter().flat_map(|chunk| &chunk.times).map(|time| time.1);
    Ok(ends.is_sorted_by(|a, b| a < b).then_some(chunks))
}

/// Increases by interval.
struct IncrementRollup {
    period: i64,
    rows: Vec<Row<Histogram>>,
    /// Empty histogram on the grid of all samples.
    grid: HistogramParts,
    /// Start of the current interval, if a sample ended in it.
    interval: Option<i64>,
    /// Counts and sum of the interval; no sum before the first value.
    counts: DenseCounts,
    sum: Option<DoubleDouble>,
    /// Counts, sum, end and start of the last sample.
    last: Option<(DenseCounts, f64, (i64, i64))>,
    block: DecodedBlock,
}

impl IncrementRollup {
    fn new(period: i64, base: &Histogram) -> IncrementRollup {
        let mut grid = HistogramParts::new(base.scheme().clone());
        grid.zero_threshold = base.zero_threshold();
        IncrementRollup {
            period,
            rows: Vec::new(),
            grid,
            interval: None,
            counts: DenseCounts::default(),
            sum: None,
            last: None,
            block: DecodedBlock::default(),
        }
    }

    /// Adds the increments of the next chunk; false if they are not supported.
    fn add_chunk(&mut self, chunk: &CumulativeChunk) -> bool {
        let base = &chunk.base;
        let is_base_plain = TrackedStatistics::from_histogram(base).is_plain();
        let Some(base_sum) = base.tracked_sum().value().map(|sum| sum.value()) else {
            return false;
        };
        let mut counts = DenseCounts::default();
        let is_supported = chunk.is_plain
            && is_base_plain
            && self.has_grid_of_rollup(base)
            && counts.add_histogram(base)
            && self.continues(chunk, base_sum)
            && self.decode(chunk, &counts);
        if !is_supported {
            return false;
        }
        let block = std::mem::take(&mut self.block);
        let is_added =
            self.add_increments(chunk, &block, base_sum) && counts.extend_to_block(&block);
        counts.add_rows(&block, 0..block.rows(), false);
        let last = chunk.sums.last().zip(chunk.times.last());
        self.last = last.map(|(&sum, &(start, end))| (counts, sum, (end, start)));
        self.block = block;
        is_added
    }

    /// Adds a sample whose whole value is an increase; false if it is not supported.
    fn add_sample(&mut self, value: &Histogram, end: i64) -> bool {
        self.interval = Some(interval_start(end, self.period));
        self.sum = value.tracked_sum().value().filter(|_| !value.is_empty());
        self.counts.add_histogram(value)
    }

    /// Whether a chunk begins with the last sample, or is the first one.
    fn continues(&self, chunk: &CumulativeChunk, base_sum: f64) -> bool {
        let Some((counts, sum, time)) = &self.last else { return true };
        let (buckets, zero) = counts.buckets();
        chunk.is_base_predecessor
            && chunk.predecessor.time() == Some(*time)
            && sum.to_bits() == base_sum.to_bits()
            && zero == chunk.base.zero_count()
            && buckets.into_iter().eq(chunk.base.positive().iter())
    }

    /// Decodes the increments of a chunk after some counts.
    fn decode(&mut self, chunk: &CumulativeChunk, before: &DenseCounts) -> bool {
        let block = &mut self.block;
        if !block.decode_rows(&chunk.block, usize::MAX).unwrap_or(false) {
            return false;
        }
        let totals = block.totals().iter();
        let total = totals.fold(before.total(), |total, &n| total.saturating_add(n));
        // A chunk of one sample may have no increments, and a block without rows any grid.
        let is_on_grid = block.rows() == 0
            || *block.scheme() == self.grid.scheme
                && block.zero_threshold() == self.grid.zero_threshold;
        is_on_grid && total >> TOTAL_BITS_MAX == 0
    }

    /// Whether a histogram has the scheme and zero threshold of the rollup, and mirrored buckets.
    fn has_grid_of_rollup(&self, base: &Histogram) -> bool {
        *base.scheme() == self.grid.scheme
            && base.zero_threshold() == self.grid.zero_threshold
            && base.scheme().is_mirrored()
    }

    fn add_increments(
        &mut self,
        chunk: &CumulativeChunk,
        block: &DecodedBlock,
        base_sum: f64,
    ) -> bool {
        let without_increment = usize::from(!chunk.is_base_predecessor);
        let (mut sum_before, mut is_empty) = (base_sum, chunk.base.is_empty());
        let mut end_before = match chunk.is_base_predecessor {
            true => chunk.predecessor.time().map(|time| time.0),
            false => chunk.times.first().map(|time| time.1),
        };
        // Rows of the block that end in the current interval, not added yet.
        let mut pending = 0..0;
        let samples = chunk.times.iter().zip(&chunk.sums).skip(without_increment).enumerate();
        for (row, (&(start, end), &sum)) in samples {
            // The whole value of such a sample is an increase, whatever it contains.
            let is_reset = start < end && end_before.is_none_or(|before| start >= before);
            let more = match is_empty {
                true => DoubleDouble::new(sum),
                false => DoubleDouble::new(sum).minus(DoubleDouble::new(sum_before)),
            };
            if is_reset || !sum.is_finite() || !more.value().is_finite() {
                return false;
            }
            let interval = interval_start(end, self.period);
            if self.interval != Some(interval) {
                let is_added = self.add_rows(block, pending) && self.finish_interval();
                if !is_added {
                    return false;
                }
                self.interval = Some(interval);
                pending = row..row;
            }
            pending.end = row.saturating_add(1);
            if block.totals().get(row).is_some_and(|&total| total > 0) {
                self.sum = Some(self.sum.map_or(more, |sum| sum.plus(more)));
                is_empty = false;
            }
            (sum_before, end_before) = (sum, Some(end));
        }
        self.add_rows(block, pending)
    }

    fn add_rows(&mut self, block: &DecodedBlock, rows: Range<usize>) -> bool {
        let is_extended = rows.is_empty() || self.counts.extend_to_block(block);
        if is_extended && !rows.is_empty() {
            self.counts.add_rows(block, rows, false);
        }
        is_extended
    }

    /// Appends the row of the current interval, if there is one; false if it is no histogram.
    fn finish_interval(&mut self) -> bool {
        let Some(start) = self.interval.take() else { return true };
        let mut parts = self.grid.clone();
        (parts.positive, parts.zero) = self.counts.buckets();
        self.counts.clear();
        let sum = self.sum.take().unwrap_or_default();
        parts.sum = TrackedValue::Exact(sum);
        let end = start.saturating_add(self.period);
        let value = Histogram::from_recorded_parts(parts).ok();
        let row = value.filter(|_| sum.value().is_finite()).map(|value| Row { start, end, value });
        let is_row = row.is_some();
        self.rows.extend(row);
        is_row
    }
}

#[cfg(test)]
mod tests {
    use hist::{Scheme, Threshold};
    use proptest::prelude::*;

    use super::*;
    use crate::chunk::ChunkSource;
    use crate::resolution::MINUTE;
    use crate::rollup::{deltas_of_day, rollup_rows, uncounted_sample};

    const KIND: SeriesKind = SeriesKind::Histogram(Temporality::Cumulative);
    const PERIOD: i64 = 5 * MINUTE;

    /// The rollup as samples give it.
    fn expected(rows: &Rows, predecessor: &Predecessor) -> Rows {
        let first = uncounted_sample(KIND, rows, predecessor);
        // The predecessor is the last sample of an earlier day.
        let day = predecessor.time().map_or(0, |(end, _)| end);
        let before = predecessor.clone().into_sample();
        let mut finer = deltas_of_day(KIND, rows.clone(), before, day);
        if let Some(first) = first {
            let counted = std::mem::replace(&mut finer, first.empty_rollups());
            finer.append(counted);
        }
        rollup_rows(&finer, PERIOD)
    }

    /// Rolls up chunks of samples that were written in pieces of some rows; returns whether that
    /// was possible from their increments. The result must then be that of the samples.
    #[track_caller]
    fn check(rows: &[Row<Histogram>], predecessor: &Predecessor, piece_rows: usize) -> bool {
        let (mut chunks, mut before) = (Vec::new(), predecessor.clone());
        for piece in rows.chunks(piece_rows) {
            let piece = Rows::Cumulative(piece.to_vec());
            let last = piece.last_sample(i64::MAX).unwrap();
            let source = ChunkSource::Rows(piece);
            let id = SeriesId([7; 16]);
            chunk::encode(id, Resolution::Base, KIND, source, before, |header, bytes| {
                chunks.push(chunk::decode_increments(&header, bytes).unwrap());
                Ok(())
            })
            .unwrap();
            before = Predecessor::Sample(last);
        }
        let chunks: Option<Vec<CumulativeChunk>> = chunks.into_iter().collect();
        let found = chunks.and_then(|chunks| rollup_chunks(&chunks, predecessor, PERIOD));
        let Some(found) = found else { return false };
        let rows = Rows::Cumulative(rows.to_vec());
        assert_eq!(rollup_rows(&found, PERIOD), expected(&rows, predecessor));
        true
    }

    fn exact(sum: f64) -> TrackedValue<DoubleDouble> {
        TrackedValue::Exact(DoubleDouble::new(sum))
    }

    /// Samples, a minute apart or more, that each add some counts.
    fn samples(steps: &[(Vec<(i32, u64)>, i64)], start: Option<i64>) -> Vec<Row<Histogram>> {
        let scheme = Scheme::exp2(3).unwrap();
        let mut value = Histogram::new(scheme.clone());
        let (mut end, mut sum) = (MINUTE, 0.0);
        let mut rows = Vec::new();
        for (counts, minutes) in steps {
            let mut parts = HistogramParts::new(scheme.clone());
            for &(index, count) in counts {
                parts.positive = vec![(index, count)];
                sum += count as f64 * 0.1;
                let added = Histogram::from_recorded_parts(parts.clone()).unwrap();
                let unknown = TrackedValue::Absent;
                assert!(value.add_counts(&added, exact(sum), unknown, unknown));
            }
            rows.push(Row { start: start.unwrap_or(end), end, value: value.clone() });
            end += minutes * MINUTE;
        }
        rows
    }

    #[test]
    fn increments_give_the_rollup_of_the_samples() {
        let steps: Vec<(Vec<(i32, u64)>, i64)> = (0..700)
            .map(|step| (vec![(step % 9 - 4, (step % 5) as u64 * 7 + 1)], i64::from(step % 3 + 1)))
            .collect();
        let mut rows = samples(&steps, None);
        for piece_rows in [1, 7, 359, 700] {
            assert!(check(&rows, &Predecessor::Nothing, piece_rows), "{piece_rows}");
            assert!(
                check(&samples(&steps, Some(0)), &Predecessor::Nothing, piece_rows),
                "{piece_rows}"
            );
        }
        let before = Predecessor::Sample(Rows::Cumulative(vec![rows.remove(0)]));
        assert!(check(&rows, &before, 100));
        // Nothing is known of the increase up to the first sample.
        assert!(!check(&rows, &Predecessor::Unknown, 100));
        // A reset, by counts or by the start.
        let mut reset = rows.clone();
        reset.extend(samples(&steps[..9], None).into_iter().map(|row| {
            let end = row.end + rows[rows.len() - 1].end;
            Row { start: end, end, value: row.value }
        }));
        assert!(!check(&reset, &before, 100));
        let last = rows.len() - 1;
        rows[last].start = rows[last - 1].end;
        assert!(!check(&rows, &before, 1_000));
    }

    #[test]
    fn samples_with_more_than_counts_are_read() {
        let mut rows = samples(&[(vec![(1, 2)], 1), (vec![(2, 2)], 1), (vec![], 1)], None);
        assert!(check(&rows, &Predecessor::Nothing, 9));
        rows[2].value.record(-1.0);
        assert!(!check(&rows, &Predecessor::Nothing, 9));
        // Thresholds that begin with the first value.
        let mut rows = samples(&[(vec![], 1), (vec![(2, 2)], 1)], None);
        let mut parts = rows[1].value.clone().into_parts();
        parts.thresholds = vec![Threshold { value: 1.0, above: 2 }];
        rows[1].value = Histogram::from_recorded_parts(parts).unwrap();
        assert!(!check(&rows, &Predecessor::Nothing, 9));
    }

    proptest! {
        #[test]
        fn rollups_of_increments_are_those_of_samples(
            steps in prop::collection::vec(
                (prop::collection::vec((-20i32..20, 0u64..1 << 30), 0..4), 1i64..9),
                1..60,
            ),
            piece_rows in 1usize..20,
            start in prop::option::of(0i64..3),
            has_predecessor in any::<bool>(),
        ) {
            let mut rows = samples(&steps, start);
            let predecessor = match has_predecessor && rows.len() > 1 {
                true => Predecessor::Sample(Rows::Cumulative(vec![rows.remove(0)])),
                false => Predecessor::Nothing,
            };
            prop_assert!(check(&rows, &predecessor, piece_rows));
        }

        /// Such samples are rolled up as they are, or not at all.
        #[test]
        fn rollups_of_unusual_samples_do_not_differ(
            steps in prop::collection::vec(
                (prop::collection::vec((-20i32..20, 0u64..1 << 30), 0..4), 1i64..9),
                1..60,
            ),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..9), 1..4),
            piece_rows in 1usize..20,
            has_predecessor in any::<bool>(),
        ) {
            let mut rows = samples(&steps, None);
            for (at, change) in changes {
                let at = at.index(rows.len());
                change_sample(&mut rows, at, change);
            }
            let predecessor = match has_predecessor && rows.len() > 1 {
                true => Predecessor::Sample(Rows::Cumulative(vec![rows.remove(0)])),
                false => Predecessor::Nothing,
            };
            check(&rows, &predecessor, piece_rows);
        }
    }

    /// Changes a sample, or all from it on, in a way that counters do not grow.
    fn change_sample(rows: &mut [Row<Histogram>], at: usize, change: u8) {
        let with_sum = |value: &Histogram, sum| {
            let mut parts = value.clone().into_parts();
            (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent);
            parts.sum = sum;
            Histogram::from_recorded_parts(parts).unwrap()
        };
        let before = rows[at.saturating_sub(1)].end;
        let value = rows[at].value.clone();
        match change {
            0 => rows[at].value = with_sum(&value, exact(f64::INFINITY)),
            1 => rows[at].value = with_sum(&value, TrackedValue::Absent),
            // A sum that decreases, and one of two words.
            2 => rows[at].value = with_sum(&value, exact(-1e9)),
            3 => {
                let sum = DoubleDouble::from_parts(1e9, 1e-9);
                rows[at].value = with_sum(&value, TrackedValue::Exact(sum));
            }
            4 => rows[at].value = Histogram::new(value.scheme().clone()),
            // Since the sample before, or earlier.
            5 => rows[at].start = before,
            6 => rows[at].start = before - 1,
            7 => rows[at..].iter_mut().for_each(|row| {
                row.value.downscale(1).unwrap();
            }),
            _ => rows[at..].iter_mut().for_each(|row| {
                row.value = row.value.clone().with_zero_threshold(1e-3).unwrap();
            }),
        }
    }
}
