//! Snapshots are made, listed and removed, and no name leads out of their folder.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use http::{Request, StatusCode};

use super::checked;
use crate::desk::DeskSettings;
use crate::trial::{Trial, store, store_in};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

async fn ask(trial: &Trial, method: &str, uri: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
    trial.send_request(request).await
}

#[tokio::test]
async fn snapshots_are_made_and_removed() {
    let folder =
        Folder(std::env::temp_dir().join(format!("topdeck-api-{:x}", journal::random_id())));
    let store = store_in(Arc::new(disk::OsDisk), &folder.0.join("store"));
    let snapshots = Some(folder.0.join("snapshots"));
    let trial = Trial::over(store, DeskSettings { snapshots, ..Default::default() });
    let none = (StatusCode::OK, "{\"schema\":1,\"snapshots\":[]}\n".to_owned());
    assert_eq!(ask(&trial, "GET", "/v1/snapshots").await, none);
    let (status, text) = ask(&trial, "POST", "/v1/snapshots?name=before-1.2").await;
    assert_eq!(status, StatusCode::CREATED, "{text}");
    let (status, text) = ask(&trial, "POST", "/v1/snapshots?name=before-1.2").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("there is a snapshot"), "{text}");
    let (status, text) = ask(&trial, "POST", "/v1/snapshots").await;
    assert!(
        status == StatusCode::CREATED && text.contains("\"name\":\"20200913T133000.000Z\""),
        "{text}"
    );
    let listed = "{\"schema\":1,\"snapshots\":[{\"name\":\"20200913T133000.000Z\",\"complete\":true},{\"name\":\"before-1.2\",\"complete\":true}]}\n";
    assert_eq!(ask(&trial, "GET", "/v1/snapshots").await.1, listed);
    for name in ["before-1.2", "20200913T133000.000Z"] {
        let uri = format!("/v1/snapshots/{name}");
        assert_eq!(ask(&trial, "DELETE", &uri).await.0, StatusCode::OK);
        assert_eq!(ask(&trial, "DELETE", &uri).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(ask(&trial, "GET", "/v1/snapshots").await, none);
    let (status, _) = ask(&trial, "DELETE", "/v1/snapshots/..%2Fstore").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(folder.0.join("store").exists());
}

#[tokio::test]
async fn without_a_folder_none_are_made() {
    let trial = Trial::over(store(), DeskSettings::default());
    assert_eq!(ask(&trial, "POST", "/v1/snapshots").await.0, StatusCode::NOT_FOUND);
}

#[test]
fn names_are_no_paths() {
    for name in ["a", "2026-11-09T12.30_x"] {
        assert_eq!(checked(name), Ok(name));
    }
    for name in ["", ".", "..", ".a", "-a", "a/b", "a\\b", "a\0", "é", &"a".repeat(65)] {
        assert!(checked(name).is_err(), "{name:?}");
    }
}
