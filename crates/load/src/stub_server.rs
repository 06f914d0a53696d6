//! Stub server with a known service time, in parallel or one request after the other, which stalls
//! on demand. The calibration and tests measure the generator against it.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use protocol::http1::RequestParser;
use slab::Slab;

use crate::load_protocol::LoadProtocol;
use crate::observer::Observer;
use crate::oracle::ServerStall;
use crate::poller::Poller;
use crate::protocols::{EchoProtocol, Http1Protocol};
use crate::target::Target;

/// Protocol of a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StubProtocol {
    /// Sends back what it receives.
    Echo,
    /// HTTP/1.1: a response with five bytes to each request.
    Http1,
}

/// Service time model of a stub.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceModel {
    /// Time per response. Nanoseconds.
    pub service_ns: u64,
    /// One request at a time, so that a queue can form.
    pub is_serial: bool,
    /// Polls without sleeping: its wake-up latency is not in the times. Uses a CPU.
    pub is_spinning: bool,
}

const HTTP_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// Interval of checks for shutdown.
const STOP_CHECK_NS: u64 = 20_000_000;
const LISTENER: usize = usize::MAX - 1;

/// A server in its own thread, until it is dropped.
pub struct StubServer {
    address: SocketAddr,
    protocol: StubProtocol,
    control: Arc<StubControl>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct StubControl {
    is_stopped: AtomicBool,
    /// Clock times of a stall.
    stall: Mutex<Option<(u64, u64)>>,
    received: AtomicU64,
    responses: AtomicU64,
    max_lateness_ns: AtomicU64,
}

impl StubServer {
    /// Starts a stub with a constant service time, on a free port.
    pub fn start(protocol: StubProtocol, service_ns: u64) -> io::Result<StubServer> {
        StubServer::with_model(protocol, ServiceModel { service_ns, ..ServiceModel::default() })
    }

    /// Starts a stub with this service time model.
    pub fn with_model(protocol: StubProtocol, model: ServiceModel) -> io::Result<StubServer> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        // The longest backlog that the kernel allows.
        rustix::net::listen(&listener, i32::MAX)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let poller = Poller::new(Poller::WAKEUP_LATENCY_NS)?;
        poller.add(&listener, LISTENER, false)?;
        let control = Arc::new(StubControl::default());
        let server = StubEventLoop {
            listener,
            poller,
            protocol,
            model,
            busy_until: 0,
            control: Arc::clone(&control),
            clients: Slab::new(),
            due_responses: VecDeque::new(),
            number: 0,
            stalled_until_ns: None,
        };
        let thread = thread::Builder::new().name("stub".to_owned()).spawn(|| server.serve())?;
        Ok(StubServer { address, protocol, control, thread: Some(thread) })
    }

    /// Listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests received.
    pub fn received(&self) -> u64 {
        self.control.received.load(Ordering::Relaxed)
    }

    /// Responses sent.
    pub fn responses(&self) -> u64 {
        self.control.responses.load(Ordering::Relaxed)
    }

    /// The target of runs against it.
    pub(crate) fn target(&self) -> Target {
        let protocol: Arc<dyn LoadProtocol> = match self.protocol {
            StubProtocol::Echo => Arc::new(EchoProtocol),
            StubProtocol::Http1 => Arc::new(Http1Protocol { authority: self.address.to_string() }),
        };
        let (host, port) = (self.address.ip().to_string(), self.address.port());
        Target { protocol, host, port, is_tls: false, is_verified: true }
    }

    /// Maximum lateness of a response or of the end of a stall: added by this machine. Nanoseconds.
    pub(crate) fn max_lateness_ns(&self) -> u64 {
        self.control.max_lateness_ns.load(Ordering::Relaxed)
    }

    /// Schedules a stall between these clock times.
    pub(crate) fn stall_between(&self, from_ns: u64, to_ns: u64) {
        *self.control.stall.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some((from_ns, to_ns));
    }
}

/// Stalls the stub for a part of a run.
pub struct StallOnRunStart<'a>(pub &'a StubServer, pub ServerStall);

