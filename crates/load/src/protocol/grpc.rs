//! gRPC, one message each way: what it adds to HTTP/2.
//!
//! A message stands behind five bytes: whether it is compressed, and its length. How a call went is said after the answer, or in its head
//! if there is no answer (`grpc-status`, 0 if it went well).

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use percent_encoding::percent_decode;

use crate::failure::Failure;

const PREFIX: usize = 5;

/// Why a path names no method.
pub(super) fn check(path: &str) -> Result<(), String> {
    let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match parts {
        Some((service, method))
            if !service.is_empty() && !method.is_empty() && !method.contains(['/', '?']) =>
        {
            Ok(())
        }
        _ => Err(format!("its path {path:?} is not /package.Service/Method")),
    }
}

/// A message as it is sent.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    // Nobody has one of 4 GiB: it would be refused by its length.
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(message);
    out.freeze()
}

/// What is known of an answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// How it went, once it is known: nothing, if well.
    status: Option<Option<Failure>>,
    /// The same as it was said, if it did not go well.
    words: Option<String>,
    /// Messages that have begun.
    messages: u64,
    prefix: [u8; PREFIX],
    /// How much of the prefix has come, and how much of its message is still to come.
    come: usize,
    rest: u32,
}

impl Answer {
    pub(super) fn head(&mut self, status: StatusCode, headers: &HeaderMap) {
        if status != StatusCode::OK {
            // Something on the way that does not speak gRPC.
            self.status = Some(Some(Failure::Status));
            self.words = Some(status.to_string());
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
                self.words = Some(format!("grpc-status {} {message}", text(status)));
            }
        }
    }

    /// What is known of how it failed.
    pub(super) fn words(&self) -> Option<String> {
        self.words.clone()
    }

    /// A piece of the body.
    pub(super) fn data(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let taken = bytes.len().min(self.rest as usize);
                bytes = &bytes[taken..];
                self.rest -= taken as u32;
                continue;
            }
            let taken = bytes.len().min(PREFIX - self.come);
            self.prefix[self.come..self.come + taken].copy_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.come += taken;
            if self.come == PREFIX {
                let [_, length @ ..] = self.prefix;
                self.rest = u32::from_be_bytes(length);
                self.come = 0;
                self.messages += 1;
            }
        }
    }

    /// How it went, now that no more comes. Who says that it went well has sent one message, and all of it.
    pub(super) fn end(&self) -> Option<Failure> {
        let is_whole = self.messages == 1 && self.come == 0 && self.rest == 0;
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

    /// What becomes of a body that comes whole, and byte by byte.
    #[track_caller]
    fn check(body: &[u8], status: Option<&'static str>, expected: Option<Failure>) {
        for pieces in [vec![body], body.chunks(1).collect()] {
            let mut answer = Answer::default();
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
    fn a_call_went_well_if_its_message_is_whole_and_its_status_0() {
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
    fn a_path_names_a_service_and_a_method() {
        assert_eq!(super::check("/a.B/C"), Ok(()));
        for path in ["/", "/a.B", "/a.B/", "//C", "a.B/C", "/a.B/C/D", "/a.B/C?d"] {
            assert!(super::check(path).is_err(), "{path}");
        }
    }

    #[test]
    fn whoever_does_not_speak_it_has_failed() {
        let mut answer = Answer::default();
        answer.head(StatusCode::NOT_FOUND, &HeaderMap::new());
        assert_eq!(answer.end(), Some(Failure::Status));
    }
}
