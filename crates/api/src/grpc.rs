//! Unary gRPC on the HTTP ports.
//!
//! A message is a flag (1 if compressed), its length in 4 bytes, and its bytes; a response ends
//! with trailers that have the status. Source:
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, `statuscodes.md`,
//! `compression.md`. Streaming is not supported: a message is a body, subject to the body limits.

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;

use crate::error_response::ErrorResponse;
use crate::protobuf_writer;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ACCEPTED: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// Compression of the message, if its flag is set.
pub(crate) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");

/// Length of the message prefix in bytes.
const PREFIX_BYTES: usize = 5;

/// Whether a request is gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The message in a body, and whether it is compressed.
pub(crate) fn parse_message(mut body: Bytes) -> Result<(Bytes, bool), ErrorResponse> {
    if body.len() < PREFIX_BYTES {
        return Err(ErrorResponse::bad_request(format!(
            "expected a message prefix of 5 bytes, found {}",
            body.len()
        )));
    }
    let (flag, length) = (body.get_u8(), body.get_u32());
    if flag > 1 {
        return Err(ErrorResponse::bad_request(format!(
            "expected the compressed flag 0 or 1, found {flag}"
        )));
    }
    if body.len() as u64 != u64::from(length) {
        let found = body.len();
        return Err(ErrorResponse::bad_request(format!(
            "expected one message of {length} bytes, found {found}"
        )));
    }
    Ok((body, flag == 1))
}

/// A response with a message.
pub(crate) fn message_response(message: &[u8]) -> Response {
    let mut framed = Vec::with_capacity(PREFIX_BYTES + message.len());
    framed.push(0);
    framed.extend_from_slice(
        &u32::try_from(message.len()).expect("BUG: the response is too long").to_be_bytes(),
    );
    framed.extend_from_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert(STATUS, HeaderValue::from_static("0"));
    let body = http_body_util::Full::new(Bytes::from(framed));
    respond(Body::new(body.with_trailers(std::future::ready(Some(Ok(trailers))))))
}

fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPTED, HeaderValue::from_static("identity,gzip,zstd"));
    response
}

/// An error response.
pub(crate) fn error_response(problem: &ErrorResponse) -> Response {
    let code = grpc_code(problem.status);
    let mut response = respond(Body::empty());
    let headers = response.headers_mut();
    headers.insert(STATUS, HeaderValue::from(code));
    let value =
        |text: String| HeaderValue::from_str(&text).expect("BUG: only printable ASCII is left");
    headers.insert(MESSAGE, value(percent_encode(&problem.message)));
    if problem.retry_after.is_some() {
        let status = protobuf_writer::rpc_status(code, &problem.message, problem.retry_after);
        let details = base64::engine::general_purpose::STANDARD_NO_PAD.encode(status.0);
        headers.insert(DETAILS, value(details));
    }
    response
}

/// The gRPC status code for an HTTP status.
pub(crate) fn grpc_code(status: StatusCode) -> u32 {
    match status {
        StatusCode::BAD_REQUEST | StatusCode::NOT_ACCEPTABLE => 3,
        StatusCode::REQUEST_TIMEOUT => 4,
        StatusCode::FORBIDDEN => 7,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8,
        StatusCode::NOT_FOUND
        | StatusCode::METHOD_NOT_ALLOWED
        | StatusCode::UNSUPPORTED_MEDIA_TYPE => 12,
        StatusCode::SERVICE_UNAVAILABLE => 14,
        StatusCode::UNAUTHORIZED => 16,
        _ => 13,
    }
}

/// Percent-encodes a text for `grpc-message`.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &'static [u8], expected: Result<(&[u8], bool), &str>) {
        let found = parse_message(Bytes::from_static(body));
        let found = found.as_ref().map(|(bytes, packed)| (bytes.as_ref(), *packed));
        assert_eq!(found.map_err(|problem| problem.message.as_str()), expected);
    }

    #[test]
    fn body_must_hold_one_message() {
        check(b"\0\0\0\0\0", Ok((b"", false)));
        check(b"\x01\0\0\0\x02ab", Ok((b"ab", true)));
        check(b"\0\0\0\0", Err("expected a message prefix of 5 bytes, found 4"));
        check(b"\x02\0\0\0\0", Err("expected the compressed flag 0 or 1, found 2"));
        check(b"\0\xff\xff\xff\xffab", Err("expected one message of 4294967295 bytes, found 2"));
        check(b"\0\0\0\0\0\0\0\0\0\0", Err("expected one message of 0 bytes, found 5"));
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(percent_encode("50 % µ\n"), "50 %25 %C2%B5%0A");
    }
}
