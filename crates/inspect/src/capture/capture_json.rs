//! The report as JSON. Schema: `docs/wire.md`.

use hist::{Histogram, Mixture};
use render::json::Json::{self, Bool, List, Map, Null, Object, Text};
use render::json::{integer, statistics};
use wire::{
    CaptureTotals, Completeness, ConnectionTracker, KeyLogCounts, OperationHistograms,
    ProposedWait, ServiceStatistics, StatementStatistics, TlsTotals, TrafficCounter,
    UndecodedReason,
};

use super::{CaptureSummary, TlsSummary};

const SCHEMA: u64 = 1;

/// The whole report.
pub fn capture_json(tracker: &ConnectionTracker, summary: &CaptureSummary) -> Json {
    let in_flight = tracker.in_flight();
    let pending = |index: usize| {
        let own = in_flight.iter().filter(|summary| summary.service == index);
        own.map(|summary| summary.requests).sum()
    };
    let services = tracker.services().iter().enumerate();
    let services = services.map(|(index, service)| service_json(service, pending(index)));
    let requests = in_flight.iter().map(|summary| {
        Object(vec![
            ("service", Text(tracker.services()[summary.service].name.clone())),
            ("verb", Text(summary.verb.clone())),
            ("statement", Text(summary.statement.clone())),
            ("wait", Bool(summary.is_wait)),
            ("requests", integer(summary.requests)),
            ("oldest_ns", integer(summary.oldest)),
        ])
    });
    let (first, last) =
        tracker.time_range().map_or((Null, Null), |(first, last)| (integer(first), integer(last)));
    Object(vec![
        ("schema", integer(SCHEMA)),
        ("source", Text(summary.source.clone())),
        ("first_ns", first),
        ("last_ns", last),
        ("truncated", Bool(summary.is_truncated)),
        ("reported_drops", integer(summary.reported_drops)),
        ("packets", packets_json(tracker.totals())),
        ("tls", summary.tls.as_ref().map_or(Null, |tls| tls_json(tls, tracker.tls_totals()))),
        ("key_log", summary.key_log.as_ref().map_or(Null, key_log_json)),
        ("services", List(services.collect())),
        ("in_flight", List(requests.collect())),
    ])
}

fn packets_json(totals: &CaptureTotals) -> Json {
    let undecoded = UndecodedReason::ALL.iter().zip(totals.undecoded);
    let undecoded =
        undecoded.map(|(reason, packets)| (reason.label().to_owned(), integer(packets)));
    let traffic = |of: TrafficCounter| {
        Object(vec![("packets", integer(of.packets)), ("bytes", integer(of.bytes))])
    };
    Object(vec![
        ("all", integer(totals.packets)),
        ("undecoded", Map(undecoded.collect())),
        ("without_time", integer(totals.without_time)),
        ("without_connection", integer(totals.idle_packets)),
        ("other_tcp", traffic(totals.other_tcp)),
        ("other_udp", traffic(totals.other_udp)),
    ])
}

fn key_log_json(counts: &KeyLogCounts) -> Json {
    let failures = counts.failures.iter();
    let failures = failures.map(|(reason, count)| ((*reason).to_owned(), integer(*count)));
    Object(vec![
        ("sessions", integer(counts.sessions)),
        ("bytes", integer(counts.bytes)),
        ("not_decrypted", Map(failures.collect())),
    ])
}

fn tls_json(summary: &TlsSummary, totals: &TlsTotals) -> Json {
    let texts = |all: &[String]| List(all.iter().cloned().map(Text).collect());
    Object(vec![
        ("files", texts(&summary.files)),
        ("left_out", texts(&summary.left_out.files)),
        ("left_out_count", integer(summary.left_out.count)),
        ("sessions", integer(totals.sessions)),
        ("bytes", integer(totals.bytes)),
        ("without_socket_bytes", integer(totals.without_socket_bytes)),
        ("without_service_bytes", integer(totals.without_service_bytes)),
        ("other_end_bytes", integer(totals.other_end_bytes)),
        ("lost_events", integer(summary.lost_events)),
    ])
}

