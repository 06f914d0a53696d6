//! Chunks of native histograms, with integer or float counts.
//!
//! All histograms of a chunk have the same schema, zero threshold, spans and custom bounds, which
//! come first. Integer counts are differences of differences, float counts and sums are XORed.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use codecs::prometheus::{
    BucketSpan, RemoteCount, RemoteHistogram, RemoteZeroCount, ResetHint, STALE_MARKER,
};

use super::block_chunk::{BlockChunk, ChunkEncoding};
use super::chunk_bits::{ChunkBits, XorNumber};
use super::invalid;
use crate::input_error::InputError;

/// Schema of histograms with custom bounds.
const CUSTOM_SCHEMA: i32 = -53;
/// More buckets, bounds or spans than any histogram has.
const ITEMS_MAX: u64 = 1 << 20;

/// What the histograms of a chunk share.
struct ChunkLayout {
    schema: i32,
    zero_threshold: f64,
    positive: Vec<BucketSpan>,
    negative: Vec<BucketSpan>,
    custom_values: Vec<f64>,
}

/// Integer, and its last difference.
#[derive(Clone, Copy, Default)]
struct DeltaNumber {
    value: i64,
    delta: i64,
}

impl DeltaNumber {
    fn advance(&mut self, change: i64) {
        self.delta = self.delta.wrapping_add(change);
        self.value = self.value.wrapping_add(self.delta);
    }
}

/// Calls `each` with each histogram of a chunk.
pub(super) fn read_histograms(
    chunk: &BlockChunk<'_>,
    each: &mut dyn FnMut(RemoteHistogram),
) -> Result<(), InputError> {
    let mut bits = ChunkBits::new(chunk.data, chunk.offset);
    let (samples, flags) = (bits.bits(16)?, bits.bits(8)?);
    if samples == 0 {
        return Ok(());
    }
    // The hint of a reset applies to the first sample only; readers compare counts anyway.
    let hint = if flags >> 6 == 3 { ResetHint::Gauge } else { ResetHint::Unknown };
    let layout = ChunkLayout::read(&mut bits, chunk.offset)?;
    match chunk.encoding {
        ChunkEncoding::FloatHistograms => read_floats(&mut bits, &layout, (samples, hint), each),
        _ => read_integers(&mut bits, &layout, (samples, hint), each),
    }
}

fn read_integers(
    bits: &mut ChunkBits<'_>,
    layout: &ChunkLayout,
    (samples, hint): (u64, ResetHint),
    each: &mut dyn FnMut(RemoteHistogram),
) -> Result<(), InputError> {
    let mut time = DeltaNumber::default();
    let (mut count, mut zero_count) = (DeltaNumber::default(), DeltaNumber::default());
    let mut sum = XorNumber::default();
    let mut positive = vec![DeltaNumber::default(); bucket_count(&layout.positive)];
    let mut negative = vec![DeltaNumber::default(); bucket_count(&layout.negative)];
    for sample in 0..samples {
        if sample == 0 {
            time.value = bits.varbit()?;
            count.value = bits.unsigned_varbit()? as i64;
            zero_count.value = bits.unsigned_varbit()? as i64;
            sum = XorNumber::new(bits.double()?);
            for bucket in positive.iter_mut().chain(&mut negative) {
                bucket.value = bits.varbit()?;
            }
        } else {
            time.advance(bits.varbit()?);
            count.advance(bits.varbit()?);
            zero_count.advance(bits.varbit()?);
            bits.xor(&mut sum)?;
            // A staleness marker has no buckets.
            if sum.value.to_bits() != STALE_MARKER {
                for bucket in positive.iter_mut().chain(&mut negative) {
                    bucket.advance(bits.varbit()?);
                }
            }
        }
        let deltas = |buckets: &[DeltaNumber]| buckets.iter().map(|bucket| bucket.value).collect();
        each(RemoteHistogram {
            count: Some(RemoteCount::Int(count.value as u64)),
            zero_count: Some(RemoteZeroCount::Int(zero_count.value as u64)),
            positive_deltas: deltas(&positive),
            negative_deltas: deltas(&negative),
            ..layout.histogram(time.value, sum.value, hint)
        });
    }
    Ok(())
}

