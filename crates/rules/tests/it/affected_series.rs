//! How many requests and users an alert affected, by the rows of a store.

use std::sync::atomic::{AtomicU32, Ordering};

use query::StoreSource;
use rules::{AffectedCounts, AffectedRule, AlertState, RuleThreshold};

use store::TimeGrid;

use crate::harness::{MINUTE, group, with_rules};
use crate::stored_node::StoredNode;

impl StoredNode {
    /// Requests and users of the only alert.
    #[track_caller]
    fn affected(&self, user_label: Option<&str>) -> (Option<u64>, Option<u64>) {
        let rule = &self.group.rules()[0];
        let mut alerts = rule.alerts().alerts();
        let (Some((_, alert)), None) = (alerts.next(), alerts.next()) else {
            panic!("{:?}", rule.alerts());
        };
        let Some(series) = AffectedRule::of(rule.rule()).series(alert) else { return (None, None) };
        let view = self.series.store.view().expect("a view");
        let source = StoreSource::new(&view);
        let AffectedCounts { requests, users } =
            series.count(&source, self.series.now(), user_label).expect("an answer");
        (requests, users)
    }
}

/// A rule of `latency` with a window of a minute.
fn own(keys: &str) -> String {
    format!(
        "[[rule]]\nname = 'Slow'\nselect = 'latency'\nwindow = '1min'\n{keys}\n[[rule.criteria]]\n\
         severity = 1\nquantile = 0.5\nabove = '250ms'\n"
    )
}

const SLOW: [f64; 4] = [10.0, 300.0, 400.0, 500.0];

#[test]
fn requests_above_the_threshold_are_counted_from_the_window_before_the_alert_to_its_end() {
    let mut node = StoredNode::new(&own("by = ['zone']"));
    // Before the window.
    node.series.durations("latency", &[("zone", "a")], &SLOW);
    node.series.pass(5 * MINUTE);
    node.series.durations("latency", &[("zone", "a"), ("host", "1")], &SLOW);
    node.series.durations("latency", &[("zone", "a"), ("host", "2")], &SLOW);
    node.series.durations("latency", &[("zone", "b")], &[10.0]);
    // Another stream, without the label.
    node.series.durations("latency", &[("host", "3")], &[10.0; 9]);
    node.evaluate();
    assert_eq!(node.affected(None), (Some(6), None));
    node.series.pass(MINUTE / 2);
    node.series.durations("latency", &[("zone", "a"), ("host", "1")], &SLOW);
    node.evaluate();
    assert_eq!(node.affected(None), (Some(9), None));
    // It resolves; later requests are not of this alert.
    node.series.pass(2 * MINUTE);
    node.series.durations("latency", &[("zone", "a")], &[10.0, 10.0, 300.0]);
    node.evaluate();
    let mut alerts = node.group.rules()[0].alerts().alerts();
    assert!(alerts.all(|(_, alert)| alert.state == AlertState::Inactive));
    drop(alerts);
    node.series.pass(MINUTE);
    node.series.durations("latency", &[("zone", "a")], &SLOW);
    assert_eq!(node.affected(None), (Some(10), None));
}

#[test]
fn a_stream_without_labels_is_not_all_streams() {
    let mut node = StoredNode::new(&own(""));
    node.series.durations("latency", &[], &SLOW);
    node.series.durations("latency", &[("zone", "b")], &[10.0, 10.0, 300.0]);
    node.evaluate();
    assert_eq!(node.affected(None), (Some(3), None));
}

#[test]
fn a_criterion_of_a_count_has_the_threshold_of_the_requests() {
    let criterion = "severity = 1\ncount_above = '250ms'\nat_least = 2";
    let rule = own("").replace("severity = 1\nquantile = 0.5\nabove = '250ms'", criterion);
    let mut node = StoredNode::new(&rule);
    node.series.durations("latency", &[], &SLOW);
    node.evaluate();
    assert_eq!(node.affected(None), (Some(3), None));
}

