//! Value of a stream at a step.

use std::sync::Arc;

use hist::{Bracket, Mixture};

use crate::histogram::FloatHistogram;

/// A value at a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepValue {
    /// A number as it is.
    Number(f64),
    /// A number that is known to lie within bounds: a statistic of a distribution.
    Bracket(Box<Bracket>),
    /// A histogram with counts that PromQL reckons with.
    Histogram(Arc<FloatHistogram>),
    /// What was measured, whole: counts are exact, and so are the extremes where the source told
    /// them.
    Distribution(Arc<Mixture>),
}

impl StepValue {
    /// A statistic; without bounds where there is no width.
    pub fn from_bracket(bracket: Bracket) -> StepValue {
        match bracket.is_exact() {
            true => StepValue::Number(bracket.estimate),
            false => StepValue::Bracket(Box::new(bracket)),
        }
    }

    /// The number; `None` of a distribution.
    pub fn number(&self) -> Option<f64> {
        match self {
            StepValue::Number(number) => Some(*number),
            StepValue::Bracket(bracket) => Some(bracket.estimate),
            StepValue::Histogram(_) | StepValue::Distribution(_) => None,
        }
    }

    /// The number as bounds; `None` of a distribution.
    pub fn bracket(&self) -> Option<Bracket> {
        match self {
            StepValue::Number(number) => Some(Bracket::exact(*number)),
            StepValue::Bracket(bracket) => Some(**bracket),
            StepValue::Histogram(_) | StepValue::Distribution(_) => None,
        }
    }

    /// The histogram as PromQL reckons with it; `None` of a number.
    pub fn histogram(&self) -> Option<Arc<FloatHistogram>> {
        match self {
            StepValue::Number(_) | StepValue::Bracket(_) => None,
            StepValue::Histogram(histogram) => Some(Arc::clone(histogram)),
            StepValue::Distribution(mixture) => Some(Arc::new(FloatHistogram::from(&**mixture))),
        }
    }

    /// Whether it is a distribution of either kind.
    pub fn is_distribution(&self) -> bool {
        matches!(self, StepValue::Histogram(_) | StepValue::Distribution(_))
    }

    /// For how many samples it counts towards the limit: Prometheus' measure, 16 bytes a sample.
    pub(crate) fn samples(&self) -> u64 {
        match self {
            StepValue::Number(_) | StepValue::Bracket(_) => 1,
            StepValue::Histogram(histogram) => {
                (histogram.positive.len() + histogram.negative.len()) as u64 + 8
            }
            StepValue::Distribution(mixture) => samples_of(mixture),
        }
    }
}

/// For how many samples a distribution counts.
pub(crate) fn samples_of(mixture: &Mixture) -> u64 {
    let of_part =
        |part: &hist::Histogram| (part.positive().len() + part.negative().len()) as u64 + 8;
    mixture.parts().iter().map(of_part).sum::<u64>().max(1)
}

/// Whether a number is the mark that says: from here on this series is no more. As Prometheus
/// writes it.
pub fn is_stale(number: f64) -> bool {
    number.to_bits() == STALE_BITS
}

/// The bits of that NaN.
pub const STALE_BITS: u64 = codecs::prometheus::STALE_MARKER;
