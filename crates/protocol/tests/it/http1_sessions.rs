//! Sessions of HTTP/1.1, from RFC 9110 and 9112.

use expect_test::expect;

use crate::session::Session;

fn http() -> Session {
    Session::new("http")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// All sessions, as seeds of the fuzzer.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![
        ("exchanges", exchanges()),
        ("bodies", bodies()),
        ("interim", interim()),
        ("pipeline", pipeline()),
        ("upgrade", upgrade()),
        ("closed", closed()),
    ]
}

fn exchanges() -> Session {
    let traced = "GET /users/1?token=secret HTTP/1.1\r\ntraceparent: \
                  00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01\r\n\r\n";
    http()
        .repeatable()
        .client(traced)
        .server(ok("hello"))
        .client(get("http://a.example/b#c"))
        .server(&ok("hello")[..20])
        .server(&ok("hello")[20..])
        .client("DELETE /users/1 HTTP/1.1\r\nHost: a\r\n\r\n")
        .server("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        .client("BREW / HTTP/1.1\r\nHost: a\r\n\r\n")
        .server("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\nno")
}

#[test]
fn requests_have_path_status_and_trace() {
    exchanges().check(expect![[r#"
        1-1 2-2 GET Path "/users/1" ok, 108/43 B, traceparent 00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01
        3-3 4-5 GET Path "/b" ok, 46/43 B
        6-6 7-7 DELETE Path "/users/1" error 4xx, 37/45 B
        8-8 9-9 OTHER Path "/" error 5xx, 28/58 B
    "#]]);
}

fn bodies() -> Session {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  5;a=b\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n";
    http()
        .repeatable()
        .client("POST /a HTTP/1.1\r\nContent-Length: 9\r\n\r\n01234")
        .client("5678")
        .server(&chunks[..60])
        .server(&chunks[60..])
        .client("PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
        .server("HTTP/1.1 204 No Content\r\n\r\n")
        .client("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n")
        .server("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        .client(get("/a"))
        .server("HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\n\r\n")
}

#[test]
fn bodies_end_by_length_chunk_or_status() {
    bodies().check(expect![[r#"
        1-2 3-4 POST Path "/a" ok, 48/94 B
        5-5 6-6 PUT Path "/a" ok, 60/27 B
        7-7 8-8 HEAD Path "/a" ok, 29/41 B
        9-9 10-10 GET Path "/a" ok, 28/51 B
    "#]]);
}

fn interim() -> Session {
    http()
        .repeatable()
        .client("POST /a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .server("HTTP/1.1 100 Continue\r\n\r\n")
        .client("abc")
        .server("HTTP/1.1 103 Early Hints\r\nLink: </b>\r\n\r\n")
        .server(ok("hello"))
        // An early response: the request ends after it.
        .client("POST /large HTTP/1.1\r\nContent-Length: 6\r\n\r\nabc")
        .server("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        .client("def")
        .client(get("/b"))
        .server(ok("hello"))
}

#[test]
fn interim_responses_are_not_the_first_byte() {
    interim().check(expect![[r#"
        1-3 5-5 POST Path "/a" ok, 64/108 B
        6-7 7-7 POST Path "/large" error 4xx, 49/45 B
        9-9 10-10 GET Path "/b" ok, 28/43 B
    "#]]);
}

fn pipeline() -> Session {
    let requests: String = (0..5).map(|at| get(&format!("/{at}"))).collect();
    http()
        .repeatable()
        .client(&requests[..70])
        .client(&requests[70..])
        .server(ok("a"))
        .server([ok("b"), ok("c")].concat())
        .server([ok("d"), ok("e")].concat())
}

#[test]
fn pipelines() {
    pipeline().check(expect![[r#"
        1-1 3-3 GET Path "/0" ok, 28/39 B
        1-1 4-4 GET Path "/1" ok, 28/39 B
        1-2 4-4 GET Path "/2" ok, 28/39 B
        2-2 5-5 GET Path "/3" ok, 28/39 B
        2-2 5-5 GET Path "/4" ok, 28/39 B
    "#]]);
}

fn upgrade() -> Session {
    http()
        .client("GET /ws HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        .server("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x01\x02")
        .client("frame")
}

#[test]
fn an_upgraded_connection_is_not_measured() {
    upgrade().check(expect![[r#"
        1-1 2-2 GET Path "/ws" ok, 61/56 B
        unparsed: 5 ToServer
        unparsed: 2 ToClient
        Unmeasurable
    "#]]);
    let connect = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n";
    http().client(connect).server("HTTP/1.1 200 Ok\r\n\r\n").client("\x16").check(expect![[r#"
        1-1 2-2 CONNECT Path "a.example:443" ok, 55/19 B
        unparsed: 1 ToServer
        Unmeasurable
    "#]]);
    let refused = http().client(connect).server("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
    refused.client(get("/")).server(ok("")).check(expect![[r#"
        1-1 2-2 CONNECT Path "a.example:443" error 4xx, 55/38 B
        3-3 4-4 GET Path "/" ok, 27/38 B
    "#]]);
}

fn closed() -> Session {
    http()
        .client(get("/a"))
        .server("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello")
        .server("world")
}

#[test]
fn a_body_without_length_ends_with_the_connection() {
    closed().check(expect![[r#"
        1-1 2-3 GET Path "/a" ok, 28/55 B
        in flight: GET "/a" since 1
    "#]]);
}

#[test]
fn a_stream_of_events_is_a_wait() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let stream = http().client(get("/events")).server(head).server("3\r\na\r\n\r\n");
    stream.clone().check(expect![[r#"
        in flight: GET "/events" wait since 1
        not measured: 1 ConnectionEnd
    "#]]);
    stream.server("0\r\n\r\n").check(expect![[r#"
        1-1 2-4 GET Path "/events" ok, 33/93 B, wait
    "#]]);
}

#[test]
fn other_protocols_are_recognized() {
    let hello = b"\x16\x03\x01\x00\x05hello";
    http().client(hello).server(hello).check(expect![[r#"
        Encrypted
    "#]]);
    http().client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").check(expect![[r#"
        unparsed: 6 ToServer
        Unmeasurable
    "#]]);
    http().client("*1\r\n$4\r\nPING\r\n").server("+PONG\r\n").check(expect![[r#"
        unparsed: 14 ToServer
        unparsed: 7 ToClient
        Unmeasurable
    "#]]);
}

/// The middle of a body may be missing, as in a capture with a limited packet size.
#[test]
fn a_gap_inside_a_body_does_no_harm() {
    let body = "x".repeat(5000);
    let session = http()
        .client(["POST /a HTTP/1.1\r\nContent-Length: 5000\r\n\r\n", &body].concat())
        .server(ok(&body))
        .client(get("/b"))
        .server(ok("hello"));
    let whole = session.transcript_text();
    assert_eq!(session.text_with_gap(1, 100, 4000), whole);
    assert_eq!(session.text_with_gap(2, 100, 4000), whole);
    assert!(session.text_with_gap(2, 10, 100).contains("not measured: 2 Gap"));
}
