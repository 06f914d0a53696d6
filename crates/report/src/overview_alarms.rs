//! Firing alerts and spent error budgets beside an overview: which row they are of, and a summary.
//! The page has the same (`web/src/lib/firingAlerts.svelte.ts`).

use std::collections::BTreeSet;

use serde_json::Value;

use render::text::{escape_control, plural};
use render::value_formatter;

use crate::status::StatusProblem;

/// Maximum number of alerts and budgets that a line names.
const NAMED_MAX: usize = 5;
/// Suffixes that a name has in PromQL: `latency` is also `latency_seconds_bucket`.
const SUFFIXES: [&str; 7] =
    ["_seconds", "_milliseconds", "_bytes", "_total", "_bucket", "_sum", "_count"];
/// File of the alerts of SLOs.
const SLO_FILE: &str = "slo";

/// Alerts that fire, and SLOs whose budget is spent.
#[derive(Debug, Default)]
pub struct OverviewAlarms {
    /// Alerts that nobody acknowledged or silenced.
    alerts: Vec<Value>,
    attended: Vec<Value>,
    spent: Vec<Value>,
}

impl OverviewAlarms {
    /// Of the responses of `/v1/alerts` and `/v1/slos`.
    pub fn new(alerts: &Value, slos: &Value) -> OverviewAlarms {
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let mut firing = list(&alerts["alerts"]);
        firing.retain(|alert| alert["state"] == "firing");
        let is_attended = |alert: &Value| {
            let silences = alert["silenced_by"].as_array();
            !alert["acknowledgement"].is_null() || silences.is_some_and(|ids| !ids.is_empty())
        };
        let (attended, alerts) = firing.into_iter().partition(is_attended);
        let mut spent = list(&slos["slos"]);
        spent.retain(|slo| slo["state"] == "spent");
        OverviewAlarms { alerts, attended, spent }
    }

    /// Lines of all rows; none if nothing fires and no budget is spent.
    pub(crate) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let alerts: Vec<&Value> = self.alerts.iter().collect();
        if !alerts.is_empty() {
            let names = first_of(&alert_names(&alerts));
            lines.push(format!("{}: {names} (topdeck alerts)", firing_text(&alerts)));
        }
        let attended = alert_names(&self.attended.iter().collect::<Vec<_>>()).len() as u64;
        if attended > 0 {
            let count = plural(attended, "alert", "alerts");
            lines.push(format!("{count} acknowledged or silenced"));
        }
        if !self.spent.is_empty() {
            lines.push(format!("{} (topdeck slo)", self.spent_text()));
        }
        lines
    }

    /// Alerts of the worst severity, and spent budgets, as what needs action.
    pub fn problems(&self) -> Vec<StatusProblem> {
        let mut problems = Vec::new();
        let pages: Vec<&Value> = self.alerts.iter().filter(|alert| is_page(alert)).collect();
        if !pages.is_empty() {
            let names = first_of(&alert_names(&pages));
            problems.push(StatusProblem {
                what: format!("{} with severity page: {names}.", firing_text(&pages)),
                action: "topdeck alerts says why.".to_owned(),
            });
        }
        if !self.spent.is_empty() {
            problems.push(StatusProblem {
                what: format!("{}.", self.spent_text()),
                action: "topdeck slo lists them.".to_owned(),
            });
        }
        problems
    }

    fn spent_text(&self) -> String {
        let count = plural(self.spent.len() as u64, "error budget", "error budgets");
        let budgets: Vec<String> = self.spent.iter().map(budget_text).collect();
        format!("{count} spent: {}", first_of(&budgets))
    }

    /// What fires for a row of an overview, and whether its budget is spent.
    pub(crate) fn of_row(&self, row: &Value) -> Vec<String> {
        let alerts: Vec<&Value> =
            self.alerts.iter().filter(|alert| is_alert_of(alert, row)).collect();
        let mut texts = Vec::new();
        if !alerts.is_empty() {
            texts.push(format!("{}: {}", firing_text(&alerts), first_of(&alert_names(&alerts))));
        }
        let slo = &row["threshold"]["slo"];
        let spent = self.spent.iter().find(|of| slo.is_string() && of["name"] == *slo);
        texts.extend(spent.map(|slo| format!("error budget spent: {}", budget_text(slo))));
        texts
    }
}

/// Whether the severity of an alert is the worst, as number or by the label.
fn is_page(alert: &Value) -> bool {
    const WORDS: [&str; 6] = ["1", "page", "critical", "emergency", "fatal", "disaster"];
    match alert["severity"].as_u64() {
        Some(severity) => severity == 1,
        None => {
            let label = alert["labels"]["severity"].as_str().unwrap_or("");
            WORDS.iter().any(|word| word.eq_ignore_ascii_case(label))
        }
    }
}

