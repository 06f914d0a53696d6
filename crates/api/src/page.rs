//! The page: files of the program itself, for browsers. They need no token; what they ask does.

use ::page::File;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

/// Nothing but what this server has: no script or style in the text, no other host, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file at a path, if there is one; at `/` there always is something.
pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Option<Response> {
    match ::page::file(path) {
        Some(file) => Some(of(file, headers)),
        None if path == "/" => Some((StatusCode::NOT_FOUND, ::page::MISSING).into_response()),
        None => None,
    }
}

fn of(file: &File, headers: &HeaderMap) -> Response {
    let tag =
        HeaderValue::try_from(format!("\"{}\"", file.tag)).expect("BUG: a tag is hexadecimal");
    let is_known = headers.get(IF_NONE_MATCH) == Some(&tag);
    let packs = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("gzip"));
    let is_packed = headers.get(ACCEPT_ENCODING).is_some_and(packs);
    let body = match (is_known, is_packed) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(file.packed),
        (false, false) => Body::from(file.bytes()),
    };
    let mut response = Response::new(body);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let keep = if file.is_named_by_content() { "max-age=31536000, immutable" } else { "no-cache" };
    let told = response.headers_mut();
    told.insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    told.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    told.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    told.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    told.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    told.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    told.insert(ETAG, tag);
    if is_packed && !is_known {
        told.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_or_a_word_about_it() {
        let answer = |path| answer(path, &HeaderMap::new());
        let first = answer("/").unwrap();
        assert_eq!(first.status() == StatusCode::OK, !::page::files().is_empty());
        assert!(answer("/v1/nothing").is_none());
    }

    #[test]
    fn what_a_browser_has_is_not_sent_again() {
        for file in ::page::files() {
            let mut headers = HeaderMap::new();
            let fresh = answer(file.path, &headers).unwrap();
            assert_eq!(fresh.status(), StatusCode::OK);
            assert!(
                fresh.headers()[CONTENT_SECURITY_POLICY]
                    .to_str()
                    .unwrap()
                    .starts_with("default-src 'none'")
            );
            headers.insert(IF_NONE_MATCH, fresh.headers()[ETAG].clone());
            assert_eq!(answer(file.path, &headers).unwrap().status(), StatusCode::NOT_MODIFIED);
        }
    }
}
