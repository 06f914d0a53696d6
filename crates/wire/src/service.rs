//! Services: a server's address and port, with what was measured of it.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hist::Histogram;
use protocol::observer::{
    FlowDirection, NotMeasuredReason, ObservedProtocol, Operation, OperationOutcome, OperationSink,
    PacketTime,
};

use crate::completeness::Completeness;
use crate::key_log::KeyLog;
use crate::operation_totals::OperationTotals;
use crate::peer_table::{OTHER_PEERS, PeerSettings, PeerTable};
use crate::request_log::ConnectionRecorder;
use crate::service_rule::{ServiceRule, ServiceTransport};
use crate::statement_table::{StatementStatistics, StatementTable, merge_histogram};
use crate::statement_texts::StatementTexts;

/// What was measured of a service.
pub struct ServiceStatistics {
    /// Configured name, or address and port of the server.
    pub name: String,
    /// Protocol of the service.
    pub protocol: &'static ObservedProtocol,
    /// Whether the settings name the service.
    is_named: bool,
    /// What was seen and not measured.
    pub completeness: Completeness,
    /// Sums of the measured operations.
    pub totals: OperationTotals,
    /// `None` if clients are not told apart.
    peers: Option<PeerTable>,
    /// Time of the last packet.
    pub(crate) last_packet: PacketTime,
    /// Secrets of recorded TLS sessions.
    pub(crate) key_log: Option<Arc<KeyLog>>,
    /// Operations by statement.
    pub statements: StatementTable,
    /// Operations since they were last taken.
    pub(crate) recent: RecentOperations,
    /// First SYN of the client to its ACK of the handshake, in nanoseconds, with repeated SYNs.
    pub connect: Histogram,
    /// Round-trip time of handshakes without repeated packets, in nanoseconds.
    pub round_trip: Histogram,
    /// Segment of the server to its acknowledgement, in nanoseconds. It has the network of the
    /// client's side and the client's delay of acknowledgements.
    pub acknowledgement: Histogram,
    /// End of a response to the start of the connection's next request, in nanoseconds.
    pub client_think: Histogram,
}

impl ServiceStatistics {
    pub(crate) fn new(
        name: String,
        is_named: bool,
        protocol: &'static ObservedProtocol,
        limits: &ServiceLimits,
    ) -> ServiceStatistics {
        ServiceStatistics {
            name,
            protocol,
            is_named,
            completeness: Completeness::default(),
            totals: OperationTotals::default(),
            peers: limits.peers.map(PeerTable::new),
            last_packet: 0,
            key_log: None,
            statements: StatementTable::new(limits.statements_max, protocol.name),
            recent: RecentOperations::default(),
            connect: Histogram::default(),
            round_trip: Histogram::default(),
            acknowledgement: Histogram::default(),
            client_think: Histogram::default(),
        }
    }

    /// Removes all histograms and counts.
    fn take_interval(&mut self, texts: &mut StatementTexts) -> ServiceInterval {
        self.recent = RecentOperations::default();
        let (statements, other) = self.statements.take(texts);
        if let Some(peers) = &mut self.peers {
            peers.clear();
        }
        ServiceInterval {
            name: self.name.clone(),
            protocol: self.protocol,
            is_named: self.is_named,
            completeness: mem::take(&mut self.completeness),
            totals: mem::take(&mut self.totals),
            statements,
            other,
            connect: mem::take(&mut self.connect),
            round_trip: mem::take(&mut self.round_trip),
            acknowledgement: mem::take(&mut self.acknowledgement),
            client_think: mem::take(&mut self.client_think),
        }
    }
}

/// Histograms and counts of a service and an interval; the fields are those of
/// [`ServiceStatistics`].
#[derive(Clone)]
pub struct ServiceInterval {
    /// See [`ServiceStatistics::name`].
    pub name: String,
    /// See [`ServiceStatistics::protocol`].
    pub protocol: &'static ObservedProtocol,
    /// Whether the settings name the service.
    pub is_named: bool,
    /// See [`ServiceStatistics::completeness`].
    pub completeness: Completeness,
    /// See [`ServiceStatistics::totals`].
    pub totals: OperationTotals,
    /// All statements with operations, in no order.
    pub statements: Vec<StatementStatistics>,
    /// Operations of statements beyond the limit of the table.
    pub other: StatementStatistics,
    /// See [`ServiceStatistics::connect`].
    pub connect: Histogram,
    /// See [`ServiceStatistics::round_trip`].
    pub round_trip: Histogram,
    /// See [`ServiceStatistics::acknowledgement`].
    pub acknowledgement: Histogram,
    /// See [`ServiceStatistics::client_think`].
    pub client_think: Histogram,
}

