//! Servers with series of their own, and the record of all others.

use std::time::Duration;

use crate::conversation::{HttpConnection, by_time};
use crate::fixture::WireFixture;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const START: u64 = 1_700_000_000 * SECOND;
const WEB: &str = "protocols = []\nservices = ['8080/http']";

/// A connection with a request at each of these times.
fn connection(server: u8, times: impl IntoIterator<Item = u64>) -> HttpConnection {
    let mut times = times.into_iter().peekable();
    let (client_port, first) = (40_000 + u16::from(server), *times.peek().unwrap());
    let mut connection = HttpConnection::to_server([10, 0, 0, server], client_port, first - SECOND);
    for time in times {
        connection.request(time, "/a");
        connection.response(time + 1_000, "200 OK");
    }
    connection
}

#[test]
fn a_server_has_the_place_of_a_forgotten_one_although_others_are_beyond_the_limit() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let of_hour = |first: u64| (0..8).map(move |n| START + first + n * 10 * MINUTE);
    let packets = by_time([
        connection(1, [START + 11 * SECOND]),
        connection(2, of_hour(12 * SECOND)),
        // Beyond the limit, and used all the time.
        connection(3, of_hour(13 * SECOND)),
        // In the interval after the one at whose end the first server was forgotten.
        connection(4, [START + 70 * MINUTE + 15 * SECOND, START + 71 * MINUTE]),
        connection(5, [START + 72 * MINUTE]),
    ]);
    let keys = format!("{WEB}\nmax_servers = 2");
    fixture.capture(&keys, packets).stop().unwrap();
    let rows = fixture.contents();
    let last = *rows.ends().last().unwrap();
    let measured = |service: &str| {
        rows.number_at(last, "wire_measured_requests_total", &[("service", service)])
    };
    let found = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.4:8080", "other http servers"];
    assert_eq!(found.map(measured), [0.0, 8.0, 2.0, 9.0]);
    assert_eq!(rows.number_at(last, "wire_forgotten_servers_total", &[]), 1.0);
}
