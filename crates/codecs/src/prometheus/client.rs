//! The client model's histogram, as in a scrape in the protobuf format. One message can hold a
//! classic histogram, a native one, or both with the same values.
//!
//! The type is decided like in Prometheus' scraper: native if there is a span or a zero threshold.
//! The message has no custom buckets (schema -53).

use hist::{DecodeError, EncodeError, Histogram, Scheme};

use crate::message;
use crate::protobuf::{Error, FieldValue, MessageFields, MessageWriter, push_message};

use super::classic::ClassicHistogram;
use super::native::{self, NativeBuckets, NativeCounts, NativeFields};
use super::spans::BucketSpan;
use super::{HistogramSample, SCHEMA_CUSTOM};

/// `io.prometheus.client.Histogram`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientHistogram {
    /// Number of values.
    pub sample_count: Option<u64>,
    /// Sum of all values.
    pub sample_sum: Option<f64>,
    /// Classic buckets, ascending.
    pub bucket: Vec<ClientBucket>,
    /// Number of values as a double; used if above 0.
    pub sample_count_float: Option<f64>,
    /// Exponential schema.
    pub schema: Option<i32>,
    /// Values within ± this threshold are in the zero bucket.
    pub zero_threshold: Option<f64>,
    /// Number of values in the zero bucket.
    pub zero_count: Option<u64>,
    /// Number of values in the zero bucket as a double; used if above 0.
    pub zero_count_float: Option<f64>,
    /// Spans of the buckets below zero, by magnitude.
    pub negative_span: Vec<BucketSpan>,
    /// Whole counts, each minus the previous one.
    pub negative_delta: Vec<i64>,
    /// Float counts.
    pub negative_count: Vec<f64>,
    /// Spans of the buckets above zero.
    pub positive_span: Vec<BucketSpan>,
    /// Whole counts, each minus the previous one.
    pub positive_delta: Vec<i64>,
    /// Float counts.
    pub positive_count: Vec<f64>,
    /// A `google.protobuf.Timestamp`, not decoded.
    pub created_timestamp: Option<Vec<u8>>,
    /// `Exemplar` messages, not decoded.
    pub exemplars: Vec<Vec<u8>>,
}

/// One classic bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientBucket {
    /// Number of values up to and including `upper_bound`.
    pub cumulative_count: Option<u64>,
    /// Upper bound of the bucket.
    pub upper_bound: Option<f64>,
    /// An `Exemplar` message, not decoded.
    pub exemplar: Option<Vec<u8>>,
    /// The count as a double; used if above 0.
    pub cumulative_count_float: Option<f64>,
}

impl MessageFields for ClientHistogram {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.sample_count = Some(field.varint()?),
            2 => self.sample_sum = Some(field.double()?),
            3 => push_message(&mut self.bucket, field)?,
            4 => self.sample_count_float = Some(field.double()?),
            5 => self.schema = Some(field.zigzag32()?),
            6 => self.zero_threshold = Some(field.double()?),
            7 => self.zero_count = Some(field.varint()?),
            8 => self.zero_count_float = Some(field.double()?),
            9 => push_message(&mut self.negative_span, field)?,
            10 => field.zigzags(&mut |delta| self.negative_delta.push(delta))?,
            11 => field.doubles(&mut |value| self.negative_count.push(value))?,
            12 => push_message(&mut self.positive_span, field)?,
            13 => field.zigzags(&mut |delta| self.positive_delta.push(delta))?,
            14 => field.doubles(&mut |value| self.positive_count.push(value))?,
            15 => self.created_timestamp = Some(field.bytes()?.to_vec()),
            16 => self.exemplars.push(field.bytes()?.to_vec()),
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.varint_optional(1, self.sample_count);
        out.double_optional(2, self.sample_sum);
        out.messages(3, &self.bucket);
        out.double_optional(4, self.sample_count_float);
        out.sint32_optional(5, self.schema);
        out.double_optional(6, self.zero_threshold);
        out.varint_optional(7, self.zero_count);
        out.double_optional(8, self.zero_count_float);
        out.messages(9, &self.negative_span);
        out.zigzags_unpacked(10, &self.negative_delta);
        out.doubles_unpacked(11, &self.negative_count);
        out.messages(12, &self.positive_span);
        out.zigzags_unpacked(13, &self.positive_delta);
        out.doubles_unpacked(14, &self.positive_count);
        out.byte_strings(15, &self.created_timestamp);
        out.byte_strings(16, &self.exemplars);
    }
}

impl MessageFields for ClientBucket {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.cumulative_count = Some(field.varint()?),
            2 => self.upper_bound = Some(field.double()?),
            3 => self.exemplar = Some(field.bytes()?.to_vec()),
            4 => self.cumulative_count_float = Some(field.double()?),
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.varint_optional(1, self.cumulative_count);
        out.double_optional(2, self.upper_bound);
        out.byte_strings(3, &self.exemplar);
        out.double_optional(4, self.cumulative_count_float);
    }
}

