//! HTTP/2 and gRPC, frame by frame.

use super::*;
use crate::protocols::tests::noise;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

const END: u8 = 1;
const WHOLE_HEAD: u8 = 4;

/// `:status` 200 and 404, by their numbers in the table of RFC 7541.
const OK: &[u8] = &[0x88];
const NOT_FOUND: &[u8] = &[0x8d];

fn frame(kind: u8, flags: u8, stream: u32, contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), contents].concat()
}

fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, b"")
}

fn header(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// Type, flags and stream of the frames sent.
fn frames(mut bytes: &[u8]) -> Vec<(u8, u8, u32)> {
    let mut frames = Vec::new();
    bytes = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(bytes);
    while let Some((head, rest)) = bytes.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        frames.push((head[3], head[4], u32::from_be_bytes(head[5..].try_into().unwrap())));
        bytes = &rest[length as usize..];
    }
    assert!(bytes.is_empty());
    frames
}

fn request(path: &str, body: &[u8]) -> RenderedRequest {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let (method, path, body) = (method.to_owned(), path.to_owned(), body.to_vec());
    RenderedRequest { method, path, body, ..RenderedRequest::default() }
}

/// A codec with this many requests in flight, on the streams 1, 3, 5, …, with the stream number as
/// ID.
fn asked(kind: RequestKind, count: u32) -> Http2 {
    let mut codec = Http2::new("a:80", false, kind);
    let mut out = Vec::new();
    codec.open(&mut out);
    assert!(out.starts_with(b"PRI * HTTP/2.0"));
    for number in 0..count {
        out.clear();
        codec.send(&request("/x%20y?z", b""), 2 * number + 1, &mut out);
        assert!(frames(&out).iter().any(|one| (one.0, one.2) == (HEADERS, 2 * number + 1)));
    }
    codec
}

/// Completions of two requests whose responses arrive whole, and byte by byte.
#[track_caller]
fn ends(
    kind: RequestKind,
    answer: &[Vec<u8>],
) -> Result<Vec<(RequestId, Option<Failure>)>, Failure> {
    let answer = [&[settings()], answer].concat().concat();
    let take = |pieces: Vec<&[u8]>| {
        let (mut codec, mut completions) = (asked(kind, 2), Vec::new());
        for piece in pieces {
            codec.receive(piece, &mut Vec::new(), &mut completions)?;
        }
        let mut completions: Vec<_> =
            completions.iter().map(|one| (one.request_id, one.failure)).collect();
        completions.sort_by_key(|one| one.0);
        Ok(completions)
    };
    let once = take(vec![&answer]);
    assert_eq!(once, take(answer.chunks(1).collect()), "{answer:?}");
    once
}

#[test]
fn streams_complete_independently() {
    let http = |answer: &[Vec<u8>]| ends(RequestKind::Http, answer);
    let head = |stream| frame(HEADERS, WHOLE_HEAD, stream, OK);
    assert_eq!(http(&[]), Ok(vec![]));
    assert_eq!(http(&[frame(HEADERS, WHOLE_HEAD | END, 3, OK)]), Ok(vec![(3, None)]));
    assert_eq!(http(&[head(1), frame(DATA, 0, 1, b"abc")]), Ok(vec![]));
    assert_eq!(
        http(&[head(1), head(3), frame(DATA, END, 3, b"abc"), frame(DATA, END, 1, b"")]),
        Ok(vec![(1, None), (3, None)])
    );
    // Trailers end it too; an interim response does not.
    let early = frame(HEADERS, WHOLE_HEAD, 1, &header(":status", "103"));
    let trailers = frame(HEADERS, WHOLE_HEAD | END, 1, &header("a", "b"));
    assert_eq!(http(&[early, head(1), trailers]), Ok(vec![(1, None)]));
    assert_eq!(
        http(&[frame(HEADERS, WHOLE_HEAD | END, 1, NOT_FOUND)]),
        Ok(vec![(1, Some(Failure::Status))])
    );
    let short = [OK, &header("content-length", "4")].concat();
    assert_eq!(
        http(&[frame(HEADERS, WHOLE_HEAD, 1, &short), frame(DATA, END, 1, b"abc")]),
        Ok(vec![(1, Some(Failure::Malformed))])
    );
}

