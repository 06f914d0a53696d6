//! UDP and Unix datagrams.

use std::net::UdpSocket;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::Arc;

use listen::{Error, Limits, ListenAddress, Listener, Settings, SocketAddresses};
use model::SampleValue;

use crate::fixture::{
    ListenFixture, TestDir, collectd, graphite, ip, loopback, statsd, udp_sockets,
};

fn udp() -> Settings {
    statsd(udp_sockets())
}

/// Sends datagrams, stops the listener, and returns the stored rows.
#[track_caller]
fn check(settings: Settings, datagrams: &[&str], expected: &[&str]) {
    let datagrams: Vec<&[u8]> = datagrams.iter().map(|text| text.as_bytes()).collect();
    check_bytes(settings, &datagrams, expected);
}

#[track_caller]
fn check_bytes(settings: Settings, datagrams: &[&[u8]], expected: &[&str]) {
    let world = ListenFixture::new();
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    for datagram in datagrams {
        socket.send_to(datagram, ip(&listener.addresses()[0])).unwrap();
    }
    listener.stop();
    assert_eq!(world.dump_rows(), expected.join("\n"));
    world.check_ledger();
}

#[test]
fn metrics_are_aggregated() {
    check(
        udp(),
        &[
            "a:1.5|ms\na:2:3|ms",
            "a:1|h\na:2|d",
            "b:1|c\nb:2|c|@0.5",
            "b:1|c|#x:1,fast",
            "g:4|g\ng:+2|g\ng:-1|g",
            "h:-3|g",
            "u:x|s\nu:y|s\nu:x|s",
            "w:3|ms|@0.25",
        ],
        &[
            "a 0..3 2 of 3",
            "a 0..3 3 of 6500000ns",
            "b 0..3 5",
            "b{fast=\"true\",x=\"1\"} 0..3 1",
            "g 3..3 5",
            "h 3..3 -3",
            "u 0..3 2",
            "w 0..3 4 of 12000000ns",
        ],
    );
}

#[test]
fn timestamped_value_goes_to_its_interval() {
    check(
        udp(),
        &[
            "a:1|ms|T1699999999\na:2|ms|T1700000000\na:3|c|T1699999990",
            "a:7|g|T1699999905",
            "a:1|ms|T1700090000",
        ],
        &[
            "a -10..0 1 of 1000000ns",
            "a -10..0 3",
            "a -95..-95 7",
            "a 0..3 1 of 2000000ns",
            "lost 1: timestamp more than a day in the future",
        ],
    );
}

#[test]
fn graphite_values_keep_their_timestamps() {
    check(
        graphite(udp_sockets()),
        &["a.b 1 1699999999\n a.b 2 -1 \r\n", "a;x=1 3 N\n\nb nan 1\nb x 1\n"],
        &["a.b -1..-1 1", "a.b 3..3 2", "a{x=\"1\"} 3..3 3"],
    );
}

#[test]
fn values_of_collectd_keep_their_timestamps_and_kinds() {
    let part = |kind: u16, body: &[u8]| {
        let length = (body.len() + 4) as u16;
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
    };
    let values = |kinds: &[u8], numbers: &[[u8; 8]]| {
        let count = (kinds.len() as u16).to_be_bytes();
        part(6, &[&count[..], kinds, &numbers.concat()].concat())
    };
    let packet = [
        part(0, b"web-1\0"),
        part(1, &1_699_999_999_u64.to_be_bytes()),
        part(2, b"interface\0"),
        part(3, b"eth0\0"),
        part(4, b"if_octets\0"),
        values(&[2, 2], &[7_i64.to_be_bytes(), 8_i64.to_be_bytes()]),
        part(2, b"dns\0"),
        part(3, b"\0"),
        part(4, b"queries\0"),
        values(&[3], &[5_u64.to_be_bytes()]),
        part(1, &1_700_000_000_u64.to_be_bytes()),
        values(&[3], &[6_u64.to_be_bytes()]),
        part(4, b"load\0"),
        values(&[1], &[0.5_f64.to_le_bytes()]),
    ];
    let packet = packet.concat();
    check_bytes(
        collectd(udp_sockets()),
        // What precedes the damage is stored.
        &[&packet, &[&packet[..packet.len() - 4], &[1]].concat(), b"stats:1|c", b""],
        &[
            "collectd_dns_load{host=\"web-1\"} 0..0 0.5",
            "collectd_dns_queries_total{host=\"web-1\"} -10..0 10",
            "collectd_dns_queries_total{host=\"web-1\"} 0..3 12",
            "collectd_interface_if_octets_rx_total{host=\"web-1\",plugin_instance=\"eth0\"} \
             -1..-1 7",
            "collectd_interface_if_octets_rx_total{host=\"web-1\",plugin_instance=\"eth0\"} \
             -1..-1 7",
            "collectd_interface_if_octets_tx_total{host=\"web-1\",plugin_instance=\"eth0\"} \
             -1..-1 8",
            "collectd_interface_if_octets_tx_total{host=\"web-1\",plugin_instance=\"eth0\"} \
             -1..-1 8",
        ],
    );
}

