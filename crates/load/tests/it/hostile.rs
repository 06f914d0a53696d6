//! HostileServer servers: each run ends, and each request is accounted for with the right failure.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use load::{
    ArrivalProcess, Failure, Observer, RequestTemplate, Requests, RunResult, Schedule, Settings,
    StubProtocol, StubServer, Target, Template,
};
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::fixture;
use crate::hostile_server::{ANSWER, HostileServer, hold, read_head, reset};
use crate::servers::Dir;

const MS: u64 = 1_000_000;
const RATE: f64 = 200.0;
const LENGTH_NS: u64 = 1_000 * MS;

/// Nothing times out, however slow the machine is.
pub(crate) fn settings(address: SocketAddr) -> Settings {
    let schedule = Schedule::constant(RATE, LENGTH_NS, ArrivalProcess::Constant);
    Settings {
        connections: 4,
        max_connections: 1_000,
        timeout_ns: 60_000 * MS,
        grace_period_ns: 60_000 * MS,
        ..fixture::settings(&format!("http://{address}"), schedule)
    }
}

/// For servers with which requests can only time out.
pub(crate) fn impatient(address: SocketAddr) -> Settings {
    Settings { timeout_ns: 300 * MS, ..settings(address) }
}

/// Result of a run, corrected for stalls of the machine.
pub(crate) struct CheckedRun {
    pub(crate) run: RunResult,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

/// Runs it and checks the accounting. Only these failures may occur.
#[track_caller]
pub(crate) fn check(
    settings: &Settings,
    kinds: &[Failure],
    observer: &mut dyn Observer,
) -> CheckedRun {
    let run = load::run(settings, &Arc::new(AtomicBool::new(false)), observer).unwrap();
    let tally = &run.tally;
    assert_eq!(tally.scheduled, settings.schedule.arrivals().count() as u64);
    assert_eq!(tally.accounted(), tally.scheduled, "{tally:?}");
    assert_eq!(tally.response.count(), tally.completed + tally.unfinished);
    assert_eq!(tally.failure.count(), tally.failures());
    for kind in Failure::ALL.into_iter().filter(|kind| !kinds.contains(kind)) {
        assert_eq!(tally.failed[kind as usize], 0, "{kind}: {:?}", tally.failed);
    }
    assert!(
        !run.invalid_reasons
            .iter()
            .any(|one| matches!(one, load::InvalidReason::CountMismatch { .. }))
    );
    let (completed, failed) = (tally.completed + tally.observed_late, tally.failures());
    CheckedRun { completed, failed, run }
}

/// All sent requests failed in one of these ways.
#[track_caller]
fn all_fail(settings: &Settings, kinds: &[Failure]) -> RunResult {
    let CheckedRun { run, completed, failed } = check(settings, kinds, &mut ());
    assert_eq!((completed, run.tally.unfinished), (0, 0));
    assert_eq!(failed + run.tally.not_sent, run.tally.scheduled);
    run
}

/// Nothing completes: requests time out with a short timeout, and are unfinished and count with
/// their age with a long one.
#[track_caller]
fn never_ends(settings: Settings) {
    let settings = Settings { timeout_ns: 300 * MS, ..settings };
    let run = all_fail(&settings, &[Failure::TimedOut]);
    let least = run.tally.failure.min().unwrap().lower;
    assert!(least >= settings.timeout_ns as f64 * 0.97, "{least}");
    let settings = Settings { timeout_ns: 60_000 * MS, grace_period_ns: 250 * MS, ..settings };
    let run = check(&settings, &[], &mut ()).run;
    assert_eq!(run.tally.unfinished + run.tally.not_sent, run.tally.scheduled);
    // The first was due at the start, the last just before the end of the schedule: each is at
    // least as old as the grace period.
    let (least, most) = (run.tally.response.min().unwrap(), run.tally.response.max().unwrap());
    assert!(least.upper >= settings.grace_period_ns as f64, "{least:?}");
    if run.stalls.is_empty() {
        let oldest_ns = settings.schedule.duration_ns() + settings.grace_period_ns;
        assert!(most.upper >= oldest_ns as f64, "{most:?}");
    }
    assert_eq!(run.per_second[&0].count(), run.tally.unfinished);
}

#[test]
fn stalled() {
    let server = HostileServer::start(|socket, end| hold(&socket, end));
    never_ends(settings(server.address));
}

/// All is sent, and the grace period runs.
#[test]
fn other_connections_continue() {
    let server = HostileServer::start(|socket, end| hold(&socket, end));
    let settings = Settings {
        schedule: Schedule::constant(50.0, 100 * MS, ArrivalProcess::Constant),
        timeout_ns: 60_000 * MS,
        grace_period_ns: 1_000 * MS,
        ..settings(server.address)
    };
    let run = check(&settings, &[], &mut ()).run;
    assert_eq!(run.tally.unfinished + run.tally.not_sent, 5);
}

#[test]
fn one_byte_per_second() {
    let server = HostileServer::start(|mut socket, end| {
        if read_head(&mut socket) {
            for byte in ANSWER {
                if socket.write_all(&[*byte]).is_err() || end.wait_for(Duration::from_secs(1)) {
                    return;
                }
            }
        }
    });
    never_ends(settings(server.address));
}

/// The request exceeds the socket buffers, and the server does not read it.
#[test]
fn never_reads() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    socket.listen(128).unwrap();
    let server = HostileServer::on(socket.into(), |socket, end| hold(&socket, end));
    let request = RequestTemplate {
        name: "a".to_owned(),
        method: "POST".to_owned(),
        path: Template::text("/"),
        body: Template::text("x".repeat(4 << 20)),
        ..RequestTemplate::default()
    };
    never_ends(Settings {
        requests: Requests::single(request),
        schedule: Schedule::constant(20.0, LENGTH_NS, ArrivalProcess::Constant),
        ..settings(server.address)
    });
}

