//! Complete responses in Prometheus' format.

use axum::body::Body;
use expect_test::expect;
use http::{Request, StatusCode};

use crate::test_server::{NOW, START, TestServer, check};

#[tokio::test]
async fn results_of_all_types() {
    check(
        "/api/v1/query?query=1.5&time=1600000000.020",
        expect![[
            r#"{"status":"success","data":{"resultType":"scalar","result":[1600000000.020,"1.5"]}}"#
        ]],
    )
    .await;
    check(
        "/api/v1/query?query=\"é\"&time=1600000000",
        expect![[
            r#"{"status":"success","data":{"resultType":"string","result":[1600000000,"é"]}}"#
        ]],
    )
    .await;
    check("/api/v1/query?query=depth&time=2020-09-13T12:31:00Z", expect![[r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"depth","host":"a"},"value":[1600000260,"0.5"]}]}}"#]]).await;
    check("/api/v1/query?query=depth[2m]&time=1600000320", expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"depth","host":"a"},"values":[[1600000260,"0.5"],[1600000320,"1.5"]]}]}}"#]]).await;
    check("/api/v1/query?query=latency{host=\"a\"}[1m]&time=1600000320", expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"latency","host":"a"},"histograms":[[1600000320,{"count":"10","sum":"55","buckets":[[0,"0.9785720620876999","1","1"],[0,"1.9571441241753997","2","1"],[0,"2.9536522918789982","3.018328855186845","1"],[0,"3.9142882483507995","4","1"],[0,"4.967431248293936","5.076203828766933","1"],[0,"5.9073045837579965","6.03665771037369","1"],[0,"6.87447719248991","7.025008641493196","1"],[0,"7.828576496701599","8","1"],[0,"8.91509394076714","9.110309078053533","1"],[0,"9.934862496587872","10.152407657533866","1"]]}]]}]}}"#]]).await;
    check(
        "/api/v1/query?query=nothing",
        expect![[r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#]],
    )
    .await;
    let range =
        format!("start={}&end={}&step=30", START / store::SECOND, START / store::SECOND + 60);
    check(&format!("/api/v1/query_range?query=1&{range}"), expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1600000200,"1"],[1600000230,"1"],[1600000260,"1"]]}]}}"#]]).await;
    check(&format!("/api/v1/query_range?query=depth&{range}"), expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"depth","host":"a"},"values":[[1600000260,"0.5"]]}]}}"#]]).await;
    check(&format!("/api/v1/query_range?query=sum(latency)&{range}"), expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"histograms":[[1600000260,{"count":"20","sum":"5555","buckets":[[0,"0.9785720620876999","1","1"],[0,"1.9571441241753997","2","1"],[0,"2.9536522918789982","3.018328855186845","1"],[0,"3.9142882483507995","4","1"],[0,"4.967431248293936","5.076203828766933","1"],[0,"5.9073045837579965","6.03665771037369","1"],[0,"6.87447719248991","7.025008641493196","1"],[0,"7.828576496701599","8","1"],[0,"8.91509394076714","9.110309078053533","1"],[0,"9.934862496587872","10.152407657533866","1"],[0,"98.70149282610821","100.86277408690472","1"],[0,"197.40298565221642","201.72554817380944","1"],[0,"297.91356384705983","304.4370214406966","1"],[0,"394.80597130443283","403.4510963476189","1"],[0,"490.2928797176696","501.02889578890233","1"],[0,"595.8271276941197","608.8740428813932","1"],[0,"693.378840031689","708.5618595654819","1"],[0,"789.6119426088657","806.9021926952378","1"],[0,"899.2011061111291","918.8910464015905","1"],[0,"980.5857594353392","1002.0577915778047","1"]]}]]}]}}"#]]).await;
    // A range query of one step is a matrix too.
    let at = START / store::SECOND + 60;
    check(
        &format!("/api/v1/query_range?query=depth&start={at}&end={at}&step=1m"),
        expect![[r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"depth","host":"a"},"values":[[1600000260,"0.5"]]}]}}"#]],
    )
    .await;
}

