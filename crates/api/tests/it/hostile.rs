//! Those who mean no good, or cannot do better: slow, silent, too large, garbage, too many.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::client::{answer, ask, connect, request};
use crate::fixture::{Fixture, local};
use crate::http2::ClosedWindow;

/// A short limit of a test's server. A client that sends all at once keeps it, busy machine or not.
const SOON: Duration = Duration::from_millis(200);

/// Waits until the other end is gone.
#[track_caller]
fn ends(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // An end by reset is one too; a time that ran out is not.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[track_caller]
fn still_answers(it: &Fixture) {
    it.post("/v1/record?metric=alive", "", "1").is(200, "\"values\":1");
}

#[test]
fn who_sends_a_head_slowly_is_left() {
    let mut settings = local(None);
    settings.limits.head_time = SOON;
    let it = Fixture::with(settings);
    let mut slow = connect(it.address);
    slow.write_all(b"POST /v1/record HTTP/1.1\r\nHost: ").unwrap();
    let mut slow_http2 = connect(it.address);
    slow_http2.write_all(b"PRI * HTTP/2.0\r\n").unwrap();
    ends(&mut slow);
    ends(&mut slow_http2);
    // The second request of a connection is looked at like the first.
    let mut second = connect(it.address);
    ask(&mut second, &request("POST", "/v1/record?metric=alive", "", b"1")).is(200, "");
    second.write_all(b"POST").unwrap();
    ends(&mut second);
    assert_eq!(it.refused("head_time"), 3);
    still_answers(&it);
}

#[test]
fn who_sends_a_body_slowly_is_told_and_left() {
    let mut settings = local(None);
    settings.limits.body_time = SOON;
    let it = Fixture::with(settings);
    let mut slow = connect(it.address);
    let whole = request("POST", "/v1/record?metric=a", "", &[b'1'; 100]);
    slow.write_all(&whole[..whole.len() - 1]).unwrap();
    answer(&mut slow).unwrap().is(408, "the body took more than 0.2 s to come");
    ends(&mut slow);
    assert_eq!(it.refused("body_time"), 1);
    assert_eq!(it.count("a"), 0);
    still_answers(&it);
}

#[test]
fn who_says_nothing_is_left_when_idle() {
    let mut settings = local(None);
    settings.limits.idle_time = SOON;
    let it = Fixture::with(settings);
    let mut silent = connect(it.address);
    ends(&mut silent);
    let mut kept = connect(it.address);
    ask(&mut kept, &request("POST", "/v1/record?metric=a", "", b"1")).is(200, "");
    ends(&mut kept);
    assert_eq!(it.refused("head_time"), 0, "idleness is no fault");
}

#[test]
fn what_is_too_large_is_refused() {
    let mut settings = local(None);
    settings.limits.body_bytes = 1000;
    settings.limits.head_bytes = 8 << 10;
    let it = Fixture::with(settings);
    let path = "/v1/record?metric=a";
    it.post(path, "", vec![b'1'; 1001]).is(413, "a body may have 1000 bytes");
    let mut chunked = connect(it.address);
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    chunked.write_all(head.as_bytes()).unwrap();
    chunked.write_all(&[b"400\r\n".as_slice(), &[b'1'; 1024], b"\r\n0\r\n\r\n"].concat()).unwrap();
    answer(&mut chunked).unwrap().is(413, "a body may have 1000 bytes");
    let packed = zstd::encode_all(&[b'1'; 100_000][..], 3).unwrap();
    assert!(packed.len() < 1000);
    it.post(path, "Content-Encoding: zstd\r\n", packed).is(413, "unpacked too");
    assert_eq!(it.refused("body_bytes"), 3);
    let long = format!("X: {}\r\n", "x".repeat(9000));
    assert_eq!(it.post(path, &long, "1").status, 431);
    it.post(path, "", vec![b'\n'; 1000]).is(200, "\"values\":0");
    assert_eq!(it.count("a"), 0);
}

#[test]
fn garbage_and_halves_do_no_harm() {
    let it = Fixture::new();
    let whole = request("POST", "/v1/record?metric=half", "", b"12345");
    for end in [1, 10, 40, whole.len() - 1] {
        let mut half = connect(it.address);
        half.write_all(&whole[..end]).unwrap();
        half.shutdown(Shutdown::Write).unwrap();
        ends(&mut half);
    }
    for garbage in
        [&b"\x16\x03\x01\x02\x00\x01\x00"[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", &[0xff; 5000]]
    {
        let mut stream = connect(it.address);
        // The server may have ended the connection already.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(Shutdown::Write);
        ends(&mut stream);
    }
    assert_eq!(it.count("half"), 0);
    still_answers(&it);
}

#[test]
fn a_thousand_idle_connections_are_held() {
    let it = Fixture::new();
    // Both ends are in this process. The server has raised the limit as far as it may.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if files.is_some_and(|files| files < 2_500) {
        println!("skipped: this process may have {files:?} open files, and needs 2,500");
        return;
    }
    let mut idle: Vec<TcpStream> = (0..1000).map(|_| connect(it.address)).collect();
    still_answers(&it);
    for stream in idle.iter_mut().step_by(100) {
        ask(stream, &request("POST", "/v1/record?metric=late", "", b"1")).is(200, "");
    }
    assert_eq!(it.count("late"), 10);
    assert_eq!(it.refused("connections"), 0);
}

/// How many bodies are decoded at a time follows from the number of processors, and no answer does.
#[test]
fn many_senders_are_answered_on_one_processor_two_and_64() {
    for processors in [1, 2, 64] {
        let mut settings = local(None);
        settings.limits.decoding = 2 * processors;
        let it = Fixture::with(settings);
        let body = request("POST", "/v1/record?metric=a", "", b"1");
        let mut senders: Vec<TcpStream> = (0..16).map(|_| connect(it.address)).collect();
        senders.iter_mut().for_each(|stream| stream.write_all(&body).unwrap());
        senders.iter_mut().for_each(|stream| answer(stream).expect("an answer").is(200, ""));
        assert_eq!(it.count("a"), 16, "{processors}");
    }
}

#[test]
fn one_connection_too_many_is_closed() {
    let mut settings = local(None);
    settings.limits.connections = 2;
    let it = Fixture::with(settings);
    let body = request("POST", "/v1/record?metric=a", "", b"1");
    let mut held: Vec<TcpStream> = (0..2).map(|_| connect(it.address)).collect();
    held.iter_mut().for_each(|stream| ask(stream, &body).is(200, ""));
    ends(&mut connect(it.address));
    assert_eq!(it.refused("connections"), 1);
    held.iter_mut().for_each(|stream| ask(stream, &body).is(200, ""));
}

#[test]
fn snapshots_take_as_long_as_they_take() {
    let mut settings = local(None);
    settings.limits.request_time = Duration::ZERO;
    let it = Fixture::with(settings);
    it.ask("GET", "/v1/snapshots", "", b"").is(200, "\"snapshots\":[]");
}

#[test]
fn a_port_that_is_in_use_is_tried_again_and_then_told() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let on_it = || {
        let mut settings = local(None);
        settings.listen[0].address = address;
        settings
    };
    let Err(error) = Fixture::start(on_it()) else { panic!("two listen on {address}") };
    let error = error.to_string();
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    assert!(error.contains(&format!("sport = :{}", address.port())), "{error}");
    let freed = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
    });
    assert_eq!(Fixture::start(on_it()).unwrap().address, address);
    freed.join().unwrap();
}

