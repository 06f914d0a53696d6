//! Rules on a running server: states, series, HTTP, reload, notifications, kill -9.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::client::request_at;
use super::server_process::{ServerProcess, append, wait_until};
use crate::topdeck;

const SETTINGS: &str =
    "[alerts]\nrule_files = [\"rules*.yaml\"]\nexternal_url = \"http://deck/\"\n";

/// Group of rules with an interval of 200 ms.
pub(super) fn with_rules(rules: &str) -> String {
    format!("groups:\n- name: g\n  interval: 200ms\n  rules:\n{rules}")
}

pub(super) const DEEP: &str = "  - record: depth:max\n    expr: max(depth)\n  - alert: Deep\n    \
                    expr: depth > 5\n    for: 1s\n    labels: {severity: page}\n    annotations:\n\
                    \x20     summary: \"{{ $labels.host }} is {{ $value }}, see \
                    {{ $externalURL }}\"\n      topdeck_missing_data: hold\n";

pub(super) fn start(rules: &str) -> ServerProcess {
    start_with(SETTINGS, rules)
}

pub(super) fn start_with(settings: &str, rules: &str) -> ServerProcess {
    let mut server = ServerProcess::new("serve", settings);
    std::fs::write(server.dir.path("rules.yaml"), rules).expect("rules are written");
    server.start();
    server
}

/// Sends a value of the gauge `depth` of host `a`.
#[track_caller]
pub(super) fn send(server: &ServerProcess, value: f64) {
    send_of(server, "a", value);
}

#[track_caller]
fn send_of(server: &ServerProcess, host: &str, value: f64) {
    let body = format!("depth,host={host} value={value}");
    let sent = request_at(server.address(), "POST", "/api/v2/write", &[], body.as_bytes());
    let sent = sent.expect("it answers");
    assert!(sent.status < 300, "{}", sent.text());
}

pub(super) fn light(server: &ServerProcess) -> String {
    server.get("/v1/light").text().trim_end().to_owned()
}

pub(super) fn alerts(server: &ServerProcess) -> Value {
    server.get("/v1/alerts").json()
}

/// Value of an instant query; `None` without a result.
fn query(server: &ServerProcess, expression: &str) -> Option<String> {
    let found = server.get(&format!("/api/v1/query?query={expression}")).json();
    Some(found["data"]["result"][0]["value"][1].as_str()?.to_owned())
}

#[test]
fn an_alert_fires_after_its_time_and_survives_a_kill() {
    let mut server = start(&with_rules(DEEP));
    assert_eq!(light(&server), "green");
    send(&server, 7.5);
    wait_until("it is pending", || light(&server) == "amber 1");
    let pending = alerts(&server)["alerts"][0].clone();
    assert_eq!(pending["state"], "pending", "{pending:#}");
    assert_eq!(pending["next"]["state"], "firing", "{pending:#}");
    let since_ns = pending["since_ns"].as_i64().expect("a time");
    assert_eq!(pending["next"]["at_ns"].as_i64(), Some(since_ns + 1_000_000_000));
    wait_until("it fires", || light(&server) == "red 1");
    let firing = alerts(&server)["alerts"][0].clone();
    assert_eq!(firing["annotations"]["summary"], "a is 7.5, see http://deck/", "{firing:#}");
    assert_eq!(firing["since_ns"].as_i64(), Some(since_ns));
    wait_until("its series is stored", || {
        query(&server, "ALERTS{alertname=\"Deep\",alertstate=\"firing\",host=\"a\"}").is_some()
    });
    assert_eq!(query(&server, "depth:max").as_deref(), Some("7.5"));
    server.kill();
    server.start();
    // The revision is another one, so a client that waits for a change sees one.
    let after = alerts(&server)["alerts"][0].clone();
    for field in ["state", "since_ns", "fired_ns", "labels", "annotations", "value"] {
        assert_eq!(after[field], firing[field], "{field}");
    }
    let log = server.log();
    assert!(log.contains("alert Deep") || log.contains("alertname=\"Deep\""), "{log}");
    assert!(!log.contains("-> inactive"), "{log}");
    send(&server, 1.0);
    wait_until("it resolves", || light(&server) == "green");
    assert!(server.log().contains("firing -> inactive"), "{}", server.log());
    server.stop();
}

