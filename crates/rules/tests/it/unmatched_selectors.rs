//! Rules that select nothing, and what may have been meant.

use query::{Settings, promql};
use rules::{SourceEvaluator, unmatched_selectors};

use crate::harness::{MINUTE, SimulatedNode, with_rules};

const DAY: i64 = 24 * 60 * MINUTE;

/// Node with a rule, and series that have data now.
fn node(rule: &str) -> SimulatedNode {
    let mut node = SimulatedNode::new(rule);
    node.record("latency{host=\"db1\",zone=\"north\"}", [0.1]);
    node.set("queue_depth{host=\"db1\"}", 1.0);
    node.set("errors_total{host=\"db1\"}", 1.0);
    node.time_ns += MINUTE;
    node
}

fn unmatched(node: &SimulatedNode) -> Vec<String> {
    let settings = Settings::default();
    let evaluator = SourceEvaluator {
        source: &node.series,
        settings: &settings,
        options: promql::Options::all(),
        context: &|| false,
    };
    let range = node.time_ns - DAY..node.time_ns;
    let found = unmatched_selectors(node.group.rules()[0].rule(), &evaluator, &range);
    let text = |(selector, hint): (String, Option<String>)| match hint {
        Some(hint) => format!("{selector}: {hint}"),
        None => selector,
    };
    let found = found.expect("the series are in memory").into_iter();
    found.map(|unmatched| text((unmatched.selector, unmatched.hint))).collect()
}

#[track_caller]
fn check(expression: &str, expected: &[&str]) {
    let rule = with_rules(&format!("  - alert: A\n    expr: '{expression}'\n"));
    assert_eq!(unmatched(&node(&rule)), expected, "{expression}");
}

#[track_caller]
fn check_own(select: &str, expected: &[&str]) {
    let rule = format!(
        "[[rule]]\nname = \"A\"\nselect = '{select}'\n[[rule.criteria]]\nseverity = 1\n\
         equals = 1\n"
    );
    assert_eq!(unmatched(&node(&rule)), expected, "{select}");
}

#[track_caller]
fn check_caql(query: &str, expected: &[&str]) {
    let rule = format!(
        "[[rule]]\nname = \"A\"\ncaql = '{query}'\n[[rule.criteria]]\nseverity = 1\nequals = 1\n"
    );
    assert_eq!(unmatched(&node(&rule)), expected, "{query}");
}

#[test]
fn a_query_in_caql_that_finds_nothing_is_named() {
    check_caql("find(\"queue_depth\") | stats:max()", &[]);
    check_caql("pass{find(\"queue_depth\"), find(\"nothing\")} | stats:max()", &[]);
    check_caql("5", &[]);
    let query = "find(\"queue_dept\") | stats:max()";
    let hint = "did you mean the metric \"queue_depth\"?";
    check_caql(query, &[&format!("{query}: {hint}")]);
    let query = "find(\"something_*\") | stats:max()";
    check_caql(query, &[query]);
}

#[test]
fn rules_with_data_are_left_out() {
    check("queue_depth > 5", &[]);
    check("histogram_quantile(0.99, sum by (le) (rate(latency_bucket[5m]))) > 1", &[]);
    check("absent(no_such_metric)", &[]);
    check("queue_depth unless no_such_metric", &[]);
    check("no_such_metric or queue_depth", &[]);
    check("ALERTS{alertname=\"Down\"}", &[]);
    check("vector(1)", &[]);
    check_own("latency{host=\"db1\"}", &[]);
}

#[test]
fn nearest_metric_is_named() {
    check("queue_dept > 5", &["queue_dept: did you mean the metric \"queue_depth\"?"]);
    check(
        "rate(error_total[5m]) / queue_depth",
        &["error_total: did you mean the metric \"errors_total\"?"],
    );
    check("something_else > 5", &["something_else"]);
    check_own("latenzy", &["latenzy: did you mean the metric \"latency\"?"]);
    // Each selector once.
    check("nothing_here > 1 and nothing_here < 2", &["nothing_here"]);
}

#[test]
fn nearest_label_and_value_are_named() {
    check(
        "queue_depth{hots=\"db1\"} > 5",
        &["queue_depth{hots=\"db1\"}: no series has the label \"hots\"; did you mean \"host\"?"],
    );
    check_own(
        "latency{zone=\"nort\"}",
        &["latency{zone=\"nort\"}: label \"zone\" has no value \"nort\"; did you mean \"north\"?"],
    );
    check_own(
        "latency{zone=\"eu-west-1\"}",
        &["latency{zone=\"eu-west-1\"}: label \"zone\" has no value \"eu-west-1\""],
    );
    check(
        "queue_depth{host=~\"x.*\"} > 5",
        &["queue_depth{host=~\"x.*\"}: no value of label \"host\" matches the regex, which must \
           match all of a value; it has db1"],
    );
}

#[test]
fn series_that_ended_before_the_range_do_not_count() {
    let rule = with_rules("  - alert: A\n    expr: queue_depth > 5\n");
    let mut node = node(&rule);
    node.time_ns += 2 * DAY;
    assert_eq!(unmatched(&node), ["queue_depth"]);
}
