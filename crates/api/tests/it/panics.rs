//! Panics in the server's tasks and threads: they are run again, and whoever comes next is served.

use std::io::{Read as _, Write as _};

use intake::Supervisor;

use crate::client::{ask, connect, request};
use crate::fixture::{Dir, Fixture, local};
use crate::http2::ClosedWindow;

/// Waits until a thread was run again.
fn restarted(supervisor: &Supervisor, thread: &str) {
    while supervisor.restarts(thread) == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_panic_while_accepting_closes_one_connection_and_the_next_is_served() {
    let supervisor = Supervisor::throwing(&[("accept", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
    let mut first = connect(fixture.address);
    assert_eq!(first.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    assert_eq!(fixture.ask("GET", "/health", "", b"").status, 200);
    assert_eq!(supervisor.restarts("accept"), 1);
}

#[test]
fn a_panic_in_a_request_closes_its_connection_and_is_told() {
    let supervisor = Supervisor::throwing(&[("request /v1/status", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
    let mut first = connect(fixture.address);
    first.write_all(&request("GET", "/v1/status", "", b"")).unwrap();
    assert_eq!(first.read(&mut [0; 8]).unwrap_or(0), 0, "it is closed");
    assert_eq!(fixture.ask("GET", "/v1/status", "", b"").status, 200);
    // The connection is closed while the panic unwinds, and counted behind that.
    while supervisor.restarts("connection") == 0 {
        std::thread::yield_now();
    }
    assert_eq!(supervisor.restarts("connection"), 1);
}

#[test]
fn a_panic_in_a_request_over_http_2_resets_its_stream_and_is_told() {
    let supervisor = Supervisor::throwing(&[("answer /v1/status", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
    let connection = ClosedWindow::connect(&fixture);
    let error = connection.try_ask("/v1/status").expect_err("its stream is reset");
    assert!(error.contains("Reset"), "{error}");
    restarted(&supervisor, "connection");
    assert_eq!(connection.ask("/v1/status"), 200, "the connection goes on");
    assert_eq!(supervisor.restarts("connection"), 1);
}

#[test]
fn a_panic_in_a_query_is_answered_and_told() {
    let supervisor = Supervisor::throwing(&[("work on a query", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
    let query = || fixture.ask("GET", "/v1/series", "", b"");
    query().is(500, "panicked");
    assert_eq!(supervisor.restarts("request"), 1);
    assert_eq!(query().status, 200);
}

#[test]
fn a_panic_while_decoding_is_answered_and_takes_nothing() {
    let supervisor = Supervisor::throwing(&[("decode", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
    let mut stream = connect(fixture.address);
    let post = request("POST", "/v1/record?metric=a", "", b"12.5");
    assert_eq!(ask(&mut stream, &post).status, 500);
    assert_eq!(supervisor.restarts("request"), 1);
    assert_eq!(ask(&mut connect(fixture.address), &post).status, 200);
    assert_eq!(fixture.count("a"), 1);
}

#[test]
fn tokens_count_soon_after_a_panic_of_who_looks_at_them() {
    let dir = Dir::new();
    let path = dir.0.join("tokens");
    std::fs::write(&path, "").unwrap();
    let mut settings = local(None);
    settings.tokens = Some(path);
    let supervisor = Supervisor::throwing(&[("tokens", 1)]);
    let fixture = Fixture::supervised(settings, supervisor.clone());
    restarted(&supervisor, "tokens");
    assert_eq!(fixture.ask("GET", "/health", "", b"").status, 200);
}

#[test]
fn a_panic_of_the_live_stream_ends_it_with_a_reason_and_the_next_goes_on() {
    let supervisor = Supervisor::throwing(&[("stream", 1)]);
    let fixture = Fixture::supervised(local(None), supervisor.clone());
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
    // Reads until there is such a text.
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
    until(&mut first, "a defect of topdeck; listen again");
    assert_eq!(supervisor.restarts("stream"), 1);
    let mut second = listen();
    assert_eq!(fixture.post("/v1/record?metric=b", "", "2").status, 200);
    until(&mut second, "\"b\"");
}
