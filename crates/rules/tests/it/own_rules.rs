//! Own rules on a simulated clock: criteria, severities, missing data, absence, dependencies.

use model::Selector;
use rules::{AcknowledgementChange, Alert, AlertAcknowledgement, AlertState, RuleHealth};

use crate::harness::{MINUTE, SECOND, START, SimulatedNode, notices};

const LATENCY: &str = "latency{instance=\"a\"}";

/// Rule `Slow` of the series `latency`, with these keys.
fn slow(keys: &str) -> String {
    format!("[[rule]]\nname = \"Slow\"\nselect = \"latency\"\nwindow = \"1min\"\n{keys}")
}

fn criterion(keys: &str) -> String {
    format!("[[rule.criteria]]\n{keys}\n")
}

fn only_alert(node: &SimulatedNode, rule: usize) -> Option<Alert> {
    let mut alerts = node.group.rules()[rule].alerts().alerts();
    let (_, alert) = alerts.find(|(_, alert)| alert.state != AlertState::Inactive)?;
    Some(alert.clone())
}

/// Evaluates a rule of the series once. Returns the severity, 0 if no alert fires.
#[track_caller]
fn check(criteria: &str, record: impl Fn(&mut SimulatedNode), expected: u8) {
    let mut node = SimulatedNode::new(&slow(criteria));
    record(&mut node);
    node.step();
    let health = node.group.rules()[0].health();
    assert_eq!(*health, RuleHealth::Ok, "{criteria}");
    let severity = only_alert(&node, 0).and_then(|alert| alert.severity());
    assert_eq!(severity.unwrap_or(0), expected, "{criteria}");
}

fn values(values: &[f64]) -> impl Fn(&mut SimulatedNode) {
    move |node| node.record(LATENCY, values.iter().copied())
}

fn gauge(numbers: &[f64]) -> impl Fn(&mut SimulatedNode) {
    move |node| {
        let end_ns = node.time_ns;
        for (at, number) in numbers.iter().rev().enumerate() {
            node.time_ns = end_ns - at as i64 * 10 * SECOND;
            node.set(LATENCY, *number);
        }
        node.time_ns = end_ns;
    }
}

#[test]
fn the_first_criterion_that_holds_gives_the_severity() {
    let both = criterion("severity = 1\nquantile = 0.99\nabove = 1000")
        + &criterion("severity = 3\nquantile = 0.5\nabove = 100");
    check(&both, values(&[10.0; 100]), 0);
    check(&both, values(&[200.0; 100]), 3);
    check(&both, values(&[2000.0; 100]), 1);
}

#[test]
fn requests_above_a_threshold_are_counted() {
    let mixed: Vec<f64> = (0..100).map(|n| if n < 7 { 500.0 } else { 10.0 }).collect();
    let count = |least| criterion(&format!("severity = 2\ncount_above = 250\nat_least = {least}"));
    check(&count(7), values(&mixed), 2);
    check(&count(8), values(&mixed), 0);
    let share = |text| criterion(&format!("severity = 2\nshare_above = 250\nabove = {text}"));
    check(&share("\"6.9%\""), values(&mixed), 2);
    check(&share("0.07"), values(&mixed), 0);
}

#[test]
fn a_value_that_is_not_certainly_above_or_below_meets_no_criterion() {
    // Values of 300 and 301 share a bucket: nobody knows which are above 300.5.
    let near = [300.0, 301.0, 300.0, 301.0];
    check(&criterion("severity = 1\ncount_above = 300.5\nat_least = 1"), values(&near), 0);
    check(&criterion("severity = 1\ncount_above = 300.5\nat_most = 3"), values(&near), 0);
    check(&criterion("severity = 1\ncount_above = 100\nat_least = 4"), values(&near), 1);
}

#[test]
fn statistics_of_distributions() {
    let statistic = |keys: &str| criterion(&format!("severity = 4\nstatistic = {keys}"));
    let recorded = [1.0, 2.0, 3.0, 6.0];
    check(&statistic("\"count\"\nequals = 4"), values(&recorded), 4);
    check(&statistic("\"min\"\nequals = 1"), values(&recorded), 4);
    check(&statistic("\"max\"\nat_least = 6"), values(&recorded), 4);
    check(&statistic("\"mean\"\nbelow = 3.5"), values(&recorded), 4);
    // 4 requests in a minute.
    check(&statistic("\"rate\"\nat_most = 0.07"), values(&recorded), 4);
    check(&statistic("\"rate\"\nat_most = 0.06"), values(&recorded), 0);
}

