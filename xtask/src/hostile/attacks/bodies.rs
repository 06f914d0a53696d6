//! Malformed and excessive request bodies.

use std::io::Write as _;
use std::thread;

use anyhow::{Result, bail, ensure};

use crate::hostile::attack_target::{AttackTarget, ensure_rejected, now_ms};
use crate::hostile::bytes::{
    gzip_bomb, put_bytes, put_double, put_integer, put_varint, remote_write, snappy, snappy_bomb,
    zstd_bomb,
};
use crate::hostile::client::{connect, request_head};

/// Name and value of a header.
type HttpHeader<'a> = (&'a str, &'a str);

const JSON: (&str, &str) = ("Content-Type", "application/json");
const PROTOBUF: (&str, &str) = ("Content-Type", "application/x-protobuf");
const SNAPPY: (&str, &str) = ("Content-Encoding", "snappy");
const VERSION_1: [(&str, &str); 3] =
    [SNAPPY, PROTOBUF, ("X-Prometheus-Remote-Write-Version", "0.1.0")];
const VERSION_2: [(&str, &str); 3] = [
    SNAPPY,
    ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
    ("X-Prometheus-Remote-Write-Version", "2.0.0"),
];

/// Runs `action` several times concurrently; returns the first error.
fn run_concurrently(times: usize, action: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..times).map(|_| scope.spawn(&action)).collect();
        let ended = threads.into_iter().map(|thread| thread.join().expect("BUG: it panicked"));
        ended.collect::<Vec<_>>().into_iter().collect()
    })
}

/// Endless bodies in chunks of one byte: the buffer of a chunk can be far larger than its byte.
pub(super) fn one_byte_chunks(scene: &AttackTarget) -> Result<String> {
    const CONNECTIONS: usize = 64;
    const CHUNKS: usize = 300_000;
    let token = AttackTarget::authorization_header(&scene.hostile_token);
    let headers = [("Authorization", token.as_str()), ("Transfer-Encoding", "chunked")];
    let start = request_head(scene.address(), "POST", "/v1/record?metric=chunk", &headers) + "\r\n";
    let chunks = b"1\r\n5\r\n".repeat(CHUNKS / 100);
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(scene.address())?;
        stream.write_all(start.as_bytes())?;
        open.push(stream);
    }
    // All bodies grow concurrently.
    for _ in 0..100 {
        open.retain_mut(|stream| stream.write_all(&chunks).is_ok());
    }
    Ok(format!("{} of {CONNECTIONS} held", open.len()))
}

pub(super) fn deep_json(scene: &AttackTarget) -> Result<String> {
    const DEPTH: usize = 500_000;
    let admin = &scene.admin_token;
    for (method, path, token) in [
        ("POST", "/v1/metrics", &scene.hostile_token),
        ("PUT", "/v1/httptrap", &scene.hostile_token),
        ("POST", "/v1/import?format=httptrap", &scene.hostile_token),
        ("POST", "/v1/annotations", &scene.hostile_token),
        ("PUT", "/v1/dashboards/deep", admin),
    ] {
        for level in ["[", "{\"a\":", "/*"] {
            let body = level.repeat(DEPTH.min((12 << 20) / level.len()));
            let answer = scene.request_as(token, method, path, &[JSON], body.as_bytes());
            ensure_rejected(&format!("{path} of {DEPTH} × {level}"), &answer)?;
        }
    }
    // Nested OTLP array values.
    let value = "{\"arrayValue\":{\"values\":[".repeat(100_000);
    let body = format!(
        "{{\"resourceMetrics\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"a\",\"value\":{value}"
    );
    ensure_rejected(
        "a deep attribute",
        &scene.request("POST", "/v1/metrics", &[JSON], body.as_bytes()),
    )?;
    Ok(String::new())
}

/// Small bodies that decompress to large ones.
pub(super) fn decompression_bombs(scene: &AttackTarget) -> Result<String> {
    let gzip = gzip_bomb(512 << 20);
    let snappy = snappy_bomb(300 << 20, 300 << 20);
    let liar = snappy_bomb(u64::from(u32::MAX), 64);
    let zstd = zstd_bomb(8_192, 20);
    let wide = zstd_bomb(8_192, 31);
    let ways: [(&str, &[HttpHeader], &[u8]); 11] = [
        ("/v1/record?metric=bomb", &[("Content-Encoding", "gzip")], &gzip),
        ("/v1/metrics", &[("Content-Encoding", "gzip"), PROTOBUF], &gzip),
        ("/write", &[("Content-Encoding", "gzip")], &gzip),
        ("/v1/record?metric=bomb", &[("Content-Encoding", "zstd")], &zstd),
        ("/v1/record?metric=bomb", &[("Content-Encoding", "zstd")], &wide),
        ("/v1/metrics", &[("Content-Encoding", "zstd"), PROTOBUF], &zstd),
        ("/v1/batches", &[("Content-Encoding", "zstd")], &zstd),
        ("/v1/batches", &[("Content-Encoding", "zstd")], &wide),
        ("/api/v1/write", &VERSION_1, &snappy),
        ("/api/v1/write", &VERSION_1, &liar),
        ("/v1/record?metric=bomb", &[SNAPPY], &snappy),
    ];
    for (path, headers, body) in ways {
        run_concurrently(8, || ensure_rejected(path, &scene.request("POST", path, headers, body)))?;
    }
    Ok(String::new())
}

