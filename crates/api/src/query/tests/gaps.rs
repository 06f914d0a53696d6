//! Gaps in the answers of queries.

use http::StatusCode;
use serde_json::{Value, json};

use crate::test_server::{NOW, START, TestServer};

#[tokio::test]
async fn gaps_are_reported_with_the_result() {
    let server = TestServer::new();
    let (start, end) = (START, START + store::MINUTE);
    let reason = "a cable was cut".to_owned();
    server.send_gap(model::Gap { start, end, producer: Some(7), lost: Some(3), reason });
    let map = server.json("/v1/heatmap?selector=latency&step=10m").await;
    assert_eq!(map["columns"][0]["gaps"][0]["reason"], "a cable was cut");
    assert_eq!(map["columns"][1]["gaps"].as_array().unwrap().len(), 0);
    let asked = "/v1/query?query=sum(exact_increase(latency[1h]))";
    assert_eq!(server.json(asked).await["gaps"][0]["lost"], 3);
    let asked = "/api/v1/query?query=sum(exact_increase(latency[1h]))";
    let warning = "missing from 2020-09-13T12:30:00Z to 2020-09-13T12:31:00Z: 3 lost of producer \
                   0000000000000007: a cable was cut";
    assert_eq!(server.json(asked).await["warnings"][0], warning);
}

#[tokio::test]
async fn gap_after_the_last_row_is_reported_without_end_parameter() {
    let server = TestServer::new();
    let (start, end) = (NOW + store::MINUTE, NOW + 2 * store::MINUTE);
    let reason = "records of the journal were lost".to_owned();
    server.send_gap(model::Gap { start, end, producer: None, lost: Some(6), reason });
    let gaps = async |path: String| server.json(&path).await["gaps"].as_array().unwrap().len();
    assert_eq!(gaps("/v1/histogram?selector=latency".to_owned()).await, 1);
    assert_eq!(gaps(format!("/v1/histogram?selector=latency&from={START}ns")).await, 1);
    assert_eq!(gaps(format!("/v1/histogram?selector=latency&to={NOW}ns")).await, 0);
}

/// A series whose points were all rejected as late, or lost, is not in the index.
#[tokio::test]
async fn series_without_points_is_a_gap_and_not_unknown() {
    let server = TestServer::new();
    let unknown = "/v1/histogram?selector=waited";
    assert_eq!(server.get(unknown).await.0, StatusCode::NOT_FOUND);
    let (start, end) = (START, START + store::MINUTE);
    let reason = "samples arrived after those of their day were dropped".to_owned();
    server.send_gap(model::Gap { start, end, producer: None, lost: Some(3), reason });
    for path in [
        "/v1/histogram?selector=waited&above=5ms",
        "/v1/histogram?selector=waited&from=-2h",
        "/v1/query?query=waited&from=-1h&step=5m",
        "/v1/query?query=rate(waited[2h])",
        "/v1/query?query=waited[2h]",
        "/v1/query?query=exact_increase(waited[2h])",
        "/v1/query?language=caql&from=-1h&step=5m&query=find(\"waited\")",
        "/v1/query?language=caql&from=-1h&step=5m&query=find:histogram(\"waited\")",
        "/v1/query?language=caql&from=-1h&step=5m&query=find:histogram(\"waited\") | \
         histogram:merge()",
        "/v1/texts?selector=waited&from=-2h",
    ] {
        let answer = server.json(path).await;
        assert_eq!(answer["gaps"][0]["lost"], 3, "{path}: {answer}");
    }
    for path in ["", "&step=10m&from=-2h&to=now", "&columns=3&above=5ms"] {
        let map = server.json(&format!("/v1/heatmap?selector=waited{path}")).await;
        assert_eq!((&map["series"], &map["total"]["count"]), (&0.into(), &0.into()), "{map}");
        assert_eq!(map["total"]["gaps"][0]["lost"], 3, "{path}: {map}");
        let columns = map["columns"].as_array().unwrap();
        assert!(columns.iter().any(|column| column["gaps"][0]["lost"] == 3), "{path}: {map}");
    }
    let asked = "/api/v1/query?query=waited[2h]";
    let answer = server.json(asked).await;
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("samples arrived after"), "{warnings}");
    // Another range has no gaps.
    let status = server.get("/v1/histogram?selector=waited&from=-10m").await.0;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

