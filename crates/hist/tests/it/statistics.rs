//! Every statistic of random histograms against the sorted values: the truth lies in the bracket.

use hist::{Bound, Bracket, Cumulative, Histogram, Method, Scheme};
use proptest::prelude::*;

use crate::cases::{self, Case};
use crate::model::{Sample, Share};

const SHARES: [Share; 10] = [
    Share { digits: 0, scale: 1 },
    Share { digits: 7, scale: 100 },
    Share { digits: 1, scale: 4 },
    Share { digits: 1, scale: 3 },
    Share { digits: 5, scale: 10 },
    Share { digits: 9, scale: 10 },
    Share { digits: 95, scale: 100 },
    Share { digits: 99, scale: 100 },
    Share { digits: 9999, scale: 10_000 },
    Share { digits: 1, scale: 1 },
];

#[track_caller]
fn holds<T: PartialOrd + Copy + std::fmt::Debug>(what: &str, bracket: Bracket<T>, truth: T) {
    assert!(
        bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
        "{what}: {bracket:?} is out of order"
    );
    assert!(bracket.contains(truth), "{what}: {truth:?} is not in {bracket:?}");
}

/// Where the truth lies between two doubles, it may be rounded to either.
#[track_caller]
fn holds_to_the_last_place(what: &str, bracket: Bracket, truth: f64) {
    is_ordered(what, bracket);
    let (lower, upper) = (bracket.lower.next_down(), bracket.upper.next_up());
    holds(what, Bracket { lower, upper, ..bracket }, truth);
}

/// Ordered, without NaN: all that can be asked where infinities leave the truth undefined.
#[track_caller]
fn is_ordered(what: &str, bracket: Bracket) {
    holds(what, bracket, bracket.estimate);
}

pub(crate) fn check(histogram: &Histogram, sample: &Sample) {
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
        let inside = sample.how_many(|v| low <= v && v <= high);
        holds("between, inclusive", between(Bound::Inclusive), inside);
        let inside = sample.how_many(|v| low < v && v < high);
        holds("between, exclusive", between(Bound::Exclusive), inside);
    }
}

fn check_moments(histogram: &Histogram, sample: &Sample) {
    let (min, max) = (sample.sorted[0], *sample.sorted.last().unwrap());
    holds("min", histogram.min().unwrap(), min);
    holds("max", histogram.max().unwrap(), max);
    let mode = histogram.mode().unwrap();
    is_ordered("mode", mode);
    assert!(sample.how_many(|v| mode.contains(v)) > 0, "no value lies at the mode {mode:?}");
    let (sum, mean) = (histogram.sum(), histogram.mean().unwrap());
    let (variance, stddev) = (histogram.variance().unwrap(), histogram.stddev().unwrap());
    if sample.is_finite() {
        holds_to_the_last_place("sum", sum, sample.sum());
        holds_to_the_last_place("mean", mean, sample.mean());
        holds("variance", variance, sample.variance());
        holds("stddev", stddev, sample.stddev());
        for k in [0, 2, 3, 4] {
            holds(&format!("moment {k}"), histogram.moment(k).unwrap(), sample.moment(k));
        }
        return;
    }
    if !sample.sum().is_nan() {
        holds("sum", sum, sample.sum());
        holds("mean", mean, sample.sum());
    }
    for (what, bracket) in
        [("sum", sum), ("mean", mean), ("variance", variance), ("stddev", stddev)]
    {
        is_ordered(what, bracket);
    }
    for k in 0..=4 {
        is_ordered("moment", histogram.moment(k).unwrap());
    }
}

fn check_quantiles(histogram: &Histogram, sample: &Sample) {
    let cumulative = Cumulative::new(histogram);
    for q in SHARES {
        let truth = sample.nearest_rank(q);
        let quantile = histogram.quantile(q.value()).unwrap();
        holds(&format!("quantile {q:?}"), quantile, truth);
        assert_eq!(cumulative.quantile(q.value()), Some(quantile));
        for method in [Method::Circllhist1, Method::HdrUpper] {
            let quantile = histogram.quantile_with(q.value(), method).unwrap();
            holds(&format!("{method:?} {q:?}"), quantile, truth);
        }
        // Prometheus ranks NaN among the values, past all others.
        let prometheus = histogram.quantile_with(q.value(), Method::PrometheusExponential);
        match prometheus {
            Some(quantile) if histogram.nan_count() == 0 => {
                holds(&format!("Prometheus {q:?}"), quantile, truth);
            }
            Some(quantile) => is_ordered("Prometheus beside NaN", quantile),
            None => assert!(histogram.nan_count() > 0),
        }
        let linear = histogram.quantile_with(q.value(), Method::Linear).unwrap();
        if sample.is_finite() {
            holds(&format!("linear {q:?}"), linear, sample.linear(q));
        } else {
            is_ordered("linear", linear);
        }
        let rank = q.digits * (sample.count() - 1) / q.scale;
        let seventh = histogram.quantile_with(q.value(), Method::Circllhist7).unwrap();
        holds(&format!("circllhist 7 {q:?}"), seventh, sample.sorted[rank as usize]);
    }
}

