//! What is easily got wrong about rules of Prometheus, one test each.

use std::sync::Arc;

use hist::Histogram;
use query::{FloatHistogram, StepValue};
use rules::RuleHealth;

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, labels, notices, with_rules, writes};

fn down_rule(settings: &str) -> String {
    with_rules(&format!("  - alert: Down\n    expr: up == 0\n{settings}"))
}

/// States after each evaluation, 30 s apart: `1` the element exists, `0` it does not, `e` the query
/// fails.
#[track_caller]
fn check(settings: &str, elements: &str, expected: &[&str]) {
    let mut node = SimulatedNode::new(&down_rule(settings));
    let mut found = Vec::new();
    for element in elements.chars() {
        node.is_failing.set(element == 'e');
        match element {
            '1' => node.set("up{instance=\"a\"}", 0.0),
            '0' => node.set("up{instance=\"a\"}", 1.0),
            _ => {}
        }
        node.step();
        found.push(node.states(0));
    }
    assert_eq!(found, expected, "{settings} {elements}");
}

#[test]
fn an_alert_fires_after_for() {
    check("    for: 1m\n", "0111", &["", "pending a", "pending a", "firing a"]);
}

#[test]
fn an_alert_without_for_fires_at_once() {
    check("", "1", &["firing a"]);
}

#[test]
fn an_alert_with_for_below_the_interval_fires_at_the_second_evaluation() {
    check("    for: 1s\n", "11", &["pending a", "firing a"]);
}

#[test]
fn a_pending_alert_without_element_is_deleted_and_starts_again() {
    let expected = ["pending a", "pending a", "", "pending a", "pending a", "firing a"];
    check("    for: 1m\n", "110111", &expected);
}

#[test]
fn an_alert_keeps_firing_for_the_time_that_the_rule_says() {
    let firing = "firing a";
    // Counted from the first evaluation without the element; a hit in between starts it again.
    check("    keep_firing_for: 1m\n", "1000", &[firing, firing, firing, "inactive a"]);
    let expected = [firing, firing, firing, firing, firing, firing, "inactive a"];
    check("    keep_firing_for: 1m\n", "1001000", &expected);
}

#[test]
fn a_query_error_leaves_all_states() {
    let expected = ["pending a", "pending a", "pending a", "firing a", "firing a", "inactive a"];
    check("    for: 90s\n", "1ee1e0", &expected);
}

#[test]
fn a_resolved_alert_is_sent_again_for_fifteen_minutes() {
    let mut node = SimulatedNode::new(&down_rule(""));
    node.set("up{instance=\"a\"}", 0.0);
    assert_eq!(notices(&node.step()), "firing a");
    let resolved_ns = node.time_ns;
    let mut sent_after_s = Vec::new();
    for _ in 0..40 {
        node.set("up{instance=\"a\"}", 1.0);
        let after_s = (node.time_ns - resolved_ns) / SECOND;
        let result = node.step();
        for (_, notice) in &result.notices {
            assert_eq!(notice.ends_at_ns(), Some(resolved_ns));
            assert_eq!(notice.alert.fired_at_ns, Some(START));
            sent_after_s.push(after_s);
        }
    }
    assert_eq!(sent_after_s, (0..=10).map(|n| n * 90).collect::<Vec<_>>());
    assert_eq!(node.states(0), "");
}

#[test]
fn a_firing_alert_is_sent_again_once_more_than_the_resend_delay_has_passed() {
    let mut node = SimulatedNode::new(&down_rule(""));
    let mut sent_after_s = Vec::new();
    for _ in 0..8 {
        node.set("up{instance=\"a\"}", 0.0);
        let time_ns = node.time_ns;
        let result = node.step();
        for (_, notice) in &result.notices {
            // The receiver waits for 4 times the larger of interval and resend delay.
            assert_eq!(notice.ends_at_ns(), Some(time_ns + 4 * MINUTE));
            sent_after_s.push((time_ns - START) / SECOND);
        }
    }
    assert_eq!(sent_after_s, [0, 90, 180]);
}

