//! Decoded samples and the sink trait.

use std::ops::ControlFlow;

use hist::Histogram;

use crate::input_error::InputError;
use crate::unit::Unit;

/// One value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedSample {
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
    pub temporality: SampleTemporality,
    /// The value.
    pub value: DecodedValue,
}

/// Temporality of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTemporality {
    /// What happened between start and end; of two of them, both happened.
    Delta,
    /// All that happened up to the end, since the source began to count: differences say what
    /// happened.
    Cumulative,
    /// How it was at the end.
    Instant,
}

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodedValue {
    /// A distribution, on its source's own buckets.
    Histogram(Box<Histogram>),
    /// A whole number that the source declares to be one.
    Integer(i128),
    /// Any other number.
    Number(f64),
    /// Text.
    Text(String),
}

impl DecodedSample {
    /// A value without name, time or unit: a histogram of an interval, anything else of a moment.
    pub(crate) fn new(value: DecodedValue) -> DecodedSample {
        let is_histogram = matches!(value, DecodedValue::Histogram(_));
        DecodedSample {
            metric: String::new(),
            labels: Vec::new(),
            unit: None,
            start: None,
            end: None,
            temporality: if is_histogram {
                SampleTemporality::Delta
            } else {
                SampleTemporality::Instant
            },
            value,
        }
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1.as_str())
    }
}

/// Sink of decoded samples, in input order.
pub trait SampleSink {
    /// One recorded value, of the format that is nothing else.
    fn number(&mut self, value: f64);
    /// One reading.
    fn sample(&mut self, reading: DecodedSample);
    /// Something that was understood and is no reading, such as "a counter".
    fn skipped(&mut self, what: &'static str);
    /// Something that could not be read. Whether to go on where the source can.
    fn error(&mut self, trouble: InputError) -> ControlFlow<()>;
}

/// Recording sink for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct RecordingSink {
    pub(crate) numbers: Vec<f64>,
    pub(crate) samples: Vec<DecodedSample>,
    pub(crate) skipped: Vec<&'static str>,
    pub(crate) errors: Vec<InputError>,
}

#[cfg(test)]
impl RecordingSink {
    pub(crate) fn error_texts(&self) -> Vec<String> {
        self.errors.iter().map(InputError::to_string).collect()
    }

    /// Each reading on a line: `name{label="value"} value @start..end`.
    pub(crate) fn dump_samples(&self) -> String {
        self.samples.iter().map(|reading| format!("{reading}\n")).collect()
    }
}

#[cfg(test)]
impl std::fmt::Display for DecodedSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.metric)?;
        for (name, value) in &self.labels {
            write!(f, "{{{name}={value:?}}}")?;
        }
        match &self.value {
            DecodedValue::Integer(n) => write!(f, " integer {n}")?,
            DecodedValue::Number(x) => write!(f, " number {x}")?,
            DecodedValue::Text(text) => write!(f, " text {text:?}")?,
            DecodedValue::Histogram(histogram) => {
                write!(f, " histogram of {}:", histogram.count())?;
                for cell in histogram.cells() {
                    write!(f, " {:.4}..{:.4}={}", cell.lower, cell.upper, cell.count)?;
                }
                let sum = histogram.tracked_sum().value().map(hist::CompensatedSum::value);
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
impl SampleSink for RecordingSink {
    fn number(&mut self, value: f64) {
        self.numbers.push(value);
    }

    fn sample(&mut self, reading: DecodedSample) {
        self.samples.push(reading);
    }

    fn skipped(&mut self, what: &'static str) {
        self.skipped.push(what);
    }

    fn error(&mut self, trouble: InputError) -> ControlFlow<()> {
        self.errors.push(trouble);
        ControlFlow::Continue(())
    }
}
