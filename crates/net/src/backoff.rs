//! Exponential backoff with equal jitter: half fixed, half random.

use std::time::Duration;

/// Limit of the delay that a remote may request (`Retry-After`).
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

/// Backoff state: consecutive failures.
#[derive(Clone, Debug)]
pub struct ExponentialBackoff {
    first: Duration,
    max: Duration,
    failures: u32,
}

impl ExponentialBackoff {
    /// No failure yet; delays are from the first to the longest.
    pub fn new((first, longest): (Duration, Duration)) -> ExponentialBackoff {
        ExponentialBackoff { first, max: longest.max(first), failures: 0 }
    }

    /// Resets the delay after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Delay after a failure. `retry_after` is the delay requested by the remote; `needs_operator`
    /// says that an operator must act first: the delay is the longest.
    pub fn next_delay(
        &mut self,
        retry_after: Option<Duration>,
        needs_operator: bool,
        random: u64,
    ) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        let delay = if needs_operator { self.max } else { doubled };
        let half = delay / 2;
        let jitter = half.mul_f64(random as f64 / u64::MAX as f64);
        (half + jitter).max(retry_after.unwrap_or_default().min(RETRY_AFTER_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_maximum_and_reset() {
        let ms = Duration::from_millis;
        let mut retry = ExponentialBackoff::new((ms(500), ms(3000)));
        let mut next = |random| retry.next_delay(None, false, random).as_millis();
        assert_eq!(
            [next(u64::MAX), next(0), next(u64::MAX), next(u64::MAX)],
            [500, 500, 2000, 3000]
        );
        assert_eq!(next(0), 1500);
        retry.reset();
        assert_eq!(retry.next_delay(None, false, u64::MAX), ms(500));
        assert_eq!(retry.next_delay(Some(ms(7000)), false, 0), ms(7000));
        assert_eq!(retry.next_delay(Some(ms(1 << 40)), false, 0), RETRY_AFTER_MAX);
        retry.reset();
        assert_eq!(retry.next_delay(None, true, u64::MAX), ms(3000));
    }
}
