//! Hostile and broken clients: slow, silent, too large, garbage, too many.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::client::{connect, exchange, read_response, request};
use crate::fixture::{ServerFixture, local_settings};
use crate::http2::ClosedWindowConnection;

/// A short timeout of the test server. A client that sends everything at once meets it even on a
/// busy machine.
const SHORT_TIMEOUT: Duration = Duration::from_millis(200);

/// Waits until the peer has closed the connection.
#[track_caller]
fn wait_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset counts as closed; a timeout does not.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[track_caller]
fn check_responds(it: &ServerFixture) {
    it.post("/v1/record?metric=alive", "", "1").check(200, "\"values\":1");
}

#[test]
fn slow_header_is_disconnected() {
    let mut settings = local_settings(None);
    settings.limits.header_read_timeout = SHORT_TIMEOUT;
    let it = ServerFixture::with(settings);
    let mut slow = connect(it.address);
    slow.write_all(b"POST /v1/record HTTP/1.1\r\nHost: ").unwrap();
    let mut slow_http2 = connect(it.address);
    slow_http2.write_all(b"PRI * HTTP/2.0\r\n").unwrap();
    wait_closed(&mut slow);
    wait_closed(&mut slow_http2);
    // The second request of a connection is checked like the first.
    let mut second = connect(it.address);
    exchange(&mut second, &request("POST", "/v1/record?metric=alive", "", b"1")).check(200, "");
    second.write_all(b"POST").unwrap();
    wait_closed(&mut second);
    assert_eq!(it.rejected("header_read_timeout"), 3);
    check_responds(&it);
}

#[test]
fn slow_body_is_rejected_and_disconnected() {
    let mut settings = local_settings(None);
    settings.limits.body_read_timeout = SHORT_TIMEOUT;
    let it = ServerFixture::with(settings);
    let mut slow = connect(it.address);
    let whole = request("POST", "/v1/record?metric=a", "", &[b'1'; 100]);
    slow.write_all(&whole[..whole.len() - 1]).unwrap();
    read_response(&mut slow).unwrap().check(408, "body not received within 200 ms");
    wait_closed(&mut slow);
    assert_eq!(it.rejected("body_read_timeout"), 1);
    assert_eq!(it.count("a"), 0);
    check_responds(&it);
}

#[test]
fn idle_connection_is_closed() {
    let mut settings = local_settings(None);
    settings.limits.idle_timeout = SHORT_TIMEOUT;
    let it = ServerFixture::with(settings);
    let mut silent = connect(it.address);
    wait_closed(&mut silent);
    let mut kept = connect(it.address);
    exchange(&mut kept, &request("POST", "/v1/record?metric=a", "", b"1")).check(200, "");
    wait_closed(&mut kept);
    assert_eq!(it.rejected("header_read_timeout"), 0, "idleness is no fault");
}

#[test]
fn oversized_requests_are_rejected() {
    let mut settings = local_settings(None);
    settings.limits.max_body_bytes = 1000;
    settings.limits.max_header_bytes = 8 << 10;
    let it = ServerFixture::with(settings);
    let path = "/v1/record?metric=a";
    it.post(path, "", vec![b'1'; 1001]).check(413, "body size limit (1000 bytes");
    let mut chunked = connect(it.address);
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.write_all(head.as_bytes()).unwrap();
    chunked.write_all(&[b"400\r\n".as_slice(), &[b'1'; 1024], b"\r\n0\r\n\r\n"].concat()).unwrap();
    read_response(&mut chunked).unwrap().check(413, "body size limit (1000 bytes");
    let packed = zstd::encode_all(&[b'1'; 100_000][..], 3).unwrap();
    assert!(packed.len() < 1000);
    it.post(path, "Content-Encoding: zstd\r\n", packed).check(413, "compressed and decompressed");
    assert_eq!(it.rejected("max_body_bytes"), 3);
    let long = format!("X: {}\r\n", "x".repeat(9000));
    assert_eq!(it.post(path, &long, "1").status, 431);
    assert_eq!(it.count("a"), 0);
    it.post(path, "", [vec![b'\n'; 999], vec![b'1']].concat()).check(200, "\"values\":1");
    assert_eq!(it.count("a"), 1);
}

#[test]
fn a_file_over_the_limit_is_answered_with_the_command_that_sends_it() {
    let mut settings = local_settings(None);
    settings.limits.max_body_bytes = 1000;
    let it = ServerFixture::with(settings);
    let remedy = "send the file in parts with `topdeck import FILE --server URL`";
    for path in ["/v1/import?metric=a&start=1", "/v1/hlog?metric=a"] {
        it.post(path, "", vec![b'1'; 1001]).check(413, remedy);
    }
    it.post("/v1/record?metric=a", "", vec![b'1'; 1001]).check(413, "; split the request");
}

#[test]
fn garbage_and_partial_requests_do_no_harm() {
    let it = ServerFixture::new();
    let whole = request("POST", "/v1/record?metric=half", "", b"12345");
    for end in [1, 10, 40, whole.len() - 1] {
        let mut half = connect(it.address);
        half.write_all(&whole[..end]).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        wait_closed(&mut half);
    }
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", &[0xff; 5000]]
    {
        let mut stream = connect(it.address);
        // The server may have closed the connection already.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(Shutdown::Write);
        wait_closed(&mut stream);
    }
    assert_eq!(it.count("half"), 0);
    check_responds(&it);
}

