//! Streams of own rules that fall silent: one alert of the rule, which ends when data returns or
//! somebody retires them.

use query::StoreSource;
use rules::{AffectedRule, AlertState, CriterionMatch, RuleHealth};

use crate::harness::{MINUTE, SECOND, parse};
use crate::stored_node::StoredNode;

/// Rules have an interval of 10 s.
const STEP: i64 = 10 * SECOND;

/// Rule of the gauge `queue` with these keys.
fn rule(keys: &str) -> String {
    format!(
        "[[rule]]\nname = 'Deep'\nselect = 'queue'\nwindow = '1min'\nfor = '2min'\n{keys}\n\
         [[rule.criteria]]\nseverity = 2\nabove = 100\n\
         [[rule.criteria]]\nseverity = 4\nabove = 50\n"
    )
}

/// A node that evaluates a rule each 10 s, and what it told.
struct SilentNode {
    node: StoredNode,
    notices: Vec<String>,
}

impl SilentNode {
    /// Streams of these instances have sent a row each 10 s, with the value 1, for 5 min.
    fn new(rules: &str, instances: &[u8]) -> SilentNode {
        let mut node = SilentNode { node: StoredNode::new(rules), notices: Vec::new() };
        node.run(30, instances);
        assert_eq!(node.absence(), "");
        node
    }

    /// Evaluates some times while some instances send.
    fn run(&mut self, steps: u32, instances: &[u8]) {
        for _ in 0..steps {
            self.node.series.pass(STEP);
            for instance in instances {
                self.node.series.row("queue", *instance, 0, 1);
            }
            self.evaluate();
        }
    }

    fn evaluate(&mut self) {
        let result = self.node.evaluate();
        assert_eq!(*self.node.group.rules()[0].health(), RuleHealth::Ok);
        let new = result.notices.iter().filter(|(_, notice)| {
            notice.alert.fired_at_ns == Some(self.node.series.now())
                || notice.alert.resolved_at_ns == Some(self.node.series.now())
        });
        self.notices.extend(new.map(|(_, notice)| {
            format!("{} {}", notice.alert.state.text(), notice.labels.get("absence"))
        }));
    }

    /// The alert of absent streams: `firing 2, severity 3`, or with `?` if it is unknown.
    fn absence(&self) -> String {
        let alerts = self.node.group.rules()[0].alerts().alerts();
        let mut absences = alerts.filter(|(labels, alert)| {
            labels.get("absence") == "true" && alert.state != AlertState::Inactive
        });
        let Some((_, alert)) = absences.next() else { return String::new() };
        let CriterionMatch { severity, value, .. } =
            alert.matched.as_ref().expect("what was measured");
        let (state, count) = (alert.state.text(), value.estimate);
        let unknown = if alert.is_unknown() { "?" } else { "" };
        format!("{state}{unknown} {count}, severity {severity}")
    }

    /// Steps until the alert fires.
    fn steps_until_absent(&mut self) -> u32 {
        let mut steps = 0;
        while self.absence().is_empty() && steps < 1_000 {
            self.run(1, &[]);
            steps += 1;
        }
        steps
    }
}

#[test]
fn streams_that_fall_silent_are_one_alert_of_the_rule_until_all_return() {
    let mut node = SilentNode::new(&rule(""), &[1, 2, 3]);
    // `for` is of no interest: five intervals are.
    node.run(4, &[3]);
    assert_eq!(node.absence(), "");
    node.run(1, &[3]);
    assert_eq!(node.absence(), "firing 2, severity 4");
    let (labels, alert) = {
        let mut alerts = node.node.group.rules()[0].alerts().alerts();
        alerts.next().expect("an alert")
    };
    assert_eq!(labels.to_string(), "{absence=\"true\", alertname=\"Deep\"}");
    assert_eq!(
        alert.annotations["absent"],
        "2 of 3 streams have no data, such as {instance=\"1\"}, for more than 50 s: the last at \
         2023-11-14 22:18:20Z"
    );
    let condition = node.node.group.rules()[0].rule().condition().expect("an own rule");
    let criterion = alert.matched.as_ref().expect("what was measured").criterion;
    let text = condition.criterion_text(criterion);
    assert_eq!(text, "streams without data for 5 intervals of queue");
    node.run(60, &[3]);
    assert_eq!(node.absence(), "firing 2, severity 4");
    node.run(1, &[2, 3]);
    assert_eq!(node.absence(), "firing 1, severity 4");
    node.run(1, &[1, 2, 3]);
    assert_eq!(node.absence(), "");
    assert_eq!(node.notices, ["firing true", "inactive true"]);
}

