//! Value of a stream at a step.

use std::sync::Arc;

use hist::{Bracket, Mixture};

use crate::histogram::FloatHistogram;
use crate::limits::SAMPLE_BYTES;

/// A value at a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepValue {
    /// Exact number.
    Number(f64),
    /// Number with bounds: a statistic of a distribution.
    Bracket(Box<Bracket>),
    /// Float histogram of PromQL arithmetic.
    Histogram(Arc<FloatHistogram>),
    /// Recorded distribution: counts are exact, and so are minimum and maximum if the source
    /// reported them.
    Distribution(Arc<Mixture>),
}

impl StepValue {
    /// Statistic; a plain number if the bounds have no width.
    pub(crate) fn from_bracket(bracket: Bracket) -> StepValue {
        match bracket.is_exact() {
            true => StepValue::Number(bracket.estimate),
            false => StepValue::Bracket(Box::new(bracket)),
        }
    }

    /// Number with its bounds if these are not NaN; the bounds are widened to include the number.
    pub(crate) fn from_bounds(lower: f64, estimate: f64, upper: f64) -> StepValue {
        if lower.is_nan() || estimate.is_nan() || upper.is_nan() {
            return StepValue::Number(estimate);
        }
        let (lower, upper) = (lower.min(estimate), upper.max(estimate));
        StepValue::from_bracket(Bracket { lower, estimate, upper })
    }

    /// Number; `None` for a distribution.
    pub fn number(&self) -> Option<f64> {
        match self {
            StepValue::Number(number) => Some(*number),
            StepValue::Bracket(bracket) => Some(bracket.estimate),
            StepValue::Histogram(_) | StepValue::Distribution(_) => None,
        }
    }

    /// Number as a bracket; `None` for a distribution.
    pub fn bracket(&self) -> Option<Bracket> {
        match self {
            StepValue::Number(number) => Some(Bracket::exact(*number)),
            StepValue::Bracket(bracket) => Some(**bracket),
            StepValue::Histogram(_) | StepValue::Distribution(_) => None,
        }
    }

    /// Float histogram; `None` for a number.
    pub fn histogram(&self) -> Option<Arc<FloatHistogram>> {
        match self {
            StepValue::Number(_) | StepValue::Bracket(_) => None,
            StepValue::Histogram(histogram) => Some(Arc::clone(histogram)),
            StepValue::Distribution(mixture) => Some(Arc::new(FloatHistogram::from(&**mixture))),
        }
    }

    /// Whether it is a histogram or a distribution.
    pub fn is_distribution(&self) -> bool {
        matches!(self, StepValue::Histogram(_) | StepValue::Distribution(_))
    }

    /// Memory that is reserved for it in the context of the query.
    pub fn reserved_bytes(&self) -> u64 {
        self.samples().saturating_mul(SAMPLE_BYTES)
    }

    /// Sample count towards `max_samples`, in Prometheus' unit of 16 bytes a sample.
    pub(crate) fn samples(&self) -> u64 {
        match self {
            StepValue::Number(_) | StepValue::Bracket(_) => 1,
            StepValue::Histogram(histogram) => samples_of_histogram(histogram),
            StepValue::Distribution(mixture) => samples_of(mixture),
        }
    }
}

/// Sample count of a float histogram.
pub(crate) fn samples_of_histogram(histogram: &FloatHistogram) -> u64 {
    (histogram.positive.len() + histogram.negative.len()) as u64 + 8
}

/// Sample count of a distribution.
pub(crate) fn samples_of(mixture: &Mixture) -> u64 {
    let of_part =
        |part: &hist::Histogram| (part.positive().len() + part.negative().len()) as u64 + 8;
    mixture.components().iter().map(of_part).sum::<u64>().max(1)
}

/// Whether a number is Prometheus' staleness marker.
pub fn is_stale(number: f64) -> bool {
    number.to_bits() == STALE_BITS
}

/// Bits of the staleness marker, a NaN.
pub const STALE_BITS: u64 = codecs::prometheus::STALE_MARKER;
