//! The same requests in captures at the client's host and at the server's host: time in the
//! network, at the server, and for opening connections.
//!
//! A request is the same at both ends if its connection has the same addresses and ports and its
//! bytes the same sequence numbers: those of the parts of both streams (see
//! [`segment_boundaries`](crate::segment_boundaries)) with the first and last byte of the request
//! and of its response. Requests that share all four parts share all times too, so it does not
//! matter which of them is paired with which.
//!
//! The time in the network is the latency at the client minus that at the server. No clock is
//! compared with another one for it: it is wrong only by the different rate of the clocks, at most
//! 0.01 % of the latency at the server, and by the delay of time stamps ([`STAMP_ERROR_NS`]). The
//! times of both directions need the difference of the clocks, which is known as an interval
//! ([`ClockOffset`]).
//!
//! A difference that is negative within this error is a time of 0: to leave it out would leave out
//! the fastest requests. One beyond the error contradicts the captures, and is no time.
//!
//! Sequence numbers come again after 4 GiB of a stream. Requests with the same numbers are paired
//! in the order of their times.

use hist::Histogram;
use protocol::observer::ObservedProtocol;

use crate::clock_offset::{ClockOffset, OffsetInterval, STAMP_ERROR_NS};
use crate::request_log::{HandshakeRecord, RequestLog, RequestRecord};
use crate::segment_boundaries::StreamCuts;
use crate::service::ServiceStatistics;
use crate::tracker::ConnectionTracker;

/// Maximum error of the difference of two latencies from the rates of the clocks: one nanosecond in
/// this many.
const LATENCY_RATE_ERROR: u64 = 10_000;

/// A record of the client's end and one of the server's.
pub(crate) type RecordPair<'a, T> = (&'a T, &'a T);

/// Requests of two captures. Pairs are of the client's and the server's end.
pub struct EndComparison {
    /// Services of both captures.
    pub services: Vec<ServiceComparison>,
    /// Connections with a recorded request or handshake at each end.
    pub connections: [u64; 2],
    /// Those of both ends.
    pub shared_connections: u64,
    /// Requests at each end that were not compared, because there were too many.
    pub dropped_requests: [u64; 2],
    /// Difference of the clocks; `None` if no matched request tells it.
    pub offset: Option<OffsetSummary>,
}

/// Requests of a service at both ends. Times are in nanoseconds, without waits and later
/// statements.
pub struct ServiceComparison {
    /// Name of the service.
    pub name: String,
    /// Protocol of the service.
    pub protocol: &'static ObservedProtocol,
    /// Requests at each end.
    pub ends: [EndCounts; 2],
    /// Requests measured at both ends, with waits.
    pub matched: u64,
    /// Those of `matched` that wait by design, whose times are not recorded.
    pub waits: u64,
    /// Those of `matched` that are later statements of one message. They begin at the server when
    /// the one before ends, and have no time in the network.
    pub later_statements: u64,
    /// Those of `matched` with a longer latency at the server, by more than the error of the time
    /// stamps. They have no time in the network.
    pub negative: u64,
    /// Those of `matched` without times of both directions, because the difference of the clocks is
    /// unknown or contradictory.
    pub without_one_way: u64,
    /// Latency of the matched requests at each end.
    pub latency: [Histogram; 2],
    /// Latency at the client minus latency at the server.
    pub network: Histogram,
    /// The part of it before the first byte of the request is at the server.
    pub to_server: BoundedTimes,
    /// The part of it from the last byte of the response at the server on.
    pub to_client: BoundedTimes,
    /// Last byte of the request to first byte of the response at the server, of requests in the
    /// first bytes of a connection. It has the wait until the server accepts the connection.
    pub first_server_time: Histogram,
    /// The same of all other requests.
    pub server_time: Histogram,
    /// Handshakes that were seen at both ends.
    pub connect: ConnectTimes,
}

/// Counts of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCounts {
    /// Requests measured at this end.
    pub measured: u64,
    /// Requests that were seen and not measured.
    pub not_measured: u64,
    /// Requests in flight at the end of the capture.
    pub in_flight: u64,
    /// Those of `measured` whose connection is not at the other end.
    pub missing_connection: u64,
    /// Those of `measured` whose connection is at the other end, where they were not measured.
    pub missing_request: u64,
    /// Those of `measured` without known sequence numbers.
    pub missing_sequence: u64,
}

/// Times that are known within bounds.
#[derive(Default)]
pub struct BoundedTimes {
    /// The least that each time can be.
    pub least: Histogram,
    /// The most that each time can be.
    pub most: Histogram,
}

/// Times from the first SYN of the client to the first SYN of the server.
#[derive(Default)]
pub struct ConnectTimes {
    /// At each end.
    pub ends: [Histogram; 2],
    /// At the client minus at the server.
    pub network: Histogram,
}

