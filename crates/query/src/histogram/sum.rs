//! Sums and differences of histograms, also with different grids or zero buckets.

use std::fmt;
use std::sync::Arc;

use hist::Scheme;

use super::compensation::{Compensation, KahanSum, add_compensated};
use super::counts::{self, BucketCounts};
use super::{BucketGrid, FloatHistogram};

/// Warnings of an addition or subtraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOutcome {
    /// Custom bounds differed; only common bounds remain.
    pub bounds_reconciled: bool,
    /// One histogram has a hint for a reset, the other for no reset.
    pub resets_collide: bool,
}

/// Reason why two histograms cannot be added, subtracted or compared.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IncompatibleHistograms {
    /// Only one of them has custom bounds.
    #[error(
        "histograms incompatible: cannot apply this operation on histograms with a mix of \
         exponential and custom bucket schemas"
    )]
    ExponentialWithCustom,
    /// The grids have no common coarser grid.
    #[error("histograms incompatible: {left} and {right} have no coarser buckets in common")]
    Schemes {
        /// Grid of the first one.
        left: String,
        /// Grid of the second one.
        right: String,
    },
}

impl FloatHistogram {
    /// Adds `other`. The result has the coarser grid and the wider zero bucket of the two.
    pub fn add(&mut self, other: &FloatHistogram) -> Result<AddOutcome, IncompatibleHistograms> {
        self.combine(other, 1.0)
    }

    /// Subtracts `other`; see [`Self::add`]. The difference of two counters is a gauge: the caller
    /// sets `hint`.
    pub fn sub(&mut self, other: &FloatHistogram) -> Result<AddOutcome, IncompatibleHistograms> {
        self.combine(other, -1.0)
    }

    fn combine(
        &mut self,
        other: &FloatHistogram,
        sign: f64,
    ) -> Result<AddOutcome, IncompatibleHistograms> {
        let target = self.grid.common(&other.grid)?;
        let other_zero_count = self.reconcile_zero(other, None).sum;
        self.zero_count += sign * other_zero_count;
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        for positive in [true, false] {
            let theirs = other.buckets_outside_wider_zero(positive, self.zero_threshold);
            let ours = if positive { &mut self.positive } else { &mut self.negative };
            if self.grid != target {
                *ours = counts::map_indexes(ours, |index| self.grid.coarser_index(index, &target));
            }
            if other.grid == target {
                counts::add(ours, theirs, sign);
            } else {
                let mut theirs = other.grid.coarser_counts(theirs, &target);
                // Custom buckets are added one by one, exponential ones only after downscaling.
                if !target.is_custom() {
                    theirs = counts::map_indexes(&theirs, |index| index);
                }
                counts::add(ours, &theirs, sign);
            }
        }
        Ok(self.combine_on(other, target))
    }

    /// Adds `other` with the rounding errors in `compensation`, which starts empty and is added at
    /// the end by [`Self::apply_compensation`].
    pub(crate) fn kahan_add(
        &mut self,
        other: &FloatHistogram,
        compensation: &mut Compensation,
    ) -> Result<AddOutcome, IncompatibleHistograms> {
        let target = self.grid.common(&other.grid)?;
        let c = compensation;
        let other_zero = self.reconcile_zero(other, Some(c));
        let plus = |sum: &mut f64, compensation: &mut f64, more: KahanSum| {
            (*sum, *compensation) =
                KahanSum { sum: *sum, compensation: *compensation }.plus(more).parts();
        };
        plus(&mut self.zero_count, &mut c.zero_count, other_zero);
        plus(&mut self.count, &mut c.count, KahanSum { sum: other.count, compensation: 0.0 });
        plus(&mut self.sum, &mut c.sum, KahanSum { sum: other.sum, compensation: 0.0 });
        for positive in [true, false] {
            let theirs = other.buckets_outside_wider_zero(positive, self.zero_threshold);
            let (ours, rest) = if positive {
                (&mut self.positive, &mut c.positive)
            } else {
                (&mut self.negative, &mut c.negative)
            };
            if self.grid != target {
                counts::map_indexes_kahan(ours, rest, |index| {
                    self.grid.coarser_index(index, &target)
                });
            }
            if other.grid == target {
                counts::add_kahan(ours, rest, theirs, &[]);
            } else {
                let mut their_rest = BucketCounts::new();
                let mut theirs = other.grid.coarser_counts(theirs, &target);
                if !target.is_custom() {
                    counts::map_indexes_kahan(&mut theirs, &mut their_rest, |index| index);
                }
                counts::add_kahan(ours, rest, &theirs, &their_rest);
            }
        }
        Ok(self.combine_on(other, target))
    }

