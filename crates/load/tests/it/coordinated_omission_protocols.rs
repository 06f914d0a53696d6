//! The coordinated-omission test for each protocol: a relay between the generator and a real server
//! stalls.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use load::{
    ArrivalProcess, Observer, RequestTemplate, Requests, RunResult, Schedule, ServerStall,
    Settings, Template, expected_response_times,
};
use net::tls::ClientTls;

use crate::coordinated_omission::{SLACK, compare};
use crate::fixture;
use crate::scheduling::{ATTEMPTS, SchedulingWatch, ThreadWaits, skipped};
use crate::servers::{self, ADDRESS, Dir, Hyper};

const MS: u64 = 1_000_000;
/// Approximate service time on the same machine, far below the tolerance.
const SERVICE_NS: u64 = 300_000;

/// A run with a stall.
#[derive(Clone, Copy)]
struct StalledRun {
    rate: f64,
    duration_ns: u64,
    stall: ServerStall,
    /// Tolerance beyond a bucket. Nanoseconds.
    slack: f64,
}

/// Stalls of a third: at the start, in the middle, and from the last third until after the end.
fn stalled_runs(rate: f64, duration_ns: u64, slack: f64) -> [StalledRun; 3] {
    let third_ns = duration_ns / 3;
    [(0, 1), (1, 2), (2, 4)].map(|(from, to)| {
        let stall = ServerStall { from_ns: from * third_ns, to_ns: to * third_ns };
        StalledRun { rate, duration_ns, stall, slack }
    })
}

/// Forwards bytes, except during a stall.
struct Relay {
    port: u16,
    /// Clock time of the start of the run; 0 before it.
    start_ns: Arc<AtomicU64>,
    ended: Arc<ThreadWaits>,
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

impl Relay {
    fn to(port: u16, stall: ServerStall) -> Relay {
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
                        pass(from, to, stall, &start_ns);
                        ended.add_this_thread();
                    });
                    threads.lock().unwrap().push(thread);
                }
            }
        });
        relay
    }

    /// The longest wait of a thread for a CPU, after all connections are closed.
    fn waited_ns(&self) -> u64 {
        self.threads.lock().unwrap().drain(..).for_each(|thread| thread.join().unwrap());
        self.ended.most_ns()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, stall: ServerStall, start_ns: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        let start = start_ns.load(Ordering::Relaxed);
        let into = clock::now().saturating_sub(start);
        if start > 0 && (stall.from_ns..stall.to_ns).contains(&into) {
            thread::sleep(Duration::from_nanos(stall.to_ns - into));
        }
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

struct RecordStart<'a>(&'a Relay);

impl Observer for RecordStart<'_> {
    fn run_started(&mut self, start_ns: u64, _: i64) {
        self.0.start_ns.store(start_ns, Ordering::Relaxed);
    }
}

/// A server under test; `target` maps the relay's port to a URL.
struct ServerUnderTest<'a> {
    port: u16,
    target: Box<dyn Fn(u16) -> String + 'a>,
    tls: &'a ClientTls,
    request: &'a RequestTemplate,
}

impl ServerUnderTest<'_> {
    #[track_caller]
    fn check(&self, stalled: StalledRun) {
        let StalledRun { rate, duration_ns, stall, slack } = stalled;
        println!("{}, {rate}/s, {stall:?}", (self.target)(self.port));
        let mut why = "the generator stalled".to_owned();
        for attempt in 0..ATTEMPTS {
            let watch = SchedulingWatch::start();
            let relay = Relay::to(self.port, stall);
            let arrival_process = match attempt % 2 {
                0 => ArrivalProcess::Constant,
                _ => ArrivalProcess::Poisson { seed: 7 },
            };
            let schedule = Schedule::constant(rate, duration_ns, arrival_process);
            let usual = fixture::settings(&(self.target)(relay.port), schedule);
            let is_to_the_end = stall.to_ns > duration_ns;
            let settings = Settings {
                tls: self.tls.clone(),
                requests: Requests::single(self.request.clone()),
                connections: 60,
                max_connections: 60,
                grace_period_ns: if is_to_the_end { 0 } else { usual.grace_period_ns },
                ..usual
            };
            let stop = Arc::new(AtomicBool::new(false));
            let run: RunResult = load::run(&settings, &stop, &mut RecordStart(&relay)).unwrap();
            let tally = &run.tally;
            assert_eq!(tally.failures(), 0, "{:?}", tally.failed);
            assert_eq!(tally.unfinished > 0, is_to_the_end);
            if run.stalls.is_empty() {
                let due = settings.schedule.arrivals();
                let end_ns = if is_to_the_end { duration_ns } else { u64::MAX };
                let expected = expected_response_times(due, SERVICE_NS, &[stall], end_ns);
                let Err(differs) = compare(&tally.response, &expected, slack) else { return };
                why = watch.disturbance(relay.waited_ns()).expect(&differs);
            }
        }
        skipped(&why);
    }
}

