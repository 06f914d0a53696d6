//! The truth of a freeze test: what users of a server felt that answers each request after the same time, and stands still for some
//! time, by arithmetic alone.

use hist::Recorder;

/// When a server stands still: nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// From then on it neither reads nor answers.
    pub from_ns: u64,
    /// From then on it does.
    pub to_ns: u64,
}

/// Response times of requests that are due at these moments, ascending, if each is answered `service_ns` after the server took it, and it
/// takes all that it has not taken yet. Of those that are not answered at `end_ns`, the age is counted. Freezes are apart from each other.
pub fn truth(
    due: impl Iterator<Item = u64>,
    service_ns: u64,
    freezes: &[Freeze],
    end_ns: u64,
) -> hist::Histogram {
    let thawed = |moment: u64| {
        let frozen = freezes.iter().find(|one| (one.from_ns..one.to_ns).contains(&moment));
        frozen.map_or(moment, |one| one.to_ns)
    };
    let mut recorder = Recorder::new();
    for due_ns in due {
        let answered_ns = thawed(thawed(due_ns) + service_ns);
        recorder.record(answered_ns.min(end_ns).saturating_sub(due_ns));
    }
    recorder.snapshot()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Schedule, Spacing};

    const SECOND: u64 = 1_000_000_000;

    fn of(rate: f64, seconds: u64, freeze: (u64, u64), end: u64) -> hist::Histogram {
        let due = Schedule::constant(rate, seconds * SECOND, Spacing::Even).arrivals();
        let freeze = Freeze { from_ns: freeze.0 * SECOND, to_ns: freeze.1 * SECOND };
        truth(due, 1_000_000, &[freeze], end * SECOND)
    }

    /// The figures of well-known freeze tests, by hand: 10 s of 30 s, at the end, 5 s at the start.
    #[test]
    fn it_is_what_is_computed_by_hand() {
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 0.02, "{found} {expected}")
        };
        let at = |one: &hist::Histogram, q: f64| one.quantile(q).unwrap().estimate * 1e-9;
        let middle = of(1_000.0, 30, (10, 20), 60);
        // A third of all waits 5 s in the mean.
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
