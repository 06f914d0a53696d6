//! Absence: a stream whose rows stopped.
//!
//! The interval of a stream is learned: the median of its last 20 intervals between rows. A stream
//! is absent when no row arrived for 5 intervals, at least 30 s; with fewer than 3 known intervals,
//! for an hour. Arrivals count, so late rows of a source that was cut off are no silence. Time in
//! which nothing was evaluated does not count: after a restart, a pause of the machine or a step of
//! the clock, senders get the same time again to come back.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

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
/// The same while no interval is known.
pub(super) const ABSENT_AFTER_WITHOUT_INTERVAL_NS: i64 = 3600 * SECOND_NS;
/// Rows that ended longer before the first evaluation were stored before it: they are no arrivals.
const ARRIVAL_AGE_MAX_NS: i64 = 300 * SECOND_NS;
/// Delay of an evaluation that needs no correction.
const LATE_MIN_NS: i64 = SECOND_NS;
/// Streams whose newest row is older when a rule is first evaluated are not watched.
pub(super) const FIRST_ROW_AGE_MAX_NS: i64 = 86_400 * SECOND_NS;
/// Range of rows from which intervals are learned at first.
pub(super) const LEARNING_RANGE_NS: i64 = 3600 * SECOND_NS;

/// Arrivals of the rows of the streams of a rule, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamArrivals {
    /// First evaluation since the start, or since the last pause.
    started_ns: Option<i64>,
    /// Last evaluation.
    evaluated_ns: Option<i64>,
    /// Time from which silence is an absence, until the first evaluation is complete.
    watched_from_ns: Option<i64>,
    streams: Vec<KeyedArrivals>,
}

/// Arrivals of a stream with the hash of its labels. There may be very many: labels are not kept.
#[derive(Clone, Copy, Debug)]
struct KeyedArrivals {
    key: u64,
    clock: ArrivalTimes,
}

/// Times of the rows of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct ArrivalTimes {
    /// End of the newest row.
    newest_ns: Option<i64>,
    /// Evaluation that saw it arrive; `None` if nothing arrived since evaluations began.
    arrived_ns: Option<i64>,
    intervals: LastIntervals,
    /// Whether the wall clock was set back since the newest row, so that its age is not known.
    is_age_unknown: bool,
    /// Whether its silence is an absence: it sent while somebody looked.
    is_watched: bool,
    /// Whether it is known to be absent, so that nobody needs to look again.
    is_absent: bool,
    /// Whether a row arrived while somebody looked: stored rows do not tell how often it sends.
    has_arrived: bool,
}

/// The last intervals between rows in seconds, each as the upper half of an `f32`, which is within
/// 0.8 %.
#[derive(Clone, Copy, Debug, Default)]
struct LastIntervals {
    halves: [u16; INTERVALS_MAX],
    count: u8,
    next: u8,
}

/// Whether a stream is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AbsenceState {
    /// Rows arrive.
    Present,
    /// Its newest row is old, but senders have not had the time to come back.
    Uncertain,
    /// Nothing arrived for too long.
    Absent,
}

/// Absence of a stream, if it is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamAbsence {
    pub(super) state: AbsenceState,
    /// Age of the newest row.
    pub(super) age_ns: i64,
    /// Age from which the stream is absent.
    pub(super) absent_after_ns: i64,
}

/// Takes the arrivals of the streams of an evaluation, in their order, and puts them back.
pub(super) struct ArrivalUpdate<'a> {
    clocks: &'a mut StreamArrivals,
    stream_count: usize,
    before: Vec<KeyedArrivals>,
    /// Position of the next clock, if the streams are those of the evaluation before.
    next: usize,
    /// Positions by key, once the streams are others.
    positions: Option<HashMap<u64, usize>>,
    started_ns: i64,
    is_first: bool,
}

/// Arrivals of a stream in an evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedArrivals {
    key: u64,
    clock: ArrivalTimes,
    started_ns: i64,
    /// Whether it is the first evaluation: rows that are found did not arrive now.
    pub(super) is_first: bool,
}

impl StreamArrivals {
    /// Time from which silence is an absence: `time_ns`, or that of the first evaluation if it was
    /// not complete.
    pub(crate) fn watched_from_ns(&mut self, time_ns: i64) -> i64 {
        match self.evaluated_ns {
            None => *self.watched_from_ns.get_or_insert(time_ns),
            Some(_) => time_ns,
        }
    }

