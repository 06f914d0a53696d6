//! Window of samples of a range function.

use std::ops::Range;
use std::sync::Arc;

use crate::error::SourceSpan;
use crate::histogram::FloatHistogram;
use crate::plan::RangeExtension;
use crate::stream::{SeriesPoint, SeriesPoints};

/// Sample of one kind. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct TimedPoint<T> {
    /// Start timestamp; the sample's own time if there is none or it is not used.
    pub(super) start: i64,
    pub(super) time: i64,
    pub(super) value: T,
}

impl<T> TimedPoint<T> {
    /// Whether this sample's start timestamp shows a counter reset after an earlier sample. A start
    /// at the time of the earlier sample shows a reset only if that one has a start timestamp too:
    /// then each counts its own interval.
    pub(super) fn is_restart_after(&self, earlier: &TimedPoint<T>) -> bool {
        if self.start == earlier.start || self.start >= self.time || self.start < earlier.time {
            return false;
        }
        self.start > earlier.time || earlier.start < earlier.time
    }

    /// Whether both count an interval, the earlier one only a part of it.
    pub(super) fn overlaps(&self, earlier: &TimedPoint<T>) -> bool {
        self.start < earlier.time && self.start != earlier.start
    }
}

pub(super) type FloatPoint = TimedPoint<f64>;
pub(super) type HistogramPoint = TimedPoint<Arc<FloatHistogram>>;

/// Item with a timestamp, in time order.
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

/// Number of items at or before a timestamp.
pub(super) fn count_until(points: &[impl HasTime], timestamp: i64) -> usize {
    points.partition_point(|point| point.time() <= timestamp)
}

/// Samples of one series, raw or split into floats and histograms.
#[derive(Default)]
pub(super) struct SeriesSamples {
    pub(super) samples: Vec<SeriesPoint>,
    pub(super) floats: Vec<FloatPoint>,
    pub(super) histograms: Vec<HistogramPoint>,
    /// Whether the samples are running totals of deltas.
    pub(super) is_running_total: bool,
}

impl SeriesSamples {
    /// Unsplit samples.
    pub(super) fn with_samples(samples: SeriesPoints) -> SeriesSamples {
        SeriesSamples { samples: samples.points, ..SeriesSamples::default() }
    }

    /// Splits samples by kind; start timestamps are kept if they are used.
    pub(super) fn split(samples: SeriesPoints, keeps_starts: bool) -> SeriesSamples {
        let mut series = SeriesSamples {
            is_running_total: samples.is_running_total,
            ..SeriesSamples::default()
        };
        for SeriesPoint { start, time, value } in samples.points {
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

/// Windows of all samples of a series.
#[derive(Default)]
pub(super) struct WindowCursors {
    samples: WindowCursor,
    floats: WindowCursor,
    histograms: WindowCursor,
}

impl WindowCursors {
    /// Items after one timestamp and at or before another, neither of which may decrease between
    /// calls.
    pub(super) fn advance<'a>(
        &mut self,
        series: &'a SeriesSamples,
        after: i64,
        until: i64,
    ) -> (&'a [SeriesPoint], &'a [FloatPoint], &'a [HistogramPoint]) {
        (
            self.samples.advance(&series.samples, after, until),
            self.floats.advance(&series.floats, after, until),
            self.histograms.advance(&series.histograms, after, until),
        )
    }
}

/// Window of a range function at a step.
pub(crate) struct RangeWindow<'a> {
    /// Span of the function in the expression.
    pub(super) span: SourceSpan,
    /// Timestamp of the step.
    pub(super) time: i64,
    /// Start of the window, exclusive.
    pub(super) start: i64,
    /// End of the window, inclusive.
    pub(super) end: i64,
    /// Length of the window.
    pub(super) range: i64,
    /// Extension: which samples beyond the boundaries are included.
    pub(super) extension: RangeExtension,
    pub(super) floats: &'a [FloatPoint],
    pub(super) histograms: &'a [HistogramPoint],
    /// Whether the samples are running totals of deltas, which were never zero.
    pub(super) is_running_total: bool,
    /// Number arguments in order, without the range vector.
    pub(super) args: &'a [f64],
}

impl RangeWindow<'_> {
    /// Length in seconds. Differs from [`crate::seconds`]: whole seconds and the remainder are
    /// added, as in Prometheus.
    pub(super) fn seconds(&self) -> f64 {
        const SECOND: i64 = 1_000_000_000;
        (self.range / SECOND) as f64 + (self.range % SECOND) as f64 / 1e9
    }

    /// Whether the window has floats and histograms.
    pub(super) fn is_mixed(&self) -> bool {
        !self.floats.is_empty() && !self.histograms.is_empty()
    }
}

/// Milliseconds: Prometheus multiplies by these, which determines the rounding.
pub(super) fn millis(nanos: i64) -> f64 {
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000) as f64,
        _ => nanos as f64 / 1e6,
    }
}
