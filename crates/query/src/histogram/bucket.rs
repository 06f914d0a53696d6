//! Bucket with its bounds, and iterators over the buckets of a histogram.

use std::fmt;

use super::logarithm::log2;
use super::number::GoNumber;
use super::{BucketGrid, FloatHistogram};

/// Bounds and count of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Whether `lower` is inclusive.
    pub lower_inclusive: bool,
    /// Whether `upper` is inclusive.
    pub upper_inclusive: bool,
    /// Number of values.
    pub count: f64,
}

impl Bucket {
    fn positive(grid: &BucketGrid, index: i32, count: f64) -> Bucket {
        let (lower, upper) = grid.edges(index);
        let (lower_inclusive, upper_inclusive) = match grid {
            BucketGrid::Custom(_) => (index == 0, true),
            _ if grid.is_upper_inclusive() => (lower < 0.0, upper > 0.0),
            _ => (true, upper.is_infinite()),
        };
        Bucket { lower, upper, lower_inclusive, upper_inclusive, count }
    }

    fn negative(grid: &BucketGrid, index: i32, count: f64) -> Bucket {
        let mirrored = Bucket::positive(grid, index, count);
        Bucket {
            lower: -mirrored.upper,
            upper: -mirrored.lower,
            lower_inclusive: mirrored.upper_inclusive,
            upper_inclusive: mirrored.lower_inclusive,
            count,
        }
    }

    /// Share of the bucket's values at or below `value`, which is strictly between the bounds.
    /// Values, or their logarithms, are taken as evenly spread.
    pub(crate) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, at] = [self.lower, self.upper, value].map(|bound| log2(bound.abs()));
        if value > 0.0 {
            (at - lower) / (upper - lower)
        } else {
            1.0 - (at - upper) / (lower - upper)
        }
    }

    /// Removes the part that the zero bucket covers.
    fn clip(mut self, zero_threshold: f64) -> Bucket {
        if self.upper < 0.0 && self.upper > -zero_threshold {
            self.upper = -zero_threshold;
        } else if self.lower > 0.0 && self.lower < zero_threshold {
            self.lower = zero_threshold;
        }
        self
    }
}

/// Prometheus' format: `(0.5,1]:3`.
impl fmt::Display for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}{},{}{}:{}",
            if self.lower_inclusive { '[' } else { '(' },
            GoNumber(self.lower),
            GoNumber(self.upper),
            if self.upper_inclusive { ']' } else { ')' },
            GoNumber(self.count),
        )
    }
}

impl FloatHistogram {
    /// Buckets of positive values, lowest first; all buckets if they are custom.
    pub(crate) fn positive_buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + Clone + '_ {
        self.positive.iter().map(|&(index, count)| Bucket::positive(&self.grid, index, count))
    }

    /// Buckets of negative values, nearest to zero first.
    pub(crate) fn negative_buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + Clone + '_ {
        self.negative.iter().map(|&(index, count)| Bucket::negative(&self.grid, index, count))
    }

    /// Zero bucket, empty or not.
    pub(crate) fn zero_bucket(&self) -> Bucket {
        Bucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.zero_count,
        }
    }

    /// All buckets, lowest first. The neighbours of the zero bucket start where it ends.
    pub fn buckets(&self) -> impl DoubleEndedIterator<Item = Bucket> + Clone + '_ {
        self.bucket_counts().map(|bucket| self.bucket(bucket))
    }

    /// All buckets without their bounds, lowest first.
    pub(crate) fn bucket_counts(
        &self,
    ) -> impl DoubleEndedIterator<Item = BucketCount> + Clone + '_ {
        let of = |position: fn(i32) -> BucketKey| {
            move |&(index, count): &(i32, f64)| BucketCount { position: position(index), count }
        };
        let zero = BucketCount { position: BucketKey::Zero, count: self.zero_count };
        let zero = (self.zero_count > 0.0).then_some(zero);
        let negative = self.negative.iter().rev().map(of(BucketKey::Negative));
        negative.chain(zero).chain(self.positive.iter().map(of(BucketKey::Positive)))
    }

    /// The bucket with its bounds.
    pub(crate) fn bucket(&self, BucketCount { position, count }: BucketCount) -> Bucket {
        match position {
            BucketKey::Negative(index) => {
                Bucket::negative(&self.grid, index, count).clip(self.zero_threshold)
            }
            BucketKey::Zero => self.zero_bucket(),
            BucketKey::Positive(index) => {
                Bucket::positive(&self.grid, index, count).clip(self.zero_threshold)
            }
        }
    }

    /// Number of values in the buckets that end at or below `value`, and the next bucket, for a
    /// value above the zero bucket.
    pub(crate) fn count_up_to(&self, value: f64) -> (f64, Option<Bucket>) {
        let ended = self.positive.partition_point(|&(index, _)| self.grid.edges(index).1 <= value);
        let mut count = self.negative.iter().rev().fold(0.0, |sum, &(_, count)| sum + count);
        if self.zero_count > 0.0 {
            count += self.zero_count;
        }
        let count = self.positive[..ended].iter().fold(count, |sum, &(_, count)| sum + count);
        let next = self
            .positive
            .get(ended)
            .map(|&(index, count)| BucketCount { position: BucketKey::Positive(index), count });
        (count, next.map(|next| self.bucket(next)))
    }
}

/// Count of a bucket, whose bounds are computed by [`FloatHistogram::bucket`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketCount {
    position: BucketKey,
    pub(crate) count: f64,
}

/// Position of a bucket in a histogram.
#[derive(Clone, Copy, Debug)]
enum BucketKey {
    /// Bucket of negative values, by the index of their magnitude.
    Negative(i32),
    Zero,
    Positive(i32),
}

/// Prometheus' format: `{count:3, sum:4.5, (0.5,1]:1, (1,2]:2}`.
impl fmt::Display for FloatHistogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{{count:{}, sum:{}", GoNumber(self.count), GoNumber(self.sum))?;
        let zero = (self.zero_count != 0.0 && !self.grid.is_custom()).then(|| self.zero_bucket());
        let below = self.negative_buckets().rev();
        for bucket in below.chain(zero).chain(self.positive_buckets()) {
            write!(out, ", {bucket}")?;
        }
        write!(out, "}}")
    }
}
