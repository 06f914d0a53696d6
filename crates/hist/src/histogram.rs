//! The histogram type.
//!
//! Bucket counts on a [`Scheme`]'s grid, with the values that no grid holds counted beside them (zero,
//! NaN, past the grid) and exact side values (sum, min, max, declared thresholds), so that nothing that
//! was recorded is missing from the total. Counts are `u64`; values are doubles in the unit of the user.
//! A recorded value costs a binary search here: [`crate::Recorder`] is the fast way in.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::buckets::Buckets;
use crate::error::{MergeError, SchemeError};
use crate::scheme::{BucketPosition, Exp2, Scheme};
use crate::tracked_value::{CompensatedSum, TrackedValue};

/// A distribution of recorded values.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    scheme: Scheme,
    zero_threshold: f64,
    positive: Buckets,
    negative: Buckets,
    zero: u64,
    overflow: u64,
    underflow: u64,
    nan: u64,
    /// All values but NaN: kept equal to the sum of the fields above it.
    count: u64,
    /// Meaningless while `count` is 0, as are `min` and `max`.
    sum: TrackedValue<CompensatedSum>,
    min: TrackedValue<f64>,
    max: TrackedValue<f64>,
    thresholds: Vec<Threshold>,
}

/// Declared threshold (for instance of an SLO) with the exact count of values above it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The limit, in the unit of the values.
    pub value: f64,
    /// Values strictly above it.
    pub above: u64,
}

/// Everything a histogram holds, in the open: what codecs read into and write from.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramParts {
    /// The grid.
    pub scheme: Scheme,
    /// Values within ± this count as zero.
    pub zero_threshold: f64,
    /// Buckets of values above zero (or of all values, on explicit bounds): index, count.
    pub positive: Vec<(i32, u64)>,
    /// Buckets of values below zero, by magnitude.
    pub negative: Vec<(i32, u64)>,
    /// Values that are zero.
    pub zero: u64,
    /// Values above the grid, +inf among them.
    pub overflow: u64,
    /// Values below the grid, -inf among them.
    pub underflow: u64,
    /// What was not a number.
    pub nan: u64,
    /// Sum of all values but NaN.
    pub sum: TrackedValue<CompensatedSum>,
    /// Least value.
    pub min: TrackedValue<f64>,
    /// Greatest value.
    pub max: TrackedValue<f64>,
    /// Declared thresholds, ascending.
    pub thresholds: Vec<Threshold>,
}

impl HistogramParts {
    /// No values on a grid.
    pub fn new(scheme: Scheme) -> HistogramParts {
        HistogramParts {
            scheme,
            zero_threshold: 0.0,
            positive: Vec::new(),
            negative: Vec::new(),
            zero: 0,
            overflow: 0,
            underflow: 0,
            nan: 0,
            sum: TrackedValue::Absent,
            min: TrackedValue::Absent,
            max: TrackedValue::Absent,
            thresholds: Vec::new(),
        }
    }
}

/// Invalid histogram parts.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PartsError {
    /// Indexes of one sign must ascend strictly.
    #[error("bucket index {found} follows {previous}: indexes must ascend")]
    Order {
        /// The index before.
        previous: i32,
        /// The index that does not ascend.
        found: i32,
    },
    /// No double falls into this bucket.
    #[error("bucket index {found} lies outside the grid ({scheme})")]
    OutsideGrid {
        /// The index.
        found: i32,
        /// The grid.
        scheme: Box<Scheme>,
    },
    /// The total does not fit 64 bits.
    #[error("the counts add up to more than 2^64 - 1")]
    CountOverflow,
    /// Not a magnitude.
    #[error("zero threshold {found} is not a finite number at or above zero")]
    ZeroThreshold {
        /// The threshold.
        found: f64,
    },
    /// More thresholds than a histogram may declare.
    #[error("{found} declared thresholds are more than {}", Histogram::THRESHOLDS_MAX)]
    TooManyThresholds {
        /// How many there are.
        found: usize,
    },
    /// Thresholds must be finite, ascend, and count no more values than there are, fewer the higher.
    #[error(
        "declared threshold {found} is not finite, out of order, or counts more values than there are"
    )]
    Threshold {
        /// The threshold.
        found: f64,
    },
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new(Scheme::default())
    }
}

