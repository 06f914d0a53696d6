//! Window of samples of a range function.

use std::ops::Range;
use std::sync::Arc;

use crate::error::SourceSpan;
use crate::histogram::FloatHistogram;
use crate::plan::RangeExtension;
use crate::stream::{SeriesPoint, SeriesPoints};

/// A reading of one kind of value. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct TimedPoint<T> {
    /// Since when it counts; its own time, where that is not known or not to be used.
    pub(super) start: i64,
    pub(super) time: i64,
    pub(super) value: T,
}

impl<T> TimedPoint<T> {
    /// Whether this one's start says that the counter began anew after an earlier reading. A start
    /// at the earlier reading says so only where the earlier one knew its own: then each counts
    /// what was new.
    pub(super) fn is_restart_after(&self, earlier: &TimedPoint<T>) -> bool {
        if self.start == earlier.start || self.start >= self.time || self.start < earlier.time {
            return false;
        }
        self.start > earlier.time || earlier.start < earlier.time
    }

    /// Whether both count a stretch of time, the earlier one only a part of it.
    pub(super) fn overlaps(&self, earlier: &TimedPoint<T>) -> bool {
        self.start < earlier.time && self.start != earlier.start
    }
}

pub(super) type FloatPoint = TimedPoint<f64>;
pub(super) type HistogramPoint = TimedPoint<Arc<FloatHistogram>>;

/// What has a time, in an order of it.
pub(super) trait HasTime {
    fn time(&self) -> i64;
}

impl<T> HasTime for TimedPoint<T> {
    fn time(&self) -> i64 {
        self.time
    }
}

impl HasTime for SeriesPoint {
    fn time(&self) -> i64 {
        self.time
    }
}

/// How many are not after a moment.
pub(super) fn count_until(points: &[impl HasTime], moment: i64) -> usize {
    points.partition_point(|point| point.time() <= moment)
}

/// Samples of one series, raw or split into floats and histograms.
#[derive(Default)]
pub(super) struct SeriesReadings {
    pub(super) readings: Vec<SeriesPoint>,
    pub(super) floats: Vec<FloatPoint>,
    pub(super) histograms: Vec<HistogramPoint>,
    /// They are sums of what happened up to them.
    pub(super) is_running_total: bool,
}

impl SeriesReadings {
    /// As they came.
    pub(super) fn with_readings(readings: SeriesPoints) -> SeriesReadings {
        SeriesReadings { readings: readings.points, ..SeriesReadings::default() }
    }

    /// Apart; starts are kept if they are to be used.
    pub(super) fn split(readings: SeriesPoints, keeps_starts: bool) -> SeriesReadings {
        let mut series = SeriesReadings {
            is_running_total: readings.is_running_total,
            ..SeriesReadings::default()
        };
        for SeriesPoint { start, time, value } in readings.points {
            let start = start.filter(|_| keeps_starts).unwrap_or(time);
            if let Some(value) = value.number() {
                series.floats.push(TimedPoint { start, time, value });
            } else if let Some(value) = value.histogram() {
                series.histograms.push(TimedPoint { start, time, value });
            }
        }
        series
    }
}

/// Sliding index range of a window.
#[derive(Default)]
struct WindowCursor(Range<usize>);

impl WindowCursor {
    fn advance<'a, T: HasTime>(&mut self, points: &'a [T], after: i64, until: i64) -> &'a [T] {
        let Range { start, end } = &mut self.0;
        while points.get(*end).is_some_and(|point| point.time() <= until) {
            *end += 1;
        }
        while *start < *end && points[*start].time() <= after {
            *start += 1;
        }
        &points[self.0.clone()]
    }
}

/// The places of all of a series' readings.
#[derive(Default)]
pub(super) struct WindowCursors {
    readings: WindowCursor,
    floats: WindowCursor,
    histograms: WindowCursor,
}

impl WindowCursors {
    /// What lies after one moment and not after another, neither of which was later before.
    pub(super) fn advance<'a>(
        &mut self,
        series: &'a SeriesReadings,
        after: i64,
        until: i64,
    ) -> (&'a [SeriesPoint], &'a [FloatPoint], &'a [HistogramPoint]) {
        (
            self.readings.advance(&series.readings, after, until),
            self.floats.advance(&series.floats, after, until),
            self.histograms.advance(&series.histograms, after, until),
        )
    }
}

/// Window of a range function at a step.
pub(crate) struct RangeWindow<'a> {
    /// Of the function in the expression.
    pub(super) span: SourceSpan,
    /// The step.
    pub(super) time: i64,
    /// Where the stretch begins; readings of this moment are not in it.
    pub(super) start: i64,
    /// Where it ends; readings of this moment are in it.
    pub(super) end: i64,
    /// How long it is.
    pub(super) range: i64,
    /// Which readings beyond the ends there are too.
    pub(super) extension: RangeExtension,
    pub(super) floats: &'a [FloatPoint],
    pub(super) histograms: &'a [HistogramPoint],
    /// The readings are sums of what happened up to them, and were never nought.
    pub(super) is_running_total: bool,
    /// Numbers, in the order of the arguments without the readings.
    pub(super) args: &'a [f64],
}

impl RangeWindow<'_> {
    /// Seconds of the stretch. Not [`crate::seconds`]: whole seconds and the rest are added, as
    /// Prometheus does.
    pub(super) fn seconds(&self) -> f64 {
        const SECOND: i64 = 1_000_000_000;
        (self.range / SECOND) as f64 + (self.range % SECOND) as f64 / 1e9
    }

    /// Whether there are numbers and histograms.
    pub(super) fn is_mixed(&self) -> bool {
        !self.floats.is_empty() && !self.histograms.is_empty()
    }
}

/// Milliseconds: Prometheus multiplies by these, and so rounds as they do.
pub(super) fn millis(nanos: i64) -> f64 {
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000) as f64,
        _ => nanos as f64 / 1e6,
    }
}
