//! The thread that reports measured requests to the node that compares both ends.
//!
//! A report that the other node does not accept is sent again for some seconds, while requests of
//! the time after it wait in bounded memory; then it is dropped and counted. A stop delivers what
//! is left within some seconds, however many reports that are.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use intake::{EventCounter, Intake, LogLevel};
use net::dial::{DialTimeouts, Dialer, HttpConnection, ResponseLimits};
use tokio::runtime::Runtime;
use wire::{EndRecords, EndReport, EndReportCounts};

use crate::end_queue::EndQueue;
use crate::end_receiver::EndReceiver;
use crate::end_settings::{EndSettings, EndTarget};
use crate::error::Error;
use crate::local_addresses::LocalAddresses;
use crate::supervised_spawn::spawn;

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Attempts to send a report. The other end waits for it for 15 s or more.
const ATTEMPTS: u32 = 10;
const RESPONSE_LIMITS: ResponseLimits =
    ResponseLimits { timeout: Duration::from_secs(5), max_bytes: 64 << 10 };

/// Longest delay until a stop ends an attempt.
const WAIT: Duration = Duration::from_millis(100);

/// A running thread. Ends on drop.
pub(crate) struct EndReporter {
    queue: EndQueue,
    renewed: RenewedClient,
    /// Token of the requests.
    authorization: Option<HeaderValue>,
    thread: Option<JoinHandle<Option<()>>>,
}

/// A client with a new token or certificates, until the thread takes it.
type RenewedClient = Arc<Mutex<Option<Box<ReportClient>>>>;

/// Where reports go.
enum ReportDestination {
    ThisNode(EndReceiver),
    OtherNode(Box<ReportClient>),
}

struct ReporterWork {
    intake: Arc<Intake>,
    queue: EndQueue,
    host: String,
    settings: EndSettings,
    destination: ReportDestination,
    renewed: RenewedClient,
    addresses: LocalAddresses,
    sender: u64,
    sequence: u64,
    counters: ReportCounters,
    is_failing: bool,
}

/// Requests by what became of them.
struct ReportCounters {
    reported: EventCounter,
    outside_sample: EventCounter,
    unknown_end: EventCounter,
    missing_sequence: EventCounter,
    dropped: EventCounter,
    unsent: EventCounter,
}

/// Connection to another node.
struct ReportClient {
    target: EndTarget,
    dialer: Dialer,
    connection: Option<HttpConnection>,
    /// Created and dropped by the thread: a node starts and stops inside of a runtime.
    runtime: Option<Runtime>,
}

/// Why a report was not accepted.
struct ReportFailure {
    reason: String,
    /// Whether another attempt may succeed.
    is_temporary: bool,
}

impl std::fmt::Debug for EndReporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndReporter").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl EndReporter {
    /// Starts to report what is pushed to `queue`.
    pub(crate) fn start(
        settings: &EndSettings,
        queue: EndQueue,
        receiver: &EndReceiver,
        host: &str,
        intake: &Arc<Intake>,
    ) -> Result<EndReporter, Error> {
        let destination = match &settings.target {
            None => ReportDestination::ThisNode(receiver.clone()),
            Some(target) => ReportDestination::OtherNode(Box::new(ReportClient::new(target)?)),
        };
        let renewed = RenewedClient::default();
        let mut work = ReporterWork {
            intake: Arc::clone(intake),
            queue: queue.clone(),
            host: host.to_owned(),
            settings: settings.clone(),
            destination,
            renewed: Arc::clone(&renewed),
            addresses: LocalAddresses::new(),
            sender: journal::random_id() as u64,
            sequence: 0,
            counters: ReportCounters::new(intake),
            is_failing: false,
        };
        let closed = queue.clone();
        let supervised = intake.supervisor().thread("wire ends");
        let is_closed = move || closed.is_closed();
        let thread = spawn("wire ends", supervised, is_closed, move || work.run())?;
        let authorization = settings.target.as_ref().and_then(|of| of.authorization.clone());
        Ok(EndReporter { queue, renewed, authorization, thread: Some(thread) })
    }

    /// Takes the token, and the content of certificate files, which may have changed. Returns
    /// whether there is anything to take.
    pub(crate) fn renew(&mut self, settings: &EndSettings) -> Result<bool, Error> {
        let Some(target) = &settings.target else { return Ok(false) };
        if self.authorization == target.authorization && !target.tls.has_files() {
            return Ok(false);
        }
        let client = Box::new(ReportClient::new(target)?);
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
        self.authorization.clone_from(&target.authorization);
        Ok(true)
    }

    /// Reports what is in the queue, with one attempt within some seconds, and ends the thread.
    pub(crate) fn stop(mut self) {
        self.end_thread();
    }

    fn end_thread(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The supervisor reports panics.
            let _ = thread.join();
        }
    }
}

