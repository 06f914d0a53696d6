//! OTLP histogram data points, exponential and explicit: docs/formats/otlp.md.
//!
//! A point is decoded into a struct of all its fields, which converts to a [`Histogram`] with the
//! same buckets. OTLP's bucket index is the index of [`Exp2`] and its bounds are those of
//! [`Explicit`], so no conversion is needed. Scales -10..=8 are kept; finer ones (SDKs start at 20)
//! are downscaled to 8. Attributes belong to the series and exemplars to traces: both are kept as
//! undecoded bytes.
//!
//! Source: opentelemetry-proto, `metrics/v1/metrics.proto`; OpenTelemetry specification, metrics
//! data model.

use hist::{
    DecodeError, DoubleDouble, EncodeError, Exp2, Explicit, Histogram, HistogramParts, Scheme,
    TrackedValue,
};

use crate::exponential;
use crate::message::{self, field_error};
use crate::protobuf::{Error, FieldValue, MessageFields, MessageWriter};

const FORMAT: &str = "OTLP";
/// Bit of `flags`: the series exists, but has no value at this time.
const NO_RECORDED_VALUE: u32 = 1;

/// Exponential histogram data point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExponentialHistogramDataPoint {
    /// `KeyValue` messages, not decoded.
    pub attributes: Vec<Vec<u8>>,
    /// Start of the interval, nanoseconds since 1970; 0 if unknown.
    pub start_time_unix_nano: u64,
    /// End of the interval, nanoseconds since 1970.
    pub time_unix_nano: u64,
    /// Number of values: the counts of both signs and of zero.
    pub count: u64,
    /// Sum of all values.
    pub sum: Option<f64>,
    /// log2 of the number of buckets per octave.
    pub scale: i32,
    /// Number of values within ±`zero_threshold`.
    pub zero_count: u64,
    /// Buckets of values above zero.
    pub positive: Option<OtlpBuckets>,
    /// Buckets of values below zero, by magnitude.
    pub negative: Option<OtlpBuckets>,
    /// Bit 0: no recorded value.
    pub flags: u32,
    /// `Exemplar` messages, not decoded.
    pub exemplars: Vec<Vec<u8>>,
    /// Smallest value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
    /// Magnitudes up to this threshold count as zero.
    pub zero_threshold: f64,
}

/// Counts of consecutive buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtlpBuckets {
    /// Index of the first bucket.
    pub offset: i32,
    /// Counts from the first bucket on, including zeros.
    pub bucket_counts: Vec<u64>,
}

/// Histogram data point with explicit bounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramDataPoint {
    /// Start of the interval, nanoseconds since 1970; 0 if unknown.
    pub start_time_unix_nano: u64,
    /// End of the interval, nanoseconds since 1970.
    pub time_unix_nano: u64,
    /// Number of values.
    pub count: u64,
    /// Sum of all values.
    pub sum: Option<f64>,
    /// Bucket counts, one more than bounds; or none.
    pub bucket_counts: Vec<u64>,
    /// Upper bounds of all buckets except the last.
    pub explicit_bounds: Vec<f64>,
    /// `Exemplar` messages, not decoded.
    pub exemplars: Vec<Vec<u8>>,
    /// `KeyValue` messages, not decoded.
    pub attributes: Vec<Vec<u8>>,
    /// Bit 0: no recorded value.
    pub flags: u32,
    /// Smallest value.
    pub min: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

impl MessageFields for ExponentialHistogramDataPoint {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.attributes.push(field.bytes()?.to_vec()),
            2 => self.start_time_unix_nano = field.fixed64()?,
            3 => self.time_unix_nano = field.fixed64()?,
            4 => self.count = field.fixed64()?,
            5 => self.sum = Some(field.double()?),
            6 => self.scale = field.zigzag32()?,
            7 => self.zero_count = field.fixed64()?,
            8 => self.positive.get_or_insert_default().merge(field.message()?)?,
            9 => self.negative.get_or_insert_default().merge(field.message()?)?,
            10 => self.flags = field.varint()? as u32,
            11 => self.exemplars.push(field.bytes()?.to_vec()),
            12 => self.min = Some(field.double()?),
            13 => self.max = Some(field.double()?),
            14 => self.zero_threshold = field.double()?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.byte_strings(1, &self.attributes);
        out.fixed64(2, self.start_time_unix_nano);
        out.fixed64(3, self.time_unix_nano);
        out.fixed64(4, self.count);
        out.double_optional(5, self.sum);
        out.sint32(6, self.scale);
        out.fixed64(7, self.zero_count);
        out.messages(8, &self.positive);
        out.messages(9, &self.negative);
        out.varint(10, self.flags.into());
        out.byte_strings(11, &self.exemplars);
        out.double_optional(12, self.min);
        out.double_optional(13, self.max);
        out.double(14, self.zero_threshold);
    }
}

impl MessageFields for OtlpBuckets {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            1 => self.offset = field.zigzag32()?,
            2 => field.varints(&mut |count| self.bucket_counts.push(count))?,
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.sint32(1, self.offset);
        out.varints(2, &self.bucket_counts);
    }
}

