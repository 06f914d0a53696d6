//! Replays over HTTP: answers, limits, one at a time, cancellation.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::Value;

use crate::test_server::{NOW, START, TestServer};

/// Latencies of host `b` are 100 to 1000 ms, ten a minute; `depth` is 0.5 more than the minute.
const RULES: &str = "
groups:
- name: g
  rules:
  - alert: Deep
    expr: depth > 30
    for: 5m
  - alert: Slow
    expr: histogram_quantile(0.9, sum by (host) (rate(latency[5m]))) > 550
  - alert: Absent
    expr: nothing > 1
  - record: depth:twice
    expr: 2 * depth
";

async fn post(server: &TestServer, uri: &str, rules: &str) -> (StatusCode, String) {
    let request = Request::post(uri).body(Body::from(rules.to_owned())).unwrap();
    server.send_request(request).await
}

async fn replay(server: &TestServer, parameters: &str, rules: &str) -> Value {
    let uri = format!("/v1/rules/replay?from={START}ns&to={NOW}ns{parameters}");
    let (status, text) = post(server, &uri, rules).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn summaries(answer: &Value) -> String {
    let rules = answer["rules"].as_array().unwrap().iter();
    let line = |rule: &Value| {
        format!("{}: {}\n", rule["name"].as_str().unwrap(), rule["summary"].as_str().unwrap())
    };
    rules.map(line).collect()
}

#[tokio::test]
async fn a_rule_file_is_replayed_with_a_sentence_per_rule() {
    let server = TestServer::new();
    let answer = replay(&server, "&interval=1m", RULES).await;
    let text = summaries(&answer);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Deep: would have fired 1 time, "), "{text}");
    assert!(lines[0].ends_with(" min in all"), "{text}");
    assert!(lines[1].starts_with("Slow: would have fired 1 time, "), "{text}");
    assert!(lines[1].ends_with(" above 550 ms"), "{text}");
    assert_eq!(lines[2], "Absent: no data in the range: nothing; would not have fired");
    assert!(lines[3].starts_with("depth:twice: ") && lines[3].ends_with(" evaluations"), "{text}");
    // Five of the ten values of host `b` in each minute are above it.
    let above = &answer["rules"][1]["above"];
    let count = |name: &str| above[name].as_f64().unwrap();
    assert!((270.0..=300.0).contains(&count("requests")), "{above}");
    assert!(count("lower") <= count("requests") && count("requests") <= count("upper"));
    assert_eq!(above["threshold"], "550");
    let deep = &answer["rules"][0]["alerts"][0];
    assert_eq!(deep["labels"]["host"], "a");
    let states: Vec<&str> = deep["transitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["pending", "firing"]);
    // Nothing was stored.
    assert_eq!(
        server.json("/api/v1/query?query=ALERTS").await["data"]["result"],
        serde_json::json!([])
    );
}

/// The same latencies; a formula reads the first rule.
const OWN_RULES: &str = "
[[rule]]
name = 'Slow'
select = 'latency'
by = ['host']
[[rule.criteria]]
severity = 2
quantile = 0.9
above = '550ms'

[[rule]]
name = 'Absent'
select = 'nothing'
[[rule.criteria]]
severity = 2
above = 1

[[rule]]
name = 'Any'
formula = 'Slow or Absent'
";

#[tokio::test]
async fn own_rules_are_replayed_with_a_sentence_per_rule() {
    let server = TestServer::new();
    let answer = replay(&server, "&file=/etc/shop.toml", OWN_RULES).await;
    let text = summaries(&answer);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Slow: would have fired 1 time, "), "{text}");
    assert!(lines[0].ends_with(" above 550ms"), "{text}");
    assert_eq!(lines[1], "Absent: no data in the range: nothing; would not have fired");
    assert!(lines[2].starts_with("Any: would have fired 1 time, "), "{text}");
    // Five of the ten values of host `b` in each minute are above it.
    let above = &answer["rules"][0]["above"];
    assert!((270.0..=300.0).contains(&above["requests"].as_f64().unwrap()), "{above}");
    // A formula is replayed with the rules that it reads.
    let any = replay(&server, "&file=shop.toml&rule=Any", OWN_RULES).await;
    assert_eq!(summaries(&any), format!("{}\n", lines[2]));
    // Without a name, the type of the body tells.
    let request = Request::post(format!("/v1/rules/replay?from={START}ns&to={NOW}ns"))
        .header("content-type", "application/toml; charset=utf-8")
        .body(Body::from(OWN_RULES))
        .unwrap();
    let (status, text) = server.send_request(request).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains("would have fired 1 time"), "{text}");
}

#[tokio::test]
async fn one_rule_can_be_replayed() {
    let server = TestServer::new();
    let answer = replay(&server, "&rule=Deep&interval=30s", RULES).await;
    let deep = summaries(&answer);
    assert!(deep.starts_with("Deep: would have fired 1 time, ") && deep.lines().count() == 1);
    let (status, text) = post(&server, "/v1/rules/replay?rule=Dep", RULES).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("Deep, Slow"), "{text}");
}

