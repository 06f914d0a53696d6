//! `/api/v1/rules` and `/api/v1/alerts` in the shape of Prometheus.

use std::collections::BTreeMap;

use query::LabelSet;
use query::promql::{self, ExprKind, Matcher};
use role::json::Json::{self, List, Map, Number, Object, Text};
use role::json::integer;
use role::{Parameter, RouteError, RouteFormat, RouteQuery, RouteSpec};
use rules::slo::SLO_ALERT_FILE;
use rules::{
    Alert, AlertState, EvaluatedRule, FilePosition, LabelMap, RuleHealth, RuleProblem,
    RuleThreshold,
};

use crate::published_alerts::{GroupReport, PublishedState};
use crate::unmatched_rules::slo_warning;

/// Alerts and recording rules.
pub(crate) static RULES: RouteSpec = RouteSpec {
    name: "prometheus_rules",
    path: "/api/v1/rules",
    about: "Prometheus API: rules with their state.",
    parameters: &[
        Parameter::text("type", "alert or record; default: both"),
        Parameter::text("rule_name[]", "name of a rule; default: all").many(),
        Parameter::text("rule_group[]", "name of a group; default: all").many(),
        Parameter::text("file[]", "name of a file; default: all").many(),
        Parameter::text("match[]", "selector on the labels of rules; default: all").many(),
        Parameter::flag("exclude_alerts", "true: without the alerts of each rule; default: false"),
        Parameter::integer("group_limit", "maximum number of groups; default: all"),
        Parameter::text("group_next_token", "groupNextToken of the response before"),
    ],
    format: RouteFormat::Json,
};

/// Active alerts.
pub(crate) static ALERTS: RouteSpec = RouteSpec {
    name: "prometheus_alerts",
    path: "/api/v1/alerts",
    about: "Prometheus API: pending and firing alerts.",
    parameters: &[],
    format: RouteFormat::Json,
};

/// Response of `/api/v1/alerts`.
pub(crate) fn alerts(state: &PublishedState) -> Json {
    let alerts = state.active_alerts().map(|active| alert_json(active.labels, active.alert));
    success(Object(vec![("alerts", List(alerts.collect()))]))
}

/// Filters of `/api/v1/rules`.
struct RuleFilter<'a> {
    is_alerting: Option<bool>,
    names: Vec<&'a str>,
    groups: Vec<&'a str>,
    files: Vec<&'a str>,
    /// A rule matches one of the selectors.
    selectors: Vec<Vec<Matcher>>,
    includes_alerts: bool,
}

