//! Unary gRPC on top of HTTP/2.
//!
//! A message has a prefix of five bytes: compressed flag and length. The status of a call
//! (`grpc-status`, 0 for success) is in the trailers, or in the headers of a response without a
//! body.

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;

use crate::failure::Failure;

const PREFIX: usize = 5;

/// Checks that a path names a method.
pub(super) fn check(path: &str) -> Result<(), String> {
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

/// Frames a message.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    // A message of 4 GiB is unrealistic, and would be rejected for its length.
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// State of a response.
#[derive(Debug, Default)]
pub(super) struct GrpcResponse {
    /// The outcome, once known.
    status: Option<Option<Failure>>,
    /// Status and message of a failed call.
    error_detail: Option<String>,
    /// Messages begun.
    messages: u64,
    prefix: [u8; PREFIX],
    /// Prefix bytes received; `rest`: bytes of the message to come.
    received: usize,
    rest: u32,
}

impl GrpcResponse {
    pub(super) fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::OK {
            // A proxy that does not speak gRPC.
            self.status = Some(Some(Failure::Status));
            self.error_detail = Some(status.to_string());
        } else {
            self.trailers(headers);
        }
    }

    pub(super) fn trailers(&mut self, trailers: &HeaderMap) {
        if let (None, Some(status)) = (self.status, trailers.get("grpc-status")) {
            let has_failed = status.as_bytes() != b"0";
            self.status = Some(has_failed.then_some(Failure::Status));
            if has_failed {
                let text = |value: &http::HeaderValue| {
                    percent_decode(value.as_bytes()).decode_utf8_lossy().into_owned()
                };
                let message = trailers.get("grpc-message").map(text).unwrap_or_default();
                self.error_detail = Some(format!("grpc-status {} {message}", text(status)));
            }
        }
    }

    /// Status and message of a failed call.
    pub(super) fn error_detail(&self) -> Option<String> {
        self.error_detail.clone()
    }

    /// Handles a part of the body.
    pub(super) fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let taken = bytes.len().min(self.rest as usize);
                bytes = &bytes[taken..];
                self.rest -= taken as u32;
                continue;
            }
            let taken = bytes.len().min(PREFIX - self.received);
            self.prefix[self.received..self.received + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.received += taken;
            if self.received == PREFIX {
                let [_, length @ ..] = self.prefix;
                self.rest = u32::from_be_bytes(length);
                self.received = 0;
                self.messages += 1;
            }
        }
    }

    /// The outcome at the end of the stream. Success requires exactly one complete message.
    pub(super) fn end(&self) -> Option<Failure> {
        let is_whole = self.messages == 1 && self.received == 0 && self.rest == 0;
        match self.status {
            Some(Some(failure)) => Some(failure),
            Some(None) if is_whole => None,
            _ => Some(Failure::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome of a body that arrives whole, and byte by byte.
    #[track_caller]
    fn check(body: &[u8], status: Option<&'static str>, expected: Option<Failure>) {
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
        let message = framed(b"abc");
        assert_eq!(&message[..], b"\0\0\0\0\x03abc");
        check(&message, Some("0"), None);
        check(&framed(b""), Some("0"), None);
        check(&message, Some("14"), Some(Failure::Status));
        check(b"", Some("5"), Some(Failure::Status));
        check(&message, Some("none"), Some(Failure::Status));
        check(&message, None, Some(Failure::Malformed));
        check(b"", Some("0"), Some(Failure::Malformed));
        check(&message[..7], Some("0"), Some(Failure::Malformed));
        check(&message[..4], Some("0"), Some(Failure::Malformed));
        check(&[&message[..], &message].concat(), Some("0"), Some(Failure::Malformed));
        check(b"\0\xff\xff\xff\xff", Some("0"), Some(Failure::Malformed));
    }

    #[test]
    fn grpc_paths_name_a_service_and_a_method() {
        assert_eq!(super::check("/a.B/C"), Ok(()));
        for path in ["/", "/a.B", "/a.B/", "//C", "a.B/C", "/a.B/C/D", "/a.B/C?d"] {
            assert!(super::check(path).is_err(), "{path}");
        }
    }

    #[test]
    fn non_grpc_responses_fail() {
        let mut answer = GrpcResponse::default();
        answer.head(StatusCode::NOT_FOUND, &HeaderMap::new());
        assert_eq!(answer.end(), Some(Failure::Status));
    }
}
