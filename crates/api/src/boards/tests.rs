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
        Folder(std::env::temp_dir().join(format!("topdeck-boards-{:x}", journal::random_id())));
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

/// Asks with a header; the status and the tag of the answer.
async fn ask_with(
    trial: &Trial,
    method: &str,
    (header, tag): (&str, &str),
    body: &str,
) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri("/v1/boards/shop").header(header, tag);
    let answer = trial.answer(request.body(Body::from(body.to_owned())).unwrap()).await;
    let tag = answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
    (answer.status(), tag.unwrap_or_default())
}

#[tokio::test]
async fn what_somebody_else_kept_meanwhile_is_not_lost() {
    let folder =
        Folder(std::env::temp_dir().join(format!("topdeck-boards-two-{:x}", journal::random_id())));
    let boards = Some(folder.0.join("boards"));
    let trial = Trial::over(store(), DeskSettings { boards, ..Default::default() });
    let gone = StatusCode::PRECONDITION_FAILED;
    let put = async |header, tag: &str, board| ask_with(&trial, "PUT", (header, tag), board).await;
    assert_eq!(put("if-match", "*", "{}").await.0, gone);
    let (status, first) = put("if-none-match", "*", r#"{"title":"a"}"#).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(put("if-none-match", "*", r#"{"title":"b"}"#).await.0, gone);
    assert_eq!(
        ask_with(&trial, "GET", ("accept", "*/*"), "").await,
        (StatusCode::OK, first.clone())
    );
    // Two have read it; the second one to keep it is told, and the first one's board stays.
    let (status, second) = put("if-match", &format!("W/{first}"), r#"{"title":"c"}"#).await;
    assert_eq!((status, second != first), (StatusCode::OK, true));
    assert_eq!(put("if-match", &first, r#"{"title":"d"}"#).await.0, gone);
    assert_eq!(ask_with(&trial, "DELETE", ("if-match", &first), "").await.0, gone);
    assert_eq!(ask(&trial, "GET", "/v1/boards/shop", "").await.1, r#"{"title":"c"}"#);
    assert_eq!(ask_with(&trial, "DELETE", ("if-match", &second), "").await.0, StatusCode::OK);
}

#[tokio::test]
async fn what_cannot_be_kept_leaves_nothing_behind() {
    let folder = Folder(
        std::env::temp_dir().join(format!("topdeck-boards-full-{:x}", journal::random_id())),
    );
    let boards = folder.0.join("boards");
    let settings = DeskSettings { boards: Some(boards.clone()), ..Default::default() };
    let trial = Trial::over(store(), settings);
    // Something stands where the board would go, as a disk that fails at the last step.
    std::fs::create_dir_all(boards.join("shop.json")).unwrap();
    assert!(super::keep(&boards, "shop", b"{}").is_err());
    assert!(!boards.join("shop.new").exists());
    let (status, text) = ask(&trial, "PUT", "/v1/boards/shop", "{}").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
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
