//! Columns of classic histograms: distributions of the increases of their buckets.
//!
//! A column whose buckets are not all of the same scrapes is cut at the times where they differ.
//! What agrees counts on the bounds that it has. The values of a scrape of which only some buckets
//! are known are left out, and a gap tells how many; so are those that cannot be cut, because the
//! rows of the parts were dropped.
//!
//! Memory: [`CELLS_AT_ONCE`] increases, and the distributions of as many columns.

use std::collections::BTreeSet;
use std::ops::Range;

use hist::{Histogram, HistogramParts, Mixture, Scheme, TrackedValue};
use model::{Gap, HISTOGRAM_COUNT_MAX};
use store::{ColumnFetch, ReadView, SelectedSeries, SeriesEntryRef, TimeColumn, TimeGrid};

use super::bucket_counters::BucketCounters;
use super::bucket_increases::{
    Increase, ScrapeAgreement, are_cumulative, are_of_same_scrapes, round_count,
};
use super::is_counter;
use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};

/// Increases read at a time: counters of a histogram times columns, 6 MB.
const CELLS_AT_ONCE: usize = 1 << 16;
/// Maximum number of columns read at a time.
const COLUMNS_AT_ONCE: usize = 1024;
/// Maximum number of cuts of a column of a histogram. Bounds that change need two; if the change is
/// taken back within a day, the times are found by 12 cuts to a scrape of 15 s.
const CUTS_MAX: u32 = 64;

/// Reason of a gap.
const TOO_MANY_VALUES: &str = "the counters of its buckets rose by more than 2^56";

/// How columns are read.
#[derive(Clone, Copy)]
pub(super) struct BucketRead<'a> {
    pub(super) grid: TimeGrid,
    /// Maximum number of cuts.
    pub(super) cuts_max: u32,
    pub(super) context: &'a dyn QueryContext,
}

/// Columns of series of one name, of which at least one is a bucket.
pub(super) struct BucketColumns<'a> {
    view: &'a ReadView,
    name: String,
    classic: Vec<BucketCounters>,
    /// All counters.
    counters: Vec<SelectedSeries>,
    /// Series that are only histograms.
    histograms: Vec<SeriesEntryRef>,
    grid: TimeGrid,
    columns_at_once: u64,
    cuts_left: u32,
    context: &'a dyn QueryContext,
}

impl<'a> BucketColumns<'a> {
    pub(super) fn new(
        view: &'a ReadView,
        series: &[SeriesEntryRef],
        BucketRead { grid, cuts_max, context }: BucketRead<'a>,
    ) -> Result<BucketColumns<'a>> {
        let name = series.first().map_or("", |first| first.series.name()).to_owned();
        let classic = BucketCounters::group(view, series)?;
        let counters: Vec<Vec<SelectedSeries>> =
            classic.iter().map(BucketCounters::series).collect();
        let most = counters.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let columns_at_once = (CELLS_AT_ONCE / most).clamp(1, COLUMNS_AT_ONCE) as u64;
        let both = classic.iter().filter_map(|of| of.histogram.as_ref());
        let both: BTreeSet<u32> = both.map(|found| found.as_ref().position()).collect();
        let is_other = |found: &&SeriesEntryRef| {
            !is_counter(found) && !both.contains(&found.as_ref().position())
        };
        let histograms = series.iter().filter(is_other);
        Ok(BucketColumns {
            view,
            name,
            histograms: histograms.cloned().collect(),
            counters: counters.into_iter().flatten().collect(),
            classic,
            grid,
            columns_at_once,
            cuts_left: cuts_max,
            context,
        })
    }
}

