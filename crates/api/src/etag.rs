//! ETags (RFC 9110, 8.8.3 and 13.1).

use http::HeaderMap;
use http::header::HeaderName;

/// The ETag of bytes, as a header value.
pub(crate) fn etag(bytes: &[u8]) -> String {
    format!("\"{}\"", &blake3::hash(bytes).to_hex()[..16])
}

/// Whether a header matches the current ETag; `*` matches any. A weak tag (`W/"…"`) matches too: a
/// proxy that compresses a response weakens its tag. `None` without the header.
pub(crate) fn matches_header(
    headers: &HeaderMap,
    header: &HeaderName,
    now: Option<&str>,
) -> Option<bool> {
    let mut values = headers.get_all(header).iter().peekable();
    values.peek()?;
    let is_it = |tag: &str| tag == "*" || Some(tag.strip_prefix("W/").unwrap_or(tag)) == now;
    let mut texts = values.filter_map(|value| value.to_str().ok());
    Some(now.is_some() && texts.any(|text| text.split(',').any(|tag| is_it(tag.trim()))))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::IF_NONE_MATCH;

    use super::*;

    #[track_caller]
    fn check(values: &[&'static str], now: Option<&str>, expected: Option<bool>) {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_NONE_MATCH, HeaderValue::from_static(value));
        }
        assert_eq!(matches_header(&headers, &IF_NONE_MATCH, now), expected, "{values:?}");
    }

    #[test]
    fn etags_are_parsed_as_browsers_and_proxies_write_them() {
        let now = Some("\"a\"");
        check(&[], now, None);
        check(&["\"a\""], now, Some(true));
        check(&["W/\"a\""], now, Some(true));
        check(&["\"b\", W/\"a\""], now, Some(true));
        check(&["\"b\"", "\"a\""], now, Some(true));
        check(&["*"], now, Some(true));
        check(&["*"], None, Some(false));
        check(&["\"b\""], now, Some(false));
        check(&["a"], now, Some(false));
        assert_ne!(etag(b"a"), etag(b"b"));
    }
}
