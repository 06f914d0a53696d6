//! Tests of the shared recorder: threads, shards that are reused, intervals.

use super::*;
use crate::statistics::LimitInclusion;
use crate::tracked_value::TrackedValue;

/// Records the numbers 1..=`values` on each of `threads` threads, twice, while a reader takes
/// snapshots.
fn check_threads(threads: u64, values: u64) {
    let recorder = SharedRecorder::<5>::with_thresholds(&[values / 2]);
    let mut intervals = Histogram::default();
    for _ in 0..2 {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let recorder = recorder.clone();
                scope.spawn(move || {
                    let handle = recorder.thread_recorder();
                    for value in 1..=values {
                        if thread % 2 == 0 { handle.record(value) } else { recorder.record(value) }
                    }
                });
            }
            intervals.merge(&recorder.interval()).unwrap();
            assert!(recorder.snapshot().count() <= 2 * threads * values);
        });
    }
    intervals.merge(&recorder.interval()).unwrap();

    let total = recorder.snapshot();
    assert_eq!(total.count(), 2 * threads * values);
    assert_eq!(
        total.tracked_sum().exact().unwrap().value(),
        (threads * values * (values + 1)) as f64
    );
    assert_eq!(total.tracked_min(), TrackedValue::Exact(1.0));
    assert_eq!(total.tracked_max(), TrackedValue::Exact(values as f64));
    let above = total.count_above((values / 2) as f64, LimitInclusion::Exclusive);
    assert!(above.is_exact());
    assert_eq!(above.estimate, 2 * threads * (values - values / 2));
    assert_eq!(intervals.positive(), total.positive());
}

#[test]
fn no_update_is_lost() {
    check_threads(4, 50_000);
}

#[test]
fn miri_no_update_is_lost() {
    check_threads(2, 40);
}

#[test]
fn ended_thread_releases_its_shard() {
    let recorder = SharedRecorder::new();
    for _ in 0..20 {
        std::thread::scope(|scope| {
            scope.spawn(|| recorder.record(7)).join().unwrap();
        });
    }
    assert_eq!(recorder.snapshot().count(), 20);
    assert_eq!(recorder.shared.shards().count(), 1);
}

#[test]
fn half_registered_shard_hides_no_other() {
    let recorder = SharedRecorder::new();
    recorder.record(1);
    // The state that `add_shard` leaves between allocating a slot and filling it.
    let allocated = recorder.shared.slots_allocated.fetch_add(1, Ordering::AcqRel);
    let handle = recorder.thread_recorder();
    handle.record(2);
    assert_eq!(recorder.snapshot().count(), 2);
    assert_eq!(recorder.interval().count(), 2);

    let (segment, offset) = segment_and_offset(allocated);
    let late = Shard::new::<5>(0);
    late.record::<5>(&late.known_pages(), &[], 9);
    assert!(recorder.shared.segments[segment].get().unwrap()[offset].set(Arc::new(late)).is_ok());
    handle.record(3);
    let interval = recorder.interval();
    assert_eq!((interval.count(), interval.sum().estimate), (2, 12.0));
    assert_eq!(recorder.snapshot().sum().estimate, 15.0);
}

#[test]
fn nested_first_record_is_counted() {
    let recorder = SharedRecorder::new();
    THREAD_SHARDS.with(|shards| {
        let _borrowed = shards.borrow_mut();
        recorder.record(5);
    });
    recorder.record(6);
    assert_eq!(recorder.snapshot().count(), 2);
}

#[test]
fn new_recorder_in_a_reused_slot_starts_empty() {
    for _ in 0..3 {
        let recorder = SharedRecorder::new();
        recorder.record(3);
        assert_eq!(recorder.snapshot().count(), 1);
    }
}

