//! Native histogram rules shared by the messages of remote write and of the client model.
//!
//! The rules are those of Prometheus' own validation (`model/histogram`, `Validate`): the spans
//! cover as many buckets as there are counts and do not overlap, no count is negative, custom
//! bounds are finite and ascending and have neither a zero bucket nor negative buckets, and the
//! count is the sum of the buckets, or larger if the sum is NaN. Float counts are not compared with
//! their total, because rounding makes them differ.

use hist::{
    DecodeError, DoubleDouble, EncodeError, Histogram, HistogramParts, Scheme, TrackedValue,
};

use crate::exponential;
use crate::message::{self, field_error};

use super::float::FractionalHistogram;
use super::spans::{BucketSpan, from_deltas, index_buckets, to_deltas, to_spans};
use super::{FORMAT, HistogramSample, READ_SCHEMAS, SCHEMA_CUSTOM, STALE_MARKER, WRITE_SCHEMAS};

/// Fields common to the native histogram messages.
pub(super) struct NativeFields<'a> {
    pub(super) schema: i32,
    pub(super) zero_threshold: f64,
    pub(super) sum: f64,
    pub(super) counts: NativeCounts,
    pub(super) positive: NativeBuckets<'a>,
    pub(super) negative: NativeBuckets<'a>,
    /// `None` if the message type has no field for custom bounds.
    pub(super) custom_values: Option<&'a [f64]>,
}

/// Number of values and of zeros; their type decides how the buckets are written.
pub(super) enum NativeCounts {
    Integer { count: u64, zero: u64 },
    Float { count: f64, zero: f64 },
}

/// Buckets of one sign: `deltas` of whole counts, or float `counts`.
pub(super) struct NativeBuckets<'a> {
    pub(super) field: &'static str,
    pub(super) spans: &'a [BucketSpan],
    pub(super) deltas: &'a [i64],
    pub(super) counts: &'a [f64],
}

/// The grid, with the offset from the message's bucket index to the grid's.
struct NativeGrid {
    scheme: Scheme,
    offset: i64,
    shift: u32,
}

