//! Sessions of PostgreSQL, from the protocol's document (chapter 53 of the manual).

use expect_test::{Expect, expect};

use crate::session::Session;

/// A message: type, length, body.
fn message(kind: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// A message of the client before its type byte exists: length, code, body.
fn untyped(code: u32, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', [text, "\0"].concat())
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', [name, "\0", text, "\0\0\0"].concat())
}

fn bind(portal: &str, name: &str) -> Vec<u8> {
    message(b'B', [portal, "\0", name, "\0\0\0\0\x01\0\0\0\x05value\0\0"].concat())
}

fn describe(portal: &str) -> Vec<u8> {
    message(b'D', ["P", portal, "\0"].concat())
}

fn close(name: &str) -> Vec<u8> {
    message(b'C', ["S", name, "\0"].concat())
}

fn execute(portal: &str) -> Vec<u8> {
    message(b'E', [portal, "\0\0\0\0\0"].concat())
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn flush() -> Vec<u8> {
    message(b'H', b"")
}

fn row() -> Vec<u8> {
    message(b'D', b"\0\x01\0\0\0\x01a")
}

fn complete(tag: &str) -> Vec<u8> {
    message(b'C', [tag, "\0"].concat())
}

fn error(code: &str) -> Vec<u8> {
    message(b'E', ["SERROR\0C", code, "\0Mno\0\0"].concat())
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn described() -> Vec<u8> {
    message(b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0")
}

/// A connection without password.
fn connected() -> Session {
    let welcome =
        [message(b'R', [0; 4]), message(b'S', b"TimeZone\0UTC\0"), message(b'K', [7; 8]), ready()];
    Session::new("postgres")
        .client(untyped(0x3_0000, b"user\0a\0\0"))
        .server(welcome.concat())
        .repeatable()
}

/// Line of the startup in [`connected`].
const STARTUP: &str = "1-1 2-2 Startup ok, 16/28 B\n";

/// Compares the transcript without the startup.
#[track_caller]
fn check(session: Session, expected: Expect) {
    session.check_after(STARTUP, expected);
}

/// All sessions, as seeds of the fuzzer.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![
        ("simple", simple()),
        ("several", several_statements()),
        ("errors", errors()),
        ("extended", extended()),
        ("prepared", prepared()),
        ("pipeline", pipeline()),
        ("failed pipeline", failed_pipeline()),
        ("flush", flushed()),
        ("copy in", copy_in()),
        ("copy out", copy_out()),
        ("asynchronous", asynchronous()),
        ("other", other_messages()),
        ("password", password()),
    ]
}

fn simple() -> Session {
    connected()
        .client(query("select 1"))
        .server([described(), row(), complete("SELECT 1"), ready()].concat())
        .client(query("insert into t values (1)"))
        .server([complete("INSERT 0 5"), ready()].concat())
        .client(query("explain select 1"))
        .server([described(), row()].concat())
        .server([row(), complete("EXPLAIN"), ready()].concat())
        .client(query(""))
        .server([message(b'I', b""), ready()].concat())
}

#[test]
fn simple_queries() {
    check(
        simple(),
        expect![[r#"
        3-3 4-4 Query Sql "select 1" ok, 14/53 B, rows 1
        5-5 6-6 Query Sql "insert into t values (1)" ok, 30/16 B, rows 5
        7-7 8-9 Query Sql "explain select 1" ok, 22/64 B, rows 2
        10-10 11-11 Query ok, 6/5 B
    "#]],
    );
}

fn several_statements() -> Session {
    connected()
        .client(query("begin; select ';' -- a;b\n ;; update t set a = 1;"))
        .server([complete("BEGIN"), described(), row()].concat())
        .server([row(), complete("SELECT 2")].concat())
        .server([complete("UPDATE 7"), ready()].concat())
        .client(query("select 1; select 1/0; select 2"))
        .server([described(), row(), complete("SELECT 1"), error("22012"), ready()].concat())
}

#[test]
fn several_statements_in_a_query_are_operations() {
    check(
        several_statements(),
        expect![[r#"
        3-3 4-4 Query Sql "begin" ok, 54/11 B
        4-4 4-5 Query Sql "select ';' -- a;b" ok, 0/65 B, rows 2
        5-5 6-6 Query Sql "update t set a = 1" ok, 0/14 B, rows 7
        7-7 8-8 Query Sql "select 1" ok, 36/53 B, rows 1
        8-8 8-8 Query Sql "select 1/0" error 22, 0/24 B
    "#]],
    );
}

fn errors() -> Session {
    connected()
        .client(query("select 1/0"))
        .server([error("22012"), ready()].concat())
        .client([parse("", "selec"), bind("", ""), execute(""), sync()].concat())
        .server([error("42601"), ready()].concat())
        .client([parse("", "select 1/$1"), bind("", ""), execute(""), sync()].concat())
        .server([message(b'1', b""), message(b'2', b""), error("22012"), ready()].concat())
        // Deferred constraints are checked by the commit.
        .client([parse("", "insert"), bind("", ""), execute(""), sync()].concat())
        .server([message(b'1', b""), message(b'2', b""), complete("INSERT 0 1")].concat())
        .server([error("23503"), ready()].concat())
        .client([parse("s", "selec"), sync()].concat())
        .server([error("42601"), ready()].concat())
}

#[test]
fn errors_are_measured_with_their_class() {
    check(
        errors(),
        expect![[r#"
        3-3 4-4 Query Sql "select 1/0" error 22, 16/24 B
        5-5 6-6 Execute Sql "selec" error 42, 46/24 B
        7-7 8-8 Execute Sql "select 1/$1" error 22, 52/34 B
        9-9 10-10 Execute Sql "insert" ok, 47/26 B, rows 1
        9-9 11-11 Sync error 23, 5/24 B
        12-12 13-13 Parse error 42, 20/30 B
    "#]],
    );
}

fn extended() -> Session {
    let request = [parse("", "select $1"), bind("", ""), describe(""), execute(""), sync()];
    let response = [
        message(b'1', b""),
        message(b'2', b""),
        described(),
        row(),
        row(),
        complete("SELECT 2"),
        ready(),
    ];
    let (request, response) = (request.concat(), response.concat());
    connected()
        .client(&request)
        .server(&response)
        .client(&request[..20])
        .client(&request[20..])
        .server(&response[..30])
        .server(&response[30..])
        .client([bind("", ""), describe(""), execute(""), sync()].concat())
        .server([message(b'2', b""), message(b'n', b""), message(b'I', b""), ready()].concat())
}

#[test]
fn extended_protocol() {
    check(
        extended(),
        expect![[r#"
        3-3 4-4 Execute Sql "select $1" ok, 57/75 B, rows 2
        5-6 7-8 Execute Sql "select $1" ok, 57/75 B, rows 2
        9-9 10-10 Execute Sql "select $1" ok, 39/15 B
    "#]],
    );
}

fn prepared() -> Session {
    connected()
        .client(
            [parse("s1", "select a from t where b = $1"), message(b'D', b"Ss1\0"), sync()].concat(),
        )
        .server([message(b'1', b""), message(b't', b"\0\0"), described(), ready()].concat())
        .client([bind("", "s1"), execute(""), sync()].concat())
        .server([message(b'2', b""), row(), complete("SELECT 1"), ready()].concat())
        // A cursor: the portal is executed in parts.
        .client([bind("c1", "s1"), execute("c1"), sync()].concat())
        .server([message(b'2', b""), row(), row(), message(b's', b""), ready()].concat())
        .client([execute("c1"), sync()].concat())
        .server([row(), complete("SELECT 1"), ready()].concat())
        .client([close("s1"), sync()].concat())
        .server([message(b'3', b""), ready()].concat())
}

#[test]
fn prepared_statements_have_their_text() {
    check(
        prepared(),
        expect![[r#"
        3-3 4-4 Parse ok, 53/45 B
        5-5 6-6 Execute Sql "select a from t where b = $1" ok, 34/31 B, rows 1
        7-7 8-8 Execute Sql "select a from t where b = $1" ok, 38/34 B, rows 2
        9-9 10-10 Execute Sql "select a from t where b = $1" ok, 12/26 B, rows 1
        11-11 12-12 Close ok, 14/11 B
    "#]],
    );
}

fn pipeline() -> Session {
    let text = |at: usize| format!("select {at} from t where b = $1");
    let one = |at| [parse("", &text(at)), bind("", ""), execute(""), sync()].concat();
    let answer = [message(b'1', b""), message(b'2', b""), row(), complete("SELECT 1"), ready()];
    let answer = answer.concat();
    let requests: Vec<_> = (0..8).map(one).collect();
    let (first, rest) = answer.split_at(11);
    connected()
        .client(requests[..5].concat())
        .client(requests[5..].concat())
        .server(&answer)
        .server(first)
        .server([rest, &answer.repeat(6)].concat())
        // Several operations before one Sync.
        .client([&one(8)[..one(8).len() - 5], &one(9)].concat())
        .server([&answer[..answer.len() - 6], &answer].concat())
}

#[test]
fn pipelines_with_many_syncs_in_flight() {
    check(
        pipeline(),
        expect![[r#"
        3-3 5-5 Execute Sql "select 0 from t where b = $1" ok, 69/36 B, rows 1
        3-3 6-7 Execute Sql "select 1 from t where b = $1" ok, 69/36 B, rows 1
        3-3 7-7 Execute Sql "select 2 from t where b = $1" ok, 69/36 B, rows 1
        3-3 7-7 Execute Sql "select 3 from t where b = $1" ok, 69/36 B, rows 1
        3-3 7-7 Execute Sql "select 4 from t where b = $1" ok, 69/36 B, rows 1
        4-4 7-7 Execute Sql "select 5 from t where b = $1" ok, 69/36 B, rows 1
        4-4 7-7 Execute Sql "select 6 from t where b = $1" ok, 69/36 B, rows 1
        4-4 7-7 Execute Sql "select 7 from t where b = $1" ok, 69/36 B, rows 1
        8-8 9-9 Execute Sql "select 8 from t where b = $1" ok, 69/36 B, rows 1
        8-8 9-9 Execute Sql "select 9 from t where b = $1" ok, 69/36 B, rows 1
    "#]],
    );
}

fn failed_pipeline() -> Session {
    let one = |text: &str| [parse("", text), bind("", ""), execute("")].concat();
    let answer = [message(b'1', b""), message(b'2', b""), complete("DELETE 1")].concat();
    connected()
        .client([one("a"), one("b"), one("c"), sync(), one("d"), sync()].concat())
        .server([&answer, &error("23505"), &ready(), &answer, &ready()].map(Vec::as_slice).concat())
        // The error arrives before the last request.
        .client([one("e"), flush()].concat())
        .server(error("23505"))
        .client([one("f"), sync()].concat())
        .server(ready())
}

#[test]
fn after_an_error_the_server_ignores_the_rest_of_a_pipeline() {
    check(
        failed_pipeline(),
        expect![[r#"
        3-3 4-4 Execute Sql "a" ok, 42/24 B, rows 1
        3-3 4-4 Execute Sql "b" error 23, 42/24 B
        3-3 4-4 Execute Sql "d" ok, 42/24 B, rows 1
        5-5 6-6 Execute Sql "e" error 23, 42/24 B
        not measured: 2 NoResponse
    "#]],
    );
}

fn flushed() -> Session {
    connected()
        .client([parse("", "select $1"), message(b'D', b"S\0"), flush()].concat())
        .server([message(b'1', b""), message(b't', b"\0\0"), described()].concat())
        .client([bind("", ""), execute(""), sync()].concat())
        .server([message(b'2', b""), row(), complete("SELECT 1"), ready()].concat())
}

#[test]
fn a_flush_divides_operations() {
    check(
        flushed(),
        expect![[r#"
        3-3 4-4 Parse ok, 30/39 B
        5-5 6-6 Execute Sql "select $1" ok, 32/31 B, rows 1
    "#]],
    );
}

fn copy_in() -> Session {
    let extended = [parse("", "copy t from stdin"), bind("", ""), execute(""), sync()].concat();
    connected()
        .client(query("copy t from stdin"))
        .server(message(b'G', b"\0\0\x01\0\0"))
        .client(message(b'd', b"1\n"))
        .client([message(b'd', b"2\n"), message(b'c', b"")].concat())
        .server([complete("COPY 2"), ready()].concat())
        .client(query("copy t from stdin"))
        .server(message(b'G', b"\0\0\x01\0\0"))
        .client([message(b'd', b"1\n"), message(b'f', b"no\0")].concat())
        .server([error("57014"), ready()].concat())
        // The server ignores the first Sync, as libpq expects.
        .client(extended)
        .server([message(b'1', b""), message(b'2', b""), message(b'G', b"\0\0\x01\0\0")].concat())
        .client([message(b'd', b"1\n"), message(b'c', b""), sync()].concat())
        .server([complete("COPY 1"), ready()].concat())
}

#[test]
fn copy_from_the_client() {
    check(
        copy_in(),
        expect![[r#"
        3-6 7-7 Query Sql "copy t from stdin" ok, 42/22 B, rows 2
        8-10 11-11 Query Sql "copy t from stdin" error 57, 38/34 B
        12-14 15-15 Execute Sql "copy t from stdin" ok, 70/32 B, rows 1
    "#]],
    );
}

fn copy_out() -> Session {
    connected()
        .client(query("copy t to stdout"))
        .server([message(b'H', b"\0\0\x01\0\0"), message(b'd', b"1\n")].concat())
        .server(
            [message(b'd', [b'x'; 300]), message(b'c', b""), complete("COPY 2"), ready()].concat(),
        )
}

#[test]
fn copy_to_the_client() {
    check(
        copy_out(),
        expect![[r#"
        3-3 4-5 Query Sql "copy t to stdout" ok, 22/339 B, rows 2
    "#]],
    );
}

fn asynchronous() -> Session {
    connected()
        .client(query("select f()"))
        .server(message(b'N', b"SNOTICE\0Mhello\0\0"))
        .server(message(b'A', b"\0\0\0\x01channel\0payload\0"))
        .server(message(b'S', b"TimeZone\0CET\0"))
        .server([described(), row(), complete("SELECT 1"), ready()].concat())
        .server(message(b'A', b"\0\0\0\x01channel\0payload\0"))
        .client([bind("", "unknown"), execute(""), close(""), sync()].concat())
        .server([message(b'2', b""), complete("SELECT 0"), message(b'3', b""), ready()].concat())
}

#[test]
fn asynchronous_messages_are_not_the_first_byte() {
    check(
        asynchronous(),
        expect![[r#"
        3-3 7-7 Query Sql "select f()" ok, 16/53 B, rows 1
        9-9 10-10 Execute ok, 39/19 B, rows 0
    "#]],
    );
}

fn other_messages() -> Session {
    let traced =
        "select 1 /*traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01'*/";
    connected()
        .client(message(b'F', b"\0\0\0\x01\0\0\0\0\0\0"))
        .server([message(b'V', b"\0\0\0\0"), ready()].concat())
        .client(sync())
        .server(ready())
        .client(query(traced))
        .server([described(), row(), complete("SELECT 1"), ready()].concat())
        .client(query("select \u{e9}"))
        .server([error("42703"), ready()].concat())
}

#[test]
fn function_calls_syncs_and_comments() {
    check(
        other_messages(),
        expect![[r#"
        3-3 4-4 FunctionCall ok, 15/9 B
        5-5 6-6 Sync ok, 5/6 B
        7-7 8-8 Query Sql "select 1 /*traceparent='00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01'*/" ok, 88/53 B, rows 1, traceparent 00-5bd66ef5095369c7b0d1f8f4bd33716a-c532cb4098ac3dd2-01
        9-9 10-10 Query Sql "select é" error 42, 15/24 B
    "#]],
    );
}

/// Protocol 3.2, TLS refused, SASL, a long cancel key.
fn password() -> Session {
    Session::new("postgres")
        .client(untyped(80_877_104, b""))
        .server(b"N")
        .client(untyped(80_877_103, b""))
        .server(b"N")
        .client(untyped(0x3_0002, b"user\0a\0_pq_.x\0on\0\0"))
        .server(
            [message(b'v', b"\0\x03\0\0\0\0\0\0"), message(b'R', b"\0\0\0\x0aSCRAM\0\0")].concat(),
        )
        .client(message(b'p', b"SCRAM\0\0\0\0\x01n"))
        .server(message(b'R', b"\0\0\0\x0bx"))
        .client(message(b'p', b"secret"))
        .server([message(b'R', [0; 4]), message(b'K', [7; 260]), ready()].concat())
        .client(query("select 1"))
        .server([complete("SELECT 1"), ready()].concat())
        .client(message(b'X', b""))
}

#[test]
fn a_login_is_an_operation() {
    password().check(expect![[r#"
        5-9 10-10 Startup ok, 53/319 B
        11-11 12-12 Query Sql "select 1" ok, 14/14 B, rows 1
    "#]]);
}

#[test]
fn a_failed_login_is_an_error() {
    let start = Session::new("postgres").client(untyped(0x3_0000, b"user\0a\0\0"));
    start.server(error("28P01")).check(expect![[r#"
        1-1 2-2 Startup error 28, 16/24 B
    "#]]);
    let refused = Session::new("postgres").client(untyped(80_877_103, b""));
    refused.server(error("53300")).check(expect![[r#"
        2-2 2-2 Startup error 53, 8/24 B
    "#]]);
}

#[test]
fn encrypted_connections_are_recognized() {
    let hello = b"\x16\x03\x01\x00\x05hello";
    let tls = Session::new("postgres").client(untyped(80_877_103, b"")).server(b"S").client(hello);
    tls.check(expect![[r#"
        Encrypted
    "#]]);
    let gss = Session::new("postgres").client(untyped(80_877_104, b"")).server(b"G");
    gss.client(b"\0\0\0\x01x").check(expect![[r#"
        Encrypted
    "#]]);
    // PostgreSQL 17: TLS without a request.
    Session::new("postgres").client(hello).server(hello).check(expect![[r#"
        Encrypted
    "#]]);
}

#[test]
fn a_cancel_request_has_no_response() {
    let cancel = Session::new("postgres").client(untyped(80_877_102, &[1; 8]));
    cancel.check(expect![[r#"
        not measured: 1 NoResponse
    "#]]);
}

#[test]
fn replication_is_not_measured() {
    let replication = connected()
        .client(query("IDENTIFY_SYSTEM"))
        .server([described(), row(), complete("IDENTIFY_SYSTEM"), ready()].concat())
        .client(query("START_REPLICATION 0/0"))
        .server([message(b'W', b"\0\0\0"), message(b'd', b"wal")].concat())
        .client(message(b'd', b"status"));
    replication.not_repeatable().check_after(
        STARTUP,
        expect![[r#"
        3-3 4-4 Query Sql "IDENTIFY_SYSTEM" ok, 21/60 B, rows 1
        not measured: 1 NoResponse
        unparsed: 11 ToServer
        unparsed: 8 ToClient
        Unmeasurable
    "#]],
    );
}

#[test]
fn requests_without_response_are_in_flight() {
    let session = connected()
        .client([query("select 1"), query("select pg_sleep(9); select 2")].concat())
        .server([complete("SELECT 1"), ready(), described(), row(), complete("SELECT 1")].concat());
    session.not_repeatable().check_after(
        STARTUP,
        expect![[r#"
        3-3 4-4 Query Sql "select 1" ok, 14/14 B, rows 1
        3-3 4-4 Query Sql "select pg_sleep(9)" ok, 34/53 B, rows 1
        in flight: Query "select 2" since 4
        not measured: 1 ConnectionEnd
    "#]],
    );
}

#[test]
fn other_protocols_are_not_measured() {
    Session::new("postgres").client(b"GET / HTTP/1.1\r\n\r\n").check(expect![[r#"
        unparsed: 10 ToServer
        Unmeasurable
    "#]]);
}

/// A row that is larger than a packet, and than what is captured of it.
#[test]
fn long_rows_and_statements() {
    let text = format!("select '{}'", "x".repeat(20_000));
    let long = [described(), message(b'D', [b'z'; 2000]), complete("SELECT 1"), ready()].concat();
    let session = connected().client(query(&text)).server(&long[..1000]).server(&long[1000..]);
    let transcript = session.transcript_text();
    assert!(transcript.contains(&format!("{:?}", &text[..16 << 10])), "{transcript}");
    // Bytes inside the row are missing.
    let gap = session.text_with_gap(4, 500, 400);
    assert_eq!(gap, transcript);
    // The end of the row is missing.
    let gap = session.text_with_gap(5, 0, 1039);
    assert!(gap.contains("not measured: 1 Gap"), "{gap}");
}
