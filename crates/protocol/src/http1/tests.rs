//! Tests of encoded requests, and of messages in both directions: whole, in pieces, and garbage.

use http::Method;

use super::*;
use crate::ProtocolViolation;

/// Responses in these bytes, which arrive whole, and byte by byte: status, and whether the
/// connection closes after it. All requests have this method.
#[track_caller]
fn responses(
    method: &str,
    bytes: &str,
    closes: bool,
) -> Result<Vec<(u16, bool)>, ProtocolViolation> {
    let read = |pieces: Vec<&[u8]>| {
        let (mut parser, mut responses) = (ResponseParser::default(), Vec::new());
        for mut piece in pieces {
            while let Some(response) = parser.read(&mut piece, method == "HEAD")? {
                responses.push((response.status, response.is_last));
            }
            assert!(piece.is_empty());
        }
        let last = parser.close().filter(|_| closes);
        responses.extend(last.map(|response| (response.status, response.is_last)));
        Ok(responses)
    };
    let once = read(vec![bytes.as_bytes()]);
    assert_eq!(once, read(bytes.as_bytes().chunks(1).collect()), "{bytes:?}");
    once
}

/// Methods of the requests in these bytes, which arrive whole, and byte by byte.
#[track_caller]
fn methods(bytes: &[u8]) -> Result<Vec<Method>, ProtocolViolation> {
    let read = |pieces: Vec<&[u8]>| {
        let (mut parser, mut methods) = (RequestParser::default(), Vec::new());
        for mut piece in pieces {
            while let Some(operation) = parser.read(&mut piece)? {
                methods.push(operation.method);
            }
            assert!(piece.is_empty());
        }
        Ok(methods)
    };
    let once = read(vec![bytes]);
    assert_eq!(once, read(bytes.chunks(1).collect()), "{bytes:?}");
    once
}

#[test]
fn requests_are_encoded() {
    let (mut out, request) =
        (Vec::new(), Http1Request { method: "GET", path: "/x?y", headers: &[], body: b"" });
    request.encode("a:80", &mut out);
    assert_eq!(out, b"GET /x?y HTTP/1.1\r\nHost: a:80\r\n\r\n");
    let headers = [("Host".to_owned(), "b".to_owned())];
    let request = Http1Request { method: "POST", path: "/", headers: &headers, body: b"12" };
    request.encode("a", &mut out);
    assert!(out.ends_with(b"POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\n12"));
    assert_eq!(methods(&out), Ok(vec![Method::GET, Method::POST]));
}

#[test]
fn requests_end_by_length_or_chunk() {
    let chunked = b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    assert_eq!(methods(chunked), Ok(vec![Method::PUT]));
    assert_eq!(methods(&chunked[..chunked.len() - 1]), Ok(vec![]));
    let two = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabHEAD /x HTTP/1.0\r\n\r\n";
    assert_eq!(methods(two), Ok(vec![Method::POST, Method::HEAD]));
    assert_eq!(methods(b"PURGE / HTTP/1.1\r\n\r\n").unwrap()[0].as_str(), "PURGE");
    for garbage in [
        &b"\x16\x03\x01"[..],
        b"GET / HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        assert_eq!(methods(garbage), Err(ProtocolViolation), "{garbage:?}");
    }
}

#[test]
fn responses_end_by_length_chunk_or_close() {
    for (method, bytes) in [
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"),
        ("GET", "HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n\
             3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
        ),
    ] {
        assert_eq!(responses(method, bytes, false), Ok(vec![(200, false)]), "{bytes:?}");
        let two = bytes.repeat(2);
        assert_eq!(responses(method, &two, true), Ok(vec![(200, false); 2]), "{bytes:?}");
    }
    assert_eq!(responses("GET", "HTTP/1.1 204 None\r\n\r\n", false), Ok(vec![(204, false)]));
    let until_closed = "HTTP/1.1 200 OK\r\n\r\nabc";
    assert_eq!(responses("GET", until_closed, false), Ok(vec![]));
    assert_eq!(responses("GET", until_closed, true), Ok(vec![(200, true)]));
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc";
    assert_eq!(responses("GET", cut, true), Ok(vec![]));
}

#[test]
fn errors_have_a_reason() {
    let read = |mut bytes: &[u8]| ResponseParser::default().read(&mut bytes, false);
    let failed = read(b"HTTP/1.1 503 No\r\nContent-Length: 1\r\n\r\nx").unwrap().unwrap();
    assert_eq!((failed.is_error(), failed.status, failed.reason.as_str()), (true, 503, "No"));
    let found = read(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap().unwrap();
    assert_eq!((found.is_error(), found.reason.as_str()), (false, ""));
}

#[test]
fn garbage_is_a_violation() {
    for bytes in [
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 101 Other\r\n\r\n",
        "HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nmore\r\n\r\n",
    ] {
        assert_eq!(responses("GET", bytes, false), Err(ProtocolViolation), "{bytes:?}");
    }
    let mut parser = ResponseParser::default();
    parser.read(&mut &b"HTTP/1.1 200 OK\r\nA: "[..], false).unwrap();
    let line = vec![b'a'; 1000];
    let far = (0..100).find_map(|_| parser.read(&mut line.as_slice(), false).err());
    assert_eq!(far, Some(ProtocolViolation));
}

#[test]
fn last_response_is_known() {
    let is_last = |head: &str| {
        let bytes = format!("HTTP/{head}\r\nContent-Length: 0\r\n\r\n");
        responses("GET", &bytes, false).unwrap()[0].1
    };
    assert!(!is_last("1.1 200 OK"));
    assert!(is_last("1.1 200 OK\r\nConnection: x, Close"));
    assert!(is_last("1.0 200 OK"));
    assert!(!is_last("1.0 200 OK\r\nConnection: keep-alive"));
}