    /// Begins an evaluation of a rule with this many streams that is evaluated each `interval_ns`.
    pub(super) fn begin(
        &mut self,
        time_ns: i64,
        interval_ns: i64,
        stream_count: usize,
    ) -> ArrivalUpdate<'_> {
        let tolerance_ns = interval_ns.saturating_add(ABSENT_AFTER_MIN_NS);
        // An evaluation on schedule may be of an earlier time than one on arrival before it.
        let is_set_back =
            self.evaluated_ns.is_some_and(|at| time_ns < at.saturating_sub(tolerance_ns));
        // The machine paused, or the clock was set forward.
        let is_pause = self.evaluated_ns.is_some_and(|at| {
            time_ns.saturating_sub(at) > tolerance_ns.saturating_add(interval_ns)
        });
        let is_first = self.evaluated_ns.is_none();
        let late_ns = self.evaluated_ns.map_or(0, |at| {
            time_ns.saturating_sub(at).saturating_sub(interval_ns).saturating_sub(LATE_MIN_NS)
        });
        self.evaluated_ns = match is_set_back {
            true => Some(time_ns),
            false => self.evaluated_ns.max(Some(time_ns)),
        };
        if is_first || is_set_back || is_pause {
            self.started_ns = Some(time_ns);
            let clocks = self.streams.iter_mut().map(|keyed| &mut keyed.clock);
            clocks.for_each(|clock| clock.restart(is_set_back, time_ns));
        } else if late_ns > 0 {
            // Nothing was evaluated for so long, so nothing was seen to arrive.
            let started_ns = self.started_ns.iter_mut();
            let arrived_ns = self.streams.iter_mut().filter_map(|it| it.clock.arrived_ns.as_mut());
            started_ns.chain(arrived_ns).for_each(|at_ns| *at_ns = at_ns.saturating_add(late_ns));
        }
        let before = std::mem::replace(&mut self.streams, Vec::with_capacity(stream_count));
        let started_ns = self.started_ns.unwrap_or(time_ns);
        let (next, positions) = (0, None);
        ArrivalUpdate { clocks: self, stream_count, before, next, positions, started_ns, is_first }
    }
}

impl ArrivalUpdate<'_> {
    /// Clock of the next stream.
    pub(super) fn take(&mut self, labels: &LabelSet) -> ObservedArrivals {
        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        let key = hasher.finish();
        let clock = self.find(key).unwrap_or_default();
        ObservedArrivals { key, clock, started_ns: self.started_ns, is_first: self.is_first }
    }

    /// Puts it back. Clocks that are not put back are forgotten: their streams are gone.
    pub(super) fn keep(&mut self, observed: &ObservedArrivals) {
        let ObservedArrivals { key, clock, .. } = *observed;
        self.clocks.streams.push(KeyedArrivals { key, clock });
    }

    fn find(&mut self, key: u64) -> Option<ArrivalTimes> {
        if let Some(next) = self.before.get(self.next).filter(|next| next.key == key) {
            self.next += 1;
            return Some(next.clock);
        }
        let positions = self.positions.get_or_insert_with(|| {
            self.before.iter().enumerate().map(|(at, keyed)| (keyed.key, at)).collect()
        });
        let at = *positions.get(&key)?;
        self.next = at + 1;
        Some(self.before[at].clock)
    }
}

impl Drop for ArrivalUpdate<'_> {
    /// An evaluation that failed saw only some of the streams.
    fn drop(&mut self) {
        let is_complete = self.clocks.streams.len() >= self.stream_count;
        if !is_complete {
            self.clocks.streams = std::mem::take(&mut self.before);
        }
        match (self.is_first, is_complete) {
            // The next one decides again which streams are watched.
            (true, false) => self.clocks.evaluated_ns = None,
            (true, true) => self.clocks.watched_from_ns = None,
            (false, _) => {}
        }
    }
}

impl ObservedArrivals {
    /// End of the newest row.
    pub(super) fn newest_ns(&self) -> Option<i64> {
        self.clock.newest_ns
    }

    /// Adds a row that ended at a time and was found now. Late rows are no new ones. Rows from long
    /// before evaluations began did not arrive now: the clock may have been set back and forth.
    pub(super) fn add(&mut self, end_ns: i64, now_ns: i64) {
        let arrives_after_ns = self.started_ns.saturating_sub(ARRIVAL_AGE_MAX_NS);
        if self.clock.add(end_ns) && !self.is_first && end_ns >= arrives_after_ns {
            self.clock.arrived_ns = Some(now_ns);
            (self.clock.is_watched, self.clock.is_absent) = (true, false);
            self.clock.has_arrived = true;
        }
    }

