//! What a source reads: a statistic of the metrics that a search finds.

use model::Selector;

use crate::error::SourceSpan;

/// Statistic read of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricStatistic {
    Average,
    Count,
    Sum,
    Stddev,
    /// What was added, per second.
    Counter,
    CounterStddev,
    /// The change per second.
    Derivative,
    DerivativeStddev,
    Histogram,
}

/// Metric selection and statistic.
#[derive(Clone, Debug)]
pub(crate) struct MetricQuery {
    pub(crate) statistic: MetricStatistic,
    pub(crate) selector: Selector,
    /// How many metrics at the most.
    pub(crate) limit: usize,
    /// How long before its slot it is read.
    pub(crate) delay: i64,
    /// The one metric that is meant.
    pub(crate) metric: Option<String>,
    pub(crate) span: SourceSpan,
}
