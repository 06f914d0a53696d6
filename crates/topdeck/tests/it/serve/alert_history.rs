//! History of alerts on a running server: search, paging, kill -9, server-sent events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::alerts::{DEEP, light, send, start, with_rules};
use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

fn history(server: &ServerProcess, parameters: &str) -> Value {
    server.get(&format!("/v1/alerts/history?{parameters}")).json()
}

/// Events, the newest first.
fn events(server: &ServerProcess, parameters: &str) -> Vec<String> {
    let answer = history(server, parameters);
    let changes = answer["history"].as_array().expect("a list").clone();
    changes.iter().map(|change| change["event"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn changes_of_state_are_listed_and_survive_a_kill() {
    let mut server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    assert_eq!(events(&server, ""), ["firing", "pending"]);
    let body = json!({"matchers": ["host=a"], "for": "2h", "author": "ann", "note": "on it"});
    let path = "/v1/alerts/acknowledge";
    let body = body.to_string();
    let answer = request_at(server.address(), "POST", path, &[], body.as_bytes());
    assert_eq!(answer.expect("it answers").status, 200);
    server.kill();
    server.start();
    assert_eq!(events(&server, ""), ["acknowledged", "firing", "pending"]);
    let newest = history(&server, "text=ON%20IT")["history"][0].clone();
    assert_eq!((&newest["by"], &newest["note"]), (&"ann".into(), &"on it".into()), "{newest:#}");
    send(&server, 1.0);
    wait_until("it resolves", || light(&server) == "green");
    let resolved = history(&server, "event=resolved")["history"][0].clone();
    let number = |name: &str| resolved[name].as_i64().expect("a number");
    assert_eq!(number("duration_ns"), number("time_ns") - number("since_ns"), "{resolved:#}");
    assert_eq!(events(&server, "event=firing&matcher=host%3Da"), ["firing"]);
    assert_eq!(events(&server, "matcher=host%3Db"), [""; 0]);
    assert_eq!(events(&server, "severity=1&event=firing"), ["firing"]);
    assert_eq!(events(&server, "severity=3"), [""; 0]);
    assert_eq!(events(&server, "to=-1d"), [""; 0]);
    // Pages.
    let page = history(&server, "limit=2");
    assert_eq!(page["history"].as_array().map(Vec::len), Some(2), "{page:#}");
    let rest = history(&server, &format!("limit=1000&before={}", page["next"]));
    assert_eq!(rest["history"][0]["number"].as_u64(), page["next"].as_u64().map(|n| n - 1));
    assert!(rest["next"].is_null(), "{rest:#}");
    assert_eq!(server.get("/v1/alerts/history?limit=1001").status, 400);
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = topdeck(&["alerts", "--history", "--text", "deep", "--server", &url], b"");
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("resolved") && run.stdout.contains("ann"), "{}", run.stdout);
}

#[test]
fn active_alerts_are_searched() {
    let server = start(&with_rules(DEEP));
    send(&server, 7.5);
    wait_until("it fires", || light(&server) == "red 1");
    let found = |parameters: &str| {
        let answer = server.get(&format!("/v1/alerts?{parameters}")).json();
        answer["alerts"].as_array().expect("a list").len()
    };
    assert_eq!(["text=deep", "text=host%3DA", "severity=1"].map(found), [1, 1, 1]);
    assert_eq!(["text=shallow", "matcher=host%3Db", "severity=2"].map(found), [0, 0, 0]);
    assert_eq!(server.get("/v1/alerts?severity=x").status, 400);
}

/// Client of server-sent events.
struct EventClient {
    reader: BufReader<TcpStream>,
    last_id: String,
}

impl EventClient {
    fn connect(server: &ServerProcess, more: &str) -> EventClient {
        let mut connection = TcpStream::connect(server.address()).expect("it listens");
        connection.set_read_timeout(Some(crate::environment::TIMEOUT)).expect("a timeout");
        let head = format!(
            "GET /v1/alerts HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: text/event-stream\r\n{more}\r\n"
        );
        connection.write_all(head.as_bytes()).expect("it reads");
        EventClient { reader: BufReader::new(connection), last_id: String::new() }
    }

    /// Data of the next event with a name.
    fn next(&mut self, name: &str) -> Value {
        let mut is_wanted = false;
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).expect("an event");
            assert!(read > 0, "the stream has ended before {name}");
            let line = line.trim_end();
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.last_id);
            } else if let Some(found) = line.strip_prefix("event: ") {
                is_wanted = found == name;
            } else if let Some(data) = line.strip_prefix("data: ").filter(|_| is_wanted) {
                return serde_json::from_str(data).expect("JSON");
            }
        }
    }
}

#[test]
fn clients_follow_changes_and_resume_after_a_reconnection() {
    let mut server = start(&with_rules(DEEP));
    let mut client = EventClient::connect(&server, "");
    assert_eq!(client.next("light")["light"], "green");
    send(&server, 7.5);
    assert_eq!(client.next("transition")["event"], "pending");
    let pending_id = client.last_id.clone();
    assert_eq!(client.next("transition")["event"], "firing");
    assert_eq!(client.next("light")["light"], "red");
    drop(client);
    server.kill();
    server.start();
    let resume = format!("last-event-id: {pending_id}\r\n");
    let mut client = EventClient::connect(&server, &resume);
    let change = client.next("transition");
    assert_eq!((&change["event"], &change["labels"]["host"]), (&"firing".into(), &"a".into()));
    assert_eq!(client.next("light")["light"], "red");
    // Without an event stream it is the list.
    assert_eq!(server.get("/v1/alerts").json()["light"], "red");
    server.stop();
}