#[test]
fn prometheus_clients_read_rules_and_alerts() {
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    let rules = server.get("/api/v1/rules").json();
    let group = &rules["data"]["groups"][0];
    assert_eq!((&group["name"], &group["interval"]), (&"g".into(), &0.2.into()), "{rules:#}");
    let (record, alert) = (&group["rules"][0], &group["rules"][1]);
    assert_eq!((&record["type"], &record["health"]), (&"recording".into(), &"ok".into()));
    assert_eq!((&alert["state"], &alert["duration"]), (&"firing".into(), &1.into()), "{alert:#}");
    assert_eq!(alert["alerts"][0]["value"], "7.5e+00");
    assert_eq!(alert["annotations"].as_object().map(serde_json::Map::len), Some(1));
    let names = |parameters: &str| {
        let found = server.get(&format!("/api/v1/rules?{parameters}")).json();
        let groups = found["data"]["groups"].as_array().expect("a list").clone();
        let rules = groups.iter().flat_map(|group| group["rules"].as_array().expect("a list"));
        rules.map(|rule| rule["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("type=alert"), ["Deep"]);
    assert_eq!(names("type=record"), ["depth:max"]);
    assert_eq!(names("rule_name[]=Deep&unknown=1"), ["Deep"]);
    assert_eq!(names("match[]=%7Bseverity%3D%22page%22%7D"), ["Deep"]);
    assert_eq!(names("rule_group[]=h"), [""; 0]);
    let wrong = server.get("/api/v1/rules?type=x");
    assert_eq!((wrong.status, &wrong.json()["errorType"]), (400, &"bad_data".into()));
    let alerts = server.get("/api/v1/alerts").json();
    assert_eq!(alerts["data"]["alerts"][0]["labels"]["alertname"], "Deep", "{alerts:#}");
    let url = format!("http://127.0.0.1:{}", server.port);
    for command in [&["alerts"][..], &["alerts", "list"]] {
        let run = topdeck(&[command, &["--server", &url]].concat(), b"");
        assert_eq!(run.status, 3, "{}{}", run.stdout, run.stderr);
        assert!(
            run.stdout.starts_with("red 1\n") && run.stdout.contains("Deep{host=\"a\""),
            "{}",
            run.stdout
        );
    }
}

#[test]
fn a_client_that_waits_sees_the_next_change() {
    let server = start(&with_rules(DEEP));
    let revision = alerts(&server)["revision"].as_u64().expect("a revision");
    send(&server, 7.5);
    let changed = server.get(&format!("/v1/alerts?wait=60&since={revision}")).json();
    assert_ne!(changed["revision"].as_u64(), Some(revision));
    let wrong = server.get("/v1/alerts?wait=61");
    assert_eq!(wrong.status, 400, "{}", wrong.text());
}

#[test]
fn a_bad_rule_is_reported_and_the_others_are_evaluated() {
    let bad = format!("{DEEP}  - alert: Bad\n    expr: depth >\n");
    let server = start(&with_rules(&bad));
    let problem = "rules.yaml:15:11: error: cannot parse expression";
    // It responds shortly before it logs.
    // A user saw the error at the level info, and only there.
    let is_error = |line: &str| line.contains(problem) && !line.contains(" info ");
    wait_until("the problem is logged", || server.log().lines().any(is_error));
    let url = format!("http://127.0.0.1:{}", server.port);
    for command in [&["alerts", "--server", &url][..], &["rules", "list", "--server", &url]] {
        let run = topdeck(command, b"");
        assert!(run.stdout.contains(problem), "{command:?}: {}{}", run.stdout, run.stderr);
    }
    assert_eq!(light(&server), "amber 1");
    send(&server, 7.5);
    wait_until("the other one fires", || light(&server) == "red 1");
    let status = server.get("/v1/status").json();
    assert!(status["alerts"]["problems"][0].to_string().contains(problem), "{status:#}");
    let checked = topdeck(&["check-config", &server.settings().display().to_string()], b"");
    assert_eq!(checked.status, 1);
    assert!(checked.stderr.contains(problem), "{}", checked.stderr);
    let file = server.dir.path("rules.yaml").display().to_string();
    let checked = topdeck(&["rules", "check", &file], b"");
    assert_eq!(checked.status, 1);
    assert!(checked.stderr.contains(problem), "{}", checked.stderr);
    assert!(checked.stdout.ends_with(": 1 group, 2 usable rules\n"), "{}", checked.stdout);
}

/// A user got the JSON of the API for a missing flag, and the cause of a missing file twice.
#[test]
fn errors_of_silences_and_rule_files_are_those_of_the_command_line() {
    let run = topdeck(&["silences", "add", "host=db1"], b"");
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("needs an end; add --for 2h"), "{}", run.stderr);
    let dir = super::server_process::TestDir::new();
    std::fs::create_dir_all(&dir.0).expect("a directory");
    let path = dir.path("topdeck.toml");
    let settings = "data_dir = \"data\"\n[alerts]\nrule_files = [\"nofile.yaml\"]\n";
    std::fs::write(&path, settings).expect("settings are written");
    let run = topdeck(&["check-config", path.to_str().expect("a name")], b"");
    assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
    let found = format!("{}{}", run.stdout, run.stderr);
    assert_eq!(found.matches("No such file").count(), 1, "{found}");
}

/// `check-config` left out rule files beside an error of the settings, and said nothing of a
/// pattern that matches no file and of a threshold of 250 s.
#[test]
fn check_config_reads_rule_files_beside_other_errors_and_warns() {
    let dir = super::server_process::TestDir::new();
    std::fs::create_dir_all(&dir.0).expect("a directory");
    let path = dir.path("topdeck.toml");
    let write = |file: &str, text: &str| std::fs::write(dir.path(file), text).expect("written");
    let check = || topdeck(&["check-config", path.to_str().expect("a name")], b"");
    write("bad.yaml", "groups:\n- name: a\n  rules:\n  - alert: b\n    exprr: up\n");
    let settings = "data_dir = \"data\"\n[alerts]\nrule_files = [\"nope/*.yaml\"]\n[[slo]]\nname = \
                    \"pay\"\nselector = \"pay\"\nthreshold = \"250\"\nobjective = \"99%\"\n";
    write("topdeck.toml", settings);
    let run = check();
    assert_eq!(run.status, 0, "{}{}", run.stdout, run.stderr);
    let expected = ["warning: rule_files: no file matches", "threshold 250 has no unit"];
    for expected in expected {
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
    write("topdeck.toml", &format!("udb = 1\n{}", settings.replace("nope/*", "bad")));
    let run = check();
    assert_eq!(run.status, 1, "{}{}", run.stdout, run.stderr);
    for expected in ["unknown key \"udb\"", "rule 1 of group \"a\" has no expression"] {
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
}

/// A user who had sent two values read that nothing had sent.
#[test]
fn targets_name_a_source_that_has_sent_too_little() {
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("the value is stored", || query(&server, "depth").is_some());
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = topdeck(&["targets", "--server", &url], b"");
    assert!(run.stderr.contains(" sent too little to tell when absent"), "{}", run.stderr);
}

#[test]
fn a_rule_that_matches_nothing_is_shown_with_the_nearest_name() {
    let misspelt = "  - alert: Deep\n    expr: deepth > 5\n";
    let server = start(&with_rules(misspelt));
    send(&server, 7.5);
    let warning = |server: &ServerProcess| {
        alerts(server)["warnings"][0].as_str().unwrap_or_default().to_owned()
    };
    let hint = "did you mean the metric \"depth\"?";
    wait_until("the value is stored", || query(&server, "depth").is_some());
    // The first search may have been before it.
    server.reload();
    wait_until("the nearest name is known", || warning(&server).ends_with(hint));
    let expected = "rules.yaml:5:5: warning: rule \"Deep\" matches nothing: no data in the last \
                    day for deepth; ";
    assert!(warning(&server).contains(expected), "{}", warning(&server));
    let rules = server.get("/api/v1/rules").json();
    let rule = &rules["data"]["groups"][0]["rules"][0];
    assert!(rule["warning"].to_string().contains("matches nothing"), "{rule:#}");
    let status = server.get("/v1/status").json();
    assert!(status["alerts"]["unmatched"][0].to_string().contains("deepth"), "{status:#}");
    let url = format!("http://127.0.0.1:{}", server.port);
    for command in [&["alerts", "--server", &url][..], &["rules", "list", "--server", &url]] {
        let run = topdeck(command, b"");
        assert!(run.stdout.contains(hint), "{command:?}: {}{}", run.stdout, run.stderr);
    }
    std::fs::write(server.dir.path("rules.yaml"), with_rules(DEEP)).expect("rules are written");
    server.reload();
    wait_until("the rule matches", || warning(&server).is_empty());
}

#[test]
fn a_reload_keeps_the_states_of_rules_and_ends_those_of_removed_files() {
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    let before = alerts(&server)["alerts"][0]["fired_ns"].clone();
    let other = "groups:\n- name: h\n  interval: 200ms\n  rules:\n  - record: one\n    expr: 1\n";
    std::fs::write(server.dir.path("rules2.yaml"), other).expect("rules are written");
    server.reload();
    wait_until("the new rule is evaluated", || query(&server, "one").is_some());
    assert_eq!(alerts(&server)["alerts"][0]["fired_ns"], before);
    std::fs::remove_file(server.dir.path("rules.yaml")).expect("removed");
    server.reload();
    wait_until("its series are stale", || {
        query(&server, "ALERTS").is_none() && query(&server, "depth:max").is_none()
    });
    assert_eq!(light(&server), "green");
}

#[test]
fn missing_data_holds_an_alert_and_marks_it_unknown() {
    let rules = with_rules(&DEEP.replace("depth", "last_over_time(depth[6s])"));
    let rules = rules.replace("max(last_over_time(depth[6s]))", "max(depth)");
    let rules = rules.replace("record: last_over_time(depth[6s]):max", "record: depth:max");
    let server = start(&rules);
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    wait_until("the data is gone", || !alerts(&server)["alerts"][0]["unknown_since_ns"].is_null());
    let unknown = alerts(&server)["alerts"][0].clone();
    assert_eq!(unknown["state"], "firing", "{unknown:#}");
    assert!(unknown["why"].to_string().contains("there is no data"), "{unknown:#}");
    assert_eq!(light(&server), "amber 1");
    assert!(!server.log().contains("-> inactive"), "{}", server.log());
}

#[test]
fn test_files_of_promtool_run() {
    let server = ServerProcess::new("serve", "");
    let write = |name: &str, text: &str| {
        std::fs::write(server.dir.path(name), text).expect("a file is written");
        server.dir.path(name).display().to_string()
    };
    write("rules.yaml", &with_rules(DEEP));
    let own = "[[rule]]\nname = \"Full\"\nselect = \"depth\"\nwindow = \"1min\"\n\
               [[rule.criteria]]\nseverity = 2\nstatistic = \"value\"\nat_least = 7\n";
    write("own.toml", own);
    let tests = |value: u32| {
        format!(
            "rule_files: [rules*.yaml, own.toml]\nevaluation_interval: 1s\ntests:\n\
             - interval: 1s\n  external_url: http://x\n  input_series:\n  \
             - series: depth{{host=\"a\"}}\n    \
             values: {value}x20\n  alert_rule_test:\n  - eval_time: 5s\n    alertname: Deep\n    \
             exp_alerts:\n    - exp_labels: {{host: a, severity: page}}\n      \
             exp_annotations: {{summary: \"a is 7, see http://x\"}}\n  - eval_time: 5s\n    \
             alertname: Full\n    exp_alerts:\n    - {{exp_labels: {{host: a}}, exp_severity: 2, \
             exp_value: {value}}}\n"
        )
    };
    let passing = write("pass_test.yaml", &tests(7));
    let run = topdeck(&["rules", "test", &passing], b"");
    assert_eq!((run.status, run.stdout), (0, format!("{passing}: passed\n")), "{}", run.stderr);
    let failing = write("fail_test.yaml", &tests(3));
    let run = topdeck(&["rules", "test", &failing], b"");
    assert_eq!((run.status, run.stdout), (1, format!("{failing}: FAILED\n")), "{}", run.stderr);
    for expected in ["alert \"Deep\" at 5 s: found none", "alert \"Full\" at 5 s: found none"] {
        assert!(run.stderr.contains(expected), "{expected}: {}", run.stderr);
    }
}

#[test]
fn an_agent_rejects_rules() {
    let server = ServerProcess::new("agent", SETTINGS);
    let (status, said) = server.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("an agent stores no data; remove rule_files from [alerts]"), "{said}");
}

/// Bodies of a webhook's requests. Each one is answered with 200.
#[derive(Clone, Default)]
pub(super) struct ReceivedMessages(Arc<Mutex<Vec<Value>>>);

impl ReceivedMessages {
    /// Receives on a thread of its own until the test ends.
    pub(super) fn listen() -> (SocketAddr, ReceivedMessages) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let received = ReceivedMessages::default();
        let own = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                own.receive(stream.expect("a connection"));
            }
        });
        (address, received)
    }

    fn receive(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            // The server was killed before its request was complete.
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        self.0.lock().expect("no panic").push(serde_json::from_slice(&body).expect("JSON"));
        // The sender may be gone.
        let _ = stream
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    }

    pub(super) fn all(&self) -> Vec<Value> {
        self.0.lock().expect("no panic").clone()
    }

    /// Host and status of each message, sorted.
    fn states(&self) -> Vec<String> {
        let state = |message: &Value| {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let alert = &message["alerts"][0];
            format!("{} {}", text(&alert["labels"]["host"]), text(&alert["status"]))
        };
        let mut states: Vec<String> = self.all().iter().map(state).collect();
        states.sort();
        states
    }
}

