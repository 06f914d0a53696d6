//! Checks of WebSocket servers, against one that sends what it is told.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use protocol::websocket::{FrameKind, WebsocketFrame, take_frame};
use pull::{CheckJobSettings, WebsocketProbe};

use crate::checks::check;
use crate::fixture::head;
use crate::probes::{failure, failure_of, stream_server, success};

fn probe(address: &str) -> WebsocketProbe {
    WebsocketProbe { websocket: format!("ws://{address}/live?x"), ..WebsocketProbe::default() }
}

/// Answers the handshake.
fn upgrade(stream: &mut TcpStream) {
    let head = head(stream).unwrap();
    assert!(head.starts_with("GET /live?x HTTP/1.1\r\n"), "{head}");
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = accept_of(key);
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(response.as_bytes()).unwrap();
}

/// As the server computes it.
fn accept_of(key: &str) -> String {
    use base64::Engine as _;
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let hash = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(hash)
}

/// The next frame of the client, without its mask.
fn client_frame(stream: &mut TcpStream) -> WebsocketFrame {
    let mut head = [0; 6];
    stream.read_exact(&mut head).unwrap();
    assert!(head[1] & 0x80 != 0, "it is masked");
    let mut payload = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut payload).unwrap();
    let mask = head[2..].iter().cycle();
    let payload: Vec<u8> = payload.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
    let mut frame = [&[head[0], payload.len() as u8][..], &payload].concat();
    take_frame(&mut frame, 125).unwrap().unwrap()
}

fn answer_ping(stream: &mut TcpStream) {
    let ping = client_frame(stream);
    assert_eq!((ping.kind, ping.payload.len()), (FrameKind::Ping, 8));
    // A pong that nobody asked for, then the one.
    stream.write_all(&[0x8a, 1, 7]).unwrap();
    stream.write_all(&[&[0x8a, 8][..], &ping.payload].concat()).unwrap();
    assert_eq!(client_frame(stream).kind, FrameKind::Close);
}

#[test]
fn a_message_and_a_ping_are_answered() {
    let server = stream_server(|mut stream| {
        upgrade(&mut stream);
        answer_ping(&mut stream);
    });
    let (_, phases) = success(probe(&server));
    assert_eq!(phases, ["resolve", "connect", "upgrade", "ping", "total"]);
    let server = stream_server(|mut stream| {
        upgrade(&mut stream);
        // Asks first, and answers in two parts after another message.
        stream.write_all(b"\x89\x01?\x81\x05other").unwrap();
        let first = client_frame(&mut stream);
        let second = client_frame(&mut stream);
        let mut both = [first, second];
        both.sort_by_key(|frame| frame.kind == FrameKind::Pong);
        assert_eq!((&*both[0].payload, &*both[1].payload), (&b"hello"[..], &b"?"[..]));
        stream.write_all(b"\x01\x03wel\x80\x04come").unwrap();
        answer_ping(&mut stream);
    });
    let (send, expect) = (Some("hello".to_owned()), Some("welcome".to_owned()));
    let (_, phases) = success(WebsocketProbe { send, expect, ..probe(&server) });
    assert_eq!(phases, ["resolve", "connect", "upgrade", "wait", "ping", "total"]);
}

#[test]
fn broken_servers_fail_with_a_reason() {
    let plain = stream_server(|mut stream| {
        head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    });
    failure(probe(&plain), "HTTP 200: the server does not upgrade");
    let other = stream_server(|mut stream| {
        head(&mut stream).unwrap();
        let head = "HTTP/1.1 101 X\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
    });
    failure(probe(&other), "no valid Sec-WebSocket-Accept");
    let endless = stream_server(|mut stream| {
        head(&mut stream).unwrap();
        let line = format!("a: {}\r\n", "x".repeat(1_000));
        while stream.write_all(line.as_bytes()).is_ok() {}
    });
    failure(probe(&endless), "the head of the response exceeds 16 KiB");
    let closing = stream_server(|mut stream| {
        upgrade(&mut stream);
        stream.write_all(b"\x88\x05\x03\xe9bye").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    failure(probe(&closing), "no pong: the server closed the connection (1001 bye)");
    let large = stream_server(|mut stream| {
        upgrade(&mut stream);
        stream.write_all(&[&[0x82, 127][..], &[0xff; 8]].concat()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    failure(probe(&large), "no pong: the server sent a frame of 18446744073709551615 bytes");
    let talking = stream_server(|mut stream| {
        upgrade(&mut stream);
        while stream.write_all(&b"\x81\x05other".repeat(1_000)).is_ok() {}
    });
    let expect = Some("welcome".to_owned());
    let expected = "\"welcome\" not found: the server sent more than 1 MiB";
    failure(WebsocketProbe { expect, ..probe(&talking) }, expected);
    let repeating = stream_server(|mut stream| {
        upgrade(&mut stream);
        while stream.write_all(&b"\x81\x05other\x80\x00".repeat(1_000)).is_ok() {}
    });
    let expect = Some("welcome".to_owned());
    let expected = "the server sent a part of a message out of order";
    failure(WebsocketProbe { expect, ..probe(&repeating) }, expected);
    let silent = stream_server(|mut stream| {
        upgrade(&mut stream);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let timeout = Duration::from_millis(200);
    failure_of(CheckJobSettings { timeout, ..check(probe(&silent)) }, "no response within 200 ms");
}
