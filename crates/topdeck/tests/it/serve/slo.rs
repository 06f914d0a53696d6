//! SLOs on a running server: budget, alert, report with another threshold, reload, kill -9.

use serde_json::Value;

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

const SETTINGS: &str = "[alerts]\nevaluation_interval = \"200ms\"\n[[slo]]\nname = \
                        \"checkout\"\nselector = 'request'\nthreshold = \"250ms\"\nobjective = \
                        \"99%\"\nuser_label = \"session\"\nlabels = { team = \"shop\" \
                        }\n[[slo]]\nname = \"absent\"\nselector = \"nothing\"\nthreshold = \
                        \"1s\"\nobjective = \"99%\"\n";

/// Sends latencies in milliseconds of a session.
#[track_caller]
fn send(server: &ServerProcess, session: &str, latencies: &[f64]) {
    let path = format!("/v1/record?metric=request&unit=ms&label.session={session}");
    let lines: Vec<String> = latencies.iter().map(f64::to_string).collect();
    let sent = request_at(server.address(), "POST", &path, &[], lines.join("\n").as_bytes());
    let sent = sent.expect("it answers");
    assert!(sent.status < 300, "{}", sent.text());
}

fn slo(server: &ServerProcess, parameters: &str) -> Value {
    server.get(&format!("/v1/slo?name=checkout{parameters}")).json()
}

fn state(server: &ServerProcess, name: &str) -> Option<String> {
    let slos = server.get("/v1/slos").json();
    let found = slos["slos"].as_array()?.iter().find(|slo| slo["name"] == name)?.clone();
    found["state"].as_str().map(str::to_owned)
}

