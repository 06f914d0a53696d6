//! Decoder of Prometheus' protobuf exposition: length-delimited `io.prometheus.client.MetricFamily`
//! messages. It is the only exposition format with native histograms.
//!
//! ```text
//! MetricFamily  1 name, 2 help, 3 type (0 counter, 1 gauge, 2 summary, 3 untyped, 4 histogram, 5 gauge histogram),
//!               4 metric, 5 unit
//! Metric        1 label (1 name, 2 value), 2 gauge, 3 counter, 4 summary, 5 untyped, 7 histogram, 6 timestamp_ms
//! Gauge, Untyped 1 value (double)     Counter  1 value (double), 2 exemplar, 3 created
//! Summary       1 sample_count, 2 sample_sum (double), 3 quantile (1 quantile, 2 value; doubles), 4 created
//! Timestamp     1 seconds, 2 nanos    Exemplar  1 label, 2 value (double), 3 timestamp
//! ```
//!
//! Kinds, units and names are those of the text format (`exposition.rs`). If a histogram has both
//! forms, the native one is used; double counts are accepted if they are integers. A timestamp of 0
//! means none, as in Prometheus' scraper. An error within a family does not affect other families.
//!
//! Source: prometheus/client_model v0.6.3, `io/prometheus/client/metrics.proto`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::ControlFlow;

use codecs::prometheus::{ClientHistogram, HistogramSample};
use codecs::protobuf::{FieldValue, MessageReader};

use crate::convention;
use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use crate::exemplar::{self, DecodedExemplar};
use crate::input_error::{InputError, InputPosition, quote};
use crate::unit::Unit;

#[cfg(test)]
mod tests;

/// Reads the body of one scrape.
pub fn read_scrape(body: &[u8], sink: &mut dyn SampleSink) {
    let mut rest = MessageReader::new(body);
    loop {
        let place = InputPosition::Byte(rest.offset());
        let family = match rest.delimited() {
            Ok(None) => return,
            Ok(Some(family)) => family,
            Err(error) => {
                // The start of the next family is unknown.
                let _ = sink.error(error.into());
                return;
            }
        };
        let read = MetricFamily::read(family).and_then(|family| family.read_metrics(sink));
        let flow = match read {
            Ok(flow) => flow,
            Err(FamilyError::Malformed(error)) => sink.error(error),
            Err(FamilyError::Invalid(expected, found)) => {
                sink.error(InputError::new(place, expected, found))
            }
        };
        if flow.is_break() {
            return;
        }
    }
}

