//! Every statistic of one histogram against the sorted values it was made of.

use hist::{Bound, Bracket, Cumulative, Histogram, Method};

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
pub(crate) fn holds_to_the_last_place(what: &str, bracket: Bracket, truth: f64) {
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
