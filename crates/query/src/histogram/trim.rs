//! Trimming of a histogram at a value: PromQL's `</` and `>/`.
//!
//! A bucket that contains the value is interpolated as for quantiles. The remaining sum is
//! estimated from bucket midpoints, because the values are not stored.

use super::counts::drop_empty;
use super::{Bucket, FloatHistogram};

/// Side that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimSide {
    /// Values below (`</`).
    Below,
    /// Values above (`>/`).
    Above,
}

impl FloatHistogram {
    /// Removes the values on one side of `at`. Count and sum are unchanged if no bucket loses
    /// values.
    pub fn trim(&mut self, at: f64, keep: TrimSide) {
        let linear = self.grid.is_linear();
        let (mut count, mut sum, mut changed) = (0.0, 0.0, false);
        let mut tally = |held: f64, retained_count: f64, middle: f64| {
            count += retained_count;
            sum += middle * retained_count;
            changed |= held != retained_count;
            retained_count
        };
        let (has_positive, has_negative) = (!self.positive.is_empty(), !self.negative.is_empty());
        let positive: Vec<f64> = self
            .positive_buckets()
            .map(|bucket| {
                let (retained_count, middle) = retained(&bucket, at, keep, 1.0, linear);
                tally(bucket.count, retained_count, middle)
            })
            .collect();
        let negative: Vec<f64> = self
            .negative_buckets()
            .map(|bucket| {
                let (retained_count, middle) = retained(&bucket, at, keep, -1.0, linear);
                tally(bucket.count, retained_count, middle)
            })
            .collect();
        if self.zero_count > 0.0 {
            let mut zero = self.zero_bucket();
            if has_negative && !has_positive {
                zero.upper = 0.0;
            }
            if has_positive && !has_negative {
                zero.lower = 0.0;
            }
            let (retained_count, middle) = retained_of_zero(&zero, at, keep);
            self.zero_count = tally(zero.count, retained_count, middle);
        }
        if !changed {
            return;
        }
        (self.count, self.sum) = (count, sum);
        for (side, retained_count) in
            [(&mut self.positive, positive), (&mut self.negative, negative)]
        {
            for (bucket, retained_count) in side.iter_mut().zip(retained_count) {
                bucket.1 = retained_count;
            }
            drop_empty(side);
        }
    }
}

/// Retained count of a bucket, and the midpoint of the retained values.
fn retained(bucket: &Bucket, at: f64, keep: TrimSide, sign: f64, linear: bool) -> (f64, f64) {
    let Bucket { lower, upper, count, .. } = *bucket;
    let (all, some) = match keep {
        TrimSide::Below => (upper <= at, lower < at),
        TrimSide::Above => (lower >= at, upper > at),
    };
    if all {
        return (count, middle(lower, upper, sign, linear));
    }
    if !some {
        return (0.0, 0.0);
    }
    if lower == f64::NEG_INFINITY {
        return retained_of_lowest(upper, count, at, keep);
    }
    if upper == f64::INFINITY {
        // The bucket has no upper bound, so the position of its values is unknown. Values above are
        // all kept.
        return match keep {
            TrimSide::Below => (0.0, lower),
            TrimSide::Above => (count, at),
        };
    }
    let below = count * bucket.fraction_below(at, linear);
    match keep {
        TrimSide::Below => (below, middle(lower, at, sign, linear)),
        TrimSide::Above => (count - below, middle(at, upper, sign, linear)),
    }
}

/// Retained part of a bucket without a lower bound that contains `at`. It starts at 0 if its upper
/// bound is positive; otherwise the position of its values is unknown.
fn retained_of_lowest(upper: f64, count: f64, at: f64, keep: TrimSide) -> (f64, f64) {
    let known = if upper.is_infinite() { 0.0 } else { upper };
    match keep {
        TrimSide::Below if at > 0.0 && upper.is_finite() => (count * at / upper, at / 2.0),
        TrimSide::Below if upper <= 0.0 => (count, at),
        TrimSide::Above if at >= 0.0 && upper.is_finite() => {
            (count * (1.0 - at / upper), (at + upper) / 2.0)
        }
        _ => (0.0, known),
    }
}

