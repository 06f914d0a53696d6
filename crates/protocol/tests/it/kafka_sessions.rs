//! Sessions with a broker of Kafka, encoded from the message definitions of Apache Kafka 4.1.

use expect_test::expect;

use crate::session::Session;

/// Sessions for the fuzz corpus.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![("flexible", flexible_session()), ("old", old_session())]
}

/// Session with flexible versions.
fn flexible_session() -> Session {
    let metadata = [
        be32(0), // throttle time
        compact(&[[be32(1), short_text("broker"), be32(9092), vec![0, 0]].concat()]),
        vec![0], // cluster
        be32(1), // controller
        compact(&[[
            be16(0),
            short_text("payments"),
            topic_id(7),
            vec![0],
            compact(&[[be16(0), be32(0), be32(1), be32(5), vec![1, 1, 1], vec![0]].concat()]),
            be32(-1),
            vec![0],
        ]
        .concat()]),
        vec![0],
    ]
    .concat();
    Session::new("kafka")
        .client(request(18, 4, 1, &[short_text("app"), short_text("1"), vec![0]].concat()))
        .server(response(1, false, &[be16(0), compact(&[]), be32(0), vec![0]].concat()))
        .repeatable()
        .client(request(3, 12, 2, &[0, 1, 0, 0]))
        .server(response(2, true, &metadata))
        .client(request(0, 9, 3, &produce(9, 1, &[name(9, "orders"), name(9, "payments")], 900)))
        .client(request(0, 13, 4, &produce(13, -1, &[topic_id(7)], 40)))
        .client(request(0, 13, 5, &produce(13, -1, &[topic_id(9)], 40)))
        .server(response(3, true, &produced(9, &[(name(9, "orders"), 0), (name(9, "a"), 6)])))
        .server(
            [
                response(4, true, &produced(13, &[(topic_id(7), 0)])),
                response(5, true, &produced(13, &[(topic_id(9), 0)])),
            ]
            .concat(),
        )
        // A full fetch, then incremental ones of its session.
        .client(request(1, 17, 6, &fetch(17, 0, &[topic_id(7)])))
        .server(response(6, true, &fetched(17, 0, &[(topic_id(7), 0, 100, batch(90, 4))])))
        .client(request(1, 17, 7, &fetch(17, 1, &[])))
        .server(response(7, true, &fetched(17, 0, &[(topic_id(7), 0, 100, batch(94, 6))])))
        .client(request(1, 17, 8, &fetch(17, 2, &[])))
        .server(response(8, true, &fetched(17, 0, &[(topic_id(7), 0, 101, batch(100, 1))])))
        .client(request(1, 17, 9, &fetch(17, 3, &[])))
        .server(response(9, true, &fetched(17, 0, &[])))
        .client(request(1, 17, 10, &fetch(17, 0, &[topic_id(7)])))
        .server(response(10, true, &fetched(17, 70, &[])))
        .client(request(1, 17, 11, &fetch(17, 0, &[topic_id(7)])))
        .server(response(11, true, &fetched(17, 0, &[(topic_id(7), 0, 200, batch(101, 1))])))
}