impl<'a> RuleFilter<'a> {
    fn read(query: &'a RouteQuery) -> Result<RuleFilter<'a>, RouteError> {
        let is_alerting = match query.get("type") {
            None => None,
            Some("alert") => Some(true),
            Some("record") => Some(false),
            Some(other) => return Err(invalid("type", other, "alert or record")),
        };
        let includes_alerts = match query.get("exclude_alerts") {
            None | Some("false" | "0") => true,
            Some("true" | "1") => false,
            Some(other) => return Err(invalid("exclude_alerts", other, "true or false")),
        };
        let selectors = query.all("match[]").map(parse_selector).collect::<Result<_, _>>()?;
        Ok(RuleFilter {
            is_alerting,
            names: query.all("rule_name[]").collect(),
            groups: query.all("rule_group[]").collect(),
            files: query.all("file[]").collect(),
            selectors,
            includes_alerts,
        })
    }

    fn accepts_group(&self, report: &GroupReport) -> bool {
        let accepts = |list: &[&str], name: &str| list.is_empty() || list.contains(&name);
        accepts(&self.groups, report.group.name()) && accepts(&self.files, report.group.file())
    }

    fn accepts_rule(&self, rule: &EvaluatedRule) -> bool {
        let definition = rule.rule();
        let is_alerting = definition.alert_settings().is_some();
        let label = |name: &str| definition.labels.get(name).map_or("", String::as_str);
        let matches = |matchers: &Vec<Matcher>| {
            matchers.iter().all(|matcher| matcher.matches(label(&matcher.name)))
        };
        self.is_alerting.is_none_or(|wanted| wanted == is_alerting)
            && (self.names.is_empty() || self.names.contains(&definition.name.as_str()))
            && (self.selectors.is_empty() || self.selectors.iter().any(matches))
    }
}

fn invalid(name: &str, found: &str, expected: &str) -> RouteError {
    let (name, found, expected) = (name.to_owned(), found.to_owned(), expected.to_owned());
    RouteError::Parameter { name, found, expected }
}

fn parse_selector(text: &str) -> Result<Vec<Matcher>, RouteError> {
    match promql::parse(text, &promql::Options::default()).map(|parsed| parsed.kind) {
        Ok(ExprKind::Selector(selector)) => Ok(selector.matchers),
        _ => Err(invalid("match[]", text, "a selector such as {severity=\"page\"}")),
    }
}

/// Response of `/api/v1/rules`.
pub(crate) fn rules(state: &PublishedState, query: &RouteQuery) -> Result<Json, RouteError> {
    let filter = RuleFilter::read(query)?;
    let limit = query.integer("group_limit", 0, usize::MAX)?;
    let token = query.get("group_next_token");
    let found = state.groups.iter().filter(|report| filter.accepts_group(report));
    let mut reports =
        found.skip_while(|report| token.is_some_and(|token| token != group_token(report)));
    let mut groups = Vec::new();
    let mut next = None;
    let warnings = RuleWarnings::new(&state.unmatched_warnings);
    for report in &mut reports {
        let rules: Vec<Json> = (report.group.rules().iter().enumerate())
            .filter(|(_, rule)| filter.accepts_rule(rule))
            .map(|(index, rule)| {
                let mut fields = rule_fields(report, index, rule, filter.includes_alerts);
                let warning = match report.group.file() {
                    SLO_ALERT_FILE => slo_warning(state, report.group.name()),
                    file => warnings.text(file, rule.rule().position),
                };
                fields.extend(warning.map(|warning| ("warning", Text(warning))));
                Object(fields)
            })
            .collect();
        // As in Prometheus, a group without matching rules is left out.
        if rules.is_empty() {
            continue;
        }
        if limit > 0 && groups.len() == limit {
            next = Some(group_token(report));
            break;
        }
        groups.push(group_json(report, rules));
    }
    if token.is_some() && groups.is_empty() {
        let expected = "groupNextToken of the response before";
        return Err(invalid("group_next_token", token.unwrap_or_default(), expected));
    }
    let mut fields = vec![("groups", List(groups))];
    fields.extend(next.map(|next| ("groupNextToken", Text(next))));
    let mut answer = vec![("status", text("success")), ("data", Object(fields))];
    // As in Prometheus, warnings stand beside the data.
    if !state.problems.is_empty() {
        let problems = state.problems.iter().map(|problem| text(problem.to_string()));
        answer.push(("warnings", List(problems.collect())));
    }
    Ok(Object(answer))
}

/// Token that names a group.
fn group_token(report: &GroupReport) -> String {
    let key = format!("{};{}", report.group.file(), report.group.name());
    format!("{:032x}", u128::from_be_bytes(model::blake3_128(key.as_bytes())))
}

fn success(data: Json) -> Json {
    Object(vec![("status", text("success")), ("data", data)])
}

fn text(text: impl Into<String>) -> Json {
    Text(text.into())
}

fn group_json(report: &GroupReport, rules: Vec<Json>) -> Json {
    let group = &report.group;
    Object(vec![
        ("name", text(group.name())),
        ("file", text(group.file())),
        ("rules", List(rules)),
        ("interval", seconds(group.interval_ns())),
        ("limit", integer(group.limit() as u64)),
        ("evaluationTime", Number(report.duration.as_secs_f64())),
        ("lastEvaluation", last_evaluation(report)),
    ])
}

/// Warnings of rules by file and position in it.
struct RuleWarnings<'a>(BTreeMap<(&'a str, FilePosition), Vec<&'a str>>);

