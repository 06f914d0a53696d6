//! Excess: values above a threshold beyond those expected there, and whether chance explains them.
//!
//! A threshold tells which values are slow, not how many may be. That of an SLO has an objective,
//! which allows a share of the values above it. [`EXPECTED_SHARE`] of them is expected above any
//! other: a learned one is a 99th percentile by its construction, and one of a user or a program
//! has no objective of its own. If values are independent, the number above
//! the threshold is binomial, and `k` or more of `n` have at most the probability
//! `exp(-n D(k/n ‖ p))`, where `D` is the relative entropy of two coins (the Chernoff bound;
//! Hoeffding 1963, "Probability inequalities for sums of bounded random variables", theorem 1).
//! That is about ten times the probability itself, so `k` values have their own bound by Stirling's
//! formula (Robbins 1955, "A remark on Stirling's formula"), and those above `k` that of a
//! geometric series (Feller 1968, "An introduction to probability theory", volume 1, VI.3):
//! together a factor `1 / ((1 - r) sqrt(2 π k (n - k) / n))`, if it is less than 1, with
//! `r = (n - k) p / ((k + 1) (1 - p))`.
//! The bound holds for every `n`, where a normal approximation fails for few values and a small
//! share. An excess is significant if its bound is below [`ALPHA`], one-sided: chance alone makes
//! less than one of a thousand usual rows significant. 38 values are above where 36 are expected
//! two times in five; from 57 on the excess is significant.
//!
//! A learned threshold says less than one that somebody set: that of an SLO or of a user states
//! what is slow, a learned one what was rare. Its row is affected only if there are
//! [`LEARNED_RATIO_MIN`] times as many values above it as expected: a service whose traffic differs
//! from hour to hour has 1.1 % above the median p99 of its hours all day, which is significant and
//! not an incident. Such rows are many and nobody chose them, so that they are also tested at
//! [`ALPHA`] divided by [`ROWS_MAX`] (Bonferroni): of all learned rows of an overview together,
//! chance makes one affected with a probability below [`ALPHA`]. The number of rows that there are
//! is not used: whether a row is affected does not depend on the others.
//!
//! Slow requests come in bursts, so they are not independent: a significant excess is a fact about
//! these five minutes, not yet a trend.
//!
//! The burn rate tells how bad it is, whatever the traffic: the share above the threshold as a
//! ratio to the expected one. Its lower bound is that of the least share of which chance makes so
//! many values with a probability of at least [`ALPHA`]: 3 of 3 requests say less than 300 of 300.

use hist::Bracket;

use super::ROWS_MAX;
use super::row_threshold::RowThreshold;

/// Share of the values that is expected above a threshold without an objective.
pub(super) const EXPECTED_SHARE: f64 = 0.01;
/// Probability of an excess that chance alone reaches in a row without a change.
pub(super) const ALPHA: f64 = 0.001;
/// Least share above a learned threshold that is affected, as a ratio to the expected one.
const LEARNED_RATIO_MIN: f64 = 2.0;
/// Halvings of a share: to 30 bits.
const BISECTIONS: u32 = 30;

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
    /// Excess of `above` of some values.
    pub(super) fn of(above: Bracket<u64>, expected: ExpectedValues) -> ExcessSignificance {
        ExcessSignificance::with_alpha(above, expected, ALPHA)
    }

    /// As [`ExcessSignificance::of`], with another probability of error.
    pub(super) fn with_alpha(
        above: Bracket<u64>,
        expected: ExpectedValues,
        alpha: f64,
    ) -> ExcessSignificance {
        let beyond = (above.estimate as f64 - expected.number()).max(0.0);
        let is_significant = |above| expected.is_exceeded_by(above, alpha);
        match (is_significant(above.lower), is_significant(above.upper)) {
            (true, _) => ExcessSignificance::Significant(beyond),
            (false, true) => ExcessSignificance::Uncertain(beyond),
            (false, false) => ExcessSignificance::Insignificant,
        }
    }
}

/// Values of which a share is expected above a threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExpectedValues {
    /// Number of all values.
    pub(super) count: u64,
    /// Share of them, above 0 and below 1.
    pub(super) share: f64,
    /// Whether the threshold was learned.
    pub(super) is_learned: bool,
}

