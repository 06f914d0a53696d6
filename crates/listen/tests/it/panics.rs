//! Panics in a listener's threads: the threads are restarted, and the loss is counted and recorded
//! as a gap.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;

use intake::Supervisor;
use listen::{Listener, SocketAddresses};

use crate::fixture::{ListenFixture, ip, loopback, statsd, udp_sockets};

fn fixture_with_panics(points: &[(&str, u32)]) -> ListenFixture {
    ListenFixture::supervised(
        journal::Settings::default(),
        Supervisor::with_injected_panics(points),
    )
}

/// Waits until a thread was restarted.
#[track_caller]
fn await_restart(world: &ListenFixture, thread: &str) {
    while world.intake.supervisor().restarts(thread) == 0 {
        std::thread::yield_now();
    }
}

const VALUES: &str = "topdeck_listen_values_total";

#[test]
fn panicking_threads_restart_without_loss() {
    let threads = ["statsd datagrams", "statsd streams", "statsd flusher"];
    let world = fixture_with_panics(&threads.map(|thread| (thread, 1)));
    let settings = statsd(SocketAddresses {
        udp: vec![loopback()],
        tcp: vec![loopback()],
        ..SocketAddresses::default()
    });
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    threads.iter().for_each(|thread| await_restart(&world, thread));
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.send_to(b"a:1|c", ip(&listener.addresses()[0])).unwrap();
    TcpStream::connect(ip(&listener.addresses()[1])).unwrap().write_all(b"a:2|c\n").unwrap();
    world.wait(VALUES, "received", 2);
    listener.stop();
    assert_eq!(world.dump_rows(), "a 0..3 3");
    world.check_ledger();
}

#[test]
fn line_that_panics_is_rejected_and_the_next_is_read() {
    let world = fixture_with_panics(&[("listen packet", 1)]);
    let settings = statsd(udp_sockets());
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.send_to(b"a:1|c", ip(&listener.addresses()[0])).unwrap();
    world.wait("topdeck_listen_lines_total", "rejected", 1);
    socket.send_to(b"a:2|c", ip(&listener.addresses()[0])).unwrap();
    world.wait(VALUES, "received", 2);
    // There may also be an error about the receive buffer, which needs root for this size.
    let messages = listener.recent_errors();
    let is_named =
        |message: &String| message.contains("cannot parse \"a:1|c\": the parser panicked");
    assert!(messages.iter().any(is_named), "{messages:?}");
    assert_eq!(world.intake.supervisor().panics("statsd lines"), 1);
    listener.stop();
    // The first line was processed before the panic.
    assert_eq!(world.dump_rows(), "a 0..3 3");
    world.check_ledger();
}

#[test]
fn values_in_a_panicking_flusher_become_a_gap() {
    let world = fixture_with_panics(&[("listen write", 1)]);
    let settings = statsd(udp_sockets());
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    socket.send_to(b"a:1|c\na:2|ms", ip(&listener.addresses()[0])).unwrap();
    world.wait(VALUES, "received", 2);
    // The completed interval is lost during the flush.
    world.set_now(13);
    await_restart(&world, "statsd flusher");
    socket.send_to(b"a:4|c", ip(&listener.addresses()[0])).unwrap();
    world.wait(VALUES, "received", 3);
    listener.stop();
    assert_eq!(world.dump_rows(), "a 10..13 4\nlost 2: processing of the values panicked");
    assert_eq!((world.values("panic"), world.values("accepted")), (2, 1));
    world.check_ledger();
}
