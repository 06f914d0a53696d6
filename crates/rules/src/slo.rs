//! Service level objectives: which share of events is good in a period.
//!
//! An event is a value of a distribution, good if it does not exceed a threshold, or a count of
//! good, bad and all events. Nothing is precomputed that depends on threshold or objective: counts
//! come from the stored distributions of the question's time range, so that both may be changed
//! afterwards. The count of values above a threshold inside a bucket has bounds, which contain the
//! true count.
//!
//! 1. [`SloDraft`] are the texts of a definition (TOML, [OpenSLO](parse_openslo)); it checks them.
//! 2. [`EventReader`] reads the events of time ranges from a query source.
//! 3. [`SloReport`] and [`SloSummary`] compute budget, burn rates and affected events.
//! 4. [`Slo::rule_group`] has the rules of burn-rate alerts as PromQL.

mod budget;
mod burn_rules;
mod burn_window;
mod draft;
mod event_reader;
mod events;
mod openslo;
mod period;
mod report;

use std::sync::Arc;

use query::promql::{self, ExprKind};

use crate::rule_file::LabelMap;

pub use budget::{AttainedCurve, BudgetStatus, CurvePoint};
pub use burn_rules::SLO_ALERT_FILE;
pub use burn_window::BurnWindow;
pub use decode::Quantity;
pub use draft::{CorrectionDraft, SloDraft, SloProblem};
pub use event_reader::{EventReader, SloError};
pub use events::{EventSlot, EventTotals, SlotEvents};
pub use openslo::parse_openslo;
pub use period::{CalendarUnit, Period};
pub use report::{
    BurnState, DayReport, PeopleReport, ReportRange, SloPoint, SloReport, SloSummary,
};

/// Service level objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    /// Name, unique.
    pub name: String,
    /// Description; may be empty.
    pub description: String,
    /// Which events are good.
    pub indicator: Indicator,
    /// Share of good events.
    pub objective: Objective,
    /// Period in which the objective applies.
    pub period: Period,
    /// Time ranges that do not count.
    pub corrections: Vec<Correction>,
    /// Number of users in a period, to state the affected share in people.
    pub users: Option<f64>,
    /// Label that tells users or sessions apart.
    pub user_label: Option<String>,
    /// Labels of its alerts.
    pub labels: LabelMap,
    /// Windows of its burn-rate alerts.
    pub windows: Vec<BurnWindow>,
    /// Number of bad events in six hours above which an alert fires, whatever the traffic.
    pub affected_max: Option<u64>,
}

/// Which events are good.
#[derive(Clone, Debug, PartialEq)]
pub enum Indicator {
    /// Values of distributions that do not exceed a threshold.
    Threshold {
        /// Selector of the series.
        selector: String,
        /// Largest good value.
        threshold: Quantity,
    },
    /// Counters of good or bad events, and of all.
    Ratio {
        /// Selector of the counted part.
        part: String,
        /// Whether the part is the good events.
        is_good: bool,
        /// Selector of all events.
        total: String,
    },
}

/// Share of events that shall be good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective(f64);

impl Objective {
    /// `99.9%` or `0.999`; above 0 and below 1.
    pub fn parse(text: &str) -> Option<Objective> {
        let text = text.trim();
        let (number, divisor) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let share = round(number.parse::<f64>().ok()? / divisor);
        (share > 0.0 && share < 1.0).then_some(Objective(share))
    }

    /// Share, above 0 and below 1.
    pub fn share(self) -> f64 {
        self.0
    }

    /// Share of events that may be bad.
    pub fn budget(self) -> f64 {
        round(1.0 - self.0)
    }
}

/// Rounds to 1e-12: 1 − 0.999 is 0.001.
fn round(share: f64) -> f64 {
    (share * 1e12).round() / 1e12
}

/// Time range that does not count, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction {
    /// Start in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End, exclusive.
    pub end_ns: i64,
    /// Reason; windows of a maintenance share it.
    pub reason: Arc<str>,
}

impl Slo {
    /// The same with another threshold or objective: what would have been.
    pub fn with(&self, threshold: Option<Quantity>, objective: Option<Objective>) -> Slo {
        let mut changed = self.clone();
        if let (Some(other), Indicator::Threshold { threshold, .. }) =
            (threshold, &mut changed.indicator)
        {
            *threshold = other;
        }
        changed.objective = objective.unwrap_or(self.objective);
        changed
    }

    /// Metric and equality matchers of a threshold SLO, if it has no other matchers: whose values
    /// the threshold judges.
    pub fn judged_metric(&self) -> Option<(String, LabelMap)> {
        let Indicator::Threshold { selector, .. } = &self.indicator else { return None };
        let expression = promql::parse(selector, &promql::Options::all()).ok()?;
        let ExprKind::Selector(selector) = expression.kind else { return None };
        let mut labels = LabelMap::new();
        for matcher in &selector.matchers {
            if matcher.op != promql::MatchOp::Equal {
                return None;
            }
            labels.insert(matcher.name.clone(), matcher.value.clone());
        }
        Some((labels.remove(query::NAME)?, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objective_is_a_share_or_a_percentage() {
        let share = |text: &str| Objective::parse(text).map(Objective::share);
        assert_eq!(share("99.9%"), Some(0.999));
        assert_eq!(share("0.999"), Some(0.999));
        assert_eq!(share("99.9 %").map(|_| ()), Some(()));
        for text in ["100%", "1", "0", "-1", "99.9", "x", ""] {
            assert_eq!(share(text), None, "{text}");
        }
        assert_eq!(Objective::parse("99.9%").unwrap().budget(), 0.001);
        assert_eq!(Objective::parse("0.99999").unwrap().budget(), 0.00001);
    }
}
