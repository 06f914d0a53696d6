//! Exemplars with the numbers of values that they stand for.

use expect_test::expect;
use model::{Exemplar, ExemplarAttributes, ExemplarSource};

use super::*;
use crate::test_server::empty_store;

/// Exemplars of host `b`, whose minutes have values of 100 to 1000 ms, of a counter and of an
/// unknown series.
fn server(settings: QueryServiceSettings) -> TestServer {
    use decode::SeriesSink as _;
    let server = TestServer::with_settings(settings);
    let latency = Series::new("latency", SeriesKind::Histogram(Temporality::Delta));
    let latency = latency.with_unit("ms").with_label("host", "b").validate().unwrap();
    let requests = Series::new("requests_total", SeriesKind::Counter(Temporality::Cumulative));
    let requests = requests.validate().unwrap();
    let exemplar = |minutes: i64, value: f64, trace: u8| Exemplar {
        time: NOW - minutes * store::MINUTE,
        value,
        trace_id: [trace; 16],
        span_id: [0, 0, 0, 0, 0, 0, 0, trace],
        attributes: ExemplarAttributes::new([("user", "u1")]).0,
        source: ExemplarSource::Otlp,
    };
    let intake = &server.context.intake;
    let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
    let all = [
        (&latency, exemplar(5, 1000.0, 1)),
        (&latency, exemplar(5, 400.0, 2)),
        (&latency, exemplar(5, 300.0, 3)),
        (&latency, exemplar(15, 900.0, 4)),
        (&requests, exemplar(1, 1.0, 5)),
    ];
    for (series, exemplar) in all {
        let key = series.canonical_key();
        assert!(writer.exemplar(&key, &mut || Ok(series.clone()), &exemplar));
    }
    intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    server
}

/// Values of the exemplars, from the smallest.
fn values(answer: &Value) -> Vec<f64> {
    let list = answer["exemplars"].as_array().unwrap();
    let mut values: Vec<f64> =
        list.iter().map(|exemplar| exemplar["value"].as_f64().unwrap()).collect();
    values.sort_by(f64::total_cmp);
    values
}

#[tokio::test]
async fn exemplars_stand_for_the_values_of_their_cell() {
    let settings = QueryServiceSettings {
        trace_url: Some("https://traces/{trace_id}?span={span_id}".to_owned()),
        ..QueryServiceSettings::default()
    };
    let server = server(settings);
    let uri = "/v1/exemplars?selector=latency{host=\"b\"}&from=-10m&above=0.35s&up_to=500ms";
    let (status, text) = server.get(uri).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    expect![[r#"
        {"schema":1,"selector":"latency{host=\"b\"}","series":1,"unit":"ms","start_ns":1600003200000000000,"end_ns":1600003800000000000,"above":350.0,"up_to":500.0,"count":{"lower":10,"estimate":19,"upper":20},"kept":1,"kept_from_ns":1600002900000000000,"exemplars":[{"time_ns":1600003500000000000,"value":400.0,"weight":19.0,"is_maximum":false,"cell":{"lower":300.0,"upper":500.0},"trace_id":"02020202020202020202020202020202","span_id":"0000000000000002","trace_url":"https://traces/02020202020202020202020202020202?span=0000000000000002","metric":"latency","labels":{"host":"b"},"attributes":{"user":"u1"},"source":"otlp"}]}
    "#]].assert_eq(&text);
    // Ten minutes with ten values each: the weights add up to the count.
    let all = server.json("/v1/exemplars?selector=latency{host=\"b\"}&from=-10m").await;
    assert_eq!(values(&all), [300.0, 400.0, 1000.0]);
    assert_eq!((&all["count"]["estimate"], &all["kept"]), (&100.into(), &3.into()));
    let hour = server.json("/v1/exemplars?selector=latency").await;
    assert_eq!((&hour["count"]["estimate"], &hour["kept"]), (&1200.into(), &4.into()));
    // Before the retention nothing is known, so nothing is counted.
    let day = server.json("/v1/exemplars?selector=latency&from=-1d").await;
    assert_eq!((&day["count"], &day["kept"]), (&hour["count"], &hour["kept"]));
    let before = server.json("/v1/exemplars?selector=latency&from=-3h&to=-2h").await;
    assert_eq!((&before["count"], &before["kept"]), (&Value::Null, &0.into()));
    let one = server.json("/v1/exemplars?selector=latency&limit=1").await;
    assert_eq!(values(&one), [1000.0], "the maximum is always shown");
    assert_eq!(one["kept"], 4);
}

#[tokio::test]
async fn counters_have_exemplars_without_a_count() {
    let server = server(QueryServiceSettings::default());
    let answer = server.json("/v1/exemplars?selector=requests_total").await;
    assert_eq!(values(&answer), [1.0]);
    assert_eq!((&answer["count"], &answer["exemplars"][0]["weight"]), (&Value::Null, &Value::Null));
    for (uri, status, part) in [
        ("/v1/exemplars?selector=none", 404, "matches no series"),
        ("/v1/exemplars", 400, "selector"),
        ("/v1/exemplars?selector=latency&from=now&to=-1h", 400, "a time before `to`"),
        ("/v1/exemplars?selector=latency&above=1B", 400, "above"),
        ("/v1/exemplars?selector=latency&limit=20000", 400, "limit"),
        ("/v1/exemplars?selector=latency&abov=1s", 400, "abov"),
    ] {
        let (found, text) = server.get(uri).await;
        assert_eq!(found.as_u16(), status, "{uri}: {text}");
        assert!(text.contains(part), "{uri}: {text}");
    }
    let empty = TestServer::with_store(empty_store(), QueryServiceSettings::default());
    assert_eq!(empty.get("/v1/exemplars?selector=a").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn prometheus_gets_exemplars_under_its_names_and_in_its_unit() {
    let server = server(QueryServiceSettings::default());
    let query =
        "histogram_quantile(0.9, sum by (le) (rate(latency_seconds_bucket{host=\"b\"}[5m])))";
    let range =
        format!("start={}&end={}", (NOW - store::HOUR) / store::SECOND, NOW / store::SECOND);
    let (_, text) = server.get(&format!("/api/v1/query_exemplars?query={query}&{range}")).await;
    expect![[r#"{"status":"success","data":[{"seriesLabels":{"__name__":"latency_seconds_bucket","host":"b"},"exemplars":[{"labels":{"span_id":"0000000000000004","trace_id":"04040404040404040404040404040404","user":"u1"},"value":"0.9","timestamp":1600002900},{"labels":{"span_id":"0000000000000003","trace_id":"03030303030303030303030303030303","user":"u1"},"value":"0.3","timestamp":1600003500},{"labels":{"span_id":"0000000000000001","trace_id":"01010101010101010101010101010101","user":"u1"},"value":"1","timestamp":1600003500},{"labels":{"span_id":"0000000000000002","trace_id":"02020202020202020202020202020202","user":"u1"},"value":"0.4","timestamp":1600003500}]}]}"#]].assert_eq(&text);
    let own = server.json("/api/v1/query_exemplars?query=latency / latency").await;
    assert_eq!(own["data"][0]["exemplars"][0]["value"], "900", "in its own unit: {own}");
    assert_eq!(own["data"].as_array().unwrap().len(), 1, "each series once");
    let none = server.json("/api/v1/query_exemplars?query=depth").await;
    assert_eq!(none["data"], Value::Array(Vec::new()));
    let (status, text) = server.get("/api/v1/query_exemplars?query=rate(").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("bad_data"), "{text}");
}