impl NativeFields<'_> {
    pub(super) fn read(&self) -> Result<HistogramSample, DecodeError> {
        if self.sum.to_bits() == STALE_MARKER {
            return Ok(HistogramSample::Stale);
        }
        let grid = self.grid()?;
        Ok(match self.counts {
            NativeCounts::Integer { count, zero } => {
                HistogramSample::Integer(self.integer(&grid, count, zero)?)
            }
            NativeCounts::Float { count, zero } => {
                HistogramSample::Float(self.float(&grid, count, zero)?)
            }
        })
    }

    fn grid(&self) -> Result<NativeGrid, DecodeError> {
        if let (SCHEMA_CUSTOM, Some(bounds)) = (self.schema, self.custom_values) {
            self.check_custom()?;
            let scheme = Scheme::explicit(bounds)?;
            return Ok(NativeGrid { scheme, offset: 0, shift: 0 });
        }
        if let Some(bounds) = self.custom_values.filter(|bounds| !bounds.is_empty()) {
            let found = format_args!("{} bounds with schema {}", bounds.len(), self.schema);
            return Err(field_error("custom_values", found, "none but with schema -53"));
        }
        let (grid, shift) = exponential::exponential_scheme("schema", self.schema, READ_SCHEMAS)?;
        Ok(NativeGrid { scheme: Scheme::Exp2(grid), offset: -1, shift })
    }

    fn check_custom(&self) -> Result<(), DecodeError> {
        let zero = match self.counts {
            NativeCounts::Integer { zero, .. } => zero as f64,
            NativeCounts::Float { zero, .. } => zero,
        };
        if zero != 0.0 || self.zero_threshold != 0.0 {
            let found = format_args!("{zero} within {}", self.zero_threshold);
            return Err(field_error("zero bucket", found, "none beside custom buckets"));
        }
        if !(self.negative.spans.is_empty() && self.negative.is_empty()) {
            let found = format_args!("{} spans", self.negative.spans.len());
            return Err(field_error(self.negative.field, found, "none beside custom buckets"));
        }
        Ok(())
    }

    fn integer(&self, grid: &NativeGrid, count: u64, zero: u64) -> Result<Histogram, DecodeError> {
        if count == 0 && self.sum.is_nan() {
            // A valid integer histogram without values has the sum 0. A float histogram may have
            // the sum NaN: a recording rule over NaN gives a count of approximately zero.
            return Err(field_error("sum", self.sum, "0, as there are no values"));
        }
        let read = |buckets: &NativeBuckets| {
            if !buckets.counts.is_empty() {
                let found = format_args!("{} float counts", buckets.counts.len());
                return Err(field_error(
                    buckets.field,
                    found,
                    "deltas, as the count is an integer",
                ));
            }
            let counts = from_deltas(buckets.field, buckets.deltas)?;
            let indexed = index_buckets(buckets.field, buckets.spans, &counts)?;
            exponential::shift_buckets(
                grid.to_grid_indexes(buckets.field, indexed)?,
                grid.shift,
                u64::checked_add,
            )
        };
        let (positive, negative) = (read(&self.positive)?, read(&self.negative)?);
        assemble(
            HistogramParts {
                zero_threshold: self.zero_threshold,
                positive,
                negative,
                zero,
                ..HistogramParts::new(grid.scheme.clone())
            },
            self.sum,
            |held| nan_count(count, held, self.sum),
        )
    }

    fn float(
        &self,
        grid: &NativeGrid,
        count: f64,
        zero: f64,
    ) -> Result<FractionalHistogram, DecodeError> {
        let read = |buckets: &NativeBuckets| {
            if !buckets.deltas.is_empty() {
                let found = format_args!("{} deltas", buckets.deltas.len());
                return Err(field_error(
                    buckets.field,
                    found,
                    "float counts, because the count is a float",
                ));
            }
            let indexed = index_buckets(buckets.field, buckets.spans, buckets.counts)?;
            let placed = grid.to_grid_indexes(buckets.field, indexed)?;
            exponential::shift_buckets(placed, grid.shift, |a, b| Some(a + b))
        };
        let float = FractionalHistogram {
            scheme: grid.scheme.clone(),
            zero_threshold: self.zero_threshold,
            zero_count: zero,
            count,
            sum: self.sum,
            positive: read(&self.positive)?,
            negative: read(&self.negative)?,
        };
        float.check()?;
        Ok(float)
    }
}

impl NativeBuckets<'_> {
    fn is_empty(&self) -> bool {
        self.deltas.is_empty() && self.counts.is_empty()
    }
}

impl NativeGrid {
    /// The same buckets with the grid's indexes.
    fn to_grid_indexes<N>(
        &self,
        field: &'static str,
        buckets: Vec<(i64, N)>,
    ) -> Result<Vec<(i32, N)>, DecodeError> {
        let shifted =
            |(index, count): (i64, N)| match i32::try_from(index.wrapping_add(self.offset)) {
                Ok(index) => Ok((index, count)),
                Err(_) => {
                    Err(field_error(field, format_args!("bucket {index}"), "indexes of 32 bits"))
                }
            };
        buckets.into_iter().map(shifted).collect()
    }
}

/// A histogram of parts whose outermost buckets may be overflow buckets (±Inf).
pub(super) fn assemble(
    mut parts: HistogramParts,
    sum: f64,
    nan_count: impl FnOnce(u128) -> Result<u64, DecodeError>,
) -> Result<Histogram, DecodeError> {
    let counts = parts.positive.iter().chain(&parts.negative).map(|&(_, count)| count);
    parts.nan = nan_count(message::total(counts.chain([parts.zero])))?;
    if let Scheme::Exp2(grid) = parts.scheme {
        let end = grid.end_index();
        let take_overflow = |buckets: &mut Vec<(i32, u64)>| {
            buckets.pop_if(|(index, _)| *index == end).map_or(0, |(_, count)| count)
        };
        parts.overflow = take_overflow(&mut parts.positive);
        parts.underflow = take_overflow(&mut parts.negative);
    }
    parts.sum = if sum.is_nan() {
        TrackedValue::Absent
    } else {
        TrackedValue::Exact(DoubleDouble::new(sum))
    };
    Ok(Histogram::from_parts(parts)?)
}