#[tokio::test]
async fn extensions_use_the_prometheus_format() {
    check(
        "/api/v1/query?query=histogram_quantile(0.5, \
         sum(exact_increase(latency{host=\"a\"}[10m])))",
        expect![[r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1600003800,"5.076203828766933"]}]}}"#]],
    )
    .await;
    check("/api/v1/query?query=rate(depth[5m])&limit=1", expect![[r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"host":"a"},"value":[1600003800,"0.016666666666666666"]}]},"infos":["PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"depth\" (1:6)"]}"#]]).await;
    check("/api/v1/query?query=latency*0&limit=1", expect![[r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"host":"a"},"histogram":[1600003800,{"count":"0","sum":"0"}]}]},"warnings":["results truncated due to limit"]}"#]]).await;
}

#[tokio::test]
async fn errors_have_the_prometheus_format() {
    check("/api/v1/query?query=sum(", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"}"#]]).await;
    check("/api/v1/query", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"parameter query is missing, expected a PromQL expression"}"#]]).await;
    check("/api/v1/query?query=1&time=x", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"parameter time: found \"x\", expected a time such as 2026-11-09T12:30:00Z, Unix seconds, nanoseconds as 1794225600000000000ns, now or -2h"}"#]]).await;
    check("/api/v1/query?query=1&timeout=x", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"parameter timeout: found \"x\", expected a duration such as 30s, 5m, 1h30m or 250ms, or seconds"}"#]]).await;
    check("/api/v1/query?query=depth&timeout=1ns", expect![[r#"503 Service Unavailable {"status":"error","errorType":"timeout","error":"query timeout exceeded; reduce the range or the number of series, or raise timeout"}"#]]).await;
    check("/api/v1/query_range?query=1&start=2&end=1&step=1", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"invalid parameter \"end\": end timestamp must not be before start time"}"#]]).await;
    check("/api/v1/query_range?query=1&start=1&end=2&step=0", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"parameter step: found \"0\", expected a duration such as 30s, 5m, 1h30m or 250ms, or seconds"}"#]]).await;
    check("/api/v1/query_range?query=1&start=1&end=200000&step=1", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"}"#]]).await;
    check("/api/v1/query_range?query=depth[1m]&start=1&end=2&step=1", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:1: parse error: invalid expression type \"range vector\" for range query, must be Scalar or instant Vector"}"#]]).await;
    check("/api/v1/query?query=depth / on() count by(host)(latency)", expect![[r#"422 Unprocessable Entity {"status":"error","errorType":"execution","error":"1:1: found duplicate series for the match group {} on the right hand-side of the operation: [{host=\"a\"}, {host=\"b\"}];many-to-many matching not allowed: matching labels must be unique on one side"}"#]]).await;
    check("/api/v1/series", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"no match[] parameter provided"}"#]]).await;
    check("/api/v1/series?match[]=sum(a)", expect![[r#"400 Bad Request {"status":"error","errorType":"bad_data","error":"invalid parameter \"match[]\": \"sum(a)\" is not a selector such as up or {job=\"a\"}"}"#]]).await;
}

#[tokio::test]
async fn series_and_labels() {
    check("/api/v1/series?match[]=latency&match[]={__name__=\"depth\"}", expect![[r#"{"status":"success","data":[{"__name__":"depth","host":"a"},{"__name__":"latency","host":"a"},{"__name__":"latency","host":"b"}]}"#]]).await;
    check("/api/v1/series?match[]=latency&limit=1", expect![[r#"{"status":"success","data":[{"__name__":"latency","host":"a"}],"warnings":["results truncated due to limit"]}"#]]).await;
    check("/api/v1/labels", expect![[r#"{"status":"success","data":["__name__","host"]}"#]]).await;
    check(
        "/api/v1/labels?match[]=requests_total",
        expect![[r#"{"status":"success","data":["__name__"]}"#]],
    )
    .await;
    check(
        "/api/v1/label/__name__/values",
        expect![[
            r#"{"status":"success","data":["depth","latency","latency_bucket","latency_count","latency_seconds","latency_seconds_bucket","latency_seconds_count","latency_seconds_sum","latency_sum","requests_total"]}"#
        ]],
    )
    .await;
    check(
        "/api/v1/label/host/values?match[]=depth&start=1&end=2",
        expect![[r#"{"status":"success","data":["a"]}"#]],
    )
    .await;
    check("/api/v1/metadata", expect![[r#"{"status":"success","data":{"depth":[{"type":"gauge","unit":"","help":""}],"latency":[{"type":"histogram","unit":"ms","help":""}],"latency_seconds":[{"type":"histogram","unit":"s","help":""}],"requests_total":[{"type":"counter","unit":"","help":""}]}}"#]]).await;
    check(
        "/api/v1/metadata?metric=depth",
        expect![[
            r#"{"status":"success","data":{"depth":[{"type":"gauge","unit":"","help":""}]}}"#
        ]],
    )
    .await;
}

#[tokio::test]
async fn status_endpoints() {
    for path in [
        "query_exemplars?query=a",
        "targets",
        "status/config",
        "status/flags",
        "status/runtimeinfo",
        "status/tsdb?limit=1",
        "status/walreplay",
        "alertmanagers",
    ] {
        let answer = TestServer::new().json(&format!("/api/v1/{path}")).await;
        assert_eq!(answer["status"], "success", "{path}");
        assert!(!answer["data"].is_null(), "{path}");
    }
    // It was "true" after each failed SIGHUP, with the time of the start.
    let server = TestServer::new();
    let config = async || {
        let info = server.json("/api/v1/status/runtimeinfo").await["data"].clone();
        (info["reloadConfigSuccess"].clone(), info["lastConfigTime"] == info["startTime"])
    };
    assert_eq!(config().await, (true.into(), true));
    server.context.queries.note_config_reload(Err("unknown key".to_owned()));
    assert_eq!(config().await, (false.into(), true));
    server.context.queries.note_config_reload(Ok(()));
    assert_eq!(config().await.0, true);
    let build = TestServer::new().json("/api/v1/status/buildinfo").await;
    assert_eq!(build["data"]["version"], "3.15.0");
    check(
        "/api/v1/format_query?query=sum by(a)(rate( b[5m]))",
        expect![[r#"{"status":"success","data":"sum by (a) (rate(b[5m]))"}"#]],
    )
    .await;
}

#[tokio::test]
async fn form_bodies_are_parsed() {
    let server = TestServer::new();
    let post = |path: &str, form: String| {
        Request::post(path)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(Body::from(form))
            .unwrap()
    };
    let now = NOW / store::SECOND;
    let form = format!("query=count%28depth%29&time={now}");
    let (status, text) = server.send_request(post("/api/v1/query", form)).await;
    assert_eq!(status, StatusCode::OK);
    let expected = format!(
        r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[{now},"1"]}}]}}}}"#
    );
    assert_eq!(text, expected);
    let form = format!("query=depth&start={now}&end={now}&step=15s");
    let (status, _) = server.send_request(post("/api/v1/query_range", form)).await;
    assert_eq!(status, StatusCode::OK);
    let large = format!("query={}", "1".repeat(2 << 20));
    let (status, text) = server.send_request(post("/api/v1/query", large)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("the size limit is 1048576 bytes"), "{text}");
}

/// A misspelt metric, or a name of OTLP without its unit, was an empty result without a word.
#[tokio::test]
async fn empty_result_of_an_unknown_name_says_what_may_have_been_meant() {
    let server = TestServer::new();
    let kind = model::SeriesKind::Histogram(hist::codec::header::Temporality::Delta);
    let series = model::Series::new("http.server.request.duration", kind).with_unit("ms");
    let value = model::SampleValue::Histogram(Box::default());
    let sample = model::Sample { start: START, end: START + store::MINUTE, value };
    server.send(&series.validate().unwrap(), sample);
    for (query, info) in [
        ("latenci", Some("\"latenci\"; did you mean the metric \"latency\"?")),
        (
            "rate(http_server_request_duration_bucket[5m])",
            Some("did you mean the metric \"http_server_request_duration_seconds\"?"),
        ),
        ("sum(depht)%20or%20latency{host=\"none\"}", Some("did you mean the metric \"depth\"?")),
        // Known names without data, and names like no other.
        ("latency{host=\"none\"}", None),
        ("http_server_request_duration_seconds_bucket{le=\"7\"}", None),
        ("nothing", None),
    ] {
        let answer = server.json(&format!("/api/v1/query?query={query}")).await;
        assert_eq!(answer["data"]["result"], serde_json::json!([]), "{query}: {answer}");
        let infos: Vec<&str> =
            answer["infos"].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
        match info {
            Some(info) => {
                assert!(infos.len() == 1 && infos[0].contains(info), "{query}: {infos:?}")
            }
            None => assert_eq!(infos, [""; 0], "{query}"),
        }
    }
}
