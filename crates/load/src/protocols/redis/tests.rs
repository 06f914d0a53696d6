//! Redis, reply by reply.

use super::*;
use crate::protocols::tests::noise;

fn request(arguments: &[&str], body: &str) -> RenderedRequest {
    let arguments = arguments.iter().map(|one| one.as_bytes().to_vec()).collect();
    RenderedRequest { arguments, body: body.as_bytes().to_vec(), ..RenderedRequest::default() }
}

fn said(arguments: &[&str], body: &str) -> String {
    let (mut codec, mut out) = (Redis::new(None, None, 0), Vec::new());
    codec.open(&mut out);
    assert!(out.is_empty() && codec.capacity() == 1);
    codec.send(&request(arguments, body), 7, &mut out);
    assert_eq!(codec.capacity(), 0);
    String::from_utf8(out).unwrap()
}

/// Completions of a reply that arrives whole, and byte by byte.
#[track_caller]
fn ends(answer: &str) -> Result<Vec<Completion>, Failure> {
    let take = |pieces: Vec<&[u8]>| {
        let (mut codec, mut completions) = (Redis::new(None, None, 0), Vec::new());
        codec.send(&request(&[], ""), 7, &mut Vec::new());
        for piece in pieces {
            codec.receive(piece, &mut Vec::new(), &mut completions)?;
        }
        Ok(completions)
    };
    let once = take(vec![answer.as_bytes()]);
    assert_eq!(once, take(answer.as_bytes().chunks(1).collect()), "{answer:?}");
    once
}

const WELL: Completion = Completion { request_id: 7, failure: None };
const FAILED: Completion = Completion { request_id: 7, failure: Some(Failure::Status) };

#[test]
fn urls_have_credentials_and_a_database() {
    let read = |url: &str| {
        let (url, _) = TargetUrl::parse(url, &[ROW]).unwrap();
        RedisProtocol::read(&url).unwrap()
    };
    let protocol = |user: Option<&str>, password: Option<&str>, database| RedisProtocol {
        user: user.map(str::to_owned),
        password: password.map(Secret::new),
        database,
    };
    assert_eq!(read("redis://h"), protocol(None, None, 0));
    assert_eq!(read("rediss://:p@[::1]:1/3"), protocol(None, Some("p"), 3));
    assert_eq!(read("redis://u:p@h"), protocol(Some("u"), Some("p"), 0));
}

#[test]
fn commands_are_encoded() {
    assert_eq!(said(&["GET", "key:1"], ""), "*2\r\n$3\r\nGET\r\n$5\r\nkey:1\r\n");
    assert_eq!(said(&["SET", "a", ""], "x"), "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n");
    assert_eq!(said(&[], " INCR  a\n"), "*2\r\n$4\r\nINCR\r\n$1\r\na\r\n");
    assert_eq!(said(&[], ""), "*1\r\n$4\r\nPING\r\n");
}

#[test]
fn replies_complete_the_request() {
    for (answer, expected) in [
        ("+PONG\r\n", WELL),
        (">2\r\n+invalidate\r\n*1\r\n+a\r\n:1\r\n", WELL),
        ("-ERR no\r\n", FAILED),
        ("*2\r\n+a\r\n-ERR b\r\n", FAILED),
    ] {
        assert_eq!(ends(answer), Ok(vec![expected]), "{answer:?}");
        // Nothing completes before the last byte.
        assert_eq!(ends(&answer[..answer.len() - 1]), Ok(vec![]), "{answer:?}");
    }
}

#[test]
fn garbage_is_malformed() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n", "$3\r\nabcd\r\n", "+PONG\r\n+PONG\r\n"] {
        assert_eq!(ends(answer), Err(Failure::Malformed), "{answer:?}");
    }
}

#[test]
fn push_messages_are_no_replies() {
    let (mut codec, mut completions) = (Redis::new(None, None, 0), Vec::new());
    let mut take = |bytes: &[u8]| codec.receive(bytes, &mut Vec::new(), &mut completions);
    assert_eq!(take(b">1\r\n+a\r\n"), Ok(()));
    assert_eq!(take(b"+a\r\n"), Err(Failure::Malformed));
    assert!(completions.is_empty());
}

#[test]
fn authentication_comes_first() {
    let secret = Secret::new("secret");
    let mut codec = Redis::new(Some("me"), Some(&secret), 3);
    let (mut out, mut completions) = (Vec::new(), Vec::new());
    codec.open(&mut out);
    let expected =
        "*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\nsecret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    codec.receive(b"+OK\r\n", &mut Vec::new(), &mut completions).unwrap();
    assert_eq!(codec.capacity(), 0);
    codec.receive(b"+OK\r\n", &mut Vec::new(), &mut completions).unwrap();
    assert_eq!(codec.capacity(), 1);

    let mut codec = Redis::new(None, Some(&secret), 0);
    let refused = codec.receive(b"-WRONGPASS no\r\n", &mut Vec::new(), &mut completions);
    assert_eq!(refused, Err(Failure::Status));
    assert!(completions.is_empty());
}

#[test]
fn noise_is_survived() {
    noise(b"+-:$*%|>_\r\n0123456789", || {
        let mut codec = Redis::new(None, None, 0);
        codec.send(&request(&[], ""), 7, &mut Vec::new());
        Box::new(codec)
    });
}
