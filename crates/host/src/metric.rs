//! Metric definitions and their rows.
//!
//! Names follow Prometheus' conventions where there is one: counters end with `_total`, times are
//! in seconds, sizes in bytes. Distributions have their unit (ns) in the series, not in the name.
//! Every series has the label `host`. Counters that started with the system have no start time:
//! their first scrape is the baseline.

use decode::SeriesSink;
use hist::Histogram;
use hist::codec::header::Temporality;
use model::{Sample, SampleValue, Series};

/// Longest host name in bytes: the label `host` of every series.
pub(crate) const HOST_BYTES_MAX: usize = 255;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// Monotonic since the system or the program started.
    Counter,
    /// Current value.
    Gauge,
    /// Distribution of all events since the previous row.
    Distribution,
    /// Text.
    Text,
}

/// Definition of a metric. Names are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetricDefinition {
    pub(crate) name: &'static str,
    pub(crate) kind: MetricKind,
    /// Symbol of the unit.
    pub(crate) unit: &'static str,
    /// Description, including labels.
    pub(crate) help: &'static str,
}

/// Counter.
pub(crate) const fn counter(
    name: &'static str,
    unit: &'static str,
    about: &'static str,
) -> MetricDefinition {
    MetricDefinition { name, kind: MetricKind::Counter, unit, help: about }
}

/// Gauge.
pub(crate) const fn gauge(
    name: &'static str,
    unit: &'static str,
    about: &'static str,
) -> MetricDefinition {
    MetricDefinition { name, kind: MetricKind::Gauge, unit, help: about }
}

/// Distribution in nanoseconds.
pub(crate) const fn distribution(name: &'static str, about: &'static str) -> MetricDefinition {
    MetricDefinition { name, kind: MetricKind::Distribution, unit: "ns", help: about }
}

/// Receiver of collected values. The order of labels is the same for all values of a metric.
pub(crate) trait MetricSink {
    /// Records a number.
    fn record(&mut self, metric: &MetricDefinition, labels: &[(&str, &str)], value: f64);
}

/// Writes the rows of one host scrape.
pub(crate) struct RowReporter<'a> {
    sink: &'a mut dyn SeriesSink,
    host: &'a str,
    /// Start of distributions.
    start: i64,
    /// Time of the scrape.
    end: i64,
    key: Vec<u8>,
    /// Number of gauges, which are lost if the scrape is not accepted.
    pub(crate) gauges: u64,
    /// First rejected row: the reason.
    pub(crate) first_rejection: Option<model::Error>,
}

impl<'a> RowReporter<'a> {
    /// Reporter without rows.
    pub(crate) fn new(
        sink: &'a mut dyn SeriesSink,
        host: &'a str,
        start: i64,
        end: i64,
    ) -> RowReporter<'a> {
        let start = start.min(end);
        RowReporter {
            sink,
            host,
            start,
            end,
            key: Vec::with_capacity(256),
            gauges: 0,
            first_rejection: None,
        }
    }

    /// Reports a distribution of events since the previous row.
    pub(crate) fn distribution(
        &mut self,
        metric: &MetricDefinition,
        labels: &[(&str, &str)],
        histogram: Histogram,
    ) {
        self.row(metric, labels, self.start, SampleValue::Histogram(Box::new(histogram)));
    }

    /// Reports an integer counter that started at `began`.
    pub(crate) fn count(
        &mut self,
        metric: &MetricDefinition,
        labels: &[(&str, &str)],
        began: i64,
        count: u64,
    ) {
        self.sum(metric, labels, began, count as f64);
    }

    /// Reports a counter that started at `began`.
    pub(crate) fn sum(
        &mut self,
        metric: &MetricDefinition,
        labels: &[(&str, &str)],
        began: i64,
        value: f64,
    ) {
        self.row(metric, labels, began.min(self.end), SampleValue::Number(value));
    }

    /// Reports a text.
    pub(crate) fn text(&mut self, metric: &MetricDefinition, labels: &[(&str, &str)], text: &str) {
        self.row(metric, labels, self.end, SampleValue::Text(text.to_owned()));
    }

    fn row(
        &mut self,
        metric: &MetricDefinition,
        labels: &[(&str, &str)],
        start: i64,
        value: SampleValue,
    ) {
        self.key.clear();
        let words = [metric.name, self.host].into_iter();
        for word in words.chain(labels.iter().flat_map(|&(name, value)| [name, value])) {
            self.key.extend_from_slice(&(word.len() as u32).to_le_bytes());
            self.key.extend_from_slice(word.as_bytes());
        }
        let host = self.host;
        let known = self.sink.series(&self.key, &mut || series(metric, host, labels));
        let end = self.end;
        let written = known.and_then(|()| self.sink.sample(&Sample { start, end, value }));
        if let Err(error) = written {
            self.first_rejection.get_or_insert(error);
        }
    }
}

