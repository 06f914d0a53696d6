//! Increment of a frame: what a cumulative histogram adds to the one before it.
//!
//! A histogram in memory takes fewer bytes as its increment, and a reader that wants increments
//! need not subtract. No file has increments.
//!
//! ```text
//! size      field
//!    1      tag          0x1d; a frame begins with another byte
//!    any    flags        of the frame: zero count, sum, sum is exact, sum low word
//!    any    zero count   varint, if flagged: the values that were added
//!    any    sum          number, if flagged: the sum of the frame
//!    any    low word     number, if flagged
//!    any    buckets      as in a frame: the values that were added; their number takes two bytes
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::buckets::Buckets;
use crate::codec::bytes::{ByteReader, put_varint};
use crate::codec::frame::{
    self, ESCAPE, FrameFields, SUM, SUM_LOW, ZERO, ZERO_THRESHOLD, exact_flag, peek_long_count,
    put_bucket, read_buckets, read_long_count, read_number,
};
use crate::codec::header::{FRAME_MAGIC, scheme_end};
use crate::error::DecodeError;
use crate::histogram::{Histogram, HistogramParts, drop_undefined_sum};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// First byte of an increment.
const TAG: u8 = 0x1d;
const _: () = assert!(TAG != FRAME_MAGIC);
/// Flags of frames that have increments.
const PLAIN_FLAGS: u64 = ZERO | ZERO_THRESHOLD | SUM | exact_flag(SUM) | SUM_LOW;
/// Buckets of an increment, less one: their number takes two bytes.
const BUCKETS_END: u16 = 1 << 14;

/// Whether bytes are an increment, and not a frame.
pub fn is_increment(bytes: &[u8]) -> bool {
    bytes.first() == Some(&TAG)
}

/// Appends the increment from a frame to a later one. Returns false, without any change, if the
/// later frame has no increment: it does not contain all counts of the earlier one, differs from it
/// in more than counts and sum, has other than positive values, zeros and a sum, or is invalid.
#[must_use]
pub fn put_increment(before: &[u8], after: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let is_put = try_increment(before, after, out).is_some();
    if !is_put {
        out.truncate(start);
    }
    is_put
}

fn try_increment(before: &[u8], after: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let header = scheme_end(before)?;
    if before.get(..header)? != after.get(..header)? {
        return None;
    }
    let (old, new) = (PlainFrame::read(before, header)?, PlainFrame::read(after, header)?);
    if old.zero_threshold != new.zero_threshold {
        return None;
    }
    out.push(TAG);
    put_varint(out, new.flags & !ZERO_THRESHOLD);
    if new.flags & ZERO != 0 {
        put_varint(out, new.zero.checked_sub(old.zero)?);
    } else if old.zero > 0 {
        return None;
    }
    out.extend_from_slice(new.sum);
    let range = put_added(old.buckets, new.buckets, new.zero, out)?;
    // Buckets of the earlier frame are valid, and an increment within them has no others.
    (range == BucketRange::Within || frame::decode(after).is_ok()).then_some(())
}

/// Position of the buckets of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketRange {
    /// Between those of the earlier frame.
    Within,
    /// Some are beyond them.
    Beyond,
}

