//! Annotations are stored and returned; invalid ones are rejected.

use axum::body::Body;
use http::{Request, StatusCode};

use super::{Annotation, LatestAnnotations};
use crate::test_server::{NOW, START, TestServer};

async fn add(server: &TestServer, body: &str) -> (StatusCode, String) {
    let request = Request::post("/v1/annotations").body(Body::from(body.to_owned())).unwrap();
    server.send_request(request).await
}

#[tokio::test]
async fn annotations_are_stored_and_listed() {
    let server = TestServer::new();
    let (status, text) = add(&server, r#"{"text":"deployed 1.2","tags":{"host":"a"}}"#).await;
    let deployed = format!(
        r#"{{"start_ns":{NOW},"end_ns":{NOW},"text":"deployed 1.2","tags":{{"host":"a"}}}}"#
    );
    assert_eq!(
        (status, text),
        (StatusCode::CREATED, format!("{{\"schema\":1,\"annotation\":{deployed}}}\n"))
    );
    let (status, _) = add(&server, r#"{"text":"down","from":"-50m","to":1600003200.5}"#).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = add(&server, r#"{"text":"future","time":"2030-01-01"}"#).await;
    assert_eq!(status, StatusCode::CREATED);
    let texts = async |uri: &str| -> Vec<String> {
        let answer = server.json(uri).await;
        let all = answer["annotations"].as_array().unwrap().iter();
        all.map(|one| one["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts("/v1/annotations").await, ["down", "deployed 1.2"]);
    assert_eq!(texts("/v1/annotations?selector={host=\"a\"}").await, ["deployed 1.2"]);
    // It overlaps the range and exceeds it.
    assert_eq!(texts("/v1/annotations?from=-40m&to=-39m").await, ["down"]);
    assert_eq!(texts(&format!("/v1/annotations?from={START}ns&to=-51m")).await, [""; 0]);
    assert_eq!(texts("/v1/annotations?limit=1").await, ["deployed 1.2"]);
    assert_eq!(texts("/v1/annotations?to=2040-01-01&from=2029-12-31").await, ["future"]);
    // Prometheus has no text values.
    assert_eq!(
        server.json("/api/v1/query?query=annotation").await["data"]["result"],
        serde_json::json!([])
    );
}

#[test]
fn latest_annotations_use_bounded_memory() {
    let one = |start: i64| Annotation {
        start,
        end: start,
        text: "x".repeat(1000),
        tags: vec![("host".to_owned(), "a".to_owned())],
    };
    let bytes = one(0).memory_bytes();
    assert!(bytes > 1000);
    for (limit, bytes_max, kept) in
        [(3, usize::MAX / 2, 3), (100, 2 * bytes, 2), (100, bytes - 1, 0), (0, 9 * bytes, 0)]
    {
        let mut latest = LatestAnnotations::new(limit, bytes_max);
        for start in 0..50 {
            latest.push(one(start));
            assert!(latest.bytes <= 2 * bytes_max && latest.found.len() <= 2 * limit);
        }
        let (found, is_cut) = latest.finish();
        let starts: Vec<i64> = found.iter().map(|annotation| annotation.start).collect();
        assert_eq!(starts, (50 - kept..50).collect::<Vec<_>>(), "{limit} {bytes_max}");
        assert!(is_cut);
    }
}

#[tokio::test]
async fn invalid_annotations_are_rejected() {
    let server = TestServer::new();
    for (body, expected) in [
        ("", "invalid annotation: invalid JSON: "),
        ("[]", "invalid annotation: expected an object such as"),
        ("{}", "invalid annotation: text is missing"),
        (r#"{"text":7}"#, "parameter text: found \\\"7\\\", expected a string"),
        (
            r#"{"text":"a","time":"noon"}"#,
            "parameter time: found \\\"noon\\\", expected a time such as",
        ),
        (r#"{"text":"a","from":1}"#, "invalid annotation: expected time, or from and to"),
        (r#"{"text":"a","from":2,"to":1}"#, "invalid annotation: to is before from"),
        (
            r#"{"text":"a","tags":{"b":1}}"#,
            "parameter b: found \\\"1\\\", expected tags: an object of strings",
        ),
        (r#"{"text":"a","colour":"red"}"#, "unknown field \\\"colour\\\""),
        (r#"{"text":"a","tags":{"":"x"}}"#, "label name"),
    ] {
        let (status, text) = add(&server, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {text}");
        assert!(text.contains(expected), "{body}: {text}");
    }
    let (status, _) = add(&server, &" ".repeat(100_000)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}
