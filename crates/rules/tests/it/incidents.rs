//! What went wrong elsewhere, replayed on a simulated clock: each alert fires and ends once.

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, notices, with_rules};

const HOUR: i64 = 60 * MINUTE;

fn down_rule(settings: &str) -> String {
    with_rules(&format!(
        "  - alert: Down\n    expr: up == 0\n{settings}    annotations:\n      \
         topdeck_missing_data: hold\n"
    ))
}

/// Notices of an evaluation in which the series has a value; `None` if it has none.
fn step(node: &mut SimulatedNode, up: Option<f64>) -> String {
    if let Some(up) = up {
        node.set("up{instance=\"a\"}", up);
    }
    notices(&node.step())
}

/// prometheus/alertmanager#2264: an alert was resolved because its series had disappeared.
#[test]
fn a_series_that_disappears_resolves_no_alert() {
    let mut node = SimulatedNode::new(&down_rule(""));
    assert_eq!(step(&mut node, Some(0.0)), "firing a");
    node.end("up{instance=\"a\"}");
    for _ in 0..100 {
        let sent = step(&mut node, None);
        assert!(["", "firing a"].contains(&sent.as_str()), "{sent}");
        assert_eq!(node.states(0), "firing? a");
    }
    assert_eq!(step(&mut node, Some(1.0)), "resolved a");
}

/// prometheus#820, #3376: a reload reset the time for which a condition had held.
#[test]
fn a_reload_within_for_does_not_begin_it_anew() {
    let mut node = SimulatedNode::new(&down_rule("    for: 2m\n"));
    let mut states = Vec::new();
    for evaluation in 0..5 {
        if evaluation == 2 {
            let other = with_rules("  - record: copy\n    expr: up\n");
            let rule = down_rule("    for: 2m\n").replace("hold", "hold\n      summary: new");
            let (_, rule) = rule.split_once("rules:\n").expect("a rule");
            node.reload(&format!("{other}{rule}"));
        }
        step(&mut node, Some(0.0));
        let rule = if evaluation < 2 { 0 } else { 1 };
        states.push(node.states(rule));
    }
    assert_eq!(states, ["pending a", "pending a", "pending a", "pending a", "firing a"]);
    let mut alerts = node.group.rules()[1].alerts().alerts();
    let (_, alert) = alerts.next().expect("an alert");
    assert_eq!((alert.active_at_ns, alert.fired_at_ns), (START, Some(START + 2 * MINUTE)));
    assert_eq!(alert.annotations["summary"], "new");
}

/// A source was cut off for an hour and then sent everything.
#[test]
fn an_hour_of_late_data_raises_no_alert_and_ends_one_once() {
    let mut node = SimulatedNode::new(&down_rule("    for: 1m\n"));
    for _ in 0..4 {
        step(&mut node, Some(0.0));
    }
    assert_eq!(node.states(0), "firing a");
    let cut_ns = node.time_ns;
    while node.time_ns < cut_ns + HOUR {
        let sent = step(&mut node, None);
        assert!(["", "firing a"].contains(&sent.as_str()), "{sent}");
    }
    assert_eq!(node.states(0), "firing? a");
    let now_ns = node.time_ns;
    for minute in 0..60 {
        node.time_ns = cut_ns + minute * MINUTE;
        node.set("up{instance=\"a\"}", 1.0);
        // It was down for half an hour, and nobody could know.
        let was_down = (10..40).contains(&minute);
        node.set("up{instance=\"b\"}", if was_down { 0.0 } else { 1.0 });
    }
    node.time_ns = now_ns;
    assert_eq!(step(&mut node, None), "resolved a");
    for _ in 0..10 {
        let sent = step(&mut node, None);
        assert!(["", "resolved a"].contains(&sent.as_str()), "{sent}");
        assert_eq!(node.states(0), "inactive a");
    }
}

/// A counter begins anew when its process does: that is no burst, and hides none.
#[test]
fn a_counter_that_is_reset_is_no_burst() {
    let rules = "  - alert: Burst\n    expr: increase(requests_total[2m]) > 500\n";
    let mut node = SimulatedNode::new(&with_rules(rules));
    let mut count = 1e6;
    for evaluation in 0..20 {
        // 50 requests in 30 s; the process is restarted twice.
        count = if [8, 9].contains(&evaluation) { 50.0 } else { count + 50.0 };
        node.set("requests_total{instance=\"a\"}", count);
        node.step();
        assert_eq!(node.states(0), "", "evaluation {evaluation}");
    }
    // 600 requests, half of them after a restart.
    for count in [count + 300.0, 300.0] {
        node.set("requests_total{instance=\"a\"}", count);
        node.step();
    }
    assert_eq!(node.states(0), "firing a");
}

/// The wall clock was set by an hour, forward or back.
#[test]
fn a_clock_step_of_an_hour_resolves_no_alert_and_loses_no_end() {
    for step_ns in [HOUR, -HOUR] {
        let mut node = SimulatedNode::new(&down_rule("    for: 1m\n"));
        for _ in 0..3 {
            step(&mut node, Some(0.0));
        }
        assert_eq!(node.states(0), "firing a");
        node.time_ns += step_ns;
        for _ in 0..10 {
            let sent = step(&mut node, Some(0.0));
            assert!(["", "firing a"].contains(&sent.as_str()), "{sent}");
            assert_eq!(node.states(0), "firing a");
        }
        assert_eq!(step(&mut node, Some(1.0)), "resolved a");
        // Another alert, which began after the step.
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.push(step(&mut node, Some(0.0)));
        }
        assert_eq!(sent, ["", "", "firing a"]);
        assert_eq!(node.time_ns, START + 17 * 30 * SECOND + step_ns);
    }
}
