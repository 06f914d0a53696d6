//! Frame codec: one histogram on the wire, about a byte per bucket.
//!
//! ```text
//! size      field
//!    any    header       see `header.rs`
//!    any    flags        varint, which of the fields below follow
//!    any    fields       in the order of the flags
//!    any    positive     buckets
//!    any    negative     buckets, if flagged
//! ```
//! Buckets are: number of buckets (varint); if any, the first index (zigzag), then one byte per
//! bucket: the high nibble is the gap to the previous index minus one, the low nibble the count
//! minus one. The value 15 in either nibble means that the rest follows as a varint, first of the
//! gap, then of the count.
//!
//! A whole number with magnitude below 2^61 is a varint of its zigzag code shifted left by one; any
//! other number is the varint 1 followed by the eight bytes of the double. A frame carries no
//! checksum: the container of the frame has one. `docs/formats/frame.md` specifies the format byte
//! by byte.

use crate::buckets::Buckets;
use crate::codec::bytes::{ByteReader, put_varint, put_zigzag};
use crate::codec::header::{FRAME_MAGIC, FRAME_VERSION, put_header, read_frame_header};
pub use crate::codec::header::{FrameUnit, SeriesMeta, Temporality};
use crate::error::DecodeError;
use crate::histogram::{Histogram, HistogramParts, Threshold, check_smallest};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Names and bits of the flags, in the order of their fields.
pub const FLAGS: [(&str, u64); 14] = [
    ("zero count", 1 << 0),
    ("zero threshold", 1 << 1),
    ("overflow", 1 << 2),
    ("underflow", 1 << 3),
    ("nan", 1 << 4),
    ("sum", 1 << 5),
    ("sum is exact", 1 << 6),
    ("sum low word", 1 << 7),
    ("min", 1 << 8),
    ("min is exact", 1 << 9),
    ("max", 1 << 10),
    ("max is exact", 1 << 11),
    ("thresholds", 1 << 12),
    ("negative", 1 << 13),
];

pub(super) const ZERO: u64 = FLAGS[0].1;
pub(super) const ZERO_THRESHOLD: u64 = FLAGS[1].1;
const OVERFLOW: u64 = FLAGS[2].1;
const UNDERFLOW: u64 = FLAGS[3].1;
const NAN: u64 = FLAGS[4].1;
pub(super) const SUM: u64 = FLAGS[5].1;
pub(super) const SUM_LOW: u64 = FLAGS[7].1;
const MIN: u64 = FLAGS[8].1;
const MAX: u64 = FLAGS[10].1;
const THRESHOLDS: u64 = FLAGS[12].1;
const NEGATIVE: u64 = FLAGS[13].1;
const KNOWN_FLAGS: u64 = (1 << 14) - 1;
/// The flag "is exact" of a summary statistic with flag `flag`: the next higher bit.
pub(super) const fn exact_flag(flag: u64) -> u64 {
    flag << 1
}

/// Maximum number of thresholds in one frame.
pub const THRESHOLDS_MAX: u64 = Histogram::THRESHOLDS_MAX as u64;

pub(super) const ESCAPE: u64 = 15;

