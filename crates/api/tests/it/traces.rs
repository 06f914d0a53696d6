//! Traces over HTTP: spans become histograms, counters and exemplars.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fixture::ServerFixture;

const JSON: &str = "Content-Type: application/json\r\n";
const DURATIONS: &str = r#"{"traces.span.metrics.duration"}"#;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A request with a span of each of these durations, in milliseconds.
fn request(end: u64, durations: &[u64]) -> String {
    let spans = durations.iter().zip(1..).map(|(ms, id)| {
        json!({
            "traceId": format!("{id:032x}"), "spanId": format!("{id:016x}"),
            "name": format!("GET /users/{id}"), "kind": 2,
            "startTimeUnixNano": (end - ms * 1_000_000).to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": [{ "key": "user.id", "value": { "stringValue": format!("u{id}") } }],
            "status": { "code": if *ms > 100 { 2 } else { 0 } },
        })
    });
    let spans: Vec<Value> = spans.collect();
    let resource = json!({ "attributes": [
        { "key": "service.name", "value": { "stringValue": "shop" } }] });
    let scopes = json!([{ "spans": spans }]);
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scopes }] }).to_string()
}

fn query(it: &ServerFixture, query: &str) -> Value {
    it.store.catch_up().unwrap();
    let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = it.request("GET", &format!("/api/v1/query?query={query}"), "", b"");
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(answer["status"], "success", "{answer}");
    answer["data"]["result"].clone()
}

#[test]
fn spans_are_found_by_the_names_of_dashboards() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    it.post("/v1/traces", JSON, request(end, &[10, 20, 30, 400])).check(200, "{}");
    let by = "by (service_name, span_name, span_kind, status_code)";
    let calls = format!("sum {by} (exact_increase(traces_span_metrics_calls_total[1h]))");
    let calls = query(&it, &calls);
    let value = |code: &str| {
        let labels = json!({ "service_name": "shop", "span_name": "GET /users/{n}",
            "span_kind": "SPAN_KIND_SERVER", "status_code": code });
        let found = calls.as_array().unwrap().iter().find(|found| found["metric"] == labels);
        found.unwrap_or_else(|| panic!("{code} in {calls}"))["value"][1].clone()
    };
    assert_eq!((value("STATUS_CODE_UNSET"), value("STATUS_CODE_ERROR")), (json!("3"), json!("1")));
    // The unit is that of the name.
    for (name, sum) in [("milliseconds", "460"), ("seconds", "0.46")] {
        let name = format!("traces_span_metrics_duration_{name}");
        let count = format!("sum(exact_increase({name}_count{{job=\"shop\"}}[1h]))");
        assert_eq!(query(&it, &count)[0]["value"][1], "4");
        let sums = format!("histogram_sum(sum(exact_increase({name}[1h])))");
        assert_eq!(query(&it, &sums)[0]["value"][1], sum);
    }
}

#[test]
fn spans_are_exemplars() {
    let it = ServerFixture::new();
    let end = now() - 1_000_000_000;
    it.post("/v1/traces", JSON, request(end, &[10, 20, 30, 400])).check(200, "{}");
    it.store.catch_up().unwrap();
    let path = "/v1/exemplars?selector=traces.span.metrics.duration&above=100ms&from=-10m";
    let answer = it.request("GET", path, "", b"");
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    let [found] = &answer["exemplars"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(found["trace_id"], format!("{:032x}", 4));
    assert_eq!((&found["value"], &found["source"]), (&json!(400.0), &json!("span")));
    assert_eq!(
        (&found["attributes"]["user.id"], &found["is_maximum"]),
        (&json!("u4"), &json!(true))
    );
    assert_eq!(
        (&answer["count"]["estimate"], &found["weight"]),
        (&json!(1), &json!(1.0)),
        "{answer}"
    );
}

#[test]
fn bodies_are_compressed_and_rejected_spans_reported() {
    let it = ServerFixture::new();
    let end = now() - 1_000_000_000;
    let body = request(end, &[10, 20]);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let headers = |encoding: &str| format!("{JSON}Content-Encoding: {encoding}\r\n");
    it.post("/v1/traces", &headers("gzip"), gzip.finish().unwrap()).check(200, "{}");
    assert_eq!(it.count(DURATIONS), 2);
    let body = body.replace(&format!("{:016x}\"", 2), "7\"");
    let zstd = zstd::encode_all(body.as_bytes(), 1).unwrap();
    let answer = it.post("/v1/traces", &headers("zstd"), zstd);
    answer.check(200, "\"rejectedSpans\":\"1\"");
    answer.check(200, "a trace id of 16 bytes");
    assert_eq!(it.count(DURATIONS), 3);
    let count = |outcome| {
        let labels = [("outcome", outcome)];
        it.intake.meter().counter("topdeck_spans_received_total", "", &labels).get()
    };
    assert_eq!((count("measured"), count("malformed_id")), (3, 1));
    it.post("/v1/traces", JSON, "{\"resourceSpans\":7}")
        .check(400, "invalid OTLP request: byte 17");
    it.post("/v1/traces", "Content-Type: text/plain\r\n", "")
        .check(415, "unsupported content type");
    assert_eq!(it.count(DURATIONS), 3);
}

#[test]
fn zipkin_is_measured_as_well() {
    let it = ServerFixture::new();
    let span = |id: u64, micros: u64| {
        json!({ "traceId": format!("{id:016x}"), "id": format!("{id:016x}"), "kind": "SERVER",
            "name": format!("get /users/{id}"), "timestamp": now() / 1000 - micros,
            "duration": micros, "localEndpoint": { "serviceName": "shop" } })
    };
    let spans = json!([span(1, 1500), span(2, 2500), span(2, 2500)]);
    let answer = it.post("/api/v2/spans", JSON, spans.to_string());
    assert_eq!((answer.status, answer.body.len()), (202, 0), "{answer:?}");
    assert_eq!(it.count(r#"{"traces.span.metrics.duration","span.name"="get /users/{n}"}"#), 2);
    it.post("/api/v2/spans", "", "{}")
        .check(400, "invalid Zipkin request: byte 0: expected a list");
    let protobuf = "Content-Type: application/x-protobuf\r\n";
    it.post("/api/v2/spans", protobuf, "").check(415, "expected application/json");
}
