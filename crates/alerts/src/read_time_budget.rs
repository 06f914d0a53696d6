//! Time that a thread may spend on reads in each second.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// Budget of a second; what is not spent is not saved up.
#[derive(Debug)]
pub(crate) struct ReadTimeBudget {
    time_max: Duration,
    interval_began: Instant,
    /// Of this interval.
    spent: Duration,
}

impl ReadTimeBudget {
    pub(crate) fn new(time_max: Duration, now: Instant) -> ReadTimeBudget {
        ReadTimeBudget { time_max, interval_began: now, spent: Duration::ZERO }
    }

    /// Time that is left.
    pub(crate) fn left(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.interval_began) >= INTERVAL {
            *self = ReadTimeBudget::new(self.time_max, now);
        }
        self.time_max.saturating_sub(self.spent)
    }

    pub(crate) fn spend(&mut self, time: Duration) {
        self.spent = self.spent.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time that is left for each of several groups that need a time for their numbers, by when
    /// they begin.
    #[track_caller]
    fn check(groups_ms: &[(u64, u64)], expected_ms: &[u64]) {
        let start = Instant::now();
        let mut budget = ReadTimeBudget::new(Duration::from_millis(200), start);
        let left = groups_ms.iter().map(|(begin, need)| {
            let left = budget.left(start + Duration::from_millis(*begin));
            budget.spend(Duration::from_millis(*need).min(left));
            u64::try_from(left.as_millis()).expect("milliseconds")
        });
        assert_eq!(left.collect::<Vec<_>>(), expected_ms);
    }

    #[test]
    fn all_groups_of_a_second_share_the_time() {
        check(&[(0, 150), (150, 150), (200, 150), (900, 150)], &[200, 50, 0, 0]);
        // The next second.
        check(&[(0, 300), (999, 300), (1_000, 50), (1_050, 300)], &[200, 0, 200, 150]);
        // Nothing is saved up.
        check(&[(0, 0), (10_000, 300), (10_500, 1)], &[200, 200, 0]);
    }
}