    /// Watches the stream, or stops to watch it.
    pub(super) fn set_watched(&mut self, is_watched: bool) {
        (self.clock.is_watched, self.clock.is_absent) = (is_watched, false);
    }

    /// Whether its silence is an absence.
    pub(super) fn is_watched(&self) -> bool {
        self.clock.is_watched
    }

    /// Whether it is known to be absent.
    pub(super) fn is_absent(&self) -> bool {
        self.clock.is_absent
    }

    /// Remembers that it is absent, until a row arrives.
    pub(super) fn set_absent(&mut self) {
        self.clock.is_absent = true;
    }

    /// Silence of the stream, which is absent after a time, or after the learned one; `None` if no
    /// row was seen.
    pub(super) fn silence(&self, after_ns: Option<i64>, time_ns: i64) -> Option<StreamAbsence> {
        let absent_after_ns = after_ns.unwrap_or_else(|| self.clock.absent_after_ns());
        self.silence_after(absent_after_ns, absent_after_ns, time_ns)
    }

    /// The same for the absence of a rule: a stream of which nothing arrived since the start may
    /// have ended before it, and has an hour to come back.
    pub(super) fn silence_of_rule(
        &self,
        after_ns: Option<i64>,
        time_ns: i64,
    ) -> Option<StreamAbsence> {
        let recent_ns = after_ns.unwrap_or_else(|| self.clock.absent_after_ns());
        let absent_after_ns = match after_ns {
            None if !self.clock.has_arrived => recent_ns.max(ABSENT_AFTER_WITHOUT_INTERVAL_NS),
            _ => recent_ns,
        };
        self.silence_after(recent_ns, absent_after_ns, time_ns)
    }

    fn silence_after(
        &self,
        recent_ns: i64,
        absent_after_ns: i64,
        time_ns: i64,
    ) -> Option<StreamAbsence> {
        let ArrivalTimes { arrived_ns, is_age_unknown, .. } = self.clock;
        let age_ns = time_ns.saturating_sub(self.clock.newest_ns?);
        let silent_ns = time_ns.saturating_sub(arrived_ns.unwrap_or(self.started_ns));
        let is_recent = !is_age_unknown && age_ns < recent_ns;
        let state = match silent_ns >= absent_after_ns {
            true => AbsenceState::Absent,
            false if arrived_ns.is_some() || is_recent => AbsenceState::Present,
            false => AbsenceState::Uncertain,
        };
        Some(StreamAbsence { state, age_ns, absent_after_ns })
    }
}

impl ArrivalTimes {
    /// Evaluations begin anew.
    fn restart(&mut self, is_set_back: bool, time_ns: i64) {
        self.arrived_ns = None;
        self.is_absent = false;
        if is_set_back {
            self.newest_ns = self.newest_ns.map(|newest_ns| newest_ns.min(time_ns));
            self.is_age_unknown = true;
        }
    }

    /// Adds a row. Returns whether it is a new one.
    fn add(&mut self, end_ns: i64) -> bool {
        if let Some(newest_ns) = self.newest_ns {
            if end_ns <= newest_ns {
                return false;
            }
            if !self.is_age_unknown {
                self.intervals.add(end_ns.saturating_sub(newest_ns));
            }
        }
        self.newest_ns = Some(end_ns);
        self.is_age_unknown = false;
        true
    }

    fn absent_after_ns(&self) -> i64 {
        match self.intervals.median_ns() {
            Some(median_ns) => median_ns.saturating_mul(ABSENT_INTERVALS).max(ABSENT_AFTER_MIN_NS),
            None => ABSENT_AFTER_WITHOUT_INTERVAL_NS,
        }
    }
}

impl LastIntervals {
    fn add(&mut self, interval_ns: i64) {
        let bits = (interval_ns as f32 / SECOND_NS as f32).to_bits();
        self.halves[usize::from(self.next)] = (bits >> 16) as u16;
        self.next = (self.next + 1) % INTERVALS_MAX as u8;
        self.count = (self.count + 1).min(INTERVALS_MAX as u8);
    }

