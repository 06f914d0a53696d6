//! What one thread of the capture has measured in an interval, and its state at the end.

use protocol::observer::ObservedProtocol;
use wire::{
    CaptureTotals, FingerprintCacheCounts, InFlightSummary, RingStatistics, ServiceInterval,
    TlsTotals,
};

use crate::settings::StatementLimits;

/// An interval of one thread.
pub(crate) struct ShardInterval {
    pub(crate) measured: MeasuredInterval,
    /// State at the end.
    pub(crate) state: ShardState,
}

/// What one thread, or several, have measured in an interval.
#[derive(Default)]
pub(crate) struct MeasuredInterval {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) services: Vec<ServiceInterval>,
    pub(crate) counts: ShardCounts,
}

/// Counts of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardCounts {
    pub(crate) ring: RingStatistics,
    pub(crate) totals: CaptureTotals,
    /// What was read at TLS libraries.
    pub(crate) tls: TlsTotals,
    /// Chunks of plaintext that were lost.
    pub(crate) lost_tls_events: u64,
    pub(crate) cache: FingerprintCacheCounts,
}

/// A service that a thread observes.
#[derive(Clone)]
pub(crate) struct ObservedService {
    pub(crate) name: String,
    pub(crate) is_named: bool,
    pub(crate) protocol: &'static ObservedProtocol,
}

/// State of a thread at the end of an interval.
#[derive(Clone, Default)]
pub(crate) struct ShardState {
    /// All services of the thread.
    pub(crate) services: Vec<ObservedService>,
    /// Requests in flight; `service` is an index of `services`.
    pub(crate) in_flight: Vec<InFlightSummary>,
    pub(crate) open_connections: usize,
    pub(crate) connection_memory: usize,
    pub(crate) statement_memory: usize,
    /// How often the clock was set back so far that rows have earlier times than others before,
    /// since the start of the capture.
    pub(crate) clock_steps: u64,
}

impl ObservedService {
    pub(crate) fn of(interval: &ServiceInterval) -> ObservedService {
        let ServiceInterval { name, is_named, protocol, .. } = interval;
        ObservedService { name: name.clone(), is_named: *is_named, protocol }
    }
}

impl ShardCounts {
    pub(crate) fn merge(&mut self, other: &ShardCounts) {
        self.ring.packets += other.ring.packets;
        self.ring.drops += other.ring.drops;
        self.ring.freezes += other.ring.freezes;
        self.totals.merge(&other.totals);
        self.tls.merge(&other.tls);
        self.lost_tls_events += other.lost_tls_events;
        self.cache.hits += other.cache.hits;
        self.cache.misses += other.cache.misses;
    }
}

impl MeasuredInterval {
    /// Adds what was measured in another interval, or by another thread. The end stays.
    pub(crate) fn merge(&mut self, other: MeasuredInterval) {
        self.start = self.start.min(other.start);
        self.counts.merge(&other.counts);
        for service in other.services {
            let is_same = |found: &ServiceInterval| {
                found.name == service.name && found.protocol.name == service.protocol.name
            };
            match self.services.iter().position(is_same) {
                Some(index) => self.services[index].merge(service),
                None => self.services.push(service),
            }
        }
    }

    /// Adds what the same thread has measured before, for an interval that waits: it has the limits
    /// of one interval, however many are joined.
    pub(crate) fn join(&mut self, before: MeasuredInterval, limits: StatementLimits) {
        self.merge(before);
        let mut free_bytes = limits.text_bytes_max;
        for service in &mut self.services {
            service.limit(limits.statements_max, &mut free_bytes);
        }
    }
}

impl ShardState {
    /// Requests in flight as requests that are not measured: those of a thread that started anew.
    pub(crate) fn lost_requests(&self) -> Vec<ServiceInterval> {
        let mut lost = vec![0; self.services.len()];
        for summary in &self.in_flight {
            lost[summary.service] += summary.requests;
        }
        let services = self.services.iter().zip(lost).filter(|(_, requests)| *requests > 0);
        let interval = |(service, requests): (&ObservedService, _)| {
            let ObservedService { name, is_named, protocol } = service;
            let mut service = ServiceInterval::new(name.clone(), *is_named, protocol);
            service.completeness.not_measured.gap = requests;
            service
        };
        services.map(interval).collect()
    }
}
