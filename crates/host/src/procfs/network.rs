//! Network metrics of the network namespace that topdeck runs in.
//!
//! Source: kernel, net/core/net-procfs.c, net/ipv4/proc.c,
//! Documentation/networking/snmp_counter.rst.

use super::numbers;
use crate::metric::{MetricDefinition, MetricSink, counter, gauge};

const BYTES: MetricDefinition = counter(
    "host_network_bytes_total",
    "B",
    "network bytes by `interface` and `direction`: receive, transmit",
);
const PACKETS: MetricDefinition =
    counter("host_network_packets_total", "", "network packets by `interface` and `direction`");
const ERRORS: MetricDefinition =
    counter("host_network_errors_total", "", "packets with errors, by `interface` and `direction`");
const DROPS: MetricDefinition = counter(
    "host_network_drops_total",
    "",
    "packets dropped (`drop` of `/proc/net/dev`), by `interface` and `direction`",
);
const SOCKETS: MetricDefinition = gauge("host_sockets", "", "sockets in use (`sockets: used`)");
/// Not one metric with a label: `alloc` contains `inuse`, so a sum would have no meaning.
const TCP_SOCKETS: [(&str, MetricDefinition); 4] = [
    ("inuse", gauge("host_tcp_sockets_in_use", "", "TCP sockets in use (`inuse`)")),
    ("orphan", gauge("host_tcp_sockets_orphaned", "", "TCP sockets of no process (`orphan`)")),
    ("tw", gauge("host_tcp_sockets_time_wait", "", "TCP sockets in TIME_WAIT (`tw`)")),
    ("alloc", gauge("host_tcp_sockets_allocated", "", "TCP sockets allocated (`alloc`)")),
];
const UDP_SOCKETS: MetricDefinition = gauge("host_udp_sockets", "", "UDP sockets in use");
const TCP_MEMORY: MetricDefinition =
    gauge("host_tcp_memory_pages", "", "TCP buffer memory in pages (`mem` of /proc/net/sockstat)");

/// Fields of `/proc/net/snmp` and `/proc/net/netstat`: group, field.
const FIELDS: [(&str, &str, MetricDefinition); 29] = [
    (
        "Ip",
        "InReceives",
        counter("host_ip_received_total", "", "IP packets received (`Ip.InReceives`)"),
    ),
    (
        "Ip",
        "InDiscards",
        counter(
            "host_ip_in_discards_total",
            "",
            "valid IP packets received and discarded (`Ip.InDiscards`)",
        ),
    ),
    ("Ip", "OutRequests", counter("host_ip_sent_total", "", "IP packets sent (`Ip.OutRequests`)")),
    (
        "Ip",
        "OutDiscards",
        counter(
            "host_ip_out_discards_total",
            "",
            "valid IP packets not sent for lack of buffers (`Ip.OutDiscards`)",
        ),
    ),
    (
        "Tcp",
        "ActiveOpens",
        counter("host_tcp_active_opens_total", "", "TCP active opens (`Tcp.ActiveOpens`)"),
    ),
    (
        "Tcp",
        "PassiveOpens",
        counter("host_tcp_passive_opens_total", "", "TCP passive opens (`Tcp.PassiveOpens`)"),
    ),
    (
        "Tcp",
        "AttemptFails",
        counter(
            "host_tcp_failed_opens_total",
            "",
            "TCP connection attempts that failed (`Tcp.AttemptFails`)",
        ),
    ),
    (
        "Tcp",
        "EstabResets",
        counter(
            "host_tcp_established_resets_total",
            "",
            "established TCP connections reset (`Tcp.EstabResets`)",
        ),
    ),
    (
        "Tcp",
        "CurrEstab",
        gauge("host_tcp_established", "", "established TCP connections (`Tcp.CurrEstab`)"),
    ),
    (
        "Tcp",
        "InSegs",
        counter("host_tcp_segments_received_total", "", "TCP segments received (`Tcp.InSegs`)"),
    ),
    (
        "Tcp",
        "OutSegs",
        counter(
            "host_tcp_segments_sent_total",
            "",
            "TCP segments sent, retransmissions excluded (`Tcp.OutSegs`)",
        ),
    ),
    (
        "Tcp",
        "RetransSegs",
        counter(
            "host_tcp_segments_retransmitted_total",
            "",
            "TCP segments retransmitted (`Tcp.RetransSegs`)",
        ),
    ),
    (
        "Tcp",
        "InErrs",
        counter("host_tcp_in_errors_total", "", "TCP segments received with errors (`Tcp.InErrs`)"),
    ),
    (
        "Tcp",
        "OutRsts",
        counter("host_tcp_resets_sent_total", "", "TCP resets sent (`Tcp.OutRsts`)"),
    ),
    (
        "Udp",
        "InDatagrams",
        counter("host_udp_received_total", "", "UDP datagrams received (`Udp.InDatagrams`)"),
    ),
    (
        "Udp",
        "OutDatagrams",
        counter("host_udp_sent_total", "", "UDP datagrams sent (`Udp.OutDatagrams`)"),
    ),
    (
        "Udp",
        "NoPorts",
        counter(
            "host_udp_no_port_total",
            "",
            "UDP datagrams to a port without a listener (`Udp.NoPorts`)",
        ),
    ),
    (
        "Udp",
        "InErrors",
        counter(
            "host_udp_in_errors_total",
            "",
            "UDP datagrams received with errors (`Udp.InErrors`)",
        ),
    ),
    (
        "Udp",
        "RcvbufErrors",
        counter(
            "host_udp_receive_buffer_full_total",
            "",
            "UDP datagrams dropped: receive buffer full (`Udp.RcvbufErrors`)",
        ),
    ),
    (
        "Udp",
        "SndbufErrors",
        counter(
            "host_udp_send_buffer_full_total",
            "",
            "UDP datagrams not sent: send buffer full (`Udp.SndbufErrors`)",
        ),
    ),
    (
        "TcpExt",
        "ListenOverflows",
        counter(
            "host_tcp_listen_overflows_total",
            "",
            "TCP accept queue overflows (`ListenOverflows`)",
        ),
    ),
    (
        "TcpExt",
        "ListenDrops",
        counter(
            "host_tcp_listen_drops_total",
            "",
            "TCP connections dropped in LISTEN (`ListenDrops`)",
        ),
    ),
    (
        "TcpExt",
        "TCPTimeouts",
        counter("host_tcp_timeouts_total", "", "TCP retransmission timeouts (`TCPTimeouts`)"),
    ),
    (
        "TcpExt",
        "TCPSynRetrans",
        counter(
            "host_tcp_syn_retransmitted_total",
            "",
            "TCP SYN retransmissions (`TCPSynRetrans`)",
        ),
    ),
    (
        "TcpExt",
        "TCPLostRetransmit",
        counter(
            "host_tcp_retransmissions_lost_total",
            "",
            "TCP retransmitted segments lost again (`TCPLostRetransmit`)",
        ),
    ),
    (
        "TcpExt",
        "TCPBacklogDrop",
        counter(
            "host_tcp_backlog_drops_total",
            "",
            "TCP segments dropped: socket backlog full (`TCPBacklogDrop`)",
        ),
    ),
    (
        "TcpExt",
        "TCPRcvQDrop",
        counter(
            "host_tcp_receive_queue_drops_total",
            "",
            "TCP segments dropped: receive queue full (`TCPRcvQDrop`)",
        ),
    ),
    (
        "TcpExt",
        "PruneCalled",
        counter("host_tcp_prunes_total", "", "TCP receive queue prunes (`PruneCalled`)"),
    ),
    (
        "TcpExt",
        "TCPAbortOnMemory",
        counter(
            "host_tcp_aborts_on_memory_total",
            "",
            "TCP connections aborted for lack of memory (`TCPAbortOnMemory`)",
        ),
    ),
];

