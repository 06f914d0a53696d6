//! Rows of one interval, and their series.

use decode::SeriesSink;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{Intake, Producer, SeriesKeyEncoding};
use model::{Gap, Sample, SampleValue, Series, SeriesKind};

use crate::metric::{PostgresKind, PostgresMetric};

/// Longest label value; longer ones are cut. Names of applications can be of any length.
pub(crate) const LABEL_CHARS_MAX: usize = 200;

/// At most that many characters of a text.
pub(crate) fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// A value of a metric.
#[derive(Clone, Debug)]
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
            // An empty label is an absent one.
            if !value.is_empty() {
                series = series.with_label(*name, first_chars(value, LABEL_CHARS_MAX));
            }
        }
        series.validate()
    }
}

/// How far the rows of a report were appended.
#[derive(Debug)]
pub(crate) struct AppendProgress {
    /// The first rows, which are in accepted batches.
    pub(crate) rows: usize,
    pub(crate) outcome: intake::Result<()>,
    /// The first reason why a row was rejected.
    pub(crate) rejection: Option<model::Error>,
}

/// Appends a gap, and rows from `start` to `end`, both in nanoseconds since the Unix epoch, in
/// batches, with the descriptions of their metrics if asked for.
pub(crate) fn append_rows(
    (intake, producer): (&Intake, &Producer),
    gap: Option<Gap>,
    common: &[(&'static str, String)],
    rows: &[PostgresRow],
    (start, end): (i64, i64),
    describes: bool,
) -> AppendProgress {
    let new_writer = || intake.writer_for(producer.id(), SeriesKeyEncoding::CANONICAL);
    let mut appended = AppendProgress { rows: 0, outcome: Ok(()), rejection: None };
    let mut writer = new_writer();
    gap.into_iter().for_each(|gap| writer.gap(gap));
    for (at, row) in rows.iter().enumerate() {
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
            appended.rejection.get_or_insert(error);
        }
        if writer.is_half_full() || at + 1 == rows.len() {
            appended.outcome = intake.append(producer, writer).map(|_| ());
            if appended.outcome.is_err() {
                break;
            }
            appended.rows = at + 1;
            writer = new_writer();
        }
    }
    appended
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