/// A listening socket with a full backlog.
#[test]
fn black_hole() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let wait = Duration::from_millis(200);
    let full: Vec<TcpStream> =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, wait).ok()).take(64).collect();
    assert!(full.len() < 64);
    never_ends(Settings { connections: 0, ..settings(address) });
    // Also with initial connections.
    let run = all_fail(&impatient(address), &[Failure::TimedOut]);
    few_are_made(&run);
}

/// Connects that take longer than a second do not block others: the limit of concurrent connects
/// per second begun, plus the initial ones.
#[track_caller]
fn few_are_made(run: &RunResult) {
    let most = run.duration_ns.div_ceil(1_000 * MS) * 64 + 4;
    assert!(run.tally.connections_opened <= most, "{} of {most}", run.tally.connections_opened);
}

/// Connection refused: the port stays bound, so that no other process can use it.
#[test]
fn absent() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let run = all_fail(&settings(address), &[Failure::Refused]);
    let words = run.first_errors[Failure::Refused as usize].as_deref();
    assert!(words.unwrap().contains("refused"), "{words:?}");
}

#[test]
fn resets_at_once() {
    let server = HostileServer::start(|socket, _| reset(socket));
    let run = all_fail(&settings(server.address), &[Failure::Reset]);
    // No connect storm: one per request, and the initial ones.
    assert!(
        run.tally.connections_opened <= run.tally.scheduled + 4,
        "{}",
        run.tally.connections_opened
    );
}

#[test]
fn accepts_and_closes() {
    let server = HostileServer::start(|socket, _| drop(socket));
    let run = all_fail(&settings(server.address), &[Failure::Reset, Failure::Closed]);
    assert!(
        run.tally.connections_opened <= run.tally.scheduled + 4,
        "{}",
        run.tally.connections_opened
    );
}

#[test]
fn resets_in_the_middle_of_a_response() {
    let server = HostileServer::start(|mut socket, _| {
        if read_head(&mut socket) && socket.write_all(&ANSWER[..ANSWER.len() - 2]).is_ok() {
            reset(socket);
        }
    });
    all_fail(&settings(server.address), &[Failure::Reset]);
}

#[test]
fn closes_in_the_middle_of_a_response() {
    let server = HostileServer::start(|mut socket, _| {
        if read_head(&mut socket) {
            let _ = socket.write_all(&ANSWER[..ANSWER.len() - 2]);
        }
    });
    all_fail(&settings(server.address), &[Failure::Closed]);
}

#[test]
fn half_closes_before_the_response() {
    let server = HostileServer::start(|mut socket, end| {
        if read_head(&mut socket) {
            let _ = socket.shutdown(Shutdown::Write);
            hold(&socket, end);
        }
    });
    all_fail(&settings(server.address), &[Failure::Closed]);
}

