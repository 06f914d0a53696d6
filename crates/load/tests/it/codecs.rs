//! Codecs against real servers: first alone over a blocking socket, then in a run.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use load::{
    ArrivalProcess, Codec, Completion, Failure, RenderedRequest, RequestTemplate, Requests,
    RunResult, Schedule, Settings, Target, Template,
};

use crate::fixture;
use crate::servers::{self, ADDRESS, Dir, Hyper, OTHER_ADDRESS};

/// A codec with a connection.
struct Exchange {
    codec: Box<dyn Codec>,
    stream: TcpStream,
    ended: Vec<Completion>,
    request_id: u32,
}

impl Exchange {
    /// Opens a connection and waits until it is ready.
    fn open(target: &str) -> Result<Exchange, Failure> {
        let (target, _) = Target::parse(target).unwrap();
        let stream = TcpStream::connect((target.host.as_str(), target.port));
        let stream = stream.map_err(|error| Failure::of(&error))?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let codec = target.protocol.codec();
        let mut talk = Exchange { codec, stream, ended: Vec::new(), request_id: 0 };
        let mut out = Vec::new();
        talk.codec.open(&mut out);
        talk.write(&out)?;
        while talk.codec.capacity() == 0 {
            talk.read()?;
        }
        Ok(talk)
    }

