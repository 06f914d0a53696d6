//! Data points to rows.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::otlp::{ExponentialHistogramDataPoint, HistogramDataPoint, OtlpBuckets};
use codecs::prometheus::STALE_MARKER;
use codecs::protobuf::{FieldValue, MessageReader};
use model::{Error, Sample, SampleValue, SeriesKind};

use crate::exemplar;
use crate::input_error::InputError;
use crate::series_sink::{SeriesSink, pass_exemplar};

use super::metric_context::{MetricComponent, MetricContext};
use super::{PointKind, PointOutcome, attributes};

/// Bit of `flags`: the series has no value now (stale).
const NO_RECORDED_VALUE: u64 = 1;
/// Memory limit of the labels of new series per request, in addition to a multiple of the request's
/// size: resource labels occur once in the request but in each of its series.
const SERIES_BUDGET_BYTES: usize = 64 << 20;
const SERIES_BUDGET_PER_BYTE: usize = 16;

type ReadResult<T> = std::result::Result<T, InputError>;
/// Result with the rejection reason of a point.
type PointResult<T> = std::result::Result<T, String>;

/// Reads points one at a time and reuses its buffers.
pub(super) struct PointReader<'r> {
    now: i64,
    sink: &'r mut dyn SeriesSink,
    /// Remaining bytes for labels of new series.
    budget: usize,
    head: PointHeader,
    key: Vec<u8>,
    exponential: ExponentialHistogramDataPoint,
    explicit: HistogramDataPoint,
    quantiles: Vec<(f64, f64)>,
}

/// Fields common to all point kinds.
#[derive(Default)]
struct PointHeader {
    start: u64,
    time: u64,
    flags: u64,
    /// Encoded by [`attributes::append_raw`].
    attributes: Vec<u8>,
    /// Likewise.
    exemplars: Vec<u8>,
}

/// Field numbers that differ between point messages.
struct PointFieldNumbers {
    attributes: u32,
    flags: u32,
    /// 0 if there are none.
    exemplars: u32,
}

impl PointHeader {
    /// Parses the common fields of a point; `other` parses the rest.
    fn parse<'a>(
        &mut self,
        mut point: MessageReader<'a>,
        numbers: PointFieldNumbers,
        mut other: impl FnMut(u32, FieldValue<'a>) -> ReadResult<()>,
    ) -> ReadResult<()> {
        (self.start, self.time, self.flags) = (0, 0, 0);
        self.attributes.clear();
        self.exemplars.clear();
        while let Some((number, field)) = point.field()? {
            match number {
                2 => self.start = field.fixed64()?,
                3 => self.time = field.fixed64()?,
                n if n == numbers.attributes => {
                    attributes::append_raw(field.bytes()?, &mut self.attributes);
                }
                n if n == numbers.flags => self.flags = field.varint()?,
                n if n == numbers.exemplars => {
                    attributes::append_raw(field.bytes()?, &mut self.exemplars);
                }
                n => other(n, field)?,
            }
        }
        Ok(())
    }

    fn has_value(&self) -> bool {
        self.flags & NO_RECORDED_VALUE == 0
    }

    /// Start and end. A gauge has only its end.
    fn times(&self, kind: SeriesKind, now: i64) -> PointResult<(i64, i64)> {
        let time = |name: &str, ns: u64| {
            i64::try_from(ns).map_err(|_| format!("{name} is {ns} ns, expected less than 2^63"))
        };
        let end = if self.time == 0 { now } else { time("time_unix_nano", self.time)? };
        if kind == SeriesKind::Gauge || self.start == 0 {
            return Ok((end, end));
        }
        let start = time("start_time_unix_nano", self.start)?;
        if start > end {
            return Err(format!("start {start} ns is after end {end} ns"));
        }
        Ok((start, end))
    }
}

impl<'r> PointReader<'r> {
    /// Passes on the description of a metric.
    pub(super) fn describe(&mut self, metric: &str, text: &str) {
        if !text.is_empty() {
            self.sink.description(metric, text);
        }
    }

