//! Rules of burn-rate alerts, as PromQL that anybody can evaluate and read.
//!
//! The condition compares `burn_rate(…)` with the factor, so that missing data holds the state of
//! an alert: without events in one of the windows the function has no result.
//!
//! The texts are templates: the burn rate and the numbers of events are those of the evaluation.
//! What is left of the budget is the metric `topdeck_slo_budget_remaining_ratio`, which is up to a
//! minute old: it counts only if it has seen nearly all bad events of the window
//! (`topdeck_slo_bad_events`). A text without it has the time in which a whole budget is spent.

use decode::duration_text;
use query::promql::parse_duration;
use store::{HOUR, MINUTE, SECOND};

use super::burn_window::short;
use super::{BurnWindow, Indicator, Quantity, Slo};
use crate::rule_file::{AlertSettings, LabelMap, MissingData, Rule, RuleGroup, RuleKind};
use crate::template::go_literal;
use crate::yaml::FilePosition;

/// Name of the file of the groups: SLOs are not in a rule file.
pub const SLO_ALERT_FILE: &str = "slo";
/// Name of alerts of a burn rate.
const BURN_ALERT: &str = "SloBudgetBurn";
/// Name of alerts of a number of bad events.
const AFFECTED_ALERT: &str = "SloEventsAffected";
/// Window of [`Slo::affected_max`].
const AFFECTED_WINDOW: i64 = 6 * HOUR;
const MILLISECOND: i64 = 1_000_000;
/// Share of the bad events of a window that a budget has seen if it is current: it is a minute old,
/// and the shortest usual window is an hour.
const SEEN_SHARE: f64 = 0.9;
/// Summary of an alert of a burn rate. PERIOD is in seconds.
const BURN_SUMMARY: &str = concat!(
    "The error budget of NAME burns at {{ humanize $value }} times the sustainable rate (limit ",
    "FACTOR): {{ with query LEFT }}{{ $left := . | first | value }}",
    "{{ if gt $left 0.0 }}{{ humanizePercentage $left }} of it is left, at this rate for ",
    r#"{{ query (printf "vector(%f * PERIOD / %f)" $left $value) | first | value "#,
    "| humanizeDuration }}{{ else }}it is spent, with bad events for ",
    r#"{{ query (printf "vector(1 - %f)" $left) | first | value | printf "%.1f" }} budgets"#,
    "{{ end }}{{ else }}at this rate a whole one is spent in ",
    r#"{{ query (printf "vector(PERIOD / %f)" $value) | first | value | humanizeDuration }}"#,
    "{{ end }}",
);
/// Numbers of events of the long window, in its description.
const EVENT_COUNTS: &str = concat!(
    "{{ with query TOTAL }}{{ $total := . | first | value }}{{ with query BAD }}",
    r#"{{ . | first | value | printf "%.0f" }} of {{ printf "%.0f" $total }} "#,
    "events of the last WINDOW are bad. {{ end }}{{ end }}",
);

impl Slo {
    /// Group of the SLO's alerting rules. It is evaluated in the interval of other rules.
    pub fn rule_group(&self) -> RuleGroup {
        let burn = self.windows.iter().map(|window| self.burn_rule(window));
        let rules: Vec<Rule> =
            burn.chain(self.affected_max.map(|max| self.affected_rule(max))).collect();
        RuleGroup {
            file: SLO_ALERT_FILE.to_owned(),
            name: self.name.clone(),
            position: FilePosition { line: 1, column: 1 },
            interval_ns: None,
            query_offset_ns: None,
            limit: 0,
            rules,
        }
    }

    fn burn_rule(&self, window: &BurnWindow) -> Rule {
        let (factor, budget) = (window.factor(&self.period), self.objective.budget());
        let (bad_long, total_long) = self.indicator.counts(window.long_ns);
        let (bad_short, total_short) = self.indicator.counts(window.short_ns());
        let presence = format!(
            "burn_rate({factor}, {budget}, {bad_long}, {total_long}, {bad_short}, {total_short})"
        );
        // Names come last: they may contain the others.
        let summary = BURN_SUMMARY
            .replace("PERIOD", &(self.period.nominal_ns() / SECOND).to_string())
            .replace("FACTOR", &short(factor))
            .replace("LEFT", &go_literal(&self.remaining_query(&bad_long)))
            .replacen("NAME", &plain(&self.name), 1);
        let counts = EVENT_COUNTS
            .replace("WINDOW", &duration_text(window.long_ns))
            .replacen("BAD", &go_literal(&bad_long), 1)
            .replacen("TOTAL", &go_literal(&total_long), 1);
        let description = format!(
            "{counts}Limit: {} % of the events of the last {} and of the last {}. {} Factor: {}. \
             Objective: {} % in {}.",
            short(factor * budget * 100.0),
            duration_text(window.long_ns),
            duration_text(window.short_ns()),
            plain(&self.indicator.bad_text()),
            window.formula(&self.period),
            short(self.objective.share() * 100.0),
            self.period,
        );
        let texts = [("summary", summary), ("description", description)];
        let labels = [("severity", window.severity), ("window", window.name)];
        self.rule(BURN_ALERT, (presence, factor), &labels, texts)
    }