#[test]
fn two_headers_host_are_refused_and_nothing_is_guessed_from_bytes() {
    let it = Fixture::new();
    let answered = it.ask("GET", "/v1/status", "", b"");
    assert_eq!(
        (answered.status, answered.header("x-content-type-options")),
        (200, Some("nosniff"))
    );
    let refused = it.ask("GET", "/v1/status", "Host: evil.example\r\n", b"");
    refused.is(400, "two headers Host");
    assert_eq!(refused.header("x-content-type-options"), Some("nosniff"));
}

#[test]
fn answers_that_nobody_reads_do_not_pile_up() {
    // 7,201 values.
    let query = "/v1/query?query=1&from=2020-01-01T00:00:00Z&to=2020-01-01T02:00:00Z&step=1s";
    let bytes = Fixture::new().ask("GET", query, "", b"").body.len();
    let mut settings = local(None);
    // There is room for one, and no other.
    settings.limits.answers_bytes = bytes * 2;
    let it = Fixture::with(settings);
    let unread = ClosedWindow::connect(&it);
    assert_eq!(unread.ask(query), 200);
    assert!(it.answers_bytes() >= bytes, "{}", it.answers_bytes());
    let refused = it.ask("GET", query, "", b"");
    refused.is(429, "(answers_bytes in [http.limits]");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(it.refused("answers_bytes"), 1);
    // Who asks for little is answered, and who sends is told.
    it.ask("GET", "/health", "", b"").is(200, "well");
    still_answers(&it);
    drop(unread);
    while it.answers_bytes() > 0 {
        std::thread::yield_now();
    }
    it.ask("GET", query, "", b"").is(200, "\"schema\":");
}

#[test]
fn what_is_the_same_for_all_is_held_once() {
    let it = Fixture::new();
    let document = it.ask("GET", "/v1/openapi.json", "", b"").body.len();
    let unread = ClosedWindow::connect(&it);
    for _ in 0..100 {
        assert_eq!(unread.ask("/v1/openapi.json"), 200);
    }
    let held = it.answers_bytes();
    assert!(held > 0 && held < 10 * document, "{held} bytes, and a document has {document}");
}
