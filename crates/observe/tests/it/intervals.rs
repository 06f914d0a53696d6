//! Rows of intervals: the same operations as in the capture, and counts that add up.

use std::time::Duration;

use hist::Histogram;
use model::{SampleValue, SeriesKind};
use protocol::fingerprint::RouteTemplates;
use wire::{ConnectionTracker, OperationHistograms, ServiceRule, TrackerSettings, WaitRules};

use crate::conversation::{HttpConnection, by_time};
use crate::fixture::{JournalRows, WireFixture, postgres_packets};

const SECOND: u64 = 1_000_000_000;
/// A multiple of ten seconds.
const START: u64 = 1_700_000_000 * SECOND;
const SHOP: &str = "protocols = []\nservices = ['shop=6543/postgres']";
const WEB: &str = "protocols = []\nservices = ['web=8080/http']";
const REASONS: [&str; 6] =
    ["gap", "connection_end", "no_response", "limit", "cancelled", "time_reversed"];

/// What `topdeck wire --read` measures of the same packets.
fn reference() -> ConnectionTracker {
    let mut tracker = ConnectionTracker::new(TrackerSettings {
        rules: vec![ServiceRule::parse("shop=6543/postgres").unwrap()],
        connections_max: 100,
        idle_timeout_ns: 3_600 * SECOND,
        reorder_bytes_max: 1 << 20,
        observer_bytes_max: 1 << 20,
        servers_max: 10,
        statements_max: 100,
        statement_bytes_max: 1 << 20,
        cache_bytes_max: 1 << 20,
        in_flight_bytes_max: 1 << 20,
        peers: None,
        routes: RouteTemplates::default(),
        waits: WaitRules::default(),
    });
    postgres_packets().iter().for_each(|packet| tracker.read(&packet.captured()));
    tracker
}

#[track_caller]
fn check_equal(found: &Histogram, expected: &Histogram, what: &str) {
    let cells = |of: &Histogram| of.cells().collect::<Vec<_>>();
    assert_eq!(found.count(), expected.count(), "{what}");
    assert_eq!(cells(found), cells(expected), "{what}");
    if !expected.is_empty() {
        assert_eq!(found.sum(), expected.sum(), "{what}");
        assert_eq!(found.max(), expected.max(), "{what}");
    }
}

#[track_caller]
fn check_operations(
    rows: &JournalRows,
    labels: &[(&str, &str)],
    expected: &OperationHistograms,
) -> u64 {
    let what = format!("{labels:?}");
    check_equal(&rows.distribution("wire_latency", labels), &expected.last_byte, &what);
    check_equal(&rows.distribution("wire_first_byte_latency", labels), &expected.first_byte, &what);
    expected.last_byte.count()
}

/// The rows of a capture are those of the file, however it is divided into intervals.
#[track_caller]
fn check_rows(interval: Duration, intervals_min: usize) {
    let fixture = WireFixture::new(interval);
    fixture.capture(SHOP, postgres_packets()).stop().unwrap();
    let (rows, tracker) = (fixture.contents(), reference());
    let service = &tracker.services()[0];
    let mut measured = 0;
    for statement in service.statements.statements() {
        let own = [("verb", &*statement.verb), ("statement", &*statement.statement)];
        let of = |outcome: &[(&'static str, &'static str)]| {
            let named = own.iter().copied().filter(|(_, value)| !value.is_empty());
            named.chain(outcome.iter().copied()).collect::<Vec<_>>()
        };
        let is_named = !statement.statement.is_empty();
        assert!(is_named || &*statement.verb == "Startup", "{}", statement.verb);
        measured += check_operations(&rows, &of(&[("outcome", "ok")]), &statement.succeeded);
        for (class, failed) in &statement.failed {
            assert_eq!(&**class, "22");
            let labels = of(&[("outcome", "error"), ("error", "22")]);
            measured += check_operations(&rows, &labels, failed);
        }
    }
    assert_eq!(measured, 9);
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 9);
    let total = service.statements.total().work();
    for (name, expected) in [
        ("wire_server_latency", &total.server),
        ("wire_request_size", &total.request_bytes),
        ("wire_response_size", &total.response_bytes),
        ("wire_response_rows", &total.rows),
        ("wire_connect_latency", &service.connect),
        ("wire_round_trip_time", &service.round_trip),
        ("wire_acknowledgement_latency", &service.acknowledgement),
        ("wire_client_think_time", &service.client_think),
    ] {
        check_equal(&rows.distribution(name, &[("service", "shop")]), expected, name);
    }
    let ends = rows.ends();
    let last = *ends.last().unwrap();
    let number = |name, labels: &[(&str, &str)]| rows.number_at(last, name, labels);
    assert_eq!(number("wire_errors_total", &[("error", "22")]), 1.0);
    assert_eq!(number("wire_rows_total", &[]), service.totals.rows as f64);
    assert_eq!(number("wire_request_bytes_total", &[]), service.totals.request_bytes as f64);
    assert_eq!(number("wire_captured_packets_total", &[]), 27.0);
    assert_eq!(number("wire_statements", &[]), 7.0);
    assert!(ends.len() >= intervals_min, "{ends:?}");
    check_counts(&rows);
}

