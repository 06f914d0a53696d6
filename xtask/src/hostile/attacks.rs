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
    attack("slow heads", "header_read_timeout = \"2s\"\n", connections::slow_heads),
    attack("slow bodies", "body_read_timeout = \"2s\"\n", connections::slow_bodies),
    attack("huge heads", "", connections::huge_heads),
    attack("half-closed connections", "", connections::half_closed),
    attack("connection flood", "max_connections = 300\n", connections::connection_flood),
    attack("noise", "", connections::protocol_garbage),
    attack("two hosts", "", connections::duplicate_host),
    attack("resets of HTTP/2", "", connections::rapid_reset),
    attack("continuations of HTTP/2", "", connections::continuation_flood),
    attack("window of zero", "", responses::zero_window),
    attack("unread answers", "", responses::unread_responses),
    attack("unread streams", "", responses::unread_streams),
    attack("one-byte chunks", "", bodies::one_byte_chunks),
    attack("deep JSON", "", bodies::deep_json),
    attack("bombs", "", bodies::decompression_bombs),
    attack("absurd lengths", "", bodies::absurd_lengths),
    attack("malformed remote write", "", bodies::malformed_remote_write),
    attack("labels that are no text", "", bodies::non_utf8_labels),
    Attack { store: FEW_SERIES, ..attack("label flood", "", ingest::label_flood) },
    attack("overflowing counts", "", ingest::overflowing_counts),
    attack("forged sequence", "", ingest::forged_sequence),
    attack("many series deleted", "", ingest::many_series_deleted),
    Attack { store: FEW_SERIES, ..attack("UDP flood", "", ingest::udp_flood) },
    attack("SIGTERM in the middle", "", ingest::stop_in_the_middle),
    attack("heavy queries", "", queries::heavy_queries),
    attack("deep programs", "", queries::deep_expressions),
    attack("regex bombs", "", queries::regex_bombs),
    attack("absurd heatmaps", "", queries::absurd_heatmaps),
    attack("path traversal", "", access::path_traversal),
    attack("wrong tokens", "", access::wrong_tokens),
];

/// An attack with settings of `[http.limits]`.
const fn attack(
    name: &'static str,
    limits: &'static str,
    run: fn(&super::AttackTarget) -> anyhow::Result<String>,
) -> Attack {
    Attack { name, store: "", limits, run }
}
