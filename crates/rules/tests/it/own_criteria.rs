//! Criteria of own rules over a store: CAQL, texts, users.

use rules::{AlertState, RuleHealth};

use crate::harness::{MINUTE, SECOND, parse};
use crate::stored_node::StoredNode;

/// Evaluates a rule, and returns its firing alerts: `{instance="1"} 3: 150`, with the severity and
/// the value.
#[track_caller]
fn firing(node: &mut StoredNode) -> Vec<String> {
    node.evaluate();
    let rule = &node.group.rules()[0];
    assert_eq!(*rule.health(), RuleHealth::Ok);
    let alerts = rule.alerts().alerts().filter(|(_, alert)| alert.state == AlertState::Firing);
    let shown = alerts.map(|(_, alert)| {
        let severity = alert.severity().expect("the severity of the criterion");
        let unknown = if alert.is_unknown() { "?" } else { "" };
        format!("{} {severity}{unknown}: {}", alert.series, alert.value)
    });
    shown.collect()
}

#[test]
fn an_expression_in_caql_is_evaluated_over_its_window() {
    let rule = "[[rule]]\nname = 'Deep'\ncaql = 'find(\"queue\") | stats:sum()'\nwindow = '1min'\n\
                [[rule.criteria]]\nseverity = 1\nabove = 200\n[[rule.criteria]]\nseverity = 3\n\
                above = 50\n";
    let mut node = StoredNode::new(rule);
    let condition = node.group.rules()[0].rule().condition().expect("an own rule");
    assert_eq!((condition.language(), condition.selector()), ("caql", None));
    let mut seen = Vec::new();
    for depth in [10, 40, 120, 30] {
        node.series.pass(MINUTE);
        // The rows of two instances in the last minute.
        for age in [10, 30, 50] {
            node.series.row("queue", 1, age * SECOND, depth);
            node.series.row("queue", 2, age * SECOND, depth);
        }
        let found = firing(&mut node);
        seen.push(
            found
                .first()
                .map_or("", |alert| alert.split_once("} ").map_or("", |it| it.1))
                .to_owned(),
        );
    }
    assert_eq!(seen, ["", "3: 80", "1: 240", "3: 60"]);
    // The sum of no values is 0, as everywhere in CAQL.
    node.series.pass(10 * MINUTE);
    assert_eq!(firing(&mut node), [""; 0]);
}

#[test]
fn an_expression_in_caql_without_data_does_not_resolve() {
    let rule = "[[rule]]\nname = 'Deep'\ncaql = 'find(\"queue\") | stats:max()'\nwindow = '1min'\n\
                [[rule.criteria]]\nseverity = 3\nabove = 50\n";
    let mut node = StoredNode::new(rule);
    node.series.pass(MINUTE);
    node.series.row("queue", 1, 10 * SECOND, 80);
    let found = firing(&mut node);
    assert!(found.len() == 1 && found[0].ends_with("} 3: 80"), "{found:?}");
    node.series.pass(10 * MINUTE);
    let found = firing(&mut node);
    assert!(found.len() == 1 && found[0].ends_with("} 3?: 80"), "{found:?}");
}

#[test]
fn a_mistake_in_caql_has_its_position() {
    let file = parse(
        "[[rule]]\nname = 'Bad'\ncaql = 'find(\"queue\") | stats:sun()'\n\
                      [[rule.criteria]]\nseverity = 1\nabove = 1\n",
    );
    let problems: Vec<String> = file.problems.iter().map(ToString::to_string).collect();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("rules.toml:3:8: error: cannot parse caql: "), "{problem}");
    assert!(problem.ends_with("did you mean stats:sub?"), "the nearest name: {problem}");
}

/// Rule of the texts `version`: `v0` for even values, `v1` for odd ones.
fn version(criterion: &str) -> StoredNode {
    StoredNode::new(&format!(
        "[[rule]]\nname = 'Version'\nselect = 'version'\nwindow = '1min'\n[[rule.criteria]]\n\
         severity = 4\n{criterion}\n"
    ))
}

#[test]
fn the_latest_text_is_matched() {
    let mut node = version("text = 'v[1-9].*'");
    node.series.row("version", 1, 20 * SECOND, 1);
    node.series.row("version", 1, 0, 0);
    node.series.row("version", 2, 20 * SECOND, 0);
    node.series.row("version", 2, 0, 1);
    assert_eq!(firing(&mut node), ["{instance=\"2\"} 4: 1"]);
    // Without texts nothing is known.
    node.series.pass(10 * MINUTE);
    assert_eq!(firing(&mut node), ["{instance=\"2\"} 4?: 1"]);
    node.series.row("version", 2, 0, 0);
    assert_eq!(firing(&mut node), [""; 0]);
    // The whole text must match.
    let mut node = version("text = 'v'");
    node.series.row("version", 1, 0, 0);
    assert_eq!(firing(&mut node), [""; 0]);
}

