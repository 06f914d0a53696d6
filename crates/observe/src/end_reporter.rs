//! The thread that reports measured requests to the node that compares both ends.
//!
//! A report that the other node does not accept is sent again for some seconds, while requests of
//! the time after it wait in bounded memory; then it is dropped and counted.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
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

/// A running thread. Ends on drop.
#[derive(Debug)]
pub(crate) struct EndReporter {
    queue: EndQueue,
    thread: Option<JoinHandle<Option<()>>>,
}

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
    unlocated: EventCounter,
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
        let mut work = ReporterWork {
            intake: Arc::clone(intake),
            queue: queue.clone(),
            host: host.to_owned(),
            settings: settings.clone(),
            destination,
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
        Ok(EndReporter { queue, thread: Some(thread) })
    }

    /// Reports what is in the queue, with one attempt, and ends the thread.
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
            let Err(failure) = client.send(&body) else { break None };
            attempts += 1;
            if !failure.is_temporary || attempts == ATTEMPTS || self.queue.is_closed() {
                break Some(failure);
            }
            std::thread::sleep(INTERVAL);
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
            unlocated: counter("position"),
            dropped: counter("limit"),
            unsent: counter("unsent"),
        }
    }

    fn add(&self, counts: &EndReportCounts) {
        // Reported ones are counted when they have arrived.
        let EndReportCounts { outside_sample, unknown_end, unlocated, dropped, .. } = *counts;
        self.outside_sample.add(outside_sample);
        self.unknown_end.add(unknown_end);
        self.unlocated.add(unlocated);
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

    fn send(&mut self, body: &Bytes) -> Result<(), ReportFailure> {
        let ReportClient { target, dialer, connection, runtime } = self;
        let failure = |reason: String| ReportFailure { reason, is_temporary: true };
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
        let (open, response) = runtime.block_on(exchange)?;
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
