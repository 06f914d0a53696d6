//! Servers that violate their protocol: each run ends in time, accounts for each request, and has
//! the right failure.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use load::{
    ArrivalProcess, Failure, RequestTemplate, Requests, Schedule, Settings, Target, Template,
};

use crate::hostile::{CheckedRun, check, settings};
use crate::hostile_server::{ANSWER, HostileServer, ServerState, hold};

const MS: u64 = 1_000_000;

/// Sends one thing on connect, and another after the opening bytes of the client; then nothing.
fn says(first: Vec<u8>, then: Vec<u8>) -> HostileServer {
    HostileServer::start(move |mut socket, end| {
        let is_asked = |socket: &mut TcpStream| socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0);
        if is_asked(&mut socket) && socket.write_all(&first).is_ok() && is_asked(&mut socket) {
            let _ = socket.write_all(&then);
            hold(&socket, end);
        }
    })
}

/// A few requests to a server of this protocol.
fn to(server: &HostileServer, scheme: &str) -> Settings {
    let (target, _) = Target::parse(&format!("{scheme}://{}", server.address)).unwrap();
    let request = RequestTemplate {
        method: "POST".to_owned(),
        path: Template::text("/a.B/C"),
        body: Template::text("select 1"),
        ..RequestTemplate::default()
    };
    Settings {
        target: Some(target),
        requests: Requests::single(request),
        schedule: Schedule::constant(40.0, 200 * MS, ArrivalProcess::Constant),
        connections: 0,
        ..settings(server.address)
    }
}

/// All fail in one of these ways.
#[track_caller]
fn fails(server: &HostileServer, scheme: &str, kinds: &[Failure]) {
    let usual = to(server, scheme);
    // Responses need the time that this machine takes.
    let times_out = kinds.contains(&Failure::TimedOut);
    let timeout_ns = if times_out { 300 * MS } else { usual.timeout_ns };
    let settings = Settings { timeout_ns, ..usual };
    let CheckedRun { run, completed, failed } = check(&settings, kinds, &mut ());
    assert_eq!((completed, run.tally.unfinished), (0, 0), "{scheme}");
    assert_eq!(failed + run.tally.not_sent, run.tally.scheduled, "{scheme}");
}

/// All complete, except for stalls of the machine. Returns connections opened and their peak.
#[track_caller]
fn completes(settings: &Settings) -> (u64, u64) {
    let CheckedRun { run, completed, .. } = check(settings, &[], &mut ());
    assert_eq!(completed + run.tally.not_sent, run.tally.scheduled);
    (run.tally.connections_opened, completed)
}

/// Repeats the same bytes, and reads everything.
fn floods(first: &'static [u8], flood: Vec<u8>) -> HostileServer {
    HostileServer::start(move |mut socket, end| {
        if socket.read(&mut [0; 4096]).is_err() || socket.write_all(first).is_err() {
            return;
        }
        let mut listener = socket.try_clone().unwrap();
        thread::spawn(move || while listener.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {});
        while socket.write_all(&flood).is_ok() && !end.wait_for(Duration::from_millis(5)) {}
    })
}

fn http1(answer: Vec<u8>) -> HostileServer {
    HostileServer::start(move |mut socket, end: &ServerState| {
        while socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
            if socket.write_all(&answer).is_err() {
                return;
            }
        }
        hold(&socket, end);
    })
}

#[test]
fn http1_invalid_chunks() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (size, kind) in [
        ("ffffffffffffffff\r\n", Failure::Malformed),
        ("10000000000000000\r\n", Failure::Malformed),
        ("-1\r\n", Failure::Malformed),
        ("\r\n", Failure::Malformed),
        ("fffffffffffffff0\r\nabc", Failure::TimedOut),
        ("1;a=b", Failure::TimedOut),
    ] {
        let server = http1(format!("{head}{size}").into_bytes());
        fails(&server, "http", &[kind]);
    }
}

#[test]
fn http1_endless_interim_responses() {
    let server = floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10));
    fails(&server, "http", &[Failure::TimedOut]);
}

/// The second response is unsolicited: the connection is closed, and no request receives it.
#[test]
fn http1_unsolicited_response() {
    let server = http1(ANSWER.repeat(2));
    let (opened, completed) = completes(&to(&server, "http"));
    assert!(opened >= completed, "{opened} of {completed}");
}

#[test]
fn http1_connection_close() {
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let server = HostileServer::start(move |mut socket, _| {
        if socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
            let _ = socket.write_all(answer);
            // So that the response is not lost to a reset.
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    let (opened, completed) = completes(&to(&server, "http"));
    assert!(opened >= completed, "{opened} of {completed}");
}

fn frame(kind: u8, flags: u8, stream: u32, contents: &[u8]) -> Vec<u8> {
    let length = (contents.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), contents].concat()
}

#[test]
fn http2_protocol_violations() {
    let settings = frame(4, 0, 0, b"");
    // More streams than there are requests: on a slow machine all are sent on one connection.
    let resets: Vec<u8> =
        (1..40).step_by(2).flat_map(|stream| frame(3, 0, stream, &[0, 0, 0, 8])).collect();
    let endless = [frame(1, 0, 1, &[0x88]), frame(9, 0, 1, &[0; 200]).repeat(2_000)].concat();
    let broken = [Failure::Malformed];
    let ended = [Failure::Reset, Failure::Malformed, Failure::Closed];
    let cases: [(&str, Vec<u8>, &[Failure]); 9] = [
        ("says goodbye at once", frame(7, 0, 0, &[0; 8]), &ended),
        ("resets each", resets, &ended),
        ("windows overflow", frame(8, 0, 0, &[0x7f, 255, 255, 255]).repeat(2), &broken),
        // The response was complete: h2 tolerates it.
        (
            "a stream's window overflows",
            frame(8, 0, 1, &[0x7f, 255, 255, 255]).repeat(2),
            &[Failure::TimedOut],
        ),
        ("a head without end", endless, &broken),
        ("an answer to nobody", frame(1, 5, 99, &[0x88]), &broken),
        ("pushes", frame(5, 4, 1, &[0, 0, 0, 2, 0x82]), &broken),
        ("no frame", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), &broken),
        ("data before a head", frame(0, 1, 1, b"a"), &ended),
    ];
    for (what, then, kinds) in cases {
        println!("{what}");
        let server = says(settings.clone(), then);
        fails(&server, "h2c", kinds);
    }
}