/// Measured, not measured and in flight are all requests, in each interval.
#[track_caller]
fn check_counts(rows: &JournalRows) {
    for end in rows.ends() {
        let number = |name, labels: &[(&str, &str)]| rows.number_at(end, name, labels);
        let not_measured = REASONS
            .map(|reason| number("wire_not_measured_requests_total", &[("reason", reason)]))
            .iter()
            .sum::<f64>();
        let measured = number("wire_measured_requests_total", &[]);
        let in_flight = number("wire_in_flight", &[]);
        let requests = number("wire_requests_total", &[]);
        assert_eq!(measured + not_measured + in_flight, requests, "at {end}");
    }
}

#[test]
fn the_rows_of_one_interval_are_those_of_the_file() {
    check_rows(Duration::from_secs(10), 1);
}

#[test]
fn the_rows_of_many_intervals_are_those_of_the_file() {
    check_rows(Duration::from_millis(1), 9);
}

#[test]
fn rows_have_the_kind_labels_and_times_of_their_interval() {
    let fixture = WireFixture::new(Duration::from_millis(10));
    fixture.capture(SHOP, postgres_packets()).stop().unwrap();
    let rows = fixture.contents();
    assert!(rows.rows.iter().all(|(series, _)| series.label("host") == Some("box")));
    let latencies = rows.rows.iter().filter(|(series, _)| series.name() == "wire_latency");
    for (series, sample) in latencies {
        assert_eq!((series.label("service"), series.unit()), (Some("shop"), "ns"));
        assert_eq!(series.label("protocol"), Some("postgres"));
        assert!(matches!(series.kind(), SeriesKind::Histogram(_)), "{series}");
        assert!(sample.start < sample.end && rows.ends().contains(&sample.end), "{sample:?}");
    }
    // All intervals but the last one end at a boundary, and each starts where the last one ended.
    let (last, others) = rows.ends().split_last().map(|(a, b)| (*a, b.to_vec())).unwrap();
    assert!(others.iter().all(|end| end % 10_000_000 == 0) && others.len() >= 3, "{others:?}");
    assert!(others.is_sorted() && others.last() < Some(&last));
}

#[test]
fn requests_in_flight_have_an_age_and_all_requests_are_counted_in_each_interval() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut quick = HttpConnection::new(40_000, START);
    let mut slow = HttpConnection::new(40_001, START + 1_000);
    // Requests 1, 3, 5 … seconds after the start; their responses 1 ms later.
    for request in 0..20 {
        let time = START + (2 * request + 1) * SECOND;
        quick.request(time, &format!("/items/{request}"));
        quick.response(time + SECOND / 1_000, "200 OK");
    }
    // One that takes 25 s, of two intervals.
    slow.request(START + 8 * SECOND, "/report");
    slow.response(START + 33 * SECOND, "503 Service Unavailable");
    fixture.capture(WEB, by_time([quick, slow])).stop().unwrap();
    let rows = fixture.contents();
    check_counts(&rows);
    let number = |second: u64, name: &str, labels: &[(&str, &str)]| {
        rows.number_at((START + second * SECOND) as i64, name, labels)
    };
    for (second, requests, measured, age) in
        [(10, 6.0, 5.0, 2.0), (20, 11.0, 10.0, 12.0), (30, 16.0, 15.0, 22.0)]
    {
        assert_eq!(number(second, "wire_requests_total", &[]), requests);
        assert_eq!(number(second, "wire_measured_requests_total", &[]), measured);
        assert_eq!(number(second, "wire_in_flight", &[("wait", "false")]), 1.0);
        assert_eq!(number(second, "wire_in_flight", &[("wait", "true")]), 0.0);
        let oldest = |wait| number(second, "wire_in_flight_oldest_seconds", &[("wait", wait)]);
        assert_eq!((oldest("false"), oldest("true")), (age, 0.0));
    }
    let last = (rows.ends().last().unwrap() - START as i64) as u64 / SECOND;
    assert_eq!(last, 39, "the last interval was written, although it is shorter");
    let all = rows.distribution("wire_latency", &[("statement", "/items/{n}")]);
    assert_eq!((all.count(), all.max().unwrap().estimate), (20, 1e6));
    let failed = rows.distribution("wire_latency", &[("error", "5xx")]);
    assert_eq!((failed.count(), failed.max().unwrap().estimate), (1, 25e9));
    let failed: Vec<_> = rows.samples("wire_latency", &[("error", "5xx")]).collect();
    assert_eq!(failed[0].start, (START + 30 * SECOND) as i64, "by the end of the response");
}

