//! Sessions with a server of CQL, encoded from `native_protocol_v3.spec` to `_v5.spec`.

use expect_test::expect;

use crate::session::Session;

const ERROR: u8 = 0;
const STARTUP: u8 = 1;
const READY: u8 = 2;
const OPTIONS: u8 = 5;
const SUPPORTED: u8 = 6;
const QUERY: u8 = 7;
const RESULT: u8 = 8;
const PREPARE: u8 = 9;
const EXECUTE: u8 = 10;
const REGISTER: u8 = 11;
const EVENT: u8 = 12;
const BATCH: u8 = 13;

const COMPRESSED: u8 = 1;
const TRACING: u8 = 2;
const PAYLOAD: u8 = 4;
const WARNING: u8 = 8;

/// Sessions for the fuzz corpus.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![
        ("envelopes", plain_session()),
        ("frames", frame_session(false)),
        ("lz4", frame_session(true)),
    ]
}

/// Session of version 4.
fn plain_session() -> Session {
    let id = [7; 16];
    let payload = [be16(1), text("key"), long(b"value")].concat();
    let warning = [be16(2), text("a warning"), text("another")].concat();
    Session::new("cassandra")
        .client(request(4, 0, 0, OPTIONS, &[]))
        .server(response(4, 0, 0, SUPPORTED, &be16(0)))
        .client(request(4, 0, 1, STARTUP, &startup(None)))
        .server(response(4, 0, 1, READY, &[]))
        .client(request(4, 0, 2, REGISTER, &[be16(1), text("STATUS_CHANGE")].concat()))
        .server(response(4, 0, 2, READY, &[]))
        .repeatable()
        .client(request(4, 0, 3, PREPARE, &long(b"select \xc3\xa4 from t where k = ?")))
        .server(response(4, 0, 3, RESULT, &prepared(&id)))
        .server(response(4, 0, -1, EVENT, &[text("STATUS_CHANGE"), text("UP")].concat()))
        // Responses in another order, several in a packet.
        .client(
            [
                request(4, 0, 300, EXECUTE, &[be16(16), id.to_vec(), execute_values()].concat()),
                request(4, 0, 4, QUERY, &[long(b"select * from t"), vec![0, 1, 0]].concat()),
                request(4, PAYLOAD, 5, QUERY, &[payload.clone(), long(b"use k")].concat()),
            ]
            .concat(),
        )
        .server(
            [
                response(4, 0, 5, RESULT, &be32(3)),
                response(
                    4,
                    WARNING | PAYLOAD,
                    4,
                    ERROR,
                    &[warning.clone(), payload, be32(0x1100), text("time-out")].concat(),
                ),
            ]
            .concat(),
        )
        .server(response(4, TRACING, 300, RESULT, &[vec![9; 16], rows(2)].concat()))
        .client(request(4, 0, 6, BATCH, &batch(&id)))
        .server(response(4, WARNING, 6, RESULT, &[warning, be32(1)].concat()))
        .client(request(4, 0, 7, EXECUTE, &[be16(16), vec![8; 16], execute_values()].concat()))
        .server(response(4, 0, 7, ERROR, &[be32(0x2500), text("?"), be16(16)].concat()))
}

