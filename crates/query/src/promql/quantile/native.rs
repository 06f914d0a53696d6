//! Native histograms: quantiles and shares by interpolation within a bucket, the mean and what lies around it.

use super::{Bracketed, out_of_range, slack};
use crate::histogram::{Bucket, FloatHistogram, Grid, Kahan, add_compensated, exp2, log2};

/// What values that are not numbers did to an answer; worth a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NanNote {
    /// The quantile lies among them, so it is NaN.
    Result,
    /// They count as the greatest values, so the quantile is higher than without them.
    Skew,
    /// They are in no share of values, so shares add up to less than 1.
    Left,
}

/// `histogram_quantile` of a native histogram. NaN where nothing is counted.
pub fn quantile(q: f64, histogram: &FloatHistogram) -> (Bracketed, Option<NanNote>) {
    if let Some(answer) = out_of_range(q).filter(|answer| !answer.is_nan()) {
        return (Bracketed::exact(answer), None);
    }
    if histogram.count == 0.0 || q.is_nan() {
        return (Bracketed::exact(f64::NAN), None);
    }
    let has_nan = histogram.sum.is_nan();
    // What is not a number is above all others, so that only a walk from below knows where it is.
    let (estimate, note) = if has_nan || q < 0.5 {
        let rank = q * histogram.count;
        estimate(rank, false, histogram.buckets(), histogram)
    } else {
        let rank = (1.0 - q) * histogram.count;
        estimate(rank, true, histogram.buckets().rev(), histogram)
    };
    if estimate.is_nan() {
        return (Bracketed::exact(estimate), note);
    }
    let (lower, upper) = bounds_of_rank(q * histogram.count, histogram);
    (Bracketed::new(lower, estimate, upper), note)
}

/// Prometheus' number: a walk to the bucket where the rank is, and its place within it.
fn estimate(
    rank: f64,
    from_above: bool,
    mut buckets: impl Iterator<Item = Bucket>,
    histogram: &FloatHistogram,
) -> (f64, Option<NanNote>) {
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
    let bucket = last.unwrap_or(Bucket {
        lower: 0.0,
        upper: 0.0,
        lower_inclusive: false,
        upper_inclusive: false,
        count: 0.0,
    });
    let Some(Bucket { lower, upper, .. }) = assumed(bucket, histogram) else {
        let end = if bucket.lower.is_infinite() { bucket.upper } else { bucket.lower };
        return (end, None);
    };
    let reached = if count > histogram.count { histogram.count } else { count };
    if reached < rank {
        // Values that are not numbers are in no bucket; else it is rounding.
        let beyond = if has_nan { f64::NAN } else { upper };
        return (beyond, has_nan.then_some(NanNote::Result));
    }
    let into = if from_above { reached - rank } else { rank - (reached - bucket.count) };
    let note = has_nan.then(|| buckets.fold(reached, |sum, bucket| sum + bucket.count));
    let note = note.filter(|&held| held < histogram.count).map(|_| NanNote::Skew);
    (interpolated(lower, upper, into / bucket.count, &histogram.grid), note)
}

/// The bucket as Prometheus takes it: the zero bucket is one-sided if all others are, and so is the lowest
/// custom bucket. `None` where a custom bucket has but one end.
fn assumed(mut bucket: Bucket, histogram: &FloatHistogram) -> Option<Bucket> {
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

/// What lies `fraction` of the way through a bucket.
fn interpolated(lower: f64, upper: f64, fraction: f64, grid: &Grid) -> f64 {
    if matches!(grid, Grid::Native(_)) && (lower.is_infinite() || upper.is_infinite()) {
        // Beyond a grid there is but one end.
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

/// The ends of the buckets that the value of a rank may be in: two of them, where it lies between.
fn bounds_of_rank(rank: f64, histogram: &FloatHistogram) -> (f64, f64) {
    let slack = slack(histogram.count);
    let (mut lower, mut upper) = (f64::NAN, f64::NAN);
    let mut below = 0.0;
    for bucket in histogram.buckets() {
        below += bucket.count;
        if lower.is_nan() && below >= rank - slack {
            lower = bucket.lower;
        }
        upper = bucket.upper;
        if below > rank + slack {
            break;
        }
    }
    // What is in no bucket is not a number, or rounding: the estimate widens the bounds.
    (if lower.is_nan() { upper } else { lower }, upper)
}

/// `histogram_fraction` of a native histogram: the share of values between two bounds. NaN where nothing is
/// counted.
pub fn fraction(
    lower: f64,
    upper: f64,
    histogram: &FloatHistogram,
) -> (Bracketed, Option<NanNote>) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (Bracketed::exact(f64::NAN), None);
    }
    if lower >= upper {
        return (Bracketed::exact(0.0), None);
    }
    let has_nan = histogram.sum.is_nan();
    let held = histogram.buckets().fold(0.0, |sum, bucket| sum + bucket.count);
    let note = (has_nan && held < histogram.count).then_some(NanNote::Left);
    let count = if has_nan { held } else { histogram.count };
    let rank = |value| match rank_of(value, histogram) {
        Some(rank) if rank <= count || rank.is_nan() => rank,
        _ => count,
    };
    let estimate = (rank(upper) - rank(lower)) / histogram.count;
    let ((low_least, low_most), (high_least, high_most)) =
        (bounds_below(lower, histogram), bounds_below(upper, histogram));
    let least = (high_least - low_most).max(0.0) / histogram.count;
    (Bracketed::new(least, estimate, (high_most - low_least) / histogram.count), note)
}

/// How many values lie below `value`, by interpolation; `None` if all do.
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

/// How many values lie below `value` at least and at most.
fn bounds_below(value: f64, histogram: &FloatHistogram) -> (f64, f64) {
    let (mut least, mut most) = (0.0, 0.0);
    for bucket in histogram.buckets() {
        if bucket.upper <= value {
            least += bucket.count;
        }
        if bucket.lower < value {
            most += bucket.count;
        }
    }
    (least, most)
}

/// `histogram_avg` of a native histogram.
pub fn average(histogram: &FloatHistogram) -> Bracketed {
    Bracketed::exact(histogram.sum / histogram.count)
}

/// `histogram_stdvar` of a native histogram: the mean square of the distance from the mean, each value taken
/// to be in the middle of its bucket. Its bounds have each at the nearest and the farthest end.
pub fn variance(histogram: &FloatHistogram) -> Bracketed {
    let mean = histogram.sum / histogram.count;
    let mut sum = Kahan::default();
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
    let estimate = (sum.sum + sum.lost) / histogram.count;
    // The bounds are sums of rounded squares, so they are moved outwards.
    let doubt = 1e-12;
    Bracketed::new(
        least / histogram.count * (1.0 - doubt),
        estimate,
        most / histogram.count * (1.0 + doubt),
    )
}

/// `histogram_stddev` of a native histogram, the root of [`variance`].
pub fn stddev(histogram: &FloatHistogram) -> Bracketed {
    let Bracketed { estimate, lower, upper } = variance(histogram);
    Bracketed::new(lower.sqrt(), estimate.sqrt(), upper.sqrt())
}