impl ServiceInterval {
    /// An interval without operations.
    pub fn new(
        name: String,
        is_named: bool,
        protocol: &'static ObservedProtocol,
    ) -> ServiceInterval {
        ServiceInterval {
            name,
            protocol,
            is_named,
            completeness: Completeness::default(),
            totals: OperationTotals::default(),
            statements: Vec::new(),
            other: StatementStatistics::default(),
            connect: Histogram::default(),
            round_trip: Histogram::default(),
            acknowledgement: Histogram::default(),
            client_think: Histogram::default(),
        }
    }

    /// Name of the service of all servers of the protocol beyond the limit.
    pub fn other_servers_name(&self) -> String {
        other_servers_name(self.protocol)
    }

    /// Adds the operations of another part of the service in the interval.
    pub fn merge(&mut self, other: ServiceInterval) {
        self.completeness.merge(&other.completeness);
        self.totals.merge(&other.totals);
        self.other.merge(&other.other);
        for (into, from) in [
            (&mut self.connect, &other.connect),
            (&mut self.round_trip, &other.round_trip),
            (&mut self.acknowledgement, &other.acknowledgement),
            (&mut self.client_think, &other.client_think),
        ] {
            merge_histogram(into, from);
        }
        self.statements.extend(other.statements);
        self.merge_equal_statements();
    }

    /// Bounds what [`Self::merge`] has united, for an interval that waits: to the `statements_max`
    /// with the most time, if their texts have at most `free_bytes`, which are reduced, and to the
    /// classes of errors of one table. All other statements are in `other`.
    pub fn limit(&mut self, statements_max: usize, free_bytes: &mut usize) {
        let totals = self.totals.clone();
        self.rename_error_classes(&totals);
        let order = |of: &StatementStatistics| (of.total_time_ns, of.waits.last_byte.count());
        self.statements.sort_by_key(|statement| Reverse(order(statement)));
        let (mut statements, other) = (0, &mut self.other);
        self.statements.retain(|statement| {
            let text_bytes =
                statement.verb.len() + statement.statement.len() + statement.peer.len();
            let free = free_bytes.checked_sub(text_bytes).filter(|_| statements < statements_max);
            match free {
                Some(free) => {
                    *free_bytes = free;
                    statements += 1;
                }
                None => other.merge(statement),
            }
            free.is_some()
        });
    }

    /// Names classes of errors as they were counted in `totals`.
    pub fn rename_error_classes(&mut self, totals: &OperationTotals) {
        let all = self.statements.iter_mut().chain([&mut self.other]);
        all.for_each(|statement| statement.rename_error_classes(totals));
    }

    /// Renames the clients for which `has_name` is false to [`OTHER_PEERS`].
    pub fn rename_other_peers(&mut self, has_name: impl Fn(&str) -> bool) {
        let mut is_changed = false;
        for statement in &mut self.statements {
            if *statement.peer != *OTHER_PEERS && !has_name(&statement.peer) {
                statement.peer = OTHER_PEERS.into();
                is_changed = true;
            }
        }
        if is_changed {
            self.merge_equal_statements();
        }
    }

    fn merge_equal_statements(&mut self) {
        let mut merged: HashMap<_, StatementStatistics> = HashMap::new();
        for statement in mem::take(&mut self.statements) {
            let name =
                |of: &StatementStatistics| (of.verb.clone(), of.statement.clone(), of.peer.clone());
            match merged.entry(name(&statement)) {
                Entry::Occupied(mut found) => found.get_mut().merge(&statement),
                Entry::Vacant(free) => {
                    free.insert(statement);
                }
            }
        }
        self.statements = merged.into_values().collect();
    }
}

fn other_servers_name(protocol: &ObservedProtocol) -> String {
    format!("other {} servers", protocol.name)
}

/// Operations of an interval, without waits.
#[derive(Clone, Debug, Default)]
pub struct RecentOperations {
    /// First byte of the request to last byte of the response, in nanoseconds.
    pub last_byte: Histogram,
    /// Failed ones.
    pub errors: u64,
}