impl MetricSink for RowReporter<'_> {
    fn record(&mut self, metric: &MetricDefinition, labels: &[(&str, &str)], value: f64) {
        self.gauges += u64::from(metric.kind == MetricKind::Gauge);
        self.row(metric, labels, self.end, SampleValue::Number(value));
    }
}

fn series(metric: &MetricDefinition, host: &str, labels: &[(&str, &str)]) -> model::Result<Series> {
    let kind = match metric.kind {
        MetricKind::Counter => model::SeriesKind::Counter(Temporality::Cumulative),
        MetricKind::Gauge => model::SeriesKind::Gauge,
        MetricKind::Distribution => model::SeriesKind::Histogram(Temporality::Delta),
        MetricKind::Text => model::SeriesKind::Text,
    };
    let new = Series::new(metric.name, kind).with_unit(metric.unit).with_label("host", host);
    labels.iter().fold(new, |series, &(name, value)| series.with_label(name, value)).validate()
}

/// Records values for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct RecordedMetrics(Vec<(String, f64)>);

#[cfg(test)]
impl MetricSink for RecordedMetrics {
    fn record(&mut self, metric: &MetricDefinition, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        self.0.push((format!("{}{{{}}}", metric.name, labels.join(",")), value));
    }
}

#[cfg(test)]
impl RecordedMetrics {
    /// Value of `name{label=value,…}` if it was recorded exactly once.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let mut found = self.0.iter().filter(|taken| taken.0 == series);
        let first = found.next()?.1;
        found.next().is_none().then_some(first)
    }

    /// Number of recorded values.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use decode::VecSeriesSink;

    use super::*;

    #[test]
    fn rows_have_their_host_kind_unit_and_time() {
        let mut sink = VecSeriesSink::default();
        let mut report = RowReporter::new(&mut sink, "h", 10, 20);
        report.record(&counter("c_total", "s", ""), &[("cpu", "0")], 1.5);
        report.record(&gauge("g", "B", ""), &[], 2.0);
        let mut histogram = Histogram::default();
        histogram.record(5.0);
        report.distribution(&distribution("d", ""), &[], histogram);
        assert_eq!((report.gauges, report.first_rejection), (1, None));
        let lines: Vec<String> = sink
            .rows
            .iter()
            .map(|(series, sample)| {
                format!(
                    "{series} {} {} {}..{}",
                    series.unit(),
                    model::selector::kind_name(series.kind()),
                    sample.start,
                    sample.end
                )
            })
            .collect();
        let expected = [
            r#"c_total{cpu="0",host="h"} s cumulative-counter 20..20"#,
            r#"g{host="h"} B gauge 20..20"#,
            r#"d{host="h"} ns delta-histogram 10..20"#,
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_no_row_backwards() {
        let mut sink = VecSeriesSink::default();
        let mut report = RowReporter::new(&mut sink, "h", 30, 20);
        report.distribution(&distribution("d", ""), &[], Histogram::default());
        assert_eq!((sink.rows[0].1.start, sink.rows[0].1.end), (20, 20));
    }
}
