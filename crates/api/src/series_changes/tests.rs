//! Series are deleted, renamed and retired on a running server, after a dry run.

use axum::body::Body;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::{Request, StatusCode};
use model::{Sample, SampleValue, Series, SeriesKind};
use serde_json::Value;

use crate::test_server::{NOW, START, TestServer};

async fn post(server: &TestServer, uri: &str) -> (StatusCode, Value) {
    let request = Request::post(uri).body(Body::empty()).unwrap();
    let (status, text) = server.send_request(request).await;
    (status, serde_json::from_str(&text).unwrap())
}

async fn count(server: &TestServer, selector: &str) -> Option<u64> {
    let (status, text) = server.get(&format!("/v1/histogram?selector={selector}")).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    (status == StatusCode::OK).then(|| answer["count"].as_u64().unwrap())
}

/// One value of `latency` without a unit.
fn send_without_unit(server: &TestServer) {
    let series = Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_label("host", "typo")
        .validate()
        .unwrap();
    let mut histogram = Histogram::default();
    histogram.record(5.0);
    let value = SampleValue::Histogram(Box::new(histogram));
    server.send(&series, Sample { start: NOW - store::MINUTE, end: NOW, value });
}

#[tokio::test]
async fn dry_run_reports_what_would_be_deleted_and_deletes_nothing() {
    let server = TestServer::new();
    let (status, answer) = post(&server, "/v1/series/delete?selector=latency").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!((&answer["dry_run"], &answer["series"]), (&true.into(), &2.into()));
    assert_eq!(answer["first_ns"], START);
    assert_eq!(answer["examples"][0]["labels"]["host"], "a");
    assert_eq!(answer["rows"], 120);
    assert_eq!(count(&server, "latency").await, Some(1200));
}

#[tokio::test]
async fn series_are_deleted_on_a_running_server() {
    let server = TestServer::new();
    let delete = "/v1/series/delete?selector=latency%7Bhost%3D%22b%22%7D&dry_run=false";
    let (status, answer) = post(&server, &format!("{delete}&expected_series=2")).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{answer}");
    let (status, answer) = post(&server, &format!("{delete}&expected_series=1")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!((&answer["rows"], &answer["removed_series"]), (&60.into(), &1.into()));
    assert_eq!(count(&server, "latency").await, Some(600));
    let (status, answer) = post(&server, delete).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
}

#[tokio::test]
async fn part_of_a_series_is_deleted() {
    let server = TestServer::new();
    let half = START + 30 * store::MINUTE;
    let delete = format!("/v1/series/delete?selector=latency&to={half}ns&dry_run=false");
    let (_, answer) = post(&server, &delete).await;
    assert_eq!((&answer["rows"], &answer["removed_series"]), (&60.into(), &0.into()));
    assert_eq!(count(&server, "latency").await, Some(600));
}

#[tokio::test]
async fn renamed_series_has_all_its_values_under_the_new_name() {
    let server = TestServer::new();
    let rename = "/v1/series/rename?selector=latency&name=request.duration";
    let (status, answer) = post(&server, rename).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["renamed"][0]["name"], "request.duration");
    assert_eq!(count(&server, "request.duration").await, None);
    let (status, answer) = post(&server, &format!("{rename}&dry_run=false")).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!((&answer["rows"], &answer["removed_series"]), (&120.into(), &2.into()));
    assert_eq!(count(&server, "request.duration").await, Some(1200));
    assert_eq!(count(&server, "latency").await, None);
    let names = server.json("/v1/metric_names").await.to_string();
    assert!(!names.contains("\"latency\"") && names.contains("request.duration"), "{names}");
    // Counters and gauges too.
    for (old, new) in [("requests_total", "calls_total"), ("depth", "queue_depth")] {
        let query = |name: &str| format!("/v1/query?query={name}");
        let before = server.json(&query(old)).await["data"][0]["points"].clone();
        let rename = format!("/v1/series/rename?selector={old}&name={new}&dry_run=false");
        let (status, answer) = post(&server, &rename).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(server.json(&query(new)).await["data"][0]["points"], before);
    }
}

#[tokio::test]
async fn value_without_unit_gets_the_unit_of_its_metric() {
    let server = TestServer::new();
    send_without_unit(&server);
    let rename = "/v1/series/rename?selector=latency&unit=ms&dry_run=false";
    let (status, answer) = post(&server, rename).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // Those that have the unit already are not renamed.
    assert_eq!((&answer["series"], &answer["rows"]), (&1.into(), &1.into()));
    assert_eq!(count(&server, "latency").await, Some(1201));
    let (status, answer) = post(&server, rename).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
}

