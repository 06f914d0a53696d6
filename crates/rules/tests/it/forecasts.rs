//! Rules with a forecast on a simulated clock.

use rules::{Alert, AlertState, RuleHealth};

use crate::harness::{MINUTE, SimulatedNode};

const HOUR: i64 = 60 * MINUTE;
const USED: &str = "used{instance=\"a\"}";

/// Rule of a gauge, with the keys of its criterion.
fn rule(criterion: &str) -> String {
    format!(
        "[[rule]]\nname = \"Full\"\nselect = \"used\"\nwindow = \"7d\"\n[[rule.criteria]]\n\
         severity = 2\n{criterion}\n"
    )
}

/// Evaluates the rule after these hours. Returns the alert, if one fires.
#[track_caller]
fn alert_after(criterion: &str, hours: i64, value: impl Fn(i64) -> f64) -> Option<Alert> {
    let mut node = SimulatedNode::new(&rule(criterion));
    let begin_ns = node.time_ns;
    // Three samples in an hour, of which the last one is the highest.
    for sample in 0..hours * 3 {
        node.time_ns = begin_ns + (sample + 1) * 20 * MINUTE;
        let lower = 0.1 * (2 - sample % 3) as f64;
        node.set(USED, value(sample / 3) - lower);
    }
    node.evaluate();
    assert_eq!(*node.group.rules()[0].health(), RuleHealth::Ok);
    let mut alerts = node.group.rules()[0].alerts().alerts();
    alerts.find(|(_, alert)| alert.state == AlertState::Firing).map(|(_, alert)| alert.clone())
}

const WITHIN_2_D: &str = "forecast = { within = \"2d\" }\nat_least = 200";

#[test]
fn gauge_that_fills_up_fires_with_the_time_until_then() {
    let alert = alert_after(WITHIN_2_D, 168, |hour| hour as f64).expect("an alert");
    let matched = alert.matched.expect("the criterion");
    // The simulated clock does not start at a full hour.
    for time_s in [matched.value.lower, matched.value.estimate, matched.value.upper] {
        assert!((30.0..36.0).contains(&(time_s / 3600.0)), "{time_s}");
    }
    assert_eq!(matched.threshold, Some(48.0 * 3600.0));
    assert_eq!(matched.unit, "s");
    // Half as fast: 233 hours.
    assert_eq!(alert_after(WITHIN_2_D, 168, |hour| hour as f64 / 2.0), None);
}

#[test]
fn straight_line_through_a_sawtooth_does_not_fire() {
    // Each day from 0 to 184, by 8 an hour: the line reaches 200 in two hours.
    assert_eq!(alert_after(WITHIN_2_D, 168, |hour| (hour % 24) as f64 * 8.0), None);
    // The rotation of logs has stopped.
    let broken =
        |hour: i64| if hour < 120 { (hour % 24) as f64 } else { (hour - 120) as f64 * 3.0 };
    assert!(alert_after(WITHIN_2_D, 168, broken).is_some());
}

#[test]
fn a_forecast_of_too_few_hours_is_unknown() {
    assert_eq!(alert_after(WITHIN_2_D, 60, |hour| hour as f64 * 3.0), None);
    assert!(alert_after(WITHIN_2_D, 100, |hour| hour as f64).is_none());
    assert!(alert_after(WITHIN_2_D, 100, |hour| hour as f64 * 1.5).is_some());
}

#[test]
fn free_bytes_are_used_up() {
    let criterion = "forecast = { within = \"2d\", chance = \"10%\" }\nat_most = 0";
    assert!(alert_after(criterion, 168, |hour| 200.0 - hour as f64).is_some());
    assert_eq!(alert_after(criterion, 168, |hour| 400.0 - hour as f64), None);
    let text = SimulatedNode::new(&rule(criterion)).group.rules()[0]
        .rule()
        .condition()
        .map(|own| (own.criterion_text(0), own.forecast_event(0), own.forecast_event(1)));
    let expected = "forecast for 2 d with a chance of 10% at most 0 of used within 7 d";
    assert_eq!(text, Some((expected.to_owned(), Some("used up"), None)));
}

#[test]
fn stream_that_is_no_gauge_has_no_forecast() {
    let mut node = SimulatedNode::new(&rule(WITHIN_2_D));
    node.record(USED, [1.0]);
    node.time_ns += HOUR;
    node.evaluate();
    let RuleHealth::Err(cause) = node.group.rules()[0].health() else { panic!("no error") };
    assert_eq!(cause, "stream {instance=\"a\"}: cannot forecast: the stream is no gauge");
}
