//! A native histogram in a remote-write request.
//!
//! `prometheus.Histogram` (version 1) and `io.prometheus.write.v2.Histogram` (version 2) have the
//! same wire format, except for the start time of version 2, so one struct represents both.

use hist::{DecodeError, EncodeError, Histogram};

use crate::message::{self, field_error};
use crate::protobuf::{Error, FieldValue, MessageFields, MessageWriter, push_message};

use super::HistogramSample;
use super::native::{self, NativeBuckets, NativeCounts, NativeFields};
use super::reset_hint::ResetHint;
use super::spans::BucketSpan;

/// Native histogram sample, remote write 1 and 2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteHistogram {
    /// Number of values, a whole number or a double; its type decides how the buckets are written.
    pub count: Option<RemoteCount>,
    /// Sum of all values.
    pub sum: f64,
    /// Exponential schema, or -53 for custom buckets.
    pub schema: i32,
    /// Values within ± this threshold are in the zero bucket.
    pub zero_threshold: f64,
    /// Number of values in the zero bucket.
    pub zero_count: Option<RemoteZeroCount>,
    /// Spans of the buckets below zero, by magnitude.
    pub negative_spans: Vec<BucketSpan>,
    /// Whole counts, each minus the previous one.
    pub negative_deltas: Vec<i64>,
    /// Float counts.
    pub negative_counts: Vec<f64>,
    /// Spans of the buckets above zero, or of custom buckets.
    pub positive_spans: Vec<BucketSpan>,
    /// Whole counts, each minus the previous one.
    pub positive_deltas: Vec<i64>,
    /// Float counts.
    pub positive_counts: Vec<f64>,
    /// Whether the counters were reset: the number of a [`ResetHint`].
    pub reset_hint: i32,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Upper bounds of custom buckets except the last.
    pub custom_values: Vec<f64>,
    /// Version 2: start time, milliseconds since 1970; 0 if unknown.
    pub start_timestamp: i64,
}

/// Value of a [`RemoteHistogram`] with what places it in a series.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteSample {
    /// The distribution.
    pub value: HistogramSample,
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// Version 2: start time, milliseconds since 1970; 0 if unknown.
    pub start_timestamp: i64,
    /// The number of a [`ResetHint`].
    pub reset_hint: i32,
}

impl RemoteSample {
    /// Decodes a histogram. [`PlainReader`](super::PlainReader) reads nearly all of them faster.
    pub fn from_bytes(bytes: &[u8]) -> Result<RemoteSample, DecodeError> {
        RemoteSample::from_message(&RemoteHistogram::from_bytes(bytes)?)
    }

    /// Value of a decoded message.
    pub fn from_message(message: &RemoteHistogram) -> Result<RemoteSample, DecodeError> {
        Ok(RemoteSample {
            value: message.to_sample()?,
            timestamp: message.timestamp,
            start_timestamp: message.start_timestamp,
            reset_hint: message.reset_hint,
        })
    }
}

/// Number of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RemoteCount {
    /// Buckets are deltas.
    Int(u64),
    /// Buckets are float counts.
    Float(f64),
}

/// Number of values in the zero bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RemoteZeroCount {
    /// For a whole count.
    Int(u64),
    /// For a float count.
    Float(f64),
}

