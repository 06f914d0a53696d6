//! Merge, subtraction, downscaling and mixtures: equal to recording everything into one histogram.

use hist::{
    Bracket, DoubleDouble, Histogram, HistogramParts, LimitInclusion, LogLinear2, MergeError,
    Mixture, Scheme, TrackedValue,
};
use proptest::prelude::*;

use crate::cases::{self, HistogramCase};
use crate::model::{DecimalShare, SortedSample};
use crate::oracle::check;

/// A case, and where its values are cut into three.
fn thirds() -> impl Strategy<Value = (HistogramCase, [Vec<f64>; 3])> {
    (cases::cases(), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |(case, a, b)| {
            let n = case.values.len();
            let (a, b) = (a.index(n + 1), b.index(n + 1));
            let (a, b) = (a.min(b), a.max(b));
            let parts = [&case.values[..a], &case.values[a..b], &case.values[b..]];
            (case.clone(), parts.map(<[f64]>::to_vec))
        },
    )
}

/// Equal except for the sum, whose last bits depend on the order if signs differ.
#[track_caller]
fn assert_same(a: &Histogram, b: &Histogram) {
    let without_sum = |histogram: &Histogram| {
        let mut parts = histogram.clone().into_parts();
        parts.sum = TrackedValue::Absent;
        parts
    };
    assert_eq!(without_sum(a), without_sum(b));
}

fn merge_all(parts: &[&Histogram]) -> Histogram {
    let mut total = parts[0].clone();
    parts[1..].iter().for_each(|part| total.merge(part).unwrap());
    total
}

