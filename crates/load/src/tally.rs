//! A tally: what became of requests, and how long they took.

use std::collections::BTreeMap;

use hist::{Histogram, Recorder};

use crate::failure::Failure;

/// What became of the requests that were due, and the times of those that have ended. Times are nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests that were due.
    pub intended: u64,
    /// Those with an answer that counts.
    pub completed: u64,
    /// Those without, by the reason.
    pub failed: [u64; Failure::ALL.len()],
    /// Those that had no answer when the run ended. Their age then is in `response`.
    pub unfinished: u64,
    /// Those that were due while the generator itself stood still, and were not sent.
    pub missed: u64,
    /// Those whose answer came, nobody knows when, while the generator itself stood still.
    pub seen_late: u64,
    /// From when a request was due to its answer.
    pub response: Histogram,
    /// From when it was sent to its answer.
    pub service: Histogram,
    /// From when it was due until it was sent.
    pub send_lag: Histogram,
    /// From when it was due until the generator noticed: what it adds itself. Of commands until the start, but for the wait for room.
    pub own_lag: Histogram,
    /// From when it was due to its failure.
    pub failure: Histogram,
    /// The most that were under way at once; of several threads the sum of the most that each had within the same second.
    pub in_flight_max: u64,
    /// The most connections or processes that there were at once, in the same way.
    pub connected_max: u64,
    /// Requests that had to wait for a connection or a process because there were as many as allowed.
    pub waited: u64,
    /// Connections that were opened, or processes that were started.
    pub opened: u64,
    /// Processor time of the generator's threads, but for that in which they only looked whether something had come. Nanoseconds.
    pub cpu_ns: u64,
}

/// How wide a bucket of the times is, as a share of its lower end: what is measured may be so far from what is true.
pub fn bucket_width() -> f64 {
    // The error e is that of a value read back as the harmonic middle: the width is what makes both ends e away from it.
    let error = hist::Scheme::default().relative_error().expect("BUG: a grid with a bound");
    2.0 * error / (1.0 - error)
}

impl Tally {
    /// All that failed.
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// What is known of all that were due: `intended` again, if nothing was lost.
    pub fn accounted(&self) -> u64 {
        self.completed + self.failures() + self.unfinished + self.missed + self.seen_late
    }

    /// Takes in what another thread counted at the same time.
    pub fn merge_beside(&mut self, other: &Tally) {
        let in_flight_max = self.in_flight_max + other.in_flight_max;
        let connected_max = self.connected_max + other.connected_max;
        self.merge(other);
        (self.in_flight_max, self.connected_max) = (in_flight_max, connected_max);
    }

    /// Takes in what was counted at another time.
    pub fn merge(&mut self, other: &Tally) {
        self.intended += other.intended;
        self.completed += other.completed;
        for (mine, theirs) in self.failed.iter_mut().zip(other.failed) {
            *mine += theirs;
        }
        self.unfinished += other.unfinished;
        self.missed += other.missed;
        self.seen_late += other.seen_late;
        self.in_flight_max = self.in_flight_max.max(other.in_flight_max);
        self.connected_max = self.connected_max.max(other.connected_max);
        self.waited += other.waited;
        self.opened += other.opened;
        self.cpu_ns += other.cpu_ns;
        let both = [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.send_lag, &other.send_lag),
            (&mut self.own_lag, &other.own_lag),
            (&mut self.failure, &other.failure),
        ];
        for (mine, theirs) in both {
            mine.merge(theirs).expect("BUG: recorders of one scheme");
        }
    }
}

/// What a worker counts in: a [`Tally`] to be, with recorders.
#[derive(Default)]
pub(crate) struct Counting {
    pub(crate) tally: Tally,
    pub(crate) response: Recorder,
    pub(crate) service: Recorder,
    pub(crate) send_lag: Recorder,
    pub(crate) own_lag: Recorder,
    pub(crate) failure: Recorder,
}

