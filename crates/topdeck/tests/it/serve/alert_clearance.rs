//! Clearances on a running server whose disk fails halfway, with kill -9.

use serde_json::{Value, json};

use super::alerts::{alerts, send, start, with_rules};
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};

/// An alert that holds its state because its data ends.
const HELD: &str = "  - alert: Held\n    expr: last_over_time(depth[2s]) > 5\n    annotations:\n\
                    \x20     topdeck_missing_data: hold\n";

#[track_caller]
fn post(server: &ServerProcess, path: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let response = request_at(server.address(), "POST", path, &[], body.as_bytes());
    let response = response.expect("it answers");
    (response.status, response.text())
}

/// Fingerprint of the listed alert of a name; `None` if there is none.
fn fingerprint(server: &ServerProcess, name: &str) -> Option<String> {
    let all = alerts(server)["alerts"].as_array().cloned().unwrap_or_default();
    let alert = all.into_iter().find(|alert| alert["name"] == name)?;
    Some(alert["fingerprint"].as_str()?.to_owned())
}

#[test]
fn a_clearance_that_fails_halfway_says_what_is_cleared_and_a_repetition_clears_the_rest() {
    let mut server = start(&with_rules(HELD));
    send(&server, 7.5);
    let outside = json!([{"labels": {"alertname": "Outside", "host": "a"}}]);
    assert_eq!(post(&server, "/api/v2/alerts", &outside).0, 200);
    wait_until("the data is gone", || {
        let all = alerts(&server)["alerts"].as_array().cloned().unwrap_or_default();
        all.iter().any(|alert| !alert["unknown_since_ns"].is_null())
    });
    // After a start the file of alerts from outside is replaced by the first change.
    server.kill();
    let blocked = server.dir.path("data/received-alerts.new");
    std::fs::create_dir(&blocked).expect("a directory");
    server.start();
    let held = fingerprint(&server, "Held").expect("it holds its state");
    let other = fingerprint(&server, "Outside").expect("it fires");
    let clear = json!({"matchers": ["host=a"], "author": "ann"});
    let (status, answer) = post(&server, "/v1/alerts/clear", &clear);
    assert_eq!(status, 503, "{answer}");
    let told = format!(
        "; changed: {held} (alerts of rules); unchanged: {other} (alerts from other programs); \
         repeat the request to change the rest"
    );
    assert!(answer.contains("cannot store changes of alerts from other programs: "), "{answer}");
    assert!(answer.contains(&told), "{answer}");
    let listed = |server: &ServerProcess| {
        ["Held", "Outside"].map(|name| fingerprint(server, name).is_some())
    };
    assert_eq!(listed(&server), [false, true]);
    let history = server.get("/v1/alerts/history?event=resolved").json();
    assert_eq!(history["history"].as_array().map(Vec::len), Some(1), "{history:#}");
    // Again: nothing is left to be cleared but what cannot be.
    let (status, answer) = post(&server, "/v1/alerts/clear", &clear);
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("; nothing is changed; retry"), "{answer}");
    // What was not cleared is what a restart finds.
    server.kill();
    server.start();
    assert_eq!(listed(&server), [false, true]);
    std::fs::remove_dir(&blocked).expect("removed");
    let (status, answer) = post(&server, "/v1/alerts/clear", &clear);
    server.kill();
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(&other) && !answer.contains(&held), "{answer}");
    server.start();
    assert_eq!(listed(&server), [false, false]);
    assert_eq!(post(&server, "/v1/alerts/clear", &clear).0, 404);
    server.stop();
}
