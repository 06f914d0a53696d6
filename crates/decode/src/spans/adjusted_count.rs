//! How many spans a sampled span stands for.
//!
//! A sampler that keeps spans by a threshold says so in `tracestate`: `ot=th:c` keeps those whose
//! random number, of 56 bits, is at least 0xc0000000000000, and each stands for
//! 2^56 / (2^56 - threshold) spans. Source:
//! <https://opentelemetry.io/docs/specs/otel/trace/tracestate-handling/>.
//!
//! That number is rarely whole, and counts are. Of consecutive spans a counter adds the fractions,
//! and counts one more whenever they exceed a whole: the total differs by less than one from the
//! exact sum. The counter starts at a random fraction, so that each span counts as its number on
//! average even if it is the only one (systematic rounding).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

/// Hexadecimal digits of a threshold; those that are left out at the end are 0.
const DIGITS_MAX: usize = 14;
/// One more than the largest random number.
const RANGE: u64 = 1 << 56;
/// Samplers that keep less than one span of this many do not exist: such a threshold is an error,
/// and would let one span outweigh all others.
const SPANS_MAX: u64 = 1 << 24;

/// Number of spans: a whole number and a fraction, in units of 2^-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AdjustedCount {
    whole: u64,
    fraction: u64,
}

impl AdjustedCount {
    pub(super) const ONE: AdjustedCount = AdjustedCount { whole: 1, fraction: 0 };

    /// The number that `tracestate` of a span says, or `None` if what it says is invalid.
    pub(super) fn from_trace_state(trace_state: &str) -> Option<AdjustedCount> {
        let mut members = trace_state.split(',').map(|member| member.trim_matches([' ', '\t']));
        let Some(ours) = members.find_map(|member| member.strip_prefix("ot=")) else {
            return Some(AdjustedCount::ONE);
        };
        match ours.split(';').find_map(|pair| pair.strip_prefix("th:")) {
            Some(digits) => AdjustedCount::from_threshold(digits),
            None => Some(AdjustedCount::ONE),
        }
    }

    fn from_threshold(digits: &str) -> Option<AdjustedCount> {
        let is_valid = (1..=DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| is_valid)?;
        let missing = u32::try_from(DIGITS_MAX.saturating_sub(digits.len())).ok()?;
        let threshold = number.checked_shl(missing.saturating_mul(4))?;
        let kept = RANGE.checked_sub(threshold)?;
        let (whole, rest) = (RANGE.checked_div(kept)?, RANGE.checked_rem(kept)?);
        let fraction = u128::from(rest).unbounded_shl(64).checked_div(u128::from(kept))?;
        let count = AdjustedCount { whole, fraction: u64::try_from(fraction).ok()? };
        (whole < SPANS_MAX).then_some(count)
    }

    /// The whole number of spans that this one counts as, after others that left `carry`.
    pub(super) fn round(self, carry: &mut u64) -> u64 {
        let (sum, exceeds_whole) = carry.overflowing_add(self.fraction);
        *carry = sum;
        self.whole.saturating_add(exceeds_whole.into())
    }
}

#[cfg(test)]
mod tests {
    use model::splitmix64;
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(trace_state: &str, expected: Option<f64>) {
        let found = AdjustedCount::from_trace_state(trace_state);
        let number =
            |count: AdjustedCount| count.whole as f64 + count.fraction as f64 / 2f64.powi(64);
        assert_eq!(found.map(number), expected, "{trace_state}");
    }

    #[test]
    fn threshold_is_read_from_trace_state() {
        check("", Some(1.0));
        check("ot=th:0", Some(1.0));
        check("ot=th:8", Some(2.0));
        check("ot=th:c", Some(4.0));
        check("ot=th:c0000000000000", Some(4.0));
        check("ot=rv:9b8233f7e3a151;th:8", Some(2.0));
        check("vendor=ot=th:8 , ot=th:c;rv:9b8233f7e3a151", Some(4.0));
        check("other=th:8", Some(1.0));
        check("ot=rv:9b8233f7e3a151", Some(1.0));
        // One of a hundred, as samplers round it to five digits.
        let of_hundred = 2f64.powi(56) / (2f64.powi(56) - (0xfd70a4_u64 << 32) as f64);
        check("ot=th:fd70a4", Some(of_hundred));
        assert!((of_hundred - 100.0).abs() < 1e-4);
    }

    #[test]
    fn invalid_threshold_is_none() {
        for state in ["ot=th:", "ot=th:+8", "ot=th:x", "ot=th:c00000000000000", "ot=th:8 8"] {
            check(state, None);
        }
        // One span of 2^24, and of 2^56.
        check("ot=th:ffffff", None);
        check("ot=th:ffffffffffffff", None);
        check("ot=th:fffffe", Some((1_u64 << 23) as f64));
    }

    /// One of three spans was left out, so each of the others stands for one and a half.
    const OF_TWO_THIRDS: &str = "ot=th:55555555555555";

    #[test]
    fn one_span_counts_right_on_average() {
        let count = AdjustedCount::from_trace_state(OF_TWO_THIRDS).unwrap();
        let total: u64 = (0..10_000).map(|at| count.round(&mut splitmix64(at))).sum();
        // Four standard deviations of a half.
        assert!(total.abs_diff(15_000) < 200, "{total}");
    }

    proptest! {
        #[test]
        fn total_is_the_exact_sum(
            thresholds in prop::collection::vec(0_u64..(1 << 56) - (1 << 40), 1..200),
            start in any::<u64>(),
        ) {
            let counts = thresholds.iter().map(|threshold| {
                AdjustedCount::from_trace_state(&format!("ot=th:{threshold:014x}")).unwrap()
            });
            let counts: Vec<AdjustedCount> = counts.collect();
            let mut carry = start;
            let total: u64 = counts.iter().map(|count| count.round(&mut carry)).sum();
            // In units of 2^-64.
            let exact: u128 = counts.iter()
                .map(|count| (u128::from(count.whole) << 64) + u128::from(count.fraction))
                .sum();
            prop_assert_eq!(u128::from(total), (exact + u128::from(start)) >> 64);
            // Each number is the exact one, rounded down by less than 2^-64.
            for (count, threshold) in counts.iter().zip(thresholds) {
                let kept = u128::from((1 << 56) - threshold);
                let number = (u128::from(count.whole) << 64) + u128::from(count.fraction);
                prop_assert_eq!(number, (1_u128 << 120) / kept);
            }
        }
    }
}
