//! Texts of a definition, before they are checked.

use query::promql::{self, ExprKind};

use super::burn_window::{BURN_WINDOWS, BurnWindow};
use super::{Correction, Indicator, Objective, Period, Quantity, Slo};
use crate::rule_file::LabelMap;

/// Labels that its alerts have anyway.
const OWN_LABELS: [&str; 4] = ["alertname", "slo", "severity", "window"];

/// Definition as written. Absent keys are `None`.
#[derive(Clone, Debug, Default)]
pub struct SloDraft {
    /// Name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Selector of the distributions.
    pub selector: Option<String>,
    /// Largest good value.
    pub threshold: Option<String>,
    /// Selector of a counter of good events.
    pub good: Option<String>,
    /// Selector of a counter of bad events.
    pub bad: Option<String>,
    /// Selector of a counter of all events.
    pub total: Option<String>,
    /// `99.9%` or `0.999`.
    pub objective: Option<String>,
    /// `30d`, `month`, `quarter` or `year`.
    pub period: Option<String>,
    /// Zone of a period of the calendar.
    pub zone: Option<String>,
    /// Number of users in a period.
    pub users: Option<f64>,
    /// Label that tells users apart.
    pub user_label: Option<String>,
    /// Labels of alerts.
    pub labels: LabelMap,
    /// Names of windows ([`BurnWindow::name`]); by default all useful ones.
    pub alert_windows: Option<Vec<String>>,
    /// Bad events in six hours above which an alert fires.
    pub affected_max: Option<u64>,
    /// Corrections.
    pub corrections: Vec<CorrectionDraft>,
}

/// Correction as written; times are RFC 3339.
#[derive(Clone, Debug, Default)]
pub struct CorrectionDraft {
    /// Start.
    pub from: String,
    /// End.
    pub to: String,
    /// Reason.
    pub reason: String,
}

/// Problem of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SloProblem {
    /// Key with the problem.
    pub key: &'static str,
    /// What is wrong, and what to do.
    pub what: String,
}

/// Problems found so far.
#[derive(Default)]
struct DraftCheck(Vec<SloProblem>);

impl DraftCheck {
    fn problem(&mut self, key: &'static str, what: impl Into<String>) {
        self.0.push(SloProblem { key, what: what.into() });
    }

    /// A required text.
    fn required<'t>(&mut self, key: &'static str, text: &'t Option<String>) -> Option<&'t str> {
        if text.is_none() {
            self.problem(key, format!("missing key {key:?}"));
        }
        text.as_deref()
    }

    /// A selector without range, offset and functions.
    fn selector(&mut self, key: &'static str, text: &str) -> Option<String> {
        let example = "expected a selector such as latency{job=\"shop\"}";
        match promql::parse(text, &promql::Options::all()) {
            Err(error) => self.problem(key, format!("{key}: cannot parse {text:?}: {error}")),
            Ok(expression) => match &expression.kind {
                ExprKind::Selector(selector)
                    if selector.at.is_none() && selector.offset == promql::DurationValue::ZERO =>
                {
                    return Some(text.trim().to_owned());
                }
                _ => self.problem(key, format!("{key}: found {text:?}, {example}")),
            },
        }
        None
    }
}

impl SloDraft {
    /// Checks the definition; all problems at once.
    pub fn check(&self) -> Result<Slo, Vec<SloProblem>> {
        let mut check = DraftCheck::default();
        if self.name.is_empty() {
            check.problem("name", "missing key \"name\"");
        }
        let indicator = self.indicator(&mut check);
        let objective = self.objective(&mut check);
        let period = self.period(&mut check);
        let windows = match (&period, objective) {
            (Some(period), Some(objective)) => self.windows(&mut check, period, objective),
            _ => Vec::new(),
        };
        let corrections = self.corrections(&mut check);
        self.check_users(&mut check);
        for label in self.labels.keys().filter(|label| OWN_LABELS.contains(&label.as_str())) {
            check.problem("labels", format!("labels: {label:?} is set by topdeck; remove it"));
        }
        match (indicator, objective, period) {
            (Some(indicator), Some(objective), Some(period)) if check.0.is_empty() => Ok(Slo {
                name: self.name.clone(),
                description: self.description.clone(),
                indicator,
                objective,
                period,
                corrections,
                users: self.users,
                user_label: self.user_label.clone(),
                labels: self.labels.clone(),
                windows,
                affected_max: self.affected_max,
            }),
            _ => Err(check.0),
        }
    }

