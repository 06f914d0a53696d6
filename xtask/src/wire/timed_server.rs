//! An HTTP server and a client of this process that both know how long each request takes: the
//! truth for latencies, whose resolution is milliseconds in the log of nginx.
//!
//! A server that waits in `read` runs some time after a request has arrived, which is a part of the
//! packets' times. One that polls its socket on a CPU of its own has read a request as soon as it
//! is there: its times are compared with the target for the error of quantiles.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::http_session::{HttpSession, request};
use super::load_truth::{LoadTruth, OperationSelector};
use super::server_process::{ADDRESS, find_program};
use super::{ObservedServer, ProvidedServer, ServerLoad};
use crate::part_log::PartLog;

const CONNECTIONS: usize = 4;
/// Requests of each connection.
const REQUESTS: usize = 5_000;
/// The server works for 0 to 19 such steps, one after the other.
const WORK_STEP: Duration = Duration::from_micros(10);
const WORK_STEPS: usize = 20;
/// Largest error of a quantile, unless a bucket is wider.
const TARGET_NS: u64 = 10_000;
/// CPU of the server that polls, and of its client.
const POLLING_CPU: &str = "0";
const CLIENT_CPU: &str = "1";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntea";

pub(super) fn start(_: &PartLog, _: &Path) -> Result<ProvidedServer> {
    let listener = TcpListener::bind((ADDRESS, 0)).context("cannot bind a loopback port")?;
    let port = listener.local_addr()?.port();
    let polled = listener.try_clone()?;
    let (load, polling) = (move || run(&listener, port), move || run_polling(&polled, port));
    Ok(Ok(ObservedServer {
        protocol: "http",
        port,
        tls: None,
        loads: vec![
            ServerLoad::new("20,000 timed requests", load),
            ServerLoad::new("5,000 requests to a polling server", polling),
        ],
        storm: None,
        steady: None,
        _process: None,
    }))
}

fn run(listener: &TcpListener, port: u16) -> Result<LoadTruth> {
    let clients: Vec<HttpSession> =
        (0..CONNECTIONS).map(|_| HttpSession::connect(port)).collect::<Result<_>>()?;
    let servers: Vec<TcpStream> =
        (0..CONNECTIONS).map(|_| Ok(listener.accept()?.0)).collect::<Result<_>>()?;
    let (mut client_ns, mut server_ns) = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let servers: Vec<_> =
            servers.into_iter().map(|stream| scope.spawn(move || serve(stream))).collect();
        let clients: Vec<_> =
            clients.into_iter().map(|session| scope.spawn(move || ask(session))).collect();
        for client in clients {
            client_ns.extend(client.join().expect("BUG: a client panicked")?);
        }
        for server in servers {
            server_ns.extend(server.join().expect("BUG: a server panicked")?);
        }
        anyhow::Ok(())
    })?;
    let count = client_ns.len();
    ensure!(server_ns.len() == count, "{count} requests, but {} at the server", server_ns.len());
    let truth = LoadTruth::exact(count as u64, OperationSelector::new("GET", "/timed"));
    Ok(LoadTruth { client_ns, server_ns, ..truth })
}

/// One connection to a server that polls.
fn run_polling(listener: &TcpListener, port: u16) -> Result<LoadTruth> {
    let session = HttpSession::connect(port)?;
    let stream = listener.accept()?.0;
    let (client_ns, server_ns) = thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin_thread(POLLING_CPU);
            stream.set_nonblocking(true)?;
            serve(stream)
        });
        let client = scope.spawn(move || {
            pin_thread(CLIENT_CPU);
            ask(session)
        });
        let client_ns = client.join().expect("BUG: a client panicked");
        let server_ns = server.join().expect("BUG: a server panicked");
        anyhow::Ok((client_ns?, server_ns?))
    })?;
    let truth = LoadTruth::exact(client_ns.len() as u64, OperationSelector::new("GET", "/timed"));
    Ok(LoadTruth { client_ns, server_ns, target_ns: Some(TARGET_NS), ..truth })
}

/// Runs this thread on a CPU alone, if that is possible.
fn pin_thread(cpu: &str) {
    let thread = std::fs::read_link("/proc/thread-self");
    let id = thread.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    if let (Some(taskset), Some(id)) = (find_program("taskset"), id) {
        // Without it, the target is missed.
        let _ = Command::new(taskset).args(["-pc", cpu, &id]).output();
    }
}

/// Answers requests until the client closes the connection. Returns the times from after a request
/// is read to before the response is written.
fn serve(mut stream: TcpStream) -> Result<Vec<u64>> {
    stream.set_nodelay(true)?;
    let (mut times, mut buffer, mut length) = (Vec::with_capacity(REQUESTS), [0; 1_024], 0);
    loop {
        let read = match stream.read(&mut buffer[length..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            outcome => outcome?,
        };
        let start = Instant::now();
        if read == 0 {
            return Ok(times);
        }
        length += read;
        if !buffer[..length].ends_with(b"\r\n\r\n") {
            continue;
        }
        length = 0;
        let work = WORK_STEP * (times.len() % WORK_STEPS) as u32;
        while start.elapsed() < work {
            std::hint::spin_loop();
        }
        times.push(start.elapsed().as_nanos() as u64);
        stream.write_all(RESPONSE)?;
    }
}

fn ask(mut session: HttpSession) -> Result<Vec<u64>> {
    let request = request("GET", "/timed");
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let start = Instant::now();
        session.send(&request)?;
        session.read_response(false)?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