impl Histogram {
    /// As many thresholds as one histogram may declare: each costs a comparison with every value.
    pub const THRESHOLDS_MAX: usize = 64;

    /// No values yet.
    pub fn new(scheme: Scheme) -> Histogram {
        Histogram {
            scheme,
            zero_threshold: 0.0,
            positive: Buckets::default(),
            negative: Buckets::default(),
            zero: 0,
            overflow: 0,
            underflow: 0,
            nan: 0,
            count: 0,
            sum: TrackedValue::Exact(CompensatedSum::default()),
            min: TrackedValue::Exact(f64::INFINITY),
            max: TrackedValue::Exact(f64::NEG_INFINITY),
            thresholds: Vec::new(),
        }
    }

    /// Counts values within ±`threshold` as zero. Call before recording.
    pub fn with_zero_threshold(mut self, threshold: f64) -> Result<Histogram, PartsError> {
        if !(threshold.is_finite() && threshold >= 0.0) {
            return Err(PartsError::ZeroThreshold { found: threshold });
        }
        self.raise_zero_threshold(threshold);
        Ok(self)
    }

    /// Counts exactly how many values lie above each of `values`. Call before recording.
    pub fn with_thresholds(mut self, values: &[f64]) -> Result<Histogram, PartsError> {
        assert!(self.count == 0, "thresholds are declared before the first value");
        self.thresholds = values.iter().map(|&value| Threshold { value, above: 0 }).collect();
        check_thresholds(&self.thresholds, 0)?;
        Ok(self)
    }

    /// A histogram of foreign parts. Exact side values that contradict the buckets become estimates.
    pub fn from_parts(parts: HistogramParts) -> Result<Histogram, PartsError> {
        let mut histogram = Histogram::from_recorded_parts(parts)?;
        if histogram.count > 0
            && let Some(sum) = histogram.sum.exact().map(CompensatedSum::value)
            // On its way to what is left of both signs a sum may have left the doubles.
            && !(sum.is_infinite() && histogram.has_both_signs())
            && !histogram.sum_fits_buckets(sum)
            && !histogram.sum_from_cells().contains(sum)
        {
            histogram.sum = histogram.sum.downgrade();
        }
        Ok(histogram)
    }

    fn has_both_signs(&self) -> bool {
        self.extreme_bounds(false).0 < 0.0 && self.extreme_bounds(true).1 > 0.0
    }

    /// As [`Self::from_parts`], for a caller who recorded the values: an exact sum is believed. Holding it to
    /// the buckets takes the edges of each, and most of the time.
    pub fn from_recorded_parts(parts: HistogramParts) -> Result<Histogram, PartsError> {
        if !(parts.zero_threshold.is_finite() && parts.zero_threshold >= 0.0) {
            return Err(PartsError::ZeroThreshold { found: parts.zero_threshold });
        }
        let positive = check_buckets(&parts.scheme, &parts.positive)?;
        let negative = check_buckets(&parts.scheme, &parts.negative)?;
        if let (false, Some(found)) = (parts.scheme.is_mirrored(), negative.indexes().first()) {
            let scheme = Box::new(parts.scheme);
            return Err(PartsError::OutsideGrid { found: *found, scheme });
        }
        let count = positive
            .counts()
            .iter()
            .chain(negative.counts())
            .chain([&parts.zero, &parts.overflow, &parts.underflow])
            .try_fold(0u64, |total, &n| total.checked_add(n))
            .filter(|count| count.checked_add(parts.nan).is_some())
            .ok_or(PartsError::CountOverflow)?;
        check_thresholds(&parts.thresholds, count)?;
        let mut histogram = Histogram {
            scheme: parts.scheme,
            zero_threshold: parts.zero_threshold,
            positive,
            negative,
            zero: parts.zero,
            overflow: parts.overflow,
            underflow: parts.underflow,
            nan: parts.nan,
            count,
            sum: parts.sum,
            min: parts.min,
            max: parts.max,
            thresholds: parts.thresholds,
        };
        histogram.normalize_summary();
        Ok(histogram)
    }

