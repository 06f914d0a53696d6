//! Report of captured packets: operations of other programs, as text and as JSON.
//!
//! The crate `wire` measures; the binary captures and prints.

mod capture_json;
mod capture_text;
mod ends_json;
mod ends_text;

use wire::{ConnectionTracker, KeyLogCounts, LeftOutLibraries};

pub use capture_json::capture_json;
pub use capture_text::{capture_text, live_table};
pub use ends_json::ends_json;
pub use ends_text::ends_text;

/// What was read, for the reports.
pub struct CaptureSummary {
    /// Name of the file or of the interface.
    pub source: String,
    /// Whether the file ends inside a packet.
    pub is_truncated: bool,
    /// The kernel has passed only packets of the ports of services.
    pub has_port_filter: bool,
    /// Packets that the kernel dropped, as it or the capturing program reported.
    pub reported_drops: u64,
    /// Probes at TLS libraries; `None` without them.
    pub tls: Option<TlsSummary>,
    /// What was decrypted with a key log; `None` without one.
    pub key_log: Option<KeyLogCounts>,
}

/// A capture at one end of connections.
pub struct CaptureEnd {
    /// What was read.
    pub tracker: ConnectionTracker,
    /// The file.
    pub summary: CaptureSummary,
}

/// Probes at TLS libraries.
pub struct TlsSummary {
    /// Files with probes.
    pub files: Vec<String>,
    /// Files that are not read, though processes use them.
    pub left_out: LeftOutLibraries,
    /// Chunks of plaintext that were lost.
    pub lost_events: u64,
}

/// What the capture has instead of known services.
pub fn no_service_message(tracker: &ConnectionTracker, summary: &CaptureSummary) -> String {
    let ports: Vec<String> =
        tracker.other_ports().iter().take(5).map(|(port, _)| port.to_string()).collect();
    let source = &summary.source;
    match ports.is_empty() {
        // The kernel passes only packets of the ports that are asked for.
        true => format!(
            "{source}: no packet of a known service; name the port and protocol of yours, as in \
             --service shop=9911/http"
        ),
        false => format!(
            "{source}: no packet of a known service, but of the ports {}; name their protocol, as \
             in --service {}/http",
            ports.join(", "),
            ports[0]
        ),
    }
}