#[test]
fn miri_intervals_have_their_own_exact_extremes() {
    let recorder = SharedRecorder::new();
    let handle = recorder.thread_recorder();
    for (values, min, max) in
        [(&[5, 900, 30][..], 5.0, 900.0), (&[40, 41], 40.0, 41.0), (&[0, 2], 0.0, 2.0)]
    {
        values.iter().for_each(|&value| handle.record(value));
        let interval = recorder.interval();
        assert_eq!(interval.count(), values.len() as u64);
        assert_eq!(interval.sum().estimate, values.iter().sum::<u64>() as f64);
        assert_eq!(
            (interval.tracked_min(), interval.tracked_max()),
            (TrackedValue::Exact(min), TrackedValue::Exact(max))
        );
    }
    assert!(recorder.interval().is_empty());
    assert_eq!(recorder.snapshot().tracked_max(), TrackedValue::Exact(900.0));
}

/// What an interval reports as exact is true of the values that it counted, while a thread keeps
/// recording.
#[track_caller]
fn check_exactness(values: &[u64], pause: u32) {
    const LIMIT: u64 = 1 << 20;
    let recorder = SharedRecorder::<5>::with_thresholds(&[LIMIT]);
    let mut before = 0;
    let mut check = |interval: Histogram| {
        let held = &values[before..before + interval.count() as usize];
        before += held.len();
        if held.is_empty() {
            return before;
        }
        let claimed = [
            (interval.tracked_min().exact(), *held.iter().min().unwrap()),
            (interval.tracked_max().exact(), *held.iter().max().unwrap()),
            (interval.tracked_sum().exact().map(|sum| sum.value()), held.iter().sum()),
            (
                interval.thresholds().first().map(|threshold| threshold.above as f64),
                held.iter().filter(|&&value| value > LIMIT).count() as u64,
            ),
        ];
        for (claim, truth) in claimed {
            assert!(claim.is_none_or(|claim| claim == truth as f64), "{claim:?}, not {truth}");
        }
        before
    };
    std::thread::scope(|scope| {
        let handle = recorder.thread_recorder();
        scope.spawn(move || {
            for &value in values {
                handle.record(value);
                (0..pause).for_each(|_| std::hint::spin_loop());
            }
        });
        while check(recorder.interval()) < values.len() {}
    });
    // While a thread records without pause an interval may claim nothing, but once it pauses
    // everything is known.
    assert!(recorder.interval().is_empty());
    recorder.record(7);
    let rested = recorder.interval();
    assert_eq!(
        (rested.tracked_min(), rested.tracked_max()),
        (TrackedValue::Exact(7.0), TrackedValue::Exact(7.0))
    );
    assert_eq!(
        rested.tracked_sum().exact().map(crate::tracked_value::DoubleDouble::value),
        Some(7.0)
    );
    assert_eq!(rested.thresholds().len(), 1);
}

#[test]
fn interval_extremes_are_true() {
    let mixed = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (24 + i % 37);
    for pause in [0, 10, 100, 1000] {
        let n = 400_000 / u64::from(pause + 4);
        check_exactness(&(0..n).map(mixed).collect::<Vec<_>>(), pause);
        check_exactness(&(0..n).collect::<Vec<_>>(), pause);
        check_exactness(&(0..n).rev().collect::<Vec<_>>(), pause);
        check_exactness(&(0..n).map(|i| i % 3).collect::<Vec<_>>(), pause);
    }
}

#[test]
fn the_sum_carries_past_64_bits() {
    let recorder = SharedRecorder::new();
    (0..4).for_each(|_| recorder.record(u64::MAX));
    let sum = recorder.snapshot().tracked_sum().exact().unwrap();
    assert_eq!(sum, crate::tracked_value::DoubleDouble::from_integer(4 * u128::from(u64::MAX)));
}

#[test]
fn handles_of_other_scales() {
    let recorder = SharedRecorder::<8>::with_thresholds(&[]);
    recorder.thread_recorder().record(1_000_000);
    assert_eq!(recorder.snapshot().scheme(), &Scheme::exp2(8).unwrap());
}
