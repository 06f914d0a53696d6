//! A stub: a local server whose truth is known. It answers each request after the same time, however many there are or one after the
//! other, and stands still when it is told to. With it the generator is tested, before a run and in tests of its own.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slab::Slab;

use crate::events::Events;
use crate::protocol::Protocol;
use crate::run::Observer;
use crate::truth::Freeze;

/// What a stub answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// What it got.
    Echo,
    /// HTTP/1.1, a body of five bytes, to each head that ends; bodies of requests it does not know.
    Http1,
}

/// How a stub serves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service {
    /// How long an answer takes. Nanoseconds.
    pub ns: u64,
    /// The next is begun when the one before is answered: it can fall behind.
    pub is_in_turn: bool,
    /// It never sleeps, so that its own waking up is not in its times. It takes a processor.
    pub is_awake: bool,
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// How soon it notices that it is to end.
const PATIENCE_NS: u64 = 20_000_000;
const LISTENER: usize = usize::MAX - 1;

/// A server in a thread of its own, until it is dropped.
pub struct Stub {
    address: SocketAddr,
    answers: Answers,
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Control {
    is_over: AtomicBool,
    /// Moments of the clock between which it stands still.
    freeze: Mutex<Option<(u64, u64)>>,
    taken: AtomicU64,
    answered: AtomicU64,
    late_ns: AtomicU64,
}

impl Stub {
    /// Starts one on a port that is free, which answers each request after the same time.
    pub fn start(answers: Answers, service_ns: u64) -> io::Result<Stub> {
        Stub::serving(answers, Service { ns: service_ns, ..Service::default() })
    }

    /// Starts one that serves in this way.
    pub fn serving(answers: Answers, service: Service) -> io::Result<Stub> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        // As many may wait to be accepted as the kernel allows.
        rustix::net::listen(&listener, i32::MAX)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let events = Events::new(Events::WAKING_NS)?;
        events.add(&listener, LISTENER, false)?;
        let control = Arc::new(Control::default());
        let server = Server {
            listener,
            events,
            answers,
            service,
            busy_until: 0,
            control: Arc::clone(&control),
            clients: Slab::new(),
            due: VecDeque::new(),
            number: 0,
            thaws_ns: None,
        };
        let thread = thread::Builder::new().name("stub".to_owned()).spawn(|| server.serve())?;
        Ok(Stub { address, answers, control, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests it has taken.
    pub fn taken(&self) -> u64 {
        self.control.taken.load(Ordering::Relaxed)
    }

    /// How many requests it has answered.
    pub fn answered(&self) -> u64 {
        self.control.answered.load(Ordering::Relaxed)
    }

    /// What is spoken with it.
    pub fn protocol(&self) -> Protocol {
        match self.answers {
            Answers::Echo => Protocol::Echo,
            Answers::Http1 => Protocol::Http1 { authority: self.address.to_string() },
        }
    }

    /// How late it was at the most with an answer, or at the end of a time in which it stood still: what this machine added.
    /// Nanoseconds.
    pub fn late_ns(&self) -> u64 {
        self.control.late_ns.load(Ordering::Relaxed)
    }

    /// It will stand still between these moments of the clock.
    pub fn freeze(&self, from_ns: u64, to_ns: u64) {
        *self.control.freeze.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some((from_ns, to_ns));
    }
}

/// Tells a stub when a run begins: it stands still for a part of it.
pub struct Freezing<'a>(pub &'a Stub, pub Freeze);

impl Observer for Freezing<'_> {
    fn began(&mut self, start_ns: u64, _began_unix_ns: i64) {
        self.0.freeze(start_ns + self.1.from_ns, start_ns + self.1.to_ns);
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    listener: TcpListener,
    events: Events,
    answers: Answers,
    service: Service,
    /// When the last answer that was begun is due.
    busy_until: u64,
    control: Arc<Control>,
    clients: Slab<Client>,
    /// Answers in the order in which they are due: when, to whom, and what.
    due: VecDeque<(u64, usize, u64, Vec<u8>)>,
    number: u64,
    /// Until when it stands still, while it does.
    thaws_ns: Option<u64>,
}

struct Client {
    socket: TcpStream,
    /// Tells it from others that had its place before.
    number: u64,
    /// How many bytes of an end of a head the last ones that came are.
    ends: usize,
}

impl Server {
    fn serve(mut self) {
        let mut buffer = vec![0; 64 << 10];
        while !self.control.is_over.load(Ordering::Relaxed) {
            let now = clock::now();
            let freeze =
                *self.control.freeze.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some((_, to)) = freeze.filter(|(from, to)| (*from..*to).contains(&now)) {
                // In pieces, so that it can end.
                self.thaws_ns = Some(to);
                thread::sleep(Duration::from_nanos((to - now).min(PATIENCE_NS)));
                continue;
            }
            if let Some(thawed) = self.thaws_ns.take() {
                self.late(thawed, now);
            }
            while self.due.front().is_some_and(|one| one.0 <= now) {
                if let Some((due, key, number, answer)) = self.due.pop_front() {
                    let stood = freeze.filter(|(from, to)| (*from..*to).contains(&due));
                    self.late(stood.map_or(due, |(_, to)| to), now);
                    self.answer(key, number, &answer);
                }
            }
            let mut until = self.due.front().map_or(u64::MAX, |one| one.0).min(now + PATIENCE_NS);
            if let Some((from, _)) = freeze.filter(|(from, _)| *from > now) {
                until = until.min(from);
            }
            if self.service.is_awake {
                until = now;
            }
            self.events.wait(until);
            // Not what came when it was to stand still already.
            if freeze.is_some_and(|(from, to)| (from..to).contains(&clock::now())) {
                continue;
            }
            for number in 0..self.events.len() {
                match self.events.get(number) {
                    Some((LISTENER, _)) => self.accept(),
                    Some((key, _)) if self.clients.contains(key) => self.read(key, &mut buffer),
                    _ => {}
                }
            }
        }
    }

