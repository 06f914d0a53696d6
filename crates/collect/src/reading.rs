//! What sources yield, and who takes it.

use std::ops::ControlFlow;

use hist::Histogram;

use crate::trouble::Trouble;
use crate::unit::Unit;

/// One value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// Name of what was measured; empty where the format has no names.
    pub metric: String,
    /// What tells series of one name apart, in the order of the source; a tag is the label `tag`.
    pub labels: Vec<(String, String)>,
    /// Unit of the values, where the source says or its convention does.
    pub unit: Option<Unit>,
    /// When what was measured began, in nanoseconds since the Unix epoch.
    pub start: Option<i64>,
    /// When it ended.
    pub end: Option<i64>,
    /// How the value belongs to that time.
    pub over: Over,
    /// The value.
    pub value: Value,
}

/// How a value belongs to its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// What happened between start and end; of two of them, both happened.
    Interval,
    /// All that happened up to the end, since the source began to count: differences say what happened.
    Total,
    /// How it was at the end.
    Moment,
}

/// What a reading holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A distribution, on its source's own buckets.
    Histogram(Box<Histogram>),
    /// A whole number that the source declares to be one.
    Integer(i128),
    /// Any other number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Reading {
    /// A value without name, time or unit: a histogram of an interval, anything else of a moment.
    pub(crate) fn new(value: Value) -> Reading {
        let is_histogram = matches!(value, Value::Histogram(_));
        Reading {
            metric: String::new(),
            labels: Vec::new(),
            unit: None,
            start: None,
            end: None,
            over: if is_histogram { Over::Interval } else { Over::Moment },
            value,
        }
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1.as_str())
    }
}

/// Takes what a source finds, in the order of the input.
pub trait Sink {
    /// One recorded value, of the format that is nothing else.
    fn number(&mut self, value: f64);
    /// One reading.
    fn reading(&mut self, reading: Reading);
    /// Something that was understood and is no reading, such as "a counter".
    fn skipped(&mut self, what: &'static str);
    /// Something that could not be read. Whether to go on where the source can.
    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()>;
}

/// Keeps everything, for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) numbers: Vec<f64>,
    pub(crate) readings: Vec<Reading>,
    pub(crate) skipped: Vec<&'static str>,
    pub(crate) troubles: Vec<Trouble>,
}

#[cfg(test)]
impl Recorded {
    pub(crate) fn troubles(&self) -> Vec<String> {
        self.troubles.iter().map(Trouble::to_string).collect()
    }

    /// Each reading on a line: `name{label="value"} value @start..end`.
    pub(crate) fn shown(&self) -> String {
        self.readings.iter().map(|reading| format!("{reading}\n")).collect()
    }
}

#[cfg(test)]
impl std::fmt::Display for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.metric)?;
        for (name, value) in &self.labels {
            write!(f, "{{{name}={value:?}}}")?;
        }
        match &self.value {
            Value::Integer(n) => write!(f, " integer {n}")?,
            Value::Number(x) => write!(f, " number {x}")?,
            Value::Text(text) => write!(f, " text {text:?}")?,
            Value::Histogram(histogram) => {
                write!(f, " histogram of {}:", histogram.count())?;
                for cell in histogram.cells() {
                    write!(f, " {:.4}..{:.4}={}", cell.lower, cell.upper, cell.count)?;
                }
                let sum = histogram.sum_side().value().map(hist::Sum::value);
                write!(f, " sum {sum:?}")?;
            }
        }
        if let Some(unit) = &self.unit {
            write!(f, " [{unit}]")?;
        }
        match (self.start, self.end) {
            (None, None) => Ok(()),
            (start, end) => write!(f, " @{start:?}..{end:?}"),
        }
    }
}

#[cfg(test)]
impl Sink for Recorded {
    fn number(&mut self, value: f64) {
        self.numbers.push(value);
    }

    fn reading(&mut self, reading: Reading) {
        self.readings.push(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.skipped.push(what);
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.troubles.push(trouble);
        ControlFlow::Continue(())
    }
}
