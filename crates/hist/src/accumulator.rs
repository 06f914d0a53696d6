//! Histogram accumulator, the inner loop of every query.
//!
//! Counts are in a dense window of the grid, so that adding a bucket is one addition. Frames are
//! added directly from their bytes. A window never spans more than [`WINDOW_MAX`] buckets: counts
//! outside it go to an ordinary histogram, which is slower but bounded.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::codec::bytes::ByteReader;
use crate::codec::frame::{
    self, BucketSink, FrameFields, FrameUnit, PackedBytes8, SeriesMeta, for_each_bucket,
};
use crate::codec::header::{CUMULATIVE, FRAME_MAGIC, FRAME_VERSION, put_header};
use crate::error::{DecodeError, MergeError};
use crate::histogram::{Histogram, HistogramParts};
use crate::scheme::{BucketPosition, Scheme};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Maximum number of buckets of a dense window: 8 MiB.
const WINDOW_MAX: i64 = 1 << 20;
/// Extra buckets allocated when a window grows.
const WINDOW_MARGIN: i64 = PackedBytes8::SPAN as i64;

/// Sum of histograms of one or many series, whose schemes nest.
#[derive(Clone, Debug)]
pub struct Accumulator {
    /// Everything except the dense counts of positive buckets.
    sparse: Histogram,
    /// First index of the window.
    base: i64,
    counts: Vec<u64>,
    /// Number of values in `counts`.
    dense_count: u64,
    zero: u64,
    summary: SummaryValues,
    /// Header of frames that can be added directly from their bytes.
    header: Vec<u8>,
}

/// Exact sum, minimum and maximum of the dense counts.
#[derive(Clone, Copy, Debug)]
struct SummaryValues {
    sum: DoubleDouble,
    min: f64,
    max: f64,
    /// Whether all histograms have minimum and maximum (true) or none has them (false); `None`
    /// before the first histogram.
    extremes: Option<bool>,
    /// Whether all histograms have a sum (true) or none has one (false); `None` before the first.
    has_sum: Option<bool>,
}

impl SummaryValues {
    const NONE: SummaryValues = SummaryValues {
        sum: DoubleDouble::ZERO,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        extremes: None,
        has_sum: None,
    };

    /// Merges two summaries. `None` if the buckets are needed to decide.
    #[inline]
    fn with(
        self,
        sum: TrackedValue<DoubleDouble>,
        min: TrackedValue<f64>,
        max: TrackedValue<f64>,
    ) -> Option<SummaryValues> {
        let mut both = self;
        match (sum, min, max) {
            (_, TrackedValue::Exact(min), TrackedValue::Exact(max))
                if self.extremes != Some(false) =>
            {
                (both.min, both.max) = (both.min.min(min), both.max.max(max));
                both.extremes = Some(true);
            }
            (_, TrackedValue::Absent, TrackedValue::Absent) if self.extremes != Some(true) => {
                both.extremes = Some(false)
            }
            _ => return None,
        }
        match sum {
            TrackedValue::Exact(sum) if self.has_sum != Some(false) => {
                both.sum = both.sum.plus(sum);
                both.has_sum = Some(true);
                if !both.sum.value().is_finite() {
                    return None;
                }
            }
            TrackedValue::Absent if self.has_sum != Some(true) => both.has_sum = Some(false),
            _ => return None,
        }
        Some(both)
    }
}

/// Upper bound of what runs of rows add to the window.
pub(crate) struct PendingAdds<'a> {
    pub(crate) scheme: &'a Scheme,
    pub(crate) zero_threshold: f64,
    /// First and last index of all rows.
    pub(crate) index_range: Option<(i32, i32)>,
    pub(crate) values: u64,
    /// Sum of the absolute sums of the rows.
    pub(crate) sum: f64,
}

impl Accumulator {
    /// Empty accumulator. Its grid becomes coarser when coarser histograms are added.
    pub fn new(scheme: Scheme) -> Accumulator {
        let mut header = Vec::new();
        put_header(&mut header, (FRAME_MAGIC, FRAME_VERSION), SeriesMeta::default(), &scheme);
        Accumulator {
            sparse: Histogram::new(scheme),
            base: 0,
            counts: Vec::new(),
            dense_count: 0,
            zero: 0,
            summary: SummaryValues::NONE,
            header,
        }
    }

    /// Number of values added, without NaN.
    pub fn count(&self) -> u64 {
        self.sparse.count().wrapping_add(self.dense_count).wrapping_add(self.zero)
    }