impl ColumnFetch for BucketColumns<'_> {
    type Value = Mixture;
    type Error = Error;

    fn column_count(&self) -> u64 {
        self.grid.columns
    }

    fn fetch(&mut self, first: u64) -> Result<Vec<TimeColumn<Mixture>>> {
        let columns = self.columns_at_once.min(self.grid.columns - first);
        let start = self.grid.column(first).start;
        let grid = TimeGrid { start, columns, ..self.grid };
        let mut all: Vec<TimeColumn<Mixture>> =
            self.view.histograms(&self.histograms, grid)?.collect::<store::Result<_>>()?;
        let ranges: Vec<Range<i64>> = all.iter().map(|column| column.start..column.end).collect();
        let mut gaps = self.view.gaps_of(&self.counters, &grid.range());
        // A read of many counters looks up the parts of the store once.
        let counters_max = CELLS_AT_ONCE / ranges.len().max(1);
        let mut rest = &mut self.classic[..];
        while !rest.is_empty() {
            let mut counters = 0;
            let fits = |classic: &&BucketCounters| {
                let is_first = counters == 0;
                counters += classic.counter_count();
                is_first || counters <= counters_max
            };
            let at_once = rest.iter().take_while(fits).count();
            let (some, others) = std::mem::take(&mut rest).split_at_mut(at_once);
            rest = others;
            let counters: Vec<SelectedSeries> =
                some.iter().flat_map(BucketCounters::series).collect();
            let mut increases = self.view.increases(&counters, &ranges, &mut gaps)?.into_iter();
            for classic in some {
                if self.context.is_cancelled() {
                    return Err(Error::Timeout);
                }
                let increases: Vec<_> = increases.by_ref().take(classic.counter_count()).collect();
                let histogram = classic.histogram.as_ref().map(std::slice::from_ref);
                let both = histogram.map(|of| self.view.histograms(of, grid)).transpose()?;
                let mut both = both.into_iter().flatten();
                for (at, column) in all.iter_mut().enumerate() {
                    let (range, sum) = (ranges[at].clone(), classic.sum(&increases, at));
                    let increases = classic.by_bound(&increases, at);
                    let histogram = both.next().transpose()?.map(|both| {
                        column.gaps.extend(both.gaps);
                        both.value
                    });
                    let (view, name) = (self.view, &self.name[..]);
                    let (cuts_left, context) = (&mut self.cuts_left, self.context);
                    SourceRead { view, name, classic, column, cuts_left, context }
                        .add(ColumnPiece { range, increases, sum, histogram })?;
                }
            }
        }
        for column in &mut all {
            let range = column.start..column.end;
            column.gaps.extend(gaps.iter().filter(|gap| overlaps(gap, &range)).cloned());
            column.gaps.sort_unstable();
            column.gaps.dedup();
        }
        Ok(all)
    }
}

/// Whether a gap concerns a column; one of no length concerns its nanosecond.
fn overlaps(gap: &Gap, column: &Range<i64>) -> bool {
    gap.start < column.end && column.start < gap.end.max(gap.start.saturating_add(1))
}

/// Adds the values of a histogram to a column.
struct SourceRead<'a> {
    view: &'a ReadView,
    name: &'a str,
    classic: &'a mut BucketCounters,
    column: &'a mut TimeColumn<Mixture>,
    /// Cuts that the read has left.
    cuts_left: &'a mut u32,
    context: &'a dyn QueryContext,
}

/// Values of a column that are left out.
#[derive(Default)]
struct OmittedValues {
    range: Option<Range<i64>>,
    values: u64,
}

/// Piece of a column of one series.
struct ColumnPiece {
    range: Range<i64>,
    /// Increases by bound.
    increases: Vec<Option<Increase>>,
    /// Increase of the sum of the values.
    sum: Option<Increase>,
    /// Values of the histogram of a series that is both.
    histogram: Option<Mixture>,
}