#[test]
fn statistics_of_gauges() {
    let numbers = [1.0, 5.0, 3.0];
    check(&criterion("severity = 5\nequals = 3"), gauge(&numbers), 5);
    check(&criterion("severity = 5\nstatistic = \"min\"\nat_most = 1"), gauge(&numbers), 5);
    check(&criterion("severity = 5\nstatistic = \"max\"\nabove = 5"), gauge(&numbers), 0);
    check(&criterion("severity = 5\nstatistic = \"rate\"\nabove = 0.03"), gauge(&numbers), 5);
    check(&criterion("severity = 5\nstatistic = \"mean\"\nequals = 3"), gauge(&numbers), 5);
}

#[test]
fn age_of_the_oldest_operation_in_flight_is_that_of_the_newest_row() {
    let keys = criterion("severity = 2\noldest_in_flight = 30");
    check(&keys, gauge(&[40.0, 5.0]), 0);
    check(&keys, gauge(&[5.0, 29.0]), 0);
    check(&keys, gauge(&[5.0, 30.0]), 2);
    // The program has ended: nothing is in flight any more.
    let ended = |node: &mut SimulatedNode| {
        let end_ns = node.time_ns;
        node.time_ns = end_ns - 10 * SECOND;
        node.set(LATENCY, 40.0);
        node.time_ns = end_ns;
        node.end(LATENCY);
    };
    check(&keys, ended, 0);
    let mut node = SimulatedNode::new(&slow(&keys));
    node.record(LATENCY, [40.0]);
    node.step();
    let RuleHealth::Err(cause) = node.group.rules()[0].health() else { panic!("no error") };
    assert!(cause.contains("the stream is no gauge"), "{cause}");
}

#[test]
fn a_query_is_compared_by_its_value() {
    let rule = "[[rule]]\nname = \"Busy\"\npromql = \"sum by (instance) (load)\"\n\
                [[rule.criteria]]\nseverity = 2\nabove = 3\n";
    let mut node = SimulatedNode::new(rule);
    node.set("load{instance=\"a\",cpu=\"0\"}", 2.0);
    node.set("load{instance=\"a\",cpu=\"1\"}", 2.0);
    node.set("load{instance=\"b\",cpu=\"1\"}", 2.0);
    node.step();
    assert_eq!(node.states(0), "firing a");
    assert_eq!(node.group.rules()[0].stream_count(), 2);
    // The result lacks the stream: it does not resolve.
    node.end("load{instance=\"a\",cpu=\"0\"}");
    node.end("load{instance=\"a\",cpu=\"1\"}");
    node.step();
    assert_eq!(node.states(0), "firing? a");
}

