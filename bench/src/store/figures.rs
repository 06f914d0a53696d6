//! What a store tells of itself, in the same form whoever it is.

use std::time::Duration;

/// All that was measured of one store.
pub(crate) struct StoreFigures {
    pub(crate) name: String,
    /// Why there are none.
    pub(crate) skipped: Option<String>,
    pub(crate) loads: Vec<IngestCost>,
    pub(crate) queries: Vec<QueryCost>,
    pub(crate) answers: Vec<CheckedAnswer>,
}

impl StoreFigures {
    pub(crate) fn new(name: &str) -> StoreFigures {
        StoreFigures {
            name: name.to_owned(),
            skipped: None,
            loads: Vec::new(),
            queries: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(crate) fn skipped(name: &str, why: &str) -> StoreFigures {
        StoreFigures { skipped: Some(why.to_owned()), ..StoreFigures::new(name) }
    }
}

/// One data set taken in.
pub(crate) struct IngestCost {
    /// One of [`SETS`].
    pub(crate) set: &'static str,
    /// Histograms, or numbers.
    pub(crate) points: u64,
    /// Bodies of requests, packed.
    pub(crate) sent_bytes: u64,
    /// Of the server, until the last acknowledgement.
    pub(crate) cpu: Duration,
    /// The same until it had nothing more to do.
    pub(crate) cpu_until_idle: Duration,
    /// From the first request to the last acknowledgement.
    pub(crate) wall: Duration,
    /// What the system counts as written to the device; absent if it does not count.
    pub(crate) written_bytes: Option<u64>,
    /// Blocks of all data, without a log.
    pub(crate) stored_bytes: u64,
    /// Greatest resident size so far.
    pub(crate) memory_bytes: u64,
}

/// Names of the data sets.
pub(crate) const SETS: [&str; 3] = ["A", "B", "gauges"];

/// One query, asked several times.
pub(crate) struct QueryCost {
    /// One of those in [`QUERIES`].
    pub(crate) key: &'static str,
    pub(crate) cpu_ms: Vec<f64>,
    pub(crate) wall_ms: Vec<f64>,
    pub(crate) answer_bytes: u64,
    /// Greatest resident size while it was asked.
    pub(crate) memory_bytes: u64,
}

/// Keys of the queries, and what a reader sees.
pub(crate) const QUERIES: [(&str, &str); 7] = [
    ("a-heatmap", "A: heatmap of the week, a column per 90 min"),
    ("a-heatmap-base", "A: the same without rollups"),
    ("a-p99", "A: p99 every 4 min"),
    ("a-below", "A: share at or below 12.3 ms every 4 min"),
    ("b-p99.9", "B: p99.9 of all series every 5 min"),
    ("b-day", "B: all series and the whole day as one histogram"),
    ("gauges-mean", "gauges: mean of all every minute"),
];

/// Something that was asked of which the truth is known.
pub(crate) struct CheckedAnswer {
    pub(crate) question: String,
    pub(crate) answer: String,
    pub(crate) expected: String,
}

impl CheckedAnswer {
    pub(crate) fn new(
        question: &str,
        answer: impl Into<String>,
        truth: impl Into<String>,
    ) -> CheckedAnswer {
        CheckedAnswer {
            question: question.to_owned(),
            answer: answer.into(),
            expected: truth.into(),
        }
    }
}
