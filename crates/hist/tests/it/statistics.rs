//! Every statistic of random histograms compared with the sorted values: the exact result is in the
//! bracket.

use hist::{
    Bracket, CumulativeHistogram, Histogram, LimitInclusion, Mixture, QuantileMethod, Scheme,
};
use proptest::prelude::*;

use crate::cases::{self, HistogramCase};
use crate::model::SortedSample;
use crate::oracle::{assert_contains_rounded, check};

/// Statistics that are documented as exact have no width.
fn check_exact(case: &HistogramCase, histogram: &Histogram) {
    for threshold in histogram.thresholds() {
        assert!(histogram.count_above(threshold.value, LimitInclusion::Exclusive).is_exact());
    }
    if !case.without_summary && !histogram.is_empty() {
        assert!(histogram.min().unwrap().is_exact() && histogram.max().unwrap().is_exact());
    }
    let spans = histogram.positive().indexes().iter().filter(|_| {
        // Logarithmic edges are inexact; zero thresholds of other sources may lie inside a bucket.
        !matches!(case.scheme, Scheme::Logarithmic(_)) && case.zero_threshold == 0.0
    });
    for &index in spans {
        let (first, last) = case.scheme.span(index).unwrap();
        if first == 0.0 {
            // The mirrored bucket ends there too.
            continue;
        }
        assert!(
            histogram.count_below(first, LimitInclusion::Exclusive).is_exact(),
            "below {first:e}"
        );
        assert!(
            histogram.count_above(last, LimitInclusion::Exclusive).is_exact(),
            "above {last:e}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn brackets_contain_the_true_value(case in cases::cases()) {
        let histogram = case.histogram();
        check(&histogram, &SortedSample::new(&case.values));
        check_exact(&case, &histogram);
    }

    #[test]
    fn parts_make_the_same_histogram(case in cases::cases()) {
        let histogram = case.record(&case.values);
        prop_assert_eq!(Histogram::from_parts(histogram.clone().into_parts()), Ok(histogram));
    }

    /// The sum is the exact sum, rounded once.
    #[test]
    fn sums_of_one_sign_are_exact(
        scheme in cases::schemes(),
        values in prop::collection::vec(cases::finite().prop_map(f64::abs), 1..60),
    ) {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        let sum = histogram.sum();
        prop_assert!(sum.is_exact());
        assert_contains_rounded("sum", sum, SortedSample::new(&values).sum());
    }

    #[test]
    fn sums_of_whole_numbers_are_exact(values in prop::collection::vec((-1i64 << 53..1 << 53, 1u64..1 << 20), 1..60)) {
        let mut histogram = Histogram::default();
        let mut expected = 0i128;
        for (value, n) in values {
            histogram.record_n(value as f64, n);
            expected += i128::from(value) * i128::from(n);
        }
        prop_assert_eq!(histogram.sum(), Bracket::exact(expected as f64));
    }
}

#[track_caller]
fn check_values(scheme: Scheme, values: &[f64]) -> Histogram {
    let case = HistogramCase {
        scheme,
        zero_threshold: 0.0,
        declared: vec![],
        values: values.to_vec(),
        without_summary: false,
    };
    let histogram = case.histogram();
    check(&histogram, &SortedSample::new(values));
    check(&cases::strip_summary(histogram.clone()), &SortedSample::new(values));
    histogram
}

/// The bounds stay those of the bucket: a value in it may be negative.
#[test]
fn zero_bucket_stays_positive_without_negatives() {
    let empty = Histogram::default().with_zero_threshold(1.0).unwrap();
    let record = |values: &[f64]| {
        let mut histogram = empty.clone();
        values.iter().for_each(|&value| histogram.record(value));
        cases::strip_summary(histogram)
    };
    let above = record(&[0.0, 0.25, 0.5, 8.0]);
    let quarter = above.quantile(0.25).unwrap();
    assert_eq!((quarter.lower, quarter.estimate, quarter.upper), (-1.0, 0.25, 1.0));
    assert_eq!(above.count_below(0.0, LimitInclusion::Inclusive).estimate, 0);
    assert_eq!(Mixture::from(above.clone()).cdf(0.0).unwrap().estimate, 0.0);
    assert_eq!(CumulativeHistogram::new(&above).quantile(0.25), Some(quarter));
    let below = record(&[-8.0, 0.0, -0.25, -0.5]);
    assert_eq!(below.quantile(0.5).unwrap().estimate, -0.75);
    let both = record(&[-8.0, 0.0, 0.0, 0.0, 8.0]);
    assert_eq!(both.quantile(0.6).unwrap().estimate, 0.0);
}

#[test]
fn a_value_counted_as_zero_may_be_lost_in_a_sum() {
    let case = HistogramCase {
        scheme: Scheme::default(),
        zero_threshold: 1e-9,
        declared: vec![],
        values: vec![1e20, 3.0, -1e-59, -3.0, -1e20],
        without_summary: false,
    };
    check(&case.histogram(), &SortedSample::new(&case.values));
}

/// libcircllhist divides by n^k: 0.42.
#[test]
fn the_second_moment_of_ten_twos_is_four() {
    let histogram = check_values(Scheme::LogLinear10, &[2.0; 10]);
    assert!((histogram.moment(2).unwrap().estimate - 4.0).abs() < 1e-12);
}

/// libcircllhist answers 1.57: E[x²] − E[x]² cancels.
#[test]
fn equal_values_have_no_deviation() {
    for scheme in [Scheme::LogLinear10, Scheme::default()] {
        for values in [vec![3.7e8; 7], vec![42.0], vec![1e-200; 3], vec![1.5e308; 3]] {
            let stddev = check_values(scheme.clone(), &values).stddev().unwrap();
            assert_eq!(stddev, Bracket::exact(0.0), "{values:?}");
        }
    }
}

/// libcircllhist includes NaN in the count but in no quantile.
#[test]
fn nan_is_counted_separately() {
    let histogram = check_values(Scheme::LogLinear10, &[1.0, f64::NAN, 2.0, f64::NAN]);
    assert_eq!((histogram.count(), histogram.nan_count()), (2, 2));
    assert_eq!(histogram.count_above(f64::NAN, LimitInclusion::Exclusive), Bracket::exact(0));
    assert_eq!(histogram.count_below(f64::NAN, LimitInclusion::Inclusive), Bracket::exact(0));
}

/// circonusllhist merges +1 and -1 into one bucket.
#[test]
fn signs_have_separate_buckets() {
    let histogram = check_values(Scheme::LogLinear10, &[1.0, -1.0]);
    assert_eq!((histogram.positive().len(), histogram.negative().len()), (1, 1));
    assert_eq!(histogram.count_below(0.0, LimitInclusion::Inclusive), Bracket::exact(1));
}

#[test]
fn infinities_leave_no_nan_behind() {
    let (inf, max) = (f64::INFINITY, f64::MAX);
    for scheme in [Scheme::default(), Scheme::LogLinear10, Scheme::explicit(&[1.0]).unwrap()] {
        check_values(scheme.clone(), &[inf, inf]);
        check_values(scheme.clone(), &[-inf, inf]);
        check_values(scheme.clone(), &[-inf, 1.0, 2.0]);
        check_values(scheme.clone(), &[max, max, -max, -max]);
        check_values(scheme.clone(), &[max, max]);
        check_values(scheme.clone(), &[1e155, 0.0, 0.0]);
        check_values(scheme, &[1e-200, 3e-200]);
    }
}

#[test]
fn ranks_of_huge_counts_are_whole_numbers() {
    let n = 1u64 << 62;
    let mut histogram = Histogram::default();
    histogram.record_n(1.0, n);
    histogram.record_n(2.0, n - 1);
    histogram.record_n(3.0, 1);
    let median = |q| cases::strip_summary(histogram.clone()).quantile(q).unwrap();
    assert!(median(0.5).contains(1.0) && median(0.75).contains(2.0) && median(1.0).contains(3.0));
}

#[test]
fn as_many_values_as_there_can_be_have_quantiles() {
    let mut histogram = Histogram::default();
    histogram.record_n(1.0, u64::MAX);
    for q in [0.0, 0.5, 0.9, 1.0] {
        let quantile = histogram.quantile_with(q, QuantileMethod::PrometheusExponential).unwrap();
        assert!(quantile.contains(1.0), "{q}");
    }
}

/// Otherwise a histogram could be recorded whose frame could not be decoded.
#[test]
#[should_panic(expected = "more than 2^64 values")]
fn nan_counts_towards_the_count_limit() {
    let mut histogram = Histogram::default();
    histogram.record_n(1.0, u64::MAX);
    histogram.record(f64::NAN);
}

#[test]
fn moments_of_any_order_are_answered() {
    let histogram = check_values(Scheme::default(), &[-2.0, -2.0]);
    assert_eq!(histogram.moment(0), Some(Bracket::exact(1.0)));
    assert!(histogram.moment(u32::MAX).unwrap().contains(f64::NEG_INFINITY));
    assert!(histogram.moment(u32::MAX - 1).unwrap().contains(f64::INFINITY));
}