impl ExpectedValues {
    /// Of `count` values and a threshold.
    pub(super) fn of(count: u64, threshold: Option<&RowThreshold>) -> ExpectedValues {
        ExpectedValues {
            count,
            share: threshold.map_or(EXPECTED_SHARE, |threshold| threshold.expected_share),
            is_learned: threshold.is_some_and(RowThreshold::is_learned),
        }
    }

    /// Number of the values that is expected above the threshold.
    pub(super) fn number(self) -> f64 {
        self.count as f64 * self.share
    }

    /// Whether chance explains `above` or more values above the threshold with a probability below
    /// `alpha`, and, if it was learned, they are also many.
    pub(super) fn is_exceeded_by(self, above: u64, alpha: f64) -> bool {
        let (least_ratio, alpha) = match self.is_learned {
            true => (LEARNED_RATIO_MIN, alpha / ROWS_MAX as f64),
            false => (1.0, alpha),
        };
        above as f64 > self.number()
            && above as f64 >= self.number() * least_ratio
            && self.tail_bound(above, self.share) < alpha
    }

    /// Share of the values above the threshold as a ratio to the expected one; `None` without
    /// values.
    pub(super) fn burn_rate(self, above: Bracket<u64>) -> Option<Bracket> {
        let ratio = |above: u64| above as f64 / self.count as f64 / self.share;
        (self.count > 0).then(|| Bracket {
            lower: self.least_share(above.lower) / self.share,
            estimate: ratio(above.estimate),
            upper: ratio(above.upper),
        })
    }

    /// The least share of which `above` or more values have at least the probability [`ALPHA`].
    fn least_share(self, above: u64) -> f64 {
        let (mut lower, mut upper) = (0.0, above as f64 / self.count as f64);
        // The probability rises with the share.
        for _ in 0..BISECTIONS {
            let middle = f64::midpoint(lower, upper);
            match self.tail_bound(above, middle) < ALPHA {
                true => lower = middle,
                false => upper = middle,
            }
        }
        lower
    }

    /// Upper bound of the probability of `above` or more values above the threshold, if a share
    /// below that of `above` is expected.
    fn tail_bound(self, above: u64, share: f64) -> f64 {
        let (k, n) = (above as f64, self.count as f64);
        let chernoff = (-self.entropy(above, share)).exp();
        let rest = n - k;
        if k <= 0.0 || rest <= 0.0 {
            return chernoff;
        }
        let ratio = rest * share / ((k + 1.0) * (1.0 - share));
        let factor = 1.0 / ((1.0 - ratio) * (std::f64::consts::TAU * k * rest / n).sqrt());
        if ratio < 1.0 { chernoff * factor.min(1.0) } else { chernoff }
    }

