//! A clock that is set back while packets arrive does not stop the intervals.

use std::time::Duration;

use crate::conversation::HttpConnection;
use crate::fixture::{WireFixture, wait};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
/// An hour before, a multiple of ten seconds.
const BACK: u64 = START - 3_600 * SECOND;

#[test]
fn intervals_end_although_the_clock_was_set_back_under_steady_traffic() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let traffic = |client_port, start| {
        let mut connection = HttpConnection::new(client_port, start);
        for request in 0..38 {
            let time = start + (request + 1) * SECOND;
            connection.request(time, "/a");
            connection.response(time + 1_000, "200 OK");
        }
        connection.into_packets()
    };
    let mut packets = traffic(40_000, START);
    packets.extend(traffic(40_001, BACK));
    let count = packets.len();
    let keys = "protocols = []\nservices = ['web=8080/http']";
    let capture = fixture.capture_at_once(keys, packets);
    // There are packets in the whole time, so that it is not noticed by their absence.
    wait("an interval behind the step is written", || {
        fixture.contents().ends().iter().any(|end| *end < START as i64)
    });
    capture.stop().unwrap();
    let rows = fixture.contents();
    let ends: Vec<u64> = rows.ends().iter().map(|end| *end as u64).collect();
    let behind: Vec<u64> = ends.iter().copied().filter(|end| *end < START).collect();
    assert_eq!(*behind.last().unwrap(), BACK + 38 * SECOND + 1_000, "of the stop: {ends:?}");
    let (_, full) = behind.split_last().unwrap();
    assert!(!full.is_empty() && full.iter().all(|end| end % (10 * SECOND) == 0), "{ends:?}");
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 76);
    let last = *rows.ends().last().unwrap();
    assert_eq!(rows.number_at(last, "wire_requests_total", &[]), 76.0);
    assert_eq!(rows.number_at(last, "wire_captured_packets_total", &[]), count as f64);
    assert_eq!(rows.number_at(last, "wire_clock_steps_total", &[]), 1.0);
    for end in full {
        let mut samples = rows.samples("wire_requests_total", &[]);
        let sample = samples.find(|sample| sample.end == *end as i64).unwrap();
        assert!(sample.start >= (BACK - SECOND) as i64 && sample.start < sample.end, "{sample:?}");
    }
}

#[test]
fn no_time_is_written_twice_after_a_short_step_back() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let traffic = |client_port, start| {
        let mut connection = HttpConnection::new(client_port, start);
        for request in 0..38 {
            let time = start + (request + 1) * SECOND;
            connection.request(time, "/a");
            connection.response(time + 1_000, "200 OK");
        }
        connection.into_packets()
    };
    let mut packets = traffic(40_000, START);
    packets.extend(traffic(40_001, START + 20 * SECOND));
    fixture
        .capture_at_once("protocols = []\nservices = ['web=8080/http']", packets)
        .stop()
        .unwrap();
    let rows = fixture.contents();
    let ends = rows.ends();
    assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:?}");
    let mut last_end = 0;
    for sample in rows.samples("wire_latency", &[]) {
        assert!(sample.start >= last_end && sample.start < sample.end, "{sample:?}");
        last_end = sample.end;
    }
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 76);
    let last = *ends.last().unwrap();
    assert_eq!(rows.number_at(last, "wire_clock_steps_total", &[]), 0.0);
}
