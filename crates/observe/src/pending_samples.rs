//! Distributions that the journal has not accepted yet, by series.
//!
//! A distribution of a later interval is added to that of an earlier one, so that their number is
//! bounded by that of the series.

use std::collections::BTreeMap;
use std::sync::Arc;

use hist::Histogram;
use wire::TracedOperations;

use crate::metrics::WireMetric;

/// Names and values of labels, in the order of the metric. The texts of a statement are shared by
/// its series.
pub(crate) type WireLabels = Vec<(&'static str, Arc<str>)>;

/// Metric and labels of a series.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireSeries {
    pub(crate) metric: &'static WireMetric,
    pub(crate) labels: WireLabels,
}

/// Events since `start`, in nanoseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub(crate) struct PendingHistogram {
    pub(crate) start: i64,
    pub(crate) histogram: Histogram,
    /// Some of the events with a trace.
    pub(crate) traced: TracedOperations,
}

/// Distributions by series.
#[derive(Debug, Default)]
pub(crate) struct PendingSamples(BTreeMap<WireSeries, PendingHistogram>);

impl PendingSamples {
    /// Adds the events of an interval that began at `start`, if there are any.
    pub(crate) fn add(&mut self, series: WireSeries, start: i64, histogram: &Histogram) {
        self.add_traced(series, start, histogram, &TracedOperations::default());
    }

    /// As [`Self::add`], with some of the events that have a trace.
    pub(crate) fn add_traced(
        &mut self,
        series: WireSeries,
        start: i64,
        histogram: &Histogram,
        traced: &TracedOperations,
    ) {
        if histogram.is_empty() {
            return;
        }
        let none = || {
            let (histogram, traced) = Default::default();
            PendingHistogram { start, histogram, traced }
        };
        let pending = self.0.entry(series).or_insert_with(none);
        pending.start = pending.start.min(start);
        pending.traced.merge(traced);
        let merged = pending.histogram.merge(histogram);
        assert!(merged.is_ok(), "BUG: histograms of one crate have one scheme: {merged:?}");
    }

    /// Adds the events of `other`.
    pub(crate) fn merge(&mut self, other: PendingSamples) {
        if self.0.is_empty() {
            self.0 = other.0;
            return;
        }
        for (series, pending) in other.0 {
            self.add_traced(series, pending.start, &pending.histogram, &pending.traced);
        }
    }

    pub(crate) fn pop_first(&mut self) -> Option<(WireSeries, PendingHistogram)> {
        self.0.pop_first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::LATENCY;

    fn one(value: f64) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.record(value);
        histogram
    }

    #[test]
    fn intervals_of_a_series_are_one_distribution() {
        let series = |service: &str| WireSeries {
            metric: &LATENCY,
            labels: vec![("service", service.into())],
        };
        let (mut pending, mut later) = (PendingSamples::default(), PendingSamples::default());
        pending.add(series("a"), 10, &one(1.0));
        pending.add(series("a"), 20, &Histogram::default());
        later.add(series("a"), 20, &one(2.0));
        later.add(series("b"), 20, &one(3.0));
        pending.merge(later);
        let (first, found) = pending.pop_first().unwrap();
        assert_eq!((first, found.start, found.histogram.count()), (series("a"), 10, 2));
        let (second, found) = pending.pop_first().unwrap();
        assert_eq!((second, found.start, found.histogram.count()), (series("b"), 20, 1));
        assert!(pending.pop_first().is_none());
    }
}