#[test]
fn thousand_idle_connections_stay_open() {
    let it = ServerFixture::new();
    // Both ends are in this process. The server has raised the limit to the hard limit.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if files.is_some_and(|files| files < 2_500) {
        println!("skipped: this process may have {files:?} open files, and needs 2,500");
        return;
    }
    let mut idle: Vec<TcpStream> = (0..1000).map(|_| connect(it.address)).collect();
    check_responds(&it);
    for stream in idle.iter_mut().step_by(100) {
        exchange(stream, &request("POST", "/v1/record?metric=late", "", b"1")).check(200, "");
    }
    assert_eq!(it.count("late"), 10);
    assert_eq!(it.rejected("max_connections"), 0);
}

/// The default number of concurrent decodes depends on the CPUs, and no response shows it.
#[test]
fn many_senders_are_answered_on_1_2_and_64_cpus() {
    for processors in [1, 2, 64] {
        let mut settings = local_settings(None);
        settings.limits.max_concurrent_decodes = 2 * processors;
        let it = ServerFixture::with(settings);
        let body = request("POST", "/v1/record?metric=a", "", b"1");
        let mut senders: Vec<TcpStream> = (0..16).map(|_| connect(it.address)).collect();
        senders.iter_mut().for_each(|stream| stream.write_all(&body).unwrap());
        senders
            .iter_mut()
            .for_each(|stream| read_response(stream).expect("an answer").check(200, ""));
        assert_eq!(it.count("a"), 16, "{processors}");
    }
}

#[test]
fn connection_above_the_limit_is_closed() {
    let mut settings = local_settings(None);
    settings.limits.max_connections = 2;
    let it = ServerFixture::with(settings);
    let body = request("POST", "/v1/record?metric=a", "", b"1");
    let mut held: Vec<TcpStream> = (0..2).map(|_| connect(it.address)).collect();
    held.iter_mut().for_each(|stream| exchange(stream, &body).check(200, ""));
    wait_closed(&mut connect(it.address));
    assert_eq!(it.rejected("max_connections"), 1);
    held.iter_mut().for_each(|stream| exchange(stream, &body).check(200, ""));
}

#[test]
fn snapshots_have_no_timeout() {
    let mut settings = local_settings(None);
    settings.limits.request_timeout = Duration::ZERO;
    let it = ServerFixture::with(settings);
    it.request("GET", "/v1/snapshots", "", b"").check(200, "\"snapshots\":[]");
}

#[test]
fn port_in_use_is_retried_then_reported() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let on_it = || {
        let mut settings = local_settings(None);
        settings.listen[0].address = address;
        settings
    };
    let Err(error) = ServerFixture::start(on_it()) else { panic!("two listen on {address}") };
    let error = error.to_string();
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    assert!(error.contains(&format!("sport = :{}", address.port())), "{error}");
    let freed = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
    });
    assert_eq!(ServerFixture::start(on_it()).unwrap().address, address);
    freed.join().unwrap();
}

#[test]
fn duplicate_host_headers_are_rejected() {
    let it = ServerFixture::new();
    let answered = it.request("GET", "/v1/status", "", b"");
    assert_eq!(
        (answered.status, answered.header("x-content-type-options")),
        (200, Some("nosniff"))
    );
    let refused = it.request("GET", "/v1/status", "Host: evil.example\r\n", b"");
    refused.check(400, "duplicate header Host");
    assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn request_without_a_host_is_rejected() {
    let it = ServerFixture::new();
    let status = |version: &str, host: &str| {
        let request = format!("GET /v1/status HTTP/{version}\r\n{host}Connection: close\r\n\r\n");
        exchange(&mut connect(it.address), request.as_bytes()).status
    };
    for host in [
        "",
        "Host:\r\n",
        "Host: user@localhost\r\n",
        "Host: localhost/v1\r\n",
        "Host: local host\r\n",
        "Host: localhost:80:80\r\n",
        "Host: [::1\r\n",
    ] {
        assert_eq!(status("1.1", host), 400, "{host}");
    }
    // HTTP/1.0 does not have the header.
    assert_eq!(status("1.0", ""), 200);
    assert_eq!(status("1.1", "Host: [::1]:7717\r\n"), 200);
}

#[test]
fn unread_responses_are_limited() {
    // 7,201 values.
    let query = "/v1/query?query=1&from=2020-01-01T00:00:00Z&to=2020-01-01T02:00:00Z&step=1s";
    let bytes = ServerFixture::new().request("GET", query, "", b"").body.len();
    let mut settings = local_settings(None);
    // One response fits, two do not.
    settings.limits.max_buffered_response_bytes = bytes * 2;
    let it = ServerFixture::with(settings);
    let unread = ClosedWindowConnection::connect(&it);
    assert_eq!(unread.request(query), 200);
    assert!(it.buffered_response_bytes() >= bytes, "{}", it.buffered_response_bytes());
    let refused = it.request("GET", query, "", b"");
    refused.check(429, "(max_buffered_response_bytes in [http.limits]");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(it.rejected("max_buffered_response_bytes"), 1);
    // Small responses and acknowledgements are still sent.
    it.request("GET", "/health", "", b"").check(200, "healthy");
    check_responds(&it);
    drop(unread);
    while it.buffered_response_bytes() > 0 {
        std::thread::yield_now();
    }
    it.request("GET", query, "", b"").check(200, "\"schema\":");
}

#[test]
fn shared_response_is_buffered_once() {
    let it = ServerFixture::new();
    let document = it.request("GET", "/v1/openapi.json", "", b"").body.len();
    let unread = ClosedWindowConnection::connect(&it);
    for _ in 0..100 {
        assert_eq!(unread.request("/v1/openapi.json"), 200);
    }
    let held = it.buffered_response_bytes();
    assert!(held > 0 && held < 10 * document, "{held} bytes, and a document has {document}");
}
