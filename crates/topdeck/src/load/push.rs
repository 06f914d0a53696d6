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
use crate::journal::show::time;
use crate::load::options::RunOptions;
use crate::load::plan::Plan;

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

/// A run's way into a server.
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
    /// Seconds for which there was no room on their way.
    dropped: u64,
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
    /// Those that were given up, because too many waited.
    pub(crate) dropped: u64,
    /// Why the others were not delivered.
    pub(crate) trouble: Option<String>,
}

impl Pushed {
    pub(crate) fn words(&self) -> String {
        let Pushed { to, run, seconds, delivered, dropped, trouble } = self;
        let all = count(*seconds);
        if delivered == seconds {
            return format!(
                "pushed to {to}: all {all} seconds, as load_response{{run={run:?}}} and others"
            );
        }
        let mut why = Vec::new();
        if *dropped > 0 {
            let (dropped, most) = (count(*dropped), count(KEPT_MAX as u64));
            why.push(format!("{dropped} were given up, for no more than {most} are kept"));
        }
        if delivered + dropped < *seconds {
            let trouble = trouble.as_deref().unwrap_or("there was no time for all");
            why.push(trouble.to_owned());
        }
        format!(
            "pushed to {to}: {} of {all} seconds were NOT delivered: {}",
            count(seconds - delivered),
            why.join("; ")
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
    dropped: u64,
    trouble: Option<String>,
}

impl Push {
    pub(crate) fn start(to: &Target, options: &RunOptions, plan: &Plan) -> Result<Push> {
        let now = clock::wall().unix_ns;
        let name = options.run.clone().unwrap_or_else(|| time(now));
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
        let mut courier = Courier { target, dialer, token, connection: None };
        let thread = thread::Builder::new()
            .name("push".to_owned())
            .spawn(move || bring(&receiver, |batch| courier.deliver(batch, &runtime)))
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
                label("target", &plan.target),
                label("protocol", &plan.protocol),
            ],
            to: to.to_string(),
            name,
            producer,
            began_unix_ns: now,
            before_ns: 0,
            sequence: 0,
            dropped: 0,
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
        // Where the thread has ended, that is told at the end.
        if let Err(TrySendError::Full(_)) = self.sender.try_send(batch) {
            self.dropped += 1;
        }
    }

    pub(crate) fn finish(self) -> Pushed {
        drop(self.sender);
        let outcome = self.thread.join().unwrap_or_else(|_| Outcome {
            trouble: Some("the thread that sends failed: a fault of topdeck".to_owned()),
            ..Outcome::default()
        });
        Pushed {
            to: self.to,
            run: self.name,
            seconds: self.sequence,
            delivered: outcome.delivered,
            dropped: self.dropped + outcome.dropped,
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
        number("load_failed", Some(&kind.key()), n, Over::Interval);
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

/// Brings batches until there are no more; what cannot be delivered is kept, and tried again.
fn bring(batches: &Receiver<Batch>, mut deliver: impl FnMut(&Batch) -> Result<()>) -> Outcome {
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
        // An attempt takes longer than a second where nobody answers: all that came meanwhile is taken, so that the queue has room.
        kept.extend(batches.try_iter());
        // The oldest goes first, and is given up first.
        let too_many = kept.len().saturating_sub(KEPT_MAX);
        kept.drain(..too_many);
        outcome.dropped += too_many as u64;
        let Some(batch) = kept.front() else { continue };
        match deliver(batch) {
            Ok(()) => {
                outcome.delivered += 1;
                outcome.trouble = None;
                kept.pop_front();
            }
            Err(error) => outcome.trouble = Some(format!("{error:#}")),
        }
    }
}

impl Courier {
    fn deliver(&mut self, batch: &Batch, runtime: &tokio::runtime::Runtime) -> Result<()> {
        let delivered = runtime.block_on(self.send(batch));
        if delivered.is_err() {
            self.connection = None;
        }
        delivered
    }

    async fn send(&mut self, batch: &Batch) -> Result<()> {
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

    /// Brings seconds to a server that answers no attempt before this one; during each, so many seconds pass.
    fn outcome(passing: usize, attempts: usize) -> (Outcome, usize) {
        let (sender, receiver) = sync_channel(QUEUE);
        let mut refused = 0;
        let batch = || Batch { identity: String::new(), body: Bytes::new() };
        sender.try_send(batch()).unwrap();
        let (mut sender, mut attempt) = (Some(sender), 0);
        let outcome = bring(&receiver, |_| {
            attempt += 1;
            if attempt >= attempts {
                sender = None;
                return Ok(());
            }
            for _ in 0..passing {
                let sent = sender.as_ref().map(|sender| sender.try_send(batch()));
                refused += usize::from(sent.is_some_and(|sent| sent.is_err()));
            }
            bail!("no answer")
        });
        (outcome, refused)
    }

    #[test]
    fn what_a_server_missed_is_brought_when_it_is_back() {
        let (outcome, refused) = outcome(40, 20);
        assert_eq!((outcome.delivered, outcome.dropped, refused), (1 + 19 * 40, 0, 0));
        assert_eq!(outcome.trouble, None);
    }

    #[test]
    fn what_is_more_than_an_hour_is_given_up_and_told() {
        let (outcome, refused) = outcome(QUEUE, 101);
        assert_eq!((outcome.delivered, refused), (KEPT_MAX as u64, 0));
        assert_eq!(outcome.dropped, 1 + 100 * QUEUE as u64 - KEPT_MAX as u64);
        let pushed = Pushed {
            to: "http://a/".to_owned(),
            run: "a".to_owned(),
            seconds: outcome.delivered + outcome.dropped,
            delivered: outcome.delivered,
            dropped: outcome.dropped,
            trouble: outcome.trouble,
        };
        let words = pushed.words();
        assert!(
            words.ends_with(": 2,801 were given up, for no more than 3,600 are kept"),
            "{words}"
        );
    }

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
        let mut courier = Courier { target: to.join(PATH), dialer, token: None, connection: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, receiver) = sync_channel(QUEUE);
        for number in 0..QUEUE {
            let body = Bytes::from_static(b"a");
            sender.try_send(Batch { identity: number.to_string(), body }).unwrap();
        }
        drop(sender);
        let outcome = bring(&receiver, |batch| courier.deliver(batch, &runtime));
        assert!((1..QUEUE as u64).contains(&outcome.delivered), "{}", outcome.delivered);
    }
}