/// Appends the buckets that were added. `zero` is the number of values beside those in buckets.
fn put_added(
    mut old: BucketReader<'_>,
    mut new: BucketReader<'_>,
    zero: u64,
    out: &mut Vec<u8>,
) -> Option<BucketRange> {
    let size_at = out.len();
    out.extend_from_slice(&[0; 2]);
    let (mut total, mut buckets, mut previous) = (zero, 0u16, None);
    let (mut range, mut last_held) = (BucketRange::Within, None);
    let mut held = old.next();
    let first = held;
    while let Some((index, count)) = new.next() {
        let taken = match held {
            Some((at, taken)) if at == index => {
                last_held = held;
                held = old.next();
                taken
            }
            Some((at, _)) if at < index => return None,
            _ => 0,
        };
        if first.is_none_or(|first| index < first.0) {
            range = BucketRange::Beyond;
        }
        total = total.checked_add(count)?;
        let added = count.checked_sub(taken)?;
        if added > 0 {
            let index = i32::try_from(index).ok()?;
            put_bucket(out, &mut previous, (index, added));
            buckets = buckets.checked_add(1).filter(|&buckets| buckets < BUCKETS_END)?;
        }
    }
    if held.is_some() || old.has_failed || new.has_failed || !new.reader.is_empty() {
        return None;
    }
    if last_held.map(|last| last.0) != new.last_index() {
        range = BucketRange::Beyond;
    }
    let size = [buckets as u8 & 0x7f | 0x80, (buckets >> 7) as u8];
    out.get_mut(size_at..)?.first_chunk_mut::<2>().map(|bytes| *bytes = size)?;
    Some(range)
}

/// Frame with only counts of positive values and zeros, and a sum.
struct PlainFrame<'a> {
    flags: u64,
    zero: u64,
    zero_threshold: &'a [u8],
    sum: &'a [u8],
    buckets: BucketReader<'a>,
}

impl<'a> PlainFrame<'a> {
    fn read(bytes: &'a [u8], header: usize) -> Option<PlainFrame<'a>> {
        let mut reader = ByteReader::new(bytes);
        reader.skip(header);
        let flags = reader.varint("flags").ok()?;
        let has_sum = flags & SUM != 0;
        if flags & !PLAIN_FLAGS != 0 || flags & (exact_flag(SUM) | SUM_LOW) != 0 && !has_sum {
            return None;
        }
        let zero = if flags & ZERO != 0 { reader.varint("zero count").ok()? } else { 0 };
        let zero_threshold = number_bytes(&mut reader, bytes, flags & ZERO_THRESHOLD)?;
        let sum_at = reader.offset();
        number_bytes(&mut reader, bytes, flags & SUM)?;
        number_bytes(&mut reader, bytes, flags & SUM_LOW)?;
        let sum = bytes.get(sum_at..reader.offset())?;
        Some(PlainFrame { flags, zero, zero_threshold, sum, buckets: BucketReader::new(reader)? })
    }
}

/// Bytes of a number if it is flagged.
fn number_bytes<'a>(reader: &mut ByteReader<'a>, bytes: &'a [u8], flag: u64) -> Option<&'a [u8]> {
    let at = reader.offset();
    if flag != 0 {
        read_number(reader, "number").ok()?;
    }
    bytes.get(at..reader.offset())
}

/// Reader of the buckets of a frame, one at a time.
struct BucketReader<'a> {
    reader: ByteReader<'a>,
    left: u64,
    /// Index of the last bucket that was read.
    index: i64,
    is_begun: bool,
    has_failed: bool,
}

