//! Sessions of Redis, from the specification of RESP and the documentation of commands.

use expect_test::expect;

use crate::session::Session;

fn redis() -> Session {
    Session::new("redis")
}

/// A command of words.
fn command(text: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    let mut out = Vec::new();
    protocol::redis::encode_command(words.iter().copied(), &mut out);
    out
}

/// An array of bulk strings.
fn array(words: &str) -> Vec<u8> {
    command(words)
}

/// All sessions, as seeds of the fuzzer.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![
        ("replies", replies()),
        ("errors", errors()),
        ("pipeline", pipeline()),
        ("waits", waits()),
        ("transaction", transaction()),
        ("pub/sub 2", channels_2()),
        ("pub/sub 3", channels_3()),
        ("no replies", no_replies()),
        ("reset", reset()),
    ]
}

fn replies() -> Session {
    redis()
        .repeatable()
        .client(command("SET key value"))
        .server("+OK\r\n")
        .client(command("get key"))
        .server("$5\r\nval")
        .server("ue\r\n")
        .client("PING\r\n")
        .server("+PONG\r\n")
        .client(command("LRANGE l 0 -1"))
        .server("*3\r\n$1\r\na\r\n:5\r\n*-1\r\n")
        .client(command("CONFIG GET save"))
        .server("*2\r\n$4\r\nsave\r\n$0\r\n\r\n")
        .client(command("HGETALL h"))
        .server("%2\r\n+a\r\n:1\r\n+b\r\n#t\r\n")
        .client(command("EVALSHA 0123456789abcdef0123456789abcdef01234567 0"))
        .server("|1\r\n+ttl\r\n:5\r\n_\r\n")
}

