//! Excess: values above a threshold beyond those expected there, and whether chance explains them.
//!
//! A threshold tells which values are slow, not how many may be. [`EXPECTED_SHARE`] of the values
//! is expected above any threshold: a learned one is a 99th percentile by its construction, and one
//! of a user or a program has no objective of its own. If values are independent, the number above
//! the threshold is binomial, and `k` or more of `n` have at most the probability
//! `exp(-n D(k/n ‖ p))`, where `D` is the relative entropy of two coins (the Chernoff bound;
//! Hoeffding 1963, "Probability inequalities for sums of bounded random variables", theorem 1).
//! The bound holds for every `n`, where a normal approximation fails for few values and a small
//! share. An excess is significant if its bound is below [`ALPHA`], one-sided: chance alone makes
//! less than one of a thousand usual rows significant. 38 values are above where 36 are expected
//! two times in five; from 61 on the excess is significant.
//!
//! Slow requests come in bursts, so they are not independent: a significant excess is a fact about
//! these five minutes, not yet a trend.

use hist::Bracket;

/// Share of the values that is expected above a threshold.
pub(super) const EXPECTED_SHARE: f64 = 0.01;
/// Probability of an excess that chance alone reaches in a row without a change.
pub(super) const ALPHA: f64 = 0.001;

/// Values above a threshold beyond those expected there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ExcessSignificance {
    /// Chance explains it, whichever value within its bounds the number above the threshold has.
    Insignificant,
    /// Significant at the upper bound of the number above the threshold, but not at the lower one:
    /// the buckets are too wide to tell. Number beyond those expected, at the estimate.
    Uncertain(f64),
    /// Number beyond those expected, at the estimate.
    Significant(f64),
}

impl ExcessSignificance {
    /// Excess of `above` of `count` values.
    pub(super) fn of(above: Bracket<u64>, count: u64) -> ExcessSignificance {
        ExcessSignificance::with_alpha(above, count, ALPHA)
    }

    /// As [`ExcessSignificance::of`], with another probability of error.
    pub(super) fn with_alpha(above: Bracket<u64>, count: u64, alpha: f64) -> ExcessSignificance {
        let beyond = (above.estimate as f64 - expected_above(count)).max(0.0);
        let is_significant = |above| is_significant(above, count, alpha);
        match (is_significant(above.lower), is_significant(above.upper)) {
            (true, _) => ExcessSignificance::Significant(beyond),
            (false, true) => ExcessSignificance::Uncertain(beyond),
            (false, false) => ExcessSignificance::Insignificant,
        }
    }
}

/// Number of `count` values that is expected above a threshold.
pub(super) fn expected_above(count: u64) -> f64 {
    count as f64 * EXPECTED_SHARE
}

/// Whether chance explains `above` or more of `count` values with a probability below `alpha`.
fn is_significant(above: u64, count: u64, alpha: f64) -> bool {
    let (k, n) = (above as f64, count as f64);
    if k <= expected_above(count) {
        return false;
    }
    // n D(k/n ‖ p); a share of 1 leaves the second term out: its limit is 0.
    let term = |observed: f64, expected: f64| match observed > 0.0 {
        true => observed * (observed / expected).ln(),
        false => 0.0,
    };
    let entropy = term(k, n * EXPECTED_SHARE) + term(n - k, n * (1.0 - EXPECTED_SHARE));
    (-entropy).exp() < alpha
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probability that `above` or more of `count` values are above, by summing the binomial.
    fn tail(above: u64, count: u64) -> f64 {
        let odds = EXPECTED_SHARE / (1.0 - EXPECTED_SHARE);
        let mut term = (count as f64 * (1.0 - EXPECTED_SHARE).ln()).exp();
        let mut sum = 0.0;
        for k in 0..=count {
            if k >= above {
                sum += term;
            }
            term *= (count - k) as f64 / (k + 1) as f64 * odds;
        }
        sum
    }

    #[track_caller]
    fn check(above: u64, count: u64, expected: ExcessSignificance) {
        assert_eq!(ExcessSignificance::of(Bracket::exact(above), count), expected);
    }

    #[test]
    fn row_with_38_slow_requests_where_36_are_expected_is_not_affected() {
        check(38, 3600, ExcessSignificance::Insignificant);
        check(36, 3600, ExcessSignificance::Insignificant);
        check(0, 3600, ExcessSignificance::Insignificant);
    }

    #[test]
    fn excess_is_significant_from_the_edge_on() {
        // exp(-n D) is 0.0012 at 60 of 3600, and 0.0007 at 61.
        check(60, 3600, ExcessSignificance::Insignificant);
        check(61, 3600, ExcessSignificance::Significant(25.0));
    }

    #[test]
    fn one_slow_request_of_few_is_chance_and_three_of_three_are_not() {
        check(1, 1, ExcessSignificance::Insignificant);
        check(1, 100, ExcessSignificance::Insignificant);
        check(3, 3, ExcessSignificance::Significant(2.97));
        check(0, 0, ExcessSignificance::Insignificant);
    }

    #[test]
    fn chance_reaches_a_significant_excess_with_a_probability_below_alpha() {
        for count in [1, 2, 3, 10, 100, 500, 1000, 3600, 20_000] {
            let edge = (0..=count).find(|above| is_significant(*above, count, ALPHA));
            let Some(edge) = edge else { continue };
            let probability = tail(edge, count);
            assert!(probability < ALPHA, "{edge} of {count}: {probability}");
            // The bound is not so weak that a clear excess goes unseen.
            let expected = expected_above(count);
            let clear = (expected + 5.0 * expected.sqrt() + 3.0).ceil() as u64;
            assert!(edge <= clear, "{edge} of {count}, {expected} expected");
        }
    }

    #[test]
    fn bucket_around_the_threshold_that_may_hold_all_slow_requests_is_uncertain() {
        let above = Bracket { lower: 0, estimate: 400, upper: 700 };
        assert_eq!(ExcessSignificance::of(above, 3600), ExcessSignificance::Uncertain(364.0));
        let above = Bracket { lower: 100, estimate: 400, upper: 700 };
        assert_eq!(ExcessSignificance::of(above, 3600), ExcessSignificance::Significant(364.0));
        let above = Bracket { lower: 0, estimate: 20, upper: 40 };
        assert_eq!(ExcessSignificance::of(above, 3600), ExcessSignificance::Insignificant);
    }
}
