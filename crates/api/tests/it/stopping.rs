//! Acknowledged data is stored: during shutdown, and when limits are reached.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::{connect, exchange, read_response, request};
use crate::fixture::{ServerFixture, local_settings};

/// More concurrent batches than may be in flight.
const SENDERS: usize = 16;

#[test]
fn started_request_is_answered_before_shutdown() {
    let mut it = ServerFixture::new();
    let whole = request("POST", "/v1/record?metric=a", "Expect: 100-continue\r\n", b"12345");
    let (head, body) = whole.split_at(whole.len() - 5);
    let mut begun = connect(it.address);
    begun.write_all(head).unwrap();
    // The 100 Continue shows that the request is in flight.
    assert_eq!(read_response(&mut begun).unwrap().status, 100);
    let mut idle = connect(it.address);
    let server = it.server.take().unwrap();
    let stopping = it.runtime.spawn(server.stop(crate::client::TIMEOUT));
    assert_eq!(read_response(&mut idle), None, "an idle connection ends at once");
    begun.write_all(body).unwrap();
    read_response(&mut begun).unwrap().check(200, "\"values\":1");
    assert_eq!(read_response(&mut begun), None);
    assert!(it.runtime.block_on(stopping).unwrap(), "all was answered");
    assert_eq!(it.count("a"), 1);
    assert!(std::net::TcpStream::connect(it.address).is_err());
}

#[test]
fn stopping_under_load_loses_nothing() {
    let mut it = ServerFixture::new();
    let (acknowledged, sent) = (AtomicU64::new(0), AtomicU64::new(0));
    let address = it.address;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let body = request("POST", "/v1/record?metric=a", "", b"1\n2\n3");
                let mut stream = connect(address);
                while stream.write_all(&body).is_ok() {
                    sent.fetch_add(3, Ordering::Relaxed);
                    match read_response(&mut stream) {
                        Some(answer) => {
                            answer.check(200, "\"values\":3");
                            acknowledged.fetch_add(3, Ordering::Relaxed);
                        }
                        None => break,
                    }
                }
            });
        }
        while acknowledged.load(Ordering::Relaxed) < 300 {
            std::thread::yield_now();
        }
        assert!(it.stop());
    });
    let (acknowledged, sent) = (acknowledged.into_inner(), sent.into_inner());
    let stored = it.count("a");
    assert!((acknowledged..=sent).contains(&stored), "{acknowledged} <= {stored} <= {sent}");
}

#[test]
fn deferred_senders_lose_nothing() {
    let intake_settings =
        intake::Settings { in_flight_bytes_max: 3000, ..intake::Settings::default() };
    let it = ServerFixture::with_intake(local_settings(None), intake_settings).unwrap();
    let body: String = (1..300).map(|at| format!("{}\n", at * at)).collect();
    let asked = request("POST", "/v1/record?metric=a", "", body.as_bytes());
    let waited = AtomicU64::new(0);
    let send = || {
        let mut stream = connect(it.address);
        let mut acknowledged = 0;
        // Each continues until all batches are accepted, and until one sender had to wait.
        while acknowledged < 10 || waited.load(Ordering::Relaxed) == 0 {
            let answer = exchange(&mut stream, &asked);
            if answer.status == 200 {
                acknowledged += 1;
                continue;
            }
            answer.check(429, "try again in");
            assert!(answer.header("retry-after").is_some());
            waited.fetch_add(1, Ordering::Relaxed);
        }
        acknowledged
    };
    let acknowledged: u64 = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send)).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).sum()
    });
    assert_eq!(it.count("a"), 299 * acknowledged);
}
