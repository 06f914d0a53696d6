//! Body of a frame: all of it but its header, written without a [`Histogram`].
//!
//! What a sender counts mostly becomes a frame and nothing else. If it is plain (buckets of values
//! above zero on an exponential grid, values around zero, and a sum that the buckets allow), its
//! frame is written bucket by bucket as the sender's message is read, byte for byte as
//! [`frame::encode`] writes that of the histogram. Anything else is refused: the caller then makes
//! a [`Histogram`], which checks everything.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::codec::bytes::{put_varint, put_zigzag};
use crate::codec::frame::{self, ESCAPE, SUM, ZERO, ZERO_THRESHOLD, exact_flag, put_number};
use crate::codec::header::{FRAME_MAGIC, FRAME_VERSION, SeriesMeta, put_header};
use crate::histogram::Histogram;
use crate::scheme::{Exp2, Scheme};
use crate::sum_check::LowerEdgeSum;
use crate::tracked_value::DoubleDouble;

/// Bits of a count beyond [`ESCAPE`] that a short code holds.
const SHORT_BITS: u32 = 28;
/// Bytes that are stored for a code that is not short; it uses at most 16 of them.
const LONG_BYTES: usize = 24;
/// Smallest allocation for buckets.
const BYTES_MIN: usize = 512;

/// Body of a frame.
#[derive(Clone, Copy, Debug)]
pub struct HistogramBody<'a> {
    grid: Exp2,
    /// What precedes the first bucket.
    fields: &'a [u8],
    buckets: &'a [u8],
    bucket_count: u64,
    count: u64,
}

impl HistogramBody<'_> {
    /// Number of values; none is NaN.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of buckets.
    pub fn bucket_count(&self) -> u64 {
        self.bucket_count
    }

    /// Appends the frame.
    pub fn put(&self, meta: SeriesMeta, out: &mut Vec<u8>) {
        put_header(out, (FRAME_MAGIC, FRAME_VERSION), meta, &Scheme::Exp2(self.grid));
        out.extend_from_slice(self.fields);
        out.extend_from_slice(self.buckets);
    }

    /// The histogram.
    #[expect(clippy::expect_used, reason = "the writer refuses what is no histogram")]
    pub fn to_histogram(&self) -> Histogram {
        let mut bytes = Vec::new();
        self.put(SeriesMeta::default(), &mut bytes);
        frame::decode(&bytes).expect("BUG: a plain histogram is a histogram").0
    }
}

/// Memory of frame bodies, used by one after the other.
#[derive(Debug, Default)]
pub struct FrameBodyBuffer {
    fields: Vec<u8>,
    /// Codes of the buckets; the rest is of earlier ones.
    buckets: Vec<u8>,
    /// No edges of a grid: its base takes long to compute.
    edges: Option<LowerEdgeSum>,
}

/// Summary of a plain histogram.
#[derive(Clone, Copy, Debug)]
pub struct PlainSummary {
    /// Number of values.
    pub count: u64,
    /// Sum of all values.
    pub sum: f64,
    /// Number of values within ± `zero_threshold`.
    pub zero: u64,
    /// Values within ± this threshold count as zero.
    pub zero_threshold: f64,
}

/// Writer of one body.
#[derive(Debug)]
pub struct FrameBodyWriter<'a> {
    buffer: &'a mut FrameBodyBuffer,
    edges: LowerEdgeSum,
    /// Bytes of the buckets so far.
    used: usize,
    buckets: u64,
    /// Number of values in the buckets.
    count: u64,
}

impl FrameBodyBuffer {
    /// Begins a histogram on a grid.
    pub fn write(&mut self, grid: Exp2) -> FrameBodyWriter<'_> {
        let known = self.edges.filter(|edges| edges.grid() == grid);
        let edges = known.unwrap_or_else(|| LowerEdgeSum::new(grid));
        self.edges = Some(edges);
        FrameBodyWriter { buffer: self, edges, used: 0, buckets: 0, count: 0 }
    }
}

