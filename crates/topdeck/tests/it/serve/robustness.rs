//! A server with default limits and misbehaving clients: it still responds, and its memory is
//! bounded.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use super::client::request;
use super::matrix::await_stored;
use super::server_process::{ServerProcess, free_port, wait_until};

/// Limit of resident memory besides bodies: far more than required, far less than without a limit.
const RESIDENT_MAX: u64 = 400 << 20;

/// Ports of all listeners.
struct ServerPorts {
    http: u16,
    statsd: u16,
    graphite: u16,
}

fn server() -> (ServerProcess, ServerPorts) {
    server_with("")
}

/// Server with settings in addition to its listeners.
fn server_with(more: &str) -> (ServerProcess, ServerPorts) {
    let (statsd, graphite) = (free_port(), free_port());
    let listen = |name: &str, port: u16| {
        format!("[{name}]\nudp = [\"127.0.0.1:0\"]\ntcp = [\"127.0.0.1:{port}\"]\n")
    };
    let more = [listen("statsd", statsd), listen("graphite", graphite), more.to_owned()].concat();
    let mut deck = ServerProcess::new("serve", &more);
    deck.start();
    let ports = ServerPorts { http: deck.port, statsd, graphite };
    (deck, ports)
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let stream = stream.expect("it listens");
    stream.set_read_timeout(Some(crate::environment::TIMEOUT)).expect("a time can be set");
    stream
}

/// The server accepts a value, and its memory is within the limit.
#[track_caller]
fn check_alive(deck: &ServerProcess, values: u64) {
    let answer = request(deck.port, "POST", "/v1/record?metric=took&unit=ms", &[], b"5\n");
    let answer = answer.expect("it answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    await_stored(deck, values);
    let resident = deck.resident_bytes();
    assert!(resident < RESIDENT_MAX, "{resident} bytes");
}

/// A client that sends a byte from time to time blocks nobody and is disconnected.
#[test]
fn slow_clients_are_disconnected() {
    let (deck, ports) = server_with("[http.limits]\nheader_read_timeout = \"1s\"\n");
    let mut slow: Vec<TcpStream> = (0..200).map(|_| connect(ports.http)).collect();
    for stream in &mut slow {
        stream
            .write_all(b"POST /v1/record?metric=took HTTP/1.1\r\nHost: localhost\r\nX-")
            .expect("it is read");
    }
    let mut others: Vec<TcpStream> = [ports.statsd, ports.graphite]
        .into_iter()
        .flat_map(|port| (0..100).map(move |_| connect(port)))
        .collect();
    for stream in &mut others {
        stream.write_all(b"took").expect("it is read");
    }
    check_alive(&deck, 1);
    for stream in &mut slow {
        // An error response, or none, but the connection is closed.
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }
    check_alive(&deck, 2);
}

#[test]
fn garbage_on_each_port_is_harmless() {
    let (deck, ports) = server();
    let mut state = 1u64;
    let mut garbage = |n: usize| -> Vec<u8> {
        let mut byte = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..n).map(|_| byte()).collect()
    };
    let starts: [&[u8]; 5] = [
        b"",
        b"\x16\x03\x01\x02\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\n",
        b"took:",
    ];
    for round in 0..20 {
        for port in [ports.http, ports.statsd, ports.graphite] {
            let mut stream = connect(port);
            // The server may close the connection early.
            let _ = stream.write_all(starts[round % starts.len()]);
            let _ = stream.write_all(&garbage(1 + round * 997));
            let _ = stream.shutdown(Shutdown::Write);
        }
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        for port in ["StatsD", "Graphite"].map(|of| deck.udp_port(of)) {
            socket
                .send_to(&garbage(1 + round * 61), ("127.0.0.1", port))
                .expect("loopback takes it");
        }
    }
    check_alive(&deck, 1);
}

