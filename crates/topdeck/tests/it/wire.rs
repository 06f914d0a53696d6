//! `topdeck wire --read` and `--both-ends` of captured packets, and the rights of a live capture.
//!
//! `testdata/wire/postgres.pcap`: a session of psql with PostgreSQL 15 on the loopback interface:
//! `create table`, `insert`, two equal selects, three statements in one message, `select 1/0`,
//! `copy to stdout`. `testdata/wire/record.py` has recorded the others: sessions with nginx 1.22,
//! MariaDB 10.11, Redis 7.0, Kafka 4.1 and Cassandra 5.0.

use std::fs;
use std::process::{Command, Stdio};

use expect_test::{Expect, expect, expect_file};

use crate::environment::{thread_capabilities, wait_until};
use crate::test_dir::TestDir;
use crate::{TextRun, root, topdeck};

const POSTGRES: &str = "testdata/wire/postgres.pcap";

fn wire(arguments: &[&str]) -> TextRun {
    topdeck(&[&["wire"], arguments].concat(), b"")
}

#[track_caller]
fn check_error(arguments: &[&str], stdin: &[u8], expected: Expect) {
    let run = topdeck(&[&["wire"], arguments].concat(), stdin);
    assert_ne!(run.status, 0);
    expected.assert_eq(&run.stderr);
}

fn pcap() -> Vec<u8> {
    fs::read(root().join(POSTGRES)).expect("testdata")
}

#[test]
fn statements_of_a_postgres_session() {
    let run = wire(&["--read", POSTGRES, "--service", "shop=6543/postgres"]);
    expect_file!["../../../../testdata/cli/wire.out"].assert_eq(&run.all());
}

#[test]
fn operations_of_an_http_session() {
    let run = wire(&["--read", "testdata/wire/http.pcap", "--service", "33992/http"]);
    expect_file!["../../../../testdata/cli/wire-http.out"].assert_eq(&run.all());
}

#[test]
fn statements_of_a_mysql_session() {
    let run = wire(&["--read", "testdata/wire/mysql.pcap", "--service", "33990/mysql"]);
    expect_file!["../../../../testdata/cli/wire-mysql.out"].assert_eq(&run.all());
}

#[test]
fn commands_of_a_redis_session() {
    let run = wire(&["--read", "testdata/wire/redis.pcap", "--service", "33991/redis"]);
    expect_file!["../../../../testdata/cli/wire-redis.out"].assert_eq(&run.all());
}

#[test]
fn requests_of_a_kafka_session() {
    let run = wire(&["--read", "testdata/wire/kafka.pcap", "--service", "33982/kafka"]);
    expect_file!["../../../../testdata/cli/wire-kafka.out"].assert_eq(&run.all());
}

#[test]
fn statements_of_a_cassandra_session() {
    let run = wire(&["--read", "testdata/wire/cassandra.pcap", "--service", "33984/cassandra"]);
    expect_file!["../../../../testdata/cli/wire-cassandra.out"].assert_eq(&run.all());
}

