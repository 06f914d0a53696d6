//! Sends the batches of an import to a server, again until they are durable there.
//!
//! A request is sent again after a lost connection and after a response that asks for it (408, 425,
//! 429, 5xx), with exponential backoff and not before the delay of `Retry-After`. A batch is
//! identified by producer and sequence, so the server stores it once. A thread sends while the next
//! batches are encoded. Memory: three requests of about 3 MiB, whatever the size of the file.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use client::{ServerClient, ServerSession, print_message, response_error, unreachable_error};
use http::{Response, StatusCode, header};
use model::{Batch, ForwardRequestWriter};
use net::{ExponentialBackoff, forward_protocol};
use render::time::format_age;
use serde_json::Value;

use crate::import_batches::BATCH_FORMAT;

/// Size at which a request is sent, in bytes: as in requests of agents.
const REQUEST_BYTES: usize = 3 << 20;
/// Requests that wait while another one is in flight.
const WAITING_REQUESTS_MAX: usize = 1;
/// First and longest delay before a retry, without `Retry-After`.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// A server that is only busy answers again sooner; longer waits are reported.
const REPORTED_AFTER: Duration = Duration::from_secs(10);

/// Sender of the batches of one producer, in order of their sequences.
pub(crate) struct BatchSender {
    journal: u128,
    request: ForwardRequestWriter,
    requests: Option<SyncSender<BatchRequest>>,
    outcomes: Receiver<Result<RequestOutcome>>,
    thread: JoinHandle<()>,
    /// Last sequence that the server had at the start.
    last_known: u64,
}

struct BatchRequest {
    body: Bytes,
    batches: u32,
}

/// Outcome of a request: its batches are durable. The duplicates are the first ones.
pub(crate) struct RequestOutcome {
    pub(crate) batches: u64,
    pub(crate) duplicates: u64,
}

