//! Sessions with a server of MongoDB, encoded from the specifications of its wire protocol and
//! BSON.

use expect_test::expect;

use crate::session::Session;

const OP_REPLY: i32 = 1;
const OP_INSERT: i32 = 2002;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 2;
const EXHAUST_ALLOWED: u32 = 1 << 16;

/// Sessions for the fuzz corpus.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![("commands", command_session())]
}

/// Session with commands of all kinds.
fn command_session() -> Session {
    let ok = || double("ok", 1.0);
    let hello = query("admin.$cmd", &document(&[int("isMaster", 1), boolean("helloOk", true)]));
    let reply = [vec![8, 0, 0, 0], vec![0; 12], le32(1), document(&[ok()])].concat();
    let rows: Vec<_> = (0..3).map(|at| nested(3, &at.to_string(), &[text("a", "b")])).collect();
    let cursor = |id: i64, batch: &str| {
        nested(3, "cursor", &[nested(4, batch, &rows), long("id", id), text("ns", "shop.orders")])
    };
    let insert =
        document(&[text("insert", "orders"), boolean("ordered", true), text("$db", "shop")]);
    let documents = [b"documents\0".to_vec(), document(&[int("a", 1)]).repeat(50)].concat();
    let sequence = [vec![1], le32(documents.len() as u32 + 4), documents].concat();
    let all_kinds = [
        binary("b"),
        element(7, "oid", &[1; 12]),
        element(10, "null", &[]),
        element(11, "regex", b"a\0i\0"),
        element(9, "date", &[1; 8]),
        element(17, "timestamp", &[1; 8]),
        element(19, "decimal", &[1; 16]),
        nested(3, "lsid", &[binary("id")]),
    ]
    .concat();
    Session::new("mongodb")
        .client(message(1, 0, OP_QUERY, &hello))
        .server(message(901, 1, OP_REPLY, &reply))
        .repeatable()
        .client(message(2, 0, OP_MSG, &body(0, &[int("hello", 1), text("$db", "admin")])))
        .server(message(902, 2, OP_MSG, &body(0, &[ok()])))
        .client(message(
            3,
            0,
            OP_MSG,
            &body(0, &[text("find", "orders"), all_kinds, text("$db", "shop")]),
        ))
        .server(message(903, 3, OP_MSG, &body(0, &[cursor(77, "firstBatch"), ok()])))
        .client(message(
            4,
            0,
            OP_MSG,
            &body(0, &[long("getMore", 77), text("collection", "orders"), text("$db", "shop")]),
        ))
        .server(message(904, 4, OP_MSG, &body(0, &[cursor(0, "nextBatch"), ok()])))
        // A document sequence before the command, and a checksum.
        .client(message(
            5,
            0,
            OP_MSG,
            &[le32(CHECKSUM_PRESENT), sequence.clone(), vec![0], insert.clone(), vec![9; 4]]
                .concat(),
        ))
        .server(message(
            905,
            5,
            OP_MSG,
            &body(
                0,
                &[
                    int("n", 49),
                    nested(
                        4,
                        "writeErrors",
                        &[nested(3, "0", &[int("index", 7), int("code", 11000)])],
                    ),
                    ok(),
                ],
            ),
        ))
        .client(message(6, 0, OP_MSG, &[le32(MORE_TO_COME), vec![0], insert, sequence].concat()))
        .client(message(7, 0, OP_MSG, &body(0, &[text("update", "orders"), text("$db", "shop")])))
        .server(message(
            907,
            7,
            OP_MSG,
            &body(
                0,
                &[
                    double("ok", 0.0),
                    text("errmsg", "no"),
                    int("code", 13),
                    text("codeName", "Unauthorized"),
                ],
            ),
        ))
        .client(message(8, 0, OP_MSG, &body(0, &[text("invented", "x"), text("$db", "shop")])))
        .server(message(908, 8, OP_MSG, &body(0, &[int("ok", 0), int("code", 59)])))
        .client(message(9, 0, OP_INSERT, &[vec![0; 4], b"shop.orders\0".to_vec()].concat()))
        .client(message(
            10,
            0,
            OP_MSG,
            &body(
                0,
                &[
                    long("getMore", 78),
                    text("collection", "events"),
                    int("maxTimeMS", 1000),
                    text("$db", "shop"),
                ],
            ),
        ))
        .server(message(910, 10, OP_MSG, &body(0, &[cursor(78, "nextBatch"), ok()])))
}