#[test]
fn changes_of_text_are_those_of_the_window() {
    let mut node = version("text_changes = true");
    for (age, value) in [(50, 0), (40, 0), (30, 1), (20, 1), (10, 0)] {
        node.series.row("version", 1, age * SECOND, value);
        node.series.row("version", 2, age * SECOND, 0);
    }
    assert_eq!(firing(&mut node), ["{instance=\"1\"} 4: 2"]);
    node.series.pass(25 * SECOND);
    assert_eq!(firing(&mut node), ["{instance=\"1\"} 4: 1"]);
    node.series.pass(20 * SECOND);
    assert_eq!(firing(&mut node), [""; 0]);
}

/// Rule of `latency` in all, with these keys of the criterion.
fn users(keys: &str) -> StoredNode {
    StoredNode::new(&format!(
        "[[rule]]\nname = 'Users'\nselect = 'latency'\nby = ['zone']\nwindow = '1min'\n\
         [[rule.criteria]]\nseverity = 2\nusers_above = '250ms'\n{keys}\n"
    ))
}

#[test]
fn users_with_a_slow_request_are_counted_each_once() {
    let record = |node: &StoredNode| {
        for (user, values) in [("a", [300.0, 400.0]), ("b", [10.0, 500.0]), ("c", [10.0, 20.0])] {
            node.series.durations("latency", &[("zone", "x"), ("session", user)], &values);
            node.series.durations("latency", &[("zone", "y"), ("customer", user)], &values);
        }
    };
    let mut node = users("at_least = 2");
    record(&node);
    // Sessions of zone x; zone y has no label of sessions, so its three requests count.
    assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 2", "{zone=\"y\"} 2: 3"]);
    let mut node = users("user_label = 'customer'\nabove = 2");
    record(&node);
    assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 3"]);
    let mut node = users("at_least = 3");
    record(&node);
    assert_eq!(firing(&mut node), ["{zone=\"y\"} 2: 3"]);
    let affected = node.group.rules()[0].rule().condition().expect("an own rule").limit_text(0);
    assert_eq!(affected.as_deref(), Some("250ms"));
    // Values without a unit cannot be compared with a duration.
    let mut node = users("at_least = 1");
    node.series.row("latency", 1, 0, 1);
    node.evaluate();
    let RuleHealth::Err(cause) = node.group.rules()[0].health() else { panic!("no error") };
    assert!(cause.contains("the stream has no unit"), "{cause}");
}

#[test]
fn requests_of_nobody_are_no_users_if_the_stream_has_a_label_of_users() {
    for keys in ["at_least = 1", "user_label = 'session'\nat_least = 1"] {
        let mut node = users(keys);
        node.series.sessions("latency", "x", 0..3, 500.0);
        assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 3"]);
        node.series.pass(10 * MINUTE);
        // Only probes send.
        node.series.durations("latency", &[("zone", "x"), ("probe", "a")], &[300.0, 400.0]);
        assert_eq!(firing(&mut node), [""; 0], "{keys}");
        // Nothing is known without values.
        node.series.durations("latency", &[("zone", "x"), ("session", "1")], &[300.0]);
        assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 1"]);
        node.series.pass(10 * MINUTE);
        assert_eq!(firing(&mut node), ["{zone=\"x\"} 2?: 1"]);
    }
}

/// A shop that had more sessions than are counted: they are over.
#[test]
fn sessions_that_are_over_are_no_users() {
    let mut node = users("at_least = 2");
    node.series.sessions("latency", "x", 0..10_050, 500.0);
    node.series.pass(10 * MINUTE);
    let slow = |user: &str, values: &[f64]| {
        node.series.durations("latency", &[("zone", "x"), ("session", user)], values);
    };
    slow("a", &[300.0, 400.0]);
    slow("b", &[10.0, 500.0]);
    slow("c", &[10.0, 20.0]);
    assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 2"]);
    // The users of now have another label than those of before.
    let mut node = users("at_least = 2");
    node.series.sessions("latency", "x", 0..3, 500.0);
    node.series.pass(10 * MINUTE);
    for user in ["a", "b", "c"] {
        let labels = [("zone", "x"), ("user_id", user)];
        node.series.durations("latency", &labels, &[300.0, 400.0]);
    }
    assert_eq!(firing(&mut node), ["{zone=\"x\"} 2: 3"]);
    // More than 10,000 of now are an error still.
    let mut node = users("at_least = 2");
    node.series.sessions("latency", "x", 0..10_001, 500.0);
    node.evaluate();
    let RuleHealth::Err(cause) = node.group.rules()[0].health() else { panic!("no error") };
    let limit = "limit of 10000 users (label \"session\") exceeded; select fewer series";
    assert!(cause.ends_with(limit), "{cause}");
}
