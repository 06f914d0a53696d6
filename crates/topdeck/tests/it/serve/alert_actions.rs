//! Acknowledgements, silences and Alertmanager's API on a running server, with kill -9.

use serde_json::{Value, json};

use super::alerts::{DEEP, ReceivedMessages, alerts, light, send, start, start_with, with_rules};
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

/// Sends a request with a JSON body; returns status and body.
#[track_caller]
fn post(server: &ServerProcess, path: &str, body: &Value) -> (u16, Value) {
    exchange(server, "POST", path, body.to_string().as_bytes())
}

#[track_caller]
fn exchange(server: &ServerProcess, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let response = request_at(server.address(), method, path, &[], body).expect("it answers");
    let text = response.text();
    let value = match text.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")),
    };
    (response.status, value)
}

fn acknowledgement(server: &ServerProcess) -> Value {
    alerts(server)["alerts"][0]["acknowledgement"].clone()
}

/// Settings with a webhook.
fn with_hook(more: &str) -> (String, ReceivedMessages) {
    let (address, received) = ReceivedMessages::listen();
    let settings = format!(
        "[alerts]\nrule_files = [\"rules*.yaml\"]\n[[contact]]\nname = \"hook\"\nkind = \
         \"webhook\"\nurl = \"http://{address}/\"\n[route]\nreceiver = \"hook\"\ngroup_by = \
         [\"...\"]\ngroup_wait = \"0s\"\ngroup_interval = \"1s\"\n{more}"
    );
    (settings, received)
}

/// Name and state of each message.
fn messages(received: &ReceivedMessages) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let message = |message: &Value| {
        let name = text(&message["alerts"][0]["labels"]["alertname"]);
        format!("{name} {}", text(&message["topdeck"]["state"]))
    };
    received.all().iter().map(message).collect()
}

