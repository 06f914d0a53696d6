//! One value of a series.

use hist::Histogram;

use crate::series::Kind;

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
    pub value: Value,
}

/// A sample's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A distribution, on its source's own buckets.
    Histogram(Box<Histogram>),
    /// A count or a gauge.
    Number(f64),
    /// A text.
    Text(String),
}

impl Value {
    /// Whether a series of that kind can hold it.
    pub fn is_of(&self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Value::Histogram(_), Kind::Histogram(_))
                | (Value::Number(_), Kind::Counter(_) | Kind::Gauge)
                | (Value::Text(_), Kind::Text)
        )
    }

    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Value::Histogram(_) => "a histogram",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
        }
    }
}
