//! Recorded sessions with real servers (`testdata/wire`), whole and with damage to each packet.

use std::fs;
use std::path::Path;

use hist::Histogram;
use wire::{
    CaptureFile, CapturedPacket, ConnectionTracker, LinkType, ServiceRule, TrackerSettings,
};

use crate::conversation::{counts, settings};

/// Files, and the service in each of them.
const RECORDINGS: [(&str, &str); 6] = [
    ("cassandra.pcap", "33984/cassandra"),
    ("http.pcap", "33992/http"),
    ("kafka.pcap", "33982/kafka"),
    ("mysql.pcap", "33990/mysql"),
    ("postgres.pcap", "6543/postgres"),
    ("redis.pcap", "33991/redis"),
];

/// A packet of a recording.
#[derive(Clone)]
struct RecordedPacket {
    time: Option<u64>,
    link_type: LinkType,
    bytes: Vec<u8>,
    original_bytes: u32,
}

fn read(name: &str) -> Vec<RecordedPacket> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire").join(name);
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut file = CaptureFile::new(&bytes[..]).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = file.next_packet().unwrap() {
        let CapturedPacket { time, link_type, bytes, original_bytes } = packet;
        packets.push(RecordedPacket { time, link_type, bytes: bytes.to_vec(), original_bytes });
    }
    packets
}

fn track<'a>(
    service: &str,
    packets: impl Iterator<Item = &'a RecordedPacket>,
) -> ConnectionTracker {
    let rules = vec![ServiceRule::parse(service).unwrap()];
    let mut tracker = ConnectionTracker::new(TrackerSettings { rules, ..settings() });
    for packet in packets {
        tracker.read(&CapturedPacket {
            time: packet.time,
            link_type: packet.link_type,
            bytes: &packet.bytes,
            original_bytes: packet.original_bytes,
        });
    }
    tracker
}

/// Latencies of work and of waits.
fn latencies(tracker: &ConnectionTracker) -> [Histogram; 2] {
    let services = tracker.services().first();
    services.map_or_else(Default::default, |service| {
        let total = service.statements.total();
        [total.work().last_byte, total.waits.last_byte]
    })
}

/// Each latency of `damaged` is one of `whole`.
#[track_caller]
fn check_subset(damaged: &Histogram, whole: &Histogram, damage: &str) {
    for cell in damaged.cells() {
        let middle = f64::midpoint(cell.lower, cell.upper);
        let known = whole.cells().find(|known| known.lower <= middle && middle <= known.upper);
        let known = known.map_or(0, |known| known.count);
        assert!(cell.count <= known, "{damage}: {cell:?}, of which {known} are right");
    }
}

#[test]
fn all_requests_of_the_recordings_are_measured() {
    for (name, service) in RECORDINGS {
        let packets = read(name);
        let tracker = track(service, packets.iter());
        let (measured, not_measured, in_flight) = counts(&tracker);
        assert!(measured >= 8, "{name}: {measured}");
        assert_eq!((not_measured, in_flight), (0, 0), "{name}");
        let found = &tracker.services()[0].completeness;
        assert_eq!((found.gaps, found.unparsed_bytes), (0, 0), "{name}");
    }
}

/// What is measured although a packet is missing or cut, or the capture starts late or ends early,
/// has the right time.
#[test]
fn damage_to_a_recording_causes_no_wrong_latency() {
    for (name, service) in RECORDINGS {
        let packets = read(name);
        let whole = track(service, packets.iter());
        let (all, ..) = counts(&whole);
        let whole = latencies(&whole);
        let check = |damaged: &[RecordedPacket], damage: String| {
            let tracker = track(service, damaged.iter());
            let (measured, not_measured, in_flight) = counts(&tracker);
            let counted = measured + not_measured + in_flight;
            assert!(counted <= all, "{damage}: {counted} of {all} requests");
            for (damaged, whole) in latencies(&tracker).iter().zip(&whole) {
                check_subset(damaged, whole, &damage);
            }
        };
        for at in 0..packets.len() {
            let lost = [&packets[..at], &packets[at + 1..]].concat();
            check(&lost, format!("{name} without packet {at}"));
            check(&packets[at..], format!("{name} from packet {at}"));
            check(&packets[..at], format!("{name} up to packet {at}"));
            for size in [60, 80, 120] {
                let mut cut = packets.clone();
                cut[at].bytes.truncate(size);
                check(&cut, format!("{name}, packet {at} cut to {size} bytes"));
            }
        }
    }
}
