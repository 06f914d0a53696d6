//! Rejected values: `exporter_rejected_total{metric,reason}`.

use crate::lazy::LazyMetric;

const NAME: &str = "exporter_rejected_total";
const HELP: &str = "Values and descriptions rejected, by metric and reason.";
/// Metric names are truncated to this length: the name may be the reason of the rejection.
const METRIC_BYTES_MAX: usize = 512;

/// Reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueRejectReason {
    /// Negative; histograms start at 0.
    Negative,
    /// NaN.
    NotANumber,
    /// Exceeds the integers of the unit.
    TooLarge,
    /// The name has another kind or is invalid, or the limit of series is reached.
    NoSeries,
    /// Values of this name were recorded before, with another unit or help text.
    LateDescription,
}

const REASONS: [&str; 5] = ["negative", "nan", "too_large", "no_series", "late_description"];

/// Counters of rejected values of one metric, by reason.
pub(super) struct RejectedValues {
    metric: Box<str>,
    counters: [LazyMetric<shm::Counter>; REASONS.len()],
}

impl RejectedValues {
    pub(super) fn new(metric: &str) -> RejectedValues {
        let metric = metric[..metric.floor_char_boundary(METRIC_BYTES_MAX)].into();
        RejectedValues { metric, counters: [const { LazyMetric::new() }; REASONS.len()] }
    }

    #[cold]
    pub(super) fn count(&self, reason: ValueRejectReason) {
        self.count_many(reason, 1);
    }

    #[cold]
    pub(super) fn count_many(&self, reason: ValueRejectReason, n: u64) {
        let counter = self.counters[reason as usize].get(|| {
            let description =
                shm::MetricBuilder::new(NAME).help(HELP).unit("").role(shm::MetricRole::Error);
            let reason = REASONS[reason as usize];
            description.label("metric", &*self.metric).label("reason", reason).counter()
        });
        if let Ok(counter) = counter {
            counter.add(n);
        }
    }
}
