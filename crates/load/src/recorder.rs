//! Recorders of a worker: counts, times, and times per second.

use std::collections::BTreeMap;

use hist::{Histogram, Recorder};

use crate::failure::Failure;
use crate::tally::Tally;

/// Recorder of a [`Tally`].
#[derive(Default)]
pub(crate) struct TallyRecorder {
    pub(crate) tally: Tally,
    pub(crate) response: Recorder,
    pub(crate) service: Recorder,
    pub(crate) queue_time: Recorder,
    pub(crate) generator_lag: Recorder,
    pub(crate) failure: Recorder,
}

impl TallyRecorder {
    pub(crate) fn fail(&mut self, failure: Failure, after_ns: u64) {
        self.tally.failed[failure as usize] += 1;
        self.failure.record(after_ns);
    }

    /// Returns the tally since the last call.
    pub(crate) fn drain(&mut self) -> Tally {
        let mut tally = std::mem::take(&mut self.tally);
        let all = [
            (&mut tally.response, &mut self.response),
            (&mut tally.service, &mut self.service),
            (&mut tally.queue_time, &mut self.queue_time),
            (&mut tally.generator_lag, &mut self.generator_lag),
            (&mut tally.failure, &mut self.failure),
        ];
        for (taken, recorder) in all {
            *taken = recorder.snapshot();
            recorder.clear();
        }
        tally
    }
}

/// Response times by the second of the scheduled time.
#[derive(Default)]
pub(crate) struct PerSecondSeries {
    /// Recorders of recent seconds, by second modulo 4: responses of neighbouring seconds
    /// alternate.
    recent: [Option<(u64, Box<Recorder>)>; 4],
    all: BTreeMap<u64, Histogram>,
}

impl PerSecondSeries {
    pub(crate) fn record(&mut self, due_ns: u64, took_ns: u64) {
        let second = due_ns / 1_000_000_000;
        let slot = &mut self.recent[(second % 4) as usize];
        match slot {
            Some((number, recorder)) if *number == second => recorder.record(took_ns),
            _ => {
                let mut recorder = match slot.take() {
                    Some((number, mut recorder)) => {
                        merge_into(&mut self.all, number, &recorder);
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
            merge_into(&mut self.all, number, &recorder);
        }
        self.all
    }
}

fn merge_into(all: &mut BTreeMap<u64, Histogram>, second: u64, recorder: &Recorder) {
    let snapshot = recorder.snapshot();
    let stored = all.entry(second).or_default();
    stored.merge(&snapshot).expect("BUG: recorders of one scheme");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_separate_in_any_order() {
        let mut seconds = PerSecondSeries::default();
        for due_s in [0, 1, 9, 0, 5, 1, 9] {
            seconds.record(due_s * 1_000_000_000 + 5, 100 + due_s);
        }
        let found = seconds.finish();
        let counts: Vec<(u64, u64)> =
            found.iter().map(|(second, one)| (*second, one.count())).collect();
        assert_eq!(counts, [(0, 2), (1, 2), (5, 1), (9, 2)]);
    }

    #[test]
    fn drained_counts_are_reset() {
        let mut recorder = TallyRecorder::default();
        recorder.tally.scheduled = 2;
        recorder.tally.completed = 1;
        recorder.response.record(7);
        recorder.fail(Failure::Closed, 9);
        let mut sum = recorder.drain();
        assert_eq!((sum.accounted(), sum.response.count(), sum.failure.count()), (2, 1, 1));
        let again = recorder.drain();
        assert_eq!((again.scheduled, again.response.count()), (0, 0));
        let most = |n| Tally { in_flight_peak: n, connections_peak: 2 * n, ..Tally::default() };
        let mut both = most(3);
        both.merge_concurrent(&most(4));
        both.merge(&most(5));
        assert_eq!((both.in_flight_peak, both.connections_peak), (7, 14));
        sum.merge(&again);
        assert_eq!((sum.accounted(), sum.response.count()), (2, 1));
    }
}
