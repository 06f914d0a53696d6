//! Float histograms of Prometheus.
//!
//! They come from recording rules, rates and scaling. Their counts cannot be converted to whole
//! numbers without a decision on rounding, so they stay doubles until the caller asks for a
//! [`Histogram`].

use hist::{DecodeError, Histogram, HistogramParts, Scheme};

use crate::exponential;
use crate::message::field_error;

use super::native::{assemble, nan_count};

/// Largest whole number below which doubles skip none.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Histogram with float counts.
#[derive(Clone, Debug, PartialEq)]
pub struct FractionalHistogram {
    /// Exponential or explicit.
    pub scheme: Scheme,
    /// Values within ± this threshold are in `zero_count`.
    pub zero_threshold: f64,
    /// Number of zeros.
    pub zero_count: f64,
    /// Number of values, including NaN. May differ from the sum of the buckets by rounding.
    pub count: f64,
    /// Sum of all values; NaN if a value was NaN, or if the sum is unknown.
    pub sum: f64,
    /// Ascending [`Scheme`] indexes (on exponential grids, Prometheus' index minus one) with their
    /// counts. The index after the last of an exponential grid counts infinities.
    pub positive: Vec<(i32, f64)>,
    /// The same for values below zero, by magnitude.
    pub negative: Vec<(i32, f64)>,
}

/// Histogram with rounded counts and the rounding error.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundedHistogram {
    /// The values.
    pub histogram: Histogram,
    /// Number of values of the histogram, including NaN, minus the source's `count`.
    pub added: f64,
    /// Sum of the absolute changes of all counts.
    pub moved: f64,
}

impl FractionalHistogram {
    /// The same counts as whole numbers. Fails if a count is not whole or above 2^53, or if the
    /// counts contradict `count`.
    pub fn to_histogram(&self) -> Result<Histogram, DecodeError> {
        let parts = self.parts(check_integer)?;
        let count = check_integer("count", self.count)?;
        assemble(parts, self.sum, |held| nan_count(count, held, self.sum))
    }

    /// Each count rounded to the nearest whole number, halves away from zero.
    pub fn round(&self) -> Result<RoundedHistogram, DecodeError> {
        let mut moved = 0.0;
        let mut nearest = |field, count: f64| {
            let rounded = within_u64(field, count.round())?;
            moved += (rounded as f64 - count).abs();
            Ok(rounded)
        };
        let parts = self.parts(&mut nearest)?;
        let beside =
            if self.sum.is_nan() { (self.count - self.bucket_total()).max(0.0) } else { 0.0 };
        let nan = nearest("count", beside)?;
        let histogram = assemble(parts, self.sum, |_| Ok(nan))?;
        let all = histogram.count() as f64 + histogram.nan_count() as f64;
        Ok(RoundedHistogram { added: all - self.count, moved, histogram })
    }

    /// A histogram's counts as doubles, which are exact up to 2^53.
    pub fn from_histogram(histogram: &Histogram) -> FractionalHistogram {
        let end = match histogram.scheme() {
            Scheme::Exp2(grid) => exponential::end_index(*grid),
            _ => i32::MAX,
        };
        let side = |buckets: &hist::Buckets, infinite: u64| {
            let infinite = (infinite > 0).then_some((end, infinite));
            buckets.iter().chain(infinite).map(|(index, count)| (index, count as f64)).collect()
        };
        FractionalHistogram {
            scheme: histogram.scheme().clone(),
            zero_threshold: histogram.zero_threshold(),
            zero_count: histogram.zero_count() as f64,
            count: histogram.count() as f64 + histogram.nan_count() as f64,
            sum: super::native::sum_of(histogram),
            positive: side(histogram.positive(), histogram.overflow()),
            negative: side(histogram.negative(), histogram.underflow()),
        }
    }

    /// Sum of the counts in buckets.
    fn bucket_total(&self) -> f64 {
        let side = |buckets: &[(i32, f64)]| buckets.iter().map(|&(_, count)| count).sum::<f64>();
        side(&self.positive) + side(&self.negative) + self.zero_count
    }

    fn parts(
        &self,
        mut convert: impl FnMut(&'static str, f64) -> Result<u64, DecodeError>,
    ) -> Result<HistogramParts, DecodeError> {
        self.check()?;
        let mut side = |field, buckets: &[(i32, f64)]| {
            let bucket = |&(index, count): &_| Ok((index, convert(field, count)?));
            let buckets: Result<Vec<(i32, u64)>, DecodeError> =
                buckets.iter().map(bucket).collect();
            buckets.map(|all| all.into_iter().filter(|&(_, count)| count > 0).collect())
        };
        Ok(HistogramParts {
            zero_threshold: self.zero_threshold,
            positive: side("positive counts", &self.positive)?,
            negative: side("negative counts", &self.negative)?,
            zero: convert("zero_count", self.zero_count)?,
            ..HistogramParts::new(self.scheme.clone())
        })
    }

    /// Whether the histogram is valid: counts finite and not negative, indexes ascending and on the
    /// grid.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        let (grid_end, mirrored) = match &self.scheme {
            Scheme::Exp2(grid) => (Some(exponential::end_index(*grid)), true),
            Scheme::Explicit(_) => (None, false),
            other => return Err(field_error("scheme", other, "exponential or explicit buckets")),
        };
        if !(self.zero_threshold.is_finite() && self.zero_threshold >= 0.0) {
            return Err(field_error(
                "zero_threshold",
                self.zero_threshold,
                "a finite number from 0",
            ));
        }
        if let (false, Some((index, _))) = (mirrored, self.negative.first()) {
            let found = format_args!("bucket {index}");
            return Err(field_error("negative counts", found, "none beside custom buckets"));
        }
        check_count("count", self.count)?;
        check_count("zero_count", self.zero_count)?;
        for (field, buckets) in
            [("positive counts", &self.positive), ("negative counts", &self.negative)]
        {
            for (position, &(index, count)) in buckets.iter().enumerate() {
                check_count(field, count)?;
                if position > 0 && buckets[position.wrapping_sub(1)].0 >= index {
                    return Err(field_error(
                        field,
                        format_args!("bucket {index}"),
                        "ascending indexes",
                    ));
                }
                if self.scheme.edges(index).is_none() && Some(index) != grid_end {
                    let found = format_args!("bucket {index}");
                    return Err(field_error(
                        field,
                        found,
                        format_args!("buckets of {}", self.scheme),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn check_count(field: &'static str, count: f64) -> Result<(), DecodeError> {
    if count.is_finite() && count >= 0.0 {
        return Ok(());
    }
    Err(field_error(field, count, "a finite number from 0"))
}

fn check_integer(field: &'static str, count: f64) -> Result<u64, DecodeError> {
    if count.fract() == 0.0 && (0.0..=INTEGER_MAX).contains(&count) {
        return Ok(count as u64);
    }
    Err(field_error(field, count, "a whole number up to 2^53; others can be rounded"))
}

fn within_u64(field: &'static str, count: f64) -> Result<u64, DecodeError> {
    if count < u64::MAX as f64 {
        Ok(count as u64)
    } else {
        Err(field_error(field, count, "below 2^64"))
    }
}
