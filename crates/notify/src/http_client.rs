//! HTTP requests to receivers, and what a response says about the delivery.
//!
//! Each request has a connection of its own: notifications are few, and a reused connection that
//! the receiver has just closed would make the outcome unknown. Errors name host and port only,
//! because paths contain secrets.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use net::Endpoint;
use net::dial::{DialTimeouts, Dialer, RequestPhase, ResponseLimits};
use net::tls::ClientTls;
use serde_json::Value;

use crate::delivery_result::DeliveryError;
use crate::form_body::FormBody;
use crate::message::one_line;

/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Characters of a response that an error shows.
const EXCERPT_CHARS: usize = 200;

/// Sends HTTP requests to receivers.
#[derive(Clone, Debug)]
pub struct HttpClient {
    tls: ClientTls,
    timeouts: DialTimeouts,
    response_timeout: Duration,
}

impl HttpClient {
    /// A client. The timeout is that of each phase: resolve, connect, TLS, response.
    pub fn new(tls: ClientTls, timeout: Duration) -> HttpClient {
        let timeouts = DialTimeouts { resolve: timeout, connect: timeout, tls: timeout };
        HttpClient { tls, timeouts, response_timeout: timeout }
    }

    /// Timeout of each phase.
    pub(crate) fn timeout(&self) -> Duration {
        self.response_timeout
    }

    /// TLS configuration.
    pub(crate) fn tls(&self) -> &ClientTls {
        &self.tls
    }

    /// Posts JSON.
    pub(crate) async fn post_json(
        &self,
        url: &str,
        headers: HeaderMap,
        body: &Value,
    ) -> Result<HttpReply, DeliveryError> {
        self.post(url, headers, "application/json", body.to_string().into()).await
    }

    /// Posts a form.
    pub(crate) async fn post_form(
        &self,
        url: &str,
        headers: HeaderMap,
        form: &FormBody,
    ) -> Result<HttpReply, DeliveryError> {
        let (content_type, body) = form.finish();
        self.post(url, headers, &content_type, body).await
    }

    /// Posts a body.
    pub(crate) async fn post(
        &self,
        url: &str,
        mut headers: HeaderMap,
        content_type: &str,
        body: Bytes,
    ) -> Result<HttpReply, DeliveryError> {
        let content_type =
            HeaderValue::from_str(content_type).expect("BUG: a content type is no ASCII");
        headers.insert(CONTENT_TYPE, content_type);
        self.send(Method::POST, url, headers, body).await
    }

    /// Sends a request over a new connection.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpReply, DeliveryError> {
        let endpoint = Endpoint::parse(url)
            .map_err(|error| DeliveryError::permanent(format!("invalid URL: {}", error.reason)))?;
        let dialer = Dialer::for_target(&endpoint, &self.tls, &[], self.timeouts)
            .map_err(|error| DeliveryError::temporary(error.to_string()))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = endpoint.path.parse().map_err(|error| {
            DeliveryError::permanent(format!("invalid path of {}: {error}", endpoint.authority()))
        })?;
        *request.headers_mut() = headers;
        let agent = concat!("topdeck/", env!("CARGO_PKG_VERSION"));
        request.headers_mut().insert(http::header::USER_AGENT, HeaderValue::from_static(agent));
        let (mut connection, _) = dialer.dial(&endpoint).await.map_err(dial_error)?;
        let limits =
            ResponseLimits { timeout: self.response_timeout, max_bytes: RESPONSE_BYTES_MAX };
        let response = connection.send_and_truncate(request, limits).await.map_err(dial_error)?;
        let (head, body) = response.response.into_parts();
        let from = endpoint.authority();
        Ok(HttpReply { from, status: head.status, headers: head.headers, body })
    }
}

fn dial_error(error: net::dial::Error) -> DeliveryError {
    // Before the response phase nothing of the notification was sent.
    match error.phase {
        RequestPhase::Response => DeliveryError::unconfirmed(error.to_string()),
        _ => DeliveryError::temporary(error.to_string()),
    }
}

