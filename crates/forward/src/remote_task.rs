//! Remote task: read, send, wait for the response, advance the position; backoff after failures.
//!
//! One request is in flight at a time, so that records arrive in order despite failures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use intake::{Intake, LogLevel, Restartable};
use net::dial::{Dialer, HttpConnection, ResponseLimits};
use net::signature::{Signer, to_hex};
use net::{Endpoint, ExponentialBackoff, forward_protocol};
use tokio::sync::watch;

use crate::dead_letter_dir::DeadLetterDir;
use crate::encoded_request::{EncodedRequest, EntryKind};
use crate::error::{Error, Result};
use crate::forward_reader::{ForwardReader, RejectedBatch};
use crate::remote_metrics::RemoteMetrics;
use crate::remote_progress::RemoteProgress;
use crate::remote_response::{Disposition, RemoteResponse};
use crate::settings::Settings;
use crate::status::StatusCell;

/// How long a read waits for records; a stop may be delayed as long.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Size limit of a response body.
const RESPONSE_BYTES_MAX: usize = 64 << 10;
/// Part of the reason with which a release without exemplars rejects a batch that has some.
const ONLY_VERSION_1: &str = "version at byte 1 is 2, expected 1,";

/// Task of one remote.
pub(crate) struct RemoteTask {
    pub(crate) name: String,
    /// Subscriber in the journal.
    pub(crate) subscriber: String,
    pub(crate) target: Endpoint,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) user_agent: HeaderValue,
    pub(crate) dialer: Dialer,
    pub(crate) signer: Arc<Signer>,
    pub(crate) settings: Settings,
    pub(crate) intake: Arc<Intake>,
    pub(crate) status: StatusCell,
    pub(crate) progress: Arc<RemoteProgress>,
    pub(crate) metrics: RemoteMetrics,
    /// Deadline after a stop was requested; `None` before.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
}

/// Consecutive rejections of one batch.
struct RejectionStreak {
    sequence: u64,
    rejections: u32,
}

/// State between requests.
struct RemoteState {
    reader: Option<ForwardReader>,
    connection: Option<HttpConnection>,
    backoff: ExponentialBackoff,
    rejection_streak: Option<RejectionStreak>,
    rejected: Option<RejectedBatch>,
    /// Whether the remote is of a release that reads no exemplars.
    omits_sections: bool,
    /// Time of the first failure since the last success.
    failing_since: Option<Instant>,
}

/// Next step of the task.
enum NextStep {
    Continue,
    /// No new records.
    Idle,
    Backoff(Duration),
}

/// After a panic, everything after the last acknowledgement is read and sent again; the remote
/// deduplicates it.
impl Restartable for RemoteTask {
    /// Runs until stopped.
    async fn run(&mut self) {
        let mut state = RemoteState {
            reader: None,
            connection: None,
            backoff: ExponentialBackoff::new(self.settings.backoff),
            rejection_streak: None,
            rejected: None,
            omits_sections: false,
            failing_since: None,
        };
        loop {
            let next = match self.send_one(&mut state).await {
                Ok(next) => next,
                Err(error) => self.on_failure(&mut state, error.to_string(), None, false),
            };
            // The owner was dropped without a stop.
            if self.stop.has_changed().is_err() {
                break;
            }
            let stopping = *self.stop.borrow_and_update();
            let is_over = stopping.is_some_and(|end| Instant::now() >= end);
            match next {
                NextStep::Continue if is_over => break,
                // Nothing is left or it cannot be sent; the journal retains it.
                NextStep::Idle | NextStep::Backoff(_) if stopping.is_some() => break,
                NextStep::Continue | NextStep::Idle => {}
                NextStep::Backoff(time) => {
                    // The outcome was handled above.
                    let _ = tokio::time::timeout(time, self.stop.changed()).await;
                }
            }
        }
        self.status.lock().connected = None;
        if let Err(error) = self.save(state.reader.take()).await {
            self.status.lock().last_error = Some((self.intake.now(), error.to_string()));
        }
    }

    async fn wait_for_stop(&mut self) {
        // A closed channel counts as a stop.
        let _ = self.stop.wait_for(Option::is_some).await;
    }
}