#[test]
fn users_are_counted_by_a_label_of_sessions_or_the_one_of_the_settings() {
    let mut node = StoredNode::new(&own("by = []"));
    for (session, customer, values) in
        [("s1", "c1", &SLOW[..]), ("s2", "c1", &SLOW[..]), ("s3", "c2", &[10.0])]
    {
        let labels = [("session", session), ("customer", customer)];
        node.series.durations("latency", &labels, values);
    }
    node.evaluate();
    assert_eq!(node.affected(None), (Some(6), Some(2)));
    assert_eq!(node.affected(Some("customer")), (Some(6), Some(1)));
    // Nobody has this label.
    assert_eq!(node.affected(Some("account")), (Some(6), None));
}

#[test]
fn rules_of_prometheus_name_a_threshold() {
    let quantile = "histogram_quantile(0.5, sum by (zone) (exact_increase(latency[1m])))";
    let rules = with_rules(&format!("  - alert: Slow\n    expr: {quantile} > 250ms\n"));
    let mut node = StoredNode::new(&rules);
    node.series.durations("latency", &[("zone", "a")], &SLOW);
    node.series.durations("latency", &[("zone", "b")], &[10.0, 10.0, 300.0]);
    node.evaluate();
    assert_eq!(node.affected(None), (Some(3), None));
}

/// Most requests are fast, which is why the alert fires: those above the limit are the others.
#[test]
fn a_rule_about_fast_requests_affects_none_that_are_known() {
    for comparison in ["< 250ms", "<= 250ms"] {
        let quantile = "histogram_quantile(0.5, exact_increase(latency[1m]))";
        let rule = format!("  - alert: Fast\n    expr: {quantile} {comparison}\n");
        let mut node = StoredNode::new(&with_rules(&rule));
        node.series.durations("latency", &[], &[10.0, 10.0, 10.0, 900.0]);
        node.evaluate();
        assert_eq!(node.affected(None), (None, None), "{comparison}");
    }
}

#[test]
fn requests_are_known_if_the_time_does_not_suffice_for_users() {
    let mut node = StoredNode::new(&own("by = []"));
    for user in ["s1", "s2", "s3"] {
        node.series.durations("latency", &[("session", user)], &SLOW);
    }
    node.evaluate();
    let rule = &node.group.rules()[0];
    let (_, alert) = rule.alerts().alerts().next().expect("an alert");
    let series = AffectedRule::of(rule.rule()).series(alert).expect("a threshold");
    let view = node.series.store.view().expect("a view");
    // Cancelled at each of the places that look whether it is.
    let mut found = Vec::new();
    for looks in 0_u32.. {
        let seen = AtomicU32::new(0);
        let is_cancelled = || seen.fetch_add(1, Ordering::Relaxed) >= looks;
        let source = StoreSource::new(&view).with_context(&is_cancelled);
        let counts = series.count(&source, node.series.now(), None);
        found.push(counts.ok().map(|counts| (counts.requests, counts.users)));
        if found.last() == Some(&Some((Some(9), Some(3)))) {
            break;
        }
    }
    found.dedup();
    assert_eq!(found, [None, Some((Some(9), None)), Some((Some(9), Some(3)))]);
}

#[test]
fn what_is_not_known_is_no_number() {
    // Values are no durations.
    let mut node = StoredNode::new(&own("").replace("'250ms'", "200").replace("0.5", "0.9"));
    node.series.row("latency", 1, 0, 255);
    node.evaluate();
    assert_eq!(node.affected(None), (None, None));
    // No threshold of a distribution.
    let mut node = StoredNode::new(&with_rules("  - alert: Any\n    expr: queue > 0\n"));
    node.series.row("queue", 1, 0, 7);
    node.evaluate();
    assert_eq!(node.affected(None), (None, None));
    // Values of 300 and 301 share a bucket.
    let mut node = StoredNode::new(&own("").replace("250ms", "300.5ms").replace("0.5", "0.9"));
    node.series.durations("latency", &[], &[300.0, 301.0, 300.0, 900.0, 900.0]);
    node.evaluate();
    assert_eq!(node.affected(None), (None, None));
}

