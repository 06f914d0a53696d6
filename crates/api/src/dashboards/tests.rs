//! Dashboards are stored, returned as written, listed and deleted; no name leads out of the
//! directory.

use std::path::PathBuf;

use axum::body::Body;
use http::{Request, StatusCode};

use super::{BYTES_MAX, checked_name};
use crate::query_service::QueryServiceSettings;
use crate::test_server::{TestServer, empty_store};

/// A directory that is removed on drop.
struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn send(server: &TestServer, method: &str, uri: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri);
    server.send_request(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn dashboards_are_stored_unchanged() {
    let dir =
        TestDir(std::env::temp_dir().join(format!("topdeck-boards-{:x}", journal::random_id())));
    let boards = Some(dir.0.join("boards"));
    let server = TestServer::with_store(
        empty_store(),
        QueryServiceSettings { dashboards_dir: boards, ..Default::default() },
    );
    let none = (StatusCode::OK, "{\"schema\":2,\"dashboards\":[]}\n".to_owned());
    assert_eq!(send(&server, "GET", "/v1/dashboards", "").await, none);
    let board = "{ \"title\": \"The shop\", \"panels\": [] }";
    for board in ["{}", board] {
        let (status, text) = send(&server, "PUT", "/v1/dashboards/shop", board).await;
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    assert_eq!(
        send(&server, "GET", "/v1/dashboards/shop", "").await,
        (StatusCode::OK, board.to_owned())
    );
    let listed = "{\"schema\":2,\"dashboards\":[{\"name\":\"shop\",\"title\":\"The shop\"}]}\n";
    assert_eq!(send(&server, "GET", "/v1/dashboards", "").await.1, listed);
    for wrong in ["", "[]", "{", &format!("{{\"a\":\"{}\"}}", "x".repeat(BYTES_MAX))] {
        let (status, text) = send(&server, "PUT", "/v1/dashboards/shop", wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    }
    assert_eq!(send(&server, "GET", "/v1/dashboards/shop", "").await.1, board);
    assert_eq!(send(&server, "DELETE", "/v1/dashboards/shop", "").await.0, StatusCode::OK);
    assert_eq!(send(&server, "DELETE", "/v1/dashboards/shop", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(send(&server, "GET", "/v1/dashboards/shop", "").await.0, StatusCode::NOT_FOUND);
    let (status, _) = send(&server, "PUT", "/v1/dashboards/..%2Fout", "{}").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!dir.0.join("out.json").exists());
}

/// Sends a request with a header; returns status and ETag.
async fn send_with_header(
    server: &TestServer,
    method: &str,
    (header, tag): (&str, &str),
    body: &str,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri("/v1/dashboards/shop").header(header, tag);
    let answer = server.respond(request.body(Body::from(body.to_owned())).unwrap()).await;
    let tag = answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
    (answer.status(), tag.unwrap_or_default())
}

#[tokio::test]
async fn dashboard_of_schema_1_is_migrated_on_read() {
    let dir = TestDir(
        std::env::temp_dir().join(format!("topdeck-boards-old-{:x}", journal::random_id())),
    );
    let server = TestServer::with_store(
        empty_store(),
        QueryServiceSettings { dashboards_dir: Some(dir.0.clone()), ..Default::default() },
    );
    let old = r#"{"schema":1,"panels":[{"text":"check_up","language":"metric"}]}"#;
    std::fs::create_dir_all(&dir.0).unwrap();
    std::fs::write(dir.0.join("shop.json"), old).unwrap();
    let text = send(&server, "GET", "/v1/dashboards/shop", "").await.1;
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&read["schema"], &read["panels"][0]["text"]), (&2.into(), &"probe_success".into()));
    assert_eq!(std::fs::read_to_string(dir.0.join("shop.json")).unwrap(), old);
    // A dashboard can be changed with the ETag of a read or a write.
    let (_, tag) = send_with_header(&server, "GET", ("accept", "*/*"), "").await;
    let (status, tag) = send_with_header(&server, "PUT", ("if-match", &tag), old).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = send_with_header(&server, "DELETE", ("if-match", &tag), "").await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn concurrent_change_is_rejected() {
    let dir = TestDir(
        std::env::temp_dir().join(format!("topdeck-boards-two-{:x}", journal::random_id())),
    );
    let boards = Some(dir.0.join("boards"));
    let server = TestServer::with_store(
        empty_store(),
        QueryServiceSettings { dashboards_dir: boards, ..Default::default() },
    );
    let precondition_failed = StatusCode::PRECONDITION_FAILED;
    let put = async |header, tag: &str, board| {
        send_with_header(&server, "PUT", (header, tag), board).await
    };
    assert_eq!(put("if-match", "*", "{}").await.0, precondition_failed);
    let (status, first) = put("if-none-match", "*", r#"{"title":"a"}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(put("if-none-match", "*", r#"{"title":"b"}"#).await.0, precondition_failed);
    assert_eq!(
        send_with_header(&server, "GET", ("accept", "*/*"), "").await,
        (StatusCode::OK, first.clone())
    );
    // Two clients have read it; the second write fails, and the first one's dashboard stays.
    let (status, second) = put("if-match", &format!("W/{first}"), r#"{"title":"c"}"#).await;
    assert_eq!((status, second != first), (StatusCode::OK, true));
    assert_eq!(put("if-match", &first, r#"{"title":"d"}"#).await.0, precondition_failed);
    assert_eq!(
        send_with_header(&server, "DELETE", ("if-match", &first), "").await.0,
        precondition_failed
    );
    assert_eq!(send(&server, "GET", "/v1/dashboards/shop", "").await.1, r#"{"title":"c"}"#);
    assert_eq!(
        send_with_header(&server, "DELETE", ("if-match", &second), "").await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn failed_write_leaves_no_file() {
    let dir = TestDir(
        std::env::temp_dir().join(format!("topdeck-boards-full-{:x}", journal::random_id())),
    );
    let boards = dir.0.join("boards");
    let settings =
        QueryServiceSettings { dashboards_dir: Some(boards.clone()), ..Default::default() };
    let server = TestServer::with_store(empty_store(), settings);
    // A directory in the file's place makes the last step fail, as a failing disk would.
    std::fs::create_dir_all(boards.join("shop.json")).unwrap();
    assert!(super::write_file(&boards, "shop", b"{}").is_err());
    assert!(!boards.join("shop.json.new").exists());
    let (status, text) = send(&server, "PUT", "/v1/dashboards/shop", "{}").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
}

#[test]
fn dashboard_names_cannot_be_paths() {
    for good in ["a", "web-1_b", "0"] {
        assert!(checked_name(good).is_ok(), "{good}");
    }
    for wrong in ["", ".", "a.b", "../a", "a/b", "-a", &"a".repeat(65)] {
        assert!(checked_name(wrong).is_err(), "{wrong}");
    }
}