#[test]
fn an_acknowledgement_is_durable_when_it_is_answered_and_contacts_hear_of_it() {
    let (settings, received) = with_hook("");
    let mut server = start_with(&settings, &with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it is told", || messages(&received) == ["Deep firing"]);
    let fingerprint = alerts(&server)["alerts"][0]["fingerprint"].clone();
    let body = json!({
        "fingerprint": fingerprint, "for": "2h", "author": "ann", "note": "on it"
    });
    let (status, answer) = post(&server, "/v1/alerts/acknowledge", &body);
    server.kill();
    assert_eq!((status, &answer["fingerprints"][0]), (200, &fingerprint), "{answer:#}");
    server.start();
    let known = acknowledgement(&server);
    assert_eq!((&known["by"], &known["note"]), (&"ann".into(), &"on it".into()), "{known:#}");
    assert_eq!(known["until_ns"], answer["until_ns"]);
    assert_eq!(light(&server), "amber 1");
    wait_until("it is told", || messages(&received).contains(&"Deep acknowledged".to_owned()));
    // Again: the same state, and no other message.
    assert_eq!(post(&server, "/v1/alerts/acknowledge", &body).0, 200);
    let selected = json!({"matchers": ["alertname=Deep", "host=~\"a|b\""]});
    assert_eq!(post(&server, "/v1/alerts/unacknowledge", &selected).0, 200);
    assert_eq!(post(&server, "/v1/alerts/unacknowledge", &selected).0, 200);
    server.kill();
    server.start();
    assert_eq!(acknowledgement(&server), Value::Null);
    assert_eq!(light(&server), "red 1");
    // A message under way at a kill may be repeated.
    let told = || {
        let mut told = messages(&received);
        told.dedup();
        told
    };
    let states = ["Deep firing", "Deep acknowledged", "Deep firing", "Deep resolved"];
    wait_until("it is told", || told() == states[..3]);
    send(&server, 1.0);
    wait_until("its end is told", || told() == states);
    let none = post(&server, "/v1/alerts/acknowledge", &selected);
    assert_eq!(none.0, 404, "{:#}", none.1);
    server.stop();
}

#[test]
fn acknowledgements_and_silences_on_the_command_line() {
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = |arguments: &[&str]| topdeck(&[arguments, &["--server", &url]].concat(), b"");
    let ack = ["alerts", "ack", "--matcher", "alertname=Deep", "--for", "2h", "--note", "on it"];
    let done = run(&ack);
    assert_eq!(done.stdout, "acknowledged 1 alert\n", "{}", done.stderr);
    let listed = run(&["alerts"]);
    assert!(listed.stdout.contains("firing, acknowledged"), "{}", listed.stdout);
    let fingerprint = alerts(&server)["alerts"][0]["fingerprint"].as_str().unwrap().to_owned();
    let done = run(&["alerts", "unack", &fingerprint]);
    assert_eq!(done.stdout, "no longer acknowledged: 1 alert\n", "{}", done.stderr);
    let added = run(&["silences", "add", "host=a", "--for", "1h", "--comment", "a test"]);
    let id = added.stdout.trim().to_owned();
    assert_eq!(id.len(), 36, "{}", added.stderr);
    assert_eq!(light(&server), "green");
    let listed = run(&["silences", "list"]);
    assert!(listed.stdout.contains(&id) && listed.stdout.contains("a test"), "{}", listed.stdout);
    assert_eq!(run(&["silences", "expire", &id]).status, 0);
    assert_eq!(run(&["silences", "list"]).stdout, "no silences\n");
    assert!(run(&["silences", "list", "--expired"]).stdout.contains(&id));
    assert_eq!(light(&server), "red 1");
    let wrong = run(&["silences", "add", "host!=a", "--for", "1h"]);
    assert_eq!(wrong.status, 1);
    assert!(wrong.stderr.contains("it would silence every alert"), "{}", wrong.stderr);
}

#[test]
fn a_silenced_alert_is_sent_when_the_silence_ends() {
    let (settings, received) = with_hook("");
    let mut server = start_with(&settings, &with_rules(DEEP));
    let body = json!({"matchers": ["host=a"], "for": "1h", "author": "ann", "comment": "upgrade"});
    let (status, answer) = post(&server, "/v1/silences", &body);
    server.kill();
    assert_eq!(status, 200, "{answer:#}");
    server.start();
    let id = answer["silence"]["id"].as_str().expect("an id").to_owned();
    send(&server, 7.5);
    wait_until("it fires", || alerts(&server)["alerts"][0]["state"] == "firing");
    let alert = alerts(&server)["alerts"][0].clone();
    assert_eq!(alert["silenced_by"], json!([id]), "{alert:#}");
    assert_eq!(server.get("/v1/alerts?state=silenced").json()["alerts"][0]["name"], "Deep");
    assert_eq!(light(&server), "green");
    // Another alert passes the same route, so the silenced one was looked at.
    let other = json!([{"labels": {"alertname": "Other"}}]);
    assert_eq!(post(&server, "/api/v2/alerts", &other), (200, Value::Null));
    wait_until("the other one is told", || messages(&received) == ["Other firing"]);
    let (status, _) = exchange(&server, "DELETE", &format!("/v1/silences/{id}"), b"");
    assert_eq!(status, 200);
    wait_until("it is told", || messages(&received) == ["Other firing", "Deep firing"]);
    assert_eq!(light(&server), "red 2");
    server.stop();
}

#[test]
fn received_alerts_survive_a_kill_and_are_sent_as_those_of_rules() {
    let (settings, received) = with_hook("");
    let mut server = start_with(&settings, &with_rules(DEEP));
    let alert = json!([{
        "labels": {"alertname": "Down", "instance": "db1", "severity": "page"},
        "annotations": {"summary": "db1 is down"},
        "generatorURL": "http://prometheus.example:9090/graph",
    }]);
    assert_eq!(post(&server, "/api/v2/alerts", &alert), (200, Value::Null));
    server.kill();
    server.start();
    wait_until("it is told", || messages(&received).contains(&"Down firing".to_owned()));
    assert_eq!(light(&server), "red 1");
    let listed = alerts(&server)["alerts"][0].clone();
    assert_eq!((&listed["source"], &listed["name"]), (&"received".into(), &"Down".into()));
    let fingerprint = listed["fingerprint"].clone();
    let ack = json!({"fingerprint": fingerprint, "author": "ann"});
    assert_eq!(post(&server, "/v1/alerts/acknowledge", &ack).0, 200);
    server.kill();
    server.start();
    assert_eq!(acknowledgement(&server)["by"], "ann");
    let mut end = alert.clone();
    end[0]["endsAt"] = "2023-11-14T22:13:20Z".into();
    assert_eq!(post(&server, "/api/v2/alerts", &end).0, 200);
    wait_until("its end is told", || messages(&received).contains(&"Down resolved".to_owned()));
    assert_eq!(light(&server), "green");
    assert_eq!(server.get("/api/v2/alerts").json(), json!([]));
    server.stop();
}

#[test]
fn clients_of_alertmanager_read_alerts_groups_and_silences() {
    let (settings, _) = with_hook(
        "[[inhibit]]\nsource_matchers = [\"severity=page\"]\ntarget_matchers = \
         [\"severity=info\"]\nequal = [\"host\"]\n",
    );
    let server = start_with(&settings, &with_rules(DEEP));
    let sent = json!([
        {"labels": {"alertname": "A", "host": "x", "severity": "page"}},
        {"labels": {"alertname": "B", "host": "x", "severity": "info"}},
        {"labels": {"alertname": "C", "host": "y"}, "generatorURL": "http://p/"},
    ]);
    assert_eq!(post(&server, "/api/v2/alerts", &sent).0, 200);
    let silence = json!({
        "matchers": [{"name": "alertname", "value": "C|D", "isRegex": true, "isEqual": true}],
        "startsAt": "2023-11-14T22:13:20.000Z", "endsAt": "2100-01-01T00:00:00.000Z",
        "createdBy": "ann", "comment": "test",
    });
    let (status, created) = post(&server, "/api/v2/silences", &silence);
    assert_eq!(status, 200, "{created:#}");
    let id = created["silenceID"].as_str().expect("an id").to_owned();
    let names = |path: &str| -> Vec<String> {
        let found = server.get(path).json();
        let alerts = found.as_array().expect("a list").iter();
        let mut names: Vec<String> = alerts
            .map(|alert| alert["labels"]["alertname"].as_str().expect("a name").to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("/api/v2/alerts"), ["A", "B", "C"]);
    assert_eq!(names("/api/v2/alerts?silenced=false&inhibited=false&unknown=1"), ["A"]);
    assert_eq!(names("/api/v2/alerts?active=false"), ["B", "C"]);
    assert_eq!(names("/api/v2/alerts?filter=host%3D%22x%22&filter=severity!=info"), ["A"]);
    assert_eq!(names("/api/v2/alerts?receiver=ho.*"), ["A", "B", "C"]);
    assert_eq!(names("/api/v2/alerts?receiver=other"), [""; 0]);
    let all = server.get("/api/v2/alerts").json();
    let alert = |name: &str| {
        let mut alerts = all.as_array().expect("a list").iter();
        alerts.find(|alert| alert["labels"]["alertname"] == name).expect("an alert").clone()
    };
    let silenced = alert("C");
    let keys: Vec<&String> = silenced.as_object().expect("an object").keys().collect();
    let expected = [
        "annotations",
        "endsAt",
        "fingerprint",
        "generatorURL",
        "labels",
        "receivers",
        "startsAt",
        "status",
        "updatedAt",
    ];
    assert_eq!(keys, expected);
    let status = json!({
        "state": "suppressed", "silencedBy": [id], "inhibitedBy": [], "mutedBy": []
    });
    assert_eq!(
        (&silenced["status"], &silenced["receivers"]),
        (&status, &json!([{"name": "hook"}]))
    );
    assert_eq!(alert("B")["status"]["inhibitedBy"], json!([alert("A")["fingerprint"]]));
    let groups = server.get("/api/v2/alerts/groups?silenced=false").json();
    assert_eq!(groups.as_array().map(Vec::len), Some(2), "{groups:#}");
    assert_eq!(groups[0]["receiver"]["name"], "hook");
    assert_eq!(groups[0]["labels"]["alertname"], "A");
    assert_eq!(server.get("/api/v2/receivers").json(), json!([{"name": "hook"}]));
    assert_eq!(server.get("/api/v2/status").json()["cluster"]["status"], "disabled");
    let one = server.get(&format!("/api/v2/silence/{id}")).json();
    assert_eq!(one["status"]["state"], "active");
    assert_eq!(one["matchers"], silence["matchers"]);
    let list = |filter: &str| server.get(&format!("/api/v2/silences{filter}")).json();
    assert_eq!(list("?filter=alertname%3D~%22C%7CD%22").as_array().map(Vec::len), Some(1));
    assert_eq!(list("?filter=alertname=C"), json!([]));
    assert_eq!(list("?creator=ben"), json!([]));
    let deleted = exchange(&server, "DELETE", &format!("/api/v2/silence/{id}"), b"");
    assert_eq!(deleted, (200, Value::Null));
    assert_eq!(list("")[0]["status"]["state"], "expired");
    assert_eq!(names("/api/v2/alerts?active=false"), ["B"]);
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let server = start(&with_rules(DEEP));
    #[track_caller]
    fn check(server: &ServerProcess, path: &str, body: &str, part: &str) {
        let (status, answer) = exchange(server, "POST", path, body.as_bytes());
        let text = answer["error"].as_str().or(answer.as_str()).unwrap_or_default().to_owned();
        assert_eq!(status, 400, "{path} {body}: {answer}");
        assert!(text.contains(part), "{path} {body}: {text}");
    }
    for path in [
        "/v1/alerts/acknowledge",
        "/v1/alerts/unacknowledge",
        "/v1/silences",
        "/api/v2/alerts",
        "/api/v2/silences",
    ] {
        check(&server, path, "", "cannot read the body: it is empty; expected ");
        check(&server, path, "{", "cannot read the body: ");
        check(&server, path, "\u{feff}7", "cannot read the body: ");
    }
    let ack = "/v1/alerts/acknowledge";
    check(&server, ack, "{}", "cannot select alerts: no matcher");
    check(&server, ack, r#"{"matchers": ["a!=b"]}"#, "add fingerprint, or a matcher");
    check(&server, ack, r#"{"fingerprint": "x"}"#, "expected 16 hexadecimal digits");
    check(&server, ack, r#"{"matchers": ["a"]}"#, "cannot read matcher \"a\"");
    check(&server, ack, r#"{"matchers": ["a=b"], "for": "x"}"#, "for: found \"x\", expected");
    check(&server, ack, r#"{"matchers": ["a=b"], "for": "32d"}"#, "limit of 31 days");
    let past = r#"{"matchers": ["a=b"], "until": "2020-01-01T00:00:00Z"}"#;
    check(&server, ack, past, "the time is in the past");
    check(&server, ack, r#"{"matchers": ["a=b"], "nobody": 1}"#, "unknown field `nobody`");
    let silences = "/v1/silences";
    check(&server, silences, r#"{"matchers": ["a=b"]}"#, "a silence needs an end");
    check(&server, silences, r#"{"matchers": [], "for": "1h"}"#, "it would silence every alert");
    let wrong = r#"{"matchers": ["a=b"], "time_intervals": [{"weekdays": ["x"]}]}"#;
    check(&server, silences, wrong, "cannot read time interval");
    let v2 = r#"{"matchers": [{"name": "a", "value": "(", "isRegex": true}], "startsAt": "2023-11-14T22:13:20Z", "endsAt": "2100-01-01T00:00:00Z", "createdBy": "a", "comment": "b"}"#;
    check(&server, "/api/v2/silences", v2, "cannot read matcher");
    let mixed = r#"[{"labels": {}}, {"labels": {"alertname": "Valid"}}]"#;
    check(&server, "/api/v2/alerts", mixed, "alert 1: an alert has no labels");
    assert_eq!(alerts(&server)["alerts"][0]["name"], "Valid", "valid ones are stored");
    for path in ["/v1/silences/x", "/api/v2/silence/x"] {
        let (status, answer) = exchange(&server, "DELETE", path, b"");
        assert_eq!(status, 404, "{answer}");
        assert!(answer.to_string().contains("cannot find silence"), "{answer}");
    }
    for path in ["/v1/silences?state=x", "/api/v2/alerts?active=x", "/api/v2/alerts?filter=x"] {
        assert_eq!(server.get(path).status, 400, "{path}");
    }
}

#[test]
fn a_cleared_alert_has_ended_durably_and_one_whose_condition_holds_fires_again() {
    let (settings, received) = with_hook("");
    let mut server = start_with(&settings, &with_rules(DEEP));
    let url = format!("http://127.0.0.1:{}", server.port);
    let clear = |matcher: &str| {
        let note = ["--note", "the host is gone", "--author", "ann", "--server", &url];
        topdeck(&[&["alerts", "clear", "--matcher", matcher][..], &note].concat(), b"")
    };
    assert_eq!(clear("alertname=Outside").status, 1, "there is none");
    let sent = json!([{"labels": {"alertname": "Outside"}}]);
    assert_eq!(post(&server, "/api/v2/alerts", &sent).0, 200);
    wait_until("it is told", || messages(&received) == ["Outside firing"]);
    let run = clear("alertname=Outside");
    server.kill();
    assert_eq!((run.status, run.stdout.as_str()), (0, "cleared 1 alert\n"), "{}", run.stderr);
    server.start();
    assert_eq!(alerts(&server)["alerts"], json!([]));
    wait_until("its end is told", || messages(&received) == ["Outside firing", "Outside resolved"]);
    let end = received.all().pop().expect("a message");
    let notes = end["topdeck"]["notes"].as_str().unwrap_or_default();
    assert!(notes.starts_with("Cleared by ann: the host is gone."), "{end:#}");
    let history = server.get("/v1/alerts/history?event=resolved").json();
    let newest = &history["history"][0];
    assert_eq!((&newest["by"], &newest["note"]), (&"ann".into(), &"the host is gone".into()));
    // Its source sends it again.
    assert_eq!(post(&server, "/api/v2/alerts", &sent).0, 200);
    let count = |text: &str| messages(&received).iter().filter(|found| *found == text).count();
    wait_until("it fires again", || count("Outside firing") == 2);
    send(&server, 7.5);
    wait_until("the rule fires", || count("Deep firing") == 1);
    assert_eq!(clear("alertname=Deep").status, 0);
    wait_until("it begins anew", || count("Deep resolved") == 1 && count("Deep firing") == 2);
    server.stop();
}
