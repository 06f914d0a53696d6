//! HTTP queries on known data.

mod classic_buckets;
mod exemplars;
mod gaps;
mod limits;
mod thresholds;

use expect_test::expect;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::StatusCode;
use model::{Sample, SampleValue, Series, SeriesKind};
use serde_json::Value;

use crate::query_service::QueryServiceSettings;
use crate::test_server::{NOW, START, TestServer, check};

#[tokio::test]
async fn instant_query_has_bounds_and_maximum() {
    check(
        "/v1/query?query=histogram_quantile(0.5, sum(exact_increase(latency{host=\"a\"}[10m])))",
        expect![[r#"
            {"schema":2,"kind":"vector","unit":"ms","data":[{"labels":{},"points":[{"time_ns":1600003800000000000,"value":{"lower":4.967431248293937,"estimate":5.076203828766933,"upper":5.076203828766933}}]}],"maxima":[{"expression":"histogram_max(sum(exact_increase(latency{host=\"a\"}[10m])))","unit":"ms","data":[{"labels":{},"points":[{"time_ns":1600003800000000000,"value":10.0}]}]}],"warnings":[],"infos":[],"gaps":[]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn range_query() {
    check(
        "/v1/query?query=sum(histogram_count_above(50, \
         exact_increase(latency[10m])))&from=-20m&step=10m",
        expect![[r#"
            {"schema":2,"kind":"matrix","unit":"values","data":[{"labels":{},"points":[{"time_ns":1600002600000000000,"value":100.0},{"time_ns":1600003200000000000,"value":100.0},{"time_ns":1600003800000000000,"value":100.0}]}],"maxima":[],"warnings":[],"infos":[],"gaps":[]}
        "#]],
    )
    .await;
    check(
        "/v1/query?language=caql&from=-10m&step=5m&query=find:histogram(\"latency\") | \
         histogram:merge() | histogram:count()",
        expect![[r#"
            {"schema":2,"kind":"matrix","unit":"values","data":[{"labels":{"__name__":"latency"},"points":[{"time_ns":1600003200000000000,"value":100.0},{"time_ns":1600003500000000000,"value":100.0}]}],"maxima":[],"warnings":[],"infos":[],"gaps":[]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn histogram_over_a_range() {
    check(
        "/v1/histogram?selector=latency{host=\"a\"}&from=-10m&to=now&q=0.5,1&above=5ms&above=0.009s",
        expect![[r#"
            {"schema":2,"selector":"latency{host=\"a\"}","series":1,"unit":"ms","start_ns":1600003200000000000,"end_ns":1600003800000000000,"count":100,"sum":{"lower":550.0,"estimate":550.0,"upper":550.0},"min":{"lower":1.0,"estimate":1.0,"upper":1.0},"max":{"lower":10.0,"estimate":10.0,"upper":10.0},"cells":[{"lower":1.0,"upper":1.0,"count":10},{"lower":1.9571441241754004,"upper":2.0,"count":10},{"lower":2.9536522918789987,"upper":3.0183288551868452,"count":10},{"lower":3.914288248350801,"upper":4.0,"count":10},{"lower":4.967431248293937,"upper":5.076203828766933,"count":10},{"lower":5.907304583757997,"upper":6.0366577103736905,"count":10},{"lower":6.874477192489912,"upper":7.025008641493198,"count":10},{"lower":7.828576496701602,"upper":8.0,"count":10},{"lower":8.915093940767141,"upper":9.110309078053533,"count":10},{"lower":9.934862496587874,"upper":10.0,"count":10}],"mean":{"lower":5.499999999999994,"estimate":5.5,"upper":5.500000000000006},"stddev":{"lower":2.826597246359501,"estimate":2.8642877611746718,"upper":2.9022716987893995},"quantiles":[{"q":0.5,"value":{"lower":4.967431248293937,"estimate":5.0663154123602965,"upper":5.076203828766933}},{"q":1.0,"value":{"lower":10.0,"estimate":10.0,"upper":10.0}}],"above":[{"text":"5ms","threshold":5.0,"count":{"lower":50,"estimate":57,"upper":60},"expected_share":0.01},{"text":"0.009s","threshold":9.0,"count":{"lower":10,"estimate":16,"upper":20},"expected_share":0.01}],"gaps":[]}
        "#]],
    )
    .await;
}

#[tokio::test]
async fn heatmap_columns_add_up_to_the_total() {
    let server = TestServer::new();
    for (lengths, columns) in [("&columns=7", 7), ("&step=7m", 9), ("", 120), ("&columns=1", 1)] {
        let asked = format!("/v1/heatmap?selector=latency&from={START}ns&to={NOW}ns{lengths}");
        let map = server.json(&asked).await;
        let all = map["columns"].as_array().unwrap();
        assert_eq!(all.len(), columns, "{lengths}");
        let count = |json: &serde_json::Value| json["count"].as_u64().unwrap();
        assert_eq!(all.iter().map(count).sum::<u64>(), 1200);
        assert_eq!(count(&map["total"]), 1200);
        let cells = |json: &serde_json::Value| -> u64 {
            json["cells"].as_array().unwrap().iter().map(count).sum()
        };
        assert!(all.iter().all(|column| cells(column) == count(column)));
        // Several endpoints give equal results for the same range.
        let whole = format!("/v1/histogram?selector=latency&from={START}ns&to={NOW}ns");
        let whole = server.json(&whole).await;
        for name in ["count", "sum", "min", "max", "cells"] {
            assert_eq!(map["total"][name], whole[name], "{lengths} {name}");
        }
        assert_eq!(all[0]["start_ns"].as_i64(), Some(START));
        assert_eq!(all[columns - 1]["end_ns"].as_i64(), Some(NOW));
    }
}

#[tokio::test]
async fn series_names_and_labels_are_listed() {
    check("/v1/series?selector={host=\"a\"}", expect![[r#"
        {"schema":2,"total":2,"truncated":false,"series":[{"name":"depth","labels":{"host":"a"},"kind":"gauge","unit":null},{"name":"latency","labels":{"host":"a"},"kind":"delta-histogram","unit":"ms"}]}
    "#]]).await;
    check("/v1/series?search=LAT&limit=1", expect![[r#"
        {"schema":2,"total":2,"truncated":true,"series":[{"name":"latency","labels":{"host":"a"},"kind":"delta-histogram","unit":"ms"}]}
    "#]]).await;
    check("/v1/metric_names", expect![[r#"
        {"schema":2,"total":3,"truncated":false,"names":[{"name":"depth","kind":"gauge","unit":null,"series":1},{"name":"latency","kind":"delta-histogram","unit":"ms","series":2},{"name":"requests_total","kind":"cumulative-counter","unit":null,"series":1}]}
    "#]]).await;
    check(
        "/v1/labels",
        expect![[r#"
        {"schema":2,"total":1,"truncated":false,"labels":[{"name":"host","values":2,"series":3}]}
    "#]],
    )
    .await;
    check("/v1/label/host/values?selector=latency&selector=depth", expect![[r#"
        {"schema":2,"total":2,"truncated":false,"values":[{"value":"a","series":2},{"value":"b","series":1}]}
    "#]]).await;
    check(
        "/v1/label/__name/values?search=t&limit=1",
        expect![[r#"
        {"schema":2,"total":3,"truncated":true,"values":[{"value":"depth","series":1}]}
    "#]],
    )
    .await;
    check("/v1/cardinality?top=1", expect![[r#"
        {"schema":1,"series":4,"metrics":3,"labels":1,"by_metric":[{"metric":"latency","series":2}],"by_label":[{"label":"host","values":2,"series":3}],"by_pair":[{"label":"host","value":"a","series":2}]}
    "#]]).await;
}

#[tokio::test]
async fn compare_and_breakdown() {
    let server = TestServer::new();
    let compared = server.json("/v1/compare?a=latency{host=\"a\"}&b=latency{host=\"b\"}").await;
    assert_eq!((&compared["a"]["count"], &compared["b"]["count"]), (&600.into(), &600.into()));
    assert_eq!(compared["probability_of_superiority"]["lower"].to_string(), "1.0");
    let asked = format!("/v1/breakdown?selector=latency&above=50ms&from={START}ns&to={NOW}ns");
    let explained = server.json(&asked).await;
    assert_eq!(explained["inside"]["estimate"], 600);
    assert_eq!(explained["labels"][0]["label"], "host");
    assert_eq!(explained["labels"][0]["divergence"].to_string(), "1.0");
}

/// The page said 3,052 above the threshold, and 3,055 inside the breakdown of the same values.
#[tokio::test]
async fn breakdown_counts_as_many_values_as_the_histogram_of_the_same_range() {
    let server = TestServer::new();
    // A value in the bucket of the threshold: its share above, rounded for each series, is 0.
    for host in 0..9 {
        let series = Series::new("took", SeriesKind::Histogram(Temporality::Delta))
            .with_unit("ms")
            .with_label("host", format!("web-{host}"));
        let mut histogram = Histogram::default();
        histogram.record(251.0);
        let value = SampleValue::Histogram(Box::new(histogram));
        server.send(&series, Sample { start: START, end: NOW, value });
    }
    let asked = format!("selector=took&above=250ms&from={START}ns&to={NOW}ns");
    let histogram = server.json(&format!("/v1/histogram?{asked}")).await;
    let breakdown = server.json(&format!("/v1/breakdown?{asked}")).await;
    let above = &histogram["above"][0]["count"];
    assert_eq!(breakdown["inside"], *above);
    assert!(above["estimate"].as_u64() > Some(0), "{histogram}");
    let all = ["inside", "outside"].map(|side| breakdown[side]["estimate"].as_u64().unwrap());
    assert_eq!(all[0] + all[1], 9);
}

#[tokio::test]
async fn invalid_queries_name_the_error() {
    check("/v1/query", expect![[r#"
        400 Bad Request {"error":"parameter query is missing, expected an expression of PromQL or CAQL"}
    "#]]).await;
    check(
        "/v1/query?query=sum(",
        expect![[r#"
        400 Bad Request {"error":"1:5: unclosed left parenthesis"}
    "#]],
    )
    .await;
    check("/v1/query?query=1&step=1m", expect![[r#"
        400 Bad Request {"error":"parameter from is missing, expected a time such as -1h: a step, or CAQL, needs a range"}
    "#]]).await;
    check(
        "/v1/query?query=1&language=sql",
        expect![[r#"
        400 Bad Request {"error":"parameter language: found \"sql\", expected promql or caql"}
    "#]],
    )
    .await;
    check("/v1/query?query=latency&max_series=1", expect![[r#"
        422 Unprocessable Entity {"error":"limit of 1 series (max_series) exceeded (2); select fewer series, or raise max_series"}
    "#]]).await;
    check("/v1/query?query=latency&timeout=1ns", expect![[r#"
        503 Service Unavailable {"error":"query timeout exceeded; reduce the range or the number of series, or raise timeout"}
    "#]]).await;
    check("/v1/histogram?selector=nothing", expect![[r#"
        404 Not Found {"error":"nothing matches no series; existing metrics: depth, latency, requests_total"}
    "#]]).await;
    check(
        "/v1/histogram?selector=depth",
        expect![[r#"
        404 Not Found {"error":"depth matches no histograms, but 1 series of other kinds, such as gauge"}
    "#]],
    )
    .await;
    check("/v1/histogram?selector=latency&above=1B", expect![[r#"
        400 Bad Request {"error":"parameter above: found \"1B\", expected a quantity in the unit of the values, ms"}
    "#]]).await;
    check(
        "/v1/histogram?selector=latency&q=2",
        expect![[r#"
        400 Bad Request {"error":"parameter q: found \"2\", expected a quantile from 0 to 1"}
    "#]],
    )
    .await;
    check("/v1/histogram?selector=latency&from=now&to=-1h", expect![[r#"
        400 Bad Request {"error":"parameters from and to: empty range from 2020-09-13T13:30:00Z to 2020-09-13T12:30:00Z; the end is exclusive; default: the range of the data"}
    "#]]).await;
    check("/v1/heatmap?selector=latency&columns=0", expect![[r#"
        400 Bad Request {"error":"parameter columns: found \"0\", expected a whole number from 1 to 10000"}
    "#]]).await;
    check(
        "/v1/heatmap?selector=latency&columns=2&step=1m",
        expect![[r#"
        400 Bad Request {"error":"parameters columns and step: found both, expected one of them"}
    "#]],
    )
    .await;
    check("/v1/compare?a=latency", expect![[r#"
        400 Bad Request {"error":"parameter b is missing, expected a second selector, or another range in from_b and to_b"}
    "#]]).await;
    check("/v1/breakdown?selector=latency&above=1&up_to=0", expect![[r#"
        422 Unprocessable Entity {"error":"invalid rectangle: its lower value is not below its upper value"}
    "#]]).await;
}

#[tokio::test]
async fn first_sample_counts_toward_the_total() {
    let server =
        TestServer::with_store(crate::test_server::empty_store(), QueryServiceSettings::default());
    let total =
        Series::new("total", SeriesKind::Histogram(Temporality::Cumulative)).validate().unwrap();
    let mut histogram = Histogram::default();
    for minute in 1..=3 {
        histogram.record(5.0);
        let value = SampleValue::Histogram(Box::new(histogram.clone()));
        let end = START + minute * store::MINUTE;
        server.send(&total, Sample { start: START, end, value });
        let whole = server.json("/v1/histogram?selector=total").await;
        assert_eq!(whole["count"].as_i64(), Some(minute), "{whole}");
        assert_eq!(
            server.json("/v1/heatmap?selector=total").await["total"]["count"].as_i64(),
            Some(minute)
        );
    }
}

#[tokio::test]
async fn functions_are_listed_with_their_signatures() {
    let server = TestServer::new();
    for (asked, known) in [
        (
            "/v1/functions",
            [
                ("sum", "sum by (label) (instant vector)"),
                ("histogram_quantile", "histogram_quantile(scalar, instant vector)"),
                ("round", "round(instant vector[, scalar])"),
            ],
        ),
        (
            "/v1/functions?language=caql",
            [
                ("histogram:merge", "histogram:merge()"),
                ("histogram:percentile", "histogram:percentile(percentile, …)"),
                ("delay", "delay(delay, …)"),
            ],
        ),
    ] {
        let told = server.json(asked).await;
        let told = told["functions"].as_array().unwrap();
        for (name, call) in known {
            let found = told.iter().find(|one| one["name"] == name);
            assert_eq!(found.map(|one| &one["call"]), Some(&call.into()), "{name}");
        }
    }
    check(
        "/v1/functions?language=sql",
        expect![[r#"
        400 Bad Request {"error":"parameter language: found \"sql\", expected promql or caql"}
    "#]],
    )
    .await;
}

/// A user saw "matches no series" for classic histograms, for a metric of OpenTelemetry by its name
/// in PromQL, and for a misspelt label, each with the first names of the alphabet.
#[tokio::test]
async fn a_selector_that_matches_nothing_says_what_was_meant() {
    let server = TestServer::new();
    let counter = SeriesKind::Counter(Temporality::Cumulative);
    for (bound, value) in [("0.25", 4.0), ("1", 6.0), ("+Inf", 6.0)] {
        let series = Series::new("rw_latency_seconds_bucket", counter).with_label("le", bound);
        let series = series.with_label("zone", "a").validate().unwrap();
        for (end, value) in [(START + store::MINUTE, 0.0), (NOW - store::SECOND, value)] {
            let value = SampleValue::Number(value);
            server.send(&series, Sample { start: START, end, value });
        }
    }
    let dotted =
        Series::new("http.server.request.duration", SeriesKind::Histogram(Temporality::Delta));
    let value = SampleValue::Histogram(Box::default());
    let dotted = dotted.with_unit("s").validate().unwrap();
    server.send(&dotted, Sample { start: START, end: START + store::MINUTE, value });
    let error = async |path: &str, selector: &str| {
        let (status, text) = server.get(&format!("{path}?selector={selector}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
        answer["error"].as_str().unwrap().to_owned()
    };
    let hint = async |selector: &str| {
        let answer = server.json(&format!("/v1/selection?selector={selector}")).await;
        answer["hint"].as_str().unwrap_or_default().to_owned()
    };
    let classic = hint("rw_latency_seconds{zone=\"a\"}").await;
    let expected = "exact_increase(rw_latency_seconds{zone=\"a\"}[5m])";
    assert!(classic.contains(expected), "{classic}");
    // The query that the message names has a result.
    let query = classic.split('\'').nth(1).unwrap().replace("[5m]", "[1h]");
    let answer = server.json(&format!("/v1/query?query={query}")).await;
    let value = &answer["data"][0]["points"][0]["value"];
    assert!(*value == 2.0 || value["estimate"] == 2.0, "{query}: {answer}");
    assert!(classic.starts_with("stored as buckets"), "{classic}");
    // It is a histogram where distributions are read, and PromQL matches the counters by this name.
    let answer = server.json("/v1/selection?selector=rw_latency_seconds_bucket").await;
    let group = &answer["groups"][0];
    assert_eq!((&group["series"], &answer["hint"]), (&1.into(), &Value::Null), "{answer}");
    assert_eq!(group["example"], "rw_latency_seconds{zone=\"a\"}", "{answer}");
    assert!(answer["groups"].as_array().unwrap().len() == 1, "{answer}");
    let translated = error("/v1/histogram", "http_server_request_duration_seconds").await;
    assert!(translated.contains("; stored as http.server.request.duration: "), "{translated}");
    let (status, text) = server.get("/v1/histogram?selector=http.server.request.duration").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    for (selector, expected) in [
        ("latenci", "; did you mean the metric \"latency\"?"),
        ("latency{hots=\"a\"}", "; no series has the label \"hots\"; did you mean \"host\"?"),
        ("latency{colour=\"a\"}", "label \"colour\"; the metric has the labels host"),
        ("latency{host=~\"zz.*\"}", "which must match all of a value; it has a, b"),
        ("latency{colour=~\"r.*\"}", "label \"colour\"; the metric has the labels host"),
        // Buckets that were sent as counters: what was typed was answered, as the remedy.
        (
            "rw_latency_seconds{zone=\"aa\"}",
            "; label \"zone\" has no value \"aa\"; did you mean \"a\"?",
        ),
        ("rw_latency_seconds{zoen=\"a\"}", "has the label \"zoen\"; did you mean \"zone\"?"),
        ("rw_latency_secnds", "; did you mean the metric \"rw_latency_seconds\"?"),
        ("latency{host=\"aa\"}", "; label \"host\" has no value \"aa\"; did you mean \"a\"?"),
    ] {
        let found = error("/v1/histogram", selector).await;
        assert!(found.ends_with(expected), "{found}");
    }
}
