//! Figures of a store, in the same form for all.

use std::time::Duration;

/// All measurements of one store.
pub(crate) struct StoreFigures {
    pub(crate) name: String,
    /// Reason for missing figures.
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

/// Ingest of one data set.
pub(crate) struct IngestCost {
    /// A name of [`SETS`].
    pub(crate) set: &'static str,
    /// Histograms or numbers.
    pub(crate) points: u64,
    /// Compressed request bodies.
    pub(crate) sent_bytes: u64,
    /// CPU time of the server until the last acknowledgement.
    pub(crate) cpu: Duration,
    /// CPU time of the server until it was idle.
    pub(crate) cpu_until_idle: Duration,
    /// From the first request to the last acknowledgement.
    pub(crate) wall: Duration,
    /// Bytes written to the device; `None` if the system does not count them.
    pub(crate) written_bytes: Option<u64>,
    /// Blocks of all data, without a log.
    pub(crate) stored_bytes: u64,
    /// Peak resident size so far.
    pub(crate) memory_bytes: u64,
}

/// Names of the data sets.
pub(crate) const SETS: [&str; 3] = ["A", "B", "gauges"];

/// Cost of one query, over several runs.
pub(crate) struct QueryCost {
    /// A key of [`QUERIES`].
    pub(crate) key: &'static str,
    pub(crate) cpu_ms: Vec<f64>,
    pub(crate) wall_ms: Vec<f64>,
    pub(crate) answer_bytes: u64,
    /// Peak resident size during the query.
    pub(crate) memory_bytes: u64,
}

/// Keys and titles of the queries.
pub(crate) const QUERIES: [(&str, &str); 7] = [
    ("a-heatmap", "A: heatmap of the week, a column per 90 min"),
    ("a-heatmap-base", "A: the same without rollups"),
    ("a-p99", "A: p99 every 4 min"),
    ("a-below", "A: share at or below 12.3 ms every 4 min"),
    ("b-p99.9", "B: p99.9 of all series every 5 min"),
    ("b-day", "B: all series and the whole day as one histogram"),
    ("gauges-mean", "gauges: mean of all every minute"),
];

/// An answer whose exact value is known.
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
