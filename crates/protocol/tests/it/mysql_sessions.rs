//! Sessions of MySQL and MariaDB, from the documents of their client/server protocols.

use expect_test::{Expect, expect};

use crate::session::Session;

const DEPRECATE_EOF: u32 = 1 << 24;
const COMPRESSION: u32 = 1 << 5;
const TLS: u32 = 1 << 11;

/// A packet: length, sequence number, payload.
fn packet(sequence: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let [low, middle, high, _] = (payload.len() as u32).to_le_bytes();
    [&[low, middle, high, sequence][..], payload].concat()
}

/// Packets of a response, numbered from `first`.
fn packets(first: u8, payloads: &[&[u8]]) -> Vec<u8> {
    let numbered = payloads.iter().enumerate();
    numbered.flat_map(|(at, payload)| packet(first + at as u8, payload)).collect()
}

fn command(kind: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    packet(0, [&[kind][..], body.as_ref()].concat())
}

fn query(text: &str) -> Vec<u8> {
    command(3, text)
}

fn execute(id: u8) -> Vec<u8> {
    command(0x17, [id, 0, 0, 0, 0, 1, 0, 0, 0])
}

const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";
const EOF: &[u8] = b"\xfe\0\0\x02\0";
const MORE_EOF: &[u8] = b"\xfe\0\0\x0a\0";
/// Ends rows if EOF is deprecated.
const ROWS_OK: &[u8] = b"\xfe\0\0\x02\0\0\0";
const OK: &[u8] = b"\0\x03\0\x02\0\0\0";
const MORE_OK: &[u8] = b"\0\x01\0\x0a\0\0\0";
const ROW: &[u8] = b"\x011";
const ERROR: &[u8] = b"\xff\x28\x04#42000You have an error";

fn greeting(capabilities: u32) -> Vec<u8> {
    let [a, b, c, d] = capabilities.to_le_bytes();
    let rest = [&[a, b, 8, 2, 0, c, d, 21][..], &[0; 10], b"abcdefghijkl\0plugin\0"].concat();
    packet(0, [b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0", &rest[..]].concat())
}

fn login(capabilities: u32) -> Vec<u8> {
    packet(1, [&capabilities.to_le_bytes()[..], &[0; 28], b"user\0\0plugin\0"].concat())
}

fn connected(capabilities: u32) -> Session {
    Session::new("mysql")
        .server(greeting(!(1 << 25)))
        .client(login(capabilities))
        .server(packet(2, OK))
        .repeatable()
}

/// Line of the login in [`connected`].
const CONNECT: &str = "2-2 3-3 Connect ok, 49/11 B\n";

#[track_caller]
fn check(session: Session, expected: Expect) {
    session.check_after(CONNECT, expected);
}

/// All sessions, as seeds of the fuzzer.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![
        ("text", text()),
        ("text without eof", text_without_eof()),
        ("several results", several_results()),
        ("prepared", prepared()),
        ("cursor", cursor()),
        ("file", file()),
        ("other", other_commands()),
        ("authentication", authentication()),
    ]
}

fn text() -> Session {
    connected(0)
        .client(query("select 1"))
        .server(packets(1, &[b"\x01", COLUMN, EOF, ROW, ROW, EOF]))
        .client(query("insert into t values (1)"))
        .server(packet(1, OK))
        .client(query("selec"))
        .server(packet(1, ERROR))
        .client(query("select a from empty"))
        .server(packets(1, &[b"\x01", COLUMN]))
        .server(packets(3, &[EOF, EOF]))
        // An error after the first rows.
        .client(query("select slow()"))
        .server(packets(1, &[b"\x01", COLUMN, EOF, ROW, b"\xff\x25\x05#70100interrupted"]))
}

