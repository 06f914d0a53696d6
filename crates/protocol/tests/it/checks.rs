//! Fuzz target checks: properties that hold for any bytes, one check per target. `fuzz/` includes
//! this file by path, and `fuzz_regressions` repeats the checks on past findings.

#[path = "observer_checks.rs"]
pub(crate) mod observer_checks;

use std::fmt::Debug;

use protocol::ProtocolViolation;
use protocol::fingerprint::{RouteTemplates, SqlDialect, StatementFingerprint};
use protocol::grpc::GrpcResponse;
use protocol::http1::{RequestParser, ResponseParser};
use protocol::mysql::{MysqlAccount, MysqlLogin, MysqlResult};
use protocol::observer::STATEMENT_BYTES_MAX;
use protocol::postgres::{PostgresMessageParser, PostgresMessagePart, RETAINED_BYTES_MAX};
use protocol::redis::ReplyParser;
use protocol::snmp::{ObjectId, read_response};
use protocol::websocket::{check_handshake, close_reason, take_frame};

/// Panics on a violation.
pub(crate) type FuzzCheck = fn(&[u8]);

/// Name and check of each target of `fuzz/`.
pub(crate) const CHECKS: &[(&str, FuzzCheck)] = &[
    ("protocol_messages", messages),
    ("fingerprint", fingerprint),
    ("mysql_client", mysql_client),
    ("snmp", snmp),
    ("websocket", websocket),
    ("observe_http", |script| observer_checks::observe("http", script)),
    ("observe_mysql", |script| observer_checks::observe("mysql", script)),
    ("observe_postgres", |script| observer_checks::observe("postgres", script)),
    ("observe_kafka", |script| observer_checks::observe("kafka", script)),
    ("observe_cassandra", |script| observer_checks::observe("cassandra", script)),
    ("observe_http2", |script| observer_checks::observe("http2", script)),
    ("observe_mongodb", |script| observer_checks::observe("mongodb", script)),
    ("observe_dns", |script| observer_checks::observe("dns", script)),
    ("observe_redis", |script| observer_checks::observe("redis", script)),
];

/// Kinds of messages, selected by the first byte.
pub(crate) const HTTP1_REQUESTS: u8 = 0;
pub(crate) const HTTP1_RESPONSES: u8 = 1;
pub(crate) const HTTP1_RESPONSES_TO_HEAD: u8 = 2;
pub(crate) const POSTGRES: u8 = 3;
pub(crate) const REDIS: u8 = 4;
pub(crate) const GRPC: u8 = 5;

/// Messages arrive in the same order, with the same error, however the bytes are divided.
fn messages(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 6 {
        HTTP1_REQUESTS => {
            check(bytes, RequestParser::default, |parser, bytes| parser.read(bytes));
        }
        HTTP1_RESPONSES => {
            check(bytes, ResponseParser::default, |parser, bytes| parser.read(bytes, false));
        }
        HTTP1_RESPONSES_TO_HEAD => {
            check(bytes, ResponseParser::default, |parser, bytes| parser.read(bytes, true));
        }
        POSTGRES => check(bytes, || PostgresMessageParser::new(b"QER"), read_postgres),
        REDIS => check(bytes, ReplyParser::default, |parser, bytes| parser.read(bytes)),
        _ => check_grpc(bytes),
    }
}

/// A login, and then a result, of packets that are split at the byte 0xaa.
fn mysql_client(bytes: &[u8]) {
    let mut packets = bytes.split(|byte| *byte == 0xaa);
    let account = MysqlAccount { user: "u", password: "p", database: "d", is_secure: true };
    if let Ok(mut login) = MysqlLogin::new(packets.next().unwrap_or_default(), account) {
        assert!(login.response().expect("no zero bytes").len() < 8 << 10);
        for packet in packets.clone().take(3) {
            let _ = login.answer(packet);
        }
    }
    let mut result = MysqlResult::default();
    for packet in packets {
        match result.read(packet) {
            Ok(false) => {}
            Ok(true) => break,
            Err(reason) => {
                assert!(reason.chars().count() < 600);
                break;
            }
        }
    }
    assert!(result.first.is_none_or(|first| first.chars().count() <= 1_000));
}