#[test]
fn a_rise_and_a_fall_of_the_severity_are_notices_of_the_same_alert() {
    let rule = slow(
        &(criterion("severity = 1\nstatistic = \"max\"\nabove = 100")
            + &criterion("severity = 3\nstatistic = \"max\"\nabove = 10")),
    )
    .replace("1min", "10s");
    let mut node = SimulatedNode::new(&rule);
    let mut seen = Vec::new();
    for value in [20.0, 200.0, 200.0, 20.0, 5.0] {
        node.record(LATENCY, [value]);
        let result = node.step();
        let alert = only_alert(&node, 0);
        let severity = alert.as_ref().and_then(Alert::severity);
        let transition = alert.map(|alert| alert.transition);
        seen.push((notices(&result), severity, transition));
    }
    // The number of a change is its time in milliseconds.
    let interval_ns = node.group.interval_ns();
    let step_ms = |step: i64| Some(((START + step * interval_ns) / 1_000_000).unsigned_abs());
    let firing = |severity, step| ("firing a".to_owned(), Some(severity), step_ms(step));
    let expected = [
        firing(3, 0),
        firing(1, 1),
        (String::new(), Some(1), step_ms(1)),
        firing(3, 3),
        ("resolved a".to_owned(), None, None),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_acknowledgement_ends_when_the_alert_becomes_worse_and_stays_when_it_becomes_better() {
    let rule = slow(
        &(criterion("severity = 1\nstatistic = \"max\"\nabove = 100")
            + &criterion("severity = 3\nstatistic = \"max\"\nabove = 10")),
    );
    let mut node = SimulatedNode::new(&rule);
    let acknowledged_after = |node: &mut SimulatedNode, value: f64| {
        // The window is a minute.
        node.time_ns += 2 * MINUTE;
        node.set(LATENCY, value);
        node.step();
        only_alert(node, 0).is_some_and(|alert| alert.acknowledgements.current().is_some())
    };
    assert!(!acknowledged_after(&mut node, 50.0));
    let acknowledge = |node: &mut SimulatedNode| {
        let acknowledgement = AlertAcknowledgement {
            at_ns: node.time_ns,
            until_ns: node.time_ns + 60 * MINUTE,
            by: "ann".to_owned(),
            note: String::new(),
            origin: None,
        };
        let (labels, _) = node.group.rules()[0].alerts().alerts().next().unwrap();
        let labels = labels.clone();
        let change = AcknowledgementChange::Set(acknowledgement);
        assert!(node.group.change_acknowledgements(0, &labels, &change));
    };
    acknowledge(&mut node);
    assert!(acknowledged_after(&mut node, 60.0));
    assert!(!acknowledged_after(&mut node, 500.0), "it is worse");
    acknowledge(&mut node);
    assert!(acknowledged_after(&mut node, 50.0), "it is better");
    assert!(acknowledged_after(&mut node, 500.0), "it is as bad as when it was acknowledged");
}

/// The primary site lists the acknowledgement until the alert is worse there, too.
#[test]
fn an_acknowledgement_of_the_primary_site_that_ended_is_known_to_have_ended_after_a_restart() {
    let rule = slow(
        &(criterion("severity = 1\nstatistic = \"max\"\nabove = 100")
            + &criterion("severity = 3\nstatistic = \"max\"\nabove = 10")),
    );
    let mut node = SimulatedNode::new(&rule);
    node.set(LATENCY, 50.0);
    node.step();
    let at_ns = node.time_ns;
    let change = AcknowledgementChange::Set(AlertAcknowledgement {
        at_ns,
        until_ns: at_ns + 60 * MINUTE,
        by: "ann".to_owned(),
        note: String::new(),
        origin: Some("http://north:7717".to_owned()),
    });
    let labels = node.group.rules()[0].alerts().alerts().next().unwrap().0.clone();
    assert!(node.group.change_acknowledgements(0, &labels, &change));
    node.time_ns += 2 * MINUTE;
    node.set(LATENCY, 500.0);
    node.step();
    node.restart(&rule, 0);
    let known = only_alert(&node, 0).expect("it fires").acknowledgements.clone();
    assert_eq!((known.current(), known.has_ended(at_ns)), (None, true));
    assert!(!known.has_ended(at_ns + 1));
}

#[test]
fn a_severity_survives_a_restart() {
    let rule = slow(&criterion("severity = 3\nstatistic = \"max\"\nabove = 10"));
    let mut node = SimulatedNode::new(&rule);
    node.record(LATENCY, [20.0]);
    node.step();
    let before = only_alert(&node, 0).expect("an alert");
    node.restart(&rule, 0);
    assert_eq!(only_alert(&node, 0), Some(before));
}

#[test]
fn each_stream_has_its_own_alert_and_by_merges_streams() {
    let keys = criterion("severity = 2\ncount_above = 100\nat_least = 2");
    let record = |node: &mut SimulatedNode| {
        node.record("latency{instance=\"a\",zone=\"x\"}", [500.0, 500.0]);
        node.record("latency{instance=\"b\",zone=\"y\"}", [500.0, 1.0]);
        node.record("latency{instance=\"c\",zone=\"y\"}", [500.0, 1.0]);
    };
    let mut node = SimulatedNode::new(&slow(&keys));
    record(&mut node);
    node.step();
    assert_eq!(node.states(0), "firing a");
    let mut node = SimulatedNode::new(&slow(&format!("by = [\"zone\"]\n{keys}")));
    record(&mut node);
    node.step();
    let zones = node.group.rules()[0].alerts().alerts();
    let zones: Vec<String> = zones.map(|(labels, _)| labels.get("zone").to_owned()).collect();
    assert_eq!(zones, ["x", "y"]);
    let mut node = SimulatedNode::new(&slow(&format!("by = []\nmin_count = 7\n{keys}")));
    record(&mut node);
    node.step();
    assert_eq!(node.states(0), "");
}

#[test]
fn the_times_of_an_own_rule_are_those_of_all_rules() {
    let keys = format!(
        "for = \"30s\"\nkeep_firing_for = \"20s\"\n{}",
        criterion("severity = 2\nstatistic = \"max\"\nabove = 10")
    );
    let mut node = SimulatedNode::new(&slow(&keys).replace("1min", "10s"));
    let mut states = Vec::new();
    for value in [20.0, 20.0, 20.0, 20.0, 1.0, 1.0, 1.0] {
        node.record(LATENCY, [value]);
        node.step();
        states.push(node.states(0).replace(" a", ""));
    }
    let expected = ["pending", "pending", "pending", "firing", "firing", "firing", "inactive"];
    assert_eq!(states, expected);
}

#[test]
fn missing_data_and_failed_queries_hold_an_alert() {
    let keys = criterion("severity = 2\nstatistic = \"max\"\nabove = 10");
    let rule = slow(&format!("absence = false\n{keys}"));
    let mut node = SimulatedNode::new(&rule.replace("1min", "10s"));
    node.record(LATENCY, [20.0]);
    node.step();
    assert_eq!(node.states(0), "firing a");
    for _ in 0..100 {
        assert_eq!(notices(&node.step()).replace("firing a", ""), "");
        assert_eq!(node.states(0), "firing? a");
    }
    node.is_failing.set(true);
    node.step();
    assert_eq!(node.states(0), "firing? a");
    node.is_failing.set(false);
    // Too few values say nothing, either; then the value is known.
    node.record(LATENCY, [1.0]);
    assert_eq!(notices(&node.step()), "resolved a");
}

#[test]
fn a_window_with_too_few_values_changes_nothing() {
    let keys =
        format!("min_count = 3\n{}", criterion("severity = 2\nstatistic = \"max\"\nabove = 10"));
    let mut node = SimulatedNode::new(&slow(&keys).replace("1min", "10s"));
    let mut states = Vec::new();
    for recorded in [&[20.0, 20.0][..], &[20.0; 3], &[1.0, 1.0], &[1.0; 3]] {
        node.record(LATENCY, recorded.iter().copied());
        node.step();
        states.push(node.states(0));
    }
    assert_eq!(states, ["", "firing a", "firing? a", "inactive a"]);
}

#[test]
fn a_stream_is_absent_after_five_of_its_intervals() {
    let rule = slow(&criterion("severity = 2\nabsent = true"));
    let mut node = SimulatedNode::new(&rule);
    for _ in 0..12 {
        node.record(LATENCY, [1.0]);
        node.step();
    }
    assert_eq!(node.states(0), "");
    // The newest row is one interval old.
    let mut fired_after = 0;
    while node.states(0).is_empty() {
        node.step();
        fired_after += 1;
    }
    assert_eq!((fired_after, node.states(0).as_str()), (5, "firing a"));
    // A restart neither resolves it, nor is the time of the outage that of the sender.
    node.restart(&rule, 10 * MINUTE);
    for _ in 0..10 {
        let result = node.step();
        assert!(!notices(&result).contains("resolved"));
        assert!(node.states(0).starts_with("firing"), "{}", node.states(0));
    }
    node.record(LATENCY, [1.0]);
    assert_eq!(notices(&node.step()), "resolved a");
}

#[test]
fn senders_get_time_to_come_back_after_a_restart() {
    let rule = slow(&criterion("severity = 2\nabsent = true\nafter = \"1min\""));
    let mut node = SimulatedNode::new(&rule);
    node.record(LATENCY, [1.0]);
    node.step();
    node.restart(&rule, 10 * MINUTE);
    for _ in 0..6 {
        node.step();
        assert_eq!(node.states(0), "");
    }
    node.step();
    assert_eq!(node.states(0), "firing a");
}

#[test]
fn an_absence_that_begins_again_without_a_row_is_another_alert() {
    let rule = |after: &str, for_text: &str| {
        let keys = format!("severity = 2\nabsent = true\nafter = \"{after}\"");
        slow(&format!("for = \"{for_text}\"\n{}", criterion(&keys)))
    };
    let step_until = |node: &mut SimulatedNode, state: &str| {
        let is_reached = (0..400).any(|_| {
            node.step();
            node.states(0) == state
        });
        assert!(is_reached, "{state:?}: {}", node.states(0));
    };
    for has_pending in [false, true] {
        let mut node = SimulatedNode::new(&rule("2min", "0s"));
        for _ in 0..3 {
            node.record(LATENCY, [1.0]);
            node.step();
        }
        step_until(&mut node, "firing a");
        let began_ns = only_alert(&node, 0).expect("an alert").began_ns;
        assert!(began_ns < node.time_ns - 2 * MINUTE, "the time of the row");
        node.reload(&rule("1h", "0s"));
        step_until(&mut node, "inactive a");
        if has_pending {
            // Another alert takes the place of the one that contacts know, and does not fire.
            node.reload(&rule("2min", "10min"));
            step_until(&mut node, "pending a");
            node.reload(&rule("1h", "0s"));
        }
        step_until(&mut node, "");
        step_until(&mut node, "firing a");
        let again_ns = only_alert(&node, 0).expect("an alert").began_ns;
        assert!(again_ns > began_ns, "{has_pending}: {began_ns} {again_ns}");
    }
}

#[test]
fn late_rows_raise_no_alert_about_the_past() {
    let rule = slow(&criterion("severity = 2\nstatistic = \"max\"\nabove = 10"));
    let mut node = SimulatedNode::new(&rule);
    let now_ns = node.time_ns;
    // After a cut of an hour the rows of that hour arrive.
    for minute in 2..60 {
        node.time_ns = now_ns - minute * MINUTE;
        node.record(LATENCY, [1000.0]);
    }
    node.time_ns = now_ns;
    node.step();
    assert_eq!(node.states(0), "");
    // A row that is late by less than the window is evaluated.
    node.time_ns = now_ns - 30 * SECOND;
    node.record(LATENCY, [1000.0]);
    node.time_ns = now_ns;
    node.step();
    assert_eq!(node.states(0), "firing a");
}

#[test]
fn a_stream_that_cannot_be_measured_does_not_stop_the_others() {
    let rule = slow(&criterion("severity = 2\nquantile = 0.5\nabove = 10"));
    let mut node = SimulatedNode::new(&rule);
    node.record(LATENCY, [20.0]);
    node.set("latency{instance=\"b\"}", 20.0);
    node.step();
    assert_eq!(node.states(0), "firing a");
    let RuleHealth::Err(cause) = node.group.rules()[0].health() else { panic!("no error") };
    assert!(cause.starts_with("stream {instance=\"b\"}: cannot measure a gauge"), "{cause}");
}

#[test]
fn a_child_is_held_while_its_parent_fires_at_severity_1() {
    let rules = "[[rule]]\nname = \"Child\"\nselect = \"errors\"\nwindow = \"10s\"\n\
                 parent = \"Down\"\n[[rule.criteria]]\nseverity = 2\nabove = 0\n\
                 [[rule]]\nname = \"Down\"\nselect = \"down\"\nwindow = \"10s\"\n\
                 [[rule.criteria]]\nseverity = 1\nequals = 1\n\
                 [[rule.criteria]]\nseverity = 2\nequals = 2\n";
    let mut node = SimulatedNode::new(rules);
    let set = |node: &mut SimulatedNode, down: [f64; 2], errors: [f64; 2]| {
        for (at, host) in ["a", "b"].into_iter().enumerate() {
            node.set(&format!("down{{instance=\"{host}\"}}"), down[at]);
            node.set(&format!("errors{{instance=\"{host}\",path=\"/\"}}"), errors[at]);
        }
        node.step();
        let child = node.group.rules().iter().position(|rule| rule.rule().name == "Child");
        node.states(child.expect("the rule"))
    };
    // No new alert of host a, whose parent fires.
    assert_eq!(set(&mut node, [1.0, 0.0], [5.0, 5.0]), "firing b");
    // Severity 2 holds nothing.
    assert_eq!(set(&mut node, [2.0, 0.0], [5.0, 5.0]), "firing a, firing b");
    // It neither resolves while it is held.
    assert_eq!(set(&mut node, [1.0, 0.0], [0.0, 0.0]), "firing a, inactive b");
    assert_eq!(set(&mut node, [0.0, 0.0], [0.0, 0.0]), "inactive a, inactive b");
}

#[test]
fn formulas_read_the_states_of_other_rules() {
    let rule = |name: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nselect = \"{}\"\nwindow = \"10s\"\n\
             [[rule.criteria]]\nseverity = 3\nequals = 1\n",
            name.to_lowercase()
        )
    };
    let formula = |keys: &str| {
        format!("[[rule]]\nname = \"F\"\nformula = \"(A and B) and not C\"\nseverity = 1\n{keys}")
    };
    let rules = |keys: &str| formula(keys) + &rule("A") + &rule("B") + &rule("C");
    let set = |node: &mut SimulatedNode, series: &[(&str, f64)]| {
        for (name, value) in series {
            node.set(&format!("{name}{{instance=\"x\"}}"), *value);
        }
        node.step();
        node.states(3).trim().to_owned()
    };
    let mut node = SimulatedNode::new(&rules(""));
    assert_eq!(set(&mut node, &[("a", 1.0), ("b", 0.0), ("c", 0.0)]), "");
    assert_eq!(set(&mut node, &[("a", 1.0), ("b", 1.0), ("c", 0.0)]), "firing");
    let alert = only_alert(&node, 3).expect("an alert");
    assert_eq!(alert.severity(), Some(1));
    // Unknown operands hold it.
    assert_eq!(set(&mut node, &[]), "firing?");
    assert_eq!(set(&mut node, &[("a", 1.0), ("b", 1.0), ("c", 1.0)]), "inactive");
    let mut node = SimulatedNode::new(&rules("by = [\"instance\"]\n"));
    assert_eq!(set(&mut node, &[("a", 1.0), ("b", 1.0), ("c", 0.0)]), "firing x");
}