#[test]
fn a_source_of_many_streams_that_stops_is_one_notice() {
    let all: Vec<u8> = (0..100).collect();
    let mut node = SilentNode::new(&rule(""), &all);
    node.run(30, &[]);
    assert_eq!(node.absence(), "firing 100, severity 4");
    assert_eq!(node.notices, ["firing true"]);
}

#[test]
fn severity_and_time_can_be_set_and_absence_switched_off() {
    let set = rule("absence = { after = '2min', severity = 1 }");
    let mut node = SilentNode::new(&set, &[1]);
    assert_eq!(node.steps_until_absent(), 12);
    assert_eq!(node.absence(), "firing 1, severity 1");
    let of_file = format!("absence = {{ after = '1min' }}\n{}", rule(""));
    let mut node = SilentNode::new(&of_file, &[1]);
    assert_eq!(node.steps_until_absent(), 6);
    for off in [rule("absence = false"), format!("absence = false\n{}", rule(""))] {
        let mut node = SilentNode::new(&off, &[1]);
        node.run(100, &[]);
        assert_eq!(node.absence(), "");
        // Another rule file ends it.
        let mut node = SilentNode::new(&rule(""), &[1]);
        node.steps_until_absent();
        node.node.restart(&off);
        node.run(1, &[]);
        assert_eq!(node.absence(), "");
    }
    // The rule overrides its file.
    let on = format!("absence = false\n{}", rule("absence = true"));
    assert_eq!(SilentNode::new(&on, &[1]).steps_until_absent(), 5);
    // A criterion says it for each stream.
    let criterion = rule("") + "[[rule.criteria]]\nseverity = 5\nabsent = true\n";
    let mut node = SilentNode::new(&criterion, &[1]);
    node.run(100, &[]);
    assert_eq!(node.absence(), "");
    assert_eq!(node.node.group.rules()[0].state(), AlertState::Firing);
}

#[test]
fn a_restart_neither_raises_nor_resolves_an_absence() {
    let rules = rule("");
    // Somebody was silent before the rule was first evaluated: no news.
    let mut node = SilentNode { node: StoredNode::new(&rules), notices: Vec::new() };
    (0..10).for_each(|instance| node.node.series.row("queue", instance, 20 * MINUTE, 1));
    node.run(100, &[20]);
    assert_eq!(node.absence(), "");
    // Senders have an hour to come back from an outage.
    node.node.restart(&rules);
    node.node.series.pass(60 * MINUTE);
    node.run(29, &[]);
    assert_eq!(node.absence(), "");
    node.run(100, &[20]);
    assert_eq!((node.absence(), node.notices.len()), (String::new(), 0));
    // One that does not come back is absent.
    node.node.restart(&rules);
    node.node.series.pass(60 * MINUTE);
    assert_eq!(node.steps_until_absent(), 361);
    // The absence survives a restart, unknown until senders had their time.
    node.run(360, &[]);
    node.node.restart(&rules);
    node.node.series.pass(48 * 60 * MINUTE);
    // And one that follows before the rule is evaluated.
    node.node.restart(&rules);
    node.run(360, &[]);
    assert_eq!(node.absence(), "firing? 1, severity 4");
    node.run(10, &[]);
    assert_eq!(node.absence(), "firing 1, severity 4");
    node.run(1, &[20]);
    assert_eq!(node.absence(), "");
    assert_eq!(node.notices, ["firing true", "inactive true"]);
}

/// 38 s after a kill and a restart, an absence fired of streams that had ended before the kill:
/// intervals were learned from the rows that were stored before it.
#[test]
fn a_restart_raises_no_absence_of_streams_that_had_ended_before_it() {
    let rules = "[[rule]]\nname = 'Deep'\npromql = 'sum(queue) > 5'\nabsence = true\n\
                 [[rule.criteria]]\nseverity = 3\nabove = 1000\n";
    let mut node = SilentNode { node: StoredNode::new(rules), notices: Vec::new() };
    for age_s in (0..30).rev() {
        node.node.series.row("queue", 1, age_s * SECOND, 1);
    }
    node.evaluate();
    node.node.restart(rules);
    assert_eq!(node.steps_until_absent(), 361);
}

