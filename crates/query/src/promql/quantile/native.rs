//! Native histograms: quantiles and fractions by interpolation within a bucket; mean and variance.

use super::{StatisticEstimate, out_of_range, slack};
use crate::histogram::{
    Bucket, BucketCount, BucketGrid, FloatHistogram, KahanSum, add_compensated, exp2, log2,
};

/// Effect of NaN observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanEffect {
    /// The quantile falls on NaN observations, so it is NaN.
    Result,
    /// NaN observations count as the greatest values, so the quantile is higher than without them.
    Skew,
    /// NaN observations are in no fraction, so fractions add up to less than 1.
    Excluded,
}

/// `histogram_quantile` of a native histogram: infinite if `q` is out of range, else NaN if the
/// histogram is empty.
///
/// With NaN observations, Prometheus 3.15 finds the right bucket for the rank but interpolates
/// within the last one, because it reuses the variable. That number is meaningless, so this
/// function interpolates within the bucket of the rank.
pub fn quantile(q: f64, histogram: &FloatHistogram) -> (StatisticEstimate, Option<NanEffect>) {
    if let Some(answer) = out_of_range(q).filter(|answer| !answer.is_nan()) {
        return (StatisticEstimate::exact(answer), None);
    }
    if histogram.count == 0.0 || q.is_nan() {
        return (StatisticEstimate::exact(f64::NAN), None);
    }
    let has_nan = histogram.sum.is_nan();
    // NaN observations sort above all others, so only a scan from below finds the rank.
    let (estimate, note) = if has_nan || q < 0.5 {
        let rank = q * histogram.count;
        estimate(rank, false, histogram.bucket_counts(), histogram)
    } else {
        let rank = (1.0 - q) * histogram.count;
        estimate(rank, true, histogram.bucket_counts().rev(), histogram)
    };
    if estimate.is_nan() {
        return (StatisticEstimate::exact(estimate), note);
    }
    let (lower, upper) = bounds_of_rank(q * histogram.count, histogram);
    (StatisticEstimate::new(lower, estimate, upper), note)
}

const NO_BUCKET: Bucket =
    Bucket { lower: 0.0, upper: 0.0, lower_inclusive: false, upper_inclusive: false, count: 0.0 };

/// Prometheus' estimate: finds the bucket of the rank and interpolates within it.
fn estimate(
    rank: f64,
    from_above: bool,
    mut buckets: impl Iterator<Item = BucketCount>,
    histogram: &FloatHistogram,
) -> (f64, Option<NanEffect>) {
    let has_nan = histogram.sum.is_nan();
    let mut count = 0.0;
    let mut last = None;
    for bucket in &mut buckets {
        count += bucket.count;
        last = Some(bucket);
        if count >= rank {
            break;
        }
    }
    let bucket = last.map_or(NO_BUCKET, |last| histogram.bucket(last));
    let Some(Bucket { lower, upper, .. }) = as_prometheus_bucket(bucket, histogram) else {
        let end = if bucket.lower.is_infinite() { bucket.upper } else { bucket.lower };
        return (end, None);
    };
    let reached = if count > histogram.count { histogram.count } else { count };
    if reached < rank {
        // NaN observations are in no bucket; otherwise it is a rounding error.
        let beyond = if has_nan { f64::NAN } else { upper };
        return (beyond, has_nan.then_some(NanEffect::Result));
    }
    let into = if from_above { reached - rank } else { rank - (reached - bucket.count) };
    let note = has_nan.then(|| buckets.fold(reached, |sum, bucket| sum + bucket.count));
    let note = note.filter(|&held| held < histogram.count).map(|_| NanEffect::Skew);
    (interpolated(lower, upper, into / bucket.count, &histogram.grid), note)
}

/// Bucket as Prometheus takes it: the zero bucket is one-sided if all others are, and so is the
/// lowest custom bucket. `None` for a custom bucket with only one finite bound.
fn as_prometheus_bucket(mut bucket: Bucket, histogram: &FloatHistogram) -> Option<Bucket> {
    if histogram.grid.is_custom() {
        if bucket.lower == f64::NEG_INFINITY {
            if bucket.upper <= 0.0 {
                return None;
            }
            bucket.lower = 0.0;
        } else if bucket.upper == f64::INFINITY {
            return None;
        }
    } else if bucket.lower < 0.0 && bucket.upper > 0.0 {
        one_sided(&mut bucket, histogram);
    }
    Some(bucket)
}

fn one_sided(bucket: &mut Bucket, histogram: &FloatHistogram) {
    match (histogram.negative.is_empty(), histogram.positive.is_empty()) {
        (true, false) => bucket.lower = 0.0,
        (false, true) => bucket.upper = 0.0,
        _ => {}
    }
}

