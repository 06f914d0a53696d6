//! Series of a service: its labels, and the distributions and counters of an interval.

use std::sync::Arc;

use hist::Histogram;
use wire::{
    Completeness, InFlightSummary, OperationHistograms, OperationTotals, ServiceInterval,
    StatementStatistics,
};

use crate::metrics::{self, WireMetric, WireMetricKind};
use crate::pending_samples::{PendingSamples, WireLabels, WireSeries};
use crate::series_slots::{SeriesSlots, StatementName};
use crate::wait_proposals::WaitProposals;

/// Bytes of the label `statement`. All labels of a series have 16 KiB.
pub(crate) const STATEMENT_BYTES_MAX: usize = 12 << 10;
/// Bytes of the label `verb`, which clients choose.
pub(crate) const WORD_BYTES_MAX: usize = 256;
/// Label `statement` of all statements without series of their own.
const OTHER_STATEMENT: &str = "other";

/// A sample that is no distribution.
#[derive(Clone, Debug)]
pub(crate) struct NumberSample {
    pub(crate) metric: &'static WireMetric,
    pub(crate) labels: WireLabels,
    pub(crate) value: f64,
    /// Start of the count; the end of the interval for a gauge.
    pub(crate) start: i64,
}

impl NumberSample {
    pub(crate) fn is_gauge(&self) -> bool {
        self.metric.kind == WireMetricKind::Gauge
    }
}

/// Labels of a service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceLabels(WireLabels);

impl ServiceLabels {
    pub(crate) fn new(service: &str, protocol: &str) -> ServiceLabels {
        ServiceLabels(vec![("service", service.into()), ("protocol", protocol.into())])
    }