impl MessageFields for RemoteHistogram {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.count = Some(RemoteCount::Int(field.varint()?)),
            2 => self.count = Some(RemoteCount::Float(field.double()?)),
            3 => self.sum = field.double()?,
            4 => self.schema = field.zigzag32()?,
            5 => self.zero_threshold = field.double()?,
            6 => self.zero_count = Some(RemoteZeroCount::Int(field.varint()?)),
            7 => self.zero_count = Some(RemoteZeroCount::Float(field.double()?)),
            8 => push_message(&mut self.negative_spans, field)?,
            9 => field.zigzags(&mut |delta| self.negative_deltas.push(delta))?,
            10 => field.doubles(&mut |value| self.negative_counts.push(value))?,
            11 => push_message(&mut self.positive_spans, field)?,
            12 => field.zigzags(&mut |delta| self.positive_deltas.push(delta))?,
            13 => field.doubles(&mut |value| self.positive_counts.push(value))?,
            14 => self.reset_hint = field.varint()? as i32,
            15 => self.timestamp = field.varint()? as i64,
            16 => field.doubles(&mut |value| self.custom_values.push(value))?,
            17 => self.start_timestamp = field.varint()? as i64,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        match self.count {
            Some(RemoteCount::Int(count)) => out.varint_optional(1, Some(count)),
            Some(RemoteCount::Float(count)) => out.double_optional(2, Some(count)),
            None => {}
        }
        out.double(3, self.sum);
        out.sint32(4, self.schema);
        out.double(5, self.zero_threshold);
        match self.zero_count {
            Some(RemoteZeroCount::Int(count)) => out.varint_optional(6, Some(count)),
            Some(RemoteZeroCount::Float(count)) => out.double_optional(7, Some(count)),
            None => {}
        }
        out.messages(8, &self.negative_spans);
        out.zigzags(9, &self.negative_deltas);
        out.doubles(10, &self.negative_counts);
        out.messages(11, &self.positive_spans);
        out.zigzags(12, &self.positive_deltas);
        out.doubles(13, &self.positive_counts);
        out.varint(14, self.reset_hint as u64);
        out.varint(15, self.timestamp as u64);
        out.doubles(16, &self.custom_values);
        out.varint(17, self.start_timestamp as u64);
    }
}

impl RemoteHistogram {
    /// Decodes a histogram.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        message::decode(bytes, "Histogram")
    }

    /// Encodes the histogram.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_message()
    }

    /// The hint with the number `reset_hint`; unknown numbers mean unknown.
    pub fn reset_hint(&self) -> ResetHint {
        ResetHint::from_number(self.reset_hint)
    }

    /// The distribution with the same buckets. A schema of 9..=52 is downscaled to 8, which adds at
    /// most 0.135 % to the error of a value.
    pub fn to_sample(&self) -> Result<HistogramSample, DecodeError> {
        self.native()?.read()
    }

    fn native(&self) -> Result<NativeFields<'_>, DecodeError> {
        use {RemoteCount as Count, RemoteZeroCount as Zero};
        let counts = match (self.count, self.zero_count) {
            (None, None) => NativeCounts::Integer { count: 0, zero: 0 },
            (Some(Count::Int(count)), None) => NativeCounts::Integer { count, zero: 0 },
            (Some(Count::Int(count)), Some(Zero::Int(zero))) => {
                NativeCounts::Integer { count, zero }
            }
            (None, Some(Zero::Int(zero))) => NativeCounts::Integer { count: 0, zero },
            (Some(Count::Float(count)), None) => NativeCounts::Float { count, zero: 0.0 },
            (Some(Count::Float(count)), Some(Zero::Float(zero))) => {
                NativeCounts::Float { count, zero }
            }
            // A writer that omits zeros may omit one of the two.
            (Some(Count::Float(count)), Some(Zero::Int(0))) => {
                NativeCounts::Float { count, zero: 0.0 }
            }
            (count, zero) => {
                let found = format_args!("{zero:?} beside {count:?}");
                return Err(field_error("zero_count", found, "both integers or both floats"));
            }
        };
        Ok(NativeFields {
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            counts,
            positive: NativeBuckets {
                field: "positive_spans",
                spans: &self.positive_spans,
                deltas: &self.positive_deltas,
                counts: &self.positive_counts,
            },
            negative: NativeBuckets {
                field: "negative_spans",
                spans: &self.negative_spans,
                deltas: &self.negative_deltas,
                counts: &self.negative_counts,
            },
            custom_values: Some(&self.custom_values),
        })
    }

    /// A message with the buckets, count and sum of `histogram`, including NaN and infinities. The
    /// caller sets times and reset hint.
    ///
    /// Omitted: min, max, declared thresholds; the sum if there are NaN values.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, EncodeError> {
        let written = native::write(histogram)?;
        Ok(RemoteHistogram {
            count: Some(RemoteCount::Int(written.count)),
            sum: written.sum,
            schema: written.schema,
            zero_threshold: written.zero_threshold,
            zero_count: Some(RemoteZeroCount::Int(written.zero_count)),
            negative_spans: written.negative_spans,
            negative_deltas: written.negative,
            positive_spans: written.positive_spans,
            positive_deltas: written.positive,
            custom_values: written.custom_values,
            ..Default::default()
        })
    }
}
