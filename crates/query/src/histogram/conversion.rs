//! Conversion of `hist` histograms to float histograms.
//!
//! No value is lost. Infinities and values beyond the grid are in a bucket after the last one, as
//! in Prometheus; with custom buckets, in the outermost one. NaN values are in `count` and in no
//! bucket, and make the sum NaN, as does an unknown sum.

use hist::codec::decoded_block::DenseCounts;
use hist::{Buckets, Exp2, Histogram, Mixture, Scheme};

use super::bound::BEYOND_INDEX;
use super::counts::{BucketCounts, drop_empty};
use super::{BucketGrid, FloatHistogram, ResetHint};

/// How the counts of a scheme become those of a float histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SchemeConversion {
    grid: BucketGrid,
    zero_threshold: f64,
    /// Added to the indexes of buckets.
    index_offset: i32,
    /// Bucket for the values of the zero bucket, if the grid has none.
    zero_index: Option<i32>,
}

impl SchemeConversion {
    /// Base-2 exponential scales from −4 become Prometheus' schemas, explicit bounds become custom
    /// bounds; every other scheme is kept. No recorded scale is finer than schema 8.
    pub(crate) fn new(scheme: &Scheme, zero_threshold: f64) -> SchemeConversion {
        let plain = |grid, zero_threshold| SchemeConversion {
            grid,
            zero_threshold,
            index_offset: 0,
            zero_index: None,
        };
        match scheme {
            Scheme::Exp2(grid) if (-4..=8).contains(&grid.scale()) => SchemeConversion {
                // Prometheus numbers a bucket by its upper bound, OTLP by its lower bound.
                index_offset: 1,
                ..plain(BucketGrid::Exponential(grid.scale().into()), zero_threshold)
            },
            Scheme::Explicit(grid) => SchemeConversion {
                zero_index: Some(grid.bounds().partition_point(|&bound| bound < 0.0) as i32),
                ..plain(BucketGrid::Custom(grid.bounds().into()), 0.0)
            },
            // This grid has no buckets nearer to zero.
            Scheme::LogLinear10 => {
                let zero_threshold = zero_threshold.max(1e-128f64.next_down());
                plain(BucketGrid::Scheme(scheme.clone()), zero_threshold)
            }
            Scheme::Scaled(grid) => {
                let base = SchemeConversion::new(grid.base(), 0.0);
                let zero_threshold = zero_threshold.max(base.zero_threshold / grid.divisor());
                plain(BucketGrid::Scheme(scheme.clone()), zero_threshold)
            }
            scheme => plain(BucketGrid::Scheme(scheme.clone()), zero_threshold),
        }
    }

    /// Histogram of counts of positive and negative values.
    fn histogram(
        &self,
        mut positive: BucketCounts,
        mut negative: BucketCounts,
        mut zero_count: f64,
    ) -> FloatHistogram {
        if self.index_offset != 0 {
            for (index, _) in positive.iter_mut().chain(&mut negative) {
                *index = index.saturating_add(self.index_offset);
            }
        }
        if let BucketGrid::Custom(bounds) = &self.grid {
            into_outermost(&mut positive, &mut negative, bounds.len() as i32);
        }
        if let Some(at) = self.zero_index {
            if zero_count > 0.0 {
                add_at(&mut positive, at, zero_count);
            }
            zero_count = 0.0;
        }
        FloatHistogram {
            grid: self.grid.clone(),
            zero_threshold: self.zero_threshold,
            zero_count,
            positive,
            negative,
            ..FloatHistogram::default()
        }
    }

    /// Histogram of counts of positive values and zeros, likewise.
    pub(crate) fn convert_counts(&self, positive: BucketCounts, zero_count: f64) -> FloatHistogram {
        self.histogram(positive, BucketCounts::new(), zero_count)
    }