#[test]
fn rules_whose_rows_arrived_are_evaluated_with_those_that_read_them() {
    let rules = "[[rule]]\nname = \"A\"\nselect = \"a\"\n[[rule.criteria]]\nseverity = 3\n\
                 equals = 1\n[[rule]]\nname = \"B\"\nselect = \"a\"\n[[rule.criteria]]\n\
                 severity = 3\nequals = 1\n[[rule]]\nname = \"F\"\nformula = \"A\"\n";
    let mut node = SimulatedNode::new(rules);
    node.set("a{instance=\"x\"}", 1.0);
    let result = node.evaluate_arrived(&[0]);
    let states = |node: &SimulatedNode| [0, 1, 2].map(|rule| node.states(rule).trim().to_owned());
    assert_eq!(states(&node), ["firing x", "", "firing"]);
    assert_eq!(result.missed_iterations, 0);
    node.evaluate();
    assert_eq!(states(&node), ["firing x", "firing x", "firing"]);
}

#[test]
fn what_calls_for_an_evaluation_is_what_the_rule_reads() {
    let criteria = "[[rule.criteria]]\nseverity = 3\nequals = 1\n";
    let rules = format!(
        "[[rule]]\nname = \"S\"\nselect = \"a\"\n{criteria}\
         [[rule]]\nname = \"P\"\npromql = \"max_over_time(a[1m]) + on() b\"\n{criteria}\
         [[rule]]\nname = \"C\"\ncaql = 'find(\"c\") | stats:max()'\n{criteria}\
         [[rule]]\nname = \"E\"\npromql = \"{{x=~'.+'}}\"\n{criteria}\
         [[rule]]\nname = \"F\"\nformula = \"S\"\n"
    );
    let mut node = SimulatedNode::new(&rules);
    let read = |node: &SimulatedNode| {
        let rules = node.group.rules().iter();
        rules.map(|rule| rule.selectors().map(<[_]>::len)).collect::<Vec<_>>()
    };
    assert_eq!(read(&node), [Some(1), None, None, None, Some(0)]);
    // Two series with the same labels but for the name: the query fails, and has read.
    ["a{x=\"1\"}", "b{x=\"1\"}"].iter().for_each(|series| node.set(series, 1.0));
    node.is_failing.set(true);
    node.evaluate();
    assert_eq!(read(&node), [Some(1), None, None, None, Some(0)]);
    node.is_failing.set(false);
    node.evaluate();
    assert_eq!(read(&node), [Some(1), Some(2), Some(1), Some(1), Some(0)]);
    let name = |name: &str| Selector::parse(name).expect("a name");
    let selectors = node.group.rules()[1].selectors().expect("known");
    assert!([name("a"), name("b")].iter().all(|read| selectors.contains(read)), "{selectors:?}");
}
