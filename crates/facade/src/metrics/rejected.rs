//! What has no place, counted: `facade_rejected_total{metric,reason}`.

use crate::lazy::LazyMetric;

const NAME: &str = "facade_rejected_total";
const HELP: &str = "Values and descriptions rejected, by metric and reason.";
/// A metric's name is cut after so many bytes: what is refused may be the name.
const METRIC_BYTES_MAX: usize = 512;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueRejectReason {
    /// Histograms count from 0 on.
    Negative,
    /// It is not a number.
    NotANumber,
    /// The unit's whole numbers do not reach so far.
    TooLarge,
    /// The name has another kind or cannot be one, or there are too many series.
    NoSeries,
    /// Values of this name were recorded before, in another unit or with another help.
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