#[test]
fn text_protocol() {
    check(
        text(),
        expect![[r#"
        4-4 5-5 Query Sql "select 1" ok, 13/62 B, rows 2
        6-6 7-7 Query Sql "insert into t values (1)" ok, 29/11 B, rows 3
        8-8 9-9 Query Sql "selec" error 42, 10/30 B
        10-10 11-12 Query Sql "select a from empty" ok, 24/50 B, rows 0
        13-13 14-14 Query Sql "select slow()" error 70, 18/71 B, rows 1
    "#]],
    );
}

fn text_without_eof() -> Session {
    connected(DEPRECATE_EOF)
        // Query attributes of MySQL 8: none.
        .client(query("\0\x01select 1"))
        .server(packets(1, &[b"\x01", COLUMN, ROW, ROW, ROWS_OK]))
        .client(query("select a from empty"))
        .server(packets(1, &[b"\x01", COLUMN, ROWS_OK]))
        // MariaDB reports progress.
        .client(query("alter table t"))
        .server(packet(1, b"\xff\xff\xff\x01\x01\x02abc"))
        .server(packet(2, OK))
}

#[test]
fn rows_without_eof() {
    check(
        text_without_eof(),
        expect![[r#"
        4-4 5-5 Query Sql "select 1" ok, 15/55 B, rows 2
        6-6 7-7 Query Sql "select a from empty" ok, 24/43 B, rows 0
        8-8 10-10 Query Sql "alter table t" ok, 18/24 B, rows 3
    "#]],
    );
}

fn several_results() -> Session {
    connected(0)
        .client(query("select ';'; update t set a = 1; select 2"))
        .server(packets(1, &[b"\x01", COLUMN, EOF, ROW, MORE_EOF, MORE_OK]))
        .server(packets(7, &[b"\x01", COLUMN, EOF, ROW, ROW, EOF]))
        // All results of a procedure belong to its call.
        .client(query("call p()"))
        .server(packets(1, &[b"\x01", COLUMN, EOF, ROW, MORE_EOF]))
        .server(packets(6, &[b"\x01", COLUMN, EOF, ROW, MORE_EOF, OK]))
        .client(query("create procedure p() begin select 1; select 2; end;"))
        .server(packet(1, OK))
        .client(query("select 1; selec; select 2"))
        .server(packets(1, &[b"\x01", COLUMN, EOF, ROW, MORE_EOF, ERROR]))
}

#[test]
fn several_results_of_a_query() {
    check(
        several_results(),
        expect![[r#"
            4-4 5-5 Query Sql "select ';'" ok, 45/56 B, rows 1
            5-5 5-5 Query Sql "update t set a = 1" ok, 0/11 B, rows 1
            5-5 6-6 Query Sql "select 2" ok, 0/62 B, rows 2
            7-7 8-9 Query Sql "call p()" ok, 13/123 B, rows 5
            10-10 11-11 Query Sql "create procedure p() begin select 1; select 2; end" ok, 56/11 B, rows 3
            12-12 13-13 Query Sql "select 1" ok, 30/56 B, rows 1
            13-13 13-13 Query Sql "selec" error 42, 0/30 B
        "#]],
    );
}

#[test]
fn impossible_numbers_of_rows_do_not_overflow() {
    let most = b"\0\xfe\xff\xff\xff\xff\xff\xff\xff\xff\0\x0a\0\0\0";
    check(
        connected(0).client(query("call p()")).server(packets(1, &[most, OK])),
        expect![[r#"
        4-4 5-5 Query Sql "call p()" ok, 13/30 B, rows 18446744073709551615
    "#]],
    );
}

fn prepared() -> Session {
    connected(0)
        .client(command(0x16, "select a from t where b = ?"))
        .server(packets(1, &[b"\0\x07\0\0\0\x01\0\x01\0\0\0\0", COLUMN, EOF, COLUMN, EOF]))
        .client(command(0x18, [7, 0, 0, 0, 0, 0, b'x']))
        .client(execute(7))
        .server(packets(1, &[b"\x01", COLUMN, EOF, b"\0\0\x01", EOF]))
        .client([command(0x19, [7, 0, 0, 0]), query("commit")].concat())
        .server(packet(1, OK))
        .client(command(0x16, "do 1"))
        .server(packet(1, b"\0\x08\0\0\0\0\0\0\0\0\0\0"))
        .client(execute(8))
        .server(packet(1, OK))
        .client(command(0x16, "selec"))
        .server(packet(1, ERROR))
}

#[test]
fn prepared_statements_have_their_text() {
    check(
        prepared(),
        expect![[r#"
        4-4 5-5 Prepare Sql "select a from t where b = ?" ok, 32/88 B
        7-7 8-8 Execute Sql "select a from t where b = ?" ok, 14/57 B, rows 1
        9-9 10-10 Query Sql "commit" ok, 11/11 B, rows 3
        11-11 12-12 Prepare Sql "do 1" ok, 9/16 B
        13-13 14-14 Execute Sql "do 1" ok, 14/11 B, rows 3
        15-15 16-16 Prepare Sql "selec" error 42, 10/30 B
    "#]],
    );
    let session = connected(DEPRECATE_EOF)
        .client(command(0x16, "select a from t where b = ?"))
        .server(packets(1, &[b"\0\x07\0\0\0\x01\0\x01\0\0\0\0", COLUMN, COLUMN]))
        .client(execute(7))
        .server(packets(1, &[b"\x01", COLUMN, b"\0\0\x01", ROWS_OK]));
    check(
        session,
        expect![[r#"
        4-4 5-5 Prepare Sql "select a from t where b = ?" ok, 32/70 B
        6-6 7-7 Execute Sql "select a from t where b = ?" ok, 14/50 B, rows 1
    "#]],
    );
}

fn cursor() -> Session {
    connected(0)
        .client(command(0x16, "select a from t"))
        .server(packets(1, &[b"\0\x07\0\0\0\x01\0\0\0\0\0\0", COLUMN, EOF]))
        .client(execute(7))
        .server(packets(1, &[b"\x01", COLUMN, b"\xfe\0\0\x42\0"]))
        .client(command(0x1c, [7, 0, 0, 0, 2, 0, 0, 0]))
        .server(packets(1, &[b"\0\0\x01", b"\0\0\x02", b"\xfe\0\0\x42\0"]))
}

#[test]
fn rows_of_a_cursor_are_fetched() {
    check(
        cursor(),
        expect![[r#"
        4-4 5-5 Prepare Sql "select a from t" ok, 20/52 B
        6-6 7-7 Execute Sql "select a from t" ok, 14/41 B, rows 0
        8-8 9-9 Fetch Sql "select a from t" ok, 13/23 B, rows 2
    "#]],
    );
}

fn file() -> Session {
    connected(0)
        .client(query("load data local infile 'a' into table t"))
        .server(packet(1, b"\xfba"))
        .client(packet(2, "1\n2\n"))
        .client([packet(3, "3\n"), packet(4, "")].concat())
        .server(packet(5, OK))
        .client(query("load data local infile 'no' into table t"))
        .server(packet(1, b"\xfbno"))
        .client(packet(2, ""))
        .server(packet(3, ERROR))
}

#[test]
fn a_file_of_the_client_is_part_of_the_request() {
    check(
        file(),
        expect![[r#"
        4-7 8-8 Query Sql "load data local infile 'a' into table t" ok, 62/17 B, rows 3
        9-11 12-12 Query Sql "load data local infile 'no' into table t" error 42, 49/37 B
    "#]],
    );
}

fn other_commands() -> Session {
    connected(0)
        .client(command(0x0e, ""))
        .server(packet(1, OK))
        .client(command(0x02, "db"))
        .server(packet(1, OK))
        .client(command(0x09, ""))
        .server(packet(1, "Uptime: 1"))
        .client(command(0x04, "t\0"))
        .server(packets(1, &[COLUMN, COLUMN, EOF]))
        .client(command(0x1b, [0, 0]))
        .server(packet(1, EOF))
        .client(command(0x1f, ""))
        .server(packet(1, OK))
}

#[test]
fn other_commands_have_one_response() {
    check(
        other_commands(),
        expect![[r#"
        4-4 5-5 Ping ok, 5/11 B
        6-6 7-7 InitDb ok, 7/11 B
        8-8 9-9 Statistics ok, 5/13 B
        10-10 11-11 FieldList ok, 7/63 B
        12-12 13-13 SetOption ok, 7/9 B
        14-14 15-15 ResetConnection ok, 5/11 B
    "#]],
    );
}

/// The server switches the method, and asks again.
fn authentication() -> Session {
    Session::new("mysql")
        .server(greeting(0xff_ffff))
        .client(login(1 << 19))
        .server(packet(2, b"\xfeplugin\0salt"))
        .client(packet(3, "secret"))
        .server(packet(4, b"\x01\x04"))
        .client(packet(5, "secret"))
        .server(packet(6, OK))
        .client(command(1, ""))
}

#[test]
fn a_login_is_an_operation() {
    authentication().check(expect![[r#"
        2-6 7-7 Connect ok, 69/33 B
    "#]]);
    let start = Session::new("mysql").server(greeting(0xff_ffff)).client(login(0));
    start.server(packet(2, b"\xff\x15\x04#28000Access denied")).check(expect![[r#"
        2-2 3-3 Connect error 28, 49/26 B
    "#]]);
    let refused = Session::new("mysql").server(packet(0, b"\xff\x10\x04Too many connections"));
    refused.check(expect![[""]]);
}

#[test]
fn encrypted_and_compressed_connections_are_recognized() {
    let hello = b"\x16\x03\x01\x00\x05hello";
    let request = packet(1, [&TLS.to_le_bytes()[..], &[0; 28]].concat());
    let tls = Session::new("mysql").server(greeting(u32::MAX)).client(request).client(hello);
    tls.check(expect![[r#"
        Encrypted
    "#]]);
    let start = Session::new("mysql").server(greeting(u32::MAX)).client(login(COMPRESSION));
    let compressed = start.server(packet(2, OK)).client(b"\x05\0\0\0\0\0\0abcde");
    compressed.check(expect![[r#"
        2-2 3-3 Connect ok, 49/11 B
        unparsed: 12 ToServer
        Unmeasurable
    "#]]);
}

#[test]
fn replication_is_not_measured() {
    let session = connected(0)
        .client(command(0x15, "replica"))
        .server(packet(1, OK))
        .client(command(0x12, "binlog.1"))
        .server(packet(1, b"\0event"));
    session.not_repeatable().check_after(
        CONNECT,
        expect![[r#"
        4-4 5-5 RegisterReplica ok, 12/11 B
        not measured: 1 NoResponse
        unparsed: 10 ToClient
        Unmeasurable
    "#]],
    );
}

#[test]
fn other_protocols_are_not_measured() {
    let session = Session::new("mysql").server(b"SSH-2.0-OpenSSH_9\r\n");
    assert_eq!(session.transcript_text(), "Unmeasurable\n");
}

/// Packets of 16 MiB are continued by the next one.
#[test]
fn long_packets_are_continued() {
    let long = vec![b'x'; 0xff_ffff];
    let session = connected(0)
        .client(command(3, ["insert '", &"x".repeat(30)].concat()))
        .server(packet(1, OK))
        .client([packet(0, [&b"\x03"[..], &long[1..]].concat()), packet(1, "'")].concat())
        .server(packet(2, OK))
        .client(query("select"))
        .server([packets(1, &[b"\x01", COLUMN, EOF, &long]), packets(5, &[b"x", EOF])].concat());
    let text = session.transcript_text();
    assert!(text.contains("8-8 9-9 Query Sql \"select\" ok, 11/"), "{text}");
    assert!(text.contains(", rows 1\n") && text.contains("ok, 16777224/11 B"), "{text}");
    // A gap inside a row does no harm.
    assert_eq!(session.text_with_gap(9, 1000, 1_000_000), text);
}

/// A statement that was prepared before capture started has no text.
#[test]
fn late_starts_know_no_text() {
    let long = (0..6).fold(connected(0), |session, _| {
        session.client(execute(9)).server(packets(1, &[b"\x01", COLUMN, EOF, b"\0\0\x01", EOF]))
    });
    check(
        long,
        expect![[r#"
        4-4 5-5 Execute ok, 14/57 B, rows 1
        6-6 7-7 Execute ok, 14/57 B, rows 1
        8-8 9-9 Execute ok, 14/57 B, rows 1
        10-10 11-11 Execute ok, 14/57 B, rows 1
        12-12 13-13 Execute ok, 14/57 B, rows 1
        14-14 15-15 Execute ok, 14/57 B, rows 1
    "#]],
    );
}
