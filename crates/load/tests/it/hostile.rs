//! Servers that do everything wrong: each run ends, with every request accounted for under the right kind.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use load::{
    Answers, Failure, Observer, Request, Requests, Run, Schedule, Settings, Spacing, Stub, Target,
    Template,
};

use crate::plain;
use socket2::{Domain, SockAddr, Socket, Type};

const MS: u64 = 1_000_000;
const RATE: f64 = 200.0;
const LENGTH_NS: u64 = 1_000 * MS;
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that does the same with each connection, in a thread of its own for each.
struct Hostile {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Hostile {
    fn start(each: impl Fn(TcpStream, &AtomicBool) + Send + Sync + 'static) -> Hostile {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Hostile::on(listener, each)
    }

    fn on(
        listener: TcpListener,
        each: impl Fn(TcpStream, &AtomicBool) + Send + Sync + 'static,
    ) -> Hostile {
        let (address, is_over) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (over, each) = (is_over.clone(), Arc::new(each));
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let (over, each) = (over.clone(), each.clone());
                thread::spawn(move || each(socket, &over));
            }
        });
        Hostile { address, is_over }
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // So that it looks.
        let _ = TcpStream::connect(self.address);
    }
}

/// Keeps a connection, and does nothing with it.
fn hold(_socket: &TcpStream, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(20));
    }
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

fn settings(address: SocketAddr) -> Settings {
    let schedule = Schedule::constant(RATE, LENGTH_NS, Spacing::Even);
    Settings {
        connections: 4,
        connections_max: 1_000,
        timeout_ns: 300 * MS,
        ..plain::settings(&format!("http://{address}"), schedule)
    }
}

/// What was found of a run, beside what the machine itself held up.
struct Found {
    run: Run,
    completed: u64,
    failed: u64,
}

/// Runs it, by the books. Nothing failed but for these reasons.
#[track_caller]
fn check(settings: &Settings, kinds: &[Failure], observer: &mut dyn Observer) -> Found {
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
    let server = Hostile::start(|socket, is_over| hold(&socket, is_over));
    never_ends(settings(server.address));
}

/// All has been sent, and answers are waited for.
#[test]
fn the_rest_is_waited_for() {
    let server = Hostile::start(|socket, is_over| hold(&socket, is_over));
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
    let server = Hostile::start(|mut socket, is_over| {
        if read_head(&mut socket) {
            for byte in ANSWER {
                if is_over.load(Ordering::Relaxed) || socket.write_all(&[*byte]).is_err() {
                    return;
                }
                thread::sleep(Duration::from_secs(1));
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
    let server = Hostile::on(socket.into(), |socket, is_over| hold(&socket, is_over));
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
    let run = all_fail(&settings(address), &[Failure::TimedOut]);
    assert!(run.tally.opened <= 64, "{}", run.tally.opened);
}

#[test]
fn absent() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    all_fail(&settings(address), &[Failure::Refused]);
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
    let server = Hostile::start(|mut socket, is_over| {
        if read_head(&mut socket) {
            let _ = socket.shutdown(Shutdown::Write);
            hold(&socket, is_over);
        }
    });
    all_fail(&settings(server.address), &[Failure::Closed]);
}

/// It does not say so beforehand. Each answer counts, but for some whose request crossed the end of the connection.
#[test]
fn closes_after_each_answer() {
    let server = Hostile::start(|mut socket, _| {
        if read_head(&mut socket) {
            let _ = socket.write_all(ANSWER);
        }
    });
    let kinds = [Failure::Reset, Failure::Closed];
    let found = check(&settings(server.address), &kinds, &mut ());
    assert!(found.failed <= 20, "{:?}", found.run.tally.failed);
    assert!(found.completed + found.failed + found.run.tally.missed == found.run.tally.intended);
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
        let server = Hostile::start(move |mut socket, is_over| {
            if read_head(&mut socket) && socket.write_all(&bytes).is_ok() {
                hold(&socket, is_over);
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
    let server = Hostile::start(|mut socket, is_over| {
        if socket.write_all(b"220 mail.example.org ESMTP\r\n").is_ok() {
            hold(&socket, is_over);
        }
    });
    let run = all_fail(&settings(server.address), &[Failure::Malformed]);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

/// Answers without end keep nothing in memory.
#[test]
fn answers_without_end() {
    let server = Hostile::start(|mut socket, is_over| {
        if read_head(&mut socket) && socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_ok() {
            let bytes = [b'x'; 1_024];
            while !is_over.load(Ordering::Relaxed) && socket.write_all(&bytes).is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    all_fail(&settings(server.address), &[Failure::TimedOut]);
}

/// Stops a stub at a moment of the run.
struct Stopping {
    stub: Arc<Mutex<Option<Stub>>>,
    after_ns: u64,
}

impl Observer for Stopping {
    fn began(&mut self, start_ns: u64, _: i64) {
        let (stub, until) = (self.stub.clone(), start_ns + self.after_ns);
        thread::spawn(move || {
            thread::sleep(Duration::from_nanos(until.saturating_sub(clock::now())));
            drop(stub.lock().unwrap().take());
        });
    }
}

#[test]
fn stops_existing_in_the_middle() {
    let stub = Stub::start(Answers::Http1, 5 * MS).unwrap();
    let settings = settings(stub.address());
    let mut stopping = Stopping { stub: Arc::new(Mutex::new(Some(stub))), after_ns: 500 * MS };
    let kinds = [Failure::Refused, Failure::Closed, Failure::Reset];
    let found = check(&settings, &kinds, &mut stopping);
    let missed = found.run.tally.missed;
    assert!((80..=110).contains(&(found.completed + missed.min(50))), "{:?}", found.run.tally);
    assert!(found.run.tally.failed[Failure::Refused as usize] + missed >= 80);
    assert_eq!(found.run.tally.unfinished, 0);
}

/// Settings for TLS with a server that shows none of the certificates that are trusted.
fn in_tls(address: SocketAddr) -> Settings {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let name = format!("topdeck-load-{}-{}.crt", std::process::id(), address.port());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, pem).unwrap();
    let (target, _) = Target::parse(&format!("https://{address}")).unwrap();
    let tls = net::tls::ClientTls { ca: Some(path), ..Default::default() };
    Settings { target, tls, ..settings(address) }
}

/// A connection that ends before it was of any use has failed for the request that it was made for.
#[test]
fn tls_that_is_never_agreed_on() {
    // Reads what the client says first, and closes.
    let server = Hostile::start(|mut socket, _| {
        let _ = socket.read(&mut [0; 4096]);
    });
    let kinds = [Failure::Closed, Failure::Reset];
    let run = all_fail(&in_tls(server.address), &kinds);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
    let server = Hostile::start(|mut socket, is_over| {
        let _ = socket.read(&mut [0; 4096]);
        if socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").is_ok() {
            hold(&socket, is_over);
        }
    });
    let run = all_fail(&in_tls(server.address), &[Failure::Tls]);
    assert!(run.tally.opened <= run.tally.intended + 4, "{}", run.tally.opened);
}

/// Connections that are about to be agreed on are not made again and again.
#[test]
fn tls_that_never_answers() {
    let server = Hostile::start(|socket, is_over| hold(&socket, is_over));
    let run = all_fail(&in_tls(server.address), &[Failure::TimedOut]);
    assert!(run.tally.opened <= 64 + 4, "{}", run.tally.opened);
}
