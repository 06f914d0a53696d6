//! Wall clock that was set back: rows of before the step are as new as those that follow it.
//!
//! After a step from 12:00 back to 11:00, a window that ends at 11:05 has the rows of an hour ago
//! besides those that arrived since the step, and nobody can tell them apart by their times. What
//! is measured of such a window is neither what is now nor what was then: it is unknown, until the
//! window has only rows that arrived after the step. Of a window that is longer than the step, the
//! time of the step is a part that counts twice: it is known again one length of the step after
//! the clock has passed the time of the step.

/// A step back is longer than this and the interval of evaluations: an evaluation on schedule may
/// be of an earlier time than one on arrival before it. Absences have the same tolerance.
const STEP_MIN_NS: i64 = 30 * 1_000_000_000;

/// Times of the evaluations of a group, and the last step back, while it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EvaluationClock {
    /// Latest evaluation since the start, or since the last step back.
    latest_ns: Option<i64>,
    step_back: Option<ClockStepBack>,
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

impl EvaluationClock {
    /// Clock of a group that goes on after its last evaluation.
    pub(crate) fn new(latest_ns: Option<i64>, step_back: Option<ClockStepBack>) -> EvaluationClock {
        EvaluationClock { latest_ns, step_back }
    }

    /// The last step back, while it matters.
    pub(crate) fn step_back(&self) -> Option<ClockStepBack> {
        self.step_back
    }

    /// Notes an evaluation of a group that is evaluated each `interval_ns`.
    pub(crate) fn observe(&mut self, time_ns: i64, interval_ns: i64) {
        let tolerance_ns = interval_ns.saturating_add(STEP_MIN_NS);
        match self.latest_ns {
            Some(latest_ns) if time_ns < latest_ns.saturating_sub(tolerance_ns) => {
                // Rows arrive between two evaluations, too.
                let new = ClockStepBack {
                    from_ns: time_ns,
                    until_ns: latest_ns.saturating_add(interval_ns),
                    reached_ns: time_ns,
                };
                self.step_back = Some(self.step_back.map_or(new, |before| before.with(&new)));
                self.latest_ns = Some(time_ns);
            }
            latest_ns => self.latest_ns = latest_ns.max(Some(time_ns)),
        }
        if let Some(step) = &mut self.step_back {
            if time_ns < step.until_ns {
                step.reached_ns = step.reached_ns.max(time_ns);
            } else if !step.is_in_window(time_ns, i64::MAX) {
                self.step_back = None;
            }
        }
    }

    /// Whether a window that ends at a time may have rows of before the last step back besides
    /// others.
    pub(crate) fn is_mixed(&self, time_ns: i64, window_ns: i64) -> bool {
        self.step_back.is_some_and(|step| step.is_in_window(time_ns, window_ns))
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
        let length_ns = window_ns.min(self.until_ns.saturating_sub(self.from_ns));
        time_ns < self.until_ns || time_ns.saturating_sub(length_ns) < self.reached_ns
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
        assert_eq!(group.0.step_back(), None);
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
        assert_eq!(group.0.step_back(), None);
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
}
