//! Recorder for many threads.
//!
//! Each thread counts in its own shard with plain loads and stores: no locked instruction and no
//! shared cache line, so the cost does not depend on the number of threads. Shards are cumulative
//! and never reset; a reader copies them and subtracts its previous copy. Readers and writers never
//! wait for each other. A thread that ends leaves its shard with its counts to the next new thread,
//! so no count is lost and memory is bounded by the number of threads alive at once.
//!
//! A reader that copies a shard while its thread records sees whole counts, but the sum may be one
//! record ahead. Two tickets detect this: `started` is written before each record and `finished`
//! after it, and a copy between equal tickets is consistent. If a thread records without pause, the
//! reader gives up after a bounded number of attempts: the counts of its copy are correct, and sum
//! and extremes are marked as estimated.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

#[path = "shared_recorder/shard.rs"] // also where `loom/` has taken this file in by its path
mod shard;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use self::shard::{KnownPages, Shard, ShardSnapshot};
use crate::histogram::Histogram;
use crate::recorder::sort_thresholds;
use crate::scheme::{Integers, Scheme};
use crate::sync::{AtomicUsize, OnceLock, Ordering};

/// Shards are stored in segments that double in size, so that the list grows without moving and is
/// read without a lock: 8 + 16 + … + 2^27 threads at once.
const SEGMENT_FIRST: usize = 8;
const SEGMENTS: usize = if cfg!(loom) { 1 } else { 25 };

/// Recorder of whole numbers for any number of threads. Clones share the counts.
///
/// [`Self::record`] looks up the shard of the thread; a [`ThreadRecorder`] holds it, which saves
/// about a nanosecond.
#[derive(Clone)]
pub struct SharedRecorder<const SCALE: u32 = 5> {
    shared: Arc<RecorderState>,
}

/// Recorder handle of one thread (`Send`, not `Sync`).
pub struct ThreadRecorder<const SCALE: u32 = 5> {
    lease: ShardLease,
}

/// Exclusive lease of a shard, released on drop.
struct ShardLease {
    shard: Arc<Shard>,
    known_pages: KnownPages,
    limits: Arc<[u64]>,
}

impl ShardLease {
    #[inline]
    fn record<const SCALE: u32>(&self, value: u64) {
        self.shard.record::<SCALE>(&self.known_pages, &self.limits, value);
    }
}

struct RecorderState {
    slot: RecorderSlot,
    limits: Arc<[u64]>,
    segments: [OnceLock<Segment>; SEGMENTS],
    /// Number of slots allocated for shards. The last few may still be empty.
    slots_allocated: AtomicUsize,
    /// State of each shard at the end of the last interval. Only readers take this lock.
    interval: Mutex<Vec<Option<ShardSnapshot>>>,
}

type Segment = Box<[OnceLock<Arc<Shard>>]>;

impl Default for SharedRecorder {
    fn default() -> SharedRecorder {
        SharedRecorder::new()
    }
}

impl SharedRecorder {
    /// A recorder at the default scale 5 (error at most 1.08 %).
    pub fn new() -> SharedRecorder {
        SharedRecorder::with_thresholds(&[])
    }
}

impl<const SCALE: u32> SharedRecorder<SCALE> {
    /// A recorder at another scale, `SharedRecorder::<8>::with_thresholds(&[])`, that counts
    /// exactly the values above each of `limits`. Each limit costs a comparison per record.
    pub fn with_thresholds(limits: &[u64]) -> SharedRecorder<SCALE> {
        let shared = RecorderState {
            slot: RecorderSlot::allocate(),
            limits: sort_thresholds(limits).into(),
            segments: std::array::from_fn(|_| OnceLock::new()),
            slots_allocated: AtomicUsize::new(0),
            interval: Mutex::new(Vec::new()),
        };
        SharedRecorder { shared: Arc::new(shared) }
    }

    /// Records one value.
    #[inline]
    pub fn record(&self, value: u64) {
        let slot = &self.shared.slot;
        let recorded = THREAD_SHARDS.try_with(|shards| {
            // Already borrowed if an allocator or a signal handler records during the first record
            // of a thread.
            let shards = shards.try_borrow().ok()?;
            let shard = shards.get(slot.index).and_then(Option::as_ref);
            shard
                .filter(|shard| shard.serial == slot.serial)
                .map(|shard| shard.lease.record::<SCALE>(value))
        });
        if !matches!(recorded, Ok(Some(()))) {
            self.record_unleased(value);
        }
    }

