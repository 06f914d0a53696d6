//! Oracle of the coordinated-omission test: expected response times of a server with constant
//! service time that stalls, by arithmetic alone.

use hist::Recorder;

/// A stall of a server: nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStall {
    /// Start: it neither reads nor responds.
    pub from_ns: u64,
    /// End.
    pub to_ns: u64,
}

/// Response times of requests with these scheduled times (ascending) if each is answered
/// `service_ns` after the server read it, and the server reads everything as soon as it can.
/// Requests not answered at `end_ns` count with their age. Stalls must not overlap.
pub fn expected_response_times(
    due_times: impl Iterator<Item = u64>,
    service_ns: u64,
    stalls: &[ServerStall],
    end_ns: u64,
) -> hist::Histogram {
    let after_stall = |timestamp: u64| {
        let stall = stalls.iter().find(|one| (one.from_ns..one.to_ns).contains(&timestamp));
        stall.map_or(timestamp, |one| one.to_ns)
    };
    let mut recorder = Recorder::new();
    for due_ns in due_times {
        let answered_ns = after_stall(after_stall(due_ns) + service_ns);
        recorder.record(answered_ns.min(end_ns).saturating_sub(due_ns));
    }
    recorder.snapshot()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ArrivalProcess, Schedule};

    const SECOND: u64 = 1_000_000_000;

    fn of(rate: f64, seconds: u64, stall: (u64, u64), end: u64) -> hist::Histogram {
        let due = Schedule::constant(rate, seconds * SECOND, ArrivalProcess::Constant).arrivals();
        let stall = ServerStall { from_ns: stall.0 * SECOND, to_ns: stall.1 * SECOND };
        expected_response_times(due, 1_000_000, &[stall], end * SECOND)
    }

    /// Published scenarios, computed by hand: stalls of 10 s in 30 s, at the end, and of 5 s at the
    /// start.
    #[test]
    fn oracle_matches_published_scenarios() {
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}")
        };
        let at = |one: &hist::Histogram, q: f64| one.quantile(q).unwrap().estimate * 1e-9;
        let middle = of(1_000.0, 30, (10, 20), 60);
        // A third of all requests waits 5 s on average.
        near(middle.mean().unwrap().estimate * 1e-9, 5.0 / 3.0 + 0.001);
        near(at(&middle, 0.5), 0.001);
        near(at(&middle, 0.99), 9.7);
        near(at(&middle, 0.999), 9.97);
        near(middle.max().unwrap().estimate * 1e-9, 10.001);
        let end = of(100.0, 30, (20, 60), 30);
        near(end.mean().unwrap().estimate * 1e-9, 5.0 / 3.0);
        near(at(&end, 0.99), 9.7);
        near(end.max().unwrap().estimate * 1e-9, 10.0);
        assert_eq!(end.count(), 3_000);
    }
}
