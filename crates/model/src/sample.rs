//! One value of a series.

use hist::Histogram;

use crate::series::SeriesKind;

/// Value of a series for the interval from `start` to `end`, in nanoseconds since the Unix epoch,
/// or at the instant `end` if both are equal.
///
/// In a cumulative series `end` is the sample's timestamp, and `start` the time from which it
/// counts, or `end` if the source does not report it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Start of the interval.
    pub start: i64,
    /// End of the interval; not before its start.
    pub end: i64,
    /// The value.
    pub value: SampleValue,
}

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A histogram in the buckets of its source.
    Histogram(Box<Histogram>),
    /// The value of a counter or a gauge.
    Number(f64),
    /// A text.
    Text(String),
}

impl SampleValue {
    /// Whether a series of this kind can have it.
    pub fn fits(&self, kind: SeriesKind) -> bool {
        matches!(
            (self, kind),
            (SampleValue::Histogram(_), SeriesKind::Histogram(_))
                | (SampleValue::Number(_), SeriesKind::Counter(_) | SeriesKind::Gauge)
                | (SampleValue::Text(_), SeriesKind::Text)
        )
    }

    /// Name of its type with an article, for messages.
    pub fn description(&self) -> &'static str {
        match self {
            SampleValue::Histogram(_) => "a histogram",
            SampleValue::Number(_) => "a number",
            SampleValue::Text(_) => "a text",
        }
    }
}