/// Records the operations of one connection.
pub(crate) struct ConnectionSink<'a> {
    pub(crate) service: &'a mut ServiceStatistics,
    pub(crate) texts: &'a mut StatementTexts,
    /// Address of the client.
    pub(crate) client: IpAddr,
    /// End of the connection's last response.
    pub(crate) last_response_end: &'a mut Option<PacketTime>,
    /// Only while requests are recorded; times of operations are then tokens.
    pub(crate) recorder: Option<ConnectionRecorder<'a>>,
}

impl OperationSink for ConnectionSink<'_> {
    fn operation(&mut self, operation: &Operation<'_>) {
        let located = self.recorder.as_mut().map(|recorder| recorder.marks.locate(operation));
        let timed = located.map(|marks| marks.with_times(operation));
        let operation = timed.as_ref().unwrap_or(operation);
        let service = &mut *self.service;
        let first = operation.request_start;
        if operation.response_start < first || operation.response_end < operation.response_start {
            service.completeness.not_measured.time_reversed += 1;
            return;
        }
        service.completeness.measured += 1;
        let outcome = service.totals.add(operation);
        let operation = &Operation { outcome, ..operation.clone() };
        let last_end = *self.last_response_end;
        if let Some(think) = last_end.and_then(|end| first.checked_sub(end)) {
            service.client_think.record(think as f64);
        }
        *self.last_response_end = last_end.max(Some(operation.response_end));
        let peer = service.peers.as_mut().map_or("", |peers| peers.name(self.client));
        let is_wait = service.statements.record(operation, peer, self.texts);
        service.completeness.waits += u64::from(is_wait);
        if let (Some(recorder), Some(located)) = (&mut self.recorder, &located) {
            let sizes = [operation.request_bytes, operation.response_bytes];
            recorder.record_request(located, is_wait, sizes);
        }
        if !is_wait {
            let recent = &mut service.recent;
            recent.last_byte.record((operation.response_end - first) as f64);
            recent.errors += u64::from(operation.outcome != OperationOutcome::Ok);
        }
    }

    fn not_measured(&mut self, requests: u64, reason: NotMeasuredReason) {
        self.service.completeness.not_measured.add(requests, reason);
    }

    fn unparsed(&mut self, _direction: FlowDirection, bytes: u64) {
        self.service.completeness.unparsed_bytes += bytes;
    }
}

/// Services by rule and by server.
pub(crate) struct ServiceTable {
    rules: Vec<ServiceRule>,
    /// Whether a port has a rule.
    has_rule: Box<[bool; 1 << 16]>,
    by_server: HashMap<(SocketAddr, ServiceTransport), usize>,
    services: Vec<ServiceStatistics>,
    limits: ServiceLimits,
    pub(crate) key_log: Option<Arc<KeyLog>>,
}

/// Limits of services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceLimits {
    /// Servers with a service of their own, beside named ones.
    pub(crate) servers_max: usize,
    /// Statements of a service.
    pub(crate) statements_max: usize,
    /// How clients are told apart; `None` if they are not.
    pub(crate) peers: Option<PeerSettings>,
}

impl ServiceTable {
    pub(crate) fn new(rules: Vec<ServiceRule>, limits: ServiceLimits) -> ServiceTable {
        let has_rule = Box::new([false; 1 << 16]);
        let mut table = ServiceTable {
            rules: Vec::new(),
            has_rule,
            by_server: HashMap::new(),
            services: Vec::new(),
            limits,
            key_log: None,
        };
        table.set_rules(rules);
        table
    }

    /// Replaces the rules. Connections stay with the service that they have.
    pub(crate) fn set_rules(&mut self, rules: Vec<ServiceRule>) {
        self.has_rule.fill(false);
        rules.iter().for_each(|rule| self.has_rule[usize::from(rule.port)] = true);
        self.rules = rules;
        let mut by_server = mem::take(&mut self.by_server);
        by_server.retain(|(server, transport), index| {
            let service = &self.services[*index];
            self.rule(*server, *transport).is_some_and(|rule| {
                let has_name = rule.name.as_ref().is_none_or(|name| *name == service.name);
                has_name && std::ptr::eq(rule.protocol, service.protocol)
            })
        });
        self.by_server = by_server;
    }

    /// Whether connections to this server are observed.
    pub(crate) fn is_server(&self, address: SocketAddr, transport: ServiceTransport) -> bool {
        self.has_rule[usize::from(address.port())] && self.rule(address, transport).is_some()
    }