    /// Creates a reader for a request of `bytes` bytes received at `now`.
    pub(super) fn new(bytes: usize, now: i64, sink: &'r mut dyn SeriesSink) -> PointReader<'r> {
        PointReader {
            now,
            sink,
            budget: bytes
                .saturating_mul(SERIES_BUDGET_PER_BYTE)
                .saturating_add(SERIES_BUDGET_BYTES),
            head: PointHeader::default(),
            key: Vec::new(),
            exponential: ExponentialHistogramDataPoint::default(),
            explicit: HistogramDataPoint::default(),
            quantiles: Vec::new(),
        }
    }

    /// Reads a point and emits its rows. An error concerns the whole request.
    pub(super) fn read_point(
        &mut self,
        metric: &MetricContext<'_>,
        shape: PointKind,
        point: MessageReader<'_>,
    ) -> ReadResult<PointOutcome> {
        let value = match shape {
            PointKind::Number => self.read_number(metric.kind, point)?,
            PointKind::Histogram => self.read_explicit(point)?,
            PointKind::Exponential => self.read_exponential(point)?,
            PointKind::Summary => return Ok(into_outcome(self.read_summary(metric, point)?)),
        };
        Ok(into_outcome(self.write_value(metric, value)))
    }

    /// Emits a single-sample point; `None` is a point without a value.
    fn write_value(
        &mut self,
        metric: &MetricContext<'_>,
        value: PointResult<Option<SampleValue>>,
    ) -> PointResult<PointOutcome> {
        let Some(value) = value? else { return Ok(PointOutcome::Skipped) };
        let (start, end) = self.head.times(metric.kind, self.now)?;
        self.write_row(metric, MetricComponent::Value, Sample { start, end, value })?;
        if !self.head.exemplars.is_empty() {
            self.write_exemplars(metric, end);
        }
        Ok(PointOutcome::Accepted)
    }

    /// Emits the exemplars of the point written last.
    fn write_exemplars(&mut self, metric: &MetricContext<'_>, end: i64) {
        let (head, sink) = (&self.head, &mut *self.sink);
        let mut series = || metric.series(MetricComponent::Value, &head.attributes);
        let parse_label = |message: MessageReader<'_>| attributes::parse_label(message).ok();
        for raw in attributes::iter_raw(&head.exemplars) {
            exemplar::from_otlp(MessageReader::new(raw), &parse_label, &mut |mut found| {
                if let Ok(exemplar) = &mut found
                    && exemplar.time == 0
                {
                    exemplar.time = end;
                }
                pass_exemplar(sink, &self.key, &mut series, &found);
            });
        }
    }

    fn write_row(
        &mut self,
        metric: &MetricContext<'_>,
        component: MetricComponent,
        sample: Sample,
    ) -> PointResult<()> {
        metric.key(component, &mut self.key);
        self.key.extend_from_slice(&self.head.attributes);
        let (head, room) = (&self.head, &mut self.budget);
        let mut make = || {
            let series = metric.series(component, &head.attributes)?;
            let labels = series.labels().iter();
            let lengths = labels.flat_map(|(name, value)| [name.len(), value.len()]);
            let bytes = lengths.fold(0, usize::saturating_add);
            let Some(remaining) = room.checked_sub(bytes) else {
                let (what, unit) = ("memory for new series of one request", "bytes or more");
                return Err(Error::Size { part: what, found: bytes, min: 0, max: *room, unit });
            };
            *room = remaining;
            Ok(series)
        };
        self.sink
            .series(&self.key, &mut make)
            .and_then(|()| self.sink.sample(&sample))
            .map_err(|error| error.to_string())
    }

    fn read_number(
        &mut self,
        kind: SeriesKind,
        point: MessageReader<'_>,
    ) -> ReadResult<PointResult<Option<SampleValue>>> {
        let mut value = None;
        self.head.parse(
            point,
            PointFieldNumbers { attributes: 7, flags: 8, exemplars: 5 },
            |number, field| {
                match number {
                    4 => value = Some(field.double()?),
                    6 => value = Some(field.fixed64()? as i64 as f64),
                    _ => {}
                }
                Ok(())
            },
        )?;
        if !self.head.has_value() {
            // A counter has no staleness marker: the store would take it for a counter reset.
            let mark = (kind == SeriesKind::Gauge).then(|| f64::from_bits(STALE_MARKER));
            return Ok(Ok(mark.map(SampleValue::Number)));
        }
        Ok(value
            .map(|value| Some(SampleValue::Number(value)))
            .ok_or_else(|| "point without a value".to_owned()))
    }

    fn read_explicit(
        &mut self,
        point: MessageReader<'_>,
    ) -> ReadResult<PointResult<Option<SampleValue>>> {
        let into = &mut self.explicit;
        (into.count, into.sum, into.min, into.max) = (0, None, None, None);
        into.bucket_counts.clear();
        into.explicit_bounds.clear();
        self.head.parse(
            point,
            PointFieldNumbers { attributes: 9, flags: 10, exemplars: 8 },
            |number, field| {
                match number {
                    4 => into.count = field.fixed64()?,
                    5 => into.sum = Some(field.double()?),
                    6 => field.fixed64s(&mut |count| into.bucket_counts.push(count))?,
                    7 => field
                        .fixed64s(&mut |bits| into.explicit_bounds.push(f64::from_bits(bits)))?,
                    11 => into.min = Some(field.double()?),
                    12 => into.max = Some(field.double()?),
                    _ => {}
                }
                Ok(())
            },
        )?;
        if !self.head.has_value() {
            return Ok(Ok(None));
        }
        let histogram = self.explicit.to_histogram().map_err(|error| error.to_string());
        Ok(histogram
            .map(|found| found.map(|histogram| SampleValue::Histogram(Box::new(histogram)))))
    }

    fn read_exponential(
        &mut self,
        point: MessageReader<'_>,
    ) -> ReadResult<PointResult<Option<SampleValue>>> {
        let into = &mut self.exponential;
        (into.count, into.sum, into.min, into.max) = (0, None, None, None);
        (into.scale, into.zero_count, into.zero_threshold) = (0, 0, 0.0);
        for buckets in [&mut into.positive, &mut into.negative] {
            let buckets = buckets.get_or_insert_default();
            buckets.offset = 0;
            buckets.bucket_counts.clear();
        }
        self.head.parse(
            point,
            PointFieldNumbers { attributes: 1, flags: 10, exemplars: 11 },
            |number, field| {
                match number {
                    4 => into.count = field.fixed64()?,
                    5 => into.sum = Some(field.double()?),
                    6 => into.scale = field.zigzag()? as i32,
                    7 => into.zero_count = field.fixed64()?,
                    8 => read_buckets(field.message()?, &mut into.positive)?,
                    9 => read_buckets(field.message()?, &mut into.negative)?,
                    12 => into.min = Some(field.double()?),
                    13 => into.max = Some(field.double()?),
                    14 => into.zero_threshold = field.double()?,
                    _ => {}
                }
                Ok(())
            },
        )?;
        if !self.head.has_value() {
            return Ok(Ok(None));
        }
        let histogram = self.exponential.to_histogram().map_err(|error| error.to_string());
        Ok(histogram.map(|found| found.map(|value| SampleValue::Histogram(Box::new(value)))))
    }

    /// Quantiles are gauges with a `quantile` label; count and sum are counters.
    fn read_summary(
        &mut self,
        metric: &MetricContext<'_>,
        point: MessageReader<'_>,
    ) -> ReadResult<PointResult<PointOutcome>> {
        let (mut count, mut sum) = (0, 0.0);
        let quantiles = &mut self.quantiles;
        quantiles.clear();
        self.head.parse(
            point,
            PointFieldNumbers { attributes: 7, flags: 8, exemplars: 0 },
            |number, field| {
                match number {
                    4 => count = field.fixed64()?,
                    5 => sum = field.double()?,
                    6 => quantiles.push(read_quantile(field.message()?)?),
                    _ => {}
                }
                Ok(())
            },
        )?;
        Ok(self.write_summary(metric, count as f64, sum))
    }

    fn write_summary(
        &mut self,
        metric: &MetricContext<'_>,
        count: f64,
        sum: f64,
    ) -> PointResult<PointOutcome> {
        if !self.head.has_value() {
            return Ok(PointOutcome::Skipped);
        }
        let (start, end) = self.head.times(metric.kind, self.now)?;
        for (component, value) in [(MetricComponent::Count, count), (MetricComponent::Sum, sum)] {
            self.write_row(
                metric,
                component,
                Sample { start, end, value: SampleValue::Number(value) },
            )?;
        }
        for at in 0..self.quantiles.len() {
            let (q, value) = self.quantiles[at];
            let value = SampleValue::Number(value);
            self.write_row(
                metric,
                MetricComponent::Quantile(q),
                Sample { start: end, end, value },
            )?;
        }
        Ok(PointOutcome::Accepted)
    }
}

fn into_outcome(outcome: PointResult<PointOutcome>) -> PointOutcome {
    outcome.unwrap_or_else(PointOutcome::Rejected)
}

fn read_buckets(mut message: MessageReader<'_>, into: &mut Option<OtlpBuckets>) -> ReadResult<()> {
    let into = into.get_or_insert_default();
    while let Some((number, field)) = message.field()? {
        match number {
            1 => into.offset = field.zigzag()? as i32,
            2 => field.varints(&mut |count| into.bucket_counts.push(count))?,
            _ => {}
        }
    }
    Ok(())
}

fn read_quantile(mut message: MessageReader<'_>) -> ReadResult<(f64, f64)> {
    let mut quantile = (0.0, 0.0);
    while let Some((number, field)) = message.field()? {
        match number {
            1 => quantile.0 = field.double()?,
            2 => quantile.1 = field.double()?,
            _ => {}
        }
    }
    Ok(quantile)
}
