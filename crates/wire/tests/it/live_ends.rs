//! Requests of both ends, matched while they are reported: as in `both_ends`, without knowing the
//! segments of the other end.

use std::net::SocketAddr;

use proptest::prelude::*;
use wire::{
    ConnectionEnd, ConnectionTracker, EndInterval, EndMatcher, EndReport, EndReportCounts,
    MatchedService, ReportOutcome, ReportedService,
};

use crate::both_ends::{DELAYS, OFFSET, at_server, damage, damaged, joined, network, reordered};
use crate::checks::message_protocol;
use crate::conversation::{
    Conversation, ConversationShape, START, TestPacket, measured_latencies, settings,
};

const SECOND: u64 = 1_000_000_000;

/// A capture that reports, at one end.
struct Reporter {
    tracker: ConnectionTracker,
    end: ConnectionEnd,
    sequence: u64,
    one_in: u32,
    counts: EndReportCounts,
}

impl Reporter {
    fn new(end: ConnectionEnd) -> Reporter {
        let mut tracker = ConnectionTracker::new(settings());
        tracker.record_live_requests();
        Reporter { tracker, end, sequence: 0, one_in: 1, counts: EndReportCounts::default() }
    }

    fn read(&mut self, packets: &[TestPacket]) {
        let mut packets: Vec<&TestPacket> = packets.iter().collect();
        packets.sort_by_key(|packet| packet.time);
        packets.iter().for_each(|packet| packet.read_by(&mut self.tracker));
        message_protocol::take_requests_seen();
    }

    /// What was measured since the last report.
    fn report(&mut self) -> EndReport {
        let (host, sender) = match self.end {
            ConnectionEnd::Client => ("web", 1),
            ConnectionEnd::Server => ("db", 2),
        };
        self.sequence += 1;
        let mut report = EndReport::new(host, sender, self.sequence);
        if let Some(records) = self.tracker.take_end_records() {
            let end = self.end;
            let mut end_of = |client: SocketAddr, _: SocketAddr| {
                assert_eq!(client.ip().to_string(), "10.0.0.1");
                Some(end)
            };
            let EndReportCounts { reported, outside_sample, .. } =
                report.add(records, self.one_in, &mut end_of);
            self.counts.reported += reported;
            self.counts.outside_sample += outside_sample;
        }
        report
    }
}

fn reporters() -> [Reporter; 2] {
    [ConnectionEnd::Client, ConnectionEnd::Server].map(Reporter::new)
}

/// Reports of both ends, each in one piece.
fn reports(ends: [&[TestPacket]; 2]) -> [EndReport; 2] {
    let mut reporters = reporters();
    let mut packets = ends.into_iter();
    reporters.each_mut().map(|reporter| {
        reporter.read(packets.next().unwrap());
        reporter.report()
    })
}

fn matched(reports: &[EndReport]) -> (EndMatcher, EndInterval) {
    let mut matcher = EndMatcher::new();
    for report in reports {
        assert_eq!(matcher.add(report, SECOND), ReportOutcome::Accepted);
    }
    let interval = matcher.take_interval(SECOND);
    (matcher, interval)
}

fn only(interval: &EndInterval) -> &MatchedService {
    let [service] = &interval.services[..] else { panic!("one service") };
    service
}

fn unmatched(service: &ReportedService) -> u64 {
    service.missing_connection + service.missing_request + service.limit + service.ambiguous
}

fn at_end(interval: &EndInterval, end: ConnectionEnd) -> &ReportedService {
    interval.reported.iter().find(|service| service.end == end).unwrap()
}

fn packets() -> Vec<TestPacket> {
    Conversation::new(&ConversationShape::default()).packets
}

#[test]
fn delays_and_clocks_are_found() {
    let packets = packets();
    let [client, server] = reports([&packets, &at_server(&packets)]);
    // Whichever arrives first.
    for reports in [[&client, &server], [&server, &client]] {
        let mut matcher = EndMatcher::new();
        for report in reports {
            matcher.add(report, SECOND);
        }
        let interval = matcher.take_interval(SECOND);
        let service = only(&interval);
        assert_eq!((&*service.client_host, &*service.server_host), ("web", "db"));
        let totals = service.totals;
        assert_eq!((totals.matched, totals.waits, totals.without_one_way), (10, 1, 0));
        let found = &service.comparison;
        let round_trip = (DELAYS[0] + DELAYS[1]) as f64;
        let bounds = [found.network.min(), found.network.max()].map(|of| of.unwrap().estimate);
        assert_eq!(bounds, [round_trip; 2]);
        let true_times = DELAYS.map(|delay| delay as f64);
        for (times, delay) in [&found.to_server, &found.to_client].into_iter().zip(true_times) {
            assert!(times.least.max().unwrap().estimate <= delay);
            assert!(times.most.min().unwrap().estimate >= delay);
        }
        let [clock] = &interval.clocks[..] else { panic!("one pair of hosts") };
        assert!(clock.offset.lower <= OFFSET as i64 && OFFSET as i64 <= clock.offset.upper);
        assert_eq!((found.first_server_time.count(), found.server_time.count()), (1, 8));
        assert_eq!(found.connect.network.max().unwrap().estimate, round_trip);
        assert_eq!(interval.waiting, 0);
        let again = matcher.take_interval(2 * SECOND);
        assert_eq!(only(&again).comparison.network.count(), 0, "of this interval only");
        assert_eq!((only(&again).totals, again.clocks.len()), (totals, 0));
    }
}

