//! Client's side of WebSocket (RFC 6455): the handshake, and frames.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// Appended to the key before it is hashed.
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest payload of a control frame.
const CONTROL_BYTES_MAX: usize = 125;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Further part of a message.
    Continuation,
    /// Begin of a message of text, or of bytes.
    Data,
    /// The end of the connection.
    Close,
    /// Asks for a pong with the same payload.
    Ping,
    /// Answers a ping.
    Pong,
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebsocketFrame {
    /// Its kind.
    pub kind: FrameKind,
    /// Whether it is the last of its message.
    pub is_last: bool,
    /// Payload.
    pub payload: Vec<u8>,
}

/// Key of a handshake, from random bytes.
pub fn handshake_key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// The request of a handshake. `host` and `path` come from a URL, which has no line ends.
pub fn handshake_request(host: &str, path: &str, key: &str, agent: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nUser-Agent: {agent}\r\n\r\n"
    )
}

/// Checks the head of the response to a handshake.
pub fn check_handshake(head: &[u8], key: &str) -> Result<(), String> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        _ => return Err("the response is not HTTP".to_owned()),
    }
    let code = response.code.unwrap_or_default();
    if code != 101 {
        return Err(format!("HTTP {code}: the server does not upgrade to WebSocket"));
    }
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    let expected = STANDARD.encode(hash);
    let is_it = |header: &&httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("sec-websocket-accept")
            && header.value.trim_ascii() == expected.as_bytes()
    };
    match response.headers.iter().find(is_it) {
        Some(_) => Ok(()),
        None => Err("the response has no valid Sec-WebSocket-Accept".to_owned()),
    }
}