/// Schemes whose grids nest, from one family.
fn family() -> impl Strategy<Value = [Scheme; 3]> {
    let log_linear = (1..=18u32, -40..40i32)
        .prop_map(|(bits, floor)| Scheme::LogLinear2(LogLinear2::with_floor(bits, floor).unwrap()));
    let integers = (1..=18u32).prop_map(|b| Scheme::LogLinear2(LogLinear2::integers(b).unwrap()));
    let exp2 = (-10..=8i32).prop_map(|scale| Scheme::exp2(scale).unwrap());
    let explicit = prop::collection::vec(cases::finite(), 0..5).prop_map(|mut bounds| {
        bounds.push(1.0);
        bounds.iter_mut().for_each(|bound| *bound += 0.0);
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Scheme::explicit(&bounds).unwrap()
    });
    prop_oneof![
        prop::array::uniform3(exp2),
        prop::array::uniform3(prop_oneof![
            log_linear,
            integers,
            Just(Scheme::log_linear2(10).unwrap())
        ]),
        prop::array::uniform3(explicit),
        Just([Scheme::LogLinear10, Scheme::LogLinear10, Scheme::LogLinear10]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn merging_is_recording_into_one((case, thirds) in thirds()) {
        let [a, b, c] = thirds.map(|values| case.record(&values));
        let whole = case.record(&case.values);
        let sample = SortedSample::new(&case.values);
        for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a]] {
            let total = merge_all(&order);
            assert_same(&total, &whole);
            check(&total, &sample);
        }
        let right = merge_all(&[&a, &merge_all(&[&b, &c])]);
        assert_same(&right, &whole);
    }

    #[test]
    fn nested_grids_are_downscaled(schemes in family(), thresholds in prop::array::uniform3(cases::thresholds()), values in cases::values(Scheme::default()), strip in 0..8u8) {
        let mut parts = [0, 1, 2].map(|i| {
            Histogram::new(schemes[i].clone()).with_zero_threshold(thresholds[i]).unwrap()
        });
        for (i, &value) in values.iter().enumerate() {
            parts[i % 3].record(value);
        }
        for (i, part) in parts.iter_mut().enumerate() {
            if strip >> i & 1 == 1 {
                *part = cases::strip_summary(part.clone());
            }
        }
        let [a, b, c] = &parts;
        let sample = SortedSample::new(&values);
        let total = merge_all(&[a, b, c]);
        check(&total, &sample);
        let (forth, back) = (merge_all(&[a, b]), merge_all(&[b, a]));
        prop_assert_eq!(forth.positive(), back.positive());
        prop_assert_eq!(forth.negative(), back.negative());
        check(&merge_all(&[c, &merge_all(&[b, a])]), &sample);
        if thresholds == [0.0; 3] {
            let right = merge_all(&[a, &merge_all(&[b, c])]);
            prop_assert_eq!(right.positive(), total.positive());
            prop_assert_eq!(right.negative(), total.negative());
            if strip == 0 {
                assert_same(&right, &total);
                assert_same(&back, &forth);
                let mut whole = Histogram::new(total.scheme().clone());
                values.iter().for_each(|&value| whole.record(value));
                assert_same(&total, &whole);
            }
        }
    }

    #[test]
    fn subtraction_leaves_the_rest((case, thirds) in thirds()) {
        let [a, b, _] = thirds.clone().map(|values| case.record(&values));
        let mut rest = merge_all(&[&a, &b]);
        rest.subtract(&b).unwrap();
        prop_assert_eq!(rest.positive(), a.positive());
        prop_assert_eq!(rest.negative(), a.negative());
        prop_assert_eq!((rest.zero_count(), rest.overflow(), rest.underflow()), (a.zero_count(), a.overflow(), a.underflow()));
        prop_assert_eq!(rest.thresholds(), a.thresholds());
        check(&rest, &SortedSample::new(&thirds[0]));
        if a.is_empty() && a.nan_count() == 0 {
            prop_assert_eq!(&rest, &case.empty());
        }
        // In the other direction no count becomes negative.
        let mut less = a.clone();
        let whole = merge_all(&[&a, &b]);
        match less.subtract(&whole) {
            Ok(()) => prop_assert!(b.is_empty() && b.nan_count() == 0),
            Err(_) => prop_assert_eq!(less, a),
        }
    }

    #[test]
    fn increments_of_counts_are_differences_without_summary(
        (case, thirds) in thirds(),
        other in cases::cases(),
        same_grid in any::<bool>(),
    ) {
        let [a, b, _] = thirds.map(|values| case.record(&values));
        let before = if same_grid { a.clone() } else { other.record(&other.values) };
        for after in [merge_all(&[&a, &b]), a.clone(), b.clone()] {
            for after in [&after, &before] {
                let mut difference = after.clone();
                let added = after.counts_since(&before);
                let expected = difference.subtract(&before).ok().map(|()| {
                    let mut parts = difference.into_parts();
                    parts.sum = TrackedValue::Absent;
                    (parts.min, parts.max) = (TrackedValue::Absent, TrackedValue::Absent);
                    Histogram::from_parts(parts).unwrap()
                });
                prop_assert_eq!(&added, &expected);
                // On one grid, the increment leads back.
                let is_same = before.scheme() == after.scheme()
                    && before.zero_threshold() == after.zero_threshold();
                let Some(added) = added.filter(|_| is_same) else { continue };
                let (sum, min, max) =
                    (after.tracked_sum(), after.tracked_min(), after.tracked_max());
                let again = before.plus_counts(&added, sum, min, max).unwrap();
                prop_assert_eq!(again.positive(), after.positive());
                prop_assert_eq!(again.negative(), after.negative());
                prop_assert_eq!(again.count(), after.count());
                prop_assert_eq!(again.nan_count(), after.nan_count());
                prop_assert_eq!(again.tracked_sum(), after.tracked_sum());
            }
        }
    }

    #[test]
    fn downscaling_is_recording_coarser(fine in -10..=8i32, by in 0..18i32, values in cases::values(Scheme::default())) {
        let coarse = (fine - by).max(-10);
        let record = |scale| {
            let mut histogram = Histogram::new(Scheme::exp2(scale).unwrap());
            values.iter().for_each(|&value| histogram.record(value));
            histogram
        };
        let mut downscaled = record(fine);
        downscaled.downscale(coarse).unwrap();
        assert_same(&downscaled, &record(coarse));
        prop_assert!(fine == 8 || downscaled.downscale(fine + 1).is_err());
    }

    #[test]
    fn mixtures_bracket_the_truth(cases in prop::collection::vec(cases::cases(), 1..5)) {
        let mut mixture = Mixture::default();
        let mut values = Vec::new();
        for case in &cases {
            mixture.add(&case.histogram()).unwrap();
            values.extend(&case.values);
        }
        check_mixture(&mixture, &SortedSample::new(&values));
    }

    #[test]
    fn flattening_keeps_counts_and_states_its_error(case in cases::cases()) {
        let histogram = case.histogram();
        let mut mixture = Mixture::default();
        mixture.add(&histogram).unwrap();
        let flat = mixture.flatten().unwrap();
        prop_assert_eq!(flat.histogram.count(), histogram.count());
        prop_assert_eq!(flat.histogram.nan_count(), histogram.nan_count());
        let relative = case.scheme.relative_error().is_some();
        prop_assert!(!relative || flat.error_added <= 1.0 / 1024.0 || case.values.iter().any(|v| v.abs() < 1e-300), "{}", flat.error_added);
    }
}

