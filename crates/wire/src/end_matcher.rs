//! Requests of both ends of connections, matched while they are reported.
//!
//! A request waits for that of the other end, for 15 to 30 seconds and in bounded memory. Requests
//! of both ends with the same addresses, sequence numbers and boundaries are the same
//! ([`request_log`](crate::request_log)); those that are not found at the other end are counted
//! with the reason. Times are compared as in a comparison of files ([`EndComparison`]), in
//! portions: each of them knows the difference of the clocks from its own packets and from those
//! before it.
//!
//! [`EndComparison`]: crate::EndComparison

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::clock_offset::OffsetInterval;
use crate::end_clocks::{EndClocks, HostPair, MatchedKey};
use crate::end_comparison::ServiceComparison;
use crate::end_names::{EndNames, OTHER};
use crate::end_report::{ConnectionEnd, EndReport, ReportedConnection, ReportedRequest};
use crate::request_log::{HandshakeRecord, RequestRecord};

/// Time after which those that have waited are a generation older, in nanoseconds. They wait for
/// one to two generations.
const GENERATION_NS: u64 = 15_000_000_000;
/// Requests or handshakes of a generation, about 200 bytes each.
const GENERATION_MAX: usize = 64 << 10;
/// Connections of a generation that are remembered, 80 bytes each.
const CONNECTIONS_MAX: usize = 64 << 10;
/// Nodes that have reported within [`RETRY_NS`]. A node has another number at each start.
const SENDERS_MAX: usize = 1_024;
/// Time after which no report is sent again: ten attempts, of 16 s each if phases time out.
const RETRY_NS: u64 = 300_000_000_000;
/// Services with series of their own, each with the histograms of an interval: about 100 kB.
const SERVICES_MAX: usize = 256;
/// Time without a request after which a service or the clocks of hosts are forgotten.
const IDLE_NS: u64 = 3_600_000_000_000;
/// Services by reporting host and end; the same for their counts.
const REPORTED_MAX: usize = 1_024;

/// Requests that wait for the other end, and what was matched.
pub struct EndMatcher {
    /// Sequence of the last report of each sender, and its time.
    senders: HashMap<u64, (u64, u64)>,
    names: EndNames,
    /// The current generation and the one before it.
    requests: [HashMap<RequestKey, WaitingRequest>; 2],
    handshakes: [HashMap<HandshakeKey, (ConnectionEnd, u16, HandshakeRecord)>; 2],
    /// Ends at which a connection was seen, as bits.
    connections: [HashMap<(SocketAddr, SocketAddr), u8>; 2],
    generation_start: u64,
    now: u64,
    matched: HashMap<MatchedKey, MatchedState>,
    reported: HashMap<ReportedKey, ReportedState>,
    clocks: EndClocks,
    /// Start of the counters of services that are new in this interval.
    interval_start: i64,
}

/// What a report was for the matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportOutcome {
    /// Its requests are counted.
    Accepted,
    /// It was received before.
    Repeated,
    /// There are too many senders.
    TooManySenders,
}

/// What was matched since the last interval.
pub struct EndInterval {
    /// Services, by both hosts.
    pub services: Vec<MatchedService>,
    /// Services, by the host that reports.
    pub reported: Vec<ReportedService>,
    /// Differences of clocks that matched requests tell.
    pub clocks: Vec<PairOffset>,
    /// Requests that wait for the other end.
    pub waiting: u64,
}

/// Matched requests of a service.
pub struct MatchedService {
    /// Host of the clients.
    pub client_host: Arc<str>,
    /// Host of the server.
    pub server_host: Arc<str>,
    /// Since the last interval.
    pub comparison: ServiceComparison,
    /// Since `start`.
    pub totals: MatchedTotals,
    /// Start of the interval in which the service was first seen, or seen again after it was
    /// forgotten.
    pub start: i64,
}

