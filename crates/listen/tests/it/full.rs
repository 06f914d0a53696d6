//! A journal without room.

use std::net::UdpSocket;
use std::sync::Arc;

use journal::{AtLimit, Limits, Settings, Start};
use listen::{Listener, Statsd};

use crate::world::{World, ip, loopback, nowhere};

#[test]
fn an_interval_that_finds_no_room_is_kept() {
    let limits = |bytes_max| Limits { bytes_max, age_max: None, at_limit: AtLimit::Refuse };
    let settings = Settings {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        limits: limits(Some(256 << 10)),
        ..Settings::default()
    };
    let world = World::with(settings);
    world.journal.add_subscriber("slow", Start::Begin, true).unwrap();
    let mut records = 0u32;
    while world.journal.append(&[7; 4000], journal::Level::Disk).is_ok() {
        records += 1;
        assert!(records < 1000, "it is full some time");
    }
    let settings = Statsd { udp: vec![loopback()], ..nowhere() };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let mut received = 0;
    for interval in 0..12 {
        world.set(3 + 10 * interval);
        // Larger than what may be left of the last segment.
        for series in 0..200 {
            let line = format!("{:0>200}{series}:1|ms", "");
            socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
            received += 1;
        }
        world.wait("topdeck_listen_values_total", "received", received);
        world.wait("topdeck_batches_total", "refused", interval as u64);
    }
    assert_eq!(world.values("taken"), 0);
    world.journal.set_limits(limits(None)).unwrap();
    listener.stop();
    assert_eq!((world.values("taken"), world.values("full")), (received, 0));
}
