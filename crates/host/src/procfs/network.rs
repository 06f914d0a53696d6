//! Network metrics.
//!
//! Of the network namespace that topdeck runs in. Source: kernel, net/core/net-procfs.c,
//! net/ipv4/proc.c, Documentation/networking/snmp_counter.rst.

use super::numbers;
use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

const BYTES: MetricDefinition = counter(
    "host_network_bytes_total",
    "B",
    "bytes by `interface` and `direction`: receive, transmit",
);
const PACKETS: MetricDefinition =
    counter("host_network_packets_total", "", "packets by `interface` and `direction`");
const ERRORS: MetricDefinition =
    counter("host_network_errors_total", "", "packets with errors by `interface` and `direction`");
const DROPS: MetricDefinition = counter(
    "host_network_drops_total",
    "",
    "packets dropped for want of room by `interface` and `direction`",
);
const SOCKETS: MetricDefinition = gauge("host_sockets", "", "sockets of all kinds");
const TCP_SOCKETS: MetricDefinition = gauge(
    "host_tcp_sockets",
    "",
    "sockets of TCP by `state`: inuse, orphan, tw (waiting for the last packets), alloc",
);
const UDP_SOCKETS: MetricDefinition = gauge("host_udp_sockets", "", "sockets of UDP in use");
const TCP_MEMORY: MetricDefinition =
    gauge("host_tcp_memory_pages", "", "pages of memory in buffers of TCP");

/// Fields of `/proc/net/snmp` and `/proc/net/netstat`: group, field.
const FIELDS: [(&str, &str, MetricDefinition); 29] = [
    ("Ip", "InReceives", counter("host_ip_received_total", "", "packets that came")),
    (
        "Ip",
        "InDiscards",
        counter(
            "host_ip_in_discards_total",
            "",
            "sound packets that came and were dropped, for want of room",
        ),
    ),
    ("Ip", "OutRequests", counter("host_ip_sent_total", "", "packets to be sent")),
    (
        "Ip",
        "OutDiscards",
        counter(
            "host_ip_out_discards_total",
            "",
            "sound packets that were not sent, for want of room",
        ),
    ),
    (
        "Tcp",
        "ActiveOpens",
        counter("host_tcp_active_opens_total", "", "connections begun from here"),
    ),
    (
        "Tcp",
        "PassiveOpens",
        counter("host_tcp_passive_opens_total", "", "connections begun from elsewhere"),
    ),
    (
        "Tcp",
        "AttemptFails",
        counter("host_tcp_failed_opens_total", "", "connections that did not come about"),
    ),
    (
        "Tcp",
        "EstabResets",
        counter("host_tcp_established_resets_total", "", "connections that were reset"),
    ),
    ("Tcp", "CurrEstab", gauge("host_tcp_established", "", "connections there are")),
    ("Tcp", "InSegs", counter("host_tcp_segments_received_total", "", "segments that came")),
    (
        "Tcp",
        "OutSegs",
        counter(
            "host_tcp_segments_sent_total",
            "",
            "segments that were sent, without those sent again",
        ),
    ),
    (
        "Tcp",
        "RetransSegs",
        counter("host_tcp_segments_retransmitted_total", "", "segments that were sent again"),
    ),
    ("Tcp", "InErrs", counter("host_tcp_in_errors_total", "", "segments that came damaged")),
    ("Tcp", "OutRsts", counter("host_tcp_resets_sent_total", "", "resets that were sent")),
    ("Udp", "InDatagrams", counter("host_udp_received_total", "", "datagrams that came")),
    ("Udp", "OutDatagrams", counter("host_udp_sent_total", "", "datagrams that were sent")),
    ("Udp", "NoPorts", counter("host_udp_no_port_total", "", "datagrams that nobody waited for")),
    (
        "Udp",
        "InErrors",
        counter(
            "host_udp_in_errors_total",
            "",
            "datagrams that came and could not be given to anybody",
        ),
    ),
    (
        "Udp",
        "RcvbufErrors",
        counter(
            "host_udp_receive_buffer_full_total",
            "",
            "datagrams dropped because their socket's buffer was full",
        ),
    ),
    (
        "Udp",
        "SndbufErrors",
        counter(
            "host_udp_send_buffer_full_total",
            "",
            "datagrams not sent because a buffer was full",
        ),
    ),
    (
        "TcpExt",
        "ListenOverflows",
        counter(
            "host_tcp_listen_overflows_total",
            "",
            "connections dropped because a queue of new ones was full",
        ),
    ),
    (
        "TcpExt",
        "ListenDrops",
        counter("host_tcp_listen_drops_total", "", "new connections dropped, for whatever reason"),
    ),
    (
        "TcpExt",
        "TCPTimeouts",
        counter("host_tcp_timeouts_total", "", "times that nothing was heard and was sent again"),
    ),
    (
        "TcpExt",
        "TCPSynRetrans",
        counter(
            "host_tcp_syn_retransmitted_total",
            "",
            "first segments of connections that were sent again",
        ),
    ),
    (
        "TcpExt",
        "TCPLostRetransmit",
        counter(
            "host_tcp_retransmissions_lost_total",
            "",
            "segments sent again that were lost again",
        ),
    ),
    (
        "TcpExt",
        "TCPBacklogDrop",
        counter(
            "host_tcp_backlog_drops_total",
            "",
            "segments dropped because a socket was busy and its backlog full",
        ),
    ),
    (
        "TcpExt",
        "TCPRcvQDrop",
        counter(
            "host_tcp_receive_queue_drops_total",
            "",
            "segments dropped because a socket's buffer was full",
        ),
    ),
    (
        "TcpExt",
        "PruneCalled",
        counter("host_tcp_prunes_total", "", "times that a socket's buffer was searched for room"),
    ),
    (
        "TcpExt",
        "TCPAbortOnMemory",
        counter("host_tcp_aborts_on_memory_total", "", "connections ended for want of memory"),
    ),
];