impl ClientHistogram {
    /// Decodes a histogram.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        message::decode(bytes, "Histogram")
    }

    /// Encodes the histogram.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_message()
    }

    /// Whether the message contains a native histogram.
    pub fn is_native(&self) -> bool {
        !(self.positive_span.is_empty() && self.negative_span.is_empty())
            || self.zero_threshold.unwrap_or_default() > 0.0
    }

    /// The native histogram with the same buckets, or `None` if there is none. A schema of 9..=52
    /// is downscaled to 8, which adds at most 0.135 % to the error of a value.
    pub fn to_native(&self) -> Result<Option<HistogramSample>, DecodeError> {
        self.is_native().then(|| self.native().read()).transpose()
    }

    fn native(&self) -> NativeFields<'_> {
        let counts = if self.sample_count_float.unwrap_or_default() > 0.0
            || self.zero_count_float.unwrap_or_default() > 0.0
        {
            let zero = float_or_integer(
                self.zero_count_float.unwrap_or_default(),
                self.zero_count.unwrap_or_default(),
            );
            NativeCounts::Float {
                count: float_or_integer(
                    self.sample_count_float.unwrap_or_default(),
                    self.sample_count.unwrap_or_default(),
                ),
                zero,
            }
        } else {
            NativeCounts::Integer {
                count: self.sample_count.unwrap_or_default(),
                zero: self.zero_count.unwrap_or_default(),
            }
        };
        let is_empty = matches!(counts, NativeCounts::Integer { count: 0, .. });
        let unknown = if is_empty { 0.0 } else { f64::NAN };
        NativeFields {
            schema: self.schema.unwrap_or_default(),
            zero_threshold: self.zero_threshold.unwrap_or_default(),
            sum: self.sample_sum.unwrap_or(unknown),
            counts,
            positive: NativeBuckets {
                field: "positive_span",
                spans: &self.positive_span,
                deltas: &self.positive_delta,
                counts: &self.positive_count,
            },
            negative: NativeBuckets {
                field: "negative_span",
                spans: &self.negative_span,
                deltas: &self.negative_delta,
                counts: &self.negative_count,
            },
            custom_values: None,
        }
    }

    /// The classic histogram, or `None` if there is only a native one.
    pub fn to_classic(&self) -> Result<Option<HistogramSample>, DecodeError> {
        if self.bucket.is_empty() && self.is_native() {
            return Ok(None);
        }
        let float = self.sample_count_float.unwrap_or_default() > 0.0
            || self
                .bucket
                .iter()
                .any(|bucket| bucket.cumulative_count_float.unwrap_or_default() > 0.0);
        let sample = if float {
            HistogramSample::Float(self.classic_float().to_float()?)
        } else {
            HistogramSample::Integer(self.classic().to_histogram()?)
        };
        Ok(Some(sample))
    }

    fn classic(&self) -> ClassicHistogram {
        let bucket = |bucket: &ClientBucket| {
            (bucket.upper_bound.unwrap_or_default(), bucket.cumulative_count.unwrap_or_default())
        };
        ClassicHistogram {
            buckets: self.bucket.iter().map(bucket).collect(),
            sum: self.sample_sum,
            count: self.sample_count.unwrap_or_default(),
        }
    }

    fn classic_float(&self) -> ClassicHistogram<f64> {
        let bucket = |bucket: &ClientBucket| {
            let count = float_or_integer(
                bucket.cumulative_count_float.unwrap_or_default(),
                bucket.cumulative_count.unwrap_or_default(),
            );
            (bucket.upper_bound.unwrap_or_default(), count)
        };
        ClassicHistogram {
            buckets: self.bucket.iter().map(bucket).collect(),
            sum: self.sample_sum,
            count: float_or_integer(
                self.sample_count_float.unwrap_or_default(),
                self.sample_count.unwrap_or_default(),
            ),
        }
    }

    /// A message with the buckets, count and sum of `histogram`: native for exponential buckets,
    /// classic for explicit ones.
    ///
    /// Omitted: min, max, declared thresholds; the sum if there are NaN values.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, EncodeError> {
        if let Scheme::Explicit(_) = histogram.scheme() {
            return ClassicHistogram::from_histogram(histogram).map(ClientHistogram::from_classic);
        }
        let mut written = native::write(histogram)?;
        debug_assert!(written.schema != SCHEMA_CUSTOM);
        let bare = written.positive_spans.is_empty() && written.negative_spans.is_empty();
        if bare && written.zero_threshold == 0.0 {
            // An empty span marks the message as native.
            written.positive_spans.push(BucketSpan::default());
        }
        Ok(ClientHistogram {
            sample_count: Some(written.count),
            sample_sum: Some(written.sum),
            schema: Some(written.schema),
            zero_threshold: Some(written.zero_threshold),
            zero_count: Some(written.zero_count),
            negative_span: written.negative_spans,
            negative_delta: written.negative,
            positive_span: written.positive_spans,
            positive_delta: written.positive,
            ..Default::default()
        })
    }

    fn from_classic(classic: ClassicHistogram) -> Self {
        let bucket = |&(bound, count): &(f64, u64)| ClientBucket {
            cumulative_count: Some(count),
            upper_bound: Some(bound),
            ..Default::default()
        };
        ClientHistogram {
            sample_count: Some(classic.count),
            sample_sum: classic.sum,
            bucket: classic.buckets.iter().map(bucket).collect(),
            ..Default::default()
        }
    }
}

/// A float field takes precedence over the integer field if it is above 0.
fn float_or_integer(double: f64, integer: u64) -> f64 {
    if double > 0.0 { double } else { integer as f64 }
}
