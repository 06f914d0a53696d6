//! Properties of every histogram, from any bytes: every statistic works, and it can be stored,
//! merged, subtracted, coarsened and converted.

use hist::codec::block;
use hist::codec::frame::{self, SeriesMeta};
use hist::{
    Bracket, CumulativeHistogram, Explicit, Histogram, LimitInclusion, LogLinear2, MergeError,
    Mixture, QuantileMethod, Scheme, kolmogorov_smirnov, wasserstein,
};

const SHARES: [f64; 9] = [0.0, 5e-324, 0.07, 0.3, 0.5, 0.9, 0.99, 1.0 - f64::EPSILON, 1.0];
const METHODS: [QuantileMethod; 6] = [
    QuantileMethod::NearestRank,
    QuantileMethod::Linear,
    QuantileMethod::Circllhist1,
    QuantileMethod::Circllhist7,
    QuantileMethod::HdrUpper,
    QuantileMethod::PrometheusExponential,
];

pub(super) fn check_all(histogram: &Histogram) {
    check_statistics(histogram);
    check_topdeck_formats(histogram);
    check_self_merge(histogram);
    check_coarsening(histogram);
    check_conversion(histogram);
}

/// Every statistic has its bounds in order and is a number.
pub(super) fn check_statistics(histogram: &Histogram) {
    let total: u64 = histogram.cells().map(|cell| cell.count).sum();
    assert_eq!(total, histogram.count(), "values in cells");
    assert_ordered("sum", histogram.sum());
    let moments = [0, 1, 2, 3, 4, 5, 17, 1000, u32::MAX];
    let moments = moments.map(|k| ("moment", histogram.moment(k)));
    let others = [
        ("min", histogram.min()),
        ("max", histogram.max()),
        ("mean", histogram.mean()),
        ("variance", histogram.variance()),
        ("stddev", histogram.stddev()),
        ("mode", histogram.mode()),
    ];
    for (what, bracket) in moments.into_iter().chain(others) {
        assert_eq!(bracket.is_none(), histogram.is_empty(), "whether there is a {what}");
        if let Some(bracket) = bracket {
            assert_ordered(what, bracket);
        }
    }
    assert_ordered("modality", histogram.modality());
    check_quantiles(histogram);
    check_counts(histogram);
    let one = one_value();
    for other in [histogram, &one] {
        let distances = [kolmogorov_smirnov(histogram, other), wasserstein(histogram, other)];
        for distance in distances.into_iter().flatten() {
            assert_ordered("distance", distance);
        }
    }
}

fn check_quantiles(histogram: &Histogram) {
    let cumulative = CumulativeHistogram::new(histogram);
    for q in SHARES {
        let quantile = histogram.quantile(q);
        assert_eq!(quantile.is_none(), histogram.is_empty(), "whether there is a quantile");
        assert_eq!(cumulative.quantile(q), quantile, "quantile {q}");
        for method in METHODS {
            if let Some(bracket) = histogram.quantile_with(q, method) {
                assert_ordered(&format!("{method:?} {q}"), bracket);
            }
        }
    }
    for q in [f64::NAN, -1.0, 1.5] {
        assert_eq!(histogram.quantile(q), None, "quantile {q}");
    }
}

fn check_counts(histogram: &Histogram) {
    for (&low, &high) in probe_values(histogram).iter().zip(probe_values(histogram).iter().rev()) {
        for bound in [LimitInclusion::Inclusive, LimitInclusion::Exclusive] {
            for count in [
                histogram.count_below(low, bound),
                histogram.count_above(low, bound),
                histogram.count_between(low, high, bound),
            ] {
                assert_ordered("count", count);
                assert!(count.upper <= histogram.count(), "{count:?} exceeds the total");
            }
        }
        if let Some(share) = histogram.cdf(low) {
            assert_ordered("cdf", share);
        }
        let _ = histogram.count_nearby(low);
    }
}

/// Values to query: values in buckets, between them, and outside every grid.
fn probe_values(histogram: &Histogram) -> Vec<f64> {
    let ends = histogram.cells().take(4).chain(histogram.cells().rev().take(2));
    let ends = ends.flat_map(|cell| [cell.lower, cell.upper, cell.upper.next_up()]);
    let declared = histogram.thresholds().iter().take(4).map(|threshold| threshold.value);
    let fixed = [f64::NEG_INFINITY, -1.0, 0.0, 1.0, f64::MAX, f64::INFINITY, f64::NAN];
    ends.chain(declared).chain(fixed).collect()
}

#[track_caller]
fn assert_ordered<T: PartialOrd + Copy + std::fmt::Debug>(what: &str, bracket: Bracket<T>) {
    let in_order = bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper;
    assert!(in_order, "{what}: {bracket:?} is out of order");
}