/// Deliveries of the only contact as its status and its metric have them.
fn delivered(server: &ServerProcess) -> u64 {
    let status = server.get("/v1/status").json();
    let contact = &status["notifications"]["contacts"][0];
    assert_eq!(contact["last_error"], Value::Null, "{contact:#}");
    contact["delivered"].as_u64().expect("a number")
}

#[test]
fn a_contact_is_told_once_that_an_alert_fires_and_once_that_it_resolved() {
    let (address, received) = ReceivedMessages::listen();
    let settings = format!(
        "{SETTINGS}[[contact]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \
         \"http://{address}/\"\n[route]\nreceiver = \"hook\"\ngroup_by = [\"alertname\"]\n\
         group_wait = \"0s\"\ngroup_interval = \"1s\"\n"
    );
    let mut server = start_with(&settings, &with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it is told", || received.states() == ["a firing"]);
    let message = received.all()[0].clone();
    let labels = &message["alerts"][0]["labels"];
    assert_eq!(message["groupLabels"]["alertname"], "Deep", "{message:#}");
    assert_eq!(labels["alertname"], "Deep", "{message:#}");
    assert_eq!((&labels["host"], &labels["severity"]), (&"a".into(), &"page".into()));
    assert_eq!(message["topdeck"]["severity"], 1, "{message:#}");
    // Otherwise the outcome may be unknown after the kill, and one repeat is right.
    wait_until("it is delivered", || delivered(&server) == 1);
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("topdeck_notifications_total{contact=\"hook\"} 1\n"), "{metrics}");
    assert!(metrics.contains("topdeck_notifications_failed_total{contact=\"hook\"} 0\n"));
    server.kill();
    server.start();
    // The group of both hosts is sent: what it repeats is sent before or with the new one.
    send_of(&server, "b", 8.0);
    wait_until("the other one is told", || received.states().contains(&"b firing".to_owned()));
    assert_eq!(received.states(), ["a firing", "b firing"]);
    send(&server, 1.0);
    wait_until("it is resolved", || received.states().contains(&"a resolved".to_owned()));
    send_of(&server, "b", 1.0);
    wait_until("all are resolved", || received.states().contains(&"b resolved".to_owned()));
    assert_eq!(received.states(), ["a firing", "a resolved", "b firing", "b resolved"]);
    let keys: Vec<Value> = received.all().iter().map(|one| one["topdeck"]["key"].clone()).collect();
    let keys = keys.iter().filter_map(|key| key.as_str()?.split('/').next());
    assert_eq!(keys.collect::<std::collections::BTreeSet<_>>().len(), 2, "one per alert");
    server.stop();
}