/// All metrics of this file, for the page that lists them.
#[cfg(test)]
pub(super) fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let own = [BYTES, PACKETS, ERRORS, DROPS, SOCKETS, TCP_SOCKETS, UDP_SOCKETS, TCP_MEMORY];
    own.into_iter().chain(FIELDS.iter().map(|entry| entry.2))
}

/// `/proc/net/dev`
pub(super) fn dev(text: &str, take: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((interface, rest)) = line.rsplit_once(':') else { continue };
        let interface = interface.trim();
        let mut columns = [0.0; 16];
        let mut count = 0;
        for (to, from) in columns.iter_mut().zip(numbers(rest)) {
            *to = from;
            count += 1;
        }
        if count < columns.len() {
            continue;
        }
        for (direction, at) in [("receive", 0), ("transmit", 8)] {
            let metrics = [&BYTES, &PACKETS, &ERRORS, &DROPS];
            for (metric, &value) in metrics.into_iter().zip(&columns[at..]) {
                let labels = [("interface", interface), ("direction", direction)];
                take.record(metric, &labels, value);
            }
        }
    }
}

/// `/proc/net/snmp` and `/proc/net/netstat`: a line of names, a line of numbers.
pub(super) fn pairs(text: &str, take: &mut dyn MetricSink) {
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((again, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            continue;
        };
        if group != again || !FIELDS.iter().any(|entry| entry.0 == group) {
            continue;
        }
        let names = names.split_ascii_whitespace();
        for (name, value) in names.zip(values.split_ascii_whitespace()) {
            let wanted = FIELDS.iter().find(|entry| (entry.0, entry.1) == (group, name));
            if let (Some((_, _, metric)), Ok(value)) = (wanted, value.parse::<u64>()) {
                take.record(metric, &[], value as f64);
            }
        }
    }
}