/// Counts of matched requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedTotals {
    /// See [`ServiceComparison::matched`].
    pub matched: u64,
    /// See [`ServiceComparison::waits`].
    pub waits: u64,
    /// See [`ServiceComparison::later_statements`].
    pub later_statements: u64,
    /// See [`ServiceComparison::negative`].
    pub negative: u64,
    /// See [`ServiceComparison::without_one_way`].
    pub without_one_way: u64,
}

/// Reported requests of a service, since `start`.
pub struct ReportedService {
    /// See [`MatchedService::start`].
    pub start: i64,
    /// Host that reports.
    pub host: Arc<str>,
    /// Its end of the connections.
    pub end: ConnectionEnd,
    /// Name of the service at this end.
    pub service: Arc<str>,
    /// Name of its protocol.
    pub protocol: &'static str,
    /// Requests in its reports.
    pub reported: u64,
    /// Requests whose connection was not reported by the other end.
    pub missing_connection: u64,
    /// Requests of connections of both ends that the other end has not reported, or saw in other
    /// segments.
    pub missing_request: u64,
    /// Requests that could not wait, because too many do.
    pub limit: u64,
    /// Requests that this end had reported with other times, or that another host has reported.
    pub ambiguous: u64,
}

/// The clock of a server's host compared with that of a client's host.
pub struct PairOffset {
    /// Host of the client.
    pub client_host: Arc<str>,
    /// Host of the server.
    pub server_host: Arc<str>,
    /// Server minus client, at the latest matched request.
    pub offset: OffsetInterval,
}

/// With whether it begins at the server, and whether it waits by design.
type RequestKey = (SocketAddr, SocketAddr, [u32; 4], u32, [bool; 2]);
type HandshakeKey = (SocketAddr, SocketAddr, [u32; 2]);
/// Host, its end, and the service.
type ReportedKey = (u16, ConnectionEnd, u16);

struct WaitingRequest {
    end: ConnectionEnd,
    host: u16,
    requests: u64,
    record: RequestRecord,
}

struct MatchedState {
    comparison: ServiceComparison,
    totals: MatchedTotals,
    start: i64,
    last_time: u64,
}

#[derive(Default)]
struct ReportedState {
    reported: u64,
    missing_connection: u64,
    missing_request: u64,
    limit: u64,
    ambiguous: u64,
    start: i64,
    last_time: u64,
}

/// Why a request is at one end only.
#[derive(Clone, Copy)]
enum UnmatchedReason {
    /// Nothing in time.
    Timeout,
    Limit,
    Ambiguous,
}

impl EndMatcher {
    /// A matcher without requests.
    pub fn new() -> EndMatcher {
        EndMatcher {
            senders: HashMap::new(),
            names: EndNames::default(),
            requests: Default::default(),
            handshakes: Default::default(),
            connections: Default::default(),
            generation_start: 0,
            now: 0,
            matched: HashMap::new(),
            reported: HashMap::new(),
            clocks: EndClocks::default(),
            interval_start: 0,
        }
    }

    /// Adds a report that was received at `now`, in nanoseconds of a monotonic clock.
    pub fn add(&mut self, report: &EndReport, now: u64) -> ReportOutcome {
        self.advance(now);
        if self.senders.len() >= SENDERS_MAX {
            self.forget_senders();
        }
        let is_full = self.senders.len() >= SENDERS_MAX;
        match self.senders.entry(report.sender) {
            Entry::Occupied(last) if report.sequence <= last.get().0 => {
                return ReportOutcome::Repeated;
            }
            Entry::Vacant(_) if is_full => return ReportOutcome::TooManySenders,
            entry => {
                entry.insert_entry((report.sequence, now));
            }
        }
        let host = self.names.host(&report.host);
        let names = &mut self.names;
        let services = report.services.iter().map(|(name, of)| names.service(name, of));
        let services: Vec<u16> = services.collect();
        for connection in &report.connections {
            self.see_connection(connection);
        }
        for ReportedRequest { record, requests } in &report.requests {
            let connection = report.connections[record.connection as usize];
            let service = services[usize::from(connection.service)];
            let record = RequestRecord { service: service.into(), ..*record };
            let (end, requests) = (connection.end, u64::from(*requests));
            self.reported((host, end, service)).reported += requests;
            let waiting = WaitingRequest { end, host, requests, record };
            self.add_request(&connection, waiting);
        }
        for handshake in &report.handshakes {
            let connection = report.connections[handshake.connection as usize];
            let service = services[usize::from(connection.service)];
            let record = HandshakeRecord { service: service.into(), ..*handshake };
            self.add_handshake(&connection, host, record);
        }
        ReportOutcome::Accepted
    }

