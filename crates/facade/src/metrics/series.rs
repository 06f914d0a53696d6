//! A series: registered when it is recorded to for the first time, then a few instructions from its
//! cells.

use std::collections::BTreeMap;

use metrics::{Key, Unit};

use super::names;
use super::rejected::{RejectedValues, ValueRejectReason};
use crate::lazy::{LazyMetric, RegistrationError};

/// Shared-memory metric behind a series of the `metrics` crate.
pub(super) trait BackingMetric: Sized {
    /// Registers it; values come in this unit.
    fn register(description: shm::MetricBuilder, unit: Option<Unit>) -> shm::Result<Self>;
}

pub(super) struct MetricSeries<T> {
    key: Key,
    metric: LazyMetric<T>,
    /// Whether series that have no place of their own are counted here together.
    pub(super) is_overflow: bool,
    pub(super) rejected: RejectedValues,
}

impl<T> MetricSeries<T> {
    pub(super) fn new(key: Key, is_overflow: bool) -> MetricSeries<T> {
        let refused = RejectedValues::new(key.name());
        MetricSeries { key, metric: LazyMetric::new(), is_overflow, rejected: refused }
    }

    /// One too many: whatever is recorded is refused.
    pub(super) fn over_limit(key: Key) -> MetricSeries<T> {
        MetricSeries { metric: LazyMetric::unavailable(), ..MetricSeries::new(key, false) }
    }
}

impl<T: BackingMetric> MetricSeries<T> {
    /// What it is in shared memory, if anything; what is recorded where there is none, and never
    /// will be, counts as refused.
    #[inline(always)]
    pub(super) fn metric(&self) -> Option<&T> {
        match self.metric.get(|| self.register()) {
            Ok(shown) => Some(shown),
            Err(missing) => {
                if missing == RegistrationError::Permanent {
                    self.rejected.count(ValueRejectReason::NoSeries);
                }
                None
            }
        }
    }

    fn register(&self) -> shm::Result<T> {
        let (unit, help) = names::fix_description(self.key.name_shared());
        let description = shm::MetricBuilder::new(self.key.name()).help(help);
        // Of labels that come twice the last one counts; shared memory would refuse them.
        let labels: BTreeMap<_, _> =
            self.key.labels().map(|label| (label.key(), label.value())).collect();
        let labelled =
            |description: shm::MetricBuilder, (name, value)| description.label(name, value);
        T::register(labels.into_iter().fold(description, labelled), unit)
    }
}
