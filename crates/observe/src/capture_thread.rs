//! A running capture: the threads that capture and the thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use intake::{Intake, LogLevel, SupervisedThread};

use crate::capture_status::CaptureStatus;
use crate::capture_worker::CaptureWorker;
use crate::error::Error;
use crate::interval_clock::IntervalClock;
use crate::interval_composer::IntervalComposer;
use crate::interval_merger::IntervalMerger;
use crate::interval_observer::IntervalObserver;
use crate::interval_queue::IntervalQueue;
use crate::interval_writer::IntervalWriter;
use crate::packet_source::{InterfaceRings, PacketSource};
use crate::settings::CaptureSettings;

/// A running capture. Stops on drop.
#[derive(Debug)]
pub struct WireCapture {
    stop: Arc<AtomicBool>,
    queue: IntervalQueue,
    merger: IntervalMerger,
    status: CaptureStatus,
    captures: Vec<JoinHandle<Option<()>>>,
    writer: Option<JoinHandle<Option<intake::Result<()>>>>,
}

impl WireCapture {
    /// Starts to capture the packets of the interfaces. TLS libraries that cannot be read do not
    /// stop it: the reason is in the log and in the status.
    pub(crate) fn start(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
    ) -> Result<WireCapture, Error> {
        let mut rings = InterfaceRings::open(settings)?;
        // The sessions of all libraries are in the records of one ring, so one thread reads them.
        let tls = match rings.first_mut() {
            Some(rings) => rings.open_tls(settings).map_err(|error| error.to_string()),
            None => Ok(Vec::new()),
        };
        if let Err(error) = &tls {
            (intake.settings().log)(LogLevel::Warn, &format!("wire: {error}"));
        }
        let rings = rings.into_iter();
        let sources = rings.map(|rings| Box::new(rings) as Box<dyn PacketSource>).collect();
        let capture = WireCapture::start_threads(settings, intake, sources, true)?;
        if !settings.tls.is_empty() {
            capture.status.set_tls(tls);
        }
        Ok(capture)
    }

    /// As a capture of interfaces, with a thread for the packets of each source.
    pub fn start_with_sources(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
        sources: Vec<Box<dyn PacketSource>>,
    ) -> Result<WireCapture, Error> {
        WireCapture::start_threads(settings, intake, sources, false)
    }

    fn start_threads(
        settings: &CaptureSettings,
        intake: &Arc<Intake>,
        sources: Vec<Box<dyn PacketSource>>,
        has_capabilities: bool,
    ) -> Result<WireCapture, Error> {
        let (queue, stop) = (IntervalQueue::default(), Arc::new(AtomicBool::new(false)));
        let status = CaptureStatus::new(&settings.interfaces);
        let (now, shards) = (intake.now(), sources.len());
        let composer = IntervalComposer::new(settings, now, queue.clone(), status.clone());
        let merger = IntervalMerger::new(settings, shards, composer);
        let mut writer = IntervalWriter::new(intake, &settings.host, queue.clone());
        let closed = queue.clone();
        let writer = spawn(
            "wire writer",
            intake.supervisor().thread("wire writer"),
            move || closed.is_closed(),
            move || writer.run(),
        )?;
        let (captures, writer) = (Vec::new(), Some(writer));
        let mut capture = WireCapture { stop, queue, merger, status, captures, writer };
        for (shard, source) in sources.into_iter().enumerate() {
            let clock = IntervalClock::new(intake.settings().interval, now);
            let merger = capture.merger.clone();
            let mut worker = CaptureWorker {
                intake: Arc::clone(intake),
                source,
                observer: IntervalObserver::new(settings.clone(), shard, clock, merger),
                status: capture.status(),
                has_capabilities,
                has_started: false,
            };
            let (stop, is_set) = (Arc::clone(&capture.stop), Arc::clone(&capture.stop));
            let started = spawn(
                "wire",
                intake.supervisor().thread("wire"),
                move || is_set.load(Ordering::Relaxed),
                move || worker.run(&stop),
            );
            capture.captures.push(started?);
        }
        Ok(capture)
    }

    pub(crate) fn status(&self) -> CaptureStatus {
        self.status.clone()
    }

    /// Stops: reads the packets that were captured so far, writes the last interval, waits until it
    /// is durable, and ends the threads. If the journal has no space for some seconds, the interval
    /// is lost and an error is returned; so too if the thread that writes panics at its end.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end_threads()
    }

    fn end_threads(&mut self) -> Result<(), Error> {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
        for capture in self.captures.drain(..) {
            // The supervisor reports panics.
            let _ = capture.join();
        }
        // The threads have done so, unless one panicked at its end.
        if !self.queue.is_closed() {
            self.merger.finish_all();
        }
        match self.writer.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(Some(outcome))) => Ok(outcome?),
            Some(Ok(None) | Err(_)) => Err(Error::WriterPanic),
        }
    }
}

impl Drop for WireCapture {
    fn drop(&mut self) {
        // `stop` returns the error to callers that need it.
        let _ = self.end_threads();
    }
}

fn spawn<T: Send + 'static>(
    name: &'static str,
    supervised: SupervisedThread,
    is_stopping: impl Fn() -> bool + Send + 'static,
    mut work: impl FnMut() -> T + Send + 'static,
) -> Result<JoinHandle<Option<T>>, Error> {
    let run = move || {
        let run = || {
            supervised.failpoint();
            work()
        };
        supervised.run(is_stopping, run)
    };
    Builder::new().name(name.to_owned()).spawn(run).map_err(|source| Error::Thread { name, source })
}