/// Response of a receiver.
#[derive(Debug)]
pub(crate) struct HttpReply {
    from: String,
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpReply {
    /// The response, if its status is 2xx.
    ///
    /// A response with an error status is an answer: the receiver does not have the notification.
    pub(crate) fn accepted(self, now_ns: i64) -> Result<HttpReply, DeliveryError> {
        if self.status.is_success() {
            return Ok(self);
        }
        let reason = format!("{} responded {}{}", self.from, self.status, self.excerpt());
        let is_temporary = self.status.is_server_error()
            || matches!(
                self.status,
                StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
            );
        if !is_temporary {
            return Err(DeliveryError::Permanent { reason });
        }
        let retry_after = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after
            .and_then(|text| parse_retry_after(text, now_ns))
            .or_else(|| self.retry_after_in_body());
        Err(DeliveryError::new_temporary(reason, retry_after, false))
    }

    /// The body as JSON; an error says that the receiver may have the notification.
    pub(crate) fn json(&self) -> Result<Value, DeliveryError> {
        serde_json::from_slice(&self.body).map_err(|_| self.unconfirmed("no JSON response"))
    }

    /// The response does not prove the delivery.
    pub(crate) fn unconfirmed(&self, what: &str) -> DeliveryError {
        let Self { from, status, .. } = self;
        let excerpt = self.excerpt();
        DeliveryError::unconfirmed(format!("{from} did not confirm: {what}, {status}{excerpt}"))
    }

    /// The receiver rejects the notification in the body of a response.
    pub(crate) fn rejected(&self, what: &str) -> DeliveryError {
        DeliveryError::permanent(format!("{} rejected the message: {what}", self.from))
    }

    /// Seconds in `retry_after`, as of Discord, or `parameters.retry_after`, as of Telegram.
    fn retry_after_in_body(&self) -> Option<Duration> {
        let body: Value = serde_json::from_slice(&self.body).ok()?;
        let seconds = body.get("retry_after").or(body.pointer("/parameters/retry_after"))?;
        Duration::try_from_secs_f64(seconds.as_f64()?).ok()
    }

    fn excerpt(&self) -> String {
        let text = one_line(&String::from_utf8_lossy(&self.body));
        let text: String = text.chars().take(EXCERPT_CHARS).collect();
        if text.is_empty() { text } else { format!(" ({text:?})") }
    }
}

/// Seconds, or an HTTP date (RFC 9110, section 10.2.3).
fn parse_retry_after(text: &str, now_ns: i64) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
    let ns = at.as_nanosecond().saturating_sub(now_ns.into());
    Some(Duration::from_nanos(u64::try_from(ns.max(0)).unwrap_or(u64::MAX)))
}

/// Adds a header; a secret is marked as sensitive.
pub(crate) fn add_header(
    headers: &mut HeaderMap,
    name: &'static str,
    value: &str,
) -> Result<(), DeliveryError> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| DeliveryError::permanent(format!("invalid value of header {name}")))?;
    value.set_sensitive(true);
    headers.insert(HeaderName::from_static(name), value);
    Ok(())
}

/// Headers with a bearer token, or none.
pub(crate) fn bearer_headers(token: Option<&str>) -> Result<HeaderMap, DeliveryError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token {
        add_header(&mut headers, "authorization", &format!("Bearer {token}"))?;
    }
    Ok(headers)
}

/// A URL with `path` appended.
pub(crate) fn join_url(base: &str, path: &str) -> String {
    format!("{}{path}", base.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, retry_after: Option<&str>, body: &'static str) -> HttpReply {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::try_from(text).unwrap());
        }
        let status = StatusCode::from_u16(status).unwrap();
        HttpReply {
            from: "host".to_owned(),
            status,
            headers,
            body: Bytes::from_static(body.as_bytes()),
        }
    }

    #[track_caller]
    fn check(reply: HttpReply, expected_s: Option<u64>) {
        // 2026-11-26 12:00:00 UTC.
        match reply.accepted(1_795_694_400_000_000_000) {
            Err(DeliveryError::Temporary { retry_after, may_have_arrived: false, .. }) => {
                assert_eq!(retry_after, expected_s.map(Duration::from_secs));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_receiver_says_when_to_retry() {
        check(reply(429, Some("17"), ""), Some(17));
        check(reply(503, Some("Thu, 26 Nov 2026 12:01:40 GMT"), ""), Some(100));
        check(reply(429, Some("Thu, 26 Nov 2026 11:00:00 GMT"), ""), Some(0));
        check(reply(429, None, r#"{"retry_after":3}"#), Some(3));
        check(reply(429, None, r#"{"ok":false,"parameters":{"retry_after":9}}"#), Some(9));
        check(reply(429, Some("soon"), ""), None);
        check(reply(500, None, ""), None);
    }

    #[test]
    fn a_client_error_and_a_redirect_are_permanent() {
        for status in [301, 400, 401, 403, 404, 413] {
            let error = reply(status, None, "bad\nkey").accepted(0).unwrap_err();
            let DeliveryError::Permanent { reason } = error else { panic!("{error:?}") };
            assert!(reason.starts_with(&format!("host responded {status}")), "{reason}");
            assert!(reason.ends_with("(\"bad key\")"), "{reason}");
        }
    }
}