impl<'a> RuleWarnings<'a> {
    fn new(all: &'a [RuleProblem]) -> RuleWarnings<'a> {
        let mut by_place: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for problem in all {
            let place = (problem.file.as_str(), problem.position);
            by_place.entry(place).or_default().push(&problem.message);
        }
        RuleWarnings(by_place)
    }

    fn text(&self, file: &str, position: FilePosition) -> Option<String> {
        self.0.get(&(file, position)).map(|texts| texts.join("; "))
    }
}

fn rule_fields(
    report: &GroupReport,
    index: usize,
    rule: &EvaluatedRule,
    includes_alerts: bool,
) -> Vec<(&'static str, Json)> {
    let definition = rule.rule();
    let mut fields = Vec::new();
    if let Some(settings) = definition.alert_settings() {
        fields.extend([
            ("state", text(rule.state().text())),
            ("name", text(&*definition.name)),
            ("query", text(&*definition.expression)),
            ("duration", seconds(settings.for_ns)),
            ("keepFiringFor", seconds(settings.keep_firing_for_ns)),
            ("labels", map_json(&definition.labels)),
            ("annotations", map_json(&settings.annotations)),
        ]);
        // Clients of Prometheus ignore a field that they do not know.
        if let Some(condition) = definition.condition() {
            fields.push(("streams", integer(rule.stream_count() as u64)));
            fields.push(("language", text(condition.language())));
        }
        fields.extend(report.thresholds.get(index).map(|found| {
            let RuleThreshold { threshold, selector } = found;
            (
                "distribution",
                Object(vec![("threshold", text(&**threshold)), ("selector", text(&**selector))]),
            )
        }));
        if includes_alerts {
            let alerts = rule.alerts().alerts();
            let active = alerts.filter(|(_, alert)| alert.state != AlertState::Inactive);
            let alerts = active.map(|(labels, alert)| alert_json(labels, alert)).collect();
            fields.push(("alerts", List(alerts)));
        }
    } else {
        fields
            .extend([("name", text(&*definition.name)), ("query", text(&*definition.expression))]);
        if !definition.labels.is_empty() {
            fields.push(("labels", map_json(&definition.labels)));
        }
    }
    let (health, error) = match rule.health() {
        RuleHealth::Unknown => ("unknown", None),
        RuleHealth::Ok => ("ok", None),
        RuleHealth::Err(cause) => ("err", Some(cause)),
    };
    fields.push(("health", text(health)));
    fields.extend(error.map(|cause| ("lastError", text(&**cause))));
    let duration = report.rule_durations.get(index).copied().unwrap_or_default();
    let kind = if definition.alert_settings().is_some() { "alerting" } else { "recording" };
    fields.extend([
        ("evaluationTime", Number(duration.as_secs_f64())),
        ("lastEvaluation", last_evaluation(report)),
        ("type", text(kind)),
    ]);
    fields
}

fn alert_json(labels: &LabelSet, alert: &Alert) -> Json {
    let mut fields = vec![
        ("labels", label_json(labels)),
        ("annotations", map_json(&alert.annotations)),
        ("state", text(alert.state.text())),
        ("activeAt", rfc3339(alert.active_at_ns)),
    ];
    let since = alert.keep_firing_since_ns;
    fields.extend(since.map(|since| ("keepFiringSince", rfc3339(since))));
    fields.push(("value", text(go_exponential(alert.value))));
    Object(fields)
}

fn seconds(ns: i64) -> Json {
    match ns % 1_000_000_000 {
        0 => Json::Integer((ns / 1_000_000_000).into()),
        _ => Number(ns as f64 / 1e9),
    }
}

fn last_evaluation(report: &GroupReport) -> Json {
    // The zero time of Go.
    report.group.last_evaluation_ns().map_or_else(|| text("0001-01-01T00:00:00Z"), rfc3339)
}

fn rfc3339(ns: i64) -> Json {
    let time = jiff::Timestamp::from_nanosecond(ns.into()).map(|time| time.to_string());
    Text(time.unwrap_or_default())
}

/// Labels as an object.
pub(crate) fn label_json(labels: &LabelSet) -> Json {
    Map(labels.iter().map(|(name, value)| (name.to_owned(), text(value))).collect())
}

/// Labels or annotations of a rule as an object.
pub(crate) fn map_json(labels: &LabelMap) -> Json {
    Map(labels.iter().map(|(name, value)| (name.clone(), text(&**value))).collect())
}

/// Go's format `e` with the shortest digits: `1e+00`.
fn go_exponential(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let digits = format!("{number:e}");
    let (digits, exponent) = digits.split_once('e').expect("BUG: the format has an exponent");
    let exponent: i32 = exponent.parse().expect("BUG: the exponent is a number");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_go_writes_them() {
        let check = |number, expected: &str| assert_eq!(go_exponential(number), expected);
        check(1.0, "1e+00");
        check(0.0, "0e+00");
        check(-1234.5, "-1.2345e+03");
        check(1e-7, "1e-07");
        check(1.5e300, "1.5e+300");
        check(f64::NEG_INFINITY, "-Inf");
        check(f64::NAN, "NaN");
    }
}