#[track_caller]
fn assert_contains<T: PartialOrd + Copy + std::fmt::Debug>(
    what: &str,
    bracket: hist::Bracket<T>,
    expected: T,
) {
    assert!(
        bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
        "{what}: {bracket:?} is out of order"
    );
    assert!(bracket.contains(expected), "{what}: {expected:?} is not in {bracket:?}");
}

fn check_mixture(mixture: &Mixture, sample: &SortedSample) {
    assert_eq!(mixture.count(), sample.count());
    let n = sample.sorted.len();
    if n == 0 {
        assert!(mixture.mean().is_none());
        return;
    }
    assert_contains("min", mixture.min().unwrap(), sample.sorted[0]);
    assert_contains("max", mixture.max().unwrap(), sample.sorted[n - 1]);
    if sample.is_finite() {
        let sum = mixture.sum();
        let (lower, upper) = (sum.lower.next_down(), sum.upper.next_up());
        assert_contains("sum", hist::Bracket { lower, upper, ..sum }, sample.sum());
        assert_contains("mean", mixture.mean().unwrap(), sample.mean());
        assert_contains("variance", mixture.variance().unwrap(), sample.variance());
        assert_contains("stddev", mixture.stddev().unwrap(), sample.stddev());
    } else {
        let variance = mixture.variance().unwrap();
        assert_contains("variance", variance, variance.estimate);
    }
    for digits in [0, 10, 50, 90, 99, 100] {
        let q = DecimalShare { digits, scale: 100 };
        assert_contains("quantile", mixture.quantile(q.value()).unwrap(), sample.nearest_rank(q));
    }
    for &x in sample.sorted.iter().step_by(n / 8 + 1) {
        let above = sample.count_if(|v| v > x);
        assert_contains("above", mixture.count_above(x, LimitInclusion::Exclusive), above);
        let from = sample.count_if(|v| v >= x);
        assert_contains(
            "above, inclusive",
            mixture.count_above(x, LimitInclusion::Inclusive),
            from,
        );
        let share = (sample.count() - above) as f64 / sample.count() as f64;
        assert_contains("cdf", mixture.cdf(x).unwrap(), share);
    }
}

/// Every bucket of every family moves to a bucket of its own.
#[test]
fn flattening_keeps_buckets_apart() {
    let schemes = [
        Scheme::LogLinear10,
        Scheme::exp2(8).unwrap(),
        Scheme::exp2(5).unwrap(),
        Scheme::log(0.01).unwrap(),
        Scheme::log(0.005).unwrap(),
        Scheme::LogLinear2(LogLinear2::integers(7).unwrap()),
        Scheme::LogLinear2(LogLinear2::integers(10).unwrap()),
    ];
    for scheme in schemes {
        let mut histogram = Histogram::new(scheme.clone());
        let mut value = 1e-9;
        while value < 1e6 {
            histogram.record(value);
            value *= 1.0004;
        }
        // The exact extremes may be anywhere in their buckets, and must not cause two buckets to be
        // merged.
        let mut mixture = Mixture::default();
        mixture.add(&histogram).unwrap();
        let flat = mixture.flatten().unwrap();
        assert_eq!(flat.histogram.positive().len(), histogram.positive().len(), "{scheme}");
        assert!(flat.error_added <= 1.0 / 1024.0, "{scheme}: {}", flat.error_added);
    }
    let mut neighbours = Histogram::new(Scheme::LogLinear10);
    neighbours.record(1.1f64.next_down());
    neighbours.record(1.1);
    let flat = neighbours.convert(&Scheme::log_linear2(10).unwrap()).unwrap();
    assert_eq!(flat.histogram.positive().len(), 2);
}

#[test]
fn count_overflow_is_rejected() {
    let mut histogram = Histogram::default();
    histogram.record_n(1.0, u64::MAX - 1);
    let mut more = Histogram::default();
    more.record_n(2.0, 2);
    let before = histogram.clone();
    assert_eq!(histogram.merge(&more), Err(MergeError::CountOverflow));
    assert_eq!(histogram, before);
    let mut mixture = Mixture::default();
    mixture.add(&histogram).unwrap();
    let mut foreign = Histogram::new(Scheme::LogLinear10);
    foreign.record_n(2.0, 2);
    assert_eq!(mixture.add(&foreign), Err(MergeError::CountOverflow));
    assert!(mixture.quantile(1.0).unwrap().contains(1.0));
}

