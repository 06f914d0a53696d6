//! Own rules on a running server: evaluation on arrival, severities, kill -9, retirement.
//!
//! The interval is an hour: only the arrival of rows can evaluate a rule within the test.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

const RULES: &str = "interval = \"1h\"\n\n[[rule]]\nname = \"Deep\"\nselect = \"depth\"\n\
                     window = \"1h\"\nnote = \"see {{ $labels.host }}\"\n\n[[rule.criteria]]\n\
                     severity = 1\nabove = 100\n\n[[rule.criteria]]\nseverity = 3\nabove = 5\n";

fn start(rules: &str) -> ServerProcess {
    let mut server = ServerProcess::new("serve", "[alerts]\nrule_files = [\"*.rules.toml\"]\n");
    std::fs::write(server.dir.path("own.rules.toml"), rules).expect("rules are written");
    server.start();
    server
}

/// Sends a value of the gauge `depth` of host `a`.
#[track_caller]
fn send(server: &ServerProcess, value: f64) {
    let body = format!("depth,host=a value={value}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    let sent = sent.expect("it answers");
    assert!(sent.status < 300, "{}", sent.text());
}

/// The only alert; null if there is none.
fn alert(server: &ServerProcess) -> Value {
    server.get("/v1/alerts").json()["alerts"][0].clone()
}

fn url(server: &ServerProcess) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

#[test]
fn arrival_evaluates_a_rule_and_its_severity_survives_a_kill() {
    let mut server = start(RULES);
    send(&server, 7.0);
    wait_until("it fires", || alert(&server)["severity"] == 3);
    let first = alert(&server);
    assert_eq!(first["labels"]["host"], "a", "{first:#}");
    assert_eq!(first["annotations"]["note"], "see a", "{first:#}");
    assert_eq!(first["criterion"]["text"], "value above 5 of depth within 1 h", "{first:#}");
    send(&server, 700.0);
    wait_until("it is worse", || alert(&server)["severity"] == 1);
    server.kill();
    server.start();
    let after = alert(&server);
    assert_eq!((&after["severity"], &after["since_ns"]), (&1.into(), &first["since_ns"]));
    let listed = topdeck(&["rules", "list", "--server", &url(&server)], b"");
    assert_eq!(listed.status, 0, "{}", listed.stderr);
    assert!(listed.stdout.contains("Deep"), "{}", listed.stdout);
    send(&server, 1.0);
    wait_until("it resolves", || alert(&server).is_null());
}

#[test]
fn a_stream_ends_when_it_is_retired() {
    let server = start(RULES);
    send(&server, 7.0);
    wait_until("it fires", || alert(&server)["state"] == "firing");
    let run = topdeck(&["retire", "depth", "--yes", "--server", &url(&server)], b"");
    assert_eq!(run.status, 0, "{}{}", run.stdout, run.stderr);
    wait_until("it resolves", || alert(&server).is_null());
}

#[test]
fn a_bad_own_rule_is_reported_and_the_others_are_evaluated() {
    let rules = format!("{RULES}\n[[rule]]\nname = \"Bad\"\nselekt = \"x\"\n");
    let server = start(&rules);
    send(&server, 7.0);
    wait_until("the other one fires", || alert(&server)["state"] == "firing");
    let problem = ".rules.toml:19:1: error: unknown key \"selekt\"; did you mean \"select\"?";
    let status = server.get("/v1/status").json();
    assert!(status["alerts"]["problems"][0].as_str().is_some_and(|it| it.ends_with(problem)));
    let checked = topdeck(&["check-config", &server.settings().display().to_string()], b"");
    assert_eq!(checked.status, 1);
    assert!(checked.stderr.contains(problem), "{}", checked.stderr);
    let file = server.dir.path("own.rules.toml").display().to_string();
    let checked = topdeck(&["rules", "check", &file], b"");
    assert_eq!(checked.status, 1);
    assert!(checked.stderr.contains(problem), "{}", checked.stderr);
}

const QUERIES: &str = "interval = \"1h\"\n\n[[rule]]\nname = \"Prom\"\n\
                       promql = \"max_over_time(depth[1h])\"\n\n[[rule.criteria]]\n\
                       severity = 1\nabove = 100\n\n[[rule.criteria]]\nseverity = 3\n\
                       above = 5\n\n[[rule]]\nname = \"Caql\"\n\
                       caql = 'find(\"depth\")'\nwindow = \"1h\"\n\n\
                       [[rule.criteria]]\nseverity = 1\nabove = 100\n\n\
                       [[rule.criteria]]\nseverity = 3\nabove = 5\n";

/// Name, host and severity of each alert, in order.
fn alerts(server: &ServerProcess) -> Vec<String> {
    let listed = server.get("/v1/alerts").json();
    let text = |alert: &Value| {
        let label = |name: &str| alert["labels"][name].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", label("alertname"), label("host"), alert["severity"])
    };
    let mut texts: Vec<String> =
        listed["alerts"].as_array().expect("a list").iter().map(text).collect();
    texts.sort();
    texts
}

#[test]
fn arrival_evaluates_the_queries_that_read_the_series() {
    let server = start(QUERIES);
    // Nobody reads these.
    let other = request_at(server.address(), "POST", "/api/v2/write", &[], b"width value=9");
    assert!(other.expect("it answers").status < 300);
    send(&server, 7.0);
    wait_until("both fire", || alerts(&server) == ["Caql a 3", "Prom a 3"]);
    // A late row, of a series that did not exist when the queries were evaluated first.
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let late_ns = (since_epoch - Duration::from_secs(1800)).as_nanos();
    let body = format!("depth,host=b value=700 {late_ns}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    assert!(sent.expect("it answers").status < 300);
    let expected = ["Caql a 3", "Caql b 1", "Prom a 3", "Prom b 1"];
    wait_until("the late row counts", || alerts(&server) == expected);
}
