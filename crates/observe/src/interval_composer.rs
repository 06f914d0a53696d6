//! Series of an interval: cumulative counts, statements with series of their own, status.

use std::collections::{HashMap, HashSet};

use wire::{InFlightSummary, ServiceInterval, UndecodedReason};

use crate::capture_status::CaptureStatus;
use crate::interval_queue::{IntervalQueue, QueuedIntervals};
use crate::metrics::{self, WireMetric};
use crate::operation_series::{NumberSample, add_distributions};
use crate::service_record::ServiceRecord;
use crate::settings::CaptureSettings;
use crate::shard_interval::{MeasuredInterval, ShardCounts, ShardState};

/// Memory of the texts of statements with series of their own, of all services, in bytes.
const STATEMENT_TEXT_BYTES_MAX: usize = 16 << 20;

/// Writes merged intervals to the queue.
pub(crate) struct IntervalComposer {
    settings: CaptureSettings,
    records: Vec<ServiceRecord>,
    /// Start of the counters.
    began: i64,
    /// Counts since then.
    counts: ShardCounts,
    forgotten_servers: u64,
    queue: IntervalQueue,
    status: CaptureStatus,
}

impl IntervalComposer {
    /// A composer of a capture that starts at `began`.
    pub(crate) fn new(
        settings: &CaptureSettings,
        began: i64,
        queue: IntervalQueue,
        status: CaptureStatus,
    ) -> IntervalComposer {
        let (settings, records, counts) = (settings.clone(), Vec::new(), ShardCounts::default());
        let forgotten_servers = 0;
        IntervalComposer { settings, records, began, counts, forgotten_servers, queue, status }
    }

    /// No interval follows.
    pub(crate) fn finish(&mut self) {
        self.status.set_stopped();
        self.queue.close();
    }

    pub(crate) fn add_gap(&mut self, start: i64, end: i64, reason: &str) {
        let mut intervals = QueuedIntervals::default();
        intervals.add_gap(start.min(end), end, reason.to_owned());
        self.queue.push(intervals);
    }

    /// Adds a row: what was measured since the one before, and the states of all threads.
    pub(crate) fn add(&mut self, measured: MeasuredInterval, states: &[&ShardState]) {
        let MeasuredInterval { start, end, services, counts } = measured;
        let start = start.min(end);
        // After the clock was set back, counters have one start, not another one in each row.
        self.began = self.began.min(start);
        self.counts.merge(&counts);
        let mut intervals = QueuedIntervals { end: Some(end), ..QueuedIntervals::default() };
        // First, so that new servers have the places of those that are forgotten.
        self.forget_records(&services, states);
        let services = self.assign_records(services, start);
        let in_flight = self.in_flight(states);
        self.add_services(&mut intervals, services, start, end);
        for (index, record) in self.records.iter_mut().enumerate() {
            record.add_numbers(&mut intervals.numbers, index, &in_flight, start, end);
        }
        self.add_capture(&mut intervals.numbers, states, end);
        let ShardCounts { ring, tls, lost_tls_events, .. } = &self.counts;
        self.status.set_interval(end, &self.records, &in_flight, *ring, tls, *lost_tls_events);
        self.queue.push(intervals);
    }

    /// Services by index of their record.
    fn assign_records(
        &mut self,
        services: Vec<ServiceInterval>,
        start: i64,
    ) -> Vec<Option<ServiceInterval>> {
        let mut own: Vec<Option<ServiceInterval>> = self.records.iter().map(|_| None).collect();
        for service in services {
            let index = self.record_index(&service, start);
            own.resize_with(self.records.len(), || None);
            match &mut own[index] {
                Some(found) => found.merge(service),
                free => *free = Some(service),
            }
        }
        own
    }

    /// Removes the records of services that no thread has any more.
    fn forget_records(&mut self, services: &[ServiceInterval], states: &[&ShardState]) {
        let of_states = states.iter().flat_map(|state| &state.services);
        let of_states = of_states.map(|service| (service.name.as_str(), service.protocol.name));
        let of_row = services.iter().map(|service| (service.name.as_str(), service.protocol.name));
        let known: HashSet<(&str, &str)> = of_states.chain(of_row).collect();
        let before = self.records.len();
        self.records.retain_mut(|record| {
            record.retain_servers(|name, protocol| known.contains(&(name, protocol)))
        });
        self.forgotten_servers += (before - self.records.len()) as u64;
    }

    /// Requests in flight of all threads, by index of their record, oldest first.
    fn in_flight(&self, states: &[&ShardState]) -> Vec<InFlightSummary> {
        let all = self.records.iter().enumerate();
        let indexes: HashMap<(&str, &str), usize> =
            all.flat_map(|(index, record)| record.servers().map(move |of| (of, index))).collect();
        let mut summaries = Vec::new();
        for state in states {
            for summary in &state.in_flight {
                let service = &state.services[summary.service];
                let Some(index) = indexes.get(&(service.name.as_str(), service.protocol.name))
                else {
                    panic!("BUG: service {} has requests in flight and no record", service.name)
                };
                summaries.push(InFlightSummary { service: *index, ..summary.clone() });
            }
        }
        merge_in_flight(summaries)
    }

