//! Streams: values of one thing on the steps of a question.

use crate::labels::Labels;
use crate::value::Value;

/// The moments that a question is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Steps {
    /// The first, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// Nanoseconds from one to the next; of one moment, 1.
    pub step: i64,
    /// How many.
    pub count: usize,
}

impl Steps {
    /// One moment.
    pub fn at(time: i64) -> Steps {
        Steps { start: time, step: 1, count: 1 }
    }

    /// From a moment to another, both included where the step fits.
    pub fn over(start: i64, end: i64, step: i64) -> Steps {
        let step = step.max(1);
        let count = match end >= start {
            true => (end.abs_diff(start) / step.unsigned_abs()).saturating_add(1),
            false => 0,
        };
        Steps { start, step, count: usize::try_from(count).unwrap_or(usize::MAX) }
    }

    /// A moment.
    pub fn time(&self, at: usize) -> i64 {
        self.start.saturating_add(self.step.saturating_mul(at as i64))
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

/// Values of one thing, one or none for each step.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// What it is called.
    pub labels: Labels,
    /// Its metric's name does not describe it any more, and goes when the answer is complete.
    pub drops_name: bool,
    /// The values, as many as there are steps.
    pub points: Vec<Option<Value>>,
}

impl Stream {
    /// Of some points.
    pub fn new(labels: Labels, points: Vec<Option<Value>>) -> Stream {
        Stream { labels, drops_name: false, points }
    }

    /// Whether it has no value at all.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(Option::is_none)
    }

    /// For how many samples it counts towards the limit.
    pub(crate) fn samples(&self) -> u64 {
        self.points.iter().flatten().map(Value::samples).sum()
    }
}

/// A number in seconds, of nanoseconds; what is whole milliseconds is as near as a double can be.
pub fn seconds(nanos: i64) -> f64 {
    match nanos % 1_000_000 {
        0 => (nanos / 1_000_000) as f64 / 1e3,
        _ => nanos as f64 / 1e9,
    }
}

/// Readings of one series as they came, oldest first: what a range selector picks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readings {
    /// What the series is called.
    pub labels: Labels,
    /// Its metric's name does not describe it any more.
    pub drops_name: bool,
    /// The readings, by time.
    pub readings: Vec<Reading>,
    /// They are sums of what happened up to them: how much the first has says only since when it was added up.
    pub is_running: bool,
}

/// One reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Since when it counts, if the source says so.
    pub start: Option<i64>,
    /// When it was made.
    pub time: i64,
    /// What was read; a number or a distribution.
    pub value: Value,
}