/// Appends a frame. Bounds of the extremes are left out.
pub fn encode(histogram: &Histogram, meta: SeriesMeta, out: &mut Vec<u8>) {
    put_header(out, (FRAME_MAGIC, FRAME_VERSION), meta, histogram.scheme());
    let sum = histogram.tracked_sum().value().map_or((0.0, 0.0), DoubleDouble::parts);
    let empty = histogram.is_empty();
    let if_set = |condition: bool, flag: u64| if condition { flag } else { 0 };
    let statistic = |value: TrackedValue<f64>, flag| match value {
        TrackedValue::Exact(_) => flag | exact_flag(flag),
        TrackedValue::Estimated(_) => flag,
        // Frames have no bounds.
        TrackedValue::Bound(_) | TrackedValue::Absent => 0,
    };
    let sum_exactness = match histogram.tracked_sum() {
        _ if empty => TrackedValue::Absent,
        TrackedValue::Exact(_) => TrackedValue::Exact(0.0),
        TrackedValue::Estimated(_) => TrackedValue::Estimated(0.0),
        TrackedValue::Bound(_) | TrackedValue::Absent => TrackedValue::Absent,
    };
    let flags = if_set(histogram.zero_count() > 0, ZERO)
        | if_set(histogram.zero_threshold() > 0.0, ZERO_THRESHOLD)
        | if_set(histogram.overflow() > 0, OVERFLOW)
        | if_set(histogram.underflow() > 0, UNDERFLOW)
        | if_set(histogram.nan_count() > 0, NAN)
        | statistic(sum_exactness, SUM)
        | if_set(!empty && sum.1 != 0.0, SUM_LOW)
        | statistic(histogram.tracked_min(), MIN)
        | statistic(histogram.tracked_max(), MAX)
        | if_set(!histogram.thresholds().is_empty(), THRESHOLDS)
        | if_set(!histogram.negative().is_empty(), NEGATIVE);
    put_varint(out, flags);

    if flags & ZERO != 0 {
        put_varint(out, histogram.zero_count());
    }
    if flags & ZERO_THRESHOLD != 0 {
        put_number(out, histogram.zero_threshold());
    }
    for (flag, count) in [
        (OVERFLOW, histogram.overflow()),
        (UNDERFLOW, histogram.underflow()),
        (NAN, histogram.nan_count()),
    ] {
        if flags & flag != 0 {
            put_varint(out, count);
        }
    }
    for (flag, number) in [
        (SUM, sum.0),
        (SUM_LOW, sum.1),
        (MIN, histogram.tracked_min().value().unwrap_or(0.0)),
        (MAX, histogram.tracked_max().value().unwrap_or(0.0)),
    ] {
        if flags & flag != 0 {
            put_number(out, number);
        }
    }
    if flags & THRESHOLDS != 0 {
        put_varint(out, histogram.thresholds().len() as u64);
        for threshold in histogram.thresholds() {
            put_number(out, threshold.value);
            put_varint(out, threshold.above);
        }
    }
    put_buckets(out, histogram.positive().iter());
    if flags & NEGATIVE != 0 {
        put_buckets(out, histogram.negative().iter());
    }
}

/// Decodes a frame that fills `bytes`.
pub fn decode(bytes: &[u8]) -> Result<(Histogram, SeriesMeta), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let (meta, scheme) = read_frame_header(&mut reader)?;
    let fields = FrameFields::read(&mut reader)?;
    let mut parts = HistogramParts::new(scheme);
    parts.zero = fields.zero;
    parts.zero_threshold = fields.zero_threshold;
    parts.overflow = fields.overflow;
    parts.underflow = fields.underflow;
    parts.nan = fields.nan;
    (parts.sum, parts.min, parts.max) = (fields.sum, fields.min, fields.max);
    parts.thresholds = fields.thresholds;
    let positive = read_buckets(&mut reader)?;
    let mut negative = Buckets::default();
    if fields.has_negative {
        negative = read_buckets(&mut reader)?;
    }
    reader.finish()?;
    check_smallest(&parts.scheme, &positive)?;
    check_smallest(&parts.scheme, &negative)?;
    Ok((Histogram::from_buckets(parts, positive, negative)?, meta))
}

/// Number of values in a frame, without NaN: [`Histogram::count`] of the frame, at about one
/// nanosecond per bucket. The bytes after the buckets are not checked.
pub fn count(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    read_frame_header(&mut reader)?;
    let fields = FrameFields::read(&mut reader)?;
    let mut total =
        CountSum(fields.zero.saturating_add(fields.overflow).saturating_add(fields.underflow));
    for_each_bucket(&mut reader, &mut total)?;
    if fields.has_negative {
        for_each_bucket(&mut reader, &mut total)?;
    }
    Ok(total.0)
}

/// Adds up bucket counts.
struct CountSum(u64);

impl BucketSink for CountSum {
    fn add_bucket(&mut self, _: i64, count: u64) {
        self.0 = self.0.saturating_add(count);
    }

    fn add_packed(&mut self, buckets: PackedBytes8) {
        self.0 = self.0.saturating_add(buckets.total());
    }
}

/// Optional fields between the frame header and the buckets.
pub(crate) struct FrameFields {
    pub(crate) zero: u64,
    pub(crate) zero_threshold: f64,
    pub(crate) overflow: u64,
    pub(crate) underflow: u64,
    pub(crate) nan: u64,
    pub(crate) sum: TrackedValue<DoubleDouble>,
    pub(crate) min: TrackedValue<f64>,
    pub(crate) max: TrackedValue<f64>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) has_negative: bool,
}

