//! What Prometheus lacks: restarts without loss, held states, acknowledgements, flapping.

use rules::{AcknowledgementChange, AlertAcknowledgement, AlertClearance, AlertState};

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, labels, notices, with_rules, writes};

const HOUR: i64 = 60 * MINUTE;

fn down_rule(settings: &str) -> String {
    with_rules(&format!("  - alert: Down\n    expr: up == 0\n{settings}"))
}

fn holding_rule(settings: &str) -> String {
    down_rule(&format!("{settings}    annotations:\n      topdeck_missing_data: hold\n"))
}

/// A node in which the alert has been evaluated with its element.
fn node_with_alert(text: &str, evaluations: usize) -> SimulatedNode {
    let mut node = SimulatedNode::new(text);
    for _ in 0..evaluations {
        node.set("up{instance=\"a\"}", 0.0);
        node.step();
    }
    node
}

fn acknowledge(node: &mut SimulatedNode, for_ns: i64) -> bool {
    let acknowledgement = AlertAcknowledgement {
        at_ns: node.time_ns,
        until_ns: node.time_ns + for_ns,
        by: "ann".to_owned(),
        note: "I am on it".to_owned(),
        origin: None,
    };
    let alert = labels("{alertname=\"Down\", instance=\"a\"}");
    node.group.change_acknowledgements(0, &alert, &AcknowledgementChange::Set(acknowledgement))
}

fn is_acknowledged(node: &SimulatedNode) -> bool {
    let mut alerts = node.group.rules()[0].alerts().alerts();
    let acknowledged = alerts.find_map(|(_, alert)| alert.acknowledgements.current());
    acknowledged.is_some_and(|one| node.time_ns < one.until_ns)
}

#[test]
fn a_firing_alert_still_fires_after_a_restart() {
    let text = down_rule("    for: 1m\n");
    let mut node = node_with_alert(&text, 3);
    node.restart(&text, 0);
    assert_eq!(node.states(0), "firing a");
    node.set("up{instance=\"a\"}", 0.0);
    // Neither a second first notice, nor a gap in the series.
    let result = node.step();
    assert_eq!(notices(&result), "");
    assert!(writes(&result).contains("alertstate=\"firing\""), "{}", writes(&result));
}

#[test]
fn a_firing_alert_that_ended_during_a_restart_is_resolved_after_it() {
    let text = down_rule("");
    let mut node = node_with_alert(&text, 1);
    node.restart(&text, HOUR);
    node.set("up{instance=\"a\"}", 1.0);
    let result = node.step();
    assert_eq!(notices(&result), "resolved a");
    assert!(writes(&result).contains("ALERTS_FOR_STATE{alertname=\"Down\", instance=\"a\"} stale"));
}

#[test]
fn time_pending_survives_a_restart_and_excludes_the_outage() {
    let text = down_rule("    for: 2m\n");
    let mut node = node_with_alert(&text, 3);
    // No evaluation was missed.
    node.restart(&text, 0);
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    // Pending for 1 min 30 s; nobody saw the condition hold during the next hour.
    node.restart(&text, HOUR);
    node.set("up{instance=\"a\"}", 0.0);
    node.evaluate();
    assert_eq!(node.states(0), "firing a");
    let mut node = node_with_alert(&text, 3);
    node.restart(&text, HOUR);
    for expected in ["pending a", "firing a"] {
        node.set("up{instance=\"a\"}", 0.0);
        node.step();
        assert_eq!(node.states(0), expected);
    }
}

#[test]
fn keep_firing_for_survives_a_restart_and_excludes_the_outage() {
    let text = down_rule("    keep_firing_for: 1m\n");
    let mut node = node_with_alert(&text, 1);
    node.set("up{instance=\"a\"}", 1.0);
    node.step();
    node.restart(&text, HOUR);
    for expected in ["firing a", "inactive a"] {
        node.set("up{instance=\"a\"}", 1.0);
        node.step();
        assert_eq!(node.states(0), expected);
    }
}

#[test]
fn a_failed_query_after_a_restart_does_not_count_as_outage() {
    let text = down_rule("    for: 90s\n");
    let mut node = node_with_alert(&text, 2);
    node.restart(&text, HOUR);
    node.is_failing.set(true);
    node.step();
    node.is_failing.set(false);
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert_eq!(node.states(0), "firing a");
}