#[test]
fn a_query_error_sends_nothing_again() {
    let mut node = SimulatedNode::new(&down_rule(""));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    node.is_failing.set(true);
    for _ in 0..10 {
        let result = node.step();
        assert_eq!((notices(&result).as_str(), writes(&result).as_str()), ("", ""));
    }
    assert_eq!(
        *node.group.rules()[0].health(),
        RuleHealth::Err("the store is not available".to_owned())
    );
}

#[test]
fn an_alert_is_told_by_labels_without_the_metric_name() {
    let rules = "  - alert: Down\n    expr: up == 0\n    labels:\n      severity: page\n      \
                 instance: \"\"\n      zone: zone-{{ $labels.zone }}\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\", zone=\"z\"}", 0.0);
    let result = node.step();
    let (_, notice) = &result.notices[0];
    // An empty label of the rule removes that of the element.
    assert_eq!(notice.labels.to_string(), r#"{alertname="Down", severity="page", zone="zone-z"}"#);
}

#[test]
fn two_elements_with_the_same_labels_fail_the_whole_rule() {
    let rules = "  - alert: Down\n    expr: up == 0\n    labels:\n      instance: all\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert_eq!(node.states(0), "firing all");
    node.set("up{instance=\"a\"}", 0.0);
    node.set("up{instance=\"b\"}", 0.0);
    assert_eq!(writes(&node.step()), "");
    assert_eq!(node.states(0), "firing all");
    let expected = "cannot tell alerts apart: two elements have the labels \
                    {alertname=\"Down\", instance=\"all\"}";
    assert_eq!(*node.group.rules()[0].health(), RuleHealth::Err(expected.to_owned()));
}

#[test]
fn exceeding_the_limit_clears_all_alerts_without_resolving_them() {
    let text = with_rules("  - alert: Down\n    expr: up == 0\n")
        .replace("interval: 30s", "interval: 30s\n  limit: 1");
    let mut node = SimulatedNode::new(&text);
    node.set("up{instance=\"a\"}", 0.0);
    assert_eq!(notices(&node.step()), "firing a");
    node.set("up{instance=\"a\"}", 0.0);
    node.set("up{instance=\"b\"}", 0.0);
    let result = node.step();
    // Neither notices nor stale markers.
    assert_eq!((notices(&result).as_str(), writes(&result).as_str()), ("", ""));
    assert_eq!(node.states(0), "");
    let expected = "limit of 1 alerts (limit) exceeded (2); raise it or narrow the expression";
    assert_eq!(*node.group.rules()[0].health(), RuleHealth::Err(expected.to_owned()));
}

#[test]
fn a_recording_rule_beyond_the_limit_writes_nothing() {
    let text = with_rules("  - record: down\n    expr: up == 0\n")
        .replace("interval: 30s", "interval: 30s\n  limit: 1");
    let mut node = SimulatedNode::new(&text);
    node.set("up{instance=\"a\"}", 0.0);
    assert_eq!(writes(&node.step()), "down{instance=\"a\"} 0\n");
    node.set("up{instance=\"b\"}", 0.0);
    assert_eq!(writes(&node.step()), "");
}

#[test]
fn a_raised_for_makes_a_firing_alert_pending_again() {
    let mut node = SimulatedNode::new(&down_rule("    for: 30s\n"));
    for _ in 0..2 {
        node.set("up{instance=\"a\"}", 0.0);
        node.step();
    }
    assert_eq!(node.states(0), "firing a");
    node.reload(&down_rule("    for: 2m\n"));
    node.set("up{instance=\"a\"}", 0.0);
    let result = node.step();
    assert_eq!((node.states(0).as_str(), notices(&result).as_str()), ("pending a", ""));
    for _ in 0..2 {
        node.set("up{instance=\"a\"}", 0.0);
        node.step();
    }
    assert_eq!(node.states(0), "firing a");
}