    /// Grid of the accumulator.
    pub(crate) fn scheme(&self) -> &Scheme {
        self.sparse.scheme()
    }

    /// Whether `more` further values, NaN included, fit the 64-bit total.
    pub(crate) fn can_hold(&self, more: u64) -> bool {
        let count = self.sparse.nan_count().checked_add(self.count());
        count.is_some_and(|count| count.checked_add(more).is_some())
    }

    /// Whether `coming` can be added to the dense counts. If so, the window is grown for it.
    pub(crate) fn reserve(&mut self, coming: &PendingAdds<'_>) -> bool {
        self.sparse.scheme() == coming.scheme
            && self.sparse.zero_threshold() == coming.zero_threshold
            // `u64::MAX` stands for a total that overflows.
            && coming.values < u64::MAX
            && self.can_hold(coming.values)
            && self.summary.extremes != Some(false)
            && self.summary.has_sum != Some(false)
            // With margin for intermediate rounding.
            && self.summary.sum.value().abs() + coming.sum < f64::MAX / 2.0
            && coming.index_range.is_none_or(|(first, last)| self.grow(first, last))
    }

    /// Adds a run of rows after [`Self::reserve`] returned true. `add` receives the counts from the
    /// first outermost bucket on, adds to them, and returns the number of values.
    #[expect(
        clippy::expect_used,
        reason = "reserve checked that there is a sum, extremes, and space for them"
    )]
    pub(crate) fn add_run(
        &mut self,
        ends: Option<(i32, i32)>,
        add: impl FnOnce(&mut [u64]) -> u64,
        zero: u64,
        (sum, min, max): (TrackedValue<DoubleDouble>, TrackedValue<f64>, TrackedValue<f64>),
    ) {
        let at = ends.map_or(0, |(first, _)| i64::from(first).wrapping_sub(self.base) as usize);
        self.dense_count = self.dense_count.wrapping_add(add(&mut self.counts[at..]));
        self.zero = self.zero.wrapping_add(zero);
        self.summary = self.summary.with(sum, min, max).expect("BUG: room was made");
    }

    /// Adds all values of `histogram`. Fails without any change where [`Histogram::merge`] fails.
    pub fn add(&mut self, histogram: &Histogram) -> Result<(), MergeError> {
        let plain = histogram.count()
            == histogram.positive().total().wrapping_add(histogram.zero_count())
            && histogram.nan_count() == 0
            && histogram.thresholds().is_empty()
            && histogram.zero_threshold() == self.sparse.zero_threshold()
            && histogram.scheme() == self.sparse.scheme()
            && !histogram.is_empty();
        let sides = match plain {
            true => self.summary.with(
                histogram.tracked_sum(),
                histogram.tracked_min(),
                histogram.tracked_max(),
            ),
            false => None,
        };
        let Some(sides) = sides else { return self.add_by_merge(histogram) };
        if !self.can_hold(histogram.count()) {
            return Err(MergeError::CountOverflow);
        }
        let indexes = histogram.positive().indexes();
        if let (Some(&first), Some(&last)) = (indexes.first(), indexes.last()) {
            if !self.grow(first, last) {
                return self.add_by_merge(histogram);
            }
            for (&index, &count) in indexes.iter().zip(histogram.positive().counts()) {
                let at = i64::from(index).wrapping_sub(self.base) as usize;
                self.counts[at] = self.counts[at].wrapping_add(count);
            }
        }
        self.dense_count =
            self.dense_count.wrapping_add(histogram.count().wrapping_sub(histogram.zero_count()));
        self.zero = self.zero.wrapping_add(histogram.zero_count());
        self.summary = sides;
        Ok(())
    }

    /// Adds a frame of [`frame::encode`], usually without decoding it first. The caller must check
    /// unit and temporality. A damaged frame is rejected without any change.
    pub fn add_frame(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        match self.try_add_frame(bytes) {
            Some(()) => Ok(()),
            None => {
                let (histogram, _) = frame::decode(bytes)?;
                Ok(self.add_by_merge(&histogram)?)
            }
        }
    }

    /// Adds a plain frame of the same scheme. Returns `None` without any change if the frame has
    /// other fields.
    fn try_add_frame(&mut self, bytes: &[u8]) -> Option<()> {
        let (head, body) = bytes.split_at_checked(self.header.len())?;
        // Kind and scheme must be equal. The caller checks the unit (byte 3) and the cumulative
        // bit.
        let same = head[..2] == self.header[..2]
            && head[2] & !CUMULATIVE == self.header[2]
            && usize::from(head[3]) < FrameUnit::ALL.len()
            && head[4..] == self.header[4..];
        if !same {
            return None;
        }
        let mut reader = ByteReader::new(body);
        let fields = FrameFields::read(&mut reader).ok()?;
        let plain = !fields.has_negative
            && fields.overflow | fields.underflow | fields.nan == 0
            && fields.thresholds.is_empty()
            && fields.zero_threshold == self.sparse.zero_threshold();
        if !plain {
            return None;
        }
        let sides = self.summary.with(fields.sum, fields.min, fields.max)?;
        let buckets = reader.clone();

        let mut window = WindowAdd {
            counts: &mut self.counts,
            base: self.base,
            total: fields.zero,
            is_in_window: true,
        };
        let read = for_each_bucket(&mut reader, &mut window);
        let WindowAdd { total, is_in_window: all_inside, .. } = window;
        let added = all_inside
            && reader.is_empty()
            && total > 0
            && total < u64::MAX
            && read.is_ok_and(|ends| {
                self.are_plausible_extremes(fields.min, fields.max, ends, fields.zero > 0)
            });
        if !added || !self.can_hold(total) {
            return self.undo_frame(buckets, body);
        }
        self.dense_count = self.dense_count.wrapping_add(total.wrapping_sub(fields.zero));
        self.zero = self.zero.wrapping_add(fields.zero);
        self.summary = sides;
        Some(())
    }

    /// Whether the extremes, where given, lie in the outermost buckets.
    #[inline]
    fn are_plausible_extremes(
        &self,
        min: TrackedValue<f64>,
        max: TrackedValue<f64>,
        ends: Option<(i64, i64)>,
        zero: bool,
    ) -> bool {
        let (Some(min), Some(max)) = (min.exact(), max.exact()) else { return true };
        let place_of = |value| self.sparse.scheme().position(value, self.sparse.zero_threshold());
        // All counted indexes lie in the window, and therefore fit 32 bits.
        let (lowest, highest) = match ends {
            None => (BucketPosition::Zero, BucketPosition::Zero),
            Some((_, last)) if zero => {
                (BucketPosition::Zero, BucketPosition::Positive(last as i32))
            }
            Some((first, last)) => {
                (BucketPosition::Positive(first as i32), BucketPosition::Positive(last as i32))
            }
        };
        place_of(min) == lowest && place_of(max) == highest && min <= max
    }

    /// Undoes the additions of a frame that turned out not to be plain, and retries with a wider
    /// window if the window was the reason.
    #[cold]
    fn undo_frame(&mut self, mut buckets: ByteReader<'_>, body: &[u8]) -> Option<()> {
        let base = self.base;
        let counts = self.counts.as_mut_slice();
        let ends = for_each_bucket(&mut buckets, &mut WindowSubtract { counts, base });
        let (first, last) = ends.ok()??;
        let (first, last) = (i32::try_from(first).ok()?, i32::try_from(last).ok()?);
        let was_wide = self.window_contains(first) && self.window_contains(last);
        if !buckets.is_empty() || was_wide || !self.grow(first, last) {
            return None;
        }
        let frame: Vec<u8> = self.header.iter().chain(body).copied().collect();
        self.try_add_frame(&frame)
    }

    fn add_by_merge(&mut self, histogram: &Histogram) -> Result<(), MergeError> {
        let mut merged = self.to_histogram();
        merged.merge(histogram)?;
        let header_of = |scheme: &Scheme| Accumulator::new(scheme.clone()).header;
        if merged.scheme() != self.sparse.scheme() {
            self.header = header_of(merged.scheme());
        }
        self.counts.clear();
        (self.base, self.dense_count, self.zero, self.summary) = (0, 0, 0, SummaryValues::NONE);
        self.sparse = merged;
        Ok(())
    }

    /// The sum of all histograms added.
    #[expect(
        clippy::expect_used,
        reason = "the window lies in the grid (grow), and no more was added than there is room for"
    )]
    pub fn to_histogram(&self) -> Histogram {
        let mut parts = HistogramParts::new(self.sparse.scheme().clone());
        parts.zero_threshold = self.sparse.zero_threshold();
        parts.zero = self.zero;
        // Whether a bucket is in use is unpredictable: an unconditional store costs less than a
        // branch.
        let mut used = 0usize;
        parts.positive = vec![(0, 0); self.counts.len()];
        for (at, &count) in self.counts.iter().enumerate() {
            parts.positive[used] = (self.base.wrapping_add(at as i64) as i32, count);
            used = used.wrapping_add(usize::from(count > 0));
        }
        parts.positive.truncate(used);
        if self.summary.has_sum != Some(false) {
            parts.sum = TrackedValue::Exact(self.summary.sum);
        }
        if self.summary.extremes != Some(false) {
            (parts.min, parts.max) =
                (TrackedValue::Exact(self.summary.min), TrackedValue::Exact(self.summary.max));
        }
        let dense =
            Histogram::from_recorded_parts(parts).expect("BUG: the window lies in the grid");
        if self.sparse.count().wrapping_add(self.sparse.nan_count()) == 0 && !dense.is_empty() {
            return dense;
        }
        let mut total = self.sparse.clone();
        total.merge(&dense).expect("BUG: the count was checked when it was added");
        total
    }

    fn window_contains(&self, index: i32) -> bool {
        (0..self.counts.len() as i64).contains(&i64::from(index).wrapping_sub(self.base))
    }

    /// Grows the window to contain two indexes, if they are in the grid and the window stays within
    /// its limit.
    fn grow(&mut self, first: i32, last: i32) -> bool {
        if self.window_contains(first) && self.window_contains(last) {
            return true;
        }
        let in_grid =
            |at: i64| i32::try_from(at).is_ok_and(|at| self.sparse.scheme().edges(at).is_some());
        let (mut first, mut end) = (i64::from(first), i64::from(last).wrapping_add(1));
        if !(in_grid(first) && in_grid(end.wrapping_sub(1))) {
            return false;
        }
        if !self.counts.is_empty() {
            (first, end) =
                (first.min(self.base), end.max(self.base.wrapping_add(self.counts.len() as i64)));
        }
        if end.wrapping_sub(first) > WINDOW_MAX {
            return false;
        }
        if in_grid(first.wrapping_sub(WINDOW_MARGIN)) {
            first = first.wrapping_sub(WINDOW_MARGIN);
        }
        if in_grid(end.wrapping_add(WINDOW_MARGIN)) {
            end = end.wrapping_add(WINDOW_MARGIN);
        }
        let mut counts = vec![0; end.wrapping_sub(first) as usize];
        let at = if self.counts.is_empty() { 0 } else { self.base.wrapping_sub(first) as usize };
        counts[at..at.wrapping_add(self.counts.len())].copy_from_slice(&self.counts);
        (self.base, self.counts) = (first, counts);
        true
    }
}

