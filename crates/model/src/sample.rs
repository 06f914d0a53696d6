//! One value of a series.

use hist::Histogram;

use crate::series::SeriesKind;

/// What happened in `[start, end)`, in nanoseconds since the Unix epoch.
///
/// In a cumulative series `end` is when the value was read, and `start` since when it counts, or `end`
/// where the source does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When it began.
    pub start: i64,
    /// When it ended; not before it began.
    pub end: i64,
    /// What it was.
    pub value: SampleValue,
}

/// Value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A distribution, on its source's own buckets.
    Histogram(Box<Histogram>),
    /// A count or a gauge.
    Number(f64),
    /// A text.
    Text(String),
}

impl SampleValue {
    /// Whether a series of that kind can hold it.
    pub fn has_kind(&self, kind: SeriesKind) -> bool {
        matches!(
            (self, kind),
            (SampleValue::Histogram(_), SeriesKind::Histogram(_))
                | (SampleValue::Number(_), SeriesKind::Counter(_) | SeriesKind::Gauge)
                | (SampleValue::Text(_), SeriesKind::Text)
        )
    }

    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            SampleValue::Histogram(_) => "a histogram",
            SampleValue::Number(_) => "a number",
            SampleValue::Text(_) => "a text",
        }
    }
}