    fn indicator(&self, check: &mut DraftCheck) -> Option<Indicator> {
        let counts = [("good", &self.good), ("bad", &self.bad), ("total", &self.total)];
        if let Some(selector) = &self.selector {
            for (key, _) in counts.iter().filter(|(_, text)| text.is_some()) {
                let what = format!("{key}: an SLO has a selector, or counters; remove one of them");
                check.problem(key, what);
            }
            let selector = check.selector("selector", selector);
            let threshold = check.required("threshold", &self.threshold)?;
            let Some(threshold) = Quantity::parse(threshold) else {
                let what =
                    format!("threshold: found {threshold:?}, expected a value such as 250ms");
                check.problem("threshold", what);
                return None;
            };
            return Some(Indicator::Threshold { selector: selector?, threshold });
        }
        if counts.iter().all(|(_, text)| text.is_none()) {
            let what = "missing key \"selector\"; counters of events have good or bad, and total";
            check.problem("selector", what);
            return None;
        }
        if self.threshold.is_some() {
            check.problem("threshold", "threshold: counters have none; remove it");
        }
        let total = check.required("total", &self.total);
        let (key, part) = match (&self.good, &self.bad) {
            (Some(good), None) => ("good", good),
            (None, Some(bad)) => ("bad", bad),
            _ => {
                check.problem("total", "an SLO of counters has either good or bad, and total");
                return None;
            }
        };
        let part = check.selector(key, part);
        let total = total.and_then(|total| check.selector("total", total));
        Some(Indicator::Ratio { part: part?, is_good: key == "good", total: total? })
    }

    fn objective(&self, check: &mut DraftCheck) -> Option<Objective> {
        let text = check.required("objective", &self.objective)?;
        let objective = Objective::parse(text);
        if objective.is_none() {
            let expected = "expected a share such as 99.9% or 0.999";
            check.problem("objective", format!("objective: found {text:?}, {expected}"));
        }
        objective
    }

    fn period(&self, check: &mut DraftCheck) -> Option<Period> {
        let text = self.period.as_deref().unwrap_or("30d");
        match Period::parse(text, self.zone.as_deref()) {
            Ok(period) => Some(period),
            Err(what) => {
                check.problem(if what.starts_with("zone") { "zone" } else { "period" }, what);
                None
            }
        }
    }

    fn windows(
        &self,
        check: &mut DraftCheck,
        period: &Period,
        objective: Objective,
    ) -> Vec<BurnWindow> {
        let known = || BURN_WINDOWS.map(|window| window.name).join(", ");
        let windows = match &self.alert_windows {
            None => {
                let all = BURN_WINDOWS.into_iter();
                all.filter(|window| window.is_useful(period)).collect()
            }
            Some(names) => {
                let mut windows = Vec::new();
                for name in names {
                    match BURN_WINDOWS.iter().find(|window| window.name == name) {
                        Some(window) if windows.contains(window) => {}
                        Some(window) => windows.push(*window),
                        None => {
                            let expected = format!("expected {}", known());
                            let what = format!("alert_windows: found {name:?}, {expected}");
                            check.problem("alert_windows", what);
                        }
                    }
                }
                windows
            }
        };
        for why in windows.iter().filter_map(|window| window.impossible(period, objective)) {
            check.problem("objective", why);
        }
        windows
    }

    fn corrections(&self, check: &mut DraftCheck) -> Vec<Correction> {
        let mut corrections = Vec::new();
        for draft in &self.corrections {
            let time = |check: &mut DraftCheck, key: &str, text: &str| {
                let time = text.parse::<jiff::Timestamp>().ok();
                let ns = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
                if ns.is_none() {
                    let expected = "expected a time such as 2026-11-26T08:00:00Z";
                    check.problem(
                        "correction",
                        format!("correction: {key}: found {text:?}, {expected}"),
                    );
                }
                ns
            };
            let start = time(check, "from", &draft.from);
            let end = time(check, "to", &draft.to);
            if draft.reason.trim().is_empty() {
                check.problem("correction", "correction: missing key \"reason\"");
            }
            let (Some(start_ns), Some(end_ns)) = (start, end) else { continue };
            if start_ns >= end_ns {
                check.problem("correction", "correction: \"to\" must be after \"from\"");
            }
            let reason = draft.reason.as_str().into();
            corrections.push(Correction { start_ns, end_ns, reason });
        }
        corrections
    }

