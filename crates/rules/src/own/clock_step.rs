//! Wall clock that was set back: rows of before the step are as new as those that follow it.
//!
//! After a step from 12:00 back to 11:00, a window that ends at 11:05 has the rows of an hour ago
//! besides those that arrived since the step, and nobody can tell them apart by their times. What
//! is measured of such a window is neither what is now nor what was then: it is unknown, until the
//! window has only rows that arrived after the step. Of a window that is longer than the step, the
//! time of the step is a part that counts twice: it is known again one length of the step after
//! the clock has passed the time of the step.
//!
//! A clock that was ahead, such as one that starts in 2036 until NTP corrects it, left no rows
//! between the last evaluation before its jump and the first one after it. After the step back only
//! rows of up to the jump are those of before; those of the time ahead matter once the clock gets
//! there. Where no jump is known, a step is over after a day.
//!
//! A query may read other times than the window before now, such as those of a day ago: each range
//! that it reads is examined by itself, and a step is remembered for [`OFFSET_MAX_NS`].

use std::ops::Range;

/// A step back is longer than this and the interval of evaluations: an evaluation on schedule may
/// be of an earlier time than one on arrival before it. Absences have the same tolerance.
const STEP_MIN_NS: i64 = 30 * 1_000_000_000;
/// Longest time after an evaluation, beside an interval, that is taken for one with rows of before
/// a step: more is a clock that was wrong.
const STEP_MAX_NS: i64 = 86_400 * 1_000_000_000;
/// How far back queries read for sure without rows of before a step: a week, as they compare with,
/// and a day.
const OFFSET_MAX_NS: i64 = 8 * 86_400 * 1_000_000_000;

/// Times of the evaluations of a group, and the steps of its clock that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvaluationClock {
    /// Latest evaluation since the start, or since the last step back.
    latest_ns: Option<i64>,
    steps: ClockSteps,
}

/// Steps of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockSteps {
    /// The last step back, while it matters.
    pub(crate) back: Option<ClockStepBack>,
    /// The last time without evaluations, unless the clock was set back to before its end.
    pub(crate) gap: Option<EvaluationGap>,
    pub(crate) ahead: Option<RowsAhead>,
}

/// A step of the wall clock backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStepBack {
    /// First evaluation after it.
    pub(crate) from_ns: i64,
    /// Rows of before the step ended up to this time.
    pub(crate) until_ns: i64,
    /// Latest evaluation since the step, before `until_ns`: up to this time there are rows of both.
    pub(crate) reached_ns: i64,
}

/// Time without evaluations: the clock was set forward, or nobody ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EvaluationGap {
    /// Latest evaluation before it, and latest time before it up to which there are rows.
    pub(crate) before_ns: i64,
    /// First evaluation after it.
    pub(crate) after_ns: i64,
}

/// Rows of a clock that was ahead and was set back: they matter once the clock gets there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsAhead {
    pub(crate) from_ns: i64,
    pub(crate) until_ns: i64,
}

impl EvaluationClock {
    /// Clock of a group that goes on after its last evaluation.
    pub(crate) fn new(latest_ns: Option<i64>, steps: ClockSteps) -> EvaluationClock {
        EvaluationClock { latest_ns, steps }
    }

    /// The steps that matter.
    pub(crate) fn steps(&self) -> ClockSteps {
        self.steps
    }

    /// Notes an evaluation of a group that is evaluated each `interval_ns`.
    pub(crate) fn observe(&mut self, time_ns: i64, interval_ns: i64) {
        let tolerance_ns = interval_ns.saturating_add(STEP_MIN_NS);
        match self.latest_ns {
            Some(latest_ns) if time_ns < latest_ns.saturating_sub(tolerance_ns) => {
                self.steps.set_back(time_ns, latest_ns, interval_ns);
                self.latest_ns = Some(time_ns);
            }
            Some(latest_ns) if time_ns > latest_ns.saturating_add(tolerance_ns) => {
                self.steps.set_forward(time_ns, latest_ns);
                self.latest_ns = Some(time_ns);
            }
            latest_ns => self.latest_ns = latest_ns.max(Some(time_ns)),
        }
        self.steps.reach(time_ns, interval_ns);
    }

    /// Whether a window that ends at a time may have rows of before the last step back besides
    /// others.
    pub(crate) fn is_mixed(&self, time_ns: i64, window_ns: i64) -> bool {
        self.steps.back.is_some_and(|step| step.is_in_window(time_ns, window_ns))
    }