/// Error of a metric family.
enum FamilyError {
    Malformed(InputError),
    /// Expected and actual text.
    Invalid(&'static str, String),
}

impl From<InputError> for FamilyError {
    fn from(error: InputError) -> FamilyError {
        FamilyError::Malformed(error)
    }
}

impl From<codecs::protobuf::Error> for FamilyError {
    fn from(error: codecs::protobuf::Error) -> FamilyError {
        InputError::from(error).into()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum FamilyKind {
    Counter,
    Gauge,
    Summary,
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl FamilyKind {
    const ALL: [FamilyKind; 6] = [
        FamilyKind::Counter,
        FamilyKind::Gauge,
        FamilyKind::Summary,
        FamilyKind::Untyped,
        FamilyKind::Histogram,
        FamilyKind::GaugeHistogram,
    ];
}

struct MetricFamily<'a> {
    name: &'a str,
    help: &'a str,
    kind: FamilyKind,
    unit: Option<Unit>,
    fields: MessageReader<'a>,
}

type LabelPairs = Vec<(String, String)>;

impl<'a> MetricFamily<'a> {
    /// Reads all fields but the metrics; the unit follows them.
    fn read(fields: MessageReader<'a>) -> Result<MetricFamily<'a>, FamilyError> {
        let (mut name, mut help, mut kind, mut unit) = ("", "", 0, "");
        let mut all = fields.clone();
        while let Some((number, field)) = all.field()? {
            match number {
                1 => name = field.text()?,
                2 => help = field.text()?,
                3 => kind = field.varint()?,
                5 => unit = field.text()?,
                _ => {}
            }
        }
        if name.is_empty() {
            return Err(FamilyError::Invalid("the name of a family", "none".to_owned()));
        }
        let known = usize::try_from(kind).ok().and_then(|kind| FamilyKind::ALL.get(kind));
        let kind = *known.ok_or_else(|| {
            let found = format!("{kind} in {}", quote(name.as_bytes()));
            FamilyError::Invalid("a type from 0 to 5", found)
        })?;
        let unit = convention::parse_unit(unit).or_else(|| convention::unit_suffix(name));
        Ok(MetricFamily { name, help, kind, unit, fields })
    }

    fn read_metrics(&self, sink: &mut dyn SampleSink) -> Result<ControlFlow<()>, FamilyError> {
        if !self.help.is_empty() {
            sink.description(self.name, self.help);
        }
        let mut fields = self.fields.clone();
        loop {
            let place = InputPosition::Byte(fields.offset());
            let Some((number, field)) = fields.field()? else { break };
            if number != 4 {
                continue;
            }
            if let Err((expected, found)) =
                self.read_metric(ProtobufMetric::read(field.message()?)?, sink)?
            {
                let found = format!("{found} in {}", quote(self.name.as_bytes()));
                if sink.error(InputError::semantic(place, expected, found)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Reads a metric. The inner error is an invalid histogram or a missing value.
    fn read_metric(
        &self,
        metric: ProtobufMetric<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<Result<(), (&'static str, String)>, InputError> {
        let Some(value) = metric.value(self.kind) else {
            return Ok(Err(("a value of the family's type", "none".to_owned())));
        };
        match self.kind {
            FamilyKind::Summary => self.read_summary(&metric, value.message()?, sink)?,
            FamilyKind::Histogram | FamilyKind::GaugeHistogram => {
                return Ok(self.read_histogram(&metric, value.bytes()?, sink));
            }
            FamilyKind::Counter | FamilyKind::Gauge | FamilyKind::Untyped => {
                self.read_number(&metric, value.message()?, sink)?;
            }
        }
        Ok(Ok(()))
    }

    fn decoded_sample(
        &self,
        metric: &ProtobufMetric<'_>,
        temporality: SampleTemporality,
        value: DecodedValue,
    ) -> DecodedSample {
        DecodedSample {
            metric: self.name.to_owned(),
            labels: metric.labels.clone(),
            unit: self.unit.clone(),
            start: metric.time,
            end: metric.time,
            temporality,
            value,
        }
    }

    fn read_number(
        &self,
        metric: &ProtobufMetric<'_>,
        mut fields: MessageReader<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<(), InputError> {
        let (mut value, mut created, mut exemplars) = (0.0, None, Vec::new());
        while let Some((number, field)) = fields.field()? {
            match (number, self.kind) {
                (1, _) => value = field.double()?,
                (2, FamilyKind::Counter) => read_exemplar(field.bytes()?, &mut exemplars),
                (3, FamilyKind::Counter) => created = parse_timestamp(field.message()?)?,
                _ => {}
            }
        }
        let grows = match self.kind {
            FamilyKind::Counter => true,
            FamilyKind::Untyped => convention::is_monotonic(self.name),
            _ => false,
        };
        let temporality =
            if grows { SampleTemporality::Cumulative } else { SampleTemporality::Instant };
        let mut sample = self.decoded_sample(metric, temporality, DecodedValue::Number(value));
        if grows {
            (sample.start, sample.end) = convention::cumulative_range(created, metric.time);
        }
        sink.sample_with_exemplars(sample, exemplars);
        Ok(())
    }

    /// As Prometheus stores a summary: one series per quantile, one for the sum and one for the
    /// count.
    fn read_summary(
        &self,
        metric: &ProtobufMetric<'_>,
        mut fields: MessageReader<'_>,
        sink: &mut dyn SampleSink,
    ) -> Result<(), InputError> {
        let (mut count, mut sum, mut created) = (0, 0.0, None);
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => count = field.varint()?,
                2 => sum = field.double()?,
                3 => {
                    let [quantile, value] = parse_doubles(field.message()?)?;
                    let mut sample = self.decoded_sample(
                        metric,
                        SampleTemporality::Instant,
                        DecodedValue::Number(value),
                    );
                    let quantile = convention::number_label(quantile);
                    sample.labels.push(("quantile".to_owned(), quantile));
                    sink.sample(sample);
                }
                4 => created = parse_timestamp(field.message()?)?,
                _ => {}
            }
        }
        for (ending, unit, value) in
            [("_sum", self.unit.clone(), sum), ("_count", None, count as f64)]
        {
            let mut sample = self.decoded_sample(
                metric,
                SampleTemporality::Cumulative,
                DecodedValue::Number(value),
            );
            sample.metric.push_str(ending);
            sample.unit = unit;
            (sample.start, sample.end) = convention::cumulative_range(created, metric.time);
            sink.sample(sample);
        }
        Ok(())
    }

    fn read_histogram(
        &self,
        metric: &ProtobufMetric<'_>,
        bytes: &[u8],
        sink: &mut dyn SampleSink,
    ) -> Result<(), (&'static str, String)> {
        let wrong = |error: hist::DecodeError| ("a histogram", error.to_string());
        let message = ClientHistogram::from_bytes(bytes).map_err(wrong)?;
        let native = message.to_native().map_err(wrong)?;
        let sample = match native {
            Some(native) => Some(native),
            None => message.to_classic().map_err(wrong)?,
        };
        let histogram = match sample {
            Some(HistogramSample::Integer(histogram)) => histogram,
            Some(HistogramSample::Float(float)) => float.to_histogram().map_err(wrong)?,
            Some(HistogramSample::Stale) | None => {
                return Err(("a histogram", "a staleness marker".to_owned()));
            }
        };
        let mut exemplars = Vec::new();
        let of_buckets = message.bucket.iter().filter_map(|bucket| bucket.exemplar.as_ref());
        of_buckets.chain(&message.exemplars).for_each(|bytes| read_exemplar(bytes, &mut exemplars));
        let is_gauge = self.kind == FamilyKind::GaugeHistogram;
        let temporality =
            if is_gauge { SampleTemporality::Delta } else { SampleTemporality::Cumulative };
        let mut sample =
            self.decoded_sample(metric, temporality, DecodedValue::Histogram(Box::new(histogram)));
        if let Some(created) = message.created_timestamp.filter(|_| !is_gauge) {
            let created = parse_timestamp(MessageReader::new(&created));
            let created = created.map_err(|error| ("a time", error.to_string()))?;
            (sample.start, sample.end) = convention::cumulative_range(created, metric.time);
        }
        sink.sample_with_exemplars(sample, exemplars);
        Ok(())
    }
}

fn read_exemplar(bytes: &[u8], into: &mut Vec<DecodedExemplar>) {
    exemplar::from_scrape(bytes, parse_label, parse_timestamp, &mut |one| into.push(one));
}

struct ProtobufMetric<'a> {
    labels: LabelPairs,
    /// Timestamp in nanoseconds.
    time: Option<i64>,
    /// In field order; both histogram forms share a field.
    values: [Option<FieldValue<'a>>; 5],
}

impl<'a> ProtobufMetric<'a> {
    fn read(mut fields: MessageReader<'a>) -> Result<ProtobufMetric<'a>, InputError> {
        let mut metric = ProtobufMetric { labels: Vec::new(), time: None, values: [None; 5] };
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => metric.labels.push(parse_label(field.message()?)?),
                2 => metric.values[FamilyKind::Gauge as usize] = Some(field),
                3 => metric.values[FamilyKind::Counter as usize] = Some(field),
                4 => metric.values[FamilyKind::Summary as usize] = Some(field),
                5 => metric.values[FamilyKind::Untyped as usize] = Some(field),
                6 => metric.time = parse_time(field.varint()? as i64, &fields)?,
                7 => metric.values[FamilyKind::Histogram as usize] = Some(field),
                _ => {}
            }
        }
        Ok(metric)
    }

    fn value(&self, kind: FamilyKind) -> Option<FieldValue<'a>> {
        self.values[(kind as usize).min(FamilyKind::Histogram as usize)]
    }
}

/// Converts milliseconds to nanoseconds; 0 means no time.
fn parse_time(milliseconds: i64, at: &MessageReader<'_>) -> Result<Option<i64>, InputError> {
    let nanoseconds = milliseconds.checked_mul(1_000_000).ok_or_else(|| {
        let found = format!("{milliseconds} ms");
        InputError::new(InputPosition::Byte(at.offset()), "a time in 64 bits of nanoseconds", found)
    })?;
    Ok((nanoseconds != 0).then_some(nanoseconds))
}

fn parse_label(mut fields: MessageReader<'_>) -> Result<(String, String), InputError> {
    let (mut name, mut value) = ("", "");
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => name = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_doubles(mut fields: MessageReader<'_>) -> Result<[f64; 2], InputError> {
    let mut doubles = [0.0; 2];
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => doubles[0] = field.double()?,
            2 => doubles[1] = field.double()?,
            _ => {}
        }
    }
    Ok(doubles)
}

/// Converts a `google.protobuf.Timestamp` to nanoseconds; `None` if 64 bits overflow.
fn parse_timestamp(mut fields: MessageReader<'_>) -> Result<Option<i64>, InputError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    while let Some((number, field)) = fields.field()? {
        match number {
            1 => seconds = field.varint()? as i64,
            2 => nanoseconds = field.varint()? as i64,
            _ => {}
        }
    }
    Ok(seconds.checked_mul(1_000_000_000).and_then(|time| time.checked_add(nanoseconds)))
}
