//! Partial values: full histograms for selected series, counts for others.

use hist::Histogram;
use shm::snapshot::{MetricValue, NumericValue, ProcessMetric};

/// A series in a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SampledSeries {
    /// What it is, and its value: at the first look at it, and where a format tells series apart by
    /// nothing but that.
    New(ProcessMetric),
    /// One that is known, in its place.
    Known(PartialValue),
}

/// A value, as far as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Full(MetricValue),
    /// A histogram has so many values. Its buckets were not read, which takes a thousand times as
    /// long; a record that was under way is among them.
    CountOnly(u64),
}

#[cfg(test)]
impl SampledSeries {
    /// Whether it is a histogram with all its buckets.
    pub(crate) fn has_buckets(&self) -> bool {
        matches!(
            self,
            SampledSeries::New(ProcessMetric { value: MetricValue::Histogram(_), .. })
                | SampledSeries::Known(PartialValue::Full(MetricValue::Histogram(_)))
        )
    }
}

impl PartialValue {
    /// The value, if it was read.
    pub(crate) fn value(&self) -> Option<&MetricValue> {
        match self {
            PartialValue::Full(value) => Some(value),
            PartialValue::CountOnly(_) => None,
        }
    }

    /// All that was recorded, if it was read.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        match self {
            PartialValue::Full(MetricValue::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    /// How many values a histogram has; `None` of what is no histogram.
    pub(crate) fn recorded(&self) -> Option<u64> {
        match self {
            PartialValue::Full(MetricValue::Histogram(histogram)) => Some(histogram.count()),
            PartialValue::CountOnly(count) => Some(*count),
            PartialValue::Full(_) => None,
        }
    }

    /// The same as a counter.
    pub(crate) fn counter(&self) -> Option<MetricValue> {
        self.recorded().map(|count| MetricValue::Counter(NumericValue::Unsigned(count)))
    }
}