#[test]
fn commands() {
    command_session().check(expect![[r#"
        1-1 2-2 isMaster ok, 68/53 B
        3-3 4-4 hello ok, 52/38 B
        5-5 6-6 find Name "shop.orders" ok, 209/151 B, rows 3
        7-7 8-8 getMore Name "shop.orders" ok, 80/150 B, rows 3
        9-9 10-10 insert Name "shop.orders" error 11000, 688/92 B
        12-12 13-13 update Name "shop.orders" error Unauthorized, 59/90 B
        14-14 15-15 command error 59, 56/44 B
        17-17 18-18 getMore Name "shop.events" ok, 95/150 B, rows 3, wait
        not measured: 2 NoResponse
    "#]]);
}

#[test]
fn a_hello_that_streams_is_one_request() {
    let hello = body(
        EXHAUST_ALLOWED,
        &[
            int("hello", 1),
            nested(3, "topologyVersion", &[long("counter", 6)]),
            int("maxAwaitTimeMS", 10_000),
            text("$db", "admin"),
        ],
    );
    let reply = |flags| body(flags, &[boolean("isWritablePrimary", true), double("ok", 1.0)]);
    Session::new("mongodb")
        .client(message(1, 0, OP_MSG, &hello))
        .server(message(901, 1, OP_MSG, &reply(MORE_TO_COME)))
        .server(message(902, 901, OP_MSG, &reply(MORE_TO_COME)))
        .server(message(903, 902, OP_MSG, &reply(0)))
        .client(message(2, 0, OP_MSG, &body(0, &[int("ping", 1), text("$db", "admin")])))
        .server(message(904, 2, OP_MSG, &reply(0)))
        .check(expect![[r#"
            1-1 2-2 hello ok, 111/58 B, wait
            5-5 6-6 ping ok, 51/58 B
        "#]]);
}

#[test]
fn cursors_of_change_streams_and_tailable_ones_wait() {
    let open = |id: i64| {
        let cursor = [nested(4, "firstBatch", &[]), long("id", id)];
        body(0, &[nested(3, "cursor", &cursor), double("ok", 1.0)])
    };
    let get_more =
        |id: i64| body(0, &[long("getMore", id), text("collection", "c"), text("$db", "d")]);
    let stage = nested(3, "0", &[nested(3, "$changeStream", &[])]);
    Session::new("mongodb")
        .client(message(
            1,
            0,
            OP_MSG,
            &body(0, &[text("aggregate", "c"), nested(4, "pipeline", &[stage]), text("$db", "d")]),
        ))
        .server(message(901, 1, OP_MSG, &open(5)))
        .client(message(2, 0, OP_MSG, &get_more(5)))
        .server(message(902, 2, OP_MSG, &open(5)))
        .client(message(
            3,
            0,
            OP_MSG,
            &body(
                0,
                &[
                    text("find", "c"),
                    boolean("tailable", true),
                    boolean("awaitData", true),
                    text("$db", "d"),
                ],
            ),
        ))
        .server(message(903, 3, OP_MSG, &open(6)))
        .client(message(4, 0, OP_MSG, &get_more(6)))
        .server(message(904, 4, OP_MSG, &open(6)))
        .client(message(5, 0, OP_MSG, &get_more(7)))
        .check_whole(expect![[r#"
            1-1 2-2 aggregate Name "d.c" ok, 97/80 B, rows 0
            3-3 4-4 getMore Name "d.c" ok, 72/80 B, rows 0, wait
            5-5 6-6 find Name "d.c" ok, 72/80 B, rows 0
            7-7 8-8 getMore Name "d.c" ok, 72/80 B, rows 0, wait
            in flight: getMore "d.c" since 9
            not measured: 1 ConnectionEnd
        "#]]);
}

#[test]
fn compressed_messages() {
    let find = body(0, &[text("find", "orders"), text("$db", "shop")]);
    let reply = body(0, &[int("ok", 0), int("code", 50), text("codeName", "MaxTimeMSExpired")]);
    let large: Vec<u8> = (0..70_000_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
    let snappy = |body: &[u8]| snap::raw::Encoder::new().compress_vec(body).unwrap();
    let zlib = |body: &[u8]| {
        let mut compressed = Vec::with_capacity(1000);
        let mut zlib = flate2::Compress::new(flate2::Compression::fast(), true);
        zlib.compress_vec(body, &mut compressed, flate2::FlushCompress::Finish).unwrap();
        compressed
    };
    let zstd = |body: &[u8]| zstd::bulk::compress(body, 1).unwrap();
    Session::new("mongodb")
        .repeatable()
        .client(message(1, 0, OP_COMPRESSED, &compressed(0, &find, find.clone())))
        .server(message(901, 1, OP_COMPRESSED, &compressed(1, &reply, snappy(&reply))))
        .client(message(2, 0, OP_COMPRESSED, &compressed(1, &find, snappy(&find))))
        .server(message(902, 2, OP_COMPRESSED, &compressed(2, &reply, zlib(&reply))))
        .client(message(3, 0, OP_COMPRESSED, &compressed(3, &find, zstd(&find))))
        .server(message(903, 3, OP_COMPRESSED, &compressed(2, &reply, large)))
        .check(expect![[r#"
            1-1 2-2 find Name "shop.orders" error MaxTimeMSExpired, 66/83 B
            3-3 4-4 find Name "shop.orders" error MaxTimeMSExpired, 67/89 B
            not measured: 1 Limit
        "#]]);
}

/// The id of the request is in the second packet of a response, after a request with that id.
#[test]
fn a_response_that_began_before_its_request_is_not_measured() {
    let ping = body(0, &[int("ping", 1), text("$db", "admin")]);
    let answer = |id| message(900 + id, id, OP_MSG, &body(0, &[double("ok", 1.0)]));
    Session::new("mongodb")
        .client(message(1, 0, OP_MSG, &ping))
        .server(answer(1))
        .server(&answer(2)[..10])
        .client(message(2, 0, OP_MSG, &ping))
        .server(&answer(2)[10..])
        .client(message(3, 0, OP_MSG, &ping))
        .server(answer(3))
        .check_whole(expect![[r#"
            1-1 2-2 ping ok, 51/38 B
            6-6 7-7 ping ok, 51/38 B
            not measured: 1 Gap
        "#]]);
}

#[test]
fn many_requests_in_flight() {
    let mut session = Session::new("mongodb");
    let ping = body(0, &[int("ping", 1), text("$db", "admin")]);
    for id in 1..=300 {
        session = session.client(message(id, 0, OP_MSG, &ping));
    }
    for id in (1..=300).rev() {
        session = session.server(message(1000 + id, id, OP_MSG, &body(0, &[double("ok", 1.0)])));
    }
    let transcript = session.transcript_text();
    assert_eq!(transcript.matches(" ping ok").count(), 256);
    assert!(transcript.ends_with("\nnot measured: 44 Limit\n"), "{transcript}");
}

fn message(id: i32, response_to: i32, opcode: i32, body: &[u8]) -> Vec<u8> {
    let length = le32(16 + body.len() as u32);
    [&length, &id.to_le_bytes()[..], &response_to.to_le_bytes(), &opcode.to_le_bytes(), body]
        .concat()
}

fn compressed(compressor: u8, original: &[u8], compressed: Vec<u8>) -> Vec<u8> {
    let size = le32(original.len() as u32);
    [OP_MSG.to_le_bytes().to_vec(), size, vec![compressor], compressed].concat()
}

/// Body of OP_MSG with one document.
fn body(flags: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    [le32(flags), vec![0], document(elements)].concat()
}

/// Body of OP_QUERY.
fn query(collection: &str, document: &[u8]) -> Vec<u8> {
    let name = [collection.as_bytes(), &[0]].concat();
    [le32(0), name, le32(0), le32(u32::MAX), document.to_vec()].concat()
}

fn document(elements: &[Vec<u8>]) -> Vec<u8> {
    let elements = elements.concat();
    [le32(elements.len() as u32 + 5), elements, vec![0]].concat()
}

fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind], name.as_bytes(), &[0], value].concat()
}

/// A document (3) or an array (4).
fn nested(kind: u8, name: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    element(kind, name, &document(elements))
}

fn text(name: &str, text: &str) -> Vec<u8> {
    let value = [le32(text.len() as u32 + 1), text.as_bytes().to_vec(), vec![0]].concat();
    element(2, name, &value)
}

fn binary(name: &str) -> Vec<u8> {
    element(5, name, &[le32(16), vec![4], vec![7; 16]].concat())
}

fn double(name: &str, number: f64) -> Vec<u8> {
    element(1, name, &number.to_le_bytes())
}

fn int(name: &str, number: i32) -> Vec<u8> {
    element(16, name, &number.to_le_bytes())
}

fn long(name: &str, number: i64) -> Vec<u8> {
    element(18, name, &number.to_le_bytes())
}

fn boolean(name: &str, truth: bool) -> Vec<u8> {
    element(8, name, &[u8::from(truth)])
}

fn le32(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}
