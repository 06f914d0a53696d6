//! Services: a server's address and port, with what was measured of it.

use std::collections::HashMap;
use std::mem;
use std::net::{IpAddr, SocketAddr};

use hist::Histogram;
use protocol::fingerprint::RouteTemplates;
use protocol::observer::{
    FlowDirection, NotMeasuredReason, ObservedProtocol, Operation, OperationOutcome, OperationSink,
    PacketTime,
};

use crate::completeness::Completeness;
use crate::operation_totals::OperationTotals;
use crate::service_rule::{ServiceRule, ServiceTransport};
use crate::statement_table::{StatementStatistics, StatementTable};

/// What was measured of a service.
pub struct ServiceStatistics {
    /// Configured name, or address and port of the server.
    pub name: String,
    /// Protocol of the service.
    pub protocol: &'static ObservedProtocol,
    /// What was seen and not measured.
    pub completeness: Completeness,
    /// Sums of the measured operations.
    pub totals: OperationTotals,
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
        protocol: &'static ObservedProtocol,
        statements_max: usize,
    ) -> ServiceStatistics {
        ServiceStatistics {
            name,
            protocol,
            completeness: Completeness::default(),
            totals: OperationTotals::default(),
            statements: StatementTable::new(statements_max, protocol.name),
            recent: RecentOperations::default(),
            connect: Histogram::default(),
            round_trip: Histogram::default(),
            acknowledgement: Histogram::default(),
            client_think: Histogram::default(),
        }
    }

    /// Removes all histograms.
    fn take_interval(&mut self) -> ServiceInterval {
        self.recent = RecentOperations::default();
        let (statements, other) = self.statements.take();
        ServiceInterval {
            statements,
            other,
            connect: mem::take(&mut self.connect),
            round_trip: mem::take(&mut self.round_trip),
            acknowledgement: mem::take(&mut self.acknowledgement),
            client_think: mem::take(&mut self.client_think),
        }
    }
}

/// Histograms of a service and an interval; the fields are those of [`ServiceStatistics`].
#[derive(Debug)]
pub struct ServiceInterval {
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
    pub(crate) routes: &'a RouteTemplates,
    /// End of the connection's last response.
    pub(crate) last_response_end: &'a mut Option<PacketTime>,
}

impl OperationSink for ConnectionSink<'_> {
    fn operation(&mut self, operation: &Operation<'_>) {
        let service = &mut *self.service;
        let completeness = &mut service.completeness;
        let first = operation.request_start;
        if operation.response_start < first || operation.response_end < operation.response_start {
            completeness.not_measured.time_reversed += 1;
            return;
        }
        completeness.measured += 1;
        completeness.waits += u64::from(operation.is_wait);
        let outcome = service.totals.add(operation);
        let operation = &Operation { outcome, ..operation.clone() };
        let last_end = *self.last_response_end;
        if let Some(think) = last_end.and_then(|end| first.checked_sub(end)) {
            service.client_think.record(think as f64);
        }
        *self.last_response_end = last_end.max(Some(operation.response_end));
        service.statements.record(operation, self.routes);
        if !operation.is_wait {
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
    servers_max: usize,
    statements_max: usize,
}

impl ServiceTable {
    pub(crate) fn new(
        rules: Vec<ServiceRule>,
        servers_max: usize,
        statements_max: usize,
    ) -> ServiceTable {
        let mut has_rule = Box::new([false; 1 << 16]);
        rules.iter().for_each(|rule| has_rule[usize::from(rule.port)] = true);
        ServiceTable {
            rules,
            has_rule,
            by_server: HashMap::new(),
            services: Vec::new(),
            servers_max,
            statements_max,
        }
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
        let protocol = rule.protocol;
        let is_full = self.by_server.len() >= self.servers_max;
        let name = match &rule.name {
            Some(name) => name.clone(),
            None if is_full => format!("other {} servers", protocol.name),
            None => server.to_string(),
        };
        let same = |service: &ServiceStatistics| {
            service.name == name && std::ptr::eq(service.protocol, protocol)
        };
        let index = self.services.iter().position(same).unwrap_or_else(|| {
            self.services.push(ServiceStatistics::new(name, protocol, self.statements_max));
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

    /// Histograms of all services since the last call, in the order of the services.
    pub(crate) fn take_interval(&mut self) -> Vec<ServiceInterval> {
        self.services.iter_mut().map(ServiceStatistics::take_interval).collect()
    }

    pub(crate) fn services_mut(&mut self) -> impl Iterator<Item = &mut ServiceStatistics> {
        self.services.iter_mut()
    }

    pub(crate) fn service_mut(&mut self, index: usize) -> &mut ServiceStatistics {
        &mut self.services[index]
    }
}
