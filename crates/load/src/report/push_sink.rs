//! Sends each second of a run as a batch to a topdeck server, and at the end whether it was valid.
//!
//! The run never waits for it. A thread sends; batches that cannot be delivered are retained and
//! retried with the same identity, so that nothing is counted twice. Undelivered seconds are
//! reported at the end.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::{Failure, InvalidReason, Tally};
use bytes::Bytes;
use decode::{DecodedSample, DecodedValue, SampleTemporality, Unit, frames};
use http::{Method, Request, StatusCode, header};
use net::Endpoint;
use net::dial::{DialTimeouts, Dialer, HttpConnection, ResponseLimits};
use net::tls::ClientTls;

use crate::report::error::{ReportError, Result};
use crate::report::run_plan::RunPlan;
use render::time::format_time;
use render::value_formatter::count;

/// Ingest endpoint.
const PATH: &str = "/v1/import?format=frames";
/// Header with the identity of a batch, for deduplication.
const BATCH: &str = "topdeck-batch";
/// Header with the secret of this run, so that no other client can send in its name.
const BATCH_SECRET: &str = "topdeck-batch-secret";
/// Capacity of the queue to the thread, in seconds.
const QUEUE: usize = 64;
/// Undelivered seconds retained: an hour.
const PENDING_MAX: usize = 3_600;
/// Timeout of each step of a request.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long delivery is retried after the run.
const FINAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Text with the description of the schedule, in the batch of the first second.
const SCHEDULE: &str = "load_run_schedule";
/// Text `valid`, or `invalid: ` and the reasons, in the last batch. A run without it is of unknown
/// validity: it still runs, or was aborted.
const VALIDITY: &str = "load_run_validity";

/// Target and identity of the pushed seconds.
#[derive(Debug)]
pub struct PushTarget {
    /// Address of the server.
    pub endpoint: Endpoint,
    /// Label `run`; default: the start time.
    pub run_name: Option<String>,
    /// File with the CA certificate of the server.
    pub ca: Option<PathBuf>,
    /// File with the bearer token.
    pub token_file: Option<PathBuf>,
    /// Random secret: without it, another holder of the token could send in the name of this run.
    pub secret: u128,
    /// Derives the producer ID of a run from its name: concurrent runs with the same name stay
    /// separate.
    pub producer_id: fn(&str) -> u64,
}

/// Sender of a run's seconds to a server.
pub struct PushSink {
    sender: SyncSender<PushBatch>,
    thread: JoinHandle<SenderResult>,
    labels: Vec<(String, String)>,
    schedule: String,
    url: String,
    name: String,
    producer: u64,
    start_unix_ns: i64,
    /// End of the second before, from the start of the run.
    last_end_ns: u64,
    sequence: u64,
    /// Seconds dropped because the queue was full.
    dropped: u64,
}

/// Result of a push.
#[derive(Clone, Debug)]
pub struct PushSummary {
    pub(crate) url: String,
    /// The label `run`.
    pub run: String,
    /// Seconds of the run.
    pub seconds: u64,
    pub(crate) delivered: u64,
    /// Seconds dropped because too many were pending.
    pub dropped: u64,
    /// Whether the server knows if the run was valid.
    pub(crate) has_validity: bool,
    /// Last error of the undelivered seconds.
    pub(crate) last_error: Option<String>,
}

impl PushSummary {
    /// Number of delivered seconds, as a sentence.
    pub fn text(&self) -> String {
        let PushSummary { url, run, seconds, delivered, dropped, has_validity, last_error } = self;
        let all = count(*seconds);
        if delivered == seconds {
            let rest = if *has_validity { "" } else { ", but NOT whether the run was valid" };
            return format!(
                "pushed to {url}: all {all} seconds, as load_response_time{{run={run:?}}} and \
                 others{rest}"
            );
        }
        let mut reason = Vec::new();
        if *dropped > 0 {
            let (dropped, most) = (count(*dropped), count(PENDING_MAX as u64));
            reason.push(format!("{dropped} were dropped at the limit of {most} pending seconds"));
        }
        if delivered + dropped < *seconds {
            let last_error = last_error.as_deref().unwrap_or("the run ended before delivery");
            reason.push(last_error.to_owned());
        }
        format!(
            "pushed to {url}: {} of {all} seconds were NOT delivered: {}",
            count(seconds - delivered),
            reason.join("; ")
        )
    }
}

