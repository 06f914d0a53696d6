//! Probes at the TLS library of this host: an HTTPS server and a client, both of Python, which uses
//! OpenSSL, and a program that stands for one of Go. Skipped where programs or rights are missing.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::{ConnectionTracker, ServiceRule, TlsProbeError, TlsProbes, TlsTarget};

use crate::conversation::{counts, settings};

/// Ends a test that hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
const SECRET: &str = "s3cr3t";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls_server.py");

/// Probes see the calls of all processes that use the library, those of other tests included: their
/// plaintext would fill the ring.
static LIBRARY: Mutex<()> = Mutex::new(());

/// A running server. Drop ends it and removes its certificate.
struct HttpsServer {
    _library: MutexGuard<'static, ()>,
    process: Child,
    port: u16,
    directory: PathBuf,
}

impl HttpsServer {
    /// `name` is that of the test. The error is why the test is skipped.
    fn start(name: &str) -> Result<HttpsServer, String> {
        let library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        let directory =
            std::env::temp_dir().join(format!("topdeck-wire-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let certificate = directory.join("server.pem");
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-nodes", "-subj", "/CN=localhost", "-days", "2"])
            .args(["-keyout".as_ref(), certificate.as_os_str()])
            .args(["-out".as_ref(), directory.join("certificate.pem").as_os_str()])
            .output()
            .map_err(|error| format!("openssl: {error}"))?;
        if !made.status.success() {
            return Err(format!("openssl: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let mut both = fs::read(&certificate).unwrap();
        both.extend(fs::read(directory.join("certificate.pem")).unwrap());
        fs::write(&certificate, both).unwrap();
        let mut process = Command::new("python3")
            .arg(SCRIPT)
            .arg(&certificate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("python3: {error}"))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().parse();
        let mut server = HttpsServer { _library: library, process, port: 0, directory };
        server.port = port.map_err(|_| "python3 has no module ssl".to_owned())?;
        Ok(server)
    }

    /// Sends requests with a secret over one connection, and waits for all responses.
    fn request(&self, size: usize, requests: usize) {
        let status = Command::new("python3")
            .args([
                SCRIPT,
                "client",
                &self.port.to_string(),
                &format!("/bytes/{size}?token={SECRET}"),
            ])
            .arg(requests.to_string())
            .status()
            .unwrap();
        assert!(status.success());
    }

    fn tracker(&self) -> ConnectionTracker {
        let mut settings = settings();
        settings.rules = vec![ServiceRule::parse(&format!("{}/http", self.port)).unwrap()];
        ConnectionTracker::new(settings)
    }
}

impl Drop for HttpsServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server and probes at its library; `None` if the test is skipped.
fn start(name: &str) -> Option<(HttpsServer, TlsProbes)> {
    let server = match HttpsServer::start(name) {
        Ok(server) => server,
        Err(reason) => {
            println!("skipped: {reason}");
            return None;
        }
    };
    let probes = open(TlsTarget::Process(server.process.id()))?;
    Some((server, probes))
}

/// Probes at the target; `None` if the test is skipped.
fn open(target: TlsTarget) -> Option<TlsProbes> {
    match TlsProbes::open(&[target]) {
        Ok(probes) => Some(probes),
        // Without the right, or without uprobes in the kernel.
        Err(TlsProbeError::Bpf(reason)) if !reason.contains("verifier") => {
            println!("skipped: {reason}");
            None
        }
        Err(TlsProbeError::Process { cause, .. })
            if cause.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            println!("skipped: cannot read the mapped files of the server: {cause}");
            None
        }
        Err(TlsProbeError::Symbols { path }) => {
            println!("skipped: python3 does not use OpenSSL ({})", path.display());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Reads until `requests` were seen and no more are in flight.
fn read_until(probes: &mut TlsProbes, tracker: &mut ConnectionTracker, requests: u64) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        probes.read(&mut |event| tracker.read_tls(event));
        let (measured, not_measured, in_flight) = counts(tracker);
        if measured + not_measured >= requests && in_flight == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{:?} {:?}", counts(tracker), tracker.tls_totals());
        std::thread::yield_now();
    }
}

#[test]
fn each_request_is_measured_once() {
    const REQUESTS: u64 = 50;
    let Some((server, mut probes)) = start("once") else { return };
    let mut tracker = server.tracker();
    server.request(2_000, REQUESTS as usize);
    read_until(&mut probes, &mut tracker, REQUESTS);
    assert_eq!(counts(&tracker), (REQUESTS, 0, 0));
    let service = &tracker.services()[0];
    assert_eq!(service.name, format!("127.0.0.1:{}", server.port));
    let statements = service.statements.statements();
    assert_eq!((&*statements[0].verb, &*statements[0].statement), ("GET", "/bytes/{n}"));
    assert_eq!(statements.len(), 1, "the secret is in no statement");
    assert_eq!((service.completeness.gaps, probes.lost_events()), (0, 0));
    // Those of the client, whose library is the same file, were not counted again.
    assert!(tracker.tls_totals().other_end_bytes >= 2_000 * (REQUESTS - 1));
}

#[test]
fn large_responses_are_measured_or_counted() {
    let Some((server, mut probes)) = start("large") else { return };
    let mut tracker = server.tracker();
    server.request(100_000, 10);
    read_until(&mut probes, &mut tracker, 10);
    assert_eq!(counts(&tracker), (10, 0, 0));
    // One call of the library with more than is copied: a gap in a body of known size.
    server.request(1_000_000, 10);
    read_until(&mut probes, &mut tracker, 20);
    let (measured, not_measured, in_flight) = counts(&tracker);
    assert_eq!((measured + not_measured, in_flight), (20, 0));
    let found = &tracker.services()[0].completeness;
    assert!(found.gap_bytes > 10 * 800_000, "{found:?}");
    // What follows on a new connection is whole again.
    server.request(10, 5);
    read_until(&mut probes, &mut tracker, 25);
    assert_eq!(counts(&tracker).0, measured + 5);
}

#[test]
fn probes_find_the_libraries_of_running_processes() {
    let server = match HttpsServer::start("late") {
        Ok(server) => server,
        Err(reason) => return println!("skipped: {reason}"),
    };
    server.request(10, 3);
    let Ok(mut probes) = TlsProbes::open(&[TlsTarget::Auto]) else {
        return println!("skipped: no right to attach probes");
    };
    let mut tracker = server.tracker();
    server.request(10, 3);
    read_until(&mut probes, &mut tracker, 3);
    assert_eq!(counts(&tracker), (3, 0, 0));
    assert!(!probes.files().is_empty());
}

#[test]
fn what_a_full_ring_loses_is_counted_and_the_next_connection_is_whole() {
    let Some((server, mut probes)) = start("full") else { return };
    let mut tracker = server.tracker();
    // Client and server have more plaintext than the ring, which nobody reads.
    server.request(1_000_000, 40);
    probes.read(&mut |event| tracker.read_tls(event));
    assert!(probes.lost_events() > 0);
    let before = counts(&tracker).0;
    server.request(10, 5);
    let deadline = Instant::now() + TIMEOUT;
    while counts(&tracker).0 < before + 5 {
        probes.read(&mut |event| tracker.read_tls(event));
        assert!(Instant::now() < deadline, "{:?} {:?}", counts(&tracker), tracker.tls_totals());
        std::thread::yield_now();
    }
    let (measured, not_measured, in_flight) = counts(&tracker);
    assert_eq!(measured, before + 5);
    assert!(measured + not_measured + in_flight <= 45);
}

/// A program that probes take for one of Go with `crypto/tls`: `testdata/wire/go_program.s`.
const GO_PROGRAM: &[u8] =
    include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wire/go_program"));
const GO_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea";

/// Starts the program with a connection as its input, of which it returns the other end.
fn start_go_program(program: &Path) -> std::io::Result<(Child, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    client.set_read_timeout(Some(TIMEOUT))?;
    let server = OwnedFd::from(listener.accept()?.0);
    loop {
        match Command::new(program).stdin(server.try_clone()?).spawn() {
            // A process that another test has just forked still has the file open for writing.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                std::thread::yield_now();
            }
            process => return Ok((process?, client)),
        }
    }
}

#[test]
fn requests_of_a_program_of_go_are_measured_once() {
    const REQUESTS: u64 = 50;
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: the program is of x86-64");
    }
    let directory = std::env::temp_dir().join(format!("topdeck-wire-go-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let program = directory.join("go_program");
    fs::write(&program, GO_PROGRAM).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    // Before the process: the probes are at the file.
    let probes = open(TlsTarget::File(program.clone()));
    let started = probes.map(|probes| (probes, start_go_program(&program)));
    fs::remove_dir_all(&directory).unwrap();
    let (mut probes, mut process, mut client) = match started {
        Some((probes, Ok((process, client)))) => (probes, process, client),
        Some((_, Err(error))) => return println!("skipped: cannot start a program: {error}"),
        None => return,
    };
    for number in 0..REQUESTS {
        let request = format!("GET /go/{number}?token={SECRET} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let mut response = vec![0; GO_RESPONSE.len()];
        client.read_exact(&mut response).unwrap();
        assert_eq!(response, GO_RESPONSE);
    }
    let port = client.peer_addr().unwrap().port();
    drop(client);
    assert!(process.wait().unwrap().success());
    let mut settings = settings();
    settings.rules = vec![ServiceRule::parse(&format!("{port}/http")).unwrap()];
    let mut tracker = ConnectionTracker::new(settings);
    read_until(&mut probes, &mut tracker, REQUESTS);
    assert_eq!(counts(&tracker), (REQUESTS, 0, 0));
    let service = &tracker.services()[0];
    let statements = service.statements.statements();
    assert_eq!((&*statements[0].verb, &*statements[0].statement), ("GET", "/go/{n}"));
    assert_eq!((statements.len(), service.completeness.gaps), (1, 0));
    let totals = tracker.tls_totals();
    let missed = totals.without_socket_bytes + totals.without_service_bytes;
    assert_eq!((totals.sessions, missed, probes.lost_events()), (1, 0, 0));
}
