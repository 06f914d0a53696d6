//! Regressions: statistics of decoded histograms that were wrong.

use codecs::prometheus::ClassicHistogram;

#[test]
fn classic_histogram_sum_is_exact() {
    let classic = ClassicHistogram { buckets: vec![(0.1, 2), (1.0, 5)], sum: Some(3.5), count: 6 };
    let histogram = classic.to_histogram().unwrap();
    assert_eq!(histogram.sum().estimate, 3.5);
    assert!(histogram.sum().is_exact());
    let mean = histogram.mean().unwrap();
    assert!(mean.is_exact() && mean.estimate == 3.5 / 6.0, "{mean:?}");
}

#[test]
fn sum_beyond_bounds_leaves_finite_deviation() {
    let classic =
        ClassicHistogram { buckets: vec![(0.0, 1), (0.125, 2)], sum: Some(1e231), count: 3 };
    let deviation = classic.to_histogram().unwrap().stddev().unwrap();
    assert!(deviation.lower > 1e230 && deviation.lower < 1e231, "{deviation:?}");
}
