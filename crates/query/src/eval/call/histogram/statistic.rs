//! Statistics of one histogram.
//!
//! For a [`StepValue::Distribution`], the bounds are those of its exact counts, minimum and
//! maximum. Prometheus' estimate uses only the buckets and may lie outside; it is then clamped to
//! the bound.

use hist::{Bracket, Histogram, LimitInclusion, Mixture};

use crate::histogram::FloatHistogram;
use crate::promql::quantile::{self, ForcedMonotonic, NanEffect, StatisticEstimate};
use crate::value::StepValue;

use super::histogram_series::StepHistogram;

/// Number of values.
pub(super) fn count(value: &StepValue) -> Option<StepValue> {
    Some(StepValue::Number(match value {
        StepValue::Histogram(histogram) => histogram.count,
        StepValue::Distribution(mixture) => total_count(mixture) as f64,
        StepValue::Number(_) | StepValue::Bracket(_) => return None,
    }))
}

pub(super) fn sum(value: &StepValue) -> Option<StepValue> {
    Some(match value {
        StepValue::Histogram(histogram) => StepValue::Number(histogram.sum),
        StepValue::Distribution(mixture) if has_nan(mixture) => StepValue::Number(f64::NAN),
        StepValue::Distribution(mixture) => from_bracket(mixture.sum()),
        StepValue::Number(_) | StepValue::Bracket(_) => return None,
    })
}

pub(super) fn avg(value: &StepValue) -> Option<StepValue> {
    Some(match value {
        StepValue::Histogram(histogram) => from_estimate(quantile::average(histogram)),
        StepValue::Distribution(mixture) => match mean(mixture) {
            Some(mean) if !has_nan(mixture) => from_bracket(mean),
            _ => StepValue::Number(f64::NAN),
        },
        StepValue::Number(_) | StepValue::Bracket(_) => return None,
    })
}

pub(super) fn stddev(value: &StepValue) -> Option<StepValue> {
    spread(value, quantile::stddev, Mixture::stddev)
}

pub(super) fn stdvar(value: &StepValue) -> Option<StepValue> {
    spread(value, quantile::variance, Mixture::variance)
}

fn spread(
    value: &StepValue,
    of_histogram: fn(&FloatHistogram) -> StatisticEstimate,
    of_mixture: fn(&Mixture) -> Option<Bracket>,
) -> Option<StepValue> {
    Some(match value {
        StepValue::Histogram(histogram) => from_estimate(of_histogram(histogram)),
        StepValue::Distribution(mixture) => {
            let estimate = of_histogram(&FloatHistogram::from(&**mixture)).estimate;
            match of_mixture(mixture) {
                Some(bounds) if !has_nan(mixture) => clamp_into_bracket(estimate, bounds),
                _ => StepValue::Number(estimate),
            }
        }
        StepValue::Number(_) | StepValue::Bracket(_) => return None,
    })
}

/// Quantile, the effect of NaN observations, and the fixes applied to a classic histogram.
pub(super) fn quantile(
    q: f64,
    shape: &mut StepHistogram,
) -> (StepValue, Option<NanEffect>, Option<ForcedMonotonic>) {
    match shape {
        StepHistogram::Native(StepValue::Distribution(mixture)) => {
            let (found, nan) = quantile::quantile(q, &FloatHistogram::from(&**mixture));
            let value = match mixture.quantile(q) {
                Some(bounds) if !has_nan(mixture) => clamp_into_bracket(found.estimate, bounds),
                _ => from_estimate(found),
            };
            (value, nan, None)
        }
        StepHistogram::Native(StepValue::Histogram(histogram)) => {
            let (found, nan) = quantile::quantile(q, histogram);
            (from_estimate(found), nan, None)
        }
        StepHistogram::Native(StepValue::Number(_) | StepValue::Bracket(_)) => {
            (StepValue::Number(f64::NAN), None, None)
        }
        StepHistogram::Classic(levels) => {
            let (found, repair) = quantile::classic_quantile(q, levels);
            (from_estimate(found), None, repair.forced)
        }
    }
}

/// Share of values above `lower` and at or below `upper`.
pub(super) fn fraction(
    lower: f64,
    upper: f64,
    shape: &mut StepHistogram,
) -> (StepValue, Option<NanEffect>) {
    match shape {
        StepHistogram::Native(StepValue::Distribution(mixture)) => {
            if !has_nan(mixture) && total_count(mixture) > 0 && lower < upper {
                let share = count_in_range(mixture, lower, upper).fraction_of(total_count(mixture));
                return (StepValue::from_bracket(share), None);
            }
            let (found, nan) = quantile::fraction(lower, upper, &FloatHistogram::from(&**mixture));
            let value = match found.estimate.is_nan() || lower >= upper {
                true => from_estimate(found),
                false => clamp_into_bracket(
                    found.estimate,
                    count_in_range(mixture, lower, upper).fraction_of(total_count(mixture)),
                ),
            };
            (value, nan)
        }
        StepHistogram::Native(StepValue::Histogram(histogram)) => {
            let (found, nan) = quantile::fraction(lower, upper, histogram);
            (from_estimate(found), nan)
        }
        StepHistogram::Native(StepValue::Number(_) | StepValue::Bracket(_)) => {
            (StepValue::Number(f64::NAN), None)
        }
        StepHistogram::Classic(levels) => {
            (from_estimate(quantile::classic_fraction(lower, upper, levels)), None)
        }
    }
}

