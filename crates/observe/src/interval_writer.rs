//! The thread that writes intervals to the journal.
//!
//! What the journal does not accept is part of the next interval, except gauges: their loss is a
//! gap.

use std::sync::Arc;
use std::time::{Duration, Instant};

use decode::SeriesSink as _;
use hist::codec::header::Temporality;
use intake::{
    EventCounter, IngestWriter, Intake, LatencyHistogram, PendingAck, Producer, SeriesKeyEncoding,
};
use model::{
    Exemplar, ExemplarAttributes, ExemplarSource, Gap, Sample, SampleValue, Series, SeriesKind,
};
use wire::TracedOperations;

use crate::interval_queue::{IntervalQueue, QueuedIntervals};
use crate::metrics::{METRICS, WireMetric, WireMetricKind};
use crate::operation_series::NumberSample;
use crate::pending_samples::{PendingHistogram, WireSeries};

/// Time for which the last interval is retried while the journal has no space, and the delay of a
/// retry.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(100);

pub(crate) struct IntervalWriter {
    intake: Arc<Intake>,
    producer: Producer,
    key_encoding: &'static str,
    host: String,
    queue: IntervalQueue,
    /// Intervals that are not in the journal.
    waiting: QueuedIntervals,
    /// Rows of the batch that is being written.
    distributions: Vec<(WireSeries, PendingHistogram)>,
    numbers: Vec<NumberSample>,
    key: Vec<u8>,
    is_described: bool,
    last_ack: Option<PendingAck>,
    duration: LatencyHistogram,
    written: EventCounter,
    deferred: EventCounter,
    rejected: EventCounter,
}

impl IntervalWriter {
    /// A writer with a producer, whose name is also that of its key encoding.
    pub(crate) fn new(
        intake: &Arc<Intake>,
        producer: &'static str,
        host: &str,
        queue: IntervalQueue,
    ) -> IntervalWriter {
        let meter = intake.meter();
        let counter = |name, about| meter.counter(name, about, &[]);
        IntervalWriter {
            producer: intake.volatile_producer(producer),
            key_encoding: producer,
            host: host.to_owned(),
            queue,
            waiting: QueuedIntervals::default(),
            distributions: Vec::new(),
            numbers: Vec::new(),
            key: Vec::with_capacity(256),
            is_described: false,
            last_ack: None,
            duration: meter.histogram(
                "topdeck_wire_write_duration",
                "Duration of writing an interval of [wire] to the journal",
                &[],
            ),
            written: counter(
                "topdeck_wire_intervals_total",
                "Intervals of [wire] written to the journal",
            ),
            deferred: counter(
                "topdeck_wire_deferred_intervals_total",
                "Intervals of [wire] deferred to the next one under backpressure",
            ),
            rejected: counter(
                "topdeck_wire_rejected_samples_total",
                "Samples of [wire] that are invalid and were dropped",
            ),
            intake: Arc::clone(intake),
        }
    }

    /// Writes intervals until the queue is closed. The last one is retried for some seconds while
    /// the journal has no space.
    pub(crate) fn run(&mut self) -> intake::Result<()> {
        // Of a batch whose writing panicked.
        self.put_back();
        self.try_write();
        while let Some(intervals) = self.queue.pop() {
            self.write_intervals(intervals);
        }
        self.finish()
    }

    /// Writes intervals, with those that were not written before.
    pub(crate) fn write_intervals(&mut self, intervals: QueuedIntervals) {
        self.waiting.merge(intervals);
        self.try_write();
    }

    fn try_write(&mut self) {
        // The error was counted; the interval is part of the next one.
        let outcome = self.write();
        self.queue.set_backlogged(outcome.is_err());
    }

    /// Writes what is left, which is retried for some seconds.
    pub(crate) fn finish(&mut self) -> intake::Result<()> {
        let began = Instant::now();
        while self.waiting.written_until().is_some() {
            match self.write() {
                Err(error) if error.is_retryable() && began.elapsed() < FINAL_TIMEOUT => {
                    std::thread::sleep(RETRY_DELAY);
                }
                outcome => outcome?,
            }
        }
        if let Some(last) = self.last_ack.take() {
            last.wait_durable()?;
        }
        self.intake.end_volatile_producer(&self.producer);
        Ok(())
    }

    fn put_back(&mut self) {
        self.waiting.numbers.append(&mut self.numbers);
        for (series, pending) in self.distributions.drain(..) {
            let PendingHistogram { start, histogram, traced } = pending;
            self.waiting.distributions.add_traced(series, start, &histogram, &traced);
        }
    }

    /// Appends all waiting rows, in several batches if they are large. A gap does not wait for the
    /// end of an interval: there is none while the capture panics.
    fn write(&mut self) -> intake::Result<()> {
        let Some(end) = self.waiting.written_until() else { return Ok(()) };
        let began = Instant::now();
        let outcome = self.append_rows(end);
        self.duration.record(began.elapsed());
        match &outcome {
            Ok(()) => {
                self.written.add(u64::from(self.waiting.end.is_some()));
                self.waiting = QueuedIntervals::default();
            }
            Err(_) => {
                self.deferred.add(1);
                self.put_back();
            }
        }
        outcome
    }