/// `/proc/net/sockstat`
pub(super) fn sockstat(text: &str, take: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((group, rest)) = line.split_once(':') else { continue };
        let mut words = rest.split_ascii_whitespace();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            let Ok(value) = value.parse::<u64>() else { continue };
            let value = value as f64;
            match (group, name) {
                ("sockets", "used") => take.record(&SOCKETS, &[], value),
                ("TCP", "mem") => take.record(&TCP_MEMORY, &[], value),
                ("TCP", state) => take.record(&TCP_SOCKETS, &[("state", state)], value),
                ("UDP", "inuse") => take.record(&UDP_SOCKETS, &[], value),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::RecordedMetrics;

    #[track_caller]
    fn check(
        read: fn(&str, &mut dyn MetricSink),
        text: &str,
        count: usize,
        expected: &[(&str, f64)],
    ) {
        let mut taken = RecordedMetrics::default();
        read(text, &mut taken);
        assert_eq!(taken.len(), count, "{taken:?}");
        for &(series, value) in expected {
            assert_eq!(taken.value(series), Some(value), "{series} in {taken:?}");
        }
    }

    #[test]
    fn interfaces_are_read() {
        let text = "Inter-|   Receive                            |  Transmit\n face |bytes    \
                    packets errs drop\n\x20 eth0: 1004265484   69120    3    4    0     0          \
                    0         0  5780929   52812    1    2    0     0       0          \
                    0\neth0:1:7 0 0 0 0 0 0 0 8 0 0 0 0 0 0 0\n";
        let expected = [
            ("host_network_bytes_total{interface=eth0,direction=receive}", 1_004_265_484.0),
            ("host_network_packets_total{interface=eth0,direction=transmit}", 52_812.0),
            ("host_network_errors_total{interface=eth0,direction=receive}", 3.0),
            ("host_network_drops_total{interface=eth0,direction=transmit}", 2.0),
            ("host_network_bytes_total{interface=eth0:1,direction=transmit}", 8.0),
        ];
        check(dev, text, 16, &expected);
    }

    #[test]
    fn protocols_are_read_by_name() {
        let text = "Icmp: InMsgs InErrors\nIcmp: 4 0\nTcp: RtoAlgorithm MaxConn ActiveOpens \
                    CurrEstab RetransSegs\nTcp: 1 -1 16868 2 456\nTcpExt: SyncookiesSent \
                    ListenOverflows TCPTimeouts \nTcpExt: 0 3 447\n";
        let expected = [
            ("host_tcp_active_opens_total{}", 16_868.0),
            ("host_tcp_established{}", 2.0),
            ("host_tcp_segments_retransmitted_total{}", 456.0),
            ("host_tcp_listen_overflows_total{}", 3.0),
            ("host_tcp_timeouts_total{}", 447.0),
        ];
        check(pairs, text, 5, &expected);
    }

    #[test]
    fn sockets_are_read() {
        let text = "sockets: used 17\nTCP: inuse 1 orphan 0 tw 5 alloc 2 mem 3\nUDP: inuse 4 mem \
                    0\nRAW: inuse 0\n";
        let expected = [
            ("host_sockets{}", 17.0),
            ("host_tcp_sockets{state=tw}", 5.0),
            ("host_tcp_memory_pages{}", 3.0),
            ("host_udp_sockets{}", 4.0),
        ];
        check(sockstat, text, 7, &expected);
    }

    #[test]
    fn arbitrary_text_does_not_panic() {
        for text in [
            "",
            ":",
            "eth0:",
            "eth0: 1 2",
            "Tcp: InSegs\n",
            "Tcp: InSegs\nUdp: 1",
            "Tcp: InSegs\nTcp: x",
            "TCP: inuse",
        ] {
            check(dev, text, 0, &[]);
            check(pairs, text, 0, &[]);
            check(sockstat, text, 0, &[]);
        }
    }
}
