//! Encoded requests; responses whole, in pieces, and garbage.

use super::*;

fn asked(method: &str) -> (Http1, Vec<u8>) {
    let mut codec = Http1::new("a:80");
    let mut out = Vec::new();
    let request = RenderedRequest {
        method: method.to_owned(),
        path: "/x?y".to_owned(),
        ..RenderedRequest::default()
    };
    codec.send(&request, 7, &mut out);
    (codec, out)
}

/// Completions of a response that arrives whole, and byte by byte.
fn ends(method: &str, answer: &str, closes: bool) -> Result<Vec<Completion>, Failure> {
    let whole = |pieces: Vec<&[u8]>| {
        let (mut codec, _) = asked(method);
        let mut completions = Vec::new();
        for piece in pieces {
            codec.receive(piece, &mut Vec::new(), &mut completions)?;
        }
        if closes {
            codec.close(&mut completions);
        }
        Ok(completions)
    };
    let once = whole(vec![answer.as_bytes()]);
    assert_eq!(once, whole(answer.as_bytes().chunks(1).collect()), "{answer:?}");
    once
}

const WELL: Completion = Completion { request_id: 7, failure: None };

#[test]
fn requests_are_encoded() {
    let (_, out) = asked("GET");
    assert_eq!(out, b"GET /x?y HTTP/1.1\r\nHost: a:80\r\n\r\n");
    let mut codec = Http1::new("a");
    let mut out = Vec::new();
    let request = RenderedRequest {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        headers: vec![("Host".to_owned(), "b".to_owned())],
        body: b"12".to_vec(),
        ..RenderedRequest::default()
    };
    codec.send(&request, 1, &mut out);
    assert_eq!(out, b"POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\n12");
    assert_eq!(codec.capacity(), 0);
}

#[test]
fn responses_end_by_length_chunk_or_close() {
    for (method, answer) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
        ("GET", "HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ] {
        assert_eq!(ends(method, answer, false), Ok(vec![WELL]), "{answer:?}");
    }
    assert_eq!(ends("GET", "HTTP/1.1 200 OK\r\n\r\nabc", false), Ok(vec![]));
    assert_eq!(ends("GET", "HTTP/1.1 200 OK\r\n\r\nabc", true), Ok(vec![WELL]));
    assert_eq!(ends("GET", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", true), Ok(vec![]));
    let failed = Completion { failure: Some(Failure::Status), ..WELL };
    assert_eq!(
        ends("GET", "HTTP/1.1 503 No\r\nContent-Length: 1\r\n\r\nx", false),
        Ok(vec![failed])
    );
}

#[test]
fn garbage_is_malformed() {
    for answer in [
        "SSH-2.0-x\r\n",
        "HTTP/1.1 101 Other\r\n\r\n",
        // An unsolicited response.
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore",
    ] {
        assert_eq!(ends("GET", answer, false), Err(Failure::Malformed), "{answer:?}");
    }
}

#[test]
fn closing_connection_has_no_capacity() {
    let take = |answer: &str| {
        let (mut codec, _) = asked("GET");
        codec.receive(answer.as_bytes(), &mut Vec::new(), &mut Vec::new()).unwrap();
        (codec.capacity(), codec.is_ending())
    };
    assert_eq!(take("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), (1, false));
    assert_eq!(
        take("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n"),
        (0, true)
    );
    assert_eq!(take("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"), (0, true));
    assert_eq!(
        take("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n"),
        (1, false)
    );
}