impl FrameFields {
    #[inline]
    pub(crate) fn read(reader: &mut ByteReader<'_>) -> Result<FrameFields, DecodeError> {
        let at = reader.offset();
        let flags = reader.varint("flags")?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(ByteReader::invalid_error(at, "flags", flags, "bits 14 and above zero"));
        }
        let idle = flags & exact_flag(SUM | MIN | MAX) & !exact_flag(flags);
        if idle != 0 || flags & (SUM | SUM_LOW) == SUM_LOW {
            return Err(ByteReader::invalid_error(
                at,
                "flags",
                flags,
                "a summary statistic for each exact flag",
            ));
        }
        let count = |reader: &mut ByteReader<'_>, flag, field| match flags & flag {
            0 => Ok(0),
            _ => reader.varint(field),
        };
        let statistic =
            |reader: &mut ByteReader<'_>, flag, field| match flags & (flag | exact_flag(flag)) {
                0 => Ok(TrackedValue::Absent),
                exactness => {
                    read_number(reader, field).map(|value| match exactness & exact_flag(flag) {
                        0 => TrackedValue::Estimated(value),
                        _ => TrackedValue::Exact(value),
                    })
                }
            };
        let zero = count(reader, ZERO, "zero count")?;
        let zero_threshold =
            if flags & ZERO_THRESHOLD != 0 { read_number(reader, "zero threshold")? } else { 0.0 };
        let overflow = count(reader, OVERFLOW, "overflow")?;
        let underflow = count(reader, UNDERFLOW, "underflow")?;
        let nan = count(reader, NAN, "nan")?;
        let high = statistic(reader, SUM, "sum")?;
        let low = if flags & SUM_LOW != 0 { read_number(reader, "sum low word")? } else { 0.0 };
        let sum = match high {
            TrackedValue::Exact(high) => TrackedValue::Exact(DoubleDouble::from_parts(high, low)),
            TrackedValue::Estimated(high) => {
                TrackedValue::Estimated(DoubleDouble::from_parts(high, low))
            }
            TrackedValue::Bound(_) | TrackedValue::Absent => TrackedValue::Absent,
        };
        let min = statistic(reader, MIN, "min")?;
        let max = statistic(reader, MAX, "max")?;
        let thresholds =
            if flags & THRESHOLDS != 0 { read_thresholds(reader)? } else { Vec::new() };
        let has_negative = flags & NEGATIVE != 0;
        Ok(FrameFields {
            zero,
            zero_threshold,
            overflow,
            underflow,
            nan,
            sum,
            min,
            max,
            thresholds,
            has_negative,
        })
    }
}

fn read_thresholds(reader: &mut ByteReader<'_>) -> Result<Vec<Threshold>, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("threshold count")?;
    if count > THRESHOLDS_MAX {
        let (offset, field, limit) = (at, "threshold count", THRESHOLDS_MAX);
        return Err(DecodeError::Limit { offset, field, found: count, limit });
    }
    (0..count)
        .map(|_| {
            Ok(Threshold {
                value: read_number(reader, "threshold")?,
                above: reader.varint("above")?,
            })
        })
        .collect()
}

/// Appends a double: short if it is a whole number of moderate size.
pub(crate) fn put_number(out: &mut Vec<u8>, value: f64) {
    let integer = value as i64;
    if integer as f64 == value
        && integer.unsigned_abs() < 1 << 61
        && value.to_bits() != (-0.0f64).to_bits()
    {
        put_varint(out, (((integer << 1) ^ (integer >> 63)) as u64) << 1);
    } else {
        out.push(1);
        out.extend(value.to_le_bytes());
    }
}

/// Reads a double.
#[inline]
pub(crate) fn read_number(
    reader: &mut ByteReader<'_>,
    field: &'static str,
) -> Result<f64, DecodeError> {
    let at = reader.offset();
    let coded = reader.varint(field)?;
    match coded {
        1 => reader.f64_le(field),
        _ if coded & 1 == 1 => {
            Err(ByteReader::invalid_error(at, field, coded, "an even number, or 1 and eight bytes"))
        }
        _ => {
            let zigzag = coded >> 1;
            Ok(((zigzag >> 1) as i64 ^ ((zigzag & 1) as i64).wrapping_neg()) as f64)
        }
    }
}