#[test]
fn version_4() {
    plain_session().check(expect![[r#"
        1-1 2-2 OPTIONS ok, 9/11 B
        3-3 4-4 STARTUP ok, 31/9 B
        5-5 6-6 REGISTER ok, 26/9 B
        7-7 8-8 PREPARE Sql "select ä from t where k = ?" ok, 41/31 B
        10-10 11-11 QUERY Sql "use k" ok, 34/13 B
        10-10 11-11 QUERY Sql "select * from t" error WriteTimeout, 31/61 B
        10-10 12-12 EXECUTE Sql "select ä from t where k = ?" ok, 41/296 B, rows 2
        13-13 14-14 BATCH Sql "insert 1; select ä from t where k = ?; insert 2" ok, 83/35 B
        15-15 16-16 EXECUTE error Unprepared, 41/18 B
    "#]]);
}

/// Session of version 3 with compressed bodies.
fn compressed_session(algorithm: &str, compress: fn(&[u8]) -> Vec<u8>) -> Session {
    let query = compress(&[long(b"select * from t"), vec![0, 1, 0]].concat());
    let rows = compress(&rows(70));
    let error = compress(&[be32(0x2000), text("syntax")].concat());
    Session::new("cassandra")
        .client(request(3, 0, 0, STARTUP, &startup(Some(algorithm))))
        .server(response(3, 0, 0, READY, &[]))
        .repeatable()
        .client(request(3, COMPRESSED, 1, QUERY, &query))
        .server(response(3, COMPRESSED, 1, RESULT, &rows))
        .client(request(3, COMPRESSED, 2, QUERY, &query))
        .server(response(3, COMPRESSED, 2, ERROR, &error))
}

#[test]
fn bodies_with_lz4() {
    compressed_session("LZ4", |body| {
        [be32(body.len() as u32), lz4_flex::block::compress(body)].concat()
    })
    .check(expect![[r#"
        1-1 2-2 STARTUP ok, 49/9 B
        3-3 4-4 QUERY Sql "select * from t" ok, 37/177 B, rows 70
        5-5 6-6 QUERY Sql "select * from t" error SyntaxError, 37/26 B
    "#]]);
}

#[test]
fn bodies_with_snappy() {
    compressed_session("snappy", |body| snap::raw::Encoder::new().compress_vec(body).unwrap())
        .check(expect![[r#"
            1-1 2-2 STARTUP ok, 52/9 B
            3-3 4-4 QUERY Sql "select * from t" ok, 33/325 B, rows 70
            5-5 6-6 QUERY Sql "select * from t" error SyntaxError, 33/23 B
        "#]]);
}

#[test]
fn large_compressed_bodies_are_passed_over() {
    let noise: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
    Session::new("cassandra")
        .client(request(3, COMPRESSED, 2, QUERY, &noise))
        .server(response(3, COMPRESSED, 2, RESULT, &noise))
        .check(expect![[r#"
            1-1 2-2 QUERY ok, 70009/70009 B
        "#]]);
}

/// Session of version 5.
fn frame_session(is_compressed: bool) -> Session {
    let id = [7; 16];
    let result_id = [6; 16];
    let algorithm = is_compressed.then_some("lz4");
    let frame = |payload: &[Vec<u8>]| frame(is_compressed, true, &payload.concat());
    // Values follow the statement.
    let large = request(5, 0, 9, QUERY, &[long(b"select 3"), vec![5; 140_000]].concat());
    let (first, second) = large.split_at(131_071);
    let large_frames = [first, second].map(|part| self::frame(is_compressed, false, part)).concat();
    let execute = [be16(16), id.to_vec(), be16(16), result_id.to_vec(), vec![0, 1, 0]].concat();
    Session::new("cassandra")
        .client(request(5, 0, 0, STARTUP, &startup(algorithm)))
        .server(response(5, 0, 0, READY, &[]))
        .repeatable()
        .client(frame(&[request(5, 0, 1, PREPARE, &[long(b"select 1"), be32(0)].concat())]))
        .server(frame(&[response(
            5,
            0,
            1,
            RESULT,
            &[prepared(&id), be16(16), result_id.to_vec()].concat(),
        )]))
        .client(frame(&[
            request(5, 0, 2, EXECUTE, &execute),
            request(5, 0, 3, QUERY, &[long(b"select 2"), be16(1), be32(0)].concat()),
        ]))
        .server(frame(&[response(5, 0, 3, RESULT, &rows_without_metadata(&result_id, 3))]))
        .server(frame(&[response(5, 0, 2, ERROR, &[be32(0x1200), text("slow")].concat())]))
        .client(large_frames)
        .server(frame(&[response(5, 0, 9, RESULT, &be32(1))]))
}

#[test]
fn version_5() {
    frame_session(false).check(expect![[r#"
        1-1 2-2 STARTUP ok, 31/9 B
        3-3 4-4 PREPARE Sql "select 1" ok, 25/49 B
        5-5 6-6 QUERY Sql "select 2" ok, 27/52 B, rows 3
        5-5 7-7 EXECUTE Sql "select 1" error ReadTimeout, 48/19 B
        8-8 9-9 QUERY Sql "select 3" ok, 140021/13 B
    "#]]);
}

#[test]
fn version_5_with_lz4() {
    frame_session(true).check(expect![[r#"
        1-1 2-2 STARTUP ok, 49/9 B
        3-3 4-4 PREPARE Sql "select 1" ok, 25/49 B
        5-5 6-6 QUERY Sql "select 2" ok, 27/52 B, rows 3
        5-5 7-7 EXECUTE Sql "select 1" error ReadTimeout, 48/19 B
        8-8 9-9 QUERY Sql "select 3" ok, 140021/13 B
    "#]]);
}

#[test]
fn payloads_that_do_not_shrink_are_not_compressed() {
    // The uncompressed size is 0 then.
    let query = request(5, 0, 3, QUERY, &[long(b"select 2"), be16(1), be32(0)].concat());
    Session::new("cassandra")
        .client(request(5, 0, 0, STARTUP, &startup(Some("lz4"))))
        .server(response(5, 0, 0, READY, &[]))
        .repeatable()
        .client([frame_header(8, query.len() | 1 << 34), query, vec![0; 4]].concat())
        .server(frame(true, true, &response(5, 0, 3, RESULT, &be32(1))))
        .check(expect![[r#"
            1-1 2-2 STARTUP ok, 49/9 B
            3-3 4-4 QUERY Sql "select 2" ok, 27/13 B
        "#]]);
}

#[test]
fn a_reused_stream_id_ends_the_request_before() {
    let query = |stream, text: &str| request(4, 0, stream, QUERY, &long(text.as_bytes()));
    Session::new("cassandra")
        .client(query(1, "first"))
        .client(query(1, "second"))
        .server(response(4, 0, 1, RESULT, &be32(1)))
        .client(query(2, "third"))
        .check_whole(expect![[r#"
            2-2 3-3 QUERY Sql "second" ok, 19/13 B
            in flight: QUERY "third" since 4
            not measured: 1 Gap
            not measured: 1 ConnectionEnd
        "#]]);
}

/// The id of the stream is in the second packet of a response, after a request with that id.
#[test]
fn a_response_that_began_before_its_request_is_not_measured() {
    let query = |stream| request(4, 0, stream, QUERY, &long(b"select 1"));
    let answer = |stream| response(4, 0, stream, RESULT, &be32(1));
    Session::new("cassandra")
        .client(query(1))
        .server(answer(1))
        .server(&answer(2)[..2])
        .client(query(2))
        .server(&answer(2)[2..])
        .client(query(3))
        .server(answer(3))
        .check_whole(expect![[r#"
            1-1 2-2 QUERY Sql "select 1" ok, 21/13 B
            6-6 7-7 QUERY Sql "select 1" ok, 21/13 B
            not measured: 1 Gap
        "#]]);
}

#[test]
fn many_requests_in_flight() {
    let mut session = Session::new("cassandra");
    for stream in 0..1100 {
        session = session.client(request(4, 0, stream, QUERY, &long(b"select 1")));
    }
    for stream in (0..1100).rev() {
        session = session.server(response(4, 0, stream, RESULT, &be32(1)));
    }
    let transcript = session.transcript_text();
    assert_eq!(transcript.matches(" QUERY Sql \"select 1\" ok").count(), 1024);
    assert!(transcript.ends_with("\nnot measured: 76 Limit\n"), "{transcript}");
}

#[test]
fn memory_is_bounded() {
    let mut session = Session::new("cassandra");
    for stream in 0..1100 {
        let text = format!("select {stream} ").repeat(100);
        session = session.client(request(4, 0, stream, PREPARE, &long(text.as_bytes())));
    }
    for stream in 0..1100_i16 {
        let id = [&[7; 14][..], &stream.to_be_bytes()].concat();
        session = session.server(response(4, 0, stream, RESULT, &prepared(&id)));
    }
    for stream in 0..1100 {
        let text = format!("select {stream} ").repeat(100);
        session = session.client(request(4, 0, stream, QUERY, &long(text.as_bytes())));
    }
    // Of most statements the text is unknown.
    let transcript = session.transcript_text();
    assert!(transcript.contains("in flight: QUERY \"select 1 select 1"), "{transcript}");
    assert!(transcript.contains("in flight: QUERY \"\" since"), "{transcript}");
}

fn request(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    envelope(version, flags, stream, opcode, body)
}

fn response(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    envelope(version | 0x80, flags, stream, opcode, body)
}

fn envelope(version: u8, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let length = be32(body.len() as u32);
    [&[version, flags][..], &stream.to_be_bytes(), &[opcode], &length, body].concat()
}

fn startup(compression: Option<&str>) -> Vec<u8> {
    let version = [text("CQL_VERSION"), text("3.0.0")].concat();
    match compression {
        None => [be16(1), version].concat(),
        Some(name) => [be16(2), version, text("COMPRESSION"), text(name)].concat(),
    }
}

fn prepared(id: &[u8]) -> Vec<u8> {
    [be32(4), be16(id.len() as u16), id.to_vec()].concat()
}

/// Rows with columns of all kinds of types.
fn rows(count: u32) -> Vec<u8> {
    let types = [
        be16(0x0d),
        [be16(0), text("org.example.Type")].concat(),
        [be16(0x20), be16(0x22), be16(9)].concat(),
        [be16(0x21), be16(0x20), be16(9), be16(9)].concat(),
        [be16(0x30), text("k"), text("u"), be16(2), text("a"), be16(9), text("b"), be16(9)]
            .concat(),
        [be16(0x31), be16(2), be16(9), be16(0x20), be16(9)].concat(),
    ];
    let columns = types.map(|kind| [text("column"), kind].concat());
    [
        be32(2),
        be32(1 | 2), // one table, more pages
        be32(columns.len() as u32),
        long(b"paging state"),
        text("keyspace"),
        text("table"),
        columns.concat(),
        be32(count),
        long(b"value").repeat(6 * count as usize),
    ]
    .concat()
}

/// Rows of version 5, whose metadata has changed, and is not repeated.
fn rows_without_metadata(id: &[u8], count: u32) -> Vec<u8> {
    let flags = be32(4 | 8);
    [be32(2), flags, be32(1), be16(id.len() as u16), id.to_vec(), be32(count), long(b"value")]
        .concat()
}

fn execute_values() -> Vec<u8> {
    [be16(1), vec![1], be16(1), long(b"value")].concat()
}

/// A batch of two statements and a prepared one, with values, null and an empty value.
fn batch(id: &[u8]) -> Vec<u8> {
    let null = be32(u32::MAX);
    [
        vec![0],
        be16(3),
        [vec![0], long(b"insert 1"), be16(2), long(b"value"), null].concat(),
        [vec![1], be16(id.len() as u16), id.to_vec(), be16(1), long(b"")].concat(),
        [vec![0], long(b"insert 2"), be16(0)].concat(),
        vec![0, 1, 0],
    ]
    .concat()
}

/// A frame of version 5. The checksum of the payload is not verified.
fn frame(is_compressed: bool, is_self_contained: bool, payload: &[u8]) -> Vec<u8> {
    let flag = usize::from(is_self_contained);
    let (header, payload) = match is_compressed {
        false => (frame_header(6, payload.len() | flag << 17), payload.to_vec()),
        true => {
            let compressed = lz4_flex::block::compress(payload);
            let sizes = compressed.len() | payload.len() << 17;
            (frame_header(8, sizes | flag << 34), compressed)
        }
    };
    [header, payload, vec![0xee; 4]].concat()
}

/// Fields of a frame header, and their CRC-24: the remainder of a division by the polynomial, bit
/// by bit, after the initial value.
fn frame_header(size: usize, fields: usize) -> Vec<u8> {
    let mut header = fields.to_le_bytes()[..size - 3].to_vec();
    let mut bits: Vec<bool> = Vec::new();
    for byte in &header {
        bits.extend((0..8).rev().map(|bit| byte >> bit & 1 == 1));
    }
    for (at, bit) in (0..24).rev().map(|bit| 0x87_5060 >> bit & 1 == 1).enumerate() {
        bits[at] ^= bit;
    }
    let data_bits = bits.len();
    bits.extend([false; 24]);
    for at in 0..data_bits {
        if bits[at] {
            for bit in 0..25 {
                bits[at + bit] ^= 0x197_4f0b >> (24 - bit) & 1 == 1;
            }
        }
    }
    let checksum =
        bits[data_bits..].iter().fold(0_u32, |checksum, bit| checksum << 1 | u32::from(*bit));
    header.extend(&checksum.to_le_bytes()[..3]);
    header
}

fn text(text: &str) -> Vec<u8> {
    [be16(text.len() as u16), text.as_bytes().to_vec()].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [be32(bytes.len() as u32), bytes.to_vec()].concat()
}

fn be16(number: u16) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn be32(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}
