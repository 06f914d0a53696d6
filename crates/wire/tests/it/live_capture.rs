//! Capture of connections of this process on the loopback interface, where that is allowed.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use wire::{CaptureError, ConnectionTracker, PacketRing, RingSettings};

use crate::checks::message_protocol::message;
use crate::conversation::{counts, settings};

const REQUESTS: u32 = 50;
/// Blocks of a ring. The kernel passes a block on 20 ms after its first packet, however few packets
/// it has: a process that does not run for 40 ms would lose packets of a ring of two blocks.
const RING_BLOCKS: usize = 64;
/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);

fn open(port: u16, interface: &str) -> Result<PacketRing, CaptureError> {
    let interface = Some(interface.to_owned());
    PacketRing::open(&RingSettings { interface, ports: vec![port], blocks: RING_BLOCKS })
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
        Err(error) => return skip(error),
    };
    let mut settings = settings();
    settings.rules[0].port = server.port();
    let mut tracker = ConnectionTracker::new(settings);
    let conversation = thread::spawn(move || {
        let serving = thread::spawn(move || serve(&listener));
        let mut client = TcpStream::connect(server).unwrap();
        for id in 0..REQUESTS {
            client.write_all(&message(b'Q', id, 20)).unwrap();
            client.read_exact(&mut message(b'R', id, 2_000)).unwrap();
        }
        drop(client);
        serving.join().unwrap();
    });
    let deadline = Instant::now() + TIMEOUT;
    while tracker.services().is_empty() || tracker.open_connections() > 0 {
        let found = (counts(&tracker), ring.statistics().unwrap());
        assert!(Instant::now() < deadline, "{found:?}");
        ring.read(Duration::from_millis(100), &mut |packet| tracker.read(packet)).unwrap();
    }
    conversation.join().unwrap();
    assert_eq!(counts(&tracker), (REQUESTS.into(), 0, 0));
    let found = &tracker.services()[0].completeness;
    assert_eq!((found.connections_from_start, found.retransmitted_segments), (1, 0));
    let statistics = ring.statistics().unwrap();
    // The last acknowledgement belongs to no open connection.
    assert!(statistics.drops == 0 && statistics.packets >= found.packets, "{statistics:?}");
}

/// A ring that is open gets the packets of other ports from then on.
#[test]
fn ports_are_replaced_without_a_new_ring() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    // The port of another socket of this test, to which nobody connects.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ring = match open(other.local_addr().unwrap().port(), "lo") {
        Ok(ring) => ring,
        Err(error) => return skip(error),
    };
    let mut settings = settings();
    settings.rules[0].port = server.port();
    let mut tracker = ConnectionTracker::new(settings);
    let converse = |id: u32| {
        let mut client = TcpStream::connect(server).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        client.write_all(&message(b'Q', id, 20)).unwrap();
        accepted.read_exact(&mut message(b'Q', id, 20)).unwrap();
        accepted.write_all(&message(b'R', id, 30)).unwrap();
        client.read_exact(&mut message(b'R', id, 30)).unwrap();
    };
    converse(0);
    ring.set_ports(&[server.port()]).unwrap();
    converse(1);
    let deadline = Instant::now() + TIMEOUT;
    while counts(&tracker).0 == 0 {
        assert!(Instant::now() < deadline, "{:?}", ring.statistics().unwrap());
        ring.read(Duration::from_millis(100), &mut |packet| tracker.read(packet)).unwrap();
    }
    assert_eq!(counts(&tracker), (1, 0, 0), "the second one");
    assert!(ring.set_ports(&[1; 200]).is_err());
}

/// A machine on which this process may not capture; any other error is a failure.
fn skip(error: CaptureError) {
    match error {
        CaptureError::Permission(error) => println!("skipped: {error}"),
        error => panic!("{error}"),
    }
}

/// Answers one request of each of many connections.
fn serve_each(listener: &TcpListener, connections: u32) {
    for id in 0..connections {
        let (mut client, _) = listener.accept().unwrap();
        client.read_exact(&mut message(b'Q', id, 20)).unwrap();
        client.write_all(&message(b'R', id, 2_000)).unwrap();
    }
}

#[test]
fn both_directions_of_a_connection_are_in_one_ring_of_a_group() {
    const CONNECTIONS: u32 = 64;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let interface = Some("lo".to_owned());
    let group = RingSettings { interface, ports: vec![server.port()], blocks: RING_BLOCKS };
    let mut rings = match PacketRing::open_group(&group, 2) {
        Ok(rings) => rings,
        Err(error) => return skip(error),
    };
    let mut settings = settings();
    settings.rules[0].port = server.port();
    let mut trackers = [0; 2].map(|_| ConnectionTracker::new(settings.clone()));
    let conversation = thread::spawn(move || {
        let serving = thread::spawn(move || serve_each(&listener, CONNECTIONS));
        for id in 0..CONNECTIONS {
            let mut client = TcpStream::connect(server).unwrap();
            client.write_all(&message(b'Q', id, 20)).unwrap();
            client.read_exact(&mut message(b'R', id, 2_000)).unwrap();
        }
        serving.join().unwrap();
    });
    let deadline = Instant::now() + TIMEOUT;
    let measured =
        |trackers: &[ConnectionTracker; 2]| trackers.each_ref().map(|tracker| counts(tracker).0);
    while measured(&trackers).iter().sum::<u64>() < u64::from(CONNECTIONS) {
        let statistics: Vec<_> = rings.iter_mut().map(|ring| ring.statistics().unwrap()).collect();
        assert!(Instant::now() < deadline, "{:?} {statistics:?}", measured(&trackers));
        for (ring, tracker) in rings.iter_mut().zip(&mut trackers) {
            ring.read(Duration::from_millis(20), &mut |packet| tracker.read(packet)).unwrap();
        }
    }
    conversation.join().unwrap();
    // With 64 connections, all are in one ring once in 2^63 runs.
    assert!(measured(&trackers).iter().all(|measured| *measured > 0), "{:?}", measured(&trackers));
    for tracker in &trackers {
        let found = &tracker.services()[0].completeness;
        assert_eq!((found.connections_from_middle, found.gaps), (0, 0));
        assert_eq!(found.connections_from_start, found.measured);
    }
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
