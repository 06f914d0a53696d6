//! Tests of damage reports and their acknowledgement.

use axum::body::Body;
use http::{Request, StatusCode};

use crate::damage_report::health_message;
use crate::query_service::QueryServiceSettings;
use crate::test_server::{TestServer, empty_store};

const PLACE: &str = "records 3..4 of the journal";

fn server() -> TestServer {
    TestServer::with_store(empty_store(), QueryServiceSettings::default())
}

async fn post(server: &TestServer, uri: &str) -> (StatusCode, String) {
    server.send_request(Request::post(uri).body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn health_is_well_again_after_the_damage_is_acknowledged_and_status_lists_it() {
    let server = server();
    let supervisor = server.context.intake.supervisor();
    supervisor.report_damage(PLACE.to_owned(), 1, "run `topdeck journal repair /data`".to_owned());
    supervisor.quarantine_permanently("record 9 of the journal", "a count overflows");
    let path = "/v1/damage/acknowledge?note=disk%20replaced";
    let (status, text) = post(&server, path).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let new = answer["acknowledged"].as_array().unwrap();
    let locations: Vec<&str> = new.iter().map(|it| it["location"].as_str().unwrap()).collect();
    assert_eq!(locations, [PLACE, "record 9 of the journal"]);
    assert_eq!(server.get("/health").await, (StatusCode::OK, "topdeck is healthy\n".to_owned()));
    let status = server.json("/v1/status").await;
    assert_eq!(status["acknowledged_damage"], answer["acknowledged"]);
    assert_eq!(status["acknowledged_damage"][0]["note"], "disk replaced");
    assert_eq!(status["damage"][0]["acknowledged"], true);
    assert_eq!(status["quarantined"][0]["acknowledged"], true);
    // Other damage is reported. The response of /health is cached for a second.
    let supervisor = server.context.intake.supervisor();
    supervisor.report_damage("records 8..9 of the journal".to_owned(), 1, String::new());
    let text = health_message(supervisor);
    assert!(text.starts_with("topdeck is degraded\ncannot read records 8..9"), "{text}");
}

#[tokio::test]
async fn what_is_not_reported_or_is_retried_cannot_be_acknowledged() {
    let server = server();
    let supervisor = server.context.intake.supervisor();
    supervisor.quarantine("rolling up day 7", "a count overflows");
    for (location, reason) in [
        ("rolling%20up%20day%207", "it is retried, and its report ends when that succeeds"),
        ("record%205", "it is not reported; /v1/status has the locations"),
    ] {
        let path = format!("/v1/damage/acknowledge?location={location}");
        let (status, text) = post(&server, &path).await;
        assert!(status == StatusCode::NOT_FOUND && text.contains(reason), "{status} {text}");
    }
    let (status, text) = post(&server, "/v1/damage/acknowledge").await;
    assert_eq!((status, &*text), (StatusCode::OK, "{\"schema\":1,\"acknowledged\":[]}\n"));
    let (_, text) = server.get("/health").await;
    assert!(text.contains("rolling up day 7 is quarantined"), "{text}");
    let status = server.json("/v1/status").await;
    assert_eq!(status["quarantined"][0]["acknowledged"], false);
}
