//! Servers that do everything wrong: each run ends, with every request accounted for under the right kind.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use load::{
    Answers, Failure, Observer, Request, Requests, Run, Schedule, Settings, Spacing, Stub, Target,
    Template,
};

use crate::plain;
use crate::servers::Folder;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};

const MS: u64 = 1_000_000;
const RATE: f64 = 200.0;
const LENGTH_NS: u64 = 1_000 * MS;
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The end of a server, which its threads wait for.
#[derive(Default)]
pub(crate) struct End {
    has_come: Mutex<bool>,
    comes: Condvar,
}

impl End {
    pub(crate) fn has_come(&self) -> bool {
        self.wait_for(Duration::ZERO)
    }

    pub(crate) fn wait(&self) {
        self.wait_for(Duration::MAX);
    }

    /// Whether it has come by then.
    pub(crate) fn wait_for(&self, length: Duration) -> bool {
        let guard = self.has_come.lock().unwrap();
        if length == Duration::MAX {
            return *self.comes.wait_while(guard, |has_come| !*has_come).unwrap();
        }
        *self.comes.wait_timeout_while(guard, length, |has_come| !*has_come).unwrap().0
    }

    fn come(&self) {
        *self.has_come.lock().unwrap() = true;
        self.comes.notify_all();
    }
}

/// A server that does the same with each connection, in a thread of its own for each.
pub(crate) struct Hostile {
    pub(crate) address: SocketAddr,
    end: Arc<End>,
}

impl Hostile {
    pub(crate) fn start(each: impl Fn(TcpStream, &End) + Send + Sync + 'static) -> Hostile {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Hostile::on(listener, each)
    }

    fn on(
        listener: TcpListener,
        each: impl Fn(TcpStream, &End) + Send + Sync + 'static,
    ) -> Hostile {
        let (address, end) = (listener.local_addr().unwrap(), Arc::new(End::default()));
        let (ends, each) = (end.clone(), Arc::new(each));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if ends.has_come() {
                    return;
                }
                let (ends, each) = (ends.clone(), each.clone());
                thread::spawn(move || each(socket, &ends));
            }
        });
        Hostile { address, end }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.end.come();
        // So that it looks.
        let _ = TcpStream::connect(self.address);
    }
}

/// Keeps a connection, and does nothing with it.
pub(crate) fn hold(_socket: &TcpStream, end: &End) {
    end.wait();
}

/// Until the head of a request has come. Whether one did.
fn read_head(socket: &mut TcpStream) -> bool {
    let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match socket.read(&mut buffer) {
            Ok(length) if length > 0 => head.extend_from_slice(&buffer[..length]),
            _ => return false,
        }
    }
    true
}

