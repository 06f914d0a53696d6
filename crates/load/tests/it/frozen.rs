//! The freeze test of each protocol: between the generator and a real server stands a relay that passes nothing on for some time.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use load::{
    Freeze, Observer, Request, Requests, Run, Schedule, Settings, Spacing, Template, truth,
};
use net::tls::ClientTls;

use crate::freeze::{SLACK, compare};
use crate::plain;
use crate::servers::{self, ADDRESS, Folder, Hyper};
use crate::steady::{ATTEMPTS, Ended, Watch, skipped};

const MS: u64 = 1_000_000;
/// What a server on the same machine takes, about: far less than the test can tell.
const SERVICE_NS: u64 = 300_000;

/// A run, and when nothing is passed on in it.
#[derive(Clone, Copy)]
struct Frozen {
    rate: f64,
    length_ns: u64,
    freeze: Freeze,
    /// How far a time may be off beyond a bucket. Nanoseconds.
    slack: f64,
}

/// Frozen for a third: at the start, in the middle, and from the last third on to beyond the end.
fn frozen(rate: f64, length_ns: u64, slack: f64) -> [Frozen; 3] {
    let third_ns = length_ns / 3;
    [(0, 1), (1, 2), (2, 4)].map(|(from, to)| {
        let freeze = Freeze { from_ns: from * third_ns, to_ns: to * third_ns };
        Frozen { rate, length_ns, freeze, slack }
    })
}

/// Passes on what comes, but for the time of a freeze.
struct Relay {
    port: u16,
    /// When the run began, by the clock; 0: not yet.
    start_ns: Arc<AtomicU64>,
    ended: Arc<Ended>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    fn to(port: u16, freeze: Freeze) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let own_port = listener.local_addr().unwrap().port();
        let relay = Relay {
            port: own_port,
            start_ns: Arc::default(),
            ended: Arc::default(),
            threads: Arc::default(),
        };
        let (start_ns, ended) = (relay.start_ns.clone(), relay.ended.clone());
        let threads = relay.threads.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    from.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (start_ns, ended) = (start_ns.clone(), ended.clone());
                    let thread = thread::spawn(move || {
                        pass(from, to, freeze, &start_ns);
                        ended.add_this_thread();
                    });
                    threads.lock().unwrap().push(thread);
                }
            }
        });
        relay
    }

    /// The longest wait of a thread for a processor, when all connections are closed.
    fn waited_ns(&self) -> u64 {
        self.threads.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap());
        self.ended.most_ns()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, freeze: Freeze, start_ns: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let start = start_ns.load(Ordering::Relaxed);
        let into = clock::now().saturating_sub(start);
        if start > 0 && (freeze.from_ns..freeze.to_ns).contains(&into) {
            thread::sleep(Duration::from_nanos(freeze.to_ns - into));
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

struct Begun<'a>(&'a Relay);

impl Observer for Begun<'_> {
    fn began(&mut self, start_ns: u64, _: i64) {
        self.0.start_ns.store(start_ns, Ordering::Relaxed);
    }
}

/// A server, as it is asked: `target` is given the relay's port.
struct Asked<'a> {
    port: u16,
    target: Box<dyn Fn(u16) -> String + 'a>,
    tls: &'a ClientTls,
    request: &'a Request,
}

impl Asked<'_> {
    #[track_caller]
    fn check(&self, frozen: Frozen) {
        let Frozen { rate, length_ns, freeze, slack } = frozen;
        println!("{}, {rate}/s, {freeze:?}", (self.target)(self.port));
        let mut why = "the generator stood still".to_owned();
        for attempt in 0..ATTEMPTS {
            let watch = Watch::start();
            let relay = Relay::to(self.port, freeze);
            let spacing = match attempt % 2 {
                0 => Spacing::Even,
                _ => Spacing::Poisson { seed: 7 },
            };
            let schedule = Schedule::constant(rate, length_ns, spacing);
            let usual = plain::settings(&(self.target)(relay.port), schedule);
            let is_to_the_end = freeze.to_ns > length_ns;
            let settings = Settings {
                tls: self.tls.clone(),
                requests: Requests::one(self.request.clone()),
                connections: 60,
                connections_max: 60,
                drain_ns: if is_to_the_end { 0 } else { usual.drain_ns },
                ..usual
            };
            let stop = Arc::new(AtomicBool::new(false));
            let run: Run = load::run(&settings, &stop, &mut Begun(&relay)).unwrap();
            let tally = &run.tally;
            assert_eq!(tally.failures(), 0, "{:?}", tally.failed);
            assert_eq!(tally.unfinished > 0, is_to_the_end);
            if run.stalls.is_empty() {
                let due = settings.schedule.arrivals();
                let end_ns = if is_to_the_end { length_ns } else { u64::MAX };
                let expected = truth(due, SERVICE_NS, &[freeze], end_ns);
                let Err(differs) = compare(&tally.response, &expected, slack) else { return };
                why = watch.disturbance(relay.waited_ns()).expect(&differs);
            }
        }
        skipped(&why);
    }
}

