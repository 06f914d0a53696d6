//! Shard of one thread, and its snapshots.
//!
//! Plain atomic loads and stores by one writer at a time; readers only copy. The order within a
//! record is the contract: `started`, then extremes, sum and thresholds, then the bucket, then
//! `finished`.

use std::cell::OnceCell;
use std::sync::Arc;

use crate::histogram::{Histogram, HistogramParts, Threshold};
use crate::scheme::{Integers, Scheme};
use crate::sync::{AtomicBool, AtomicU64, OnceLock, Ordering, fence};
use crate::tracked_value::{DoubleDouble, TrackedValue};

/// Number of buckets allocated together: one octave at the default scale, 256 bytes.
const PAGE_BUCKETS: usize = if cfg!(loom) { 2 } else { 32 };

/// Number of attempts to copy a shard between two records. A copy takes about a microsecond, so at
/// 100,000 records per second and thread nearly every first attempt succeeds.
const COPY_ATTEMPTS: usize = if cfg!(loom) { 2 } else { 16 };

/// Cumulative counts written by one thread at a time. Aligned so that two shards share neither a
/// cache line nor a pair of lines that is fetched together.
#[repr(align(128))]
pub(super) struct Shard {
    is_leased: AtomicBool,
    started: AtomicU64,
    finished: AtomicU64,
    zero: AtomicU64,
    sum_low: AtomicU64,
    sum_high: AtomicU64,
    /// Incremented by a reader that ends an interval; the next record then starts new extremes.
    interval: AtomicU64,
    extremes: Extremes,
    /// Number of values above each limit.
    above: Box<[AtomicU64]>,
    pages: Box<[OnceLock<CountPage>]>,
}

type CountPage = Arc<PageCounts>;

/// Aligned like shards: pages of two threads must not share a cache line either.
#[repr(align(128))]
struct PageCounts([AtomicU64; PAGE_BUCKETS]);

/// Writer's cache of allocated pages. A lookup here costs a null check; through the shard's
/// `OnceLock` it would cost an additional acquire load, half of the cost of a record.
pub(super) struct KnownPages(Box<[OnceCell<CountPage>]>);

/// Extremes since the first record in the current interval, and before it.
struct Extremes {
    /// The interval that the writer has seen, and the one before.
    interval: AtomicU64,
    interval_previous: AtomicU64,
    /// Number of finished records when the writer saw the interval.
    records_at_start: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    min_before: AtomicU64,
    max_before: AtomicU64,
    /// Extremes of the previous interval alone, frozen.
    min_previous: AtomicU64,
    max_previous: AtomicU64,
}

