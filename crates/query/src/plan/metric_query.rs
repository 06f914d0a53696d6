//! CAQL source: a statistic of the metrics that a search finds.

use model::Selector;

use crate::error::SourceSpan;

/// Statistic read of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricStatistic {
    Average,
    Count,
    Sum,
    Stddev,
    /// Increase per second.
    Counter,
    CounterStddev,
    /// Change per second.
    Derivative,
    DerivativeStddev,
    Histogram,
}

/// Metric selection and statistic.
#[derive(Clone, Debug)]
pub(crate) struct MetricQuery {
    pub(crate) statistic: MetricStatistic,
    pub(crate) selector: Selector,
    /// Maximum number of metrics.
    pub(crate) limit: usize,
    /// Delay before the slot in nanoseconds.
    pub(crate) delay: i64,
    /// Canonical name, if only one metric is meant.
    pub(crate) metric: Option<String>,
    pub(crate) span: SourceSpan,
}
