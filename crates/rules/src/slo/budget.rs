//! State of a budget, and what would have been attained with other thresholds.

use hist::{Bracket, LimitInclusion, Mixture};

use super::events::SlotEvents;

/// Number of thresholds of a curve.
const CURVE_POINTS: usize = 60;
/// Share of the values below the smallest threshold of a curve.
const CURVE_START: f64 = 0.5;

/// What can be said about a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetStatus {
    /// A part of it is left.
    Remaining,
    /// Remaining or spent: the bucket around the threshold is too wide to tell.
    Uncertain,
    /// It is spent.
    Spent,
    /// There were no events, or none lately.
    Unknown,
}

impl BudgetStatus {
    /// State of a share that is left; `is_current` tells whether there were events lately.
    pub(super) fn of(remaining: Option<Bracket>, is_current: bool) -> BudgetStatus {
        match remaining {
            Some(remaining) if remaining.upper < 0.0 => BudgetStatus::Spent,
            Some(_) if !is_current => BudgetStatus::Unknown,
            Some(remaining) if remaining.lower >= 0.0 => BudgetStatus::Remaining,
            Some(_) => BudgetStatus::Uncertain,
            None => BudgetStatus::Unknown,
        }
    }

    /// Name.
    pub fn text(self) -> &'static str {
        match self {
            BudgetStatus::Remaining => "remaining",
            BudgetStatus::Uncertain => "uncertain",
            BudgetStatus::Spent => "spent",
            BudgetStatus::Unknown => "unknown",
        }
    }
}

/// Share of good events at a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Threshold in the unit of the values.
    pub threshold: f64,
    /// Share of values at or below it.
    pub attained: Bracket,
}

/// What would have been attained with other thresholds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttainedCurve {
    /// By threshold.
    pub points: Vec<CurvePoint>,
    /// Threshold with which the objective would just have been attained.
    pub threshold_of_objective: Option<Bracket>,
}

impl AttainedCurve {
    /// Curve of a distribution; empty for counts. `limit` is one of its thresholds.
    pub(super) fn of(events: &SlotEvents, limit: f64, objective: f64) -> AttainedCurve {
        let SlotEvents::Values(values) = events else { return AttainedCurve::default() };
        let mut thresholds = thresholds(values);
        thresholds.push(limit);
        thresholds.sort_by(f64::total_cmp);
        thresholds.dedup();
        let count = values.count();
        let points = thresholds.into_iter().map(|threshold| {
            let above = values.count_above(threshold, LimitInclusion::Exclusive);
            CurvePoint { threshold, attained: above.complement(count).fraction_of(count) }
        });
        AttainedCurve {
            points: points.collect(),
            threshold_of_objective: values.quantile(objective),
        }
    }
}

/// Thresholds from the median to the maximum, equally far apart on a logarithmic scale.
fn thresholds(values: &Mixture) -> Vec<f64> {
    let (Some(low), Some(high)) = (values.quantile(CURVE_START), values.max()) else {
        return Vec::new();
    };
    let (low, high) = (low.lower, high.upper);
    if !(low > 0.0 && high > low && high.is_finite()) {
        return Vec::new();
    }
    let at = |index: usize| {
        let share = index as f64 / (CURVE_POINTS - 1) as f64;
        round(low * (high / low).powf(share))
    };
    (0..CURVE_POINTS).map(at).collect()
}

/// Two digits: a threshold that people choose.
fn round(value: f64) -> f64 {
    let text = format!("{value:.1e}");
    text.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use hist::Histogram;

    use super::*;

    #[test]
    fn state_is_unknown_without_recent_events_unless_the_budget_is_spent() {
        let bracket = |lower, upper| Some(Bracket { lower, estimate: lower, upper });
        let text = |remaining, is_current| BudgetStatus::of(remaining, is_current).text();
        assert_eq!(text(bracket(0.2, 0.3), true), "remaining");
        assert_eq!(text(bracket(-0.1, 0.3), true), "uncertain");
        assert_eq!(text(bracket(-2.0, -1.0), true), "spent");
        assert_eq!(text(bracket(0.2, 0.3), false), "unknown");
        assert_eq!(text(bracket(-2.0, -1.0), false), "spent");
        assert_eq!(text(None, true), "unknown");
    }

    #[test]
    fn curve_has_the_share_at_every_threshold() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.record(f64::from(value)));
        let events = SlotEvents::Values(Mixture::from(histogram));
        let curve = AttainedCurve::of(&events, 900.0, 0.99);
        assert!(curve.points.len() > 20, "{}", curve.points.len());
        for point in &curve.points {
            let truth = point.threshold.floor().min(1000.0) / 1000.0;
            assert!(point.attained.contains(truth), "{point:?}");
        }
        assert!(curve.points.iter().any(|point| point.threshold == 900.0));
        assert!(curve.threshold_of_objective.unwrap().contains(990.0));
        assert_eq!(AttainedCurve::of(&SlotEvents::Empty, 1.0, 0.99), AttainedCurve::default());
    }
}