impl RemoteTask {
    /// Writes the ledger and advances the subscriber. If the subscriber is not open now, it is
    /// advanced at the next start.
    async fn save(&self, reader: Option<ForwardReader>) -> Result<()> {
        let (ledger, now) = (Arc::clone(&self.progress), self.intake.now());
        let work = move || match reader {
            Some(mut reader) => reader.save(now),
            None => ledger.save(now).map(drop),
        };
        run_blocking(work).await
    }

    /// Sends one request.
    async fn send_one(&mut self, state: &mut RemoteState) -> Result<NextStep> {
        let Some(load) = self.read_request(state).await? else {
            self.status.lock().oldest = None;
            return Ok(NextStep::Idle);
        };
        self.update_oldest(&load);
        self.intake.supervisor().failpoint(format_args!("remote {}", self.name));
        let answer = tokio::select! {
            answer = self.send(state, &load) => answer,
            () = stop_deadline(self.stop.clone()) => RemoteResponse::no_response("stopped".to_owned()),
        };
        self.intake.supervisor().failpoint(format_args!("remote {} answered", self.name));
        if let Some(accepted) = answer.accepted {
            self.on_accepted(state, accepted, &load);
        }
        Ok(match answer.disposition {
            Disposition::Accepted => {
                self.status.lock().last_error = None;
                if let Some(since) = state.failing_since.take() {
                    let (name, seconds) = (&self.name, since.elapsed().as_secs());
                    let line = format!("remote {name:?} accepts data again after {seconds} s");
                    (self.intake.settings().log)(LogLevel::Info, &line);
                }
                NextStep::Continue
            }
            Disposition::Retry { reason, retry_after: after, needs_operator: slowly } => {
                self.on_failure(state, reason, after, slowly)
            }
            Disposition::Rejected { sequence, reason } => self.on_rejected(state, sequence, reason),
        })
    }

    /// Reads on a blocking thread, because file reads and waiting for records block.
    async fn read_request(&self, state: &mut RemoteState) -> Result<Option<EncodedRequest>> {
        let (reader, rejected) = (state.reader.take(), state.rejected.clone());
        let omits_sections = state.omits_sections;
        let intake = Arc::clone(&self.intake);
        let (remote, subscriber) = (self.name.clone(), self.subscriber.clone());
        let dead_letters = DeadLetterDir::new(&self.settings.dead_letter_dir, &remote);
        let (ledger, signer) = (Arc::clone(&self.progress), Arc::clone(&self.signer));
        let work = move || -> Result<_> {
            let mut reader = match reader {
                Some(reader) => reader,
                None => ForwardReader::open(
                    intake.write_target(),
                    &remote,
                    &subscriber,
                    dead_letters,
                    &ledger,
                )?,
            };
            if let Some(rejected) = rejected {
                reader.dead_letter(rejected);
            }
            if omits_sections {
                reader.omit_sections();
            }
            let load = reader.next(intake.now(), POLL_INTERVAL, &signer)?;
            Ok((reader, load))
        };
        let (reader, load) = run_blocking(work).await?;
        self.status.lock().position = reader.position();
        state.reader = Some(reader);
        Ok(load)
    }

    fn update_oldest(&self, load: &EncodedRequest) {
        let mut status = self.status.lock();
        status.oldest = load.oldest;
        status.sent_bytes += load.body.len() as u64;
        drop(status);
        self.metrics.sent.add(load.entries.len() as u64);
        self.metrics.bytes.add(load.body.len() as u64);
    }

    async fn send(&self, state: &mut RemoteState, load: &EncodedRequest) -> RemoteResponse {
        let committed = self.status.lock().position;
        let began = Instant::now();
        match self.exchange(state, load).await {
            Ok(answer) => {
                let answer =
                    RemoteResponse::parse(&answer.response, committed, load.last_sequence());
                if answer.disposition == Disposition::Accepted {
                    self.metrics.request_duration.record(began.elapsed());
                } else if answer.accepted.is_none() {
                    // The response may belong to another request, so the next request uses a new
                    // connection.
                    state.connection = None;
                }
                answer
            }
            Err(error) => {
                state.connection = None;
                RemoteResponse::no_response(error.to_string())
            }
        }
    }