    /// Index of the record of a service. Threads may have seen different servers: those beyond the
    /// limit share one record.
    fn record_index(&mut self, service: &ServiceInterval, start: i64) -> usize {
        if let Some(found) = self.records.iter().position(|record| record.is_of(service)) {
            return found;
        }
        let limited = self.records.iter().filter(|record| record.is_limited()).count();
        let other = service.other_servers_name();
        let is_beyond = !service.is_named && limited >= self.settings.servers_max;
        let name = if is_beyond { other } else { service.name.clone() };
        let is_same = |record: &ServiceRecord| record.has_name(&name, service.protocol.name);
        if let Some(found) = self.records.iter().position(is_same) {
            self.records[found].add_server(&service.name);
            return found;
        }
        self.records.push(ServiceRecord::new(name, service, &self.settings, start));
        self.records.len() - 1
    }

    /// Adds the distributions of all services.
    fn add_services(
        &mut self,
        intervals: &mut QueuedIntervals,
        services: Vec<Option<ServiceInterval>>,
        start: i64,
        end: i64,
    ) {
        let admits = !self.queue.is_backlogged();
        let bytes: usize = self.records.iter().map(ServiceRecord::text_bytes).sum();
        let mut free_bytes = STATEMENT_TEXT_BYTES_MAX.saturating_sub(bytes);
        for (record, service) in self.records.iter_mut().zip(services) {
            let Some(mut service) = service else { continue };
            record.update(&mut service, end, admits, &mut free_bytes);
            let distributions = &mut intervals.distributions;
            let (labels, slots) = (record.labels(), record.slots());
            let overflow = add_distributions(distributions, labels, start, &service, slots);
            record.add_overflow(overflow);
        }
    }

    /// Adds counters and gauges of the capture.
    fn add_capture(&self, samples: &mut Vec<NumberSample>, states: &[&ShardState], end: i64) {
        let mut add =
            |metric: &'static WireMetric, label: Option<(&'static str, &str)>, n, start| {
                let labels = label.map(|(name, value)| (name, value.into()));
                let labels = labels.into_iter().collect();
                samples.push(NumberSample { metric, labels, value: n as f64, start });
            };
        let ShardCounts { ring, totals, tls, lost_tls_events, cache } = &self.counts;
        // All threads have seen the same steps, some of them later.
        let clock_steps = states.iter().map(|state| state.clock_steps).max().unwrap_or(0);
        for (metric, count) in [
            (&metrics::CAPTURED_PACKETS, ring.packets),
            (&metrics::DROPPED_PACKETS, ring.drops),
            (&metrics::RING_FREEZES, ring.freezes),
            (&metrics::TLS_LOST_EVENTS, *lost_tls_events),
            (&metrics::FORGOTTEN_SERVERS, self.forgotten_servers),
            (&metrics::CLOCK_STEPS, clock_steps),
        ] {
            add(metric, None, count, self.began);
        }
        for (reason, count) in UndecodedReason::ALL.iter().zip(totals.undecoded) {
            add(&metrics::UNDECODED_PACKETS, Some(("reason", reason.label())), count, self.began);
        }
        let others = [("tcp", totals.other_tcp.packets), ("udp", totals.other_udp.packets)];
        for (transport, count) in others {
            add(&metrics::OTHER_PACKETS, Some(("transport", transport)), count, self.began);
        }
        for (reason, bytes) in [
            ("no_socket", tls.without_socket_bytes),
            ("no_service", tls.without_service_bytes),
            ("other_end", tls.other_end_bytes),
        ] {
            add(&metrics::TLS_UNMEASURED_BYTES, Some(("reason", reason)), bytes, self.began);
        }
        for (result, count) in [("hit", cache.hits), ("miss", cache.misses)] {
            add(&metrics::FINGERPRINT_LOOKUPS, Some(("result", result)), count, self.began);
        }
        let sum =
            |of: fn(&ShardState) -> usize| states.iter().map(|state| of(state)).sum::<usize>();
        for (metric, value) in [
            (&metrics::OPEN_CONNECTIONS, sum(|state| state.open_connections)),
            (&metrics::CONNECTION_MEMORY, sum(|state| state.connection_memory)),
            (&metrics::STATEMENT_MEMORY, sum(|state| state.statement_memory)),
        ] {
            add(metric, None, value as u64, end);
        }
    }
}

/// Requests of a statement as one, oldest first: those of several threads, or of several services
/// with one record.
fn merge_in_flight(mut summaries: Vec<InFlightSummary>) -> Vec<InFlightSummary> {
    let name =
        |of: &InFlightSummary| (of.service, of.verb.clone(), of.statement.clone(), of.is_wait);
    model::sort::by_key(&mut summaries, name);
    summaries.dedup_by(|later, kept| {
        let is_same = name(later) == name(kept);
        if is_same {
            kept.requests += later.requests;
            kept.oldest = kept.oldest.min(later.oldest);
        }
        is_same
    });
    // Stable: those of the same time stay in the order of their names.
    model::sort::by_key(&mut summaries, |summary| summary.oldest);
    summaries
}
