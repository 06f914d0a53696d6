//! Sessions of HTTP/2 and gRPC, encoded from RFC 9113 and 7541.

use expect_test::expect;

use crate::session::Session;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

/// `:method` in the static table.
const GET: u8 = 0x82;
const POST: u8 = 0x83;
/// `:status` 200, 204 and 500 in the static table.
const OK: u8 = 0x88;
const INTERNAL_ERROR: u8 = 0x8e;

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Sessions for the fuzz corpus.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![("http", http_session()), ("grpc", grpc_session())]
}

/// Session of a browser and a server.
fn http_session() -> Session {
    let trace = literal("traceparent", TRACEPARENT);
    let get = [vec![GET], path("/users/1?q=2"), trace].concat();
    let post = [vec![POST], literal("x-long", &"a".repeat(300)), path("/orders")].concat();
    let (post_start, post_rest) = post.split_at(100);
    Session::new("http2")
        .client([PREFACE, &frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, 0])].concat())
        .server(frame(SETTINGS, 0, 0, &[]))
        .client(frame(SETTINGS, 1, 0, &[]))
        // A response with a body, between those of another stream.
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 1, &get))
        .client(
            [
                frame(HEADERS, WITH_PRIORITY, 3, &[&[0, 0, 0, 0, 15], post_start].concat()),
                frame(CONTINUATION, END_HEADERS, 3, post_rest),
                frame(DATA, 0, 3, &[1; 5000]),
            ]
            .concat(),
        )
        .server(frame(HEADERS, END_HEADERS, 1, &[OK]))
        .client(frame(DATA, END_STREAM | PADDED, 3, &[&[3], &[2; 700][..], &[0; 3]].concat()))
        .server(
            [
                frame(DATA, 0, 1, &[3; 8000]),
                frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]),
                // A notice is not the response.
                frame(HEADERS, END_HEADERS, 3, &literal(":status", "103")),
                frame(DATA, END_STREAM, 1, &[3; 2000]),
            ]
            .concat(),
        )
        .server(frame(HEADERS, END_HEADERS, 3, &[INTERNAL_ERROR]))
        .server(
            [
                frame(PING, 0, 0, &[7; 8]),
                frame(PUSH_PROMISE, END_HEADERS, 3, &[&[0, 0, 0, 2], &[GET][..]].concat()),
                frame(HEADERS, END_HEADERS | END_STREAM, 2, &[OK]),
                frame(DATA, END_STREAM, 3, b"sorry"),
            ]
            .concat(),
        )
        .client(frame(PRIORITY, 0, 5, &[0, 0, 0, 0, 15]))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 5, &[vec![GET], path("/slow")].concat()))
        .client(frame(RST_STREAM, 0, 5, &[0, 0, 0, 8]))
        .server(frame(HEADERS, END_STREAM | END_HEADERS, 5, &[OK]))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 7, &[vec![GET], path("/a")].concat()))
        .server(frame(RST_STREAM, 0, 7, &[0, 0, 0, 7]))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 9, &[vec![GET], path("/b")].concat()))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 11, &[vec![GET], path("/c")].concat()))
        .server(frame(GOAWAY, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0, b'b', b'y', b'e']))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 13, &[vec![GET], path("/d")].concat()))
}

