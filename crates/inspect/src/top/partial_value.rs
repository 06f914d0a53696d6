//! Partial values: full histograms for selected series, counts for others.

use hist::Histogram;
use shm::snapshot::{MetricValue, NumericValue, ProcessSeries};

/// Series in a sample.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SampledSeries {
    /// Description and value: at the first sample, and for formats that identify series by name and
    /// labels only.
    New(ProcessSeries),
    /// A known series, at its index.
    Known(PartialValue),
}

/// Value, as far as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PartialValue {
    Full(MetricValue),
    /// Number of values of a histogram, including records in progress. Its buckets were not read,
    /// which takes a thousand times as long.
    CountOnly(u64),
}

#[cfg(test)]
impl SampledSeries {
    /// Whether it is a histogram with its buckets.
    pub(crate) fn has_buckets(&self) -> bool {
        matches!(
            self,
            SampledSeries::New(ProcessSeries { value: MetricValue::Histogram(_), .. })
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

    /// The histogram, if it was read.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        match self {
            PartialValue::Full(MetricValue::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    /// Number of values of a histogram; `None` for other kinds.
    pub(crate) fn recorded(&self) -> Option<u64> {
        match self {
            PartialValue::Full(MetricValue::Histogram(histogram)) => Some(histogram.count()),
            PartialValue::CountOnly(count) => Some(*count),
            PartialValue::Full(_) => None,
        }
    }

    /// Number of values as a counter.
    pub(crate) fn counter(&self) -> Option<MetricValue> {
        self.recorded().map(|count| MetricValue::Counter(NumericValue::Unsigned(count)))
    }
}