/// Number of NaN values among `count` values, if the buckets hold `bucket_total`.
pub(super) fn nan_count(count: u64, bucket_total: u128, sum: f64) -> Result<u64, DecodeError> {
    match u128::from(count).checked_sub(bucket_total) {
        Some(0) => Ok(0),
        Some(more) if sum.is_nan() => Ok(more as u64),
        _ => {
            let at_least = if sum.is_nan() { "at least " } else { "" };
            Err(field_error(
                "count",
                count,
                format_args!("{at_least}{bucket_total}, the sum of the bucket counts"),
            ))
        }
    }
}

/// Native histogram to be written to either message: whole counts, their buckets as deltas.
pub(super) struct NativeMessage {
    pub(super) schema: i32,
    pub(super) zero_threshold: f64,
    pub(super) zero_count: u64,
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) positive_spans: Vec<BucketSpan>,
    pub(super) positive: Vec<i64>,
    pub(super) negative_spans: Vec<BucketSpan>,
    pub(super) negative: Vec<i64>,
    pub(super) custom_values: Vec<f64>,
}

pub(super) fn write(histogram: &Histogram) -> Result<NativeMessage, EncodeError> {
    let target = SchemaFields::for_scheme(histogram.scheme())?;
    if target.end.is_none() && histogram.zero_count() > 0 {
        return Err(unrepresentable_error("a zero bucket beside custom buckets".into()));
    }
    let encode_sign = |buckets: &hist::Buckets, overflow: u64| {
        let end = (overflow > 0).then_some((target.end.unwrap_or(i32::MAX), overflow));
        let all = buckets.iter().chain(end);
        let (spans, counts) =
            to_spans(all.map(|(index, count)| (index.wrapping_add(target.offset), count)));
        match counts.iter().find(|&&count| count > i64::MAX as u64) {
            Some(count) => {
                Err(unrepresentable_error(format!("a bucket count of {count}, above 2^63 - 1")))
            }
            None => Ok((spans, to_deltas(&counts))),
        }
    };
    if target.end.is_none() && histogram.overflow().wrapping_add(histogram.underflow()) > 0 {
        let what = histogram.overflow().wrapping_add(histogram.underflow());
        return Err(unrepresentable_error(format!("{what} values outside of custom buckets")));
    }
    let (positive_spans, positive) = encode_sign(histogram.positive(), histogram.overflow())?;
    let (negative_spans, negative) = encode_sign(histogram.negative(), histogram.underflow())?;
    Ok(NativeMessage {
        schema: target.schema,
        zero_threshold: if target.end.is_some() { histogram.zero_threshold() } else { 0.0 },
        zero_count: histogram.zero_count(),
        count: histogram.count().wrapping_add(histogram.nan_count()),
        sum: sum_of(histogram),
        positive_spans,
        positive,
        negative_spans,
        negative,
        custom_values: target.custom_values,
    })
}

/// The sum as Prometheus writes it: NaN if there are NaN values or the sum is unknown.
pub(super) fn sum_of(histogram: &Histogram) -> f64 {
    match histogram.tracked_sum().value() {
        Some(sum) if histogram.nan_count() == 0 => sum.value(),
        _ => f64::NAN,
    }
}

/// Schema fields of a message for a scheme.
struct SchemaFields {
    schema: i32,
    offset: i32,
    /// The grid's index of the bucket of infinities; custom buckets extend to infinity and need
    /// none.
    end: Option<i32>,
    custom_values: Vec<f64>,
}

impl SchemaFields {
    fn for_scheme(scheme: &Scheme) -> Result<SchemaFields, EncodeError> {
        match scheme {
            Scheme::Exp2(grid) if WRITE_SCHEMAS.contains(&grid.scale().into()) => {
                Ok(SchemaFields {
                    schema: grid.scale().into(),
                    offset: 1,
                    end: Some(grid.end_index()),
                    custom_values: Vec::new(),
                })
            }
            Scheme::Explicit(grid) => Ok(SchemaFields {
                schema: SCHEMA_CUSTOM,
                offset: 0,
                end: None,
                custom_values: grid.bounds().to_vec(),
            }),
            _ => Err(EncodeError::scheme(FORMAT, scheme)),
        }
    }
}

pub(super) fn unrepresentable_error(what: String) -> EncodeError {
    EncodeError::Unrepresentable { format: FORMAT, detail: what }
}
