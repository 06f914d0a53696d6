//! Counts of events, and their shares.

use hist::{Bracket, LimitInclusion, Mixture};

use super::{Objective, SloError};

/// Events of a time range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventTotals {
    /// Bad ones, with bounds that contain the true number.
    pub bad: Bracket,
    /// All.
    pub total: f64,
}

/// What was read of a time range.
#[derive(Clone, Debug, PartialEq)]
pub enum SlotEvents {
    /// Nothing: no events, or no data.
    Empty,
    /// A distribution.
    Values(Mixture),
    /// Counts.
    Counts(EventTotals),
}

/// Events of a time range: start exclusive, end inclusive.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSlot {
    /// Start in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Events.
    pub events: SlotEvents,
}

impl SlotEvents {
    /// Adds the events of another time range.
    pub(super) fn add(&mut self, other: &SlotEvents) -> Result<(), SloError> {
        match (&mut *self, other) {
            (_, SlotEvents::Empty) => {}
            (SlotEvents::Empty, _) => *self = other.clone(),
            (SlotEvents::Values(values), SlotEvents::Values(more)) => {
                for part in more.components() {
                    values.add(part).map_err(|error| SloError::Merge(error.to_string()))?;
                }
            }
            (SlotEvents::Counts(events), more) => events.add(&more.count(f64::INFINITY)),
            (SlotEvents::Values(_), SlotEvents::Counts(_)) => {
                return Err(SloError::Merge("counts are no distribution".to_owned()));
            }
        }
        Ok(())
    }

    /// Counts; `limit` is the largest good value, in the unit of the distribution.
    pub fn count(&self, limit: f64) -> EventTotals {
        match self {
            SlotEvents::Empty => EventTotals::NONE,
            SlotEvents::Counts(events) => *events,
            SlotEvents::Values(values) => {
                let Bracket { lower, estimate, upper } =
                    values.count_above(limit, LimitInclusion::Exclusive);
                let bad =
                    Bracket { lower: lower as f64, estimate: estimate as f64, upper: upper as f64 };
                EventTotals { bad, total: values.count() as f64 }
            }
        }
    }
}

impl EventTotals {
    /// No events.
    pub const NONE: EventTotals =
        EventTotals { bad: Bracket { lower: 0.0, estimate: 0.0, upper: 0.0 }, total: 0.0 };

    /// Adds the events of another time range.
    pub fn add(&mut self, other: &EventTotals) {
        self.bad.lower += other.bad.lower;
        self.bad.estimate += other.bad.estimate;
        self.bad.upper += other.bad.upper;
        self.total += other.total;
    }

    /// Difference to a part of these events.
    pub(super) fn without(&self, part: &EventTotals) -> EventTotals {
        let bad = Bracket {
            lower: self.bad.lower - part.bad.lower,
            estimate: self.bad.estimate - part.bad.estimate,
            upper: self.bad.upper - part.bad.upper,
        };
        EventTotals { bad, total: self.total - part.total }
    }

    /// Share of good events; `None` without events.
    pub fn attained(&self) -> Option<Bracket> {
        let share = |bad: f64| ((self.total - bad) / self.total).clamp(0.0, 1.0);
        (self.total > 0.0).then(|| Bracket {
            lower: share(self.bad.upper),
            estimate: share(self.bad.estimate),
            upper: share(self.bad.lower),
        })
    }

    /// Number of events that may be bad.
    pub fn budget(&self, objective: Objective) -> f64 {
        self.total * objective.budget()
    }

    /// Share of the budget that is left; negative if it is overspent, `None` without events.
    pub fn remaining(&self, objective: Objective) -> Option<Bracket> {
        let budget = self.budget(objective);
        let left = |bad: f64| 1.0 - bad / budget;
        (budget > 0.0).then(|| Bracket {
            lower: left(self.bad.upper),
            estimate: left(self.bad.estimate),
            upper: left(self.bad.lower),
        })
    }

    /// Burn rate; `None` without events.
    pub fn burn_rate(&self, objective: Objective) -> Option<Bracket> {
        let remaining = self.remaining(objective)?;
        Some(Bracket {
            lower: 1.0 - remaining.upper,
            estimate: 1.0 - remaining.estimate,
            upper: 1.0 - remaining.lower,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bad: f64, total: f64) -> EventTotals {
        EventTotals { bad: Bracket::exact(bad), total }
    }

    #[test]
    fn budget_is_a_share_of_all_events() {
        let objective = Objective::parse("99.9%").unwrap();
        let month = events(300.0, 1_000_000.0);
        assert_eq!(month.budget(objective), 1000.0);
        assert_eq!(month.remaining(objective), Some(Bracket::exact(0.7)));
        assert_eq!(month.attained(), Some(Bracket::exact(0.9997)));
        let overspent = events(2500.0, 1_000_000.0).remaining(objective).unwrap();
        assert_eq!(overspent.estimate, -1.5);
        assert_eq!(EventTotals::NONE.remaining(objective), None);
        assert_eq!(EventTotals::NONE.attained(), None);
    }

    #[test]
    fn bounds_of_bad_events_are_bounds_of_the_budget() {
        let objective = Objective::parse("99%").unwrap();
        let bad = Bracket { lower: 1.0, estimate: 4.0, upper: 10.0 };
        let found = EventTotals { bad, total: 1000.0 }.remaining(objective).unwrap();
        let rounded = found.map(|share| (share * 1e9).round() / 1e9);
        assert_eq!(rounded, Bracket { lower: 0.0, estimate: 0.6, upper: 0.9 });
    }
}
