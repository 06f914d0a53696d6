//! Classic histograms: for each bound `le`, the number of values at or below it.
//!
//! The input is parsed numbers; the text exposition format is parsed elsewhere. The bucket of
//! `le="+Inf"` counts all values and may be missing, because it equals the count. Bounds must
//! ascend, and counts must not decrease.

use std::fmt::Display;
use std::ops::Sub;

use hist::{
    DecodeError, DoubleDouble, EncodeError, Histogram, HistogramParts, Scheme, TrackedValue,
};

use crate::message::field_error;

use super::float::FractionalHistogram;
use super::native::{sum_of, unrepresentable_error};

/// Cumulative counts, whole numbers or doubles.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassicHistogram<N = u64> {
    /// `le` and the count of values at or below it, ascending.
    pub buckets: Vec<(f64, N)>,
    /// Sum of all values.
    pub sum: Option<f64>,
    /// Number of values.
    pub count: N,
}

impl ClassicHistogram {
    /// The distribution on explicit bounds.
    pub fn to_histogram(&self) -> Result<Histogram, DecodeError> {
        let (bounds, counts) = self.differences()?;
        Ok(Histogram::from_parts(HistogramParts {
            positive: (0..).zip(counts).collect(),
            sum: match self.sum.filter(|sum| !sum.is_nan()) {
                Some(sum) => TrackedValue::Exact(DoubleDouble::new(sum)),
                None => TrackedValue::Absent,
            },
            ..HistogramParts::new(Scheme::explicit(&bounds)?)
        })?)
    }

    /// The counts of a histogram on explicit bounds, including the `+Inf` bucket.
    ///
    /// Rejects NaN, which the format cannot represent. Omitted: min, max, declared thresholds.
    pub fn from_histogram(histogram: &Histogram) -> Result<ClassicHistogram, EncodeError> {
        let Scheme::Explicit(grid) = histogram.scheme() else {
            return Err(EncodeError::scheme("a classic Prometheus histogram", histogram.scheme()));
        };
        let bounds = grid.bounds().iter().copied().chain([f64::INFINITY]);
        for (count, what) in [
            (histogram.nan_count(), "NaN values"),
            (histogram.zero_count(), "zeros counted beside the buckets"),
            (histogram.overflow(), "values counted above the buckets"),
            (histogram.underflow(), "values counted below the buckets"),
        ] {
            if count > 0 {
                return Err(unrepresentable_error(format!(
                    "{count} {what} in a classic histogram"
                )));
            }
        }
        let mut cumulative = 0u64;
        let mut up_to = |(index, bound)| {
            cumulative = cumulative.wrapping_add(histogram.positive().get(index));
            (bound, cumulative)
        };
        Ok(ClassicHistogram {
            buckets: (0..).zip(bounds).map(&mut up_to).collect(),
            sum: Some(sum_of(histogram)).filter(|sum| !sum.is_nan()),
            count: histogram.count(),
        })
    }
}

impl ClassicHistogram<f64> {
    /// The distribution on explicit bounds; each count is a difference of two doubles.
    pub(crate) fn to_float(&self) -> Result<FractionalHistogram, DecodeError> {
        let (bounds, counts) = self.differences()?;
        let float = FractionalHistogram {
            scheme: Scheme::explicit(&bounds)?,
            zero_threshold: 0.0,
            zero_count: 0.0,
            count: self.count,
            sum: self.sum.unwrap_or(f64::NAN),
            positive: (0..).zip(counts).filter(|&(_, count)| count > 0.0).collect(),
            negative: Vec::new(),
        };
        float.check()?;
        Ok(float)
    }
}

impl<N: Copy + Default + PartialOrd + Sub<Output = N> + Display> ClassicHistogram<N> {
    /// Finite bounds, and the counts between them: one more than bounds.
    #[expect(clippy::arithmetic_side_effects, reason = "no count is below the one before it")]
    fn differences(&self) -> Result<(Vec<f64>, Vec<N>), DecodeError> {
        let finite = match self.buckets.split_last() {
            Some((&(f64::INFINITY, all), finite)) => {
                if all != self.count {
                    let expected = format_args!("{}, the count", self.count);
                    return Err(field_error("bucket le=\"+Inf\"", all, expected));
                }
                finite
            }
            _ => &self.buckets[..],
        };
        let (mut bounds, mut counts) = (Vec::new(), Vec::new());
        let (mut lower, mut below) = (f64::NEG_INFINITY, N::default());
        for &(le, cumulative) in finite {
            if !(le.is_finite() && le > lower) {
                return Err(field_error("le", le, format_args!("a finite bound above {lower}")));
            }
            // A NaN count neither increases nor decreases; it is rejected like a decreasing count.
            let rises = cumulative >= below;
            if !rises {
                let found = format_args!("{cumulative} at le={le}");
                return Err(field_error(
                    "cumulative count",
                    found,
                    format_args!("at least {below}"),
                ));
            }
            bounds.push(le);
            counts.push(cumulative - below);
            (lower, below) = (le, cumulative);
        }
        let rises = self.count >= below;
        if !rises {
            let expected = format_args!("at least {below}, the count at le={lower}");
            return Err(field_error("count", self.count, expected));
        }
        counts.push(self.count - below);
        Ok((bounds, counts))
    }
}