/// Number of values above `lower` and at or below `upper`.
pub(super) fn count_within(lower: f64, upper: f64, shape: &mut StepHistogram) -> StepValue {
    if lower.is_nan() || upper.is_nan() {
        return StepValue::Number(f64::NAN);
    }
    if lower >= upper {
        return StepValue::Number(0.0);
    }
    if let StepHistogram::Native(StepValue::Distribution(mixture)) = shape {
        let Bracket { lower, estimate, upper } = count_in_range(mixture, lower, upper);
        return StepValue::from_bounds(lower as f64, estimate as f64, upper as f64);
    }
    let (share, _) = fraction(lower, upper, shape);
    let total = match shape {
        StepHistogram::Native(value) => count(value).and_then(|count| count.number()),
        StepHistogram::Classic(levels) => {
            levels.iter().find(|level| level.upper_bound == f64::INFINITY).map(|level| level.count)
        }
    };
    match total {
        Some(0.0) => StepValue::Number(0.0),
        total => scale(share, total.unwrap_or(f64::NAN)),
    }
}

/// Scales a share by a total.
pub(super) fn scale(share: StepValue, total: f64) -> StepValue {
    let Some(Bracket { lower, estimate, upper }) = share.bracket() else { return share };
    let (a, b) = (lower * total, upper * total);
    StepValue::from_bounds(a.min(b), estimate * total, a.max(b))
}

/// Maximum or minimum.
pub(super) fn extreme(shape: &mut StepHistogram, is_max: bool) -> StepValue {
    if let StepHistogram::Native(StepValue::Distribution(mixture)) = shape {
        let extreme = if is_max { mixture.max() } else { mixture.min() };
        return extreme.map_or(StepValue::Number(f64::NAN), from_bracket);
    }
    quantile(if is_max { 1.0 } else { 0.0 }, shape).0
}

/// With a single part, it may be exact.
fn mean(mixture: &Mixture) -> Option<Bracket> {
    match mixture.components() {
        [part] => part.mean(),
        _ => mixture.mean(),
    }
}

fn has_nan(mixture: &Mixture) -> bool {
    mixture.components().iter().any(|part| part.nan_count() > 0)
}

/// Number of values, NaN included.
fn total_count(mixture: &Mixture) -> u64 {
    mixture.components().iter().map(|part| part.count() + part.nan_count()).sum()
}

/// Number of values above `lower` and at or below `upper`, where `lower` ≤ `upper`. From minus
/// infinity, all values count.
fn count_in_range(mixture: &Mixture, lower: f64, upper: f64) -> Bracket<u64> {
    let of_part = |part: &Histogram| {
        let n = part.count();
        let above = |limit: f64| match limit {
            f64::NEG_INFINITY => Bracket::exact(n),
            f64::INFINITY => Bracket::exact(0),
            limit => part.count_above(limit, LimitInclusion::Exclusive),
        };
        let (most, rest) = (above(lower), above(upper));
        let mut sum = Bracket {
            lower: most.lower.saturating_sub(rest.upper),
            estimate: most.estimate.saturating_sub(rest.estimate),
            upper: most.upper.saturating_sub(rest.lower),
        };
        if lower.is_finite() && upper.is_finite() && sum.lower < sum.upper {
            // If the limits share a bucket or lie in adjacent ones, the cells together give tighter
            // bounds.
            let (mut surely, mut possibly) = (0, 0);
            for cell in part.cells() {
                surely += if lower < cell.lower && cell.upper <= upper { cell.count } else { 0 };
                possibly += if lower < cell.upper && cell.lower <= upper { cell.count } else { 0 };
            }
            sum.lower = sum.lower.max(surely);
            sum.upper = sum.upper.min(possibly);
            sum.estimate = sum.estimate.clamp(sum.lower, sum.upper.max(sum.lower));
        }
        sum
    };
    mixture.components().iter().map(of_part).fold(Bracket::exact(0), |total, part| Bracket {
        lower: total.lower + part.lower,
        estimate: total.estimate + part.estimate,
        upper: total.upper + part.upper,
    })
}

fn from_estimate(found: StatisticEstimate) -> StepValue {
    StepValue::from_bounds(found.lower, found.estimate, found.upper)
}

/// Bracket of `hist` as a value.
fn from_bracket(bounds: Bracket) -> StepValue {
    StepValue::from_bounds(bounds.lower, bounds.estimate, bounds.upper)
}

