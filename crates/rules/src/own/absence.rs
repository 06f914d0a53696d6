//! Absence: a stream whose rows stopped.
//!
//! The interval of a stream is learned: the median of its last 20 intervals between rows. A stream
//! is absent 5 intervals after its newest row, at least 30 s; with fewer than 3 known intervals,
//! after 5 min. Time in which nothing was evaluated does not count: after a restart or a pause of
//! the machine, senders get the same time again to come back.

use std::collections::{BTreeMap, VecDeque};

use query::LabelSet;

const SECOND_NS: i64 = 1_000_000_000;
/// Intervals of which the median is taken.
const INTERVALS_MAX: usize = 20;
/// Intervals below which the median says nothing.
const INTERVALS_MIN: usize = 3;
/// Intervals after which a stream is absent.
const ABSENT_INTERVALS: i64 = 5;
/// Least time after which a stream is absent.
const ABSENT_AFTER_MIN_NS: i64 = 30 * SECOND_NS;
/// The same, while its interval is not known.
const ABSENT_AFTER_UNKNOWN_NS: i64 = 300 * SECOND_NS;
/// Streams whose newest row is older when a rule is first evaluated are not watched.
pub(super) const FIRST_ROW_AGE_MAX_NS: i64 = 86_400 * SECOND_NS;
/// Range of rows from which intervals are learned at first.
pub(super) const LEARNING_RANGE_NS: i64 = 3600 * SECOND_NS;

/// Times of the rows of each stream of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamClocks {
    /// First evaluation since the start, or since the last pause.
    started_ns: Option<i64>,
    /// Last evaluation.
    evaluated_ns: Option<i64>,
    streams: BTreeMap<LabelSet, StreamClock>,
}

/// Age of the newest row of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowAge {
    pub(super) age_ns: i64,
    /// Part of the age in which evaluations took place.
    pub(super) watched_ns: i64,
    /// Age from which the stream is absent.
    pub(super) absent_after_ns: i64,
}

/// Times of the rows of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamClock {
    newest_ns: Option<i64>,
    intervals_ns: VecDeque<i64>,
}

impl StreamClocks {
    /// Begins an evaluation of a rule that is evaluated each `interval_ns`.
    pub(crate) fn begin(&mut self, time_ns: i64, interval_ns: i64) {
        let pause_ns = self.evaluated_ns.map_or(0, |before_ns| time_ns.saturating_sub(before_ns));
        self.evaluated_ns = Some(time_ns);
        let started_ns = self.started_ns.get_or_insert(time_ns);
        // The clock was set back.
        *started_ns = (*started_ns).min(time_ns);
        // The machine paused, or the clock was set forward.
        let pause_min_ns = interval_ns.saturating_mul(2).saturating_add(ABSENT_AFTER_MIN_NS);
        if pause_ns > pause_min_ns {
            *started_ns = time_ns;
        }
    }

    /// Clock of a stream.
    pub(crate) fn stream(&mut self, labels: &LabelSet) -> &mut StreamClock {
        if !self.streams.contains_key(labels) {
            self.streams.insert(labels.clone(), StreamClock::default());
        }
        self.streams.get_mut(labels).expect("BUG: it was inserted")
    }

    /// Forgets streams that are gone.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&LabelSet) -> bool) {
        self.streams.retain(|labels, _| is_kept(labels));
    }

    /// End of the newest row of a stream.
    pub(super) fn newest_ns(&self, labels: &LabelSet) -> Option<i64> {
        self.streams.get(labels)?.newest_ns
    }

    /// Age of the newest row of a stream; `None` if no row was seen.
    pub(super) fn age(
        &self,
        labels: &LabelSet,
        after_ns: Option<i64>,
        time_ns: i64,
    ) -> Option<RowAge> {
        let clock = self.streams.get(labels)?;
        let newest_ns = clock.newest_ns?;
        let since_ns = newest_ns.max(self.started_ns.unwrap_or(newest_ns));
        Some(RowAge {
            age_ns: time_ns.saturating_sub(newest_ns),
            watched_ns: time_ns.saturating_sub(since_ns),
            absent_after_ns: after_ns.unwrap_or_else(|| clock.absent_after_ns()),
        })
    }
}