impl Drop for EndReporter {
    fn drop(&mut self) {
        self.end_thread();
    }
}

impl ReporterWork {
    fn run(&mut self) {
        loop {
            let taken = self.queue.take_after(INTERVAL);
            self.counters.dropped.add(taken.dropped_requests);
            self.report(taken.records);
            if taken.is_last {
                return;
            }
        }
    }

    fn report(&mut self, records: Vec<EndRecords>) {
        let mut report = self.new_report();
        for records in records {
            if !report.has_space_for(&records) {
                self.deliver(&report);
                report = self.new_report();
            }
            let (addresses, end) = (&mut self.addresses, self.settings.end);
            let counts = report.add(records, self.settings.one_in, &mut |client, server| {
                end.or_else(|| addresses.end_of(client, server))
            });
            self.counters.add(&counts);
        }
        if !report.is_empty() {
            self.deliver(&report);
        }
    }

    fn new_report(&mut self) -> EndReport {
        self.sequence += 1;
        EndReport::new(&self.host, self.sender, self.sequence)
    }

    fn deliver(&mut self, report: &EndReport) {
        self.intake.supervisor().failpoint("wire ends report");
        let client = match &mut self.destination {
            ReportDestination::ThisNode(receiver) => {
                receiver.add(report);
                self.counters.reported.add(report.requests());
                return;
            }
            ReportDestination::OtherNode(client) => client,
        };
        let body = Bytes::from(report.encode());
        let mut attempts = 0;
        let failure = loop {
            let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(renewed) = renewed {
                *client = renewed;
            }
            let Err(failure) = client.send(&body, &self.queue) else { break None };
            attempts += 1;
            if !failure.is_temporary || attempts == ATTEMPTS || self.queue.is_closed() {
                break Some(failure);
            }
            self.queue.wait(INTERVAL);
        };
        let url = client.target.url.clone();
        match failure {
            None => self.counters.reported.add(report.requests()),
            Some(_) => self.counters.unsent.add(report.requests()),
        }
        let is_failing = failure.is_some();
        if is_failing != std::mem::replace(&mut self.is_failing, is_failing) {
            let (level, line) = match failure {
                None => (LogLevel::Info, format!("wire: {url} accepts reports of requests again")),
                Some(ReportFailure { reason, .. }) => {
                    let line = format!("wire: cannot report requests to {url}: {reason}");
                    (LogLevel::Warn, line)
                }
            };
            (self.intake.settings().log)(level, &line);
        }
    }
}

impl ReportCounters {
    fn new(intake: &Intake) -> ReportCounters {
        let counter = |outcome| {
            intake.meter().counter(
                "topdeck_wire_ends_requests_total",
                "Measured requests of TCP connections by what became of their reports to the node \
                 that compares both ends",
                &[("outcome", outcome)],
            )
        };
        ReportCounters {
            reported: counter("reported"),
            outside_sample: counter("outside_sample"),
            unknown_end: counter("unknown_end"),
            missing_sequence: counter("missing_sequence"),
            dropped: counter("limit"),
            unsent: counter("unsent"),
        }
    }

    fn add(&self, counts: &EndReportCounts) {
        // Reported ones are counted when they have arrived.
        let EndReportCounts { outside_sample, unknown_end, missing_sequence, dropped, .. } =
            *counts;
        self.outside_sample.add(outside_sample);
        self.unknown_end.add(unknown_end);
        self.missing_sequence.add(missing_sequence);
        self.dropped.add(dropped);
    }
}