    fn affected_rule(&self, max: u64) -> Rule {
        let (bad, _) = self.indicator.counts(AFFECTED_WINDOW);
        let summary = format!(
            "{{{{ printf \"%.0f\" $value }}}} bad events of {} in 6 h (limit {max})",
            plain(&self.name)
        );
        let texts = [("summary", summary), ("description", plain(&self.indicator.bad_text()))];
        let labels = [("severity", "page"), ("window", "6h")];
        self.rule(AFFECTED_ALERT, (bad, max as f64), &labels, texts)
    }

    /// PromQL of the share of the budget that is left. Without a result if it was computed before
    /// most of the bad events of a window: it would contradict the rate at which the budget burns.
    fn remaining_query(&self, bad: &str) -> String {
        let name = go_literal(&self.name);
        format!(
            "topdeck_slo_budget_remaining_ratio{{slo={name}}} and on () \
             (topdeck_slo_bad_events{{slo={name}}} >= on () {SEEN_SHARE} * {bad})"
        )
    }

    fn rule(
        &self,
        name: &str,
        (presence, limit): (String, f64),
        labels: &[(&str, &str)],
        annotations: [(&str, String); 2],
    ) -> Rule {
        let mut all = self.labels.clone();
        all.insert("slo".to_owned(), plain(&self.name));
        all.extend(labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let annotations: LabelMap =
            model::sort::map(annotations.map(|(name, text)| (name.to_owned(), text)));
        Rule {
            position: FilePosition { line: 1, column: 1 },
            name: name.to_owned(),
            expression: format!("{presence} > {limit}"),
            labels: all,
            kind: RuleKind::Alerting(AlertSettings {
                annotations,
                missing_data: MissingData::Hold { presence },
                ..AlertSettings::default()
            }),
        }
    }
}

impl Indicator {
    /// PromQL of the bad and of all events of a window.
    fn counts(&self, window_ns: i64) -> (String, String) {
        let window = window_text(window_ns);
        match self {
            Indicator::Threshold { selector, threshold } => {
                let values = format!("sum(exact_increase({selector}[{window}]))");
                let limit = limit_text(threshold);
                (
                    format!("histogram_count_above({limit}, {values})"),
                    format!("histogram_count({values})"),
                )
            }
            Indicator::Ratio { part, is_good, total } => {
                let total = format!("sum(exact_increase({total}[{window}]))");
                let part = format!("sum(exact_increase({part}[{window}]))");
                let bad = match is_good {
                    true => format!("({total} - {part})"),
                    // Bad events that were never counted are none.
                    false => format!("({part} or 0 * {total})"),
                };
                (bad, total)
            }
        }
    }

