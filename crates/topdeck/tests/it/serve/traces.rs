//! Whole traces from a sender to Tempo's API: through an agent, through kill -9, and late spans.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// Sends a span; of a trace of its own series the first is the longest, so it is an exemplar.
fn send(server: &ServerProcess, trace: u32, id: u32, parent: u32, name: &str) {
    let now = now_ns();
    let mut span = json!({
        "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"), "name": name,
        "startTimeUnixNano": (now - 2_000_000_000).to_string(), "endTimeUnixNano": now.to_string(),
    });
    if parent > 0 {
        span["parentSpanId"] = json!(format!("{parent:016x}"));
    }
    let request = json!({ "resourceSpans": [{ "scopeSpans": [{ "spans": [span] }] }] });
    let kind = [("Content-Type", "application/json")];
    let body = request.to_string();
    let sent = request_at(server.address(), "POST", "/v1/traces", &kind, body.as_bytes());
    assert_eq!(sent.expect("it answers").status, 200);
}

fn trace(server: &ServerProcess, trace: u32) -> Option<Value> {
    let answer = server.get(&format!("/api/v2/traces/{trace:x}"));
    (answer.status == 200).then(|| answer.json())
}

fn spans(server: &ServerProcess, id: u32) -> u64 {
    trace(server, id).map_or(0, |found| found["topdeck"]["spans"].as_u64().expect("a number"))
}

#[test]
fn whole_traces_survive_a_kill_and_late_spans_follow() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    // Killed in the middle of a stream: each trace that was acknowledged is there.
    (1..=20).for_each(|trace| {
        send(&server, trace, 1, 0, &format!("op {}", ["a", "b"][trace as usize % 2]))
    });
    let before: Vec<u32> = (1..=20).filter(|id| trace(&server, *id).is_some()).collect();
    assert!(before.len() >= 2, "{before:?}");
    send(&server, 99, 1, 0, "killed");
    server.kill();
    server.start();
    let after: Vec<u32> = (1..=20).filter(|id| trace(&server, *id).is_some()).collect();
    assert_eq!(before, after);
    assert_eq!(spans(&server, 99), 1);
    send(&server, 99, 2, 1, "killed");
    send(&server, 99, 3, 1, "another");
    assert_eq!(spans(&server, 99), 3, "late spans follow after a restart");
    let flush = server.dir.path("data").join("store");
    server.stop();
    let flushed = crate::topdeck(&["store", "flush", flush.to_str().expect("UTF-8")], b"");
    assert_eq!(flushed.status, 0, "{}", flushed.stderr);
    assert!(std::fs::read_dir(flush.join("traces")).expect("a directory").count() > 0);
    server.start();
    let found = trace(&server, 99).expect("it is in a part");
    assert_eq!((&found["status"], &found["topdeck"]["spans"]), (&json!("COMPLETE"), &json!(3)));
    server.stop();
}

#[test]
fn whole_traces_are_forwarded_by_an_agent() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let url = format!("http://127.0.0.1:{}", server.port);
    let remote = format!("[[remote]]\nname = \"site\"\nurl = \"{url}\"\n");
    let mut agent = ServerProcess::new("agent", &remote);
    agent.start();
    send(&agent, 5, 1, 0, "root");
    send(&agent, 5, 2, 1, "child");
    wait_until("they arrive", || spans(&server, 5) == 2);
    agent.kill();
    agent.start();
    // The journal of the agent was forwarded once.
    send(&agent, 6, 1, 0, "other");
    wait_until("it arrives", || spans(&server, 6) == 1);
    let found = trace(&server, 5).expect("it is stored");
    assert_eq!((&found["status"], &found["topdeck"]["spans"]), (&json!("COMPLETE"), &json!(2)));
    agent.stop();
    server.stop();
}