    /// Counters of services that are seen for the first time start at `start` from now on.
    pub fn begin_interval(&mut self, start: i64) {
        self.interval_start = start;
    }

    fn forget_senders(&mut self) {
        let now = self.now;
        self.senders.retain(|_, (_, last_time)| last_time.saturating_add(RETRY_NS) >= now);
    }

    /// What was matched since the last call.
    pub fn take_interval(&mut self, now: u64) -> EndInterval {
        self.advance(now);
        for key in self.clocks.keys() {
            self.settle(key);
        }
        self.forget_senders();
        let is_recent = |last_time: u64| last_time.saturating_add(IDLE_NS) >= now;
        self.matched.retain(|_, state| is_recent(state.last_time));
        self.reported.retain(|_, state| is_recent(state.last_time));
        self.clocks.forget_before(now.saturating_sub(IDLE_NS));
        self.forget_names();
        let names = &self.names;
        let services = self.matched.iter_mut().map(|(&(client, server, service), state)| {
            let (name, protocol) = names.of_service(service);
            let empty = ServiceComparison::new(name.to_string(), protocol);
            let comparison = mem::replace(&mut state.comparison, empty);
            state.totals.add(&comparison);
            let [client_host, server_host] = [client, server].map(|host| names.of_host(host));
            let (totals, start) = (state.totals, state.start);
            MatchedService { client_host, server_host, comparison, totals, start }
        });
        let services = services.collect();
        let reported = self.reported.iter().map(|(&(host, end, service), state)| {
            let (name, protocol) = names.of_service(service);
            ReportedService {
                start: state.start,
                host: names.of_host(host),
                end,
                service: name,
                protocol: protocol.name,
                reported: state.reported,
                missing_connection: state.missing_connection,
                missing_request: state.missing_request,
                limit: state.limit,
                ambiguous: state.ambiguous,
            }
        });
        let reported = reported.collect();
        let clocks = self.clocks.take_new().map(|((client, server), offset)| {
            let [client_host, server_host] = [client, server].map(|host| names.of_host(host));
            PairOffset { client_host, server_host, offset }
        });
        let clocks = clocks.collect();
        let waiting = self.requests.iter().flat_map(HashMap::values).map(|of| of.requests).sum();
        EndInterval { services, reported, clocks, waiting }
    }

    /// Forgets names that nothing refers to.
    fn forget_names(&mut self) {
        let mut used = self.names.unused();
        for waiting in self.requests.iter().flat_map(HashMap::values) {
            used.host(waiting.host);
            used.service(waiting.record.service as u16);
        }
        for (_, host, handshake) in self.handshakes.iter().flat_map(HashMap::values) {
            used.host(*host);
            used.service(handshake.service as u16);
        }
        for &(client, server, service) in self.matched.keys() {
            used.host(client);
            used.host(server);
            used.service(service);
        }
        for &(host, _, service) in self.reported.keys() {
            used.host(host);
            used.service(service);
        }
        self.clocks.hosts().for_each(|host| used.host(host));
        self.names.retain(&used);
    }