#[test]
fn alerts_of_a_removed_rule_are_resolved_at_contacts_that_a_reload_added() {
    let (address, received) = ReceivedMessages::listen();
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    let more = format!(
        "[[contact]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://{address}/\"\n\
         [route]\nreceiver = \"hook\"\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\n"
    );
    append(&server.settings(), &more);
    server.reload();
    wait_until("it is told", || received.states() == ["a firing"]);
    std::fs::write(server.dir.path("rules.yaml"), "groups: []\n").expect("rules are written");
    server.reload();
    wait_until("its end is told", || received.states() == ["a firing", "a resolved"]);
    let end = received.all()[1].clone();
    assert!(end["topdeck"]["notes"].to_string().contains("no longer evaluates"), "{end:#}");
}

#[test]
fn mistakes_of_contacts_are_reported_with_their_lines() {
    let contact = "[[contact]]\nname = \"hook\"\nkind = \"webhok\"\n";
    let server = ServerProcess::new("serve", &format!("{SETTINGS}{contact}"));
    let checked = topdeck(&["check-config", &server.settings().display().to_string()], b"");
    assert_eq!(checked.status, 1);
    assert!(checked.stderr.contains("topdeck.toml:8: "), "{}", checked.stderr);
    assert!(checked.stderr.contains("webhook"), "{}", checked.stderr);
    let others = checked.stderr.replace("topdeck.toml: warning: rule_files: no file", "");
    assert_eq!(others.matches("topdeck.toml:").count(), 1, "{}", checked.stderr);
    let contact = "[[contact]]\nname = \"hook\"\nkind = \"webhook\"\nurl = \"http://a/\"\n\
                   [route]\nreceiver = \"hook\"\n";
    let agent = ServerProcess::new("agent", contact);
    let (status, said) = agent.start_another(&[]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("an agent evaluates no rules; remove the contacts"), "{said}");
}
