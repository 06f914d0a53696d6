//! The freeze test of each protocol: between the generator and a real server stands a relay that passes nothing on for some time.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use load::{
    Freeze, Observer, Request, Requests, Run, Schedule, Settings, Spacing, Template, truth,
};
use net::tls::ClientTls;

use crate::freeze::{ATTEMPTS, is_the_truth};
use crate::plain;
use crate::servers::{self, Folder, Hyper};

const MS: u64 = 1_000_000;
const FREEZE: Freeze = Freeze { from_ns: 300 * MS, to_ns: 800 * MS };
const LENGTH_NS: u64 = 1_200 * MS;
/// What a server on the same machine takes, about: far less than the test can tell.
const SERVICE_NS: u64 = 300_000;

/// Passes on what comes, but for the time of a freeze.
struct Relay {
    port: u16,
    /// When the run began, by the clock; 0: not yet.
    start_ns: Arc<AtomicU64>,
}

impl Relay {
    fn to(port: u16) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let relay = Relay { port: listener.local_addr().unwrap().port(), start_ns: Arc::default() };
        let start_ns = relay.start_ns.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    from.set_nodelay(true).unwrap();
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let start_ns = start_ns.clone();
                    thread::spawn(move || pass(from, to, &start_ns));
                }
            }
        });
        relay
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, start_ns: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let start = start_ns.load(Ordering::Relaxed);
        let into = clock::now().saturating_sub(start);
        if start > 0 && (FREEZE.from_ns..FREEZE.to_ns).contains(&into) {
            thread::sleep(Duration::from_nanos(FREEZE.to_ns - into));
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

/// `target` is given the relay's port.
#[track_caller]
fn check(port: u16, target: impl Fn(u16) -> String, tls: &ClientTls, request: &Request) {
    for attempt in 0..ATTEMPTS {
        let relay = Relay::to(port);
        let spacing = if attempt % 2 == 0 { Spacing::Even } else { Spacing::Poisson { seed: 7 } };
        let settings = Settings {
            tls: tls.clone(),
            requests: Requests::one(request.clone()),
            connections: 60,
            connections_max: 60,
            ..plain::settings(&target(relay.port), Schedule::constant(100.0, LENGTH_NS, spacing))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let run: Run = load::run(&settings, &stop, &mut Begun(&relay)).unwrap();
        let tally = &run.tally;
        assert_eq!((tally.failures(), tally.unfinished), (0, 0), "{:?}", tally.failed);
        if run.stalls.is_empty() {
            let due = settings.schedule.arrivals();
            return is_the_truth(&tally.response, &truth(due, SERVICE_NS, &[FREEZE], u64::MAX));
        }
    }
    println!("skipped: in {ATTEMPTS} runs this machine let the generator stand still in each");
}

#[test]
fn http_and_grpc() {
    let (server, none) = (Hyper::start(), ClientTls::default());
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
    for (scheme, request) in [("http", &get), ("h2c", &get), ("grpc", &call)] {
        check(server.port, |port| format!("{scheme}://127.0.0.1:{port}"), &none, request);
    }
    let folder = Folder::new("frozen");
    let server = Hyper::secured(&folder);
    for (scheme, request) in [("https", &get), ("h2", &get), ("grpcs", &call)] {
        check(server.port, |port| format!("{scheme}://localhost:{port}"), &server.tls, request);
    }
}

#[test]
fn databases() {
    let none = ClientTls::default();
    if let Some(server) = servers::postgres() {
        servers::wait_for(server.port);
        let simple = Request { body: Template::text("select 1"), ..Request::default() };
        let prepared = Request {
            body: Template::text("select $1::int"),
            arguments: vec![Template::text("1")],
            ..Request::default()
        };
        let target =
            |more| move |port| format!("postgres://postgres@127.0.0.1:{port}/postgres{more}");
        check(server.port, target(""), &none, &simple);
        check(server.port, target("?prepared=true"), &none, &prepared);
    }
    if let Some(server) = servers::redis() {
        servers::wait_for(server.port);
        let arguments = ["SET", "a", "b"].map(Template::text).to_vec();
        let request = Request { arguments, ..Request::default() };
        check(server.port, |port| format!("redis://:p%40w@127.0.0.1:{port}"), &none, &request);
    }
}