    /// `n D(k/n ‖ p)` of `above` values and a share.
    fn entropy(self, above: u64, share: f64) -> f64 {
        let (k, n) = (above as f64, self.count as f64);
        // A share of 1 leaves the second term out: its limit is 0.
        let term = |observed: f64, expected: f64| match observed > 0.0 {
            true => observed * (observed / expected).ln(),
            false => 0.0,
        };
        term(k, n * share) + term(n - k, n * (1.0 - share))
    }
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
        assert_eq!(ExcessSignificance::of(Bracket::exact(above), of(count)), expected);
    }

    fn of(count: u64) -> ExpectedValues {
        ExpectedValues::of(count, None)
    }

    #[test]
    fn row_with_38_slow_requests_where_36_are_expected_is_not_affected() {
        check(38, 3600, ExcessSignificance::Insignificant);
        check(36, 3600, ExcessSignificance::Insignificant);
        check(0, 3600, ExcessSignificance::Insignificant);
    }

    #[test]
    fn excess_is_significant_from_the_edge_on() {
        // The bound is 0.0012 at 56 of 3600, and 0.0007 at 57.
        check(56, 3600, ExcessSignificance::Insignificant);
        check(57, 3600, ExcessSignificance::Significant(21.0));
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
            let edge = (0..=count).find(|above| of(count).is_exceeded_by(*above, ALPHA));
            let Some(edge) = edge else { continue };
            let probability = tail(edge, count);
            assert!(probability < ALPHA, "{edge} of {count}: {probability}");
            let bound = of(count).tail_bound(edge, EXPECTED_SHARE);
            assert!(bound >= probability * (1.0 - 1e-9), "{edge} of {count}: {bound}");
            // The bound is not so weak that a clear excess goes unseen.
            let expected = of(count).number();
            let clear = (expected + 4.0 * expected.sqrt() + 3.0).ceil() as u64;
            assert!(edge <= clear, "{edge} of {count}, {expected} expected");
        }
    }

    #[test]
    fn bucket_around_the_threshold_that_may_hold_all_slow_requests_is_uncertain() {
        let above = Bracket { lower: 0, estimate: 400, upper: 700 };
        assert_eq!(ExcessSignificance::of(above, of(3600)), ExcessSignificance::Uncertain(364.0));
        let above = Bracket { lower: 100, estimate: 400, upper: 700 };
        assert_eq!(ExcessSignificance::of(above, of(3600)), ExcessSignificance::Significant(364.0));
        let above = Bracket { lower: 0, estimate: 20, upper: 40 };
        assert_eq!(ExcessSignificance::of(above, of(3600)), ExcessSignificance::Insignificant);
    }

    /// The row of a service said that its buckets are too wide to tell: chance makes 1,029 of these
    /// two times in 10,000.
    #[test]
    fn lower_bound_that_chance_does_not_explain_is_significant() {
        let above = Bracket { lower: 1_029, estimate: 1_050, upper: 1_070 };
        let excess = ExcessSignificance::of(above, of(92_150));
        assert!(matches!(excess, ExcessSignificance::Significant(_)), "{excess:?}");
    }

    /// The objective of an SLO was not considered: 1 % was expected above each threshold.
    #[test]
    fn objective_decides_how_many_are_expected() {
        let check = |above: u64, share: f64, expected: ExcessSignificance| {
            let of = ExpectedValues { count: 10_000, share, is_learned: false };
            assert_eq!(ExcessSignificance::of(Bracket::exact(above), of), expected);
        };
        check(90, 0.01, ExcessSignificance::Insignificant);
        check(90, 0.005, ExcessSignificance::Significant(40.0));
        check(90, 0.001, ExcessSignificance::Significant(80.0));
        check(5_100, 0.5, ExcessSignificance::Insignificant);
    }

    /// The headline of the overview was a service with 1.7 times the usual share above the median
    /// p99 of its hours, above the incident of another one.
    #[test]
    fn above_a_learned_threshold_usual_traffic_is_usual() {
        let check = |above: u64, count: u64, expected: ExcessSignificance| {
            let of = ExpectedValues { count, share: EXPECTED_SHARE, is_learned: true };
            assert_eq!(ExcessSignificance::of(Bracket::exact(above), of), expected);
        };
        check(77, 4_455, ExcessSignificance::Insignificant);
        check(11_400, 1_000_000, ExcessSignificance::Insignificant);
        check(90, 4_500, ExcessSignificance::Significant(45.0));
        // Twice as many of few requests are chance in one of so many rows.
        check(20, 1_000, ExcessSignificance::Insignificant);
        check(33, 1_000, ExcessSignificance::Significant(23.0));
        check(0, 5_400, ExcessSignificance::Insignificant);
    }

    #[test]
    fn burn_rate_of_few_requests_is_less_certain_than_that_of_many() {
        let rate = |above: u64, count: u64| {
            let rate = of(count).burn_rate(Bracket::exact(above)).unwrap();
            assert!(rate.lower <= rate.estimate && rate.estimate <= rate.upper, "{rate:?}");
            rate
        };
        // All of them: the bound is 0.001^(1/n).
        assert!((rate(3, 3).lower - 10.0).abs() < 0.01, "{:?}", rate(3, 3));
        assert!((rate(300, 300).lower - 97.7).abs() < 0.1, "{:?}", rate(300, 300));
        assert_eq!((rate(3, 3).estimate, rate(300, 300).estimate), (100.0, 100.0));
        let usual = rate(36, 3_600);
        assert!(usual.lower < 1.0 && usual.estimate == 1.0, "{usual:?}");
        assert_eq!(rate(0, 3_600).lower, 0.0);
        // Significant is a lower bound above 1.
        assert!(rate(56, 3_600).lower <= 1.0 && rate(57, 3_600).lower > 1.0);
        assert_eq!(of(0).burn_rate(Bracket::exact(0)), None);
    }
}