#[test]
fn replies_of_all_types() {
    replies().check(expect![[r#"
        1-1 2-2 SET ok, 33/5 B
        3-3 4-5 GET ok, 22/11 B
        6-6 7-7 PING ok, 6/7 B
        8-8 9-9 LRANGE ok, 38/20 B, rows 3
        10-10 11-11 CONFIG GET ok, 35/20 B, rows 2
        12-12 13-13 HGETALL ok, 24/20 B, rows 2
        14-14 15-15 EVALSHA Name "0123456789abcdef0123456789abcdef01234567" ok, 71/17 B
    "#]]);
}

fn errors() -> Session {
    redis()
        .repeatable()
        .client(command("INCR l"))
        .server("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n")
        .client(command("GET k"))
        .server("-MOVED 3999 127.0.0.1:6381\r\n")
        .client(command("X"))
        .server("!21\r\nSYNTAX invalid syntax\r\n")
        .client(command("FT.SEARCH i q"))
        .server("-no such index\r\n")
}

#[test]
fn errors_have_their_prefix() {
    errors().check(expect![[r#"
        1-1 2-2 INCR error WRONGTYPE, 21/68 B
        3-3 4-4 GET error MOVED, 20/28 B
        5-5 6-6 X error SYNTAX, 11/28 B
        7-7 8-8 FT.SEARCH error ERR, 33/16 B
    "#]]);
}

fn pipeline() -> Session {
    let commands: Vec<u8> = (0..6).flat_map(|at| command(&format!("GET key{at}"))).collect();
    redis()
        .repeatable()
        .client(&commands[..50])
        .client(&commands[50..])
        .server("$1\r\na\r\n$-1\r\n$1")
        .server("\r\nb\r\n$1\r\nc\r\n")
        .server("-ERR no\r\n$1\r\nc\r\n")
}

#[test]
fn pipelines() {
    pipeline().check(expect![[r#"
        1-1 3-3 GET ok, 23/7 B
        1-1 3-3 GET ok, 23/5 B
        1-2 3-4 GET ok, 23/7 B
        2-2 4-4 GET ok, 23/7 B
        2-2 5-5 GET error ERR, 23/9 B
        2-2 5-5 GET ok, 23/7 B
    "#]]);
}

fn waits() -> Session {
    redis()
        .repeatable()
        .client(command("BLPOP l 5"))
        .server("*-1\r\n")
        .client(command("XREADGROUP GROUP g c COUNT 10 BLOCK 5000 STREAMS s >"))
        .server("*-1\r\n")
        .client(command("XREAD STREAMS s 0"))
        .server("*0\r\n")
        .client(command("WAIT 1 100"))
        .server(":1\r\n")
}

#[test]
fn blocking_commands_are_waits() {
    waits().check(expect![[r#"
        1-1 2-2 BLPOP ok, 29/5 B, wait
        3-3 4-4 XREADGROUP ok, 114/5 B, wait
        5-5 6-6 XREAD ok, 42/4 B, rows 0
        7-7 8-8 WAIT ok, 30/4 B, wait
    "#]]);
}

fn transaction() -> Session {
    let all = ["MULTI", "SET a b", "BLPOP l 0", "EXEC"].map(command).concat();
    redis()
        .repeatable()
        .client(all)
        .server("+OK\r\n+QUEUED\r\n+QUEUED\r\n")
        .server("*2\r\n+OK\r\n*-1\r\n")
        .client(command("SET a QUEUED"))
        .server("+OK\r\n")
}

#[test]
fn commands_of_a_transaction_are_queued() {
    transaction().check(expect![[r#"
        1-1 2-2 MULTI ok, 15/5 B
        1-1 2-2 QUEUED Name "SET" ok, 27/9 B
        1-1 2-2 QUEUED Name "BLPOP" ok, 29/9 B
        1-1 3-3 EXEC ok, 14/14 B, rows 2
        4-4 5-5 SET ok, 32/5 B
    "#]]);
}

fn channels_2() -> Session {
    redis()
        .client(command("SUBSCRIBE a b"))
        .server(b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
        .server(
            [&b"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"[..], &array("message a hello")]
                .concat(),
        )
        .server(array("message a hello"))
        .client(command("PING"))
        .server("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
        .client(command("UNSUBSCRIBE"))
        .server("*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n")
        .server("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:0\r\n")
        .client(command("LRANGE l 0 -1"))
        .server(array("message a hello"))
}

#[test]
fn messages_of_channels_are_no_replies() {
    channels_2().check(expect![[r#"
        1-1 2-3 SUBSCRIBE ok, 33/60 B
        5-5 6-6 PING ok, 14/20 B, rows 2
        10-10 11-11 LRANGE ok, 38/35 B, rows 3
        not measured: 1 NoResponse
    "#]]);
}

#[test]
fn the_confirmation_of_an_unneeded_unsubscription_is_no_reply() {
    redis()
        .client([command("UNSUBSCRIBE"), command("ECHO x")].concat())
        .server("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:0\r\n")
        .server("$1\r\nx\r\n")
        .check(expect![[r#"
            1-1 3-3 ECHO ok, 21/7 B
            not measured: 1 NoResponse
        "#]]);
}

fn channels_3() -> Session {
    redis()
        .client(command("HELLO 3"))
        .server("%1\r\n+proto\r\n:3\r\n")
        .client(command("SUBSCRIBE a"))
        .server(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
        .client(command("GET k"))
        .server(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nv\r\n")
        .client(command("LRANGE l 0 -1"))
        .server(array("message a hello"))
}

#[test]
fn pushed_messages_are_no_replies() {
    channels_3().check(expect![[r#"
        1-1 2-2 HELLO ok, 22/16 B, rows 1
        3-3 4-4 SUBSCRIBE ok, 26/30 B
        5-5 6-6 GET ok, 20/7 B
        7-7 8-8 LRANGE ok, 38/35 B, rows 3
    "#]]);
}

fn reset() -> Session {
    redis()
        .client(command("HELLO 3"))
        .server("%1\r\n+proto\r\n:3\r\n")
        .client([command("RESET"), command("PSUBSCRIBE p*")].concat())
        .server("+RESET\r\n*3\r\n$10\r\npsubscribe\r\n$2\r\np*\r\n:1\r\n")
        .client(command("PING"))
        .server("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
        .client(command("RESET"))
        .server("+RESET\r\n")
        .client(command("LRANGE l 0 -1"))
        .server(array("message a hello"))
}

#[test]
fn a_reset_connection_has_version_2_and_no_subscriptions() {
    reset().check(expect![[r#"
        1-1 2-2 HELLO ok, 22/16 B, rows 1
        3-3 4-4 RESET ok, 15/8 B
        3-3 4-4 PSUBSCRIBE ok, 29/33 B
        5-5 6-6 PING ok, 14/20 B, rows 2
        7-7 8-8 RESET ok, 15/8 B
        9-9 10-10 LRANGE ok, 38/35 B, rows 3
    "#]]);
}

#[test]
fn version_2_can_be_chosen_again() {
    redis()
        .client(command("HELLO 3"))
        .server("%1\r\n+proto\r\n:3\r\n")
        .client(command("HELLO 2"))
        .server("*2\r\n$5\r\nproto\r\n:2\r\n")
        .client(command("SUBSCRIBE a"))
        .server("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
        .check(expect![[r#"
            1-1 2-2 HELLO ok, 22/16 B, rows 1
            3-3 4-4 HELLO ok, 22/19 B, rows 2
            5-5 6-6 SUBSCRIBE ok, 26/30 B
        "#]]);
}

fn no_replies() -> Session {
    redis()
        .client([command("CLIENT REPLY SKIP"), command("SET a b"), command("GET a")].concat())
        .server("$1\r\nb\r\n")
        .client([command("CLIENT REPLY OFF"), command("SET a b")].concat())
        .client(command("SET a c"))
        .client([command("CLIENT REPLY ON"), command("GET a")].concat())
        .server("+OK\r\n$1\r\nc\r\n")
}

#[test]
fn commands_without_reply_are_counted() {
    no_replies().check(expect![[r#"
        1-1 2-2 GET ok, 20/7 B
        5-5 6-6 CLIENT REPLY ok, 35/5 B
        5-5 6-6 GET ok, 20/7 B
        not measured: 5 NoResponse
    "#]]);
}

#[test]
fn streams_are_not_measured() {
    let monitor =
        redis().client(command("MONITOR")).server("+OK\r\n+1339518083.107412 \"PING\"\r\n");
    monitor.check(expect![[r#"
        1-1 2-2 MONITOR ok, 17/5 B
        unparsed: 27 ToClient
        Unmeasurable
    "#]]);
    let replica = redis().client(command("REPLCONF capa eof")).server("+OK\r\n");
    let replica = replica.client(command("PSYNC ? -1")).server("+FULLRESYNC x 0\r\n$9\r\nREDIS");
    replica.check(expect![[r#"
        1-1 2-2 REPLCONF ok, 37/5 B
        not measured: 1 NoResponse
        unparsed: 26 ToClient
        Unmeasurable
    "#]]);
}

#[test]
fn other_protocols_are_recognized() {
    let hello = b"\x16\x03\x01\x00\x05hello";
    redis().client(hello).server(hello).check(expect![[r#"
        Encrypted
    "#]]);
    redis().client(b"\x00\x01\x02").server("x").check(expect![[r#"
        unparsed: 3 ToServer
        unparsed: 1 ToClient
        Unmeasurable
    "#]]);
}

/// More commands are in flight than the observer retains: the rest is counted, and replies are
/// still paired.
#[test]
fn too_many_commands_in_flight_are_counted() {
    let session = redis()
        .client(command("PING").repeat(5000))
        .server("+PONG\r\n".repeat(5000))
        .client(command("GET a"))
        .server("$1\r\na\r\n");
    let text = session.transcript_text();
    assert!(text.contains("not measured: 904 Limit"));
    assert!(text.contains("3-3 4-4 GET ok"));
    assert_eq!(text.lines().count(), 4098);
}

/// A large value may be missing in its middle.
#[test]
fn a_gap_inside_a_value_does_no_harm() {
    let value = "x".repeat(5000);
    let session = redis()
        .client(command(&format!("SET key {value}")))
        .server("+OK\r\n")
        .client(command("GET key"))
        .server(format!("$5000\r\n{value}\r\n"));
    let whole = session.transcript_text();
    assert_eq!(session.text_with_gap(1, 200, 4000), whole);
    assert_eq!(session.text_with_gap(4, 200, 4000), whole);
    assert!(session.text_with_gap(4, 5, 100).contains("not measured: 1 Gap"));
}