impl SourceRead<'_> {
    /// Adds the values of a column; it is cut into pieces that can be read.
    fn add(&mut self, column: ColumnPiece) -> Result<()> {
        let (mut omitted, mut contradictory) = (OmittedValues::default(), OmittedValues::default());
        let mut uncut = OmittedValues::default();
        // The earliest piece is the last one.
        let mut pieces = vec![column];
        let mut cuts = 0;
        while let Some(piece) = pieces.pop() {
            let ColumnPiece { range, increases, sum, histogram } = &piece;
            if let Some(time) = self.classic.histogram_edge(range) {
                let halves = self.cut(range, time)?;
                omitted.add_dropped(&piece, &halves);
                pieces.extend(halves);
                continue;
            }
            if let Some(histogram) = histogram.as_ref().filter(|_| self.classic.is_both(range)) {
                self.add_histogram(range, increases, histogram)?;
                continue;
            }
            let agreement = ScrapeAgreement::of(range, increases);
            let is_complete = agreement == ScrapeAgreement::Same && self.is_complete(increases)?;
            match agreement {
                ScrapeAgreement::Empty => {}
                ScrapeAgreement::Same if is_complete && !are_cumulative(increases) => {
                    contradictory.add(range, count_values(increases));
                }
                ScrapeAgreement::Same if is_complete => self.add_values(range, increases, *sum)?,
                ScrapeAgreement::Cut(time) if cuts < CUTS_MAX && *self.cuts_left > 0 => {
                    cuts += 1;
                    *self.cuts_left -= 1;
                    let halves = self.cut(range, time)?;
                    omitted.add_dropped(&piece, &halves);
                    pieces.extend(halves);
                }
                _ if self.is_known_empty(increases) => {}
                ScrapeAgreement::Cut(_) if cuts < CUTS_MAX => {
                    uncut.add(range, count_values(increases));
                }
                _ => omitted.add(range, count_values(increases)),
            }
        }
        self.add_gap_of(omitted, "some of its buckets have no sample of the same scrapes");
        let why = "some of its buckets rose by more than higher ones, as after a restart that not \
                   all of them show";
        self.add_gap_of(contradictory, why);
        let why = "its buckets differ in their scrapes so often that to read them takes too long \
                   here; a heatmap or query reads them";
        self.add_gap_of(uncut, why);
        Ok(())
    }

    fn add_gap_of(&mut self, OmittedValues { range, values }: OmittedValues, why: &str) {
        if let Some(range) = range {
            let reason = format!("{values} values of {} are left out: {why}", self.name);
            self.add_gap(range, reason);
        }
    }

    /// The pieces before and after a time, the later one first. Their gaps are those of the column:
    /// it may have been read from rollups, and the rows of a piece were dropped.
    fn cut(&mut self, range: &Range<i64>, time: i64) -> Result<[ColumnPiece; 2]> {
        if self.context.is_cancelled() {
            return Err(Error::Timeout);
        }
        let halves = [range.start..time, time..range.end];
        let counters = self.classic.series();
        let gaps = &mut self.column.gaps;
        let increases = self.view.increases(&counters, &halves, gaps)?;
        let mut histograms = [None, None];
        if let Some(histogram) = &self.classic.histogram {
            for (half, value) in halves.iter().zip(&mut histograms) {
                let step = half.end.saturating_sub(half.start);
                let grid = TimeGrid { start: half.start, step, columns: 1 };
                let mut columns = self.view.histograms(std::slice::from_ref(histogram), grid)?;
                *value = columns.next().transpose()?.map(|column| {
                    gaps.extend(column.gaps);
                    column.value
                });
            }
        }
        let [earlier, later] = halves;
        let [before, after] = histograms;
        let piece = |half, range, histogram| {
            let sum = self.classic.sum(&increases, half);
            let increases = self.classic.by_bound(&increases, half);
            ColumnPiece { range, increases, sum, histogram }
        };
        Ok([piece(1, later, after), piece(0, earlier, before)])
    }

    /// Adds the histogram of a series that is both. A gap tells if the buckets have more values, as
    /// where the sender had stopped sending histograms.
    fn add_histogram(
        &mut self,
        range: &Range<i64>,
        increases: &[Option<Increase>],
        histogram: &Mixture,
    ) -> Result<()> {
        for part in histogram.components() {
            self.column.value.add(part).map_err(|error| invalid(&error))?;
        }
        let (name, in_histogram, in_buckets) =
            (self.name, histogram.count(), count_values(increases));
        if in_buckets > in_histogram {
            let reason = format!(
                "{name} is read as histogram, which has {in_histogram} values here, and not as \
                 counters {name}_bucket, which have {in_buckets}"
            );
            self.add_gap(range.clone(), reason);
        }
        Ok(())
    }

    /// Whether increases that agree are of whole scrapes. A single scrape with only some of the
    /// buckets of the one before it has not arrived completely, or is the first one after a change
    /// of bounds.
    fn is_complete(&mut self, increases: &[Option<Increase>]) -> Result<bool> {
        let active = active_bounds(increases);
        let is_single = increases.iter().flatten().all(|of| of.value.count <= 1);
        let mut before = std::mem::replace(&mut self.classic.last_active, active.clone());
        if before.is_empty() && is_single && active.len() < increases.len() {
            before = self.active_before(increases)?;
        }
        let has_fewer = active.len() < before.len() && active.iter().all(|at| before.contains(at));
        Ok(!(is_single && has_fewer))
    }

    /// Bounds of the buckets of the scrape before some increases.
    fn active_before(&self, increases: &[Option<Increase>]) -> Result<Vec<usize>> {
        let Some(start) = increases.iter().flatten().map(|of| of.start).max() else {
            return Ok(Vec::new());
        };
        // A sample belongs to the nanosecond before it.
        let column = start.saturating_sub(1)..start;
        let (counters, columns) = (self.classic.series(), std::slice::from_ref(&column));
        let before = self.view.increases(&counters, columns, &mut Vec::new())?;
        Ok(active_bounds(&self.classic.by_bound(&before, 0)))
    }

    /// Whether the number of all values did not rise.
    fn is_known_empty(&self, increases: &[Option<Increase>]) -> bool {
        let total = increases.last().filter(|_| self.classic.has_total());
        total.and_then(Option::as_ref).is_some_and(|total| round_count(total) == 0)
    }

    /// Adds increases between the same scrapes that are cumulative. The sum is that of the values
    /// if it is between these scrapes, too.
    fn add_values(
        &mut self,
        range: &Range<i64>,
        increases: &[Option<Increase>],
        sum: Option<Increase>,
    ) -> Result<()> {
        let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0_u64);
        let mut is_skewed = false;
        let known = self.classic.bounds.iter().zip(increases);
        for (bound, increase) in known.filter_map(|(bound, of)| Some((*bound, of.as_ref()?))) {
            // See `are_cumulative`: a few values less are none.
            is_skewed |= round_count(increase) < below;
            let up_to = round_count(increase).max(below);
            counts.push(up_to - below);
            below = up_to;
            bounds.push(bound);
        }
        let has_total = bounds.pop_if(|bound| bound.is_infinite()).is_some();
        let name = self.name;
        let Some(highest) = bounds.last().filter(|_| below <= HISTOGRAM_COUNT_MAX) else {
            let reason = match bounds.is_empty() {
                true => format!("{below} values of {name} are left out: they have no finite bound"),
                false => TOO_MANY_VALUES.to_owned(),
            };
            if below > 0 {
                self.add_gap(range.clone(), reason);
            }
            return Ok(());
        };
        if !has_total {
            let reason = format!(
                "values of {name} above {highest} are not counted: it has no bucket +Inf and no \
                 {name}_count"
            );
            self.add_gap(range.clone(), reason);
        }
        let scheme = Scheme::explicit(&bounds).map_err(|error| invalid(&error))?;
        let parts = HistogramParts {
            positive: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
            sum: match sum.filter(|sum| has_total && are_of_same_scrapes(increases, sum)) {
                // The program counted while it was read: the sum has other values than the buckets.
                Some(sum) if is_skewed => TrackedValue::Estimated(sum.value.sum),
                Some(sum) => TrackedValue::Exact(sum.value.sum),
                None => TrackedValue::Absent,
            },
            ..HistogramParts::new(scheme)
        };
        let values = Histogram::from_parts(parts).map_err(|error| invalid(&error))?;
        self.column.value.add(&values).map_err(|error| invalid(&error))
    }

    fn add_gap(&mut self, Range { start, end }: Range<i64>, reason: String) {
        self.column.gaps.push(Gap { start, end, producer: None, lost: None, reason });
    }
}

