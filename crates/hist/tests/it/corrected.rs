//! The correction for coordinated omission, as HdrHistogram documents it.

use hist::{Histogram, Scheme};
use proptest::prelude::*;

use crate::cases;
use crate::model::SortedSample;

fn corrected(scheme: &Scheme, value: f64, interval: f64) -> Histogram {
    let mut histogram = Histogram::new(scheme.clone()).with_thresholds(&[15.0, 60.0]).unwrap();
    histogram.record_corrected(value, interval).unwrap();
    histogram
}

#[track_caller]
fn check(value: f64, interval: f64, expected: &[f64]) {
    for scheme in [Scheme::default(), Scheme::exp2(-2).unwrap(), Scheme::LogLinear10] {
        let mut by_hand = Histogram::new(scheme.clone()).with_thresholds(&[15.0, 60.0]).unwrap();
        expected.iter().for_each(|&value| by_hand.record(value));
        assert_eq!(corrected(&scheme, value, interval), by_hand, "{value} every {interval}");
    }
}

#[test]
fn the_missing_values_descend_to_the_interval() {
    check(100.0, 10.0, &[100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0]);
    check(100.0, 30.0, &[100.0, 70.0, 40.0]);
    check(20.0, 10.0, &[20.0, 10.0]);
    check(19.0, 10.0, &[19.0]);
    check(5.0, 10.0, &[5.0]);
    check(0.0, 10.0, &[0.0]);
    check(-100.0, 10.0, &[-100.0]);
    for no_interval in [0.0, -1.0, f64::NAN] {
        check(100.0, no_interval, &[100.0]);
    }
    check(f64::INFINITY, 10.0, &[f64::INFINITY]);
    assert_eq!(corrected(&Scheme::default(), 1.0, 0.1).count(), 10);
}

#[test]
fn huge_ratios_take_a_step_for_each_bucket() {
    let histogram = corrected(&Scheme::default(), 1e18, 1.0);
    assert_eq!(histogram.count(), 1_000_000_000_000_000_000);
    let n = 1_000_000_000_000_000_000u128;
    assert_eq!(histogram.sum().estimate, (n * (n + 1) / 2) as f64);
    assert!(histogram.quantile(0.5).unwrap().contains(5e17));
    assert_eq!(histogram.thresholds()[0].above, n as u64 - 15);
}

#[test]
fn count_overflow_is_rejected() {
    let mut histogram = Histogram::default();
    histogram.record(3.0);
    let before = histogram.clone();
    for (value, interval) in [(1e18, 1e-9), (1e300, 1.0), (f64::MAX, f64::from_bits(1))] {
        assert!(histogram.record_corrected(value, interval).is_err());
        assert_eq!(histogram, before);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn whole_numbers_are_recorded_as_one_by_one(
        scheme in cases::schemes(), value in 1..200_000u32, interval in 50..5000u32,
    ) {
        let mut values = vec![f64::from(value)];
        let mut missing = value.saturating_sub(interval);
        while missing >= interval {
            values.push(missing.into());
            missing -= interval;
        }
        let mut by_hand = Histogram::new(scheme.clone()).with_thresholds(&[15.0, 60.0]).unwrap();
        values.iter().for_each(|&value| by_hand.record(value));
        let histogram = corrected(&scheme, value.into(), interval.into());
        prop_assert_eq!(&histogram, &by_hand);
        if values.len() < 40 {
            crate::oracle::check(&histogram, &SortedSample::new(&values));
        }
    }
}