impl<'a> BucketReader<'a> {
    fn new(mut reader: ByteReader<'a>) -> Option<BucketReader<'a>> {
        let left = reader.varint("bucket count").ok()?;
        let first = if left > 0 { reader.zigzag("first index").ok()? } else { 0 };
        let first = i64::from(i32::try_from(first).ok()?);
        let index = first.wrapping_sub(1);
        Some(BucketReader { reader, left, index, is_begun: false, has_failed: false })
    }

    /// Index and count of the next bucket.
    #[inline]
    fn next(&mut self) -> Option<(i64, u64)> {
        self.left = self.left.checked_sub(1)?;
        self.is_begun = true;
        if let Some((count, size)) = peek_long_count(&self.reader) {
            let gap = self.reader.peek().first().map_or(0, |byte| i64::from(byte >> 4));
            self.index = self.index.saturating_add(1).saturating_add(gap);
            self.reader.skip(size);
            return Some((self.index, count));
        }
        let count = self.read_any().ok();
        if count.is_none() {
            (self.left, self.has_failed) = (0, true);
        }
        Some((self.index, count?))
    }

    fn read_any(&mut self) -> Result<u64, DecodeError> {
        let byte = u64::from(self.reader.u8("bucket")?);
        let (mut gap, mut count) = (byte >> 4, byte & ESCAPE);
        if gap == ESCAPE {
            gap = gap.saturating_add(self.reader.varint("gap")?);
        }
        if count == ESCAPE {
            count = read_long_count(&mut self.reader)?;
        }
        self.index = self.index.saturating_add_unsigned(gap).saturating_add(1);
        Ok(count.wrapping_add(1))
    }

    fn last_index(&self) -> Option<i64> {
        self.is_begun.then_some(self.index)
    }
}

/// Reads an increment of a histogram: the counts that were added, as [`Histogram::counts_since`],
/// and the sum of the later histogram, which has no extremes.
pub fn read_increment(
    before: &Histogram,
    bytes: &[u8],
) -> Result<(Histogram, TrackedValue<DoubleDouble>), DecodeError> {
    let mut reader = ByteReader::new(bytes);
    reader.u8("tag")?;
    let fields = FrameFields::read(&mut reader)?;
    let mut parts = HistogramParts::new(before.scheme().clone());
    parts.zero_threshold = before.zero_threshold();
    parts.zero = fields.zero;
    let positive = read_buckets(&mut reader)?;
    reader.finish()?;
    let added = Histogram::from_buckets(parts, positive, Buckets::default())?;
    Ok((added, drop_undefined_sum(fields.sum)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::bytes::put_zigzag;
    use crate::codec::header::{FrameUnit, SeriesMeta, Temporality};
    use crate::scheme::{Explicit, Scheme};

    const META: SeriesMeta =
        SeriesMeta { unit: FrameUnit::Seconds, temporality: Temporality::Cumulative };

    fn frame_of(histogram: &Histogram) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::encode(histogram, META, &mut bytes);
        bytes
    }

    fn histogram(
        scheme: &Scheme,
        buckets: &[(i32, u64)],
        zero: u64,
        sum: TrackedValue<DoubleDouble>,
    ) -> Histogram {
        let mut parts = HistogramParts::new(scheme.clone());
        parts.positive = buckets.to_vec();
        (parts.zero, parts.sum) = (zero, sum);
        Histogram::from_recorded_parts(parts).unwrap()
    }

    /// Whether there is an increment. It must then give the later histogram.
    #[track_caller]
    fn check(before: &Histogram, after: &Histogram) -> bool {
        let (old, new) = (frame_of(before), frame_of(after));
        let mut increment = vec![7];
        if !put_increment(&old, &new, &mut increment) {
            assert_eq!(increment, [7], "nothing is left of an increment that is none");
            return false;
        }
        let increment = &increment[1..];
        assert!(is_increment(increment) && !is_increment(&new));
        let (before, after) = (frame::decode(&old).unwrap().0, frame::decode(&new).unwrap().0);
        let (added, sum) = read_increment(&before, increment).unwrap();
        assert_eq!(Some(&added), after.counts_since(&before).as_ref());
        let unknown = TrackedValue::Absent;
        let found = before.plus_counts(&added, sum, unknown, unknown).unwrap();
        assert_eq!(found, after);
        for length in 0..increment.len() {
            assert!(read_increment(&before, &increment[..length]).is_err(), "{length} bytes");
        }
        true
    }

    /// Of grids with fine buckets some contain no subnormal number.
    #[test]
    fn a_bucket_without_numbers_between_others_is_invalid() {
        let scheme = Scheme::exp2(5).unwrap();
        let (lower, hole) = (-34_337, -34_335);
        assert!(scheme.edges(lower).is_some() && scheme.edges(hole).is_none());
        let histogram = |indexes: &[i32]| {
            let mut positive = Buckets::default();
            indexes.iter().for_each(|&index| positive.push(index, 1));
            let parts = HistogramParts::new(scheme.clone());
            Histogram::from_buckets(parts, positive, Buckets::default()).unwrap()
        };
        assert!(frame::decode(&frame_of(&histogram(&[lower, 0]))).is_ok());
        assert!(frame::decode(&frame_of(&histogram(&[lower, hole, 0]))).is_err());
        let mut parts = HistogramParts::new(scheme.clone());
        parts.positive = vec![(lower, 1), (hole, 1), (0, 1)];
        assert!(Histogram::from_recorded_parts(parts).is_err());
    }

    fn exact(sum: f64) -> TrackedValue<DoubleDouble> {
        TrackedValue::Exact(DoubleDouble::new(sum))
    }

    #[test]
    fn increments_give_the_later_histogram() {
        let scheme = Scheme::exp2(5).unwrap();
        let first = histogram(&scheme, &[(-3, 20), (4, 1), (5, 1 << 40)], 2, exact(0.1));
        let none = Histogram::new(scheme.clone());
        assert!(check(&first, &first));
        assert!(check(&none, &none));
        assert!(check(&none, &first));
        let sum = TrackedValue::Exact(DoubleDouble::from_parts(1e9, 1e-9));
        let more = histogram(&scheme, &[(-3, 21), (4, 1), (5, (1 << 40) + 20)], 9, sum);
        assert!(check(&first, &more));
        // Buckets at both ends, and far away.
        let wider = &[(-900, 7), (-3, 20), (4, 1), (5, 1 << 40), (1000, 16)];
        assert!(check(&first, &histogram(&scheme, wider, 2, TrackedValue::Absent)));
        let estimate = TrackedValue::Estimated(DoubleDouble::new(-0.0));
        assert!(check(&first, &histogram(&scheme, wider, 2, estimate)));
        let bounds = Scheme::Explicit(Explicit::new(&[1.0, 2.0, 5.0]).unwrap());
        let coarse = histogram(&bounds, &[(1, 4)], 0, exact(7.0));
        assert!(check(&coarse, &histogram(&bounds, &[(1, 4), (2, 1)], 0, exact(10.0))));
    }

    #[test]
    fn other_frames_have_no_increment() {
        let scheme = Scheme::exp2(5).unwrap();
        let counts = [(-3, 20), (4, 1), (5, 70)];
        let first = histogram(&scheme, &counts, 2, exact(0.1));
        assert!(check(&first, &histogram(&scheme, &counts, 3, exact(0.1))));
        for (buckets, zero) in [
            (&[(-3, 19), (4, 1), (5, 70)][..], 2),
            (&[(-3, 20), (5, 70)], 2),
            (&[(4, 1), (5, 70)], 2),
            (&[(-3, 20), (4, 1)], 2),
            (&counts, 1),
            (&counts, 0),
            (&[], 0),
        ] {
            assert!(!check(&first, &histogram(&scheme, buckets, zero, exact(0.1))), "{buckets:?}");
        }
        let other = Scheme::exp2(4).unwrap();
        assert!(!check(&first, &histogram(&other, &counts, 2, exact(0.1))));
        let threshold = first.clone().with_zero_threshold(1e-9).unwrap();
        assert!(!check(&first, &threshold));
        let mut more = first.clone();
        for value in [-1.0, f64::NAN, f64::INFINITY, 1.0] {
            let mut recorded = Histogram::new(scheme.clone());
            recorded.record(value);
            more.merge(&recorded).unwrap();
            assert!(!check(&recorded, &more), "{value}: extremes are known");
        }
    }

    #[test]
    fn invalid_frames_have_no_increment() {
        let scheme = Scheme::exp2(5).unwrap();
        let first = frame_of(&histogram(&scheme, &[(0, 1), (9, 30)], 0, exact(1.0)));
        let last = frame_of(&histogram(&scheme, &[(0, 2), (9, 40)], 1, exact(2.0)));
        let mut out = Vec::new();
        for length in 0..last.len() {
            assert!(!put_increment(&first, &last[..length], &mut out), "{length} bytes");
            assert!(!put_increment(&last[..length], &last, &mut out), "{length} bytes");
        }
        let more = [&last[..], &[0]].concat();
        assert!(!put_increment(&first, &more, &mut out), "a byte after the frame");
        // A bucket outside the grid.
        let mut empty = first[..5].to_vec();
        put_varint(&mut empty, 0);
        let mut beyond = empty.clone();
        put_varint(&mut empty, 0);
        put_varint(&mut beyond, 1);
        put_zigzag(&mut beyond, i64::from(i32::MAX));
        beyond.push(0);
        assert!(frame::decode(&empty).is_ok() && frame::decode(&beyond).is_err());
        assert!(!put_increment(&empty, &beyond, &mut out));
        assert!(out.is_empty());
    }

    fn sum() -> impl Strategy<Value = TrackedValue<DoubleDouble>> {
        let number = prop_oneof![
            8 => -1e9f64..1e9,
            4 => any::<f64>(),
            1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]),
        ];
        (number, prop_oneof![Just(0.0), -1e-9f64..1e-9], 0..3).prop_map(|(high, low, exactness)| {
            let sum = DoubleDouble::from_parts(high, low);
            match exactness {
                0 => TrackedValue::Absent,
                1 => TrackedValue::Estimated(sum),
                _ => TrackedValue::Exact(sum),
            }
        })
    }