impl Shard {
    pub(super) fn new<const SCALE: u32>(limits: usize) -> Shard {
        let zeros = |n: usize| (0..n).map(|_| AtomicU64::new(0)).collect();
        let pages = Integers::<SCALE>::POSITIONS.div_ceil(PAGE_BUCKETS);
        Shard {
            is_leased: AtomicBool::new(true),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            zero: AtomicU64::new(0),
            sum_low: AtomicU64::new(0),
            sum_high: AtomicU64::new(0),
            interval: AtomicU64::new(0),
            extremes: Extremes {
                interval: AtomicU64::new(0),
                interval_previous: AtomicU64::new(0),
                records_at_start: AtomicU64::new(0),
                min: AtomicU64::new(u64::MAX),
                max: AtomicU64::new(0),
                min_before: AtomicU64::new(u64::MAX),
                max_before: AtomicU64::new(0),
                min_previous: AtomicU64::new(u64::MAX),
                max_previous: AtomicU64::new(0),
            },
            above: zeros(limits),
            pages: (0..if cfg!(loom) { 4.min(pages) } else { pages })
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// Claims the shard as its only writer; fails if it has one. Pairs with [`Self::release`], so
    /// the new writer sees all writes of the previous one.
    pub(super) fn claim(&self) -> bool {
        self.is_leased.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn release(&self) {
        self.is_leased.store(false, Ordering::Release);
    }

    /// Records one value. Only the current writer may call this.
    #[inline]
    pub(super) fn record<const SCALE: u32>(&self, known: &KnownPages, limits: &[u64], value: u64) {
        let ticket = self.started.load(Ordering::Relaxed);
        let next_ticket = ticket.wrapping_add(1);
        self.started.store(next_ticket, Ordering::Relaxed);
        // Pairs with the acquire fence in `snapshot_once`: a reader that sees a store below sees
        // the increased `started`.
        fence(Ordering::Release);
        let extremes = &self.extremes;
        let interval = self.interval.load(Ordering::Relaxed);
        if interval != extremes.interval.load(Ordering::Relaxed) {
            extremes.begin(interval, ticket);
        }
        if value < extremes.min.load(Ordering::Relaxed) {
            extremes.min.store(value, Ordering::Relaxed);
        }
        if value > extremes.max.load(Ordering::Relaxed) {
            extremes.max.store(value, Ordering::Relaxed);
        }
        let (sum, carry) = self.sum_low.load(Ordering::Relaxed).overflowing_add(value);
        self.sum_low.store(sum, Ordering::Relaxed);
        if carry {
            add(&self.sum_high, 1);
        }
        if !limits.is_empty() {
            self.count_above(limits, value);
        }
        add(self.counter_for::<SCALE>(known, value), 1);
        self.finished.store(next_ticket, Ordering::Release);
    }

    fn count_above(&self, limits: &[u64], value: u64) {
        for (limit, above) in limits.iter().zip(&self.above) {
            if value > *limit {
                add(above, 1);
            }
        }
    }

    #[inline]
    fn counter_for<'a, const SCALE: u32>(
        &'a self,
        known: &'a KnownPages,
        value: u64,
    ) -> &'a AtomicU64 {
        if value == 0 {
            return &self.zero;
        }
        let position = Integers::<SCALE>::position(value);
        let number = position / PAGE_BUCKETS;
        let page = match known.0[number].get() {
            Some(page) => page,
            None => self.page_or_insert(known, number),
        };
        &page.0[position % PAGE_BUCKETS]
    }

    #[cold]
    fn page_or_insert<'a>(&self, known: &'a KnownPages, number: usize) -> &'a CountPage {
        known.0[number].get_or_init(|| self.pages[number].get_or_init(new_page).clone())
    }

    /// A cache for a new writer, initially empty.
    pub(super) fn known_pages(&self) -> KnownPages {
        KnownPages(self.pages.iter().map(|_| OnceCell::new()).collect())
    }

    /// Copy of the current counts.
    pub(super) fn snapshot(&self) -> ShardSnapshot {
        let mut copied = self.snapshot_once();
        for _ in 1..COPY_ATTEMPTS {
            if copied.is_consistent {
                break;
            }
            copied = self.snapshot_once();
        }
        copied
    }

    fn snapshot_once(&self) -> ShardSnapshot {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let tickets = self.finished.load(Ordering::Acquire);
        let extremes = &self.extremes;
        let mut copied = ShardSnapshot {
            is_consistent: false,
            records: tickets,
            counts: Vec::new(),
            zero: get(&self.zero),
            sum: 0,
            above: Vec::new(),
            interval: get(&extremes.interval),
            interval_previous: get(&extremes.interval_previous),
            records_at_start: get(&extremes.records_at_start),
            min: get(&extremes.min),
            max: get(&extremes.max),
            min_before: get(&extremes.min_before),
            max_before: get(&extremes.max_before),
            min_previous: get(&extremes.min_previous),
            max_previous: get(&extremes.max_previous),
        };
        for (number, page) in self.pages.iter().enumerate() {
            let Some(page) = page.get() else { continue };
            for (position, count) in page.0.iter().enumerate() {
                let count = get(count);
                if count > 0 {
                    copied
                        .counts
                        .push((number.wrapping_mul(PAGE_BUCKETS).wrapping_add(position), count));
                }
            }
        }
        copied.sum = u128::from(get(&self.sum_high)) << 64 | u128::from(get(&self.sum_low));
        copied.above = self.above.iter().map(get).collect();
        // Pairs with the release fence in `record`.
        fence(Ordering::Acquire);
        copied.is_consistent = self.started.load(Ordering::Relaxed) == tickets;
        copied
    }

    /// Signals the writer that an interval has ended.
    pub(super) fn end_interval(&self) {
        // Only the reader that holds the interval lock writes this.
        add(&self.interval, 1);
    }
}

