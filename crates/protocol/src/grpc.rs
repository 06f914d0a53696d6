//! Unary gRPC on top of HTTP/2, whose frames another library decodes.
//!
//! A message has a prefix of five bytes: compressed flag and length. The status of a call
//! (`grpc-status`, 0 for success) is in the trailers, or in the headers of a response without a
//! body.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;

use crate::ProtocolViolation;

const PREFIX: usize = 5;

/// Checks that a path names a method.
pub fn check_path(path: &str) -> Result<(), String> {
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match parts {
        Some((service, method))
            if !service.is_empty() && !method.is_empty() && !method.contains(['/', '?']) =>
        {
            Ok(())
        }
        _ => Err(format!("path {path:?} is not /package.Service/Method")),
    }
}

/// Encodes a message with its prefix.
pub fn encode_message(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    // A message of 4 GiB is unrealistic; the receiver would reject it for its length.
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// Parser state of a response.
#[derive(Debug, Default)]
pub struct GrpcResponse {
    /// Whether the call failed; `None` until it is known.
    is_error: Option<bool>,
    /// Status and message of a failed call.
    error_detail: Option<String>,
    /// Number of messages started.
    messages: u64,
    prefix: [u8; PREFIX],
    /// `received`: bytes of the prefix received; `rest`: bytes of the message still to read.
    received: usize,
    rest: u32,
}

impl GrpcResponse {
    /// Handles the response head.
    pub fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::OK {
            // The sender is a proxy that does not speak gRPC.
            self.is_error = Some(true);
            self.error_detail = Some(status.to_string());
        } else {
            self.trailers(headers);
        }
    }

    /// Handles the trailers.
    pub fn trailers(&mut self, trailers: &HeaderMap) {
        if let (None, Some(status)) = (self.is_error, trailers.get("grpc-status")) {
            let is_error = status.as_bytes() != b"0";
            self.is_error = Some(is_error);
            if is_error {
                let text = |value: &http::HeaderValue| {
                    percent_decode(value.as_bytes()).decode_utf8_lossy().into_owned()
                };
                let message = trailers.get("grpc-message").map(text).unwrap_or_default();
                self.error_detail = Some(format!("grpc-status {} {message}", text(status)));
            }
        }
    }

    /// Status and message of a failed call.
    pub fn error_detail(&self) -> Option<String> {
        self.error_detail.clone()
    }

    /// Handles a part of the body.
    pub fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let byte_count = bytes.len().min(self.rest as usize);
                bytes = &bytes[byte_count..];
                self.rest -= byte_count as u32;
                continue;
            }
            let byte_count = bytes.len().min(PREFIX - self.received);
            self.prefix[self.received..self.received + byte_count]
                .copy_from_slice(&bytes[..byte_count]);
            bytes = &bytes[byte_count..];
            self.received += byte_count;
            if self.received == PREFIX {
                let [_, length @ ..] = self.prefix;
                self.rest = u32::from_be_bytes(length);
                self.received = 0;
                self.messages += 1;
            }
        }
    }

    /// Handles the end of the stream. Returns whether the call failed. A successful call has
    /// exactly one complete message.
    pub fn end(&self) -> Result<bool, ProtocolViolation> {
        let is_whole = self.messages == 1 && self.received == 0 && self.rest == 0;
        match self.is_error {
            Some(true) => Ok(true),
            Some(false) if is_whole => Ok(false),
            _ => Err(ProtocolViolation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome of a body that arrives whole, and byte by byte.
    #[track_caller]
    fn check(body: &[u8], status: Option<&'static str>, expected: Result<bool, ProtocolViolation>) {
        for pieces in [vec![body], body.chunks(1).collect()] {
            let mut answer = GrpcResponse::default();
            answer.head(StatusCode::OK, &HeaderMap::new());
            pieces.into_iter().for_each(|piece| answer.data(piece));
            let mut trailers = HeaderMap::new();
            if let Some(status) = status {
                trailers.insert("grpc-status", http::HeaderValue::from_static(status));
            }
            answer.trailers(&trailers);
            assert_eq!(answer.end(), expected, "{body:?} {status:?}");
        }
    }

    #[test]
    fn grpc_success_needs_message_and_status_0() {
        let message = encode_message(b"abc");
        assert_eq!(&message[..], b"\0\0\0\0\x03abc");
        check(&message, Some("0"), Ok(false));
        check(&encode_message(b""), Some("0"), Ok(false));
        check(&message, Some("14"), Ok(true));
        check(b"", Some("5"), Ok(true));
        check(&message, Some("none"), Ok(true));
        check(&message, None, Err(ProtocolViolation));
        check(b"", Some("0"), Err(ProtocolViolation));
        check(&message[..7], Some("0"), Err(ProtocolViolation));
        check(&message[..4], Some("0"), Err(ProtocolViolation));
        check(&[&message[..], &message].concat(), Some("0"), Err(ProtocolViolation));
        check(b"\0\xff\xff\xff\xff", Some("0"), Err(ProtocolViolation));
    }

    #[test]
    fn grpc_paths_name_a_service_and_a_method() {
        assert_eq!(check_path("/a.B/C"), Ok(()));
        for path in ["/", "/a.B", "/a.B/", "//C", "a.B/C", "/a.B/C/D", "/a.B/C?d"] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn non_grpc_responses_fail() {
        let mut answer = GrpcResponse::default();
        answer.head(StatusCode::NOT_FOUND, &HeaderMap::new());
        assert_eq!(answer.end(), Ok(true));
    }
}
