//! An open schedule: when a job begins does not depend on how long it takes.

use std::time::Duration;

use tokio::time::Instant;

/// Intended beginnings of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    next: Instant,
    interval: Duration,
}

impl Schedule {
    /// Begins within one interval from now. Names spread jobs of the same interval over it.
    pub(crate) fn new(now: Instant, interval: Duration, name: &str) -> Schedule {
        let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
        Schedule { next: now + Duration::from_nanos(spread(name) % ns), interval }
    }

    /// The next intended beginning, and how many before it had passed unnoticed: their time was over before
    /// anybody could begin. They are jobs that were not done, not jobs that took long.
    pub(crate) fn next(&mut self, now: Instant) -> (Instant, u64) {
        let late = now.saturating_duration_since(self.next);
        let missed = (late.as_nanos() / self.interval.as_nanos().max(1)) as u64;
        let skipped = u32::try_from(missed).unwrap_or(u32::MAX);
        let intended = self.next + self.interval * skipped;
        self.next = intended + self.interval;
        (intended, missed)
    }
}

/// FNV-1a: the same name has the same place in its interval after each start.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn spread(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_keep_to_the_schedule_and_missed_ones_are_counted() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut schedule = Schedule::new(start, second, "a");
        let first = schedule.next;
        assert!(first - start < second);
        assert_eq!(schedule.next(start), (first, 0));
        assert_eq!(schedule.next(first + second / 2), (first + second, 0));
        // The process was stopped for 5.5 s after the third was due.
        let late = first + second * 2 + second * 11 / 2;
        assert_eq!(schedule.next(late), (first + second * 7, 5));
        assert_eq!(schedule.next(late), (first + second * 8, 0));
    }

    #[test]
    fn names_spread() {
        let hour = Duration::from_secs(3600);
        let now = Instant::now();
        let mut places: Vec<u64> = (0..100)
            .map(|at| (Schedule::new(now, hour, &format!("job {at}")).next - now).as_secs() / 360)
            .collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() >= 8, "of ten parts of an hour only {places:?} are used");
    }
}