impl<'a> FrameBodyWriter<'a> {
    /// Adds a bucket of values above zero. Returns false if it is not above all others, is empty,
    /// or is outside the grid: the histogram is not plain.
    #[inline]
    pub fn add_bucket(&mut self, index: i32, count: u64) -> bool {
        let gap = match self.edges.ends() {
            Some((_, last)) => i64::from(index).wrapping_sub(i64::from(last)).wrapping_sub(1),
            None => 0,
        };
        let (Ok(gap), Some(less_one)) = (u64::try_from(gap), count.checked_sub(1)) else {
            return false;
        };
        if !self.edges.add(index, count) {
            return false;
        }
        self.buckets = self.buckets.wrapping_add(1);
        self.count = self.count.saturating_add(count);
        if gap >= ESCAPE || less_one.saturating_sub(ESCAPE) >> SHORT_BITS > 0 {
            self.used = put_long_code(&mut self.buffer.buckets, self.used, gap, less_one);
            return true;
        }
        let (code, length) = short_code(gap, less_one);
        put_code(&mut self.buffer.buckets, self.used, code.to_le_bytes());
        self.used = self.used.wrapping_add(length);
        true
    }

    /// The body, unless the histogram is not plain: its counts must add up, and its sum must be a
    /// possible one.
    pub fn finish(self, summary: PlainSummary) -> Option<HistogramBody<'a>> {
        let PlainSummary { count, sum, zero, zero_threshold } = summary;
        // Where the total is saturated, it is unknown.
        let total = self.count.checked_add(zero).filter(|&total| total < u64::MAX);
        let (first, _) = self.edges.ends().filter(|_| total == Some(count))?;
        let is_threshold = zero_threshold.is_finite() && zero_threshold >= 0.0;
        if !is_threshold || !self.edges.allows(sum, zero_threshold, false) {
            return None;
        }
        let buffer = self.buffer;
        let fields = &mut buffer.fields;
        fields.clear();
        let if_set = |condition: bool, flag: u64| if condition { flag } else { 0 };
        let flags = SUM
            | exact_flag(SUM)
            | if_set(zero > 0, ZERO)
            | if_set(zero_threshold > 0.0, ZERO_THRESHOLD);
        put_varint(fields, flags);
        if zero > 0 {
            put_varint(fields, zero);
        }
        if zero_threshold > 0.0 {
            put_number(fields, zero_threshold);
        }
        put_number(fields, DoubleDouble::new(sum).parts().0);
        put_varint(fields, self.buckets);
        put_zigzag(fields, first.into());
        let buckets = &buffer.buckets[..self.used];
        let (grid, fields, bucket_count) = (self.edges.grid(), &buffer.fields[..], self.buckets);
        Some(HistogramBody { grid, fields, buckets, bucket_count, count })
    }
}

/// Stores a code after the first `used` bytes. The buffer never becomes shorter: each byte is
/// cleared once, whatever the order of short and long codes.
#[inline]
fn put_code<const BYTES: usize>(out: &mut Vec<u8>, used: usize, code: [u8; BYTES]) {
    let end = used.wrapping_add(BYTES);
    if out.len() < end {
        out.resize(end.saturating_mul(2).max(BYTES_MIN), 0);
    }
    out[used..end].copy_from_slice(&code);
}

/// Writes the code of any bucket after the first `used` bytes, and returns its end. Not a method:
/// the state of a writer stays in registers.
#[cold]
fn put_long_code(out: &mut Vec<u8>, used: usize, gap: u64, less_one: u64) -> usize {
    let mut code = [0; LONG_BYTES];
    code[0] = (gap.min(ESCAPE) << 4 | less_one.min(ESCAPE)) as u8;
    let mut length = 1;
    for mut rest in [gap, less_one].into_iter().filter_map(|number| number.checked_sub(ESCAPE)) {
        while rest >= 0x80 {
            code[length] = rest as u8 | 0x80;
            rest >>= 7;
            length = length.wrapping_add(1);
        }
        code[length] = rest as u8;
        length = length.wrapping_add(1);
    }
    put_code(out, used, code);
    used.wrapping_add(length)
}

