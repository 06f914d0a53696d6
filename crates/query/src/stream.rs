//! Streams: values of one thing on the steps of a question.

use crate::labels::LabelSet;
use crate::value::StepValue;

/// Evaluation timestamps: start, step, count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepGrid {
    /// The first, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Nanoseconds from one to the next; of one moment, 1.
    pub step: i64,
    /// How many.
    pub count: usize,
}

impl StepGrid {
    /// One moment.
    pub fn at(time: i64) -> StepGrid {
        StepGrid { start: time, step: 1, count: 1 }
    }

    /// From a moment to another, both included where the step fits.
    pub fn covering(start: i64, end: i64, step: i64) -> StepGrid {
        let step = step.max(1);
        // From one end of time to the other it is farther than an `i64` can say.
        let count = match i128::from(end) - i128::from(start) {
            length if length >= 0 => length / i128::from(step) + 1,
            _ => 0,
        };
        StepGrid { start, step, count: usize::try_from(count).unwrap_or(usize::MAX) }
    }

    /// A moment.
    pub fn time(&self, at: usize) -> i64 {
        let time = i128::from(self.start) + i128::from(self.step) * at as i128;
        time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The last moment; the first where there is none.
    pub fn end(&self) -> i64 {
        self.time(self.count.saturating_sub(1))
    }

    /// All of them.
    pub fn times(&self) -> impl Iterator<Item = i64> + use<> {
        let steps = *self;
        (0..steps.count).map(move |at| steps.time(at))
    }

    /// Whether it is one moment.
    pub fn is_instant(&self) -> bool {
        self.count == 1
    }
}

/// Stream: one optional value per step.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// What it is called.
    pub labels: LabelSet,
    /// Its metric's name does not describe it any more, and goes when the answer is complete.
    pub drops_name: bool,
    /// The values, as many as there are steps.
    pub points: Vec<Option<StepValue>>,
}

impl Stream {
    /// Of some points.
    pub fn new(labels: LabelSet, points: Vec<Option<StepValue>>) -> Stream {
        Stream { labels, drops_name: false, points }
    }

    /// Whether it has no value at all.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(Option::is_none)
    }

    /// For how many samples it counts towards the limit.
    pub(crate) fn samples(&self) -> u64 {
        self.points.iter().flatten().map(StepValue::samples).sum()
    }
}

/// A number in seconds, of nanoseconds; what is whole milliseconds is as near as a double can be.
pub fn seconds(nanos: i64) -> f64 {
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000) as f64 / 1e3,
        _ => nanos as f64 / 1e9,
    }
}

/// Points of one series, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesPoints {
    /// What the series is called.
    pub labels: LabelSet,
    /// Its metric's name does not describe it any more.
    pub drops_name: bool,
    /// The readings, by time.
    pub points: Vec<SeriesPoint>,
    /// They are sums of what happened up to them: how much the first has says only since when it
    /// was added up.
    pub is_running_total: bool,
}

/// Point: timestamp and value.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPoint {
    /// Since when it counts, if the source says so.
    pub start: Option<i64>,
    /// When it was made.
    pub time: i64,
    /// What was read; a number or a distribution.
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
