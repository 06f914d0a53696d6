//! Difference of the clocks of two hosts, as an interval that contains it.
//!
//! No delay is negative: a packet that leaves the client at `c` of its clock and arrives at the
//! server at `s` of the other one shows that the server's clock is ahead by at most `s - c`. A
//! packet in the other direction limits it from below in the same way (NTP, RFC 5905). The interval
//! is as wide as the shortest round trip around that time.
//!
//! Clocks run at different rates. A limit from a packet therefore becomes wider with the time
//! between the packet and the moment in question, by [`RATE_DIFFERENCE`] (NTP: dispersion).
//!
//! Each capture stamps a packet itself, so limits from packets without a delay may contradict each
//! other by [`STAMP_ERROR_NS`]. The interval then has both of them.

/// Maximum difference of the rates of two clocks: one nanosecond in this many. Quartz clocks
/// without correction are off by at most 50 ppm, and ntpd corrects a clock by up to 500 ppm (RFC
/// 5905, 11.3); chrony may be faster.
const RATE_DIFFERENCE: u64 = 1_000;

/// Maximum error of the difference of two time stamps, because each capture stamps a packet when it
/// gets it. Two captures of one host stamped the same packets up to 100 ns apart.
pub(crate) const STAMP_ERROR_NS: u64 = 1_000;

/// Difference of two clocks over time.
pub(crate) struct ClockOffset {
    upper: LimitCurve,
    /// Limits of the negative difference.
    lower: LimitCurve,
}

/// The server's clock minus the client's, in nanoseconds, at a time of the client's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetInterval {
    /// Time of the client's clock.
    pub time: u64,
    /// Least difference.
    pub lower: i64,
    /// Largest difference.
    pub upper: i64,
}

/// Limits by time. Between two of them, the one applies that is tighter there.
struct LimitCurve {
    points: Vec<(u64, i64)>,
}

impl ClockOffset {
    /// `to_server` and `to_client` have packets of both directions: the time at the client, and the
    /// time at the server minus it.
    pub(crate) fn new(to_server: Vec<(u64, i64)>, mut to_client: Vec<(u64, i64)>) -> ClockOffset {
        to_client.iter_mut().for_each(|(_, difference)| *difference = difference.saturating_neg());
        ClockOffset { upper: LimitCurve::new(to_server), lower: LimitCurve::new(to_client) }
    }

    /// The interval at a time of the client; `None` if a direction has no packet. If its lower
    /// bound is above the upper one, times contradict each other.
    pub(crate) fn at(&self, time: u64) -> Option<OffsetInterval> {
        let (upper, lower) = (self.upper.at(time)?, self.lower.at(time)?.saturating_neg());
        let is_stamp_error = lower > upper && lower.abs_diff(upper) <= STAMP_ERROR_NS;
        let (lower, upper) = if is_stamp_error { (upper, lower) } else { (lower, upper) };
        Some(OffsetInterval { time, lower, upper })
    }
}

impl OffsetInterval {
    /// Whether some difference agrees with all packets.
    pub(crate) fn is_consistent(&self) -> bool {
        self.lower <= self.upper
    }

    /// Nanoseconds from the lower to the upper bound.
    pub(crate) fn width(&self) -> u64 {
        self.upper.saturating_sub(self.lower).max(0).unsigned_abs()
    }
}

impl LimitCurve {
    fn new(mut points: Vec<(u64, i64)>) -> LimitCurve {
        points.sort_unstable();
        points.dedup_by_key(|(time, _)| *time);
        let tighten = |points: &mut [(u64, i64)], from: usize, to: usize| {
            let (time, limit) = points[from];
            points[to].1 = points[to].1.min(widened(limit, time.abs_diff(points[to].0)));
        };
        for at in 1..points.len() {
            tighten(&mut points, at - 1, at);
        }
        for at in (1..points.len()).rev() {
            tighten(&mut points, at, at - 1);
        }
        LimitCurve { points }
    }

    fn at(&self, time: u64) -> Option<i64> {
        let next = self.points.partition_point(|(at, _)| *at < time);
        let around = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let limits = around.filter_map(|at| self.points.get(at));
        limits.map(|(at, limit)| widened(*limit, at.abs_diff(time))).min()
    }
}

/// A limit at another time.
fn widened(limit: i64, distance: u64) -> i64 {
    limit.saturating_add(distance.div_ceil(RATE_DIFFERENCE).min(i64::MAX as u64) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        to_server: &[(u64, i64)],
        to_client: &[(u64, i64)],
        time: u64,
        expected: Option<(i64, i64)>,
    ) {
        let found = ClockOffset::new(to_server.to_vec(), to_client.to_vec()).at(time);
        assert_eq!(found.map(|interval| (interval.lower, interval.upper)), expected);
    }

    #[test]
    fn the_fastest_packets_limit_the_difference() {
        // The server is 1,000 ahead; packets take 30 and 80 there, 20 and 500 back.
        let to_server = [(100, 1_030), (200, 1_080)];
        let to_client = [(150, 980), (250, 500)];
        check(&to_server, &to_client, 100, Some((979, 1_030)));
        check(&to_server, &to_client, 200, Some((979, 1_031)));
        check(&to_server, &[], 100, None);
    }

    #[test]
    fn limits_become_wider_with_time() {
        let to_server = [(0, 100), (5_000_000, 6_000)];
        check(&to_server, &[(0, 0)], 1_000_000, Some((-1_000, 1_100)));
        // 5,000 of 5 ms, and 100: tighter than its own limit.
        check(&to_server, &[(0, 0)], 5_000_000, Some((-5_000, 5_100)));
        check(&to_server, &[(0, 0)], 6_000_000, Some((-6_000, 6_100)));
    }

    #[test]
    fn contradictions_are_seen() {
        // Within the error of time stamps, they are none.
        check(&[(10, -40)], &[(10, 40)], 10, Some((-40, 40)));
        check(&[(10, 0)], &[(10, 1_000)], 10, Some((0, 1_000)));
        check(&[(10, 0)], &[(10, 1_001)], 10, Some((1_001, 0)));
        let offset = ClockOffset::new(vec![(10, -4_000)], vec![(10, 4_000)]);
        let interval = offset.at(10).unwrap();
        assert!(!interval.is_consistent());
        assert_eq!(interval.width(), 0);
        // Times of a damaged file.
        check(&[(0, i64::MAX)], &[(u64::MAX, i64::MIN)], u64::MAX, Some((-i64::MAX, i64::MAX)));
    }
}