/// An encoded second, or the validity of the run.
struct PushBatch {
    identity: String,
    body: Bytes,
    is_second: bool,
}

/// Result of the thread.
#[derive(Default)]
struct SenderResult {
    /// Seconds.
    delivered: u64,
    has_validity: bool,
    dropped: u64,
    last_error: Option<String>,
}

impl PushSink {
    /// Starts the thread that sends.
    pub fn start(push: PushTarget, plan: &RunPlan) -> Result<PushSink> {
        let endpoint = &push.endpoint;
        let now = clock::wall().unix_ns;
        let name = push.run_name.unwrap_or_else(|| format_time(now));
        let timeouts =
            DialTimeouts { resolve: STEP_TIMEOUT, connect: STEP_TIMEOUT, tls: STEP_TIMEOUT };
        let tls = ClientTls { ca: push.ca, ..ClientTls::default() };
        let dialer =
            Dialer::for_target(endpoint, &tls, &[], timeouts).map_err(source_chain_error)?;
        let token = push.token_file.map(|path| read_token(&path)).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(action_error("cannot start a runtime"))?;
        let (sender, receiver) = sync_channel(QUEUE);
        let target = endpoint.join(PATH);
        let secret = format!("{:032x}", push.secret);
        let mut push_sender = PushSender { target, dialer, token, secret, connection: None };
        let thread = thread::Builder::new()
            .name("push".to_owned())
            .spawn(move || deliver_all(&receiver, |batch| push_sender.deliver(batch, &runtime)))
            .map_err(action_error("cannot start a thread"))?;
        let producer = (push.producer_id)(&name);
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Ok(PushSink {
            sender,
            thread,
            labels: vec![
                label("run", &name),
                label("target", &plan.target),
                label("protocol", &plan.protocol),
            ],
            schedule: plan.schedule.clone(),
            url: endpoint.to_string(),
            name,
            producer,
            start_unix_ns: now,
            last_end_ns: 0,
            sequence: 0,
            dropped: 0,
        })
    }

    /// Sets the start of the run, in nanoseconds since the Unix epoch.
    pub fn run_started(&mut self, unix_ns: i64) {
        self.start_unix_ns = unix_ns;
    }

    /// Sends a second, or drops it if too many are pending.
    pub fn second_ended(&mut self, end_ns: u64, tally: &Tally) {
        let times =
            (self.unix_ns(self.last_end_ns), self.unix_ns(end_ns.max(self.last_end_ns + 1)));
        self.last_end_ns = end_ns;
        let mut body = body(&self.labels, times, tally);
        if self.sequence == 0 {
            write_text(&mut body, SCHEDULE, &self.labels, times.1, &self.schedule);
        }
        self.sequence += 1;
        // If the thread has ended, the result says so.
        if !self.send(self.sequence, body, true) {
            self.dropped += 1;
        }
    }

    /// Sends whether the run was valid, unless it failed, and waits until the pending seconds are
    /// delivered, for a few seconds.
    pub fn finish(self, reasons: Option<&[InvalidReason]>) -> PushSummary {
        if let Some(reasons) = reasons {
            let (mut body, end) = (String::new(), self.unix_ns(self.last_end_ns));
            write_text(&mut body, VALIDITY, &self.labels, end, &validity_text(reasons));
            // A full queue is reported: the validity is not delivered.
            self.send(self.sequence + 1, body, false);
        }
        drop(self.sender);
        let outcome = self.thread.join().unwrap_or_else(|_| SenderResult {
            last_error: Some("the sending thread panicked (bug)".to_owned()),
            ..SenderResult::default()
        });
        PushSummary {
            url: self.url,
            run: self.name,
            seconds: self.sequence,
            delivered: outcome.delivered,
            dropped: self.dropped + outcome.dropped,
            has_validity: outcome.has_validity,
            last_error: outcome.last_error,
        }
    }