    /// Everything the histogram holds.
    pub fn into_parts(self) -> HistogramParts {
        let empty = self.count == 0;
        let side = |side: TrackedValue<f64>| if empty { TrackedValue::Absent } else { side };
        HistogramParts {
            zero_threshold: self.zero_threshold,
            positive: self.positive.iter().collect(),
            negative: self.negative.iter().collect(),
            zero: self.zero,
            overflow: self.overflow,
            underflow: self.underflow,
            nan: self.nan,
            sum: if empty { TrackedValue::Exact(CompensatedSum::default()) } else { self.sum },
            min: side(self.min),
            max: side(self.max),
            thresholds: self.thresholds,
            scheme: self.scheme,
        }
    }

    /// Counts one value.
    pub fn record(&mut self, value: f64) {
        self.record_n(value, 1);
    }

    /// Counts a value `n` times.
    ///
    /// Panics when the total would exceed 2^64 − 1, which at a billion values a second takes 584 years.
    #[expect(clippy::expect_used, reason = "documented: more than 2^64 - 1 recorded values")]
    pub fn record_n(&mut self, value: f64, n: u64) {
        if n == 0 {
            return;
        }
        let place = self.scheme.position(value, self.zero_threshold);
        if place == BucketPosition::Nan {
            let nan = self.nan.checked_add(n);
            self.nan = nan
                .filter(|nan| nan.checked_add(self.count).is_some())
                .expect("BUG: more than 2^64 values");
            return;
        }
        let before = self.count;
        self.count = before
            .checked_add(n)
            .filter(|count| count.checked_add(self.nan).is_some())
            .expect("BUG: more than 2^64 values");
        self.count_at(place, n);
        let sum = CompensatedSum::product(value, n);
        if before == 0 {
            (self.sum, self.min, self.max) =
                (TrackedValue::Exact(sum), TrackedValue::Exact(value), TrackedValue::Exact(value));
        } else {
            self.sum = drop_undefined_sum(
                self.sum.combine(TrackedValue::Exact(sum), CompensatedSum::plus),
            );
            self.min = tracked_lesser(
                self.min,
                TrackedValue::Exact(value),
                || f64::NEG_INFINITY,
                || value,
            );
            self.max =
                tracked_greater(self.max, TrackedValue::Exact(value), || f64::INFINITY, || value);
        }
        for threshold in &mut self.thresholds {
            threshold.above =
                threshold.above.wrapping_add(if value > threshold.value { n } else { 0 });
        }
    }

    /// `n` more at one place. The total was checked to fit.
    fn count_at(&mut self, place: BucketPosition, n: u64) {
        match place {
            BucketPosition::Positive(index) => self.positive.add(index, n),
            BucketPosition::Negative(index) => self.negative.add(index, n),
            BucketPosition::Zero => self.zero = self.zero.wrapping_add(n),
            BucketPosition::Overflow => self.overflow = self.overflow.wrapping_add(n),
            BucketPosition::Underflow => self.underflow = self.underflow.wrapping_add(n),
            BucketPosition::Nan => self.nan = self.nan.wrapping_add(n),
        }
    }

    /// Counts a value measured by a caller who waited for it, and what the wait kept them from measuring.
    ///
    /// When work is meant to start every `expected_interval` and one piece takes longer, the pieces that
    /// should have started meanwhile were not measured. Each would have waited one interval less than the
    /// one before: `value - expected_interval`, `value - 2 * expected_interval`, … down to one interval
    /// (coordinated omission; the correction is HdrHistogram's). Takes a step for each bucket between, not
    /// for each value. Refused, and nothing changed, where the total would exceed 2^64 − 1.
    pub fn record_corrected(
        &mut self,
        value: f64,
        expected_interval: f64,
    ) -> Result<(), MergeError> {
        let mut corrected = self.empty_copy();
        corrected.record(value);
        if expected_interval > 0.0 && value.is_finite() {
            // Rounded as doubles are: a wait of 1.0 every 0.1 is a wait of ten intervals.
            let intervals = (value / expected_interval).floor();
            if intervals >= u64::MAX as f64 {
                return Err(MergeError::CountOverflow);
            }
            corrected.record_descending(
                value,
                expected_interval,
                (intervals as u64).max(1).wrapping_sub(1),
            );
        }
        self.merge(&corrected)
    }

