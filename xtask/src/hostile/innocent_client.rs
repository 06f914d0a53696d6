//! The innocent client: sends data and queries, verifies the answers, and measures latencies.

use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use super::client::{AttackResponse, KeepAliveConnection};

/// Name of its metric.
pub(super) const METRIC: &str = "innocent";
/// Its producer ID, used by no other client.
const PRODUCER: u64 = 0x1220_ce27;
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(15);

/// An innocent client of one server.
pub(super) struct InnocentClient {
    token: String,
    epochs: AtomicU64,
    /// Values sent, and those of them that were acknowledged.
    sent: AtomicU64,
    acknowledged: AtomicU64,
}

/// Observations of the client during an interval.
#[derive(Default)]
pub(super) struct ClientLatencies {
    pub(super) ingest: Vec<Duration>,
    pub(super) query: Vec<Duration>,
    pub(super) status: Vec<Duration>,
    /// Retries: responses of 429 or 503, or a closed connection.
    pub(super) deferred: u64,
    /// Defects of the server.
    pub(super) errors: Vec<String>,
}

impl InnocentClient {
    pub(super) fn new(token: &str) -> InnocentClient {
        InnocentClient {
            token: format!("Bearer {token}"),
            epochs: AtomicU64::new(1),
            sent: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        }
    }

    /// Number of acknowledged values, which must be stored.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Sends and queries while `action` runs; `address` returns the current address of the server.
    pub(super) fn run_during<T>(
        &self,
        address: &(impl Fn() -> SocketAddr + Sync),
        action: impl FnOnce() -> T,
    ) -> (T, ClientLatencies) {
        let is_over = AtomicBool::new(false);
        let experience = Mutex::new(ClientLatencies::default());
        let value = thread::scope(|scope| {
            scope.spawn(|| self.run_ingest(address, &is_over, &experience));
            scope.spawn(|| self.run_queries(address, &is_over, &experience));
            let value = action();
            is_over.store(true, Ordering::SeqCst);
            value
        });
        (value, experience.into_inner().expect("BUG: a client panicked"))
    }

    fn run_ingest(
        &self,
        address: &impl Fn() -> SocketAddr,
        is_over: &AtomicBool,
        experience: &Mutex<ClientLatencies>,
    ) {
        let boot = self.epochs.fetch_add(1, Ordering::SeqCst);
        let mut line = ReconnectingClient::new(address, experience);
        let mut sequence = 0;
        // At least one batch; each is retried until it is acknowledged.
        while sequence == 0 || !is_over.load(Ordering::SeqCst) {
            sequence += 1;
            let count = 1 + sequence % 7;
            let body: String = (0..count).map(|at| format!("{}\n", 1 + at * sequence)).collect();
            let batch = format!("{PRODUCER:016x}/{boot}/{sequence}");
            let headers = [("Authorization", self.token.as_str()), ("Topdeck-Batch", &batch)];
            let path = format!("/v1/record?metric={METRIC}");
            self.sent.fetch_add(count, Ordering::SeqCst);
            let began = Instant::now();
            while !line.request_ok("POST", &path, &headers, body.as_bytes(), |into, time| {
                into.ingest.push(time)
            }) {
                if began.elapsed() > super::client::SILENCE_TIMEOUT {
                    line.record_error(format!(
                        "{batch} was not accepted within {:?}",
                        began.elapsed()
                    ));
                    return;
                }
                sleep(PAUSE);
            }
            self.acknowledged.fetch_add(count, Ordering::SeqCst);
            sleep(PAUSE);
        }
    }

    fn run_queries(
        &self,
        address: &impl Fn() -> SocketAddr,
        is_over: &AtomicBool,
        experience: &Mutex<ClientLatencies>,
    ) {
        let mut line = ReconnectingClient::new(address, experience);
        let headers = [("Authorization", self.token.as_str())];
        let path = format!("/v1/histogram?selector={METRIC}");
        while !is_over.load(Ordering::SeqCst) {
            let answer =
                line.request("GET", &path, &headers, b"", |into, time| into.query.push(time));
            if let Some(answer) = answer {
                let sent = self.sent.load(Ordering::SeqCst);
                match count(&answer) {
                    Ok(count) if count <= sent => {}
                    Ok(count) => line.record_error(format!("{count} of {sent} values are stored")),
                    Err(error) => line.record_error(format!("cannot query the count: {error}")),
                }
            }
            sleep(PAUSE);
            line.request("GET", "/v1/status", &headers, b"", |into, time| into.status.push(time));
            line.request("GET", "/health", &[], b"", |_, _| ());
            sleep(PAUSE);
        }
    }
}

/// Count of a distribution; 0 if the metric does not exist yet.
pub(super) fn count(answer: &AttackResponse) -> io::Result<u64> {
    match answer.status {
        404 => Ok(0),
        200 => {
            let count = answer.json()?["count"].as_u64();
            count.ok_or_else(|| io::Error::other(answer.text()))
        }
        status => Err(io::Error::other(format!("{status}: {}", answer.text()))),
    }
}

/// A client that reconnects after an error.
struct ReconnectingClient<'a, A> {
    address: &'a A,
    latencies: &'a Mutex<ClientLatencies>,
    connection: Option<KeepAliveConnection>,
}

impl<'a, A: Fn() -> SocketAddr> ReconnectingClient<'a, A> {
    fn new(address: &'a A, experience: &'a Mutex<ClientLatencies>) -> ReconnectingClient<'a, A> {
        ReconnectingClient { address, latencies: experience, connection: None }
    }

    fn record_error(&self, what: String) {
        let mut experience = self.latencies.lock().expect("BUG: a client panicked");
        // Further errors add nothing.
        if experience.errors.len() < 5 {
            experience.errors.push(what);
        }
    }

    fn request_ok(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        note: impl FnOnce(&mut ClientLatencies, Duration),
    ) -> bool {
        self.request(method, path, headers, body, note).is_some()
    }

    /// Returns a successful response, or `None` if the request has to be retried.
    fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        note: impl FnOnce(&mut ClientLatencies, Duration),
    ) -> Option<AttackResponse> {
        let began = Instant::now();
        let connection = match self.connection.take() {
            Some(connection) => Ok(connection),
            None => KeepAliveConnection::open((self.address)()),
        };
        let answer = connection.and_then(|mut connection| {
            let answer = connection.request(method, path, headers, body)?;
            self.connection = Some(connection);
            Ok(answer)
        });
        let mut experience = self.latencies.lock().expect("BUG: a client panicked");
        match answer {
            Ok(answer) if answer.status == 200 || method == "GET" && answer.status == 404 => {
                note(&mut experience, began.elapsed());
                drop(experience);
                return Some(answer);
            }
            Ok(answer) if matches!(answer.status, 429 | 503) => experience.deferred += 1,
            Ok(answer) => {
                drop(experience);
                self.record_error(format!("{method} {path}: {}: {}", answer.status, answer.text()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                drop(experience);
                self.record_error(format!(
                    "{method} {path}: no response within {:?}",
                    began.elapsed()
                ));
            }
            Err(_) => experience.deferred += 1,
        }
        None
    }
}