    fn combine_on(&mut self, other: &FloatHistogram, target: BucketGrid) -> AddOutcome {
        let bounds_reconciled = self.grid.is_custom() && self.grid != other.grid;
        self.grid = target;
        let resets_collide;
        (self.hint, resets_collide) = self.hint.combine(other.hint);
        AddOutcome { bounds_reconciled, resets_collide }
    }

    /// The histogram on a coarser grid, a result of [`BucketGrid::common`].
    pub(super) fn downscale(&self, target: &BucketGrid) -> FloatHistogram {
        let downscale = |counts: &[_]| {
            counts::map_indexes(counts, |index| self.grid.coarser_index(index, target))
        };
        FloatHistogram {
            grid: target.clone(),
            positive: downscale(&self.positive),
            negative: downscale(&self.negative),
            ..*self
        }
    }

    /// Reduces the resolution to a coarser exponential schema. Returns false unless it is an
    /// exponential histogram of a finer schema.
    pub fn reduce(&mut self, schema: i32) -> bool {
        let target = BucketGrid::Exponential(schema);
        let is_coarser = matches!(self.grid, BucketGrid::Exponential(own) if own > schema);
        if is_coarser && self.grid.common(&target).is_ok_and(|common| common == target) {
            *self = self.downscale(&target);
            return true;
        }
        false
    }

    /// Buckets outside a zero bucket wider than the histogram's own.
    fn buckets_outside_wider_zero(&self, positive: bool, threshold: f64) -> &[(i32, f64)] {
        let threshold = if threshold > self.zero_threshold { threshold } else { 0.0 };
        self.buckets_outside_zero(positive, threshold)
    }

    /// Buckets that extend beyond a zero bucket.
    pub(super) fn buckets_outside_zero(&self, positive: bool, threshold: f64) -> &[(i32, f64)] {
        let counts = if positive { &self.positive } else { &self.negative };
        if self.grid.is_custom() || threshold == 0.0 {
            return counts;
        }
        let within = counts.partition_point(|&(index, _)| self.grid.edges(index).1 <= threshold);
        &counts[within..]
    }

    /// Widens the zero bucket until it is as wide as `other`'s needs to be and splits no bucket of
    /// either. Returns the count of `other`'s zero bucket of that width.
    fn reconcile_zero(
        &mut self,
        other: &FloatHistogram,
        mut compensation: Option<&mut Compensation>,
    ) -> KahanSum {
        let (mut theirs, mut threshold) =
            (KahanSum { sum: other.zero_count, compensation: 0.0 }, other.zero_threshold);
        if self.grid.is_custom() {
            return KahanSum::default();
        }
        // Each iteration widens one of them, up to a bucket bound; equal or NaN thresholds end the
        // loop.
        loop {
            if self.zero_threshold > threshold {
                (theirs, threshold) = other.zero_count_within(self.zero_threshold, None);
            } else if threshold > self.zero_threshold {
                let own;
                (own, self.zero_threshold) =
                    self.zero_count_within(threshold, compensation.as_deref());
                self.zero_count = own.sum;
                let grid = &self.grid;
                let end = self.zero_threshold;
                let is_outside = |&(index, _): &(i32, f64)| grid.edges(index).0 >= end;
                self.positive.retain(is_outside);
                self.negative.retain(is_outside);
                if let Some(c) = compensation.as_deref_mut() {
                    c.zero_count = own.compensation;
                    c.positive.retain(is_outside);
                    c.negative.retain(is_outside);
                }
            } else {
                return theirs;
            }
        }
    }

