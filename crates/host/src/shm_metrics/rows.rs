//! Row writer of shm metrics; unchanged series are refreshed periodically.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use decode::staleness::mark_series_stale;
use decode::{SeriesSink as _, VecSeriesSink};
use hist::codec::header::Temporality;
use intake::{IngestWriter, Intake, PendingAck, Producer, SeriesKeyEncoding};
use model::selector::kind_name;
use model::{Gap, Sample, SampleValue, Series, SeriesKind};

/// Bytes after which the next batch starts, to bound memory.
const BATCH_BYTES: usize = 256 << 10;
/// Limit of rows per scrape. Further rows are dropped and counted.
pub(crate) const ROWS_MAX: usize = 50_000;

/// Last reported state of a process' series: a value or hash to detect changes, and its time.
pub(crate) type LastReported = HashMap<u64, (u64, i64)>;

/// Labels, time range and last reported values of a process' series.
pub(crate) struct SeriesContext<'a> {
    /// Labels in addition to `host`.
    pub(crate) labels: &'a [(String, String)],
    /// Start of counters, equal to `end` if unknown.
    pub(crate) start: i64,
    /// Time of the scrape.
    pub(crate) end: i64,
    pub(crate) reported: &'a mut LastReported,
    /// Whether the process has exited: its series end with this scrape.
    pub(crate) is_final: bool,
}

/// Writes rows of shm metrics.
pub(crate) struct ShmRowWriter<'a> {
    intake: &'a Intake,
    producer: &'a Producer,
    host: &'a str,
    /// Time of the scrape.
    pub(crate) end: i64,
    /// Unchanged series are reported again after this time, in nanoseconds.
    refresh_interval: i64,
    writer: IngestWriter,
    pending_ack: Option<PendingAck>,
    failed: Option<intake::Error>,
    key: Vec<u8>,
    rows: usize,
    /// Number of gauges, which are lost if the scrape is not accepted.
    pub(crate) gauges: u64,
    /// Rows beyond [`ROWS_MAX`].
    pub(crate) dropped: u64,
    /// Staleness markers of series that end with this scrape; they follow all other rows.
    markers: VecSeriesSink,
    /// Invalid rows: names too long, too many labels.
    pub(crate) rejected: u64,
}

impl<'a> ShmRowWriter<'a> {
    pub(crate) fn new(
        intake: &'a Intake,
        producer: &'a Producer,
        host: &'a str,
        end: i64,
        refresh_interval: i64,
    ) -> ShmRowWriter<'a> {
        ShmRowWriter {
            intake,
            producer,
            host,
            end,
            refresh_interval,
            writer: intake.writer_for(producer.id(), SeriesKeyEncoding::new("shared memory")),
            pending_ack: None,
            failed: None,
            key: Vec::with_capacity(256),
            rows: 0,
            gauges: 0,
            dropped: 0,
            markers: VecSeriesSink::default(),
            rejected: 0,
        }
    }

    /// Whether there is nothing to report: neither a value, changed or not, nor a gap.
    pub(crate) fn is_idle(&self) -> bool {
        self.rows == 0 && self.writer.is_empty() && self.pending_ack.is_none()
    }

    /// Reports a gap for gauges of earlier scrapes that were not accepted.
    pub(crate) fn gap(&mut self, start: i64, lost: u64) {
        let reason =
            "backpressure: gauge samples are lost; counters are cumulative and lose nothing";
        let (start, reason) = (start.min(self.end), reason.to_owned());
        let (producer, lost) = (Some(self.producer.id()), Some(lost));
        self.writer.gap(Gap { start, end: self.end, producer, lost, reason });
    }

    /// Reports a counter since its start.
    pub(crate) fn count(
        &mut self,
        context: &mut SeriesContext<'_>,
        metric: MetricDescriptor<'_>,
        value: f64,
    ) {
        let kind = SeriesKind::Counter(Temporality::Cumulative);
        self.row(context, kind, metric, value.to_bits(), SampleValue::Number(value));
    }

    /// Reports a gauge.
    pub(crate) fn gauge(
        &mut self,
        context: &mut SeriesContext<'_>,
        metric: MetricDescriptor<'_>,
        value: f64,
    ) {
        self.row(context, SeriesKind::Gauge, metric, value.to_bits(), SampleValue::Number(value));
    }

    /// Reports a text.
    pub(crate) fn text(
        &mut self,
        context: &mut SeriesContext<'_>,
        metric: MetricDescriptor<'_>,
        text: String,
    ) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        self.row(context, SeriesKind::Text, metric, hasher.finish(), SampleValue::Text(text));
    }

    /// Reports a distribution since its start.
    pub(crate) fn distribution(
        &mut self,
        context: &mut SeriesContext<'_>,
        metric: MetricDescriptor<'_>,
        histogram: Box<hist::Histogram>,
    ) {
        let kind = SeriesKind::Histogram(Temporality::Cumulative);
        self.row(context, kind, metric, histogram.count(), SampleValue::Histogram(histogram));
    }

    /// Flushes the last batch and returns its pending acknowledgement. The last batch becomes
    /// durable after all others.
    pub(crate) fn finish(mut self) -> intake::Result<Option<PendingAck>> {
        for (series, sample) in std::mem::take(&mut self.markers.rows) {
            // A key of `write_key` begins with the name of a kind, so none begins with a 0.
            self.key.clear();
            self.key.push(0);
            self.key.extend_from_slice(&series.canonical_key());
            let written = self.writer.series(&self.key, &mut || Ok(series.clone()));
            let _ = written.and_then(|()| self.writer.sample(&sample));
            self.flush_if_full();
        }
        if !self.writer.is_empty() {
            self.flush_batch();
        }
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.pending_ack),
        }
    }

    fn flush_batch(&mut self) {
        let next =
            self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::new("shared memory"));
        let writer = std::mem::replace(&mut self.writer, next);
        match self.intake.append(self.producer, writer) {
            Ok(pending_ack) => self.pending_ack = Some(pending_ack),
            Err(error) => self.failed = Some(error),
        }
    }

    fn row(
        &mut self,
        context: &mut SeriesContext<'_>,
        kind: SeriesKind,
        metric: MetricDescriptor<'_>,
        value: u64,
        stored: SampleValue,
    ) {
        self.gauges += u64::from(kind == SeriesKind::Gauge);
        if self.failed.is_some() {
            return;
        }
        if self.rows >= ROWS_MAX {
            self.dropped += 1;
            return;
        }
        self.rows += 1;
        let labels = labels(self.host, context.labels, metric.labels);
        write_key(&mut self.key, kind, &metric, &labels);
        let mut hasher = DefaultHasher::new();
        self.key.hash(&mut hasher);
        let series = hasher.finish();
        if context.is_final && kind != SeriesKind::Text {
            self.mark_ended(context, kind, &metric, &labels);
        }
        if let Some(&(before, at)) = context.reported.get(&series)
            && before == value
            && (kind == SeriesKind::Text || context.end.saturating_sub(at) < self.refresh_interval)
        {
            return;
        }
        let start = match kind.is_cumulative() {
            true => context.start.min(context.end),
            false => context.end,
        };
        let sample = Sample { start, end: context.end, value: stored };
        let written = write_row(&mut self.writer, &mut self.key, kind, &metric, &labels, &sample);
        match written {
            Ok(()) => _ = context.reported.insert(series, (value, context.end)),
            Err(_) => self.rejected += 1,
        }
        self.flush_if_full();
    }

    /// Ends a series after the last row of its process: it is retired, and its last value is not
    /// shown as current.
    fn mark_ended(
        &mut self,
        context: &SeriesContext<'_>,
        kind: SeriesKind,
        metric: &MetricDescriptor<'_>,
        labels: &[LabelPair<'_>],
    ) {
        let at = context.end.saturating_add(1);
        // A series that is invalid, or beyond a limit of the store, has no rows to end.
        let _ = series(kind, metric, labels)
            .and_then(|series| mark_series_stale(series, at, &mut self.markers));
    }

    fn flush_if_full(&mut self) {
        if self.writer.bytes() > BATCH_BYTES || self.writer.is_half_full() {
            self.flush_batch();
        }
    }
}

