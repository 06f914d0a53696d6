//! Attacks with connections and request heads.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::hostile::attack_target::AttackTarget;
use crate::hostile::bytes::{END_HEADERS, END_STREAM, FrameKind, PREFACE, frame, hpack_get};
use crate::hostile::client::{SILENCE_TIMEOUT, connect, request_head};

/// Connections of an attack with many connections.
const CONNECTIONS: usize = 200;

/// Status of the response; `None` if the connection ends without one.
fn status_of(mut stream: TcpStream) -> Option<u16> {
    let mut answer = Vec::new();
    // Unread request bytes can cause a reset after the response.
    let _ = (&mut stream).take(1 << 20).read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

fn is_open(stream: &mut TcpStream) -> bool {
    let mut rest = [0; 1024];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

/// Sends single bytes on each of many connections, until the server has closed all of them.
fn trickle(scene: &AttackTarget, start: &str) -> Result<String> {
    let began = Instant::now();
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(scene.address())?;
        stream.write_all(start.as_bytes())?;
        stream.set_nonblocking(true)?;
        open.push(stream);
    }
    while !open.is_empty() {
        ensure!(began.elapsed() < SILENCE_TIMEOUT, "{} slow connections stay open", open.len());
        open.retain_mut(|stream| stream.write_all(b"1").is_ok() && is_open(stream));
        sleep(Duration::from_millis(100));
    }
    Ok(format!("ended after {:.1} s", began.elapsed().as_secs_f64()))
}

pub(super) fn slow_headers(scene: &AttackTarget) -> Result<String> {
    trickle(scene, &(request_head(scene.address(), "GET", "/v1/status", &[]) + "X-Slow: "))
}

pub(super) fn slow_bodies(scene: &AttackTarget) -> Result<String> {
    let token = AttackTarget::authorization_header(&scene.hostile_token);
    let headers = [("Authorization", token.as_str()), ("Content-Length", "100000")];
    trickle(
        scene,
        &(request_head(scene.address(), "POST", "/v1/record?metric=slow", &headers) + "\r\n"),
    )
}

pub(super) fn oversized_headers(scene: &AttackTarget) -> Result<String> {
    let start = request_head(scene.address(), "GET", "/health", &[]);
    let lines: String = (0..50_000).map(|at| format!("X-{at}: {at}\r\n")).collect();
    let value = "v".repeat(4 << 20);
    let path = format!("GET /health?{value} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for request in [start.clone() + &lines + "\r\n", format!("{start}X: {value}\r\n\r\n"), path] {
        for _ in 0..20 {
            let mut stream = connect(scene.address())?;
            let _ = stream.write_all(request.as_bytes());
            if let Some(status) = status_of(stream) {
                ensure!((400..500).contains(&status), "response to a head of 4 MiB: {status}");
            }
        }
    }
    Ok(String::new())
}

/// Connections that are half closed at each position of a request.
pub(super) fn half_closed(scene: &AttackTarget) -> Result<String> {
    let token = AttackTarget::authorization_header(&scene.hostile_token);
    let headers = [("Authorization", token.as_str()), ("Content-Length", "3")];
    let whole =
        request_head(scene.address(), "POST", "/v1/record?metric=half", &headers) + "\r\n12";
    for at in 0..CONNECTIONS {
        let mut stream = connect(scene.address())?;
        stream.write_all(&whole.as_bytes()[..whole.len() * at / CONNECTIONS])?;
        stream.shutdown(Shutdown::Write)?;
        if let Some(status) = status_of(stream) {
            ensure!(status >= 400, "response to a truncated request: {status}");
        }
    }
    Ok(String::new())
}

/// More connections than the limit.
pub(super) fn connection_flood(scene: &AttackTarget) -> Result<String> {
    let mut open = Vec::new();
    for _ in 0..900 {
        let Ok(stream) = connect(scene.address()) else { continue };
        stream.set_nonblocking(true)?;
        open.push(stream);
    }
    sleep(Duration::from_secs(3));
    open.retain_mut(is_open);
    ensure!(open.len() <= 300, "{} connections are open; the limit is 300", open.len());
    Ok(format!("{} of 900 held", open.len()))
}

/// Bytes that are neither HTTP nor valid HTTP/2 frames.
pub(super) fn protocol_garbage(scene: &AttackTarget) -> Result<String> {
    let mut state = 1u64;
    let starts: [&[u8]; 5] =
        [b"", b"\x16\x03\x01\x02\x00\x01", PREFACE, b"POST / HTTP/1.1\r\n", b"\0\0\xff"];
    for round in 0..CONNECTIONS {
        let mut stream = connect(scene.address())?;
        let mut byte = || {
            // Linear congruential generator (Knuth's MMIX).
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let noise: Vec<u8> = (0..1 + round * 97).map(|_| byte()).collect();
        // The server may close the connection while data arrives.
        let _ = stream.write_all(&[starts[round % starts.len()], &noise].concat());
        let _ = stream.shutdown(Shutdown::Write);
        if let Some(status) = status_of(stream) {
            ensure!(status >= 400, "response to noise: {status}");
        }
    }
    Ok(String::new())
}

/// Requests with an ambiguous host, which servers and proxies would interpret differently (RFC
/// 9112, 3.2).
pub(super) fn duplicate_host(scene: &AttackTarget) -> Result<String> {
    let good = format!("Host: {}\r\n", scene.address());
    let bad = [
        format!("{good}Host: elsewhere.example\r\n"),
        format!("Host: elsewhere.example\r\n{good}"),
        String::new(),
        "Host: [::1\r\n".to_owned(),
        "Host: localhost:80:80\r\n".to_owned(),
        "Host: local host\r\n".to_owned(),
        "Host: localhost/../x\r\n".to_owned(),
        "Host: user@localhost\r\n".to_owned(),
        format!("{good}Content-Length: 3\r\nContent-Length: 4\r\n"),
    ];
    for lines in bad {
        let mut stream = connect(scene.address())?;
        let shown = AttackTarget::authorization_header(&scene.hostile_token);
        let request = format!(
            "POST /v1/record?metric=host HTTP/1.1\r\nAuthorization: {shown}\r\n\
             Connection: close\r\n{lines}\r\n0\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        stream.shutdown(Shutdown::Write)?;
        // A connection closed without a response counts as rejected.
        if let Some(status) = status_of(stream) {
            ensure!(matches!(status, 400 | 403 | 421), "response to {lines:?}: {status}");
        }
    }
    Ok(String::new())
}

fn many_frames(scene: &AttackTarget, frames: &[u8]) -> Result<String> {
    let settings = frame(FrameKind::Settings, 0, 0, &[]);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS / 10 {
        let mut stream = connect(scene.address())?;
        stream.write_all(&[PREFACE, &settings].concat())?;
        // The server may close the connection at any time.
        let _ = stream.write_all(frames);
        open.push(stream);
    }
    for stream in open {
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.take(1 << 20).read_to_end(&mut Vec::new());
    }
    Ok(String::new())
}

/// Requests that are reset at once (CVE-2023-44487).
pub(super) fn rapid_reset(scene: &AttackTarget) -> Result<String> {
    let block = hpack_get("/metrics", &scene.address().to_string());
    let one = |at: u32| {
        let stream = 2 * at + 1;
        let request = frame(FrameKind::Headers, END_STREAM | END_HEADERS, stream, &block);
        const CANCEL: [u8; 4] = [0, 0, 0, 8];
        [request, frame(FrameKind::ResetStream, 0, stream, &CANCEL)].concat()
    };
    many_frames(scene, &(0..10_000).flat_map(one).collect::<Vec<u8>>())
}

/// An endless header block (CVE-2024-27316).
pub(super) fn continuation_flood(scene: &AttackTarget) -> Result<String> {
    let block = hpack_get("/health", &scene.address().to_string());
    let mut frames = frame(FrameKind::Headers, END_STREAM, 1, &block);
    // A literal field without indexing, `x: vvv…`; its length is 127 + 1 + (126 << 7).
    let field = [&[0, 1, b'x', 0x7f, 0x81, 0x7e][..], &[b'v'; 16_256]].concat();
    let more = frame(FrameKind::Continuation, 0, 1, &field);
    (0..500).for_each(|_| frames.extend_from_slice(&more));
    many_frames(scene, &frames)
}