fn check_counts(histogram: &Histogram, sample: &Sample, x: f64) {
    let (below, up_to) = (sample.how_many(|v| v < x), sample.how_many(|v| v <= x));
    let n = sample.count();
    holds("below, exclusive", histogram.count_below(x, Bound::Exclusive), below);
    holds("below, inclusive", histogram.count_below(x, Bound::Inclusive), up_to);
    holds("above, exclusive", histogram.count_above(x, Bound::Exclusive), n - up_to);
    holds("above, inclusive", histogram.count_above(x, Bound::Inclusive), n - below);
    holds("cdf", histogram.cdf(x).unwrap(), up_to as f64 / n as f64);
    let nearby = histogram.count_nearby(x);
    assert!((sample.how_many(|v| v == x)..=n).contains(&nearby), "{nearby} near {x}");
}

/// What is promised to be exact has no width.
fn check_exact(case: &Case, histogram: &Histogram) {
    for threshold in histogram.thresholds() {
        assert!(histogram.count_above(threshold.value, Bound::Exclusive).is_exact());
    }
    if !case.without_sides && !histogram.is_empty() {
        assert!(histogram.min().unwrap().is_exact() && histogram.max().unwrap().is_exact());
    }
    let spans = histogram.positive().indexes().iter().filter(|_| {
        // Logarithmic edges are in doubt; foreign zero thresholds may lie inside a bucket.
        !matches!(case.scheme, Scheme::Log(_)) && case.zero_threshold == 0.0
    });
    for &index in spans {
        let (first, last) = case.scheme.span(index).unwrap();
        if first == 0.0 {
            // The mirrored bucket ends there too.
            continue;
        }
        assert!(histogram.count_below(first, Bound::Exclusive).is_exact(), "below {first:e}");
        assert!(histogram.count_above(last, Bound::Exclusive).is_exact(), "above {last:e}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_truth_lies_in_every_bracket(case in cases::cases()) {
        let histogram = case.histogram();
        check(&histogram, &Sample::new(&case.values));
        check_exact(&case, &histogram);
    }

    #[test]
    fn parts_make_the_same_histogram(case in cases::cases()) {
        let histogram = case.record(&case.values);
        prop_assert_eq!(Histogram::from_parts(histogram.clone().into_parts()), Ok(histogram));
    }

    /// The sum is the true one, rounded once.
    #[test]
    fn sums_of_one_sign_are_exact(
        scheme in cases::schemes(),
        values in prop::collection::vec(cases::finite().prop_map(f64::abs), 1..60),
    ) {
        let mut histogram = Histogram::new(scheme);
        values.iter().for_each(|&value| histogram.record(value));
        let sum = histogram.sum();
        prop_assert!(sum.is_exact());
        holds_to_the_last_place("sum", sum, Sample::new(&values).sum());
    }

    #[test]
    fn sums_of_whole_numbers_are_exact(values in prop::collection::vec((-1i64 << 53..1 << 53, 1u64..1 << 20), 1..60)) {
        let mut histogram = Histogram::default();
        let mut truth = 0i128;
        for (value, n) in values {
            histogram.record_n(value as f64, n);
            truth += i128::from(value) * i128::from(n);
        }
        prop_assert_eq!(histogram.sum(), Bracket::exact(truth as f64));
    }
}

#[track_caller]
fn check_values(scheme: Scheme, values: &[f64]) -> Histogram {
    let case = Case {
        scheme,
        zero_threshold: 0.0,
        declared: vec![],
        values: values.to_vec(),
        without_sides: false,
    };
    let histogram = case.histogram();
    check(&histogram, &Sample::new(values));
    check(&cases::stripped(histogram.clone()), &Sample::new(values));
    histogram
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

/// In libcircllhist NaN is in the count but in no quantile.
#[test]
fn nan_is_counted_apart() {
    let histogram = check_values(Scheme::LogLinear10, &[1.0, f64::NAN, 2.0, f64::NAN]);
    assert_eq!((histogram.count(), histogram.nan_count()), (2, 2));
    assert_eq!(histogram.count_above(f64::NAN, Bound::Exclusive), Bracket::exact(0));
    assert_eq!(histogram.count_below(f64::NAN, Bound::Inclusive), Bracket::exact(0));
}

/// circonusllhist merges +1 and -1 into one bucket.
#[test]
fn signs_are_kept_apart() {
    let histogram = check_values(Scheme::LogLinear10, &[1.0, -1.0]);
    assert_eq!((histogram.positive().len(), histogram.negative().len()), (1, 1));
    assert_eq!(histogram.count_below(0.0, Bound::Inclusive), Bracket::exact(1));
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
    let median = |q| cases::stripped(histogram.clone()).quantile(q).unwrap();
    assert!(median(0.5).contains(1.0) && median(0.75).contains(2.0) && median(1.0).contains(3.0));
}

#[test]
fn moments_of_any_order_are_answered() {
    let histogram = check_values(Scheme::default(), &[-2.0, -2.0]);
    assert_eq!(histogram.moment(0), Some(Bracket::exact(1.0)));
    assert!(histogram.moment(u32::MAX).unwrap().contains(f64::NEG_INFINITY));
    assert!(histogram.moment(u32::MAX - 1).unwrap().contains(f64::INFINITY));
}
