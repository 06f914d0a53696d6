//! Regressions: each test is named after the symptom that a user saw.

use hist::codec::frame::{self, SeriesMeta};
use hist::{
    Accumulator, DoubleDouble, Histogram, HistogramParts, LimitInclusion, Recorder, Scheme,
    TrackedValue,
};

/// Counts on the default grid without any summary statistic.
fn without_summary(values: &[f64]) -> Histogram {
    let mut histogram = Histogram::default();
    values.iter().for_each(|&value| histogram.record(value));
    let parts = histogram.into_parts();
    let absent = TrackedValue::Absent;
    Histogram::from_parts(HistogramParts {
        sum: TrackedValue::Absent,
        min: absent,
        max: absent,
        ..parts
    })
    .unwrap()
}

#[test]
fn nanosecond_interval_correction_is_fast() {
    let n = 1_000_000_000_000_000_000;
    let mut recorder = Recorder::new().with_thresholds(&[15]);
    recorder.record_corrected(n, 1).unwrap();
    let histogram = recorder.snapshot();
    assert_eq!(histogram.count(), n);
    let sum = u128::from(n) * (u128::from(n) + 1) / 2;
    assert_eq!(histogram.sum().estimate, sum as f64);
    assert_eq!(histogram.tracked_min(), TrackedValue::Exact(1.0));
    assert_eq!(histogram.thresholds()[0].above, n - 15);
}

#[test]
fn corrected_wait_equals_single_records() {
    for (value, interval) in
        [(100, 10), (109, 10), (19, 10), (5, 10), (0, 3), (7, 0), (1 << 20, 3), (u64::MAX, 1 << 47)]
    {
        let (mut corrected, mut by_hand) = (Recorder::<5>::new(), Recorder::<5>::new());
        corrected = corrected.with_thresholds(&[50, 1 << 50]);
        by_hand = by_hand.with_thresholds(&[50, 1 << 50]);
        corrected.record_corrected(value, interval).unwrap();
        by_hand.record(value);
        let mut missing = value.saturating_sub(interval);
        while interval > 0 && missing >= interval {
            by_hand.record(missing);
            missing -= interval;
        }
        assert_eq!(corrected.snapshot(), by_hand.snapshot(), "{value} every {interval}");
    }
}

#[test]
fn recorder_overflow_is_rejected_without_change() {
    let mut recorder = Recorder::new();
    recorder.record(3);
    assert!(recorder.record_corrected(u64::MAX, 1).is_err());
    assert_eq!(recorder.snapshot().count(), 1);
}

#[test]
#[should_panic(expected = "BUG: more than 2^63 values")]
fn a_recorder_does_not_wrap_its_counts() {
    let mut recorder = Recorder::new();
    recorder.record_n(u64::MAX, 1 << 62);
    recorder.record_n(0, 1 << 62);
    recorder.record_n(7, 1 << 62);
}

#[test]
fn frame_of_huge_nan_count_is_rejected() {
    let mut nans = Histogram::default();
    nans.record_n(f64::NAN, u64::MAX - 1);
    let mut three = Histogram::default();
    three.record_n(7.0, 3);
    let mut frame_of_three = Vec::new();
    frame::encode(&three, SeriesMeta::default(), &mut frame_of_three);

    let mut accumulator = Accumulator::new(Scheme::default());
    accumulator.add(&nans).unwrap();
    assert!(accumulator.add(&three).is_err());
    assert!(accumulator.add_frame(&frame_of_three).is_err());
    assert_eq!(accumulator.to_histogram(), nans);
}