    /// Count of a zero bucket of this width; the width is raised to the end of a bucket that it
    /// would split.
    pub(super) fn zero_count_within(
        &self,
        threshold: f64,
        compensation: Option<&Compensation>,
    ) -> (KahanSum, f64) {
        let mut threshold = threshold;
        let lost = compensation.map_or(0.0, |c| c.zero_count);
        if threshold <= self.zero_threshold {
            return (KahanSum { sum: self.zero_count, compensation: lost }, threshold);
        }
        let sides = || {
            [
                (&self.positive, compensation.map(|c| &c.positive)),
                (&self.negative, compensation.map(|c| &c.negative)),
            ]
        };
        // Either sign may raise the threshold, and then the other must be checked again.
        loop {
            let before = threshold;
            for (counts, _) in sides() {
                for &(index, _) in counts {
                    let (lower, upper) = self.grid.edges(index);
                    if lower >= threshold {
                        break;
                    }
                    threshold = threshold.max(upper);
                }
            }
            if threshold == before {
                break;
            }
        }
        let mut zero = KahanSum { sum: self.zero_count, compensation: lost };
        for (counts, rest) in sides() {
            for &(index, count) in counts {
                if self.grid.edges(index).0 >= threshold {
                    break;
                }
                zero = add_compensated(count, zero);
                let lost = rest.and_then(|rest| {
                    rest.binary_search_by_key(&index, |lost| lost.0).ok().map(|at| rest[at].1)
                });
                zero = add_compensated(lost.unwrap_or(0.0), zero);
            }
        }
        (zero, threshold)
    }
}

impl BucketGrid {
    /// Finest grid to which histograms on both can be downscaled.
    pub fn common(&self, other: &BucketGrid) -> Result<BucketGrid, IncompatibleHistograms> {
        if self == other {
            return Ok(self.clone());
        }
        match (self, other) {
            (BucketGrid::Exponential(a), BucketGrid::Exponential(b)) => {
                Ok(BucketGrid::Exponential(*a.min(b)))
            }
            (BucketGrid::Custom(a), BucketGrid::Custom(b)) => {
                Ok(BucketGrid::Custom(intersection(a, b)))
            }
            (BucketGrid::Custom(_), BucketGrid::Exponential(_))
            | (BucketGrid::Exponential(_), BucketGrid::Custom(_)) => {
                Err(IncompatibleHistograms::ExponentialWithCustom)
            }
            _ => self
                .scheme()
                .zip(other.scheme())
                .and_then(|(a, b)| a.common(&b))
                .map(BucketGrid::Scheme)
                .ok_or_else(|| IncompatibleHistograms::Schemes {
                    left: self.to_string(),
                    right: other.to_string(),
                }),
        }
    }

    /// Bucket of `coarser`, a result of [`Self::common`], that contains bucket `index`.
    pub(crate) fn coarser_index(&self, index: i32, coarser: &BucketGrid) -> i32 {
        let shifted = |from: i32, to: i32, index: i64| index >> (from - to).clamp(0, 31);
        match (self, coarser) {
            (own, coarser) if own == coarser => index,
            (BucketGrid::Exponential(from), BucketGrid::Exponential(to)) => {
                (shifted(*from, *to, i64::from(index) - 1) + 1) as i32
            }
            (BucketGrid::Exponential(from), BucketGrid::Scheme(Scheme::Exp2(to))) => {
                shifted(*from, to.scale().into(), i64::from(index) - 1) as i32
            }
            (BucketGrid::Scheme(Scheme::Exp2(from)), BucketGrid::Scheme(Scheme::Exp2(to))) => {
                shifted(from.scale().into(), to.scale().into(), index.into()) as i32
            }
            (BucketGrid::Custom(from), BucketGrid::Custom(to)) => match custom_bound(from, index) {
                Some(bound) => to.partition_point(|&wider| wider < bound) as i32,
                None => to.len() as i32,
            },
            (BucketGrid::Scheme(Scheme::Scaled(from)), BucketGrid::Scheme(Scheme::Scaled(to)))
                if index != super::bound::BEYOND_INDEX =>
            {
                let native = |scheme: &Scheme| BucketGrid::Scheme(scheme.clone());
                native(from.base()).coarser_index(index, &native(to.base()))
            }
            (BucketGrid::Scheme(from), BucketGrid::Scheme(to))
                if index != super::bound::BEYOND_INDEX =>
            {
                from.edges(index).map_or(index, |(lower, _)| bucket_of(to, lower))
            }
            _ => index,
        }
    }

