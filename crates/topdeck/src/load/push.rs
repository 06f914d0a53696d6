//! A run that is seen elsewhere while it goes on: each second as a batch for a running topdeck.
//!
//! The run never waits for it. A thread of its own sends; what it cannot hand over it keeps, and tries again with the next second, under the
//! same identity, so that nothing counts twice. What could not be delivered at the end is told.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use collect::{Over, Reading, Unit, Value, frames};
use http::{Method, Request, StatusCode, header};
use load::{Failure, Tally};
use net::Target;
use net::dial::{Allowance, Connection, Dialer, Limits};
use net::tls::ClientTls;

use crate::hist::show::count;
use crate::load::options::RunOptions;
use crate::load::plan::Plan;
use crate::time;

/// Where a batch goes.
const PATH: &str = "/v1/import?format=frames";
/// The header by which a batch that comes again is known.
const BATCH: &str = "topdeck-batch";
/// Seconds on their way to the thread.
const QUEUE: usize = 64;
/// Seconds that are kept until they can be delivered: an hour.
const KEPT_MAX: usize = 3_600;
/// How long each step to the server may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is tried once the run is over.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(500);
const ANSWER_BYTES: usize = 64 << 10;

/// See above.
pub(crate) struct Push {
    sender: SyncSender<Batch>,
    thread: JoinHandle<Outcome>,
    labels: Vec<(String, String)>,
    to: String,
    name: String,
    producer: u64,
    began_unix_ns: i64,
    before_ns: u64,
    sequence: u64,
}

/// What became of it.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) to: String,
    /// The label `run`.
    pub(crate) run: String,
    /// Seconds that there were.
    pub(crate) seconds: u64,
    pub(crate) delivered: u64,
    /// Why not all.
    pub(crate) trouble: Option<String>,
}

impl Pushed {
    pub(crate) fn words(&self) -> String {
        let Pushed { to, run, seconds, delivered, trouble } = self;
        let all = count(*seconds);
        if delivered == seconds {
            return format!(
                "pushed to {to}: all {all} seconds, as load_response{{run={run:?}}} and others"
            );
        }
        let why = trouble.as_deref().unwrap_or("there was no time for all");
        format!(
            "pushed to {to}: {} of {all} seconds were NOT delivered: {why}",
            count(seconds - delivered)
        )
    }
}

/// A second, ready to be sent.
struct Batch {
    identity: String,
    body: Bytes,
}

/// What the thread comes to.
#[derive(Default)]
struct Outcome {
    delivered: u64,
    trouble: Option<String>,
}

impl Push {
    pub(crate) fn start(to: &Target, options: &RunOptions, plan: &Plan) -> Result<Push> {
        let now = clock::wall().unix_ns;
        let usual = || time::text(now / 1_000_000_000 * 1_000_000_000);
        let name = options.run.clone().unwrap_or_else(usual);
        let limits = Limits { resolve: PATIENCE, connect: PATIENCE, tls: PATIENCE };
        let tls = ClientTls { ca: options.push_ca.clone(), ..ClientTls::default() };
        let dialer = Dialer::to(to, &tls, &[], limits)?;
        let token = options.push_token_file.as_ref().map(|file| {
            let token = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read the token in {}", file.display()))?;
            net::bearer(token.trim()).with_context(|| {
                format!("the token in {} has characters that no header can have", file.display())
            })
        });
        let token = token.transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a runtime")?;
        let (sender, receiver) = sync_channel(QUEUE);
        let target = to.join(PATH);
        let courier = Courier { target, dialer, token, connection: None };
        let thread = thread::Builder::new()
            .name("push".to_owned())
            .spawn(move || courier.work(&receiver, &runtime))
            .context("cannot start a thread")?;
        // Each run is a producer of its own, so that two of one name at once are told apart.
        let hash = blake3::hash(format!("topdeck load\0{name}\0{}", std::process::id()).as_bytes());
        let producer = hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes));
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Ok(Push {
            sender,
            thread,
            labels: vec![
                label("run", &name),
                label("target", &plan.about.target),
                label("protocol", &plan.about.protocol),
            ],
            to: to.to_string(),
            name,
            producer,
            began_unix_ns: now,
            before_ns: 0,
            sequence: 0,
        })
    }

    pub(crate) fn began(&mut self, unix_ns: i64) {
        self.began_unix_ns = unix_ns;
    }

    pub(crate) fn second(&mut self, end_ns: u64, tally: &Tally) {
        self.sequence += 1;
        let at = |ns: u64| self.began_unix_ns.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX));
        let times = (at(self.before_ns), at(end_ns.max(self.before_ns + 1)));
        self.before_ns = end_ns;
        let boot = self.began_unix_ns.unsigned_abs() / 1_000_000;
        let batch = Batch {
            identity: format!("{:x}/{boot}/{}", self.producer, self.sequence),
            body: Bytes::from(body(&self.labels, times, tally)),
        };
        match self.sender.try_send(batch) {
            // Told at the end, as what was not delivered.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    pub(crate) fn finish(self) -> Pushed {
        drop(self.sender);
        let outcome = self.thread.join().unwrap_or_else(|_| Outcome {
            delivered: 0,
            trouble: Some("the thread that sends failed: a fault of topdeck".to_owned()),
        });
        Pushed {
            to: self.to,
            run: self.name,
            seconds: self.sequence,
            delivered: outcome.delivered,
            trouble: outcome.trouble,
        }
    }
}