    fn check_users(&self, check: &mut DraftCheck) {
        if self.users.is_some_and(|users| !(users.is_finite() && users >= 1.0)) {
            check.problem("users", "users: expected the number of users in a period, at least 1");
        }
        if self.users.is_some() && self.user_label.is_some() {
            let what = "an SLO has users, or user_label with which they are counted; remove one";
            check.problem("users", what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn latency() -> SloDraft {
        SloDraft {
            name: "checkout".to_owned(),
            selector: text("latency{route=\"/checkout\"}"),
            threshold: text("250ms"),
            objective: text("99.9%"),
            ..SloDraft::default()
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut SloDraft), key: &str, part: &str) {
        let mut draft = latency();
        change(&mut draft);
        let problems = draft.check().unwrap_err();
        let found = problems.iter().any(|found| found.key == key && found.what.contains(part));
        assert!(found, "{key} {part}: {problems:?}");
    }

    #[test]
    fn an_slo_of_a_latency_has_all_four_windows() {
        let slo = latency().check().unwrap();
        assert_eq!(slo.windows, BURN_WINDOWS);
        assert_eq!(slo.period, Period::parse("30d", None).unwrap());
        let metric = slo.judged_metric().unwrap();
        assert_eq!(metric.0, "latency");
        assert_eq!(metric.1.get("route").map(String::as_str), Some("/checkout"));
    }

    #[test]
    fn problems_name_their_key() {
        check(|draft| draft.threshold = None, "threshold", "missing");
        check(|draft| draft.threshold = text("fast"), "threshold", "250ms");
        check(|draft| draft.selector = text("rate(x[5m])"), "selector", "expected a selector");
        check(
            |draft| draft.selector = text("latency offset 5m"),
            "selector",
            "expected a selector",
        );
        check(|draft| draft.selector = text("latency{"), "selector", "cannot parse");
        check(|draft| draft.selector = None, "selector", "missing");
        check(|draft| draft.objective = text("99.9"), "objective", "99.9%");
        check(|draft| draft.objective = text("90%"), "objective", "can never fire");
        check(|draft| draft.period = text("week"), "period", "month");
        check(|draft| draft.zone = text("Europe/Berlin"), "zone", "remove it");
        check(|draft| draft.total = text("x"), "total", "remove one");
        check(|draft| draft.users = Some(0.0), "users", "at least 1");
        check(|draft| draft.alert_windows = Some(vec!["2h".to_owned()]), "alert_windows", "1h, 6h");
        check(|draft| drop(draft.labels.insert("slo".into(), "x".into())), "labels", "remove it");
    }

    #[test]
    fn correction_has_a_range_and_a_reason() {
        let correction = |from: &str, to: &str, reason: &str| CorrectionDraft {
            from: from.to_owned(),
            to: to.to_owned(),
            reason: reason.to_owned(),
        };
        let good = correction("2026-11-26T08:00:00Z", "2026-11-26T10:00:00+01:00", "move");
        let with = SloDraft { corrections: vec![good.clone()], ..latency() };
        let found = &with.check().unwrap().corrections[0];
        assert_eq!(found.end_ns - found.start_ns, 3600 * 1_000_000_000);
        let with = |to: &str, reason: &str| correction(&good.from, to, reason);
        check(|draft| draft.corrections = vec![with("x", "y")], "correction", "expected a time");
        check(|draft| draft.corrections = vec![with(&good.from, "y")], "correction", "after");
        check(|draft| draft.corrections = vec![with(&good.to, " ")], "correction", "reason");
    }

    #[test]
    fn ratio_has_a_part_and_a_total() {
        let mut draft = SloDraft {
            good: text("requests_total{code=~\"2..\"}"),
            total: text("requests_total"),
            selector: None,
            threshold: None,
            ..latency()
        };
        let expected = Indicator::Ratio {
            part: "requests_total{code=~\"2..\"}".to_owned(),
            is_good: true,
            total: "requests_total".to_owned(),
        };
        assert_eq!(draft.check().unwrap().indicator, expected);
        draft.bad = text("errors_total");
        assert!(draft.check().unwrap_err()[0].what.contains("either good or bad"));
    }

    #[test]
    fn lower_objective_is_valid_without_the_windows_that_cannot_fire() {
        let windows = Some(vec!["6h".to_owned(), "3d".to_owned()]);
        let draft = SloDraft { objective: text("90%"), alert_windows: windows, ..latency() };
        let names: Vec<&str> = draft.check().unwrap().windows.iter().map(|it| it.name).collect();
        assert_eq!(names, ["6h", "3d"]);
    }
}