/// Difference of the clocks of both ends.
pub struct OffsetSummary {
    /// At the first matched request.
    pub first: OffsetInterval,
    /// At the last one.
    pub last: OffsetInterval,
    /// At the one where it is known best.
    pub narrowest: OffsetInterval,
    /// Widths of the intervals at all matched requests, in nanoseconds.
    pub width: Histogram,
}

impl EndComparison {
    /// Compares the requests that two trackers have recorded at the client's and the server's end.
    /// One that has recorded none has no requests.
    pub fn new(client: &mut ConnectionTracker, server: &mut ConnectionTracker) -> EndComparison {
        let mut services: Vec<ServiceComparison> = Vec::new();
        let trackers = [&*client, &*server];
        let indexes = [0, 1].map(|end| add_services(trackers[end], end, &mut services));
        let log = |tracker: &mut ConnectionTracker| {
            tracker.take_request_log().unwrap_or_else(|| RequestLog::new(StreamCuts::default()))
        };
        let mut logs = [log(client), log(server)];
        let connections = logs.each_ref().map(|log| log.connections.len() as u64);
        let is_shared = align_connections(&mut logs);
        for (log, indexes) in logs.iter_mut().zip(&indexes) {
            let index = |service: u32| indexes[service as usize] as u32;
            log.requests.iter_mut().for_each(|of| of.service = index(of.service));
            log.handshakes.iter_mut().for_each(|of| of.service = index(of.service));
            log.requests.sort_unstable_by_key(|of| (request_key(of), of.times[0]));
            log.handshakes.sort_unstable_by_key(|of| (handshake_key(of), of.times[0]));
        }
        let mut pairs: Vec<RecordPair<'_, RequestRecord>> = Vec::new();
        let requests = logs.each_ref().map(|log| &log.requests[..]);
        join(requests, request_key, &mut |pair| match pair {
            [Some(client), Some(server)] => pairs.push((client, server)),
            records => {
                for (end, record) in records.into_iter().enumerate() {
                    let Some(record) = record else { continue };
                    let counts = &mut services[record.service as usize].ends[end];
                    match is_shared[record.connection as usize] {
                        true => counts.missing_request += 1,
                        false => counts.missing_connection += 1,
                    }
                }
            }
        });
        let mut handshakes: Vec<RecordPair<'_, HandshakeRecord>> = Vec::new();
        let both = logs.each_ref().map(|log| &log.handshakes[..]);
        join(both, handshake_key, &mut |pair| {
            if let [Some(client), Some(server)] = pair {
                handshakes.push((client, server));
            }
        });
        let clocks = clock_offset(&pairs, &handshakes, None);
        let mut offset = None;
        for (client, server) in pairs {
            let service = &mut services[client.service as usize];
            service.record(client, server, 1, &clocks, &mut offset);
        }
        for (client, server) in handshakes {
            services[client.service as usize].connect.record(client, server);
        }
        services.iter_mut().for_each(ServiceComparison::count_missing_sequence);
        EndComparison {
            services,
            connections,
            shared_connections: is_shared.iter().filter(|is_shared| **is_shared).count() as u64,
            dropped_requests: logs.each_ref().map(|log| log.dropped_requests),
            offset,
        }
    }
}

/// What requests of both ends have in common: connection and positions. A service that is beyond
/// the limit at one end may be known by its name at the other.
fn request_key(of: &RequestRecord) -> (u32, bool, [u32; 4]) {
    (of.connection, of.begins_at_server, of.numbers)
}

fn handshake_key(of: &HandshakeRecord) -> (u32, [u32; 2]) {
    (of.connection, of.numbers)
}

/// Adds the services of an end. Returns the index of each of them.
fn add_services(
    tracker: &ConnectionTracker,
    end: usize,
    services: &mut Vec<ServiceComparison>,
) -> Vec<usize> {
    let mut in_flight = vec![0; tracker.services().len()];
    tracker.in_flight().iter().for_each(|summary| in_flight[summary.service] += summary.requests);
    let add = |(service, in_flight): (&ServiceStatistics, u64)| {
        let is_same = |other: &ServiceComparison| {
            other.name == service.name && other.protocol.name == service.protocol.name
        };
        let at = services.iter().position(is_same).unwrap_or_else(|| {
            services.push(ServiceComparison::new(service.name.clone(), service.protocol));
            services.len() - 1
        });
        let counts = &mut services[at].ends[end];
        counts.measured += service.completeness.measured;
        counts.not_measured += service.completeness.not_measured.total();
        counts.in_flight += in_flight;
        at
    };
    tracker.services().iter().zip(in_flight).map(add).collect()
}

