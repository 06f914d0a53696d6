//! The four cases of Prometheus' alert generator compliance suite on a running server, over the
//! interfaces that the suite looks at: `/api/v1/rules`, `/api/v1/alerts`, the series `ALERTS`, and
//! what a receiver gets. `compliance.rs` of `rules` has the states at each evaluation, on a
//! simulated clock.
//!
//! A group is evaluated each 200 ms. The data changes when a state was seen, and times are compared
//! with those of stored samples, so that a slow machine changes nothing.

use serde_json::Value;

use super::alerts::{ReceivedMessages, start_with, with_rules};
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};

const INTERVAL_MS: i64 = 200;

/// A server with rules, and what its contact got.
struct AlertGenerator {
    server: ServerProcess,
    received: ReceivedMessages,
}

/// Samples of `ALERTS` of an alert: time in milliseconds, and state.
struct AlertSamples(Vec<(i64, &'static str)>);

fn rule(name: &str, expression: &str, delay: &str) -> String {
    format!(
        "  - alert: {name}\n    expr: {expression}\n    for: {delay}\n\
         \x20   labels: {{suite: generator}}\n    annotations:\n\
         \x20     description: \"{name} is {{{{ $value }}}}\"\n\
         \x20     all: \"{{{{ query `count(m)` | first | value }}}} series\"\n"
    )
}

impl AlertGenerator {
    fn start(rules: &str) -> AlertGenerator {
        let (address, received) = ReceivedMessages::listen();
        let settings = format!(
            "[alerts]\nrule_files = [\"rules*.yaml\"]\n[[contact]]\nname = \"hook\"\nkind = \
             \"webhook\"\nurl = \"http://{address}/\"\n[route]\nreceiver = \"hook\"\ngroup_by = \
             [\"...\"]\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\n"
        );
        let server = start_with(&settings, &with_rules(rules));
        AlertGenerator { server, received }
    }

    #[track_caller]
    fn set(&self, variant: &str, value: u32) {
        let body = format!("m,variant={variant} value={value}");
        let path = "/api/v2/write";
        let sent = request_at(self.server.address(), "POST", path, &[], body.as_bytes());
        let sent = sent.expect("it answers");
        assert!(sent.status < 300, "{}", sent.text());
    }

    /// Active alert of `/api/v1/alerts`.
    fn active(&self, name: &str, variant: &str) -> Option<Value> {
        let alerts = self.server.get("/api/v1/alerts").json();
        let alerts = alerts["data"]["alerts"].as_array().expect("a list").clone();
        alerts.into_iter().find(|alert| is_of(alert, name, variant))
    }

    /// State of the rule of a name in `/api/v1/rules`, and its alert.
    fn rule(&self, name: &str, variant: &str) -> (String, Option<Value>) {
        let rules = self.server.get("/api/v1/rules").json();
        let rules = rules["data"]["groups"][0]["rules"].as_array().expect("a list").clone();
        let rule = rules.into_iter().find(|rule| rule["name"] == name).expect("a rule");
        let mut alerts = rule["alerts"].as_array().expect("a list").iter();
        let alert = alerts.find(|alert| is_of(alert, name, variant)).cloned();
        (rule["state"].as_str().expect("a state").to_owned(), alert)
    }

    /// Waits until an alert has a state, `inactive` if there is none, and all interfaces but the
    /// receiver say so.
    #[track_caller]
    fn wait_for(&self, name: &str, variant: &str, state: &str) {
        let is_in_state = |alert: &Option<Value>| match alert {
            Some(alert) => alert["state"] == state,
            None => state == "inactive",
        };
        wait_until(&format!("{name} {variant} is {state}"), || {
            let (active, (_, of_rule)) = (self.active(name, variant), self.rule(name, variant));
            let is_sampled = match state {
                "inactive" => self.is_ended(name, variant),
                state => self.samples(name, variant).0.iter().any(|(_, found)| *found == state),
            };
            is_in_state(&active) && is_in_state(&of_rule) && is_sampled
        });
    }

    /// Whether the end of its series `ALERTS` is stored, after all its samples.
    fn is_ended(&self, name: &str, variant: &str) -> bool {
        let labels = format!("alertname=\"{name}\",variant=\"{variant}\"");
        let found = self.server.get(&format!("/api/v1/query?query=ALERTS{{{labels}}}")).json();
        found["data"]["result"].as_array().is_some_and(Vec::is_empty)
    }

    fn samples(&self, name: &str, variant: &str) -> AlertSamples {
        let mut all = Vec::new();
        for state in ["pending", "firing"] {
            let labels = format!("alertname=\"{name}\",alertstate=\"{state}\"");
            let path =
                format!("/api/v1/query?query=ALERTS{{{labels},variant=\"{variant}\"}}%5B1h%5D");
            let found = self.server.get(&path).json();
            let values = found["data"]["result"][0]["values"].as_array().cloned();
            for value in values.unwrap_or_default() {
                assert_eq!(value[1], "1", "{value}");
                let time_ms = (value[0].as_f64().expect("a time") * 1e3).round() as i64;
                all.push((time_ms, state));
            }
        }
        all.sort_unstable();
        AlertSamples(all)
    }

    /// States that the receiver got of an alert, in order.
    fn told(&self, name: &str, variant: &str) -> Vec<String> {
        let of_alert = |message: &Value| {
            let alert = &message["alerts"][0];
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            is_of(alert, name, variant).then(|| {
                // An end is later than a begin; a firing alert has none.
                let (starts, ends) = (text(&alert["startsAt"]), text(&alert["endsAt"]));
                let status = text(&alert["status"]);
                assert_eq!(ends > starts, status == "resolved", "{alert:#}");
                status
            })
        };
        self.received.all().iter().filter_map(of_alert).collect()
    }

    #[track_caller]
    fn wait_for_told(&self, name: &str, variant: &str, expected: &[&str]) {
        wait_until(&format!("{name} {variant} is told: {expected:?}"), || {
            self.told(name, variant) == expected
        });
    }
}

fn is_of(alert: &Value, name: &str, variant: &str) -> bool {
    alert["labels"]["alertname"] == name && alert["labels"]["variant"] == variant
}

impl AlertSamples {
    fn of(&self, state: &str) -> Vec<i64> {
        let of_state = self.0.iter().filter(|(_, found)| *found == state);
        of_state.map(|(time_ms, _)| *time_ms).collect()
    }

    /// Each state and how often it was sampled, in order; a state that returns is another one.
    fn states(&self) -> Vec<&'static str> {
        let mut states: Vec<&'static str> = self.0.iter().map(|(_, state)| *state).collect();
        states.dedup();
        states
    }

    /// Checks that the first pending alert fires at the first evaluation at which it is old enough.
    #[track_caller]
    fn check_delay(&self, for_ms: i64) {
        let (pending, firing) = (self.of("pending"), self.of("firing"));
        let (first, fired) = (pending[0], firing[0]);
        assert!(fired - first >= for_ms, "fires after {} ms", fired - first);
        let before = pending.iter().take_while(|time_ms| **time_ms < fired).last().expect("one");
        assert!(before - first < for_ms, "still pending after {} ms", before - first);
        let is_scheduled = |(time_ms, _): &(i64, _)| (time_ms - first) % INTERVAL_MS == 0;
        assert!(self.0.iter().all(is_scheduled), "{:?}", self.0);
    }
}

/// An alert is pending, fires and is resolved, beside another rule of the same series whose alert
/// fires twice.
#[test]
fn pending_and_firing_and_resolved() {
    let rules = rule("Simple", "m > 5", "1s") + &rule("Twice", "m > 8", "400ms");
    let mut generator = AlertGenerator::start(&rules);
    generator.set("a", 6);
    generator.wait_for("Simple", "a", "pending");
    assert_eq!(generator.told("Simple", "a"), [""; 0]);
    generator.wait_for("Simple", "a", "firing");
    generator.wait_for_told("Simple", "a", &["firing"]);
    let active = generator.active("Simple", "a").expect("it fires");
    let (state, of_rule) = generator.rule("Simple", "a");
    assert_eq!((state.as_str(), &of_rule), ("firing", &Some(active.clone())));
    assert_eq!(active["annotations"]["description"], "Simple is 6");
    assert_eq!(
        (&active["labels"]["suite"], &active["value"]),
        (&"generator".into(), &"6e+00".into())
    );
    assert_eq!(generator.rule("Twice", "a"), ("inactive".to_owned(), None));
    for told in [&["firing"][..], &["firing", "resolved", "firing"]] {
        generator.set("a", 9);
        generator.wait_for_told("Twice", "a", told);
        generator.wait_for("Twice", "a", "firing");
        generator.set("a", 6);
        generator.wait_for("Twice", "a", "inactive");
        generator.wait_for_told("Twice", "a", &[told, &["resolved"]].concat());
    }
    generator.wait_for("Simple", "a", "firing");
    generator.set("a", 0);
    generator.wait_for("Simple", "a", "inactive");
    generator.wait_for_told("Simple", "a", &["firing", "resolved"]);
    let (simple, twice) = (generator.samples("Simple", "a"), generator.samples("Twice", "a"));
    assert_eq!(simple.states(), ["pending", "firing"]);
    simple.check_delay(1_000);
    assert_eq!(twice.states(), ["pending", "firing", "pending", "firing"]);
    twice.check_delay(400);
    generator.server.stop();
}

/// Alerts that never fire: pending for too short a time, or not even that.
#[test]
fn pending_and_resolved_always_inactive() {
    let rules = rule("Short", "m{variant=\"a\"} > 5", "1h")
        + &rule("Never", "m{variant=\"a\"} > 9", "1s")
        + &rule("Marker", "m{variant=\"b\"} > 5", "0s");
    let mut generator = AlertGenerator::start(&rules);
    for _ in 0..2 {
        generator.set("a", 6);
        generator.wait_for("Short", "a", "pending");
        assert_eq!(generator.rule("Short", "a").0, "pending");
        generator.set("a", 0);
        generator.wait_for("Short", "a", "inactive");
    }
    generator.set("b", 6);
    generator.wait_for_told("Marker", "b", &["firing"]);
    for name in ["Short", "Never"] {
        assert_eq!(generator.rule(name, "a"), ("inactive".to_owned(), None));
        assert_eq!(generator.told(name, "a"), [""; 0]);
    }
    assert_eq!(generator.samples("Short", "a").states(), ["pending"]);
    assert_eq!(generator.samples("Never", "a").states(), [""; 0]);
    generator.server.stop();
}

/// An alert without `for` fires at once; with one below the interval, at the second evaluation. A
/// template queries.
#[test]
fn zero_for_and_small_for() {
    let rules = rule("Zero", "m > 5", "0s") + &rule("Small", "m > 5", "10ms");
    let mut generator = AlertGenerator::start(&rules);
    generator.set("b", 0);
    generator.set("a", 6);
    for name in ["Zero", "Small"] {
        generator.wait_for(name, "a", "firing");
        generator.wait_for_told(name, "a", &["firing"]);
    }
    let annotations = generator.active("Zero", "a").expect("it fires")["annotations"].clone();
    assert_eq!(annotations["all"], "2 series", "{annotations:#}");
    wait_until("the next evaluation is stored", || {
        generator.samples("Zero", "a").of("firing").len() > 1
    });
    generator.set("a", 0);
    for name in ["Zero", "Small"] {
        generator.wait_for(name, "a", "inactive");
        generator.wait_for_told(name, "a", &["firing", "resolved"]);
    }
    let (zero, small) = (generator.samples("Zero", "a"), generator.samples("Small", "a"));
    assert_eq!((zero.states(), small.states()), (vec!["firing"], vec!["pending", "firing"]));
    assert_eq!(small.of("pending"), zero.of("firing")[..1]);
    assert_eq!(small.of("firing"), zero.of("firing")[1..]);
    generator.server.stop();
}

/// Series appear one after the other, each with an alert of its own; a rule is chained on the
/// `ALERTS` of the rule before it and sees them in the same iteration.
#[test]
fn new_alerts_and_order_of_rules() {
    let chained = "ALERTS{alertname=\"Each\",alertstate=\"firing\"}";
    let rules = rule("Each", "m > 5", "400ms") + &rule("Chained", chained, "0s");
    let mut generator = AlertGenerator::start(&rules);
    let variants = ["a", "b", "c"];
    for variant in variants {
        generator.set(variant, 6);
        for name in ["Each", "Chained"] {
            generator.wait_for(name, variant, "firing");
            generator.wait_for_told(name, variant, &["firing"]);
        }
    }
    for variant in variants {
        generator.set(variant, 0);
        for name in ["Each", "Chained"] {
            generator.wait_for(name, variant, "inactive");
            generator.wait_for_told(name, variant, &["firing", "resolved"]);
        }
    }
    let mut begins = Vec::new();
    for variant in variants {
        let (each, chained) =
            (generator.samples("Each", variant), generator.samples("Chained", variant));
        assert_eq!(each.states(), ["pending", "firing"]);
        each.check_delay(400);
        assert_eq!(chained.states(), ["firing"]);
        assert_eq!(chained.of("firing"), each.of("firing"), "in the same iterations");
        begins.push(each.of("firing")[0]);
    }
    assert!(begins.is_sorted(), "{begins:?}");
    generator.server.stop();
}