#[test]
fn a_lost_response_is_counted_and_has_no_latency() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    for request in 0..30 {
        let time = START + (request + 1) * SECOND;
        connection.request(time, "/a");
        match request {
            4 | 17 => connection.lost_response(),
            _ => connection.response(time + 1_000, "200 OK"),
        }
    }
    fixture.capture(WEB, connection.into_packets()).stop().unwrap();
    let rows = fixture.contents();
    check_counts(&rows);
    let last = *rows.ends().last().unwrap();
    let number = |name, labels: &[(&str, &str)]| rows.number_at(last, name, labels);
    assert_eq!(number("wire_requests_total", &[]), 30.0);
    assert!(number("wire_not_measured_requests_total", &[("reason", "gap")]) >= 2.0);
    assert_eq!(number("wire_gaps_total", &[]), 2.0);
    let latencies = rows.distribution("wire_latency", &[]);
    assert_eq!(latencies.count() as f64, number("wire_measured_requests_total", &[]));
    assert_eq!(latencies.max().unwrap().estimate, 1_000.0, "no latency is wrong");
}

#[test]
fn statements_beyond_the_limit_are_one_series() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    for request in 0..50 {
        let time = START + (request + 1) * SECOND;
        let path = char::from(b'a' + (request % 25) as u8);
        connection.request(time, &format!("/{path}"));
        connection.response(time + 1_000 * (request + 1), "200 OK");
    }
    let keys = format!("{WEB}\nmax_statements = 4");
    fixture.capture(&keys, connection.into_packets()).stop().unwrap();
    let rows = fixture.contents();
    check_counts(&rows);
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 50);
    let other = rows.distribution("wire_latency", &[("overflow", "true")]);
    let last = *rows.ends().last().unwrap();
    let overflow = rows.number_at(last, "wire_overflow_operations_total", &[]);
    assert_eq!(overflow, other.count() as f64);
    assert!(overflow >= 20.0, "{overflow}");
    for end in rows.ends() {
        assert!(rows.number_at(end, "wire_statements", &[]) <= 4.0);
        assert_eq!(rows.number_at(end, "wire_statements_limit", &[]), 4.0);
    }
    let names: std::collections::BTreeSet<&str> = rows
        .rows
        .iter()
        .filter(|(series, _)| series.name() == "wire_latency")
        .filter_map(|(series, _)| series.label("statement"))
        .collect();
    assert!(names.contains("other") && names.len() <= 1 + 4 + rows.ends().len(), "{names:?}");
}

#[test]
fn gauges_are_of_the_end_of_their_interval() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    connection.request(START + SECOND, "/a");
    fixture.capture(WEB, connection.into_packets()).stop().unwrap();
    let rows = fixture.contents();
    let oldest: Vec<_> =
        rows.samples("wire_in_flight_oldest_seconds", &[("wait", "false")]).collect();
    assert_eq!(oldest.len(), 1);
    assert_eq!(oldest[0].start, oldest[0].end);
    assert_eq!(oldest[0].value, SampleValue::Number(0.0), "it is sent at the end");
}

/// The trace of a request is an exemplar of the latency of its statement.
#[test]
fn requests_with_a_trace_are_exemplars() {
    let fixture = WireFixture::new(Duration::from_secs(10));
    let mut connection = HttpConnection::new(40_000, START);
    for (number, latency) in [(1, 3_000), (2, 900_000), (3, 3_100), (4, 5_000)] {
        let time = START + number * SECOND;
        let parent = format!("00-{number:032x}-{:016x}-01", number + 16);
        let header = if number == 4 { String::new() } else { format!("traceparent: {parent}\r\n") };
        let request = format!("GET /items HTTP/1.1\r\nHost: shop\r\n{header}\r\n");
        connection.message(time, true, request.as_bytes());
        connection.response(time + latency, if number == 2 { "500 Error" } else { "200 OK" });
    }
    fixture.capture(WEB, connection.into_packets()).stop().unwrap();
    let rows = fixture.contents();
    assert_eq!(rows.distribution("wire_latency", &[]).count(), 4);
    let mut found: Vec<(u128, u64, f64, u64)> = rows
        .exemplars
        .iter()
        .map(|of| {
            let (trace, span) = (u128::from_be_bytes(of.trace_id), u64::from_be_bytes(of.span_id));
            (trace, span, of.value, of.time as u64)
        })
        .collect();
    found.sort_by_key(|of| of.0);
    // The first and the third have the same magnitude, of which the last one is kept.
    let time = |number: u64, latency: u64| START + number * SECOND + latency;
    let expected = [(2, 18, 900_000.0, time(2, 900_000)), (3, 19, 3_100.0, time(3, 3_100))];
    assert_eq!(found, expected);
    assert!(rows.exemplars.iter().all(|of| of.source.name() == "wire"));
}