    /// The first rule with the server's address, or else with its port alone.
    fn rule(&self, server: SocketAddr, transport: ServiceTransport) -> Option<&ServiceRule> {
        let of = |address: Option<IpAddr>| {
            self.rules.iter().find(move |rule| {
                rule.port == server.port() && rule.transport == transport && rule.address == address
            })
        };
        of(Some(server.ip())).or_else(|| of(None))
    }

    /// Index of the service of a server that has a rule.
    pub(crate) fn index(
        &mut self,
        server: SocketAddr,
        transport: ServiceTransport,
    ) -> Option<usize> {
        if let Some(index) = self.by_server.get(&(server, transport)) {
            return Some(*index);
        }
        let rule = self.rule(server, transport)?;
        let (protocol, is_named) = (rule.protocol, rule.name.is_some());
        let is_full = self.by_server.len() >= self.limits.servers_max;
        let name = match &rule.name {
            Some(name) => name.clone(),
            None if is_full => other_servers_name(protocol),
            None => server.to_string(),
        };
        let same = |service: &ServiceStatistics| {
            service.name == name && std::ptr::eq(service.protocol, protocol)
        };
        let index = self.services.iter().position(same).unwrap_or_else(|| {
            let mut service = ServiceStatistics::new(name, is_named, protocol, &self.limits);
            service.key_log.clone_from(&self.key_log);
            self.services.push(service);
            self.services.len() - 1
        });
        if !is_full {
            self.by_server.insert((server, transport), index);
        }
        Some(index)
    }

    pub(crate) fn services(&self) -> &[ServiceStatistics] {
        &self.services
    }

    /// Histograms and counts of all services since the last call, in the order of the services.
    pub(crate) fn take_interval(&mut self, texts: &mut StatementTexts) -> Vec<ServiceInterval> {
        self.services.iter_mut().map(|service| service.take_interval(texts)).collect()
    }

    /// Whether some service had its last packet before `time`.
    pub(crate) fn has_idle(&self, time: PacketTime) -> bool {
        self.services.iter().any(|service| service.last_packet < time)
    }

    /// Removes the services that had no packet since `time`, unless `is_used` has their index.
    /// Their servers make room for others. Returns the new index of each service.
    pub(crate) fn forget_idle(
        &mut self,
        time: PacketTime,
        is_used: &HashSet<usize>,
    ) -> Vec<Option<usize>> {
        let (mut indexes, mut next) = (Vec::with_capacity(self.services.len()), 0);
        for (index, service) in self.services.iter().enumerate() {
            let stays = service.last_packet >= time || is_used.contains(&index);
            indexes.push(stays.then_some(next));
            next += usize::from(stays);
        }
        let mut stays = indexes.iter().map(Option::is_some);
        self.services.retain(|_| stays.next() == Some(true));
        self.by_server.retain(|_, index| match indexes[*index] {
            Some(new) => {
                *index = new;
                true
            }
            None => false,
        });
        indexes
    }

    pub(crate) fn services_mut(&mut self) -> impl Iterator<Item = &mut ServiceStatistics> {
        self.services.iter_mut()
    }

    pub(crate) fn service_mut(&mut self, index: usize) -> &mut ServiceStatistics {
        &mut self.services[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_rule::find_protocol;

    /// Limits an interval of four statements; checks the ones that it has then.
    #[track_caller]
    fn check(statements_max: usize, mut free_bytes: usize, expected: &[&str]) {
        let protocol = find_protocol("http").unwrap();
        let mut interval = ServiceInterval::new("shop".to_owned(), false, protocol);
        for (text, time) in [("/b", 5), ("/long", 9), ("/d", 1), ("/c", 7)] {
            let mut statement = StatementStatistics {
                statement: text.into(),
                total_time_ns: time,
                ..StatementStatistics::default()
            };
            statement.succeeded.last_byte.record(1.0);
            interval.statements.push(statement);
        }
        interval.limit(statements_max, &mut free_bytes);
        let found: Vec<&str> = interval.statements.iter().map(|of| &*of.statement).collect();
        assert_eq!(found, expected);
        assert_eq!(interval.other.operations(), 4 - expected.len() as u64);
    }

    #[test]
    fn a_limited_interval_has_the_statements_with_the_most_time_and_every_operation() {
        check(10, 100, &["/long", "/c", "/b", "/d"]);
        check(2, 100, &["/long", "/c"]);
        check(10, 8, &["/long", "/c"]);
        check(10, 4, &["/c", "/b"]);
        check(10, 0, &[]);
    }
}