/// Gives the connections of the server's end the numbers of those at the client's end, and others
/// to those that are not there. Returns for each number whether it is at both ends.
fn align_connections(logs: &mut [RequestLog; 2]) -> Vec<bool> {
    let [client, server] = logs;
    let mut next = client.connections.len() as u32;
    let mut is_shared = vec![false; client.connections.len() + server.connections.len()];
    let mut numbers = vec![0; server.connections.len()];
    for (addresses, number) in &server.connections {
        numbers[*number as usize] = match client.connections.get(addresses) {
            Some(shared) => {
                is_shared[*shared as usize] = true;
                *shared
            }
            None => {
                next += 1;
                next - 1
            }
        };
    }
    let requests = server.requests.iter_mut().map(|of| &mut of.connection);
    for connection in requests.chain(server.handshakes.iter_mut().map(|of| &mut of.connection)) {
        *connection = numbers[*connection as usize];
    }
    is_shared
}

/// Calls `each` with the records of both ends that have the same key, and with those that are at
/// one end only. Both are in the order of their keys.
fn join<'a, T, K: Ord>(
    [mut client, mut server]: [&'a [T]; 2],
    key: impl Fn(&T) -> K,
    each: &mut dyn FnMut([Option<&'a T>; 2]),
) {
    loop {
        let order = match (client.first(), server.first()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(one), Some(other)) => key(one).cmp(&key(other)),
        };
        let one = if order.is_le() { client.split_off_first() } else { None };
        let other = if order.is_ge() { server.split_off_first() } else { None };
        each([one, other]);
    }
}

/// The difference of the clocks from requests and handshakes of both ends: without those that
/// retransmissions may have affected, unless there are no others. `earlier` is what was known
/// before them.
pub(crate) fn clock_offset(
    requests: &[RecordPair<'_, RequestRecord>],
    handshakes: &[RecordPair<'_, HandshakeRecord>],
    earlier: Option<OffsetInterval>,
) -> ClockOffset {
    let limits = |is_any: bool| {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for (client, server) in requests {
            let is_clean = client.is_in_order && server.is_in_order;
            if !client.begins_at_server && (is_any || is_clean) {
                let limit = |at: usize| {
                    let time = client.times[at];
                    (time, difference(server.times[at], time))
                };
                to_server.extend([0, 1].map(limit).into_iter().min_by_key(|limit| limit.1));
                to_client.extend([2, 3].map(limit).into_iter().max_by_key(|limit| limit.1));
            }
        }
        for (client, server) in handshakes {
            if is_any || !client.is_repeated && !server.is_repeated {
                let [syn, reply] = [0, 1].map(|at| {
                    let time = client.times[at];
                    (time, difference(server.times[at], time))
                });
                to_server.push(syn);
                to_client.push(reply);
            }
        }
        (to_server, to_client)
    };
    let (mut to_server, mut to_client) = limits(false);
    if to_server.is_empty() {
        (to_server, to_client) = limits(true);
    }
    if let Some(OffsetInterval { time, lower, upper }) = earlier {
        to_server.push((time, upper));
        to_client.push((time, lower));
    }
    ClockOffset::new(to_server, to_client)
}

/// The difference of the latencies at both ends; `None` if it is negative beyond its error.
fn time_in_network(at_client: u64, at_server: u64) -> Option<u64> {
    let error = STAMP_ERROR_NS + at_server / LATENCY_RATE_ERROR;
    let is_plausible = at_server <= at_client.saturating_add(error);
    is_plausible.then(|| at_client.saturating_sub(at_server))
}

/// `one - other`, as far as it fits.
fn difference(one: u64, other: u64) -> i64 {
    let magnitude = i64::try_from(one.abs_diff(other)).unwrap_or(i64::MAX);
    if one >= other { magnitude } else { -magnitude }
}

impl ServiceComparison {
    pub(crate) fn new(name: String, protocol: &'static ObservedProtocol) -> ServiceComparison {
        ServiceComparison {
            name,
            protocol,
            ends: [EndCounts::default(); 2],
            matched: 0,
            waits: 0,
            later_statements: 0,
            negative: 0,
            without_one_way: 0,
            latency: Default::default(),
            network: Histogram::default(),
            to_server: BoundedTimes::default(),
            to_client: BoundedTimes::default(),
            first_server_time: Histogram::default(),
            server_time: Histogram::default(),
            connect: ConnectTimes::default(),
        }
    }

    /// Requests measured at one end or both.
    pub fn requests(&self) -> u64 {
        self.matched + self.ends.iter().map(EndCounts::unmatched).sum::<u64>()
    }

    /// Records `requests` with the same times at both ends.
    pub(crate) fn record(
        &mut self,
        client: &RequestRecord,
        server: &RequestRecord,
        requests: u64,
        clocks: &ClockOffset,
        offset: &mut Option<OffsetSummary>,
    ) {
        self.matched += requests;
        if client.is_wait {
            self.waits += requests;
            return;
        }
        if client.begins_at_server {
            self.later_statements += requests;
            return;
        }
        // Only requests with times in order are recorded.
        let [at_client, at_server] = [client, server].map(|of| of.times[3] - of.times[0]);
        self.latency[0].record_n(at_client as f64, requests);
        self.latency[1].record_n(at_server as f64, requests);
        let server_time = server.times[2].saturating_sub(server.times[1]);
        match server.is_first {
            true => self.first_server_time.record_n(server_time as f64, requests),
            false => self.server_time.record_n(server_time as f64, requests),
        }
        let Some(network) = time_in_network(at_client, at_server) else {
            self.negative += requests;
            return;
        };
        self.network.record_n(network as f64, requests);
        let intervals = [0, 3].map(|at| clocks.at(client.times[at]));
        let [Some(request), Some(response)] = intervals else {
            self.without_one_way += requests;
            return;
        };
        if !request.is_consistent() || !response.is_consistent() {
            self.without_one_way += requests;
            return;
        }
        OffsetSummary::add(offset, request);
        let sent = difference(server.times[0], client.times[0]);
        let received = difference(client.times[3], server.times[3]);
        let limit = i64::try_from(network).unwrap_or(i64::MAX);
        self.to_server.record(
            sent.saturating_sub(request.upper),
            sent.saturating_sub(request.lower),
            limit,
            requests,
        );
        self.to_client.record(
            received.saturating_add(response.lower),
            received.saturating_add(response.upper),
            limit,
            requests,
        );
    }

    fn count_missing_sequence(&mut self) {
        for counts in &mut self.ends {
            let located = self.matched + counts.missing_connection + counts.missing_request;
            counts.missing_sequence = counts.measured - located;
        }
    }
}

impl EndCounts {
    /// Requests that were measured at this end only.
    pub fn unmatched(&self) -> u64 {
        self.missing_connection + self.missing_request + self.missing_sequence
    }
}

impl BoundedTimes {
    /// Records a time of `requests`, which is not negative and not longer than `limit`.
    fn record(&mut self, least: i64, most: i64, limit: i64, requests: u64) {
        self.least.record_n(least.clamp(0, limit) as f64, requests);
        self.most.record_n(most.clamp(0, limit) as f64, requests);
    }
}

impl ConnectTimes {
    pub(crate) fn record(&mut self, client: &HandshakeRecord, server: &HandshakeRecord) {
        let times = [client, server].map(|of| of.times[1].checked_sub(of.times[0]));
        let [Some(at_client), Some(at_server)] = times else { return };
        self.ends[0].record(at_client as f64);
        self.ends[1].record(at_server as f64);
        if let Some(network) = time_in_network(at_client, at_server) {
            self.network.record(network as f64);
        }
    }
}

impl OffsetSummary {
    /// Adds the interval at a matched request.
    fn add(summary: &mut Option<OffsetSummary>, interval: OffsetInterval) {
        let summary = summary.get_or_insert_with(|| OffsetSummary {
            first: interval,
            last: interval,
            narrowest: interval,
            width: Histogram::default(),
        });
        if interval.time < summary.first.time {
            summary.first = interval;
        }
        if interval.time > summary.last.time {
            summary.last = interval;
        }
        if interval.width() < summary.narrowest.width() {
            summary.narrowest = interval;
        }
        summary.width.record(interval.width() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_joined_by_key() {
        let mut found = Vec::new();
        let (client, server) = ([1, 2, 2, 5], [2, 3, 5, 5]);
        join([&client, &server], |number| *number, &mut |pair| {
            found.push(pair.map(|of| of.copied().unwrap_or(0)));
        });
        assert_eq!(found, [[1, 0], [2, 2], [2, 0], [0, 3], [5, 5], [0, 5]]);
    }

    #[test]
    fn times_in_the_network_are_negative_only_beyond_their_error() {
        assert_eq!(time_in_network(300_000, 250_000), Some(50_000));
        assert_eq!(time_in_network(250_000, 250_080), Some(0));
        // 1 us, and 0.01 % of 100 s.
        assert_eq!(time_in_network(0, 1_000), Some(0));
        assert_eq!(time_in_network(0, 1_001), None);
        assert_eq!(time_in_network(99_990_000_000, 100_000_000_000), Some(0));
        assert_eq!(time_in_network(99_980_000_000, 100_000_000_000), None);
        assert_eq!(time_in_network(u64::MAX, u64::MAX), Some(0));
    }

    #[test]
    fn differences_of_any_times_fit() {
        assert_eq!(difference(7, 10), -3);
        assert_eq!(difference(u64::MAX, 0), i64::MAX);
        assert_eq!(difference(0, u64::MAX), -i64::MAX);
    }
}
