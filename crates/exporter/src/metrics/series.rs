//! Series: registered at the first record; after that a record takes a few instructions.

use std::collections::BTreeMap;

use metrics::{Key, Unit};

use super::names;
use super::rejected::{RejectedValues, ValueRejectReason};
use crate::lazy::{LazyMetric, RegistrationError};

/// Shared-memory metric behind a series of the `metrics` crate.
pub(super) trait BackingMetric: Sized {
    /// Registers the metric; values arrive in this unit.
    fn register(description: shm::MetricBuilder, unit: Option<Unit>) -> shm::Result<Self>;
}

pub(super) struct MetricSeries<T> {
    key: Key,
    metric: LazyMetric<T>,
    /// Whether series beyond the limit are combined here.
    pub(super) is_overflow: bool,
    pub(super) rejected: RejectedValues,
}

impl<T> MetricSeries<T> {
    pub(super) fn new(key: Key, is_overflow: bool) -> MetricSeries<T> {
        let refused = RejectedValues::new(key.name());
        MetricSeries { key, metric: LazyMetric::new(), is_overflow, rejected: refused }
    }

    /// Series beyond the limit: all its records are rejected.
    pub(super) fn over_limit(key: Key) -> MetricSeries<T> {
        MetricSeries { metric: LazyMetric::unavailable(), ..MetricSeries::new(key, false) }
    }
}

impl<T: BackingMetric> MetricSeries<T> {
    /// The shared-memory metric, if there is one. If there will never be one, the record counts as
    /// rejected.
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
        // Of duplicate labels the last one wins; shared memory would reject them.
        let labels: BTreeMap<_, _> =
            self.key.labels().map(|label| (label.key(), label.value())).collect();
        let labelled =
            |description: shm::MetricBuilder, (name, value)| description.label(name, value);
        T::register(labels.into_iter().fold(description, labelled), unit)
    }
}