/// Name, unit and labels of a metric.
#[derive(Clone, Copy)]
pub(crate) struct MetricDescriptor<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) labels: &'a [(String, String)],
}

pub(crate) type LabelPair<'a> = (std::borrow::Cow<'a, str>, &'a str);

fn series(
    kind: SeriesKind,
    metric: &MetricDescriptor<'_>,
    labels: &[LabelPair<'_>],
) -> model::Result<Series> {
    let series = Series::new(metric.name, kind).with_unit(metric.unit);
    let labels = labels.iter().map(|(name, value)| (name.as_ref(), *value));
    series.with_labels(labels).validate()
}

/// Writes a row; `key` is a buffer.
pub(crate) fn write_row(
    writer: &mut IngestWriter,
    key: &mut Vec<u8>,
    kind: SeriesKind,
    metric: &MetricDescriptor<'_>,
    labels: &[LabelPair<'_>],
    sample: &Sample,
) -> model::Result<()> {
    write_key(key, kind, metric, labels);
    writer.series(key, &mut || series(kind, metric, labels))?;
    writer.sample(sample)
}

/// All labels: the collector's, then the metric's. A metric's label that has the name of another
/// one gets the prefix `exported_`, as in Prometheus.
pub(crate) fn labels<'a>(
    host: &'a str,
    context_labels: &'a [(String, String)],
    metric_labels: &'a [(String, String)],
) -> Vec<LabelPair<'a>> {
    let mut all: Vec<LabelPair<'a>> =
        Vec::with_capacity(1 + context_labels.len() + metric_labels.len());
    all.push(("host".into(), host));
    for (name, value) in context_labels.iter().chain(metric_labels) {
        let mut name = std::borrow::Cow::from(name.as_str());
        while all.iter().any(|(taken, _)| *taken == name) {
            name = format!("exported_{name}").into();
        }
        all.push((name, value));
    }
    all
}

fn write_key(
    key: &mut Vec<u8>,
    kind: SeriesKind,
    metric: &MetricDescriptor<'_>,
    labels: &[LabelPair<'_>],
) {
    key.clear();
    key.extend_from_slice(kind_name(kind).as_bytes());
    let words = labels.iter().flat_map(|(name, value)| [name.as_ref(), *value]);
    for word in [metric.name, metric.unit].into_iter().chain(words) {
        key.extend_from_slice(&(word.len() as u32).to_le_bytes());
        key.extend_from_slice(word.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn program_labels_cannot_override_identity() {
        let whose = pairs(&[("process", "shop"), ("generation", "7")]);
        let own = pairs(&[
            ("host", "theirs"),
            ("generation", "8"),
            ("exported_generation", "9"),
            ("a", "b"),
        ]);
        let found = labels("box", &whose, &own);
        let found: Vec<String> =
            found.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "host=box",
            "process=shop",
            "generation=7",
            "exported_host=theirs",
            "exported_generation=8",
            "exported_exported_generation=9",
            "a=b",
        ];
        assert_eq!(found, expected);
    }
}