/// Value at `fraction` of a bucket.
fn interpolated(lower: f64, upper: f64, fraction: f64, grid: &BucketGrid) -> f64 {
    if matches!(grid, BucketGrid::Scheme(_)) && (lower.is_infinite() || upper.is_infinite()) {
        // Beyond the grid, only one bound is finite.
        return if lower.is_infinite() { upper } else { lower };
    }
    if grid.is_linear() || lower <= 0.0 && upper >= 0.0 {
        return lower + (upper - lower) * fraction;
    }
    let (log_lower, log_upper) = (log2(lower.abs()), log2(upper.abs()));
    if lower > 0.0 {
        exp2(log_lower + (log_upper - log_lower) * fraction)
    } else {
        -exp2(log_upper + (log_lower - log_upper) * (1.0 - fraction))
    }
}

/// Bounds of the buckets that may contain the value of a rank: of two buckets if the rank is
/// between them.
fn bounds_of_rank(rank: f64, histogram: &FloatHistogram) -> (f64, f64) {
    let slack = slack(histogram.count);
    let (mut first, mut last) = (None, None);
    let mut below = 0.0;
    for bucket in histogram.bucket_counts() {
        below += bucket.count;
        if first.is_none() && below >= rank - slack {
            first = Some(bucket);
        }
        last = Some(bucket);
        if below > rank + slack {
            break;
        }
    }
    let bound = |bucket: Option<BucketCount>, of: fn(Bucket) -> f64| {
        bucket.map_or(f64::NAN, |bucket| of(histogram.bucket(bucket)))
    };
    let (lower, upper) = (bound(first, |bucket| bucket.lower), bound(last, |bucket| bucket.upper));
    // A rank in no bucket is a NaN observation or a rounding error: the estimate widens the bounds.
    (if lower.is_nan() { upper } else { lower }, upper)
}

/// `histogram_fraction` of a native histogram: the share of values between two bounds. NaN if it is
/// empty.
pub fn fraction(
    lower: f64,
    upper: f64,
    histogram: &FloatHistogram,
) -> (StatisticEstimate, Option<NanEffect>) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (StatisticEstimate::exact(f64::NAN), None);
    }
    if lower >= upper {
        return (StatisticEstimate::exact(0.0), None);
    }
    let has_nan = histogram.sum.is_nan();
    let count = match has_nan {
        true => histogram.bucket_counts().fold(0.0, |sum, bucket| sum + bucket.count),
        false => histogram.count,
    };
    let note = (has_nan && count < histogram.count).then_some(NanEffect::Excluded);
    let below = |value| {
        let (rank, bounds) = match is_above_zero_bucket(value, histogram) {
            true => above_zero_bucket(value, histogram),
            false => (rank_of(value, histogram), bounds_below(value, histogram)),
        };
        let rank = rank.filter(|rank| *rank <= count || rank.is_nan());
        (rank.unwrap_or(count), bounds)
    };
    let (low_rank, (low_least, low_most)) = below(lower);
    let (high_rank, (high_least, high_most)) = below(upper);
    let estimate = (high_rank - low_rank) / histogram.count;
    let least = (high_least - low_most).max(0.0) / histogram.count;
    (StatisticEstimate::new(least, estimate, (high_most - low_least) / histogram.count), note)
}

/// As [`rank_of`] and [`bounds_below`], which take any value.
fn above_zero_bucket(value: f64, histogram: &FloatHistogram) -> (Option<f64>, (f64, f64)) {
    let (least, next) = histogram.count_up_to(value);
    let Some(next) = next else { return (None, (least, least)) };
    if next.lower >= value {
        return (Some(least), (least, least));
    }
    let linear = histogram.grid.is_linear() || next.lower <= 0.0;
    let rank = least + next.count * next.fraction_below(value, linear);
    (Some(rank), (least, least + next.count))
}

/// Number of values below `value`, by interpolation; `None` if all are.
fn rank_of(value: f64, histogram: &FloatHistogram) -> Option<f64> {
    let mut rank = 0.0;
    for mut bucket in histogram.buckets() {
        let around_zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
        if around_zero {
            one_sided(&mut bucket, histogram);
        }
        if bucket.lower >= value {
            return Some(rank);
        }
        if bucket.upper > value {
            let linear = histogram.grid.is_linear() || around_zero;
            return Some(if linear && bucket.lower == f64::NEG_INFINITY {
                bucket.count
            } else {
                rank + bucket.count * bucket.fraction_below(value, linear)
            });
        }
        rank += bucket.count;
    }
    None
}

