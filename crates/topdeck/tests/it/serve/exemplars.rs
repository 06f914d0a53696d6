//! Exemplars from a sender to the terminal: through kill -9, and through an agent.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

const SETTINGS: &str = "[exemplars]\nattributes = [\"user\", \"route\"]\nhash_attributes = \
    [\"user\"]\ntrace_url = \"https://traces.example/{trace_id}\"\n";

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64
}

/// Sends a histogram of a million values below 100 ms and two above a second, of which one and two
/// small ones are exemplars.
fn send(server: &ServerProcess) {
    let now = now_ns();
    let exemplar = |value: f64, trace: &str, user: &str| {
        let attribute =
            |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        json!({
            "timeUnixNano": (now - 1_000_000_000).to_string(), "asDouble": value,
            "traceId": trace, "spanId": "00f067aa0ba902b7",
            "filteredAttributes": [
                attribute("user", user), attribute("route", "/pay"), attribute("password", "x"),
            ],
        })
    };
    let point = json!({
        "startTimeUnixNano": (now - 60_000_000_000).to_string(), "timeUnixNano": now.to_string(),
        "attributes": [{"key": "service", "value": {"stringValue": "shop"}}],
        "count": "1000002", "sum": 50_002_500.0, "bucketCounts": ["1000000", "0", "2"],
        "explicitBounds": [100.0, 1000.0],
        "exemplars": [
            exemplar(50.0, "00000000000000000000000000000001", "ann"),
            exemplar(55.0, "00000000000000000000000000000002", "bob"),
            exemplar(2500.0, "0af7651916cd43dd8448eb211c80319c", "ann"),
            exemplar(1.0, "zz", "eve"),
        ],
    });
    let metric = json!({
        "name": "latency", "unit": "ms",
        "histogram": {"aggregationTemporality": 1, "dataPoints": [point]},
    });
    let request = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]});
    let kind = [("Content-Type", "application/json")];
    let body = request.to_string();
    let sent = request_at(server.address(), "POST", "/v1/metrics", &kind, body.as_bytes());
    let sent = sent.expect("it answers");
    assert_eq!((sent.status, &*sent.text()), (200, "{}\n"));
}

fn command(server: &ServerProcess, options: &[&str]) -> String {
    let url = format!("http://127.0.0.1:{}", server.port);
    let fixed = ["exemplars", "latency{service=\"shop\"}", "--server", &url];
    let run = topdeck(&[&fixed, options].concat(), b"");
    assert_eq!(run.status, 0, "{}", run.stderr);
    run.stdout
}

fn list(server: &ServerProcess, options: &[&str]) -> Value {
    serde_json::from_str(&command(server, &[options, &["--json"]].concat())).expect("JSON")
}

#[test]
fn exemplars_survive_a_kill_and_are_listed_with_the_exact_count() {
    let mut server = ServerProcess::new("serve", SETTINGS);
    server.start();
    send(&server);
    let above = ["--above", "1s", "--last", "1h"];
    let check = |server: &ServerProcess| {
        let answer = list(server, &above);
        let count = json!({"lower": 2, "estimate": 2, "upper": 2});
        assert_eq!((&answer["count"], &answer["kept"]), (&count, &json!(1)), "{answer}");
        let found = &answer["exemplars"][0];
        assert_eq!(found["value"], 2500.0, "the exact value, not a bucket: {found}");
        // The bucket above a second does not say where the two values are.
        let weight = found["weight"].as_f64().expect("a number");
        assert!((1.0..=2.0).contains(&weight) && found["is_maximum"] == true, "{found}");
        let url = "https://traces.example/0af7651916cd43dd8448eb211c80319c";
        assert_eq!(
            (&found["trace_url"], &found["span_id"]),
            (&json!(url), &json!("00f067aa0ba902b7"))
        );
        assert_eq!(found["attributes"]["route"], "/pay");
        let user = found["attributes"]["user"].as_str().expect("a hash");
        assert!(user.len() == 16 && found["attributes"]["password"].is_null(), "{found}");
        let all = list(server, &[]);
        assert_eq!((&all["count"]["estimate"], &all["kept"]), (&json!(1_000_002), &json!(3)));
        answer["exemplars"].clone()
    };
    let before = check(&server);
    server.kill();
    server.start();
    assert_eq!(check(&server), before);
    // A clean stop and a repeated export.
    server.stop();
    server.start();
    assert_eq!(check(&server), before);
    let text = command(&server, &above);
    let expected = [
        "latency{service=\"shop\"}\n",
        "2 values, 1 exemplar kept",
        "max 2.5 s",
        "https://traces.example/",
        "route=/pay",
    ];
    expected.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
    let path = "/api/v1/query?query=topdeck_exemplars_rejected_total{reason=\"malformed_id\"}";
    let path = path.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
    wait_until("it counts", || {
        server.get(&path).json()["data"]["result"][0]["value"][1].is_string()
    });
    server.stop();
}

#[test]
fn exemplars_are_forwarded_by_an_agent() {
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let url = format!("http://127.0.0.1:{}", server.port);
    let remote = format!("{SETTINGS}[[remote]]\nname = \"site\"\nurl = \"{url}\"\n");
    let mut agent = ServerProcess::new("agent", &remote);
    agent.start();
    send(&agent);
    let path = "/v1/exemplars?selector=latency";
    wait_until("they arrive", || server.get(path).status == 200);
    let answer = server.get(path).json();
    assert_eq!(answer["kept"], 3, "{answer}");
    let user = answer["exemplars"][0]["attributes"]["user"].as_str().expect("a hash");
    assert_eq!(user.len(), 16, "the agent redacts before it writes: {answer}");
    agent.stop();
    server.stop();
}
