//! Tests with a full journal.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use journal::{Compression, LimitPolicy, Limits, Settings, StartPosition};
use listen::{Limits as Bounds, Listener};

use crate::fixture::{ListenFixture, ip, loopback, statsd, tcp_sockets, udp_sockets};

/// Fills a journal to less than a record of 4,000 bytes.
fn full_journal_fixture() -> ListenFixture {
    let bytes_max = Some(256 << 10);
    let limits = Limits { bytes_max, age_max: None, on_full: LimitPolicy::Reject };
    let settings = Settings {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        compression: Compression::None,
        limits,
        ..Settings::default()
    };
    let world = ListenFixture::with(settings);
    world.journal.add_subscriber("slow", StartPosition::First, true).unwrap();
    let mut records = 0u32;
    while world.journal.append(&[7; 4000], journal::Level::Disk).is_ok() {
        records += 1;
        assert!(records < 1000, "the journal fills up");
    }
    world
}

/// Free space is polled often, and only briefly during a stop.
fn short_intervals() -> Bounds {
    let (sleep_max, stop_max) = (Duration::from_millis(10), Duration::from_millis(100));
    Bounds { pause_max: sleep_max, stop_timeout: stop_max, ..Bounds::default() }
}

#[test]
fn interval_is_retained_while_the_journal_is_full() {
    let world = full_journal_fixture();
    let limits = Bounds { stop_timeout: Duration::from_secs(60), ..short_intervals() };
    let settings = listen::Settings { limits, ..statsd(udp_sockets()) };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let mut received = 0;
    for interval in 0..10 {
        world.set_now(3 + 10 * interval);
        // Larger than the rest of the last segment.
        for series in 0..200 {
            let line = format!("{:0>40}{series}:1|ms", "");
            socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
            received += 1;
        }
        world.wait("topdeck_listen_values_total", "received", received);
        world.wait("topdeck_batches_total", "deferred", interval as u64);
    }
    assert_eq!(world.values("accepted"), 0);
    // Both subscribers have read everything, so their retained segments are freed.
    world.journal.set_checkpoint("slow", StartPosition::End).unwrap();
    world.intake.checkpoint_ledger().unwrap();
    listener.stop();
    assert_eq!((world.values("accepted"), world.values("journal_full")), (received, 0));
}

#[test]
fn rows_without_space_at_stop_are_counted() {
    let world = full_journal_fixture();
    let limits = short_intervals();
    let settings = listen::Settings { limits, ..statsd(udp_sockets()) };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let line = format!("{:0>900}:1:2:3|ms\n", "").repeat(50);
    for n in 0..20 {
        let line = line.replace("000:", &format!("{n}:"));
        socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
        // The kernel's buffer may hold only a few datagrams of this size.
        world.wait("topdeck_listen_values_total", "received", 150 * (n + 1));
    }
    let line = (0..60).map(|n| format!("{:0>900}{n}:1|ms\n", "")).collect::<String>();
    socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
    listener.stop();
    assert_eq!((world.values("received"), world.values("accepted")), (3060, 0));
    assert_eq!(world.values("journal_full"), 3060);
}

/// Lines of distinct series, more than the full journal and the listener's memory hold.
fn lines(count: u64) -> Vec<String> {
    (0..count).map(|n| format!("{n:0>400}:1|c\n")).collect()
}

#[test]
fn connections_wait_while_the_journal_is_full() {
    let world = full_journal_fixture();
    let stop_max = Duration::from_secs(60);
    let limits = Bounds { memory_bytes_max: 32 << 10, stop_timeout: stop_max, ..short_intervals() };
    let settings = listen::Settings { limits, ..statsd(tcp_sockets()) };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let to = ip(&listener.addresses()[0]);
    let count = 1000;
    let sender = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        for line in lines(count) {
            stream.write_all(line.as_bytes()).unwrap();
        }
    });
    // Two writes found the journal full; everything read is in memory.
    world.wait("topdeck_batches_total", "deferred", 2);
    let received = world.values("received");
    assert!(received > 0 && received < count, "{received}");
    // A journal thread frees segments some time after all subscribers have read them; only the last
    // segment remains.
    let is_free = || world.journal.stat().unwrap().segment_bytes <= 64 << 10;
    while world.values("received") < count || !is_free() {
        world.journal.set_checkpoint("slow", StartPosition::End).unwrap();
        world.intake.checkpoint_ledger().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    sender.join().unwrap();
    listener.stop();
    let lost = ["memory_limit", "journal_full"].map(|reason| world.values(reason));
    assert_eq!((world.values("accepted"), lost), (count, [0, 0]));
}

/// Datagram senders cannot be slowed down.
#[test]
fn datagrams_beyond_the_memory_limit_are_dropped_and_counted() {
    let world = full_journal_fixture();
    let limits = Bounds { memory_bytes_max: 32 << 10, ..short_intervals() };
    let settings = listen::Settings { limits, ..statsd(udp_sockets()) };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let mut sent = 0;
    // Drops are counted while the overflow lasts.
    while world.values("journal_full") == 0 {
        let line = format!("{sent:0>400}:1|c");
        socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
        sent += 1;
        world.wait("topdeck_listen_values_total", "received", sent);
    }
    listener.stop();
    let lost = world.values("journal_full") + world.values("memory_limit");
    assert_eq!(world.values("accepted") + lost, sent);
}
