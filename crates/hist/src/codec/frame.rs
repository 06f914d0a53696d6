//! One histogram on the wire: about a byte per bucket, read at a nanosecond per bucket.
//!
//! ```text
//! size      field
//!    any    header       see `header.rs`
//!    any    flags        varint, which of the fields below follow
//!    any    fields       in the order of the flags
//!    any    positive     buckets
//!    any    negative     buckets, if flagged
//! ```
//! Buckets are: how many (varint); if any, the first index (zigzag), then one byte each: in the high half
//! the gap to the index before less one, in the low half the count less one. 15 in either half says that
//! the rest follows as a varint, first of the gap, then of the count.
//!
//! A number is a varint of its zigzag shifted left by one if it is whole and its magnitude below 2^61, else
//! the varint 1 followed by the eight bytes of the double. A frame carries no checksum: what carries the
//! frame has one. `docs/formats/frame.md` tells a stranger the same, byte by byte.

use crate::codec::base64;
use crate::codec::bytes::{Reader, put_varint, put_zigzag};
use crate::codec::header::{FRAME_MAGIC, FRAME_VERSION, header, put_header};
pub use crate::codec::header::{Meaning, Temporality, Unit};
use crate::error::DecodeError;
use crate::histogram::{Histogram, Parts, Threshold};
use crate::side::{Side, Sum};

/// Names and bits of the flags, in the order in which their fields follow.
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

const ZERO: u64 = FLAGS[0].1;
const ZERO_THRESHOLD: u64 = FLAGS[1].1;
const OVERFLOW: u64 = FLAGS[2].1;
const UNDERFLOW: u64 = FLAGS[3].1;
const NAN: u64 = FLAGS[4].1;
const SUM: u64 = FLAGS[5].1;
const SUM_LOW: u64 = FLAGS[7].1;
const MIN: u64 = FLAGS[8].1;
const MAX: u64 = FLAGS[10].1;
const THRESHOLDS: u64 = FLAGS[12].1;
const NEGATIVE: u64 = FLAGS[13].1;
const KNOWN: u64 = (1 << 14) - 1;
/// The flag "is exact" of a side value whose own flag is `flag`: the bit above.
const fn exact(flag: u64) -> u64 {
    flag << 1
}

/// Thresholds of one frame at the most.
pub const THRESHOLDS_MAX: u64 = Histogram::THRESHOLDS_MAX as u64;

const ESCAPE: u64 = 15;

