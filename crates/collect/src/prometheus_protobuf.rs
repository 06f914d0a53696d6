//! A scrape in Prometheus' protocol buffers: messages `io.prometheus.client.MetricFamily`, each after its length. The
//! only form of a scrape that has native histograms.
//!
//! ```text
//! MetricFamily  1 name, 2 help, 3 type (0 counter, 1 gauge, 2 summary, 3 untyped, 4 histogram, 5 gauge histogram),
//!               4 metric, 5 unit
//! Metric        1 label (1 name, 2 value), 2 gauge, 3 counter, 4 summary, 5 untyped, 7 histogram, 6 timestamp_ms
//! Gauge, Untyped 1 value (double)     Counter  1 value (double), 2 exemplar, 3 created
//! Summary       1 sample_count, 2 sample_sum (double), 3 quantile (1 quantile, 2 value; doubles), 4 created
//! Timestamp     1 seconds, 2 nanos
//! ```
//! Kinds, units and names are those of the text form (`exposition.rs`). A histogram that is there in both forms is
//! taken as the native one; double counts are taken if they are whole. A time stamp of 0 is none, as in Prometheus'
//! scraper. Exemplars are skipped and counted. What is wrong within a family leaves the others as they are.
//!
//! Source: prometheus/client_model v0.6.3, `io/prometheus/client/metrics.proto`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::ControlFlow;

use hist::codec::prometheus::{ClientHistogram, Sample};
use hist::protobuf::{Field, Message};

use crate::convention;
use crate::reading::{Over, Reading, Sink, Value};
use crate::trouble::{Place, Trouble, quote};
use crate::unit::Unit;

#[cfg(test)]
mod tests;

/// Reads the body of one scrape.
pub fn read(body: &[u8], sink: &mut dyn Sink) {
    let mut rest = Message::new(body);
    loop {
        let place = Place::Byte(rest.offset());
        let family = match rest.delimited() {
            Ok(None) => return,
            Ok(Some(family)) => family,
            Err(error) => {
                // Where the next family begins is not known.
                let _ = sink.trouble(error.into());
                return;
            }
        };
        let read = Family::read(family).and_then(|family| family.metrics(sink));
        let flow = match read {
            Ok(flow) => flow,
            Err(Wrong::Bytes(trouble)) => sink.trouble(trouble),
            Err(Wrong::Family(expected, found)) => {
                sink.trouble(Trouble::new(place, expected, found))
            }
        };
        if flow.is_break() {
            return;
        }
    }
}