    /// Hands a batch to the thread. Returns false if the queue is full.
    fn send(&self, sequence: u64, body: String, is_second: bool) -> bool {
        let epoch = self.start_unix_ns.unsigned_abs() / 1_000_000;
        let batch = PushBatch {
            identity: format!("{:x}/{epoch}/{sequence}", self.producer),
            body: Bytes::from(body),
            is_second,
        };
        !matches!(self.sender.try_send(batch), Err(TrySendError::Full(_)))
    }

    /// Time of the run as nanoseconds since the Unix epoch.
    fn unix_ns(&self, ns: u64) -> i64 {
        self.start_unix_ns.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

/// `valid`, or `invalid: ` and the reasons.
fn validity_text(reasons: &[InvalidReason]) -> String {
    if reasons.is_empty() {
        return "valid".to_owned();
    }
    let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    format!("invalid: {}", texts.join("; "))
}

fn push_error(error: impl Display) -> ReportError {
    ReportError::Push(error.to_string())
}

/// Text of an error with all its causes.
fn source_chain_error(error: impl Error) -> ReportError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    ReportError::Push(text)
}

/// Error of an action that failed.
fn action_error<E: Display>(action: &'static str) -> impl FnOnce(E) -> ReportError {
    move |error| push_error(format_args!("{action}: {error}"))
}

fn read_token(path: &Path) -> Result<http::HeaderValue> {
    let token = std::fs::read_to_string(path).map_err(|error| {
        push_error(format_args!("cannot read the token in {}: {error}", path.display()))
    })?;
    net::bearer(token.trim()).map_err(|error| {
        push_error(format_args!(
            "the token in {} contains characters that are invalid in a header: {error}",
            path.display()
        ))
    })
}

/// Encodes a second as frames.
fn body(labels: &[(String, String)], (start, end): (i64, i64), tally: &Tally) -> String {
    let mut out = String::new();
    let names = || labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let histograms = [
        ("load_response_time", &tally.response),
        ("load_service_time", &tally.service),
        ("load_queue_time", &tally.queue_time),
    ];
    for (metric, histogram) in histograms {
        frames::write_histogram(
            &mut out,
            metric,
            names(),
            (start, end),
            Some(&Unit::Nanoseconds),
            histogram,
        );
    }
    let counts = [
        ("load_scheduled_requests_total", tally.scheduled),
        ("load_completed_requests_total", tally.completed),
        ("load_unfinished_requests_total", tally.unfinished),
        ("load_not_sent_requests_total", tally.not_sent),
        ("load_observed_late_requests_total", tally.observed_late),
    ];
    let mut number =
        |metric: &str, reason: Option<&str>, n: u64, temporality: SampleTemporality| {
            let reason = reason.map(|reason| ("reason".to_owned(), reason.to_owned()));
            let sample = DecodedSample {
                metric: metric.to_owned(),
                labels: labels.iter().cloned().chain(reason).collect(),
                start: Some(start),
                end: Some(end),
                unit: Some(Unit::Other("requests".to_owned())),
                value: DecodedValue::Integer(n.into()),
                temporality,
            };
            frames::write_sample(&mut out, &sample);
        };
    for (metric, n) in counts {
        number(metric, None, n, SampleTemporality::Delta);
    }
    for (reason, n) in Failure::ALL.iter().zip(tally.failed) {
        number("load_failed_requests_total", Some(&reason.key()), n, SampleTemporality::Delta);
    }
    number("load_in_flight_requests_peak", None, tally.in_flight_peak, SampleTemporality::Instant);
    out
}

/// Appends a text at a time.
fn write_text(out: &mut String, metric: &str, labels: &[(String, String)], at: i64, text: &str) {
    let sample = DecodedSample {
        metric: metric.to_owned(),
        labels: labels.to_vec(),
        start: Some(at),
        end: Some(at),
        unit: None,
        value: DecodedValue::Text(text.to_owned()),
        temporality: SampleTemporality::Instant,
    };
    frames::write_sample(out, &sample);
}

/// HTTP client of the thread.
struct PushSender {
    target: Endpoint,
    dialer: Dialer,
    token: Option<http::HeaderValue>,
    /// Hexadecimal secret for the header.
    secret: String,
    connection: Option<HttpConnection>,
}

/// Delivers batches until the run ends; undelivered ones are retained and retried.
fn deliver_all(
    batches: &Receiver<PushBatch>,
    mut deliver: impl FnMut(&PushBatch) -> Result<()>,
) -> SenderResult {
    let (mut pending, mut outcome) = (VecDeque::new(), SenderResult::default());
    let mut deadline = None;
    loop {
        // One batch at a time, so that the thread detects the end of the run even if the server is
        // slow.
        let is_waiting = pending.is_empty() || outcome.last_error.is_some();
        match batches.recv_timeout(if is_waiting { RETRY_PAUSE } else { Duration::ZERO }) {
            Ok(batch) => pending.push_back(batch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + FINAL_TIMEOUT);
                if pending.is_empty() || Instant::now() >= deadline {
                    return outcome;
                }
                if outcome.last_error.is_some() {
                    thread::sleep(RETRY_PAUSE);
                }
            }
        }
        // An attempt without a response takes longer than a second: all batches received meanwhile
        // are dequeued, so that the queue does not fill up.
        pending.extend(batches.try_iter());
        // The oldest batch is sent first and dropped first. The validity is the latest batch.
        let too_many = pending.len().saturating_sub(PENDING_MAX);
        pending.drain(..too_many);
        outcome.dropped += too_many as u64;
        let Some(batch) = pending.front() else { continue };
        match deliver(batch) {
            Ok(()) => {
                match batch.is_second {
                    true => outcome.delivered += 1,
                    false => outcome.has_validity = true,
                }
                outcome.last_error = None;
                pending.pop_front();
            }
            Err(error) => outcome.last_error = Some(error.to_string()),
        }
    }
}