    /// Records `value - k * interval` for k from 1 to `last`, all of them above zero. They descend, so each
    /// bucket holds those of one run of k, whose end is searched for.
    fn record_descending(&mut self, value: f64, interval: f64, last: u64) {
        if last == 0 {
            return;
        }
        let missing =
            |k: u64| CompensatedSum::new(value).minus(CompensatedSum::product(interval, k)).value();
        let run_end = |from: u64, holds: &dyn Fn(f64) -> bool| {
            let (mut inside, mut step) = (from, 1);
            while inside < last
                && holds(missing(inside.wrapping_add(step.min(last.wrapping_sub(inside)))))
            {
                inside = inside.wrapping_add(step.min(last.wrapping_sub(inside)));
                step = step.saturating_mul(2);
            }
            while step > 0 {
                if step <= last.wrapping_sub(inside) && holds(missing(inside.wrapping_add(step))) {
                    inside = inside.wrapping_add(step);
                }
                step /= 2;
            }
            inside
        };
        let (mut places, mut k) = (Vec::new(), 1);
        while k <= last {
            let place = self.scheme.position(missing(k), self.zero_threshold);
            let end = run_end(k, &|v| self.scheme.position(v, self.zero_threshold) == place);
            places.push((place, end.wrapping_sub(k).wrapping_add(1)));
            k = end.wrapping_add(1);
        }
        // Ascending, so that no bucket is inserted before others.
        let mut positive = Buckets::with_capacity(places.len());
        for &(place, n) in places.iter().rev() {
            match place {
                BucketPosition::Positive(index) => positive.push(index, n),
                _ => self.count_at(place, n),
            }
        }
        self.positive.merge(&positive);
        self.count = self.count.wrapping_add(last);
        // The mean of an arithmetic series is that of its ends.
        let mean = CompensatedSum::new(value)
            .minus(CompensatedSum::product(interval * 0.5, last.wrapping_add(1)));
        self.sum = self.sum.combine(TrackedValue::Exact(mean.times(last)), CompensatedSum::plus);
        self.min = TrackedValue::Exact(missing(last));
        for threshold in &mut self.thresholds {
            if missing(1) > threshold.value {
                threshold.above =
                    threshold.above.wrapping_add(run_end(1, &|v| v > threshold.value));
            }
        }
    }

    /// Whether all values but 0 are so far from it that a sum of whole numbers is one of whole numbers: what
    /// is tiny, be it counted as zero, would be lost in a great sum without a trace.
    pub(crate) fn may_be_integers(&self) -> bool {
        let zeros_are_0 = self.zero == 0 || self.zero_end() == 0.0;
        let all = [&self.positive, &self.negative];
        zeros_are_0
            && all.iter().all(|buckets| {
                let least = buckets.indexes().first().and_then(|&index| self.scheme.span(index));
                least.is_none_or(|(lower, _)| lower >= 0.5)
            })
    }

    /// No values, declared alike.
    fn empty_copy(&self) -> Histogram {
        let thresholds = self.thresholds.iter().map(|&t| Threshold { above: 0, ..t }).collect();
        let zero_threshold = self.zero_threshold;
        Histogram { zero_threshold, thresholds, ..Histogram::new(self.scheme.clone()) }
    }