#[test]
fn a_wall_clock_that_was_set_back_resolves_nothing_and_goes_on_sending() {
    let mut node = node_with_alert(&down_rule("    for: 1m\n"), 3);
    assert_eq!(node.states(0), "firing a");
    node.time_ns -= HOUR;
    node.set("up{instance=\"a\"}", 0.0);
    let result = node.step();
    assert_eq!((node.states(0).as_str(), notices(&result).as_str()), ("firing a", "firing a"));
}

#[test]
fn a_wall_clock_that_was_set_back_resolves_what_has_ended() {
    let mut node = node_with_alert(&down_rule(""), 1);
    node.time_ns -= HOUR;
    node.set("up{instance=\"a\"}", 1.0);
    let result = node.step();
    assert_eq!((node.states(0).as_str(), notices(&result).as_str()), ("inactive a", "resolved a"));
}

#[test]
fn missing_data_resolves_an_alert_of_prometheus() {
    let mut node = node_with_alert(&down_rule(""), 1);
    node.end("up{instance=\"a\"}");
    assert_eq!(notices(&node.step()), "resolved a");
}

#[test]
fn missing_data_holds_an_alert_that_asks_for_it() {
    let mut node = node_with_alert(&holding_rule(""), 1);
    node.end("up{instance=\"a\"}");
    for _ in 0..10 {
        let result = node.step();
        assert_eq!(node.states(0), "firing? a");
        assert!(writes(&result).contains("alertstate=\"firing\""), "{}", writes(&result));
    }
    // The setting is not part of the notification.
    let alerts = node.group.rules()[0].alerts();
    assert!(alerts.alerts().all(|(_, alert)| alert.annotations.is_empty()));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert_eq!(node.states(0), "firing a");
    node.end("up{instance=\"a\"}");
    node.step();
    node.set("up{instance=\"a\"}", 1.0);
    assert_eq!(notices(&node.step()), "resolved a");
}

/// Number of the last change of the only alert, and when it was reported unknown.
fn last_change(node: &SimulatedNode) -> (u64, Option<i64>) {
    let mut alerts = node.group.rules()[0].alerts().alerts();
    let (_, alert) = alerts.next().unwrap();
    (alert.transition, alert.unknown_reported_at_ns)
}

#[test]
fn that_a_firing_alert_stays_unknown_is_a_change_of_state_and_so_is_its_end() {
    let text = holding_rule("");
    let mut node = node_with_alert(&text, 1);
    let fired = last_change(&node);
    node.end("up{instance=\"a\"}");
    // Evaluations are 30 s apart: five of them.
    for _ in 0..5 {
        node.step();
        assert_eq!(last_change(&node), fired);
    }
    node.restart(&text, 0);
    assert_eq!(last_change(&node), fired);
    let unknown_ns = node.time_ns;
    node.step();
    let unknown = last_change(&node);
    assert_eq!(unknown, ((unknown_ns / 1_000_000) as u64, Some(unknown_ns)));
    node.restart(&text, 0);
    node.step();
    assert_eq!(last_change(&node), unknown, "once, also across a restart");
    node.set("up{instance=\"a\"}", 0.0);
    let known_ns = node.time_ns;
    node.step();
    assert_eq!(last_change(&node), ((known_ns / 1_000_000) as u64, None));
}

#[test]
fn a_query_that_fails_for_long_is_a_change_of_state_and_one_that_fails_once_is_none() {
    let mut node = node_with_alert(&holding_rule(""), 1);
    let fired = last_change(&node);
    node.is_failing.set(true);
    node.step();
    node.is_failing.set(false);
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert_eq!(last_change(&node), fired);
    node.is_failing.set(true);
    for _ in 0..6 {
        node.step();
    }
    let unknown = last_change(&node);
    assert!(unknown.0 > fired.0 && unknown.1.is_some(), "{unknown:?}");
    node.step();
    assert_eq!(last_change(&node), unknown);
}

#[test]
fn who_acknowledged_an_alert_is_not_told_that_it_is_unknown() {
    let mut node = node_with_alert(&holding_rule(""), 1);
    assert!(acknowledge(&mut node, HOUR));
    let acknowledged = last_change(&node);
    node.end("up{instance=\"a\"}");
    for _ in 0..10 {
        node.step();
    }
    assert_eq!(last_change(&node), acknowledged);
}

#[test]
fn a_held_alert_is_sent_again_so_that_the_receiver_does_not_resolve_it() {
    let mut node = node_with_alert(&holding_rule(""), 1);
    node.is_failing.set(true);
    let mut sent = Vec::new();
    for _ in 0..7 {
        let result = node.step();
        assert_eq!(node.states(0), "firing? a");
        sent.push(notices(&result));
    }
    assert_eq!(sent, ["", "", "firing a", "", "", "firing a", ""]);
}