impl PushSender {
    fn deliver(&mut self, batch: &PushBatch, runtime: &tokio::runtime::Runtime) -> Result<()> {
        let delivered = runtime.block_on(self.send(batch));
        if delivered.is_err() {
            self.connection = None;
        }
        delivered
    }

    async fn send(&mut self, batch: &PushBatch) -> Result<()> {
        let connection = match &mut self.connection {
            Some(connection) if connection.is_open() => connection,
            connection => connection
                .insert(self.dialer.dial(&self.target).await.map_err(source_chain_error)?.0),
        };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.target.path)
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(BATCH, &batch.identity)
            .header(BATCH_SECRET, &self.secret);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(batch.body.clone()).map_err(source_chain_error)?;
        let limits = ResponseLimits { timeout: STEP_TIMEOUT, max_bytes: RESPONSE_BYTES_MAX };
        let response = connection.send(request, limits).await.map_err(source_chain_error)?.response;
        if response.status() != StatusCode::OK {
            let json: Option<serde_json::Value> = serde_json::from_slice(response.body()).ok();
            let reason = json.as_ref().and_then(|json| json["error"].as_str());
            let reason = reason.unwrap_or("no reason given");
            return Err(push_error(format_args!("{}: {reason}", response.status())));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Delivers seconds to a server that accepts only the attempt of this number; `passing` seconds
    /// pass during each attempt.
    fn outcome(passing: usize, attempts: usize) -> (SenderResult, usize) {
        let (sender, receiver) = sync_channel(QUEUE);
        let mut refused = 0;
        let batch = || PushBatch { identity: String::new(), body: Bytes::new(), is_second: true };
        sender.try_send(batch()).unwrap();
        let (mut sender, mut attempt) = (Some(sender), 0);
        let outcome = deliver_all(&receiver, |_| {
            attempt += 1;
            if attempt >= attempts {
                sender = None;
                return Ok(());
            }
            for _ in 0..passing {
                let sent = sender.as_ref().map(|sender| sender.try_send(batch()));
                refused += usize::from(sent.is_some_and(|sent| sent.is_err()));
            }
            Err(push_error("no answer"))
        });
        (outcome, refused)
    }

    #[test]
    fn a_server_learns_whether_the_run_was_valid_and_the_summary_says_if_it_did_not() {
        assert_eq!(validity_text(&[]), "valid");
        let reasons = [
            InvalidReason::ResourcesExhausted { failed: 3 },
            InvalidReason::GeneratorCpuSaturated { share: 0.99 },
        ];
        let text = validity_text(&reasons);
        assert!(text.starts_with("invalid: 3 requests failed because"), "{text}");
        assert!(text.contains("; the generator's threads were busy 99 %"), "{text}");
        let (sender, receiver) = sync_channel(QUEUE);
        for is_second in [true, true, false] {
            let body = Bytes::new();
            sender.try_send(PushBatch { identity: String::new(), body, is_second }).unwrap();
        }
        drop(sender);
        let outcome = deliver_all(&receiver, |_| Ok(()));
        assert_eq!((outcome.delivered, outcome.has_validity), (2, true));
        let pushed = PushSummary {
            url: "http://a/".to_owned(),
            run: "a".to_owned(),
            seconds: 2,
            delivered: 2,
            dropped: 0,
            has_validity: false,
            last_error: None,
        };
        assert!(pushed.text().ends_with(", but NOT whether the run was valid"));
        let valid = PushSummary { has_validity: true, ..pushed };
        assert!(valid.text().ends_with("and others"), "{}", valid.text());
    }

    #[test]
    fn pending_seconds_are_delivered_when_the_server_is_back() {
        let (outcome, refused) = outcome(40, 20);
        assert_eq!((outcome.delivered, outcome.dropped, refused), (1 + 19 * 40, 0, 0));
        assert_eq!(outcome.last_error, None);
    }

    #[test]
    fn seconds_beyond_an_hour_are_dropped_and_reported() {
        let (outcome, refused) = outcome(QUEUE, 101);
        assert_eq!((outcome.delivered, refused), (PENDING_MAX as u64, 0));
        assert_eq!(outcome.dropped, 1 + 100 * QUEUE as u64 - PENDING_MAX as u64);
        let pushed = PushSummary {
            url: "http://a/".to_owned(),
            run: "a".to_owned(),
            seconds: outcome.delivered + outcome.dropped,
            delivered: outcome.delivered,
            dropped: outcome.dropped,
            has_validity: true,
            last_error: outcome.last_error,
        };
        let text = pushed.text();
        assert!(
            text.ends_with(": 2,801 were dropped at the limit of 3,600 pending seconds"),
            "{text}"
        );
    }

    /// After the run, delivery to a slow server ends at the deadline.
    #[test]
    fn delivery_to_a_slow_server_ends() {
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
        let to = Endpoint::parse(&format!("http://{address}")).unwrap();
        let timeouts =
            DialTimeouts { resolve: STEP_TIMEOUT, connect: STEP_TIMEOUT, tls: STEP_TIMEOUT };
        let dialer = Dialer::for_target(&to, &ClientTls::default(), &[], timeouts).unwrap();
        let secret = "0123456789abcdef".to_owned();
        let mut push_sender =
            PushSender { target: to.join(PATH), dialer, token: None, secret, connection: None };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, receiver) = sync_channel(QUEUE);
        for number in 0..QUEUE {
            let body = Bytes::from_static(b"a");
            let identity = number.to_string();
            sender.try_send(PushBatch { identity, body, is_second: true }).unwrap();
        }
        drop(sender);
        let outcome = deliver_all(&receiver, |batch| push_sender.deliver(batch, &runtime));
        assert!((1..QUEUE as u64).contains(&outcome.delivered), "{}", outcome.delivered);
    }
}