    /// Adds all values of `other`. Where the grids differ in fineness both fold to the coarser, exactly;
    /// grids that do not nest are refused and nothing is changed.
    pub fn merge(&mut self, other: &Histogram) -> Result<(), MergeError> {
        let scheme = self
            .scheme
            .common(&other.scheme)
            .ok_or_else(|| MergeError::schemes_differ(&self.scheme, &other.scheme))?;
        let count = self.count.checked_add(other.count).ok_or(MergeError::CountOverflow)?;
        let nan = self.nan.checked_add(other.nan).ok_or(MergeError::CountOverflow)?;
        count.checked_add(nan).ok_or(MergeError::CountOverflow)?;

        let mut folded = None;
        if scheme != other.scheme || self.zero_threshold != other.zero_threshold {
            folded = Some(other.clone());
        }
        self.fold_to(&scheme);
        if let Some(folded) = &mut folded {
            folded.fold_to(&scheme);
            while self.zero_threshold != folded.zero_threshold {
                let threshold = self.zero_threshold.max(folded.zero_threshold);
                self.raise_zero_threshold(threshold);
                folded.raise_zero_threshold(threshold);
            }
        }
        let other = folded.as_ref().unwrap_or(other);

        self.merge_summary(other);
        self.positive.merge(&other.positive);
        self.negative.merge(&other.negative);
        self.zero = self.zero.wrapping_add(other.zero);
        self.overflow = self.overflow.wrapping_add(other.overflow);
        self.underflow = self.underflow.wrapping_add(other.underflow);
        (self.count, self.nan) = (count, nan);
        Ok(())
    }

