//! Output of a line format: series and values, added to the thread's aggregator.

use std::fmt::Display;

use crate::metric_aggregator::{MetricAggregator, SeriesSlot};
use crate::series_aggregate::AggregateKind;

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineValue<'a> {
    /// Finite value.
    Number(f64),
    /// Change of a gauge.
    Delta(f64),
    /// Set member.
    Member(&'a [u8]),
    /// Value with its own timestamp, in nanoseconds since the Unix epoch.
    Point {
        /// Timestamp.
        time: i64,
        /// The value.
        value: f64,
    },
}

/// Sink of one packet of lines.
pub struct LineSink<'a> {
    aggregator: &'a mut MetricAggregator,
    /// Sender.
    from: &'a dyn Display,
    slot: SeriesSlot,
}

impl<'a> LineSink<'a> {
    pub(crate) fn new(aggregator: &'a mut MetricAggregator, from: &'a dyn Display) -> LineSink<'a> {
        let slot = SeriesSlot::new(AggregateKind::Points, aggregator.now());
        LineSink { aggregator, from, slot }
    }

    /// Current time, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.aggregator.now()
    }

    /// Selects the series of the following values. `kind` and the joined parts of `name` are the
    /// key from which `LineFormat::series` builds the series. A key has one aggregation. `time`
    /// selects the interval; the default is now.
    pub fn series(
        &mut self,
        kind: u8,
        name: &[&str],
        aggregation: AggregateKind,
        time: Option<i64>,
    ) {
        self.slot = SeriesSlot::new(aggregation, time.unwrap_or(self.aggregator.now()));
        self.aggregator.set_key(kind, name);
    }

    /// Adds a value to the series. `rate` is the sample rate: above 0, at most 1.
    pub fn value(&mut self, value: LineValue<'_>, rate: f64) {
        self.aggregator.add(&mut self.slot, value, rate);
    }

    /// Counts a valid line without a metric.
    pub fn skip(&mut self) {
        self.aggregator.skip_line();
    }

    /// Reports a line or value that cannot be parsed.
    pub fn reject(&mut self, reason: &dyn Display) {
        self.aggregator.reject(reason, self.from);
    }
}
