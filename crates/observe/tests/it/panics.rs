//! After a panic in one of the threads, it runs again; nothing counts twice or is lost silently.

use std::time::Duration;

use intake::Supervisor;

use crate::conversation::HttpConnection;
use crate::fixture::{ListedPacket, WireFixture, wait};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const WEB: &str = "protocols = []\nservices = ['web=8080/http']";

fn packets() -> Vec<ListedPacket> {
    let mut connection = HttpConnection::new(40_000, START);
    for request in 0..40 {
        let time = START + (request + 1) * SECOND;
        connection.request(time, "/a");
        connection.response(time + 1_000, "200 OK");
    }
    connection.into_packets()
}

fn fixture(supervisor: &Supervisor) -> WireFixture {
    let limits = journal::Settings::default().limits;
    WireFixture::with(Duration::from_secs(10), limits, supervisor.clone())
}

#[test]
fn a_writer_that_panics_writes_the_interval_later() {
    let supervisor = Supervisor::with_injected_panics(&[("wire batch", 2), ("wire writer", 1)]);
    let fixture = fixture(&supervisor);
    let capture = fixture.capture_at_once(WEB, packets());
    wait("panics of the writer", || supervisor.restarts("wire writer") == 3);
    capture.stop().unwrap();
    let rows = fixture.contents();
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 40);
    let last = *rows.ends().last().unwrap();
    assert_eq!(rows.number_at(last, "wire_requests_total", &[]), 40.0);
    assert_eq!(supervisor.failures(), Vec::<String>::new());
}

#[test]
fn a_writer_that_panics_at_the_stop_is_an_error() {
    let supervisor = Supervisor::with_injected_panics(&[("wire batch", 100)]);
    let fixture = fixture(&supervisor);
    let capture = fixture.capture_at_once(WEB, packets());
    let error = capture.stop().unwrap_err().to_string();
    assert!(error.starts_with("cannot store the last interval of [wire]: "), "{error}");
    assert_eq!(fixture.contents().ends(), Vec::<i64>::new());
}

#[test]
fn the_gap_of_a_panic_does_not_wait_for_the_end_of_an_interval() {
    let supervisor = Supervisor::with_injected_panics(&[("wire packets", 1)]);
    let fixture = fixture(&supervisor);
    let mut connection = HttpConnection::new(40_000, START);
    connection.request(START + SECOND, "/a");
    let capture = fixture.capture_at_once(WEB, connection.into_packets());
    wait("the gap is written", || !fixture.contents().gaps.is_empty());
    assert_eq!(fixture.contents().ends(), Vec::<i64>::new(), "no interval has ended");
    capture.stop().unwrap();
    assert_eq!(fixture.contents().ends().len(), 1);
}

#[test]
fn a_capture_that_panics_starts_anew_with_a_gap() {
    let supervisor = Supervisor::with_injected_panics(&[("wire packets", 1)]);
    let fixture = fixture(&supervisor);
    let capture = fixture.capture_at_once(WEB, packets());
    assert_eq!(supervisor.restarts("wire"), 1);
    capture.stop().unwrap();
    let rows = fixture.contents();
    let reason = "wire: the capture started anew after a panic; operations are missing";
    assert!(rows.gaps.iter().any(|gap| gap.reason == reason), "{:?}", rows.gaps);
    // No packet had been read before.
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 40);
}