impl ReportClient {
    fn new(target: &EndTarget) -> Result<ReportClient, Error> {
        let dialer =
            Dialer::for_target(&target.endpoint, &target.tls, &[], DialTimeouts::default())
                .map_err(|error| Error::ReportTarget(error.to_string()))?;
        Ok(ReportClient { target: target.clone(), dialer, connection: None, runtime: None })
    }

    /// Sends a report, unless the time of a closed queue is over.
    fn send(&mut self, body: &Bytes, queue: &EndQueue) -> Result<(), ReportFailure> {
        let ReportClient { target, dialer, connection, runtime } = self;
        let failure = |reason: String| ReportFailure { reason, is_temporary: true };
        let stopped = || failure("no response before the stop".to_owned());
        if queue.is_over() {
            return Err(stopped());
        }
        let temporary = |error: net::dial::Error| failure(error.to_string());
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => {
                let new = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.insert(new.map_err(|error| failure(error.to_string()))?)
            }
        };
        let used = connection.take().filter(HttpConnection::is_open);
        let exchange = async {
            let mut open = match used {
                Some(open) => open,
                None => dialer.dial(&target.endpoint).await.map_err(temporary)?.0,
            };
            let mut request = Request::post(target.endpoint.path.as_str())
                .header(header::CONTENT_TYPE, "application/octet-stream");
            if let Some(authorization) = &target.authorization {
                request = request.header(header::AUTHORIZATION, authorization.clone());
            }
            let request = request.body(body.clone()).expect("BUG: the target's path is valid");
            let response = open.send(request, RESPONSE_LIMITS).await.map_err(temporary)?;
            Ok::<_, ReportFailure>((open, response.response))
        };
        let over = async {
            while !queue.is_over() {
                tokio::time::sleep(WAIT).await;
            }
        };
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = exchange => outcome,
                () = over => Err(stopped()),
            }
        });
        let (open, response) = outcome?;
        *connection = Some(open);
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(response.body()).into_owned();
        let is_temporary = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Err(ReportFailure { reason: format!("{status}: {}", text.trim()), is_temporary })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use net::Endpoint;
    use net::tls::ClientTls;

    use super::*;

    fn settings(url: &str, token: &'static str) -> EndSettings {
        let target = EndTarget {
            url: url.to_owned(),
            endpoint: Endpoint::parse(url).unwrap(),
            authorization: Some(HeaderValue::from_static(token)),
            tls: ClientTls::default(),
        };
        EndSettings { target: Some(target), ..EndSettings::default() }
    }

    /// Each report had its own 5 s.
    #[test]
    fn reports_to_a_node_that_does_not_answer_share_the_time_of_a_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut client = ReportClient::new(&settings(&url, "a").target.unwrap()).unwrap();
        let queue = EndQueue::default();
        queue.close();
        for _ in 0..3 {
            let failure = client.send(&Bytes::from_static(b"report"), &queue).unwrap_err();
            assert_eq!(failure.reason, "no response before the stop");
        }
        let connections = std::iter::from_fn(|| listener.accept().ok());
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn a_changed_token_is_taken_without_a_restart() {
        let mut reporter = EndReporter {
            queue: EndQueue::default(),
            renewed: RenewedClient::default(),
            authorization: Some(HeaderValue::from_static("a")),
            thread: None,
        };
        let url = "http://127.0.0.1:1";
        assert!(!reporter.renew(&settings(url, "a")).unwrap());
        assert!(reporter.renew(&settings(url, "b")).unwrap());
        let renewed = reporter.renewed.lock().unwrap().take().unwrap();
        assert_eq!(renewed.target.authorization.unwrap(), "b");
        assert!(!reporter.renew(&settings(url, "b")).unwrap());
        // The content of files may have changed.
        let mut with_files = settings(url, "b");
        with_files.target.as_mut().unwrap().tls.ca = Some("/nowhere/ca.pem".into());
        assert!(reporter.renew(&with_files).unwrap());
    }
}
