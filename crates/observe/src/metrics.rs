//! Definitions of the metrics. Names follow Prometheus' conventions; distributions have their unit
//! in the series, not in the name.

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WireMetricKind {
    /// Monotonic since the start of the capture.
    Counter,
    /// Value at the end of the interval.
    Gauge,
    /// Distribution of all events since the previous row.
    Distribution,
}

/// Definition of a metric. Names are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WireMetric {
    pub(crate) name: &'static str,
    pub(crate) kind: WireMetricKind,
    /// Symbol of the unit.
    pub(crate) unit: &'static str,
    /// Description, including labels.
    pub(crate) help: &'static str,
}

const fn distribution(name: &'static str, unit: &'static str, help: &'static str) -> WireMetric {
    WireMetric { name, kind: WireMetricKind::Distribution, unit, help }
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> WireMetric {
    WireMetric { name, kind: WireMetricKind::Counter, unit, help }
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> WireMetric {
    WireMetric { name, kind: WireMetricKind::Gauge, unit, help }
}

pub(crate) const LATENCY: WireMetric = distribution(
    "wire_latency",
    "ns",
    "time from the first byte of a request to the last byte of its response, by `verb`, \
     `statement`, `outcome` (ok, error) and `error` (class of the error); without waits",
);
pub(crate) const FIRST_BYTE_LATENCY: WireMetric = distribution(
    "wire_first_byte_latency",
    "ns",
    "time from the first byte of a request to the first byte of its response, by the same \
     labels; without waits",
);
pub(crate) const WAIT_LATENCY: WireMetric = distribution(
    "wire_wait_latency",
    "ns",
    "time from the first byte to the last byte of operations that wait by design (`BLPOP`, long \
     polls), by `verb` and `statement`",
);
pub(crate) const SERVER_LATENCY: WireMetric = distribution(
    "wire_server_latency",
    "ns",
    "time from the last byte of a request to the first byte of its response; without waits",
);
pub(crate) const CONNECT_LATENCY: WireMetric = distribution(
    "wire_connect_latency",
    "ns",
    "time from the first SYN of the client to its ACK of the handshake, with repeated SYNs",
);
pub(crate) const ROUND_TRIP_TIME: WireMetric =
    distribution("wire_round_trip_time", "ns", "the same, of handshakes without repeated packets");
pub(crate) const ACKNOWLEDGEMENT_LATENCY: WireMetric = distribution(
    "wire_acknowledgement_latency",
    "ns",
    "time from a segment of the server to its acknowledgement, with the client's delay",
);
pub(crate) const CLIENT_THINK_TIME: WireMetric = distribution(
    "wire_client_think_time",
    "ns",
    "time from the end of a response to the start of the connection's next request",
);
pub(crate) const REQUEST_SIZE: WireMetric =
    distribution("wire_request_size", "B", "sizes of requests; without waits");
pub(crate) const RESPONSE_SIZE: WireMetric =
    distribution("wire_response_size", "B", "sizes of responses; without waits");
pub(crate) const RESPONSE_ROWS: WireMetric = distribution(
    "wire_response_rows",
    "",
    "rows of responses, of those operations that tell it; without waits",
);
pub(crate) const REQUESTS: WireMetric = counter(
    "wire_requests_total",
    "",
    "requests seen: measured, not measured, and in flight at the end of the interval",
);
pub(crate) const MEASURED: WireMetric = counter(
    "wire_measured_requests_total",
    "",
    "requests with their response in the histograms, with waits",
);
pub(crate) const WAITS: WireMetric =
    counter("wire_waits_total", "", "measured requests that wait by design");
pub(crate) const NOT_MEASURED: WireMetric = counter(
    "wire_not_measured_requests_total",
    "",
    "requests that were seen but not measured, by `reason` (see [Completeness](#completeness))",
);
pub(crate) const ERRORS: WireMetric = counter(
    "wire_errors_total",
    "",
    "measured requests that failed, by `error` (class of the error), with waits; at most 64 \
     classes of a service, the others are `other`",
);
pub(crate) const ROWS: WireMetric = counter("wire_rows_total", "", "rows of responses");
pub(crate) const REQUEST_BYTES: WireMetric =
    counter("wire_request_bytes_total", "B", "bytes of measured requests");
pub(crate) const RESPONSE_BYTES: WireMetric =
    counter("wire_response_bytes_total", "B", "bytes of the responses to measured requests");
pub(crate) const OVERFLOW: WireMetric = counter(
    "wire_overflow_operations_total",
    "",
    "measured requests of statements without series of their own",
);
pub(crate) const PACKETS: WireMetric =
    counter("wire_packets_total", "", "packets of the service's connections");
pub(crate) const PAYLOAD_BYTES: WireMetric =
    counter("wire_payload_bytes_total", "B", "payload of these packets, with repeated bytes");
pub(crate) const CONNECTIONS: WireMetric = counter(
    "wire_connections_total",
    "",
    "connections, by `start`: first (captured from the first byte), middle, refused",
);
pub(crate) const FORGOTTEN_CONNECTIONS: WireMetric = counter(
    "wire_forgotten_connections_total",
    "",
    "connections that are no longer followed, by `reason`: limit (of connections or memory), \
     idle (no packet for an hour)",
);
pub(crate) const RETRANSMITTED_SEGMENTS: WireMetric =
    counter("wire_retransmitted_segments_total", "", "segments with bytes that were seen before");
pub(crate) const REORDERED_SEGMENTS: WireMetric =
    counter("wire_reordered_segments_total", "", "segments that were captured out of order");
pub(crate) const IMPLAUSIBLE_SEGMENTS: WireMetric = counter(
    "wire_implausible_segments_total",
    "",
    "segments whose sequence numbers do not belong to their connection",
);
pub(crate) const GAPS: WireMetric = counter("wire_gaps_total", "", "gaps in streams");
pub(crate) const GAP_BYTES: WireMetric =
    counter("wire_gap_bytes_total", "B", "bytes that were not captured");
pub(crate) const RESYNCS: WireMetric =
    counter("wire_resyncs_total", "", "times that the position in a connection was lost");
pub(crate) const UNPARSED_BYTES: WireMetric =
    counter("wire_unparsed_bytes_total", "B", "captured bytes that belong to no message");
pub(crate) const ENCRYPTED_CONNECTIONS: WireMetric = counter(
    "wire_encrypted_connections_total",
    "",
    "connections with encrypted packets, those that are read at the TLS library included",
);
pub(crate) const ENCRYPTED_BYTES: WireMetric =
    counter("wire_encrypted_bytes_total", "B", "encrypted bytes of connections");
pub(crate) const TLS_SESSIONS: WireMetric =
    counter("wire_tls_sessions_total", "", "sessions that are read at the TLS library");
pub(crate) const TLS_BYTES: WireMetric =
    counter("wire_tls_bytes_total", "B", "plaintext that was read at the TLS library");
pub(crate) const UNMEASURABLE_CONNECTIONS: WireMetric = counter(
    "wire_unmeasurable_connections_total",
    "",
    "connections that became streams without requests, or violate the protocol",
);
pub(crate) const IN_FLIGHT: WireMetric =
    gauge("wire_in_flight", "", "requests in flight, by `wait` (true: they wait by design)");
pub(crate) const OLDEST_IN_FLIGHT: WireMetric = gauge(
    "wire_in_flight_oldest_seconds",
    "s",
    "age of the oldest request in flight, by `wait`; 0 if there is none",
);
pub(crate) const PROPOSED_WAIT: WireMetric = gauge(
    "wire_proposed_wait_seconds",
    "s",
    "time-out at which many operations of a statement end, by `verb` and `statement` (see \
     [Waits](#waits))",
);
pub(crate) const STATEMENTS: WireMetric =
    gauge("wire_statements", "", "statements with series of their own");
pub(crate) const STATEMENTS_LIMIT: WireMetric =
    gauge("wire_statements_limit", "", "limit of them (`max_statements`)");
pub(crate) const CAPTURED_PACKETS: WireMetric = counter(
    "wire_captured_packets_total",
    "",
    "packets that passed the filter of the capture, with dropped ones; without the labels of a \
     service, as all of the following",
);
pub(crate) const DROPPED_PACKETS: WireMetric = counter(
    "wire_dropped_packets_total",
    "",
    "packets that the kernel dropped from the capture because the ring was full",
);
pub(crate) const RING_FREEZES: WireMetric =
    counter("wire_ring_freezes_total", "", "times that the ring was full");
pub(crate) const TLS_LOST_EVENTS: WireMetric = counter(
    "wire_tls_lost_events_total",
    "",
    "chunks of plaintext that were lost because their ring was full; each is part of a gap",
);
pub(crate) const TLS_UNMEASURED_BYTES: WireMetric = counter(
    "wire_tls_unmeasured_bytes_total",
    "B",
    "plaintext of no measured session, by `reason` (no_socket, no_service, other_end)",
);
pub(crate) const UNDECODED_PACKETS: WireMetric = counter(
    "wire_undecoded_packets_total",
    "",
    "captured packets that could not be decoded, by `reason`",
);
pub(crate) const OTHER_PACKETS: WireMetric = counter(
    "wire_other_packets_total",
    "",
    "captured packets of no service, by `transport` (tcp, udp)",
);
pub(crate) const FINGERPRINT_LOOKUPS: WireMetric = counter(
    "wire_fingerprint_lookups_total",
    "",
    "statements and paths of operations, by `result`: hit (seen before, fingerprint from the \
     cache), miss (read by the lexer)",
);
pub(crate) const FORGOTTEN_SERVERS: WireMetric = counter(
    "wire_forgotten_servers_total",
    "",
    "services without a packet for an hour, or for an interval after a panic, which made room for \
     others",
);
pub(crate) const CLOCK_STEPS: WireMetric = counter(
    "wire_clock_steps_total",
    "",
    "times that the clock was set back by more than a minute: samples after it have times that \
     were written before",
);
pub(crate) const OPEN_CONNECTIONS: WireMetric =
    gauge("wire_open_connections", "", "connections that are followed");
pub(crate) const CONNECTION_MEMORY: WireMetric = gauge(
    "wire_connection_memory_bytes",
    "B",
    "memory for requests in flight and for bytes captured out of order",
);

pub(crate) const STATEMENT_MEMORY: WireMetric = gauge(
    "wire_statement_memory_bytes",
    "B",
    "memory for texts of statements in the interval, and for the cache of fingerprints",
);

pub(crate) const ENDS_LATENCY: WireMetric = distribution(
    "wire_ends_latency",
    "ns",
    "time from the first byte of a request to the last byte of its response, by `end` (client, \
     server)",
);
pub(crate) const ENDS_NETWORK: WireMetric = distribution(
    "wire_ends_network_latency",
    "ns",
    "latency at the client minus latency at the server, for each request: the time in the network \
     in both directions",
);
pub(crate) const ENDS_ONE_WAY: WireMetric = distribution(
    "wire_ends_one_way_latency",
    "ns",
    "time in the network by `direction` (to_server, to_client) and `bound` (least, most): the \
     difference of the clocks is known as an interval",
);
pub(crate) const ENDS_SERVER: WireMetric = distribution(
    "wire_ends_server_latency",
    "ns",
    "time at the server from the last byte of a request to the first byte of its response, by \
     `request`: first (of a connection, with the wait until the server accepts it), other",
);
pub(crate) const ENDS_CONNECT: WireMetric = distribution(
    "wire_ends_connect_latency",
    "ns",
    "time from the first SYN of the client to the first SYN of the server, by `part`: client, \
     server (at each end), network (the difference)",
);
pub(crate) const ENDS_MATCHED: WireMetric =
    counter("wire_ends_matched_requests_total", "", "requests that both ends have reported");
pub(crate) const ENDS_UNTIMED: WireMetric = counter(
    "wire_ends_untimed_requests_total",
    "",
    "matched requests that are not in all histograms, by `reason`: wait and later_statement (in \
     none), negative (longer at the server, by more than the error of time stamps: no time in the \
     network), clock (no time of one direction)",
);
pub(crate) const ENDS_REPORTED: WireMetric = counter(
    "wire_ends_reported_requests_total",
    "",
    "requests that a host has reported, by `reporter` (the host), `end`, `service` and `protocol`, \
     without the labels of both hosts, as the next one",
);
pub(crate) const ENDS_UNMATCHED: WireMetric = counter(
    "wire_ends_unmatched_requests_total",
    "",
    "reported requests that were not found at the other end, by `reason` (connection, request, \
     limit, ambiguous)",
);
pub(crate) const ENDS_CLOCK_OFFSET: WireMetric = gauge(
    "wire_ends_clock_offset_seconds",
    "s",
    "clock of the server's host minus that of the client's host, by `bound` (lower, upper): the \
     true difference is between both",
);
pub(crate) const ENDS_WAITING: WireMetric = gauge(
    "wire_ends_waiting_requests",
    "",
    "reported requests that wait for the other end; without labels of hosts",
);

/// All metrics, in the order of docs/wire.md.
pub(crate) const METRICS: &[WireMetric] = &[
    LATENCY,
    FIRST_BYTE_LATENCY,
    WAIT_LATENCY,
    SERVER_LATENCY,
    CONNECT_LATENCY,
    ROUND_TRIP_TIME,
    ACKNOWLEDGEMENT_LATENCY,
    CLIENT_THINK_TIME,
    REQUEST_SIZE,
    RESPONSE_SIZE,
    RESPONSE_ROWS,
    REQUESTS,
    MEASURED,
    WAITS,
    NOT_MEASURED,
    ERRORS,
    ROWS,
    REQUEST_BYTES,
    RESPONSE_BYTES,
    OVERFLOW,
    PACKETS,
    PAYLOAD_BYTES,
    CONNECTIONS,
    FORGOTTEN_CONNECTIONS,
    RETRANSMITTED_SEGMENTS,
    REORDERED_SEGMENTS,
    IMPLAUSIBLE_SEGMENTS,
    GAPS,
    GAP_BYTES,
    RESYNCS,
    UNPARSED_BYTES,
    ENCRYPTED_CONNECTIONS,
    ENCRYPTED_BYTES,
    TLS_SESSIONS,
    TLS_BYTES,
    UNMEASURABLE_CONNECTIONS,
    IN_FLIGHT,
    OLDEST_IN_FLIGHT,
    PROPOSED_WAIT,
    STATEMENTS,
    STATEMENTS_LIMIT,
    CAPTURED_PACKETS,
    DROPPED_PACKETS,
    RING_FREEZES,
    TLS_LOST_EVENTS,
    TLS_UNMEASURED_BYTES,
    UNDECODED_PACKETS,
    OTHER_PACKETS,
    FINGERPRINT_LOOKUPS,
    FORGOTTEN_SERVERS,
    CLOCK_STEPS,
    OPEN_CONNECTIONS,
    CONNECTION_MEMORY,
    STATEMENT_MEMORY,
    ENDS_LATENCY,
    ENDS_NETWORK,
    ENDS_ONE_WAY,
    ENDS_SERVER,
    ENDS_CONNECT,
    ENDS_MATCHED,
    ENDS_UNTIMED,
    ENDS_REPORTED,
    ENDS_UNMATCHED,
    ENDS_CLOCK_OFFSET,
    ENDS_WAITING,
];

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/wire.md");

    fn line(metric: &WireMetric) -> String {
        let kind = match metric.kind {
            WireMetricKind::Counter => "counter",
            WireMetricKind::Gauge => "gauge",
            WireMetricKind::Distribution => "histogram",
        };
        format!("| `{}` | {kind} | {} | {} |", metric.name, metric.unit, metric.help)
    }

    #[test]
    fn the_page_lists_all_metrics_and_no_others() {
        let lines: Vec<String> = METRICS.iter().map(line).collect();
        let missing: Vec<&String> =
            lines.iter().filter(|line| !PAGE.lines().any(|found| found == *line)).collect();
        assert!(missing.is_empty(), "docs/wire.md lacks:\n{missing:#?}");
        let rows = PAGE.lines().filter(|line| line.starts_with("| `wire_"));
        assert_eq!(rows.count(), lines.len(), "docs/wire.md lists metrics that are not");
    }
}
