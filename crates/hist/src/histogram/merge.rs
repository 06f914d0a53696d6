//! Merge and subtraction of histograms, and downscaling to a common grid.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Histogram, Threshold, drop_undefined_sum};
use crate::error::{MergeError, SchemeError};
use crate::scheme::{Exp2, Scheme};
use crate::tracked_value::{DoubleDouble, TrackedValue};

impl Histogram {
    /// An empty histogram with the same scheme, zero threshold and thresholds.
    pub(super) fn empty_copy(&self) -> Histogram {
        let thresholds = self.thresholds.iter().map(|&t| Threshold { above: 0, ..t }).collect();
        let zero_threshold = self.zero_threshold;
        Histogram { zero_threshold, thresholds, ..Histogram::new(self.scheme.clone()) }
    }

    /// Whether a merge loses no explicit bound. Histograms whose bounds differ are kept beside each
    /// other wherever many are merged: the bounds that are left would depend on which of them are.
    pub fn shares_layout(&self, other: &Histogram) -> bool {
        let are_explicit = self.scheme.is_explicit() && other.scheme.is_explicit();
        !are_explicit || self.scheme == other.scheme
    }

    /// Order of histograms that are kept beside each other: those without explicit bounds, which
    /// are few, then those with them, by their bounds. Histograms of equal bounds are equal in it.
    pub fn layout_order(&self, other: &Histogram) -> Ordering {
        match (&self.scheme, &other.scheme) {
            (Scheme::Explicit(a), Scheme::Explicit(b)) => a.cmp(b),
            (a, b) => a.is_explicit().cmp(&b.is_explicit()),
        }
    }