#[test]
fn the_greatest_value_is_not_estimated_below_a_quantile() {
    for values in [&[100.0; 1000][..], &[-100.0; 1000]] {
        let histogram = without_summary(values);
        let (min, max) = (histogram.min().unwrap(), histogram.max().unwrap());
        for q in [0.0, 0.001, 0.01, 0.5, 0.99, 0.999, 1.0] {
            let quantile = histogram.quantile(q).unwrap();
            assert!(min.estimate <= quantile.estimate, "min {min:?}, q {q} {quantile:?}");
            assert!(quantile.estimate <= max.estimate, "max {max:?}, q {q} {quantile:?}");
        }
        assert_eq!(histogram.quantile(1.0), Some(max));
        assert_eq!(histogram.quantile(0.0), Some(min));
    }
}

/// A histogram whose values within ±10 were counted as zero, in addition to its buckets.
fn zero_over_buckets() -> (Histogram, Vec<f64>) {
    let values = [-12.0, -9.9, -0.5, 0.0, 3.0, 9.0, 9.9, 10.1, 40.0];
    let mut in_buckets = Histogram::default();
    for value in [-12.0, -9.9, 3.0, 9.9, 10.1, 40.0] {
        in_buckets.record(value);
    }
    let parts = in_buckets.into_parts();
    let absent = TrackedValue::Absent;
    let parts = HistogramParts {
        zero: 3,
        zero_threshold: 10.0,
        sum: TrackedValue::Exact(DoubleDouble::new(values.iter().sum())),
        min: absent,
        max: absent,
        ..parts
    };
    (Histogram::from_parts(parts).unwrap(), values.to_vec())
}

#[test]
fn zero_bucket_over_others_keeps_brackets_true() {
    let (histogram, values) = zero_over_buckets();
    for (rank, &value) in (1..).zip(&values) {
        let q = f64::from(rank) / values.len() as f64;
        let found = histogram.quantile(q).unwrap();
        assert!(found.contains(value), "rank {rank}: {found:?} without {value}");
        let ready = hist::CumulativeHistogram::new(&histogram).quantile(q).unwrap();
        assert_eq!(found, ready, "rank {rank}");
    }
    assert!(histogram.min().unwrap().contains(-12.0));
    assert!(histogram.max().unwrap().contains(40.0));
    for x in [-11.0, -5.0, 0.0, 5.0, 9.95, 20.0] {
        let expected = values.iter().filter(|&&value| value <= x).count() as u64;
        let found = histogram.count_below(x, LimitInclusion::Inclusive);
        assert!(found.contains(expected), "below {x}: {found:?} without {expected}");
    }
    // The buckets themselves are unchanged.
    assert_eq!((histogram.zero_count(), histogram.positive().len()), (3, 4));
}

#[test]
fn minimum_lies_in_or_under_the_zero_bucket() {
    let mut parts = HistogramParts::new(Scheme::exp2(0).unwrap());
    (parts.zero, parts.zero_threshold) = (1, 3.0);
    // Within 2 to 4: 2.5, which was not zero when it was recorded.
    parts.positive = vec![(1, 1)];
    parts.max = TrackedValue::Exact(3.9);
    let histogram = Histogram::from_parts(parts).unwrap();
    assert_eq!(histogram.tracked_max(), TrackedValue::Exact(3.9));
    assert!(histogram.min().unwrap().contains(2.5));
}

#[test]
fn raised_zero_threshold_keeps_other_buckets() {
    let scheme = Scheme::log(0.01).unwrap();
    let mut sketch = Histogram::new(scheme.clone());
    (0..1000).for_each(|value| sketch.record(1.0 + f64::from(value) * 0.01));
    let mut other = Histogram::new(scheme).with_zero_threshold(1.5).unwrap();
    (0..1000).for_each(|value| other.record(-1.0 - f64::from(value) * 0.01));
    sketch.merge(&other).unwrap();
    assert_eq!(sketch.count(), 2000);
    assert!(sketch.zero_threshold() < 1.54, "threshold {}", sketch.zero_threshold());
    assert!(sketch.zero_count() < 110, "{} zeros", sketch.zero_count());
    assert!(sketch.quantile(0.75).unwrap().contains(6.0 - 0.01));
}
