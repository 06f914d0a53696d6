//! Streams: values at the steps of a query.

use crate::labels::LabelSet;
use crate::value::StepValue;

/// Evaluation timestamps: start, step, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepGrid {
    /// First step in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Distance of steps in nanoseconds; 1 for a single step.
    pub step: i64,
    /// Number of steps.
    pub count: usize,
}

impl StepGrid {
    /// Single step.
    pub fn at(time: i64) -> StepGrid {
        StepGrid { start: time, step: 1, count: 1 }
    }

    /// Steps from start to end, the end included if the step divides the range.
    pub fn covering(start: i64, end: i64, step: i64) -> StepGrid {
        let step = step.max(1);
        // The full time range exceeds an `i64`.
        let count = match i128::from(end) - i128::from(start) {
            length if length >= 0 => length / i128::from(step) + 1,
            _ => 0,
        };
        StepGrid { start, step, count: usize::try_from(count).unwrap_or(usize::MAX) }
    }

    /// Timestamp of a step.
    pub fn time(&self, at: usize) -> i64 {
        let time = i128::from(self.start) + i128::from(self.step) * at as i128;
        time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// Last timestamp; the start if there are no steps.
    pub fn end(&self) -> i64 {
        self.time(self.count.saturating_sub(1))
    }

    /// All timestamps.
    pub fn times(&self) -> impl Iterator<Item = i64> + use<> {
        let steps = *self;
        (0..steps.count).map(move |at| steps.time(at))
    }

    /// Whether there is a single step.
    pub fn is_instant(&self) -> bool {
        self.count == 1
    }
}

/// Stream: one optional value per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Labels.
    pub labels: LabelSet,
    /// Whether the metric name no longer describes the values and is removed at the end of the
    /// evaluation.
    pub drops_name: bool,
    /// One value for each step.
    pub points: Vec<Option<StepValue>>,
}

impl Stream {
    /// Stream with these points.
    pub fn new(labels: LabelSet, points: Vec<Option<StepValue>>) -> Stream {
        Stream { labels, drops_name: false, points }
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(Option::is_none)
    }

    /// Sample count towards `max_samples`.
    pub(crate) fn samples(&self) -> u64 {
        self.points.iter().flatten().map(StepValue::samples).sum()
    }
}

/// Nanoseconds as seconds; whole milliseconds convert to the nearest double.
pub fn seconds(nanos: i64) -> f64 {
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000) as f64 / 1e3,
        _ => nanos as f64 / 1e9,
    }
}

/// Points of one series, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesPoints {
    /// Labels of the series.
    pub labels: LabelSet,
    /// Whether the metric name no longer describes the values.
    pub drops_name: bool,
    /// Points by time.
    pub points: Vec<SeriesPoint>,
    /// Whether the points are running totals of deltas: then the first value depends only on where
    /// the summation started.
    pub is_running_total: bool,
}

/// Point: timestamp and value.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// Start timestamp, if the source has one.
    pub start: Option<i64>,
    /// Timestamp.
    pub time: i64,
    /// Number or distribution.
    pub value: StepValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: i64, end: i64, step: i64, expected: &[i64]) {
        let steps = StepGrid::covering(start, end, step);
        assert_eq!(steps.times().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn step_grid_covers_i64_range() {
        check(0, 10, 4, &[0, 4, 8]);
        check(7, 7, 1, &[7]);
        check(7, 6, 1, &[]);
        check(i64::MIN, i64::MAX, i64::MAX, &[i64::MIN, -1, i64::MAX - 1]);
        assert_eq!(StepGrid::covering(0, i64::MAX, 1).count, 1 << 63);
    }
}