/// One run per server; all runs occur.
fn in_turns(servers: &[ServerUnderTest]) {
    let runs = stalled_runs(100.0, 1_200 * MS, SLACK);
    servers.iter().zip(runs.iter().cycle()).for_each(|(server, run)| server.check(*run));
}

/// Time per request in a queue of many, with a real server and the relay's threads on two CPUs.
const TURN_NS: f64 = 100_000.0;

/// All runs for each server.
fn in_all(servers: &[ServerUnderTest]) {
    for (rate, seconds) in [(100.0, 9), (1_000.0, 3)] {
        let waiting = rate * seconds as f64 / 3.0;
        for run in stalled_runs(rate, seconds * 1_000 * MS, 5.0 * MS as f64 + waiting * TURN_NS) {
            servers.iter().for_each(|server| server.check(run));
        }
    }
}

fn http_and_grpc(check: fn(&[ServerUnderTest])) {
    let (plain, none) = (Hyper::start(), ClientTls::default());
    let dir = Dir::new("stalls");
    let secured = Hyper::secured(&dir);
    let get = RequestTemplate {
        method: "GET".to_owned(),
        path: Template::text("/length/10"),
        ..RequestTemplate::default()
    };
    let call = RequestTemplate {
        path: Template::text("/a.B/0"),
        body: Template::bytes(b"message".to_vec()),
        ..RequestTemplate::default()
    };
    let server = |scheme: &'static str, request| {
        let is_plain = matches!(scheme, "http" | "h2c" | "grpc");
        let (host, port, tls) = match is_plain {
            true => (ADDRESS, plain.port, &none),
            false => (ADDRESS, secured.port, &secured.tls),
        };
        let target = Box::new(move |port| format!("{scheme}://{host}:{port}"));
        ServerUnderTest { port, target, tls, request }
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

fn databases(check: fn(&[ServerUnderTest])) {
    let none = ClientTls::default();
    let simple = RequestTemplate { body: Template::text("select 1"), ..RequestTemplate::default() };
    let prepared = RequestTemplate {
        body: Template::text("select $1::int"),
        arguments: vec![Template::text("1")],
        ..RequestTemplate::default()
    };
    let arguments = ["SET", "a", "b"].map(Template::text).to_vec();
    let set = RequestTemplate { arguments, ..RequestTemplate::default() };
    let (postgres, redis) = (servers::postgres(), servers::redis());
    let mut all = Vec::new();
    if let Some(server) = &postgres {
        servers::wait_for(server.port);
        for (more, request) in [("", &simple), ("?prepared=true", &prepared)] {
            let target = move |port| format!("postgres://postgres@127.0.0.1:{port}/postgres{more}");
            all.push(ServerUnderTest {
                port: server.port,
                target: Box::new(target),
                tls: &none,
                request,
            });
        }
    }
    if let Some(server) = &redis {
        servers::wait_for(server.port);
        let target = |port| format!("redis://:p%40w@127.0.0.1:{port}");
        all.push(ServerUnderTest {
            port: server.port,
            target: Box::new(target),
            tls: &none,
            request: &set,
        });
    }
    check(&all);
}

#[test]
fn http_and_grpc_with_stalls() {
    http_and_grpc(in_turns);
}

#[test]
fn databases_with_stalls() {
    databases(in_turns);
}

#[test]
#[ignore = "soak: each protocol, rate and stall, minutes"]
fn soak_http_and_grpc_with_stalls() {
    http_and_grpc(in_all);
}

#[test]
#[ignore = "soak: each protocol, rate and stall, minutes"]
fn soak_databases_with_stalls() {
    databases(in_all);
}
