//! Classic histograms: cumulative counts by upper bound, the label `le`.

use super::{StatisticEstimate, out_of_range, slack};

/// Relative difference below which counts are taken as equal: rounding of rates causes such
/// differences.
const TOLERANCE: f64 = 1e-12;

/// Cumulative count at an upper bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CumulativeBucket {
    /// Upper bound; infinity for the last bucket.
    pub upper_bound: f64,
    /// Number of values at or below the bound.
    pub count: f64,
}

/// Result of making cumulative counts monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MonotonicFix {
    /// Counts that decreased by more than a rounding error were raised.
    pub forced: Option<ForcedMonotonic>,
    /// Counts that differed by a rounding error were made equal.
    pub small_differences: bool,
}

/// Counts that decreased and were raised to the previous maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForcedMonotonic {
    /// Lowest bound with a raised count.
    pub min_bound: f64,
    /// Highest bound with a raised count.
    pub max_bound: f64,
    /// Maximum increase of a count.
    pub max_difference: f64,
}

/// `histogram_quantile` of a classic histogram. Buckets may be in any order; they are left sorted,
/// with monotonic counts and unique bounds.
///
/// NaN if there are fewer than two buckets, no `+Inf` bucket, or no values.
pub(crate) fn classic_quantile(
    q: f64,
    levels: &mut Vec<CumulativeBucket>,
) -> (StatisticEstimate, MonotonicFix) {
    if let Some(answer) = out_of_range(q) {
        return (StatisticEstimate::exact(answer), MonotonicFix::default());
    }
    let unknown = StatisticEstimate::exact(f64::NAN);
    if !sort_to_infinity(levels) {
        return (unknown, MonotonicFix::default());
    }
    let repair = make_monotonic(levels);
    let [.., second, last] = levels.as_slice() else { return (unknown, repair) };
    if last.count == 0.0 {
        return (unknown, repair);
    }
    let rank = q * last.count;
    let below_last = levels.len() - 1;
    let is_reached = |level: &CumulativeBucket| level.count >= rank;
    let at = levels[..below_last].partition_point(|level| !is_reached(level));
    let estimate = if at == below_last {
        second.upper_bound
    } else if at == 0 && levels[0].upper_bound <= 0.0 {
        levels[0].upper_bound
    } else {
        let before = at.checked_sub(1).map(|before| levels[before]);
        let CumulativeBucket { upper_bound: start, count: under } =
            before.unwrap_or(CumulativeBucket { upper_bound: 0.0, count: 0.0 });
        let CumulativeBucket { upper_bound: end, count } = levels[at];
        start + (end - start) * ((rank - under) / (count - under))
    };
    // A rank at the end of a bucket may equally be at the start of the next non-empty one.
    let slack = slack(last.count);
    let first = levels.partition_point(|level| level.count < rank - slack).min(at);
    let end = levels.partition_point(|level| level.count <= rank + slack).clamp(at, below_last);
    let lower = if first == 0 { f64::NEG_INFINITY } else { levels[first - 1].upper_bound };
    (StatisticEstimate::new(lower, estimate, levels[end].upper_bound), repair)
}

/// `histogram_fraction` of a classic histogram: the share of values between two bounds. Buckets are
/// left sorted with unique bounds.
pub(crate) fn classic_fraction(
    lower: f64,
    upper: f64,
    levels: &mut Vec<CumulativeBucket>,
) -> StatisticEstimate {
    let unknown = StatisticEstimate::exact(f64::NAN);
    if !sort_to_infinity(levels) {
        return unknown;
    }
    let Some(&CumulativeBucket { count, .. }) = levels.last() else { return unknown };
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return unknown;
    }
    if lower >= upper {
        return StatisticEstimate::exact(0.0);
    }
    let ([low_rank, low_least, low_most], [high_rank, high_least, high_most]) =
        (rank_of(lower, levels), rank_of(upper, levels));
    // Increases that are rounded can make a bucket larger than the next one.
    let not_negative = |values: f64| if count > 0.0 { values.max(0.0) } else { values };
    StatisticEstimate::new(
        (high_least - low_most).max(0.0) / count,
        not_negative(high_rank.min(count) - low_rank.min(count)) / count,
        not_negative(high_most - low_least) / count,
    )
}