/// Adds bucket counts to the window.
struct WindowAdd<'a> {
    counts: &'a mut [u64],
    base: i64,
    /// Number of values so far; a lower bound if it is `u64::MAX`.
    total: u64,
    is_in_window: bool,
}

impl BucketSink for WindowAdd<'_> {
    #[inline]
    fn add_bucket(&mut self, index: i64, count: u64) {
        match self.counts.get_mut(index.wrapping_sub(self.base) as usize) {
            Some(cell) => *cell = cell.wrapping_add(count),
            None => self.is_in_window = false,
        }
        self.total = self.total.saturating_add(count);
    }

    #[inline]
    fn add_packed(&mut self, buckets: PackedBytes8) {
        let at = buckets.base_index.wrapping_sub(self.base) as usize;
        let near = self
            .counts
            .get_mut(at..)
            .and_then(|counts| counts.first_chunk_mut::<{ PackedBytes8::SPAN }>());
        let Some(near) = near else {
            return (0..8).for_each(|i| self.add_bucket(buckets.index(i), buckets.count(i)));
        };
        for i in 0..8 {
            let cell = &mut near[usize::from(buckets.offset(i)) % PackedBytes8::SPAN];
            *cell = cell.wrapping_add(buckets.count(i));
        }
        self.total = self.total.saturating_add(buckets.total());
    }
}

/// Subtracts bucket counts from the window (undo of `WindowAdd`).
struct WindowSubtract<'a> {
    counts: &'a mut [u64],
    base: i64,
}

impl BucketSink for WindowSubtract<'_> {
    fn add_bucket(&mut self, index: i64, count: u64) {
        if let Some(cell) = self.counts.get_mut(index.wrapping_sub(self.base) as usize) {
            *cell = cell.wrapping_sub(count);
        }
    }
}