    /// First record of a thread in this recorder, or a record after its thread-local storage is
    /// destroyed.
    #[cold]
    fn record_unleased(&self, value: u64) {
        let handle = self.thread_recorder();
        handle.record(value);
        // If thread-local storage is unavailable, the lease is dropped, which frees the shard for
        // the next thread.
        let _ = THREAD_SHARDS.try_with(|shards| {
            let mut shards = shards.try_borrow_mut().ok()?;
            store_thread_shard(&mut shards, &self.shared.slot, handle.lease);
            Some(())
        });
    }

    /// Recorder for one thread.
    pub fn thread_recorder(&self) -> ThreadRecorder<SCALE> {
        let idle =
            self.shared.shards().map(|(_, shard)| shard).find(|shard| shard.claim()).cloned();
        let shard = idle.unwrap_or_else(|| {
            self.shared.add_shard(Shard::new::<SCALE>(self.shared.limits.len()))
        });
        ThreadRecorder {
            lease: ShardLease {
                known_pages: shard.known_pages(),
                shard,
                limits: self.shared.limits.clone(),
            },
        }
    }

    /// All values since the recorder was created.
    pub fn snapshot(&self) -> Histogram {
        let limits = &self.shared.limits;
        self.merge_shards(
            self.shared.shards().map(|(_, shard)| shard.snapshot().to_histogram::<SCALE>(limits)),
        )
    }

    /// The values since the last call of this function by any thread: each value is in exactly one
    /// interval.
    pub fn interval(&self) -> Histogram {
        let limits = &self.shared.limits;
        let mut starts = self.shared.interval.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.shared.shards().map(|(number, shard)| {
            let copied = shard.snapshot();
            shard.end_interval();
            if starts.len() <= number {
                starts.resize_with(number.saturating_add(1), || None);
            }
            let histogram = match &starts[number] {
                Some(start) => copied.since::<SCALE>(start, limits),
                None => copied.to_histogram::<SCALE>(limits),
            };
            starts[number] = Some(copied);
            histogram
        });
        self.merge_shards(since)
    }

    #[expect(
        clippy::expect_used,
        reason = "limits ascend; shards have one scheme and fewer than 2^64 values"
    )]
    fn merge_shards(&self, shards: impl Iterator<Item = Histogram>) -> Histogram {
        let limits: Vec<f64> = self.shared.limits.iter().map(|&limit| limit as f64).collect();
        let mut merged = Histogram::new(Scheme::Exp2(Integers::<SCALE>::grid()))
            .with_thresholds(&limits)
            .expect("BUG: limits ascend");
        for shard in shards {
            merged.merge(&shard).expect("BUG: shards have one scheme and fewer than 2^64 values");
        }
        merged
    }
}

impl<const SCALE: u32> ThreadRecorder<SCALE> {
    /// Records one value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.lease.record::<SCALE>(value);
    }
}

impl Drop for ShardLease {
    fn drop(&mut self) {
        self.shard.release();
    }
}

impl RecorderState {
    /// All shards with their numbers. Empty slots are skipped: the thread that fills one may be
    /// stopped while later shards are in use.
    fn shards(&self) -> impl Iterator<Item = (usize, &Arc<Shard>)> {
        (0..self.slots_allocated.load(Ordering::Acquire)).filter_map(|number| {
            let (segment, offset) = segment_and_offset(number);
            Some((number, self.segments.get(segment)?.get()?[offset].get()?))
        })
    }

    fn add_shard(&self, shard: Shard) -> Arc<Shard> {
        let number = self.slots_allocated.fetch_add(1, Ordering::AcqRel);
        let (segment, offset) = segment_and_offset(number);
        assert!(segment < SEGMENTS, "more than 2^28 threads record into one histogram at once");
        let segment = self.segments[segment]
            .get_or_init(|| (0..SEGMENT_FIRST << segment).map(|_| OnceLock::new()).collect());
        segment[offset].get_or_init(|| Arc::new(shard)).clone()
    }
}

/// Segment and offset of a shard number.
fn segment_and_offset(number: usize) -> (usize, usize) {
    let from_start = number.saturating_add(SEGMENT_FIRST);
    let segment = from_start.ilog2().wrapping_sub(SEGMENT_FIRST.ilog2());
    (segment as usize, from_start.wrapping_sub(SEGMENT_FIRST << segment))
}

thread_local! {
    /// Leases of this thread, at the index in each recorder's [`RecorderSlot`].
    static THREAD_SHARDS: RefCell<Vec<Option<ThreadShard>>> = const { RefCell::new(Vec::new()) };
}

struct ThreadShard {
    serial: u64,
    lease: ShardLease,
}

