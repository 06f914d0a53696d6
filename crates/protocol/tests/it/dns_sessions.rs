//! Sessions of DNS over TCP, and of datagrams, encoded from RFC 1035.

use expect_test::expect;

use crate::session::Session;

const A: u16 = 1;
const AAAA: u16 = 28;
const AXFR: u16 = 252;

/// Sessions for the fuzz corpus.
pub(crate) fn sessions() -> Vec<(&'static str, Session)> {
    vec![("tcp", tcp_session())]
}

/// Session over TCP.
fn tcp_session() -> Session {
    let two = [question(3, "a.example", A), question(4, "b.example", AAAA)].concat();
    Session::new("dns")
        .repeatable()
        .client(question(1, "WWW.Example.com", A))
        .server(response(1, "www.example.com", A, 0, 2))
        .client(question(2, "missing.example", 999))
        .server(response(2, "missing.example", 999, 3, 0))
        // Responses in another order.
        .client(two)
        .server([response(4, "b.example", AAAA, 0, 1), response(3, "a.example", A, 2, 0)].concat())
        // An update, and a transfer in two messages.
        .client(message(5, 0x2800, Some(("example", 6)), 0, &[]))
        .server(message(5, 0xa805, Some(("example", 6)), 0, &[]))
        .client(question(6, "example", AXFR))
        .server(response(6, "example", AXFR, 0, 300))
        .server(response(6, "example", AXFR, 0, 300))
}

#[test]
fn tcp() {
    tcp_session().check(expect![[r#"
        1-1 2-2 A Name "www.example.com" ok, 46/67 B, rows 2
        3-3 4-4 OTHER Name "missing.example" error NXDOMAIN, 46/35 B, rows 0
        5-5 6-6 AAAA Name "b.example" ok, 40/45 B, rows 1
        5-5 6-6 A Name "a.example" error SERVFAIL, 40/29 B, rows 0
        7-7 8-8 UPDATE Name "example" error REFUSED, 27/27 B, rows 0
        not measured: 1 Limit
    "#]]);
}

#[test]
fn datagrams() {
    Session::new("dns")
        // Sent again, and answered twice.
        .client(question(1, "a.example", A))
        .client(question(1, "a.example", A))
        .server(response(1, "a.example", A, 0, 1))
        .server(response(1, "a.example", A, 0, 1))
        // The same id for two questions, and an answer to none of them.
        .client(question(2, "b.example", A))
        .client(question(2, "b.example", AAAA))
        .server(response(2, "spoofed.example", AAAA, 0, 1))
        .server(response(2, "b.example", AAAA, 0, 1))
        .server(response(2, "b.example", A, 0, 1))
        // Not a question, and a question that the server does not understand.
        .client([0, 14].into_iter().chain([0xff; 14]).collect::<Vec<u8>>())
        .client(question(3, "with space.\u{1}", A))
        .server(message(3, 0x8001, None, 0, &[]))
        // Lost.
        .client(question(4, "unanswered.example", A))
        .check_whole(expect![[r#"
            1-1 3-3 A Name "a.example" ok, 40/45 B, rows 1
            6-6 8-8 AAAA Name "b.example" ok, 40/45 B, rows 1
            5-5 9-9 A Name "b.example" ok, 40/45 B, rows 1
            11-11 12-12 A Name "with\\032space.\\001" error FORMERR, 43/14 B, rows 0
            in flight: A "unanswered.example" since 13
            not measured: 1 ConnectionEnd
            unparsed: 16 ToServer
        "#]]);
}

#[test]
fn the_oldest_of_many_questions_is_given_up() {
    let mut session = Session::new("dns");
    for id in 0..1030 {
        session = session.client(question(id, "a", A));
    }
    for id in 0..1030 {
        session = session.server(response(id, "a", A, 0, 1));
    }
    let transcript = session.transcript_text();
    assert_eq!(transcript.matches(" A Name \"a\" ok").count(), 1024);
    assert!(transcript.ends_with("\nnot measured: 6 Limit\n"), "{transcript}");
}

fn question(id: u16, name: &str, kind: u16) -> Vec<u8> {
    // With EDNS.
    message(id, 0x0100, Some((name, kind)), 0, &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0])
}

/// A response with a code and answers, whose names are pointers to the question.
fn response(id: u16, name: &str, kind: u16, code: u16, answers: u16) -> Vec<u8> {
    let answer = [&[0xc0, 12][..], &kind.to_be_bytes(), &[0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1]];
    let answers_bytes = answer.concat().repeat(usize::from(answers));
    message(id, 0x8180 | code, Some((name, kind)), answers, &answers_bytes)
}

fn message(
    id: u16,
    flags: u16,
    question: Option<(&str, u16)>,
    answers: u16,
    records: &[u8],
) -> Vec<u8> {
    let mut message = Vec::new();
    for number in [id, flags, u16::from(question.is_some()), answers, 0, 0] {
        message.extend(number.to_be_bytes());
    }
    if let Some((name, kind)) = question {
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
    }
    message.extend(records);
    [&(message.len() as u16).to_be_bytes()[..], &message].concat()
}