/// Appends a frame.
pub fn encode(histogram: &Histogram, meaning: Meaning, out: &mut Vec<u8>) {
    put_header(out, FRAME_MAGIC, meaning, histogram.scheme());
    let sum = histogram.sum_side().value().map_or((0.0, 0.0), Sum::parts);
    let empty = histogram.is_empty();
    let if_set = |condition: bool, flag: u64| if condition { flag } else { 0 };
    let side = |side: Side<f64>, flag| match side {
        Side::Exact(_) => flag | exact(flag),
        Side::Estimated(_) => flag,
        Side::Absent => 0,
    };
    let sum_standing = match histogram.sum_side() {
        _ if empty => Side::Absent,
        Side::Exact(_) => Side::Exact(0.0),
        Side::Estimated(_) => Side::Estimated(0.0),
        Side::Absent => Side::Absent,
    };
    let flags = if_set(histogram.zero_count() > 0, ZERO)
        | if_set(histogram.zero_threshold() > 0.0, ZERO_THRESHOLD)
        | if_set(histogram.overflow() > 0, OVERFLOW)
        | if_set(histogram.underflow() > 0, UNDERFLOW)
        | if_set(histogram.nan_count() > 0, NAN)
        | side(sum_standing, SUM)
        | if_set(!empty && sum.1 != 0.0, SUM_LOW)
        | side(histogram.min_side(), MIN)
        | side(histogram.max_side(), MAX)
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
        (MIN, histogram.min_side().value().unwrap_or(0.0)),
        (MAX, histogram.max_side().value().unwrap_or(0.0)),
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

/// Writes a frame in padded base64, for carriers of text.
pub fn encode_base64(histogram: &Histogram, meaning: Meaning) -> String {
    let mut bytes = Vec::new();
    encode(histogram, meaning, &mut bytes);
    base64::encode(&bytes)
}

/// Reads a frame in base64, padded or not. Offsets in errors past base64 itself are those of the bytes it
/// stands for.
pub fn decode_base64(text: &str) -> Result<(Histogram, Meaning), DecodeError> {
    decode(&base64::decode(text.as_bytes())?)
}

/// Reads a frame that fills `bytes`.
pub fn decode(bytes: &[u8]) -> Result<(Histogram, Meaning), DecodeError> {
    let mut reader = Reader::new(bytes);
    let (meaning, scheme) = header(&mut reader, FRAME_MAGIC, FRAME_VERSION)?;
    let fields = Fields::read(&mut reader)?;
    let mut parts = Parts::new(scheme);
    parts.zero = fields.zero;
    parts.zero_threshold = fields.zero_threshold;
    parts.overflow = fields.overflow;
    parts.underflow = fields.underflow;
    parts.nan = fields.nan;
    (parts.sum, parts.min, parts.max) = (fields.sum, fields.min, fields.max);
    parts.thresholds = fields.thresholds;
    parts.positive = buckets(&mut reader)?;
    if fields.has_negative {
        parts.negative = buckets(&mut reader)?;
    }
    reader.finish()?;
    Ok((Histogram::from_own_parts(parts)?, meaning))
}

/// How many values a frame has counted, without those that were no number: [`Histogram::count`] of it, at a
/// nanosecond a bucket. What follows the buckets is not looked at.
pub fn count(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut reader = Reader::new(bytes);
    header(&mut reader, FRAME_MAGIC, FRAME_VERSION)?;
    let fields = Fields::read(&mut reader)?;
    let mut total =
        Total(fields.zero.saturating_add(fields.overflow).saturating_add(fields.underflow));
    each_bucket(&mut reader, &mut total)?;
    if fields.has_negative {
        each_bucket(&mut reader, &mut total)?;
    }
    Ok(total.0)
}

/// Adds counts up.
struct Total(u64);

impl BucketSink for Total {
    fn one(&mut self, _: i64, count: u64) {
        self.0 = self.0.saturating_add(count);
    }

    fn eight(&mut self, buckets: Eight) {
        self.0 = self.0.saturating_add(buckets.total());
    }
}

/// Everything of a frame between its header and its buckets.
pub(crate) struct Fields {
    pub(crate) zero: u64,
    pub(crate) zero_threshold: f64,
    pub(crate) overflow: u64,
    pub(crate) underflow: u64,
    pub(crate) nan: u64,
    pub(crate) sum: Side<Sum>,
    pub(crate) min: Side<f64>,
    pub(crate) max: Side<f64>,
    pub(crate) thresholds: Vec<Threshold>,
    pub(crate) has_negative: bool,
}

impl Fields {
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Fields, DecodeError> {
        let at = reader.offset();
        let flags = reader.varint("flags")?;
        if flags & !KNOWN != 0 {
            return Err(Reader::invalid(at, "flags", flags, "bits 14 and above zero"));
        }
        let idle = flags & exact(SUM | MIN | MAX) & !exact(flags);
        if idle != 0 || flags & (SUM | SUM_LOW) == SUM_LOW {
            return Err(Reader::invalid(at, "flags", flags, "a value where one is called exact"));
        }
        let count = |reader: &mut Reader<'_>, flag, field| match flags & flag {
            0 => Ok(0),
            _ => reader.varint(field),
        };
        let side = |reader: &mut Reader<'_>, flag, field| match flags & (flag | exact(flag)) {
            0 => Ok(Side::Absent),
            standing => number(reader, field).map(|value| match standing & exact(flag) {
                0 => Side::Estimated(value),
                _ => Side::Exact(value),
            }),
        };
        let zero = count(reader, ZERO, "zero count")?;
        let zero_threshold =
            if flags & ZERO_THRESHOLD != 0 { number(reader, "zero threshold")? } else { 0.0 };
        let overflow = count(reader, OVERFLOW, "overflow")?;
        let underflow = count(reader, UNDERFLOW, "underflow")?;
        let nan = count(reader, NAN, "nan")?;
        let high = side(reader, SUM, "sum")?;
        let low = if flags & SUM_LOW != 0 { number(reader, "sum low word")? } else { 0.0 };
        let sum = match high {
            Side::Exact(high) => Side::Exact(Sum::from_parts(high, low)),
            Side::Estimated(high) => Side::Estimated(Sum::from_parts(high, low)),
            Side::Absent => Side::Absent,
        };
        let min = side(reader, MIN, "min")?;
        let max = side(reader, MAX, "max")?;
        let thresholds = if flags & THRESHOLDS != 0 { thresholds(reader)? } else { Vec::new() };
        let has_negative = flags & NEGATIVE != 0;
        Ok(Fields {
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

fn thresholds(reader: &mut Reader<'_>) -> Result<Vec<Threshold>, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("threshold count")?;
    if count > THRESHOLDS_MAX {
        let (offset, field, limit) = (at, "threshold count", THRESHOLDS_MAX);
        return Err(DecodeError::Limit { offset, field, found: count, limit });
    }
    (0..count)
        .map(|_| {
            Ok(Threshold { value: number(reader, "threshold")?, above: reader.varint("above")? })
        })
        .collect()
}

/// Appends a double: short if it is a whole number of moderate size.
pub(crate) fn put_number(out: &mut Vec<u8>, value: f64) {
    let whole = value as i64;
    if whole as f64 == value
        && whole.unsigned_abs() < 1 << 61
        && value.to_bits() != (-0.0f64).to_bits()
    {
        put_varint(out, (((whole << 1) ^ (whole >> 63)) as u64) << 1);
    } else {
        out.push(1);
        out.extend(value.to_le_bytes());
    }
}

/// Reads a double.
#[inline]
pub(crate) fn number(reader: &mut Reader<'_>, field: &'static str) -> Result<f64, DecodeError> {
    let at = reader.offset();
    let coded = reader.varint(field)?;
    match coded {
        1 => reader.f64_le(field),
        _ if coded & 1 == 1 => {
            Err(Reader::invalid(at, field, coded, "an even number, or 1 and eight bytes"))
        }
        _ => {
            let folded = coded >> 1;
            Ok(((folded >> 1) as i64 ^ ((folded & 1) as i64).wrapping_neg()) as f64)
        }
    }
}

/// Appends buckets in ascending order.
pub(crate) fn put_buckets(out: &mut Vec<u8>, buckets: impl ExactSizeIterator<Item = (i32, u64)>) {
    put_varint(out, buckets.len() as u64);
    let mut previous = None;
    for (index, count) in buckets {
        let gap = match previous {
            None => {
                put_zigzag(out, index.into());
                0
            }
            Some(previous) => i64::from(index).wrapping_sub(previous).wrapping_sub(1) as u64,
        };
        previous = Some(i64::from(index));
        let less_one = count.wrapping_sub(1);
        out.push((gap.min(ESCAPE) << 4 | less_one.min(ESCAPE)) as u8);
        if gap >= ESCAPE {
            put_varint(out, gap.wrapping_sub(ESCAPE));
        }
        if less_one >= ESCAPE {
            put_varint(out, less_one.wrapping_sub(ESCAPE));
        }
    }
}

fn buckets(reader: &mut Reader<'_>) -> Result<Vec<(i32, u64)>, DecodeError> {
    let at = reader.offset();
    let mut found: Vec<(i32, u64)> = Vec::new();
    if let Some((_, last)) = each_bucket(reader, &mut found)?
        && i32::try_from(last).is_err()
    {
        return Err(Reader::invalid(at, "last index", last, "a 32-bit number"));
    }
    Ok(found)
}

/// Where buckets go as they are read. Indexes begin within 32 bits and never fall, but may leave them: who
/// takes them looks at the last one.
pub(crate) trait BucketSink {
    /// A bucket.
    fn one(&mut self, index: i64, count: u64);

    /// Eight buckets.
    #[inline]
    fn eight(&mut self, buckets: Eight) {
        (0..8).for_each(|i| self.one(buckets.index(i), buckets.count(i)));
    }
}

impl BucketSink for Vec<(i32, u64)> {
    fn one(&mut self, index: i64, count: u64) {
        self.push((index as i32, count));
    }
}

/// The next eight bytes as buckets, a byte for each in two words.
#[derive(Clone, Copy)]
pub(crate) struct Eight {
    /// The index that offsets are counted from.
    pub(crate) before: i64,
    offsets: u64,
    counts: u64,
    /// How many of the bytes are there and stand for themselves.
    short: u32,
}

impl Eight {
    /// The offsets of eight buckets are less than this.
    pub(crate) const SPAN: usize = 128;

    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW_HALVES: u64 = 0x0f0f_0f0f_0f0f_0f0f;

    #[inline]
    fn new(before: i64, bytes: &[u8]) -> Eight {
        let (word, there) = match bytes.first_chunk() {
            Some(&bytes) => (u64::from_le_bytes(bytes), 8),
            None => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                (u64::from_le_bytes(word), bytes.len() as u32)
            }
        };
        let gaps = ((word >> 4) & Self::LOW_HALVES).wrapping_add(Self::ONES);
        let counts = (word & Self::LOW_HALVES).wrapping_add(Self::ONES);
        let long = (gaps | counts) & (Self::ONES << 4);
        // Times 1, 2^8, 2^16, … and added up: each byte becomes the sum of those up to it, 8 · 15 at most
        // while none is long.
        let offsets = gaps.wrapping_mul(Self::ONES);
        Eight { before, offsets, counts, short: there.min(long.trailing_zeros() / 8) }
    }

    /// The `i`-th index, where all bytes up to it are short.
    #[inline]
    pub(crate) fn index(self, i: u32) -> i64 {
        self.before.saturating_add(self.offset(i).into())
    }

    /// How far the `i`-th index lies above `before`.
    #[inline]
    pub(crate) fn offset(self, i: u32) -> u8 {
        (self.offsets >> i.wrapping_mul(8)) as u8
    }

    /// The `i`-th count.
    #[inline]
    pub(crate) fn count(self, i: u32) -> u64 {
        (self.counts >> i.wrapping_mul(8)) & 0xff
    }

    /// All counts together.
    #[inline]
    pub(crate) fn total(self) -> u64 {
        self.counts.wrapping_mul(Self::ONES) >> 56
    }
}

/// Gives each bucket to `sink` in ascending order and returns the first and last index.
#[inline]
pub(crate) fn each_bucket(
    reader: &mut Reader<'_>,
    sink: &mut impl BucketSink,
) -> Result<Option<(i64, i64)>, DecodeError> {
    let at = reader.offset();
    let buckets = reader.varint("bucket count")?;
    if buckets == 0 {
        return Ok(None);
    }
    // Each bucket takes a byte at least.
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
        return Err(Reader::invalid(at, "first index", first, "a 32-bit number"));
    }
    let mut index = first.wrapping_sub(1);
    let mut left = buckets;
    while left > 0 {
        let eight = Eight::new(index, reader.peek());
        let short = eight.short.min(left.min(8) as u32);
        if short == 8 {
            sink.eight(eight);
        } else {
            (0..short).for_each(|i| sink.one(eight.index(i), eight.count(i)));
        }
        if short > 0 {
            index = eight.index(short.wrapping_sub(1));
            reader.skip(short as usize);
            left = left.wrapping_sub(u64::from(short));
        }
        if short == 8 || left == 0 {
            continue;
        }
        let byte = u64::from(reader.u8("bucket")?);
        let (mut gap, mut count) = (byte >> 4, byte & ESCAPE);
        if gap == ESCAPE {
            gap = gap.saturating_add(reader.varint("gap")?);
        }
        if count == ESCAPE {
            count = long_count(reader)?;
        }
        index = index.saturating_add_unsigned(gap).saturating_add(1);
        sink.one(index, count.wrapping_add(1));
        left = left.wrapping_sub(1);
    }
    Ok(Some((first, index)))
}

/// The count, less one, of a bucket whose byte cannot hold it.
fn long_count(reader: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let at = reader.offset();
    let count = reader.varint("count")?.checked_add(ESCAPE).filter(|&count| count < u64::MAX);
    count.ok_or_else(|| Reader::invalid(at, "count", "2^64 or more", "at most 2^64 - 1"))
}
