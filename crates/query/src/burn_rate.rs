//! Burn rate of an error budget over two windows, guarded against chance.
//!
//! The burn rate is the share of bad events divided by the budget (1 − objective): at 1 the budget
//! lasts exactly one period. A rule with a long and a short window (Beyer et al., "The Site
//! Reliability Workbook", chapter 5) compares the smaller of the two rates with a factor, so that
//! it fires while the budget burns and stops soon after it does not.
//!
//! With little traffic one bad event is a high rate. The rate counts only if the bad events of the
//! long window are unlikely under a burn rate that equals the factor: `P(X >= bad)` of a binomial
//! distribution of `total` events with the probability `budget * factor` must be below [`ALPHA`].
//! The probability is exact: terms by the saddle-point form of Loader ("Fast and accurate
//! computation of binomial probabilities", 2000), summed until they no longer count. Their number
//! grows with the standard deviation; from [`EXACT_DEVIATION_MAX`] on the normal distribution
//! decides. A single bad event never counts ([`BAD_MIN`]).

use hist::Bracket;

/// Probability with which events at exactly the allowed rate look like more.
const ALPHA: f64 = 0.001;
/// Least number of bad events in the long window.
const BAD_MIN: f64 = 2.0;
/// Relative size of a term that no longer changes the sum.
const TERM_MIN: f64 = 1e-17;
/// Largest standard deviation of the number of bad events with which the sum is computed: some
/// 100,000 terms.
const EXACT_DEVIATION_MAX: f64 = 10_000.0;
/// Largest number of bad events of the same: the sum counts them up one by one.
const EXACT_BAD_MAX: f64 = (1u64 << 52) as f64;
/// Standard deviations that a normal variable exceeds with the probability [`ALPHA`].
const ALPHA_DEVIATIONS: f64 = 3.090_232_306_167_813;

/// Events of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowEvents {
    /// Bad events.
    pub bad: Bracket,
    /// All events.
    pub total: f64,
}

/// Burn rule: a factor for a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurnRule {
    /// Burn rate above which the rule fires.
    pub factor: f64,
    /// Share of events that may be bad: 1 − objective.
    pub budget: f64,
}

impl WindowEvents {
    /// Burn rate. A window without events burns nothing.
    fn burn_rate(&self, budget: f64) -> Bracket {
        if self.total <= 0.0 {
            return Bracket::exact(0.0);
        }
        self.bad.map(|bad| bad / self.total / budget)
    }
}

impl BurnRule {
    /// The smaller burn rate of the two windows; 0 if chance explains the bad events of the long
    /// one. The rule fires if its estimate is above the factor.
    pub fn burn_rate(&self, long: &WindowEvents, short: &WindowEvents) -> Bracket {
        if !self.is_significant(long) {
            return Bracket::exact(0.0);
        }
        let (long, short) = (long.burn_rate(self.budget), short.burn_rate(self.budget));
        Bracket {
            lower: long.lower.min(short.lower),
            estimate: long.estimate.min(short.estimate),
            upper: long.upper.min(short.upper),
        }
    }

    /// Whether chance does not explain the bad events at a burn rate that equals the factor.
    fn is_significant(&self, events: &WindowEvents) -> bool {
        let (bad, total) = (events.bad.estimate.floor(), events.total.round());
        let share = self.budget * self.factor;
        if bad < BAD_MIN || share >= 1.0 || bad <= total * share {
            return false;
        }
        if bad >= total {
            return share.powf(total) < ALPHA;
        }
        let deviation = (total * share * (1.0 - share)).sqrt();
        if deviation > EXACT_DEVIATION_MAX || bad > EXACT_BAD_MAX {
            return bad - 0.5 - total * share > ALPHA_DEVIATIONS * deviation;
        }
        // The Chernoff bound is never below the probability, and decides most cases.
        (-relative_entropy(bad, total, share)).exp() < ALPHA
            || upper_tail(bad, total, share) < ALPHA
    }
}