/// Appends buckets in ascending order.
pub(crate) fn put_buckets(out: &mut Vec<u8>, buckets: impl ExactSizeIterator<Item = (i32, u64)>) {
    put_varint(out, buckets.len() as u64);
    // A bucket of a cumulative histogram mostly takes three bytes.
    out.reserve(buckets.len().saturating_mul(3).saturating_add(8));
    let mut previous = None;
    buckets.for_each(|bucket| put_bucket(out, &mut previous, bucket));
}

/// Appends a bucket above all others; `previous` is the index of the one before it.
#[inline]
pub(super) fn put_bucket(
    out: &mut Vec<u8>,
    previous: &mut Option<i64>,
    (index, count): (i32, u64),
) {
    let index = i64::from(index);
    let gap = match *previous {
        None => {
            put_zigzag(out, index);
            0
        }
        Some(previous) => index.wrapping_sub(previous).wrapping_sub(1) as u64,
    };
    *previous = Some(index);
    let less_one = count.wrapping_sub(1);
    out.push((gap.min(ESCAPE) << 4 | less_one.min(ESCAPE)) as u8);
    if gap >= ESCAPE {
        put_varint(out, gap.wrapping_sub(ESCAPE));
    }
    if less_one >= ESCAPE {
        put_varint(out, less_one.wrapping_sub(ESCAPE));
    }
}

pub(super) fn read_buckets(reader: &mut ByteReader<'_>) -> Result<Buckets, DecodeError> {
    let at = reader.offset();
    // The number of buckets is checked by the reader below; a lie costs no more than the bytes.
    let claimed = reader.clone().varint("bucket count").unwrap_or(0);
    let mut found = Buckets::with_capacity(claimed.min(reader.remaining() as u64) as usize);
    if let Some((_, last)) = for_each_bucket(reader, &mut found)?
        && i32::try_from(last).is_err()
    {
        return Err(ByteReader::invalid_error(at, "last index", last, "a 32-bit number"));
    }
    Ok(found)
}

/// Receiver of decoded buckets. Indexes start within 32 bits and never decrease, but may exceed 32
/// bits: the receiver must check the last one.
pub(crate) trait BucketSink {
    /// Receives one bucket.
    fn add_bucket(&mut self, index: i64, count: u64);

    /// Receives eight buckets.
    #[inline]
    fn add_packed(&mut self, buckets: PackedBytes8) {
        (0..8).for_each(|i| self.add_bucket(buckets.index(i), buckets.count(i)));
    }
}

impl BucketSink for Buckets {
    // Indexes ascend strictly as long as they are below the limit of 64 bits, and a last index
    // beyond 32 bits is an error.
    #[inline]
    fn add_bucket(&mut self, index: i64, count: u64) {
        self.push_unchecked(index as i32, count);
    }
}

/// Eight one-byte buckets decoded together.
#[derive(Clone, Copy)]
pub(crate) struct PackedBytes8 {
    /// Base of the index offsets.
    pub(crate) base_index: i64,
    offsets: u64,
    counts: u64,
    /// Number of leading bytes that need no varint.
    short_count: u32,
}

impl PackedBytes8 {
    /// Upper limit of the index offsets of eight buckets.
    pub(crate) const SPAN: usize = 128;

    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW_NIBBLES: u64 = 0x0f0f_0f0f_0f0f_0f0f;

    #[inline]
    fn new(before: i64, bytes: &[u8]) -> PackedBytes8 {
        let (word, there) = match bytes.first_chunk() {
            Some(&bytes) => (u64::from_le_bytes(bytes), 8),
            None => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                (u64::from_le_bytes(word), bytes.len() as u32)
            }
        };
        let gaps = ((word >> 4) & Self::LOW_NIBBLES).wrapping_add(Self::ONES);
        let counts = (word & Self::LOW_NIBBLES).wrapping_add(Self::ONES);
        let long = (gaps | counts) & (Self::ONES << 4);
        // Multiplied by 1 + 2^8 + 2^16 + …: each byte becomes the sum of all bytes up to it, at
        // most 8 · 15 while none needs a varint.
        let offsets = gaps.wrapping_mul(Self::ONES);
        PackedBytes8 {
            base_index: before,
            offsets,
            counts,
            short_count: there.min(long.trailing_zeros() / 8),
        }
    }

    /// The `i`-th index, if all bytes up to it need no varint.
    #[inline]
    pub(crate) fn index(self, i: u32) -> i64 {
        self.base_index.saturating_add(self.offset(i).into())
    }

    /// Offset of the `i`-th index.
    #[inline]
    pub(crate) fn offset(self, i: u32) -> u8 {
        (self.offsets >> i.wrapping_mul(8)) as u8
    }

    /// The `i`-th count.
    #[inline]
    pub(crate) fn count(self, i: u32) -> u64 {
        (self.counts >> i.wrapping_mul(8)) & 0xff
    }

    /// Sum of all counts.
    #[inline]
    pub(crate) fn total(self) -> u64 {
        self.counts.wrapping_mul(Self::ONES) >> 56
    }
}