#[test]
fn http() {
    http_session().check(expect![[r#"
        4-4 6-8 GET Path "/users/1" ok, 93/10028 B, traceparent 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
        5-7 9-10 POST Path "/orders" error 5xx, 6066/46 B
        15-15 16-16 GET Path "/a" error REFUSED_STREAM, 14/13 B
        in flight: GET "/b" since 17
        in flight: GET "/d" since 20
        not measured: 3 ConnectionEnd
        not measured: 1 Cancelled
    "#]]);
}

/// Session of a client and a server of gRPC.
fn grpc_session() -> Session {
    let call = |id: u32, method: &str| {
        let path = path(&format!("/test.Service/{method}"));
        frame(HEADERS, END_HEADERS, id, &[vec![POST], path, indexed("te", "trailers")].concat())
    };
    let message = |id: u32, flags: u8| frame(DATA, flags, id, &[0, 0, 0, 0, 4, 1, 2, 3, 4]);
    let start = |id: u32| {
        frame(HEADERS, END_HEADERS, id, &[vec![OK], indexed("content-type", "grpc")].concat())
    };
    let end = |id: u32, status: &str| {
        frame(HEADERS, END_STREAM | END_HEADERS, id, &literal("grpc-status", status))
    };
    Session::new("http2")
        .client([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .server(frame(SETTINGS, 0, 0, &[]))
        // One message each.
        .client([call(1, "Get"), message(1, END_STREAM)].concat())
        .server([start(1), message(1, 0)].concat())
        .server(end(1, "0"))
        // The server streams.
        .client([call(3, "List"), message(3, END_STREAM)].concat())
        .server(start(3))
        .server(message(3, 0))
        .server(message(3, 0))
        .server(end(3, "0"))
        // Both stream; the response ends first.
        .client(call(5, "Chat"))
        .client(message(5, 0))
        .server(start(5))
        .client(message(5, 0))
        .server(end(5, "14"))
        .client(message(5, END_STREAM))
        // Trailers only.
        .client([call(7, "Gone"), message(7, END_STREAM)].concat())
        .server(frame(
            HEADERS,
            END_STREAM | END_HEADERS,
            7,
            &[vec![OK], literal("grpc-status", "5")].concat(),
        ))
}

#[test]
fn grpc() {
    grpc_session().check(expect![[r#"
        3-3 4-5 POST Path "/test.Service/Get" ok, 60/71 B
        6-6 7-10 POST Path "/test.Service/List" ok, 61/89 B
        11-15 13-15 POST Path "/test.Service/Chat" error UNAVAILABLE, 97/54 B
        17-17 18-18 POST Path "/test.Service/Gone" error NOT_FOUND, 61/25 B
    "#]]);
}

/// Entries of the HPACK table that were sent before the start of capture.
/// The id of the stream is in the second packet of a frame, after a request with that id.
#[test]
fn a_response_that_began_before_its_request_is_not_measured() {
    let request = |id: u32| {
        let block = [vec![GET], path("/users")].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, id, &block)
    };
    let response = |id: u32| frame(HEADERS, END_STREAM | END_HEADERS, id, &[OK]);
    Session::new("http2")
        .client([PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1)].concat())
        .server([frame(SETTINGS, 0, 0, &[]), response(1)].concat())
        .server(&response(3)[..4])
        .client(request(3))
        .server(&response(3)[4..])
        .client(request(5))
        .server(response(5))
        .check_whole(expect![[r#"
            1-1 2-2 GET Path "/users" ok, 18/10 B
            6-6 7-7 GET Path "/users" ok, 18/10 B
            not measured: 1 Gap
        "#]]);
}

#[test]
fn a_late_start_knows_later_paths() {
    let index =
        |id: u32, index: u8| frame(HEADERS, END_STREAM | END_HEADERS, id, &[GET, 0x80 | index]);
    let new = |id: u32, path: &str| {
        let block = [vec![GET, 0x44, path.len() as u8], path.as_bytes().to_vec()].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, id, &block)
    };
    let response = |id: u32| frame(HEADERS, END_STREAM | END_HEADERS, id, &[OK]);
    let session = Session::new("http2")
        .client(index(101, 62))
        .server(response(101))
        .client(new(103, "/new"))
        .server(response(103))
        .client(index(105, 62))
        .server(response(105))
        .client(index(107, 63))
        .server(response(107));
    session.check_late(expect![[r#"
        3-3 4-4 GET Path "/new" ok, 16/10 B
        5-5 6-6 GET Path "/new" ok, 11/10 B
        7-7 8-8 GET ok, 11/10 B
        not measured: 1 Gap
    "#]]);
}

#[test]
fn upgrade_from_http_1() {
    let request = b"GET /index?a HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                    Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let response =
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    Session::new("http2")
        .client(request)
        .server([&response[..], &frame(SETTINGS, 0, 0, &[])].concat())
        .client([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .server(frame(HEADERS, END_HEADERS | END_STREAM, 1, &[OK]))
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 3, &[vec![GET], path("/b")].concat()))
        .server(frame(HEADERS, END_HEADERS | END_STREAM, 3, &[OK]))
        .check(expect![[r#"
            1-1 4-4 GET Path "/index" ok, 119/10 B
            5-5 6-6 GET Path "/b" ok, 14/10 B
        "#]]);
}

#[test]
fn a_refused_upgrade_is_not_measured() {
    Session::new("http2")
        .client(b"GET / HTTP/1.1\r\nUpgrade: h2c\r\n\r\n")
        .server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
        .check_whole(expect![[r#"
            not measured: 1 ConnectionEnd
            Unmeasurable
        "#]]);
}

#[test]
fn encrypted_connections_are_recognised() {
    Session::new("http2")
        .client([&[22, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3][..], &[7; 94]].concat())
        .server([&[22, 3, 3, 0, 60, 2, 0, 0, 56, 3, 3][..], &[7; 54]].concat())
        .check_whole(expect![[r#"
            unparsed: 105 ToServer
            unparsed: 65 ToClient
            Encrypted
        "#]]);
}

#[test]
fn a_block_without_end_is_bounded() {
    let mut session = Session::new("http2").client(PREFACE).client(frame(
        HEADERS,
        END_STREAM,
        1,
        &[vec![GET], path("/endless")].concat(),
    ));
    for _ in 0..100 {
        session = session.client(frame(CONTINUATION, 0, 1, &[0; 16000]));
    }
    session
        .client(frame(CONTINUATION, END_HEADERS, 1, &[]))
        .server(frame(HEADERS, END_STREAM | END_HEADERS, 1, &[OK]))
        .check_whole(expect![[r#"
            2-103 104-104 UNKNOWN ok, 1600929/10 B
        "#]]);
}

#[test]
fn memory_is_bounded() {
    let mut session = Session::new("http2")
        .client([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())
        .client(frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0x3f, 0xe1, 0xff, 3, GET]));
    for id in 1..600 {
        let value = format!("/{id}").repeat(500);
        let path = [vec![0x44], string(&value)].concat();
        let block = [vec![GET], path, indexed("a", "b")].concat();
        session = session.client(frame(HEADERS, END_STREAM | END_HEADERS, 2 * id + 1, &block));
    }
    let transcript = session.transcript_text();
    assert!(transcript.ends_with("\nnot measured: 88 Limit\n"), "{transcript}");
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `:path` without an entry in the dynamic table.
fn path(path: &str) -> Vec<u8> {
    [vec![0x04], string(path)].concat()
}

/// A header without an entry in the dynamic table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    [vec![0], string(name), string(value)].concat()
}

/// A header with a new entry in the dynamic table.
fn indexed(name: &str, value: &str) -> Vec<u8> {
    [vec![0x40], string(name), string(value)].concat()
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = match text.len() {
        length @ ..127 => vec![length as u8],
        mut rest => {
            rest -= 127;
            let mut bytes = vec![127];
            while rest >= 128 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            bytes
        }
    };
    bytes.extend(text.as_bytes());
    bytes
}