    fn merge_summary(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.sum, self.min, self.max) = (other.sum, other.min, other.max);
            self.thresholds.clone_from(&other.thresholds);
            return;
        }
        let settled = self.keeps_sum_exact() && other.keeps_sum_exact();
        self.sum = drop_undefined_sum(self.sum.combine(other.sum, CompensatedSum::plus));
        self.min = tracked_lesser(
            self.min,
            other.min,
            || self.extreme_bounds(false).0,
            || other.extreme_bounds(false).0,
        );
        self.max = tracked_greater(
            self.max,
            other.max,
            || self.extreme_bounds(true).1,
            || other.extreme_bounds(true).1,
        );
        if !settled && (self.min.exact().is_none() || self.max.exact().is_none()) {
            self.sum = self.sum.downgrade();
        }
        self.thresholds.retain_mut(|ours| {
            let theirs = other.thresholds.iter().find(|t| t.value == ours.value);
            if let Some(theirs) = theirs {
                ours.above = ours.above.wrapping_add(theirs.above);
            }
            theirs.is_some()
        });
    }

    /// Whether an exact sum stays so without the extremes that say how far it can be off: an open bucket says
    /// nothing of it, and its sum is believed.
    fn keeps_sum_exact(&self) -> bool {
        self.count == 0
            || self.scheme.is_mirrored()
            || self.exact_sum().is_some_and(|[lower, _, upper]| lower == upper)
    }

    /// Takes all values of `other` away, as between two readings of a cumulative histogram. Refused, and
    /// nothing changed, unless every count of `other` is contained in this histogram.
    ///
    /// Thresholds stay exact, and the sum where its 100 bits still hold what is left. The extremes stay exact
    /// only where they show that `other` did not hold them.
    pub fn subtract(&mut self, other: &Histogram) -> Result<(), MergeError> {
        let too_coarse = || MergeError::TooCoarse {
            target: Box::new(self.scheme.clone()),
            target_zero: self.zero_threshold,
            other: Box::new(other.scheme.clone()),
            other_zero: other.zero_threshold,
        };
        let common = self.scheme.common(&other.scheme).filter(|common| *common == self.scheme);
        if common.is_none() || self.zero_threshold < other.zero_threshold {
            return Err(too_coarse());
        }
        let mut theirs = other.clone();
        theirs.fold_to(&self.scheme);
        theirs.raise_zero_threshold(self.zero_threshold);
        if theirs.zero_threshold != self.zero_threshold {
            return Err(too_coarse());
        }

        let mut rest = self.clone();
        let sign = |negative: bool, at: i32| {
            let value = self.scheme.span(at).map_or(f64::NAN, |(first, _)| first);
            if negative { -value } else { value }
        };
        let not_contained =
            |value, held, subtracted| MergeError::NotContained { value, held, subtracted };
        rest.positive
            .subtract(&theirs.positive)
            .map_err(|(at, held, taken)| not_contained(sign(false, at), held, taken))?;
        rest.negative
            .subtract(&theirs.negative)
            .map_err(|(at, held, taken)| not_contained(sign(true, at), held, taken))?;
        for (ours, taken, value) in [
            (&mut rest.zero, theirs.zero, 0.0),
            (&mut rest.overflow, theirs.overflow, f64::INFINITY),
            (&mut rest.underflow, theirs.underflow, f64::NEG_INFINITY),
            (&mut rest.nan, theirs.nan, f64::NAN),
        ] {
            *ours = ours.checked_sub(taken).ok_or(not_contained(value, *ours, taken))?;
        }
        rest.count = rest.count.wrapping_sub(theirs.count);
        if theirs.count > 0 {
            // Recorded values of both signs may cancel to one double that has lost smaller ones.
            let cannot_cancel = !self.scheme.is_mirrored() || self.has_no_negatives();
            rest.sum = subtract_sum(rest.sum, theirs.sum, self.may_be_integers(), cannot_cancel);
            if !(self.keeps_sum_exact() && theirs.keeps_sum_exact()) {
                rest.sum = rest.sum.downgrade();
            }
            rest.min = match (rest.min, theirs.min) {
                (TrackedValue::Exact(ours), TrackedValue::Exact(taken)) if ours < taken => rest.min,
                _ => TrackedValue::Absent,
            };
            rest.max = match (rest.max, theirs.max) {
                (TrackedValue::Exact(ours), TrackedValue::Exact(taken)) if ours > taken => rest.max,
                _ => TrackedValue::Absent,
            };
            rest.thresholds.retain_mut(|ours| {
                let taken = theirs.thresholds.iter().find(|t| t.value == ours.value);
                let left = taken.and_then(|taken| ours.above.checked_sub(taken.above));
                ours.above = left.unwrap_or(0);
                left.is_some()
            });
        }
        // Of readings that did not grow one from the other, a threshold may count more values than are left,
        // and an extreme may lie where none is.
        let mut most = rest.count;
        rest.thresholds.retain(|threshold| {
            let fits = threshold.above <= most;
            most = most.min(threshold.above);
            fits
        });
        if rest.count == 0 {
            rest = Histogram { nan: rest.nan, ..rest.empty_copy() };
        }
        rest.normalize_summary();
        *self = rest;
        Ok(())
    }

    /// Folds a base-2 exponential histogram to a coarser `scale`, exactly.
    pub fn downscale(&mut self, scale: i32) -> Result<(), SchemeError> {
        let target = Exp2::new(scale)?;
        match &self.scheme {
            Scheme::Exp2(grid) if grid.scale() >= target.scale() => {
                self.fold_to(&Scheme::Exp2(target));
                Ok(())
            }
            scheme => {
                Err(SchemeError::NotCoarser { found: scale, scheme: Box::new(scheme.clone()) })
            }
        }
    }

    /// Folds to a scheme that [`Scheme::common`] gave for this one.
    fn fold_to(&mut self, coarser: &Scheme) {
        if self.scheme == *coarser {
            return;
        }
        self.positive = self.positive.map_indexes(|index| self.scheme.fold(index, coarser));
        self.negative = self.negative.map_indexes(|index| self.scheme.fold(index, coarser));
        self.scheme = coarser.clone();
        if self.zero_threshold == 0.0 && coarser.has_bucket_at_zero() {
            // As if it had been recorded there.
            self.positive.add(0, std::mem::take(&mut self.zero));
        }
    }

    /// Moves every bucket that reaches into ±`threshold` to zero, whole: the threshold rises to the upper
    /// end of a bucket that it would cut.
    fn raise_zero_threshold(&mut self, threshold: f64) {
        if threshold <= self.zero_threshold || !self.scheme.is_mirrored() {
            self.zero_threshold = self.zero_threshold.max(threshold);
            return;
        }
        self.zero_threshold = threshold;
        loop {
            let reached = self.zero_threshold;
            for buckets in [&mut self.positive, &mut self.negative] {
                // By the end of the bucket beneath: logarithmic buckets overlap, and each would draw the
                // next one in.
                let beneath = |index: i32| index.checked_sub(1).and_then(|i| self.scheme.span(i));
                let inside = |index: i32| {
                    let span = self.scheme.span(index)?;
                    let is_inside = beneath(index)
                        .map_or(span.0 <= reached, |(_, end_beneath)| end_beneath < reached);
                    is_inside.then_some(span)
                };
                let end = buckets.indexes().partition_point(|&index| inside(index).is_some());
                let last = end.checked_sub(1).and_then(|at| buckets.indexes().get(at));
                let Some((last, (_, upper))) = last.and_then(|&last| Some((last, inside(last)?)))
                else {
                    continue;
                };
                self.zero_threshold = self.zero_threshold.max(upper);
                self.zero = self.zero.wrapping_add(buckets.drain_below(last.wrapping_add(1)));
            }
            if self.zero_threshold == reached {
                return;
            }
        }
    }

    /// Exact side values that cannot be true become estimates; NaN becomes absent.
    fn normalize_summary(&mut self) {
        if self.count == 0 {
            self.sum = TrackedValue::Exact(CompensatedSum::default());
            (self.min, self.max) =
                (TrackedValue::Exact(f64::INFINITY), TrackedValue::Exact(f64::NEG_INFINITY));
            return;
        }
        let known = |side: TrackedValue<f64>| {
            if side.value().is_some_and(f64::is_nan) { TrackedValue::Absent } else { side }
        };
        (self.min, self.max) = (known(self.min), known(self.max));
        let within = |side: TrackedValue<f64>, (lower, upper): (f64, f64)| match side {
            TrackedValue::Exact(value) if value < lower || value > upper => side.downgrade(),
            _ => side,
        };
        self.min = within(self.min, self.extreme_bounds(false));
        self.max = within(self.max, self.extreme_bounds(true));
        if let (Some(min), Some(max)) = (self.min.exact(), self.max.exact())
            && min > max
        {
            (self.min, self.max) = (self.min.downgrade(), self.max.downgrade());
        }
        self.sum = drop_undefined_sum(self.sum);
    }

    /// The grid.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Buckets of values above zero; of all values, on explicit bounds.
    pub fn positive(&self) -> &Buckets {
        &self.positive
    }

    /// Buckets of values below zero, by magnitude.
    pub fn negative(&self) -> &Buckets {
        &self.negative
    }

    /// Values within ± this are counted as zero.
    pub fn zero_threshold(&self) -> f64 {
        self.zero_threshold
    }

    /// How many values were zero.
    pub fn zero_count(&self) -> u64 {
        self.zero
    }

    /// How many values lay above the grid, +inf among them.
    pub fn overflow(&self) -> u64 {
        self.overflow
    }

    /// How many values lay below the grid, -inf among them.
    pub fn underflow(&self) -> u64 {
        self.underflow
    }

    /// How many recorded values were not a number. They are in no other count.
    pub fn nan_count(&self) -> u64 {
        self.nan
    }

    /// How many values were recorded, NaN left out.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing but NaN was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether no value is surely below zero, on a grid that tells.
    pub(crate) fn has_no_negatives(&self) -> bool {
        self.negative.is_empty() && self.underflow == 0
    }

    /// The sum as it is kept beside the buckets.
    pub fn tracked_sum(&self) -> TrackedValue<CompensatedSum> {
        self.sum
    }

    /// The least value as it is kept beside the buckets; absent when empty.
    pub fn tracked_min(&self) -> TrackedValue<f64> {
        if self.count == 0 { TrackedValue::Absent } else { self.min }
    }

    /// The greatest value as it is kept beside the buckets; absent when empty.
    pub fn tracked_max(&self) -> TrackedValue<f64> {
        if self.count == 0 { TrackedValue::Absent } else { self.max }
    }

    /// Declared thresholds with their exact counts, ascending.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }
}