    proptest! {
        #[test]
        fn frames_that_contain_the_one_before_have_increments(
            before in prop::collection::btree_map(-40i32..40, 1u64..300, 0..40),
            added in prop::collection::btree_map(-45i32..45, 1u64..1 << 40, 0..40),
            zeros in (0u64..3, 0u64..300),
            sums in (sum(), sum()),
            wide in 1i32..9,
            threshold in prop_oneof![Just(0.0), 1e-9f64..1e9],
            is_explicit in any::<bool>(),
        ) {
            let scheme = match is_explicit {
                // Room for the indexes below: 45 * 8 on either side.
                true => Scheme::explicit(&(0..800).map(f64::from).collect::<Vec<_>>()).unwrap(),
                false => Scheme::exp2(3).unwrap(),
            };
            let mut after = before.clone();
            added.iter().for_each(|(&index, &count)| *after.entry(index).or_default() += count);
            let pairs = |buckets: &std::collections::BTreeMap<i32, u64>| -> Vec<(i32, u64)> {
                let offset = if is_explicit { 400 } else { 0 };
                buckets.iter().map(|(&index, &count)| (index * wide + offset, count)).collect()
            };
            let of = |positive, zero, sum| {
                let mut parts = HistogramParts::new(scheme.clone());
                // Senders may report buckets within the threshold.
                parts.zero_threshold = threshold;
                (parts.positive, parts.zero, parts.sum) = (positive, zero, sum);
                Histogram::from_recorded_parts(parts).unwrap()
            };
            let old = of(pairs(&before), zeros.0, sums.0);
            let new = of(pairs(&after), zeros.0 + zeros.1, sums.1);
            prop_assert!(check(&old, &new));
            prop_assert_eq!(check(&new, &old), old.count() == new.count());
        }

        #[test]
        fn any_bytes_do_not_panic(
            before in prop::collection::vec(any::<u8>(), 0..60),
            after in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut out = Vec::new();
            for (before, after) in [(&before, &after), (&before, &before)] {
                let start = [FRAME_MAGIC, 1, 0, 0, 5];
                let (before, after) = ([&start[..], before].concat(), [&start[..], after].concat());
                if put_increment(&before, &after, &mut out) {
                    prop_assert!(frame::decode(&after).is_ok() || frame::decode(&before).is_err());
                }
            }
            let _ = read_increment(&Histogram::default(), &after);
        }
    }
}