#[test]
fn a_reload_keeps_alerts_and_ends_the_series_of_removed_rules() {
    let other = "  - record: other\n    expr: up\n";
    let down = "  - alert: Down\n    expr: up == 0\n    for: 1m\n";
    let mut node = SimulatedNode::new(&with_rules(&format!("{other}{down}")));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    node.reload(&with_rules(down));
    let result = node.step();
    assert_eq!(node.states(0), "pending a");
    assert!(writes(&result).ends_with("other{instance=\"a\"} stale\n"), "{}", writes(&result));
    assert!(!writes(&node.step()).contains("other"));
}

#[test]
fn active_alerts_are_series_that_become_stale() {
    let mut node = SimulatedNode::new(&down_rule("    for: 30s\n"));
    node.set("up{instance=\"a\"}", 0.0);
    let pending = "ALERTS{alertname=\"Down\", alertstate=\"pending\", instance=\"a\"}";
    let firing = "ALERTS{alertname=\"Down\", alertstate=\"firing\", instance=\"a\"}";
    let since = "ALERTS_FOR_STATE{alertname=\"Down\", instance=\"a\"}";
    assert_eq!(writes(&node.step()), format!("{pending} 1\n{since} 1700000000\n"));
    let expected = format!("{firing} 1\n{since} 1700000000\n{pending} stale\n");
    assert_eq!(writes(&node.step()), expected);
    node.set("up{instance=\"a\"}", 1.0);
    assert_eq!(writes(&node.step()), format!("{firing} stale\n{since} stale\n"));
    assert_eq!(writes(&node.step()), "");
}