    /// Adds all values of `other`. If the grids differ in resolution, both are downscaled to
    /// the coarser one, exactly. Grids that do not nest are rejected without any change.
    pub fn merge(&mut self, other: &Histogram) -> Result<(), MergeError> {
        let scheme = self
            .scheme
            .common(&other.scheme)
            .ok_or_else(|| MergeError::schemes_differ(&self.scheme, &other.scheme))?;
        let count = self.count.checked_add(other.count).ok_or(MergeError::CountOverflow)?;
        let nan = self.nan.checked_add(other.nan).ok_or(MergeError::CountOverflow)?;
        count.checked_add(nan).ok_or(MergeError::CountOverflow)?;

        let mut downscaled = None;
        if scheme != other.scheme || self.zero_threshold != other.zero_threshold {
            downscaled = Some(other.clone());
        }
        self.downscale_to(&scheme);
        if let Some(downscaled) = &mut downscaled {
            downscaled.downscale_to(&scheme);
            while self.zero_threshold != downscaled.zero_threshold {
                let threshold = self.zero_threshold.max(downscaled.zero_threshold);
                self.raise_zero_threshold(threshold);
                downscaled.raise_zero_threshold(threshold);
            }
        }
        let other = downscaled.as_ref().unwrap_or(other);

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
        let keeps_sum_exact = self.keeps_sum_exact() && other.keeps_sum_exact();
        self.sum = drop_undefined_sum(self.sum.combine(other.sum, DoubleDouble::plus));
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
        if !keeps_sum_exact && (self.min.exact().is_none() || self.max.exact().is_none()) {
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

    /// Whether an exact sum stays exact without the extremes that bound its error. An open bucket
    /// gives no bound, and its sum is trusted.
    fn keeps_sum_exact(&self) -> bool {
        self.count == 0
            || self.scheme.is_mirrored()
            || self.exact_sum().is_some_and(|[lower, _, upper]| lower == upper)
    }

    /// Subtracts all values of `other`, as for two samples of a cumulative histogram. Fails without
    /// any change unless this histogram contains every count of `other`.
    ///
    /// Thresholds stay exact. The sum stays exact if its 100 bits still hold the difference. The
    /// extremes stay exact if they prove that `other` did not contain them; otherwise they bound
    /// the values that remain.
    pub fn subtract(&mut self, other: &Histogram) -> Result<(), MergeError> {
        *self = self.difference(other)?;
        Ok(())
    }

    /// What is left after [`Self::subtract`], as a histogram of its own.
    pub fn difference(&self, other: &Histogram) -> Result<Histogram, MergeError> {
        let theirs = self.with_own_scheme(other)?;
        let mut rest = Histogram {
            count: self.count,
            sum: self.sum,
            min: self.min,
            max: self.max,
            thresholds: self.thresholds.clone(),
            zero: self.zero,
            overflow: self.overflow,
            underflow: self.underflow,
            nan: self.nan,
            ..self.empty_copy()
        };
        let sign = |negative: bool, at: i32| {
            let value = self.scheme.span(at).map_or(f64::NAN, |(first, _)| first);
            if negative { -value } else { value }
        };
        let not_contained =
            |value, count, subtracted| MergeError::NotContained { value, count, subtracted };
        let positive = self.positive.subtract(&theirs.positive);
        let positive =
            positive.map_err(|(at, held, taken)| not_contained(sign(false, at), held, taken))?;
        let negative = self.negative.subtract(&theirs.negative);
        let negative =
            negative.map_err(|(at, held, taken)| not_contained(sign(true, at), held, taken))?;
        (rest.positive, rest.negative) = (positive, negative);
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
            // Recorded values of both signs may cancel to one double that has lost smaller values.
            let cannot_cancel = !self.scheme.is_mirrored() || self.has_no_negatives();
            rest.sum = subtract_sum(rest.sum, theirs.sum, || self.may_be_integers(), cannot_cancel);
            if !(self.keeps_sum_exact() && theirs.keeps_sum_exact()) {
                rest.sum = rest.sum.downgrade();
            }
            rest.min = extreme_of_rest(rest.min, theirs.min, |ours, taken| ours < taken);
            rest.max = extreme_of_rest(rest.max, theirs.max, |ours, taken| ours > taken);
            rest.thresholds.retain_mut(|ours| {
                let taken = theirs.thresholds.iter().find(|t| t.value == ours.value);
                let left = taken.and_then(|taken| ours.above.checked_sub(taken.above));
                ours.above = left.unwrap_or(0);
                left.is_some()
            });
        }
        // If `other` is not an earlier sample of this histogram, a threshold may count more values
        // than remain, and an extreme may lie in an empty range.
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
        Ok(rest)
    }

    /// `other` with the scheme and the zero threshold of this histogram.
    fn with_own_scheme<'a>(&self, other: &'a Histogram) -> Result<Cow<'a, Histogram>, MergeError> {
        let too_coarse = || MergeError::TooCoarse {
            target: Box::new(self.scheme.clone()),
            target_zero: self.zero_threshold,
            other: Box::new(other.scheme.clone()),
            other_zero: other.zero_threshold,
        };
        let common = self
            .scheme
            .common(&other.scheme)
            .ok_or_else(|| MergeError::schemes_differ(&self.scheme, &other.scheme))?;
        if common != self.scheme || self.zero_threshold < other.zero_threshold {
            return Err(too_coarse());
        }
        let mut theirs = Cow::Borrowed(other);
        if other.scheme != self.scheme || other.zero_threshold != self.zero_threshold {
            let theirs = theirs.to_mut();
            theirs.downscale_to(&self.scheme);
            theirs.raise_zero_threshold(self.zero_threshold);
        }
        if theirs.zero_threshold != self.zero_threshold {
            return Err(too_coarse());
        }
        Ok(theirs)
    }

    /// The counts added since an earlier sample of a cumulative histogram, as by
    /// [`Self::subtract`], without sum and extremes. `None` if this histogram does not contain
    /// every count of `before`.
    pub fn counts_since(&self, before: &Histogram) -> Option<Histogram> {
        let is_plain = self.scheme == before.scheme
            && self.zero_threshold == before.zero_threshold
            && self.thresholds.is_empty();
        if !is_plain {
            let added = self.difference(before).ok()?;
            let unknown = TrackedValue::Absent;
            return Some(added.with_summary(TrackedValue::Absent, unknown, unknown));
        }
        let mut added = self.empty_copy();
        added.positive = self.positive.subtract(&before.positive).ok()?;
        added.negative = self.negative.subtract(&before.negative).ok()?;
        added.zero = self.zero.checked_sub(before.zero)?;
        added.overflow = self.overflow.checked_sub(before.overflow)?;
        added.underflow = self.underflow.checked_sub(before.underflow)?;
        added.nan = self.nan.checked_sub(before.nan)?;
        added.count = self.count.wrapping_sub(before.count);
        if added.count > 0 {
            let unknown = TrackedValue::Absent;
            (added.sum, added.min, added.max) = (TrackedValue::Absent, unknown, unknown);
        }
        Some(added)
    }

    /// This histogram with added counts, the reverse of [`Self::counts_since`]. Sum and extremes
    /// are those of the caller and trusted. `None` if the grids or totals do not fit.
    pub fn plus_counts(
        &self,
        added: &Histogram,
        sum: TrackedValue<DoubleDouble>,
        min: TrackedValue<f64>,
        max: TrackedValue<f64>,
    ) -> Option<Histogram> {
        let mut after = self.clone();
        after.add_counts(added, sum, min, max).then_some(after)
    }

    /// As [`Self::plus_counts`], in place. If it returns false, this histogram has neither sum nor
    /// extremes.
    #[must_use]
    pub fn add_counts(
        &mut self,
        added: &Histogram,
        sum: TrackedValue<DoubleDouble>,
        min: TrackedValue<f64>,
        max: TrackedValue<f64>,
    ) -> bool {
        // The summary is replaced anyway.
        let unknown = TrackedValue::Absent;
        (self.sum, self.min, self.max) = (TrackedValue::Absent, unknown, unknown);
        let is_added = self.merge(added).is_ok();
        if is_added {
            (self.sum, self.min, self.max) = (sum, min, max);
            self.normalize_summary();
        }
        is_added
    }

    /// Merges the buckets of a base-2 exponential histogram to a coarser `scale`, exactly.
    pub fn downscale(&mut self, scale: i32) -> Result<(), SchemeError> {
        let target = Exp2::new(scale)?;
        match &self.scheme {
            Scheme::Exp2(grid) if grid.scale() >= target.scale() => {
                self.downscale_to(&Scheme::Exp2(target));
                Ok(())
            }
            scheme => {
                Err(SchemeError::NotCoarser { found: scale, scheme: Box::new(scheme.clone()) })
            }
        }
    }

    /// Merges the buckets to a scheme that [`Scheme::common`] returned for this histogram.
    fn downscale_to(&mut self, coarser: &Scheme) {
        if self.scheme == *coarser {
            return;
        }
        self.positive =
            self.positive.map_indexes(|index| self.scheme.coarser_index(index, coarser));
        self.negative =
            self.negative.map_indexes(|index| self.scheme.coarser_index(index, coarser));
        self.scheme = coarser.clone();
        if self.zero_threshold == 0.0 && coarser.has_bucket_at_zero() {
            // Counted in the same bucket as a recorded zero.
            self.positive.add(0, std::mem::take(&mut self.zero));
        }
    }

    /// Moves every bucket that overlaps ±`threshold` to zero as a whole: the threshold rises to the
    /// upper end of a bucket that it would cut.
    pub(super) fn raise_zero_threshold(&mut self, threshold: f64) {
        if threshold <= self.zero_threshold || !self.scheme.is_mirrored() {
            self.zero_threshold = self.zero_threshold.max(threshold);
            return;
        }
        self.zero_threshold = threshold;
        loop {
            let reached = self.zero_threshold;
            for buckets in [&mut self.positive, &mut self.negative] {
                // Compared by the end of the next lower bucket: logarithmic buckets overlap, and
                // each would pull in the next one.
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
}

/// Extreme of the values that remain after `taken` is subtracted: new if it is beyond that of
/// `taken`; otherwise a bound, because the remaining values are among all. An extreme that has
/// retreated contradicts the subtraction and says nothing.
fn extreme_of_rest(
    whole: TrackedValue<f64>,
    taken: TrackedValue<f64>,
    is_beyond: impl Fn(f64, f64) -> bool,
) -> TrackedValue<f64> {
    match (whole, taken) {
        (TrackedValue::Exact(ours), TrackedValue::Exact(taken)) if is_beyond(ours, taken) => whole,
        (_, TrackedValue::Exact(taken)) if whole.limit().is_some_and(|it| is_beyond(taken, it)) => {
            TrackedValue::Absent
        }
        _ => whole.limit().map_or(TrackedValue::Absent, TrackedValue::Bound),
    }
}

/// The smaller of two minima. If one is not exact, the other still holds if it is at or below the
/// `floor` of all values on the other side.
pub(super) fn tracked_lesser(
    a: TrackedValue<f64>,
    b: TrackedValue<f64>,
    floor_a: impl Fn() -> f64,
    floor_b: impl Fn() -> f64,
) -> TrackedValue<f64> {
    let limit_a = || a.limit().unwrap_or_else(&floor_a);
    let limit_b = || b.limit().unwrap_or_else(&floor_b);
    match (a, b) {
        // No bound beyond that of the buckets, which need not be computed.
        (TrackedValue::Absent, TrackedValue::Absent) => TrackedValue::Absent,
        (TrackedValue::Exact(a), TrackedValue::Exact(b)) => TrackedValue::Exact(a.min(b)),
        (TrackedValue::Exact(least), _) if least <= limit_b() => a,
        (_, TrackedValue::Exact(least)) if least <= limit_a() => b,
        (TrackedValue::Estimated(_), _) | (_, TrackedValue::Estimated(_)) => a.combine(b, f64::min),
        // A floor of the buckets alone is not recorded: it follows from the counts.
        _ => match limit_a().min(limit_b()) {
            limit if limit > floor_a().min(floor_b()) => TrackedValue::Bound(limit),
            _ => TrackedValue::Absent,
        },
    }
}

/// The larger of two maxima, as in [`tracked_lesser`].
pub(super) fn tracked_greater(
    a: TrackedValue<f64>,
    b: TrackedValue<f64>,
    ceiling_a: impl Fn() -> f64,
    ceiling_b: impl Fn() -> f64,
) -> TrackedValue<f64> {
    let limit_a = || a.limit().unwrap_or_else(&ceiling_a);
    let limit_b = || b.limit().unwrap_or_else(&ceiling_b);
    match (a, b) {
        // No bound beyond that of the buckets, which need not be computed.
        (TrackedValue::Absent, TrackedValue::Absent) => TrackedValue::Absent,
        (TrackedValue::Exact(a), TrackedValue::Exact(b)) => TrackedValue::Exact(a.max(b)),
        (TrackedValue::Exact(greatest), _) if greatest >= limit_b() => a,
        (_, TrackedValue::Exact(greatest)) if greatest >= limit_a() => b,
        (TrackedValue::Estimated(_), _) | (_, TrackedValue::Estimated(_)) => a.combine(b, f64::max),
        _ => match limit_a().max(limit_b()) {
            limit if limit < ceiling_a().max(ceiling_b()) => TrackedValue::Bound(limit),
            _ => TrackedValue::Absent,
        },
    }
}

/// Difference of two sums. It is exact if both are whole numbers, or if both are one double each,
/// as senders report them; otherwise it is exact while it is large enough that the last bits of the
/// minuend (2^-103 of it per addition) do not reach its own last bits.
fn subtract_sum(
    total: TrackedValue<DoubleDouble>,
    subtrahend: TrackedValue<DoubleDouble>,
    may_be_whole: impl Fn() -> bool,
    cannot_cancel: bool,
) -> TrackedValue<DoubleDouble> {
    let rest = total.combine(subtrahend, DoubleDouble::minus);
    let (Some(before), Some(after)) = (total.value(), rest.value()) else { return rest };
    let (before_value, after_value) = (before.value().abs(), after.value().abs());
    if !before_value.is_finite() || !after_value.is_finite() {
        return TrackedValue::Absent;
    }
    let whole_numbers = || {
        before_value < 2f64.powi(90) && before.is_integer() && after.is_integer() && may_be_whole()
    };
    // The difference of two doubles is exact in two words.
    let is_double =
        |sum: TrackedValue<DoubleDouble>| sum.value().is_some_and(|sum| sum.parts().1 == 0.0);
    let doubles = cannot_cancel && is_double(total) && is_double(subtrahend);
    if doubles || after_value >= before_value * 2f64.powi(-30) || whole_numbers() {
        rest
    } else {
        rest.downgrade()
    }
}
