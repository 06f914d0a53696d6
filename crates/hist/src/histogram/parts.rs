//! The fields of a histogram as codecs read and write them, and their validation.

use super::{Histogram, Threshold};
use crate::buckets::Buckets;
use crate::scheme::Scheme;
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// All fields of a histogram: the input and output of codecs.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramParts {
    /// The grid.
    pub scheme: Scheme,
    /// Values within ± this threshold count as zero.
    pub zero_threshold: f64,
    /// Buckets of values above zero (with explicit bounds, of all values): index, count.
    pub positive: Vec<(i32, u64)>,
    /// Buckets of values below zero, by magnitude.
    pub negative: Vec<(i32, u64)>,
    /// Number of values counted as zero.
    pub zero: u64,
    /// Number of values above the grid, including +inf.
    pub overflow: u64,
    /// Number of values below the grid, including -inf.
    pub underflow: u64,
    /// Number of NaN values.
    pub nan: u64,
    /// Sum of all values but NaN.
    pub sum: TrackedValue<DoubleDouble>,
    /// Smallest value.
    pub min: TrackedValue<f64>,
    /// Largest value.
    pub max: TrackedValue<f64>,
    /// Declared thresholds, ascending.
    pub thresholds: Vec<Threshold>,
}

impl HistogramParts {
    /// The parts of an empty histogram.
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
        /// The previous index.
        previous: i32,
        /// The index that does not ascend.
        found: i32,
    },
    /// No double falls into this bucket.
    #[error("bucket index {found} is outside the grid ({scheme})")]
    OutsideGrid {
        /// The invalid index.
        found: i32,
        /// The grid.
        scheme: Box<Scheme>,
    },
    /// The total exceeds 64 bits.
    #[error("the total count exceeds 2^64 - 1")]
    CountOverflow,
    /// The zero threshold is negative or not finite.
    #[error("invalid zero threshold {found}: must be finite and not negative")]
    ZeroThreshold {
        /// The invalid threshold.
        found: f64,
    },
    /// The number of thresholds exceeds the limit of a histogram.
    #[error("{found} declared thresholds exceed the limit of {}", Histogram::THRESHOLDS_MAX)]
    TooManyThresholds {
        /// Number of thresholds.
        found: usize,
    },
    /// Thresholds must be finite and ascending. Their counts must not exceed the total and must not
    /// increase.
    #[error(
        "invalid declared threshold {found}: not finite, out of order, or counts more values than \
         there are"
    )]
    Threshold {
        /// The invalid threshold.
        found: f64,
    },
}

impl Histogram {
    /// A histogram of parts from another source. Exact summary statistics that contradict the
    /// buckets become estimates.
    pub fn from_parts(parts: HistogramParts) -> Result<Histogram, PartsError> {
        let mut histogram = Histogram::from_recorded_parts(parts)?;
        if histogram.count > 0
            && let Some(sum) = histogram.sum.exact().map(DoubleDouble::value)
            // With values of both signs, an intermediate sum may have overflowed.
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

    /// As [`Self::from_parts`], for parts that the caller recorded: an exact sum is trusted. The
    /// comparison with the buckets computes all edges and takes most of the time.
    pub fn from_recorded_parts(mut parts: HistogramParts) -> Result<Histogram, PartsError> {
        let positive = ascending_buckets(&std::mem::take(&mut parts.positive))?;
        let negative = ascending_buckets(&std::mem::take(&mut parts.negative))?;
        check_smallest(&parts.scheme, &positive)?;
        check_smallest(&parts.scheme, &negative)?;
        Histogram::from_buckets(parts, positive, negative)
    }

    /// As [`Self::from_recorded_parts`], for buckets apart from the parts, whose lists of buckets
    /// are empty. Buckets of subnormal numbers are not checked.
    pub(crate) fn from_buckets(
        parts: HistogramParts,
        positive: Buckets,
        negative: Buckets,
    ) -> Result<Histogram, PartsError> {
        if !(parts.zero_threshold.is_finite() && parts.zero_threshold >= 0.0) {
            return Err(PartsError::ZeroThreshold { found: parts.zero_threshold });
        }
        check_ends(&parts.scheme, &positive)?;
        check_ends(&parts.scheme, &negative)?;
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

    /// The same counts with another sum, minimum and maximum, which are trusted as by
    /// [`Self::from_recorded_parts`].
    pub(crate) fn with_summary(
        mut self,
        sum: TrackedValue<DoubleDouble>,
        min: TrackedValue<f64>,
        max: TrackedValue<f64>,
    ) -> Histogram {
        (self.sum, self.min, self.max) = (sum, min, max);
        self.normalize_summary();
        self
    }

    /// All fields of the histogram.
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
            sum: if empty { TrackedValue::Exact(DoubleDouble::default()) } else { self.sum },
            min: side(self.min),
            max: side(self.max),
            thresholds: self.thresholds,
            scheme: self.scheme,
        }
    }
}

fn ascending_buckets(pairs: &[(i32, u64)]) -> Result<Buckets, PartsError> {
    let mut buckets = Buckets::with_capacity(pairs.len());
    let mut previous: Option<i32> = None;
    for &(index, count) in pairs {
        if let Some(previous) = previous.filter(|&previous| previous >= index) {
            return Err(PartsError::Order { previous, found: index });
        }
        buckets.push(index, count);
        previous = Some(index);
    }
    Ok(buckets)
}

/// Checks buckets of subnormal numbers, which are further apart than the bounds of a fine grid, so
/// that some buckets contain no double. Above them a grid has no holes.
pub(crate) fn check_smallest(scheme: &Scheme, buckets: &Buckets) -> Result<(), PartsError> {
    for &found in buckets.indexes() {
        match scheme.edges(found) {
            None => {
                let scheme = Box::new(scheme.clone());
                return Err(PartsError::OutsideGrid { found, scheme });
            }
            Some((lower, _)) if lower >= f64::MIN_POSITIVE => return Ok(()),
            Some(_) => {}
        }
    }
    Ok(())
}

/// An index between two valid indexes is valid, except among the subnormal numbers.
fn check_ends(scheme: &Scheme, buckets: &Buckets) -> Result<(), PartsError> {
    for &found in buckets.indexes().first().into_iter().chain(buckets.indexes().last()) {
        if scheme.edges(found).is_none() {
            return Err(PartsError::OutsideGrid { found, scheme: Box::new(scheme.clone()) });
        }
    }
    Ok(())
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