#[test]
fn a_pending_alert_without_data_is_held_and_does_not_fire() {
    let mut node = node_with_alert(&holding_rule("    for: 1m\n"), 1);
    node.end("up{instance=\"a\"}");
    for _ in 0..5 {
        node.step();
        assert_eq!(node.states(0), "pending? a");
    }
    node.set("up{instance=\"a\"}", 1.0);
    node.step();
    assert_eq!(node.states(0), "");
}

#[test]
fn an_acknowledgement_ends_at_its_expiry() {
    let text = down_rule("");
    let mut node = node_with_alert(&text, 1);
    assert!(acknowledge(&mut node, MINUTE));
    assert!(is_acknowledged(&node));
    node.restart(&text, 30 * SECOND);
    assert!(is_acknowledged(&node), "it survives a restart");
    node.time_ns += 30 * SECOND;
    assert!(!is_acknowledged(&node));
}

#[test]
fn an_acknowledgement_ends_when_the_alert_resolves() {
    let mut node = node_with_alert(&down_rule(""), 1);
    assert!(acknowledge(&mut node, HOUR));
    node.set("up{instance=\"a\"}", 1.0);
    node.step();
    assert!(!is_acknowledged(&node));
    assert!(!acknowledge(&mut node, HOUR), "a resolved alert cannot be acknowledged");
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert!(!is_acknowledged(&node), "it fires again");
}

#[test]
fn an_acknowledgement_is_a_change_of_state_and_its_repetition_is_none() {
    let mut node = node_with_alert(&down_rule(""), 1);
    // The alert fired at the start; its number is the time in milliseconds.
    let transition = |node: &SimulatedNode| {
        let mut alerts = node.group.rules()[0].alerts().alerts();
        alerts.next().map(|(_, alert)| alert.transition - START.unsigned_abs() / 1_000_000)
    };
    assert_eq!(transition(&node), Some(0));
    assert!(acknowledge(&mut node, MINUTE) && acknowledge(&mut node, HOUR));
    assert_eq!(transition(&node), Some(1));
    assert_eq!(node.group.next_expiry_ns(), Some(node.time_ns + HOUR));
    // The expiry needs no evaluation, so a query that fails does not prolong it.
    assert!(!node.group.expire_acknowledgements(node.time_ns + HOUR - 1));
    assert!(node.group.expire_acknowledgements(node.time_ns + HOUR));
    assert_eq!((transition(&node), node.group.next_expiry_ns()), (Some(2), None));
    let alert = labels("{alertname=\"Down\", instance=\"a\"}");
    let all = AcknowledgementChange::RemoveAll;
    assert!(acknowledge(&mut node, HOUR) && node.group.change_acknowledgements(0, &alert, &all));
    assert!(node.group.change_acknowledgements(0, &alert, &all), "again, without effect");
    assert_eq!(transition(&node), Some(4));
}

#[test]
fn an_alert_that_becomes_worse_is_not_acknowledged() {
    let rules = "  - alert: Down\n    expr: up == 0\n    labels:\n      severity: '{{ if \
                 $labels.instance }}{{ with query \"worst\" }}page{{ else }}warning{{ end }}\
                 {{ end }}'\n";
    let mut node = node_with_alert(&crate::harness::with_rules(rules), 1);
    let warning = labels("{alertname=\"Down\", instance=\"a\", severity=\"warning\"}");
    let acknowledgement = AlertAcknowledgement {
        at_ns: node.time_ns,
        until_ns: node.time_ns + HOUR,
        by: "ann".to_owned(),
        note: String::new(),
        origin: None,
    };
    let change = AcknowledgementChange::Set(acknowledgement);
    assert!(node.group.change_acknowledgements(0, &warning, &change));
    node.set("worst", 1.0);
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    let alerts = node.group.rules()[0].alerts().alerts();
    let firing: Vec<(String, bool)> = alerts
        .filter(|(_, alert)| alert.state == rules::AlertState::Firing)
        .map(|(labels, alert)| {
            let is_acknowledged = alert.acknowledgements.current().is_some();
            (labels.get("severity").to_owned(), is_acknowledged)
        })
        .collect();
    assert_eq!(firing, [("page".to_owned(), false)]);
}