#[test]
fn malformed_lines_are_reported_with_their_sender() {
    let world = ListenFixture::new();
    let listener = Listener::start(udp(), Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let to = ip(&listener.addresses()[0]);
    for datagram in [&b"garbage\na:1|c\n_e{1,1}:a|b\na:x|c\n\xff:1|c"[..], b"", &[0; 60_000]] {
        socket.send_to(datagram, to).unwrap();
    }
    for _ in 0..100 {
        socket.send_to(b":1|c", to).unwrap();
    }
    let lines = "topdeck_listen_lines_total";
    world.wait(lines, "rejected", 104);
    let from = socket.local_addr().unwrap();
    let errors = listener.recent_errors();
    let said = format!("udp {from}: line 1: expected name:value|type, found \"garbage\"");
    assert!(errors.contains(&said), "{errors:?}");
    assert!(errors.len() <= 10, "{errors:?}");
    // They are part of the status, as docs/listen.md says.
    let status = format!("{:#}", listener.status()());
    assert!(status.contains("\"format\":\"statsd\""), "{status}");
    assert!(status.contains("\"rejected_lines\":104"), "{status}");
    assert!(status.contains("expected name:value|type, found \\\"garbage\\\""), "{status}");
    listener.stop();
    assert_eq!((world.count(lines, "rejected"), world.count(lines, "skipped")), (104, 1));
    assert_eq!(world.dump_rows(), "a 0..3 1");
}

#[test]
fn series_beyond_the_limit_are_dropped_and_counted() {
    let lines: Vec<String> = (0..10).map(|n| format!("a{n}:1|ms\n")).collect();
    let lines = lines.concat();
    check(
        Settings { limits: Limits { series_max: 3, ..Limits::default() }, ..udp() },
        &[&lines, "a0:5:5|ms"],
        &[
            "a0 0..3 3 of 11000000ns",
            "a1 0..3 1 of 1000000ns",
            "a2 0..3 1 of 1000000ns",
            "lost 7: series limit per interval reached",
        ],
    );
}

#[test]
fn invalid_series_are_dropped_and_counted() {
    let long = "x".repeat(2000);
    check(
        udp(),
        &[&format!("{long}:1:2|ms\na:1|ms")],
        &["a 0..3 1 of 1000000ns", "lost 2: series or value rejected by the store"],
    );
}

/// Number of timings in the histograms.
fn timings(world: &ListenFixture) -> u64 {
    let (rows, _) = world.stored();
    let count = |value: &SampleValue| match value {
        SampleValue::Histogram(histogram) => histogram.count(),
        _ => 0,
    };
    rows.iter().map(|(_, sample)| count(&sample.value)).sum()
}

#[test]
fn kernel_drops_are_counted() {
    let world = ListenFixture::new();
    let settings =
        Settings { limits: Limits { receive_buffer_bytes: 4096, ..Limits::default() }, ..udp() };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let (to, count) = (ip(&listener.addresses()[0]), 20_000u64);
    for n in 0..count {
        socket.send_to(format!("a:{n}:1:2:3:4|ms\nb:1|ms").as_bytes(), to).unwrap();
    }
    listener.stop();
    let dropped = world.values("socket_buffer_full");
    assert_eq!(timings(&world) + 6 * dropped, 6 * count);
    assert_eq!(world.values("accepted"), timings(&world));
    let (_, gaps) = world.stored();
    assert_eq!(gaps.iter().map(|gap| gap.lost.unwrap()).sum::<u64>(), dropped);
    world.check_ledger();
}

#[test]
fn ipv4_and_ipv6_listen_on_one_port() {
    if UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: there is no IPv6 here");
        return;
    }
    let world = ListenFixture::new();
    let settings = statsd(SocketAddresses {
        udp: vec![loopback(), "[::1]:0".parse().unwrap()],
        ..SocketAddresses::default()
    });
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    for (from, address) in ["127.0.0.1:0", "[::1]:0"].iter().zip(listener.addresses()) {
        let socket = UdpSocket::bind(from).unwrap();
        socket.send_to(b"a:1|ms\ns:x|s\nc:2|c", ip(address)).unwrap();
    }
    listener.stop();
    assert_eq!(world.dump_rows(), "a 0..3 2 of 2000000ns\nc 0..3 4\ns 0..3 1");
}

