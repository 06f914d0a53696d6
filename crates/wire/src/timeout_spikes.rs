//! Operations that end at a time-out: those that block by design have a spike of durations there,
//! such as 5.000 s. Such a statement is proposed as a wait; only the user makes it one.
//!
//! Durations from 0.9 s are looked at. One is *at* a time-out if it is at most 2 ms shorter or 20
//! ms longer than a multiple of 0.5 s, which 4.4 % of durations of any kind are. Four time-outs of
//! a statement are counted (Misra and Gries, 1982), so a count may be too low and never too high.

use std::time::Duration;

/// Durations below it are not looked at.
const LONG_NS: u64 = 900_000_000;
/// Time-outs are multiples of it.
const STEP_NS: u64 = 500_000_000;
const EARLY_NS: u64 = 2_000_000;
const LATE_NS: u64 = 20_000_000;
/// Operations at a time-out that make a proposal.
const OPERATIONS_MIN: u64 = 5;
/// A proposal has at least one of this many long operations at its time-out.
const LONG_PER_SPIKE: u64 = 4;

/// Long operations of a statement by time-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeoutSpikes {
    /// Operations from 0.9 s.
    long: u64,
    /// Multiples of the step, and operations at them.
    spikes: [(u64, u64); 4],
}

/// A spike of durations at a time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposedWait {
    /// The time-out.
    pub timeout: Duration,
    /// Operations at it.
    pub operations: u64,
    /// All operations that took at least 0.9 s.
    pub long_operations: u64,
}

impl TimeoutSpikes {
    pub(crate) fn record(&mut self, duration_ns: u64) {
        if duration_ns < LONG_NS {
            return;
        }
        self.long += 1;
        let early = duration_ns.saturating_add(EARLY_NS);
        if early % STEP_NS <= EARLY_NS + LATE_NS {
            self.add(early / STEP_NS, 1);
        }
    }

    /// Whether an operation was long.
    pub fn has_long_operations(&self) -> bool {
        self.long > 0
    }

    /// Adds other operations of the statement.
    pub fn merge(&mut self, other: &TimeoutSpikes) {
        self.long += other.long;
        other.spikes.iter().for_each(|(steps, operations)| self.add(*steps, *operations));
    }

    fn add(&mut self, steps: u64, mut operations: u64) {
        if let Some((_, count)) = self.spikes.iter_mut().find(|(of, n)| *of == steps && *n > 0) {
            *count += operations;
            return;
        }
        let least = self.spikes.iter().map(|(_, count)| *count).min().unwrap_or(0).min(operations);
        self.spikes.iter_mut().for_each(|(_, count)| *count -= least);
        operations -= least;
        if operations > 0
            && let Some(free) = self.spikes.iter_mut().find(|(_, count)| *count == 0)
        {
            *free = (steps, operations);
        }
    }

    /// The highest spike, if it proposes a wait.
    pub fn proposal(&self) -> Option<ProposedWait> {
        let (steps, operations) = *self.spikes.iter().max_by_key(|(_, count)| *count)?;
        let is_spike = operations >= OPERATIONS_MIN && operations * LONG_PER_SPIKE >= self.long;
        is_spike.then(|| ProposedWait {
            timeout: Duration::from_nanos(steps * STEP_NS),
            operations,
            long_operations: self.long,
        })
    }
}

impl std::fmt::Display for ProposedWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (at, long) = (self.operations, self.long_operations);
        write!(f, "{at} of {long} operations from 0.9 s took {:?}", self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spikes(durations: impl IntoIterator<Item = u64>) -> TimeoutSpikes {
        let mut spikes = TimeoutSpikes::default();
        durations.into_iter().for_each(|duration| spikes.record(duration));
        spikes
    }

    #[track_caller]
    fn check(durations: impl IntoIterator<Item = u64>, expected: Option<(u64, u64, u64)>) {
        let found = spikes(durations).proposal();
        let found =
            found.map(|of| (of.timeout.as_millis() as u64, of.operations, of.long_operations));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_spike_at_a_timeout_is_a_proposal() {
        let waits = (0..8).map(|n| 5_000 * MS + n * 2 * MS);
        check(waits.clone(), Some((5_000, 8, 8)));
        // Some ended before the time-out, and many were short.
        let others = [1_234, 2_777, 4_100, 3_333].map(|ms| ms * MS);
        let short = (0..1_000).map(|n| n * MS / 2);
        check(waits.chain(others).chain(short), Some((5_000, 8, 12)));
        check([999; 5].map(|ms| ms * MS), Some((1_000, 5, 5)));
        let text = spikes([2_500 * MS; 6]).proposal().unwrap().to_string();
        assert_eq!(text, "6 of 6 operations from 0.9 s took 2.5s");
    }

    #[test]
    fn slow_operations_without_a_spike_are_none() {
        // Every millisecond from 1 to 4 s.
        check((1_000..4_000).map(|ms| ms * MS), None);
        check([5_021; 100].map(|ms| ms * MS), None);
        check([4_997; 100].map(|ms| ms * MS), None);
        check([5_000; 4].map(|ms| ms * MS), None);
        check([500; 100].map(|ms| ms * MS), None);
        check([u64::MAX; 100], None);
    }

    #[test]
    fn a_frequent_timeout_is_found_among_many_others() {
        let mixed = (0..300).map(|n| if n % 2 == 0 { 30_000 * MS } else { (1_000 + n * 500) * MS });
        let found = spikes(mixed).proposal().unwrap();
        assert_eq!(found.timeout, Duration::from_secs(30));
        assert!((75..=150).contains(&found.operations), "{found:?}");
    }

    #[test]
    fn parts_are_as_the_whole() {
        let durations = [[5_000 * MS; 4], [5_001 * MS; 4]];
        let mut parts = spikes(durations[0]);
        parts.merge(&spikes(durations[1]));
        assert_eq!(parts, spikes(durations.concat()));
    }
}