/// Lower and upper bound of the number of values below `value`.
fn bounds_below(value: f64, histogram: &FloatHistogram) -> (f64, f64) {
    let (mut least, mut most) = (0.0, 0.0);
    for bucket in histogram.buckets() {
        if bucket.upper <= value {
            least += bucket.count;
        }
        // For a bucket of width 0, as the zero bucket may be, both bounds apply at its value.
        if bucket.lower < value || bucket.upper <= value {
            most += bucket.count;
        }
        // So are all later ones.
        if bucket.lower > value && bucket.upper > value {
            break;
        }
    }
    (least, most)
}

/// Whether [`FloatHistogram::count_up_to`] applies to a value.
fn is_above_zero_bucket(value: f64, histogram: &FloatHistogram) -> bool {
    value > histogram.zero_threshold && !histogram.grid.is_custom()
}

/// `histogram_avg` of a native histogram.
pub fn average(histogram: &FloatHistogram) -> StatisticEstimate {
    StatisticEstimate::exact(histogram.sum / histogram.count)
}

/// `histogram_stdvar` of a native histogram: the mean squared distance from the mean, with each
/// value at the middle of its bucket: the geometric mean of its edges if buckets are exponential, 0
/// in the zero bucket. The bounds take each value at the nearest and at the
/// farthest edge.
pub fn variance(histogram: &FloatHistogram) -> StatisticEstimate {
    let mean = histogram.sum / histogram.count;
    let mut sum = KahanSum::default();
    let (mut least, mut most) = (0.0, 0.0);
    for bucket in histogram.buckets() {
        let Bucket { lower, upper, count, .. } = bucket;
        let middle = if histogram.grid.is_linear() {
            (upper + lower) / 2.0
        } else if lower <= 0.0 && upper >= 0.0 {
            0.0
        } else {
            (upper * lower).sqrt().copysign(upper)
        };
        let delta = middle - mean;
        sum = add_compensated(count * delta * delta, sum);
        let nearest = (lower - mean).max(mean - upper).max(0.0);
        let farthest = (mean - lower).max(upper - mean);
        least += count * nearest * nearest;
        most += count * farthest * farthest;
    }
    let estimate = (sum.sum + sum.compensation) / histogram.count;
    // The bounds are sums of rounded squares, so they are moved outwards.
    let tolerance = 1e-12;
    StatisticEstimate::new(
        least / histogram.count * (1.0 - tolerance),
        estimate,
        most / histogram.count * (1.0 + tolerance),
    )
}