impl OmittedValues {
    fn add(&mut self, range: &Range<i64>, values: u64) {
        self.values = self.values.saturating_add(values);
        self.range = Some(match self.range.take() {
            Some(all) => all.start.min(range.start)..all.end.max(range.end),
            None => range.clone(),
        });
    }

    /// Adds what the halves of a piece do not have because finer rows were dropped.
    fn add_dropped(&mut self, piece: &ColumnPiece, halves: &[ColumnPiece; 2]) {
        let values = dropped_values(piece, halves);
        if values > 0 {
            self.add(&piece.range, values);
        }
    }
}

/// Values of a piece whose halves have no increase, because finer rows were dropped: those that
/// the histogram of the halves does not have.
fn dropped_values(piece: &ColumnPiece, halves: &[ColumnPiece; 2]) -> u64 {
    if halves.iter().any(|half| half.increases.iter().any(Option::is_some)) {
        return 0;
    }
    let histograms = halves.iter().filter_map(|half| half.histogram.as_ref());
    let in_histograms: u64 = histograms.map(Mixture::count).sum();
    count_values(&piece.increases).saturating_sub(in_histograms)
}

/// Positions of the bounds that have an increase.
fn active_bounds(increases: &[Option<Increase>]) -> Vec<usize> {
    let active = |(at, of): (usize, &Option<Increase>)| of.as_ref().map(|_| at);
    increases.iter().enumerate().filter_map(active).collect()
}

/// Values of the bucket that has most of them: all, if the bucket `+Inf` is known.
fn count_values(increases: &[Option<Increase>]) -> u64 {
    increases.iter().flatten().map(round_count).max().unwrap_or(0)
}

fn invalid(error: &dyn std::fmt::Display) -> Error {
    let message = format!("cannot merge buckets: {error}; use a shorter range or fewer series");
    Error::Execution { span: SourceSpan::default(), message }
}