/// Passes each bucket to `sink` in ascending order. Returns the first and last index.
#[inline]
pub(crate) fn for_each_bucket(
    reader: &mut ByteReader<'_>,
    sink: &mut impl BucketSink,
) -> Result<Option<(i64, i64)>, DecodeError> {
    let at = reader.offset();
    let buckets = reader.varint("bucket count")?;
    if buckets == 0 {
        return Ok(None);
    }
    // Each bucket takes at least one byte.
    if buckets > reader.remaining() as u64 {
        let limit = reader.remaining() as u64;
        return Err(DecodeError::Limit {
            offset: at,
            field: "bucket count",
            found: buckets,
            limit,
        });
    }
    let at = reader.offset();
    let first = reader.zigzag("first index")?;
    if i32::try_from(first).is_err() {
        return Err(ByteReader::invalid_error(at, "first index", first, "a 32-bit number"));
    }
    let mut index = first.wrapping_sub(1);
    let mut remaining = buckets;
    while remaining > 0 {
        // A cumulative histogram has large counts in adjacent buckets: no eight bytes are tried
        // while the gap is short and the count is long.
        while let Some((count, size)) = peek_long_count(reader) {
            index = index.saturating_add(1).saturating_add(i64::from(reader.peek()[0] >> 4));
            sink.add_bucket(index, count);
            reader.skip(size);
            remaining = remaining.wrapping_sub(1);
            if remaining == 0 {
                return Ok(Some((first, index)));
            }
        }
        let eight = PackedBytes8::new(index, reader.peek());
        let short = eight.short_count.min(remaining.min(8) as u32);
        if short == 8 {
            sink.add_packed(eight);
        } else {
            (0..short).for_each(|i| sink.add_bucket(eight.index(i), eight.count(i)));
        }
        if short > 0 {
            index = eight.index(short.wrapping_sub(1));
            reader.skip(short as usize);
            remaining = remaining.wrapping_sub(u64::from(short));
        }
        if short == 8 || remaining == 0 {
            continue;
        }
        let byte = u64::from(reader.u8("bucket")?);
        let (mut gap, mut count) = (byte >> 4, byte & ESCAPE);
        if gap == ESCAPE {
            gap = gap.saturating_add(reader.varint("gap")?);
        }
        if count == ESCAPE {
            count = read_long_count(reader)?;
        }
        index = index.saturating_add_unsigned(gap).saturating_add(1);
        sink.add_bucket(index, count.wrapping_add(1));
        remaining = remaining.wrapping_sub(1);
    }
    Ok(Some((first, index)))
}

/// Count of the next bucket and the size of its code, if its gap fits the first byte and its count
/// takes one to three more.
#[inline]
pub(super) fn peek_long_count(reader: &ByteReader<'_>) -> Option<(u64, usize)> {
    let &[first, a, b, c] = reader.peek().first_chunk::<4>()?;
    if first & ESCAPE as u8 != ESCAPE as u8 || first >> 4 == ESCAPE as u8 {
        return None;
    }
    let part = |byte: u8, shift: u32| u64::from(byte & 0x7f) << shift;
    let (count, size) = match (a < 0x80, b < 0x80, c < 0x80) {
        (true, ..) => (part(a, 0), 2),
        (false, true, _) => (part(a, 0) | part(b, 7), 3),
        (false, false, true) => (part(a, 0) | part(b, 7) | part(c, 14), 4),
        _ => return None,
    };
    // The escape value plus one, because counts are written minus one.
    Some((count.wrapping_add(ESCAPE).wrapping_add(1), size))
}

/// Reads the count, minus one, of a bucket whose count does not fit its byte.
pub(super) fn read_long_count(reader: &mut ByteReader<'_>) -> Result<u64, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("count")?.checked_add(ESCAPE).filter(|&count| count < u64::MAX);
    count.ok_or_else(|| ByteReader::invalid_error(at, "count", "2^64 or more", "at most 2^64 - 1"))
}
