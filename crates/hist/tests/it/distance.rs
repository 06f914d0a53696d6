//! Distances between histograms against those between the sorted values.

use hist::{Bracket, Histogram, Scheme, kolmogorov_smirnov, wasserstein};
use proptest::prelude::*;

use crate::cases;
use crate::model::SortedSample;

#[track_caller]
fn assert_contains(what: &str, bracket: Bracket, expected: f64) {
    assert!(
        bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
        "{what}: {bracket:?} is out of order"
    );
    assert!(bracket.contains(expected), "{what}: {expected:?} is not in {bracket:?}");
}

fn check(a: (&Histogram, &SortedSample), b: (&Histogram, &SortedSample)) {
    let steepest = kolmogorov_smirnov(a.0, b.0);
    let work = wasserstein(a.0, b.0);
    if a.1.count() == 0 || b.1.count() == 0 {
        assert!(steepest.is_none() && work.is_none());
        return;
    }
    let (steepest, work) = (steepest.unwrap(), work.unwrap());
    if a.1.is_finite() && b.1.is_finite() {
        let (steepest_truth, work_truth) = a.1.distances(b.1);
        assert_contains("Kolmogorov-Smirnov", steepest, steepest_truth);
        assert_contains("Wasserstein", work, work_truth);
    } else {
        assert_contains("Kolmogorov-Smirnov", steepest, steepest.estimate);
        assert_contains("Wasserstein", work, work.estimate);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn distances_bracket_the_truth(a in cases::cases(), b in cases::cases()) {
        let (ours, theirs) = (a.histogram(), b.histogram());
        let (sample, other) = (SortedSample::new(&a.values), SortedSample::new(&b.values));
        check((&ours, &sample), (&theirs, &other));
        check((&ours, &sample), (&ours, &sample));
    }
}

#[test]
fn shares_closer_than_a_rounding_are_distinguished() {
    let record = |n: u64| {
        let mut histogram = Histogram::new(Scheme::default());
        histogram.record_n(0.0, n);
        histogram.record_n(1.0, 1);
        histogram
    };
    let n = 1u64 << 40;
    let distance = kolmogorov_smirnov(&record(n), &record(n + 1)).unwrap();
    let expected = 1.0 / ((n + 1) as f64 * (n + 2) as f64);
    assert_contains("Kolmogorov-Smirnov", distance, expected);
}