/// Retained part of the zero bucket, whose values are evenly spread.
fn retained_of_zero(zero: &Bucket, at: f64, keep: TrimSide) -> (f64, f64) {
    let Bucket { lower, upper, count, .. } = *zero;
    let (all, none) = match keep {
        // If both bounds equal the value, `</` keeps nothing and `>/` everything.
        TrimSide::Below => (at > lower && at >= upper, at <= lower),
        TrimSide::Above => (at <= lower, at >= upper),
    };
    if all {
        return (count, (lower + upper) / 2.0);
    }
    if none {
        return (0.0, 0.0);
    }
    let (part, middle) = match keep {
        TrimSide::Below => ((at - lower) / (upper - lower), (lower + at) / 2.0),
        TrimSide::Above => ((upper - at) / (upper - lower), (at + upper) / 2.0),
    };
    (count * part, middle)
}

/// Mean of the values between two bounds.
fn middle(lower: f64, upper: f64, sign: f64, linear: bool) -> f64 {
    match (lower.is_infinite(), upper.is_infinite()) {
        (true, true) => 0.0,
        (true, false) if upper > 0.0 => upper / 2.0,
        (true, false) => upper,
        (false, true) => lower,
        (false, false) if linear => (lower + upper) / 2.0,
        (false, false) => sign * (lower * upper).abs().sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::parse_description;

    #[track_caller]
    fn check(before: &str, at: f64, keep: TrimSide, expected: &str) {
        let mut histogram = parse_description(before).unwrap().histogram;
        histogram.trim(at, keep);
        assert_eq!(histogram.to_string(), expected);
    }

    #[test]
    fn between_buckets_whole_ones_go() {
        let all = "{{count:6 sum:9 offset:1 buckets:[1 2 3]}}";
        check(all, 4.0, TrimSide::Below, "{count:3, sum:7.0710678118654755, (1,2]:1, (2,4]:2}");
        check(all, 4.0, TrimSide::Above, "{count:3, sum:16.970562748477143, (4,8]:3}");
        check(all, 1.0, TrimSide::Above, "{count:6, sum:9, (1,2]:1, (2,4]:2, (4,8]:3}");
        check(all, 0.5, TrimSide::Below, "{count:0, sum:0}");
    }

    #[test]
    fn a_cut_bucket_is_interpolated() {
        let custom = "{{schema:-53 count:4 sum:9 custom_values:[2 4] buckets:[1 2 1]}}";
        check(custom, 3.0, TrimSide::Below, "{count:2, sum:3.5, [-Inf,2]:1, (2,4]:1}");
        check(custom, 1.0, TrimSide::Below, "{count:0.5, sum:0.25, [-Inf,2]:0.5}");
        check(
            custom,
            1.0,
            TrimSide::Above,
            "{count:3.5, sum:10.75, [-Inf,2]:0.5, (2,4]:2, (4,+Inf]:1}",
        );
        check(custom, 9.0, TrimSide::Below, "{count:3, sum:7, [-Inf,2]:1, (2,4]:2}");
        check(custom, 9.0, TrimSide::Above, "{count:1, sum:9, (4,+Inf]:1}");
    }

    #[test]
    fn zero_bucket_is_one_sided_without_negatives() {
        let both = "{{count:6 sum:0 z_bucket:4 z_bucket_w:1 offset:1 buckets:[1] n_offset:1 \
                    n_buckets:[1]}}";
        let one = "{{count:5 sum:0 z_bucket:4 z_bucket_w:1 offset:1 buckets:[1]}}";
        check(both, 0.0, TrimSide::Below, "{count:3, sum:-2.414213562373095, [-2,-1):1, [-1,1]:2}");
        check(one, 0.0, TrimSide::Below, "{count:0, sum:0}");
        check(one, 0.5, TrimSide::Below, "{count:2, sum:0.5, [-1,1]:2}");
    }
}
