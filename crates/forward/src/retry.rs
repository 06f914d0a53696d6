//! How long to wait before the next try: twice as long each time, from a half to the whole of it at random, so that
//! a site that comes back is not met by all at once.

use std::time::Duration;

/// A site may ask for no more patience than this.
const ASKED_MAX: Duration = Duration::from_secs(300);

/// Counts failures.
#[derive(Clone, Debug)]
pub(crate) struct Retry {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Retry {
    pub(crate) fn new((first, longest): (Duration, Duration)) -> Retry {
        Retry { first, longest: longest.max(first), failures: 0 }
    }

    /// It went well.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: how long to wait. `asked` is what the other side asks for; `slowly` where waiting does not
    /// help and somebody has to do something.
    pub(crate) fn after(&mut self, asked: Option<Duration>, slowly: bool, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        let whole = if slowly { self.longest } else { doubled };
        let half = whole / 2;
        let jitter = half.mul_f64(random as f64 / u64::MAX as f64);
        (half + jitter).max(asked.unwrap_or_default().min(ASKED_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_begin_anew() {
        let ms = Duration::from_millis;
        let mut retry = Retry::new((ms(500), ms(3000)));
        let mut next = |random| retry.after(None, false, random).as_millis();
        assert_eq!(
            [next(u64::MAX), next(0), next(u64::MAX), next(u64::MAX)],
            [500, 500, 2000, 3000]
        );
        assert_eq!(next(0), 1500);
        retry.reset();
        assert_eq!(retry.after(None, false, u64::MAX), ms(500));
        assert_eq!(retry.after(Some(ms(7000)), false, 0), ms(7000));
        assert_eq!(retry.after(Some(ms(1 << 40)), false, 0), ASKED_MAX);
        retry.reset();
        assert_eq!(retry.after(None, true, u64::MAX), ms(3000));
    }
}