impl Counting {
    pub(crate) fn fail(&mut self, failure: Failure, after_ns: u64) {
        self.tally.failed[failure as usize] += 1;
        self.failure.record(after_ns);
    }

    /// What was counted since the last time.
    pub(crate) fn take(&mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        let all = [
            (&mut tally.response, &mut self.response),
            (&mut tally.service, &mut self.service),
            (&mut tally.send_lag, &mut self.send_lag),
            (&mut tally.own_lag, &mut self.own_lag),
            (&mut tally.failure, &mut self.failure),
        ];
        for (taken, recorder) in all {
            *taken = recorder.snapshot();
            recorder.clear();
        }
        tally
    }
}

/// Response times by the second in which requests were due.
#[derive(Default)]
pub(crate) struct Seconds {
    /// Those that answers come for now, by the last bits of their number: answers of neighbouring seconds alternate.
    recent: [Option<(u64, Box<Recorder>)>; 4],
    all: BTreeMap<u64, Histogram>,
}

impl Seconds {
    pub(crate) fn record(&mut self, due_ns: u64, took_ns: u64) {
        let second = due_ns / 1_000_000_000;
        let slot = &mut self.recent[(second % 4) as usize];
        match slot {
            Some((number, recorder)) if *number == second => recorder.record(took_ns),
            _ => {
                let mut recorder = match slot.take() {
                    Some((number, mut recorder)) => {
                        keep(&mut self.all, number, &recorder);
                        recorder.clear();
                        recorder
                    }
                    None => Box::default(),
                };
                recorder.record(took_ns);
                *slot = Some((second, recorder));
            }
        }
    }

    pub(crate) fn finish(mut self) -> BTreeMap<u64, Histogram> {
        for (number, recorder) in self.recent.into_iter().flatten() {
            keep(&mut self.all, number, &recorder);
        }
        self.all
    }
}

fn keep(all: &mut BTreeMap<u64, Histogram>, second: u64, recorder: &Recorder) {
    let snapshot = recorder.snapshot();
    let kept = all.entry(second).or_default();
    kept.merge(&snapshot).expect("BUG: recorders of one scheme");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_kept_apart_in_any_order() {
        let mut seconds = Seconds::default();
        for due_s in [0, 1, 9, 0, 5, 1, 9] {
            seconds.record(due_s * 1_000_000_000 + 5, 100 + due_s);
        }
        let found = seconds.finish();
        let counts: Vec<(u64, u64)> =
            found.iter().map(|(second, one)| (*second, one.count())).collect();
        assert_eq!(counts, [(0, 2), (1, 2), (5, 1), (9, 2)]);
    }

    #[test]
    fn a_bucket_is_as_wide_as_its_edges_are_apart() {
        let mut recorder = Recorder::new();
        recorder.record(123_456_789);
        recorder.record(1);
        recorder.record(1_000_000_000);
        let found = recorder.snapshot().quantile(0.5).unwrap();
        let width = found.upper / found.lower - 1.0;
        assert!((width - bucket_width()).abs() < 1e-9, "{width} {}", bucket_width());
    }

    #[test]
    fn what_was_counted_is_taken_once() {
        let mut counting = Counting::default();
        counting.tally.intended = 2;
        counting.tally.completed = 1;
        counting.response.record(7);
        counting.fail(Failure::Closed, 9);
        let mut sum = counting.take();
        assert_eq!((sum.accounted(), sum.response.count(), sum.failure.count()), (2, 1, 1));
        let again = counting.take();
        assert_eq!((again.intended, again.response.count()), (0, 0));
        let most = |n| Tally { in_flight_max: n, connected_max: 2 * n, ..Tally::default() };
        let mut both = most(3);
        both.merge_beside(&most(4));
        both.merge(&most(5));
        assert_eq!((both.in_flight_max, both.connected_max), (7, 14));
        sum.merge(&again);
        assert_eq!((sum.accounted(), sum.response.count()), (2, 1));
    }
}