/// What is wrong with a family.
enum Wrong {
    Bytes(Trouble),
    /// What was expected, what was found.
    Family(&'static str, String),
}

impl From<Trouble> for Wrong {
    fn from(trouble: Trouble) -> Wrong {
        Wrong::Bytes(trouble)
    }
}

impl From<hist::protobuf::Error> for Wrong {
    fn from(error: hist::protobuf::Error) -> Wrong {
        Trouble::from(error).into()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Counter,
    Gauge,
    Summary,
    Untyped,
    Histogram,
    GaugeHistogram,
}

impl Type {
    const ALL: [Type; 6] = [
        Type::Counter,
        Type::Gauge,
        Type::Summary,
        Type::Untyped,
        Type::Histogram,
        Type::GaugeHistogram,
    ];
}

struct Family<'a> {
    name: &'a str,
    kind: Type,
    unit: Option<Unit>,
    fields: Message<'a>,
}

type Labels = Vec<(String, String)>;

impl<'a> Family<'a> {
    /// All but the metrics; the unit stands after them.
    fn read(fields: Message<'a>) -> Result<Family<'a>, Wrong> {
        let (mut name, mut kind, mut unit) = ("", 0, "");
        let mut all = fields.clone();
        while let Some((number, field)) = all.field()? {
            match number {
                1 => name = field.text()?,
                3 => kind = field.varint()?,
                5 => unit = field.text()?,
                _ => {}
            }
        }
        if name.is_empty() {
            return Err(Wrong::Family("the name of a family", "none".to_owned()));
        }
        let known = usize::try_from(kind).ok().and_then(|kind| Type::ALL.get(kind));
        let kind = *known.ok_or_else(|| {
            let found = format!("{kind} in {}", quote(name.as_bytes()));
            Wrong::Family("a type from 0 to 5", found)
        })?;
        let unit = convention::named_unit(unit).or_else(|| convention::unit(name));
        Ok(Family { name, kind, unit, fields })
    }

    fn metrics(&self, sink: &mut dyn Sink) -> Result<ControlFlow<()>, Wrong> {
        let mut fields = self.fields.clone();
        loop {
            let place = Place::Byte(fields.offset());
            let Some((number, field)) = fields.field()? else { break };
            if number != 4 {
                continue;
            }
            if let Err((expected, found)) = self.metric(Metric::read(field.message()?)?, sink)? {
                let found = format!("{found} in {}", quote(self.name.as_bytes()));
                if sink.trouble(Trouble::absurd(place, expected, found)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// One metric; the inner error is of its histogram or that it has no value.
    fn metric(
        &self,
        metric: Metric<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Result<(), (&'static str, String)>, Trouble> {
        let Some(value) = metric.value(self.kind) else {
            return Ok(Err(("a value of the family's type", "none".to_owned())));
        };
        match self.kind {
            Type::Summary => self.summary(&metric, value.message()?, sink)?,
            Type::Histogram | Type::GaugeHistogram => {
                return Ok(self.histogram(&metric, value.bytes()?, sink));
            }
            Type::Counter | Type::Gauge | Type::Untyped => {
                self.number(&metric, value.message()?, sink)?;
            }
        }
        Ok(Ok(()))
    }

    fn reading(&self, metric: &Metric<'_>, over: Over, value: Value) -> Reading {
        Reading {
            metric: self.name.to_owned(),
            labels: metric.labels.clone(),
            unit: self.unit.clone(),
            start: metric.time,
            end: metric.time,
            over,
            value,
        }
    }

    fn number(
        &self,
        metric: &Metric<'_>,
        mut fields: Message<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
        let (mut value, mut created) = (0.0, None);
        while let Some((number, field)) = fields.field()? {
            match (number, self.kind) {
                (1, _) => value = field.double()?,
                (2, Type::Counter) => sink.skipped(EXEMPLAR),
                (3, Type::Counter) => created = timestamp(field.message()?)?,
                _ => {}
            }
        }
        let grows = match self.kind {
            Type::Counter => true,
            Type::Untyped => convention::grows(self.name),
            _ => false,
        };
        let over = if grows { Over::Total } else { Over::Moment };
        let mut reading = self.reading(metric, over, Value::Number(value));
        if grows {
            (reading.start, reading.end) = convention::total(created, metric.time);
        }
        sink.reading(reading);
        Ok(())
    }

    /// As Prometheus stores it: a series for each quantile, one for the sum and one for the count.
    fn summary(
        &self,
        metric: &Metric<'_>,
        mut fields: Message<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Trouble> {
        let (mut count, mut sum, mut created) = (0, 0.0, None);
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => count = field.varint()?,
                2 => sum = field.double()?,
                3 => {
                    let [quantile, value] = doubles(field.message()?)?;
                    let mut reading = self.reading(metric, Over::Moment, Value::Number(value));
                    let quantile = convention::label_number(quantile);
                    reading.labels.push(("quantile".to_owned(), quantile));
                    sink.reading(reading);
                }
                4 => created = timestamp(field.message()?)?,
                _ => {}
            }
        }
        for (ending, unit, value) in
            [("_sum", self.unit.clone(), sum), ("_count", None, count as f64)]
        {
            let mut reading = self.reading(metric, Over::Total, Value::Number(value));
            reading.metric.push_str(ending);
            reading.unit = unit;
            (reading.start, reading.end) = convention::total(created, metric.time);
            sink.reading(reading);
        }
        Ok(())
    }

    fn histogram(
        &self,
        metric: &Metric<'_>,
        bytes: &[u8],
        sink: &mut dyn Sink,
    ) -> Result<(), (&'static str, String)> {
        let wrong = |error: hist::DecodeError| ("a histogram", error.to_string());
        let message = ClientHistogram::from_bytes(bytes).map_err(wrong)?;
        let native = message.to_native().map_err(wrong)?;
        let sample = match native {
            Some(native) => Some(native),
            None => message.to_classic().map_err(wrong)?,
        };
        let histogram = match sample {
            Some(Sample::Integer(histogram)) => histogram,
            Some(Sample::Float(float)) => float.to_histogram().map_err(wrong)?,
            Some(Sample::Stale) | None => {
                return Err(("a histogram", "the mark of its end".to_owned()));
            }
        };
        let of_buckets = message.bucket.iter().filter(|bucket| bucket.exemplar.is_some()).count();
        for _ in 0..message.exemplars.len().saturating_add(of_buckets) {
            sink.skipped(EXEMPLAR);
        }
        let is_gauge = self.kind == Type::GaugeHistogram;
        let over = if is_gauge { Over::Interval } else { Over::Total };
        let mut reading = self.reading(metric, over, Value::Histogram(Box::new(histogram)));
        if let Some(created) = message.created_timestamp.filter(|_| !is_gauge) {
            let created = timestamp(Message::new(&created));
            let created = created.map_err(|trouble| ("a time", trouble.to_string()))?;
            (reading.start, reading.end) = convention::total(created, metric.time);
        }
        sink.reading(reading);
        Ok(())
    }
}

const EXEMPLAR: &str = "an exemplar";

struct Metric<'a> {
    labels: Labels,
    /// In nanoseconds.
    time: Option<i64>,
    /// In the order of [`Type`]; both kinds of histograms have one field.
    values: [Option<Field<'a>>; 5],
}

impl<'a> Metric<'a> {
    fn read(mut fields: Message<'a>) -> Result<Metric<'a>, Trouble> {
        let mut metric = Metric { labels: Vec::new(), time: None, values: [None; 5] };
        while let Some((number, field)) = fields.field()? {
            match number {
                1 => metric.labels.push(label(field.message()?)?),
                2 => metric.values[Type::Gauge as usize] = Some(field),
                3 => metric.values[Type::Counter as usize] = Some(field),
                4 => metric.values[Type::Summary as usize] = Some(field),
                5 => metric.values[Type::Untyped as usize] = Some(field),
                6 => metric.time = time(field.varint()? as i64, &fields)?,
                7 => metric.values[Type::Histogram as usize] = Some(field),
                _ => {}
            }
        }
        Ok(metric)
    }

    fn value(&self, kind: Type) -> Option<Field<'a>> {
        self.values[(kind as usize).min(Type::Histogram as usize)]
    }
}

/// Milliseconds in nanoseconds; 0 is no time.
fn time(milliseconds: i64, at: &Message<'_>) -> Result<Option<i64>, Trouble> {
    let nanoseconds = milliseconds.checked_mul(1_000_000).ok_or_else(|| {
        let found = format!("{milliseconds} ms");
        Trouble::new(Place::Byte(at.offset()), "a time in 64 bits of nanoseconds", found)
    })?;
    Ok((nanoseconds != 0).then_some(nanoseconds))
}

fn label(mut fields: Message<'_>) -> Result<(String, String), Trouble> {
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

fn doubles(mut fields: Message<'_>) -> Result<[f64; 2], Trouble> {
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

/// A `google.protobuf.Timestamp` in nanoseconds; `None` where 64 bits do not hold it.
fn timestamp(mut fields: Message<'_>) -> Result<Option<i64>, Trouble> {
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