#[test]
fn a_budget_that_burns_is_an_alert_and_another_threshold_changes_the_past() {
    let mut server = ServerProcess::new("serve", SETTINGS);
    server.start();
    assert_eq!(state(&server, "absent").as_deref(), Some("unknown"));
    for (session, latency) in [("a", 100.0), ("b", 900.0)] {
        send(&server, session, &[latency; 40]);
    }
    wait_until("its events are stored", || slo(&server, "")["budget"]["events"]["total"] == 80.0);
    let report = slo(&server, "");
    assert_eq!(report["budget"]["events"]["bad"]["estimate"], 40.0, "{report:#}");
    assert_eq!(report["state"], "spent");
    assert_eq!(
        (&report["people"]["affected"]["estimate"], &report["people"]["total"]),
        (&1.0.into(), &2.0.into())
    );
    assert_eq!(report["burn"][0]["is_burning"], true, "{report:#}");
    let other = slo(&server, "&threshold=2s&objective=95%25");
    assert_eq!(other["budget"]["remaining"]["estimate"], 1.0, "{other:#}");
    assert_eq!((&other["state"], &other["objective"]), (&"remaining".into(), &0.95.into()));
    let is_firing = || {
        let alerts = server.get("/v1/alerts").json();
        let all = alerts["alerts"].as_array().expect("a list").clone();
        all.into_iter().find(|alert| alert["labels"]["window"] == "1h")
    };
    wait_until("it fires", || is_firing().is_some_and(|alert| alert["state"] == "firing"));
    let alert = is_firing().expect("it fires");
    for (label, value) in [("slo", "checkout"), ("severity", "page"), ("team", "shop")] {
        assert_eq!(alert["labels"][label], value, "{alert:#}");
    }
    assert!(alert["annotations"]["description"].as_str().is_some_and(|it| it.contains("2 % ×")));
    server.kill();
    server.start();
    let after = server.get("/v1/alerts").json();
    let after = after["alerts"].as_array().expect("a list").iter();
    let since: Vec<_> = after
        .filter(|alert| alert["labels"]["window"] == "1h")
        .map(|alert| alert["since_ns"].clone())
        .collect();
    assert_eq!(since, std::slice::from_ref(&alert["since_ns"]));
    let url = format!("http://127.0.0.1:{}", server.port);
    wait_until("the list has its budget", || {
        state(&server, "checkout").as_deref() == Some("spent")
    });
    // `slo list` was "unexpected argument 'list'".
    for command in [&["slo"][..], &["slo", "list"]] {
        let run = topdeck(&[command, &["--server", &url]].concat(), b"");
        assert_eq!(run.status, 3, "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("checkout") && run.stdout.contains("spent"), "{}", run.stdout);
    }
    let run = topdeck(&["slo", "show", "checkout", "--threshold", "2s", "--server", &url], b"");
    assert_eq!(run.status, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.starts_with("checkout: 100 % of the budget left"), "{}", run.stdout);
    let metrics = server.get("/metrics").text().to_owned();
    assert!(metrics.contains("topdeck_slo_budget_remaining_ratio{slo=\"checkout\"}"), "{metrics}");
    assert!(!metrics.contains("topdeck_slo_budget_remaining_ratio{slo=\"absent\"}"), "{metrics}");
    // A user saw only "unknown" for an SLO whose selector matches nothing.
    let expected = "SLO \"absent\" matches nothing: no data in the last day for nothing";
    wait_until("the warning is known", || {
        topdeck(&["slo", "--server", &url], b"").stdout.contains(expected)
    });
    let rules = topdeck(&["rules", "list", "--server", &url], b"");
    assert!(rules.stdout.contains(expected), "{}", rules.stdout);
    let wrong = server.get("/v1/slo?name=none");
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    server.stop();
}

#[test]
fn settings_with_an_alert_that_cannot_fire_are_refused_with_the_reason() {
    let dir = super::server_process::TestDir::new();
    std::fs::create_dir_all(&dir.0).expect("a directory");
    let path = dir.path("topdeck.toml");
    let text = "[[slo]]\nname = \"loose\"\nselector = \"latency\"\nthreshold = \
                \"1s\"\nobjective = \"90%\"\n";
    std::fs::write(&path, text).expect("settings are written");
    let run = topdeck(&["check-config", path.to_str().expect("a name")], b"");
    assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
    let found = format!("{}{}", run.stdout, run.stderr);
    assert!(found.contains(":5: ") && found.contains("can never fire"), "{found}");
}

#[test]
fn a_maintenance_window_is_taken_out_of_a_budget_also_after_a_kill() {
    let mut server = ServerProcess::new("serve", SETTINGS);
    server.start();
    send(&server, "a", &[100.0; 40]);
    wait_until("its events are stored", || slo(&server, "")["budget"]["events"]["total"] == 40.0);
    let topdeck_at = |server: &ServerProcess, arguments: &[&str]| {
        let url = format!("http://127.0.0.1:{}", server.port);
        let run = topdeck(&[arguments, &["--server", url.as_str()]].concat(), b"");
        assert_eq!(run.status, 0, "{}{}", run.stdout, run.stderr);
        run.stdout
    };
    let window = ["silences", "add", "slo=checkout", "--corrects-slos", "--for", "1h"];
    topdeck_at(&server, &[&window[..], &["--comment", "a move"]].concat());
    send(&server, "b", &[900.0; 40]);
    let total = |server: &ServerProcess, of: &str| slo(server, "")["budget"][of]["total"].clone();
    wait_until("all are stored", || total(&server, "uncorrected") == 80.0);
    for is_killed in [false, true] {
        if is_killed {
            server.kill();
            server.start();
        }
        let report = slo(&server, "");
        let budget = &report["budget"];
        assert_eq!(budget["events"]["total"], 40.0, "{report:#}");
        assert_eq!(budget["remaining"]["estimate"], 1.0, "{report:#}");
        assert_eq!(budget["corrected"]["total"], 40.0, "{report:#}");
        assert_eq!(budget["corrected"]["bad"]["estimate"], 40.0, "{report:#}");
        assert!(budget["corrected_ns"].as_i64().is_some_and(|ns| ns > 0), "{report:#}");
        let reason = report["corrections"][0]["reason"].as_str().expect("a reason");
        assert!(reason.starts_with("maintenance: a move ("), "{reason}");
    }
    let shown = topdeck_at(&server, &["slo", "show", "checkout"]);
    assert!(shown.starts_with("checkout: 100 % of the budget left"), "{shown}");
    assert!(shown.contains(" with 40 events, 40 bad\n"), "{shown}");
    server.stop();
}
