//! Limits of the matcher: of what waits, of senders, names and clocks.

use super::*;
use crate::end_clocks::PAIRS_MAX;
use crate::end_names::NAMES_MAX;
use crate::service_rule::find_protocol;

/// A report of `count` requests, the first of which has this sequence number.
fn report(sequence: u64, first: u32, count: u32) -> EndReport {
    let mut report = EndReport::new("web", 1, sequence);
    report.services.push(("shop".to_owned(), find_protocol("http").unwrap()));
    report.connections.push(ReportedConnection {
        client: "10.0.0.1:40000".parse().unwrap(),
        server: "10.0.0.2:80".parse().unwrap(),
        end: ConnectionEnd::Client,
        service: 0,
    });
    let request = |number| ReportedRequest {
        record: RequestRecord {
            connection: 0,
            service: 0,
            numbers: [number; 4],
            boundary_hash: 0,
            times: [1; 4],
            is_wait: false,
            begins_at_server: false,
            is_in_order: true,
            is_first: false,
        },
        requests: 1,
    };
    report.requests.extend((first..first + count).map(request));
    report
}

#[test]
fn requests_that_wait_are_bounded_and_counted() {
    let mut matcher = EndMatcher::new();
    for turn in 0..5 {
        let report = report(u64::from(turn) + 1, turn * 50_000, 50_000);
        assert_eq!(matcher.add(&report, 1), ReportOutcome::Accepted);
    }
    let interval = matcher.take_interval(1);
    assert!(interval.waiting <= 2 * GENERATION_MAX as u64, "{}", interval.waiting);
    let service = &interval.reported[0];
    assert_eq!((service.reported, service.limit + interval.waiting), (250_000, 250_000));
    assert_eq!(matcher.take_interval(40_000_000_000).waiting, 0);
}

#[test]
fn senders_are_bounded() {
    let mut matcher = EndMatcher::new();
    for sender in 0..=SENDERS_MAX as u64 {
        let expected = match sender < SENDERS_MAX as u64 {
            true => ReportOutcome::Accepted,
            false => ReportOutcome::TooManySenders,
        };
        assert_eq!(matcher.add(&EndReport::new("web", sender, 1), 1), expected);
    }
    // Nodes that have started again do not wait for an hour.
    let report = EndReport::new("web", u64::MAX, 1);
    assert_eq!(matcher.add(&report, RETRY_NS + 2), ReportOutcome::Accepted);
}

/// Reports of both ends of a request between two hosts.
fn add_both(matcher: &mut EndMatcher, number: u32, hosts: [&str; 2], now: u64) {
    for (end, host) in [ConnectionEnd::Client, ConnectionEnd::Server].into_iter().zip(hosts) {
        let mut report = report(u64::from(number) * 2 + end_bit(end) as u64, number, 1);
        report.host = host.to_owned();
        report.connections[0].end = end;
        assert_eq!(matcher.add(&report, now), ReportOutcome::Accepted);
    }
}

fn without_one_way(interval: &EndInterval) -> u64 {
    interval.services.iter().map(|service| service.totals.without_one_way).sum()
}

#[test]
fn pairs_of_hosts_beyond_the_limit_are_counted_and_not_timed() {
    let mut matcher = EndMatcher::new();
    let pairs = PAIRS_MAX as u32 + 100;
    for pair in 0..pairs {
        let hosts = [format!("c{}", pair / 40), format!("s{}", pair % 40)];
        add_both(&mut matcher, pair, [&hosts[0], &hosts[1]], 1);
    }
    let interval = matcher.take_interval(1);
    assert_eq!(interval.clocks.len(), PAIRS_MAX);
    assert_eq!(without_one_way(&interval), 100);
}

/// The clocks of hosts without a name of their own were compared as those of one host.
#[test]
fn hosts_without_a_name_are_not_timed_and_get_one_when_others_are_gone() {
    let mut matcher = EndMatcher::new();
    for host in 0..NAMES_MAX as u64 {
        let mut report = report(host + 1, 1_000_000 + host as u32, 1);
        (report.sender, report.host) = (2, host.to_string());
        assert_eq!(matcher.add(&report, 1), ReportOutcome::Accepted);
    }
    add_both(&mut matcher, 1, ["late-a", "late-b"], 1);
    let interval = matcher.take_interval(1);
    let service = &interval.services[0];
    assert_eq!((&*service.client_host, &*service.server_host), (OTHER, OTHER));
    assert_eq!((without_one_way(&interval), interval.clocks.len()), (1, 0));
    let waited = 40_000_000_000;
    matcher.take_interval(waited);
    let later = waited + IDLE_NS + 1;
    matcher.take_interval(later);
    matcher.begin_interval(7);
    add_both(&mut matcher, 2, ["late-a", "late-b"], later);
    let interval = matcher.take_interval(later);
    let service = &interval.services[0];
    assert_eq!((&*service.client_host, &*service.server_host), ("late-a", "late-b"));
    assert_eq!((without_one_way(&interval), interval.clocks.len()), (0, 1));
    // Totals begin again, and so does their start.
    assert_eq!((service.totals.matched, service.start), (1, 7));
    assert!(interval.reported.iter().all(|reported| reported.start == 7));
}
