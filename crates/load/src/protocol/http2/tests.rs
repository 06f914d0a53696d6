//! HTTP/2 and gRPC, frame by frame.

use super::*;
use crate::protocol::tests::noise;

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

/// Kind, flags and stream of the frames that were sent.
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

fn request(path: &str, body: &[u8]) -> Rendered {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let (method, path, body) = (method.to_owned(), path.to_owned(), body.to_vec());
    Rendered { method, path, body, ..Rendered::default() }
}

/// A codec with so many requests under way, on the streams 1, 3, 5, …, whose tickets are their numbers too.
fn asked(kind: Kind, count: u32) -> Http2 {
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

/// What ends two requests whose answers come whole, and byte by byte.
#[track_caller]
fn ends(kind: Kind, answer: &[Vec<u8>]) -> Result<Vec<(Ticket, Option<Failure>)>, Failure> {
    let answer = [&[settings()], answer].concat().concat();
    let take = |pieces: Vec<&[u8]>| {
        let (mut codec, mut ended) = (asked(kind, 2), Vec::new());
        for piece in pieces {
            codec.receive(piece, &mut Vec::new(), &mut ended)?;
        }
        let mut ended: Vec<_> = ended.iter().map(|one| (one.ticket, one.failure)).collect();
        ended.sort_by_key(|one| one.0);
        Ok(ended)
    };
    let once = take(vec![&answer]);
    assert_eq!(once, take(answer.chunks(1).collect()), "{answer:?}");
    once
}

#[test]
fn answers_end_each_for_itself() {
    let http = |answer: &[Vec<u8>]| ends(Kind::Http, answer);
    let head = |stream| frame(HEADERS, WHOLE_HEAD, stream, OK);
    assert_eq!(http(&[]), Ok(vec![]));
    assert_eq!(http(&[frame(HEADERS, WHOLE_HEAD | END, 3, OK)]), Ok(vec![(3, None)]));
    assert_eq!(http(&[head(1), frame(DATA, 0, 1, b"abc")]), Ok(vec![]));
    assert_eq!(
        http(&[head(1), head(3), frame(DATA, END, 3, b"abc"), frame(DATA, END, 1, b"")]),
        Ok(vec![(1, None), (3, None)])
    );
    // Trailers end it too, and what comes before the answer does not.
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
fn a_stream_that_is_reset_fails_alone() {
    let reset = |code: u32| frame(RESET, 0, 1, &code.to_be_bytes());
    let other = frame(HEADERS, WHOLE_HEAD | END, 3, OK);
    let failed = Ok(vec![(1, Some(Failure::Reset)), (3, None)]);
    // An internal error, a refusal, and none at all before there is an answer.
    for code in [2, 7, 0] {
        assert_eq!(ends(Kind::Http, &[reset(code), other.clone()]), failed);
    }
    let answer = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    assert_eq!(ends(Kind::Http, &[answer, reset(0)]), Ok(vec![(1, None)]));
}

#[test]
fn there_is_room_for_what_the_server_allows() {
    let mut codec = asked(Kind::Http, 2);
    assert_eq!(codec.room(), 98);
    let mut out = Vec::new();
    let allows = |count: u32| {
        frame(SETTINGS, 0, 0, &[&3u16.to_be_bytes()[..], &count.to_be_bytes()].concat())
    };
    codec.receive(&allows(3), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.room(), 1);
    codec.receive(&allows(1), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.room(), 0);
    codec.receive(&allows(1000), &mut out, &mut Vec::new()).unwrap();
    assert_eq!(codec.room(), 98);
    assert!(Http2::new("a", false, Kind::Http).room() == 0, "nothing is open yet");
}

#[test]
fn a_server_that_leaves_is_asked_nothing_more() {
    let mut codec = asked(Kind::Http, 2);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    let leaves = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    codec.receive(&[settings(), leaves].concat(), &mut out, &mut ended).unwrap();
    // It has not seen the second.
    assert_eq!(ended, [Ended { ticket: 3, failure: Some(Failure::Reset) }]);
    assert_eq!((codec.room(), codec.is_ending()), (0, true));
    let answer = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    codec.receive(&answer, &mut out, &mut ended).unwrap();
    assert_eq!(ended[1..], [Ended { ticket: 1, failure: None }]);
    assert_eq!(codec.receive(b"", &mut out, &mut ended), Ok(()));
}

#[test]
fn bodies_are_as_large_as_they_like() {
    let mut codec = asked(Kind::Http, 1);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    let head = frame(HEADERS, WHOLE_HEAD, 1, OK);
    codec.receive(&[settings(), head].concat(), &mut out, &mut ended).unwrap();
    let piece = frame(DATA, 0, 1, &[b'x'; 16_384]);
    for _ in 0..2 * CONNECTION_WINDOW / 16_384 {
        out.clear();
        codec.receive(&piece, &mut out, &mut ended).unwrap();
    }
    codec.receive(&frame(DATA, END, 1, b""), &mut out, &mut ended).unwrap();
    assert_eq!(ended, [Ended { ticket: 1, failure: None }]);

    // Ours wait for the windows of the server.
    let mut codec = asked(Kind::Http, 0);
    out.clear();
    codec.send(&request("/", &vec![b'x'; 1 << 20]), 1, &mut out);
    assert!(out.len() < 70_000);
    let grant = [0, 0x20, 0, 0];
    let windows = [settings(), frame(8, 0, 0, &grant), frame(8, 0, 1, &grant)].concat();
    codec.receive(&windows, &mut out, &mut ended).unwrap();
    assert!(out.len() > 1 << 20);
}

#[test]
fn what_is_abandoned_is_reset_and_the_rest_goes_on() {
    let mut codec = asked(Kind::Http, 2);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    codec.receive(&settings(), &mut out, &mut ended).unwrap();
    out.clear();
    assert!(codec.abandon(1, &mut out));
    assert_eq!(frames(&out), [(RESET, 0, 1)]);
    assert_eq!(codec.room(), 99);
    assert!(codec.abandon(1, &mut out), "it has gone already");
    // Its answer comes after all.
    let late = frame(HEADERS, WHOLE_HEAD | END, 1, OK);
    let other = frame(HEADERS, WHOLE_HEAD | END, 3, OK);
    codec.receive(&[late, other].concat(), &mut out, &mut ended).unwrap();
    assert_eq!(ended, [Ended { ticket: 3, failure: None }]);

    // Many: a server that was frozen answers them all when it wakes.
    for number in 2..3_000 {
        codec.send(&request("/", b""), number, &mut out);
        assert!(codec.abandon(number, &mut out));
    }
    for number in 2..3_000 {
        let late = frame(HEADERS, WHOLE_HEAD | END, 2 * number + 1, OK);
        codec.receive(&late, &mut out, &mut ended).unwrap();
    }
    assert_eq!((ended.len(), codec.room()), (1, 100));
}

#[test]
fn what_cannot_be_said_fails() {
    let mut codec = asked(Kind::Http, 0);
    let (mut out, mut ended) = (Vec::new(), Vec::new());
    let wrong =
        Rendered { headers: vec![("a".to_owned(), "b\nc".to_owned())], ..request("/", b"") };
    for round in 0..2 {
        out.clear();
        codec.send(&wrong, 5, &mut out);
        assert_eq!((codec.room(), frames(&out).last().unwrap().0), (99, PING), "{round}");
        let pong = frame(PING, 1, 0, &out[out.len() - 8..]);
        let first = if round == 0 { settings() } else { Vec::new() };
        codec.receive(&[first, pong].concat(), &mut out, &mut ended).unwrap();
        assert_eq!(ended, vec![Ended { ticket: 5, failure: Some(Failure::Malformed) }; round + 1]);
    }
}

#[test]
fn calls_of_grpc_say_how_they_went() {
    let grpc = |answer: &[Vec<u8>]| ends(Kind::Grpc, answer);
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
fn garbage_is_said_to_be_garbage() {
    let found = |bytes: &[u8]| {
        let mut codec = asked(Kind::Http, 1);
        codec.receive(bytes, &mut Vec::new(), &mut Vec::new())
    };
    let two = |one: Vec<u8>| [settings(), one].concat();
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
        // An answer to what nobody asked, and one of a stream that is the server's.
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
fn noise_breaks_nothing() {
    let alphabet = b"\0\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x88\x8d";
    for kind in [Kind::Http, Kind::Grpc] {
        noise(alphabet, || {
            let mut codec = asked(kind, 0);
            codec.send(&request("/", b"ab"), 7, &mut Vec::new());
            codec.receive(&settings(), &mut Vec::new(), &mut Vec::new()).unwrap();
            Box::new(codec)
        });
    }
}
