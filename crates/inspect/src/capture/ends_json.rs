//! The comparison of two captures as JSON. Schema: `docs/wire.md`.

use render::json::Json::{self, List, Null, Object, Text};
use render::json::integer;
use wire::{
    BoundedTimes, EndComparison, EndCounts, OffsetInterval, OffsetSummary, ServiceComparison,
};

use super::CaptureEnd;
use super::capture_json::distribution;

const SCHEMA: u64 = 1;

/// The whole comparison as JSON.
pub fn ends_json(comparison: &EndComparison, ends: &[CaptureEnd; 2]) -> Json {
    let captures = [0, 1].map(|end| {
        let CaptureEnd { tracker, summary } = &ends[end];
        Object(vec![
            ("source", Text(summary.source.clone())),
            ("packets", integer(tracker.totals().packets)),
            ("reported_drops", integer(summary.reported_drops)),
            ("truncated", Json::Bool(summary.is_truncated)),
            ("connections", integer(comparison.connections[end])),
            ("dropped_requests", integer(comparison.dropped_requests[end])),
        ])
    });
    let [client, server] = captures;
    Object(vec![
        ("schema", integer(SCHEMA)),
        ("client", client),
        ("server", server),
        ("shared_connections", integer(comparison.shared_connections)),
        ("clock_offset", comparison.offset.as_ref().map_or(Null, offset_json)),
        ("services", List(comparison.services.iter().map(service_json).collect())),
    ])
}

fn offset_json(offset: &OffsetSummary) -> Json {
    let interval = |of: &OffsetInterval| {
        Object(vec![
            ("time_ns", integer(of.time)),
            ("lower_ns", Json::Integer(of.lower.into())),
            ("upper_ns", Json::Integer(of.upper.into())),
        ])
    };
    Object(vec![
        ("first", interval(&offset.first)),
        ("last", interval(&offset.last)),
        ("narrowest", interval(&offset.narrowest)),
        ("width_ns", distribution(&offset.width)),
    ])
}

fn service_json(service: &ServiceComparison) -> Json {
    let [client, server] = &service.ends;
    let [latency_client, latency_server] = service.latency.each_ref().map(distribution);
    let [connect_client, connect_server] = service.connect.ends.each_ref().map(distribution);
    Object(vec![
        ("service", Text(service.name.clone())),
        ("protocol", Text(service.protocol.name.to_owned())),
        ("requests", integer(service.requests())),
        ("matched", integer(service.matched)),
        ("waits", integer(service.waits)),
        ("later_statements", integer(service.later_statements)),
        ("negative", integer(service.negative)),
        ("without_one_way", integer(service.without_one_way)),
        ("client", end_json(client)),
        ("server", end_json(server)),
        ("client_latency_ns", latency_client),
        ("server_latency_ns", latency_server),
        ("network_ns", distribution(&service.network)),
        ("to_server_ns", bounded_json(&service.to_server)),
        ("to_client_ns", bounded_json(&service.to_client)),
        ("first_server_ns", distribution(&service.first_server_time)),
        ("server_ns", distribution(&service.server_time)),
        ("client_connect_ns", connect_client),
        ("server_connect_ns", connect_server),
        ("network_connect_ns", distribution(&service.connect.network)),
    ])
}

fn end_json(counts: &EndCounts) -> Json {
    Object(vec![
        ("measured", integer(counts.measured)),
        ("not_measured", integer(counts.not_measured)),
        ("in_flight", integer(counts.in_flight)),
        ("unmatched", integer(counts.unmatched())),
        ("missing_connection", integer(counts.missing_connection)),
        ("missing_request", integer(counts.missing_request)),
        ("missing_sequence", integer(counts.missing_sequence)),
    ])
}

fn bounded_json(times: &BoundedTimes) -> Json {
    Object(vec![("least", distribution(&times.least)), ("most", distribution(&times.most))])
}
