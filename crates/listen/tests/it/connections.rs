//! Connections.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use listen::{Limits, Listener, Settings, SocketAddresses};

use crate::fixture::{ListenFixture, graphite, ip, loopback, statsd, tcp_sockets};

fn tcp() -> Settings {
    statsd(tcp_sockets())
}

/// Sends pieces over a connection, each read by the listener before the next is sent, and returns
/// the stored rows.
#[track_caller]
fn check(settings: Settings, pieces: &[&str], expected: &str) {
    let world = ListenFixture::new();
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let mut stream = TcpStream::connect(ip(&listener.addresses()[0])).unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    drop(stream);
    listener.stop();
    assert_eq!(world.dump_rows(), expected);
}

#[test]
fn lines_may_arrive_in_pieces() {
    check(tcp(), &["a:1|", "c\na:2|c\r\nb", ":5|c\n"], "a 0..3 3\nb 0..3 5");
    check(tcp(), &["\n\na:1|c\n\nb:1|c"], "a 0..3 1\nb 0..3 1");
    check(tcp(), &[], "");
}

#[test]
fn overlong_line_is_skipped() {
    let settings = Settings { limits: Limits { line_bytes_max: 16, ..Limits::default() }, ..tcp() };
    let long = "x".repeat(100_000);
    let all = format!("a:1|c\n{long}\na:2|c\n{long}:1|c");
    check(settings.clone(), &[&all], "a 0..3 3");
    check(settings, &["123456789012:1|c", "\n", "1234567890123:1|c\n"], "123456789012 0..3 1");
}

#[test]
fn many_connections_send_at_once_and_nothing_is_lost() {
    let world = ListenFixture::new();
    let settings =
        statsd(SocketAddresses { tcp: vec![loopback(); 2], ..SocketAddresses::default() });
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let send = |door: usize| {
        let mut stream = TcpStream::connect(ip(&listener.addresses()[door])).unwrap();
        for n in 0..2000 {
            write!(stream, "a:{n}|ms\nb:1|c\n").unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| send(0));
            scope.spawn(|| send(1));
        }
    });
    listener.stop();
    assert_eq!(world.dump_rows(), "a 0..3 32000 of 31984000000000ns\nb 0..3 32000");
    world.check_ledger();
}

#[test]
fn connection_limit_is_enforced() {
    let world = ListenFixture::new();
    let settings = Settings { limits: Limits { connections_max: 2, ..Limits::default() }, ..tcp() };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let to = ip(&listener.addresses()[0]);
    let connections = "topdeck_listen_connections_total";
    let mut first: Vec<TcpStream> = Vec::new();
    for count in 1..=2 {
        first.push(TcpStream::connect(to).unwrap());
        world.wait(connections, "accepted", count);
    }
    let mut third = TcpStream::connect(to).unwrap();
    assert_eq!(third.read(&mut [0; 1]).unwrap(), 0, "it is closed");
    assert_eq!(world.count(connections, "rejected"), 1);
    first[1].write_all(b"a:1|c\n").unwrap();
    listener.stop();
    assert_eq!(world.dump_rows(), "a 0..3 1");
}

#[test]
fn idle_connection_is_closed() {
    let world = ListenFixture::new();
    let settings = Settings {
        limits: Limits { idle_timeout: Duration::from_millis(1), ..Limits::default() },
        ..tcp()
    };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let mut stream = TcpStream::connect(ip(&listener.addresses()[0])).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    world.wait("topdeck_listen_connections_total", "idle_closed", 1);
    listener.stop();
}

#[test]
fn senders_wait_while_memory_is_full() {
    let world = ListenFixture::new();
    // Less than the memory of one series and one read of lines.
    let limits = Limits { memory_bytes_max: 4096, ..Limits::default() };
    let settings = Settings { limits, ..graphite(tcp_sockets()) };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let mut stream = TcpStream::connect(ip(&listener.addresses()[0])).unwrap();
    let count = 2000u64;
    for n in 0..count {
        writeln!(stream, "a {n} 1700000000").unwrap();
    }
    let values = "topdeck_listen_values_total";
    world.wait(values, "received", count);
    listener.stop();
    let (rows, gaps) = world.stored();
    assert_eq!((rows.len() as u64, gaps.len()), (count, 0));
    assert_eq!((world.values("accepted"), world.values("memory_limit")), (count, 0));
    world.check_ledger();
}