#[tokio::test]
async fn a_bad_rule_is_named_and_the_others_are_replayed() {
    let server = TestServer::new();
    let rules = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'depth >'}\n  \
                 - {alert: B, expr: 'depth > 40'}\n";
    let answer = replay(&server, "&file=/etc/rules.yaml", rules).await;
    assert!(summaries(&answer).starts_with("B: would have fired 1 time, "), "{answer}");
    let problem = &answer["problems"][0];
    assert_eq!(problem["line"], 4);
    assert!(problem["text"].as_str().unwrap().starts_with("/etc/rules.yaml:4:"), "{problem}");
    let (status, text) = post(&server, "/v1/rules/replay", &rules.replace("40", ">")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("cannot replay the rule file: rules.yaml:4:"), "{text}");
    for (uri, body, expected) in [
        ("/v1/rules/replay", "groups: [", "cannot replay the rule file: rules.yaml:"),
        ("/v1/rules/replay", "", "cannot replay the rule file: it has no rules"),
        ("/v1/rules/replay?from=now&to=-1h", RULES, "from is not before to"),
        ("/v1/rules/replay?step=1", RULES, "unknown parameter"),
    ] {
        let (status, text) = post(&server, uri, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let (status, text) = post(&server, "/v1/rules/replay", &"#".repeat((1 << 20) + 1)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("the size limit is 1048576 bytes"), "{text}");
}

#[tokio::test]
async fn too_many_evaluations_are_rejected() {
    let server = TestServer::new();
    let (status, text) = post(&server, "/v1/rules/replay?from=-100d&interval=10s", RULES).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(text.contains("limit of 500000 evaluations exceeded ("), "{text}");
}

#[tokio::test]
async fn one_replay_runs_at_a_time() {
    let server = TestServer::new();
    let idle = server.json("/v1/rules/replay").await;
    assert_eq!((&idle["is_running"], &idle["total"]), (&Value::Bool(false), &Value::Null));
    let permit = server.context.queries.replay_lane.enter().unwrap();
    permit.record(3, 10);
    let (status, text) = post(&server, "/v1/rules/replay", RULES).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(text.contains("another replay is running, 3 of 10 evaluations done"), "{text}");
    let running = server.json("/v1/rules/replay").await;
    assert_eq!((&running["evaluations"], &running["total"]), (&3.into(), &10.into()));
    drop(permit);
    replay(&server, "", RULES).await;
}

/// A body that does not end.
struct SlowBody;

impl http_body::Body for SlowBody {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

/// It held the lane, which has place for one.
#[tokio::test]
async fn a_slow_upload_does_not_keep_others_from_replaying() {
    let server = TestServer::new();
    let request =
        Request::post("/v1/rules/replay?file=a.toml").header("content-type", "application/json");
    let upload = server.respond(request.body(Body::new(SlowBody)).unwrap());
    tokio::select! {
        biased;
        _ = upload => panic!("the upload does not end"),
        _ = replay(&server, "", RULES) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_ends_when_the_client_disconnects() {
    let server = std::sync::Arc::new(TestServer::new());
    let lane = std::sync::Arc::clone(&server.context.queries.replay_lane);
    let own = std::sync::Arc::clone(&server);
    let client = tokio::spawn(async move {
        // 400,000 evaluations.
        let uri = "/v1/rules/replay?from=-100000s&interval=1s";
        post(&own, uri, RULES).await
    });
    let wait_until = async |is_reached: &dyn Fn() -> bool| {
        let wait = async {
            while !is_reached() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.expect("within a minute");
    };
    wait_until(&|| lane.running().is_some_and(|(done, _)| done > 0)).await;
    client.abort();
    wait_until(&|| lane.running().is_none()).await;
    let permit = lane.enter().expect("the lane is free");
    drop(permit);
    let status = server.get("/metrics").await.1;
    let mut lines = status.lines();
    let cancelled = lines.find(|line| line.starts_with("topdeck_queries_cancelled_total"));
    assert!(cancelled.is_some_and(|line| line.ends_with(" 1")), "{cancelled:?}");
}

/// Lines of 24 windows of 600 values that are not those of host `b`.
fn baseline() -> String {
    let mut lines = String::new();
    for window in 0..24 {
        let mut histogram = hist::Histogram::default();
        (0..600).for_each(|value| histogram.record(f64::from(value % 7 + 1)));
        let times = (window * 3_600_000_000_000, (window + 1) * 3_600_000_000_000);
        let unit = Some(&decode::Unit::Milliseconds);
        decode::frames::write_histogram(&mut lines, "", [], times, unit, &histogram);
    }
    lines
}

#[tokio::test]
async fn rules_are_replayed_with_the_files_that_they_name() {
    let rules = "[[rule]]\nname = 'Shape'\nselect = 'latency{host=\"b\"}'\nwindow = '1h'\n\
                 [[rule.criteria]]\nseverity = 3\nshape_of = { file = 'day.frames' }\n";
    let server = TestServer::new();
    let post = async |body: String| {
        let uri = format!("/v1/rules/replay?from={START}ns&to={NOW}ns&file=shop.toml");
        let request = Request::post(uri).header("content-type", "application/json");
        server.send_request(request.body(Body::from(body)).unwrap()).await
    };
    let files = serde_json::json!({ "day.frames": baseline() });
    let body = serde_json::json!({ "rules": rules, "files": files });
    let (status, text) = post(body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let sentences = summaries(&answer);
    assert!(sentences.starts_with("Shape: would have fired 1 time, "), "{sentences}");
    // The lane is free again, and the others are errors that say what is wrong.
    for (body, expected) in [
        (serde_json::json!({ "rules": rules }).to_string(), "the request does not have the file"),
        (serde_json::json!({ "rule": rules }).to_string(), "unknown field"),
        ("[]".to_owned(), "invalid body"),
    ] {
        let (status, text) = post(body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let large = "x".repeat(17 << 20);
    let (status, text) = post(large).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains("16777216 bytes"), "{text}");
}