impl StreamClock {
    /// End of the newest row.
    pub(super) fn newest_ns(&self) -> Option<i64> {
        self.newest_ns
    }

    /// Adds a row that ended at a time. Late rows are no new ones.
    pub(super) fn add(&mut self, end_ns: i64) {
        if let Some(newest_ns) = self.newest_ns {
            if end_ns <= newest_ns {
                return;
            }
            if self.intervals_ns.len() == INTERVALS_MAX {
                self.intervals_ns.pop_front();
            }
            self.intervals_ns.push_back(end_ns.saturating_sub(newest_ns));
        }
        self.newest_ns = Some(end_ns);
    }

    fn absent_after_ns(&self) -> i64 {
        if self.intervals_ns.len() < INTERVALS_MIN {
            return ABSENT_AFTER_UNKNOWN_NS;
        }
        let mut intervals: Vec<i64> = self.intervals_ns.iter().copied().collect();
        intervals.sort_unstable();
        let median_ns = intervals[intervals.len() / 2];
        median_ns.saturating_mul(ABSENT_INTERVALS).max(ABSENT_AFTER_MIN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after which a stream with rows at these seconds is absent.
    #[track_caller]
    fn check(ends_s: &[i64], expected: i64) {
        let mut clock = StreamClock::default();
        ends_s.iter().for_each(|end| clock.add(end * SECOND_NS));
        assert_eq!(clock.absent_after_ns() / SECOND_NS, expected, "{ends_s:?}");
    }

    #[test]
    fn a_stream_is_absent_after_five_median_intervals() {
        check(&[0, 10, 20, 30], 50);
        check(&[0, 1, 2, 3], 30);
        // One long pause does not change the median, and a late row is no interval.
        check(&[0, 10, 20, 500, 510, 505], 50);
        check(&[0, 10], 300);
        check(&[], 300);
        let mut many: Vec<i64> = (0..100).collect();
        many.extend((1..=20).map(|n| 100 + n * 60));
        check(&many, 300);
    }

    #[test]
    fn time_before_the_first_evaluation_does_not_count() {
        let labels = LabelSet::new([("host", "a")]);
        let mut clocks = StreamClocks::default();
        clocks.begin(1000 * SECOND_NS, 10 * SECOND_NS);
        (0..5).for_each(|n| clocks.stream(&labels).add(n * 10 * SECOND_NS));
        let age = clocks.age(&labels, None, 1020 * SECOND_NS).unwrap();
        let expected = [980, 20, 50].map(|seconds| seconds * SECOND_NS);
        assert_eq!([age.age_ns, age.watched_ns, age.absent_after_ns], expected);
        assert_eq!(clocks.age(&LabelSet::default(), None, 0), None);
    }

    #[test]
    fn pause_of_the_machine_does_not_count() {
        let labels = LabelSet::new([("host", "a")]);
        let mut clocks = StreamClocks::default();
        let mut watched_s = |time_s: i64| {
            clocks.begin(time_s * SECOND_NS, 10 * SECOND_NS);
            clocks.stream(&labels).add(0);
            clocks.age(&labels, None, time_s * SECOND_NS).unwrap().watched_ns / SECOND_NS
        };
        assert_eq!([0, 10, 20].map(&mut watched_s), [0, 10, 20]);
        // A late evaluation, then a pause of an hour.
        assert_eq!([70, 3670, 3680, 3700].map(&mut watched_s), [70, 0, 10, 30]);
        // The clock is set back.
        assert_eq!([3000, 3010].map(&mut watched_s), [0, 10]);
    }
}