/// A second as lines of frames.
fn body(labels: &[(String, String)], (start, end): (i64, i64), tally: &Tally) -> String {
    let mut out = String::new();
    let names = || labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let histograms = [
        ("load_response", &tally.response),
        ("load_service", &tally.service),
        ("load_send_lag", &tally.send_lag),
    ];
    for (metric, histogram) in histograms {
        frames::write(&mut out, metric, names(), (start, end), Some(&Unit::Nanoseconds), histogram);
    }
    let counts = [
        ("load_intended", tally.intended),
        ("load_completed", tally.completed),
        ("load_unfinished", tally.unfinished),
        ("load_missed", tally.missed),
        ("load_seen_late", tally.seen_late),
    ];
    let mut number = |metric: &str, kind: Option<&str>, n: u64, over: Over| {
        let kind = kind.map(|kind| ("kind".to_owned(), kind.to_owned()));
        let reading = Reading {
            metric: metric.to_owned(),
            labels: labels.iter().cloned().chain(kind).collect(),
            start: Some(start),
            end: Some(end),
            unit: Some(Unit::Other("requests".to_owned())),
            value: Value::Integer(n.into()),
            over,
        };
        frames::write_reading(&mut out, &reading);
    };
    for (metric, n) in counts {
        number(metric, None, n, Over::Interval);
    }
    for (kind, n) in Failure::ALL.iter().zip(tally.failed) {
        number("load_failed", Some(kind.name()), n, Over::Interval);
    }
    number("load_in_flight_max", None, tally.in_flight_max, Over::Moment);
    out
}

/// Who brings batches to the server.
struct Courier {
    target: Target,
    dialer: Dialer,
    token: Option<http::HeaderValue>,
    connection: Option<Connection>,
}

impl Courier {
    fn work(mut self, batches: &Receiver<Batch>, runtime: &tokio::runtime::Runtime) -> Outcome {
        let (mut kept, mut outcome) = (VecDeque::new(), Outcome::default());
        let mut deadline = None;
        loop {
            // One at a time, so that it is noticed when the run is over, however slow the server is.
            let is_waiting = kept.is_empty() || outcome.trouble.is_some();
            match batches.recv_timeout(if is_waiting { PAUSE } else { Duration::ZERO }) {
                Ok(batch) => kept.push_back(batch),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + LAST_PATIENCE);
                    if kept.is_empty() || Instant::now() >= deadline {
                        return outcome;
                    }
                    if outcome.trouble.is_some() {
                        thread::sleep(PAUSE);
                    }
                }
            }
            // The oldest goes first, and is given up first.
            while kept.len() > KEPT_MAX {
                kept.pop_front();
            }
            let Some(batch) = kept.front() else { continue };
            match runtime.block_on(self.deliver(batch)) {
                Ok(()) => {
                    outcome.delivered += 1;
                    outcome.trouble = None;
                    kept.pop_front();
                }
                Err(error) => {
                    outcome.trouble = Some(format!("{error:#}"));
                    self.connection = None;
                }
            }
        }
    }

    async fn deliver(&mut self, batch: &Batch) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) if connection.is_open() => connection,
            connection => connection.insert(self.dialer.dial(&self.target).await?.0),
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.target.path)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(BATCH, &batch.identity);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(batch.body.clone())?;
        let allowed = Allowance { time: PATIENCE, bytes: ANSWER_BYTES };
        let answer = connection.send(request, allowed).await?.response;
        if answer.status() != StatusCode::OK {
            let json: Option<serde_json::Value> = serde_json::from_slice(answer.body()).ok();
            let why = json.as_ref().and_then(|json| json["error"].as_str());
            bail!("{}: {}", answer.status(), why.unwrap_or("no reason given"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A run that is over does not wait until all has gone to a server that takes its time with each.
    #[test]
    fn a_slow_server_is_given_up() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let Ok((mut socket, _)) = listener.accept() else { return };
            while socket.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {
                thread::sleep(Duration::from_millis(200));
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                if socket.write_all(answer).is_err() {
                    return;
                }
            }
        });
        let to = Target::parse(&format!("http://{address}")).unwrap();
        let limits = Limits { resolve: PATIENCE, connect: PATIENCE, tls: PATIENCE };
        let dialer = Dialer::to(&to, &ClientTls::default(), &[], limits).unwrap();
        let courier = Courier { target: to.join(PATH), dialer, token: None, connection: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, receiver) = sync_channel(QUEUE);
        for number in 0..QUEUE {
            let body = Bytes::from_static(b"a");
            sender.try_send(Batch { identity: number.to_string(), body }).unwrap();
        }
        drop(sender);
        let outcome = courier.work(&receiver, &runtime);
        assert!((1..QUEUE as u64).contains(&outcome.delivered), "{}", outcome.delivered);
    }
}
