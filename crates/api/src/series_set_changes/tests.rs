//! Changes are listed and accepted, once.

use axum::body::Body;
use http::{Request, StatusCode};
use rules::SeriesSetChange;
use serde_json::Value;

use crate::test_server::{NOW, TestServer};

fn change(minutes_ago: i64, text: &str) -> SeriesSetChange {
    SeriesSetChange {
        time_ns: NOW - minutes_ago * store::MINUTE,
        source: "shop".to_owned(),
        text: text.to_owned(),
        acceptance: None,
    }
}

async fn server_with_changes() -> (TestServer, Vec<SeriesSetChange>) {
    let server = TestServer::new();
    let changes = vec![
        change(90 * 24 * 60, "label `old` disappeared from 1 series, 1 new"),
        change(20, "label `lb` disappeared from 14 series, 1 new"),
        change(10, "2 series vanished"),
    ];
    for change in &changes {
        let (series, sample) = change.sample();
        server.send(&series.validate().unwrap(), sample);
    }
    (server, changes)
}

async fn accept(server: &TestServer, id: &str, body: &str) -> (StatusCode, String) {
    let uri = format!("/v1/changes/{id}/accept");
    server.send_request(Request::post(uri).body(Body::from(body.to_owned())).unwrap()).await
}

fn texts(answer: &Value) -> Vec<&str> {
    let changes = answer["changes"].as_array().unwrap();
    changes.iter().map(|change| change["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn changes_are_listed_and_accepted() {
    let (server, changes) = server_with_changes().await;
    let answer = server.json("/v1/changes").await;
    assert_eq!(texts(&answer), [&*changes[1].text, &*changes[2].text]);
    assert_eq!(answer["changes"][0]["id"], changes[1].id());
    assert_eq!(answer["changes"][0]["acceptance"], Value::Null);
    let (status, text) = accept(&server, &changes[1].id(), "{\"note\":\"planned\\ntwice\"}").await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let accepted: Value = serde_json::from_str(&text).unwrap();
    let acceptance = &accepted["change"]["acceptance"];
    assert_eq!(
        (&acceptance["by"], &acceptance["note"]),
        (&"local".into(), &"planned\ntwice".into())
    );
    assert_eq!(texts(&server.json("/v1/changes?open=true").await), [&*changes[2].text]);
    let answer = server.json("/v1/changes").await;
    assert_eq!(&answer["changes"][0]["acceptance"], acceptance);
    // A second acceptance changes nothing.
    let (status, text) = accept(&server, &changes[1].id(), "{\"note\":\"other\"}").await;
    assert_eq!((status, serde_json::from_str::<Value>(&text).unwrap()), (StatusCode::OK, accepted));
    // They are annotations.
    let annotations = server.json("/v1/annotations?selector={event=\"series\"}").await;
    assert_eq!(annotations["annotations"].as_array().unwrap().len(), 2);
    assert_eq!(texts(&server.json("/v1/changes?from=-100d").await).len(), 3);
}

#[tokio::test]
async fn what_cannot_be_accepted_is_rejected() {
    let (server, changes) = server_with_changes().await;
    let (status, text) = accept(&server, "0123", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
    for body in ["[]", "{\"note\":1}", "{\"nope\":\"\"}", "{"] {
        let (status, text) = accept(&server, &changes[1].id(), body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
        assert!(text.contains("invalid acceptance"), "{text}");
    }
    assert_eq!(texts(&server.json("/v1/changes?open=true").await).len(), 2);
    let (status, _) = server.get("/v1/changes?opne=1").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
