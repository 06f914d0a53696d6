//! PostgreSQL, message by message.

use super::*;
use crate::protocols::tests::noise;

fn message(kind: u8, contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, contents].concat()
}

/// Messages of which only the type matters.
fn messages(kinds: &str) -> Vec<u8> {
    kinds.bytes().flat_map(|kind| message(kind, b"abc")).collect()
}

fn login(code: u32, contents: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes(), contents].concat())
}

fn fresh(is_prepared: bool) -> Postgres {
    Postgres::new(Login::new("me", Some(Secret::new("secret")), "base"), is_prepared)
}

fn ready(is_prepared: bool) -> Postgres {
    let mut codec = fresh(is_prepared);
    let bytes = [login(0, b""), messages("SSSKNZ")].concat();
    codec.receive(&bytes, &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!(codec.capacity(), 1);
    codec
}

fn request(index: usize, sql: &str, arguments: &[&str]) -> RenderedRequest {
    let arguments = arguments.iter().map(|one| one.as_bytes().to_vec()).collect();
    RenderedRequest {
        index,
        body: sql.as_bytes().to_vec(),
        arguments,
        ..RenderedRequest::default()
    }
}

/// Types of the messages sent.
fn sent(codec: &mut Postgres, request: &RenderedRequest) -> String {
    let mut out = Vec::new();
    codec.send(request, 7, &mut out);
    kinds(&out)
}

fn kinds(mut bytes: &[u8]) -> String {
    let mut kinds = String::new();
    while let Some((head, _)) = bytes.split_first_chunk::<5>() {
        kinds.push(char::from(head[0]));
        let length = u32::from_be_bytes(head[1..].try_into().unwrap());
        bytes = &bytes[1 + length as usize..];
    }
    kinds
}

/// Completions of a response that arrives whole, and byte by byte.
#[track_caller]
fn ends(answer: &[u8], closes: bool) -> Result<Vec<Completion>, Failure> {
    let take = |pieces: Vec<&[u8]>| {
        let (mut codec, mut completions) = (ready(false), Vec::new());
        codec.send(&request(0, "select 1", &[]), 7, &mut Vec::new());
        for piece in pieces {
            codec.receive(piece, &mut Vec::new(), &mut completions)?;
        }
        if closes {
            codec.close(&mut completions);
        }
        Ok(completions)
    };
    let once = take(vec![answer]);
    assert_eq!(once, take(answer.chunks(1).collect()), "{answer:?}");
    once
}

const WELL: Completion = Completion { request_id: 7, failure: None };
const FAILED: Completion = Completion { request_id: 7, failure: Some(Failure::Status) };

#[test]
fn urls_have_credentials_and_options() {
    let read = |url: &str| {
        let (url, _) = TargetUrl::parse(url, &[ROW]).unwrap();
        PostgresProtocol::read(&url).unwrap()
    };
    let protocol = |user: &str, password: Option<&str>, database: &str, is_prepared| {
        let (user, database) = (user.to_owned(), database.to_owned());
        PostgresProtocol { user, password: password.map(Secret::new), database, is_prepared }
    };
    let (found, mode) = read("postgres://m%40e:p%2F%3Aw:x@h:1/b%20c?prepared=true");
    assert_eq!(found, protocol("m@e", Some("p/:w:x"), "b c", true));
    assert_eq!(mode, SslMode::Disable);
    assert_eq!(read("postgresql://me@h").0, protocol("me", None, "me", false));
    assert_eq!(read("postgres://h").0, protocol("postgres", None, "postgres", false));
    assert_eq!(read("postgres://h/b?sslmode=require").1, SslMode::Require);
    assert_eq!(read("postgres://h/b?sslmode=verify-full").1, SslMode::VerifyFull);
}

#[test]
fn authentication_comes_first() {
    let (mut codec, mut out) = (fresh(false), Vec::new());
    codec.open(&mut out);
    assert_eq!(u32::from_be_bytes(out[..4].try_into().unwrap()) as usize, out.len());
    assert_eq!(&out[4..8], [0, 3, 0, 0]);
    let expected = b"user\0me\0database\0base\0application_name\0topdeck load\0";
    assert_eq!(&out[8..8 + expected.len()], expected);
    assert_eq!(codec.capacity(), 0);
}

#[test]
fn authentication_requests_are_answered() {
    let answer = |asked: &[u8]| {
        let (mut codec, mut out) = (fresh(false), Vec::new());
        codec.receive(asked, &mut out, &mut Vec::new()).map(|()| out)
    };
    assert_eq!(answer(&login(3, b"")), Ok(message(b'p', b"secret\0")));
    // md5(md5(password, user), salt), computed by another program.
    let sum = b"md541c83370953958037c7298c50b238bda\0";
    assert_eq!(answer(&login(5, b"salt")), Ok(message(b'p', sum)));
    let first = answer(&login(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")).unwrap();
    assert!(first[5..].starts_with(b"SCRAM-SHA-256\0"));
    assert_eq!(answer(&login(10, b"OTHER\0\0")), Err(Failure::Status));
    assert_eq!(answer(&login(7, b"")), Err(Failure::Status));
    for asked in [login(5, b"sal"), login(11, b"r=x"), login(12, b""), message(b'R', b"ab")] {
        assert_eq!(answer(&asked), Err(Failure::Malformed), "{asked:?}");
    }
    assert_eq!(answer(&messages("E")), Err(Failure::Status));
    let mut codec = Postgres::new(Login::new("me", None, "base"), false);
    let asked = codec.receive(&login(3, b""), &mut Vec::new(), &mut Vec::new());
    assert_eq!(asked, Err(Failure::Status));
}

#[test]
fn login_errors_have_details() {
    let words = |asked: &[u8], password: Option<&str>, failure| {
        let login = Login::new("me", password.map(Secret::new), "base");
        let mut codec = Postgres::new(login, false);
        let found = codec.receive(asked, &mut Vec::new(), &mut Vec::new());
        assert_eq!(found, Err(failure));
        assert_eq!(codec.error_detail(Failure::Reset), None);
        codec.error_detail(failure)
    };
    let refused = message(b'E', b"SFATAL\0VFATAL\0C28000\0Mno entry\0Fauth.c\0\0");
    let found = words(&refused, None, Failure::Status);
    assert_eq!(found.as_deref(), Some("FATAL: no entry (28000)"));
    assert_eq!(words(&messages("E"), None, Failure::Status), None);
    // Before version 3 of the protocol an error was a text without a length.
    assert_eq!(words(b"EFATAL: unsupported\0", None, Failure::Malformed), None);
    let found = words(&login(3, b""), None, Failure::Status);
    assert!(found.unwrap().contains("requires a password"));
    let found = words(&login(10, b"SCRAM-SHA-256-PLUS\0\0"), Some("secret"), Failure::Status);
    assert!(found.unwrap().contains("channel binding"));
    let found = words(&login(7, b""), Some("secret"), Failure::Status);
    assert!(found.unwrap().contains("unsupported authentication method"));
}

#[test]
fn reply_length_overflow_is_malformed() {
    let (mut codec, mut out, mut completions) = (fresh(false), Vec::new(), Vec::new());
    codec.receive(&login(10, b"SCRAM-SHA-256\0\0"), &mut out, &mut completions).unwrap();
    let text = String::from_utf8_lossy(&out).into_owned();
    let nonce = text.rsplit("r=").next().unwrap();
    let first = format!("r={nonce}x,s=c2FsdA==,i=4000000000");
    let asked = codec.receive(&login(11, first.as_bytes()), &mut out, &mut completions);
    assert_eq!(asked, Err(Failure::Malformed));
}

#[test]
fn queries_are_simple_or_extended() {
    let mut codec = ready(false);
    assert_eq!(sent(&mut codec, &request(0, "select 1", &[])), "Q");
    assert_eq!(codec.capacity(), 0);
    let mut codec = ready(false);
    assert_eq!(sent(&mut codec, &request(0, "select $1", &["a"])), "PBES");
    // Not representable: a NUL, and invalid UTF-8.
    for body in [b"a\0b".to_vec(), vec![0xff]] {
        let mut codec = ready(false);
        assert_eq!(sent(&mut codec, &RenderedRequest { body, ..RenderedRequest::default() }), "S");
        let mut completions = Vec::new();
        codec.receive(&messages("Z"), &mut Vec::new(), &mut completions).unwrap();
        assert_eq!(completions, [Completion { request_id: 7, failure: Some(Failure::Malformed) }]);
    }
}

#[test]
fn statements_are_prepared_once() {
    let mut codec = ready(true);
    let take = |codec: &mut Postgres, kinds| {
        codec.receive(&messages(kinds), &mut Vec::new(), &mut Vec::new()).unwrap();
    };
    let [one, two] = [request(0, "select 1", &[]), request(1, "select $1", &["a"])];
    // A rejected statement is parsed again.
    assert_eq!(sent(&mut codec, &one), "PBES");
    take(&mut codec, "EZ");
    assert_eq!(sent(&mut codec, &one), "PBES");
    take(&mut codec, "12DCZ");
    assert_eq!(sent(&mut codec, &one), "BES");
    // An error after parsing does not discard the statement.
    take(&mut codec, "2EZ");
    assert_eq!(sent(&mut codec, &two), "PBES");
    take(&mut codec, "12CZ");
    assert_eq!(sent(&mut codec, &two), "BES");
    take(&mut codec, "2CZ");
    assert_eq!(sent(&mut codec, &one), "BES");
    take(&mut codec, "2CZ");
    // A different text of the same request is parsed each time and not stored.
    for _ in 0..2 {
        assert_eq!(sent(&mut codec, &request(0, "select 2", &[])), "PBES");
        take(&mut codec, "12CZ");
    }
    assert_eq!(codec.statements.len(), 2);
}

#[test]
fn responses_end_by_length_chunk_or_close() {
    for answer in ["TDDDCZ", "CZ", "IZ", "NTDCSTDCZ", "HddcCZ"] {
        assert_eq!(ends(&messages(answer), false), Ok(vec![WELL]), "{answer}");
        let unfinished = messages(&answer[..answer.len() - 1]);
        assert_eq!(ends(&unfinished, true), Ok(vec![]), "{answer}");
    }
    assert_eq!(ends(&messages("TDEZ"), false), Ok(vec![FAILED]));
    // The server shuts down: an error, and end of stream.
    assert_eq!(ends(&messages("E"), true), Ok(vec![FAILED]));
    assert_eq!(ends(&messages("E"), false), Ok(vec![]));
    let rows = [message(b'D', &vec![b'x'; 1 << 20]), messages("CZ")].concat();
    assert_eq!(ends(&rows, false), Ok(vec![WELL]));
}

#[test]
fn copy_from_stdin_receives_no_data() {
    for (arguments, expected) in [(&[][..], "f"), (&["a"][..], "fS")] {
        let (mut codec, mut out) = (ready(false), Vec::new());
        codec.send(&request(0, "copy t from stdin", arguments), 7, &mut Vec::new());
        codec.receive(&messages("G"), &mut out, &mut Vec::new()).unwrap();
        assert_eq!(kinds(&out), expected);
    }
}

#[test]
fn garbage_is_malformed() {
    for answer in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        b"-ERR unknown command\r\n".to_vec(),
        b"C\0\0\0\x03".to_vec(),
        messages("R"),
        messages("K"),
        messages("W"),
        messages("CZC"),
        messages("CZZ"),
    ] {
        let found = ends(&answer, false);
        // 'H' could start a message that never ends.
        let waits = answer[0] == b'H' && found == Ok(vec![]);
        assert!(waits || found == Err(Failure::Malformed), "{answer:?}: {found:?}");
    }
    assert_eq!(
        ends(&messages("Z"), false),
        Ok(vec![Completion { request_id: 7, failure: Some(Failure::Malformed) }])
    );
    let first = |bytes: &[u8]| fresh(false).receive(bytes, &mut Vec::new(), &mut Vec::new());
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"Z\0\0\0\x05I", b"R\0\xff\xff\xff"] {
        assert_eq!(first(bytes), Err(Failure::Malformed), "{bytes:?}");
    }
}

#[test]
fn shutdown_ends_the_session() {
    let mut codec = ready(false);
    codec.receive(&messages("NAS"), &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!((codec.capacity(), codec.is_ending()), (1, false));
    codec.receive(&messages("E"), &mut Vec::new(), &mut Vec::new()).unwrap();
    assert_eq!((codec.capacity(), codec.is_ending()), (0, true));
}

#[test]
fn noise_is_survived() {
    let kinds = b"RSKZNETDCI12GHAdcWn\0\0\0\0\0\0\0\0\0\x04\x05\x0a";
    noise(kinds, || Box::new(fresh(true)));
    noise(kinds, || {
        let mut codec = ready(false);
        codec.send(&request(0, "select $1", &["a"]), 7, &mut Vec::new());
        Box::new(codec)
    });
}
