//! JSON document of a replay, with a sentence per rule.

use decode::rounded_duration_text;
use hist::Bracket;
use query::LabelSet;
use render::number_formatter::NumberFormatter;
use render::text::plural;
use render::time::precise_time_text;
use render::value_formatter::{count_bounds, count_estimate};
use rules::{ReplayState, ReplayedAlert, ReplayedRule, RuleProblem, RuleReplay};

use super::ReplayRequest;
use crate::json::Json::{self, Bool, Integer, List, Map, Null, Object, Text};
use crate::json::{integer, number};

pub(super) fn replay_json(request: &ReplayRequest, replay: &RuleReplay) -> Json {
    let wanted =
        |rule: &&ReplayedRule| request.rules.is_empty() || request.rules.contains(&rule.rule.name);
    let rules = replay.rules.iter().filter(wanted).map(rule_json).collect();
    Object(vec![
        ("schema", integer(1)),
        ("from_ns", Integer(request.from_ns.into())),
        ("to_ns", Integer(request.to_ns.into())),
        ("evaluations", integer(replay.evaluations)),
        ("problems", List(request.file.problems.iter().map(problem_json).collect())),
        ("rules", List(rules)),
    ])
}

fn text(text: &str) -> Json {
    Text(text.to_owned())
}

fn problem_json(problem: &RuleProblem) -> Json {
    Object(vec![
        ("line", integer(problem.position.line as u64)),
        ("column", integer(problem.position.column as u64)),
        ("text", Text(problem.to_string())),
    ])
}

fn rule_json(replayed: &ReplayedRule) -> Json {
    let rule = &replayed.rule;
    let kind = if rule.alert_settings().is_some() { "alerting" } else { "recording" };
    let failure = replayed.first_failure.as_ref().map_or(Null, |(time_ns, cause)| {
        Object(vec![("at_ns", Integer((*time_ns).into())), ("text", text(cause))])
    });
    let above = replayed.above.as_ref().map_or(Null, |above| {
        Object(vec![
            ("threshold", text(&above.threshold)),
            ("requests", number(above.values.estimate)),
            ("lower", number(above.values.lower)),
            ("upper", number(above.values.upper)),
        ])
    });
    let without_data = replayed.without_data.iter().map(|selector| text(selector)).collect();
    Object(vec![
        ("group", text(&replayed.group)),
        ("name", text(&rule.name)),
        ("type", text(kind)),
        ("line", integer(rule.position.line as u64)),
        ("query", text(&rule.expression)),
        ("summary", Text(summary(replayed))),
        ("evaluations", integer(replayed.evaluations)),
        ("failures", integer(replayed.failures)),
        ("first_failure", failure),
        ("without_data", List(without_data)),
        ("fired", integer(replayed.fired())),
        ("firing_ns", Integer(replayed.firing_ns().into())),
        ("above", above),
        ("alerts", List(replayed.alerts.iter().map(alert_json).collect())),
    ])
}

fn alert_json(alert: &ReplayedAlert) -> Json {
    let transitions = alert.transitions.iter().map(|change| {
        Object(vec![
            ("at_ns", Integer(change.time_ns.into())),
            ("state", text(change.to.state.text())),
            ("is_unknown", Bool(change.to.is_unknown)),
            ("value", number(change.value)),
        ])
    });
    Object(vec![
        ("labels", label_json(&alert.labels)),
        ("state_at_start", text(alert.state_at_start.state.text())),
        ("fired", integer(alert.fired)),
        ("firing_ns", Integer(alert.firing_ns.into())),
        ("transitions", List(transitions.collect())),
        ("omitted_transitions", integer(alert.omitted_transitions)),
    ])
}

fn label_json(labels: &LabelSet) -> Json {
    Map(labels.iter().map(|(name, value)| (name.to_owned(), text(value))).collect())
}

