//! What a look found of one series: its value, or of a histogram that nobody looks at closely how many values it has.

use hist::Histogram;
use shm::show::{Metric, Number, Value};

/// A series at a look.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// What it is, and its value: at the first look at it, and where a format tells series apart by nothing but that.
    Whole(Metric),
    /// One that is known, in its place.
    Known(Reading),
}

/// A value, as far as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reading {
    Of(Value),
    /// A histogram has so many values. Its buckets were not read, which takes a thousand times as long; a record that was under
    /// way is among them.
    Recorded(u64),
}

#[cfg(test)]
impl Seen {
    /// Whether it is a histogram with all its buckets.
    pub(crate) fn is_close(&self) -> bool {
        matches!(
            self,
            Seen::Whole(Metric { value: Value::Histogram(_), .. })
                | Seen::Known(Reading::Of(Value::Histogram(_)))
        )
    }
}

impl Reading {
    /// The value, if it was read.
    pub(crate) fn value(&self) -> Option<&Value> {
        match self {
            Reading::Of(value) => Some(value),
            Reading::Recorded(_) => None,
        }
    }

    /// All that was recorded, if it was read.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        match self {
            Reading::Of(Value::Histogram(histogram)) => Some(histogram),
            _ => None,
        }
    }

    /// How many values a histogram has; `None` of what is no histogram.
    pub(crate) fn recorded(&self) -> Option<u64> {
        match self {
            Reading::Of(Value::Histogram(histogram)) => Some(histogram.count()),
            Reading::Recorded(count) => Some(*count),
            Reading::Of(_) => None,
        }
    }

    /// The same as a counter.
    pub(crate) fn counter(&self) -> Option<Value> {
        self.recorded().map(|count| Value::Counter(Number::Unsigned(count)))
    }
}
