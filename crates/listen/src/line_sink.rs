//! What a format of lines writes to: series and their values, into a thread's aggregator.

use std::fmt::Display;

use crate::metric_aggregator::{MetricAggregator, SeriesPlace};
use crate::series_aggregate::AggregateKind;

/// A value of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LineValue<'a> {
    /// A finite number.
    Number(f64),
    /// By how much a gauge changes.
    Delta(f64),
    /// Of a set.
    Member(&'a [u8]),
    /// A value with a time of its own, in nanoseconds since the Unix epoch.
    Point {
        /// The time.
        time: i64,
        /// The value.
        value: f64,
    },
}

/// The sink of a packet of lines.
pub struct LineSink<'a> {
    aggregator: &'a mut MetricAggregator,
    /// Who sent it.
    from: &'a dyn Display,
    place: SeriesPlace,
}

impl<'a> LineSink<'a> {
    pub(crate) fn new(aggregator: &'a mut MetricAggregator, from: &'a dyn Display) -> LineSink<'a> {
        let place = SeriesPlace::new(AggregateKind::Points, aggregator.now());
        LineSink { aggregator, from, place }
    }

    /// The time, in nanoseconds since the Unix epoch.
    pub fn now(&self) -> i64 {
        self.aggregator.now()
    }

    /// The values that follow are of this series. `kind` and `name` are the key by which
    /// `LineFormat::series` makes it; parts of the name are put together. A key has one
    /// aggregation. `time` says which interval the values belong to: now, if it is not given.
    pub fn series(
        &mut self,
        kind: u8,
        name: &[&str],
        aggregation: AggregateKind,
        time: Option<i64>,
    ) {
        self.place = SeriesPlace::new(aggregation, time.unwrap_or(self.aggregator.now()));
        self.aggregator.set_key(kind, name);
    }

    /// A value of the series. `rate` is the share of values that are sent: above 0, up to 1.
    pub fn value(&mut self, value: LineValue<'_>, rate: f64) {
        self.aggregator.add(&mut self.place, value, rate);
    }

    /// A line that was understood and holds no metric.
    pub fn skip(&mut self) {
        self.aggregator.skip_line();
    }

    /// A line, or a value of one, that cannot be read.
    pub fn reject(&mut self, why: &dyn Display) {
        self.aggregator.reject(why, self.from);
    }
}