#[tokio::test]
async fn rename_onto_rows_of_the_same_times_is_rejected() {
    let server = TestServer::new();
    let copy = Series::new("copy", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ms")
        .with_label("host", "a")
        .validate()
        .unwrap();
    let value = SampleValue::Histogram(Box::default());
    let end = START + store::MINUTE;
    server.send(&copy, Sample { start: START, end, value });
    for dry_run in ["", "&dry_run=false"] {
        let rename = format!("/v1/series/rename?selector=latency&name=copy{dry_run}");
        let (status, answer) = post(&server, &rename).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert!(
            answer
                .to_string()
                .contains("it has 1 sample of the same times; delete those of one first"),
            "{answer}"
        );
    }
    assert_eq!(count(&server, "latency").await, Some(1200));
}

#[tokio::test]
async fn metric_stays_answerable_beside_a_value_without_unit() {
    let server = TestServer::new();
    send_without_unit(&server);
    for path in ["/v1/histogram?selector=latency&above=5ms", "/v1/heatmap?selector=latency"] {
        let answer = server.json(path).await;
        let total = if path.contains("heatmap") { &answer["total"] } else { &answer };
        assert_eq!((&answer["unit"], &total["count"]), (&"ms".into(), &1200.into()));
        assert_eq!(answer["series"], 2);
        assert_eq!(answer["left_out"]["series"], 1);
        assert_eq!(answer["left_out"]["examples"][0]["labels"]["host"], "typo");
    }
    let answer = server.json("/v1/breakdown?selector=latency&above=5ms").await;
    assert_eq!((&answer["unit"], &answer["left_out"]["series"]), (&"ms".into(), &1.into()));
    // Selected alone, it is answered.
    let alone = server.json("/v1/histogram?selector=latency{host=\"typo\"}").await;
    assert_eq!((&alone["unit"], &alone["count"]), (&Value::Null, &1.into()));
    assert_eq!(alone["left_out"], Value::Null);
}

/// Labels of the series that PromQL finds at a time.
async fn current(server: &TestServer, query: &str, time: i64) -> Vec<Value> {
    let seconds = time / store::SECOND;
    let answer = server.json(&format!("/api/v1/query?query={query}&time={seconds}")).await;
    let result = answer["data"]["result"].as_array().unwrap();
    result.iter().map(|series| series["metric"]["host"].clone()).collect()
}

#[tokio::test]
async fn retired_series_of_every_kind_is_not_current_and_keeps_its_data() {
    let server = TestServer::new();
    let soon = NOW + store::MINUTE;
    for name in ["latency", "requests_total", "depth"] {
        let before = server.json(&format!("/v1/query?query={name}&to={NOW}ns")).await;
        let retire = format!("/v1/series/retire?selector={name}");
        let (status, answer) = post(&server, &retire).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!((&answer["dry_run"], &answer["last_ns"]), (&true.into(), &NOW.into()));
        assert_eq!(answer.get("retired"), None);
        let series = &answer["series"];
        assert_eq!(current(&server, name, soon).await.len() as u64, *series, "nothing changed");
        let (status, answer) =
            post(&server, &format!("{retire}&dry_run=false&expected_series={series}")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!((&answer["retired"], &answer["rejected"]), (series, &0.into()));
        assert_eq!(current(&server, name, soon).await, [Value::Null; 0], "{name}");
        let after = server.json(&format!("/v1/query?query={name}&to={NOW}ns")).await;
        assert_eq!(after["data"], before["data"], "{name}");
        // A second time, there is nothing to retire.
        let (status, answer) = post(&server, &format!("{retire}&dry_run=false")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer.to_string().contains("is current"), "{answer}");
    }
    assert_eq!(count(&server, "latency").await, Some(1200));
}

#[tokio::test]
async fn new_sample_revives_a_retired_series() {
    let server = TestServer::new();
    let retire = "/v1/series/retire?dry_run=false&selector=";
    for selector in ["depth", "latency"] {
        let (status, answer) = post(&server, &format!("{retire}{selector}")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let end = NOW + 10 * store::SECOND;
    let depth = Series::new("depth", SeriesKind::Gauge).with_label("host", "a").validate().unwrap();
    server.send(&depth, Sample { start: end, end, value: SampleValue::Number(7.0) });
    let latency = Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ms")
        .with_label("host", "b")
        .validate()
        .unwrap();
    let mut histogram = Histogram::default();
    histogram.record(5.0);
    let value = SampleValue::Histogram(Box::new(histogram));
    server.send(&latency, Sample { start: NOW, end, value });
    assert_eq!(current(&server, "depth", end).await, ["a"]);
    assert_eq!(current(&server, "latency", end).await, ["b"]);
    // Only those that are current again are retired again.
    let (_, answer) = post(&server, "/v1/series/retire?selector=latency").await;
    assert_eq!(
        (&answer["series"], &answer["examples"][0]["labels"]["host"]),
        (&1.into(), &"b".into())
    );
}

#[tokio::test]
async fn texts_are_not_retired() {
    let server = TestServer::new();
    let text = Series::new("version", SeriesKind::Text).validate().unwrap();
    let value = SampleValue::Text("1.2".to_owned());
    server.send(&text, Sample { start: NOW, end: NOW, value });
    let (status, answer) = post(&server, "/v1/series/retire?selector=version").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
}
