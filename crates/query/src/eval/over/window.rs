//! The readings that a function over time sees at a step.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Place;
use crate::histogram::FloatHistogram;
use crate::plan::Extension;
use crate::stream::{Reading, Readings};

/// A reading of one kind of value. Times are nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Point<T> {
    /// Since when it counts; its own time, where that is not known or not to be used.
    pub(super) start: i64,
    pub(super) time: i64,
    pub(super) value: T,
}

impl<T> Point<T> {
    /// Whether this one's start says that the counter began anew after an earlier reading. A start at the
    /// earlier reading says so only where the earlier one knew its own: then each counts what was new.
    pub(super) fn starts_anew_after(&self, earlier: &Point<T>) -> bool {
        if self.start == earlier.start || self.start >= self.time || self.start < earlier.time {
            return false;
        }
        self.start > earlier.time || earlier.start < earlier.time
    }

    /// Whether both count a stretch of time, the earlier one only a part of it.
    pub(super) fn overlaps(&self, earlier: &Point<T>) -> bool {
        self.start < earlier.time && self.start != earlier.start
    }
}

pub(super) type Float = Point<f64>;
pub(super) type Histogram = Point<Arc<FloatHistogram>>;

/// What has a time, in an order of it.
pub(super) trait Timed {
    fn time(&self) -> i64;
}

impl<T> Timed for Point<T> {
    fn time(&self) -> i64 {
        self.time
    }
}

impl Timed for Reading {
    fn time(&self) -> i64 {
        self.time
    }
}

/// How many are not after a moment.
pub(super) fn until(points: &[impl Timed], moment: i64) -> usize {
    points.partition_point(|point| point.time() <= moment)
}

/// The readings of one series: as they came, or numbers and histograms apart.
#[derive(Default)]
pub(super) struct Series {
    pub(super) readings: Vec<Reading>,
    pub(super) floats: Vec<Float>,
    pub(super) histograms: Vec<Histogram>,
    /// They are sums of what happened up to them.
    pub(super) is_running: bool,
}

impl Series {
    /// As they came.
    pub(super) fn whole(readings: Readings) -> Series {
        Series { readings: readings.readings, ..Series::default() }
    }

    /// Apart; starts are kept if they are to be used.
    pub(super) fn apart(readings: Readings, keeps_starts: bool) -> Series {
        let mut series = Series { is_running: readings.is_running, ..Series::default() };
        for Reading { start, time, value } in readings.readings {
            let start = start.filter(|_| keeps_starts).unwrap_or(time);
            if let Some(value) = value.number() {
                series.floats.push(Point { start, time, value });
            } else if let Some(value) = value.histogram() {
                series.histograms.push(Point { start, time, value });
            }
        }
        series
    }
}

/// Which of some readings are within the stretch of time, that moves on with the steps.
#[derive(Default)]
struct Cursor(Range<usize>);

impl Cursor {
    fn within<'a, T: Timed>(&mut self, points: &'a [T], after: i64, until: i64) -> &'a [T] {
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
pub(super) struct Cursors {
    readings: Cursor,
    floats: Cursor,
    histograms: Cursor,
}

impl Cursors {
    /// What lies after one moment and not after another, neither of which was later before.
    pub(super) fn within<'a>(
        &mut self,
        series: &'a Series,
        after: i64,
        until: i64,
    ) -> (&'a [Reading], &'a [Float], &'a [Histogram]) {
        (
            self.readings.within(&series.readings, after, until),
            self.floats.within(&series.floats, after, until),
            self.histograms.within(&series.histograms, after, until),
        )
    }
}

/// What a function works on at a step.
pub(super) struct Window<'a> {
    /// Of the function in the expression.
    pub(super) place: Place,
    /// The step.
    pub(super) time: i64,
    /// Where the stretch begins; readings of this moment are not in it.
    pub(super) start: i64,
    /// Where it ends; readings of this moment are in it.
    pub(super) end: i64,
    /// How long it is.
    pub(super) range: i64,
    /// Which readings beyond the ends there are too.
    pub(super) extension: Extension,
    pub(super) floats: &'a [Float],
    pub(super) histograms: &'a [Histogram],
    /// The readings are sums of what happened up to them, and were never nought.
    pub(super) is_running: bool,
    /// Numbers, in the order of the arguments without the readings.
    pub(super) args: &'a [f64],
}

impl Window<'_> {
    /// Seconds of the stretch. Not [`crate::seconds`]: whole seconds and the rest are added, as Prometheus does.
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
