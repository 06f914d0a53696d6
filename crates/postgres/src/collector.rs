//! A collector: one statistics view, its labels and metrics, and the query for a server version.

use std::fmt::Write as _;

use crate::metric::{PostgresKind, PostgresMetric};
use crate::report::{LABEL_CHARS_MAX, PostgresRow, first_chars};
use crate::session::ResultRow;

/// A query and what its columns are. The first columns are labels, the others values.
#[derive(Debug)]
pub(crate) struct ViewCollector {
    /// Value of the label `collector`.
    pub(crate) name: &'static str,
    /// Label and SQL expression of its value.
    pub(crate) labels: &'static [(&'static str, &'static str)],
    pub(crate) metrics: &'static [PostgresMetric],
    /// All after `SELECT` and its expressions.
    pub(crate) from: &'static str,
    /// Whether it reads files or many rows: at most once a minute.
    pub(crate) is_slow: bool,
    /// Whether other users' sessions are hidden from it without `pg_read_all_stats`.
    pub(crate) needs_all_stats: bool,
}

impl ViewCollector {
    /// A collector at each interval, for all roles.
    pub(crate) const DEFAULT: ViewCollector = ViewCollector {
        name: "",
        labels: &[],
        metrics: &[],
        from: "",
        is_slow: false,
        needs_all_stats: false,
    };

    /// Metrics of a version.
    fn metrics(&self, version: u32) -> impl Iterator<Item = &'static PostgresMetric> + Clone {
        self.metrics.iter().filter(move |metric| metric.is_of(version))
    }

    /// The query for a version, or `None` if the version has none of the metrics.
    pub(crate) fn sql(&self, version: u32) -> Option<String> {
        self.metrics(version).next()?;
        let mut sql = "SELECT ".to_owned();
        let mut separator = "";
        for (_, expression) in self.labels {
            let _ = write!(sql, "{separator}({expression})::text");
            separator = ", ";
        }
        for metric in self.metrics(version) {
            let _ = write!(sql, "{separator}({})::float8", metric.sql);
            separator = ", ";
        }
        let _ = write!(sql, " {}", self.from);
        Some(sql)
    }

    /// Rows of the metrics. A value that is NULL or no number has no row.
    pub(crate) fn rows(&self, version: u32, result: &[ResultRow], rows: &mut Vec<PostgresRow>) {
        for row in result {
            let (labels, values) = row.split_at(self.labels.len().min(row.len()));
            let labels: Vec<(&'static str, String)> = (self.labels.iter().zip(labels))
                .map(|(label, value)| {
                    let value = value.as_deref().unwrap_or_default();
                    (label.0, first_chars(value, LABEL_CHARS_MAX).to_owned())
                })
                .collect();
            for (metric, value) in self.metrics(version).zip(values) {
                let value = value.as_deref().and_then(|value| value.parse::<f64>().ok());
                let is_valid = |value: &f64| {
                    value.is_finite() && (metric.kind == PostgresKind::Gauge || *value >= 0.0)
                };
                if let Some(value) = value.filter(is_valid) {
                    rows.push(PostgresRow::number(metric, labels.clone(), value));
                }
            }
        }
    }
}