#[test]
fn reports_of_each_packet_match_as_one_report_does() {
    let packets = packets();
    let [mut client, mut server] = reporters();
    let mut matcher = EndMatcher::new();
    for (at_client, at_server) in packets.iter().zip(&at_server(&packets)) {
        client.read(std::slice::from_ref(at_client));
        matcher.add(&client.report(), SECOND);
        server.read(std::slice::from_ref(at_server));
        matcher.add(&server.report(), SECOND);
    }
    assert_eq!(only(&matcher.take_interval(SECOND)).totals.matched, 10);
}

#[test]
fn requests_are_the_same_in_other_segments() {
    let sizes = vec![(3_000, 9_000); 10];
    let shape = ConversationShape { sizes, segment: 700, ..ConversationShape::default() };
    let packets = Conversation::new(&shape).packets;
    let server = joined(&at_server(&packets), 2_900);
    assert!(server.len() < packets.len() / 2, "segments are joined");
    let (_, interval) = matched(&reports([&packets, &server]));
    assert_eq!(only(&interval).totals.matched, 10);
}

#[test]
fn requests_without_the_other_end_are_counted_with_the_reason() {
    let first = packets();
    let shape = ConversationShape { client_port: 61_000, first_id: 100, ..Default::default() };
    let translated = Conversation::new(&shape).packets;
    let mut server = at_server(&first);
    server.remove(Conversation { packets: first.clone(), requests: Vec::new() }.data_packets()[4]);
    let client = [first, translated].concat();
    let (mut matcher, interval) = matched(&reports([&client, &server]));
    assert_eq!((only(&interval).totals.matched, interval.waiting), (9, 11));
    let interval = matcher.take_interval(31 * SECOND);
    assert_eq!(interval.waiting, 0);
    let at_client = at_end(&interval, ConnectionEnd::Client);
    assert_eq!(at_client.reported, 20);
    assert_eq!((at_client.missing_connection, at_client.missing_request), (10, 1));
    let at_server = at_end(&interval, ConnectionEnd::Server);
    assert_eq!((at_server.reported, unmatched(at_server)), (9, 0));
    assert_eq!((&*at_server.host, at_server.protocol), ("db", "message"));
}

#[test]
fn a_report_that_is_sent_again_counts_once() {
    let packets = packets();
    let [client, server] = reports([&packets, &at_server(&packets)]);
    let mut matcher = EndMatcher::new();
    assert_eq!(matcher.add(&client, SECOND), ReportOutcome::Accepted);
    assert_eq!(matcher.add(&client, SECOND), ReportOutcome::Repeated);
    matcher.add(&server, SECOND);
    let interval = matcher.take_interval(SECOND);
    assert_eq!(only(&interval).totals.matched, 10);
    assert_eq!(at_end(&interval, ConnectionEnd::Client).reported, 10);
}

#[test]
fn another_host_with_the_same_requests_is_ambiguous() {
    let packets = packets();
    let [mut one, mut other] =
        [Reporter::new(ConnectionEnd::Client), Reporter::new(ConnectionEnd::Client)];
    one.read(&packets);
    // The same requests at a mirror port, a moment later.
    let later = packets.iter().map(|of| TestPacket { time: of.time + 7, ..of.clone() });
    other.read(&later.collect::<Vec<_>>());
    let (first, mut second) = (one.report(), EndReport::new("mirror", 3, 1));
    let records = other.tracker.take_end_records().unwrap();
    second.add(records, 1, &mut |_, _| Some(ConnectionEnd::Client));
    let [_, server] = reports([&packets, &at_server(&packets)]);
    let (_, interval) = matched(&[first, second, server]);
    assert_eq!(only(&interval).totals.matched, 10);
    let mirror = interval.reported.iter().find(|of| &*of.host == "mirror").unwrap();
    assert_eq!((mirror.reported, mirror.ambiguous), (10, 10));
}

