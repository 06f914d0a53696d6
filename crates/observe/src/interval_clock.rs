//! Boundaries of intervals by the times of packets; without packets, by the clock.
//!
//! Packets arrive up to 20 ms after they were captured, so the clock ends an interval only
//! [`GRACE_NS`] after its boundary. If the clock is set back by at most [`HELD_STEP_NS`], the
//! current interval lasts until the clock has reached its end again: no time is written twice.
//! Times are in nanoseconds since the Unix epoch.

use std::time::Duration;

/// Longest delay of packets behind their boundary: five times that of the ring.
const GRACE_NS: i64 = 100_000_000;

/// Longest step back of the clock by which an interval becomes longer. Corrections by NTP are
/// shorter; after a longer one, too much would wait for the end of the interval.
const HELD_STEP_NS: i64 = 60_000_000_000;

#[derive(Debug)]
pub(crate) struct IntervalClock {
    interval_ns: i64,
    start: i64,
    end: i64,
}

impl IntervalClock {
    /// The first interval starts now and ends at the next multiple of `interval`.
    pub(crate) fn new(interval: Duration, now: i64) -> IntervalClock {
        let interval_ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX).max(1);
        IntervalClock { interval_ns, start: now, end: boundary_after(now, interval_ns) }
    }

    /// Start of the current interval.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// The end of the current interval, if a packet of this time is behind it.
    pub(crate) fn end_before_packet(&self, time: i64) -> Option<i64> {
        (time >= self.end).then_some(self.end)
    }

    /// Follows a clock that was set back so far that the boundary is too far in the future. Returns
    /// whether it was: later intervals have times of earlier ones.
    pub(crate) fn follow(&mut self, now: i64) -> bool {
        let limit = self.interval_ns.saturating_add(HELD_STEP_NS);
        let is_too_far = self.end.saturating_sub(now) > limit;
        if is_too_far {
            self.end = boundary_after(now, self.interval_ns);
            self.start = self.start.min(now);
        }
        is_too_far
    }

    /// The end of the current interval, if no more packets of it can arrive.
    pub(crate) fn end_before(&self, now: i64) -> Option<i64> {
        (now >= self.end.saturating_add(GRACE_NS)).then_some(self.end)
    }

    /// Ends the current interval at `end`. The next one ends at the first boundary after `now`.
    pub(crate) fn advance(&mut self, end: i64, now: i64) {
        self.start = end;
        self.end = boundary_after(now.max(end), self.interval_ns);
    }
}

/// First boundary after `now`.
fn boundary_after(now: i64, interval_ns: i64) -> i64 {
    now.saturating_sub(now.rem_euclid(interval_ns)).saturating_add(interval_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn clock(now: i64) -> IntervalClock {
        IntervalClock::new(Duration::from_secs(10), now)
    }

    #[test]
    fn a_packet_behind_the_boundary_ends_the_interval() {
        let mut clock = clock(13 * SECOND);
        assert_eq!(clock.start(), 13 * SECOND);
        assert_eq!(clock.end_before_packet(20 * SECOND - 1), None);
        assert_eq!(clock.end_before_packet(20 * SECOND), Some(20 * SECOND));
        clock.advance(20 * SECOND, 57 * SECOND);
        assert_eq!(clock.start(), 20 * SECOND);
        assert_eq!(clock.end_before_packet(59 * SECOND), None);
        assert_eq!(clock.end_before_packet(60 * SECOND), Some(60 * SECOND));
    }

    #[test]
    fn without_packets_the_clock_ends_it_after_a_grace_time() {
        let clock = clock(13 * SECOND);
        assert_eq!(clock.end_before(20 * SECOND + GRACE_NS - 1), None);
        assert_eq!(clock.end_before(20 * SECOND + GRACE_NS), Some(20 * SECOND));
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_stop_intervals() {
        let mut clock = clock(1_000_003 * SECOND);
        assert!(clock.follow(5 * SECOND) && !clock.follow(6 * SECOND));
        assert_eq!(clock.end_before(5 * SECOND), None);
        assert_eq!(clock.start(), 5 * SECOND);
        assert_eq!(clock.end_before(11 * SECOND), Some(10 * SECOND));
    }

    #[test]
    fn a_clock_that_was_set_back_a_little_writes_nothing_back_in_time() {
        let mut clock = clock(113 * SECOND);
        clock.advance(120 * SECOND, 120 * SECOND);
        assert!(!clock.follow(120 * SECOND - HELD_STEP_NS));
        assert_eq!(clock.start(), 120 * SECOND);
        assert_eq!(clock.end_before(129 * SECOND), None, "the interval is longer");
        assert!(clock.follow(120 * SECOND - HELD_STEP_NS - 1));
        assert_eq!(clock.start(), 60 * SECOND - 1);
        assert_eq!(clock.end_before_packet(60 * SECOND), Some(60 * SECOND));
    }

    #[test]
    fn an_interval_may_be_endless() {
        let clock = IntervalClock::new(Duration::MAX, 5);
        assert_eq!(clock.end_before_packet(SECOND), None);
        assert_eq!(clock.end_before(SECOND), None);
    }
}
