//! Whole traces: which are kept, and Tempo's API to read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fixture::{ServerFixture, local_settings};

const JSON: &str = "Content-Type: application/json\r\n";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Trace, span, parent, duration in milliseconds.
type TestSpan = (u32, u32, u32, u64);

/// A request of a service with spans that end at a time.
fn request(service: &str, end: u64, spans: &[TestSpan]) -> Value {
    let span = |&(trace, id, parent, ms): &TestSpan| {
        let mut span = json!({
            "traceId": format!("{trace:032x}"), "spanId": format!("{id:016x}"),
            "name": format!("GET /{service}"), "kind": 2,
            "startTimeUnixNano": (end - ms * 1_000_000).to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": [{ "key": "user.id", "value": { "stringValue": format!("u{id}") } }],
            "events": [{ "timeUnixNano": end.to_string(), "name": "cache miss" }],
            "links": [{ "traceId": "ab".repeat(16), "spanId": "cd".repeat(8) }],
            "status": { "code": if ms > 1000 { 2 } else { 0 }, "message": "too slow" },
        });
        if parent > 0 {
            span["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        span
    };
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let resource = json!({ "attributes": [
        { "key": "service.name", "value": { "stringValue": service } }] });
    let scopes = json!([{ "scope": { "name": "lib" }, "spans": spans }]);
    json!({ "resourceSpans": [{ "resource": resource, "scopeSpans": scopes }] })
}

fn send(it: &ServerFixture, request: &Value) {
    it.post("/v1/traces", JSON, request.to_string()).check(200, "{}");
}

fn get(it: &ServerFixture, path: &str) -> (u16, Value) {
    let answer = it.request("GET", path, "", b"");
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    let json = serde_json::from_slice(&answer.body);
    (answer.status, json.unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn trace(it: &ServerFixture, trace: u32) -> Value {
    let (status, found) = get(it, &format!("/api/v2/traces/{trace:x}"));
    assert_eq!(status, 200, "{found}");
    found
}

fn is_stored(it: &ServerFixture, trace: u32) -> bool {
    get(it, &format!("/api/v2/traces/{trace:x}")).0 == 200
}

fn count(it: &ServerFixture, outcome: &str) -> u64 {
    let labels = [("outcome", outcome)];
    it.intake.meter().counter("topdeck_trace_spans_total", "", &labels).get()
}

/// Spans of 300 traces that are all alike: a few are exemplars.
fn bulk(end: u64) -> Value {
    let mut spans: Vec<TestSpan> = (1000..1300).map(|id| (id, id, 0, 10)).collect();
    spans.push((7, 71, 70, 10));
    request("db", end, &spans)
}

#[test]
fn traces_of_the_tail_are_kept_and_the_bulk_is_dropped() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    send(&it, &bulk(end));
    let (status, found) = get(&it, "/api/v2/traces/7");
    let reason = "is not stored: it was received, and its spans wait for one that is kept";
    assert!(status == 404 && found.to_string().contains(reason), "{found}");
    // A slow span: the one that was received before belongs to it.
    send(&it, &request("shop", end, &[(7, 70, 0, 5000), (7, 72, 70, 10)]));
    let found = trace(&it, 7);
    assert_eq!((&found["status"], &found["topdeck"]["spans"]), (&json!("COMPLETE"), &json!(3)));
    // A late one, and one that is repeated.
    send(&it, &request("cache", end, &[(7, 73, 70, 1)]));
    send(&it, &request("cache", end, &[(7, 73, 70, 1)]));
    assert_eq!(trace(&it, 7)["topdeck"]["spans"], 4);
    let kept = (1000..1300).filter(|trace| is_stored(&it, *trace)).count();
    assert!((1..10).contains(&kept), "{kept} traces of the bulk");
    // They survive a flush.
    it.store.flush().unwrap();
    let found = trace(&it, 7);
    assert_eq!(found["topdeck"]["spans"], 4);
    let resource_spans = found["trace"]["resourceSpans"].as_array().unwrap();
    let of_shop = resource_spans.iter().find(|spans| spans.to_string().contains("GET /shop"));
    let root = json!({
        "traceId": format!("{:032x}", 7), "spanId": format!("{:016x}", 70),
        "name": "GET /shop", "kind": 2,
        "startTimeUnixNano": (end - 5_000_000_000).to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": [{ "key": "user.id", "value": { "stringValue": "u70" } }],
        "events": [{ "timeUnixNano": end.to_string(), "name": "cache miss" }],
        "links": [{ "traceId": "ab".repeat(16), "spanId": "cd".repeat(8) }],
        "status": { "code": 2, "message": "too slow" },
    });
    let scope = &of_shop.unwrap()["scopeSpans"][0];
    assert_eq!((&scope["spans"][0], &scope["scope"]), (&root, &json!({ "name": "lib" })));
    let (status, found) = get(&it, "/v1/status");
    let traces = &found["store"]["traces"];
    assert_eq!((status, &traces["parts"], &traces["head_bytes"]), (200, &json!(1), &json!(0)));
}

#[test]
fn what_is_unusual_about_a_trace_is_said_and_not_mended() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    let spans = [(1, 1, 99, 50), (1, 2, 1, 80), (1, 3, 4, 60), (1, 4, 3, 60)];
    send(&it, &request("a", end, &spans));
    let found = trace(&it, 1);
    let id = |id: u32| json!(format!("{id:016x}"));
    assert_eq!(found["status"], "PARTIAL");
    let message = found["message"].as_str().unwrap();
    assert!(message.starts_with("the parent of 1 span is elsewhere: not received"), "{message}");
    let missing = json!([{ "span_id": id(1), "parent_span_id": id(99) }]);
    assert_eq!(found["topdeck"]["missing_parents"], missing);
    let skew = json!([{ "span_id": id(2), "parent_span_id": id(1),
        "starts_before_ns": 30_000_000, "ends_after_ns": 0 }]);
    assert_eq!(found["topdeck"]["clock_skew"], skew);
    let mut cycles: Vec<Value> = found["topdeck"]["cycles"].as_array().unwrap().clone();
    cycles.sort_by_key(Value::to_string);
    assert_eq!(cycles, [id(3), id(4)]);
    let mut starts: Vec<u64> = found["trace"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| end - span["startTimeUnixNano"].as_str().unwrap().parse::<u64>().unwrap())
        .collect();
    starts.sort_unstable();
    assert_eq!(starts, [50_000_000, 60_000_000, 60_000_000, 80_000_000]);
}

#[test]
fn traces_are_searched_as_in_tempo() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    send(&it, &request("shop", end, &[(1, 1, 0, 5000), (1, 2, 1, 10)]));
    it.store.flush().unwrap();
    // One of them a second time: it counts once.
    send(&it, &request("shop", end, &[(1, 3, 1, 20), (1, 2, 1, 10)]));
    send(&it, &request("db", end - 1_000_000_000, &[(2, 4, 99, 70)]));
    let search = |parameters: &str| {
        let (status, found) = get(&it, &format!("/api/search?{parameters}"));
        assert_eq!(status, 200, "{found}");
        let ids = found["traces"].as_array().unwrap().iter().map(|trace| {
            let id = trace["traceID"].as_str().unwrap();
            u32::from_str_radix(id, 16).unwrap()
        });
        (ids.collect::<Vec<u32>>(), found)
    };
    let (ids, found) = search("");
    assert_eq!(ids, [2, 1], "the latest first");
    let expected = json!({
        "traceID": format!("{:032x}", 1), "rootServiceName": "shop", "rootTraceName": "GET /shop",
        "startTimeUnixNano": (end - 5_000_000_000).to_string(), "durationMs": 5000,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(found["traces"][1][name], *value, "{name}");
    }
    assert_eq!(found["traces"][0]["rootServiceName"], "<root span not yet received>");
    assert_eq!(found["traces"][1]["spanSets"][0]["matched"], 3);
    assert_eq!(search("tags=service.name%3Ddb").0, [2]);
    assert_eq!(search("tags=service.name%3Dshop%20user.id%3Du3").0, [1]);
    assert!(search("tags=service.name%3Ddb%20user.id%3Du3").0.is_empty());
    assert_eq!(search("minDuration=1s").0, [1]);
    assert_eq!(search("maxDuration=1s").0, [2]);
    assert_eq!(search("limit=1").0.len(), 1);
    let q = |text: &str| {
        let text: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        search(&format!("q={text}")).0
    };
    assert_eq!(q("{ resource.service.name = \"shop\" && duration > 4s && status = error }"), [1]);
    assert!(q("{ duration > 4s && span.user.id = \"u3\" }").is_empty(), "one must meet both");
    assert!(q("{ kind != server }").is_empty());
    let past = (end / 1_000_000_000 - 7200, end / 1_000_000_000 - 3600);
    assert!(search(&format!("start={}&end={}", past.0, past.1)).0.is_empty());
    assert_eq!(get(&it, "/api/search?q=%7Ba%3D~1%7D").0, 400);
    assert_eq!(get(&it, "/api/search?q=%7Ba%3D1%7D%26%26%7Bb%3D2%7D").0, 400);
    assert_eq!(get(&it, "/api/search?tags=a").0, 400);
    let names = json!({ "tagNames": ["service.name", "user.id"] });
    assert_eq!(get(&it, "/api/search/tags").1, names);
    let scopes = json!([{ "name": "span", "tags": ["user.id"] },
        { "name": "resource", "tags": ["service.name"] },
        { "name": "intrinsic", "tags": ["duration", "kind", "name", "status"] }]);
    assert_eq!(get(&it, "/api/v2/search/tags").1["scopes"], scopes);
    let values = json!({ "tagValues": ["db", "shop"] });
    assert_eq!(get(&it, "/api/search/tag/service.name/values").1, values);
    let values = json!({ "tagValues": [{ "type": "keyword", "value": "error" },
        { "type": "keyword", "value": "unset" }] });
    assert_eq!(get(&it, "/api/v2/search/tag/status/values").1, values);
}

/// Pages of a search until it is complete: ids of traces, and how many were looked at.
fn pages(it: &ServerFixture, parameters: &str, end: u64) -> Vec<(Vec<u32>, u64)> {
    let mut end = format!("{}.{:09}", end / 1_000_000_000, end % 1_000_000_000);
    let mut pages = Vec::new();
    loop {
        let (status, found) = get(it, &format!("/api/search?{parameters}&end={end}"));
        assert_eq!(status, 200, "{found}");
        let ids = found["traces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|trace| u32::from_str_radix(trace["traceID"].as_str().unwrap(), 16).unwrap());
        pages.push((ids.collect(), found["metrics"]["inspectedTraces"].as_u64().unwrap()));
        match found["topdeck"]["next_end"].as_str() {
            Some(next) => next.clone_into(&mut end),
            None => return pages,
        }
        assert_eq!(found["topdeck"]["is_complete"], false);
        assert!(pages.len() < 20, "{pages:?}");
    }
}

/// The latest part had the latest traces only as far as their clocks and durations were alike: a
/// search listed them with the times of some of their spans, and left out others without a word.
#[test]
fn a_search_that_stops_early_says_where_to_continue() {
    let it = ServerFixture::new();
    let (end, second) = (now(), 1_000_000_000);
    // A long trace whose root is in an earlier part than a late child.
    send(&it, &request("shop", end - 2 * second, &[(3, 30, 0, 20_000)]));
    send(&it, &request("shop", end - 9 * second, &[(1, 10, 0, 1000)]));
    it.store.flush().unwrap();
    send(&it, &request("shop", end - 4 * second, &[(2, 20, 0, 1000)]));
    it.store.flush().unwrap();
    let ahead = end + 600 * second;
    send(&it, &request("db", ahead, &[(3, 31, 30, 10)]));
    let range = |start: u64| format!("start={}", start / second);
    let all = range(end - 100 * second);
    // The child alone is looked at first; its trace started before the others.
    let found = pages(&it, &format!("{all}&limit=1"), end + 1200 * second);
    let listed: Vec<u32> = found.iter().flat_map(|(ids, _)| ids.clone()).collect();
    assert_eq!(listed, [2, 1, 3], "{found:?}");
    assert_eq!(found[0], (vec![2], 3), "the child alone is not enough");
    assert_eq!(found.iter().filter(|(ids, _)| ids.len() > 1).count(), 0);
    let found = pages(&it, &format!("{all}&limit=2"), end);
    let ids = found.iter().map(|(ids, _)| ids.as_slice()).collect::<Vec<_>>();
    assert_eq!(ids, [&[2, 1][..], &[3]], "{found:?}");
    let found = pages(&it, &format!("{all}&limit=3"), end);
    assert_eq!(found, [(vec![2, 1, 3], 3)], "complete at once");
    // Of a trace in several parts, all spans count: for conditions, the duration, and the root.
    let one = format!("{all}&minDuration=500s&tags=service.name%3Ddb");
    assert_eq!(pages(&it, &one, end), [(vec![3], 3)]);
    let (_, found) = get(&it, &format!("/api/search?{one}&end={}", end / second));
    assert_eq!(found["traces"][0]["rootServiceName"], "shop");
    assert_eq!(found["traces"][0]["durationMs"], 622_000);
    // The range includes both ends, to the nanosecond.
    let start = end - 5 * second;
    assert_eq!(pages(&it, &all, start)[0].0, [2, 1, 3]);
    assert_eq!(pages(&it, &all, start - 1)[0].0, [1, 3]);
    let at = |ns: u64| format!("start={}.{:09}", ns / second, ns % second);
    assert_eq!(pages(&it, &at(end - 4 * second), end)[0].0, [2, 3]);
    assert_eq!(pages(&it, &at(end - 4 * second + 1), end)[0].0, [3]);
}

/// Fast traces of the latest part were enough to stop: the answer was empty.
#[test]
fn slow_traces_of_older_parts_are_found_behind_fast_ones() {
    let it = ServerFixture::new();
    let (end, second) = (now(), 1_000_000_000);
    send(&it, &request("shop", end, &[(1, 10, 0, 5000)]));
    it.store.flush().unwrap();
    let ahead = end + 600 * second;
    send(&it, &request("shop", ahead, &[(2, 20, 0, 10), (3, 30, 0, 20)]));
    let all = format!("start={}&limit=2", end / second - 100);
    let search = |parameters: &str| pages(&it, &format!("{all}{parameters}"), ahead + second);
    assert_eq!(search("&minDuration=2s"), [(vec![1], 3)]);
    assert_eq!(search("&maxDuration=2s")[0], (vec![2, 3], 2), "other parts were not read");
    let listed: Vec<u32> = search("").into_iter().flat_map(|(ids, _)| ids).collect();
    assert_eq!(listed, [2, 3, 1]);
}

/// Pages do not divide them.
#[test]
fn traces_that_started_together_are_on_one_page() {
    let it = ServerFixture::new();
    let end = now();
    let of = |trace: u32, ms: u64| (trace, trace, 0, ms);
    send(&it, &request("shop", end, &[of(1, 3000), of(2, 2000), of(3, 2000), of(4, 1000)]));
    let found = pages(&it, "limit=2", end + 1);
    assert_eq!(found, [(vec![4], 4), (vec![2, 3], 4), (vec![1], 4)]);
}

/// The page read up to 120 traces one by one for it.
#[test]
fn operations_that_grew_are_found_in_the_traces_of_a_selection() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    for minute in 0..30 {
        let at = end - u64::from(minute) * 60_000_000_000;
        for (trace, ms) in [(100 + minute, 900), (200 + minute, 8)] {
            send(&it, &request("db", at, &[(trace, 2, 1, ms)]));
            send(&it, &request("shop", at, &[(trace, 1, 0, ms + 12)]));
        }
    }
    let selector = "%7B%22traces.span.metrics.duration%22%2C%22service.name%22%3D%22shop%22%7D";
    let shape = |parameters: &str| {
        let path = format!("/v1/breakdown/trace-shape?selector={selector}&{parameters}");
        let (status, found) = get(&it, &path);
        assert_eq!(status, 200, "{found}");
        found
    };
    let found = shape("above=100ms");
    let side = json!({ "exemplars": 30, "stored": 30 });
    assert_eq!((&found["inside"], &found["outside"]), (&side, &side));
    let exactly = |ms: f64| json!({ "lower": ms * 1e6, "estimate": ms * 1e6, "upper": ms * 1e6 });
    let expected = json!([
        { "service": "db", "name": "GET /db", "inside": exactly(900.0), "outside": exactly(8.0) },
        { "service": "shop", "name": "GET /shop", "inside": exactly(12.0),
            "outside": exactly(12.0) },
    ]);
    assert_eq!(found["operations"].to_string(), expected.to_string());
    // Against another time.
    let ten = shape("above=100ms&from=-10m&baseline_from=-30m&baseline_to=-10m");
    assert_eq!(ten["operations"], json!([]), "too few");
    assert!(ten["inside"]["stored"].as_u64().unwrap() < 12, "{ten}");
    assert!(ten["outside"]["stored"].as_u64().unwrap() > 20, "{ten}");
    for invalid in ["above=x", "from=-1h&to=-2h", "baseline_from=-1h&baseline_to=-2h", "a=b"] {
        let path = format!("/v1/breakdown/trace-shape?selector={selector}&{invalid}");
        assert_eq!(get(&it, &path).0, 400, "{invalid}");
    }
}

#[test]
fn ids_and_encodings_of_requests() {
    let it = ServerFixture::new();
    let end = now() - 2_000_000_000;
    send(&it, &request("shop", end, &[(0x1a, 1, 0, 5000), (0x1a, 2, 9, 10)]));
    assert!(it.request("GET", "/api/echo", "", b"").body == b"echo");
    let long = "1".repeat(33);
    for invalid in ["0", "xyz", &long, &"0".repeat(32)] {
        let (status, found) = get(&it, &format!("/api/traces/{invalid}"));
        assert_eq!(status, 400, "{invalid}: {found}");
    }
    let (status, found) = get(&it, "/api/traces/ff");
    let text = found.to_string();
    assert_eq!(status, 404, "{text}");
    assert!(text.contains("is not stored: its spans are elsewhere"), "{text}");
    let (_, json) = get(&it, "/api/traces/000000000000001A");
    assert_eq!(json, trace(&it, 0x1a)["trace"]);
    let accept = "Accept: application/protobuf\r\n";
    let data = it.request("GET", "/api/traces/1a", accept, b"").body;
    // What it answers may be sent again.
    let again = ServerFixture::new();
    again.post("/v1/traces", "Content-Type: application/x-protobuf\r\n", &data).check(200, "");
    assert_eq!(trace(&again, 0x1a), trace(&it, 0x1a));
    let answer = it.request("GET", "/api/v2/traces/1a", accept, b"").body;
    assert_eq!((answer[0], answer.windows(data.len()).any(|part| part == data)), (0x0a, true));
    let end = b"was kept";
    assert!(answer.ends_with(end) && answer.windows(2).any(|part| part == [3 << 3, 1]));
}

#[test]
fn attributes_are_cut_and_redacted_before_they_are_stored() {
    let exemplars = intake::ExemplarPolicy {
        attributes: Some(vec!["sql".to_owned()]),
        hashed_attributes: vec!["user.id".to_owned()],
        ..Default::default()
    };
    let settings = intake::Settings { exemplars, ..Default::default() };
    let it = ServerFixture::with_intake(local_settings(None), settings).unwrap();
    let mut sent = request("shop", now() - 2_000_000_000, &[(1, 1, 0, 5000)]);
    let attributes = &mut sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"];
    for (name, value) in [("sql", "é".repeat(50_000)), ("password", "secret".to_owned())] {
        let value = json!({ "key": name, "value": { "stringValue": value } });
        attributes.as_array_mut().unwrap().push(value);
    }
    sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] = json!("é".repeat(300));
    send(&it, &sent);
    let root = get(&it, "/api/search").1["traces"][0]["rootTraceName"].clone();
    assert_eq!(root, "é".repeat(128));
    let names = get(&it, "/api/search/tag/name/values").1;
    assert_eq!(names, json!({ "tagValues": ["é".repeat(300)] }));
    let found = trace(&it, 1);
    let text = found.to_string();
    assert!(!text.contains("secret") && !text.contains("\"u1\"") && !text.contains("too slow"));
    assert!(text.contains("\"shop\""), "the service is a label: {text}");
    let span = &found["trace"]["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    let values: Vec<&str> = span["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attribute| attribute["value"]["stringValue"].as_str().unwrap())
        .collect();
    assert_eq!((values[0].len(), values[1].len(), values.len()), (16, 2048, 2));
    let truncated = it.intake.meter().counter("topdeck_trace_spans_truncated_total", "", &[]);
    assert_eq!(truncated.get(), 1);
}

#[test]
fn a_trace_with_very_many_spans_is_bounded() {
    let traces = intake::TracePolicy { trace_bytes_max: 64 << 10, ..Default::default() };
    let settings = intake::Settings { traces, ..Default::default() };
    let it = ServerFixture::with_intake(local_settings(None), settings).unwrap();
    let end = now() - 2_000_000_000;
    for part in 0..4 {
        let spans: Vec<TestSpan> =
            (1..2000).map(|id| (1, part * 10_000 + id, 0, u64::from(id))).collect();
        send(&it, &request("shop", end, &spans));
    }
    let found = trace(&it, 1);
    assert_eq!((&found["status"], &found["topdeck"]["is_cut"]), (&json!("PARTIAL"), &json!(true)));
    let message =
        "spans were left out: the trace exceeds its size limit, or cannot be read as a whole";
    assert_eq!(found["message"], message);
    let stored = found["topdeck"]["spans"].as_u64().unwrap();
    assert!((100..400).contains(&stored), "{stored} spans");
    assert_eq!(count(&it, "kept"), stored);
    assert_eq!(count(&it, "over_trace_limit"), 4 * 1999 - stored);
}

#[test]
fn spans_wait_for_a_limited_time() {
    let traces = intake::TracePolicy { buffer_time: Duration::ZERO, ..Default::default() };
    let settings = intake::Settings { traces, ..Default::default() };
    let it = ServerFixture::with_intake(local_settings(None), settings).unwrap();
    let end = now() - 2_000_000_000;
    send(&it, &bulk(end));
    send(&it, &request("shop", end, &[(7, 70, 0, 5000)]));
    assert_eq!(trace(&it, 7)["topdeck"]["spans"], 1);
    let (kept, dropped) = (count(&it, "kept"), count(&it, "dropped"));
    assert_eq!(kept + dropped, 302, "{kept} kept");
    let disabled = intake::TracePolicy { is_enabled: false, ..Default::default() };
    let settings = intake::Settings { traces: disabled, ..Default::default() };
    let it = ServerFixture::with_intake(local_settings(None), settings).unwrap();
    send(&it, &request("shop", end, &[(7, 70, 0, 5000)]));
    assert!(!is_stored(&it, 7));
}

#[test]
fn spans_of_zipkin_have_parents() {
    let it = ServerFixture::new();
    let span = |id: u32, parent: Option<u32>, micros: u64| {
        let mut span = json!({ "traceId": format!("{:016x}", 5), "id": format!("{id:016x}"),
            "kind": "SERVER", "name": "get /", "timestamp": now() / 1000 - micros,
            "duration": micros, "localEndpoint": { "serviceName": "shop" } });
        if let Some(parent) = parent {
            span["parentId"] = json!(format!("{parent:016x}"));
        }
        span
    };
    let spans = json!([span(1, None, 9_000_000), span(2, Some(1), 2500), span(3, Some(4), 1)]);
    assert_eq!(it.post("/api/v2/spans", JSON, spans.to_string()).status, 202);
    let found = trace(&it, 5);
    let missing =
        json!([{ "span_id": format!("{:016x}", 3), "parent_span_id": format!("{:016x}", 4) }]);
    assert_eq!(found["topdeck"]["spans"], 3);
    assert_eq!(found["topdeck"]["missing_parents"], missing);
}