fn store_thread_shard(
    shards: &mut Vec<Option<ThreadShard>>,
    slot: &RecorderSlot,
    lease: ShardLease,
) {
    if shards.len() <= slot.index {
        shards.resize_with(slot.index.saturating_add(1), || None);
    }
    shards[slot.index] = Some(ThreadShard { serial: slot.serial, lease });
}

/// Index of a recorder in each thread's list of leases. Indexes are reused and serials are not, so
/// the lease of a deleted recorder is recognised and replaced.
struct RecorderSlot {
    index: usize,
    serial: u64,
}

/// Free indexes, and the number of indexes ever allocated.
static FREE_SLOTS: Mutex<(Vec<usize>, usize)> = Mutex::new((Vec::new(), 0));
static SERIALS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

impl RecorderSlot {
    fn allocate() -> RecorderSlot {
        let mut free = FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.0.pop().unwrap_or_else(|| {
            let index = free.1;
            free.1 = index.saturating_add(1);
            index
        });
        RecorderSlot { index, serial: SERIALS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) }
    }
}

impl Drop for RecorderSlot {
    fn drop(&mut self) {
        FREE_SLOTS.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.index);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "shared_recorder/tests.rs"]
mod tests;

/// Every interleaving of a writer and a reader, and of successive writers.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::tracked_value::TrackedValue;
    use loom::thread;

    fn recorder() -> SharedRecorder<0> {
        SharedRecorder::with_thresholds(&[])
    }

    #[test]
    fn loom_reader_detects_partial_records() {
        loom::model(|| {
            let recorder = recorder();
            let writer = {
                let handle = recorder.thread_recorder();
                thread::spawn(move || {
                    handle.record(1);
                    handle.record(4);
                })
            };
            let seen = recorder.snapshot();
            assert!(seen.count() <= 2);
            if let Some(sum) = seen.tracked_sum().exact() {
                let expected = [0.0, 1.0, 5.0][seen.count() as usize];
                assert_eq!(sum.value(), expected, "an exact sum fits its count");
                if seen.count() == 2 {
                    assert_eq!(seen.tracked_max(), TrackedValue::Exact(4.0));
                }
            }
            writer.join().unwrap();
            assert_eq!(recorder.snapshot().tracked_sum().exact().unwrap().value(), 5.0);
        });
    }

    #[test]
    fn loom_intervals_hold_each_record_once_with_true_extremes() {
        loom::model(|| {
            let recorder = recorder();
            let handle = recorder.thread_recorder();
            handle.record(4);
            let writer = thread::spawn(move || {
                handle.record(2);
                handle.record(1);
            });
            let first = recorder.interval();
            writer.join().unwrap();
            let second = recorder.interval();
            assert_eq!(first.count() + second.count(), 3);
            // Values descend, so the counts show which values each interval contains.
            let values = [4.0, 2.0, 1.0];
            let (early, late) = values.split_at(first.count() as usize);
            for (interval, values) in [(&first, early), (&second, late)] {
                if let (Some(max), Some(&truth)) = (interval.tracked_max().exact(), values.first())
                {
                    assert_eq!(max, truth);
                }
                if let (Some(min), Some(&truth)) = (interval.tracked_min().exact(), values.last()) {
                    assert_eq!(min, truth);
                }
            }
        });
    }

    #[test]
    fn loom_retained_threshold_is_exact() {
        loom::model(|| {
            let recorder = SharedRecorder::<0>::with_thresholds(&[2]);
            let handle = recorder.thread_recorder();
            let writer = thread::spawn(move || {
                handle.record(1);
                handle.record(4);
            });
            let first = recorder.interval();
            writer.join().unwrap();
            let mut before = 0;
            for interval in [first, recorder.interval()] {
                let after = before + interval.count() as usize;
                let above = [1, 4][before..after].iter().filter(|&&value| value > 2).count() as u64;
                if interval.count() > 0
                    && let Some(threshold) = interval.thresholds().first()
                {
                    assert_eq!(threshold.above, above);
                }
                before = after;
            }
            assert_eq!(before, 2);
        });
    }

    #[test]
    fn loom_a_shard_passes_from_thread_to_thread() {
        loom::model(|| {
            let recorder = recorder();
            let threads: Vec<_> = [1, 2]
                .map(|value| {
                    let recorder = recorder.clone();
                    thread::spawn(move || recorder.thread_recorder().record(value))
                })
                .into();
            for thread in threads {
                thread.join().unwrap();
            }
            let total = recorder.snapshot();
            assert_eq!((total.count(), total.sum().estimate), (2, 3.0));
        });
    }
}