#[test]
fn an_alert_that_comes_and_goes_is_flapping() {
    let text = down_rule("");
    let mut node = SimulatedNode::new(&text);
    let (mut flapping, mut changes) = (Vec::new(), Vec::new());
    for down in [true, false, true, false, true] {
        node.set("up{instance=\"a\"}", if down { 0.0 } else { 1.0 });
        let result = node.step();
        let alert = labels("{alertname=\"Down\", instance=\"a\"}");
        let counter = node.group.rules()[0].alerts().flap_counter(&alert);
        changes.push(counter.change_count());
        flapping.extend(result.notices.iter().map(|(_, notice)| notice.is_flapping));
        node.restart(&text, 0);
    }
    assert_eq!(changes, [1, 2, 3, 4, 5]);
    assert_eq!(flapping, [false, false, false, true, true]);
}

#[test]
fn each_change_of_state_has_its_own_number() {
    let text = down_rule("");
    let mut node = SimulatedNode::new(&text);
    let mut numbers = Vec::new();
    for up in [0.0, 0.0, 0.0, 0.0, 1.0, 0.0] {
        node.set("up{instance=\"a\"}", up);
        let result = node.step();
        numbers.extend(result.notices.iter().map(|(_, notice)| notice.alert.transition));
        node.restart(&text, 0);
    }
    // Times of the evaluations in milliseconds. The second notice repeats the first.
    let number = |step: u64| START.unsigned_abs() / 1_000_000 + step * 30_000;
    assert_eq!(numbers, [0, 0, 4, 5].map(number));
    // The clock was set back.
    node.time_ns -= HOUR;
    node.set("up{instance=\"a\"}", 1.0);
    let result = node.step();
    assert_eq!(result.notices[0].1.alert.transition, number(5) + 1);
}

#[test]
fn the_state_of_a_rule_is_that_of_its_worst_alert() {
    let mut node = node_with_alert(&down_rule("    for: 30s\n"), 1);
    assert_eq!(node.group.rules()[0].state(), AlertState::Pending);
    node.set("up{instance=\"b\"}", 0.0);
    node.step();
    assert_eq!(node.states(0), "firing a, pending b");
    assert_eq!(node.group.rules()[0].state(), AlertState::Firing);
}

fn clear(node: &mut SimulatedNode) -> bool {
    let (at_ns, by, note) = (node.time_ns, "ann".to_owned(), "it is gone".to_owned());
    let alert = labels("{alertname=\"Down\", instance=\"a\"}");
    node.group.clear_alert(0, &alert, &AlertClearance { at_ns, by, note, origin: None })
}

/// Who cleared the only alert, and the begin of the alert.
fn cleared(node: &SimulatedNode) -> (Option<String>, i64) {
    let (_, alert) = node.group.rules()[0].alerts().alerts().next().expect("an alert");
    let clearance = AlertClearance::of(&alert.annotations, alert.resolved_at_ns.unwrap_or(0));
    (clearance.map(|clearance| clearance.by), alert.began_ns)
}

#[test]
fn an_alert_without_data_that_is_cleared_has_ended_also_after_a_restart() {
    let text = holding_rule("");
    let mut node = node_with_alert(&text, 2);
    node.end("up{instance=\"a\"}");
    for _ in 0..12 {
        node.step();
    }
    assert_eq!(node.states(0), "firing? a");
    assert!(acknowledge(&mut node, HOUR) && clear(&mut node));
    assert_eq!((node.states(0).as_str(), is_acknowledged(&node)), ("inactive a", false));
    assert!(!clear(&mut node), "it has ended");
    node.restart(&text, 0);
    assert_eq!(cleared(&node).0.as_deref(), Some("ann"));
    let result = node.step();
    assert_eq!(notices(&result), "resolved a");
    assert!(writes(&result).contains("ALERTS_FOR_STATE{alertname=\"Down\", instance=\"a\"} stale"));
    assert_eq!(node.states(0), "inactive a");
}

#[test]
fn a_cleared_alert_whose_condition_holds_begins_anew() {
    let mut node = node_with_alert(&down_rule(""), 1);
    let (_, began_ns) = cleared(&node);
    assert!(clear(&mut node));
    node.set("up{instance=\"a\"}", 0.0);
    node.step();
    assert_eq!(node.states(0), "firing a");
    let (by, anew_ns) = cleared(&node);
    assert!(by.is_none() && anew_ns > began_ns, "{anew_ns}");
    // A pending one is gone.
    let mut node = node_with_alert(&down_rule("    for: 10m\n"), 1);
    assert!(clear(&mut node));
    assert_eq!(node.states(0), "");
}