/// Each of the servers in one of the runs: all runs come about.
fn in_turns(servers: &[Asked]) {
    let runs = frozen(100.0, 1_200 * MS, SLACK);
    servers.iter().zip(runs.iter().cycle()).for_each(|(server, frozen)| server.check(*frozen));
}

/// What a request takes that waited with many others, with a real server and the relay's threads on two processors.
const TURN_NS: f64 = 100_000.0;

/// Each of the servers in each of the runs.
fn in_all(servers: &[Asked]) {
    for (rate, seconds) in [(100.0, 9), (1_000.0, 3)] {
        let waiting = rate * seconds as f64 / 3.0;
        for frozen in frozen(rate, seconds * 1_000 * MS, 5.0 * MS as f64 + waiting * TURN_NS) {
            servers.iter().for_each(|server| server.check(frozen));
        }
    }
}

fn http_and_grpc(check: fn(&[Asked])) {
    let (plain, none) = (Hyper::start(), ClientTls::default());
    let folder = Folder::new("frozen");
    let secured = Hyper::secured(&folder);
    let get = Request {
        method: "GET".to_owned(),
        path: Template::text("/length/10"),
        ..Request::default()
    };
    let call = Request {
        path: Template::text("/a.B/0"),
        body: Template::bytes(b"message".to_vec()),
        ..Request::default()
    };
    let server = |scheme: &'static str, request| {
        let is_plain = matches!(scheme, "http" | "h2c" | "grpc");
        let (host, port, tls) = match is_plain {
            true => (ADDRESS, plain.port, &none),
            false => (ADDRESS, secured.port, &secured.tls),
        };
        let target = Box::new(move |port| format!("{scheme}://{host}:{port}"));
        Asked { port, target, tls, request }
    };
    check(&[
        server("http", &get),
        server("h2c", &get),
        server("grpc", &call),
        server("grpcs", &call),
        server("https", &get),
        server("h2", &get),
    ]);
}

fn databases(check: fn(&[Asked])) {
    let none = ClientTls::default();
    let simple = Request { body: Template::text("select 1"), ..Request::default() };
    let prepared = Request {
        body: Template::text("select $1::int"),
        arguments: vec![Template::text("1")],
        ..Request::default()
    };
    let arguments = ["SET", "a", "b"].map(Template::text).to_vec();
    let set = Request { arguments, ..Request::default() };
    let (postgres, redis) = (servers::postgres(), servers::redis());
    let mut all = Vec::new();
    if let Some(server) = &postgres {
        servers::wait_for(server.port);
        for (more, request) in [("", &simple), ("?prepared=true", &prepared)] {
            let target = move |port| format!("postgres://postgres@127.0.0.1:{port}/postgres{more}");
            all.push(Asked { port: server.port, target: Box::new(target), tls: &none, request });
        }
    }
    if let Some(server) = &redis {
        servers::wait_for(server.port);
        let target = |port| format!("redis://:p%40w@127.0.0.1:{port}");
        all.push(Asked { port: server.port, target: Box::new(target), tls: &none, request: &set });
    }
    check(&all);
}

#[test]
fn http_and_grpc_in_turns() {
    http_and_grpc(in_turns);
}

#[test]
fn databases_in_turns() {
    databases(in_turns);
}

#[test]
#[ignore = "soak: each protocol, rate and freeze, minutes"]
fn soak_http_and_grpc_in_all() {
    http_and_grpc(in_all);
}

#[test]
#[ignore = "soak: each protocol, rate and freeze, minutes"]
fn soak_databases_in_all() {
    databases(in_all);
}
