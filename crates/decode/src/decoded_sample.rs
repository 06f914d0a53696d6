//! Decoded samples and the sink trait.

use std::ops::ControlFlow;

use hist::Histogram;

use crate::exemplar::DecodedExemplar;
use crate::input_error::InputError;
use crate::unit::Unit;

/// One value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct DecodedSample {
    /// Metric name; empty if the format has no names.
    pub metric: String,
    /// Labels, in the order of the source. A tag is the label `tag`.
    pub labels: Vec<(String, String)>,
    /// Unit of the values, if the source or its convention defines one.
    pub unit: Option<Unit>,
    /// Start of the measured interval, in nanoseconds since the Unix epoch.
    pub start: Option<i64>,
    /// End of the measured interval, in nanoseconds since the Unix epoch.
    pub end: Option<i64>,
    /// Relation of the value to the interval.
    pub temporality: SampleTemporality,
    /// The value.
    pub value: DecodedValue,
}

/// Temporality of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTemporality {
    /// Events between start and end. Two delta samples add up.
    Delta,
    /// All events from the source's start of counting up to the end. Differences give the events of
    /// an interval.
    Cumulative,
    /// State at the end.
    Instant,
}

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodedValue {
    /// A distribution, in its source's buckets.
    Histogram(Box<Histogram>),
    /// An integer, declared as such by the source.
    Integer(i128),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
}

impl DecodedSample {
    /// A value without name, time and unit. A histogram is a delta; anything else is an instant
    /// value.
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

    /// Value of the label `name`.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|label| label.0 == name).map(|label| label.1.as_str())
    }
}

/// Sink of decoded samples, in input order.
pub trait SampleSink {
    /// One recorded value of the plain numbers format.
    fn number(&mut self, value: f64);
    /// One decoded sample.
    fn sample(&mut self, sample: DecodedSample);
    /// One decoded sample, and exemplars of its series. Most sinks have no use for these.
    fn sample_with_exemplars(&mut self, sample: DecodedSample, exemplars: Vec<DecodedExemplar>) {
        self.sample(sample);
        exemplars.iter().for_each(|_| self.skipped("an exemplar"));
    }
    /// Input that was parsed and is not a sample, such as "a counter".
    fn skipped(&mut self, what: &'static str);
    /// Input that could not be parsed. The return value decides whether the decoder continues, if
    /// it can.
    fn error(&mut self, error: InputError) -> ControlFlow<()>;
    /// Description of a metric.
    fn description(&mut self, _metric: &str, _text: &str) {}
}

/// Recording sink for tests.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct RecordingSink {
    pub(crate) numbers: Vec<f64>,
    pub(crate) samples: Vec<DecodedSample>,
    pub(crate) exemplars: Vec<(String, DecodedExemplar)>,
    pub(crate) skipped: Vec<&'static str>,
    pub(crate) errors: Vec<InputError>,
}

#[cfg(test)]
impl RecordingSink {
    pub(crate) fn error_texts(&self) -> Vec<String> {
        self.errors.iter().map(InputError::to_string).collect()
    }

    /// One line per sample: `name{label="value"} value @start..end`.
    pub(crate) fn dump_samples(&self) -> String {
        self.samples.iter().map(|sample| format!("{sample}\n")).collect()
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
                let sum = histogram.tracked_sum().value().map(hist::DoubleDouble::value);
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

    fn sample(&mut self, sample: DecodedSample) {
        self.samples.push(sample);
    }

    fn sample_with_exemplars(&mut self, sample: DecodedSample, exemplars: Vec<DecodedExemplar>) {
        let named = exemplars.into_iter().map(|exemplar| (sample.metric.clone(), exemplar));
        self.exemplars.extend(named);
        self.sample(sample);
    }

    fn skipped(&mut self, what: &'static str) {
        self.skipped.push(what);
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        self.errors.push(error);
        ControlFlow::Continue(())
    }
}