#[test]
fn later_rules_see_the_results_of_earlier_ones_in_the_same_cycle() {
    let rules = "  - record: down
    expr: up == 0
  - alert: Down
    expr: down == 0
  - alert: Any
    expr: count(ALERTS{alertname=\"Down\",alertstate=\"firing\"}) > 0
  - record: sum_of_two
    expr: count_over_time(down[1m])
";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\"}", 0.0);
    let result = node.step();
    assert_eq!((node.states(1).as_str(), node.states(2).as_str()), ("firing a", "firing "));
    assert!(writes(&result).ends_with("sum_of_two{instance=\"a\"} 1\n"), "{}", writes(&result));
    // The new sample counts along with the stored one.
    let result = node.step();
    assert!(writes(&result).contains("sum_of_two{instance=\"a\"} 2\n"), "{}", writes(&result));
    // The end of a series is seen in the same iteration, too.
    node.set("up{instance=\"a\"}", 1.0);
    node.step();
    assert_eq!((node.states(1).as_str(), node.states(2).as_str()), ("inactive a", "inactive "));
}

#[test]
fn iterations_that_were_skipped_are_counted() {
    let mut node = SimulatedNode::new(&down_rule(""));
    node.step();
    node.time_ns += 3 * 30 * SECOND;
    assert_eq!(node.step().missed_iterations, 3);
    assert_eq!(node.step().missed_iterations, 0);
    assert_eq!(node.group.missed_iterations(), 3);
    assert_eq!(node.group.last_evaluation_ns(), Some(START + 5 * 30 * SECOND));
}

#[test]
fn evaluation_times_are_a_grid_with_an_offset_of_the_group() {
    let node = SimulatedNode::new(&down_rule(""));
    let slot = node.group.scheduled_time_before(START);
    assert!(slot <= START && START < slot + 30 * SECOND);
    assert_eq!(node.group.scheduled_time_before(slot), slot);
    assert_eq!(node.group.scheduled_time_before(slot - 1), slot - 30 * SECOND);
    assert_eq!(node.group.scheduled_time_before(slot + 30 * SECOND), slot + 30 * SECOND);
    let other = SimulatedNode::new(&down_rule("").replace("name: g", "name: h"));
    assert_ne!(other.group.scheduled_time_before(START), slot);
}

#[test]
fn a_query_offset_moves_expressions_and_samples_into_the_past() {
    let text = with_rules("  - record: copy\n    expr: up\n  - alert: Down\n    expr: up == 0\n")
        .replace("interval: 30s", "interval: 30s\n  query_offset: 1m");
    let mut node = SimulatedNode::new(&text);
    node.set("up{instance=\"a\"}", 0.0);
    assert_eq!(writes(&node.step()), "");
    node.time_ns = START + MINUTE;
    let result = node.step();
    assert!(result.writes.iter().all(|write| write.time_ns == START), "{:?}", result.writes);
    assert_eq!(result.writes.len(), 3);
    // The alert itself is active since the evaluation.
    assert_eq!(result.notices[0].1.alert.active_at_ns, START + MINUTE);
}

#[test]
fn a_histogram_has_the_value_zero_and_prints_in_templates() {
    let rules = "  - alert: Slow\n    expr: latency\n    annotations:\n      v: \"{{ $value }}\"\n\
                 \x20 - record: copy\n    expr: latency\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    let mut latencies = Histogram::default();
    latencies.record(17.0);
    let histogram = FloatHistogram::from(&hist::Mixture::from(latencies));
    let value = StepValue::Histogram(Arc::new(histogram));
    node.series.push(&labels("latency{instance=\"a\"}"), node.time_ns, value);
    let result = node.step();
    let (_, notice) = &result.notices[0];
    assert_eq!(notice.alert.value, 0.0);
    assert!(notice.alert.annotations["v"].starts_with("{count:1, sum:17, "), "{notice:?}");
    assert!(writes(&result).ends_with("copy{instance=\"a\"} histogram\n"), "{}", writes(&result));
}

#[test]
fn a_template_that_fails_becomes_its_error_and_loses_no_alert() {
    let rules = "  - alert: Down\n    expr: up == 0\n    annotations:\n      \
                 a: \"{{ index .Labels 1 }}\"\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\"}", 0.0);
    let result = node.step();
    let (_, notice) = &result.notices[0];
    let cause = "error executing template __alert_Down: template: __alert_Down:1:115: executing \
                 \"__alert_Down\" at <index .Labels 1>: error calling index: value has type int; \
                 should be string";
    let expected = format!("<error expanding template: {cause}>");
    assert_eq!(notice.alert.annotations["a"], expected);
    let expected = format!("cannot expand template \"{{{{ index .Labels 1 }}}}\": {cause}");
    assert_eq!(result.warnings, [expected]);
}

#[test]
fn a_recorded_series_is_stale_once_its_element_is_gone() {
    let mut node = SimulatedNode::new(&with_rules("  - record: copy\n    expr: up > 0\n"));
    node.set("up{instance=\"a\"}", 1.0);
    assert_eq!(writes(&node.step()), "copy{instance=\"a\"} 1\n");
    node.is_failing.set(true);
    assert_eq!(writes(&node.step()), "");
    node.is_failing.set(false);
    node.end("up{instance=\"a\"}");
    assert_eq!(writes(&node.step()), "copy{instance=\"a\"} stale\n");
}

#[test]
fn recorded_series_that_cannot_be_told_apart_fail_the_rule() {
    let rules = "  - record: copy\n    expr: up\n    labels:\n      instance: \"\"\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    node.set("up{instance=\"a\"}", 1.0);
    node.set("up{instance=\"b\"}", 1.0);
    assert_eq!(writes(&node.step()), "");
    let expected = "cannot record series: two elements of the result have the labels copy";
    assert_eq!(*node.group.rules()[0].health(), RuleHealth::Err(expected.to_owned()));
}

#[test]
fn the_first_of_two_rules_that_record_the_same_series_wins() {
    let rules = "  - record: x\n    expr: vector(1)\n  - record: x\n    expr: vector(2)\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    let result = node.step();
    assert_eq!(writes(&result), "x 1\n");
    let expected = "cannot record x of rule \"x\": another rule of the group wrote the series at \
                    the same time";
    assert_eq!(result.warnings, [expected]);
}
