//! Snapshots are created, listed and deleted; no name leads out of the directory.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, StatusCode};

use super::checked_name;
use crate::query_service::QueryServiceSettings;
use crate::test_server::{TestServer, empty_store, empty_store_in};

/// A directory that is removed on drop.
struct TestDir(PathBuf);

impl Drop for TestDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

async fn send(server: &TestServer, method: &str, uri: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    server.send_request(request).await
}

#[tokio::test]
async fn snapshots_are_created_and_deleted() {
    let dir = TestDir(std::env::temp_dir().join(format!("topdeck-api-{:x}", journal::random_id())));
    let store = empty_store_in(Arc::new(disk::OsDisk), &dir.0.join("store"));
    let snapshots = Some(dir.0.join("snapshots"));
    let server = TestServer::with_store(
        store,
        QueryServiceSettings { snapshots_dir: snapshots, ..Default::default() },
    );
    let none = (StatusCode::OK, "{\"schema\":1,\"snapshots\":[]}\n".to_owned());
    assert_eq!(send(&server, "GET", "/v1/snapshots").await, none);
    let (status, text) = send(&server, "POST", "/v1/snapshots?name=before-1.2").await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    let (status, text) = send(&server, "POST", "/v1/snapshots?name=before-1.2").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("exists"), "{text}");
    let (status, text) = send(&server, "POST", "/v1/snapshots").await;
    assert!(
        status == StatusCode::CREATED && text.contains("\"name\":\"20200913T133000.000Z\""),
        "{text}"
    );
    let listed = "{\"schema\":1,\"snapshots\":[{\"name\":\"20200913T133000.000Z\",\"complete\":true},{\"name\":\"before-1.2\",\"complete\":true}]}\n";
    assert_eq!(send(&server, "GET", "/v1/snapshots").await.1, listed);
    for name in ["before-1.2", "20200913T133000.000Z"] {
        let uri = format!("/v1/snapshots/{name}");
        assert_eq!(send(&server, "DELETE", &uri).await.0, StatusCode::OK);
        assert_eq!(send(&server, "DELETE", &uri).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(send(&server, "GET", "/v1/snapshots").await, none);
    let (status, _) = send(&server, "DELETE", "/v1/snapshots/..%2Fstore").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(dir.0.join("store").exists());
}

#[tokio::test]
async fn snapshots_need_a_directory() {
    let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
    assert_eq!(send(&server, "POST", "/v1/snapshots").await.0, StatusCode::NOT_FOUND);
}

#[test]
fn snapshot_names_cannot_be_paths() {
    for name in ["a", "2026-11-09T12.30_x"] {
        assert_eq!(checked_name(name), Ok(name));
    }
    for name in ["", ".", "..", ".a", "-a", "a/b", "a\\b", "a\0", "é", &"a".repeat(65)] {
        assert!(checked_name(name).is_err(), "{name:?}");
    }
}