    fn see_connection(&mut self, connection: &ReportedConnection) {
        let bit = end_bit(connection.end);
        let all = &mut self.connections[0];
        let is_full = all.len() >= CONNECTIONS_MAX;
        match all.entry((connection.client, connection.server)) {
            Entry::Occupied(mut found) => *found.get_mut() |= bit,
            Entry::Vacant(free) if !is_full => {
                free.insert(bit);
            }
            Entry::Vacant(_) => {}
        }
    }

    fn add_request(&mut self, connection: &ReportedConnection, new: WaitingRequest) {
        let RequestRecord { numbers, boundary_hash, begins_at_server, is_wait, .. } = new.record;
        let kind = [begins_at_server, is_wait];
        let key = (connection.client, connection.server, numbers, boundary_hash, kind);
        let generation = usize::from(!self.requests[0].contains_key(&key));
        let Entry::Occupied(mut found) = self.requests[generation].entry(key) else {
            if self.requests[0].len() >= GENERATION_MAX {
                self.end_generation(UnmatchedReason::Limit);
            }
            self.requests[0].insert(key, new);
            return;
        };
        let waiting = found.get_mut();
        if waiting.end == new.end {
            let is_same = waiting.host == new.host && waiting.record.times == new.record.times;
            waiting.record.is_in_order &= new.record.is_in_order;
            match is_same {
                true => waiting.requests += new.requests,
                false => self.count_unmatched(&key, &new, UnmatchedReason::Ambiguous),
            }
            return;
        }
        let requests = waiting.requests.min(new.requests);
        let (one, other) = ((waiting.host, waiting.record), (new.host, new.record));
        waiting.requests -= requests;
        if waiting.requests == 0 {
            let left = new.requests - requests;
            match left {
                0 => drop(found.remove()),
                _ => *waiting = WaitingRequest { requests: left, ..new },
            }
        }
        let (client, server) =
            if new.end == ConnectionEnd::Server { (one, other) } else { (other, one) };
        let hosts = (client.0, server.0);
        let matched = self.matched_key(hosts, server.1.service as u16);
        let key = self.clock_key(hosts);
        self.clocks.add_request(key, (matched, [client.1, server.1], requests));
        self.settle_due(key);
    }