    fn with(&self, more: impl IntoIterator<Item = (&'static str, Arc<str>)>) -> WireLabels {
        self.0.iter().cloned().chain(more).collect()
    }

    fn series(&self, metric: &'static WireMetric) -> WireSeries {
        WireSeries { metric, labels: self.0.clone() }
    }
}

/// Adds the distributions of an interval that began at `start`. Returns how many operations are of
/// statements without series of their own.
pub(crate) fn add_distributions(
    pending: &mut PendingSamples,
    labels: &ServiceLabels,
    start: i64,
    interval: &ServiceInterval,
    slots: &SeriesSlots<StatementName>,
) -> u64 {
    let (mut other, mut all) = (interval.other.clone(), OperationHistograms::default());
    for statement in &interval.statements {
        let Some([verb, text, peer]) = slots.name(&statement_name(statement)) else {
            other.merge(statement);
            continue;
        };
        let mut own = vec![("verb", Arc::clone(verb)), ("statement", Arc::clone(text))];
        if !peer.is_empty() {
            own.push(("peer", Arc::clone(peer)));
        }
        add_statement(pending, labels, &own, start, statement, &mut all);
    }
    let own = [("statement", OTHER_STATEMENT.into()), ("overflow", "true".into())];
    add_statement(pending, labels, &own, start, &other, &mut all);
    let of_service: [(&'static WireMetric, &Histogram); 8] = [
        (&metrics::SERVER_LATENCY, &all.server),
        (&metrics::REQUEST_SIZE, &all.request_bytes),
        (&metrics::RESPONSE_SIZE, &all.response_bytes),
        (&metrics::RESPONSE_ROWS, &all.rows),
        (&metrics::CONNECT_LATENCY, &interval.connect),
        (&metrics::ROUND_TRIP_TIME, &interval.round_trip),
        (&metrics::ACKNOWLEDGEMENT_LATENCY, &interval.acknowledgement),
        (&metrics::CLIENT_THINK_TIME, &interval.client_think),
    ];
    for (metric, histogram) in of_service {
        pending.add(labels.series(metric), start, histogram);
    }
    other.operations() + other.waits.last_byte.count()
}

/// Adds the distributions of a statement, and all of its operations but waits to `all`.
fn add_statement(
    pending: &mut PendingSamples,
    labels: &ServiceLabels,
    own: &[(&'static str, Arc<str>)],
    start: i64,
    statement: &StatementStatistics,
    all: &mut OperationHistograms,
) {
    let ok = (vec![("outcome", Arc::from("ok"))], &statement.succeeded);
    let failed = statement.failed.iter().map(|(class, failed)| {
        (vec![("outcome", Arc::from("error")), ("error", Arc::from(&**class))], failed)
    });
    for (outcome, histograms) in std::iter::once(ok).chain(failed) {
        let labels = labels.with(own.iter().cloned().chain(outcome));
        let series = |metric| WireSeries { metric, labels: labels.clone() };
        let (last_byte, traced) = (&histograms.last_byte, &histograms.traced);
        pending.add_traced(series(&metrics::LATENCY), start, last_byte, traced);
        pending.add(series(&metrics::FIRST_BYTE_LATENCY), start, &histograms.first_byte);
        all.merge(histograms);
    }
    let waits = WireSeries { metric: &metrics::WAIT_LATENCY, labels: labels.with(own.to_vec()) };
    pending.add(waits, start, &statement.waits.last_byte);
}

/// Name of a statement as in the labels.
fn statement_name(statement: &StatementStatistics) -> StatementName {
    let verb = truncate(&statement.verb, WORD_BYTES_MAX);
    let text = truncate(&statement.statement, STATEMENT_BYTES_MAX);
    [verb.into(), text.into(), (*statement.peer).into()]
}

/// Statements of an interval and their weight for [`SeriesSlots`]: the time of operations, and a
/// nanosecond for each, because waits have no time.
pub(crate) fn statement_weights(interval: &ServiceInterval) -> Vec<(StatementName, f64)> {
    let weight = |statement: &StatementStatistics| {
        let operations = statement.operations() + statement.waits.last_byte.count();
        (statement_name(statement), statement.total_time_ns as f64 + operations as f64)
    };
    interval.statements.iter().map(weight).collect()
}

/// The longest start of a text that has at most `bytes_max` bytes.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// State of a service at the end of an interval, beside its statistics.
pub(crate) struct ServiceSnapshot<'a> {
    pub(crate) completeness: &'a Completeness,
    pub(crate) totals: &'a OperationTotals,
    pub(crate) labels: &'a ServiceLabels,
    pub(crate) in_flight: InFlightTotals,
    pub(crate) overflow_operations: u64,
    pub(crate) statements: usize,
    pub(crate) statements_limit: usize,
    pub(crate) proposals: &'a WaitProposals,
}

/// Requests of a service in flight, apart for work and for waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlightTotals {
    /// Number, and start of the oldest one.
    work: (u64, Option<u64>),
    waits: (u64, Option<u64>),
}

impl InFlightTotals {
    /// Totals of the service with this index.
    pub(crate) fn new(service: usize, summaries: &[InFlightSummary]) -> InFlightTotals {
        let mut totals = InFlightTotals::default();
        for summary in summaries.iter().filter(|summary| summary.service == service) {
            let (requests, oldest) =
                if summary.is_wait { &mut totals.waits } else { &mut totals.work };
            *requests += summary.requests;
            *oldest = Some(oldest.map_or(summary.oldest, |oldest| oldest.min(summary.oldest)));
        }
        totals
    }
}

/// Adds the counters, which started at `began`, and the gauges at `end`.
pub(crate) fn add_numbers(
    samples: &mut Vec<NumberSample>,
    state: &ServiceSnapshot<'_>,
    began: i64,
    end: i64,
) {
    let labels = state.labels;
    let counted = counters(state).into_iter().chain(labelled_counters(state));
    samples.extend(counted.map(|(metric, own, count)| NumberSample {
        metric,
        labels: labels.with(own),
        value: count as f64,
        start: began,
    }));
    let mut gauge = |metric, own: WireLabels, value| {
        samples.push(NumberSample { metric, labels: labels.with(own), value, start: end });
    };
    for (wait, (requests, oldest)) in
        [("false", state.in_flight.work), ("true", state.in_flight.waits)]
    {
        let own: WireLabels = vec![("wait", wait.into())];
        let age_ns = oldest.map_or(0, |oldest| end.max(0).unsigned_abs().saturating_sub(oldest));
        gauge(&metrics::IN_FLIGHT, own.clone(), requests as f64);
        gauge(&metrics::OLDEST_IN_FLIGHT, own, age_ns as f64 / 1e9);
    }
    for ((verb, statement), proposed) in state.proposals.proposals() {
        let named = [("verb", verb), ("statement", statement)];
        // A label has a value.
        let named = named.into_iter().filter(|(_, value)| !value.is_empty());
        let own = named.map(|(name, value)| (name, Arc::clone(value))).collect();
        gauge(&metrics::PROPOSED_WAIT, own, proposed.timeout.as_secs_f64());
    }
    gauge(&metrics::STATEMENTS, Vec::new(), state.statements as f64);
    gauge(&metrics::STATEMENTS_LIMIT, Vec::new(), state.statements_limit as f64);
}

/// Metric, labels beside those of the service, count.
type CounterSample = (&'static WireMetric, WireLabels, u64);

fn counters(state: &ServiceSnapshot<'_>) -> Vec<CounterSample> {
    let (found, totals) = (state.completeness, state.totals);
    let in_flight = state.in_flight.work.0 + state.in_flight.waits.0;
    let requests = found.measured + found.not_measured.total() + in_flight;
    let counts: [(&'static WireMetric, u64); 21] = [
        (&metrics::REQUESTS, requests),
        (&metrics::MEASURED, found.measured),
        (&metrics::WAITS, found.waits),
        (&metrics::ROWS, totals.rows),
        (&metrics::REQUEST_BYTES, totals.request_bytes),
        (&metrics::RESPONSE_BYTES, totals.response_bytes),
        (&metrics::OVERFLOW, state.overflow_operations),
        (&metrics::PACKETS, found.packets),
        (&metrics::PAYLOAD_BYTES, found.payload_bytes),
        (&metrics::RETRANSMITTED_SEGMENTS, found.retransmitted_segments),
        (&metrics::REORDERED_SEGMENTS, found.reordered_segments),
        (&metrics::IMPLAUSIBLE_SEGMENTS, found.implausible_segments),
        (&metrics::GAPS, found.gaps),
        (&metrics::GAP_BYTES, found.gap_bytes),
        (&metrics::RESYNCS, found.resyncs),
        (&metrics::UNPARSED_BYTES, found.unparsed_bytes),
        (&metrics::ENCRYPTED_CONNECTIONS, found.encrypted_connections),
        (&metrics::ENCRYPTED_BYTES, found.encrypted_bytes),
        (&metrics::TLS_SESSIONS, found.library_sessions),
        (&metrics::TLS_BYTES, found.library_bytes),
        (&metrics::UNMEASURABLE_CONNECTIONS, found.unmeasurable_connections),
    ];
    counts.into_iter().map(|(metric, count)| (metric, Vec::new(), count)).collect()
}

/// Counters with labels of their own.
fn labelled_counters(state: &ServiceSnapshot<'_>) -> Vec<CounterSample> {
    let found = state.completeness;
    let mut counts = Vec::new();
    let mut add = |metric, name, value: &str, count| {
        counts.push((metric, vec![(name, value.into())], count));
    };
    for (reason, count) in found.not_measured.by_reason() {
        add(&metrics::NOT_MEASURED, "reason", reason, count);
    }
    for (class, count) in &state.totals.errors {
        add(&metrics::ERRORS, "error", class, *count);
    }
    add(&metrics::CONNECTIONS, "start", "first", found.connections_from_start);
    add(&metrics::CONNECTIONS, "start", "middle", found.connections_from_middle);
    add(&metrics::CONNECTIONS, "start", "refused", found.connections_refused);
    add(&metrics::FORGOTTEN_CONNECTIONS, "reason", "limit", found.evicted_connections);
    add(&metrics::FORGOTTEN_CONNECTIONS, "reason", "idle", found.idle_connections);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(truncate("häh", 1), "h");
        assert_eq!(truncate("häh", 2), "h");
        assert_eq!(truncate("häh", 3), "hä");
        assert_eq!(truncate("häh", 99), "häh");
    }

    #[test]
    fn the_oldest_request_is_of_its_service_and_kind() {
        let summary = |service, is_wait, requests, oldest| InFlightSummary {
            service,
            verb: String::new(),
            statement: String::new(),
            is_wait,
            requests,
            oldest,
        };
        let summaries = [
            summary(0, false, 1, 50),
            summary(1, false, 2, 70),
            summary(1, false, 3, 60),
            summary(1, true, 4, 10),
        ];
        let found = InFlightTotals::new(1, &summaries);
        assert_eq!(found, InFlightTotals { work: (5, Some(60)), waits: (4, Some(10)) });
        assert_eq!(InFlightTotals::new(2, &summaries), InFlightTotals::default());
    }
}