/// `3 alerts firing (4 instances)`: those of the windows of an SLO are one alert.
pub(crate) fn firing_text(alerts: &[&Value]) -> String {
    let count = alert_names(alerts).len();
    let text = format!("{} firing", plural(count as u64, "alert", "alerts"));
    match alerts.len() > count {
        true => format!("{text} ({} instances)", value_formatter::count(alerts.len() as u64)),
        false => text,
    }
}

/// Names of alerts, with the labels in which those of the same name differ; those of the windows
/// of an SLO are one.
pub(crate) fn alert_names(alerts: &[&Value]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let mut found: Vec<(&Value, String)> = Vec::new();
    for alert in alerts {
        let (labels, name) = (&alert["labels"], alert["name"].as_str().unwrap_or(""));
        let slo = labels["slo"].as_str();
        let is_window = alert["file"] == SLO_FILE && slo.is_some() && labels["window"].is_string();
        let key = if is_window { format!("{name} {slo:?}") } else { labels.to_string() };
        if !known.insert(key) {
            continue;
        }
        let severity = match alert["severity"].as_u64() {
            Some(severity) => Some(severity.to_string()),
            None => labels["severity"].as_str().map(str::to_owned),
        };
        let of_slo = slo.map_or_else(String::new, |slo| format!(" of {slo}"));
        let severity = severity.map_or_else(String::new, |severity| format!(" ({severity})"));
        found.push((labels, format!("{name}{of_slo}{severity}")));
    }
    let named = |(labels, name): &(&Value, String)| {
        let alike: Vec<&Value> =
            found.iter().filter(|(_, of)| of == name).map(|(labels, _)| *labels).collect();
        let labels = labels.as_object().into_iter().flatten();
        let differing =
            labels.filter(|(label, value)| alike.iter().any(|of| of[label.as_str()] != **value));
        let differing: Vec<String> =
            differing.map(|(label, value)| format!("{label}={value}")).collect();
        match differing.is_empty() {
            true => escape_control(name),
            false => escape_control(&format!("{name} {{{}}}", differing.join(", "))),
        }
    };
    found.iter().map(named).collect()
}

/// `checkout -150 % left`.
fn budget_text(slo: &Value) -> String {
    let name = escape_control(slo["name"].as_str().unwrap_or(""));
    match slo["budget"]["remaining"]["estimate"].as_f64() {
        Some(left) => format!("{name} {:.0} % left", left * 100.0),
        None => name,
    }
}

fn first_of(names: &[String]) -> String {
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {} more", value_formatter::count(more as u64)),
    };
    format!("{}{more}", names[..names.len().min(NAMED_MAX)].join(", "))
}

/// Whether the rule of an alert reads the metric of a row, and no label of the alert, nor of the
/// metric in its query, is another one.
fn is_alert_of(alert: &Value, row: &Value) -> bool {
    let query = alert["query"].as_str().unwrap_or("");
    let Some(name) = row["name"].as_str().filter(|name| !name.is_empty()) else { return false };
    let of_row = row["labels"].as_object().into_iter().flatten();
    let of_row: Vec<(&String, &str)> =
        of_row.filter_map(|(label, value)| Some((label, value.as_str()?))).collect();
    let agrees = of_row.iter().all(|(label, value)| {
        let of = alert["labels"][label.as_str()].as_str();
        of.is_none_or(|of| of == *value)
    });
    let has_pairs = |braces: &str| {
        of_row.iter().all(|(label, value)| {
            let written = format!("{label}=\"");
            let at = braces.find(&written).map(|at| &braces[at + written.len()..]);
            at.is_none_or(|rest| rest.split('"').next() == Some(value))
        })
    };
    agrees && (query.contains(&format!("{name:?}")) || reads_metric(query, name, has_pairs))
}