#[test]
fn the_threshold_of_an_own_rule_is_that_of_its_first_criterion_of_a_distribution() {
    let of = |keys: &str| {
        let rule = format!("[[rule]]\nname = \"Slow\"\n{keys}");
        let found = RuleThreshold::of_rule(group(&rule).rules()[0].rule());
        found.map(|found| (found.selector, found.threshold))
    };
    let criteria = "[[rule.criteria]]\nseverity = 1\nabsent = true\n[[rule.criteria]]\n\
                    severity = 2\nquantile = 0.99\nabove = \"250 ms\"\n";
    let expected = Some(("latency".to_owned(), "250ms".to_owned()));
    assert_eq!(of(&format!("select = \"latency\"\n{criteria}")), expected);
    let fast = "[[rule.criteria]]\nseverity = 2\nquantile = 0.99\nbelow = \"250ms\"\n";
    assert_eq!(of(&format!("select = \"latency\"\n{fast}")), None);
    let query = "[[rule.criteria]]\nseverity = 2\nabove = 3\n";
    assert_eq!(of(&format!("promql = \"up\"\n{query}")), None);
}

/// Numbers of values of the columns of the only alert, and its threshold.
#[track_caller]
fn columns(node: &StoredNode, grid: TimeGrid) -> Option<(Vec<u64>, Option<f64>)> {
    let rule = &node.group.rules()[0];
    let (_, alert) = rule.alerts().alerts().next().expect("an alert");
    let series = AffectedRule::of(rule.rule()).series(alert)?;
    let view = node.series.store.view().expect("a view");
    let found = series.columns(&StoreSource::new(&view), grid).expect("an answer")?;
    Some((found.values.iter().map(|values| values.count()).collect(), found.threshold))
}

#[test]
fn the_columns_of_an_alert_have_the_values_of_its_stream_and_the_threshold_in_their_unit() {
    let mut node = StoredNode::new(&own("by = ['zone']"));
    let start = node.series.now() - MINUTE;
    node.series.durations("latency", &[("zone", "a")], &SLOW);
    node.series.pass(2 * MINUTE);
    node.series.durations("latency", &[("zone", "a"), ("host", "1")], &SLOW);
    node.series.durations("latency", &[("zone", "a"), ("host", "2")], &SLOW);
    node.series.durations("latency", &[("zone", "b")], &[10.0]);
    node.evaluate();
    let grid = TimeGrid { start, step: MINUTE, columns: 4 };
    assert_eq!(columns(&node, grid), Some((vec![4, 0, 8, 0], Some(250.0))));
}

#[test]
fn an_alert_without_a_threshold_has_columns_and_one_of_other_series_has_none() {
    let criterion = "quantile = 0.5\nabove = '250ms'";
    let mut node =
        StoredNode::new(&own("").replace(criterion, "statistic = 'count'\nat_least = 1"));
    node.series.durations("latency", &[], &SLOW);
    node.evaluate();
    let start = node.series.now() - MINUTE;
    let grid = TimeGrid { start, step: MINUTE, columns: 1 };
    assert_eq!(columns(&node, grid), Some((vec![4], None)));
    assert_eq!(node.affected(None), (None, None));
    let rule = own("").replace("latency", "queue").replace(criterion, "above = 1");
    let mut node = StoredNode::new(&rule);
    node.series.row("queue", 1, 0, 9);
    node.evaluate();
    assert_eq!(columns(&node, grid), None);
}

/// The label that the SLO of a metric names told users apart in the overview, but not in the alerts
/// of other rules about that metric.
#[test]
fn series_of_an_alert_are_within_a_metric_and_its_labels() {
    let mut node = StoredNode::new(&own("by = ['zone']"));
    node.series.durations("latency", &[("zone", "a")], &SLOW);
    node.evaluate();
    let rule = &node.group.rules()[0];
    let (_, alert) = rule.alerts().alerts().next().expect("an alert");
    let series = AffectedRule::of(rule.rule()).series(alert).expect("series");
    let is_within = |metric: &str, labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        series.is_within(metric, &labels.collect())
    };
    assert!(is_within("latency", &[]) && is_within("latency", &[("zone", "a")]));
    assert!(!is_within("latency", &[("zone", "b")]) && !is_within("latency", &[("host", "a")]));
    assert!(!is_within("requests", &[]));
}