/// A response has a value per object, whatever the bytes are.
fn snmp(bytes: &[u8]) {
    let objects = [ObjectId::parse("1.3.6.1.2.1.1.3.0").expect("an object")];
    if let Some(Ok(values)) = read_response(bytes, 2, &objects) {
        assert_eq!(values.len(), 1);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = ObjectId::parse(text);
    }
}

/// Frames are the same, however the bytes are divided, and no longer than the limit.
fn websocket(bytes: &[u8]) {
    let _ = check_handshake(bytes, "key");
    let frames = |size: usize| {
        let (mut received, mut frames) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(size) {
            received.extend_from_slice(piece);
            loop {
                match take_frame(&mut received, 100) {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    };
    let whole = frames(usize::MAX);
    assert!(whole.0.iter().all(|frame| frame.payload.len() <= 100));
    whole.0.iter().for_each(|frame| assert!(!close_reason(&frame.payload).contains('\n')));
    assert_eq!(frames(1), whole);
}

/// A fingerprint is bounded, and has the same fingerprint. The first byte selects the dialect.
fn fingerprint(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let dialect =
        SqlDialect::of_protocol(["postgres", "mysql", "cassandra"][usize::from(kind % 3)]);
    let mut fingerprint = StatementFingerprint::default();
    let once = fingerprint.write(text, dialect).to_owned();
    assert!(once.len() <= STATEMENT_BYTES_MAX);
    assert!(!once.contains('\'') || text.contains('`') || text.contains('"'), "{once:?}");
    // A placeholder after a dollar starts a string, and signs without the comment between them
    // start a comment.
    if !once.contains("...") && !text.contains('$') && !text.contains("--") {
        assert_eq!(fingerprint.write(&once, dialect), once, "{text:?}");
    }
    let mut route = String::new();
    RouteTemplates::default().write(text, &mut route);
    assert!(route.len() <= 2 * text.len() + 16, "{route:?}");
}

/// Part of a message, and at its end the retained body.
fn read_postgres(
    parser: &mut PostgresMessageParser,
    bytes: &mut &[u8],
) -> Result<Option<(PostgresMessagePart, Vec<u8>)>, ProtocolViolation> {
    let part = parser.read(bytes)?;
    assert!(parser.body().len() <= RETAINED_BYTES_MAX);
    Ok(part.map(|part| match part {
        PostgresMessagePart::Start { .. } => (part, Vec::new()),
        PostgresMessagePart::End { .. } => (part, parser.body().to_vec()),
    }))
}

fn check<P, T: PartialEq + Debug>(
    bytes: &[u8],
    make: impl Fn() -> P,
    read: impl Fn(&mut P, &mut &[u8]) -> Result<Option<T>, ProtocolViolation>,
) {
    let all = |size: usize| {
        let (mut parser, mut messages) = (make(), Vec::new());
        for mut piece in bytes.chunks(size) {
            loop {
                match read(&mut parser, &mut piece) {
                    Ok(Some(message)) => messages.push(message),
                    Ok(None) => break,
                    Err(violation) => return (messages, Err(violation)),
                }
            }
            assert!(piece.is_empty(), "{} bytes were left", piece.len());
        }
        (messages, Ok(()))
    };
    let whole = all(usize::MAX);
    // A message has at least one byte, and may give two parts (start and end).
    assert!(whole.0.len() <= 2 * bytes.len());
    assert_eq!(all(1), whole, "byte by byte");
    assert_eq!(all(3), whole, "in threes");
}

fn check_grpc(bytes: &[u8]) {
    let end = |size: usize| {
        let mut response = GrpcResponse::default();
        let trailers = [("grpc-status", "0")].map(|(name, value)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        });
        bytes.chunks(size).for_each(|piece| response.data(piece));
        response.trailers(&trailers.into_iter().collect());
        response.end()
    };
    assert_eq!(end(1), end(usize::MAX), "byte by byte");
}