/// Code of a bucket whose gap is below [`ESCAPE`] and whose count takes at most [`SHORT_BITS`]
/// beyond it, first byte lowest, and its length.
#[inline]
fn short_code(gap: u64, less_one: u64) -> (u64, usize) {
    let Some(rest) = less_one.checked_sub(ESCAPE) else { return (gap << 4 | less_one, 1) };
    // Groups of seven bits become bytes; all but the last have their high bit set.
    let groups =
        rest & 0x7f | (rest & 0x3f80) << 1 | (rest & 0x1f_c000) << 2 | (rest & 0xfe0_0000) << 3;
    let more = (rest | 1).ilog2() / 7;
    let continued = 0x80_8080 & (1u64 << more.wrapping_mul(8)).wrapping_sub(1);
    (gap << 4 | ESCAPE | (groups | continued) << 8, (more as usize).wrapping_add(2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::header::{FrameUnit, Temporality};
    use crate::histogram::HistogramParts;
    use crate::tracked_value::TrackedValue;

    /// Whether the histogram is plain. Its frame must then be that of the histogram.
    #[track_caller]
    fn check(
        buffer: &mut FrameBodyBuffer,
        grid: Exp2,
        buckets: &[(i32, u64)],
        summary: PlainSummary,
    ) -> bool {
        let mut writer = buffer.write(grid);
        if !buckets.iter().all(|&(index, count)| writer.add_bucket(index, count)) {
            return false;
        }
        let Some(body) = writer.finish(summary) else { return false };
        let parts = HistogramParts {
            zero_threshold: summary.zero_threshold,
            positive: buckets.to_vec(),
            zero: summary.zero,
            sum: TrackedValue::Exact(DoubleDouble::new(summary.sum)),
            ..HistogramParts::new(Scheme::Exp2(grid))
        };
        let histogram = Histogram::from_parts(parts).unwrap();
        let meta = SeriesMeta { unit: FrameUnit::Seconds, temporality: Temporality::Cumulative };
        let (mut found, mut expected) = (vec![7], vec![7]);
        body.put(meta, &mut found);
        frame::encode(&histogram, meta, &mut expected);
        assert_eq!(found, expected);
        assert_eq!(body.count(), histogram.count());
        assert_eq!(body.bucket_count(), histogram.positive().indexes().len() as u64);
        assert_eq!(body.to_histogram(), histogram);
        true
    }

    fn summary(buckets: &[(i32, u64)], sum: f64) -> PlainSummary {
        let count = buckets.iter().map(|bucket| bucket.1).sum();
        PlainSummary { count, sum, zero: 0, zero_threshold: 0.0 }
    }

    #[test]
    fn frames_of_plain_histograms_need_no_histogram() {
        let (grid, mut buffer) = (Exp2::DEFAULT, FrameBodyBuffer::default());
        // Counts and gaps below, at and above what their codes hold.
        let counts =
            [1, 14, 15, 16, 17, 142, 143, 144, 1 << 40, 16_398, 16_399, 16_400, 1 << 28, 5];
        let gaps = [0, 1, 13, 14, 15, 16, 300];
        let indexes = gaps.iter().cycle().scan(-200, |index, gap| {
            *index += gap + 1;
            Some(*index)
        });
        let buckets: Vec<(i32, u64)> = indexes.zip(counts).collect();
        let middle = |index: i32| {
            let (lower, upper) = grid.edges(index).unwrap();
            lower.midpoint(upper)
        };
        let sum = buckets.iter().map(|&(index, count)| middle(index) * count as f64).sum();
        let whole = summary(&buckets, sum);
        assert!(check(&mut buffer, grid, &buckets, whole));
        let (zero, count) = (3, whole.count + 3);
        assert!(check(&mut buffer, grid, &buckets, PlainSummary { zero, count, ..whole }));
        let zero_threshold = 1e-3;
        assert!(check(
            &mut buffer,
            grid,
            &buckets,
            PlainSummary { zero, count, zero_threshold, ..whole }
        ));
    }

    #[test]
    fn other_histograms_are_refused() {
        let (grid, mut buffer) = (Exp2::DEFAULT, FrameBodyBuffer::default());
        let buckets = [(0, 5), (1, 60), (40, 7)];
        let sum = 5.0 * 1.01 + 60.0 * 1.03 + 7.0 * 2.4;
        let usual = summary(&buckets, sum);
        assert!(check(&mut buffer, grid, &buckets, usual));
        for other in [
            PlainSummary { count: 17, ..usual },
            PlainSummary { zero: 1, ..usual },
            PlainSummary { zero: u64::MAX, count: u64::MAX, ..usual },
            PlainSummary { sum: 1.0, ..usual },
            PlainSummary { sum: 1e9, ..usual },
            PlainSummary { sum: f64::NAN, ..usual },
            PlainSummary { sum: f64::INFINITY, ..usual },
            PlainSummary { zero_threshold: -1.0, ..usual },
            PlainSummary { zero_threshold: f64::NAN, ..usual },
            PlainSummary { zero_threshold: 2.0, ..usual },
        ] {
            assert!(!check(&mut buffer, grid, &buckets, other), "{other:?}");
        }
        for (buckets, sum) in [
            (&[(1, 5), (0, 6)][..], 11.0),
            (&[(1, 5), (1, 6)], 11.5),
            (&[(1, 0)], 0.0),
            (&[], 0.0),
            (&[(grid.end_index(), 1)], f64::MAX),
            (&[(grid.end_index() - 1, 1), (grid.end_index(), 1)], f64::MAX),
            (&[(i32::MIN, 1)], 0.0),
            (&[(i32::MAX, 1)], f64::MAX),
        ] {
            let summary = summary(buckets, sum);
            assert!(!check(&mut buffer, grid, buckets, summary), "{buckets:?}");
        }
    }

    #[test]
    fn the_buffer_grows_and_never_shrinks() {
        let mut buffer = FrameBodyBuffer::default();
        let mut writer = buffer.write(Exp2::new(8).unwrap());
        let mut length = 0;
        for index in 0..10_000 {
            // A short code and a long one in turn.
            let beyond = u64::from(index % 2 == 0);
            assert!(writer.add_bucket(index, ESCAPE + (1 << SHORT_BITS) + beyond));
            let bytes = writer.buffer.buckets.len();
            let limit = (2 * (writer.used + LONG_BYTES)).max(BYTES_MIN);
            assert!((length..=limit).contains(&bytes), "{bytes} bytes");
            length = bytes;
        }
    }

    #[test]
    fn consecutive_buckets_end_with_the_grid() {
        let grid = Exp2::new(0).unwrap();
        let mut buffer = FrameBodyBuffer::default();
        let mut writer = buffer.write(grid);
        let end = grid.end_index();
        assert!((0..end).all(|index| writer.add_bucket(index, 1)));
        assert!(!writer.add_bucket(end, 1));
    }

    proptest! {
        #[test]
        fn frame_is_that_of_the_histogram(
            scale in -3i32..9,
            buckets in prop::collection::btree_map(
                prop_oneof![-30i32..300, -30i32..30],
                prop_oneof![1u64..40, 1u64..100_000, 1u64..1 << 40],
                0..60,
            ),
            zero in 0u64..3,
            zero_threshold in prop_oneof![Just(0.0), Just(1e-9), 0.0f64..2.0],
            part in -0.2f64..1.2,
        ) {
            let grid = Exp2::new(scale).unwrap();
            let is_in_grid = |bucket: &(i32, u64)| grid.edges(bucket.0).is_some();
            let buckets: Vec<(i32, u64)> = buckets.into_iter().filter(is_in_grid).collect();
            let sum = buckets.iter().map(|&(index, count)| {
                let (lower, upper) = grid.edges(index).unwrap();
                (lower + (upper - lower) * part) * count as f64
            });
            let usual = summary(&buckets, sum.sum());
            let summary = PlainSummary { zero, count: usual.count + zero, zero_threshold, ..usual };
            // The buffer has a histogram that was refused on another grid.
            let mut buffer = FrameBodyBuffer::default();
            let mut refused = buffer.write(Exp2::new(5 - scale).unwrap());
            assert!(refused.add_bucket(0, 1 << 40) && refused.add_bucket(1, 3));
            assert!(refused.finish(usual).is_none() || usual.count == (1 << 40) + 3);
            check(&mut buffer, grid, &buckets, summary);
        }
    }
}
