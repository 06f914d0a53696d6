//! Boards are kept, read back as they were written, listed and removed; no name leads out of their folder.

use std::path::PathBuf;

use axum::body::Body;
use http::{Request, StatusCode};

use super::{BYTES_MAX, checked};
use crate::desk::DeskSettings;
use crate::trial::{Trial, store};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn ask(trial: &Trial, method: &str, uri: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(uri);
    trial.send_request(request.body(Body::from(body.to_owned())).unwrap()).await
}

#[tokio::test]
async fn boards_are_kept_as_they_were_written() {
    let folder =
        Folder(std::env::temp_dir().join(format!("topdeck-boards-{}", std::process::id())));
    let boards = Some(folder.0.join("boards"));
    let trial = Trial::over(store(), DeskSettings { boards, ..Default::default() });
    let none = (StatusCode::OK, "{\"schema\":1,\"boards\":[]}\n".to_owned());
    assert_eq!(ask(&trial, "GET", "/v1/boards", "").await, none);
    let board = "{ \"title\": \"The shop\", \"panels\": [] }";
    for board in ["{}", board] {
        let (status, text) = ask(&trial, "PUT", "/v1/boards/shop", board).await;
        assert_eq!(status, StatusCode::OK, "{text}");
    }
    assert_eq!(ask(&trial, "GET", "/v1/boards/shop", "").await, (StatusCode::OK, board.to_owned()));
    let listed = "{\"schema\":1,\"boards\":[{\"name\":\"shop\",\"title\":\"The shop\"}]}\n";
    assert_eq!(ask(&trial, "GET", "/v1/boards", "").await.1, listed);
    for wrong in ["", "[]", "{", &format!("{{\"a\":\"{}\"}}", "x".repeat(BYTES_MAX))] {
        let (status, text) = ask(&trial, "PUT", "/v1/boards/shop", wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    }
    assert_eq!(ask(&trial, "GET", "/v1/boards/shop", "").await.1, board);
    assert_eq!(ask(&trial, "DELETE", "/v1/boards/shop", "").await.0, StatusCode::OK);
    assert_eq!(ask(&trial, "DELETE", "/v1/boards/shop", "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(ask(&trial, "GET", "/v1/boards/shop", "").await.0, StatusCode::NOT_FOUND);
    let (status, _) = ask(&trial, "PUT", "/v1/boards/..%2Fout", "{}").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!folder.0.join("out.json").exists());
}

#[test]
fn a_name_is_no_path() {
    for good in ["a", "web-1_b", "0"] {
        assert!(checked(good).is_ok(), "{good}");
    }
    for wrong in ["", ".", "a.b", "../a", "a/b", "-a", &"a".repeat(65)] {
        assert!(checked(wrong).is_err(), "{wrong}");
    }
}