    /// Counts with the indexes of a coarser grid. An index may occur several times in a row.
    fn coarser_counts(&self, counts: &[(i32, f64)], coarser: &BucketGrid) -> BucketCounts {
        counts.iter().map(|&(index, count)| (self.coarser_index(index, coarser), count)).collect()
    }

    /// Scheme of `hist` with these buckets.
    fn scheme(&self) -> Option<Scheme> {
        match self {
            BucketGrid::Exponential(schema) => Scheme::exp2(*schema).ok(),
            BucketGrid::Custom(_) => None,
            BucketGrid::Scheme(scheme) => Some(scheme.clone()),
        }
    }
}

impl fmt::Display for BucketGrid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BucketGrid::Exponential(schema) => write!(out, "exponential schema {schema}"),
            BucketGrid::Custom(bounds) => match bounds.len() {
                1 => out.write_str("1 custom bound"),
                n => write!(out, "{n} custom bounds"),
            },
            BucketGrid::Scheme(scheme) => scheme.fmt(out),
        }
    }
}

fn custom_bound(bounds: &[f64], index: i32) -> Option<f64> {
    match usize::try_from(index) {
        Ok(index) => bounds.get(index).copied(),
        Err(_) => Some(f64::NEG_INFINITY),
    }
}

/// Bounds that both have.
fn intersection(a: &[f64], b: &[f64]) -> Arc<[f64]> {
    let mut b = b.iter().copied().peekable();
    let is_shared = |bound: &f64| {
        while b.next_if(|other| other < bound).is_some() {}
        b.next_if(|other| other == bound).is_some()
    };
    a.iter().copied().filter(is_shared).collect()
}