fn read_floats(
    bits: &mut ChunkBits<'_>,
    layout: &ChunkLayout,
    (samples, hint): (u64, ResetHint),
    each: &mut dyn FnMut(RemoteHistogram),
) -> Result<(), InputError> {
    let mut time = DeltaNumber::default();
    // Count, zero count and sum.
    let mut totals = [XorNumber::default(), XorNumber::default(), XorNumber::default()];
    let mut positive = vec![XorNumber::default(); bucket_count(&layout.positive)];
    let mut negative = vec![XorNumber::default(); bucket_count(&layout.negative)];
    for sample in 0..samples {
        let change = bits.varbit()?;
        if sample == 0 {
            time.value = change;
            for number in totals.iter_mut().chain(&mut positive).chain(&mut negative) {
                *number = XorNumber::new(bits.double()?);
            }
        } else {
            time.advance(change);
            for number in &mut totals {
                bits.xor(number)?;
            }
            if totals[2].value.to_bits() != STALE_MARKER {
                for number in positive.iter_mut().chain(&mut negative) {
                    bits.xor(number)?;
                }
            }
        }
        let counts = |buckets: &[XorNumber]| buckets.iter().map(|bucket| bucket.value).collect();
        let [count, zero_count, sum] = [0, 1, 2].map(|at: usize| totals[at].value);
        each(RemoteHistogram {
            count: Some(RemoteCount::Float(count)),
            zero_count: Some(RemoteZeroCount::Float(zero_count)),
            positive_counts: counts(&positive),
            negative_counts: counts(&negative),
            ..layout.histogram(time.value, sum, hint)
        });
    }
    Ok(())
}

fn bucket_count(spans: &[BucketSpan]) -> usize {
    spans.iter().fold(0, |sum: usize, span| sum.saturating_add(span.length as usize))
}

impl ChunkLayout {
    fn read(bits: &mut ChunkBits<'_>, offset: u64) -> Result<ChunkLayout, InputError> {
        let zero_threshold = match bits.bits(8)? {
            0 => 0.0,
            255 => bits.double()?,
            // A power of two.
            exponent => 2_f64.powi((exponent as i32).saturating_sub(244)),
        };
        let schema = bits.varbit()? as i32;
        let positive = read_spans(bits, offset)?;
        let negative = read_spans(bits, offset)?;
        let mut custom_values = Vec::new();
        if schema == CUSTOM_SCHEMA {
            for _ in 0..item_count(bits, offset)? {
                custom_values.push(match bits.unsigned_varbit()? {
                    0 => bits.double()?,
                    thousandths => thousandths.saturating_sub(1) as f64 / 1000.0,
                });
            }
        }
        Ok(ChunkLayout { schema, zero_threshold, positive, negative, custom_values })
    }

    fn histogram(&self, timestamp: i64, sum: f64, hint: ResetHint) -> RemoteHistogram {
        RemoteHistogram {
            sum,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            positive_spans: self.positive.clone(),
            negative_spans: self.negative.clone(),
            custom_values: self.custom_values.clone(),
            reset_hint: hint as i32,
            timestamp,
            ..RemoteHistogram::default()
        }
    }
}

fn read_spans(bits: &mut ChunkBits<'_>, chunk: u64) -> Result<Vec<BucketSpan>, InputError> {
    let (mut spans, mut buckets) = (Vec::new(), 0_u64);
    for _ in 0..item_count(bits, chunk)? {
        let length = bits.unsigned_varbit()?;
        buckets = buckets.saturating_add(length);
        if buckets > ITEMS_MAX {
            return Err(invalid(chunk, "at most 2^20 buckets", format!("{buckets}")));
        }
        let offset = bits.varbit()? as i32;
        spans.push(BucketSpan { offset, length: length as u32 });
    }
    Ok(spans)
}

/// Number of spans or bounds.
fn item_count(bits: &mut ChunkBits<'_>, chunk: u64) -> Result<u64, InputError> {
    match bits.unsigned_varbit()? {
        count @ ..=ITEMS_MAX => Ok(count),
        count => Err(invalid(chunk, "at most 2^20 spans or bounds", format!("{count}"))),
    }
}
