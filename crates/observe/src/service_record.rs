//! What is known of a service since it was first seen: cumulative counts, and the statements and
//! clients with series of their own.

use std::collections::HashMap;
use std::sync::Arc;

use wire::{Completeness, InFlightSummary, OperationTotals, ServiceInterval};

use crate::operation_series::{
    InFlightTotals, NumberSample, ServiceLabels, ServiceSnapshot, add_numbers, statement_weights,
};
use crate::series_slots::{SeriesSlots, StatementName};
use crate::settings::CaptureSettings;
use crate::wait_proposals::WaitProposals;

pub(crate) struct ServiceRecord {
    name: String,
    protocol: &'static str,
    /// Names of the services of threads that are counted here.
    servers: Vec<String>,
    /// Whether the record is one of those that `max_servers` limits.
    is_limited: bool,
    labels: ServiceLabels,
    completeness: Completeness,
    totals: OperationTotals,
    /// Start of the counts.
    began: i64,
    slots: SeriesSlots<StatementName>,
    /// Clients with a label; `None` if clients are not told apart.
    peers: Option<SeriesSlots<Arc<str>>>,
    overflow_operations: u64,
    statements_limit: usize,
    proposals: WaitProposals,
}

impl ServiceRecord {
    /// A service that was first seen in an interval that began at `start`.
    pub(crate) fn new(
        name: String,
        service: &ServiceInterval,
        settings: &CaptureSettings,
        start: i64,
    ) -> ServiceRecord {
        let protocol = service.protocol.name;
        ServiceRecord {
            labels: ServiceLabels::new(&name, protocol),
            is_limited: !service.is_named && name != service.other_servers_name(),
            servers: vec![service.name.clone()],
            name,
            protocol,
            completeness: Completeness::default(),
            totals: OperationTotals::default(),
            began: start,
            slots: SeriesSlots::new(settings.statements_max),
            peers: settings.peers.map(|peers| SeriesSlots::new(peers.peers_max)),
            overflow_operations: 0,
            statements_limit: settings.statements_max,
            proposals: WaitProposals::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn protocol(&self) -> &'static str {
        self.protocol
    }

    /// Whether the record is one of those that `max_servers` limits: neither of a named service
    /// nor that of all servers beyond the limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited
    }

    pub(crate) fn has_name(&self, name: &str, protocol: &str) -> bool {
        self.name == name && self.protocol == protocol
    }

    /// Whether a service of a thread is counted here. It is until no thread has it any more:
    /// otherwise its requests in flight would be missing in the one record, and twice in the other.
    pub(crate) fn is_of(&self, service: &ServiceInterval) -> bool {
        self.protocol == service.protocol.name && self.servers.contains(&service.name)
    }

    /// Names and protocol of the services that are counted here.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.servers.iter().map(|name| (name.as_str(), self.protocol))
    }

    /// Counts a service of a thread here.
    pub(crate) fn add_server(&mut self, name: &str) {
        self.servers.push(name.to_owned());
    }

    /// Removes the services that no thread has any more. Returns whether there are others.
    pub(crate) fn retain_servers(&mut self, is_known: impl Fn(&str, &str) -> bool) -> bool {
        self.servers.retain(|name| is_known(name, self.protocol));
        !self.servers.is_empty()
    }

    pub(crate) fn completeness(&self) -> &Completeness {
        &self.completeness
    }

    /// Statements that are proposed as waits.
    pub(crate) fn proposals(&self) -> &WaitProposals {
        &self.proposals
    }

    pub(crate) fn labels(&self) -> &ServiceLabels {
        &self.labels
    }

    pub(crate) fn slots(&self) -> &SeriesSlots<StatementName> {
        &self.slots
    }

    /// Bytes of the texts of statements with series of their own.
    pub(crate) fn text_bytes(&self) -> usize {
        self.slots.text_bytes()
    }

    pub(crate) fn add_overflow(&mut self, operations: u64) {
        self.overflow_operations += operations;
    }

    /// Adds the counts of an interval that ends at `end`, assigns slots, and renames classes of
    /// errors and clients as the service has them. Unless `admits`, nothing gets a new slot.
    pub(crate) fn update(
        &mut self,
        interval: &mut ServiceInterval,
        end: i64,
        admits: bool,
        free_bytes: &mut usize,
    ) {
        self.completeness.merge(&interval.completeness);
        self.totals.merge(&interval.totals);
        self.proposals.add(interval);
        interval.rename_error_classes(&self.totals);
        if let Some(peers) = &mut self.peers {
            // Names of clients are short.
            let mut free_bytes = usize::MAX;
            peers.update(end, &peer_weights(interval), admits, &mut free_bytes);
            interval.rename_other_peers(|peer| peers.contains(peer));
        }
        self.slots.update(end, &statement_weights(interval), admits, free_bytes);
    }

    /// Adds counters and gauges of an interval. `index` is that of the record in `in_flight`.
    pub(crate) fn add_numbers(
        &mut self,
        samples: &mut Vec<NumberSample>,
        index: usize,
        in_flight: &[InFlightSummary],
        start: i64,
        end: i64,
    ) {
        self.began = self.began.min(start);
        let snapshot = ServiceSnapshot {
            completeness: &self.completeness,
            totals: &self.totals,
            labels: &self.labels,
            in_flight: InFlightTotals::new(index, in_flight),
            overflow_operations: self.overflow_operations,
            statements: self.slots.len(),
            statements_limit: self.statements_limit,
            proposals: &self.proposals,
        };
        add_numbers(samples, &snapshot, self.began, end);
    }
}

/// Clients of an interval and the time of their operations, as in [`statement_weights`].
fn peer_weights(interval: &ServiceInterval) -> Vec<(Arc<str>, f64)> {
    let mut weights: HashMap<&str, f64> = HashMap::new();
    for statement in interval.statements.iter().filter(|found| *found.peer != *wire::OTHER_PEERS) {
        let operations = statement.operations() + statement.waits.last_byte.count();
        *weights.entry(&statement.peer).or_default() +=
            statement.total_time_ns as f64 + operations as f64;
    }
    weights.into_iter().map(|(peer, weight)| (peer.into(), weight)).collect()
}