impl Extremes {
    fn begin(&self, interval: u64, ticket: u64) {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let set = |number: &AtomicU64, value| number.store(value, Ordering::Relaxed);
        let (min, max) = (get(&self.min), get(&self.max));
        set(&self.min_previous, min);
        set(&self.max_previous, max);
        set(&self.min_before, get(&self.min_before).min(min));
        set(&self.max_before, get(&self.max_before).max(max));
        set(&self.min, u64::MAX);
        set(&self.max, 0);
        set(&self.records_at_start, ticket);
        set(&self.interval_previous, get(&self.interval));
        set(&self.interval, interval);
    }
}

/// Adds to a number that only one thread writes: no locked instruction.
#[inline]
fn add(number: &AtomicU64, n: u64) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cold]
fn new_page() -> CountPage {
    Arc::new(PageCounts(std::array::from_fn(|_| AtomicU64::new(0))))
}

/// Copy of a shard.
#[derive(Clone, Default)]
pub(super) struct ShardSnapshot {
    /// Whether no record was in progress during the copy.
    is_consistent: bool,
    /// Number of records finished before the copy started.
    records: u64,
    /// Position and count, ascending, without zeros.
    counts: Vec<(usize, u64)>,
    zero: u64,
    sum: u128,
    above: Vec<u64>,
    interval: u64,
    interval_previous: u64,
    records_at_start: u64,
    min: u64,
    max: u64,
    min_before: u64,
    max_before: u64,
    min_previous: u64,
    max_previous: u64,
}

impl ShardSnapshot {
    /// All values since the shard was created.
    pub(super) fn to_histogram<const SCALE: u32>(&self, limits: &[u64]) -> Histogram {
        let mut parts = self.parts::<SCALE>(limits);
        parts.sum = TrackedValue::Exact(DoubleDouble::from_integer(self.sum));
        parts.min = TrackedValue::Exact(self.min_before.min(self.min) as f64);
        parts.max = TrackedValue::Exact(self.max_before.max(self.max) as f64);
        finish(parts, self.is_consistent)
    }

    /// Values recorded after `start`, an earlier copy of the same shard.
    pub(super) fn since<const SCALE: u32>(
        &self,
        start: &ShardSnapshot,
        limits: &[u64],
    ) -> Histogram {
        let mut parts = self.parts::<SCALE>(limits);
        let mut earlier = start.counts.iter().peekable();
        for (index, count) in &mut parts.positive {
            let same =
                |&&(position, _): &&(usize, u64)| Integers::<SCALE>::index(position) == *index;
            let before = earlier.next_if(same).map_or(0, |&(_, count)| count);
            *count = count.saturating_sub(before);
        }
        parts.positive.retain(|&(_, count)| count > 0);
        parts.zero = parts.zero.saturating_sub(start.zero);
        // An inconsistent copy may hold one word of the sum from before a carry and one from after
        // it.
        let sum = self.sum.checked_sub(start.sum);
        parts.sum = sum.map_or(TrackedValue::Absent, |sum| {
            TrackedValue::Exact(DoubleDouble::from_integer(sum))
        });
        for (threshold, before) in parts.thresholds.iter_mut().zip(&start.above) {
            threshold.above = threshold.above.saturating_sub(*before);
        }
        let consistent = self.is_consistent && start.is_consistent;
        (parts.min, parts.max) = self.extremes_since::<SCALE>(start, &parts);
        finish(parts, consistent)
    }

    fn parts<const SCALE: u32>(&self, limits: &[u64]) -> HistogramParts {
        let mut parts = HistogramParts::new(Scheme::Exp2(Integers::<SCALE>::grid()));
        parts.positive = self
            .counts
            .iter()
            .map(|&(position, count)| (Integers::<SCALE>::index(position), count))
            .collect();
        parts.zero = self.zero;
        parts.thresholds = limits
            .iter()
            .zip(&self.above)
            .map(|(&limit, &above)| Threshold { value: limit as f64, above })
            .collect();
        parts
    }

