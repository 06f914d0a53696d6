//! Open-loop schedule: starts do not depend on the duration of attempts.

use std::time::Duration;

use tokio::time::Instant;

/// A tokio timer fires up to about one millisecond late; this delay does not count as waiting time.
/// <https://docs.rs/tokio/latest/tokio/time/fn.sleep.html>
const TIMER: Duration = Duration::from_millis(2);

/// Start of the measured duration of an attempt that starts now: the scheduled start, unless the
/// delay is within timer accuracy.
pub(crate) fn measured_from(intended: Instant) -> Instant {
    let now = Instant::now();
    if now.saturating_duration_since(intended) <= TIMER { now } else { intended }
}

/// Scheduled starts of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PullSchedule {
    next: Instant,
    interval: Duration,
}

impl PullSchedule {
    /// First start within one interval from now; `time` is the current time in nanoseconds since
    /// the Unix epoch. The name's hash spreads jobs with the same interval over it; a name keeps
    /// its offset across restarts.
    pub(crate) fn new(now: Instant, time: i64, interval: Duration, name: &str) -> PullSchedule {
        let ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
        let phase = (hash_name(name) % ns.cast_unsigned()).cast_signed();
        let start_delay = phase.wrapping_sub(time.rem_euclid(ns)).rem_euclid(ns);
        PullSchedule { next: now + Duration::from_nanos(start_delay.cast_unsigned()), interval }
    }

    /// Next scheduled start, and the number of starts that passed unnoticed before it: their whole
    /// interval had passed. These attempts are skipped, not slow.
    pub(crate) fn next(&mut self, now: Instant) -> (Instant, u64) {
        let start_delay = now.saturating_duration_since(self.next);
        let missed = (start_delay.as_nanos() / self.interval.as_nanos().max(1)) as u64;
        let skipped = u32::try_from(missed).unwrap_or(u32::MAX);
        let intended = self.next + self.interval * skipped;
        self.next = intended + self.interval;
        (intended, missed)
    }
}

/// FNV-1a.
/// <http://www.isthe.com/chongo/tech/comp/fnv/>
fn hash_name(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_follow_the_schedule_and_skipped_ones_are_counted() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut schedule = PullSchedule::new(start, 7, second, "a");
        let first = schedule.next;
        assert!(first - start < second);
        assert_eq!(schedule.next(start), (first, 0));
        assert_eq!(schedule.next(first + second / 2), (first + second, 0));
        // The process was stopped for 5.5 s after the third scheduled start.
        let resumed = first + second * 2 + second * 11 / 2;
        assert_eq!(schedule.next(resumed), (first + second * 7, 5));
        assert_eq!(schedule.next(resumed), (first + second * 8, 0));
    }

    #[test]
    fn job_keeps_its_phase() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let first = |time: i64| {
            let next = PullSchedule::new(now, time, minute, "a").next - now;
            assert!(next < minute);
            (time + next.as_nanos() as i64) % 60_000_000_000
        };
        let place = first(0);
        assert_eq!([59_000_000_000, 1_700_000_012_345_678_901, 1].map(first), [place; 3]);
    }

    #[test]
    fn job_names_spread_over_the_interval() {
        let hour = Duration::from_secs(3600);
        let now = Instant::now();
        let mut places: Vec<u64> = (0..100)
            .map(|at| {
                (PullSchedule::new(now, 0, hour, &format!("job {at}")).next - now).as_secs() / 360
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() >= 8, "of ten parts of an hour only {places:?} are used");
    }
}
