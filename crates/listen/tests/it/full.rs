//! A journal without room.

use std::net::UdpSocket;
use std::sync::Arc;

use journal::{AtLimit, Codec, Limits, Settings, Start};
use listen::{Listener, Statsd};

use crate::world::{World, ip, loopback, nowhere};

/// A journal that is full to less than a record of 4,000 bytes.
fn without_room() -> World {
    let bytes_max = Some(256 << 10);
    let limits = Limits { bytes_max, age_max: None, at_limit: AtLimit::Refuse };
    let settings = Settings {
        segment_bytes: 64 << 10,
        buffer_bytes: 16 << 10,
        codec: Codec::None,
        limits,
        ..Settings::default()
    };
    let world = World::with(settings);
    world.journal.add_subscriber("slow", Start::Begin, true).unwrap();
    let mut records = 0u32;
    while world.journal.append(&[7; 4000], journal::Level::Disk).is_ok() {
        records += 1;
        assert!(records < 1000, "it is full some time");
    }
    world
}

#[test]
fn an_interval_that_finds_no_room_is_kept() {
    let world = without_room();
    let settings = Statsd { udp: vec![loopback()], ..nowhere() };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let mut received = 0;
    for interval in 0..10 {
        world.set(3 + 10 * interval);
        // Larger than what may be left of the last segment.
        for series in 0..200 {
            let line = format!("{:0>40}{series}:1|ms", "");
            socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
            received += 1;
        }
        world.wait("topdeck_listen_values_total", "received", received);
        world.wait("topdeck_batches_total", "put off", interval as u64);
    }
    assert_eq!(world.values("taken"), 0);
    // Both who read have read all: what the books hold is freed too.
    world.journal.set_checkpoint("slow", Start::End).unwrap();
    world.intake.keep_books().unwrap();
    listener.stop();
    assert_eq!((world.values("taken"), world.values("full")), (received, 0));
}

#[test]
fn what_finds_no_room_until_the_end_is_counted() {
    let world = without_room();
    let settings = Statsd { udp: vec![loopback()], ..nowhere() };
    let listener = Listener::start(settings, Arc::clone(&world.intake)).unwrap();
    let socket = UdpSocket::bind(loopback()).unwrap();
    let line = format!("{:0>900}:1:2:3|ms\n", "").repeat(50);
    for n in 0..20 {
        let line = line.replace("000:", &format!("{n}:"));
        socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
    }
    let line = (0..60).map(|n| format!("{:0>900}{n}:1|ms\n", "")).collect::<String>();
    socket.send_to(line.as_bytes(), ip(&listener.addresses()[0])).unwrap();
    listener.stop();
    assert_eq!((world.values("received"), world.values("taken")), (3060, 0));
    assert_eq!(world.values("full"), 3060);
}
