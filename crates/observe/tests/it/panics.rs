//! After a panic in one of the threads, it runs again; nothing counts twice or is lost silently.

use std::time::Duration;

use intake::Supervisor;

use crate::conversation::{HttpConnection, by_time};
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

#[test]
fn requests_in_flight_at_a_panic_are_not_measured() {
    const WAITING: u64 = 10;
    let fixture = fixture(&Supervisor::default());
    let mut quick = HttpConnection::new(40_000, START);
    for second in [1, 2, 11, 14, 15, 21, 24] {
        quick.request(START + second * SECOND, "/a");
        quick.response(START + second * SECOND + 1_000, "200 OK");
    }
    let waiting = (1..=WAITING).map(|number| {
        let mut connection = HttpConnection::new(40_000 + number as u16, START + number);
        connection.request(START + 3 * SECOND + number, "/report");
        connection
    });
    let packets = by_time(waiting.chain([quick]));
    let panics_before = packets.iter().position(|packet| packet.time > START + 13 * SECOND);
    let capture = fixture.capture_with_panic(WEB, packets, panics_before.unwrap());
    capture.stop().unwrap();
    let rows = fixture.contents();
    assert_eq!(rows.gaps.len(), 1, "{:?}", rows.gaps);
    let seconds = |end: &i64| (end - START as i64) as u64 / SECOND;
    assert_eq!(rows.ends().iter().map(seconds).collect::<Vec<_>>(), [10, 20, 24]);
    let mut last_requests = 0.0;
    for end in rows.ends() {
        let [requests, measured, not_measured, in_flight] = [
            "wire_requests_total",
            "wire_measured_requests_total",
            "wire_not_measured_requests_total",
            "wire_in_flight",
        ]
        .map(|name| rows.number_at(end, name, &[]));
        assert_eq!(requests, measured + not_measured + in_flight, "at {end}");
        assert!(requests >= last_requests, "at {end}: {requests} after {last_requests}");
        match last_requests == 0.0 {
            true => assert_eq!((measured, in_flight), (2.0, WAITING as f64)),
            false => assert!(not_measured >= WAITING as f64 && in_flight == 0.0, "at {end}"),
        }
        last_requests = requests;
    }
    let mut starts: Vec<i64> =
        rows.samples("wire_requests_total", &[]).map(|sample| sample.start).collect();
    starts.dedup();
    assert_eq!(starts.len(), 1);
}