/// The sum of a cumulative histogram is far larger than what one interval adds.
#[test]
fn absorbed_sum_is_not_exact() {
    let record = |values: &[f64]| {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    };
    let mut rest = record(&[1e300, 0.1]);
    rest.subtract(&record(&[1e300])).unwrap();
    check(&rest, &SortedSample::new(&[0.1]));
    // Whole numbers are exact.
    let mut rest = record(&[9e15, 9e15, 1234.0]);
    rest.subtract(&record(&[9e15, 9e15])).unwrap();
    assert_eq!(rest.tracked_sum().exact().map(hist::DoubleDouble::value), Some(1234.0));
}

/// A sender reports its total as one double; a small or empty step still has a sum.
#[test]
fn small_counter_step_has_exact_sum() {
    let grid = Scheme::explicit(&[0.005, 1.0]).unwrap();
    let reading = |counts: &[(i32, u64)], sum: f64| {
        let mut parts = HistogramParts::new(grid.clone());
        parts.positive = counts.to_vec();
        parts.sum = TrackedValue::Exact(DoubleDouble::new(sum));
        Histogram::from_parts(parts).unwrap()
    };
    let before = reading(&[(0, 7), (2, 1 << 40)], 3.5e12);
    for (added, sum) in [((0, 8), 3.5e12), ((0, 8), 3.5e12 + 0.0048828125)] {
        let mut step = reading(&[added, (2, 1 << 40)], sum);
        step.subtract(&before).unwrap();
        assert_eq!(step.sum(), Bracket::exact(sum - 3.5e12));
    }
}

#[test]
fn exact_minimum_survives_higher_merge() {
    let mut histogram = Histogram::default();
    histogram.record(1.5);
    let mut above = Histogram::default();
    above.record(100.0);
    histogram.merge(&cases::strip_summary(above)).unwrap();
    assert_eq!(histogram.tracked_min(), TrackedValue::Exact(1.5));
    assert_eq!(histogram.tracked_max(), TrackedValue::Absent);
}

/// HdrHistogram's grid counts zero in its first bucket, which must not get values of other buckets.
#[test]
fn a_zero_threshold_wider_than_the_first_bucket_holds() {
    let scheme = Scheme::LogLinear2(LogLinear2::integers(7).unwrap());
    let mut histogram = Histogram::new(scheme).with_zero_threshold(10.0).unwrap();
    let values = [0.0, 5.0, 7.5, -3.0, 20.0];
    values.iter().for_each(|&value| histogram.record(value));
    check(&cases::strip_summary(histogram), &SortedSample::new(&values));
}

/// Buckets of an explicit grid are wide enough to hide a counter reset.
#[test]
fn a_subtrahend_of_another_family_is_not_called_coarser() {
    let exp2 = |scale| Histogram::new(Scheme::exp2(scale).unwrap());
    let family = exp2(3).difference(&Histogram::new(Scheme::LogLinear10)).unwrap_err();
    assert!(matches!(family, MergeError::SchemesDiffer { .. }), "{family}");
    let coarser = exp2(3).difference(&exp2(2)).unwrap_err();
    assert!(matches!(coarser, MergeError::TooCoarse { .. }), "{coarser}");
}

#[test]
fn difference_after_hidden_restart_round_trips() {
    let grid = Scheme::explicit(&[1.0, 1000.0]).unwrap();
    let of = |values: &[f64]| {
        let empty = Histogram::new(grid.clone()).with_thresholds(&[10.0, 500.0]).unwrap();
        values.iter().fold(empty, |mut histogram, &value| {
            histogram.record(value);
            histogram
        })
    };
    for (whole, taken) in [
        (&[501.0, 502.0][..], &[101.0][..]),
        (&[1e6, 0.5], &[1001.0]),
        (&[600.0, 700.0, 800.0], &[2.0]),
    ] {
        let mut rest = of(whole);
        rest.subtract(&of(taken)).unwrap();
        let parts = rest.clone().into_parts();
        let again = Histogram::from_parts(parts).unwrap();
        assert_eq!(again.thresholds(), rest.thresholds());
        assert_eq!(
            (again.tracked_min(), again.tracked_max()),
            (rest.tracked_min(), rest.tracked_max())
        );
    }
}

