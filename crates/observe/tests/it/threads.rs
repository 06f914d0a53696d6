//! A capture by several threads has the sums of a capture by one.

use std::time::Duration;

use crate::conversation::{HttpConnection, by_time};
use crate::fixture::{JournalRows, WireFixture};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const WEB: &str = "protocols = []\nservices = ['web=8080/http']\nmax_statements = 4";
const CONNECTIONS: u64 = 8;
const REQUESTS: u64 = 38;

/// A connection with requests of several routes and outcomes, one that is lost, and one in flight.
fn connection(number: u64) -> HttpConnection {
    let mut connection = HttpConnection::new(40_000 + number as u16, START + number * 1_000);
    for request in 0..REQUESTS {
        let time = START + (request + 1) * SECOND + number * 10_000;
        connection.request(time, &format!("/{}", ["a", "b", "c"][request as usize % 3]));
        match (request, number) {
            (20, 3) => connection.lost_response(),
            (_, 5) if request == REQUESTS - 1 => {}
            _ => {
                let status = ["200 OK", "404 Not Found"][usize::from(request % 5 == 0)];
                connection.response(time + 1_000 * (number + 1), status);
            }
        }
    }
    connection
}

fn capture(threads: u64) -> JournalRows {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let of_thread =
        |thread| by_time((thread..CONNECTIONS).step_by(threads as usize).map(connection));
    let lists = (0..threads).map(of_thread).collect();
    fixture.capture_by_threads(WEB, lists).stop().unwrap();
    fixture.contents()
}

/// Metrics and their sums at the end.
fn sums(rows: &JournalRows) -> Vec<(&'static str, f64)> {
    let last = *rows.ends().last().unwrap();
    let counters = [
        "wire_requests_total",
        "wire_measured_requests_total",
        "wire_not_measured_requests_total",
        "wire_errors_total",
        "wire_request_bytes_total",
        "wire_response_bytes_total",
        "wire_packets_total",
        "wire_payload_bytes_total",
        "wire_connections_total",
        "wire_gaps_total",
        "wire_in_flight",
        "wire_captured_packets_total",
        "wire_open_connections",
    ];
    let numbers = counters.map(|name| (name, rows.number_at(last, name, &[])));
    let counts = ["wire_latency", "wire_first_byte_latency", "wire_connect_latency"]
        .map(|name| (name, rows.distribution(name, &[]).count() as f64));
    [&numbers[..], &counts].concat()
}

#[test]
fn several_threads_have_the_sums_of_one() {
    let (one, several) = (capture(1), capture(3));
    assert_eq!(sums(&several), sums(&one));
    let requests = (CONNECTIONS * REQUESTS) as f64;
    assert_eq!(sums(&one)[0], ("wire_requests_total", requests));
    let labels = [("statement", "/a"), ("outcome", "error"), ("error", "4xx")];
    let cells =
        |rows: &JournalRows| rows.distribution("wire_latency", &labels).cells().collect::<Vec<_>>();
    assert!(!cells(&one).is_empty());
    assert_eq!(cells(&several), cells(&one));
}