/// A frame of the client, which is masked.
pub fn client_frame(kind: FrameKind, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let opcode = match kind {
        FrameKind::Continuation => 0,
        FrameKind::Data => 1,
        FrameKind::Close => 8,
        FrameKind::Ping => 9,
        FrameKind::Pong => 10,
    };
    let mut out = vec![0x80 | opcode];
    match payload.len() {
        length @ ..126 => out.push(0x80 | length as u8),
        length @ ..0x1_0000 => out.extend([0x80 | 126, (length >> 8) as u8, length as u8]),
        length => {
            out.push(0x80 | 127);
            out.extend((length as u64).to_be_bytes());
        }
    }
    out.extend(mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

/// Takes the first frame from what was received; `None` if it is not complete. An error if the
/// server breaks the protocol, or its payload is longer than `payload_max`.
pub fn take_frame(
    received: &mut Vec<u8>,
    payload_max: usize,
) -> Result<Option<WebsocketFrame>, String> {
    let Some((&[first, second], rest)) = received.split_first_chunk::<2>() else { return Ok(None) };
    let is_last = first & 0x80 != 0;
    let kind = match first & 0x0f {
        0 => FrameKind::Continuation,
        1 | 2 => FrameKind::Data,
        8 => FrameKind::Close,
        9 => FrameKind::Ping,
        10 => FrameKind::Pong,
        opcode => return Err(format!("the server sent a frame of the unknown kind {opcode}")),
    };
    if first & 0x70 != 0 {
        return Err("the server uses an extension that was not offered".to_owned());
    }
    if second & 0x80 != 0 {
        return Err("the server sent a masked frame".to_owned());
    }
    let is_control = first & 0x08 != 0;
    let (length, head) = match (second, rest) {
        (..126, _) => (u64::from(second), 2),
        (126, &[a, b, ..]) => (u64::from(u16::from_be_bytes([a, b])), 4),
        (127, rest) => match rest.first_chunk() {
            Some(length) => (u64::from_be_bytes(*length), 10),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    if is_control && (!is_last || length > CONTROL_BYTES_MAX as u64) {
        return Err("the server sent a malformed control frame".to_owned());
    }
    if length > payload_max as u64 {
        return Err(format!("the server sent a frame of {length} bytes, above {payload_max}"));
    }
    let end = head + length as usize;
    if received.len() < end {
        return Ok(None);
    }
    let payload = received[head..end].to_vec();
    received.drain(..end);
    Ok(Some(WebsocketFrame { kind, is_last, payload }))
}

/// Reason of a close frame, with its code.
pub fn close_reason(payload: &[u8]) -> String {
    let mut text = "the server closed the connection".to_owned();
    if let Some((code, reason)) = payload.split_first_chunk::<2>() {
        let reason = String::from_utf8_lossy(reason);
        let _ = write!(text, " ({} {})", u16::from_be_bytes(*code), reason.escape_debug());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
    const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: \
                            Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    #[test]
    fn handshakes_are_checked() {
        assert_eq!(handshake_key(*b"the sample nonce"), KEY);
        let request = handshake_request("h:80", "/chat", KEY, "a");
        assert!(request.starts_with("GET /chat HTTP/1.1\r\nHost: h:80\r\n"), "{request}");
        assert_eq!(check_handshake(RESPONSE.as_bytes(), KEY), Ok(()));
        #[track_caller]
        fn check(head: &str, expected: &str) {
            assert_eq!(check_handshake(head.as_bytes(), KEY).unwrap_err(), expected);
        }
        check(
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP 404: the server does not upgrade to WebSocket",
        );
        check(&RESPONSE.replace("s3p", "S3p"), "the response has no valid Sec-WebSocket-Accept");
        check("220 mail\r\n\r\n", "the response is not HTTP");
        check("", "the response is not HTTP");
    }

    /// The examples of RFC 6455, section 5.7.
    #[test]
    fn frames_are_those_of_the_examples() {
        let masked = client_frame(FrameKind::Data, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(masked[..6], [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(masked[6..], [0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        let long = client_frame(FrameKind::Data, &[0; 300], [0; 4]);
        assert_eq!(long[..4], [0x81, 0xfe, 1, 44]);
        let longer = client_frame(FrameKind::Pong, &[0; 70_000], [0; 4]);
        assert_eq!(longer[..10], [0x8a, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
        let mut received = b"\x01\x03Hel\x80\x02lo\x89\x05Hello".to_vec();
        let mut frame = || take_frame(&mut received, 100).unwrap();
        let of = |kind, is_last, payload: &[u8]| {
            Some(WebsocketFrame { kind, is_last, payload: payload.to_vec() })
        };
        assert_eq!(frame(), of(FrameKind::Data, false, b"Hel"));
        assert_eq!(frame(), of(FrameKind::Continuation, true, b"lo"));
        assert_eq!(frame(), of(FrameKind::Ping, true, b"Hello"));
        assert_eq!(frame(), None);
        assert_eq!(
            close_reason(b"\x03\xe9bye\n"),
            "the server closed the connection (1001 bye\\n)"
        );
        assert_eq!(close_reason(b""), "the server closed the connection");
    }

    #[test]
    fn incomplete_frames_wait_and_broken_ones_are_errors() {
        let long = [&[0x82, 126, 0, 200][..], &[7; 200]].concat();
        let longer = [&[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 3][..], &[7; 3]].concat();
        for whole in [&long, &longer] {
            for end in 0..whole.len() {
                assert_eq!(take_frame(&mut whole[..end].to_vec(), 200), Ok(None), "{end}");
            }
            assert!(take_frame(&mut whole.clone(), 200).unwrap().is_some());
        }
        #[track_caller]
        fn check(bytes: &[u8], expected: &str) {
            assert_eq!(take_frame(&mut bytes.to_vec(), 100).unwrap_err(), expected);
        }
        check(&[0x83, 0], "the server sent a frame of the unknown kind 3");
        check(&[0xc1, 0], "the server uses an extension that was not offered");
        check(&[0x81, 0x80], "the server sent a masked frame");
        check(&[0x09, 0], "the server sent a malformed control frame");
        check(&[0x89, 126, 0, 126], "the server sent a malformed control frame");
        check(&[0x82, 126, 0, 101], "the server sent a frame of 101 bytes, above 100");
        let all = "the server sent a frame of 18446744073709551615 bytes, above 100";
        check(&[&[0x82, 127][..], &[0xff; 8]].concat(), all);
    }
}