/// Prometheus' estimate, clamped to the bounds. If Prometheus has none, the bracket's estimate.
fn clamp_into_bracket(estimate: f64, bounds: Bracket) -> StepValue {
    let estimate = if estimate.is_nan() { bounds.estimate } else { estimate };
    StepValue::from_bounds(bounds.lower, estimate.max(bounds.lower).min(bounds.upper), bounds.upper)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hist::Scheme;

    use super::*;
    use crate::promql::quantile::CumulativeBucket;

    /// Latencies of two kinds, recorded with different bucket schemes.
    fn values() -> Vec<f64> {
        (1..400).map(|k| f64::from(k * k % 997) / 1000.0 + 0.0005).collect()
    }

    fn shapes() -> Vec<(&'static str, StepHistogram)> {
        let mut mixture = Mixture::default();
        let schemes = [Scheme::exp2(3).unwrap(), Scheme::LogLinear10];
        for (at, scheme) in schemes.into_iter().enumerate() {
            let mut part = Histogram::new(scheme);
            for value in values().iter().skip(at).step_by(2) {
                part.record(*value);
            }
            mixture.add(&part).unwrap();
        }
        // With a single scheme: merging moves values into the buckets of another scheme.
        let mut alone = Histogram::new(Scheme::exp2(3).unwrap());
        values().into_iter().for_each(|value| alone.record(value));
        let floats = FloatHistogram::from(&alone);
        let bounds = [0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, f64::INFINITY];
        let level = |upper_bound: f64| {
            let count = values().iter().filter(|value| **value <= upper_bound).count() as f64;
            CumulativeBucket { upper_bound, count }
        };
        vec![
            ("distribution", StepHistogram::Native(StepValue::Distribution(Arc::new(mixture)))),
            ("histogram", StepHistogram::Native(StepValue::Histogram(Arc::new(floats)))),
            ("classic", StepHistogram::Classic(bounds.into_iter().map(level).collect())),
        ]
    }

    #[track_caller]
    fn check(what: &str, found: &StepValue, truth: f64) {
        let found = found.bracket().unwrap();
        let tolerance = truth.abs() * 1e-9;
        let is_between = found.lower <= truth + tolerance && truth - tolerance <= found.upper;
        assert!(is_between && found.contains(found.estimate), "{what}: {found:?} of {truth}");
    }

    #[test]
    fn the_truth_lies_within_the_bounds() {
        let mut sorted = values();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let most = |limit: f64| sorted.iter().filter(|value| **value <= limit).count() as f64;
        for (kind, mut shape) in shapes() {
            for percent in 0..=100 {
                let q = f64::from(percent) / 100.0;
                let rank = ((q * n as f64).ceil() as usize).max(1);
                let (value, _, _) = quantile(q, &mut shape);
                check(&format!("{kind} quantile {q}"), &value, sorted[rank - 1]);
            }
            for limit in [-1.0, 0.0, 0.001, 0.0123, 0.25, 0.7, 0.9, 2.0] {
                let below = count_within(f64::NEG_INFINITY, limit, &mut shape);
                check(&format!("{kind} below {limit}"), &below, most(limit));
                let above = count_within(limit, f64::INFINITY, &mut shape);
                check(&format!("{kind} above {limit}"), &above, n as f64 - most(limit));
                let (share, _) = fraction(f64::NEG_INFINITY, limit, &mut shape);
                check(&format!("{kind} share {limit}"), &share, most(limit) / n as f64);
                let within = count_within(limit, limit + 0.1, &mut shape);
                let truth = most(limit + 0.1) - most(limit);
                check(&format!("{kind} from {limit}"), &within, truth);
            }
            check(&format!("{kind} max"), &extreme(&mut shape, true), sorted[n - 1]);
            check(&format!("{kind} min"), &extreme(&mut shape, false), sorted[0]);
            let StepHistogram::Native(value) = shape else { continue };
            let mean = sorted.iter().sum::<f64>() / n as f64;
            let variance = sorted.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
            check(&format!("{kind} count"), &count(&value).unwrap(), n as f64);
            check(&format!("{kind} sum"), &sum(&value).unwrap(), mean * n as f64);
            check(&format!("{kind} avg"), &avg(&value).unwrap(), mean);
            check(&format!("{kind} stdvar"), &stdvar(&value).unwrap(), variance);
            check(&format!("{kind} stddev"), &stddev(&value).unwrap(), variance.sqrt());
        }
    }

    #[test]
    fn measured_distribution_has_exact_extremes() {
        let (_, mut shape) = shapes().remove(0);
        let most = values().into_iter().fold(0.0, f64::max);
        assert_eq!(extreme(&mut shape, true), StepValue::Number(most));
        assert_eq!(quantile(1.0, &mut shape).0, StepValue::Number(most));
        assert_eq!(count_within(most, f64::INFINITY, &mut shape), StepValue::Number(0.0));
        assert_eq!(count_within(2.0, 1.0, &mut shape), StepValue::Number(0.0));
    }

    #[test]
    fn empty_histogram_has_counts_and_no_shares() {
        let mut shape =
            StepHistogram::Native(StepValue::Distribution(Arc::new(Mixture::default())));
        assert_eq!(count_within(1.0, 2.0, &mut shape), StepValue::Number(0.0));
        assert!(quantile(0.5, &mut shape).0.number().unwrap().is_nan());
        assert!(fraction(1.0, 2.0, &mut shape).0.number().unwrap().is_nan());
        assert!(extreme(&mut shape, true).number().unwrap().is_nan());
    }
}