    /// Histogram of the counts of a window, which has only positive values and zeros, times a
    /// factor. Its total count and sum are left to the caller.
    pub(crate) fn convert_window(&self, window: &DenseCounts, factor: f64) -> FloatHistogram {
        let (first, counts) = window.positive();
        // A histogram is kept for each step: it takes no more memory than its buckets.
        let used = counts.iter().filter(|&&count| count > 0).count();
        let mut positive = BucketCounts::with_capacity(used + 1);
        if self.zero_index.is_some() {
            for (index, &count) in (i64::from(first)..).zip(counts) {
                if count > 0 {
                    positive.push((index as i32, count as f64));
                }
            }
            let zero_count = window.zero_count() as f64;
            let mut histogram = self.histogram(positive, BucketCounts::new(), zero_count);
            histogram.mul(factor);
            return histogram;
        }
        // Whether a bucket is empty cannot be predicted: each one is written, and the next one
        // takes its place if it is empty.
        positive.resize(used + 1, (0, 0.0));
        let mut at = 0;
        for (index, &count) in (i64::from(first) + i64::from(self.index_offset)..).zip(counts) {
            // An index of 32 bits, unless it is the last one and has an offset.
            positive[at] = (index.min(i32::MAX.into()) as i32, count as f64 * factor);
            at += usize::from(count > 0);
        }
        positive.truncate(used);
        if !factor.is_normal() {
            drop_empty(&mut positive);
        }
        FloatHistogram {
            grid: self.grid.clone(),
            zero_threshold: self.zero_threshold,
            zero_count: window.zero_count() as f64 * factor,
            positive,
            ..FloatHistogram::default()
        }
    }
}

impl FloatHistogram {
    /// The distribution of the values divided by a number, as [`Histogram::divide`].
    pub(crate) fn divide_values(&self, divisor: f64) -> FloatHistogram {
        let mut divided = FloatHistogram {
            zero_threshold: self.zero_threshold / divisor,
            // The staleness marker is a NaN that a division would change.
            sum: if self.sum.is_nan() { self.sum } else { self.sum / divisor },
            ..self.clone()
        };
        let exponential = match &self.grid {
            BucketGrid::Scheme(Scheme::Exp2(grid)) => Some((*grid, 0)),
            // Prometheus numbers a bucket by its upper bound, `hist` by its lower bound.
            BucketGrid::Exponential(schema) => Exp2::new(*schema).ok().map(|grid| (grid, 1)),
            _ => None,
        };
        divided.grid = match &self.grid {
            BucketGrid::Custom(bounds) => {
                BucketGrid::Custom(bounds.iter().map(|bound| bound / divisor).collect())
            }
            BucketGrid::Scheme(scheme) => BucketGrid::Scheme(scheme.divide(divisor)),
            BucketGrid::Exponential(_) => {
                let (grid, _) = exponential.expect("BUG: a schema of Prometheus is a scale");
                BucketGrid::Scheme(Scheme::Exp2(grid).divide(divisor))
            }
        };
        if let Some((grid, offset)) = exponential {
            for (index, _) in divided.positive.iter_mut().chain(&mut divided.negative) {
                let is_finite = *index < grid.end_index() + offset;
                *index = if is_finite { *index - offset } else { BEYOND_INDEX };
            }
        }
        divided
    }
}

impl From<&Histogram> for FloatHistogram {
    /// Converts as [`SchemeConversion`].
    fn from(histogram: &Histogram) -> FloatHistogram {
        let beyond = match histogram.scheme() {
            Scheme::Exp2(grid) => grid.end_index(),
            _ => BEYOND_INDEX,
        };
        let positive = counts(histogram.positive(), (beyond, histogram.overflow()));
        let negative = counts(histogram.negative(), (beyond, histogram.underflow()));
        let conversion = SchemeConversion::new(histogram.scheme(), histogram.zero_threshold());
        FloatHistogram {
            count: histogram.count() as f64 + histogram.nan_count() as f64,
            sum: match histogram.tracked_sum().value() {
                Some(sum) if histogram.nan_count() == 0 => sum.value(),
                _ => f64::NAN,
            },
            ..conversion.histogram(positive, negative, histogram.zero_count() as f64)
        }
    }
}