    /// `None` while there are too few.
    fn median_ns(&self) -> Option<i64> {
        let count = usize::from(self.count);
        if count < INTERVALS_MIN {
            return None;
        }
        // Positive numbers have the order of their bits.
        let mut halves = self.halves;
        halves[..count].sort_unstable();
        let seconds = f32::from_bits(u32::from(halves[count / 2]) << 16);
        Some((f64::from(seconds) * SECOND_NS as f64) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after which a stream with rows at these seconds is absent.
    #[track_caller]
    fn check(ends_s: &[i64], expected: i64) {
        let mut clock = ArrivalTimes::default();
        ends_s.iter().for_each(|end| {
            clock.add(end * SECOND_NS);
        });
        assert_eq!(clock.absent_after_ns() / SECOND_NS, expected, "{ends_s:?}");
    }

    #[test]
    fn a_stream_is_absent_after_five_median_intervals() {
        check(&[0, 10, 20, 30], 50);
        check(&[0, 1, 2, 3], 30);
        // One long pause does not change the median, and a late row is no interval.
        check(&[0, 10, 20, 500, 510, 505], 50);
        check(&[0, 10], 3600);
        check(&[], 3600);
        let mut many: Vec<i64> = (0..100).collect();
        many.extend((1..=20).map(|n| 100 + n * 60));
        check(&many, 300);
    }

    /// A rule with one stream, each 10 s.
    #[derive(Default)]
    struct OneStream(StreamArrivals);

    impl OneStream {
        /// State at a second, after the rows that are found then.
        fn state(&mut self, time_s: i64, rows_s: &[i64]) -> Option<AbsenceState> {
            let time_ns = time_s * SECOND_NS;
            let mut walk = self.0.begin(time_ns, 10 * SECOND_NS, 1);
            let mut clock = walk.take(&LabelSet::new([("host", "a")]));
            rows_s.iter().for_each(|end_s| clock.add(end_s * SECOND_NS, time_ns));
            walk.keep(&clock);
            Some(clock.silence(None, time_ns)?.state)
        }

        /// States each 10 s without rows.
        fn silent(&mut self, from_s: i64, to_s: i64) -> Vec<Option<AbsenceState>> {
            let mut states: Vec<_> =
                (from_s..=to_s).step_by(10).map(|time_s| self.state(time_s, &[])).collect();
            states.dedup();
            states
        }
    }

    use AbsenceState::{Absent, Present, Uncertain};

    #[test]
    fn time_before_the_first_evaluation_does_not_count() {
        let mut stream = OneStream::default();
        assert_eq!(stream.state(990, &[]), None);
        let mut stream = OneStream::default();
        assert_eq!(stream.state(1000, &[0, 10, 20, 30]), Some(Uncertain));
        assert_eq!(stream.silent(1010, 1040), [Some(Uncertain)]);
        assert_eq!(stream.state(1050, &[]), Some(Absent));
    }

    /// 38 s after a restart, an absence fired of streams that had ended before the kill.
    #[test]
    fn a_stream_of_which_nothing_arrived_since_the_start_has_an_hour() {
        let mut stream = OneStream::default();
        stream.state(1000, &[900, 901, 902, 903]);
        let of_rule = |stream: &mut OneStream, time_s: i64, rows_s: &[i64]| {
            stream.state(time_s, rows_s);
            let time_ns = time_s * SECOND_NS;
            let clock = stream.0.streams[0].clock;
            let started_ns = stream.0.started_ns.expect("a start");
            let seen = ObservedArrivals { key: 0, clock, started_ns, is_first: false };
            seen.silence_of_rule(None, time_ns).expect("a row").state
        };
        for time_s in (1010..4600).step_by(10) {
            assert_eq!(of_rule(&mut stream, time_s, &[]), Uncertain, "{time_s}");
        }
        assert_eq!(of_rule(&mut stream, 4600, &[]), Absent);
        // One that sends again is known.
        assert_eq!(of_rule(&mut stream, 4610, &[4605, 4606, 4607, 4608]), Present);
        assert_eq!(of_rule(&mut stream, 4620, &[]), Present);
        assert_eq!(of_rule(&mut stream, 4630, &[]), Present);
        assert_eq!(of_rule(&mut stream, 4640, &[]), Absent);
    }

    #[test]
    fn late_rows_are_no_silence() {
        let mut stream = OneStream::default();
        assert_eq!(stream.state(1000, &[970, 980, 990, 1000]), Some(Present));
        assert_eq!(stream.silent(1010, 1040), [Some(Present)]);
        assert_eq!(stream.state(1050, &[]), Some(Absent));
        // Rows that are 40 s old and more.
        assert_eq!(stream.state(1060, &[1010]), Some(Present));
        assert_eq!(stream.silent(1070, 1090), [Some(Present)]);
        assert_eq!(stream.state(1100, &[1060]), Some(Present));
    }

    #[test]
    fn a_pause_of_the_machine_and_a_step_of_the_clock_do_not_count() {
        let mut stream = OneStream::default();
        for time_s in [0, 10, 20, 30, 40] {
            assert_eq!(stream.state(time_s, &[time_s]), Some(Present));
        }
        // A late evaluation, and one on schedule after one on arrival.
        assert_eq!(stream.state(80, &[]), Some(Present));
        assert_eq!(stream.state(79, &[]), Some(Present));
        // A pause of an hour.
        assert_eq!(stream.state(3680, &[]), Some(Uncertain));
        assert_eq!(stream.silent(3690, 3720), [Some(Uncertain)]);
        assert_eq!(stream.state(3730, &[]), Some(Absent));
        // The clock is set back: the age of the newest row is not known.
        assert_eq!(stream.state(130, &[]), Some(Uncertain));
        assert_eq!(stream.silent(140, 170), [Some(Uncertain)]);
        assert_eq!(stream.state(180, &[]), Some(Absent));
        assert_eq!(stream.state(190, &[185]), Some(Present));
        // And again, to before the rows: new ones are rows.
        assert_eq!(stream.state(20, &[]), Some(Uncertain));
        assert_eq!(stream.state(30, &[25]), Some(Present));
    }

    #[test]
    fn a_pause_that_is_shorter_than_the_tolerance_does_not_count() {
        let mut stream = OneStream::default();
        for time_s in 0..=40 {
            stream.state(time_s, &[time_s]);
        }
        // Absent after 30 s; the machine paused for 45 s.
        assert_eq!(stream.state(85, &[]), Some(Present));
        assert_eq!(stream.silent(95, 95), [Some(Present)]);
        assert_eq!(stream.state(100, &[45]), Some(Present));
    }

    #[test]
    fn a_first_evaluation_that_fails_is_repeated() {
        let mut clocks = StreamArrivals::default();
        assert_eq!(clocks.watched_from_ns(5), 5);
        // One of two streams was read.
        let mut walk = clocks.begin(10, 10 * SECOND_NS, 2);
        let clock = walk.take(&LabelSet::new([("host", "a")]));
        walk.keep(&clock);
        drop(walk);
        assert_eq!(clocks.watched_from_ns(20), 5);
        let mut walk = clocks.begin(20, 10 * SECOND_NS, 1);
        let clock = walk.take(&LabelSet::new([("host", "a")]));
        assert!(clock.is_first);
        walk.keep(&clock);
        drop(walk);
        assert_eq!(clocks.watched_from_ns(30), 30);
    }

    #[test]
    fn clocks_follow_their_streams() {
        let labels = |host: u8| LabelSet::new([("host", host.to_string())]);
        let mut clocks = StreamArrivals::default();
        let mut newest_s = |time_s: i64, hosts: &[u8], adds: bool| -> Vec<Option<i64>> {
            let mut walk = clocks.begin(time_s * SECOND_NS, 10 * SECOND_NS, hosts.len());
            let mut newest = Vec::new();
            for host in hosts {
                let mut clock = walk.take(&labels(*host));
                if adds {
                    clock.add(i64::from(*host) * SECOND_NS, time_s * SECOND_NS);
                }
                newest.push(clock.newest_ns().map(|ns| ns / SECOND_NS));
                walk.keep(&clock);
            }
            newest
        };
        newest_s(100, &[1, 2, 3, 4], true);
        assert_eq!(newest_s(110, &[2, 9, 4, 1], false), [Some(2), None, Some(4), Some(1)]);
        // Host 3 was gone for an evaluation.
        assert_eq!(newest_s(120, &[1, 2, 3, 4], false), [Some(1), Some(2), None, Some(4)]);
    }

    #[test]
    fn an_evaluation_that_fails_forgets_no_clock() {
        let labels = LabelSet::new([("host", "a")]);
        let mut clocks = StreamArrivals::default();
        let mut walk = clocks.begin(SECOND_NS, SECOND_NS, 1);
        let mut clock = walk.take(&labels);
        clock.add(SECOND_NS, SECOND_NS);
        walk.keep(&clock);
        drop(walk);
        drop(clocks.begin(2 * SECOND_NS, SECOND_NS, 1));
        let mut walk = clocks.begin(3 * SECOND_NS, SECOND_NS, 1);
        assert_eq!(walk.take(&labels).newest_ns(), Some(SECOND_NS));
    }

    #[test]
    fn a_clock_is_small() {
        assert!(size_of::<KeyedArrivals>() <= 88, "{}", size_of::<KeyedArrivals>());
    }
}