#[test]
fn flexible_versions() {
    flexible_session().check(expect![[r#"
        1-1 2-2 ApiVersions ok, 25/16 B
        3-3 4-4 Metadata ok, 22/90 B
        5-5 8-8 Produce Name "orders,payments" error NOT_LEADER_OR_FOLLOWER, 1861/148 B
        6-6 9-9 Produce Name "payments" ok, 91/93 B
        7-7 9-9 Produce ok, 91/93 B
        10-10 11-11 Fetch Name "payments" ok, 98/184 B, rows 4
        12-12 13-13 Fetch Name "payments" ok, 47/184 B, rows 6
        14-14 15-15 Fetch Name "payments" ok, 47/184 B, rows 1, wait
        16-16 17-17 Fetch Name "payments" ok, 47/21 B, rows 0, wait
        18-18 19-19 Fetch Name "payments" error FETCH_SESSION_ID_NOT_FOUND, 98/21 B, rows 0
        20-20 21-21 Fetch Name "payments" ok, 98/184 B, rows 1, wait
    "#]]);
}

/// Session with the versions of old clients.
fn old_session() -> Session {
    Session::new("kafka")
        .repeatable()
        .client(request(0, 3, 1, &produce(3, 1, &[name(3, "orders")], 0)))
        .server(response(1, false, &produced(3, &[(name(3, "orders"), 0)])))
        // No response; the broker closes the connection if it fails.
        .client(request(0, 3, 2, &produce(3, 0, &[name(3, "orders")], 100)))
        .client(request(12, 0, 3, &[text("group"), be32(1), text("member")].concat()))
        .server(response(3, false, &be16(27)))
        .client(request(11, 5, 4, &[text("group"), be32(10_000), be32(10_000)].concat()))
        .server(response(4, false, &[be32(0), be16(79), be32(-1)].concat()))
        // A message of the format before batches, and the start of another.
        .client(request(1, 4, 5, &fetch(4, -1, &[name(4, "orders")])))
        .server(response(
            5,
            false,
            &fetched(4, 0, &[(name(4, "orders"), 0, 50, [old_message(3), vec![0; 20]].concat())]),
        ))
        // An API of a later broker, and a version of a later client.
        .client(request(93, 0, 6, &[0; 10]))
        .server(response(6, true, &[0; 10]))
        .client(request(3, 30, 7, &[0; 10]))
        .server(response(7, false, &[0; 30]))
}

#[test]
fn old_versions() {
    old_session().check(expect![[r#"
        1-1 2-2 Produce Name "orders" ok, 49/50 B
        4-4 5-5 Heartbeat error REBALANCE_IN_PROGRESS, 36/10 B
        6-6 7-7 JoinGroup error MEMBER_ID_REQUIRED, 32/18 B, wait
        8-8 9-9 Fetch Name "orders" ok, 66/116 B, rows 1
        10-10 11-11 Unknown ok, 28/19 B
        12-12 13-13 Metadata ok, 28/38 B
        not measured: 1 NoResponse
    "#]]);
}

/// The id of a response is in its second packet, after a request with the same id.
#[test]
fn a_response_that_began_before_its_request_is_not_measured() {
    let heartbeat = |id| request(12, 1, id, &[text("group"), be32(1), text("member")].concat());
    let answer = |id| response(id, false, &[be32(0), be16(0)].concat());
    Session::new("kafka")
        .client(heartbeat(1))
        .server(answer(1))
        .server(&answer(2)[..6])
        .client(heartbeat(2))
        .server(&answer(2)[6..])
        .client(heartbeat(3))
        .server(answer(3))
        .check_whole(expect![[r#"
            1-1 2-2 Heartbeat ok, 36/14 B
            6-6 7-7 Heartbeat ok, 36/14 B
            not measured: 1 Gap
        "#]]);
}

#[test]
fn sasl_tokens_without_header() {
    Session::new("kafka")
        .client(request(17, 0, 1, &text("PLAIN")))
        .server(response(1, false, &[be16(0), be32(1), text("PLAIN")].concat()))
        .client([be32(11), b"\0user\0a\0b\0c"[..11].to_vec()].concat())
        .server(be32(0))
        .repeatable()
        .client(request(12, 1, 2, &[text("group"), be32(1), text("member")].concat()))
        .server(response(2, false, &[be32(0), be16(0)].concat()))
        .check(expect![[r#"
            1-1 2-2 SaslHandshake ok, 24/21 B
            3-3 4-4 SaslAuthenticate ok, 15/4 B
            5-5 6-6 Heartbeat ok, 36/14 B
        "#]]);
}

#[test]
fn sasl_scram_is_in_two_steps() {
    Session::new("kafka")
        .client(request(17, 0, 1, &text("SCRAM-SHA-256")))
        .server(response(1, false, &[be16(0), be32(1), text("SCRAM-SHA-256")].concat()))
        .client([be32(10), b"n,,n=a,r=b".to_vec()].concat())
        .server([be32(5), b"r=bcd".to_vec()].concat())
        .client([be32(5), b"c=biw".to_vec()].concat())
        .server([be32(3), b"v=x".to_vec()].concat())
        .check(expect![[r#"
            1-1 2-2 SaslHandshake ok, 32/29 B
            3-3 4-4 SaslAuthenticate ok, 14/9 B
            5-5 6-6 SaslAuthenticate ok, 9/7 B
        "#]]);
}

#[test]
fn encrypted_connections_are_recognised() {
    Session::new("kafka")
        .client([&[22, 3, 1, 0, 100, 1, 0, 0, 96, 3, 3][..], &[7; 90]].concat())
        .server([&[22, 3, 3, 0, 60, 2, 0, 0, 56, 3, 3][..], &[7; 50]].concat())
        .check_whole(expect![[r#"
            unparsed: 101 ToServer
            unparsed: 61 ToClient
            Encrypted
        "#]]);
}

#[test]
fn many_requests_in_flight() {
    let mut session = Session::new("kafka");
    for id in 0..1100 {
        session = session.client(request(12, 0, id, &[text("g"), be32(1), text("m")].concat()));
    }
    for id in 0..1100 {
        session = session.server(response(id, false, &be16(0)));
    }
    let transcript = session.transcript_text();
    assert_eq!(transcript.matches(" Heartbeat ok").count(), 1024);
    assert!(transcript.ends_with("\nnot measured: 76 Limit\n"), "{transcript}");
}

#[test]
fn memory_is_bounded() {
    let mut session = Session::new("kafka");
    for id in 0..1100 {
        let topics: Vec<_> = (0..20).map(|at| name(9, &format!("{id}-{at}").repeat(20))).collect();
        session = session.client(request(0, 9, id, &produce(9, 1, &topics, 10)));
    }
    let transcript = session.transcript_text();
    assert!(transcript.ends_with("\nnot measured: 76 Limit\n"), "{transcript}");
}

#[test]
fn requests_stay_in_flight_without_a_response() {
    Session::new("kafka")
        .client(request(1, 4, 5, &fetch(4, -1, &[name(4, "orders")])))
        .client(&request(0, 3, 1, &produce(3, 1, &[name(3, "orders")], 100))[..100])
        .check(expect![[r#"
            in flight: Fetch "orders" wait since 1
            in flight: Produce "orders" since 2
            not measured: 2 ConnectionEnd
        "#]]);
}

fn request(api: i16, version: i16, id: i32, body: &[u8]) -> Vec<u8> {
    let header = [be16(api), be16(version), be32(id), text("app")].concat();
    let flexible_from = [(0, 9), (1, 12), (3, 9), (11, 6), (12, 4), (17, 99), (18, 3), (93, 0)];
    let is_flexible = flexible_from.iter().any(|(key, from)| *key == api && *from <= version);
    let tags = if is_flexible { vec![0] } else { Vec::new() };
    sized(&[header, tags, body.to_vec()].concat())
}

fn response(id: i32, is_flexible: bool, body: &[u8]) -> Vec<u8> {
    let tags = if is_flexible { vec![0] } else { Vec::new() };
    sized(&[be32(id), tags, body.to_vec()].concat())
}

/// Produce to a partition of each topic, with records of a size.
fn produce(version: i16, acks: i16, topics: &[Vec<u8>], records: usize) -> Vec<u8> {
    let is_flexible = version >= 9;
    let blob = match is_flexible {
        true => [varint(records + 1), vec![0xaa; records]].concat(),
        false => [be32(records as i32), vec![0xaa; records]].concat(),
    };
    let tags = || if is_flexible { vec![0] } else { Vec::new() };
    let partition = [be32(0), blob, tags()].concat();
    let topic = |name: &Vec<u8>| {
        [name.clone(), array(is_flexible, std::slice::from_ref(&partition)), tags()].concat()
    };
    let topics: Vec<_> = topics.iter().map(topic).collect();
    let transactional_id = if is_flexible { vec![0] } else { be16(-1) };
    [transactional_id, be16(acks), be32(30_000), array(is_flexible, &topics), tags()].concat()
}

/// Response to Produce: topics with the error code of their partition.
fn produced(version: i16, topics: &[(Vec<u8>, i16)]) -> Vec<u8> {
    let is_flexible = version >= 9;
    let topic = |(name, error): &(Vec<u8>, i16)| {
        let partition = match version {
            3 => [be32(0), be16(*error), be64(5), be64(-1)].concat(),
            _ => [
                [be32(0), be16(*error), be64(5), be64(-1), be64(0)].concat(),
                compact(&[[be32(0), short_text("bad"), vec![0]].concat()]),
                short_text("message"),
                vec![1, 0, 9], // current leader
                vec![9; 9],
            ]
            .concat(),
        };
        let tags = if is_flexible { vec![0] } else { Vec::new() };
        [name.clone(), array(is_flexible, &[partition]), tags].concat()
    };
    let topics: Vec<_> = topics.iter().map(topic).collect();
    let tags = if is_flexible { vec![0] } else { Vec::new() };
    [array(is_flexible, &topics), be32(0), tags].concat()
}

fn fetch(version: i16, session_epoch: i32, topics: &[Vec<u8>]) -> Vec<u8> {
    let (max_wait_ms, min_bytes) = (be32(500), be32(1));
    if version == 4 {
        let partition = [be32(0), be64(9), be32(1 << 20)].concat();
        let topic = |name: &Vec<u8>| {
            [name.clone(), array(false, std::slice::from_ref(&partition))].concat()
        };
        let topics: Vec<_> = topics.iter().map(topic).collect();
        let start = [be32(-1), max_wait_ms, min_bytes, be32(1 << 20), vec![0]];
        return [start.concat(), array(false, &topics)].concat();
    }
    let partition = [be32(0), be32(5), be64(9), be32(-1), be64(0), be32(1 << 20), vec![0]].concat();
    let topic = |name: &Vec<u8>| {
        [name.clone(), compact(std::slice::from_ref(&partition)), vec![0]].concat()
    };
    let topics: Vec<_> = topics.iter().map(topic).collect();
    [
        [max_wait_ms, min_bytes, be32(1 << 20), vec![0], be32(77), be32(session_epoch)].concat(),
        compact(&topics),
        compact(&[]),
        short_text("rack"),
        vec![0],
    ]
    .concat()
}

/// Response to Fetch: topics with error code, high watermark and records of their partition.
fn fetched(version: i16, error: i16, topics: &[(Vec<u8>, i16, i64, Vec<u8>)]) -> Vec<u8> {
    if version == 4 {
        let topic = |(name, error, end, records): &(Vec<u8>, i16, i64, Vec<u8>)| {
            let partition = [
                [be32(0), be16(*error), be64(*end), be64(*end), be32(-1)].concat(),
                be32(records.len() as i32),
                records.clone(),
            ];
            [name.clone(), array(false, &[partition.concat()])].concat()
        };
        let topics: Vec<_> = topics.iter().map(topic).collect();
        return [be32(0), array(false, &topics)].concat();
    }
    let topic = |(name, error, end, records): &(Vec<u8>, i16, i64, Vec<u8>)| {
        let partition = [
            [be32(0), be16(*error), be64(*end), be64(*end), be64(0)].concat(),
            compact(&[[be64(1), be64(2), vec![0]].concat()]), // aborted transaction
            be32(-1),
            varint(records.len() + 1),
            records.clone(),
            vec![0],
        ];
        [name.clone(), compact(&[partition.concat()]), vec![0]].concat()
    };
    let topics: Vec<_> = topics.iter().map(topic).collect();
    [be32(0), be16(error), be32(77), compact(&topics), vec![0]].concat()
}

/// A record batch.
fn batch(base_offset: i64, records: i32) -> Vec<u8> {
    let after_length = [
        be32(0),
        vec![2],
        be32(0x0bad_c0de),
        be16(0),
        be32(records - 1),
        be64(1),
        be64(2),
        be64(-1),
        be16(-1),
        be32(-1),
        be32(records),
        vec![0x55; 30],
    ]
    .concat();
    [be64(base_offset), be32(after_length.len() as i32), after_length].concat()
}

/// A message of version 1.
fn old_message(offset: i64) -> Vec<u8> {
    let after_size =
        [be32(0x0bad_c0de), vec![1, 0], be64(1), be32(-1), be32(4), vec![1; 4]].concat();
    [be64(offset), be32(after_size.len() as i32), after_size].concat()
}

fn name(version: i16, name: &str) -> Vec<u8> {
    if version >= 9 { short_text(name) } else { text(name) }
}

fn topic_id(last: u8) -> Vec<u8> {
    let mut id = vec![3; 16];
    id[15] = last;
    id
}

fn array(is_flexible: bool, elements: &[Vec<u8>]) -> Vec<u8> {
    match is_flexible {
        true => compact(elements),
        false => [be32(elements.len() as i32), elements.concat()].concat(),
    }
}

fn compact(elements: &[Vec<u8>]) -> Vec<u8> {
    [varint(elements.len() + 1), elements.concat()].concat()
}

fn short_text(text: &str) -> Vec<u8> {
    [varint(text.len() + 1), text.as_bytes().to_vec()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [be16(text.len() as i16), text.as_bytes().to_vec()].concat()
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn sized(message: &[u8]) -> Vec<u8> {
    [be32(message.len() as i32), message.to_vec()].concat()
}

fn be16(number: i16) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn be32(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn be64(number: i64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}
