//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on arbitrary bytes.

use proptest::prelude::*;

use crate::checks::{
    self, GRPC, HTTP1_REQUESTS, HTTP1_RESPONSES, HTTP1_RESPONSES_TO_HEAD, POSTGRES, REDIS,
};
use crate::{
    cassandra_sessions, dns_sessions, fuzz_inputs, http1_sessions, http2_sessions, kafka_sessions,
    mongodb_sessions, mysql_sessions, postgres_sessions, redis_sessions,
};

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(checks::CHECKS);
}

#[test]
fn seeds_pass() {
    for (target, name, bytes) in seeds() {
        let check = checks::CHECKS.iter().find(|check| check.0 == target).unwrap().1;
        println!("{target} {name}");
        check(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }

    /// A seed with some bytes changed, and truncated.
    #[test]
    fn mutated_seeds_pass(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
    ) {
        let seeds = seeds();
        let (target, _, mut bytes) = which.get(&seeds).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let check = checks::CHECKS.iter().find(|check| check.0 == target).unwrap().1;
        check(&bytes);
    }
}

/// Run by the fuzz part of the tests. Without seeds a fuzzer spends its minute on magic numbers.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    let seeds: Vec<_> = seeds().into_iter().map(|(target, _, bytes)| (target, bytes)).collect();
    fuzz_inputs::write_seeds(checks::CHECKS, &seeds);
}

fn seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let message = |kind: u8, body: &[u8]| {
        [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    };
    let chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\n\
                    transfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\na: b\r\n\r\n";
    let query = [message(b'Q', b"select 1\0"), message(b'P', b"s0\0select $1\0\0\0")];
    let rows = [
        message(b'T', b"\0\0"),
        message(b'D', &[3; 20]),
        message(b'E', b"SERROR\0Mno\0\0"),
        message(b'Z', b"I"),
    ];
    let command = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n";
    let all: [(u8, &str, Vec<u8>); 12] = [
        (HTTP1_REQUESTS, "get", b"GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3)),
        (HTTP1_REQUESTS, "post", b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab".repeat(2)),
        (HTTP1_RESPONSES, "length", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".repeat(3)),
        (HTTP1_RESPONSES, "chunks", chunked.to_vec()),
        (HTTP1_RESPONSES, "closed", b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\nhello".to_vec()),
        (
            HTTP1_RESPONSES_TO_HEAD,
            "head",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".repeat(2),
        ),
        (POSTGRES, "queries", query.concat()),
        (POSTGRES, "rows", rows.concat()),
        (REDIS, "command", command.to_vec()),
        (REDIS, "replies", b"+PONG\r\n$3\r\nabc\r\n*2\r\n:1\r\n*-1\r\n-ERR a\r\n".to_vec()),
        (REDIS, "third", b">1\r\n+a\r\n|1\r\n+a\r\n+b\r\n%1\r\n+a\r\n~1\r\n#t\r\n_\r\n".to_vec()),
        (GRPC, "message", b"\0\0\0\0\x03abc".to_vec()),
    ];
    let seed = |(kind, name, bytes): (u8, &str, Vec<u8>)| {
        ("protocol_messages", format!("{kind} {name}"), [&[kind][..], &bytes].concat())
    };
    all.into_iter().map(seed).chain(client_seeds()).chain(session_seeds()).collect()
}

/// What servers send to the clients of checks.
fn client_seeds() -> Vec<(&'static str, String, Vec<u8>)> {
    let greeting = [
        &b"\x0a8.0.36\0\x07\0\0\0abcdefgh\0\xff\xff\x2d\x02\0\xff\xff\x15"[..],
        &[0; 10],
        b"ijklmnopqrst\0caching_sha2_password\0",
    ];
    let end = &[0xfe, 0, 0, 2, 0][..];
    let mut packets = vec![greeting.concat()];
    packets.extend([&[1][..], b"definition", end, b"\x017", &[0xfb], end].map(<[u8]>::to_vec));
    let login = [greeting.concat(), b"\xfemysql_native_password\0abcdefghijklmnopqrst".to_vec()];
    let of = |kind: u8, contents: &[&[u8]]| {
        let contents = contents.concat();
        [&[kind, contents.len() as u8][..], &contents].concat()
    };
    let name = of(6, &[&[0x2b, 6, 1, 2, 1, 1, 3, 0]]);
    let binding = of(0x30, &[&name, &of(0x43, &[&[1, 44]])]);
    let (id, zero) = (of(2, &[&[0, 0, 0, 1]]), of(2, &[&[0]]));
    let body = of(0xa2, &[&id, &zero, &zero, &of(0x30, &[&binding])]);
    let response = of(0x30, &[&of(2, &[&[1]]), &of(4, &[b"public"]), &body]);
    let frames = b"\x01\x03Hel\x80\x02lo\x89\x05Hello\x82\x7e\0\x03abc\x88\x05\x03\xe9bye";
    let head = b"HTTP/1.1 101 X\r\nSec-WebSocket-Accept: x\r\n\r\n";
    let all: [(&str, &str, Vec<u8>); 5] = [
        ("mysql_client", "result", packets.join(&0xaa)),
        ("mysql_client", "login", login.join(&0xaa)),
        ("snmp", "response", response),
        ("websocket", "frames", frames.to_vec()),
        ("websocket", "handshake", head.to_vec()),
    ];
    all.into_iter().map(|(target, name, bytes)| (target, name.to_owned(), bytes)).collect()
}

/// The sessions of all observers.
fn session_seeds() -> impl Iterator<Item = (&'static str, String, Vec<u8>)> {
    let sessions = [
        ("observe_http", http1_sessions::sessions()),
        ("observe_http2", http2_sessions::sessions()),
        ("observe_postgres", postgres_sessions::sessions()),
        ("observe_mysql", mysql_sessions::sessions()),
        ("observe_redis", redis_sessions::sessions()),
        ("observe_kafka", kafka_sessions::sessions()),
        ("observe_cassandra", cassandra_sessions::sessions()),
        ("observe_mongodb", mongodb_sessions::sessions()),
        ("observe_dns", dns_sessions::sessions()),
    ];
    sessions.into_iter().flat_map(|(target, sessions)| {
        sessions.into_iter().map(move |(name, session)| (target, name.to_owned(), session.script()))
    })
}
