//! What was acknowledged is there: while the server stops, and when there is no room.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::client::{answer, ask, connect, request};
use crate::fixture::{Fixture, local};

/// More batches than the buffer has room for are sent at a time.
const SENDERS: usize = 64;

#[test]
fn a_request_that_has_begun_is_answered_before_the_end() {
    let mut it = Fixture::new();
    let whole = request("POST", "/v1/record?metric=a", "Expect: 100-continue\r\n", b"12345");
    let (head, body) = whole.split_at(whole.len() - 5);
    let mut begun = connect(it.address);
    begun.write_all(head).unwrap();
    // When the server asks for the body, the request is being answered.
    assert_eq!(answer(&mut begun).unwrap().status, 100);
    let mut idle = connect(it.address);
    let server = it.server.take().unwrap();
    let stopping = it.runtime.spawn(server.stop(crate::client::PATIENCE));
    assert_eq!(answer(&mut idle), None, "an idle connection ends at once");
    begun.write_all(body).unwrap();
    answer(&mut begun).unwrap().is(200, "\"values\":1");
    assert_eq!(answer(&mut begun), None);
    assert!(it.runtime.block_on(stopping).unwrap(), "all was answered");
    assert_eq!(it.count("a"), 1);
    assert!(std::net::TcpStream::connect(it.address).is_err());
}

#[test]
fn stopping_under_load_loses_nothing() {
    let mut it = Fixture::new();
    let (acknowledged, sent) = (AtomicU64::new(0), AtomicU64::new(0));
    let address = it.address;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let body = request("POST", "/v1/record?metric=a", "", b"1\n2\n3");
                let mut stream = connect(address);
                while stream.write_all(&body).is_ok() {
                    sent.fetch_add(3, Ordering::Relaxed);
                    match answer(&mut stream) {
                        Some(answer) => {
                            answer.is(200, "\"values\":3");
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
fn a_full_journal_asks_to_wait_and_loses_nothing() {
    let limits =
        journal::Limits { bytes_max: Some(128 << 10), ..journal::Settings::default().limits };
    let journal = journal::Settings {
        buffer_bytes: 16 << 10,
        segment_bytes: 32 << 10,
        codec: journal::Codec::None,
        limits,
        ..journal::Settings::default()
    };
    let it = Fixture::on(local(None), journal, Duration::from_millis(100)).unwrap();
    let body: String = (1..300).map(|at| format!("{}\n", at * at)).collect();
    let asked = request("POST", "/v1/record?metric=a", "", body.as_bytes());
    let (is_full, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let send = || {
        let mut stream = connect(it.address);
        while !is_full.load(Ordering::Relaxed) {
            let answer = ask(&mut stream, &asked);
            if answer.status == 200 {
                acknowledged.fetch_add(299, Ordering::Relaxed);
                continue;
            }
            is_full.store(true, Ordering::Relaxed);
            answer.is(429, "try again in");
            assert!(answer.header("retry-after").is_some());
        }
    };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS).map(|_| scope.spawn(send)).collect();
        while !is_full.load(Ordering::Relaxed) && !senders.iter().all(|sender| sender.is_finished())
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The store reads the journal when it is asked to: until then nothing is freed. What waits in the buffer is
        // answered when there is room again.
        it.store.seal().unwrap();
    });
    let acknowledged = acknowledged.into_inner();
    assert!(is_full.into_inner() && acknowledged > 0);
    assert_eq!(it.count("a"), acknowledged);
}