impl MessageFields for HistogramDataPoint {
    fn set(&mut self, number: u32, field: FieldValue<'_>) -> Result<(), Error> {
        match number {
            2 => self.start_time_unix_nano = field.fixed64()?,
            3 => self.time_unix_nano = field.fixed64()?,
            4 => self.count = field.fixed64()?,
            5 => self.sum = Some(field.double()?),
            6 => field.fixed64s(&mut |count| self.bucket_counts.push(count))?,
            7 => field.doubles(&mut |value| self.explicit_bounds.push(value))?,
            8 => self.exemplars.push(field.bytes()?.to_vec()),
            9 => self.attributes.push(field.bytes()?.to_vec()),
            10 => self.flags = field.varint()? as u32,
            11 => self.min = Some(field.double()?),
            12 => self.max = Some(field.double()?),
            _ => {}
        }
        Ok(())
    }

    fn put(&self, out: &mut MessageWriter) {
        out.fixed64(2, self.start_time_unix_nano);
        out.fixed64(3, self.time_unix_nano);
        out.fixed64(4, self.count);
        out.double_optional(5, self.sum);
        out.fixed64s(6, &self.bucket_counts);
        out.doubles(7, &self.explicit_bounds);
        out.byte_strings(8, &self.exemplars);
        out.byte_strings(9, &self.attributes);
        out.varint(10, self.flags.into());
        out.double_optional(11, self.min);
        out.double_optional(12, self.max);
    }
}

impl ExponentialHistogramDataPoint {
    /// Decodes a point.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        message::decode(bytes, "ExponentialHistogramDataPoint")
    }

    /// Encodes the point.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_message()
    }

    /// The distribution with the same buckets; `None` if the point is flagged as having no recorded
    /// value. A scale above 8 is downscaled to 8, which adds at most 0.135 % to the error of a
    /// value.
    pub fn to_histogram(&self) -> Result<Option<Histogram>, DecodeError> {
        if self.flags & NO_RECORDED_VALUE != 0 {
            return Ok(None);
        }
        let scales = i32::from(Exp2::SCALE_MIN)..=i32::MAX;
        let (grid, shift) = exponential::exponential_scheme("scale", self.scale, scales)?;
        let bucket_total = [&self.positive, &self.negative]
            .into_iter()
            .flatten()
            .flat_map(|buckets| buckets.bucket_counts.iter().copied())
            .chain([self.zero_count]);
        check_count(self.count, message::total(bucket_total))?;
        let read = |side: &Option<OtlpBuckets>| match side {
            Some(buckets) => {
                exponential::shift_buckets(buckets.to_indexed()?, shift, u64::checked_add)
            }
            None => Ok(Vec::new()),
        };
        Ok(Some(Histogram::from_parts(HistogramParts {
            zero_threshold: self.zero_threshold,
            positive: read(&self.positive)?,
            negative: read(&self.negative)?,
            zero: self.zero_count,
            ..summary_parts(Scheme::Exp2(grid), self.sum, self.min, self.max)
        })?))
    }

    /// A point with the buckets and summary statistics of `histogram`. The caller sets times
    /// and attributes.
    ///
    /// Rejects NaN and infinities, which the format cannot represent. Omitted: declared thresholds,
    /// and min and max if they are estimates.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, EncodeError> {
        let grid =
            exponential::exponential_grid(histogram.scheme(), "an OTLP exponential histogram")?;
        check_representable(histogram)?;
        let (sum, min, max) = summary_fields(histogram);
        Ok(ExponentialHistogramDataPoint {
            count: histogram.count(),
            sum,
            scale: grid.scale().into(),
            zero_count: histogram.zero_count(),
            positive: OtlpBuckets::from_buckets(histogram.positive()),
            negative: OtlpBuckets::from_buckets(histogram.negative()),
            min,
            max,
            zero_threshold: histogram.zero_threshold(),
            ..Default::default()
        })
    }
}

impl OtlpBuckets {
    /// Index and count of each non-empty bucket.
    fn to_indexed(&self) -> Result<Vec<(i32, u64)>, DecodeError> {
        let last =
            i64::from(self.offset).wrapping_add(self.bucket_counts.len() as i64).wrapping_sub(1);
        if last > i64::from(i32::MAX) {
            let found = format_args!("{} with {} counts", self.offset, self.bucket_counts.len());
            return Err(field_error("offset", found, "a last index below 2^31"));
        }
        // In 64 bits: the range computes one number beyond its last one.
        let indexed = (i64::from(self.offset)..).zip(self.bucket_counts.iter().copied());
        let nonzero = indexed.filter(|&(_, count)| count > 0);
        Ok(nonzero.map(|(index, count)| (index as i32, count)).collect())
    }

