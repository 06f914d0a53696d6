//! Panics in the server's tasks and threads: they are restarted, and the next client is served.

use std::io::{Read as _, Write as _};

use intake::Supervisor;

use crate::client::{connect, exchange, request};
use crate::fixture::{ServerFixture, TestDir, local_settings};
use crate::http2::ClosedWindowConnection;

/// Waits until a thread has been restarted.
fn await_restart(supervisor: &Supervisor, thread: &str) {
    while supervisor.restarts(thread) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn panic_while_accepting_closes_one_connection() {
    let supervisor = Supervisor::with_injected_panics(&[("accept", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let mut first = connect(fixture.address);
    assert_eq!(first.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    assert_eq!(fixture.request("GET", "/health", "", b"").status, 200);
    assert_eq!(supervisor.restarts("accept"), 1);
}

#[test]
fn panic_in_a_request_closes_its_connection_and_is_logged() {
    let supervisor = Supervisor::with_injected_panics(&[("request /v1/status", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let mut first = connect(fixture.address);
    first.write_all(&request("GET", "/v1/status", "", b"")).unwrap();
    assert_eq!(first.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    assert_eq!(fixture.request("GET", "/v1/status", "", b"").status, 200);
    // The connection closes while the panic unwinds, and the panic is counted afterwards.
    while supervisor.panics("connection") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(supervisor.panics("connection"), 1);
}

#[test]
fn panic_in_an_http_2_request_resets_its_stream_and_is_reported() {
    let supervisor = Supervisor::with_injected_panics(&[("answer /v1/status", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let connection = ClosedWindowConnection::connect(&fixture);
    let error = connection.try_ask("/v1/status").expect_err("its stream is reset");
    assert!(error.contains("Reset"), "{error}");
    while supervisor.panics("connection") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(connection.request("/v1/status"), 200, "the connection goes on");
    assert_eq!(supervisor.panics("connection"), 1);
}

#[test]
fn panic_in_a_query_is_an_error_response_and_is_reported() {
    let supervisor = Supervisor::with_injected_panics(&[("query execution", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let query = || fixture.request("GET", "/v1/series", "", b"");
    query().check(500, "panicked");
    assert_eq!(supervisor.panics("request"), 1);
    assert_eq!(query().status, 200);
}

#[test]
fn panic_while_decoding_is_an_error_and_stores_nothing() {
    let supervisor = Supervisor::with_injected_panics(&[("decode", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let mut stream = connect(fixture.address);
    let post = request("POST", "/v1/record?metric=a", "", b"12.5");
    assert_eq!(exchange(&mut stream, &post).status, 500);
    assert_eq!(supervisor.panics("request"), 1);
    assert_eq!(exchange(&mut connect(fixture.address), &post).status, 200);
    assert_eq!(fixture.count("a"), 1);
}

#[test]
fn tokens_reload_after_a_watcher_panic() {
    let dir = TestDir::new();
    let path = dir.0.join("tokens");
    std::fs::write(&path, "").unwrap();
    let mut settings = local_settings(None);
    settings.tokens = Some(path);
    let supervisor = Supervisor::with_injected_panics(&[("tokens", 1)]);
    let fixture = ServerFixture::supervised(settings, supervisor.clone());
    await_restart(&supervisor, "tokens");
    assert_eq!(fixture.request("GET", "/health", "", b"").status, 200);
}

#[test]
fn panic_in_the_stream_thread_ends_streams_with_a_reason() {
    let supervisor = Supervisor::with_injected_panics(&[("stream", 1)]);
    let fixture = ServerFixture::supervised(local_settings(None), supervisor.clone());
    let listen = || {
        let mut stream = connect(fixture.address);
        stream.write_all(&request("GET", "/v1/stream", "", b"")).unwrap();
        let mut told = String::new();
        while !told.contains(": topdeck") {
            let mut bytes = [0; 512];
            let have = stream.read(&mut bytes).unwrap();
            told += &String::from_utf8_lossy(&bytes[..have]);
        }
        stream
    };
    // Reads until the text appears.
    let until = |stream: &mut dyn std::io::Read, text: &str| {
        let mut told = String::new();
        while !told.contains(text) {
            let mut bytes = [0; 512];
            let have = stream.read(&mut bytes).unwrap();
            assert!(have > 0, "{told}");
            told += &String::from_utf8_lossy(&bytes[..have]);
        }
    };
    let mut first = listen();
    assert_eq!(fixture.post("/v1/record?metric=a", "", "1").status, 200);
    until(&mut first, "a thread panicked (see the server's log); reconnect");
    assert_eq!(supervisor.panics("stream"), 1);
    let mut second = listen();
    assert_eq!(fixture.post("/v1/record?metric=b", "", "2").status, 200);
    until(&mut second, "\"b\"");
}