/// topdeck's own formats hold every histogram.
fn check_topdeck_formats(histogram: &Histogram) {
    let meta = SeriesMeta::default();
    let mut bytes = Vec::new();
    frame::encode(histogram, meta, &mut bytes);
    assert_eq!(frame::decode(&bytes), Ok((histogram.clone(), meta)), "through a frame");
    bytes.clear();
    if block::encode(std::slice::from_ref(histogram), meta, &mut bytes).is_ok() {
        let expected = Ok((vec![histogram.clone()], meta));
        assert_eq!(block::decode(&bytes), expected, "through a block");
    }
}

fn check_self_merge(histogram: &Histogram) {
    let all = histogram.count() + histogram.nan_count();
    let mut twice = histogram.clone();
    let merged = twice.merge(histogram);
    if all.checked_mul(2).is_none() {
        assert_eq!(merged, Err(MergeError::CountOverflow));
        assert_eq!(&twice, histogram, "a refused merge changed something");
        return;
    }
    assert_eq!(merged, Ok(()));
    assert_eq!(twice.count(), 2 * histogram.count());
    assert_ordered("sum", twice.sum());
    twice.subtract(histogram).expect("what was added can be taken away");
    assert_same_counts(&twice, histogram);
    assert_ordered("sum", twice.sum());
}

/// Equal but for summary statistics.
#[track_caller]
pub(super) fn assert_same_counts(ours: &Histogram, theirs: &Histogram) {
    let counts = |h: &Histogram| [h.zero_count(), h.overflow(), h.underflow(), h.nan_count()];
    assert_eq!(ours.scheme(), theirs.scheme());
    assert_eq!(ours.zero_threshold(), theirs.zero_threshold());
    assert_eq!(ours.positive(), theirs.positive());
    assert_eq!(ours.negative(), theirs.negative());
    assert_eq!(counts(ours), counts(theirs));
}

/// Folding to a coarser grid and raising the zero threshold lose no value.
fn check_coarsening(histogram: &Histogram) {
    let coarser = match histogram.scheme() {
        Scheme::Exp2(grid) => Scheme::exp2(i32::from(grid.scale()) - 1).ok(),
        Scheme::LogLinear2(grid) => {
            LogLinear2::with_floor(u32::from(grid.bits()) / 2, i32::from(grid.floor()) + 3)
                .ok()
                .map(Scheme::LogLinear2)
        }
        Scheme::Explicit(grid) => {
            let bounds: Vec<f64> = grid.bounds().iter().copied().step_by(2).collect();
            Explicit::new(&bounds).ok().filter(|_| !bounds.is_empty()).map(Scheme::Explicit)
        }
        _ => None,
    };
    if let Some(coarser) = coarser {
        let mut downscaled = Histogram::new(coarser);
        downscaled.merge(histogram).expect("coarser grids nest");
        assert_eq!(downscaled.count(), histogram.count(), "downscaled");
        check_quantiles(&downscaled);
    }
    for threshold in [f64::from_bits(1), 1.0, f64::MAX] {
        let raised = histogram.clone().with_zero_threshold(threshold).expect("a finite number");
        let held: u64 = raised.cells().map(|cell| cell.count).sum();
        assert_eq!(held, histogram.count(), "with zero threshold {threshold}");
        check_quantiles(&raised);
    }
}

/// Another family's grid, and a mixture with another family, lose no value.
fn check_conversion(histogram: &Histogram) {
    for scheme in [Scheme::LogLinear2(LogLinear2::UNIVERSAL), Scheme::default()] {
        let converted = histogram.convert(&scheme).expect("a histogram fits its own count");
        assert_eq!(converted.histogram.count(), histogram.count(), "converted");
        assert_eq!(converted.histogram.nan_count(), histogram.nan_count(), "converted");
        check_quantiles(&converted.histogram);
    }
    let mut mixture = Mixture::default();
    for part in [histogram, &one_value()] {
        if mixture.add(part).is_err() {
            return;
        }
    }
    assert_ordered("sum of a mixture", mixture.sum());
    let answers = [mixture.min(), mixture.max(), mixture.mean(), mixture.variance()];
    let quantiles = [0.0, 0.5, 1.0].map(|q| mixture.quantile(q));
    for bracket in answers.into_iter().chain(quantiles).chain([mixture.cdf(1.0)]).flatten() {
        assert_ordered("of a mixture", bracket);
    }
    assert_ordered("above 1 in a mixture", mixture.count_above(1.0, LimitInclusion::Exclusive));
}

fn one_value() -> Histogram {
    let mut one = Histogram::new(Scheme::LogLinear10);
    one.record(1.0);
    one
}
