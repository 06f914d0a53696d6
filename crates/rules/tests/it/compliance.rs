//! The four cases of Prometheus' alert generator compliance suite, written anew from what they
//! demand. Interval 30 s, resend delay 1 min.
//!
//! Each case describes its data and the expected states at each evaluation. The harness checks
//! three of the four interfaces of the suite in every iteration: the active alerts, the `ALERTS`
//! series, and the notices with their times. The fourth, HTTP, is not part of this crate.

use std::collections::BTreeSet;

use rules::{AlertState, IterationResult};

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, with_rules};

const INTERVAL: i64 = 30 * SECOND;

/// Expected states of an alert: one letter for each evaluation. `.` nothing, `p` pending,
/// `f` firing, `r` resolved.
type ExpectedAlert<'a> = (&'a str, &'a str, &'a str);

/// Runs a case: values of series, one letter for each evaluation (`0` to `9`, `_` no data), and
/// alerts by rule name and label `variant`.
#[track_caller]
fn check(rules: &str, series: &[(&str, &str)], alerts: &[ExpectedAlert<'_>]) {
    let mut node = SimulatedNode::new(&with_rules(rules));
    let steps = alerts[0].2.len();
    for step in 0..steps {
        for (labels, values) in series {
            match values.as_bytes()[step] {
                b'_' => node.end(labels),
                digit => node.set(labels, f64::from(digit - b'0')),
            }
        }
        let result = node.evaluate();
        check_alerts(&node, step, alerts);
        check_samples(&result, step, alerts);
        check_notices(&result, step, alerts);
        node.time_ns += INTERVAL;
    }
}

fn shown(name: &str, variant: &str, state: &str) -> String {
    format!("{name}/{variant} {state}")
}

/// Expected alerts at a step whose states are among some.
fn expected_at(step: usize, alerts: &[ExpectedAlert<'_>], states: &str) -> BTreeSet<String> {
    let at = |states: &str| states.as_bytes()[step] as char;
    let text = |state: char| match state {
        'p' => "pending",
        'f' => "firing",
        _ => "inactive",
    };
    let wanted = alerts.iter().filter(|alert| states.contains(at(alert.2)));
    wanted.map(|(name, variant, states)| shown(name, variant, text(at(states)))).collect()
}

#[track_caller]
fn check_alerts(node: &SimulatedNode, step: usize, alerts: &[ExpectedAlert<'_>]) {
    let mut found = BTreeSet::new();
    for rule in node.group.rules() {
        for (labels, alert) in rule.alerts().alerts() {
            let (name, variant) = (labels.get("alertname"), labels.get("variant"));
            found.insert(shown(name, variant, alert.state.text()));
            let is_annotated =
                alert.annotations["description"].ends_with(&format!("is {}", alert.value));
            assert!(is_annotated, "{:?}", alert.annotations);
        }
    }
    assert_eq!(found, expected_at(step, alerts, "pfr"), "alerts at step {step}");
}

#[track_caller]
fn check_samples(result: &IterationResult, step: usize, alerts: &[ExpectedAlert<'_>]) {
    let is_active = |write: &&rules::RuleWrite| {
        write.labels.name() == "ALERTS" && write.value.number() == Some(1.0)
    };
    let found = result.writes.iter().filter(is_active).map(|write| {
        let labels = &write.labels;
        shown(labels.get("alertname"), labels.get("variant"), labels.get("alertstate"))
    });
    let found: BTreeSet<String> = found.collect();
    assert_eq!(found, expected_at(step, alerts, "pf"), "ALERTS at step {step}");
}

/// Notices are due when an alert fires or resolves, and then at the first evaluation more than the
/// resend delay after the last one.
#[track_caller]
fn check_notices(result: &IterationResult, step: usize, alerts: &[ExpectedAlert<'_>]) {
    let time_ns = START + step as i64 * INTERVAL;
    let mut expected = BTreeSet::new();
    for (name, variant, states) in alerts {
        let states: Vec<char> = states.chars().collect();
        let state = states[step];
        if !matches!(state, 'f' | 'r') {
            continue;
        }
        let begin = (0..=step).rev().take_while(|&at| states[at] == state).last().unwrap_or(step);
        let resend_steps = (MINUTE / INTERVAL) as usize + 1;
        if !(step - begin).is_multiple_of(resend_steps) {
            continue;
        }
        let began_ns = START + begin as i64 * INTERVAL;
        let ends_ns = if state == 'r' { began_ns } else { time_ns + 4 * MINUTE };
        let text = if state == 'r' { "inactive" } else { "firing" };
        expected.insert(format!("{} until {ends_ns}", shown(name, variant, text)));
    }
    let found = result.notices.iter().map(|(_, notice)| {
        assert_ne!(notice.alert.state, AlertState::Pending);
        let (name, variant) = (notice.labels.get("alertname"), notice.labels.get("variant"));
        let ends_ns = notice.ends_at_ns().unwrap_or_default();
        format!("{} until {ends_ns}", shown(name, variant, notice.alert.state.text()))
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), expected, "notices at step {step}");
}

fn rule(name: &str, expression: &str, settings: &str) -> String {
    format!(
        "  - alert: {name}\n    expr: {expression}\n{settings}\
         \x20   labels: {{suite: generator}}\n    annotations:\n\
         \x20     description: \"{name} is {{{{ $value }}}}\"\n"
    )
}

/// Pending, firing and resolved alerts, each seen for long enough to be sent again; a resolved one
/// for 15 minutes. With several rules of the same series, and an alert that fires again.
#[test]
fn pending_and_firing_and_resolved() {
    let rules =
        rule("Simple", "m > 5", "    for: 90s\n") + &rule("Twice", "m > 8", "    for: 60s\n");
    let values = format!("000666699966999{}", "0".repeat(33));
    // Evaluations 0 to 30 intervals after the end: 15 minutes.
    let resolved = "r".repeat(31);
    let simple = format!("...pppfffffffff{resolved}..");
    let twice = format!(".......ppfrrppf{resolved}..");
    check(
        &rules,
        &[("m{variant=\"a\"}", &values)],
        &[("Simple", "a", &simple), ("Twice", "a", &twice)],
    );
}

/// Alerts that never fire: pending too short, or not even that.
#[test]
fn pending_and_resolved_always_inactive() {
    let rules = rule("Short", "m > 5", "    for: 2m\n") + &rule("Never", "m > 9", "    for: 1m\n");
    check(
        &rules,
        &[("m{variant=\"a\"}", "0666600666609")],
        &[("Short", "a", ".pppp..pppp.p"), ("Never", "a", ".............")],
    );
}

/// An alert without `for` fires at once; with one below the interval, at the second evaluation.
/// A template queries.
#[test]
fn zero_for_and_small_for() {
    let rules = rule("Zero", "m > 5", "") + &rule("Small", "m > 5", "    for: 10s\n");
    check(
        &rules,
        &[("m{variant=\"a\"}", "006666660000")],
        &[("Zero", "a", "..ffffffrrrr"), ("Small", "a", "..pfffffrrrr")],
    );
    let text = "  - alert: Zero\n    expr: m > 5\n    annotations:\n      \
                all: \"{{ query `count(m)` | first | value }} of {{ $labels.variant }}\"\n";
    let mut node = SimulatedNode::new(&with_rules(text));
    node.set("m{variant=\"a\"}", 6.0);
    node.set("m{variant=\"b\"}", 0.0);
    let result = node.evaluate();
    assert_eq!(result.notices[0].1.alert.annotations["all"], "2 of a");
}

/// Series appear one after the other, each with an alert of its own; a rule is chained on the
/// `ALERTS` of the rule before it and sees them in the same iteration.
#[test]
fn new_alerts_and_order_of_rules() {
    let rules = rule("Each", "m > 5", "    for: 60s\n")
        + &rule("Chained", "ALERTS{alertname=\"Each\",alertstate=\"firing\"}", "");
    check(
        &rules,
        &[
            ("m{variant=\"a\"}", "66666660000"),
            ("m{variant=\"b\"}", "__666666600"),
            ("m{variant=\"c\"}", "____6666_66"),
        ],
        &[
            ("Each", "a", "ppfffffrrrr"),
            ("Each", "b", "..ppfffffrr"),
            ("Each", "c", "....ppffrpp"),
            ("Chained", "a", "..fffffrrrr"),
            ("Chained", "b", "....fffffrr"),
            ("Chained", "c", "......ffrrr"),
        ],
    );
}