impl From<&Mixture> for FloatHistogram {
    /// Merges several schemes: the only part if there is one; explicit bounds on those that all
    /// parts have, as Prometheus does; otherwise all parts on a grid that nearly preserves their
    /// buckets; empty for no parts. The result covers an interval, so it is
    /// a gauge.
    fn from(mixture: &Mixture) -> FloatHistogram {
        let mut histogram = match mixture.components() {
            [] => FloatHistogram::default(),
            [part] => part.into(),
            [first, others @ ..] => {
                let mut all = first.clone();
                let is_merged = others.iter().all(|part| all.merge(part).is_ok());
                let flat = || mixture.flatten().expect("BUG: a mixture counts within 64 bits");
                (&if is_merged { all } else { flat().histogram }).into()
            }
        };
        histogram.hint = ResetHint::Gauge;
        histogram
    }
}

/// Counts as doubles, which are exact up to 2^53; those beyond the grid are under their own index.
fn counts(buckets: &Buckets, beyond: (i32, u64)) -> BucketCounts {
    let beyond = (beyond.1 > 0).then_some(beyond);
    buckets.iter().chain(beyond).map(|(index, count)| (index, count as f64)).collect()
}

/// Moves counts beyond explicit bounds into the first and last bucket.
fn into_outermost(positive: &mut BucketCounts, negative: &mut BucketCounts, last: i32) {
    if let Some((_, count)) = positive.pop_if(|(index, _)| *index == BEYOND_INDEX) {
        add_at(positive, last, count);
    }
    for (_, count) in negative.drain(..) {
        add_at(positive, 0, count);
    }
    drop_empty(positive);
}

fn add_at(counts: &mut BucketCounts, index: i32, count: f64) {
    match counts.binary_search_by_key(&index, |held| held.0) {
        Ok(at) => counts[at].1 += count,
        Err(at) => counts.insert(at, (index, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scheme: Scheme, values: &[f64], expected: &str) {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        let float = FloatHistogram::from(&histogram);
        assert_eq!(float.to_string(), expected);
        assert_eq!(float.count, values.len() as f64);
        assert_eq!(float.validate(), Ok(()));
    }

    #[test]
    fn nothing_is_lost() {
        let values = [-3.0, 0.0, 3.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
        check(
            Scheme::exp2(0).unwrap(),
            &values,
            "{count:6, sum:NaN, [-Inf,-1.7976931348623157e+308):1, [-4,-2):1, [-0,0]:1, (2,4]:1, \
             (1.7976931348623157e+308,+Inf]:1}",
        );
        check(
            Scheme::explicit(&[0.0, 5.0]).unwrap(),
            &values,
            "{count:6, sum:NaN, [-Inf,0]:3, (0,5]:1, (5,+Inf]:1}",
        );
        check(
            Scheme::LogLinear10,
            &[1.05, 1e-200, 1e200],
            "{count:3, sum:1e+200, [-9.999999999999999e-129,9.999999999999999e-129]:1, [1,1.1):1, \
             [1e+128,+Inf]:1}",
        );
        check(Scheme::log_linear2(1).unwrap(), &[3.5], "{count:1, sum:3.5, [3,4):1}");
        check(Scheme::exp2(-5).unwrap(), &[3.0], "{count:1, sum:3, (1,4.294967296e+09]:1}");
    }

    #[test]
    fn mixtures() {
        let mut mixture = Mixture::default();
        let none = FloatHistogram { hint: ResetHint::Gauge, ..FloatHistogram::default() };
        assert_eq!(FloatHistogram::from(&mixture), none);
        let mut one = Histogram::new(Scheme::exp2(3).unwrap());
        one.record(2.0);
        mixture.add(&one).unwrap();
        let gauge = FloatHistogram { hint: ResetHint::Gauge, ..(&one).into() };
        assert_eq!(FloatHistogram::from(&mixture), gauge);
        let mut other = Histogram::new(Scheme::LogLinear10);
        other.record(7.0);
        mixture.add(&other).unwrap();
        let both = FloatHistogram::from(&mixture);
        assert!(
            matches!(both.grid, BucketGrid::Scheme(Scheme::LogLinear2(_))) && both.count == 2.0
        );
    }
}