/// Log-linear bucket with the greatest lower bound at or below `value`. Buckets are numbered from
/// zero.
fn bucket_of(scheme: &Scheme, value: f64) -> i32 {
    let (mut low, mut high) = (0, i32::MAX);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        match scheme.edges(middle) {
            Some((lower, _)) if lower <= value => low = middle,
            _ => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::parse_description;

    fn read(text: &str) -> FloatHistogram {
        parse_description(text).unwrap().histogram
    }

    #[track_caller]
    fn check(a: &str, b: &str, sum: &str, combined: AddOutcome) {
        let mut found = read(a);
        assert_eq!(found.add(&read(b)), Ok(combined));
        assert_eq!(found.description().unwrap(), sum);
        let (mut kahan, mut compensation) = (read(a), Compensation::default());
        assert_eq!(kahan.kahan_add(&read(b), &mut compensation), Ok(combined));
        kahan.apply_compensation(&compensation);
        assert_eq!(kahan, found);
    }

    #[test]
    fn sums() {
        let quiet = AddOutcome::default();
        check("{{}}", "{{count:1 sum:2 buckets:[1]}}", "{{count:1 sum:2 buckets:[1]}}", quiet);
        check(
            "{{count:3 sum:2 buckets:[1 2]}}",
            "{{count:4 sum:1 offset:1 buckets:[1 0 3]}}",
            "{{count:7 sum:3 buckets:[1 3 0 3]}}",
            quiet,
        );
        check(
            "{{schema:1 count:4 n_buckets:[1 1 2]}}",
            "{{count:4 n_buckets:[1 3]}}",
            "{{count:8 n_buckets:[2 6]}}",
            quiet,
        );
    }

    #[test]
    fn hints_may_collide() {
        check(
            "{{counter_reset_hint:reset}}",
            "{{counter_reset_hint:not_reset}}",
            "{{}}",
            AddOutcome { resets_collide: true, ..AddOutcome::default() },
        );
    }

    #[test]
    fn wider_zero_bucket_absorbs_covered_buckets() {
        check(
            "{{count:3 z_bucket:1 z_bucket_w:0.5 buckets:[1 1]}}",
            "{{count:5 z_bucket:4 z_bucket_w:0.75 offset:1 buckets:[1]}}",
            "{{count:8 z_bucket:6 z_bucket_w:1 offset:1 buckets:[2]}}",
            AddOutcome::default(),
        );
    }

    #[test]
    fn custom_bounds_that_both_have_remain() {
        check(
            "{{schema:-53 count:4 custom_values:[1 2 3] buckets:[1 1 1 1]}}",
            "{{schema:-53 count:6 custom_values:[0 2 3] buckets:[1 2 0 3]}}",
            "{{schema:-53 count:10 custom_values:[2 3] buckets:[5 1 4]}}",
            AddOutcome { bounds_reconciled: true, ..AddOutcome::default() },
        );
    }

    #[test]
    fn families_do_not_mix() {
        let mut a = read("{{count:1 buckets:[1]}}");
        let before = a.clone();
        let custom = read("{{schema:-53 custom_values:[1]}}");
        assert_eq!(a.add(&custom), Err(IncompatibleHistograms::ExponentialWithCustom));
        let native = FloatHistogram { grid: BucketGrid::Scheme(Scheme::LogLinear10), ..custom };
        assert!(matches!(a.sub(&native), Err(IncompatibleHistograms::Schemes { .. })));
        assert_eq!(a, before);
    }

    #[test]
    fn compensation_keeps_rounding_errors() {
        let (mut sum, mut compensation) =
            (read("{{sum:1e100 buckets:[1e100]}}"), Compensation::default());
        for text in ["{{sum:1 buckets:[1]}}", "{{sum:-1e100 buckets:[-1e100]}}"] {
            sum.kahan_add(&read(text), &mut compensation).unwrap();
        }
        sum.apply_compensation(&compensation);
        assert_eq!(sum.description().unwrap(), "{{sum:1 buckets:[1]}}");
    }

    fn record_values(scheme: &Scheme, values: &[f64]) -> FloatHistogram {
        let mut histogram = hist::Histogram::new(scheme.clone());
        values.iter().for_each(|&value| histogram.record(value));
        FloatHistogram::from(&histogram)
    }

    fn schemes() -> impl Strategy<Value = (Scheme, Scheme)> {
        prop_oneof![
            (-10..=8, -10..=8).prop_map(|(a, b)| (Scheme::exp2(a), Scheme::exp2(b))),
            (0..=9u32, 0..=9u32)
                .prop_map(|(a, b)| (Scheme::log_linear2(a), Scheme::log_linear2(b))),
            Just((Ok(Scheme::LogLinear10), Ok(Scheme::LogLinear10))),
        ]
        .prop_map(|(a, b)| (a.unwrap(), b.unwrap()))
    }

    proptest! {
        #[test]
        fn sum_equals_recording_both(
            (a, b) in schemes(),
            values in prop::collection::vec(-1e3..1e6f64, 0..40),
            more in prop::collection::vec(-1e3..1e6f64, 0..40),
        ) {
            let mut sum = record_values(&a, &values);
            sum.add(&record_values(&b, &more)).unwrap();
            let both: Vec<f64> = values.iter().chain(&more).copied().collect();
            let expected = record_values(&a.common(&b).unwrap(), &both);
            prop_assert_eq!(&sum.positive, &expected.positive);
            prop_assert_eq!(&sum.negative, &expected.negative);
            prop_assert_eq!(sum.zero_count, expected.zero_count);
            prop_assert_eq!(sum.grid, expected.grid);
        }

        #[test]
        fn subtraction_inverts_addition(
            (a, b) in schemes(),
            values in prop::collection::vec(-1e3..1e6f64, 0..40),
            more in prop::collection::vec(-1e3..1e6f64, 0..40),
        ) {
            let mut sum = record_values(&a, &values);
            let before = sum.clone();
            sum.add(&record_values(&b, &more)).unwrap();
            sum.sub(&record_values(&b, &more)).unwrap();
            let expected = before.downscale(&sum.grid);
            prop_assert_eq!(&sum.positive, &expected.positive);
            prop_assert_eq!(&sum.negative, &expected.negative);
        }
    }
}
