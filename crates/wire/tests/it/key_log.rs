//! Recorded TLS sessions and their key log (`testdata/wire/record_tls.py` has made both): seven
//! with HTTP, one per cipher suite, of which that with CBC cannot be decrypted, and one with the
//! protocol of PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wire::{CaptureFile, CapturedPacket, ConnectionTracker, KeyLog, ServiceRule, TrackerSettings};

use crate::conversation::settings;

/// Line of the key log with the secret of the session with CBC: behind three sessions of four
/// secrets, and three of one.
const CBC_LINE: usize = 15;

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire").join(name)
}

fn keys() -> String {
    fs::read_to_string(path("tls.keys")).unwrap()
}

/// Reads the recording. `damage` changes or removes a packet, which it gets with its number.
fn track(
    keys: &str,
    damage: impl Fn(usize, &mut Vec<u8>) -> bool,
) -> (ConnectionTracker, Arc<KeyLog>) {
    let rules = ["web=33993/http", "shop=33994/postgres"];
    let rules = rules.map(|text| ServiceRule::parse(text).unwrap()).to_vec();
    let mut tracker = ConnectionTracker::new(TrackerSettings { rules, ..settings() });
    let keys = Arc::new(KeyLog::parse(keys).unwrap());
    tracker.decrypt(&keys);
    let bytes = fs::read(path("tls.pcap")).unwrap();
    let mut file = CaptureFile::new(&bytes[..]).unwrap();
    let mut number = 0;
    while let Some(packet) = file.next_packet().unwrap() {
        let mut bytes = packet.bytes.to_vec();
        if damage(number, &mut bytes) {
            tracker.read(&CapturedPacket { bytes: &bytes, ..packet });
        }
        number += 1;
    }
    (tracker, keys)
}

/// Measured operations of HTTP and of PostgreSQL, and reasons with their counts.
fn found(of: &(ConnectionTracker, Arc<KeyLog>)) -> ([u64; 2], Vec<(&'static str, u64)>) {
    let (tracker, keys) = of;
    let measured = |name: &str| {
        let service = tracker.services().iter().find(|service| service.name == name);
        service.map_or(0, |service| service.completeness.measured)
    };
    let counts = keys.counts();
    let failures = counts.failures.into_iter().filter(|(_, count)| *count > 0);
    ([measured("web"), measured("shop")], failures.collect())
}

#[test]
fn sessions_are_decrypted_but_those_of_other_ciphers() {
    let whole = track(&keys(), |_, _| true);
    // Two requests of each of six sessions, and two more; a login and two queries.
    assert_eq!(found(&whole), ([14, 3], vec![("cipher", 1)]));
    let (tracker, keys) = whole;
    assert_eq!(keys.counts().sessions, 7);
    let web = tracker.services().iter().find(|service| service.name == "web").unwrap();
    assert_eq!(web.completeness.encrypted_connections, 1);
    let mut paths: Vec<_> =
        web.statements.statements().iter().map(|of| of.statement.to_string()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/bytes/{n}"]);
    let total = web.statements.total().work();
    assert!(total.response_bytes.max().unwrap().estimate > 17_000.0);
    assert_eq!(web.completeness.not_measured.total() + web.completeness.unparsed_bytes, 0);
}

#[test]
fn sessions_without_their_secrets_are_counted() {
    let all = keys();
    for (line, text) in all.lines().enumerate() {
        let rest: Vec<&str> = all.lines().filter(|of| *of != text).collect();
        let (measured, failures) = found(&track(&rest.join("\n"), |_, _| true));
        if line == CBC_LINE {
            assert_eq!((measured, failures), ([14, 3], vec![("cipher", 1)]));
            continue;
        }
        // Of one session, a secret is missing.
        assert_eq!(failures, [("no_keys", 1), ("cipher", 1)], "line {line}");
        assert!(measured == [14, 0] || measured[0] < 14 && measured[1] == 3, "{measured:?}");
    }
    let other = format!("CLIENT_RANDOM {} {}", "ab".repeat(32), "cd".repeat(48));
    assert_eq!(found(&track(&other, |_, _| true)), ([0, 0], vec![("no_keys", 7), ("cipher", 1)]));
}

/// Whatever is missing or changed: a request is measured with the right size, or not at all.
#[test]
fn damage_is_counted_and_causes_no_wrong_measurement() {
    let secrets = keys();
    let ([web, _], _) = found(&track(&secrets, |_, _| true));
    let count = {
        let bytes = fs::read(path("tls.pcap")).unwrap();
        let mut file = CaptureFile::new(&bytes[..]).unwrap();
        let mut count = 0;
        while file.next_packet().unwrap().is_some() {
            count += 1;
        }
        count
    };
    let mut reasons = std::collections::BTreeSet::new();
    for damaged in (0..count).step_by(3) {
        for changes in [true, false] {
            let of = track(&secrets, |number, bytes| {
                if number == damaged && changes {
                    // A byte of the payload, if it has one.
                    let at = bytes.len() - 1;
                    bytes[at] ^= 1;
                }
                number != damaged || changes
            });
            let (measured, failures) = found(&of);
            assert!(measured[0] <= web && measured[1] <= 3, "{damaged}: {measured:?}");
            reasons.extend(failures.into_iter().map(|(reason, _)| reason));
            for service in of.0.services() {
                let total = service.statements.total().work();
                let sizes = [10.0, 300.0, 17_000.0];
                for cell in total.response_bytes.cells().filter(|_| service.name == "web") {
                    let is_known = sizes.iter().any(|size| {
                        (size + 80.0..size + 200.0).contains(&f64::midpoint(cell.lower, cell.upper))
                            || (cell.lower <= size + 120.0 && size + 120.0 <= cell.upper)
                    });
                    assert!(is_known, "{damaged}: {cell:?}");
                }
            }
        }
    }
    for reason in ["damaged", "gap", "cipher"] {
        assert!(reasons.contains(reason), "{reasons:?}");
    }
}

#[test]
fn a_session_from_its_middle_is_counted() {
    // Without the handshakes of TCP, and without the first packets of each connection.
    let of = track(&keys(), |_, bytes| {
        let header = 14 + 20;
        bytes[header + 13] & 2 == 0
    });
    let (measured, failures) = found(&of);
    assert_eq!(measured, [0, 0]);
    assert!(failures.contains(&("midstream", 7)) || failures[0].0 == "midstream", "{failures:?}");
}

#[test]
fn a_key_log_has_secrets() {
    let error = |text: &str| KeyLog::parse(text).err().unwrap();
    assert!(error("# a comment\nRSA 00 11").contains("it has no secrets"));
    for line in ["CLIENT_RANDOM 00", "CLIENT_RANDOM zz 00", "CLIENT_RANDOM"] {
        let text = format!("# a comment\n{line}");
        assert_eq!(error(&text), "line 2: expected a label and two hexadecimal numbers");
    }
}
