//! Every statistic of one histogram compared with its sorted values.

use hist::{Bracket, CumulativeHistogram, Histogram, LimitInclusion, QuantileMethod};

use crate::model::{DecimalShare, SortedSample};

const SHARES: [DecimalShare; 10] = [
    DecimalShare { digits: 0, scale: 1 },
    DecimalShare { digits: 7, scale: 100 },
    DecimalShare { digits: 1, scale: 4 },
    DecimalShare { digits: 1, scale: 3 },
    DecimalShare { digits: 5, scale: 10 },
    DecimalShare { digits: 9, scale: 10 },
    DecimalShare { digits: 95, scale: 100 },
    DecimalShare { digits: 99, scale: 100 },
    DecimalShare { digits: 9999, scale: 10_000 },
    DecimalShare { digits: 1, scale: 1 },
];

#[track_caller]
fn assert_contains<T: PartialOrd + Copy + std::fmt::Debug>(
    what: &str,
    bracket: Bracket<T>,
    expected: T,
) {
    assert!(
        bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
        "{what}: {bracket:?} is out of order"
    );
    assert!(bracket.contains(expected), "{what}: {expected:?} is not in {bracket:?}");
}

/// If the exact result is between two doubles, it may be rounded to either.
#[track_caller]
pub(crate) fn assert_contains_rounded(what: &str, bracket: Bracket, expected: f64) {
    assert_ordered(what, bracket);
    let (lower, upper) = (bracket.lower.next_down(), bracket.upper.next_up());
    assert_contains(what, Bracket { lower, upper, ..bracket }, expected);
}

/// Ordered and not NaN: the only properties if infinities leave the exact result undefined.
#[track_caller]
fn assert_ordered(what: &str, bracket: Bracket) {
    assert_contains(what, bracket, bracket.estimate);
}

pub(crate) fn check(histogram: &Histogram, sample: &SortedSample) {
    assert_eq!(histogram.count(), sample.count());
    assert_eq!(histogram.nan_count(), sample.nan);
    let n = sample.sorted.len();
    if n == 0 {
        assert_eq!(histogram.sum(), Bracket::exact(0.0));
        assert!(histogram.mean().is_none() && histogram.quantile(0.5).is_none());
        return;
    }
    check_moments(histogram, sample);
    check_quantiles(histogram, sample);
    let places = sample.sorted.iter().copied().step_by(n / 8 + 1);
    let declared = histogram.thresholds().iter().map(|threshold| threshold.value);
    let places: Vec<f64> = places
        .chain(declared)
        .flat_map(|x| [x, x.next_up(), x * 1.01])
        .chain([0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY])
        .filter(|x| !x.is_nan())
        .collect();
    for &x in &places {
        check_counts(histogram, sample, x);
    }
    for (&low, &high) in places.iter().zip(places.iter().rev()) {
        let between = |bound| histogram.count_between(low, high, bound);
        let inside = sample.count_if(|v| low <= v && v <= high);
        assert_contains("between, inclusive", between(LimitInclusion::Inclusive), inside);
        let inside = sample.count_if(|v| low < v && v < high);
        assert_contains("between, exclusive", between(LimitInclusion::Exclusive), inside);
    }
}

fn check_moments(histogram: &Histogram, sample: &SortedSample) {
    let (min, max) = (sample.sorted[0], *sample.sorted.last().unwrap());
    assert_contains("min", histogram.min().unwrap(), min);
    assert_contains("max", histogram.max().unwrap(), max);
    let mode = histogram.mode().unwrap();
    assert_ordered("mode", mode);
    assert!(sample.count_if(|v| mode.contains(v)) > 0, "no value lies at the mode {mode:?}");
    let (sum, mean) = (histogram.sum(), histogram.mean().unwrap());
    let (variance, stddev) = (histogram.variance().unwrap(), histogram.stddev().unwrap());
    if sample.is_finite() {
        assert_contains_rounded("sum", sum, sample.sum());
        assert_contains_rounded("mean", mean, sample.mean());
        assert_contains("variance", variance, sample.variance());
        assert_contains("stddev", stddev, sample.stddev());
        for k in [0, 2, 3, 4] {
            assert_contains(&format!("moment {k}"), histogram.moment(k).unwrap(), sample.moment(k));
        }
        return;
    }
    if !sample.sum().is_nan() {
        assert_contains("sum", sum, sample.sum());
        assert_contains("mean", mean, sample.sum());
    }
    for (what, bracket) in
        [("sum", sum), ("mean", mean), ("variance", variance), ("stddev", stddev)]
    {
        assert_ordered(what, bracket);
    }
    for k in 0..=4 {
        assert_ordered("moment", histogram.moment(k).unwrap());
    }
}

fn check_quantiles(histogram: &Histogram, sample: &SortedSample) {
    let cumulative = CumulativeHistogram::new(histogram);
    for q in SHARES {
        let expected = sample.nearest_rank(q);
        let quantile = histogram.quantile(q.value()).unwrap();
        assert_contains(&format!("quantile {q:?}"), quantile, expected);
        assert_eq!(cumulative.quantile(q.value()), Some(quantile));
        for method in [QuantileMethod::Circllhist1, QuantileMethod::HdrUpper] {
            let quantile = histogram.quantile_with(q.value(), method).unwrap();
            assert_contains(&format!("{method:?} {q:?}"), quantile, expected);
        }
        // Prometheus ranks NaN above all other values.
        let prometheus = histogram.quantile_with(q.value(), QuantileMethod::PrometheusExponential);
        match prometheus {
            Some(quantile) if histogram.nan_count() == 0 => {
                assert_contains(&format!("Prometheus {q:?}"), quantile, expected);
            }
            Some(quantile) => assert_ordered("Prometheus beside NaN", quantile),
            None => assert!(histogram.nan_count() > 0),
        }
        let linear = histogram.quantile_with(q.value(), QuantileMethod::Linear).unwrap();
        if sample.is_finite() {
            assert_contains(&format!("linear {q:?}"), linear, sample.linear(q));
        } else {
            assert_ordered("linear", linear);
        }
        let rank = q.digits * (sample.count() - 1) / q.scale;
        let seventh = histogram.quantile_with(q.value(), QuantileMethod::Circllhist7).unwrap();
        assert_contains(&format!("circllhist 7 {q:?}"), seventh, sample.sorted[rank as usize]);
    }
}

fn check_counts(histogram: &Histogram, sample: &SortedSample, x: f64) {
    let (below, up_to) = (sample.count_if(|v| v < x), sample.count_if(|v| v <= x));
    let n = sample.count();
    assert_contains("below, exclusive", histogram.count_below(x, LimitInclusion::Exclusive), below);
    assert_contains("below, inclusive", histogram.count_below(x, LimitInclusion::Inclusive), up_to);
    assert_contains(
        "above, exclusive",
        histogram.count_above(x, LimitInclusion::Exclusive),
        n - up_to,
    );
    assert_contains(
        "above, inclusive",
        histogram.count_above(x, LimitInclusion::Inclusive),
        n - below,
    );
    assert_contains("cdf", histogram.cdf(x).unwrap(), up_to as f64 / n as f64);
    let nearby = histogram.count_nearby(x);
    assert!((sample.count_if(|v| v == x)..=n).contains(&nearby), "{nearby} near {x}");
}