    fn append_rows(&mut self, end: i64) -> intake::Result<()> {
        let mut writer = self.writer();
        if !self.is_described {
            METRICS.iter().for_each(|metric| writer.description(metric.name, metric.help));
            self.is_described = true;
        }
        self.write_gaps(&mut writer, end);
        while let Some(sample) = self.waiting.numbers.pop() {
            self.write_number(&mut writer, &sample, end);
            self.numbers.push(sample);
            writer = self.append_if_full(writer)?;
        }
        while let Some((series, pending)) = self.waiting.distributions.pop_first() {
            let value = SampleValue::Histogram(Box::new(pending.histogram.clone()));
            let (start, end) = (pending.start.min(end), end);
            let sample = Sample { start, end, value };
            self.write_row(&mut writer, series.metric, &series.labels, &sample);
            self.write_exemplars(&mut writer, &series, &pending.traced);
            self.distributions.push((series, pending));
            writer = self.append_if_full(writer)?;
        }
        self.append(writer)
    }

    fn writer(&self) -> IngestWriter {
        self.intake.writer_for(self.producer.id(), SeriesKeyEncoding::new(self.key_encoding))
    }

    fn append_if_full(&mut self, writer: IngestWriter) -> intake::Result<IngestWriter> {
        if !writer.is_half_full() {
            return Ok(writer);
        }
        self.append(writer)?;
        Ok(self.writer())
    }

    fn append(&mut self, writer: IngestWriter) -> intake::Result<()> {
        self.intake.supervisor().failpoint("wire batch");
        if writer.is_empty() {
            return Ok(());
        }
        self.last_ack = Some(self.intake.append(&self.producer, writer)?);
        self.distributions.clear();
        self.numbers.clear();
        // They are in the first batch.
        self.waiting.gaps.clear();
        self.waiting.lost_gauges = None;
        Ok(())
    }

    fn write_gaps(&mut self, writer: &mut IngestWriter, end: i64) {
        let producer = Some(self.producer.id());
        for (start, end, reason) in &self.waiting.gaps {
            let (start, end, reason) = (*start, *end, reason.clone());
            writer.gap(Gap { start, end, producer, lost: None, reason });
        }
        if let Some((gauges, first)) = self.waiting.lost_gauges {
            let reason =
                "backpressure: gauge samples are lost; counters are cumulative and lose nothing";
            let (start, lost, reason) = (first.min(end), Some(gauges), reason.to_owned());
            writer.gap(Gap { start, end, producer, lost, reason });
        }
    }

    fn write_number(&mut self, writer: &mut IngestWriter, number: &NumberSample, end: i64) {
        let start = if number.is_gauge() { end } else { number.start.min(end) };
        let sample = Sample { start, end, value: SampleValue::Number(number.value) };
        self.write_row(writer, number.metric, &number.labels, &sample);
    }

    fn write_row(
        &mut self,
        writer: &mut IngestWriter,
        metric: &WireMetric,
        labels: &[(&'static str, Arc<str>)],
        sample: &Sample,
    ) {
        self.set_key(metric, labels);
        let host = &self.host;
        let written = writer
            .series(&self.key, &mut || series(metric, host, labels))
            .and_then(|()| writer.sample(sample));
        if written.is_err() {
            self.rejected.add(1);
        }
    }

    /// Writes the operations with a trace as exemplars. The intake counts those that it rejects.
    fn write_exemplars(
        &mut self,
        writer: &mut IngestWriter,
        of: &WireSeries,
        traced: &TracedOperations,
    ) {
        self.set_key(of.metric, &of.labels);
        for operation in traced.iter() {
            let exemplar = Exemplar {
                time: i64::try_from(operation.end).unwrap_or(i64::MAX),
                value: operation.latency_ns as f64,
                trace_id: operation.trace_id,
                span_id: operation.span_id,
                attributes: ExemplarAttributes::default(),
                source: ExemplarSource::Wire,
            };
            let mut described = || series(of.metric, &self.host, &of.labels);
            writer.exemplar(&self.key, &mut described, &exemplar);
        }
    }

    /// Sets the key of a series.
    fn set_key(&mut self, metric: &WireMetric, labels: &[(&'static str, Arc<str>)]) {
        self.key.clear();
        let words = [metric.name, &self.host].into_iter();
        for word in words.chain(labels.iter().flat_map(|(name, value)| [*name, &**value])) {
            self.key.extend_from_slice(&(word.len() as u32).to_le_bytes());
            self.key.extend_from_slice(word.as_bytes());
        }
    }
}

fn series(
    metric: &WireMetric,
    host: &str,
    labels: &[(&'static str, Arc<str>)],
) -> model::Result<Series> {
    let kind = match metric.kind {
        WireMetricKind::Counter => SeriesKind::Counter(Temporality::Cumulative),
        WireMetricKind::Gauge => SeriesKind::Gauge,
        WireMetricKind::Distribution => SeriesKind::Histogram(Temporality::Delta),
    };
    Series::new(metric.name, kind)
        .with_unit(metric.unit)
        .with_label("host", host)
        .with_labels(labels.iter().map(|(name, value)| (*name, &**value)))
        .validate()
}
