//! Rows of one interval, and their series.

use decode::SeriesSink;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::IngestWriter;
use model::{Sample, SampleValue, Series, SeriesKind};

use crate::metric::{PostgresKind, PostgresMetric};

/// Longest label value; longer ones are cut. Names of applications can be of any length.
const LABEL_CHARS_MAX: usize = 200;

/// A value of a metric.
#[derive(Debug)]
pub(crate) struct PostgresRow {
    pub(crate) metric: &'static PostgresMetric,
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: SampleValue,
    /// Since when a counter counts, if this is known.
    pub(crate) began: Option<i64>,
}

impl PostgresRow {
    pub(crate) fn number(
        metric: &'static PostgresMetric,
        labels: Vec<(&'static str, String)>,
        value: f64,
    ) -> PostgresRow {
        PostgresRow { metric, labels, value: SampleValue::Number(value), began: None }
    }

    pub(crate) fn text(
        metric: &'static PostgresMetric,
        labels: Vec<(&'static str, String)>,
        text: String,
    ) -> PostgresRow {
        PostgresRow { metric, labels, value: SampleValue::Text(text), began: None }
    }

    pub(crate) fn distribution(
        metric: &'static PostgresMetric,
        labels: Vec<(&'static str, String)>,
        histogram: Histogram,
    ) -> PostgresRow {
        PostgresRow {
            metric,
            labels,
            value: SampleValue::Histogram(Box::new(histogram)),
            began: None,
        }
    }

    /// The same counter, which began at a known time.
    pub(crate) fn since(self, began: i64) -> PostgresRow {
        PostgresRow { began: Some(began), ..self }
    }

    fn series(&self, common: &[(&'static str, String)]) -> model::Result<Series> {
        let kind = match self.metric.kind {
            PostgresKind::Counter => SeriesKind::Counter(Temporality::Cumulative),
            PostgresKind::Gauge => SeriesKind::Gauge,
            PostgresKind::Distribution => SeriesKind::Histogram(Temporality::Delta),
            PostgresKind::Text => SeriesKind::Text,
        };
        let mut series = Series::new(self.metric.name, kind).with_unit(self.metric.unit);
        for (name, value) in common.iter().chain(&self.labels) {
            let end = value.char_indices().nth(LABEL_CHARS_MAX).map_or(value.len(), |(at, _)| at);
            // An empty label is an absent one.
            if end > 0 {
                series = series.with_label(*name, &value[..end]);
            }
        }
        series.validate()
    }
}

/// Writes rows from `start` to `end`, both in nanoseconds since the Unix epoch, with the
/// descriptions of their metrics if asked for. Returns the first reason why a row was rejected.
pub(crate) fn write_rows(
    writer: &mut IngestWriter,
    common: &[(&'static str, String)],
    rows: &[PostgresRow],
    (start, end): (i64, i64),
    describes: bool,
) -> Option<model::Error> {
    let mut first_rejection = None;
    for row in rows {
        if describes {
            writer.description(row.metric.name, row.metric.help);
        }
        let is_interval = row.metric.kind == PostgresKind::Distribution;
        let start = if is_interval { start } else { row.began.unwrap_or(end) }.min(end);
        let written = row.series(common).and_then(|series| {
            let key = series.canonical_key();
            writer.series(&key, &mut || Ok(series.clone()))?;
            writer.sample(&Sample { start, end, value: row.value.clone() })
        });
        if let Err(error) = written {
            first_rejection.get_or_insert(error);
        }
    }
    first_rejection
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write as _;

    use super::*;

    /// A line per row, as tests compare them.
    pub(crate) fn row_lines(rows: &[PostgresRow]) -> String {
        let mut lines = String::new();
        for row in rows {
            lines.push_str(row.metric.name);
            let labels: Vec<String> =
                row.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            if !labels.is_empty() {
                let _ = write!(lines, "{{{}}}", labels.join(","));
            }
            let _ = match &row.value {
                SampleValue::Number(value) => writeln!(lines, " {value}"),
                SampleValue::Text(text) => writeln!(lines, " {text}"),
                SampleValue::Histogram(histogram) => {
                    let max = histogram.tracked_max().value().unwrap_or(f64::NAN);
                    writeln!(lines, " {} values, max {max}", histogram.count())
                }
            };
        }
        lines
    }
}