/// `would have fired 3 times, 41 min in all, 12,031 requests above 250ms`.
fn summary(replayed: &ReplayedRule) -> String {
    let mut parts = Vec::new();
    if !replayed.without_data.is_empty() {
        parts.push(format!("no data in the range: {}", replayed.without_data.join(", ")));
    }
    if replayed.failures > 0 {
        let (failures, evaluations) = (replayed.failures, replayed.evaluations);
        let first = replayed.first_failure.as_ref();
        let first = first.map_or_else(String::new, |(time_ns, cause)| {
            format!(", first at {}: {cause}", precise_time_text(*time_ns))
        });
        parts.push(format!("{failures} of {evaluations} evaluations failed{first}"));
    }
    if replayed.rule.alert_settings().is_some() {
        parts.push(firing_text(replayed));
        parts.extend(replayed.absence().map(absence_text));
    } else if parts.is_empty() {
        parts.push(plural(replayed.evaluations, "evaluation", "evaluations"));
    }
    parts.join("; ")
}

fn firing_text(replayed: &ReplayedRule) -> String {
    let is_firing = |state: &ReplayState| state.state == rules::AlertState::Firing;
    let before = replayed.condition_alerts();
    let before = before.filter(|alert| is_firing(&alert.state_at_start)).count();
    let mut parts = Vec::new();
    if before > 0 {
        let alerts = plural(before as u64, "alert", "alerts");
        parts.push(format!("{alerts} firing at the start"));
    }
    match replayed.fired() {
        0 if before == 0 => return "would not have fired".to_owned(),
        0 => {}
        fired => parts.push(format!("would have fired {}", plural(fired, "time", "times"))),
    }
    parts.push(format!("{} in all", fired_for_text(replayed.firing_ns())));
    if let Some(above) = &replayed.above {
        let Bracket { lower, estimate, upper } = above.values;
        // Counts are below 2^53.
        let whole = |values: f64| values.max(0.0) as u64;
        let values = Bracket {
            lower: whole(lower.floor()),
            estimate: whole(estimate.round()),
            upper: whole(upper.ceil()),
        };
        let noun = if values.estimate == 1 { "request" } else { "requests" };
        let count = count_estimate(values);
        let bounds = match values.is_exact() {
            true => String::new(),
            false => format!(" ({})", count_bounds(values)),
        };
        let number = above.unit.as_deref().and(above.threshold.trim().parse().ok());
        let threshold = match number {
            Some(number) => NumberFormatter::new(above.unit.as_deref()).exact(number),
            None => above.threshold.clone(),
        };
        parts.push(format!("{count} {noun}{bounds} above {threshold}"));
    }
    parts.join(", ")
}

/// `streams without data 2 times, 5 h 12 min in all`.
fn absence_text(absence: &ReplayedAlert) -> String {
    let is_before = absence.state_at_start.state == rules::AlertState::Firing;
    let times = plural(absence.fired + u64::from(is_before), "time", "times");
    let duration = fired_for_text(absence.firing_ns);
    format!("streams without data {times}, {duration} in all")
}

/// How long an alert fired: `45 s`, and whole minutes from 90 s on, as evaluations are intervals
/// apart.
fn fired_for_text(ns: i64) -> String {
    const MINUTE_NS: i64 = 60_000_000_000;
    match ns >= MINUTE_NS + MINUTE_NS / 2 {
        true => rounded_duration_text((ns + MINUTE_NS / 2) / MINUTE_NS * MINUTE_NS),
        false => rounded_duration_text(ns),
    }
}

#[cfg(test)]
mod tests {
    use super::fired_for_text;

    #[test]
    fn alerts_fired_for_whole_minutes() {
        let check = |seconds: i64, expected: &str| {
            assert_eq!(fired_for_text(seconds * 1_000_000_000), expected);
        };
        check(0, "0 s");
        check(89, "1 min 29 s");
        check(41 * 60 + 29, "41 min");
        check(59 * 60 + 31, "1 h");
        check(5 * 3600 + 720, "5 h 12 min");
        check(3 * 86_400 + 8_640, "3 d 2 h");
    }
}