/// n times the relative entropy of the observed share k / n to p; 0 < k < n.
fn relative_entropy(k: f64, n: f64, p: f64) -> f64 {
    k * (k / (n * p)).ln() + (n - k) * ((n - k) / (n * (1.0 - p))).ln()
}

/// Probability of at least `k` of `n` events with the probability `p` each; n p < k < n.
fn upper_tail(k: f64, n: f64, p: f64) -> f64 {
    let odds = p / (1.0 - p);
    let (mut term, mut sum, mut at) = (probability(k, n, p), 0.0, k);
    while at <= n && term > TERM_MIN * sum {
        sum += term;
        term *= (n - at) / (at + 1.0) * odds;
        at += 1.0;
    }
    sum.min(1.0)
}

/// Probability of exactly `k` of `n`; 0 < k < n.
fn probability(k: f64, n: f64, p: f64) -> f64 {
    let error = stirling_error(n) - stirling_error(k) - stirling_error(n - k);
    let width = (n / (2.0 * std::f64::consts::PI * k * (n - k))).sqrt();
    width * (error - relative_entropy(k, n, p)).exp()
}

/// ln n! minus Stirling's approximation; n >= 1.
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        let factorial: f64 = (1..=n as u32).map(f64::from).product();
        let stirling = (n + 0.5) * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI).ln();
        return factorial.ln() - stirling;
    }
    let square = n * n;
    (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / n
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bad: f64, total: f64) -> WindowEvents {
        WindowEvents { bad: Bracket::exact(bad), total }
    }

    const PAGE: BurnRule = BurnRule { factor: 14.4, budget: 0.001 };

    /// The sum of all terms, each one from logarithms of whole numbers.
    fn tail_by_logarithms(k: u32, n: u32, p: f64) -> f64 {
        let ln_factorial = |n: u32| -> f64 { (1..=n).map(|i| f64::from(i).ln()).sum() };
        let term = |i: u32| {
            let ways = ln_factorial(n) - ln_factorial(i) - ln_factorial(n - i);
            (ways + f64::from(i) * p.ln() + f64::from(n - i) * (-p).ln_1p()).exp()
        };
        (k..=n).map(term).sum()
    }

    #[test]
    fn tail_is_that_of_the_binomial_distribution() {
        for (k, n, p) in [(3, 10, 0.1), (5, 60, 0.0144), (44, 1800, 0.0144), (900, 1000, 0.85)] {
            let (found, expected) =
                (upper_tail(f64::from(k), f64::from(n), p), tail_by_logarithms(k, n, p));
            assert!((found / expected - 1.0).abs() < 1e-9, "{k} of {n}: {found} {expected}");
        }
    }

    #[test]
    fn one_bad_event_of_sixty_counts_for_no_objective() {
        for budget in [0.05, 0.01, 0.001, 1e-4, 1e-5, 1e-6] {
            for factor in [14.4, 6.0, 3.0, 1.0] {
                let rule = BurnRule { factor, budget };
                let found = rule.burn_rate(&events(1.0, 60.0), &events(1.0, 5.0));
                assert_eq!(found, Bracket::exact(0.0), "{budget} {factor}");
            }
        }
    }

    #[test]
    fn rate_is_the_smaller_of_both_windows() {
        let found = PAGE.burn_rate(&events(1000.0, 10_000.0), &events(50.0, 1000.0));
        assert!((found.estimate - 50.0).abs() < 1e-9, "{found:?}");
        let stopped = PAGE.burn_rate(&events(1000.0, 10_000.0), &events(0.0, 1000.0));
        assert_eq!(stopped, Bracket::exact(0.0));
        let idle = PAGE.burn_rate(&events(1000.0, 10_000.0), &events(0.0, 0.0));
        assert_eq!(idle, Bracket::exact(0.0));
    }

    #[test]
    fn everything_bad_counts_from_two_events_on() {
        assert_eq!(PAGE.burn_rate(&events(1.0, 1.0), &events(1.0, 1.0)).estimate, 0.0);
        let found = PAGE.burn_rate(&events(2.0, 2.0), &events(2.0, 2.0));
        assert!((found.estimate - 1000.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn exactly_the_allowed_rate_does_not_count() {
        let found = PAGE.burn_rate(&events(144.0, 10_000.0), &events(144.0, 10_000.0));
        assert_eq!(found.estimate, 0.0);
        // A billion events: the standard deviation is 3,767.
        let total = 1e9;
        let bad = |deviations: f64| events(14_400_000.0 + deviations * 3767.0, total);
        assert_eq!(PAGE.burn_rate(&bad(3.0), &bad(3.0)).estimate, 0.0);
        assert!(PAGE.burn_rate(&bad(3.2), &bad(3.2)).estimate > 14.4);
    }

    /// The sum would have as many terms as a fraction of the events, or never end.
    #[test]
    fn any_number_of_events_is_judged() {
        let rule = BurnRule { factor: 1.0, budget: 0.5 };
        for total in [1e9, 1e12, 1e15, 1e18, 1e30, 1e300] {
            let deviation = 0.5 * f64::sqrt(total);
            for (deviations, expected) in [(0.001, false), (3.0, false), (3.2, true)] {
                // A number of this size may have no digits for the deviation.
                let bad = total * 0.5 + deviations * deviation;
                let expected = expected && bad > total * 0.5;
                let found = rule.burn_rate(&events(bad, total), &events(bad, total));
                assert_eq!(found.estimate > 0.0, expected, "{deviations} of {total}");
            }
            let next = f64::next_up(total * 0.5);
            rule.burn_rate(&events(next, total), &events(next, total));
        }
        let almost_all = BurnRule { factor: 1.0, budget: 1.0 - 5.5e-9 };
        let total = 1.8e16;
        let bad = f64::next_up(total * almost_all.budget);
        almost_all.burn_rate(&events(bad, total), &events(bad, total));
        for odd in [f64::NAN, f64::INFINITY, -1.0] {
            rule.burn_rate(&events(odd, odd), &events(odd, 1.0));
            rule.burn_rate(&events(5.0, odd), &events(5.0, odd));
        }
    }

    /// Both ways to judge agree where they meet.
    #[test]
    fn normal_distribution_decides_as_the_sum_does() {
        let (total, share): (f64, f64) = (4e8, 0.5);
        let deviation = (total * share * (1.0 - share)).sqrt();
        assert_eq!(deviation, EXACT_DEVIATION_MAX);
        for thousandths in [3080, 3085, 3095, 3100] {
            let deviations = f64::from(thousandths) / 1000.0;
            let bad = (total * share + deviations * deviation).floor();
            let is_unlikely = upper_tail(bad, total, share) < ALPHA;
            assert_eq!(is_unlikely, deviations > ALPHA_DEVIATIONS, "{deviations}");
        }
    }

    /// Draws of a fixed seed (splitmix64).
    struct Draws(u64);

    impl Draws {
        fn share(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    /// Minutes until the rule (1 h and 5 min) fires in a run of independent requests.
    fn minutes_to_page(seed: u64, bad_share: f64, minutes: usize) -> Option<usize> {
        let mut draws = Draws(seed);
        // Half a request in a second.
        let mut bad: Vec<f64> = Vec::new();
        for minute in 0..minutes {
            bad.push((0..30).filter(|_| draws.share() < bad_share).count() as f64);
            let window = |length: usize| {
                let recent = &bad[bad.len().saturating_sub(length)..];
                events(recent.iter().sum(), 30.0 * recent.len() as f64)
            };
            if PAGE.burn_rate(&window(60), &window(5)).estimate > PAGE.factor {
                return Some(minute + 1);
            }
        }
        None
    }

    #[test]
    fn burn_of_27_with_half_a_request_in_a_second_pages_within_two_hours() {
        let paged = (0..100).filter(|seed| minutes_to_page(*seed, 0.027, 120).is_some()).count();
        assert!(paged >= 99, "{paged} of 100 runs");
    }

    #[test]
    fn usual_burn_of_a_day_does_not_page() {
        let paged = (0..100).filter(|seed| minutes_to_page(*seed, 0.001, 1440).is_some()).count();
        assert_eq!(paged, 0, "of 100 days");
    }
}