/// The lesser of two minima. If one is not exact, the other still holds where it is at or below the `floor`
/// of all values on the other side.
fn tracked_lesser(
    a: TrackedValue<f64>,
    b: TrackedValue<f64>,
    floor_a: impl Fn() -> f64,
    floor_b: impl Fn() -> f64,
) -> TrackedValue<f64> {
    match (a.exact(), b.exact()) {
        (Some(a), Some(b)) => TrackedValue::Exact(a.min(b)),
        (Some(least), None) if least <= floor_b() => a,
        (None, Some(least)) if least <= floor_a() => b,
        _ => a.combine(b, f64::min),
    }
}

/// The greater of two maxima, as [`lesser`].
fn tracked_greater(
    a: TrackedValue<f64>,
    b: TrackedValue<f64>,
    ceiling_a: impl Fn() -> f64,
    ceiling_b: impl Fn() -> f64,
) -> TrackedValue<f64> {
    match (a.exact(), b.exact()) {
        (Some(a), Some(b)) => TrackedValue::Exact(a.max(b)),
        (Some(greatest), None) if greatest >= ceiling_b() => a,
        (None, Some(greatest)) if greatest >= ceiling_a() => b,
        _ => a.combine(b, f64::max),
    }
}

/// A sum of infinities of both signs is none.
fn drop_undefined_sum(sum: TrackedValue<CompensatedSum>) -> TrackedValue<CompensatedSum> {
    if sum.value().is_some_and(|sum| sum.value().is_nan()) { TrackedValue::Absent } else { sum }
}