    fn add_handshake(&mut self, connection: &ReportedConnection, host: u16, new: HandshakeRecord) {
        let key = (connection.client, connection.server, new.numbers);
        let generation = usize::from(!self.handshakes[0].contains_key(&key));
        let has_space = self.handshakes[0].len() < GENERATION_MAX;
        match self.handshakes[generation].entry(key) {
            Entry::Occupied(found) if found.get().0 != connection.end => {
                let (_, other_host, other) = found.remove();
                let (one, two) = ((other_host, other), (host, new));
                let is_server = connection.end == ConnectionEnd::Server;
                let (client, server) = if is_server { (one, two) } else { (two, one) };
                let hosts = (client.0, server.0);
                let matched = self.matched_key(hosts, server.1.service as u16);
                let key = self.clock_key(hosts);
                self.clocks.add_handshake(key, (matched, [client.1, server.1]));
                self.settle_due(key);
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(_) if has_space => {
                self.handshakes[0].insert(key, (connection.end, host, new));
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Counts of a service at one end; services beyond the limit share some.
    fn reported(&mut self, mut key: ReportedKey) -> &mut ReportedState {
        if !self.reported.contains_key(&key) && self.reported.len() >= REPORTED_MAX {
            let (_, protocol) = self.names.of_service(key.2);
            key = (self.names.host(OTHER), key.1, self.names.service(OTHER, protocol));
        }
        let start = self.interval_start;
        let state = self.reported.entry(key);
        let state = state.or_insert_with(|| ReportedState { start, ..ReportedState::default() });
        state.last_time = self.now;
        state
    }

    /// Key of a service of two hosts; services beyond the limit share one.
    fn matched_key(&mut self, hosts: HostPair, service: u16) -> MatchedKey {
        let (now, start) = (self.now, self.interval_start);
        let mut key = (hosts.0, hosts.1, service);
        if !self.matched.contains_key(&key) && self.matched.len() >= SERVICES_MAX {
            let (_, protocol) = self.names.of_service(service);
            let other = self.names.host(OTHER);
            key = (other, other, self.names.service(OTHER, protocol));
        }
        let names = &self.names;
        let state = self.matched.entry(key).or_insert_with(|| {
            let (name, protocol) = names.of_service(key.2);
            let comparison = ServiceComparison::new(name.to_string(), protocol);
            MatchedState { comparison, totals: MatchedTotals::default(), start, last_time: now }
        });
        state.last_time = now;
        key
    }

    fn clock_key(&self, hosts: HostPair) -> Option<HostPair> {
        let is_other = |host| self.names.is_other_host(host);
        self.clocks.key(hosts, !is_other(hosts.0) && !is_other(hosts.1))
    }

    fn settle_due(&mut self, key: Option<HostPair>) {
        for key in self.clocks.due(key) {
            self.settle(key);
        }
    }

    /// Compares the times of the matched requests of two hosts.
    fn settle(&mut self, key: Option<HostPair>) {
        let Some((records, offset)) = self.clocks.settle(key, self.now) else { return };
        for (key, [client, server], requests) in &records.requests {
            let Some(state) = self.matched.get_mut(key) else { continue };
            state.comparison.record(client, server, *requests, &offset, &mut None);
        }
        for (key, [client, server]) in &records.handshakes {
            let Some(state) = self.matched.get_mut(key) else { continue };
            state.comparison.connect.record(client, server);
        }
    }

    fn advance(&mut self, now: u64) {
        self.now = self.now.max(now);
        while self.now.saturating_sub(self.generation_start) >= GENERATION_NS {
            let is_idle = self.requests.iter().all(HashMap::is_empty);
            self.end_generation(UnmatchedReason::Timeout);
            let next = self.generation_start + GENERATION_NS;
            self.generation_start = if is_idle { self.now } else { next };
        }
    }

    /// Ends the waiting of the older generation.
    fn end_generation(&mut self, reason: UnmatchedReason) {
        for (key, waiting) in mem::take(&mut self.requests[1]) {
            self.count_unmatched(&key, &waiting, reason);
        }
        self.requests.swap(0, 1);
        self.handshakes[1].clear();
        self.handshakes.swap(0, 1);
        self.connections[1].clear();
        self.connections.swap(0, 1);
    }

    fn count_unmatched(
        &mut self,
        (client, server, ..): &RequestKey,
        waiting: &WaitingRequest,
        reason: UnmatchedReason,
    ) {
        let other = match waiting.end {
            ConnectionEnd::Client => end_bit(ConnectionEnd::Server),
            ConnectionEnd::Server => end_bit(ConnectionEnd::Client),
        };
        let ends = self.connections.iter().filter_map(|all| all.get(&(*client, *server)));
        let is_at_other = ends.fold(0, |all, bits| all | bits) & other != 0;
        let key = (waiting.host, waiting.end, waiting.record.service as u16);
        let state = self.reported(key);
        let count = match reason {
            UnmatchedReason::Timeout if is_at_other => &mut state.missing_request,
            UnmatchedReason::Timeout => &mut state.missing_connection,
            UnmatchedReason::Limit => &mut state.limit,
            UnmatchedReason::Ambiguous => &mut state.ambiguous,
        };
        *count += waiting.requests;
    }
}

impl Default for EndMatcher {
    fn default() -> EndMatcher {
        EndMatcher::new()
    }
}

impl MatchedTotals {
    fn add(&mut self, interval: &ServiceComparison) {
        self.matched += interval.matched;
        self.waits += interval.waits;
        self.later_statements += interval.later_statements;
        self.negative += interval.negative;
        self.without_one_way += interval.without_one_way;
    }
}

fn end_bit(end: ConnectionEnd) -> u8 {
    match end {
        ConnectionEnd::Client => 1,
        ConnectionEnd::Server => 2,
    }
}