/// Each addition compared its bounds with those of all components.
#[test]
fn mixture_has_any_number_of_explicit_layouts() {
    let of = |n: i32, value: f64| {
        let mut histogram = Histogram::new(Scheme::explicit(&[f64::from(n), 1e9]).unwrap());
        histogram.record(value);
        histogram
    };
    let mut mixture = Mixture::default();
    (0..20_000).for_each(|n| mixture.add(&of(n, 1.0)).unwrap());
    (0..20_000).rev().for_each(|n| mixture.add(&of(n, 2.0)).unwrap());
    assert_eq!((mixture.components().len(), mixture.count()), (20_000, 40_000));
    assert!(mixture.components().iter().all(|component| component.count() == 2));
}

/// A deploy that added a bound made the bucket around it as wide as before, for all time.
#[test]
fn explicit_bounds_that_differ_stay_exact_at_their_own() {
    let layouts = [&[0.1, 1.0][..], &[0.1, 0.25, 1.0], &[0.25, 1.0, 2.5]];
    let (mut mixture, mut all) = (Mixture::default(), Vec::new());
    let mut parts = Vec::new();
    for (at, bounds) in layouts.iter().enumerate() {
        let mut histogram = Histogram::new(Scheme::explicit(bounds).unwrap());
        let values: Vec<f64> = (1..=60).map(|n| f64::from(n * n) / (1_000.0 + at as f64)).collect();
        values.iter().for_each(|value| histogram.record(*value));
        // As of the counters of buckets.
        let absent = TrackedValue::Absent;
        let (sum, min, max) = (TrackedValue::Absent, absent, absent);
        let counts = HistogramParts { sum, min, max, ..histogram.into_parts() };
        let histogram = Histogram::from_parts(counts).unwrap();
        // In two pieces, as of two columns.
        mixture.add(&histogram).unwrap();
        mixture.add(&histogram).unwrap();
        all.extend(values.iter().chain(&values));
        parts.push((histogram, values));
    }
    assert_eq!((mixture.components().len(), mixture.count()), (3, 360));
    assert_eq!(mixture.differing_bounds(), [0.1, 0.25, 2.5]);
    check_mixture(&mixture, &SortedSample::new(&all));
    let above = |values: &[f64], limit: f64| values.iter().filter(|it| **it > limit).count() as u64;
    // Of the second and third the number is known, of the first its bounds.
    let found = mixture.count_above(0.25, LimitInclusion::Exclusive);
    let of_first = parts[0].0.count_above(0.25, LimitInclusion::Exclusive);
    let known = 2 * (above(&parts[1].1, 0.25) + above(&parts[2].1, 0.25));
    assert_eq!(found.lower, known + 2 * of_first.lower);
    assert_eq!(found.upper, known + 2 * of_first.upper);
    assert!(found.contains(above(&all, 0.25)) && found.lower < found.upper, "{found:?}");
    // A bound of all.
    let found = mixture.count_above(1.0, LimitInclusion::Exclusive);
    assert_eq!([found.lower, found.upper], [above(&all, 1.0); 2]);
    assert_eq!(Mixture::from(parts[0].0.clone()).differing_bounds(), [0.0; 0]);
    // However many sets of bounds there are, in any order, and in pieces that were merged before.
    let mut others: Vec<Histogram> = (0..20)
        .map(|n| {
            let bounds = [0.1, 0.2 + f64::from(n) / 100.0, 1.0];
            let mut histogram = Histogram::new(Scheme::explicit(&bounds).unwrap());
            histogram.record(0.5);
            histogram
        })
        .collect();
    let sum_of = |parts: &[Histogram]| {
        let mut sum = Mixture::default();
        parts.iter().for_each(|part| sum.add(part).unwrap());
        sum
    };
    let forwards = sum_of(&others);
    others.reverse();
    let mut halves = sum_of(&others[..7]);
    sum_of(&others[7..]).components().iter().for_each(|part| halves.add(part).unwrap());
    assert_eq!(forwards.components().len(), 20);
    assert_eq!((&sum_of(&others), &halves), (&forwards, &forwards));
    let empty = Histogram::new(Scheme::explicit(&[7.0]).unwrap());
    halves.add(&empty).unwrap();
    assert_eq!((&halves, sum_of(&[empty, others[0].clone()])), (&forwards, sum_of(&others[..1])));
}