impl Observer for StallOnRunStart<'_> {
    fn run_started(&mut self, start_ns: u64, _start_unix_ns: i64) {
        self.0.stall_between(start_ns + self.1.from_ns, start_ns + self.1.to_ns);
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.control.is_stopped.store(true, Ordering::Relaxed);
        // A stub that panicked did not respond: measurements with it are invalid.
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

struct StubEventLoop {
    listener: TcpListener,
    poller: Poller,
    protocol: StubProtocol,
    model: ServiceModel,
    /// When the last response is due.
    busy_until: u64,
    control: Arc<StubControl>,
    clients: Slab<StubClient>,
    /// Responses in order of due time: when, client, its number, bytes.
    due_responses: VecDeque<(u64, usize, u64, Vec<u8>)>,
    number: u64,
    /// End of the current stall.
    stalled_until_ns: Option<u64>,
}

struct StubClient {
    socket: TcpStream,
    /// Tells it from earlier clients with the same key.
    number: u64,
    /// Of HTTP/1.1.
    parser: RequestParser,
}

impl StubEventLoop {
    fn serve(mut self) {
        let mut buffer = vec![0; 64 << 10];
        while !self.control.is_stopped.load(Ordering::Relaxed) {
            let now = clock::now();
            let stall = *self.control.stall.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some((_, to)) = stall.filter(|(from, to)| (*from..*to).contains(&now)) {
                // In short sleeps, so that shutdown is not delayed.
                self.stalled_until_ns = Some(to);
                thread::sleep(Duration::from_nanos((to - now).min(STOP_CHECK_NS)));
                continue;
            }
            if let Some(stall_end) = self.stalled_until_ns.take() {
                self.record_lateness(stall_end, now);
            }
            while self.due_responses.front().is_some_and(|one| one.0 <= now) {
                if let Some((due, key, number, respond)) = self.due_responses.pop_front() {
                    let stalled = stall.filter(|(from, to)| (*from..*to).contains(&due));
                    self.record_lateness(stalled.map_or(due, |(_, to)| to), now);
                    self.respond(key, number, &respond);
                }
            }
            let mut until =
                self.due_responses.front().map_or(u64::MAX, |one| one.0).min(now + STOP_CHECK_NS);
            if let Some((from, _)) = stall.filter(|(from, _)| *from > now) {
                until = until.min(from);
            }
            if self.model.is_spinning {
                until = now;
            }
            self.poller.wait(until);
            // The stall began during the wait: events belong to after it.
            if stall.is_some_and(|(from, to)| (from..to).contains(&clock::now())) {
                continue;
            }
            for number in 0..self.poller.len() {
                match self.poller.event(number) {
                    Some((LISTENER, _)) => self.accept(),
                    Some((key, _)) if self.clients.contains(key) => self.read(key, &mut buffer),
                    _ => {}
                }
            }
        }
    }

    fn record_lateness(&self, due_ns: u64, now: u64) {
        self.control.max_lateness_ns.fetch_max(now.saturating_sub(due_ns), Ordering::Relaxed);
    }

    fn accept(&mut self) {
        // One system call per connection: after a stall thousands are pending.
        let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            let (socket, entry) = (TcpStream::from(socket), self.clients.vacant_entry());
            if self.poller.add(&socket, entry.key(), false).is_ok() {
                self.number += 1;
                let parser = RequestParser::default();
                entry.insert(StubClient { socket, number: self.number, parser });
            }
        }
    }

    fn read(&mut self, key: usize, buffer: &mut [u8]) {
        let client = &mut self.clients[key];
        let length = match client.socket.read(buffer) {
            Ok(length) if length > 0 => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            _ => {
                self.clients.remove(key);
                return;
            }
        };
        let (now, number) = (clock::now(), client.number);
        let mut due_ns = || {
            let begins = if self.model.is_serial { now.max(self.busy_until) } else { now };
            self.busy_until = begins + self.model.service_ns;
            self.busy_until
        };
        match self.protocol {
            StubProtocol::Echo => {
                self.control.received.fetch_add(1, Ordering::Relaxed);
                self.due_responses.push_back((due_ns(), key, number, buffer[..length].to_vec()));
            }
            StubProtocol::Http1 => {
                let mut bytes = &buffer[..length];
                loop {
                    match client.parser.read(&mut bytes) {
                        Ok(Some(_)) => {
                            self.control.received.fetch_add(1, Ordering::Relaxed);
                            self.due_responses.push_back((
                                due_ns(),
                                key,
                                number,
                                HTTP_RESPONSE.to_vec(),
                            ));
                        }
                        Ok(None) => break,
                        Err(_) => {
                            self.clients.remove(key);
                            break;
                        }
                    }
                }
            }
        }
        if self.model.service_ns == 0 {
            while let Some((_, key, number, respond)) = self.due_responses.pop_front() {
                self.respond(key, number, &respond);
            }
        }
    }

    fn respond(&mut self, key: usize, number: u64, respond: &[u8]) {
        let client = self.clients.get_mut(key).filter(|client| client.number == number);
        // Responses to a client that does not read are lost; they are far smaller than a socket
        // buffer.
        if let Some(client) = client
            && client.socket.write_all(respond).is_err()
        {
            self.clients.remove(key);
        }
        self.control.responses.fetch_add(1, Ordering::Relaxed);
    }
}