#[test]
fn both_ends_choose_the_same_sample() {
    let sizes = vec![(20, 50); 400];
    let packets = Conversation::new(&ConversationShape { sizes, ..Default::default() }).packets;
    let [mut client, mut server] = reporters();
    client.read(&packets);
    server.read(&joined(&at_server(&packets), 2_900));
    (client.one_in, server.one_in) = (4, 4);
    let (_, interval) = matched(&[client.report(), server.report()]);
    assert_eq!(client.counts, server.counts);
    let EndReportCounts { reported, outside_sample, .. } = client.counts;
    assert_eq!(reported + outside_sample, 400);
    assert!((40..200).contains(&reported), "{reported}");
    assert_eq!((only(&interval).totals.matched, interval.waiting), (reported, 0));
}

#[test]
fn a_connection_of_this_host_alone_is_not_reported() {
    let mut reporter = Reporter::new(ConnectionEnd::Client);
    reporter.read(&packets());
    let records = reporter.tracker.take_end_records().unwrap();
    let mut report = EndReport::new("web", 1, 1);
    let counts = report.add(records, 1, &mut |_, _| None);
    assert_eq!((counts.unknown_end, counts.reported), (10, 0));
    assert!(report.is_empty());
}

#[test]
fn a_clock_that_is_set_is_known_again_after_a_portion() {
    let (mut matcher, mut reporters) = (EndMatcher::new(), reporters());
    for (turn, step) in [0, 3 * SECOND, 3 * SECOND].into_iter().enumerate() {
        let shape = ConversationShape {
            start: START + turn as u64 * 10 * SECOND,
            client_port: 40_000 + turn as u16,
            first_id: 100 * turn as u32,
            ..Default::default()
        };
        let packets = Conversation::new(&shape).packets;
        let mut server = at_server(&packets);
        server.iter_mut().for_each(|packet| packet.time += step);
        for (reporter, packets) in reporters.iter_mut().zip([&packets, &server]) {
            reporter.read(packets);
            matcher.add(&reporter.report(), SECOND);
        }
        let interval = matcher.take_interval(SECOND);
        let [clock] = &interval.clocks[..] else { panic!("one pair of hosts") };
        let offset = (OFFSET + step) as i64;
        assert!(clock.offset.lower <= offset && offset <= clock.offset.upper);
        assert_eq!(only(&interval).comparison.without_one_way, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the captures lost, and however segments were joined and reordered: a request that
    /// is matched has the true difference of its latencies, and every one is counted.
    #[test]
    fn no_time_is_wrong_and_every_request_is_accounted_for(
        sizes in prop::collection::vec((0..200_usize, 0..600_usize), 1..40),
        is_uniform in any::<bool>(),
        depth in 1..9_usize,
        segment in 20..400_usize,
        initial in prop_oneof![Just(u32::MAX - 700), any::<u32>()],
        damages in [damage(), damage()],
        swaps in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let sizes = if is_uniform { vec![sizes[0]; sizes.len()] } else { sizes };
        let initial = [initial, !initial];
        let shape = ConversationShape { sizes, depth, segment, initial, ..Default::default() };
        let packets = Conversation::new(&shape).packets;
        let server = reordered(&at_server(&packets), &swaps);
        let ends = [damaged(&packets, &damages[0]), damaged(&server, &damages[1])];
        let (mut reporters, mut matcher) = (reporters(), EndMatcher::new());
        for (reporter, packets) in reporters.iter_mut().zip(&ends) {
            reporter.read(packets);
            matcher.add(&reporter.report(), SECOND);
        }
        let latencies = reporters.each_ref().map(|reporter| measured_latencies(&reporter.tracker));
        let interval = matcher.take_interval(SECOND);
        let found = interval.services.first();
        let matched = found.map_or(0, |service| service.totals.matched);
        let work = latencies[0].iter().filter(|(id, _)| *id % 10 != 9);
        let of_request = |(id, at_client): (&u32, &u64)| {
            network(*at_client, *latencies[1].get(id)?).map(|network| network as f64)
        };
        let truth: Vec<f64> = work.filter_map(of_request).collect();
        for cell in found.iter().flat_map(|of| of.comparison.network.cells()) {
            let bucket = cell.lower..=cell.upper;
            let most = truth.iter().filter(|network| bucket.contains(network)).count() as u64;
            prop_assert!(cell.count <= most, "{} of {} in {:?}", cell.count, most, bucket);
        }
        let interval = matcher.take_interval(40 * SECOND);
        prop_assert_eq!(interval.waiting, 0);
        for (reporter, latencies) in reporters.iter().zip(&latencies) {
            prop_assert_eq!(reporter.counts.reported, latencies.len() as u64);
            let service = interval.reported.iter().find(|of| of.end == reporter.end);
            let unmatched = service.map_or(0, unmatched);
            prop_assert_eq!(matched + unmatched, reporter.counts.reported);
        }
        // Without pipelines and loss, other segments hide nothing.
        let is_whole = latencies[0].len() == latencies[1].len() && depth == 1;
        if is_whole && latencies[0].keys().eq(latencies[1].keys()) && swaps.is_empty() {
            prop_assert_eq!(matched, latencies[0].len() as u64);
        }
    }
}