#[test]
fn json_has_every_statement_and_the_completeness() {
    let run = wire(&["--read", POSTGRES, "--service", "6543/postgres", "--json"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let service = &document["services"][0];
    assert_eq!(service["service"], "127.0.0.1:6543");
    let completeness = &service["completeness"];
    let count = |of: &serde_json::Value| of.as_u64().expect("a count");
    assert_eq!(count(&completeness["measured"]), count(&service["total"]["operations"]));
    assert_eq!(count(&completeness["requests"]), count(&completeness["measured"]));
    let statements = service["statements"].as_array().expect("statements");
    let failed: Vec<_> = statements.iter().filter(|of| of["failed"].get("22").is_some()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["statement"], "select $1/$2");
    assert!(!run.stdout.contains("n'||g"), "a literal value");
}

#[test]
fn a_truncated_capture_is_read_up_to_its_end() {
    let bytes = pcap();
    let arguments = ["wire", "--read", "-", "--service", "6543/postgres", "--json"];
    let run = topdeck(&arguments, &bytes[..bytes.len() - 3]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    let expected = "topdeck: standard input ends inside a packet: the capture was interrupted\n";
    assert_eq!(run.stderr, expected);
}

/// The capture as the host of the server has it: its clock is 2 s ahead, and packets take 3 us to
/// it and 2 us from it.
fn pcap_of_server() -> Vec<u8> {
    let file = pcap();
    let (header, mut rest) = file.split_at(24);
    let number = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
    };
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let (packet, others) = rest.split_at(16 + number(rest, 8) as usize);
        rest = others;
        let time = u64::from(number(packet, 0)) * 1_000_000_000 + u64::from(number(packet, 4));
        // Raw IPv4 without options.
        let is_to_server = packet[16 + 22..16 + 24] == 6543_u16.to_be_bytes();
        let time = if is_to_server { time + 2_000_003_000 } else { time + 1_999_998_000 };
        packets.push((time, &packet[8..]));
    }
    packets.sort_by_key(|packet| packet.0);
    let bytes = packets.into_iter().flat_map(|(time, bytes)| {
        let time = [(time / 1_000_000_000) as u32, (time % 1_000_000_000) as u32];
        [&time.map(u32::to_le_bytes).concat()[..], bytes].concat()
    });
    [header.to_vec(), bytes.collect()].concat()
}

#[test]
fn both_ends_of_a_postgres_session() {
    let dir = TestDir::new();
    let server = dir.path().join("server.pcap");
    fs::write(&server, pcap_of_server()).expect("a file can be written");
    let server = server.to_str().expect("UTF-8");
    let arguments = ["--both-ends", POSTGRES, server, "--service", "shop=6543/postgres"];
    let run = wire(&arguments);
    let text = run.all().replace(server, "server.pcap");
    expect_file!["../../../../testdata/cli/wire-both-ends.out"].assert_eq(&text);

    let run = wire(&[&arguments[..], &["--json"]].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    let service = &document["services"][0];
    assert_eq!((&service["matched"], &service["requests"]), (&9.into(), &9.into()));
    for bound in ["min", "max"] {
        assert_eq!(service["network_ns"][bound]["estimate"], 5_000.0);
    }
    let offset = &document["clock_offset"]["narrowest"];
    let bounds = ["lower_ns", "upper_ns"].map(|bound| offset[bound].as_i64().expect("a number"));
    assert!(bounds[0] <= 2_000_000_000 && 2_000_000_000 <= bounds[1], "{bounds:?}");
}

#[test]
fn both_ends_without_a_common_connection_say_so() {
    let dir = TestDir::new();
    let server = dir.path().join("server.pcap");
    let mut translated = pcap_of_server();
    // The client's port in both directions: 50056 becomes 50057.
    let port = 50_056_u16.to_be_bytes();
    for at in 0..translated.len() - 4 {
        let ports = &mut translated[at..at + 4];
        if ports == [port, 6543_u16.to_be_bytes()].concat() {
            ports[1] += 1;
        } else if ports == [6543_u16.to_be_bytes(), port].concat() {
            ports[3] += 1;
        }
    }
    fs::write(&server, translated).expect("a file can be written");
    let server = server.to_str().expect("UTF-8");
    let run = wire(&["--both-ends", POSTGRES, server, "--service", "shop=6543/postgres"]);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stdout.contains("no connection is in both: "), "{}", run.stdout);
    assert!(run.stdout.contains("9 (connection 9)"), "{}", run.stdout);
}

#[test]
fn damage_of_both_ends_is_reported_for_each_file() {
    let dir = TestDir::new();
    // The header of a packet of 4 GiB.
    let damage = [[0; 8], [0xff; 8]].concat();
    let paths = [("client.pcap", pcap()), ("server.pcap", pcap_of_server())].map(|(name, file)| {
        let path = dir.path().join(name);
        fs::write(&path, [&file[..], &damage].concat()).expect("a file can be written");
        path.to_str().expect("UTF-8").to_owned()
    });
    let [client, server] = &paths;
    let run = wire(&["--both-ends", client, server, "--service", "shop=6543/postgres"]);
    assert_eq!(run.status, 1);
    assert!(run.stdout.contains("network, both directions"), "{}", run.stdout);
    let lines: Vec<&str> = run.stderr.lines().collect();
    let [first, second] = lines[..] else { panic!("{lines:?}") };
    let at = |path: &str| format!("topdeck: {path}: byte ");
    assert!(first.starts_with(&at(client)), "{first}");
    assert!(second.starts_with(&at(server)), "{second}");
}

#[test]
fn files_of_both_ends_that_cannot_be_read_are_all_named() {
    let run = wire(&["--both-ends", "no-client.pcap", "no-server.pcap"]);
    assert_eq!(run.status, 1);
    let cause = "No such file or directory (os error 2)";
    let expected = format!(
        "topdeck: cannot open no-client.pcap: {cause}\n\
         topdeck: cannot open no-server.pcap: {cause}\n"
    );
    assert_eq!(run.stderr, expected);
}

#[test]
fn a_live_capture_has_given_up_all_capabilities() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["wire", "--interface", "lo", "--only", "--service", "7/http"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let status = format!("/proc/{}/status", child.id());
    let handles_signals = || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
        // It handles SIGTERM from the start of the capture on.
        mask.is_some_and(|mask| u64::from_str_radix(mask, 16).expect("a mask") & 1 << 14 != 0)
    };
    let mut has_ended = false;
    wait_until("it captures", || {
        has_ended = child.try_wait().expect("it is a child").is_some();
        has_ended || handles_signals()
    });
    if !has_ended {
        let threads = thread_capabilities(child.id());
        assert!(!threads.is_empty() && threads.iter().all(|(_, of)| *of == 0), "{threads:x?}");
        child.kill().expect("it runs");
    }
    let output = child.wait_with_output().expect("it ends");
    if has_ended {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("CAP_NET_RAW"), "{error}");
        println!("skipped: {}", error.trim());
    }
}

