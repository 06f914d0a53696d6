//! All attacks, in the order in which they are made.

mod access;
mod answers;
mod bodies;
mod connections;
mod questions;
mod senders;

use super::Attack;

/// What one sender may bring; others bring their own.
const FEW_SERIES: &str =
    "producer_series = 50_000\nmetric_series = 50_000\nlabel_values = 50_000\n";

pub(super) const ALL: &[Attack] = &[
    attack("slow heads", "head_time = \"2s\"\n", connections::slow_heads),
    attack("slow bodies", "body_time = \"2s\"\n", connections::slow_bodies),
    attack("huge heads", "", connections::huge_heads),
    attack("half-closed connections", "", connections::half_closed),
    attack("connection flood", "connections = 300\n", connections::flood),
    attack("noise", "", connections::noise),
    attack("two hosts", "", connections::two_hosts),
    attack("resets of HTTP/2", "", connections::resets),
    attack("continuations of HTTP/2", "", connections::continuations),
    attack("window of zero", "", answers::window_of_zero),
    attack("unread answers", "", answers::unread),
    attack("unread streams", "", answers::unread_streams),
    attack("one-byte chunks", "", bodies::one_byte_chunks),
    attack("deep JSON", "", bodies::deep_json),
    attack("bombs", "", bodies::bombs),
    attack("absurd lengths", "", bodies::absurd_lengths),
    attack("malformed remote write", "", bodies::malformed_remote_write),
    attack("labels that are no text", "", bodies::labels_that_are_no_text),
    Attack { store: FEW_SERIES, ..attack("label flood", "", senders::label_flood) },
    attack("overflowing counts", "", senders::overflowing_counts),
    attack("forged sequence", "", senders::forged_sequence),
    attack("many series deleted", "", senders::many_series_deleted),
    Attack { store: FEW_SERIES, ..attack("UDP flood", "", senders::udp_flood) },
    attack("SIGTERM in the middle", "", senders::stop_in_the_middle),
    attack("heavy queries", "", questions::heavy),
    attack("deep programs", "", questions::deep_programs),
    attack("regex bombs", "", questions::regex_bombs),
    attack("absurd heatmaps", "", questions::absurd_heatmaps),
    attack("path traversal", "", access::path_traversal),
    attack("wrong tokens", "", access::wrong_tokens),
];

/// With settings of `[http.limits]`.
const fn attack(
    name: &'static str,
    limits: &'static str,
    run: fn(&super::Scene) -> anyhow::Result<String>,
) -> Attack {
    Attack { name, store: "", limits, run }
}
