//! Windows of burn-rate alerts, and their factors.
//!
//! `factor = budget share * period / long window`: the burn rate at which a window spends its share
//! of the budget. For 30 days the factors are 14.4, 6, 3 and 1 (Beyer et al., "The Site Reliability
//! Workbook", chapter 5). The short window is a twelfth of the long one. A window whose factor is
//! below 0.9 would fire while the budget lasts, and is not used.

use decode::duration_text;
use store::{DAY, HOUR};

use super::{Objective, Period};

/// Least useful factor: 28 days give 0.93 for three days.
const FACTOR_MIN: f64 = 0.9;
/// Short windows in a long one.
const SHORT_WINDOWS: i64 = 12;

/// Long window with its share of the budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurnWindow {
    /// Name of the long window, as in settings.
    pub name: &'static str,
    /// Long window in nanoseconds.
    pub long_ns: i64,
    /// Share of the budget that is spent when the alert fires.
    pub budget_share: f64,
    /// Value of the label `severity`.
    pub severity: &'static str,
}

/// All windows, the most urgent first.
pub(crate) const BURN_WINDOWS: [BurnWindow; 4] = [
    BurnWindow { name: "1h", long_ns: HOUR, budget_share: 0.02, severity: "page" },
    BurnWindow { name: "6h", long_ns: 6 * HOUR, budget_share: 0.05, severity: "page" },
    BurnWindow { name: "1d", long_ns: DAY, budget_share: 0.1, severity: "warning" },
    BurnWindow { name: "3d", long_ns: 3 * DAY, budget_share: 0.1, severity: "warning" },
];

impl BurnWindow {
    /// Short window in nanoseconds.
    pub fn short_ns(&self) -> i64 {
        self.long_ns / SHORT_WINDOWS
    }

    /// Burn rate above which the alert fires, rounded to 1e-9.
    pub fn factor(&self, period: &Period) -> f64 {
        let factor = self.budget_share * period.nominal_ns() as f64 / self.long_ns as f64;
        (factor * 1e9).round() / 1e9
    }

    /// How the factor is computed: `2 % × 30 d / 1 h = 14.4`.
    pub fn formula(&self, period: &Period) -> String {
        let days = period.nominal_ns() as f64 / DAY as f64;
        let (percent, factor) = (self.budget_share * 100.0, self.factor(period));
        format!("{percent} % × {days} d / {} = {}", duration_text(self.long_ns), short(factor))
    }

    /// Whether the window alerts before the budget would last.
    pub(crate) fn is_useful(&self, period: &Period) -> bool {
        self.factor(period) >= FACTOR_MIN
    }

    /// Why an alert of this window could never fire, if so.
    pub fn impossible(&self, period: &Period, objective: Objective) -> Option<String> {
        let share = self.factor(period) * objective.budget();
        (share >= 1.0).then(|| {
            let (name, formula) = (self.name, self.formula(period));
            let (share, objective) = (short(share * 100.0), short(objective.share() * 100.0));
            format!(
                "the alert of the window {name} can never fire: factor × (1 − objective) must be \
                 below 1, and the factor ({formula}) with an objective of {objective} % needs \
                 {share} % of the events to be bad; raise the objective, or leave {name:?} out of \
                 alert_windows"
            )
        })
    }
}

/// At most three digits after the point.
pub(super) fn short(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(period: &str, expected: [f64; 4]) {
        let period = Period::parse(period, None).unwrap();
        let found = BURN_WINDOWS.map(|window| (window.factor(&period) * 1e4).round() / 1e4);
        assert_eq!(found, expected);
    }

    #[test]
    fn factors_are_those_of_the_literature() {
        check("30d", [14.4, 6.0, 3.0, 1.0]);
        check("28d", [13.44, 5.6, 2.8, 0.9333]);
        check("month", [14.4, 6.0, 3.0, 1.0]);
        check("90d", [43.2, 18.0, 9.0, 3.0]);
        check("7d", [3.36, 1.4, 0.7, 0.2333]);
        let period = Period::parse("30d", None).unwrap();
        assert_eq!(BURN_WINDOWS[0].formula(&period), "2 % × 30 d / 1 h = 14.4");
        assert_eq!(BURN_WINDOWS[3].formula(&period), "10 % × 30 d / 3 d = 1");
    }

    #[test]
    fn windows_of_a_short_period_that_would_fire_while_the_budget_lasts_are_not_useful() {
        let useful = |text: &str| {
            let period = Period::parse(text, None).unwrap();
            BURN_WINDOWS.map(|window| window.is_useful(&period))
        };
        assert_eq!(useful("30d"), [true; 4]);
        assert_eq!(useful("28d"), [true; 4]);
        assert_eq!(useful("7d"), [true, true, false, false]);
    }

    #[test]
    fn factor_that_no_share_of_bad_events_reaches_is_impossible() {
        let period = Period::parse("30d", None).unwrap();
        let impossible = |text: &str| {
            let objective = Objective::parse(text).unwrap();
            BURN_WINDOWS.map(|window| window.impossible(&period, objective).is_some())
        };
        assert_eq!(impossible("99%"), [false; 4]);
        assert_eq!(impossible("90%"), [true, false, false, false]);
        assert_eq!(impossible("50%"), [true, true, true, false]);
        let why = BURN_WINDOWS[0].impossible(&period, Objective::parse("90%").unwrap()).unwrap();
        assert!(why.contains("2 % × 30 d / 1 h = 14.4") && why.contains("144 %"), "{why}");
    }
}