    /// The same of a range that is read at a time; start exclusive, end inclusive.
    pub(crate) fn is_range_mixed(&self, time_ns: i64, range: &Range<i64>) -> bool {
        self.steps.back.is_some_and(|step| step.is_in_range(time_ns, range))
    }
}

impl ClockSteps {
    fn set_forward(&mut self, time_ns: i64, latest_ns: i64) {
        // A step that is undone left rows that are later than the last evaluation.
        let step = self.back.filter(|step| step.from_ns <= latest_ns);
        let before_ns = step.map_or(latest_ns, |step| step.until_ns.clamp(latest_ns, time_ns));
        self.gap = Some(EvaluationGap { before_ns, after_ns: time_ns });
    }

    fn set_back(&mut self, time_ns: i64, latest_ns: i64, interval_ns: i64) {
        let tolerance_ns = interval_ns.saturating_add(STEP_MIN_NS);
        // Rows arrive between two evaluations, too.
        let mut until_ns = latest_ns.saturating_add(interval_ns);
        if let Some(gap) = self.gap.take_if(|gap| time_ns < gap.after_ns) {
            let from_ns = gap.after_ns.saturating_sub(interval_ns);
            self.add_ahead(RowsAhead { from_ns, until_ns });
            // The clock had reached what was ahead, and is before it again.
            if let Some(step) = self.back.take_if(|step| step.from_ns >= gap.before_ns) {
                self.add_ahead(RowsAhead { from_ns: step.from_ns, until_ns: step.until_ns });
            }
            if time_ns >= gap.before_ns.saturating_sub(tolerance_ns) {
                return;
            }
            until_ns = gap.before_ns.saturating_add(interval_ns);
        }
        let new = ClockStepBack { from_ns: time_ns, until_ns, reached_ns: time_ns };
        // One that is over is remembered for queries with an offset: the new one replaces it.
        let before = self.back.filter(|step| step.is_in_window(until_ns, i64::MAX));
        self.back = Some(before.map_or(new, |before| before.with(&new)));
    }

    /// Of rows that are not together, the nearest ones count.
    fn add_ahead(&mut self, new: RowsAhead) {
        let old = self.ahead.unwrap_or(new);
        let (near, far) = if old.from_ns <= new.from_ns { (old, new) } else { (new, old) };
        let is_one = far.from_ns <= near.until_ns;
        let until_ns = if is_one { near.until_ns.max(far.until_ns) } else { near.until_ns };
        self.ahead = Some(RowsAhead { until_ns, ..near });
    }

    /// The clock is at a time.
    fn reach(&mut self, time_ns: i64, interval_ns: i64) {
        if let Some(RowsAhead { from_ns, until_ns }) =
            self.ahead.take_if(|ahead| time_ns > ahead.from_ns)
        {
            let new = ClockStepBack { from_ns, until_ns, reached_ns: time_ns.min(until_ns) };
            let before = self.back.filter(|step| from_ns <= step.until_ns);
            self.back = Some(before.map_or(new, |before| before.with(&new)));
        }
        if let Some(step) = &mut self.back {
            let max_ns = time_ns.saturating_add(STEP_MAX_NS).saturating_add(interval_ns);
            step.until_ns = step.until_ns.min(max_ns);
            step.reached_ns = step.reached_ns.min(step.until_ns);
            if time_ns < step.until_ns {
                step.reached_ns = step.reached_ns.max(time_ns);
            } else if !step.is_in_window(time_ns.saturating_sub(OFFSET_MAX_NS), i64::MAX) {
                self.back = None;
            }
        }
    }
}

impl ClockStepBack {
    /// Both steps as one.
    fn with(self, other: &ClockStepBack) -> ClockStepBack {
        ClockStepBack {
            from_ns: self.from_ns.min(other.from_ns),
            until_ns: self.until_ns.max(other.until_ns),
            reached_ns: self.reached_ns.max(other.reached_ns),
        }
    }

    fn is_in_window(&self, time_ns: i64, window_ns: i64) -> bool {
        time_ns < self.until_ns || self.is_doubled(time_ns, window_ns)
    }

    /// Until the clock is where it was, a range in the past has older rows than before the step.
    fn is_in_range(&self, time_ns: i64, range: &Range<i64>) -> bool {
        let length_ns = range.end.saturating_sub(range.start);
        time_ns < self.until_ns
            || (range.end >= self.from_ns && self.is_doubled(range.end, length_ns))
    }

