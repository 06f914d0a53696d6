//! Web UI files embedded in the binary. Unauthenticated; the API calls of the UI are not.

use std::collections::HashMap;
use std::sync::LazyLock;

use ::page::Asset;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::etag;
use crate::response_buffers::SharedBody;

/// Only files of this server: no inline script or style, no other host, no framing.
const CSP_VALUE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors \
                         'none'";

/// The file of a path, if it exists; `/` always exists: without the web UI it is a text that says
/// how to get it.
pub(crate) fn file_response(path: &str, headers: &HeaderMap) -> Option<Response> {
    match ::page::find_asset(path) {
        Some(file) => Some(serve_file(file, headers)),
        None if path == "/" => Some(::page::MISSING_TEXT.into_response()),
        None => None,
    }
}

fn serve_file(file: &Asset, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", file.etag);
    let is_known = etag::matches_header(headers, &IF_NONE_MATCH, Some(&tag)) == Some(true);
    let tag = HeaderValue::try_from(tag).expect("BUG: an ETag is not hexadecimal");
    let is_packed = accepts_gzip(headers);
    let body = match (is_known, is_packed) {
        (true, _) => Body::empty(),
        (false, true) => Body::from(file.gzip_bytes),
        (false, false) => Body::from(decompressed(file)),
    };
    let mut response = Response::new(body);
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let keep = if file.is_content_addressed() { "max-age=31536000, immutable" } else { "no-cache" };
    let response_headers = response.headers_mut();
    response_headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    response_headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    response_headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP_VALUE));
    response_headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response_headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response_headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response_headers.insert(ETAG, tag);
    response.extensions_mut().insert(SharedBody);
    let response_headers = response.headers_mut();
    if is_packed && !is_known {
        response_headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// A file for clients without gzip. All files are decompressed once: clients need no token, and may
/// request them at any rate.
fn decompressed(file: &Asset) -> Bytes {
    static DECOMPRESSED: LazyLock<HashMap<&'static str, Bytes>> = LazyLock::new(|| {
        ::page::assets().iter().map(|file| (file.path, file.decompress().into())).collect()
    });
    DECOMPRESSED[file.path].clone()
}

/// Whether gzip is accepted; a weight of zero means no (RFC 9110, 12.5.3).
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
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
    fn root_is_the_page_or_says_how_to_get_it() {
        let answer = |path| file_response(path, &HeaderMap::new());
        let first = answer("/").unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let kind = if ::page::IS_EMBEDDED { "text/html" } else { "text/plain" };
        assert!(first.headers()[CONTENT_TYPE].to_str().unwrap().starts_with(kind));
        for part in ["without its web UI", "Node.js", "make run", "cargo xtask page", "API"] {
            assert!(::page::MISSING_TEXT.contains(part), "{part}");
        }
        assert!(answer("/v1/nothing").is_none());
    }

    #[test]
    fn cached_files_are_not_sent_again() {
        for file in ::page::assets() {
            let mut headers = HeaderMap::new();
            let fresh = file_response(file.path, &headers).unwrap();
            assert_eq!(fresh.status(), StatusCode::OK);
            assert!(
                fresh.headers()[CONTENT_SECURITY_POLICY]
                    .to_str()
                    .unwrap()
                    .starts_with("default-src 'none'")
            );
            headers.insert(IF_NONE_MATCH, fresh.headers()[ETAG].clone());
            assert_eq!(
                file_response(file.path, &headers).unwrap().status(),
                StatusCode::NOT_MODIFIED
            );
        }
    }

    #[test]
    fn gzip_is_sent_only_if_accepted() {
        let check = |value: &'static str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        };
        check("gzip, deflate, br", true);
        check("br;q=1.0, GZIP;q=0.8", true);
        check("br, gzip; q=0.000", false);
        check("identity, not-gzip", false);
        check("", false);
        assert!(!accepts_gzip(&HeaderMap::new()));
    }
}
