//! Points: times, values, and the rows they become.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::otlp::{Buckets, ExponentialHistogramDataPoint, HistogramDataPoint};
use hist::codec::prometheus::STALE_MARKER;
use hist::protobuf::{Field, Message};
use model::{Error, Kind, Sample, Value};

use crate::rows::Rows;
use crate::trouble::Trouble;

use super::owner::{Metric, Part};
use super::{Outcome, Shape, attributes};

/// Bit of `flags`: the series exists, but there is no value now.
const NO_RECORDED_VALUE: u64 = 1;
/// What the labels of series that are met for the first time may take in one request, beside a multiple of the
/// request: those of a resource stand there once, and are in each of its series.
const ROOM_BYTES: usize = 64 << 20;
const ROOM_PER_BYTE: usize = 16;

type Read<T> = std::result::Result<T, Trouble>;
/// Why a point is refused.
type Checked<T> = std::result::Result<T, String>;

/// Reads points, one at a time, into the same memory.
pub(super) struct Points<'r> {
    now: i64,
    rows: &'r mut dyn Rows,
    /// Bytes that new series may still take.
    room: usize,
    head: Head,
    key: Vec<u8>,
    exponential: ExponentialHistogramDataPoint,
    explicit: HistogramDataPoint,
    quantiles: Vec<(f64, f64)>,
}

/// What points of all shapes have.
#[derive(Default)]
struct Head {
    start: u64,
    time: u64,
    flags: u64,
    /// As [`attributes::keep`] puts them together.
    attributes: Vec<u8>,
}

/// Numbers of the fields that differ between the shapes.
struct Numbers {
    attributes: u32,
    flags: u32,
}

impl Head {
    /// Reads a point: what all have here, everything else by `other`.
    fn read<'a>(
        &mut self,
        mut point: Message<'a>,
        numbers: Numbers,
        mut other: impl FnMut(u32, Field<'a>) -> Read<()>,
    ) -> Read<()> {
        (self.start, self.time, self.flags) = (0, 0, 0);
        self.attributes.clear();
        while let Some((number, field)) = point.field()? {
            match number {
                2 => self.start = field.fixed64()?,
                3 => self.time = field.fixed64()?,
                n if n == numbers.attributes => {
                    attributes::keep(field.bytes()?, &mut self.attributes);
                }
                n if n == numbers.flags => self.flags = field.varint()?,
                n => other(n, field)?,
            }
        }
        Ok(())
    }

    fn has_value(&self) -> bool {
        self.flags & NO_RECORDED_VALUE == 0
    }

    /// When it began and ended; what a gauge shows was so at its end.
    fn times(&self, kind: Kind, now: i64) -> Checked<(i64, i64)> {
        let time = |name: &str, ns: u64| {
            i64::try_from(ns).map_err(|_| format!("{name} is {ns} ns, expected less than 2^63"))
        };
        let end = if self.time == 0 { now } else { time("time_unix_nano", self.time)? };
        if kind == Kind::Gauge || self.start == 0 {
            return Ok((end, end));
        }
        let start = time("start_time_unix_nano", self.start)?;
        if start > end {
            return Err(format!("it begins at {start} ns and ends at {end} ns"));
        }
        Ok((start, end))
    }
}