/// Closes it so that the other side gets a reset.
fn reset(socket: TcpStream) {
    let socket = Socket::from(socket);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Nothing times out, however slow this machine is.
pub(crate) fn settings(address: SocketAddr) -> Settings {
    let schedule = Schedule::constant(RATE, LENGTH_NS, Spacing::Even);
    Settings {
        connections: 4,
        connections_max: 1_000,
        timeout_ns: 60_000 * MS,
        drain_ns: 60_000 * MS,
        ..plain::settings(&format!("http://{address}"), schedule)
    }
}

/// Where nothing else is to happen than that requests time out.
pub(crate) fn impatient(address: SocketAddr) -> Settings {
    Settings { timeout_ns: 300 * MS, ..settings(address) }
}

/// What was found of a run, beside what the machine itself held up.
pub(crate) struct Found {
    pub(crate) run: Run,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
}

/// Runs it, by the books. Nothing failed but for these reasons.
#[track_caller]
pub(crate) fn check(settings: &Settings, kinds: &[Failure], observer: &mut dyn Observer) -> Found {
    let run = load::run(settings, &Arc::new(AtomicBool::new(false)), observer).unwrap();
    let tally = &run.tally;
    assert_eq!(tally.intended, settings.schedule.arrivals().count() as u64);
    assert_eq!(tally.accounted(), tally.intended, "{tally:?}");
    assert_eq!(tally.response.count(), tally.completed + tally.unfinished);
    assert_eq!(tally.failure.count(), tally.failures());
    for kind in Failure::ALL.into_iter().filter(|kind| !kinds.contains(kind)) {
        assert_eq!(tally.failed[kind as usize], 0, "{kind}: {:?}", tally.failed);
    }
    assert!(!run.doubts.iter().any(|one| matches!(one, load::Doubt::Books { .. })));
    let (completed, failed) = (tally.completed + tally.seen_late, tally.failures());
    Found { completed, failed, run }
}

/// All that was sent failed, for one of these reasons.
#[track_caller]
fn all_fail(settings: &Settings, kinds: &[Failure]) -> Run {
    let Found { run, completed, failed } = check(settings, kinds, &mut ());
    assert_eq!((completed, run.tally.unfinished), (0, 0));
    assert_eq!(failed + run.tally.missed, run.tally.intended);
    run
}

/// Nothing ever ends: with a short timeout it has failed, with a long one it is unfinished and counts with its age.
#[track_caller]
fn never_ends(settings: Settings) {
    let settings = Settings { timeout_ns: 300 * MS, ..settings };
    let run = all_fail(&settings, &[Failure::TimedOut]);
    let least = run.tally.failure.min().unwrap().lower;
    assert!(least >= settings.timeout_ns as f64 * 0.97, "{least}");
    let settings = Settings { timeout_ns: 60_000 * MS, drain_ns: 250 * MS, ..settings };
    let run = check(&settings, &[], &mut ()).run;
    assert_eq!(run.tally.unfinished + run.tally.missed, run.tally.intended);
    // The first was due at the start, the last just before the end of the schedule: none is younger than the wait for answers.
    let (least, most) = (run.tally.response.min().unwrap(), run.tally.response.max().unwrap());
    assert!(least.upper >= settings.drain_ns as f64, "{least:?}");
    if run.stalls.is_empty() {
        let oldest_ns = settings.schedule.length_ns() + settings.drain_ns;
        assert!(most.upper >= oldest_ns as f64, "{most:?}");
    }
    assert_eq!(run.by_second[&0].count(), run.tally.unfinished);
}

#[test]
fn frozen() {
    let server = Hostile::start(|socket, end| hold(&socket, end));
    never_ends(settings(server.address));
}

/// All has been sent, and answers are waited for.
#[test]
fn the_rest_is_waited_for() {
    let server = Hostile::start(|socket, end| hold(&socket, end));
    let settings = Settings {
        schedule: Schedule::constant(50.0, 100 * MS, Spacing::Even),
        timeout_ns: 60_000 * MS,
        drain_ns: 1_000 * MS,
        ..settings(server.address)
    };
    let run = check(&settings, &[], &mut ()).run;
    assert_eq!(run.tally.unfinished + run.tally.missed, 5);
}

#[test]
fn one_byte_a_second() {
    let server = Hostile::start(|mut socket, end| {
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

/// The request does not fit into what the sockets hold, and nobody reads it.
#[test]
fn never_reads() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    socket.listen(128).unwrap();
    let server = Hostile::on(socket.into(), |socket, end| hold(&socket, end));
    let request = Request {
        name: "a".to_owned(),
        method: "POST".to_owned(),
        path: Template::text("/"),
        body: Template::text("x".repeat(4 << 20)),
        ..Request::default()
    };
    never_ends(Settings {
        requests: Requests::one(request),
        schedule: Schedule::constant(20.0, LENGTH_NS, Spacing::Even),
        ..settings(server.address)
    });
}

/// A socket that listens, but takes no connection more.
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
    // Also where connections are wanted before.
    let run = all_fail(&impatient(address), &[Failure::TimedOut]);
    few_are_made(&run);
}

/// Connections that take longer than a second keep no others from being made: as many as may be
/// made at once, in each second that began, and those that a run begins with.
#[track_caller]
fn few_are_made(run: &Run) {
    let most = run.length_ns.div_ceil(1_000 * MS) * 64 + 4;
    assert!(run.tally.opened <= most, "{} of {most}", run.tally.opened);
}

/// Nobody listens: the port is bound all the time, so that nobody else can have it.
#[test]
fn absent() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::from(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let run = all_fail(&settings(address), &[Failure::Refused]);
    let words = run.words[Failure::Refused as usize].as_deref();
    assert!(words.unwrap().contains("refused"), "{words:?}");
}

#[test]
fn resets_at_once() {
    let server = Hostile::start(|socket, _| reset(socket));
    let run = all_fail(&settings(server.address), &[Failure::Reset]);
    // No storm of connections: one for each request, and those before.
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

#[test]
fn accepts_and_closes() {
    let server = Hostile::start(|socket, _| drop(socket));
    let run = all_fail(&settings(server.address), &[Failure::Reset, Failure::Closed]);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

#[test]
fn resets_in_the_middle_of_an_answer() {
    let server = Hostile::start(|mut socket, _| {
        if read_head(&mut socket) && socket.write_all(&ANSWER[..ANSWER.len() - 2]).is_ok() {
            reset(socket);
        }
    });
    all_fail(&settings(server.address), &[Failure::Reset]);
}

#[test]
fn closes_in_the_middle_of_an_answer() {
    let server = Hostile::start(|mut socket, _| {
        if read_head(&mut socket) {
            let _ = socket.write_all(&ANSWER[..ANSWER.len() - 2]);
        }
    });
    all_fail(&settings(server.address), &[Failure::Closed]);
}

#[test]
fn closes_its_half_before_the_answer() {
    let server = Hostile::start(|mut socket, end| {
        if read_head(&mut socket) {
            let _ = socket.shutdown(Shutdown::Write);
            hold(&socket, end);
        }
    });
    all_fail(&settings(server.address), &[Failure::Closed]);
}

/// The server announces nothing, but its answer and the end of the connection arrive in one
/// segment: no request is sent on a connection whose end is known, so none fails. Were they two
/// segments, a request could be sent between them, and would rightly fail.
#[test]
fn closes_after_each_answer() {
    let server = Hostile::start(|mut socket, _| {
        if read_head(&mut socket) {
            // Linux holds the answer back until the FIN, which goes out in the same segment.
            SockRef::from(&socket).set_tcp_cork(true).unwrap();
            let _ = socket.write_all(ANSWER);
            let _ = socket.shutdown(Shutdown::Write);
            // The client has read both when it closes.
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    // 16 at a time, so that requests wait for a connection that ends.
    let due = (0..200).map(|number| number / 16 * 80 * MS);
    let settings = Settings {
        schedule: Schedule::Replay(due.collect()),
        timeout_ns: 60_000 * MS,
        ..settings(server.address)
    };
    let found = check(&settings, &[], &mut ());
    assert_eq!(found.completed + found.run.tally.missed, found.run.tally.intended);
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
        let server = Hostile::start(move |mut socket, end| {
            if read_head(&mut socket) && socket.write_all(&bytes).is_ok() {
                hold(&socket, end);
            }
        });
        let settings = Settings {
            schedule: Schedule::constant(RATE, 200 * MS, Spacing::Even),
            ..settings(server.address)
        };
        all_fail(&settings, &[Failure::Malformed]);
    }
}

/// Before anybody asked.
#[test]
fn garbage_at_once() {
    let server = Hostile::start(|mut socket, end| {
        if socket.write_all(b"220 mail.example.org ESMTP\r\n").is_ok() {
            hold(&socket, end);
        }
    });
    let run = all_fail(&settings(server.address), &[Failure::Malformed]);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

/// Answers without end keep nothing in memory.
#[test]
fn answers_without_end() {
    let server = Hostile::start(|mut socket, end| {
        if read_head(&mut socket) && socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok() {
            let bytes = [b'x'; 1_024];
            while socket.write_all(&bytes).is_ok() && !end.wait_for(Duration::from_millis(5)) {}
        }
    });
    all_fail(&impatient(server.address), &[Failure::TimedOut]);
}

/// Stops a stub when it has answered so many requests; it tells when the stub was gone, from the
/// start of the run.
struct Stopping {
    stub: Option<Stub>,
    answers: u64,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Observer for Stopping {
    fn began(&mut self, start_ns: u64, _: i64) {
        let (stub, answers, is_over) = (self.stub.take(), self.answers, self.is_over.clone());
        self.thread = Some(thread::spawn(move || {
            let is_enough = |stub: &Stub| stub.answered() >= answers;
            while !stub.as_ref().is_some_and(is_enough) && !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            drop(stub);
            clock::now() - start_ns
        }));
    }
}

#[test]
fn stops_existing_in_the_middle() {
    const ANSWERS: u64 = 90;
    let stub = Stub::start(Answers::Http1, 5 * MS).unwrap();
    let settings = settings(stub.address());
    let is_over = Arc::new(AtomicBool::new(false));
    let mut stopping =
        Stopping { stub: Some(stub), answers: ANSWERS, is_over: is_over.clone(), thread: None };
    let kinds = [Failure::Refused, Failure::Closed, Failure::Reset];
    let found = check(&settings, &kinds, &mut stopping);
    is_over.store(true, Ordering::Relaxed);
    let gone_ns = stopping.thread.unwrap().join().unwrap();
    let tally = &found.run.tally;
    assert_eq!(tally.unfinished, 0);
    let after = settings.schedule.arrivals().filter(|due| *due > gone_ns).count() as u64;
    if after == 0 {
        return println!("skipped: the generator missed too many for {ANSWERS} to be answered");
    }
    // The last ones that were answered may have been lost with their connections, one on each.
    assert!(found.completed + tally.opened >= ANSWERS, "{tally:?}");
    assert!(found.completed <= tally.intended - after, "{tally:?}");
    // On each connection that was open one may fail otherwise; all else finds nobody.
    let refused = tally.failed[Failure::Refused as usize];
    assert!(refused + tally.missed + tally.connected_max >= after, "{tally:?}");
}

/// Settings for TLS with a server that shows none of the certificates that are trusted.
fn in_tls(address: SocketAddr, trusted: &Folder) -> Settings {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let path = trusted.path(&address.port().to_string());
    std::fs::write(&path, pem).unwrap();
    let (target, _) = Target::parse(&format!("https://{address}")).unwrap();
    let tls = net::tls::ClientTls { ca: Some(path), ..Default::default() };
    Settings { target, tls, ..settings(address) }
}

/// A connection that ends before it was of any use has failed for the request that it was made for.
#[test]
fn tls_that_is_never_agreed_on() {
    let trusted = Folder::new("trusted");
    // Reads what the client says first, and closes.
    let server = Hostile::start(|mut socket, _| {
        let _ = socket.read(&mut [0; 4096]);
    });
    let kinds = [Failure::Closed, Failure::Reset];
    let run = all_fail(&in_tls(server.address, &trusted), &kinds);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
    let server = Hostile::start(|mut socket, end| {
        let _ = socket.read(&mut [0; 4096]);
        if socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_ok() {
            hold(&socket, end);
        }
    });
    let run = all_fail(&in_tls(server.address, &trusted), &[Failure::Tls]);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

/// PostgreSQL is asked for TLS before there is any.
#[test]
fn tls_that_is_asked_for() {
    let answers: [(&[u8], Failure); 4] = [
        (b"N", Failure::Tls),
        (b"E", Failure::Malformed),
        // What is sent after the answer was not in TLS, whoever sent it.
        (b"SR\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", Failure::Tls),
        (b"", Failure::Closed),
    ];
    for (answer, kind) in answers {
        let server = Hostile::start(move |mut socket, end| {
            let mut asked = [0; 8];
            let is_asked = socket.read_exact(&mut asked).is_ok();
            if is_asked && asked == [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f] && !answer.is_empty() {
                let _ = socket.write_all(answer);
                hold(&socket, end);
            }
        });
        let written = format!("postgres://{}/?sslmode=require", server.address);
        let (target, _) = Target::parse(&written).unwrap();
        let run = all_fail(&Settings { target, ..settings(server.address) }, &[kind]);
        let words = run.words[kind as usize].as_deref().unwrap_or_default();
        assert!(answer != b"N" || words == "the server has no TLS", "{words}");
    }
}

/// Connections that are about to be agreed on are not made again and again.
#[test]
fn tls_that_never_answers() {
    let server = Hostile::start(|socket, end| hold(&socket, end));
    let trusted = Folder::new("trusted");
    let settings = Settings { timeout_ns: 300 * MS, ..in_tls(server.address, &trusted) };
    few_are_made(&all_fail(&settings, &[Failure::TimedOut]));
}

/// A user is let in, and the server takes queries.
const LET_IN: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// What does not get ready keeps nothing for ever from connections that would.
#[test]
fn some_never_get_ready() {
    const HANGING: usize = 70;
    let number = AtomicUsize::new(0);
    let server = Hostile::start(move |mut socket, end| {
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
    let settings = Settings {
        target,
        connections: 0,
        schedule: Schedule::constant(RATE, 2_000 * MS, Spacing::Even),
        ..impatient(server.address)
    };
    let found = check(&settings, &[Failure::TimedOut], &mut ());
    assert!(found.completed > 0, "{:?}", found.run.tally);
    assert!(found.run.tally.opened > HANGING as u64, "{}", found.run.tally.opened);
}

/// Each message that it sends is to be answered, and it reads none of the answers.
fn asks_without_end(mut stream: impl std::io::Read + std::io::Write) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    // Who asks, and the query.
    for answer in [LET_IN, b""] {
        if stream.read(&mut buffer)? == 0 {
            return Ok(());
        }
        stream.write_all(answer)?;
    }
    // Less than what is answered is asked: it ends by itself, but only after the other side should have.
    let asks = b"G\0\0\0\x04".repeat(2_000);
    (0..2_000).try_for_each(|_| stream.write_all(&asks))
}

/// What waits to be sent has a limit, also in TLS.
#[test]
fn makes_us_answer_and_does_not_read() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = Folder::new("answers");
    let (certificate, private) = (folder.path("certificate"), folder.path("key"));
    std::fs::write(&certificate, key.cert.pem()).unwrap();
    std::fs::write(&private, key.signing_key.serialize_pem()).unwrap();
    let tls = net::tls::ServerTls { certificate, key: private, client_ca: None };
    let config = Arc::new(tls.config().unwrap());
    for mode in ["disable", "require"] {
        let config = config.clone();
        let server = Hostile::start(move |mut socket, end| {
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
            target,
            connections: 1,
            schedule: Schedule::constant(10.0, 100 * MS, Spacing::Even),
            timeout_ns: 30_000 * MS,
            drain_ns: 30_000 * MS,
            ..settings(server.address)
        };
        let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ()).unwrap();
        let tally = &run.tally;
        let malformed = tally.failed[Failure::Malformed as usize];
        assert_eq!((malformed + tally.missed, tally.intended), (1, 1), "{mode}: {tally:?}");
        let words = run.words[Failure::Malformed as usize].as_deref();
        assert!(malformed == 0 || words.unwrap().contains("does not read"), "{mode}: {words:?}");
    }
}

/// The report can say in words what failed: those of the server, and without the password that it repeats.
#[test]
fn what_failed_is_known_in_words() {
    let refuses = |text: &'static [u8]| {
        Hostile::start(move |mut socket, end| {
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
        ("http://", b"SSH-2.0-x\r\n", Failure::Malformed, "what came was \"SSH-2.0-x\\r\\n\""),
    ] {
        let server = refuses(text);
        let (target, _) = Target::parse(&format!("{scheme}{}", server.address)).unwrap();
        let run = all_fail(&Settings { target, ..settings(server.address) }, &[kind]);
        assert_eq!(run.words[kind as usize].as_deref(), Some(said), "{scheme}");
        assert_eq!(run.words.iter().flatten().count(), 1, "{:?}", run.words);
    }
}
