//! Counts and times of requests.

use hist::Histogram;

use crate::failure::Failure;

/// Outcomes of all scheduled requests, and times of those that ended. Times are nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Scheduled requests.
    pub scheduled: u64,
    /// Successful responses.
    pub completed: u64,
    /// Failed requests by [`Failure`].
    pub failed: [u64; Failure::ALL.len()],
    /// Requests without a response at the end of the run. Their age is in `response`.
    pub unfinished: u64,
    /// Requests scheduled during a stall of the generator, which were not sent.
    pub not_sent: u64,
    /// Responses that arrived at an unknown time during a stall of the generator.
    pub observed_late: u64,
    /// Scheduled time to response.
    pub response: Histogram,
    /// Sent to response.
    pub service: Histogram,
    /// Scheduled time to sent.
    pub queue_time: Histogram,
    /// Scheduled time to dispatch by the generator: its own delay. For commands: until the process
    /// is started, without the wait for a free slot.
    pub generator_lag: Histogram,
    /// Scheduled time to failure.
    pub failure: Histogram,
    /// Peak of requests in flight. Of several threads: the highest sum of their peaks within one
    /// second.
    pub in_flight_peak: u64,
    /// Peak of connections or processes, counted in the same way.
    pub connections_peak: u64,
    /// Requests that queued because the limit of connections or processes was reached.
    pub queued_requests: u64,
    /// Connections opened, or processes started.
    pub connections_opened: u64,
    /// CPU time of the generator's threads, without polling that found nothing. Nanoseconds.
    pub cpu_ns: u64,
}

/// Relative width of a histogram bucket: the resolution of measured times.
pub fn bucket_width() -> f64 {
    // The error e refers to the harmonic middle of a bucket; its edges differ from that by e each.
    let error = hist::Scheme::default().relative_error().expect("BUG: a grid with a bound");
    2.0 * error / (1.0 - error)
}

impl Tally {
    /// All failed requests.
    pub fn failures(&self) -> u64 {
        self.failed.iter().sum()
    }

    /// Requests with a known outcome: equals `scheduled` unless there is a bug.
    pub fn accounted(&self) -> u64 {
        self.completed + self.failures() + self.unfinished + self.not_sent + self.observed_late
    }

    /// Adds counts of another thread in the same interval.
    pub(crate) fn merge_concurrent(&mut self, other: &Tally) {
        let in_flight_peak = self.in_flight_peak + other.in_flight_peak;
        let connections_peak = self.connections_peak + other.connections_peak;
        self.merge(other);
        (self.in_flight_peak, self.connections_peak) = (in_flight_peak, connections_peak);
    }

    /// Adds counts of another interval.
    pub fn merge(&mut self, other: &Tally) {
        self.scheduled += other.scheduled;
        self.completed += other.completed;
        for (mine, theirs) in self.failed.iter_mut().zip(other.failed) {
            *mine += theirs;
        }
        self.unfinished += other.unfinished;
        self.not_sent += other.not_sent;
        self.observed_late += other.observed_late;
        self.in_flight_peak = self.in_flight_peak.max(other.in_flight_peak);
        self.connections_peak = self.connections_peak.max(other.connections_peak);
        self.queued_requests += other.queued_requests;
        self.connections_opened += other.connections_opened;
        self.cpu_ns += other.cpu_ns;
        let both = [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.queue_time, &other.queue_time),
            (&mut self.generator_lag, &other.generator_lag),
            (&mut self.failure, &other.failure),
        ];
        for (mine, theirs) in both {
            mine.merge(theirs).expect("BUG: recorders of one scheme");
        }
    }
}

#[cfg(test)]
mod tests {
    use hist::Recorder;

    use super::*;

    #[test]
    fn bucket_width_is_the_distance_of_bucket_edges() {
        let mut recorder = Recorder::new();
        recorder.record(123_456_789);
        recorder.record(1);
        recorder.record(1_000_000_000);
        let found = recorder.snapshot().quantile(0.5).unwrap();
        let width = found.upper / found.lower - 1.0;
        assert!((width - bucket_width()).abs() < 1e-9, "{width} {}", bucket_width());
    }
}
