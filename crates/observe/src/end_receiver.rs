//! The node that compares both ends: receives reports, and stores what was matched as series.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use intake::Intake;
use role::json::Json;
use role::{RouteError, WriteMethod, WriteRequest, WriteRoute, WriteRouteSpec, WriteScope};
use wire::{EndMatcher, EndReport, ReportOutcome};

use crate::end_series::add_interval;
use crate::end_settings::PATH;
use crate::error::Error;
use crate::interval_clock::IntervalClock;
use crate::interval_queue::{IntervalQueue, QueuedIntervals};
use crate::interval_writer::IntervalWriter;
use crate::supervised_spawn::spawn;

/// Longest delay until a stop, or the end of an interval, is noticed.
const WAIT: Duration = Duration::from_millis(100);
/// Name of the producer and of its key encoding.
const PRODUCER: &str = "wire ends";

/// Reports of requests.
pub(crate) static REPORT: WriteRouteSpec = WriteRouteSpec {
    method: WriteMethod::Post,
    path: PATH,
    scope: WriteScope::Ingest,
    about: "Requests that another node has captured, for the comparison of both ends \
            (docs/formats/wire-ends.md).",
    parameters: &[],
    body: Some("a report of requests"),
    response: "empty; the requests wait in memory for those of the other end",
};

/// Receives reports. Clones share it.
#[derive(Clone)]
pub(crate) struct EndReceiver {
    /// `None` if this node does not compare.
    matcher: Arc<Mutex<Option<EndMatcher>>>,
    began: Instant,
}

impl fmt::Debug for EndReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndReceiver").finish_non_exhaustive()
    }
}

/// A running thread that stores what is matched. Ends on drop.
#[derive(Debug)]
pub(crate) struct EndStore {
    stop: Arc<AtomicBool>,
    receiver: EndReceiver,
    thread: Option<JoinHandle<Option<intake::Result<()>>>>,
}

impl EndReceiver {
    /// A receiver that rejects reports.
    pub(crate) fn new() -> EndReceiver {
        EndReceiver { matcher: Arc::default(), began: Instant::now() }
    }

    fn matcher(&self) -> MutexGuard<'_, Option<EndMatcher>> {
        self.matcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Adds a report; `None` if this node does not compare.
    pub(crate) fn add(&self, report: &EndReport) -> Option<ReportOutcome> {
        let now = self.now();
        Some(self.matcher().as_mut()?.add(report, now))
    }

    /// The route of reports.
    pub(crate) fn route(&self) -> WriteRoute {
        let receiver = self.clone();
        WriteRoute::new(&REPORT, move |request| receiver.receive(request))
    }

    fn receive(&self, request: &WriteRequest) -> Result<Json, RouteError> {
        let report = EndReport::decode(&request.body);
        let report = report.map_err(|error| RouteError::BadRequest(error.to_string()))?;
        match self.add(&report) {
            Some(ReportOutcome::Accepted | ReportOutcome::Repeated) => Ok(Json::Null),
            Some(ReportOutcome::TooManySenders) => {
                let what = "cannot take the report: limit of 1024 nodes that have reported in the \
                            last 5 minutes reached, where a node that has started again is \
                            another one; retry later, or let fewer nodes report";
                Err(RouteError::Limit(what.to_owned()))
            }
            None => Err(RouteError::NotFound(
                "this node does not compare both ends; set receive = true in [wire_ends]"
                    .to_owned(),
            )),
        }
    }
}

impl EndStore {
    /// Starts to receive, and to store intervals.
    pub(crate) fn start(
        receiver: &EndReceiver,
        host: &str,
        intake: &Arc<Intake>,
    ) -> Result<EndStore, Error> {
        let began = intake.now();
        let mut matcher = EndMatcher::new();
        matcher.begin_interval(began);
        *receiver.matcher() = Some(matcher);
        let stop = Arc::new(AtomicBool::new(false));
        let mut work = StoreWork {
            intake: Arc::clone(intake),
            receiver: receiver.clone(),
            clock: IntervalClock::new(intake.settings().interval, began),
            writer: IntervalWriter::new(intake, PRODUCER, host, IntervalQueue::default()),
        };
        let (is_set, stopping) = (Arc::clone(&stop), Arc::clone(&stop));
        let supervised = intake.supervisor().thread("wire ends writer");
        let is_stopping = move || stopping.load(Ordering::Relaxed);
        let thread = spawn("wire ends writer", supervised, is_stopping, move || work.run(&is_set))?;
        Ok(EndStore { stop, receiver: receiver.clone(), thread: Some(thread) })
    }

    /// Stops to receive, and writes the last interval.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        self.end_thread()
    }

    fn end_thread(&mut self) -> Result<(), Error> {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().map(JoinHandle::join);
        *self.receiver.matcher() = None;
        match outcome {
            None => Ok(()),
            Some(Ok(Some(outcome))) => Ok(outcome?),
            Some(Ok(None) | Err(_)) => Err(Error::WriterPanic),
        }
    }
}

impl Drop for EndStore {
    fn drop(&mut self) {
        // `stop` returns the error to callers that need it.
        let _ = self.end_thread();
    }
}

struct StoreWork {
    intake: Arc<Intake>,
    receiver: EndReceiver,
    clock: IntervalClock,
    writer: IntervalWriter,
}

impl StoreWork {
    fn run(&mut self, stop: &AtomicBool) -> intake::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(WAIT);
            let now = self.intake.now();
            self.clock.follow(now);
            if let Some(end) = self.clock.end_before(now) {
                self.write(end);
                self.clock.advance(end, now);
            }
        }
        let end = self.intake.now().max(self.clock.start().saturating_add(1));
        self.write(end);
        self.writer.finish()
    }

    fn write(&mut self, end: i64) {
        let now = self.receiver.now();
        let interval = self.receiver.matcher().as_mut().map(|matcher| {
            let interval = matcher.take_interval(now);
            matcher.begin_interval(end);
            interval
        });
        let Some(interval) = interval else { return };
        let mut intervals = QueuedIntervals { end: Some(end), ..QueuedIntervals::default() };
        let start = self.clock.start().min(end);
        add_interval(&mut intervals, &interval, [start, end]);
        self.writer.write_intervals(intervals);
    }
}