/// Messages with lengths beyond their end, or beyond any valid length.
pub(super) fn oversized_length_fields(scene: &AttackTarget) -> Result<String> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for length in [u64::MAX, i64::MAX as u64, u64::from(u32::MAX), 1 << 31, 1 << 24] {
        let mut message = vec![0x0a];
        put_varint(&mut message, length);
        messages.push(message.clone());
        let mut around = Vec::new();
        put_bytes(&mut around, 1, &message);
        messages.push(around);
    }
    // A varint of eleven bytes, groups, fields with number 0, and endless nesting.
    messages.push([&[0x0a][..], &[0xff; 11]].concat());
    messages.push(vec![0x0b; 100_000]);
    messages.push(vec![0x02, 0x00]);
    let mut level = Vec::new();
    for _ in 0..3_000 {
        let mut around = Vec::new();
        put_bytes(&mut around, 1, &level);
        level = around;
    }
    messages.push(level);
    for message in &messages {
        let packed = snappy(message);
        for (path, headers, body) in [
            ("/v1/metrics", &[PROTOBUF][..], message),
            ("/api/v1/write", &VERSION_1[..], &packed),
            ("/api/v1/write", &VERSION_2[..], &packed),
            ("/v1/import?format=frames", &[], message),
            ("/v1/batches", &[], message),
        ] {
            match scene.request("POST", path, headers, body) {
                // Nested empty messages decode to an empty message.
                Ok(answer) if answer.status < 500 => {}
                Ok(answer) => bail!("{path}: {}: {}", answer.status, answer.text()),
                Err(error) => bail!("{path}: {error}"),
            }
        }
    }
    Ok(format!("{} messages, five requests each", messages.len()))
}

/// `io.prometheus.write.v2.Request` with dangling symbol references.
pub(super) fn malformed_remote_write(scene: &AttackTarget) -> Result<String> {
    let message = |symbols: &[&[u8]], references: &[u64]| {
        let (mut message, mut packed, mut series) = (Vec::new(), Vec::new(), Vec::new());
        symbols.iter().for_each(|symbol| put_bytes(&mut message, 4, symbol));
        references.iter().for_each(|&reference| put_varint(&mut packed, reference));
        put_bytes(&mut series, 1, &packed);
        let mut sample = Vec::new();
        put_double(&mut sample, 1, 1.0);
        put_integer(&mut sample, 2, now_ms());
        put_bytes(&mut series, 2, &sample);
        put_bytes(&mut message, 5, &series);
        message
    };
    let symbols: [&[u8]; 3] = [b"", b"__name__", b"malformed"];
    let bad = [
        message(&symbols, &[1, 3]),
        message(&symbols, &[1]),
        message(&symbols, &[1, 2, 1]),
        message(&symbols, &[u64::MAX, u64::MAX]),
        message(&[], &[1, 2]),
        message(&symbols, &[]),
        message(&symbols, &[0, 0]),
        message(&[b"x", b"__name__", b"malformed"], &[1, 0]),
        message(&symbols, &[1, 2].repeat(500_000)),
        message(&[b"", b"__name__", b"\xff\xfe"], &[1, 2]),
    ];
    for (at, message) in bad.iter().enumerate() {
        let answer = scene.request("POST", "/api/v1/write", &VERSION_2, &snappy(message));
        ensure_rejected(&format!("message {at}"), &answer)?;
    }
    Ok(String::new())
}

pub(super) fn non_utf8_labels(scene: &AttackTarget) -> Result<String> {
    let name: (&[u8], &[u8]) = (b"__name__", b"no_text");
    for label in [(&b"host"[..], &b"\xff\xfe"[..]), (b"\xff", b"a"), (b"host", b"\xed\xa0\x80")] {
        let body = snappy(&remote_write(&[name, label], now_ms()));
        ensure_rejected(
            "remote write",
            &scene.request("POST", "/api/v1/write", &VERSION_1, &body),
        )?;
    }
    let line = b"no_text,host=\xff\xfe value=1\n";
    ensure_rejected("Influx", &scene.request("POST", "/write", &[], line))?;
    let trap = b"{\"no_text|ST[host:\xff\xfe]\":1}";
    let answer = scene.request("PUT", "/v1/httptrap", &[], trap)?;
    ensure!(answer.status < 500, "HTTPTrap: {}: {}", answer.status, answer.text());
    for path in ["/v1/labels", "/v1/metric_names", "/v1/label/host/values", "/metrics"] {
        let answer = scene.request("GET", path, &[], b"")?;
        let is_text = std::str::from_utf8(&answer.body).is_ok();
        ensure!(is_text && matches!(answer.status, 200 | 404), "{path}: {}", answer.text());
    }
    Ok(String::new())
}