/// Number of values at or below `value`: Prometheus' estimate, lower bound, upper bound.
fn rank_of(value: f64, levels: &[CumulativeBucket]) -> [f64; 3] {
    let start = if levels[0].upper_bound > 0.0 { 0.0 } else { f64::NEG_INFINITY };
    let mut before = CumulativeBucket { upper_bound: start, count: 0.0 };
    // The lowest bucket starts at minus infinity, whatever Prometheus assumes.
    let mut is_lowest = true;
    for &level in levels {
        let reaches = |bound: f64| if is_lowest { f64::NEG_INFINITY } else { bound };
        if level.upper_bound <= value {
            before = level;
            is_lowest = false;
            continue;
        }
        let rank = if before.upper_bound >= value {
            before.count
        } else if before.upper_bound == f64::NEG_INFINITY {
            level.count
        } else {
            before.count
                + (level.count - before.count) * (value - before.upper_bound)
                    / (level.upper_bound - before.upper_bound)
        };
        let most = if reaches(before.upper_bound) < value { level.count } else { before.count };
        return [rank, before.count, most];
    }
    [before.count; 3]
}

/// Sorts by bound and merges equal bounds. Returns whether the last bound is infinity.
fn sort_to_infinity(levels: &mut Vec<CumulativeBucket>) -> bool {
    model::sort::by(levels, |a, b| a.upper_bound.total_cmp(&b.upper_bound));
    levels.dedup_by(|next, kept| {
        let same = next.upper_bound == kept.upper_bound;
        if same {
            kept.count += next.count;
        }
        same
    });
    levels.last().is_some_and(|last| last.upper_bound == f64::INFINITY)
}

/// Makes the counts monotonic.
fn make_monotonic(levels: &mut [CumulativeBucket]) -> MonotonicFix {
    let mut repair = MonotonicFix::default();
    let Some((first, rest)) = levels.split_first_mut() else { return repair };
    let mut before = first.count;
    for level in rest {
        if level.count == before {
            continue;
        }
        if almost_equal(before, level.count) {
            repair.small_differences = true;
        } else if level.count < before {
            let difference = before - level.count;
            let forced = repair.forced.get_or_insert(ForcedMonotonic {
                min_bound: f64::INFINITY,
                max_bound: f64::NEG_INFINITY,
                max_difference: 0.0,
            });
            forced.min_bound = forced.min_bound.min(level.upper_bound);
            forced.max_bound = forced.max_bound.max(level.upper_bound);
            forced.max_difference = forced.max_difference.max(difference);
        } else {
            before = level.count;
            continue;
        }
        level.count = before;
    }
    repair
}

