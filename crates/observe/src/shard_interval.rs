//! What one thread of the capture has measured in an interval.

use wire::{
    CaptureTotals, FingerprintCacheCounts, InFlightSummary, RingStatistics, ServiceInterval,
};

/// An interval of one thread, or of several that were merged.
#[derive(Default)]
pub(crate) struct ShardInterval {
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Threads whose intervals were merged.
    pub(crate) shards: usize,
    pub(crate) services: Vec<ServiceInterval>,
    pub(crate) counts: ShardCounts,
    pub(crate) state: ShardState,
}

/// Counts of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardCounts {
    pub(crate) ring: RingStatistics,
    pub(crate) totals: CaptureTotals,
    pub(crate) cache: FingerprintCacheCounts,
    /// Servers without packets that were forgotten.
    pub(crate) forgotten_servers: u64,
    /// How often the clock was set back so far that rows have earlier times than others before.
    pub(crate) clock_steps: u64,
}

/// State at the end of an interval.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShardState {
    /// Requests in flight; `service` is an index of the services of the interval.
    pub(crate) in_flight: Vec<InFlightSummary>,
    pub(crate) open_connections: usize,
    pub(crate) connection_memory: usize,
    pub(crate) statement_memory: usize,
}

impl ShardCounts {
    pub(crate) fn merge(&mut self, other: &ShardCounts) {
        self.ring.packets += other.ring.packets;
        self.ring.drops += other.ring.drops;
        self.ring.freezes += other.ring.freezes;
        self.totals.merge(&other.totals);
        self.cache.hits += other.cache.hits;
        self.cache.misses += other.cache.misses;
        self.forgotten_servers += other.forgotten_servers;
        self.clock_steps += other.clock_steps;
    }
}

impl ShardInterval {
    /// Adds what another thread has measured in the same time.
    pub(crate) fn merge(&mut self, mut other: ShardInterval) {
        self.merge_services(&mut other);
        self.shards += other.shards;
        let state = &mut self.state;
        state.in_flight.append(&mut other.state.in_flight);
        state.open_connections += other.state.open_connections;
        state.connection_memory += other.state.connection_memory;
        state.statement_memory += other.state.statement_memory;
    }

    /// Adds a later interval of the same threads.
    pub(crate) fn append(&mut self, mut later: ShardInterval) {
        self.merge_services(&mut later);
        self.state = later.state;
    }

    /// Adds services and counts; then the requests in flight of `other` have the new indexes.
    fn merge_services(&mut self, other: &mut ShardInterval) {
        (self.start, self.end) = (self.start.min(other.start), self.end.max(other.end));
        self.counts.merge(&other.counts);
        let mut indexes = Vec::with_capacity(other.services.len());
        for service in other.services.drain(..) {
            let is_same = |found: &ServiceInterval| {
                found.name == service.name && found.protocol.name == service.protocol.name
            };
            let found = self.services.iter().position(is_same);
            indexes.push(found.unwrap_or(self.services.len()));
            match found {
                Some(index) => self.services[index].merge(service),
                None => self.services.push(service),
            }
        }
        for summary in &mut other.state.in_flight {
            summary.service = indexes[summary.service];
        }
    }
}