#[test]
fn http2_zero_windows_and_streams() {
    // No streams, or no flow control window.
    for setting in [[0, 3, 0, 0, 0, 0], [0, 4, 0, 0, 0, 0]] {
        let server = says(frame(4, 0, 0, &setting), Vec::new());
        fails(&server, "h2c", &[Failure::TimedOut]);
    }
}

#[test]
fn http2_floods() {
    for flood in [
        frame(4, 0, 0, b""),
        frame(6, 0, 0, &[0; 8]),
        frame(8, 0, 0, &[0, 0, 0, 1]),
        frame(2, 0, 1, &[0; 5]),
        frame(0x77, 0, 0, &[0; 20]),
    ] {
        let server = floods(&[0, 0, 0, 4, 0, 0, 0, 0, 0], flood.repeat(20));
        fails(&server, "h2c", &[Failure::TimedOut]);
    }
}

#[test]
fn grpc_status_without_message() {
    let head = |status: &[u8]| {
        [&[0x88, 0, 11][..], b"grpc-status", &[status.len() as u8], status].concat()
    };
    for (status, kind) in [(&b"0"[..], Failure::Malformed), (b"14", Failure::Status)] {
        let answers: Vec<u8> =
            (0..40).flat_map(|number| frame(1, 5, 2 * number + 1, &head(status))).collect();
        // Responses to requests that were not sent yet end the connection.
        let server = says(frame(4, 0, 0, b""), answers);
        fails(&server, "grpc", &[kind, Failure::Malformed]);
    }
}

fn message(kind: u8, contents: &[u8]) -> Vec<u8> {
    [&[kind][..], &(contents.len() as u32 + 4).to_be_bytes(), contents].concat()
}

#[test]
fn postgres_protocol_violations() {
    let login = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let row = message(b'D', &[0; 100]);
    let wrong = message(b'E', b"SERROR\0\0");
    let copy = [message(b'G', b"\0\0\0"), wrong.clone(), message(b'Z', b"I")].concat();
    let cases: [(&str, Vec<u8>, &[Failure]); 7] = [
        ("an error amid rows", [row.clone(), wrong, row].concat(), &[Failure::TimedOut]),
        ("a row of 2 GB", b"D\x7f\xff\xff\xff".to_vec(), &[Failure::TimedOut]),
        ("a length below itself", b"D\0\0\0\x03".to_vec(), &[Failure::Malformed]),
        ("ready, and no answer", message(b'Z', b"I"), &[Failure::Malformed, Failure::TimedOut]),
        ("it wants rows", copy, &[Failure::Status, Failure::TimedOut]),
        ("asks again who it is", message(b'R', &[0; 4]), &[Failure::Malformed]),
        ("nothing known", message(b'?', b""), &[Failure::Malformed]),
    ];
    for (what, then, kinds) in cases {
        println!("{what}");
        let server = says(login.clone(), then);
        fails(&server, "postgres", kinds);
    }
}

#[test]
fn postgres_floods() {
    const LOGIN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";
    let server = floods(LOGIN, message(b'N', b"SNOTICE\0\0").repeat(20));
    fails(&server, "postgres", &[Failure::TimedOut]);
    // Requests the password again and again.
    let server = floods(b"", message(b'R', &[0, 0, 0, 3]).repeat(20));
    let settings = to(&server, "postgres");
    let (target, _) = Target::parse(&format!("postgres://a:b@{}", server.address)).unwrap();
    let settings = Settings { target: Some(target), timeout_ns: 300 * MS, ..settings };
    let found = check(&settings, &[Failure::TimedOut], &mut ());
    assert_eq!(found.completed, 0);
}

#[test]
fn redis_protocol_violations() {
    let redis = |answer: &[u8]| http1(answer.to_vec());
    for (answer, kind) in [
        (&b"$-2\r\n"[..], Failure::Malformed),
        (b"*99999999999999999999\r\n", Failure::Malformed),
        (b"*18446744073709551615\r\n:1\r\n", Failure::Malformed),
        (b"*9223372036854775807\r\n:1\r\n", Failure::TimedOut),
        (b"$9223372036854775807\r\nabc", Failure::TimedOut),
        (b">1\r\n+a\r\n", Failure::TimedOut),
        (b"*2\r\n:1\r\n-ERR a\r\n", Failure::Status),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Failure::Malformed),
    ] {
        println!("{}", answer.escape_ascii());
        fails(&redis(answer), "redis", &[kind]);
    }
    let server = redis(&[b"*1\r\n".repeat(10_000), b":1\r\n".to_vec()].concat());
    completes(&to(&server, "redis"));
    // More replies than requests.
    completes(&to(&redis(b"+OK\r\n+OK\r\n"), "redis"));
    let server = floods(b"", b">1\r\n+a\r\n".repeat(20));
    fails(&server, "redis", &[Failure::TimedOut]);
}
