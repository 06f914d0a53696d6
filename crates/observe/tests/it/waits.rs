//! Waits that are found by a spike at the time-out: proposed, and accepted by the settings.

use std::time::Duration;

use crate::conversation::HttpConnection;
use crate::fixture::{JournalRows, WireFixture};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// Six long polls that end at 5 s, in intervals of 10 s, and six slow requests.
fn capture(keys: &str) -> JournalRows {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    for number in 0..6_u64 {
        let start = START + SECOND + number * 10 * SECOND;
        connection.request(start, &format!("/poll/{number}"));
        connection.response(start + 5 * SECOND + number * 1_000_000, "200 OK");
        connection.request(start + 6 * SECOND, "/slow");
        connection.response(start + 8 * SECOND + number * 77_000_000, "200 OK");
    }
    let keys = format!("protocols = []\nservices = ['web=8080/http']\n{keys}");
    fixture.capture(&keys, connection.into_packets()).stop().unwrap();
    fixture.contents()
}

const POLL: (&str, &str) = ("statement", "/poll/{n}");

#[test]
fn a_statement_that_ends_at_a_timeout_is_proposed_and_stays_work() {
    let rows = capture("");
    let last = *rows.ends().last().unwrap();
    assert_eq!(rows.number_at(last, "wire_proposed_wait_seconds", &[POLL, ("verb", "GET")]), 5.0);
    let named = rows.rows.iter().filter(|(series, _)| {
        series.name() == "wire_proposed_wait_seconds" && series.label("statement") != Some(POLL.1)
    });
    assert_eq!(named.count(), 0, "slow requests are not proposed");
    assert_eq!(rows.distribution("wire_latency", &[POLL]).count(), 6);
    assert_eq!(rows.number_at(last, "wire_waits_total", &[]), 0.0);
}

#[test]
fn an_accepted_proposal_is_a_wait_in_all_counts() {
    let rows = capture("waits = ['GET /poll/{n}']");
    let last = *rows.ends().last().unwrap();
    assert_eq!(rows.distribution("wire_wait_latency", &[POLL]).count(), 6);
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 6, "the slow ones");
    assert_eq!(rows.number_at(last, "wire_waits_total", &[]), 6.0);
    assert!(rows.rows.iter().all(|(series, _)| series.name() != "wire_proposed_wait_seconds"));
}
