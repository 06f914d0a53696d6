//! Progress of an import: bytes, the rate of the last seconds, and the time left at that rate.

use std::collections::VecDeque;
use std::time::Duration;

use client::{ProgressLine, bar_text};

/// Period of the rate: it is higher while the target already has the batches, which are not sent.
const RATE_PERIOD: Duration = Duration::from_secs(15);

/// Progress over bytes.
pub(crate) struct ImportProgress<'a> {
    line: &'a mut ProgressLine,
    label: &'static str,
    done: u64,
    total: u64,
    rate: RecentRate,
}

impl<'a> ImportProgress<'a> {
    /// A pass over `total` bytes; the label names it.
    pub(crate) fn new(
        line: &'a mut ProgressLine,
        label: &'static str,
        total: u64,
    ) -> ImportProgress<'a> {
        line.restart();
        ImportProgress { line, label, done: 0, total, rate: RecentRate::default() }
    }

    /// Adds bytes and shows the line.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.set_done(self.done + bytes);
    }

    /// Bytes so far.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// Sets the number of bytes so far and shows the line.
    pub(crate) fn set_done(&mut self, done: u64) {
        self.done = done;
        let (label, total, rate) = (self.label, self.total, &mut self.rate);
        self.line.show(|elapsed| {
            rate.record(elapsed, done);
            format!("{label}{}", bar_text(done, total, rate.of_period()))
        });
    }

    /// Clears the line before other output.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
    }
}

/// Rate over a sliding period.
#[derive(Default)]
struct RecentRate {
    /// Elapsed time and bytes, ascending; the first one is the start of the period.
    marks: VecDeque<(Duration, u64)>,
}

impl RecentRate {
    fn record(&mut self, elapsed: Duration, bytes: u64) {
        if self.marks.is_empty() {
            self.marks.push_back((Duration::ZERO, 0));
        }
        self.marks.push_back((elapsed, bytes));
        while self.marks.get(1).is_some_and(|mark| mark.0 + RATE_PERIOD <= elapsed) {
            self.marks.pop_front();
        }
    }

    /// Bytes of the period, and its duration.
    fn of_period(&self) -> (u64, Duration) {
        match (self.marks.front(), self.marks.back()) {
            (Some(first), Some(last)) => (last.1 - first.1, last.0 - first.0),
            _ => (0, Duration::ZERO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut rate = RecentRate::default();
        assert_eq!(rate.of_period(), (0, Duration::ZERO));
        // 1 kB/s of known batches for 20 s, then 10 B/s.
        for second in 1..=20 {
            rate.record(Duration::from_secs(second), 1000 * second);
        }
        assert_eq!(rate.of_period(), (15_000, RATE_PERIOD));
        for second in 1..=16 {
            rate.record(Duration::from_secs(20 + second), 20_000 + 10 * second);
        }
        assert_eq!(rate.of_period(), (150, RATE_PERIOD));
    }
}