#[test]
fn a_retired_stream_is_not_absent() {
    let mut node = SilentNode::new(&rule(""), &[1, 2]);
    node.node.series.pass(SECOND);
    node.node.series.retire("queue", 1);
    node.run(100, &[2]);
    assert_eq!(node.notices, [""; 0]);
    node.steps_until_absent();
    assert_eq!(node.absence(), "firing 1, severity 4");
    node.run(10, &[]);
    node.node.series.pass(SECOND);
    node.node.series.retire("queue", 2);
    node.run(100, &[]);
    assert_eq!(node.notices, ["firing true", "inactive true"]);
}

#[test]
fn late_rows_after_a_cut_raise_no_stale_absence() {
    // A source that nobody knew delivers an hour of rows, oldest first, and goes on.
    let mut node = SilentNode::new(&rule(""), &[1]);
    for minute in (0..60).rev() {
        node.node.series.pass(STEP);
        node.node.series.row("queue", 1, 0, 1);
        node.node.series.row("queue", 2, minute * MINUTE, 200);
        node.evaluate();
    }
    node.run(100, &[1, 2]);
    assert_eq!(node.notices, [""; 0]);
    // One that was cut off ends its absence by its late rows, and does not begin it again.
    node.run(60, &[1]);
    assert_eq!(node.absence(), "firing 1, severity 4");
    for age in (0..60).rev() {
        node.node.series.pass(SECOND);
        node.node.series.row("queue", 1, 0, 1);
        node.node.series.row("queue", 2, age * SECOND, 1);
        node.evaluate();
    }
    node.run(20, &[1, 2]);
    assert_eq!(node.notices, ["firing true", "inactive true"]);
}

#[test]
fn a_step_of_the_clock_by_an_hour_neither_raises_nor_resolves_an_absence() {
    for step in [60 * MINUTE, -60 * MINUTE] {
        let mut node = SilentNode::new(&rule(""), &[1, 2]);
        node.node.series.pass(step);
        node.run(100, &[1, 2]);
        assert_eq!((node.absence(), node.notices.len()), (String::new(), 0), "{step}");
        node.run(10, &[2]);
        assert_eq!(node.absence(), "firing 1, severity 4", "{step}");
        node.node.series.pass(-step);
        node.run(1, &[2]);
        assert_eq!(node.absence(), "firing? 1, severity 4", "{step}");
        node.run(20, &[2]);
        assert_eq!(node.absence(), "firing 1, severity 4", "{step}");
        node.run(1, &[1, 2]);
        assert_eq!(node.notices, ["firing true", "inactive true"], "{step}");
    }
}

#[test]
fn an_absence_is_no_operand_of_a_formula_and_no_parent() {
    let queue = "[[rule]]\nname = 'Deep'\nselect = 'queue'\nwindow = '1min'\n\
                 [[rule.criteria]]\nseverity = 1\nabove = 100\n";
    let child = "[[rule]]\nname = 'Child'\nselect = 'errors'\nparent = 'Deep'\n\
                 [[rule.criteria]]\nseverity = 2\nstatistic = 'count'\nat_least = 0\n";
    let formula = "[[rule]]\nname = 'Any'\nformula = 'Deep'\n";
    let mut node = SilentNode::new(&format!("{queue}{child}{formula}"), &[1]);
    node.steps_until_absent();
    assert_eq!(node.absence(), "firing 1, severity 1");
    node.node.series.row("errors", 1, SECOND, 1);
    node.run(2, &[]);
    let states: Vec<AlertState> = node.node.group.rules().iter().map(|rule| rule.state()).collect();
    assert_eq!(states, [AlertState::Firing, AlertState::Firing, AlertState::Inactive]);
}

