//! A native histogram in a remote-write request.
//!
//! `prometheus.Histogram` (version 1) and `io.prometheus.write.v2.Histogram` (version 2) are the same on the
//! wire, but for a start time that version 2 has, so one struct is both.

use prost::Message;

use super::Sample;
use super::float::FloatHistogram;
use super::native::{self, Buckets, Counts, Native, Written};
use super::spans::BucketSpan;
use crate::codec::Folded;
use crate::codec::protobuf::{self, wrong};
use crate::error::{DecodeError, EncodeError};
use crate::histogram::Histogram;

/// One native histogram at one time, remote write 1 and 2.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RemoteHistogram {
    /// All values; whole or a double, which says how the buckets are written.
    #[prost(oneof = "RemoteCount", tags = "1, 2")]
    pub count: Option<RemoteCount>,
    /// Sum of all values.
    #[prost(double, tag = "3")]
    pub sum: f64,
    /// Exponential schema, or -53 for custom buckets.
    #[prost(sint32, tag = "4")]
    pub schema: i32,
    /// Values within ± this are in the zero bucket.
    #[prost(double, tag = "5")]
    pub zero_threshold: f64,
    /// Values in the zero bucket.
    #[prost(oneof = "RemoteZeroCount", tags = "6, 7")]
    pub zero_count: Option<RemoteZeroCount>,
    /// Where the buckets below zero are, by magnitude.
    #[prost(message, repeated, tag = "8")]
    pub negative_spans: Vec<BucketSpan>,
    /// Their whole counts, each less the one before.
    #[prost(sint64, repeated, tag = "9")]
    pub negative_deltas: Vec<i64>,
    /// Their double counts.
    #[prost(double, repeated, tag = "10")]
    pub negative_counts: Vec<f64>,
    /// Where the buckets above zero are, or custom ones.
    #[prost(message, repeated, tag = "11")]
    pub positive_spans: Vec<BucketSpan>,
    /// Their whole counts, each less the one before.
    #[prost(sint64, repeated, tag = "12")]
    pub positive_deltas: Vec<i64>,
    /// Their double counts.
    #[prost(double, repeated, tag = "13")]
    pub positive_counts: Vec<f64>,
    /// Whether the counters behind it were reset.
    #[prost(enumeration = "ResetHint", tag = "14")]
    pub reset_hint: i32,
    /// Milliseconds since 1970.
    #[prost(int64, tag = "15")]
    pub timestamp: i64,
    /// Upper bounds of custom buckets but the last.
    #[prost(double, repeated, tag = "16")]
    pub custom_values: Vec<f64>,
    /// Version 2: when counting began, milliseconds since 1970; 0 is unknown.
    #[prost(int64, tag = "17")]
    pub start_timestamp: i64,
}

/// All values.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum RemoteCount {
    /// Buckets are deltas.
    #[prost(uint64, tag = "1")]
    Int(u64),
    /// Buckets are double counts.
    #[prost(double, tag = "2")]
    Float(f64),
}

/// Values in the zero bucket.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum RemoteZeroCount {
    /// Beside a whole count.
    #[prost(uint64, tag = "6")]
    Int(u64),
    /// Beside a double count.
    #[prost(double, tag = "7")]
    Float(f64),
}

/// What the sender knows of a counter reset before this sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ResetHint {
    /// Nothing: compare with the sample before.
    Unknown = 0,
    /// This is the first sample after a reset.
    Yes = 1,
    /// There was none.
    No = 2,
    /// The histogram is a gauge and has no resets.
    Gauge = 3,
}

impl RemoteHistogram {
    /// A histogram from its message.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        protobuf::decode(bytes, "Histogram")
    }

    /// The message.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// The distribution, bucket for bucket. Refuses schemas above 8, which [`Self::to_sample_folded`] takes.
    pub fn to_sample(&self) -> Result<Sample, DecodeError> {
        Ok(self.native()?.read(false)?.value)
    }

    /// As [`Self::to_sample`]; a schema of 9..=52 is folded to 8, which adds at most 0.135 % to the error of
    /// a value.
    pub fn to_sample_folded(&self) -> Result<Folded<Sample>, DecodeError> {
        self.native()?.read(true)
    }

    fn native(&self) -> Result<Native<'_>, DecodeError> {
        use {RemoteCount as Count, RemoteZeroCount as Zero};
        let counts = match (self.count, self.zero_count) {
            (None, None) => Counts::Integer { count: 0, zero: 0 },
            (Some(Count::Int(count)), None) => Counts::Integer { count, zero: 0 },
            (Some(Count::Int(count)), Some(Zero::Int(zero))) => Counts::Integer { count, zero },
            (None, Some(Zero::Int(zero))) => Counts::Integer { count: 0, zero },
            (Some(Count::Float(count)), None) => Counts::Float { count, zero: 0.0 },
            (Some(Count::Float(count)), Some(Zero::Float(zero))) => Counts::Float { count, zero },
            // A writer that leaves zeros out may leave one of the two out.
            (Some(Count::Float(count)), Some(Zero::Int(0))) => Counts::Float { count, zero: 0.0 },
            (count, zero) => {
                let found = format_args!("{zero:?} beside {count:?}");
                return Err(wrong("zero_count", found, "both whole or both double"));
            }
        };
        Ok(Native {
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            sum: self.sum,
            counts,
            positive: Buckets {
                field: "positive_spans",
                spans: &self.positive_spans,
                deltas: &self.positive_deltas,
                counts: &self.positive_counts,
            },
            negative: Buckets {
                field: "negative_spans",
                spans: &self.negative_spans,
                deltas: &self.negative_deltas,
                counts: &self.negative_counts,
            },
            custom_values: Some(&self.custom_values),
        })
    }

    /// A message with the buckets, count and sum of `histogram`; NaN and infinities have their places.
    /// Times and reset hint are the caller's.
    ///
    /// Left out: min, max, declared thresholds; the sum where there are NaN values.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, EncodeError> {
        let written = native::write(histogram)?;
        Ok(RemoteHistogram {
            count: Some(RemoteCount::Int(written.count)),
            zero_count: Some(RemoteZeroCount::Int(written.zero_count)),
            positive_deltas: written.positive.clone(),
            negative_deltas: written.negative.clone(),
            ..RemoteHistogram::from_common(written)
        })
    }

    /// A message with everything that `float` holds. Times and reset hint are the caller's.
    pub fn from_float(float: &FloatHistogram) -> Result<Self, EncodeError> {
        let written = native::write_float(float)?;
        Ok(RemoteHistogram {
            count: Some(RemoteCount::Float(written.count)),
            zero_count: Some(RemoteZeroCount::Float(written.zero_count)),
            positive_counts: written.positive.clone(),
            negative_counts: written.negative.clone(),
            ..RemoteHistogram::from_common(written)
        })
    }

    /// The fields that do not depend on the kind of count.
    fn from_common<N, D>(written: Written<N, D>) -> Self {
        RemoteHistogram {
            sum: written.sum,
            schema: written.schema,
            zero_threshold: written.zero_threshold,
            positive_spans: written.positive_spans,
            negative_spans: written.negative_spans,
            custom_values: written.custom_values,
            ..Default::default()
        }
    }
}
