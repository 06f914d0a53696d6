//! Capture of connections of this process on the loopback interface, where that is allowed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wire::{CaptureError, ConnectionTracker, PacketRing, RingSettings};

use crate::checks::message_protocol::message;
use crate::conversation::{counts, settings};

const REQUESTS: u32 = 50;
/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

fn open(port: u16, interface: &str) -> Result<PacketRing, CaptureError> {
    let interface = Some(interface.to_owned());
    PacketRing::open(&RingSettings { interface, ports: vec![port], blocks: 2 })
}

/// Answers each request of one connection.
fn serve(listener: &TcpListener) {
    let (mut client, _) = listener.accept().unwrap();
    for id in 0..REQUESTS {
        let mut request = message(b'Q', id, 20);
        client.read_exact(&mut request).unwrap();
        client.write_all(&message(b'R', id, 2_000)).unwrap();
    }
}

#[test]
fn each_request_is_measured_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let mut ring = match open(server.port(), "lo") {
        Ok(ring) => ring,
        Err(error) => return println!("skipped: {error}"),
    };
    let mut settings = settings();
    settings.rules[0].port = server.port();
    let mut tracker = ConnectionTracker::new(settings);
    let serving = thread::spawn(move || serve(&listener));
    let mut client = TcpStream::connect(server).unwrap();
    for id in 0..REQUESTS {
        client.write_all(&message(b'Q', id, 20)).unwrap();
        client.read_exact(&mut message(b'R', id, 2_000)).unwrap();
    }
    drop(client);
    serving.join().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while tracker.services().is_empty() || tracker.open_connections() > 0 {
        assert!(Instant::now() < deadline, "{:?}", counts(&tracker));
        ring.read(Duration::from_millis(100), &mut |packet| tracker.read(packet)).unwrap();
    }
    assert_eq!(counts(&tracker), (REQUESTS.into(), 0, 0));
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.connections_from_start, found.retransmitted_segments), (1, 0));
    let statistics = ring.statistics().unwrap();
    // The last acknowledgement belongs to no open connection.
    assert!(statistics.drops == 0 && statistics.packets >= found.packets, "{statistics:?}");
}

#[test]
fn an_unknown_interface_is_an_error() {
    let expected = "cannot capture on interface nosuchlink: ";
    match open(80, "nosuchlink").err().unwrap() {
        CaptureError::Permission(error) => println!("skipped: {error}"),
        error => assert!(error.to_string().starts_with(expected), "{error}"),
    }
}

#[test]
fn too_many_ports_are_an_error() {
    let settings = RingSettings { interface: None, ports: (1..=200).collect(), blocks: 2 };
    let expected = "ports limit (100) exceeded (200); name fewer services";
    assert_eq!(PacketRing::open(&settings).err().unwrap().to_string(), expected);
}