fn service_json(service: &ServiceStatistics, in_flight: u64) -> Json {
    let statements = service.statements.statements();
    Object(vec![
        ("service", Text(service.name.clone())),
        ("protocol", Text(service.protocol.name.to_owned())),
        ("completeness", completeness_json(&service.completeness, in_flight)),
        ("total", statement_json(&service.statements.total())),
        ("connect_ns", distribution(&service.connect)),
        ("round_trip_ns", distribution(&service.round_trip)),
        ("acknowledgement_ns", distribution(&service.acknowledgement)),
        ("client_think_ns", distribution(&service.client_think)),
        ("statements", List(statements.into_iter().map(statement_json).collect())),
        ("other", statement_json(service.statements.other())),
        ("statements_max", integer(service.statements.limit() as u64)),
        ("merged_statements", integer(service.statements.merged_statements())),
    ])
}

fn completeness_json(found: &Completeness, in_flight: u64) -> Json {
    let reasons = found.not_measured.by_reason();
    let reasons = reasons.map(|(reason, requests)| (reason.to_owned(), integer(requests)));
    let requests = found.measured + found.not_measured.total() + in_flight;
    Object(vec![
        ("requests", integer(requests)),
        ("measured", integer(found.measured)),
        ("waits", integer(found.waits)),
        ("not_measured", Map(reasons.into())),
        ("in_flight", integer(in_flight)),
        ("packets", integer(found.packets)),
        ("payload_bytes", integer(found.payload_bytes)),
        ("connections_from_start", integer(found.connections_from_start)),
        ("connections_from_middle", integer(found.connections_from_middle)),
        ("connections_refused", integer(found.connections_refused)),
        ("gaps", integer(found.gaps)),
        ("gap_bytes", integer(found.gap_bytes)),
        ("resyncs", integer(found.resyncs)),
        ("unparsed_bytes", integer(found.unparsed_bytes)),
        ("encrypted_connections", integer(found.encrypted_connections)),
        ("encrypted_bytes", integer(found.encrypted_bytes)),
        ("tls_sessions", integer(found.library_sessions)),
        ("tls_bytes", integer(found.library_bytes)),
        ("unmeasurable_connections", integer(found.unmeasurable_connections)),
        ("evicted_connections", integer(found.evicted_connections)),
        ("idle_connections", integer(found.idle_connections)),
        ("retransmitted_segments", integer(found.retransmitted_segments)),
        ("reordered_segments", integer(found.reordered_segments)),
        ("implausible_segments", integer(found.implausible_segments)),
    ])
}

fn statement_json(of: &StatementStatistics) -> Json {
    let failed =
        of.failed.iter().map(|(class, failed)| (class.to_string(), operations_json(failed)));
    let total_ns = i128::try_from(of.total_time_ns).unwrap_or(i128::MAX);
    // Not of several statements together.
    let proposal = of.timeouts.proposal().filter(|_| !of.verb.is_empty());
    Object(vec![
        ("verb", Text(of.verb.to_string())),
        ("statement", Text(of.statement.to_string())),
        ("operations", integer(of.operations())),
        ("errors", integer(of.errors())),
        ("total_time_ns", Json::Integer(total_ns)),
        ("succeeded", operations_json(&of.succeeded)),
        ("failed", Map(failed.collect())),
        ("waits", operations_json(&of.waits)),
        ("proposed_wait", proposal.map_or(Null, proposal_json)),
    ])
}

fn proposal_json(of: ProposedWait) -> Json {
    Object(vec![
        ("timeout_ns", integer(of.timeout.as_nanos() as u64)),
        ("operations", integer(of.operations)),
        ("long_operations", integer(of.long_operations)),
    ])
}

fn operations_json(of: &OperationHistograms) -> Json {
    if of.last_byte.is_empty() {
        return Null;
    }
    Object(vec![
        ("last_byte_ns", distribution(&of.last_byte)),
        ("first_byte_ns", distribution(&of.first_byte)),
        ("server_ns", distribution(&of.server)),
        ("request_bytes", distribution(&of.request_bytes)),
        ("response_bytes", distribution(&of.response_bytes)),
        ("rows", distribution(&of.rows)),
    ])
}

/// Count, sum, quantiles and cells; `null` without values.
pub(crate) fn distribution(histogram: &Histogram) -> Json {
    if histogram.is_empty() {
        return Null;
    }
    let mut mixture = Mixture::default();
    let added = mixture.add(histogram);
    assert!(added.is_ok(), "BUG: an empty mixture takes any histogram: {added:?}");
    let mut fields = statistics::distribution(&mixture);
    let quantiles = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];
    fields.extend(quantiles.map(|(name, q)| (name, statistics::statistic(histogram.quantile(q)))));
    Object(fields)
}