    /// What a bad event is, in a sentence.
    fn bad_text(&self) -> String {
        match self {
            Indicator::Threshold { selector, threshold } => {
                format!("Bad: values of {selector} above {threshold}.")
            }
            Indicator::Ratio { part, is_good: true, total } => {
                format!("Bad: {total} without {part}.")
            }
            Indicator::Ratio { part, total, .. } => format!("Bad: {part} of {total}."),
        }
    }
}

/// Duration in PromQL.
fn window_text(ns: i64) -> String {
    match ns {
        hours if hours % HOUR == 0 => format!("{}h", hours / HOUR),
        minutes if minutes % MINUTE == 0 => format!("{}m", minutes / MINUTE),
        other => format!("{}ms", other / MILLISECOND),
    }
}

/// Threshold in PromQL: durations are whole milliseconds, or multiples of one.
fn limit_text(threshold: &Quantity) -> String {
    let plain = || threshold.value_in(None).map(|number| number.to_string());
    let Some(ms) = threshold.value_in(Some(&decode::Unit::Milliseconds)) else {
        // A unit without a scale, such as bytes: the number is in the unit of the values.
        return threshold.value_in(threshold.unit()).map_or_else(String::new, |it| it.to_string());
    };
    if threshold.unit().is_none() {
        return plain().unwrap_or_default();
    }
    let whole = format!("{ms}ms");
    match parse_duration(&whole) {
        Ok(_) => whole,
        Err(_) => format!("1ms * {ms}"),
    }
}

/// Text without template actions: names and selectors are no templates.
fn plain(text: &str) -> String {
    text.replace("{{", "{\u{200b}{")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use query::promql;

    use super::super::SloDraft;
    use super::*;

    fn group(change: impl FnOnce(&mut SloDraft)) -> RuleGroup {
        let text = |text: &str| Some(text.to_owned());
        let mut draft = SloDraft {
            name: "checkout".to_owned(),
            selector: text("latency{route=\"/checkout\"}"),
            threshold: text("250ms"),
            objective: text("99.9%"),
            ..SloDraft::default()
        };
        change(&mut draft);
        draft.check().unwrap().rule_group()
    }

    #[test]
    fn rules_are_promql_that_parses() {
        let ratio = |draft: &mut SloDraft| {
            (draft.selector, draft.threshold) = (None, None);
            draft.bad = Some("errors_total".to_owned());
            draft.total = Some("requests_total".to_owned());
            draft.affected_max = Some(100);
        };
        for group in
            [group(|_| ()), group(|draft| draft.threshold = Some("0.3ms".into())), group(ratio)]
        {
            for rule in &group.rules {
                let options = promql::Options { standard_only: false, ..promql::Options::all() };
                promql::parse(&rule.expression, &options).unwrap();
                let MissingData::Hold { presence } = &rule.alert_settings().unwrap().missing_data
                else {
                    panic!("missing data resolves {}", rule.name)
                };
                assert!(rule.expression.starts_with(presence.as_str()));
            }
        }
    }

    #[test]
    fn rule_of_an_hour_says_what_burns() {
        let rule = &group(|_| ()).rules[0];
        expect![[r#"
            burn_rate(14.4, 0.001, histogram_count_above(250ms, sum(exact_increase(latency{route="/checkout"}[1h]))), histogram_count(sum(exact_increase(latency{route="/checkout"}[1h]))), histogram_count_above(250ms, sum(exact_increase(latency{route="/checkout"}[5m]))), histogram_count(sum(exact_increase(latency{route="/checkout"}[5m])))) > 14.4"#]]
        .assert_eq(&rule.expression);
        let annotations = &rule.alert_settings().unwrap().annotations;
        expect![[r#"The error budget of checkout burns at {{ humanize $value }} times the sustainable rate (limit 14.4): {{ with query "topdeck_slo_budget_remaining_ratio{slo=\"checkout\"} and on () (topdeck_slo_bad_events{slo=\"checkout\"} >= on () 0.9 * histogram_count_above(250ms, sum(exact_increase(latency{route=\"/checkout\"}[1h]))))" }}{{ $left := . | first | value }}{{ if gt $left 0.0 }}{{ humanizePercentage $left }} of it is left, at this rate for {{ query (printf "vector(%f * 2592000 / %f)" $left $value) | first | value | humanizeDuration }}{{ else }}it is spent, with bad events for {{ query (printf "vector(1 - %f)" $left) | first | value | printf "%.1f" }} budgets{{ end }}{{ else }}at this rate a whole one is spent in {{ query (printf "vector(2592000 / %f)" $value) | first | value | humanizeDuration }}{{ end }}"#]]
            .assert_eq(&annotations["summary"]);
        expect![[r#"{{ with query "histogram_count(sum(exact_increase(latency{route=\"/checkout\"}[1h])))" }}{{ $total := . | first | value }}{{ with query "histogram_count_above(250ms, sum(exact_increase(latency{route=\"/checkout\"}[1h])))" }}{{ . | first | value | printf "%.0f" }} of {{ printf "%.0f" $total }} events of the last 1 h are bad. {{ end }}{{ end }}Limit: 1.44 % of the events of the last 1 h and of the last 5 min. Bad: values of latency{route="/checkout"} above 250 ms. Factor: 2 % × 30 d / 1 h = 14.4. Objective: 99.9 % in 30 d."#]]
            .assert_eq(&annotations["description"]);
        assert_eq!(rule.labels["severity"], "page");
        assert_eq!(rule.labels["slo"], "checkout");
    }

    #[test]
    fn thresholds_are_numbers_or_durations_of_promql() {
        let text = |text: &str| limit_text(&Quantity::parse(text).unwrap());
        assert_eq!(text("250ms"), "250ms");
        assert_eq!(text("1.5s"), "1500ms");
        assert_eq!(text("300us"), "1ms * 0.3");
        assert_eq!(text("0.25"), "0.25");
        assert_eq!(text("4096B"), "4096");
    }
}