impl<'r> Points<'r> {
    /// Of a request of `bytes` bytes that came at `now`.
    pub(super) fn new(bytes: usize, now: i64, rows: &'r mut dyn Rows) -> Points<'r> {
        Points {
            now,
            rows,
            room: bytes.saturating_mul(ROOM_PER_BYTE).saturating_add(ROOM_BYTES),
            head: Head::default(),
            key: Vec::new(),
            exponential: ExponentialHistogramDataPoint::default(),
            explicit: HistogramDataPoint::default(),
            quantiles: Vec::new(),
        }
    }

    /// Reads a point and hands on what it becomes. An error is one of the whole request.
    pub(super) fn take(
        &mut self,
        metric: &Metric<'_>,
        shape: Shape,
        point: Message<'_>,
    ) -> Read<Outcome> {
        let value = match shape {
            Shape::Number => self.number(metric.kind, point)?,
            Shape::Histogram => self.explicit(point)?,
            Shape::Exponential => self.exponential(point)?,
            Shape::Summary => return Ok(settled(self.summary(metric, point)?)),
        };
        Ok(settled(self.whole(metric, value)))
    }

    /// A point that is one sample; `None` is one without value.
    fn whole(&mut self, metric: &Metric<'_>, value: Checked<Option<Value>>) -> Checked<Outcome> {
        let Some(value) = value? else { return Ok(Outcome::Skipped) };
        let (start, end) = self.head.times(metric.kind, self.now)?;
        self.row(metric, Part::Whole, Sample { start, end, value })?;
        Ok(Outcome::Taken)
    }

    fn row(&mut self, metric: &Metric<'_>, part: Part, sample: Sample) -> Checked<()> {
        metric.key(part, &mut self.key);
        self.key.extend_from_slice(&self.head.attributes);
        let (head, room) = (&self.head, &mut self.room);
        let mut make = || {
            let series = metric.series(part, &head.attributes)?;
            let labels = series.labels().iter();
            let lengths = labels.flat_map(|(name, value)| [name.len(), value.len()]);
            let bytes = lengths.fold(0, usize::saturating_add);
            let Some(left) = room.checked_sub(bytes) else {
                let (what, unit) = ("what new series of a request add", "bytes or more");
                return Err(Error::Size { what, found: bytes, min: 0, max: *room, unit });
            };
            *room = left;
            Ok(series)
        };
        self.rows
            .series(&self.key, &mut make)
            .and_then(|()| self.rows.sample(&sample))
            .map_err(|error| error.to_string())
    }

    fn number(&mut self, kind: Kind, point: Message<'_>) -> Read<Checked<Option<Value>>> {
        let mut value = None;
        self.head.read(point, Numbers { attributes: 7, flags: 8 }, |number, field| {
            match number {
                4 => value = Some(field.double()?),
                6 => value = Some(field.fixed64()? as i64 as f64),
                _ => {}
            }
            Ok(())
        })?;
        if !self.head.has_value() {
            // A counter has no mark: a store would read one as a count that began anew.
            let mark = (kind == Kind::Gauge).then(|| f64::from_bits(STALE_MARKER));
            return Ok(Ok(mark.map(Value::Number)));
        }
        Ok(value
            .map(|value| Some(Value::Number(value)))
            .ok_or_else(|| "it has no value".to_owned()))
    }

    fn explicit(&mut self, point: Message<'_>) -> Read<Checked<Option<Value>>> {
        let into = &mut self.explicit;
        (into.count, into.sum, into.min, into.max) = (0, None, None, None);
        into.bucket_counts.clear();
        into.explicit_bounds.clear();
        self.head.read(point, Numbers { attributes: 9, flags: 10 }, |number, field| {
            match number {
                4 => into.count = field.fixed64()?,
                5 => into.sum = Some(field.double()?),
                6 => field.fixed64s(&mut |count| into.bucket_counts.push(count))?,
                7 => field.fixed64s(&mut |bits| into.explicit_bounds.push(f64::from_bits(bits)))?,
                11 => into.min = Some(field.double()?),
                12 => into.max = Some(field.double()?),
                _ => {}
            }
            Ok(())
        })?;
        if !self.head.has_value() {
            return Ok(Ok(None));
        }
        let histogram = self.explicit.to_histogram().map_err(|error| error.to_string());
        Ok(histogram.map(|found| found.map(|histogram| Value::Histogram(Box::new(histogram)))))
    }

    fn exponential(&mut self, point: Message<'_>) -> Read<Checked<Option<Value>>> {
        let into = &mut self.exponential;
        (into.count, into.sum, into.min, into.max) = (0, None, None, None);
        (into.scale, into.zero_count, into.zero_threshold) = (0, 0, 0.0);
        for buckets in [&mut into.positive, &mut into.negative] {
            let buckets = buckets.get_or_insert_default();
            buckets.offset = 0;
            buckets.bucket_counts.clear();
        }
        self.head.read(point, Numbers { attributes: 1, flags: 10 }, |number, field| {
            match number {
                4 => into.count = field.fixed64()?,
                5 => into.sum = Some(field.double()?),
                6 => into.scale = field.zigzag()? as i32,
                7 => into.zero_count = field.fixed64()?,
                8 => buckets(field.message()?, &mut into.positive)?,
                9 => buckets(field.message()?, &mut into.negative)?,
                12 => into.min = Some(field.double()?),
                13 => into.max = Some(field.double()?),
                14 => into.zero_threshold = field.double()?,
                _ => {}
            }
            Ok(())
        })?;
        if !self.head.has_value() {
            return Ok(Ok(None));
        }
        let histogram = self.exponential.to_histogram_folded().map_err(|error| error.to_string());
        Ok(histogram.map(|found| found.map(|folded| Value::Histogram(Box::new(folded.value)))))
    }

    /// Quantiles are gauges with a label of their own, count and sum are counters.
    fn summary(&mut self, metric: &Metric<'_>, point: Message<'_>) -> Read<Checked<Outcome>> {
        let (mut count, mut sum) = (0, 0.0);
        let quantiles = &mut self.quantiles;
        quantiles.clear();
        self.head.read(point, Numbers { attributes: 7, flags: 8 }, |number, field| {
            match number {
                4 => count = field.fixed64()?,
                5 => sum = field.double()?,
                6 => quantiles.push(quantile(field.message()?)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(self.summary_rows(metric, count as f64, sum))
    }

    fn summary_rows(&mut self, metric: &Metric<'_>, count: f64, sum: f64) -> Checked<Outcome> {
        if !self.head.has_value() {
            return Ok(Outcome::Skipped);
        }
        let (start, end) = self.head.times(metric.kind, self.now)?;
        for (part, value) in [(Part::Count, count), (Part::Sum, sum)] {
            self.row(metric, part, Sample { start, end, value: Value::Number(value) })?;
        }
        for at in 0..self.quantiles.len() {
            let (q, value) = self.quantiles[at];
            let value = Value::Number(value);
            self.row(metric, Part::Quantile(q), Sample { start: end, end, value })?;
        }
        Ok(Outcome::Taken)
    }
}

fn settled(outcome: Checked<Outcome>) -> Outcome {
    outcome.unwrap_or_else(Outcome::Refused)
}

fn buckets(mut message: Message<'_>, into: &mut Option<Buckets>) -> Read<()> {
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

fn quantile(mut message: Message<'_>) -> Read<(f64, f64)> {
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
