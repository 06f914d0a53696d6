//! Float histograms of Prometheus.
//!
//! They come from recording rules, rates and scaling. Their counts are never rounded: a
//! [`Histogram`] can hold whole counts only.

use hist::{DecodeError, Histogram, HistogramParts, Scheme};

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

impl FractionalHistogram {
    /// The same counts as whole numbers. Fails if a count is not whole or above 2^53, or if the
    /// counts contradict `count`.
    pub fn to_histogram(&self) -> Result<Histogram, DecodeError> {
        self.check()?;
        let side = |field, buckets: &[(i32, f64)]| -> Result<Vec<(i32, u64)>, DecodeError> {
            let held = buckets.iter().filter(|&&(_, count)| count > 0.0);
            held.map(|&(index, count)| Ok((index, check_integer(field, count)?))).collect()
        };
        let parts = HistogramParts {
            zero_threshold: self.zero_threshold,
            positive: side("positive counts", &self.positive)?,
            negative: side("negative counts", &self.negative)?,
            zero: check_integer("zero_count", self.zero_count)?,
            ..HistogramParts::new(self.scheme.clone())
        };
        let count = check_integer("count", self.count)?;
        assemble(parts, self.sum, |held| nan_count(count, held, self.sum))
    }

    /// Whether the histogram is valid: counts finite and not negative, indexes ascending and on the
    /// grid.
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        let (grid_end, mirrored) = match &self.scheme {
            Scheme::Exp2(grid) => (Some(grid.end_index()), true),
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
    Err(field_error(field, count, "a whole number up to 2^53"))
}