/// What is left of a sum: exact while whole numbers are, or while both are one double each, as
/// senders report them; else while it is large enough that the last bits of the whole (2^-103 of
/// it, for each addition) do not reach its own.
fn subtract_sum(
    whole: TrackedValue<CompensatedSum>,
    taken: TrackedValue<CompensatedSum>,
    may_be_whole: bool,
    cannot_cancel: bool,
) -> TrackedValue<CompensatedSum> {
    let rest = whole.combine(taken, CompensatedSum::minus);
    let (Some(before), Some(after)) = (whole.value(), rest.value()) else { return rest };
    let (before_value, after_value) = (before.value().abs(), after.value().abs());
    if !before_value.is_finite() || !after_value.is_finite() {
        return TrackedValue::Absent;
    }
    let whole_numbers =
        may_be_whole && before_value < 2f64.powi(90) && before.is_integer() && after.is_integer();
    // The difference of two doubles is one in two words, to the last bit.
    let is_double =
        |side: TrackedValue<CompensatedSum>| side.value().is_some_and(|sum| sum.parts().1 == 0.0);
    let doubles = cannot_cancel && is_double(whole) && is_double(taken);
    if whole_numbers || doubles || after_value >= before_value * 2f64.powi(-30) {
        rest
    } else {
        rest.downgrade()
    }
}

fn check_buckets(scheme: &Scheme, pairs: &[(i32, u64)]) -> Result<Buckets, PartsError> {
    let mut buckets = Buckets::with_capacity(pairs.len());
    let mut previous: Option<i32> = None;
    for &(index, count) in pairs {
        if let Some(previous) = previous.filter(|&previous| previous >= index) {
            return Err(PartsError::Order { previous, found: index });
        }
        buckets.push(index, count);
        previous = Some(index);
    }
    // A grid has no holes: what lies between two of its buckets is in it.
    for &found in buckets.indexes().first().into_iter().chain(buckets.indexes().last()) {
        if scheme.edges(found).is_none() {
            return Err(PartsError::OutsideGrid { found, scheme: Box::new(scheme.clone()) });
        }
    }
    Ok(buckets)
}

pub(crate) fn check_thresholds(thresholds: &[Threshold], count: u64) -> Result<(), PartsError> {
    if thresholds.len() > Histogram::THRESHOLDS_MAX {
        return Err(PartsError::TooManyThresholds { found: thresholds.len() });
    }
    let mut previous = Threshold { value: f64::NEG_INFINITY, above: count };
    for &threshold in thresholds {
        if !(threshold.value.is_finite()
            && threshold.value > previous.value
            && threshold.above <= previous.above)
        {
            return Err(PartsError::Threshold { found: threshold.value });
        }
        previous = threshold;
    }
    Ok(())
}