/// After an import of old samples of one series, a misspelt label of another was "0 values".
#[tokio::test]
async fn gap_of_a_named_series_concerns_only_selections_that_match_it() {
    let server = TestServer::new();
    let (start, end) = (START, START + store::MINUTE);
    let reason = model::Gap::late_samples_reason(&"older_seconds{host=\"a\"}");
    server.send_gap(model::Gap { start, end, producer: None, lost: Some(3), reason });
    let status = async |path: &str| server.get(path).await.0;
    assert_eq!(status("/v1/histogram?selector=waited").await, StatusCode::NOT_FOUND);
    let other = "/v1/histogram?selector=older_seconds{host=\"b\"}";
    assert_eq!(status(other).await, StatusCode::NOT_FOUND);
    let named = server.json("/v1/histogram?selector=older_seconds").await;
    assert_eq!(named["gaps"][0]["lost"], 3, "{named}");
    for (selector, lost) in [
        ("older_seconds", json!([3])),
        ("older_seconds{__unit=\"s\",host=\"a\"}", json!([3])),
        ("older_seconds{host=\"b\"}", json!([])),
        ("waited", json!([])),
        ("latency", json!([])),
    ] {
        for path in [
            format!("/v1/query?query={selector}&from=-1h&step=5m"),
            format!("/v1/query?query=sum(exact_increase({selector}[2h]))"),
            format!("/v1/query?language=caql&from=-1h&step=5m&query=find(\"{selector}\")"),
            format!("/v1/texts?selector={selector}&from=-2h"),
        ] {
            if path.contains("caql") && selector.contains('{') {
                continue;
            }
            let answer = server.json(&path.replace('"', "%22")).await;
            let found: Vec<&Value> =
                answer["gaps"].as_array().unwrap().iter().map(|gap| &gap["lost"]).collect();
            assert_eq!(json!(found), lost, "{path}: {answer}");
        }
    }
    let latency = server.json("/v1/histogram?selector=latency").await;
    assert_eq!(latency["gaps"].as_array().unwrap().len(), 0, "{latency}");
    let (_, text) = server.get("/v1/histogram?selector=waited").await;
    assert!(!text.contains("its data may be in a gap"), "{text}");
}

#[tokio::test]
async fn every_endpoint_reports_gaps_outside_the_data() {
    let server = TestServer::new();
    let (start, end) = (NOW + store::DAY, NOW + store::DAY + store::MINUTE);
    let reason = "samples arrived after those of their day were dropped".to_owned();
    server.send_gap(model::Gap { start, end, producer: None, lost: Some(3), reason });
    let to = NOW + 2 * store::DAY;
    for query in ["depth", "rate(requests_total[3d])", "latency[3d]"] {
        let path = format!("/v1/query?query={query}&from={START}ns&to={to}ns&step=1d");
        let path = match query.ends_with("]") {
            true => format!("/v1/query?query={query}&to={to}ns"),
            false => path,
        };
        let answer = server.json(&path).await;
        assert_eq!(answer["gaps"][0]["lost"], 3, "{path}: {answer}");
    }
    let map = server.json("/v1/heatmap?selector=latency&columns=2").await;
    assert_eq!(map["total"]["gaps"][0]["lost"], 3, "{map}");
    let map = server.json(&format!("/v1/heatmap?selector=latency&columns=2&to={NOW}ns")).await;
    assert_eq!(map["total"]["gaps"].as_array().unwrap().len(), 0, "{map}");
}

/// After one `kill -9`, a misspelt name was "0 values" with status 200, for ever.
#[tokio::test]
async fn misspelt_name_is_not_found_after_a_kill() {
    let server = TestServer::new();
    let gap = |reason: &str| model::Gap {
        start: START,
        end: NOW,
        producer: None,
        lost: None,
        reason: reason.to_owned(),
    };
    server.send_gap(gap(model::Gap::UNCLEAN_SHUTDOWN));
    for path in ["histogram", "heatmap"] {
        let (status, text) = server.get(&format!("/v1/{path}?selector=nope")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
        assert!(text.contains("existing metrics: depth, latency"), "{text}");
    }
    // A gap that may hide a whole series is the answer.
    server.send_gap(gap("a disk was lost"));
    assert_eq!(server.get("/v1/histogram?selector=nope").await.0, StatusCode::OK);
}
