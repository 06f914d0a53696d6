//! Counts of the buckets of a histogram, computed for many buckets at a time: a fine histogram has
//! hundreds, and each of them as a series of its own would read and add up all others again.
//!
//! Samples of at most a day are kept until the counts are known, so they are decoded once. Longer
//! ranges are decoded once to find the bounds, and once for each group of buckets: a group has at
//! most [`GROUP_COUNTS_MAX`] counts. Series are read in the order of their labels, as are groups;
//! the last [`GROUPS_KEPT`] are kept, because threads read neighbouring series.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::TimeGrid;

use crate::classic_part::counts_up_to;
use crate::error::Result;
use crate::histogram::FloatHistogram;
use crate::source::SourceRead;
use crate::stream::SeriesPoint;
use crate::value::{StepValue, is_stale};

/// Maximum number of counts of a group: 16 MiB.
const GROUP_COUNTS_MAX: usize = 1 << 21;
/// Groups that are kept.
const GROUPS_KEPT: usize = 2;
/// Reads of increases that are kept: a range has one for 1024 columns.
const GRIDS_KEPT: usize = 16;
/// A count that a histogram does not determine. No count is a NaN with these bits.
const UNKNOWN_BITS: u64 = 0x7ff8_0000_746f_7064;

/// Reads the samples of a histogram in a range, in slices by time.
pub(super) type ReadSlices<'a> =
    dyn FnMut(&mut dyn FnMut(SourceRead<SeriesPoint>)) -> Result<()> + 'a;

/// Counts of the buckets of a histogram.
pub(super) struct BucketTables {
    /// In the order of the labels of their series.
    bounds: Vec<f64>,
    range: Range<i64>,
    /// Buckets of a group.
    group_size: usize,
    /// Samples of the range that were read already.
    kept: Mutex<Option<SourceRead<SeriesPoint>>>,
    groups: Mutex<Vec<(usize, Arc<SampleCounts>)>>,
    increases: Mutex<Vec<(TimeGrid, Arc<IncreaseCounts>)>>,
}

/// Counts of a group of buckets at the times of samples.
struct SampleCounts {
    /// Start and end.
    times: Vec<(Option<i64>, i64)>,
    counts: BucketCountTable,
    gaps: Vec<model::Gap>,
}

/// Counts of all buckets in columns.
struct IncreaseCounts {
    counts: BucketCountTable,
    gaps: Vec<model::Gap>,
}

/// Counts by time and bound.
struct BucketCountTable {
    /// Positions of the bounds in ascending order.
    order: Vec<usize>,
    ascending: Vec<f64>,
    counts: Vec<f64>,
}

impl BucketCountTable {
    fn new(bounds: &[f64]) -> BucketCountTable {
        let mut order: Vec<usize> = (0..bounds.len()).collect();
        model::sort::by(&mut order, |a, b| bounds[*a].total_cmp(&bounds[*b]));
        let ascending = order.iter().map(|at| bounds[*at]).collect();
        BucketCountTable { order, ascending, counts: Vec::new() }
    }

    fn push(&mut self, value: &StepValue) {
        match value.histogram() {
            Some(histogram) if !is_stale(histogram.sum) => self.push_histogram(&histogram),
            // A staleness marker is one of each bucket.
            Some(histogram) => self.push_number(Some(histogram.sum)),
            None => self.push_number(value.number()),
        }
    }

    fn push_histogram(&mut self, histogram: &FloatHistogram) {
        let first = self.counts.len();
        self.push_number(None);
        let counts = counts_up_to(histogram, &self.ascending);
        for (at, count) in self.order.iter().zip(counts) {
            self.counts[first + at] = count.unwrap_or(f64::from_bits(UNKNOWN_BITS));
        }
    }

    fn push_number(&mut self, number: Option<f64>) {
        let number = number.unwrap_or(f64::from_bits(UNKNOWN_BITS));
        self.counts.extend(std::iter::repeat_n(number, self.order.len()));
    }

    fn get(&self, time: usize, bound: usize) -> Option<f64> {
        let count = self.counts[time * self.order.len() + bound];
        (count.to_bits() != UNKNOWN_BITS).then_some(count)
    }
}

/// Memory of a read, as samples that are charged.
pub(super) type ReserveSamples<'a> = dyn Fn(u64) -> Result<()> + 'a;