#[test]
fn errors_say_what_to_do() {
    check_error(
        &["--read", "missing.pcap"],
        b"",
        expect![[r#"
            topdeck: cannot open missing.pcap: No such file or directory (os error 2)
        "#]],
    );
    check_error(
        &["--read", "-"],
        b"\x1f\x8b\x08\x00",
        expect![[r#"
            topdeck: standard input: capture file: found first bytes [1f, 8b, 08, 00], expected pcap or pcapng; decompress it first if it is compressed
        "#]],
    );
    check_error(
        &["--both-ends", POSTGRES, "-"],
        b"",
        expect![[r#"
            topdeck: cannot read - twice: it is not a regular file; write it to one
        "#]],
    );
    check_error(
        &["--read", POSTGRES],
        b"",
        expect![[r#"
            topdeck: testdata/wire/postgres.pcap: no packet of a known service, but of the ports 6543; name their protocol, as in --service 6543/http
        "#]],
    );
}

const TLS: [&str; 6] = [
    "--read",
    "testdata/wire/tls.pcap",
    "--service",
    "web=33993/http",
    "--service",
    "shop=33994/postgres",
];

#[test]
fn recorded_tls_sessions_are_decrypted_with_their_key_log() {
    let keys = ["--key-log", "testdata/wire/tls.keys"];
    let run = wire(&[&TLS[..], &keys].concat());
    assert_eq!(run.status, 0, "{}", run.stderr);
    let line = "decrypted with the key log: 7 sessions, ";
    assert!(run.stdout.contains(line), "{}", run.stdout);
    assert!(run.stdout.contains("; not to the end: cipher 1\n"), "{}", run.stdout);
    assert!(run.stdout.contains("GET /bytes/{n}"), "{}", run.stdout);
    let run = wire(&[&TLS[..], &keys, &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(document["key_log"]["sessions"], 7);
    assert_eq!(document["key_log"]["not_decrypted"]["cipher"], 1);
    let error = expect![[r#"
        topdeck: cannot read the key log testdata/wire/http.pcap: stream did not contain valid UTF-8
    "#]];
    check_error(&[&TLS[..], &["--key-log", "testdata/wire/http.pcap"]].concat(), b"", error);
}

#[test]
fn detected_ports_are_listed_before_the_capture_starts() {
    let run = wire(&["--detect-ports", "--interface", "nosuchlink"]);
    assert_ne!(run.status, 0);
    let line = run.stderr.lines().next().unwrap_or_default();
    assert!(line.starts_with("topdeck: detected ports: "), "{}", run.stderr);
    assert!(line.contains("; not decoded: "), "{line}");
}

#[test]
fn a_wait_is_proposed_and_accepted() {
    let capture = polls();
    let arguments = ["wire", "--read", "-", "--service", "web=33992/http"];
    let run = topdeck(&arguments, &capture);
    let line = "proposed wait: GET /poll/{n}: 6 of 6 operations from 0.9 s took 5s; --wait 'GET \
                /poll/{n}' counts them as waits\n";
    assert!(run.stdout.contains(line), "{}", run.stdout);
    let run = topdeck(&[&arguments[..], &["--wait", "GET /poll/{n}"]].concat(), &capture);
    assert!(run.stdout.contains("GET /poll/{n} (wait)"), "{}", run.stdout);
    assert!(!run.stdout.contains("proposed wait"), "{}", run.stdout);
}

/// A connection with six polls, in nanoseconds and raw IPv4.
fn polls() -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 2 | 4 << 16, 0, 0, 1 << 18, 101] {
        file.extend(word.to_le_bytes());
    }
    let mut next = [1_000_u32, 5_000];
    let mut add = |milliseconds: u32, flags: u8, payload: &str, is_to_server: bool| {
        let own = usize::from(!is_to_server);
        let ports: [u16; 2] = if is_to_server { [40_000, 33_992] } else { [33_992, 40_000] };
        let hosts: [u8; 2] = if is_to_server { [1, 2] } else { [2, 1] };
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        hosts.iter().for_each(|host| packet.extend([10, 0, 0, *host]));
        packet.extend(ports.map(u16::to_be_bytes).concat());
        packet.extend([next[own], next[1 - own]].map(u32::to_be_bytes).concat());
        packet.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload.as_bytes());
        next[own] += payload.len() as u32 + u32::from(flags & 2 != 0);
        let (seconds, rest) = (milliseconds / 1_000, milliseconds % 1_000 * 1_000_000);
        for word in [seconds, rest, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    };
    add(0, 2, "", true);
    add(0, 18, "", false);
    for number in 0..6 {
        let start = 1_000 + number * 6_000;
        add(start, 16, &format!("GET /poll/{number} HTTP/1.1\r\nHost: shop\r\n\r\n"), true);
        add(start + 5_000 + number, 16, "HTTP/1.1 204 No Content\r\n\r\n", false);
    }
    file
}