#[test]
fn further_streams_that_fall_silent_are_told() {
    let mut node = SilentNode::new(&rule(""), &[1, 2, 3]);
    node.run(20, &[1, 2]);
    assert_eq!(node.absence(), "firing 1, severity 4");
    let transition = |node: &SilentNode| {
        let alerts = node.node.group.rules()[0].alerts().alerts();
        let found = alerts.filter(|(labels, _)| labels.get("absence") == "true");
        found.map(|(_, alert)| alert.transition).max()
    };
    let before = transition(&node);
    node.run(1, &[1, 2]);
    assert_eq!(transition(&node), before);
    node.run(20, &[1]);
    assert_eq!(node.absence(), "firing 2, severity 4");
    assert!(transition(&node) > before);
}

/// Evaluates some times while some series send.
fn run_series(node: &mut SilentNode, steps: u32, series: &[(&str, u8)]) {
    for _ in 0..steps {
        node.node.series.pass(STEP);
        for (name, instance) in series {
            node.node.series.row(name, *instance, 0, 1);
        }
        node.evaluate();
    }
}

/// The result of the query says nothing: it may be empty because all is well.
#[test]
fn a_metric_of_a_query_that_falls_silent_is_an_absence() {
    let rule = |query: &str, keys: &str| {
        format!(
            "[[rule]]\nname = 'Deep'\n{query}\nwindow = '1min'\n{keys}\n[[rule.criteria]]\n\
             severity = 3\nabove = 1000\n"
        )
    };
    let queries = [
        "promql = 'sum(queue) - sum(errors) > 5'",
        "promql = 'sum(queue{instance!=\"9\"}) - sum(rate(errors[1m]) or errors)'",
        "caql = 'pass{find(\"queue\"), find(\"errors\")} | stats:max()'",
    ];
    for query in queries {
        let start = |keys: &str| {
            let rules = rule(query, keys);
            let mut node = SilentNode { node: StoredNode::new(&rules), notices: Vec::new() };
            run_series(&mut node, 30, &[("queue", 1), ("queue", 2), ("errors", 1)]);
            assert_eq!(node.absence(), "", "{query}");
            node
        };
        let mut node = start("absence = true");
        // Other series of the metric go on.
        run_series(&mut node, 20, &[("queue", 2), ("errors", 1)]);
        assert_eq!(node.absence(), "", "{query}");
        run_series(&mut node, 4, &[("queue", 2)]);
        assert_eq!(node.absence(), "", "{query}");
        run_series(&mut node, 1, &[("queue", 2)]);
        assert_eq!(node.absence(), "firing 1, severity 3", "{query}");
        {
            let mut alerts = node.node.group.rules()[0].alerts().alerts();
            let found = alerts.find(|(labels, _)| labels.get("absence") == "true");
            let (labels, alert) = found.expect("an absence");
            assert_eq!(labels.to_string(), "{absence=\"true\", alertname=\"Deep\"}");
            let text = "1 of 2 metrics of the query have no data, such as errors, for more than 50 \
                        s: the last at 2023-11-14 22:21:40Z";
            assert_eq!(alert.annotations["absent"], text);
        }
        run_series(&mut node, 1, &[("queue", 2), ("errors", 3)]);
        assert_eq!(node.absence(), "", "{query}");
        // One of two series that stopped is retired.
        run_series(&mut node, 10, &[("errors", 1)]);
        assert_eq!(node.absence(), "firing 1, severity 3", "{query}");
        node.node.series.pass(SECOND);
        node.node.series.retire("queue", 1);
        run_series(&mut node, 100, &[("errors", 1)]);
        assert_eq!(node.absence(), "firing 1, severity 3", "{query}");
        node.node.series.pass(SECOND);
        node.node.series.retire("queue", 2);
        run_series(&mut node, 100, &[("errors", 1)]);
        assert_eq!(node.absence(), "", "{query}");
        let mut node = start("");
        run_series(&mut node, 100, &[("queue", 2)]);
        assert_eq!(node.absence(), "", "{query}");
        let mut node = start("absence = { after = '2min', severity = 1 }");
        run_series(&mut node, 12, &[("queue", 2)]);
        assert_eq!(node.absence(), "firing 1, severity 1", "{query}");
    }
    // There may be no alerts.
    let query = rule("promql = 'count(ALERTS) or sum(queue)'", "absence = true");
    let mut node = SilentNode { node: StoredNode::new(&query), notices: Vec::new() };
    run_series(&mut node, 100, &[("queue", 1)]);
    assert_eq!(node.absence(), "");
}