/// All metrics of this file, compared with docs/host.md.
#[cfg(test)]
pub(super) fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let metrics = [BYTES, PACKETS, ERRORS, DROPS, SOCKETS, UDP_SOCKETS, TCP_MEMORY];
    let tcp = TCP_SOCKETS.iter().map(|entry| entry.1);
    metrics.into_iter().chain(tcp).chain(FIELDS.iter().map(|entry| entry.2))
}

/// `/proc/net/dev`
pub(super) fn dev(text: &str, sink: &mut dyn MetricSink) {
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
                sink.record(metric, &labels, value);
            }
        }
    }
}

/// `/proc/net/snmp` and `/proc/net/netstat`: a line of names, a line of numbers.
pub(super) fn pairs(text: &str, sink: &mut dyn MetricSink) {
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
            let field = FIELDS.iter().find(|entry| (entry.0, entry.1) == (group, name));
            if let (Some((_, _, metric)), Ok(value)) = (field, value.parse::<u64>()) {
                sink.record(metric, &[], value as f64);
            }
        }
    }
}

/// `/proc/net/sockstat`
pub(super) fn sockstat(text: &str, sink: &mut dyn MetricSink) {
    for line in text.lines() {
        let Some((group, rest)) = line.split_once(':') else { continue };
        let mut words = rest.split_ascii_whitespace();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            let Ok(value) = value.parse::<u64>() else { continue };
            let value = value as f64;
            match (group, name) {
                ("sockets", "used") => sink.record(&SOCKETS, &[], value),
                ("TCP", "mem") => sink.record(&TCP_MEMORY, &[], value),
                ("TCP", name) => {
                    if let Some((_, metric)) = TCP_SOCKETS.iter().find(|entry| entry.0 == name) {
                        sink.record(metric, &[], value);
                    }
                }
                ("UDP", "inuse") => sink.record(&UDP_SOCKETS, &[], value),
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
            ("host_tcp_sockets_in_use{}", 1.0),
            ("host_tcp_sockets_orphaned{}", 0.0),
            ("host_tcp_sockets_time_wait{}", 5.0),
            ("host_tcp_sockets_allocated{}", 2.0),
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