impl BatchSender {
    /// Asks the server up to which sequence it has the producer's batches, and starts the thread.
    /// Retries end after `retry_for` without progress; a server that cannot be reached at the
    /// start is an error at once.
    pub(crate) fn start(
        server: &ServerClient,
        retry_for: Duration,
        producer: u64,
    ) -> Result<BatchSender> {
        let session =
            ServerSession::new(server, forward_protocol::PATH, forward_protocol::CONTENT_TYPE)?;
        let mut link = ServerLink { session, retry_for, is_reached: false };
        let journal = u128::from(BATCH_FORMAT) << 64 | u128::from(producer);
        // Earlier servers answer an empty request without a sequence, and detect all duplicates.
        let position = link.send(&ForwardRequestWriter::new(journal).finish().into())?;
        let (requests, waiting) = mpsc::sync_channel::<BatchRequest>(WAITING_REQUESTS_MAX);
        let (done, outcomes) = mpsc::channel();
        let send = move || {
            for request in waiting {
                let sent = link.send(&request.body).map(|response| RequestOutcome {
                    batches: request.batches.into(),
                    // After a retry they may be those of the first attempt.
                    duplicates: if response.is_retried { 0 } else { response.duplicates },
                });
                let is_failed = sent.is_err();
                if done.send(sent).is_err() || is_failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("send".to_owned()).spawn(send);
        let thread = thread.context("cannot start a thread")?;
        Ok(BatchSender {
            journal,
            request: ForwardRequestWriter::new(journal),
            requests: Some(requests),
            outcomes,
            thread,
            last_known: position.accepted.unwrap_or(0),
        })
    }

    /// Sequence up to which the server had everything at the start.
    pub(crate) fn last_known(&self) -> u64 {
        self.last_known
    }

    /// Adds a batch to the next request; waits if the server is slower.
    pub(crate) fn push(&mut self, sequence: u64, batch: &Batch) -> Result<()> {
        if !self.request.is_empty() && self.request.bytes_with(batch.bytes().len()) > REQUEST_BYTES
        {
            self.submit()?;
        }
        self.request.push(sequence, batch.bytes());
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        let next = ForwardRequestWriter::new(self.journal);
        let request = std::mem::replace(&mut self.request, next);
        let batches = request.len();
        let request = BatchRequest { body: request.finish().into(), batches };
        let Some(requests) = &self.requests else { return Ok(()) };
        if requests.send(request).is_err() {
            // The thread ended: with an error, which comes before the end of the outcomes, or with
            // a panic, which `finish` passes on.
            self.outcomes.iter().collect::<Result<Vec<_>>>()?;
            self.requests = None;
        }
        Ok(())
    }

    /// The next outcome that is known.
    pub(crate) fn next_outcome(&mut self) -> Result<Option<RequestOutcome>> {
        self.outcomes.try_recv().ok().transpose()
    }

    /// Sends the rest and waits for all outcomes.
    pub(crate) fn finish(mut self) -> Result<Vec<RequestOutcome>> {
        if !self.request.is_empty() {
            self.submit()?;
        }
        self.requests = None;
        let outcomes = self.outcomes.iter().collect();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        outcomes
    }
}

/// Response of a server that has all batches of a request durably.
struct Acknowledgement {
    accepted: Option<u64>,
    duplicates: u64,
    is_retried: bool,
}

/// Sends requests until they are acknowledged.
struct ServerLink {
    session: ServerSession,
    retry_for: Duration,
    /// Whether the server has responded before.
    is_reached: bool,
}

impl ServerLink {
    fn send(&mut self, body: &Bytes) -> Result<Acknowledgement> {
        let started = Instant::now();
        let mut backoff = ExponentialBackoff::new(RETRY_DELAYS);
        let (mut is_retried, mut is_reported) = (false, false);
        loop {
            let refusal = match self.session.post(body) {
                Ok(response) => {
                    self.is_reached = true;
                    match Refusal::parse(self.session.url(), &response)? {
                        None => {
                            if is_reported {
                                print_retry_message(format!("{}: continuing", self.session.url()));
                            }
                            return parse_acknowledgement(&response, is_retried);
                        }
                        Some(refusal) => refusal,
                    }
                }
                Err(error) if !self.is_reached => {
                    return Err(unreachable_error(self.session.url(), &error));
                }
                Err(error) => Refusal { reason: error.to_string(), retry_after: None },
            };
            let random = journal::random_id() as u64;
            let delay = backoff.next_delay(refusal.retry_after, false, random);
            let left = self.retry_for.saturating_sub(started.elapsed());
            if self.retry_for.is_zero() {
                bail!("{}; not retried (--retry-for)", refusal.reason);
            }
            let retry_for = format_age(self.retry_for);
            if delay > left {
                bail!("{}; no progress for {retry_for} (--retry-for)", refusal.reason);
            }
            let waits_long = refusal.retry_after.is_none() && is_retried
                || started.elapsed() + delay > REPORTED_AFTER;
            if waits_long && !is_reported {
                is_reported = true;
                print_retry_message(format!("{}; retrying for {retry_for}", refusal.reason));
            }
            is_retried = true;
            thread::sleep(delay);
        }
    }
}

/// Prints a message over the progress line.
fn print_retry_message(message: String) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    print_message(message);
}

/// Response that asks to send the request again.
#[derive(Debug, PartialEq)]
struct Refusal {
    reason: String,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// `None` for an acknowledgement; an error if a retry cannot succeed.
    fn parse(url: &str, response: &Response<Bytes>) -> Result<Option<Refusal>> {
        let status = response.status();
        if status.is_success() {
            return Ok(None);
        }
        let error = response_error(url, forward_protocol::PATH, status, response.body());
        let is_temporary = status.is_server_error()
            || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS]
                .contains(&status);
        if !is_temporary {
            return Err(error);
        }
        let seconds = response.headers().get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
        let retry_after = seconds.map(Duration::from_secs);
        Ok(Some(Refusal { reason: error.to_string(), retry_after }))
    }
}

fn parse_acknowledgement(response: &Response<Bytes>, is_retried: bool) -> Result<Acknowledgement> {
    let body: Value = serde_json::from_slice(response.body())
        .map_err(|error| anyhow!("the response is not JSON: {error}; is this a topdeck server?"))?;
    let duplicates = body["duplicates"].as_u64();
    let duplicates = duplicates.context("the server did not report duplicates")?;
    Ok(Acknowledgement { accepted: body["accepted"].as_u64(), duplicates, is_retried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, retry_after: Option<&str>, expected: Result<Option<Option<u64>>, &str>) {
        let mut response = Response::builder().status(status);
        if let Some(seconds) = retry_after {
            response = response.header(header::RETRY_AFTER, seconds);
        }
        let body = Bytes::from_static(b"{\"error\":\"why\"}");
        let found = Refusal::parse("http://a", &response.body(body).unwrap());
        let found = found.map(|refusal| {
            refusal.map(|refusal| {
                assert!(refusal.reason.ends_with(": why"), "{}", refusal.reason);
                refusal.retry_after.map(|delay| delay.as_secs())
            })
        });
        assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn only_temporary_refusals_are_retried() {
        check(200, None, Ok(None));
        check(429, Some("7"), Ok(Some(Some(7))));
        check(503, Some("soon"), Ok(Some(None)));
        check(502, None, Ok(Some(None)));
        check(408, None, Ok(Some(None)));
        check(413, None, Err("http://a: 413 Payload Too Large: why"));
        check(409, Some("1"), Err("http://a: 409 Conflict: why"));
        check(
            403,
            None,
            Err("http://a: 403 Forbidden: why; use a token with the scope (`topdeck token`)"),
        );
    }
}