#[test]
fn nothing_is_dropped_on_a_unix_socket() {
    let (world, dir) = (ListenFixture::new(), TestDir::new());
    let path = dir.0.join("socket");
    let settings =
        statsd(SocketAddresses { unix: Some(path.clone()), ..SocketAddresses::default() });
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    assert_eq!(listener.addresses(), [ListenAddress::Unix(path.clone())]);
    let socket = UnixDatagram::unbound().unwrap();
    let count = 20_000u64;
    for n in 0..count {
        socket.send_to(format!("a:{n}|ms\nb:1:2|ms").as_bytes(), &path).unwrap();
    }
    // Truncated at the read size: the incomplete line is rejected.
    socket.send_to(format!("c:1|ms\nc:{}", "1".repeat(150_000)).as_bytes(), &path).unwrap();
    listener.stop();
    assert_eq!((timings(&world), world.values("accepted")), (3 * count + 1, 3 * count + 1));
    assert!(!path.exists(), "the socket is gone");
}

#[test]
fn stale_unix_socket_is_replaced() {
    let (world, dir) = (ListenFixture::new(), TestDir::new());
    let path = dir.0.join("socket");
    let start = || {
        let settings =
            statsd(SocketAddresses { unix: Some(path.clone()), ..SocketAddresses::default() });
        Listener::start(settings, Arc::clone(&world.intake))
    };
    drop(UnixDatagram::bind(&path).unwrap());
    let listener = start().unwrap();
    assert!(matches!(start(), Err(Error::AddressInUse { .. })));
    listener.stop();
    let other = UnixListener::bind(&path).unwrap();
    assert!(matches!(start(), Err(Error::AddressInUse { .. })));
    drop(other);
    start().unwrap().stop();
    std::fs::write(&path, "mine").unwrap();
    assert!(matches!(start(), Err(Error::NotASocket { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn port_in_use_is_named() {
    let world = ListenFixture::new();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    let settings = statsd(SocketAddresses { udp: vec![address], ..SocketAddresses::default() });
    let error = Listener::start(settings, Arc::clone(&world.intake)).unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with(&format!("cannot listen on udp {address}: ")), "{error}");
    // "Address already in use (os error 98)" said nothing of what to do.
    assert!(error.ends_with("`ss -lntup`, and stop it or choose another address"), "{error}");
    let error =
        Listener::start(statsd(SocketAddresses::default()), Arc::clone(&world.intake)).unwrap_err();
    assert!(matches!(error, Error::NoAddress));
}

#[test]
fn gauges_carry_over_between_intervals() {
    let world = ListenFixture::new();
    let listener = Listener::start(udp(), Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    for (seconds, line) in [(3, "a:10|g"), (14, "a:+5|g"), (27, "a:-1|g")] {
        world.set_now(seconds);
        socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
        world.wait("topdeck_listen_values_total", "received", (seconds as u64 + 9) / 11);
    }
    listener.stop();
    assert_eq!(world.dump_rows(), "a 14..14 15\na 27..27 14\na 3..3 10");
}