/// The response and the end of the connection arrive in one segment, unannounced. No request is
/// sent on a connection that is known to be closed, so none fails. In two segments, a request could
/// be sent between them.
#[test]
fn closes_after_each_response() {
    let server = HostileServer::start(|mut socket, _| {
        if read_head(&mut socket) {
            // Linux holds the response back until the FIN, which goes out in the same segment.
            SockRef::from(&socket).set_tcp_cork(true).unwrap();
            let _ = socket.write_all(ANSWER);
            let _ = socket.shutdown(Shutdown::Write);
            // The client has read both when it closes.
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    // 16 at a time, so that requests wait for a connection that closes.
    let due = (0..200).map(|number| number / 16 * 80 * MS);
    let settings = Settings {
        schedule: Schedule::Replay(due.collect()),
        timeout_ns: 60_000 * MS,
        ..settings(server.address)
    };
    let found = check(&settings, &[], &mut ());
    assert_eq!(found.completed + found.run.tally.not_sent, found.run.tally.scheduled);
}

#[test]
fn garbage() {
    let never_a_head = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n".repeat(20_000)].concat();
    let chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello";
    let all: [&[u8]; 6] = [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        &[0, 255, 13, 10, 13, 10, 128],
        &never_a_head,
        chunk,
        two_lengths,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ];
    for bytes in all {
        let bytes = bytes.to_vec();
        let server = HostileServer::start(move |mut socket, end| {
            if read_head(&mut socket) && socket.write_all(&bytes).is_ok() {
                hold(&socket, end);
            }
        });
        let settings = Settings {
            schedule: Schedule::constant(RATE, 200 * MS, ArrivalProcess::Constant),
            ..settings(server.address)
        };
        all_fail(&settings, &[Failure::Malformed]);
    }
}

/// Before any request.
#[test]
fn garbage_at_once() {
    let server = HostileServer::start(|mut socket, end| {
        if socket.write_all(b"220 mail.example.org ESMTP\r\n").is_ok() {
            hold(&socket, end);
        }
    });
    let run = all_fail(&settings(server.address), &[Failure::Malformed]);
    assert!(
        run.tally.connections_opened <= run.tally.scheduled + 4,
        "{}",
        run.tally.connections_opened
    );
}

/// Endless responses use no memory.
#[test]
fn endless_response() {
    let server = HostileServer::start(|mut socket, end| {
        if read_head(&mut socket) && socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok() {
            let bytes = [b'x'; 1_024];
            while socket.write_all(&bytes).is_ok() && !end.wait_for(Duration::from_millis(5)) {}
        }
    });
    all_fail(&impatient(server.address), &[Failure::TimedOut]);
}

/// Drops a stub after this many responses, and records when, from the start of the run.
struct StoppingObserver {
    stub: Option<StubServer>,
    answers: u64,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Observer for StoppingObserver {
    fn run_started(&mut self, start_ns: u64, _: i64) {
        let (stub, answers, is_over) = (self.stub.take(), self.answers, self.is_over.clone());
        self.thread = Some(thread::spawn(move || {
            let is_enough = |stub: &StubServer| stub.responses() >= answers;
            while !stub.as_ref().is_some_and(is_enough) && !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(stub);
            clock::now() - start_ns
        }));
    }
}

#[test]
fn disappears_during_the_run() {
    const ANSWERS: u64 = 90;
    let stub = StubServer::start(StubProtocol::Http1, 5 * MS).unwrap();
    let settings = settings(stub.address());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut stopping = StoppingObserver {
        stub: Some(stub),
        answers: ANSWERS,
        is_over: is_over.clone(),
        thread: None,
    };
    let kinds = [Failure::Refused, Failure::Closed, Failure::Reset];
    let found = check(&settings, &kinds, &mut stopping);
    is_over.store(true, Ordering::Relaxed);
    let gone_ns = stopping.thread.unwrap().join().unwrap();
    let tally = &found.run.tally;
    assert_eq!(tally.unfinished, 0);
    let after = settings.schedule.arrivals().filter(|due| *due > gone_ns).count() as u64;
    if after == 0 {
        return println!("skipped: the generator not_sent too many for {ANSWERS} to be answered");
    }
    // The last responses may be lost with their connections, one on each.
    assert!(found.completed + tally.connections_opened >= ANSWERS, "{tally:?}");
    assert!(found.completed <= tally.scheduled - after, "{tally:?}");
    // On each open connection one may fail otherwise; all others are refused.
    let refused = tally.failed[Failure::Refused as usize];
    assert!(refused + tally.not_sent + tally.connections_peak >= after, "{tally:?}");
}

/// TLS settings for a server without a trusted certificate.
fn in_tls(address: SocketAddr, trusted: &Dir) -> Settings {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let path = trusted.path(&address.port().to_string());
    std::fs::write(&path, pem).unwrap();
    let (target, _) = Target::parse(&format!("https://{address}")).unwrap();
    let tls = net::tls::ClientTls { ca: Some(path), ..Default::default() };
    Settings { target: Some(target), tls, ..settings(address) }
}

/// A connection that ends before it is ready fails the request that it was opened for.
#[test]
fn tls_handshake_never_ends() {
    let trusted = Dir::new("trusted");
    // Reads the first bytes of the client, and closes.
    let server = HostileServer::start(|mut socket, _| {
        let _ = socket.read(&mut [0; 4096]);
    });
    let kinds = [Failure::Closed, Failure::Reset];
    let run = all_fail(&in_tls(server.address, &trusted), &kinds);
    assert!(
        run.tally.connections_opened <= run.tally.scheduled + 4,
        "{}",
        run.tally.connections_opened
    );
    let server = HostileServer::start(|mut socket, end| {
        let _ = socket.read(&mut [0; 4096]);
        if socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_ok() {
            hold(&socket, end);
        }
    });
    let run = all_fail(&in_tls(server.address, &trusted), &[Failure::Tls]);
    assert!(
        run.tally.connections_opened <= run.tally.scheduled + 4,
        "{}",
        run.tally.connections_opened
    );
}

/// PostgreSQL requests TLS in plain text.
#[test]
fn tls_is_requested_in_plain_text() {
    let answers: [(&[u8], Failure); 4] = [
        (b"N", Failure::Tls),
        (b"E", Failure::Malformed),
        // Bytes after the response were sent in plain text, possibly by an attacker.
        (b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", Failure::Tls),
        (b"", Failure::Closed),
    ];
    for (answer, kind) in answers {
        let server = HostileServer::start(move |mut socket, end| {
            let mut asked = [0; 8];
            let is_asked = socket.read_exact(&mut asked).is_ok();
            if is_asked && asked == [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f] && !answer.is_empty() {
                let _ = socket.write_all(answer);
                hold(&socket, end);
            }
        });
        let written = format!("postgres://{}/?sslmode=require", server.address);
        let (target, _) = Target::parse(&written).unwrap();
        let run = all_fail(&Settings { target: Some(target), ..settings(server.address) }, &[kind]);
        let words = run.first_errors[kind as usize].as_deref().unwrap_or_default();
        assert!(answer != b"N" || words == "the server does not support TLS", "{words}");
    }
}

/// Connections in a handshake are not opened again and again.
#[test]
fn tls_request_is_not_answered() {
    let server = HostileServer::start(|socket, end| hold(&socket, end));
    let trusted = Dir::new("trusted");
    let settings = Settings { timeout_ns: 300 * MS, ..in_tls(server.address, &trusted) };
    few_are_made(&all_fail(&settings, &[Failure::TimedOut]));
}

/// The login succeeds, and the server accepts queries.
const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// Connections that never get ready do not block others.
#[test]
fn some_connections_never_get_ready() {
    const HANGING: usize = 70;
    let number = AtomicUsize::new(0);
    let server = HostileServer::start(move |mut socket, end| {
        let mut buffer = [0; 4096];
        if number.fetch_add(1, Ordering::Relaxed) < HANGING {
            return hold(&socket, end);
        }
        let _ = socket.read(&mut buffer);
        let mut answer = LET_IN;
        while socket.write_all(answer).is_ok() && socket.read(&mut buffer).is_ok_and(|n| n > 0) {
            answer = b"C\0\0\0\x04Z\0\0\0\x05I";
        }
    });
    let (target, _) = Target::parse(&format!("postgres://{}", server.address)).unwrap();
    // A machine that stalls opens fewer connections in the same time.
    let mut opened = 0;
    let has_completed = [2_000, 20_000].into_iter().any(|duration_ms| {
        let settings = Settings {
            target: Some(target.clone()),
            connections: 0,
            schedule: Schedule::constant(RATE, duration_ms * MS, ArrivalProcess::Constant),
            ..impatient(server.address)
        };
        let found = check(&settings, &[Failure::TimedOut], &mut ());
        opened += found.run.tally.connections_opened;
        found.completed > 0
    });
    assert!(has_completed, "{opened} connections opened");
    assert!(opened > HANGING as u64, "{opened}");
}

/// Sends messages that require responses, and reads none.
fn asks_without_end(mut stream: impl std::io::Read + std::io::Write) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    // Authentication, and the query.
    for answer in [LET_IN, b""] {
        if stream.read(&mut buffer)? == 0 {
            return Ok(());
        }
        stream.write_all(answer)?;
    }
    // Below the limit of unsent bytes: it ends by itself, but only after the client should have
    // closed.
    let asks = b"G\0\0\0\x04".repeat(2_000);
    (0..2_000).try_for_each(|_| stream.write_all(&asks))
}

/// Unsent bytes are limited, also with TLS.
#[test]
fn unbounded_client_responses_are_limited() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let dir = Dir::new("answers");
    let (certificate, private) = (dir.path("certificate"), dir.path("key"));
    std::fs::write(&certificate, key.cert.pem()).unwrap();
    std::fs::write(&private, key.signing_key.serialize_pem()).unwrap();
    let tls = net::tls::ServerTls { certificate, key: private, client_ca: None };
    let config = Arc::new(tls.config().unwrap());
    for mode in ["disable", "require"] {
        let config = config.clone();
        let server = HostileServer::start(move |mut socket, end| {
            let asked = match mode {
                "disable" => asks_without_end(&socket),
                _ => {
                    let mut request = [0; 8];
                    let is_asked = socket.read_exact(&mut request).is_ok();
                    assert!(is_asked && socket.write_all(b"S").is_ok());
                    let server = rustls::ServerConnection::new(config.clone()).unwrap();
                    asks_without_end(rustls::StreamOwned::new(server, &socket))
                }
            };
            if asked.is_ok() {
                hold(&socket, end);
            }
        });
        let written = format!("postgres://{}/?sslmode={mode}", server.address);
        let (target, _) = Target::parse(&written).unwrap();
        let settings = Settings {
            target: Some(target),
            connections: 1,
            schedule: Schedule::constant(10.0, 100 * MS, ArrivalProcess::Constant),
            timeout_ns: 30_000 * MS,
            grace_period_ns: 30_000 * MS,
            ..settings(server.address)
        };
        let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap();
        let tally = &run.tally;
        let malformed = tally.failed[Failure::Malformed as usize];
        assert_eq!((malformed + tally.not_sent, tally.scheduled), (1, 1), "{mode}: {tally:?}");
        let words = run.first_errors[Failure::Malformed as usize].as_deref();
        assert!(malformed == 0 || words.unwrap().contains("does not read"), "{mode}: {words:?}");
    }
}

/// Reports contain the server's message, without a password that it repeats.
#[test]
fn failures_have_details() {
    let refuses = |text: &'static [u8]| {
        HostileServer::start(move |mut socket, end| {
            if socket.read(&mut [0; 4096]).is_ok() && socket.write_all(text).is_ok() {
                hold(&socket, end);
            }
        })
    };
    let fatal = b"E\0\0\0\x29SFATAL\0C28P01\0Mno entry for hunter2\0\0";
    let busy = b"HTTP/1.1 503 Too Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (scheme, text, kind, said) in [
        ("postgres://me:hunter2@", &fatal[..], Failure::Status, "FATAL: no entry for *** (28P01)"),
        ("redis://:hunter2@", b"-ERR no AUTH hunter2\r\n", Failure::Status, "ERR no AUTH ***"),
        ("http://", busy, Failure::Status, "503 Too Busy"),
        ("http://", b"SSH-2.0-x\r\n", Failure::Malformed, "received \"SSH-2.0-x\\r\\n\""),
    ] {
        let server = refuses(text);
        let (target, _) = Target::parse(&format!("{scheme}{}", server.address)).unwrap();
        let run = all_fail(&Settings { target: Some(target), ..settings(server.address) }, &[kind]);
        assert_eq!(run.first_errors[kind as usize].as_deref(), Some(said), "{scheme}");
        assert_eq!(run.first_errors.iter().flatten().count(), 1, "{:?}", run.first_errors);
    }
}