#[test]
fn reset_stream_fails_alone() {
    let reset = |code: u32| frame(RESET, 0, 1, &code.to_be_bytes());
    let other = frame(HEADERS, WHOLE_HEAD | END, 3, OK);
    let failed = Ok(vec![(1, Some(Failure::Reset)), (3, None)]);
    // An internal error, a refusal, and no error before there is a response.
    for code in [2, 7, 0] {
        assert_eq!(ends(RequestKind::Http, &[reset(code), other.clone()]), failed);
    }
    let answer = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    assert_eq!(ends(RequestKind::Http, &[answer, reset(0)]), Ok(vec![(1, None)]));
}

#[test]
fn capacity_follows_the_server_limit() {
    let mut codec = asked(RequestKind::Http, 2);
    assert_eq!(codec.capacity(), 98);
    let mut out = Vec::new();
    let allows = |count: u32| {
        frame(SETTINGS, 0, 0, &[&3u16.to_be_bytes()[..], &count.to_be_bytes()].concat())
    };
    codec.receive(&allows(3), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.capacity(), 1);
    codec.receive(&allows(1), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.capacity(), 0);
    codec.receive(&allows(1000), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.capacity(), 98);
    assert!(Http2::new("a", false, RequestKind::Http).capacity() == 0, "nothing is open yet");
}

#[test]
fn goaway_ends_the_connection() {
    let mut codec = asked(RequestKind::Http, 2);
    let (mut out, mut completions) = (Vec::new(), Vec::new());
    let leaves = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    codec.receive(&[settings(), leaves].concat(), &mut out, &mut completions).unwrap();
    // The server has not processed the second.
    assert_eq!(completions, [Completion { request_id: 3, failure: Some(Failure::Reset) }]);
    assert_eq!((codec.capacity(), codec.is_ending()), (0, true));
    let answer = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    codec.receive(&answer, &mut out, &mut completions).unwrap();
    assert_eq!(completions[1..], [Completion { request_id: 1, failure: None }]);
    assert_eq!(codec.receive(b"", &mut out, &mut completions), Ok(()));
}

#[test]
fn replies_of_any_size() {
    let mut codec = asked(RequestKind::Http, 1);
    let (mut out, mut completions) = (Vec::new(), Vec::new());
    let head = frame(HEADERS, WHOLE_HEAD, 1, OK);
    codec.receive(&[settings(), head].concat(), &mut out, &mut completions).unwrap();
    let piece = frame(DATA, 0, 1, &[b'x'; 16_384]);
    for _ in 0..2 * CONNECTION_WINDOW / 16_384 {
        out.clear();
        codec.receive(&piece, &mut out, &mut completions).unwrap();
    }
    codec.receive(&frame(DATA, END, 1, b""), &mut out, &mut completions).unwrap();
    assert_eq!(completions, [Completion { request_id: 1, failure: None }]);

    // The client waits for the windows of the server.
    let mut codec = asked(RequestKind::Http, 0);
    out.clear();
    codec.send(&request("/", &vec![b'x'; 1 << 20]), 1, &mut out);
    assert!(out.len() < 70_000);
    let grant = [0, 0x20, 0, 0];
    let windows = [settings(), frame(8, 0, 0, &grant), frame(8, 0, 1, &grant)].concat();
    codec.receive(&windows, &mut out, &mut completions).unwrap();
    assert!(out.len() > 1 << 20);
}

#[test]
fn cancelled_streams_are_reset_and_others_continue() {
    let mut codec = asked(RequestKind::Http, 2);
    let (mut out, mut completions) = (Vec::new(), Vec::new());
    codec.receive(&settings(), &mut out, &mut completions).unwrap();
    out.clear();
    assert!(codec.cancel(1, &mut out));
    assert_eq!(frames(&out), [(RESET, 0, 1)]);
    assert_eq!(codec.capacity(), 99);
    assert!(codec.cancel(1, &mut out), "it has gone already");
    // A late response.
    let late = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    let other = frame(HEADERS, WHOLE_HEAD | END, 3, OK);
    codec.receive(&[late, other].concat(), &mut out, &mut completions).unwrap();
    assert_eq!(completions, [Completion { request_id: 3, failure: None }]);

    // Many: a server that stalled responds to all of them when it resumes.
    for number in 2..3_000 {
        codec.send(&request("/", b""), number, &mut out);
        assert!(codec.cancel(number, &mut out));
    }
    for number in 2..3_000 {
        let late = frame(HEADERS, WHOLE_HEAD | END, 2 * number + 1, OK);
        codec.receive(&late, &mut out, &mut completions).unwrap();
    }
    assert_eq!((completions.len(), codec.capacity()), (1, 100));
}