/// Whether two counts differ by no more than a rounding error.
fn almost_equal(a: f64, b: f64) -> bool {
    if a.is_nan() && b.is_nan() || a == b {
        return true;
    }
    let size = a.abs() + b.abs();
    let difference = (a - b).abs();
    if a == 0.0 || b == 0.0 || size < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / size.min(f64::MAX) < TOLERANCE
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INF: f64 = f64::INFINITY;

    fn levels(levels: &[(f64, f64)]) -> Vec<CumulativeBucket> {
        levels.iter().map(|&(upper_bound, count)| CumulativeBucket { upper_bound, count }).collect()
    }

    #[track_caller]
    fn check(given: &[(f64, f64)], q: f64, lower: f64, estimate: f64, upper: f64) {
        let (found, repair) = classic_quantile(q, &mut levels(given));
        assert_eq!(found, StatisticEstimate { estimate, lower, upper });
        assert_eq!(repair, MonotonicFix::default());
    }

    /// A user saw a count from -1.777e-15 to 5.
    #[test]
    fn shares_of_rounded_increases_are_not_negative() {
        let mut given = levels(&[(0.25, 0.0), (0.5, 5.000_000_000_000_002), (INF, 5.0)]);
        let found = classic_fraction(0.3, INF, &mut given);
        assert!(found.lower >= 0.0 && found.upper <= 1.0, "{found:?}");
        let found = classic_fraction(0.5, INF, &mut given);
        assert_eq!(found, StatisticEstimate::exact(0.0));
    }

    #[test]
    fn quantiles() {
        let given = [(10.0, 10.0), (15.0, 15.0), (20.0, 15.0), (INF, 15.0)];
        check(&given, 0.5, f64::NEG_INFINITY, 7.5, 10.0);
        check(&given, 0.9, 10.0, 13.5, 15.0);
        check(&[(INF, 4.0), (2.0, 2.0), (1.0, 1.0)], 0.9, 2.0, 2.0, INF);
        check(&[(-1.0, 1.0), (INF, 1.0)], 0.5, f64::NEG_INFINITY, -1.0, -1.0);
        // The rank is between two buckets with an empty one between them.
        check(&[(1.0, 2.0), (2.0, 2.0), (4.0, 4.0), (INF, 4.0)], 0.5, f64::NEG_INFINITY, 1.0, 4.0);
    }

    #[test]
    fn no_quantile_without_infinity_or_counts() {
        for given in [&[][..], &[(1.0, 1.0)], &[(INF, 1.0)], &[(1.0, 0.0), (INF, 0.0)]] {
            assert!(classic_quantile(0.5, &mut levels(given)).0.estimate.is_nan(), "{given:?}");
        }
    }

    #[test]
    fn falling_counts_are_raised_and_named() {
        let mut given =
            levels(&[(1.0, 4.0), (2.0, 3.0), (3.0, 4.000_000_000_001), (4.0, 1.0), (INF, 8.0)]);
        let (found, repair) = classic_quantile(0.5, &mut given);
        assert_eq!(found.estimate, 1.0);
        assert!(repair.small_differences);
        let forced = ForcedMonotonic { min_bound: 2.0, max_bound: 4.0, max_difference: 3.0 };
        assert_eq!(repair.forced, Some(forced));
    }

    #[test]
    fn fractions() {
        let given = levels(&[(1.0, 1.0), (2.0, 3.0), (INF, 4.0)]);
        let check = |from, to, lower, estimate, upper| {
            let found = classic_fraction(from, to, &mut given.clone());
            assert_eq!(found, StatisticEstimate { estimate, lower, upper });
        };
        check(1.0, 2.0, 0.5, 0.5, 0.5);
        check(1.5, INF, 0.25, 0.5, 0.75);
        check(0.0, 2.0, 0.5, 0.75, 0.75);
        check(f64::NEG_INFINITY, 2.0, 0.75, 0.75, 0.75);
        check(3.0, 4.0, 0.0, 0.0, 0.25);
    }

    proptest! {
        #[test]
        fn brackets_contain_the_true_value(
            mut values in prop::collection::vec(-10.0..100.0f64, 1..50),
            bounds in prop::collection::vec(-20.0..120.0f64, 1..10),
            q in 0.0..=1.0f64,
            ends in (-20.0..100.0f64, 0.0..100.0f64),
        ) {
            values.sort_by(f64::total_cmp);
            let count = |bound: f64| values.iter().filter(|&&v| v <= bound).count() as f64;
            let all = bounds.iter().copied().chain([INF]);
            let given: Vec<CumulativeBucket> =
                all.map(|bound| CumulativeBucket { upper_bound: bound, count: count(bound) }).collect();
            let (found, _) = classic_quantile(q, &mut given.clone());
            let rank = (q * values.len() as f64).ceil().max(1.0) as usize;
            let truth = values[rank - 1];
            if !found.estimate.is_nan() {
                prop_assert!(found.lower <= truth && truth <= found.upper, "{truth} {found:?}");
            }
            let (from, to) = (ends.0, ends.0 + ends.1);
            let truth = (count(to) - count(from)) / values.len() as f64;
            let found = classic_fraction(from, to, &mut given.clone());
            prop_assert!(found.lower - 1e-12 <= truth && truth <= found.upper + 1e-12, "{truth} {found:?}");
        }
    }
}
