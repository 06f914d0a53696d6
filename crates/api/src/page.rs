//! The page: files of the program itself, for browsers. They need no token; what they ask does.

use std::collections::HashMap;
use std::sync::LazyLock;

use ::page::File;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::tag;
use crate::unread::SharedBody;

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
    let tag = format!("\"{}\"", file.tag);
    let is_known = tag::names(headers, &IF_NONE_MATCH, Some(&tag)) == Some(true);
    let tag = HeaderValue::try_from(tag).expect("BUG: a tag is hexadecimal");
    let is_packed = takes_gzip(headers);
    let body = match (is_known, is_packed) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(file.packed),
        (false, false) => Body::from(unpacked(file)),
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
    response.extensions_mut().insert(SharedBody);
    let told = response.headers_mut();
    if is_packed && !is_known {
        told.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A file for those who do not take gzip. All are unpacked once: whoever asks needs no token, and
/// may ask as often as they like.
fn unpacked(file: &File) -> Bytes {
    static UNPACKED: LazyLock<HashMap<&'static str, Bytes>> = LazyLock::new(|| {
        ::page::files().iter().map(|file| (file.path, file.bytes().into())).collect()
    });
    UNPACKED[file.path].clone()
}

/// Whether gzip is among what is taken; with a weight of zero it is not (RFC 9110, 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut coded = texts.flat_map(|text| text.split(',')).filter_map(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        name.trim().eq_ignore_ascii_case("gzip").then(|| weight.trim().to_ascii_lowercase())
    });
    coded.next().is_some_and(|weight| {
        weight.strip_prefix("q=").and_then(|weight| weight.parse().ok()).unwrap_or(1.0) > 0.0
    })
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

    #[test]
    fn what_is_packed_is_wanted_packed() {
        let check = |value: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_gzip(&headers), expected, "{value}");
        };
        check("gzip, deflate, br", true);
        check("br;q=1.0, GZIP;q=0.8", true);
        check("br, gzip; q=0.000", false);
        check("identity, not-gzip", false);
        check("", false);
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