#[test]
fn unrepresentable_requests_fail() {
    let mut codec = asked(RequestKind::Http, 0);
    let (mut out, mut completions) = (Vec::new(), Vec::new());
    let wrong =
        RenderedRequest { headers: vec![("a".to_owned(), "b\nc".to_owned())], ..request("/", b"") };
    for round in 0..2 {
        out.clear();
        codec.send(&wrong, 5, &mut out);
        assert_eq!((codec.capacity(), frames(&out).last().unwrap().0), (99, PING), "{round}");
        let pong = frame(PING, 1, 0, &out[out.len() - 8..]);
        let first = if round == 0 { settings() } else { Vec::new() };
        codec.receive(&[first, pong].concat(), &mut out, &mut completions).unwrap();
        assert_eq!(
            completions,
            vec![Completion { request_id: 5, failure: Some(Failure::Malformed) }; round + 1]
        );
    }
}

#[test]
fn grpc_status_decides() {
    let grpc = |answer: &[Vec<u8>]| ends(RequestKind::Grpc, answer);
    let head = frame(HEADERS, WHOLE_HEAD, 1, OK);
    let message = frame(DATA, 0, 1, b"\0\0\0\0\x01a");
    let status = |status| frame(HEADERS, WHOLE_HEAD | END, 1, &header("grpc-status", status));
    let well = [head.clone(), message.clone(), status("0")];
    assert_eq!(grpc(&well), Ok(vec![(1, None)]));
    let failed = Ok(vec![(1, Some(Failure::Status))]);
    assert_eq!(grpc(&[head.clone(), message.clone(), status("13")]), failed);
    let only = [OK, &header("grpc-status", "5")].concat();
    assert_eq!(grpc(&[frame(HEADERS, WHOLE_HEAD | END, 1, &only)]), failed);
    assert_eq!(grpc(&[frame(HEADERS, WHOLE_HEAD | END, 1, NOT_FOUND)]), failed);
    let without = [head, frame(DATA, END, 1, b"\0\0\0\0\x01a")];
    assert_eq!(grpc(&without), Ok(vec![(1, Some(Failure::Malformed))]));
}

#[test]
fn garbage_is_malformed() {
    let found = |bytes: &[u8]| {
        let mut codec = asked(RequestKind::Http, 1);
        codec.receive(bytes, &mut Vec::new(), &mut Vec::new())
    };
    let two = |one: Vec<u8>| [settings(), one].concat();
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
        // An unsolicited response, and one on a stream of the server.
        two(frame(HEADERS, WHOLE_HEAD | END, 9, OK)),
        two(frame(HEADERS, WHOLE_HEAD | END, 2, OK)),
        two(frame(DATA, END, 9, b"a")),
        two(frame(DATA, END, 0, b"a")),
        two(frame(HEADERS, WHOLE_HEAD | END, 1, &[0xff; 20])),
        two(frame(SETTINGS, 0, 0, b"abc")),
    ] {
        assert_eq!(found(&bytes), Err(Failure::Malformed), "{bytes:?}");
    }
}

#[test]
fn noise_is_survived() {
    let alphabet = b"\0\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x88\x8d";
    for kind in [RequestKind::Http, RequestKind::Grpc] {
        noise(alphabet, || {
            let mut codec = asked(kind, 0);
            codec.send(&request("/", b"ab"), 7, &mut Vec::new());
            codec.receive(&settings(), &mut Vec::new(), &mut Vec::new()).unwrap();
            Box::new(codec)
        });
    }
}