/// `histogram_stddev` of a native histogram, the square root of [`variance`].
pub fn stddev(histogram: &FloatHistogram) -> StatisticEstimate {
    let StatisticEstimate { estimate, lower, upper } = variance(histogram);
    StatisticEstimate::new(lower.sqrt(), estimate.sqrt(), upper.sqrt())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::histogram::parse_description;

    fn read(text: &str) -> FloatHistogram {
        parse_description(text).unwrap().histogram
    }

    #[track_caller]
    fn check(text: &str, q: f64, lower: f64, estimate: f64, upper: f64) {
        let (found, _) = quantile(q, &read(text));
        assert_eq!(found, StatisticEstimate { estimate, lower, upper });
    }

    #[track_caller]
    fn check_fraction(text: &str, from: f64, to: f64, lower: f64, estimate: f64, upper: f64) {
        let (found, _) = fraction(from, to, &read(text));
        assert_eq!(found, StatisticEstimate { estimate, lower, upper });
    }

    #[test]
    fn quantiles_are_interpolated_by_logarithm() {
        let one = "{{count:12 sum:100 buckets:[0 12]}}";
        // Prometheus' logarithm and power are off by one ulp here, and so are ours.
        check(one, 0.5, 1.0, 2f64.sqrt().next_down(), 2.0);
        check(one, 1.0, 1.0, 2.0, 2.0);
        check("{{count:12 sum:-9 n_buckets:[0 12]}}", 0.5, -2.0, -2f64.sqrt().next_down(), -1.0);
    }

    #[test]
    fn a_rank_between_two_buckets_may_be_in_either() {
        check("{{count:4 sum:9 buckets:[2 0 2]}}", 0.5, 0.5, 2.0, 4.0);
        check("{{count:4 sum:9 buckets:[2 0 2]}}", 0.25, 0.5, 0.7071067811865475, 1.0);
    }

    #[test]
    fn the_bounds_of_the_zero_bucket_are_its_own() {
        check("{{count:4 sum:9 z_bucket:4 z_bucket_w:1}}", 0.25, -1.0, -0.5, 1.0);
        let beside = "{{count:5 sum:9 z_bucket:4 z_bucket_w:1 offset:1 buckets:[1]}}";
        check(beside, 0.4, -1.0, 0.5, 1.0);
    }

    #[test]
    fn custom_buckets_are_interpolated_evenly() {
        let text = "{{schema:-53 count:8 sum:9 custom_values:[2 4] buckets:[2 4 2]}}";
        check(text, 0.125, f64::NEG_INFINITY, 1.0, 2.0);
        check(text, 0.5, 2.0, 3.0, 4.0);
        check(text, 1.0, 4.0, 4.0, f64::INFINITY);
    }

    #[test]
    fn nan_values_are_warned_about() {
        let text = "{{count:15 sum:NaN buckets:[0 6 6]}}";
        let (found, note) = quantile(0.2, &read(text));
        assert_eq!((found.lower, found.upper, note), (1.0, 2.0, Some(NanEffect::Skew)));
        assert_eq!(found.estimate, 2f64.sqrt().next_down());
        let (found, note) = quantile(0.9, &read(text));
        assert!(found.estimate.is_nan() && note == Some(NanEffect::Result));
        let (found, note) = fraction(f64::NEG_INFINITY, f64::INFINITY, &read(text));
        assert_eq!((found, note), (StatisticEstimate::exact(0.8), Some(NanEffect::Excluded)));
    }

    #[test]
    fn fractions() {
        let text = "{{count:4 sum:9 buckets:[1 1 2]}}";
        check_fraction(text, 1.0, 4.0, 0.75, 0.75, 0.75);
        check_fraction(text, 2f64.sqrt(), f64::INFINITY, 0.5, 0.625, 0.75);
        check_fraction(text, 2.0, 1.0, 0.0, 0.0, 0.0);
        check_fraction(text, 2.1, 3.9, 0.0, fraction(2.1, 3.9, &read(text)).0.estimate, 0.5);
    }

    #[test]
    fn mean_and_spread() {
        let text = "{{count:2 sum:4 offset:1 buckets:[2]}}";
        assert_eq!(average(&read(text)), StatisticEstimate::exact(2.0));
        let found = variance(&read(text));
        assert!((found.estimate - (2f64.sqrt() - 2.0).powi(2)).abs() < 1e-15);
        assert!(found.lower == 0.0 && (found.upper - 1.0).abs() < 1e-11);
        assert_eq!(stddev(&read(text)).estimate, found.estimate.sqrt());
        assert!(variance(&read("{{}}")).estimate.is_nan());
    }

    proptest! {
        #[test]
        fn brackets_contain_the_true_value(
            scheme in 0..6,
            mut values in prop::collection::vec(-1e3..1e4f64, 1..60),
            q in 0.0..=1.0f64,
            ends in (-2e3..1e4f64, -2e3..1e4f64),
        ) {
            let scheme = match scheme {
                0 => hist::Scheme::exp2(3),
                1 => hist::Scheme::exp2(-7),
                2 => hist::Scheme::log_linear2(4),
                3 => hist::Scheme::log(0.01),
                4 => hist::Scheme::explicit(&[-5.0, 0.0, 10.0, 500.0]),
                _ => Ok(hist::Scheme::LogLinear10),
            };
            let mut recorded = hist::Histogram::new(scheme.unwrap());
            values.iter().for_each(|&value| recorded.record(value));
            values.sort_by(f64::total_cmp);
            let float = FloatHistogram::from(&recorded);
            let n = values.len() as f64;
            // Edges of logarithmic grids are rounded.
            let near = |x: f64| x.abs() * 1e-11;

            let (found, _) = quantile(q, &float);
            prop_assert!(found.lower <= found.estimate && found.estimate <= found.upper);
            let rank = (q * n).ceil().max(1.0) as usize;
            let truth = values[rank - 1];
            prop_assert!(
                found.lower - near(truth) <= truth && truth <= found.upper + near(truth),
                "{truth} is not in {found:?}"
            );

            let (from, to) = (ends.0.min(ends.1), ends.0.max(ends.1));
            let truth = values.iter().filter(|&&v| from < v && v <= to).count() as f64 / n;
            let (found, _) = fraction(from, to, &float);
            prop_assert!(found.lower <= found.estimate && found.estimate <= found.upper);
            prop_assert!(
                found.lower - 1e-12 <= truth && truth <= found.upper + 1e-12,
                "{truth} is not in {found:?}"
            );

            let mean = values.iter().sum::<f64>() / n;
            let truth = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            let found = variance(&float);
            prop_assert!(found.lower - truth * 1e-9 <= truth && truth <= found.upper * (1.0 + 1e-9) + 1e-6);
        }
    }
}
