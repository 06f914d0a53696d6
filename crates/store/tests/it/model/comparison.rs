//! Comparison of answers of the store with those of the evaluator.

use std::ops::Range;

use hist::{Histogram, LimitInclusion, Mixture};
use model::SampleValue;
use store::{DAY, HOUR, MINUTE, TimeGrid};

use super::program::{BEGIN, ModelQuery};

pub(crate) fn at(time: i64) -> String {
    let time = time - BEGIN;
    format!(
        "day {} {:>02}:{:02} and {} ns",
        time.div_euclid(DAY),
        time.rem_euclid(DAY) / HOUR,
        time.rem_euclid(HOUR) / MINUTE,
        time.rem_euclid(MINUTE)
    )
}

pub(crate) fn ranges(grid: TimeGrid) -> Vec<Range<i64>> {
    (0..grid.columns).map(|at| grid.column(at)).collect()
}

/// Grid of a query over all data.
pub(crate) fn grid(question: &ModelQuery, extent: Range<i64>) -> TimeGrid {
    /// More columns take longer without covering more.
    const COLUMNS_MAX: i64 = 700;
    let first = extent.start - extent.start.rem_euclid(DAY);
    let start = if question.off_ns > 0 { first - DAY } else { first } + question.off_ns;
    let length = extent.end + 1 - start;
    let step = question.step.min(length).max(length / COLUMNS_MAX + 1);
    TimeGrid { start, step, columns: (length as u64).div_ceil(step as u64) }
}

/// Compares buckets and schemes; also sums, to the bit. After subtraction, which sums are still
/// exact depends on the order of merging: values known to both must agree.
#[track_caller]
pub(crate) fn assert_same_mixtures(
    found: &Mixture,
    expected: &Mixture,
    strict: bool,
    place: &dyn Fn() -> String,
) {
    let parts = |mixture: &Mixture| {
        let mut parts: Vec<Histogram> = mixture.components().to_vec();
        parts.retain(|part| !part.is_empty() || part.nan_count() > 0);
        parts.sort_by_key(|part| format!("{:?}", part.scheme()));
        parts
    };
    let (found, expected) = (parts(found), parts(expected));
    let schemes =
        |parts: &[Histogram]| parts.iter().map(|part| part.scheme().clone()).collect::<Vec<_>>();
    assert_eq!(
        schemes(&found),
        schemes(&expected),
        "grids of {}: {found:#?} {expected:#?}",
        place()
    );
    for (found, expected) in found.iter().zip(&expected) {
        let counts = |h: &Histogram| {
            let (positive, negative) = (h.positive().clone(), h.negative().clone());
            let beside = [h.zero_count(), h.overflow(), h.underflow(), h.nan_count()];
            (positive, negative, beside, h.thresholds().to_vec())
        };
        assert_eq!(counts(found), counts(expected), "counts of {}", place());
        let sum = |h: &Histogram| h.tracked_sum().value();
        assert_eq!(sum(found), sum(expected), "sum of {}", place());
        for side in [Histogram::tracked_min, Histogram::tracked_max] {
            let (found, expected) = (side(found), side(expected));
            if strict || found.exact().is_some() && expected.exact().is_some() {
                assert_eq!(found, expected, "sides of {}", place());
            }
        }
        if strict {
            assert_eq!(found.tracked_sum(), expected.tracked_sum(), "sum of {}", place());
        }
    }
}

pub(crate) fn assert_same_values(
    found: &[&SampleValue],
    expected: &[SampleValue],
    place: &dyn Fn() -> String,
) {
    let mixture = |values: &mut dyn Iterator<Item = &SampleValue>| {
        let mut mixture = Mixture::default();
        for value in values {
            if let SampleValue::Histogram(histogram) = value
                && (!histogram.is_empty() || histogram.nan_count() > 0)
            {
                mixture.add(histogram).unwrap();
            }
        }
        mixture
    };
    match expected {
        [SampleValue::Histogram(_), ..] => {
            let (found, expected) =
                (mixture(&mut found.iter().copied()), mixture(&mut expected.iter()));
            assert_same_mixtures(&found, &expected, true, place);
        }
        [SampleValue::Number(expected)] => {
            let [SampleValue::Number(found)] = found else { panic!("{found:?} for {}", place()) };
            assert_eq!(found.to_bits(), expected.to_bits(), "{}", place());
        }
        expected => {
            let text = |value: &SampleValue| format!("{value:?}");
            let mut found: Vec<String> = found.iter().map(|value| text(value)).collect();
            let mut expected: Vec<String> = expected.iter().map(text).collect();
            found.sort();
            expected.sort();
            assert_eq!(found, expected, "{}", place());
        }
    }
}

pub(crate) fn assert_brackets_contain(found: &Mixture, values: &[f64], place: &dyn Fn() -> String) {
    assert_eq!(found.count(), values.len() as u64, "{}", place());
    let Some((least, greatest)) = values.first().zip(values.last()) else { return };
    let end = |bracket: Option<hist::Bracket>| bracket.unwrap().estimate.to_bits();
    assert_eq!(end(found.min()), least.to_bits(), "least of {}", place());
    assert_eq!(end(found.max()), greatest.to_bits(), "greatest of {}", place());
    assert!(found.sum().contains(values.iter().sum()), "sum of {}", place());
    for q in [0.25, 0.5, 0.9, 1.0] {
        let rank = (q * values.len() as f64).ceil().max(1.0) as usize;
        assert!(found.quantile(q).unwrap().contains(values[rank - 1]), "{q} of {}", place());
    }
    for limit in [0.0, 10.0, 500.0] {
        let above = values.iter().filter(|&&value| value > limit).count() as u64;
        assert!(
            found.count_above(limit, LimitInclusion::Exclusive).contains(above),
            "{limit} in {}",
            place()
        );
    }
}