    fn late(&self, due_ns: u64, now: u64) {
        self.control.late_ns.fetch_max(now.saturating_sub(due_ns), Ordering::Relaxed);
    }

    fn accept(&mut self) {
        // Each in one system call: after a freeze there are thousands.
        let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
        while let Ok(socket) = rustix::net::accept_with(&self.listener, flags) {
            let (socket, entry) = (TcpStream::from(socket), self.clients.vacant_entry());
            if self.events.add(&socket, entry.key(), false).is_ok() {
                self.number += 1;
                entry.insert(Client { socket, number: self.number, ends: 0 });
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
        let mut due = || {
            let begins = if self.service.is_in_turn { now.max(self.busy_until) } else { now };
            self.busy_until = begins + self.service.ns;
            self.busy_until
        };
        match self.answers {
            Answers::Echo => {
                self.control.taken.fetch_add(1, Ordering::Relaxed);
                self.due.push_back((due(), key, number, buffer[..length].to_vec()));
            }
            Answers::Http1 => {
                for byte in &buffer[..length] {
                    client.ends = match (client.ends, byte) {
                        (0 | 2, b'\r') | (1 | 3, b'\n') => client.ends + 1,
                        (_, b'\r') => 1,
                        _ => 0,
                    };
                    if client.ends == 4 {
                        client.ends = 0;
                        self.control.taken.fetch_add(1, Ordering::Relaxed);
                        self.due.push_back((due(), key, number, ANSWER.to_vec()));
                    }
                }
            }
        }
        if self.service.ns == 0 {
            while let Some((_, key, number, answer)) = self.due.pop_front() {
                self.answer(key, number, &answer);
            }
        }
    }

    fn answer(&mut self, key: usize, number: u64, answer: &[u8]) {
        let client = self.clients.get_mut(key).filter(|client| client.number == number);
        // Who does not read its answers does not get them: they are far smaller than what a socket holds.
        if let Some(client) = client
            && client.socket.write_all(answer).is_err()
        {
            self.clients.remove(key);
        }
        self.control.answered.fetch_add(1, Ordering::Relaxed);
    }
}