    /// The same, for a server that is still starting.
    fn patient(target: &str) -> Exchange {
        for _ in 0..6_000 {
            if let Ok(talk) = Exchange::open(target) {
                return talk;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not take connections");
    }

    fn write(&mut self, out: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(out).map_err(|error| Failure::of(&error))
    }

    fn read(&mut self) -> Result<(), Failure> {
        let mut buffer = [0; 20_000];
        let length = self.stream.read(&mut buffer).map_err(|error| Failure::of(&error))?;
        if length == 0 {
            self.codec.close(&mut self.ended);
            return Err(Failure::Closed);
        }
        let mut out = Vec::new();
        self.codec.receive(&buffer[..length], &mut out, &mut self.ended)?;
        self.write(&out)
    }

    /// Outcome of a request; an error if the connection ends with it.
    fn ask(&mut self, request: &RenderedRequest) -> Result<Option<Failure>, Failure> {
        self.request_id += 1;
        let mut out = Vec::new();
        self.codec.send(request, self.request_id, &mut out);
        self.write(&out)?;
        while self.ended.is_empty() {
            self.read()?;
        }
        let one = self.ended.remove(0);
        assert!(one.request_id == self.request_id && self.ended.is_empty());
        Ok(one.failure)
    }

    #[track_caller]
    fn check(&mut self, request: &RenderedRequest, expected: Option<Failure>) {
        assert_eq!(self.ask(request), Ok(expected), "{request:?}");
    }
}

fn words(words: &[&str]) -> RenderedRequest {
    let arguments = words.iter().map(|one| one.as_bytes().to_vec()).collect();
    RenderedRequest { arguments, ..RenderedRequest::default() }
}

fn sql(sql: &str, arguments: &[&str]) -> RenderedRequest {
    RenderedRequest { body: sql.as_bytes().to_vec(), ..words(arguments) }
}

fn http(method: &str, path: &str, body: Vec<u8>) -> RenderedRequest {
    let (method, path) = (method.to_owned(), path.to_owned());
    RenderedRequest { method, path, body, ..RenderedRequest::default() }
}

const STATUS: Option<Failure> = Some(Failure::Status);

/// A run of half a second without failures.
#[track_caller]
fn run(target: &str, request: RequestTemplate) {
    run_with(net::tls::ClientTls::default(), target, request);
}

#[track_caller]
fn run_with(tls: net::tls::ClientTls, target: &str, request: RequestTemplate) {
    // A machine that stalls for as long as a run lasts sends nothing in it.
    let has_completed = [500_000_000, 5_000_000_000].into_iter().any(|duration_ns| {
        let found = found_within(duration_ns, tls.clone(), target, request.clone());
        let tally = found.unwrap().tally;
        assert_eq!((tally.failures(), tally.unfinished), (0, 0), "{:?}", tally.failed);
        assert_eq!(tally.accounted(), tally.scheduled);
        tally.completed > 0
    });
    assert!(has_completed, "no request was sent");
}

/// Result of a run of half a second.
fn found_with(
    tls: net::tls::ClientTls,
    target: &str,
    request: RequestTemplate,
) -> Result<RunResult, load::Error> {
    found_within(500_000_000, tls, target, request)
}

fn found_within(
    duration_ns: u64,
    tls: net::tls::ClientTls,
    target: &str,
    request: RequestTemplate,
) -> Result<RunResult, load::Error> {
    let schedule = Schedule::constant(400.0, duration_ns, ArrivalProcess::Poisson { seed: 1 });
    let settings = Settings {
        tls,
        requests: Requests::single(request),
        connections: 4,
        max_connections: 100,
        grace_period_ns: 60_000_000_000,
        ..fixture::settings(target, schedule)
    };
    load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ())
}

#[test]
fn postgres() {
    let Some(server) = servers::postgres() else { return };
    let target = |user: &str, more: &str| {
        format!("postgres://{user}@127.0.0.1:{}/postgres{more}", server.port)
    };
    let mut talk = Exchange::patient(&target("postgres", ""));
    for (text, expected) in [
        ("select 1", None),
        ("", None),
        ("select nothing", STATUS),
        ("select 1; select 2", None),
        ("select repeat('x', 1000000) from generate_series(1, 20)", None),
        ("create table t (a int)", None),
        ("do $$ begin raise notice 'a'; end $$", None),
        ("notify a; listen a; notify a", None),
        ("copy t from stdin", STATUS),
        ("copy (select generate_series(1, 1000)) to stdout", None),
        ("select 'a\0b'", Some(Failure::Malformed)),
        ("select 1", None),
    ] {
        talk.check(&sql(text, &[]), expected);
    }
    talk.check(&sql("select $1::int + $2::int", &["1", "41"]), None);
    talk.check(&sql("select $1::int", &["a"]), STATUS);
    talk.check(&sql("copy t from stdin", &["a"]), STATUS);
    talk.check(&sql("select 1", &[]), None);

    let mut prepared = Exchange::open(&target("postgres", "?prepared=true")).unwrap();
    let one = sql("select 1 / $1::int", &["1"]);
    prepared.check(&sql("select nothing", &[]), STATUS);
    for _ in 0..3 {
        prepared.check(&one, None);
    }
    prepared.check(&sql("select 1 / $1::int", &["0"]), STATUS);
    prepared.check(&one, None);
    // Fails unless there is exactly one.
    let known = "select 1 / (count(*) = 1)::int from pg_prepared_statements where name = 's0'";
    let known = RenderedRequest { index: 1, ..sql(known, &[]) };
    prepared.check(&known, None);
    prepared.check(&sql("copy t from stdin", &[]), STATUS);
    prepared.check(&known, None);

    for (role, way) in [("plain", "scram-sha-256"), ("old", "md5"), ("new", "scram-sha-256")] {
        let text =
            format!("set password_encryption = '{way}'; create role {role} login password 'p:/ü'");
        talk.check(&sql(&text, &[]), None);
        let mut other = Exchange::open(&target(&format!("{role}:p%3A%2F%C3%BC"), "")).unwrap();
        other.check(&sql("select 1", &[]), None);
        for wrong in [role.to_owned(), format!("{role}:x")] {
            assert_eq!(Exchange::open(&target(&wrong, "")).err(), Some(Failure::Status), "{wrong}");
        }
    }

    // The server closes: the request fails for that reason, or with the connection.
    assert_eq!(
        prepared.ask(&sql("select pg_terminate_backend(pg_backend_pid())", &[])),
        Err(Failure::Closed)
    );
    assert_eq!(prepared.ended.pop().unwrap().failure, STATUS);

    let select = |text: &str, arguments: &[&str]| RequestTemplate {
        body: Template::text(text),
        arguments: arguments.iter().map(|one| Template::text(*one)).collect(),
        ..RequestTemplate::default()
    };
    // This role may log in only with TLS.
    let text =
        "set password_encryption = 'scram-sha-256'; create role secure login password 'p:/ü'";
    talk.check(&sql(text, &[]), None);
    assert_eq!(Exchange::open(&target("secure:p%3A%2F%C3%BC", "")).err(), Some(Failure::Status));
    let secure = |mode: &str| {
        let user = "secure:p%3A%2F%C3%BC";
        format!("postgres://{user}@{ADDRESS}:{}/postgres?sslmode={mode}", server.port)
    };
    let none = net::tls::ClientTls::default;
    // Fails unless the session uses TLS.
    let is_in_tls = "select 1 / ssl::int from pg_stat_ssl where pid = pg_backend_pid()";
    run_with(server.tls.clone(), &secure("verify-full"), select(is_in_tls, &[]));
    run_with(none(), &secure("require"), select(is_in_tls, &[]));
    let found = found_with(server.tls.clone(), &secure("require"), select("", &[]));
    assert!(found.unwrap_err().to_string().contains("sslmode=verify-full"));
    // The certificate does not contain this name.
    let other = secure("verify-full").replace(ADDRESS, OTHER_ADDRESS);
    let tally = found_with(server.tls.clone(), &other, select("", &[])).unwrap().tally;
    assert_eq!(tally.failed[Failure::Tls as usize] + tally.not_sent, tally.scheduled);

    run(&target("new:p%3A%2F%C3%BC", ""), select("select 1", &[]));
    run(&target("postgres", "?prepared=true"), select("select $1::int", &["1"]));
}

#[test]
fn redis() {
    let Some(server) = servers::redis() else { return };
    let target = |user: &str, more: &str| format!("redis://{user}127.0.0.1:{}{more}", server.port);
    let mut talk = Exchange::patient(&target(":p%40w@", "/3"));
    for (command, expected) in [
        (&["PING"][..], None),
        (&["SET", "a", "b c"], None),
        (&["GET", "a"], None),
        (&["GET", "nothing"], None),
        (&["INCR", "a"], STATUS),
        (&["NOTHING"], STATUS),
        (&["SETRANGE", "large", "5000000", "x"], None),
        (&["GET", "large"], None),
        (&["EVAL", "return {1, {2, {'a'}, {}}, false}", "0"], None),
        (&["COMMAND"], None),
        (&["HELLO", "3"], None),
        (&["HSET", "h", "a", "1", "b", "2"], None),
        (&["HGETALL", "h"], None),
        (&["CLIENT", "TRACKING", "ON"], None),
        (&["GET", "a"], None),
    ] {
        talk.check(&words(command), expected);
    }
    // Another client's write to this key causes a push message.
    let mut other = Exchange::open(&target("default:p%40w@", "/3")).unwrap();
    other.check(&words(&["SET", "a", "other"]), None);
    talk.read().unwrap();
    talk.check(&words(&["GET", "a"]), None);
    for wrong in [":x@", "nobody:p%40w@"] {
        assert_eq!(Exchange::open(&target(wrong, "")).err(), Some(Failure::Status), "{wrong}");
    }
    assert_eq!(Exchange::open(&target(":p%40w@", "/99")).err(), Some(Failure::Status));

    let command = ["GET", "a"].map(Template::text).to_vec();
    run(
        &target(":p%40w@", ""),
        RequestTemplate { arguments: command, ..RequestTemplate::default() },
    );
}

#[test]
fn http_1_and_2() {
    let server = Hyper::start();
    for scheme in ["http", "h2c"] {
        let target = format!("{scheme}://127.0.0.1:{}", server.port);
        let mut talk = Exchange::open(&target).unwrap();
        talk.check(&http("GET", "/length/0", Vec::new()), None);
        talk.check(&http("GET", "/length/30000000", Vec::new()), None);
        talk.check(&http("HEAD", "/length/30", Vec::new()), None);
        talk.check(&http("GET", "/status/404", Vec::new()), STATUS);
        talk.check(&http("GET", "/status/204", Vec::new()), None);
        talk.check(&http("POST", "/", vec![b'x'; 200_000]), None);
        let request = http("GET", "/length/10", Vec::new());
        talk.check(&request, None);
        let (method, path) = (request.method, Template::text(request.path));
        run(&target, RequestTemplate { method, path, ..RequestTemplate::default() });
    }
}

#[test]
fn in_tls() {
    let dir = Dir::new("tls");
    let server = Hyper::secured(&dir);
    for (scheme, method, path, body) in [
        ("https", "GET", "/length/1000", &b""[..]),
        ("h2", "GET", "/length/1000", b""),
        ("grpcs", "POST", "/a.B/0", b"message"),
    ] {
        let target = format!("{scheme}://{ADDRESS}:{}", server.port);
        let (method, path) = (method.to_owned(), Template::text(path));
        let body = Template::bytes(body);
        run_with(
            server.tls.clone(),
            &target,
            RequestTemplate { method, path, body, ..RequestTemplate::default() },
        );
    }
}

#[test]
fn many_at_once() {
    let server = Hyper::start();
    let mut talk = Exchange::open(&format!("h2c://127.0.0.1:{}", server.port)).unwrap();
    talk.check(&http("GET", "/length/1", Vec::new()), None);
    assert_eq!(talk.codec.capacity(), 20);
    let (mut sent, mut found) = (0, Vec::new());
    while found.len() < 2_000 {
        let mut out = Vec::new();
        while talk.codec.capacity() > 0 && sent < 2_000 {
            talk.codec.send(&http("GET", "/length/1000", Vec::new()), sent, &mut out);
            // Every seventh is cancelled at once.
            if sent % 7 == 0 {
                assert!(talk.codec.cancel(sent, &mut out));
                found.push(sent);
            }
            sent += 1;
        }
        talk.write(&out).unwrap();
        if found.len() < 2_000 {
            talk.read().unwrap();
        }
        assert!(talk.ended.iter().all(|one| one.failure.is_none()));
        found.extend(talk.ended.drain(..).map(|one| one.request_id));
    }
    found.sort_unstable();
    assert!(found.into_iter().eq(0..2_000));
}

#[test]
fn grpc() {
    let server = Hyper::start();
    let target = format!("grpc://127.0.0.1:{}", server.port);
    let mut talk = Exchange::open(&target).unwrap();
    talk.check(&http("POST", "/a.B/0", b"message".to_vec()), None);
    talk.check(&http("POST", "/a.B/0", vec![0xff; 1_000_000]), None);
    talk.check(&http("POST", "/a.B/13", b"message".to_vec()), STATUS);
    // Only a status, in the headers.
    talk.check(&http("POST", "/a.B/5", Vec::new()), STATUS);
    talk.check(&http("POST", "/status/503", Vec::new()), STATUS);
    talk.check(&http("POST", "/length/3", Vec::new()), Some(Failure::Malformed));
    let body = Template::bytes(vec![0x0a, 0xff]);
    run(
        &target,
        RequestTemplate { path: Template::text("/a.B/0"), body, ..RequestTemplate::default() },
    );
}