/// Labels and states of all alerts of the first rule.
fn alerts(node: &StoredNode) -> Vec<String> {
    let alerts = node.group.rules()[0].alerts().alerts();
    let mut found: Vec<String> =
        alerts.map(|(labels, alert)| format!("{labels} {}", alert.state.text())).collect();
    found.sort();
    found
}

/// A sender has the label of the alert of absent streams.
#[test]
fn a_stream_with_the_label_of_absences_is_no_absence() {
    for by in ["", "by = ['absence']\n"] {
        let rules = format!(
            "[[rule]]\nname = 'Slow'\nselect = 'latency'\nwindow = '1min'\n{by}\
             [[rule.criteria]]\nseverity = 2\nstatistic = 'max'\nabove = 100\n"
        );
        let mut node = StoredNode::new(&rules);
        let send = |node: &mut StoredNode, count: u32, value: f64| {
            for _ in 0..count {
                node.series.pass(STEP);
                node.series.durations("latency", &[("absence", "true")], &[value]);
                node.evaluate();
                assert_eq!(*node.group.rules()[0].health(), RuleHealth::Ok);
            }
        };
        send(&mut node, 30, 500.0);
        let slow = "{alertname=\"Slow\", exported_absence=\"true\"} firing";
        assert_eq!(alerts(&node), [slow]);
        // It resolves by its values, not by rows that arrive.
        send(&mut node, 6, 500.0);
        assert_eq!(alerts(&node), [slow]);
        // Its requests are found by the labels of its series.
        let rule = node.group.rules()[0].rule();
        let (_, alert) = node.group.rules()[0].alerts().alerts().next().expect("an alert");
        let series = AffectedRule::of(rule).series(alert).expect("a selector");
        let view = node.series.store.view().expect("a view");
        let count = series.count(&StoreSource::new(&view), node.series.now(), None);
        let requests = count.expect("readable").requests.expect("known");
        assert!(requests > 0, "{requests}");
        drop(view);
        for _ in 0..30 {
            node.series.pass(STEP);
            node.evaluate();
        }
        let absent = "{absence=\"true\", alertname=\"Slow\"} firing";
        assert_eq!(alerts(&node), [absent, slow]);
    }
}

/// The rule of a sender that has both labels failed, and none of its streams was watched.
#[test]
fn streams_that_differ_in_labels_of_absences_are_told_apart() {
    let names = ["absence", "exported_absence", "exported_exported_absence"];
    for by in ["", "by = ['absence', 'exported_absence', 'exported_exported_absence']\n"] {
        let mut node = StoredNode::new(&format!(
            "[[rule]]\nname = 'Slow'\nselect = 'latency'\nwindow = '1min'\n{by}\
             [[rule.criteria]]\nseverity = 2\nstatistic = 'max'\nabove = 100\n"
        ));
        node.series.pass(STEP);
        // Each combination of one, two or three labels with one value.
        for present in 1..8u8 {
            let has = |at: &usize| present >> at & 1 == 1;
            let labels = names.iter().enumerate().filter(|(at, _)| has(at));
            let labels: Vec<(&str, &str)> = labels.map(|(_, name)| (*name, "true")).collect();
            node.series.durations("latency", &labels, &[500.0]);
        }
        node.evaluate();
        assert_eq!(*node.group.rules()[0].health(), RuleHealth::Ok);
        let found = alerts(&node);
        assert_eq!(found.len(), 7, "{found:?}");
        let both = "{alertname=\"Slow\", exported_absence=\"true\", \
                    exported_exported_absence=\"true\"} firing";
        assert!(found.iter().any(|alert| alert == both), "{found:?}");
    }
}

#[test]
fn the_label_of_absences_is_reserved() {
    let file = parse(&rule("labels = { absence = 'true' }"));
    let problems: Vec<String> = file.problems.iter().map(ToString::to_string).collect();
    let reserved = "rules.toml:1:1: error: label \"absence\" of rule \"Deep\" is reserved";
    assert_eq!(problems, [reserved]);
}