    /// All buckets from the first to the last non-empty one. At most 537,088: scale 8 over all
    /// doubles.
    fn from_buckets(buckets: &hist::Buckets) -> Option<OtlpBuckets> {
        let (&first, &last) = buckets.indexes().first().zip(buckets.indexes().last())?;
        let mut bucket_counts = vec![0; (last.wrapping_sub(first) as usize).wrapping_add(1)];
        for (index, count) in buckets.iter() {
            bucket_counts[index.wrapping_sub(first) as usize] = count;
        }
        Some(OtlpBuckets { offset: first, bucket_counts })
    }
}

impl HistogramDataPoint {
    /// Decodes a point.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        message::decode(bytes, "HistogramDataPoint")
    }

    /// Encodes the point.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_message()
    }

    /// The distribution with the same buckets; `None` if the point is flagged as having no recorded
    /// value. Without buckets all values are in one bucket, `(-inf, +inf]`.
    pub fn to_histogram(&self) -> Result<Option<Histogram>, DecodeError> {
        if self.flags & NO_RECORDED_VALUE != 0 {
            return Ok(None);
        }
        let bare = self.bucket_counts.is_empty() && self.explicit_bounds.is_empty();
        let counts = if bare { std::slice::from_ref(&self.count) } else { &self.bucket_counts[..] };
        if counts.len() != self.explicit_bounds.len().wrapping_add(1) {
            let expected = format_args!(
                "{}, one more than the bounds",
                self.explicit_bounds.len().wrapping_add(1)
            );
            return Err(field_error("number of bucket_counts", counts.len(), expected));
        }
        check_count(self.count, message::total(counts.iter().copied()))?;
        let scheme = Scheme::explicit(&self.explicit_bounds)?;
        let histogram = Histogram::from_parts(HistogramParts {
            positive: (0..).zip(counts.iter().copied()).collect(),
            ..summary_parts(scheme, self.sum, self.min, self.max)
        })?;
        Ok(Some(histogram))
    }

    /// A point with the buckets and summary statistics of `histogram`. The caller sets times
    /// and attributes.
    ///
    /// Rejects NaN, which the format cannot represent. Omitted: declared thresholds, and min and
    /// max if they are estimates.
    pub fn from_histogram(histogram: &Histogram) -> Result<Self, EncodeError> {
        let bounds = explicit_bounds(histogram)?;
        let (sum, min, max) = summary_fields(histogram);
        let mut bucket_counts = vec![0; bounds.len().wrapping_add(1)];
        for (index, count) in histogram.positive().iter() {
            bucket_counts[index as usize] = count;
        }
        Ok(HistogramDataPoint {
            count: histogram.count(),
            sum,
            bucket_counts,
            explicit_bounds: bounds.to_vec(),
            min,
            max,
            ..Default::default()
        })
    }
}

/// Bounds of an explicit histogram whose values are all in buckets.
fn explicit_bounds(histogram: &Histogram) -> Result<&[f64], EncodeError> {
    let Scheme::Explicit(grid) = histogram.scheme() else {
        return Err(EncodeError::scheme("an OTLP explicit histogram", histogram.scheme()));
    };
    check_representable(histogram)?;
    if histogram.zero_count() > 0 {
        let what = format!("{} zeros counted beside the buckets", histogram.zero_count());
        return Err(EncodeError::Unrepresentable { format: FORMAT, detail: what });
    }
    Ok(Explicit::bounds(grid))
}

fn check_count(count: u64, bucket_total: u128) -> Result<(), DecodeError> {
    if u128::from(count) == bucket_total {
        return Ok(());
    }
    Err(field_error("count", count, format_args!("{bucket_total}, the sum of the bucket counts")))
}

/// Parts without buckets. Summary statistics that the point contains are exact.
fn summary_parts(
    scheme: Scheme,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
) -> HistogramParts {
    let exact = |value: Option<f64>| value.map_or(TrackedValue::Absent, TrackedValue::Exact);
    HistogramParts {
        sum: sum.map_or(TrackedValue::Absent, |sum| TrackedValue::Exact(DoubleDouble::new(sum))),
        min: exact(min),
        max: exact(max),
        ..HistogramParts::new(scheme)
    }
}

/// Sum, and min and max if they are exact. The format cannot mark estimates: a reader would clip
/// buckets to an estimated min or max, while an estimated sum is the best one available.
fn summary_fields(histogram: &Histogram) -> (Option<f64>, Option<f64>, Option<f64>) {
    let sum = histogram.tracked_sum().value().map(DoubleDouble::value);
    (sum, histogram.tracked_min().exact(), histogram.tracked_max().exact())
}

fn check_representable(histogram: &Histogram) -> Result<(), EncodeError> {
    let counts = [
        (histogram.nan_count(), "NaN values"),
        (histogram.overflow(), "values above the largest bucket"),
        (histogram.underflow(), "values below the smallest bucket"),
    ];
    match counts.iter().find(|(count, _)| *count > 0) {
        Some((count, what)) => {
            Err(EncodeError::Unrepresentable { format: FORMAT, detail: format!("{count} {what}") })
        }
        None => Ok(()),
    }
}