#[test]
fn oversized_bodies_are_rejected_early() {
    let (deck, ports) = server();
    let claims = |more: &str| {
        let mut stream = connect(ports.http);
        let head = format!(
            "POST /v1/record?metric=took HTTP/1.1\r\nHost: localhost\r\nConnection: \
             close\r\n{more}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is read");
        stream
    };
    let status = |mut stream: TcpStream| {
        let mut answer = Vec::new();
        // Unread data may cause a reset after the response.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned)
    };
    for length in ["16777217", "1000000000000", "18446744073709551615"] {
        let found = status(claims(&format!("Content-Length: {length}")));
        // The largest number is not a valid length.
        let expected = if length.len() > 19 { "431" } else { "413" };
        assert_eq!(found.as_deref(), Some(expected), "{length}");
    }
    let mut chunked = claims("Transfer-Encoding: chunked");
    let block = [b"10000\r\n".as_slice(), &[b'1'; 0x1_0000], b"\r\n"].concat();
    let taken = (0..1000).take_while(|_| chunked.write_all(&block).is_ok()).count();
    assert!(taken < 1000, "all was taken");
    if let Some(found) = status(chunked) {
        assert_eq!(found, "413");
    }
    // A small body that decompresses to a large one.
    let zeros = vec![0u8; 64 << 20];
    let packed = gzip_stored_runs(&zeros);
    let headers = [("Content-Encoding", "gzip")];
    let answer = request(deck.port, "POST", "/v1/record?metric=took", &headers, &packed)
        .expect("it answers");
    assert_eq!(answer.status, 413, "{}", answer.text());
    check_alive(&deck, 1);
}

/// Gzip member with fixed-code deflate: a literal 0, then copies of 258 bytes at distance 1.
fn gzip_stored_runs(zeros: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut bits, mut n) = (0u64, 0);
    let mut put = |value: u64, width: u32, bytes: &mut Vec<u8>| {
        bits |= value << n;
        n += width;
        while n >= 8 {
            bytes.push(bits as u8);
            bits >>= 8;
            n -= 8;
        }
    };
    let reversed = |value: u64, width: u32| value.reverse_bits() >> (64 - width);
    put(1, 1, &mut bytes);
    put(1, 2, &mut bytes);
    put(reversed(0x30, 8), 8, &mut bytes);
    for _ in 0..zeros.len() / 258 {
        // Length 258 is symbol 285, an 8-bit code from 0b11000000 on for 280; distance 1 is code 0
        // of five bits.
        put(reversed(0b1100_0101, 8), 8, &mut bytes);
        put(0, 5, &mut bytes);
    }
    put(0, 7, &mut bytes);
    put(0, 8, &mut bytes);
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

#[test]
fn half_open_connections_end() {
    let (deck, ports) = server();
    for port in [ports.http, ports.statsd, ports.graphite] {
        for _ in 0..50 {
            let stream = connect(port);
            stream.shutdown(Shutdown::Write).expect("it is open");
            let mut stream = stream;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("it ends in order");
        }
    }
    check_alive(&deck, 1);
}

fn hold_idle_connections(n: usize) {
    let own = std::process::id().to_string();
    let files = format!("--nofile={}:", n + 1000);
    let raised = Command::new("prlimit").args(["--pid", &own, &files]).output();
    if !raised.is_ok_and(|output| output.status.success()) {
        println!("skipped: {n} connections are more than this process may have open files");
        return;
    }
    let (deck, ports) = server();
    let before = deck.resident_bytes();
    let mut streams: Vec<TcpStream> = (0..n).map(|_| connect(ports.http)).collect();
    check_alive(&deck, 1);
    let each = deck.resident_bytes().saturating_sub(before) / n as u64;
    println!("{n} idle connections take {each} bytes each");
    // Idle connections are served when they send a request.
    let every = (n / 50).max(1);
    for stream in streams.iter_mut().step_by(every) {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is open");
        let mut start = [0; 12];
        stream.read_exact(&mut start).expect("it answers");
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    drop(streams);
    wait_until("it holds none of them", || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", deck.pid())).map_or(0, Iterator::count);
        fds < 200
    });
    check_alive(&deck, 2);
}

#[test]
fn thousand_idle_connections_delay_nobody() {
    hold_idle_connections(1_000);
}

#[test]
#[ignore = "ten thousand connections; `make soak` runs it"]
fn soak_ten_thousand_idle_connections_delay_nobody() {
    hold_idle_connections(10_000);
}
