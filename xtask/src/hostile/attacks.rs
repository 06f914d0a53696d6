//! All attacks, in the order of the run.

mod access;
mod bodies;
mod connections;
mod ingest;
mod queries;
mod responses;

use super::Attack;

/// Cardinality limit per sender; it does not affect other senders.
const FEW_SERIES: &str =
    "max_producer_series = 50_000\nmax_metric_series = 50_000\nmax_label_values = 50_000\n";

pub(super) const ALL: &[Attack] = &[
    attack("slow headers", "header_read_timeout = \"2s\"\n", connections::slow_headers),
    attack("slow bodies", "body_read_timeout = \"2s\"\n", connections::slow_bodies),
    attack("oversized headers", "", connections::oversized_headers),
    attack("half-closed connections", "", connections::half_closed),
    attack("connection flood", "max_connections = 300\n", connections::connection_flood),
    attack("protocol garbage", "", connections::protocol_garbage),
    attack("duplicate Host header", "", connections::duplicate_host),
    attack("HTTP/2 rapid reset", "", connections::rapid_reset),
    attack("HTTP/2 CONTINUATION flood", "", connections::continuation_flood),
    attack("HTTP/2 zero window", "", responses::zero_window),
    attack("unread responses", "", responses::unread_responses),
    attack("unread streams", "", responses::unread_streams),
    attack("one-byte chunks", "", bodies::one_byte_chunks),
    attack("deeply nested JSON", "", bodies::deep_json),
    attack("decompression bombs", "", bodies::decompression_bombs),
    attack("oversized length fields", "", bodies::oversized_length_fields),
    attack("malformed remote write", "", bodies::malformed_remote_write),
    attack("non-UTF-8 labels", "", bodies::non_utf8_labels),
    Attack { store: FEW_SERIES, ..attack("cardinality flood", "", ingest::cardinality_flood) },
    attack("count overflow", "", ingest::count_overflow),
    attack("forged sequence", "", ingest::forged_sequence),
    attack("deletion of many series", "", ingest::many_series_deleted),
    Attack { store: FEW_SERIES, ..attack("UDP flood", "", ingest::udp_flood) },
    attack("SIGTERM during ingest", "", ingest::stop_during_ingest),
    attack("expensive queries", "", queries::expensive_queries),
    attack("deeply nested expressions", "", queries::deep_expressions),
    attack("regular expression bombs", "", queries::regex_bombs),
    attack("oversized heatmaps", "", queries::oversized_heatmaps),
    attack("path traversal", "", access::path_traversal),
    attack("invalid tokens", "", access::invalid_tokens),
];

/// An attack with settings of `[http.limits]`.
const fn attack(
    name: &'static str,
    limits: &'static str,
    run: fn(&super::AttackTarget) -> anyhow::Result<String>,
) -> Attack {
    Attack { name, store: "", limits, run }
}