    /// Whether a window that ends at a time has time with rows of both, other than as a part of a
    /// longer one.
    fn is_doubled(&self, end_ns: i64, window_ns: i64) -> bool {
        let length_ns = window_ns.min(self.until_ns.saturating_sub(self.from_ns));
        end_ns.saturating_sub(length_ns) < self.reached_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;
    const MINUTE_S: i64 = 60;
    const HOUR_S: i64 = 3600;

    /// A group that is evaluated each 10 s, at seconds since 12:00.
    #[derive(Default)]
    struct Group(EvaluationClock);

    impl Group {
        fn run(&mut self, from_s: i64, to_s: i64) {
            let times = (from_s..=to_s).step_by(10);
            times.for_each(|at| self.0.observe(at * SECOND_NS, 10 * SECOND_NS));
        }

        /// Whether windows of a minute, of an hour and of a day are mixed.
        fn mixed(&self, at_s: i64) -> [bool; 3] {
            [MINUTE_S, HOUR_S, 24 * HOUR_S]
                .map(|window_s| self.0.is_mixed(at_s * SECOND_NS, window_s * SECOND_NS))
        }

        /// A week after a step no query reads its rows.
        #[track_caller]
        fn check_is_forgotten(mut self) {
            assert!(self.0.steps().back.is_some());
            self.run(9 * 24 * HOUR_S, 9 * 24 * HOUR_S);
            assert_eq!(self.0.steps().back, None);
        }
    }

    #[test]
    fn windows_are_mixed_until_they_have_no_row_of_before_the_step() {
        let mut group = Group::default();
        group.run(-600, 0);
        assert_eq!(group.mixed(0), [false; 3]);
        group.run(-HOUR_S, 0);
        assert_eq!(group.mixed(0), [true; 3]);
        group.run(10, MINUTE_S - 10);
        assert_eq!(group.mixed(MINUTE_S - 10), [true; 3]);
        group.run(MINUTE_S, MINUTE_S);
        assert_eq!(group.mixed(MINUTE_S), [false, true, true]);
        group.run(MINUTE_S, HOUR_S + 10);
        assert_eq!(group.mixed(HOUR_S + 10), [false; 3]);
        group.check_is_forgotten();
    }

    #[test]
    fn ranges_are_mixed_while_they_have_rows_of_before_the_step() {
        let mut group = Group::default();
        group.run(-2 * HOUR_S, 0);
        group.run(-HOUR_S, -MINUTE_S);
        // From minutes before 12:00 to minutes before it.
        let mixed = |group: &Group, at_s: i64, start: i64, end: i64| {
            let range = -start * MINUTE_S * SECOND_NS..-end * MINUTE_S * SECOND_NS;
            group.0.is_range_mixed(at_s * SECOND_NS, &range)
        };
        for (start, end) in [(90, 61), (90, 60), (40, 30), (0, -10)] {
            assert!(mixed(&group, -MINUTE_S, start, end), "{start} {end}");
        }
        group.run(10 - MINUTE_S, 3 * HOUR_S);
        for (start, end, expected) in
            [(90, 61, false), (90, 60, true), (40, 30, true), (-1, -10, false), (1, -10, true)]
        {
            assert_eq!(mixed(&group, 3 * HOUR_S, start, end), expected, "{start} {end}");
        }
        // A part of a range that is much longer.
        assert!(mixed(&group, 3 * HOUR_S, 1000, -59));
        assert!(!mixed(&group, 3 * HOUR_S, 1000, -61));
        // Another step: that of before no longer matters for the window before now.
        group.run(3 * HOUR_S, 24 * HOUR_S);
        group.run(24 * HOUR_S - 600, 24 * HOUR_S);
        let back = group.0.steps().back.expect("the step");
        assert_eq!(back.from_ns, (24 * HOUR_S - 600) * SECOND_NS);
    }

    #[test]
    fn a_step_that_is_undone_matters_as_long_as_rows_arrived_meanwhile() {
        let mut group = Group::default();
        group.run(-600, 0);
        group.run(-HOUR_S, -HOUR_S + 5 * MINUTE_S);
        assert_eq!(group.mixed(-HOUR_S + 5 * MINUTE_S), [true; 3]);
        // Only a window that is longer than the step has these five minutes twice.
        group.run(5 * MINUTE_S, 5 * MINUTE_S);
        assert_eq!(group.mixed(5 * MINUTE_S), [false, false, true]);
        group.run(6 * MINUTE_S, 6 * MINUTE_S);
        assert_eq!(group.mixed(6 * MINUTE_S), [false; 3]);
        group.check_is_forgotten();
    }

    #[test]
    fn an_evaluation_on_schedule_after_one_on_arrival_is_no_step() {
        let mut group = Group::default();
        group.run(-600, 0);
        group.run(-40, -40);
        assert_eq!(group.mixed(-40), [false; 3]);
        group.run(-41, -41);
        assert_eq!(group.mixed(-41), [true; 3]);
    }

    const YEAR_S: i64 = 365 * 24 * HOUR_S;

    #[test]
    fn a_clock_that_was_ahead_leaves_no_window_mixed_until_it_gets_there() {
        let mut group = Group::default();
        group.run(-600, 0);
        // Twice: the clock of the firmware is wrong at each start.
        for start_s in [0, 600] {
            group.run(10 * YEAR_S, 10 * YEAR_S + 20);
            group.run(start_s + 40, start_s + 590);
            assert_eq!(group.mixed(start_s + 40), [false; 3]);
            assert_eq!(group.mixed(start_s + 590), [false; 3]);
        }
        assert!(group.0.steps().ahead.is_some());
        let mut restored = Group(EvaluationClock::new(Some(1190 * SECOND_NS), group.0.steps()));
        restored.run(1200, 2000);
        assert_eq!(restored.mixed(2000), [false; 3]);
        // Rows of both: of up to half a minute.
        restored.run(10 * YEAR_S - 10, 10 * YEAR_S - 10);
        assert_eq!(restored.mixed(10 * YEAR_S - 10), [false; 3]);
        restored.run(10 * YEAR_S, 10 * YEAR_S + 20);
        assert_eq!(restored.mixed(10 * YEAR_S + 20), [true; 3]);
        restored.run(10 * YEAR_S + 30, 10 * YEAR_S + 2 * HOUR_S);
        assert_eq!(restored.mixed(10 * YEAR_S + 2 * HOUR_S), [false; 3]);
    }

    #[test]
    fn a_clock_that_was_ahead_and_is_set_to_before_its_jump_has_mixed_windows_up_to_the_jump() {
        let mut group = Group::default();
        group.run(-HOUR_S, 0);
        group.run(10 * YEAR_S, 10 * YEAR_S);
        group.run(-600, -10);
        assert_eq!(group.mixed(-10), [true; 3]);
        group.run(0, MINUTE_S);
        assert_eq!(group.mixed(MINUTE_S), [false, true, true]);
        group.run(MINUTE_S, 2 * HOUR_S);
        assert_eq!(group.mixed(2 * HOUR_S), [false; 3]);
    }

    #[test]
    fn the_rows_of_a_step_that_is_undone_and_made_again_are_those_of_before() {
        let mut group = Group::default();
        group.run(-600, 0);
        group.run(-HOUR_S, -HOUR_S + 5 * MINUTE_S);
        group.run(5 * MINUTE_S, 20 * MINUTE_S);
        assert_eq!(group.mixed(20 * MINUTE_S), [false; 3]);
        group.run(-HOUR_S / 2, -10);
        assert_eq!(group.mixed(-10), [true; 3]);
        group.run(0, MINUTE_S + 10);
        assert_eq!(group.mixed(MINUTE_S + 10), [false, true, true]);
        // Where the clock was before it was set back.
        group.run(MINUTE_S + 20, 5 * MINUTE_S);
        assert_eq!(group.mixed(5 * MINUTE_S), [true; 3]);
    }

    #[test]
    fn a_step_whose_jump_nobody_saw_is_over_after_a_day() {
        let day_s = 24 * HOUR_S;
        let latest_ns = Some(10 * YEAR_S * SECOND_NS);
        let step = ClockStepBack {
            from_ns: -600 * SECOND_NS,
            until_ns: 10 * YEAR_S * SECOND_NS,
            reached_ns: 0,
        };
        for back in [None, Some(step)] {
            let steps = ClockSteps { back, ..ClockSteps::default() };
            let mut group = Group(EvaluationClock::new(latest_ns, steps));
            group.run(0, day_s);
            assert_eq!(group.mixed(day_s), [true; 3]);
            group.run(day_s + 10, day_s + MINUTE_S + 10);
            assert_eq!(group.mixed(day_s + MINUTE_S + 10), [false, true, true]);
            group.run(day_s + MINUTE_S + 20, 3 * day_s);
            assert_eq!(group.mixed(3 * day_s), [false; 3]);
        }
    }
}