impl BucketTables {
    /// Tables of the buckets with some bounds, in the order of the labels of their series. `count`
    /// is the number of samples in the range.
    pub(super) fn new(
        bounds: Vec<f64>,
        (range, count): (Range<i64>, usize),
        kept: Option<SourceRead<SeriesPoint>>,
    ) -> BucketTables {
        let group_size = (GROUP_COUNTS_MAX / count.max(1)).clamp(1, bounds.len().max(1));
        let (groups, increases) = Default::default();
        BucketTables { bounds, range, group_size, kept: Mutex::new(kept), groups, increases }
    }

    /// Range of the samples.
    pub(super) fn range(&self) -> &Range<i64> {
        &self.range
    }

    /// Samples of a bucket in a range; `None` if they are not in the tables.
    pub(super) fn samples(
        &self,
        bound: f64,
        range: &Range<i64>,
        read: &mut ReadSlices<'_>,
        reserve: &ReserveSamples<'_>,
    ) -> Result<Option<SourceRead<SeriesPoint>>> {
        let is_inside = self.range.start <= range.start && range.end <= self.range.end;
        let at = self.bounds.iter().position(|of| *of == bound);
        let Some(at) = at.filter(|_| is_inside) else { return Ok(None) };
        let group = self.group(at / self.group_size, read, reserve)?;
        let from = group.times.partition_point(|time| time.1 <= range.start);
        let to = group.times.partition_point(|time| time.1 <= range.end).max(from);
        let point = |time: usize| {
            let value = StepValue::Number(group.counts.get(time, at % self.group_size)?);
            let (start, end) = group.times[time];
            Some(SeriesPoint { start, time: end, value })
        };
        let values = (from..to).filter_map(point).collect();
        Ok(Some(SourceRead { values, gaps: group.gaps.clone() }))
    }

    /// Counts of a group of buckets. Others that need it wait.
    fn group(
        &self,
        group: usize,
        read: &mut ReadSlices<'_>,
        reserve: &ReserveSamples<'_>,
    ) -> Result<Arc<SampleCounts>> {
        let mut groups = lock(&self.groups);
        if let Some((_, found)) = groups.iter().find(|known| known.0 == group) {
            return Ok(Arc::clone(found));
        }
        let first = group * self.group_size;
        let bounds = &self.bounds[first..self.bounds.len().min(first + self.group_size)];
        let (times, gaps) = (Vec::new(), Vec::new());
        let mut counts = SampleCounts { times, gaps, counts: BucketCountTable::new(bounds) };
        let mut add = |samples: &SourceRead<SeriesPoint>| {
            for point in &samples.values {
                counts.times.push((point.start, point.time));
                counts.counts.push(&point.value);
            }
            counts.gaps.extend(samples.gaps.iter().cloned());
        };
        let mut kept = lock(&self.kept);
        match &*kept {
            Some(samples) => add(samples),
            None => read(&mut |samples| add(&samples))?,
        }
        // A table that replaces another one, or the samples, needs no more memory.
        match groups.len() < GROUPS_KEPT {
            true => reserve(counts.counts.counts.len() as u64 / 2 + counts.times.len() as u64)?,
            false => drop(groups.remove(0)),
        }
        if self.group_size == self.bounds.len() {
            *kept = None;
        }
        let counts = Arc::new(counts);
        groups.push((group, Arc::clone(&counts)));
        Ok(counts)
    }

    /// Increases of a bucket in columns; `read` reads those of the histogram.
    pub(super) fn increases(
        &self,
        bound: f64,
        grid: TimeGrid,
        read: &dyn Fn() -> Result<SourceRead<Option<FloatHistogram>>>,
        reserve: &ReserveSamples<'_>,
    ) -> Result<Option<SourceRead<Option<f64>>>> {
        let Some(at) = self.bounds.iter().position(|of| *of == bound) else { return Ok(None) };
        let mut increases = lock(&self.increases);
        let known = increases.iter().find(|known| known.0 == grid);
        let columns = match known.map(|(_, columns)| Arc::clone(columns)) {
            Some(columns) => columns,
            None => {
                let SourceRead { values, gaps } = read()?;
                let mut counts = BucketCountTable::new(&self.bounds);
                values.iter().for_each(|column| match column {
                    Some(histogram) => counts.push_histogram(histogram),
                    None => counts.push_number(None),
                });
                match increases.len() < GRIDS_KEPT {
                    true => reserve(counts.counts.len() as u64 / 2)?,
                    false => drop(increases.remove(0)),
                }
                let columns = Arc::new(IncreaseCounts { counts, gaps });
                increases.push((grid, Arc::clone(&columns)));
                columns
            }
        };
        drop(increases);
        let values = (0..grid.columns as usize).map(|time| columns.counts.get(time, at)).collect();
        Ok(Some(SourceRead { values, gaps: columns.gaps.clone() }))
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