    /// The extremes after `start`, as far as the shard knows them.
    ///
    /// The writer starts new extremes at the first record that sees the end of the interval. A few
    /// records may fall between the reader's copy and that record; they update the previous
    /// extremes. If they changed those, they are known; if not, their bucket decides whether one of
    /// them can be the extreme.
    fn extremes_since<const SCALE: u32>(
        &self,
        start: &ShardSnapshot,
        parts: &HistogramParts,
    ) -> (TrackedValue<f64>, TrackedValue<f64>) {
        let is_new = self.interval != start.interval;
        let (mut min, mut max) = match is_new {
            true => (IntervalExtreme::Exact(self.min), IntervalExtreme::Exact(self.max)),
            false => (IntervalExtreme::Unknown, IntervalExtreme::Unknown),
        };
        if !is_new || self.records_at_start > start.records {
            let (min_late, max_late) =
                if is_new { (self.min_previous, self.max_previous) } else { (self.min, self.max) };
            // The previous extremes are those in `start`, unless the writer missed an interval in
            // between.
            let known = !is_new || self.interval_previous == start.interval;
            min = min.with_late(min_late, known && min_late < start.min, u64::min);
            max = max.with_late(max_late, known && max_late > start.max, u64::max);
        }
        let alone = |position: Option<&(i32, u64)>, value: u64| {
            position.is_some_and(|&(index, count)| {
                count == 1
                    && value > 0
                    && Integers::<SCALE>::index(Integers::<SCALE>::position(value)) == index
            })
        };
        let lowest = parts.positive.first().filter(|_| parts.zero == 0);
        (
            min.into_tracked(|value| alone(lowest, value) || parts.zero > 0 && value == 0),
            max.into_tracked(|value| alone(parts.positive.last(), value)),
        )
    }
}

/// Minimum or maximum of an interval, exact or possible.
enum IntervalExtreme {
    /// Exact.
    Exact(u64),
    /// Exact, unless a late record in the same bucket was more extreme.
    Possible(u64),
    Unknown,
}

impl IntervalExtreme {
    /// Combines with late records, whose extreme is `late` if they moved the previous extremes.
    fn with_late(self, late: u64, moved: bool, more: fn(u64, u64) -> u64) -> IntervalExtreme {
        match (self, moved) {
            (IntervalExtreme::Unknown, true) => IntervalExtreme::Exact(late),
            (IntervalExtreme::Exact(value) | IntervalExtreme::Possible(value), true) => {
                IntervalExtreme::Exact(more(value, late))
            }
            (IntervalExtreme::Exact(value) | IntervalExtreme::Possible(value), false) => {
                IntervalExtreme::Possible(value)
            }
            (IntervalExtreme::Unknown, false) => IntervalExtreme::Unknown,
        }
    }

    fn into_tracked(self, is_alone: impl Fn(u64) -> bool) -> TrackedValue<f64> {
        match self {
            IntervalExtreme::Exact(value) => TrackedValue::Exact(value as f64),
            IntervalExtreme::Possible(value) if is_alone(value) => {
                TrackedValue::Exact(value as f64)
            }
            IntervalExtreme::Possible(value) => TrackedValue::Estimated(value as f64),
            IntervalExtreme::Unknown => TrackedValue::Absent,
        }
    }
}

/// A histogram of `parts`. Summary statistics of an inconsistent copy become estimates; its
/// thresholds, which must be exact, are dropped.
#[expect(clippy::expect_used, reason = "the counts of a shard lie on its grid and fit 64 bits")]
fn finish(mut parts: HistogramParts, consistent: bool) -> Histogram {
    if !consistent {
        parts.sum = parts.sum.downgrade();
        parts.min = parts.min.downgrade();
        parts.max = parts.max.downgrade();
        parts.thresholds.clear();
    }
    Histogram::from_parts(parts).expect("BUG: a shard's counts make a histogram")
}