    async fn exchange(
        &self,
        state: &mut RemoteState,
        load: &EncodedRequest,
    ) -> net::dial::Result<net::dial::HttpResponse> {
        let usable = state.connection.take().filter(HttpConnection::is_open);
        let mut connection = match usable {
            Some(connection) => connection,
            None => {
                self.status.lock().connected = None;
                let (connection, _) = self.dialer.dial(&self.target).await?;
                self.status.lock().connected = Some(self.intake.now());
                connection
            }
        };
        let allowed = ResponseLimits {
            timeout: self.settings.response_timeout,
            max_bytes: RESPONSE_BYTES_MAX,
        };
        // From here on, the remote may accept the request although its response is lost.
        self.progress.set_sent(load.last_sequence());
        let answer = connection.send(self.request(load), allowed).await?;
        state.connection = Some(connection);
        Ok(answer)
    }

    fn request(&self, load: &EncodedRequest) -> Request<Bytes> {
        let mut request = Request::post(self.target.path.as_str())
            .header(header::CONTENT_TYPE, HeaderValue::from_static(forward_protocol::CONTENT_TYPE))
            .header(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"))
            .header(forward_protocol::AGENT_HEADER, self.user_agent.clone())
            .header(forward_protocol::KEY_HEADER, to_hex(&self.signer.public_key()))
            .header(forward_protocol::SIGNATURE_HEADER, to_hex(&load.signature));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        request.body(load.body.clone()).expect("BUG: the target's path is valid")
    }

    /// The remote has everything up to `accepted`.
    fn on_accepted(&self, state: &mut RemoteState, accepted: u64, load: &EncodedRequest) {
        self.progress.add(load.acknowledged_up_to(accepted));
        state.backoff.reset();
        if state.rejection_streak.as_ref().is_some_and(|suspect| suspect.sequence <= accepted) {
            (state.rejection_streak, state.rejected) = (None, None);
        }
        let mut status = self.status.lock();
        status.position = accepted;
        status.acknowledged = Some(self.intake.now());
        for entry in load.acknowledged_up_to(accepted) {
            match entry.kind {
                EntryKind::Batch => status.records += entry.records,
                EntryKind::Gap => status.missing += entry.records,
                EntryKind::DeadLettered => status.dead_lettered += entry.records,
            }
            self.metrics.record_acknowledged(entry);
        }
    }

    /// The remote rejected a batch: retry, and after the limit make it a dead letter.
    fn on_rejected(&self, state: &mut RemoteState, sequence: u64, reason: String) -> NextStep {
        if !state.omits_sections && reason.contains(ONLY_VERSION_1) {
            state.omits_sections = true;
            let reason = format!("it reads no exemplars, which are omitted from now on: {reason}");
            return self.on_failure(state, reason, None, false);
        }
        let rejections = match &state.rejection_streak {
            Some(suspect) if suspect.sequence == sequence => suspect.rejections + 1,
            _ => 1,
        };
        state.rejection_streak = Some(RejectionStreak { sequence, rejections });
        if rejections >= self.settings.rejections_max {
            state.rejected = Some(RejectedBatch { sequence, reason: reason.clone() });
        }
        self.on_failure(
            state,
            format!("batch {sequence} rejected {rejections} times: {reason}"),
            None,
            false,
        )
    }

    /// Everything after the last acknowledgement is read again, after a delay.
    fn on_failure(
        &self,
        state: &mut RemoteState,
        reason: String,
        after: Option<Duration>,
        slowly: bool,
    ) -> NextStep {
        state.reader = None;
        self.metrics.retries.add(1);
        if state.failing_since.is_none() {
            state.failing_since = Some(Instant::now());
            let (name, url) = (&self.name, self.status.lock().url.clone());
            let line = format!(
                "remote {name:?} ({url}) does not accept data: {reason}; the journal keeps it, and \
                 topdeck tries again"
            );
            (self.intake.settings().log)(LogLevel::Warn, &line);
        }
        let mut status = self.status.lock();
        status.last_error = Some((self.intake.now(), reason));
        if state.connection.is_none() {
            status.connected = None;
        }
        NextStep::Backoff(state.backoff.next_delay(after, slowly, journal::random_id() as u64))
    }
}

/// Completes at the deadline of a stop.
async fn stop_deadline(mut stop: watch::Receiver<Option<Instant>>) {
    let Ok(end) = stop.wait_for(Option::is_some).await.map(|end| *end) else { return };
    if let Some(end) = end {
        tokio::time::sleep_until(end.into()).await;
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match role::run_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Stopped),
    }
}