/// Whether a query reads a metric with conditions that are possible.
fn reads_metric(query: &str, name: &str, is_possible: impl Fn(&str) -> bool) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let name: String = name.chars().map(|c| if is_word(c) { c } else { '_' }).collect();
    let mut rest = query;
    while let Some(start) = rest.find(is_word) {
        let from = &rest[start..];
        let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
        let mut suffix = word.strip_prefix(&*name);
        while let Some(shorter) =
            suffix.and_then(|it| SUFFIXES.iter().find_map(|end| it.strip_suffix(end)))
        {
            suffix = Some(shorter);
        }
        let braces = after.strip_prefix('{').and_then(|inner| inner.split('}').next());
        if suffix == Some("") && is_possible(braces.unwrap_or("")) {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use render::terminal::Terminal;
    use serde_json::json;

    use super::*;
    use crate::overview_text;

    /// `topdeck overview` showed "usual" for a service whose alert fired.
    #[test]
    fn row_whose_alert_fires_or_whose_budget_is_spent_is_not_usual() {
        let alert = |name: &str, labels: Value, query: &str| {
            json!({"name": name, "state": "firing", "labels": labels, "query": query,
                   "file": "slo", "acknowledgement": null, "silenced_by": []})
        };
        let burn = |window: &str| {
            let labels = json!({"slo": "pay", "window": window, "severity": "page"});
            alert("Burn", labels, "x")
        };
        let mut silent = alert("Silent", json!({}), "latency");
        silent["silenced_by"] = json!(["a"]);
        let query = "rate(latency_seconds_bucket{service=\"payment\"}[5m]) > 5";
        let alerts = json!({"alerts": [
            alert("Slow", json!({"service": "payment"}), query), burn("5m"), burn("1h"), silent,
        ]});
        let slos = json!({"slos": [
            {"name": "pay", "state": "spent", "budget": {"remaining": {"estimate": -1.5}}},
            {"name": "other", "state": "left", "budget": null},
        ]});
        let alarms = OverviewAlarms::new(&alerts, &slos);
        let row = |service: &str, slo: Value| {
            json!({"name": "latency", "labels": {"service": service}, "state": "usual",
                   "threshold": {"value": 0.5, "origin": "slo", "slo": slo}, "unusual": null})
        };
        let rows = [row("payment", json!(null)), row("cart", json!("pay")), row("a", json!("b"))];
        let document = json!({"total": 3, "rows": rows});
        let text = overview_text(&document, &alarms, &Terminal::new(true));
        for expected in [
            "  2 alerts firing (3 instances): Slow, Burn of pay (page) (topdeck alerts)\n",
            "  1 alert acknowledged or silenced\n",
            "  1 error budget spent: pay -150 % left (topdeck slo)\n",
            "  1 alert firing: Slow\n",
            "  error budget spent: pay -150 % left\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let states = |text: &str| [" affected ", " usual "].map(|of| text.matches(of).count());
        assert_eq!(states(&text), [2, 1], "{text}");
        let text = overview_text(&document, &OverviewAlarms::default(), &Terminal::new(true));
        assert_eq!(states(&text), [0, 3], "{text}");
        assert!(!text.contains("firing") && !text.contains("spent"), "{text}");
    }

    #[test]
    fn alert_is_of_rows_whose_metric_its_rule_reads() {
        let check = |query: &str, labels: Value, expected: bool| {
            let alert = json!({"query": query, "labels": labels});
            let row = json!({"name": "http.took", "labels": {"job": "a"}});
            assert_eq!(is_alert_of(&alert, &row), expected, "{query}");
        };
        check("http_took_seconds_count > 1", json!({}), true);
        check("sum(rate(http_took{job=\"a\",x=\"}\"}[5m])) > 1", json!({"job": "a"}), true);
        check("{\"http.took\"} > 1", json!({}), true);
        check("http_took > 1", json!({"job": "b"}), false);
        check("http_took{job=\"b\"} > 1", json!({}), false);
        check("http_took{job=\"b\"} > http_took{job=\"a\"}", json!({}), true);
        check("http_took_max + my_http_took", json!({}), false);
        check("", json!({}), false);
    }

    /// `PaySlow (page), PaySlow (page)`: no label told them apart; and the status was healthy.
    #[test]
    fn alerts_of_one_name_are_told_apart_and_pages_need_action() {
        let alert = |name: &str, severity: &str, endpoint: &str| {
            let labels = json!({"alertname": name, "severity": severity, "endpoint": endpoint});
            json!({"name": name, "state": "firing", "labels": labels})
        };
        let alerts = [
            alert("PaySlow", "page", "/pay"),
            alert("PaySlow", "page", "/cart"),
            alert("Queue", "ticket", "/pay"),
        ];
        let budget = json!({"remaining": {"estimate": -18.66}});
        let slos = json!({"slos": [{"name": "pay", "state": "spent", "budget": budget}]});
        let alarms = OverviewAlarms::new(&json!({"alerts": alerts}), &slos);
        let names = "PaySlow (page) {endpoint=\"/pay\"}, PaySlow (page) {endpoint=\"/cart\"}";
        assert_eq!(
            alarms.summary()[0],
            format!("3 alerts firing: {names}, Queue (ticket) (topdeck alerts)")
        );
        let problems: Vec<String> = alarms.problems().into_iter().map(|it| it.what).collect();
        assert_eq!(
            problems,
            [
                format!("2 alerts firing with severity page: {names}."),
                "1 error budget spent: pay -1866 % left.".to_owned(),
            ]
        );
        assert_eq!(OverviewAlarms::default().problems(), []);
    }
}
